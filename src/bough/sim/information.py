"""What policies know of run times in a simulation: the information models.

- `measured`: what was measured of the template so far, by host, as live. Nothing is foreseen.
- `perfect`: how long each task will run on each host if it begins now, whatever becomes of the host's availability.
- `snapshot`: how long it would run if each host stayed as available as it was when the run began; one that a pilot
  brings, as it was when it came. Plans that are made of it grow old, as those of XSufferage in the simulations of
  Storage Affinity (`spec/storage-affinity.md` 8) do.
- a number: as perfect, but what is known of each task is off the truth, by about 30 % for 0.3.

How fast links are is measured in every model, as live. Rule: dice for errors are drawn apart from those of the run, so
that all models meet the same hosts and times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Literal, cast, get_args

from bough.errors import UserError, did_you_mean
from bough.model.bounds import shown
from bough.model.ids import Seconds
from bough.sim.platforms.simulated_executor import SimulatedExecutor
from bough.sim.platforms.simulated_site import PilotExecutor

Model = Literal["measured", "perfect", "snapshot"]
Information = Model | float
MODELS: tuple[str, ...] = get_args(Model)
_LEAST = 0.01  # of a host that was not available at all in the snapshot: some time it will be


def read_information(said: object) -> Information:
    """What is known, as people say it: a word or a number, which may be a text."""
    if isinstance(said, str) and said in MODELS:
        return cast("Model", said)
    try:
        off = float(said)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        near = did_you_mean(said, MODELS) if isinstance(said, str) else ""
        raise UserError(
            f"information is {shown(said)}; say {', '.join(MODELS)}, or how far estimates are off, as 0.3{near}"
        ) from None
    if not 0 <= off <= 10:
        raise UserError(f"estimates that are {off:g} off: say 0 to 10, where 0.1 is ten per cent")
    return off


def estimates(information: Information, seconds: Sequence[Seconds], seed: int) -> list[Seconds] | None:
    """What is expected of each task at speed 1, of which these are the true times; None: what was measured."""
    if information == "measured":
        return None
    off = 0.0 if isinstance(information, str) else information
    wrong = Random(f"estimates {seed}")
    return [length * (wrong.lognormvariate(0.0, off) if off else 1.0) for length in seconds]


class Foresight:
    """How long a task will run on a host: what `Policies.foresight` is asked.

    `expected`: what is known of each task at speed 1; `hosts`: all that have come so far; `now`: the time.
    """

    def __init__(
        self,
        information: Information,
        expected: Sequence[Seconds],
        hosts: Callable[[], Iterable[SimulatedExecutor]],
    ) -> None:
        self.now: Callable[[], Seconds] = lambda: 0.0
        self._by_snapshot = information == "snapshot"
        self._expected = expected
        self._hosts = hosts
        self._known: dict[str, SimulatedExecutor] = {}

    def __call__(self, record: int, element: int, host: str) -> Seconds:
        """How long, by the model."""
        length = self._expected[record - 1]
        if host not in self._known:
            self._known = {one.host: one for one in self._hosts()}
        executor = self._known.get(host)
        if executor is None:
            return length
        if not self._by_snapshot or executor.availability is None:
            return executor.seconds_for(length, self.now())
        seen = executor.came if isinstance(executor, PilotExecutor) else 0.0
        return length / executor.traits.speed / max(_LEAST, executor.availability.at(seen))
