"""The bounds of whatever comes from outside, as types: for messages, options, descriptions and files we read back.

A message that carries a number, a text or a collection names one of these types, so that a value out of bounds is
refused where it arrives, with a message that names it, and is never journalled. Rule: sums of two bounded numbers still
fit the 64 bits of a store, because a bound is at most 2^62; texts that become paths or columns hold no NUL.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from bough.errors import BadValue, UserError

MOST: Final = 1 << 62  # of any whole number
MOST_TASKS: Final = 1_000_000_000  # in one array: each costs the server two bytes
LONGEST: Final = 1e15  # seconds, since the epoch or of a duration
LONGEST_PATH: Final = 4096  # Linux' PATH_MAX
DEEPEST_PATH: Final = 256  # Python makes folders by a call for each, inside each other
NO_NUL: Final = r"^[^\0]*\Z"

Whole = Annotated[int, Meta(ge=-MOST, le=MOST)]  # a priority
Count = Annotated[int, Meta(ge=0, le=MOST)]  # an id, a size, an offset, a number of things
Pid = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Index = Annotated[int, Meta(ge=0, le=MOST_TASKS)]  # an element of an array, or the end of a range of them
Gpus = Annotated[int, Meta(ge=0, le=4096)]  # of one executor
Amount = Annotated[float, Meta(ge=0, le=1e18)]  # of a resource: finite, never NaN
Factor = Annotated[float, Meta(ge=0, le=100)]  # by which something grows; 0: it does not
Instant = Annotated[float, Meta(ge=-LONGEST, le=LONGEST)]  # seconds: finite, never NaN
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]  # a value of a metric
Duration = Annotated[float, Meta(ge=0, le=LONGEST)]
IN_SECONDS: Final = Meta(extra={"unit": "s"})  # marks a time that has other bounds

Word = Annotated[str, Meta(max_length=256, pattern=NO_NUL)]  # a role, a stream's name, a version
Name = Annotated[str, Meta(max_length=65_536, pattern=NO_NUL)]  # of a task, a group, a host, an attribute
SiteName = Annotated[str, Meta(min_length=1, max_length=256, pattern=NO_NUL)]
ShortName = Annotated[str, Meta(min_length=1, max_length=200, pattern=NO_NUL)]  # of a monitor, a metric, a tag
Label = Annotated[
    str, Meta(max_length=65_536)
]  # as a name, where a pattern would cost too much: the core looks for NUL
QueueName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]  # of a named queue
QueueRef = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?\Z")]  # by a task; empty: the default one
FilePath = Annotated[str, Meta(max_length=65_536, pattern=NO_NUL)]
Text = Annotated[str, Meta(max_length=1 << 24)]  # something to read: a message, the end of stderr, a statement
Excerpt = Annotated[str, Meta(max_length=65_536)]  # of something long to read: a traceback, arguments of a call
Digest = Annotated[bytes, Meta(max_length=64)]
ContentDigest = Annotated[bytes, Meta(min_length=32, max_length=32)]  # of what a file holds: BLAKE2b of 32 bytes

T = TypeVar("T")
_PLAINER: Final = (  # what msgspec says, in the words of a user
    ("`", ""),
    (f"str matching regex {NO_NUL!r}", "a text without NUL characters"),
    ("Expected ", "it must be "),
    ("must be int", "must be a whole number"),
    ("must be float", "must be a number"),
    ("must be str", "must be a text"),
)


def within(what: str, value: object, bounds: type[T]) -> T:
    """A value of one of these types, or a `BadValue` such as "priority is 2.5; it must be a whole number"."""
    try:
        found = msgspec.convert(value, bounds)
        if isinstance(value, str) and not value.isascii():
            value.encode()  # half of a character, as file names that are not UTF-8 come, can be neither sent nor stored
    except UnicodeEncodeError as error:
        raise BadValue(f"{what} is {shown(value)}; it must be valid Unicode") from error
    except (msgspec.ValidationError, OverflowError) as error:
        raise BadValue(f"{what} is {shown(value)}; {in_plain_words(str(error))}") from error
    return found


def check_path(what: str, path: str) -> str:
    """A path that a file system can have; a name that is not UTF-8 may be one."""
    if "\0" in path or len(path) > LONGEST_PATH or path.count("/") > DEEPEST_PATH:
        raise BadValue(f"{what} is {shown(path)}; a path has at most {LONGEST_PATH} characters, {DEEPEST_PATH} folders")
    return path


def read_number(what: str, digits: str, bounds: type[T]) -> T:
    """As `within`, of a number that was written in digits, however many: Python reads no more than 4,300."""
    return within(what, int(digits.lstrip("0")[:100] or "0"), bounds)


def shown(value: object) -> str:
    """A value as messages quote it: in 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python writes
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def in_plain_words(reason: str) -> str:
    """What msgspec says is wrong with a value, for people."""
    for theirs, ours in _PLAINER:
        reason = reason.replace(theirs, ours)
    return reason.removesuffix(".0")  # "a number >= 0"


def check_bounds(message: T) -> T:
    """The message, if its fields are within their bounds; else a `UserError`, before anything is sent."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
    except (msgspec.ValidationError, OverflowError, UnicodeEncodeError) as error:
        reason = in_plain_words(str(error))
        raise UserError(f"{type(message).__name__.lower()}: a value is out of bounds: {reason}") from error
    return message
