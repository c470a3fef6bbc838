"""Modules that pages and docstrings name in backticks, as in `server.handler_errors`, exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bough"
PACKAGES = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
NAME = re.compile(r"`([a-z_]\w*(?:\.\w+)+)`")
FILE = re.compile(r".*\.(?:bin|conf|csv|db|json|log|md|sock|svg|toml|txt)")  # `server.log` is a file, and no module
ENTRY_POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]


def named_in(text: str) -> Iterator[str]:
    """What a text names that looks like a module of ours or something in one, without `bough.`."""
    for name in NAME.findall(text):
        is_ours = name.split(".")[0] in {"bough", *PACKAGES}
        if is_ours and not FILE.fullmatch(name) and name not in ENTRY_POINTS:
            yield name.removeprefix("bough.")


def exists(name: str) -> bool:
    """Whether it is a module, or a word of one."""
    here, words = SOURCE, name.split(".")
    while words and (here / words[0]).is_dir():
        here /= words.pop(0)
    if words and (here / f"{words[0]}.py").is_file():
        texts = [(here / f"{words.pop(0)}.py").read_text()]
    else:
        texts = [path.read_text() for path in (here / "__init__.py", here / "__init__.pyi") if path.is_file()]
    return all(any(re.search(rf"\b{word}\b", text) for text in texts) for word in words)


def test_the_search_finds_modules_and_what_is_in_them() -> None:
    page = "`server.handler_errors`, `model.ids.RecordId`, `bough.Session`, `a.log`, `bough.placement`, `core.no`"
    assert list(named_in(page)) == ["server.handler_errors", "model.ids.RecordId", "Session", "core.no"]
    assert [name for name in named_in(page) if not exists(name)] == ["core.no"]


def test_modules_that_are_named_exist() -> None:
    files = [*(ROOT / "docs").rglob("*.md"), *SOURCE.rglob("*.py"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    texts = {path: path.read_text() for path in files if "_build" not in path.parts}
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts.items()
        for name in named_in(text)
        if not exists(name)
    ]
    assert missing == []
