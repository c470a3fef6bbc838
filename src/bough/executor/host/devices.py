"""GPUs and cores of an executor by name: which a task may use, for as long as it runs.

GPUs are those that the executor was itself given ($CUDA_VISIBLE_DEVICES, $ROCR_VISIBLE_DEVICES, $HIP_VISIBLE_DEVICES,
$ZE_AFFINITY_MASK: indexes or UUIDs), or all that the machine tells of (/proc/driver/nvidia, /dev/nvidia*, the kernel's
list of AMD devices). `--gpus N` means the first N of them, or N that nothing tells of. A task with `gpus=1` gets one,
and the same variables say which. With `--pin`, a task gets cores of its own: it and its processes run on no others.

Rule: a GPU or a pinned core is with one slot at a time, and comes back when the slot is free again, however its task
ended. It is the executor that keeps this list, so a server that is started again changes nothing of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from bough.model.sites.resources import Needs

CUDA, ROCR, HIP, LEVEL_ZERO = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"
GPUS = "BOUGH_GPUS"  # the same for every kind of GPU
_ORDER = "CUDA_DEVICE_ORDER"  # so that indexes mean what nvidia-smi shows
_NOT_TOLD = (CUDA, ROCR, LEVEL_ZERO)  # the variables for GPUs of an unknown kind
_NVIDIA = re.compile(r"nvidia\d+\Z")


class Gpus(msgspec.Struct, frozen=True):
    """The GPUs of an executor: their names, and the variables that say to a program which it may use."""

    names: tuple[str, ...] = ()
    variables: tuple[str, ...] = _NOT_TOLD

    def first(self, count: int) -> Gpus:
        """So many of them; ValueError when the executor was given fewer."""
        if count <= len(self.names):
            return Gpus(self.names[:count], self.variables)
        if self.names and any(variable in os.environ for variable in self.variables):
            given = ", ".join(variable for variable in self.variables if variable in os.environ)
            raise ValueError(f"${given} names only {len(self.names)}")
        return Gpus(tuple(map(str, range(count))), self.variables)


def find_gpus(root: str = "/", environ: Mapping[str, str] | None = None) -> Gpus:
    """The GPUs that this process was given, or that the machine has; `root`: where its /proc, /dev and /sys are."""
    told = os.environ if environ is None else environ
    for variable in (CUDA, ROCR, HIP, LEVEL_ZERO):
        if variable in told:
            return Gpus(_named(told[variable]), (variable,))
    nvidia = _entries(root, "proc/driver/nvidia/gpus") or [
        name for name in _entries(root, "dev") if _NVIDIA.match(name)
    ]
    if nvidia:
        return Gpus(tuple(map(str, range(len(nvidia)))), (CUDA,))
    amd = sum(_is_amd_gpu(root, node) for node in _entries(root, "sys/class/kfd/kfd/topology/nodes"))
    return Gpus(tuple(map(str, range(amd))), (ROCR,)) if amd else Gpus()


def _named(text: str) -> tuple[str, ...]:
    """The devices that a variable lists; as CUDA does, what follows one that cannot be is left out."""
    found: list[str] = []
    for word in (word.strip() for word in text.split(",")):
        if not word or word.startswith("-") or word in found or word == "NoDevFiles":
            break
        found.append(word)
    return tuple(found)


def _entries(root: str, folder: str) -> list[str]:
    try:
        return os.listdir(os.path.join(root, folder))
    except OSError:
        return []


def _is_amd_gpu(root: str, node: str) -> bool:
    """Whether a node of the kernel's list is a GPU: processors have the id 0."""
    try:
        with open(os.path.join(root, "sys/class/kfd/kfd/topology/nodes", node, "gpu_id"), encoding="ascii") as file:
            return int(file.read(32).strip() or 0) != 0
    except (OSError, ValueError):
        return False


class TaskDevices(msgspec.Struct, frozen=True, array_like=True):
    """What tasks of one slot may use."""

    gpus: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()  # empty: all that the executor has

    def environment(self) -> dict[str, str]:
        """The variables that say so to a program."""
        if not self.gpus:
            return {}
        listed = ",".join(self.gpus)
        found = {**dict.fromkeys(self.variables, listed), GPUS: listed}
        if CUDA in found:
            found[_ORDER] = "PCI_BUS_ID"
        return found


class DevicePool:
    """The GPUs and cores that are free."""

    def __init__(self, gpus: Gpus, cpus: Iterable[int] = ()) -> None:
        self._all = gpus
        self._gpus = list(gpus.names)  # in the order of the machine
        self._cpus = sorted(cpus)
        self.pins = bool(self._cpus)  # tasks get cores of their own

    def has(self, gpus: Sequence[str]) -> bool:
        """Whether all of these are free."""
        return all(name in self._gpus for name in gpus)

    def take(self, needs: Needs, before: Sequence[str] = ()) -> TaskDevices | None:
        """What a task with these needs may use; `before`: the GPUs that its worker had, which it gets again if free."""
        count = -int(-needs.gpus // 1)
        gpus = tuple(before) if len(before) == count and self.has(before) else tuple(self._gpus[:count])
        whole = int(needs.cores)
        cpus = tuple(self._cpus[:whole]) if whole == needs.cores and whole <= len(self._cpus) else ()
        if not gpus and not cpus:
            return None
        self._gpus = [name for name in self._gpus if name not in gpus]
        del self._cpus[: len(cpus)]
        return TaskDevices(gpus, self._all.variables, cpus)

    def give(self, devices: TaskDevices) -> None:
        """They are free again."""
        self._gpus = [name for name in self._all.names if name in self._gpus or name in devices.gpus]
        self._cpus = sorted([*self._cpus, *devices.cpus])


class WorkerDevices:
    """The worker's side: what its tasks may use now, in its environment and its affinity."""

    def __init__(self) -> None:
        self._now: TaskDevices | None = None
        self._before: dict[str, str | None] = {}  # variables as they were, None: not set
        self.encoded: dict[bytes, bytes] = {}  # the variables, for commands

    def use(self, devices: TaskDevices | None) -> None:
        """From here on, tasks may use these."""
        if devices == self._now:
            return
        cpus, former = devices.cpus if devices else (), self._now.cpus if self._now else ()
        if cpus != former:
            os.sched_setaffinity(0, cpus or os.sched_getaffinity(os.getppid()))
        self._now = devices
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        told = devices.environment() if devices else {}
        self._before = {name: os.environ.get(name) for name in told}
        os.environ.update(told)
        self.encoded = {os.fsencode(name): os.fsencode(value) for name, value in told.items()}
