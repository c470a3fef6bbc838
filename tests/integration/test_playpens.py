"""Playpens and storages, environments and scripts around a command, where the directory is seen and where it is not."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_far_files import FarService, _can_hide, left_in, open_session

import bough
from bough.api.session.session import opened_sessions
from bough.cli.main import main
from bough.errors import BadValue, TaskFailed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    yield folder
    opened_sessions.clear()


@pytest.fixture(params=["near", pytest.param("far", marks=pytest.mark.skipif(not _can_hide(), reason="needs root"))])
def s(request: pytest.FixtureRequest, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    if request.param == "near":
        with bough.Session(name="pens", cores=2, on_failure="ignore") as session:
            session.is_far = False
            yield session
        return
    service = FarService(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(service.home))
    service.hidden = (here,)
    try:
        service.start()
        service.far_executor("one")
        session = open_session(service, "pens")
        session.is_far = True
        with session:
            yield session
    finally:
        service.clean_up()


def storage(s: object, tmp_path: Path) -> Path:
    return tmp_path / "one/storage" if s.is_far else tmp_path / "cache/bough/storage"


def test_files_are_put_stored_and_got(s: bough.Session, here: Path, tmp_path: Path) -> None:
    (here / "query.fa").write_text("q\n")
    (here / "slice.fa").write_text("db\n")
    (here / "tool").write_text("#!/bin/sh\necho tool\n")
    (here / "tool").chmod(0o755)
    text = 'cat query $STORAGE/slices/1 > out; tool >> out; pwd; [ "$PWD" = "$PLAYPEN" ]; ls | wc -l'
    kwargs = {"put": {"query.fa": "query"}, "store": {"slice.fa": "slices/1", "tool": "tool"}}
    first = s.command(text, **kwargs, get={"out": "results/1"})
    assert first.result(60).stdout.splitlines()[1].strip() == "2"
    assert (here / "results/1").read_text() == "q\ndb\ntool\n"
    kept = storage(s, tmp_path) / "slices/1"
    assert kept.read_text() == "db\n"
    os.utime(kept, (1, 1))
    s.command(text, **kwargs, get={"out": "results/2"}).result(60)
    assert kept.stat().st_mtime == 1  # the same was there
    (here / "slice.fa").write_text("newer\n")
    s.command(text, **kwargs, get={"out": "results/3"}).result(60)
    assert kept.read_text() == "newer\n"
    assert (here / "results/3").read_text() == "q\nnewer\ntool\n"
    assert not os.path.exists(first.result().stdout.splitlines()[0])


def test_what_is_not_there_to_be_got_fails_and_what_failed_brings_nothing(s: bough.Session, here: Path) -> None:
    missing = s.command("true", get={"out": "out"})
    with pytest.raises(TaskFailed, match=r"did not write its output .*/out"):
        missing.result(60)
    failed = s.command("echo > out; exit 3", get={"out": "out2"})
    with pytest.raises(TaskFailed, match="exit code 3"):
        failed.result(60)
    linked = s.command("ln -s /etc/passwd out", get={"out": "out3"})
    assert linked.exception(60) is not None
    assert left_in(here) == []


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", "a\0b", "x" * 10_000, "$STORAGE/../x", "$PLAYPEN/.."])
def test_names_that_leave_the_playpen_are_refused(here: Path, name: str) -> None:
    (here / "a").write_text("a")
    with bough.Session(name="hostile", cores=1) as s:
        for what in ("put", "store"):
            with pytest.raises(BadValue):
                s.command("true", **{what: {"a": name}})
        with pytest.raises(BadValue):
            s.command("true", get={name: "b"})


def test_a_link_in_the_storage_leads_nowhere(s: bough.Session, here: Path, tmp_path: Path) -> None:
    (here / "a").write_text("a")
    s.command("ln -s / $STORAGE/out", put=["a"]).result(60)
    evil = s.command("true", store={"a": "out/tmp/evil"})
    with pytest.raises(TaskFailed, match="a link stands in the way"):
        evil.result(60)
    assert not os.path.exists("/tmp/evil")


JOB = """job:
  label: demo
  requirements: os == linux
  remote: cat in $STORAGE/db > out; echo $JOB.$TASK >> out
  final: get out results/out.$TASK
  check: grep -q db out
task:
  init:
    put q1 in
    if (os == linux) then
      store db db
    else
      store nothing db
    endif
task:
  init:
    put q2 in
    store db db
"""


def test_a_job_file_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("q1", "q2", "db", "nothing"):
        (here / name).write_text(f"{name}\n")
    (here / "demo.jdf").write_text(JOB)
    assert main(["run", "demo.jdf"]) == 0
    assert (here / "results/out.1").read_text() == "q1\ndb\n1.1\n"
    assert (here / "results/out.2").read_text() == "q2\ndb\n1.2\n"
    assert main(["run", "demo.jdf"]) == 0
    (here / "bad.jdf").write_text(JOB.replace("grep -q db out", "grep -q never out").replace("results", "bad"))
    assert main(["run", "bad.jdf"]) == 1
    assert "check of task 1 failed" in capsys.readouterr().err
    assert not (here / "bad/out.1").exists()


def environment(path: Path, *, activate: str = "") -> None:
    """An archive with a program, a module and perhaps a script that activates it, as conda-pack makes them."""
    with tarfile.open(path, "w:gz") as tar:
        files = {
            "bin/greet": "#!/bin/sh\necho greetings $ACTIVATED\n",
            "lib/python3.11/site-packages/packed_module.py": "VALUE = 42\n",
        }
        if activate:
            files |= {
                "bin/activate": activate,
                "bin/conda-unpack": '#!/bin/sh\necho ran >> "$(dirname "$0")/../fixed"\n',
            }
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("bin/sh-link")
        link.type, link.linkname = tarfile.SYMTYPE, "/bin/sh"
        tar.addfile(link)


def test_an_environment_is_unpacked_once_and_comes_first(s: bough.Session, here: Path, tmp_path: Path) -> None:
    environment(here / "plain.tar.gz")
    environment(here / "conda.tar.gz", activate='export ACTIVATED=yes\nexport PATH="/old/place/bin:$PATH"\n')
    python = "greet; python3 -c 'import packed_module; print(packed_module.VALUE)'"
    assert s.command(python, environment="plain.tar.gz").result(60).stdout == "greetings\n42\n"
    many = s.sweep("greet {n}; command -v greet", bough.tie(n=[1, 2, 3]), environment="conda.tar.gz")
    texts = {one.stdout for one in many.results()}
    assert len(texts) == 1
    said, where = texts.pop().split("\n")[:2]
    assert said == "greetings yes"
    assert Path(where).parents[1].joinpath("fixed").read_text() == "ran\n"
    unpacked = storage(s, tmp_path).parent / "environments"
    assert len([name for name in os.listdir(unpacked) if not name.startswith(".")]) == 2
    (here / "no.tar.gz").write_text("no archive")
    with pytest.raises(TaskFailed, match=r"environment .*no\.tar\.gz cannot be unpacked: the archive cannot"):
        s.command("true", environment="no.tar.gz").result(60)


def test_a_teardown_runs_after_the_command_however_it_ended(s: bough.Session) -> None:
    good = s.command("echo command", setup="echo before; A=1", teardown="echo after $A")
    assert good.result(60).stdout == "before\ncommand\nafter 1\n"
    bad = s.command("echo command; exit 3", teardown="echo after")
    with pytest.raises(TaskFailed, match="exit code 3"):
        bad.result(60)
    assert bad.stdout == "command\nafter\n"
    with pytest.raises(BadValue, match="teardown is 3"):
        s.command("true", teardown=3)
