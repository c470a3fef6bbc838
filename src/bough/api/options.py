"""Options of tasks, read once: what a task needs, what limits it, what it waits for.

Rule: a wrong option is an error that names the option, the value and what would be right; whatever a store could not
hold is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from bough.api.texts import check_sendable
from bough.errors import UserError
from bough.model.bounds import Amount, Count, Duration, Name, Whole, shown, within
from bough.model.resources import ONE_CORE, Needs, read_bytes, read_seconds
from bough.model.tasks import NO_LIMITS, PLAIN, Limits, Terms

if TYPE_CHECKING:
    from bough.api.array import Array
    from bough.api.group import Group
    from bough.api.planning import OutputPath
    from bough.api.task import Task

# What `after` takes: a task, an array, a group, an output of a task, or several of these
Waitable: TypeAlias = "Task | Array | Group | OutputPath"
After: TypeAlias = "Iterable[Waitable] | Waitable | None"

NAMES = (
    *("cores", "memory", "gpus", "resources", "timeout", "retries", "backoff"),
    *("walltime", "replay", "name", "after", "priority", "memo"),
    *("release", "affinity", "final", "attributes"),
)
BESIDE = -1  # in the place of `Terms.near`: where the task before it ran, whichever that will be


class Settings(msgspec.Struct, frozen=True):
    """Options that have been read."""

    needs: Needs = ONE_CORE
    limits: Limits = NO_LIMITS
    name: str = ""
    after: tuple[Any, ...] = ()
    priority: int = 0
    memo: bool = True
    terms: Terms = PLAIN


DEFAULTS = Settings()


def read_options(base: Settings, given: Mapping[str, object]) -> Settings:
    """Options on top of others; None says nothing."""
    said = {name: value for name, value in given.items() if value is not None}
    if not said:
        return base
    for name in said:
        if name not in NAMES:
            raise UserError(f"there is no option {name!r}; options are {', '.join(NAMES)}")
    return Settings(
        needs=_needs(base.needs, said),
        limits=_limits(base.limits, said),
        name=_text("name", said["name"]) if "name" in said else base.name,
        after=(*base.after, *read_after(said["after"])) if "after" in said else base.after,
        priority=_whole("priority", said["priority"]) if "priority" in said else base.priority,
        memo=bool(said.get("memo", base.memo)),
        terms=_terms(base.terms, said),
    )


def _terms(base: Terms, said: Mapping[str, object]) -> Terms:
    if not said.keys() & {"release", "affinity", "final", "attributes"}:
        return base
    beside = _yes("affinity", said["affinity"]) if "affinity" in said else base.near == BESIDE
    return Terms(
        release=_yes("release", said["release"]) if "release" in said else base.release,
        final=_yes("final", said["final"]) if "final" in said else base.final,
        near=BESIDE if beside else 0,
        attributes=read_attributes(said["attributes"], base.attributes) if "attributes" in said else base.attributes,
    )


def read_attributes(given: object, base: tuple[tuple[str, str], ...] = ()) -> tuple[tuple[str, str], ...]:
    """The user's own attributes, on top of others."""
    if not isinstance(given, Mapping):
        raise UserError(f"attributes is {shown(given)}; give a dict such as {{'est': 3.5}}")
    found = dict(base)
    for name, value in given.items():
        if not isinstance(value, str | int | float):
            raise UserError(f"attributes[{name!r}] is {shown(value)}; give a text or a number")
        found[_text("attributes", name)] = _text(f"attributes[{name!r}]", _as_text(value))
    return tuple(found.items())


def read_whole(name: str, value: object) -> int:
    """A whole number that is not negative."""
    return _whole(name, value, at_least=0)


def read_time(name: str, value: object) -> float:
    """A time in seconds."""
    return float(_read(name, value, read_seconds, '"90s", "1h" or seconds'))


def _yes(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{name} is {shown(value)}; give True or False")
    return value


def _needs(base: Needs, said: Mapping[str, object]) -> Needs:
    if not said.keys() & {"cores", "memory", "gpus", "resources"}:
        return base
    named = dict(base.named)
    resources = said.get("resources", {})
    if not isinstance(resources, Mapping):
        raise UserError(f"resources is {shown(resources)}; give a dict such as {{'license': 1}}")
    for name, amount in resources.items():
        if name in {"cores", "memory", "gpus"}:
            raise UserError(f"resources has {shown(name)}; give {name}= instead")
        named[_text("resources", name)] = _amount(f"resources[{name!r}]", amount)
    return Needs(
        cores=_amount("cores", said["cores"]) if "cores" in said else base.cores,
        memory=_read("memory", said["memory"], read_bytes, '"4GB"') if "memory" in said else base.memory,
        gpus=_amount("gpus", said["gpus"]) if "gpus" in said else base.gpus,
        named=tuple(sorted((name, amount) for name, amount in named.items() if amount)),
    )


def _limits(base: Limits, said: Mapping[str, object]) -> Limits:
    if not said.keys() & {"timeout", "memory", "retries", "backoff", "walltime", "replay"}:
        return base
    seconds = {
        name: _read(name, said[name], read_seconds, '"90s", "1h" or seconds') if name in said else getattr(base, name)
        for name in ("timeout", "backoff", "walltime", "replay")
    }
    return Limits(
        timeout=seconds["timeout"],
        memory=_read("memory", said["memory"], read_bytes, '"4GB"') if "memory" in said else base.memory,
        retries=_whole("retries", said["retries"], at_least=0) if "retries" in said else base.retries,
        backoff=seconds["backoff"],
        walltime=seconds["walltime"],
        losses=base.losses,
        replay=seconds["replay"],
    )


def _read(name: str, value: object, reader: Callable[[Any], float], example: str) -> Any:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(value)  # noqa: TRY004 - told as an error of the user's below
        found = reader(value)
    except ValueError:
        raise UserError(f"{name} is {shown(value)}; give something like {example}") from None
    if reader is read_bytes:
        return within(name, found, Count)
    return within(name, found, Duration)


def _amount(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{name} is {shown(value)}; give a number that is not negative")
    within(name, value, Amount)
    return value


def _whole(name: str, value: object, at_least: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        more = "" if at_least is None else " that is not negative"
        raise UserError(f"{name} is {shown(value)}; give a whole number{more}")
    return within(name, value, Whole if at_least is None else Count)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UserError(f"{name} is {shown(value)}; give a text")
    check_sendable(name, value)
    return within(name, value, Name)


def _as_text(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # a number of more digits than Python writes
        raise UserError(f"attributes holds {shown(value)}; give a smaller one") from None


def read_after(value: object) -> tuple[Any, ...]:
    """What is to be waited for."""
    from bough.api.waits import is_waitable

    if is_waitable(value):
        return (value,)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UserError(f"after is {shown(value)}; give a list of tasks, arrays and groups")
    return tuple(value)
