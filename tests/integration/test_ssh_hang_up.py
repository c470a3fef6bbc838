"""A connection that is closed while it is being made: who was connecting learns it at once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bough.errors import SiteError
from bough.sites.head.ssh_connection import SshConnection

SILENT = "#!/bin/sh\necho $$ > {said}\nexec sleep 600\n"  # an ssh whose host never answers


def test_whoever_connects_does_not_wait_for_a_connection_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, ssh = tmp_path / "said", tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SILENT.format(said=said))
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=os.pathsep)

    async def close_early() -> str:
        connection = SshConnection("lab", "", str(tmp_path / "control"), lambda: None)
        opening = asyncio.ensure_future(connection.open())
        async with asyncio.timeout(60):
            while not said.exists():
                await asyncio.sleep(0.01)
        await connection.close()
        with pytest.raises(SiteError) as error:
            await opening
        return str(error.value)

    assert "does not answer" not in asyncio.run(close_early())  # that would be the end of its patience
