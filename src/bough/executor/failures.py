"""Failures of functions as values that can travel: the exception itself, with the remote traceback as its cause.

Rule: whatever a function raises, bytes come out that load in the client; an exception that cannot travel is
replaced by a `RuntimeError` that says the same.
"""

from __future__ import annotations

import pickle

from bough.executor.blame import is_of_place
from bough.model.outcomes import Cause, Failure

_LINE = 500  # characters of a message
_MOST_TEXT = 1 << 20  # characters of a traceback
_MOST = 32 << 20  # bytes of an exception: a bigger one cannot travel


class RemoteTraceback(Exception):
    """Carries the text of a traceback from the process where it happened."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        """The traceback, set off from the line Python prints before it."""
        return f'\n"""\n{self.text}"""'


class _Carrier:
    """Pickles as a call that puts exception and traceback together again: plain pickling drops the cause."""

    def __init__(self, error: BaseException, text: str) -> None:
        self.error = error
        self.text = text

    def __reduce__(self) -> tuple[object, ...]:
        return (rebuild_error, (self.error, self.text))


def rebuild_error(error: BaseException, text: str) -> BaseException:
    """The exception with the remote traceback as its cause: what the bytes of `pack_error` load as."""
    error.__cause__ = RemoteTraceback(text)
    return error


def one_line(error: BaseException) -> str:
    """Say an exception as in "ValueError: no such colour"."""
    name = type(error).__qualname__
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 -- __str__ is the user's
        text = ""
    line = (f"{name}: {text}" if text else name)[:_LINE]
    return line if line.isascii() else line.encode(errors="backslashreplace").decode()  # it must be fit to be sent


def pack_error(error: BaseException, skip: int = 1) -> bytes:
    """Pickle an exception with its traceback, without the innermost `skip` frames of ours."""
    import traceback

    trace = error.__traceback__
    for _ in range(skip):
        if trace is not None:
            trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    if len(text) > _MOST_TEXT:
        text = f"{text[: _MOST_TEXT // 2]}\n[...]\n{text[-_MOST_TEXT // 2 :]}"
    data = _pack(error, text)
    return data if 0 < len(data) <= _MOST else pickle.dumps(_Carrier(RuntimeError(one_line(error)), text), 5)


def _pack(error: BaseException, text: str) -> bytes:
    from bough.executor.results import pack

    try:
        data = pack(_Carrier(error, text))
        pickle.loads(data)  # many exceptions pickle well and cannot be made again
    except Exception:  # noqa: BLE001 -- the user's __reduce__ and __init__ may raise anything
        return b""
    return data


def exception_failure(error: BaseException) -> Failure:
    """A function raised."""
    return Failure(Cause.EXCEPTION, message=one_line(error), error=pack_error(error), site=is_of_place(error))


def loading_failure(error: BaseException, what: str) -> Failure:
    """A function or its arguments could not be made here; `what` says which of them."""
    if isinstance(error, ImportError):
        module = error.name or "a module"
        message = f"{what} needs the module {module!r}, which cannot be imported here: {one_line(error)}"
        return Failure(Cause.NOT_STARTED, message=message, error=pack_error(error), site=True)
    return Failure(Cause.UNSENDABLE, message=f"{what} cannot be unpickled: {one_line(error)}", error=pack_error(error))


def unsendable_failure(value: object, error: BaseException) -> Failure:
    """A result cannot be pickled."""
    kind = type(value)
    message = (
        f"the result, a {kind.__module__}.{kind.__qualname__}, cannot be pickled ({one_line(error)}); "
        "return plain data or write a file"
    )
    return Failure(Cause.UNSENDABLE, message=message[: 2 * _LINE])
