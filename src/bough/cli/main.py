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
import importlib
import io
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from bough import __version__
from bough.cli.output import Output, choose
from bough.errors import BoughError, InternalError, SiteError, UserError

COMMANDS = {  # by name: the module, and what the command does
    "run": ("run", "run a workflow to its end: a Python script, a workflow description or a flat list of commands"),
    "submit": ("submit", "submit a workflow file, a Python script or a command to a server, and return at once"),
    "describe": ("describe", "show what a workflow file says: as a Makefile, a flat list, a graph or JSON"),
    "status": ("status", "show groups and tasks by state"),
    "history": ("history", "show how a group fared in the runs so far: times, hosts, tasks"),
    "browse": ("browse", "walk through the groups in the terminal, and act on them"),
    "watch": ("watch", "show groups and tasks by state, live"),
    "log": ("log", "print what tasks wrote to stdout and stderr"),
    "fetch": ("fetch", "bring outputs that a server keeps to their places"),
    "explain": ("explain", "say why a task does not run, or why it failed"),
    "kill": ("act", "end running tasks: their attempt fails, without a retry"),
    "cancel": ("act", "cancel tasks, whatever they are doing"),
    "hold": ("act", "keep tasks from starting"),
    "release": ("act", "let held tasks start"),
    "disable": ("act", "keep groups from starting until they are enabled"),
    "enable": ("act", "let disabled groups start"),
    "stop": ("act", "end what runs in groups and keep the rest of them from starting"),
    "reset": ("act", "make groups or tasks not started, also those that are done"),
    "retry": ("act", "retry what failed, was cancelled or was skipped"),
    "server": ("server", "start, stop and look at a service that many workflows share"),
    "executor": ("executor", "start executors for a server, list, drain and stop them"),
    "relay": ("relay", "let executors that reach only this machine work for a server elsewhere"),
    "take": ("manual", "get the next ready task to run it yourself; the same one until it is done"),
    "command": ("manual", "print the command of a task"),
    "attribute": ("manual", "print what is known of a task: its name, group, cores, directory and more"),
    "done": ("manual", "say that a task that you took has ended, and how; or declare groups and tasks done"),
    "here": ("here", "for a running task: its attributes, a status text, locks, an early release of its group"),
    "stats": ("stats", "show what a server counts every second, also for Prometheus"),
    "remove": ("remove", "remove workflows that have finished from a server, with their records"),
    "prune": ("remove", "remove workflows that finished a while ago"),
    "sql": ("sql", "ask the jobs database, read-only"),
    "store": ("store", "copy a store, back it up while it is used, see whether it is sound"),
    "bench": ("bench", "measure Bough on this machine, beside its peers and the limits of the machine"),
    "study": ("study", "run a published study again with our scheduler, beside the published figures"),
    "completion": ("completion", "print a script that completes commands in bash, zsh or fish"),
}

INTERRUPTED = 130
_CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160))}  # a terminal obeys them


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
        raise UserError(f"{message}; see {self.prog} --help")

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
        return report(SiteError(str(error)))
    except MemoryError:
        return report(SiteError("this machine has no memory left for it; close something, or do it in parts"))
    except Exception as error:  # noqa: BLE001 - the last place that can say whose fault it is
        import traceback

        return report(InternalError(f"{type(error).__name__}: {error}", traceback.format_exc().rstrip()))


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
    if "bough.cli.run_script" in sys.modules or any(map(_is_waited_for, threading.enumerate())):
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
    message = str(error).replace("\n", " ").translate(_CONTROLS)
    print(f"bough: {message}", file=sys.stderr)
    if isinstance(error, InternalError):
        if error.story:
            print(error.story, file=sys.stderr)
        print("bough: this is a bug of Bough; please report it with the lines above", file=sys.stderr)
    return error.exit_code


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in {"-h", "--help", "help"}:
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
    summary = COMMANDS[name][1]
    parser = Parser(
        prog=f"bough {name}",
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  {example}" for example in command.examples),
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="answer with JSON on standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    return parser


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, examples: Sequence[str]
) -> argparse.ArgumentParser:
    """The parser of one verb, with the options that all have."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  {example}" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="answer with JSON")
    parser.add_argument("-q", "--quiet", action="store_true", default=argparse.SUPPRESS, help="say nothing but errors")
    return parser


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else "see bough --help"
    if os.path.exists(name):
        hint = f"to run a workflow: bough run {name}"
    return f"there is no command {name!r}; {hint}"


def _usage() -> str:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items())
    return (
        "usage: bough COMMAND [OPTIONS]\n\n"
        "Run many tasks, commands and Python functions with dependencies, and look after them.\n\n"
        f"commands:\n{listed}\n\n"
        "examples:\n"
        "  bough run workflow.py\n"
        "  bough run --cores 4 commands.txt\n"
        "  bough status\n"
        "  bough log --failed\n\n"
        "bough COMMAND --help says more; bough --version says which Bough this is."
    )


if __name__ == "__main__":
    start()
