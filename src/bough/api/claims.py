"""The outputs of arrays that were submitted, kept in the store by digest: `args/RECORD.writes`.

The journal tells of an element's outputs once its success is recorded; a run that is killed before leaves
outputs nobody told of. Rule: what an array is to write is on file before the server hears of the array,
in 8 bytes for each output; a path is one of ours if an array of an earlier run had claimed it.
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b

from bough import private
from bough.errors import StoreFailed
from bough.executor.pausing import Pause, patiently

SIZE = 8  # bytes of a digest
_SUFFIX = ".writes"
_BIG = 1 << 16  # claims of a file that is searched by itself; smaller ones are searched together


def path_digest(path: str) -> bytes:
    """What stands for an absolute path, the same in every process."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=SIZE).digest()


def keep_claims(store: str, record: int, digests: bytes, *, more: bool = False) -> None:
    """Put what an array is to write on file; `more` adds to what is there of it."""
    path = os.path.join(store, "args", f"{record}{_SUFFIX}")

    def write() -> None:
        if more and os.path.exists(path):
            with open(path, "r+b") as file:
                file.seek(file.seek(0, os.SEEK_END) // SIZE * SIZE)  # over half a digest, if a write was cut short
                file.write(digests)
            return
        with open(f"{path}.new", "wb", opener=private.opener) as file:
            file.write(digests)
        os.replace(f"{path}.new", path)

    try:
        patiently(path, write, Pause())
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}; make room, or give another store"
        raise StoreFailed(why) from error


class Claims:
    """The claims of records below a number: those of earlier runs. They are read when first asked for."""

    def __init__(self, store: str, below: int) -> None:
        self._store = store
        self._below = below
        self._sorted: list[array[int]] | None = None

    def __contains__(self, path: object) -> bool:
        """Whether an earlier array was to write a path."""
        if not isinstance(path, str):
            return False
        if self._sorted is None:
            self._sorted = self._load()
        wanted = int.from_bytes(path_digest(path), sys.byteorder)
        for claims in self._sorted:
            at = bisect_left(claims, wanted)
            if at < len(claims) and claims[at] == wanted:
                return True
        return False

    def _load(self) -> list[array[int]]:
        big: list[array[int]] = []
        small: set[int] = set()
        seen: set[bytes] = set()  # a workflow that is run again makes the same claims
        for path in self._paths():
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except OSError:
                continue
            content = blake2b(data, digest_size=16).digest()
            if content in seen:
                continue
            seen.add(content)
            claims = array("Q", data[: len(data) // SIZE * SIZE])
            if len(claims) >= _BIG:
                big.append(array("Q", sorted(claims)))
            else:
                small.update(claims)
        return [*big, array("Q", sorted(small))]

    def _paths(self) -> Iterator[str]:
        try:
            names = os.listdir(os.path.join(self._store, "args"))
        except OSError:
            return
        for name in names:
            record, suffix = os.path.splitext(name)
            if suffix == _SUFFIX and record.isdigit() and int(record) < self._below:
                yield os.path.join(self._store, "args", name)
