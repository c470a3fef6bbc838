"""Profiles: options of `bough run` and `bough submit` that are kept in a file.

    # bough.toml beside the workflow, or config.toml in $BOUGH_HOME
    [default]
    fail-fast = true

    [profile.big]
    cores = 16
    memory = "4GB"

    [profile.big.submit]        # for one of the two commands only
    into = "nightly"
    cores = 2

`[default]` counts always, `[profile.big]` with `--profile big`. What stands beside the workflow goes before what stands
in $BOUGH_HOME, a profile before the default, and the command line before all. Keys are the long names of options.
`cores`, `name` and `store` mean something else for each of the two commands: outside of the table `submit` they are
for `bough run`. An option that a command does not take, or not for what it runs, is passed over.
Rules: a key that neither command knows, and a value that its option does not take, are errors that name file and table.
A file that somebody else has laid into a shared folder is refused: it could send our work, and us, to another server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from bough.cli.main import load_command, make_parser
from bough.errors import UserError, did_you_mean
from bough.transport.home import home

BESIDE, AT_HOME = "bough.toml", "config.toml"
COMMANDS = ("run", "submit")
_NEVER = frozenset({"help", "what", "profile", "json", "quiet", "dry_run", "wait", "each_line", "array", "after"})
_OF_RUN = frozenset({"cores", "name", "store"})  # outside of a table of its own
_EITHER = (  # what goes without the other
    *(("server", "cores"), ("server", "store"), ("site", "cores"), ("site", "store")),
    ("fresh", "reuse"),
)
_MOST = 1 << 20  # bytes of a file


class _Table(NamedTuple):
    where: str  # for messages
    options: Mapping[str, Any]


def add_profile_argument(parser: argparse.ArgumentParser) -> None:
    """The option that chooses a profile."""
    parser.add_argument(
        "--profile", metavar="NAME", help="take options from [profile.NAME] of bough.toml or $BOUGH_HOME/config.toml"
    )


def apply_profiles(args: argparse.Namespace, command: str, workflow: str, passed_over: Collection[str] = ()) -> None:
    """Give options that were not said the values of the profile, and of the default; `workflow`: its file, if any."""
    tables = list(_tables(workflow, command, args.profile))
    if not tables:
        return
    known = {name: _options(make_parser(name, load_command(name))) for name in COMMANDS}
    for table in tables:
        for key, value in table.options.items():
            name = key.replace("-", "_")
            if not any(name in options for options in known.values()):
                names = [other.replace("_", "-") for options in known.values() for other in options]
                raise UserError(
                    f"{table.where}: {key} is no option of bough run or bough submit that a profile can hold"
                    f"{did_you_mean(key, names)}"
                )
            action = known[command].get(name)
            if action is not None and name not in passed_over and not _is_said(args, name):
                setattr(args, name, _read(action, value, f"{table.where}: {key}"))


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {
        action.dest: action
        for action in parser._actions
        if action.option_strings and action.dest not in _NEVER and action.help != argparse.SUPPRESS
    }


def _is_said(args: argparse.Namespace, name: str) -> bool:
    """Whether an option, or one that excludes it, has a value already."""
    others = [other for pair in _EITHER for other in pair if name in pair]
    return any(
        value is not None and value is not False for value in (getattr(args, one, None) for one in (name, *others))
    )


def _read(action: argparse.Action, value: object, where: str) -> object:
    """A value as the option takes it."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UserError(f"{where} is {value!r:.60}; give true or false")
        return value
    several = isinstance(action, argparse._AppendAction)
    values = value if several and isinstance(value, list) else [value]
    found = []
    for one in values:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise UserError(f"{where} is {one!r:.60}; give a text or a number")
        try:
            read = action.type(str(one)) if callable(action.type) else str(one)
        except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
            raise UserError(f"{where}: {error}") from None
        if action.choices is not None and read not in action.choices:
            choices = list(map(str, action.choices))
            meant = did_you_mean(str(read), choices)
            raise UserError(f"{where} is {one!r:.60}; choose from {', '.join(choices)}{meant}")
        found.append(read)
    return found if several else found[0]


# --- files ----------------------------------------------------------------------------------------------


def _tables(workflow: str, command: str, profile: str | None) -> Iterator[_Table]:
    """The tables that count, those first that go before the others."""
    folder = os.path.dirname(workflow)
    beside, at_home = os.path.join(folder, BESIDE), os.path.join(home(), AT_HOME)
    files = [path for path in (beside, at_home) if os.path.isfile(path)]
    read = [(path, _load(path, _owners(folder or ".", workflow) if path == beside else _owners())) for path in files]
    if profile is not None and not any(profile in _part(path, found, "profile") for path, found in read):
        known = [name for path, found in read for name in _part(path, found, "profile")]
        where = " or ".join(files) if files else f"{os.path.join(folder, BESIDE)}, which is not there"
        raise UserError(f"there is no profile {profile!r:.60} in {where}{did_you_mean(profile, known)}")
    if profile is not None:
        for path, found in read:
            table = _part(path, found, "profile").get(profile, {})
            yield from _with_inner(f"{path}: [profile.{profile}]", table, command)
    for path, found in read:
        yield from _with_inner(f"{path}: [default]", _part(path, found, "default"), command)


def _with_inner(where: str, table: object, command: str) -> Iterator[_Table]:
    """A table: first what it says for this command alone."""
    if not isinstance(table, dict):
        raise UserError(f"{where} is {table!r:.60}; make it a table of options")
    for name in COMMANDS:
        if not isinstance(table.get(name, {}), dict):
            raise UserError(f"{where}: {name} is {table[name]!r:.60}; make it a table of options")
    yield _Table(f"{where[:-1]}.{command}]", table.get(command, {}))
    mine = {key: value for key, value in table.items() if key not in COMMANDS}
    if command != "run":
        mine = {key: value for key, value in mine.items() if key.replace("-", "_") not in _OF_RUN}
    yield _Table(where, mine)


def _part(path: str, found: Mapping[str, object], name: str) -> dict[str, Any]:
    part = found.get(name, {})
    if not isinstance(part, dict):
        raise UserError(f"{path}: {name} is {part!r:.60}; make it a table")
    return part


def _owners(*trusted: str) -> set[int]:
    """Whose options we take: our own, root's, and those of who owns the workflow that we run, or its folder."""
    found = {os.geteuid(), 0}
    for path in trusted:
        with contextlib.suppress(OSError):
            found.add(os.stat(path).st_uid)
    return found


def _load(path: str, owners: Collection[int]) -> dict[str, object]:
    import tomllib

    try:
        with open(path, "rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            if owner not in owners:
                raise UserError(
                    f"{path} belongs to uid {owner}, not to you: its options are not taken; work in another folder, or"
                    " make it yours, if you know it"
                )
            data = file.read(_MOST + 1)
        if len(data) > _MOST:
            raise UserError(f"{path} is longer than {_MOST} bytes; that is no file of options")
        found = tomllib.loads(data.decode())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is no TOML: {error}") from None
    for key in found:
        if key not in {"default", "profile"}:
            meant = did_you_mean(key, ("default", "profile"))
            raise UserError(f"{path}: {key} is not known; there are [default] and [profile.NAME]{meant}")
    return found
