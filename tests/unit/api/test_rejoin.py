"""What is there already, and which of it a submission is."""

from __future__ import annotations

from typing import cast

import msgspec

from bough.api.client.connection import Connection
from bough.api.file_table import ThereMaker
from bough.api.session.rejoin import ExistingRecord, ExistingWork, WorkflowContents
from bough.model.ids import BlobId, MemoKey, RecordId
from bough.model.memo_keys import pages_digest
from bough.model.tasks import Dep, On, Page

KEY = MemoKey(b"k" * 16)
OTHER = MemoKey(b"o" * 16)


def there(number: int, **fields: object) -> dict[str, object]:
    return {"id": number, "group": 3, "key": KEY, **fields}


def inventory(*records: dict[str, object]) -> ExistingWork:
    stock = {"groups": [{"id": 4, "parent": 3, "name": "align"}], "records": list(records)}
    return ExistingWork(msgspec.convert(stock, WorkflowContents), cast(Connection, None))


def number(found: ExistingRecord | None) -> int | None:
    return None if found is None else found.id


def test_the_nth_of_identical_submissions_is_the_nth_that_is_there() -> None:
    stock = inventory(there(7), there(9))
    assert [number(stock.take_task(3, KEY, (), ())) for _ in range(3)] == [7, 9, None]


def test_who_makes_a_file_or_its_folder() -> None:
    stock = inventory(
        there(7, state="done", writes=["/w/a"]),
        there(8, state="running", writes=["/w/made"]),
        there(9, state="failed", failed=True, writes=["/w/b"]),
    )
    assert stock.maker("/w/a") == ThereMaker(Dep(On.TASK, RecordId(7)), is_done=True)
    assert stock.maker("/w/made/deep/x") == ThereMaker(Dep(On.TASK, RecordId(8)), is_done=False)
    assert stock.maker("/w/b") is None
    assert stock.maker("/w/c") is None
    assert stock.maker("ftp://h/w/c") is None


def test_key_group_and_dependencies_must_agree() -> None:
    dep = Dep(On.TASK, 5)
    stock = inventory(there(7, after=[[0, 5, 0]], inputs=[[0, 5, 0]]))
    assert stock.take_task(3, KEY, (), ()) is None
    assert stock.take_task(4, KEY, (dep,), (dep,)) is None
    assert stock.take_task(3, OTHER, (dep,), (dep,)) is None
    assert number(stock.take_task(3, KEY, (dep,), (dep,))) == 7


def test_what_has_no_key_is_never_recognised() -> None:
    stock = inventory(there(7, key=b""))
    assert stock.take_task(3, MemoKey(b""), (), ()) is None


def test_arrays_are_compared_by_their_arguments_too() -> None:
    digest = pages_digest([Page(0, 2, b"ab"), Page(2, 4, b"cd")])
    stock = inventory(there(7, is_array=True, length=4, pages=digest), there(8, is_array=True, length=4, table=b"t"))
    empty = BlobId(b"")
    assert stock.take_array(3, KEY, (), (4, empty, pages_digest([Page(0, 4, b"xxxx")]), False)) is None
    assert number(stock.take_array(3, KEY, (), (4, empty, pages_digest([Page(0, 4, b"abcd")]), False))) == 7
    assert number(stock.take_array(3, KEY, (), (4, BlobId(b"t"), b"", False))) == 8


def test_an_array_that_still_grows_is_not_recognised() -> None:
    stock = inventory(there(7, is_array=True, length=4, open=True))
    assert stock.take_array(3, KEY, (), (4, BlobId(b""), b"", False)) is None


def test_groups_are_found_by_parent_and_name() -> None:
    assert inventory().groups == {(3, "align"): 4}
