"""One peer at work, in its own environment: `PYTHON peer_runner.py NAME`, where PYTHON has that peer installed.

Stand-alone: it imports nothing of ours. It says {"ready": version} when its two workers are warm; then every line of
standard input, as {"do": "map", "count": 1000}, is answered by one line: {"seconds": ...}, or {"times": [...]} for
round trips. It ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

WORKERS = 2


def nothing():
    return None


def same(value):
    return value


def one_more(value):
    return value + 1


def how_many(values):
    return len(values)


def how_many_there_are(*values):
    return len(values)


def true(_):
    return subprocess.run(["/bin/true"], check=False).returncode


class Peer:
    """What all have in common: futures with `submit`."""

    executor = None

    def results(self, futures):
        return [future.result() for future in futures]

    def submit(self, count):
        self.results([self.executor.submit(same, number) for number in range(count)])

    map = submit  # one by one, where a peer has nothing better

    def commands(self, count):
        self.results([self.executor.submit(true, number) for number in range(count)])

    def trip(self):
        self.results([self.executor.submit(nothing)])

    def chain(self, count):
        last = 0
        for _ in range(count):
            last = self.executor.submit(one_more, last)
        assert self.results([last]) == [count]

    def fan(self, count):
        first = self.executor.submit(one_more, 0)
        middle = [self.executor.submit(one_more, first) for _ in range(count)]
        assert self.results([self.executor.submit(how_many, middle)]) == [count]

    def end(self):
        self.executor.shutdown()


class Executorlib(Peer):
    def __init__(self):
        from executorlib import SingleNodeExecutor

        self.executor = SingleNodeExecutor(max_workers=WORKERS, block_allocation=True)


class Dask(Peer):
    def __init__(self):
        from distributed import Client

        self.executor = Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)

    def submit(self, count):
        # pure=False: otherwise the second round would find what the first has done
        self.executor.gather([self.executor.submit(same, number, pure=False) for number in range(count)])

    def map(self, count):
        self.executor.gather(self.executor.map(same, range(count), pure=False))

    def commands(self, count):
        self.executor.gather(self.executor.map(true, range(count), pure=False))

    def trip(self):
        self.executor.submit(nothing, pure=False).result()

    def chain(self, count):
        last = 0
        for _ in range(count):
            last = self.executor.submit(one_more, last, pure=False)
        assert last.result() == count

    def fan(self, count):
        first = self.executor.submit(one_more, 0, pure=False)
        middle = [self.executor.submit(one_more, first, pure=False) for _ in range(count)]
        assert self.executor.submit(how_many, middle, pure=False).result() == count

    def end(self):
        self.executor.shutdown()


class Joblib(Peer):
    def __init__(self):
        import joblib

        self.joblib = joblib
        self.pool = joblib.Parallel(n_jobs=WORKERS)

    def map(self, count):
        self.pool(self.joblib.delayed(same)(number) for number in range(count))

    def submit(self, count):
        self.map(count)

    def commands(self, count):
        self.pool(self.joblib.delayed(true)(number) for number in range(count))

    def trip(self):
        self.pool([self.joblib.delayed(nothing)()])

    def end(self):
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True, kill_workers=True)


class Ray(Peer):
    def __init__(self):
        import logging

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray

        ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
        self.ray = ray
        self.remote = {f: ray.remote(f) for f in (nothing, same, one_more, true, how_many_there_are)}

    def submit(self, count):
        call = self.remote[same]
        self.ray.get([call.remote(number) for number in range(count)])

    map = submit

    def commands(self, count):
        call = self.remote[true]
        self.ray.get([call.remote(number) for number in range(count)])

    def trip(self):
        self.ray.get(self.remote[nothing].remote())

    def chain(self, count):
        last = 0
        for _ in range(count):
            last = self.remote[one_more].remote(last)
        assert self.ray.get(last) == count

    def fan(self, count):
        first = self.remote[one_more].remote(0)
        middle = [self.remote[one_more].remote(first) for _ in range(count)]
        assert self.ray.get(self.remote[how_many_there_are].remote(*middle)) == count

    def end(self):
        self.ray.shutdown()


class HyperQueue(Peer):
    """Its Python interface, with server and worker in this process. A task of its is a program."""

    def __init__(self):
        from hyperqueue import Job, LocalCluster
        from hyperqueue.cluster import WorkerConfig

        self.make = Job
        self.cluster = LocalCluster(worker_config=WorkerConfig(cores=WORKERS))
        self.client = self.cluster.client()

    def _run(self, count, needs=lambda tasks: ()):
        job, tasks = self.make(max_fails=0), []
        for _ in range(count):
            tasks.append(job.program(["/bin/true"], stdout=None, stderr=None, deps=needs(tasks)))
        submitted = self.client.submit(job)
        while not self._is_over(submitted):
            time.sleep(0.005)

    def _is_over(self, submitted):
        """Its own wait looks once a second: leave it after its first look."""
        seen = {}

        class Seen(Exception):
            pass

        def look(states):
            seen.update(states[submitted.id])
            raise Seen

        with contextlib.suppress(Seen):
            return not self.client.connection.wait_for_jobs((submitted.id,), look)
        assert not seen["failed"], seen
        return seen["completed"]

    def commands(self, count):
        self._run(count)

    map = submit = commands

    def trip(self):
        self._run(1)

    def chain(self, count):
        self._run(count, lambda tasks: tasks[-1:])

    def fan(self, count):
        def needs(tasks):
            return tasks[:1] if len(tasks) <= count else tasks[1:]

        self._run(count + 2, needs)

    def end(self):
        self.cluster.stop()


PEERS = {"ray": Ray, "executorlib": Executorlib, "dask": Dask, "joblib": Joblib, "hyperqueue": HyperQueue}


def answer(peer, request):
    if request["do"] == "trips":
        times = []
        for _ in range(request["count"]):
            begun = time.perf_counter()
            peer.trip()
            times.append(time.perf_counter() - begun)
        return {"times": times}
    work = getattr(peer, request["do"])
    begun = time.perf_counter()
    work(request["count"])
    return {"seconds": time.perf_counter() - begun}


def main(name):
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the peer prints is no answer

    def say(value):
        answers.write(json.dumps(value) + "\n")

    peer = PEERS[name]()
    for _ in range(3):
        peer.map(20)
        peer.trip()
    say({"ready": name})
    for line in sys.stdin:
        say(answer(peer, json.loads(line)))
    peer.end()


if __name__ == "__main__":
    main(sys.argv[1])
