"""Proxies of `multiprocessing` managers among the arguments of a function.

A proxy needs the key of its manager. That is a secret of the script's process, which never travels with arguments:
these lie in the store. A worker asks the script for it, over a socket that only the same user can open.

Rule: a key is held in memory alone.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from bough.errors import SiteError

OWN_KEY = 0  # the number of the key that is the script's own; other managers' keys have others
_PATIENCE = 10.0  # seconds that the script may take to answer

_keys: dict[tuple[str, int], bytes] = {}


def rebuild_proxy(place: tuple[str, str], number: int, rebuild: Any, parts: tuple[Any, ...]) -> Any:
    """The proxy: what the script's pickle of one is read as. `place`: the script's host, and the path of its socket."""
    key = _keys.get((place[1], number))
    if key is None:
        key = _keys[place[1], number] = _ask(*place, number)
        if number == OWN_KEY:  # for what the function makes of it: proxies that come out of this one
            from multiprocessing import process

            process.current_process().authkey = key
    *rest, options = parts
    return rebuild(*rest, {**options, "authkey": key})


def _ask(host: str, path: str, number: int) -> bytes:
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(_PATIENCE)
            sock.connect(path)
            sock.sendall(number.to_bytes(8, sys.byteorder))
            key = b"".join(iter(lambda: sock.recv(4096), b""))
    except OSError as error:
        where = f"{socket.gethostname()} (process {os.getpid()})"
        raise SiteError(
            f"a manager's proxy cannot be used on {where}: its manager answers only on {host}, while the script runs"
        ) from error
    if not key:
        raise SiteError(f"the script on {host} does not know the key of a manager any more")
    return key
