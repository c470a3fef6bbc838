"""Which files match a pattern now, as `model.files.matches` means it.

Rule: what is found is in order, absolute, and lies below the part of the pattern that has no star in it.
"""

from __future__ import annotations

import glob

from bough.model.files import matches


def expand(pattern: str) -> list[str]:
    """The paths that match an absolute pattern."""
    return sorted({path for path in glob.iglob(pattern, recursive=True) if matches(path, pattern)})
