"""Playpens: the folder of a command that has its files put, stored and got, as in OurGrid.

A playpen is empty but for what was put there, and is deleted when the attempt has ended. `$STORAGE` is a folder of the
host that stays: what is stored is copied there unless the same bytes are there already, and keeps its time then. Of two
tasks that store one file the second waits for the first. Rule: whatever a name says, nothing outside of the playpen and
the storage is written, not even through a link.
"""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import socket
from collections.abc import Callable, Iterator

from bough import private
from bough.errors import BoughError
from bough.executor.files.command_files.declared_outputs import remove
from bough.executor.files.command_files.host_folders import host_folder, locked
from bough.executor.host.machine_capacity import machine_attributes
from bough.executor.host.processes import Unstartable
from bough.model.commands.command import CommandCall, Transfer
from bough.model.commands.playpens import PLAYPEN, STORAGE, get_slot, read_remote
from bough.model.sites.requirements import as_known, meets


class Playpen:
    """See the module. `folder` is the executor's own; `name` that of the attempt."""

    def __init__(self, folder: str, call: CommandCall, name: str) -> None:
        self.path = f"{folder}/playpens/{name}"
        self.storage = f"{host_folder(folder)}/storage"
        self._transfers = call.transfers

    def prepare(self, source: Callable[[str], str], attributes: dict[str, str | float]) -> None:
        """Make it and fill it; `source` says where a path of the submitter lies here."""
        try:
            remove(self.path)
            private.make_folder(os.path.dirname(self.path))
            private.make_folder(self.path)
            private.make_folder(self.storage)
            for one in self._wanted(attributes):
                if one.kind != "get":
                    self._bring(one, source(one.local))
        except BoughError as error:
            raise Unstartable(f"the playpen cannot be made: {error}", of_site=False) from error
        except OSError as error:
            raise Unstartable(f"the playpen cannot be made: {why_not(error)}") from error

    def _wanted(self, attributes: dict[str, str | float]) -> Iterator[Transfer]:
        """The transfers whose conditions are met here."""
        known = None
        for one in self._transfers:
            if one.when and known is None:
                known = as_known(tuple({**machine_attributes(), **attributes}.items()))
            if not one.when or meets(one.when, known or {}):
                yield one

    def _bring(self, one: Transfer, source: str) -> None:
        place = read_remote(one.remote, stored=one.kind == "store")
        if not place.stored:
            _copy(source, _inside(self.path, place.name))
            return
        with locked(self.storage, place.name):
            target = _inside(self.storage, place.name)
            if one.kind == "put" or not _is_same(source, target):
                _copy(source, target)

    def collect(self, hidden: dict[str, str], attributes: dict[str, str | float]) -> None:
        """Put what is to be got where outputs of the command wait for their names; what is not there is missing."""
        for one in self._wanted(attributes):
            if one.kind == "get":
                place = read_remote(one.remote)
                made = f"{self.storage if place.stored else self.path}/{place.name}"
                target = hidden[get_slot(one)]
                if os.path.lexists(made) and _stays(made, self.storage if place.stored else self.path):
                    _copy(made, target)

    def variables(self, record: int, index: int) -> dict[bytes, bytes]:
        """What the command finds in its environment."""
        return {
            PLAYPEN.encode(): os.fsencode(self.path),
            STORAGE.encode(): os.fsencode(self.storage),
            b"PROC": socket.gethostname().encode(),
            b"JOB": b"%d" % record,
            b"TASK": b"%d" % index,
        }

    def remove(self) -> None:
        """The attempt has ended."""
        os.chdir("/")
        private.remove_tree(self.path)


def why_not(error: OSError) -> str:
    """What went wrong, with the file that it is about."""
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)


def _stays(path: str, root: str) -> bool:
    """Whether something, with all links, is below a folder."""
    return os.path.realpath(path).startswith(os.path.realpath(root) + "/")


def _inside(root: str, name: str) -> str:
    """The path of a name in a folder, whose parents are made; OSError when a link among them leads elsewhere."""
    folder = root
    for piece in name.split("/")[:-1]:
        folder = f"{folder}/{piece}"
        if os.path.islink(folder):
            raise OSError(0, "a link stands in the way", folder)
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o755)
    return f"{folder}/{name.rpartition('/')[2]}"


def _is_same(source: str, target: str) -> bool:
    """Whether a file or folder is there already, byte for byte."""
    if os.path.islink(target) or not os.path.exists(target):
        return False
    if os.path.isdir(source) or os.path.isdir(target):
        from bough.movers.folder_archive import archive_digest

        return os.path.isdir(source) and os.path.isdir(target) and archive_digest(source) == archive_digest(target)
    return filecmp.cmp(source, target, shallow=False)


def _copy(source: str, target: str) -> None:
    """A copy that is complete when it has its name."""
    folder, _, name = target.rpartition("/")
    hidden = f"{folder}/.bough-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        if os.path.isdir(source):
            shutil.copytree(source, hidden, symlinks=True)
            remove(target)
        else:
            shutil.copyfile(source, hidden)
            os.chmod(hidden, 0o755 if os.access(source, os.X_OK) else 0o644)
        os.replace(hidden, f"{folder}/{name}")
    except shutil.Error as error:  # of the files of a folder: it names them all
        remove(hidden)
        why = str(error.args[0][0][2])
        raise OSError(errno.ENOSPC if os.strerror(errno.ENOSPC) in why else errno.EIO, why) from error
    except BaseException:
        remove(hidden)
        raise
