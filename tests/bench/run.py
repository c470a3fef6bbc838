"""`make bench`: measures Bough beside its peers and limits in the same run, and prints the ratios.

python tests/bench/run.py [--full] [--json | --markdown] [functions] [commands] [starts] [insides] [service]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or every process compiles everything it imports
sys.dont_write_bytecode = False

from timing import Row  # noqa: E402 - after the line above, so that it is cached too

SUBJECTS = ("functions", "commands", "starts", "insides", "service")
HEAD = ("subject", "ratio", "target", "Bough", "peer or limit", "its figure", "CPU us a task (ours / peer)")


def main() -> int:
    options = _parser().parse_args()
    begun = time.time()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bough-bench-", ignore_cleanup_errors=True) as folder:
        for row in _rows(options.subjects or SUBJECTS, folder, full=options.full):
            rows.append(row)
            if sys.stderr.isatty():
                print(f"\r\033[K{len(rows)}: {row.subject}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    show = {"json": _show_json, "markdown": _show_markdown}.get(options.form, _show_table)
    show(rows, time.time() - begun)
    return int(any(row.met is False for row in rows) and options.strict)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure Bough beside its peers, in the same run.")
    parser.add_argument("subjects", nargs="*", choices=[*SUBJECTS, []], metavar="subject", help=", ".join(SUBJECTS))
    parser.add_argument("--full", action="store_true", help="more rounds and bigger sizes: about ten minutes")
    parser.add_argument("--json", dest="form", action="store_const", const="json", help="machine-readable")
    parser.add_argument("--markdown", dest="form", action="store_const", const="markdown", help="a page for the docs")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    return parser


def _rows(subjects: list[str], folder: str, *, full: bool) -> Iterator[Row]:
    for subject in subjects:
        yield from importlib.import_module(subject).measure(folder, full=full)


def machine() -> dict[str, object]:
    """What it ran on, and how busy that was."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "processor": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 2**20, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[1], 1),
        "date": time.strftime("%Y-%m-%d"),
    }


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.readlines()
    except OSError:
        return []


def _machine_line() -> str:
    found = machine()
    return (
        f"{found['cores']} cores of {found['processor']}, {found['memory_gb']} GB, {found['system']}, "
        f"Python {found['python']}; load average over 5 minutes {found['load']}; {found['date']}"
    )


# --- showing ----------------------------------------------------------------------------------------------


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    sign = ">=" if row.better == "high" else "<="
    target = "" if row.target is None else f"{sign} {row.target:g} {'yes' if row.met else 'no'}"
    return row.subject, ratio, target, row.ours, row.peer_name, row.peer, row.cpu


def _show_table(rows: list[Row], seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=_machine_line())
    for name in HEAD:
        table.add_column(name, justify="left" if name in {"subject", "peer or limit"} else "right")
    for row in rows:
        style = {True: "green", False: "red", None: ""}[row.met]
        table.add_row(*_cells(row), style=style)
    width = None if sys.stdout.isatty() else 190
    console = Console(width=width)
    console.print(table)
    console.print(f"{len(rows)} rows in {seconds:.0f} s; medians of runs that alternate with the peer's")


def _show_json(rows: list[Row], seconds: float) -> None:
    found = {"machine": machine(), "seconds": seconds, "rows": [{**row._asdict(), "met": row.met} for row in rows]}
    json.dump(found, sys.stdout, indent=2)
    print()


def _show_markdown(rows: list[Row], seconds: float) -> None:
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "|".join("---" if name in {"subject", "peer or limit"} else "--:" for name in HEAD) + "|")
    for row in rows:
        print("| " + " | ".join(_cells(row)) + " |")
    print(f"\n{_machine_line()}. {len(rows)} rows in {seconds:.0f} s.")


if __name__ == "__main__":
    sys.exit(main())
