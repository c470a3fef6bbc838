"""Which file systems are on the network.

SQLite's write-ahead log needs shared memory and cannot be used there, and the kernel does not tell what other hosts
write. Rule: it imports next to nothing, because the place of a socket is chosen before anything is loaded.
"""

from __future__ import annotations

import os
import re
from typing import Final

NETWORK: Final = frozenset({
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "pvfs2", "orangefs",
    "panfs", "9p", "virtiofs", "ncpfs",
})  # fmt: skip
NETWORK_PREFIXES: Final = ("fuse.sshfs", "fuse.gluster", "fuse.ceph", "fuse.beegfs", "fuse.lustre", "fuse.rclone")
_ESCAPE = re.compile(r"\\([0-7]{3})")  # how /proc/mounts writes spaces


def is_network_filesystem(path: str | os.PathLike[str], mounts: str | None = None) -> bool:
    """Whether a path lies on a network file system; False when that cannot be told."""
    if mounts is None:
        try:
            with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as table:
                mounts = table.read()
        except OSError:
            return False
    where = os.path.realpath(path)
    best, kind = -1, ""
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), words[1])
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # the later of two mounts on one point hides the earlier
            best, kind = len(point), words[2]
    return kind in NETWORK or kind.startswith(NETWORK_PREFIXES)
