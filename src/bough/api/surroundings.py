"""What a session of a service leaves in the folder it is opened in, and who it says it is.

`.bough/token` is a random text by which others see that they share this folder; `.bough/served/NAME` holds big
arguments and claims of outputs. Rule: nothing of it can be read by other users.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets

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
        os.makedirs(HOME, mode=0o700, exist_ok=True)
        with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
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
        os.makedirs(os.path.join(folder, "args"), mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreFailed(f"the folder {folder} cannot be made: {error.strerror}") from error
    return folder
