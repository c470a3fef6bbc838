"""What a deed would do if it were done now: how many tasks it changes, and what it leaves out and why.

Rule: looks and changes nothing; who asks and then acts must do so within one turn.
"""

from __future__ import annotations

from bough.core import declaring, deeds, ranges, resetting
from bough.core.state import State
from bough.model import facts

Deed = (
    facts.Cancelled
    | facts.Killed
    | facts.Held
    | facts.Released
    | facts.Reset
    | facts.Declared
    | facts.Retried
    | facts.Prioritised
)


def survey(state: State, deed: Deed) -> tuple[int, list[str]]:
    """How many tasks it changes, and what it leaves out."""
    match deed:
        case facts.Reset():
            parts, left = resetting.reach(state, deed)
            return sum(stop - start for _, start, stop in parts), left
        case facts.Declared():
            declared, left = declaring.reach(state, deed)
            return sum(stop - start for _, start, stop in declared), left
        case facts.Prioritised():
            return sum(stop - start for _, start, stop in deeds.targets(state, deed.target, 0)), []
    return deeds.touched(state, deed), _left(state, deed)


def _left(state: State, deed: Deed) -> list[str]:
    group = state.groups.get(deed.target.id) if deed.target.is_group else None
    if group is None:
        return []
    name = f"group {group.path}" if group.path else "the workflow"
    if isinstance(deed, facts.Held) and deed.disabled:
        found = deeds.targets(state, deed.target, deed.stop)
        busy = sum(ranges.size(record.runs(deeds.BUSY, start, stop)) for record, start, stop in found)
        return [f"{busy} of {name} run on; end them: bough stop --disable"] if busy else []
    if isinstance(deed, facts.Released) and deed.enabled:
        if not group.disabled:
            return [f"{name}: is not disabled"]
        above = next((one for one in group.chain() if one is not group and one.disabled), None)
        if above is not None:
            return [f"{name}: the group {above.path or 'of all'} above it is disabled"]
    return []
