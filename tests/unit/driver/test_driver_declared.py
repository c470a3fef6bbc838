"""What becomes of a command line whose files are declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.driver import Driver
from bough.driver.job_bundles import read_command, read_files
from bough.errors import UserError
from tests.unit.driver.driver_sessions import FakeSession


def form(command: str | list[str], inputs: object = (), outputs: object = ()) -> tuple[str, list[str]]:
    found = read_files(read_command(command), "/here", inputs, outputs)  # type: ignore[arg-type]
    assert found is not None
    return found.form, found.values


def test_nothing_declared_is_nothing() -> None:
    assert read_files(["ls"], "/here", (), []) is None


def test_paths_become_slots_where_they_stand_by_themselves() -> None:
    assert form(["sort", "in", "-o", "out"], "in", ["out"]) == ("v r v w", ["sort", "in", "-o", "out"])
    assert form(["sort", "--output=out", "in"], ["in"], "out") == ("v vw r", ["sort", "--output=", "out", "in"])


def test_longer_paths_and_names_that_only_begin_alike_are_left_alone() -> None:
    words = ["x", "a", "a.gz", "b/a", "a-1", "ab", "a/b"]
    assert form(words, ["a"]) == ("v r v v v v v", words)
    assert form(["x", "b/a", "a"], ["b/a", "a"])[0] == "v r r"


def test_the_text_of_a_shell_keeps_its_form() -> None:
    kinds, values = form("cat 'my file' in > out; wc <out", ["in", "my file"], "out")
    assert kinds == "v v vrvrvwvw"
    assert "".join(values) == "/bin/sh-ccat 'my file' in > out; wc <out"


def test_an_input_that_the_command_does_not_name_is_brought_all_the_same() -> None:
    kinds, values = form(["tool", "x"], ["config", "x"])
    assert kinds == "v v v v r v r"
    assert values == ["/bin/sh", "-c", 'shift 1; exec "$@"', "sh", "config", "tool", "x"]


def test_the_template_names_the_kinds() -> None:
    found = read_files(["sort", "--output=o", "i"], "/here", "i", Path("o"))
    assert found is not None
    assert found.text("job") == "{job_0} {job_1}{job_2:w} {job_3:r}"
    assert (found.reads, found.writes) == (frozenset({"/here/i"}), frozenset({"/here/o"}))


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        ("a", "a", "a is declared as an input and as an output"),
        ("", "b", "inputs are paths, and one of them is empty"),
        ([3], (), "inputs are paths, not"),
        ((), "c", "the output c does not stand in the command"),
    ],
)
def test_what_cannot_be_declared_is_refused(inputs: object, outputs: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        form(["x", "a", "b"], inputs, outputs)


def test_a_file_has_one_writer_and_what_is_read_is_there_or_coming(tmp_path: Path) -> None:
    session = FakeSession()
    with Driver(session) as made:  # type: ignore[arg-type]
        made.set_group("g", 100, timeout=600)
        made.exec_async(["x", "a"], outputs="a", group="g", cwd=tmp_path)
        with pytest.raises(UserError, match="a is written by job 1 already"):
            made.exec_async(["y", "a"], outputs="a", cwd=tmp_path)
        with pytest.raises(UserError, match=r"the input .*b does not exist, and no job issued before makes it"):
            made.exec_async(["y", "b"], inputs="b", cwd=tmp_path)
        made.create_pipeline("p", 1)
        with pytest.raises(UserError, match=r"pipeline 'p': .* declare no files"):
            made.exec_async(["y", "c"], outputs="c", group="p", cwd=tmp_path)
        made.exec_async(["y", "a"], inputs="a", group="g", cwd=tmp_path)
        made.exec_async(["z"], group="p")  # a pipeline that is not complete could not be waited for
    assert sorted(session.sizes) == [1, 1, 1]  # who makes it was sent off before who reads it was taken


def test_jobs_of_one_form_are_one_submission_whatever_their_words(tmp_path: Path) -> None:
    session = FakeSession()
    with Driver(session) as made:  # type: ignore[arg-type]
        made.set_group("g", 100, timeout=600)
        for number in range(6):
            made.exec_async(["x", f"--seed={number}", f"o{number}"], outputs=f"o{number}", group="g", cwd=tmp_path)
        made.wait_all()
    assert session.sizes == [6]
