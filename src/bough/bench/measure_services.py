"""What services and starts cost: a restart after a kill, TLS, cold starts, runs again, and workflow files.

A service through TLS stands beside one through a Unix socket. Workflow files of n and 2n tasks are timed from the file
until a service without executors has accepted all of it. Rule: with files CPU time counts, that of the client, of what
it calls (`make`) and of the server, since they work side by side; all else is wall time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from statistics import median
from typing import TYPE_CHECKING

import bough
from bough.bench.bench_setup import ROUNDS, WORKERS, BenchSetting, Home, home, store, submit_numbers, until, warm
from bough.bench.measure_tasks import map_all, submit_all
from bough.bench.timing import BenchRow, Side, alone, by_turns, compare, cpu_time, limit_row, milliseconds, rate_row
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.session.session import Session

_RESTART = 3.0  # seconds
_TLS = 0.7  # of the rate through a Unix socket
_COLD = 0.35  # seconds
_BESIDE_FORKS = 1.5  # of the time of a pool whose workers are forks of the script
_AGAIN_LIMIT = 0.4  # seconds
_GROWTH = 2.2  # CPU time of 2n tasks over that of n
_START = 0.6  # seconds, whatever the number of tasks
_EACH = 5.4e-5  # seconds for a task: 6 s for 100,000
_EACH_TARGET = 1e-4  # of a Makefile, a third of which is GNU make's
_CHAIN = 10  # tasks that wait for each other
_names = count(1)
_OURS = """
import sys, bough, os
with bough.Session(store=sys.argv[1]) as session:
    session.submit(os.getpid).result()
"""
_POOL = """
import os
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(2) as pool:
    pool.submit(os.getpid).result()
"""
# A library that takes half a second to import; a script that has imported it and another one that its functions do not
# need, and its first batch of a second.
_LIBRARY = """
import time
end = time.process_time() + 0.5
while time.process_time() < end: pass
def look(x):
    end = time.process_time() + 0.01
    while time.process_time() < end: pass
    return x
"""
_BATCH = """
import sys
sys.path.insert(0, sys.argv[2])
import bench_library, bench_unneeded
def work(x): return bench_library.look(x)
if sys.argv[1] == "pool":
    from concurrent.futures import ProcessPoolExecutor
    opened = ProcessPoolExecutor(4)
else:
    import bough
    opened = bough.Session(4, store=sys.argv[1])
with opened as executor:
    assert list(executor.map(work, range(200))) == list(range(200))
"""
_AGAIN = """
import sys, bough
def double(x): return 2 * x
with bough.Session(store=sys.argv[1], reuse="always") as session:
    found = [session.submit(double, i) for i in range(int(sys.argv[2]))]
    for number, task in enumerate(found): assert task.result() == 2 * number
    if len(sys.argv) > 3: assert all(task.reused for task in found)
"""
_AGAIN_ARRAY = """
import sys, bough
def double(x): return 2 * x
with bough.Session(store=sys.argv[1], reuse="always") as session:
    found = session.map(double, range(int(sys.argv[2])))
    assert list(found) == list(range(0, 2 * int(sys.argv[2]), 2))
    if len(sys.argv) > 3: assert found[0].reused and found[-1].reused
"""


# --- restarts -----------------------------------------------------------------------------------------


def measure_restart(setting: BenchSetting, count: int = 100_000) -> Iterator[BenchRow]:
    """Half of the tasks are done; as an array and one by one."""
    for kind in ("array", "loose"):
        took = median(_serves_again(setting.folder, kind, count) for _ in range(setting.size(1, ROUNDS)))
        subject = f"killed with {count:,} tasks ({kind}) in the store and {WORKERS} running, until it serves again"
        yield limit_row(subject, took, _RESTART)


def _serves_again(folder: str, kind: str, count: int) -> float:
    with home(folder) as there:
        there.serve()
        there.execute(WORKERS)
        gate = os.path.join(there.folder, "gate")
        wait = f"until [ -e {gate} ]; do sleep 0.1; done"
        with bough.Session(there.access("submit"), name="far") as far:
            fresh = far.options(memo=False)
            assert list(submit_numbers(fresh, kind, count // 2)) == list(range(count // 2))
            running = [far.command(wait, name=f"running{number}") for number in range(WORKERS)]
            until(lambda: all(task.running() for task in running))
            rest = submit_numbers(fresh, kind, count // 2)
            far.ask(questions.Status())  # all of it has arrived
            there.kill()
            begun = time.perf_counter()
            there.serve()
            seconds = time.perf_counter() - begun
            with open(gate, "w"):
                pass
            assert list(rest) == list(range(count // 2))
    return seconds


# --- TLS ----------------------------------------------------------------------------------------------


def measure_tls(setting: BenchSetting) -> Iterator[BenchRow]:
    """An array and loose tasks through each."""
    loose = setting.size(5_000, 20_000)
    with home(setting.folder) as far, home(setting.folder) as near:
        for there, tls in ((far, True), (near, False)):
            there.serve()
            there.execute(WORKERS, tls=tls)
        with (
            bough.Session(far.access("submit"), name="far") as through_tls,
            bough.Session(near.socket, name="near") as through_unix,
        ):
            warm(through_tls)
            warm(through_unix)
            works: tuple[tuple[str, int, int, Callable[[Session], None]], ...] = (
                ("map of 100,000 no-ops", 100_000, 3 * ROUNDS, lambda session: map_all(session, range(100_000))),
                (f"submit of {loose:,} no-ops one by one", loose, ROUNDS, lambda session: submit_all(session, loose)),
            )
            for subject, count, rounds, work in works:
                ours, peer = compare(
                    far.side(through_tls, partial(work, through_tls)),
                    near.side(through_unix, partial(work, through_unix)),
                    rounds,
                    setting.row_seconds,
                )
                yield rate_row(f"{subject}, through TLS", count, ours, "Unix socket", peer, target=_TLS)


# --- starts -------------------------------------------------------------------------------------------


def measure_cold(setting: BenchSetting) -> Iterator[BenchRow]:
    """Whole processes, from their start to their end."""
    command, script, pool = by_turns(
        [
            Side(lambda: _bough_run(setting.folder)),
            Side(lambda: _python(_OURS, store(setting.folder))),
            Side(lambda: _python(_POOL)),
        ],
        setting.size(ROUNDS, 3 * ROUNDS),
    )
    beside = f"pool: {milliseconds(pool.seconds)}"
    yield limit_row("cold start: `bough run` of one command to its end", command.seconds, _COLD, peer=beside)
    yield limit_row("cold start: script to its end, one function", script.seconds, _COLD, peer=beside)


def measure_first_batch(setting: BenchSetting) -> Iterator[BenchRow]:
    """A script that has imported much: its workers need that too, and a forked pool's have it."""
    folder = os.path.join(setting.folder, "site-packages")
    os.makedirs(folder)
    for name in ("bench_library", "bench_unneeded"):
        with open(os.path.join(folder, f"{name}.py"), "w") as file:
            file.write(_LIBRARY)
    ours, pool = compare(
        Side(lambda: _python(_BATCH, store(setting.folder), folder)),
        Side(lambda: _python(_BATCH, "pool", folder)),
        setting.size(ROUNDS, 3 * ROUNDS),
    )
    yield BenchRow(
        "a script with slow imports, to the end of its first batch of a second",
        milliseconds(ours.seconds),
        "forked pool",
        milliseconds(pool.seconds),
        ours.seconds / pool.seconds,
        better="low",
        target=_BESIDE_FORKS,
    )


def measure_again(setting: BenchSetting, count: int = 5_000) -> Iterator[BenchRow]:
    """Everything is known already: how long until that is clear."""
    for name, script in (("loose tasks", _AGAIN), ("array", _AGAIN_ARRAY)):
        words = (script, store(setting.folder), str(count))
        _python(*words)
        found = alone(Side(partial(_python, *words, "again")), ROUNDS)
        yield limit_row(f"a finished workflow of {count:,} ({name}) run again", found.seconds, _AGAIN_LIMIT)


def _python(script: str, *words: str) -> None:
    subprocess.run([sys.executable, "-c", script, *words], check=True)


def _bough_run(folder: str) -> None:
    place = store(folder)
    os.makedirs(place)
    with open(os.path.join(place, "one.txt"), "w") as file:
        file.write("true\n")
    command = [sys.executable, "-m", "bough.cli.main", "run", "one.txt"]
    subprocess.run(command, check=True, cwd=place, capture_output=True)


# --- workflow files -----------------------------------------------------------------------------------


def measure_plans(setting: BenchSetting) -> Iterator[BenchRow]:
    """Each form at n and 2n, by turns."""
    n = setting.size(5_000, 50_000)
    with home(setting.folder) as server:
        server.serve()
        for form, (write, each) in _FORMS.items():
            files = [_file(setting.folder, write, size) for size in (n, 2 * n)]
            taken: list[list[float]] = [[], []]
            for _ in range(setting.size(1, ROUNDS)):
                for seconds, (folder, name) in zip(taken, files, strict=True):
                    seconds.append(_submit_plan(server, folder, name))
            once, twice = map(median, taken)
            yield limit_row(f"{form} of {2 * n:,} tasks, file to accepted: CPU time", twice, _START + each * 2 * n)
            yield BenchRow(
                f"{form}, file to accepted: CPU time at 2n over n, n = {n:,}",
                milliseconds(twice),
                "n",
                milliseconds(once),
                twice / once,
                better="low",
                target=_GROWTH,
            )


def _file(folder: str, write: Callable[[str, int], str], n: int) -> tuple[str, str]:
    place = os.path.join(folder, f"plan{next(_names)}")
    os.makedirs(place)
    return place, write(place, n)


def _submit_plan(server: Home, folder: str, name: str) -> float:
    """Seconds of CPU time to hand over a file."""
    assert server.server is not None
    before = cpu_time([server.server.pid])
    client = _call(server, folder, "submit", "--name", f"w{next(_names)}", name)
    _, status, used = os.wait4(client.pid, 0)
    client.returncode = os.waitstatus_to_exitcode(status)
    if client.returncode:
        raise ChildProcessError(f"bough submit {name} exited with {client.returncode}")
    taken = used.ru_utime + used.ru_stime + cpu_time([server.server.pid]) - before
    _call(server, folder, "sql", "select 1").wait()  # which the jobs database is brought up to date for
    return taken


def _call(server: Home, folder: str, command: str, *words: str) -> subprocess.Popen[bytes]:
    whole = [sys.executable, "-m", "bough.cli.main", command, "--server", server.socket, *words]
    return subprocess.Popen(whole, cwd=folder, env=server.environment, stdout=subprocess.DEVNULL)


def _flat(folder: str, n: int) -> str:
    return _written(folder, "list.txt", (f"echo {at} some words\n" for at in range(n)))


def _grouped(folder: str, n: int) -> str:
    lines = (f"group=G{at // 1000}/H{at // _CHAIN} :: echo {at} some words\n" for at in range(n))
    return _written(folder, "groups.txt", lines)


def _dag(folder: str, n: int) -> str:
    _written(folder, "job.sub", ["executable = /bin/echo\narguments = $(at) some words\nqueue\n"])
    nodes = [f'JOB t{at} job.sub\nVARS t{at} at="{at}"\n' for at in range(n)]
    return _written(folder, "nodes.dag", nodes + [f"PARENT t{at - 1} CHILD t{at}\n" for at in range(n) if at % _CHAIN])


def _make(folder: str, n: int) -> str:
    goals = " ".join(f"t{at}" for at in range(n) if at % _CHAIN == _CHAIN - 1 or at == n - 1)
    rules = (f"t{at}:{f' t{at - 1}' if at % _CHAIN else ''}\n\techo {at} some words\n" for at in range(n))
    return _written(folder, "Makefile", [f"all: {goals}\n", *rules])


def _script(folder: str, n: int) -> str:
    text = f"""from bough.describe import level
@level(range({n // (100 * _CHAIN)}))
def Night(g, night):
    g.after(night - 1)
@level(lambda night: [(night, field) for field in range(100)], within=Night)
def Field(g, night, field):
    for at in range({_CHAIN}):
        g.task(f"echo {{night}} {{field}} {{at}}")
"""
    return _written(folder, "survey.py", [text])


def _trace(folder: str, n: int) -> str:
    tasks = [
        {
            "name": f"t{at}",
            "id": f"t{at}",
            "parents": [f"t{at - 1}"] if at % _CHAIN else [],
            "children": [f"t{at + 1}"] if at % _CHAIN < _CHAIN - 1 and at + 1 < n else [],
        }
        for at in range(n)
    ]
    ran = [{"id": f"t{at}", "runtimeInSeconds": 1, "command": {"program": "echo"}} for at in range(n)]
    workflow = {"specification": {"tasks": tasks, "files": []}, "execution": {"tasks": ran}}
    return _written(folder, "trace.json", [json.dumps({"name": "t", "schemaVersion": "1.5", "workflow": workflow})])


def _written(folder: str, name: str, lines: Iterator[str] | list[str]) -> str:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.writelines(lines)
    return name


_FORMS: Mapping[str, tuple[Callable[[str, int], str], float]] = {
    "flat list": (_flat, _EACH),
    "flat list with groups": (_grouped, _EACH),
    ".dag file": (_dag, _EACH),
    "Makefile": (_make, _EACH_TARGET),
    "description script": (_script, _EACH),
    "WfFormat": (_trace, _EACH),
}
