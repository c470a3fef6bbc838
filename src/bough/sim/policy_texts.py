"""Policies to compare, as people write them: a list of placement policies, each with its options and its replication.

    good-cache-compute:threshold=0.9,window=5,workqueue+wqr:cap=2,age=30s,fifo

A comma ends an option or a policy: a part such as `window=5` is an option of the policy before it. Behind a plus stands
the replication policy of that placement policy; `+none` is none. Without a plus it replicates as live: most policies
nothing, `wqr` and `storage-affinity` as their algorithms say, `bough` late tasks that write declared files.
Rule: such a text says all by which runs that are compared differ, so that it names their row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bough.errors import UserError
from bough.model.bounds import shown
from bough.policies.policy_registry import (
    NO_REPLICATION,
    PROVISIONING,
    USUAL,
    load_policies,
    load_replication,
    replication_of,
)
from bough.policy.interface import Policies

_OPTION = re.compile(r"[^:=+]+=")  # a part that begins so names no policy
_REPLICATION = re.compile(r"\+(?=[A-Za-z])")  # not that of a number such as 1e+6


def read_list(text: str) -> list[str]:
    """The policies of a comma list, each with its own options."""
    found: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if not _OPTION.match(part):
            found.append(part)
        elif not found or ":" not in found[-1]:
            raise UserError(f"{part!r} names no policy; options stand behind a policy and a colon, as in NAME:{part}")
        else:
            found[-1] += f",{part}"
    return found


def compared(policies: str | Iterable[str], replication: str | Iterable[str] | None = None) -> list[str]:
    """The policies of a comparison, in order and once each; those that name no replication are joined with each given.

    A single text is a list as on the command line; an item of anything else is one policy. Without any replication
    each has what it has live.
    """
    placements = _items("policies", policies, "fifo")
    replications = [USUAL] if replication is None else _items("replication", replication, "wqr")
    if not placements:
        raise UserError("no policy is named; say one, such as fifo")
    if not replications:
        raise UserError(f"no replication policy is named; say one, such as {NO_REPLICATION}")
    named: list[str] = []
    for text in placements:
        placement, *own = _REPLICATION.split(text, maxsplit=1)
        usual = replication_of(placement)  # an unknown one is said before anything runs
        for one in own or replications:
            load_replication(one or usual)
            named.append(placement if one in {USUAL, usual} else f"{placement}+{one}")
    return list(dict.fromkeys(named))


def load_compared(text: str, provisioning: str = PROVISIONING) -> Policies:
    """What such a text names."""
    placement, *own = _REPLICATION.split(text, maxsplit=1)
    return load_policies(placement, provisioning, replication=own[0] if own else USUAL)


def _items(what: str, given: object, example: str) -> list[str]:
    if isinstance(given, str):
        return read_list(given)
    items: list[object] = list(given) if isinstance(given, Iterable) else [given]
    for one in items:
        if not isinstance(one, str):
            raise UserError(f"{what}: {shown(one)} is no name of a policy; give texts, such as {example!r}")
    return [str(one).strip() for one in items]
