"""`bough relay`: let executors that reach only this machine work for a server elsewhere.

Rule: one relay for each `$BOUGH_HOME`; executors are given its access file, as they would be given a server's.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import time

from bough.api.display.surroundings import show_seconds
from bough.cli.main import add_verb
from bough.cli.option_values import add_log_level, begin_log, duration, log_level_words
from bough.cli.output import Output
from bough.cli.targets.live_server import add_server_argument, detach
from bough.errors import SiteError, UserError
from bough.model.texts.plurals import counted
from bough.relay import relay_home
from bough.transport import home

EXAMPLES = (
    "bough relay start --server executor.json --listen 0.0.0.0:7071 --detach",
    "bough executor start --server ~/.local/state/bough/relay/access.json",
    "bough relay start --server executor.json --listen 0.0.0.0:7071 --dispatch --detach",
    "bough relay status --json",
    "bough relay stop",
)
_ENDING = 10.0  # seconds that a relay has to end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    start = add_verb(verbs, "start", "start a relay, in the foreground or detached", EXAMPLES[:3])
    add_server_argument(start)
    start.add_argument(
        "--listen",
        metavar="ADDRESS",
        default="",
        help="where executors connect: HOST:PORT by TLS, port 0: any; or unix:PATH (default: a Unix socket)",
    )
    start.add_argument("--site", default="", help="the site it serves, for the server's records")
    start.add_argument(
        "--dispatch",
        action="store_true",
        help="share out work: to the server, all executors behind this relay are one wide executor",
    )
    start.add_argument(
        "--reconnect",
        type=duration,
        default=60.0,
        metavar="TIME",
        help="with --dispatch: time that an executor whose connection was lost has to reconnect (60s)",
    )
    start.add_argument(
        "--give-up", type=duration, default=0.0, metavar="TIME", help="end after this time without a server (never)"
    )
    add_log_level(start)
    start.add_argument("--detach", action="store_true", help="run in the background; returns once it has its server")
    add_verb(verbs, "status", "say whether a relay runs here, and for how many", EXAMPLES[3:4])
    add_verb(
        verbs, "stop", "end the relay; executors behind it keep working and reconnect to the next one", EXAMPLES[4:]
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Do what the verb says."""
    return {"start": _start, "status": _status, "stop": _stop}[args.verb](args, output)


def _start(args: argparse.Namespace, output: Output) -> int:
    from bough.relay.relay_process import RelaySettings, relay

    server = _whole(args.server or os.environ.get("BOUGH_SERVER", ""))
    begin_log(args)
    if not args.detach:
        return relay(RelaySettings(server, args.listen, args.site, args.dispatch, args.reconnect, args.give_up))
    words = ["relay", "start", "--site", args.site, "--listen", args.listen, "--reconnect", f"{args.reconnect:g}"]
    words += log_level_words(args)
    if args.give_up:
        words += ["--give-up", f"{args.give_up:g}"]
    if args.dispatch:
        words.append("--dispatch")
    if server:
        words += ["--server", server]
    pid = detach(words, "relay.log", _is_up, home.make_relay_dir())
    note = relay_home.running()
    value = {"pid": pid, "address": note.address if note else "", "access": relay_home.access_path()}
    output.answer(
        value, lambda: [f"relay {pid} serves at {value['address']}; start executors with --server {value['access']}"]
    )
    return 0


def _whole(server: str) -> str:
    """The path of an access file from the root, as long as it is known from where."""
    path = os.path.expanduser(server)
    return os.path.abspath(path) if server and os.path.exists(path) else server


def _is_up(pid: int) -> bool:
    note = relay_home.running()
    return note is not None and note.pid == pid and note.linked


def _status(_: argparse.Namespace, output: Output) -> int:
    note = relay_home.running()
    if note is None:
        output.answer({"running": False}, lambda: [f"no relay runs in {home.home()}"])
        return 3
    value = {
        "running": True,
        "pid": note.pid,
        "host": note.host,
        "address": note.address,
        "access": note.access,
        "server": note.server,
        "started": note.started,
        "linked": note.linked,
        "connections": note.connections,
        "dispatches": note.dispatches,
    }
    state = "has its server" if note.linked else "cannot reach its server"
    age = show_seconds(max(0.0, time.time() - note.started))
    said = f"relay {note.pid} on {note.host} has listened at {note.address} for {age}"
    count = (
        f"{counted(note.connections, 'executor')} to which it hands out work"
        if note.dispatches
        else counted(note.connections, "connection")
    )
    output.answer(value, lambda: [f"{said}; it {state}, {count}"])
    return 0


def _stop(_: argparse.Namespace, output: Output) -> int:
    note = relay_home.running()
    if note is None:
        raise UserError(f"no relay runs in {home.home()}")
    if note.host != socket.gethostname():
        raise UserError(f"the relay {note.pid} runs on host {note.host}: stop it there")
    os.kill(note.pid, signal.SIGTERM)
    until = time.monotonic() + _ENDING
    while (now := relay_home.running()) is not None and now.pid == note.pid:
        if time.monotonic() > until:
            raise SiteError(f"the relay {note.pid} did not end within {_ENDING:g} s")
        time.sleep(0.02)
    output.answer({"pid": note.pid}, lambda: [f"relay {note.pid} has ended"])
    return 0
