"""Where a submission is made: by which session, with which settings, into which group."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bough.api.session.session import Session
    from bough.api.submit.groups import Group
    from bough.api.submit.options import TaskOptions
    from bough.model.ids import GroupId

inside: ContextVar[tuple[Group, ...]] = ContextVar("bough_groups", default=())  # the `with` blocks around us


class SubmitContext(NamedTuple):
    """See the module."""

    session: Session
    settings: TaskOptions
    group: GroupId
