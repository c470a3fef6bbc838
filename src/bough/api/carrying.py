"""A session's files on their way: what commands read goes to a service that cannot see it, what they made comes back.

Contents are sent once. Outputs are fetched in the order in which their tasks ended, and a task has ended for the
session only when its outputs are in their places. Rule: whatever the server says behind a success whose files are on
their way waits for them, so that everybody here hears all in its order.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from bough import private
from bough.api.sideline import SideLine
from bough.errors import BoughError, InvalidWorkload, StoreFailed
from bough.executor.sandbox import digest_of
from bough.model.outcomes import Cause, Failure, Output, ResultFile
from bough.model.paths import hidden_path
from bough.wire import questions
from bough.wire.filemessages import DIGEST
from bough.wire.messages import Outcome, ToClient, Unsuccess
from bough.wire.questions import Question

if TYPE_CHECKING:
    from bough.api.remote import RemoteSession

_AT_ONCE = 1000  # digests in one question

T = TypeVar("T")


class FileCarrier:
    """See the module."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._line = SideLine(session.address)
        self._digests: dict[tuple[str, int, int, int], bytes] = {}  # of files as they were
        self._there: set[bytes] = set()  # contents that the server has
        self._supplying = threading.Lock()
        self._queue: deque[ToClient] = deque()
        self._busy = threading.Condition()
        self._thread: threading.Thread | None = None
        self._abandoned = False
        self.sent = 0  # files that were sent
        self._folder: private.TemporaryFolder | None = None  # for big results, once there are some

    @property
    def is_far(self) -> bool:
        """Whether the server does not see the directory of the session."""
        welcome = getattr(self._session, "welcome", None)
        return welcome is not None and not welcome.shared

    # --- to the server -----------------------------------------------------------------------------

    def supply(self, paths: Iterable[str], label: str) -> dict[str, bytes]:
        """See to it that the server has the contents of files; their digests, empty if it can read them itself."""
        if not self.is_far:
            return dict.fromkeys(paths, b"")
        found: dict[str, bytes] = {}
        with self._supplying:
            bunch: dict[str, bytes] = {}
            for path in paths:
                found[path] = bunch[path] = self._digest(path, label)
                if len(bunch) >= _AT_ONCE:
                    self._send(bunch)
                    bunch = {}
            self._send(bunch)
        return found

    def _send(self, files: dict[str, bytes]) -> None:
        unknown = {digest: path for path, digest in files.items() if digest not in self._there}
        if not unknown:
            return
        have = self._line.ask(questions.Have(list(unknown), self._session.welcome.run))
        there = set(have)
        for digest, path in unknown.items():
            if digest not in there:
                try:
                    self._line.put(path, digest, os.stat(path).st_size)
                except OSError as error:
                    raise StoreFailed(f"{path} cannot be sent to the server: {error.strerror}") from error
                except StoreFailed as error:
                    raise StoreFailed(f"{path} cannot be sent to the server: {error}") from error
                self.sent += 1
            self._there.add(digest)

    def _digest(self, path: str, label: str) -> bytes:
        try:
            state = os.stat(path)
            if not stat.S_ISREG(state.st_mode):
                raise InvalidWorkload(
                    f"{path}, which {label} reads, is no plain file, and the server does not see it:"
                    " make an archive with tar, and declare that"
                )
            stamp = (path, state.st_size, state.st_mtime_ns, state.st_ino)
            if stamp not in self._digests:
                self._digests[stamp] = digest_of(path)
        except OSError as error:
            raise InvalidWorkload(f"{path}, which {label} reads, cannot be read: {error.strerror}") from error
        return self._digests[stamp]

    # --- from the server ---------------------------------------------------------------------------

    def hear(self, messages: Sequence[ToClient]) -> None:
        """Pass on what the server says; what comes with files, and all behind it, once these are there."""
        if not self._queue and not any(map(self._brings, messages)):
            self._session.ledger.hear(messages)
            return
        with self._busy:
            if self._abandoned:
                return
            self._queue += messages
            if self._thread is None:
                self._thread = threading.Thread(target=self._fetch_all, name="bough-files", daemon=True)
                self._thread.start()

    def settle(self) -> None:
        """Nothing more will be said: wait until all that was has been passed on, and hang up."""
        with self._busy:
            self._busy.wait_for(lambda: self._abandoned or not self._queue)
        self._line.close()

    def abandon(self) -> None:
        """The session leaves: what was not fetched stays with the server."""
        with self._busy:
            self._abandoned = True
            self._queue.clear()
            self._busy.notify_all()
        self._line.close()

    def _fetch_all(self) -> None:
        while True:
            with self._busy:
                if not self._queue:
                    self._thread = None
                    self._busy.notify_all()
                    return
                message = self._queue[0]
            said: list[ToClient] = [message]
            if isinstance(message, Outcome) and self._brings(message):
                said = list(self._fetched(message))
            if not self._abandoned:
                self._session.ledger.hear(said)
            with self._busy:
                if self._queue:
                    self._queue.popleft()

    def _fetched(self, outcome: Outcome) -> Iterable[ToClient]:
        """A success once its files are there; elements whose files cannot be had have failed."""
        failed: list[ToClient] = []
        if isinstance(outcome.results, ResultFile) and not _is_here(outcome.results):
            try:
                outcome = msgspec.structs.replace(outcome, results=self._fetch_result(outcome, outcome.results))
            except (BoughError, OSError) as error:
                failure = Failure(Cause.UNSENDABLE, f"its result could not be brought back: {_text(error)}")
                place = (outcome.record, outcome.start, outcome.stop, outcome.attempt)
                return [Unsuccess(*place, failure, outcome.host)]
        for detail in outcome.details if self.is_far else ():
            for output in detail.outputs:
                hidden = hidden_path(output.path, outcome.record, detail.index, outcome.attempt)
                try:
                    if output.digest:
                        fetch(self._line, output, output.path, hidden)
                except (BoughError, OSError) as error:
                    text = f"its output {output.path} could not be brought back: {_text(error)}; see bough fetch"
                    failure = Failure(Cause.MISSING_OUTPUT, text)
                    index, host = detail.index, outcome.host
                    failed.append(Unsuccess(outcome.record, index, index + 1, outcome.attempt, failure, host))
                    break
        return [*failed, outcome]  # of an element that failed the success is not news any more

    def _brings(self, message: ToClient) -> bool:
        """Whether something comes with a message that is not here."""
        if not isinstance(message, Outcome):
            return False
        if isinstance(message.results, ResultFile) and not _is_here(message.results):
            return True
        return self.is_far and any(output.digest for detail in message.details for output in detail.outputs)

    def _fetch_result(self, outcome: Outcome, result: ResultFile) -> ResultFile:
        """A big result, from a server whose files are not seen here, as a file that goes with this process."""
        if self._folder is None:
            self._folder = private.TemporaryFolder("results")
            weakref.finalize(self, self._folder.remove)
        path = f"{self._folder.make()}/{outcome.record}-{outcome.start}-{outcome.attempt}"
        with open(path, "wb", opener=private.opener) as file:
            at = 0
            while at < result.size:
                data = self._line.ask(questions.Piece(result=result.path, offset=at))
                if not data:
                    raise StoreFailed("the server does not have all of it")
                at += file.write(data)
        return ResultFile(path, result.size)


class Asker(Protocol):
    """Whoever asks a server."""

    def ask(self, question: Question[T]) -> T:
        """Ask one question."""


def fetch(line: Asker, output: Output, path: str, hidden: str) -> bool:
    """Write an output that a server keeps to its place, unless it is there; whether it was written."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_size == output.size and digest_of(path) == output.digest:
            return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    digest, at = blake2b(digest_size=DIGEST), 0
    try:
        with open(hidden, "wb") as file:
            while at < output.size:
                data = line.ask(questions.Piece(output.digest, offset=at))
                if not data:
                    raise StoreFailed("the server does not have all of it")
                digest.update(data)
                at += len(data)
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if digest.digest() != output.digest:
            raise StoreFailed("what arrived is not what was announced")
        os.replace(hidden, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
        raise
    return True


def _is_here(result: ResultFile) -> bool:
    """Whether a file of the server can be read here."""
    try:
        return os.stat(result.path).st_size == result.size
    except OSError:
        return False


def _text(error: BaseException) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
