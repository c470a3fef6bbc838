"""Executors that reach only a relay: real processes, real TLS, and relays that are killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service, until

from bough.transport.tokens import rotate_token
from bough.wire.framing import frame
from bough.wire.messages import VERSION, ClientHello
from bough.wire.relaying import RelayHello

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module

SERVER = ("--listen", "127.0.0.1:0", "--heartbeat", "2s", "--reconnect", "20s")


class Relay:
    """A relay with a home of its own, as on another machine."""

    def __init__(self, folder: Path, name: str, server: Path | str, listen: str = "127.0.0.1:0") -> None:
        self.home = folder / name
        self.home.mkdir()
        self.words = ["relay", "start", "--server", str(server), *(["--listen", listen] if listen else [])]
        self.log = folder / f"{name}.log"
        self.access = self.home / "relay" / "access.json"
        self.note = self.home / "relay" / "relay.json"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, linked: bool = True) -> Relay:
        with open(self.log, "ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bough.cli.main", *self.words],
                env={**os.environ, "BOUGH_HOME": str(self.home)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        if linked:
            until(lambda: self.read().get("linked"), "the relay's link")
        return self

    def read(self) -> dict[str, object]:
        assert self.process.poll() is None, self.log.read_text()
        try:
            note = json.loads(self.note.read_bytes())
        except (OSError, ValueError):
            return {}
        return note if note["pid"] == self.process.pid else {}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


class Site(Service):
    """A service whose executors are behind relays."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.relays: list[Relay] = []

    def begin(self) -> Path:
        """Start the server; its access file for executors."""
        self.start(*SERVER)
        path = self.folder / "execute.json"
        self.bough("server", "access", "--role", "execute", "--output", str(path))
        return path

    def relay(self, server: Path | str, listen: str = "127.0.0.1:0") -> Relay:
        relay = Relay(self.folder, f"relay-{len(self.relays)}", server, listen)
        self.relays.append(relay)
        return relay.start()

    def relay_of_own_home(self) -> Relay:
        """A relay on the server's own machine, which finds it by itself."""
        relay = Relay(self.folder, "unused", "", listen="")
        relay.home, relay.words = self.home, ["relay", "start"]
        relay.access, relay.note = (self.home / "relay" / name for name in ("access.json", "relay.json"))
        self.relays.append(relay)
        return relay.start()

    def behind(self, relay: Relay, cores: int = 1, *, joined: bool = True) -> subprocess.Popen[bytes]:
        return self.executor("--server", str(relay.access), cores=cores, joined=joined)

    def clean_up(self) -> None:
        super().clean_up()
        for relay in self.relays:
            relay.clean_up()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.clean_up()


def square(x: int) -> int:
    return x * x


def length(data: bytes) -> int:
    return len(data)


def gated(folder: Path, name: str) -> str:
    return f"echo $$ >> {folder}/{name}.runs; until [ -e {folder}/{name}.go ]; do sleep 0.05; done; echo {name}"


def begun(folder: Path, name: str) -> None:
    until((folder / f"{name}.runs").exists, f"the start of {name}")


def runs(folder: Path, name: str) -> int:
    return len((folder / f"{name}.runs").read_text().split())


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
        assert pickle.loads(client.outcome(result).results) == [bytes(5_000_000)]


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
    assert "came back with" in site.log.read_text()
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

    assert process.wait(20) != 0
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

    assert site.executor("--server", str(wrong), joined=False).wait(20) != 0


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
        assert relay.process.wait(20) == 2, relay.log.read_text()


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
