"""What tasks print is shown as it comes, named line by line: in scripts, under `bough run`, at a service."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from service_client import Service

BODY = """
import bough, sys, time
def f(n):
    print("value", n)
    print("oops", file=sys.stderr)
    return n
"""
SCRIPT = f"""{BODY}
with bough.Session(%s) as s:
    list(s.map(f, range(2)))
    s.command("echo begin; until [ -e go ]; do sleep 0.02; done; printf end", name="long")
    s.command("[ -e tried ] && echo again || {{ echo first; touch tried; exit 1; }}", name="twice", retries=1)
"""
LINES = [
    *("f 1.0 | value 0", "f 1.1 | value 1", "long 2 | begin", "long 2 | end"),
    *("twice 3 (attempt 2) | again", "twice 3 | first"),
]


def run(folder: Path, words: list[str], environment: dict[str, str] | None = None) -> tuple[list[str], list[str]]:
    """Run a script; its lines on stdout and on stderr. It goes on when it was seen that its task began."""
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdout is not None
        assert script.stderr is not None
        seen: list[str] = []
        while "long 2 | begin\n" not in seen:
            seen.append(script.stdout.readline())
            assert seen[-1], script.stderr.read()
        (folder / "go").touch()
        out, err = script.communicate(timeout=60)
        assert script.returncode == 0, err
    return [*"".join(seen).splitlines(), *out.splitlines()], err.splitlines()


@pytest.mark.parametrize("words", [["script.py"], ["-m", "bough.cli.main", "run", "--echo", "script.py"]])
def test_lines_come_while_tasks_run_each_named_and_whole(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "script.py").write_text(SCRIPT % ("echo=True, cores=2" if len(words) == 1 else "cores=2"))
    out, err = run(tmp_path, words)
    assert sorted(out) == sorted(LINES)
    assert out.index("twice 3 | first") < out.index("twice 3 (attempt 2) | again")
    assert sorted(line for line in err if "|" in line) == ["f 1.0 | oops", "f 1.1 | oops"]


def test_a_session_of_a_service_shows_what_its_tasks_print(tmp_path: Path) -> None:
    service = Service(tmp_path)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "script.py").write_text(SCRIPT % f"'unix:{service.address}', echo=True")
    try:
        service.start()
        service.executor(cores=2)
        out, _ = run(folder, ["script.py"], service.environment)
        assert sorted(line.partition(" | ")[2] for line in out) == sorted(line.partition(" | ")[2] for line in LINES)
    finally:
        service.clean_up()


def test_a_flood_is_cut_and_others_are_still_shown(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import bough\nwith bough.Session(echo=True, cores=2) as s:\n"
        "    s.command('seq 1 1000000', name='flood'); s.command('echo here; sleep 0.5', name='other')\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    lines = done.stdout.splitlines()
    assert "other 2 | here" in lines
    assert 0 < sum(line.startswith("flood 1 | ") for line in lines) < 20_000
    assert "flood 1 | ... about " in done.stderr
    assert " lines left out" in done.stderr


def test_without_being_asked_nothing_is_shown_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import bough, time\nwith bough.Session(cores=1) as s:\n    s.command('echo x; sleep 1.5')\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_a_plain_script_on_a_terminal_has_a_picture_that_goes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import bough, time\ndef f(x):\n    time.sleep(0.6)\n    return x\n"
        "with bough.Session(cores=1) as s:\n    print(sum(s.map(f, range(4))))\nprint('end')\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "CI"} | {"TERM": "xterm"}
    main, other = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, stdout=other, stderr=other, stdin=other
    ) as script:
        os.close(other)
        seen = b""
        while True:
            try:
                piece = os.read(main, 4096)
            except OSError:  # the other end is closed
                break
            seen += piece
        assert script.wait(60) == 0
    os.close(main)
    text = seen.decode()
    assert "/4, " in text  # a bar with counts
    assert text.index("/4, ") < text.index("6\r\n") < text.index("end\r\n")
    assert text.endswith("end\r\n")  # nothing of the picture is left behind it
