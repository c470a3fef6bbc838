"""What watching costs, and how soon a monitor ends a task: a real executor with its watcher, driven over its socket.

python tests/bench/watcher_cost.py [latency] [cost] [flood] [--tasks 1000] [--seconds 4] [--turns 3]

- latency: a plateau monitor on many tasks; from the line that decides to the end of the task, by the task's own clock.
  None may be missed, and none ended at another line than an offline look at what it wrote says.
- cost: 200 tasks at once that print 1,000 lines/s each, watched and not, by turns.
- flood: two tasks that print as fast as they can, watched and not, by turns.

Printed: lines/s of the tasks, their ratio, and microseconds of processor time a line in the watcher.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from executor_server import Server

from bough.executor.host.processes import cpu_seconds
from bough.model.events.news import WorkFailed, WorkObserved, WorkSucceeded
from bough.model.monitoring.monitors import Monitor, Plateau, Step, WatchPlan, encode_plan
from bough.model.monitoring.observations import Fired
from bough.model.sites.resources import Needs

PATTERN = r"score=(-?[0-9.]+)"
WINDOW, BELOW = 25, 1e-4
PLAN = WatchPlan((Monitor("plateau", (Step(Plateau(PATTERN, WINDOW, BELOW)),)),))

SETTLING = """use Time::HiRes qw(time sleep); $|=1; srand({seed}); my $n = 1;
while ($n < 3000) {{ my $s = $n < {settles} ? 100/$n + rand() : 7; printf("n=%d score=%.5f t=%.6f\\n", $n, $s, time());
$n++; sleep(0.004); }}"""
STEADY = """use Time::HiRes qw(time sleep); $|=1; my $t0 = time(); my $n = 0;
while (time() - $t0 < {seconds}) {{
for (1..10) {{ syswrite(STDOUT, sprintf("iteration %d score=%.5f\\n", $n, rand())); $n++; }}
my $left = $t0 + $n / 1000 - time(); sleep($left) if $left > 0; }}
printf STDERR ("%d %.6f\\n", $n, time() - $t0);"""
FLOOD = """use Time::HiRes qw(time); my $t0 = time(); my $n = 0;
while (time() - $t0 < {seconds}) {{ for (1..1000) {{ printf("iteration %d score=%.5f\\n", $n, rand()); $n++; }} }}
printf STDERR ("%d %.6f\\n", $n, time() - $t0);"""
ALL = ("latency", "cost", "flood")


class Executor:
    """A real one."""

    def __init__(self, cores: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bough-watcher-")
        self.server = Server(Path(self._folder.name), cores)
        self.plan = self.server.blob(encode_plan(PLAN))

    def start(self, script: str, *, watched: bool) -> Any:
        watch = (self.plan,) if watched else ()
        return self.server.command(["perl", "-e", script], watch=watch, needs=Needs(1))

    def watcher(self) -> int:
        """Its pid: the child of a lower priority."""
        pid = self.server.process.pid
        own = os.getpriority(os.PRIO_PROCESS, pid)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return next((int(one) for one in children if os.getpriority(os.PRIO_PROCESS, int(one)) > own), 0)

    def ends(self, spans: list[Any], seconds: float) -> dict[Any, Any]:
        """How tasks ended, once all have."""
        server, left, known = self.server, set(spans), 0
        until = time.monotonic() + seconds

        def is_more() -> bool:
            return len(server.news) > known

        while left:
            assert time.monotonic() < until, f"{len(left)} tasks did not end"
            server.until(is_more)
            for news in server.news[known:]:
                if isinstance(news, WorkSucceeded | WorkFailed):
                    left.discard(news.span)
            known = len(server.news)
        return {news.span: news for news in server.news if isinstance(news, WorkSucceeded | WorkFailed)}

    def close(self) -> None:
        self.server.end()
        self._folder.cleanup()


def text(stream: Any) -> str:
    if stream is None:
        return ""
    with open(stream.path, "rb") as file:
        return os.pread(file.fileno(), stream.length, stream.offset).decode()


def deciding(written: str) -> int:
    """After how many values there is a plateau, by a plain look at all that was written; 0: never."""
    values = [float(found) for found in re.findall(PATTERN, written)]
    for count in range(WINDOW, len(values) + 1):
        if statistics.pstdev(values[count - WINDOW : count]) < BELOW:
            return count
    return 0


def measure_latency(tasks: int, at_once: int) -> None:
    dice = random.Random(14)
    executor = Executor(at_once)
    scripts = [SETTLING.format(seed=number, settles=dice.randrange(5, 60)) for number in range(tasks)]
    begun = time.monotonic()
    spans = [executor.start(script, watched=True) for script in scripts]
    ends = executor.ends(spans, 600)
    took = time.monotonic() - begun
    fired = {
        news.span: seen
        for news in executor.server.news
        if isinstance(news, WorkObserved)
        for seen in news.observations
        if isinstance(seen, Fired)
    }
    missed = wrong = 0
    judged, ended = [], []
    for span in spans:
        detail = ends[span].details[0] if isinstance(ends[span], WorkSucceeded) else ends[span].detail
        written = text(detail.stdout)
        expected = deciding(written)
        seen = fired.get(span)
        missed += seen is None
        if seen is None:
            continue
        wrong += seen.count != expected
        line = next(line for line in written.splitlines() if line.startswith(f"n={seen.count} "))
        at = float(line.rpartition("t=")[2])
        judged.append(1000 * (seen.at - at))
        ended.append(1000 * (detail.ended - at))
    executor.close()
    print(
        f"plateau on {tasks} tasks, {at_once} at once, in {took:.1f} s: {missed} missed, {wrong} ended at a wrong line"
    )
    for what, values in (("judged", judged), ("ended", ended)):
        ordered = sorted(values)
        late = sum(value > 100 for value in ordered)
        places = {"median": 0.5, "95%": 0.95, "99%": 0.99}
        shown = ", ".join(f"{name} {ordered[int(share * (len(ordered) - 1))]:.1f}" for name, share in places.items())
        print(f"  {what} after the deciding line, ms: {shown}, most {ordered[-1]:.1f}; later than 100 ms: {late}")


def measure_cost(what: str, script: str, tasks: int, turns: int, seconds: float) -> None:
    executor = Executor(tasks)
    warm = [executor.start("1", watched=False) for _ in range(tasks)]  # starts the workers
    executor.ends([*warm, executor.start("1", watched=True)], 300)
    rates: dict[bool, list[float]] = {True: [], False: []}
    works: dict[bool, list[float]] = {True: [], False: []}  # lines per second of the tasks' own processor time
    costs = []
    print(f"{what}, {turns} turns of {seconds:g} s each")
    for turn in range(2 * turns):
        watched = turn % 4 in {0, 3}  # in both orders: what a turn leaves behind may help or hurt the next one
        before = cpu_seconds(executor.watcher())
        spans = [executor.start(script.format(seconds=seconds), watched=watched) for _ in range(tasks)]
        ends = executor.ends(spans, 600)
        used = cpu_seconds(executor.watcher()) - before
        told = [text(ends[span].details[0].stderr).split() for span in spans]
        lines = sum(int(count) for count, _ in told)
        rate = sum(int(count) / float(took) for count, took in told)
        rates[watched].append(rate)
        works[watched].append(lines / sum(ends[span].details[0].cpu for span in spans))
        if watched:
            costs.append(1e6 * used / lines)
        note = f", watcher {used:.2f} s, {1e6 * used / lines:.2f} us a line" if watched else ""
        what = "watched  " if watched else "unwatched"
        print(f"  {what} {rate:12,.0f} lines/s, {works[watched][-1]:,.0f} a cpu second{note}")
    executor.close()
    pairs = [yes / no for yes, no in zip(rates[True], rates[False], strict=True)]
    print(
        f"  watched / unwatched: {statistics.median(pairs):.3f} (each turn: {', '.join(f'{one:.3f}' for one in pairs)})"
    )
    own = [yes / no for yes, no in zip(works[True], works[False], strict=True)]
    print(f"  lines per second of the tasks' own processor time, watched / unwatched: {statistics.median(own):.3f}")
    print(f"  watcher: {statistics.median(costs):.2f} us of processor time a line")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "what", nargs="*", choices=["latency", "cost", "flood", []], default=["latency", "cost", "flood"]
    )
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    if "latency" in args.what:
        measure_latency(args.tasks, args.at_once)
    if "cost" in args.what:
        measure_cost("200 tasks that print 1,000 lines/s each", STEADY, 200, args.turns, args.seconds)
    if "flood" in args.what:
        measure_cost("2 tasks that print as fast as they can", FLOOD, 2, args.turns, args.seconds)


if __name__ == "__main__":
    main()
