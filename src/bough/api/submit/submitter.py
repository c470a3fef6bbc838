"""The ways to submit work, which a session, a group and a session with options have in common.

Rule: the methods of `concurrent.futures.Executor` take nothing of Bough's in their keywords, which belong to the
function; options are given by `options(...)`. The other methods take options as keywords.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Never

from bough.api.submit.context import SubmitContext, open_groups
from bough.errors import BadValue, UnknownKeyword

if TYPE_CHECKING:
    from bough.api.futures.array import Array, TaskList
    from bough.api.futures.task import Task
    from bough.api.submit.command_lines.command_plan import Files
    from bough.api.submit.command_lines.transfers import Files as TransferFiles
    from bough.api.submit.context import SessionLike
    from bough.api.submit.groups import Group
    from bough.api.submit.task_options.checkpoint_options import Checkpoint
    from bough.api.submit.task_options.options import After, TaskOptions
    from bough.model.ids import GroupId
    from bough.model.spaces import Space
    from bough.model.tasks import Keep
    from bough.monitors import Metric, Monitor, Remote

    RemoteMonitors = Iterable[Remote | Callable[[Any], object]] | None  # what `remote_monitors` takes
    Monitors = Iterable[Monitor | Metric | str] | Monitor | Metric | str | None  # what `monitors` takes

Amount = str | float


class Submitter:
    """See the module."""

    _session: SessionLike
    _settings: TaskOptions

    def __init__(self, session: SessionLike, settings: TaskOptions) -> None:
        self._session = session
        self._settings = settings

    def _group_id(self) -> GroupId:
        """The group that what is submitted here joins."""
        around = open_groups.get()
        if around:
            for group in reversed(around):
                if group._session is self._session:
                    return group.id
        return self._session.root

    def _read(self, options: Mapping[str, object]) -> TaskOptions:
        from bough.api.submit.task_options.options import read_options

        return read_options(self._settings, options)

    def options(self, **options: object) -> SubmitterWithOptions:
        """The same with options for what is submitted through it.

        cores, memory, gpus, resources (a dict), timeout, retries, backoff, walltime, replay, idempotent (False: never
        run it twice at the same time, True: it may, see replication), keep (False: what it writes is removed after its
        last reader; "later": it is written back in bulk, and what depends on it need not wait for that), name, after,
        priority, queue (a named queue of the server), memo; release (what waits for its group may start when it is
        done), affinity (it runs where the task before it ran), final (it runs whatever happened), attributes (a dict of
        your own), monitors (on top of those before); sites (names: it runs at one of them), requires (of the executor:
        "memory_gb >= 64 and 'avx512' in cpu").
        """
        return SubmitterWithOptions(self._session, self._read(options), self)

    # --- functions ----------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """Call `fn(*args, **kwargs)` in a worker. Tasks and arrays among the arguments stand for their values."""
        session = self._session
        return session.submit_call(session, self._settings, self._group_id(), fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        **options: Never,
    ) -> Array:
        """Call `fn` for every item (or every tuple of items). Iterating the array gives the values in order.

        `chunksize` and `buffersize` are accepted for the sake of `concurrent.futures`; how much is handed out at a
        time follows from measured run times, and all items are read at once: an endless generator goes to `feed`.
        `timeout` bounds the iteration.
        """
        for name in options:
            raise UnknownKeyword(
                f"map has no option {name!r}; for options of its tasks: s.options({name}=...).map(...)"
            )
        if chunksize < 1:
            raise BadValue(f"chunksize must be >= 1, not {chunksize}")
        if buffersize is not None and buffersize < 1:
            raise BadValue(f"buffersize must be None or > 0, not {buffersize}")
        deadline = None if timeout is None else time.monotonic() + timeout
        context = SubmitContext(self._session, self._settings, self._group_id())
        return self._session.submit_map(context, fn, iterables, deadline)

    # --- commands -----------------------------------------------------------------------------------

    def command(
        self,
        text: str | Sequence[Any],
        /,
        *,
        after: After = None,
        cores: float | None = None,
        memory: Amount | None = None,
        gpus: float | None = None,
        resources: Mapping[str, float] | None = None,
        timeout: Amount | None = None,
        retries: int | None = None,
        backoff: Amount | None = None,
        walltime: Amount | None = None,
        replay: Amount | None = None,
        idempotent: bool | None = None,
        keep: Keep | None = None,
        name: str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        memo: bool | None = None,
        release: bool | None = None,
        affinity: bool | None = None,
        final: bool | None = None,
        attributes: Mapping[str, str | float] | None = None,
        monitors: Monitors = None,
        remote_monitors: RemoteMonitors = None,
        checkpoint: str | Checkpoint | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
        sites: Iterable[str] | str | None = None,
        requires: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: str | bytes | os.PathLike[str] | None = None,
        shell: bool | str | Sequence[str] | None = None,
        clash: str | None = None,
        setup: str | None = None,
        container: str | None = None,
        inputs: Files = None,
        outputs: Files = None,
        teardown: str | None = None,
        environment: str | os.PathLike[str] | None = None,
        put: TransferFiles = None,
        store: TransferFiles = None,
        get: TransferFiles = None,
        **parameters: Any,
    ) -> Task:
        """Run a command: a text, whose {slots} are filled with the parameters, or a list of words.

        `setup` is shell text that runs on its host first ("module load gcc"); `container` is what it runs in, as
        "apptainer:IMAGE" or "docker:IMAGE". `inputs` and `outputs` are files, folders and patterns that it reads and
        writes without a slot in the text: inputs=["data/*.csv"], outputs=["out/*.txt"]. `teardown` runs on its host
        afterwards. `environment` is an archive (env.tar.gz) that is unpacked there and put first on PATH. With `put`
        (always sent), `store` (sent unless the same file is in $STORAGE) or `get` (brought back) it runs in a folder of
        its own, $PLAYPEN. `shell` is what runs the text: True or "bash" is bash -eo pipefail, "sh" is sh -e, another
        name that program with -c, words such as ["sh", "-c"] as they stand, False none.
        """
        from bough.api.submit.command_lines.commands import submit_command

        settings = self._read(
            {
                "after": after,
                "cores": cores,
                "memory": memory,
                "gpus": gpus,
                "resources": resources,
                "timeout": timeout,
                "retries": retries,
                "backoff": backoff,
                "walltime": walltime,
                "replay": replay,
                "idempotent": idempotent,
                "keep": keep,
                "name": name,
                "priority": priority,
                "queue": queue,
                "memo": memo,
                "release": release,
                "affinity": affinity,
                "final": final,
                "attributes": attributes,
                "monitors": monitors,
                "checkpoint": checkpoint,
                "checkpoint_file": checkpoint_file,
                "sites": sites,
                "requires": requires,
            }
        )
        how: dict[str, Any] = {"env": env, "cwd": cwd, "stdin": stdin, "shell": shell, "clash": clash}
        how |= {"setup": setup, "container": container, "inputs": inputs, "outputs": outputs}
        how |= {"teardown": teardown, "environment": environment, "put": put, "store": store, "get": get}
        remotes = _read_remotes(remote_monitors)
        task = submit_command(SubmitContext(self._session, settings, self._group_id()), text, parameters, how)
        if remotes:
            task.monitor(*remotes)
        return task

    def sweep(
        self,
        what: str | Callable[..., Any],
        space: Space,
        /,
        *,
        where: Callable[..., Any] | None = None,
        after: After = None,
        cores: float | None = None,
        memory: Amount | None = None,
        gpus: float | None = None,
        resources: Mapping[str, float] | None = None,
        timeout: Amount | None = None,
        retries: int | None = None,
        backoff: Amount | None = None,
        walltime: Amount | None = None,
        replay: Amount | None = None,
        idempotent: bool | None = None,
        keep: Keep | None = None,
        name: str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        memo: bool | None = None,
        release: bool | None = None,
        attributes: Mapping[str, str | float] | None = None,
        monitors: Monitors = None,
        remote_monitors: RemoteMonitors = None,
        checkpoint: str | Checkpoint | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
        sites: Iterable[str] | str | None = None,
        requires: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: str | bytes | os.PathLike[str] | None = None,
        shell: bool | str | Sequence[str] | None = None,
        clash: str | None = None,
        setup: str | None = None,
        container: str | None = None,
        inputs: Files = None,
        outputs: Files = None,
        teardown: str | None = None,
        environment: str | os.PathLike[str] | None = None,
        put: TransferFiles = None,
        store: TransferFiles = None,
        get: TransferFiles = None,
        **parameters: Any,
    ) -> Array:
        """Run a command, or call a function, for every combination of a parameter space.

        `where` keeps the combinations for which it is true. A function gets the parameters as keywords. The others are
        those of `command`; names of files among them (`inputs`, `outputs`, `put`, `store`, `get`) may be templates.
        """
        settings = self._read(
            {
                "after": after,
                "cores": cores,
                "memory": memory,
                "gpus": gpus,
                "resources": resources,
                "timeout": timeout,
                "retries": retries,
                "backoff": backoff,
                "walltime": walltime,
                "replay": replay,
                "idempotent": idempotent,
                "keep": keep,
                "name": name,
                "priority": priority,
                "queue": queue,
                "memo": memo,
                "release": release,
                "attributes": attributes,
                "monitors": monitors,
                "checkpoint": checkpoint,
                "checkpoint_file": checkpoint_file,
                "sites": sites,
                "requires": requires,
            }
        )
        how: dict[str, Any] = {"env": env, "cwd": cwd, "stdin": stdin, "shell": shell, "clash": clash}
        how |= {"setup": setup, "container": container, "inputs": inputs, "outputs": outputs}
        how |= {"teardown": teardown, "environment": environment, "put": put, "store": store, "get": get}
        context = SubmitContext(self._session, settings, self._group_id())
        remotes = _read_remotes(remote_monitors)
        if callable(what):
            from bough.api.submit.calls import submit_call_sweep

            _refuse_of_commands(how)
            array = submit_call_sweep(context, what, space, where, parameters)
        else:
            from bough.api.submit.command_lines.commands import submit_sweep

            how["where"] = where
            array = submit_sweep(context, what, space, parameters, how)
        if remotes:
            array.monitor(*remotes)
        return array

    def sweep_indexed(
        self, text: str, space: Space, indices: str, options: Mapping[str, Any], around: Mapping[str, Any] | None = None
    ) -> Array:
        """As `sweep`, for the command line: the elements have the indexes that the user wrote, such as 1-1000."""
        from bough.api.submit.command_lines.commands import submit_sweep

        how: dict[str, Any] = dict.fromkeys(("env", "cwd", "stdin", "shell", "clash", "where"))
        how |= {"indices": indices, **(around or {})}
        context = SubmitContext(self._session, self._read(options), self._group_id())
        return submit_sweep(context, text, space, {}, how)

    def feed(self, what: Callable[..., Any] | str, items: Iterable[Any], *, keep: bool = True, **options: Any) -> Array:
        """Call a function, or run a command, for everything a generator gives, endless or not.

        The generator is read in a thread, no faster than tasks end. For a command each item is a dict of
        its parameters. Options are those of `command`.

        With keep=False this process holds a result only until it is taken, however many there are: by iterating
        over the array, which gives values in order, or over `as_completed()`. The generator waits
        until they are taken. `wait_all()` says that they will not be.
        """
        from bough.api.submit.feeds import start_feed

        return start_feed(
            SubmitContext(self._session, self._settings, self._group_id()), what, items, options, keep=keep
        )

    # --- structure ----------------------------------------------------------------------------------

    def array(self, tasks: Iterable[Task] = ()) -> TaskList:
        """An array that grows: `add` tasks or commands to it."""
        from bough.api.futures.array import TaskList

        return TaskList(tasks, self)

    def group(
        self,
        name: str,
        after: After = None,
        *,
        pipeline: bool = False,
        match: bool = False,
        barrier: bool = True,
        limit: int | None = None,
        retries: int | None = None,
        timeout: Amount | None = None,
        priority: int | None = None,
        attributes: Mapping[str, str | float] | None = None,
        monitors: Monitors = None,
        **options: object,
    ) -> Group:
        """A group, to be used as `with session.group("align") as g:`; its tasks wait for what is in `after`.

        Args:
            name: different from those of its siblings.
            after: tasks, arrays and groups, wherever they are.
            pipeline: its own tasks run one after the other.
            match: its subgroups wait only for the subgroups of the same name of the groups in `after`.
            barrier: False: it is there for people to look at, and orders nothing.
            limit: at most so many of its tasks run at once.
            retries: if something in it fails, all that did not succeed is tried again, so often.
            timeout: it is ended so long after its first task began.
            priority: of its tasks and those below that say nothing else.
            attributes: texts and numbers of your own.
            monitors: they watch each of its tasks, and of those below.
            options: of `options`, for what is submitted through the group itself.
        """
        made: Group = self._session.make_group(
            name,
            self._group_id(),
            () if after is None else after,
            self._read(options),
            pipeline=pipeline,
            match=match,
            barrier=barrier,
            limit=limit,
            retries=retries,
            timeout=timeout,
            priority=priority,
            attributes=attributes,
            monitors=monitors,
        )
        return made


def _read_remotes(given: RemoteMonitors) -> list[Remote]:
    if given is None:
        return []
    from bough.monitors.remote_monitor import read_remotes

    return read_remotes(given)


def _refuse_of_commands(how: Mapping[str, object]) -> None:
    from bough.errors import UserError

    for option, value in how.items():
        if value is not None:
            raise UserError(f"sweep: {option} is for commands; a function takes it as a parameter of another name")


class SubmitterWithOptions(Submitter, Executor):  # type: ignore[misc] # map gives more than an iterator
    """A session, or a group of it, with options for everything that is submitted through it."""

    def __init__(self, session: SessionLike, settings: TaskOptions, origin: Submitter) -> None:
        super().__init__(session, settings)
        self._origin = origin

    def _group_id(self) -> GroupId:
        return self._origin._group_id()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the session."""
        self._session.shutdown(wait, cancel_futures=cancel_futures)
