"""DAGMan files as plans."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bough.describe.dagman.dag_plan import node_text, read
from bough.describe.dagman.submit_description import Expander
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
    Path("inner.dag").write_text(INNER)
    plan = plan_of("SUBDAG EXTERNAL U inner.dag\nRETRY U 3\nJOB B a.sub\nPARENT U CHILD B\n")
    [group] = plan.root.groups
    assert (group.retries, group.attributes, group.prologue) == (3, {"dag_node": "U"}, [])
    assert after(plan)["B"] == ["U"]


def test_a_sub_dag_that_decides_for_itself_runs_as_a_workflow_of_its_own() -> None:
    for more in ("FINAL F a.sub\n", "ABORT-DAG-ON X 3\n"):
        Path("inner.dag").write_text(INNER + more)
        plan = plan_of("SUBDAG EXTERNAL U inner.dag\n")
        assert tasks(plan)["U"].command.endswith("run --quiet --reuse resume --name my.U inner.dag")


def test_a_sub_dag_that_an_earlier_node_writes_anew_is_not_run_as_it_was() -> None:
    Path("inner.dag").write_text(INNER)
    plan = plan_of("JOB A a.sub\nSUBDAG EXTERNAL U inner.dag\nPARENT A CHILD U\n")
    [check] = plan.root.groups[0].prologue
    assert (check.name, check.memo, run(check).returncode) == ("U.unchanged", False, 0)
    Path("inner.dag").write_text(INNER + "JOB N a.sub\n")
    done = run(check)
    assert (done.returncode, "inner.dag was written anew" in done.stderr) == (1, True)


def test_a_sub_dag_that_a_node_makes_is_run_when_it_is_there() -> None:
    plan = plan_of("JOB A a.sub\nSUBDAG EXTERNAL U later.dag\nPARENT A CHILD U\n")
    assert tasks(plan)["U"].command.endswith("bough run --quiet --reuse resume --name my.U later.dag")
    wide = plan_of('JOB A a.sub\nSUBDAG EXTERNAL U later.dag\nPARENT A CHILD U\nVARS U request_cpus="4"\n')
    assert [task.cores for task in wide.root.tasks] == [1, 4]
    assert error_of('SUBDAG EXTERNAL U later.dag NOOP\nVARS U request_cpus="x"\n').startswith(
        "my.dag:1: request_cpus='x': give the number of cores"
    )
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


def test_several_processes_that_a_script_judges_run_one_after_the_other() -> None:
    Path("n.sub").write_text("executable = /bin/sh\narguments = \"-c 'echo $(Process); exit $(Process)'\"\nqueue 3\n")
    script("post.sh", "echo post $*")
    plan = plan_of("JOB A n.sub\nSCRIPT POST A post.sh $RETURN $JOB_COUNT $PRE_SCRIPT_RETURN $SUCCESS\n")
    assert run(tasks(plan)["A"]).stdout == "0\n1\npost 1 3 -1 False\n"


def test_several_processes_of_a_sub_dag_have_its_priority_and_know_its_names() -> None:
    Path("n.sub").write_text("executable = /bin/echo\narguments = $(JOB) $(Process)\nqueue 2\n")
    Path("inner.dag").write_text("JOB X n.sub\nPRIORITY X 1\n")
    found = tasks(plan_of("SUBDAG EXTERNAL U inner.dag\nPRIORITY U 5\n"))
    assert [(one.command, one.priority) for one in found.values()] == [("/bin/echo X 0", 6), ("/bin/echo X 1", 6)]


@pytest.mark.parametrize("judge", ["", "SCRIPT POST X /bin/true\n"])
@pytest.mark.parametrize("queue", ["queue 100000", "if true\nqueue 50000\nendif\nqueue 1000 a in (" + "x " * 50 + ")"])
def test_too_many_processes_in_all_sub_dags_are_refused_before_any_is_made(
    monkeypatch: pytest.MonkeyPatch, queue: str, judge: str
) -> None:
    monkeypatch.setattr(Expander, "job", lambda self: pytest.fail("a job was made"))
    Path("n.sub").write_text(f"executable = /bin/echo\n{queue}\n")
    Path("d0.dag").write_text(f"JOB X n.sub\n{judge}JOB Y n.sub\n")
    for number in range(2):
        lines = "".join(f"SUBDAG EXTERNAL S{at} d{number}.dag\n" for at in range(4))
        Path(f"d{number + 1}.dag").write_text(lines)
    assert "nodes; a workflow has at most 2000000" in error_of("SUBDAG EXTERNAL U d2.dag\n")


def test_sub_dags_that_decide_for_themselves_are_looked_at_once_however_they_are_nested() -> None:
    for number in range(60):
        lines = "".join(f"SUBDAG EXTERNAL S{at} d{number + 1}.dag\n" for at in range(3))
        Path(f"d{number}.dag").write_text(f"FINAL F a.sub\n{lines}")
    Path("d60.dag").write_text("JOB X a.sub\n")
    assert set(tasks(plan_of("SUBDAG EXTERNAL U d0.dag\n"))) == {"U"}
    Path("d60.dag").write_text("JOB X none.sub\n")
    assert error_of("SUBDAG EXTERNAL U d0.dag\n").startswith("d60.dag:1: cannot read the submit description none.sub")
    Path("d60.dag").write_text("FINAL F a.sub\nSUBDAG EXTERNAL S d58.dag\n")
    told = "d60.dag:2: these files contain each other: d58.dag -> d59.dag -> d60.dag -> d58.dag"
    assert error_of("SUBDAG EXTERNAL U d0.dag\n") == told


def test_the_final_node_waits_for_all_and_runs_whatever_happened() -> None:
    task = tasks(plan_of(DIAMOND + "FINAL F a.sub\nJOB E a.sub\n"))["F"]
    assert (task.final, task.after) == (True, ["A", "B", "C", "D", "E"])


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
    assert (done.returncode, done.stdout) == (0, "post A 1 3 5 1.0\n")
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
        ("JOB A a.sub\nABORT-DAG-ON A 3 RETURN 300\n", "my.dag:2: RETURN 300: an exit code is from 0 to 255"),
        ("JOB A a.sub\nFINAL F a.sub\nRETRY F 3\n", "my.dag:3: F is the FINAL node, which takes no RETRY"),
        ("JOB A+B a.sub\n", "my.dag:1: 'A+B' is no name of a node: it has no +"),
        ("JOB Parent a.sub\n", "my.dag:1: Parent is a word of DAGMan files"),
        ("JOB A a.sub\nREJECT\n", "my.dag:2: REJECT: the file says that it must not be run"),
        ("JOB A a.sub\nPARENT A CHILD A\n", "my.dag:2: A would wait for itself"),
        ('JOB A a.sub\nVARS A queue1="x"\n', "my.dag:2: VARS: queue1 is no name of a macro"),
        ("JOB A a.sub\nPIN_IN A 0\n", "my.dag:2: '0' is no whole number"),
        ("JOB A a.sub\nCONNECT A A\n", "my.dag:2: CONNECT: there is no splice A"),
        ("JOB A a.sub\nSCRIPT DEBUG f NONE PRE A x\n", "my.dag:2: DEBUG file NONE: give STDOUT, STDERR or ALL"),
        ("SUBDAG U x.dag\n", "my.dag:1: SUBDAG is followed by EXTERNAL, a name and a file"),
        ("JOB A\n", "my.dag:1: JOB is followed by at least 2 words"),
        ("JOB A a.sub\nPARENT A B\n", "my.dag:2: PARENT is followed by names, CHILD and names"),
        ("JOB A a.sub\nRETRY A many\n", "my.dag:2: 'many' is no whole number"),
        ("JOB A a.sub\nVARS A who\n", "my.dag:2: VARS: 'who' is no name=\"value\""),
        ("JOB A a.sub FAST\n", "my.dag:1: FAST is no option of JOB A"),
        ("JOB A {\nexecutable = x\n", "my.dag:1: the } that ends this description is missing"),
        ("SPLICE S my.dag\n", "my.dag:1: these files contain each other: my.dag -> my.dag"),
        ("INCLUDE my.dag\n", "my.dag:1: these files include each other: my.dag -> my.dag"),
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


# --- as HTCondor's users write them ---------------------------------------------------------------------


def test_vars_may_name_the_node_and_themselves() -> None:
    Path("v.sub").write_text("executable = /bin/echo\narguments = $(job) $(NODENAME)\n")
    Path("inner.dag").write_text('JOB X v.sub\nVARS X job="$(JOB)" nodename = "<$(JOB)>"\n')
    plan = plan_of('SPLICE S inner.dag\nJOB A v.sub\nVARS A job="$(job)1"\nVARS S+X job="outer"\n')
    assert tasks(plan)["A"].command == "/bin/echo A1"
    assert run(tasks(plan)["S+X"]).stdout == "outer <S+X>\n"


def test_a_program_or_script_without_a_folder_is_the_one_beside_the_dag() -> None:
    script("pre.sh", "echo pre $1")
    assert run(scripted("echo ran", "SCRIPT PRE A pre.sh $NODE")).stdout == "pre A\nran\n"
    Path("sub").mkdir()
    script("sub/deep.sh", "pwd")
    Path("sub/j.sub").write_text("executable = deep.sh\n")
    task = tasks(plan_of("JOB A j.sub DIR sub\nSCRIPT PRE A deep.sh\n"))["A"]
    assert [line.rpartition("/")[2] for line in run(task).stdout.split()] == ["sub", "sub"]


def test_unknown_macros_of_scripts_stay_as_they_are() -> None:
    script("pre.sh", 'echo "$@"')
    assert run(scripted("true", "SCRIPT PRE A pre.sh $RETURN x=$JOB $FROB")).stdout == "$RETURN x=$JOB $FROB\n"


def test_a_script_that_defers_is_run_again_and_its_output_kept() -> None:
    script("pre.sh", "echo once; if [ -e there ]; then exit 0; fi; touch there; exit 3")
    done = run(scripted("echo ran", "SCRIPT DEFER 3 0 DEBUG said.txt STDOUT PRE A pre.sh"))
    assert (done.returncode, done.stdout, Path("said.txt").read_text()) == (0, "ran\n", "once\nonce\n")


def test_a_post_script_may_run_after_a_pre_script_that_failed() -> None:
    Path("dag.config").write_text("# ours\nDAGMAN_ALWAYS_RUN_POST = True\n")
    script("pre.sh", "exit 4")
    script("post.sh", "echo $@")
    done = run(
        scripted(
            "echo ran", "CONFIG dag.config", "SCRIPT PRE A pre.sh", "SCRIPT POST A post.sh $RETURN $PRE_SCRIPT_RETURN"
        )
    )
    assert (done.returncode, done.stdout) == (0, "-1004 4\n")


def test_pins_connect_single_nodes_of_splices() -> None:
    Path("one.dag").write_text("JOB A a.sub\nJOB B a.sub\nPIN_OUT A 1\nPIN_OUT B 2\n")
    Path("two.dag").write_text("JOB C a.sub\nJOB D a.sub\nPIN_IN C 1\nPIN_IN D 2\n")
    plan = plan_of("SPLICE S one.dag\nSPLICE T two.dag\nCONNECT S T\n")
    assert after(plan) == {"S+A": [], "S+B": [], "T+C": ["S+A"], "T+D": ["S+B"]}
    Path("two.dag").write_text("JOB C a.sub\nJOB D a.sub\nPIN_IN C 1\nPIN_IN D 1\n")
    assert error_of("SPLICE S one.dag\nSPLICE T two.dag\nCONNECT S T\n") == (
        "my.dag:3: CONNECT: splice S has 2 pins out, and T has 1 in"
    )
    Path("two.dag").write_text("JOB C a.sub\nJOB D a.sub\nJOB E a.sub\nPIN_IN C 1\nPIN_IN D 2\n")
    assert "node E of splice T waits for nothing and has no PIN_IN" in error_of(
        "SPLICE S one.dag\nSPLICE T two.dag\nCONNECT S T\n"
    )


def test_limits_that_are_said_higher_up_count() -> None:
    Path("inner.dag").write_text("JOB X a.sub\nCATEGORY X c\nMAXJOBS c 5\nJOB Y a.sub\nCATEGORY Y +d\nMAXJOBS +d 7\n")
    plan = plan_of("SPLICE S inner.dag\nMAXJOBS S+c 2\nMAXJOBS +d 3\n")
    assert {group.name: group.limit for _, group in plan.walk() if group.limit} == {"category-c": 2, "category-d": 3}


def test_the_dag_says_itself_whether_it_succeeded() -> None:
    verdict = plan_of("JOB A a.sub\nJOB B a.sub\nABORT-DAG-ON A 5 RETURN 0\nABORT-DAG-ON B 6\n").verdict
    assert verdict is not None
    assert verdict.exit_code({"A": 5, "B": None}, others_done=False) == 0
    assert verdict.exit_code({"A": 4, "B": 6}, others_done=False) == 6
    assert verdict.exit_code({"A": 4}, others_done=False) == 1
    decided = plan_of("JOB A a.sub\nFINAL F a.sub\n").verdict
    assert decided is not None
    assert decided.exit_code({"F": 0}, others_done=False) == 0
    assert decided.exit_code({"F": 9}, others_done=True) == 1


def test_a_node_that_aborts_is_not_tried_again() -> None:
    Path("bin").mkdir()
    script("bin/bough", "echo called $*")
    task = scripted("echo try; exit 5", "RETRY A 3", "ABORT-DAG-ON A 5")
    done = run(PlanTask(task.command.replace("bough here", "bin/bough here")))
    assert (done.returncode, done.stdout) == (5, "try\ncalled here cancel --all\n")


def test_a_service_ends_with_the_dag_and_does_not_count() -> None:
    plan = plan_of("SERVICE S a.sub\nJOB A a.sub\n")
    stop = tasks(plan)["stop-services"]
    assert (stop.after, stop.final, tasks(plan)["S"].cores) == (["A"], True, 0)
    assert plan.verdict is not None
    assert plan.verdict.ignored == ["S", "stop-services"]


def test_nothing_starts_before_the_provisioner_is_ready() -> None:
    plan = plan_of("JOB A a.sub\nJOB B a.sub\nPARENT A CHILD B\nPROVISIONER P a.sub\n")
    assert after(plan) == {"A": ["P"], "B": ["A"], "P": []}
    assert [group.name for group in plan.root.groups] == ["P"]


def test_a_rescue_file_says_what_was_done() -> None:
    Path("my.dag.rescue001").write_text("DONE A\n")
    Path("my.dag.rescue002").write_text("# a comment\nDONE A\nDONE B\nRETRY C 7\n")
    Path("my.dag").write_text(DIAMOND)
    notes: list[str] = []
    plan = read("my.dag", notes.append)
    assert after(plan) == {"C": [], "D": ["C"]}
    assert tasks(plan)["C"].retries == 7
    assert notes == ["my.dag.rescue002: HTCondor has done 2 nodes of it already; remove the file to run all of it"]
    Path("my.dag.rescue003").write_text("DONE Z\n")
    with pytest.raises(InvalidWorkload, match=r"my.dag.rescue003:1: there is no node Z in my.dag"):
        read("my.dag")


def test_a_description_that_is_not_there_yet_is_read_when_it_is_due() -> None:
    notes: list[str] = []
    Path("my.dag").write_text('JOB A a.sub\nJOB B late.sub\nVARS B x="1 2"\nPARENT A CHILD B\n')
    task = tasks(read("my.dag", notes.append))["B"]
    assert task.command == """job=$(bough describe --node B my.dag) && eval "$job\""""
    assert notes == ["my.dag:2: late.sub is not there yet; it is read when the node is due"]
    Path("late.sub").write_text("executable = /bin/echo\narguments = $(x) $(RETRY)\nenvironment = E=5\n")
    retry = "retry=$((${BOUGH_ATTEMPT:-1} - 1))"
    assert node_text("my.dag", "B") == f"""{retry}; ( export E=5 && /bin/echo 1 2 ''"$retry"'' )"""


def test_variables_of_the_dag_reach_all_its_programs() -> None:
    script("pre.sh", "echo $COLOUR")
    assert run(scripted("echo $COLOUR", "ENV SET COLOUR=red;X=1", "ENV GET HOME", "SCRIPT PRE A pre.sh")).stdout == (
        "red\nred\n"
    )


def test_names_with_blanks_may_be_quoted() -> None:
    Path("a b.sub").write_text("executable = /bin/true\n")
    assert tasks(plan_of('JOB A "a b.sub"\n'))["A"].command == "/bin/true"


def test_a_description_may_end_with_a_word_and_options() -> None:
    Path("d").mkdir()
    plan = plan_of("JOB A @=END\nexecutable = /bin/true\n@END\nJOB B {\nexecutable = /bin/pwd\n} DIR d\n")
    assert [task.cwd for task in plan.root.tasks] == ["", "d"]


def test_each_node_has_a_number_of_its_own() -> None:
    Path("c.sub").write_text("executable = /bin/echo\narguments = $(Cluster).$(Process)\n")
    plan = plan_of("JOB A c.sub\nJOB B c.sub\n")
    assert [task.command for task in plan.root.tasks] == ["/bin/echo 1.0", "/bin/echo 2.0"]
    Path("inner.dag").write_text("JOB X c.sub\nPRIORITY X 2\n")
    plan = plan_of("JOB A c.sub\nSUBDAG EXTERNAL U inner.dag\nPRIORITY U 5\n")
    found = tasks(plan)["U+X"]
    assert (found.command, found.priority) == ("/bin/echo 3.0", 7)


def test_a_sub_dag_of_a_category_counts_as_one() -> None:
    Path("inner.dag").write_text(INNER)
    plan = plan_of("SUBDAG EXTERNAL U inner.dag\nCATEGORY U few\nMAXJOBS few 1\n")
    [group] = plan.root.groups
    assert (group.name, group.limit, [task.name for task in group.tasks]) == ("category-few", 1, ["U"])


def test_a_late_description_of_a_node_in_a_sub_dag_is_found() -> None:
    Path("inner.dag").write_text("JOB X a.sub\nJOB Y late.sub\nPARENT X CHILD Y\n")
    assert "--node U+Y my.dag" in tasks(plan_of("SUBDAG EXTERNAL U inner.dag\n"))["U+Y"].command
    Path("late.sub").write_text("executable = /bin/echo\narguments = $(JOB)\n")
    assert node_text("my.dag", "U+Y") == "( /bin/echo Y )"  # as its own file calls it
    with pytest.raises(InvalidWorkload, match=r"my.dag: there is no node U\+Z"):
        node_text("my.dag", "U+Z")
