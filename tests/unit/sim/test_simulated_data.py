"""Files in simulated runs: times and bytes that are worked out by hand, for each thing that a platform can say."""

from __future__ import annotations

import pytest

from bough.core.machine import Machine
from bough.errors import UserError
from bough.model.events.facts import ExecutorLost, MadeAgain, encode_facts
from bough.model.ids import ExecutorId
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.sim.data.measured_attempts import Attempt, Measured
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.platforms.platform import read_platform
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate
from bough.sim.simulation import Simulation
from bough.sim.workload import SimulatedFile, SimulatedTask, Workload


def run(
    platform: str,
    workload: Workload,
    policy: str = "fifo",
    *,
    replication: str = "none",
    arrays: bool = False,
    lose: tuple[float, int] | None = None,
    executions: int = 1,
) -> Simulation:
    """A workload on a platform, to its end; `executions`: it is submitted again when it has ended."""
    world = read_platform(platform)
    tasks = workload.tasks
    firsts: dict[int, int] = {}

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(tasks[firsts[spec.id] + index].seconds)

    data = SimulatedData(workload, world, seed=1)
    policies = load_policies(policy, replication=replication)
    sim = Simulation(Machine(policies, seed=1), model, world.executors(1), data=data)
    first = 1
    for _ in range(executions):
        submission = sim.submit(sim.now, workload, first=first, arrays=arrays)
        firsts.update(submission.first)
        first += len(submission.items)
        if lose is not None:
            sim.at(lose[0], ExecutorLost(ExecutorId(lose[1]), "gone"))
        sim.run()
        sim.check_complete()
    assert not sim.complaints
    assert not data.running
    return sim


def readers(*reads: tuple[int, ...], seconds: float = 10.0, sizes: tuple[int, ...] = (1000, 1000, 1000)) -> Workload:
    """Tasks of equal length, and what each of them reads."""
    files = [SimulatedFile(f"f{number}", size) for number, size in enumerate(sizes)]
    tasks = [SimulatedTask(f"t{number}", seconds, reads=some, template="t") for number, some in enumerate(reads)]
    return Workload("readers", tasks, files)


def ends(sim: Simulation) -> list[float]:
    """When the attempts ended, by task."""
    assert sim.data is not None
    return [one.ended for one in sorted(sim.data.attempts, key=lambda one: (one.task, one.number))]


HOME = "[home]\nbandwidth = 100\n"
KEEP = '[transfers]\noutputs = "keep"\n'


def test_one_input_takes_its_latency_startup_and_bytes() -> None:
    sim = run("[site.a]\n[home]\nbandwidth = 100\nlatency = 0.5\n[transfers]\nstartup = 1.5\n", readers((0,)))
    assert ends(sim) == [1.5 + 0.5 + 10.0 + 10.0]
    assert sim.data is not None
    (one,) = sim.data.attempts
    assert (one.stage_in, one.run, one.stage_out) == (12.0, 10.0, 0.0)
    assert (one.origin, one.hit, one.moved, one.outcome) == (1000, 0, 1000.0, "done")


def test_a_serial_link_serves_one_host_after_the_other() -> None:
    sim = run("[site.a]\nhosts = 2\n" + HOME + 'sharing = "serial"\n', readers((0,), (1,)))
    assert ends(sim) == [20.0, 30.0]


def test_two_hosts_share_the_home_link_fairly() -> None:
    """1000 and 500 bytes at 50/s each: the short one is there at 10 s, the other has 500 left then, at 100/s."""
    sim = run("[site.a]\nhosts = 2\n" + HOME, readers((0,), (1,), sizes=(1000, 500)))
    assert ends(sim) == [25.0, 20.0]


def test_a_link_that_gives_each_transfer_all_of_it() -> None:
    sim = run("[site.a]\nhosts = 2\n" + HOME + 'sharing = "each"\n', readers((0,), (1,)))
    assert ends(sim) == [20.0, 20.0]


def test_inputs_come_all_at_once_or_one_after_the_other_with_a_startup_each() -> None:
    """At once: 2000 bytes share 100/s after one second. In turn: 1 + 10 + 1 + 10."""
    for streams, end in ((0, 31.0), (1, 32.0)):
        rules = f"[transfers]\nstartup = 1\nstreams = {streams}\n"
        assert ends(run("[site.a]\n" + HOME + rules, readers((0, 1)))) == [end]


def test_a_second_reader_on_the_host_waits_for_what_is_on_its_way() -> None:
    sim = run("[site.a]\ncores = 2\n" + HOME, readers((0,), (0,)))
    assert ends(sim) == [20.0, 20.0]
    assert sim.data is not None
    assert [(one.origin, one.joined, one.moved) for one in sim.data.attempts] == [(1000, 0, 1000.0), (0, 1000, 0.0)]


def test_a_hit_costs_a_read_of_the_disk() -> None:
    """10 s over the link and 10 s of work, then 2 s from the disk, and 10 s."""
    sim = run("[site.a]\ndisk_read = 500\n" + HOME, readers((0,), (0,)))
    assert ends(sim) == [20.0, 32.0]
    assert sim.data is not None
    assert sim.data.measured().hit_rate == 0.5


PEERS = "[site.a]\nhosts = 2\nnic = {bandwidth = 1000}\n" + HOME


@pytest.mark.parametrize(
    ("rules", "third", "kinds"),
    [("", 20 + 1 + 10, (1000, 0)), ('[transfers]\npeers = "none"\n', 20 + 10 + 10, (0, 1000))],
)
def test_a_peer_sends_what_it_holds_unless_it_may_not(rules: str, third: float, kinds: tuple[int, int]) -> None:
    """Both hosts are at work until 20 s; the third task goes to the host that has been open the longest."""
    files = readers((0,), (1,), (1,), sizes=(1000, 1000))
    sim = run(PEERS + 'sharing = "each"\n' + rules, files)
    assert ends(sim)[2] == third
    assert sim.data is not None
    last = max(sim.data.attempts, key=lambda one: one.ended)
    assert (last.peer, last.origin) == kinds
    assert last.executor == 1


def test_peers_of_the_same_site_only() -> None:
    """Site b may not read from a: its uplink is never crossed but from home."""
    text = "[site.a]\nhosts = 1\n[site.b]\nhosts = 1\n" + HOME + '[transfers]\npeers = "site"\n'
    sim = run(text, readers((0,), (0,), (0,), (0,)))
    assert sim.data is not None
    assert sim.data.measured().total("peer") == 0
    assert sim.data.measured().total("origin") == 2000


CHAINS = "[site.a]\nhosts = 4\nnic = { bandwidth = 100 }\n[home]\nbandwidth = 100\n[transfers]\nchains = %s\n"


def test_in_a_chain_all_have_the_file_when_one_copy_has_come() -> None:
    same = readers((0,), (0,), (0,), (0,))
    apart = run(CHAINS % "false", same)
    assert ends(apart) == [40.0 + 10.0] * 4  # four copies share the link from home
    sim = run(CHAINS % "true", same)
    assert ends(sim) == [10.0 + 10.0] * 4
    assert sim.data is not None
    assert [one.origin for one in sim.data.attempts] == [1000, 0, 0, 0]
    assert [one.peer for one in sim.data.attempts] == [0, 1000, 1000, 1000]


def test_who_follows_has_the_file_no_earlier_than_who_is_followed() -> None:
    slow_home = CHAINS.replace("[home]\nbandwidth = 100", "[home]\nbandwidth = 20") % "true"
    assert ends(run(slow_home, readers((0,), (0,)))) == [60.0, 60.0]
    slow_peers = CHAINS.replace("nic = { bandwidth = 100 }", "nic = { bandwidth = 50 }") % "true"
    assert ends(run(slow_peers, readers((0,), (0,)))) == [30.0, 30.0]


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
@pytest.mark.parametrize("when", [1.0, 5.0, 9.9, 12.0])
def test_whoever_of_a_chain_is_lost_the_others_get_the_file(lost: int, when: float) -> None:
    sim = run(CHAINS % "true", readers((0,), (0,), (0,), (0,)), lose=(when, lost))
    assert sim.data is not None
    done = [one for one in sim.data.attempts if one.outcome == "done"]
    assert sorted(one.task for one in done) == [0, 1, 2, 3]
    assert max(one.ended for one in done) <= when + 10.0 + 2 * 10.0 + 10.0
    assert not sim.data._ends
    assert all(store.serving == 0 and store.pinned == 0 for store in sim.data.stores.values())


def test_chains_stay_within_a_site_if_peers_must() -> None:
    world = "[site.a]\n[site.b]\n" + HOME + "[transfers]\nchains = true\npeers = '%s'\n"
    sites = {rule: run(world % rule, readers((0,), (0,))) for rule in ("all", "site", "none")}
    origin = {rule: sum(one.origin for one in sim.data.attempts) for rule, sim in sites.items() if sim.data is not None}
    assert origin == {"all": 1000, "site": 2000, "none": 2000}


@pytest.mark.parametrize(
    ("eviction", "hits"),
    [("fifo", [False, False, True, False, False]), ("lru", [False, False, True, False, True])],
)
def test_a_full_cache_gives_up_what_its_policy_says(eviction: str, hits: list[bool]) -> None:
    """Room for two of three files, read as 0 1 0 2 0: FIFO gives up 0 for 2, LRU gives up 1."""
    sim = run(f'[site.a]\ncache = 2000\neviction = "{eviction}"\n' + HOME, readers((0,), (1,), (0,), (2,), (0,)))
    assert sim.data is not None
    assert [bool(one.hit) for one in sim.data.attempts] == hits
    (store,) = sim.data.stores.values()
    assert store.held == 2000
    index = sim.machine.state.data
    there = index.hosts["a", "a1"].contents(index)
    assert sum(index.contents.sizes[content] for content in there) == 2000  # the core knows the same


def test_what_is_bigger_than_the_cache_passes_through_it() -> None:
    for cache in (0, 999):
        sim = run(f"[site.a]\ncache = {cache}\n" + HOME, readers((0,), (0,)))
        assert ends(sim) == [20.0, 40.0]
        assert sim.data is not None
        assert sim.data.measured().total("origin") == 2000
        assert sim.machine.state.data.pairs == 0


def test_the_hosts_of_a_site_share_its_store() -> None:
    """The second host waits for what the first one fetches; then both find all there."""
    text = '[site.a]\nhosts = 2\nstore = "site"\n' + HOME
    sim = run(text, readers((0,), (0,), (0,), (0,)))
    assert ends(sim) == [20.0, 20.0, 30.0, 30.0]
    assert sim.data is not None
    measured = sim.data.measured()
    assert [measured.total(kind) for kind in ("origin", "joined", "store", "hit")] == [1000, 1000, 2000, 0]
    assert sim.machine.state.data.bytes_at(1, [1], "a") == 1000


def test_a_store_with_a_speed_is_read_over_it_and_the_hosts_links() -> None:
    text = '[site.a]\nhosts = 2\nstore = "site"\ndisk_read = 500\nnic = {bandwidth = 200}\n' + HOME
    sim = run(text, readers((0,), (0,), (0,), (0,)))
    assert ends(sim) == [20.0, 20.0, 35.0, 35.0]  # 1000 bytes at 200/s for each host


def chain(seconds: float = 10.0) -> Workload:
    """One task writes what the other reads."""
    files = [SimulatedFile("in", 1000), SimulatedFile("middle", 2000), SimulatedFile("out", 500)]
    first = SimulatedTask("first", seconds, reads=(0,), writes=(1,))
    return Workload("chain", [first, SimulatedTask("second", seconds, reads=(1,), writes=(2,))], files)


def test_an_output_is_read_where_it_was_made() -> None:
    """10 s, 10 s, written in 4 s, read in 2 s, 10 s, written in 1 s."""
    sim = run("[site.a]\nhosts = 1\ndisk_read = 1000\ndisk_write = 500\n" + HOME + KEEP, chain())
    assert ends(sim) == [24.0, 37.0]
    assert chain().critical_path == 20.0
    assert sim.data is not None
    first, second = sim.data.attempts
    assert (first.stage_in, first.run, first.stage_out, first.written) == (10.0, 10.0, 4.0, 2000)
    assert second.hit == 2000
    index = sim.machine.state.data
    assert index.content_of(1, 3) >= 0  # the core was told what the last output holds


def test_outputs_are_sent_home_before_their_task_ends_as_live() -> None:
    """The output takes 20 s to get home; the second task reads it where it was made, and sends 500 bytes in 5 s."""
    sim = run("[site.a]\n" + HOME, chain())
    assert ends(sim) == [40.0, 55.0]
    assert sim.data is not None
    assert sim.data.measured().total("returned") == 2500


def test_the_only_copy_of_an_output_is_not_evicted() -> None:
    sim = run("[site.a]\ncache = 2000\n" + HOME + KEEP, chain())
    assert sim.data is not None
    assert sim.data.attempts[1].hit == 2000


SLOW_HOST = "[site.a]\nhosts = 1\n[site.b]\nhosts = 1\nspeed = 0.1\n" + HOME + 'sharing = "each"\n'


def test_a_replica_overtakes_and_what_the_other_computed_is_waste() -> None:
    """Host b would need 100 s from 10 s on. At 20 s a is free and replicates: it reads the other file in 10 s and wins
    at 40 s; b had computed for 30 s at a tenth of the speed: 3 of the 20 s that count."""
    sim = run(SLOW_HOST + '[transfers]\npeers = "none"\n', readers((0,), (1,)), replication="wqr")
    assert sim.data is not None
    measured = sim.data.measured()
    assert sim.now == 40.0
    assert [(one.outcome, one.ended) for one in measured.attempts] == [
        ("done", 20.0),
        ("done", 40.0),
        ("killed", 40.0),
    ]
    assert measured.cpu_waste == pytest.approx(3 / 20)
    assert measured.network_waste == pytest.approx(1000 / 2000)


@pytest.mark.parametrize(("policy", "origin"), [("wqr", [1000, 0]), ("wqr:reuse=no", [1000, 1000])])
def test_wqr_as_a_placement_policy_replicates_and_may_send_all_input_anew(policy: str, origin: list[int]) -> None:
    """As above, with one file that both tasks read: only host a needs it again, if it has kept none."""
    text = SLOW_HOST + '[transfers]\npeers = "none"\n'
    sim = run(text, readers((0,), (0,)), policy, replication="")
    assert sim.data is not None
    attempts = sim.data.measured().attempts
    assert [one.outcome for one in attempts] == ["done", "done", "killed"]
    fast = [one for one in attempts if one.outcome == "done"]
    assert len({one.executor for one in fast}) == 1
    assert [one.origin for one in fast] == origin


def test_storage_affinity_comes_with_its_replicas_unless_there_shall_be_none() -> None:
    """Both tasks read the same: the fast host has it when it is idle, and replicates what the slow one runs."""
    text = SLOW_HOST + '[transfers]\npeers = "none"\n'
    ended = {}
    for replication in ("", "none"):
        sim = run(text, readers((0, 1), (0, 1)), "storage-affinity", replication=replication)
        assert sim.data is not None
        ended[replication] = [one.outcome for one in sim.data.attempts]
    assert "killed" in ended[""]
    assert "killed" not in ended["none"]


@pytest.mark.parametrize(("killed", "moved", "held"), [("end", 500.0, False), ("stay", 1000.0, True)])
def test_transfers_of_a_killed_replica_end_or_stay(killed: str, moved: float, held: bool) -> None:
    """At 15 s the first host is free and replicates the second task: its file needs 10 s, and the task ends at 20 s."""
    files = Workload(
        "two",
        [SimulatedTask("a", 5.0, reads=(0,)), SimulatedTask("b", 10.0, reads=(1,))],
        [SimulatedFile("x", 1000), SimulatedFile("y", 1000)],
    )
    text = "[site.a]\nhosts = 2\n" + HOME + 'sharing = "each"\n'
    sim = run(text + f'[transfers]\nkilled = "{killed}"\npeers = "none"\n', files, replication="wqr")
    assert sim.data is not None
    measured = sim.data.measured()
    (dead,) = [one for one in measured.attempts if one.outcome == "killed"]
    assert (dead.began, dead.ended, dead.stage_in, dead.run) == (15.0, 20.0, 5.0, 0.0)
    assert dead.moved == moved
    assert (1 in sim.data.stores["a", "a1"]) == held
    assert measured.cpu_waste == 0.0


@pytest.mark.parametrize("policy", ["fifo", "max-compute-util", "bough"])
def test_elements_of_an_array_are_staged_one_by_one(policy: str) -> None:
    sim = run("[site.a]\n" + HOME, readers((0,), (0,), (1,)), policy, arrays=True)
    assert max(ends(sim)) == 10 + 10 + 10 + 10 + 10
    assert sim.data is not None
    assert [one.element for one in sim.data.attempts] == [0, 1, 2]
    assert sim.data.measured().total("hit") == 1000


def test_with_frozen_affinity_nothing_is_replicated_in_the_first_execution() -> None:
    """3.2: nothing was there before the job began, so no running task has an affinity with any site (3.3, i)."""
    text = SLOW_HOST + '[transfers]\npeers = "none"\n'
    for affinity, attempts in (("live", 3), ("frozen", 2)):
        sim = run(text, readers((0, 1), (0, 1)), f"storage-affinity:affinity={affinity}", replication="")
        assert sim.data is not None
        assert len(sim.data.measured().attempts) == attempts


def test_a_lost_host_loses_its_cache_and_its_transfers_and_others_go_on() -> None:
    """At 5 s host 1 is lost with half of its file, at 15 s host 2 has read it and runs."""
    text = "[site.a]\nhosts = 2\n" + HOME + 'sharing = "each"\n[transfers]\npeers = "all"\n'
    sim = run(text, readers((0,), (1,)), lose=(5.0, 1))
    assert sim.data is not None
    lost = next(one for one in sim.data.attempts if one.outcome == "lost")
    assert (lost.ended, lost.moved) == (5.0, 500.0)
    assert sim.now == 40.0  # the second task, then the first again
    assert ("a", "a1") not in sim.data.stores


def test_who_reads_from_a_lost_peer_reads_from_home_instead() -> None:
    """Host 1 has the file at 20 s, and from 30 s on it runs its second task. Host 2 is free at 40 s and reads the file
    from host 1, at 50/s. At 50 s host 1 is lost: home sends all of it again until 70 s. Host 2 runs what it has, and at
    170 s what host 1 had."""
    tasks = [
        SimulatedTask("t0", 10.0, reads=(0,)),
        SimulatedTask("t1", 40.0),
        SimulatedTask("t2", 100.0, reads=(0,)),
        SimulatedTask("t3", 100.0, reads=(0,)),
    ]
    text = "[site.a]\nhosts = 2\nnic = {bandwidth = 50}\n" + HOME
    sim = run(text, Workload("w", tasks, [SimulatedFile("f", 1000)]), lose=(50.0, 1))
    assert sim.data is not None
    told = [(one.task, one.outcome, one.ended, one.moved) for one in sim.data.attempts]
    assert told == [
        (0, "done", 30.0, 1000.0),
        (2, "lost", 50.0, 0.0),
        (3, "done", 170.0, 1500.0),
        (2, "done", 270.0, 0.0),
    ]


def test_an_output_that_died_with_its_host_is_made_again() -> None:
    """The output of the first task is nowhere else when its reader is lost with it at 25 s: the task runs again on the
    other host, for 10 s after 10 s of its input, and then the reader does."""
    files = [SimulatedFile("in", 1000), SimulatedFile("out", 1000)]
    tasks = [SimulatedTask("a", 10.0, reads=(0,), writes=(1,)), SimulatedTask("b", 10.0, reads=(1,))]
    sim = run("[site.a]\nhosts = 2\n" + HOME + KEEP, Workload("w", tasks, files), lose=(25.0, 1))
    assert sim.data is not None
    assert [(one.task, one.outcome, one.ended) for one in sim.data.attempts] == [
        (0, "done", 20.0),
        (1, "lost", 25.0),
        (1, "failed", 25.0),
        (0, "done", 45.0),
        (1, "done", 55.0),
    ]
    assert [type(fact) for _, _, some in sim.journal for fact in some].count(MadeAgain) == 1


def test_an_output_outlives_the_host_that_made_it() -> None:
    """It is at home since 30 s, and the other host gets it from there in 10 s."""
    files = [SimulatedFile("in", 1000), SimulatedFile("out", 1000)]
    tasks = [SimulatedTask("a", 10.0, reads=(0,), writes=(1,)), SimulatedTask("b", 10.0, reads=(1,))]
    sim = run("[site.a]\nhosts = 2\n" + HOME, Workload("w", tasks, files), lose=(35.0, 1))
    assert sim.data is not None
    assert [(one.task, one.outcome, one.ended) for one in sim.data.attempts] == [
        (0, "done", 30.0),
        (1, "lost", 35.0),
        (1, "done", 55.0),
    ]


def test_what_a_lost_output_was_made_of_is_made_again_too() -> None:
    files = [SimulatedFile("in", 0), SimulatedFile("middle", 0), SimulatedFile("out", 0)]
    tasks = [
        SimulatedTask("a", 10.0, reads=(0,), writes=(1,)),
        SimulatedTask("b", 10.0, reads=(1,), writes=(2,)),
        SimulatedTask("c", 10.0, reads=(2,)),
    ]
    sim = run("[site.a]\nhosts = 2\n" + HOME + KEEP, Workload("w", tasks, files), lose=(25.0, 1))
    assert sim.data is not None
    done = [(one.task, one.ended) for one in sim.data.attempts if one.outcome == "done"]
    assert done == [(0, 10.0), (1, 20.0), (0, 35.0), (1, 45.0), (2, 55.0)]


def test_executions_that_follow_find_what_the_first_one_left() -> None:
    sim = run(
        '[site.a]\nhosts = 2\nstore = "site"\n' + HOME, readers((0,), (1,), (2,)), "storage-affinity", executions=3
    )
    assert sim.data is not None
    assert [sum(one.origin for one in sim.data.attempts[at : at + 3]) for at in (0, 3, 6)] == [3000, 0, 0]


def test_the_same_run_again_is_the_same_to_the_byte() -> None:
    text = "[site.a]\nhosts = 3\nspeed = [0.5, 2]\ncache = 2000\nnic = {bandwidth = 300}\n" + HOME
    work = readers(*[(number % 3, (number * 7 + 1) % 3) for number in range(20)])
    one, two = (run(text, work, "good-cache-compute", replication="wqr") for _ in range(2))
    assert [encode_facts(facts) for *_, facts in one.journal] == [encode_facts(facts) for *_, facts in two.journal]
    assert one.data is not None
    assert two.data is not None
    assert one.data.attempts == two.data.attempts


def test_a_workload_without_files_stages_nothing() -> None:
    sim = run("[site.a]\nhosts = 2\n" + HOME, Workload("plain", [SimulatedTask(f"t{n}", 5.0) for n in range(4)]))
    assert sim.data is not None
    assert sim.now == 10.0
    assert not sim.data.attempts
    assert not sim.machine.state.data.contents.count


@pytest.mark.parametrize(
    ("files", "tasks", "match"),
    [
        ([], [SimulatedTask("t", 1.0, reads=(0,))], "not listed"),
        ([SimulatedFile("a", -1)], [], "bytes"),
        ([SimulatedFile("a", 1), SimulatedFile("/a", 1)], [], "name"),
        ([SimulatedFile("a", 1)], [SimulatedTask("t", 1.0, reads=(0,), writes=(0,))], "by itself"),
        (
            [SimulatedFile("a", 1)],
            [SimulatedTask("t", 1.0, writes=(0,)), SimulatedTask("u", 1.0, writes=(0,))],
            "already",
        ),
        (
            [SimulatedFile("a", 1)],
            [SimulatedTask("t", 1.0, reads=(0,)), SimulatedTask("u", 1.0, writes=(0,))],
            "after it",
        ),
    ],
)
def test_files_that_cannot_be_are_refused(files: list[SimulatedFile], tasks: list[SimulatedTask], match: str) -> None:
    with pytest.raises(UserError, match=match):
        Workload("wrong", tasks, files)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[site.a]\ncache = 'much'", "lab.toml"),
        ("[site.a]\neviction = 'lruu'", "did you mean"),
        ("[site.a]\nnic = {bandwidth = 0}", "nic"),
        ("[site.a]\nnic = {bandwidth = 'fast'}", "lab.toml"),
        ("[site.a]\nuplink = {bandwidth = 1, latency = -1}", "latency"),
        ("[site.a]\nuplink = {bandwidth = 1, sharing = 'none'}", "sharing"),
        ("[site.a]\nstore = 'cloud'", "store"),
        ("[site.a]\n[home]\nbandwidth = -5", "bandwidth"),
        ("[site.a]\n[transfers]\npeers = 'some'", "peers"),
        ("[site.a]\n[transfers]\nstreams = -1", "streams"),
    ],
)
def test_links_and_caches_that_cannot_be_are_refused_in_one_line(text: str, match: str) -> None:
    with pytest.raises(UserError, match=match) as error:
        read_platform(text, "lab.toml")
    assert str(error.value).startswith("lab.toml: ")
    assert "\n" not in str(error.value)


def test_bandwidths_are_read_in_bits_and_bytes() -> None:
    platform = read_platform("[site.a]\nnic = {bandwidth = '1Gbit/s'}\ndisk_read = '400MB/s'\ncache = '2GB'\n")
    site = platform.site["a"]
    assert site.nic is not None
    assert site.nic.make("n").bandwidth == 125e6
    assert site.cache_bytes == 2e9


EARLY = "[site.a]\nhosts = 1\n{}[home]\nbandwidth = 100\n[transfers]\nearly = {}\n"


def last_end(sim: Simulation) -> float:
    """When the last task ended."""
    assert sim.data is not None
    return max(one.ended for one in sim.data.attempts)


def test_inputs_of_the_task_that_follows_travel_while_a_host_computes() -> None:
    """Each file takes 10 s from home, and each task runs for 10 s. The input of the second one begins to travel when
    that of the first has come, the third's 0.1 s after the second task has begun."""
    work = readers((0,), (1,), (2,))
    late = run(EARLY.format("", "false"), work, "bough")
    assert last_end(late) == pytest.approx(60.0)
    early = run(EARLY.format("", "true"), work, "bough")
    assert last_end(early) == pytest.approx(40.1)
    assert early.data is not None
    found = early.data.measured()
    assert [one.origin for one in found.attempts] == [1000, 1000, 1000]  # it counts as what it was when it came
    assert [one.stage_in for one in found.attempts] == pytest.approx([10.0, 0.0, 0.1])
    assert found.total("moved") == 3000
    assert found.total("hit") == 0


def test_what_is_announced_takes_a_quarter_of_the_cache_at_most() -> None:
    work = readers((0,), (1,), (2,))
    assert last_end(run(EARLY.format("cache = 3999\n", "true"), work, "bough")) == pytest.approx(60.0)
    assert last_end(run(EARLY.format("cache = 4000\n", "true"), work, "bough")) == pytest.approx(40.1)


def test_a_policy_that_is_blind_to_data_announces_nothing() -> None:
    assert last_end(run(EARLY.format("", "true"), readers((0,), (1,), (2,)), "fifo")) == pytest.approx(60.0)


def test_a_task_that_begins_takes_over_what_is_on_its_way_for_it() -> None:
    """The first task runs for 4 s only: 6 s of the second one's input are left when that begins."""
    early = run(EARLY.format("", "true"), readers((0,), (1,), seconds=4.0), "bough")
    assert last_end(early) == pytest.approx(10.0 + 10.0 + 4.0)
    assert early.data is not None
    found = early.data.measured()
    assert [one.stage_in for one in found.attempts] == pytest.approx([10.0, 6.0])
    assert found.total("origin") == found.total("moved") == 2000
    assert found.total("joined") == 0


def test_what_was_announced_to_a_host_that_is_lost_is_brought_elsewhere() -> None:
    text = EARLY.format("", "true").replace("hosts = 1", "hosts = 2")
    lost = run(text, readers((0,), (1,), (2,), (0, 1), (1, 2), (0, 2)), "bough", lose=(25.0, 1))
    assert lost.data is not None
    done = [one for one in lost.data.measured().attempts if one.outcome == "done"]
    assert sorted(one.task for one in done) == list(range(6))
    assert {one.executor for one in done if one.ended > 25.0} == {2}


def test_waste_is_what_killed_attempts_cost_and_not_what_was_lost() -> None:
    """4.8: cycles of killed copies for those of winning ones; bytes moved for the former for all input of the tasks."""

    def attempt(task: int, outcome: str, run: float, moved: float) -> Attempt:
        place = (task, task, 0, 1, 1, "a", "h", 2.0)
        return Attempt(*place, 0.0, 10.0, 10.0 + run, 10.0 + run, outcome, asked=100, moved=moved)

    attempts = [attempt(1, "done", 50, 100), attempt(2, "done", 30, 0), attempt(1, "killed", 20, 60)]
    attempts += [attempt(2, "lost", 40, 70), attempt(2, "failed", 10, 30)]
    measured = Measured(attempts)
    assert measured.cpu_waste == pytest.approx(20 / 80)
    assert measured.network_waste == pytest.approx(60 / 200)
