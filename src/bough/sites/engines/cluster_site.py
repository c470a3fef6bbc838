"""Sites that are Dask or Ray clusters: a pilot is a task or an actor there, which runs an executor beside its worker.

The engine lives in a process of its own, `cluster_helper`. Executors reach the server by the site's Unix socket if they
are on the same machine, else by the address at which the server listens. Rules: the access file is an argument of the
call and is written with mode 0600 on the worker's host; an executor uses one core, unless the definition says more,
because that is what a pilot takes of the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bough.errors import SiteError, UserError
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.sites.engines.worker_side import Call, no_way
from bough.sites.head.bootstrap import only_commands
from bough.sites.own_kinds import check_space, pilot_words, run_step
from bough.sites.site_kind import Checked, PilotStatus, Surroundings
from bough.transport.access import AT, NO_CERTIFICATE, UNIX, Access

_GIVE_UP: Final = 600.0  # seconds that an executor waits for a server
_PATIENCE: Final = 120.0  # seconds for an answer: workers may have to be started
_LONGEST_LINE: Final = 1 << 24
_LAST_WORDS: Final = 2000  # bytes


class ClusterSite:
    """See `site_kind`."""

    steps = ("reach", "python", "space", "way")
    engine = ""  # also the extra that has to be installed
    module = ""  # that it needs

    def __init__(self, name: str, spec: SiteSpec, around: Surroundings) -> None:
        if not spec.address:
            raise UserError(f"site {name} has no address: say --address, as {self.engine} prints it")
        if spec.ssh or spec.python or spec.batch != "none":
            raise UserError(f"site {name} is a cluster of {self.engine}: it has no ssh, python and batch of its own")
        if spec.executors_per_host > 1:
            raise UserError(
                f"site {name}: a pilot there is one executor; say more pilots instead of --executors-per-host"
            )
        if importlib.util.find_spec(self.module) is None:
            raise UserError(
                f"site {name} needs {self.engine} where the server runs: pip install 'bough[{self.engine}]'"
            )
        self._name = name
        self._spec = spec
        self._around = around
        self._process: asyncio.subprocess.Process | None = None
        self._drain: asyncio.Task[None] | None = None
        self._said = bytearray()  # by the engine, on stderr
        self._lock = asyncio.Lock()  # one request at a time

    # --- tests -------------------------------------------------------------------------------------

    async def check(self, step: str) -> Checked:
        """Look at one thing; what went wrong is the line."""
        return await run_step(self, step)

    async def _check_reach(self) -> Checked:
        return Checked(True, str(await self._ask("describe")))

    async def _check_python(self) -> Checked:
        found = await self._ask("look")
        return Checked(
            True, f"a worker on {found['host']} has Python {found['python']}" + only_commands(found["python"])
        )

    async def _check_space(self) -> Checked:
        return check_space(self._spec, await self._ask("look"))

    async def _check_way(self) -> Checked:
        found = await self._ask("look")
        if not found["way"]:
            return Checked(False, f"{found['host']}: {no_way(Call('', {}, self._ways()))}")
        return Checked(True, f"executors there reach this server through {found['way']}")

    # --- the helper --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Be connected."""
        async with self._lock:
            await self._connect()

    async def _connect(self) -> None:
        if self._process is not None and self._process.returncode is None:
            return
        await self._end()
        self._said.clear()
        argv = [sys.executable, "-m", "bough.sites.engines.cluster_helper"]
        self._process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_LONGEST_LINE,
        )
        self._drain = asyncio.ensure_future(self._watch(self._process))
        await self._exchange(
            {
                "engine": self.engine,
                "address": self._spec.address,
                "prefix": f"bough-{self._name}-{self._around.key[:12]}",
                "key": self._around.key,
                "cache": self._around.cache,
                "shared_dir": self._spec.shared_dir,
                "ways": self._ways(),
            }
        )

    def _ways(self) -> list[list[str]]:
        around = self._around
        ways = [Access(f"{UNIX}{around.socket}", NO_CERTIFICATE, "execute", around.token)]
        if around.address:
            ways.append(Access(around.address, around.fingerprint, f"execute{AT}{self._name}", around.token))
        return [[access.address, msgspec.json.encode(access).decode()] for access in ways]

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while piece := await process.stderr.read(4096):  # it must not wait for us
            self._said[:] = (self._said + piece)[-_LAST_WORDS:]
        await process.wait()
        if self._process is process:
            self._around.on_lost()

    async def _ask(self, what: str, **fields: object) -> Any:
        async with self._lock:
            await self._connect()
            return await self._exchange({"what": what, **fields})

    async def _exchange(self, request: dict[str, object]) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_PATIENCE):
                process.stdin.write(json.dumps(request).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            await self._end()
            raise SiteError(f"{self._spec.address} has not answered within {_PATIENCE:g} s", transient=True) from None
        except (ConnectionError, ValueError, RuntimeError):  # the last is uvloop's for a pipe that is closed
            line = b""
        except asyncio.CancelledError:  # the answer would be taken for that to another request
            await self._end()
            raise
        if not line:
            await self._end()
            lines = self._said.decode("utf-8", "replace").strip().splitlines()
            words = lines[-1][:300] if lines else "without a word"
            raise SiteError(f"the connection to {self._spec.address} ended: {words}", transient=True)
        answer = json.loads(line)
        if "trouble" in answer:
            raise SiteError(answer["trouble"], transient=answer["transient"])
        return answer["ok"]

    # --- pilots ------------------------------------------------------------------------------------

    async def submit(self, pilot: PilotId) -> str:
        """Have an executor started beside a worker."""
        spec = self._spec
        cores = spec.cores_per_pilot or 1.0
        words = pilot_words(self._name, spec, self._around, pilot, idle=spec.idle, give_up=_GIVE_UP)
        words += ["--cores", f"{cores:g}"]
        return str(await self._ask("submit", pilot=pilot, words=words, setup=spec.setup, cores=cores))

    async def statuses(self, pilots: Mapping[PilotId, str]) -> Mapping[PilotId, PilotStatus]:
        """Ask for all of them at once."""
        found = await self._ask("statuses", pilots=list(pilots))
        return {pilot: PilotStatus(*found[str(pilot)]) for pilot in pilots}

    async def cancel(self, pilots: Mapping[PilotId, str]) -> None:
        """End them, and wait for that."""
        await self._ask("cancel", pilots=list(pilots))

    async def forget(self) -> None:
        """Remove the access file and what else is on the workers' hosts of this site."""
        await self._ask("forget")

    async def close(self) -> None:
        """End the connection; whoever waits for an answer learns it at once."""
        if self._process is not None:
            _kill(self._process)
        async with self._lock:
            await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
            await process.wait()
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None


def _kill(process: asyncio.subprocess.Process) -> None:
    """End a helper: what it asked for is done, and it keeps nothing."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class DaskSite(ClusterSite):
    """A Dask cluster, by the address of its scheduler."""

    engine = "dask"
    module = "distributed"


class RaySite(ClusterSite):
    """A Ray cluster, by the address of its head."""

    engine = "ray"
    module = "ray"
