"""`bough fetch`: bring outputs that a server keeps to their places, or to another folder.

Where nothing is shared an attached session and `bough submit --wait` do that by themselves; this is for who left.
Rule: a file appears whole or not at all, and one that is there with the same content is left alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator

from bough.api.file_transfer import fetch
from bough.cli.option_values import count, path_name
from bough.cli.output import Output
from bough.cli.targets.jobs_database import OpenDatabase, Workflow, open_database
from bough.cli.targets.locate import add_store_arguments
from bough.cli.targets.selection import Selected, choose_run, pick, read_request
from bough.errors import StoreFailed, UserError
from bough.model.files import hidden_path, place_inside
from bough.model.ids import RecordId
from bough.model.outcomes import Output as Made
from bough.model.texts.plurals import counted
from bough.wire import questions

EXAMPLES = (
    "bough fetch",
    "bough fetch align",
    "bough fetch align 12.3-40 --to results",
    "bough fetch --to results hits/*",
)

_AT_ONCE = 10_000  # elements asked for at a time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("workflow", nargs="?", metavar="WORKFLOW", help="the workflow (default: the latest)")
    parser.add_argument("selector", nargs="?", metavar="SELECTOR", help="which of its tasks (default: all)")
    parser.add_argument(
        "--to", type=path_name, metavar="DIR", help="put them there, as they lie in the workflow's directory"
    )
    parser.add_argument("--run", type=count, metavar="N", help="of run N of the workflow (default: the latest)")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Fetch what is meant."""
    args.states, args.state, args.group = None, None, None
    with open_database(args, acts=True) as database:
        if not database.is_service or database.server is None:
            raise UserError("fetch needs a server: the files of a session on this machine are in their places")
        _read_words(args, database)
        selectors, states = read_request(args, needed=False)
        run = choose_run(database, args, selectors)
        workflow = next((one for one in database.workflows() if one["run"] == run), None)
        if workflow is None:
            raise UserError(f"there is no run {run} any more")
        places = _Places(workflow, args.to)
        done = bring(database, pick(database, selectors, states, run), places.of)
    fetched = sum(bool(one["fetched"]) for one in done)
    output.answer(
        done, lambda: [f"{counted(fetched, 'file')} fetched, {counted(len(done) - fetched, 'file')} there already"]
    )
    return 0


def bring(
    database: OpenDatabase, picks: Iterable[Selected], place_of: Callable[[str], str] = str
) -> list[dict[str, object]]:
    """Bring what tasks made and the server keeps to its places; the files, and whether each was not there."""
    assert database.server is not None
    done: list[dict[str, object]] = []
    for one in picks:
        for made in _files(database, one.id, one.first, one.last + 1):
            path = place_of(made.path)
            try:
                new = fetch(database.server, made, path, hidden_path(path, one.id, os.getpid(), 0))
            except OSError as error:
                raise StoreFailed(f"{path} cannot be written: {error.strerror}") from error
            done.append({"path": path, "size": made.size, "fetched": new})
    return done


def _read_words(args: argparse.Namespace, database: OpenDatabase) -> None:
    """One word alone is a workflow, if there is one of that name, or else a selector."""
    word = args.workflow
    is_workflow = args.selector is not None or any(one["name"] == word for one in database.workflows())
    if is_workflow and word is not None:
        args.name = word
    else:
        args.selector = word


def _files(database: OpenDatabase, record: int, start: int, stop: int) -> Iterator[Made]:
    assert database.server is not None
    for begin in range(start, stop, _AT_ONCE):
        end = min(stop, begin + _AT_ONCE)
        for path, size, digest, folder, runs in database.server.ask(questions.Files(RecordId(record), begin, end)):
            yield Made("", path, size, 0, digest, folder, executable=runs)


class _Places:
    """Where files go."""

    def __init__(self, workflow: Workflow, to: str | None) -> None:
        self._directory = str(workflow["directory"])
        self._to = os.path.abspath(to) if to is not None else ""
        if not self._to and os.path.realpath(self._directory) != os.path.realpath(os.getcwd()):
            raise UserError(
                f"the files of {workflow['name']} belong to {self._directory};"
                " go there, or say with --to DIR where to put them"
            )

    def of(self, path: str) -> str:
        """The place of a file."""
        try:
            return os.path.join(self._to, place_inside(path, self._directory)) if self._to else path
        except ValueError as error:
            raise UserError(f"{error}; it is not fetched") from error
