"""TLS 1.3 and nothing older; a server is known by its certificate's fingerprint, not by its name.

The server makes its certificate at its first start and signs it itself. No authority vouches for it: peers are given
its fingerprint and compare.

Rules: no authority is asked and no host name is compared; `check_pin` does what they would, and is called before a
byte is sent. The key is written first, so that a certificate is never there without it, and a key that others can
read is not used.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import os
import ssl

from bough.errors import UserError
from bough.transport.home import make_server_dir, read_private, write_private

_YEARS = 10  # that a certificate is valid


def make_certificate(folder: str = "") -> tuple[str, str, str]:
    """The paths of certificate and key, made if they are not there yet, and the certificate's fingerprint.

    In a folder that is closed to others; the server's own if none is named.
    """
    folder = folder or make_server_dir()
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    if not (os.path.exists(cert) and os.path.exists(key)):
        key_text, cert_text = new_certificate()
        write_private(key, key_text)
        write_private(cert, cert_text)
    return cert, key, read_fingerprint(cert, key)


def read_fingerprint(cert: str, key: str) -> str:
    """The fingerprint of a certificate whose key may be used."""
    read_private(key, "the key file")
    try:
        with open(cert, encoding="ascii", errors="replace") as file:
            return fingerprint(ssl.PEM_cert_to_DER_cert(file.read()))
    except OSError as error:
        raise UserError(f"the certificate {cert} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{cert} is not a certificate: remove it and {key} to have new ones made") from error


def fingerprint(der: bytes) -> str:
    """What a certificate is known by: the SHA-256 of its DER form, in hexadecimal digits."""
    return hashlib.sha256(der).hexdigest()


def fingerprint_of(certificate: bytes) -> str:
    """The fingerprint of a certificate in PEM."""
    return fingerprint(ssl.PEM_cert_to_DER_cert(certificate.decode("ascii")))


def new_certificate() -> tuple[bytes, bytes]:
    """A new key and certificate as PEM; signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bough server")])
    now = dt.datetime.now(dt.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))  # clocks differ
        .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("bough.invalid")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key_text, cert.public_bytes(serialization.Encoding.PEM)


def server_context(cert: str, key: str) -> ssl.SSLContext:
    """What a server listens with; the paths of its certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # no session is resumed: a connection lives as long as its peer
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
