"""Which ready tasks want which data, so that a policy finds the best for an executor without walking the queue.

Each content has a list of the ready tasks that read it, and their number. Each place (a host, or a site) has the set of
the contents that it holds and that some ready task reads, and keys of them, the largest first. What an executor is best
for is found among the first readers of the first contents of its place: so a decision costs the same however long the
queue is. How much of a task's input is at a place is a look into that set for each of its contents. A content that a
place gains is put into both; one that it loses leaves the set at once, and the keys when it comes to the front.

This is the inverted index that `falkon.md` 3.3 aims at: its window scheduler without the window.
The shared store of a site counts where places are sites; a host has only what its own cache has.
Rule: a content that a ready task reads is in the set of every place that holds it, unless it is common; a common one
tells no place from another. In the set may also be what nobody reads any more, until it comes to the front.
Rule: a task that is not ready any more is counted no more, and dropped from a list where it is met, or once most of the
list are such; so what is kept is bounded by what waits. What becomes ready is taken up in slices, so that no turn walks
a long array.

With a window (`DataNeeds.window`, Falkon's W) only so many tasks are listed, those that became ready first. When one of
them leaves, the next is taken up. So a window costs what leaves it; without one nothing is done for it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Final

from bough.core.data.data_index import DataIndex, HostRecord
from bough.core.data.estimates import Basis, Estimates
from bough.core.records.array_record import Record
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.indexes.announcements import Announcements
from bough.core.records.indexes.arrivals import Arrivals
from bough.core.records.indexes.data_places import Place
from bough.core.records.indexes.outdone import Outdone
from bough.core.records.indexes.placed_inputs import PlacedInputs
from bough.core.records.indexes.roomy_executors import RoomyExecutors
from bough.core.records.indexes.waiting_units import Unit, UnitKey, files_read, template_of
from bough.model.ids import Seconds
from bough.model.outcomes import Detail
from bough.policy.interface import DataNeeds, PlanNotes

_SLICE: Final = 4096  # ready tasks that are taken up in one turn
_CHECKED: Final = 16  # tasks of a full window that are looked at in one turn, whether they are still ready
_READERS: Final = 8  # of each of these
_NAMED: Final = 64  # places that are named as holders of one task's input
_COSTED: Final = 8  # of very many holders of a content are asked when they may want work
_LONG: Final = 64  # readers of a content from which on it costs to take the first ones out of a list
_UNHELD: Final = 16  # tasks without any data that are looked at for one decision
_WAITING: Final = 1024  # tasks that a policy may walk through in one turn
_SLACK: Final = 64  # stale entries that a heap may have, besides as many as valid ones
_NO_FILES: Final[array[int]] = array("I")
_NO_UNITS: Final[list[Unit]] = []
_UNKNOWN: Final = 0xFFFFFFFF


class AffinityIndex:
    """See the module."""

    def __init__(
        self,
        data: DataIndex,
        needs: DataNeeds,
        executors: Mapping[int, ExecutorRecord],
        estimates: Estimates | None = None,
    ) -> None:
        self.data = data
        self.estimates = estimates if estimates is not None else Estimates()
        self.placed = PlacedInputs()
        self.by_files = needs.by == "files"
        self._per_file = needs.per_file
        self._weights = data.contents.weights
        self.frozen = needs.frozen
        self._by_site = needs.place == "site"
        # whether it is kept where all that has data has more of it elsewhere: see `Outdone`
        self.can_be_outdone = not (self._by_site or self.frozen)
        self.window = needs.window
        self.patience = needs.patience
        self._notes_sizes = needs.estimates
        self.follows_arrivals = needs.arrivals
        self.arrivals = Arrivals(data, executors)
        self.owed = 0  # turns of those that became ready first, see `took_turn`
        self._unchecked: list[UnitKey] = []  # with a window: listed tasks that may be ready no more
        self._withdrawn = False  # with a window: some of them were cancelled or held
        self._fills = False  # with a window: it is being filled
        self.has_slid = False  # with a window: something was taken up because something else left
        self._executors = executors
        self.is_used = False  # something that declares inputs was ready once
        self.has_priorities = False  # some work that was ready once had another priority than 0
        self.announcements = Announcements()
        self.outdone = Outdone()
        self.roomy = RoomyExecutors()
        self._new: deque[list[object]] = deque()  # record, start, stop, when: what became ready and is not taken up
        self.units: dict[UnitKey, Unit] = {}  # that wait, by `key_of`
        self._in_order: deque[Unit] = deque()  # as they became ready; some may not wait any more
        self._clean_at = _SLACK  # so many of these are looked through for those
        self._readers: list[list[Unit] | deque[Unit] | None] = []  # by content; some may not be ready any more
        self._wanting = array("i")  # by content: how many of its readers have not left, see `left`
        # by run and file: readers of what nobody has identified
        self._unknown: dict[int, dict[int, dict[Unit, None]]] = {}
        self._places: dict[str, Place] = {}  # by name
        self._place_of: dict[int, Place] = {}  # by number of the host
        self._where: dict[int, tuple[int, Place]] = {}  # by executor: the number of its host, and its place
        self._unheld: deque[Unit] = deque()  # nobody held anything of them when they were looked at
        self._lost: dict[int, None] = {}  # contents that nobody holds any more
        self._then: dict[int, frozenset[str]] = {}  # frozen: the places of a content
        self._frozen_by: dict[int, int] = {}  # frozen: by content: the newest workflow that reads it
        self._notes: dict[int, PlanNotes] = {}  # of the policy, by run
        data.listener = self
        for host in data.hosts.values():
            for executor in host.executors:
                self.on_executor(host, executor)
        self._make_room()

    # --- what happens ----------------------------------------------------------------------------

    def became_ready(self, record: Record, start: int, stop: int, now: Seconds) -> None:
        """Elements that declare inputs are ready."""
        if not self.is_used:
            self.is_used = True
            for executor in self._executors:  # some may be busy: what they took was not noted before
                self.announcements.served(executor, now)
        self._new.append([record, start, stop, now])

    def unlisted(self) -> Iterator[tuple[Record, int, int]]:
        """What became ready and is not taken up."""
        return ((record, start, stop) for record, start, stop, _ in self._new)  # type: ignore[misc]

    def take_up(self) -> None:
        """List a slice of what became ready under the files that it reads."""
        if not self._new:
            return
        if self.window:
            self._check_window()
            self._fill_window()
        else:
            self._take_up(_SLICE)

    def _fill_window(self) -> None:
        """Take up the next that are ready, as many as the window has places for."""
        if self._fills:
            return  # what is taken up shows that another one has left
        self._fills, budget = True, _SLICE
        while self._new and budget > 0 and (places := self.window - len(self.units)) > 0:
            budget -= places  # elements that are ready no more take none
            self._take_up(places)
        self._fills = False

    def _take_up(self, left: int) -> None:
        while self._new and left > 0:
            record, start, stop, now = self._new[0]
            end = min(stop, start + left)  # type: ignore[operator, call-overload]
            for element in range(start, end):  # type: ignore[call-overload]
                self._list(record, element, now)  # type: ignore[arg-type]
            left -= end - start
            if end == stop:
                self._new.popleft()
            else:
                self._new[0][1] = end

    def withdrawn(self) -> bool:
        """Tasks were cancelled or held: whether others may be seen now in the place of some of them."""
        self._withdrawn = bool(self.window and self._new)
        return self._withdrawn

    def _check_window(self) -> None:
        """Look at some of the listed tasks: one that was cancelled has no place in the window."""
        unchecked, units = self._unchecked, self.units
        if not unchecked or self._withdrawn:
            unchecked[:] = units
        many = len(unchecked) if self._withdrawn else _CHECKED
        self._withdrawn = False
        for key in unchecked[-many:]:
            unit = units.get(key)
            if unit is not None and not unit.is_ready:
                self.drop(unit)
        del unchecked[-many:]

    def _list(self, record: Record, element: int, now: Seconds) -> None:
        unit = Unit(record, element, now)
        files = files_read(record, element)
        if not (files or record.has_inputs) or not unit.is_ready:
            return  # an element that reads nothing is listed if others of its array do: it is not plain work
        self._line_up(unit)
        if files:
            self.announcements.became_ready(unit, len(self.units))
        run, data, all_readers, wanting = unit.run, self.data, self._readers, self._wanting
        self._look_up(unit)
        contents, held = data.contents_by_run.get(run, _NO_FILES), False
        for file in files:
            content = contents[file] if file < len(contents) else _UNKNOWN
            if content == _UNKNOWN:
                unit.reads_unknown = True
                self._unknown.setdefault(run, {}).setdefault(file, {})[unit] = None
                continue
            if self.frozen:
                self._freeze(content, run)
            wanting[content] += 1
            readers = all_readers[content]
            if readers is not None:
                readers.append(unit)
                if len(readers) > 2 * wanting[content] + _SLACK:
                    all_readers[content] = [one for one in readers if not one.gone]
            else:
                all_readers[content] = [unit]
                self._want(content)
            held = held or self._is_held(content)
        self.outdone.read_otherwise(self.contents_of(unit))
        if not held:
            self._unheld.append(unit)
            self._bound_unheld()

    def _line_up(self, unit: Unit) -> None:
        """A task waits from now on."""
        key = unit.key
        former = self.units.pop(key, None)
        if former is not None:
            self.left(former)  # it waited before, and nobody has noticed that it did not meanwhile
        self.units[key] = unit
        self._in_order.append(unit)
        if len(self._in_order) > self._clean_at:
            self._drop_stale()

    def _bound_unheld(self) -> None:
        """Not every policy asks for what nobody holds: forget what does not wait any more, and what is there twice."""
        unheld = self._unheld
        if len(unheld) > 2 * len(self.units) + _SLACK:
            kept = dict.fromkeys(one for one in unheld if not one.gone)
            unheld.clear()  # in place: somebody may be walking through it
            unheld.extend(kept)

    def _drop_stale(self) -> None:
        """Forget the tasks that do not wait any more, also those of which nobody has noticed that."""
        in_order = self._in_order
        for unit in in_order:
            if not unit.is_ready:
                self.drop(unit)
        kept = [one for one in in_order if not one.gone]
        in_order.clear()  # in place: somebody may be walking through it
        in_order.extend(kept)
        self._clean_at = 2 * len(kept) + _SLACK

    def _make_room(self) -> None:
        """There may be more contents than there were."""
        more = len(self.data.holders_by_content) - len(self._wanting)
        if more > 0:
            self._readers += [None] * more
            self._wanting += array("i", (0,)) * more

    def _freeze(self, content: int, run: int) -> None:
        """A workflow reads a content: what was there before the newest such workflow counts."""
        if self._frozen_by.get(content, 0) >= run:
            return
        holders = self.data.holders(content)
        self._frozen_by[content] = run
        self._then[content] = frozenset(place.name for host in holders if (place := self._at(host)))
        if self._readers[content] is not None:
            self._want(content)

    def _want(self, content: int) -> None:
        """A content is read by something that is ready: it is listed where it is held."""
        data = self.data
        if content in data.common:
            return
        for host in data.holders(content):
            place = self._at(host)
            if place is not None:
                self._offer(place, (content,))

    def _offer(self, place: Place, contents: Iterable[int]) -> None:
        """A place holds contents that are wanted."""
        self.outdone.gained(place.name)
        new = [content for content in contents if content not in place.listed]
        if self.frozen:
            new = [content for content in new if place.name in self._then.get(content, ())]
        place.add(new)

    def drop(self, unit: Unit) -> None:
        """A task was met that is not ready any more: it was cancelled or held, and does not wait here either."""
        if not unit.gone:
            self.units.pop(unit.key, None)
            self.left(unit)

    def left(self, unit: Unit) -> None:
        """A task is not ready any more; lists of readers keep it until it is met, or most of them are like it."""
        if unit.gone:
            return
        unit.gone = True
        contents, wanting = unit.contents, self._wanting
        if contents is None:
            contents = self._look_up(unit)
        if self.outdone.places:
            self.outdone.read_otherwise(contents)
        for content in contents:
            left = wanting[content] - 1
            wanting[content] = left
            if left <= 0:
                self._readers[content] = None
        if unit.reads_unknown:
            self._leave_unknown(unit)
        if self.window:
            self._slide(unit)

    def _leave_unknown(self, unit: Unit) -> None:
        """A task is not ready any more, of whose files some may never be known: those that are read where they are."""
        by_file = self._unknown.get(unit.run, {})
        for file in files_read(unit.work, unit.element):
            readers = by_file.get(file)
            if readers is not None:
                readers.pop(unit, None)
                if not readers:
                    del by_file[file]

    def _slide(self, unit: Unit) -> None:
        """A task has left the window: the next one that is ready is in it."""
        self.units.pop(unit.key, None)
        before = len(self.units)
        self._fill_window()
        self.has_slid = self.has_slid or len(self.units) > before

    def on_gained(self, host: HostRecord, contents: Iterable[int]) -> None:
        """A host holds contents that it did not."""
        wanting, common = self._wanting, self.data.common
        if len(wanting) < len(self.data.holders_by_content):
            self._make_room()
        wanted = [content for content in contents if wanting[content] > 0 and content not in common]
        if wanted or common:
            place = self._place_of.get(host.number) or self._at(host.number)
            if place is not None:
                self._offer(place, wanted)

    def on_lost(self, host: HostRecord, contents: Sequence[int], by_all: Iterable[int]) -> None:
        """A host holds contents no more, and some of them no host does."""
        place, wanting = self._place_of.get(host.number), self._wanting
        if self.outdone.places and place is not None:
            self.outdone.lost(place.name, host.number, contents)
        if place is not None and not self.frozen:
            listed = place.listed
            if place.only >= 0:
                listed.difference_update(contents)
            else:  # other hosts of it may hold them
                listed.difference_update([one for one in contents if one in listed and not self.is_at(one, place)])
        if self.data.stores and not self._by_site:
            by_all = [content for content in contents if not self.data.is_cached(content)]
        for content in by_all:
            if wanting[content] > 0:
                self._lost[content] = None

    def on_rare(self, content: int) -> None:
        """A content that was common is not any more."""
        if self._wanting[content] > 0:
            self._want(content)

    def count_readers(self, content: int) -> int:
        """About how many that are ready read a content; those that began since may be among them."""
        return self._wanting[content]

    def on_identified(self, run: int, file: int, former: int) -> None:
        """The content of a file is known; `former`: the one that it had, below 0: none."""
        self._make_room()
        if former < 0:
            moved: list[Unit] = []
            for unit in self._unknown.get(run, {}).pop(file, ()):
                unit.contents = None
                moved += [unit] * files_read(unit.work, unit.element).count(file)
            self._add_readers(self.data.content_of(run, file), moved)
            return
        self._list_anew(
            [
                unit
                for unit in dict.fromkeys(self._readers[former] or ())
                if unit.run == run and not unit.gone and file in files_read(unit.work, unit.element)
            ]
        )

    def _add_readers(self, content: int, more: list[Unit]) -> None:
        """Tasks that are ready read a content."""
        if not more:
            return
        self.outdone.clear()
        if self.frozen:
            self._freeze(content, max(unit.run for unit in more))
        self._wanting[content] += len(more)
        readers = self._readers[content]
        if readers is not None:
            readers.extend(more)
        else:
            self._readers[content] = more
            self._want(content)

    def _list_anew(self, units: Iterable[Unit]) -> None:
        """Other contents than before are what some tasks read: a file of theirs has another one."""
        gone: dict[int, set[Unit]] = {}  # by content, each of which is gone through once
        more: dict[int, list[Unit]] = {}
        for unit in units:
            before = self.contents_of(unit)
            after = self._look_up(unit)
            for content in {*before, *after}:
                times, former = after.count(content), before.count(content)
                if times < former:
                    gone.setdefault(content, set()).add(unit)
                if times != former:
                    more.setdefault(content, []).extend([unit] * (times - former if times > former else times))
        for content, dropped in gone.items():
            self._drop_readers(content, dropped)
        for content, added in more.items():
            self._add_readers(content, added)

    def _drop_readers(self, content: int, gone: Collection[Unit]) -> None:
        """Some read a content no more."""
        left = [unit for unit in self._readers[content] or () if not (unit.gone or unit in gone)]
        self.outdone.clear()
        self._readers[content] = left or None
        self._wanting[content] = len(left)

    def on_executor(self, host: HostRecord, executor: int) -> None:
        """An executor joined a host, or left it."""
        self._where.pop(executor, None)
        if self.follows_arrivals:
            change = self.arrivals.joined if executor in host.executors else self.arrivals.left
            change(executor, host.number)

    def on_executor_left(self, executor: int) -> None:
        """An executor is gone."""
        self.roomy.pop(executor)
        self.announcements.left(executor, self.units)

    def on_left(self, host: HostRecord) -> None:
        """A host is gone."""
        place = self._place_of.pop(host.number, None)
        self.outdone.clear()
        if place is not None:
            del place.hosts[host.number]
            place.only = next(iter(place.hosts)) if len(place.hosts) == 1 else -1
            if not place.hosts:
                del self._places[place.name]

    def forget_run(self, run: int, contents: Iterable[int]) -> None:
        """A workflow leaves, whose files have these contents."""
        for units in self._unknown.pop(run, {}).values():
            for unit in units:
                self.drop(unit)
        self.outdone.clear()
        for content in contents:
            gone = {unit for unit in self._readers[content] or () if unit.run == run}
            for unit in gone:
                self.drop(unit)
            if gone:
                self._drop_readers(content, gone)
            if self._frozen_by.get(content) == run and self._wanting[content] <= 0:
                del self._frozen_by[content], self._then[content]
        self._notes.pop(run, None)
        self.placed.forget_run(run)

    def note_runtime(self, record: Record, host: str, start: int, stop: int, seconds: Seconds) -> None:
        """Tasks of a template ran on a host."""
        template = template_of(record)
        self.estimates.note_runtime(template, host, stop - start, seconds)
        if self._notes_sizes and stop - start == 1 and record.has_inputs and (size := self.input_size(record, start)):
            self.estimates.note_size(template, host, size, seconds)

    def input_size(self, record: Record, element: int) -> int:
        """The bytes that a task reads; 0: it declares none, or what one of its files holds is not known."""
        files, run = files_read(record, element), record.group.workflow.run
        known, sizes = self.data.contents_by_run.get(run, _NO_FILES), self.data.contents.sizes
        found = [known[file] for file in files if file < len(known)]
        return 0 if _UNKNOWN in found or len(found) < len(files) else sum([sizes[content] for content in found])

    def note_outputs(self, record: Record, details: Sequence[Detail]) -> None:
        """Tasks of a template left outputs."""
        size = sum(output.size for detail in details for output in detail.outputs)
        self.estimates.note_outputs(template_of(record), len(details), size)

    def expected_output(self, record: Record) -> int:
        """The bytes that a task of some work leaves; 0: unknown."""
        return self.estimates.output_size(template_of(record))

    def expected_on(self, record: Record, element: int, host: str) -> tuple[Seconds, Basis]:
        """The run time of a task on a host, and where that is from: see `Estimates`; 0: unknown."""
        size = self.input_size(record, element) if element >= 0 and record.has_inputs else 0
        found = self.estimates.run_time(template_of(record), host, size)
        if found[0]:
            return found
        basis = Basis.TEMPLATE if record.runtime.mean else Basis.USER if record.expected else Basis.NOTHING
        return record.expected, basis

    def notes(self, run: int) -> PlanNotes:
        """What the policy remembers of a workflow."""
        found = self._notes.get(run)
        if found is None:
            found = self._notes[run] = PlanNotes()
        return found

    def openings(self, open_executors: Mapping[int, ExecutorRecord], *, for_most: bool) -> list[ExecutorRecord]:
        """Executors with room where some ready task has data; `for_most`: and it may be the most there is."""
        where, roomy = self._where, self.roomy
        if not self.units:
            return []
        if for_most and self.can_be_outdone:
            places = [place for name in self.outdone.take_again() if (place := self._places.get(name)) is not None]
            again = [number for place in places for host in place.hosts.values() for number in host.executors]
            some = roomy.unlooked(open_executors, again, self._is_outdone)
        else:
            some = roomy.all_with_room(open_executors)
        return [
            one
            for one in some
            if (place := known[1] if (known := where.get(one.id)) is not None else self.place_of(one)) is not None
            and place.wanted
        ]

    def _is_outdone(self, executor: ExecutorRecord) -> bool:
        outdone = self.outdone.places
        return bool(outdone) and (place := self.place_of(executor)) is not None and place.name in outdone

    # --- questions -------------------------------------------------------------------------------

    def weight(self, content: int) -> int:
        """How much a content counts."""
        return 1 if self.by_files else self._weights[content] + self._per_file

    def place_of(self, executor: ExecutorRecord) -> Place | None:
        """Where an executor is."""
        known = self._where.get(executor.id)
        if known is not None:
            return known[1]
        host = self.data.host_of(executor)
        place = self._at(host.number) if host is not None else None
        if host is not None and place is not None:
            self._where[executor.id] = host.number, place
        return place

    def places(self) -> dict[str, Place]:
        """The places where something is held that was wanted."""
        return self._places

    def _at(self, number: int) -> Place | None:
        place = self._place_of.get(number)
        if place is None:
            host = self.data.by_number[number]
            if host is None or (host.is_store and not self._by_site):
                return None
            name = host.site if self._by_site else f"{host.site}/{host.host}"
            place = self._places.get(name)
            if place is None:
                place = self._places[name] = Place(name, None if self.by_files else self._weights)
            place.hosts[number] = host
            place.only = number if len(place.hosts) == 1 else -1
            self._place_of[number] = place
        return place

    def _is_held(self, content: int) -> bool:
        """Whether any place holds a content."""
        return self.data.is_held(content) if self._by_site else self.data.is_cached(content)

    def is_at(self, content: int, place: Place) -> bool:
        """Whether a place holds a content, or held it then."""
        if self.frozen:
            return place.name in self._then.get(content, ())
        data, hosts = self.data, place.hosts
        if place.only >= 0:
            return data.holds(content, place.only)
        holders = data.holders_by_content[content]
        if type(holders) is int:
            return holders in hosts
        if type(holders) is tuple:
            return not hosts.keys().isdisjoint(holders)
        return any(data.holds(content, host) for host in hosts)

    def bytes_then(self, run: int, files: Iterable[int], place: str) -> int:
        """Frozen: how many bytes of some files of a workflow a place held then."""
        contents = [self.data.content_of(run, file) for file in files]
        return sum(self.data.contents.sizes[one] for one in contents if one >= 0 and place in self._then.get(one, ()))

    def measure(self, unit: Unit, place: Place | None) -> tuple[int, int]:
        """How much of what is known of a task's input is at a place, and how much it is in all."""
        contents = unit.contents
        if contents is None:
            contents = self._look_up(unit)
        here = 0
        if place is not None:
            for content in contents:
                if self.is_at(content, place):
                    here += self.weight(content)
        return here, unit.total

    def here(self, unit: Unit, place: Place | None) -> int:
        """As `measure`, for a task that is listed here: by the rule of the module a look at each content is enough."""
        contents = unit.contents
        if contents is None:
            contents = self._look_up(unit)
        if self.frozen or place is None:
            return self.measure(unit, place)[0]
        listed, common, here = place.listed, self.data.common, 0
        weights, per_file = None if self.by_files else self._weights, self._per_file
        for content in contents:
            if content in listed or (common and content in common and self.is_at(content, place)):
                here += 1 if weights is None else weights[content] + per_file
        return here

    def _places_holding(self, content: int) -> Iterable[str]:
        """The names of the places that hold a content, each once; of a content that many hold some."""
        some = islice(self.data.holders(content), _NAMED)
        return dict.fromkeys([place.name for host in some if (place := self._at(host))])

    def contents_of(self, unit: Unit) -> array[int]:
        """The contents of a task's input, as far as they are known."""
        contents = unit.contents
        return contents if contents is not None else self._look_up(unit)

    def _look_up(self, unit: Unit) -> array[int]:
        files = files_read(unit.work, unit.element) if unit.element >= 0 else ()
        known = self.data.contents_by_run.get(unit.run, _NO_FILES)
        count = len(known)
        found = [known[file] for file in files if file < count]
        if _UNKNOWN in found:
            found = [content for content in found if content != _UNKNOWN]
        unit.contents = contents = array("I", found)
        weights, per_file = self._weights, self._per_file
        unit.total = len(found) if self.by_files else sum([weights[content] + per_file for content in found])
        return contents

    def candidates(self, place: Place) -> Iterator[list[Unit]]:
        """Tasks that read the first contents of a place and were ready when last met, content by content."""
        wanting, all_readers = self._wanting, self._readers
        place.drop_first(wanting)
        for content in place.first():
            if (count := wanting[content]) > 0:
                readers = all_readers[content]
                all_ready = type(readers) is list and len(readers) == count <= _READERS
                yield readers if all_ready else self._first_readers(content)  # type: ignore[misc]

    def best_at(self, place: Place, accept: Callable[[Unit, int], bool]) -> tuple[Unit, int] | None:
        """The candidate with the most of its input at a place, and how much that is, of those that are accepted.

        Priorities come first. Who cannot be the best is not asked after: it has less there, or in all.
        """
        best: tuple[Unit, int] | None = None
        most, highest, ranked = -1, 0, self.has_priorities
        for units in self.candidates(place):
            for unit in units:
                least = most
                if ranked and best is not None and (priority := unit.work.priority) != highest:
                    if priority < highest:
                        continue
                    least = -1
                if unit.total <= least and unit.contents is not None:
                    continue
                here = self.here(unit, place)
                if here > least and accept(unit, here):
                    best, most, highest = (unit, here), here, unit.work.priority
                    if here == unit.total and not ranked:
                        return best
        return best

    def _first_readers(self, content: int, most: int = _READERS) -> list[Unit]:
        """The first ready tasks that read a content; others before them are dropped."""
        readers = self._readers[content]
        if readers is None:
            return _NO_UNITS
        found: list[Unit] = []
        looked = 0
        for unit in readers:
            looked += 1
            if not unit.gone:
                found.append(unit)
                if len(found) >= most:
                    break
        if looked > len(found):
            if isinstance(readers, list) and len(readers) < _LONG:
                readers[:looked] = found
                return found
            queue = self._readers[content] = deque(readers) if isinstance(readers, list) else readers
            for _ in range(looked):
                queue.popleft()
            queue.extendleft(reversed(found))
        return found

    def wanted_at(self, place: Place) -> list[int]:
        """The first contents that a place holds and some ready task reads."""
        return list(place.first())

    def readers(self, content: int, most: int) -> list[Unit]:
        """The tasks that read a content and became ready first; some may be ready no more."""
        return self._first_readers(content, most)

    def first_unheld(self, could_go: Callable[[Unit], bool]) -> Unit | None:
        """The first of the ready tasks whose input nobody holds that could go somewhere; some are asked."""
        if self._lost:
            lost, self._lost = self._lost, {}
            for content in lost:
                if not self._is_held(content):
                    self._unheld.extend(self._first_readers(content))
            self._bound_unheld()
        looked: list[Unit] = []
        waiting, is_held = self._unheld, self._is_held
        found: Unit | None = None
        while waiting and found is None and len(looked) < _UNHELD:
            unit = waiting.popleft()
            if not unit.gone and unit.is_ready and not any(map(is_held, self.contents_of(unit))):
                looked.append(unit)
                if could_go(unit):
                    found = unit
        waiting.extendleft(reversed(looked))
        return found

    def waiting(self) -> Iterator[Unit]:
        """The first ready tasks with inputs, in the order they became ready; what was placed meanwhile is left out."""
        seen, size = 0, 4
        while seen < _WAITING:
            some = self._first_waiting(seen + size)[seen:]
            if not some:
                return
            for unit in some:
                if not unit.gone and unit.is_ready:
                    yield unit
            seen += sum([not unit.gone for unit in some])  # those that are still there
            size *= 4

    def _first_waiting(self, most: int) -> list[Unit]:
        """The first ready tasks with inputs; others before them are dropped."""
        in_order = self._in_order
        found: list[Unit] = []
        while in_order and len(found) < most:
            unit = in_order.popleft()
            if unit.gone:
                continue
            if unit.is_ready:
                found.append(unit)
            else:
                self.drop(unit)
        in_order.extendleft(reversed(found))
        return found

    def took_turn(self, unit: Unit) -> None:
        """A task was placed; the first that waits is owed a turn for each that came much later and went before it.

        Who is owed turns for having waited long would get all of them where a queue is long, and no data would count.
        """
        in_order = self._in_order
        while in_order and in_order[0].gone:
            in_order.popleft()
        if in_order and in_order[0] is not unit:
            if unit.since > in_order[0].since + self.patience:
                self.owed = min(self.owed + 1, _WAITING)
        elif self.owed:
            self.owed -= 1

    def most_held(self, unit: Unit) -> int:
        """The most of a task's input that any place holds; of a content that many hold some are looked at."""
        if self._by_site:
            return max(self.holders(unit).values(), default=0)
        return max(self.held_by_hosts(unit).values(), default=0)

    def better_host(self, contents: array[int], here: int) -> int:
        """A host that holds more of some contents than so much, below 0: none does; see `most_held`."""
        if here > 0 and self._is_spread(contents, here):
            return -1
        scores = self.amounts_at_hosts(contents)
        best = max(scores, key=scores.__getitem__, default=-1)
        return best if best >= 0 and scores[best] > here else -1

    def _is_spread(self, contents: Iterable[int], most: int) -> bool:
        """Whether no host has two of some contents, nor one that counts for more than so much: as mostly."""
        all_holders, weighs, found = self.data.holders_by_content, not self.by_files or most < 1, list[int]()
        for content in contents:
            holders = all_holders[content]
            if type(holders) is tuple:
                found += holders
            elif type(holders) is not int:
                found += self.data.some_holders(content, _NAMED)
            elif holders >= 0:
                found.append(holders)
            else:
                continue  # nobody has it
            if weighs and self.weight(content) > most:
                return False
        return len(set(found)) == len(found)

    @property
    def by_site(self) -> bool:
        """Whether places are sites, and not hosts."""
        return self._by_site

    def tells_hosts_apart(self, unit: Unit) -> bool:
        """Whether all hosts are known that hold something of a task's input, where places are hosts."""
        common = self.data.common
        return self.can_be_outdone and (not common or common.isdisjoint(self.contents_of(unit)))

    def held_by_hosts(self, unit: Unit) -> dict[int, int]:
        """How much of a task's input hosts hold, by their numbers."""
        return self.amounts_at_hosts(self.contents_of(unit))

    def amounts_at_hosts(self, contents: Iterable[int]) -> dict[int, int]:
        """As `held_by_hosts`, of some contents."""
        scores: dict[int, int] = {}
        data = self.data
        all_holders = data.holders_by_content
        for content in contents:
            weight = self.weight(content)
            holders = all_holders[content]
            for host in holders if type(holders) is tuple else data.some_holders(content, _NAMED):  # a tuple has few
                scores[host] = scores[host] + weight if host in scores else weight
        for store in data.stores.values():
            scores.pop(store.number, None)
        return scores

    def soonest_cost(
        self,
        unit: Unit,
        except_at: Place | None,
        rate: float,
        now: Seconds,
        latest: Seconds,
        *,
        could_run: Callable[[Unit, HostRecord], bool] | None = None,
    ) -> float:
        """The least of the time until a holder may ask for work, up to `latest`, and `rate` for all it has not.

        `could_run`: which holders count.
        """
        soon = self.arrivals.until(latest)
        own = except_at.only if except_at is not None else -1
        own_time = soon.pop(own, None)  # it has some of it, mostly, and would be looked at in vain
        scores = self._amounts_in_time(unit, soon)
        if own < 0 and except_at is not None:
            for host in scores.keys() & except_at.hosts.keys():
                del scores[host]
        least, total = inf, unit.total
        by_number = self.data.by_number
        for host, here in scores.items():
            when = soon[host]
            cost = (total - here) * rate + (when - now if when > now else 0.0)
            if cost < least and (could_run is None or ((one := by_number[host]) is not None and could_run(unit, one))):
                least = cost
        if own_time is not None:
            soon[own] = own_time
        return least

    def _amounts_in_time(self, unit: Unit, soon: Mapping[int, Seconds]) -> dict[int, int]:
        """How much of a task's input those hosts hold that may ask in time, by their numbers."""
        scores: dict[int, int] = {}
        all_holders, asks_late = self.data.holders_by_content, soon.keys().isdisjoint
        for content in self.contents_of(unit):
            holders = all_holders[content]
            if type(holders) is not tuple:
                holders = self.data.some_holders(content, _COSTED)
            if asks_late(holders):
                continue  # as mostly: few of very many executors ask soon
            weight = self.weight(content)
            for host in holders:
                if host in soon:
                    scores[host] = scores[host] + weight if host in scores else weight
        return scores

    def holders(self, unit: Unit) -> dict[str, int]:
        """How much of a task's input is where; of contents that many hold only some holders."""
        found: dict[str, int] = {}
        for content in self.contents_of(unit):
            weight = self.weight(content)
            for name in self._places_holding(content):
                found[name] = found.get(name, 0) + weight
        return found

    def rate_to(self, executor: ExecutorRecord) -> float:
        """Bytes a second that travelled to the host of an executor, or else to any; 0: nothing did yet."""
        data, known = self.data, self._where.get(executor.id)
        host = data.by_number[known[0]] if known is not None else data.host_of(executor)
        return (host.fastest if host is not None else 0.0) or data.fastest
