"""Pictures of simulated runs: what ran on each host under each policy, how much ran at once, and a page of tables.

A page holds its pictures and styles itself, has no scripts, and asks nobody for anything.
Rule: matplotlib is loaded only when a picture is asked for; the same runs give the same bytes; names come from others
and are escaped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from io import BytesIO
from typing import Any

import msgspec

from bough.errors import SiteError, UserError
from bough.model.ids import Seconds
from bough.sim.schedule import concurrency

KINDS = (".png", ".svg", ".pdf")
_COLOURS = (
    "#4f81bd",
    "#d1495b",
    "#66a182",
    "#edae49",
    "#7d5ba6",
    "#2e4057",
    "#8d96a3",
    "#00798c",
    "#b56576",
    "#a7c957",
)
_MOST_LANES = 400  # in a picture; hosts beyond them are left out, and the title says so
_STYLE = (
    "body{font-family:sans-serif;margin:2em;color:#222}table{border-collapse:collapse;margin:1em 0}"
    "th,td{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}th:first-child,td:first-child"
    "{text-align:left}svg{max-width:100%;height:auto}.bad{color:#b00}"
)


class Bar(msgspec.Struct, frozen=True):
    """Something that ran."""

    host: str
    start: Seconds
    end: Seconds
    kind: str = ""  # bars of one kind have one colour


Runs = Mapping[str, Sequence[Bar]]  # by title: what ran


def write_picture(path: str, title: str, runs: Runs) -> None:
    """Write a picture of some runs; the name of the file says which kind it is."""
    kind = os.path.splitext(path)[1]
    if kind not in KINDS:
        raise UserError(f"--gantt {path}: the name of a picture ends with .png, .svg or .pdf")
    _write(path, draw(title, runs, kind[1:]))


def write_page(path: str, title: str, runs: Runs, tables: Iterable[tuple[str, Sequence[Sequence[str]]]]) -> None:
    """Write a page with tables (a heading, and rows of which the first is the head) and the picture."""
    if not path.endswith((".html", ".htm")):
        raise UserError(f"--html {path}: the name of a page ends with .html")
    _write(path, "".join(page(title, runs, tables)).encode())


def page(title: str, runs: Runs, tables: Iterable[tuple[str, Sequence[Sequence[str]]]]) -> Iterator[str]:
    """The page's text."""
    yield f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    yield f"<style>{_STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n"
    for heading, rows in tables:
        yield f"<h2>{escape(heading)}</h2>\n<table>\n"
        for number, row in enumerate(rows):
            tag = "td" if number else "th"
            yield "<tr>" + "".join(f"<{tag}>{escape(word)}</{tag}>" for word in row) + "</tr>\n"
        yield "</table>\n"
    if any(runs.values()):
        svg = draw(title, runs, "svg").decode()
        yield svg[svg.index("<svg") :]
    yield "</body></html>\n"


def draw(title: str, runs: Runs, form: str) -> bytes:
    """A Gantt chart of each run, and below how much ran at once in all of them."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError as error:
        raise SiteError("pictures need matplotlib: pip install 'bough[plot]'") from error
    lanes = {name: _lanes(bars) for name, bars in runs.items()}
    heights = [min(9.0, 0.8 + 0.16 * len(some)) for some in lanes.values()]
    with mpl.rc_context({"svg.hashsalt": "bough", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 2.6 + sum(heights)), layout="constrained")
        axes = figure.subplots(len(runs) + 1, 1, sharex=True, squeeze=False, height_ratios=[*heights, 2.2])[:, 0]
        kinds = sorted({bar.kind for bars in runs.values() for bar in bars})
        colours = {kind: _COLOURS[number % len(_COLOURS)] for number, kind in enumerate(kinds)}
        for one, (name, some) in zip(axes, lanes.items(), strict=False):
            _gantt(one, name, some, colours)
        _curves(axes[-1], runs)
        if 1 < len(kinds) <= len(_COLOURS):  # with more, several have one colour
            patches = [Patch(color=colours[kind], label=f" {_plain(kind[:40]) or '(no name)'}") for kind in kinds]
            figure.legend(handles=patches, loc="outside lower center", ncols=5, fontsize=7)
        figure.suptitle(title, fontsize=11)
        file = BytesIO()
        figure.savefig(file, format=form, dpi=120, metadata=_NO_DATE.get(form))
    return file.getvalue()


_NO_DATE: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def _lanes(bars: Sequence[Bar]) -> dict[tuple[str, int], list[Bar]]:
    """Bars that do not overlap, by host and lane, in the order of hosts."""
    ends: dict[str, list[float]] = {}
    found: dict[tuple[str, int], list[Bar]] = {}
    for bar in sorted(bars, key=lambda one: (one.start, one.end)):
        until = ends.setdefault(bar.host, [])
        lane = next((number for number, end in enumerate(until) if end <= bar.start + 1e-9), len(until))
        if lane == len(until):
            until.append(0.0)
        until[lane] = bar.end
        found.setdefault((bar.host, lane), []).append(bar)
    return dict(sorted(found.items(), key=lambda one: (_by_number(one[0][0]), one[0])))


def _by_number(host: str) -> list[tuple[int, str]]:
    """So that lab2 stands before lab10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", host[:1000])]


def _gantt(axes: Any, name: str, lanes: dict[tuple[str, int], list[Bar]], colours: dict[str, str]) -> None:
    shown = list(lanes.items())[:_MOST_LANES]
    for place, (_, bars) in enumerate(shown):
        axes.broken_barh(
            [(bar.start, bar.end - bar.start) for bar in bars],
            (place - 0.42, 0.84),
            facecolors=[colours[bar.kind] for bar in bars],
            edgecolor="white",
            linewidth=0.3 if len(bars) < 200 else 0.0,
        )
    firsts = [(place, host) for place, ((host, lane), _) in enumerate(shown) if lane == 0]
    every = max(1, len(firsts) // 40)
    axes.set_yticks([place for place, _ in firsts[::every]], [_plain(host) for _, host in firsts[::every]], fontsize=7)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    left = f"; {len(lanes) - len(shown)} cores are left out" if len(lanes) > len(shown) else ""
    axes.set_title(_plain(f"{name}{left}"), fontsize=10, loc="left")


def _curves(axes: Any, runs: Runs) -> None:
    for number, (name, bars) in enumerate(runs.items()):
        steps = concurrency((bar.start, bar.end, 1) for bar in bars).steps
        if steps:
            axes.step(
                [when for when, _ in steps],
                [degree for _, degree in steps],
                where="post",
                label=_plain(name),
                color=_COLOURS[number % len(_COLOURS)],
                linewidth=1.2,
            )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("running at once")
    if axes.lines:
        axes.legend(fontsize=8)


def _plain(text: str) -> str:
    """Text that matplotlib takes for no formula."""
    return text.replace("$", r"\$")


def _write(path: str, data: bytes) -> None:
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
