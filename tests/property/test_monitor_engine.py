"""The engine against an offline oracle: random series and noise, cut at any byte, judged line by line in plain code."""

import itertools
import math
import re
import statistics
import sys
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bough.executor.monitors.evaluation.engine import Engine
from bough.executor.monitors.evaluation.line_pattern import LinePattern, is_within_lines
from bough.executor.monitors.evaluation.line_reader import LONGEST, LineReader
from bough.executor.monitors.evaluation.plateau_window import PlateauWindow
from bough.model.monitoring.monitors import (
    AllOf,
    AnyOf,
    Emit,
    Finish,
    Metric,
    Monitor,
    NoAction,
    Plateau,
    Regex,
    Step,
    WatchPlan,
    check_plan,
)
from bough.model.monitoring.observations import Fired, Points

NUMBER = r"(-?[0-9.]+(?:e-?[0-9]+)?)"
SCORE = "score=" + NUMBER


def lines_of(data):
    """What lines are, in plain words."""
    return [line[:LONGEST] for line in data.splitlines()]


def pieces(data, cuts):
    """The same bytes in pieces."""
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[low:high] for low, high in itertools.pairwise(places)]


def watch(plan, data, cuts, where="stdout"):
    """All that an engine sees when it is fed in pieces."""
    check_plan(plan)
    engine = Engine(plan, 0.0)
    now, found, firings = 0.0, [], []
    for piece in pieces(data, cuts):
        now += 0.5
        engine.feed(where, piece, now)
        engine.tick(now)
        seen, fired = engine.take()
        found += seen
        firings += fired
    engine.finish(now)
    seen, fired = engine.take()
    return found + seen, firings + fired, engine


def fired_at(observations):
    return [(one.monitor, one.step, one.value, one.count) for one in observations if isinstance(one, Fired)]


def oracle_values(data, pattern=SCORE):
    found = []
    for line in lines_of(data):
        match = re.search(pattern.encode(), line)
        if match is None or not match[1]:
            continue
        try:
            value = float(match[1])
        except ValueError:
            continue
        if abs(value) <= 1e300:
            found.append(value)
    return found


def oracle_plateau(values, window, below, slope):
    """How many values it takes, and by how much it is clear at each window; 0: never."""
    for count in range(window, len(values) + 1):
        last = values[count - window : count]
        rounding = 0.0
        if slope:  # exactly: differences of huge values leave nothing or much
            twice = [2 * place - (window - 1) for place in range(window)]
            top = sum(2 * at * Fraction(value) for at, value in zip(twice, last, strict=True))
            measure = float(abs(top / sum(at * at for at in twice)))
            rounding = 16 * sys.float_info.epsilon * max(map(abs, last))
        else:
            measure = statistics.pstdev(last)
        if below and abs(measure - below) <= max(1e-12 * below, rounding):
            return None  # a tie: either answer is right
        if measure < below:
            return count
    return 0


noise = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([b"\n", b"\r", b"\r\n", b"\0\0", b"score=", b"score=nan\n", b"score=1e999\n", b"score=1.2.3\n"]),
)
scores = st.one_of(
    st.floats(-50, 50).map(lambda value: round(value, 3)),
    st.sampled_from([1.0, 1.0001, 0.9999, -33.3, 1e9, 1e-9]),
)


@st.composite
def outputs(draw):
    """What a task may write: a series that settles down, with noise in between, and no newline at its end."""
    written = []
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            written += [b"score=%r\n" % value for value in draw(st.lists(scores, max_size=8))]
        else:
            value = draw(scores)
            small = draw(st.lists(st.floats(-2e-4, 2e-4), max_size=10))
            written += [b"x score=%r y\r\n" % (value + one) for one in small]
        written.append(draw(noise))
    return b"".join(written)


cut_lists = st.lists(st.integers(0, 800), max_size=25)


@settings(max_examples=400, deadline=None)
@given(outputs(), cut_lists, st.integers(2, 8), st.sampled_from([0.0, 1e-4, 1e-2, 1.0, 1e3]), st.booleans())
def test_a_plateau_is_found_where_the_oracle_finds_it(data, cuts, window, below, slope):
    values = oracle_values(data)
    expected = oracle_plateau(values, window, below, slope)
    plan = WatchPlan((Monitor("flat", (Step(Plateau(SCORE, window, below, slope=slope)),)),))
    found, firings, engine = watch(plan, data, cuts)
    if expected is None:
        return
    fired = [one for one in found if isinstance(one, Fired)]
    assert [one.count for one in fired] == ([expected] if expected else [])
    assert engine.is_over
    points = [point for one in found if isinstance(one, Points) for point in one.points]
    seen = values[:expected] if expected else values
    assert [int(step) for step, _, _ in points] == sorted({int(step) for step, _, _ in points})
    for step, _, value in points:
        assert seen[int(step) - 1] == value  # nothing is recorded behind the line that decided
    if seen:
        told = [value for _, _, value in points]
        assert (told[0], told[-1], min(told), max(told)) == (seen[0], seen[-1], min(seen), max(seen))
    if fired:
        assert firings[0].action == Finish()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.1, 0.1, 0.1, 1e300, -1e300, 5e-324])), max_size=120),
    st.integers(2, 12),
    st.sampled_from([1e-9, 1e-3, 1.0, 1e5]),
    st.booleans(),
    st.lists(st.integers(0, 120), max_size=6),
)
@example([0.0, 1e300, 0.0, 1e300, -1e300, 1e300], 6, 1e-9, True, [])
def test_a_window_decides_as_one_that_looks_at_all_values_each_time(values, window, below, slope, cuts):
    expected = oracle_plateau([min(max(value, -1e150), 1e150) for value in values], window, below, slope)
    subject = PlateauWindow(window, below, slope=slope)
    count, found = 0, 0
    places = sorted({min(cut, len(values)) for cut in cuts} | {0, len(values)})
    for low, high in itertools.pairwise(places):
        taken = subject.take(values[low:high])
        if taken:
            found = count + taken
            break
        count += high - low
    if expected is not None:
        assert found == expected


def test_a_long_window_far_from_zero_does_not_drift():
    """A million values around a billion: sums that are carried on would lose the small ones."""
    values = [1e9 + (at * 7919 % 1000) * 1e-3 for at in range(50_000)] + [1e9 + (at % 2) * 1e-5 for at in range(2_000)]
    subject = PlateauWindow(1000, 1e-4, slope=False)
    assert subject.take(values) == 51_000
    assert subject.measure == pytest.approx(5e-6, rel=0.1)


PATTERNS = [
    r"score=(-?[0-9.]+)", r"^a", r"b$", r"^$", r"x*", r"\b", r"(\w+)\b", r"a\s*b", r"[^x]+y", r"(?s)a.*b", r"(?i)A(b)",
    r"(?<!a)b", r"a(?=b)", r"a(?!b)", r"\Aa", r"b\Z", r"\Bb", r"(a)|(b)", r"(?P<one>a)(?P<two>b)?", r"a++b", r"\x0a",
    r"(a)\1", r"[\t-z]", r"a\tb", r"a.c", r".*", r"$", r"(?m)^b", r"[ab]+?", r"(?:ab)*c", r"a\.b", "é",
]  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(PATTERNS), st.lists(st.text("ab\tcxy \0.é", max_size=8), max_size=6), st.integers(0, 5))
@example(r"x*", ["a", "", "b"], 0)
@example(r"\b", ["ab c"], 0)
def test_a_pattern_finds_in_many_lines_what_it_finds_in_each(pattern, lines, skip):
    if pattern == r"a++b" and not hasattr(re, "NOFLAG"):
        return
    subject = LinePattern(pattern)
    data = "".join(line + "\n" for line in lines).encode()
    at = sum(len(line.encode()) + 1 for line in lines[:skip])
    found = [re.search(pattern.encode(), line.encode()) for line in lines[skip:]]
    matches = [match for match in found if match is not None]
    plain = re.compile(pattern.encode())
    expected = [match.groups(b"") if plain.groups > 1 else match[plain.groups] or b"" for match in matches]
    rows = subject.rows(data, at)
    assert len(rows) == len(expected)
    if plain.groups:
        assert rows == expected
    place = at
    for line, match in zip(lines[skip:], found, strict=True):
        after = data.index(b"\n", place) + 1
        if match is not None:
            first = subject.first(data, place)
            assert first is not None
            assert first[1] == after
            assert first[0].groups() == match.groups()
        place = after
        assert data[:place].endswith(line.encode() + b"\n")


def test_common_patterns_are_held_against_many_lines_at_once():
    assert is_within_lines(r"score=(-?[0-9.]+)")
    assert is_within_lines(r"(?P<step>\d+) (?P<score>[-+.\w]+)\t$")
    for pattern in (r"a\sb", r"[^a]", r"(?s).", r"(?=a)", r"\A", r"[\t-z]", r"\n", "a\nb", r"\012", r"\W"):
        assert not is_within_lines(pattern)


@settings(max_examples=300, deadline=None)
@given(outputs(), cut_lists)
def test_lines_do_not_depend_on_the_cuts(data, cuts):
    reader = LineReader()
    found = b"".join([*(reader.feed(piece) for piece in pieces(data, cuts)), reader.end()])
    assert found == b"".join(line + b"\n" for line in lines_of(data))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 100, LONGEST - 1, LONGEST, LONGEST + 1, 3 * LONGEST]), max_size=6),
    st.lists(st.integers(0, 8 * LONGEST), max_size=8),
    st.booleans(),
)
def test_of_long_lines_only_the_beginning_is_seen(lengths, cuts, is_ended):
    data = b"\n".join(bytes([97 + place]) * length for place, length in enumerate(lengths)) + b"\n" * is_ended
    reader = LineReader()
    found = b"".join([*(reader.feed(piece) for piece in pieces(data, cuts)), reader.end()])
    assert found == b"".join(line + b"\n" for line in lines_of(data))
    assert reader.was_cut == any(length > LONGEST for length in lengths)


def oracle_steps(lines, patterns):
    """Which line each pattern of a row matches first, one after the other."""
    found, at = [], 0
    for pattern in patterns:
        while at < len(lines) and not re.search(pattern.encode(), lines[at]):
            at += 1
        if at == len(lines):
            break
        found.append(at)
        at += 1
    return found


words = st.lists(st.sampled_from(["a", "b", "c", "ab", "", "x a", "ca"]), max_size=14)


@settings(max_examples=300, deadline=None)
@given(words, st.lists(st.sampled_from(["a", "b", r"c\s*", "^a$"]), min_size=1, max_size=4), cut_lists, cut_lists)
def test_steps_watch_one_after_the_other(lines, patterns, cuts, also):
    data = "\n".join(lines).encode()
    steps = [Step(Regex("stdout", pattern), NoAction()) for pattern in patterns]
    plan = WatchPlan((Monitor("row", tuple(steps)),))
    found, firings, _ = watch(plan, data, cuts)
    expected = oracle_steps(lines_of(data), patterns)
    assert [one.step for one in found if isinstance(one, Fired)] == list(range(len(expected)))
    assert [firing.progress.lines["stdout"] for firing in firings] == [line + 1 for line in expected]


@settings(max_examples=300, deadline=None)
@given(words, cut_lists, st.integers(0, 5))
def test_an_engine_that_begins_again_repeats_nothing_and_misses_nothing(lines, cuts, upto):
    lines = lines[:9]  # more would fire too often
    data = "\n".join(lines).encode()
    row = tuple(Step(Regex("stdout", pattern), NoAction()) for pattern in ("a", "b", "c", "a"))
    often = (Step(Regex("stdout", "a"), Emit("a"), repeat=True),)
    plan = WatchPlan((Monitor("row", row), Monitor("often", often)), (Metric("()(a)", "unused"),)[:0])
    _, whole, _ = watch(plan, data, cuts)
    known = {}
    for firing in whole[:upto]:
        known[firing.progress.monitor] = firing.progress
    again = Engine(plan, 100.0, progress=known.values())
    again.feed("stdout", data, 101.0)
    again.finish(102.0)
    _, rest = again.take()
    places = [(one.progress.monitor, one.progress.step, one.progress.lines) for one in whole[:upto] + rest]
    assert sorted(map(repr, places)) == sorted(
        repr((one.progress.monitor, one.progress.step, one.progress.lines)) for one in whole
    )


@settings(max_examples=300, deadline=None)
@given(words, cut_lists, st.booleans())
def test_any_of_and_all_of(lines, cuts, of_all):
    data = "\n".join(lines).encode()
    members = (Regex("stdout", "a"), AnyOf((Regex("stdout", "b"), Regex("stdout", r"c\s*"))))
    plan = WatchPlan((Monitor("m", (Step(AllOf(members) if of_all else AnyOf(members)),)),))
    _, firings, _ = watch(plan, data, cuts)
    first = [
        next((place for place, line in enumerate(lines_of(data)) if re.search(pattern, line)), math.inf)
        for pattern in (b"a", b"b|c")
    ]
    expected = max(first) if of_all else min(first)
    assert [firing.progress.lines["stdout"] for firing in firings] == ([expected + 1] if expected < math.inf else [])


@settings(max_examples=200, deadline=None)
@given(outputs(), cut_lists, st.integers(2, 6))
def test_nothing_is_judged_behind_the_line_that_ends_the_task(data, cuts, window):
    """Whichever of two monitors fires at the earlier line wins, however the lines arrive."""
    plan = WatchPlan(
        (
            Monitor("flat", (Step(Plateau(SCORE, window, 1e-2)),)),
            Monitor("nul", (Step(Regex("stdout", "\\x00|x sc")),)),
        ),
        (Metric(SCORE, "score"),),
    )
    one, _, _ = watch(plan, data, cuts)
    other, _, _ = watch(plan, data, [])
    assert fired_at(one) == fired_at(other)
    assert len(fired_at(one)) <= 1

    def told(observations):
        return {point[::2] for seen in observations if isinstance(seen, Points) for point in seen.points}

    def last(observations):
        return max(told(observations), default=None)

    assert last(one) == last(other)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 500), st.floats(-100, 100)), max_size=60), cut_lists)
def test_metrics_with_named_groups_and_checkpoints(points, cuts):
    points = [(step, round(value, 3)) for step, value in points]
    data = "".join(f"step {step} loss {value!r} acc=1\n" for step, value in points).encode()
    pattern = r"step (?P<step>\d+) loss (?P<loss>\S+)(?: acc=(?P<acc>\d))?"
    found, _, _ = watch(WatchPlan((), (Metric(pattern, checkpoints=(100, 200)),)), data, cuts)
    loss = [point for one in found if isinstance(one, Points) and one.metric == "loss" for point in one.points]
    if points:
        assert {one.metric for one in found} == {"loss", "acc"}
    assert {(step, value) for step, _, value in loss} <= set(points)
    for checkpoint in (100, 200):
        reached = next(((step, value) for step, value in points if step >= checkpoint), None)
        assert reached is None or reached in [(step, value) for step, _, value in loss]
