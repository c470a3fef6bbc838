"""What a task needs and what an executor has: countable amounts by name; where the task may run, and in which queue.

Rule: amounts are never negative, and a task that fits is one whose every amount is available. A function that says its
Python runs only where that minor version does, as bytecode differs between them. A command runs under any. A task that
names sites runs at one of these; one with a requirement only where the attributes of the executor meet it.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from bough.model.bounds import Amount, Name, QueueRef, SiteName, Word
from bough.model.ids import Bytes
from bough.model.sites.requirements import RequirementText

SiteNames = Annotated[tuple[SiteName, ...], Meta(max_length=100)]  # each once, in order


class Needs(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Resources one task occupies while it runs. Hashable: tasks with equal needs queue together."""

    cores: Amount = 1
    memory: Bytes = 0
    gpus: Amount = 0
    named: tuple[tuple[Name, Amount], ...] = ()  # sorted by name
    python: Word = ""  # the minor version that a function needs, as "3.12"; empty: any, as commands do
    sites: SiteNames = ()  # where it may run; empty: anywhere
    requires: RequirementText = ""  # of the executor's attributes, see `model.sites.requirements`; empty: nothing
    queue: QueueRef = (
        ""  # the named queue that the task goes through, see `model.sites.queue_specs`; empty: the default one
    )

    @property
    def is_picky(self) -> bool:
        """Whether it matters where the amounts are."""
        return bool(self.python or self.sites or self.requires)

    def amounts(self) -> dict[str, float]:
        """All non-zero amounts by resource name."""
        found = {"cores": self.cores, "memory": self.memory, "gpus": self.gpus, **dict(self.named)}
        return {name: amount for name, amount in found.items() if amount}

    def __str__(self) -> str:
        """Read as in "2 cores, 4.0 GB memory, 1 license, Python 3.12, queue q at a or b with memory_gb >= 64"."""
        words = describe(self.amounts())
        words += f", Python {self.python}" if self.python else ""
        words += f", queue {self.queue}" if self.queue else ""
        words += f" at {' or '.join(self.sites)}" if self.sites else ""
        return f"{words} with {self.requires}" if self.requires else words

    def within(self, capacity: Needs) -> bool:
        """Whether a capacity could hold the amounts."""
        if self.cores > capacity.cores or not (self.memory or self.gpus or self.named):
            return self.cores <= capacity.cores
        there = capacity.amounts()
        return all(amount <= there.get(name, 0) for name, amount in self.amounts().items())

    def beyond(self, capacity: Needs) -> dict[str, tuple[float, float]]:
        """The amounts that a capacity will never hold: what is needed and what there is, by resource name."""
        there = capacity.amounts()
        found = {name: (amount, there.get(name, 0.0)) for name, amount in self.amounts().items()}
        return {name: (amount, most) for name, (amount, most) in found.items() if amount > most + _ROUND}


ONE_CORE = Needs()
_SAID = {one.name: one.default for one in msgspec.structs.fields(Needs) if one.name != "cores"}
_ROUND = 1e-9  # fractions of cores add up inexactly
OWN_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"  # the minor version of this process


def needs_text(needs: Needs) -> str | None:
    """What a task needs besides cores, as JSON by name, for those that have no such type; None: nothing."""
    if not (needs.memory or needs.gpus or needs.named or needs.is_picky or needs.queue):
        return None
    said: dict[str, Any] = {name: value for name in _SAID if (value := getattr(needs, name))}
    if needs.named:
        said["named"] = dict(needs.named)
    return msgspec.json.encode(said).decode()


def read_needs(text: str | None, cores: float) -> Needs:
    """The needs that `needs_text` wrote; what is no such text asks for nothing besides cores."""
    if not text:
        return Needs(cores)
    try:
        said = msgspec.json.decode(text, type=dict[str, Any])
        named = tuple(sorted(msgspec.convert(said.get("named", {}), dict[str, Any]).items()))
        known = {name: said.get(name, default) for name, default in _SAID.items()}
        return msgspec.convert((cores, *{**known, "named": named}.values()), Needs)
    except msgspec.MsgspecError:  # of another version
        return Needs(cores)


def describe(amounts: dict[str, float]) -> str:
    """Say amounts as people do."""
    words = []
    for name, amount in amounts.items():
        if name == "memory":
            words.append(f"{show_bytes(int(amount))} memory")
        else:
            count = int(amount) if float(amount).is_integer() else amount
            singular = name[:-1] if name in {"cores", "gpus"} and count == 1 else name
            words.append(f"{count} {singular}")
    return ", ".join(words) or "nothing"


def show_bytes(count: int) -> str:
    """Say a number of bytes with a decimal unit, as in "4.0 GB"."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{int(amount)} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
