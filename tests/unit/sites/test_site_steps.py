"""A step of a site's test is answered in time, whether the site does or not."""

from __future__ import annotations

import asyncio
from typing import cast

from bough.sites.site_kind import Checked, SiteKind, check_within


class _Site:
    async def check(self, step: str) -> Checked:
        if step == "reach":
            await asyncio.Event().wait()
        return Checked(True, step)


def test_a_site_that_does_not_answer_is_not_in_order() -> None:
    site = cast(SiteKind, _Site())
    assert asyncio.run(check_within(site, "python", 60.0)) == Checked(True, "python")
    found = asyncio.run(check_within(site, "reach", 0.05))
    assert not found.ok
    assert "has not answered within 0.05 s" in found.text
