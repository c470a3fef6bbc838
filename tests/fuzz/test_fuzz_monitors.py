"""Hostile plans and hostile bytes: whatever is decoded and watched, only `BadValue` comes out, and bounded news."""

from __future__ import annotations

import random

import msgspec

from bough.errors import BadValue
from bough.executor.monitors.evaluation.engine import MOST_A_SECOND, Engine
from bough.model.events.news import WorkObserved
from bough.model.monitoring.monitors import WatchPlan, decode_plan, encode_plan, places_followed
from bough.model.monitoring.observations import MOST_OBSERVATIONS, Fired
from tests.fuzz.messages import hostile, valid

PATTERNS = (
    "a", "(a)", "([0-9.]+)", "score=(-?[0-9.]+)", "(", "[", "(?P<step>\\d+) (?P<x>\\S+)", ".*", "x*", "(?i)A(b)?", "\\",
    "", "(a)(b)", "(?P<a>a)|(?P<b>b)", "^$", "\\b", "é", "(\\w*)", "(?<=a)b", "a{1,100000000}", "(?P<step>x)",
    "[^\\n]*(.)",
)  # fmt: skip
KNOWN = {
    "pattern": PATTERNS,
    "where": ("stdout", "stdout", "stderr", "log", "", "reported"),
    "when": (b"", b"", b"\x80junk", b"cposix\n_no_such\n."),
    "window": (2, 3, 5),
    "seconds": (0.0, 0.01, 1.0, 1e14),
    "path": ("x", "log"),
    "below": (None, 0.0, 1e-4, 1e300),
}
WRITTEN = (
    b"score=1.5\n", b"score=nan\n", b"\0\0\n", b"a" * 70_000, b"\r", b"\n", b"\xff\xfe", b"1 2\n", b"ab",
    b"score=1e400\n", b"x" * 300 + b"\n", b"9" * 400 + b"\n", b"-", b"b\r\n",
)  # fmt: skip


def test_bytes_that_are_no_plan_are_refused() -> None:
    dice = random.Random(14)
    read = refused = 0
    for _ in range(3_000):
        match dice.randrange(3):
            case 0:
                data = dice.randbytes(dice.randrange(60))
            case 1:
                data = msgspec.msgpack.encode(hostile(WatchPlan, dice, KNOWN))
            case _:
                data = bytearray(encode_plan(valid(WatchPlan, dice, KNOWN)))
                for _ in range(dice.randrange(3)):
                    data[dice.randrange(len(data))] = dice.randrange(256)
        try:
            decode_plan(bytes(data))
            read += 1
        except BadValue:
            refused += 1
    assert read > 50
    assert refused > 50


def test_engines_take_any_plan_and_any_bytes() -> None:
    dice = random.Random(41)
    plans = 0
    for _ in range(1_500):
        plan = valid(WatchPlan, dice, KNOWN)
        try:
            decode_plan(encode_plan(plan))
        except BadValue:
            continue
        plans += 1
        engine, now, fired = Engine(plan, 0.0), 0.0, 0
        places = [*sorted(places_followed(plan)), "stdout", "stderr"]
        for _ in range(30):
            now += dice.choice((0.0, 0.01, 0.3))
            _tell_something(engine, places, now, dice)
            fired += _check(engine)
        engine.finish(now, {"log", "reported"})
        fired += _check(engine)
        assert engine.is_over
        assert fired <= sum(len(one.steps) for one in plan.monitors) + (now + 1) * MOST_A_SECOND
    assert plans > 200


def _tell_something(engine: Engine, places: list[str], now: float, dice: random.Random) -> None:
    match dice.randrange(8):
        case 0:
            engine.tick(now)
        case 1:
            for path in engine.awaited_files():
                engine.appeared(path, now)
        case 2:
            engine.memory_is(dice.choice((0, 1 << 40)), now)
        case 3:
            for ask in engine.asks():
                engine.said_yes(ask, dice.choice((None, 1.0)), "yes", now)
        case 4:
            engine.end_of(dice.choice(places), now)
        case _:
            engine.feed(dice.choice(places), b"".join(dice.choices(WRITTEN, k=4)), now)


def _check(engine: Engine) -> int:
    """What comes out can be sent, and is what was sent when it arrives; how often something fired."""
    observations, firings = engine.take()
    for at in range(0, len(observations), MOST_OBSERVATIONS):
        news = WorkObserved(1, 0, observations[at : at + MOST_OBSERVATIONS])
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(news), type=WorkObserved) == news
    assert [firing.fired for firing in firings] == [seen for seen in observations if isinstance(seen, Fired)]
    return len(firings)
