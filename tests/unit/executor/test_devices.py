from __future__ import annotations

from pathlib import Path

import pytest

from bough.executor.host.devices import CUDA, HIP, LEVEL_ZERO, ROCR, DevicePool, Gpus, find_gpus
from bough.model.sites.resources import Needs


def nvidia(root: Path, count: int) -> Path:
    for number in range(count):
        (root / "proc/driver/nvidia/gpus" / f"0000:0{number}:00.0").mkdir(parents=True)
    return root


@pytest.mark.parametrize("count", [1, 3])
def test_what_the_driver_of_nvidia_tells_is_found(tmp_path: Path, count: int) -> None:
    assert find_gpus(str(nvidia(tmp_path, count)), {}) == Gpus(tuple(map(str, range(count))), (CUDA,))


def test_device_files_are_counted_where_the_driver_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()

    assert find_gpus(str(tmp_path), {}) == Gpus(("0", "1"), (CUDA,))


def test_of_the_kernels_list_for_amd_only_gpus_count(tmp_path: Path) -> None:
    for node, gpu in enumerate(("0", "1234", "5678", "")):
        folder = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(node)
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{gpu}\n")

    assert find_gpus(str(tmp_path), {}) == Gpus(("0", "1"), (ROCR,))


def test_a_machine_without_any_has_none(tmp_path: Path) -> None:
    assert find_gpus(str(tmp_path), {}).names == ()


@pytest.mark.parametrize(
    ("variable", "text", "names"),
    [
        (CUDA, "2,5", ("2", "5")),
        (CUDA, "GPU-8a1, MIG-77", ("GPU-8a1", "MIG-77")),
        (CUDA, "", ()),
        (CUDA, "1,-1,2", ("1",)),
        (CUDA, "NoDevFiles", ()),
        (ROCR, "3", ("3",)),
        (HIP, "0,1", ("0", "1")),
        (LEVEL_ZERO, "0.1", ("0.1",)),
    ],
)
def test_an_executor_keeps_to_what_it_was_given(
    tmp_path: Path, variable: str, text: str, names: tuple[str, ...]
) -> None:
    assert find_gpus(str(nvidia(tmp_path, 8)), {variable: text}) == Gpus(names, (variable,))


def test_a_number_means_the_first_ones_or_so_many_that_nothing_tells_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (CUDA, ROCR, HIP, LEVEL_ZERO):
        monkeypatch.delenv(variable, raising=False)
    assert Gpus(("0", "1", "2"), (CUDA,)).first(2) == Gpus(("0", "1"), (CUDA,))
    assert Gpus().first(2) == Gpus(("0", "1"), (CUDA, ROCR, LEVEL_ZERO))
    monkeypatch.setenv(CUDA, "4,6")
    assert Gpus(("4", "6"), (CUDA,)).first(1) == Gpus(("4",), (CUDA,))
    with pytest.raises(ValueError, match=r"\$CUDA_VISIBLE_DEVICES names only 2"):
        Gpus(("4", "6"), (CUDA,)).first(3)


def test_no_gpu_is_with_two_tasks_and_each_comes_back() -> None:
    pool = DevicePool(Gpus(("0", "1", "2"), (CUDA,)))
    one, two = pool.take(Needs(gpus=2)), pool.take(Needs(gpus=1))

    assert one is not None
    assert two is not None
    assert sorted(one.gpus + two.gpus) == ["0", "1", "2"]
    assert one.environment() == {CUDA: "0,1", "BOUGH_GPUS": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    pool.give(one)
    assert pool.has(("0", "1"))
    assert not pool.has(("2",))
    again = pool.take(Needs(gpus=1), before=("1",))
    assert again is not None
    assert again.gpus == ("1",)


def test_a_task_without_gpus_is_told_of_none() -> None:
    assert DevicePool(Gpus(("0",), (CUDA,))).take(Needs()) is None


def test_pinned_tasks_have_cores_of_their_own_as_long_as_there_are_some() -> None:
    pool = DevicePool(Gpus(), (4, 5, 7))
    one, two = pool.take(Needs(cores=2)), pool.take(Needs(cores=1))

    assert pool.pins
    assert one is not None
    assert two is not None
    assert (one.cpus, two.cpus) == ((4, 5), (7,))
    assert one.environment() == {}
    assert pool.take(Needs(cores=1)) is None  # more tasks than cores: it runs where it likes
    pool.give(two)
    assert pool.take(Needs(cores=0.5)) is None  # it shares a core
    again = pool.take(Needs(cores=1))
    assert again is not None
    assert again.cpus == (7,)
