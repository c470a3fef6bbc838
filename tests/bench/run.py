"""`make bench`: measures Bough beside its peers and limits in the same run, and prints the ratios.

python tests/bench/run.py [--full] [--json | --markdown] [--strict] [NAME ...]

The measurements are those of `bough bench`, and the subjects of this folder: `peers` (Ray, executorlib, HyperQueue,
joblib and Dask, as far as $PEERS_DIR has an environment for them), `falkon` (emulated executors) and `driver` (its
batching). Those run in the full form, or when they are named.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator

from bough.bench import bench_table
from bough.bench.bench_setup import BenchSetting
from bough.bench.catalogue import CATALOGUE, BenchOutcome, Measure, choose, run
from bough.bench.timing import BenchRow
from bough.cli.commands.bench import PLAIN_WIDTH, BenchProgress
from bough.cli.main import report
from bough.errors import UserError

OTHERS = {
    "peers": "systems with environments of their own",
    "falkon": "emulated executors: Falkon's curves and records",
    "driver": "batching by the driver: factors by hand and Bough's own",
}


def main() -> int:
    catalogue = {**CATALOGUE, **{name: _subject(name) for name in OTHERS if importlib.util.find_spec(name)}}
    options = _parser(catalogue).parse_args()
    begun = time.monotonic()
    try:
        chosen = choose(options.names, full=options.full, catalogue=catalogue)
    except UserError as error:
        return report(error)
    progress = BenchProgress(len(chosen), sys.stderr)
    try:
        outcome = run(chosen, full=options.full, folder=options.folder, tell=progress)
    finally:
        progress.end()
    _show(options.form, outcome, time.monotonic() - begun)
    missed = any(row.met is False for row in outcome.rows)
    return int(bool(outcome.failures) or (missed and options.strict))


def _subject(name: str) -> Measure:
    def measure(setting: BenchSetting) -> Iterator[BenchRow]:
        return importlib.import_module(name).measure(setting.folder, full=setting.full)

    return Measure(OTHERS[name], measure, usual=False)


def _parser(catalogue: dict[str, Measure]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure Bough beside its peers, in the same run.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(catalogue))
    parser.add_argument("--full", action="store_true", help="bigger sizes and more rounds: the better part of an hour")
    parser.add_argument("--json", dest="form", action="store_const", const="json", help="machine-readable")
    parser.add_argument("--markdown", dest="form", action="store_const", const="markdown", help="a page for the docs")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--folder", metavar="DIR", help="make the stores there")
    return parser


def _show(form: str | None, outcome: BenchOutcome, seconds: float) -> None:
    if form == "json":
        print(json.dumps(bench_table.value(outcome, seconds), indent=2))
        return
    if form == "markdown":
        lines = bench_table.markdown(outcome.rows, seconds)
    else:
        terminal = sys.stdout.isatty()
        width = os.get_terminal_size().columns if terminal else PLAIN_WIDTH
        lines = bench_table.text(outcome, seconds, width=width, colour=terminal)
    print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
