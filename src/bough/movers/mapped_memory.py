"""Files as memory: maps that need no descriptor, and what is done with memory by its address.

Python's own `mmap` keeps a descriptor for each map, of which a process has but a thousand. The map of a file that is
locked keeps the lock when the descriptor is closed, and loses it with its process: so the kernel knows what is mapped.

Rule: nothing here holds the interpreter's lock while it works on bytes. A map lives as long as a view of it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

Pages = ctypes.Array[ctypes.c_char]
_POPULATE = 0x8000  # MAP_POPULATE: have the pages at hand at once
_MUCH = 8 << 20  # bytes for which a thread is worth its while
_THREADS = 4
_FAILED = ctypes.c_void_p(-1).value


class _Buffer(ctypes.Structure):
    """Python's own description of a buffer, `Py_buffer`."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_map, _unmap, _compare, _move = _libc.mmap, _libc.munmap, _libc.memcmp, _libc.memmove
_map.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_map.restype = ctypes.c_void_p
_unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_compare.argtypes = _move.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_move.restype = ctypes.c_void_p
_get, _release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
_get.argtypes, _get.restype = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int), ctypes.c_int
_release.argtypes, _release.restype = (ctypes.POINTER(_Buffer),), None


def map_pages(descriptor: int, size: int, *, is_writable: bool = False) -> Pages:
    """The first bytes of a file as memory, which other processes see; OSError when that is not possible.

    What is written must be there already: to write where the file has a hole may kill the process.
    """
    access = mmap.PROT_READ | mmap.PROT_WRITE if is_writable else mmap.PROT_READ
    address = _map(None, size, access, mmap.MAP_SHARED | (_POPULATE if is_writable else 0), descriptor, 0)
    if address in {None, _FAILED}:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    pages = (ctypes.c_char * size).from_address(address)
    weakref.finalize(pages, _unmap, address, size).atexit = False
    return pages


def part_of(pages: Pages, size: int, descriptor: int) -> Pages:
    """The beginning of a map, as one of its own; when nothing uses it any more, a descriptor is closed."""
    part = (ctypes.c_char * size).from_address(ctypes.addressof(pages))
    weakref.finalize(part, _close, descriptor, pages).atexit = False
    return part


def _close(descriptor: int, _pages: Pages) -> None:
    os.close(descriptor)


def read_only(pages: Pages) -> memoryview:
    """A view of a map that nobody can write through."""
    return memoryview(pages).cast("B").toreadonly()


def address_of(view: Any) -> int:
    """Where a buffer in one piece begins."""
    found = _Buffer()
    _get(view, ctypes.byref(found), 0)
    address = found.buf or 0
    _release(ctypes.byref(found))
    return int(address)


def are_same(one: Any, other: Any, size: int) -> bool:
    """Whether two buffers, both in one piece, begin with the same `size` bytes."""
    a, b = address_of(one), address_of(other)
    differences: list[int] = []

    def compare(start: int, count: int) -> None:
        if not differences and _compare(a + start, b + start, count):
            differences.append(start)

    _in_parts(compare, size)
    return not differences


def copy_into(pages: Any, view: Any, size: int) -> None:
    """Copy the first `size` bytes of a buffer into a map that is as long."""
    to, source = address_of(pages), address_of(view)
    _in_parts(lambda start, count: _move(to + start, source + start, count), size)


def _in_parts(work: Callable[[int, int], object], size: int) -> None:
    """Do something with memory: `work(start, count)` in several threads, if there is much of it."""
    parts = max(1, min(_THREADS, size // _MUCH))
    each = -(-size // parts)
    others = [
        threading.Thread(target=work, args=(start, min(each, size - start)), daemon=True)
        for start in range(each, size, each)
    ]
    for thread in others:
        thread.start()
    work(0, min(each, size))
    for thread in others:
        thread.join()
