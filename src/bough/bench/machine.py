"""What the figures were measured on, and how busy that was."""

from __future__ import annotations

import os
import platform
import time


def machine() -> dict[str, object]:
    """For programs."""
    model = next((_after(line) for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    memory = next((int(_after(line).split()[0]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "processor": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 2**20, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[1], 1),
        "date": time.strftime("%Y-%m-%d"),
    }


def machine_line() -> str:
    """For people."""
    found = machine()
    return (
        f"{found['cores']} cores of {found['processor']}, {found['memory_gb']} GB, {found['system']}, "
        f"Python {found['python']}; load average over 5 minutes {found['load']}; {found['date']}"
    )


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.readlines()
    except OSError:
        return []


def _after(line: str) -> str:
    return line.partition(":")[2].strip()
