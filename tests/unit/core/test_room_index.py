"""Executors with room: the first of them is the first of all, whatever happened before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.indexes.room_index import RoomIndex
from bough.model.events.facts import ExecutorJoined
from bough.model.ids import ExecutorId
from bough.model.sites.resources import Needs

NUMBERS = st.integers(1, 5)
STEPS = st.lists(st.tuples(st.sampled_from(["opened", "filled", "freed", "closed", "looked"]), NUMBERS), max_size=40)


@given(STEPS)
def test_the_first_is_the_first_of_all(steps: list[tuple[str, int]]) -> None:
    everyone = {
        number: ExecutorRecord(ExecutorJoined(ExecutorId(number), "a", f"h{number}", 1, Needs(cores=1)))
        for number in range(1, 6)
    }
    open_: dict[int, ExecutorRecord] = {}  # the longest open first
    index = RoomIndex()
    for what, number in steps:
        executor = everyone[number]
        if what == "opened":
            open_.pop(number, None)
            open_[number] = executor
            index.opened(number)
        elif what == "filled":
            executor.cores_free = 0.0
        elif what == "freed":
            executor.cores_free = 1.0
            if number in open_:
                index.got_room(number)
        elif what == "closed":
            open_.pop(number, None)
        else:
            index.first(open_)
        expected = next((one for one in open_.values() if one.cores_free > 0), None)
        assert index.first(open_) is expected
        assert next(iter(index.having(open_)), None) is expected


MORE_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["opened", "filled", "freed", "waits", "ended", "closed", "gone", "vacant", "all"]), NUMBERS
    ),
    max_size=60,
)


@given(MORE_STEPS)
def test_room_for_short_tasks_is_found_although_only_the_vacant_are_told(steps: list[tuple[str, int]]) -> None:
    """Each has a core, and a load of short tasks that it bears up to 1; `ended`: a short task has."""
    everyone = {
        number: ExecutorRecord(ExecutorJoined(ExecutorId(number), "a", f"h{number}", 1, Needs(cores=1)))
        for number in range(1, 6)
    }
    open_: dict[int, ExecutorRecord] = {}
    vacant = RoomIndex()
    index = RoomIndex(lambda executor: executor.load < 1, vacant)
    for what, number in steps:
        executor = everyone[number]
        if what == "opened":
            open_.pop(number, None)
            open_[number] = executor
            vacant.opened(number)
            index.opened(number)
        elif what == "filled":  # a long task
            executor.cores_free, executor.load = 0.0, 1.0
        elif what == "waits":  # a short one
            executor.cores_free, executor.load = 0.0, executor.load + 0.5
        elif what in {"freed", "ended"}:
            executor.cores_free, executor.load = (1.0, 0.0) if what == "freed" else (0.0, 0.5)
            if number in open_:
                vacant.got_room(number)
        elif what in {"closed", "gone"}:
            open_.pop(number, None)
            if what == "gone":
                vacant.forget(number)
                index.forget(number)
        elif what == "vacant":
            assert vacant.first(open_) is next((one for one in open_.values() if one.cores_free > 0), None)
        else:
            roomy = [one for one in open_.values() if one.cores_free > 0 or one.load < 1]
            assert index.first(open_) is next(iter(roomy), None)
            assert list(index.having(open_)) == roomy
            assert list(vacant.having(open_)) == [one for one in open_.values() if one.cores_free > 0]
