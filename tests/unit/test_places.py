"""Where a store has been: paths of the journal are read as what they are called now."""

from __future__ import annotations

from pathlib import Path

from bough.model.events.facts import SpanEnded
from bough.model.outcomes import Detail, Output, ResultFile, Stream
from bough.stores.places import FILE, FormerPlaces, note_place


def store_of(project: Path, *former: str) -> str:
    store = project / ".bough" / "w"
    store.mkdir(parents=True)
    (store / FILE).write_text("".join(f"{line}\n" for line in former))
    return str(store)


def test_a_place_is_noted_once_and_a_store_that_stayed_translates_nothing(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    note_place(store)
    note_place(store)
    assert (Path(store) / FILE).read_text() == f"{store}\n"
    places = FormerPlaces(store)
    assert not places
    assert places.now("/else/x") == "/else/x"
    assert list(places.formerly("/else/x")) == ["/else/x"]
    assert not FormerPlaces("")


def test_files_of_the_store_and_of_its_project_moved_with_it(tmp_path: Path) -> None:
    places = FormerPlaces(store_of(tmp_path, "/old/.bough/w", "/older/home/.bough/w"))
    assert places
    assert places.now("/old/.bough/w/out/x1-0.out") == f"{tmp_path}/.bough/w/out/x1-0.out"
    assert places.now("/old/sub/a.txt") == f"{tmp_path}/sub/a.txt"
    assert places.now("/older/home/a.txt") == f"{tmp_path}/a.txt"
    for other in ("/oldest/a.txt", "/old", "/data/old/a.txt", f"{tmp_path}/a.txt"):
        assert places.now(other) == other
    assert set(places.formerly(f"{tmp_path}/a.txt")) == {f"{tmp_path}/a.txt", "/old/a.txt", "/older/home/a.txt"}


def test_a_store_without_a_project_takes_only_its_own_files_along(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("/scratch/store\n")
    places = FormerPlaces(str(tmp_path))
    assert places.now("/scratch/store/results/1") == f"{tmp_path}/results/1"
    assert places.now("/scratch/a.txt") == "/scratch/a.txt"


def test_the_longest_folder_decides_for_copies_inside_and_outside(tmp_path: Path) -> None:
    inside = FormerPlaces(store_of(tmp_path / "p" / "copy", f"{tmp_path}/p/.bough/w"))
    assert inside.now(f"{tmp_path}/p/a") == f"{tmp_path}/p/copy/a"
    assert inside.now(f"{tmp_path}/p/copy/a") == f"{tmp_path}/p/copy/a"
    outside = FormerPlaces(store_of(tmp_path / "q", f"{tmp_path}/q/deep/.bough/w"))
    assert outside.now(f"{tmp_path}/q/deep/a") == f"{tmp_path}/q/a"


def test_all_paths_of_a_success_are_translated(tmp_path: Path) -> None:
    places = FormerPlaces(store_of(tmp_path, "/old/.bough/w"))
    streams = Stream("/old/.bough/w/out/x1-0.out", 0, 3), None
    detail = Detail(0, stdout=streams[0], outputs=(Output("o", "/old/o.txt", 1, 2),))
    fact = places.success(SpanEnded(1, 0, 1, 0.5, ResultFile("/old/.bough/w/results/1-1-1", 9), (detail,)))  # type: ignore[arg-type]
    assert isinstance(fact.results, ResultFile)
    assert fact.results.path == f"{tmp_path}/.bough/w/results/1-1-1"
    assert fact.details[0].stdout is not None
    assert fact.details[0].stdout.path == f"{tmp_path}/.bough/w/out/x1-0.out"
    assert fact.details[0].outputs[0].path == f"{tmp_path}/o.txt"
