"""One submission on its way into bytes, with its big buffers apart; and `Shared`, a value that was packed before.

While a submission is packed and its memo key made, a thread knows of it (`with packing`): a `Shared` in the arguments
becomes the names of its buffers, and an array counts in the key as its buffer does.

Rule: what was packed holds its buffers until the `with` block ends; by then the task does (`ArgumentValues.hold`).
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Sequence
from pickle import PickleBuffer
from types import TracebackType
from typing import Any, Final, Self

from bough.api.memo.digests import NoDigestError, Sink, add_feeder, argument_digest, known_buffers
from bough.api.pickling import Take, loads, pack_shared
from bough.api.values.argument_values import ArgumentValues, KeptBuffer
from bough.errors import SessionClosed
from bough.model.files import VALUES
from bough.model.packed_values import APART, raw_if_apart
from bough.movers.mapped_memory import address_of
from bough.movers.value_files import Ref, joined_apart, pack_apart

_HEAD: Final = APART  # bytes of a shared value's pickle; a longer one lies in a file, too

_NOTHING: Final[dict[int, list[KeptBuffer]]] = {}


class _Current(threading.local):
    packing: Packing | None = None


_current = _Current()


class Packing:
    """See the module. Most submissions have no big buffers: what those need is made for the first one."""

    __slots__ = ("_count", "_found", "_kept", "_outer", "_shared", "_values", "_written")

    def __init__(self, values: Callable[[], ArgumentValues]) -> None:
        self._values = values  # makes them when the first is needed
        self._found: Sequence[tuple[memoryview, Any]] = ()  # buffers of what was pickled last, and what they are of
        self._shared: Sequence[KeptBuffer] = ()  # those of shared values in it
        self._kept: dict[int, list[KeptBuffer]] = _NOTHING  # by the number of what was packed: a call, or pages
        self._count = 0  # how much was packed
        self._outer: Packing | None = None  # in which a value is shared
        # by address and size: what the bytes there belonged to when they were written, and the buffer
        self._written: dict[tuple[int, int], tuple[weakref.ref[Any], KeptBuffer]] = {}

    def __enter__(self) -> Self:
        self._outer, _current.packing = _current.packing, self
        known_buffers.find = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outer = _current.packing = self._outer
        known_buffers.find = outer._identity if outer is not None else None
        if self._kept:
            self._values().let_go([one for some in self._kept.values() for one in some])

    @property
    def size(self) -> int:
        """Bytes of the big buffers of what was pickled last."""
        return sum([view.nbytes for view, _ in self._found])

    def begin(self) -> Take:
        """See `BuffersApart`."""
        self._found = self._shared = ()
        return self._take

    def _take(self, buffer: PickleBuffer) -> bool:
        raw = raw_if_apart(buffer)
        if raw is not None:
            self._found = [*self._found, (raw, _source(memoryview(buffer).obj))]
        return raw is None

    def packed(self, head: bytes) -> bytes:
        """See `BuffersApart`."""
        if self._found or self._shared:
            refs = self.write()
            return pack_apart(head, refs) if refs else head
        self._count += 1
        return head

    def write(self) -> list[Ref]:
        """Put the buffers of what was pickled last into files; their names."""
        values = self._values()
        kept: list[KeptBuffer] = list(self._shared)
        self._kept = {**self._kept, self._count: kept}
        self._count += 1
        values.hold_too(kept)
        found: list[Ref] = []
        for view, source in self._found:
            place = (address_of(view), view.nbytes)
            one = self._written_before(*place)
            if one is not None:  # an array was given twice
                values.hold_too([one])
            else:
                one = values.keep(view, source)
                with contextlib.suppress(TypeError):  # most things can be referred to weakly
                    self._written[place] = (weakref.ref(source), one)
                    known_buffers.find = self._identity
            kept.append(one)
            found.append(one.ref)
        self._found = self._shared = ()
        return found

    def _written_before(self, address: int, size: int) -> KeptBuffer | None:
        """A buffer of this submission that lies there, if what it belongs to is alive: others may lie there later."""
        source, one = self._written.get((address, size), (None, None))
        return one if source is not None and source() is not None else None

    def _identity(self, address: int, size: int) -> bytes:
        """What the bytes there count as in keys; see `KnownBuffers`."""
        one = self._written_before(address, size)
        return b"" if one is None else one.identity

    @property
    def written(self) -> int:
        """Bytes of the big buffers of all that was packed, without those of shared values."""
        return sum([one.size for _, one in self._written.values()])

    def kept(self, number: int = 0) -> list[KeptBuffer]:
        """The buffers of the n-th that was packed."""
        return self._kept.get(number, [])

    def contents(self, number: int | None = None) -> tuple[str, ...]:
        """The names of those that are contents of the server: of the n-th that was packed, or of all."""
        packed = self._kept.values() if number is None else [self.kept(number)]
        kept = [one.path for some in packed for one in some]
        return tuple(dict.fromkeys(path for path in kept if path.startswith(VALUES)))

    def hold(self, record: int) -> None:
        """A call that is about to be sent needs them."""
        if self._kept:
            self.hold_page(record, 0, 0, 1)

    def hold_page(self, record: int, number: int, start: int, stop: int) -> None:
        """Elements of an array that is about to be sent need those of a page."""
        if number in self._kept:
            self._values().hold(record, start, stop, self._kept[number])

    def hold_array(self, record: int, length: int) -> None:
        """An array that is about to be sent needs what was packed first: its table."""
        if self._kept:
            self._values().hold_array(record, length, self._kept[0])

    def shared_if_big(self, value: Any) -> Any:
        """What to pickle in the place of a value: if it holds big buffers, one that was written once."""
        packing = Packing(self._values)
        pack_shared(value, packing)
        return Shared(value, self._values, is_brief=True) if packing.size else value

    def uses(self, values: ArgumentValues, buffers: list[KeptBuffer]) -> bool:
        """Whether what is pickled may name buffers of a shared value: it is of the same session."""
        if values.is_closed or self._values() is not values:
            return False
        self._shared = [*self._shared, *buffers]
        return True


class Shared:
    """A value that was written once, for any number of calls: give it in the place of the value.

    Workers get the value itself; what arrays in it hold is read-only there, and not copied. It is freed when this
    object and all tasks that it was given to are gone.
    """

    __slots__ = ("__weakref__", "_copy", "_digest", "_head", "_kept", "_refs", "_values")

    def __init__(self, value: Any, values: Callable[[], ArgumentValues], *, is_brief: bool = False) -> None:
        self._values = values()
        with Packing(values) as packing:
            head = pack_shared(value, packing)
            refs = packing.write()
            self._digest = argument_digest(value)
            kept = packing.kept()[:]
            if len(head) > _HEAD:
                one = self._values.keep(memoryview(head))
                kept.append(one)
                head, refs = b"", [one.ref, *refs]
            self._values.hold_too(kept)
        if not head:
            self._values.let_go(kept[-1:])  # `hold_too` counted it a second time
        self._head, self._refs, self._kept = head, tuple(refs), kept
        # None: it is read from its files, or is not read
        self._copy = None if self._values.is_here or is_brief else _copied(value, values)
        weakref.finalize(self, self._values.collected, kept)

    @property
    def value(self) -> Any:
        """The value, as workers get it: what big arrays hold is read-only."""
        if self._copy is not None:
            return _loaded(*self._copy)
        try:
            return joined_apart(self._head, self._refs, _loaded)
        except FileNotFoundError as error:
            if not self._values.is_closed:
                raise
            raise SessionClosed(
                "the session that this value was shared in has ended; share it in another one"
            ) from error

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory."""
        return len(self._head) + sum([size for _, size, _ in self._refs])

    def __reduce__(self) -> Any:
        packing = _current.packing
        if packing is not None and packing.uses(self._values, self._kept):
            return joined_apart, (self._head, self._refs)
        return _itself, (self.value,)

    def __repr__(self) -> str:
        return f"<Shared {self.nbytes} bytes>"


def _copied(value: Any, values: Callable[[], ArgumentValues]) -> tuple[bytes, list[bytes]]:
    """What a value holds now: the caller may change it later. The pickle, and its big buffers."""
    packing = Packing(values)
    head = pack_shared(value, packing)
    return head, [bytes(view) for view, _ in packing._found]


def _loaded(head: Any, buffers: Sequence[Any]) -> Any:
    return loads(head if isinstance(head, bytes) else bytes(head), buffers)


def _source(thing: Any) -> Any:
    """What a buffer is of. A view of a whole array stands for the array, which is there when the view has gone."""
    base: Any = getattr(thing, "base", None)
    return base if type(base) is type(thing) and base.nbytes == thing.nbytes else thing


def _itself(value: Any) -> Any:
    return value


def _feed(to: Sink, shared: Shared) -> None:
    if shared._digest is None:
        raise NoDigestError("a shared value")
    to.put(b"shared", shared._digest)


add_feeder(Shared, _feed)
