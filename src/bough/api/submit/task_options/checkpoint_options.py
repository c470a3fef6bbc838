"""`checkpoint=` and `checkpoint_file=`: how a task saves its state before it must leave.

A text is the name of a signal ("USR1") or a command; `Checkpoint` says each by its name. Rule: a wrong signal, an empty
command and a file that several tasks would share are errors where the task is submitted.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bough.errors import BadValue, WrongType, did_you_mean
from bough.model.bounds import FilePath, check_path, shown, within
from bough.model.checkpoints import CheckpointPlan, CommandText
from bough.model.tasks import TaskExtras

_SIGNALS: Final = {one.name.removeprefix("SIG"): int(one) for one in signal.Signals}
_NEVER: Final = frozenset({"KILL", "STOP"})  # no program can act on them
_NAME: Final = re.compile(r"(?:SIG)?([A-Z][A-Z0-9]{1,8})\Z")
_FOLDER: Final = f".bough/checkpoints/{secrets.token_hex(4)}/"  # of this process, so that no other has the same names


@dataclass(frozen=True)
class Checkpoint:
    """How a task saves its state: by a signal that its processes get, or by a command that runs beside them.

    `file` is what comes of it, relative to where the task runs; without it Bough chooses one. `$BOUGH_CHECKPOINT` is
    its path, in the task and in the command.
    """

    signal: str | int | None = None
    command: str | None = None
    file: str | os.PathLike[str] | None = None


def read_checkpoint(base: CheckpointPlan | None, said: Mapping[str, object]) -> CheckpointPlan | None:
    """The plan that options mean, on top of another; its file is as it was said."""
    given, file = said.get("checkpoint"), said.get("checkpoint_file")
    if given is False:
        return None
    if isinstance(given, str):
        found = _NAME.match(given)
        given = Checkpoint(signal=given) if found else Checkpoint(command=given)
    if given is None and base is None:
        raise BadValue("checkpoint_file is for tasks with checkpoint=; say how they write it: checkpoint='USR1'")
    if given is not None and not isinstance(given, Checkpoint):
        raise WrongType(f"checkpoint is {shown(given)}; give a signal ('USR1'), a command or a bough.Checkpoint")
    plan = _plan(given) if isinstance(given, Checkpoint) else base
    assert plan is not None
    own = given.file if isinstance(given, Checkpoint) else None
    if file is not None and own is not None:
        raise BadValue("checkpoint_file and the file of checkpoint are the same thing: give one of them")
    path = file if file is not None else own
    if path is None:
        return plan
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise WrongType(f"checkpoint_file is {shown(path)}; give the path of a file")
    text = within("checkpoint_file", check_path("checkpoint_file", str(os.fspath(path))), FilePath)
    return CheckpointPlan(plan.signal, plan.command, text)


def _plan(given: Checkpoint) -> CheckpointPlan:
    if (given.signal is None) == (given.command is None):
        raise BadValue("a checkpoint is made by a signal or by a command: give one of them")
    if given.signal is not None:
        return CheckpointPlan(_number(given.signal))
    if not isinstance(given.command, str) or not given.command.strip():
        raise BadValue(f"the command of checkpoint is {shown(given.command)}; give the text of a command")
    return CheckpointPlan(command=within("checkpoint", given.command, CommandText))


def _number(given: str | int) -> int:
    name = _NAME.match(given) if isinstance(given, str) else None
    word = name[1] if name else ""
    if isinstance(given, int) and not isinstance(given, bool):
        word = next((known for known, number in _SIGNALS.items() if number == given), "")
    if word in _NEVER:
        raise BadValue(f"checkpoint is {shown(given)}; no program can act on that signal: use USR1")
    if word not in _SIGNALS:
        raise BadValue(f"checkpoint is {shown(given)}; there is no such signal{did_you_mean(word, _SIGNALS)}")
    return _SIGNALS[word]


def placed(extras: TaskExtras, cwd: str, directory: str, *, is_array: bool = False) -> TaskExtras:
    """Extras whose checkpoint has an absolute path; `cwd`: where the task runs, `directory`: where the script does."""
    from msgspec.structs import replace

    plan = extras.checkpoint
    if plan is None:
        return extras
    if not plan.file:
        path = os.path.join(directory, _FOLDER)
    else:
        path = os.path.normpath(os.path.join(cwd, plan.file)) + ("/" if plan.file.endswith("/") else "")
    if is_array and not path.endswith("/"):
        raise BadValue(
            f"checkpoint_file is {shown(plan.file)}, which all tasks of the array would write; name a folder, as"
            f" {plan.file + '/'!r}, or leave it out: $BOUGH_CHECKPOINT is a file of each task's own"
        )
    return replace(extras, checkpoint=CheckpointPlan(plan.signal, plan.command, path))
