"""`python -m bough.sites.engines.cluster_helper`: the process by which a server talks to one Dask or Ray cluster.

Engines bring threads, signal handlers and sometimes the end of their process; so each has a process of its own, a
child of the server that ends with it. It reads requests, one line of JSON each, and answers each with one line. Rules:
what is secret comes by stdin; when an engine is in trouble this process says so and ends; the server starts another.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final, Protocol

from bough.errors import SiteError
from bough.sites.engines.worker_side import Call, boot_id
from bough.sites.head.bootstrap import OWN, make_archive, read_platform

_MOST_SAID: Final = 300  # characters
_PLACE: Final = re.compile(r"^(?:\w+://)?(\[[0-9A-Fa-f:.]+\]|[^\[\]/:]+):(\d{1,5})/?\Z", re.ASCII)
_CONNECTED: Final = 10.0  # seconds for a connection


class Engine(Protocol):
    """A kind of cluster."""

    def describe(self) -> str:
        """What is there, in a few words."""

    def look(self, call: Call) -> dict[str, Any]:
        """What kind of place a worker is, see `worker_side.look`."""

    def submit(self, name: str, call: Call, cores: float) -> None:
        """Start a pilot, unless it was before."""

    def statuses(self, names: Sequence[str]) -> dict[str, tuple[bool, str]]:
        """Whether pilots live, and the last words of those that do not."""

    def cancel(self, names: Sequence[str], call: Call) -> None:
        """End pilots."""

    def forget(self, call: Call) -> None:
        """Remove what is on the workers' hosts."""


class ClusterHelper:
    """See the module. `first` is the first request: which cluster, which site, which ways lead to the server."""

    def __init__(self, first: dict[str, Any]) -> None:
        self._first = first
        self._engine = make_engine(first["engine"], first["address"])
        self._far_side = resources.files("bough.sites.head").joinpath("far_side.py").read_text(encoding="utf-8")
        self._platform = OWN

    def answer(self, request: dict[str, Any]) -> Any:
        """Do what a request says."""
        names = {str(pilot): f"{self._first['prefix']}-{pilot}" for pilot in request.get("pilots", ())}
        match request["what"]:
            case "describe":
                return self._engine.describe()
            case "look":
                return self._look()
            case "submit":
                return self._submit(request)
            case "statuses":
                found = self._engine.statuses(list(names.values()))
                return {pilot: found[name] for pilot, name in names.items()}
            case "cancel":
                call = self._call({"pilots": list(map(int, names))})
                return self._engine.cancel(list(names.values()), call)
            case "forget":
                return self._engine.forget(self._call({}))
        raise ValueError(f"there is no request {request['what']!r}")

    def _call(self, request: dict[str, Any], archive: bytes = b"") -> Call:
        common = {"key": self._first["key"], "tag": OWN.tag, "boot": boot_id()}
        return Call(self._far_side, {**common, **request}, self._first["ways"], archive)

    def _look(self) -> dict[str, Any]:
        found = self._engine.look(self._call({"digest": "-", "shared_dir": self._first["shared_dir"]}))
        if "trouble" in found:
            raise SiteError(found["trouble"])
        self._platform = read_platform(found)
        return found

    def _submit(self, request: dict[str, Any]) -> str:
        found = self._look()
        archive = make_archive(self._first["cache"], self._platform)
        name = f"{self._first['prefix']}-{request['pilot']}"
        more = {"digest": archive.digest, "platform": found["tag"], "shared_dir": self._first["shared_dir"]}
        wanted = {name: request[name] for name in ("pilot", "words", "setup")}
        self._engine.submit(name, self._call({**wanted, **more}, archive.data), request["cores"])
        return name


def make_engine(name: str, address: str) -> Engine:
    """Connect to a cluster."""
    _knock(name, address)
    if name == "dask":
        from bough.sites.engines.dask_engine import DaskEngine

        return DaskEngine(address)
    from bough.sites.engines.ray_engine import RayEngine

    return RayEngine(address)


def _knock(name: str, address: str) -> None:
    """See whether somebody listens: engines try for long before they say that nobody does."""
    found = _PLACE.search(address)
    if found is None:
        return
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), _CONNECTED).close()
    except (OSError, OverflowError) as error:
        raise SiteError(f"no {name} cluster answers at {address}: {error}", transient=True) from error


def main() -> int:
    """Answer until there are no more requests; 0, or 1 after trouble."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an engine prints is no answer
    helper: ClusterHelper | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            if helper is None:
                helper = ClusterHelper(request)
                answer = {"ok": helper.answer({"what": "describe"})}
            else:
                answer = {"ok": helper.answer(request)}
        except SiteError as error:
            answer = {"trouble": str(error), "transient": error.transient}
        except Exception as error:  # noqa: BLE001 -- an engine may raise anything; the next connection is a new one
            text = (str(error).strip().splitlines() or [""])[0][:_MOST_SAID]
            answer = {"trouble": f"{type(error).__name__}: {text}".rstrip(": "), "transient": True, "over": True}
        out.write(json.dumps(answer) + "\n")
        out.flush()
        if answer.get("over") or helper is None:
            return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads of an engine may go on for a while
