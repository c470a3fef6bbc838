"""What every kind of site has to do, as one check: for our own kinds and for those of other packages.

    asyncio.run(check_site_kind(lambda: MyKind("name", spec, surroundings)))

The site must be there, and let pilots be started; whether their executors find a server does not matter. Rule: the
check ends what it has started, also when it fails.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Final

from bough.errors import SiteError
from bough.model.sites.site_specs import PilotId
from bough.sites.site_kind import PilotStatus, SendsFiles, SiteKind, SubmitsMany

_PATIENCE: Final = 60.0  # seconds for something to come true
_FILE: Final = "/etc/passwd"  # every host has it
_MANY: Final = (PilotId(3), PilotId(4), PilotId(5))  # for kinds that can start several at once


async def check_site_kind(make: Callable[[], SiteKind]) -> None:
    """Raise AssertionError when a kind breaks a rule of `sites.site_kind`. `make` makes one for the same site."""
    kind = make()
    first, second, unknown = PilotId(1), PilotId(2), PilotId(99)
    try:
        await _check_steps(kind)
        handles = {first: await kind.submit(first), second: await kind.submit(second)}
        assert handles[first] != handles[second], "two pilots have one name"
        assert await kind.submit(first) == handles[first], "a pilot that was submitted again was started again"
        await kind.close()
        await kind.close()  # once is enough, twice does no harm
        kind = make()  # as a server does that was started anew
        found = await kind.statuses({**handles, unknown: "unheard of"})
        assert set(found) == {*handles, unknown}, "a status is missing"
        assert found[first].alive, "a pilot did not outlive the connection"
        assert found[second].alive, "a pilot did not outlive the connection"
        assert not found[unknown].alive, "a pilot that nobody knows is there"
        assert await kind.submit(first) == handles[first], "a pilot is not found by its number after a restart"
        await kind.cancel({first: handles[first], unknown: "unheard of"})
        await _until_gone(kind, {first: handles[first]})
        assert (await kind.statuses({second: handles[second]}))[second].alive, "another pilot was cancelled as well"
        if isinstance(kind, SubmitsMany):
            await _check_many(kind, second, handles[second])
        if isinstance(kind, SendsFiles):
            await _check_sends(kind)
    finally:
        everything = dict.fromkeys((first, second, *_MANY), "")
        await kind.cancel(everything)
        await _until_gone(kind, everything)
        await kind.forget()
        await kind.close()


async def _check_steps(kind: SiteKind) -> None:
    assert kind.steps, "there is nothing to test"
    for step in kind.steps:
        found = await kind.check(step)
        assert found.ok, f"{step}: {found.text}"
        assert found.text, f"{step}: no word"
        assert "\n" not in found.text, f"{step}: more than one line"


async def _check_many(kind: SiteKind, known: PilotId, handle: str) -> None:
    """Several at once, one of them known: all have names of their own, and nothing is started twice."""
    assert isinstance(kind, SubmitsMany)
    found: dict[PilotId, str] = {}
    for _ in range(2):
        left = [known, *_MANY]
        async with asyncio.timeout(_PATIENCE):
            while left:
                came = await kind.submit_many(left, 1.0)
                assert came, "nothing was tried"
                assert set(came) <= set(left), "what was not asked for was started"
                for pilot, one in came.items():
                    assert isinstance(one, str), f"pilot {pilot}: {one}"
                    assert found.setdefault(pilot, one) == one, f"pilot {pilot} was started twice"
                left = [pilot for pilot in left if pilot not in came]
    assert found[known] == handle, "a pilot that was submitted before was started again"
    assert len(set(found.values())) == len(found), "two pilots have one name"
    assert all(status.alive for status in await _statuses(kind, found)), "a pilot is not there"


async def _check_sends(kind: SendsFiles) -> None:
    """A file that every host has comes, and does not come again while it has the mark that is known."""
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/sent"
        sent = await kind.fetch(_FILE, target, "")
        assert sent.came, "a file did not come of which nothing was known"
        assert os.path.getsize(target) == sent.size, "another number of bytes came than was said"
        assert not sent.mark or not (await kind.fetch(_FILE, f"{folder}/again", sent.mark)).came, "it came again"
        try:
            await kind.fetch("/nowhere/x", f"{folder}/nothing", "")
        except SiteError:
            return
        raise AssertionError("a file came that is not there")


async def _until_gone(kind: SiteKind, pilots: Mapping[PilotId, str]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while any(status.alive for status in await _statuses(kind, pilots)):
            await asyncio.sleep(0.05)


async def _statuses(kind: SiteKind, pilots: Mapping[PilotId, str]) -> list[PilotStatus]:
    return list((await kind.statuses(pilots)).values())
