"""Files of a command that are at URLs: brought before it runs, sent when it has succeeded.

What was brought is kept in a folder of the executor for the next tasks, as long as the URL tells the same of itself
(`RemoteFile.mark`) and there is room; a task gets a link of its own to it. A task that needs what another one is
fetching waits for that one. A file of the site's own storage (alpha:/data/x) is used where it lies. Rules: a command
sees files and never a URL. What it writes for a URL has a place here until it has succeeded.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from hashlib import blake2b

from msgspec.structs import replace

from bough import private
from bough.errors import SiteError
from bough.executor.files.declared_outputs import remove
from bough.model.commands.command import CommandCall, Part, TemplateSlot
from bough.model.files import is_url, site_file
from bough.model.outcomes import Output
from bough.movers.remote_files import can_move, fetch, look, send

LIMIT = 10 << 30  # bytes kept


def has_urls(call: CommandCall) -> bool:
    """Whether a command reads or writes something at a URL."""
    return any(map(is_url, call.reads)) or any(map(is_url, call.writes.values()))


class UrlFiles:
    """What one attempt has at URLs. `folder` is the executor's own."""

    def __init__(self, folder: str, call: CommandCall, name: str) -> None:
        self.reads = [path for path in call.reads if is_url(path)]
        self.writes = {slot: path for slot, path in call.writes.items() if is_url(path)}
        self._cache = f"{folder}/urls"
        self._mine = f"{self._cache}/tasks/{name}"
        self.call = self._without(call)
        self.hidden = {
            slot: f"{self._mine}/out{number}/{_file_name(url)}"
            for number, (slot, url) in enumerate(self.writes.items())
        }
        self._at_site: dict[str, str] = {}  # slot -> where a file of this site's storage gets its name
        for slot, url in self.writes.items():
            path = site_file(url)[1]
            if path:
                self._at_site[slot] = path
                folder, _, base = path.rpartition("/")
                self.hidden[slot] = f"{folder}/.bough-{_digest(self._mine)}.{base[-200:]}"
        self.moved: dict[str, str] = {}  # URL -> where it lies here

    def unmovable(self) -> list[str]:
        """What is read here and cannot be fetched for want of a package."""
        return [url for url in self.reads if not site_file(url)[0] and not can_move(url)]

    def _without(self, call: CommandCall) -> CommandCall:
        """The command with slots that are filled with whole paths, and without the URLs."""

        def local(part: Part) -> Part:
            if isinstance(part, TemplateSlot) and part.mode == "w" and part.name in self.writes:
                return replace(part, format="")
            return part

        return replace(
            call,
            parts=list(map(local, call.parts)),
            argv=[list(map(local, word)) for word in call.argv],
            reads={path: digest for path, digest in call.reads.items() if path not in self.reads},
            writes={slot: path for slot, path in call.writes.items() if slot not in self.writes},
        )

    def prepare(self) -> None:
        """Make folders for what will be written."""
        remove(self._mine)
        private.make_folder(self._mine)
        for path in self.hidden.values():
            os.makedirs(os.path.dirname(path), exist_ok=True)

    def take(self, url: str, content: str) -> None:
        """A file that came by another way."""
        self.moved[url] = self._place(url)
        _link(content, self.moved[url])

    def _place(self, url: str) -> str:
        folder = f"{self._mine}/in{len(self.moved)}"
        os.makedirs(folder, exist_ok=True)
        return f"{folder}/{_file_name(url)}"

    def bring(self) -> None:
        """Fetch what is read; SiteError or UserError when it cannot be had, OSError when there is no room for it."""
        for url in self.reads:
            site, path = site_file(url)
            if site:
                if not os.path.exists(path):
                    raise SiteError(f"{path} is not there at {site}")
                self.moved[url] = path
            elif url not in self.moved:
                self._bring(url)

    def _bring(self, url: str) -> None:
        with _alone(f"{self._cache}/{_digest(url)}.lock"):
            found = look(url)
            kept = f"{self._cache}/{_digest(f'{url} {found.size} {found.mark}')}"
            if not found.mark or not os.path.exists(kept):
                came = fetch(url, kept)
                os.chmod(kept, 0o444)
                if found.mark and came[1:] != found[1:]:  # it changed in between: it is kept for this task only
                    self.take(url, kept)
                    os.unlink(kept)
                    return
            os.utime(kept)
            self.take(url, kept)
            self._make_room(kept)

    def _make_room(self, newest: str) -> None:
        """Delete what was not used for longest; who uses it has a link of its own."""
        kept = [
            (entry.stat().st_mtime_ns, entry.stat().st_size, entry.path)
            for entry in os.scandir(self._cache)
            if entry.is_file() and not entry.name.endswith((".lock", ".part"))
        ]
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= LIMIT:
                return
            if path != newest:
                remove(path)
                total -= size

    def missing(self) -> list[str]:
        """Outputs that were not written, as "slot (URL)"."""
        return [f"{slot} ({url})" for slot, url in self.writes.items() if not os.path.isfile(self.hidden[slot])]

    def send(self) -> list[Output]:
        """Put what was written where it belongs; SiteError or UserError when that cannot be."""
        made = []
        for slot, url in self.writes.items():
            size = os.stat(self.hidden[slot]).st_size
            if slot in self._at_site:
                os.replace(self.hidden[slot], self._at_site[slot])
            else:
                send(self.hidden[slot], url)
            made.append(Output(slot, url, size, 0))
        return made

    def remove(self) -> None:
        """The attempt has ended."""
        remove(self._mine)
        for slot in self._at_site:
            remove(self.hidden[slot])


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _file_name(url: str) -> str:
    """The last part of a URL, as a name that a file can have."""
    name = url.partition("://")[2].partition("?")[0].rstrip("/").rpartition("/")[2]
    tidy = "".join(letter for letter in name if letter.isprintable() and letter not in "/\\")[-200:]
    return tidy if tidy.strip(".") else "file"


def _link(content: str, place: str) -> None:
    try:
        os.link(content, place)
    except OSError:  # too many links, or another file system
        import shutil

        shutil.copy(content, place)


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold a lock that all workers of the executor know."""
    number = private.opener(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
