"""Where a submitter's files lie in a sandbox: its directory is the sandbox, all else lies in one folder of it.

Rule: whatever a path says, its place is inside of the sandbox; only whole, tidy, absolute paths have one.
"""

from __future__ import annotations

from bough.model.paths import absolute

OUTSIDE = ".outside"  # the folder for files from outside of the submitter's directory


def is_tidy(path: str) -> bool:
    """Whether a path is absolute and holds nothing that leads elsewhere."""
    return path.startswith("/") and len(path) > 1 and "\0" not in path and absolute(path, "/") == path


def place_inside(path: str, directory: str) -> str:
    """Where an absolute path of the submitter lies, relative to the sandbox; ValueError when it has no place."""
    if path == directory:
        return "."
    if not is_tidy(path):
        raise ValueError(f"{path!r} is not a path that can have a place in a sandbox")
    root = directory.rstrip("/")
    if path.startswith(root + "/"):
        return path[len(root) + 1 :]
    return OUTSIDE + path


def leads_outside(text: str, cwd: str, directory: str) -> bool:
    """Whether a path as a user wrote it means something else inside of a sandbox than at the submitter."""
    if text.startswith("/"):
        return True
    depth = cwd.rstrip("/")[len(directory.rstrip("/")) :].count("/") if is_below(cwd, directory) else 0
    for piece in text.split("/"):
        if piece == "..":
            depth -= 1
            if depth < 0:
                return True
        elif piece and piece != ".":
            depth += 1
    return False


def is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
