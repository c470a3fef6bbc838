"""Playpens and storages, environments and scripts around a command, where the directory is seen and where it is not."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_far_files import FarService, _can_hide, left_in, open_session

import bough
from bough.api.session.session import opened_sessions
from bough.cli.main import main
from bough.errors import BadValue, Clash, InvalidWorkload, TaskFailed, UserError


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


def test_what_cannot_be_got_fails_its_task_alone(s: bough.Session, here: Path) -> None:
    pipe = s.command("mkfifo hits", get={"hits": "results/pipe"})
    with pytest.raises(TaskFailed, match=r"what it made cannot be got from its playpen: .*hits` is a named pipe"):
        pipe.result(60)
    assert pipe.attempts == 1
    folder = s.command("mkdir hits; mkfifo hits/in", get={"hits": "results/folder"})
    with pytest.raises(TaskFailed, match=r"got from its playpen: `[^`]*hits/in` is a named pipe on"):
        folder.result(60)
    assert not list(here.glob("results/.bough*"))


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


def write_queries(here: Path, *names: str) -> None:
    (here / "queries").mkdir(exist_ok=True)
    for name in names:
        (here / f"queries/{name}.fa").write_text(f"{name}\n")
    (here / "slice.fa").write_text("db\n")


def results(here: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((here / "results").iterdir())}


SEARCH = "cat query $STORAGE/slice.fa > out; echo {n} >> out; echo {q.stem}; ls -A | wc -l"


def test_each_element_of_a_sweep_has_its_own_files(s: bough.Session, here: Path, tmp_path: Path) -> None:
    write_queries(here, "a", "b")
    space = bough.product(q=["queries/a.fa", "queries/b.fa"], n=[1, 2])
    moved = {"put": {"{q}": "query"}, "store": "slice.fa", "get": {"out": "results/{q.stem}.{n}"}}
    swept = s.sweep(SEARCH, space, **moved)
    assert [one.stdout.split() for one in swept.results()] == [[name, "2"] for name in "aabb"]
    assert results(here) == {f"{name}.{n}": f"{name}\ndb\n{n}\n" for name in "ab" for n in (1, 2)}
    assert dict(swept[3].outputs) == {"get out": str(here / "results/b.2")}
    kept = storage(s, tmp_path) / "slice.fa"
    os.utime(kept, (1, 1))
    reader = s.command("cat {x:r}", x=swept[2])
    assert reader.result(60).stdout == "b\ndb\n1\n"
    s.sweep("true {n}", bough.tie(n=[1]), store=["slice.fa"]).wait_all(60)
    assert kept.stat().st_mtime == 1  # the same was there


def test_a_file_of_an_element_is_called_there_as_it_is_here_unless_something_is_said(
    s: bough.Session, here: Path
) -> None:
    write_queries(here, "a", "b")
    swept = s.sweep(
        "cat {q}.fa $STORAGE/{q}.fa > {q}.out; ls",
        bough.tie(q=["a", "b"]),
        put="queries/{q}.fa",
        store=[Path("queries/{q}.fa")],
        get=["{q}.out"],
    )
    assert [one.stdout.split() for one in swept.results()] == [["a.fa", "a.out"], ["b.fa", "b.out"]]
    assert (here / "b.out").read_text() == "b\nb\n"


def test_what_is_fed_has_files_put_stored_and_got(s: bough.Session, here: Path) -> None:
    write_queries(here, "a", "b", "c")
    fed = s.feed(
        "cat query $STORAGE/slice.fa > out",
        [{"q": name} for name in "abc"],
        put={"queries/{q}.fa": "query"},
        store=["slice.fa"],
        get={"out": "results/{q}"},
    )
    fed.wait_all(60)
    assert results(here) == {name: f"{name}\ndb\n" for name in "abc"}
    wrong = s.feed("cat query", ({"q": name} for name in ("a", "gone")), put={"queries/{q}.fa": "query"})
    with pytest.raises(InvalidWorkload, match=r"queries/gone\.fa, which .* reads, does not exist"):
        wrong.wait_all(60)
    named = s.feed("cat {q}", ({"q": name} for name in ("a", "../b")), put={"slice.fa": "{q}"})
    with pytest.raises(BadValue, match=r"element 1: '\.\./b' is no name of a file in a playpen"):
        named.wait_all(60)


def test_an_element_whose_files_are_what_they_were_is_not_run_again(here: Path) -> None:
    write_queries(here, "a", "b")
    (here / "log").mkdir()
    for changed in ("", "a", "slice"):
        if changed:
            path = here / ("slice.fa" if changed == "slice" else "queries/a.fa")
            path.write_text("changed\n")
        with bough.Session(name="again", cores=1) as s:
            put = {"queries/{q}.fa": "query"}
            text = f"cat query $STORAGE/slice.fa > out; echo >> {here}/log/{{q}}"
            s.sweep(text, bough.tie(q=["a", "b"]), put=put, store="slice.fa", get={"out": "results/{q}"}).wait_all(60)
    assert [len((here / "log" / name).read_text()) for name in "ab"] == [3, 2]
    assert results(here) == {"a": "changed\nchanged\n", "b": "b\nchanged\n"}


def test_a_file_got_by_elements_has_another_name_where_one_is_there(here: Path) -> None:
    write_queries(here, "a", "b")
    (here / "results").mkdir()
    (here / "results/a").write_text("mine")
    moved = {"put": {"queries/{q}.fa": "query"}, "get": {"query": "results/{q}"}}
    with bough.Session(name="taken", cores=1) as s:
        with pytest.raises(Clash, match=r"results/a, which .* would write, is there already"):
            s.sweep("true {q}", bough.tie(q=["a", "b"]), **moved)
        swept = s.sweep("true {q}", bough.tie(q=["a", "b"]), **moved, clash="rename")
        swept.wait_all(60)
        assert results(here) == {"a": "mine", "a-1": "a\n", "b": "b\n"}
        assert s.command("cat {x:r}", x=swept[0]).result(60).stdout == "a\n"
        with pytest.raises(Clash, match="would be written by both"):
            s.sweep("true {q}", bough.tie(q=["c", "d"]), get={"query": "results/one"})


def test_a_temporary_file_that_is_put_is_made_again_when_it_is_gone(here: Path) -> None:
    with bough.Session(name="again", cores=1) as s:
        made = s.sweep(
            "echo {q} > out; echo >> " + str(here / "log"), bough.tie(q=["a", "b"]), get={"out": "t/{q}"}, keep=False
        )
        s.command("cat {x:r}", x=made).result(60)
        for path in ("t/a", "t/b"):
            until_gone(here / path)
        swept = s.sweep("cat in", bough.tie(q=["a", "b"]), put={"t/{q}": "in"})
        assert [one.stdout for one in swept.results()] == ["a\n", "b\n"]
        assert s.command("cat in", put={"t/a": "in"}).result(60).stdout == "a\n"
    assert len((here / "log").read_text()) >= 4


def until_gone(path: Path) -> None:
    end = time.monotonic() + 60
    while path.exists():
        assert time.monotonic() < end, f"{path} stays"
        time.sleep(0.02)


def test_one_file_that_vanishes_fails_the_elements_that_have_it_put(here: Path) -> None:
    write_queries(here, "a", "b")
    with bough.Session(name="gone", cores=1, on_failure="ignore") as s:
        gate = s.command(f"while [ ! -e {here}/go ]; do sleep 0.05; done")
        swept = s.sweep(
            "cat query {q}", bough.tie(q=["/dev/null"] * 2, p=["a", "b"]), put={"queries/{p}.fa": "query"}, after=gate
        )
        (here / "queries/a.fa").unlink()
        (here / "go").touch()
        assert swept[1].result(60).stdout == "b\n"
        with pytest.raises(TaskFailed, match=r"the playpen cannot be made: .*queries/a\.fa: No such file"):
            swept[0].result(60)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", "a\0b", "x" * 10_000, "$STORAGE/../x", "$PLAYPEN/.."])
def test_names_of_elements_that_leave_the_playpen_are_refused(here: Path, name: str) -> None:
    (here / "a").write_text("a")
    space = bough.tie(q=["fine", name])
    with bough.Session(name="hostile", cores=1) as s:
        for what in ("put", "store"):
            with pytest.raises(BadValue, match="element 1: "):
                s.sweep("true {q}", space, **{what: {"a": "{q}"}})
        with pytest.raises(BadValue, match="element 1: "):
            s.sweep("true {q}", space, get={"{q}": "b.{q.stem}"})
        assert s.command("echo ok").result(60).stdout == "ok\n"


@pytest.mark.parametrize(
    ("moved", "said"),
    [
        ({"put": {"{x}": "a"}}, "work/{x}, which .* reads, does not exist"),
        ({"put": {"{q": "a"}}, "no slot|does not exist"),
        ({"put": {"a": "{q:r}"}}, "files are declared in the command's text"),
        ({"put": {"{q.nothing}": "a"}}, "a path has no nothing"),
        ({"put": {"a": "{cores}.{q}"}}, "known only when the command starts|needs a parameter"),
        ({"put": {"a": "one", "b": "{q}"}}, "two files would have the place one"),
        ({"put": ["a", "../a"]}, "two files would have the place a"),
        ({"put": {"{n}": "one"}}, "reads, does not exist"),
        ({"put": {"{u}": "one"}}, "a URL is read by a slot"),
        ({"get": {"one": "{u}"}}, "a URL is read by a slot"),
        ({"get": {"one": "{e}"}}, "get holds ''; give paths"),
        ({"put": {"{e}": "one"}}, "put holds ''; give paths"),
        ({"put": 3}, "put is 3; give paths"),
        ({"put": [3]}, "put holds 3; give paths"),
        ({"get": {"one": "x", "{q}": "y"}}, "one would be brought to two places"),
    ],
)
def test_nonsense_among_the_files_of_elements_is_refused(here: Path, moved: dict[str, object], said: str) -> None:
    for name in ("a", "b"):
        (here / name).write_text(name)
    space = bough.tie(q=["one", "one"], n=["nobody", "a"], u=["s3://bucket/key", "a"], e=["", "a"])
    with bough.Session(name="nonsense", cores=1) as s:
        with pytest.raises(UserError, match=said):
            s.sweep("true {q} {n} {u} {e}", space, **moved)
        assert s.command("echo ok").result(60).stdout == "ok\n"


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
    unset = s.command("echo command", setup="echo before; false; echo no", teardown="echo after")
    assert unset.exception(60) is not None
    assert unset.stdout == "before\nafter\n"
    wrong = s.command("echo command", teardown="exit 4")
    assert getattr(wrong.exception(60), "returncode", 0) == 4
    trapped = s.command("echo command", setup="trap 'echo own' EXIT", teardown="echo after")
    assert trapped.result(60).stdout == "command\nafter\n"
    slow = s.command("echo command; sleep 60", timeout=0.5, teardown="echo after")
    assert slow.exception(60) is not None
    assert slow.stdout == "command\nafter\n"
    with pytest.raises(BadValue, match="teardown is 3"):
        s.command("true", teardown=3)
