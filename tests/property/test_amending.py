"""Random workflows, changed at random while they run: in the end all of the new one is done, each task after others."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from bough.core.records.array_record import DONE
from bough.model.events import news
from bough.model.tasks import Dep, On
from tests.unit.core.amending_bench import WORKFLOW, Flow

_GROUPS = ("g", "h", "g/i")
_TASKS = ("a", "b", "c", "g/a", "g/b", "h/a", "h/c", "g/i/a", "g/i/d")
_LIMITS = ("", "", " ; limit=8", " ; limit=9", " ; timeout=50")  # no fewer than may be out: what is out stays out
_TERMS = ("", "", "", " ; release", " ; cores=2", " ; retries=1")


@st.composite
def workflows(draw: st.DrawFn) -> tuple[str, ...]:
    """Lines in an order in which each comes after what it names; what waits for a group comes after all in it."""
    groups = [name for name in _GROUPS if draw(st.booleans())]
    groups = [name for name in groups if "/" not in name or name.rpartition("/")[0] in groups]
    tasks = [name for name in _TASKS if "/" not in name or name.rpartition("/")[0] in groups]
    lines: list[str] = []
    before: list[str] = []  # what can be waited for
    for block in draw(st.permutations(["", *[name for name in groups if "/" not in name]])):
        inside = [name for name in groups if name == block or name.startswith(f"{block}/")] if block else []
        for group in inside:
            lines.append(f"{group}/{_after(draw, before)}{draw(st.sampled_from(_LIMITS))}")
        own: list[str] = []
        for task in [name for name in tasks if name.rpartition("/")[0] in (inside or [""])]:
            if draw(st.booleans()):
                command = f" = {draw(st.sampled_from('xyz'))}" if draw(st.booleans()) else ""
                lines.append(f"{task}{command}{_after(draw, before + own)}{draw(st.sampled_from(_TERMS))}")
                own.append(task)
        before += own + [f"{group}/" for group in inside]
    return tuple(lines)


def _after(draw: st.DrawFn, names: list[str]) -> str:
    some = draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []
    return f" < {', '.join(some)}" if some else ""


@settings(max_examples=200, deadline=None)
@given(old=workflows(), new=workflows(), newer=workflows(), data=st.data())
def test_a_changed_workflow_ends_as_the_new_one_would(
    old: tuple[str, ...], new: tuple[str, ...], newer: tuple[str, ...], data: DataObject
) -> None:
    flow = Flow(*old, cores=3)
    ended: list[int] = []  # records in the order of their ends
    for lines in (new, newer):
        _go_on(flow, ended, data)
        if flow.is_over:
            break
        said = flow.amend(*lines)
        assert flow.difference(*lines).is_empty
        assert sorted(flow.ids.values()) == sorted(said.ids)
    flow.bench.tell(news.Release(Dep(On.GROUP, WORKFLOW)))
    while spans := list(flow.bench.machine.state.spans.values()):
        ended.append(spans[0].record.id)
        flow.bench.end(spans[0].record.id)
    assert set(flow.states.values()) <= {"done", "failed", "skipped", "cancelled"}
    assert flow.is_over
    last = {record: at for at, record in enumerate(ended)}
    for record in flow.bench.machine.state.records.values():
        for dep in record.spec.after:
            if not dep.is_group and record.state_of(0) == DONE:
                assert last[dep.id] < last[record.id]


DEEDS = [news.Hold, news.Cancel, news.Kill, news.Retry, partial(news.Reset, cascade=True)]


def _go_on(flow: Flow, ended: list[int], data: DataObject) -> None:
    for _ in range(data.draw(st.integers(0, 6))):
        if flow.ids and not data.draw(st.integers(0, 4)):
            record = data.draw(st.sampled_from(sorted(flow.ids.values())))
            flow.bench.tell(data.draw(st.sampled_from(DEEDS))(Dep(On.TASK, record)))
            continue
        spans = list(flow.bench.machine.state.spans.values())
        if not spans:
            return
        record = data.draw(st.sampled_from(spans)).record.id
        match data.draw(st.sampled_from(["end", "end", "end", "start", "fail"])):
            case "end":
                ended.append(record)
                flow.bench.end(record)
            case "start":
                flow.bench.start(record)
            case "fail":
                flow.bench.fail(record)
