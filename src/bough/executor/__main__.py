"""`python -m bough.executor`: the executor process.

Rule: nothing is imported here that the hello does not need.
"""

from __future__ import annotations

import os
import sys

# msgspec looks for typing_extensions, which loads a lot, and does as well without; users' functions may have it again
sys.modules["typing_extensions"] = None  # type: ignore[assignment]
import msgspec  # noqa: E402, F401

del sys.modules["typing_extensions"]

from bough import logs  # noqa: E402
from bough.executor.loop import main  # noqa: E402

if __name__ == "__main__":
    code = main(sys.argv[1:])
    logs.flush()
    os._exit(code)  # everything has ended; taking the interpreter apart would only keep the session waiting
