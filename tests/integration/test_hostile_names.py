"""A terminal obeys nothing in the names of tasks and groups or in messages; of what tasks print it obeys colours."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

PATIENCE = 120
TITLE = r"\x1b]0;gotcha\x07"  # sets the title of a terminal's window; here as Python writes it
ORDER = TITLE.encode().decode("unicode_escape")
SCRIPT = f"""
import bough
ORDER = {ORDER!r}
def raises(value):
    raise ValueError(value)
with bough.Session(name="wf", echo=True, progress=True, on_failure="report") as s:
    group = s.group("g" + ORDER)
    group.command(["printf", "%s\\n", "\\x1b[31mred" + ORDER], name="speaks" + ORDER)
    group.command(["sh", "-c", "printf '%s\\n' \\"$1\\" >&2; exit 3", "sh", "err" + ORDER], name="fails" + ORDER)
    group.submit(raises, ORDER)
    group.command("until [ -e drawn ]; do sleep 0.02; done", name="slow" + ORDER)
"""
BOUGH = [sys.executable, "-m", "bough.cli.main"]


def on_terminal(folder: Path, words: list[str], until: bytes = b"") -> bytes:
    """What a program shows on a terminal of its own; a file is made when `until` was seen."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in {"BOUGH_SERVER", "CI", "NO_COLOR"}}
    environment |= {"TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(words, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as program:
        os.close(theirs)
        timer = threading.Timer(PATIENCE, program.kill)
        timer.start()
        seen = b""
        try:
            while data := os.read(ours, 1 << 16):
                seen += data
                if until and until in seen:
                    (folder / "drawn").touch()
        except OSError:  # its end: the terminal has no other side any more
            pass
        finally:
            timer.cancel()
            os.close(ours)
    return seen


def test_nothing_in_names_and_messages_is_obeyed(tmp_path: Path) -> None:
    order, shown = ORDER.encode(), TITLE.encode()
    (tmp_path / "script.py").write_text(SCRIPT)
    told = on_terminal(tmp_path, [sys.executable, "script.py"], until=b"g" + shown)  # the group, as the picture has it
    assert order not in told
    for name in (b"speaks", b"fails"):
        assert name + shown in told  # in lines of echo and in the report of failures
    assert b"\x1b[31mred" + shown in told
    assert b"err" + shown in told
    assert b"ValueError: " + shown in told

    watched = on_terminal(tmp_path, [*BOUGH, "run", "script.py"])
    assert order not in watched
    assert b"fails" + shown in watched
    for words in (["log", "all"], ["log", "-f", "all"], ["status"], ["explain", "--failed"]):
        told = on_terminal(tmp_path, [*BOUGH, *words, "--name", "wf"])
        assert order not in told, words
        assert b"fails" + shown in told, words


def test_what_a_task_printed_is_bytes_in_a_pipe_and_text_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "drawn").touch()
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, timeout=PATIENCE, check=True)
    log = [*BOUGH, "log", "1", "--stdout", "--name", "wf"]
    piped = subprocess.run(log, cwd=tmp_path, capture_output=True, timeout=PATIENCE, check=True).stdout
    assert piped == b"\x1b[31mred" + ORDER.encode() + b"\n"
    assert on_terminal(tmp_path, log) == b"\x1b[31mred" + TITLE.encode() + b"\r\n\x1b[0m"
