"""`bough stats`: what a server counts every second: the latest figures, a series, or Prometheus' text.

Rule: it looks and changes nothing.
"""

from __future__ import annotations

import argparse

from bough.cli.figures import figure_lines
from bough.cli.numbers import duration
from bough.cli.output import Output
from bough.cli.service import add_server_argument, connect
from bough.wire import questions

EXAMPLES = ("bough stats", "bough stats --since 10m --json", "bough stats --prometheus")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--since", type=duration, default=60.0, metavar="TIME", help="how far back; an hour is kept (60s)"
    )
    parser.add_argument("--prometheus", action="store_true", help="the latest figures as Prometheus reads them")
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Print them."""
    with connect(args.server, "read") as server:
        samples = server.ask(questions.Statistics(max(1, round(args.since))))
    if args.prometheus:
        from bough.server.prometheus import exposition

        text = exposition(samples[-1])
        output.answer({"text": text}, text.splitlines)
    else:
        output.answer(samples, lambda: figure_lines(samples))
    return 0
