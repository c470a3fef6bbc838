"""The rows as a table, as bars, as a page and as JSON."""

from __future__ import annotations

import json

import pytest

from bough.bench import bench_table
from bough.bench.catalogue import BenchOutcome
from bough.bench.timing import BenchRow

FAST = BenchRow("map", "400/s", "pool", "100/s", 4.0, target=2.0, cpu="1.0 / 4.0")
SLOW = BenchRow("trip", "2.00 ms", "pool", "1.00 ms", 2.0, better="low", target=1.2)
EXACT = BenchRow("sleeps", "0.9", "loops", "0.9", 0.98765, target=0.985)
LIMIT = BenchRow("limit: fsync", "", "this machine", "4,000/s", None)
ROWS = [FAST, SLOW, EXACT, LIMIT]
OUTCOME = BenchOutcome(ROWS, {})


def test_a_row_says_its_ratio_its_target_and_whether_it_is_met() -> None:
    assert bench_table.cells(FAST) == ("map", "4.00", ">= 2 yes", "400/s", "pool", "100/s", "1.0 / 4.0")
    assert bench_table.cells(SLOW)[1:3] == ("2.00", "<= 1.2 no")
    assert bench_table.cells(LIMIT)[1:3] == ("", "")


def test_a_target_close_to_one_shows_the_digits_that_decide() -> None:
    assert bench_table.cells(EXACT)[1] == "0.9877"


@pytest.mark.parametrize(("ratio", "shown"), [(1234.5, "1,234"), (99.0, "99.00"), (0.25, "0.25"), (0.0123, "0.012")])
def test_ratios_have_as_many_digits_as_anybody_reads(ratio: float, shown: str) -> None:
    assert bench_table.figure(ratio) == shown


def test_bars_go_right_for_better_and_left_for_worse() -> None:
    zero = -bench_table.SLOWEST * bench_table.STEP
    assert bench_table.bar(FAST)[zero] == "|"
    assert bench_table.bar(FAST).rstrip() == " " * zero + "|██*███"
    assert bench_table.bar(SLOW) == " " * (zero - 3) + "██*|"
    assert bench_table.bar(LIMIT) == ""


def test_bars_end_where_the_scale_ends() -> None:
    longest = len(bench_table.bar(BenchRow("a", "", "", "", 1e9)))
    assert longest == (bench_table.FASTEST - bench_table.SLOWEST) * bench_table.STEP + 1
    assert bench_table.bar(BenchRow("a", "", "", "", 1e-9))[0] == "█"
    assert len(bench_table.scale()) == longest
    assert bench_table.scale()[-bench_table.SLOWEST * bench_table.STEP] == "|"


def test_more_is_better_on_every_bar() -> None:
    assert bench_table.goodness(FAST) == 4.0
    assert bench_table.goodness(SLOW) == 0.5
    assert bench_table.goodness(LIMIT) is None


def test_the_text_has_the_table_the_bars_and_the_machine() -> None:
    lines = bench_table.text(OUTCOME, 12.0, width=160, colour=False)
    page = "\n".join(lines)
    assert "\x1b" not in page
    assert max(map(len, lines[:-2])) <= 160
    assert "limit: fsync" in page
    assert sum("trip" in line for line in lines) == 2
    assert lines[-1] == "4 rows in 12 s; 2 targets met, 1 not"
    assert "cores of" in lines[-2]


def test_what_could_not_be_measured_is_told_at_the_end() -> None:
    outcome = BenchOutcome([FAST], {"tls": "OSError: no port"})
    assert bench_table.text(outcome, 1.0, width=160, colour=False)[-1] == "tls could not be measured: OSError: no port"
    assert bench_table.value(outcome, 1.0)["failures"] == {"tls": "OSError: no port"}


def test_colours_come_when_they_are_wanted() -> None:
    assert "\x1b[32m" in "\n".join(bench_table.text(OUTCOME, 1.0, width=160, colour=True))


def test_rows_without_ratios_have_no_bars() -> None:
    assert not any(
        "times" in line for line in bench_table.text(BenchOutcome([LIMIT], {}), 1.0, width=160, colour=False)
    )


def test_the_page_for_the_documentation_is_a_table() -> None:
    lines = bench_table.markdown(ROWS, 12.0)
    assert lines[0].startswith("| subject | ratio | target |")
    assert {line.count("|") for line in lines[:6]} == {len(bench_table.HEAD) + 1}
    assert lines[-1].endswith("4 rows in 12 s.")


def test_the_value_for_programs_can_be_written_as_json() -> None:
    found = json.loads(json.dumps(bench_table.value(OUTCOME, 12.34)))
    assert found["seconds"] == 12.3
    assert found["machine"]["cores"] >= 1
    assert [row["met"] for row in found["rows"]] == [True, False, True, None]
    assert found["rows"][0]["ratio"] == 4.0
