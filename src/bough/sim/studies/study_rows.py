"""One line of a study: what was published, and what we get."""

from __future__ import annotations

import msgspec


class StudyRow(msgspec.Struct, frozen=True):
    """A figure. `published` is None where there is no published one."""

    subject: str
    ours: float
    published: float | None = None
    unit: str = "s"
    note: str = ""

    @property
    def deviation(self) -> float | None:
        """By how much ours is more than the published one, as a part of it; None where that means nothing."""
        return (self.ours - self.published) / self.published if self.published else None
