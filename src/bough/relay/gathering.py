"""Many small pieces of news of a few milliseconds become few.

Rule: what was said with results, and whatever is no start and no end, stays as it is and in its order; only starts, and
ends, of neighbouring elements of one array that run on one host become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from bough.model.facts import SpanEnded, SpanStarted
from bough.wire.reports import News

_start = attrgetter("start")
_MOST_WRITTEN = 4 << 20  # bytes that tasks wrote, in one piece of news that was made of several


def gather(news: Sequence[News]) -> list[News]:
    """The same news, with neighbouring starts and ends as one, in the place of the first of them."""
    if len(news) < 2:
        return list(news)
    places: list[News | list[SpanEnded] | list[SpanStarted]] = []
    alike: dict[tuple[object, ...], list[SpanEnded] | list[SpanStarted]] = {}
    for one in news:
        kind = type(one)
        if kind is not SpanStarted and (kind is not SpanEnded or one.results is not None):  # type: ignore[union-attr]
            places.append(one)
            continue
        key = (kind, one.span, one.host)  # type: ignore[union-attr]
        found = alike.get(key)
        if found is None:
            found = alike[key] = []
            places.append(found)
        found.append(one)  # type: ignore[arg-type]
    said: list[News] = []
    for place in places:
        if type(place) is not list:
            said.append(place)  # type: ignore[arg-type]
        elif len(place) == 1:
            said += place
        else:
            _merge(place, said)
    return said


def _merge(pieces: list[SpanEnded] | list[SpanStarted], said: list[News]) -> None:
    pieces.sort(key=_start)
    first = size = 0
    for at in range(1, len(pieces) + 1):
        size += _written(pieces[at - 1])
        if at == len(pieces) or pieces[at].start != pieces[at - 1].stop or size > _MOST_WRITTEN:
            said.append(_one(pieces[first:at]) if at - first > 1 else pieces[first])
            first, size = at, 0


def _written(piece: SpanEnded | SpanStarted) -> int:
    """Bytes that its tasks wrote and that come with it."""
    if isinstance(piece, SpanStarted):
        return 0
    streams = [stream for detail in piece.details for stream in (detail.stdout, detail.stderr)]
    return sum(len(stream.data) for stream in streams if stream is not None)


def _one(pieces: Sequence[SpanEnded | SpanStarted]) -> SpanEnded | SpanStarted:
    first, stop = pieces[0], pieces[-1].stop
    if isinstance(first, SpanStarted):
        return SpanStarted(first.span, first.start, stop, host=first.host)
    ends = [piece for piece in pieces if isinstance(piece, SpanEnded)]
    details = tuple(detail for end in ends for detail in end.details)
    return SpanEnded(first.span, first.start, stop, sum(end.seconds for end in ends), None, details, host=first.host)
