"""Where files lie in a sandbox: never outside, and where the command's text says wherever that is possible."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.model.commands.command import CommandSettings, CommandTemplate
from bough.model.commands.rendering import render_call, render_row
from bough.model.commands.template import parse
from bough.model.files import absolute, is_tidy, leads_outside, pack_manifest, place_inside, unpack_manifest

PIECES = st.lists(st.sampled_from(["a", "b", "..", ".", "", "home", "me", ".outside"]), max_size=8)


@pytest.mark.parametrize(
    ("path", "directory", "place"),
    [
        ("/home/me/a.txt", "/home/me", "a.txt"),
        ("/home/me", "/home/me", "."),
        ("/home/me/sub/a", "/home/me", "sub/a"),
        ("/home/meadow/a", "/home/me", ".outside/home/meadow/a"),
        ("/data/a", "/home/me", ".outside/data/a"),
        ("/data/a", "/", "data/a"),
    ],
)
def test_the_directory_is_the_sandbox(path: str, directory: str, place: str) -> None:
    assert place_inside(path, directory) == place


@pytest.mark.parametrize("path", ["a", "/a/../b", "/a//b", "/a/.", "/", "", "/a\0b", "/a/"])
def test_paths_that_are_not_tidy_have_no_place(path: str) -> None:
    assert not is_tidy(path)
    with pytest.raises(ValueError, match="not a path"):
        place_inside(path, "/home/me")


@given(PIECES, PIECES)
def test_no_place_is_outside(pieces: list[str], directory: list[str]) -> None:
    path, root = absolute("/".join(["", *pieces]) or "/", "/"), absolute("/".join(["", *directory]) or "/", "/")
    if is_tidy(path):
        place = place_inside(path, root)
        assert not place.startswith("/")
        assert ".." not in place.split("/")


@given(PIECES)
def test_a_text_that_stays_inside_means_the_same_place_in_the_sandbox(pieces: list[str]) -> None:
    text, directory, cwd = "/".join(pieces), "/home/me", "/home/me/sub"
    whole = absolute(text, cwd) if text else cwd
    if text and not leads_outside(text, cwd, directory) and is_tidy(whole):
        assert posixpath.normpath(f"/box/sub/{text}") == posixpath.normpath(f"/box/{place_inside(whole, directory)}")


def test_a_late_call_says_what_it_reads_and_takes_other_places_for_it() -> None:
    settings = CommandSettings("/home/me", ("sh", "-c"), stdin_path="/data/in")
    template = CommandTemplate(settings, parse("cat {x:r} '{y:r}' > {o:w}"), ("x", "y", "o"))
    call = render_row(template, (["a b", "/data/it's"], "/data/c", "out"), late=True)
    assert call.reads == dict.fromkeys(["/home/me/a b", "/data/it's", "/data/c", "/data/in"], b"")
    assert (
        render_call(call, {"o": "/home/me/.out"})[-1]
        == render_call(render_row(template, (["a b", "/data/it's"], "/data/c", "out")), {"o": "/home/me/.out"})[-1]
    )
    moved = {"/data/it's": "/box/it's", "/data/c": "/box/c"}
    assert render_call(call, {"o": "/home/me/.out"}, moved=moved)[-1] == ("cat 'a b' '/box/it'\"'\"'s' '/box/c' > .out")


def test_a_late_call_without_a_shell_takes_other_places_too() -> None:
    template = CommandTemplate(CommandSettings("/home/me"), parse("cat {x:r} -n{y:r}"), ("x", "y"))
    call = render_row(template, (["a", "/data/b"], "/data/c"), late=True)
    assert render_call(call, {}) == ["cat", "a", "/data/b", "-n/data/c"]
    assert render_call(call, {}, moved={"/data/c": "/box/c"}) == ["cat", "a", "/data/b", "-n/box/c"]


def test_a_manifest_is_read_as_it_was_written() -> None:
    packed = pack_manifest({"/a": b"digest", "/b": b""}, ["/c", "/d"])
    assert unpack_manifest(packed).reads == {"/a": b"digest", "/b": b""}
    assert unpack_manifest(packed).writes == {"/c", "/d"}
    assert unpack_manifest(b"").reads == {}
    for wrong in (b"x", packed[:-3], pack_manifest({}, [])[:-1]):
        with pytest.raises(ValueError, match="cannot be read"):
            unpack_manifest(wrong)
