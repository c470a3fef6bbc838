"""What a task needs and what an executor has: countable amounts by name.

Rule: amounts are never negative, and a task that fits is one whose every amount is available.
"""

from __future__ import annotations

import msgspec

from bough.model.ids import Bytes


class Needs(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Resources one task occupies while it runs. Hashable: tasks with equal needs queue together."""

    cores: float = 1
    memory: Bytes = 0
    gpus: float = 0
    named: tuple[tuple[str, float], ...] = ()  # sorted by name

    def amounts(self) -> dict[str, float]:
        """All non-zero amounts by resource name."""
        found = {"cores": self.cores, "memory": self.memory, "gpus": self.gpus, **dict(self.named)}
        return {name: amount for name, amount in found.items() if amount}

    def __str__(self) -> str:
        """Read as in "2 cores, 4.0 GB memory, 1 license"."""
        return describe(self.amounts())


ONE_CORE = Needs()

_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


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


def read_bytes(text: str | float) -> Bytes:
    """Read "4GB", "512 MiB", "1e9" or a number as bytes; ValueError says what is wrong."""
    if isinstance(text, int | float):
        return int(text)
    body = text.strip().upper().removesuffix("B")
    for suffix, factor in {**_BINARY, **_UNITS}.items():
        if suffix and body.endswith(suffix):
            return int(float(body.removesuffix(suffix)) * factor)
    return int(float(body))


_SPANS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def read_seconds(text: str | float) -> float:
    """Read "1h", "90s", "1:30:00", "250ms" or a number as seconds; ValueError says what is wrong."""
    if isinstance(text, int | float):
        return float(text)
    body = text.strip().lower()
    if ":" in body:
        total = 0.0
        for part in body.split(":"):
            total = total * 60 + float(part)
        return total
    for suffix in ("ms", "min", "s", "m", "h", "d"):
        if body.endswith(suffix):
            return float(body.removesuffix(suffix)) * _SPANS[suffix]
    return float(body)
