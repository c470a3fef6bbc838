"""What is refused, in which words, and that nothing of it is stored."""

from __future__ import annotations

import msgspec
import pytest

from bough.model.events.news import GroupClosed, PagesAdded
from bough.model.events.orders import Refuse
from bough.model.ids import BlobId, GroupId, RecordId
from bough.model.tasks import Dep, Page
from bough.testing.builders import array, group, on_array, on_element, on_group, submit, task
from tests.unit.core.core_bench import Bench, on


@pytest.mark.parametrize(
    ("dep", "message"),
    [
        (on(9), "task 5 depends on 9, which does not exist"),
        (on_array(9), "task 5 depends on 9, which does not exist"),
        (on_group(9), "task 5 depends on group 9, which does not exist"),
        (on_element(2, 3), "task 5 depends on task 2.3, but 2 has 3 tasks"),
        (on_element(2, -1), "task 5 depends on task 2.-1, but 2 has 3 tasks"),
        (on_element(1, 1), "task 5 depends on task 1.1, but 1 has 1 task"),
        (on_element(3, 0), "task 5 depends on task 3.0, but 3 has 0 tasks"),
        (on_group(0), "task 5 cannot depend on the whole workflow it is part of"),
        (on(5), "task 5 depends on itself"),
        (on_array(5), "task 5 depends on itself"),
    ],
)
def test_a_dependency_on_nothing_is_refused(dep: Dep, message: str) -> None:
    bench = Bench()
    bench.submit(task(1), array(2, 3), array(3, 0))
    assert bench.refuse(task(4), task(5, dep)) == message
    assert 4 not in bench.machine.state.records


@pytest.mark.parametrize("dep", [on(9), on_group(9), on_element(1, 5)])
def test_dependencies_of_elements_and_groups_are_checked_too(dep: Dep) -> None:
    bench = Bench()
    bench.submit(task(1))
    assert "array 2 depends on" in bench.refuse(array(2, 2, element_after=((0, (dep,)),)))
    assert "group g depends on" in bench.refuse(group(1, "g", 0, dep))


def test_names_are_used_where_there_are_any() -> None:
    assert Bench().refuse(task(1, 1, name="plot")) == "plot depends on itself"


def test_dependencies_of_elements_that_are_not_there_are_refused() -> None:
    bench = Bench()
    bench.submit(task(1))
    message = bench.refuse(array(2, 3, element_after=((3, (on(1),)),)))
    assert message == "array 2 has dependencies for an element 3, but has 3 tasks"


def test_a_negative_length_is_refused() -> None:
    assert Bench().refuse(array(1, -1)) == "array 1 cannot have -1 tasks"


def test_ids_are_given_once() -> None:
    bench = Bench()
    bench.submit(task(1), group(1, "g"))
    assert bench.refuse(task(1)) == "the id 1 is taken"
    assert bench.refuse(array(1, 2)) == "the id 1 is taken"
    assert bench.refuse(task(2), task(2)) == "the id 2 is taken"
    assert bench.refuse(group(1, "h")) == "the group id 1 is taken"
    assert bench.refuse(group(2, "h"), group(2, "i")) == "the group id 2 is taken"


def test_siblings_have_different_names() -> None:
    bench = Bench()
    bench.submit(group(1, "g"))
    problem = "there is a group 'g' already in the same place; choose another name"
    assert bench.refuse(group(2, "g")) == problem
    assert bench.refuse(group(2, "h", 1), group(3, "h", 1)) == problem.replace("'g'", "'h'")
    bench.submit(group(2, "g", 1))


def test_groups_must_be_there_and_open() -> None:
    bench = Bench()
    bench.submit(group(1, "g"))
    assert bench.refuse(task(1, group=9)) == "task 1: there is no group 9"
    assert bench.refuse(group(2, "h", 9)) == "group h: there is no group 9 to put it in"
    bench.tell(GroupClosed(GroupId(1)))
    assert bench.refuse(task(1, group=1)) == "task 1: group g is closed; nothing can be added to it"
    assert bench.refuse(group(2, "h", 1)) == "group g is closed; nothing can be added to it"


def test_pages_must_follow_each_other_and_hold_all_rows() -> None:
    bench = Bench()
    paged = msgspec.structs.replace(array(1, 4), table=BlobId(b""))

    def with_pages(*bounds: tuple[int, int]) -> str:
        return bench.refuse(msgspec.structs.replace(paged, pages=tuple(Page(a, b, b"") for a, b in bounds)))

    assert with_pages((0, 2), (3, 4)) == "array 1: its pages do not follow each other at 2"
    assert with_pages((0, 2)) == "array 1: its pages hold 2 rows, not 4"
    assert with_pages() == "array 1: its pages hold 0 rows, not 4"


def test_pages_are_added_only_to_open_arrays_and_only_at_the_end() -> None:
    bench = Bench()
    bench.submit(task(1), array(2, 2), msgspec.structs.replace(array(3, 0), table=BlobId(b""), open=True))
    for id_, start, message in [
        (9, 0, "there is no array 9"),
        (1, 0, "there is no array 1"),
        (2, 2, "array 2 is complete and takes no more tasks"),
        (3, 1, "array 3: the next page must begin at 0, not at 1"),
    ]:
        turn = bench.tell(PagesAdded(RecordId(id_), [Page(start, start + 1, b"")], request=4))
        assert turn.facts == []
        assert turn.orders == [Refuse(4, message)]


def test_a_refusal_does_not_stop_the_rest_of_the_turn() -> None:
    bench = Bench()
    turn = bench.tell(submit(task(1, 1), request=1), submit(task(1), request=2))
    assert [order.request for order in turn.orders if isinstance(order, Refuse)] == [1]
    assert bench.state(1) == "placed"


# --- cycles -------------------------------------------------------------------------------------------


def test_a_cycle_within_a_batch_is_named_element_by_element() -> None:
    message = Bench().refuse(task(1, 3), task(2, 1), task(3, 2))
    assert message == "cycle: task 1 -> task 3 -> task 2 -> task 1; a task cannot wait for itself"


def test_a_cycle_is_named_without_what_leads_to_it() -> None:
    message = Bench().refuse(task(1, 2), task(2, 3, name="b"), task(3, 2, name="c"), task(4))
    assert message == "cycle: b -> c -> b; a task cannot wait for itself"


def test_a_cycle_through_arrays_and_elements_is_found() -> None:
    message = Bench().refuse(array(1, 2, element_after=((1, (on(2),)),)), task(2, on_array(1)))
    assert message == "cycle: array 1 -> task 2 -> array 1; a task cannot wait for itself"


def test_a_task_cannot_wait_for_its_own_group() -> None:
    bench = Bench()
    assert bench.refuse(group(1, "g"), task(1, on_group(1), group=1)).startswith("cycle: task 1 -> group g -> task 1;")
    bench.submit(group(1, "g"), group(2, "sub", 1))
    assert "group g" in bench.refuse(task(1, on_group(1), group=2))


def test_a_group_cannot_wait_for_itself_or_for_what_is_around_it() -> None:
    assert Bench().refuse(group(1, "g", 0, on_group(1))).startswith("cycle: group g;")
    assert Bench().refuse(group(1, "g"), group(2, "sub", 1, on_group(1))).startswith("cycle: ")


@pytest.mark.parametrize("number", [1, 2, 9])
def test_a_group_cannot_wait_for_what_is_in_it(number: int) -> None:
    message = Bench().refuse(group(number, "g", 0, on(5)), task(5, group=number))
    assert message.startswith("cycle: ")
    assert "task 5" in message
    assert "group g" in message


@pytest.mark.parametrize("number", [1, 9])
def test_a_cycle_through_a_task_outside_the_group_is_found(number: int) -> None:
    message = Bench().refuse(group(number, "g", 0, on(4)), task(3, group=number), task(4, 3))
    assert message.startswith("cycle: ")
    assert "task 3" in message
    assert "task 4" in message


def test_two_groups_cannot_wait_for_each_other() -> None:
    message = Bench().refuse(group(1, "a", 0, on_group(2)), group(2, "b", 0, on_group(1)))
    assert message.startswith("cycle: group a -> group b -> group a;")


def test_a_cycle_through_an_open_group_that_is_there_already_is_found() -> None:
    bench = Bench()
    bench.submit(group(1, "g"), task(1, group=1), task(2, on_group(1)))
    message = bench.refuse(task(3, 2, group=1))
    assert message == "cycle: task 3 -> task 2 -> group g -> task 3; a task cannot wait for itself"
    assert "cycle: " in bench.refuse(array(3, 2, element_after=((0, (on(2),)),), group=1))
    assert "cycle: " in bench.refuse(group(2, "sub", 1), task(3, 2, group=2))


def test_a_cycle_through_gates_of_groups_that_are_there_already_is_found() -> None:
    bench = Bench()
    bench.submit(group(1, "a"), group(2, "b", 0, on_group(1)), task(1, group=1), task(2, group=2))
    message = bench.refuse(task(3, 2, group=1))
    assert message.startswith("cycle: task 3 -> task 2 -> group b -> group a -> task 3;")


def test_what_has_ended_closes_no_cycle() -> None:
    bench = Bench()
    bench.submit(group(1, "g"), task(1), task(2, on_group(1)))
    bench.end(1)
    bench.submit(task(3, 1, group=1))
    assert bench.state(3) == "placed"


def test_a_diamond_is_no_cycle() -> None:
    bench = Bench()
    bench.submit(task(4, 2, 3), task(3, 1), task(2, 1), task(1))
    bench.end_all()
    assert bench.states(1, 2, 3, 4) == ["done"] * 4


def test_a_deep_graph_in_reverse_order_is_walked_without_recursion() -> None:
    bench = Bench()
    depth = 3000
    assert bench.refuse(*(task(id_, id_ % depth + 1) for id_ in range(1, depth + 1))).startswith("cycle: ")
