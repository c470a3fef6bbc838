"""What `bough run` hands to the script it runs: defaults of its sessions, and the sessions that are open.

Rule: the arguments of a `Session` win over what stands here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bough.errors import UserError
from bough.model.bounds import shown

if TYPE_CHECKING:
    from bough.api.session import Session

# Keys: server, name, store, cores, policy, fresh, fail_fast. A missing key, or None, says nothing.
options: dict[str, object] = {}

# A flat list is run: what commands need is loaded while the server starts.
runs_commands = False

# A whole description is submitted: what is there of a workflow that goes on need not be told to the session.
describes = False

# Every session of this process in the order of opening; closed ones too, for their counts and failures.
sessions: list[Session] = []


def setting(name: str, given: object, otherwise: object = None) -> object:
    """A constructor's argument, or what `bough run` said, or the default."""
    if given is not None:
        return given
    said = options.get(name)
    return otherwise if said is None else said


def server(given: str | None) -> str | None:
    """The address of a server: as given, or as `bough run` said, or $BOUGH_SERVER; None: there is to be none."""
    if given is not None and not isinstance(given, str):
        raise UserError(f"address is {shown(given)}; give unix:PATH, HOST:PORT or the path of an access file")
    said = options.get("server")
    return given or (said if isinstance(said, str) and said else None) or os.environ.get("BOUGH_SERVER") or None
