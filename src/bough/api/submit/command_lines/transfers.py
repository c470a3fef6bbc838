"""Files between the submitter and a command's playpen: what `put`, `store` and `get` say, read once.

`put` sends a file whenever the command runs, `store` keeps it on the host and sends it only where it is not there or
another one is, `get` brings a file back when the command has succeeded. Rule: a remote name stays inside of the playpen
or of the storage, whatever it says; that is checked here, and again where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from bough.api.pickling import check_sendable
from bough.errors import BadValue, InvalidWorkload
from bough.model.bounds import shown
from bough.model.commands.command import Transfer
from bough.model.commands.playpens import check_remote
from bough.model.files import absolute, is_url
from bough.model.sites.requirements import read_requirement

Files = Mapping[str, str] | Iterable[str | os.PathLike[str]] | str | os.PathLike[str] | None


def read_transfers(put: Files, store: Files, get: Files, cwd: str) -> list[Transfer]:
    """What was said, in order; BadValue when it makes no sense."""
    found = [_transfer("put", local, remote, cwd) for local, remote in _pairs("put", put)]
    found += [_transfer("store", local, remote, cwd) for local, remote in _pairs("store", store)]
    found += [_transfer("get", local, remote, cwd) for remote, local in _pairs("get", get)]
    check_transfers(found)
    return found


def check_transfers(transfers: Iterable[Transfer]) -> None:
    """Refuse what cannot be: names that leave their folder, two files in one place, conditions that cannot be read."""
    places: set[tuple[str, str, str]] = set()
    for one in transfers:
        check_remote(one.remote, stored=one.kind == "store")
        if is_url(one.local):
            raise BadValue(f"{one.kind} {one.local}: a URL is read by a slot of the command, as {{x:r}}")
        if one.when:
            read_requirement(one.when)
        place = ("get", one.local, "") if one.kind == "get" else ("put", one.remote, one.when)
        if place in places:
            raise InvalidWorkload(f"{one.kind}: two files would have the place {place[1]}")
        places.add(place)


def _pairs(what: str, given: Files) -> Iterator[tuple[str, str]]:
    """From and to; without the second it is the name of the file."""
    if given is None:
        return
    if isinstance(given, Mapping):
        for source, target in given.items():
            yield _text(what, source), _text(what, target)
        return
    if isinstance(given, str | os.PathLike):
        given = [given]
    if not isinstance(given, Iterable):
        raise BadValue(f"{what} is {shown(given)}; give paths, or a dict such as {{'data/query.fa': 'query.fa'}}")
    for one in given:
        text = _text(what, one)
        yield text, os.path.basename(text.rstrip("/"))


def _text(what: str, value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise BadValue(f"{what} holds {shown(value)}; give paths")
    check_sendable(what, text)
    return text


def _transfer(kind: Literal["put", "store", "get"], local: str, remote: str, cwd: str) -> Transfer:
    return Transfer(kind, absolute(local, cwd), remote)
