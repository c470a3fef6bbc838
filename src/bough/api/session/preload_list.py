"""Which modules a session's workers import before the first function asks for them (see `executor.slots.preloader`).

They are those that the script has imported and that are not its own: what stands beside the script travels by value.
`Session(preload=False)` or `BOUGH_PRELOAD=0` switches it off; a list of names says which.

Rule: never `__main__`, nothing of the standard library (it is there soon enough), of Bough, or of what runs scripts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable

from bough.errors import WrongType
from bough.model.bounds import shown

SWITCH = "BOUGH_PRELOAD"  # the user's
VARIABLE = "BOUGH_MODULES"  # by which the executor is told
_MOST = 100_000  # characters: the kernel takes 131,072 in one variable
_LEAST_PATIENCE, _MOST_PATIENCE = 0.5, 30.0  # seconds of processor time
# What is loaded because of us, or because of what runs the script: a notebook, a test runner, a debugger.
_OTHERS = frozenset(
    {
        "__main__",
        "bough",
        "msgspec",
        "cloudpickle",
        "uvloop",
        "typing_extensions",
        "rich",
        "typer",
        "cyclopts",
        "textual",
        "sitecustomize",
        "usercustomize",
        "pytest",
        "_pytest",
        "pluggy",
        "iniconfig",
        "hypothesis",
        "xdist",
        "coverage",
        "IPython",
        "ipykernel",
        "jupyter_client",
        "jupyter_core",
        "zmq",
        "tornado",
        "traitlets",
        "comm",
        "debugpy",
        "pydevd",
        "pip",
        "setuptools",
        "pkg_resources",
        "_distutils_hack",
        "_virtualenv",
    }
)


def preload_words(given: object) -> str:
    """What an executor is told: seconds of processor time that imports may take, and modules; empty: nothing."""
    if given is None:
        given = os.environ.get(SWITCH) not in {"0", "off", "no", "false"}
    if isinstance(given, bool):
        names = _imported() if given else []
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        names = [name for name in given if isinstance(name, str) and name and not set(name) & set(" \t\n\0")]
    else:
        raise WrongType(f"preload is {shown(given)}; give True, False or a list of modules")
    # A script that has taken a second of processor time so far cannot have imported for longer.
    patience = min(_MOST_PATIENCE, max(_LEAST_PATIENCE, 2 * time.process_time()))
    words, size = [f"{patience:.2f}"], 0
    for name in names:
        size += len(name) + 1
        if size < _MOST:
            words.append(name)
    return " ".join(words) if len(words) > 1 else ""


def _imported() -> list[str]:
    """What the script has imported so far, in that order."""
    found: list[str] = []
    passed_over = sys.stdlib_module_names | _OTHERS
    beside = _own_places()
    verdicts: dict[str, bool] = {}
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        wanted = verdicts.get(package)
        if wanted is None:
            wanted = package not in passed_over and _is_from_elsewhere(sys.modules.get(package), beside)
            verdicts[package] = wanted
        if wanted and getattr(module, "__spec__", None) is not None:
            found.append(name)
    return found


def _own_places() -> tuple[str, ...]:
    """Where the user's own modules lie, which travel by value: beside the script, and in the directory."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [os.getcwd(), *([os.path.dirname(os.path.abspath(script))] if isinstance(script, str) else [])]
    return tuple(os.path.join(folder, "") for folder in folders)


def _is_from_elsewhere(module: object, beside: tuple[str, ...]) -> bool:
    """Whether a module is not the user's own; one that is built in needs no import."""
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    if not isinstance(file, str) or not file:
        return False
    return any(part in file for part in ("site-packages", "dist-packages")) or not file.startswith(beside)
