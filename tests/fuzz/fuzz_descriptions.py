"""Feed broken workflow descriptions to their readers: python tests/fuzz/fuzz_descriptions.py --inputs 100000 --seed 1.

Valid descriptions of every form are broken by bytes, words, numbers, lines, nesting, names and the files they name,
then read, lowered and written as `bough describe` and `bough run --dry-run` do. Nothing of a mutated text is executed:
Python scripts are made from parts with hostile values in them, and for GNU make stands what it printed. Rule: each is
understood or refused with exit 2 (3: the world's fault); anything else is printed with what caused it.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # when it is called as a program

from bough.cli.main import main as bough
from bough.cli.main import report as report_error
from bough.describe.formats import FLAT, READERS, WRITERS, Source, find_reader, read, write
from bough.describe.make.make_database import ignored_lines, read_output
from bough.describe.plan import PlanTask
from bough.describe.steps import steps
from bough.describe.trellisdag.description_script import is_description
from bough.describe.wfformat import TraceReplay
from bough.errors import BoughError
from tests.fuzz.hostile import (
    NUMBERS,
    TEXTS,
    Outcome,
    Tally,
    attack_by_hand,
    call,
    call_process,
    lay_traps,
    pick,
    scratch,
)

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"  # real files, where the checkout has such a neighbour

FLAT_LIST = """# a comment
sort in.txt > sorted.txt
count: cores=2 memory=4GB timeout=1h retries=2 :: wc -l sorted.txt
plot: after=count,sort2 cores=0.5 :: plot sorted.txt \\
    --format pdf
sort2: after=count :: sort -r 'a b' "c d"
:: echo "a command that holds :: itself"
awk '{print $1}' x | head -n 3
in=data/*.csv,s3://bucket/key out=parts/*.txt :: split data/a.csv s3://bucket/key
"""
JOB_FILE = """# a bag of tasks
job:
  label: blast
  requirements: (os = linux && mem >= 512 || !site == far)
  init: store db/slice.fa slice.fa
  remote: blastall -d $STORAGE/slice.fa -o hits.$TASK
  final: get hits.$TASK results/hits.$TASK
  check: test -s hits.$TASK
task:
  init:
    put q1.fa query.fa
    if (os == linux) then
      store tool.linux bin/tool
    else
      put tool.other bin/tool
    endif
task:
  init: none
  remote:
    echo one
    echo 'two' | cat
"""
GROUPED = """#levels Night Field
group=Night_1 level=Night deps=Night_0 ::
group=Night_0 limit=3 retries=2 timeout=10m pipeline=no match=yes ::
group=Night_1 phase=prologue :: ./stage_in 1
group=Night_1/Field_1_0 level=Field :: ./reduce 1 0
group=Night_0/Field_0_0 level=Field :: ./reduce 0 0
group=Night_1 release=yes attr.est=3.5 priority=-3 :: ./mosaic 1
group=Night_1 affinity=yes env.TMPDIR=/x%20y cwd=sub :: ./mosaic 2
group=Night_1 phase=epilogue final=yes :: ./archive 1
summary: after=Night_1 cores=2 memory=1GB :: ./summary
"""
MQSUB = """mqsub -deps "" -l "crunch" -c "./crunch 'a b'" -attr "cores=2#release=yes"
mqsub -deps "crunch" -l "audit" -c "echo"
mqsub -deps "crunch audit" -l "pack" -c "./pack all" -attr "affinity=yes priority=3"
mqsub -deps "" -l "pack" -c "./pack \\"$x\\"" -attr "est=3.5"
"""
TRELLIS = """#AutoMakefile
#Night
#Field
N = 3
B := $(N) $(N)
C ?= $(B)
#group limit=2
Night_1: Field_1_0 Field_1_1
#attribute release=yes
\t./mosaic $(N) $@ $< $^
#epilogue
\t./archive ${C}
Night_1_prologue: Night_0
\t./stage_in $$HOME
Field_1_0: Night_1_prologue
\t./reduce 1 0
Field_1_1: Night_1_prologue
#attribute cores=2
\t@./reduce 1 1 \\
\t  more
Night_0:
\t./mosaic 0
#loose
summary: Night_1
\t./summary
all: summary
"""
DAG = """# a comment
CONFIG x.config
SUBMIT-DESCRIPTION shared {
  executable = /bin/echo
  arguments = "$(word) 'a b'"
  request_memory = 2GB
}
JOB A a.sub
JOB B shared
JOB C {
  executable = /bin/true
  queue 3
}
JOB D a.sub DIR folder NOOP
SUBDAG EXTERNAL E inner.dag
SPLICE S inner.dag DIR .
FINAL F a.sub
VARS A word="one \\"two\\"" +attr="3"
VARS ALL_NODES n="5" m="$(n)$(n)"
RETRY A 3 UNLESS-EXIT 2
RETRY B 2
PRIORITY B -5
CATEGORY B big
MAXJOBS big 2
SCRIPT DEFER 3 1 DEBUG d.txt ALL PRE A pre.sh $JOB $RETRY $DAG_STATUS $FAILED_COUNT $NODE_COUNT
SCRIPT POST A post.sh $RETURN $SUCCESS $JOBID $EXIT_CODES
PRE_SKIP A 7
ABORT-DAG-ON B 5 RETURN 3
SERVICE V a.sub
PROVISIONER P shared
SPLICE T inner.dag
CONNECT S T
VARS S+X PREPEND word="$(JOB)" My.b="\\"x\\""
VARS B APPEND m='1' k=2
MAXJOBS S+c 3
MAXJOBS +d 2
CATEGORY S+X +d
ENV SET COLOUR=red;SIZE=3
JOB G "a.sub"
JOB H @=END
  executable = /bin/true
@END
DONE D
PARENT A CHILD B C
PARENT B C CHILD S
INCLUDE more.dag
"""
SUBMIT = """universe = vanilla
executable = prog.sh
arguments = $(word) $(n:3) $(m) $(DOLLAR)x $ENV(HOME) $$([strcat(JobPrio, 1 + 2)]) $$(Arch:x) $Fn(executable)
arguments = $(arguments) $RANDOM_INTEGER(1,9) $RANDOM_CHOICE(a,b) $INT(request_cpus,%03d)
arguments = $(arguments) $SUBSTR(word,1,2) $CHOICE(0,a,b)
if defined word
  arguments = $(arguments) $EVAL(1 < 2 ? 3 : 4)
elif version >= 8.1
  +Version = 8
elif $(n:1) > 3
  +Kind = "k"
else
  include ifexist : more.sub
endif
environment = "A=1 B='x y'"
input = in.$(process)
output = out.$(n)
error = out.$(n)
initialdir = sub
request_cpus = 2
request_memory = 512
priority = 3
max_retries = 2
queue $(q:1)
"""
QUEUES = (
    "queue $(q:1)",
    "queue 2 x in (a, b c)",
    "queue x, y from (\n1 2\n3 4\n)",
    "queue x matching files *.sub",
    "queue x from [0:1] list.txt",
    "queue 1 + 2",
    "",
)
RESCUE = "DONE A\nRETRY B 1\nDONE S+X\n"
INNER = (
    "JOB X a.sub\nJOB Y shared2\nSUBMIT-DESCRIPTION shared2 {\nexecutable = x\n}\nPARENT X CHILD Y\n"
    "PIN_IN X 1\nPIN_OUT Y 1\n"
)
MORE = "JOB M a.sub\nPARENT A CHILD M\n"
MAKE_OUTPUT = """Makefile:3: target 'a.o' does not exist
cc -c a.c
Makefile:7: update target 'all' due to: a.o
\tcc -o all a.o \\
   b.o
rm a.o
# GNU Make 4.3

# Make data base, printed on Fri
# Variables
# makefile (from 'Makefile', line 1)
CC = cc
define both
@echo one
-echo two
endef
# Files

all: a.o | dir
#  recipe to execute (from 'Makefile', line 7):
\t-$(CC) -o $@ $<
\t$(both)

a.o: a.c
#  Phony target
#  File is an intermediate prerequisite.
#  Also makes: a.d
#  recipe to execute (from 'Makefile', line 3):
\t@$(CC) -c $<
\t$(call both,$(x))

# files hash-table stats:
"""
SCRIPT = """from bough.describe import arguments, level
@level({groups}, {option}={value})
def Night(g, n, *more):
    g.after({other}, Night[{other}])
    g.prologue({command}, {key}={text})
    g.task({command}, cores={value}, memory={text}, timeout={text}, retries={value}, priority={value})
    g.attributes(est={value}, name={text})
@level(lambda *n: [({other}, f) for f in range(3)], within=Night)
def Field(g, *v):
    g.epilogue({command}, after={text}, name={text}, release={value})
"""
THESIS = """Levels = [["Night", {value}], ["Field", 2]]
def generateGroup(level, sup): return {groups} if level == "Night" else [[{other}, f] for f in range(2)]
def getDependent(level, g, sup): return [{other}, [{value}, 1]]
def getJobsExecutables(level, g): return [{command}]
def getJobsParameters(level, g): return [{text}]
def getJobsAttributes(level, g): return [[{text}, "cores=" + str({value})]]
"""
TRACE: dict[str, Any] = {
    "name": "t",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "a", "id": "a", "parents": [], "children": ["b"], "inputFiles": ["i"], "outputFiles": ["x/y"]},
                {"name": "b", "id": "b", "parents": ["a"], "children": [], "inputFiles": ["x/y"], "outputFiles": ["o"]},
                {"name": "c", "id": "c", "parents": ["a", "b"]},
            ],
            "files": [{"id": "i", "sizeInBytes": 10}, {"id": "x/y", "sizeInBytes": 1e3}, {"id": "o"}],
        },
        "execution": {
            "makespanInSeconds": 3,
            "tasks": [
                {
                    "id": "a",
                    "runtimeInSeconds": 1.5,
                    "coreCount": 2,
                    "command": {"program": "p", "arguments": ["-x", 1]},
                },
                {"id": "b", "runtimeInSeconds": 2},
            ],
        },
    },
}
PLAN: dict[str, Any] = {
    "bough_plan": 1,
    "levels": ["Night"],
    "root": {
        "name": "",
        "pipeline": False,
        "groups": [
            {"name": "A", "level": "Night", "tasks": [{"command": "a", "name": "one", "cores": 2.5}], "limit": 3},
            {"name": "B", "after": ["A", "one"], "prologue": [{"command": "b", "env": {"X": "1"}, "cwd": "d"}]},
        ],
        "tasks": [{"command": "c", "after": ["B"], "attributes": {"k": "v"}, "priority": -3, "timeout": 60}],
    },
}
SAFE = {  # forms that execute nothing, and are known by the names of their files
    "flat": ("list.txt", FLAT_LIST),
    "groups": ("groups.txt", GROUPED),
    "mqsub": ("calls.txt", MQSUB),
    "ourgrid": ("job.jdf", JOB_FILE),
    "dagman": ("w.dag", DAG),
    "wfformat": ("trace.json", json.dumps(TRACE, indent=1)),
    "json": ("plan.json", json.dumps(PLAN, indent=1)),
}
FORMS = (*SAFE, "trellis", "script", "script text", "make output")
_BY_FORM = {reader.form: reader for reader in READERS} | {"flat": FLAT}
_OF_JOB = re.compile(r"(?im)^(\s*(?:JOB|NODE|FINAL)\s+\S+\s+)(?!\{)\S+")  # the file that describes a job
_WORD = re.compile(r"[\w.+@%~/-]+")
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_HOSTILE_JSON: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        1e400,
        -1e400,
        float("nan"),
        1 << 63,
        -(1 << 63) - 1,
        10**400,
        "",
        "x",
        "a/b",
        "\0",
    ),
    *(
        "\ud800",
        "x" * 70_000,
        [],
        {},
        [[]],
        [None],
        [1],
        ["a", "a"],
        {"": ""},
        {"a": {"a": 1}},
        "a",
        "b",
        "stage-in",
        "A",
        ".",
    ),
)


class Descriptions:
    """Makes broken descriptions in the folder we are in, and has them read."""

    def __init__(self, dice: random.Random, folder: Path) -> None:
        self.dice = dice
        self.folder = folder
        self.traps = lay_traps(folder)
        self.beside = {
            "dagman": [
                _OF_JOB.sub(r"\1a.sub", path.read_text(errors="replace"))
                for path in sorted((BESIDE / "dagman").glob("*.dag"))
            ],
            "wfformat": [
                path.read_text()
                for path in sorted((BESIDE / "wfinstances").glob("*.json"))
                if path.stat().st_size < 60_000
            ],
            "submit": [
                path.read_text(errors="replace")
                for kind in ("*.cmd", "*.sub")
                for path in sorted((BESIDE / "dagman").glob(kind))
            ],
        }

    # --- breaking ---------------------------------------------------------------------------------------

    def text(self, form: str) -> str:
        """A valid description to begin with."""
        own = TRELLIS if form == "trellis" else MAKE_OUTPUT if form == "make output" else SAFE[form][1]
        real = self.beside.get(form, [])
        return self.dice.choice(real) if real and self.dice.random() < 0.4 else own

    def broken(self, text: str) -> bytes:
        """A text broken in up to four ways, as bytes."""
        dice = self.dice
        for _ in range(dice.choice((0, 1, 1, 1, 1, 2, 2, 4))):
            text = dice.choice(_WAYS)(self, text)
            if len(text) > 3_000_000:
                text = text[:3_000_000]
        data = text.encode("utf-8", "surrogatepass" if dice.random() < 0.3 else "replace")
        if dice.random() < 0.15 and data:
            at = dice.randrange(len(data))
            data = data[:at] + dice.choice((b"\xff", b"\0", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r")) + data[at:]
        return data

    def _flip(self, text: str) -> str:
        at = self.dice.randrange(len(text) + 1)
        return (
            text[:at]
            + chr(self.dice.choice((0, 9, 10, 13, 32, 34, 35, 36, 39, 40, 58, 61, 92, 123, 125, 233)))
            + text[at + 1 :]
        )

    def _cut(self, text: str) -> str:
        return text[: self.dice.randrange(len(text) + 1)]

    def _drop(self, text: str) -> str:
        at = self.dice.randrange(len(text) + 1)
        return text[:at] + text[at + self.dice.randrange(1, 40) :]

    def _word(self, text: str) -> str:
        """Another word of the text, or a hostile one, in the place of one."""
        found = list(_WORD.finditer(text))
        if not found:
            return text
        one = self.dice.choice(found)
        other = self.dice.choice(found)[0] if self.dice.random() < 0.6 else pick(self.dice, TEXTS, tuple(self.traps))
        return text[: one.start()] + other + text[one.end() :]

    def _number(self, text: str) -> str:
        found = list(_DIGITS.finditer(text))
        if not found:
            return text
        one = self.dice.choice(found)
        return text[: one.start()] + self.dice.choice(NUMBERS) + text[one.end() :]

    def _lines(self, text: str) -> str:
        lines = text.split("\n")
        dice = self.dice
        at = dice.randrange(len(lines))
        match dice.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, dice.choice(lines))
            case 2:
                dice.shuffle(lines)
            case 3:
                lines[at : at + 1] = [lines[at]] * dice.choice((2, 3, 1000))
            case 4:
                lines[at] = lines[at] * dice.choice((2, 50, 2000))
            case _:
                lines[at] += pick(dice, TEXTS, NUMBERS)
        return "\n".join(lines)

    def _repeat(self, text: str) -> str:
        at = self.dice.randrange(len(text) + 1)
        return text[:at] + text[at : at + self.dice.randrange(1, 20)] * self.dice.choice((3, 100, 10_000)) + text[at:]

    def _nest(self, text: str) -> str:
        at = self.dice.randrange(len(text) + 1)
        opened, closed = self.dice.choice(
            (("[", "]"), ('{"groups":[', "]}"), ("(", ")"), ("$(", ")"), ("{", "}"), ("a/", ""))
        )
        depth = self.dice.choice((2, 30, 300, 5000))
        return text[:at] + opened * depth + closed * self.dice.choice((depth, 0)) + text[at:]

    def _splice(self, text: str) -> str:
        other = self.text(self.dice.choice(tuple(SAFE)))
        return text[: self.dice.randrange(len(text) + 1)] + other[self.dice.randrange(len(other) + 1) :]

    def _double(self, text: str) -> str:
        """Variables of variables, which stand for more than anybody can hold."""
        many = range(self.dice.choice((5, 30)))
        wide = self.dice.choice((2, 10))
        made = "".join(f"v{n} = {f'$(v{n + 1})' * wide}\n" for n in many)
        return (
            made + text.replace("$(", "$(v0)$(", 1) if self.dice.random() < 0.5 else text.replace("\n", f"\n{made}", 1)
        )

    # --- one input --------------------------------------------------------------------------------------

    def write(self, form: str) -> tuple[str, bytes]:
        """Put one broken description, and those it names, into the folder; its name and its bytes."""
        dice = self.dice
        name = SAFE[form][0]
        if form in {"wfformat", "json"} and dice.random() < 0.6:
            data = self._json(json.loads(self.text(form)))
        else:
            data = self.broken(self.text(form))
        if form == "dagman":
            submit = dice.choice([SUBMIT, *self.beside["submit"]])
            submit = submit.replace("queue $(q:1)", dice.choice(QUEUES))
            Path("a.sub").write_bytes(self.broken(submit) if dice.random() < 0.3 else submit.encode())
            Path("list.txt").write_text("1 2\n3, 4\n")
            rescue = Path(f"{name}.rescue001")
            if dice.random() < 0.1:
                rescue.write_bytes(self.broken(RESCUE))
            else:
                rescue.unlink(missing_ok=True)
            Path("inner.dag").write_bytes(self.broken(INNER) if dice.random() < 0.3 else self._inner())
            Path("more.dag").write_bytes(self.broken(MORE) if dice.random() < 0.3 else MORE.encode())
        Path(name).write_bytes(data)
        return name, data

    def _inner(self) -> bytes:
        """A file that contains others, or itself, many times over."""
        dice = self.dice
        if dice.random() < 0.7:
            return INNER.encode()
        kind = dice.choice(("SPLICE {} {}", "SUBDAG EXTERNAL {} {}", "INCLUDE {1}"))
        for number in range(6):
            lines = [kind.format(f"N{at}", f"deep{number + 1}.dag") for at in range(dice.choice((1, 2, 12)))]
            Path(f"deep{number}.dag").write_text("\n".join(lines))
        Path("deep6.dag").write_text(dice.choice(("JOB Z a.sub\n", "SPLICE W w.dag\n", "INCLUDE deep0.dag\n")))
        return b"SPLICE Q deep0.dag\n"

    def _json(self, value: Any) -> bytes:
        """A value with hostile parts in it, as JSON."""
        dice = self.dice
        for _ in range(dice.choice((1, 1, 2, 4))):
            holder, key = _somewhere(value, dice)
            if holder is None:
                value = dice.choice(_HOSTILE_JSON)
                continue
            match dice.randrange(5):
                case 0:
                    del holder[key]
                case 1:
                    small = len(repr(holder[key])) < 200
                    holder[key] = [holder[key]] * dice.choice((1, 2, 500 if small else 3))
                case 2 if isinstance(holder, list):
                    holder.append(holder[key])
                case 3 if isinstance(holder, dict):
                    holder[dice.choice(("", "x", "name", "after", "cores", "groups", "limit"))] = holder[key]
                case _:
                    holder[key] = dice.choice(_HOSTILE_JSON)
        try:
            return json.dumps(value).encode("utf-8", "surrogatepass")
        except (RecursionError, ValueError):
            return b"{}"

    def script(self) -> bytes:
        """A description script with hostile values in it: the script is ours, only its literals are not."""
        dice = self.dice

        def value() -> str:
            said = dice.choice(
                ("0", "3", "-1", "2**63", "10**400", "1.5", "float('inf')", "float('nan')", "None", "True", "[]", "'x'")
            )
            return said if dice.random() < 0.7 else repr(dice.choice(TEXTS))

        return (
            dice.choice((SCRIPT, THESIS))
            .format(
                groups=dice.choice(
                    ("range(3)", "[(1, 2), 3]", "[[1]]", "[]", "['a/b']", "[None]", "5", "[[], []]", "['.']", "[1, 1]")
                ),
                option=dice.choice(
                    ("limit", "retries", "timeout", "match", "barrier", "pipeline", "nothing", "name", "where")
                ),
                key=dice.choice(("cores", "memory", "cwd", "after", "name", "release", "own", "env")),
                other=value(),
                command=repr(dice.choice(("./x", *TEXTS))),
                text=repr(pick(dice, TEXTS, NUMBERS)),
                value=value(),
            )
            .encode("utf-8", "surrogatepass")
        )

    def examine(self, form: str) -> tuple[Outcome, object]:
        """Read one broken description in this process; what came of it, and what it was."""
        dice = self.dice
        if form == "script text":
            data = self.broken(dice.choice((SCRIPT, THESIS)))
            return call(lambda: _said(lambda: is_description(data))), data
        if form == "make output":
            text = self.broken(MAKE_OUTPUT).decode(errors="surrogateescape")
            return call(lambda: _said(lambda: _told(text))), text
        if form in SAFE and dice.random() < 0.5:
            name, data = self.write(form)
            words = dice.choice((["describe", name], ["run", "--dry-run", name], ["describe", "--json", name]))
            if words[0] == "describe" and dice.random() < 0.7:
                words += ["--to", dice.choice((*WRITERS, "nothing"))]
            if words[0] == "run" and form == "wfformat" and dice.random() < 0.5:
                words[1:1] = ["--emulate=cpu", "--scale", dice.choice(("0.5", "1e300")), "--files", "2"]
            return call(lambda: bough(words)), (words, data)
        if form in SAFE:
            name, data = self.write(form)
        else:
            name, data = ("x.make", self.broken(TRELLIS)) if form == "trellis" else ("s.py", self.script())
        target = dice.choice(tuple(WRITERS))
        emulation = TraceReplay("sleep", 2.0, 1.5, "f") if form == "wfformat" and dice.random() < 0.5 else None
        source = Source(name, data.decode("utf-8", "surrogateescape"), emulation=emulation)
        return call(lambda: _said(lambda: _translate(source, form, target))), (form, target, data)


_WAYS: tuple[Callable[[Descriptions, str], str], ...] = (
    Descriptions._flip,
    Descriptions._cut,
    Descriptions._drop,
    Descriptions._word,
    Descriptions._word,
    Descriptions._word,
    Descriptions._number,
    Descriptions._number,
    Descriptions._lines,
    Descriptions._lines,
    Descriptions._repeat,
    Descriptions._nest,
    Descriptions._splice,
    Descriptions._double,
)


def _somewhere(value: Any, dice: random.Random) -> tuple[Any, Any]:
    """A random place inside a JSON value: what holds it, and its key there."""
    holder, key = None, None
    while isinstance(value, dict | list) and value and (holder is None or dice.random() < 0.8):
        holder = value
        key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
        value = value[key]
    return holder, key


def _said(work: Callable[[], object]) -> int:
    """As `main` would: an exit code of what raises errors of ours."""
    try:
        work()
    except BoughError as error:
        return report_error(error)
    return 0


def _translate(source: Source, form: str, target: str) -> None:
    find_reader(source)  # which looks at the text alone
    plan = read(source, _BY_FORM[form])
    for step in steps(plan):
        if step.task is not None:
            _check_storable(step.task)
    write(plan, target)


def _check_storable(task: PlanTask) -> None:
    """What was understood must fit a store and a process: 63 bits, finite, no NUL, valid Unicode."""
    for amount in (task.cores, task.memory, task.timeout, task.retries, task.priority):
        assert -(1 << 62) <= amount <= 1 << 62, task
    texts = (task.command, task.name, task.cwd, *task.env, *task.env.values(), *task.attributes.values())
    assert not any("\0" in text for text in texts), task
    msgspec.msgpack.encode(task)


def _told(text: str) -> None:
    told = read_output(text)
    for made in told.made:
        rule = told.rule(made.target)
        ignored_lines(made, rule.recipe if rule is not None else [], told.variables)


def attack(inputs: int, seed: int, report: Callable[[str], None]) -> tuple[Counter[str], int]:
    """Feed this many broken descriptions; what became of them, and how many broke something."""
    tally = Tally(report)
    with scratch("fuzz-descriptions-") as folder:
        made = Descriptions(random.Random(seed), folder)
        for number in range(inputs):
            form = FORMS[number % len(FORMS)]
            outcome, shown = made.examine(form)
            tally.add(form, outcome, shown)
    return tally.counts, tally.broken


def attack_processes(inputs: int, seed: int, report: Callable[[str], None]) -> tuple[Counter[str], int]:
    """The same with `bough` as a process for each."""
    tally = Tally(report)
    with scratch("fuzz-descriptions-") as folder:
        made = Descriptions(random.Random(seed), folder)
        for number in range(inputs):
            form = tuple(SAFE)[number % len(SAFE)]
            name, data = made.write(form)
            stdin = b""
            words = made.dice.choice(
                (["describe", name], ["run", "--dry-run", name], ["describe", "--to", "flat", name])
            )
            if form != "dagman" and made.dice.random() < 0.2:
                words, stdin = [*words[:-1], "-"], data
            tally.add(form, call_process(words, stdin), (words, data))
    return tally.counts, tally.broken


if __name__ == "__main__":
    sys.exit(attack_by_hand(__doc__, "broken descriptions", attack, attack_processes))
