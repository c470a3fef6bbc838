"""A folder as one content: an archive that is the same, byte for byte, for the same files.

`pack` writes it, `unpack` makes a folder of it again, `archive_digest` names it without writing it anywhere. It is a
tar file with the members in order of their names, without owners and times; of modes only the right to execute stays.

Rules: nothing outside of the target is written, whatever an archive says: a member has a plain relative name, is a
file, a folder or a link, and never lies behind a link, since links are made last. A link stays one if it leads to
something inside; one to a file outside travels as that file. Anything else, such as a device, is an error.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import IO, NamedTuple, Protocol

from bough.errors import SiteError
from bough.wire.file_messages import DIGEST, PIECE

_FILE, _PROGRAM, _FOLDER = 0o644, 0o755, 0o755
_FILES = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE})


class BadArchive(SiteError):
    """An archive that cannot be unpacked: damaged, or with a member that would leave the folder."""


class UnpackableFolder(SiteError):
    """A folder with something in it that cannot travel; the message names it."""


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class PackedFolder(NamedTuple):
    """The name of an archive."""

    digest: bytes
    size: int


# --- packing --------------------------------------------------------------------------------------------


class _Digesting:
    """Counts and digests what passes; writes it on if there is somewhere to."""

    def __init__(self, sink: _Sink | None) -> None:
        self._sink = sink
        self._sum = blake2b(digest_size=DIGEST)
        self.size = 0

    def write(self, data: bytes) -> int:
        self._sum.update(data)
        self.size += len(data)
        if self._sink is not None:
            self._sink.write(data)
        return len(data)

    def packed(self) -> PackedFolder:
        return PackedFolder(self._sum.digest(), self.size)


def pack(folder: str, sink: _Sink | None) -> PackedFolder:
    """Write the archive of a folder to something that has `write`; UnpackableFolder or OSError when that cannot be."""
    out = _Digesting(sink)
    with tarfile.open(mode="w|", fileobj=out, format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:  # type: ignore[call-overload]
        for name, path in _entries(folder):
            _add(tar, folder, name, path)
    return out.packed()


def pack_file(folder: str, path: str) -> PackedFolder:
    """Write the archive of a folder to a new file."""
    with open(path, "xb") as file:
        return pack(folder, file)


def archive_digest(folder: str) -> PackedFolder:
    """What the archive of a folder is called."""
    return pack(folder, None)


def _entries(folder: str) -> Iterator[tuple[str, str]]:
    """All below a folder, in order, each folder before what is in it: (relative name, path)."""
    stack = [("", folder)]
    while stack:
        name, path = stack.pop()
        if name:
            yield name, path
        if not name or stat.S_ISDIR(os.lstat(path).st_mode):
            inside = sorted(os.listdir(path), key=os.fsencode, reverse=True)
            stack += [(f"{name}/{one}" if name else one, f"{path}/{one}") for one in inside]


def _add(tar: tarfile.TarFile, folder: str, name: str, path: str) -> None:
    state = os.lstat(path)
    info = tarfile.TarInfo(name)
    if stat.S_ISLNK(state.st_mode):
        target = os.readlink(path)
        if stays_inside(name, target):
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
            tar.addfile(info)
            return
        try:
            state = os.stat(path)
        except OSError:
            raise UnpackableFolder(f"{path} leads out of {folder}, to {target}, where nothing is") from None
        if not stat.S_ISREG(state.st_mode):
            raise UnpackableFolder(f"{path} leads out of {folder}, to {target}, which is no file")
    if stat.S_ISDIR(state.st_mode):
        info.type, info.mode = tarfile.DIRTYPE, _FOLDER
        tar.addfile(info)
        return
    if not stat.S_ISREG(state.st_mode):
        raise UnpackableFolder(f"{path} is neither a file nor a folder and cannot travel")
    with open(path, "rb") as file:
        state = os.fstat(file.fileno())
        info.size = state.st_size
        info.mode = _PROGRAM if state.st_mode & 0o111 else _FILE
        try:
            tar.addfile(info, file)
        except OSError as error:
            if error.errno is None:  # tarfile's own word: it became shorter while it was read
                raise UnpackableFolder(f"{path} changed while it was read") from error
            raise


def stays_inside(name: str, target: str) -> bool:
    """Whether a link of that relative name leads to something inside, whatever other such links there are.

    Steps up stand at its beginning only, for behind a link a step up leads from where that link leads to.
    """
    if not target or target.startswith("/") or "\0" in target:
        return False
    depth = name.count("/")
    down = False
    for piece in target.split("/"):
        if piece == "..":
            depth -= 1
            if down or depth < 0:
                return False
        elif piece not in {"", "."}:
            down = True
    return True


# --- unpacking ------------------------------------------------------------------------------------------


def unpack(source: IO[bytes], target: str, *, any_links: bool = False, times: bool = False) -> None:
    """Make a folder of an archive; the target is not there yet, and when this fails it may be there in parts.

    Archives of other makers (environments) may be compressed, have links to anywhere (`any_links`), and their times
    count (`times`: files that were compiled name that of their source).
    """
    os.mkdir(target, _FOLDER)
    work = _Unpacking(target, any_links=any_links, times=times)
    try:
        with tarfile.open(mode="r|*", fileobj=source, encoding="utf-8") as tar:
            for member in tar:
                work.take(tar, member)
    except (tarfile.TarError, EOFError, UnicodeError, ValueError, zlib.error) as error:
        raise BadArchive(f"the archive cannot be read: {error}") from error
    except OSError as error:
        if error.errno is None:  # what the readers of compressed files say
            raise BadArchive(f"the archive cannot be read: {error}") from error
        raise
    work.finish()


class _Unpacking:
    """A folder that is being made of an archive."""

    def __init__(self, target: str, *, any_links: bool, times: bool) -> None:
        self._target = target
        self._any_links = any_links
        self._times = times
        self._folders = {""}
        self._others: set[str] = set()  # names that are no folders
        self._links: dict[str, str] = {}
        self._hard: dict[str, str] = {}

    def take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """The next member."""
        name = _plain(member.name)
        if member.isdir():
            if name in self._others:
                raise BadArchive(f"the archive has {name!r:.80} twice")
            self._make_folders(name)
            return
        if not name or name in self._others or name in self._folders:
            raise BadArchive(f"the archive has {name!r:.80} twice, or without a name")
        self._make_folders(name.rpartition("/")[0])
        self._others.add(name)
        if member.issym():
            if not member.linkname or "\0" in member.linkname:
                raise BadArchive(f"the archive has a link {name!r:.80} that leads nowhere")
            if not self._any_links and not stays_inside(name, member.linkname):
                raise BadArchive(f"the archive has a link {name!r:.80} that leads out of it")
            self._links[name] = member.linkname
        elif member.islnk() and self._any_links:
            self._hard[name] = _plain(member.linkname)
        elif member.type in _FILES:
            _extract(tar, member, f"{self._target}/{name}", times=self._times)
        else:
            raise BadArchive(f"the archive has {name!r:.80}, which is neither a file nor a folder nor a link")

    def _make_folders(self, name: str) -> None:
        missing: list[str] = []
        while name not in self._folders:
            if name in self._others:
                raise BadArchive(f"the archive has something behind {name!r:.80}, which is no folder")
            missing.append(name)
            name = name.rpartition("/")[0]
        for one in reversed(missing):
            os.mkdir(f"{self._target}/{one}", _FOLDER)
            self._folders.add(one)

    def finish(self) -> None:
        """Make the links, behind which nothing is written any more."""
        for name, other in self._hard.items():
            if other not in self._others or other in self._links or other in self._hard:
                raise BadArchive(f"the archive has {name!r:.80}, a link to {other!r:.80}, which it has not")
            os.link(f"{self._target}/{other}", f"{self._target}/{name}", follow_symlinks=False)
        for name, leads_to in self._links.items():
            os.symlink(leads_to, f"{self._target}/{name}")


def _plain(name: str) -> str:
    """A relative name without steps; BadArchive when it is something else."""
    tidy = name.removeprefix("./").rstrip("/")
    if not tidy or tidy == ".":
        return ""
    if name.startswith("/") or "\0" in name or any(piece in {"", ".", ".."} for piece in tidy.split("/")):
        raise BadArchive(f"the archive has {name!r:.80}, which would leave the folder")
    return tidy


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, *, times: bool) -> None:
    data = tar.extractfile(member)
    if data is None:
        raise BadArchive(f"the archive has {member.name!r:.80} without its bytes")
    mode = _PROGRAM if member.mode & 0o111 else _FILE
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with open(number, "wb") as file:
        left = member.size
        while left:
            piece = data.read(min(PIECE, left))
            if not piece:
                raise BadArchive(f"the archive ends inside of {member.name!r:.80}")
            file.write(piece)
            left -= len(piece)
    if times:
        os.utime(path, (member.mtime, member.mtime))


class _Reading:
    """A content that is read piece by piece, as a file; compared with its digest at its end."""

    def __init__(self, read: Callable[[int], bytes], digest: bytes) -> None:
        self._read = read
        self._wanted = digest
        self._sum = blake2b(digest_size=DIGEST)
        self._left = memoryview(b"")  # of the piece at hand
        self._at = 0

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not self._left:
                piece = self._read(self._at)
                if not piece:
                    break
                self._sum.update(piece)
                self._at += len(piece)
                self._left = memoryview(piece)
            taken = self._left[: size - len(data)]
            self._left = self._left[len(taken) :]
            data += taken
        return data

    def drain(self) -> None:
        """Read what a reader of the archive has no use for."""
        while self.read(PIECE):
            pass

    @property
    def is_right(self) -> bool:
        return self._sum.digest() == self._wanted


def unpack_pieces(read: Callable[[int], bytes], digest: bytes, target: str) -> None:
    """Make a folder of a content that comes in pieces: `read` gives the one at an offset, empty at the end.

    OSError when it is not what its digest says: then the folder must not be used.
    """
    source = _Reading(read, digest)
    unpack(source, target)  # type: ignore[arg-type]
    source.drain()
    if not source.is_right:
        raise OSError(errno.EIO, "the archive is not what was announced", target)


def unpack_file(archive: str, target: str, *, any_links: bool = False, times: bool = False) -> None:
    """Make a folder of an archive that is a file."""
    with open(archive, "rb") as file:
        unpack(file, target, any_links=any_links, times=times)


def replace_folder(hidden: str, path: str) -> None:
    """Put a complete folder into its place; one that is there, or a file, goes."""
    try:
        os.rename(hidden, path)
    except OSError:
        from bough.private import remove_tree  # few folders are replaced

        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        else:
            os.unlink(path)
        os.rename(hidden, path)
