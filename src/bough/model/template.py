"""Command texts with slots: parsing them, filling in a row of values, and the words that are run.

`{name}` is a value, `{name.stem}` an attribute of a path, `{name:r}` and `{name:w}` files read and
written, `{name:raw}` goes in unquoted, `{name:.3f}` is formatted; `{{` and `}}` are braces. A value is
quoted for where it stands: bare, inside single or inside double quotes. A written name stands for its
hidden file everywhere in the text but in `{name:r}`, `{name:raw}` and attributes, which mean the final path.
Rule: values only ever become text, never shell syntax, except where the user wrote `raw`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from bough.errors import InvalidWorkload
from bough.model.commands import CommandCall, CommandTemplate, Part, Slot

BUILT_IN = frozenset({"cores", "attempt"})
_MODES = frozenset({"r", "w", "raw"})

# --- parsing ------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SLOT = re.compile(r"([^\W\d]\w*)((?:\.[^\W\d]\w*)*)(?::(.*))?", re.DOTALL)
_LOOKS_LIKE_SLOT = re.compile(r"\{[^\W\d]\w*(?:\.[^\W\d]\w*)*(?::[^{}]*)?\}")


def parse(text: str) -> list[Part]:
    """Split a text into literals and slots; bad syntax is an InvalidWorkload that says where."""
    parts: list[Part] = []
    literal = ""
    end = 0
    for token in _TOKEN.finditer(text):
        literal += text[end : token.start()]
        end = token.end()
        if token[0] in ("{{", "}}"):
            literal += token[0][0]
            continue
        slot = token[1] is not None and _SLOT.fullmatch(token[1])
        if not slot:
            raise InvalidWorkload(
                f"{_shown(token[0])} at position {token.start()} of {_shown(text)} is no slot:"
                " write {name}, or {{ and }} for braces"
            )
        name, attribute, spec = slot[1], slot[2][1:], slot[3] or ""
        mode, form = (spec, "") if spec in _MODES else ("", spec)
        if mode == "w" and attribute:
            raise InvalidWorkload(f"{_shown(token[0])} in {_shown(text)}: an output slot takes no attribute")
        if name in BUILT_IN and (attribute or mode in {"r", "w"}):
            raise InvalidWorkload(f"{_shown(token[0])} in {_shown(text)}: {name} is a number, not a file")
        if literal:
            parts.append(literal)
            literal = ""
        parts.append(Slot(name, attribute, mode, form))
    literal += text[end:]
    if literal:
        parts.append(literal)
    return parts


def is_template(value: str) -> bool:
    """Whether a parameter's value is itself a template: it holds something of the form {name}."""
    return "{" in value and _LOOKS_LIKE_SLOT.search(value) is not None


def unparse(parts: Iterable[Part]) -> str:
    """The text that `parse` would read as these parts."""
    words = []
    for part in parts:
        if isinstance(part, str):
            words.append(part.replace("{", "{{").replace("}", "}}"))
        else:
            words.append(show_slot(part))
    return "".join(words)


def show_slot(slot: Slot) -> str:
    """A slot as the user writes it."""
    attribute = f".{slot.attribute}" if slot.attribute else ""
    spec = slot.mode or slot.format
    return f"{{{slot.name}{attribute}{':' + spec if spec else ''}}}"


def check_slots(
    parts: Sequence[Part],
    names: Iterable[str],
    derived: dict[str, list[Part]] | None = None,
    used: Iterable[str] = (),
) -> None:
    """Refuse slots without a parameter, parameters without a slot, and values that use each other in a circle.

    `used` are parameters that count as used for another reason, such as a filter that asks for them.
    """
    derived = derived or {}
    known = dict.fromkeys((*names, *derived))
    for name in known:
        if name in BUILT_IN:
            raise InvalidWorkload(f"{name} is a built-in slot: choose another name for the parameter")
    wanted = set(used)
    for owner, texts in ((None, parts), *derived.items()):
        for slot in texts:
            if isinstance(slot, str):
                continue
            if slot.name not in known and (slot.name not in BUILT_IN or owner is not None):
                raise InvalidWorkload(_unknown(slot, owner, texts, tuple(known)))
            if owner is not None and slot.mode in {"r", "w"}:
                raise InvalidWorkload(
                    f"{show_slot(slot)} in the value of {owner}: files are declared in the command's text"
                )
            if slot.name != owner:
                wanted.add(slot.name)
    unused = [name for name in known if name not in wanted]
    if unused:
        raise InvalidWorkload(f"no slot uses parameter {', '.join(unused)} in {_shown(unparse(parts))}")
    in_order(derived)


def in_order(derived: dict[str, list[Part]]) -> dict[str, list[Part]]:
    """Derived parameters so that each uses only earlier ones; a circle is an InvalidWorkload naming it."""
    done: dict[str, list[Part]] = {}
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise InvalidWorkload(f"parameters are made of each other in a circle: {circle}")
        path.append(name)
        for part in derived[name]:
            if not isinstance(part, str) and part.name in derived:
                visit(part.name)
        path.pop()
        done[name] = derived[name]

    for name in derived:
        visit(name)
    return done


def _unknown(slot: Slot, owner: str | None, texts: Sequence[Part], known: tuple[str, ...]) -> str:
    where = f"the value of {owner}" if owner else _shown(unparse(texts))
    if slot.name in BUILT_IN:
        return f"slot {show_slot(slot)} in {where}: it is known only when the command starts"
    close = get_close_matches(slot.name, known, 1)
    hint = f"; did you mean {close[0]}" if close else ""
    return (
        f"slot {show_slot(slot)} in {where} needs a parameter {slot.name};"
        f" parameters are {', '.join(known) or 'none'}{hint}"
    )


def _shown(text: str) -> str:
    short = text if len(text) <= 100 else text[:97] + "..."
    return '"' + short.replace("\n", "\\n") + '"'


# --- does it need a shell? ----------------------------------------------------------------------------

_SPECIAL = frozenset(";|&<>()$`\n*?[]~#!{}")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[.*\])?\+?=")
_SHELL_WORDS = frozenset(
    re.findall(
        r"\S+",
        """. : alias bg bind break builtin caller case cd command compgen complete continue coproc declare dirs disown
        enable eval exec exit export fc fg for function getopts hash help history if jobs let local logout mapfile ml
        module popd pushd read readarray readonly return select set shift shopt source suspend time times trap type
        typeset ulimit umask unalias unset until wait while""",
    )
)
_HOLE = "\0"  # stands for a slot while the text is looked at


def needs_shell(text: str | Sequence[Part]) -> bool:  # noqa: C901 - a small automaton reads best in one piece
    """Whether a text means something only to a shell; quotes and backslashes alone do not."""
    if not isinstance(text, str):
        if any(isinstance(part, Slot) and part.mode == "raw" for part in text):
            return True
        text = "".join(part if isinstance(part, str) else _HOLE for part in text)
    quote = ""
    skip = False
    for at, char in enumerate(text):
        if skip:
            skip = False
            if char == "\n" or (quote and char in "$`"):  # a shell drops the backslash, we would keep it
                return True
        elif quote == "'":
            if char == "'":
                quote = ""
        elif char == "\\":
            skip = True
        elif quote == '"':
            if char == '"':
                quote = ""
            elif char in "$`":
                return True
        elif char in "'\"":
            quote = char
        elif char in _SPECIAL and (char != "\n" or text[at:].strip()):
            return True
    if quote or skip:
        return True
    first = text.split(None, 1)[:1]
    return bool(first) and (first[0] in _SHELL_WORDS or _ASSIGNMENT.match(first[0]) is not None)


def split_words(parts: Sequence[Part]) -> list[list[tuple[Part, bool]]]:  # noqa: C901 - as above
    """Words of a text run without a shell, each a list of parts; the flag tells slots that stood in quotes."""
    words: list[list[tuple[Part, bool]]] = []
    word: list[tuple[Part, bool]] = []
    literal = ""
    inside = False  # a word, possibly empty, has begun
    quote = ""
    escaped = False
    for part in parts:
        if isinstance(part, Slot):
            if literal:
                word.append((literal, False))
                literal = ""
            word.append((part, bool(quote)))
            inside = True
            continue
        for char in part:
            if escaped:
                escaped = False
                literal += char if not quote or char in '"\\' else "\\" + char
            elif quote:
                if char == quote:
                    quote = ""
                elif char == "\\" and quote == '"':
                    escaped = True
                else:
                    literal += char
            elif char in "'\"":
                quote = char
                inside = True
            elif char == "\\":
                escaped = inside = True
            elif char.isspace():
                if inside:
                    words.append([*word, (literal, False)] if literal or not word else word)
                    word, literal, inside = [], "", False
            else:
                literal += char
                inside = True
    if quote or escaped:
        raise InvalidWorkload(f"{_shown(unparse(parts))} has {'an open quote' if quote else 'a backslash at its end'}")
    if inside:
        words.append([*word, (literal, False)] if literal or not word else word)
    return words


# --- quoting ------------------------------------------------------------------------------------------

_IN_DOUBLE = re.compile(r'[\\"$`]')


def _quote_single(text: str) -> str:
    return text.replace("'", "'\\''")


def _quote_double(text: str) -> str:
    return _IN_DOUBLE.sub(r"\\\g<0>", text)


def _unquoted(text: str) -> str:
    return text


_QUOTES: dict[str, Callable[[str], str]] = {"": shlex.quote, "'": _quote_single, '"': _quote_double}


def contexts(parts: Sequence[Part]) -> list[str]:
    """For each slot of a shell text the quotes it stands in: none, ' or double."""
    found = []
    stack = [""]  # of what is open: "", a quote, ")" for a subshell, "`"
    for part in parts:
        if isinstance(part, Slot):
            found.append(stack[-1] if stack[-1] in {"'", '"'} else "")
        else:
            _follow(part, stack)
    return found


_TURNS = {"'": re.compile("'"), '"': re.compile(r'[\\"`(]'), "": re.compile(r"[\\\"'`()#]")}


def _follow(text: str, stack: list[str]) -> None:
    """Follow the quotes of a literal; comments and escapes hide theirs."""
    at = 0
    while True:
        top = stack[-1]
        turn = _TURNS.get(top, _TURNS[""]).search(text, at)
        if turn is None:
            return
        char = turn[0]
        at = turn.end()
        if char == "\\":
            at += 1
        elif char == "#":
            if turn.start() == 0 or text[turn.start() - 1] in " \t\n;":
                at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif char == top:
            stack.pop()
        elif char == "(":
            if top != '"' or text[turn.start() - 1 : turn.start()] == "$":
                stack.append(")")
        elif char != ")":
            stack.append(char)


# --- values -------------------------------------------------------------------------------------------


def plain(value: Any, form: str = "") -> str:
    """A value as text, unquoted."""
    kind = type(value)
    if kind is str:
        return format(value, form) if form else value
    if form:
        return format(value, form)
    if kind is int or kind is float:
        return str(value)
    if hasattr(kind, "__fspath__"):
        value = value.__fspath__()
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)


_MANY = (list, tuple, range)
_NUMBERS = frozenset({int, float})
_WITHOUT = (bool, int, float, complex, bytes, type(None))


def is_many(value: Any) -> bool:
    """Whether a value becomes several words."""
    return isinstance(value, _MANY)


def attribute(value: Any, path: str, slot: str) -> Any:
    """An attribute of a path as pathlib has it, or of any other object; `slot` is named in errors."""
    if isinstance(value, _MANY) and not hasattr(value, "_fields"):
        return [attribute(item, path, slot) for item in value]
    for name in path.split("."):
        if hasattr(type(value), "__fspath__"):
            value = value.__fspath__()
        if isinstance(value, str):
            if name not in _OF_PATHS:
                raise InvalidWorkload(f"slot {slot}: a path has no {name}, only {', '.join(_OF_PATHS)}")
            value = _OF_PATHS[name](value)
        elif isinstance(value, _WITHOUT) or not hasattr(value, name):
            raise InvalidWorkload(f"slot {slot}: {value!r:.60} is of type {type(value).__name__} and has no {name}")
        else:
            value = getattr(value, name)
            if callable(value):
                raise InvalidWorkload(f"slot {slot}: {name} would have to be called, which a slot cannot do")
    return value


def _pieces(path: str) -> tuple[str, list[str]]:
    """Root and components of a path, as pathlib reads it."""
    root = "/" if path.startswith("/") else ""
    if path.startswith("//") and not path.startswith("///"):
        root = "//"
    return root, [piece for piece in path.split("/") if piece and piece != "."]


def _name(path: str) -> str:
    name = path.rpartition("/")[2]
    if name and name != ".":
        return name
    pieces = _pieces(path)[1]
    return pieces[-1] if pieces else ""


def _suffix(path: str) -> str:
    name = _name(path)
    dot = name.rfind(".")
    return name[dot:] if 0 < dot < len(name) - 1 else ""


def _stem(path: str) -> str:
    name = _name(path)
    dot = name.rfind(".")
    return name[:dot] if 0 < dot < len(name) - 1 else name


def _suffixes(path: str) -> list[str]:
    name = _name(path)
    if name.endswith("."):
        return []
    return ["." + suffix for suffix in name.lstrip(".").split(".")[1:]]


def _parent(path: str) -> str:
    root, pieces = _pieces(path)
    return root + "/".join(pieces[:-1]) or "."


def _parts(path: str) -> list[str]:
    root, pieces = _pieces(path)
    return [root, *pieces] if root else pieces


_OF_PATHS: dict[str, Callable[[str], Any]] = {
    "name": _name,
    "stem": _stem,
    "suffix": _suffix,
    "suffixes": _suffixes,
    "parent": _parent,
    "parts": _parts,
    "root": lambda path: _pieces(path)[0],
    "anchor": lambda path: _pieces(path)[0],
    "drive": lambda path: "",  # there are none here
}

# --- paths --------------------------------------------------------------------------------------------


def absolute(path: str, cwd: str) -> str:
    """A path as it is compared and stored: joined to `cwd`, without dots and doubled slashes."""
    whole = path if path.startswith("/") else f"{cwd}/{path}"
    if "/." not in whole and "//" not in whole and whole[-1] != "/":
        return whole
    tidy: list[str] = []
    for piece in whole.split("/"):
        if piece == "..":
            del tidy[-1:]
        elif piece and piece != ".":
            tidy.append(piece)
    return "/" + "/".join(tidy)


def hidden_path(path: str, record: int, index: int, attempt: int) -> str:
    """Where an attempt writes an output until it has succeeded: the same folder, the same suffix."""
    folder, slash, name = path.rpartition("/")
    mark = f".bough-{record}.{index}-{attempt}."
    room = 255 - len(mark)  # bytes a file system gives a name
    if len(name.encode("utf-8", "surrogateescape")) > room:
        name = name.encode("utf-8", "surrogateescape")[-room:].decode("utf-8", "ignore")
    return f"{folder}{slash}{mark}{name}"


def beside(written: str, real: str) -> str:
    """The path of `real` in the words of the user who wrote `written`: same folder, other name."""
    folder, slash, _ = written.rpartition("/")
    return folder + slash + real.rpartition("/")[2]


# --- rendering ----------------------------------------------------------------------------------------

Values = list[Any]  # of a row, then of its derived parameters
Text = Callable[[Values], str]
Getter = Callable[[Values], Any]


class _Filler:
    """A template made ready to be filled in many times."""

    def __init__(self, template: CommandTemplate) -> None:
        self.template = template
        self.cwd = template.settings.cwd
        self.index = {name: at for at, name in enumerate((*template.names, *template.derived))}
        slots = [part for part in template.parts if isinstance(part, Slot)]
        self.written = dict.fromkeys(slot.name for slot in slots if slot.mode == "w")
        self.derived = [self._joiner(parts) for parts in template.derived.values()]
        self.writes = [(name, self._at(Slot(name))) for name in self.written]
        self.reads = [self._getter(slot) for slot in dict.fromkeys(slots) if slot.mode == "r"]
        self.pieces: list[str | Slot | Text] = []  # of a shell's text; slots are those that stay
        self.words: list[list[tuple[Part, bool]]] = []  # without a shell
        if template.settings.shell:
            quotes = iter(contexts(template.parts))
            for part in template.parts:
                if isinstance(part, str):
                    self.pieces.append(part)
                else:
                    quote = next(quotes)
                    self.pieces.append(part if self.stays(part) else self._text(part, _QUOTES[quote]))
        else:
            self.words = split_words(template.parts)
        self.getters = {slot: self._getter(slot) for slot in slots if slot.name not in BUILT_IN}

    def _at(self, slot: Slot) -> int:
        if slot.name not in self.index:
            raise InvalidWorkload(_unknown(slot, None, self.template.parts, tuple(self.index)))
        return self.index[slot.name]

    def stays(self, slot: Slot) -> bool:
        """Whether a slot is filled in only on the executor: an output, or a built-in."""
        if slot.name in BUILT_IN or slot.mode == "w":
            return True
        return slot.name in self.written and not (slot.mode or slot.attribute or slot.format)

    def _getter(self, slot: Slot) -> Getter:
        """How a slot's value is got from the values of a row."""
        at = self._at(slot)
        if not slot.attribute:
            return lambda values: values[at]
        path, shown = slot.attribute, show_slot(slot)
        direct = _OF_PATHS.get(path)

        def get(values: Values) -> Any:
            value = values[at]
            return direct(value) if direct and type(value) is str else attribute(value, path, shown)

        return get

    def _text(self, slot: Slot, quote: Callable[[str], str]) -> Text:
        """How a slot's text is got, quoted."""
        get, form = self._getter(slot), slot.format
        if slot.mode == "raw":
            quote = _unquoted
        if slot.mode == "r" and not slot.attribute and self.template.renamed:
            return lambda values: _many(get(values), lambda value: quote(self.read(value)))

        def text(values: Values) -> str:
            value = get(values)
            kind = type(value)
            if kind is str and not form:
                return quote(value)
            if kind in _NUMBERS:
                return format(value, form)
            return _many(value, lambda item: quote(plain(item, form)))

        return text

    def _joiner(self, parts: list[Part]) -> Text:
        """How the text of a derived parameter is got."""
        pieces = [part if isinstance(part, str) else self._text(part, _unquoted) for part in parts]
        return lambda values: "".join([piece if type(piece) is str else piece(values) for piece in pieces])  # type: ignore[operator]

    def values(self, row: Sequence[Any]) -> Values:
        """A row with its derived parameters."""
        values = list(row)
        for text in self.derived:
            values.append(text(values))
        return values

    def files(self, values: Values) -> tuple[list[str], dict[str, str]]:
        """Absolute paths that a row reads, and those it writes by slot, as wanted (before renaming)."""
        cwd = self.cwd
        reads: list[str] = []
        for get in self.reads:
            value = get(values)
            if isinstance(value, _MANY):
                reads += [absolute(plain(item), cwd) for item in value]
            else:
                reads.append(absolute(plain(value), cwd))
        writes: dict[str, str] = {}
        for name, at in self.writes:
            value = values[at]
            if isinstance(value, _MANY):
                for number, item in enumerate(value):
                    writes[f"{name}[{number}]"] = absolute(plain(item), cwd)
            else:
                writes[name] = absolute(plain(value), cwd)
        return reads, writes

    def read(self, value: Any) -> str:
        """A file that is read, by the name it really has."""
        written = plain(value)
        real = self.template.renamed.get(absolute(written, self.cwd))
        return written if real is None else beside(written, real)

    def outputs(self, slot: Slot, values: Values, writes: dict[str, str]) -> list[Slot]:
        """The slots of a call for an output; their `format` is the path as the user wrote it."""
        if slot.name in BUILT_IN:
            return [slot]
        value = values[self.index[slot.name]]
        if isinstance(value, _MANY):
            return [self._output(f"{slot.name}[{number}]", item, writes) for number, item in enumerate(value)]
        return [self._output(slot.name, value, writes)]

    def _output(self, name: str, value: Any, writes: dict[str, str]) -> Slot:
        written = plain(value)
        path = absolute(written, self.cwd)
        if self.template.renamed and path in self.template.renamed:
            path = self.template.renamed[path]
            written = beside(written, path)
        writes[name] = path
        return Slot(name, "", "w", written)

    def render(self, row: Sequence[Any]) -> CommandCall:
        values = self.values(row)
        writes: dict[str, str] = {}
        if self.template.settings.shell:
            return CommandCall(self.template.settings, parts=self._shell_parts(values, writes), writes=writes)
        return CommandCall(self.template.settings, argv=self._argv(values, writes), writes=writes)

    def _shell_parts(self, values: Values, writes: dict[str, str]) -> list[Part]:
        parts: list[Part] = []
        text = ""
        for piece in self.pieces:
            if type(piece) is str:
                text += piece
            elif type(piece) is Slot:
                for number, slot in enumerate(self.outputs(piece, values, writes)):
                    text = text if number == 0 else " "
                    parts += (text, slot) if text else (slot,)
                    text = ""
            else:
                text += piece(values)  # type: ignore[operator]
        if text:
            parts.append(text)
        return parts

    def _argv(self, values: Values, writes: dict[str, str]) -> list[list[Part]]:
        argv: list[list[Part]] = []
        for pieces in self.words:
            if len(pieces) == 1:
                part, quoted = pieces[0]
                if isinstance(part, str):
                    argv.append([part])
                else:
                    argv += [[item] for item in self._items(part, quoted, values, writes)]
                continue
            word: list[Part] = []
            for part, quoted in pieces:
                items: Sequence[Part] = [part] if isinstance(part, str) else self._items(part, quoted, values, writes)
                for number, item in enumerate(items):
                    if number:
                        argv.append(_merged(word))
                        word = []
                    word.append(item)
            argv.append(_merged(word))
        return argv

    def _items(self, slot: Slot, quoted: bool, values: Values, writes: dict[str, str]) -> Sequence[Part]:
        """What a slot puts into a word: one part, or several, which end it and begin others."""
        if self.stays(slot):
            return self.outputs(slot, values, writes)
        value = self.getters[slot](values)
        show = self.read if slot.mode == "r" and not slot.attribute and self.template.renamed else None
        if not isinstance(value, _MANY):
            return (show(value) if show else plain(value, slot.format),)
        texts = [show(item) if show else plain(item, slot.format) for item in value]
        return (" ".join(texts),) if quoted else texts


def _many(value: Any, show: Callable[[Any], str]) -> str:
    return " ".join([show(item) for item in value]) if isinstance(value, _MANY) else show(value)


def _merged(parts: list[Part]) -> list[Part]:
    """Neighbouring literals as one; a word always has a part."""
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, str) and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged or [""]


_fillers: dict[int, _Filler] = {}  # by the template's id; the value keeps the template, so that ids stay valid


def _filler(template: CommandTemplate) -> _Filler:
    found = _fillers.get(id(template))
    if found is None:
        found = _Filler(template)
        if len(_fillers) >= 64:
            _fillers.pop(next(iter(_fillers)), None)
        _fillers[id(template)] = found
    return found


def render_row(template: CommandTemplate, row: Sequence[Any]) -> CommandCall:
    """The call that a row of the template's table makes."""
    return _filler(template).render(row)


def row_files(template: CommandTemplate, row: Sequence[Any]) -> tuple[list[str], dict[str, str]]:
    """Absolute paths that a row declares as read, and as written by slot, before any renaming."""
    filler = _filler(template)
    return filler.files(filler.values(row))


def render_call(call: CommandCall, hidden: dict[str, str], cores: float = 1, attempt: int = 1) -> list[str]:
    """The words to run; `hidden` says for each output slot where this attempt writes it (`hidden_path`)."""
    if call.settings.shell:
        quotes = iter(contexts(call.parts))
        text = ""
        for part in call.parts:
            text += part if isinstance(part, str) else _QUOTES[next(quotes)](_late(part, hidden, cores, attempt))
        return [*call.settings.shell, text]
    argv = []
    for word in call.argv:
        if len(word) == 1 and isinstance(word[0], str):
            argv.append(word[0])
        else:
            argv.append("".join([p if isinstance(p, str) else _late(p, hidden, cores, attempt) for p in word]))
    return argv


def _late(slot: Slot, hidden: dict[str, str], cores: float, attempt: int) -> str:
    """The text of a slot that only the executor can fill in."""
    if slot.mode == "w":
        path = hidden[slot.name]
        return beside(slot.format, path) if slot.format else path
    value: float = attempt if slot.name == "attempt" else cores
    return format(int(value) if float(value).is_integer() else value, slot.format)
