"""What the fuzzers of the command line and of descriptions share: hostile values, and one call of `bough` under watch.

Rule: everything comes from the dice that are handed in, so that a seed is an input; a call that takes longer than its
deadline is a hang, and is told as such.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

DEADLINE = 20.0  # seconds that one input may take in this process
LONG_DEADLINE = 90.0  # and as a process, on a busy machine
FINE = frozenset({0, 1, 2, 3})

NUMBERS = (
    *(
        "0",
        "1",
        "-1",
        "2",
        "7",
        "00",
        "+5",
        "-0",
        "1e3",
        "1e400",
        "-1e400",
        "nan",
        "-nan",
        "inf",
        "-inf",
        "NaN",
        "1_000",
    ),
    *("255", "256", "65536", "2147483647", "2147483648", "4294967296", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616"),
    *(
        "4611686018427387904",
        "4611686018427387905",
        "99999999999999999999",
        "1" + "0" * 40,
        "9" * 5000,
        "0.1",
        "1e-320",
    ),
    *("0x10", "²", "٣", "1.5", "1,5", "1 2", "1e", ".", "", "--5", "+-5", "1;2"),
)
RANGES = (
    *(
        "1-3",
        "1-9:2",
        "3-1",
        "1-",
        "-3",
        "1-9:0",
        "1,,2",
        "1-9999999999",
        "1-100000",
        "0-9223372036854775808",
        "5-5",
    ),
    *(
        "1-" + "9" * 5000,
        "1:2",
        "4611686018427387900-4611686018427387904",
        "1-2-3",
        "1,2,3-5,9",
        "1-4:99999999999999999999",
    ),
)
SELECTORS = (
    *(
        "last",
        "all",
        "*",
        "1",
        "1.0",
        "1.0-2",
        "2.5",
        "1-3",
        "align/*",
        "align",
        "a/b/*",
        "plot",
        "?",
        "x*y",
        "//",
        "/",
        ",",
    ),
    *(
        "1,,2",
        "99999999999999999999",
        "5.99999999999999999999",
        "5.1-99999999999999999999",
        "9223372036854775808",
        "3-1",
    ),
    *(
        "1.2.3",
        "1.",
        ".1",
        "-1",
        "q:",
        ":1",
        "q:all",
        "none:1",
        "9" * 5000,
        "1-" + "9" * 30,
        "2.0-1000000001",
        "0",
        "0.0",
    ),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "a b",
        "a\nb",
        "\n",
        "\t",
        "\r",
        "{x}",
        "{",
        "}",
        "{{x}}",
        "{cores}",
        "%s",
        "%",
        "$HOME",
        "$(true)",
    ),
    *(
        "'",
        '"',
        "\\",
        "-",
        "--",
        "-x",
        "--json",
        "=",
        "a=b",
        "a=1",
        "=1",
        "a=",
        "a=nan",
        "ä",
        "名",
        "\U0001f600",
        "\x7f\x1b[31m",
    ),
    *(
        "\udcff",
        "a\udc80b",
        "x" * 300,
        "y" * 70_000,
        "../..",
        ".",
        "..",
        "/",
        "//",
        "~",
        "a/b",
        ".hidden",
        "a/../b",
        "#",
        "::",
    ),
    *("name:", "select 1", "select", ";", "drop table tasks", "1h", "90s", "1:30:00", "4GB", "4XB", "-4GB", "1e30TB"),
    *(
        "unix:",
        "unix:/nowhere",
        "unix:" + "s" * 200,
        "localhost:1",
        "host:99999",
        "[::1]:1",
        "127.0.0.1:0",
        "postgresql://",
    ),
)


class Hung(BaseException):
    """An input took longer than its deadline; no `except Exception` may swallow it."""


class Outcome(NamedTuple):
    """What came of one call."""

    code: int | str  # the exit code, or what was wrong
    err: str

    @property
    def problem(self) -> str:
        """What must not be, or nothing."""
        if isinstance(self.code, str):
            return self.code
        if "Traceback (most recent call last)" in self.err:
            return f"a traceback: {self.err[-2000:]}"
        if self.code == 2 and not all(line.startswith("bough: ") for line in self.err.split("\n")[:-1]):
            return f"a refusal of several lines: {self.err[-2000:]}"
        return ""


@contextlib.contextmanager
def deadline(seconds: float = DEADLINE) -> Iterator[None]:
    """Raise `Hung` in what takes longer."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hung(f"still busy after {seconds:g} s")

    kept = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """An empty folder to work in, with a $BOUGH_HOME of its own; everything is as it was afterwards."""
    here = Path.cwd()
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        for name in [name for name in os.environ if name.startswith("BOUGH_")]:
            del os.environ[name]
        os.environ["BOUGH_HOME"] = str(Path(folder, "home"))
        try:
            yield Path(folder)
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(environment)


def lay_traps(folder: Path) -> list[str]:
    """Things that stand where a file is expected; their paths."""
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 4)
    (folder / "unreadable").write_text("x")
    (folder / "unreadable").chmod(0)
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "zero.py").symlink_to("/dev/zero")
    return [
        *(
            "folder",
            "empty",
            "binary",
            "unreadable",
            "loop",
            "dangling",
            "zero.py",
            "nowhere",
            "nowhere/file",
            "empty/file",
        ),
        *("/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem", "n" * 300, "p/" * 3000, "\udcff.txt"),
    ]


def call(work: Callable[[], int], stdin: bytes = b"", seconds: float = DEADLINE) -> Outcome:
    """Run something that returns an exit code with its streams caught."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"), out, err
    code: int | str
    try:
        with deadline(seconds):
            code = work()
    except Hung as error:
        code = f"hung: {error}: {traceback.format_exc()[-3000:]}"
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except BaseException:
        code = traceback.format_exc()
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
    said = err.buffer.getvalue().decode(errors="replace") if isinstance(err.buffer, io.BytesIO) else ""
    return Outcome(code, said)


def call_process(words: list[str], stdin: bytes = b"", seconds: float = LONG_DEADLINE) -> Outcome:
    """The same as a process of its own, which is killed with all it started at its deadline."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "bough.cli.main", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, err = process.communicate(stdin, timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Outcome(f"hung: still there after {seconds:g} s", "")
    return Outcome(process.returncode, err.decode(errors="replace"))


class Tally:
    """Counts what came of the calls, and tells the first of those that must not be."""

    def __init__(self, report: Callable[[str], None], most: int = 20) -> None:
        self.counts: Counter[str] = Counter()
        self.broken = 0
        self._report = report
        self._most = most
        self._seen: Counter[str] = Counter()

    def add(self, what: str, outcome: Outcome, shown: object, fine: frozenset[int] = FINE) -> None:
        """One call: what it was, what came of it, and how to repeat it."""
        problem = outcome.problem or ("" if outcome.code in fine else f"exit {outcome.code}: {outcome.err[-3000:]}")
        if not problem:
            self.counts[f"{what}: exit {outcome.code}"] += 1
            return
        self.broken += 1
        kind = _kind(problem)
        self.counts[f"{what}: BROKEN: {kind}"] += 1
        self._seen[kind] += 1
        if self._seen[kind] <= 2 and sum(self._seen.values()) <= self._most:
            self._report(f"{what}: {shown!r:.1500}\n{problem}")


def _kind(problem: str) -> str:
    """What is the same about problems of one cause: the error, and the line that raised it."""
    errors = re.findall(r"^[\w.]*(?:Error|Exception|Hung)\b.*", problem, re.MULTILINE)
    places = re.findall(r'File "[^"]*?([^"/]+/[^"/]+)", line (\d+)', problem)
    said = re.sub(r"\d+", "N", errors[-1] if errors else problem.rstrip().rpartition("\n")[2])
    return f"{said[:60]} ({':'.join(places[-1]) if places else 'nowhere'})"


def pick(dice: random.Random, *pools: tuple[str, ...]) -> str:
    """One of the values of one of the pools."""
    return dice.choice(dice.choice(pools))


Attack = Callable[[int, int, Callable[[str], None]], tuple[Counter[str], int]]  # how many, seed, who is told


def attack_by_hand(about: str, what: str, attack: Attack, attack_processes: Attack) -> int:
    """Attack as the command line says, and print what came of it; 1 if anything broke."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=0, help="as many more, each a process")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    start = time.monotonic()
    counts, broken = attack(options.inputs, options.seed, say)
    print(f"{options.inputs} {what} in {time.monotonic() - start:.1f} s, seed {options.seed}")
    if options.processes:
        start = time.monotonic()
        more, worse = attack_processes(options.processes, options.seed, say)
        print(f"{options.processes} more as processes in {time.monotonic() - start:.1f} s")
        counts, broken = counts + Counter({f"process, {one}": count for one, count in more.items()}), broken + worse
    for one, count in sorted(counts.items()):
        print(f"{count:>10}  {one}")
    print(f"{broken} broke something")
    return 1 if broken else 0
