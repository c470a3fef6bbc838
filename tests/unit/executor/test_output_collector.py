"""The collector of an executor: when it sends, what it sends together, and what it says again."""

from __future__ import annotations

from hashlib import blake2b

from bough.executor.files.staging.output_collector import ENOUGH, SOON, OutputCollector
from bough.model.ids import RecordId
from bough.wire.file_messages import DIGEST, MOST_GATHERED, PIECE, HeldOutputs, MadeFile, WriteBack

WAIT = 10.0


class World:
    """A collector, the contents that its host holds, and what it said."""

    def __init__(self) -> None:
        self.said: list[WriteBack] = []
        self.contents: dict[bytes, bytes] = {}
        self.collector = OutputCollector(self.hear, lambda made: self.contents.get(made.digest, b""), WAIT)

    def hear(self, message: object) -> None:
        assert isinstance(message, WriteBack)
        self.said.append(message)

    def hold(self, index: int, size: int = 10) -> None:
        data = b"%d" % index * size if size <= PIECE else b""
        digest = blake2b(b"%d" % index, digest_size=DIGEST).digest()
        self.contents[digest] = data[:size]
        self.collector.hold((5, index), HeldOutputs(RecordId(1), index, 1, [MadeFile("/d/o", digest, size)]))

    def end(self, index: int, now: float, size: int = 10) -> None:
        self.hold(index, size)
        self.collector.reported((5, index), now)

    def look(self, now: float, *, idle: bool = False, hurry: bool = False) -> list[int]:
        """The elements that are sent then."""
        before = len(self.said)
        self.collector.send_if_due(now, idle=idle, hurry=hurry)
        return [one.index for message in self.said[before:] for one in message.tasks]


def test_what_comes_together_within_some_time_is_sent_together_with_its_contents() -> None:
    world = World()
    world.end(0, 0.0)
    world.end(1, 5.0)
    assert world.look(WAIT - 0.1) == []
    assert world.look(WAIT) == [0, 1]
    assert [one.along for one in world.said[0].tasks] == [[b"0" * 10], [b"1" * 10]]
    assert not world.collector.is_empty
    assert len(world.collector.answered(world.said[0].request)) == 2
    assert world.collector.is_empty


def test_nothing_is_sent_before_its_task_is_reported_and_what_never_is_goes() -> None:
    world = World()
    world.hold(0)
    assert world.look(100.0, hurry=True) == []
    assert world.collector.is_empty
    assert [one.index for one in world.collector.drop([(5, 0), (5, 9)])] == [0]
    world.collector.reported((5, 0), 0.0)
    assert world.look(100.0, hurry=True) == []


def test_an_executor_that_rests_or_leaves_waits_for_no_more() -> None:
    world = World()
    world.end(0, 0.0)
    assert world.look(SOON / 2, idle=True) == []
    assert world.look(SOON, idle=True) == [0]
    world.collector.answered(1)
    world.end(1, 1.0)
    assert world.look(1.0, hurry=True) == [1]


def test_enough_bytes_are_sent_at_once_two_messages_at_a_time() -> None:
    world = World()
    count = 4 * ENOUGH // PIECE
    for index in range(count):
        world.end(index, 0.0, PIECE)
    sent = world.look(0.0)
    assert len(world.said) == 2
    assert 0 < len(sent) < count
    assert world.look(100.0, hurry=True) == []  # the server is writing
    assert world.collector.answered(7) == []  # an answer to something else
    for request in range(1, 9):
        world.collector.answered(request)
        sent += world.look(0.0, hurry=True)
    assert sent == list(range(count))
    assert world.collector.is_empty


def test_what_comes_while_the_server_writes_is_gathered_until_it_has() -> None:
    world = World()
    world.end(0, 0.0)
    assert world.look(WAIT) == [0]
    world.end(1, WAIT)
    world.end(2, WAIT)
    assert world.look(100.0, hurry=True) == []
    world.collector.answered(1)
    assert world.look(100.0) == [1, 2]


def test_big_contents_are_not_sent_along_and_messages_have_so_many_tasks_at_most() -> None:
    world = World()
    world.end(0, 0.0, PIECE + 1)
    for index in range(1, MOST_GATHERED + 5):
        world.end(index, 0.0, 1)
    assert len(world.look(WAIT)) == MOST_GATHERED
    assert world.said[0].tasks[0].along == [b""]


def test_what_was_not_answered_is_said_again_when_the_server_is_back() -> None:
    world = World()
    world.collector.resume()
    world.end(0, 0.0)
    assert world.look(WAIT) == [0]
    world.collector.resume()
    assert world.said[0] == world.said[1]
    world.collector.answered(1)
    world.collector.resume()
    assert len(world.said) == 2
