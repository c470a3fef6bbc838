"""`run` and its kin: a process from its start to its end in one call, with `subprocess`' arguments and exceptions."""

from __future__ import annotations

from subprocess import PIPE, STDOUT, CalledProcessError, CompletedProcess, TimeoutExpired
from typing import Any

from bough.driver.process import Popen


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
