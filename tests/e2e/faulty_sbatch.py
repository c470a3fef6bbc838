"""An `sbatch` in front of the real one that answers slowly, errs, is silent, or times out after it has accepted.

Each call is noted with the job's name, and each acceptance: what Slurm knows is held against that. Rule: which call
goes wrong follows from its number, so that a run can be repeated.
"""

from __future__ import annotations

import collections
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TEXT = r"""#!/bin/bash
here=$(dirname "$0")
name=$(grep -o 'bough-[0-9a-f]*-[0-9]*' "$1" | head -1)
exec 9>>"$here/calls"; flock 9
number=$(grep -c . "$here/calls")
echo "$name" >&9
flock -u 9
accept() { out=$(@SBATCH@ "$@") || exit $?; echo "$name" >> "$here/accepted"; }
[ @EVERY@ -gt 0 ] && [ $((number % @EVERY@)) = $((@EVERY@ - 1)) ] || exec @SBATCH@ "$@"
case $((number / @EVERY@ % 6)) in
0) sleep 0.5; accept "$@"; sleep 0.5; echo "$out" ;;  # slow
1) echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
2) accept "$@"; echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1 ;;
3) accept "$@"; sleep 600 ;;  # it never answers
4) accept "$@"; exit 0 ;;  # it says nothing
5) accept "$@"; echo "sbatch: error: something unheard of" >&2; exit 7 ;;
esac
"""


class Tally(NamedTuple):
    """Jobs that Slurm has against pilots that Bough has."""

    jobs: int
    doubled: list[str]  # pilots with several jobs
    lost: list[str]  # pilots that say that they were taken, and have no job of that number
    strange: list[str]  # jobs of no pilot


def install_faulty_sbatch(folder: Path, every: int) -> None:
    """Put it on the path; every so many calls one goes wrong, 0: none, and calls are noted only."""
    real = shutil.which("sbatch", path="/usr/bin:/usr/local/bin")
    script = folder / "sbatch"
    script.write_text(_TEXT.replace("@SBATCH@", str(real)).replace("@EVERY@", str(every)))
    script.chmod(0o755)


def calls(folder: Path) -> int:
    """How often it was called."""
    noted = folder / "calls"
    return len(noted.read_text().splitlines()) if noted.exists() else 0


def tally(jobs: str, pilots: Iterable[dict[str, object]]) -> Tally:
    """Compare lines of number and name, as squeue gives them, with the pilots of a site."""
    pairs = [line.split() for line in jobs.splitlines()]
    found = collections.defaultdict(list)
    for number, name in pairs:
        found[name.rpartition("-")[2]].append(number)
    known = {str(pilot["pilot"]): str(pilot["handle"]) for pilot in pilots}
    return Tally(
        len(pairs),
        [pilot for pilot, numbers in found.items() if len(numbers) > 1],
        [pilot for pilot, handle in known.items() if handle and found.get(pilot) != [handle]],
        [pilot for pilot in found if pilot not in known],
    )
