"""What the driver makes of commands, settings and requests, without any process."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

from bough.driver import Driver
from bough.driver.job_bundles import LONGEST, Bundle, Job, JobGroup, Stage, read_command, run_stages
from bough.driver.process_link import AskedProcess, ProcessRequest, check_startable, read_request
from bough.errors import UserError


def asked(args: object, **more: object) -> AskedProcess:
    defaults = dict.fromkeys(AskedProcess._fields) | {"close_fds": True, "pass_fds": (), "shell": False}
    defaults |= {"umask": -1, "process_group": -1, "restore_signals": True}
    defaults |= dict.fromkeys(("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"), -1)
    return AskedProcess(**(defaults | {"args": args} | more))  # type: ignore[arg-type]


def test_a_text_without_shell_is_a_program() -> None:
    assert read_request(asked("ls -l")).words == ["ls -l"]


def test_a_text_with_shell_is_given_to_it() -> None:
    request = read_request(asked("ls -l", shell=True, executable="/bin/bash"))
    assert (request.words, request.program) == (["/bin/bash", "-c", "ls -l"], "/bin/bash")


def test_words_may_be_bytes_and_paths() -> None:
    assert read_request(asked([b"ls", Path("a")], cwd=b"/")).words == ["ls", "a"]


@pytest.mark.parametrize(
    "more",
    [{"preexec_fn": print}, {"pass_fds": (3,)}, {"uid": 1}, {"gid": 1}, {"gids": []}, {"process_group": 7}],
    ids=str,
)
def test_what_needs_a_child_of_ones_own_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"not supported by bough\.driver"):
        read_request(asked(["ls"], **more))


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"A": "b\0"}, {"A\0": "b"}])
def test_an_environment_that_cannot_be_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"null byte|illegal"):
        read_request(asked(["ls"], env=env))


def test_a_program_that_is_not_there_is_missed_as_by_subprocess(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")

    def failing(*words: str, cwd: str | None = None) -> tuple[int | None, str]:
        with pytest.raises(OSError) as ours:
            check_startable(ProcessRequest(list(words), words[0], cwd, None, -1, True))
        with pytest.raises(OSError) as real:
            subprocess.run(words, cwd=cwd, check=False)
        assert (ours.value.errno, ours.value.filename) == (real.value.errno, real.value.filename)
        return ours.value.errno, ours.value.filename

    assert failing("no-such-program")[0] == errno.ENOENT
    assert failing("./no-such-program")[0] == errno.ENOENT
    assert failing(str(tmp_path / "plain"))[0] == errno.EACCES
    assert failing("ls", cwd=str(tmp_path / "nowhere"))[0] == errno.ENOENT
    assert failing("ls", cwd=str(tmp_path / "plain"))[0] == errno.ENOTDIR


def test_a_command_needs_a_shell_only_for_what_a_shell_does() -> None:
    assert read_command("sleep 0.5") == ["sleep", "0.5"]
    assert read_command("grep 'a b' file") == ["grep", "a b", "file"]
    assert read_command("a | b") == ["/bin/sh", "-c", "a | b"]
    assert read_command(["a", Path("b")]) == ["a", "b"]


@pytest.mark.parametrize("command", ["", "  ", [], 7, b"ls", ["ls", 7]])
def test_what_is_no_command_is_refused(command: object) -> None:
    with pytest.raises(UserError, match="command"):
        read_command(command)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("consumers", [1, 513, 2.5, True, "3"]),
        ("buffer_size", [99, 10_001, None]),
        ("queue_name", ["", 7, "a/b"]),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, values: list[object]) -> None:
    driver = Driver()
    for value in values:
        with pytest.raises(UserError, match=name):
            setattr(driver, name, value)
        with pytest.raises(UserError, match=name):
            Driver(**{name: value})  # type: ignore[arg-type]
    assert Driver(consumers=2, buffer_size=100).consumers == 2
    assert Driver(consumers=512, buffer_size=10_000).buffer_size == 10_000


def test_groups_and_pipelines_are_validated() -> None:
    driver = Driver(buffer_size=100)
    for factor in (0, 101, 1.5):
        with pytest.raises(UserError, match="batching_factor"):
            driver.set_group("g", factor)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="length"):
            driver.create_pipeline("p", factor)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="timeout"):
        driver.set_group("g", 2, timeout=-1)
    driver.set_group("g", 100)
    driver.create_pipeline("p", 100, group="g")
    with pytest.raises(UserError, match="'p'"):
        driver.create_pipeline("p", 2)
    with pytest.raises(UserError, match="'g'"):
        driver.create_pipeline("g", 2)
    with pytest.raises(UserError, match="'p'"):
        driver.set_group("p")
    with pytest.raises(UserError, match="'x'"):
        driver.create_pipeline("q", 2, group="x")


def test_a_bundle_is_full_at_its_factor_and_due_after_its_timeout() -> None:
    bundle = Bundle(JobGroup("g", 2, 5.0), False, [])
    for key in (1, 2):
        assert not bundle.is_full
        bundle.add([Job(key, "true", Stage(["true"], "/", {}), None, "g")])
    assert bundle.is_full
    assert bundle.due == bundle.changed + 5
    assert bundle.left() == 2


def test_a_bundle_without_a_factor_leaves_at_a_pause_or_after_a_moment() -> None:
    bundle = Bundle(JobGroup("g", None, 0.0), False, [])
    bundle.add([Job(1, "true", Stage(["true"], "/", {}), None, "g")])
    assert bundle.due == bundle.changed == bundle.begun
    bundle.changed = bundle.begun + 60
    assert bundle.due == bundle.begun + LONGEST


def test_stages_stop_at_the_first_failure_unless_told_otherwise(tmp_path: Path) -> None:
    def stage(text: str) -> Stage:
        return Stage(["/bin/sh", "-c", text], str(tmp_path), {"NAME": "x"})

    stages = [stage("echo $NAME"), stage("echo bad >&2; kill -9 $$"), stage("pwd")]
    first, second, third = run_stages(stages, keep_going=False)
    assert (first.code, first.stdout) == (0, b"x\n")
    assert (second.code, second.stderr) == (-9, b"bad\n")
    assert (third.code, third.stdout, third.started) == (1000, b"", 0.0)
    assert run_stages(stages, keep_going=True)[2].stdout.decode().strip() == str(tmp_path)
    assert run_stages([Stage(["no-such-program"], "/", {})], keep_going=False)[0].code == 127
