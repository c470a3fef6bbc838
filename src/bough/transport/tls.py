"""TLS 1.3 and nothing older; the server is known by its certificate's fingerprint, not by its name.

Rule: no authority is asked and no host name is compared. `check_pin` does what they would, and is
called before a byte is sent.
"""

from __future__ import annotations

import hmac
import ssl

from bough.errors import UserError
from bough.transport.certificates import fingerprint


def server_context(cert: str, key: str) -> ssl.SSLContext:
    """What a server listens with; the paths of its certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody resumes: a connection lives as long as its peer
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise UserError(f"{cert} and {key} do not go together: remove both to have new ones made") from error
    return context


def client_context() -> ssl.SSLContext:
    """What a peer connects with; `check_pin` must follow the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def check_pin(sock: ssl.SSLSocket | ssl.SSLObject, pinned: str, address: str) -> str:
    """Compare what the server has shown with what is known of it, in constant time; the fingerprint."""
    der = sock.getpeercert(binary_form=True)
    found = fingerprint(der) if der else ""
    if not hmac.compare_digest(found.encode(), pinned.strip().lower().encode("utf-8", "replace")):
        raise UserError(
            f"the server at {address} is not the one whose certificate has the fingerprint {pinned[:16]}...,"
            f" it has shown {found[:16] or 'none'}...: if it was set up anew, get a new access file from it"
        )
    return found
