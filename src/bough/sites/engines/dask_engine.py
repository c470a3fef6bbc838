"""Pilots as tasks of a Dask cluster: one long task each, published, so that it outlives the client that submitted it.

The user's Dask configuration counts (TLS, timeouts). Rule: a pilot is found by its name, which is the task's key; a
task whose worker died is run again by Dask elsewhere, and so is its pilot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import cloudpickle

from bough.errors import SiteError
from bough.model.texts.plurals import counted
from bough.sites.engines import worker_side
from bough.sites.engines.worker_side import Call

_PATIENCE: Final = 20.0  # seconds for a connection
_ALIVE: Final = frozenset({"waiting", "no-worker", "queued", "processing"})  # states of a task
_MOST_SAID: Final = 300  # characters


class DaskEngine:
    """See the module."""

    def __init__(self, address: str) -> None:
        from distributed import Client

        cloudpickle.register_pickle_by_value(worker_side)
        try:
            make: Any = Client  # its types say too little
            self._client: Any = make(address, timeout=_PATIENCE, set_as_default=False, name="bough")
        except (OSError, ValueError, TypeError) as error:
            problem = str(error).splitlines()[0][:_MOST_SAID] if str(error) else type(error).__name__
            raise SiteError(f"no Dask scheduler answers at {address}: {problem}", transient=True) from error
        self._address = address

    def describe(self) -> str:
        """What is there, in a few words."""
        threads = self._client.nthreads()
        size = f"{counted(len(threads), 'worker')}, {counted(sum(threads.values()), 'thread')}"
        return f"Dask answers at {self._address}: {size}"

    def look(self, call: Call) -> dict[str, Any]:
        """What kind of place a worker is."""
        workers = sorted(self._client.nthreads())
        if not workers:
            raise SiteError(f"the Dask cluster at {self._address} has no worker: start one with dask worker")
        found: dict[str, Any] = self._client.run(worker_side.look, call, workers=workers[:1])[workers[0]]
        return found

    def submit(self, name: str, call: Call, cores: float) -> None:
        """Submit a pilot, unless it was before."""
        if self._states([name])[name] is None:
            future = self._client.submit(worker_side.dask_pilot, call, key=name, pure=False)
            self._client.publish_dataset(future, name=name, override=True)

    def statuses(self, names: Sequence[str]) -> dict[str, tuple[bool, str]]:
        """Whether pilots live, and the last words of those that do not."""
        found = {}
        for name, state in self._states(names).items():
            words = "" if state in _ALIVE or state is None else self._last_words(name)
            found[name] = (state in _ALIVE, words)
        return found

    def _states(self, names: Sequence[str]) -> dict[str, str | None]:
        states: dict[str, str | None] = self._client.sync(self._client.scheduler.get_task_status, keys=list(names))
        return states

    def _last_words(self, name: str) -> str:
        """Of a pilot that has ended; Dask forgets it then."""
        try:
            words = str(self._client.get_dataset(name).result(timeout=_PATIENCE))
        except Exception as error:  # noqa: BLE001 -- whatever ended it
            words = f"Dask ended it: {error!r}"
        self._client.unpublish_dataset(name)
        return words[:_MOST_SAID]

    def cancel(self, names: Sequence[str], call: Call) -> None:
        """Take pilots back that wait, and end those that run."""
        published = set(self._client.list_datasets())
        futures = [self._client.get_dataset(name) for name in names if name in published]
        if futures:
            self._client.cancel(futures, force=True)
        if self._client.nthreads():
            self._client.run(worker_side.dask_end_pilots, call, on_error="ignore")
        for name in published.intersection(names):
            self._client.unpublish_dataset(name)

    def forget(self, call: Call) -> None:
        """Remove what is on the workers' hosts."""
        if self._client.nthreads():
            self._client.run(worker_side.forget, call, on_error="ignore")
