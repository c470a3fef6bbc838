"""Profiles: which tables count, what goes before what, and what is refused."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
from cli_workshop import Workshop

from bough.cli.main import load_command, make_parser
from bough.cli.runs.profiles import apply_profiles
from bough.errors import UserError
from tests.second_user import NOBODY, needs_root


@pytest.fixture
def home(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home-of-bough"
    folder.mkdir()
    monkeypatch.setenv("BOUGH_HOME", str(folder))
    return folder


def taken(command: str, *words: str, over: tuple[str, ...] = ()) -> argparse.Namespace:
    args = make_parser(command, load_command(command)).parse_args(words)
    apply_profiles(args, command, "", over)
    return args


def test_the_command_line_goes_before_a_profile_and_that_before_the_default(workshop: Workshop, home: Path) -> None:
    (workshop.home / "bough.toml").write_text(
        '[default]\nfail-fast = true\npolicy = "sjf"\ncores = 1\n[profile.big]\ncores = 16\nmemory = "4GB"\n'
    )
    (home / "config.toml").write_text('[default]\nretries = 2\npolicy = "fifo"\n[profile.big]\ncores = 99\n')
    args = taken("run")
    assert (args.cores, args.policy, args.fail_fast, args.retries, args.memory) == (1, "sjf", True, 2, None)
    args = taken("run", "--profile", "big")
    assert (args.cores, args.policy, args.memory) == (16, "sjf", "4GB")
    args = taken("run", "--profile", "big", "--cores", "3", "--retries", "0")
    assert (args.cores, args.retries) == (3, 0)
    assert taken("run", "--profile", "big", over=("memory",)).memory is None
    assert taken("run", "--server", "unix:x").cores is None  # it would be refused there


def test_a_command_has_a_table_of_its_own(workshop: Workshop, home: Path) -> None:
    (workshop.home / "bough.toml").write_text(
        '[profile.x]\ncores = 8\nretries = 1\nqueue = "all"\n'
        '[profile.x.submit]\ncores = 2\nqueue = "own"\nresource = ["licence=1", "disk=2"]\n'
    )
    run, submit = taken("run", "--profile", "x"), taken("submit", "--profile", "x")
    assert (run.cores, run.retries) == (8, 1)
    assert (submit.cores, submit.retries, submit.queue, submit.resource) == (2, 1, "own", ["licence=1", "disk=2"])


def test_without_a_file_nothing_is_different(workshop: Workshop, home: Path) -> None:
    assert vars(taken("run")) == vars(make_parser("run", load_command("run")).parse_args([]))


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("[profile.a]\ncorse = 3\n", ("--profile", "a"), r"\[profile.a\]: corse is no option.* did you mean cores\?"),
        ("[default]\ndry-run = true\n", (), "dry-run is no option .* that a profile can hold"),
        ("[profile.big]\n", ("--profile", "bgi"), r"no profile 'bgi' in bough.toml; did you mean big\?"),
        ("[defualt]\n", (), r"defualt is not known.*did you mean default\?"),
        ('[default]\ncores = "many"\n', (), r"\[default\]: cores: 'many' is not a number of cores"),
        ("[default]\nfail-fast = 1\n", (), "fail-fast is 1; give true or false"),
        ('[default]\nreuse = "alwys"\n', (), r"did you mean always\?"),
        ("[default]\ncores = [1]\n", (), r"cores is \[1\]; give a text or a number"),
        ("profile = 3\n", ("--profile", "a"), "profile is 3; make it a table"),
        ("[profile]\na = 3\n", ("--profile", "a"), "is 3; make it a table of options"),
        ("[default]\nrun = 3\n", (), "run is 3; make it a table of options"),
        ("x = [", (), "bough.toml is no TOML"),
    ],
)
def test_what_a_file_says_wrongly_is_named(
    workshop: Workshop, home: Path, text: str, words: tuple[str, ...], said: str
) -> None:
    (workshop.home / "bough.toml").write_text(text)
    with pytest.raises(UserError, match=said):
        taken("run", *words)


def test_a_profile_without_any_file_is_refused(workshop: Workshop, home: Path) -> None:
    with pytest.raises(UserError, match=r"there is no profile 'x' in bough.toml, which is not there"):
        taken("run", "--profile", "x")


@needs_root
def test_options_that_another_user_has_laid_into_a_shared_folder_are_refused(workshop: Workshop, home: Path) -> None:
    said = '[default]\nserver = "unix:/elsewhere"\n'
    beside, flow = workshop.home / "bough.toml", workshop.home / "flow.txt"
    beside.write_text(said)
    flow.write_text("true\n")
    os.chown(beside, NOBODY, NOBODY)
    args = make_parser("run", load_command("run")).parse_args(())
    for workflow in ("", "flow.txt", str(flow)):
        with pytest.raises(UserError, match=f"bough.toml belongs to uid {NOBODY}, not to you"):
            apply_profiles(args, "run", workflow)
    assert args.server is None
    os.chown(flow, NOBODY, NOBODY)  # whose workflow we run anyway
    apply_profiles(args, "run", "flow.txt")
    assert args.server == "unix:/elsewhere"
    beside.unlink()
    os.chown(home, NOBODY, NOBODY)
    (home / "config.toml").write_text(said)
    os.chown(home / "config.toml", NOBODY, NOBODY)
    with pytest.raises(UserError, match=f"config.toml belongs to uid {NOBODY}, not to you"):
        taken("run")


@needs_root
def test_the_options_of_who_owns_the_folder_are_taken(workshop: Workshop, home: Path) -> None:
    """As root in a container has the user's folder."""
    (workshop.home / "bough.toml").write_text("[default]\ncores = 3\n")
    for path in (workshop.home / "bough.toml", workshop.home):
        os.chown(path, NOBODY, NOBODY)
    assert taken("run").cores == 3
