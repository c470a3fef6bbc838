"""The contents of a store: complete and right under their names, or not there."""

from __future__ import annotations

import errno
import stat
from hashlib import blake2b
from pathlib import Path

import pytest

from bough.errors import StoreFailed
from bough.movers.local import ContentCopy, bring_in, give_out
from bough.stores.folder.contents import Contents, FileReferences
from bough.wire.file_messages import DIGEST, PIECE
from tests.second_user import umask


def digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST).digest()


def add(contents: Contents, data: bytes) -> bytes:
    with contents.receive(digest_of(data)) as incoming:
        incoming.write(data)
        return incoming.finish()


def test_a_content_is_there_once_it_is_complete(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path))
    digest = digest_of(b"hello")
    incoming = contents.receive(digest)
    incoming.write(b"hel")
    assert not contents.has(digest)
    incoming.write(b"lo")
    assert incoming.finish() == digest
    assert contents.has(digest)
    assert contents.size(digest) == 5
    assert contents.read(digest, 1, 3) == b"ell"
    assert contents.path(digest) == f"{tmp_path}/{digest.hex()[:2]}/{digest.hex()}"


def test_small_contents_are_kept_together_and_a_wrong_one_harms_no_other(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path))
    good = [b"%d" % number for number in range(5)]
    wrong = digest_of(b"what it says")
    contents.put_many([*((digest_of(data), data) for data in good), (wrong, b"something else")])
    assert [contents.read(digest_of(data), 0, 9) for data in good] == good
    assert not contents.has(wrong)
    assert not list(tmp_path.glob(".part*"))


def test_what_is_not_what_it_was_to_be_leaves_nothing(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path))
    incoming = contents.receive(digest_of(b"hello"))
    incoming.write(b"other")
    with pytest.raises(StoreFailed, match="not what was announced"):
        incoming.finish()
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_digests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="32 bytes"):
        Contents(str(tmp_path)).has(b"../../etc/passwd")


def test_a_piece_is_never_longer_than_a_message_may_carry(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path))
    digest = add(contents, bytes(PIECE + 10))
    assert len(contents.read(digest, 0, 1 << 40)) == PIECE
    assert len(contents.read(digest, PIECE, 1 << 40)) == 10


def test_files_are_taken_in_as_they_are_and_left_alone(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path / "files"))
    (tmp_path / "a.txt").write_bytes(b"hello")
    assert bring_in(contents, str(tmp_path / "a.txt")) == (digest_of(b"hello"), 5)
    (tmp_path / "a.txt").write_bytes(b"other")
    assert contents.read(digest_of(b"hello"), 0, 100) == b"hello"


def test_outputs_appear_all_or_none(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path / "files"))
    digest = add(contents, b"hello")
    good = ContentCopy(digest, str(tmp_path / "deep/a"), str(tmp_path / "deep/.a"), 0o4755)
    bad = ContentCopy(digest_of(b"missing"), str(tmp_path / "deep/b"), str(tmp_path / "deep/.b"))
    with pytest.raises(StoreFailed):
        give_out(contents, [good, bad])
    assert list((tmp_path / "deep").iterdir()) == []
    times = give_out(contents, [good])
    assert (tmp_path / "deep/a").stat().st_mtime_ns == times[0]
    assert (tmp_path / "deep/a").stat().st_mode & 0o7777 in {0o755, 0o750, 0o700}


def test_what_was_left_half_written_is_swept_away(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path))
    (tmp_path / ".part-1-1").write_bytes(b"x")
    digest = add(contents, b"hello")
    Contents(str(tmp_path)).sweep()
    assert [path.name for path in tmp_path.iterdir()] == [digest.hex()[:2]]


def test_contents_of_removed_runs_go_unless_another_run_refers_to_them(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path))
    mine, ours = add(contents, b"mine"), add(contents, b"ours")
    FileReferences(contents).add(1, [mine, ours])
    FileReferences(contents).add(2, [ours])
    with open(tmp_path / "runs/1", "ab") as file:
        file.write(b"torn")  # as a kill would leave it
    references = FileReferences(contents)
    references.add(1, [mine])
    assert not references.sweep({3})
    while references.sweep({1}):
        pass
    assert not contents.has(mine)
    assert contents.has(ours)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["2"]


def test_a_content_that_was_damaged_in_the_store_is_not_given_out(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path / "files"))
    digest = add(contents, b"hello")
    Path(contents.path(digest)).write_bytes(b"jello")
    with pytest.raises(OSError, match="damaged in the store"):
        give_out(contents, [ContentCopy(digest, str(tmp_path / "a"), str(tmp_path / ".a"))])
    assert [path.name for path in tmp_path.iterdir()] == ["files"]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077], ids=oct)
def test_contents_are_private_and_what_is_given_out_follows_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        contents = Contents(str(tmp_path / "files"))
        digest = add(contents, b"hello")
        FileReferences(contents).add(1, [digest])
        give_out(contents, [ContentCopy(digest, str(tmp_path / "deep/a"), str(tmp_path / "deep/.a"), 0o666)])
    modes = {stat.S_ISDIR(path.stat().st_mode): path.stat().st_mode & 0o777 for path in (tmp_path / "files").rglob("*")}
    assert modes == {True: 0o700, False: 0o600}
    assert (tmp_path / "deep/a").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o777 & ~mask


def test_what_a_full_disk_did_not_take_is_written_again_and_counts_once(tmp_path):
    incoming = Contents(str(tmp_path / "files")).receive(blake2b(b"abcdef", digest_size=DIGEST).digest())
    incoming.write(b"abc")
    real, file = incoming._file, incoming._file

    class Full:
        """Takes two bytes and no more."""

        taken = 0

        def write(self, data):
            if self.taken:
                raise OSError(errno.ENOSPC, "full")
            self.taken = 1
            return real.write(data[:2])

        def __getattr__(self, name):
            return getattr(real, name)

    incoming._file = Full()
    with pytest.raises(OSError, match="full"):
        incoming.write(b"def")
    assert incoming.size == 3
    incoming._file = file
    incoming.write(b"def")
    digest = incoming.finish()
    assert (tmp_path / "files" / digest.hex()[:2] / digest.hex()).read_bytes() == b"abcdef"
