"""The server's own machine as a site: it does what every kind of site has to do."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bough.errors import UserError
from bough.model.sites.site_specs import SiteSpec
from bough.sites.head.bootstrap import OWN, make_archive
from bough.sites.local_site import LocalSite
from bough.sites.site_kind import SiteKind, Surroundings, find_kind
from bough.testing.site_conformance import check_site_kind


def test_it_does_what_every_kind_has_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make() -> SiteKind:
        around = Surroundings(str(tmp_path), str(tmp_path), str(tmp_path / "no-server"), "A" * 43, "ab" * 16)
        return find_kind("local")("local", SiteSpec(kind="local", idle=60.0, cores_per_pilot=1), around)

    asyncio.run(check_site_kind(make))
    assert not list((tmp_path / "cache" / "bough" / "sites").rglob("access.json"))


def test_it_has_no_address(tmp_path: Path) -> None:
    around = Surroundings(str(tmp_path), str(tmp_path), "s", "t", "k")
    with pytest.raises(UserError, match="is this machine"):
        LocalSite("here", SiteSpec(kind="local", ssh="me@there"), around)


def test_several_sites_make_the_archive_at_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    (cache / f"{OWN.tag}+old.tar.gz").touch()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(make_archive, [str(cache)] * 8))
    assert len({archive.digest for archive in found}) == 1
    assert len(list(cache.iterdir())) == 1
