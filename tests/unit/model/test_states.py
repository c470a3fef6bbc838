"""The table of edges: every pair of state and trigger, and the machine's own copy of it."""

from __future__ import annotations

import itertools

import pytest

from bough.core.graph.submission import add_array, add_task
from bough.core.records.array_record import ArrayRecord
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.errors import InvalidTransition
from bough.model.states import (
    BEFORE,
    EDGES,
    ENDED,
    LABELS,
    OCCUPYING,
    OPEN,
    PENDING,
    UNSUCCESSFUL,
    WORDS,
    TaskState,
    Trigger,
    as_bytes,
    counts_of,
    labels_of,
)
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import array, task

MOVES = list(itertools.product(TaskState, TaskState))
LAWFUL = {(old, new) for (old, _), new in EDGES.items()}


def test_every_trigger_is_in_the_table() -> None:
    assert {trigger for _, trigger in EDGES} == set(Trigger)


def test_sets_of_states_are_the_same_in_bytes_and_in_words() -> None:
    assert as_bytes(OCCUPYING) == b"\x03\x04"
    assert labels_of(UNSUCCESSFUL) == ("failed", "skipped", "cancelled")
    assert labels_of(OCCUPYING) == ("ready", "running")  # people do not see "placed"
    assert set(TaskState) == OPEN | ENDED
    assert not OPEN & ENDED


def test_every_state_can_be_reached_from_waiting() -> None:
    reached = {TaskState.WAITING}
    while more := {new for (old, _), new in EDGES.items() if old in reached} - reached:
        reached |= more
    assert reached == set(TaskState)


def test_every_trigger_is_used() -> None:
    assert {trigger for _, trigger in EDGES} == set(Trigger)


def test_from_every_state_that_has_not_ended_an_end_can_be_reached() -> None:
    for state in set(TaskState) - ENDED:
        reached = {state}
        while more := {new for (old, _), new in EDGES.items() if old in reached} - reached:
            reached |= more
        assert TaskState.DONE in reached
        assert TaskState.CANCELLED in reached


def test_what_is_done_can_only_be_reset() -> None:
    assert [trigger for state, trigger in EDGES if state is TaskState.DONE] == [Trigger.RESET]


def test_what_ended_badly_can_only_be_revived() -> None:
    for state in UNSUCCESSFUL:
        assert [trigger for old, trigger in EDGES if old is state] == [Trigger.REVIVE]


def test_the_sets_of_states_cover_all_and_do_not_overlap() -> None:
    assert set(TaskState) == PENDING | OCCUPYING | ENDED
    assert len(PENDING) + len(OCCUPYING) + len(ENDED) == len(TaskState)
    assert {TaskState.DONE} == ENDED - UNSUCCESSFUL


def test_only_what_occupies_an_executor_can_succeed_or_fail() -> None:
    for (state, trigger), _ in EDGES.items():
        if trigger in {Trigger.SUCCEED, Trigger.FAIL, Trigger.RETRY_LATER, Trigger.GIVE_BACK}:
            assert state in OCCUPYING


def test_the_bytes_of_the_hot_paths_are_the_table() -> None:
    for new in TaskState:
        assert set(BEFORE[new]) == {int(old) for old, later in LAWFUL if later is new}


@pytest.mark.parametrize("kind", ["task", "array"])
@pytest.mark.parametrize(("old", "new"), MOVES, ids=lambda value: value.name)
def test_the_state_moves_records_along_the_table_only(old: TaskState, new: TaskState, kind: str) -> None:
    state = State(Policies(Fifo()))
    record: TaskRecord | ArrayRecord
    record = add_task(state, task(1)) if kind == "task" else add_array(state, array(1, 4))
    _force(state, record, old)
    if (old, new) not in LAWFUL:
        with pytest.raises(InvalidTransition, match=f"record 1 cannot go from {old.name} to {new.name}"):
            state.move(record, 0, 1, new)
        return
    state.move(record, 0, 1, new)
    assert record.state_of(0) == new
    others = record.length - 1
    assert record.group.counts[new] == 1
    assert record.group.counts[old] == others
    assert state.unfinished == (new not in ENDED) + others * (old not in ENDED)


def _force(state: State, record: TaskRecord | ArrayRecord, to: TaskState) -> None:
    count = record.length
    record.group.counts[0] -= count
    record.group.counts[to] += count
    if isinstance(record, ArrayRecord):
        record.states[:] = bytes((to,)) * count
        record.counts[0] -= count
        record.counts[to] += count
    else:
        record.state = to
    if to in ENDED:
        state.unfinished -= count
        record.group.unfinished -= count


def test_one_unlawful_element_forbids_the_move_of_a_range() -> None:
    state = State(Policies(Fifo()))
    record = add_array(state, array(1, 4))
    state.move(record, 0, 2, TaskState.READY)
    with pytest.raises(InvalidTransition, match="cannot go from READY, WAITING to RUNNING"):
        state.move(record, 1, 4, TaskState.RUNNING)


def test_labels_are_the_words_people_see() -> None:
    assert [state.label for state in TaskState] == (
        ["waiting", "held", "ready", "ready", "running", "done", "failed", "skipped", "cancelled"]
    )


def test_people_see_eight_words() -> None:
    assert set(WORDS) == set(LABELS) == {
        "waiting", "ready", "running", "done", "failed", "skipped", "cancelled", "held",
    }  # fmt: skip
    assert counts_of([1, 2, 4, 8, 16, 32, 64, 128, 256]) == {
        "waiting": 1, "held": 2, "ready": 12, "running": 16, "done": 32, "failed": 64, "skipped": 128, "cancelled": 256,
    }  # fmt: skip
