"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import warnings

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("bough.testing")  # a failure of a conformance suite shows its values

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: what tests start must hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No test meets a server, a site or a profile of whoever runs them: the home of those that name none is ours.
_home = tempfile.TemporaryDirectory(prefix="bough-tests-", ignore_cleanup_errors=True)
os.environ["XDG_STATE_HOME"] = _home.name
for _variable in ("BOUGH_HOME", "BOUGH_SERVER"):
    os.environ.pop(_variable, None)
os.environ.setdefault("BOUGH_PRELOAD", "0")  # what tests import is not what their functions need

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def _a_log_of_its_own() -> None:
    """A line that another test has logged is written again in this one."""
    from bough import logs

    logs._known.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """What waits for the collector when all tests have ended can fail none of them any more: it is said."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(3):
            gc.collect()
    for one in found:
        print(f"left to the collector by some test: {one.message}")
