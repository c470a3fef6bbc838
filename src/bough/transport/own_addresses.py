"""The addresses of this host on its networks, for peers that do not know it by its name.

Rules: what listens everywhere is offered at every address but loopback, those of private networks first, because that
is how the nodes of a cluster see their head node. Who came by SSH offers one address: the one at which SSH came.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import sys
from typing import Final

_SIOCGIFADDR: Final = 0x8915  # Linux: the IPv4 address of an interface
LOOPBACK: Final = "127.0.0.1"
_NAME: Final = 15  # bytes of an interface's name


def own_addresses() -> list[str]:
    """IPv4 addresses of this host, best first; none where they cannot be asked for."""
    found = dict.fromkeys([*_of_interfaces(), *_of_name()])
    usable = [address for address in map(ipaddress.IPv4Address, found) if not address.is_loopback]
    return [str(address) for address in sorted(usable, key=lambda it: not it.is_private)]


def reached_by_ssh() -> str:
    """The address at which SSH reached this host, as its sshd says; loopback if that came from this very host.

    If sshd says none of use, the best of the host's own.
    """
    with contextlib.suppress(IndexError, ValueError):
        address = ipaddress.ip_address(os.environ.get("SSH_CONNECTION", "").split()[2])
        if not address.is_link_local:  # which is an address only together with an interface of the reader's
            return str(address)
    return next(iter(own_addresses()), LOOPBACK)


def _of_interfaces() -> list[str]:
    if sys.platform != "linux":
        return []
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            asked = struct.pack("256s", name.encode()[:_NAME])
            with contextlib.suppress(OSError):  # it has none
                found.append(socket.inet_ntoa(fcntl.ioctl(sock, _SIOCGIFADDR, asked)[20:24]))
    return found


def _of_name() -> list[str]:
    try:
        answers = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in answers]
