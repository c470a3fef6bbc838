"""`bough server`: start, stop and look at the service that shares executors between workflows.

Rule: one server for each `$BOUGH_HOME` and each store; a second one names the first. Each option of `start` can be
said again to another process in the same words, for `--detach`.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from typing import TYPE_CHECKING

from bough.api.display.surroundings import show_seconds
from bough.cli.main import add_verb
from bough.cli.option_values import add_log_level, amount, begin_log, count, duration, log_level_words, path_name
from bough.cli.output import Output, table_lines
from bough.cli.targets.live_server import OtherProcess, add_server_argument, connect_client, detach, is_bough
from bough.errors import BoughError, PeerLost, SiteError, UserError
from bough.model.arrays.dispatch_tuning import DispatchTuning
from bough.model.texts.plurals import counted
from bough.stores.folder.store_lock import holder
from bough.transport import home
from bough.wire import questions

if TYPE_CHECKING:
    from bough.server.service.features import FeatureOptions


EXAMPLES = (
    "bough server start --detach",
    "bough server start --listen 0.0.0.0:7070 --store /data/bough",
    "bough server status --json",
    "bough server access --role execute --output executor.json",
    "bough server stop",
)
_ROLES = ("submit", "execute", "read")
_ENDING = 30.0  # seconds that a server has to end
_ROTATE = ("bough server rotate", "bough server rotate --role submit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    start = add_verb(verbs, "start", "start a server, in the foreground or detached", EXAMPLES[:2])
    start.add_argument("--detach", action="store_true", help="run in the background; returns once the server answers")
    start.add_argument(
        "--store",
        type=path_name,
        metavar="PLACE",
        default="",
        help="a folder, or postgresql://... (default: in $BOUGH_HOME)",
    )
    start.add_argument(
        "--listen", metavar="HOST:PORT", default="", help="serve other machines too, by TLS; port 0: any"
    )
    start.add_argument("--name", default="server", help="what the server is called in its records")
    start.add_argument(
        "--heartbeat",
        type=duration,
        default=30.0,
        metavar="TIME",
        help="an executor that is silent for so long is missing (30s)",
    )
    start.add_argument(
        "--reconnect",
        type=duration,
        default=60.0,
        metavar="TIME",
        help="wait so long for an executor whose connection was lost (60s)",
    )
    start.add_argument(
        "--policy",
        default="bough",
        metavar="NAME[:OPTIONS]",
        help="which ready task goes next, and where, as storage-affinity or bough:delay=10s (default: bough)",
    )
    start.add_argument(
        "--provisioning",
        default="adaptive",
        metavar="NAME[:OPTIONS]",
        help="how many pilots sites are asked for: adaptive, static, all-at-once, one-at-a-time, additive, exponential,"
        " available (default: adaptive)",
    )
    start.add_argument(
        "--replication",
        default="",
        metavar="NAME[:OPTIONS]",
        help="whether idle executors run what others run, too: none, careful-tail, tail, wqr or"
        " storage-affinity, as in wqr:cap=2,age=30s (default: of the policy bough careful-tail, of storage-affinity and"
        " wqr their own, else none)",
    )
    start.add_argument(
        "--max-pilots", type=count, default=0, metavar="N", help="pilots that all sites together may have (no bound)"
    )
    start.add_argument(
        "--max-tasks", type=count, default=0, metavar="N", help="tasks that executors may have at once (no bound)"
    )
    start.add_argument(
        "--until-idle",
        nargs="?",
        type=duration,
        const=3.0,
        default=0.0,
        metavar="TIME",
        help="end, with all pilots, when nobody has been connected and no task been left for so long (3s)",
    )
    _add_feature_arguments(start)
    _add_tuning_arguments(start)
    add_log_level(start)
    stop = add_verb(
        verbs, "stop", "end the server in good order; tasks keep running, the next start resumes", EXAMPLES[4:]
    )
    stop.add_argument("--executors", action="store_true", help="executors end their tasks and leave, too")
    status = add_verb(verbs, "status", "say whether a server runs, and what it has to do", EXAMPLES[2:3])
    add_server_argument(status)
    access = add_verb(verbs, "access", "write the access file for a machine elsewhere", EXAMPLES[3:4])
    access.add_argument("--role", choices=_ROLES, required=True, help="what the holder of the file may do")
    access.add_argument("--output", type=path_name, metavar="FILE", help="where to write it (default: bough-ROLE.json)")
    rotate = add_verb(verbs, "rotate", "give roles new tokens; old access files are worth nothing then", _ROTATE)
    rotate.add_argument("--role", choices=_ROLES, help="only this role (default: all)")


def run(args: argparse.Namespace, output: Output) -> int:
    """Do what the verb says."""
    return {"start": _start, "stop": _stop, "status": _status, "access": _access, "rotate": _rotate}[args.verb](
        args, output
    )


def _start(args: argparse.Namespace, output: Output) -> int:
    from bough.server.service.service import ServiceSettings, serve

    extras = _read_features(args)
    tuning = _read_tuning(args)
    settings = ServiceSettings(
        args.store,
        args.listen,
        args.name,
        args.policy,
        args.heartbeat,
        args.reconnect,
        extras,
        tuning,
        args.provisioning,
        args.max_pilots,
        args.max_tasks,
        args.replication,
        args.until_idle,
    )
    begin_log(args)
    if not args.detach:
        return serve(settings)
    words = ["server", "start", "--store", settings.place]
    words += ["--name", args.name, "--policy", args.policy]
    words += [f"--provisioning={args.provisioning}", f"--max-pilots={args.max_pilots}", f"--max-tasks={args.max_tasks}"]
    words += [f"--replication={args.replication}"] if args.replication else []
    words += ["--heartbeat", f"{args.heartbeat:g}", "--reconnect", f"{args.reconnect:g}"]
    if args.listen:
        words += ["--listen", args.listen]
    if args.until_idle:
        words += ["--until-idle", f"{args.until_idle:g}"]
    words += [*_feature_words(args), *tuning.server_words(), *log_level_words(args)]
    pid = detach(words, "server.log", _is_up)
    note = home.read_note()
    value = {"pid": pid, "socket": note.socket if note else "", "address": note.address if note else ""}
    output.answer(value, lambda: [f"server {pid} serves at {_where(note)}; its log is {_log()}"])
    return 0


def _is_up(pid: int) -> bool:
    note = home.read_note()
    if note is None or note.pid != pid:
        return False
    with connect_client(f"unix:{note.socket}"):
        return True


def _where(note: home.ServerNote | None) -> str:
    if note is None:
        return "an unknown place"
    return f"{note.address} and unix:{note.socket}" if note.address else f"unix:{note.socket}"


def _log() -> str:
    return os.path.join(home.server_dir(), "server.log")


def _stop(args: argparse.Namespace, output: Output) -> int:
    note = home.read_note()
    if note is None:
        raise _no_server()
    with OtherProcess(note.pid) as process:
        try:
            with connect_client(f"unix:{note.socket}") as server:
                server.manage("dismiss" if args.executors else "shutdown")
        except PeerLost as error:
            raise SiteError(f"the server {note.pid} on {note.host} does not answer: {error}") from error
        if not process.wait(_ENDING):
            raise SiteError(
                f"the server {note.pid} was told to end and has not within {_ENDING:g} s; see {_log()}, wait for it, or"
                f" kill -9 {note.pid}: nothing that was acknowledged is lost"
            )
    output.answer({"pid": note.pid}, lambda: [f"server {note.pid} has ended"])
    return 0


def _no_server() -> BoughError:
    """Why there is no server to be stopped: one that is about to end is not found any more."""
    pid, host = holder(home.server_dir())
    if pid and host == socket.gethostname() and is_bough(pid):
        return SiteError(f"the server {pid} is ending and has not ended yet; wait for it, or kill -9 {pid}")
    return UserError(f"no server runs in {home.home()}")


def _status(args: argparse.Namespace, output: Output) -> int:
    note = home.read_note()
    if note is None and not args.server and not os.environ.get("BOUGH_SERVER"):
        output.answer({"running": False}, lambda: [f"no server runs in {home.home()}"])
        return 3
    with connect_client(args.server, "read") as server:
        status = server.ask(questions.Status())
        workflows = server.ask(questions.Workflows())
        executors = server.ask(questions.Executors())
    going_on = [workflow for workflow in workflows if workflow["group"] and not workflow["closed"]]
    value = {
        "running": True,
        "pid": note.pid if note else 0,
        "host": note.host if note else "",
        "address": note.address if note else args.server,
        "socket": note.socket if note else "",
        "store": note.store if note else "",
        "started": note.started if note else 0,
        "counts": status["counts"],
        "workflows": going_on,
        "executors": executors,
    }

    def text() -> list[str]:
        lines = []
        if note is not None:
            age = show_seconds(max(0.0, time.time() - note.started))
            lines.append(f"server {note.pid} on {note.host} has served {_where(note)} for {age}; store {note.store}")
        counts = ", ".join(f"{count} {state}" for state, count in status["counts"].items() if count)
        there = f"{counted(len(executors), 'executor')}, {counted(len(going_on), 'workflow')} running"
        lines.append(f"{there}; tasks: {counts or 'none'}")
        if going_on:
            rows = [[w["run"], w["name"], w["user"], _counts(w["counts"])] for w in going_on]
            lines += ["", *table_lines(["RUN", "WORKFLOW", "USER", "TASKS"], rows)]
        return lines

    output.answer(value, text)
    return 0


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _access(args: argparse.Namespace, output: Output) -> int:
    from bough.transport.access import own_access, write_access

    path = os.path.abspath(args.output or f"bough-{args.role}.json")
    access = own_access(args.role)
    write_access(path, access)
    value = {"file": path, "address": access.address, "role": access.role}
    output.answer(value, lambda: [f"{path}: copy it to the other machine, and name it there with --server"])
    return 0


def _rotate(args: argparse.Namespace, output: Output) -> int:
    from bough.transport.access import rotate_tokens

    roles = [args.role] if args.role else list(_ROLES)
    rotate_tokens(roles)
    output.answer({"roles": roles}, lambda: [f"new tokens for: {', '.join(roles)}; write new access files"])
    return 0


# --- options of start --------------------------------------------


def _add_feature_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--metrics", default="", metavar="[HOST:]PORT", help="serve GET /metrics for Prometheus (on 127.0.0.1)"
    )
    parser.add_argument(
        "--notify", default="", metavar="COMMAND", help="run this command when something happens; $BOUGH_TEXT says what"
    )
    parser.add_argument("--notify-mail", default="", metavar="ADDRESS", help="the same by this machine's mail program")
    parser.add_argument(
        "--notify-on",
        default="",
        metavar="EVENTS",
        help="only of these: finished, stuck, overlong, silent, suspended, lost (all)",
    )
    parser.add_argument(
        "--overlong",
        type=amount,
        default=10.0,
        metavar="N",
        help="tell of tasks that take N times their estimate or measured mean (10)",
    )
    parser.add_argument(
        "--overlong-least", type=duration, default=600.0, metavar="TIME", help="and not before this time (10m)"
    )
    parser.add_argument(
        "--keep",
        type=duration,
        default=0.0,
        metavar="TIME",
        help="remove workflows that ended longer ago than this (default: never)",
    )
    parser.add_argument(
        "--query-time",
        type=duration,
        default=30.0,
        metavar="TIME",
        help="how long a statement of bough sql may take (30s)",
    )


def _add_tuning_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe what is best left alone, but for measuring."""
    parser.add_argument(
        "--pickup", type=count, default=0, metavar="N", help="dispatch at most N tasks at once (as run times suggest)"
    )
    parser.add_argument(
        "--no-piggyback",
        action="store_true",
        help="acknowledge results in messages of their own, and send work only when it is asked for",
    )


def _read_tuning(args: argparse.Namespace) -> DispatchTuning:
    """What was asked for; UserError when it makes no sense."""
    if args.pickup < 0:
        raise UserError(f"--pickup {args.pickup}: say at most how many tasks go together, 1 or more")
    return DispatchTuning(max_span=args.pickup, piggyback=not args.no_piggyback)


def _read_features(args: argparse.Namespace) -> FeatureOptions:
    """What was asked for; UserError when it makes no sense."""
    from bough.server.service.features import FeatureOptions
    from bough.server.service.upkeep.metrics import read_address
    from bough.server.service.upkeep.notices import KINDS, NoticeCommand, NoticeRules, read_kinds

    if args.metrics:
        read_address(args.metrics)
    NoticeCommand(args.notify, args.notify_mail)
    kinds = read_kinds(args.notify_on) if args.notify_on else KINDS
    rules = NoticeRules(kinds, args.overlong, args.overlong_least)
    return FeatureOptions(args.metrics, args.notify, args.notify_mail, rules, args.keep, args.query_time)


def _feature_words(args: argparse.Namespace) -> list[str]:
    """The same options for another process."""
    words = [f"--overlong={args.overlong:g}", f"--overlong-least={args.overlong_least:g}"]
    words.append(f"--query-time={args.query_time:g}")
    for name in ("metrics", "notify", "notify_mail", "notify_on"):
        value = getattr(args, name)
        if value:
            words.append(f"--{name.replace('_', '-')}={value}")
    if args.keep:
        words.append(f"--keep={args.keep:g}")
    return words
