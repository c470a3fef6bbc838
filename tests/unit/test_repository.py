"""Rules about the repository itself: docstrings, layers, generated pages, no machine's paths."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bough"
MODULES = sorted(SOURCE.rglob("*.py"))


TEXTS = [
    path
    for folder in ("src", "tests", "docs", "examples", ".ci")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".md", ".toml", ".txt", ""} and path.is_file() and "_build" not in path.parts
] + [ROOT / name for name in ("Makefile", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml")]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_no_module_is_named_after_nothing() -> None:
    banned = {"utils", "util", "helpers", "common", "misc", "manager", "base"}
    assert [_name(path) for path in MODULES if path.stem in banned] == []


def test_no_file_names_a_place_on_some_machine() -> None:
    places = re.compile(r"(?<![\w.])/(?:work|root)/\w")
    assert [_name(path) for path in TEXTS if path != Path(__file__) and places.search(path.read_text())] == []


def test_nothing_is_left_for_later() -> None:
    words = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
    assert [_name(path) for path in TEXTS if path != Path(__file__) and words.search(path.read_text())] == []


def test_the_layers_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed: make check installs it")
    run = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("script", ["generate_states.py", "generate_cli.py", "generate_map.py", "generate_wire.py"])
def test_generated_pages_are_up_to_date(script: str) -> None:
    spec = importlib.util.spec_from_file_location(script.removesuffix(".py"), ROOT / "docs" / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.render(), "run make docs"


def test_a_module_name_is_used_once() -> None:
    """Whoever searches for a name finds one module; a command of the command line is the module of its name."""
    homes: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        where = path.relative_to(SOURCE)
        if path.stem not in {"__init__", "__main__"} and where.parts[:2] != ("cli", "commands"):
            homes.setdefault(path.stem, []).append(str(where))
    assert [places for places in homes.values() if len(places) > 1] == []


def test_a_test_file_name_is_used_once() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_a_room_says_what_it_is_for_and_imports_nothing() -> None:
    public = {
        "__init__.py",
        "analysis/__init__.py",
        "describe/__init__.py",
        "driver/__init__.py",
        "monitors/__init__.py",
        "sim/__init__.py",
        "sim/studies/__init__.py",
    }
    public |= {"stores/jobs/__init__.py"}  # names that users import from there
    for path in SOURCE.rglob("__init__.py"):
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        if str(path.relative_to(SOURCE)) not in public:
            assert len(tree.body) == 1, f"{path} holds more than its docstring"


def test_the_map_names_every_room_and_module_and_nothing_else() -> None:
    page = (ROOT / "docs" / "explanation" / "map.md").read_text()
    modules = {str(path.relative_to(SOURCE).with_suffix("")) for path in MODULES}
    rooms = {name.removesuffix("/__init__") for name in modules if name.endswith("/__init__")}
    plain = {name for name in modules if not name.endswith("/__init__")}
    assert set(re.findall(r"^\| `([\w/]+)` \|", page, re.MULTILINE)) == plain
    assert set(re.findall(r"^\*\*`([\w/]+)`\*\*", page, re.MULTILINE)) == rooms


def test_the_wire_page_names_every_message() -> None:
    page = (ROOT / "docs" / "spec" / "wire.md").read_text()
    named = set(re.findall(r"^\| `(\w+)` \| `\w+` \|", page, re.MULTILINE))
    made = {
        node.name
        for path in (SOURCE / "wire").glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and any(word.arg == "tag" for word in node.keywords)
    }
    assert made - named == set()


def test_the_architecture_page_names_the_packages_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    table = page.split("## Layers")[1]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert named == packages | {"errors", "logs", "private"}


def test_every_page_is_in_the_contents_of_the_site() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    blocks = "\n".join(index.split("```{toctree}")[1:])
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        if name != "index" and not name.startswith("_build"):
            assert f"\n{name}\n" in blocks or f"\n{name.partition('/')[0]}/*\n" in blocks, f"{name} is in no toctree"
