"""The abstract model of data diffusion against our own live runs, which are recorded here.

Hosts behind shaped links ran tasks that read one file each; runs vary locality, hosts, caches and links. The model's
costs are taken from separate runs (other hosts, localities, rates and sizes). A measured run gives the model its hit
ratios, as in the source, which compares the model with 92 experiments; where caches hold all files, the ratios are also
predicted, so that nothing comes from the run.
Source: I. Raicu, 6.3.1; `tests/bench/diffusion_model_live.py` makes new measurements and prints the tables below.
Rule: nothing here is fitted to the measured runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, linear_regression, median
from typing import NamedTuple

from bough.model.ids import Seconds
from bough.sim.models.diffusion_model import AccessCosts, HitRatios, contended_storage, undirected_ratios, workload_time
from bough.sim.studies.study_rows import Curve, Reference, StudyFigure, StudyResult, StudyRow

BENCH = "tests/bench/diffusion_model_live.py"
PUBLISHED_ERROR = 5.0  # percent, the mean over 92 experiments


class Plan(NamedTuple):
    """What a run does. Rates are in Mbit/s; 0 is no bound."""

    hosts: int
    locality: int  # tasks that read a file
    cache: float  # of each host, in files
    host_link: float
    home_link: float  # which all hosts share when they read from home
    size: int  # bytes of a file
    tasks: int
    compute: Seconds  # that a task sleeps


class LiveRun(NamedTuple):
    """What came of it: how many reads were answered from where, and the seconds from first placement to last end."""

    plan: Plan
    local: int
    peer: int
    storage: int
    seconds: Seconds


class CalibrationRun(NamedTuple):
    """A run for the constants: also how many seconds in all its tasks waited for their files, by where these were."""

    run: LiveRun
    local: Seconds
    peer: Seconds
    storage: Seconds


class Constants(NamedTuple):
    """The costs that the model needs. A read over a link takes a latency, and bits over rate, times `stretch`."""

    overhead: Seconds  # of a task, beside its access and what it computes
    local: Seconds
    peer_latency: Seconds
    storage_latency: Seconds
    stretch: float  # what a link's frames, TLS and slow starts add


class Comparison(NamedTuple):
    """A run beside what the model says of it."""

    run: LiveRun
    predicted: Seconds

    @property
    def error(self) -> float:
        """By how much the prediction is more, as a part of what was measured."""
        return self.predicted / self.run.seconds - 1


class Errors(NamedTuple):
    """How far predictions are off, in percent, whichever way."""

    mean: float
    median: float
    worst: float


CALIBRATION: tuple[CalibrationRun, ...] = (
    CalibrationRun(LiveRun(Plan(3, 1, 0, 25, 0, 300_000, 45, 0.25), 0, 0, 45, 5.959), 0, 0, 5.2022),
    CalibrationRun(LiveRun(Plan(3, 1, 0, 25, 0, 1_200_000, 36, 0.25), 0, 0, 36, 8.355), 0, 0, 15.38),
    CalibrationRun(LiveRun(Plan(3, 3, 0, 25, 0, 600_000, 45, 0.25), 11, 19, 15, 7.288), 0.1566, 5.0801, 3.5318),
    CalibrationRun(LiveRun(Plan(3, 4, 0, 25, 0, 1000, 60, 0.25), 25, 0, 35, 5.436), 0.0547, 0, 0.2767),
    CalibrationRun(LiveRun(Plan(3, 3, 0, 50, 0, 1_200_000, 45, 0.25), 13, 17, 15, 7.172), 0.0961, 4.8093, 3.5628),
    CalibrationRun(LiveRun(Plan(3, 1, 0, 50, 0, 1_200_000, 36, 0.25), 0, 0, 36, 6.227), 0, 0, 8.7955),
)
RUNS: tuple[LiveRun, ...] = (
    LiveRun(Plan(2, 1, 0, 20, 0, 750_000, 40, 0.25), 0, 0, 40, 12.261),
    LiveRun(Plan(2, 2, 0, 20, 0, 750_000, 40, 0.25), 6, 14, 20, 11.934),
    LiveRun(Plan(2, 5, 0, 20, 0, 750_000, 40, 0.25), 25, 7, 8, 8.313),
    LiveRun(Plan(2, 10, 0, 20, 0, 750_000, 40, 0.25), 32, 4, 4, 6.611),
    LiveRun(Plan(4, 1, 0, 20, 0, 750_000, 80, 0.25), 0, 0, 80, 12.246),
    LiveRun(Plan(4, 2, 0, 20, 0, 750_000, 80, 0.25), 9, 31, 40, 12.284),
    LiveRun(Plan(4, 5, 0, 20, 0, 750_000, 80, 0.25), 28, 36, 16, 10.804),
    LiveRun(Plan(4, 10, 0, 20, 0, 750_000, 80, 0.25), 49, 23, 8, 8.906),
    LiveRun(Plan(2, 1, 0, 40, 0, 1_500_000, 40, 0.25), 0, 0, 40, 12.064),
    LiveRun(Plan(2, 2, 0, 40, 0, 1_500_000, 40, 0.25), 11, 9, 20, 10.696),
    LiveRun(Plan(2, 5, 0, 40, 0, 1_500_000, 40, 0.25), 25, 7, 8, 8.296),
    LiveRun(Plan(2, 10, 0, 40, 0, 1_500_000, 40, 0.25), 32, 4, 4, 6.796),
    LiveRun(Plan(4, 1, 0, 40, 0, 1_500_000, 80, 0.25), 0, 0, 80, 12.917),
    LiveRun(Plan(4, 2, 0, 40, 0, 1_500_000, 80, 0.25), 12, 28, 40, 12.113),
    LiveRun(Plan(4, 5, 0, 40, 0, 1_500_000, 80, 0.25), 29, 35, 16, 11.202),
    LiveRun(Plan(4, 10, 0, 40, 0, 1_500_000, 80, 0.25), 49, 23, 8, 9.077),
    LiveRun(Plan(2, 1, 0, 30, 50, 750_000, 40, 0.25), 0, 0, 40, 10.452),
    LiveRun(Plan(2, 2, 0, 30, 50, 750_000, 40, 0.25), 10, 10, 20, 9.221),
    LiveRun(Plan(2, 5, 0, 30, 50, 750_000, 40, 0.25), 24, 8, 8, 7.477),
    LiveRun(Plan(2, 10, 0, 30, 50, 750_000, 40, 0.25), 32, 4, 4, 6.447),
    LiveRun(Plan(4, 1, 0, 30, 50, 750_000, 80, 0.25), 0, 0, 80, 11.694),
    LiveRun(Plan(4, 2, 0, 30, 50, 750_000, 80, 0.25), 11, 29, 40, 10.734),
    LiveRun(Plan(4, 5, 0, 30, 50, 750_000, 80, 0.25), 31, 33, 16, 9.569),
    LiveRun(Plan(4, 10, 0, 30, 50, 750_000, 80, 0.25), 49, 23, 8, 7.873),
    LiveRun(Plan(2, 1, 3.5, 20, 0, 750_000, 40, 0.25), 0, 0, 40, 12.167),
    LiveRun(Plan(2, 2, 3.5, 20, 0, 750_000, 40, 0.25), 2, 4, 34, 11.974),
    LiveRun(Plan(2, 5, 3.5, 20, 0, 750_000, 40, 0.25), 10, 6, 24, 10.784),
    LiveRun(Plan(2, 10, 3.5, 20, 0, 750_000, 40, 0.25), 26, 8, 6, 8.064),
    LiveRun(Plan(4, 1, 3.5, 20, 0, 750_000, 80, 0.25), 0, 0, 80, 12.855),
    LiveRun(Plan(4, 2, 3.5, 20, 0, 750_000, 80, 0.25), 2, 7, 71, 12.409),
    LiveRun(Plan(4, 5, 3.5, 20, 0, 750_000, 80, 0.25), 17, 23, 40, 11.857),
    LiveRun(Plan(4, 10, 3.5, 20, 0, 750_000, 80, 0.25), 22, 42, 16, 11.918),
    LiveRun(Plan(2, 1, 3.5, 40, 0, 1_500_000, 40, 0.25), 0, 0, 40, 13.162),
    LiveRun(Plan(2, 2, 3.5, 40, 0, 1_500_000, 40, 0.25), 1, 6, 33, 12.44),
    LiveRun(Plan(2, 5, 3.5, 40, 0, 1_500_000, 40, 0.25), 6, 10, 24, 11.564),
    LiveRun(Plan(2, 10, 3.5, 40, 0, 1_500_000, 40, 0.25), 22, 11, 7, 9.001),
    LiveRun(Plan(4, 1, 3.5, 40, 0, 1_500_000, 80, 0.25), 0, 0, 80, 12.871),
    LiveRun(Plan(4, 2, 3.5, 40, 0, 1_500_000, 80, 0.25), 0, 10, 70, 13.099),
    LiveRun(Plan(4, 5, 3.5, 40, 0, 1_500_000, 80, 0.25), 13, 27, 40, 12.276),
    LiveRun(Plan(4, 10, 3.5, 40, 0, 1_500_000, 80, 0.25), 24, 40, 16, 11.8),
    LiveRun(Plan(2, 1, 3.5, 30, 50, 750_000, 40, 0.25), 0, 0, 40, 10.67),
    LiveRun(Plan(2, 2, 3.5, 30, 50, 750_000, 40, 0.25), 1, 6, 33, 10.091),
    LiveRun(Plan(2, 5, 3.5, 30, 50, 750_000, 40, 0.25), 6, 9, 25, 9.616),
    LiveRun(Plan(2, 10, 3.5, 30, 50, 750_000, 40, 0.25), 21, 12, 7, 8.012),
    LiveRun(Plan(4, 1, 3.5, 30, 50, 750_000, 80, 0.25), 0, 0, 80, 11.83),
    LiveRun(Plan(4, 2, 3.5, 30, 50, 750_000, 80, 0.25), 0, 9, 71, 11.359),
    LiveRun(Plan(4, 5, 3.5, 30, 50, 750_000, 80, 0.25), 12, 27, 41, 10.653),
    LiveRun(Plan(4, 10, 3.5, 30, 50, 750_000, 80, 0.25), 25, 38, 17, 9.532),
)
FORMER: tuple[LiveRun, ...] = (  # those with small caches, before a peer said at once that it had evicted a content
    LiveRun(Plan(2, 1, 3.5, 20, 0, 750_000, 40, 0.25), 0, 0, 40, 12.019),
    LiveRun(Plan(2, 2, 3.5, 20, 0, 750_000, 40, 0.25), 2, 5, 33, 11.991),
    LiveRun(Plan(2, 5, 3.5, 20, 0, 750_000, 40, 0.25), 11, 8, 21, 12.054),
    LiveRun(Plan(2, 10, 3.5, 20, 0, 750_000, 40, 0.25), 23, 10, 7, 8.744),
    LiveRun(Plan(4, 1, 3.5, 20, 0, 750_000, 80, 0.25), 0, 0, 80, 12.329),
    LiveRun(Plan(4, 2, 3.5, 20, 0, 750_000, 80, 0.25), 2, 9, 69, 12.223),
    LiveRun(Plan(4, 5, 3.5, 20, 0, 750_000, 80, 0.25), 13, 28, 39, 18.382),
    LiveRun(Plan(4, 10, 3.5, 20, 0, 750_000, 80, 0.25), 25, 39, 16, 17.398),
    LiveRun(Plan(2, 1, 3.5, 40, 0, 1_500_000, 40, 0.25), 0, 0, 40, 12.565),
    LiveRun(Plan(2, 2, 3.5, 40, 0, 1_500_000, 40, 0.25), 2, 4, 34, 12.076),
    LiveRun(Plan(2, 5, 3.5, 40, 0, 1_500_000, 40, 0.25), 7, 11, 22, 13.095),
    LiveRun(Plan(2, 10, 3.5, 40, 0, 1_500_000, 40, 0.25), 24, 9, 7, 8.607),
    LiveRun(Plan(4, 1, 3.5, 40, 0, 1_500_000, 80, 0.25), 0, 0, 80, 12.884),
    LiveRun(Plan(4, 2, 3.5, 40, 0, 1_500_000, 80, 0.25), 0, 10, 70, 12.552),
    LiveRun(Plan(4, 5, 3.5, 40, 0, 1_500_000, 80, 0.25), 14, 28, 38, 21.043),
    LiveRun(Plan(4, 10, 3.5, 40, 0, 1_500_000, 80, 0.25), 24, 40, 16, 12.605),
    LiveRun(Plan(2, 1, 3.5, 30, 50, 750_000, 40, 0.25), 0, 0, 40, 10.661),
    LiveRun(Plan(2, 2, 3.5, 30, 50, 750_000, 40, 0.25), 2, 5, 33, 10.116),
    LiveRun(Plan(2, 5, 3.5, 30, 50, 750_000, 40, 0.25), 10, 6, 24, 13.004),
    LiveRun(Plan(2, 10, 3.5, 30, 50, 750_000, 40, 0.25), 26, 8, 6, 7.824),
    LiveRun(Plan(4, 1, 3.5, 30, 50, 750_000, 80, 0.25), 0, 0, 80, 11.725),
    LiveRun(Plan(4, 2, 3.5, 30, 50, 750_000, 80, 0.25), 0, 8, 72, 11.615),
    LiveRun(Plan(4, 5, 3.5, 30, 50, 750_000, 80, 0.25), 12, 27, 41, 11.484),
    LiveRun(Plan(4, 10, 3.5, 30, 50, 750_000, 80, 0.25), 19, 42, 19, 10.115),
)


def _wire(plan: Plan) -> Seconds:
    """What a file takes at the full rate of a host's link."""
    return plan.size * 8e-6 / plan.host_link


def calibrate(runs: Sequence[CalibrationRun]) -> Constants:
    """The constants, from runs that are not compared. Reads from home give the stretch, which peers' links have too."""
    reads = [(_wire(one.run.plan), one.storage / one.run.storage) for one in runs if one.run.storage]
    stretch, latency = linear_regression(*zip(*reads, strict=True))
    peers = [one for one in runs if one.run.peer]
    hits = [one for one in runs if one.run.local]
    waited = (
        one.run.seconds * one.run.plan.hosts / one.run.plan.tasks
        - one.run.plan.compute
        - (one.local + one.peer + one.storage) / one.run.plan.tasks
        for one in runs
    )
    return Constants(
        overhead=fmean(waited),
        local=sum(one.local for one in hits) / sum(one.run.local for one in hits),
        peer_latency=fmean(one.peer / one.run.peer - stretch * _wire(one.run.plan) for one in peers),
        storage_latency=latency,
        stretch=stretch,
    )


def predict(constants: Constants, plan: Plan, ratios: HitRatios) -> Seconds:
    """How long a workload takes: equation 6, with the cost of persistent storage under contention."""
    wire = constants.stretch * _wire(plan)
    costs = AccessCosts(
        local=constants.local,
        peer=constants.peer_latency + wire,
        storage=constants.storage_latency + wire,
        compute=plan.compute + constants.overhead,
    )
    if plan.home_link:
        occupied = constants.stretch * plan.size * 8e-6 / plan.home_link
        costs = contended_storage(costs, ratios, plan.hosts, occupied)
    return workload_time(costs, ratios, plan.tasks, plan.hosts)


def ratios_of(run: LiveRun) -> HitRatios:
    """As they were measured."""
    tasks = run.plan.tasks
    return HitRatios(run.local / tasks, run.peer / tasks, run.storage / tasks)


def compare(constants: Constants, runs: Iterable[LiveRun]) -> list[Comparison]:
    """Predictions from measured hit ratios."""
    return [Comparison(run, predict(constants, run.plan, ratios_of(run))) for run in runs]


def compare_unseen(constants: Constants, runs: Iterable[LiveRun]) -> list[Comparison]:
    """Predictions from nothing of the run, of those whose caches hold all files."""
    return [
        Comparison(run, predict(constants, run.plan, undirected_ratios(run.plan.locality, run.plan.hosts)))
        for run in runs
        if not run.plan.cache
    ]


def summary(compared: Sequence[Comparison]) -> Errors:
    """The errors of some runs."""
    sizes = [100 * abs(one.error) for one in compared]
    return Errors(fmean(sizes), median(sizes), max(sizes))


def _subject(run: LiveRun) -> str:
    plan = run.plan
    cache = f"caches of {plan.cache:g} files" if plan.cache else "caches of all files"
    link = f"{plan.host_link:g} Mbit/s a host" + (f", {plan.home_link:g} from home" if plan.home_link else "")
    return f"{plan.hosts} hosts, locality {plan.locality}, {cache}, {link}"


def run(*, quick: bool) -> StudyResult:
    """The recorded runs beside the model; a quick study has no less, it takes no time."""
    constants = calibrate(CALIBRATION)
    compared, unseen = compare(constants, RUNS), compare_unseen(constants, RUNS)
    whole, blind = summary(compared), summary(unseen)
    former = summary(compare(constants, (*(run for run in RUNS if not run.plan.cache), *FORMER)))
    shared = [one for one in compared if one.run.plan.home_link]
    alone = [one for one in compared if not one.run.plan.home_link]
    rows = [
        StudyRow("mean error", whole.mean, PUBLISHED_ERROR, "%", f"{len(compared)} runs, measured hit ratios; the "
                 f"source: 92 experiments; new measurements: {BENCH}"),
        StudyRow("mean error before a defect was put right", former.mean, PUBLISHED_ERROR, "%",
                 f"first measurement, worst {former.worst:.0f} %: peers made readers wait for what they had evicted"),
        StudyRow("median error", whole.median, unit="%"),
        StudyRow("worst error", whole.worst, unit="%"),
        StudyRow("mean error, link of each host", summary(alone).mean, unit="%", note=f"{len(alone)} runs"),
        StudyRow("mean error, link that hosts share", summary(shared).mean, unit="%", note=f"{len(shared)} runs"),
        StudyRow("mean error, predicted hit ratios", blind.mean, unit="%",
                 note=f"{len(unseen)} runs whose caches hold all files; worst {blind.worst:.1f} %"),
        StudyRow("overhead of a task", 1000 * constants.overhead, unit="ms", note="calibrated"),
        StudyRow("local read", 1000 * constants.local, unit="ms", note="calibrated"),
        StudyRow("latency of a peer", 1000 * constants.peer_latency, unit="ms", note="calibrated"),
        StudyRow("latency of home", 1000 * constants.storage_latency, unit="ms", note="calibrated"),
        StudyRow("stretch of a transfer", constants.stretch, unit="times", note="calibrated"),
    ]  # fmt: skip
    note = "ours: the model"
    rows += [
        StudyRow(_subject(one.run), one.predicted, one.run.seconds, note=note, of=Reference.MEASURED)
        for one in compared
    ]
    longest = max(max(one.predicted, one.run.seconds) for one in compared)
    curves = [Curve("as long as", [(0.0, 0.0), (longest, longest)], of=Reference.MEASURED)]
    for label, some in (("link of each host", alone), ("link that hosts share", shared)):
        curves.append(Curve(label, [(one.run.seconds, one.predicted) for one in some], dots=True))
    title = f"The model of data diffusion beside {len(compared)} live runs: mean error {whole.mean:.1f} %"
    return StudyResult(rows, [StudyFigure("model", title, "measured, seconds", "predicted, seconds", curves)])
