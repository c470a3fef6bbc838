"""The table of declared files: who writes what."""

import os
import threading

import pytest

from bough.api.file_table import FileTable, ThereMaker
from bough.errors import Clash as Taken
from bough.errors import InvalidWorkload, UserError
from bough.model.commands.command import CommandSettings, CommandTemplate, OnClash
from bough.model.commands.template import parse
from bough.model.spaces import Product
from bough.model.tasks import Dep, On


def dep(record, index=0):
    return Dep(On.TASK, record, index)


@pytest.fixture
def here(tmp_path):
    (tmp_path / "in.txt").write_text("in")
    (tmp_path / "theirs.txt").write_text("theirs")
    return str(tmp_path)


def template(here, text, names, **derived):
    return CommandTemplate(
        CommandSettings(here), parse(text), tuple(names), {name: parse(value) for name, value in derived.items()}
    )


def test_a_reader_waits_for_what_was_there_before(here):
    there = {f"{here}/mid": ThereMaker(dep(3), is_done=False), f"{here}/in.txt": ThereMaker(dep(4), is_done=True)}
    there[f"{here}/gone"] = ThereMaker(dep(5), is_done=True)
    table = FileTable(there=there.get)
    found = table.declare(7, "b", [f"{here}/mid", f"{here}/in.txt", f"{here}/gone"])
    assert found.after == (dep(3), dep(5))
    assert found.external == (f"{here}/in.txt",)  # it is made, and here
    table.declare(8, "c", [], {"o": f"{here}/mid"})
    assert table.declare(9, "d", [f"{here}/mid"]).after == (dep(8),)  # what this session submits comes first


def test_a_reader_waits_for_the_writer(here):
    table = FileTable()
    assert table.declare(1, "a", [f"{here}/in.txt"], {"o": f"{here}/mid"}).external == (f"{here}/in.txt",)
    found = table.declare(2, "b", [f"{here}/mid", f"{here}/in.txt"], {"o": f"{here}/end"})
    assert found.after == (dep(1),)
    assert found.external == (f"{here}/in.txt",)
    assert table.writer(f"{here}/end") == dep(2)
    assert table.writer(f"{here}/in.txt") is None


def test_a_file_that_nobody_makes_is_an_error_at_once_and_leaves_no_trace(here):
    table = FileTable()
    with pytest.raises(InvalidWorkload, match=r"nowhere\.txt, which b reads, does not exist and no task"):
        table.declare(1, "b", [f"{here}/nowhere.txt"], {"o": f"{here}/o"})
    assert table.writer(f"{here}/o") is None
    table.declare(2, "c", [], {"o": f"{here}/o"})


def test_a_link_that_leads_nowhere_is_no_input(here):
    for name, target in (("dangling", "nowhere"), ("circle", "circle")):
        os.symlink(target, f"{here}/{name}")
        with pytest.raises(InvalidWorkload, match=f"{name}, which b reads, does not exist"):
            FileTable().declare(1, "b", [f"{here}/{name}"], {})


def test_a_very_long_path_is_shortened_in_messages(here):
    with pytest.raises(InvalidWorkload) as error:
        FileTable().declare(1, "b", [f"{here}/{'a' * 10_000}"], {})
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/w/" + "a" * 256, "has a name of more than 255 bytes"),
        ("/w/" + "é" * 128, "has a name of more than 255 bytes"),
        ("/w" + "/aaaaaaaaa" * 410, "has more than 4095 bytes"),
        ("/dev/null", "lies where there are no files but devices and processes"),
        ("/proc/self/oom_score_adj", "lies where there are no files but devices and processes"),
    ],
)
def test_an_output_that_no_disk_takes_is_refused_when_it_is_declared(here, path, why):
    for clash in OnClash:
        with pytest.raises(InvalidWorkload, match=f"which first would write, {why}: give it another name"):
            FileTable().declare(1, "first", [], {"o": path}, clash=clash)
        with pytest.raises(InvalidWorkload, match=rf"which many\[0\] would write, {why}"):
            FileTable().declare_array(1, "many", template("/w", "{o:w}", ["o"]), Product({"o": [path]}), clash=clash)


def test_long_names_that_disks_take_are_outputs(here):
    for path in (
        f"{here}/{'a' * 255}",
        f"{here}/{'é' * 127}",
        "/dev/shm/out",
        "/proc/self/cwd/out",
        "webdav://example.org/" + "a" * 300,
    ):
        FileTable().declare(1, "first", [], {"o": path})


# --- folders --------------------------------------------------------------------------------------------


def test_who_reads_or_writes_in_a_folder_waits_for_the_task_that_writes_the_folder(here):
    table = FileTable()
    table.declare(1, "maker", [], {"o": f"{here}/made"})
    assert table.declare(2, "reader", [f"{here}/made/deep/x"], {}).after == (dep(1),)
    assert table.declare(3, "writer", [], {"o": f"{here}/made/y"}).after == (dep(1),)
    assert table.declare(4, "both", [f"{here}/made/y", f"{here}/made/z"], {}).after == (dep(1), dep(3))
    rows = Product({"n": [1, 2]})
    found = table.declare_array(5, "many", template(here, "{o:w}", ["n"], o="made/out/{n}"), rows)
    assert found.after == (dep(1),)
    reading = table.declare_array(6, "more", template(here, "{i:r} {n}", ["n"], i="made/{n}.txt"), rows)
    assert reading.after == (dep(1),)


def test_a_folder_that_an_element_writes_is_found_by_what_lies_in_it(here):
    table = FileTable()
    with pytest.raises(InvalidWorkload):
        table.declare(1, "early", [f"{here}/run-2/log"], {})
    table.declare_array(2, "many", template(here, "{o:w}", ["n"], o="run-{n}"), Product({"n": [1, 2]}))
    assert table.declare(3, "late", [f"{here}/run-2/log"], {}).after == (dep(2, 1),)


@pytest.mark.parametrize("clash", OnClash)
def test_a_folder_in_which_others_write_is_refused(here, clash):
    table = FileTable()
    table.declare(1, "inner", [], {"o": f"{here}/made/deep/x"})
    for path in ("made", "made/deep"):
        with pytest.raises(Taken, match="would be written by outer, and files in it by inner"):
            table.declare(2, "outer", [], {"o": f"{here}/{path}"}, clash=clash)
    with pytest.raises(Taken, match=r"would be written by many\[0\], and files in it by inner"):
        table.declare_array(3, "many", template(here, "{o:w}", ["o"]), Product({"o": ["made"]}), clash=clash)
    table.withdraw(1)
    table.declare(2, "outer", [], {"o": f"{here}/made"}, clash=clash)


@pytest.mark.parametrize("among", ["a task", "an array", "a pattern"])
def test_a_folder_is_still_refused_when_only_the_first_that_writes_in_it_is_withdrawn(here, among):
    table = FileTable()
    table.declare(1, "first", [], {"o": f"{here}/made/x"})
    if among == "an array":
        table.declare_array(2, "other", template(here, "{o:w}", ["n"], o="made/deep/{n}"), Product({"n": range(3)}))
    else:
        patterns = [f"{here}/made/*.txt"] if among == "a pattern" else []
        table.declare(2, "other", [], {} if patterns else {"o": f"{here}/made/y"}, patterns=patterns)
    table.withdraw(1)
    with pytest.raises(Taken, match="and files in it by other"):
        table.declare(3, "outer", [], {"o": f"{here}/made"})
    table.withdraw(2)
    table.declare(3, "outer", [], {"o": f"{here}/made"})


def test_a_task_does_not_write_a_folder_and_a_file_in_it(here):
    with pytest.raises(Taken, match="would be written by one, and files in it by itself"):
        FileTable().declare(1, "one", [], {"d": f"{here}/made", "f": f"{here}/made/x"})
    rows = Product({"o": ["made", "made/x"]})
    with pytest.raises(Taken, match=r"would be written by many\[0\], and files in it by itself"):
        FileTable().declare_array(1, "many", template(here, "{o:w}", ["o"]), rows)


def test_two_writers_of_one_path_are_named(here):
    table = FileTable()
    table.declare(1, "first", [], {"o": f"{here}/o"})
    for clash in OnClash:
        with pytest.raises(Taken, match="would be written by both first and second"):
            table.declare(2, "second", [], {"o": f"{here}/o"}, clash=clash)
    with pytest.raises(UserError, match="written twice by third"):
        table.declare(3, "third", [], {"a": f"{here}/x", "b": f"{here}/x"})


def test_a_path_that_is_somebody_elses_is_refused(here):
    with pytest.raises(Taken, match=r"theirs.txt, which a would write, is there already and not of this workflow"):
        FileTable().declare(1, "a", [], {"o": f"{here}/theirs.txt"})


def test_a_path_that_an_earlier_run_wrote_is_replaced(here):
    asked = []

    def earlier():
        asked.append(1)
        return [f"{here}/theirs.txt"]

    table = FileTable(earlier)
    table.declare(1, "a", [], {"o": f"{here}/new.txt"})
    assert not asked
    assert table.declare(2, "b", [], {"o": f"{here}/theirs.txt"}).renamed == {}
    with pytest.raises(Taken):
        table.declare(3, "c", [], {"o": f"{here}/in.txt"})
    assert asked == [1]


def test_overwrite_takes_the_path(here):
    assert FileTable().declare(1, "a", [], {"o": f"{here}/theirs.txt"}, clash=OnClash.OVERWRITE).renamed == {}


def test_rename_takes_a_free_name_that_later_readers_use(here):
    open(f"{here}/theirs-1.txt", "w").close()
    table = FileTable()
    wanted, real = f"{here}/theirs.txt", f"{here}/theirs-2.txt"
    assert table.declare(1, "a", [], {"o": wanted}, clash=OnClash.RENAME).renamed == {wanted: real}
    assert table.real(wanted) == real
    reader = table.declare(2, "b", [wanted])
    assert reader.after == (dep(1),)
    assert reader.renamed == {wanted: real}
    with pytest.raises(Taken, match="both a and c"):
        table.declare(3, "c", [], {"o": wanted}, clash=OnClash.RENAME)


def test_a_renamed_file_of_an_earlier_run_gets_the_same_name_again(here):
    open(f"{here}/theirs-1.txt", "w").close()
    table = FileTable(lambda: [f"{here}/theirs-1.txt"])
    found = table.declare(1, "a", [], {"o": f"{here}/theirs.txt"}, clash=OnClash.RENAME)
    assert found.renamed == {f"{here}/theirs.txt": f"{here}/theirs-1.txt"}


def test_a_file_may_be_changed_in_place_if_one_says_so(here):
    table = FileTable()
    found = table.declare(1, "a", [f"{here}/in.txt"], {"f": f"{here}/in.txt"}, clash=OnClash.OVERWRITE)
    assert found.after == ()
    assert table.declare(2, "b", [f"{here}/in.txt"]).after == (dep(1),)


def test_elements_of_arrays_are_found_by_what_they_write(here):
    table = FileTable()
    made = template(here, "x {i:r} {o:w}", ["i", "n"], o="out/{n}.txt")
    found = table.declare_array(1, "sweep", made, Product({"i": ["in.txt"], "n": range(1000)}))
    assert found.after == ()
    assert found.external == (f"{here}/in.txt",)
    assert table.writer(f"{here}/out/777.txt") == dep(1, 777)
    assert table.writer(f"{here}/out/1000.txt") is None
    assert table.declare(2, "b", [f"{here}/out/5.txt"]).after == (dep(1, 5),)
    every = [f"{here}/out/{n}.txt" for n in range(1000)]
    assert table.declare(3, "c", every).after == (Dep(On.ARRAY, 1),)
    with pytest.raises(Taken, match=r"both sweep\[5\] and d"):
        table.declare(4, "d", [], {"o": f"{here}/out/5.txt"})


def test_elements_wait_for_elements(here):
    table = FileTable()
    table.declare_array(1, "one", template(here, "x {o:w}", ["n"], o="mid/{n}"), Product({"n": range(50)}))
    table.declare(2, "common", [], {"o": f"{here}/common"})
    second = template(here, "x {c:r} {i:r} {o:w}", ["c", "n"], i="mid/{n}", o="end/{n}")
    found = table.declare_array(3, "two", second, Product({"c": ["common"], "n": range(50)}))
    assert found.after == (dep(2),)
    assert found.element_after == tuple((n, (dep(1, n),)) for n in range(50))
    assert found.external == ()


def test_elements_may_wait_for_others_of_their_array(here):
    made = template(here, "x {i:r} {o:w}", ["i", "o"])
    rows = [("in.txt", "0"), ("0", "1"), ("1", "2")]
    found = FileTable().declare_array(7, "chain", made, rows)
    assert found.element_after == ((1, (dep(7, 0),)), (2, (dep(7, 1),)))


def test_two_elements_that_write_one_path_are_named(here):
    made = template(here, "x {n} {o:w}", ["n", "k"], o="{k}.txt")
    table = FileTable()
    with pytest.raises(Taken, match=r"1.txt would be written by both s\[1\] and s\[4\]"):
        table.declare_array(1, "s", made, [(1, 0), (1, 1), (1, 2), (2, 3), (2, 1)])
    assert table.writer(f"{here}/0.txt") is None


def test_an_element_that_reads_what_is_not_there_is_named(here):
    table = FileTable()
    made = template(here, "x {i:r} {o:w}", ["i"], o="{i}.out")
    with pytest.raises(InvalidWorkload, match=r"gone, which s\[1\] reads"):
        table.declare_array(1, "s", made, [("in.txt",), ("gone",)])
    assert table.writer(f"{here}/in.txt.out") is None


@pytest.mark.parametrize("count", [3, 100])
def test_elements_are_renamed_when_their_path_is_taken(here, count):
    made = template(here, "x {o:w}", ["n"], o="f{n}.txt")
    open(f"{here}/f1.txt", "w").close()
    table = FileTable()
    with pytest.raises(Taken, match=r"f1.txt, which s\[1\] would write"):
        table.declare_array(1, "s", made, Product({"n": range(count)}))
    found = table.declare_array(1, "s", made, Product({"n": range(count)}), clash=OnClash.RENAME)
    assert found.renamed == {f"{here}/f1.txt": f"{here}/f1-1.txt"}
    assert table.writer(f"{here}/f1.txt") == dep(1, 1)
    assert table.writer(f"{here}/f1-1.txt") == dep(1, 1)


def test_an_array_that_grows_declares_its_new_elements(here):
    made = template(here, "x {o:w}", ["n"], o="f{n}.txt")
    table = FileTable()
    table.declare_array(1, "s", made, [(0,), (1,)])
    table.declare_array(1, "s", made, [(2,)], start=2)
    assert table.writer(f"{here}/f2.txt") == dep(1, 2)


def test_a_submission_that_was_refused_is_withdrawn(here):
    table = FileTable()
    table.declare(1, "a", [], {"o": f"{here}/theirs.txt"}, clash=OnClash.RENAME)
    table.declare_array(2, "s", template(here, "x {o:w}", ["n"], o="f{n}"), Product({"n": range(3)}))
    table.withdraw(1)
    table.withdraw(2)
    assert table.writer(f"{here}/theirs.txt") is None
    assert table.real(f"{here}/theirs.txt") == f"{here}/theirs.txt"
    assert table.writer(f"{here}/f1") is None


def test_only_one_of_many_threads_gets_a_path(here):
    table = FileTable()
    won = []

    def claim(record):
        try:
            table.declare(record, f"t{record}", [], {"o": f"{here}/o"})
            won.append(record)
        except Taken:
            pass

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert table.writer(f"{here}/o") == dep(won[0])


def test_an_array_without_files_costs_nothing(here):
    assert FileTable().declare_array(1, "s", template(here, "x {n}", ["n"]), range(10**9)).after == ()
    assert os.listdir(here)
