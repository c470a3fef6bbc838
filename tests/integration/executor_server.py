"""A server made of one plain socket, which drives a real executor process and remembers what it says."""

from __future__ import annotations

import hashlib
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from bough.model.commands.command import CommandCall, CommandSettings, encode_call
from bough.model.events.news import CallsEnded, WorkFailed, WorkReturned, WorkSucceeded
from bough.model.ids import BlobId, RecordId, SpanId
from bough.model.outcomes import ResultFile
from bough.model.tasks import Kind
from bough.wire.client_messages import VERSION, Blob
from bough.wire.executor_messages import Acknowledged, ExecutorHello, ExecutorWelcome, Report, RunSpan
from bough.wire.framing import Frames, frame_list, server_frames

PATIENCE = 120.0  # seconds; a watcher has a low priority
BASH = ("/bin/bash", "-eo", "pipefail", "-c")


class Server:
    """Speaks to one executor, and remembers what it says."""

    def __init__(self, folder: Path, cores: float = 2, embedded: bool = True, hear: bool = True, *words: str) -> None:
        self.folder = folder
        self.hear = hear
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "s"))
        self.listener.listen()
        argv = [sys.executable, "-m", "bough.executor", "--server", f"unix:{folder / 's'}", "--cores", str(cores)]
        self.process = subprocess.Popen([*argv, *words], cwd=folder, stdin=subprocess.DEVNULL)
        self.news: list[Any] = []  # ends that came together, apart
        self.said: list[Any] = []
        self.spans = 0
        self.embedded = embedded
        self.accept()

    def accept(self) -> None:
        self.listener.settimeout(PATIENCE)
        self.sock, _ = self.listener.accept()
        self.sock.settimeout(PATIENCE)
        self.frames: Frames[Any] = server_frames()
        self.until(lambda: any(isinstance(said, ExecutorHello) for said in self.said))
        out, results, spill = (str(self.folder / name) for name in ("out", "results", "spill"))
        self.send(ExecutorWelcome(VERSION, 7, out, results, spill, "marker-1", self.embedded))

    def send(self, *messages: object) -> None:
        self.sock.settimeout(PATIENCE)
        self.sock.sendall(frame_list(messages))

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            left = end - time.monotonic()
            assert left > 0, f"waited too long; heard {self.news[-20:]}"
            self.sock.settimeout(min(left, 0.02))
            try:
                data = self.sock.recv(1 << 20)
            except TimeoutError:
                continue
            assert data, "the executor hung up"
            self.take(data)

    def take(self, data: bytes) -> None:
        for message in self.frames.feed(data):
            self.said.append(message)
            if isinstance(message, Report):
                for news in message.news:
                    self.news += _apart(news) if isinstance(news, CallsEnded) else [news]
                if self.hear:
                    self.send(Acknowledged(message.number))

    def blob(self, data: bytes) -> BlobId:
        name = BlobId(hashlib.blake2b(data, digest_size=16).digest())
        self.send(Blob(name, data))
        return name

    def span(self) -> SpanId:
        self.spans += 1
        return SpanId(self.spans)

    def call(self, fn: Any, *args: Any, **settings: Any) -> SpanId:
        span = self.span()
        body = self.blob(cloudpickle.dumps(fn))
        payload = pickle.dumps((args, settings.pop("kwargs", {})))
        self.send(
            RunSpan(
                span,
                RecordId(span + 100),
                0,
                1,
                settings.pop("attempt", 1),
                Kind.FUNCTION,
                body,
                payload=payload,
                **settings,
            )
        )
        return span

    def together(self, fn: Any, *payloads: bytes, **settings: Any) -> list[SpanId]:
        """Like calls as one hand-out."""
        spans = [self.span() for _ in payloads]
        records = [RecordId(span + 100) for span in spans]
        body = self.blob(cloudpickle.dumps(fn))
        batch = list(zip(records[1:], payloads[1:], strict=True))
        lead = {"payload": payloads[0], "batch": batch}
        self.send(RunSpan(spans[0], records[0], 0, 1, 1, Kind.FUNCTION, body, **lead, **settings))
        return spans

    def map(self, fn: Any, table: Any, **settings: Any) -> SpanId:
        span = self.span()
        body, rows = self.blob(cloudpickle.dumps(fn)), self.blob(pickle.dumps(table))
        stop = settings.pop("stop", len(table))
        start = settings.pop("start", 0)
        attempt = settings.pop("attempt", 1)
        self.send(
            RunSpan(span, RecordId(span + 100), start, stop, attempt, Kind.FUNCTION, body, True, table=rows, **settings)
        )
        return span

    def command(
        self, text: str | list[str], *, writes: dict[str, str] | None = None, parts: Any = None, **settings: Any
    ) -> SpanId:
        span = self.span()
        own = {name: settings.pop(name) for name in ("env", "stdin", "stdin_path") if name in settings}
        cwd = settings.pop("cwd", str(self.folder))
        if isinstance(text, list):
            call = CommandCall(CommandSettings(cwd, **own), argv=[[word] for word in text], writes=writes or {})
        else:
            call = CommandCall(CommandSettings(cwd, BASH, **own), parts=parts or [text], writes=writes or {})
        attempt = settings.pop("attempt", 1)
        self.send(
            RunSpan(
                span,
                RecordId(span + 100),
                0,
                1,
                attempt,
                Kind.COMMAND,
                BlobId(b""),
                payload=encode_call(call),
                **settings,
            )
        )
        return span

    # --- what was heard ---

    def ended(self, span: SpanId) -> list[Any]:
        return [n for n in self.news if isinstance(n, WorkSucceeded | WorkFailed | WorkReturned) and n.span == span]

    def count(self, span: SpanId) -> int:
        return sum(n.stop - n.start if isinstance(n, WorkSucceeded | WorkReturned) else 1 for n in self.ended(span))

    def wait(self, span: SpanId, count: int = 1) -> list[Any]:
        self.until(lambda: self.count(span) >= count)
        return self.ended(span)

    def values(self, span: SpanId, count: int = 1) -> list[Any]:
        found: list[Any] = []
        for news in self.wait(span, count):
            assert isinstance(news, WorkSucceeded), news
            data = Path(news.results.path).read_bytes() if isinstance(news.results, ResultFile) else news.results
            assert isinstance(data, bytes)
            found += pickle.loads(data)
        return found

    def failure(self, span: SpanId) -> WorkFailed:
        news = self.wait(span)[0]
        assert isinstance(news, WorkFailed), news
        return news

    def end(self) -> None:
        self.sock.close()
        self.listener.close()
        try:
            self.process.wait(PATIENCE)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def _apart(news: CallsEnded) -> list[WorkSucceeded]:
    ends = zip(news.seconds, news.results, strict=True)
    return [WorkSucceeded(SpanId(span), 0, 1, *end) for span, end in enumerate(ends, news.span + news.start)]
