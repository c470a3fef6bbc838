"""Running a Python script as `__main__`, as `python FILE ARGS` would, inside this process.

Rule: the script sees its own `sys.argv`, `sys.path[0]` and `__main__`, so that what it defines pickles by
value; our own frames do not show in its tracebacks.
"""

from __future__ import annotations

import builtins
import os
import sys
import traceback
import types
from collections.abc import Sequence

from bough.describe.source_files import read_file
from bough.errors import BoughError, UserError, WorkflowFailed


def run_script(path: str, args: Sequence[str]) -> int:
    """Run a script to its end; its exit code. Errors of ours that it let through are raised with its line.

    Any other exception is printed as Python prints it, and gives 1; KeyboardInterrupt passes through.
    """
    source, file = _read(path), os.path.abspath(path)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=file, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    sys.argv = [path, *args]
    sys.path[0:1] = [os.path.dirname(file)]
    try:
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as leaving:
        return _exit_code(leaving)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, WorkflowFailed) or (isinstance(error, BoughError) and error.exit_code != 1):
            _put_place(error, path, file)
            raise
        _show(error, file)
        return 1
    return 0


def _read(path: str) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    print(leaving.code, file=sys.stderr)
    return 1


def _own_frames(error: BaseException, file: str) -> types.TracebackType | None:
    """The traceback from the script's first frame on; none of it for a syntax error of the script itself."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace


def _show(error: BaseException, file: str) -> None:
    trace = _own_frames(error, file)
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _put_place(error: BoughError, path: str, file: str) -> None:
    """Put the line of the script that an error of ours came from in front of its message."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if lines and error.args:
        error.args = (f"{path}:{lines[-1]}: {error.args[0]}", *error.args[1:])
