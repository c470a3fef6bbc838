"""Workflow files of n and 2n tasks, each from its file until a server has accepted all of it.

The server is a service without executors, so that nothing runs meanwhile. Rule: CPU time counts, that of the client,
of what it calls (`make`) and of the server, since the two work side by side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from statistics import median

from bough.bench.services import Home, home
from bough.bench.setting import ROUNDS, Setting
from bough.bench.timing import Row, cpu_time, limit_row, milliseconds

_GROWTH = 2.2  # CPU time of 2n tasks over that of n
_START = 0.6  # seconds, whatever the number of tasks
_EACH = 5.4e-5  # seconds for a task: 6 s for 100,000
_EACH_TARGET = 1e-4  # of a Makefile, a third of which is GNU make's
_CHAIN = 10  # tasks that wait for each other
_names = count(1)


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


def measure(setting: Setting) -> Iterator[Row]:
    """Each form at n and 2n, by turns."""
    n = setting.size(5_000, 50_000)
    with home(setting.folder) as server:
        server.serve()
        for form, (write, each) in _FORMS.items():
            files = [_file(setting.folder, write, size) for size in (n, 2 * n)]
            taken: list[list[float]] = [[], []]
            for _ in range(setting.size(1, ROUNDS)):
                for seconds, (folder, name) in zip(taken, files, strict=True):
                    seconds.append(_submit(server, folder, name))
            once, twice = map(median, taken)
            yield limit_row(f"{form} of {2 * n:,} tasks, file to accepted: CPU time", twice, _START + each * 2 * n)
            yield Row(
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


def _submit(server: Home, folder: str, name: str) -> float:
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
