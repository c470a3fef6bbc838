"""Files as memory: maps that need no descriptor, and what is done with memory by its address.

Python's own `mmap` keeps a descriptor for each map, of which a process has but a thousand. The map of a file that is
locked keeps the lock when the descriptor is closed, and loses it with its process: so the kernel knows what is mapped.

Rule: nothing here holds the interpreter's lock while it works on bytes. A map lives as long as a view of it.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import errno
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

Pages = ctypes.Array[ctypes.c_char]
_POPULATE = 0x8000  # MAP_POPULATE: have the pages at hand at once
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE: the same of a part, and say if there is not enough memory; Linux 5.14
_MUCH = 8 << 20  # bytes for which threads are worth their while
_LEAST, _PIECE = 2 << 20, 32 << 20  # bytes that one of them takes at a time: between pieces it needs the interpreter
_THREADS = 6  # more than most machines have cores to spare: on a busy one, who has more of them gets more
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
_map, _unmap, _compare, _move, _advise = _libc.mmap, _libc.munmap, _libc.memcmp, _libc.memmove, _libc.madvise
_map.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_map.restype = ctypes.c_void_p
_unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_compare.argtypes = _move.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_move.restype = ctypes.c_void_p
_get, _release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
_get.argtypes, _get.restype = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int), ctypes.c_int
_release.argtypes, _release.restype = (ctypes.POINTER(_Buffer),), None


def map_pages(descriptor: int, size: int, *, is_writable: bool = False, is_new: bool = False) -> Pages:
    """The first bytes of a file as memory, which other processes see; OSError when that is not possible.

    What is written must be there already: to write where the file has a hole may kill the process. A file that is new
    has nothing but that: it is filled by `copy_into`.
    """
    access = mmap.PROT_READ | mmap.PROT_WRITE if is_writable else mmap.PROT_READ
    flags = mmap.MAP_SHARED | (_POPULATE if is_writable and not is_new else 0)
    address = _map(None, size, access, flags, descriptor, 0)
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


def copy_into(pages: Any, view: Any, size: int, at: int = 0, *, is_new: bool = False) -> None:
    """Copy the first `size` bytes of a buffer into a map, which goes on at least as far, from byte `at` on.

    The memory of a file that is new is taken piece by piece; OSError when there is not enough (ENOSPC), or when the
    system cannot do that (EINVAL).
    """
    to, source = address_of(pages) + at, address_of(view)
    problems: list[int] = []

    def copy(start: int, count: int) -> None:
        if is_new and not problems and (problem := _take_memory(to + start, count)):
            problems.append(problem)
        if not problems:
            _move(to + start, source + start, count)

    _in_parts(copy, size)
    if problems:
        raise OSError(problems[0], os.strerror(problems[0]))


def _take_memory(address: int, count: int) -> int:
    """Have memory behind a part of a map; 0, or the number of an error."""
    begin = address - address % mmap.PAGESIZE
    if not _advise(begin, address + count - begin, _POPULATE_WRITE):
        return 0
    problem = ctypes.get_errno()
    return errno.ENOSPC if problem == errno.EFAULT else problem  # EFAULT: to write there would kill the process


def _in_parts(work: Callable[[int, int], object], size: int) -> None:
    """Do something with memory: `work(start, count)` for its pieces, in several threads if there is much of it.

    Each thread takes the next piece when it is done with one. So nobody waits for a thread that the system did not let
    run yet, as it may be on a busy machine.
    """
    if size < _MUCH:
        work(0, size)
        return
    most = min(_PIECE, max(_LEAST, -(-size // _THREADS)))
    pieces = iter(range(0, size, most))
    changed = threading.Condition()
    helping, is_over = 0, False

    def do_pieces() -> None:
        for start in pieces:
            work(start, min(most, size - start))

    def help_out() -> None:
        nonlocal helping
        with changed:
            if is_over:
                return
            helping += 1
        try:
            do_pieces()
        finally:
            with changed:
                helping -= 1
                changed.notify()

    for _ in range(min(_THREADS, size // most) - 1):
        with contextlib.suppress(RuntimeError):  # the system has no more threads for us
            _thread.start_new_thread(help_out, ())
    do_pieces()
    with changed:
        is_over = True
        while helping:
            changed.wait()
