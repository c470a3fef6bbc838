"""What a study gives: lines of what was published beside what we get, and the figures that can be drawn of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class StudyRow(msgspec.Struct, frozen=True):
    """A line. `published` is None where there is no published value."""

    subject: str
    ours: float
    published: float | None = None
    unit: str = "s"
    note: str = ""

    @property
    def deviation(self) -> float | None:
        """By how much ours is more than the published one, as a part of it; None where that means nothing."""
        return (self.ours - self.published) / self.published if self.published else None


class Curve(msgspec.Struct, frozen=True):
    """Points that belong together. Those of the source are drawn dashed."""

    label: str
    points: Sequence[tuple[float, float]]
    published: bool = False
    steps: bool = False  # a value holds until the next point
    dots: bool = False  # points that no line joins


class StudyFigure(msgspec.Struct, frozen=True):
    """A picture: curves over one axis. `name` is that of its file, without its ending."""

    name: str
    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False


class StudyResult(msgspec.Struct, frozen=True):
    """All that a study found."""

    rows: Sequence[StudyRow]
    figures: Sequence[StudyFigure] = ()
