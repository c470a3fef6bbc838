"""Write docs/reference/cli.md from the parsers of the commands themselves.

Run by `make docs`; a unit test fails when the page and the parsers differ. Written from the parsers' actions, not
from their help texts, which differ between versions of Python.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bough.cli.main import COMMANDS, load_command, make_parser

PAGE = Path(__file__).parent / "reference" / "cli.md"

HEAD = """# Command line

<!-- Written by docs/generate_cli.py from the parsers in src/bough/cli: change those, then run make docs. -->

`bough COMMAND [OPTIONS]`; `bough COMMAND --help` says the same as this page. Commands that look at tasks or act on
them find what they are about by `--server`, `$BOUGH_SERVER`, a live session in `./.bough`, your own server in
`$BOUGH_HOME`, and last the store of a session that has ended, in this order. With `--store` they look there only.

A selector says which tasks are meant: `last`, `12` (a record), `12.3-40` (elements of an array, both ends included),
`plot` (a name), `align/*` (a group and all below it), several with commas. At a server on which several workflows
are running, `nightly:align/*` says in which; `--queue nightly` does the same.

Exit codes: 0 all done; 1 some task failed; 2 the user's error; 3 the world's (disk, network); 70 a bug of Bough;
130 Ctrl-C.
"""


def render() -> str:
    """The whole page."""
    lines = [HEAD]
    for name, (_, summary) in COMMANDS.items():
        command = load_command(name)
        parser = make_parser(name, command)
        lines += [f"## bough {name}", "", summary[0].upper() + summary[1:] + ".", ""]
        verbs = _verbs(parser)
        if not verbs:
            lines += _table(f"bough {name}", parser)
        for verb, own in verbs.items():
            lines += [f"### bough {name} {verb}", "", own.description or "", "", *_table(f"bough {name} {verb}", own)]
        lines += ["```text", *command.examples, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a command's verbs, if it has some."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def _table(words: str, parser: argparse.ArgumentParser) -> list[str]:
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]
    head = ["```text", f"{words} {_usage(parser)}", "```", "", "| argument | meaning |", "|---|---|"]
    return [*head, *map(_row, shown), ""]


def _usage(parser: argparse.ArgumentParser) -> str:
    places = [action for action in parser._actions if not action.option_strings]
    return " ".join(["[OPTIONS]", *(_placeholder(action) for action in places)])


def _placeholder(action: argparse.Action) -> str:
    name = action.metavar or action.dest.upper()
    name = name if isinstance(name, str) else " ".join(name)
    if action.nargs in {"?", "*", argparse.REMAINDER}:
        return f"[{name}]" if action.nargs == "?" else f"[{name} ...]"
    return f"{name} ..." if action.nargs == "+" else name


def _row(action: argparse.Action) -> str:
    if not action.option_strings:
        words = f"`{_placeholder(action)}`"
    else:
        value = "" if action.nargs == 0 else f" {_placeholder(action)}"
        words = ", ".join(f"`{option}{value}`" for option in action.option_strings)
    meaning = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%").replace("|", "\\|")
    return f"| {words} | {meaning} |"


if __name__ == "__main__":
    PAGE.write_text(render())
