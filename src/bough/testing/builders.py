"""Builders for tests: tasks, arrays, groups, executors and questions in a few words.

Rule: a builder fills in what a test does not care about, and passes on every field that the test names.
"""

from __future__ import annotations

from typing import Any, get_args

from bough.core.machine import Machine
from bough.model.events.facts import ExecutorJoined, Submitted
from bough.model.ids import ROOT, BlobId, ExecutorId, GroupId, RecordId
from bough.model.outcomes import Cause, Failure
from bough.model.sites.requirements import Attributes
from bough.model.sites.resources import ONE_CORE, Needs
from bough.model.sites.site_specs import PilotId
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Kind, Limits, On, TaskSpec, idempotence
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.wire import here_questions, questions

BODY = BlobId(b"f" * 16)
BOOM = Failure(Cause.EXIT, "exit code 1", exit_code=1)


def task(id_: int, *after: int | Dep, **fields: Any) -> TaskSpec:
    """A loose task after some others."""
    deps = tuple(dep if isinstance(dep, Dep) else Dep(On.TASK, dep) for dep in after)
    return TaskSpec(RecordId(id_), Kind.FUNCTION, BODY, b"", after=deps, **fields)


def array(id_: int, length: int, *after: int | Dep, **fields: Any) -> ArraySpec:
    """An array over a table."""
    deps = tuple(dep if isinstance(dep, Dep) else Dep(On.TASK, dep) for dep in after)
    table = BlobId(b"t" * 16)
    return ArraySpec(RecordId(id_), Kind.FUNCTION, BODY, length, table, after=deps, **fields)


def group(id_: int, name: str, parent: int = ROOT, *after: Dep) -> GroupSpec:
    """A group."""
    return GroupSpec(GroupId(id_), name, GroupId(parent), after)


def on_group(id_: int) -> Dep:
    """A dependency on a group."""
    return Dep(On.GROUP, id_)


def on_array(id_: int) -> Dep:
    """A dependency on an array."""
    return Dep(On.ARRAY, id_)


def on_element(id_: int, index: int) -> Dep:
    """A dependency on one element."""
    return Dep(On.TASK, id_, index)


def executor(
    id_: int = 1,
    cores: float = 2,
    until: float = 0.0,
    python: str = "",
    site: str = "local",
    *,
    pilot: int = 0,
    attributes: Attributes = (),
    **amounts: Any,
) -> ExecutorJoined:
    """An executor that joins."""
    return ExecutorJoined(
        ExecutorId(id_),
        site,
        f"host{id_}",
        100 + id_,
        Needs(cores=cores, **amounts),
        until,
        python=python,
        pilot=PilotId(pilot),
        attributes=attributes,
    )


def submit(*items: TaskSpec | ArraySpec | GroupSpec, request: int = 0) -> Submitted:
    """A submission."""
    return Submitted(list(items), request)


def limits(*, idempotent: bool | None = None, **fields: Any) -> Limits:
    """Limits."""
    return Limits(**fields, **idempotence(idempotent))


def machine() -> Machine:
    """A machine that serves first come first."""
    return Machine(Policies(Fifo()))


def needs(cores: float = 1, **fields: Any) -> Needs:
    """Needs."""
    return Needs(cores=cores, **fields) if fields or cores != 1 else ONE_CORE


def question(what: str, **arguments: Any) -> Any:
    """A question by its word on the wire, such as "explain", and its fields."""
    kinds = {kind.__struct_config__.tag: kind for kind in get_args(questions.AnyQuestion)}
    if what == "outcomes":
        arguments = {"records": [(record, 0) for record in arguments["records"]]}
    return kinds[what](**arguments)


def here_question(what: str, **arguments: Any) -> Any:
    """What a running task asks, by its word on the wire, such as "lock", and its fields."""
    kinds = {kind.__struct_config__.tag: kind for kind in get_args(here_questions.HereQuestion)}
    return kinds[what](**arguments)
