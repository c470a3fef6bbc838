"""What stands around a command where it runs: its setup, and the container that it runs in.

A setup is text for bash -eo pipefail that runs on the host first; what it exports is there for the command. A teardown
runs after it, whatever its exit code was, also if the setup failed or the command was ended by a signal; that is the
exit code all the same, unless the teardown fails. A container
is named as RUNTIME:IMAGE, such as apptainer:tools.sif or docker:python:3.12. How a runtime is called is a template of
the executor (`--container-command`, or $BOUGH_CONTAINER_COMMAND), or one of ours: words with these in them

    {image}      the image
    {cwd}        where the command runs, which must be visible inside
    {user}       UID:GID
    {env}        a word of its own: --env NAME for each variable that the task has for itself
    {command}    a word of its own: the command's words

Rule: the setup runs outside of the container, so that it may load the runtime. Words are passed on as words: no shell
reads them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bough.errors import BadValue
from bough.model.bounds import shown
from bough.model.commands.command import CommandSettings

CONTAINER_COMMAND: Final = "BOUGH_CONTAINER_COMMAND"  # the variable of an executor that holds its template
_SHELL: Final = ("/bin/bash", "-eo", "pipefail", "-c")
_BEFORE: Final = '_bough_command=("$@"); set --'  # the setup may use $1 for itself
_BEHIND: Final = 'exec "${_bough_command[@]}"'
_TRAP: Final = "trap _bough_end EXIT"  # set again behind the setup, which may have had a trap of its own
_END: Final = "_bough_end() {\n_bough_code=$?\ntrap - EXIT\n{teardown}\nexit $_bough_code\n}"
_WITHIN: Final = '"${_bough_command[@]}"'
_LONGEST: Final = 65_536
_TEMPLATES: Final = {
    "apptainer": "apptainer exec --bind {cwd} --pwd {cwd} {image} {command}",
    "docker": "docker run --rm --init -i --user {user} --volume {cwd}:{cwd} --workdir {cwd} {env} {image} {command}",
}
_WORDS: Final = ("{env}", "{command}")
_EXAMPLE: Final = "'singularity exec --bind {cwd} {image} {command}'"


def read_container(given: object) -> tuple[str, str]:
    """Runtime and image of a container; BadValue says what would be right."""
    runtime, colon, image = given.partition(":") if isinstance(given, str) else ("", "", "")
    if runtime not in _TEMPLATES or not colon or not image.strip():
        raise BadValue(f"container is {shown(given)}; give apptainer:IMAGE or docker:IMAGE")
    if image.startswith("-") or any(not char.isprintable() for char in image) or len(image) > _LONGEST:
        raise BadValue(f"container is {shown(given)}; {shown(image)} is no image")
    return runtime, image


def read_setup(given: object, what: str = "setup") -> str:
    """The text of a setup or a teardown; BadValue says what is wrong."""
    if not isinstance(given, str) or "\0" in given or len(given) > _LONGEST:
        raise BadValue(f"{what} is {shown(given)}; give shell text, such as 'module load gcc'")
    return given.strip()


def check_container_command(text: str) -> str:
    """A template for runtimes; BadValue says what is wrong with it."""
    words = _split(text)
    if "{command}" not in words or not any("{image}" in word for word in words):
        raise BadValue(f"--container-command {shown(text)} must hold {{image}} and {{command}}, as {_EXAMPLE}")
    return text


def around(
    words: Sequence[str],
    settings: CommandSettings,
    *,
    template: str = "",
    user: str = "",
    variables: Iterable[str] = (),
) -> list[str]:
    """The words that run a command in its container, behind its setup; `variables` are those of the task."""
    found = list(words)
    if settings.container:
        runtime, image = read_container(settings.container)
        values = {"{image}": image, "{cwd}": settings.cwd, "{user}": user}
        several = {"{command}": found, "{env}": [word for name in variables for word in ("--env", name)]}
        found = []
        for word in _split(check_container_command(template) if template else _TEMPLATES[runtime]):
            found += several[word] if word in _WORDS else [_filled(word, values)]
    if settings.teardown:
        end = _END.replace("{teardown}", settings.teardown)
        lines = [_BEFORE, end, _TRAP, settings.setup, _TRAP, _WITHIN]
        found = [*_SHELL, "\n".join(lines), "setup", *found]
    elif settings.setup:
        found = [*_SHELL, f"{_BEFORE}\n{settings.setup}\n{_BEHIND}", "setup", *found]
    return found


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        if name in word:
            return value.join(_filled(part, values) for part in word.split(name))
    return word


def _split(text: str) -> list[str]:
    import shlex  # late: executors start without it

    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadValue(f"--container-command {shown(text)} cannot be read: {error}") from None
