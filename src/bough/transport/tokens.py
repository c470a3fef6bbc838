"""The tokens of the roles: who may submit, execute or read at the user's server.

One file a role, `submit.token` and so on, 32 random bytes as base64url text. Rule: they are read
again for every handshake, so that rotating one needs no restart; who is connected stays connected.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Iterable

from bough.errors import UserError
from bough.transport.home import make_server_dir, read_private, server_dir, write_private
from bough.wire.handshake import ROLES

_BYTES = 32


def make_tokens() -> None:
    """Make the tokens that are not there yet."""
    folder = make_server_dir()
    for role in ROLES:
        if not os.path.exists(os.path.join(folder, f"{role}.token")):
            rotate_token(role)


def rotate_token(role: str) -> str:
    """Give a role a new token, the old one is worth nothing from now on; its text."""
    text = base64.urlsafe_b64encode(secrets.token_bytes(_BYTES)).decode().rstrip("=")
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
    path = token_path(role)
    text = read_private(path, "the token file", 4096).decode("ascii", "replace").strip()
    token_bytes(text, path)
    return text


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
