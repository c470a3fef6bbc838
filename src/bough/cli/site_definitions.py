"""Definitions of sites as users write them: options of `bough site add`, or a TOML file that can be kept in git.

    [alpha]
    ssh = "me@head.example.org"
    max_pilots = 2

Rule: a file is read as a whole before anything is sent; what is wrong is named with its place in the file.
"""

from __future__ import annotations

import argparse
import tomllib
from typing import Any, Final

import msgspec

from bough.cli.option_values import amount, count, duration
from bough.errors import UserError
from bough.model.bounds import in_plain_words, within
from bough.model.commands.containers import check_container_command
from bough.model.ids import read_bytes, read_seconds
from bough.model.sites.site_specs import IDLE, WALLTIME, DefinedName, SiteSpec
from bough.policies.eviction.eviction_names import load_eviction
from bough.sites.batch.batch_system import NAMES

_MOST_READ: Final = 1 << 20  # bytes of a file
_FIELDS: Final = (
    *("kind", "address", "ssh", "batch", "partition", "account", "walltime", "cores_per_pilot", "min_pilots"),
    *("max_pilots", "setup", "python", "shared_dir", "idle", "relay_address", "batch_options", "patience"),
    *("submit_rate", "poll", "budget", "container_command", "provisioning", "executors_per_host", "resubmit"),
    *("max_tasks", "cache_dir", "cache_size", "eviction", "peers", "shared_size", "max_transfers"),
)
_TIMES: Final = ("idle", "walltime", "patience", "poll")
_SHARED: Final = ("dask", "ray")  # a pilot there takes one core of the cluster, unless more is said


def add_definition_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of one definition."""
    parser.add_argument("--kind", metavar="KIND", help="ssh, dask, ray, or one that another package offers (ssh)")
    parser.add_argument("--address", metavar="ADDRESS", help="of a Dask scheduler or a Ray cluster, as that writes it")
    parser.add_argument("--ssh", metavar="[USER@]HOST", help="where ssh connects to, as in your SSH configuration")
    parser.add_argument(
        "--local",
        dest="kind",
        action="store_const",
        const="local",
        help="the machine of the server itself: executors run there",
    )
    parser.add_argument(
        "--batch",
        choices=("none", *NAMES),
        help="its batch system, here if there is no --ssh; none: executors run on the host itself",
    )
    parser.add_argument("--partition", metavar="NAME", help="the partition or queue of the batch system (its default)")
    parser.add_argument("--account", metavar="NAME", help="the account or project that pays for batch jobs")
    parser.add_argument(
        "--walltime", type=duration, metavar="TIME", help=f"time that batch jobs are asked for with ({WALLTIME:g}s)"
    )
    parser.add_argument(
        "--batch-option",
        action="append",
        type=_option,
        dest="batch_options",
        metavar="NAME=VALUE",
        help="another option of the batch system, as qos=debug; repeatable",
    )
    parser.add_argument(
        "--patience", type=duration, metavar="TIME", help="time that a command of the batch system may take (30s)"
    )
    parser.add_argument(
        "--submit-rate", type=amount, metavar="N", help="pilots that are submitted in a second at most (5)"
    )
    parser.add_argument(
        "--cores-per-pilot", type=amount, metavar="N", help="cores that an executor uses (all of the host or node)"
    )
    parser.add_argument("--max-pilots", type=count, metavar="N", help="executors that there may be at once (1)")
    parser.add_argument(
        "--setup", metavar="TEXT", help="shell commands that run there before an executor: 'module load gcc'"
    )
    parser.add_argument("--python", metavar="PATH", help="Python 3.11 or newer there (python3)")
    parser.add_argument(
        "--container-command",
        metavar="TEXT",
        help="how containers are run there: 'singularity exec --bind {cwd} {image} {command}'",
    )
    parser.add_argument(
        "--shared-dir",
        metavar="DIR",
        help="a folder that its hosts share: tasks work in it, and inputs are kept in it once",
    )
    parser.add_argument("--shared-size", metavar="SIZE", help="bytes of inputs in the shared folder, as 1TB (100GB)")
    parser.add_argument(
        "--cache-dir", metavar="DIR", help="where on its hosts executors cache files; /dev/shm keeps them in memory"
    )
    parser.add_argument("--cache-size", metavar="SIZE", help="bytes that the cache of a host may have, as 100GB (10GB)")
    parser.add_argument("--eviction", metavar="POLICY", help="what a full cache gives up first (needed-last)")
    parser.add_argument(
        "--no-peers",
        dest="peers",
        action="store_const",
        const=False,
        help="its executors listen for nobody: others take no cached files from there",
    )
    parser.add_argument(
        "--max-transfers", type=count, metavar="N", help="files that go at a time from it to another site, or back (16)"
    )
    parser.add_argument(
        "--idle", type=duration, metavar="TIME", help=f"an executor without work leaves after this time ({IDLE:g}s)"
    )
    parser.add_argument("--poll", type=duration, metavar="TIME", help="time between two looks at pilots that wait")
    parser.add_argument("--max-tasks", type=count, metavar="N", help="tasks that it may have at once (no bound)")
    parser.add_argument(
        "--executors-per-host", type=count, metavar="N", help="executors that share the cores of a pilot (1)"
    )
    parser.add_argument(
        "--provisioning", metavar="NAME", help="the policy that says how many pilots there are (the server's)"
    )
    parser.add_argument(
        "--resubmit",
        action="store_const",
        const=True,
        help="a pilot whose time ends has its successor in the queue before, while there is work",
    )
    parser.add_argument("--min-pilots", type=count, metavar="N", help="executors that are kept without work, too (0)")
    parser.add_argument(
        "--budget", type=amount, metavar="CORE_HOURS", help="core-hours that its executors may use in all (no bound)"
    )
    parser.add_argument(
        "--relay-address",
        metavar="HOST[:PORT]",
        help="where on the head node compute nodes connect, if they reach nothing else (all its addresses, any port)",
    )


def read_definitions(args: argparse.Namespace) -> dict[str, SiteSpec]:
    """The sites that are to be added, by their names."""
    given = {name: value for name in _FIELDS if (value := getattr(args, name)) is not None}
    if args.file:
        if given:
            raise UserError(f"--{next(iter(given)).replace('_', '-')} and --file: say it in the file")
        return _read_file(args.file, args.site)
    if not args.site:
        raise UserError("name the site: bough site add NAME --ssh user@host")
    if given.get("kind") == "local" and ("ssh" in given or given.get("batch", "none") != "none"):
        other = "--ssh" if "ssh" in given else "--batch"
        raise UserError(f"site {args.site}: --local and {other} contradict each other; leave one of them out")
    if given.get("kind", "ssh") == "ssh" and "ssh" not in given and given.get("batch", "none") == "none":
        raise UserError(
            f"site {args.site} needs an address: say --ssh user@host, --batch for a batch system here, or --local"
        )
    if "batch_options" in given:
        given["batch_options"] = dict(given["batch_options"])
    return {_name(args.site): _spec(f"site {args.site}", given)}


def _read_file(path: str, only: str | None) -> dict[str, SiteSpec]:
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_READ)
        tables = tomllib.loads(data.decode())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error
    if only is not None and only not in tables:
        raise UserError(f"{path} has no table [{only}]; it has: {', '.join(tables) or 'none'}")
    found = {}
    for name, table in tables.items():
        if only in {None, name}:
            if not isinstance(table, dict):
                raise UserError(f"{path}: {name} is no table; begin the definition of a site with [{name}]")
            found[_name(name)] = _spec(f"{path}: [{name}]", table)
    if not found:
        raise UserError(f"{path} defines no site; begin with [NAME] and ssh = 'user@host'")
    return found


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE, as qos=debug")
    return name, value


def _name(name: str) -> str:
    return within("the site", name, DefinedName)


def _spec(what: str, table: dict[str, Any]) -> SiteSpec:
    if "kind" not in table and table.get("batch", "none") != "none":
        table = {**table, "kind": "batch"}
    for field in _TIMES:
        if isinstance(table.get(field), str):
            try:
                table = {**table, field: read_seconds(table[field])}
            except ValueError:
                raise UserError(f"{what}: {field} is {table[field]!r}; say 60, '90s' or '5m'") from None
    table = _with_bytes(what, table)
    try:
        if table.get("kind") in _SHARED:
            table = {"cores_per_pilot": 1.0, **table}
        spec = msgspec.convert(table, SiteSpec)
    except (msgspec.ValidationError, OverflowError) as error:
        raise UserError(f"{what}: {in_plain_words(str(error))}") from error
    if spec.min_pilots > spec.max_pilots:
        raise UserError(f"{what}: at least {spec.min_pilots} pilots are more than at most {spec.max_pilots}")
    _check_names(spec)
    return spec


def _with_bytes(what: str, table: dict[str, Any]) -> dict[str, Any]:
    for field in ("cache_size", "shared_size"):
        if isinstance(table.get(field), str):
            try:
                table = {**table, field: read_bytes(table[field])}
            except ValueError:
                raise UserError(f"{what}: {field} is {table[field]!r}; say '100GB'") from None
    return table


def _check_names(spec: SiteSpec) -> None:
    if spec.container_command:
        check_container_command(spec.container_command)
    if spec.eviction:
        load_eviction(spec.eviction)
