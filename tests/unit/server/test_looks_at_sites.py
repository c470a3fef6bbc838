"""Files of sites that the server has looked at for readers elsewhere."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace

from bough.server.files.site_files import SiteFiles
from bough.sites.site_kind import SentFile


def test_who_asks_while_a_look_is_under_way_sees_what_was_written_before_he_asked(tmp_path: Path) -> None:
    async def read() -> tuple[list[bytes], int]:
        content, looks = b"old", 0
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def fetch(site: str, path: str, target: str, known: str) -> SentFile:
            nonlocal looks
            assert (site, path, known) == ("alpha", "/x", "")
            looks, data = looks + 1, content
            begun.set()
            await go_on.wait()
            Path(target).write_bytes(data)
            return SentFile(len(data), "", True)

        async def bring_in(path: str) -> tuple[bytes, int]:
            data = Path(path).read_bytes()
            return blake2b(data, digest_size=32).digest(), len(data)

        shell = SimpleNamespace(loop=asyncio.get_running_loop(), peers=SimpleNamespace(executors={}))
        contents = SimpleNamespace(last_seen=lambda _: None, note=lambda *_: None)
        files = SiteFiles(shell, SimpleNamespace(bring_in_new=bring_in), contents, str(tmp_path / "files"))  # type: ignore[arg-type]
        files.fetch = fetch
        first = asyncio.create_task(files.see("alpha:/x"))
        await begun.wait()
        content = b"new"
        others = [asyncio.create_task(files.see("alpha:/x")) for _ in range(3)]
        await asyncio.sleep(0)
        go_on.set()
        seen = [(await one).digest for one in (first, *others)]
        assert not files._looks
        return seen, looks

    seen, looks = asyncio.run(read())
    old, new = (blake2b(data, digest_size=32).digest() for data in (b"old", b"new"))
    assert seen == [old, new, new, new]
    assert looks == 2
    assert list((tmp_path / "files").iterdir()) == []
