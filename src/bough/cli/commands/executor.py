"""`bough executor`: start executors for a server, and look after those that are there.

Rule: an executor connects outwards to its server; only executors that the server has sent connect to it, for files.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import time
from typing import Any

from bough.api.display.surroundings import show_seconds
from bough.cli.main import add_verb, put_on_path
from bough.cli.option_values import (
    add_log_level,
    amount,
    begin_log,
    count,
    duration,
    log_level_words,
    number,
    path_name,
    peer_address,
)
from bough.cli.output import Output
from bough.cli.targets.live_server import add_server_argument, connect_client, detach
from bough.errors import UserError
from bough.executor.executor_options import check_eviction, read_attribute
from bough.model.bounds import Gpus, within
from bough.model.commands.containers import check_container_command
from bough.model.ids import read_bytes, read_seconds
from bough.model.sites.resources import show_bytes
from bough.model.sites.site_specs import RESOURCE
from bough.model.texts.plurals import counted
from bough.transport.access import find_access
from bough.wire import questions

EXAMPLES = (
    "bough executor start --cores 8",
    "bough executor start --server executor.json --cores 32 --gpus 2 --until 11:50:00 --idle-timeout 10m --detach",
    "bough executor start --emulate 1000",
    "bough executor list",
    "bough executor drain 3",
    "bough executor stop 3 4",
)
_EACH = 0.01  # seconds in which an emulated executor has joined
_ANSWER = 0.0001  # seconds between two questions, for each executor of the answer
_REFUSAL = 1.5  # seconds in which a server has refused an executor that it does not want


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    start = add_verb(verbs, "start", "start an executor, in the foreground or detached", EXAMPLES[:3])
    add_server_argument(start)
    start.add_argument("--detach", action="store_true", help="run in the background; returns once all have joined")
    start.add_argument("--cores", type=amount, metavar="N", help="cores to use (all; 1 for each that is emulated)")
    start.add_argument("--memory", metavar="SIZE", help="memory to use, as 64GB (all)")
    start.add_argument("--gpus", type=count, metavar="N", help="GPUs to use (those it was given, or all there are)")
    start.add_argument("--pin", action="store_true", help="give tasks cores of their own: they run on no others")
    start.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="NAME=N",
        help="something else that tasks may need; repeatable",
    )
    start.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what tasks may require, as in requires='rack == 7'; repeatable",
    )
    start.add_argument(
        "--container-command",
        metavar="TEXT",
        help="how containers are run here: 'singularity exec --bind {cwd} {image} {command}'",
    )
    start.add_argument("--site", help="the site it belongs to (default: local, or emulated)")
    start.add_argument(
        "--until", metavar="WHEN", help="when it must be gone: a duration from now (12h) or a time (2030-01-31T18:00)"
    )
    start.add_argument(
        "--idle-timeout",
        type=duration,
        default=0.0,
        metavar="TIME",
        help="leave when there is nothing to do for so long",
    )
    start.add_argument(
        "--give-up",
        type=duration,
        default=86400.0,
        metavar="TIME",
        help="leave when there is no server for so long (1d)",
    )
    start.add_argument(
        "--work",
        type=path_name,
        metavar="DIR",
        help="its own folder, for a machine that does not see the server's store",
    )
    start.add_argument(
        "--cache-dir",
        type=path_name,
        metavar="DIR",
        help="where the cache of this host's executors lies; /dev/shm keeps it in memory",
    )
    start.add_argument("--cache-size", metavar="SIZE", help="bytes that the cache may have, as 100GB (10GB)")
    start.add_argument(
        "--eviction",
        metavar="POLICY",
        help="what a full cache gives up first: needed-last, lru, lfu, fifo or random (needed-last)",
    )
    start.add_argument(
        "--gather",
        type=duration,
        metavar="TIME",
        help="how long outputs with keep=later may wait for others that are written back with them (0.25s)",
    )
    start.add_argument(
        "--shared-dir",
        type=path_name,
        metavar="DIR",
        help="a folder that all hosts of its site see: inputs are kept in it once for all of them",
    )
    start.add_argument("--shared-size", metavar="SIZE", help="bytes of inputs in the shared folder, as 1TB (100GB)")
    start.add_argument(
        "--no-peers", action="store_true", help="listen for nobody: other executors take no cached files from here"
    )
    start.add_argument(
        "--peer-address",
        type=peer_address,
        metavar="ADDRESS",
        help="where other executors reach this host, as 10.0.0.7 (its address on the way to the server; of a Unix"
        " socket that SSH forwards here: ssh)",
    )
    start.add_argument(
        "--allow-commands",
        action="store_true",
        help="let remote monitors run commands beside the tasks that they watch",
    )
    start.add_argument(
        "--emulate", type=count, metavar="N", help="N executors in one process that run nothing, to try out many"
    )
    start.add_argument(
        "--seconds",
        type=number,
        metavar="S",
        help="what tasks of emulated executors take, but for commands 'sleep X', which take X (0)",
    )
    add_log_level(start)
    listing = add_verb(verbs, "list", "show the executors of a server", EXAMPLES[3:4])
    add_server_argument(listing)
    for name, summary, examples in (
        ("drain", "let executors finish what they have, and leave", EXAMPLES[4:5]),
        ("stop", "end executors; others get their tasks", EXAMPLES[5:]),
        ("resume", "give a suspended executor work again", ("bough executor resume 3",)),
    ):
        verb = add_verb(verbs, name, summary, examples)
        add_server_argument(verb)
        verb.add_argument("executors", nargs="+", type=count, metavar="ID", help="the executor's number")


def run(args: argparse.Namespace, output: Output) -> int:
    """Do what the verb says."""
    if args.verb == "start":
        return _start(args, output)
    if args.verb == "list":
        return _list(args, output)
    with connect_client(args.server) as server:
        server.manage(args.verb, args.executors)
    done = {"drain": "will leave when done", "stop": "told to end", "resume": "resumed"}[args.verb]
    said = f"executor{'s' if len(args.executors) > 1 else ''} {', '.join(map(str, args.executors))} {done}"
    output.answer({"executors": args.executors}, lambda: [said])
    return 0


def _start(args: argparse.Namespace, output: Output) -> int:
    begin_log(args)
    put_on_path()
    _check_emulation(args)
    words = _words(args)
    if not args.detach:
        code = _serve(args, words)
        if code:
            raise SystemExit(code)  # its own words say why
        return code
    begun = time.monotonic()
    count = args.emulate or 1
    unseen = find_access(args.server, "execute").is_proven  # an executor's token does not let us ask
    pid = detach(
        ["executor", "start", *_own_words(args)],
        "executor.log",
        lambda pid: time.monotonic() > begun + _REFUSAL if unseen else _have_joined(args.server, pid, count),
        more=count * _EACH,
    )
    what = f"process {pid} of {counted(count, 'emulated executor')}" if args.emulate else f"executor process {pid}"
    joined = "was started" if unseen else "has joined: all of them" if args.emulate else "has joined"
    output.answer({"pid": pid, "executors": count}, lambda: [f"{what} {joined}"])
    return 0


def _serve(args: argparse.Namespace, words: list[str]) -> int:
    """Be the executor, or many that are emulated; the exit code."""
    if args.emulate is None:
        from bough.executor.loop import main

        return main(words)
    from bough.testing.emulated_executors import emulate

    return emulate(words, args.emulate, args.seconds or 0.0)


def _check_emulation(args: argparse.Namespace) -> None:
    """Set what depends on whether executors are emulated."""
    emulated = args.emulate is not None
    if emulated:
        from bough.testing.emulated_executors import check_count

        check_count(args.emulate)
    elif args.seconds is not None:
        raise UserError("--seconds is for emulated executors: say how many with --emulate")
    if args.seconds is not None and not 0 <= args.seconds < math.inf:
        raise UserError(f"--seconds {args.seconds:g}: give a time that a task can take")
    if args.cores is None:
        args.cores = 1.0 if emulated else float(os.cpu_count() or 1)
    args.site = args.site or ("emulated" if emulated else "local")


def _have_joined(server: str | None, pid: int, count: int) -> bool:
    """Whether the server has all executors of a process."""
    with connect_client(server) as asked:
        found = asked.ask(questions.Executors())
    there = len([entry for entry in found if entry["pid"] == pid])
    if there < count:
        time.sleep(min(1.0, there * _ANSWER))  # the more there are, the longer an answer is
    return there >= count


def _words(args: argparse.Namespace) -> list[str]:
    """The arguments of the executor process."""
    access = find_access(args.server, "execute")
    words = ["--server", args.server or os.environ.get("BOUGH_SERVER") or access.address]
    if args.until:
        words += ["--until", repr(read_until(args.until))]
    return words + _common_words(args) + _flag_words(args)


def _own_words(args: argparse.Namespace) -> list[str]:
    """The arguments of this command, for another process."""
    words = ["--server", args.server] if args.server else []
    if args.until:
        words += ["--until", dt.datetime.fromtimestamp(read_until(args.until)).astimezone().isoformat()]
    if args.emulate is not None:
        words += ["--emulate", str(args.emulate), "--seconds", repr(args.seconds or 0.0)]
    flags = (["--pin"] if args.pin else []) + (["--allow-commands"] if args.allow_commands else [])
    flags += ["--no-peers"] if args.no_peers else []
    return words + _common_words(args) + flags


def _flag_words(args: argparse.Namespace) -> list[str]:
    words = (["--pin", "yes"] if args.pin else []) + (["--allow-commands", "yes"] if args.allow_commands else [])
    return words + (["--peers", "no"] if args.no_peers else [])


def _common_words(args: argparse.Namespace) -> list[str]:
    if not 0 < args.cores < math.inf:
        raise UserError(
            f"--cores {args.cores:g}: an executor has more than 0 cores; leave the option out for all of this machine"
        )
    if args.gpus is not None:
        within("--gpus", args.gpus, Gpus)
    words = ["--cores", f"{args.cores:g}", "--site", args.site, "--give-up", f"{args.give_up:g}"]
    words += log_level_words(args)
    if args.memory:
        try:
            read_bytes(args.memory)
        except ValueError:
            raise UserError(f"--memory {args.memory}: not a size; say 64GB") from None
        words += ["--memory", args.memory]
    if args.gpus is not None:
        words += ["--gpus", str(args.gpus)]
    if args.idle_timeout:
        words += ["--idle-timeout", f"{args.idle_timeout:g}"]
    if args.work:
        words += ["--work", os.path.abspath(args.work)]
    for resource in args.resource:
        name, equals, amount = resource.partition("=")
        if not (name and equals and amount.replace(".", "", 1).isdigit()):
            raise UserError(f"--resource {resource}: say NAME=AMOUNT, as in gpu=2")
        words += ["--resource", resource]
    return words + _cache_words(args) + _attribute_words(args)


def _cache_words(args: argparse.Namespace) -> list[str]:
    words = ["--cache-dir", os.path.abspath(args.cache_dir)] if args.cache_dir else []
    words += ["--shared-dir", os.path.abspath(args.shared_dir)] if args.shared_dir else []
    for option, size in (("--cache-size", args.cache_size), ("--shared-size", args.shared_size)):
        if size:
            try:
                read_bytes(size)
            except ValueError:
                raise UserError(f"{option} {size}: not a size; say 100GB") from None
            words += [option, size]
    if args.eviction:
        words += ["--eviction", check_eviction(args.eviction)]
    if args.peer_address:
        words += ["--peer-address", args.peer_address]
    if args.gather is not None:
        words += ["--gather", f"{args.gather:g}"]
    return words


def _attribute_words(args: argparse.Namespace) -> list[str]:
    for attribute in args.attribute:
        read_attribute(attribute)
    words = [word for attribute in args.attribute for word in ("--attribute", attribute)]
    if args.container_command:
        words += ["--container-command", check_container_command(args.container_command)]
    return words


def read_until(text: str) -> float:
    """A time since the epoch from a duration from now, or from a time of day or date."""
    try:
        return time.time() + read_seconds(text)
    except ValueError:
        pass
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"--until {text}: neither a duration (12h) nor a time (2030-01-31T18:00)") from None
    return when.timestamp()


def _list(args: argparse.Namespace, output: Output) -> int:
    with connect_client(args.server, "read") as server:
        found = server.ask(questions.Executors())
    if args.json:
        output.answer(found, list)
        return 0
    columns = ["cores", "memory"] + (["gpus"] if any(e["gpus"] for e in found) else [])
    columns += sorted({name for e in found for name in e["named"] if not name.startswith(RESOURCE)})
    rows = [
        [
            *(e["executor"], e["state"], e["site"], e["host"], e["pid"], e["python"]),
            *(_amounts(e, name) for name in columns),
            *(e.get("tasks", ""), _left(e["until"])),
        ]
        for e in sorted(found, key=lambda entry: entry["executor"])
    ]
    heads = ["ID", "STATE", "SITE", "HOST", "PID", "PYTHON", *map(str.upper, columns), "TASKS", "LEFT"]
    output.table(heads, rows)
    return 0


def _amounts(entry: dict[str, Any], name: str) -> str:
    """How much of a resource is used, and how much there is: 3/8."""
    most = entry["named"].get(name, 0) if name not in {"cores", "memory", "gpus"} else entry[name]
    used = entry.get("used", {}).get(name, 0)
    if name == "memory":
        return f"{show_bytes(int(used))}/{show_bytes(int(most))}"
    return f"{used:g}/{most:g}"


def _left(until: float) -> str:
    return show_seconds(max(0.0, until - time.time())) if until else ""
