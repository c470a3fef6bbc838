"""Frames: however bytes are cut, the messages come out whole; anything else is a protocol error."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.errors import ProtocolError
from bough.model import facts
from bough.model.outcomes import Cause, Detail, Failure, Output, ResultFile, Stream
from bough.model.resources import Needs
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Kind, Limits, On, Page, Reuse, TaskSpec
from bough.wire import framing, messages
from bough.wire.framing import Frames, frame, frame_list, server_frames, to_client_frames, to_executor_frames

HELLO = messages.ClientHello(1, 42, "host", owner=True)
CHAT: list[object] = [HELLO, messages.Subscribe(), messages.Ask(1, "status"), messages.Close("now")]
UNION = messages.FromClient | messages.FromExecutor


def test_a_message_comes_out_as_it_went_in() -> None:
    assert server_frames().feed(frame(HELLO)) == [HELLO]


def test_a_frame_is_a_length_and_a_list() -> None:
    data = frame(HELLO)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert isinstance(msgspec.msgpack.decode(data[4:]), list)
    assert frame_list([HELLO]) == data


def test_a_stream_may_be_cut_at_every_byte() -> None:
    data = bytes(frame(*CHAT[:2]) + frame(CHAT[2]) + frame(CHAT[3]))
    for cut in range(len(data) + 1):
        frames = server_frames()
        assert frames.feed(data[:cut]) + frames.feed(data[cut:]) == CHAT


def test_a_stream_may_come_byte_by_byte() -> None:
    frames = server_frames()
    data = bytes(frame(*CHAT))
    assert [m for byte in data for m in frames.feed(bytes((byte,)))] == CHAT


def test_many_messages_in_many_frames_come_in_order() -> None:
    many = [messages.Accepted(n) for n in range(5000)]
    data = b"".join(bytes(frame(*many[n : n + 7])) for n in range(0, 5000, 7))
    frames = to_client_frames()
    found = [m for at in range(0, len(data), 1009) for m in frames.feed(data[at : at + 1009])]
    assert found == many


def test_an_empty_frame_says_nothing() -> None:
    frames = server_frames()
    assert frames.feed(frame()) == []
    assert frames.feed(b"") == []
    assert frames.feed(frame(HELLO)) == [HELLO]


def test_views_and_bytearrays_are_taken_and_not_kept() -> None:
    buffer = bytearray(frame(HELLO))
    frames = server_frames()
    assert frames.feed(memoryview(buffer)[:6]) == []
    buffer[:6] = b"XXXXXX"
    assert frames.feed(memoryview(buffer)[6:]) == [HELLO]


def test_bytes_of_a_message_do_not_change_with_the_buffer() -> None:
    frames = to_executor_frames()
    (blob,) = frames.feed(frame(messages.Blob(b"i" * 16, b"data" * 100)))  # type: ignore[arg-type]
    frames.feed(frame(messages.Blob(b"j" * 16, b"other" * 100)))  # type: ignore[arg-type]
    assert blob.data == b"data" * 100  # type: ignore[union-attr]


def test_a_frame_over_the_limit_is_refused_before_it_has_come() -> None:
    frames: Frames[object] = Frames(UNION, limit=100)
    with pytest.raises(ProtocolError, match="a frame of 101 bytes is over the limit of 100"):
        frames.feed((101).to_bytes(4, "big"))
    fine = frame(HELLO)
    assert Frames(UNION, limit=len(fine) - 4).feed(fine) == [HELLO]


def test_a_message_over_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_FRAME", 50)
    with pytest.raises(ProtocolError, match=r"a message of \d+ bytes is over the limit of 50"):
        frame(messages.Blob(b"i" * 16, b"x" * 100))  # type: ignore[arg-type]


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"GET / HTTP/1.1\r\n",
        msgspec.msgpack.encode("text"),
        msgspec.msgpack.encode(["ch", 1, 2, "h"]),  # a message without its list
        msgspec.msgpack.encode([["nonsense", 1]]),
        msgspec.msgpack.encode([["ch", "one", 2, "h"]]),
        msgspec.msgpack.encode([["ch"]]),
        msgspec.msgpack.encode([{"a": 1}]),
        msgspec.msgpack.encode([["wel", 1, 1, 1, 1, "store"]]),  # lawful, but not from this side
        bytes(frame(HELLO)[4:-1]),
        bytes(frame(HELLO)[4:]) + b"\x00",
    ],
)
def test_garbage_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="a frame could not be read: "):
        server_frames().feed(sized(body))


@given(st.binary(max_size=300))
def test_random_bytes_are_messages_a_wait_or_a_protocol_error(data: bytes) -> None:
    for frames in (server_frames(), to_client_frames(), to_executor_frames()):
        for body in (data, sized(data)):
            try:
                assert isinstance(frames.feed(body), list)
            except ProtocolError:
                break


def test_a_peer_of_a_later_version_may_say_more() -> None:
    longer = msgspec.msgpack.encode([["bye", "drain", "and a new field"]])
    assert server_frames().feed(sized(longer)) == [messages.Close("drain")]


def test_http_is_recognised_as_garbage_by_its_length() -> None:
    with pytest.raises(ProtocolError, match="over the limit"):
        server_frames().feed(b"GET / HTTP/1.1\r\n")


# --- round trips --------------------------------------------------------------------------------------

small = st.integers(0, 2**31)
times = st.floats(0, 1e12, allow_nan=False)
words = st.text(max_size=12)
chunks = st.binary(max_size=40)
maybe = st.none()


def struct(kind: type, /, **fields: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.builds(kind, **fields)


def tuples(of: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(of, max_size=3).map(tuple)


needs_ = struct(Needs, cores=times, memory=small, gpus=times, named=tuples(st.tuples(words, times)))
limits_ = struct(Limits, timeout=times, memory=small, retries=small, backoff=times, walltime=times, losses=small)
deps = struct(Dep, on=st.sampled_from(On), id=small, index=small)
pages = struct(Page, start=small, stop=small, data=chunks)
failures = struct(
    Failure,
    cause=st.sampled_from(Cause),
    message=words,
    exit_code=maybe | small,
    signal=maybe | small,
    error=chunks,
    stderr=words,
    source=small,
)
streams = struct(Stream, path=words, offset=small, length=small)
outputs = struct(Output, slot=words, path=words, size=small, mtime_ns=small)
details = struct(
    Detail,
    index=small,
    exit_code=small,
    started=times,
    stdout=maybe | streams,
    stderr=maybe | streams,
    outputs=tuples(outputs),
)
files = struct(ResultFile, path=words, size=small)
results = maybe | chunks | files
tasks = struct(
    TaskSpec,
    id=small,
    kind=st.sampled_from(Kind),
    body=chunks,
    payload=chunks,
    group=small,
    name=words,
    needs=needs_,
    limits=limits_,
    priority=st.integers(-9, 9),
    after=tuples(deps),
    inputs=tuples(deps),
    key=chunks,
    writes=tuples(words),
)
arrays = struct(
    ArraySpec,
    id=small,
    kind=st.sampled_from(Kind),
    body=chunks,
    length=small,
    table=chunks,
    pages=tuples(pages),
    star=st.booleans(),
    after=tuples(deps),
    element_after=tuples(st.tuples(small, tuples(deps))),
    reuse=tuples(struct(Reuse, start=small, stop=small, source=small, source_start=small)),
    open=st.booleans(),
)
groups = struct(GroupSpec, id=small, name=words, parent=small, after=tuples(deps))
deeds = st.one_of(
    *(struct(kind, target=deps, stop=small) for kind in (facts.Cancelled, facts.Killed, facts.Held, facts.Retried)),
    struct(facts.Prioritised, target=deps, priority=st.integers(-9, 9)),
)
ended = struct(
    facts.SpanEnded, span=small, start=small, stop=small, seconds=times, results=results, details=tuples(details)
)
failed = struct(facts.ElementFailed, span=small, index=small, failure=failures, detail=maybe | details)
moved = st.one_of(*(struct(k, span=small, start=small, stop=small) for k in (facts.SpanStarted, facts.SpanReturned)))
blobs = struct(messages.Blob, id=chunks, data=chunks)
refused = struct(messages.Refused, message=words, request=small, kind=words)

to_server = st.one_of(
    struct(messages.ClientHello, version=small, pid=small, host=words, owner=st.booleans()),
    blobs,
    struct(messages.Submit, items=st.lists(tasks | arrays | groups, max_size=3), request=small),
    struct(facts.PagesAdded, record=small, pages=st.lists(pages, max_size=2), last=st.booleans(), request=small),
    struct(facts.GroupClosed, group=small),
    st.just(messages.Subscribe()),
    struct(
        messages.Ask, request=small, what=words, arguments=st.dictionaries(words, small | words | chunks, max_size=2)
    ),
    struct(messages.Act, request=small, deed=deeds),
    struct(messages.Close, how=words),
    struct(messages.ExecutorHello, version=small, site=words, host=words, pid=small, capacity=needs_, python=words),
    struct(messages.Report, number=small, news=st.lists(ended | failed | moved, max_size=3)),
    st.just(messages.Alive()),
)
to_client = st.one_of(
    struct(messages.Welcome, version=small, run=small, first_id=small, first_group=small, store=words),
    refused,
    struct(messages.Accepted, request=small),
    struct(
        messages.Outcome, record=small, start=small, stop=small, attempt=small, results=results, details=tuples(details)
    ),
    struct(
        messages.Unsuccess,
        record=small,
        start=small,
        stop=small,
        attempt=small,
        failure=failures,
        detail=maybe | details,
    ),
    struct(messages.Running, record=small, start=small, stop=small, attempt=small, host=words),
    struct(messages.GroupDone, group=small, failed=st.booleans()),
    struct(messages.Answer, request=small, value=maybe | small | words | st.lists(words, max_size=2)),
    struct(messages.Notice, text=words),
    struct(messages.Closed, reason=words),
)
values = struct(
    messages.Value,
    start=small,
    stop=small,
    pages=st.lists(st.tuples(small, small, chunks | files), max_size=2),
    single=st.booleans(),
)
to_executor = st.one_of(
    struct(
        messages.Appointed,
        version=small,
        executor=small,
        output_dir=words,
        result_dir=words,
        spill_dir=words,
        marker=words,
        embedded=st.booleans(),
    ),
    refused,
    blobs,
    struct(
        messages.Run,
        span=small,
        record=small,
        start=small,
        stop=small,
        attempt=small,
        kind=st.sampled_from(Kind),
        body=chunks,
        payload=chunks,
        pages=tuples(pages),
        needs=needs_,
        limits=limits_,
        inputs=st.lists(values, max_size=2),
        expected=times,
    ),
    struct(messages.Stop, span=small, start=small, stop=small, grace=times),
    struct(messages.Heard, number=small),
    struct(messages.Leave, grace=times),
)


@pytest.mark.parametrize(
    ("union", "said"),
    [(UNION, to_server), (messages.ToClient, to_client), (messages.ToExecutor, to_executor)],
    ids=["to server", "to client", "to executor"],
)
@given(data=st.data())
def test_what_is_said_is_heard(union: object, said: st.SearchStrategy[object], data: st.DataObject) -> None:
    chat = data.draw(st.lists(said, max_size=4))
    wire = bytes(b"".join(frame(message) for message in chat[:2]) + frame(*chat[2:]))
    cut = data.draw(st.integers(0, len(wire)))
    frames: Frames[object] = Frames(union)
    assert frames.feed(wire[:cut]) + frames.feed(wire[cut:]) == chat


def test_every_kind_of_message_takes_part_in_the_round_trip() -> None:
    for union, said in [(UNION, to_server), (messages.ToClient, to_client), (messages.ToExecutor, to_executor)]:
        kinds = set(union.__args__)  # type: ignore[attr-defined]
        source = {name for name in vars(messages) if isinstance(getattr(messages, name), type)}
        assert {kind.__name__ for kind in kinds} <= source | {"PagesAdded", "GroupClosed"}
        assert len(kinds) == len(said.element_strategies)  # type: ignore[attr-defined]
