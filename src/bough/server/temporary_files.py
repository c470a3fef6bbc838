"""Temporary outputs: removed when their last reader has succeeded, and made again when a reader finds them gone.

An output of a task with `keep=False` lies where the task wrote it: in the submitter's directory, in the cache of the
host whose sandbox it was made in, or with the server where neither can be. A reader in the directory has it brought
there. The core says when its last reader is done.
Rule: only what a task of the workflow made, said to be temporary and is as it was made, is removed; a content that
another file has which is still to be read stays.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence

from bough import logs
from bough.folder_state import folder_state
from bough.model.events.news import OutputLost, WorkFailed, WorkNews
from bough.model.events.orders import DropFile
from bough.model.ids import ExecutorId
from bough.model.outcomes import Cause, Output, kept_time
from bough.movers.local import is_brought
from bough.server.made_inputs import MadeInput, MadeInputs
from bough.server.turns.shell import Shell


class TemporaryFiles:
    """See the module. `sees`: whether a workflow's directory is seen here.

    `drop_content` removes an output that was made in a sandbox; an embedded server has none.
    """

    def __init__(
        self,
        shell: Shell,
        made: MadeInputs,
        sees: Callable[[int], bool] = lambda _: True,
        drop_content: Callable[[Output], None] = lambda _: None,
    ) -> None:
        self._shell = shell
        self._made = made
        self._sees = sees
        self._drop_content = drop_content

    def drop(self, order: DropFile) -> None:
        """The last reader of a file is done."""
        queries = self._shell.queries
        if not queries.has_record(order.reader):
            return
        made = self._made.made_for(order.reader, order.index, order.path)
        if made is None or made.output.kept:
            return
        if made.output.digest:
            self._drop_content(made.output)
            if self._sees(order.run) and is_brought(made.output.path, made.output.digest, made.output.size):
                with contextlib.suppress(OSError):  # a reader in the directory had it brought there
                    os.unlink(made.output.path)
        elif self._sees(order.run):
            self._remove(made.output)

    def _remove(self, output: Output) -> None:
        try:
            if not is_unchanged(output):
                return
            if output.folder:
                shutil.rmtree(output.path)
            else:
                os.unlink(output.path)
        except FileNotFoundError:
            return
        except OSError as error:
            logs.warning("temporary-not-removed", f"{output.path} is not needed any more and stays: {error.strerror}")

    def hear(self, executor: ExecutorId, news: Sequence[WorkNews]) -> None:
        """Tasks that found a file gone from its place: who made it is to make it again."""
        for one in news:
            if type(one) is WorkFailed and one.failure.cause is Cause.INPUT_LOST and one.failure.lost:
                attempt = self._shell.queries.attempt_of(executor, one.span, one.index)
                if attempt is None:
                    continue
                made = self._made.made_for(attempt.record, one.index, one.failure.lost)
                if made is not None and not made.output.digest and not os.path.lexists(made.output.path):
                    self.say_lost(made)

    def say_lost(self, made: MadeInput, where: str = "") -> None:
        """Have something made again that is nowhere."""
        reason = f"its output {made.output.path} was lost{f' with {where}' if where else ''}"
        self._shell.news(OutputLost(made.record, made.element, reason, self._made.digest_of(made)))


def is_unchanged(output: Output) -> bool:
    """Whether an output in its place is as its task left it; OSError when it is not there."""
    if output.folder:
        size, latest = folder_state(output.path)
        return (size, kept_time(latest)) == (output.size, output.mtime_ns)
    state = os.stat(output.path)
    return (state.st_size, kept_time(state.st_mtime_ns)) == (output.size, output.mtime_ns)
