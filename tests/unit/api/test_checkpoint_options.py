"""`checkpoint=`: what it takes, and what it refuses with a line that says what would be right."""

from __future__ import annotations

import os

import pytest

from bough.api.submit.task_options.checkpoint_options import Checkpoint, placed
from bough.api.submit.task_options.options import DEFAULTS, read_options
from bough.errors import UserError
from bough.model.checkpoints import CheckpointPlan
from bough.model.tasks import TaskExtras


def plan(**options: object) -> CheckpointPlan | None:
    return read_options(DEFAULTS, options).extras.checkpoint


def test_a_text_is_a_signal_or_a_command() -> None:
    assert plan(checkpoint="USR1") == plan(checkpoint="SIGUSR1") == CheckpointPlan(signal=10)
    assert plan(checkpoint=Checkpoint(signal=12)) == CheckpointPlan(signal=12)
    assert plan(checkpoint="./save --now") == CheckpointPlan(command="./save --now")
    assert plan(checkpoint="USR1", checkpoint_file="state") == CheckpointPlan(signal=10, file="state")


def test_a_default_can_be_taken_back_and_given_a_file() -> None:
    base = read_options(DEFAULTS, {"checkpoint": "USR1"})
    assert read_options(base, {"checkpoint_file": "x"}).extras.checkpoint == CheckpointPlan(signal=10, file="x")
    assert read_options(base, {"checkpoint": False}).extras.checkpoint is None
    assert read_options(base, {"release": True}).extras == TaskExtras(release=True, checkpoint=CheckpointPlan(10))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checkpoint": "USR9"}, "there is no such signal; did you mean USR"),
        ({"checkpoint": "KILL"}, "no program can act on that signal"),
        ({"checkpoint": Checkpoint(signal=0)}, "no such signal"),
        ({"checkpoint": Checkpoint()}, "a signal or by a command"),
        ({"checkpoint": Checkpoint(signal="USR1", command="x")}, "a signal or by a command"),
        ({"checkpoint": " "}, "give the text of a command"),
        ({"checkpoint": "a\0b"}, "NUL"),
        ({"checkpoint": 10}, "give a signal"),
        ({"checkpoint_file": "x"}, "checkpoint_file is for tasks with checkpoint="),
        ({"checkpoint": Checkpoint(signal="USR1", file="a"), "checkpoint_file": "b"}, "give one of them"),
        ({"checkpoint": "USR1", "checkpoint_file": ""}, "give the path of a file"),
        ({"checkpoint": "USR1", "checkpoint_file": "a\0"}, "a path has"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        plan(**options)


def test_a_file_is_relative_to_where_the_task_runs() -> None:
    one = placed(TaskExtras(checkpoint=CheckpointPlan(10, file="state/now")), "/there", "/script").checkpoint
    assert one is not None
    assert one.path(7, 0) == "/there/state/now"
    own = placed(TaskExtras(checkpoint=CheckpointPlan(10)), "/there", "/script", is_array=True).checkpoint
    assert own is not None
    assert own.path(7, 3).startswith("/script/.bough/checkpoints/")
    assert os.path.basename(own.path(7, 3)) == "7.3"
    many = placed(TaskExtras(checkpoint=CheckpointPlan(10, file="all/")), "/there", "/script", is_array=True).checkpoint
    assert many is not None
    assert many.path(7, 3) == "/there/all/7.3"


def test_the_tasks_of_an_array_cannot_share_a_file() -> None:
    with pytest.raises(UserError, match="name a folder, as 'state/'"):
        placed(TaskExtras(checkpoint=CheckpointPlan(10, file="state")), "/there", "/script", is_array=True)
