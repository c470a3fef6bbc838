"""Stand-ins for values on their way: refs in arguments, short calls, pickles of earlier versions.

*Refs.* A `Ref` in the arguments of a call stands for a value that comes later; `resolve` puts the values in. Only
lists, tuples and dicts are searched, and an object without a ref comes back as the same object.

*Calls.* Arguments that are numbers, texts and refs, as most are, travel as a tuple in the marshal format, version 2. It
is read and written several times as fast as a pickle, and gives the same bytes for the same arguments, so that the memo
key of a call is made of them too. The first byte says what follows: simple arguments, arguments with refs, or a pickle.

Rule: nothing but `load_pickle` and `unpack_call`, which clients and workers call, loads a pickle. The name of this
module stays: stored pickles name `Ref`.
"""

from __future__ import annotations

import io
import marshal
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

SIMPLE: Final[frozenset[type]] = frozenset({int, float, str, bytes, bool, complex, type(None)})
_ATOMS: Final[frozenset[type]] = SIMPLE | {bytearray}  # what holds no ref
_is_simple = SIMPLE.issuperset
_SIMPLE, _WITH_REFS = b"sr"  # the first byte of packed arguments

Call = tuple[Sequence[Any], dict[str, Any]]

# Modules of ours that pickles in stores name, and where their contents are now.
FORMER: Final = {
    "bough.api.completed": "bough.api.futures.completed",
    "bough.api.submit.checkpoint_options": "bough.api.submit.task_options.checkpoint_options",
    "bough.driver.stages": "bough.driver.job_bundles",
    "bough.executor.failures": "bough.executor.worker.serialisation",
    "bough.model.monitors": "bough.model.monitoring.monitors",
    "bough.model.population_rules": "bough.model.monitoring.population_rules",
    "bough.sim.availability_traces": "bough.sim.platforms.availability_traces",
    "bough.sim.batch_waits": "bough.sim.platforms.batch_waits",
    "bough.sim.link_specs": "bough.sim.platforms.link_specs",
    "bough.sim.platform": "bough.sim.platforms.platform",
    "bough.sim.run_time_models": "bough.sim.models.run_time_models",
    "bough.sim.simulated_executor": "bough.sim.platforms.simulated_executor",
    "bough.sim.simulated_site": "bough.sim.platforms.simulated_site",
}


NESTED: Final = (pickle.loads.__module__, pickle.loads.__name__)  # what reads a pickle in a pickle


class Ref:
    """Stands for the n-th input value in pickled arguments until a worker puts it in."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    def __reduce__(self) -> tuple[type[Ref], tuple[int]]:
        return Ref, (self.n,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.n == self.n

    def __hash__(self) -> int:
        return hash((Ref, self.n))

    def __repr__(self) -> str:
        return f"Ref({self.n})"


def resolve(obj: Any, values: Sequence[Any]) -> Any:
    """Replace every `Ref` inside nested lists, tuples and dicts; without one the same object comes back."""
    return replaced(obj, Ref, lambda ref: values[ref.n])


def replaced(obj: Any, kind: type | tuple[type, ...], swap: Callable[[Any], Any]) -> Any:
    """Swap instances of `kind`, no primitive type, inside nested lists, tuples and dict values."""
    try:
        return _replaced(obj, kind, swap)
    except RecursionError:  # a structure that holds itself: no ref of ours can be in it
        return obj


def _replaced(obj: Any, kind: type | tuple[type, ...], swap: Callable[[Any], Any]) -> Any:
    if isinstance(obj, kind):
        return swap(obj)
    if isinstance(obj, list | tuple):
        if _ATOMS.issuperset(map(type, obj)):
            return obj
        items = [_replaced(item, kind, swap) for item in obj]
        if all(map(_is, items, obj)):
            return obj
        make = getattr(obj, "_make", None) or type(obj)  # named tuples
        return items if type(obj) is list else make(items)
    if isinstance(obj, dict) and not _ATOMS.issuperset(map(type, obj.values())):
        news = {key: _replaced(value, kind, swap) for key, value in obj.items()}
        changed = {key: new for key, new in news.items() if new is not obj[key]}
        if changed:
            obj = obj.copy()  # keeps the kind: defaultdict, OrderedDict
            obj.update(changed)
    return obj


def _is(a: object, b: object) -> bool:
    return a is b


# --- calls ---


def pack_simple(args: tuple[Any, ...]) -> bytes | None:
    """Positional arguments as bytes; None if they are not all numbers and texts."""
    return b"s" + marshal.dumps(args, 2) if _is_simple(map(type, args)) else None


def pack_marked(args: tuple[Any, ...]) -> bytes | None:
    """The same for arguments some of which are refs; a ref is packed as a tuple, and no other argument is one."""
    if not _is_simple([kind for kind in map(type, args) if kind is not Ref]):
        return None
    return b"r" + marshal.dumps(tuple([(arg.n,) if type(arg) is Ref else arg for arg in args]), 2)


def unpack_call(packed: Any, values: Sequence[Any]) -> Call:
    """Positional and keyword arguments from bytes or a map, with values in the places of their refs."""
    if packed[0] == _SIMPLE:
        return marshal.loads(packed[1:]), {}
    if packed[0] == _WITH_REFS:
        return [values[arg[0]] if type(arg) is tuple else arg for arg in marshal.loads(packed[1:])], {}
    args, kwargs = load_pickle(packed)
    return (resolve(tuple(args), values), resolve(kwargs, values)) if values else (args, kwargs)


# --- pickles of earlier versions ---


class FormerUnpickler(pickle.Unpickler):
    """Reads pickles of earlier versions, which name modules as they were called then; also a pickle in a pickle."""

    def find_class(self, module: str, name: str) -> Any:
        """See `pickle.Unpickler`."""
        if (module, name) == NESTED:
            return load_pickle
        return super().find_class(FORMER.get(module, module), name)


def load_pickle(data: Any, buffers: Sequence[Any] = ()) -> Any:
    """As `pickle.loads`; a pickle of an earlier version is read once more with the names of now.

    `buffers` are those that lie apart, see `packed_values`.
    """
    try:
        return pickle.loads(data, buffers=buffers) if buffers else pickle.loads(data)
    except ModuleNotFoundError as error:
        if error.name not in FORMER:
            raise
        return FormerUnpickler(io.BytesIO(data), buffers=buffers).load()


# --- parts of result lists ---
