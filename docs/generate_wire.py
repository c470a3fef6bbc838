"""Write docs/spec/wire.md from the message types in bough.wire and the values that they hold.

Directions, tags, roles, fields, bounds and comments are those of the source. Run by `make docs`; a unit test fails
when the page and the types differ. Written from the classes' syntax, not from reprs, which differ between versions of
Python.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from bough.model import bounds, ids
from bough.wire import (
    client_messages,
    executor_messages,
    file_messages,
    handshake,
    here_questions,
    peer_messages,
    questions,
    relay_channels,
)
from bough.wire.client_messages import MAX_FRAME, VERSION

PAGE = Path(__file__).parent / "spec" / "wire.md"

HEAD = f"""# Wire protocol

<!-- Written by docs/generate_wire.py from src/bough/wire: change the types there, then run make docs. -->

What clients, executors, relays and the server say to each other. This is version {VERSION}. Both ends of a connection
must have the same version: the server refuses a hello of another one with a message that says so. A new field of a
message has a default and does not change the version; everything else does.

## Frames

A connection is a stream of frames. A frame is a length of four bytes, big-endian, and one MessagePack list of
messages, which are handled in order. A message is a MessagePack array: its tag, then its fields in the order below;
fields at the end that have their default may be missing. The fields of a message that goes both ways are listed where
it occurs first. A peer that sends anything else, or a value out of the bounds below, is told so by `Refused` and
disconnected; no such value reaches the core or the journal.

| role | bytes of one frame |
|---|---|
| not proven yet | {handshake.FIRST_FRAME:,} |
"""

ROLES = """
## Roles

On a Unix socket the permissions of its file say who connects: the store's owner, who may say everything. Over TCP the
server speaks first: `Challenge`. The peer answers in one frame: `Proof` of a role's token, and its hello. The token
itself never travels. See [](../explanation/security.md).

| role | may say |
|---|---|
| owner | everything |
| `submit` | all messages of clients |
| `read` | of those: {reader}, and of the questions those that change nothing |
| `execute` | all messages of executors and of relays |

The first message after the proof is a hello: `ClientHello`, `ExecutorHello` or `RelayHello`. It decides what the peer
is for the rest of the connection.
"""

_DIRECTIONS = (
    ("Client to server", client_messages.FromClient | file_messages.PutPiece, "A script, or a command of `bough`."),
    ("Server to client", client_messages.ToClient, ""),
    ("Executor to server", executor_messages.FromExecutor, "Or to a relay that shares out work."),
    ("Server to executor", executor_messages.ToExecutor, "Or from a relay that shares out work."),
    (
        "Relay to server",
        relay_channels.RelayHello | relay_channels.FromRelay,
        (
            "A relay carries the connections of many peers over one, each on a *channel*. What a channel carries is the"
            " stream of a peer, its handshake included. On a channel no more is sent than the other end has granted."
        ),
    ),
    ("Server to relay", relay_channels.ToRelay, ""),
    (
        "Executor to executor",
        peer_messages.AskContent | peer_messages.ContentComes,
        "By a TLS connection of its own: the reader asks, and gets the answer and then the bytes.",
    ),
)
_NOT_FROM_EXECUTORS = {file_messages.PutPiece}  # in a union with what executors say, but only clients say it


def render() -> str:
    """The whole page."""
    sizes = [f"| `{role}` | {size:,} |" for role, size in handshake.ROLE_FRAME.items()]
    reader = ", ".join(f"`{one.__name__}`" for one in get_args(client_messages.FromReader))
    lines = [HEAD + "\n".join(sizes), f"\nNo frame is bigger than {MAX_FRAME:,} bytes.", ROLES.format(reader=reader)]
    shown: dict[type, None] = {}
    for title, union, about in _DIRECTIONS:
        messages = [one for one in get_args(union) if title != "Executor to server" or one not in _NOT_FROM_EXECUTORS]
        lines += [f"## {title}", "", *([about, ""] if about else []), *_overview(messages), *_fields(messages, shown)]
    asked = list(get_args(questions.AnyQuestion))
    lines += ["## Questions of clients", "", "In an `Ask`; what the `Answer` holds stands beside each.", ""]
    lines += [*_questions(asked), *_fields(asked, shown)]
    tasks = list(get_args(here_questions.HereQuestion))
    lines += [
        "## Requests of running tasks",
        "",
        "In a `TaskRequest`, as a MessagePack map whose key `what` is the tag; `bough here` sends them.",
        "",
    ]
    lines += [*_overview(tasks), *_fields(tasks, shown)]
    values = sorted(_reachable(shown) - shown.keys(), key=lambda one: one.__name__)
    structs = [one for one in values if issubclass(one, msgspec.Struct)]
    lines += ["## Values inside messages", "", *_overview(structs), *_fields(structs, shown), *_enums(values)]
    lines += ["## Types and their bounds", "", "| type | bounds |", "|---|---|", *_bounds(), *_aliases(shown)]
    return "\n".join(lines).rstrip() + "\n"


def _overview(messages: list[type]) -> list[str]:
    rows = [f"| `{one.__name__}` | {_tag(one)} | {_meaning(one)} |" for one in messages]
    return ["| message | tag | meaning |", "|---|---|---|", *rows, ""]


def _questions(asked: list[type[questions.Question[Any]]]) -> list[str]:
    roles = ("submit, read", "submit")
    rows = [
        f"| `{one.__name__}` | {_tag(one)} | {roles[one.changes]} | `{_answer(one)}` | {_meaning(one)} |"
        for one in asked
    ]
    return ["| question | tag | roles | type of the answer | answer |", "|---|---|---|---|---|", *rows, ""]


def _answer(question: type) -> str:
    """The type that a question says its answer has."""
    base = _syntax(question).bases[0]
    return ast.unparse(base.slice) if isinstance(base, ast.Subscript) else ""


def _fields(messages: list[type], shown: dict[type, None]) -> list[str]:
    """A table of fields for each message that has some and was not shown before."""
    lines: list[str] = []
    for one in messages:
        if one in shown:
            continue
        shown[one] = None
        rows = list(_field_rows(one))
        if rows:
            lines += [
                f"**`{one.__name__}`**",
                "",
                "| field | type | default | meaning |",
                "|---|---|---|---|",
                *rows,
                "",
            ]
    return lines


def _field_rows(message: type) -> Iterator[str]:
    source = inspect.getsource(message).splitlines()
    for node in _syntax(message).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = ast.unparse(node.annotation)
            if kind.startswith("ClassVar"):
                continue
            default = f"`{ast.unparse(node.value)}`" if node.value is not None else ""
            comment = re.search(r"  # (.*?)[\s)]*$", " ".join(source[node.lineno - 1 : node.end_lineno]))
            why = _cell(comment[1]) if comment else ""
            yield f"| `{node.target.id}` | `{_cell(kind)}` | {_cell(default)} | {why} |"


def _syntax(message: type) -> ast.ClassDef:
    [node] = ast.parse(inspect.getsource(message)).body
    assert isinstance(node, ast.ClassDef)
    return node


def _tag(message: type) -> str:
    tag = message.__struct_config__.tag  # type: ignore[attr-defined]
    return f"`{tag}`" if tag is not None else ""


def _meaning(message: type) -> str:
    return _cell(" ".join((ast.get_docstring(_syntax(message)) or "").split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _reachable(messages: dict[type, None]) -> set[type]:
    """Structs and enums that fields of messages hold, directly or not."""
    found: set[type] = set()
    waiting: list[object] = [*messages]
    while waiting:
        kind = waiting.pop()
        if inspect.isclass(kind) and issubclass(kind, msgspec.Struct | enum.Enum):
            if kind in found:
                continue
            found.add(kind)
            if issubclass(kind, msgspec.Struct):
                hints = get_type_hints(kind)
                waiting += [hints[name] for name in kind.__struct_fields__]
        elif get_origin(kind) is not None:
            waiting += get_args(kind)
    return found


def _enums(values: list[type]) -> list[str]:
    lines: list[str] = []
    for one in values:
        if issubclass(one, enum.Enum):
            rows = [f"| `{member.name}` | `{member.value!r}` |" for member in one]
            lines += [f"**`{one.__name__}`**: {_meaning(one)}", "", "| name | value |", "|---|---|", *rows, ""]
    return lines


def _bounds() -> Iterator[str]:
    """The named types that fields have, from the modules that define them, in the order of the source."""
    for module in (bounds, ids, here_questions, questions):
        tree = ast.parse(Path(importlib.import_module(module.__name__).__file__ or "").read_text())
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name, text = node.targets[0].id, ast.unparse(node.value)
                if text.startswith(("Annotated[", "NewType(")) or name == "Seconds":
                    yield f"| `{name}` | {_said(getattr(module, name))} |"


def _aliases(shown: dict[type, None]) -> Iterator[str]:
    """What other names stand for that fields have as their types: unions, choices."""
    used = {
        word.id
        for one in shown
        for field in _syntax(one).body
        if isinstance(field, ast.AnnAssign)
        for word in ast.walk(field.annotation)
        if isinstance(word, ast.Name)
    }
    known = {one.__name__ for one in shown}
    for name in sorted({one.__module__ for one in shown}):
        tree = ast.parse(Path(importlib.import_module(name).__file__ or "").read_text())
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                alias, text = node.targets[0].id, ast.unparse(node.value)
                if alias in used - known and not text.startswith(("Annotated[", "NewType(")):
                    yield f"| `{alias}` | `{_cell(text)}` |"


def _said(kind: Any) -> str:
    """The bounds of a type in words."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    found = msgspec.inspect.type_info(kind)
    match found:
        case msgspec.inspect.IntType():
            return f"a whole number from {found.ge} to {found.le}"
        case msgspec.inspect.FloatType():
            return f"a finite number from {found.ge} to {found.le}"
        case msgspec.inspect.StrType():
            nul = ", without NUL" if found.pattern else ""
            return f"a text of {found.min_length or 0} to {found.max_length} characters{nul}"
        case msgspec.inspect.BytesType():
            return f"at most {found.max_length} bytes" if found.max_length else "bytes"
        case _:
            return f"`{_cell(str(kind))}`"


if __name__ == "__main__":
    PAGE.write_text(render())
