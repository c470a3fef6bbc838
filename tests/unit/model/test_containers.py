"""What stands around a command: its setup and its container, as words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bough.errors import BadValue
from bough.model.commands.command import CommandSettings
from bough.model.commands.containers import around, check_container_command, read_container, read_setup

PLAIN = CommandSettings("/data/a b")
WORDS = ["sort", "in file", "{cwd}"]


def test_a_container_is_a_runtime_and_an_image() -> None:
    assert read_container("apptainer:tools.sif") == ("apptainer", "tools.sif")
    assert read_container("docker:registry:5000/python:3.12") == ("docker", "registry:5000/python:3.12")


@pytest.mark.parametrize(
    "given", ["", "tools.sif", "podman:x", "docker:", "docker: ", "docker:-v/:/x", "docker:a\nb", 3]
)
def test_what_is_none_is_refused(given: object) -> None:
    with pytest.raises(BadValue, match="container is"):
        read_container(given)


def test_a_command_without_either_is_as_it_was() -> None:
    assert around(WORDS, PLAIN) == WORDS


def test_the_words_of_a_command_stay_words_in_a_container() -> None:
    found = around(WORDS, replace(PLAIN, container="apptainer:tools.sif"))
    assert found == ["apptainer", "exec", "--bind", "/data/a b", "--pwd", "/data/a b", "tools.sif", *WORDS]


def test_docker_gets_the_user_and_the_variables_of_the_task() -> None:
    settings = replace(PLAIN, container="docker:python:3.12")
    found = around(WORDS, settings, user="7:8", variables=["X", "BOUGH_TASK"])
    assert found[:7] == ["docker", "run", "--rm", "--init", "-i", "--user", "7:8"]
    assert found[7:11] == ["--volume", "/data/a b:/data/a b", "--workdir", "/data/a b"]
    assert found[11:] == ["--env", "X", "--env", "BOUGH_TASK", "python:3.12", *WORDS]


def test_a_site_says_how_its_runtime_is_called() -> None:
    settings = replace(PLAIN, container="apptainer:tools.sif")
    found = around(WORDS, settings, template="singularity exec '{image}' {command} --end")
    assert found == ["singularity", "exec", "tools.sif", *WORDS, "--end"]


def test_an_image_is_not_read_as_a_template() -> None:
    settings = replace(PLAIN, cwd="/{image}", container="apptainer:{cwd}{command}")
    assert around(["x"], settings, template="run {image} {cwd} {command}") == ["run", "{cwd}{command}", "/{image}", "x"]


@pytest.mark.parametrize(
    "text", ["", "singularity exec {image}", "run {command}", "run {image} x{command}", "run '{image}"]
)
def test_a_template_without_image_or_command_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="--container-command"):
        check_container_command(text)


def test_the_setup_runs_outside_of_the_container() -> None:
    found = around(["true"], replace(PLAIN, setup="module load apptainer", container="apptainer:x"))
    script = found.index("-c") + 1
    assert found[script].splitlines()[1] == "module load apptainer"
    assert found[script + 2] == "apptainer"


@pytest.mark.parametrize("given", [3, "a\0b", "x" * 70_000])
def test_a_setup_is_text(given: object) -> None:
    with pytest.raises(BadValue, match="setup is"):
        read_setup(given)
