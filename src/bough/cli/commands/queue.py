"""`bough queue`: make named queues at a server, change and remove them, and show what they hold.

A queue limits and shares what a server has: tasks name it (`bough submit --queue NAME`, `queue=` in Python), and its
limits hold for all of them together, whatever workflows they are of. Rule: only the user of the server changes
something, and every verb that does answers with the queue as it is then.
"""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from bough.api.display.surroundings import show_seconds
from bough.cli.main import add_verb
from bough.cli.option_values import amount, duration, number
from bough.cli.output import Output
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.errors import UnknownName, UserError
from bough.model.bounds import QueueName, SiteName, in_plain_words, within
from bough.model.sites.queue_specs import QueueShare, QueueSpec, check_queue
from bough.model.texts.plurals import counted
from bough.wire import questions

_OF_VERBS = (
    "bough queue add night --max-cores 8 --max-time 2h",
    "bough queue add tests --min-cores 2 --share 4 --sites local,alpha",
    "bough queue list",
    "bough queue show night",
    "bough queue change night --max-cores 16",
    "bough queue change night --max-time 0 --sites ''     # neither any more",
    "bough queue remove night",
)
EXAMPLES = (*_OF_VERBS[:3], *_OF_VERBS[4:5], _OF_VERBS[6])
_DEFAULT = "(default)"  # how the queue without a name is shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_limits(add_verb(verbs, "add", "make a queue", _OF_VERBS[:2]))
    add_server_argument(add_verb(verbs, "list", "show queues: what waits, what runs, and their limits", _OF_VERBS[2:3]))
    _add_name(add_verb(verbs, "show", "show one queue", _OF_VERBS[3:4]))
    _add_limits(add_verb(verbs, "change", "give a queue other limits; those not named stay", _OF_VERBS[4:6]))
    _add_name(add_verb(verbs, "remove", "forget a queue: its tasks go on without limits", _OF_VERBS[6:7]))


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="NAME", help="of the queue")
    add_server_argument(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--max-time", type=duration, metavar="TIME", help="end each of its tasks after this time")
    parser.add_argument(
        "--min-cores", type=amount, metavar="N", help="cores that others leave to it while it has something ready"
    )
    parser.add_argument("--max-cores", type=amount, metavar="N", help="cores that its tasks have at once, at the most")
    parser.add_argument("--sites", metavar="A,B", help="sites at which its tasks may run (all)")
    parser.add_argument("--share", type=number, metavar="X", help="its share of the cores, beside other queues (1)")


def run(args: argparse.Namespace, output: Output) -> int:
    """Do what the verb says."""
    verbs = {"add": _define, "list": _list, "show": _show, "change": _define, "remove": _remove}
    return verbs[args.verb](args, output)


def _name(args: argparse.Namespace) -> str:
    try:
        return within("the queue", args.queue, QueueName)
    except UserError:
        raise UserError(
            f"{args.queue!r:.80} is no name of a queue; use letters, digits and any of . _ -, up to 64"
        ) from None


def _define(args: argparse.Namespace, output: Output) -> int:
    name, change = _name(args), args.verb == "change"
    given = _limits(args)
    if change and not given:
        raise UserError("say what is to change: --max-time, --min-cores, --max-cores, --sites or --share")
    with connect_client(args.server) as server:
        known = _find(server.ask(questions.Queues()), name)["limits"] if change else {}
        try:
            spec = check_queue(msgspec.convert({**known, **given}, QueueSpec))
        except (msgspec.ValidationError, OverflowError) as error:
            raise UserError(f"queue {name}: {in_plain_words(str(error))}") from error
        found = server.ask(questions.DefineQueue(name, spec, change))
    output.answer(found, lambda: [f"queue {found['queue']}: {found['shown']}"])
    return 0


def _limits(args: argparse.Namespace) -> dict[str, Any]:
    """What the options say, by fields of `QueueSpec`."""
    said = {name: getattr(args, name) for name in ("max_time", "min_cores", "max_cores", "share")}
    given: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    if "share" in given:
        within("--share", given["share"], QueueShare)
    if args.sites is not None:
        given["sites"] = tuple(within("--sites", site, SiteName) for site in filter(None, args.sites.split(",")))
    return given


def _find(queues: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for queue in queues:
        if queue["queue"] == name and queue["defined"]:
            return queue
    there = ", ".join(queue["queue"] for queue in queues if queue["defined"]) or "none"
    raise UnknownName(f"there is no queue {name}; there are: {there}")


def _list(args: argparse.Namespace, output: Output) -> int:
    with connect_client(args.server, "read") as server:
        found = server.ask(questions.Queues())
    if args.json:
        output.answer(found, list)
        return 0
    rows = [[_label(one), one["waiting"], one["running"], _cores(one), *_words(one)] for one in found]
    output.table(["QUEUE", "WAITING", "RUNNING", "CORES", "LEAST", "TIME", "SITES", "SHARE"], rows)
    return 0


def _label(queue: dict[str, Any]) -> str:
    if not queue["queue"]:
        return _DEFAULT
    return str(queue["queue"]) if queue["defined"] else f"{queue['queue']} (removed)"


def _cores(queue: dict[str, Any]) -> str:
    """Cores that it has, of how many it may have: 6/8."""
    most = queue["limits"]["max_cores"]
    return f"{queue['cores']:g}/{most:g}" if most else f"{queue['cores']:g}"


def _words(queue: dict[str, Any]) -> list[str]:
    limits = queue["limits"]
    least, longest = limits["min_cores"], limits["max_time"]
    return [
        f"{least:g}" if least else "",
        show_seconds(longest) if longest else "",
        ",".join(limits["sites"]),
        f"{limits['share']:g}",
    ]


def _show(args: argparse.Namespace, output: Output) -> int:
    with connect_client(args.server, "read") as server:
        found = _find(server.ask(questions.Queues()), _name(args))
    output.answer(found, lambda: _details(found))
    return 0


def _details(queue: dict[str, Any]) -> list[str]:
    tasks = f"{counted(queue['waiting'], 'task')} ready, {queue['running']} with executors, {_cores(queue)} cores"
    return [f"queue {queue['queue']}: {queue['shown']}", tasks]


def _remove(args: argparse.Namespace, output: Output) -> int:
    with connect_client(args.server) as server:
        found = server.ask(questions.RemoveQueue(_name(args)))
    left = found["waiting"] + found["running"]
    note = f"; {counted(left, 'task')} of it go on without limits" if left else ""
    output.answer(found, lambda: [f"queue {found['queue']} was removed{note}"])
    return 0
