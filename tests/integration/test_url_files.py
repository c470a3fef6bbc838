"""Files at URLs: commands read and write them, from real servers on loopback."""

from __future__ import annotations

import gc
import io
import os
import tarfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from test_far_files import FarService, _can_hide, open_session
from url_servers import UrlServers

import bough
from bough.api.session.session import opened_sessions
from bough.cli.main import main
from bough.errors import BadValue, InvalidWorkload, SiteError, TaskFailed
from bough.movers import remote_files

TOOL = b"#!/bin/sh\necho $0\n"
NEEDED = ("fsspec", "s3fs", "moto", "pyftpdlib", "wsgidav", "paramiko", "webdav4")
pytestmark = [
    pytest.mark.skipif(
        not all(map(find_spec, NEEDED)) or not os.path.exists("/usr/sbin/sshd"),
        reason=f"real servers and clients are needed: {', '.join(NEEDED)}, and sshd",
    ),
    # clients of fsspec leave their connections to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UrlServers]:
    made = UrlServers(tmp_path_factory.mktemp("servers"))
    try:
        made.urls = {name: getattr(made, name)() for name in ("s3", "http", "ftp", "webdav", "sftp")}
        made.urls["file"] = f"file://{made.folder('files')}"
        before = dict(os.environ)
        os.environ.update(made.environment)
        from fsspec.config import conf, set_conf_env

        set_conf_env(conf)  # what it read when it was imported
        yield made
        os.environ.clear()
        os.environ.update(before)
    finally:
        collect_clients()
        made.stop()


def collect_clients() -> None:
    """Have the clients of fsspec collected now: later that would be blamed on some other test."""
    from fsspec.implementations.http import HTTPFileSystem
    from s3fs import S3FileSystem

    HTTPFileSystem.clear_instance_cache()
    S3FileSystem.clear_instance_cache()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            gc.collect()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    yield folder
    opened_sessions.clear()


def write(servers: UrlServers, protocol: str, name: str, data: bytes, here: Path) -> str:
    """Put a file on a server, in the way of that server."""
    url = f"{servers.urls[protocol]}/{name}"
    if protocol == "http":
        (servers.base / "http" / name).write_bytes(data)
    else:
        (here / ".source").write_bytes(data)
        remote_files.send(str(here / ".source"), url)
        (here / ".source").unlink()
    return url


PROTOCOLS = ["s3", "http", "ftp", "webdav", "sftp", "file"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_at_a_url_is_seen_brought_and_sent_whole(servers: UrlServers, here: Path, protocol: str) -> None:
    data = os.urandom(2_500_000)
    url = write(servers, protocol, "whole.bin", data, here)
    found = remote_files.look(url)
    assert found.size == len(data)
    assert found.mark
    remote_files.fetch(url, str(here / "copy"))
    assert (here / "copy").read_bytes() == data
    assert os.listdir(here) == ["copy"]
    with pytest.raises(SiteError, match=r"nothing\.bin is not there") as caught:
        remote_files.look(f"{servers.urls[protocol]}/nothing.bin")
    assert not caught.value.transient
    if protocol != "http":
        write(servers, protocol, "deep/er/again.bin", data[:10], here)
        again = write(servers, protocol, "deep/er/again.bin", data[:1000], here)
        remote_files.fetch(again, str(here / "copy"))
        assert (here / "copy").read_bytes() == data[:1000]


@pytest.mark.parametrize("protocol", [one for one in PROTOCOLS if one != "http"])  # which lists nothing
def test_a_pattern_stands_for_the_files_that_match_at_their_server(
    servers: UrlServers, here: Path, protocol: str
) -> None:
    base = f"{servers.urls[protocol]}/parts"
    wanted = [write(servers, protocol, f"parts/{name}", b"x", here) for name in ("one a.csv", "two.csv")]
    write(servers, protocol, "parts/three.txt", b"x", here)
    write(servers, protocol, "parts/folder.csv/inner", b"x", here)
    assert remote_files.expand_url(f"{base}/*.csv") == wanted
    assert remote_files.expand_url(f"{base}/*/inn*") == [f"{base}/folder.csv/inner"]
    assert remote_files.expand_url(f"{base}/*.none") == []
    assert remote_files.look(wanted[0]).size == 1


def test_a_command_reads_and_writes_urls(servers: UrlServers, here: Path) -> None:
    source = write(servers, "s3", "in put.txt", b"b\na\n", here)
    target = f"{servers.urls['ftp']}/sorted.txt"
    with bough.Session(name="urls", cores=2) as s:
        a = s.command("sort {x:r} > {o:w}; basename {x:r}; echo {x.stem}", x=source, o=target)
        b = s.command(["wc", "-l", "{x:r}"], x=a)
        (here / "local.txt").write_text("l\n")
        rows = bough.tie(q=[source, target])
        c = s.sweep("cat {q:r} {y:r} > {o:w}", rows, y="local.txt", o=f"{servers.urls['sftp']}/{{q.stem}}.out")
        assert a.result(60).stdout == "in put.txt\nin put\n"
        assert b.result(60).stdout.split()[0] == "2"
        c.wait_all()
        assert a.outputs["o"] == target
        assert s.command("cat {x:r}", x=f"{servers.urls['s3']}/in*.txt").result(60).stdout == "b\na\n"
    assert (servers.base / "ftp/sorted.txt").read_text() == "a\nb\n"
    assert (servers.base / "sftp/sorted.out").read_text() == "a\nb\nl\n"
    assert sorted(os.listdir(here)) == [".bough", "local.txt"]


def packed_tool(path: Path) -> bytes:
    """The archive of an environment with one program."""
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("bin/tool")
        member.size, member.mode = len(TOOL), 0o755
        tar.addfile(member, io.BytesIO(TOOL))
    return path.read_bytes()


def test_an_environment_at_a_url_is_unpacked_once(servers: UrlServers, here: Path, tmp_path: Path) -> None:
    archive = write(servers, "s3", "env.tar.gz", packed_tool(tmp_path / "env.tar.gz"), here)
    with bough.Session(name="environments", cores=2) as s:
        loose = [s.command("tool", environment=archive), s.command("tool {n}", n=1, environment=archive)]
        swept = s.sweep("tool {n}", bough.tie(n=[1, 2]), environment=archive)
        fed = s.feed("tool {n}", [{"n": 1}], environment=archive)
        places = {task.result(60).stdout for task in (*loose, *swept.tasks(), fed[0])}
        assert len(places) == 1
        assert places.pop().endswith("/bin/tool\n")
        gone = s.command("tool", environment=f"{servers.urls['s3']}/gone.tar.gz")
        with pytest.raises(TaskFailed, match=r"gone\.tar\.gz is not there"):
            gone.result(60)


def test_feeds_and_lists_have_files_at_urls(servers: UrlServers, here: Path) -> None:
    urls = [write(servers, "s3", f"fed{n}.txt", f"{n}\n".encode(), here) for n in (1, 2)]
    with bough.Session(name="fed", cores=2) as s:
        fed = s.feed("cat {q:r} > {o:w}", ({"q": url, "o": f"{n}.out"} for n, url in enumerate(urls)))
        fed.wait_all()
        nobody = s.feed("cat {q:r}", [{"q": "alpha:/x"}])
        nobody.wait_all()
        assert "alpha:/x lies at a site, and this session has no server" in str(nobody[0].exception())
    assert (here / "1.out").read_text() == "2\n"
    target = f"{servers.urls['ftp']}/listed.txt"
    (here / "list").write_text(f"in={urls[0]} out={target} :: cat {urls[0]} > {target}\n")
    assert main(["run", "list"]) == 0
    assert (servers.base / "ftp/listed.txt").read_text() == "1\n"


def test_a_url_counts_by_what_it_tells_of_itself(servers: UrlServers, here: Path) -> None:
    def reused() -> bool:
        with bough.Session(name="marks", cores=1) as s:
            task = s.command("cat {x:r} > {o:w}", x=f"{servers.urls['s3']}/marked.txt", o="out.txt")
            task.result(60)
            return task.reused

    write(servers, "s3", "marked.txt", b"1\n", here)
    assert [reused(), reused()] == [False, True]
    write(servers, "s3", "marked.txt", b"2\n", here)
    assert not reused()
    assert (here / "out.txt").read_text() == "2\n"


def test_what_the_world_does_wrong_is_told_in_one_line(servers: UrlServers, here: Path) -> None:
    with bough.Session(name="wrong", cores=2, on_failure="ignore") as s:
        gone = s.command("cat {x:r}", x=f"{servers.urls['s3']}/gone.txt")
        unknown = s.command("cat {x:r}", x="nope://host/x")
        folder = s.command("cat {x:r}", x=f"{servers.urls['sftp']}")
        missing = s.command("true {o:w}", o=f"{servers.urls['ftp']}/never.txt")
        for task, why in (
            (gone, r"its input cannot be brought: s3://bucket/gone\.txt is not there"),
            (unknown, "Protocol not known: nope"),
            (folder, "is a folder; name a file in it"),
            (missing, r"did not write its output o \(ftp://"),
        ):
            with pytest.raises(TaskFailed, match=why) as caught:
                task.result(60)
            assert "\n" not in str(caught.value).split(" on ")[0]
        assert task.attempts == 1
        with pytest.raises(BadValue, match="x: nothing can be written by http"):
            s.command("echo x > {o:w}", o=f"{servers.urls['http']}/x")
        with pytest.raises(BadValue, match="1: nothing can be written by http"):
            s.sweep("echo {n} > {o:w}", bough.tie(n=[1]), o=servers.urls["http"] + "/{n}")
        with pytest.raises(InvalidWorkload, match=r"no file matches 'ftp:.*/\*\.none' now"):
            s.command("cat {x:r}", x=f"{servers.urls['ftp']}/*.none")
        with pytest.raises(BadValue, match="has a password in it") as refused:
            s.command("cat {x:r}", x="sftp://me:secret@host/x")
        assert "secret" not in str(refused.value)
        with pytest.raises(BadValue, match="is signed"):
            s.command("cat {x:r}", x="https://b.s3.amazonaws.com/k?X-Amz-Signature=abc")
        with pytest.raises(BadValue, match="has a password in it"):
            s.sweep("echo {n} > {o:w}", bough.tie(n=[1]), o="ftp://me:secret@host/{n}")
        with pytest.raises(InvalidWorkload, match="give it as a slot"):
            s.command("true", inputs=["s3://bucket/x"])


def test_a_refused_connection_is_tried_again(servers: UrlServers) -> None:
    for url in ("http://127.0.0.1:1/x", "ftp://127.0.0.1:1/x", "webdav://127.0.0.1:1/x"):
        with pytest.raises(SiteError) as caught:
            remote_files.look(url)
        assert caught.value.transient


@pytest.mark.skipif(not _can_hide(), reason="directories are hidden in mount namespaces, which needs root")
@pytest.mark.parametrize("who", ["executor", "server"])
def test_an_executor_that_sees_nothing_has_urls_brought(
    servers: UrlServers, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    service = FarService(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(service.home))
    service.environment |= servers.environment
    service.hidden = (here,)
    source = write(servers, "s3", f"{who}.txt", b"b\na\n", here)
    target = f"{servers.urls['ftp']}/{who}.out"
    archive = write(servers, "s3", f"{who}.tar.gz", packed_tool(tmp_path / "env.tar.gz"), here)
    try:
        service.start()
        if who == "server":  # the executor has no fsspec
            blind = tmp_path / "blind/fsspec"
            blind.mkdir(parents=True)
            (blind / "__init__.py").write_text("raise ImportError('hidden')\n")
            service.environment["PYTHONPATH"] = os.pathsep.join([str(blind.parent), os.environ.get("PYTHONPATH", "")])
        service.far_executor("one")
        (here / "local.txt").write_text("l\n")
        with open_session(service, who) as s:
            a = s.command("cat {x:r} {y:r} > {o:w}; basename {x:r}", x=source, y="local.txt", o="out.txt")
            assert a.result(60).stdout == f"{who}.txt\n"
            assert s.command("tool", environment=archive).result(60).stdout.endswith("/bin/tool\n")
            if who == "executor":
                b = s.sweep("sort {x:r} > {o:w}; echo {n}", bough.tie(n=[1]), x=source, o=target)
                b.wait_all()
                assert s.command("cat {x:r}", x=b).result(60).stdout == "a\nb\n"
            else:
                b = s.sweep("sort {x:r} > {o:w}; echo {n}", bough.tie(n=[1]), x=source, o="b{n}.txt")
                b.wait_all()
                assert (here / "b1.txt").read_text() == "a\nb\n"
                gone = s.command("cat {x:r}", x=f"{servers.urls['s3']}/gone")
                with pytest.raises(TaskFailed, match="s3://bucket/gone is not there"):
                    gone.result(60)
        assert (here / "out.txt").read_text() == "b\na\nl\n"
        assert b"secret" not in b"".join(path.read_bytes() for path in service.home.rglob("*.sqlite*"))
    finally:
        service.clean_up()


def test_a_file_of_a_site_is_used_where_it_lies(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = FarService(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(service.home))
    storage = tmp_path / "storage"
    storage.mkdir()
    (storage / "genome.fa").write_text("genome\n")
    packed_tool(storage / "env.tar.gz")
    try:
        service.start()
        service.executor("--site", "beta")
        service.executor("--site", "alpha")
        with open_session(service, "sites") as s:
            text = "cat {x:r} > {o:w}; echo {x:r}"
            a = s.command(text, x=f"alpha:{storage}/genome.fa", o=f"alpha:{storage}/out/copy.fa")
            b = s.command("cat {x:r}", x=a)
            c = s.sweep("cat {x:r}; echo {n}", bough.tie(n=[1, 2]), x=f"alpha:{storage}/out/copy.fa")
            assert a.result(60).stdout == f"{storage}/genome.fa\n"
            assert b.result(60).stdout == "genome\n"
            assert [one.stdout for one in c.results()] == ["genome\n1\n", "genome\n2\n"]
            elsewhere = s.options(sites=["beta"]).command("cat {x:r}; echo {x:r}", x=f"alpha:{storage}/genome.fa")
            text, where = elsewhere.result(60).stdout.split()
            assert text == "genome"
            assert os.path.basename(where) == "genome.fa"
            assert not where.startswith(str(storage))
            for site in ("alpha", "beta"):
                tool = s.command("tool", environment=f"alpha:{storage}/env.tar.gz", sites=[site])
                assert tool.result(60).stdout.endswith("/bin/tool\n")
            gone = s.command("cat {x:r}", x=f"alpha:{storage}/gone")
            with pytest.raises(TaskFailed, match=r"storage/gone is not there at alpha"):
                gone.result(60)
        assert sorted(os.listdir(storage / "out")) == ["copy.fa"]
    finally:
        service.clean_up()
