"""Write docs/explanation/map.md: every package, sub-package and module of Bough with what it is for.

The sentences are the docstrings' own: of a package all of it, of a module the first sentence or line. The order is
that of the layers in pyproject.toml. Nothing is imported, so that the map is made in a moment. Run by `make docs`; a
unit test fails when the page and the source differ.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bough"
PAGE = Path(__file__).parent / "explanation" / "map.md"

HEAD = """# Map of the source

<!-- Written by docs/generate_map.py from the docstrings in src/bough: change those, then run make docs. -->

Every package and module of `src/bough`, from the command line down. A package imports only what stands below it here;
packages of one heading do not import each other ([](architecture.md) has the rules). A package with many modules has
sub-packages by subject. A module's name occurs once in the tree, so that a search for it finds one file; a command
`bough NAME` is in the module `cli/commands/NAME`.

Not here yet, because it comes with a later version: the dashboard. Policies, stores and kinds of sites of your own:
[](../howto/write-a-policy.md), [](../howto/write-a-store.md), [](../howto/write-a-site.md).
"""


def render() -> str:
    """The whole page."""
    lines = [HEAD]
    for layer in _layers():
        lines += [f"## {', '.join(layer)}", ""]
        for name in layer:
            folder = SOURCE / name
            if folder.is_dir():
                lines += _package(folder)
            else:
                lines += _table([folder.with_suffix(".py")])
    lines += ["## The package itself", "", *_table([SOURCE / "__init__.py"])]
    return "\n".join(lines).rstrip() + "\n"


def _layers() -> Iterator[list[str]]:
    """The names of each layer, from the top; one in parentheses does not exist yet."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers" and one["containers"] == ["bough"])
    for layer in layers:
        names = [name.strip() for name in layer.split("|")]
        if found := [name for name in names if not name.startswith("(")]:
            yield found


def _package(folder: Path) -> list[str]:
    lines = [f"**`{_name(folder)}`**: {_docstring(folder / '__init__.py')}", ""]
    modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    lines += _table(modules) if modules else []
    for inner in sorted(folder.iterdir()):
        if (inner / "__init__.py").exists():
            lines += _package(inner)
    return lines


def _table(modules: list[Path]) -> list[str]:
    rows = [f"| `{_name(path.with_suffix(''))}` | {_sentence(_docstring(path))} |" for path in modules]
    return ["| module | what it is for |", "|---|---|", *rows, ""]


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def _docstring(path: Path) -> str:
    """The docstring as paragraphs of one line each, safe in a table and in Markdown."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return "\n\n".join(_markdown(" ".join(part.split())) for part in text.split("\n\n"))


def _markdown(text: str) -> str:
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if inside % 2 else re.sub(r"[<*_]", r"\\\g<0>", part) for inside, part in enumerate(parts))


def _sentence(docstring: str) -> str:
    return docstring.split("\n\n", maxsplit=1)[0]


if __name__ == "__main__":
    PAGE.write_text(render())
