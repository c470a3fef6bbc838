"""The browser of groups in the terminal, drawn with textual.

Rule: all that it knows and does is in `levels`; here are only keys and the screen. Imported only by `bough browse`.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Footer, Static

from bough.cli.targets.group_levels import Entry, Levels
from bough.errors import BoughError
from bough.model.ids import number_of


class Browser(App[None]):
    """Walk through the groups, mark rows, act on them."""

    TITLE = "bough"
    CSS = "DataTable { height: 1fr; } #where { text-style: bold; } #said { height: auto; color: $warning; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "dive", "dive", priority=True),
        Binding("u,backspace", "up", "up"),
        Binding("space", "mark", "mark"),
        Binding("d", "dependencies", "depends on"),
        Binding("e", "act('enable')", "enable"),
        Binding("x", "act('disable')", "disable"),
        Binding("n", "act('reset')", "reset"),
        Binding("N", "act('reset with all that depends on it')", "reset, cascade"),
        Binding("f", "act('declare done')", "done"),
        Binding("s", "act('stop')", "stop"),
        Binding("S", "act('stop and disable')", "stop-disable"),
        Binding("r", "act('retry')", "retry"),
        Binding("k", "act('kill')", "kill"),
        Binding("f5,ctrl+r", "refresh", "refresh"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, levels: Levels) -> None:
        super().__init__()
        self._levels = levels
        self._marked: set[Entry] = set()
        self._shown: list[Entry] = []

    def compose(self) -> ComposeResult:
        """The path, the rows, what was said, the keys."""
        yield Static(id="where")
        yield DataTable(cursor_type="row")
        yield Static(id="said")
        yield Footer()

    def on_mount(self) -> None:
        """Show the first level."""
        self._table.add_columns(" ", "#", "ID", "NAME", "STATUS", "")
        self._show(self._levels.entries)

    @property
    def _table(self) -> DataTable[str]:
        return self.query_one(DataTable)

    def _show(self, entries: list[Entry], said: str = "", where: str = "") -> None:
        """Put rows on the screen; the cursor stays in its place as far as it can."""
        table, at = self._table, self._table.cursor_row
        self._shown = entries
        names = {(one.is_group, one.id) for one in entries}
        self._marked = {one for one in self._marked if (one.is_group, one.id) in names}
        marked = {(one.is_group, one.id) for one in self._marked}
        table.clear()
        for number, one in enumerate(entries):
            mark = "*" if (one.is_group, one.id) in marked else ""
            name = f"{one.name}/" if one.is_group else one.name
            table.add_row(
                mark, str(number), str(one.id if one.is_group else number_of(one.id)), name, one.status, one.note
            )
        if entries:
            table.cursor_coordinate = Coordinate(min(max(at, 0), len(entries) - 1), 0)
        self.query_one("#where", Static).update(f"/{self._levels.path}{where}")
        self.query_one("#said", Static).update(said)

    def _current(self) -> Entry | None:
        row = self._table.cursor_row
        return self._shown[row] if 0 <= row < len(self._shown) else None

    def action_dive(self) -> None:
        """Into the group under the cursor."""
        one = self._current()
        if one is not None and self._levels.dive(one):
            self._marked.clear()
            self._table.cursor_coordinate = Coordinate(0, 0)
            self._show(self._levels.entries)

    def action_up(self) -> None:
        """To the group around this one, and to its row there."""
        left = self._levels.path.rpartition("/")[2]
        self._marked.clear()
        self._levels.up()
        self._show(self._levels.entries)
        rows = [number for number, one in enumerate(self._shown) if one.is_group and one.name == left]
        if rows:
            self._table.cursor_coordinate = Coordinate(rows[0], 0)

    def action_mark(self) -> None:
        """Mark the row under the cursor, or take its mark away, and go on to the next."""
        one = self._current()
        if one is not None:
            known = {(marked.is_group, marked.id) for marked in self._marked}
            if (one.is_group, one.id) in known:
                self._marked = {other for other in self._marked if other.id != one.id or other.is_group != one.is_group}
            else:
                self._marked.add(one)
            self._show(self._shown)
            self._table.action_cursor_down()

    def action_dependencies(self) -> None:
        """Only what the row under the cursor depends on; refresh shows all again."""
        one = self._current()
        if one is not None:
            self._show(self._levels.prerequisites(one), where=f": what {one.name} depends on")

    def action_refresh(self) -> None:
        """Take a new snapshot."""
        self._levels.refresh()
        self._show(self._levels.entries)

    def action_act(self, action: str) -> None:
        """Do something to the marked rows, or to the one under the cursor."""
        one = self._current()
        chosen = sorted(self._marked, key=lambda entry: entry.id) or ([one] if one is not None else [])
        if not chosen:
            return
        try:
            said = self._levels.act(action, chosen)
        except BoughError as error:
            said = str(error)
        self._marked.clear()
        self._show(self._levels.entries, said)
