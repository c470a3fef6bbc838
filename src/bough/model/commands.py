"""What a command is, from the client that renders it to the worker that runs it.

A text is held as parts: literal strings and slots, because output slots get their hidden name, and
`{attempt}` its number, only on the executor. Rule: nothing here touches a file.
"""

from __future__ import annotations

import enum

import msgspec


class Slot(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """A hole in a text: parameter `name`, an attribute path such as `stem`, and how it is used.

    mode: "" a value (shell-quoted), "raw" unquoted, "r" a file read, "w" a file written.
    Built-in names are `cores` and `attempt`.
    """

    name: str
    attribute: str = ""
    mode: str = ""
    format: str = ""  # a format specification for plain values, as in {e:.3f}


Part = str | Slot


class Clash(enum.StrEnum):
    """What happens when an output's path is somebody else's."""

    ERROR = "error"
    RENAME = "rename"
    OVERWRITE = "overwrite"


class CommandSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all tasks of one call of `command` or `sweep` share."""

    cwd: str
    shell: tuple[str, ...] = ()  # words before the text, e.g. ("/bin/bash", "-eo", "pipefail", "-c"); empty: no shell
    env: dict[str, str] = {}
    stdin: bytes | None = None  # text for standard input; None: /dev/null
    stdin_path: str = ""  # a file for standard input


class CommandCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A loose command, ready but for its output slots: the payload of a command `TaskSpec`.

    `parts` holds literal text, already quoted; slots left in it are outputs (mode "w"), `attempt` and `cores`, and for
    a service those inputs (mode "r") whose path, held in `format`, leads out of the submitter's directory.
    Without a shell `argv` holds the words, each a list of parts (unquoted).
    """

    settings: CommandSettings
    parts: list[Part] = []  # text for the shell
    argv: list[list[Part]] = []  # words, when no shell is needed
    writes: dict[str, str] = {}  # output slot name -> final absolute path
    reads: dict[str, bytes] = {}  # of a service's command: absolute path read -> digest of its content, if it was sent


class CommandTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a command array: a text over the parameters of each row.

    `derived` are parameters that are themselves templates over the others (`o="hits/{q.stem}.txt"`),
    in an order in which each uses only earlier ones. Relative `w` and `r` paths are relative to `settings.cwd`.
    """

    settings: CommandSettings
    parts: list[Part]
    names: tuple[str, ...]  # parameters of a row, in the order of the table
    derived: dict[str, list[Part]] = {}
    renamed: dict[str, str] = {}  # Jole's table: wanted absolute path -> the free one chosen (clash="rename")


encode_call = msgspec.msgpack.Encoder().encode
decode_call = msgspec.msgpack.Decoder(CommandCall).decode
decode_template = msgspec.msgpack.Decoder(CommandTemplate).decode
