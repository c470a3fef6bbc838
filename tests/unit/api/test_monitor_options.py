"""bough.monitors: what each object becomes, what is refused when it is made, and what counts for memo keys."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import bough
from bough import monitors
from bough.api.submit.group_table import WatchedGroups
from bough.api.submit.task_options.monitor_options import Watching, read_monitors
from bough.api.submit.task_options.options import DEFAULTS, read_options
from bough.errors import BadValue, NotPicklable
from bough.model.ids import MemoKey
from bough.model.monitoring import monitors as m
from bough.model.monitoring.monitor_text import read_monitor

KEY = MemoKey(b"k" * 16)


def made(given: object) -> m.WatchPlan:
    found = read_monitors(given)
    assert found is not None
    return m.decode_plan(found.data)


def only(given: monitors.Monitor) -> m.Step:
    [monitor] = made([given]).monitors
    [step] = monitor.steps
    return step


def test_each_kind_becomes_its_condition() -> None:
    assert only(monitors.Regex("stderr", "E=(.)", below=2)).condition == m.Regex("stderr", "E=(.)", below=2)
    assert only(monitors.FileCreated("done.flag")).condition == m.FileCreated("done.flag")
    assert only(monitors.Executable("./check.sh", "2s", 5)).condition == m.Executable("./check.sh", 2, 5)
    assert only(monitors.After("1h")).condition == m.After(3600)
    assert only(monitors.Memory("4GB")).condition == m.Memory(4 * 10**9)
    assert only(monitors.Silent("10min", "run.log")).condition == m.Silent(600, "run.log")
    plateau = monitors.Plateau("score=(.)", 9, 0.5, slope=True, total=300)
    assert only(plateau).condition == m.Plateau("score=(.)", 9, 0.5, slope=True, metric="score", total=300)
    both = (monitors.After(1), monitors.Memory(5))
    assert only(monitors.any_of(*both)).condition == m.AnyOf((m.After(1), m.Memory(5)))
    assert only(monitors.all_of(*both)).condition == m.AllOf((m.After(1), m.Memory(5)))
    metric = monitors.Metric("loss (.)", total=3, at=[1, 2])
    assert made(metric).metrics == (m.Metric("loss (.)", "loss", total=3, checkpoints=(1, 2)),)


def test_the_action_is_said_beside_it() -> None:
    for do, action in {
        None: m.Finish(),
        "finish": m.Finish(),
        "fail": m.Fail(),
        "restart": m.Restart(1),
        "restart 3": m.Restart(3),
        "signal USR1": m.SendSignal(10),
        monitors.Signal("USR1"): m.SendSignal(10),
        monitors.Tag("hot"): m.AddTag("hot"),
        monitors.Emit("best"): m.Emit("best"),
        monitors.Fail("too slow"): m.Fail("too slow"),
    }.items():
        assert only(monitors.After(1, do=do)).action == action
    assert only(monitors.Regex("stdout", "x", do="emit", repeat=True)).repeat
    assert only(monitors.Regex("stdout", "x", do="repeat emit")).repeat


def test_a_text_stands_for_a_monitor_and_names_are_made_different() -> None:
    plan = made(["regex:ERROR -> fail", "regex:x", monitors.After(1, name="late"), monitors.After(2)])
    assert [monitor.name for monitor in plan.monitors] == ["regex", "regex-2", "late", "after"]
    assert plan.monitors[0] == read_monitor("regex:ERROR -> fail")


def test_then_makes_steps_of_which_only_the_last_one_ends_the_task() -> None:
    chain = monitors.Regex("stdout", "warm").then(monitors.After("10s", do="tag hot")).then(monitors.After(5))
    [monitor] = made(chain).monitors
    assert monitor.name == "regex"
    assert [type(step.action) for step in monitor.steps] == [m.NoAction, m.AddTag, m.Finish]
    with pytest.raises(BadValue, match="must be the last"):
        monitors.After(1, do="fail").then(monitors.After(2))
    long: monitors.Monitor = monitors.After(1)
    for _ in range(m.MOST_STEPS - 1):
        long = long.then(monitors.After(1))
    with pytest.raises(BadValue, match="steps"):
        long.then(monitors.After(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: monitors.Regex("stdout", "("), "no regular expression"),
        (lambda: monitors.Plateau("score"), "needs exactly one group"),
        (lambda: monitors.Regex("stdout", "x", below=1), "needs a group"),
        (lambda: monitors.Metric("score"), "needs one group"),
        (lambda: monitors.Plateau("(.)", window=1), "window is 1"),
        (lambda: monitors.Plateau("(.)", below=-1), "below is -1"),
        (lambda: monitors.After("soon"), "time is 'soon'"),
        (lambda: monitors.Silent(0), "above 0"),
        (lambda: monitors.Memory("much"), "above is 'much'"),
        (lambda: monitors.FileCreated(""), "path is empty"),
        (lambda: monitors.Custom(3), "give a function"),  # type: ignore[arg-type]
        (lambda: monitors.Executable("x", every=0), "every is 0"),
        (lambda: monitors.After(1, do="explode"), "no action"),
        (lambda: monitors.After(1, do=3), "do is 3"),  # type: ignore[arg-type]
        (lambda: monitors.After(1, do=monitors.Restart(0)), ">= 1"),
        (lambda: monitors.Regex("stdout", "x", repeat=True), "cannot repeat"),
        (lambda: monitors.Signal("USR9"), "no signal"),
        (monitors.any_of, "at least one"),
        (lambda: monitors.any_of(monitors.After(1, do="fail")), "say its action there"),
        (lambda: monitors.any_of("x"), "takes monitors"),  # type: ignore[arg-type]
        (lambda: monitors.After(1).then("x"), "takes monitors"),  # type: ignore[arg-type]
        (lambda: monitors.After(1, name=""), "name is ''"),
        (lambda: read_monitors(3), "monitors is 3"),
        (lambda: read_monitors([3]), "monitors holds 3"),
        (lambda: read_monitors("regex:("), "no regular expression"),
        (lambda: read_monitors(["after:1s"] * 65), "at most 64"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(BadValue) as refused:
        make()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_function_that_cannot_be_shipped_is_refused_by_name() -> None:
    lock = threading.Lock()
    with pytest.raises(NotPicklable, match=r"a monitor's function .*lock"):
        read_options(DEFAULTS, {"monitors": monitors.Custom(lambda task: lock)})
    data = b"x" * (m.MOST_FUNCTION + 1)
    with pytest.raises(BadValue, match="bytes"):
        read_monitors(monitors.Custom(lambda task: data))


def test_functions_travel_as_pickles() -> None:
    limit = 3.0
    plan = made(monitors.Regex("stdout", "E=(.*)", when=lambda groups: float(groups[0]) < limit))
    condition = plan.monitors[0].steps[0].condition
    assert isinstance(condition, m.Regex)
    when: Callable[[Any], object] = pickle.loads(condition.when)
    assert when(("2",))
    assert not when(("4",))


# --- memo keys ---------------------------------------------------------------------------------------


def watching(*given: object) -> Watching | None:
    return read_options(DEFAULTS, {"monitors": list(given)}).watching


def test_what_monitors_say_counts_for_the_memo_key_and_functions_by_their_content() -> None:
    def key(*given: object) -> bytes | None:
        found = watching(*given)
        return None if found is None else found.key

    def below(limit: float) -> Callable[[Any], bool]:
        return lambda groups: float(groups[0]) < limit

    assert key("after:1h") == key("after:1h") == key(monitors.After("1h"))
    assert key("after:1h") != key("after:2h")
    assert key("after:1h") != key("after:1h -> fail")
    assert key("after:1h", "memory:1GB") != key("memory:1GB", "after:1h")
    same = [key(monitors.Regex("stdout", "(.)", when=below(1))) for _ in range(2)]
    assert same[0] == same[1] is not None
    assert same[0] != key(monitors.Regex("stdout", "(.)", when=below(2)))
    assert watching() is None


def test_a_key_without_monitors_stays_as_it_is_and_groups_count_too() -> None:
    groups = WatchedGroups()
    assert groups.watched_key(KEY, 1, None) == KEY
    own = watching("after:1h")
    watched = groups.watched_key(KEY, 1, own)
    assert watched not in {KEY, b""}
    assert groups.watched_key(None, 1, own) == b""
    groups.watch(1, 0, watching("memory:1GB"))
    groups.watch(2, 1, None)
    groups.watch(3, 1, watching("memory:2GB"))
    keys = {groups.watched_key(KEY, group, None) for group in (0, 1, 2, 3)}
    assert len(keys) == 3  # a group below has what watches the one around it
    assert groups.watched_key(KEY, 1, None) == groups.watched_key(KEY, 2, None)
    assert groups.watched_key(KEY, 1, own) not in {watched, *keys}
    assert groups.watch_keys.get(0) is None


def test_what_has_no_digest_is_not_reused() -> None:
    class Odd:
        def __call__(self, task: object) -> bool:
            return bool(self)

        def __reduce__(self) -> tuple[object, ...]:
            return Odd, ()

    groups = WatchedGroups()
    odd = read_monitors(monitors.Custom(Odd()))
    assert odd is not None
    if odd.key is None:
        assert groups.watched_key(KEY, 1, odd) == b""
    without = Watching((), odd.id, odd.data, None)
    assert groups.watched_key(KEY, 1, without) == b""
    groups.watch(1, 0, without)
    groups.watch(2, 1, watching("after:1s"))
    assert groups.watched_key(KEY, 2, None) == b""


def test_options_on_top_of_others_watch_in_addition() -> None:
    base = read_options(DEFAULTS, {"monitors": ["after:1h"]})
    both = read_options(base, {"monitors": ["memory:1GB"], "cores": 2})
    assert both.watching is not None
    assert [item.name for item in both.watching.items] == ["after", "memory"]
    assert both.extras.watch == both.watching.id
    assert read_options(both, {"final": True}).extras.watch == both.watching.id
    assert read_options(DEFAULTS, {"cores": 2}).extras.watch == b""


def test_it_is_loaded_when_it_is_first_used() -> None:
    check = "import sys, bough; assert 'bough.monitors' not in sys.modules; bough.monitors.After(1); bough.EndedEarly"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
    assert bough.monitors is monitors
