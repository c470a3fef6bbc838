"""Sites: which executors they have, the rule for when they may be used, and whether they are away.

A site is known while it has executors, a rule of its own, a definition (see `pilots`), or is away; some of those that
have used core-hours are known, too. Executors of a site that is away get nothing, and count for no host. Rule: these
functions only apply what is decided; `intake` decides, and has executors give back what they have.
"""

from __future__ import annotations

from typing import Final

from bough.core.effects import Effects
from bough.core.records.executor_record import ExecutorRecord, is_manual
from bough.core.records.site_record import SiteRecord
from bough.core.state import State, TimerKind
from bough.model.events import facts
from bough.model.ids import Seconds
from bough.model.sites.availability import ALWAYS

MOST_PAST: Final = 1000  # sites up to which those are kept that have nothing but core-hours that were used
PATIENCE: Final = 15.0  # seconds beyond the grace after which the core takes back what an executor has not


def site_rule_set(state: State, effects: Effects | None, fact: facts.SiteRuleSet) -> None:
    """From now on this is how the server learns whether a site may be used."""
    known_site(state, fact.site).rule = fact.rule
    forget_if_plain(state, fact.site)


def site_left(state: State, effects: Effects | None, fact: facts.SiteLeft) -> None:
    """Its executors get nothing more; what they have is theirs to give back."""
    site = known_site(state, fact.site)
    if not site.away:
        site.since = state.now
        for executor in site.executors.values():
            if not executor.draining:
                state.forget_host(executor.host)
            executor.away = True
            state.named_queues.recount(executor)
            state.update_open(executor)
    site.away, site.reason, site.by_hand, site.deadline = True, fact.reason, fact.by_hand, state.now + fact.grace
    for executor in site.executors.values():
        if executor.spans:
            state.set_timer(site.deadline + PATIENCE, TimerKind.CLEARANCE, executor.id)


def site_returned(state: State, effects: Effects | None, fact: facts.SiteReturned) -> None:
    """Its executors get work again."""
    site = state.sites[fact.site]
    site.away, site.reason, site.by_hand, site.deadline, site.since = False, "", False, 0.0, state.now
    for executor in site.executors.values():
        executor.away = False
        if not executor.draining:
            state.count_host(executor.host)
        state.named_queues.recount(executor)
        state.update_open(executor)
    state.pilots_due = True
    forget_if_plain(state, fact.site)


def add_executor(state: State, executor: ExecutorRecord) -> None:
    """An executor is there, and belongs to its site."""
    site = known_site(state, executor.site)
    site.executors[executor.id] = executor
    executor.away = site.away
    if not state.uses_backlogs:
        executor.backlog_limit = 0.0
    state.executors[executor.id] = executor
    if not is_manual(executor) and (site.bound or state.task_bound):
        executor.bound = site.bound or state.task_bound
    if state.accounts and not is_manual(executor) and not executor.pilot:
        executor.came = executor.came or state.now
        site.usage.count(executor)
    state.data.add_executor(executor)
    state.cores += executor.capacity.cores
    state.named_queues.recount(executor)
    if not (executor.draining or executor.away):
        state.count_host(executor.host)


def remove_executor(state: State, executor: ExecutorRecord) -> None:
    """An executor is gone."""
    del state.executors[executor.id]
    state.data.remove_executor(executor)
    state.open_executors.pop(executor.id, None)
    state.vacant.forget(executor.id)
    state.room.forget(executor.id)
    state.cores -= executor.capacity.cores
    state.named_queues.recount(executor)
    if not (executor.draining or executor.away):
        state.forget_host(executor.host)
    site = state.sites[executor.site]
    del site.executors[executor.id]
    if executor.accounted and not executor.pilot:
        site.usage.settle(executor, state.now)
    forget_if_plain(state, executor.site)


def grace_left(state: State, executor: ExecutorRecord) -> Seconds:
    """Seconds that running tasks of an executor whose site is away still have."""
    return max(0.0, state.sites[executor.site].deadline - state.now)


def why_given_back(site: SiteRecord) -> str:
    """What is said of an attempt that was ended because its site left."""
    return f"given back: site {site.name} left" + (f" ({site.reason})" if site.reason else "")


def known_site(state: State, name: str) -> SiteRecord:
    """The record of a site, made if there is none."""
    site = state.sites.get(name)
    if site is None:
        site = state.sites[name] = SiteRecord(name)
    return site


def forget_if_plain(state: State, name: str) -> None:
    """Forget a site of which there is nothing to know."""
    site = state.sites[name]
    if site.executors or site.away or site.spec or site.rule != ALWAYS:
        return
    if not site.usage.alive or len(state.sites) > MOST_PAST:
        del state.sites[name]
