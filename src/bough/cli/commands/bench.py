"""`bough bench`: measure Bough on this machine, beside its peers and beside what the machine itself can do.

Rule: it uses a folder and processes of its own, and removes them; no server or store of yours is touched.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from typing import TYPE_CHECKING, TextIO

from bough.api.display.surroundings import has_colour
from bough.cli.option_values import path_name
from bough.cli.output import Output
from bough.errors import UserError

if TYPE_CHECKING:
    from bough.bench.timing import BenchRow

EXAMPLES = (
    "bough bench",
    "bough bench --only map,round-trip",
    "bough bench --full --json > figures.json",
)
PLAIN_WIDTH = 190  # of a table that goes to a file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="a minute and a half (the default)")
    form.add_argument("--full", action="store_true", help="sizes up to 1,000,000 and more rounds: about half an hour")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAMES",
        help="only these, with commas between; --list says which there are",
    )
    parser.add_argument("--list", action="store_true", help="say what can be measured, and measure nothing")
    parser.add_argument(
        "--folder",
        type=path_name,
        metavar="DIR",
        help="make the stores there, on the disk that matters to you (temporary folder)",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure and answer."""
    from bough.bench import bench_table, catalogue

    if args.list:
        output.table(("name", "what"), [(name, one.summary) for name, one in catalogue.CATALOGUE.items()])
        return 0
    names = [name.strip() for several in args.only for name in several.split(",") if name.strip()]
    if args.only and not names:
        raise UserError("--only names nothing; see bough bench --list")
    chosen = catalogue.choose(names, full=args.full)
    begun = time.monotonic()
    progress = BenchProgress(len(chosen), None if args.json or args.quiet else sys.stderr)
    from bough.api.session import launch

    try:
        with launch.run_defaults(has_display=True):  # what is measured shows nothing of its own
            outcome = catalogue.run(chosen, full=args.full, folder=args.folder, tell=progress)
    finally:
        progress.end()
    seconds = time.monotonic() - begun
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PLAIN_WIDTH
    output.answer(
        bench_table.value(outcome, seconds),
        lambda: bench_table.text(outcome, seconds, width=width, colour=has_colour(sys.stdout)),
    )
    return int(bool(outcome.failures))


class BenchProgress:
    """Says what is measured; only between measurements, so that it disturbs none."""

    def __init__(self, total: int, stream: TextIO | None) -> None:
        self._total = total
        self._stream = stream
        self._live = stream is not None and stream.isatty()

    def __call__(self, number: int, name: str, row: BenchRow | None) -> None:
        """A measurement begins, or has given a row."""
        if self._stream is None:
            return
        if row is not None:
            self._clear()
            print(said(row), file=self._stream, flush=True)
        if self._live:
            print(f"[{number}/{self._total}] {name} ...", end="", file=self._stream, flush=True)
        elif row is None:
            print(f"[{number}/{self._total}] {name}", file=self._stream, flush=True)

    def end(self) -> None:
        """Leave nothing behind."""
        self._clear()

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=self._stream, flush=True)


def said(row: BenchRow) -> str:
    """One row in a line."""
    from bough.bench.bench_table import figure

    beside = f", {row.peer_name}: {row.peer}" if row.peer_name else ""
    ratio = f" ({figure(row.ratio)})" if row.ratio is not None else ""
    return f"  {row.subject}: {row.ours}{beside}{ratio}" if row.ours else f"  {row.subject}: {row.peer}"
