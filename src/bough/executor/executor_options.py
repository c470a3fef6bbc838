"""What an executor is told when it is started: its server, its capacity, how long it stays, where its files lie.

The command line is read by hand: loading argparse costs the session 10 ms.

Rule: as little as possible is imported before the hello; starting up is what users wait for.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import NamedTuple

import msgspec

from bough import logs
from bough.errors import BoughError, UserError
from bough.executor.host.devices import DevicePool, find_gpus
from bough.executor.host.machine_capacity import machine_attributes, machine_memory
from bough.executor.worker_protocol import ATTRIBUTES, SITE
from bough.model.bounds import Finite, within
from bough.model.ids import ExecutorId, read_bytes, read_seconds
from bough.model.sites.requirements import AttributeName, Attributes, AttributeText
from bough.model.sites.resources import OWN_PYTHON, Needs
from bough.model.sites.site_specs import ExecutorsPerHost, PilotId, drains_before
from bough.wire.client_messages import VERSION
from bough.wire.executor_messages import ExecutorHello, ExecutorWelcome

CONTAINER_COMMAND = "BOUGH_CONTAINER_COMMAND"  # see `model.commands.containers`
WAIT = 0.25  # seconds for which outputs are gathered that are written back later
_ENDING = 6.0  # seconds before its end in which it ends what still runs


class ExecutorLifetime(NamedTuple):
    """How long an executor stays, where its files lie, and what it says of itself; it never changes."""

    until: float = 0.0  # when it must have left, 0: never
    started: float = 0.0  # when the clock for `until` began
    idle: float = 0.0  # seconds without work after which it leaves, 0: never
    give_up: float = 86400.0  # seconds without a server after which it leaves
    work: str = ""  # its own folder, empty: the usual one
    pilot: PilotId = PilotId(0)  # that started it
    attributes: Attributes = ()  # what it says of itself, for requirements
    cache_dir: str = ""  # the folder that its host's cache lies in, empty: the usual one
    cache_size: int = 0  # bytes of that cache, 0: the usual bound
    eviction: str = ""  # what a full cache gives up, empty: the usual policy
    peers: bool = True  # other executors may take contents from here
    shared_dir: str = ""  # a folder that all hosts of its site see, empty: none
    shared_size: int = 0  # bytes of the contents kept in it, 0: the usual bound
    gather: float = WAIT  # seconds for which outputs that are written back later are gathered
    peer_address: str = ""  # where others reach its host, empty: by the way to the server; `BY_SSH`: by that of SSH

    @property
    def leaves_at(self) -> float:
        """From when on it takes nothing more."""
        return self.until - drains_before(self.until - self.started)

    @property
    def ends_at(self) -> float:
        """From when on it ends what still runs."""
        return self.until - min(_ENDING, 0.05 * (self.until - self.started))


def make_hello(
    site: str, capacity: Needs, lifetime: ExecutorLifetime, welcome: ExecutorWelcome | None
) -> ExecutorHello:
    """What an executor says first; one that was welcomed before says its number, and of which server."""
    return ExecutorHello(
        VERSION,
        site,
        socket.gethostname(),
        os.getpid(),
        capacity,
        OWN_PYTHON,
        welcome.executor if welcome else ExecutorId(0),
        lifetime.until,
        welcome.marker if welcome else "",
        together=True,
        pilot=lifetime.pilot,
        attributes=lifetime.attributes,
    )


def shares_store(welcome: ExecutorWelcome) -> bool:
    """Whether the server's store is seen here: its token file is."""
    if welcome.embedded or not welcome.store_token:
        return welcome.embedded
    try:
        with open(os.path.join(welcome.output_dir, "..", "token"), encoding="ascii") as file:
            return file.read(200).strip() == welcome.store_token
    except (OSError, UnicodeDecodeError):
        return False


_USAGE = (
    "usage: python -m bough.executor --server ADDRESS"
    " [--cores N] [--memory BYTES] [--gpus N] [--pin yes|no] [--resource NAME=AMOUNT]... [--site NAME]"
    " [--attribute NAME=VALUE]... [--container-command TEXT]"
    " [--until SECONDS_SINCE_1970] [--idle-timeout TIME] [--give-up TIME] [--gather TIME] [--work DIR]"
    " [--cache-dir DIR] [--cache-size BYTES] [--eviction POLICY] [--peers yes|no] [--peer-address ADDRESS|ssh]"
    " [--shared-dir DIR] [--shared-size BYTES]"
    " [--allow-commands yes|no] [--pilot N] [--executors N] [--log-level LEVEL]"
)

_TEXTS = {
    "--server": "server",
    "--site": "site",
    "--work": "work",
    "--cache-dir": "cache_dir",
    "--shared-dir": "shared_dir",
    "--peer-address": "peer_address",
}
_NUMBERS = {"--cores": "cores", "--until": "until"}
_TIMES = {"--idle-timeout": "idle", "--give-up": "give_up", "--gather": "gather"}
_SIZES = frozenset({"--memory", "--cache-size", "--shared-size", "--eviction", "--peers"})


class ExecutorOptions:
    """What an executor is told when it is started."""

    __slots__ = (
        *("allows_commands", "attributes", "cache_dir", "cache_size", "cores", "eviction", "executors", "gather"),
        *(
            "give_up",
            "gpus",
            "idle",
            "memory",
            "named",
            "peer_address",
            "peers",
            "pilot",
            "pin",
            "server",
            "shared_dir",
            "shared_size",
            "site",
        ),
        *("until", "work"),
    )

    def __init__(self, words: list[str]) -> None:
        self.server = self.work = self.cache_dir = self.eviction = self.shared_dir = self.peer_address = ""
        self.cache_size = self.shared_size = 0
        self.peers = True
        self.site = "local"
        self.cores = float(os.cpu_count() or 1)
        self.memory = machine_memory()
        self.named: dict[str, float] = {}
        self.attributes: dict[str, float | str] = {}
        self.gpus: int | None = None  # None: those that are found
        self.pin = self.allows_commands = False
        self.until = self.idle = 0.0
        self.pilot = PilotId(0)
        self.executors = 1  # that share what there is, see `siblings`
        self.give_up = 86400.0
        self.gather = WAIT
        if len(words) % 2:
            raise SystemExit(_USAGE)
        for word, value in zip(words[::2], words[1::2], strict=True):
            try:
                self._set(word, value)
            except (ValueError, BoughError) as error:
                raise SystemExit(f"bough executor: {word} {value}: {error}") from None
        if not self.server:
            raise SystemExit(_USAGE)

    def _set(self, word: str, value: str) -> None:
        if word in _NUMBERS:
            setattr(self, _NUMBERS[word], float(value))
        elif word in _TEXTS:
            setattr(self, _TEXTS[word], value)
        elif word in _TIMES:
            setattr(self, _TIMES[word], read_seconds(value))
        elif word == "--log-level":
            logs.set_level(value)
        elif word == "--pilot":
            self.pilot = PilotId(int(value))
        elif word in _SIZES:
            self._set_size(word, value)
        elif word == "--pin":
            self.pin = value == "yes"
        elif word == "--allow-commands":
            self.allows_commands = value == "yes"
        elif word in {"--resource", "--gpus", "--attribute", "--container-command", "--executors"}:
            self._add(word, value)
        else:
            raise SystemExit(_USAGE)

    def _set_size(self, word: str, value: str) -> None:
        if word == "--memory":
            self.memory = read_bytes(value)
        elif word == "--peers":
            self.peers = value == "yes"
        elif word == "--cache-size":
            self.cache_size = read_bytes(value)
        elif word == "--shared-size":
            self.shared_size = read_bytes(value)
        else:
            self.eviction = check_eviction(value)

    def _add(self, word: str, text: str) -> None:
        if word == "--attribute":
            self.attributes.update([read_attribute(text)])
            return
        if word == "--executors":
            self.executors = within("--executors", int(text), ExecutorsPerHost)
            return
        if word == "--container-command":
            os.environ[CONTAINER_COMMAND] = text  # workers have it with the rest
            return
        text = text if word == "--resource" else f"gpus={text}"
        name, equals, amount = text.partition("=")
        if not name or not equals:
            raise ValueError("it is not of the form NAME=AMOUNT")
        if name in {"gpu", "gpus"}:
            self.gpus = int(amount)
        else:
            self.named[name] = float(amount)


def read_capacity_and_lifetime(options: ExecutorOptions) -> tuple[Needs, ExecutorLifetime]:
    """What an executor has, and how long it stays."""
    capacity = Needs(options.cores, options.memory, options.gpus or 0, tuple(sorted(options.named.items())))
    attributes = tuple(sorted({**machine_attributes(), **options.attributes}.items()))
    os.environ[SITE] = options.site  # for workers and their commands, as what it was told to say of itself
    if options.attributes:
        os.environ[ATTRIBUTES] = msgspec.json.encode(options.attributes).decode()
    return capacity, ExecutorLifetime(
        options.until,
        time.time(),
        options.idle,
        options.give_up,
        options.work,
        options.pilot,
        attributes,
        options.cache_dir,
        options.cache_size,
        options.eviction,
        options.peers,
        options.shared_dir,
        options.shared_size,
        options.gather,
        options.peer_address,
    )


OWN_ATTRIBUTES = ("cores", "memory_gb", "gpus", "site", "host", "python")  # said by other options


def read_attribute(text: str) -> tuple[str, float | str]:
    """What --attribute NAME=VALUE says; a value that is a number is one."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--attribute {text}: say NAME=VALUE, as in rack=7 or network=infiniband")
    if name in OWN_ATTRIBUTES:
        raise UserError(f"--attribute {text}: {name} is what the executor has; say --{name.removesuffix('_gb')}")
    name = within("--attribute", name, AttributeName)
    try:
        number = float(value)
    except ValueError:
        return name, within(f"--attribute {name}", value, AttributeText)
    return name, within(f"--attribute {name}", number, Finite)


def check_eviction(name: str) -> str:
    """The name of a policy of eviction; UnknownName when there is none such."""
    from bough.policies.eviction.eviction_names import load_eviction

    load_eviction(name)
    return name


def find_devices(options: ExecutorOptions) -> DevicePool:
    """The GPUs, and with `--pin` the cores, that tasks get by name; how many GPUs there are is noted in the options."""
    found = find_gpus()
    try:
        gpus = found if options.gpus is None else found.first(options.gpus)
    except ValueError as error:
        raise SystemExit(f"bough executor: --gpus {options.gpus}: {error}") from None
    options.gpus = len(gpus.names)
    return DevicePool(gpus, os.sched_getaffinity(0) if options.pin else ())


def extend_path(path: str) -> None:
    """Let functions import what the script can; behind our own places, so that nothing of ours is shadowed."""
    sys.path += [entry for entry in path.split(os.pathsep) if entry and entry not in sys.path]
