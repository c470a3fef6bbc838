"""`Popen`, `run` and kin: a process of the pool for a program that treats it as a child of its own.

`subprocess.Popen` does everything on this side: pipes, text, `communicate`, time limits. Here is only what starts,
watches and signals the process. Rule: what `subprocess` promises about this side holds, because it is its code; `run`
and kin take its arguments and raise its exceptions.
"""

from __future__ import annotations

import subprocess
import sys
import weakref
from subprocess import PIPE, STDOUT, CalledProcessError, CompletedProcess, TimeoutExpired
from typing import Any

from bough.driver import session_choice
from bough.driver.local_process import LocalProcess
from bough.driver.process_link import AskedProcess, ProcessLink, Streams, check_startable, read_request

_links: weakref.WeakSet[Any] = weakref.WeakSet()  # a link lives as long as its process, also without a `Popen`


class Popen(subprocess.Popen[Any]):
    """A process that runs as a task; everything else is `subprocess.Popen`'s."""

    _link: ProcessLink
    _child_created = False  # until it is

    def _execute_child(self, *given: Any) -> None:
        asked = AskedProcess(*given)
        try:
            request = read_request(asked)
            where = session_choice.find()
            streams = Streams(asked.p2cread, asked.c2pwrite, asked.errwrite, _own_ends(asked))
            if where.is_near:
                check_startable(request)
                self._link = LocalProcess(where, request, streams)
            else:
                from bough.driver.remote_process import RemoteProcess

                self._link = RemoteProcess(where, request, streams)
            self._child_created = True
            _links.add(self._link)
        finally:
            self._close_pipe_fds(*asked[10:16])  # type: ignore[attr-defined]

    @property  # type: ignore[override]
    def pid(self) -> int | None:
        """The number of the process on its machine; waits until it has begun. None: it did not, or runs elsewhere."""
        return self._link.pid() if self._child_created else None

    @pid.setter
    def pid(self, _: int | None) -> None:
        """`subprocess` clears it before there is a process."""

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._link.ended():
            self._settle(None)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            try:
                self._settle(timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
        return self.returncode

    def _settle(self, timeout: float | None) -> None:
        """Learn the return code."""
        try:
            code = self._link.wait(timeout)
        except TimeoutError:
            raise
        except Exception:
            self.returncode = -9  # it was lost, and how it ended is not known: said once
            raise
        self.returncode = code

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process."""
        self.poll()
        if self.returncode is None:
            self._link.signal(sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        import signal

        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        import signal

        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if self._child_created and self.returncode is None and not sys.is_finalizing():
            import warnings

            warnings.warn(f"process {self.args!r:.60} is still running", ResourceWarning, stacklevel=2, source=self)


def _own_ends(asked: AskedProcess) -> frozenset[int]:
    """The children's ends of the pipes that this process made."""
    pairs = ((asked.p2cread, asked.p2cwrite), (asked.c2pwrite, asked.c2pread), (asked.errwrite, asked.errread))
    return frozenset(theirs for theirs, ours in pairs if ours != -1)


def _abandon() -> None:
    for link in list(_links):
        if not link.ended():
            link.abandon()


session_choice.before_exit.append(_abandon)


def run(
    *popenargs: Any,
    input: Any = None,  # noqa: A002 -- as `subprocess` calls it
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **kwargs: Any,
) -> CompletedProcess[Any]:
    """Run a command in the pool, wait for it, and return a `CompletedProcess`; arguments as of `subprocess.run`."""
    if input is not None:
        if kwargs.get("stdin") is not None:
            raise ValueError("stdin and input arguments may not both be used.")
        kwargs["stdin"] = PIPE
    if capture_output:
        if kwargs.get("stdout") is not None or kwargs.get("stderr") is not None:
            raise ValueError("stdout and stderr arguments may not be used with capture_output.")
        kwargs["stdout"] = kwargs["stderr"] = PIPE
    with Popen(*popenargs, **kwargs) as process:
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except TimeoutExpired:
            process.kill()
            process.wait()  # what it wrote until then is in the exception
            raise
        except BaseException:  # also Ctrl-C, which `communicate` waited for a little
            process.kill()
            raise
        code = process.poll()
    assert code is not None  # `communicate` has waited for it
    if check and code:
        raise CalledProcessError(code, process.args, output=stdout, stderr=stderr)
    return CompletedProcess(process.args, code, stdout, stderr)


def call(*popenargs: Any, timeout: float | None = None, **kwargs: Any) -> int:
    """Run a command in the pool and return its return code."""
    with Popen(*popenargs, **kwargs) as process:
        try:
            return process.wait(timeout=timeout)
        except BaseException:
            process.kill()
            raise


def check_call(*popenargs: Any, timeout: float | None = None, **kwargs: Any) -> int:
    """As `call`, but a return code that is not 0 raises CalledProcessError."""
    code = call(*popenargs, timeout=timeout, **kwargs)
    if code:
        raise CalledProcessError(code, kwargs["args"] if "args" in kwargs else popenargs[0])
    return 0


def check_output(*popenargs: Any, timeout: float | None = None, **kwargs: Any) -> Any:
    """Run a command in the pool and return what it wrote; a return code that is not 0 raises CalledProcessError."""
    for name in ("stdout", "check"):
        if name in kwargs:
            raise ValueError(f"{name} argument not allowed, it will be overridden.")
    if "input" in kwargs and kwargs["input"] is None:  # as if it were empty, in the kind that is wanted
        is_text = any(kwargs.get(name) for name in ("text", "encoding", "errors", "universal_newlines"))
        kwargs["input"] = "" if is_text else b""
    return run(*popenargs, stdout=PIPE, timeout=timeout, check=True, **kwargs).stdout


def getstatusoutput(cmd: Any, *, encoding: str | None = None, errors: str | None = None) -> tuple[int, str]:
    """The return code of a shell command, and what it wrote to both streams without the last newline."""
    done = run(cmd, shell=True, text=True, stdout=PIPE, stderr=STDOUT, encoding=encoding, errors=errors)
    return done.returncode, str(done.stdout).removesuffix("\n")


def getoutput(cmd: Any, *, encoding: str | None = None, errors: str | None = None) -> str:
    """What a shell command wrote to both streams, without the last newline."""
    return getstatusoutput(cmd, encoding=encoding, errors=errors)[1]
