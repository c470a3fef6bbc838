"""Write docs/spec/states.md from the edge table of bough.model.states, with a picture and the comments of the table.

Run by `make docs`; a unit test fails when the page and the table differ.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from bough.model import states
from bough.model.states import EDGES, ENDED, OCCUPYING, PENDING, TaskState, Trigger

PAGE = Path(__file__).parent / "spec" / "states.md"

HEAD = """# States of a task

<!-- Written by docs/generate_states.py from src/bough/model/states.py: change the table there, then run make docs. -->

A task is in exactly one of these states. A retry is a new attempt, not a new state. The core follows this table and
nothing else: a trigger that has no edge from a task's state is a bug of Bough (`InvalidTransition`), while news from
executors that is late, doubled or of an old attempt is dropped before it gets here.
"""


def _comments(pattern: str) -> dict[tuple[str, ...], str]:
    """What the source says behind each line that matches."""
    line = re.compile(pattern + r",?(?:\s+#\s*(?P<why>.*))?$", re.MULTILINE)
    found = line.finditer(inspect.getsource(states))
    return {tuple(match.groups()[:-1]): match["why"] or "" for match in found}


def render() -> str:
    """The whole page."""
    meanings = _comments(r"^    ([A-Z]+) = \d+")
    reasons = _comments(r"^    \(_S\.([A-Z]+), _T\.([A-Z_]+)\): _S\.[A-Z]+")
    lines = [HEAD, "```mermaid", "stateDiagram-v2", "    [*] --> waiting"]
    arrows: dict[tuple[TaskState, TaskState], list[Trigger]] = {}
    for (state, trigger), after in EDGES.items():
        arrows.setdefault((state, after), []).append(trigger)
    for (state, after), triggers in arrows.items():
        lines.append(f"    {state.label} --> {after.label}: {', '.join(trigger.value for trigger in triggers)}")
    lines += ["    done --> [*]", "```", "", "## States", ""]
    lines += ["| state | byte in arrays | kind | meaning |", "|---|---|---|---|"]
    for state in TaskState:
        lines.append(f"| `{state.label}` | {state.value} | {_kind(state)} | {meanings[(state.name,)] or state.label} |")
    lines += ["", "## Edges", "", "| from | trigger | to | when |", "|---|---|---|---|"]
    for (state, trigger), after in EDGES.items():
        why = reasons[state.name, trigger.name]
        lines.append(f"| `{state.label}` | {trigger.value} | `{after.label}` | {why} |")
    return "\n".join(lines) + "\n"


def _kind(state: TaskState) -> str:
    if state in OCCUPYING:
        return "occupies an executor"
    if state in PENDING:
        return "pending"
    return "ended" if state in ENDED else ""


if __name__ == "__main__":
    PAGE.write_text(render())
