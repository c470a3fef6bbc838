"""What a blob is called: the digest of its content, so that no peer can put other code in the place of a function.

Rule: a process that takes a blob from another one compares the two before it keeps or uses the blob.
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
