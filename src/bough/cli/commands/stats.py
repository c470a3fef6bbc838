"""`bough stats`: what a server counts every second: the latest figures, a series, or Prometheus' text.

Rule: it looks and changes nothing; `figure_lines` is pure text from samples, for `bough status`, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bough.api.display.sparkline import sparkline
from bough.api.display.surroundings import show_seconds
from bough.cli.option_values import duration
from bough.cli.output import Output
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.model.plurals import counted
from bough.model.resources import show_bytes
from bough.wire import questions

EXAMPLES = ("bough stats", "bough stats --since 10m --json", "bough stats --prometheus")
WIDTH = 60  # letters of the picture

Sample = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--since", type=duration, default=60.0, metavar="TIME", help="how far back; an hour is kept (60s)"
    )
    parser.add_argument("--prometheus", action="store_true", help="the latest figures as Prometheus reads them")
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Print them."""
    with connect_client(args.server, "read") as server:
        samples = server.ask(questions.Statistics(max(1, round(args.since))))
    if args.prometheus:
        from bough.server.service.prometheus_text import exposition

        text = exposition(samples[-1])
        output.answer({"text": text}, text.splitlines)
    else:
        output.answer(samples, lambda: figure_lines(samples))
    return 0


def figure_lines(samples: Sequence[Sample]) -> list[str]:
    """The last sample, and how the throughput went."""
    last = samples[-1]
    executors = ", ".join(
        f"{last[state]} {state}" for state in ("active", "idle", "suspended", "draining", "missing") if last[state]
    )
    tasks = ", ".join(f"{last[state]} {state}" for state in ("running", "ready", "waiting", "held"))
    now, up = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last["time"])), last["time"] - last["started"]
    cores = counted(last["cores"], "core")
    lines = [
        f"time         {now}, up {show_seconds(max(0.0, up))}",
        f"clients      {last['clients']}, {counted(last['connections'], 'connection')}",
        f"executors    {last['allocated']} with {cores}{': ' + executors if executors else ''}",
        f"tasks        {tasks}",
        f"ended        {last['ended']}, {last['failed']} of them without success, {last['reused']} reused",
        f"throughput   {last['throughput']:.1f} tasks/s, {last['throughput_60']:.1f} over the last minute",
        f"server       {last['cpu']:.1f} % CPU, {show_bytes(last['memory'])}, turn {last['turns']} of the journal",
    ]
    moved = [last.get(name, 0) for name in ("cached_bytes", "peer_bytes", "origin_bytes")]
    if any(moved):
        cached, peers, origin = map(show_bytes, moved)
        lines.insert(-1, f"inputs       {cached} were cached, {peers} came from peers, {origin} from the server")
    if last["hands"]:
        lines.insert(3, f"manual       {counted(last['hands'], 'task')}")
    if len(samples) > 1:
        past = samples[-1]["time"] - samples[0]["time"]
        bars = sparkline([one["throughput"] for one in samples], WIDTH)
        lines.append(f"             {bars} last {show_seconds(past)}")
    return lines
