"""The evaluation of Jole (Patterson 2009), run live on two sites of this machine.

The workloads are those of `examples/folding/jole.py`: real searches by a genetic algorithm, whose iterations are padded
by sleep, because both sites together declare more slots than this machine has cores. A service of the study's own has
two executors, sites A and B, 10 slots each. In the last two workloads B's owner takes it back and returns it, at the
same shares of the makespan of DLG (20) as in the thesis. Every seed runs all of it.

Rule: nothing is judged by one seed. Times are compared as shares of the static workload's, because theirs are of
another machine and another folder; relations that were published are counted, not assumed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

import bough
from bough.bench.bench_setup import home, until
from bough.errors import SiteError
from bough.sim.studies.study_rows import Reference, StudyRow

SITES = ("A", "B")
SLOTS = 10  # of each site
LEAVES, RETURNS = 900 / 2950.73, 4500 / 2950.73  # of the makespan of DLG (20): minutes 15 and 75 of the thesis
SMALL_LOSS = 0.05  # of the score: what counts as a small one; the thesis' is 0.011
PUBLISHED = {  # makespan, accumulated and average time of a job in seconds, average iterations, best score
    "static (20)": (2889.94, 28478.87, 1424.99, 300.0, -33.32),
    "DL (20)": (2708.67, 19375.11, 969.45, 204.55, -32.97),
    "DLG (10)": (1276.26, 9147.47, 303.78, 60.10, -33.12),
    "DLG (20)": (2950.73, 23566.04, 236.14, 44.86, -33.52),
}
PUBLISHED_SITES = {"constant": (24, -34.59), "adjusting": (28, -34.99)}  # generations, best score


class Scale(msgspec.Struct, frozen=True):
    """How much of the study is run, and how fast."""

    seeds: int = 5
    pad: float = 0.03  # seconds of an iteration; theirs took 4.75
    sites_leave: bool = True  # with the two workloads in which B leaves and returns


QUICK = Scale(seeds=1, sites_leave=False)


class Measured(msgspec.Struct, frozen=True):
    """One run of one workload."""

    makespan: float
    ran: list[tuple[str, float, float]]  # site, start and end of every attempt, from the start of the workload
    iterations: list[int]  # of every instance
    scores: list[tuple[float, float]]  # when a better one was there, and the score
    generations: int

    @property
    def accumulated(self) -> float:
        """Seconds of all attempts together."""
        return sum(end - start for _, start, end in self.ran)

    @property
    def average(self) -> float:
        """Seconds of an attempt."""
        return self.accumulated / len(self.ran)

    @property
    def best(self) -> float:
        """The lowest score."""
        return min(score for _, score in self.scores)


Results = dict[str, list[Measured]]  # by workload, one a seed


def run(*, quick: bool, pictures: str = "", tell: Callable[[str], None] = lambda _: None) -> list[StudyRow]:
    """The rows of the study."""
    found = measure(QUICK if quick else Scale(), tell)
    if pictures:
        from bough.analysis.jole_pictures import draw

        draw(pictures, found)
    return rows_of(found)


def measure(scale: Scale, tell: Callable[[str], None] = lambda _: None) -> Results:
    """Run everything, one workload after the other."""
    found: Results = {}
    with tempfile.TemporaryDirectory(prefix="bough-study-") as folder:
        for number in range(scale.seeds):
            for name, measured in _one_seed(_TestBed(folder, scale), 100_000 * (number + 1), scale.sites_leave):
                found.setdefault(name, []).append(measured)
                tell(
                    f"seed {number + 1} of {scale.seeds}, {name}: {measured.makespan:.1f} s, accumulated "
                    f"{measured.accumulated:.1f} s, {len(measured.iterations)} instances, best {measured.best:g}"
                )
    return found


def _one_seed(bed: _TestBed, seed: int, sites_leave: bool) -> Iterator[tuple[str, Measured]]:
    """The workloads with the seeds from one number up."""
    jole = bed.jole
    yield "static (20)", bed.run(jole.STATIC, seed)
    yield "DL (20)", bed.run(jole.DL, seed)
    yield "DLG (10)", bed.run(dataclasses.replace(jole.DLG, instances=10), seed)
    twenty = bed.run(jole.DLG, seed)
    yield "DLG (20)", twenty
    if sites_leave:
        away = (LEAVES * twenty.makespan, RETURNS * twenty.makespan)
        yield "constant", bed.run(jole.CONSTANT, seed, away)
        yield "adjusting", bed.run(jole.ADJUSTING, seed, away)


class _TestBed:
    """A service with two sites, made anew for every workload, so that none runs in the shadow of another."""

    def __init__(self, folder: str, scale: Scale) -> None:
        self._folder = folder
        self._pad = scale.pad
        self.jole = _load_workloads()

    def run(self, workload: Any, seed: int, away: tuple[float, float] | None = None) -> Measured:
        """Run a workload; `away`: from when to when site B is its owner's."""
        with home(self._folder) as service:
            service.serve()
            for site in SITES:
                service.execute(SLOTS, "--site", site, tls=False)
            folds = Path(service.folder, "folds")
            with bough.Session(service.socket, name=workload.name, reuse="never") as session:
                until(lambda: session.processors() == {site: float(SLOTS) for site in SITES})
                owner = _Owner(service.environment, Path(service.folder, "B-away"), away)
                begun = time.time()
                with owner:
                    generations = self.jole.run(session, workload, seed=seed, pad=self._pad, folder=folds)
                makespan = time.time() - begun
            ran = [
                (site, start - begun, end - begun)
                for site, start, end in _query(service.environment, _RAN, str(workload.name))
                if start is not None and end is not None
            ]
        instances = [one for generation in generations for one in generation]
        ends = sorted((one.path.stat().st_mtime - begun, one.score) for one in instances)
        better = [(when, score) for at, (when, score) in enumerate(ends) if score <= min(s for _, s in ends[: at + 1])]
        return Measured(makespan, ran, [one.iterations for one in instances], better, len(generations))


# Attempts at elements that succeeded, and those that were ended because the site left.
_RAN = """
SELECT executors.site, coalesce(ran.started, ran.placed), ran.ended FROM (
  SELECT id, executor, started, started AS placed, ended FROM elements WHERE state = 'done'
  UNION ALL SELECT id, executor, started, placed, ended FROM attempts
) ran JOIN tasks ON tasks.id = ran.id JOIN runs ON runs.run = tasks.run JOIN executors ON executors.id = ran.executor
WHERE runs.name = ?
"""


class _Owner:
    """The owner of site B, who takes it back and returns it by the file that the server looks at."""

    def __init__(self, environment: dict[str, str], file: Path, away: tuple[float, float] | None) -> None:
        self._file = file
        self._away = away
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._act, name="owner of site B")
        if away is not None:
            _bough(environment, "site", "availability", "B", "--file", str(file))

    def _act(self) -> None:
        leaves, returns = self._away or (0.0, 0.0)
        if not self._over.wait(leaves):
            self._file.write_text("away the owner needs it\n")
            self._over.wait(returns - leaves)
        self._file.unlink(missing_ok=True)

    def __enter__(self) -> None:
        if self._away is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._away is not None:
            self._thread.join()


def _load_workloads() -> ModuleType:
    """The example's script: it is part of the package, or beside it in a clone."""
    package = Path(bough.__file__).parent
    for root in (package, package.parents[1]):
        script = root / "examples" / "folding" / "jole.py"
        if script.exists():
            spec = importlib.util.spec_from_file_location("jole", script)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules["jole"] = module  # its dataclasses look for it there
            spec.loader.exec_module(module)
            return module
    raise SiteError("examples/folding/jole.py is not there: it belongs to the package and to a clone")


def _bough(environment: dict[str, str], *words: str) -> str:
    """Call the command line as its users do."""
    command = [sys.executable, "-m", "bough.cli.main", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SiteError(f"bough {' '.join(words)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _query(environment: dict[str, str], statement: str, name: str) -> list[list[Any]]:
    """Rows of the jobs database of the study's service."""
    said = json.loads(_bough(environment, "sql", "--json", statement.replace("?", f"'{name}'")))
    return [list(row.values()) if isinstance(row, dict) else list(row) for row in said]


# --- what comes of it ---------------------------------------------------------------------------------


Seed = dict[str, Measured]  # what one seed gave, by workload

FIGURES: dict[str, Callable[[Measured, Measured], float]] = {  # of a workload and of the static one; as in PUBLISHED
    "makespan, of static's": lambda one, static: one.makespan / static.makespan,
    "accumulated time, of static's": lambda one, static: one.accumulated / static.accumulated,
    "time of a job, of static's": lambda one, static: one.average / static.average,
    "iterations of a job": lambda one, _: statistics.mean(one.iterations),
    "best score": lambda one, _: one.best,
}
RELATIONS: dict[str, Callable[[Seed], bool]] = {
    "DL saves 25% of static's accumulated time": lambda seed: (
        seed["DL (20)"].accumulated <= 0.75 * seed["static (20)"].accumulated
    ),
    f"DL loses at most {SMALL_LOSS:.0%} of static's score": lambda seed: (
        seed["DL (20)"].best <= seed["static (20)"].best * (1 - SMALL_LOSS)
    ),
    "DLG (10) reaches DL's score": lambda seed: seed["DLG (10)"].best <= seed["DL (20)"].best,
    "DLG (10) takes at most half of static's accumulated time": lambda seed: (
        seed["DLG (10)"].accumulated <= seed["static (20)"].accumulated / 2
    ),
    "DLG (20) reaches static's score": lambda seed: seed["DLG (20)"].best <= seed["static (20)"].best,
    "DLG (20) takes less accumulated time than static": lambda seed: (
        seed["DLG (20)"].accumulated < seed["static (20)"].accumulated
    ),
}
SITE_RELATIONS: dict[str, Callable[[Seed], bool]] = {
    "adjusting ends with a score no higher than constant's": lambda seed: (
        seed["adjusting"].best <= seed["constant"].best
    ),
}


def rows_of(found: Results) -> list[StudyRow]:
    """Shares of the static workload's times beside the published shares, scores, and how often relations hold."""
    seeds: list[Seed] = [dict(zip(found, one, strict=True)) for one in zip(*found.values(), strict=True)]
    theirs = PUBLISHED["static (20)"]
    rows: list[StudyRow] = []
    for name, published in PUBLISHED.items():
        shares = (*(mine / static for mine, static in zip(published[:3], theirs, strict=False)), *published[3:])
        for (what, figure), share in zip(FIGURES.items(), shares, strict=True):
            ours = [figure(seed[name], seed["static (20)"]) for seed in seeds]
            of = Reference.FOLLOWS if what.endswith("of static's") else Reference.PUBLISHED
            rows.append(_row(f"{name}: {what}", ours, share, of))
    relations = dict(RELATIONS)
    if "adjusting" in found:
        relations |= SITE_RELATIONS
        for name, (generations, score) in PUBLISHED_SITES.items():
            rows.append(_row(f"{name}: generations", [float(seed[name].generations) for seed in seeds], generations))
            rows.append(_row(f"{name}: best score", [seed[name].best for seed in seeds], score))
    for what, holds in relations.items():
        times = sum(map(holds, seeds))
        rows.append(StudyRow(f"holds: {what}", float(times), float(len(seeds)), "of the seeds", of=Reference.RELATION))
    return rows


def _row(subject: str, ours: list[float], reference: float, of: Reference = Reference.PUBLISHED) -> StudyRow:
    spread = f"{min(ours):.3g} to {max(ours):.3g} over {len(ours)} seeds" if len(ours) > 1 else "one seed"
    if subject.endswith("score"):
        spread += "; of another folder"
    return StudyRow(subject, statistics.mean(ours), reference, unit="", note=spread, of=of)
