"""Models that are asked once for a span: the same times as task by task, and far fewer questions."""

from __future__ import annotations

from random import Random

import pytest

from bough.core.machine import Machine
from bough.errors import UserError
from bough.model.events.facts import Placed, SpanEnded, Submitted
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.sim.models.run_time_models import ElementTimes, EqualTimes
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, Model, SimulatedExecutor
from bough.sim.simulation import Simulation
from bough.testing.builders import array, needs

TASKS = 2000


class Counted(ElementTimes):
    """Element times that know how often they were asked, and may say nothing of spans."""

    def __init__(self, seconds: list[float], *, of_spans: bool = True) -> None:
        super().__init__(seconds)
        self.tasks_asked = self.spans_asked = 0
        self._of_spans = of_spans

    def __call__(self, spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits, /) -> Fate:
        self.tasks_asked += 1
        return super().__call__(spec, index, attempt, where)

    def of_span(  # type: ignore[override] # as the protocol allows
        self, spec: TaskSpec | ArraySpec, start: int, stop: int, attempt: int, where: ExecutorTraits, /
    ) -> float | None:
        self.spans_asked += 1
        return super().of_span(spec, start, stop, attempt, where) if self._of_spans else None


def run(model: Model, tasks: int = TASKS) -> Simulation:
    executors = [SimulatedExecutor(number, needs(1), 0.5 * number) for number in range(1, 5)]
    simulation = Simulation(Machine(load_policies("fifo")), model, executors)
    simulation.at(0.0, Submitted([array(1, tasks)]))
    simulation.run()
    simulation.check_complete()
    return simulation


def written(simulation: Simulation) -> list[object]:
    return [fact for _, _, facts in simulation.journal for fact in facts if isinstance(fact, Placed | SpanEnded)]


def some_seconds() -> list[float]:
    dice = Random(3)
    return [dice.randrange(1024, 2048) / 2**20 for _ in range(TASKS)]  # sums of them are exact


def test_a_span_takes_as_long_as_its_elements() -> None:
    whole, single = run(Counted(some_seconds())), run(Counted(some_seconds(), of_spans=False))
    assert whole.now == pytest.approx(single.now, rel=1e-9)
    assert len(written(whole)) == len(written(single))
    for executor in (1, 2, 3, 4):
        assert whole._executors[executor].busy == pytest.approx(single._executors[executor].busy, rel=1e-9)


def test_a_model_is_asked_once_for_a_span() -> None:
    model = Counted(some_seconds())
    spans = [fact for fact in written(run(model)) if isinstance(fact, Placed)]
    assert model.spans_asked == sum(span.stop - span.start > 1 for span in spans) > 0
    assert model.tasks_asked == sum(span.stop - span.start == 1 for span in spans)
    assert max(span.stop - span.start for span in spans) > 10  # they are long


def test_equal_times_are_those_of_a_function() -> None:
    def alike(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(1 / 512)

    assert run(EqualTimes(1 / 512)).now == pytest.approx(run(alike).now, rel=1e-9)


def test_no_times_are_refused() -> None:
    with pytest.raises(UserError, match="no run times"):
        ElementTimes([])
