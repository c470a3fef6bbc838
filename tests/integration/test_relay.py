"""Executors that reach only a relay: real processes, real TLS, and relays that are killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from relay_site import SERVER, Relay, Site, begun, gated, runs
from service_client import until

from bough.model.outcomes import ResultFile
from bough.transport.access import rotate_token
from bough.wire.client_messages import VERSION, ClientHello
from bough.wire.framing import frame
from bough.wire.relay_channels import RelayHello

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.clean_up()


def square(x: int) -> int:
    return x * x


def length(data: bytes) -> int:
    return len(data)


def server_connections(site: Site) -> int:
    """How many TCP connections the server process has, its listeners not counted."""
    port = int(json.loads((site.home / "server" / "server.json").read_bytes())["address"].rpartition(":")[2])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = "01"
    return sum(row[3] == established and int(row[1].partition(":")[2], 16) == port for row in rows)


# --- work ------------------------------------------------------------------------------------------------


def check_work(site: Site) -> None:
    client = site.client("one")
    one = client.function(square, 7)
    array = client.array(square, range(2000))
    command = client.command("echo hello")
    bad = client.command("exit 3")
    large = client.function(length, bytes(5_000_000))  # more than a window
    assert pickle.loads(client.outcome(one).results) == [49]
    assert client.values(array, 2000) == [i * i for i in range(2000)]
    assert client.outcome(command)
    assert client.unsuccess(bad).failure.exit_code == 3
    assert pickle.loads(client.outcome(large).results) == [5_000_000]
    assert client.close("drain").reason == "done"


def test_functions_and_commands_run_through_a_relay(site: Site) -> None:
    relay = site.relay(site.begin())
    site.behind(relay, cores=2)
    check_work(site)
    assert relay.access.stat().st_mode & 0o777 == 0o600


def test_functions_and_commands_run_through_a_chain_of_two_relays(site: Site) -> None:
    first = site.relay(site.begin())
    second = site.relay(first.access)
    site.behind(second, cores=2)
    check_work(site)
    assert server_connections(site) == 1


def test_a_relay_on_unix_sockets_serves_the_executors_of_its_machine(site: Site) -> None:
    site.start()  # no TLS anywhere
    relay = site.relay_of_own_home()
    site.behind(relay, cores=2)
    check_work(site)


def test_a_relay_on_a_unix_socket_forwards_over_tls(site: Site) -> None:
    relay = site.relay(site.begin(), listen="")
    site.behind(relay, cores=2)
    check_work(site)


def test_results_bigger_than_a_window_come_through_a_relay_from_where_the_store_is_not_seen(site: Site) -> None:
    relay = site.relay(site.begin())
    (site.home / "server" / "store" / "token").write_text("another")
    site.executor("--server", str(relay.access), "--work", str(site.folder / "work"))
    client = site.client("one")
    results = [client.function(bytes, 5_000_000) for _ in range(3)]
    for result in results:
        found = client.outcome(result).results
        assert isinstance(found, ResultFile)  # it is a file of the store
        assert pickle.loads(Path(found.path).read_bytes()) == [bytes(5_000_000)]


def test_twenty_executors_share_one_connection_to_the_server(site: Site) -> None:
    relay = site.relay(site.begin())
    processes = [site.behind(relay, joined=False) for _ in range(20)]
    pids = {process.pid for process in processes}
    site.until_executors(lambda found: pids <= {entry["pid"] for entry in found}, "all executors")

    assert server_connections(site) == 1
    client = site.client("one")
    array = client.array(square, range(5000))
    assert client.values(array, 5000) == [i * i for i in range(5000)]
    until(lambda: relay.read().get("connections") == 20, "the relay's count")


# --- faults ----------------------------------------------------------------------------------------------


def test_a_killed_relay_costs_no_work_and_nothing_runs_twice(site: Site) -> None:
    folder = site.folder
    relay = site.relay(site.begin())
    executors = [site.behind(relay), site.behind(relay)]
    client = site.client("one")
    meanwhile = client.run_command(gated(folder, "meanwhile"))
    later = client.run_command(gated(folder, "later"))
    begun(folder, "meanwhile")
    begun(folder, "later")

    relay.kill()
    site.until_executors(lambda found: {e["state"] for e in found} == {"missing"}, "the loss of the relay")
    (folder / "meanwhile.go").touch()
    relay.start()
    pids = {process.pid for process in executors}
    site.until_executors(
        lambda found: {e["pid"] for e in found if e["state"] != "missing"} == pids, "the return of all executors"
    )
    assert client.outcome(meanwhile)
    (folder / "later.go").touch()
    assert client.outcome(later)

    assert runs(folder, "meanwhile") == runs(folder, "later") == 1
    assert "reconnected with" in site.log.read_text()
    assert client.function(square, 2)
    assert client.close("drain").reason == "done"


def test_of_many_tasks_none_is_lost_or_run_twice_while_relays_are_killed(site: Site) -> None:
    folder = site.folder
    first = site.relay(site.begin())
    second = site.relay(first.access)
    for _ in range(2):
        site.behind(first)
        site.behind(second)
    client = site.client("one")
    notes = folder / "notes"
    tasks = [client.command(f"echo {number} >> {notes}; sleep 0.02") for number in range(400)]
    functions = client.array(square, range(20_000))

    for relay, share in ((first, 0.2), (second, 0.4), (first, 0.6)):
        until(lambda share=share: notes.exists() and len(notes.read_text().split()) > share * 400, "some work")
        relay.kill()
        relay.start()

    assert client.values(functions, 20_000) == [i * i for i in range(20_000)]
    for task in tasks:
        assert client.outcome(task)
    assert sorted(map(int, notes.read_text().split())) == list(range(400))
    assert client.close("drain").reason == "done"


def test_the_relay_in_the_middle_of_a_chain_may_be_killed(site: Site) -> None:
    folder = site.folder
    first = site.relay(site.begin())
    second = site.relay(first.access)
    site.behind(second)
    client = site.client("one")
    task = client.run_command(gated(folder, "slow"))
    begun(folder, "slow")

    first.kill()
    until(lambda: not second.read().get("linked"), "the second relay's notice")
    first.start()
    until(lambda: second.read().get("linked"), "the second relay's return")
    (folder / "slow.go").touch()

    assert client.outcome(task)
    assert runs(folder, "slow") == 1


def test_a_killed_server_is_found_again_by_the_relay(site: Site) -> None:
    folder = site.folder
    relay = site.relay(site.begin())
    site.behind(relay)
    client = site.client("one")
    client.run_command(gated(folder, "slow"))
    begun(folder, "slow")

    site.kill()
    until(lambda: not relay.read().get("linked"), "the relay's notice")
    (folder / "slow.go").touch()
    site.start(*SERVER)
    until(lambda: relay.read().get("linked"), "the relay's return")

    back = site.client("one")
    until(lambda: [r["state"] for r in back.ask("inventory")["records"]] == ["done"], "the end of the task")
    assert runs(folder, "slow") == 1


def test_an_executor_that_does_not_read_holds_up_no_other(site: Site) -> None:
    relay = site.relay(site.begin())
    stopped, working = site.behind(relay), site.behind(relay)
    client = site.client("one")
    stopped.send_signal(signal.SIGSTOP)
    try:
        site.until_executors(
            lambda found: {e["pid"]: e["state"] == "missing" for e in found} == {stopped.pid: True, working.pid: False},
            "the silence of one",
        )
        array = client.array(square, range(1000))
        assert client.values(array, 1000) == [i * i for i in range(1000)]
    finally:
        stopped.send_signal(signal.SIGCONT)


# --- trust -----------------------------------------------------------------------------------------------


def test_a_wrong_token_behind_a_relay_is_refused_by_the_server(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = site.relay(site.begin())
    access = json.loads(relay.access.read_bytes())
    monkeypatch.setenv("BOUGH_HOME", str(site.folder / "elsewhere"))
    wrong = site.folder / "wrong.json"
    wrong.write_text(json.dumps({**access, "token": rotate_token("execute")}))
    wrong.chmod(0o600)

    process = site.executor("--server", str(wrong), joined=False)

    assert process.wait(60) != 0
    assert "the token was refused" in (site.folder / "executor-0.log").read_text()
    assert "its proof for the role execute does not hold" in site.log.read_text()
    assert "behind the relay" in site.log.read_text()
    site.behind(relay)  # others are let in as before


def test_a_proof_made_for_the_relay_itself_is_worth_nothing_to_the_server(site: Site) -> None:
    relay = site.relay(site.begin())
    access = json.loads(relay.access.read_bytes())
    assert access["server_fingerprint"] != access["fingerprint"]
    wrong = site.folder / "wrong.json"
    wrong.write_text(json.dumps({**access, "server_fingerprint": ""}))
    wrong.chmod(0o600)

    assert site.executor("--server", str(wrong), joined=False).wait(60) != 0


def test_a_relay_with_a_wrong_token_or_pin_does_not_start(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    access = json.loads(site.begin().read_bytes())
    monkeypatch.setenv("BOUGH_HOME", str(site.folder / "elsewhere"))
    for number, wrong in enumerate(({"token": rotate_token("execute")}, {"fingerprint": "0" * 64}, {"role": "read"})):
        path = site.folder / f"wrong-{number}.json"
        path.write_text(json.dumps({**access, **wrong}))
        path.chmod(0o600)
        relay = Relay(site.folder, f"bad-{number}", path)
        site.relays.append(relay)
        relay.start(linked=False)
        assert relay.process.wait(60) == 2, relay.log.read_text()


def test_garbage_at_the_relays_door_harms_nobody(site: Site) -> None:
    relay = site.relay(site.begin())
    host, _, port = json.loads(relay.access.read_bytes())["address"].rpartition(":")
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(frame(ClientHello(VERSION, 1, "x"))), os.urandom(5000)):
        with socket.create_connection((host, int(port)), 10) as sock:
            sock.sendall(garbage)
    site.behind(relay)
    check_work(site)


def test_a_client_that_says_it_is_a_relay_is_refused_when_it_may_not_be_one(site: Site) -> None:
    site.start()
    client = site.client("one")
    client.sock.sendall(frame(RelayHello(VERSION, "x", 1)))
    until(lambda: client.listen() or client.gone, "the end of the connection")
    site.client("two")


# --- the command -----------------------------------------------------------------------------------------


def test_a_detached_relay_says_where_it_is_and_ends_when_told(site: Site) -> None:
    access = site.begin()
    started = json.loads(
        site.bough("relay", "start", "--server", str(access), "--listen", "127.0.0.1:0", "--detach", "--json").stdout
    )
    try:
        status = json.loads(site.bough("relay", "status", "--json").stdout)
        assert status["pid"] == started["pid"]
        assert status["linked"]
        assert status["address"] == started["address"]
        second = site.bough("relay", "start", "--server", str(access), check=False)
        assert second.returncode == 2
        assert f"pid {started['pid']}" in second.stderr
    finally:
        site.bough("relay", "stop")
    assert site.bough("relay", "status", check=False).returncode == 3
    assert site.bough("relay", "stop", check=False).returncode == 2


def test_a_killed_relay_that_was_detached_starts_again_while_others_look(site: Site) -> None:
    """Who looks whether a relay runs holds its lock for a moment: no reason for the next one not to start."""
    access = site.begin()
    words = ("relay", "start", "--server", str(access), "--listen", "127.0.0.1:0", "--detach", "--json")
    try:
        for _ in range(3):
            os.kill(json.loads(site.bough(*words).stdout)["pid"], signal.SIGKILL)
        assert json.loads(site.bough(*words).stdout)["address"]
    finally:
        site.bough("relay", "stop")
