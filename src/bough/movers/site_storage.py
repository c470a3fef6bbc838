"""Files of a site's own storage (alpha:/data/x), as a host of that site reads them: what is there, and a copy of it.

`remote_files` does the same for URLs. Rule: a copy is complete when it has come; a file that changed while it was read
has no mark, so that it is never taken for one that is known.
"""

from __future__ import annotations

import os
import shutil
import stat
import time

from bough.errors import SiteError
from bough.model.files import is_settled, site_file
from bough.model.sites.resources import show_bytes
from bough.movers.folder_archive import pack_file
from bough.movers.remote_files import RemoteFile


def look(url: str) -> RemoteFile:
    """What is there now; a folder has no mark."""
    looked, state = time.time_ns(), _state(url)
    if stat.S_ISDIR(state.st_mode):
        return RemoteFile(-1, "")
    mark = f"{state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}" if is_settled(state.st_mtime_ns, looked) else ""
    return RemoteFile(state.st_size, mark)


def fetch(url: str, path: str, most: int) -> RemoteFile:
    """Copy it to a new file, a folder as its archive; SiteError when it has more than `most` bytes."""
    found, source = look(url), site_file(url)[1]
    _check_size(url, found.size, most)
    if is_folder(url):
        packed = pack_file(source, path)
        _check_size(url, packed.size, most)
        return RemoteFile(packed.size, "")
    try:
        shutil.copyfile(source, path)
    except PermissionError:
        raise _denied(url) from None
    size = os.stat(path).st_size
    return found._replace(size=size, mark=found.mark if look(url) == found and size == found.size else "")


def is_folder(url: str) -> bool:
    """Whether it is one."""
    return os.path.isdir(site_file(url)[1])


def _state(url: str) -> os.stat_result:
    site, path = site_file(url)
    try:
        state = os.stat(path)
    except PermissionError:
        raise _denied(url) from None
    except (OSError, ValueError):
        raise SiteError(f"{path} is not there at {site}", transient=False) from None
    if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
        raise SiteError(f"{path} at {site} is neither a file nor a folder", transient=False)
    return state


def _denied(url: str) -> SiteError:
    site, path = site_file(url)
    return SiteError(f"{path} may not be read at {site}", transient=False)


def _check_size(url: str, size: int, most: int) -> None:
    """What a host gives to others lies in its cache."""
    if size > most:
        why = f"it has {show_bytes(size)}, and the cache of a host there {show_bytes(most)} (--cache-size)"
        raise SiteError(f"{url} cannot be brought to another site: {why}", transient=False)
