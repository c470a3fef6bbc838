"""The figures of the house, on a tree made for it: what reading tells, and what the hook records."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"
TREE = {
    "__init__.py": '"""Root."""\n',
    "errors.py": "X = 1\n" * 70,
    "core/__init__.py": "",
    "core/machine.py": "from bough.core import state\nfrom bough.errors import X\n" + "\n" * 200,
    "core/state.py": (
        "from typing import TYPE_CHECKING\nimport bough.errors\nif TYPE_CHECKING:\n    from .machine import Machine\n"
    ),
    "core/queue.py": "from . import state\n",
    "server/__init__.py": "",
    "server/loop.py": "from bough.core.machine import Machine\n\ndef f():\n    import bough.server.queue\n",
    "server/queue.py": "import os\nfrom bough.server import loop, turns\nfrom bough.core.state import State\n",
    "server/turns/__init__.py": "",
    "server/turns/shell.py": "from ..loop import f\n",
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


def _make(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = folder / "bough" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def test_the_static_figures_of_a_small_tree(bench: Any, tmp_path: Path) -> None:
    figures = bench("house_figures").static_figures(_make(tmp_path, TREE))
    lines = {"modules": 3, "inits": 1, "lines": 207, "median": 4, "short": 2, "single": 0, "single_sibling": 0}
    assert figures["packages"]["core"] == lines
    assert figures["packages"]["server"] | {"lines": 0} == {
        "modules": 3, "inits": 2, "lines": 0, "median": 3, "short": 3, "single": 1, "single_sibling": 1,
    }  # fmt: skip
    assert figures["packages"]["(root)"]["modules"] == figures["packages"]["(root)"]["inits"] == 1
    assert figures["modules_in_all"] == 11
    assert figures["all"]["modules"] == 7
    assert figures["single_importers"] == {"bough.server.queue": "bough.server.loop"}
    assert figures["cycles_at_run_time"] == [["bough.server.loop", "bough.server.queue"]]
    assert figures["cycles_with_typing"] == [
        ["bough.core.machine", "bough.core.state"],
        ["bough.server.loop", "bough.server.queue"],
    ]
    assert figures["cycles_between_siblings"] == [["bough.server.loop", "bough.server.queue", "bough.server.turns"]]
    assert figures["late_imports"] == ["bough.server.loop -> bough.server.queue"]
    assert figures["duplicate_names"] == {"queue": ["bough.core.queue", "bough.server.queue"]}
    assert figures["server_beyond_windows"] == {"bough.server.queue": ["bough.core.state"]}
    assert figures["widest_folders"]["bough.core"] == 4


def test_the_commands_of_the_command_line_may_repeat_a_name(bench: Any, tmp_path: Path) -> None:
    files = {"__init__.py": "", "core/explain.py": "", "cli/commands/explain.py": "", "api/explain.py": ""}
    for name, kept in (("three", 1), ("two", 0)):
        figures = bench("house_figures").static_figures(_make(tmp_path / name, files))
        assert list(figures["duplicate_names"]) == ["explain"]
        assert len(figures["duplicate_names_without_commands"]) == kept
        files.pop("api/explain.py", None)


def test_the_tables_are_printed_without_tracing(bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = bench("house_figures").main
    src = _make(tmp_path, TREE)
    main(["--src", src, "--static"])
    assert "| core | 3+1 | 207 | 4 | 2 | 0 | 0 |" in capsys.readouterr().out
    main(["--src", src, "--single-importers"])
    assert capsys.readouterr().out == "bough.server.queue <- bough.server.loop\n"
    main(["--src", src, "--static", "--json"])
    saved = capsys.readouterr().out
    assert json.loads(saved)["late_pairs"] == 1
    (tmp_path / "before.json").write_text(saved)
    main(["--src", src, "--static", "--before", str(tmp_path / "before.json")])
    assert "| core | 3, 3 | 1, 1 | 207, 207 | 4, 4 | 2, 2 | 0, 0 |" in capsys.readouterr().out


TRACED = {
    "__init__.py": "",
    "one.py": (
        "from bough import two\n"
        "def outer():\n    return [two.inner(n) for n in range(3)]\n"
        "async def slow():\n    await two.pause()\n"
    ),
    "two.py": "import types\ndef inner(n):\n    return n\n@types.coroutine\ndef pause():\n    yield\n",
}
SCRIPT = """
import os, signal
from bough import one
class Ring(Exception): pass
armed = False
def ring(*_):
    global armed
    if armed:
        armed = False
        raise Ring
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for _ in range(100):
    try:
        armed = True
        while True: len("")
    except Ring:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
window = os.open(os.environ["HOUSE_TRACE"] + "/window", os.O_RDWR)
one.outer()
os.pwrite(window, b"\\1", 0)
pid = os.fork()
one.outer()
if not pid:
    os._exit(0)
os.waitpid(pid, 0)
os.pwrite(window, b"\\2", 0)
waits = one.slow()
waits.send(None)
os.pwrite(window, b"\\5", 0)
try:
    waits.send(None)
except StopIteration:
    pass
"""


def test_the_hook_records_calls_in_open_windows_only_also_after_a_fork(bench: Any, tmp_path: Path) -> None:
    ways = bench("house_ways")
    trace, hook = tmp_path / "trace", tmp_path / "hook"
    trace.mkdir()
    hook.mkdir()
    shutil.copy(BENCH / "house_hook.py", hook / "sitecustomize.py")
    src = _make(tmp_path / "src", TRACED)
    names = {"PYTHONPATH": os.pathsep.join((str(hook), src)), "HOUSE_TRACE": str(trace), "HOUSE_SRC": src}
    subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, **names}, check=True)
    windows = ways.read_calls(str(trace))
    assert windows[1] == {
        ways.Call("client", True, "bough.one outer", ""): 2,
        ways.Call("client", True, "bough.two inner", "bough.one outer"): 6,
    }
    assert ways.figures(windows[1]) == {"modules": 2, "functions": 2, "calls": 8, "changes": 6, "pairs": 1}
    assert ways.figures(windows[2])["calls"] == 2
    assert ways.figures(windows[5])["calls"] == 0


def test_what_happens_in_idle_windows_too_is_taken_off_and_incomplete_requests_are_left_out(bench: Any) -> None:
    ways = bench("house_ways")
    beat = ways.Call("server", True, "bough.server.beat beat", "")
    step = ways.Call("server", True, "bough.server.turn turn", "bough.server.beat beat")
    ask = ways.Call("client", True, "bough.api.ask ask", "")
    windows = {
        **{3 * number + 1: Counter({ask: 1, step: 2, beat: 1}) for number in range(3)},
        **{3 * number + 3: Counter({beat: 1}) for number in range(3)},
        5: Counter({step: 1}),
    }
    del windows[1][ask]
    found = ways.evaluate(windows, 3, ("client", "server"))
    assert (found["used"], found["repeated"]) == (2, 3)
    assert found["to_answer"] == {"modules": 3, "functions": 3, "calls": 4, "changes": 2, "pairs": 1}
    assert found["range"]["calls"] == [3, 4]
    with pytest.raises(RuntimeError, match="only 0 of 3"):
        ways.evaluate(windows, 3, ("client", "server", "worker"))
