"""Functions of a session that has an initializer, which runs in each worker before the first of them.

A function of such a session travels as a `PreparedFunction`. Reading it in a worker runs the initializer, unless that
worker has run it before, and gives the function itself.

Initializers set global variables for the functions to use. What is defined in the script travels by value, and each
function has globals of its own here: so those that the initializer set are set in these too.

Rule: an initializer runs once in a process, well or badly. Where it failed, every call of that session fails by
`InitializerFailed`, with the initializer's own exception as the cause, and nothing of the function is run.
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from bough.executor.worker.exception_packing import RemoteTraceback
from bough.executor.worker.serialisation import one_line
from bough.model.refs import FormerUnpickler, load_pickle

_BY_VALUE = b"_function_setstate"  # in every pickle that holds a function by value


class PreparedFunction:
    """A pickled function, and the pickled initializer and arguments without which it must not run."""

    def __init__(self, digest: bytes, initializer: bytes, function: bytes) -> None:
        self._parts = (digest, initializer, function)

    def __reduce__(self) -> tuple[Any, ...]:
        return prepare, self._parts


class _Ran:
    """How an initializer ended, and the global variables that it set, by module."""

    def __init__(self, initializer: bytes) -> None:
        self.error: BaseException | None = None
        self.variables: dict[str, dict[str, Any]] = {}
        worlds: list[dict[str, Any]] = []
        try:
            call, arguments = _load(initializer, worlds.append)
            before = [dict(world) for world in worlds]
            call(*arguments)
        except BaseException as error:  # noqa: BLE001 -- also SystemExit: it must not end the worker
            self.error = error
            return
        for world, was in zip(worlds, before, strict=True):
            news = {name: value for name, value in world.items() if name not in was or was[name] is not value}
            self.variables.setdefault(world.get("__name__", ""), {}).update(news)

    def set_in(self, world: dict[str, Any]) -> None:
        """Give the globals of a function what the initializer set."""
        found: Mapping[str, Any] = self.variables.get(world.get("__name__", ""), {})
        world.update(found)


_ran: dict[bytes, _Ran] = {}  # by the digest of the initializer


def prepare(digest: bytes, initializer: bytes, function: bytes) -> Callable[..., Any]:
    """The function, once the initializer has run in this process: what a `PreparedFunction` is read as."""
    ran = _ran.get(digest)
    if ran is None:
        ran = _ran[digest] = _Ran(initializer)
    if ran.error is not None:
        return _Broken(ran.error)
    found: Callable[..., Any] = _load(function, ran.set_in)
    return found


def _load(data: bytes, on_globals: Callable[[dict[str, Any]], None]) -> Any:
    """Read a pickle; the globals of each function that it holds by value are shown as they come."""
    if _BY_VALUE not in data:
        return load_pickle(data)
    return _Unpickler(data, on_globals).load()


class _Unpickler(FormerUnpickler):
    def __init__(self, data: bytes, on_globals: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(io.BytesIO(data))
        self._on_globals = on_globals

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if name != _BY_VALUE.decode():
            return found

        def set_state(function: Any, state: Any) -> Any:
            answer = found(function, state)
            self._on_globals(function.__globals__)
            return answer

        return set_state


class _Broken:
    """Stands for a function that cannot run here."""

    def __init__(self, error: BaseException) -> None:
        self._line = one_line(error)
        self._trace = "".join(traceback.format_exception(error))

    def __call__(self, *_: object, **__: object) -> Any:
        from bough.errors import InitializerFailed  # late: it loads multiprocessing

        text = f"the session's initializer failed in a worker: {self._line}"
        raise InitializerFailed(text) from RemoteTraceback(self._trace)
