"""Executors of another Python than their server's: real processes of both.

The other Python is $BOUGH_OTHER_PYTHON, or that of a folder .venv-VERSION beside .venv, as .ci/run makes them. It needs
Bough. Without one these tests are skipped; tests/unit has what can be said with fakes.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from relay_site import Site
from service_client import until

import bough
from bough.api.session.session import opened_sessions
from bough.model.sites.resources import OWN_PYTHON

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module

ROOT = Path(__file__).parents[2]


@functools.cache
def other_python() -> tuple[str, str]:
    """The program and its version."""
    asked = os.environ.get("BOUGH_OTHER_PYTHON")
    found = [asked] if asked else sorted(map(str, ROOT.glob(".venv-3.*/bin/python")), reverse=True)
    say = "import sys, bough.api.session.session; print('%d.%d' % sys.version_info[:2])"
    for program in found:
        done = subprocess.run([program, "-c", say], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0 and done.stdout.strip() != OWN_PYTHON:
            return program, done.stdout.strip()
        assert not asked or done.returncode == 0, f"BOUGH_OTHER_PYTHON has no Bough: {done.stderr}"
    pytest.skip(f"there is no other Python than {OWN_PYTHON} with Bough: set BOUGH_OTHER_PYTHON, or run .ci/run")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    other_python()
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    made = Site(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    yield made
    made.clean_up()
    opened_sessions.clear()


def version() -> str:
    import sys

    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def version_after(_: object) -> str:
    return version()


def open_session(site: Site, name: str) -> bough.Session:
    return bough.Session(f"unix:{site.address}", name=name)


def test_commands_go_anywhere_and_functions_where_their_python_is(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    program, theirs = other_python()
    site.start()
    site.executor(cores=2, python=program)
    with open_session(site, "mixed") as session:
        function = session.submit(version)
        array = session.map(version_after, range(50))
        command = session.command("echo $((6*7))")
        after = session.submit(version_after, command)
        sweep = session.sweep("echo {n}", bough.product(n=[1, 2, 3]))
        assert command.result().stdout == "42\n"
        assert [done.stdout for done in sweep.results()] == ["1\n", "2\n", "3\n"]
        why = function.explain()
        assert f"no executor with Python {OWN_PYTHON} is there (those that are there have {theirs})" in why
        until(lambda: f"no executor with Python {OWN_PYTHON} is there" in capfd.readouterr().err, "word of it")
        listed = json.loads(site.bough("executor", "list", "--json").stdout)
        assert [entry["python"] for entry in listed] == [theirs]
        assert "PYTHON" in site.bough("executor", "list").stdout

        site.executor(cores=1)
        assert (function.result(60), after.result(60)) == (OWN_PYTHON, OWN_PYTHON)
        assert list(array) == [OWN_PYTHON] * 50


SCRIPT = """
import sys, bough

def version(x):
    import sys
    return f"{sys.version_info[0]}.{sys.version_info[1]}"

with bough.Session(sys.argv[1], name="theirs") as s:
    print(set(s.map(version, range(20))) | {s.submit(version, 1).result()}, s.command("echo hi").result().stdout)
"""


def test_a_script_of_the_other_python_uses_the_service_too(site: Site) -> None:
    program, theirs = other_python()
    site.start()
    site.executor(cores=1)
    site.executor(cores=1, python=program)
    Path("flow.py").write_text(SCRIPT)
    words = [program, "flow.py", f"unix:{site.address}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    assert (done.stdout, done.stderr) == (f"{{'{theirs}'}} hi\n\n", "")


def test_a_relay_has_executors_of_both(site: Site) -> None:
    program, theirs = other_python()
    relay = site.relay(site.begin(), "127.0.0.1:0", "--dispatch", "--reconnect", "2s")
    for python in (program, sys.executable):
        site.executor("--server", str(relay.access), cores=1, joined=False, python=python)
    client = site.client("")
    until(lambda: sum(int(entry["members"]) for entry in client.executors()) == 2, "both behind the relay")
    assert sorted(str(entry["python"]) for entry in client.executors()) == sorted([theirs, OWN_PYTHON])
    with open_session(site, "behind") as session:
        array = session.map(version_after, range(40))
        commands = [session.command(f"echo {n}") for n in range(10)]
        assert list(array) == [OWN_PYTHON] * 40
        assert [command.result().stdout for command in commands] == [f"{n}\n" for n in range(10)]


RUN_AGAIN = """
import sys, bough

def add(x, y):
    return x + y

with bough.Session(cores=1, name="again") as s:
    one = s.submit(add, 1, 2)
    two = s.command("echo {x} > {out:w}", x=5, out="five.txt")
    print(one.result(), two.result().returncode, list(s.map(abs, [-1, -2])))
    assert False, "so that the next run resumes"
"""


def test_a_store_of_one_python_is_used_by_another(site: Site) -> None:
    program, _ = other_python()
    Path("flow.py").write_text(RUN_AGAIN)
    for python in (program, sys.executable, program):
        done = subprocess.run([python, "flow.py"], capture_output=True, text=True, timeout=90, check=False)
        assert done.stdout == "3 0 [1, 2]\n", done.stderr
        assert done.stderr.splitlines()[-1] == "AssertionError: so that the next run resumes"
