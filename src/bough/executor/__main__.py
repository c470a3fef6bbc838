"""`python -m bough.executor`: the executor process."""

from __future__ import annotations

import os
import sys

from bough.executor.main import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # everything has ended; taking the interpreter apart would only keep the session waiting
