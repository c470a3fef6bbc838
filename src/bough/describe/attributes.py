"""Attributes of tasks as descriptions write them: key=value, some of which mean something to Bough.

`release`, `affinity`, `final`, `memo` are yes or no; `cores`, `memory`, `timeout`, `retries`, `priority` amounts,
`after` and `name` texts; every other key is the user's own. Rule: what is written reads back as the same task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from bough.describe.plan import PlanGroup, PlanTask
from bough.model.amounts import read_bytes, read_seconds
from bough.model.bounds import LONGEST

_SWITCHES = ("release", "affinity", "final", "memo")
_AMOUNTS: dict[str, tuple[str, Callable[[str], float]]] = {
    "cores": ("a number above 0, such as 2", float),
    "memory": ("an amount such as 4GB", read_bytes),
    "timeout": ("a time such as 90s, 1h or 1:30:00", read_seconds),
    "retries": ("a whole number such as 2", int),
    "priority": ("a whole number such as 2", int),
}
_OF_GROUPS = {"limit": _AMOUNTS["retries"], "retries": _AMOUNTS["retries"], "timeout": _AMOUNTS["timeout"]}
_GROUP_SWITCHES = ("pipeline", "match", "barrier")
_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False, "": False}


def put_on_task(task: PlanTask, key: str, value: str) -> None:
    """Give a task an attribute; ValueError says what would be right."""
    if key in _SWITCHES:
        setattr(task, key, _switch(key, value))
    elif key in _AMOUNTS:
        setattr(task, key, _amount(key, value, _AMOUNTS[key], below=key == "priority"))
    elif key == "name":
        task.name = value
    elif key == "after":
        task.after = [*task.after, *filter(None, value.split(","))]
    elif key == "cwd":
        task.cwd = value
    elif key.startswith("env.") and key != "env.":
        task.env = {**task.env, key[4:]: value}
    elif not key:
        raise ValueError(f"'={value}' has no key; write key=value")
    else:
        task.attributes = {**task.attributes, key: value}


def of_task(task: PlanTask) -> Iterator[tuple[str, str]]:
    """The attributes that make a bare command into the task."""
    if task.name:
        yield "name", task.name
    if task.after:
        yield "after", ",".join(task.after)
    for key in _SWITCHES:
        if getattr(task, key) is not (key == "memo"):
            yield key, "no" if key == "memo" else "yes"
    for key in _AMOUNTS:
        value = getattr(task, key)
        if value != (1 if key == "cores" else 0):
            yield key, _shown(value)
    if task.cwd:
        yield "cwd", task.cwd
    for name, text in task.env.items():
        yield f"env.{name}", text
    yield from task.attributes.items()


def put_on_group(group: PlanGroup, key: str, value: str) -> None:
    """Give a group an attribute; ValueError says what would be right."""
    if key in _GROUP_SWITCHES:
        setattr(group, key, _switch(key, value))
    elif key in _OF_GROUPS:
        setattr(group, key, _amount(key, value, _OF_GROUPS[key]))
    elif key == "level":
        group.level = value
    elif not key:
        raise ValueError(f"'={value}' has no key; write key=value")
    else:
        group.attributes = {**group.attributes, key: value}


def of_group(group: PlanGroup) -> Iterator[tuple[str, str]]:
    """The attributes that make a bare group, which is a pipeline, into the group; its level is not among them."""
    for key, usual in zip(_GROUP_SWITCHES, (True, False, True), strict=True):
        if getattr(group, key) is not usual:
            yield key, "no" if usual else "yes"
    for key in _OF_GROUPS:
        if getattr(group, key):
            yield key, _shown(getattr(group, key))
    yield from group.attributes.items()


def _switch(key: str, value: str) -> bool:
    found = _YES.get(value.lower())
    if found is None:
        raise ValueError(f"{key}={value}: expected yes or no")
    return found


def _amount(key: str, value: str, kind: tuple[str, Callable[[str], float]], *, below: bool = False) -> Any:
    expected, convert = kind
    try:
        amount = convert(value)
    except (ValueError, OverflowError):
        amount = math.nan
    enough = amount >= -LONGEST if below else amount >= 0 if key in {"retries", "limit"} else amount > 0
    if not enough or amount > LONGEST:
        raise ValueError(f"{key}={value:.60}: expected {expected}")
    return amount


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.15g}"
