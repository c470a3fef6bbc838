"""The driver's settings, with the bounds of the thesis. Rule: a wrong one is refused with its name, value and range."""

from __future__ import annotations

import math

from bough.errors import UserError

CONSUMERS = (2, 512)
BUFFER = (100, 10_000)


class Settings:
    """Settings that may be changed until the driver is started."""

    def __init__(self, consumers: int | None, buffer_size: int, queue_name: str | None) -> None:
        self._is_frozen = False
        self.consumers = consumers
        self.buffer_size = buffer_size
        self.queue_name = queue_name

    @property
    def consumers(self) -> int | None:
        """Most bundles that are in progress at a time; None: any number."""
        return self._consumers

    @consumers.setter
    def consumers(self, value: int | None) -> None:
        self._check_open("consumers")
        self._consumers = None if value is None else _whole("consumers", value, *CONSUMERS)

    @property
    def buffer_size(self) -> int:
        """Most jobs that have not finished."""
        return self._buffer_size

    @buffer_size.setter
    def buffer_size(self, value: int) -> None:
        self._check_open("buffer_size")
        self._buffer_size = _whole("buffer_size", value, *BUFFER)

    @property
    def queue_name(self) -> str | None:
        """The group of the session that gets the jobs."""
        return self._queue_name

    @queue_name.setter
    def queue_name(self, value: str | None) -> None:
        self._check_open("queue_name")
        if value is not None:
            read_label(value, "queue_name")
            if "/" in value:
                raise UserError(f"queue_name is {value!r}; give a name without /")
        self._queue_name = value

    def _check_open(self, name: str) -> None:
        if self._is_frozen:
            raise UserError(f"{name} cannot be changed: the driver was started")


def read_label(value: object, name: str = "label") -> None:
    """Refuse what is no label."""
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{name} is {value!r:.60}; give a text")


def read_factor(value: object, most: int) -> int | None:
    """A batching factor; None: to be chosen."""
    return None if value is None else _whole("batching_factor", value, 1, most)


def read_length(value: object, most: int) -> int:
    """The length of a pipeline."""
    return _whole("length", value, 1, most)


def read_timeout(value: object) -> float:
    """Seconds that an incomplete bundle waits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UserError(f"timeout is {value!r:.60}; give seconds, 0 or more")
    return float(value)


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UserError(f"{name} is {value!r:.60}; give a whole number from {least} to {most}")
    return value
