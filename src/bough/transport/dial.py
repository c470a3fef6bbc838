"""Connecting to a server: find it, make sure that it is the pinned one, and have the proof ready that it asks for.

`Dialling` opens a connection one step at a time and never waits; `dial` does the same blocking, with one deadline.

    connecting -> TLS handshake -> the pin is compared -> the server's challenge -> open

On a relay's Unix socket, whose file's permissions say whose it is, the challenge comes at once. Rule: an unreachable
server is a transient `PeerLost`, one that is not the pinned one a `UserError`, and nothing of ours is sent before
that is known.
"""

from __future__ import annotations

import errno
import functools
import os
import select
import socket
import ssl
import stat
import time
from typing import NamedTuple

from bough.errors import BoughError, PeerLost, ProtocolError, UserError
from bough.transport.access import UNIX, Access, split_address, token_bytes
from bough.transport.tls import check_pin, client_context
from bough.wire.client_messages import VERSION, Challenge, Proof, Refused
from bough.wire.framing import Frames
from bough.wire.handshake import FIRST_FRAME, NONCE, prove

_context = functools.cache(client_context)  # one for all connections of a process
Place = tuple[int, tuple[object, ...] | str]  # family and address of a socket
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
_FRESH = 60.0  # seconds that a name's addresses are believed: asking again takes long just when the network is cut
_places: dict[tuple[str, ...], tuple[float, list[Place]]] = {}  # by addresses: when they were looked up, best first


class Dialled(NamedTuple):
    """A connection on which the caller speaks next: the proof, if there is one, then its hello."""

    sock: socket.socket | ssl.SSLSocket
    proof: Proof | None
    leftover: bytes  # what the server has said behind its challenge: feed it to the frames first


def places(access: Access) -> list[Place]:
    """Where a server may be; looks the name up now and then."""
    if access.is_unix:
        return [(socket.AF_UNIX, access.path)]
    key = _names(access)
    looked, known = _places.get(key, (0.0, []))
    now = time.monotonic()
    if not known or now - looked > _FRESH:
        found = _look_up(access)
        known = [*(place for place in known if place in found), *(place for place in found if place not in known)]
        _places[key] = (now, known)
    return known


def _names(access: Access) -> tuple[str, ...]:
    return (access.address, *access.also)


def _look_up(access: Access) -> list[Place]:
    """The places of all its names; one that is not known here does no harm if another is."""
    found: list[Place] = []
    problem: BoughError | None = None
    for name in _names(access):
        if name.startswith(UNIX):
            found += _socket_of_our_own(name.removeprefix(UNIX))
            continue
        host, port = split_address(name)
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:
            problem = problem or UserError(f"the address {name!r} names no host")
        except OSError as error:
            problem = problem or unreachable(name, error)
        else:
            found += sorted(((int(family), address) for family, *_, address in answers), key=lambda it: it[0])
    if problem is not None and not found:
        raise problem
    return list(dict.fromkeys(found))


def _socket_of_our_own(path: str) -> list[Place]:
    """A Unix socket that is seen on this host, in a folder that nobody else can have put something into."""
    try:
        folder = os.stat(os.path.dirname(path))
        is_ours = folder.st_uid == os.geteuid() and not folder.st_mode & 0o077
        return [(int(socket.AF_UNIX), path)] if is_ours and stat.S_ISSOCK(os.lstat(path).st_mode) else []
    except OSError:
        return []


def try_next_place(access: Access) -> None:
    """A place has failed: the other ones come first from now on."""
    if not access.is_unix and _names(access) in _places:
        looked, found = _places[_names(access)]
        _places[_names(access)] = (looked, [*found[1:], *found[:1]])


def _prefer(access: Access, place: Place) -> None:
    """The server was found there: it comes first from now on."""
    if not access.is_unix and _names(access) in _places:
        looked, found = _places[_names(access)]
        _places[_names(access)] = (looked, [place, *(other for other in found if other != place)])


def tune(sock: socket.socket) -> None:
    """Send small frames at once, and notice a peer whose machine is down."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


class Dialling:
    """See the module. Call `step` whenever the descriptor can be written (`wants_write`) or read (else)."""

    def __init__(self, access: Access, place: Place) -> None:
        self._access = access
        self._place = place
        self._is_unix = place[0] == socket.AF_UNIX
        self._token = token_bytes(access.token, f"the access to {access.address}")
        self._secure: ssl.SSLSocket | None = None
        self._is_trusted = False  # the server is the pinned one
        self._heard = bytearray()
        self.wants_write = True
        self._sock = socket.socket(place[0], socket.SOCK_STREAM)
        try:
            self._sock.setblocking(False)
            if not self._is_unix:
                tune(self._sock)
            found = self._sock.connect_ex(place[1])
            if found not in {0, errno.EINPROGRESS}:
                raise OSError(found, os.strerror(found))
        except OSError as error:
            self.close()
            raise unreachable(access.address, error) from error

    def fileno(self) -> int:
        """For epoll; the same all the time."""
        return (self._secure or self._sock).fileno()

    def step(self) -> Dialled | None:
        """Go on as far as possible: the connection once it is open, or an error, after which the caller closes it."""
        where = self._access.address
        try:
            return self._go_on()
        except (ssl.SSLWantReadError, BlockingIOError):
            self.wants_write = False
            return None
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            text = f"the server at {where} closed the connection during the handshake"
            raise PeerLost(text, transient=True) from error
        except ssl.SSLError as error:
            raise ProtocolError(f"the server at {where} does not speak TLS 1.3: {error.reason}") from error
        except OSError as error:
            raise unreachable(where, error) from error

    def close(self) -> None:
        """Give it up."""
        (self._secure or self._sock).close()

    def _go_on(self) -> Dialled | None:
        if not self._is_trusted and not self._trust():
            return None
        line = self._secure or self._sock
        while (size := self._size()) is None:
            chunk = line.recv(4096)
            if not chunk:
                text = f"the server at {self._access.address} closed the connection before it said anything"
                raise PeerLost(text, transient=True)
            self._heard += chunk
        challenge = self._understand(bytes(self._heard[:size]))
        _prefer(self._access, self._place)
        nonce = os.urandom(NONCE)
        proof = prove(self._access.role, self._token, challenge.nonce, nonce, self._access.proven_to)
        return Dialled(line, proof, bytes(self._heard[size:]))

    def _trust(self) -> bool:
        """Connect and compare the pin; False: not done yet."""
        if self._secure is None:
            found = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if found:
                raise OSError(found, os.strerror(found))
            try:
                self._sock.getpeername()
            except OSError:
                return False  # not connected yet
            if self._is_unix:
                self._is_trusted = True
                return True
            self._secure = _context().wrap_socket(self._sock, do_handshake_on_connect=False)
        self._secure.do_handshake()
        check_pin(self._secure, self._access.fingerprint, self._access.address)
        self._is_trusted = True
        return True

    def _size(self) -> int | None:
        """Of the first frame, once it is there."""
        if len(self._heard) < 4:
            return None
        size = 4 + int.from_bytes(self._heard[:4], "big")
        if size > FIRST_FRAME:
            raise ProtocolError(f"the server at {self._access.address} speaks another language")
        return size if len(self._heard) >= size else None

    def _understand(self, data: bytes) -> Challenge:
        where = self._access.address
        frames: Frames[Challenge | Refused] = Frames(Challenge | Refused, FIRST_FRAME)
        try:
            first = next(iter(frames.feed(data)), None)
        except ProtocolError as error:
            raise ProtocolError(f"the server at {where} speaks another language: {error}") from error
        if isinstance(first, Refused):
            if first.kind == "PeerLost":  # a relay's word: its server may be back soon
                raise PeerLost(f"no way on from {where}: {first.message}", transient=True)
            kind = UserError if first.kind == "UserError" else ProtocolError
            raise kind(f"refused by the server at {where}: {first.message}")
        if first is not None and first.version != VERSION:
            raise ProtocolError(
                f"the server at {where} speaks version {first.version}, this is {VERSION}:"
                " install the same Bough on both"
            )
        if first is None or len(first.nonce) != NONCE:
            raise ProtocolError(f"the server at {where} speaks another language")
        return first


def unreachable(where: str, error: OSError) -> PeerLost:
    """What is raised when no server is there."""
    reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
    return PeerLost(f"the server at {where} cannot be reached: {reason}", transient=True)


def dial(access: Access, timeout: float = 10.0) -> Dialled:
    """Connect; at most about `timeout` seconds later there is a connection or an error. The socket is blocking.

    The caller sends one frame next: the proof, if there is one, then its hello. Of several places each has its share of
    the time, and one at which somebody else answers does not hide the others.
    """
    if not access.is_proven:
        return Dialled(_dial_unix(access.path, timeout), None, b"")
    deadline = time.monotonic() + timeout
    found = places(access)
    problem: BoughError | None = None
    for left, place in zip(range(len(found), 0, -1), found, strict=True):
        now = time.monotonic()
        try:
            return _open(access, place, now + (deadline - now) / left)
        except (PeerLost, UserError, ProtocolError) as error:
            if problem is None or not isinstance(problem, PeerLost):  # it may be back: that matters most
                problem = error
            try_next_place(access)
    assert problem is not None
    raise problem


def _open(access: Access, place: Place, deadline: float) -> Dialled:
    opening = Dialling(access, place)
    try:
        while (dialled := opening.step()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise unreachable(access.address, TimeoutError())
            poll = select.poll()
            poll.register(opening.fileno(), select.POLLOUT if opening.wants_write else select.POLLIN)
            poll.poll(1000 * left)
    except BaseException:
        opening.close()
        raise
    dialled.sock.setblocking(True)
    return dialled


def _dial_unix(path: str, timeout: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
        sock.settimeout(None)
    except OSError as error:
        sock.close()
        raise unreachable(path, error) from error
    return sock
