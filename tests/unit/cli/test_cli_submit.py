"""What `bough submit` reads, how a command finds its server, and what shells complete."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_workshop import Workshop

from bough.cli.commands.completion import commands
from bough.cli.runs.command_texts import many_commands, template
from bough.cli.runs.submit_files import SubmittedWork
from bough.cli.targets.locate import ServerLocation, ServiceAddress, find_target
from bough.errors import UserError
from bough.transport.home import ServerNote, write_note

Call = Callable[..., tuple[int, str, str]]


# --- submitting -----------------------------------------------------------------------------------------


def test_only_our_places_are_filled_in() -> None:
    text = "awk '{print $1}' {index} ${HOME} {line} {} {{index}} {line.stem} {1..5} {a,b} {cores}"
    assert template([text], ("index", "line"))[0] == (
        "awk '{{print $1}}' {index} ${{HOME}} {line} {line} {{index}} {line.stem} {{1..5}} {{a,b}} {cores}"
    )
    assert template(["./sim {} $BOUGH_INDEX"], ("index",))[0] == "./sim {index} $BOUGH_INDEX"
    with pytest.raises(UserError, match=r"no \{\}"):
        template(["echo"], ("index", "line"))


def test_words_are_quoted_around_the_slots() -> None:
    assert template(["echo", "a b", "<{}>", "{{}}", ""], ("index", "line"))[0] == "echo 'a b' '<'{line}'>' '{{}}' ''"


def test_declared_files_have_the_slots_of_the_command(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a.txt\nb.txt\n")
    files = {"inputs": ["{}"], "outputs": ["{.stem}.{index}", "{{}}", "${X}", "{other}"]}
    many = many_commands(["sort {}"], None, str(lines), files)
    assert many is not None
    assert many.files == {"inputs": ["{line}"], "outputs": ["{line.stem}.{index}", "{{}}", "${X}", "{other}"]}
    assert list(many.columns) == ["index", "line"]  # the number is needed for a file alone
    numbered = many_commands(["sort"], "1-3", None, {"outputs": ["{}.txt"]})
    assert numbered is not None
    assert numbered.files == {"outputs": ["{index}.txt"]}


@pytest.mark.parametrize("words", [["echo {indx}"], ["echo", "{indx}"], ["echo {} {index.x} {lin}"], ["awk {print}"]])
def test_a_slot_that_nothing_fills_is_an_error(words: list[str]) -> None:
    with pytest.raises(UserError, match=r"nothing fills the slot \{(indx|lin|print)\}.* \{\{(indx|lin|print)\}\}"):
        template(words, ("index", "line"))
    if "indx" in str(words):
        with pytest.raises(UserError, match=r"did you mean index\?"):
            template(words, ("index",))


def test_what_was_submitted_reads_well() -> None:
    assert SubmittedWork("q", 1, [7], 1).line() == "task 7 submitted to q"
    assert SubmittedWork("q", 1, [7], 40).line() == "array 7 of 40 tasks submitted to q"
    assert SubmittedWork("q", 1, [7, 8, 9], 3).line() == "tasks 7-9 submitted to q"
    assert SubmittedWork("q", 3, [300_000_000_007], 2, indices="1-2").line() == (
        "array 7 of 2 tasks (7.1-2) submitted to q"
    )
    assert SubmittedWork("q", 3, [300_000_000_007], 1).as_json() == {"workflow": "q", "run": 3, "ids": [7], "tasks": 1}


def test_wrong_uses_of_submit_are_named(bough: Call, workshop: Workshop) -> None:
    (workshop.home / "list.txt").write_text("true\n")
    for words, said in [
        ([], "give a FILE, or -- and a COMMAND"),
        (["--"], "give a FILE, or -- and a COMMAND"),
        (["--array", "1-3", "list.txt"], "--array is for a command"),
        (["list.txt", "extra"], "takes no arguments"),
        (["missing.txt"], "cannot read missing.txt"),
        (["--array", "1", "--each-line", "list.txt", "--", "true"], "exclude each other"),
    ]:
        code, out, err = bough("submit", *words)
        assert (code, out) == (2, "")
        assert said in err


# --- finding a server -----------------------------------------------------------------------------------


def options(**given: str) -> argparse.Namespace:
    return argparse.Namespace(**({"server": None, "store": None, "name": None} | given))


def live_note(folder: Path) -> None:
    (folder / "server.json").write_text(json.dumps({"pid": os.getpid(), "host": "here", "socket": "s"}))


@pytest.fixture
def own_service(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own service says that it runs: as this process."""
    import socket

    monkeypatch.setenv("BOUGH_HOME", str(tmp_path / "home-of-bough"))
    write_note(ServerNote("", "/nowhere/s.sock", os.getpid(), socket.gethostname()))


def test_a_command_finds_its_server_in_the_promised_order(
    workshop: Workshop, own_service: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_target(options()) == ServiceAddress("")
    store = workshop.store()
    assert find_target(options()) == ServiceAddress("")  # a session that is over is no server
    live_note(store)
    assert isinstance(find_target(options()), ServerLocation)
    monkeypatch.setenv("BOUGH_SERVER", "unix:from-the-environment")
    assert find_target(options()) == ServiceAddress("unix:from-the-environment")
    assert find_target(options(server="unix:named")) == ServiceAddress("unix:named")
    assert isinstance(find_target(options(store=str(store))), ServerLocation)


def test_a_store_that_is_named_is_found_though_a_service_runs(workshop: Workshop, own_service: None) -> None:
    store = workshop.store()
    assert find_target(options(name=store.name)) == ServerLocation(str(store), store.name)
    assert find_target(options(name="elsewhere")) == ServiceAddress("")


def test_a_service_that_has_died_is_not_found(workshop: Workshop, tmp_path: Path, own_service: None) -> None:
    import socket

    gone = subprocess.Popen(["true"])
    gone.wait()
    write_note(ServerNote("", "/nowhere/s.sock", gone.pid, socket.gethostname()))
    store = workshop.store()
    assert find_target(options()) == ServerLocation(str(store), store.name)


# --- completion -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["bough", "statu"], ["status"]),
        (["bough", "server", "sto"], ["stop"]),
        (["bough", "server", "access", "--role", "e"], ["execute"]),
        (["bough", "submit", "--each"], ["--each-line"]),
        (["bough", "status", "--fai"], ["--failed"]),
        (["bough", "log", "-f", "--std"], ["--stdout", "--stderr"]),
        (["bough", "completion", ""], ["bash", "zsh", "fish"]),
        (["bough", "run", "--cores", "x"], []),
        (["bough", "run", "some"], []),
    ],
)
def test_bash_completes(bough: Call, tmp_path: Path, words: list[str], found: list[str]) -> None:
    code, script, _ = bough("completion", "bash")
    assert code == 0
    (tmp_path / "completion.bash").write_text(script)
    ask = 'source "$0"; complete -p bough >/dev/null || exit 9; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bough'
    asked = [f'{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"', str(tmp_path / "completion.bash"), *words]
    done = subprocess.run(["bash", "-c", *asked], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout.split(), done.stderr) == (found, "")


def test_every_command_and_option_is_completed_in_every_shell(bough: Call) -> None:
    for shell in ("bash", "zsh", "fish"):
        code, script, _ = bough("completion", shell)
        assert code == 0
        for word in commands():
            assert word.name in script
            for option in word.options:
                name = max(option.names, key=len)
                assert (name if shell != "fish" else f"-l {name[2:]}") in script
