"""What `monitors=` says: a plan that travels as a blob, and what it adds to the memo key of what it watches.

Monitors are objects of `bough.monitors`, or texts as the command line takes them. A watched task computes something
else than the same task unwatched, because a monitor may end it early. So what monitors say counts for memo keys:
functions by their content, as everywhere, never by their pickles.

Rule: whatever cannot be shipped is refused here, before anything is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from bough.api.memo.content_keys import function_key
from bough.api.pickling import pack_function
from bough.errors import BadValue, NotPicklable, WrongType
from bough.model.blobs import blob_id
from bough.model.bounds import shown
from bough.model.ids import DIGEST_SIZE, BlobId
from bough.model.monitoring.monitor_text import read_monitor
from bough.model.monitoring.monitors import MOST_FUNCTION, Metric, Monitor, encode_plan, plan_of


class Watching(msgspec.Struct, frozen=True):
    """What watches some tasks."""

    items: tuple[Monitor | Metric, ...]
    id: BlobId
    data: bytes  # the encoded plan
    key: bytes | None  # what it says, as a digest; None: a function of it has none, so that nothing is reused

    @property
    def blob(self) -> tuple[BlobId, bytes]:
        """The plan as it is sent."""
        return self.id, self.data


def read_monitors(given: object, base: Watching | None = None) -> Watching | None:
    """What is given as `monitors`, besides what watches already; None if that is nothing."""
    things = _things(given)
    if not things:
        return base
    key = _digest(things, base)  # before anything is pickled, which leaves marks in classes that a function refers to
    items = (*(base.items if base is not None else ()), *[_made(thing, _pickled) for thing in things])
    data = encode_plan(plan_of(items))
    return Watching(items, blob_id(data), data, key)


def _things(given: object) -> list[Any]:
    if isinstance(given, str) or _is_monitor(given):
        return [given]
    if not isinstance(given, Iterable):
        raise WrongType(f"monitors is {shown(given)}; give a list of monitors")
    things = list(given)
    for thing in things:
        if _is_remote(thing):
            raise WrongType(f"monitors holds {shown(thing)}; give it as remote_monitors=, or to task.monitor(...)")
        if not isinstance(thing, str) and not _is_monitor(thing):
            raise WrongType(
                f"monitors holds {shown(thing)}; give monitors of bough.monitors, or texts such as 'after:1h -> fail'"
            )
    return things


def _is_monitor(thing: object) -> bool:
    from bough import monitors

    return isinstance(thing, monitors.Monitor | monitors.Metric)


def _is_remote(thing: object) -> bool:
    from bough.monitors import Remote

    return isinstance(thing, Remote)


def _made(thing: Any, pack: Callable[[Callable[..., Any]], bytes]) -> Monitor | Metric:
    made: Monitor | Metric = read_monitor(thing) if isinstance(thing, str) else thing.made(pack)
    return made


def _pickled(function: Callable[..., Any]) -> bytes:
    try:
        _, data = pack_function(function)
    except NotPicklable as error:
        raise NotPicklable(f"a monitor's {error}") from error
    if len(data) > MOST_FUNCTION:
        name = getattr(function, "__name__", "")
        raise BadValue(
            f"a monitor's function {name} and what it uses have {len(data)} bytes; {MOST_FUNCTION} can be sent"
        )
    return data


class _WithoutKeyError(Exception):
    """A function of a monitor has no digest."""


def _by_content(function: Callable[..., Any]) -> bytes:
    key = function_key(function)
    if key is None:
        raise _WithoutKeyError
    return key


def _digest(things: Iterable[Any], base: Watching | None) -> bytes | None:
    if base is not None and base.key is None:
        return None
    try:
        said = encode_plan(plan_of([_made(thing, _by_content) for thing in things]))
    except _WithoutKeyError:
        return None
    return blake2b(said, key=base.key or b"" if base is not None else b"", digest_size=DIGEST_SIZE).digest()
