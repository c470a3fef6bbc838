"""The command line of the executor process.

Rule: as little as possible is imported before the hello; starting up is what users wait for.
"""

from __future__ import annotations

import argparse
import os
import sys

from bough.errors import BoughError
from bough.executor.loop import Executor
from bough.model.resources import Needs, read_bytes


def main(words: list[str]) -> int:
    """Run an executor with these arguments; the exit code."""
    options = _parser().parse_args(words)
    named = dict(options.resource)
    gpus = named.pop("gpus", 0.0)
    memory = options.memory if options.memory is not None else machine_memory()
    capacity = Needs(options.cores, memory, gpus, tuple(sorted(named.items())))
    try:
        return Executor(options.server, capacity, options.site).run()
    except BoughError as error:
        sys.stderr.write(f"bough executor: {error}\n")
        return error.exit_code


def machine_memory() -> int:
    """Bytes of memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bough.executor", description="Runs tasks for a Bough server.")
    parser.add_argument("--server", required=True, metavar="unix:PATH")
    parser.add_argument("--cores", type=float, default=float(os.cpu_count() or 1))
    parser.add_argument("--memory", type=read_bytes, metavar="BYTES")
    parser.add_argument("--resource", type=_resource, action="append", default=[], metavar="NAME=AMOUNT")
    parser.add_argument("--site", default="local")
    return parser


def _resource(text: str) -> tuple[str, float]:
    name, equals, amount = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=AMOUNT")
    return name, float(amount)
