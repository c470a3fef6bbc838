"""Fills in a row of values: from a template to a call, and from a call to the words that are run.

A written name stands for its hidden file everywhere in the text but in `{name:r}`, `{name:raw}` and attributes, which
mean the final path. Outputs and built-in slots stay open in a call until an executor starts it; in a `late` call so do
the files that are read, which may lie elsewhere there. Rule: values become text, never shell syntax, except where the
user wrote `raw`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from bough.errors import InvalidWorkload
from bough.model.commands.command import CommandCall, CommandTemplate, Part, TemplateSlot, Transfer, show_slot
from bough.model.commands.playpens import got_files, last_part, local_place, put_files, stored_files
from bough.model.commands.shell_text import QUOTES, contexts, split_words
from bough.model.commands.template import BUILT_IN, MANY, OF_PATHS, attribute, joined, plain, unknown
from bough.model.files import absolute, beside, declared_place, is_pattern, no_option, output_place

Values = list[Any]  # of a row, then of its derived parameters
Text = Callable[[Values], str]
Getter = Callable[[Values], Any]

_NUMBERS = frozenset({int, float})


def _unquoted(text: str) -> str:
    return text


class _Filler:
    """A template made ready to be filled in many times."""

    def __init__(self, template: CommandTemplate, late: bool = False) -> None:
        self.template = template
        self.late = late
        self.cwd = template.settings.cwd
        self.index = {name: at for at, name in enumerate((*template.names, *template.derived))}
        slots = [part for part in template.parts if isinstance(part, TemplateSlot)]
        self.written = dict.fromkeys(slot.name for slot in slots if slot.mode == "w")
        self.derived = [self._joiner(parts) for parts in template.derived.values()]
        self.writes = [(name, self._at(TemplateSlot(name))) for name in self.written]
        read = [slot for slot in dict.fromkeys(slots) if slot.mode == "r"]
        self.reads = [self._getter(slot) for slot in (*read, *map(TemplateSlot, template.inputs))]
        self.beside = [self._at(TemplateSlot(name)) for name in template.outputs]
        self.moved = [(one.kind, self._at_name(one.local), self._at_name(one.remote)) for one in template.transfers]
        self.pieces: list[str | TemplateSlot | Text] = []  # of a shell's text; slots are those that stay
        self.words: list[list[tuple[Part, bool]]] = []  # without a shell
        if template.settings.shell:
            quotes = iter(contexts(template.parts))
            for part in template.parts:
                if isinstance(part, str):
                    self.pieces.append(part)
                else:
                    quote = next(quotes)
                    self.pieces.append(part if self.stays(part) else self._text(part, QUOTES[quote]))
        else:
            self.words = split_words(template.parts)
        self.getters = {slot: self._getter(slot) for slot in slots if slot.name not in BUILT_IN}

    def _at(self, slot: TemplateSlot) -> int:
        if slot.name not in self.index:
            raise InvalidWorkload(unknown(slot, None, self.template.parts, tuple(self.index)))
        return self.index[slot.name]

    def _at_name(self, name: str) -> int:
        """The place of a parameter that has to be there; -1: there is no name."""
        return self._at(TemplateSlot(name)) if name else -1

    def stays(self, slot: TemplateSlot) -> bool:
        """Whether a slot is filled in only on the executor: an output, a built-in, or in a late call an input."""
        if slot.name in BUILT_IN or slot.mode == "w" or (self.late and slot.mode == "r" and not slot.attribute):
            return True
        return slot.name in self.written and not (slot.mode or slot.attribute or slot.format)

    def _getter(self, slot: TemplateSlot) -> Getter:
        """How a slot's value is got from the values of a row."""
        at = self._at(slot)
        if not slot.attribute:
            return lambda values: values[at]
        path, shown = slot.attribute, show_slot(slot)
        direct = OF_PATHS.get(path)

        def get(values: Values) -> Any:
            value = values[at]
            return direct(value) if direct and type(value) is str else attribute(value, path, shown)

        return get

    def _text(self, slot: TemplateSlot, quote: Callable[[str], str]) -> Text:
        """How a slot's text is got, quoted."""
        get, form = self._getter(slot), slot.format
        if slot.mode == "raw":
            quote = _unquoted
        if slot.mode == "r" and not slot.attribute:
            show = self.read if self.template.renamed else plain
            return lambda values: joined(get(values), lambda value: quote(no_option(show(value))))

        def text(values: Values) -> str:
            value = get(values)
            kind = type(value)
            if kind is str and not form:
                return quote(value)
            if kind in _NUMBERS:
                return format(value, form)
            return joined(value, lambda item: quote(plain(item, form)))

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
            if isinstance(value, MANY):
                reads += [declared_place(plain(item), cwd) for item in value]
            else:
                reads.append(declared_place(plain(value), cwd))
        writes: dict[str, str] = {}
        for name, at in self.writes:
            value = values[at]
            if isinstance(value, MANY):
                for number, item in enumerate(value):
                    writes[f"{name}[{number}]"] = output_place(plain(item), cwd)
            else:
                writes[name] = output_place(plain(value), cwd)
        if self.beside:
            self._enter_beside(values, writes)
        if self.moved:
            moved = self.transfers(values)
            reads += stored_files(moved)
            reads += put_files(moved)
            writes.update(got_files(moved))
        return reads, writes

    def transfers(self, values: Values) -> list[Transfer]:
        """What a row puts, stores and gets, as wanted (before renaming)."""
        moved: list[Transfer] = []
        for kind, local, remote in self.moved:
            here = plain(values[local if local >= 0 else remote])
            there = plain(values[remote if remote >= 0 else local])
            if local < 0:
                here = last_part(here)
            elif remote < 0:
                there = last_part(there)
            moved.append(Transfer(kind, local_place(kind, here, self.cwd), there))
        return moved

    def _enter_beside(self, values: Values, writes: dict[str, str]) -> tuple[list[str], list[str]]:
        """Add the files that the command writes by itself to others; their slots, and the patterns among them."""
        in_place: list[str] = []
        patterns: list[str] = []
        for at in self.beside:
            written = plain(values[at])
            path = output_place(written, self.cwd)
            if is_pattern(written):
                patterns.append(path)
            elif written in writes:
                raise InvalidWorkload(f"the output {written} is declared twice, or has the name of a slot")
            else:
                writes[written] = path
                in_place.append(written)
        return in_place, patterns

    def read(self, value: Any) -> str:
        """A file that is read, by the name it really has."""
        written = plain(value)
        real = self.template.renamed.get(absolute(written, self.cwd))
        return written if real is None else beside(written, real)

    def outputs(self, slot: TemplateSlot, values: Values, writes: dict[str, str]) -> list[TemplateSlot]:
        """The slots of a call for an output or an input; their `format` is the path as the user wrote it."""
        if slot.name in BUILT_IN:
            return [slot]
        value = values[self.index[slot.name]]
        if slot.mode == "r":
            return [
                TemplateSlot(slot.name, "", "r", self.read(item))
                for item in (value if isinstance(value, MANY) else [value])
            ]
        if isinstance(value, MANY):
            return [self._output(f"{slot.name}[{number}]", item, writes) for number, item in enumerate(value)]
        return [self._output(slot.name, value, writes)]

    def _output(self, name: str, value: Any, writes: dict[str, str]) -> TemplateSlot:
        written = plain(value)
        path = absolute(written, self.cwd)
        if self.template.renamed and path in self.template.renamed:
            path = self.template.renamed[path]
            written = beside(written, path)
        writes[name] = path
        return TemplateSlot(name, "", "w", written)

    def render(self, row: Sequence[Any]) -> CommandCall:
        values = self.values(row)
        writes: dict[str, str] = {}
        reads: dict[str, bytes] = self._real_reads(values) if self.late else {}
        if self.template.settings.shell:
            parts = self._shell_parts(values, writes)
            call = CommandCall(self.template.settings, parts=parts, writes=writes, reads=reads)
        else:
            call = CommandCall(self.template.settings, argv=self._argv(values, writes), writes=writes, reads=reads)
        if self.moved:
            renamed = self.template.renamed
            moved = [replace(one, local=renamed.get(one.local, one.local)) for one in self.transfers(values)]
            writes.update(got_files(moved))
            call = replace(call, transfers=moved)
        if not self.beside:
            return call
        in_place, patterns = self._enter_beside(values, writes)
        return replace(call, in_place=in_place, patterns=patterns)

    def _real_reads(self, values: Values) -> dict[str, bytes]:
        """What a row reads, by the names the files really have."""
        renamed, settings = self.template.renamed, self.template.settings
        shared = [absolute(path, self.cwd) for path in (settings.stdin_path, settings.environment) if path]
        reads = [*self.files(values)[0], *shared]
        return {renamed.get(path, path): b"" for path in reads}

    def _shell_parts(self, values: Values, writes: dict[str, str]) -> list[Part]:
        parts: list[Part] = []
        text = ""
        for piece in self.pieces:
            if type(piece) is str:
                text += piece
            elif type(piece) is TemplateSlot:
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

    def _items(self, slot: TemplateSlot, quoted: bool, values: Values, writes: dict[str, str]) -> Sequence[Part]:
        """What a slot puts into a word: one part, or several, which end it and begin others."""
        if self.stays(slot):
            found = self.outputs(slot, values, writes)
            if not (quoted and slot.mode == "r" and len(found) > 1):
                return found
        value = self.getters[slot](values)
        is_file = slot.mode == "r" and not slot.attribute
        show = self.read if is_file and self.template.renamed else lambda item: plain(item, slot.format)
        texts = [show(item) for item in value] if isinstance(value, MANY) else [show(value)]
        if is_file:
            texts = [no_option(text) for text in texts]
        return (" ".join(texts),) if quoted else texts


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


def _filler(template: CommandTemplate, late: bool = False) -> _Filler:
    key = -id(template) if late else id(template)
    found = _fillers.get(key)
    if found is None:
        found = _Filler(template, late)
        if len(_fillers) >= 64:
            _fillers.pop(next(iter(_fillers)), None)
        _fillers[key] = found
    return found


def render_row(template: CommandTemplate, row: Sequence[Any], *, late: bool = False) -> CommandCall:
    """The call that a row of the template's table makes; a `late` one says what it reads, which may lie elsewhere."""
    return _filler(template, late or template.late).render(row)


def row_files(template: CommandTemplate, row: Sequence[Any]) -> tuple[list[str], dict[str, str]]:
    """Absolute paths that a row declares as read, and as written by slot, before any renaming."""
    filler = _filler(template)
    return filler.files(filler.values(row))


def row_transfers(template: CommandTemplate, row: Sequence[Any]) -> list[Transfer]:
    """What a row puts, stores and gets, before any renaming."""
    filler = _filler(template)
    return filler.transfers(filler.values(row)) if filler.moved else []


def row_patterns(template: CommandTemplate, row: Sequence[Any]) -> list[str]:
    """Absolute patterns of outputs that a row declares."""
    filler = _filler(template)
    return filler._enter_beside(filler.values(row), {})[1] if filler.beside else []


def render_call(
    call: CommandCall,
    hidden: dict[str, str],
    cores: float = 1,
    attempt: int = 1,
    moved: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """The words to run; `hidden` says for each output slot where this attempt writes it (`hidden_path`).

    `moved` says of paths that are read, as the user wrote them, where they lie instead.
    """
    if call.settings.shell:
        quotes = iter(contexts(call.parts))
        text = ""
        for part in call.parts:
            text += part if isinstance(part, str) else QUOTES[next(quotes)](_late(part, hidden, cores, attempt, moved))
        return [*call.settings.shell, text]
    argv = []
    for word in call.argv:
        if len(word) == 1 and isinstance(word[0], str):
            argv.append(word[0])
        else:
            argv.append("".join([p if isinstance(p, str) else _late(p, hidden, cores, attempt, moved) for p in word]))
    return argv


def _late(slot: TemplateSlot, hidden: dict[str, str], cores: float, attempt: int, moved: Mapping[str, str]) -> str:
    """The text of a slot that only the executor can fill in."""
    if slot.mode == "r":
        return no_option(moved.get(slot.format, slot.format))
    if slot.mode == "w":
        path = hidden[slot.name]
        return beside(slot.format, path) if slot.format else path
    value: float = attempt if slot.name == "attempt" else cores
    return format(int(value) if float(value).is_integer() else value, slot.format)
