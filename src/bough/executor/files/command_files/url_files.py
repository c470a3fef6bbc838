"""Files of a command that are at URLs: given their names before it runs, sent when it has succeeded.

What it reads is brought into the host's cache by the executor (`url_inputs`); the command gets a copy, or a link, that
has the name of the URL's file. A file of the site's own storage (alpha:/data/x) is used where it lies; one of another
site's is brought as what is at a URL. Rules: a command sees files and never a URL. What it writes for a URL has a place
here until it has succeeded. No name leads out of the folder of its task.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from hashlib import blake2b

from msgspec.structs import replace

from bough import private
from bough.errors import SiteError, UserError
from bough.executor.files.command_files.declared_outputs import remove
from bough.model.commands.command import CommandCall, Part, TemplateSlot
from bough.model.files import is_url, site_file
from bough.model.outcomes import Output
from bough.movers.folder_archive import unpack_file
from bough.movers.local import put
from bough.movers.remote_files import send


def lies_here(name: str, site: str) -> bool:
    """Whether a name is that of a file in the storage of this site."""
    return site_file(name)[0] == site


def has_urls(call: CommandCall) -> bool:
    """Whether a command reads or writes something at a URL."""
    return any(map(is_url, call.reads)) or any(map(is_url, call.writes.values()))


class UrlFiles:
    """What one attempt has at URLs. `folder` is the executor's own, `site` the one where it runs."""

    def __init__(self, folder: str, call: CommandCall, name: str, site: str) -> None:
        self._site = site
        self.reads = [path for path in call.reads if is_url(path)]
        self.writes = {slot: path for slot, path in call.writes.items() if is_url(path)}
        self._name = name
        self._mine = f"{folder}/urls/{name}"
        self._beside: set[str] = set()  # folders of this task where contents lie
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
        self.contents: dict[str, str] = {}  # URL -> the content in the cache, which is named by its digest

    @property
    def wanted(self) -> list[str]:
        """What is read and has to be brought."""
        return [url for url in self.reads if not lies_here(url, self._site)]

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
        """Make folders for what will be written; UserError when that belongs into the storage of another site."""
        for url in self.writes.values():
            if site_file(url)[0] not in {"", self._site}:
                raise UserError(f"its output {url} is written at that site only, and it runs at {self._site}")
        remove(self._mine)
        private.make_folder(self._mine)
        for path in self.hidden.values():
            os.makedirs(os.path.dirname(path), exist_ok=True)

    def take(self, files: Mapping[str, str], folders: Collection[str] = ()) -> None:
        """Give what was brought, by URL, its names; SiteError when a file of the site is not there, OSError.

        A content has its names on its own disk, where it can be linked. `folders`: what came as archives of these.
        """
        for number, url in enumerate(self.reads):
            site, path = site_file(url)
            if lies_here(url, self._site):
                if not os.path.exists(path):
                    raise SiteError(f"{path} is not there at {site}")
                self.moved[url] = self.contents[url] = path
                continue
            self.contents[url] = files[url]
            beside = f"{os.path.dirname(files[url])}/{self._name}"
            if beside not in self._beside:
                self._beside.add(beside)
                remove(beside)
            self.moved[url] = f"{beside}/in{number}/{_file_name(url)}"
            if url in folders:
                os.makedirs(os.path.dirname(self.moved[url]))
                unpack_file(files[url], self.moved[url])
            else:
                put(files[url], self.moved[url])

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
        for folder in self._beside:
            remove(folder)
        for slot in self._at_site:
            remove(self.hidden[slot])


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _file_name(url: str) -> str:
    """The last part of a URL, as a name that a file can have."""
    path = site_file(url)[1] or url.partition("://")[2].partition("?")[0]
    name = path.rstrip("/").rpartition("/")[2]
    tidy = "".join(letter for letter in name if letter.isprintable() and letter not in "/\\")[-200:]
    return tidy if tidy.strip(".") else "file"
