"""How far a warm request travels: the modules, functions and calls on its way through all processes.

Three ways: `submit(f, x).result()` and `command(...).result()` with a declared input and output (a session with one
core: client, embedded server, executor, worker), and `bough submit list.txt` to a running service without executors.

Rules: `house_hook.py` records in every process, and only while the window is open. A window opens right before the
request; from its answer on it is another one, which stays open until the processes are quiet again. After each
request an idle window of that length is recorded, and what usually happens in it is taken off.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from house_hook import MOST, RECORD

WAYS = {
    "submit": ("client", "server", "executor", "worker"),
    "command": ("client", "server", "executor", "worker"),
    "list": ("client", "server"),
}  # and the processes that each passes
TITLES = {
    "submit": "submit(f, x).result()",
    "command": "command with a declared input and output",
    "list": "bough submit list.txt",
}
_WARM = 10  # requests before the first window
_QUIET = 0.3  # seconds after which a request has no more effects: the store is synchronised after 50 ms
_LINES = 10  # commands in list.txt
COUNTED = f"""Traced ways: every figure is the median of the repetitions, after {_WARM} requests of the same kind.
Sessions have one core; the list has {_LINES} commands, its service no executor. Modules and functions: those of bough
that ran, in whatever process (a function's comprehensions are part of it; C code and generated methods are not seen).
Calls: calls of such functions; a coroutine or generator that goes on is no call. Changes: calls whose caller is of
another module of bough; if a frame of another library is between the two (asyncio's, say) it is none, `contextlib`
excepted. Pairs: different pairs of modules among the changes. What modules do while they are imported does not count.
'To the answer': until `result()` or the command returned. 'In all' and by process: until the processes were quiet
again, less what they do when idle."""
REPEAT = 15
_MOST_REPEATS = 80  # three windows each, in one byte
_HERE = os.path.dirname(os.path.abspath(__file__))
_PATIENCE = 60.0


class Call(NamedTuple):
    """What was seen; functions are written "module function", the caller is empty if it is not of bough."""

    role: str
    is_new: bool
    callee: str
    caller: str


class Window:
    """The byte that all processes look at. A write to the file is seen by those who share it as memory."""

    def __init__(self, folder: str) -> None:
        self._file = os.open(os.path.join(folder, "window"), os.O_RDWR | os.O_CREAT, 0o600)
        self._set(0)

    def _set(self, number: int) -> None:
        os.pwrite(self._file, bytes((number,)), 0)

    def around(self, number: int, request: Callable[[], object]) -> None:
        """Record a request, what follows it, and as much time without one."""
        started = time.monotonic()
        self._set(3 * number + 1)
        request()
        self._set(3 * number + 2)
        time.sleep(_QUIET)
        length = time.monotonic() - started
        self._set(0)
        time.sleep(_QUIET)
        self._set(3 * number + 3)
        time.sleep(length)
        self._set(0)


def double(number: int) -> int:
    """What is submitted."""
    return 2 * number


def session_way(way: str, folder: str, repeat: int) -> None:
    """Make the requests of a session; run in a traced process."""
    import bough

    window = Window(folder)
    with bough.Session(cores=1) as session:

        def submit(number: int) -> None:
            if session.submit(double, number).result() != 2 * number:
                raise AssertionError(number)

        def command(number: int) -> None:
            session.command("sort {src:r} > {dst:w}", src=f"in{number}", dst=f"out{number}").result()

        request = submit if way == "submit" else command
        for number in range(_WARM + repeat):
            with open(f"in{number}", "w") as file:
                file.write(f"{number}\n")
        for number in range(_WARM):
            request(number)
        time.sleep(2 * _QUIET)
        for number in range(repeat):
            window.around(number, lambda number=number: request(_WARM + number))  # type: ignore[misc]


class _Traced:
    """Starts processes that are recorded, with the modules of one tree."""

    def __init__(self, src: str, folder: str) -> None:
        self.trace, self.work = os.path.join(folder, "trace"), os.path.join(folder, "work")
        hook = os.path.join(folder, "hook")
        for made in (self.trace, self.work, hook):
            os.mkdir(made, 0o700)
        shutil.copy(os.path.join(_HERE, "house_hook.py"), os.path.join(hook, "sitecustomize.py"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BOUGH_")}
        self.environment = {
            **kept,
            "PYTHONPATH": os.pathsep.join((hook, os.path.abspath(src))),
            "BOUGH_HOME": os.path.join(folder, "home"),
            "HOUSE_TRACE": self.trace,
            "HOUSE_SRC": os.path.abspath(src),
            "HOUSE_ROLE": "client",
        }

    def start(self, *words: str, role: str = "client") -> subprocess.Popen[str]:
        environment = {**self.environment, "HOUSE_ROLE": role}
        return subprocess.Popen(
            [sys.executable, *words], cwd=self.work, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *words: str, timeout: float = _PATIENCE) -> str:
        process = self.start(*words)
        try:
            said = process.communicate(timeout=timeout)[0]
        except BaseException:
            process.kill()
            raise
        if process.returncode:
            raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}:\n{said}")
        return said

    def bough(self, *words: str) -> str:
        return self.run("-c", _BOUGH, *words)


_BOUGH = "import sys; sys.argv[0] = 'bough'; from bough.cli.main import start; sys.exit(start())"


def _list_way(traced: _Traced, repeat: int) -> None:
    """Submit lists to a service; only the command and the server are recorded."""
    window = Window(traced.trace)
    for number in range(_WARM + repeat):
        folder = os.path.join(traced.work, f"list{number}")
        os.mkdir(folder)
        with open(os.path.join(folder, "list.txt"), "w") as file:
            file.writelines(f"echo {number} {line}\n" for line in range(_LINES))
    server = traced.start("-c", _BOUGH, "server", "start", role="server")
    try:
        _until(lambda: _is_up(traced, server))
        for number in range(_WARM):
            traced.bough("submit", f"list{number}/list.txt")
        time.sleep(2 * _QUIET)
        for number in range(repeat):
            window.around(number, lambda n=number: traced.bough("submit", f"list{_WARM + n}/list.txt"))  # type: ignore[misc]
    finally:
        server.terminate()
        try:
            server.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()


def _is_up(traced: _Traced, server: subprocess.Popen[str]) -> bool:
    if server.poll() is not None:
        raise RuntimeError(f"the server ended: {server.stdout.read() if server.stdout else ''}")
    with contextlib.suppress(RuntimeError):
        traced.bough("server", "status")
        return True
    return False


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the server is not up")
        time.sleep(0.1)


def read_calls(folder: str) -> dict[int, Counter[Call]]:
    """What was recorded, by window."""
    found: dict[int, Counter[Call]] = {}
    for name in sorted(os.listdir(folder)):
        if not name.startswith("calls."):
            continue
        for window, call in _records(os.path.join(folder, name)):
            found.setdefault(window, Counter())[call] += 1
    return found


def _records(path: str) -> Iterator[tuple[int, Call]]:
    with open(path, "rb") as file:
        while (record := file.read(RECORD)).strip(b"\0"):
            if file.tell() == RECORD * MOST:
                raise RuntimeError("more calls than there is room for: records are missing")
            window, role, is_new, callee, caller = record.decode().rstrip(" ").split("\t")
            yield int(window), Call(role, is_new == "1", callee, caller)


def _net(request: Counter[Call], idle: list[Counter[Call]]) -> Counter[Call]:
    """What a request caused: less what happens in an idle window, in most of them."""
    usual = {call: statistics.median_low(sorted(one[call] for one in idle)) for call in set().union(*idle)}
    return Counter({call: left for call, count in request.items() if (left := count - usual.get(call, 0)) > 0})


def _module(function: str) -> str:
    return function.partition(" ")[0]


def _changes(calls: Counter[Call]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for call, count in calls.items():
        if call.is_new and call.caller and _module(call.caller) != _module(call.callee):
            found[_module(call.caller), _module(call.callee)] += count
    return found


def _functions(calls: Counter[Call]) -> set[tuple[str, str]]:
    """Functions that ran, by role; one that calls others has run, also if it was entered before the window."""
    ran = {(call.role, call.callee) for call in calls}
    return ran | {(call.role, call.caller) for call in calls if call.caller}


def figures(calls: Counter[Call]) -> dict[str, int]:
    """The figures of one request."""
    functions = {function for _, function in _functions(calls)}
    changes = _changes(calls)
    return {
        "modules": len({_module(function) for function in functions}),
        "functions": len(functions),
        "calls": sum(count for call, count in calls.items() if call.is_new),
        "changes": sum(changes.values()),
        "pairs": len(changes),
    }


def evaluate(windows: dict[int, Counter[Call]], repeat: int, roles: tuple[str, ...]) -> dict[str, Any]:
    """Medians over the repetitions, and what most of them have in common.

    A repetition in which one of the processes left no record is not used: each has something to do on the way.
    """
    nothing: Counter[Call] = Counter()
    idle = [windows.get(3 * number + 3, nothing) for number in range(repeat)]
    answer: list[Counter[Call]] = []
    whole: list[Counter[Call]] = []
    for number in range(repeat):
        first, later = windows.get(3 * number + 1, nothing), windows.get(3 * number + 2, nothing)
        if {call.role for call in first}.issuperset(roles):
            answer.append(first)
            whole.append(_net(first + later, idle))
    if 2 * len(whole) <= repeat:
        raise RuntimeError(f"only {len(whole)} of {repeat} requests were recorded in all of {', '.join(roles)}")
    usual: Counter[tuple[str, str]] = Counter(seen for one in whole for seen in _functions(one))
    often = sorted(seen for seen, count in usual.items() if 2 * count > len(whole))
    pairs = Counter(pair for one in whole for pair in _changes(one))
    return {
        "to_answer": _medians([figures(one) for one in answer]),
        "in_all": _medians([figures(one) for one in whole]),
        "by_role": {
            role: _medians([figures(Counter({c: n for c, n in one.items() if c.role == role})) for one in whole])
            for role in sorted({role for role, _ in often})
        },
        "range": {name: _range([figures(one)[name] for one in whole]) for name in figures(nothing)},
        "repeated": repeat,
        "used": len(whole),
        "module_names": sorted({_module(function) for _, function in often}),
        "function_names": {
            role: [function for whose, function in often if whose == role] for role in sorted({r for r, _ in often})
        },
        "change_names": {
            f"{caller} -> {callee}": statistics.median_low([_changes(one)[caller, callee] for one in whole])
            for (caller, callee), count in sorted(pairs.items())
            if 2 * count > len(whole)
        },
    }


def _medians(rows: list[dict[str, int]]) -> dict[str, int]:
    return {name: statistics.median_low([row[name] for row in rows]) for name in rows[0]}


def _range(numbers: list[int]) -> list[int]:
    return [min(numbers), max(numbers)]


def trace_way(way: str, src: str, repeat: int = REPEAT) -> dict[str, Any]:
    """Trace one way through the processes of a tree."""
    if not 1 <= repeat <= _MOST_REPEATS:
        raise ValueError(f"repeat is {repeat}; give 1 to {_MOST_REPEATS}")
    with tempfile.TemporaryDirectory(prefix="house-", ignore_cleanup_errors=True) as folder:
        traced = _Traced(src, folder)
        home = traced.run("-c", "import bough; print(bough.__file__)").strip()
        if os.path.realpath(home) != os.path.realpath(os.path.join(src, "bough", "__init__.py")):
            raise RuntimeError(f"the traced processes would use {home}")
        if way == "list":
            _list_way(traced, repeat)
        else:
            traced.run(os.path.abspath(__file__), way, traced.trace, str(repeat), timeout=_PATIENCE + 5 * repeat)
        return evaluate(read_calls(traced.trace), repeat, WAYS[way])


if __name__ == "__main__":
    session_way(sys.argv[1], sys.argv[2], int(sys.argv[3]))
