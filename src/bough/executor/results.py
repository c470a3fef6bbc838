"""Results of functions as bytes: small ones together, big ones in files of their own.

Rule: plain pickle first, cloudpickle where that fails or would point into `__main__`, which is another
module at the other end; one result that cannot travel fails alone. A file that cannot be written leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator

from bough import private
from bough.executor.failures import pack_error, unsendable_failure
from bough.executor.pausing import Pause, patiently
from bough.model.outcomes import Cause, Failure, ResultFile, Results

SMALL = 256_000  # bytes that are sent; more is written to a file


def pack(value: object) -> bytes:
    """Pickle a value so that it loads in the client."""
    try:
        data = pickle.dumps(value, 5)
    except Exception:  # noqa: BLE001 -- reasons are many; cloudpickle's own error is the one that counts
        data = b""
    if data and b"__main__" not in data:
        return data
    import cloudpickle

    packed: bytes = cloudpickle.dumps(value, 5)
    return packed


def pack_results(
    start: int, values: list[object], directory: str, prefix: str, *, packed: bytes = b"", pause: Pause | None = None
) -> Iterator[tuple[int, int, Results | Failure]]:
    """Cut values of the elements from `start` into (start, stop, bytes, file or failure), in order.

    `packed` are the bytes of all of them, if they are known already; `pause` as in `write_result`.
    """
    try:
        data = packed or pack(values)
    except Exception as error:  # noqa: BLE001 -- __reduce__ is the user's
        if len(values) == 1:
            yield start, start + 1, unsendable_failure(values[0], error)
            return
    else:
        if len(data) <= SMALL:
            yield start, start + len(values), data
            return
        if len(values) == 1:
            yield start, start + 1, write_result(data, directory, f"{prefix}-{start}", pause)
            return
    middle = len(values) // 2
    yield from pack_results(start, values[:middle], directory, prefix, pause=pause)
    yield from pack_results(start + middle, values[middle:], directory, prefix, pause=pause)


def write_result(data: bytes, directory: str, name: str, pause: Pause | None = None) -> ResultFile | Failure:
    """Write a big result beside the others; complete under its name or not there.

    `pause` waits when the disk is full, as it must be if that is the store's; without one it is the place's failure.
    """
    path = os.path.join(directory, f"{name}.pickle")
    hidden = os.path.join(directory, f".{name}.part")

    def write() -> None:
        try:
            with open(hidden, "wb", opener=private.opener) as file:
                file.write(data)
            os.replace(hidden, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(hidden)
            raise

    try:
        if pause is None:
            write()
        else:
            patiently(f"a result of {len(data)} bytes in {directory}", write, pause)
    except OSError as error:
        message = f"the result of {len(data)} bytes cannot be written: {error}"
        return Failure(Cause.EXCEPTION, message=message, error=pack_error(error), site=True)
    return ResultFile(path, len(data))
