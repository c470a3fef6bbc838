"""Paths as texts: their attributes, as pathlib has them, and the names under which files are compared and written.

Rule: no file system is asked, so that a path means the same on the client, on the server and on an executor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# --- attributes ---------------------------------------------------------------------------------------


def _pieces(path: str) -> tuple[str, list[str]]:
    """Root and components of a path, as pathlib reads it."""
    root = "/" if path.startswith("/") else ""
    if path.startswith("//") and not path.startswith("///"):
        root = "//"
    return root, [piece for piece in path.split("/") if piece and piece != "."]


def _name(path: str) -> str:
    name = path.rpartition("/")[2]
    if name and name != ".":
        return name
    pieces = _pieces(path)[1]
    return pieces[-1] if pieces else ""


def _suffix(path: str) -> str:
    name = _name(path)
    dot = name.rfind(".")
    return name[dot:] if 0 < dot < len(name) - 1 else ""


def _stem(path: str) -> str:
    name = _name(path)
    dot = name.rfind(".")
    return name[:dot] if 0 < dot < len(name) - 1 else name


def _suffixes(path: str) -> list[str]:
    name = _name(path)
    if name.endswith("."):
        return []
    return ["." + suffix for suffix in name.lstrip(".").split(".")[1:]]


def _parent(path: str) -> str:
    root, pieces = _pieces(path)
    return root + "/".join(pieces[:-1]) or "."


def _parts(path: str) -> list[str]:
    root, pieces = _pieces(path)
    return [root, *pieces] if root else pieces


OF_PATHS: dict[str, Callable[[str], Any]] = {
    "name": _name,
    "stem": _stem,
    "suffix": _suffix,
    "suffixes": _suffixes,
    "parent": _parent,
    "parts": _parts,
    "root": lambda path: _pieces(path)[0],
    "anchor": lambda path: _pieces(path)[0],
    "drive": lambda path: "",  # there are none here
}

# --- names of files -----------------------------------------------------------------------------------


def absolute(path: str, cwd: str) -> str:
    """A path as it is compared and stored: joined to `cwd`, without dots and doubled slashes."""
    whole = path if path.startswith("/") else f"{cwd}/{path}"
    if "/." not in whole and "//" not in whole and whole[-1] != "/":
        return whole
    tidy: list[str] = []
    for piece in whole.split("/"):
        if piece == "..":
            del tidy[-1:]
        elif piece and piece != ".":
            tidy.append(piece)
    return "/" + "/".join(tidy)


def hidden_path(path: str, record: int, index: int, attempt: int) -> str:
    """Where an attempt writes an output until it has succeeded: the same folder, the same suffix."""
    folder, slash, name = path.rpartition("/")
    mark = f".bough-{record}.{index}-{attempt}."
    room = 255 - len(mark)  # bytes a file system gives a name
    if len(name.encode("utf-8", "surrogateescape")) > room:
        name = name.encode("utf-8", "surrogateescape")[-room:].decode("utf-8", "ignore")
    return f"{folder}{slash}{mark}{name}"


def beside(written: str, real: str) -> str:
    """The path of `real` in the words of the user who wrote `written`: same folder, other name."""
    folder, slash, _ = written.rpartition("/")
    return folder + slash + real.rpartition("/")[2]
