"""The executor's registry of descriptors: which descriptor belongs to what, and what to call when it is ready.

The server's connection, the workers and their processes, the socket of running tasks and the signal pipe are all
registered here, and so is the watcher. Rule: a handler is called only for the descriptor that it was registered with,
also when a handler before it in the same round closed that descriptor and its number was used again.
"""

from __future__ import annotations

import select
from collections.abc import Callable

Handler = Callable[[], object]

_READ = select.EPOLLIN
_READ_WRITE = select.EPOLLIN | select.EPOLLOUT


class Descriptors:
    """One epoll, and a handler for every descriptor in it."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}

    def add(self, fd: int, handler: Handler) -> None:
        """Call `handler` whenever there is something to read."""
        self._epoll.register(fd, _READ)
        self._handlers[fd] = handler

    def want_write(self, fd: int, wanted: bool) -> None:
        """Call its handler also when it can be written, or no longer; nothing happens if it is not registered."""
        if fd in self._handlers:
            self._epoll.modify(fd, _READ_WRITE if wanted else _READ)

    def __contains__(self, fd: int) -> bool:
        """Whether it is registered."""
        return fd in self._handlers

    def remove(self, fd: int) -> None:
        """Forget a descriptor that is still open; nothing happens if it is not registered."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def wait(self, seconds: float) -> None:
        """Wait until something is ready, for at most so long, and call the handlers."""
        handlers = self._handlers
        ready = self._epoll.poll(seconds)
        if len(ready) == 1:  # nearly always
            handlers[ready[0][0]]()
            return
        for fd, handler in [(fd, handlers[fd]) for fd, _ in ready]:
            if handlers.get(fd) is handler:
                handler()

    def close(self) -> None:
        """Watch nothing any more; what is still registered need not be removed."""
        self._handlers.clear()
        self._epoll.close()
