"""Tells workers the keys of this process' `multiprocessing` managers, so that proxies can be arguments.

The first proxy that is pickled opens a socket in a private folder, and a thread that answers there. A worker asks for a
key by its number (`executor.worker.manager_proxy`).

Rules: a key is never pickled, written or put on a command line. Only processes of this user get one: the folder is
theirs alone, and the kernel says who asks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from typing import Any

from bough import private
from bough.errors import NotPicklable
from bough.executor.worker.manager_proxy import OWN_KEY, rebuild_proxy

MODULE = "multiprocessing.managers"
MARK = b"RebuildProxy"  # in every pickle that holds a proxy
_REBUILT = rebuild_proxy.__name__.encode()
_PATIENCE = 5.0  # seconds that a worker has to say which key it wants

_lock = threading.Lock()
_keys: list[bytes] = []
_place: tuple[int, tuple[str, str]] | None = None  # the process that answers, and where: its host and a path


def is_proxy(obj: object) -> bool:
    """Whether something is a manager's proxy."""
    managers = sys.modules.get(MODULE)
    return managers is not None and isinstance(obj, managers.BaseProxy)


def holds_proxies(*pickles: bytes) -> bool:
    """Whether pickles hold proxies: those of another run must not even be read, let alone reused."""
    return MODULE in sys.modules and any(_REBUILT in data for data in pickles)


def reduced(proxy: Any) -> tuple[Any, ...]:
    """How a proxy is pickled: without its key, and with where that can be asked for."""
    rebuild, parts = proxy.__reduce__()
    place, number = _serve(bytes(proxy._authkey))
    return rebuild_proxy, (
        place,
        number,
        rebuild,
        (*parts[:-1], {k: v for k, v in parts[-1].items() if k != "authkey"}),
    )


def _serve(key: bytes) -> tuple[tuple[str, str], int]:
    """Where a key can be asked for, and under which number."""
    global _place
    from multiprocessing import process

    with _lock:
        if not _keys:
            _keys.insert(OWN_KEY, bytes(process.current_process().authkey))
        if key not in _keys:
            _keys.append(key)
        if _place is None or _place[0] != os.getpid():
            _place = (os.getpid(), (socket.gethostname(), _open()))
        return _place[1], _keys.index(key)


def _open() -> str:
    folder = private.TemporaryFolder("keys", private.runtime_folder())
    try:
        path = os.path.join(folder.make(), "keys")
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(path)
        sock.listen(16)
    except OSError as error:
        raise NotPicklable(f"a manager's proxy cannot be sent to a worker: {error}") from error
    threading.Thread(target=_answer, args=(sock, folder), name="bough-keys", daemon=True).start()
    return path


def _answer(sock: socket.socket, _folder: private.TemporaryFolder) -> None:
    """The thread; it holds the folder, which is there as long as this process is."""
    while True:
        peer, _ = sock.accept()
        with peer, contextlib.suppress(OSError, IndexError):
            peer.settimeout(_PATIENCE)
            if private.other_end(peer)[1] == os.getuid():
                number = int.from_bytes(peer.recv(8, socket.MSG_WAITALL), sys.byteorder)
                peer.sendall(_keys[number])
