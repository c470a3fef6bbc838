"""DAGMan files as plans."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bough.describe.dagman.dag_plan import read
from bough.describe.plan import Plan, PlanTask
from bough.describe.steps import steps
from bough.errors import InvalidWorkload, UserError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.sub").write_text("executable = /bin/echo\narguments = $(JOB) $(who)\nqueue\n")


def plan_of(text: str) -> Plan:
    Path("my.dag").write_text(text)
    plan = read("my.dag")
    steps(plan)
    return plan


def tasks(plan: Plan) -> dict[str, PlanTask]:
    return {task.name: task for _, group in plan.walk() for task in group.all_tasks()}


def after(plan: Plan) -> dict[str, list[str]]:
    return {name: task.after for name, task in tasks(plan).items()}


def error_of(text: str) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        plan_of(text)
    return str(caught.value)


def run(task: PlanTask, attempt: int = 1) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-eo", "pipefail", "-c", task.command],
        cwd=task.cwd or None,
        env={"PATH": "/usr/bin:/bin", "BOUGH_ATTEMPT": str(attempt), "BOUGH_TASK": "17", **task.env},
        capture_output=True,
        text=True,
        check=False,
    )


DIAMOND = "JOB A a.sub\nJOB B a.sub\nJOB C a.sub\njob D a.sub\nPARENT A CHILD B C\nparent B C child D\n"


def test_a_diamond() -> None:
    plan = plan_of(DIAMOND)
    assert after(plan) == {"A": [], "B": ["A"], "C": ["A"], "D": ["B", "C"]}
    assert [task.where.line for task in plan.root.tasks] == [1, 2, 3, 4]
    assert tasks(plan)["B"].command == "/bin/echo B"


def test_vars_fill_in_macros_and_those_with_a_plus_are_attributes() -> None:
    plan = plan_of('JOB A a.sub\nVARS A who="a \\"b\\"" +Kind="x y"\n')
    assert run(tasks(plan)["A"]).stdout == 'A a "b"\n'
    assert tasks(plan)["A"].attributes == {"Kind": "x y"}


def test_descriptions_may_be_inline_or_named() -> None:
    plan = plan_of(
        "JOB A {\n  executable = /bin/echo\n  # no comment\n  arguments = in\n}\n"
        "SUBMIT-DESCRIPTION d {\n executable = /bin/true\n}\nJOB B d\n"
    )
    assert [task.command for task in plan.root.tasks] == ["/bin/echo in", "/bin/true"]


def test_retries_priorities_and_all_nodes() -> None:
    plan = plan_of(DIAMOND + "RETRY ALL_NODES 2\nPRIORITY B -5\nRETRY C 4\n")
    assert [task.retries for task in plan.root.tasks] == [2, 2, 4, 2]
    assert tasks(plan)["B"].priority == -5


def test_nodes_that_are_done_are_not_there_and_noops_do_nothing() -> None:
    plan = plan_of("JOB A a.sub DONE\nJOB B a.sub NOOP\nJOB C a.sub\nPARENT A B CHILD C\nDONE B\n")
    assert after(plan) == {"C": []}
    assert tasks(plan_of("JOB B nosuch.sub NOOP\n"))["B"].command == "true"


def test_a_node_runs_in_its_directory() -> None:
    Path("sub").mkdir()
    Path("sub/b.sub").write_text("executable = /bin/pwd\n")
    task = tasks(plan_of("JOB A b.sub DIR sub\n"))["A"]
    assert (task.cwd, run(task).stdout.strip().endswith("/sub")) == ("sub", True)


def test_a_category_with_a_limit_is_a_limited_group() -> None:
    plan = plan_of(DIAMOND + "CATEGORY B big\nCATEGORY C big\nCATEGORY D free\nMAXJOBS big 1\n")
    [group] = plan.root.groups
    assert (group.name, group.limit, [task.name for task in group.tasks]) == ("category-big", 1, ["B", "C"])
    assert after(plan)["D"] == ["B", "C"]


INNER = "JOB X a.sub\nJOB Y a.sub\nJOB Z a.sub\nPARENT X CHILD Y\nCATEGORY Z +few\n"


def test_a_splice_is_a_group_whose_nodes_carry_its_name() -> None:
    Path("inner.dag").write_text(INNER)
    plan = plan_of("JOB A a.sub\nSPLICE S inner.dag\nJOB B a.sub\nPARENT A CHILD S\nPARENT S CHILD B\n")
    assert after(plan) == {"A": [], "B": ["S"], "S+X": [], "S+Y": ["S+X"], "S+Z": []}
    assert plan.root.groups[0].after == ["A"]
    assert tasks(plan)["S+X"].command == "/bin/echo S+X"


def test_a_category_of_all_splices_is_one_group_and_the_order_stays() -> None:
    Path("inner.dag").write_text(INNER)
    plan = plan_of(
        "MAXJOBS +few 1\nJOB A a.sub\nCATEGORY A +few\nSPLICE S inner.dag\nSPLICE T inner.dag\n"
        "PARENT A CHILD S\nPARENT S CHILD T\n"
    )
    group = next(group for group in plan.root.groups if group.limit)
    assert [task.name for task in group.tasks] == ["A", "S+Z", "T+Z"]
    assert after(plan)["S+Z"] == ["A"]
    assert after(plan)["T+Z"] == ["S", "S+Z"]


def test_nodes_of_a_splice_do_not_wait_for_splices_in_it() -> None:
    Path("inner.dag").write_text(INNER)
    Path("outer.dag").write_text("SPLICE I inner.dag\nJOB X a.sub\n")
    plan = plan_of("SPLICE O outer.dag\n")
    [outer] = plan.root.groups
    assert [group.name for group in outer.groups] == ["I", "nodes"]
    assert not outer.tasks


def test_a_sub_dag_is_a_group_with_retries_of_its_own() -> None:
    Path("inner.dag").write_text(INNER + "FINAL F a.sub\n")
    plan = plan_of("SUBDAG EXTERNAL U inner.dag\nRETRY U 3\nJOB B a.sub\nPARENT U CHILD B\n")
    [group] = plan.root.groups
    assert (group.retries, [task.name for task in group.epilogue]) == (3, ["U+F"])
    assert group.epilogue[0].final
    assert after(plan)["B"] == ["U"]


def test_a_sub_dag_that_a_node_makes_is_run_when_it_is_there() -> None:
    plan = plan_of("JOB A a.sub\nSUBDAG EXTERNAL U later.dag\nPARENT A CHILD U\n")
    assert tasks(plan)["U"].command == "bough run --quiet --name U later.dag"
    assert (
        error_of("SUBDAG EXTERNAL U never.dag\n")
        == "my.dag:1: cannot read the DAG file never.dag: No such file or directory"
    )


def test_several_processes_are_a_group() -> None:
    Path("n.sub").write_text("executable = /bin/echo\narguments = $(Process)\nqueue 3\n")
    plan = plan_of("JOB A n.sub\nRETRY A 2\nSCRIPT PRE A ./p $JOB\nJOB B a.sub\nPARENT A CHILD B\n")
    [group] = plan.root.groups
    assert [task.command for task in group.tasks] == ["/bin/echo 0", "/bin/echo 1", "/bin/echo 2"]
    assert (group.retries, after(plan)["B"], len(group.prologue)) == (2, ["A"], 1)
    assert "queues 3 jobs and has a POST script" in error_of("JOB A n.sub\nSCRIPT POST A ./p\n")


def test_the_final_node_waits_for_all_and_runs_whatever_happened() -> None:
    task = tasks(plan_of(DIAMOND + "FINAL F a.sub\nJOB E a.sub\n"))["F"]
    assert (task.final, task.after) == (True, ["D", "E"])


def script(name: str, text: str) -> None:
    Path(name).write_text(f"#!/bin/sh\n{text}\n")
    Path(name).chmod(0o755)


def scripted(job: str, *lines: str) -> PlanTask:
    script("job.sh", job)
    Path("j.sub").write_text("executable = job.sh\n")
    return tasks(plan_of("\n".join(["JOB A j.sub", *lines]) + "\n"))["A"]


def test_the_post_script_decides() -> None:
    script("post.sh", 'echo "post $@"; [ "$3" = 3 ]')
    task = scripted("exit 3", "SCRIPT POST A ./post.sh $JOB $RETRY $RETURN $MAX_RETRIES $JOBID", "RETRY A 5")
    done = run(task, attempt=2)
    assert (done.returncode, done.stdout) == (0, "post A 1 3 5 17\n")
    assert task.retries == 5
    assert run(scripted("exit 4", "SCRIPT POST A ./post.sh $JOB $RETRY $RETURN")).returncode == 1


def test_a_signal_is_a_negative_return() -> None:
    script("post.sh", "echo $1")
    assert run(scripted("kill -9 $$", "SCRIPT POST A ./post.sh $RETURN")).stdout == "-9\n"


def test_a_pre_script_that_fails_ends_the_node_or_skips_it() -> None:
    script("pre.sh", "exit 4")
    failed = run(scripted("echo ran", "SCRIPT PRE A ./pre.sh"))
    assert (failed.returncode, failed.stdout) == (4, "")
    skipped = run(scripted("echo ran", "SCRIPT PRE A ./pre.sh", "PRE_SKIP A 4"))
    assert (skipped.returncode, skipped.stdout) == (0, "")
    assert run(scripted("echo ran", "SCRIPT PRE A true")).stdout == "ran\n"


def test_unless_exit_ends_the_retries() -> None:
    job = "echo try; n=$(cat n); echo $((n + 1)) > n; exit $((n + 1))"
    Path("n").write_text("0")
    task = scripted(job, "RETRY A 9 UNLESS-EXIT 3")
    done = run(task)
    assert (done.returncode, done.stdout, task.retries) == (3, "try\n" * 3, 0)


def test_the_number_of_the_retry_is_a_macro_too() -> None:
    Path("r.sub").write_text("executable = /bin/echo\narguments = \"'it is' x$(RETRY)\"\n")
    assert run(tasks(plan_of("JOB A r.sub\n"))["A"], attempt=3).stdout == "it is x2\n"


def test_other_files_are_included_and_what_is_condors_own_is_noted() -> None:
    Path("more.dag").write_text("JOB B a.sub\nPARENT A CHILD B\n")
    Path("my.dag").write_text("JOB A a.sub\nINCLUDE more.dag\nCONFIG x.config\nDOT x.dot UPDATE\n")
    notes: list[str] = []
    plan = read("my.dag", notes.append)
    assert after(plan) == {"A": [], "B": ["A"]}
    assert [note.partition(": ")[0] for note in notes] == ["my.dag:3", "my.dag:4"]


def test_many_to_many_costs_no_square() -> None:
    names = [f"n{i}" for i in range(200)]
    text = "".join(f"JOB {name} a.sub\n" for name in names)
    plan = plan_of(f"{text}PARENT {' '.join(names[:100])} CHILD {' '.join(names[100:])}\n")
    assert sum(len(step.waits) for step in steps(plan)) == 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JOB A a.sub\nJOB A a.sub\n", "my.dag:2: the name 'A' is taken by my.dag:1"),
        ("JOB A a.sub\nPARENT A CHILD B\n", "my.dag:2: there is no node B"),
        ("JOB A a.sub\nRETRY B 1\n", "my.dag:2: there is no node B"),
        ("JOB A nosuch.sub\n", "my.dag:1: cannot read the submit description nosuch.sub: No such file"),
        ("JOB A a.sub\nFROB A\n", "my.dag:2: FROB is no command of DAGMan files"),
        ("JOB A a.sub\nABORT-DAG-ON A 3\n", "my.dag:2: ABORT-DAG-ON is not read: use `bough run --fail-fast`"),
        ("JOB A\n", "my.dag:1: JOB is followed by at least 2 words"),
        ("JOB A a.sub\nPARENT A B\n", "my.dag:2: PARENT is followed by names, CHILD and names"),
        ("JOB A a.sub\nRETRY A many\n", "my.dag:2: 'many' is no whole number"),
        ("JOB A a.sub\nVARS A who=me\n", "my.dag:2: VARS: 'who=me' is no name=\"value\""),
        ("JOB A a.sub FAST\n", "my.dag:1: FAST is no option of JOB A"),
        ("JOB A {\nexecutable = x\n", "my.dag:1: the } that ends this description is missing"),
        ("SPLICE S my.dag\n", "my.dag:1: these files contain each other: my.dag -> my.dag"),
        ("INCLUDE my.dag\n", "my.dag:1: these files include each other: my.dag -> my.dag"),
        ("JOB A a.sub\nSCRIPT POST A ./p $DAG_STATUS\n", "my.dag:2: $DAG_STATUS is not known to a script here"),
        (
            "JOB A a.sub\nJOB B a.sub\nPARENT A CHILD B\nPARENT B CHILD A\n",
            "my.dag:1: these wait for each other: A (line 1) -> B (line 2) -> A (line 1)",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    assert error_of(text).startswith(message)


def test_a_file_that_is_not_there_is_an_error_of_the_user() -> None:
    with pytest.raises(UserError, match=r"cannot read no.dag"):
        read("no.dag")
