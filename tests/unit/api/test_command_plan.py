"""What `command` and `sweep` make of a text and its parameters."""

import pathlib
import pickle
import subprocess
from typing import Any

import pytest

from bough.api.futures.task import OutputPath
from bough.api.submit.command_lines.command_plan import Around, plan_command, plan_sweep, shell_words
from bough.api.submit.command_lines.transfers import SaidTransfer
from bough.errors import InvalidWorkload
from bough.model.commands.command import Transfer, has_atomic_outputs
from bough.model.commands.rendering import render_call, render_row, row_files
from bough.model.spaces import product, tie

BASH = shell_words()


class FakeTask:
    """As much of a task as a command sees of it."""

    def __init__(self, **outputs):
        self._outputs = outputs

    @property
    def outputs(self):
        return {slot: OutputPath(path, self) for slot, path in self._outputs.items()}

    def result(self):
        return None


def plan(text, **parameters):
    return plan_command(text, parameters, cwd="/w")


def argv(planned, hidden=None):
    return render_call(planned.call, hidden or {}, 1, 1)


def test_a_text_without_parameters_is_verbatim():
    assert argv(plan("awk '{print $1}' in.txt")) == ["awk", "{print $1}", "in.txt"]
    assert argv(plan("awk '{print}' a > b")) == [*BASH, "awk '{print}' a > b"]


def test_a_text_with_parameters_is_a_template():
    planned = plan("sort {src:r} > {dst:w}", src="in.txt", dst=pathlib.Path("out/x.txt"))
    assert planned.reads == ("/w/in.txt",)
    assert planned.writes == {"dst": "/w/out/x.txt"}
    assert argv(planned, {"dst": "/w/out/.h"}) == [*BASH, "sort in.txt > out/.h"]
    assert planned.text == "sort {src:r} > {dst:w}"


def test_no_shell_is_started_for_a_text_that_needs_none():
    assert argv(plan("sort {src:r} -o {dst:w}", src="a b", dst="c"), {"dst": "/w/.c"}) == ["sort", "a b", "-o", ".c"]


@pytest.mark.parametrize("value", ["{b}", "{b:raw}", "{a}", "{cores}", "{b.parent}", "{{b}}", "{b", "{nobody}"])
def test_a_value_of_a_command_is_data_braces_and_all(value: str):
    planned = plan("x {a} {b}", a=value, b="secret; rm")
    assert argv(planned) == ["x", value, "secret; rm"]
    written = plan("x {q:r} {o:w}", o=f"hits/{value}.txt", q=pathlib.Path(f"in/{value}"))
    assert written.writes == {"o": f"/w/hits/{value}.txt"}
    assert written.reads == (f"/w/in/{value}",)


def test_in_a_sweep_only_a_keyword_beside_the_space_is_a_template():
    tasks = [FakeTask(o="/w/{e}.txt")]
    for given in (tasks[0], tasks, ["{e}.txt"]):
        planned = plan_sweep("x {d:r} {e} {q}", product(e=["{q}"], q=["{e}"]), {"d": given}, cwd="/w")
        call = render_row(planned.template, planned.rows[0])
        assert render_call(call, {}) == ["x", "{e}.txt", "{q}", "{e}"]
    made = plan_sweep("x {e} {o:w}", product(e=["{o}", "a"]), {"o": "hits/{e}.txt"}, cwd="/w")
    assert [row_files(made.template, row)[1]["o"] for row in made.rows] == ["/w/hits/{o}.txt", "/w/hits/a.txt"]


def test_the_shell_can_be_chosen():
    assert plan_command("a", {}, cwd="/w", shell=True).call.settings.shell == BASH
    assert plan_command("a | b", {}, cwd="/w", shell=False).call.argv == [["a"], ["|"], ["b"]]
    assert plan_command("a", {}, cwd="/w", shell="sh").call.settings.shell[1:] == ("-ec",)
    assert plan_command("a", {}, cwd="/w", shell=["x", "-y"]).call.settings.shell == ("x", "-y")
    with pytest.raises(InvalidWorkload, match="shell nosuchshell was not found"):
        plan_command("a", {}, cwd="/w", shell="nosuchshell")


@pytest.mark.parametrize(
    ("shell", "options"),
    [
        *[(name, ("-eo", "pipefail", "-c")) for name in ("bash", "zsh", "ksh")],
        *[(name, ("-ec",)) for name in ("sh", "dash")],
        *[(name, ("-c",)) for name in ("fish", "tcsh", "python3")],
    ],
)
def test_a_shell_is_started_as_the_reference_says(
    shell: str, options: tuple[str, ...], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / shell
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    shell_words.cache_clear()
    for said in (shell, str(program)):
        words = plan_command("a", {}, cwd="/w", shell=said).call.settings.shell
        assert words == (str(program), *options)
    shell_words.cache_clear()


def test_sh_ends_with_the_first_command_that_fails_and_words_of_your_own_do_not():
    for shell, code in (("sh", 1), (["sh", "-c"], 0)):
        words = plan_command("false; true", {}, cwd="/w", shell=shell).call.settings.shell
        assert subprocess.run([*words, "false; true"], check=False, timeout=60).returncode == code


def test_the_default_shell_fails_with_any_part_of_a_pipe():
    assert subprocess.run([*BASH, "false | true"], check=False, timeout=60).returncode != 0


def test_a_list_of_words_needs_no_quoting():
    planned = plan(["echo", "a b", "$x", "{y}", 5, pathlib.Path("p"), "it's", ""])
    assert argv(planned) == ["echo", "a b", "$x", "{y}", "5", "p", "it's", ""]
    with_slots = plan(["cp", "{src:r}", "to={dst:w}", "a b", "it's"], src="x y", dst="z")
    assert argv(with_slots, {"dst": "/w/.z"}) == ["cp", "x y", "to=.z", "a b", "it's"]


@pytest.mark.parametrize("text", ["", "  \n", [], 5, None, [None], [["a"]], b"a"])
def test_what_is_no_command_is_refused(text):
    with pytest.raises(InvalidWorkload):
        plan(text)


def test_a_wrong_slot_and_an_unused_parameter_are_named():
    with pytest.raises(InvalidWorkload, match=r"slot \{b\}.*needs a parameter b; parameters are a"):
        plan("x {a} {b}", a=1)
    with pytest.raises(InvalidWorkload, match="no slot uses parameter b"):
        plan("x {a}", a=1, b=2)
    with pytest.raises(InvalidWorkload, match=r"parameter memmory in .*; did you mean memory\?"):
        plan("x {a}", a=1, memmory="4GB")
    with pytest.raises(InvalidWorkload, match=r"parameter wher in .*; did you mean where\?"):
        plan_sweep("x {q}", product(q=[1]), {"wher": max}, cwd="/w")
    with pytest.raises(InvalidWorkload, match="parameter a is None"):
        plan("x {a}", a=None)
    with pytest.raises(InvalidWorkload, match=r"the value of o.*needs a parameter qq"):
        plan_sweep("x {q} {o:w}", product(q=[1]), {"o": "{qq.stem}.txt"}, cwd="/w")


def test_a_task_fills_a_slot_with_its_single_output():
    task = FakeTask(o="/w/mid/x.txt")
    planned = plan("wc {i:r}", i=task)
    assert planned.reads == ("/w/mid/x.txt",)
    assert planned.tasks == (task,)
    assert argv(planned) == ["wc", "mid/x.txt"]


def test_a_list_of_tasks_fills_a_slot():
    tasks = [FakeTask(o=f"/w/{n}") for n in range(3)]
    planned = plan("cat {i:r} > {o:w}", i=tasks, o="all")
    assert planned.reads == ("/w/0", "/w/1", "/w/2")
    assert planned.tasks == tuple(tasks)


def test_one_of_several_outputs_is_chosen_by_name():
    task = FakeTask(a="/w/a", b="/elsewhere/b")
    planned = plan("wc {i:r}", i=task.outputs["b"])
    assert planned.reads == ("/elsewhere/b",)
    assert planned.tasks == (task,)
    with pytest.raises(InvalidWorkload, match=r"given for i has outputs a, b: give task.outputs\[...\]"):
        plan("wc {i:r}", i=task)
    with pytest.raises(InvalidWorkload, match="given for i declares no output"):
        plan("wc {i:r}", i=FakeTask())
    with pytest.raises(InvalidWorkload, match=r"parameter i is a task: write \{i:r\}"):
        plan("wc {i}", i=FakeTask(a="/w/a"))


def test_tasks_may_be_words_and_standard_input():
    task = FakeTask(o="/w/x")
    assert plan(["wc", task]).reads == ("/w/x",)
    planned = plan_command("wc", {}, cwd="/w", stdin=task)
    assert planned.call.settings.stdin_path == "/w/x"
    assert (planned.reads, planned.tasks) == (("/w/x",), (task,))


def test_standard_input_is_text_bytes_or_a_file():
    def settings(stdin):
        return plan_command("cat", {}, cwd="/w", stdin=stdin).call.settings

    assert settings("ü").stdin == "ü".encode()
    assert settings(b"x").stdin == b"x"
    assert settings(pathlib.Path("f")).stdin_path == "/w/f"
    assert settings(subprocess.DEVNULL).stdin is None
    with pytest.raises(InvalidWorkload, match="stdin is a text"):
        settings(1.5)


def test_environments_hold_texts():
    assert plan_command("a", {}, cwd="/w", env={"N": 4}).call.settings.env == {"N": "4"}
    with pytest.raises(InvalidWorkload, match="env holds"):
        plan_command("a", {}, cwd="/w", env={"N": None})


def test_an_output_path_is_a_plain_path_elsewhere():
    path = OutputPath("/w/a", FakeTask())
    assert path == "/w/a"
    assert type(pickle.loads(pickle.dumps(path))) is str


def test_renaming_changes_the_call():
    planned = plan("x {i:r} {o:w}", i="i", o="d/o").rename({"/w/d/o": "/w/d/o-1", "/w/i": "/w/i-1"})
    assert planned.writes == {"o": "/w/d/o-1"}
    assert argv(planned, {"o": "/w/d/.h"}) == ["x", "i-1", "d/.h"]


def test_a_sweep_has_a_row_for_each_combination():
    space = product(q=["a.fa", "b.fa"], e=[1e-3, 1e-5])
    planned = plan_sweep("blastp -query {q:r} -evalue {e} -out {o:w}", space, {"o": "hits/{q.stem}.{e}.txt"}, cwd="/w")
    assert len(planned.rows) == 4
    call = render_row(planned.template, planned.rows[3])
    assert call.writes == {"o": "/w/hits/b.1e-05.txt"}
    assert render_call(call, {"o": "/w/hits/.h"}, 1, 1) == [
        "blastp",
        "-query",
        "b.fa",
        "-evalue",
        "1e-05",
        "-out",
        "hits/.h",
    ]


def test_a_sweep_keeps_the_combinations_its_filter_is_true_for():
    planned = plan_sweep("x {a} {b}", product(a=range(4), b=range(4)), {}, cwd="/w", where=lambda a, b: a < b)
    assert list(planned.rows) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    counted = plan_sweep("x {a}", product(a=range(4), k=range(4)), {}, cwd="/w", where=lambda a, k: a == k)
    assert len(counted.rows) == 4


def test_constants_beside_the_space_are_part_of_every_row():
    planned = plan_sweep(
        "x {a} {n:03d} {w}", product(a=[1, 2]), {"n": 7, "w": ["p", "q"]}, cwd="/w", where=lambda a: a > 1
    )
    assert planned.template.names == ("a", "n", "w")
    assert render_call(render_row(planned.template, planned.rows[0]), {}, 1, 1) == ["x", "2", "007", "p", "q"]


def test_tasks_in_a_space_stand_for_their_files():
    tasks = [FakeTask(o="/w/a.hmm"), FakeTask(o="/w/b.hmm")]
    planned = plan_sweep("x {h:r} {n}", tie(h=tasks, n=[1, 2]), {}, cwd="/w")
    assert list(planned.rows) == [("a.hmm", 1), ("b.hmm", 2)]
    assert planned.tasks == ()  # the table of files knows which element waits for which


def test_a_task_beside_the_space_is_waited_for_by_all():
    task = FakeTask(o="/w/database")
    planned = plan_sweep("x {d:r} {n}", product(n=[1, 2]), {"d": task}, cwd="/w")
    assert list(planned.rows) == [(1, "database"), (2, "database")]
    assert planned.tasks == (task,)


def test_wrong_sweeps_are_refused():
    with pytest.raises(InvalidWorkload, match="a sweep runs over"):
        plan_sweep("x {a}", [1], {}, cwd="/w")
    with pytest.raises(InvalidWorkload, match="parameter a is given twice"):
        plan_sweep("x {a}", product(a=[1]), {"a": 2}, cwd="/w")
    with pytest.raises(InvalidWorkload, match=r"slot \{b\}"):
        plan_sweep("x {a} {b}", product(a=[1]), {}, cwd="/w")
    with pytest.raises(InvalidWorkload, match="product takes spaces"):
        product([1, 2])
    with pytest.raises(InvalidWorkload, match="tie needs at least one list"):
        tie()


@pytest.mark.parametrize("how", [{}, {"shell": True}])
def test_what_holds_a_nul_is_no_command(how):
    for text, given in (
        ("echo a\0b", {}),
        (["echo", "a\0b"], {}),
        ("echo {x}", {"x": "a\0b"}),
        ("echo {x:w}", {"x": "a\0b"}),
        ("echo {x:r}", {"x": pathlib.Path("a\0b")}),
        (["echo", "{x}"], {"x": ["a", "b\0"]}),
    ):
        with pytest.raises(InvalidWorkload, match="NUL"):
            plan_command(text, given, cwd="/w", **how)
    with pytest.raises(InvalidWorkload, match="NUL"):
        plan_sweep("x {a}", product(a=["\0"]), {}, cwd="/w")


def test_a_task_that_an_f_string_put_into_the_text_is_refused():
    for shown in ("<task 1 (pow): waiting>", "<task 12.3: done>", "<array of 3 tasks: 3 waiting>"):
        for text in (f"sort {shown} > out.txt", ["sort", shown]):
            with pytest.raises(InvalidWorkload, match=r"a task as Python shows it; give it as a parameter"):
                plan_command(text, {}, cwd="/w")
    plan_command("sort <task 1>out", {}, cwd="/w")
    plan_command("echo '<task >'; echo a: b > c", {}, cwd="/w")


def test_files_that_are_only_put_stand_last_among_those_that_are_read() -> None:
    planned = plan_command("cat {x:r} q db", {"x": "in"}, cwd="/w")
    moved = [Transfer("put", "/w/q", "q"), Transfer("store", "/w/db", "db"), Transfer("put", "/w/in", "in")]
    found = planned.with_transfers([*moved, Transfer("get", "/w/out", "out")])
    assert found.reads == ("/w/in", "/w/db", "/w/q")
    assert found.fresh == 1


# --- names that programs would take for something else --------------------------------------------------


def test_a_file_whose_name_begins_with_a_dash_is_no_option():
    with_shell = plan("cat {x:r} > {o:w}", x="-n", o="out")
    assert argv(with_shell, {"o": "/w/.o"})[-1] == "cat ./-n > .o"
    without = plan("cat {x:r} --in={x:r} {x}", x="-n")
    assert argv(without) == ["cat", "./-n", "--in=./-n", "-n"]
    assert argv(plan("cat {x:r}", x=["-n", "a"])) == ["cat", "./-n", "a"]
    assert argv(plan("cat /tmp/x {x:r}", x="d/-n")) == ["cat", "/tmp/x", "d/-n"]


@pytest.mark.parametrize(("written", "hidden"), [("out/", ".o"), ("a/out//", "a/.o"), ("./out", "./.o")])
def test_a_folder_may_be_written_with_a_slash_at_its_end(written, hidden):
    assert argv(plan("mkdir {o:w}", o=written), {"o": "/w/.o"}) == ["mkdir", hidden]


# --- what two attempts at once would not disturb -------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("sort {a:r} > {o:w}", {"a": "in", "o": "out"}),
        ("x {o:w} && mv {o}.log {o}", {"o": "out"}),  # the name that the attempt writes it under
        ("x {a:r} > {o:w}", {"a": "s3://bucket/in", "o": "out"}),
        ("mkdir {o:w}", {"o": "d/out/"}),
    ],
)
def test_outputs_that_each_attempt_writes_under_a_name_of_its_own_are_atomic(text: str, parameters: dict[str, str]):
    assert plan(text, **parameters).has_atomic_outputs


@pytest.mark.parametrize(
    ("text", "parameters", "beside"),
    [
        ("echo", {}, {}),
        ("sort {a:r}", {"a": "in"}, {}),
        ("./simulate", {}, {"outputs": ["result.txt"]}),  # the command writes the final name
        ("./simulate", {}, {"outputs": ["*.txt"]}),
        ("x > {o:w}", {"o": "out"}, {"outputs": ["more.txt"]}),
        ("x {o:w} --log {o:raw}.log", {"o": "out"}, {}),
        ("x {o:w} --prefix {o.stem}", {"o": "out"}, {}),
        ("x {o:w}; cat {o:r}", {"o": "out"}, {}),
        ("x > {o:w}", {"o": "s3://bucket/out"}, {}),
        ("x > {o:w}", {"o": "alpha:/data/out"}, {}),
        ("x > out.txt.tmp && mv out.txt.tmp {o:w}", {"o": "d/out.txt"}, {}),
        ("x > {o:w}", {"o": "out"}, {"around": Around(teardown="rm -rf /shared/work")}),
    ],
)
def test_outputs_of_which_two_attempts_might_disturb_each_other_are_not_atomic(
    text: str, parameters: dict[str, str], beside: dict[str, Any]
):
    assert not plan_command(text, parameters, cwd="/w", **beside).has_atomic_outputs


def test_a_playpen_whose_storage_stays_is_not_atomic():
    planned = plan("x > {o:w}", o="out")
    assert not planned.with_transfers([Transfer("put", "/w/in", "$STORAGE/in")]).has_atomic_outputs


def test_elements_of_an_array_are_atomic_as_commands_are():
    sweep = plan_sweep("x {q:r} > {o:w}", product(q=["a", "b"]), {"o": "hits/{q.stem}.txt"}, cwd="/w")
    assert has_atomic_outputs(sweep.template)
    by_final_name = {"o": "hits/{q.stem}.txt", "log": "{o}.log"}
    assert not has_atomic_outputs(
        plan_sweep("x {q:r} > {o:w} 2> {log}", product(q=["a"]), by_final_name, cwd="/w").template
    )
    beside = plan_sweep("x {q}", product(q=["a", "b"]), {}, cwd="/w", outputs=["{q}.txt"])
    assert not has_atomic_outputs(beside.template)
    got = plan_sweep(
        "x {q} > {o:w}", product(q=["a"]), {"o": "{q}"}, cwd="/w", transfers=[SaidTransfer("get", "g", "")]
    )
    assert not has_atomic_outputs(got.template)
