"""`python -m bough.server`: the embedded server of a session.

The executor takes as long to come up as the server itself, so it is started first, before anything
heavy is loaded; both then load at the same time. Where there may be results to reuse it is started when it is needed.
"""

from __future__ import annotations

import gc
import os
import sys

from bough import logs
from bough.errors import BoughError, StoreFailed
from bough.model.reuse_scope import NEVER, RESUME
from bough.server import socket_path
from bough.server.embedded.local_executor import ExecutorCommand
from bough.server.embedded.server_options import ServerOptions
from bough.stores.folder.unfinished_note import read_note


def main() -> int:
    """Start the executor, then become the server."""
    gc.disable()  # until all is loaded
    options = ServerOptions(sys.argv[1:])
    os.set_inheritable(options.fd, False)
    try:
        socket_path.make_store(options.store)
        listener, path = socket_path.bind(options.store)
    except (OSError, BoughError) as error:
        from bough.server.embedded.embedded_server import refuse

        problem = (
            StoreFailed(f"the store {options.store} cannot be used: {error}") if isinstance(error, OSError) else error
        )
        refuse(options.fd, problem)
        return problem.exit_code
    try:
        marker = f"{socket_path.store_id(options.store)}:0"
        command = ExecutorCommand(path, options.store, options.cores, marker, options.gpus, pin=options.pin)
        pid = command.start() if _runs_anew(options) else 0
        from bough.server.embedded.embedded_server import Started, serve

        return serve(Started(options, listener, path, command, pid))
    finally:
        socket_path.unbind(path)


def _runs_anew(options: ServerOptions) -> bool:
    """Whether hardly anything can be reused: nothing was done before, or what was done ended well."""
    if options.reuse == NEVER or socket_path.is_new(options.store):
        return True
    return options.reuse == RESUME and read_note(options.store) is None


if __name__ == "__main__":
    code = main()
    logs.flush()
    os._exit(code)  # all is written and closed; taking the interpreter apart would only keep the script waiting
