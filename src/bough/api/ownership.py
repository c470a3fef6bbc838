"""Whose code is it: the user's own, or a library's.

Own code is followed into and travels by value; library code is known by its name and version. Rule: only
what lies beside the script or in the directory it runs in, and is not installed, is the user's own.
"""

from __future__ import annotations

import os
import sys
import sysconfig

_LIBRARIES = tuple({os.path.realpath(path) + os.sep for path in sysconfig.get_paths().values() if path})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_BEGUN = os.getcwd()  # a script that goes elsewhere still has the modules of where it began
_own: dict[str, tuple[object, bool]] = {}  # module name -> (the module, whether it is the user's)


def is_own(name: str | None) -> bool:
    """Whether a module is the user's own: `__main__`, or a source file beside the script or in the directory."""
    if name is None or name == "__main__":
        return True
    module = sys.modules.get(name)
    known = _own.get(name)
    if known is None or known[0] is not module:
        known = _own[name] = (module, module is not None and _lies_beside_script(module))
    return known[1]


def _lies_beside_script(module: object) -> bool:
    name = getattr(module, "__name__", "")
    if name in sys.builtin_module_names or name.partition(".")[0] == "bough":
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith((".py", ".pyc")):
        return False
    path = os.path.realpath(file)
    if path.startswith(_LIBRARIES) or any(part in path for part in _INSTALLED):
        return False
    places = [_BEGUN, os.getcwd()]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if isinstance(script, str):
        places.append(os.path.dirname(os.path.abspath(script)))
    return any(path.startswith(os.path.join(os.path.realpath(place), "")) for place in places)


def library(name: str | None) -> str:
    """A library module by name and, if it says so itself, version."""
    if not name:
        return ""
    version = getattr(sys.modules.get(name.partition(".")[0]), "__version__", "")
    return f"{name} {version}" if isinstance(version, str) else name
