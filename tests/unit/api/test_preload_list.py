"""Which modules an executor is told to import before functions need them."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from bough.api.session.preload_list import SWITCH, preload_words
from bough.errors import UserError


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)


def names(given: object = None) -> list[str]:
    return preload_words(given).split()[1:]


def put(monkeypatch: pytest.MonkeyPatch, name: str, file: str) -> None:
    module = types.ModuleType(name)
    module.__file__ = file
    module.__spec__ = importlib_spec(name)
    monkeypatch.setitem(sys.modules, name, module)


def importlib_spec(name: str) -> object:
    from importlib.machinery import ModuleSpec

    return ModuleSpec(name, None)


def test_what_is_installed_is_named_in_the_order_of_its_import(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zoology", "zoology.cats", "ants"):
        put(monkeypatch, name, f"/usr/lib/python3/dist-packages/{name}.py")
    found = [name for name in names() if name.partition(".")[0] in {"zoology", "ants"}]
    assert found == ["zoology", "zoology.cats", "ants"]


def test_own_modules_the_library_and_what_runs_the_script_are_not_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    put(monkeypatch, "helpers", str(tmp_path / "helpers.py"))
    put(monkeypatch, "elsewhere", "/opt/tools/elsewhere.py")
    found = {name.partition(".")[0] for name in names()}
    assert "elsewhere" in found
    assert not found & {"helpers", "json", "bough", "pytest", "_pytest", "msgspec", "__main__", "builtins"}


def test_a_list_says_exactly_which() -> None:
    assert names(["numpy", "scipy.stats"]) == ["numpy", "scipy.stats"]
    assert names(["a b", "", "c"]) == ["c"]


def test_it_is_switched_off_by_the_keyword_and_by_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert preload_words(False) == preload_words([]) == ""
    monkeypatch.setenv(SWITCH, "0")
    assert preload_words(None) == ""
    assert names(["numpy"]) == ["numpy"]


@pytest.mark.parametrize("given", ["numpy", 3, b"numpy"])
def test_something_else_is_refused(given: object) -> None:
    with pytest.raises(UserError, match="preload is"):
        preload_words(given)


def test_what_no_environment_can_hold_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(preload_words([f"module{number:05}" for number in range(20_000)])) < 110_000
