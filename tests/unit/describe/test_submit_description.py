"""Submit descriptions of HTCondor: arguments, macros, surroundings."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.describe.dagman.submit_description import Expander, SubmitJob, parse
from bough.errors import InvalidWorkload


def job(text: str, base: str = "", **macros: str) -> SubmitJob:
    return Expander(parse(enumerate(text.split("\n"), start=1), "a.sub"), macros, base=base).job()


def words(arguments: str) -> list[str]:
    return job(f"executable = /bin/x\narguments = {arguments}\n").words[1:]


def test_arguments_of_the_old_and_the_new_syntax() -> None:
    assert words(r"a b\"c  d") == ["a", 'b"c', "d"]
    assert words("\"a 'b c' d''e ''\"") == ["a", "b c", "de", ""]
    assert words('"it\'\'\'s\' ""q"""') == ["it's", '"q"']


def test_environments_of_the_old_and_the_new_syntax() -> None:
    assert job("executable=/x\nenvironment = A=1; B=x y").environment == {"A": "1", "B": "x y"}
    assert job("executable=/x\nenvironment = \"A=1 B='x y'\"").environment == {"A": "1", "B": "x y"}


def test_macros_may_name_each_other_and_have_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMETHING", "env")
    text = "n = $(m)1\nexecutable = /bin/x\narguments = $(N) $(who) $(none:else) $(none) $ENV(SOMETHING) $(DOLLAR)(n)"
    assert job(text, m="7", who="me").words[1:] == ["71", "me", "else", "env", "$(n)"]


def test_macros_that_name_each_other_without_end_are_an_error() -> None:
    with pytest.raises(InvalidWorkload, match=r"a.sub:3: .*its macros name each other"):
        job("a = $(b)\nb = $(a)\nexecutable = $(a)\n")


def test_needs_are_read_with_their_units() -> None:
    found = job("executable=/x\nrequest_cpus = 4\nrequest_memory = 512\npriority = -3\nmax_retries = 2")
    assert (found.cores, found.memory, found.priority, found.retries) == (4, 512 << 20, -3, 2)
    assert job("executable=/x\nrequest_memory = 2 GB").memory == 2 << 30


def test_files_are_redirected() -> None:
    assert job("executable=/x\ninput=in file\noutput=o\nerror=e").text() == "/x < 'in file' > o 2> e"
    assert job("executable=/x\noutput=o\nerror=o").text() == "/x > o 2>&1"


def test_a_program_is_a_path_from_where_it_was_submitted(tmp_path: Path) -> None:
    (tmp_path / "run.sh").touch()
    assert job("executable = run.sh", base=str(tmp_path)).words == ["./run.sh"]
    moved = job("executable = run.sh\ninitialdir = sub", base=str(tmp_path))
    assert (moved.words, moved.folder) == ([str(tmp_path / "run.sh")], str(tmp_path / "sub"))
    assert job("executable = sort", base=str(tmp_path)).words == ["sort"]


def test_comments_continued_lines_and_attributes_of_condor_are_understood() -> None:
    text = '# comment\nexecutable = /x\narguments = a \\\n  b\n+Project = "p"\nlog = l\nqueue 3\n'
    submit = parse(enumerate(text.split("\n"), start=1), "a.sub")
    expander = Expander(submit, {}, base="")
    assert expander.job().words == ["/x", "a", "b"]
    assert expander.count() == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("executable", "a.sub:1: 'executable' is no `name = value`"),
        ("arguments = x\n", "the submit description has no executable"),
        ('executable=/x\narguments = "a \'b"', "a.sub:2: .*a single quote is not closed"),
        ('executable=/x\narguments = "a', "a.sub:2: .*the closing double quote is missing"),
        ("executable=/x\nenvironment = nothing", "a.sub:2: environment: 'nothing' is no name=value"),
        ("executable=/x\nrequest_memory = much", "a.sub:2: request_memory = much: give an amount"),
        ("executable=/x\nrequest_cpus = $(a)x", "a.sub:2: request_cpus = x: give a number"),
        ("universe = grid\nexecutable=/x", "a.sub:1: universe grid: only vanilla jobs run here"),
        ("executable=/x\narguments = $$(Arch)", r"a.sub:2: .*\$\$"),
        ("if version > 8\n", "a.sub:1: if: submit descriptions with it are not read"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidWorkload, match=message):
        job(text)


def test_lists_of_items_to_queue_are_an_error() -> None:
    expander = Expander(parse([(1, "executable=/x"), (2, "queue x from list.txt")], "a.sub"), {}, base="")
    with pytest.raises(InvalidWorkload, match=r"a.sub:2: queue x from list.txt: give a number"):
        expander.count()
