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
from bough.server import socket_path
from bough.server.embedded.local_executor import ExecutorCommand
from bough.server.embedded.server_options import ServerOptions


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
        command = ExecutorCommand(path, options.store, options.cores, f"{socket_path.store_id(options.store)}:0")
        pid = command.start() if options.fresh or socket_path.is_new(options.store) else 0
        from bough.server.embedded.embedded_server import Started, serve

        return serve(Started(options, listener, path, command, pid))
    finally:
        socket_path.unbind(path)


if __name__ == "__main__":
    code = main()
    logs.flush()
    os._exit(code)  # all is written and closed; taking the interpreter apart would only keep the script waiting
