"""What a blob is called: the digest of its content, so that nobody can put other code in the place of a function.

Rule: whoever takes a blob from another process compares the two before it is kept or used.
"""

from __future__ import annotations

from hashlib import blake2b

from bough.model.ids import DIGEST_SIZE, BlobId


def blob_id(data: bytes) -> BlobId:
    """The name of a blob."""
    return BlobId(blake2b(data, digest_size=DIGEST_SIZE).digest())


def is_blob(name: bytes, data: bytes) -> bool:
    """Whether a blob is what its name says."""
    return blob_id(data) == name
