"""Half-written outputs of commands whose workers were killed: found by the workers' notes, and deleted.

Rule: only for a time at which no worker of the store runs, and only what bears a hidden name is touched.
"""

from __future__ import annotations

import contextlib
import os

SUFFIX = ".hidden"  # of the notes; `bough.executor.notes` writes them
_MARK = ".bough-"


def clear(output_dir: str) -> int:
    """Delete what the notes in a store's output folder name, and the notes; how many outputs there were."""
    count = 0
    for name in _notes(output_dir):
        path = os.path.join(output_dir, name)
        with contextlib.suppress(OSError):
            with open(path, "rb") as file:
                hidden = file.read().split(b"\0")[:-1]
            count += sum(_delete(os.fsdecode(one)) for one in hidden)
            os.unlink(path)
    return count


def _notes(output_dir: str) -> list[str]:
    try:
        return [name for name in os.listdir(output_dir) if name.endswith(SUFFIX)]
    except OSError:
        return []


def _delete(path: str) -> bool:
    if not os.path.isabs(path) or not os.path.basename(path).startswith(_MARK):
        return False
    try:
        os.unlink(path)
    except IsADirectoryError:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return False
    return True
