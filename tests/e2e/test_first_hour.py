"""The first hour with Bough as a person spends it: what is typed, and above all what is printed.

Install, tour, a failure, looking, mending, running again, Ctrl-C, another directory, a notebook, a service, mistakes.
Rule: the person sees text, so the tests look at text; they look into no store and import nothing of Bough.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_install import FreshInstall

ROOT = Path(__file__).parents[2]
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Said:
    """What one command printed, and its exit code."""

    def __init__(self, words: str, code: int, out: str, err: str = "") -> None:
        self.words = words
        self.code = code
        self.out = out
        self.err = err

    def __str__(self) -> str:
        return f"$ {self.words}\n{self.out}{self.err}(exit {self.code})"

    @property
    def text(self) -> str:
        return self.out + self.err

    def shows(self, *parts: str) -> Said:
        """Every part was printed, in this order; a part is a regular expression."""
        at = 0
        for part in parts:
            found = re.compile(part, re.MULTILINE).search(self.text, at)
            assert found, f"{part!r} was not printed (after what comes before it):\n{self}"
            at = found.end()
        return self

    def never_shows(self, *parts: str) -> Said:
        for part in parts:
            assert not re.search(part, self.text), f"{part!r} was printed:\n{self}"
        return self

    def exits(self, code: int) -> Said:
        assert self.code == code, str(self)
        return self


class Person:
    """Somebody at a keyboard, in a folder."""

    def __init__(self, folder: Path, bin_folder: Path | None = None, variables: dict[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("BOUGH_")},
            "PATH": f"{bin_folder or Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "BOUGH_HOME": str(folder / "home"),
            "TERM": "xterm-256color",
            "COLUMNS": "120",
            **(variables or {}),
        }

    def writes(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def types(self, words: str) -> Said:
        """Run a command line; what it prints goes to pipes, as `2>&1 | less` would have it."""
        done = subprocess.run(
            ["bash", "-c", words], cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        return Said(words, done.returncode, done.stdout, done.stderr)

    def types_at_a_terminal(self, words: str, *, ctrl_c_after: str = "") -> Said:
        """The same at a real terminal; Ctrl-C is pressed once the screen has shown a text."""
        pid, terminal = pty.fork()
        if not pid:
            os.chdir(self.folder)
            os.execvpe("bash", ["bash", "-c", words], self._environment)
        shown, deadline, pressed = b"", time.monotonic() + 120, False
        with contextlib.suppress(OSError):  # Linux says EIO when the last process has closed the terminal
            while time.monotonic() < deadline:
                if select.select([terminal], [], [], 0.1)[0]:
                    data = os.read(terminal, 65536)
                    if not data:
                        break
                    shown += data
                if ctrl_c_after and not pressed and re.search(ctrl_c_after.encode(), shown):
                    pressed = True
                    os.write(terminal, b"\x03")
            else:
                os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert pressed or not ctrl_c_after, f"{ctrl_c_after!r} was never on the screen:\n{shown.decode()}"
        return Said(words, code, ANSI.sub("", shown.decode(errors="replace")).replace("\r", ""))


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """Somebody in an empty folder, whose server is stopped at the end."""
    one = Person(tmp_path / "project")
    yield one
    for folder in tmp_path.iterdir():
        if (folder / "home" / "server" / "server.json").exists():
            Person(folder).types("bough server stop --executors")


SEARCH = """\
import bough


def energy(angle, step):
    print("looking at", angle)
    if angle == 30:
        raise ValueError(f"no minimum at {angle}")
    return angle * step


def lowest(values):
    return min(values)


with bough.Session() as s:
    energies = s.map(energy, [10, 20, 30, 40], [1, 2, 3, 4])
    best = s.submit(lowest, energies)
    s.command("sort {src:r} > {dst:w}", src="names.txt", dst="sorted/names.txt", name="sort")
    s.command("grep nothing-like-this names.txt", name="look")
    print("all submitted")
"""


def test_install_and_the_first_script(tmp_path: Path) -> None:
    installed = FreshInstall(tmp_path / "env")
    person = Person(tmp_path / "project", installed.bin, installed.variables)
    person.types("pip install bough").shows("^Successfully installed bough-").exits(0)
    where = person.types("python -c 'import bough; print(bough.__file__)'").exits(0)
    where.shows(re.escape(str(installed.packages)))
    person.types("bough --version").shows(r"^bough \d+\.\d+").exits(0)
    person.types("bough").shows("usage: bough COMMAND", "everyday:", "run .*run", "examples:")
    person.writes(
        "tour.py",
        "import bough\n\ndef square(x):\n    return x * x\n\n"
        "with bough.Session() as s:\n    many = s.map(square, range(1000))\n"
        "    print(s.submit(square, s.submit(square, 3)).result(), sum(many))\n",
    )
    person.types("python tour.py").shows("^81 332833500$").never_shows("Traceback", "Warning").exits(0)
    person.types("bough status").shows("1002 done").exits(0)


def test_a_failure_is_told_looked_at_mended_and_run_again(person: Person) -> None:
    person.writes("search.py", SEARCH)
    person.writes("names.txt", "b\na\n")

    told = person.types("python search.py").exits(1)
    told.shows("^all submitted$")
    told.shows(
        "2 of 7 tasks failed, 1 skipped because of that",
        r"task 1\.2 \(energy\): ValueError: no minimum at 30",
        "parameters: angle=30, step=3",
        r"code: .*search\.py:7, in energy: raise ValueError",
        r"task 4 \(look\): exit code 1",
        "command: grep nothing-like-this names.txt",
        r"bough explain 1\.2",
        r"bough log 1\.2",
        "run the script again",
        r"bough\.errors\.WorkflowFailed: 2 of 7 tasks failed",
    )

    person.types("bough status").shows("4 done, 2 failed, 1 skipped").exits(0)
    person.types("bough status --failed").shows(r"1\.2 +failed +energy .*no minimum at 30", "4 +failed +look")
    person.types("bough explain 1.2").shows("no minimum at 30", "angle=30, step=3", "in energy")
    person.types("bough explain lowest").shows(r"1\.2 \(energy\)", "no minimum at 30").never_shows(r"1\.[013]\b")
    person.types("bough log 1.2").shows("looking at 30", "angle=30, step=3", "ValueError: no minimum at 30")
    person.types("bough log look").exits(0)
    found = person.types("bough sql \"select idx, parameters, message from elements where state = 'failed'\"").exits(0)
    found.shows(r"2 +angle=30, step=3 +ValueError: no minimum at 30")

    told = person.types("bough run search.py").exits(1)
    told.shows(r"code: .*search\.py:7, in energy: raise").shows("command: grep nothing-like-this names.txt")
    told.shows("no minimum at 30", r"search\.py:\d+: 2 of 7 tasks failed", "2 failed.*", "why: bough explain --failed;")
    person.types("bough explain --failed").shows("no minimum at 30", "angle=30, step=3", r"look\) failed: exit code 1")

    person.writes("search.py", SEARCH.replace("== 30", "== 31").replace("grep nothing-like-this", "grep a"))
    again = person.types("bough run search.py").exits(0)
    again.shows("7 done", r"\d reused in", "--fresh").never_shows("failed", "Traceback")
    person.types("bough status").shows("7 done").never_shows("failed")
    (person.folder / "sorted" / "names.txt").unlink()
    person.types("bough run search.py").shows("7 done", "6 reused")
    assert (person.folder / "sorted" / "names.txt").read_text() == "a\nb\n"


def test_a_finished_script_begins_anew_and_an_interrupted_one_goes_on(person: Person) -> None:
    person.writes("value.txt", "one")
    script = (
        "import bough, os\n\ndef read(path):\n    return open(path).read() + os.environ['WHO']\n\n"
        "with bough.Session() as s:\n    print(s.submit(read, 'value.txt').result())\n"
    )
    person.writes("reading.py", script)
    person.types("WHO=me python reading.py").shows("^oneme$")
    person.writes("value.txt", "two")
    person.types("WHO=you python reading.py").shows("^twoyou$")

    person.writes(
        "long.py",
        "import bough\n\nwith bough.Session(cores=2) as s:\n"
        "    quick = s.sweep('echo {n}', bough.product(n=range(20)), name='quick')\n"
        "    s.command('test -e go || sleep 600', after=[quick], name='slow')\n",
    )
    stopped = person.types_at_a_terminal("bough run long.py", ctrl_c_after=r"1 running.{0,40}20 done|20 done")
    stopped.shows("Ctrl-C|interrupted").never_shows("Traceback")
    assert stopped.code in {130, -signal.SIGINT}, str(stopped)
    person.types("bough status").shows("20 done", "interrupted|skipped|cancelled")
    person.writes("go", "")
    person.types("python long.py").exits(0)
    person.types("bough sql 'select sum(reused) as reused from tasks where run = 2'").shows("^ *20$")


def test_the_live_display_is_there_at_a_terminal_and_not_in_a_pipe(person: Person) -> None:
    person.writes(
        "wait.py",
        "import bough\n\nwith bough.Session(cores=2) as s:\n"
        "    s.sweep('sleep {t}', bough.product(t=[1.0] * 6), name='naps')\n",
    )
    person.types_at_a_terminal("bough run wait.py").shows(r"\d/6, ", "6 done").exits(0)
    person.types_at_a_terminal("BOUGH_PROGRESS= python wait.py").shows(r"\d/6, ").exits(0)
    quiet = person.types("python wait.py").exits(0)
    assert not quiet.text, str(quiet)


def test_a_project_can_be_moved_with_its_store(person: Person, tmp_path: Path) -> None:
    person.writes("search.py", SEARCH.replace("== 30", "== 31").replace("grep nothing-like-this", "grep a"))
    person.writes("names.txt", "b\na\n")
    person.types("bough run search.py").shows("7 done").exits(0)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(person.folder, elsewhere)
    moved = Person(elsewhere)
    moved.types("bough status").shows("7 done").exits(0)
    moved.types("bough log 1.0").shows("looking at 10")
    moved.types("bough run search.py").shows("7 done", "7 reused").exits(0)


def test_what_can_never_run_and_misspelt_words_are_refused_at_once(person: Person) -> None:
    person.writes("big.py", "import bough\n\nwith bough.Session() as s:\n    s.command('true', memory='900TB')\n")
    person.types("python big.py").shows("this can never run: it needs 900.0 TB memory, and this session has").exits(1)
    person.types("bough run big.py").shows("^bough: .*900").never_shows("Traceback").exits(2)
    person.writes("typo.py", "import bough\n\nwith bough.Session(corse=3) as s:\n    pass\n")
    person.types("python typo.py").shows("corse.*did you mean cores").exits(1)
    for words, says in {
        "bough staus": "did you mean status",
        "bough run --corse 2 typo.py": "did you mean --cores",
        "bough run tpyo.py": "did you mean typo.py",
        "bough run typo.py --policy fifi": ".",
        "bough explain 12": ".",
        "bough submit -- true": "no server|server start",
        "bough log": "say which|last",
        "bough status --state failing": "no such state",
        "bough kill 'a b:::'": ".",
    }.items():
        said = person.types(words)
        assert said.code in {1, 2, 3}, str(said)
        said.never_shows("Traceback \\(most recent call last\\):\n(?!.*typo)").shows(says)
        assert len(said.err.strip().splitlines()) <= 3 or "typo.py" in words, str(said)


def test_one_command_and_many_without_any_file(person: Person) -> None:
    person.types("bough run -- sh -c 'echo out; exit 7'").shows("^out$").exits(7)
    person.writes("names.txt", "b\nit's\n{x}\n")
    many = person.types("bough run --each-line names.txt -j 2 -- 'echo got {}'").exits(0)
    many.shows("3 done")
    person.types("bough log all").shows("got b", "got it's", r"got \{x\}")
    person.types("printf 'echo one\\necho two\\n' | bough run -").shows("2 done").exits(0)


def test_a_service(person: Person) -> None:
    person.types("bough server start --detach").exits(0)
    person.types("bough executor start --detach --cores 2").shows("joined|started").exits(0)
    person.types("bough submit --wait -- sh -c 'echo here; exit 3'").exits(3)
    person.types("bough submit --wait --array 1-4 -- 'echo number {}'").exits(0)
    person.types("bough status").shows("WORKFLOW +RUN +USER +STATE", "running +4 done, 1 failed")
    person.types("bough executor list").shows("cores|CORES", "0/2|0 of 2|/2").exits(0)
    person.types("bough submit -- sleep 600").shows(r"\d").exits(0)
    person.types("bough status").shows("running")
    person.types("bough cancel last").exits(0)
    person.types("bough server stop --executors").exits(0)


NOTEBOOK = """\
import nbformat, sys
from nbclient import NotebookClient

cells = [
    "import bough\\ndef double(x):\\n    print('doubling', x)\\n    return 2 * x",
    "s = bough.Session(cores=1)\\nprint(sum(s.map(double, range(5))))",
    "s = bough.Session(cores=1)\\nprint(sum(s.map(double, range(5))))",  # the cell again, the first still open
    "with bough.Session(cores=1) as t:\\n    t.submit(lambda: 1 / 0)",
]
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(book, timeout=100, kernel_name="python3", allow_errors=True).execute()
for number, cell in enumerate(book.cells):
    print("cell", number)
    for output in cell.outputs:
        print(output.get("text") or output.get("evalue") or "")
"""


def test_a_notebook(person: Person) -> None:
    pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed")
    person.writes("play.py", NOTEBOOK)
    said = person.types("python play.py").exits(0)
    assert len(re.findall("^20$", said.out, re.MULTILINE)) == 2, str(said)
    said.shows(
        *("^cell 1$", "^20$", r"^double 1\.0 \| doubling 0$", r"^double 1\.4 \| doubling 4$"),
        *("^cell 2$", "^20$", r"^double 1\.0 \| doubling 0$", r"^double 1\.4 \| doubling 4$"),
        "^cell 3$",
        "1 of 1 task failed in workflow notebook",
        "ZeroDivisionError: division",
        "run the cell again",
    )
