"""Exceptions of functions, made again from what a worker packed; and what they say of the task they come from.

An exception arrives as its own class. Where its class is not here, or could not be sent, it arrives as a class of the
same name below the nearest class of Python's own, so that `except ValueError` catches it. A note says what is missing.
Its last cause is the traceback of the worker.

Rule: nothing of an exception that is made again calls the user's `__init__`; whatever its code does, this process gets
an exception, or None. `executor.worker.exception_packing` writes what is read here.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

from bough.api.pickling import loads
from bough.executor.worker.exception_packing import Parts, RemoteTraceback, static_base
from bough.model.outcomes import Failure

_DEPTH = 20  # of causes


def load_exception(failure: Failure) -> BaseException | None:
    """The exception of a failure, with the worker's traceback as its last cause; None when it cannot be made."""
    try:
        found = loads(failure.error)
        if isinstance(found, BaseException):
            return found  # packed by an earlier version, with its traceback
        error = _made(found)
    except Exception:  # noqa: BLE001 - unpickling runs the user's code, which may raise anything
        return None
    add_traceback(error, failure.traceback)
    return error


def add_traceback(error: BaseException, text: str) -> None:
    """Make the worker's traceback the last cause of an exception."""
    last = error
    for _ in range(_DEPTH):
        if last.__cause__ is None:
            break
        last = last.__cause__
    if text and last.__cause__ is None:
        last.__cause__ = RemoteTraceback(text)


def _made(parts: Parts) -> BaseException:
    error = _alone(parts)
    if "cause" in parts:
        error.__cause__ = _made(parts["cause"])
    elif "context" in parts:
        error.__context__ = _made(parts["context"])
    error.__suppress_context__ = bool(parts.get("suppress"))
    return error


def _alone(parts: Parts) -> BaseException:
    """One exception without its causes."""
    problem = parts.get("why", "")
    if "whole" in parts:
        try:
            found = loads(parts["whole"])
            if isinstance(found, BaseException):
                return found
        except Exception as error:  # noqa: BLE001 - as above
            problem = f"{type(error).__name__}: {error}"
    left = list(parts.get("left", ()))
    kind = _class_of(parts)
    if kind is not None:
        try:
            again = _put_together(kind, parts)
        except Exception as error:  # noqa: BLE001 - as above
            problem = f"{type(error).__name__}: {error}"
        else:
            if left:
                again.add_note(f"it could not be sent as it was ({problem}); missing: {', '.join(left)}")
            return again
    return _stand_in(parts, problem)


def _class_of(parts: Parts) -> type[BaseException] | None:
    """The class as it was sent, or the one of its name here."""
    try:
        kind = loads(parts["kind"]) if parts.get("kind") else None
    except Exception:  # noqa: BLE001 - as above
        kind = None
    if kind is None:
        module, name = parts["place"]
        kind = sys.modules.get(module)
        for part in name.split("."):
            kind = getattr(kind, part, None)
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None


def _put_together(kind: type[BaseException], parts: Parts) -> BaseException:
    base = static_base(kind)
    args: tuple[Any, ...] = tuple(loads(data) for data in parts.get("args", ()))
    if "members" in parts:
        args = (parts["message"], [_made(one) for one in parts["members"]])
    error = _new(kind, base, args)
    _set_state(error, parts)
    if _said(error) != parts["text"]:  # its __str__ uses what is missing
        error = _new(_speaking(kind, parts["text"]), base, args)
        _set_state(error, parts)
    return error


def _new(kind: type[BaseException], base: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    error = base.__new__(kind, *args)
    base.__init__(error, *args)
    return error


def _set_state(error: BaseException, parts: Parts) -> None:
    for name, data in parts.get("state", {}).items():
        value = loads(data)
        try:
            object.__setattr__(error, name, value)
        except (AttributeError, TypeError):
            vars(error)[name] = value


def _speaking(kind: type[BaseException], text: str) -> type[BaseException]:
    """A class below `kind`, with its name, whose text is as it was."""
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": lambda _: text}
    made: type[BaseException] = type(kind.__name__, (kind,), names)
    return made


def _stand_in(parts: Parts, problem: str) -> BaseException:
    """An exception of a class of the same name, below the nearest one of Python's own."""
    module, name = parts["place"]
    base = getattr(builtins, parts["base"], Exception)
    if not (isinstance(base, type) and issubclass(base, BaseException)):
        base = Exception
    text = parts["text"]
    if issubclass(base, BaseExceptionGroup) or base.__init__ not in {Exception.__init__, BaseException.__init__}:
        args: tuple[Any, ...] = tuple(loads(data) for data in parts.get("args", ()))
    else:
        args = (text,)
    kind = type(
        name.rpartition(".")[2], (base,), {"__module__": module, "__qualname__": name, "__str__": lambda _: text}
    )
    try:
        error: BaseException = _new(kind, base, args)
    except Exception:  # noqa: BLE001 - classes of Python's own may want more than is known
        error = _new(_speaking(Exception, text), Exception, (text,))
    reason = parts.get("class_why") or problem
    error.add_note(f"its own class {module}.{name} cannot be had here ({reason}); catch {base.__name__}")
    return error


def _said(error: BaseException) -> str:
    try:
        text = str(error)[:100_000]
    except (Exception, SystemExit):  # noqa: BLE001 - __str__ is the user's
        return ""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
