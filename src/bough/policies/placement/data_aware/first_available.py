"""First-available (FA): the next task goes to the first free executor, and no cache is used.

Source: Falkon's baseline, `spec/falkon.md` 3.2: every access goes to persistent storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from bough.policy.interface import Place, ReadyWork, View
from bough.policy.list_scheduling import in_order


class FirstAvailable(msgspec.Struct, frozen=True):
    """See the module."""

    uses_caches: ClassVar[bool] = False  # executors fetch every input from the origin

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        """In order."""
        return in_order(view)
