"""How pilots are given to a site: in bulk, with back-off, and each for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bough.errors import SiteError, SiteFull
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.server.service.sites.pilot_submission import Outcome, PilotSubmission


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bulk:
    """A kind that takes several; `answers`: what it says of a pilot, in turn, otherwise it takes it."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[int, list[Any]] = {int(name[1:]): list(said) for name, said in answers.items()}
        self.calls: list[list[int]] = []

    async def submit_many(self, pilots: Sequence[PilotId], seconds: float) -> Mapping[PilotId, str | SiteError]:
        self.calls.append(list(pilots))
        found: dict[PilotId, str | SiteError] = {}
        for pilot in pilots:
            said = self.answers.get(pilot)
            found[pilot] = said.pop(0) if said else f"job-{pilot}"
            if isinstance(found[pilot], SiteFull):
                break
        return found


class OneByOne:
    """A kind without `submit_many`."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    async def submit(self, pilot: PilotId) -> str:
        self.calls.append(pilot)
        if pilot == 2:
            raise SiteError("no such partition")
        if pilot == 3:
            raise ValueError("a bug")
        return f"job-{pilot}"


def submit(submission: PilotSubmission, kind: Any, *pilots: int) -> Outcome:
    """One look."""
    return asyncio.run(submission.submit(kind, [PilotId(pilot) for pilot in pilots]))


def made(clock: Clock, rate: float = 1e6, unsure: Sequence[int] = ()) -> PilotSubmission:
    """At a site that wants no more than so many a second."""
    return PilotSubmission("a", SiteSpec(submit_rate=rate), clock, [PilotId(pilot) for pilot in unsure])


def test_several_go_in_one_errand_as_many_as_the_rate_allows() -> None:
    kind, clock = Bulk(), Clock()
    came = submit(made(clock), kind, *range(1, 6))
    assert came.taken == {pilot: f"job-{pilot}" for pilot in range(1, 6)}
    assert kind.calls == [[1, 2, 3, 4, 5]]
    slow = Bulk()
    submit(made(clock, rate=2), slow, *range(1, 100))
    assert slow.calls == [[1, 2, 3, 4]]  # in two seconds
    slower = Bulk()
    submit(made(clock, rate=0.1), slower, *range(1, 100))
    assert slower.calls == [[1]]


def test_what_is_refused_concerns_itself_alone() -> None:
    kind, clock = Bulk(p2=[SiteError("no such partition")]), Clock()
    submission = made(clock)
    came = submit(submission, kind, 1, 2, 3)
    assert came == Outcome({PilotId(1): "job-1", PilotId(3): "job-3"}, {PilotId(2): "no such partition"}, [])
    assert submission.pause([PilotId(4)]) == 0.0


def test_a_kind_that_takes_one_at_a_time_is_served_all_the_same() -> None:
    kind, clock = OneByOne(), Clock()
    came = submit(made(clock), kind, 1, 2, 3, 4)
    assert came.taken == {1: "job-1", 4: "job-4"}
    assert came.failed == {2: "no such partition", 3: "something unexpected went wrong: ValueError('a bug')"}
    assert not came.given_up


def test_a_full_site_rests_longer_each_time_and_is_tried_with_one() -> None:
    kind, clock = Bulk(p3=[SiteFull("full")] * 7), Clock()
    submission = made(clock)
    came = submit(submission, kind, 1, 2, 3, 4, 5)
    assert came == Outcome({PilotId(1): "job-1", PilotId(2): "job-2"}, {}, [])
    assert submission.full == "full"
    left = [PilotId(pilot) for pilot in (3, 4, 5)]
    pauses = []
    for _ in range(6):
        pause = submission.pause(left)
        assert pause
        pauses.append(pause)
        assert submit(submission, kind, *left) == Outcome({}, {}, ())  # it rests
        clock.now += pause
        assert submit(submission, kind, *left) == Outcome({}, {}, [])
    assert pauses == [1.0, 2.0, 5.0, 10.0, 30.0, 30.0]
    assert [len(call) for call in kind.calls[1:]] == [1] * 6
    submission.make_room()  # one has ended
    assert submission.pause(left) == 0.0
    assert submit(submission, kind, *left).taken == {3: "job-3", 4: "job-4", 5: "job-5"}
    assert not submission.full


def test_what_was_perhaps_taken_is_tried_again_later_and_given_up_in_the_end() -> None:
    kind, clock = Bulk(p1=[SiteError("no answer", transient=True)] * 9), Clock()
    submission = made(clock)
    came = Outcome({}, {}, [])
    for tries in range(1, 10):
        assert not came.failed
        came = submit(submission, kind, 1)
        assert submission.is_unsure(PilotId(1)) == (tries < 9)
        clock.now += submission.pause([PilotId(1)]) or 0.0
    assert came == Outcome({}, {PilotId(1): "no answer"}, [PilotId(1)])
    assert len(kind.calls) == 9


def test_an_errand_that_breaks_off_leaves_all_of_it_unsure_and_the_next_finds_them() -> None:
    class Broken(Bulk):
        async def submit_many(self, pilots: Sequence[PilotId], seconds: float) -> Mapping[PilotId, str | SiteError]:
            if not self.calls:
                self.calls.append(list(pilots))
                raise OSError("the line is dead")
            return await super().submit_many(pilots, seconds)

    kind, clock = Broken(), Clock()
    submission = made(clock)
    assert submit(submission, kind, 1, 2) == Outcome({}, {}, [])
    assert submission.is_unsure(PilotId(1))
    assert submission.is_unsure(PilotId(2))
    clock.now += submission.pause([PilotId(1), PilotId(2)]) or 0.0
    assert submit(submission, kind, 1, 2).taken == {1: "job-1"}  # one first
    assert submit(submission, kind, 2).taken == {2: "job-2"}
    assert not submission.is_unsure(PilotId(1))


def test_what_a_server_before_has_left_is_unsure_until_nobody_wants_it() -> None:
    submission = made(Clock(), unsure=[7])
    assert submission.is_unsure(PilotId(7))
    submission.keep_only([PilotId(8)])
    assert not submission.is_unsure(PilotId(7))
    assert submission.pause([]) is None
