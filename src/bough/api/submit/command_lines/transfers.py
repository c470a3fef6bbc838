"""Files between the submitter and a command's playpen: what `put`, `store` and `get` say, read once.

`put` sends a file whenever the command runs, `store` keeps it on the host and sends it only where it is not there or
another one is, `get` brings a file back when the command has succeeded. Over a space, and of what is fed, both names
may be templates. Rule: a remote name stays inside of the playpen or of the storage, whatever it says; that is checked
here, of arrays for each element, and again where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from bough.api.file_table import chunked
from bough.api.pickling import check_sendable
from bough.errors import BadValue, InvalidWorkload, UserError
from bough.model.bounds import shown
from bough.model.commands.command import CommandTemplate, Transfer
from bough.model.commands.playpens import RemotePlace, last_part, local_place, read_remote
from bough.model.commands.rendering import row_transfers
from bough.model.sites.requirements import read_requirement

Files = Mapping[str, str] | Iterable[str | os.PathLike[str]] | str | os.PathLike[str] | None
KINDS: tuple[Literal["put", "store", "get"], ...] = ("put", "store", "get")


class SaidTransfer(NamedTuple):
    """A file that is to be moved, as the user said it; a name that is empty is the last part of the other."""

    kind: Literal["put", "store", "get"]
    local: str
    remote: str


def said_transfers(how: Mapping[str, Any]) -> list[SaidTransfer]:
    """What the keywords `put`, `store` and `get` say, in order; BadValue when they hold something else than paths."""
    found: list[SaidTransfer] = []
    for kind in KINDS:
        pairs = _pairs(kind, how.get(kind))
        found += [SaidTransfer(kind, *(pair[::-1] if kind == "get" else pair)) for pair in pairs]
    return found


def read_transfers(how: Mapping[str, Any], cwd: str) -> list[Transfer]:
    """The transfers of one command; BadValue when they make no sense."""
    found = [
        Transfer(kind, local_place(kind, local or last_part(remote), cwd), remote or last_part(local))
        for kind, local, remote in said_transfers(how)
    ]
    check_transfers(found)
    return found


def check_transfers(transfers: Iterable[Transfer]) -> None:
    """Refuse what cannot be: names that leave their folder, two files in one place, conditions that cannot be read."""
    there: set[tuple[RemotePlace, str]] = set()
    here: set[str] = set()
    got: set[tuple[RemotePlace, str]] = set()
    for one in transfers:
        place = (read_remote(one.remote, stored=one.kind == "store"), one.when)
        if one.when:
            read_requirement(one.when)
        is_got = one.kind == "get"
        if one.local in here if is_got else place in there:
            target = one.local if is_got else one.remote
            raise InvalidWorkload(f"{one.kind}: two files would have the place {target}")
        if is_got and place in got:
            raise InvalidWorkload(f"get: {one.remote} would be brought to two places; copy it from the first one")
        (got if is_got else there).add(place)
        here.update([one.local] if is_got else ())


def check_element_transfers(template: CommandTemplate, rows: Sequence[Any], start: int = 0) -> None:
    """The same for the elements of an array from `start` up; the error says which one it is."""
    if not any((one.remote or one.local) in template.derived for one in template.transfers):
        rows = rows[:1]  # all have the same names there; of those here the table of files looks at each
    for index, row in enumerate(chunked(rows), start):
        try:
            check_transfers(row_transfers(template, row))
        except UserError as error:
            raise type(error)(f"element {index}: {error}") from None


def _pairs(what: str, given: Files) -> Iterator[tuple[str, str]]:
    """From and to; the second is empty if nothing is said of it."""
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
        yield _text(what, one), ""


def _text(what: str, value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise BadValue(f"{what} holds {shown(value)}; give paths")
    check_sendable(what, text)
    return text
