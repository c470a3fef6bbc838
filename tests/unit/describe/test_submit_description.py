"""Submit descriptions of HTCondor: arguments, macros, surroundings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bough.describe.dagman.submit_description import Expander, SubmitJob, parse
from bough.errors import InvalidWorkload


def job(text: str, base: str = "", **macros: str) -> SubmitJob:
    return jobs(text, base, macros)[0]


def jobs(
    text: str, base: str = "", macros: Mapping[str, str] | None = None, note: Callable[[str], None] = lambda text: None
) -> list[SubmitJob]:
    submit = parse(enumerate(text.split("\n"), start=1), "a.sub")
    return list(Expander(submit, {"job": "A"}, before=macros or {}, after={}, base=base, note=note).jobs())


def lines(text: str, base: str = "", **macros: str) -> list[str]:
    """The arguments of all jobs."""
    return [" ".join(one.words[1:]) for one in jobs(f"executable = /bin/x\n{text}", base, macros)]


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
    grows = "ifThenElse(MemoryUsage =!= undefined, MAX({MemoryUsage * 3/2, 1024}), 1024)"
    assert job(f"executable=/x\nrequest_memory = {grows}").memory == 1 << 30
    assert job(f"executable=/x\n+MemoryUsage = 2048\nrequest_memory = {grows}").memory == 3 << 30


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
    found = jobs(text)
    assert [one.words for one in found] == [["/x", "a", "b"]] * 3


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
        ("universe = grid\nexecutable=/x", "a.sub:1: universe grid: only vanilla, local and scheduler jobs run here"),
        (
            "universe = parallel\nmachine_count = 2\nexecutable=/x",
            "a.sub:1: universe parallel: a job runs on one machine",
        ),
        ("executable=/x\ndocker_image = x", "the job runs in a container"),
        ("executable=/x\narguments = $$([frob(1)])", r"a.sub:2: \$\$\(\[frob\(1\)\]\): the function frob is not known"),
        ("executable=/x\narguments = $INT(word)", r"a.sub:2: \$INT\(word\): could not convert"),
        ("if true\nexecutable=/x", "a.sub:2: the endif that ends this if is missing"),
        ("else\nexecutable=/x", "a.sub:1: else without if"),
        ("include command : date |\n", "a.sub:1: include command : date |: give a file"),
        ("include : none.sub\n", "a.sub:1: cannot read none.sub, which is included: No such file"),
        ("use feature : gpus\n", "a.sub:1: use: templates of HTCondor's configuration are not known here"),
        ("executable=/x\nqueue many", "a.sub:2: queue many: give a number of jobs"),
        ("executable=/x\nqueue x from none.txt", "a.sub:2: cannot read the list none.txt: No such file"),
        ("executable=/x\nqueue x from prog |", "a.sub:2: queue from prog |: give a file or a list"),
        ("executable=/x\nqueue x in (", r"a.sub:2: queue: the \) that ends the list is missing"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidWorkload, match=message):
        job(text)


def test_items_to_queue_come_from_lists_files_and_patterns(tmp_path: Path) -> None:
    assert lines("arguments = $(Process) $(Item)\nqueue in a, b c") == ["0 a", "1 b", "2 c"]
    assert lines("arguments = $(f) $(Step) $(Process)\nqueue 2 f in (x y)") == ["x 0 0", "x 1 1", "y 0 2", "y 1 3"]
    assert lines("arguments = $(n)-$(rest)\nqueue n, rest from (\n 1 2 3\n# no\n 4, 5\n)") == ["1-2 3", "4-5"]
    (tmp_path / "list").write_text("a 1\n\nb 2\n")
    assert lines("arguments = $(v)$(k)\nqueue k,v from list", base=str(tmp_path)) == ["1a", "2b"]
    assert lines("arguments = $(k)\nqueue k from [1:] list", base=str(tmp_path)) == ["b 2"]
    for name in ("2.dat", "1.dat"):
        (tmp_path / name).touch()
    (tmp_path / "3.dat").mkdir()
    assert lines("arguments = $(f)\nqueue f matching files *.dat", base=str(tmp_path)) == ["1.dat", "2.dat"]
    assert lines("arguments = $(f)\nqueue f matching dirs *.dat", base=str(tmp_path)) == ["3.dat"]
    assert lines("n = 2\narguments = x\nqueue $(n) * 2") == ["x"] * 4
    assert lines("queue arguments from (\n a b\n c\n)") == ["a b", "c"]


def test_each_queue_sees_what_stands_before_it() -> None:
    assert lines("arguments = $(Process) a\nqueue\narguments = $(Process) b\nqueue 2") == ["0 a", "1 b", "2 b"]


def test_conditions_see_the_macros_of_the_node(tmp_path: Path) -> None:
    text = "if defined who\narguments = $(who)\nelif version >= 8.1\narguments = new\nelse\narguments = old\nendif"
    assert lines(text, who="me") == ["me"]
    assert lines(text) == ["new"]
    assert lines("n = 3\nif $(n) > 2\nif false\narguments = a\nelse\narguments = b\nendif\nendif") == ["b"]
    (tmp_path / "more").write_text("arguments = $(arguments) more\n")
    assert lines("arguments = x\ninclude : more", base=str(tmp_path)) == ["x more"]
    assert lines("arguments = x\ninclude ifexist : none", base=str(tmp_path)) == ["x"]


def test_functions_of_macros() -> None:
    assert lines(
        "p = /a/b/c.d.txt\narguments = $Fn(p) $Fx(p) $Fp(p) $Fd(p) $Fdb(p) $Fnx(p) $BASENAME(p) $DIRNAME(p)"
    ) == ["c.d .txt /a/b/ b/ b c.d.txt c.d.txt /a/b"]
    assert lines("n = 7\narguments = $INT(n,%03d) $REAL(n) $STRING(n) $SUBSTR(n,0,1) $EVAL(n) $CHOICE(1,a,b)") == [
        "007 7 7 7 7 b"
    ]
    [first] = lines("arguments = $RANDOM_INTEGER(1,1000000) $RANDOM_CHOICE(a,b,c)")
    assert lines("arguments = $RANDOM_INTEGER(1,1000000) $RANDOM_CHOICE(a,b,c)") == [
        first
    ]  # chance, but the same again
    assert 1 <= int(first.split()[0]) <= 1_000_000


def test_what_a_machine_would_tell_is_filled_in_as_far_as_it_is_known() -> None:
    assert lines('+Kind = "x"\narguments = $$([strcat(Kind, ""-"", 1 + 2)]) $$(Nothing:else) $$(Kind)') == [
        "x-3 else x"
    ]
    assert lines("arguments = $$([ifThenElse(isUndefined(ClaimId),0,ClaimId)]) $$([ClaimId])") == ["0 undefined"]


def test_a_macro_that_names_itself_means_what_it_was() -> None:
    assert lines("a = 1\na = $(a)2\nA = $(A)3\narguments = $(a)") == ["123"]


def test_the_description_may_change_macros_that_come_before_it() -> None:
    submit = parse(enumerate(["executable = /x", "n = file", "arguments = $(n) $(m)"], start=1), "a.sub")
    [before] = Expander(submit, {}, before={"n": "vars", "m": "1"}, after={}, base="").jobs()
    [after] = Expander(submit, {}, before={}, after={"n": "vars", "arguments": "$(n)!"}, base="").jobs()
    assert (before.words[1:], after.words[1:]) == (["file", "1"], ["vars!"])


def test_what_htcondor_judges_jobs_by_is_noted() -> None:
    notes: list[str] = []
    jobs("executable=/x\nperiodic_remove = true\nqueue 2", note=notes.append)
    assert notes == ["a.sub:2: periodic_remove is passed over"]


def test_a_job_may_do_nothing() -> None:
    assert job("noop_job = true\nnoop_job_exit_code = 3").text() == "sh -c 'exit 3'"
