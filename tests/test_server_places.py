"""Which runs there are, and that nothing outside of the served folder is among them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from served_runs import finished

from barograph.store.seal import seal
from barograph.views.server.places import Places, served_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    served = tmp_path / "served"
    finished(served, "a", 5)
    finished(served, "b", 5)
    return served


def test_keys_are_folders_below_the_root(root: Path) -> None:
    assert list(Places(root).scan()) == ["p/a", "p/b"]
    assert list(Places(root / "p").scan()) == ["a", "b"]
    assert list(Places(root / "p" / "a").scan()) == ["a"]


def test_keys_are_percent_encoded_and_found_however_they_are_written(root: Path) -> None:
    for name in ("a b", "a%20b", "ä?#&+;=", "<script>", "x\udcff"):
        os.rename(finished(root, "new", 2, project="q"), root / "q" / name)
    places = Places(root)
    keys = [key for key in places.scan() if key.startswith("q/")]
    assert set(keys) == {"q/a%20b", "q/a%2520b", "q/%C3%A4%3F%23%26%2B%3B%3D", "q/%3Cscript%3E", "q/x%FF"}
    assert all(key.isascii() for key in keys)
    assert places.find("p%2fa").key == "p/a"
    assert places.find("q/a b").dir.name == places.find("q/a%20b").dir.name == "a b"
    assert places.find("q/a%2520b").dir.name == "a%20b"
    assert places.find("q/ä?#&+;=").dir.name == places.find("q/%c3%a4%3f%23%26+%3b=").dir.name == "ä?#&+;="
    with pytest.raises(KeyError):
        places.find("q/\ud800")


def test_new_runs_and_deleted_ones_are_seen(root: Path) -> None:
    places = Places(root)
    places.scan()
    finished(root, "c", 5, project="q")
    assert list(places.scan()) == ["p/a", "p/b", "q/c"]
    os.rename(root / "p" / "a", root / ".gone")
    assert list(places.scan()) == ["p/b", "q/c"]
    with pytest.raises(KeyError, match="there is no run 'p/a'"):
        places.find("p/a")


def test_a_folder_becomes_a_run_later(root: Path) -> None:
    places = Places(root)
    (root / "p" / "late").mkdir()
    assert "p/late" not in places.scan()
    (root / "p" / "late" / "segments").mkdir()
    assert "p/late" in places.scan()


def test_a_missing_root_has_no_runs_until_it_is_there(tmp_path: Path) -> None:
    places = Places(tmp_path / "runs")
    assert places.scan() == {}
    finished(tmp_path / "runs", "a", 5)
    assert list(places.scan()) == ["p/a"]


@pytest.mark.parametrize(
    "key",
    [
        "",
        ".",
        "..",
        "../outside",
        "p/../p/a",
        "p/a/../b",
        "/etc",
        "p//a",
        "p/a\0",
        "p%2f%2fa",
        "p%2f..%2fp%2fa",
        "~",
        "p",
        "p/a/store",
    ],
)
def test_only_a_key_that_was_found_is_a_run(root: Path, key: str) -> None:
    with pytest.raises(KeyError):
        Places(root).find(key)


def test_a_run_that_is_a_link_to_outside_is_left_out_and_named(root: Path, tmp_path: Path) -> None:
    outside = finished(tmp_path / "elsewhere", "secret", 5)
    (root / "p" / "link").symlink_to(outside)
    (root / "project").symlink_to(outside.parent)
    places = Places(root)
    assert list(places.scan()) == ["p/a", "p/b"]
    assert set(places.left_out) == {"p/link", "project/secret"}
    with pytest.raises(KeyError, match="outside of the served folder"):
        places.find("p/link")


def test_a_link_within_the_root_is_a_run(root: Path) -> None:
    (root / "p" / "again").symlink_to(root / "p" / "a")
    assert "p/again" in Places(root).scan()


@pytest.mark.parametrize("file", ["training.json", "run_manifest.json", "store", "segments", "store/training"])
def test_files_of_a_run_that_lead_outside_are_not_read(root: Path, tmp_path: Path, file: str) -> None:
    outside = finished(tmp_path / "elsewhere", "secret", 5)
    places = Places(root)
    found = places.find("p/a")
    for folder in (found.dir, outside):
        seal(folder, final=True)
    path, target = found.dir / file, outside / file
    os.rename(path, tmp_path / "aside")
    path.symlink_to(target)
    with pytest.raises(KeyError, match="outside of the served folder"):
        served_run(found, places.root)
    assert "p/a" not in Places(root).scan()


def test_a_log_that_a_store_names_outside_is_not_read(root: Path, tmp_path: Path) -> None:
    outside = finished(tmp_path / "elsewhere", "secret", 7)
    places = Places(root)
    found = places.find("p/a")
    writer = found.dir / "store" / "r0-1" / "writer.json"  # as version 0.1.0 named a writer's log
    writer.parent.mkdir(parents=True)
    writer.write_text(json.dumps({"log": str(outside / "training.json")}))
    run = served_run(found, places.root)
    assert all(path.resolve().is_relative_to(places.root) for path in run.log_files())
    assert run.series("train/loss").step.max() == 4


def test_a_fork_of_a_run_outside_has_no_history(root: Path, tmp_path: Path) -> None:
    outside = finished(tmp_path / "elsewhere", "secret", 7)
    places = Places(root)
    found = places.find("p/a")
    path = found.dir / "segments" / "0001.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"source": str(outside), "start_step": 100, "kind": "fork"}))
    assert served_run(found, places.root).origin is None
    path.write_text(json.dumps(said | {"source": str(root / "p" / "b"), "start_step": 100, "kind": "fork"}))
    assert served_run(found, places.root).origin is not None
