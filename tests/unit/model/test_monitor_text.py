"""The short text of monitors: what each line means, what is refused, and that writing and reading are inverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.errors import BadValue, UserError
from bough.model.monitoring import monitors as m
from bough.model.monitoring.monitor_text import SIGNALS, monitor_text, name_in, read_monitor, read_plan

SCORE = r"score=(-?[0-9.]+)"


def streams(pattern: str, **options: float) -> m.AnyOf:
    return m.AnyOf((m.Regex("stdout", pattern, **options), m.Regex("stderr", pattern, **options)))


def one(name: str, condition: m.Condition, action: m.MonitorAction | None = None, repeat: bool = False) -> m.Monitor:
    return m.Monitor(name, (m.Step(condition, action or m.Finish(), repeat),))


MEANINGS = {
    f"plateau:{SCORE},25,1e-4": one("plateau", m.Plateau(SCORE, 25, 1e-4, metric="score")),
    f"plateau:{SCORE}": one("plateau", m.Plateau(SCORE, metric="score")),
    f"plateau:{SCORE},50": one("plateau", m.Plateau(SCORE, 50, metric="score")),
    f"plateau:{SCORE},7,25,1e-4": one("plateau", m.Plateau(f"{SCORE},7", 25, 1e-4, metric="score")),
    f"plateau:stderr:{SCORE},9,0.5,slope,total=300,metric=s": one(
        "plateau", m.Plateau(SCORE, 9, 0.5, "stderr", slope=True, metric="s", total=300)
    ),
    "regex:stdout:converged": one("regex", m.Regex("stdout", "converged")),
    "regex:ERROR -> fail": one("regex", streams("ERROR"), m.Fail()),
    "regex:a, b: c -> d -> finish": one("regex", streams("a, b: c -> d")),
    "regex:file:run/a.log:x:y{2,3}": one("regex", m.Regex("run/a.log", "x:y{2,3}")),
    "regex:E=([-0-9.]+),below=-5": one("regex", streams("E=([-0-9.]+)", below=-5.0)),
    "done=regex:stderr:E=(.*),below=2,above=1 -> tag near": one(
        "done", m.Regex("stderr", "E=(.*)", below=2.0, above=1.0), m.AddTag("near")
    ),
    "regex:p->next": one("regex", streams("p->next")),
    "created:done.flag": one("created", m.FileCreated("done.flag")),
    "created:a,b:c": one("created", m.FileCreated("a,b:c")),
    "after:1h -> fail": one("after", m.After(3600.0), m.Fail()),
    "after:1:30:00 -> fail too slow": one("after", m.After(5400.0), m.Fail("too slow")),
    "after:2s -> fail grace=1min too slow": one("after", m.After(2.0), m.Fail("too slow", 60.0)),
    "silent:10min -> restart 3": one("silent", m.Silent(600.0), m.Restart(3)),
    "silent:stdout:5s -> restart": one("silent", m.Silent(5.0, "stdout"), m.Restart(1)),
    "silent:file:run.log:5s -> restart 2 grace=1s": one("silent", m.Silent(5.0, "run.log"), m.Restart(2, 1.0)),
    "memory:4GB -> fail": one("memory", m.Memory(4_000_000_000), m.Fail()),
    "exec:./check.sh": one("exec", m.Executable("./check.sh")),
    "exec:test -s a,b,every=5s,timeout=1min": one("exec", m.Executable("test -s a,b", 5.0, 60.0)),
    "after:1s -> signal USR1": one("after", m.After(1.0), m.SendSignal(10)),
    "after:1s -> signal SIGTERM": one("after", m.After(1.0), m.SendSignal(15)),
    "after:1s -> signal 34": one("after", m.After(1.0), m.SendSignal(34)),
    "regex:best (.*) -> repeat emit best": one("regex", streams("best (.*)"), m.Emit("best"), repeat=True),
    "regex:x -> none": one("regex", streams("x"), m.NoAction()),
    "after:0 -> finish grace=0": one("after", m.After(0.0), m.Finish(0.0)),
    "silent:10min or memory:4GB -> restart 3": one(
        "any", m.AnyOf((m.Silent(600.0), m.Memory(4_000_000_000))), m.Restart(3)
    ),
    "both=created:a and regex:stdout:b": one("both", m.AllOf((m.FileCreated("a"), m.Regex("stdout", "b")))),
    "created:a and after:1s or regex:b or after:1h -> fail": one(
        "any", m.AnyOf((m.AllOf((m.FileCreated("a"), m.After(1.0))), streams("b"), m.After(3600.0))), m.Fail()
    ),
    "regex:ready then after:1h -> fail": m.Monitor(
        "regex", (m.Step(streams("ready"), m.NoAction()), m.Step(m.After(3600.0), m.Fail()))
    ),
    "slow=regex:a -> b -> tag warm then created:x or after:1h -> emit it then silent:5s": m.Monitor(
        "slow",
        (
            m.Step(streams("a -> b"), m.AddTag("warm")),
            m.Step(m.AnyOf((m.FileCreated("x"), m.After(3600.0))), m.Emit("it")),
            m.Step(m.Silent(5.0)),
        ),
    ),
    "regex:this or that: and then some": one("regex", streams("this or that: and then some")),
    "exec:test -s a && test -s b or test -s c,every=5s": one(
        "exec", m.Executable("test -s a && test -s b or test -s c", 5.0)
    ),
    "regex:this or[ ]after:that": one("regex", streams("this or[ ]after:that")),
    "reported:score,below=-5 -> fail": one("reported", m.Regex("reported", "^score=(.*)", below=-5.0), m.Fail()),
    "reported:a.b": one("reported", m.Regex("reported", r"^a\.b=(.*)")),
    "plateau:reported:score,25,1e-4": one("plateau", m.Plateau("^score=(.*)", 25, 1e-4, "reported", metric="score")),
    "plateau:reported: score=(.*),9": one("plateau", m.Plateau("reported: score=(.*)", 9, metric="score")),
    "silent:reported:1min -> restart": one("silent", m.Silent(60.0, "reported"), m.Restart()),
    "metric:score=([-0-9.]+)": m.Metric("score=([-0-9.]+)", "score"),
    "energy=metric:stderr:a -> ([0-9]+),total=9,at=3/6": m.Metric("a -> ([0-9]+)", "energy", "stderr", 9, (3, 6)),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_each_line_means_what_its_document_says(text: str) -> None:
    assert read_monitor(text) == MEANINGS[text]
    assert read_monitor(monitor_text(MEANINGS[text])) == MEANINGS[text]


REFUSED = {
    "": "begins with a kind",
    "plateau": "begins with a kind",
    "platoe:x=(.)": "did you mean plateau?",
    "custom:f": "said in Python",
    "regex:(": "no regular expression",
    "regex:": "its pattern is ''",
    "plateau:score": "needs exactly one group",
    f"plateau:{SCORE},25,1e-4x": "'1e-4x' is not a number",
    f"plateau:{SCORE},2.5,1e-4": "the window is '2.5'; it must be a whole number",
    f"plateau:{SCORE},1,1e-4": "the window is 1",
    f"plateau:{SCORE},25,-1": "the limit is -1",
    "regex:x=1,below=2": "needs a group",
    "regex:x=(.),below=two": "below is 'two'; it must be a number",
    "regex:file:a": "file:PATH:",
    "regex:x -> fial": "no action",
    "regex:x ->fail": "a space on both sides",
    "regex:x -> signal USR7": "no signal",
    "regex:x -> restart 0": "number of restarts is 0",
    "regex:x -> repeat fail": "it cannot repeat",
    "regex:x -> tag": "no action",
    "after:soon": "the time is 'soon'",
    "after:-1s": "the time is -1",
    "after:nan": "the time is nan",
    "silent:0s": "above 0",
    "memory:lots": "the memory is 'lots'",
    "created:": "names no file",
    "created:a\0b": "without NUL",
    "exec:": "no command",
    "exec:x,every=1ms": "every is 0.001",
    "metric:score": "needs one group",
    "regex:\udc80": "valid Unicode",
    "regex:" + "x" * 5000: "4096",
    "regex:" + "x" * 100_000: "80000 characters",
    "any:x": "silent:10min or memory:4GB",
    "regex:a -> fail or after:1h": "its action stands at the end",
    "regex:a or aftr:1h": "did you mean after?",
    "regex:a or late=after:1h": "only the whole has a name",
    "metric:x=(.) or after:1h": "no part of others",
    "after:1h and metric:x=(.)": "no part of others",
    "regex:a then after:1h ->fail": "a space on both sides",
    "regex:a -> fail then after:1h": "must be the last one",
    "regex:a -> repeat finish then after:1h": "cannot repeat",
    " or ".join(["after:1h"] * 17): "17 conditions in one; 16 are possible",
    " then ".join(["after:1h"] * 17): "17 steps; 16 are possible",
    "regex:( or after:1h": "no regular expression",
    "after:1h or ": "the time is '1h or '",
    "reported:": "the metric is ''",
    "reported:x,below=two": "below is 'two'",
    "plateau:reported:x,25,1e-4,metric=y": "named twice",
    "plateau:reported:,25": "the metric is ''",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_is_said_in_one_line(text: str) -> None:
    with pytest.raises(BadValue) as refused:
        read_monitor(text)
    said = str(refused.value)
    assert REFUSED[text] in said
    assert said.startswith("monitor ")
    assert "\n" not in said


def test_a_metric_is_called_as_the_word_before_its_group() -> None:
    for pattern, name in {
        "score=(.*)": "score",
        r"Total energy:\s+([-0-9.]+)": "energy",
        r"loss +(\d+)": "loss",
        r"\dscore(.)": "value",
        "(.*)": "value",
        "(?P<gap>.*)": "gap",
        "(?:step) n=(.)": "n",
        r"f\(x\) = (.)": "value",
    }.items():
        assert name_in(pattern) == name, pattern


def test_monitors_of_one_plan_have_names_of_their_own() -> None:
    plan = read_plan(["regex:a", "regex:b", "metric:x=(.)", "after:1s", "regex:c"])
    assert [monitor.name for monitor in plan.monitors] == ["regex", "regex-2", "after", "regex-3"]
    assert len(plan.metrics) == 1
    with pytest.raises(BadValue, match="at most 64"):
        read_plan(["regex:a"] * 65)


def test_what_has_no_text_is_not_written() -> None:
    for condition in (
        m.Custom(b"function"),
        m.Regex("stdout", "x", b"when"),
        m.AllOf((m.After(1.0),)),
        m.AnyOf((m.After(1.0),)),
        m.Regex("a:b", "x"),
        m.Regex("stdout", "x=(.),below=3"),
        m.AllOf((m.After(1.0), m.AnyOf((m.After(2.0), m.Memory(5))))),
        m.AnyOf((m.AnyOf((m.After(2.0), m.Memory(5))), m.After(1.0))),
        m.AnyOf((m.Custom(b"function"), m.After(1.0))),
        m.Regex("stdout", "this or after:that"),
    ):
        with pytest.raises(UserError, match="say it in Python"):
            monitor_text(one("it", condition))
    two = m.Monitor("regex", (m.Step(m.Custom(b"function"), m.NoAction()), m.Step(streams("y"))))
    with pytest.raises(UserError, match="say it in Python"):
        monitor_text(two)


# --- for all monitors, and for all texts -------------------------------------------------------------

words = st.text(st.sampled_from("ab,:=-> 1.(stdouterfil)[]\\"), min_size=1, max_size=12)
patterns = st.one_of(words, words.map(lambda word: f"x=({word})"), st.text(min_size=1, max_size=20))
places = st.one_of(st.sampled_from(["stdout", "stderr"]), words)
times = st.one_of(st.integers(1, 10**6).map(float), st.floats(0.05, 86400))
finite = st.one_of(st.none(), st.floats(-1e300, 1e300))
conditions = st.one_of(
    st.builds(m.Regex, places, patterns, st.just(b""), finite, finite),
    st.builds(streams, patterns),
    st.builds(m.FileCreated, words),
    st.builds(m.Executable, words, st.floats(0.05, 86400), times.filter(lambda time: time <= 86400)),
    st.builds(
        m.Plateau, patterns, st.integers(2, 1000), st.floats(0, 1e300), places, st.booleans(), words, st.integers(0, 9)
    ),
    st.builds(m.After, times),
    st.builds(m.Memory, st.integers(0, 1 << 62)),
    st.builds(m.Silent, times, st.one_of(places, st.sampled_from(["", "reported"]))),
    st.builds(lambda name, low: m.Regex("reported", m.reported_pattern(name), b"", low), words, finite),
    st.builds(lambda name: m.Plateau(m.reported_pattern(name), where="reported", metric=name), words),
)
actions = st.one_of(
    st.builds(m.Finish, times),
    st.builds(m.Fail, words, times),
    st.builds(m.Restart, st.integers(1, 1000), times),
    st.builds(m.SendSignal, st.integers(1, 64)),
    st.builds(m.AddTag, words),
    st.builds(m.Emit, words),
    st.just(m.NoAction()),
)
each = st.one_of(conditions, st.builds(m.AllOf, st.lists(conditions, min_size=2, max_size=3).map(tuple)))
combined = st.one_of(each, st.builds(m.AnyOf, st.lists(each, min_size=2, max_size=3).map(tuple)))
steps = st.builds(m.Step, combined, actions, st.booleans())
monitors = st.one_of(
    st.builds(lambda name, made: m.Monitor(name, tuple(made)), words, st.lists(steps, min_size=1, max_size=3)),
    st.builds(m.Metric, patterns, words, places, st.integers(0, 1 << 62), st.tuples(st.integers(0, 99))),
)


@given(monitors)
def test_what_is_written_reads_as_the_same(item: m.Monitor | m.Metric) -> None:
    try:
        text = monitor_text(item)
    except UserError:
        return
    assert read_monitor(text) == item
    assert monitor_text(read_monitor(text)) == text


whole = [
    one("x", m.After(1.0)).steps[0],
    m.Step(m.FileCreated("a b"), m.AddTag("now or never")),
    m.Step(streams("E=(.*)", below=2.0), m.Emit("best"), repeat=True),
    m.Step(m.AllOf((m.FileCreated("a"), m.Memory(1000))), m.NoAction()),
    m.Step(m.AnyOf((m.AllOf((streams("x"), m.Silent(5.0))), m.Executable("test -s a"), m.After(7.0))), m.NoAction()),
]


@given(st.lists(st.sampled_from(whole[1:]), max_size=4), st.sampled_from(whole))
def test_what_has_a_text_keeps_it_in_a_row_of_steps(before: list[m.Step], last: m.Step) -> None:
    item = m.Monitor("row", (*before, last))
    assert read_monitor(monitor_text(item)) == item


plain = st.text(st.sampled_from("abcxyz(),.:=+*[]{}0123456789<> "), min_size=1, max_size=20).filter(
    lambda text: not text.startswith(("stdout:", "stderr:", "file:"))
)


@given(plain, st.integers(2, 99), st.floats(0, 1))
def test_a_plateau_keeps_any_pattern_before_its_two_numbers(pattern: str, window: int, below: float) -> None:
    item = one("plateau", m.Plateau(f"({pattern.replace('(', '').replace(')', '')})", window, below))
    try:
        m.check_plan(m.plan_of([item]))
    except UserError:
        return
    assert read_monitor(monitor_text(item)) == item


@given(st.sampled_from(["regex:", "plateau:x=(.)", "after:", "metric:", "exec:", "memory:", "silent:", ""]), st.data())
def test_any_text_is_a_monitor_or_a_clear_error(begin: str, data: st.DataObject) -> None:
    joint = st.sampled_from([" or ", " and ", " then ", " or after:", " then regex:", " and x=silent:", " -> fail"])
    parts = st.lists(st.one_of(words, joint, st.text(max_size=40)), min_size=1, max_size=4)
    text = begin + "".join(data.draw(parts))
    try:
        item = read_monitor(text)
    except BadValue as error:
        said = str(error)
    else:
        said = ""
        m.decode_plan(m.encode_plan(m.plan_of([item])))  # whatever is read can be sent, and read back
    assert "\n" not in said


def test_signals_are_numbered_as_the_system_numbers_them() -> None:
    import signal

    assert {name: getattr(signal, f"SIG{name}") for name in SIGNALS} == dict(SIGNALS)
