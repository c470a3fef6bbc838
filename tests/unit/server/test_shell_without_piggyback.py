"""Without piggy-backing: an acknowledgement is a message of its own, and work waits until the executor asks for it."""

from __future__ import annotations

import pickle

from test_shell import BODY, Harness, Peer, a_task

from bough.model.arrays.dispatch_tuning import DispatchTuning
from bough.model.events.news import Cancel, WorkSucceeded
from bough.model.sites.resources import OWN_PYTHON, Needs
from bough.model.tasks import Dep, On
from bough.server.message_handlers import MessageHandlers
from bough.server.turns.run_info import RunInfo
from bough.server.turns.shell import Shell, ShellWithoutPiggyback, make_shell
from bough.wire.client_messages import VERSION, Blob, DoAction, Submit
from bough.wire.executor_messages import Acknowledged, ExecutorHello, ExecutorWelcome, Ready, RunSpan, StopElements


class Separate(Harness):
    def __init__(self) -> None:
        super().__init__()
        usual = self.shell
        info = RunInfo(1, "/store", "id:1", tuning=DispatchTuning(piggyback=False))
        self.shell = make_shell(self.loop, usual.machine, self.store, info)
        self.reception = MessageHandlers(self.shell, self.closes.append, lambda: None)


def begun(count: int) -> tuple[Peer, Peer, RunSpan]:
    """A client with so many tasks, an executor of one core, and the first of the tasks, which it has."""
    harness = Separate()
    client, executor = harness.client(), harness.executor()
    client.say(Blob(BODY, b"body"), Submit([a_task(number) for number in range(1, count + 1)], 1))
    run = next(message for message in executor.said() if isinstance(message, RunSpan))
    return client, executor, run


def end(executor: Peer, run: RunSpan) -> None:
    executor.report(WorkSucceeded(run.span, 0, 1, 10.0, pickle.dumps([1])))


def test_a_knob_chooses_the_shell() -> None:
    assert type(Harness().shell) is Shell
    assert type(Separate().shell) is ShellWithoutPiggyback


def test_an_executor_is_told_that_it_must_ask() -> None:
    peer = Separate().connect()
    peer.transport.to_executor = True
    peer.say(ExecutorHello(VERSION, "local", "node", 7, Needs(), OWN_PYTHON))
    appointed = peer.said()[0]
    assert isinstance(appointed, ExecutorWelcome)
    assert not appointed.piggyback


def test_work_waits_until_it_is_asked_for() -> None:
    _, executor, run = begun(2)
    end(executor, run)
    assert executor.said() == [Acknowledged(1)]
    executor.say(Ready())
    (second,) = executor.said()
    assert isinstance(second, RunSpan)
    executor.say(Ready())
    assert executor.said() == []


def test_what_is_stopped_while_it_waits_goes_out_before_the_stop() -> None:
    client, executor, run = begun(2)
    end(executor, run)
    executor.said()
    client.say(DoAction(7, Cancel(Dep(On.TASK, 2))))
    sent, stop = executor.said()
    assert isinstance(sent, RunSpan)
    assert isinstance(stop, StopElements)
    assert sent.span == stop.span
    executor.say(Ready())
    assert executor.said() == []


def test_one_that_need_not_ask_may_do_so() -> None:
    harness = Harness()
    executor = harness.executor()
    executor.say(Ready())
    assert executor.said() == []
    assert not executor.transport.closed
