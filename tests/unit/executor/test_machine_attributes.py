"""What an executor says of the machine it runs on, and what its user says of it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from bough.errors import UserError
from bough.executor.executor_options import ExecutorOptions, make_hello, read_attribute, read_capacity_and_lifetime
from bough.executor.host.machine_capacity import cpu_flags, machine_attributes
from bough.model.sites.requirements import Attributes


def test_the_machine_is_described_within_bounds() -> None:
    found = machine_attributes()
    assert found["arch"] == os.uname().machine
    assert found["os"] == "linux"
    assert float(found["disk_gb"]) > 0  # type: ignore[arg-type]
    msgspec.convert(tuple(found.items()), Attributes)


def test_flags_of_the_first_processor_are_words(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor: 0\nmodel name: X\nflags\t\t: fpu avx512f avx2\n\nprocessor: 1\nflags: other\n")
    assert cpu_flags(str(info)) == ("avx2", "avx512", "avx512f", "fpu")
    info.write_text("Features: asimd sve\n")  # as ARM has it
    assert cpu_flags(str(info)) == ("asimd", "sve")
    info.write_text("nothing of the kind")
    assert cpu_flags(str(info)) == ()
    assert cpu_flags(str(tmp_path / "none")) == ()


def test_what_the_user_says_goes_along_with_the_hello() -> None:
    words = [
        "--server",
        "unix:/x",
        "--attribute",
        "rack=7",
        "--attribute",
        "network=infiniband",
        "--attribute",
        "os=mine",
    ]
    capacity, lifetime = read_capacity_and_lifetime(ExecutorOptions(words))
    said = dict(make_hello("local", capacity, lifetime, None).attributes)
    assert (said["rack"], said["network"], said["os"]) == (7.0, "infiniband", "mine")
    assert said["arch"] == os.uname().machine


@pytest.mark.parametrize(
    "text", ["rack", "=7", "2nd=7", "memory_gb=3", "site=alpha", "x=" + "y" * 1001, "x=nan", "x=1e999"]
)
def test_wrong_attributes_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        read_attribute(text)
