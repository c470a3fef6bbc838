"""Runs work that opens sessions under a display, and sums up how it ended.

Rule: the display reads the sessions' own counts and asks no server. Sessions that were left open are closed when the
work has ended, as a `with` block would have done. Little is imported here before the session has started its server,
so that both load at the same time.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, NamedTuple

from bough.api.display.progress_display import Display, FailureNote, Picture, choose_display, summary
from bough.api.display.session_view import picture_of
from bough.api.display.surroundings import show_seconds
from bough.api.session import launch
from bough.api.session.session import opened_sessions
from bough.cli.main import INTERRUPTED, report
from bough.cli.runs.halt_file import HaltFile
from bough.cli.runs.run_in_task import open_session
from bough.cli.targets.locate import ServerLocation
from bough.errors import BoughError, TaskFailed
from bough.model.states import ENDED, UNSUCCESSFUL, labels_of
from bough.model.texts.terminal_text import harmless_name

if TYPE_CHECKING:
    from bough.api.futures.progress import FailureLine
    from bough.api.futures.task import Task
    from bough.describe.flat_list import FlatTask
    from bough.describe.steps import Step


_HOW_TO_RERUN = "; --fresh runs what was reused, too"


class Ended(NamedTuple):
    """What came of a run."""

    counts: Mapping[str, int]
    reused: int
    seconds: float
    exit_code: int

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints."""
        return {
            **{state: self.counts.get(state, 0) for state in labels_of(ENDED)},
            "reused": self.reused,
            "seconds": round(self.seconds, 3),
            "failures": _failures() if self.counts.get("failed") else [],
            "exit_code": self.exit_code,
        }


class Sessions:
    """All sessions of this run, as a display looks at them."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._told: dict[int, FailureLine] = {}  # by the session's place in the list: the last failure told

    def picture(self) -> Picture:
        """How things stand."""
        return picture_of(list(opened_sessions), self._begun)

    def new_failures(self) -> list[FailureNote]:
        """Failures since the last time it was asked."""
        found: list[FailureNote] = []
        for number, one in enumerate(list(opened_sessions)):
            lines = list(one.progress.failures)
            last = self._told.get(number)
            begin = next((at + 1 for at in reversed(range(len(lines))) if lines[at] is last), 0)
            found += [_note(line) for line in lines[begin:]]
            if lines:
                self._told[number] = lines[-1]
        return found


def _note(line: FailureLine) -> FailureNote:
    """A failure for the display, which shows the lines of stderr below: their last one is not said twice."""
    last = line.stderr.rstrip().rpartition("\n")[2].strip()
    message = line.text.removesuffix(f": {last}") if last else line.text
    return FailureNote(line.task, message, line.host, line.stderr, line.parameters, line.command(), line.traceback)


def watched_run(work: Callable[[], int], options: Mapping[str, object], *, silent: bool, strict: bool) -> Ended:
    """Do the work under a display. `strict`: any task that did not succeed makes the exit code 1."""
    sessions = Sessions()
    own = launch.run_defaults(options, tells_failures=True, has_display=True, keeps_sessions=True)
    opened_sessions.clear()  # another run of this process may have left some
    with own, choose_display(sessions, silent=silent) as display:
        code = _guarded(work, display)
        code = _guarded(lambda: _close_all(interrupted=code == INTERRUPTED), display) or code
    picture = sessions.picture()
    counts = _final_counts(picture)
    unseen = [failure for one in opened_sessions for failure in one.unretrieved()]
    all_done = counts["done"] == counts.total()
    if code == 0 and not all_done and (strict or unseen):
        code = 1
    was_refused = code not in {0, 1} and not counts.total()  # its one line says all
    if not silent and not was_refused and (opened_sessions or strict):
        said = summary(counts, picture.reused, show_seconds(picture.seconds))
        print(f"{said}{_HOW_TO_RERUN if picture.reused else ''}", file=sys.stderr)
        if counts["failed"] and "BOUGH_TASK" not in os.environ:  # the store of a session inside a task is forgotten
            print("\n".join(map(harmless_name, _advice())), file=sys.stderr)
    return Ended(counts, picture.reused, picture.seconds, code)


def _advice() -> list[str]:
    """How to see more of what failed, for each session."""
    from bough.api.session.failure_report import store_option

    lines = []
    for one in opened_sessions:
        if not one.progress.failures:
            continue
        options = store_option(one.store, one.name)
        if one.is_remote:
            options = f" --name {one.name}" + (f" --server {one.address}" if one.address else "")
        lines.append(f"why: bough explain --failed{options}; what it printed: bough log --failed{options}")
    return lines


def _runs() -> list[tuple[ServerLocation, int]]:
    return [(ServerLocation(one.store, one.name), one.welcome.run) for one in opened_sessions if not one.is_remote]


def _failures() -> list[dict[str, object]]:
    from bough.cli.runs.run_failures import failures_of

    return [*failures_of(_runs()), *_told_failures()]


def _told_failures() -> list[dict[str, object]]:
    """What sessions of a service were told of failures."""
    lines = [line for one in opened_sessions if one.is_remote for line in one.progress.failures]
    shown = ("task", "host", "attempt", "exit_code", "signal", "cause", "stderr", "parameters")
    return [{key: getattr(line, key) for key in shown} | {"message": line.text} for line in lines]


def _final_counts(picture: Picture) -> Counter[str]:
    """How all ended; the stores are asked when something failed, because a failed task may have been retried since."""
    if not any(picture.counts[state] for state in labels_of(UNSUCCESSFUL)):
        return picture.counts
    if any(one.is_remote for one in opened_sessions):
        return picture.counts  # a service keeps running, and its store is elsewhere
    from bough.cli.runs.run_failures import counts_of

    return counts_of(_runs()) or picture.counts


def _guarded(work: Callable[[], int], display: Display) -> int:
    """The exit code of the work, whatever it raises; messages are printed here, while the display stands.

    What failed comes first: "2 of 4 tasks failed" is read with the two above it.
    """
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BoughError as error:
        display.tell_failures()
        return report(error)


def _close_all(*, interrupted: bool) -> int:
    for one in list(opened_sessions):
        if interrupted:
            one.__exit__(KeyboardInterrupt, None, None)
        else:
            one.shutdown(wait=True)
    return 0


def submit_all(tasks: Sequence[FlatTask], name: str, file: str, note: Callable[[str], None]) -> int:
    """Submit a flat list and wait for its end."""
    if not tasks:
        return 0
    with launch.run_defaults(runs_commands=True, describes=True), open_session(name, "ignore") as session:
        from bough.cli.runs.submit_files import submit_or_amend  # while the server starts
        from bough.describe.flat_list import flat_steps

        submit_or_amend(session, flat_steps(tasks, file), note)
    return 0


def submit_steps(
    steps: Sequence[Step],
    name: str,
    note: Callable[[str], None],
    *,
    whole: bool,
    kept: dict[str, Task | None] | None = None,
    halt_file: str = "",
) -> int:
    """Submit what a description says and wait for its end; `note` is told if that changed a running workflow.

    `kept`: the tasks of these names are put there. While the halt file is there, nothing starts.
    """
    halting = HaltFile(halt_file, note)
    with launch.run_defaults(runs_commands=True, describes=True), halting, open_session(name, "ignore") as session:
        from bough.cli.runs.submit_files import submit_or_amend

        halting.begin(session)
        submit_or_amend(session, steps, note, whole=whole, kept=kept)
    return 0


def codes_of(kept: Mapping[str, Task | None]) -> dict[str, int | None]:
    """The exit codes of tasks that have ended, a signal as a negative one; None: it was cancelled or did not start."""
    found: dict[str, int | None] = {}
    for name, task in kept.items():
        if task is None or not task.done():
            continue
        try:
            error = task.exception()
        except CancelledError:
            found[name] = None
        else:
            found[name] = 0 if error is None else _code_of(error)
    return found


def _code_of(error: BaseException) -> int | None:
    if not isinstance(error, TaskFailed):
        return None
    return error.returncode if error.signal is None else -error.signal
