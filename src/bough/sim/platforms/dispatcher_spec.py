"""What a platform says of a dispatcher that serves one caller at a time, whom hosts call for work, as Trellis had one.

    [dispatcher]
    call = 0.7       # seconds of a call when nobody else calls
    service = 0.26   # of these the dispatcher's own, in which it serves nobody else
    pause = 1        # what a host gives to others between a call and the next one for work

Rule: what is not said costs no time; a platform without this table has our own dispatcher, which gives work to whoever
has room.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.ids import Seconds

_Time = Annotated[float, Meta(ge=0, le=1e6)]


class DispatcherSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See the module. Times in seconds."""

    call: _Time = 0.0
    service: _Time = 0.0
    pause: _Time = 0.0

    @property
    def way(self) -> Seconds:
        """To the dispatcher, or back."""
        return max(0.0, (self.call - self.service) / 2)

    def problem(self) -> str:
        """What is wrong with it; empty: nothing."""
        if self.service > self.call:
            return f"service = {self.service:g} is a part of call = {self.call:g}; say no more than that"
        if not (self.call or self.pause):
            return "a host that gets nothing would ask again at once, for ever; say call or pause"
        return ""
