"""The rows for people and programs: a table, bars, a page for the documentation, and a value for JSON."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bough.bench.catalogue import BenchOutcome
from bough.bench.machine_limits import machine, machine_line
from bough.bench.timing import BenchRow

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

HEAD = ("subject", "ratio", "target", "Bough", "peer or limit", "its figure", "CPU us a task (ours / peer)")
_LEFT = {"subject", "peer or limit"}
_STYLES = {True: "green", False: "red", None: ""}

# The scale of the bars: every step is a factor of two; equal speed is where the bars begin.
SLOWEST, FASTEST = -3, 10
STEP = 3  # characters


def cells(row: BenchRow) -> tuple[str, ...]:
    """One row of the table as text."""
    ratio = "" if row.ratio is None else figure(row.ratio)
    if row.ratio is not None and row.target is not None and 0.95 < row.target < 1:
        ratio = f"{row.ratio:.4f}"  # such a target is decided in the third place
    sign = ">=" if row.better == "high" else "<="
    target = "" if row.target is None else f"{sign} {row.target:g} {'yes' if row.met else 'no'}"
    return row.subject, ratio, target, row.ours, row.peer_name, row.peer, row.cpu


def figure(ratio: float) -> str:
    """A ratio in as many digits as anybody reads."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def value(outcome: BenchOutcome, seconds: float) -> dict[str, object]:
    """All of it for programs."""
    return {
        "machine": machine(),
        "seconds": round(seconds, 1),
        "rows": [{**row._asdict(), "met": row.met} for row in outcome.rows],
        "failures": outcome.failures,
    }


def markdown(rows: Sequence[BenchRow], seconds: float) -> list[str]:
    """A page for the documentation."""
    head = ["| " + " | ".join(HEAD) + " |", "|" + "|".join("---" if name in _LEFT else "--:" for name in HEAD) + "|"]
    body = ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return [*head, *body, "", f"{machine_line()}. {len(rows)} rows in {seconds:.0f} s."]


def text(outcome: BenchOutcome, seconds: float, *, width: int, colour: bool) -> list[str]:
    """The table, the bars, what they were measured on, and what could not be measured."""
    rows = outcome.rows
    met = sum(row.met is True for row in rows)
    missed = sum(row.met is False for row in rows)
    closing = f"{len(rows)} rows in {seconds:.0f} s; {met} targets met, {missed} not"
    failed = [f"{name} could not be measured: {why}" for name, why in outcome.failures.items()]
    parts = [_table(rows), *([_bars(rows)] if any(row.ratio for row in rows) else [])]
    return [*_lines(parts, width=width, colour=colour), machine_line(), closing, *failed]


def _table(rows: Sequence[BenchRow]) -> RenderableType:
    from rich.table import Table

    table = Table()
    for name in HEAD:
        table.add_column(name, justify="left" if name in _LEFT else "right", overflow="fold")
    for row in rows:
        table.add_row(*cells(row), style=_STYLES[row.met])
    return table


def _bars(rows: Sequence[BenchRow]) -> RenderableType:
    from rich.table import Table

    table = Table(title="how many times as good as the peer or limit (| the same, * target; each mark a factor of two)")
    table.add_column("subject", overflow="fold")
    table.add_column("peer or limit", overflow="fold")
    table.add_column(scale(), no_wrap=True)
    table.add_column("times", justify="right")
    for row in rows:
        times = goodness(row)
        if times is not None:
            table.add_row(row.subject, row.peer_name, _styled(row), figure(times))
    return table


def goodness(row: BenchRow) -> float | None:
    """How many times as good as the peer: more is better whichever way the row is read."""
    if not row.ratio:
        return None
    return row.ratio if row.better == "high" else 1 / row.ratio


def scale() -> str:
    """The head of the bars."""
    return "".join(("|" if step == 0 else "'").ljust(STEP) for step in range(SLOWEST, FASTEST + 1)).rstrip()


def bar(row: BenchRow) -> str:
    """A bar from equal speed to the right (better) or left (worse), with the target's place."""
    times = goodness(row)
    if times is None:
        return ""
    zero, end = _place(1.0), _place(times)
    drawn = ["█" if min(zero, end) <= at <= max(zero, end) else " " for at in range(_place(2.0**FASTEST) + 1)]
    drawn[zero] = "|"
    if row.target:
        drawn[_place(row.target if row.better == "high" else 1 / row.target)] = "*"
    return "".join(drawn).rstrip()


def _place(times: float) -> int:
    return round((min(max(math.log2(times), SLOWEST), FASTEST) - SLOWEST) * STEP)


def _styled(row: BenchRow) -> Text:
    from rich.text import Text

    return Text(bar(row), style=_STYLES[row.met])


def _lines(parts: Sequence[RenderableType], *, width: int, colour: bool) -> list[str]:
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=colour, no_color=not colour, highlight=False)
    for part in parts:
        console.print(part)
    return file.getvalue().rstrip("\n").split("\n")
