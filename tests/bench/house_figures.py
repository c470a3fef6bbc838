"""The figures of the house: how many modules there are, who imports whom, and how far a request travels among them.

python tests/bench/house_figures.py [--src PATH/src] [--json] [--single-importers] [--static] [--before FILE]

The static part reads the sources of a tree and imports nothing of it; `house_ways.py` traces requests through its
processes. `--before FILE` compares with the figures of another tree, which `--json` printed; `--after FILE` shows saved
figures instead of measuring.

Rules: it works on any tree that has a package `bough`, older or newer than this file, and needs the standard library
only. What is counted is printed with the figures.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from house_ways import COUNTED, REPEAT, TITLES, WAYS, trace_way

ROOT = "bough"
SHORT = 60  # lines; a module below may be a part of another one
NO_SUBJECT = ("__init__", "__main__")  # names that many modules bear for a reason
COMMANDS = f"{ROOT}.cli.commands."  # modules there are named after the commands of `bough`
WINDOWS = (f"{ROOT}.core.machine", f"{ROOT}.core.queries")  # all that a server may know of the core
WAY = {
    "modules": "modules",
    "functions": "functions",
    "calls": "calls",
    "changes": "changes of module",
    "pairs": "pairs",
}
_TOP, _LATE, _TYPING = "top", "late", "typing"


@dataclass
class Module:
    """A module of the tree. Imports are names of other modules of the tree, by when they happen."""

    name: str
    is_package: bool
    lines: int
    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def package(self) -> str:
        """The part of the tree it belongs to: the second part of its name."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 2 or (len(parts) == 2 and self.is_package) else "(root)"

    @property
    def folder(self) -> str:
        """The folder it lies in."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    def imported(self, *kinds: str) -> set[str]:
        """The modules it imports in one of these ways."""
        return set().union(*(self.imports[kind] for kind in kinds)) - {self.name}


def read_tree(src: str) -> dict[str, Module]:
    """Read all modules below `src`/bough, and what they import of each other."""
    modules: dict[str, Module] = {}
    trees: dict[str, ast.Module] = {}
    for folder, folders, files in os.walk(os.path.join(src, ROOT)):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        parts = os.path.relpath(folder, src).split(os.sep)
        for file in sorted(files):
            if not file.endswith(".py"):
                continue
            with open(os.path.join(folder, file), encoding="utf-8") as source:
                text = source.read()
            is_package = file == "__init__.py"
            name = ".".join(parts if is_package else [*parts, file.removesuffix(".py")])
            modules[name] = Module(name, is_package, len(text.splitlines()))
            trees[name] = ast.parse(text)
    for name, tree in trees.items():
        for kind, target in _imports(modules[name], tree, modules):
            modules[name].imports[kind].add(target)
    return modules


def _imports(module: Module, tree: ast.Module, modules: dict[str, Module]) -> Iterator[tuple[str, str]]:
    for kind, node in _import_nodes(tree, _TOP):
        for target in _targets(module, node):
            found = target if target in modules else target.rpartition(".")[0]  # a name in a module, or a module
            if found in modules:
                yield kind, found


def _import_nodes(node: ast.AST, kind: str) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield kind, node
    elif isinstance(node, ast.If) and _asks_for_typing(node.test):
        for child in node.body:
            yield from _import_nodes(child, _TYPING)
        for child in node.orelse:
            yield from _import_nodes(child, kind)
    else:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and kind == _TOP:
            kind = _LATE
        for child in ast.iter_child_nodes(node):
            yield from _import_nodes(child, kind)


def _asks_for_typing(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _targets(module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        parts = module.name.split(".")
        above = parts[: len(parts) - node.level + module.is_package]
        base = ".".join([*above, base]) if base else ".".join(above)
    yield from (f"{base}.{alias.name}" for alias in node.names)


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Modules that reach each other (strongly connected components of more than one), the largest first."""
    reach = {name: _reached(edges, name) for name in edges}
    parts = {frozenset(other for other in reach[name] if name in reach.get(other, ())) for name in edges}
    return sorted((sorted(part) for part in parts if len(part) > 1), key=lambda part: (-len(part), part))


def _reached(edges: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


def sibling_cycles(edges: dict[str, set[str]], modules: dict[str, Module]) -> list[list[str]]:
    """Cycles among what lies in one folder, where a sub-folder counts as one thing, and is part of the cycle."""
    folders = sorted(module.name for module in modules.values() if module.is_package)
    found: list[list[str]] = []
    for folder in folders:
        between: dict[str, set[str]] = defaultdict(set)
        for name, targets in edges.items():
            mine = _child(folder, name)
            for target in targets:
                theirs = _child(folder, target)
                if mine and theirs and mine != theirs:
                    between[mine].add(theirs)
        found += [part for part in cycles(between) if any(modules[unit].is_package for unit in part)]
    return found


def _child(folder: str, name: str) -> str:
    """What of a folder a module is, or is part of; nothing if it is not below it."""
    if not name.startswith(folder + "."):
        return ""
    return folder + "." + name[len(folder) + 1 :].partition(".")[0]


def importers(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Who imports each module, in whatever way."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    for module in modules.values():
        for target in module.imported(_TOP, _LATE, _TYPING):
            found[target].add(module.name)
    return found


def single_importers(modules: dict[str, Module]) -> dict[str, str]:
    """The modules with code that exactly one other module imports, and which."""
    return {
        name: next(iter(who))
        for name, who in sorted(importers(modules).items())
        if len(who) == 1 and not modules[name].is_package
    }


def _of_package(modules: Iterable[Module], single: dict[str, str]) -> dict[str, Any]:
    mine = list(modules)
    code = [module for module in mine if not module.is_package]
    alone = [module.name for module in code if module.name in single]
    return {
        "modules": len(code),
        "inits": len(mine) - len(code),
        "lines": sum(module.lines for module in mine),
        "median": int(statistics.median(module.lines for module in code) + 0.5) if code else None,
        "short": sum(module.lines < SHORT for module in code),
        "single": len(alone),
        "single_sibling": sum(_package_of(single[name]) == _package_of(name) for name in alone),
    }


def _package_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "(root)"


def duplicates(modules: dict[str, Module]) -> dict[str, list[str]]:
    """Module names (last parts) that more than one module bears; modules of commands may repeat a name."""
    bearers: dict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        last = name.rpartition(".")[2]
        if not module.is_package and last not in NO_SUBJECT:
            bearers[last].append(name)
    return {last: sorted(names) for last, names in sorted(bearers.items()) if len(names) > 1}


def static_figures(src: str) -> dict[str, Any]:
    """All that reading the sources tells."""
    modules = read_tree(src)
    if not modules:
        raise SystemExit(f"house_figures: there is no package {ROOT} in {src}")
    single = single_importers(modules)
    packages: dict[str, list[Module]] = defaultdict(list)
    for module in modules.values():
        packages[module.package].append(module)
    runtime = {name: module.imported(_TOP, _LATE) for name, module in modules.items()}
    whole = {name: module.imported(_TOP, _LATE, _TYPING) for name, module in modules.items()}
    late = sorted((name, target) for name, module in modules.items() for target in module.imported(_LATE))
    folders = Counter(module.folder for module in modules.values())
    twice = duplicates(modules)
    code = [module for module in modules.values() if not module.is_package]
    return {
        "packages": {name: _of_package(mine, single) for name, mine in sorted(packages.items())},
        "all": _of_package(modules.values(), single),
        "modules_in_all": len(modules),
        "between_100_and_500": sum(100 <= module.lines <= 500 for module in code),
        "above_500": {module.name: module.lines for module in code if module.lines > 500},
        "folders": len(folders),
        "widest_folders": dict(folders.most_common(5)),
        "cycles_at_run_time": cycles(runtime),
        "cycles_with_typing": cycles(whole),
        "cycles_between_siblings": sibling_cycles(whole, modules),
        "late_pairs": len(late),
        "late_pairs_by_package": dict(Counter(_package_of(name) for name, _ in late).most_common()),
        "late_imports": [f"{name} -> {target}" for name, target in late],
        "duplicate_names": twice,
        "duplicate_names_without_commands": {
            last: kept
            for last, names in twice.items()
            if len(kept := [name for name in names if not name.startswith(COMMANDS)]) > 1
        },
        "server_beyond_windows": {
            name: beyond
            for name, module in sorted(modules.items())
            if module.package == "server"
            and (beyond := sorted(t for t in module.imported(_TOP, _LATE, _TYPING) if _is_inner_core(t)))
        },
        "server_beyond_windows_at_run_time": sum(
            any(_is_inner_core(target) for target in module.imported(_TOP, _LATE))
            for module in modules.values()
            if module.package == "server"
        ),
        "single_importers": single,
    }


def _is_inner_core(target: str) -> bool:
    return target.startswith(f"{ROOT}.core.") and not target.startswith(WINDOWS)


def _table(head: list[str], rows: list[list[object]]) -> list[str]:
    """Lines of a Markdown table."""
    texts = [head, *([str(cell) for cell in row] for row in rows)]
    return [
        "| " + " | ".join(texts[0]) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in texts[1:]),
    ]


def _measures(figures: dict[str, Any]) -> list[tuple[str, object]]:
    whole, code = figures["modules_in_all"], figures["all"]["modules"]
    widest = ", ".join(f"{count} ({name})" for name, count in figures["widest_folders"].items())
    twice, plain = figures["duplicate_names"], figures["duplicate_names_without_commands"]
    late = ", ".join(f"{name} {count}" for name, count in figures["late_pairs_by_package"].items())
    return [
        ("modules in all / with code", f"{whole} / {code}"),
        ("lines in all", figures["all"]["lines"]),
        ("folders", figures["folders"]),
        ("widest folders (with `__init__`)", widest),
        ("between 100 and 500 lines", f"{figures['between_100_and_500']} of {code}"),
        ("above 500", len(figures["above_500"])),
        ("module names used more than once", f"{len(twice)} names in {sum(map(len, twice.values()))} modules"),
        ("... not counting cli/commands", f"{len(plain)} names in {sum(map(len, plain.values()))} modules"),
        ("imported by one module only", figures["all"]["single"]),
        ("... by one of its own package only", figures["all"]["single_sibling"]),
        ("import cycles at run time, late imports counted", _sizes(figures["cycles_at_run_time"])),
        ("... with typing-only imports", _sizes(figures["cycles_with_typing"])),
        ("cycles between neighbours in a folder, sub-folders among them", _sizes(figures["cycles_between_siblings"])),
        ("pairs of modules with a late import", f"{figures['late_pairs']} ({late})" if late else "0"),
        ("server modules that import the core beyond machine and queries", len(figures["server_beyond_windows"])),
    ]


def static_lines(figures: dict[str, Any]) -> Iterator[str]:
    """The static figures for people."""
    head = ["package", "modules", "lines", "median", f"< {SHORT}", "one importer", "of them a sibling"]
    rows: list[list[object]] = []
    for name, row in [*figures["packages"].items(), ("**all**", figures["all"])]:
        median = "-" if row["median"] is None else row["median"]
        counted = f"{row['modules']}+{row['inits']}"
        rows.append([name, counted, row["lines"], median, row["short"], row["single"], row["single_sibling"]])
    yield from _table(head, rows)
    yield ""
    yield "`a+b`: modules with code and `__init__`. One importer: exactly one other module of the tree imports it, in"
    yield "whatever way (late and for types too; imports by name in a text are not seen); a sibling is of its package."
    yield ""
    yield from _table(["measure", "figure"], [list(row) for row in _measures(figures)])
    for title, kind in (("at run time", "cycles_at_run_time"), ("with typing-only imports", "cycles_with_typing")):
        yield ""
        yield f"Cycles {title}:"
        for part in figures[kind]:
            yield f"  {len(part)}: {' '.join(part)}"
    yield ""
    yield "Server modules that import the core beyond machine and queries:"
    for name, targets in figures["server_beyond_windows"].items():
        yield f"  {name}: {' '.join(targets)}"
    yield ""
    yield "Names used more than once:"
    for last, names in figures["duplicate_names"].items():
        yield f"  {last}: {' '.join(names)}"


def _sizes(parts: list[list[str]]) -> str:
    return f"{len(parts)} ({', '.join(str(len(part)) for part in parts)})" if parts else "0"


def way_lines(ways: dict[str, Any]) -> Iterator[str]:
    """The traced figures for people."""
    rows: list[list[object]] = []
    for way, found in ways.items():
        rows.append([f"`{TITLES[way]}`, to the answer", *(found["to_answer"][name] for name in WAY)])
        spread = [f"{found['in_all'][name]} ({'-'.join(map(str, found['range'][name]))})" for name in WAY]
        rows.append(["... in all (least-most)", *spread])
        rows += [[f"... {role}", *(row[name] for name in WAY)] for role, row in found["by_role"].items()]
    yield from _table(["way", *WAY.values()], rows)
    yield ""
    yield from COUNTED.splitlines()
    used = ", ".join(f"{way} {found['used']} of {found['repeated']}" for way, found in ways.items())
    yield f"Repetitions that were recorded in every process: {used}."


def comparison_lines(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Two trees side by side."""
    names = ["modules", "inits", "lines", "median", "short", "single"]
    head = ["modules", "`__init__`", "lines", "median", f"< {SHORT}", "one importer"]
    rows: list[list[object]] = []
    for package in [*sorted({*before["packages"], *after["packages"]}), "**all**"]:
        one, other = (
            (side["all"] if package == "**all**" else side["packages"].get(package, {})) for side in (before, after)
        )
        rows.append([package, *(_pair(one.get(name), other.get(name)) for name in names)])
    yield from _table(["package (before, after)", *head], rows)
    yield ""
    sides = [dict(_measures(side)) for side in (before, after)]
    yield from _table(["measure", "before", "after"], [[name, sides[0][name], sides[1][name]] for name in sides[0]])
    ways = [way for way in before.get("ways", {}) if way in after.get("ways", {})]
    rows = []
    for way in ways:
        for title, part in ((f"`{TITLES[way]}`, to the answer", "to_answer"), ("... in all", "in_all")):
            one, other = before["ways"][way][part], after["ways"][way][part]
            changed = [f"{_pair(one[name], other[name])} ({100 * (other[name] / one[name] - 1):+.0f}%)" for name in WAY]
            rows.append([title, *changed])
    if rows:
        yield ""
        yield from _table(["way (before, after)", *WAY.values()], rows)
        yield ""
        yield from COUNTED.splitlines()


def _pair(one: object, other: object) -> str:
    return ", ".join("-" if side is None else str(side) for side in (one, other))


def main(words: list[str] | None = None) -> None:
    """Print the figures."""
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    default = os.path.join(os.path.dirname(os.path.dirname(here)), "src")
    parser.add_argument("--src", default=default, help="the folder with the package bough (default: of this tree)")
    parser.add_argument("--json", action="store_true", help="everything, names too, as JSON")
    parser.add_argument("--single-importers", action="store_true", help="only list the modules with one importer")
    parser.add_argument("--static", action="store_true", help="read only, trace nothing")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="what to trace (all)")
    parser.add_argument("--repeat", type=int, default=REPEAT, help=f"requests of each way ({REPEAT})")
    parser.add_argument("--before", metavar="FILE", help="compare with these figures, saved with --json")
    parser.add_argument("--after", metavar="FILE", help="show saved figures instead of measuring")
    given = parser.parse_args(words)
    figures = _read(given.after) if given.after else static_figures(given.src)
    if given.single_importers:
        print(*(f"{name} <- {who}" for name, who in figures["single_importers"].items()), sep="\n")
        return
    if not (given.static or given.after):
        figures["ways"] = {way: trace_way(way, given.src, given.repeat) for way in given.ways}
    if given.json:
        print(json.dumps(figures, indent=1))
    elif given.before:
        print(*comparison_lines(_read(given.before), figures), sep="\n")
    else:
        print(*static_lines(figures), sep="\n")
        if "ways" in figures:
            print("", *way_lines(figures["ways"]), sep="\n")


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        read: dict[str, Any] = json.load(file)
    return read


if __name__ == "__main__":
    main()
