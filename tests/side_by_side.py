"""Run all tests in two processes at once, as `make test` does: most of them wait for processes more than they compute.

The first half is shown as it runs, the second one when both have ended. Rule: whatever fails in either fails the run;
words on the command line go to both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIRST = ("unit", "property", "contract", "e2e")
NOT_TESTS = {"bench", "data", "__pycache__"}


def main() -> int:
    second = sorted(
        folder.name for folder in HERE.iterdir() if folder.is_dir() and folder.name not in {*FIRST, *NOT_TESTS}
    )
    print(f"two runs side by side: {', '.join(FIRST)}, shown now; {', '.join(second)}, shown afterwards", flush=True)
    with tempfile.TemporaryFile() as output:
        later = subprocess.Popen(command(second), stdout=output, stderr=subprocess.STDOUT, env=plain())
        try:
            codes = [subprocess.call(command(FIRST)), later.wait()]
        finally:
            if later.poll() is None:
                later.terminate()
                later.wait()
            output.seek(0)
            sys.stdout.flush()
            while piece := output.read(1 << 20):
                os.write(1, piece)
    return next((code for code in codes if code), 0)


def command(folders: tuple[str, ...] | list[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", *(str(HERE / name) for name in folders), *sys.argv[1:]]


def plain() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


if __name__ == "__main__":
    sys.exit(main())
