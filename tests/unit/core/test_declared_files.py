"""The declared files of a workflow: numbered by the core, journalled with the tasks that name them."""

from __future__ import annotations

import msgspec
from core_bench import Bench

from bough.core.data.declared_files import DeclaredFiles
from bough.model.events.facts import RunOpened, Submitted, decode_facts, encode_facts
from bough.model.files import FileSpec
from bough.model.ids import FileId, GroupId
from bough.model.tasks import GroupSpec, TaskSpec
from bough.testing.builders import submit, task


def files_of(bench: Bench, record: int) -> tuple[list[str], list[str]]:
    found = bench.machine.state.records[record]
    table = found.group.workflow.files
    return table.paths(found.spec.reads), table.paths(found.spec.writes)


def test_paths_become_numbers_and_are_journalled_once() -> None:
    bench = Bench()
    turn = bench.submit(task(1, writes=("/d/a",), reads=("/d/in",)), task(2, 1, reads=("/d/a", "/d/in")))
    fact = next(fact for fact in turn.facts if isinstance(fact, Submitted))
    assert fact.files == (FileSpec(FileId(1), "/d/in"), FileSpec(FileId(2), "/d/a", written=True))
    assert [(item.reads, item.writes) for item in fact.items] == [((1,), (2,)), ((2, 1), ())]
    turn = bench.submit(task(3, reads=("/d/in", "/d/new")))
    fact = next(fact for fact in turn.facts if isinstance(fact, Submitted))
    assert fact.files == (FileSpec(FileId(3), "/d/new"),)
    assert files_of(bench, 1) == (["/d/in"], ["/d/a"])
    assert files_of(bench, 2) == (["/d/a", "/d/in"], [])
    assert files_of(bench, 3) == (["/d/in", "/d/new"], [])


def test_a_file_that_was_only_read_is_declared_again_when_a_task_writes_it() -> None:
    bench = Bench()
    bench.submit(task(1, reads=("/d/a",)))
    turn = bench.submit(task(2, writes=("/d/a",)))
    assert turn.facts[0].files == (FileSpec(FileId(1), "/d/a", written=True),)
    assert bench.submit(task(3, reads=("/d/a",))).facts[0].files == ()


def test_tasks_without_files_are_journalled_as_they_came() -> None:
    bench = Bench()
    news = submit(task(1), task(2, 1))
    assert bench.tell(news).facts[0] is news


def test_a_client_declares_paths_not_numbers() -> None:
    bench = Bench()
    assert "declare them by their paths" in bench.refuse(task(1, reads=(FileId(1),)))
    assert "declare them by their paths" in bench.refuse(task(1, writes=("/d/a", FileId(1))))


def test_each_workflow_has_files_of_its_own() -> None:
    bench = Bench()
    for run, group in ((2, 5), (3, 6)):
        bench.tell(RunOpened(run, f"w{run}", "h", 1, group=GroupId(group)))
    bench.submit(task(1, group=5, writes=("/d/a",)))
    turn = bench.submit(GroupSpec(GroupId(7), "inner", GroupId(6)), task(2, group=7, reads=("/d/b", "/d/a")))
    assert turn.facts[0].files == (FileSpec(FileId(1), "/d/b", GroupId(6)), FileSpec(FileId(2), "/d/a", GroupId(6)))
    assert files_of(bench, 1) == ([], ["/d/a"])
    assert files_of(bench, 2) == (["/d/b", "/d/a"], [])


def test_a_journal_of_paths_is_replayed_with_numbers_that_do_not_change() -> None:
    old = Submitted([task(1, writes=("/d/a",)), task(2, 1, reads=("/d/a",), writes=("/d/b",))])
    pictures = []
    for _ in range(2):
        bench = Bench()
        bench.machine.replay(bench.machine.state.turn + 1, 0.0, decode_facts(encode_facts([old])))
        pictures.append((bench.machine.state.workflows[1].files.all(), files_of(bench, 1), files_of(bench, 2)))
        assert bench.machine.state.records[2].spec.writes == (2,)
    assert pictures[0] == pictures[1]
    assert pictures[0][0] == (FileSpec(FileId(1), "/d/a", written=True), FileSpec(FileId(2), "/d/b", written=True))


def test_a_submission_of_the_version_before_is_read() -> None:
    row = ["sub", [["t", 1, 1, b"", b"p", 0, "", "", [], [], 0, [], [], b"", "", ["/d/a"], []]], 3]
    (fact,) = decode_facts(msgspec.msgpack.encode([row]))
    assert isinstance(fact, Submitted)
    assert fact.files == ()
    assert [(item.reads, item.writes) for item in fact.items if isinstance(item, TaskSpec)] == [((), ("/d/a",))]


def test_a_number_whose_declaration_was_lost_has_no_path() -> None:
    table = DeclaredFiles()
    table.put(FileSpec(FileId(3), "/d/c"))
    assert table.paths((FileId(2), FileId(3), "/d/x")) == ["/d/c", "/d/x"]
    assert table.last == 3
