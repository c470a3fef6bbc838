from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from bough.api.futures.remote_exceptions import load_exception
from bough.executor.worker.exception_packing import RemoteTraceback, pack_exception, traceback_text
from bough.executor.worker.serialisation import exception_failure, pack
from bough.model.outcomes import Cause, Failure


def travelled(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        failure = exception_failure(caught)
    found = load_exception(failure)
    assert found is not None
    return found


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


class TwoArguments(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class ByKeyword(ValueError):
    def __init__(self, *, size: int) -> None:
        super().__init__(f"size {size}")
        self.size = size


class Formats(ValueError):
    def __init__(self, code: object) -> None:
        super().__init__(f"code {code}")


class NoReduce(KeyError):
    def __reduce__(self) -> Any:
        raise RuntimeError("not today")


class WithPath(OSError):
    def __init__(self, path: str, code: int) -> None:
        super().__init__(code, "out of order", path)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        TwoArguments(3, "bad"),
        ByKeyword(size=4),
        Formats(5),
        NoReduce("key"),
        WithPath("/some/where", 28),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        ModuleNotFoundError("no", name="zzz"),
        SystemExit(3),
        ExceptionGroup("several", [TwoArguments(1, "a"), ValueError("b")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_arrives_as_what_it_was(error: BaseException) -> None:
    found = travelled(error)
    assert type(found) is type(error)
    assert (str(found), found.args) == (str(error), error.args) or isinstance(error, ExceptionGroup)
    assert {k: v for k, v in vars(found).items() if k != "__notes__"} == vars(error)
    assert isinstance(found.__cause__, RemoteTraceback)
    assert not notes(found)


def test_what_the_interpreter_keeps_of_an_error_arrives_too() -> None:
    found = travelled(WithPath("/some/where", 28))
    assert isinstance(found, OSError)
    assert (found.errno, found.filename) == (28, "/some/where")
    again = travelled(ModuleNotFoundError("no", name="zzz"))
    assert isinstance(again, ImportError)
    assert again.name == "zzz"


def test_members_of_a_group_are_of_their_own_classes() -> None:
    found = travelled(ExceptionGroup("several", [TwoArguments(1, "a"), ExceptionGroup("inner", [ByKeyword(size=2)])]))
    assert isinstance(found, ExceptionGroup)
    assert type(found.exceptions[0]) is TwoArguments
    inner = found.exceptions[1]
    assert isinstance(inner, ExceptionGroup)
    assert type(inner.exceptions[0]) is ByKeyword


class Locked(Exception):
    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()
        self.size = 7

    def __str__(self) -> str:
        return f"locked: {self.lock.locked()}"


def test_an_attribute_that_cannot_travel_is_left_out_and_named() -> None:
    found = travelled(Locked())
    assert isinstance(found, Locked)
    assert str(found) == "locked: False"
    assert found.size == 7
    assert "attribute lock (a lock)" in notes(found)


def test_a_class_that_cannot_travel_becomes_one_below_the_nearest_of_pythons_own() -> None:
    class Stuck(ValueError):
        lock = threading.Lock()

    found = travelled(Stuck("here"))
    assert isinstance(found, ValueError)
    assert type(found).__name__ == "Stuck"
    assert str(found) == "here"
    assert "catch ValueError" in notes(found)
    assert "cannot pickle" in notes(found)


def test_an_exception_of_a_module_that_is_not_here_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = exception_failure(LookupError("x"))
    parts = pickle.loads(failure.error)
    parts["whole"] = parts["whole"].replace(b"builtins", b"bultinsx").replace(b"LookupError", b"LookupErrox")
    parts["place"] = ("elsewhere", "Missing")
    found = load_exception(Failure(Cause.EXCEPTION, error=pickle.dumps(parts)))
    assert isinstance(found, LookupError)
    assert type(found).__name__ == "Missing"
    assert "elsewhere.Missing" in notes(found)


def test_causes_and_contexts_arrive_with_the_traceback_behind_them() -> None:
    try:
        try:
            raise TwoArguments(1, "first")
        except TwoArguments as first:
            raise ByKeyword(size=2) from first
    except ByKeyword as error:
        found = travelled(error)
    assert type(found.__cause__) is TwoArguments
    assert isinstance(found.__cause__.__cause__, RemoteTraceback)
    assert "1: first" in str(found.__cause__.__cause__)


def test_notes_of_the_user_arrive() -> None:
    error = ValueError("x")
    error.add_note("look at the log")
    assert notes(travelled(error)) == "look at the log"


class Bulky(Exception):
    pass


def test_an_exception_that_is_too_big_arrives_without_what_is_big() -> None:
    error = Bulky("too much")
    error.data = bytes(40 << 20)  # type: ignore[attr-defined]
    data = pack_exception(error, pack)
    assert len(data) < 1 << 20
    found = travelled(error)
    assert (type(found), str(found)) == (Bulky, "too much")
    assert "attribute data" in notes(found)


def test_a_long_traceback_loses_its_middle() -> None:
    text = traceback_text(ValueError("x" * 100_000), frozenset())
    assert len(text) < 10_000
    assert text.endswith("xxx\n")


class Vicious(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def test_whatever_an_exception_does_it_arrives() -> None:
    assert type(travelled(Vicious("a"))).__name__ == "Vicious"


def test_exceptions_of_earlier_versions_are_read() -> None:
    from bough.executor.worker.serialisation import rebuild_error

    class Former:
        def __reduce__(self) -> Any:
            return rebuild_error, (ValueError("old"), "Traceback ...")

    found = load_exception(Failure(Cause.EXCEPTION, error=pickle.dumps(Former())))
    assert isinstance(found, ValueError)
    assert "Traceback ..." in str(found.__cause__)


def test_bytes_that_are_no_exception_give_none() -> None:
    assert load_exception(Failure(Cause.EXCEPTION, error=b"nonsense")) is None
