"""What a peer needs to reach a server: its address, its certificate's fingerprint, a role and the token of that role.

A server is named by `unix:PATH`, by HOST:PORT, or by the path of an *access file*, which holds all of it and is what a
user copies to another machine. The server keeps one token for each role (submit, execute, read) in a file of its own,
`submit.token` and so on: 32 random bytes as base64url text. Executors that pilots start have a token of their site
instead, `site-NAME.token`, which opens the server's socket for that site and no other, and goes with the site; where
the server listens for other machines, their role is `execute@NAME`.

Rules: without an access file only a process that can read the user's own files is let in. Tokens are read again for
every handshake, so that rotating one needs no restart; peers that are connected stay connected.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import socket
import stat
from collections.abc import Iterable

import msgspec

from bough.errors import BadValue, UserError
from bough.transport.home import ServerNote, make_server_dir, read_note, read_private, server_dir, write_private
from bough.wire.handshake import ROLES

_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # to listen on, not to connect to
_HOST_PORT = re.compile(r"(\[[^\[\]\s]+\]|[^\[\]/:\s]+):(\d{1,5})")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_INCLUDES = {"submit": ("submit", "read"), "execute": ("execute",), "read": ("read",)}  # what a role may do
_BYTES = 32  # of a token
UNIX = "unix:"
AT = "@"  # execute@NAME: executors of that site only, who know its token
NO_CERTIFICATE = "none"  # in place of the fingerprint of a server that listens on its Unix socket only


class Access(msgspec.Struct, frozen=True):
    """How to reach a server and in which role; a server's own Unix socket needs the address only, a relay's all."""

    address: str
    fingerprint: str = ""
    role: str = ""
    token: str = ""
    server_fingerprint: str = ""  # behind a relay: of the server that checks the token; the other one is the relay's
    # other addresses: not every host knows a relay by the same one, and some see the socket that it connects to itself
    also: tuple[str, ...] = ()

    @property
    def is_unix(self) -> bool:
        """Whether file permissions say who may connect."""
        return self.address.startswith(UNIX)

    @property
    def is_proven(self) -> bool:
        """Whether the server asks for a proof there: everywhere but on its own Unix socket."""
        return not self.is_unix or bool(self.token)

    @property
    def proven_to(self) -> str:
        """The fingerprint of the server to which the token is proven."""
        return (self.server_fingerprint or self.fingerprint).strip().lower()

    @property
    def path(self) -> str:
        """Of the Unix socket."""
        return self.address.removeprefix(UNIX)


def find_access(server: str | None, role: str) -> Access:
    """Where the server is: as named, else by `$BOUGH_SERVER`, else the user's own that runs here.

    `role`: "submit", "execute" or "read", what one wants to do there.
    """
    named = server or os.environ.get("BOUGH_SERVER", "")
    if not named:
        return _own(role)
    if named.startswith(UNIX):
        if named == UNIX:
            raise BadValue("the server address 'unix:' names no socket: use unix:PATH")
        return Access(named, role=role)
    path = os.path.expanduser(named)
    if stat.S_ISSOCK(_mode(path)):
        raise BadValue(f"the server {named!r} is a socket: write unix:{path}")
    if os.path.exists(path):
        return _fitting(read_access(path), path, role)
    if _HOST_PORT.fullmatch(named):
        return _known(named, role)
    raise BadValue(f"the server {named!r} is neither unix:PATH, nor HOST:PORT, nor an access file that exists")


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except (OSError, ValueError):
        return 0


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a HOST:PORT; the host of [::1]:PORT comes without its brackets."""
    found = _HOST_PORT.fullmatch(address)
    if not found or int(found[2]) > 65535:
        raise UserError(f"the address {address!r} is not of the form HOST:PORT")
    return found[1].strip("[]"), int(found[2])


def reachable_address(host: str, port: int) -> str:
    """How others name a place where one listens; listening everywhere is no name."""
    name = socket.gethostname() if host in _EVERYWHERE else host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def read_access(path: str) -> Access:
    """Read an access file."""
    data = read_private(path, "the access file")
    try:
        access = msgspec.json.decode(data, type=Access)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"{path} is not an access file: {error}") from error
    for address in (access.address, *access.also):
        if not address.startswith(UNIX):
            split_address(address)
    return access


def write_access(path: str, access: Access) -> None:
    """Write an access file, which only the user can read."""
    write_private(path, msgspec.json.format(msgspec.json.encode(access), indent=2) + b"\n")


def own_access(role: str) -> Access:
    """What another machine needs to reach the user's own server in a role, from the files of that server."""
    note = read_note()
    if note is None:
        raise UserError(f"no server is known in {server_dir()}: start one with bough server start")
    if not note.address:
        raise UserError("the server listens on its Unix socket only: start it with --listen HOST:PORT")
    return _with_token(note, role)


def _own(role: str) -> Access:
    note = read_note()
    if note is None:
        raise UserError(
            "no server is known: start one with bough server start, or name one with --server or $BOUGH_SERVER"
        )
    if note.host == socket.gethostname() or not note.address:
        return Access(f"{UNIX}{note.socket}", role=role)
    return _with_token(note, role)  # the home directory is shared, the socket is not


def _known(address: str, role: str) -> Access:
    note = read_note()
    if note is None or not note.address or not _same(note.address, address):
        raise UserError(
            f"the certificate of the server at {address} is not known here:"
            " use an access file, which bough server access writes there, in place of the address"
        )
    return _with_token(msgspec.structs.replace(note, address=address), role)


def _with_token(note: ServerNote, role: str) -> Access:
    return Access(note.address, note.fingerprint, role, read_token(role))


def _same(one: str, other: str) -> bool:
    (host, port), (other_host, other_port) = split_address(one), split_address(other)
    host, other_host = host.lower(), other_host.lower()
    return port == other_port and (host == other_host or {host, other_host} <= _LOOPBACK)


def _fitting(access: Access, path: str, role: str) -> Access:
    if not access.is_unix and role not in _INCLUDES.get(access.role.partition(AT)[0], ()):
        raise UserError(
            f"the access file {path} is for the role {access.role!r}, this needs {role!r}:"
            f" write one with bough server access --role {role}"
        )
    return access


def make_tokens() -> None:
    """Make the tokens that are not there yet."""
    folder = make_server_dir()
    for role in ROLES:
        if not os.path.exists(os.path.join(folder, f"{role}.token")):
            rotate_token(role)


def _new_token() -> str:
    return base64.urlsafe_b64encode(os.urandom(_BYTES)).decode().rstrip("=")


def rotate_token(role: str) -> str:
    """Give a role a new token, the old one is worth nothing from now on; its text."""
    text = _new_token()
    make_server_dir()
    write_private(token_path(role), f"{text}\n".encode())
    return text


def rotate_tokens(roles: Iterable[str] = ROLES) -> None:
    """Give these roles new tokens."""
    for role in roles:
        rotate_token(role)


def token_path(role: str) -> str:
    """The file that holds the token of a role."""
    if role not in ROLES:
        raise UserError(f"there is no role {role!r}: use one of {', '.join(ROLES)}")
    return os.path.join(server_dir(), f"{role}.token")


def read_token(role: str) -> str:
    """The token of a role, as text."""
    return _read_token(token_path(role))


def site_token(site: str) -> str:
    """The token of the executors at a site, made when it is first asked for."""
    path = _site_token_path(site)
    if not os.path.exists(path):
        make_server_dir()
        write_private(path, f"{_new_token()}\n".encode())
    return _read_token(path)


def _read_token(path: str) -> str:
    text = read_private(path, "the token file", 4096).decode("ascii", "replace").strip()
    token_bytes(text, path)
    return text


def revoke_site_token(site: str) -> None:
    """The token of a site is worth nothing from now on."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_site_token_path(site))


def site_secret(site: str, role: str) -> bytes:
    """The token of a site's executors as the server checks it, at the socket of that site and behind its relay.

    A `UserError` when it was revoked: only `site_token` makes one.
    """
    if role != "execute":
        raise UserError(f"the socket of site {site} is for its executors")
    return token_bytes(_read_token(_site_token_path(site)), f"the token of site {site}")


def _site_token_path(site: str) -> str:
    return os.path.join(server_dir(), f"site-{site}.token")


def token_bytes(text: str, source: str) -> bytes:
    """The token itself; `source` is named in the error when the text is none."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise UserError(f"{source} holds no token: get a new one with bough server access") from error
    if len(data) != _BYTES:
        raise UserError(f"{source} holds no token: get a new one with bough server access")
    return data


def secret(role: str) -> bytes:
    """The token of a role as the server checks it; a `UserError` when there is none that may be used."""
    return token_bytes(read_token(role), token_path(role))
