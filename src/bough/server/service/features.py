"""What a service offers besides running tasks: work by hand, statistics, notices, removal; opened and closed together.

It is asked for as questions are, see `wire.questions`, and answered when it is done. Rule: none of it is needed for a
task to run, and none of it may change anything for somebody who only reads.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bough.model.ids import Seconds
from bough.server.peers import Handler
from bough.server.server_log import log
from bough.server.service.id_ranges import IdRanges
from bough.server.service.manual_tasks import ManualTasks
from bough.server.service.metrics import MetricsPage, Statistics, read_address
from bough.server.service.notices import NoticeCommand, NoticeRules, Notices
from bough.server.service.prometheus_text import exposition
from bough.server.service.retention import Retention
from bough.server.task_requests import TaskRequests
from bough.server.turns.shell import Shell
from bough.wire import questions
from bough.wire.questions import Question


class FeatureOptions(msgspec.Struct, frozen=True):
    """What `bough server start` asks for of these."""

    metrics: str = ""  # HOST:PORT, or a port on the loopback address
    notify: str = ""  # a command
    notify_mail: str = ""  # an address
    rules: NoticeRules = NoticeRules()
    keep: Seconds = 0.0  # seconds after which workflows that are over are removed, 0: never
    query_time: Seconds = 30.0  # that a statement of `bough sql` may take


class Features:
    """See the module. `handlers` are for the desk."""

    def __init__(
        self, shell: Shell, numbers: IdRanges, where: str, extras: FeatureOptions, here: TaskRequests | None = None
    ) -> None:
        self._extras = extras
        self.statistics = Statistics(shell.loop, shell.queries, shell.peers)
        self._removing = Retention(shell, where, extras.keep)
        self._notices: Notices | None = None
        self._messenger: NoticeCommand | None = None
        self._page: MetricsPage | None = None
        taking = ManualTasks(shell, numbers, here or TaskRequests(shell, where))
        shell.on_facts.append(self.statistics.hear)
        if extras.notify or extras.notify_mail:
            self._messenger = NoticeCommand(extras.notify, extras.notify_mail)
            self._notices = Notices(shell, extras.rules, self._messenger.say)
            shell.on_facts.append(self._notices.hear)
        self.handlers: dict[type[Question[Any]], Handler] = {
            questions.Statistics: self.statistics.answer,
            questions.Take: taking.take,
            questions.Task: taking.task,
            questions.Done: taking.done,
            questions.Here: taking.here,
            questions.Remove: self._removing.remove,
            questions.Prune: self._removing.prune,
        }

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
