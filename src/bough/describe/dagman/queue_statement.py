"""`queue` of submit descriptions: how many jobs, and what is different about each.

    queue 3
    queue input in a.txt, b.txt
    queue 2 name, size from sizes.txt
    queue file matching files *.dat

As in the HTCondor manual, "condor_submit". Rule: a list is read where the description is; programs that would write
one (`from prog |`) are not run.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator

from bough.describe.dagman.classad_expression import evaluate
from bough.describe.plan import Where
from bough.describe.source_files import read_file

MOST_JOBS = 2_000_000  # of one description
_FORM = re.compile(r"(?P<head>.*?)(?:(?:^|\s)(?P<how>in|from|matching)\b\s*(?P<rest>.*))?\Z", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_SLICE = re.compile(r"\[\s*(-?\d{0,9})\s*(:\s*(-?\d{0,9})\s*)?(:\s*(-?\d{0,9})\s*)?\]\s*")
_WORD = re.compile(r"[^\s,]+")

Expand = Callable[[str, Where], str]


def queued(text: str, folder: str, expand: Expand, where: Where) -> Iterator[dict[str, str]]:
    """The macros of each job that a statement queues, in order."""
    match = _FORM.match(text)
    assert match is not None
    head, how, rest = match["head"].strip(), (match["how"] or "").lower(), match["rest"] or ""
    count, keys = _names(head) if how else (head, [])
    step = _number(expand(count, where), where)
    if not how:
        yield from _steps(step, 0, 0, {})
        return
    total = 0
    for row, values in enumerate(_items(how, rest, keys or ["item"], folder, expand, where)):
        total += step
        if total > MOST_JOBS:
            raise where.wrong(f"queue makes more than {MOST_JOBS} jobs")
        yield from _steps(step, row, row * step, values)


def queue_size(text: str, folder: str, expand: Expand, where: Where) -> int:
    """How many jobs a statement queues: what it costs does not depend on how many each item stands for."""
    match = _FORM.match(text)
    assert match is not None
    head, how, rest = match["head"].strip(), (match["how"] or "").lower(), match["rest"] or ""
    step = _number(expand(_names(head)[0] if how else head, where), where)
    return step if not how else step * sum(1 for _ in _items(how, rest, ["item"], folder, expand, where))


def _names(head: str) -> tuple[str, list[str]]:
    """What stands before the list: a number, and the names at its end."""
    names: list[str] = []
    end = len(head)
    for word in reversed(list(_WORD.finditer(head))):
        if _NAME.match(word[0]) is None:
            break
        names.insert(0, word[0].lower())
        end = word.start()
    return head[:end], names


def _steps(count: int, row: int, first: int, values: dict[str, str]) -> Iterator[dict[str, str]]:
    for step in range(count):
        number = str(first + step)
        yield {
            **values,
            "process": number,
            "procid": number,
            "step": str(step),
            "row": str(row),
            "itemindex": str(row),
        }


def _number(text: str, where: Where) -> int:
    if not text.strip():
        return 1
    try:
        found = evaluate(text, {})
    except ValueError as error:
        raise where.wrong(f"queue {text:.60}: {error}") from None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MOST_JOBS:
        raise where.wrong(f"queue {text:.60}: give a number of jobs, at most {MOST_JOBS}")
    return found


def _items(  # noqa: PLR0917
    how: str, rest: str, keys: list[str], folder: str, expand: Expand, where: Where
) -> Iterator[dict[str, str]]:
    rest = rest.strip()
    kind = "any"
    if how == "matching":
        first, _, more = rest.partition(" ")
        if first.lower() in ("files", "dirs", "any"):
            kind, rest = first.lower(), more.strip()
    sliced = slice(None)
    found = _SLICE.match(rest)
    if found is not None:
        sliced = _slice(found, where)
        rest = rest[found.end() :]
    if how == "from":
        rows = _lines(rest, folder, expand, where)[sliced]
        yield from (_fields(row, keys) for row in rows)
        return
    inner = expand(_bare(rest, where), where)
    items = [item for line in inner.split("\n") for item in re.split(r"[\s,]+", line.strip()) if item]
    if how == "matching":
        items = [one for item in items for one in _matches(item, kind, folder)]
    for item in items[sliced]:
        yield {keys[0]: item}


def _slice(found: re.Match[str], where: Where) -> slice:
    numbers = [int(text) if text not in (None, "", "-") else None for text in found.group(1, 3, 5)]
    if found[2] is None:
        if numbers[0] is None:
            return slice(None)
        return slice(numbers[0], numbers[0] + 1 or None)
    if numbers[2] == 0:
        raise where.wrong("queue: the step of [begin:end:step] is not 0")
    return slice(*numbers)


def _bare(text: str, where: Where) -> str:
    """What stands between parentheses, if there are any."""
    if not text.startswith("("):
        return text
    if not text.rstrip().endswith(")"):
        raise where.wrong("queue: the ) that ends the list is missing")
    return text.rstrip()[1:-1]


def _lines(rest: str, folder: str, expand: Expand, where: Where) -> list[str]:
    if rest.startswith("("):
        text = expand(_bare(rest, where), where)
    else:
        path = expand(rest, where).strip()
        if path.endswith("|") or not path:
            raise where.wrong(
                f"queue from {path:.60}: give a file or a list; programs are not run to read a description"
            )
        try:
            text = read_file(os.path.join(folder, path)).decode("utf-8-sig", "replace")
        except OSError as error:
            raise where.wrong(f"cannot read the list {path}: {error.strerror}") from None
    lines = [line.strip() for line in text.split("\n")]
    return [line for line in lines if line and line[0] != "#"]


def _fields(line: str, keys: list[str]) -> dict[str, str]:
    """A line by its macros; the last one takes all that is left."""
    found: dict[str, str] = {}
    for at, key in enumerate(keys):
        if at == len(keys) - 1:
            found[key] = line.strip()
        else:
            parts = re.split(r"\s*,\s*|\s+", line.strip(), maxsplit=1)
            found[key], line = parts[0], parts[1] if len(parts) > 1 else ""
    return found


def _matches(pattern: str, kind: str, folder: str) -> list[str]:
    found = sorted(glob.glob(pattern, root_dir=folder or None))
    if kind == "any":
        return found
    check = os.path.isfile if kind == "files" else os.path.isdir
    return [path for path in found if check(os.path.join(folder, path))]
