"""`bough sql`: read-only SQL over the jobs database.

Rule: the connection cannot write, whatever the statement says.
"""

from __future__ import annotations

import argparse
import sys

from bough.cli.output import Output
from bough.cli.targets.jobs_database import OpenDatabase, open_database
from bough.cli.targets.locate import add_store_arguments
from bough.describe.source_files import read_file
from bough.describe.workflow_files import cannot_read
from bough.errors import UserError

EXAMPLES = (
    'bough sql "select state, count(*) from tasks group by state"',
    'bough sql --csv "select id, name, seconds from tasks order by seconds desc limit 10"',
    "bough sql --tables",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("statement", nargs="?", metavar="STATEMENT", help="a select; - reads it from standard input")
    parser.add_argument("--tables", action="store_true", help="list the tables and their columns")
    parser.add_argument("--csv", action="store_true", help="answer with comma-separated values")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Answer one statement."""
    if (args.statement is None) == (not args.tables):
        raise UserError('give one statement, such as "select * from tasks", or --tables')
    if args.csv and args.json:
        raise UserError("--csv and --json exclude each other; give one")
    with open_database(args) as database:
        if args.tables:
            _tables(database, output)
            return 0
        statement = _from_stdin() if args.statement == "-" else args.statement
        columns, rows = database.select(statement)
    if args.csv:
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([columns, *rows])
    else:
        output.table(columns, rows)
    return 0


def _from_stdin() -> str:
    try:
        return read_file("-").decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise cannot_read("stdin", error) from error


def _tables(database: OpenDatabase, output: Output) -> None:
    tables = {name: database.columns(name) for name in database.tables()}
    width = max(map(len, tables), default=0)
    output.answer(tables, lambda: [f"{name:<{width}}  {', '.join(columns)}" for name, columns in tables.items()])
