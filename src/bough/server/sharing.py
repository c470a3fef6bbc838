"""Whether this machine sees a submitter's directory.

Rule: it does if the token file that the client wrote is there with its content; that a path of that name exists
proves nothing.
"""

from __future__ import annotations


def sees_directory(directory: str, token: str) -> bool:
    """Whether `.bough/token` in a directory holds a token."""
    if not directory or not token:
        return False
    try:
        with open(f"{directory}/.bough/token", encoding="utf-8") as file:
            return file.read(200).strip() == token
    except (OSError, UnicodeDecodeError):
        return False
