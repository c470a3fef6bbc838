"""Platforms from files, with the files that they name, and to files.

These name logs of batch queues and traces of availability, relative to the folder of the platform's file.
Rules: what is in a file is part of the platform afterwards, so that a simulation reads none. What is written is read as
the same platform.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import msgspec

from bough.errors import UserError
from bough.sim.platforms.availability_traces import HOST, TraceSpec, read_trace
from bough.sim.platforms.batch_waits import read_swf
from bough.sim.platforms.link_specs import LinkSpec, TransferRules
from bough.sim.platforms.platform import BatchQueueSpec, Platform, SitePlatform, read_platform

Read = Callable[[str], str]  # the text of the file with a name
MOST_BYTES = 1 << 28


def load_platform(path: str | os.PathLike[str]) -> Platform:
    """The platform of a TOML file, with what is in the files that it names."""
    where = os.fspath(path)
    folder = os.path.dirname(os.path.abspath(where))
    return with_files(read_platform(_text(where), where), lambda name: _text(os.path.join(folder, name)))


def with_files(platform: Platform, read: Read) -> Platform:
    """A platform whose queues have the waits of the logs that they name, and whose traces are those of their files."""
    sites = {name: _site(name, site, read) for name, site in platform.site.items()}
    return msgspec.structs.replace(platform, site=sites, home=_link(platform.home, read))


def write_platform(platform: Platform) -> str:
    """The text that `read_platform` reads, with all that is not as usual."""
    parts: list[tuple[str, msgspec.Struct]] = [] if platform.home is None else [("home", platform.home)]
    parts += [] if platform.dispatcher is None else [("dispatcher", platform.dispatcher)]
    parts += [("transfers", platform.transfers)] if platform.transfers != TransferRules() else []
    parts += [(f"queue.{toml_key(name)}", queue) for name, queue in platform.queue.items()]
    parts += [(f"site.{toml_key(name)}", site) for name, site in platform.site.items()]
    lines = []
    for name, part in parts:
        lines += [f"[{name}]", *toml_lines(part), ""]
    return "\n".join(lines)


def toml_lines(part: msgspec.Struct) -> list[str]:
    """A line for each key of a part that is not as usual."""
    return [f"{key} = {toml_value(one)}" for key, one in _said(part)]


def toml_key(name: str) -> str:
    """A name as TOML writes it."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)


def toml_text(text: str) -> str:
    """A text as TOML writes it: as JSON does, but for one character."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _said(part: msgspec.Struct) -> list[tuple[str, Any]]:
    """The keys of a part that are not as usual, or that must be there."""
    fields = msgspec.structs.fields(part)
    usual = {one.name: one.default_factory() if callable(one.default_factory) else one.default for one in fields}
    return [(key, one) for key in usual if (one := getattr(part, key)) != usual[key]]


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, msgspec.Struct):
        return "{" + ", ".join([f"{key} = {toml_value(one)}" for key, one in _said(value)]) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join([f"{toml_key(key)} = {toml_value(one)}" for key, one in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join([toml_value(one) for one in value]) + "]"
    if isinstance(value, str):
        return toml_text(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _site(name: str, site: SitePlatform, read: Read) -> SitePlatform:
    return msgspec.structs.replace(
        site,
        queue=_queue(site.queue, read),
        availability=_traces(name, site, read),
        nic=_link(site.nic, read),
        uplink=_link(site.uplink, read),
    )


def _traces(name: str, site: SitePlatform, read: Read) -> TraceSpec | list[TraceSpec] | None:
    """What hosts have of availability, one after the other; of a file named by host each has its own."""
    said = site.availability
    if isinstance(said, TraceSpec) and HOST in said.file:
        hosts = [f"{name}{number}" for number in range(1, site.hosts + 1)]
        said = [msgspec.structs.replace(said, file=said.file.replace(HOST, host)) for host in hosts]
    return [_trace(one, read) for one in said] if isinstance(said, list) else _trace(said, read) if said else None


def _queue(queue: BatchQueueSpec | None, read: Read) -> BatchQueueSpec | None:
    if queue is None or not queue.log:
        return queue
    return msgspec.structs.replace(queue, log="", waits=[job.wait for job in read_swf(read(queue.log), queue.log)])


def _link(link: LinkSpec | None, read: Read) -> LinkSpec | None:
    if link is None or link.availability is None:
        return link
    return msgspec.structs.replace(link, availability=_trace(link.availability, read))


def _trace(spec: TraceSpec, read: Read) -> TraceSpec:
    if not spec.file:
        return spec
    return spec.with_trace(read_trace(read(spec.file), spec.file))


def _text(path: str) -> str:
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise UserError(f"cannot read {path}: it has more than {MOST_BYTES >> 20} MiB")
        with open(path, "rb") as file:
            return file.read(MOST_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:  # a name with NUL, or no UTF-8
        raise UserError(f"cannot read {path}: {error}") from None
