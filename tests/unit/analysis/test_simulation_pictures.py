"""Pictures of simulated runs: the same bytes again, pages that are whole in themselves, names that mean harm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bough.analysis.simulation_pictures import Bar, draw, page, write_page, write_picture
from bough.errors import UserError

RUNS = {
    "fifo": [Bar("h1", 0, 4, "a"), Bar("h1", 1, 3, "b"), Bar("h2", 0, 5, "a")],
    "sjf <b>$x$</b>": [Bar("h<1>", 0, 2, "a")],
}
TABLE = [("times & more", [("policy", "makespan"), ("<script>alert(1)</script>", "5 s")])]


def test_the_same_runs_give_the_same_bytes() -> None:
    assert draw("w", RUNS, "svg") == draw("w", RUNS, "svg")
    assert draw("w", RUNS, "png").startswith(b"\x89PNG")


def test_every_bar_and_every_run_is_in_the_picture() -> None:
    svg = draw("w", RUNS, "svg").decode()
    fewer = draw("w", {**RUNS, "fifo": RUNS["fifo"][:2]}, "svg").decode()
    for colour in ("#4f81bd", "#d1495b"):
        assert colour in svg
    assert svg.count("<path") > fewer.count("<path")
    assert ">fifo<" in svg


def test_a_page_asks_nobody_for_anything_and_runs_nothing_of_others() -> None:
    text = "".join(page("w <i>", RUNS, TABLE))
    assert "<script" not in text
    assert "<i>" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<td>5 s</td>" in text
    assert text.count("<svg") == 1
    assert not re.search(r"(src|href)=\"(http|//)", text)


def test_a_page_without_runs_has_its_tables() -> None:
    assert "<svg" not in "".join(page("w", {"fifo": []}, TABLE))


def test_files_have_the_kind_that_their_names_say(tmp_path: Path) -> None:
    write_picture(str(tmp_path / "new" / "x.png"), "w", RUNS)
    assert (tmp_path / "new" / "x.png").read_bytes().startswith(b"\x89PNG")
    write_page(str(tmp_path / "x.html"), "w", RUNS, TABLE)
    assert (tmp_path / "x.html").read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(UserError, match="png"):
        write_picture(str(tmp_path / "x.gif"), "w", RUNS)
    with pytest.raises(UserError, match="html"):
        write_page(str(tmp_path / "x.txt"), "w", RUNS, TABLE)
    with pytest.raises(UserError, match="cannot write"):
        write_page(str(tmp_path / "new" / "x.png" / ".." / ".html"), "w", RUNS, TABLE)


def test_hosts_stand_in_the_order_of_their_numbers() -> None:
    bars = [Bar(f"lab{number}", 0.0, 1.0) for number in (10, 2, 1, 11)]
    svg = draw("w", {"fifo": bars}, "svg").decode()
    assert re.findall(r">(lab\d+)<", svg) == ["lab1", "lab2", "lab10", "lab11"]


def test_colours_are_named_unless_several_kinds_have_one() -> None:
    for many, named in ((1, False), (2, True), (10, True), (11, False)):
        kinds = [f"_kind ${number}" for number in range(many)]
        svg = draw("w", {"fifo": [Bar("h", 0.0, 1.0, kind) for kind in kinds]}, "svg").decode()
        assert all((kind in svg) is named for kind in kinds)
