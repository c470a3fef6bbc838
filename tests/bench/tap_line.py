"""A line with a delay between two network namespaces: frames that come in on one side go out on the other one later.

python tap_line.py NAMESPACE ADDRESS NAMESPACE ADDRESS MILLISECONDS [LOSS]

Where the kernel has no delaying queue (`netem`) this is the real thing all the same: TCP with its windows, its
acknowledgements and TLS on top runs over it. LOSS is the part of the frames, in percent, that get lost either way: each
by dice of its own, from a seed. It needs root and /dev/net/tun, and says "up" when both ends are.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from random import Random

NAME = "line0"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_TAP = 0x0002 | 0x1000  # Ethernet frames, without a header of the driver's own
_AT_ONCE = 64  # frames that are read before others are looked after
_libc = ctypes.CDLL(None, use_errno=True)


def tap(namespace: str, address: str) -> int:
    """Make the end of the line in a namespace; this process itself comes back to its own."""
    with open("/proc/self/ns/net") as ours, open(f"/var/run/netns/{namespace}") as theirs:
        _enter(theirs.fileno())
        try:
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", NAME.encode(), _TAP))
        finally:
            _enter(ours.fileno())
    for words in (["addr", "add", address, "dev", NAME], ["link", "set", NAME, "up", "txqueuelen", "10000"]):
        subprocess.run(["ip", "-n", namespace, *words], check=True)
    return end


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "a network namespace cannot be entered")


def carry(one: int, other: int, delay: float, loss: float) -> None:
    """Pass frames on, each after the delay, in order, for ever."""
    dice = Random(1)
    waiting: dict[int, deque[tuple[float, bytes]]] = {one: deque(), other: deque()}  # by where they go
    far = {one: other, other: one}
    while True:
        due = min((frames[0][0] for frames in waiting.values() if frames), default=None)
        patience = None if due is None else max(0.0, due - time.monotonic())
        for end in select.select([one, other], [], [], patience)[0]:
            for _ in range(_AT_ONCE):
                try:
                    frame = os.read(end, 1 << 16)
                except BlockingIOError:
                    break
                if not loss or dice.random() >= loss:
                    waiting[far[end]].append((time.monotonic() + delay, frame))
        now = time.monotonic()
        for end, frames in waiting.items():
            while frames and frames[0][0] <= now:
                try:
                    os.write(end, frames.popleft()[1])
                except OSError:  # its queue is full: a lost frame, as on any line
                    continue


def main() -> None:
    one, its, other, others, milliseconds, *loss = sys.argv[1:]
    ends = tap(one, its), tap(other, others)
    print("up", flush=True)
    carry(*ends, float(milliseconds) / 1e3, float(loss[0]) / 100 if loss else 0.0)


if __name__ == "__main__":
    main()
