"""A folder for one executor's life: for sandboxes, for what was brought to it, for outputs that the server cannot see.

It lies in the folder that the executor was given (`--work`), in `$XDG_CACHE_HOME/bough`, or where temporary files go.
Rule: it is locked as long as its executor lives and removed when that ends; those of executors that were killed are
removed by the next one that uses the same place.
"""

from __future__ import annotations

import os

from bough import private


class Room:
    """See the module. Nothing is made before it is opened. `work`: the folder that was given, or empty."""

    def __init__(self, work: str = "") -> None:
        self._work = os.path.abspath(work) if work else ""
        cache = os.environ.get("XDG_CACHE_HOME", "")
        where = self._work or (os.path.join(os.path.abspath(cache), "bough") if cache else "")
        self._temporary = private.TemporaryFolder("executor", where)

    @property
    def folder(self) -> str:
        """Where it is, or will be."""
        return self._temporary.path

    def open(self) -> None:
        """Make it, if it is not there; OSError or SiteError when that cannot be done."""
        self._temporary.make()

    def folders(self) -> tuple[str, str]:
        """Folders for outputs and results that the server cannot see; in a place that was named they stay."""
        if not self._work:
            self.open()
        out, results = (os.path.join(self._work or self.folder, name) for name in ("out", "results"))
        return out, results

    def close(self) -> None:
        """Remove it."""
        self._temporary.remove()
