"""What this machine has for tasks, and is: the one answer, for the executor here and for sessions that only run here.

Rule: a session refuses at submission what its executor would never start, so both ask here.
"""

from __future__ import annotations

import os
import sys

from bough.executor.host.devices import find_gpus
from bough.model.sites.resources import Needs

_CPU_INFO = "/proc/cpuinfo"
_FIRST_CPU = 16_384  # bytes: what it says of the first one
_MOST_FLAGS = 900


def machine_memory() -> int:
    """Bytes of memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine_capacity(cores: float, gpus: int | None = None) -> Needs:
    """What the executor of an embedded session has, which was given some cores, and GPUs or else all there are."""
    return Needs(cores=cores, memory=machine_memory(), gpus=len(find_gpus().names) if gpus is None else gpus)


def machine_attributes(folder: str = "") -> dict[str, float | str | tuple[str, ...]]:
    """What requirements may ask for besides cores, memory and GPUs: cpu, arch, os and disk_gb, as far as known."""
    uname = os.uname()
    found: dict[str, float | str | tuple[str, ...]] = {"arch": uname.machine, "os": sys.platform}
    flags = cpu_flags()
    if flags:
        found["cpu"] = flags
    try:
        space = os.statvfs(folder or os.getcwd())
    except OSError:
        return found
    return found | {"disk_gb": round(space.f_frsize * space.f_bavail / 1e9, 1)}


def cpu_flags(path: str = _CPU_INFO) -> tuple[str, ...]:
    """What the first processor can do, as the kernel calls it; "avx512" stands for its foundation, avx512f."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read(_FIRST_CPU)
    except OSError:
        return ()
    for line in text.splitlines():
        name, _, flags = line.partition(":")
        if name.strip().lower() in {"flags", "features"}:
            words = {word for word in flags.split() if len(word) <= 64}
            words |= {"avx512"} if "avx512f" in words else set()
            return tuple(sorted(words)[:_MOST_FLAGS])
    return ()
