"""Specs of tasks: what earlier versions wrote of them is read as it was meant."""

from __future__ import annotations

import msgspec
import pytest

from bough.model.tasks import ArraySpec, Limits, TaskSpec, idempotence
from bough.testing.builders import array, limits, task

_FIELDS_BEFORE = 11  # of limits, before a user could say that a task is idempotent


@pytest.mark.parametrize("said", [True, False, None])
def test_what_a_user_says_of_idempotence_is_kept(said: bool | None) -> None:
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(limits(idempotent=said)), type=Limits)
    assert kept.idempotent is said
    assert Limits(**idempotence(said)) == kept


@pytest.mark.parametrize(("written", "meant"), [(True, None), (False, False)])
def test_limits_of_earlier_versions_never_say_that_a_task_is_idempotent(written: bool, meant: bool | None) -> None:
    """They wrote True for each task of which nothing had been said."""
    old = [5.0, 0, 2, 0, 0, 5, 0, 0, 0, written, False]
    assert len(old) == _FIELDS_BEFORE
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=Limits)
    assert read.idempotent is meant
    assert (read.timeout, read.retries, read.keep) == (5.0, 2, False)


@pytest.mark.parametrize("spec", [task(1), array(1, 3)])
def test_tasks_of_earlier_versions_do_not_count_as_having_atomic_outputs(spec: TaskSpec | ArraySpec) -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(msgspec.structs.replace(spec, atomic_outputs=True)))
    old = msgspec.msgpack.encode(fields[:-1])
    assert msgspec.msgpack.decode(old, type=type(spec)) == spec
