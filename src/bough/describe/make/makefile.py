"""Ordinary GNU Makefiles as plans: make says what is out of date and expands it, Bough runs it anywhere.

One task for each target whose recipe make would run, named by the target, waiting for those of its prerequisites that
are made too. Lines of a recipe run one after the other, each in a shell of its own, in the Makefile's folder. The rules
are make's: files appear as recipes write them, and a task whose prerequisites turned out unchanged does nothing, as
make would. Rule: results are never reused from earlier runs; whether a target is made is decided by its file alone.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Sequence

from bough.describe.make.ask_make import Asked, Surroundings, ask
from bough.describe.make.make_database import MakeRule, MakeTarget, Told, ignored_lines
from bough.describe.plan import Plan, PlanGroup, PlanTask, Where, without_gc
from bough.describe.source_files import read_file
from bough.errors import UserError
from bough.model.commands.shell_text import needs_shell

_SETTING = re.compile(r"[^\s:#=]+\s*(?:[:+?!]?=|::=)")
_FLAGS = {"-B": "-B", "--always-make": "-B", "-k": "", "--keep-going": "", "-s": "", "--silent": "", "-e": "-e"}
_OWN = re.compile(
    r"^[^\s#][^#=\n]*:\s*(?:override\s+)?(?:(\.?SHELL(?:FLAGS)?)\s*[:?+!]*=|export\s+([\w.]+))", re.MULTILINE
)
_MANY = 64  # dependencies through a target without a recipe: more than this, and a group stands between
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_REMOVAL = "remove intermediate files"


def read(path: str, words: Sequence[str] = ()) -> Plan:
    """What `make -f PATH WORDS` would do; words are goals, VAR=value, and -B."""
    goals = [word for word in words if not word.startswith("-") and not _SETTING.match(word)]
    settings = [word for word in words if not word.startswith("-") and _SETTING.match(word)]
    flags = [_flag(word) for word in words if word.startswith("-")]
    folder, file = os.path.split(os.path.abspath(path))
    with without_gc():
        given = [flag for flag in flags if flag]
        asked = ask(folder, file, goals, settings, flags=given, own=_own_variables(path))
        return _Reader(asked, path, folder, always="-B" in flags).plan()


def _own_variables(path: str) -> frozenset[str]:
    """Variables which the Makefile gives to single targets and which their recipes see: shells and exported ones."""
    try:
        text = read_file(path).decode(errors="replace")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    return frozenset(name for match in _OWN.finditer(text) for name in match.groups() if name)


def _flag(word: str) -> str:
    if word not in _FLAGS:
        raise UserError(f"{word}: behind a Makefile stand goals, VAR=value and -B; options of Bough stand before it")
    return _FLAGS[word]


class _Reader:
    def __init__(self, asked: Asked, path: str, folder: str, *, always: bool) -> None:
        self.told: Told = asked.told
        self.around: Surroundings = asked.surroundings
        self.special = asked.special
        self.path = path
        self.folder = folder
        self.always = always
        self.made: dict[str, list[MakeTarget]] = {}  # by target; double-colon rules have several
        self.maker: dict[str, str] = {}  # by file: the target whose recipe makes it
        self.reached: dict[str, list[str]] = {}  # by target that is not made: the ones made behind it
        self.groups: list[PlanGroup] = []
        self.files: dict[str, str] = {}  # by their names in make's words
        ignored = self.told.listed(".IGNORE")
        self.ignores_all = ignored == ()
        self.ignored = frozenset(ignored or ())
        self.one_shell = self.told.listed(".ONESHELL") is not None
        self.deletes = self.told.listed(".DELETE_ON_ERROR") is not None
        for made in self.told.made:
            if any(line.strip() for line in made.lines):
                self.made.setdefault(made.target, []).append(made)
        for target in self.made:
            self.maker[target] = target
        for target in self.made:
            for rule in self.told.rules.get(target, ()):
                for other in rule.also:
                    self.maker.setdefault(other, target)

    def plan(self) -> Plan:
        self._inherit()
        tasks = [self._task(target) for target in self.made]
        if self.told.listed(".NOTPARALLEL") == ():
            for before, task in itertools.pairwise(tasks):
                task.after.append(before.name)
        removal = self._removal()
        root = PlanGroup("", groups=self.groups, tasks=[*tasks, *removal], pipeline=False, where=Where(self.path))
        return Plan(root=root, source=self.path)

    def _task(self, target: str) -> PlanTask:
        runs = self.made[target]
        rules = self.told.rules.get(target, [])
        first = runs[0]
        file = self._file(first.file)
        return PlanTask(
            self._command(target, runs, rules),
            name=target,
            after=self._after(target, rules),
            cwd=self.folder,
            env=self._surroundings(target).environment,
            memo=False,
            where=Where(file, first.line),
        )

    def _file(self, name: str) -> str:
        """A file in which a recipe stands, as messages name it."""
        found = self.files.get(name)
        if found is None:
            found = os.path.normpath(os.path.join(os.path.dirname(self.path), name)) if name else self.path
            self.files[name] = found
        return found

    # --- what it waits for ------------------------------------------------------------------------------

    def _after(self, target: str, rules: Sequence[MakeRule]) -> list[str]:
        found: dict[str, None] = {}
        for name in self._names(rules):
            maker = self.maker.get(name)
            if maker is None:
                found.update(dict.fromkeys(self._behind(name)))
            elif maker != target:
                found[maker] = None
        found.pop(target, None)
        return list(found)

    def _names(self, rules: Sequence[MakeRule]) -> Iterator[str]:
        for rule in rules:
            yield from rule.prerequisites
            yield from rule.order_only

    def _behind(self, name: str) -> list[str]:
        """What is made behind a target that is not made itself: it has no recipe, or is up to date."""
        stack = [(name, self._unseen(name))] if name not in self.reached else []
        while stack:
            here, left = stack[-1]
            following = next((one for one in left if one not in self.reached), None)
            if following is not None:
                stack.append((following, self._unseen(following)))
                continue
            found: dict[str, None] = {}
            for one in self._names(self.told.rules.get(here, ())):
                maker = self.maker.get(one)
                found.update({maker: None} if maker is not None else dict.fromkeys(self.reached.get(one, ())))
            self.reached[here] = self._joined(here, list(found))
            stack.pop()
        return self.reached[name]

    def _unseen(self, name: str) -> Iterator[str]:
        return (one for one in self._names(self.told.rules.get(name, ())) if one not in self.maker)

    def _joined(self, name: str, behind: list[str]) -> list[str]:
        if len(behind) <= _MANY:
            return behind
        group = PlanGroup(f"join-{len(self.groups) + 1}", after=behind, attributes={"target": name})
        self.groups.append(group)
        return [group.name]

    # --- how it is made ---------------------------------------------------------------------------------

    def _command(self, target: str, runs: Sequence[MakeTarget], rules: Sequence[MakeRule]) -> str:
        parts: list[tuple[str, bool, MakeTarget]] = []
        for made in runs:
            rule = self._rule(made, rules)
            recipe = rule.recipe if rule is not None else []
            everything = self.ignores_all or target in self.ignored
            if self.one_shell:
                text = "\n".join(made.lines)
                parts.append((text, everything or any(ignored_lines(made, recipe[:1], self.told.variables)), made))
                continue
            ignored = ignored_lines(made, recipe, self.told.variables)
            parts += [
                (line, everything or flag, made) for line, flag in zip(made.lines, ignored, strict=True) if line.strip()
            ]
        around = self._surroundings(target)
        shell = _call(around.shell, around.flags)
        check = self._check(target, runs)
        rule = rules[0] if rules else None
        deletes = self.deletes and not (rule is not None and rule.phony)
        if len(parts) == 1 and not parts[0][1] and not check and not deletes:
            return _one(shell, parts[0][0])
        lines = [*check, *_keeping(target)] if deletes else check
        end = "|| failed $?" if deletes else "|| exit $?"
        for text, ignored_one, made in parts:
            note = (
                f'|| echo "[{_inside(made.file or self.path)}:{made.line}: {_inside(target)}] Error $? (ignored)" >&2'
            )
            lines.append(f"{_one(shell, text)} {note if ignored_one else end}")
        return ("\n" if any("\n" in line for line in lines) else "; ").join(lines)

    def _rule(self, made: MakeTarget, rules: Sequence[MakeRule]) -> MakeRule | None:
        """The rule whose recipe this is: the one at the same place."""
        same = [rule for rule in rules if (rule.file, rule.line) == (made.file, made.line)]
        return same[0] if same else rules[0] if rules else None

    def _surroundings(self, target: str) -> Surroundings:
        return self.special.get(target, self.around)

    def _inherit(self) -> None:
        """What a target has for itself holds for what it needs, unless that has something for itself."""
        for owner in list(self.special):
            stack = [owner]
            while stack:
                rules = self.told.rules.get(stack.pop(), ())
                for name in self._names(rules):
                    if name in self.told.rules and name not in self.special:
                        self.special[name] = self.special[owner]
                        stack.append(name)

    def _check(self, target: str, runs: Sequence[MakeTarget]) -> list[str]:
        """Lines that end the task if its prerequisites, once they were made, turn out to be no newer than its file.

        Make looks again after it ran a recipe, so that a generated header that did not change rebuilds nothing.
        """
        if self.always or len(runs) > 1 or not runs[0].newer:
            return []
        was = self._time(target)
        if was is None or self._is_phony(target):
            return []
        for name in runs[0].newer:
            then = self._time(name)
            if name not in self.maker or self._is_phony(name) or then is None or then > was:
                return []
        goal = shlex.quote(target)
        tests = [f"[ {one} -nt {goal} ] || [ ! -e {one} ]" for one in map(shlex.quote, runs[0].newer)]
        return [f"[ ! -e {goal} ] || {' || '.join(tests)} || exit 0"]

    def _is_phony(self, target: str) -> bool:
        rule = self.told.rule(target)
        return rule is not None and rule.phony

    def _time(self, name: str) -> int | None:
        try:
            return os.stat(os.path.join(self.folder, name)).st_mtime_ns
        except OSError:
            return None

    def _removal(self) -> list[PlanTask]:
        """Intermediate files, which were not asked for, are removed at the end, as make does."""
        names = []
        for target in self.made:
            rule = self.told.rule(target)
            if rule is not None and rule.intermediate and self._time(target) is None:
                names.append(target)
        if not names:
            return []
        wanted = set(names)
        users = [target for target in self.made if wanted.intersection(self._names(self.told.rules.get(target, ())))]
        command = shlex.join(["rm", "-f", *names])
        after = [*names, *users]
        return [PlanTask(command, name=_REMOVAL, after=after, cwd=self.folder, memo=False, where=Where(self.path))]


@functools.lru_cache(16)
def _call(shell: str, flags: tuple[str, ...]) -> str:
    return shlex.join([*shlex.split(shell), *flags])


def _one(shell: str, line: str) -> str:
    """A line of a recipe for a shell of its own; plain words need none."""
    if "\n" in line and "'" not in line:
        line = line.replace("\\\n", "")  # as the shell would
    simple = not needs_shell(line) and os.path.basename(shell.split(maxsplit=1)[0]) in _SHELLS
    return line.strip() if simple else f"{shell} {shlex.quote(line)}"


def _inside(text: str) -> str:
    """A text as it stands between double quotes in a shell."""
    return re.sub(r'([$`"\\])', r"\\\1", text)


def _keeping(target: str) -> list[str]:
    """What .DELETE_ON_ERROR asks for: a file that a failed recipe has changed is removed."""
    goal = shlex.quote(target)
    look = f"stat -c %y {goal} 2>/dev/null"
    return [
        f"was=$({look} || :)",
        f'failed() {{ [ "$({look} || :)" = "$was" ] || rm -f {goal}; exit "$1"; }}',
    ]
