"""Files of the user's server: made with mode 0600, refused when others can read them, found by every name."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from bough.errors import SiteError, UserError
from bough.transport import access as accesses
from bough.transport.access import (
    Access,
    find_access,
    make_tokens,
    own_access,
    read_access,
    read_token,
    rotate_token,
    rotate_tokens,
    secret,
    split_address,
    token_bytes,
    token_path,
    write_access,
)
from bough.transport.home import (
    ServerNote,
    home,
    read_note,
    read_private,
    remove_note,
    server_dir,
    write_note,
    write_private,
)
from bough.transport.tls import client_context, fingerprint, make_certificate, read_fingerprint, server_context

NOTE = ServerNote("127.0.0.1:7000", "some/where.sock", 1, os.uname().nodename, "ab" * 32, "store", 1.0)


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# --- home ---


def test_home_is_named_or_lies_in_the_users_state(monkeypatch: pytest.MonkeyPatch, bough_home: Path) -> None:
    assert home() == str(bough_home)
    monkeypatch.delenv("BOUGH_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "/some/state")
    assert home() == "/some/state/bough"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert home() == "/home/me/.local/state/bough"


def test_a_note_comes_back_and_goes() -> None:
    assert read_note() is None
    write_note(NOTE)
    assert read_note() == NOTE
    assert mode(server_dir()) == 0o700
    remove_note()
    remove_note()
    assert read_note() is None


def test_a_note_that_makes_no_sense_is_none() -> None:
    write_note(NOTE)
    Path(server_dir(), "server.json").write_text("{")
    assert read_note() is None


def test_a_folder_that_others_can_enter_is_closed() -> None:
    os.makedirs(server_dir(), mode=0o755)
    write_note(NOTE)
    assert mode(server_dir()) == 0o700


def test_a_private_file_is_whole_and_private_whatever_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        write_private(str(tmp_path / "x"), b"one")
        write_private(str(tmp_path / "x"), b"two")
    finally:
        os.umask(mask)
    assert (tmp_path / "x").read_bytes() == b"two"
    assert mode(str(tmp_path / "x")) == 0o600
    assert os.listdir(tmp_path) == ["x"]


def test_a_private_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="cannot be written"):
        write_private(str(tmp_path / "none" / "x"), b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(SiteError):
        write_private(str(tmp_path / "folder"), b"")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("bad", [0o640, 0o604, 0o644, 0o660, 0o610])
def test_a_secret_that_others_can_touch_is_refused(tmp_path: Path, bad: int) -> None:
    path = str(tmp_path / "x")
    write_private(path, b"one")
    os.chmod(path, bad)
    with pytest.raises(UserError) as found:
        read_private(path, "the token file")
    assert str(found.value) == f"the token file {path} can be read by others: chmod 600 {path}"


def test_a_secret_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_private(str(tmp_path), "the token file")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_private(str(tmp_path / "x"), "the token file")


# --- certificates ---


def test_a_certificate_is_made_once_and_its_key_is_private() -> None:
    cert, key, mark = make_certificate()
    assert (cert, key, mark) == make_certificate()
    assert mode(key) == 0o600
    assert len(mark) == 64
    server_context(cert, key)


def test_a_certificate_is_of_the_right_kind_and_lasts_ten_years() -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    path, _, mark = make_certificate()
    cert = x509.load_pem_x509_certificate(Path(path).read_bytes())
    key = cert.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert 3600 < (cert.not_valid_after_utc - cert.not_valid_before_utc).days < 3700
    assert fingerprint(cert.public_bytes(serialization.Encoding.DER)) == mark


def test_a_key_that_others_can_read_is_refused() -> None:
    _, key, _ = make_certificate()
    os.chmod(key, 0o644)
    with pytest.raises(UserError, match=f"chmod 600 {key}"):
        make_certificate()


def test_a_certificate_that_is_none_is_refused_with_what_to_do() -> None:
    cert, key, _ = make_certificate()
    Path(cert).write_text("nonsense")
    with pytest.raises(UserError, match="to have new ones made"):
        read_fingerprint(cert, key)
    with pytest.raises(UserError, match="to have new ones made"):
        server_context(cert, key)
    os.unlink(cert)
    with pytest.raises(UserError, match="cannot be read"):
        read_fingerprint(cert, key)


def test_contexts_speak_tls_1_3_only() -> None:
    import ssl

    cert, key, _ = make_certificate()
    for context in (server_context(cert, key), client_context()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3


# --- tokens ---


def test_tokens_are_made_once_and_are_private() -> None:
    make_tokens()
    tokens = {role: read_token(role) for role in ("submit", "execute", "read")}
    make_tokens()
    assert tokens == {role: read_token(role) for role in tokens}
    assert len(set(tokens.values())) == 3
    assert {mode(token_path(role)) for role in tokens} == {0o600}
    assert [len(secret(role)) for role in tokens] == [32, 32, 32]


def test_a_token_is_rotated_alone_or_with_the_others() -> None:
    make_tokens()
    submit, execute = read_token("submit"), read_token("execute")
    assert rotate_token("submit") == read_token("submit") != submit
    assert read_token("execute") == execute
    rotate_tokens()
    assert read_token("execute") != execute


def test_a_role_that_is_none_has_no_token() -> None:
    with pytest.raises(UserError, match="use one of submit, execute, read"):
        read_token("../../x")


@pytest.mark.parametrize("text", ["", "abc", "é" * 43, "A" * 44, "*" * 43, "A" * 1000])
def test_a_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="the file holds no token"):
        token_bytes(text, "the file")


# --- access ---


def test_an_access_file_comes_back_and_is_private(tmp_path: Path) -> None:
    path, access = str(tmp_path / "a.json"), Access("host:1", "ab", "execute", "tok")
    write_access(path, access)
    assert read_access(path) == find_access(path, "execute") == access
    assert mode(path) == 0o600


def test_an_access_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.json")
    write_access(path, Access("host:1", "ab", "execute", "tok"))
    os.chmod(path, 0o644)
    with pytest.raises(UserError, match=f"chmod 600 {path}"):
        find_access(path, "execute")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"address": 3}', '{"address": "nowhere"}'])
def test_a_file_that_is_no_access_file_is_refused(tmp_path: Path, text: str) -> None:
    path = str(tmp_path / "a.json")
    write_private(path, text.encode())
    with pytest.raises(UserError):
        find_access(path, "execute")


def test_an_access_file_serves_its_role_and_what_that_includes(tmp_path: Path) -> None:
    path = str(tmp_path / "a.json")
    write_access(path, Access("host:1", "ab", "submit", "tok"))
    assert find_access(path, "read").role == "submit"
    with pytest.raises(UserError, match="bough server access --role execute"):
        find_access(path, "execute")


def test_a_unix_socket_needs_neither_pin_nor_token() -> None:
    found = find_access("unix:some/where", "submit")
    assert found == Access("unix:some/where", role="submit")
    assert (found.is_unix, found.path) == (True, "some/where")
    with pytest.raises(UserError, match="use unix:PATH"):
        find_access("unix:", "submit")


def test_the_path_of_a_socket_is_told_how_it_is_written(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "server.sock"))
        with pytest.raises(UserError, match=f"is a socket: write unix:{tmp_path}/server.sock"):
            find_access(str(tmp_path / "server.sock"), "submit")


def test_the_name_given_counts_before_the_environment_before_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    write_note(NOTE)
    assert find_access(None, "submit").address == "unix:some/where.sock"
    monkeypatch.setenv("BOUGH_SERVER", "unix:environment")
    assert find_access(None, "submit").address == "unix:environment"
    assert find_access("unix:given", "submit").address == "unix:given"


def test_without_any_server_the_error_says_what_to_do() -> None:
    with pytest.raises(UserError, match="start one with bough server start"):
        find_access(None, "submit")
    with pytest.raises(UserError, match="start one with bough server start"):
        own_access("submit")


@pytest.mark.parametrize("address", ["127.0.0.1:7000", "localhost:7000"])
def test_a_plain_address_of_the_users_own_server_is_enough(address: str) -> None:
    write_note(NOTE)
    make_tokens()
    assert find_access(address, "read") == Access(address, NOTE.fingerprint, "read", read_token("read"))


@pytest.mark.parametrize("address", ["127.0.0.1:7001", "elsewhere:7000", "[::2]:7000"])
def test_a_plain_address_of_another_server_needs_an_access_file(address: str) -> None:
    write_note(NOTE)
    make_tokens()
    with pytest.raises(UserError, match="use an access file"):
        find_access(address, "read")


def test_a_shared_home_on_another_host_leads_to_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    write_note(NOTE)
    make_tokens()
    monkeypatch.setattr(accesses.socket, "gethostname", lambda: "another")
    assert find_access(None, "execute") == own_access("execute")
    assert own_access("execute").address == NOTE.address


def test_a_server_that_listens_on_no_port_gives_no_access() -> None:
    import msgspec

    write_note(msgspec.structs.replace(NOTE, address=""))
    with pytest.raises(UserError, match="--listen HOST:PORT"):
        own_access("execute")


@pytest.mark.parametrize("name", ["nonsense", "a:b:c", "host:", ":1", "host:123456"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UserError):
        find_access(name, "submit")


def test_addresses_are_split() -> None:
    assert split_address("host:1") == ("host", 1)
    assert split_address("[::1]:65535") == ("::1", 65535)
    with pytest.raises(UserError, match="HOST:PORT"):
        split_address("host:65536")


def test_a_pipe_is_no_secret_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UserError, match="is not a file"):
        read_private(str(tmp_path / "pipe"), "the token")


def test_a_home_that_no_file_system_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUGH_HOME", "p/" * 1500)
    with pytest.raises(UserError, match="BOUGH_HOME"):
        home()
