"""What a run was like, and could have been: minimal schedule, critical path, degree of concurrency, pictures.

    work = bough.analysis.read_workload("montage.json")     # for bough.sim.simulate

Rule: works on what the jobs database or a workflow file says; nothing here starts, changes or waits for anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bough.analysis.run_report import Analysis, analyse

if TYPE_CHECKING:
    from bough.analysis.workload_files import read_workload

__all__ = ["Analysis", "analyse", "read_workload"]


def __getattr__(name: str) -> Any:
    if name != "read_workload":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bough.analysis.workload_files import read_workload  # late: it needs the readers of all forms

    return read_workload
