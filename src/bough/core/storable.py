"""Nothing is made a fact that a store could not give back: news is held against its bounds before it is taken in.

The fields of news have the bounds of the facts that are made of it. Submissions and what executors report are decoded
into these types, and are most of what arrives: they are not looked at again. What the server or a person says is. What
the core itself computes is bounded where it is computed: times by `latest`, messages by `shortened`. Rule: a fact that
was written can be read.
"""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from bough.model.bounds import LONGEST
from bough.model.events import facts, news
from bough.model.events.arriving import News, Recalled
from bough.model.ids import Seconds

DECODED: Final = frozenset(
    {
        facts.Submitted,
        news.PagesAdded,
        news.Amend,
        news.WorkStarted,
        news.WorkSucceeded,
        news.CallsEnded,
        news.WorkObserved,
        news.WorkReturned,
        facts.MemoLookedUp,
        Recalled,
        news.DeclareDone,
        news.TakeTask,
        news.CacheChanged,
        news.FilesIdentified,
        news.BytesMoved,
    }
)
_LONGEST_MESSAGE: Final = 4_000  # characters of a message that the core puts together

_encode = msgspec.msgpack.Encoder().encode


@functools.cache
def _decoder() -> msgspec.msgpack.Decoder[News]:
    """Made when it is first needed: a server that starts has no time for it."""
    return msgspec.msgpack.Decoder(News)


def unstorable(event: News) -> str:
    """Why an event that is not one of the `DECODED` cannot become a fact; empty: it can."""
    try:
        _decoder().decode(_encode(event))
    except (msgspec.MsgspecError, OverflowError, TypeError, UnicodeError) as error:
        return str(error) or type(error).__name__
    return ""


def latest(when: Seconds) -> Seconds:
    """A time that is computed, within what a fact can say."""
    return min(when, LONGEST)


def shortened(message: str) -> str:
    """A message that is put together of others, in a length for people."""
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[: _LONGEST_MESSAGE - 3]}..."
