"""Progress while a workflow runs: a live picture on a terminal, plain lines elsewhere, or nothing.

A `Picture` is the state of everything at one instant, a pure value; a `Display` looks a few times a second in a thread
of its own. All of it goes to standard error, so that standard output is the script's own. Rule: a failure is told as
soon as it is seen, and once. The library that draws is loaded at the first look, not before.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TextIO

from bough.api.display.failure_lines import what_ran
from bough.api.display.surroundings import has_colour, show_seconds
from bough.model.states import ENDED, UNSUCCESSFUL, labels_of
from bough.model.texts.terminal_text import harmless, harmless_name

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

LOOK_EVERY = 0.2  # seconds
LINE_EVERY = 5.0  # seconds between plain lines
ENDED_STATES = labels_of(ENDED)
_GROUPS = 15  # groups in the picture; a terminal has few lines
_FAILURES = 50  # told one by one; then only counted
_STYLES = {
    "failed": "red",
    "skipped": "yellow",
    "cancelled": "yellow",
    "held": "magenta",
    "running": "cyan",
    "done": "green",
}


class FailureNote(NamedTuple):
    """A task that failed, as a person wants to hear of it."""

    task: str  # as in "task 12 (plot)"
    message: str  # one line: which task, and what happened
    host: str = ""
    stderr: str = ""  # the last lines
    parameters: str = ""  # of the call, or of the sweep's row
    command: str = ""
    traceback: str = ""  # of a function

    def lines(self, most: int = 5) -> list[str]:
        """The message with its place, what ran, and the last lines of stderr, set in."""
        below = what_ran(self.parameters, self.command, self.traceback)
        below += [line for line in self.stderr.splitlines() if line.strip()][-most:]
        told = [self.message + (f" on {self.host}" if self.host else ""), *(f"    {line}" for line in below)]
        return [harmless(line) for line in told]


class Picture(NamedTuple):
    """The state of everything that is being run, at one instant."""

    groups: Mapping[str, Counter[str]]  # by path, each with those below it; "" is the whole
    running: tuple[str, ...] = ()  # names of some tasks that run now
    reused: int = 0
    seconds: float = 0
    rate: float = 0  # tasks that ended per second, lately; reused ones do not count
    title: str = ""

    @property
    def counts(self) -> Counter[str]:
        """Of everything."""
        return self.groups.get("", Counter())

    @property
    def total(self) -> int:
        """How many tasks there are so far."""
        return self.counts.total()

    @property
    def ended(self) -> int:
        """How many tasks have ended, well or not."""
        return sum(self.counts[state] for state in ENDED_STATES)

    @property
    def remaining(self) -> float | None:
        """The estimated seconds until all that is known of is done."""
        left = self.total - self.ended
        if not left:
            return 0.0
        return left / self.rate if self.rate > 0 else None


def with_parents(own: Iterable[tuple[str, Mapping[str, int]]]) -> dict[str, Counter[str]]:
    """Counts of groups by path, each with those of the groups below it added; "" is always there."""
    summed: dict[str, Counter[str]] = {"": Counter()}
    for path, counts in own:
        summed.setdefault(path, Counter()).update(counts)
        above = path
        while above:
            above = above.rpartition("/")[0]
            summed.setdefault(above, Counter()).update(counts)
    return summed


def summary(counts: Mapping[str, int], reused: int, seconds: str) -> str:
    """The last line: "12 done, 1 failed, 3 skipped, 5 reused in 3.2 s". Reused tasks are done, too."""
    if not any(counts.values()):
        return "nothing to do"
    said = [f"{counts.get('done', 0)} done"]
    said += [f"{counts[state]} {state}" for state in labels_of(UNSUCCESSFUL) if counts.get(state)]
    left = sum(number for state, number in counts.items() if state not in ENDED_STATES)
    if left:
        said.append(f"{left} left")
    if reused:
        said.append(f"{reused} reused")
    return ", ".join(said) + f" in {seconds}"


class Watched(Protocol):
    """What a display looks at."""

    def picture(self) -> Picture:
        """The state at this instant."""

    def new_failures(self) -> list[FailureNote]:
        """Failures since the last time it was asked."""


class Display:
    """Looks in a thread of its own from `with` to its end; this one shows nothing."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bough-display", daemon=True)
        self._told = 0
        self._telling = threading.Lock()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.tell_failures()
        self.end()

    def look(self, picture: Picture) -> None:
        """Show how things stand; called a few times a second."""

    def tell(self, lines: list[str]) -> None:
        """Show something that stays."""

    def end(self) -> None:
        """Take the picture away."""

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            self.tell_failures()
            self.look(self._watched.picture())

    def tell_failures(self) -> None:
        """Show the failures that were not shown yet."""
        with self._telling:
            for failure in self._watched.new_failures():
                self._told += 1
                if self._told <= _FAILURES:
                    self.tell(failure.lines())
                elif self._told == _FAILURES + 1:
                    self.tell(["further failures are only counted; see bough status --failed"])


class PlainDisplay(Display):
    """Lines for logs and pipes: at most one every few seconds, and each failure."""

    def __init__(self, watched: Watched, stream: TextIO) -> None:
        super().__init__(watched)
        self._stream = stream
        self._last: tuple[float, str] = (0.0, "")

    def look(self, picture: Picture) -> None:
        """A line, when the last one is old enough and something has changed."""
        since, before = self._last
        counts = ", ".join(f"{number} {state}" for state, number in picture.counts.items() if number)
        if picture.seconds - since < LINE_EVERY or not counts or counts == before:
            return
        self._last = (picture.seconds, counts)
        pace = f", {picture.rate:.1f} tasks/s" if picture.rate else ""
        self.tell([f"{show_seconds(picture.seconds)}: {counts}{pace}"])

    def tell(self, lines: list[str]) -> None:
        """Print, and flush: a user may be following the file."""
        print("\n".join(lines), file=self._stream, flush=True)


class RichDisplay(Display):
    """A picture that is drawn anew in place; what the script prints scrolls by above it."""

    def __init__(self, watched: Watched, stream: TextIO, *, colour: bool) -> None:
        super().__init__(watched)
        self._stream = stream
        self._colour = colour
        self._live: Live | None = None

    def look(self, picture: Picture) -> None:
        """Draw. What has ended before the first look never pays for loading the library that draws."""
        if self._live is None:
            self._live = self._take_over()
        self._live.update(draw(picture, self._live.console), refresh=True)

    def _take_over(self) -> Live:
        """Take the bottom of the terminal."""
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream, no_color=not self._colour, highlight=False, soft_wrap=False)
        # Redirecting is for prints to this terminal alone: what goes to a file or a pipe must stay untouched.
        live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        live.start()
        return live

    def tell(self, lines: list[str]) -> None:
        """Print above the picture."""
        if self._live is None:
            print("\n".join(lines), file=self._stream, flush=True)
            return
        from rich.text import Text

        for number, line in enumerate(lines):
            self._live.console.print(Text(line, style="red" if number == 0 else "dim"), soft_wrap=True)

    def end(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()


def draw(picture: Picture, console: Console) -> RenderableType:
    """The picture: a line per group with its counts, a bar, and what runs now."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    paths = sorted(picture.groups)
    for path in paths[:_GROUPS]:
        depth = path.count("/") + 1 if path else 0
        label = harmless_name(path.rpartition("/")[2] if path else picture.title or "workflow")
        table.add_row(Text("  " * depth + label, style="bold" if not path else ""), _counts(picture.groups[path]))
    if len(paths) > _GROUPS:
        table.add_row(Text(f"  and {len(paths) - _GROUPS} more groups", style="dim"))
    parts: list[RenderableType] = [table, _bar(picture)]
    if picture.running:
        now = Text(
            "running: " + harmless_name(", ".join(picture.running)), style="dim", overflow="ellipsis", no_wrap=True
        )
        now.truncate(max(console.width - 1, 20), overflow="ellipsis")
        parts.append(now)
    return Group(*parts)


def _counts(counts: Mapping[str, int]) -> RenderableType:
    from rich.text import Text

    text = Text()
    for state, number in counts.items():
        if number:
            text.append("  " if text else "").append(f"{number} {state}", style=_STYLES.get(state, ""))
    return text


def _bar(picture: Picture) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 2))
    said = [f"{picture.ended}/{picture.total}", show_seconds(picture.seconds)]
    if picture.rate:
        said.append(f"{picture.rate:.1f} tasks/s")
    if picture.remaining:
        said.append(f"about {show_seconds(picture.remaining)} left")
    line.add_row(ProgressBar(total=max(picture.total, 1), completed=picture.ended, width=30), Text(", ".join(said)))
    return line


def choose_display(watched: Watched, *, silent: bool, stream: TextIO | None = None) -> Display:
    """The display that fits: none, a live one on a terminal, else plain lines."""
    stream = stream or sys.stderr
    if silent:
        return Display(watched)
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return RichDisplay(watched, stream, colour=has_colour(stream))
    return PlainDisplay(watched, stream)
