"""Files at URLs: what is there, brought here, and sent there, by fsspec (the extra `data`) and the user's own settings.

Whoever moves the bytes needs fsspec, what it needs for the protocol (s3fs for s3://, aiohttp for http://, paramiko for
sftp://, webdav4 for webdav://) and the user's credentials, which are looked for where these programs look: environment
variables, `~/.aws`, `~/.ssh`, fsspec's own configuration. Rules: no credential is ever part of a URL; what the world
does wrong is a `SiteError` in one line, which is `transient` if another try may go well, and has had some tries then. A
file has its name, here and there, only when it is complete. No more bytes are taken than a file said that it has. One
without a mark, or with another one after it was read than before, is never taken for one that is known.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from bough.errors import SiteError, UserError
from bough.model.bounds import MOST
from bough.model.files import check_written

_TRIES = 4  # at what may go well the next time
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0  # seconds between them
_CONNECT, _SILENCE = 30.0, 60.0  # seconds after which an HTTP server that does not answer, or sends nothing, has failed
_ATOMIC = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "memory"})  # a file is there when all of it has come
_MARKS = ("ETag", "etag", "Content-MD5", "Digest", "md5", "checksum", "version_id", "VersionId")
_TIMES = ("LastModified", "Last-Modified", "mtime", "modified", "modify", "last_modified", "updated", "created")
_PACKAGES = {
    "s3": "s3fs",
    "http": "aiohttp",
    "https": "aiohttp",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "webdav": "webdav4",
    "dav": "webdav4",
    "webdavs": "webdav4",
    "davs": "webdav4",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
}
_LOCAL = frozenset({"file", "local", "memory", "dir", "reference"})  # protocols that read the machine they are used on
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WEBDAV = {"webdav": "http", "dav": "http", "webdavs": "https", "davs": "https"}
T = TypeVar("T")


class RemoteFile(NamedTuple):
    """What is at a URL: its bytes, and a text that is another one when it changes."""

    size: int  # -1: not known before it is read
    mark: str  # empty: nothing tells whether it changes

    def identity(self, url: str) -> bytes:
        """What stands for what it holds, without reading it."""
        text = f"{url}\0{self.size}\0{self.mark}".encode(errors="surrogatepass")  # servers say any bytes
        return blake2b(text, digest_size=16, person=b"url").digest()


def can_move(url: str) -> bool:
    """Whether this process has what is needed for the protocol of a URL."""
    try:
        _filesystem(url)
    except UserError:
        return False
    except SiteError:
        return True
    return True


def is_local(url: str) -> bool:
    """Whether a URL names something else on each machine."""
    return url.partition("://")[0].lower() in _LOCAL


def look(url: str) -> RemoteFile:
    """What is at a URL now."""
    return _trying(url, lambda: _look(url))


def fetch(url: str, path: str, most: int = 1 << 62) -> RemoteFile:
    """Bring what is at a URL to a path; while it comes it has a hidden name beside that.

    What is returned is what the URL told before, by which it is known the next time; the mark is empty if the file
    changed meanwhile, twice. `most`: bytes of a file that does not say how many it has. OSError when the disk is full,
    and when somebody removes what has come, or its folder.
    """
    hidden = os.path.join(os.path.dirname(path), f".{os.getpid()}-{os.urandom(4).hex()}.part")
    changes = 0

    def bring() -> RemoteFile:
        nonlocal changes
        found = _look(url)
        _get(url, hidden, found.size, most)
        size = os.stat(hidden).st_size
        if found.size >= 0 and size != found.size:
            raise SiteError(f"{url}: {size} bytes came of {found.size}", transient=True)
        if found.mark and _look(url) != found:
            changes += 1
            if changes == 1:
                raise SiteError(f"{url} changed while it was read", transient=True)
            found = found._replace(mark="")
        os.replace(hidden, path)
        return found

    try:
        return _trying(url, bring, hidden)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(hidden)


def _get(url: str, hidden: str, size: int, most: int) -> None:
    """Write what a URL gives to a file; SiteError once that is more than the file said that it has."""
    from fsspec.callbacks import Callback

    limit = size if size >= 0 else most

    def check(there: int) -> None:
        if there > limit:
            told = f"it said that it has {size}" if size >= 0 else "a file that does not say its size may have no more"
            raise SiteError(f"{url}: more than {limit} bytes came, {told}", transient=size >= 0)

    class Bound(Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            super().relative_update(inc)
            check(self.value)

    class BoundFile(io.BufferedWriter):
        def write(self, data: Any) -> int:
            check(self.tell() + len(data))
            return super().write(data)

    fs, place = _filesystem(url)
    if url.startswith("ftp://"):  # it tells nobody how far it is
        with BoundFile(io.FileIO(hidden, "wb")) as file:
            fs.get_file(place, file)
    else:
        fs.get_file(place, hidden, callback=Bound())


def send(path: str, url: str) -> None:
    """Put a file at a URL; where that is not done at once it has another name until it is complete."""
    check_written(url)

    def put() -> None:
        fs, place = _filesystem(url)
        folder, _, name = place.rpartition("/")
        if url.partition("://")[0] in _ATOMIC:
            fs.put_file(path, place)
            return
        if folder:
            with contextlib.suppress(FileExistsError):
                fs.makedirs(folder, exist_ok=True)
        hidden = f"{folder}/.bough-{os.urandom(6).hex()}.{name}" if folder else f".bough-{os.urandom(6).hex()}.{name}"
        try:
            fs.put_file(path, hidden)
            if fs.exists(place):
                fs.rm_file(place)
            fs.mv(hidden, place)
        except BaseException:
            with contextlib.suppress(Exception):
                fs.rm_file(hidden)
            raise
        fs.invalidate_cache()

    _trying(url, put)


def expand_url(pattern: str) -> list[str]:
    """The URLs of files that match a pattern now, in order."""

    def find() -> list[str]:
        fs, place = _filesystem(pattern)
        fs.invalidate_cache()
        found = fs.glob(place, detail=True).items()
        paths = sorted(str(path) for path, info in found if info.get("type") != "directory")
        if pattern.endswith(place):  # what stands before it names the server, of which file systems say nothing
            server = pattern[: len(pattern) - len(place)]
            return [server + path for path in paths]
        return [fs.unstrip_protocol(path) for path in paths]

    return _trying(pattern, find)


def _look(url: str) -> RemoteFile:
    fs, place = _filesystem(url)
    fs.invalidate_cache()
    info: dict[str, Any] = fs.info(place)
    if info.get("type") == "directory":
        raise UserError(f"{url} is a folder; name a file in it, or declare {url.rstrip('/')}/*")
    size = info.get("size")
    marks = [f"{name}={info[name]}" for name in (*_MARKS, *_TIMES) if info.get(name)]
    return RemoteFile(size if isinstance(size, int) and 0 <= size <= MOST else -1, " ".join(marks))


def _filesystem(url: str) -> tuple[Any, str]:
    """What speaks the protocol of a URL, and the name of the file there."""
    protocol = url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UserError(f"{url}: files at URLs need fsspec: pip install 'bough[data]'") from None
    try:
        if protocol in _WEBDAV:
            return _webdav(url)
        fs, place = url_to_fs(url, **(_http_settings(protocol) if protocol in {"http", "https"} else {}))
    except ImportError as error:
        needed = _PACKAGES.get(protocol, "")
        raise UserError(f"{url}: {protocol}:// needs {needed or error}: pip install {needed or 'it'}") from None
    except ValueError as error:
        raise UserError(f"{url}: {_line(error)}") from None
    except Exception as error:
        raise _site_error(url, error) from error
    return fs, str(place)


def _http_settings(protocol: str) -> dict[str, Any]:
    """HTTP is waited for as long as bytes come. By default all of a file must have come within five minutes."""
    from aiohttp import ClientTimeout
    from fsspec.config import conf

    usual = ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_SILENCE)
    return {"client_kwargs": {"timeout": usual, **conf.get(protocol, {}).get("client_kwargs", {})}}


def _webdav(url: str) -> tuple[Any, str]:
    """The same for WebDAV, whose file systems of fsspec are named by the address of their server."""
    from fsspec.config import conf
    from webdav4.fsspec import WebdavFileSystem

    protocol, _, rest = url.partition("://")
    host, _, place = rest.partition("/")
    settings = dict(conf.get("webdav", {}))
    if isinstance(settings.get("auth"), list):
        settings["auth"] = tuple(settings["auth"])
    return WebdavFileSystem(f"{_WEBDAV[protocol]}://{host}", **settings), place


def _trying(url: str, work: Callable[[], T], hidden: str = "") -> T:
    """Do it, and again if that may help. `hidden`: a file here to which it is written."""
    pause = _FIRST_PAUSE
    for left in reversed(range(_TRIES)):
        try:
            return work()
        except UserError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and (error.errno in _FULL or (hidden and error.filename == hidden)):
                raise
            found = error if isinstance(error, SiteError) else _site_error(url, error)
            if not found.transient or not left:
                raise found from error
            _forget(url)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    raise AssertionError("the last try returns or raises")


def _forget(url: str) -> None:
    """A connection that broke is not to be used again."""
    with contextlib.suppress(Exception):
        fs, _ = _filesystem(url)
        type(fs).clear_instance_cache()


_DENIED = ("403", "401", "Forbidden", "Unauthorized", "AccessDenied", "Access Denied", "InvalidAccessKeyId", "530")
_GONE = ("404", "Not Found", "NoSuchKey", "NoSuchBucket", "410")
_FOR_GOOD = ("Authentication failed", "No credentials", "Unable to locate credentials", "SignatureDoesNotMatch")


def _site_error(url: str, error: Exception) -> SiteError:
    """What went wrong, in one line, and whether another try may help."""
    is_http = url.startswith(("http:", "https:"))
    while is_http and isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # fsspec says of whatever http does that the file is not there
    line = _line(error)
    status = str(getattr(error, "status", "") or getattr(getattr(error, "response", None), "status_code", "") or "")
    said = f"{status} {type(error).__name__} {line}"
    if isinstance(error, FileNotFoundError) or any(word in said for word in _GONE):
        return SiteError(f"{url} is not there", transient=False)
    if isinstance(error, PermissionError) or any(word in said for word in (*_DENIED, *_FOR_GOOD)):
        return SiteError(f"{url} may not be used with the credentials that are there: {line}", transient=False)
    if type(error).__name__ == "TooManyRedirects":  # of aiohttp, which need not be there
        return SiteError(f"{url} is redirected again and again", transient=False)
    if isinstance(error, NotImplementedError):
        return SiteError(f"{url}: the protocol cannot do that", transient=False)
    return SiteError(f"{url}: {line}", transient=True)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."
