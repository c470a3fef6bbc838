"""`bough watchdog`: a command with monitors, as a batch script has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FOREVER = "while true; do sleep 0.05 || true; done"


def watchdog(folder: Path, script: str, *monitors: str) -> subprocess.CompletedProcess[bytes]:
    words = [word for monitor in monitors for word in ("--monitor", monitor)]
    argv = [sys.executable, "-m", "bough.cli.main", "watchdog", *words, "--", "/bin/bash", "-c", script]
    # some need 5 s of a processor, however busy that is
    return subprocess.run(argv, cwd=folder, capture_output=True, timeout=300, check=False)


def test_output_passes_through_unchanged_and_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    done = watchdog(tmp_path, "head -c 300000 /dev/zero; printf 'a\\r\\nb' ; printf e >&2; exit 7", "regex:never")
    assert done.stdout == bytes(300_000) + b"a\r\nb"
    assert done.stderr.endswith(b"e")
    assert done.returncode == 7
    assert watchdog(tmp_path, "kill -9 $$", "regex:never").returncode == 128 + signal.SIGKILL


def test_a_plateau_finishes_it(tmp_path: Path) -> None:
    done = watchdog(tmp_path, f"for i in 1 2 3 4 5; do echo score=3; done; {FOREVER}", "plateau:score=([0-9.]+),5,0.1")
    assert (done.returncode, done.stdout) == (0, b"score=3\n" * 5)
    assert done.stderr == b"bough: ended by plateau after 5 values: std 0 < 0.1\n"


def test_quiet_is_quiet(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "bough.cli.main", "watchdog", "-q", "--monitor", "regex:a -> fail", "--", "echo", "a"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"a\n", b"")


def test_a_failure_is_exit_code_1_also_when_the_command_was_faster(tmp_path: Path) -> None:
    for script in (f"echo ERROR; {FOREVER}", "echo ERROR"):
        done = watchdog(tmp_path, script, "regex:ERROR -> fail")
        assert done.returncode == 1
        assert done.stderr == b"bough: ended by regex: matched 'ERROR'\n"


def test_files_programs_signals_and_restarts(tmp_path: Path) -> None:
    done = watchdog(tmp_path, f"sleep 0.1; echo E=5 > log; {FOREVER}", "regex:file:log:E=([0-9]+),above=3")
    assert done.returncode == 0, done.stderr
    (tmp_path / "log").unlink()
    assert watchdog(tmp_path, f"sleep 0.1; touch flag; {FOREVER}", "exec:test -e flag,every=50ms").returncode == 0
    done = watchdog(tmp_path, f"trap 'exit 5' USR1; {FOREVER}", "after:100ms -> signal USR1")
    assert done.returncode == 5
    assert b"after: signal: 0.1 s have passed" in done.stderr
    again = f"echo $BOUGH_ATTEMPT; test $BOUGH_ATTEMPT = 3 || {{ {FOREVER}; }}"
    done = watchdog(tmp_path, again, "silent:200ms -> restart 3")
    assert (done.returncode, done.stdout) == (0, b"1\n2\n3\n")


def test_a_pattern_that_never_ends_harms_nobody(tmp_path: Path) -> None:
    script = f"echo {'a' * 40}b; echo fine; sleep 0.1; echo done"
    done = watchdog(tmp_path, script, "regex:stdout:^(a+)+$ -> fail", "regex:done -> tag ready")
    assert done.stdout.endswith(b"fine\ndone\n")
    assert b"trouble of regex: it took more than 5 s; it is set aside" in done.stderr
    assert b"regex-2: tag ready: matched 'done'" in done.stderr
    assert done.returncode == 0


def test_what_it_is_told_goes_to_the_command(tmp_path: Path) -> None:
    words = ["--monitor", "regex:never", "--", "/bin/bash", "-c", f"trap 'exit 9' TERM; touch ready; {FOREVER}"]
    with subprocess.Popen([sys.executable, "-m", "bough.cli.main", "watchdog", *words], cwd=tmp_path) as process:
        end = time.monotonic() + 30
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 9


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--", "true"), "--monitor"),
        (("--monitor", "after:1h"), "behind --"),
        (("--monitor", "regex:(", "--", "true"), "regular expression"),
        (("--monitor", "nonsense", "--", "true"), "nonsense"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    argv = [sys.executable, "-m", "bough.cli.main", "watchdog", *words]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_program_that_is_not_there_is_127(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "bough.cli.main", "watchdog", "--monitor", "after:1h", "--", "no-such-program"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 127
    assert done.stderr == "bough: the program 'no-such-program' cannot be started: No such file or directory\n"
