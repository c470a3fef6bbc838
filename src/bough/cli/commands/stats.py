"""`bough stats`: what a server counts every second, as figures, a series or Prometheus' text, and core-hours by site.

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
from bough.cli.output import Output, table_lines
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.model.sites.resources import show_bytes
from bough.model.texts.plurals import counted
from bough.wire import questions

EXAMPLES = (
    "bough stats",
    "bough stats --since 10m --json",
    "bough stats --prometheus",
    "bough stats --core-hours --since 30d",
)
WIDTH = 60  # letters of the picture
_SINCE = 60.0  # seconds
_HOUR = 3600.0
_DAY = 86400.0
_BUSIEST = 5  # executors, and workflows, whose cache hits are shown
_AMOUNTS = ("core_seconds", "startup", "used", "wasted")

Sample = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--since",
        type=duration,
        metavar="TIME",
        help="how far back; an hour is kept (60s), of core-hours years (1d)",
    )
    parser.add_argument(
        "--core-hours", action="store_true", help="what executors were there for, by site and over time"
    )
    parser.add_argument("--prometheus", action="store_true", help="the latest figures as Prometheus reads them")
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Print them."""
    if args.core_hours:
        return _show_core_hours(args, output)
    with connect_client(args.server, "read") as server:
        samples = server.ask(questions.Statistics(max(1, round(args.since or _SINCE))))
    if args.prometheus:
        from bough.server.service.upkeep.prometheus_text import exposition

        text = exposition(samples[-1])
        output.answer({"text": text}, text.splitlines)
    else:
        output.answer(samples, lambda: figure_lines(samples))
    return 0


def _show_core_hours(args: argparse.Namespace, output: Output) -> int:
    since = args.since or _DAY
    with connect_client(args.server, "read") as server:
        found = server.ask(questions.CoreHours(max(1, round(since))))
    output.answer(found, lambda: core_hour_lines(found, since))
    return 0


def core_hour_lines(found: Mapping[str, Any], since: float) -> list[str]:
    """What sites have used in all, and in each minute, hour or day of some time."""
    step = next((step for step, most in ((60, 3 * _HOUR), (_HOUR, 3 * _DAY)) if since <= most), _DAY)
    sums: dict[tuple[float, str], list[float]] = {}
    for one in found["history"]:
        amounts = sums.setdefault((one["start"] // step * step, one["site"]), [0.0] * len(_AMOUNTS))
        for at, name in enumerate(_AMOUNTS):
            amounts[at] += one[name] / _HOUR
    whole = [[site, "in all", *_hours(one["all"], one)] for site, one in sorted(found["sites"].items())]
    rows = [[site, _instant(start, step), *_hours_of(amounts)] for (start, site), amounts in sorted(sums.items())]
    if not whole and not rows:
        return ["no executor has been there yet"]
    return table_lines(["SITE", "TIME", "CORE-HOURS", "USED", "IDLE", "START-UP", "WASTED"], [*whole, *rows])


def _hours_of(amounts: Sequence[float]) -> list[str]:
    alive, startup, used, wasted = amounts
    idle = max(0.0, alive - startup - used - wasted)
    return _hours(alive, {"used": used, "idle": idle, "startup": startup, "wasted": wasted})


def _hours(alive: float, parts: Mapping[str, float]) -> list[str]:
    return [f"{hours:.3g}" for hours in (alive, *(parts[name] for name in ("used", "idle", "startup", "wasted")))]


def _instant(start: float, step: float) -> str:
    return time.strftime("%Y-%m-%d" if step == _DAY else "%Y-%m-%d %H:%M", time.localtime(start))


def _input_lines(last: Sample) -> list[str]:
    """Where inputs came from: bytes, then files in all, a second, and of the busiest executors and workflows."""
    moved = [last.get(name, 0) for name in ("cached_bytes", "peer_bytes", "origin_bytes", "shared_bytes")]
    if not any(moved):
        return []
    cached, peers, origin, shared = map(show_bytes, moved)
    more = f", {shared} from shared folders" if moved[3] else ""
    lines = [f"inputs       {cached} were cached, {peers} came from peers, {origin} from the server{more}"]
    counts = [last.get(name, 0) for name in ("hits", "peer_hits", "misses")]
    rates = [last.get(name, 0.0) for name in ("hit_rate", "peer_hit_rate", "miss_rate")]
    lines.append(f"cache hits   {_hit_text(counts)}; a second: {rates[0]:.1f}, {rates[1]:.1f} and {rates[2]:.1f}")
    for kind, table in sorted((last.get("caches") or {}).items()):
        busiest = sorted(table.items(), key=lambda entry: (-sum(entry[1]), entry[0]))
        lines += [f"             {kind} {name}: {_hit_text(counts)}" for name, counts in busiest[:_BUSIEST]]
        if len(busiest) > _BUSIEST:
            lines.append(f"             and {counted(len(busiest) - _BUSIEST, 'more ' + kind)}")
    return lines


def _hit_text(counts: Sequence[int]) -> str:
    return f"{counts[0]} in the cache, {counts[1]} at peers, {counts[2]} missed"


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
    ]
    if last["hands"]:
        lines.append(f"manual       {counted(last['hands'], 'task')}")
    lines += [
        f"tasks        {tasks}",
        f"ended        {last['ended']}, {last['failed']} of them without success, {last['reused']} reused",
        f"throughput   {last['throughput']:.1f} tasks/s, {last['throughput_60']:.1f} over the last minute",
    ]
    if len(samples) > 1:
        past = samples[-1]["time"] - samples[0]["time"]
        bars = sparkline([one["throughput"] for one in samples], WIDTH)
        lines.append(f"             {bars} last {show_seconds(past)}")
    if last.get("replicas"):
        superseded, wasted = counted(last["superseded"], "attempt"), show_seconds(last["wasted"])
        vain = f", {show_bytes(last['wasted_bytes'])} moved in vain" if last.get("wasted_bytes") else ""
        lines.append(f"replicas     {last['replicas']}, {superseded} superseded: {wasted} of cores wasted{vain}")
    lines += _input_lines(last)
    lines.append(
        f"server       {last['cpu']:.1f} % CPU, {show_bytes(last['memory'])}, turn {last['turns']} of the journal"
    )
    for site, amounts in sorted((last.get("core_seconds") or {}).items()):
        alive, used, idle, startup, wasted = _hours_of([amount / _HOUR for amount in amounts])
        parts = f"{used} used, {idle} idle, {startup} start-up, {wasted} wasted"
        lines.append(f"core-hours   {alive} at {site}: {parts}")
    return lines
