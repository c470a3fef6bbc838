"""How long tasks take that are not run: a command `sleep X` takes X seconds, anything else what was said at the start.

Rule: what is alike is looked at once: a template whose text begins with a whole `sleep X`, or with something else than
`sleep`, is never filled in, however many elements a span has.
"""

from __future__ import annotations

import re

from bough.executor.loading import Shelf
from bough.model.commands import CommandCall, CommandTemplate, decode_call
from bough.model.ids import BlobId, Seconds
from bough.model.rendering import render_call, render_row
from bough.model.tasks import Kind
from bough.wire.work import Run

Times = Seconds | list[Seconds]  # of every element, or of each

_KEPT = 4096  # payloads that are remembered, the shorter ones
_SHORT = 256  # bytes
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = r"(?:\d+\.?\d*|\.\d+)[smhd]?"
_SLEEP = re.compile(rf"\s*(?:[^\s'\"]*/)?sleep((?:\s+{_AMOUNT})+)\s*(?=$|[;&|#\n])")
_OTHER = re.compile(r"\s*(?!\S*sleep)\S+\s")  # a whole first word that is another program


def read_sleep(text: str) -> Seconds | None:
    """The seconds of a command that begins with `sleep X`; None if it does not."""
    found = _SLEEP.match(text)
    if found is None:
        return None
    return sum(float(word.rstrip("smhd")) * _UNITS.get(word[-1], 1.0) for word in found[1].split())


class RunTimes:
    """See the module. `other`: what everything else takes; `blobs`: those that came, by whichever connection."""

    def __init__(self, other: Seconds) -> None:
        self._other = other
        self.blobs: dict[BlobId, bytes] = {}
        self._shelf = Shelf(self.blobs)
        self._alike: dict[BlobId, Seconds | None] = {}  # of templates: None when rows differ
        self._calls: dict[bytes, Seconds] = {}

    def of(self, run: Run) -> Times:
        """What the elements of a span take."""
        if run.kind is not Kind.COMMAND:
            return self._other
        if not run.is_array:
            return self._of_call(run)
        found = self._alike.get(run.body, -1.0)
        if found == -1.0:
            found = self._alike[run.body] = self._of_template(run.body)
        return self._of_rows(run) if found is None else found

    def _of_call(self, run: Run) -> Seconds:
        payload = run.payload
        if b"sleep" not in payload:  # nor is one that lies in a file, which is far too long for that
            return self._other
        found = self._calls.get(payload)
        if found is None:
            found = self._of_words(decode_call(payload), run)
            if len(payload) <= _SHORT:
                if len(self._calls) >= _KEPT:
                    self._calls.clear()
                self._calls[payload] = found
        return found

    def _of_template(self, body: BlobId) -> Seconds | None:
        parts = self._shelf.template(body).parts
        first = parts[0] if parts else ""
        if not isinstance(first, str):
            return None
        if _OTHER.match(first):
            return self._other
        found = _SLEEP.match(first)
        if found is not None and (len(parts) == 1 or found.end() < len(first)):
            return read_sleep(first)
        return None

    def _of_rows(self, run: Run) -> Times:
        template: CommandTemplate = self._shelf.template(run.body)
        try:
            return [self._of_words(render_row(template, row), run) for row in self._shelf.items(run)]
        except Exception:  # noqa: BLE001 -- values of rows are the user's objects, which need not exist here
            return self._other

    def _of_words(self, call: CommandCall, run: Run) -> Seconds:
        words = render_call(call, call.writes, run.needs.cores, run.attempt)
        found = read_sleep(words[-1] if call.settings.shell else " ".join(words))
        return self._other if found is None else found
