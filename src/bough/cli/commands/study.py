"""`bough study`: run a published study again, and put our figures beside those that they are compared with.

Most studies are simulated by our scheduler; `jole` runs live, on a service of its own. Rule: no server, executor or
store of yours is touched.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from msgspec import Meta

from bough.analysis.picture_folder import make_picture_folder
from bough.cli.campaign_stores import campaign_store
from bough.cli.output import Output, table_lines
from bough.errors import UserError
from bough.model.bounds import within
from bough.sim import studies
from bough.sim.studies.study_rows import StudyResult, StudyRow

_Cores = Annotated[int, Meta(ge=1, le=10_000)]
EXAMPLES = (
    "bough study --list",
    "bough study trellisdag",
    "bough study trellisdag --json",
    "bough study provisioning --pictures pictures",
    "bough study storage-affinity --cores 8",
    "bough study jole --quick",
    "bough study jole --pictures pictures",
)
LIVE = {
    "jole": "folding in generations with monitors, and with a site that leaves (Jole, Patterson 2009): live, 5 seeds, "
    "about a quarter of an hour; --quick: one seed and no site that leaves, about a minute",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="which study; without one: say which there are")
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument(
        "--full", action="store_true", help="of a study of many simulations: all of them, which may take hours"
    )
    parser.add_argument("--cores", type=int, metavar="N", help="of such a study: run it on N cores (default: all)")
    parser.add_argument(
        "--store", metavar="FOLDER", help="of such a study: keep what was done here, and go on with it after a kill"
    )
    parser.add_argument("--list", action="store_true", help="say which studies there are")
    parser.add_argument("--pictures", metavar="FOLDER", default="", help="draw the figures into this folder")


def run(args: argparse.Namespace, output: Output) -> int:
    """Run it and answer."""
    if args.list or not args.name:
        output.table(("name", "what"), list(_about().items()))
        return 0
    _refuse_needless(args)
    if args.pictures:
        make_picture_folder(args.pictures)  # before a study that takes hours
    if args.name in LIVE:
        from bough.analysis import jole_study

        tell = functools.partial(print, file=sys.stderr, flush=True)
        rows = jole_study.run(quick=args.quick, pictures=args.pictures, tell=tell)
    else:
        found = _run_study(args)
        rows = list(found.rows)
        if args.pictures and not found.figures:
            less = " --quick" if args.quick else ""
            output.note(f"the study {args.name}{less} has no figure: nothing is drawn into {args.pictures}")
        elif args.pictures:
            from bough.analysis.study_pictures import draw_figures

            for path in draw_figures(args.pictures, found.figures):
                print(path, file=sys.stderr)
    output.answer({"study": args.name, "rows": list(map(_value, rows))}, lambda: _lines(rows))
    return 0


def _refuse_needless(args: argparse.Namespace) -> None:
    """Refuse a study that there is not, and options that would change nothing."""
    if args.name not in _about():
        raise UserError(f"there is no study {args.name!r}; there are: {', '.join(_about())}")
    if args.quick and args.full:
        raise UserError("--quick and --full exclude each other; give one")
    is_campaign = args.name in studies.STUDIES and studies.STUDIES[args.name].is_campaign
    if args.full and not is_campaign:
        raise UserError(f"--full: the study {args.name!r} always runs as a whole")
    for option in ("cores", "store"):
        if getattr(args, option) is not None and not is_campaign:
            raise UserError(f"--{option}: the study {args.name!r} is no campaign of simulations; leave --{option} out")
    if args.cores is not None:
        within("--cores", args.cores, _Cores)


def _run_study(args: argparse.Namespace) -> StudyResult:
    """A campaign that takes minutes, or is given cores, is a workflow of ours; all else runs here."""
    if not studies.STUDIES[args.name].is_campaign or (args.quick and args.cores is None and args.store is None):
        return studies.run(args.name, quick=args.quick)
    from rich.console import Console
    from rich.progress import track

    from bough.api.session.session import Session

    with (
        campaign_store(args.store) as folder,
        Session(name=f"study-{args.name}", store=folder, cores=args.cores) as session,
    ):

        def each(simulate: Callable[[object], object], cases: Sequence[object]) -> Iterable[object]:
            return track(
                session.map(simulate, cases), "simulations", len(cases), console=Console(stderr=True), transient=True
            )

        return studies.run(args.name, quick=args.quick, full=args.full, each=each)


def _about() -> dict[str, str]:
    return {name: entry.about for name, entry in studies.STUDIES.items()} | LIVE


def _value(row: StudyRow) -> dict[str, object]:
    return {
        "subject": row.subject,
        "reference": row.reference,
        "reference_is": None if row.reference is None else str(row.of),
        "ours": round(row.ours, 6),
        "deviation": row.deviation,
        "unit": row.unit,
        "note": row.note,
    }


def _lines(rows: list[StudyRow]) -> list[str]:
    cells = [
        (
            row.subject, _figure(row.reference), _figure(row.ours), _percent(row), row.unit,
            "" if row.reference is None else str(row.of), row.note,
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(len(cell[column]) for cell in cells) for column in (1, 2, 3)]
    padded = [
        (subject, *(word.rjust(width) for word, width in zip(words, widths, strict=True)), *others)
        for subject, *words, others in ((*cell[:4], cell[4:]) for cell in cells)
    ]
    return table_lines(("", "reference", "ours", "deviation", "", "the reference is", ""), padded)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}".removesuffix(".00")


def _percent(row: StudyRow) -> str:
    if row.deviation is None:
        return ""
    said = f"{100 * row.deviation:+.2f} %"
    return said if said[1:] != "0.00 %" else said[1:]
