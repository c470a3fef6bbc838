"""The file `unfinished` of a session's store: there is work here that its script may resume.

It says which script run left it, and with which arguments. A session writes it when it has been opened, its server
deletes it when the run has ended well, and the script writes it again if it raises an error afterwards. A script that
was killed, interrupted or raised an error leaves it, and then all its runs are unfinished, also those that ended well.
Rule: it is a
hint. The runs in the journal say what counts; without the file nothing is lost but the choice between stores.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final, NamedTuple

from bough import private

FILE: Final = "unfinished"
_LONGEST: Final = 65_536  # bytes that are read


class UnfinishedNote(NamedTuple):
    """What the file says."""

    script: str  # the process that opened the session, and when that began; "": it came to its end
    arguments: str  # the script's, as one text


def write_note(store: str, note: UnfinishedNote) -> None:
    """Write it; without space it is left out."""
    text = "\n".join(note).encode("utf-8", "surrogateescape")
    with contextlib.suppress(OSError), open(os.path.join(store, FILE), "wb", opener=private.opener) as file:
        file.write(text)


def read_note(store: str) -> UnfinishedNote | None:
    """What it says; None if it is not there."""
    try:
        with open(os.path.join(store, FILE), encoding="utf-8", errors="surrogateescape") as file:
            script, _, arguments = file.read(_LONGEST).partition("\n")
    except OSError:
        return None
    return UnfinishedNote(script, arguments)


def remove_note(store: str) -> None:
    """The run ended well."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(store, FILE))
