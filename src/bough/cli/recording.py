"""`bough describe --run`: a workflow that has run, written with its times as WfFormat or DOT.

Rule: it looks and changes nothing; a live session's server is asked to bring the jobs database up to date first.
"""

from __future__ import annotations

import argparse

from bough.cli.finding import add_server_argument
from bough.cli.numbers import path_name
from bough.errors import UserError

_FORMS = ("wfformat", "dot")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--run", dest="run_of", metavar="NAME", help="a workflow that has run (NAME:N: its run N) instead of a file"
    )
    parser.add_argument(
        "--store", type=path_name, metavar="DIR", help="with --run: where stores are, or one store itself"
    )
    add_server_argument(parser)


def show_run(args: argparse.Namespace) -> int:
    """Write one run."""
    if args.file is not None:
        raise UserError(f"--run {args.run_of}: a run is described without a file; leave {args.file} out")
    form = args.to or "wfformat"
    if form not in _FORMS:
        raise UserError(f"a run is written as {' or '.join(_FORMS)}, not as {form!r}")
    name, colon, number = args.run_of.rpartition(":")
    if not colon:
        name, number = args.run_of, ""
    if colon and not number.isdecimal():
        raise UserError(f"--run {args.run_of}: give a name, or a name and the number of a run, such as survey:2")
    from bough.cli.database import open_database
    from bough.cli.picking import choose_run
    from bough.cli.recorded import read_record

    asked = argparse.Namespace(name=name or None, run=int(number or 0), store=args.store, server=args.server)
    with open_database(asked) as database:
        record = read_record(database, choose_run(database, asked))
    if form == "dot":
        from bough.describe.dot import write

        print(write(record), end="")
        return 0
    from bough import __version__
    from bough.describe import wfwrite

    print(wfwrite.write(record, version=__version__), end="")
    return 0
