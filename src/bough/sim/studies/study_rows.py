"""What a study gives: lines of what we get beside what it is compared with, and the figures that can be drawn of it.

Rule: each figure that ours is compared with says whose it is; only what a source prints is called published.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class Reference(StrEnum):
    """Whose figure it is that ours stands beside."""

    PUBLISHED = "published"  # the source prints it
    SCALED = "published, scaled"  # printed for the whole; divided here as the study is made smaller
    FOLLOWS = "follows from published"  # not printed: computed from what is
    RELATION = "published relation"  # the source says that something holds; the figure is how often it could
    IDEAL = "ideal or bound"  # what theory allows
    MODEL = "specification's model"  # a simulation apart from Bough, which our specification reports
    MEASURED = "our measurement"  # live runs of Bough


class StudyRow(msgspec.Struct, frozen=True):
    """A line. `reference` is None where there is nothing to compare with."""

    subject: str
    ours: float
    reference: float | None = None
    unit: str = "s"
    note: str = ""
    of: Reference = Reference.PUBLISHED  # whose the reference is

    @property
    def deviation(self) -> float | None:
        """By how much ours is more than the reference, as a part of it; None where that means nothing."""
        return (self.ours - self.reference) / self.reference if self.reference else None


class Curve(msgspec.Struct, frozen=True):
    """Points that belong together. Those that are not ours are drawn dashed."""

    label: str
    points: Sequence[tuple[float, float]]
    of: Reference | None = None  # None: ours
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
