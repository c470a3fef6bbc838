"""Carries files to a service and back, over a second connection.

What commands read goes to a service that cannot see it, once. What they made comes back in the order in which their
tasks ended. The second connection (`FileConnection`) belongs to no workflow and is made when it is first needed, so
that big files keep nothing else waiting, and outputs can still be fetched when the workflow has finished. It blocks,
and asks one question at a time.

Rules: a task has ended for the session only when its outputs are in their places; whatever the server says after it
waits, so that all is passed on in order. A server that is away is waited for.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import stat
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

import msgspec

from bough import private
from bough.api.client.connection import refusal
from bough.errors import BoughError, InvalidWorkload, PeerLost, StoreFailed
from bough.folder_state import folder_state
from bough.model.bounds import check_bounds
from bough.model.files import hidden_path, is_url
from bough.model.outcomes import Cause, Failure, Output, ResultFile
from bough.movers.folder_archive import UnpackableFolder, archive_digest, pack_file, replace_folder, unpack_pieces
from bough.movers.local import digest_of
from bough.transport.access import find_access
from bough.transport.dial import dial
from bough.wire import questions
from bough.wire.client_messages import (
    VERSION,
    Answer,
    Ask,
    ClientHello,
    Proof,
    Refused,
    TasksFailed,
    TasksSucceeded,
    ToClient,
    Welcome,
)
from bough.wire.file_messages import DIGEST, PIECE, PutPiece
from bough.wire.framing import frame_list, to_client_frames
from bough.wire.questions import Question, read_reply

_AHEAD = 8  # pieces sent before the first is acknowledged
_SILENCE = 120.0  # seconds without an answer after which a connection is taken for broken
_AT_ONCE = 1000  # digests in one question
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between tries to come back

T = TypeVar("T")


class FileConnection:
    """See the module. Methods may be called from any thread, but wait for each other."""

    def __init__(self, address: str, timeout: float = 600.0) -> None:
        self._address = address
        self._timeout = timeout  # seconds that a server which is away is waited for
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._given_up = threading.Event()
        self._is_over = False

    def ask(self, question: Question[T]) -> T:
        """Ask one question."""
        check_bounds(question)
        return read_reply(question, self._try(lambda link: link.ask(question)))

    def put(self, path: str, digest: bytes, size: int) -> None:
        """Send a file; a BoughError when the server does not take it, OSError when it cannot be read."""
        self._try(lambda link: link.put(path, digest, size))

    def put_bytes(self, data: memoryview, digest: bytes) -> None:
        """As `put`, for bytes in memory."""
        self._try(lambda link: link.put_pieces(map(bytes, _pieces(data)), digest, data.nbytes))

    def close(self) -> None:
        """Close the connection; a caller that still waits gets a PeerLost."""
        self._given_up.set()
        link = self._link
        if link is not None:
            link.close()

    def end(self) -> None:
        """Close the connection for good: what others want of it from now on is refused."""
        self._is_over = True
        self.close()

    def _try(self, work: Callable[[_Link], T]) -> T:
        pause, waited = _FIRST_PAUSE, 0.0
        with self._lock:
            while True:
                try:
                    if self._link is None:
                        self._link = _Link(self._address)
                    if self._is_over:  # perhaps since it was dialled, and then nobody else closes it
                        raise PeerLost("the session does not bring files any more")
                    return work(self._link)
                except PeerLost:
                    if self._link is not None:
                        self._link.close()
                        self._link = None
                    if waited >= self._timeout or self._given_up.wait(pause):
                        raise
                    waited += pause
                    pause = min(2 * pause, _LONGEST_PAUSE)


class _Link:
    """One connection; a PeerLost when it breaks."""

    def __init__(self, address: str) -> None:
        dialled = dial(find_access(address, role="submit"))
        self._sock = dialled.sock
        self._sock.settimeout(_SILENCE)
        self._frames = to_client_frames()
        self._heard: deque[ToClient] = deque(self._frames.feed(dialled.leftover) if dialled.leftover else ())
        self._numbers = itertools.count(1)
        try:
            self._greet(dialled.proof)
        except BaseException:
            self.close()
            raise

    def _greet(self, proof: Proof | None) -> None:
        hello = ClientHello(VERSION, os.getpid(), socket.gethostname())
        self._send([proof, hello] if proof is not None else [hello])
        for message in self._next():
            if isinstance(message, Refused):
                raise refusal(message)
            if isinstance(message, Welcome):
                return

    def close(self) -> None:
        self._sock.close()

    def ask(self, question: Question[Any]) -> object:
        number = next(self._numbers)
        self._send([Ask(number, question)])  # type: ignore[arg-type]
        return self._answer(number)

    def put(self, path: str, digest: bytes, size: int) -> None:
        with open(path, "rb") as file:
            self.put_pieces(iter(lambda: file.read(PIECE), None), digest, size)

    def put_pieces(self, pieces: Iterator[bytes], digest: bytes, size: int) -> None:
        waiting: deque[int] = deque()
        at = 0
        for data in pieces:
            number = next(self._numbers)
            self._send([PutPiece(number, digest, size, at, data)])
            waiting.append(number)
            at += len(data)
            if len(waiting) >= _AHEAD:
                self._answer(waiting.popleft())
            if at >= size or not data:
                break
        for number in waiting:
            self._answer(number)

    def _answer(self, number: int) -> object:
        for message in self._next():
            if isinstance(message, Answer) and message.request == number:
                return message.value
            if isinstance(message, Refused) and message.request in {0, number}:
                raise refusal(message)
        raise AssertionError("a connection that ends raises")

    def _next(self) -> Iterator[ToClient]:
        while True:
            while self._heard:
                yield self._heard.popleft()
            try:
                data = self._sock.recv(1 << 18)
            except (OSError, ValueError) as error:
                raise PeerLost(f"the connection to the server broke: {error}") from error
            if not data:
                raise PeerLost("the server ended the connection")
            self._heard += self._frames.feed(data)

    def _send(self, messages: list[object]) -> None:
        try:
            self._sock.sendall(frame_list(messages))
        except (OSError, ValueError) as error:
            raise PeerLost(f"the connection to the server broke: {error}") from error


def _pieces(data: memoryview) -> Iterator[memoryview]:
    flat = data.cast("B") if data.nbytes else data
    return (flat[at : at + PIECE] for at in range(0, flat.nbytes, PIECE))


class FileTransfer:
    """See the module. `on_messages` gets what the server says, once the files of it are here."""

    def __init__(self, address: str, on_messages: Callable[[Sequence[ToClient]], None]) -> None:
        self._pass_on = on_messages
        self.pass_on_later: Callable[[Callable[[], None]], None] = _at_once  # see `Reader`
        self._line = FileConnection(address)
        self.is_far = False  # the server does not see the directory of the session
        self.left: set[int] = set()  # records whose files stay with the server
        self._run = 0  # of the workflow
        self._digests: dict[tuple[str, int, int, int], bytes] = {}  # of files as they were
        self._there: set[bytes] = set()  # contents that the server has
        self._uploading = threading.Lock()
        self._queue: deque[ToClient] = deque()
        self._busy = threading.Condition()
        self._thread: threading.Thread | None = None
        self._abandoned = False
        self.sent = 0  # files that were sent
        self._folder: private.TemporaryFolder | None = None  # for big results, once there are some

    def on_welcome(self, run: int, *, is_shared: bool) -> None:
        """The server has welcomed the session."""
        self._run, self.is_far = run, not is_shared

    # --- to the server -----------------------------------------------------------------------------

    def upload(self, paths: Iterable[str], label: str) -> dict[str, bytes]:
        """See to it that the server has the contents of files; their digests, empty if it can read them itself."""
        if not self.is_far:
            return dict.fromkeys(paths, b"")
        found: dict[str, bytes] = {}
        with self._uploading:
            bunch: dict[str, bytes] = {}
            for path in paths:
                if is_url(path):
                    found[path] = b""  # whoever needs it fetches it
                    continue
                found[path] = bunch[path] = self._digest(path, label)
                if len(bunch) >= _AT_ONCE:
                    self._send(bunch)
                    bunch = {}
            self._send(bunch)
        return found

    def put_value(self, view: memoryview) -> bytes:
        """See to it that the server has the bytes of a buffer; their digest."""
        digest = blake2b(view, digest_size=DIGEST).digest()
        with self._uploading:
            if digest not in self._there:
                if not self._line.ask(questions.Have([digest], self._run)):
                    self._line.put_bytes(view, digest)
                self._there.add(digest)
        return digest

    def _send(self, files: dict[str, bytes]) -> None:
        unknown = {digest: path for path, digest in files.items() if digest not in self._there}
        if not unknown:
            return
        have = self._line.ask(questions.Have(list(unknown), self._run))
        there = set(have)
        for digest, path in unknown.items():
            if digest not in there:
                try:
                    self._put(path, digest)
                except OSError as error:
                    raise StoreFailed(f"{path} cannot be sent to the server: {error.strerror}") from error
                except StoreFailed as error:
                    raise StoreFailed(f"{path} cannot be sent to the server: {error}") from error
                self.sent += 1
            self._there.add(digest)

    def _put(self, path: str, digest: bytes) -> None:
        """Send one file, or the archive of a folder."""
        if not os.path.isdir(path):
            self._line.put(path, digest, os.stat(path).st_size)
            return
        spool = private.TemporaryFolder("folders")
        try:
            archive = f"{spool.make()}/archive"
            packed = pack_file(path, archive)
            if packed.digest != digest:
                raise StoreFailed("it changed while it was sent")
            self._line.put(archive, digest, packed.size)
        finally:
            spool.remove()

    def _folder_digest(self, path: str) -> bytes:
        now = folder_state(path)
        stamp = (path, now.size, now.mtime_ns, -1)
        if stamp not in self._digests:
            self._digests[stamp] = archive_digest(path).digest
        return self._digests[stamp]

    def _digest(self, path: str, label: str) -> bytes:
        try:
            state = os.stat(path)
            if stat.S_ISDIR(state.st_mode):
                return self._folder_digest(path)
            if not stat.S_ISREG(state.st_mode):
                raise InvalidWorkload(
                    f"{path}, which {label} reads, is neither a file nor a folder, and cannot be sent to the server"
                )
            stamp = (path, state.st_size, state.st_mtime_ns, state.st_ino)
            if stamp not in self._digests:
                self._digests[stamp] = digest_of(path)
        except OSError as error:
            raise InvalidWorkload(f"{path}, which {label} reads, cannot be read: {error.strerror}") from error
        except UnpackableFolder as error:
            raise InvalidWorkload(f"{path}, which {label} reads, cannot be sent to the server: {error}") from error
        return self._digests[stamp]

    # --- from the server ---------------------------------------------------------------------------

    def on_messages(self, messages: Sequence[ToClient]) -> None:
        """Pass on what the server says; what comes with files, and all behind it, once these are there."""
        if not self._queue and not any(map(self._brings, messages)):
            self._pass_on(messages)
            return
        with self._busy:
            if self._abandoned:
                return
            self._queue += messages
            if self._thread is None:
                self._thread = threading.Thread(target=self._fetch_all, name="bough-files", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """The server says nothing more: wait until all that it said has been passed on, and close the connection."""
        with self._busy:
            self._busy.wait_for(lambda: self._abandoned or not self._queue)
        self._line.close()

    def abandon(self) -> None:
        """The session leaves: what was not fetched stays with the server."""
        with self._busy:
            self._abandoned = True
            self._queue.clear()
            self._busy.notify_all()
        self._line.end()

    def _fetch_all(self) -> None:
        while True:
            with self._busy:
                if not self._queue:
                    self._thread = None
                    self._busy.notify_all()
                    return
                message = self._queue[0]
            said: list[ToClient] = [message]
            if isinstance(message, TasksSucceeded) and self._brings(message):
                said = list(self._fetched(message))
            if not self._abandoned:
                self.pass_on_later(partial(self._pass_on, said))
            with self._busy:
                if self._queue:
                    self._queue.popleft()

    def _fetched(self, outcome: TasksSucceeded) -> Iterable[ToClient]:
        """A success once its files are there; elements whose files cannot be had have failed."""
        failed: list[ToClient] = []
        if isinstance(outcome.results, ResultFile) and not _is_here(outcome.results):
            try:
                outcome = msgspec.structs.replace(outcome, results=self._fetch_result(outcome, outcome.results))
            except (BoughError, OSError) as error:
                failure = Failure(Cause.EXCEPTION, f"its result could not be brought back: {_text(error)}")
                place = (outcome.record, outcome.start, outcome.stop, outcome.attempt)
                return [TasksFailed(*place, failure, outcome.host)]
        for detail in outcome.details if self.is_far and outcome.record not in self.left else ():
            for output in detail.outputs:
                hidden = hidden_path(output.path, outcome.record, detail.index, outcome.attempt)
                try:
                    if output.digest and output.kept:
                        fetch(self._line, output, output.path, hidden)
                except (BoughError, OSError) as error:
                    text = f"its output {output.path} could not be brought back: {_text(error)}; see bough fetch"
                    failure = Failure(Cause.MISSING_OUTPUT, text)
                    index, host = detail.index, outcome.host
                    failed.append(TasksFailed(outcome.record, index, index + 1, outcome.attempt, failure, host))
                    break
        return [*failed, outcome]  # of an element that failed the success is not news any more

    def _brings(self, message: ToClient) -> bool:
        """Whether something comes with a message that is not here."""
        if not isinstance(message, TasksSucceeded):
            return False
        if isinstance(message.results, ResultFile) and not _is_here(message.results):
            return True
        is_wanted = self.is_far and message.record not in self.left
        return is_wanted and any(
            output.digest and output.kept for detail in message.details for output in detail.outputs
        )

    def _fetch_result(self, outcome: TasksSucceeded, result: ResultFile) -> ResultFile:
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


def _at_once(pass_on: Callable[[], None]) -> None:
    pass_on()


class Asker(Protocol):
    """Anything that asks a server."""

    def ask(self, question: Question[T]) -> T:
        """Ask one question."""


def fetch(line: Asker, output: Output, path: str, hidden: str) -> bool:
    """Write an output that a server keeps to its place, unless it is there; whether it was written."""
    if output.folder:
        return _fetch_folder(line, output, path, hidden)
    with contextlib.suppress(OSError):
        if os.stat(path).st_size == output.size and digest_of(path) == output.digest:
            if output.executable:
                _allow_to_run(path)
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
        if output.executable:
            _allow_to_run(hidden)
        os.replace(hidden, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
        raise
    return True


def _allow_to_run(path: str) -> None:
    """Who may read a file may execute it."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    os.chmod(path, mode | (mode & 0o444) >> 2)


def _fetch_folder(line: Asker, output: Output, path: str, hidden: str) -> bool:
    """The same for a folder, of which the server keeps the archive."""
    if os.path.isdir(path):
        with contextlib.suppress(OSError, UnpackableFolder):
            if archive_digest(path) == (output.digest, output.size):
                return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    private.remove_tree(hidden)

    def piece(offset: int) -> bytes:
        return line.ask(questions.Piece(output.digest, offset=offset)) if offset < output.size else b""

    try:
        unpack_pieces(piece, output.digest, hidden)
        replace_folder(hidden, path)
    except BaseException:
        private.remove_tree(hidden)
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
