"""Verbs: the second word of commands such as `bough server start`.

Rule: every verb has help with examples, and the options that all commands have.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, examples: Sequence[str]
) -> argparse.ArgumentParser:
    """The parser of one verb, with the options that all have."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  {example}" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="answer with JSON")
    parser.add_argument("-q", "--quiet", action="store_true", default=argparse.SUPPRESS, help="say nothing but errors")
    return parser
