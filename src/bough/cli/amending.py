"""Files whose workflow goes on already: submitting one again applies the difference, and a dry run shows it.

Rule: looking leaves no trace at the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bough.cli.output import Output
from bough.errors import UserError
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.amending import Amendment
    from bough.api.remote import RemoteSession
    from bough.api.session import Session
    from bough.describe.lowering import Step


def submit_or_amend(
    session: Session, steps: Sequence[Step], note: Callable[[str], None], *, whole: bool = True
) -> None:
    """Submit a plan; if its workflow goes on and is complete, change that. `whole`: see `File.is_whole`."""
    from bough.api.plans import submit_plan

    if not session.welcome.closed:
        submit_plan(session, steps)
        return
    from bough.api.amending import amend_plan

    if not whole:
        raise cannot(session.name)
    note(told(session.name, amend_plan(_remote(session), steps, watched=True)))


def cannot(name: str) -> UserError:
    """Why a Makefile changes nothing that goes on: a target it does not name may be made, unwanted, or half made."""
    return UserError(
        f"workflow {name} goes on, and a Makefile says only what is out of date now, so that what was changed cannot be"
        " told; wait for its end, or choose another name"
    )


def told(name: str, amendment: Amendment) -> str:
    """What became of a workflow, in a line."""
    if amendment.is_empty:
        return f"workflow {name} goes on as it is: {amendment.unchanged} unchanged"
    return f"workflow {name}: {amendment.line()}"


def foresee(address: str, name: str, steps: Sequence[Step], *, whole: bool = True) -> Foreseen:
    """What submitting a plan would change."""
    return Foreseen(name, _difference(address, name, steps, whole=whole), steps)


def _difference(address: str, name: str, steps: Sequence[Step], *, whole: bool) -> Amendment | None:
    from bough.cli.service import connect

    with connect(address) as server:
        workflows = server.ask(questions.Workflows())
    assert isinstance(workflows, list)
    if not any(one["name"] == name and one["group"] and not one["closed"] for one in workflows):
        return None
    from bough.api import defaults
    from bough.api.amending import amend_plan
    from bough.cli.submission import in_turn

    defaults.describes = True
    session = in_turn(address, name, len(steps) + 1)
    try:
        if session.welcome.closed and not whole:
            raise cannot(name)
        if session.welcome.closed:
            return amend_plan(session, steps, dry=True)
        if not session.is_joined:  # it ended this very moment, so that we opened another one: it ends empty
            session.close_and_detach()
    finally:
        session.let_go()
    return None


class Foreseen(NamedTuple):
    """What a dry run found; `found` is None if no workflow goes on that would be changed."""

    name: str
    found: Amendment | None
    steps: Sequence[Step]

    def show(self, output: Output) -> None:
        """Show by name what would be added (+), changed (~), removed (-), and run again as it is (=)."""
        name, found = self.name, self.found
        if found is not None:
            value = {"workflow": name, "goes_on": True, **found.as_json()}
            output.answer(value, lambda: [*_lines(found), told(name, found)])
            return
        names = [step.task.label for step in self.steps if step.task is not None]
        last = f"workflow {name}: {len(names)} would be submitted"
        value = {"workflow": name, "goes_on": False, "added": names}
        output.answer(value, lambda: [*(f"+ {one}" for one in names), last])


def _lines(found: Amendment) -> Iterator[str]:
    for sign, tasks, groups in (
        ("+", found.added, found.groups.added),
        ("~", found.changed, found.groups.changed),
        ("-", found.removed, found.groups.removed),
        ("=", found.again, []),
    ):
        yield from (f"{sign} {path}/" for path in groups)
        yield from (f"{sign} {path}" for path in tasks)


def _remote(session: Session) -> RemoteSession:
    from bough.api.remote import RemoteSession

    assert isinstance(session, RemoteSession)  # no other joins something that is there
    return session
