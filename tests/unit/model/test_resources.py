"""Amounts as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.model.ids import read_bytes, read_seconds
from bough.model.sites.resources import ONE_CORE, Needs, describe, show_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1", 1),
        ("512", 512),
        ("512B", 512),
        ("1e9", 10**9),
        ("4GB", 4 * 10**9),
        ("4 GB", 4 * 10**9),
        ("4G", 4 * 10**9),
        ("4gb", 4 * 10**9),
        (" 1.5 kB ", 1500),
        ("250K", 250_000),
        ("3MB", 3 * 10**6),
        ("2T", 2 * 10**12),
        ("1KiB", 1024),
        ("512 MiB", 512 * 2**20),
        ("2Gi", 2 * 2**30),
        ("0.5TiB", 2**39),
        (1024, 1024),
        (1.5e9, 1_500_000_000),
    ],
)
def test_bytes_are_read(text: str | float, count: int) -> None:
    assert read_bytes(text) == count
    assert isinstance(read_bytes(text), int)


@pytest.mark.parametrize("text", ["", "GB", "four GB", "4 XB", "4 GBB x", "1,5 GB", "--", "4 G B"])
def test_what_is_no_amount_of_bytes_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        read_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("250ms", 0.25),
        ("2m", 120),
        ("2min", 120),
        ("1h", 3600),
        ("1.5 h", 5400),
        ("2d", 172_800),
        ("1:30", 90),
        ("1:30:00", 5400),
        ("0:00:01.5", 1.5),
        (" 10S ", 10),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_seconds_are_read(text: str | float, seconds: float) -> None:
    assert read_seconds(text) == pytest.approx(seconds)
    assert isinstance(read_seconds(text), float)


@pytest.mark.parametrize("text", ["", "h", "soon", "1x", "1:xx", "1h30m", ":"])
def test_what_is_no_time_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        read_seconds(text)


@given(st.integers(0, 10**15))
def test_plain_numbers_are_taken_as_they_are(count: int) -> None:
    assert read_bytes(count) == count
    assert read_bytes(f"{count}KiB") == count * 1024


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1500, "1.5 kB"),
        (4 * 10**9, "4.0 GB"),
        (3 * 10**12, "3.0 TB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_bytes_are_shown_with_a_unit(count: int, text: str) -> None:
    assert show_bytes(count) == text


@given(st.integers(0, 10**15))
def test_shown_bytes_can_be_read_back_roughly(count: int) -> None:
    assert read_bytes(show_bytes(count)) == pytest.approx(count, rel=0.06)


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        (ONE_CORE, "1 core"),
        (Needs(cores=2), "2 cores"),
        (Needs(cores=0.5), "0.5 cores"),
        (Needs(cores=2, memory=4 * 10**9, gpus=1), "2 cores, 4.0 GB memory, 1 gpu"),
        (Needs(cores=1, named=(("licence", 3),)), "1 core, 3 licence"),
        (Needs(cores=0), "nothing"),
    ],
)
def test_needs_are_said_as_people_do(needs: Needs, text: str) -> None:
    assert str(needs) == text
    assert describe(needs.amounts()) == text


def test_amounts_leave_out_what_is_not_needed() -> None:
    assert Needs(cores=2, named=(("x", 0), ("y", 1))).amounts() == {"cores": 2, "y": 1}


def test_equal_needs_are_one_key() -> None:
    assert len({Needs(cores=2), Needs(cores=2.0), Needs(2, 0, 0, ())}) == 1
