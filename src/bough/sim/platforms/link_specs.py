"""What a platform says of links and transfers.

    [home]                        # all that leaves home, or comes there, crosses this link
    bandwidth = "100Mbit/s"
    latency = 0.05
    sharing = "fair"              # or serial: one transfer after the other; or each: all of it for each

    [transfers]
    peers = "all"                 # who may send what it holds: all, those of the same site, or none
    chains = false                # true: a peer sends on what it is still getting, as live executors do
    startup = 0.5                 # seconds before the first byte of each file
    streams = 1                   # files that one task fetches at once; 0: all that it lacks
    outputs = "keep"              # they stay where they were made; or home: they are sent there before the task ends
    early = false                 # true: inputs of the task that would follow travel while a host is busy, as live
    killed = "end"                # transfers for a task that is stopped end; or stay: what they bring is kept

Bandwidths are bytes a second, as numbers or with units. Rule: what is not said costs no time.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bough.model.ids import read_bytes
from bough.sim.platforms.availability_traces import TraceSpec
from bough.sim.platforms.network import Link, Sharing

Amount = str | Annotated[float, Meta(ge=0, le=1e18)]
_MOST = 1e18


def read_rate(text: str | float) -> float:
    """Bytes a second: "125MB/s", "1Gbit/s" or a number; ValueError says what is wrong."""
    if not isinstance(text, str):
        return float(text)
    body = text.strip().removesuffix("/s")
    rate = read_bytes(body.removesuffix("bit")) / 8 if body.endswith("bit") else float(read_bytes(body))
    if not 0 <= rate <= _MOST:
        raise ValueError(f"{text!r} is no number of bytes a second")
    return rate


class LinkSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One link; it carries as much in each of its two directions."""

    bandwidth: Amount
    latency: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    sharing: Sharing = Sharing.FAIR
    availability: TraceSpec | None = None  # how much of its bandwidth there is over time

    def scaled(self, factor: float) -> LinkSpec:
        """A link that is times as fast; its latency is the same."""
        return msgspec.structs.replace(self, bandwidth=min(_MOST, read_rate(self.bandwidth) * factor))

    def make(self, name: str) -> Link:
        """A link like this."""
        return Link(name, read_rate(self.bandwidth), self.latency, self.sharing)


class TransferRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How files travel; see the module."""

    peers: Literal["all", "site", "none"] = "all"
    chains: bool = False
    startup: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    streams: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    outputs: Literal["keep", "home"] = "keep"
    killed: Literal["end", "stay"] = "end"
    early: bool = False  # what the core announces is brought; off, since the published studies have nothing of it
