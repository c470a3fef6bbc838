"""What a code object says: a digest of its instructions, and the globals, attributes and imports it uses.

Constants are taken where they are used, not by number. Rule: neither line numbers nor docstrings nor the
order of constants count, and the same source gives the same facts in every process.
"""

from __future__ import annotations

import dis
import marshal
import types
from hashlib import blake2b
from typing import Any

from bough.model.ids import DIGEST_SIZE
from bough.model.shortcalls import SIMPLE

_TAKES_CONST = frozenset(dis.hasconst)
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_LOAD_NAME = dis.opmap["LOAD_NAME"]
_IMPORT_NAME = dis.opmap["IMPORT_NAME"]
_GLOBAL_SHIFT = 1  # since 3.11 the lowest bit says something else
_DOC_FLAG = 0x4000000  # since 3.13


class CodeFacts:
    """What a code object says, worked out once."""

    __slots__ = ("attributes", "digest", "globals", "imports", "nested", "odd")

    def __init__(self, code: types.CodeType) -> None:
        self.nested: list[types.CodeType] = []  # code in it, in order of use
        self.odd: list[Any] = []  # constants that marshal does not write: frozensets
        self.attributes: tuple[str, ...]
        self.globals: tuple[str, ...]
        self.imports: tuple[str, ...]
        names: set[str] = set()
        imports: set[str] = set()
        stream: list[Any] = [
            (
                code.co_name,
                code.co_argcount,
                code.co_posonlyargcount,
                code.co_kwonlyargcount,
                code.co_flags & ~_DOC_FLAG,
            ),
            (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
            getattr(code, "co_exceptiontable", b""),
        ]
        arg = 0
        raw = code.co_code
        for at in range(0, len(raw), 2):
            op, arg = raw[at], arg << 8 | raw[at + 1]
            if op == dis.EXTENDED_ARG:
                continue
            if op in _TAKES_CONST:
                stream.append((op, self._const(code.co_consts[arg])))
            else:
                stream.append(op << 32 | arg)
                if op == _LOAD_GLOBAL:
                    names.add(code.co_names[arg >> _GLOBAL_SHIFT])
                elif op == _LOAD_NAME:
                    names.add(code.co_names[arg])
                elif op == _IMPORT_NAME:
                    imports.add(code.co_names[arg])
            arg = 0
        self.attributes = tuple(sorted({*code.co_names, *(n for c in self.nested for n in facts_of(c).attributes)}))
        self.globals = tuple(sorted(names.union(*(facts_of(c).globals for c in self.nested))))
        self.imports = tuple(sorted(imports.union(*(facts_of(c).imports for c in self.nested))))
        self.digest = blake2b(marshal.dumps(stream, 2), digest_size=DIGEST_SIZE).digest()

    def _const(self, const: Any) -> Any:
        if isinstance(const, types.CodeType):
            self.nested.append(const)
            return "code"
        if type(const) in SIMPLE:
            return const
        self.odd.append(const)
        return "constant"


_code_facts: dict[types.CodeType, CodeFacts] = {}


def facts_of(code: types.CodeType) -> CodeFacts:
    """What a code object says; equal code is looked at once."""
    found = _code_facts.get(code)
    if found is None:
        if len(_code_facts) > 4096:
            _code_facts.clear()
        found = _code_facts[code] = CodeFacts(code)
    return found
