"""The array of a feed whose results are not kept: they are taken once, in order or as tasks end.

Rule: each end is given once; who stops and begins again goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bough.api.fed import AS_ENDED, IN_ORDER, FedElements
from bough.api.task import Task
from bough.api.view import View
from bough.errors import UserError
from bough.wire.messages import Outcome

_AT_ONCE = 1000  # values that are given before the generator may know of it


class Stream(View):
    """See the module."""

    __slots__ = ("_fed",)

    def __init__(self, elements: FedElements) -> None:
        super().__init__(elements, values=True)
        self._fed = elements

    def __next__(self) -> Any:
        """The next value; after a failure was raised, the one behind it."""
        if self._iterator is None:
            self._iterator = self._iterate_values()
        try:
            return next(self._iterator)
        except StopIteration:
            raise
        except BaseException:
            self._iterator = None
            raise

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return View(self._fed, self._all()[index])
        return super().__getitem__(index)

    def _iterate_values(self) -> Iterator[Any]:
        """Values in the order of tasks, each let go of once it is given."""
        fed = self._fed
        fed.ledger.may_wait()
        fed.begin(IN_ORDER)
        try:
            while (told := fed.wait_in_order(None)) is not None:
                start, stop, message = told
                at = start
                try:
                    if isinstance(message, Outcome) and not fed.is_command:
                        end = min(start + _AT_ONCE, stop) - message.start
                        for value in fed.page(message)[start - message.start : end]:
                            at += 1
                            yield value
                    else:
                        at = stop = start + 1
                        yield fed.task(start).result()
                finally:
                    fed.taken(start, at, stop)
            self._check_feed()
        finally:
            fed.pause()

    def as_completed(self, timeout: float | None = None) -> Iterator[Task]:
        """The tasks in the order in which they end, those that have ended first; each is given once."""
        fed = self._fed
        fed.ledger.may_wait()
        deadline = None if timeout is None else time.monotonic() + timeout
        fed.begin(AS_ENDED)
        try:
            while (ended := fed.wait_for_ends(deadline)) is not None:
                start, stop = ended
                at = start
                try:
                    for task in fed.ended_tasks(start, min(start + _AT_ONCE, stop)):
                        fed.ledger.looked_at(fed.record, at)
                        at += 1
                        yield task
                finally:
                    fed.taken(start, at, stop)
            self._check_feed()
        finally:
            fed.pause()

    def wait_all(self, timeout: float | None = None) -> View:
        """Wait until every task has ended; results that nobody has taken, and takes now, are let go of."""
        self._fed.abandon()
        return super().wait_all(timeout)

    def results(self, errors: str = "raise", timeout: float | None = None) -> list[Any]:
        """There are none: this feed keeps no results."""
        raise UserError("results: this feed keeps none; iterate over it, or give keep=True to feed")
