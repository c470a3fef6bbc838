"""Pilots as actors of a Ray cluster: detached, so that they outlive the driver that made them, and found by name.

Rule: a pilot holds as many of Ray's processors as its executor uses; an actor whose worker died is not started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bough.errors import SiteError
from bough.model.texts.plurals import counted
from bough.sites.engines import worker_side
from bough.sites.engines.worker_side import Call

_NAMESPACE: Final = "bough"
_PATIENCE: Final = 60.0  # seconds for a worker to begin and to answer
_ANSWER: Final = 5.0  # seconds for an actor that runs to answer
_ENDING: Final = 20.0  # seconds for an actor to end its executor
_MOST_SAID: Final = 300  # characters


class RayEngine:
    """See the module."""

    def __init__(self, address: str) -> None:
        import ray

        ray.cloudpickle.register_pickle_by_value(worker_side)
        self._ray = ray
        self._address = address
        try:
            ray.init(address=address, namespace=_NAMESPACE, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            problem = str(error).strip().splitlines()[0][:_MOST_SAID] if str(error).strip() else type(error).__name__
            raise SiteError(f"no Ray cluster answers at {address}: {problem}", transient=True) from error

    def describe(self) -> str:
        """What is there, in a few words."""
        cpus = self._ray.cluster_resources().get("CPU", 0)
        return f"Ray answers at {self._address}: {counted(len(self._nodes()), 'node')}, {cpus:g} processors"

    def _nodes(self) -> list[str]:
        return [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]

    def look(self, call: Call) -> dict[str, Any]:
        """What kind of place a worker is."""
        task = self._ray.remote(num_cpus=0)(worker_side.look).remote(call)
        try:
            found: dict[str, Any] = self._ray.get(task, timeout=_PATIENCE)
        except self._ray.exceptions.GetTimeoutError:
            raise SiteError(f"no worker of Ray at {self._address} has begun within {_PATIENCE:g} s") from None
        return found

    def submit(self, name: str, call: Call, cores: float) -> None:
        """Make the actor of a pilot, unless it is there."""
        if self._actor(name) is None:
            options = {"name": name, "namespace": _NAMESPACE, "lifetime": "detached", "num_cpus": cores}
            kind = self._ray.remote(worker_side.RayPilot)
            kind.options(**options, max_restarts=0, max_concurrency=4).remote(call)

    def _actor(self, name: str) -> Any:
        try:
            return self._ray.get_actor(name, namespace=_NAMESPACE)
        except ValueError:
            return None

    def statuses(self, names: Sequence[str]) -> dict[str, tuple[bool, str]]:
        """Whether pilots live, and the last words of those that do not."""
        actors = {name: self._actor(name) for name in names}
        asked = {name: actor.status.remote() for name, actor in actors.items() if actor is not None}
        if asked:
            self._ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ANSWER)
        found = {}
        for name in names:
            alive, words = self._status(asked[name]) if name in asked else (False, "")
            if not alive and actors[name] is not None:
                self._ray.kill(actors[name])
            found[name] = (alive, words[:_MOST_SAID])
        return found

    def _status(self, asked: Any) -> tuple[bool, str]:
        try:
            alive, words = self._ray.get(asked, timeout=0.01)
        except self._ray.exceptions.GetTimeoutError:
            return True, ""  # it has not begun: there is no room for it yet
        except self._ray.exceptions.RayError as error:
            return False, f"Ray ended it: {str(error).strip().splitlines()[0]}"
        return bool(alive), str(words)

    def cancel(self, names: Sequence[str], call: Call) -> None:
        """End pilots, also those that have not begun."""
        actors = [actor for actor in map(self._actor, names) if actor is not None]
        ended = [actor.end.remote(call) for actor in actors]
        if ended and self._some_run(actors):
            self._ray.wait(ended, num_returns=len(ended), timeout=_ENDING)
        for actor in actors:
            self._ray.kill(actor)

    def _some_run(self, actors: Sequence[Any]) -> bool:
        ready, _ = self._ray.wait([actor.status.remote() for actor in actors], num_returns=1, timeout=_ANSWER)
        return bool(ready)

    def forget(self, call: Call) -> None:
        """Remove what is on the nodes."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        kind = self._ray.remote(num_cpus=0)(worker_side.forget)
        tasks = []
        for node in self._nodes():
            where = NodeAffinitySchedulingStrategy(node_id=node, soft=True)
            tasks.append(kind.options(scheduling_strategy=where).remote(call))
        self._ray.wait(tasks, num_returns=len(tasks), timeout=_PATIENCE)
