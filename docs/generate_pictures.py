"""Makes the picture of the landing page: a terminal in which `bough run` is half-way through a workflow.

It is not drawn by hand: tmux runs the real command, and what its screen shows becomes an SVG. Run it when the display
changes: `python docs/generate_pictures.py` (needs tmux).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 92, 22
PICTURE = Path(__file__).parent / "pictures" / "run.svg"
WORKFLOW = """\
import bough

with bough.Session() as s:
    with s.group("prepare"):
        parts = s.sweep("sleep 0.02; seq {n} > {out:w}", bough.product(n=range(1, 41)), out="parts/{n}.txt")
    with s.group("search", after=[parts]):
        found = s.sweep("sleep {n} && test {k} -ne 7", bough.product(n=[0.1, 0.2], k=range(60)))
    with s.group("report", after=[found]):
        s.command("sort -n parts/*.txt | tail -n 1", name="best")
"""


def screen(folder: Path) -> str:
    """The screen of a terminal, with its colours, once the second group is about half done."""
    (folder / "search.py").write_text(WORKFLOW)
    bough = Path(sys.executable).with_name("bough")
    socket = str(folder / "tmux")
    tmux = ["tmux", "-S", socket, "-f", "/dev/null"]
    shell = ["env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i"]
    subprocess.run([*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), "-c", folder, *shell], check=True)
    try:
        subprocess.run([*tmux, "send-keys", f"alias bough={bough}; clear", "Enter"], check=True)
        subprocess.run([*tmux, "send-keys", "bough run search.py", "Enter"], check=True)
        deadline, shown = time.monotonic() + 60, ""
        while time.monotonic() < deadline:
            time.sleep(0.2)
            shown = subprocess.run(
                [*tmux, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True
            ).stdout
            counts = re.search(r"(\d+)\s*/\s*161|(\d+) of 161", re.sub(r"\x1b\[[0-9;]*m", "", shown))
            if counts and int(counts[1] or counts[2]) > 80:
                return shown.rstrip() + "\n"
        raise SystemExit("the workflow did not get half-way within a minute; the screen was:\n" + shown)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        shown = screen(Path(folder))
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(shown))
    picture = console.export_svg(title="bough run")
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # fonts of the machine that shows it
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n")


if __name__ == "__main__":
    main()
