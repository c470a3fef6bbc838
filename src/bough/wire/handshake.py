"""Who may speak: a proof that one knows the token of a role, made for one connection only.

    server  Challenge(version, its nonce)
    peer    one frame: Proof(role, own nonce, MAC), then its hello

The MAC is HMAC-SHA256 under the role's token over both nonces, the role, the fingerprint of the
server's certificate and the protocol version, each with its length before it. So the token never
travels, a recorded proof fails at the next nonce, and a proof given to one server is no use at
another. Sans-I/O and without dice: nonces come from the caller. Rule: what an unproven peer sends
is read as one `Proof` and nothing else; the messages behind it stay raw bytes until it has held.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from bough.errors import ProtocolError
from bough.wire.client_messages import MAX_FRAME, VERSION, Proof

ROLES = ("submit", "execute", "read")
FIRST_FRAME = 1 << 16  # bytes that a peer may send in one frame before it has proven itself
# and afterwards: a question, which is an SQL statement at the most; a report (see `wire.executor_messages`) or a piece
# of a file; a function with all that it refers to, a big item of a map, a whole description
ROLE_FRAME = {"read": 1 << 20, "execute": 1 << 26, "submit": MAX_FRAME}
NONCE = 32  # bytes
_HEAD = 4
_raw = msgspec.msgpack.Decoder(list[msgspec.Raw])
_proof = msgspec.msgpack.Decoder(Proof)
_encode = msgspec.msgpack.Encoder().encode


def prove(role: str, token: bytes, server_nonce: bytes, own_nonce: bytes, fingerprint: str) -> Proof:
    """The answer to a challenge; `fingerprint` is that of the certificate the server has shown."""
    return Proof(role, own_nonce, _mac(token, role, server_nonce, own_nonce, fingerprint))


def check(proof: Proof, token: bytes, server_nonce: bytes, fingerprint: str) -> bool:
    """Whether a proof holds for this nonce; takes the same time whatever is wrong with it."""
    if len(proof.nonce) != NONCE:  # its length is no secret
        return False
    return hmac.compare_digest(proof.mac, _mac(token, proof.role, server_nonce, proof.nonce, fingerprint))


def split_first(data: bytes | bytearray) -> tuple[Proof, bytes] | None:
    """Cut the first frame off what an unproven peer has sent so far; nothing while it is incomplete.

    Returns the proof, and all that came with it and behind it as bytes of whole frames, for later.
    """
    if len(data) < _HEAD:
        return None
    size = int.from_bytes(data[:_HEAD], "big")
    if size > FIRST_FRAME:
        raise ProtocolError(f"a first frame of {size} bytes is over the limit of {FIRST_FRAME}")
    end = _HEAD + size
    if len(data) < end:
        return None
    try:
        messages = _raw.decode(memoryview(data)[_HEAD:end])
        if not messages:
            raise ProtocolError("the first frame is empty")
        proof = _proof.decode(messages[0])
        body = _encode(messages[1:]) if len(messages) > 1 else b""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # bad text, too deep
        raise ProtocolError(f"the first message is no proof: {error}") from error
    head = len(body).to_bytes(_HEAD, "big") if body else b""
    return proof, head + body + bytes(data[end:])


def _mac(token: bytes, role: str, server_nonce: bytes, own_nonce: bytes, fingerprint: str) -> bytes:
    parts = (
        b"bough proof",
        VERSION.to_bytes(4, "big"),
        server_nonce,
        own_nonce,
        role.encode("utf-8", "surrogatepass"),
        fingerprint.encode("utf-8", "surrogatepass"),
    )
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.new(token, text, hashlib.sha256).digest()
