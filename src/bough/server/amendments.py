"""Clients that change the description of a workflow that goes on: what is different is found, applied and told.

The answer: {"added", "changed", "removed": paths of tasks, "unchanged": how many, "again": paths of those of them that
had started and run again, "retried": how many had not succeeded and are tried again, "groups": {"added", "changed",
"removed": paths}, "ids", "group_ids": the numbers of all tasks and groups of the description, in its order}.

Rule: all of a description is looked at before anything changes, and the difference is one fact of one turn, so that a
server that is killed leaves the old workflow or the new one. Who asked hears of it when it is on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from bough.core.amending import unsuccessful, why_not
from bough.core.difference import Difference, find_difference, path_of, why_taken, why_wrong
from bough.core.foreseeing import run_again
from bough.core.groups import Workflow
from bough.model.facts import Amended, Fact
from bough.server.log import log
from bough.server.peers import Client
from bough.server.shell import Shell
from bough.server.workflows import Workflows
from bough.wire.messages import Amend, Answer, Refused


class Amendments:
    """See the module."""

    def __init__(self, shell: Shell, workflows: Workflows) -> None:
        self._shell = shell
        self._workflows = workflows
        self._applied: dict[int, Amended] = {}  # by run, in the turn that is taking effect
        shell.on_facts.append(self._hear)

    def _hear(self, facts: Sequence[Fact]) -> None:
        self._applied = {fact.run: fact for fact in facts if type(fact) is Amended}

    def amend(self, client: Client, message: Amend) -> None:
        """Change a workflow between two turns, so that what is found different is what is applied."""
        if self._shell.is_busy:
            self._shell.after_turn(lambda: self.amend(client, message))
            return
        state = self._shell.machine.state
        problem = self._workflows.problem_with(client, message.items) or self._problem(client, message)
        if problem:
            self._refuse(client, message, problem)
            return
        workflow = state.workflows[client.run]
        found = find_difference(workflow, message.items)
        if problem := why_taken(state, found.fact):
            self._refuse(client, message, problem)
            return
        failed = {record.id for record in unsuccessful(state, client.run, set(found.fact.removed))}
        if message.dry or (found.is_empty and not failed):
            again = run_again(state, workflow, found) if not found.is_empty else []
            if message.watched:
                self._workflows.hold_closing(client.run)
            client.connection.send(Answer(message.request, _told(found, again, len(failed))))
            return
        _log(workflow, found)

        self._workflows.hold_closing(client.run)
        self._shell.news(found.fact, then=lambda: self._applied_for(client, message, found, failed))

    def _applied_for(self, client: Client, message: Amend, found: Difference, failed: set[int]) -> None:
        answer = Answer(message.request, _told(found, self._again(found, failed), len(failed)))

        def tell() -> None:
            client.connection.send(answer)
            if not message.watched or not client.connection.is_open:
                self._workflows.let_close(client.run)  # else when it has heard of all ends that it asks for

        self._shell.upkeep.when_synced(tell)

    def _again(self, found: Difference, failed: set[int]) -> list[str]:
        """What had started, is not changed itself, and runs again."""
        fact = self._applied.get(found.fact.run)
        passed = failed | {item.id for item in found.fact.changed}
        records = self._shell.machine.state.records
        parts = fact.parts if fact is not None else ()
        return [path_of(records[record]) for record, _, _ in parts if record not in passed and record in records]

    def _refuse(self, client: Client, message: Amend, problem: str) -> None:
        client.connection.send(Refused(problem, message.request, "InvalidWorkload"))

    def _problem(self, client: Client, message: Amend) -> str | None:
        state = self._shell.machine.state
        problem = why_not(state, client.run)
        if problem:
            return problem
        workflow = state.workflows[client.run]
        if message.directory != workflow.directory:
            return (
                f"the workflow {workflow.name} goes on in {workflow.directory}; submit it there to change it,"
                " or choose another name"
            )
        return why_wrong(state, workflow, message.items)


def _told(found: Difference, again: list[str], retried: int) -> dict[str, object]:
    return {
        "added": found.added,
        "changed": found.changed,
        "removed": found.removed,
        "unchanged": found.unchanged,
        "again": again,
        "retried": retried,
        "groups": {"added": found.added_groups, "changed": found.changed_groups, "removed": found.removed_groups},
        "ids": found.ids,
        "group_ids": found.group_ids,
    }


def _log(workflow: Workflow, found: Difference) -> None:
    counts = f"{len(found.added)} added, {len(found.changed)} changed, {len(found.removed)} removed"
    log(f"the description of workflow {workflow.name}, run {workflow.run}, was changed: {counts}")
