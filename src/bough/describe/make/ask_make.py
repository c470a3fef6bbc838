"""GNU make asked what it would do: the only place where make itself runs.

Make expands the Makefile and decides what is out of date (`make -n`). Lines that make runs even then (`+`, `$(MAKE)`)
go to a shell of ours that does nothing, so that asking changes nothing; only included Makefiles that have rules are
made, as make always does. Rule: make's complaints become ours, with file and line where it gives them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bough.describe.make.make_database import Told, read_output
from bough.errors import InvalidWorkload, UserError

_LOOK = ".bough-look"  # a goal of ours; a name with a leading dot never becomes the default goal
_MARK = "BOUGH_DRY"
_GUARD = f'#!/bin/sh\ncase "${_MARK}:${{MAKEFLAGS%% *}}" in 1:*n*) exit 0 ;; esac\nexec %s "$@"\n'
_OURS = frozenset(
    {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "GNUMAKEFLAGS", "MAKE_TERMOUT", "MAKE_TERMERR", _MARK}
)
_NOT_TOLD = _OURS | {"_", "SHLVL", "PWD", "OLDPWD", "LC_ALL", "LC_MESSAGES", "LANG", "LANGUAGE"}
_STOP = re.compile(r"(?:(?P<file>[^:\s][^:]*):(?P<line>\d+)|\S+): \*\*\* (?P<message>.*?)(?:\.  Stop\.|\.)?\Z")
_NO_RULE = re.compile(r"No rule to make target '(?P<target>.*?)'(?:, needed by '(?P<by>.*)')?\Z")
_CIRCLE = re.compile(r"\S+: Circular (?P<target>.*) <- (?P<other>.*) dependency dropped\.\Z")
_TWICE = re.compile(
    r"(?P<file>.*):(?P<line>\d+): warning: (?P<what>overriding|ignoring old) recipe for target '(?P<target>.*)'\Z"
)


class Surroundings(NamedTuple):
    """What recipes run with."""

    shell: str
    flags: tuple[str, ...]
    environment: dict[str, str]  # what the Makefile exports, where it differs from our own environment


class Asked(NamedTuple):
    """What make answered."""

    told: Told
    surroundings: Surroundings
    special: dict[str, Surroundings]  # of targets that have a shell or exported variables of their own


def ask(
    folder: str,
    file: str,
    goals: Sequence[str],
    settings: Sequence[str],
    *,
    flags: Sequence[str] = (),
    own: frozenset[str] = frozenset(),
) -> Asked:
    """Ask make what it would do for these goals; `settings` are VAR=value.

    `own` names variables which matter to a recipe's surroundings and which some target has for itself.
    """
    with tempfile.TemporaryDirectory(prefix="bough-make-") as place:
        around = _look(folder, file, settings, place)
        guard = os.path.join(place, "sh")
        with open(guard, "w", encoding="utf-8") as script:
            script.write(_GUARD.replace("%s", shlex.quote(around.shell)))
        os.chmod(guard, 0o700)
        words = ["-n", "--trace", "-p", f"--eval=%: export {_MARK} := 1", *flags, f"SHELL={guard}", *settings, *goals]
        told = read_output(_make(folder, file, words).replace(guard, around.shell))
        owners = [made.target for made in told.made if own and not own.isdisjoint(_own(told, made.target))]
        special = {target: _look(folder, file, settings, place, target) for target in dict.fromkeys(owners)}
    return Asked(told, around, special)


def _own(told: Told, target: str) -> set[str]:
    return {name for rule in told.rules.get(target, ()) for name in rule.variables}


def _look(folder: str, file: str, settings: Sequence[str], place: str, target: str = "") -> Surroundings:
    """The shell and the environment of recipes, by a recipe of ours that make runs.

    A target's own variables hold for what it needs, too: for a target our recipe is the first thing it needs, and
    fails, so that make goes no further.
    """
    answer = os.path.join(place, f"answer-{len(os.listdir(place))}")
    recipe = f"+@{{ printf '%s\\0' '$(SHELL)' '$(.SHELLFLAGS)'; env -0; }} > {shlex.quote(answer)}"
    words = ["-n", f"--eval={_LOOK}: ; {recipe}{'; exit 1' if target else ''}"]
    if target:
        words.append(f"--eval={target}: {_LOOK}")
    _make(folder, file, [*words, *settings, target or _LOOK], must=not target)
    try:
        with open(answer, "rb") as told:
            shell, flags, *pairs = told.read().decode(errors="surrogateescape").split("\0")
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: make did not say which shell its recipes use: {error}") from error
    given = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    kept = {name: value for name, value in given.items() if name not in _NOT_TOLD and os.environ.get(name) != value}
    return Surroundings(shell, tuple(shlex.split(flags)) or ("-c",), kept | _for_submakes(settings))


def _for_submakes(settings: Sequence[str]) -> dict[str, str]:
    """What make tells the makes it calls: that they are called, and the variables of the command line."""
    told = " ".join(re.sub(r"([\s\\$])", r"\\\1", word) for word in settings)
    return {"MAKELEVEL": "1"} | ({"MAKEFLAGS": f" -- {told}"} if told else {})


def _make(folder: str, file: str, words: Sequence[str], *, must: bool = True) -> str:
    with tempfile.TemporaryFile() as output:  # a pipe would be read in tiny pieces
        try:
            done = subprocess.run(
                ["make", "--no-print-directory", "-f", file, *words],
                cwd=folder,
                env=_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                check=False,
            )
        except FileNotFoundError as error:
            raise UserError("cannot read a Makefile: there is no `make` on this machine; install GNU make") from error
        output.seek(0)
        text = output.read().decode(errors="surrogateescape")
    complaints = done.stderr.decode(errors="replace").splitlines()
    if must:
        _refuse_doubtful(file, complaints)
    if must and done.returncode:
        raise _refused(file, complaints, text)
    return text


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Our environment, without what another make told us, and with messages in English."""
    kept = {name: value for name, value in own.items() if name not in _OURS and name != "LANGUAGE"}
    everything = kept.pop("LC_ALL", "")
    if everything:
        kept["LANG"] = everything
    return kept | {"LC_MESSAGES": "C"}


def _refuse_doubtful(file: str, complaints: Sequence[str]) -> None:
    """What make only warns of and gets round somehow: cycles, and targets with two recipes."""
    places: dict[str, str] = {}
    for line in complaints:
        circle = _CIRCLE.match(line)
        if circle is not None:
            raise InvalidWorkload(f"{file}: these targets wait for each other: {circle['target']} -> {circle['other']}")
        twice = _TWICE.match(line)
        if twice is not None:
            place = f"{twice['file']}:{twice['line']}"
            if twice["what"] == "overriding":
                places[twice["target"]] = place
            else:
                here = places.get(twice["target"], file)
                raise InvalidWorkload(f"{here}: target {twice['target']!r} has a recipe already, at {place}")


def _refused(file: str, complaints: Sequence[str], text: str) -> InvalidWorkload:
    for line in complaints:
        match = _STOP.match(line)
        if match is None:
            continue
        place = f"{match['file']}:{match['line']}" if match["file"] else file
        missing = _NO_RULE.match(match["message"])
        if missing is not None and missing["by"]:
            rule = read_output(text).rule(missing["by"])
            if rule is not None and rule.line:
                place = f"{rule.file}:{rule.line}"
            return InvalidWorkload(
                f"{place}: no rule makes {missing['target']!r}, which {missing['by']!r} needs; there is no such file"
            )
        if missing is not None:
            return InvalidWorkload(f"{place}: no rule makes {missing['target']!r}, and there is no such file")
        return InvalidWorkload(f"{place}: {match['message']}")
    last = complaints[-1] if complaints else "it gave no reason"
    return InvalidWorkload(f"{file}: make cannot read it: {last}")
