r"""Monitors and metrics in one line of text, as command lines, profiles and descriptions say them; read and written.

    plateau:score=(-?[0-9.]+),25,1e-4          finish when the last 25 scores have a standard deviation below 0.0001
    regex:ERROR -> fail                        fail when a line of stdout or stderr matches
    regex:file:run.log:E=([-0-9.]+),below=-5   finish when the number in a line of run.log is below -5
    created:done.flag                          finish when the file is there
    after:1h -> signal USR1                    send a signal after an hour
    silent:10min -> restart 3                  begin anew when nothing was written for ten minutes, up to 3 times
    memory:4GB -> fail                         fail above 4 GB
    exec:./check.sh,every=5s                   finish when the command exits with 0
    metric:score=([-0-9.]+)                    record the numbers, fire never
    reported:score,below=-5                    finish when the task reports a score below -5 (`bough.here().report`)
    plateau:reported:score,25,1e-4             a plateau of the scores that it reports
    silent:10min or memory:4GB -> restart 3    when one of them is met
    created:a and created:b                    when each of them has been met
    regex:ready then after:1h -> fail          when one after the other is met

The rules, which need no quoting of patterns:

- `[NAME=]KIND:` comes first, up to the first colon. Without a name, a monitor has its kind's.
- ` -> ACTION` comes last. What follows the last ` -> ` (with a space on both sides) is the action; a text that has
  none finishes the task. So a pattern that holds ` -> ` needs an action said behind it.
- Numbers and options are split off from the right, at commas, as many as the kind has. What is left is the pattern or
  the command, commas and all. A pattern that ends as an option would is written with `[,]`.
- `stdout:`, `stderr:` or `file:PATH:` may stand before a pattern. Without it, a regex looks at both streams, the
  others at stdout.

- ` or `, ` and ` and ` then `, with a space on both sides, combine two monitors where a kind and a colon follow. `and`
  binds more than `or`. An action stands at the end of what it is for: at the very end, or before a `then`, where a text
  without one does nothing but begin the next. A pattern that holds such words has a `[ ]` for one of the spaces.

What has no such form (functions, an `or` within an `and`) is said in Python. `monitor_text` writes only what
`read_monitor` reads back as the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from bough.errors import BadValue, UserError, did_you_mean
from bough.model.bounds import Count, Duration, FilePath, Finite, Name, ShortName, read_number, shown, within
from bough.model.ids import read_bytes, read_seconds
from bough.model.monitoring import monitors as m

ARROW: Final = " -> "
LONGEST_TEXT: Final = 80_000  # characters: a command has up to 65,536

SIGNALS: Final[Mapping[str, int]] = {  # as Linux numbers them
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "ABRT": 6,
    "KILL": 9,
    "USR1": 10,
    "USR2": 12,
    "ALRM": 14,
    "TERM": 15,
    "CONT": 18,
    "STOP": 19,
    "TSTP": 20,
    "URG": 23,
    "WINCH": 28,
}
_ACTIONS: Final = ("finish", "fail", "restart", "signal", "tag", "emit", "none")
_CLOSE_ARROW: Final = re.compile(rf"->\s*(?:repeat\s+)?(?:{'|'.join(_ACTIONS)})\b[^()\[\]]*\Z")
_NUMBER: Final = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*\Z", re.ASCII)
_BEFORE_GROUP: Final = re.compile(r"(?<![\\\w])([A-Za-z_]\w{0,99})\Z", re.ASCII)
_REPORTED: Final = f"{m.REPORTED}:"
_NAMED_GROUP: Final = re.compile(r"\(\?P<(\w{1,100})>")

T = TypeVar("T")


def read_plan(texts: Iterable[str]) -> m.WatchPlan:
    """What some texts say, as one plan; a UserError names the text that is wrong and says what is."""
    return m.plan_of([read_monitor(text) for text in texts])


def read_monitor(text: str) -> m.Monitor | m.Metric:
    """What one text says."""
    if len(text) > LONGEST_TEXT:
        raise BadValue(f"monitor {shown(text)}: a monitor has at most {LONGEST_TEXT} characters")
    named = ""
    try:
        found = _read(text)
        named = f"{'metric' if isinstance(found, m.Metric) else 'monitor'} {found.name!r}"
        m.check_plan(m.plan_of([found]))
    except UserError as error:
        reason = str(error).removeprefix(f"{named}: ") if named else str(error)
        raise BadValue(f"monitor {shown(text)}: {reason}") from None
    return found


def monitor_text(item: m.Monitor | m.Metric) -> str:
    """The text that `read_monitor` reads as this; UserError if there is none."""
    text = _write(item)
    try:
        same = read_monitor(text) == item
    except UserError:
        same = False
    if not same:
        raise UserError(f"monitor {item.name!r} cannot be written as one line of text; say it in Python")
    return text


def name_in(pattern: str) -> str:
    """What the numbers that a pattern finds are called: the word before its group, as in `score=(...)`, or `value`."""
    named = _NAMED_GROUP.search(pattern)
    if named:
        return named[1]
    start = re.search(r"(?<!\\)\((?!\?)", pattern)
    before = pattern[: start.start()] if start else ""
    while before != (less := re.sub(r"(?:[ =:+*]|\\[st:=])\Z", "", before)):
        before = less
    found = _BEFORE_GROUP.search(before)
    return found[1] if found else "value"


def signal_number(word: str) -> int:
    """The number of a signal: of USR1, SIGUSR1 or 10."""
    name = word.strip().upper().removeprefix("SIG")
    if name.isascii() and name.isdigit() and 1 <= (number := read_number("signal", name, Count)) <= 64:
        return number
    if name not in SIGNALS:
        raise BadValue(f"{shown(word)} is no signal; there are {', '.join(SIGNALS)}, and numbers from 1 to 64")
    return SIGNALS[name]


# --- reading -----------------------------------------------------------------------------------------


def _read(text: str) -> m.Monitor | m.Metric:
    head, colon, rest = text.partition(":")
    name, _, kind = head.rpartition("=")
    kind = kind.strip()
    if not colon or kind not in (*_READERS, "metric"):
        hint = did_you_mean(kind, _READERS) if colon else ""
        if kind == "custom":
            hint = "; functions are said in Python"
        elif kind in {"any", "all"}:
            hint = "; several are combined as in silent:10min or memory:4GB"
        raise BadValue(f"it begins with a kind and a colon: {', '.join(_READERS)} or metric{hint}")
    name = name.strip()
    steps = _steps(f"{kind}:{rest}")
    if kind == "metric":
        return _metric(rest, within("its name", name, ShortName) if name else "")
    conditions = [_combined(parts) for parts, _ in steps]
    actions = [read_action(action) for _, action in steps]
    made = [m.Step(condition, *action) for condition, action in zip(conditions, actions, strict=True)]
    return m.Monitor(within("its name", name or _kind(made[0].condition), ShortName), tuple(made))


def _steps(text: str) -> list[tuple[list[tuple[str, str]], str]]:
    """What is watched one after the other: parts, each with the word before it, and an action."""
    steps: list[tuple[list[tuple[str, str]], str]] = []
    parts: list[tuple[str, str]] = []
    word, begin = "then", 0
    joints = [*_JOINT.finditer(text), None]
    for joint in joints:
        part = text[begin : joint.start() if joint is not None else len(text)]
        if joint is not None:
            _check_joint(part, joint)
        following = joint["word"] if joint is not None else "then"
        if following != "then":
            if ARROW in part:
                raise BadValue(f"{shown(part)} is a part of a combination: its action stands at the end of all")
            parts.append((word, part))
        else:
            body, arrow, action = part.rpartition(ARROW)
            if not arrow:
                body, action = part, "finish" if joint is None else "none"
                if _CLOSE_ARROW.search(part):
                    raise BadValue("an action stands behind ' -> ', with a space on both sides of the arrow")
            steps.append(([*parts, (word, body)], action))
            parts = []
        word = following
        begin = joint.end() if joint is not None else 0
    _check_words(text)
    return steps


def _check_joint(before: str, joint: re.Match[str]) -> None:
    if "metric" in {before.partition(":")[0], joint["kind"]}:
        raise BadValue("a metric records numbers and fires never: it is a monitor of its own, and no part of others")
    if joint["name"]:
        raise BadValue(f"only the whole has a name, before its first kind: leave {shown(joint['name'])} out")


def _check_words(text: str) -> None:
    """Refuse what looks like a mistyped kind behind `or`, `and` or `then`: it would be taken for a pattern."""
    for found in _NEARLY.finditer(text):
        if found[1] not in (*_READERS, "metric") and (hint := did_you_mean(found[1], (*_READERS, "metric"))):
            raise BadValue(f"{found[1]!r} is no kind{hint} If it is a part of the pattern, write [ ] for the blank")


def _combined(parts: list[tuple[str, str]]) -> m.Condition:
    """The condition that some parts make; `and` binds more than `or`."""
    either: list[list[m.Condition]] = []
    for word, part in parts:
        kind, _, body = part.partition(":")
        read = _READERS[kind.strip()](body)
        if word == "and":
            either[-1].append(read)
        else:
            either.append([read])
    found = [each[0] if len(each) == 1 else m.AllOf(tuple(each)) for each in either]
    return found[0] if len(found) == 1 else m.AnyOf(tuple(found))


def _place(text: str) -> tuple[str, str]:
    """The place that stands before a pattern, empty if none does; and the rest."""
    for stream in m.STREAMS:
        if text.startswith(f"{stream}:"):
            return stream, text[len(stream) + 1 :]
    if not text.startswith("file:"):
        return "", text
    path, colon, rest = text.removeprefix("file:").partition(":")
    if not path or not colon:
        raise BadValue("a file is said as file:PATH: before the pattern, and its path holds no colon")
    return within("the path", path, FilePath), rest


def _split(text: str, known: Mapping[str, Callable[[str, str], Any]]) -> tuple[str, dict[str, Any]]:
    """The options at the end of a text, split off from the right, and what is left."""
    found: dict[str, Any] = {}
    while True:
        rest, comma, last = text.rpartition(",")
        name, equals, value = last.partition("=")
        reader = known.get(name.strip())
        if not comma or reader is None or name.strip() in found or (not equals and reader is not _yes):
            return text, found
        found[name.strip()] = reader(name.strip(), value)
        text = rest


def _numbers(text: str, most: int) -> tuple[str, list[str]]:
    """The numbers at the end of a text, at most so many, and what is left."""
    found: list[str] = []
    while len(found) < most:
        rest, comma, last = text.rpartition(",")
        if not comma or not _NUMBER.match(last):
            break
        found.insert(0, last)
        text = rest
    return text, found


def _regex(text: str) -> m.Condition:
    where, text = _place(text)
    pattern, options = _split(text, {"below": _float, "above": _float})
    within("its pattern", pattern, m.Pattern)
    if where:
        return m.Regex(where, pattern, **options)
    return m.AnyOf(tuple([m.Regex(stream, pattern, **options) for stream in m.STREAMS]))


def _reported(text: str) -> m.Condition:
    name, options = _split(text, {"below": _float, "above": _float})
    return m.Regex(m.REPORTED, m.reported_pattern(within("the metric", name.strip(), ShortName)), **options)


def _plateau(text: str) -> m.Condition:
    where, text = _place(text)
    is_reported = not where and text.startswith(_REPORTED) and "(" not in text  # a name: a pattern has a group
    text, options = _split(text, {"slope": _yes, "total": _count, "metric": _name})
    pattern, numbers = _numbers(text, 2)
    last = pattern.rpartition(",")[2].strip()
    if not numbers and not options and "," in pattern and last[:1] in set("0123456789.+-"):
        raise BadValue(f"{shown(last)} is not a number; a plateau is plateau:PATTERN,WINDOW,BELOW")
    if is_reported:
        name = within("the metric", pattern.removeprefix(_REPORTED).strip(), ShortName)
        where, pattern = m.REPORTED, m.reported_pattern(name)
        if options.setdefault("metric", name) != name:
            raise BadValue("the metric is named twice: leave metric= out")
    within("its pattern", pattern, m.Pattern)
    options.setdefault("metric", name_in(pattern))
    if numbers:
        options["window"] = within("the window", _int("the window", numbers[0]), m.Window)
    if numbers[1:]:
        options["below"] = within("the limit", _float("the limit", numbers[1]), m.Limit)
    return m.Plateau(pattern, where=where or "stdout", **options)


def _created(text: str) -> m.Condition:
    if not text:
        raise BadValue("it names no file, as in created:done.flag")
    return m.FileCreated(within("the path", text, FilePath))


def _exec(text: str) -> m.Condition:
    command, options = _split(text, {"every": _period, "timeout": _period})
    if not command.strip():
        raise BadValue("it has no command, as in exec:./check.sh")
    return m.Executable(within("the command", command, m.CommandText), **options)


def _after(text: str) -> m.Condition:
    return m.After(_time("the time", text))


def _memory(text: str) -> m.Condition:
    try:
        found = int(text[:100]) if text.isascii() and text.isdigit() else read_bytes(text)
    except ValueError:
        raise BadValue(f"the memory is {shown(text)}; give something like 4GB") from None
    return m.Memory(within("the memory", found, Count))


def _silent(text: str) -> m.Condition:
    where, text = _place(text)
    if text.startswith(_REPORTED):
        where, text = m.REPORTED, text.removeprefix(_REPORTED)
    seconds = _time("the time", text)
    if not seconds:
        raise BadValue("the time must be above 0")
    return m.Silent(seconds, where)


_READERS: Final[Mapping[str, Callable[[str], m.Condition]]] = {
    "regex": _regex,
    "reported": _reported,
    "created": _created,
    "exec": _exec,
    "plateau": _plateau,
    "after": _after,
    "memory": _memory,
    "silent": _silent,
}
_JOINT: Final = re.compile(
    rf" (?P<word>or|and|then) (?=(?P<name>[^\s=:]{{1,200}}=)?(?P<kind>{'|'.join((*_READERS, 'metric'))}):)"
)
_NEARLY: Final = re.compile(r" (?:or|and|then) ([a-z]{2,12}):")


def _metric(text: str, name: str) -> m.Metric:
    where, text = _place(text)
    pattern, options = _split(text, {"total": _count, "at": _checkpoints})
    within("its pattern", pattern, m.Pattern)
    return m.Metric(
        pattern,
        name=name or name_in(pattern),
        where=where or "stdout",
        total=options.get("total", 0),
        checkpoints=options.get("at", ()),
    )


def read_action(text: str) -> tuple[m.MonitorAction, bool]:
    """What is done when a monitor fires, and whether it goes on watching then."""
    text = text.strip()
    again = text.removeprefix("repeat ")
    verb, _, rest = again.partition(" ")
    return _act(verb, rest.strip(), text), again != text


def _act(verb: str, rest: str, said: str) -> m.MonitorAction:
    if verb in {"finish", "fail", "restart"}:
        words, options = _grace(rest)
        if verb == "fail":
            return m.Fail(within("the message", words, Name), **options)
        if verb == "restart" and (not words or (words.isascii() and words.isdigit())):
            times = read_number("the number of restarts", words or "1", m.Times)
            return m.Restart(times, **options)
        if verb == "finish" and not words:
            return m.Finish(**options)
    elif verb == "signal" and rest:
        return m.SendSignal(signal_number(rest))
    elif verb == "tag" and rest:
        return m.AddTag(within("the tag", rest, ShortName))
    elif verb == "emit":
        return m.Emit(within("the name", rest, Name))
    elif verb == "none" and not rest:
        return m.NoAction()
    raise BadValue(
        f"{shown(said)} is no action; there are: finish, fail [MESSAGE], restart [N], signal NAME, tag WORD, "
        "emit [NAME], none (an arrow of the pattern needs an action behind it: ... -> finish)"
    )


def _grace(text: str) -> tuple[str, dict[str, Any]]:
    """`grace=TIME` before or after the other words of an ending action."""
    words = text.split(" ")
    for place in (0, -1):
        if words[place].startswith("grace="):
            seconds = _time("the grace", words.pop(place).removeprefix("grace="))
            return " ".join(words), {"grace": seconds}
    return text, {}


def _yes(name: str, text: str) -> bool:
    if text:
        raise BadValue(f"{name} takes no value")
    return True


def _float(name: str, text: str) -> float:
    if not _NUMBER.match(text):
        raise BadValue(f"{name} is {shown(text)}; it must be a number")
    return within(name, float(text), Finite)


def _int(name: str, text: str) -> int:
    body = text.strip()
    if not (body.isascii() and body.isdigit()):
        raise BadValue(f"{name} is {shown(body)}; it must be a whole number")
    return read_number(name, body, Count)


def _count(name: str, text: str) -> int:
    return within(name, _int(name, text), Count)


def _name(name: str, text: str) -> str:
    return within(name, text, Name)


def _checkpoints(name: str, text: str) -> tuple[int, ...]:
    return within(name, tuple([_count(name, part) for part in text.split("/")]), m.Checkpoints)


def _time(name: str, text: str) -> float:
    try:
        seconds = read_seconds(text)
    except ValueError:
        raise BadValue(f"{name} is {shown(text)}; give something like 90s, 10min or 1h") from None
    return within(name, seconds, Duration)


def _period(name: str, text: str) -> float:
    return within(name, _time(name, text), m.Period)


# --- writing -----------------------------------------------------------------------------------------


def _write(item: m.Monitor | m.Metric) -> str:
    if isinstance(item, m.Metric):
        name = "" if item.name == name_in(item.pattern) else f"{item.name}="
        options = [f"total={item.total}"] if item.total else []
        options += [f"at={'/'.join(map(str, item.checkpoints))}"] if item.checkpoints else []
        return f"{name}metric:{_placed(item.where, item.pattern, 'stdout')}{_joined(options)}"
    texts = []
    for place, step in enumerate(item.steps, 1):
        body = _condition_text(step.condition)
        action = _action_text(step.action)
        if step.repeat:
            action = f"repeat {action}"
        usual = "finish" if place == len(item.steps) else "none"
        texts.append(body if action == usual and ARROW not in body else f"{body}{ARROW}{action}")
    name = "" if item.name == _kind(item.steps[0].condition) else f"{item.name}="
    return name + " then ".join(texts)


def _kind(condition: m.Condition) -> str:
    """What a monitor is called that has no name: as its first condition, any or all."""
    if isinstance(condition, m.AllOf):
        return "all"
    if isinstance(condition, m.AnyOf) and not _is_both(condition):
        return "any"
    return _written(condition)[0]


def _is_both(condition: m.AnyOf) -> bool:
    """Whether it is one pattern on both streams."""
    members = condition.members
    return len(members) == len(m.STREAMS) and all(
        isinstance(one, m.Regex) and one == replace(members[0], where=stream)
        for one, stream in zip(members, m.STREAMS, strict=True)
    )


def _condition_text(condition: m.Condition) -> str:
    """A condition as text; one that reads as something else if it has none."""
    if isinstance(condition, m.AnyOf) and not _is_both(condition):
        return " or ".join([_condition_text(member) for member in condition.members])
    if isinstance(condition, m.AllOf):
        return " and ".join([_condition_text(member) for member in condition.members])
    return ":".join(_written(condition))


def _written(condition: m.Condition) -> tuple[str, str]:
    """The kind of a condition that is not made of others, and its text; one that reads as something else if none."""
    match condition:
        case m.AnyOf(members=(m.Regex() as first, *_)):
            return "regex", _regex_text(first, first.pattern, "")
        case m.Regex() if name := _reported_name(condition):
            return "reported", _regex_text(condition, name, "")
        case m.Regex():
            return "regex", _regex_text(condition, condition.pattern, condition.where)
        case m.FileCreated():
            return "created", condition.path
        case m.Executable(command, every, timeout):
            return "exec", f"{command},every={_seconds(every)},timeout={_seconds(timeout)}"
        case m.Plateau():
            return "plateau", _plateau_text(condition)
        case m.After():
            return "after", _seconds(condition.seconds)
        case m.Memory():
            return "memory", _bytes(condition.above)
        case m.Silent(seconds, where):
            said = _seconds(seconds)
            return "silent", _REPORTED + said if where == m.REPORTED else _placed(where, said, "")
    return "custom", ""


def _regex_text(condition: m.Regex, pattern: str, where: str) -> str:
    options = [f"{name}={value!r}" for name in ("below", "above") if (value := getattr(condition, name)) is not None]
    return _placed(where, pattern, "") + _joined(options)


def _plateau_text(condition: m.Plateau) -> str:
    options = [str(condition.window), repr(condition.below), *(["slope"] if condition.slope else [])]
    options += [f"total={condition.total}"] if condition.total else []
    name = _reported_name(condition)
    if name and name == condition.metric:
        return _REPORTED + name + _joined(options)
    options += [f"metric={condition.metric}"] if condition.metric != name_in(condition.pattern) else []
    return _placed(condition.where, condition.pattern, "stdout") + _joined(options)


def _reported_name(condition: m.Regex | m.Plateau) -> str:
    """The name of the reported numbers that it looks at; empty if it has another pattern."""
    if condition.where != m.REPORTED:
        return ""
    name = re.sub(r"\\(.)", r"\1", condition.pattern.removeprefix("^").removesuffix("=(.*)"))
    return name if m.reported_pattern(name) == condition.pattern else ""


def _placed(where: str, text: str, usual: str) -> str:
    if where == usual and not text.startswith(("stdout:", "stderr:", "file:")):
        return text
    return f"{where}:{text}" if where in m.STREAMS else f"file:{where}:{text}"


def _joined(options: Iterable[str]) -> str:
    return "".join([f",{option}" for option in options])


def _action_text(action: m.MonitorAction) -> str:
    if isinstance(action, m.SendSignal):
        return f"signal {next((name for name, number in SIGNALS.items() if number == action.number), action.number)}"
    if isinstance(action, m.AddTag):
        return f"tag {action.name}"
    if isinstance(action, m.Emit):
        return f"emit {action.name}".rstrip()
    if isinstance(action, m.NoAction):
        return "none"
    unusual = action.grace != m.Finish().grace or (isinstance(action, m.Fail) and "grace=" in action.message)
    grace = f" grace={_seconds(action.grace)}" if unusual else ""
    if isinstance(action, m.Fail):
        return f"fail{grace} {action.message}".rstrip()
    return f"restart {action.times}{grace}" if isinstance(action, m.Restart) else f"finish{grace}"


def _seconds(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= size and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds!r}s"


def _bytes(count: int) -> str:
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count and count % size == 0 and count < 1 << 53:
            return f"{count // size}{unit}"
    return str(count)
