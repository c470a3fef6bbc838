"""What a service offers besides running tasks: work by hand, statistics, notices, removal; opened and closed together.

It is asked for by `wire.messages.Ask`, as questions are, but answered when it is done:

what            arguments                                       value
"take"          name, host, queue, group                        {"answer": "task" | "none" | "done" | "blocked", "text"}
                                                                and for a task what "task" says
"task"          record, index                                   its attributes, and what its command is made of
"done"          record, index, name, exit_code, outputs,        {"id", "state", "changed"}
                missing (a path), give_back
"here"          record, index, name, question, arguments        as `server.here` answers tasks that executors run
"statistics"    seconds                                         [{...}], a sample a second, see `statistics.Sample`
"remove"        workflows (names, name#run, runs), kill         [{"run", "name"}] that are gone
"prune"         seconds, dry_run                                [{"run", "name", "closed"}] that are, or would be, gone

Rule: none of it is needed for a task to run, and none of it may change anything for somebody who only reads.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bough.errors import UserError
from bough.model.ids import Seconds
from bough.server.errand import Errand
from bough.server.here import Here
from bough.server.log import log
from bough.server.messenger import Messenger
from bough.server.metrics import MetricsPage, read_address
from bough.server.notices import Notices, Rules
from bough.server.numbers import NumberBook
from bough.server.peers import Client
from bough.server.prometheus import exposition
from bough.server.removing import Removing
from bough.server.shell import Shell
from bough.server.statistics import Statistics
from bough.server.taking import Taking
from bough.wire.messages import Ask

_READING = frozenset({"statistics", "task"})  # what may be asked by who only reads


class Extras(msgspec.Struct, frozen=True):
    """What `bough server start` asks for of these."""

    metrics: str = ""  # HOST:PORT, or a port on the loopback address
    notify: str = ""  # a command
    notify_mail: str = ""  # an address
    rules: Rules = Rules()
    keep: Seconds = 0.0  # seconds after which workflows that are over are removed, 0: never


class Services:
    """See the module. `answers` are the questions that it answers."""

    def __init__(self, shell: Shell, numbers: NumberBook, where: str, extras: Extras, here: Here | None = None) -> None:
        self._extras = extras
        self.statistics = Statistics(shell.loop, shell.machine, shell.peers)
        self._removing = Removing(shell, where, extras.keep)
        self._notices: Notices | None = None
        self._messenger: Messenger | None = None
        self._page: MetricsPage | None = None
        taking = Taking(shell, numbers, here or Here(shell, where))
        shell.on_facts.append(self.statistics.hear)
        if extras.notify or extras.notify_mail:
            self._messenger = Messenger(extras.notify, extras.notify_mail)
            self._notices = Notices(shell, extras.rules, self._messenger.say)
            shell.on_facts.append(self._notices.hear)
        self.answers: dict[str, Callable[[Errand], None]] = {
            "statistics": self.statistics.answer,
            "take": taking.take,
            "task": taking.task,
            "done": taking.done,
            "here": taking.here,
            "remove": self._removing.remove,
            "prune": self._removing.prune,
        }

    def ask(self, client: Client, message: Ask) -> bool:
        """Answer, now or later; False when it is no question of these."""
        do = self.answers.get(message.what)
        if do is None:
            return False
        errand = Errand(client, message)
        if client.connection.role == "read" and message.what not in _READING:
            errand.refuse(UserError("this access file is for reading only"))
        else:
            errand.attempt(do)
        return True

    async def open(self) -> None:
        """Begin; SiteError when the metrics cannot be served."""
        if self._extras.metrics:
            host, port = read_address(self._extras.metrics)
            self._page = MetricsPage(lambda: exposition(msgspec.structs.asdict(self.statistics.sample())))
            port = await self._page.open(host, port)
            log(f"metrics are at http://{host}:{port}/metrics")
        self.statistics.start()
        self._removing.start()
        if self._notices is not None:
            self._notices.start()

    def stop(self) -> None:
        """Begin nothing more: the store is about to be closed."""
        self.statistics.stop()
        self._removing.stop()
        if self._notices is not None:
            self._notices.stop()

    async def close(self) -> None:
        """End."""
        self.stop()
        if self._page is not None:
            await self._page.close()
        if self._messenger is not None:
            await self._messenger.close()
