"""Texts that can be sent: file names that are not UTF-8 come as texts that cannot.

Rule: such a text is refused where the user gives it, for one that is found on the way out spoils what is sent with it.
"""

from __future__ import annotations

from bough.errors import InvalidWorkload


def check_sendable(what: str, text: str) -> None:
    """Refuse a text that is not valid Unicode; `what` names it."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise unsendable(what, text) from None


def unsendable(what: str, text: str) -> InvalidWorkload:
    """What to say of a text that is not valid Unicode."""
    return InvalidWorkload(f"{what} holds {text!r:.100}, which is not valid Unicode; rename the file, or choose others")
