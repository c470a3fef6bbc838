"""Lamb's measurements of batching: 3,916 proteins through BLAST and parsing, by how many tasks go out with one call.

A placeholder's two calls cost more than parsing takes, so that bundles pay: of one kind of task (`BF`, the batching
factor), or of one protein's two stages (`hetero`). The thesis measured it on a cluster; here the calls are modelled.
Their costs, and the run times as stand-alone programs, were fitted by `spec/trellis-driver.md` 4.4 to the rows of two
placeholders. So those rows are no evidence; the others are predictions of the same two numbers.
Source: M. Lamb, `spec/trellis-driver.md` 3.6, 4.2 to 4.4, 5.1 to 5.3.
"""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Final, NamedTuple

from bough.model.ids import Seconds
from bough.sim.studies.placeholders import Job, Network, run_placeholders
from bough.sim.studies.study_rows import Curve, Reference, StudyFigure, StudyResult, StudyRow

PROTEINS: Final = 3916
HOSTS: Final = (2, 4, 8, 16)
FACTORS: Final = (2, 4, 8, 16, 32, 64)
CALLS: Final = Network(0.70, 0.26)
SEQUENTIAL_BLAST: Seconds = 17_486.0
SEQUENTIAL_PARSING: Seconds = 513.0

# published: hours, minutes, seconds by placeholders; columns as in FACTORS
BLAST: Final = {
    2: ("2:47:08", "2:35:35", "2:29:09", "2:27:11", "2:25:38", "2:25:12"),
    4: ("1:23:26", "1:17:15", "1:14:26", "1:12:53", "1:12:32", "1:15:19"),
    8: ("0:42:49", "0:39:07", "0:37:26", "0:37:07", "0:37:58", "0:38:56"),
    16: ("0:23:33", "0:20:09", "0:19:24", "0:19:41", "0:19:51", "0:21:33"),
}
PARSING: Final = {
    2: ("0:42:54", "0:31:16", "0:25:34", "0:22:05", "0:20:49", "0:20:32"),
    4: ("0:24:09", "0:16:31", "0:13:19", "0:11:56", "0:10:50", "0:10:22"),
    8: ("0:17:03", "0:10:14", "0:07:29", "0:06:14", "0:05:58", "0:05:50"),
    16: ("0:17:09", "0:08:27", "0:05:22", "0:03:59", "0:03:33", "0:03:23"),
}
COMBINED: Final = {  # none, hetero, then as in FACTORS
    2: ("4:17:14", "3:26:17", "3:30:02", "3:06:50", "2:54:43", "2:49:16", "2:46:27", "2:45:44"),
    4: ("2:18:20", "1:43:55", "1:47:35", "1:33:47", "1:27:44", "1:24:48", "1:23:22", "1:25:42"),
    8: ("1:26:03", "1:00:32", "0:59:52", "0:49:21", "0:44:55", "0:43:21", "0:43:57", "0:44:46"),
    16: ("1:08:41", "0:40:14", "0:40:42", "0:28:36", "0:24:45", "0:23:29", "0:23:24", "0:24:56"),
}


class PhaseTimes(NamedTuple):
    """How long the two phases took."""

    blast: Seconds
    parsing: Seconds

    @property
    def combined(self) -> Seconds:
        """Both, one after the other."""
        return self.blast + self.parsing


def run_bundles(hosts: int, factor: int) -> PhaseTimes:
    """Each phase in bundles of one kind."""
    phases = []
    for kind, lengths in (("blast", blast_times()), ("parsing", parsing_times())):
        some = [lengths[at : at + factor] for at in range(0, PROTEINS, factor)]
        phases.append([Job(f"{kind}{number}", sum(one), tasks=len(one)) for number, one in enumerate(some)])
    first, both = run_placeholders("fifo", CALLS, hosts, phases).ends
    return PhaseTimes(first, both - first)


def run_chains(hosts: int) -> Seconds:
    """A protein's BLAST and its parsing go out together."""
    pairs = zip(blast_times(), parsing_times(), strict=True)
    jobs = [Job(f"protein{number}", blast + parsing, tasks=2) for number, (blast, parsing) in enumerate(pairs)]
    return run_placeholders("fifo", CALLS, hosts, [jobs]).makespan


def rounds_of(jobs: int, hosts: int, factor: int) -> int:
    """How long equal jobs take in bundles, in times of one job: whole rounds of whole bundles."""
    return ceil(ceil(jobs / factor) / hosts) * factor


def blast_times() -> list[Seconds]:
    """BLAST as a program: 2 to 8 s, 4.45 s in the mean."""
    dice = Random("blast")
    return [2 + 6 * dice.random() ** 1.45 for _ in range(PROTEINS)]


def parsing_times() -> list[Seconds]:
    """Parsing as a program of its own, which the sequential program does in a fifth of the time."""
    dice = Random("parsing")
    return [dice.uniform(0.50, 0.71) for _ in range(PROTEINS)]


def run(*, quick: bool) -> StudyResult:
    """The three tables; quick: for 2 and 16 placeholders."""
    rows: list[StudyRow] = []
    figures = []
    speedups: dict[int, list[tuple[float, float]]] = {}
    for hosts in (2, 16) if quick else HOSTS:
        found = {factor: run_bundles(hosts, factor) for factor in FACTORS}
        for place, factor in enumerate(FACTORS):
            called = f"P={hosts}, BF {factor}"
            rows.append(_row(f"{called}: BLAST", found[factor].blast, BLAST[hosts][place], SEQUENTIAL_BLAST))
            rows.append(_row(f"{called}: parsing", found[factor].parsing, PARSING[hosts][place], SEQUENTIAL_PARSING))
        none, hetero, *rest = COMBINED[hosts]
        whole = SEQUENTIAL_BLAST + SEQUENTIAL_PARSING
        rows.append(_row(f"P={hosts}, no bundles: both", run_bundles(hosts, 1).combined, none, whole))
        rows.append(_row(f"P={hosts}, hetero: both", run_chains(hosts), hetero, whole))
        for factor, printed in zip(FACTORS, rest, strict=True):
            rows.append(_row(f"P={hosts}, BF {factor}: both", found[factor].combined, printed, whole))
        speedups[hosts] = [(float(factor), whole / found[factor].combined) for factor in FACTORS]
        best = min(FACTORS, key=lambda factor: found[factor].blast)
        printed_best = min(zip(BLAST[hosts], FACTORS, strict=True))[1]
        note = "BLAST: it falls as placeholders are added"
        rows.append(StudyRow(f"P={hosts}: best batching factor", float(best), float(printed_best), "tasks", note,
                             of=Reference.FOLLOWS))  # fmt: skip
    for hosts, factor, published in ((4, 5, 25), (4, 10, 30), (8, 5, 15)):
        subject = f"100 equal jobs, P={hosts}, BF {factor}: rounds (3.6)"
        rows.append(StudyRow(subject, float(rounds_of(100, hosts, factor)), float(published), "jobs' times"))
    curves = []
    for hosts, points in speedups.items():
        whole = SEQUENTIAL_BLAST + SEQUENTIAL_PARSING
        printed_points = [
            (float(factor), whole / seconds_of(text)) for factor, text in zip(FACTORS, COMBINED[hosts][2:], strict=True)
        ]
        curves += [Curve(f"P={hosts}", points), Curve(f"P={hosts}", printed_points, of=Reference.FOLLOWS)]
    title = "Speed-up of BLAST and parsing by the batching factor"
    figures.append(StudyFigure("speed-up", title, "tasks in a bundle", "speed-up", curves, log_x=True))
    return StudyResult(rows, figures)


def seconds_of(text: str) -> Seconds:
    """A time as printed: hours, minutes, seconds."""
    hours, minutes, seconds = map(int, text.split(":"))
    return 3600.0 * hours + 60.0 * minutes + seconds


def _row(subject: str, ours: Seconds, printed: str, sequential: Seconds) -> StudyRow:
    return StudyRow(
        subject, ours, seconds_of(printed), note=f"{printed} in the thesis; speed-up {sequential / ours:.2f}"
    )
