"""What a session of a service leaves in the folder it is opened in, and who it says it is.

`.bough/token` is a random text by which others see that they share this folder; `.bough/served/NAME` holds big
arguments and claims of outputs. Rule: nothing of it can be read by other users.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets

from bough import private
from bough.api.launch import HOME
from bough.errors import StoreFailed


def own_token() -> str:
    """What stands in ./.bough/token, by which others see that they share this directory; it is made if need be."""
    path = os.path.join(HOME, "token")
    with contextlib.suppress(OSError):
        with open(path, encoding="ascii") as file:
            found = file.read().strip()
        if found:
            return found
    token, hidden = secrets.token_hex(16), f"{path}.{os.getpid()}"
    try:
        private.make_folder(HOME)
        with open(hidden, "w", encoding="ascii", opener=private.opener) as file:
            file.write(token + "\n")
        os.link(hidden, path)  # somebody else may have made one just now: theirs counts
    except FileExistsError:
        return own_token()
    except OSError:
        return ""  # nothing can be written here, so nothing is shared
    finally:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
    return token


def user_name() -> str:
    """Who this is, for people to read."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def own_folder(name: str) -> str:
    """Where this side keeps what it must remember of the workflow: big arguments, claims of outputs."""
    folder = os.path.abspath(os.path.join(HOME, "served", name))
    try:
        for inner in (HOME, os.path.dirname(folder), folder, os.path.join(folder, "args")):
            private.make_folder(inner)
    except OSError as error:
        raise StoreFailed(f"the folder {folder} cannot be made: {error.strerror}") from error
    return folder
