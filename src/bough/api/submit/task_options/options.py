"""Options of tasks, read once; and what is waited for, as dependencies.

`read_options` makes `TaskOptions` of keywords. `deps_of` makes dependencies of tasks, arrays and groups, `Arguments`
puts marks in the places of values that come later.

Rules: a wrong option is an error that names the option, the value and what would be right; what a store could not
hold is wrong. A dependency belongs to the same session. A task, or a future of another executor, stands for its value,
also inside a list, tuple or dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from bough.api.futures.array import Array
from bough.api.futures.array_view import ArrayView
from bough.api.futures.task import Task
from bough.api.pickling import check_sendable
from bough.api.submit.deferred_calls import value_of_other
from bough.errors import BadValue, NotRun, WrongType, unknown_keyword
from bough.model.bounds import Amount, Count, Duration, Name, QueueName, SiteName, Whole, shown, within
from bough.model.ids import BlobId, read_bytes, read_seconds, split_growth
from bough.model.refs import Ref, replaced
from bough.model.sites.requirements import join_requirements, read_requirement
from bough.model.sites.resources import ONE_CORE, OWN_PYTHON, Needs, SiteNames
from bough.model.tasks import LATER, NO_EXTRAS, NO_LIMITS, Dep, Keep, Limits, TaskExtras, idempotence

if TYPE_CHECKING:
    from bough.api.futures.task import Home, OutputPath
    from bough.api.submit.task_options.monitor_options import Watching


class HasDeps(Protocol):
    """What can be waited for besides tasks and arrays: a group."""

    def __bough_deps__(self) -> tuple[Home, tuple[Dep, ...]]:
        """The session that it belongs to, and its dependencies."""


# What `after` takes: a task, an array, a group, an output of a task, or several of these
Waitable: TypeAlias = "Task | Array | HasDeps | OutputPath"
After: TypeAlias = "Iterable[Waitable] | Waitable | None"

NAMES = (
    *("cores", "memory", "gpus", "resources", "timeout", "retries", "backoff"),
    *("walltime", "replay", "name", "after", "priority", "memo"),
    *("release", "affinity", "final", "attributes", "monitors", "checkpoint", "checkpoint_file"),
    *("sites", "requires", "queue", "idempotent", "keep"),
)
NO_PLAN = BlobId(b"")
BESIDE = -1  # in the place of `TaskExtras.same_host_as`: where the task before it ran, whichever that will be


class TaskOptions(msgspec.Struct, frozen=True):
    """Options that have been read."""

    needs: Needs = ONE_CORE
    limits: Limits = NO_LIMITS
    name: str = ""
    after: tuple[Any, ...] = ()
    priority: int = 0
    memo: bool | None = None  # True: any earlier run counts; False: none does; None: as the session says
    extras: TaskExtras = NO_EXTRAS
    call_needs: Needs = ONE_CORE  # of functions: as `needs`, and at a service the Python that they were made with
    watching: Watching | None = None  # what watches it while it runs; `extras` names its plan


DEFAULTS = TaskOptions()
AT_SERVICE = TaskOptions(call_needs=Needs(python=OWN_PYTHON))  # executors have any Python there


def read_options(base: TaskOptions, given: Mapping[str, object]) -> TaskOptions:
    """Options on top of others; None says nothing."""
    said = {name: value for name, value in given.items() if value is not None}
    if not said:
        return base
    for name in said:
        if name not in NAMES:
            raise unknown_keyword("a task", name, NAMES)
    needs = _needs(base.needs, said)
    watching = base.watching
    if "monitors" in said:
        from bough.api.submit.task_options.monitor_options import read_monitors  # few tasks are watched

        watching = read_monitors(said["monitors"], watching)
    return TaskOptions(
        needs=needs,
        limits=_limits(base.limits, said),
        name=_text("name", said["name"]) if "name" in said else base.name,
        after=(*base.after, *read_after(said["after"])) if "after" in said else base.after,
        priority=_whole("priority", said["priority"]) if "priority" in said else base.priority,
        memo=_yes("memo", said["memo"]) if "memo" in said else base.memo,
        extras=_terms(base.extras, said, NO_PLAN if watching is None else watching.id),
        call_needs=base.call_needs if needs is base.needs else replace(needs, python=base.call_needs.python),
        watching=watching,
    )


def _terms(base: TaskExtras, said: Mapping[str, object], watch: BlobId) -> TaskExtras:
    if said.keys() & {"checkpoint", "checkpoint_file"}:
        from bough.api.submit.task_options.checkpoint_options import read_checkpoint  # few tasks have one

        base = replace(base, checkpoint=read_checkpoint(base.checkpoint, said))
    if not said.keys() & {"release", "affinity", "final", "attributes"}:
        return base if watch == base.watch else replace(base, watch=watch)
    beside = _yes("affinity", said["affinity"]) if "affinity" in said else base.same_host_as == BESIDE
    return TaskExtras(
        release=_yes("release", said["release"]) if "release" in said else base.release,
        final=_yes("final", said["final"]) if "final" in said else base.final,
        same_host_as=BESIDE if beside else 0,
        attributes=read_attributes(said["attributes"], base.attributes) if "attributes" in said else base.attributes,
        watch=watch,
        checkpoint=base.checkpoint,
    )


def read_attributes(given: object, base: tuple[tuple[str, str], ...] = ()) -> tuple[tuple[str, str], ...]:
    """The user's own attributes, on top of others."""
    if not isinstance(given, Mapping):
        raise WrongType(f"attributes is {shown(given)}; give a dict such as {{'est': 3.5}}")
    found = dict(base)
    for name, value in given.items():
        if not isinstance(value, str | int | float):
            raise BadValue(f"attributes[{name!r}] is {shown(value)}; give a text or a number")
        found[_text("attributes", name)] = _text(f"attributes[{name!r}]", _as_text(value))
    return tuple(found.items())


def read_whole(name: str, value: object) -> int:
    """A whole number that is not negative."""
    return _whole(name, value, at_least=0)


def read_time(name: str, value: object) -> float:
    """A time in seconds."""
    return float(_read(name, value, read_seconds, '"90s", "1h" or seconds'))


def _yes(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongType(f"{name} is {shown(value)}; give True or False")
    return value


def _keep(value: object) -> Keep:
    if value == LATER:
        return LATER
    if not isinstance(value, bool):
        raise WrongType(f'keep is {shown(value)}; give True, False or "later"')
    return value


def _needs(base: Needs, said: Mapping[str, object]) -> Needs:
    if said.keys() & {"sites", "requires"}:
        base = _where(base, said)
    if not said.keys() & {"cores", "memory", "gpus", "resources", "queue"}:
        return base
    named = dict(base.named)
    resources = said.get("resources", {})
    if not isinstance(resources, Mapping):
        raise WrongType(f"resources is {shown(resources)}; give a dict such as {{'license': 1}}")
    for name, amount in resources.items():
        if name in {"cores", "memory", "gpus"}:
            raise BadValue(f"resources has {shown(name)}; give {name}= instead")
        named[_text("resources", name)] = _amount(f"resources[{name!r}]", amount)
    return Needs(
        cores=_amount("cores", said["cores"]) if "cores" in said else base.cores,
        memory=_read_memory(said["memory"])[0] if "memory" in said else base.memory,
        gpus=_gpus(said["gpus"]) if "gpus" in said else base.gpus,
        named=tuple(sorted((name, amount) for name, amount in named.items() if amount)),
        sites=base.sites,
        requires=base.requires,
        queue=read_queue(said["queue"]) if "queue" in said else base.queue,
    )


def _where(base: Needs, said: Mapping[str, object]) -> Needs:
    """Where a task may run: at fewer sites than what is around it says, and with what both require."""
    sites, requires = base.sites, base.requires
    if "sites" in said:
        sites = read_sites(said["sites"])
        beyond = [site for site in sites if base.sites and site not in base.sites]
        if beyond:
            raise BadValue(f"sites has {shown(beyond[0])}; what is around it is bound to: {', '.join(base.sites)}")
    if "requires" in said:
        text = said["requires"]
        if not isinstance(text, str):
            raise WrongType(f"requires is {shown(text)}; give a text such as \"memory_gb >= 64 and 'avx512' in cpu\"")
        check_sendable("requires", text)
        read_requirement(text.strip())
        requires = join_requirements(requires, text.strip())
        read_requirement(requires)
    return replace(base, sites=sites, requires=requires)


def read_sites(given: object) -> tuple[str, ...]:
    """Names of sites, each once, in order; a text is names with commas between them."""
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, Iterable):
        raise WrongType(f"sites is {shown(given)}; give a list of names, such as ['local', 'alpha']")
    found = []
    for name in names:
        if not isinstance(name, str):
            raise WrongType(f"sites holds {shown(name)}; give names of sites, such as ['local', 'alpha']")
        check_sendable("sites", name)
        found.append(within("sites", name.strip(), SiteName))
    if not found:
        raise BadValue("sites is empty; name a site, or leave it out")
    return within("sites", tuple(sorted(set(found))), SiteNames)


def read_queue(value: object) -> str:
    """The name of a named queue."""
    if not isinstance(value, str):
        raise WrongType(f"queue is {shown(value)}; give the name of a queue, see bough queue list")
    try:
        return within("queue", value, QueueName)
    except BadValue:
        raise BadValue(f"queue is {shown(value)}; a queue's name has letters, digits and any of . _ -") from None


def _limits(base: Limits, said: Mapping[str, object]) -> Limits:
    if not said.keys() & {"timeout", "memory", "retries", "backoff", "walltime", "replay", "idempotent", "keep"}:
        return base
    memory, memory_growth = base.memory, base.memory_growth
    if "memory" in said:
        memory, memory_growth = _read_memory(said["memory"])
    timeout, timeout_growth = base.timeout, base.timeout_growth
    if "timeout" in said:
        timeout, timeout_growth = _read_growing(
            "timeout", said["timeout"], read_seconds, '"90s", "1h", "1h*2" or seconds'
        )
    retries = _whole("retries", said["retries"], at_least=0) if "retries" in said else base.retries
    for name, growth in (("memory", memory_growth), ("timeout", timeout_growth)):
        if growth and name in said and not retries:
            raise BadValue(
                f"{name} is {shown(said[name])}: it grows from one attempt to the next; give retries= as well"
            )
    seconds = {
        name: _read(name, said[name], read_seconds, '"90s", "1h" or seconds') if name in said else before
        for name, before in (
            ("backoff", base.backoff),
            ("walltime", base.walltime),
            ("replay", base.resend_after),
        )
    }
    return Limits(
        timeout=timeout,
        memory=memory,
        retries=retries,
        backoff=seconds["backoff"],
        walltime=seconds["walltime"],
        losses=base.losses,
        resend_after=seconds["replay"],
        memory_growth=memory_growth,
        timeout_growth=timeout_growth,
        keep=_keep(said["keep"]) if "keep" in said else base.keep,
        **idempotence(_yes("idempotent", said["idempotent"]) if "idempotent" in said else base.idempotent),
    )


def _read_memory(value: object) -> tuple[int, float]:
    return _read_growing("memory", value, read_bytes, '"4GB" or "4GB*2"')


def _read_growing(name: str, value: object, reader: Callable[[Any], float], example: str) -> tuple[Any, float]:
    """An amount, and the factor by which it grows after each attempt that it ended (0: it does not)."""
    try:
        amount, growth = split_growth(value)
    except ValueError:
        raise BadValue(
            f"{name} is {shown(value)}; give something like {example}, a factor above 1 and up to 100"
        ) from None
    return _read(name, amount, reader, example), growth


def _read(name: str, value: object, reader: Callable[[Any], float], example: str) -> Any:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(value)  # noqa: TRY004 - told as an error of the user's below
        found = reader(value)
    except ValueError:
        raise BadValue(f"{name} is {shown(value)}; give something like {example}") from None
    if reader is read_bytes:
        return within(name, found, Count)
    return within(name, found, Duration)


def _amount(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(f"{name} is {shown(value)}; give a number that is not negative")
    within(name, value, Amount)
    return value


def _gpus(value: object) -> float:
    count = _amount("gpus", value)
    if count != int(count):
        raise BadValue(f"gpus is {shown(value)}; give a whole number: a task has a GPU to itself")
    return count


def _whole(name: str, value: object, at_least: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        more = "" if at_least is None else " that is not negative"
        raise BadValue(f"{name} is {shown(value)}; give a whole number{more}")
    return within(name, value, Whole if at_least is None else Count)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise WrongType(f"{name} is {shown(value)}; give a text")
    check_sendable(name, value)
    return within(name, value, Name)


def _as_text(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # a number of more digits than Python writes
        raise BadValue(f"attributes holds {shown(value)}; give a smaller one") from None


def read_after(value: object) -> tuple[Any, ...]:
    """What is to be waited for."""
    if is_waitable(value):
        return (value,)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise WrongType(f"after is {shown(value)}; give a list of tasks, arrays and groups")
    return tuple(value)


def is_waitable(thing: object) -> bool:
    """Whether something can stand in `after`."""
    return isinstance(thing, Task | Array) or hasattr(type(thing), "__bough_deps__") or _producer(thing) is not None


def deps_of(thing: object, registry: Home) -> tuple[Dep, ...]:
    """The dependencies that one entry of `after` means."""
    if isinstance(thing, Task):
        _same_session(thing._registry, registry, thing)
        if registry.deferred and (sent := registry.deferred.get(thing.record)) is not None:
            sent.result()
        if registry.unsent and thing.record in registry.unsent:
            raise NotRun(f"it waits for {thing!r:.80}, which could not be sent to a worker", thing.id)
        return (thing.dep(),)
    if isinstance(thing, Array):
        for owner in thing.owners():
            _same_session(owner, registry, thing)
        return thing.deps()
    find = getattr(thing, "__bough_deps__", None)
    if find is not None:
        owner, deps = find()
        _same_session(owner, registry, thing)
        return tuple(deps)
    producer = _producer(thing)
    if producer is not None:
        return deps_of(producer, registry)
    raise WrongType(f"after holds {thing!r:.80}; give tasks, arrays and groups")


def after_deps(things: Iterable[object], registry: Home) -> tuple[Dep, ...]:
    """The dependencies of an `after`, each once, in order."""
    deps = [dep for thing in things for dep in deps_of(thing, registry)]
    return tuple(deps) if len(deps) < 2 else tuple(dict.fromkeys(deps))


def _producer(thing: object) -> Task | None:
    found = getattr(thing, "task", None) if isinstance(thing, str) else None
    return found if isinstance(found, Task) else None


def _same_session(owner: Home, registry: Home, thing: object) -> None:
    if owner is not registry:
        raise BadValue(f"{thing!r:.80} belongs to another session; a task can wait only for what its own session runs")


_SHALLOW: frozenset[type] = frozenset({Task, int, float, str, bytes, bool, complex, type(None)})


class Arguments:
    """The arguments of a call, with marks in the places of values that come later."""

    __slots__ = ("_has_futures", "_registry", "after", "args", "commands", "inputs", "kwargs", "others")

    def __init__(self, registry: Home, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._registry = registry
        self.inputs: dict[Dep, int] = {}
        self.after: dict[Dep, None] = {}
        self._has_futures = False  # of others
        self.others: list[Future[Any]] = []  # not of this session, or not there yet: to be waited for before it is sent
        self.commands: list[str] = []  # texts of the commands whose results are wanted, in the order of their marks
        if not kwargs and _SHALLOW.issuperset(map(type, args)):  # most calls that wait for something
            self.args = tuple([self._mark(thing) if type(thing) is Task else thing for thing in args])
            self.kwargs = kwargs
            return
        kinds = (Future, Array, str)
        self.args = replaced(args, kinds, self._mark)
        self.kwargs = replaced(kwargs, kinds, self._mark)

    @property
    def stands_for_others(self) -> bool:
        """Whether something among them stands for a value that is, or was, still to come."""
        return bool(self.after or self.others or self._has_futures)

    def _mark(self, thing: Any) -> Any:
        if isinstance(thing, str):
            producer = _producer(thing)
            if producer is None:
                return thing
            self.after[deps_of(producer, self._registry)[0]] = None
            return str(thing)
        if isinstance(thing, Future) and (not isinstance(thing, Task) or thing._registry is not self._registry):
            return self._of_another(thing)
        if isinstance(thing, Array) and any(owner is not self._registry for owner in thing.owners()):
            return [self._mark(task) for task in thing.tasks()]
        if isinstance(thing, Task):
            if self._registry.deferred and (sent := self._registry.deferred.get(thing.record)) is not None:
                self.others.append(sent)
                return None
            if thing.is_command:
                self.commands.append(thing.command)
            return self._ref(deps_of(thing, self._registry)[0])
        deps = deps_of(thing, self._registry)
        if thing.is_command:
            self.commands += [task.command for task in thing.tasks()]
        if isinstance(thing, ArrayView) and thing.is_whole and deps:
            return self._ref(deps[0])
        return [self._ref(dep) for dep in deps]

    def _of_another(self, future: Future[Any]) -> Any:
        """The value of a future that this session knows nothing of, if it is there."""
        self._has_futures = True
        if future.done():
            return value_of_other(future)
        self.others.append(future)
        return None

    def _ref(self, dep: Dep) -> Ref:
        number = self.inputs.setdefault(dep, len(self.inputs))
        self.after[dep] = None
        return Ref(number)
