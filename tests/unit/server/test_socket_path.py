from __future__ import annotations

import os
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from bough.server import socket_path
from bough.server.embedded.server_options import ServerOptions
from tests.second_user import NOBODY, needs_root


def test_the_socket_lies_in_the_store_and_is_its_owners_alone(tmp_path) -> None:
    listener, path = socket_path.bind(str(tmp_path))
    with listener:
        assert os.path.dirname(path) == str(tmp_path)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
    socket_path.unbind(path)
    assert not os.path.exists(path)


def test_a_long_path_gets_its_socket_elsewhere(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / ("x" * 120)
    store.mkdir()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)

    listener, path = socket_path.bind(str(store))

    with listener:
        assert len(path) < socket_path.LONGEST
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    socket_path.unbind(path)
    assert not os.path.exists(os.path.dirname(path))


def test_the_runtime_directory_is_used_where_there_is_one(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / ("x" * 120)
    store.mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="run"))  # sockets have short names, and the test's own folder may be deep
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))

    listener, path = socket_path.bind(str(store))

    with listener:
        assert os.path.dirname(path) == str(runtime)
    socket_path.unbind(path)
    assert runtime.exists()
    runtime.rmdir()


def test_sockets_of_dead_servers_are_removed_and_one_that_waits_for_the_lock_keeps_its_own(tmp_path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    waiting = f"server-{os.getpid()}.sock"
    for name in (f"server-{dead.pid}.sock", "server-x.sock", "server-0.sock", waiting, "journal.db"):
        (tmp_path / name).touch()

    socket_path.remove_stale_sockets(str(tmp_path), str(tmp_path / "server-0.sock"))

    assert sorted(os.listdir(tmp_path)) == sorted(["journal.db", "server-0.sock", waiting])


def test_what_is_published_can_be_read_and_withdrawn(tmp_path) -> None:
    socket_path.publish(str(tmp_path), {"pid": 7})
    assert socket_path.published(str(tmp_path)) == {"pid": 7}
    assert os.listdir(tmp_path) == ["server.json"]

    socket_path.withdraw(str(tmp_path))
    assert socket_path.published(str(tmp_path)) == {}
    (tmp_path / "server.json").write_text("[torn")
    assert socket_path.published(str(tmp_path)) == {}


def test_a_server_that_cannot_be_published_goes_on(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    socket_path.publish(str(tmp_path / "nowhere"), {"pid": 7})

    assert "could not be written" in capsys.readouterr().err


def test_two_stores_have_two_ids_and_one_has_one(tmp_path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "a")

    assert socket_path.store_id(str(tmp_path / "a")) == socket_path.store_id(str(tmp_path / "c"))
    assert socket_path.store_id(str(tmp_path / "a")) != socket_path.store_id(str(tmp_path / "b"))


def test_options_are_read() -> None:
    options = ServerOptions(
        ["--store", "/s/x", "--fd", "4", "--cores", "2", "--policy", "sjf", "--reuse", "never", "--fail-fast"]
    )

    assert (options.store, options.name, options.fd, options.cores) == ("/s/x", "x", 4, 2)
    assert (options.policy, options.reuse, options.fail_fast) == ("sjf", "never", True)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--store",
        "--store x",
        "--fd 3",
        "--store x --fd y",
        "--store x --fd 3 --what 1",
        "--store x --fd 3 --reuse maybe",
    ],
)
def test_a_wrong_command_line_says_how_it_should_be(words: str) -> None:
    with pytest.raises(SystemExit, match="usage"):
        ServerOptions(words.split())


def lasting(folder: Path) -> str:
    listener, path = socket_path.bind_lasting(str(folder))
    listener.close()
    return path


def test_a_service_finds_its_socket_again_at_a_place_nobody_can_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    path = lasting(folder)
    assert len(path) < socket_path.LONGEST
    assert f"-{os.getuid()}-" not in path
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert lasting(folder) == path  # after a kill
    socket_path.unbind(path)
    assert lasting(folder) == path  # and after an end in good order
    socket_path.unbind(path)


@needs_root
def test_a_place_for_the_socket_that_somebody_else_has_taken_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    path = lasting(folder)
    taken = Path(path).parent
    os.chown(taken, NOBODY, NOBODY)
    other = lasting(folder)
    assert other != path
    socket_path.unbind(other)
    Path(path).unlink()
    taken.rmdir()


def test_a_runtime_directory_that_others_can_reach_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / ("x" * 120)
    store.mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="run"))
    runtime.chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    listener, path = socket_path.bind(str(store))
    with listener:
        assert not path.startswith(str(runtime))
    socket_path.unbind(path)
    runtime.rmdir()
