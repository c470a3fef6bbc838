"""What a platform says of links and transfers.

    [home]                        # all that leaves home, or comes there, crosses this link
    bandwidth = "100Mbit/s"
    latency = 0.05
    sharing = "fair"              # or serial: one transfer after the other; or each: all of it for each

    [transfers]
    peers = "all"                 # who may send what it holds: all, those of the same site, or none
    chains = false                # true: a peer sends on what it is still getting, as live executors do
    startup = 0.5                 # seconds before the first byte of each file
    startup_for = "file"          # or source: once for all the inputs of a task that come from one host, or from home
    streams = 1                   # files that one task fetches at once; 0: all that it lacks
    outputs = "home"              # they are sent home before their task ends, as live; or keep: the only copy of what a
                                  # task writes stays where it was made, as live that of temporary outputs
    early = false                 # true: inputs of the task that would follow travel while a host is busy, as live
    killed = "end"                # transfers for a task that is stopped end; or stay: what they bring is kept
    fairness = "rtt"              # transfers share a full link in inverse proportion to the latency of their routes, as
                                  # TCP does; or max-min: all alike. Not said: rtt if every link says a latency above 0
    index = "none"                # finding who has a file takes no time; or central, or distributed: `index_lookups`
    lookups = 4.18e6              # of a central index: look-ups a second, one after the other; this is the default

Bandwidths are bytes a second, as numbers or with units. Rule: what is not said costs no time.
TCP shares so: CUBIC, the usual one, is made for a throughput in linear proportion to the inverse of the round-trip time
among flows at one bottleneck (RFC 9438, 3.3). It needs the latency of every link, so that it is the default only there.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bough.model.bounds import shown
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
    rate = _bytes(body.removesuffix("bit")) / 8 if body.endswith("bit") else float(_bytes(body))
    if not 0 <= rate <= _MOST:
        raise ValueError(f"{shown(text)} is no number of bytes a second, such as 400MB/s, 1Gbit/s or 5e7")
    return rate


def read_amount(text: str | float) -> int:
    """Bytes: "50GB" or a number; ValueError says what is wrong."""
    found = _bytes(text) if isinstance(text, str) else int(text)
    if not 0 <= found < 1 << 62:
        raise ValueError(f"{shown(text)} is no number of bytes, such as 50GB, 512MiB or 1e9")
    return found


def _bytes(text: str) -> int:
    """As it is written; -1: this is no number."""
    try:
        return read_bytes(text)
    except ValueError:
        return -1


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
    outputs: Literal["keep", "home"] = "home"
    killed: Literal["end", "stay"] = "end"
    early: bool = False  # what the core announces is brought; off, since the published studies have nothing of it
    fairness: Literal["max-min", "rtt"] | None = None  # None: see `Platform.weighs_by_latency`
    index: Literal["none", "central", "distributed"] = "none"
    startup_for: Literal["file", "source"] = "file"
    lookups: Annotated[float, Meta(gt=0, le=1e12)] | None = None  # a second; None: as many as one hash table does
