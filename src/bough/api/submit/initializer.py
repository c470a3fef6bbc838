"""The initializer of a session, as `ProcessPoolExecutor` has one: it runs in each worker before the first function.

It travels with the functions, by value as they do, so it works wherever these do, at a service too. Commands know
nothing of it. Rule: it is part of what a call computes, so its content is part of every memo key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from bough.api.memo.content_keys import call_key, function_key
from bough.api.pickling import pack, pack_function
from bough.errors import WrongType
from bough.executor.worker.prepared_function import PreparedFunction
from bough.model.blobs import blob_id
from bough.model.bounds import shown
from bough.model.ids import DIGEST_SIZE, BlobId, MemoKey

_KEPT = 256  # functions whose blobs are kept


class Initializer:
    """What runs first in each worker, and what that makes of functions and their keys."""

    def __init__(self, call: Callable[..., object], arguments: Iterable[Any] = ()) -> None:
        if not callable(call):
            raise WrongType(f"initializer must be a callable, not {shown(call)}")
        if isinstance(arguments, str) or not isinstance(arguments, Iterable):
            raise WrongType(f"initargs is {shown(arguments)}; give a tuple of arguments")
        given = tuple(arguments)
        self._key = call_key(function_key(call), given, {})  # before pickling, which leaves marks in classes
        pack_function(call)  # an error names the guilty part
        self._data = pack((call, given), "the initializer")
        self._digest = blob_id(self._data)
        self._made: dict[BlobId, tuple[BlobId, bytes]] = {}

    def blob(self, function: tuple[BlobId, bytes]) -> tuple[BlobId, bytes]:
        """The blob of a function that runs after the initializer."""
        found = self._made.get(function[0])
        if found is None:
            data = pack(PreparedFunction(self._digest, self._data, function[1]), "the function")
            if len(self._made) >= _KEPT:
                self._made.clear()
            found = self._made[function[0]] = (blob_id(data), data)
        return found

    def key(self, key: MemoKey | None) -> MemoKey | None:
        """The memo key of a call, or of a function, that runs after the initializer; None: it is not reused."""
        if not key or not self._key:
            return None
        return MemoKey(blake2b(b"init" + self._key, key=key, digest_size=DIGEST_SIZE).digest())
