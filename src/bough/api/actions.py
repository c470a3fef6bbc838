"""Actions on tasks, arrays, groups and selectors: cancel, kill, hold, release, disable, enable, reset, stop.

Rule: cancelling is final here at once; the other actions are the server's to carry out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bough.api.futures.array import Array
from bough.api.futures.array_view import ArrayView
from bough.api.futures.elements import runs_of
from bough.api.futures.task import Task
from bough.api.submit.groups import Group
from bough.errors import UserError
from bough.model.events.news import Cancel, DeclareDone, Hold, Kill, Release, Reset
from bough.model.ids import RecordId
from bough.model.tasks import Dep, On

if TYPE_CHECKING:
    from bough.api.submit.context import SessionLike

Target = tuple[Dep, int]


def cancel(session: SessionLike, what: object) -> int:
    """Cancel what is named; returns how many tasks that was."""
    if isinstance(what, Task):
        return int(not what.done() and what.cancel())
    if isinstance(what, Array):
        return what.cancel()
    return sum(session.act(Cancel(target, stop)) for target, stop in targets(session, what))


def kill(session: SessionLike, what: object) -> int:
    """End what is running; returns how many tasks that was."""
    return sum(session.act(Kill(target, stop)) for target, stop in targets(session, what))


def hold(session: SessionLike, what: object) -> int:
    """Keep from starting; returns how many tasks that was."""
    return sum(session.act(Hold(target, stop)) for target, stop in targets(session, what))


def release(session: SessionLike, what: object) -> int:
    """Let start; returns how many tasks that was."""
    return sum(session.act(Release(target, stop)) for target, stop in targets(session, what))


def disable(session: SessionLike, what: object) -> int:
    """Keep groups from starting, and name them so; returns how many tasks that was."""
    return sum(session.act(Hold(target, stop, disabled=True)) for target, stop in targets(session, what))


def enable(session: SessionLike, what: object) -> int:
    """Let groups start that were disabled; returns how many tasks that was."""
    return sum(session.act(Release(target, stop, enabled=True)) for target, stop in targets(session, what))


def reset(session: SessionLike, what: object, *, cascade: bool) -> int:
    """Make not started; returns how many tasks that was, or says why nothing could be reset."""
    return _act_lawfully(session, [Reset(target, stop, cascade) for target, stop in targets(session, what)])


def declare_done(session: SessionLike, what: object) -> int:
    """Declare done; returns how many tasks that was, or says why nothing could be."""
    return _act_lawfully(session, [DeclareDone(target, stop) for target, stop in targets(session, what)])


def stop(session: SessionLike, what: object, *, disable: bool) -> int:
    """End what runs and hold the rest, that first; returns how many tasks that was."""
    aims = list(targets(session, what))
    held = sum(session.act(Hold(target, until, disabled=disable)) for target, until in aims)
    return held + sum(session.act(Kill(target, until)) for target, until in aims)


def _act_lawfully(session: SessionLike, actions: Sequence[Reset | DeclareDone]) -> int:
    not_changed: list[str] = []
    changed = sum(session.act(action, not_changed) for action in actions)
    if not_changed and not changed:
        raise UserError("; ".join(not_changed))
    return changed


def targets(session: SessionLike, what: object) -> Iterator[Target]:
    """What the server is told for a task, array, group or selector."""
    if isinstance(what, Task):
        yield what.dep(), 0
    elif isinstance(what, ArrayView):
        record = RecordId(what.record)
        if what.is_whole:
            yield Dep(On.ARRAY, record), 0
        else:
            for start, stop in runs_of(sorted(what.indices)):
                yield Dep(On.TASK, record, start), stop
    elif isinstance(what, Array):
        yield from ((task.dep(), 0) for task in what.tasks())
    elif isinstance(what, Group):
        yield Dep(On.GROUP, what.id), 0
    elif isinstance(what, str | int) and not isinstance(what, bool):
        from bough.api.find import targets_of

        yield from targets_of(session, str(what))
    else:
        raise UserError(
            f"{what!r:.80} names no tasks; give a task, an array, a group or a selector such as 12 or align/*"
        )
