"""What far tasks wrote is kept here, and results are believed only where results are kept."""

from __future__ import annotations

from pathlib import Path

from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.model.ids import SpanId
from bough.model.outcomes import Cause, Detail, Failure, ResultFile, Stream
from bough.server.task_output import KeptOutput, with_own_results


def test_short_outputs_get_a_place_here(tmp_path: Path) -> None:
    far = KeptOutput(str(tmp_path))
    first = Detail(0, stdout=Stream("/far/x1-0.out", 7, 3, b"abc"), stderr=Stream("/far/x1-0.err", 0, 2, b"no"))
    second = Detail(1, stdout=Stream("/far/x1-0.out", 10, 2, b"de"), stderr=Stream("/far/x1-0.err", 2, 1 << 20))
    ended, failed = far.kept(
        1,
        [
            WorkSucceeded(SpanId(1), 0, 1, 0.1, None, (first,)),
            WorkFailed(SpanId(1), 1, Failure(Cause.EXIT), second),
        ],
    )
    assert isinstance(ended, WorkSucceeded)
    assert isinstance(failed, WorkFailed)
    assert failed.detail is not None
    assert ended.details[0].stdout == Stream(f"{tmp_path}/x1-far.out", 0, 3)
    assert failed.detail.stdout == Stream(f"{tmp_path}/x1-far.out", 3, 2)
    assert failed.detail.stderr == Stream("/far/x1-0.err", 2, 1 << 20)  # too long: it stays where it is
    assert (tmp_path / "x1-far.out").read_bytes() == b"abcde"
    assert (tmp_path / "x1-far.err").read_bytes() == b"no"


def test_results_elsewhere_are_none() -> None:
    good = WorkSucceeded(SpanId(1), 0, 1, 0.1, ResultFile("/store/results/1.pickle", 3))
    assert with_own_results([good], "/store/results") == [good]
    for path in ("/etc/shadow", "/store/results/../token", "/store/results2/x"):
        (fact,) = with_own_results([WorkSucceeded(SpanId(1), 4, 5, 0.1, ResultFile(path, 3))], "/store/results")
        assert isinstance(fact, WorkFailed)
        assert (fact.index, fact.failure.cause) == (4, Cause.UNSENDABLE)
