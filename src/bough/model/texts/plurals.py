"""Numbers with their nouns, as messages say them: "1 task", "3 tasks".

Rule: what may be one is said through `counted`, so that nobody reads "1 tasks".
"""

from __future__ import annotations


def counted(number: float, noun: str, nouns: str = "") -> str:
    """A number with its noun; `nouns` says what several are called, if not with an s."""
    shown = str(number) if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun if number == 1 else nouns or noun + 's'}"
