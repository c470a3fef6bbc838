"""What `bough.testing` publishes is imported where pytest and hypothesis are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = ["builders", "policy_conformance", "store_conformance", "emulated_executors"]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_needs_no_test_tools_to_be_imported(module: str) -> None:
    text = f"import sys; sys.modules.update(pytest=None, hypothesis=None); import bough.testing.{module}"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


def test_a_store_of_a_users_own_is_tested_without_a_plugin(tmp_path) -> None:
    """A user's test file has the suite, a way to open the store, and nothing else."""
    (tmp_path / "test_mine.py").write_text(
        "from bough.stores.sql.sqlite import SqliteStore\n"
        "from bough.testing.store_conformance import StoreSuite\n"
        "class TestMine(StoreSuite):\n"
        "    open_store = SqliteStore\n"
    )
    chosen = "new_store_is_empty or kill_9 or refused"
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, "test_mine.py"]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
