"""A host whose Python is another one than the server's: it gets an archive of its own, and runs commands.

The other Python is $BOUGH_OTHER_PYTHON, one on PATH, or one of pyenv's; nothing need be installed for it.
"""

from __future__ import annotations

import functools
import glob
import os
import shutil
import subprocess

import pytest
from processes import PATIENCE
from site_shop import MakeShop, make, shop, shop_folder

import bough
from bough.model.sites.resources import OWN_PYTHON

__all__ = ["make", "shop", "shop_folder"]  # fixtures
SAY = "import sys; print('%d.%d' % sys.version_info[:2])"


@functools.cache
def other_python() -> tuple[str, str]:
    """The program and its version."""
    asked = os.environ.get("BOUGH_OTHER_PYTHON")
    versions = [version for version in ("3.13", "3.12", "3.11") if version != OWN_PYTHON]
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    found = [asked] if asked else [shutil.which(f"python{version}") for version in versions]
    if not asked:
        found += [
            path for version in versions for path in sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python"))
        ]
    for program in filter(None, found):
        done = subprocess.run([program, "-c", SAY], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0 and done.stdout.strip() != OWN_PYTHON:
            return program, done.stdout.strip()
    pytest.skip(f"there is no other Python than {OWN_PYTHON}: set BOUGH_OTHER_PYTHON")


def test_commands_run_under_another_python_and_functions_wait_with_a_reason(make: MakeShop) -> None:
    program, version = other_python()
    ssh = make("alpha")
    ssh.bough("site", "add", "alpha", "--ssh", "alpha", "--python", program)
    tested = ssh.bough("site", "test", "alpha", code=None)
    if "cannot be fetched" in tested:
        pytest.skip(f"pip has no index that has msgspec for Python {version}: {tested}")
    assert f"commands run there, and functions of scripts under Python {version}" in tested
    assert "site alpha works" in tested
    with bough.Session(ssh.address, name="mixed", on_failure="ignore") as session:
        assert session.command("echo $BOUGH_TEST_HOST").result(PATIENCE).stdout.strip() == str(
            ssh.hosts["alpha"].folder
        )
        waits = session.submit(pow, 2, 10)
        ssh.until(lambda: f"Python {version}" in "".join(waits.explain()), "explain to say why the function waits")
        assert not waits.done()
        waits.cancel()
    pythons = {one["python"] for one in ssh.ask("executors")}
    assert pythons <= {version}
    ssh.bough("site", "remove", "alpha")
    assert not ssh.hosts["alpha"].executors()
