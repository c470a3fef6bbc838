"""`bough pilot`: show the pilots that the server has asked sites for, and why each exists or why there is none.

A pilot is a request to a site that starts executors there. Rule: it only shows; sites are changed by `bough site`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from bough.api.display.surroundings import show_seconds
from bough.cli.main import add_verb
from bough.cli.output import Output, table_lines
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.errors import UnknownName
from bough.wire import questions

EXAMPLES = ("bough pilot list", "bough pilot list lab --json")
_HEADINGS = ["PILOT", "SITE", "STATE", "AGE", "WAITED", "HANDLE", "EXECUTORS", "BUSY", "CORES", "WHY"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = add_verb(verbs, "list", "show all pilots, and why sites have no more of them", EXAMPLES)
    listing.add_argument("site", metavar="NAME", nargs="?", help="only those of this site")
    add_server_argument(listing)


def run(args: argparse.Namespace, output: Output) -> int:
    """Show them."""
    with connect_client(args.server, "read") as server:
        sites = [site for site in server.ask(questions.Sites()) if site["spec"] is not None]
    if args.site is not None:
        known = ", ".join(site["site"] for site in sites) or "none"
        sites = [site for site in sites if site["site"] == args.site]
        if not sites:
            raise UnknownName(f"there is no site {args.site} that was added; there are: {known}")
    found = {
        "pilots": [{"site": site["site"], **pilot} for site in sites for pilot in site["pilots"]],
        "sites": [_summary(site) for site in sites],
    }
    output.answer(found, lambda: _lines(found))
    return 0


def _summary(site: dict[str, Any]) -> dict[str, Any]:
    """How many pilots a site has and may have, and why there are no more."""
    return {
        "site": site["site"],
        "pilots": len(site["pilots"]),
        "max_pilots": site["spec"].get("max_pilots", 1),
        "no_more": site["problem"] if site["problem"] and not site["no_more"] else site["no_more"],
        "waits": site["waits"],
        "core_hours": site["core_hours"],
    }


def _lines(found: dict[str, Any]) -> list[str]:
    if not found["sites"]:
        return ["no site was added; see bough site add --help"]
    rows = [_row(pilot, time.time()) for pilot in found["pilots"]]
    lines = table_lines(_HEADINGS, rows) if rows else ["no pilots"]
    for site in found["sites"]:
        if site["no_more"]:
            more = "no more" if site["pilots"] else "none"
            lines.append(
                f"site {site['site']} ({site['pilots']} of {site['max_pilots']}): {more}, because {site['no_more']}"
            )
    return lines


def _row(pilot: dict[str, Any], now: float) -> list[object]:
    until = pilot["started"] if pilot["started"] is not None else now
    return [
        *(pilot["pilot"], pilot["site"], pilot["state"], show_seconds(max(0.0, now - pilot["asked"]))),
        show_seconds(max(0.0, until - pilot["asked"])),
        *(pilot["handle"], pilot["executors"], pilot["busy"], f"{pilot['cores']:g}" if pilot["cores"] else ""),
        pilot["reason"],
    ]
