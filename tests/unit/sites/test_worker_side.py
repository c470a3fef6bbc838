"""What runs on a worker of a cluster, in this process: ways to the server, notes, cancelling, silence about secrets."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from bough.sites.engines import worker_side
from bough.sites.engines.worker_side import Call, boot_id, end_pilots, look, no_way, run_pilot
from bough.sites.head import far_side
from bough.sites.head.bootstrap import OWN

SECRET = "do-not-tell"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "cache"


def make_call(ways: list[list[str]], **fields: Any) -> Call:
    request = {"key": "k", "tag": OWN.tag, "boot": boot_id(), "digest": "d", "shared_dir": "", "platform": OWN.tag}
    return Call(Path(far_side.__file__).read_text(), {**request, "pilot": 1, "setup": "", **fields}, ways)


def install_program(text: str) -> None:
    """A program in the place of Bough's executor."""
    folder = Path(far_side.program_folder("d"), "bough")
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "executor.py").write_text(text)
    (folder.parent / "complete").touch()


@pytest.fixture
def door(tmp_path: Path) -> list[str]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "door"))
    return [f"unix:{tmp_path / 'door'}", SECRET]


def test_a_worker_on_the_same_machine_takes_the_socket(door: list[str]) -> None:
    assert look(make_call([door]))["way"] == door[0]


def test_a_worker_of_another_machine_takes_the_address_if_it_answers(door: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert look(make_call([door, [address, ""]], boot="another"))["way"] == address
    call = make_call([door, [address, ""]], boot="another")
    assert look(call)["way"] == ""
    assert "firewall" in no_way(call)
    assert "--listen HOST:PORT" in no_way(make_call([door], boot="another"))


def test_a_pilot_runs_with_a_private_access_file_and_says_its_last_words(door: list[str], cache: Path) -> None:
    install_program("import os, sys; s = os.stat(sys.argv[2]); print(oct(s.st_mode), open(sys.argv[2]).read())\n")
    assert run_pilot(make_call([door], words=[]), lambda: False) == f"0o100600 {SECRET}"
    assert not list(cache.rglob("pilot.json"))


def test_a_pilot_without_a_way_says_what_to_do(door: list[str]) -> None:
    install_program("")
    words = run_pilot(make_call([door], boot="another", words=[]), lambda: False)
    assert words.startswith(f"{socket.gethostname()}: this worker is not on the server's machine")


def test_a_pilot_of_another_platform_is_not_begun(door: list[str]) -> None:
    words = run_pilot(make_call([door], platform="cpython-399", words=[]), lambda: False)
    assert "that of another one was cpython-399" in words


def test_a_pilot_that_was_cancelled_does_not_begin(door: list[str]) -> None:
    install_program("")
    end_pilots(make_call([door], pilots=[1]))
    assert "cancelled before it began" in run_pilot(make_call([door], words=[]), lambda: False)


def test_a_pilot_ends_when_its_worker_is_to_end(door: list[str]) -> None:
    install_program("import signal, sys; signal.signal(15, lambda *_: sys.exit('told')); signal.pause()\n")
    assert run_pilot(make_call([door], words=[]), lambda: True) in {"told", ""}  # it may not have come that far


def test_what_a_call_carries_is_not_shown(door: list[str]) -> None:
    call = make_call([door])
    assert SECRET not in repr(call) + str([call])


def test_calls_travel_by_value_to_a_python_without_bough(door: list[str]) -> None:
    cloudpickle.register_pickle_by_value(worker_side)
    try:
        data = cloudpickle.dumps((worker_side.dask_pilot, worker_side.look, worker_side.RayPilot, make_call([door])))
    finally:
        cloudpickle.unregister_pickle_by_value(worker_side)
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("bough")}
    try:
        assert cloudpickle.loads(data)[1](cloudpickle.loads(data)[3])["way"] == door[0]
        assert not any(name.startswith("bough.") for name in sys.modules)
    finally:
        sys.modules.update(hidden)
    assert os.path.exists(door[0].removeprefix("unix:"))
