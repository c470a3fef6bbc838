"""A sample of statistics as Prometheus reads it: the text exposition format, version 0.0.4.

Rule: names and units follow Prometheus' conventions: base units, `_total` for what only grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_EXECUTORS = ("idle", "active", "suspended", "draining", "missing")
_TASKS = ("waiting", "held", "ready", "running")
_SINGLE = (
    ("bough_clients", "gauge", "Clients that are connected", "clients"),
    ("bough_connections", "gauge", "Clients and executors that are connected", "connections"),
    ("bough_cores", "gauge", "Cores of all executors", "cores"),
    ("bough_taken_manually", "gauge", "Tasks that are run manually", "manual"),
    ("bough_taken_by_hand", "gauge", "The former name of bough_taken_manually", "hands"),
    ("bough_tasks_ended_total", "counter", "Tasks that ended since the server began", "ended"),
    ("bough_tasks_failed_total", "counter", "Of these, tasks that failed or could not run", "failed"),
    ("bough_tasks_reused_total", "counter", "Of these, results of earlier runs", "reused"),
    (
        "bough_records_in_memory",
        "gauge",
        "Tasks and arrays of workflows that are running, or ended last",
        "records",
    ),
    ("bough_workflows_in_memory", "gauge", "Workflows that are running, or ended last", "workflows"),
    ("bough_replicas_total", "counter", "Replicas that were made of running tasks", "replicas"),
    ("bough_attempts_superseded_total", "counter", "Attempts ended because another one succeeded", "superseded"),
    ("bough_wasted_core_seconds_total", "counter", "Time of cores that these attempts took", "wasted"),
    ("bough_wasted_bytes_total", "counter", "Bytes of inputs that were moved for these attempts", "wasted_bytes"),
    ("bough_input_cached_bytes_total", "counter", "Bytes of inputs that the host's cache had", "cached_bytes"),
    ("bough_input_peer_bytes_total", "counter", "Bytes of inputs that came from other executors", "peer_bytes"),
    ("bough_input_origin_bytes_total", "counter", "Bytes of inputs that the server sent", "origin_bytes"),
    ("bough_input_shared_bytes_total", "counter", "Bytes of inputs from shared stores of sites", "shared_bytes"),
    ("bough_cache_hits_total", "counter", "Inputs that the host's cache had", "hits"),
    ("bough_cache_peer_hits_total", "counter", "Inputs that came from peers or a shared store", "peer_hits"),
    ("bough_cache_misses_total", "counter", "Inputs that the server sent", "misses"),
    ("bough_journal_turns_total", "counter", "Turns in the journal", "turns"),
    ("bough_server_cpu_seconds_total", "counter", "CPU time of the server", "cpu_seconds"),
    ("bough_server_resident_memory_bytes", "gauge", "Resident memory of the server", "memory"),
    ("bough_server_start_time_seconds", "gauge", "When the server began, since the epoch", "started"),
)


def exposition(sample: Mapping[str, object]) -> str:
    """The whole text."""
    lines: list[str] = []
    for name, kind, text, field in _SINGLE:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {_number(sample[field])}"]
    for name, text, states in (
        ("bough_executors", "Executors by state", _EXECUTORS),
        ("bough_tasks", "Tasks that have not ended by state", _TASKS),
    ):
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        lines += [f'{name}{{state="{state}"}} {_number(sample[state])}' for state in states]
    usage = sample.get("core_seconds")
    if isinstance(usage, Mapping) and usage:
        lines += _usage_lines(usage)
    caches = sample.get("caches")
    if isinstance(caches, Mapping):
        for label, table in sorted(caches.items()):
            lines += _cache_lines(label, table)
    return "\n".join(lines) + "\n"


def _cache_lines(label: str, table: Mapping[str, Sequence[int]]) -> list[str]:
    if not table:
        return []
    name = f"bough_{label}_inputs_total"
    lines = [f"# HELP {name} Inputs by {label} and where they were", f"# TYPE {name} counter"]
    for one, counts in sorted(table.items()):
        for source, count in zip(("cache", "peer", "server"), counts, strict=True):
            lines.append(f'{name}{{{label}="{_escaped(one)}",source="{source}"}} {count}')
    return lines


def _usage_lines(sites: Mapping[str, Sequence[float]]) -> list[str]:
    name = "bough_core_seconds_total"
    lines = [f"# HELP {name} Core-seconds of executors by site and what they were for", f"# TYPE {name} counter"]
    for site, amounts in sorted(sites.items()):  # what was idle is the rest; it may shrink, as no counter may
        for use, seconds in zip(("all", "startup", "used", "wasted"), amounts, strict=True):
            lines.append(f'{name}{{site="{_escaped(site)}",use="{use}"}} {_number(float(seconds))}')
    return lines


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: object) -> str:
    if isinstance(value, float):
        return repr(round(value, 6))
    return str(value)
