"""An environment of a user who installs Bough by `pip`, from a wheel of this tree.

What Bough depends on is lent by the environment of the tests, so that only Bough itself is built and installed.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]


class FreshInstall:
    """A virtual environment in which `pip install bough` finds the wheel; `variables` are for who uses it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"  # that comes first on the path
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.packages = next(folder.glob("lib/python*/site-packages"))
        lent = folder / "lent"
        lent.mkdir()
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if (
                "bough" not in entry.name
                and entry.suffix != ".pth"
                and not entry.name.startswith(("pip", "setuptools"))
            ):
                (lent / entry.name).symlink_to(entry)
        (self.packages / "lent.pth").write_text(f"{lent}\n")
        wheels = folder / "wheels"
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT]
        subprocess.run(build, check=True, capture_output=True, timeout=300)
        self.variables = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
