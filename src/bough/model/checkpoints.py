"""How a task is asked to save its state before it is ended for a reason that is not its own.

Rule: a checkpoint is a plain file of an absolute path at the submitter. A path that ends with a slash is a folder, in
which the file has the task's id as its name, so that the tasks of an array have one each.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bough.model.bounds import NO_NUL, FilePath

VARIABLE: Final = "BOUGH_CHECKPOINT"  # of a task's environment: where its checkpoint is, or is to be
MOST_SAVED: Final = 1_000_000  # elements of one span that have a checkpoint


CommandText = Annotated[str, Meta(max_length=65_536, pattern=NO_NUL)]


class CheckpointPlan(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A signal that its processes get, or a command that is run beside them, and the file that comes of it."""

    signal: Annotated[int, Meta(ge=0, le=64)] = 0
    command: CommandText = ""
    file: FilePath = ""

    def path(self, record: int, index: int) -> str:
        """The file of one task."""
        return f"{self.file}{record}.{index}" if self.file.endswith("/") else self.file
