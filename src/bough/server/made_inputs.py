"""Which task made an input of another, as the journal says.

Rule: only what a task depends on directly, by itself or with its array, counts; of an array all elements are looked at
once, and again when more of it has succeeded.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from bough.model.ids import RecordId
from bough.model.memo_keys import digest_of_made
from bough.model.outcomes import Output
from bough.model.tasks import ArraySpec, Dep, On, TaskSpec
from bough.server.turns.shell import Shell

_ARRAYS = 8  # of which is kept what they made


class MadeInput(NamedTuple):
    """An input of a task that another one made: who, and what."""

    record: RecordId
    element: int
    output: Output


class MadeInputs:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._made: OrderedDict[tuple[int, int, int], dict[str, MadeInput]] = OrderedDict()

    def made_for(self, reader: RecordId, index: int, path: str) -> MadeInput | None:
        """The input of a task that one of those before it made; None: none of them has, as things stand."""
        for dep in _dependencies(self._shell.queries.spec_of(reader), index):
            made = self._outputs_of(dep).get(path)
            if made is not None:
                return made
        return None

    def _outputs_of(self, dep: Dep) -> dict[str, MadeInput]:
        """What a task, or all tasks of an array, made, by path."""
        if dep.on is On.TASK:
            return {made.output.path: made for made in self.made_by(dep)}
        successes = self._shell.queries.results_of(dep)
        key = (dep.id, len(successes), max((success.turn for success in successes), default=0))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = {made.output.path: made for made in self.made_by(dep)}
            while len(self._made) > _ARRAYS:
                self._made.popitem(last=False)
        return found

    def digest_of(self, made: MadeInput) -> bytes:
        """What stands for all that the task of an input made; empty: not known."""
        for success in self._shell.queries.results_of(Dep(On.TASK, made.record, made.element)):
            at = made.element - success.start + success.source_start
            source = RecordId(success.source)
            for _, _, span in self._shell.results.successes(success.turn, source, at, at + 1):
                if span.results is None or span.stop == span.start + 1:  # else results are packed together
                    outputs = [output for detail in span.details if detail.index == at for output in detail.outputs]
                    return digest_of_made(outputs, span.results)
        return b""

    def made_by(self, dep: Dep, start: int = 0, stop: int = 1 << 62) -> list[MadeInput]:
        """What successes made, of elements from `start` to `stop`."""
        found: list[MadeInput] = []
        for success in self._shell.queries.results_of(dep):
            shift = success.start - success.source_start
            low, high = max(success.start, start), min(success.stop, stop)
            if dep.on is On.TASK:
                low, high = max(low, dep.index), min(high, dep.index + 1)
            if low >= high:
                continue
            source = RecordId(success.source)
            for first, last, span in self._shell.results.successes(success.turn, source, low - shift, high - shift):
                for detail in span.details:
                    if first <= detail.index < last:
                        element = detail.index + shift
                        found += [MadeInput(RecordId(dep.id), element, made) for made in detail.outputs]
        return found


def _dependencies(spec: TaskSpec | ArraySpec, index: int) -> list[Dep]:
    deps = list(spec.after)
    if not isinstance(spec, TaskSpec):
        deps += [dep for own_index, own in spec.element_after if own_index == index for dep in own]
    return [dep for dep in deps if not dep.is_group]
