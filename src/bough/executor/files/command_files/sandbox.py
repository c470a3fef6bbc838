"""Folders of an executor: the sandbox of one attempt, and the folder for the executor's own life.

A command runs in a sandbox when its submitter's directory is not seen here. The sandbox is that directory; declared
files are brought to the same places in it, those from outside of that directory to a folder of their own, and the
text of the command names them there. The executor's folder holds sandboxes, contents that were brought, and outputs
that the server cannot see. It lies in the folder that the executor was given (`--work`), in `$XDG_CACHE_HOME/bough`,
or where temporary files go.

Rules: a command writes nothing but its sandbox, which is removed when the attempt has ended. The executor's folder is
locked as long as its executor lives and removed when that ends; those of executors that were killed are removed by
the next one that uses the same folder.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from bough import private
from bough.executor.files.command_files.declared_outputs import remove
from bough.executor.host.disk_space_wait import is_full
from bough.executor.host.processes import Unstartable
from bough.folder_state import folder_state
from bough.model.commands.command import CommandCall, Part, TemplateSlot
from bough.model.files import OUTSIDE, absolute, is_url, leads_outside, pattern_folder, place_inside
from bough.model.outcomes import Output, Staged, kept_time
from bough.movers.folder_archive import BadArchive, PackedFolder, UnpackableFolder, pack_file, unpack_file
from bough.movers.local import digest_of, put
from bough.private import remove_tree
from bough.wire.file_messages import MadeFile

_SANDBOXES = "sandboxes"


def sandbox_name(record: int, index: int, attempt: int) -> str:
    """The name of an attempt's sandbox, in the folder of its worker's."""
    return f"{record}.{index}-{attempt}"


def inside_sandbox(root: str, directory: str, path: str) -> str:
    """Where a path of a submitter, whose directory this is, lies in the sandbox of that root."""
    return os.path.normpath(f"{root}/{place_inside(path, directory)}")


def aside_of(sandboxes: str, record: int, index: int) -> str:
    """Where the checkpoint of an attempt lies when its sandbox is gone; `sandboxes`: the folder of a worker's."""
    return f"{os.path.dirname(os.path.dirname(sandboxes))}/checkpoints/{record}.{index}"


class Sandbox:
    """The folder of one attempt. `directory` is the submitter's."""

    def __init__(self, root: str, directory: str, call: CommandCall) -> None:
        self.root = root
        self.staged = Staged()  # what moving its files took
        self._directory = directory
        self._cwd = call.settings.cwd
        self.writes, self.patterns = call.writes, call.patterns  # at the submitter
        self.reads = list(call.reads)
        folders = dict.fromkeys(map(pattern_folder, call.patterns))
        self._folders = [self.place(one) for one in folders if one in call.settings.folders]
        self._archives: list[str] = []  # of outputs that are folders
        self._slots: list[str] = []  # of what was made
        try:
            self.call = self._inside(call)
        except ValueError as error:
            raise Unstartable(str(error), of_site=False) from error
        self.moved = {
            part.format: self.place(absolute(part.format, self._cwd))
            for part in _slots(call)
            if part.mode == "r" and not is_url(part.format) and leads_outside(part.format, self._cwd, directory)
        }

    @property
    def within(self) -> tuple[str, str]:
        """The submitter's directory, and the folder that stands for it."""
        return self._directory, self.root

    def place(self, path: str) -> str:
        """Where a path of the submitter lies here."""
        return inside_sandbox(self.root, self._directory, path)

    def _inside(self, call: CommandCall) -> CommandCall:
        settings = call.settings
        stdin = self.place(absolute(settings.stdin_path, self._cwd)) if settings.stdin_path else ""
        return replace(
            call,
            settings=replace(settings, cwd=self.place(settings.cwd), stdin_path=stdin),
            parts=[self._part(part) for part in call.parts],
            argv=[[self._part(part) for part in word] for word in call.argv],
            writes={slot: self.place(path) for slot, path in call.writes.items()},
            patterns=[self.place(path) for path in call.patterns],
        )

    def _part(self, part: Part) -> Part:
        """An output that would be written outside is named in full."""
        if (
            isinstance(part, TemplateSlot)
            and part.mode == "w"
            and leads_outside(part.format, self._cwd, self._directory)
        ):
            return replace(part, format="")
        return part

    def fill(self, files: dict[str, str], folders: Collection[str] = ()) -> None:
        """Make the folder, and put what was brought into its places; `folders`: those that came as archives."""
        try:
            remove_tree(self.root)
            os.makedirs(self.root, mode=0o700)
            for path in sorted(folders, key=len):  # before what else lies in them
                self._unpack(files[path], self.place(path))
            for folder in (self.call.settings.cwd, *self._folders):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            for path, content in files.items():
                if path not in folders:
                    self._put(content, self.place(path))
        except BadArchive as error:
            raise Unstartable(f"the sandbox cannot be made: {error}") from error
        except OSError as error:
            what = f"the sandbox cannot be made: {error.filename}: {error.strerror}"
            raise Unstartable(what, full=is_full(error)) from error

    def _unpack(self, archive: str, place: str) -> None:
        """A folder at its place; of one that lies in another that was brought the other's part goes."""
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        if os.path.lexists(place) and place != self.root:
            remove(place)
        if place == self.root:
            os.rmdir(place)
        unpack_file(archive, place)

    @staticmethod
    def _put(content: str, place: str) -> None:
        if os.path.lexists(place):
            remove(place)
        put(content, place)

    def made(self, hidden: dict[str, str], gathered: Iterable[str] = ()) -> tuple[list[MadeFile], list[str]]:
        """The outputs, which lie at their hidden names, and where; Unstartable when one cannot travel.

        `gathered`: those that match patterns.
        """
        made: list[MadeFile] = []
        where: list[str] = []
        self._slots = [*self.writes]
        found = [(slot, path, hidden[slot]) for slot, path in self.writes.items()]
        for local in gathered:
            path = self._outside_path(local)
            self._slots.append(path)
            found.append((path, path, local))
        for slot, path, local in found:
            try:
                state = os.stat(local)
                if stat.S_ISDIR(state.st_mode):
                    archive = f"{self.root}.{len(made)}.tar"
                    packed = self._pack(local, archive, f"its output {slot} ({path})")
                    mode, time = stat.S_IMODE(state.st_mode), kept_time(folder_state(local).mtime_ns)
                    made.append(MadeFile(path, packed.digest, packed.size, mode, folder=True, time=time))
                    where.append(archive)
                    continue
                if not stat.S_ISREG(state.st_mode):
                    raise Unstartable(f"its output {slot} ({path}) is no plain file and cannot be sent")
                mode, time = stat.S_IMODE(state.st_mode), kept_time(state.st_mtime_ns)
                made.append(MadeFile(path, digest_of(local), state.st_size, mode, time=time))
            except OSError as error:
                text = f"its output {slot} ({path}) cannot be read: {error.strerror}"
                raise Unstartable(text, full=is_full(error)) from error  # a folder is packed beside itself
            where.append(local)
        return made, where

    def _outside_path(self, local: str) -> str:
        """The path at the submitter of something in the sandbox."""
        inside = os.path.relpath(local, self.root)
        if inside.startswith(f"{OUTSIDE}/"):
            return inside[len(OUTSIDE) :]
        return f"{self._directory.rstrip('/')}/{inside}"

    def _pack(self, folder: str, archive: str, what: str) -> PackedFolder:
        self._archives.append(archive)
        remove(archive)
        try:
            return pack_file(folder, archive)
        except UnpackableFolder as error:
            raise Unstartable(f"{what} cannot be sent: {error}") from error

    def outputs(self, made: list[MadeFile], times: list[int]) -> tuple[Output, ...]:
        """What is said of outputs that the server has."""
        return tuple(
            Output(
                slot,
                one.path,
                one.size,
                time,
                one.digest,
                one.folder,
                executable=not one.folder and bool(one.mode & stat.S_IXUSR),
            )
            for slot, one, time in zip(self._slots, made, times, strict=True)
        )

    def set_aside(self, path: str, aside: str) -> None:
        """Keep the checkpoint of an attempt that has ended, if it wrote one; the executor brings it to the server."""
        try:
            os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
            os.replace(self.place(path), aside)
        except OSError:
            return  # it wrote none

    def remove(self) -> None:
        """The attempt has ended."""
        os.chdir("/")
        remove_tree(self.root)
        for archive in self._archives:
            remove(archive)


def _slots(call: CommandCall) -> list[TemplateSlot]:
    return [part for word in (call.parts, *call.argv) for part in word if isinstance(part, TemplateSlot)]


class ExecutorFolder:
    """The executor's own folder. Nothing is made before it is opened. `work`: the folder that was given, or empty."""

    def __init__(self, work: str = "") -> None:
        self._work = os.path.abspath(work) if work else ""
        cache = os.environ.get("XDG_CACHE_HOME", "")
        where = self._work or (os.path.join(os.path.abspath(cache), "bough") if cache else "")
        self._temporary = private.TemporaryFolder("executor", where)

    @property
    def folder(self) -> str:
        """Where it is, or will be."""
        return self._temporary.path

    def sandboxes_of(self, worker: str) -> str:
        """The folder of one worker's sandboxes."""
        return f"{self.folder}/{_SANDBOXES}/{worker}"

    def open(self) -> None:
        """Make it, if it is not there; OSError or SiteError when that cannot be done."""
        self._temporary.make()

    def folders(self) -> tuple[str, str]:
        """Folders for outputs and results that the server cannot see; in a place that was named they stay."""
        if not self._work:
            self.open()
        out, results = (os.path.join(self._work or self.folder, name) for name in ("out", "results"))
        return out, results

    def has_busy_neighbour(self) -> bool:
        """Whether commands run in sandboxes of another executor that has its folder beside this one."""
        return any(glob.glob(f"{glob.escape(one)}/{_SANDBOXES}/*/*") for one in self._temporary.others())

    def close(self) -> None:
        """Remove it."""
        self._temporary.remove()
