"""What helper processes answer about files of running tasks: parts, last lines, names; and what they refuse."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bough.errors import BadValue, MissingFile, UserError
from bough.executor.files.command_files.sandbox import sandbox_name
from bough.executor.probes import file_answers
from bough.executor.probes.file_answers import ProbePlace, answer_file
from bough.model.files import hidden_path
from bough.wire.probes import Exists, FileData, FileSize, FileThere, FolderNames, ListFolder, ReadPart, Tail


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProbePlace:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").write_text("of another task\nmine 1\nmine 2\n")
    (tmp_path / "err").write_bytes(b"")
    streams = {"stdout": (str(tmp_path / "out"), 16), "stderr": (str(tmp_path / "err"), 0)}
    return ProbePlace(os.getpid(), 5, 0, 2, streams)


def data(place: ProbePlace, question: Tail | ReadPart) -> FileData:
    found = answer_file(question, place)
    assert isinstance(found, FileData)
    return found


def test_a_stream_is_the_part_that_is_the_tasks_own(place: ProbePlace) -> None:
    assert data(place, ReadPart("stdout")).data == b"mine 1\nmine 2\n"
    assert data(place, Tail("stdout", 5)).data == b"mine 1\nmine 2\n"
    assert answer_file(FileSize("stdout"), place) == FileThere(True, 14)
    assert answer_file(Exists("stderr"), place) == FileThere(True)
    assert data(place, ReadPart("stdout", offset=7)) == FileData(b"mine 2\n", 14, 14)


def test_a_part_says_where_the_next_one_begins(place: ProbePlace) -> None:
    Path("a").write_text("one\ntwo\nthree\n")
    assert data(place, ReadPart("a", size=5)) == FileData(b"one\nt", 5, 14, more=True)
    assert data(place, ReadPart("a", offset=5)) == FileData(b"wo\nthree\n", 14, 14)
    assert data(place, ReadPart("a", offset=99)) == FileData(b"", 99, 14)


def test_a_pattern_chooses_lines(place: ProbePlace) -> None:
    Path("a").write_text("score=1\nnoise\nscore=2\nscore=3")
    assert data(place, ReadPart("a", pattern="score=")).data == b"score=1\nscore=2\nscore=3"
    assert data(place, ReadPart("a", pattern="score=", whole=True)) == FileData(b"score=1\nscore=2\n", 22, 29)
    assert data(place, Tail("a", 2, "score=")).data == b"score=2\nscore=3"
    with pytest.raises(BadValue, match="no regular expression"):
        answer_file(ReadPart("a", pattern="("), place)


def test_an_answer_is_no_bigger_than_was_asked_for(place: ProbePlace) -> None:
    Path("a").write_text("aaaa\nbbbb\ncccc\n")
    first = data(place, ReadPart("a", size=12, whole=True))
    assert first == FileData(b"aaaa\nbbbb\n", 10, 15, more=True)
    assert data(place, ReadPart("a", offset=first.offset, size=12, whole=True)) == FileData(b"cccc\n", 15, 15)


def test_a_line_longer_than_a_chunk_comes_in_pieces(place: ProbePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_answers, "_CHUNK", 8)
    Path("a").write_text("x" * 20 + "\nend\n")
    assert data(place, ReadPart("a", whole=True)).data == b"x" * 20 + b"\nend\n"
    assert data(place, Tail("a", 1)).data == b"end\n"


def test_an_output_that_is_being_written_is_found_by_its_own_name(place: ProbePlace) -> None:
    Path("result").write_text("of an earlier run")
    Path(hidden_path("result", 5, 0, 2)).write_text("half")
    assert data(place, ReadPart("result")).data == b"half"
    Path(hidden_path("other", 5, 0, 1)).write_text("of another attempt")
    assert answer_file(Exists("other"), place) == FileThere(False)


def test_a_path_of_the_submitter_means_its_place_in_the_sandbox(place: ProbePlace, tmp_path: Path) -> None:
    inside = tmp_path / "boxes" / sandbox_name(5, 0, 2) / "sub"
    inside.mkdir(parents=True)
    (inside / "a").write_text("in the sandbox")
    far = ProbePlace(os.getpid(), 5, 0, 2, {}, 0, str(tmp_path / "boxes"), "/home/far")
    assert data(far, ReadPart("/home/far/sub/a")).data == b"in the sandbox"
    assert answer_file(Exists("/home/far/nothing"), far) == FileThere(False)
    assert answer_file(Exists("/etc/passwd"), far) == FileThere(True)  # any other path means itself


def test_only_plain_files_are_opened(place: ProbePlace, tmp_path: Path) -> None:
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
        for path in ("pipe", "sock", "/dev/zero"):
            with pytest.raises(UserError, match="no plain file"):
                answer_file(ReadPart(path), place)
    with pytest.raises(UserError, match="is a folder"):
        answer_file(Tail("."), place)
    with pytest.raises(UserError, match="is no folder"):
        answer_file(ListFolder("out"), place)
    with pytest.raises(UserError, match="cannot be read: File name too long"):
        answer_file(Tail("x" * 3000), place)
    for question in (ReadPart("nothing"), Tail("nothing"), FileSize("nothing"), ListFolder("nothing")):
        with pytest.raises(MissingFile, match="there is no nothing where the task runs"):
            answer_file(question, place)


def test_a_folder_is_listed_as_far_as_an_answer_goes(place: ProbePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkdir("many")
    for number in range(30):
        Path(f"many/{number:02}").touch()
    os.mkdir("many/folder")
    Path(os.fsdecode(b"many/not-\xff-utf8")).touch()
    found = answer_file(ListFolder("many"), place)
    assert isinstance(found, FolderNames)
    assert found.names[-2:] == [b"folder/", b"not-\xff-utf8"]
    assert not found.more
    monkeypatch.setattr(file_answers, "MOST_NAMES", 10)
    found = answer_file(ListFolder("many"), place)
    assert isinstance(found, FolderNames)
    assert (len(found.names), found.more) == (10, True)


def test_what_takes_long_is_answered_as_far_as_it_went(place: ProbePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a").write_text("line\n" * 100)
    monkeypatch.setattr(file_answers, "_ENOUGH", -1.0)
    part = data(place, ReadPart("a", pattern="line"))
    assert part == FileData(b"line\n", 5, 500, more=True)
