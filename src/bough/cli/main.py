"""The command `bough`: finds the subcommand, imports its module alone, and turns errors into one line and an exit code.

`COMMANDS` names the module of `cli/commands` that holds each subcommand. A module with one command has `EXAMPLES`,
`add_arguments` and `run`; a module with several has a table `SUBCOMMANDS`. `add_verb` makes the parser of a
second word, as in `bough server start`.
Rule: exit codes are 0 all done, 1 some task failed, 2 the user's error, 3 the world's, 70 ours, 130 Ctrl-C. Every
command and every verb has help with examples, and the options that all have.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import importlib
import io
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from bough import __version__
from bough.cli.output import Output, choose
from bough.errors import BoughError, InternalError, SiteError, UserError, did_you_mean
from bough.model.texts.terminal_text import harmless_name

COMMANDS = {  # by name: the module, and what the command does; in the order of the help
    "run": ("run", "run commands or a workflow file on this machine, to the end"),
    "status": ("status", "show groups and tasks by state"),
    "watch": ("watch", "show groups and tasks by state, live"),
    "log": ("log", "print what tasks wrote to stdout and stderr"),
    "explain": ("explain", "say why a task does not run, or why it failed"),
    "kill": ("act", "end running tasks: their attempt fails, and they are not tried again"),
    "cancel": ("act", "cancel tasks, whether they run or wait"),
    "retry": ("act", "run again what failed, was cancelled or was skipped"),
    "submit": ("submit", "hand commands or a workflow file to a server, and return at once"),
    "server": ("server", "start, stop and look at a server that many workflows share"),
    "executor": ("executor", "start executors for a server; list, drain and stop them"),
    "relay": ("relay", "let executors that reach only this machine work for a server elsewhere"),
    "site": ("site", "add, test and remove sites, and say when they may be used"),
    "pilot": ("pilot", "show the pilots that sites were asked for, and why"),
    "queue": ("queue", "make, change and look at named queues, which limit and share what a server has"),
    "fetch": ("fetch", "bring outputs that a server keeps to their places"),
    "stats": ("stats", "show what a server counts every second, also for Prometheus"),
    "hold": ("act", "keep tasks from starting"),
    "release": ("act", "let held tasks start"),
    "disable": ("act", "keep groups from starting until they are enabled; like hold, with its own name"),
    "enable": ("act", "let disabled groups start"),
    "stop": ("act", "end what runs in groups and hold the rest of them; like kill and hold together"),
    "reset": ("act", "make groups or tasks not started, also those that are done"),
    "monitor": ("monitor", "watch tasks that wait or run already, and end them early"),
    "done": ("manual", "declare groups and tasks done; or report how a task that you took has ended"),
    "take": ("manual", "take the next ready task, to run it yourself"),
    "command": ("manual", "print the command of a task"),
    "attribute": ("manual", "print what is known of a task: its name, group, cores, directory and more"),
    "browse": ("browse", "walk through the groups in the terminal, and act on them"),
    "history": ("history", "show how a group fared in the runs so far: times, hosts, tasks"),
    "sql": ("sql", "ask the jobs database with SQL, read-only"),
    "remove": ("remove", "remove workflows that have finished from a server, with their records"),
    "prune": ("remove", "remove workflows that finished a while ago"),
    "store": ("store", "copy, back up, check and repair a store"),
    "describe": ("describe", "show what a workflow file says, or write it as a Makefile, a flat list, a graph or JSON"),
    "here": ("here", "for commands inside a task: read its attributes, say its progress, lock, release its group"),
    "watchdog": ("watchdog", "run one command with monitors that may end it, inside any script: no store, no server"),
    "bench": ("bench", "measure Bough on this machine, beside its peers and the limits of the machine"),
    "simulate": ("simulate", "say how long a workflow would take on other machines, under other policies"),
    "study": ("study", "run a published study again with our scheduler, beside the published figures"),
    "completion": ("completion", "print a script that completes commands in bash, zsh or fish"),
}
GROUPS = {  # of the help: each begins with this command
    "run": "everyday",
    "submit": "a server that many workflows share",
    "hold": "administration",
    "describe": "workflow descriptions",
    "bench": "for developers",
}
HIDDEN = frozenset({"disable", "enable", "stop", "command", "attribute"})  # another command does nearly the same

INTERRUPTED = 130


class Command(NamedTuple):
    """One subcommand, as its module gives it."""

    examples: Sequence[str]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Output], int]


def load_command(name: str) -> Command:
    """Import the module of a command; the only one that is imported."""
    module = importlib.import_module(f"bough.cli.commands.{COMMANDS[name][0]}")
    several: dict[str, Command] | None = getattr(module, "SUBCOMMANDS", None)
    return Command(module.EXAMPLES, module.add_arguments, module.run) if several is None else several[name]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every error of ours."""

    def error(self, message: str) -> NoReturn:
        """Leave through the one place that prints errors."""
        raise UserError(f"{message}{'' if message.endswith('?') else ';'} see {self.prog} --help")

    def parse_args(  # type: ignore[override] # we have one kind of namespace
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """As argparse does it; for an option that does not exist the nearest one is suggested."""
        found, rest = self.parse_known_args(args, namespace)
        unknown = next((word for word in rest if word.startswith("-")), "")
        if unknown:
            name = unknown.partition("=")[0]
            self.error(f"there is no option {name}{did_you_mean(name, self._options(found))}")
        if rest:
            self.error(f"{rest[0]!r:.60} is one argument too many")
        return found

    def _options(self, found: argparse.Namespace) -> list[str]:
        """The options that could be meant, those of the verb that was given among them."""
        names = [name for action in self._actions if action.help != argparse.SUPPRESS for name in action.option_strings]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                verb = action.choices.get(str(getattr(found, action.dest, "")))
                names += verb._options(found) if isinstance(verb, Parser) else []
        return names

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest the verb, or the choice of an option, that was meant."""
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            what = "verbs are" if isinstance(action, argparse._SubParsersAction) else "choose from"
            meant = did_you_mean(str(value), known)
            raise argparse.ArgumentError(action, f"{value!r:.60} is none; {what} {', '.join(known)}{meant}")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse `--option=--`, of which argparse makes an empty list where a text is expected."""
        if action.option_strings and arg_strings == ["--"]:
            self.error(f"argument {'/'.join(action.option_strings)}: -- is no value")
        return super()._get_values(action, arg_strings)


class Formatter(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, like argparse's own, which loads a lot to find that out, help or no help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)


def columns() -> int:
    """The width of the terminal."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and len(said) <= _WIDEST and int(said):
        return max(int(said), _NARROWEST)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


_WIDEST = 4  # digits of the width of a terminal
_NARROWEST = 20  # argparse writes nothing into fewer columns


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _write_everything()
    try:
        return _dispatch(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe left, as `head` does: not an error. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except BoughError as error:
        return report(error)
    except UnicodeEncodeError as error:
        # A word of the command line, or a file's name, that is not UTF-8: it can be neither sent nor stored.
        return report(UserError(f"{error.object!r:.100} is not valid Unicode; give another name"))
    except OSError as error:
        gone = error.errno == errno.ENOENT and error.filename is None  # what `os.getcwd` says
        return report(SiteError("the folder in which you are was removed; go to another one" if gone else str(error)))
    except MemoryError:
        return report(SiteError("this machine has no memory left for it; close something, or do it in parts"))
    except Exception as error:  # noqa: BLE001 - the last place that can say whose fault it is
        import traceback

        return report(InternalError(f"{type(error).__name__}: {error}", traceback.format_exc().rstrip()))


def put_on_path() -> None:
    """Let tasks call `bough` by its name: where this one is, is looked at last, if no other is found."""
    import shutil

    folder = os.path.dirname(sys.executable)
    if shutil.which("bough") is None and os.path.exists(os.path.join(folder, "bough")):
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), folder])


def _write_everything() -> None:
    """Let answers hold any character: what standard output has no bytes for is written as its number."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def start() -> NoReturn:
    """The process `bough`: one command, and out.

    Taking the interpreter apart takes longer than many a command, and is left out unless a script of the user's ran
    here, which may count on it.
    """
    code = main()
    if "bough.cli.runs.run_script" in sys.modules or any(map(_is_waited_for, threading.enumerate())):
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        code = code if isinstance(error, BrokenPipeError) else report(SiteError(str(error)))
    os._exit(code)


def _is_waited_for(thread: threading.Thread) -> bool:
    return not thread.daemon and thread is not threading.main_thread()


def report(error: BoughError) -> int:
    """Print one line for an error, and our own errors' story; return the exit code."""
    message = harmless_name(str(error).replace("\n", " "))
    print(f"bough: {message}", file=sys.stderr)
    if isinstance(error, InternalError):
        if error.story:
            print(error.story, file=sys.stderr)
        print("bough: this is a bug of Bough; please report it with the lines above", file=sys.stderr)
    return error.exit_code


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in {"-h", "--help", "help"}:
        if words[:2] in (["help", "all"], ["help", "--all"], ["--help", "--all"]):
            print(_usage(all_of_them=True))
            return 0
        if len(words) > 1 and words[0] == "help":
            return _dispatch([words[1], "--help"])
        print(_usage())
        return 0 if words else 2
    if words[0] in {"-V", "--version"}:
        print(f"bough {__version__}")
        return 0
    name = words[0]
    if name not in COMMANDS:
        raise UserError(_unknown(name))
    command = load_command(name)
    parser = make_parser(name, command)
    try:
        args = parser.parse_args(words[1:])
    except SystemExit as leaving:  # --help
        return leaving.code if isinstance(leaving.code, int) else 0
    return command.run(args, choose(json=args.json, quiet=args.quiet))


def make_parser(name: str, command: Command) -> Parser:
    """The parser of one command, with the options that all have."""
    parser = Parser(
        prog=f"bough {name}",
        description=sentence(COMMANDS[name][1]),
        epilog="examples:\n" + "\n".join(f"  {example}" for example in command.examples),
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="answer with JSON on standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    return parser


def sentence(summary: str) -> str:
    """A summary as it stands by itself."""
    return summary[0].upper() + summary[1:] + "."


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, examples: Sequence[str]
) -> argparse.ArgumentParser:
    """The parser of one verb, with the options that all have."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=sentence(summary),
        epilog="examples:\n" + "\n".join(f"  {example}" for example in examples),
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="answer with JSON")
    parser.add_argument("-q", "--quiet", action="store_true", default=argparse.SUPPRESS, help="say nothing but errors")
    return parser


def _unknown(name: str) -> str:
    if os.path.exists(name):
        return f"there is no command {name!r}; to run a workflow: bough run {name}"
    return (
        f"there is no command {name!r}{did_you_mean(name, [*COMMANDS, '--help', '--version']) or '; see bough --help'}"
    )


def _usage(*, all_of_them: bool = False) -> str:
    """The help by subject, the everyday commands first."""
    listed: list[str] = []
    for name, (_, summary) in COMMANDS.items():
        if name in GROUPS:
            listed += ["", f"{GROUPS[name]}:"]
        if all_of_them or name not in HIDDEN:
            listed.append(f"  {name:<{_NAMES}}  {summary}")
    return (
        "usage: bough COMMAND [OPTIONS]\n\n"
        "Run many tasks, commands and Python functions with dependencies, and look after them.\n"
        + "\n".join(listed)
        + "\n\nexamples:\n"
        "  bough run workflow.py                      # a Python script, a Makefile, a list of commands\n"
        "  bough run --each-line names.txt -- 'echo {}'\n"
        "  bough status\n"
        "  bough log --failed\n\n"
        "bough COMMAND --help says more, with examples. bough help all lists every command.\n"
        "bough --version says which Bough this is."
    )


_NAMES = max(map(len, COMMANDS))


if __name__ == "__main__":
    start()
