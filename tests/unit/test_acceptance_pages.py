"""The pages that say which test shows what: every test they name is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "spec").glob("acceptance-*.md"))
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@cache
def _names_in(path: str) -> set[str]:
    """Functions of a module and of its classes, and names that are set in it, such as those of state machines."""
    tree = ast.parse((ROOT / path).read_text())
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return found | {target.id for target in assigned if isinstance(target, ast.Name)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = NAMED.findall(page.read_text())
    assert named
    gone = [path for path, _ in named if not (ROOT / path).is_file()]
    assert gone == []
    assert [f"{path}::{name}" for path, name in named if name and name not in _names_in(path)] == []


@pytest.mark.parametrize("name", ["security.md", "durability.md", "failures.md"])
def test_every_promise_is_shown_by_a_test_that_exists(name: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "explanation" / name).read_text()))
    homes = (ROOT / "tests", ROOT / "src" / "bough" / "testing")
    paths = (path for home in homes for path in home.rglob("*.py"))
    known = {one for path in paths for one in _names_in(str(path.relative_to(ROOT)))}
    assert len(named) > 5
    assert named - known == set()


def test_every_row_of_the_failure_model_names_a_test_or_says_that_there_is_none() -> None:
    lines = (ROOT / "docs" / "explanation" / "failures.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| it |")]
    assert len(rows) > 30
    assert [row for row in rows if "`test_" not in row and "not shown" not in row] == []


def test_the_life_of_a_task_names_modules_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "life-of-a-task.md").read_text()
    named = set(re.findall(r"(?<![\w./])((?:[a-z_]+/)+[a-z_]+)(?![\w./]*\.md)", page)) - {"src/bough"}
    source = ROOT / "src" / "bough"
    gone = [name for name in named if not (source / f"{name}.py").is_file() and not (source / name).is_dir()]
    assert gone == []
    processes = {name.partition("/")[0] for name in named}
    assert {"api", "wire", "server", "core", "policies", "journal", "stores", "executor"} <= processes
    drawn = page.partition("```mermaid")[2].partition("```")[0]
    assert len(re.findall(r"[a-z_]+/[a-z_/]+", drawn)) > 10


def test_the_glossary_has_each_term_once() -> None:
    extras = re.findall(r"^([a-z][\w ]*)\n: ", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert sorted(extras) == sorted(set(extras))
    wanted = (
        "chain, replica, late attempt, manual task, reconnect, registry, retention, dry run, staging, transfer, verdict"
    )
    assert {*wanted.split(", "), "shared memory", "memo lookup", "dispatch", "batch", "skipped"} <= set(extras)


def test_pages_use_the_words_of_the_glossary() -> None:
    former = re.compile(r"\b(?:ghosts?|towing|towed|hand-outs?|handed out|deeds?|ripples?|notrun)\b")
    generated = {"map.md", "wire.md", "cli.md", "benchmarks.md"}
    explained = {"glossary.md", "jobs-database.md"}  # they say what something was called before
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"]
    pages = [path for path in pages if path.name not in generated | explained and "_build" not in path.parts]
    assert len(pages) > 30
    found = [(path.name, former.findall(path.read_text())) for path in pages]
    assert [one for one in found if one[1]] == []


def test_every_item_of_the_list_of_trellisdag_has_a_test() -> None:
    lines = (ROOT / "docs" / "spec" / "acceptance-trellisdag.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    shown = {row[0] for row in rows if len(row) == 4 and NAMED.search(row[2])}
    assert {str(number) for number in range(1, 12)} <= shown
