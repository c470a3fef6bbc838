"""`python -m bough.executor`: the executor process."""

from __future__ import annotations

import sys

from bough.executor.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
