"""The simulated shell around the core: the same machine and the same policies, on a clock of its own.

    report = bough.sim.simulate(workload, platform, ["fifo", "sjf"], seeds=20)

It offers: `simulation` drives a machine on what `platforms` has: executors, sites, links; `schedule` says what ran
when, `workload`, `experiment` and `experiment_report` compare policies, `data` moves files, `models` are models by
themselves, `studies` runs published experiments again.
Rule: the public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bough.sim.experiment import simulate
    from bough.sim.experiment_report import Report
    from bough.sim.platforms.platform import Platform, one_site, read_platform
    from bough.sim.platforms.platform_files import load_platform
    from bough.sim.workload import SimulatedTask, Workload

__all__ = ["Platform", "Report", "SimulatedTask", "Workload", "load_platform", "one_site", "read_platform", "simulate"]

_HOMES = {
    "Platform": "platforms.platform",
    "Report": "experiment_report",
    "SimulatedTask": "workload",
    "Workload": "workload",
    "load_platform": "platforms.platform_files",
    "one_site": "platforms.platform",
    "read_platform": "platforms.platform",
    "simulate": "experiment",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"bough.sim.{_HOMES[name]}"), name)
