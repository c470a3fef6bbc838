"""Progress in plain scripts and notebooks: when it is shown, and where.

A session that lasts longer than a moment has a picture on the terminal, as under `bough run`, or a text in its
notebook's cell that is updated in place. One display serves all open sessions of the process, from the first that wants
one to the end of the last. `Session(progress=True|False)` or `$BOUGH_PROGRESS` decide; else it is shown where people
look: in notebooks, and if standard error is a terminal; never in tests, a CI or a pipe. Failures are not told here: the
end of the session's block does that.

Rules: under `bough run`, which has a display of its own, this one is silent. Nothing is drawn in the first moment, so
that short scripts print what they always did.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from bough.api.display.progress_display import Display, FailureNote, Picture, PlainDisplay, RichDisplay, summary
from bough.api.display.session_view import picture_of
from bough.api.display.surroundings import has_colour, notebook, show_seconds
from bough.model.texts.terminal_text import harmless_name

if TYPE_CHECKING:
    from bough.api.session.session import Session

MOMENT = 1.0  # seconds in which nothing is shown
_BAR = 30  # characters


class _OpenSessions:
    """What the display looks at."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.begun = time.monotonic()

    def picture(self) -> Picture:
        """How things stand."""
        return picture_of(list(self.sessions), self.begun)

    def new_failures(self) -> list[FailureNote]:
        """The end of a session's block tells them."""
        return []


class NotebookDisplay(Display):
    """A text in the cell that is being run, updated in place; its last state stays."""

    def __init__(self, watched: _OpenSessions) -> None:
        super().__init__(watched)
        self._handle: Any = None
        self._last = ""

    def look(self, picture: Picture) -> None:
        """Show the text, if it has changed."""
        self._show(text_of(picture))

    def end(self) -> None:
        """Say how it ended, if anything was shown."""
        if self._handle is not None:
            picture = self._watched.picture()
            said = summary(picture.counts, picture.reused, show_seconds(picture.seconds))
            self._show(f"{harmless_name(picture.title)}: {said}")

    def _show(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        if self._handle is None:
            ipython: Any = importlib.import_module("IPython.display")  # it is there: see `surroundings.notebook`
            self._handle = ipython.display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)


class ScriptDisplay(RichDisplay):
    """A picture on the terminal, until a debugger is loaded: it needs the terminal for itself."""

    def look(self, picture: Picture) -> None:
        """Draw, or give the terminal back."""
        if "pdb" not in sys.modules:
            super().look(picture)
        elif self._live is not None:
            self.end()
            self._live = None


def text_of(picture: Picture) -> str:
    """A picture in two lines: counts, and a bar with what is left."""
    counts = ", ".join(f"{number} {state}" for state, number in picture.counts.items() if number)
    done = _BAR * picture.ended // max(picture.total, 1)
    said = [f"{picture.ended}/{picture.total}", show_seconds(picture.seconds)]
    if picture.rate:
        said.append(f"{picture.rate:.1f} tasks/s")
    if picture.remaining:
        said.append(f"about {show_seconds(picture.remaining)} left")
    head = f"{harmless_name(picture.title)}: {counts or 'no tasks yet'}"
    return f"{head}\n[{'#' * done}{'.' * (_BAR - done)}] {', '.join(said)}"


class _Delayed:
    """A display that begins when a moment has passed."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._lock = threading.Lock()
        self._is_over = self._has_begun = False
        self._timer = threading.Timer(MOMENT, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def _begin(self) -> None:
        with self._lock:
            if not self._is_over:
                self._has_begun = True
                self._display.__enter__()

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._has_begun:
                self._display.__exit__(None, None, None)


_lock = threading.Lock()
_watched = _OpenSessions()
_shown: _Delayed | None = None


def add(session: Session) -> None:
    """Show the progress of a session, from now on to its end."""
    global _shown
    with _lock:
        if not _watched.sessions:
            _watched.begun = time.monotonic()
        _watched.sessions.append(session)
        if _shown is None:
            _shown = _Delayed(_choose())


def remove(session: Session) -> None:
    """A session has ended; with the last one the display ends."""
    global _shown
    with _lock:
        if session not in _watched.sessions:
            return
        shown = _shown if len(_watched.sessions) == 1 else None
        if shown is not None:
            shown.end()
            _shown = None
        _watched.sessions.remove(session)


def _choose() -> Display:
    if notebook() is not None:
        return NotebookDisplay(_watched)
    if sys.stderr.isatty():
        return ScriptDisplay(_watched, sys.stderr, colour=has_colour(sys.stderr))
    return PlainDisplay(_watched, sys.stderr)
