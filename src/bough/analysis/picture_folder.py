"""The folder that pictures are written into. Rule: one that cannot be is told before anything is computed for it."""

from __future__ import annotations

import os

from bough.errors import UserError


def make_picture_folder(folder: str) -> None:
    """Make the folder if it is not there; UserError if nothing can be written into it."""
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(None, "you may not write there")
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"cannot write pictures into {folder}: {why}; name a folder that you may write to") from None
