"""Wheels for other Pythons: what pip is asked for, what is believed of what it brings, what is kept."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import zipfile
from pathlib import Path

import msgspec
import pytest

from bough.errors import SiteError
from bough.sites.head import bootstrap, foreign_wheels
from bough.sites.head.foreign_wheels import Platform, find_wheel, open_wheel, read_version

OTHER = Platform("cpython-399-x86_64-linux-gnu", "linux-x86_64", "glibc 2.36")
FILES = {"msgspec/__init__.py": b"from ._core import *\n", f"msgspec/_core.{OTHER.tag}.so": b"\x7fELF"}


def make_wheel(files: dict[str, bytes], listed: dict[str, bytes] | None = None) -> bytes:
    packed = io.BytesIO()
    lines = []
    for name, data in (listed or files).items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(data)}")
    lines.append("msgspec-1.dist-info/RECORD,,")
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr("msgspec-1.dist-info/RECORD", "\n".join(lines) + "\n")
    return packed.getvalue()


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked for; every wish is granted."""
    wishes: list[str] = []

    def download(folder: str, wish: str, platform: Platform) -> str:
        wishes.append(wish)
        Path(folder, "msgspec-1-x.whl").write_bytes(make_wheel(FILES))
        return ""

    monkeypatch.setattr(foreign_wheels, "_download", download)
    return wishes


def test_pip_is_told_every_system_whose_wheels_run_there() -> None:
    words = foreign_wheels._words(OTHER)
    assert words[:6] == ["--implementation", "cp", "--python-version", "3.99", "--abi", "cp399"]
    for name in ("manylinux_2_36_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"):
        assert name in words
    assert "manylinux_2_37_x86_64" not in words
    free = foreign_wheels._words(Platform("cpython-313t-aarch64-linux-musl", "linux-aarch64"))
    assert free[4:8] == ["--abi", "cp313t", "--platform", "musllinux_1_2_aarch64"]


@pytest.mark.parametrize(
    "platform",
    [
        Platform("", "linux-x86_64"),
        Platform("pypy310-pp73-x86_64-linux-gnu", "linux-x86_64"),
        Platform("cpython-312-darwin", "macosx-14.0-arm64"),
        Platform(OTHER.tag, "linux-x86_64 --index-url=evil"),
        Platform(OTHER.tag + "\n", "linux-x86_64"),
    ],
)
def test_a_platform_that_no_wheel_is_for_is_refused_before_pip_hears_of_it(platform: Platform, tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="name another one with --python"):
        find_wheel(str(tmp_path / "wheels"), platform)


def test_a_wheel_is_fetched_once_and_a_damaged_one_again(tmp_path: Path, pip: list[str]) -> None:
    cache = tmp_path / "wheels"
    assert dict(find_wheel(str(cache), OTHER).files) == FILES
    assert dict(find_wheel(str(cache), OTHER).files) == FILES
    assert pip == [f"msgspec=={msgspec.__version__}"]
    [kept] = cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_bytes(make_wheel({**FILES, "msgspec/more.py": b""}))  # complete in itself, but not what was fetched
    assert dict(find_wheel(str(cache), OTHER).files) == FILES
    assert len(pip) == 2


def test_what_is_not_as_its_list_says_is_not_taken() -> None:
    name = f"msgspec/_core.{OTHER.tag}.so"
    with pytest.raises(SiteError, match="is not what its list says"):
        open_wheel(make_wheel({**FILES, name: b"other"}, FILES), OTHER)
    with pytest.raises(SiteError, match="damaged"):
        open_wheel(b"no zip", OTHER)
    with pytest.raises(SiteError, match="damaged"):
        open_wheel(make_wheel({**FILES, "msgspec/../../x": b""}), OTHER)
    with pytest.raises(SiteError, match="not for cpython-399"):
        open_wheel(make_wheel({"msgspec/__init__.py": b""}), OTHER)
    assert "elsewhere/x" not in dict(open_wheel(make_wheel({**FILES, "elsewhere/x": b""}), OTHER).files)


def test_without_an_index_the_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_wheels, "_download", lambda *_: "No matching distribution found")
    with pytest.raises(SiteError, match=r"cannot be fetched \(No matching .*\): let pip here reach its index, install"):
        find_wheel(str(tmp_path), OTHER)


def test_pip_that_finds_nothing_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip, without an index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    problem = foreign_wheels._download(str(tmp_path), "msgspec==0.19", OTHER)
    assert problem.startswith("No matching distribution found for msgspec")


def test_archives_of_several_platforms_stay_beside_each_other(tmp_path: Path, pip: list[str]) -> None:
    cache = str(tmp_path)
    own, other = bootstrap.make_archive(cache), bootstrap.make_archive(cache, OTHER)
    assert own.digest != other.digest
    has = bootstrap.make_archive(cache, OTHER._replace(msgspec="0.19.1"))  # installed there
    assert len(has.data) < len(other.data)
    assert bootstrap.make_archive(cache) == own
    assert sorted(name.partition("+")[0] for name in os.listdir(cache)) == [bootstrap.OWN.tag, OTHER.tag, "wheels"]
    assert len(pip) == 1


def test_versions_are_compared_as_numbers() -> None:
    assert read_version("0.9.1") < foreign_wheels.LEAST < read_version("0.20.0")
    assert read_version("") < foreign_wheels.LEAST
    assert read_version("0.19rc1") == (0, 19)
