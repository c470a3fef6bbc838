"""`bough site test`: every step from here to a task that ran at the site, one line each.

The last step runs a task there in a workflow of its own, which is removed; a pilot that was started for it ends with
it. Rule: the first step that fails is the last one, because what follows needs it; its line says how to mend it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import TimeoutError as NotYet
from typing import Any, Final, NamedTuple

from bough.cli.targets.live_server import ServerClient
from bough.errors import BoughError
from bough.model.sites.site_specs import RESOURCE
from bough.transport.access import find_access
from bough.wire import questions

_STARTING: Final = 120.0  # seconds in which a pilot has run a task
_ENDING: Final = 30.0  # seconds in which it has ended
_LOOK: Final = 0.2  # seconds between two looks


class StepResult(NamedTuple):
    """One line."""

    step: str
    ok: bool
    text: str


def try_steps(server: ServerClient, address: str | None, site: str) -> Iterator[StepResult]:
    """Look at one thing after the other, up to the first that fails."""
    for step in server.ask(questions.CheckSite(site))["steps"]:
        found = server.ask(questions.CheckSite(site, step))
        yield StepResult(step, found["ok"], found["text"])
        if not found["ok"]:
            return
    before = _entry(server, site)
    if before["state"] == "away":
        yield StepResult("task", False, f"the site is away ({before['reason']}): bough site enable {site}")
        return
    begun = time.monotonic()
    problem = _run_task(server, address, site)
    text = problem or f"a pilot ran a task, {time.monotonic() - begun:.1f} s after it was submitted"
    yield StepResult("task", not problem, text)
    if not problem and not before["pilots"]:
        problem = _end_pilots(server, site)
        yield StepResult("end", not problem, problem or "that pilot has ended")


def _entry(server: ServerClient, site: str) -> dict[str, Any]:
    return next(one for one in server.ask(questions.Sites()) if one["site"] == site)


def _run_task(server: ServerClient, address: str | None, site: str) -> str:
    """Run a task there; what went wrong, empty: nothing."""
    import bough

    name = f"site-test-{site}"
    try:
        place = address or find_access(None, "submit").address
        with bough.Session(place, name=name, reuse="never", on_failure="ignore") as session:
            task = session.command("true", resources={f"{RESOURCE}{site}": 1})
            problem = _wait_for(server, site, task)
            if problem:
                task.cancel()
            run = session.welcome.run
        server.ask(questions.Remove([f"{name}#{run}"], kill=True))
    except BoughError as error:
        return str(error)
    return problem


def _wait_for(server: ServerClient, site: str, task: Any) -> str:
    until = time.monotonic() + _STARTING
    while True:
        try:
            failure = task.exception(timeout=_LOOK)
        except NotYet:
            problem = str(_entry(server, site)["problem"])
            if problem:
                return problem
            if time.monotonic() > until:
                return _who_waits(server, site)
        else:
            return f"the task failed: {failure}" if failure is not None else ""


def _who_waits(server: ServerClient, site: str) -> str:
    """Why nothing has run for long."""
    queued = [str(pilot["handle"]) for pilot in _entry(server, site)["pilots"] if pilot["state"] == "queued"]
    if queued:
        return (
            f"{queued[0]} has waited for {_STARTING:g} s to be started: the site works as far as this,"
            " but has no room now; a smaller --cores-per-pilot or --walltime, or another --partition may start sooner"
        )
    return f"no pilot has run it within {_STARTING:g} s; the log of the server says more"


def _end_pilots(server: ServerClient, site: str) -> str:
    """End the executors there, and wait for their pilots; what went wrong, empty: nothing."""
    executors = [one["executor"] for one in server.ask(questions.Executors()) if one["site"] == site]
    server.manage("stop", executors)
    until = time.monotonic() + _ENDING
    while _entry(server, site)["pilots"]:
        if time.monotonic() > until:
            return f"the pilot has not ended within {_ENDING:g} s; the log of the server says more"
        time.sleep(_LOOK)
    return ""
