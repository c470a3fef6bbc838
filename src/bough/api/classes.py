"""Classes of the script in what is sent and what comes back: a value that returns is of the class the script has.

cloudpickle sends a class along with its instances. Read back as it is, the copy would be written over the
script's own class, or, in a later run, be another class of the same name. Rules: a class of the script is
named in pickles by its place and content, so that all runs name it alike; one that is here is never changed.
"""

from __future__ import annotations

import io
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as inside

from bough.api.digests import digest
from bough.api.ownership import is_own

_MARK = b"_make_skeleton_"  # in every pickle that holds a class
_PREFIX = "bough"

_named: weakref.WeakSet[type] = weakref.WeakSet()


class ScriptPickler(cloudpickle.Pickler):  # type: ignore[misc] # it has no types
    """cloudpickle's, with names for classes that other runs give them too."""

    def reducer_override(self, obj: Any) -> Any:
        """Name a class before it is pickled."""
        if isinstance(obj, type) and obj not in _named:
            _name(obj)
        return super().reducer_override(obj)


def dumps(obj: object) -> bytes:
    """Pickle so that nothing of the user's own modules is needed to read it."""
    with io.BytesIO() as file:
        ScriptPickler(file, 5).dump(obj)
        return file.getvalue()


def loads(data: Any) -> Any:
    """Read a pickle, bytes or a map of a file, with the classes that are here."""
    if data.find(_MARK) < 0:
        return pickle.loads(data)
    return _Unpickler(io.BytesIO(data) if isinstance(data, bytes) else data).load()


def _name(kind: type) -> None:
    _named.add(kind)
    module, name = kind.__module__, kind.__qualname__
    if is_own(module) and _find(module, name) is kind:
        content = digest(kind, None)
        if content is not None:
            inside._lookup_class_or_track(f"{_PREFIX}:{module}:{name}:{content.hex()}", kind)


def _find(module: str, name: str) -> object:
    """What has a name in a module now; None if nothing."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _here(tracker: object) -> type | None:
    """The class that a name in a pickle means, if it is here already."""
    if not isinstance(tracker, str):
        return None
    if tracker.startswith(f"{_PREFIX}:"):
        _, module, name, _ = tracker.split(":")
        found = _find(module, name)
        if isinstance(found, type):
            return found
    known: type | None = inside._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
    return known


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._made: set[int] = set()  # ids of classes that this pickle brought

    def find_class(self, module: str, name: str) -> Any:
        if module == inside.__name__:
            if name == "_make_skeleton_class":
                return lambda *args: self._class(inside._make_skeleton_class, args, args[4])
            if name == "_make_skeleton_enum":
                return lambda *args: self._class(inside._make_skeleton_enum, args, args[5])
            if name == "_class_setstate":
                return self._set_state
        return super().find_class(module, name)

    def _class(self, make: Callable[..., type], args: tuple[Any, ...], tracker: object) -> type:
        found = _here(tracker)
        if found is None:
            found = make(*args)
            self._made.add(id(found))
        return found

    def _set_state(self, kind: type, state: Any) -> type:
        if id(kind) in self._made:
            inside._class_setstate(kind, state)
        return kind
