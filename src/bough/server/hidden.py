"""Half-written outputs of commands whose workers were killed: found by the workers' notes, and deleted.

So are big results that were cut short. Rule: only for a time at which no worker of the store runs, or after a time in
which none would take so long, and only what bears a hidden name is touched.
"""

from __future__ import annotations

import contextlib
import os
import time

SUFFIX = ".hidden"  # of the notes; `bough.executor.notes` writes them
_MARK = ".bough-"
_PART = ".part"  # as `bough.executor.results` names them


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


def clear_results(result_dir: str, older_than: float = 0.0) -> int:
    """Delete half-written results that were last written so many seconds ago; how many there were."""
    count = 0
    with contextlib.suppress(OSError):
        for name in os.listdir(result_dir):
            if not (name.startswith(".") and name.endswith(_PART)):
                continue
            path = os.path.join(result_dir, name)
            with contextlib.suppress(OSError):
                if time.time() - os.stat(path).st_mtime >= older_than:
                    os.unlink(path)
                    count += 1
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
