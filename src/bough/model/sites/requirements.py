"""Requirements: an expression over the attributes of executors, such as "memory_gb >= 64 and 'avx512' in cpu".

An attribute is a number, a text, or a list of words. The grammar is a small part of Python's: `and`, `or`, `not`,
parentheses, comparisons (`==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`; several in a row), names of attributes,
numbers, texts, True, False, and lists of these. A name alone is true if its value is neither 0 nor empty. `x in words`
is true if x is one of the words, `x in text` if it is a part of the text. Texts are ordered as versions are: '3.9'
comes before '3.11'.

What an executor does not say is unknown, as is a comparison of a number with a text. Unknown and false is false,
unknown or true is true; a requirement that is unknown at the end is not met.
Rules: an expression is read by Python's parser and looked at node by node; it is never evaluated as code. Its length,
nodes and depth are bounded, so that an answer costs little, whoever wrote it. `holds` and `meets` never raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from msgspec import Meta

from bough.errors import BadValue
from bough.model.bounds import NO_NUL, Finite, shown

if TYPE_CHECKING:
    import ast

LONGEST_TEXT: Final = 1000  # characters of an expression
_MOST_NODES: Final = 300
_DEEPEST: Final = 40

RequirementText = Annotated[str, Meta(max_length=LONGEST_TEXT, pattern=NO_NUL)]
AttributeName = Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
# no pattern: in a union with a tuple msgspec 0.22 gives it back once too often, and the process crashes some time later
AttributeText = Annotated[str, Meta(max_length=1000)]
AttributeWord = Annotated[str, Meta(max_length=64)]
AttributeValue = Finite | AttributeText | Annotated[tuple[AttributeWord, ...], Meta(max_length=1000)]
Attributes = Annotated[tuple[tuple[AttributeName, AttributeValue], ...], Meta(max_length=100)]

Value: TypeAlias = "float | str | frozenset[str] | tuple[float | str, ...]"
Known: TypeAlias = "Mapping[str, float | str | frozenset[str]]"
_Test: TypeAlias = "Callable[[Known], bool | None]"
_Term: TypeAlias = "Callable[[Known], Value | None]"

_DIGITS = re.compile(r"(\d+)")


class Part:
    """One of the conditions that must all be met: its text, the names in it, and the test."""

    __slots__ = ("names", "test", "text")

    def __init__(self, text: str, names: tuple[str, ...], test: _Test) -> None:
        self.text = text
        self.names = names
        self.test = test


class Requirement:
    """An expression that has been read."""

    __slots__ = ("parts", "text")

    def __init__(self, text: str, parts: tuple[Part, ...]) -> None:
        self.text = text
        self.parts = parts

    def holds(self, known: Known) -> bool | None:
        """Whether it is true of these attributes; None: too little is known of them."""
        found: bool | None = True
        for part in self.parts:
            value = part.test(known)
            if value is False:
                return False
            found = found and value
        return found

    def unmet(self, known: Known) -> Iterator[tuple[str, str]]:
        """What of it is not true, each with what there is: ("memory_gb >= 64", "32")."""
        for part in self.parts:
            if part.test(known) is not True:
                alone = len(part.names) == 1
                yield part.text, ", ".join(_shown(name, known, alone=alone) for name in part.names) or "something else"


def _shown(name: str, known: Known, *, alone: bool) -> str:
    value = known.get(name)
    if value is None:
        return f"no {name}"
    if isinstance(value, frozenset):
        return f"another {name}"
    said = f"{value:.6g}" if isinstance(value, float | int) else value
    return said if alone else f"{name} {said}"


def holds(text: str, known: Known) -> bool | None:
    """Whether a requirement is true of these attributes; None: too little is known. What cannot be read is false."""
    try:
        return read_requirement(text).holds(known)
    except BadValue:
        return False


def meets(text: str, known: Known) -> bool:
    """Whether executors with these attributes meet a requirement."""
    return holds(text, known) is True


def as_known(attributes: Attributes) -> dict[str, float | str | frozenset[str]]:
    """Attributes as a requirement looks at them."""
    return {name: frozenset(value) if isinstance(value, tuple) else value for name, value in attributes}


@lru_cache(maxsize=256)
def _shared(value: float | str | tuple[str, ...]) -> float | str | tuple[str, ...]:
    return value


def compact(attributes: Attributes) -> Attributes:
    """The same attributes; long values that many executors have are kept once."""
    return tuple((name, _shared(value)) for name, value in attributes) if attributes else ()


def join_requirements(one: str, other: str) -> str:
    """An expression that is true where both are."""
    if not one or not other or one == other:
        return one or other
    return f"({one}) and ({other})"


# --- reading ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def read_requirement(text: str) -> Requirement:
    """Read an expression; BadValue says what is wrong with it."""
    import ast  # late: few workflows have requirements, and every process would pay for it

    if len(text) > LONGEST_TEXT:
        raise BadValue(f"requires has {len(text)} characters; it may have {LONGEST_TEXT}")
    if "\\" in text or "\0" in text:
        raise _wrong(text, "it holds a backslash or NUL; leave it out")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise _wrong(text, f"it is not an expression ({error.msg})") from None
    except (ValueError, MemoryError, RecursionError, OverflowError):
        raise _wrong(text, "it is not an expression") from None
    _check_size(text, tree)
    reader = _Reader(text)
    conjuncts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    return Requirement(text, tuple(reader.part(one) for one in _flat(conjuncts)))


def _flat(conjuncts: list[ast.expr]) -> Iterator[ast.expr]:
    import ast

    for one in conjuncts:
        if isinstance(one, ast.BoolOp) and isinstance(one.op, ast.And):
            yield from _flat(one.values)
        else:
            yield one


def _check_size(text: str, tree: ast.expr) -> None:
    import ast

    level: list[ast.AST] = [tree]
    nodes = depth = 0
    while level:
        nodes += len(level)
        depth += 1
        if nodes > _MOST_NODES or depth > _DEEPEST:
            raise _wrong(text, f"it is too long: at most {_MOST_NODES} parts, {_DEEPEST} inside each other")
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def _wrong(text: str, why: str) -> BadValue:
    return BadValue(f"requires is {shown(text)}; {why}; give something like \"memory_gb >= 64 and 'avx512' in cpu\"")


class _Reader:
    """Turns nodes into tests, and refuses all others."""

    def __init__(self, text: str) -> None:
        import ast

        self._text = text
        self._ast = ast
        self._orders: dict[type, Callable[[Value, Value], bool | None]] = {
            ast.Eq: _is_equal,
            ast.NotEq: lambda a, b: _negated(_is_equal(a, b)),
            ast.Lt: _is_before,
            ast.GtE: lambda a, b: _negated(_is_before(a, b)),
            ast.Gt: lambda a, b: _is_before(b, a),
            ast.LtE: lambda a, b: _negated(_is_before(b, a)),
            ast.In: _is_in,
            ast.NotIn: lambda a, b: _negated(_is_in(a, b)),
        }

    def part(self, node: ast.expr) -> Part:
        """One of the conditions that must all be met."""
        test = self._test(node)
        names = dict.fromkeys(one.id for one in self._ast.walk(node) if isinstance(one, self._ast.Name))
        said = self._ast.get_source_segment(self._text.strip(), node) or self._ast.unparse(node)
        return Part(said, tuple(names), test)

    def _test(self, node: ast.expr) -> _Test:
        ast = self._ast
        if isinstance(node, ast.BoolOp):
            tests = [self._test(one) for one in node.values]
            return _all(tests) if isinstance(node.op, ast.And) else _any(tests)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            test = self._test(node.operand)
            return lambda known: _negated(test(known))
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        term = self._term(node)
        return lambda known: None if (value := term(known)) is None else bool(value)

    def _comparison(self, node: ast.Compare) -> _Test:
        terms = [self._term(one) for one in (node.left, *node.comparators)]
        if any(type(op) not in self._orders for op in node.ops):
            raise _wrong(self._text, "it compares by ==, !=, <, <=, >, >=, in and not in")
        orders = [self._orders[type(op)] for op in node.ops]

        def one(at: int) -> _Test:
            left, order, right = terms[at], orders[at], terms[at + 1]

            def test(known: Known) -> bool | None:
                a, b = left(known), right(known)
                return None if a is None or b is None else order(a, b)

            return test

        return _all([one(at) for at in range(len(orders))])

    def _term(self, node: ast.expr) -> _Term:
        ast = self._ast
        if isinstance(node, ast.Name):
            name = node.id
            return lambda known: known.get(name)
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            values = tuple(self._constant(one) for one in node.elts)
            return lambda _: values
        value = self._constant(node)
        return lambda _: value

    def _constant(self, node: ast.expr) -> float | str:
        ast = self._ast
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node, sign = node.operand, -1
            if not isinstance(node, ast.Constant) or isinstance(node.value, str):
                raise _wrong(self._text, "only numbers have a sign")
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str):
            return value
        if isinstance(value, int | float) and abs(value) <= 1e300:
            return sign * float(value)
        what = type(node).__name__ if value is None else shown(value)
        raise _wrong(self._text, f"{what} cannot stand in it")


def _all(tests: list[_Test]) -> _Test:
    if len(tests) == 1:
        return tests[0]

    def test(known: Known) -> bool | None:
        found: bool | None = True
        for one in tests:
            value = one(known)
            if value is False:
                return False
            found = found and value
        return found

    return test


def _any(tests: list[_Test]) -> _Test:
    def test(known: Known) -> bool | None:
        found: bool | None = False
        for one in tests:
            value = one(known)
            if value is True:
                return True
            found = None if value is None else found
        return found

    return test


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _is_equal(a: Value, b: Value) -> bool | None:
    if isinstance(a, frozenset | tuple) or isinstance(b, frozenset | tuple):
        return None
    if isinstance(a, str) is not isinstance(b, str):
        return None
    return a == b


def _is_before(a: Value, b: Value) -> bool | None:
    if isinstance(a, str) and isinstance(b, str):
        return _version(a) < _version(b)
    if isinstance(a, float | int) and isinstance(b, float | int):
        return a < b
    return None


def _version(text: str) -> list[tuple[int, int, str]]:
    """A text in an order in which 3.9 comes before 3.11."""
    parts = _DIGITS.split(text)
    return [(1, int(part), "") if at % 2 else (0, 0, part) for at, part in enumerate(parts)]


def _is_in(a: Value, b: Value) -> bool | None:
    if isinstance(b, tuple):
        return None if isinstance(a, frozenset | tuple) else a in b
    if isinstance(a, str) and isinstance(b, frozenset | str):
        return a in b
    return None
