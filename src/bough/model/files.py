"""Declared files of a task: the manifest of an array, absolute and hidden names, and places in a sandbox.

A manifest lists what the elements of a command array read and write. A server cannot know these from the array itself,
because it never unpickles rows. In a sandbox the submitter's directory is the sandbox itself, and files from outside
of it lie in one folder of the sandbox.
Rule: only files that a client declared, in a manifest or in a loose command's call, travel; the server checks the paths
that executors name against them. Whatever a path says, its place is inside of the sandbox; only absolute paths without
dots and doubled slashes have one.
"""

from __future__ import annotations

import functools
import itertools
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from bough.errors import BadValue, InvalidWorkload
from bough.model.bounds import LONGEST_PATH, FilePath, shown
from bough.model.ids import ROOT, FileId, GroupId

OUTSIDE: Final = ".outside"  # the folder of a sandbox for files from outside of the submitter's directory
_MOST: Final = 1 << 30  # bytes of an unpacked manifest
_SECOND: Final = 1_000_000_000  # in nanoseconds
_TICK: Final = _SECOND // 20  # as long as a file may be written again without another time


class FileSpec(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A file that tasks of a workflow declare."""

    id: FileId
    path: FilePath  # absolute, at the submitter
    group: GroupId = ROOT  # of its workflow
    written: bool = False  # a task declares it as an output


class Manifest(msgspec.Struct, frozen=True):
    """The files that the elements of an array declare, by absolute path."""

    reads: dict[str, bytes]  # path -> digest of its content, if it was sent to the server
    writes: set[str]
    folders: set[str] = set()  # those that were sent as the archive of a folder
    patterns: set[str] = set()  # of outputs whose names are known only when they are there

    def may_write(self, path: str) -> bool:
        """Whether a path is declared as an output."""
        return path in self.writes or any(matches(path, pattern) for pattern in self.patterns)


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    reads: dict[str, bytes]
    writes: set[str]
    folders: set[str] = set()
    patterns: set[str] = set()


def pack_manifest(
    reads: Mapping[str, bytes], writes: Iterable[str], folders: Iterable[str] = (), patterns: Iterable[str] = ()
) -> bytes:
    """A manifest as bytes."""
    parts = [dict(reads), list(writes), list(folders), list(patterns)]
    return zlib.compress(msgspec.msgpack.encode(parts), 1)


def unpack_manifest(data: bytes) -> Manifest:
    """The manifest that `pack_manifest` packed; ValueError when the bytes are something else."""
    if not data:
        return Manifest({}, set())
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(data, _MOST)
        if not unpacker.eof:
            raise ValueError("the declared files cannot be read: some are missing, or they are too many")
        packed = msgspec.msgpack.decode(plain, type=_Packed)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(f"the declared files cannot be read: {error}") from error
    return Manifest(packed.reads, packed.writes, packed.folders, packed.patterns)


def absolute(path: str, cwd: str) -> str:
    """A path as it is compared and stored: joined to `cwd`, without dots and doubled slashes; a URL as it is."""
    if ":/" in path and is_url(path):
        return path
    whole = path if path.startswith("/") else f"{cwd}/{path}"
    if "/." not in whole and "//" not in whole and whole[-1] != "/":
        return whole
    tidy: list[str] = []
    for piece in whole.split("/"):
        if piece == "..":
            del tidy[-1:]
        elif piece and piece != ".":
            tidy.append(piece)
    return "/" + "/".join(tidy)


def is_settled(changed_ns: int, looked_ns: int) -> bool:
    """Whether a file that was looked at can be known by its time of change from then on.

    One written a moment ago may be written again without another time. A time in whole seconds may be all that its file
    system tells.
    """
    return abs(looked_ns - changed_ns) > (_TICK if changed_ns % _SECOND else 2 * _SECOND)


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


_OF_SITE = re.compile(r"([A-Za-z0-9][\w.-]*):(/(?!/).*)\Z", re.DOTALL)


def is_url(path: str) -> bool:
    """Whether a name is no path of the submitter: a URL, as s3://bucket/key, or a file of a site, as alpha:/data/x."""
    return ":/" in path and (_URL.match(path) is not None or _OF_SITE.match(path) is not None)


def is_remote(path: str) -> bool:
    """Whether a name is a URL that has to be brought; a file of a site is used where it lies."""
    return is_url(path) and not site_file(path)[0]


def site_file(path: str) -> tuple[str, str]:
    """The site and the path there of a name such as alpha:/data/x; two empty texts for any other name."""
    found = _OF_SITE.match(path) if ":/" in path else None
    return (found[1], absolute(found[2], "/")) if found else ("", "")


_SIGNED = re.compile(
    r"[?&](?:X-Amz-Signature|X-Goog-Signature|Signature|sig|AWSAccessKeyId|access_token)=", re.IGNORECASE
)


def check_url(url: str) -> str:
    """A URL that may be written down, in a journal too; BadValue for one with a secret in it."""
    host = url.partition("://")[2].partition("/")[0]
    user, at, _ = host.rpartition("@")
    if at and ":" in user:
        bare = f"{url.partition('://')[0]}://{host.rpartition('@')[2]}"
        way = "give it to fsspec where the file is moved, by its configuration or the environment"
        raise BadValue(f"a URL at {bare} has a password in it, which would be stored: {way}")
    if "::" in url:
        raise BadValue(f"{url!r:.80} joins several protocols, which cannot be declared; name one file")
    if _SIGNED.search(url):
        raise BadValue(f"a URL at {host} is signed, and whoever reads the journal could use it: give it unsigned")
    if "\0" in url or any(ord(letter) < 32 for letter in url) or len(url) > LONGEST_PATH:
        raise BadValue(f"{url!r:.80} is no URL: it is too long or has control characters")
    return url


def check_written(url: str) -> None:
    """Refuse the URL of an output that nobody can write."""
    if url.partition("://")[0].lower() in {"http", "https"}:
        raise BadValue(f"{url:.200}: nothing can be written by http; use webdav:// or another protocol")


def is_pattern(path: str) -> bool:
    """Whether a path stands for those that match it: it has a star or a question mark.

    Brackets count only beside these: files are called `run[3].txt` more often than people mean a set of letters.
    """
    return ("*" in path or "?" in path) and not is_url(path)


def pattern_folder(pattern: str) -> str:
    """The folder in which all that matches an absolute pattern lies, as far as it has no stars itself."""
    pieces = pattern.split("/")
    known = itertools.takewhile(lambda piece: not any(letter in piece for letter in "*?["), pieces[:-1])
    return "/".join(known) or "/"


@functools.lru_cache(maxsize=1000)
def _expression(pattern: str) -> re.Pattern[str]:
    pieces = [piece for piece in pattern.split("/") if piece]
    found = ""
    for at, piece in enumerate(pieces):
        if piece == "**":
            found += r"(?:/(?!\.)[^/]+)*" if at + 1 < len(pieces) else r"(?:/(?!\.)[^/]+)+"
        else:
            hidden = "" if piece.startswith(".") else r"(?!\.)"
            found += f"/{hidden}{_piece_expression(piece)}"
    return re.compile(f"{found}\\Z", re.DOTALL)


def _piece_expression(piece: str) -> str:
    found, at = "", 0
    while at < len(piece):
        letter = piece[at]
        end = piece.find("]", at + 3 if piece[at + 1 : at + 2] == "!" else at + 2) if letter == "[" else -1
        if end > 0:
            inside = piece[at + 1 : end].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            found += f"(?!/)[{'^' + inside[1:] if inside[0] == '!' else inside}]"
            at = end
        else:
            found += {"*": "[^/]*", "?": "[^/]"}.get(letter) or re.escape(letter)
        at += 1
    return found


def matches(path: str, pattern: str) -> bool:
    """Whether an absolute path is one of those that an absolute pattern means, as a shell would with `**`.

    A star stands for no slash and for no dot at the beginning of a name; `**` stands for any folders, or none.
    """
    try:
        return _expression(pattern).match(path) is not None
    except re.error:  # a set of letters that is none, as [z-a]
        return False


def hidden_path(path: str, record: int, index: int, attempt: int) -> str:
    """Where an attempt writes an output until it has succeeded: the same folder, the same suffix."""
    folder, slash, name = path.rpartition("/")
    mark = f".bough-{record}.{index}-{attempt}."
    room = 255 - len(mark)  # bytes a file system gives a name
    if len(name.encode("utf-8", "surrogateescape")) > room:
        name = name.encode("utf-8", "surrogateescape")[-room:].decode("utf-8", "ignore")
    return f"{folder}{slash}{mark}{name}"


def beside(written: str, real: str) -> str:
    """The path of `real`, written as the user wrote `written`: same folder, other name."""
    folder, slash, last = written.rstrip("/").rpartition("/")
    return folder + slash + real.rpartition("/")[2] if last not in {"", ".", ".."} else real


def no_option(path: str) -> str:
    """A path as a word of a command, which no program takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def declared_place(written: str, cwd: str) -> str:
    """Where a file lies that a command declares."""
    if not written:
        raise InvalidWorkload("a file that the command declares has an empty name: give its path")
    return absolute(written, cwd)


def output_place(written: str, cwd: str) -> str:
    """Where an output lies. It takes its place as a whole, so it must not be the folder in which the command runs."""
    path = declared_place(written, cwd)
    if len(path) <= len(cwd) and f"{cwd}/".startswith(f"{path.rstrip('/')}/"):
        raise InvalidWorkload(
            f"{shown(written)} is the folder in which the command runs, or one above it, and cannot be an output:"
            " name a file or a folder in it"
        )
    return path


def why_no_output(path: str) -> str:
    """Why an absolute path cannot be that of an output; empty: it can, as far as it alone tells."""
    if path.startswith(_NOT_WRITTEN) and not path.startswith(_WRITTEN_ALL_THE_SAME):
        return "lies where there are no files but devices and processes"
    if len(path) <= _LONGEST_NAME and (path.isascii() or len(path) * 4 <= _LONGEST_NAME):
        return ""
    names = [len(name.encode(errors="surrogatepass")) for name in path.split("/")]
    if max(names) > _LONGEST_NAME:
        return f"has a name of more than {_LONGEST_NAME} bytes"
    return f"has more than {_LONGEST_PATH} bytes" if sum(names) + len(names) > _LONGEST_PATH else ""


_NOT_WRITTEN = ("/dev/", "/proc/", "/sys/")
_WRITTEN_ALL_THE_SAME = ("/dev/shm/", "/proc/self/cwd/")
_LONGEST_NAME, _LONGEST_PATH = 255, 4095  # bytes; what file systems take


def is_tidy(path: str) -> bool:
    """Whether a path is absolute, without dots, doubled slashes and NULs."""
    return path.startswith("/") and len(path) > 1 and "\0" not in path and absolute(path, "/") == path


def place_inside(path: str, directory: str) -> str:
    """Where an absolute path of the submitter lies, relative to the sandbox; ValueError when it has no place."""
    if path == directory:
        return "."
    if not is_tidy(path):
        raise ValueError(f"{path!r} is not a path that can have a place in a sandbox")
    root = directory.rstrip("/")
    if path.startswith(root + "/"):
        return path[len(root) + 1 :]
    return OUTSIDE + path


def leads_outside(text: str, cwd: str, directory: str) -> bool:
    """Whether a path as a user wrote it means something else inside of a sandbox than at the submitter."""
    if text.startswith("/"):
        return True
    depth = cwd.rstrip("/")[len(directory.rstrip("/")) :].count("/") if is_below(cwd, directory) else 0
    for piece in text.split("/"):
        if piece == "..":
            depth -= 1
            if depth < 0:
                return True
        elif piece and piece != ".":
            depth += 1
    return False


def is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


# --- big values of functions ----------------------------------------------------------------------------

VALUES: Final = "/bough-value/"  # a path that begins so is no file of anybody: it names a content by its digest


def value_path(digest: bytes) -> str:
    """What a call names a buffer of its arguments by that its client has sent to the server."""
    return VALUES + digest.hex()


def value_digest(path: str) -> bytes:
    """The digest that such a path names; empty: it is another path."""
    name = path.removeprefix(VALUES)
    if name == path or len(name) != 64 or set(name) - set("0123456789abcdef"):
        return b""
    return bytes.fromhex(name)
