"""ClassAd expressions of HTCondor, as far as submit descriptions use them: `$$([...])`, `$EVAL(...)`, `if`, `queue N`.

Literals, attributes (names in any case, `My.` and `Target.` before them mean nothing here), arithmetic, comparisons,
logic with `undefined`, `a ? b : c`, and the functions that descriptions call. Rule: an expression says what it is worth
or raises a ValueError that names what is not understood; it never runs anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

UNDEFINED: Final = None
Value = bool | int | float | str | None

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)
      | (?P<text>\\?"(?:[^"\\]|\\(?!")[^\n]|\\"(?=[^\s,)\]]))*\\?")
      | (?P<name>[A-Za-z_][\w.]*)
      | (?P<sign>=\?=|=!=|==|!=|<=|>=|&&|\|\||[-+*/%<>!?:(),{}])
    )""",
    re.VERBOSE,
)
_DEEP = 50
_LONG = 100_000
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!=", "=?=", "=!="),
    ("<", "<=", ">", ">="),
    ("+", "-"),
    ("*", "/", "%"),
)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": lambda one, two: one == two,
    "!=": lambda one, two: one != two,
    "<": lambda one, two: one < two,
    "<=": lambda one, two: one <= two,
    ">": lambda one, two: one > two,
    ">=": lambda one, two: one >= two,
}
_CALCULATE: dict[str, Callable[[float, float], float]] = {
    "+": lambda one, two: one + two,
    "-": lambda one, two: one - two,
    "*": lambda one, two: one * two,
}


def evaluate(text: str, attributes: Mapping[str, Value]) -> Value:
    """What an expression is worth; names of attributes are in small letters."""
    return _Expression(text, attributes).value()


def shown(value: Value) -> str:
    """A value as HTCondor puts it into a text."""
    if value is UNDEFINED:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}"
    return str(value)


class _Expression:
    def __init__(self, text: str, attributes: Mapping[str, Value]) -> None:
        if len(text) > _LONG:
            raise ValueError("the expression is too long")
        self.text = text
        self.attributes = attributes
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0

    def value(self) -> Value:
        found = self._choice()
        if self.at < len(self.tokens):
            raise ValueError(f"{self._peek()[1]!r:.40} is not understood in the expression {self.text:.60}")
        return found

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("", "")

    def _take(self, sign: str) -> bool:
        if self._peek() == ("sign", sign):
            self.at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise ValueError(f"{sign} is missing in the expression {self.text:.60}")

    def _choice(self) -> Value:
        self.depth += 1
        if self.depth > _DEEP:
            raise ValueError("the expression is nested too deep")
        found = self._binary(0)
        if self._take("?"):
            yes = self._choice()
            self._expect(":")
            no = self._choice()
            truth = _truth(found)
            found = UNDEFINED if truth is None else yes if truth else no
        self.depth -= 1
        return found

    def _binary(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self._unary()
        found = self._binary(level + 1)
        while self._peek()[0] == "sign" and self._peek()[1] in _LEVELS[level]:
            sign = self._peek()[1]
            self.at += 1
            found = _combine(sign, found, self._binary(level + 1))
        return found

    def _unary(self) -> Value:
        negative, flipped = False, False
        while self._peek() in (("sign", "-"), ("sign", "+"), ("sign", "!")):
            sign = self._peek()[1]
            self.at += 1
            negative ^= sign == "-"
            flipped ^= sign == "!"
            if sign == "!" and negative:
                raise ValueError(f"the expression {self.text:.60} is not understood")
        found = self._atom()
        if negative:
            found = -_number(found) if found is not UNDEFINED else found
        if flipped:
            truth = _truth(found)
            found = None if truth is None else not truth
        return found

    def _atom(self) -> Value:
        kind, text = self._peek()
        self.at += 1
        if kind == "number":
            return int(text) if text.isdecimal() else float(text)
        if kind == "text":
            return text.removeprefix("\\")[1:].removesuffix('"').removesuffix("\\").replace('\\"', '"')
        if kind == "name":
            return self._call(text) if self._peek() == ("sign", "(") else self._attribute(text)
        if (kind, text) == ("sign", "("):
            found = self._choice()
            self._expect(")")
            return found
        raise ValueError(f"the expression {self.text:.60} ends too early" if not kind else f"{text!r} is misplaced")

    def _attribute(self, name: str) -> Value:
        name = name.lower()
        if name in ("true", "false"):
            return name == "true"
        if name in ("undefined", "error"):
            return UNDEFINED
        return self.attributes.get(name.removeprefix("my.").removeprefix("target."))

    def _call(self, name: str) -> Value:
        self._expect("(")
        given: list[Value] = []
        is_list = self._take("{")  # max({1, 2}) is max(1, 2)
        if is_list or not self._take(")"):
            given.append(self._choice())
            while self._take(","):
                given.append(self._choice())
            if is_list:
                self._expect("}")
            self._expect(")")
        function = _FUNCTIONS.get(name.lower())
        if function is None:
            raise ValueError(f"the function {name:.40} is not known here")
        try:
            return function(given)
        except (IndexError, TypeError, ArithmeticError):
            raise ValueError(f"{name}(...) does not take these values") from None


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise ValueError(f"{text[at:].strip()!r:.40} is not understood in an expression")
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def _number(value: Value) -> int | float:
    if isinstance(value, str) or value is None:
        raise ValueError(f"{shown(value)!r:.40} is no number")
    return int(value) if isinstance(value, bool) else value


def _truth(value: Value) -> bool | None:
    if isinstance(value, str):
        raise ValueError(f"{value!r:.40} is neither true nor false")  # noqa: TRY004 - what callers tell users of
    return None if value is None else bool(value)


def _combine(sign: str, left: Value, right: Value) -> Value:
    if sign in ("=?=", "=!="):
        return (type(left) is type(right) and left == right) is (sign == "=?=")
    if sign in ("&&", "||"):
        truths = (_truth(left), _truth(right))
        decisive = sign == "||"
        return decisive if decisive in truths else None if None in truths else not decisive
    if left is None or right is None:
        return UNDEFINED
    if sign in _COMPARE:
        if isinstance(left, str) and isinstance(right, str):
            one, two = left.lower(), right.lower()
            return _COMPARE[sign]((one > two) - (one < two), 0)
        return _COMPARE[sign](_number(left), _number(right))
    return _calculated(sign, _number(left), _number(right))


def _calculated(sign: str, one: float, two: float) -> Value:
    try:
        if sign in _CALCULATE:
            found = _CALCULATE[sign](one, two)
        elif isinstance(one, int) and isinstance(two, int):
            found = abs(one) // abs(two) * (1 if (one < 0) == (two < 0) else -1)
            found = found if sign == "/" else one - two * found
        else:
            found = one / two if sign == "/" else math.fmod(one, two)
    except (ZeroDivisionError, OverflowError, ValueError):
        raise ValueError(f"{one} {sign} {two} cannot be calculated") from None
    if isinstance(found, int) and abs(found) > 1 << 63:
        raise ValueError(f"{one} {sign} {two} is too big")
    return found


def _text(value: Value) -> str:
    return "" if value is None else shown(value)


def _substr(given: list[Value]) -> Value:
    text, start = _text(given[0]), int(_number(given[1]))
    length = int(_number(given[2])) if len(given) > 2 else len(text)
    rest = text[start:] if start >= 0 else text[max(0, len(text) + start) :]
    return rest[:length]


_FUNCTIONS: dict[str, Callable[[list[Value]], Value]] = {
    "ifthenelse": lambda given: None if _truth(given[0]) is None else given[1] if given[0] else given[2],
    "isundefined": lambda given: given[0] is None,
    "isstring": lambda given: isinstance(given[0], str),
    "isinteger": lambda given: isinstance(given[0], int) and not isinstance(given[0], bool),
    "isreal": lambda given: isinstance(given[0], float),
    "isboolean": lambda given: isinstance(given[0], bool),
    "iserror": lambda given: False,
    "strcat": lambda given: "".join(map(_text, given)),
    "string": lambda given: _text(given[0]),
    "size": lambda given: len(_text(given[0])),
    "toupper": lambda given: _text(given[0]).upper(),
    "tolower": lambda given: _text(given[0]).lower(),
    "substr": _substr,
    "int": lambda given: int(float(given[0] if given[0] is not None else "")),
    "real": lambda given: float(given[0] if given[0] is not None else ""),
    "round": lambda given: round(_number(given[0])),
    "floor": lambda given: math.floor(_number(given[0])),
    "ceiling": lambda given: math.ceil(_number(given[0])),
    "min": lambda given: None if None in given else min(map(_number, given)),
    "max": lambda given: None if None in given else max(map(_number, given)),
    "quantize": lambda given: math.ceil(_number(given[0]) / _number(given[1])) * _number(given[1]),
}
