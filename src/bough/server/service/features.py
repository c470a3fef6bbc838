"""What a service offers besides running tasks: manual tasks, metrics, notices, retention, sites and pilots.

They are opened and closed together; clients ask for them by questions, see `wire.questions`. Rule: no task needs them
to run, and a peer that may only read changes nothing by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bough import logs
from bough.errors import SiteError
from bough.model.ids import Seconds
from bough.server.peer_connection import PeerConnection
from bough.server.peers import Handler
from bough.server.service.id_ranges import IdRanges
from bough.server.service.manual_tasks import ManualTasks
from bough.server.service.queue_desk import QueueDesk
from bough.server.service.sites.pilot_manager import PilotManager
from bough.server.service.sites.site_watch import SiteWatch
from bough.server.service.sites.usage_history import UsageHistory
from bough.server.service.upkeep.metrics import MetricsPage, Statistics, read_address
from bough.server.service.upkeep.notices import NoticeCommand, NoticeRules, Notices
from bough.server.service.upkeep.prometheus_text import exposition
from bough.server.service.upkeep.retention import Retention
from bough.server.task_requests import TaskRequests
from bough.server.turns.shell import Shell
from bough.sites.site_kind import SentFile
from bough.transport.admission import PeerListener
from bough.wire import questions
from bough.wire.questions import Question


class FeatureOptions(msgspec.Struct, frozen=True):
    """What `bough server start` asks for of these."""

    metrics: str = ""  # HOST:PORT, or a port on the loopback address
    notify: str = ""  # a command
    notify_mail: str = ""  # an address
    rules: NoticeRules = NoticeRules()
    keep: Seconds = 0.0  # seconds after which finished workflows are removed, 0: never
    query_time: Seconds = 30.0  # that a statement of `bough sql` may take


class Features:
    """See the module. `handlers` are for the desk."""

    def __init__(
        self,
        shell: Shell,
        numbers: IdRanges,
        where: str,
        extras: FeatureOptions,
        task_requests: TaskRequests | None = None,
        *,
        make_peer: Callable[[], PeerConnection] | None = None,
    ) -> None:
        self._extras = extras
        self._pilots = PilotManager(shell, make_peer) if make_peer is not None else None
        self.statistics = Statistics(shell.loop, shell.queries, shell.peers)
        self._usage = UsageHistory(shell)
        self._retention = Retention(shell, where, extras.keep)
        self._sites = SiteWatch(shell, reached=self._pilots.trouble if self._pilots is not None else lambda _: "")
        self._notices: Notices | None = None
        self._notice_command: NoticeCommand | None = None
        self._page: MetricsPage | None = None
        manual = ManualTasks(shell, numbers, task_requests or TaskRequests(shell, where))
        shell.on_facts.append(self.statistics.hear)
        if extras.notify or extras.notify_mail:
            self._notice_command = NoticeCommand(extras.notify, extras.notify_mail)
            self._notices = Notices(shell, extras.rules, self._notice_command.say)
            shell.on_facts.append(self._notices.hear)
        self.handlers: dict[type[Question[Any]], Handler] = {
            questions.Statistics: self.statistics.answer,
            questions.CoreHours: self._usage.answer,
            questions.Take: manual.take,
            questions.Task: manual.task,
            questions.Numbered: manual.numbered,
            questions.Done: manual.done,
            questions.Here: manual.here,
            questions.Remove: self._retention.remove,
            questions.Prune: self._retention.prune,
            **self._sites.handlers,
            **QueueDesk(shell).handlers,
            **(self._pilots.handlers if self._pilots is not None else {}),
        }

    def is_cut_off(self, site: str) -> bool:
        """Whether the connection to a site, by which its executors reach us, is cut."""
        return self._pilots is not None and self._pilots.is_cut_off(site)

    async def fetch(self, site: str, path: str, target: str, known: str) -> SentFile:
        """Bring a file of a site's storage here by the server's connection to it."""
        if self._pilots is None:
            raise SiteError(f"it has no connection to {site}", transient=True)
        return await self._pilots.fetch(site, path, target, known)

    def listen(self, listener: PeerListener, address: str, fingerprint: str) -> None:
        """The server listens for other machines: executors of sites may come there, too."""
        if self._pilots is not None:
            listener.sites = self._pilots
            self._pilots.listens_at(address, fingerprint)

    async def open(self) -> None:
        """Begin; SiteError when the metrics cannot be served."""
        if self._extras.metrics:
            host, port = read_address(self._extras.metrics)
            self._page = MetricsPage(lambda: exposition(self.statistics.now()))
            port = await self._page.open(host, port)
            logs.info("metrics-served", f"metrics are at http://{host}:{port}/metrics")
        self.statistics.start()
        self._usage.start()
        self._retention.start()
        self._sites.start()
        if self._pilots is not None:
            self._pilots.start()
        if self._notices is not None:
            self._notices.start()

    async def release_pilots(self) -> None:
        """End all pilots in good order: nothing is left to do."""
        if self._pilots is not None:
            await self._pilots.release()

    def stop(self) -> None:
        """Begin nothing more: the store is about to be closed."""
        self.statistics.stop()
        self._usage.stop()
        self._retention.stop()
        self._sites.stop()
        if self._pilots is not None:
            self._pilots.stop()
        if self._notices is not None:
            self._notices.stop()

    async def close(self) -> None:
        """End."""
        self.stop()
        if self._pilots is not None:
            await self._pilots.close()
        if self._page is not None:
            await self._page.close()
        if self._notice_command is not None:
            await self._notice_command.close()
