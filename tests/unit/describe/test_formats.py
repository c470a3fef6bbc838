"""Forms of workflow files: which one a file has, and that each gives back the same workflow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.describe import formats
from bough.describe.formats import FLAT, Source, find_reader, left_out, read, write
from bough.describe.plan import Plan, PlanGroup, PlanTask, Verdict, tidy
from bough.errors import InvalidWorkload, UserError
from tests.unit.describe.description_scripts import KINGS, SURVEY, SURVEY_SHORT, TWO_LEVELS, WAVE, described

PIPE_IN_ONE_GROUP = "group=pipe :: ./a\ngroup=pipe :: ./b\ngroup=pipe :: ./c\n"
PACK = """pack: crunch audit
#attribute affinity=yes
\t./pack all
crunch:
\t./crunch 7
audit: crunch
\t./audit
"""


def source(text: str, path: str, *args: str) -> Source:
    return Source(path, text, args)


def opened(text: str, path: str, *args: str) -> Plan:
    it = source(text, path, *args)
    reader = find_reader(it)
    return read(it, reader or formats.FLAT)


def odd() -> Plan:
    """A plan with something of everything."""
    plan = Plan(["Top"])
    deep = PlanGroup(
        "deep", tasks=[PlanTask("echo $HOME '#x' %", "named", memory=2**30, attributes={"note": "two words"})]
    )
    plan.root.groups = [
        PlanGroup(
            "Top_1", "Top", groups=[deep], tasks=[PlanTask("a", final=True), PlanTask("b")], pipeline=False, limit=3
        ),
        PlanGroup(
            "other",
            after=["Top_1/deep", "named"],
            prologue=[PlanTask("p", retries=2)],
            epilogue=[PlanTask("e", priority=-1, cwd="some where", env={"X": "1 2"})],
            match=True,
            retries=1,
            timeout=90.0,
            attributes={"owner": "me and you"},
        ),
        PlanGroup("seen", barrier=False, groups=[PlanGroup("deep")]),
    ]
    plan.root.tasks = [PlanTask("loose", after=["other"], memo=False), PlanTask("last", "last", after=["named"])]
    return plan


PLANS = {
    "wave": lambda: described(WAVE, 3),
    "survey": lambda: described(SURVEY, 2, 3),
    "two levels": lambda: described(TWO_LEVELS, 4),
    "kings": lambda: described(KINGS, "pieces"),
    "pipe": lambda: opened(PIPE_IN_ONE_GROUP, "list.txt"),
    "pack": lambda: opened(PACK, "pack.make"),
    "odd": odd,
    "empty": Plan,
}


@pytest.mark.parametrize("form", ["make", "flat", "json"])
@pytest.mark.parametrize("name", PLANS)
def test_what_is_written_reads_back_as_the_same_plan(name: str, form: str) -> None:
    plan = tidy(PLANS[name]())
    text = write(plan, form)
    path = {"make": "w.make", "flat": "w.txt", "json": "w.json"}[form]
    assert tidy(opened(text, path)) == plan
    assert write(opened(text, path), form) == text


def test_the_special_comments_make_a_makefile_of_this_form() -> None:
    assert find_reader(source(PACK, "Makefile")).form == "trellis"  # type: ignore[union-attr]
    assert find_reader(source(write(described(WAVE, 2), "make"), "anything")).form == "trellis"  # type: ignore[union-attr]


def test_which_reader_a_file_has() -> None:
    def form(text: str, path: str) -> str | None:
        reader = find_reader(source(text, path))
        return None if reader is None else reader.form

    assert form(WAVE, "wave.py") == "script"
    assert form(SURVEY_SHORT, "survey.py") == "script"
    assert form("import bough\n", "other.py") is None
    assert form("echo a\nname: cores=2 :: echo b\n", "list.txt") is None
    assert form(":: echo 'group=x :: y'\necho release=yes ::\n", "list.txt") is None
    assert form(PIPE_IN_ONE_GROUP, "-") == "groups"
    assert form(write(Plan(), "json"), "x.json") == "json"


def test_forms_are_checked() -> None:
    with pytest.raises(UserError, match="no form 'xml'; give one of make, flat"):
        write(Plan(), "xml")
    with pytest.raises(UserError, match="takes no arguments: 3"):
        opened(PIPE_IN_ONE_GROUP, "list.txt", "3")


def test_a_picture_draws_every_dependency_once() -> None:
    text = write(described(SURVEY, 2, 2), "dot")
    assert text.startswith("digraph workflow {")
    assert text.count("subgraph cluster_") == 6
    assert text.count("ltail=") == 1
    assert text.count("{") == text.count("}")


# --- the Makefile -----------------------------------------------------------------------------------


def test_the_makefile_of_the_specification() -> None:
    lines = write(described(WAVE, 2), "make").splitlines()
    assert lines[:3] == ["#AutoMakefile", "#Tile", "all: Tile_0_0 Tile_0_1 Tile_1_0 Tile_1_1"]
    at = lines.index("Tile_1_1: Tile_1_1_prologue")
    assert lines[at + 1 : at + 7] == [
        *["#attribute release=yes", "\t./sweep 1 1", "#attribute affinity=yes", "\t./check 1 1", ""],
        "Tile_1_1_prologue: Tile_0_1 Tile_1_0",
    ]
    assert lines[at + 7] == "\techo"
    assert lines[lines.index("Tile_0_0_prologue:") + 1] == "\techo"


def test_a_makefile_by_hand_is_a_group_per_rule() -> None:
    plan = opened(PACK, "pack.make")
    assert [(group.name, group.after) for group in plan.root.groups] == [
        *[("pack", ["crunch", "audit"]), ("crunch", []), ("audit", ["crunch"])],
    ]
    assert plan.root.groups[0].tasks[0].affinity
    flat = write(plan, "flat").splitlines()
    assert [line.rpartition(":: ")[2] for line in flat if not line.endswith("::")] == [
        *["./crunch 7", "./audit", "./pack all"],
    ]


def test_variables_and_joined_lines_of_a_makefile() -> None:
    text = "#AutoMakefile\nPROG = ./solve\nOPT := -x $(PROG)\nall: a\n"
    text += "a: b \\\n  c\n\t$(PROG) $@ $< $$HOME \\\n\t  more\nb c:\n\techo\n"
    plan = opened(text, "Makefile")
    assert plan.root.groups[0].after == ["b", "c"]
    assert plan.root.groups[0].tasks[0].command == "./solve a b $HOME \\\n  more"


def makefile_error(text: str) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        opened("#AutoMakefile\n" + text, "M.make")
    return str(caught.value)


def test_mistakes_in_a_makefile_are_told_with_their_line() -> None:
    assert makefile_error("a: b\n\ttrue\n") == "M.make:2: a waits for b, for which there is no rule"
    assert makefile_error("a:\n\ttrue\na:\n\tfalse\n") == "M.make:4: there is a rule for a already, at line 2"
    assert makefile_error("\ttrue\n") == "M.make:2: a command stands here before the first rule"
    assert makefile_error("a:\n#attribute release\n\ttrue\n").startswith("M.make:3: '#attribute release' is not")
    assert makefile_error("a:\n#attribute cores=none\n\ttrue\n").startswith("M.make:4: cores=none: expected a number")
    assert makefile_error("a:\n\t$(NONE) x\n") == "M.make:3: there is no variable NONE in this file"
    assert makefile_error("X = $(X)\na:\n\t$(X)\n") == "M.make:4: a variable is defined by itself"
    assert makefile_error("nonsense\n").startswith("M.make:2: 'nonsense' is no rule")


def test_commands_that_a_line_cannot_hold_are_refused() -> None:
    plan = Plan()
    plan.root.tasks = [PlanTask("echo a\necho b")]
    for form in ("make", "flat"):
        with pytest.raises(InvalidWorkload, match="cannot stand on one line"):
            write(plan, form)


# --- calls of mqsub ----------------------------------------------------------------------------------


def test_a_makefile_becomes_the_calls_of_the_specification() -> None:
    assert write(opened(PACK, "pack.make"), "mqsub").splitlines() == [
        'mqsub -deps "" -l "crunch" -c "./crunch 7"',
        'mqsub -deps "crunch" -l "audit" -c "./audit"',
        'mqsub -deps "crunch audit" -l "pack" -c "./pack all" -attr "affinity=yes"',
    ]


def test_a_generated_makefile_has_calls_for_its_empty_targets() -> None:
    lines = write(described(TWO_LEVELS, 3), "mqsub").splitlines()
    assert len(lines) == 20
    assert lines[:3] == [
        'mqsub -deps "" -l "VS_2_1_prologue" -c "echo"',
        'mqsub -deps "VS_2_1_prologue" -l "Slice_2_1_0_0_prologue" -c "echo"',
        'mqsub -deps "Slice_2_1_0_0_prologue" -l "Slice_2_1_0_0" -c "2100comp" -attr "release=yes"',
    ]


def test_groups_in_groups_without_levels_become_calls_that_wait_for_what_is_there() -> None:
    text = "group=night deps=dark ::\ngroup=night/field :: ./reduce\ngroup=dark :: ./wait\n"
    assert write(opened(text, "flat.txt"), "mqsub").splitlines() == [
        'mqsub -deps "" -l "dark" -c "./wait"',
        'mqsub -deps "dark" -l "field" -c "./reduce"',
        'mqsub -deps "field" -l "night" -c "echo"',
    ]


def test_calls_of_mqsub_are_a_workflow() -> None:
    text = """# a script of mqsub
mqsub -deps "crunch audit" -l "pack" -c "./pack \\$HOME" -attr "affinity=yes#est=3"
mqsub -l crunch -deps "" -comm "./crunch 7" -attr "release=yes"
mqsub -l crunch -c ./verify
mqsub -deps "crunch" -l "audit" -c "echo"
"""
    plan = opened(text, "script.sh")
    assert [(one.name, one.after, len(one.tasks)) for one in plan.root.groups] == [
        *[("pack", ["crunch", "audit"], 1), ("crunch", [], 2), ("audit", ["crunch"], 0)],
    ]
    [task] = plan.root.groups[0].tasks
    assert (task.command, task.affinity, task.attributes) == ("./pack $HOME", True, {"est": "3"})


def test_a_command_of_several_lines_stays_one() -> None:
    text = "if true; then\n  # no comment\n\n  echo \"a\\\\b\" 'c\nd' $x\nfi"
    plan = Plan(root=PlanGroup("", tasks=[PlanTask(text, "x"), PlanTask("echo c", after=["x"])], pipeline=False))
    again = opened(write(plan, "mqsub"), "script.sh")
    assert [group.tasks[0].command for group in again.root.groups] == [text, "echo c"]


def test_tasks_of_a_group_that_is_no_pipeline_do_not_wait_for_each_other() -> None:
    limited = PlanGroup(
        "big",
        after=["a"],
        groups=[PlanGroup("inner", tasks=[PlanTask("i")])],
        tasks=[PlanTask("b", "b", env={"X": "1 #2%"}), PlanTask("c", "c", after=["b"]), PlanTask("d")],
        pipeline=False,
        limit=2,
    )
    tasks = [PlanTask("a", "a"), PlanTask("e", "e", after=["big"]), PlanTask("f", "f", after=["c"])]
    plan = Plan(root=PlanGroup("", groups=[limited], tasks=tasks, pipeline=False))
    again = opened(write(plan, "mqsub"), "script.sh")
    after = {group.name: set(group.after) for group in again.root.groups}
    assert after["b"] == {"inner"} or after["b"] == {"inner", "a"}
    assert "b" in after["c"]
    assert not after["big_3"] & {"b", "c"}
    assert after["e"] == {"big"}
    assert after["big"] >= {"b", "c", "big_3", "inner"}
    assert after["f"] == {"c"}
    assert next(group for group in again.root.groups if group.name == "b").tasks[0].env == {"X": "1 #2%"}


@pytest.mark.parametrize("name", ["wave", "survey", "two levels", "kings"])
def test_all_jobs_are_among_the_calls(name: str) -> None:
    plan = PLANS[name]()
    again = opened(write(plan, "mqsub"), "script.sh")
    assert len(again.root.groups) == 2 * sum(1 for path, _ in plan.walk() if path)
    assert again.task_count == plan.task_count


def test_mistakes_in_calls_are_told_with_their_line() -> None:
    assert flat_error("mqsub -c x\n") == "list.txt:1: mqsub needs -l and the name of a group"
    assert flat_error("mqsub -l x\n") == "list.txt:1: mqsub needs -c and a command"
    assert flat_error("mqsub -z x\n").startswith("list.txt:1: '-z' is not one of the options")
    assert flat_error("mqsub -l a -c b\nls\n").startswith("list.txt:2: 'ls' stands among calls of mqsub")


# --- flat lists with groups -------------------------------------------------------------------------


def flat_error(text: str) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        opened(text, "list.txt")
    return str(caught.value)


def test_a_flat_list_is_written_in_the_order_of_the_numbers() -> None:
    lines = write(described(SURVEY, 1, 2), "flat").splitlines()
    assert lines == [
        "#levels Night Field",
        "group=Night_0 level=Night ::",
        "group=Night_0/Field_0_0 level=Field ::",
        "group=Night_0/Field_0_1 level=Field ::",
        "group=Night_0 phase=prologue :: ./stage_in 0",
        "group=Night_0/Field_0_0 :: ./reduce 0 0",
        "group=Night_0/Field_0_1 :: ./reduce 0 1",
        "group=Night_0 :: ./mosaic 0",
        "group=Night_0 phase=epilogue :: ./archive 0",
    ]


def test_groups_are_made_when_they_are_mentioned() -> None:
    plan = opened("last: after=g/h :: true\ngroup=g/h deps=f attr.est=3%20s :: sleep 1\ngroup=f :: true\n", "list.txt")
    assert [group.name for group in plan.root.groups] == ["g", "f"]
    inner = plan.root.groups[0].groups[0]
    assert (inner.name, inner.after, inner.tasks[0].attributes) == ("h", ["f"], {"est": "3 s"})


@pytest.mark.parametrize("option", ["env.FOO=bar", "attr.est=3", "attr.my-own=3", "cwd=/tmp", "memo=no", "priority=3"])
def test_whatever_a_line_says_of_its_task_may_stand_alone_and_first(option: str) -> None:
    text = f"{option} :: echo $FOO\n"
    assert find_reader(Source("list.txt", text)) is not None  # and so `bough run` reads it as `bough describe` does
    plan = opened(text, "list.txt")
    assert [task.command for task in plan.root.tasks] == ["echo $FOO"]
    assert write(plan, "flat") == text


def test_an_attribute_that_no_list_can_name_is_refused_when_one_is_written() -> None:
    plan = opened("echo 1\n", "list.txt")
    plan.root.tasks[0].attributes = {"my own": "3"}
    with pytest.raises(InvalidWorkload, match="'my own' cannot stand in a flat list"):
        write(plan, "flat")


def test_a_pipeline_by_hand_in_both_ways() -> None:
    explicit = opened("group=a :: ./a\ngroup=b deps=a :: ./b\ngroup=c deps=b :: ./c\n", "list.txt")
    assert [group.after for group in explicit.root.groups] == [[], ["a"], ["b"]]
    implicit = opened(PIPE_IN_ONE_GROUP, "list.txt")
    assert [task.command for task in implicit.root.groups[0].tasks] == ["./a", "./b", "./c"]


def test_mistakes_in_a_list_are_told_with_their_line() -> None:
    assert flat_error("group=a colour=red :: true\n").startswith("list.txt:1: colour= is not one of the options group,")
    assert flat_error("group=a phase=middle :: true\n") == "list.txt:1: phase=middle: expected prologue or epilogue"
    assert flat_error("true\nphase=prologue :: true\n").startswith(
        "list.txt:2: phase=prologue is for a task in a group"
    )
    assert flat_error("group=a group=b :: true\n") == "list.txt:1: group= is given twice"
    assert flat_error("group=a cores=2 ::\n").startswith("list.txt:1: cores= is not one of the options level,")
    assert flat_error("group=a/ :: true\n").startswith("list.txt:1: group=a/: '' is no name")
    assert flat_error("group=a release=x :: true\n") == "list.txt:1: release=x: expected yes or no"


def test_the_order_that_files_make_is_written_in_forms_that_have_no_files() -> None:
    text = "in=mid.txt out=end.txt :: sort mid.txt > end.txt\nin=raw.txt out=mid.txt :: cp raw.txt mid.txt\n"
    source = Source("list.txt", text)

    def written(form: str) -> str:
        return write(read(source, FLAT), form)

    assert written("flat") == text
    assert '"writes"' in written("json")
    assert "mid_txt:" in written("make")
    order = written("mqsub").splitlines()
    assert "cp raw.txt" in order[0]
    assert '-deps "mid_txt"' in order[1]
    assert "->" in written("dot")


# --- what a form has no place for -------------------------------------------------------------------------


def plan_with(task: PlanTask) -> Plan:
    plan = Plan()
    plan.root.tasks = [task]
    return plan


def test_forms_say_what_of_the_settings_of_tasks_they_leave_out() -> None:
    plan = plan_with(PlanTask("true", cores=2, timeout=60, cwd="raw", env={"A": "1"}, attributes={"mine": "1"}))
    said = "has no place for cores, cwd, env, timeout: what tasks say by that is left out"
    assert left_out(plan, "dot") == f"dot {said}"
    assert f"wfformat {said.replace('cores, ', '')}" in left_out(plan, "wfformat")
    assert left_out(plan, "make") == "make passes over cores, timeout of its comments, which Bough reads"
    assert [left_out(plan, form) for form in ("flat", "mqsub", "json")] == ["", "", ""]
    assert left_out(plan_with(PlanTask("true", env={"A.B": "1"})), "make").startswith("make passes over env")


def test_forms_say_that_files_limits_and_verdicts_are_left_out() -> None:
    plan = plan_with(PlanTask("true", reads=["a"]))
    assert left_out(plan, "make") == "make has no place for declared files: of 1 task only the order is kept"
    plan = Plan(verdict=Verdict(decider="last"))
    plan.root.groups = [PlanGroup("g", limit=2, tasks=[PlanTask("true")])]
    assert left_out(plan, "mqsub") == (
        "mqsub has no place for limits of groups: those of 1 group are left out;"
        " mqsub has no place for what decides about success: it is left out"
    )
    assert "make passes over limit" in left_out(plan, "make")
    assert left_out(plan, "json") == ""


# --- what make itself does ------------------------------------------------------------------------------


def test_the_folder_and_the_environment_of_a_command_stand_before_it_for_make() -> None:
    task = PlanTask("./sweep $N | tee log", name="one", cwd="raw data", env={"N": "3", "TEXT": "it's $5 ", "A.B": "x"})
    lines = write(plan_with(task), "make").splitlines()
    assert lines[1:3] == ["SHELL = bash", ".SHELLFLAGS = -eo pipefail -c"]
    prelude = "cd -- 'raw data' || exit; export N=3 TEXT='it'\"'\"'s $$5 '; "
    assert f"\t{prelude}./sweep $$N | tee log" in lines
    plain = write(plan_with(PlanTask("./sweep 3")), "make")
    assert "SHELL" not in plain
    assert "\t./sweep 3\n" in plain


PATHS = st.text(st.sampled_from("ab /$'\"\\#=-;:%é"), min_size=1, max_size=10).filter(lambda text: text[-1] != "\\")


@given(
    PATHS, st.dictionaries(st.sampled_from(["A", "B_2", "C.d"]), PATHS), st.sampled_from(["x", "cd -- a || exit; x"])
)
def test_a_folder_and_an_environment_read_back_from_a_makefile(cwd: str, env: dict[str, str], command: str) -> None:
    task = PlanTask(command, name="one", cwd=cwd, env=env)
    text = write(plan_with(task), "make")
    assert tidy(opened(text, "w.make")).root.tasks == [task]


def test_a_makefile_by_hand_needs_no_prelude() -> None:
    text = "#AutoMakefile\nall: one\n#loose\none:\n#attribute cwd=raw\n\t./sweep\n"
    (task,) = opened(text, "w.make").root.tasks
    assert (task.cwd, task.command) == ("raw", "./sweep")


def test_an_attribute_that_make_would_join_to_the_next_line_is_kept_apart() -> None:
    text = write(plan_with(PlanTask("true", name="one", attributes={"mine": "a\\"})), "make")
    assert "#attribute mine=a\\ \n" in text
    assert opened(text, "w.make").root.tasks[0].attributes == {"mine": "a\\"}
    with pytest.raises(InvalidWorkload, match="attribute cwd ends with a backslash"):
        write(plan_with(PlanTask("true", cwd="a\\")), "make")
