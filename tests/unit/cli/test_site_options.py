"""What can be said of a site on the command line and in a file: the same."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bough.cli.site_definitions import add_definition_arguments, read_definitions
from bough.errors import UserError
from bough.model.sites.site_specs import SiteSpec


def read(*words: str) -> dict[str, SiteSpec]:
    parser = argparse.ArgumentParser()
    parser.add_argument("site", nargs="?")
    parser.add_argument("--file")
    add_definition_arguments(parser)
    return read_definitions(parser.parse_args(words))


def test_a_file_says_the_same_as_options(tmp_path: Path) -> None:
    path = tmp_path / "sites.toml"
    path.write_text(
        '[lab]\nssh = "h"\nprovisioning = "additive:release=queue,q=4"\nexecutors_per_host = 2\nmax_tasks = 100\n'
        'poll = "5s"\nmin_pilots = 1\nmax_pilots = 3\nmax_transfers = 4\n'
    )
    options = ("--provisioning", "additive:release=queue,q=4", "--executors-per-host", "2", "--max-tasks", "100")
    bounds = ("--poll", "5s", "--min-pilots", "1", "--max-pilots", "3", "--max-transfers", "4")
    assert read("--file", str(path)) == read("lab", "--ssh", "h", *options, *bounds)
    spec = read("--file", str(path))["lab"]
    assert (spec.executors_per_host, spec.max_tasks, spec.provisioning) == (2, 100, "additive:release=queue,q=4")


@pytest.mark.parametrize(
    "words",
    [
        ("--executors-per-host", "0"),
        ("--executors-per-host", "2000"),
        ("--max-tasks", "100000000000"),
        ("--max-transfers", "100000"),
        ("--provisioning", "a b"),
    ],
)
def test_what_is_out_of_bounds_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(UserError):
        read("lab", "--ssh", "h", *words)
