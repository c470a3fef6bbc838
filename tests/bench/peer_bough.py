"""Bough as one more system of an outside harness for peers, whose `bench.py` drives the measurements M1 to M8.

From the folder of that harness, with a Python that has Bough:

    PYTHONPATH=. BENCH_OUT=FOLDER python .../tests/bench/peer_bough.py          # all of them
    PYTHONPATH=. BENCH_OUT=FOLDER python .../tests/bench/peer_bough.py M1 M3    # some

`bench` is that harness's module; tasks of M1, M3 and M5 are loose ones with a future each, M1's batches are one array.
BOUGH_NOOPS=array queues M5 as an array too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import bench

import bough

_RESUME = """
import sys
import bough

def same(value):
    return value

with bough.Session(name="resume", store=sys.argv[1], cores=int(sys.argv[2])) as session:
    tasks = [session.submit(same, number) for number in range(int(sys.argv[3]))]
    assert [task.result() for task in tasks] == list(range(len(tasks)))
    print(sum(task.reused for task in tasks))
"""


class Bough(bench.Adapter):
    name = "bough"
    notes = "embedded session, durable store; one future per task; batched = Session.map, one array"

    session = None  # M8 has none: it starts scripts

    def version(self):
        return bough.__version__

    def start(self):
        self.session = bough.Session(name="peer", store=self.scratch / "store", cores=bench.WORKERS)
        self.wait([self.session.submit(time.sleep, 0.05) for _ in range(4)])

    def stop(self):
        if self.session is not None:
            self.session.shutdown()

    def submit_noops(self, n):
        if os.environ.get("BOUGH_NOOPS") == "array":
            return self.session.map(bench.noop, range(n))
        submit = self.session.submit
        return [submit(bench.noop) for _ in range(n)]

    def noop_batched(self, n):
        list(self.session.map(bench.noop, range(n)))

    def submit_shell(self, n):
        # two arguments: with one alone `true` looks for --help, and sets up its locale first
        return self.session.sweep("/bin/true {i} {i}", bough.product(i=range(n)), memo=False)

    def submit_sleeps(self, n, seconds):
        return self.session.map(time.sleep, [seconds] * n)

    def wait(self, handle):
        if isinstance(handle, list):
            return [task.result() for task in handle]
        return handle.results()

    def chain(self, n):
        task = 0
        for _ in range(n):
            task = self.session.submit(_one_more, task)
        assert task.result() == n

    def fan(self, n):
        first = self.session.submit(_one_more, 0)
        middle = [self.session.submit(_one_more, first) for _ in range(n)]
        assert self.session.submit(_how_many, middle).result() == n

    def scheduler_pids(self):
        return [os.getpid(), self.session.pid]

    def resume(self, n):
        command = [sys.executable, "-c", _RESUME, str(self.scratch / "resumed"), str(bench.WORKERS), str(n)]
        assert int(subprocess.check_output(command)) == 0
        times = []
        for _ in range(bench.RUNS):
            begun = time.perf_counter()
            assert int(subprocess.check_output(command)) == n
            times.append(time.perf_counter() - begun)
        return {"n": n, "runs": len(times), "seconds": sorted(times)[len(times) // 2]}


def _one_more(value):
    return value + 1


def _how_many(values):
    return len(values)


if __name__ == "__main__":
    bench.main(Bough)
