"""Platforms: the sites, hosts and links that a simulation runs on, as a TOML file says them.

    [site.lab]
    hosts = 4
    cores = 8
    speed = [0.8, 1.2]      # of each host, drawn evenly from this interval; or one number
    memory = "64GB"

Speeds are relative to the machine on which the times of the workload were measured. They are drawn once for each seed,
so that all policies are compared on the same hosts. Rule: an unknown key, or a number out of bounds, is the user's
error, and the message says where it stands.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.errors import UserError
from bough.model.bounds import SiteName, in_plain_words
from bough.model.ids import read_bytes
from bough.model.resources import Needs
from bough.sim.simulated_executor import SimulatedExecutor

Speed = Annotated[float, Meta(gt=0, le=1e6)]
SpeedRange = Annotated[list[Speed], Meta(min_length=2, max_length=2)]  # a tuple of two in a union ends msgspec 0.22
_MOST_HOSTS = 1_000_000


class SitePlatform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hosts of one site, all alike but for their speeds."""

    hosts: Annotated[int, Meta(ge=1, le=_MOST_HOSTS)] = 1
    cores: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    speed: Speed | SpeedRange = 1.0
    memory: str | Annotated[int, Meta(ge=0, le=1 << 62)] = 0

    def draw_speed(self, dice: Random) -> float:
        """The speed of one host."""
        return dice.uniform(*self.speed) if isinstance(self.speed, list) else self.speed

    @property
    def memory_bytes(self) -> int:
        """What one host has; 0: not said."""
        return read_bytes(self.memory)


class Platform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sites."""

    site: Annotated[dict[SiteName, SitePlatform], Meta(min_length=1, max_length=10_000)]

    @property
    def cores(self) -> float:
        """Of all hosts."""
        return sum(site.hosts * site.cores for site in self.site.values())

    def executors(self, seed: int) -> Iterator[SimulatedExecutor]:
        """An executor for each host, with the speeds that belong to a seed."""
        dice = Random(f"platform {seed}")
        number = 0
        for name, site in self.site.items():
            capacity = Needs(cores=site.cores, memory=site.memory_bytes)
            for index in range(1, site.hosts + 1):
                number += 1
                yield SimulatedExecutor(number, capacity, site.draw_speed(dice), f"{name}{index}", name)


def read_platform(text: str, where: str = "the platform") -> Platform:
    """The platform that a TOML text describes."""
    try:
        platform = msgspec.convert(tomllib.loads(text), Platform)
        for name, site in platform.site.items():
            _check(site, name)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where}: this is no TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {in_plain_words(str(error))}") from None
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    return platform


def one_site(hosts: int = 1, cores: float = 1.0, speed: float | list[float] = 1.0) -> Platform:
    """A platform without a file: one site."""
    return Platform({"site": SitePlatform(hosts, cores, speed)})


def _check(site: SitePlatform, name: str) -> None:
    if not 0 <= site.memory_bytes < 1 << 62:
        raise ValueError(f"site {name}: memory {site.memory!r} is out of bounds")
    if isinstance(site.speed, list) and site.speed[0] > site.speed[1]:
        raise ValueError(f"site {name}: speed = [low, high], and {site.speed[0]:g} is above {site.speed[1]:g}")
