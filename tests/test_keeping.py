"""Keeping runs in order: edits beside the manifest, the trash and the way back."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
from compared_runs import falling, make_run
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.core import manifest
from barograph.query import curation, trash


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for project, name in (("gpt", "a"), ("gpt", "b"), ("moe", "a")):
        make_run(tmp_path, name, falling(1.0, 0), project=project, steps=20, config={"lr": 1e-3})
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


# -- edits -------------------------------------------------------------------------------------------------


def test_an_edit_stands_beside_the_manifest_and_over_it(root: Path) -> None:
    run = root / "gpt" / "a"
    before = files(run)
    made = curation.edit(run, name="best", tags=["good", "good", " sweep "], notes="two\nlines", pinned=True)
    assert made["tags"] == ["good", "sweep"] and made["edited"]
    after = files(run)
    assert set(after) - set(before) == {curation.FILE}
    assert {name: after[name] for name in before} == before, "the writer's files are the writer's"
    about = curation.over(run, manifest.read(run))
    assert (about["name"], about["notes"], about["pinned"], about["config"]) == (
        "best",
        "two\nlines",
        True,
        {"lr": 1e-3},
    )
    curation.edit(run, name=None, pinned=None)
    assert curation.over(run, manifest.read(run))["name"] == "a"
    assert curation.read(run) == {"tags": ["good", "sweep"], "notes": "two\nlines"}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"name": ""}, "empty"),
        ({"name": "two\nlines"}, "one line"),
        ({"name": "x" * 201}, "too long"),
        ({"name": 3}, "text"),
        ({"tags": "good"}, "list"),
        ({"tags": ["ok", "  "]}, "empty"),
        ({"tags": [f"t{k}" for k in range(101)]}, "too many"),
        ({"notes": "x" * 100_001}, "too long"),
        ({"notes": 3}, "text"),
        ({"pinned": 1}, "true or false"),
        ({"status": "finished"}, "no 'status'"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(root: Path, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        curation.edit(root / "gpt" / "a", **changes)
    assert curation.read(root / "gpt" / "a") == {}


def test_a_folder_that_is_no_run_is_not_edited(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a run's folder"):
        curation.edit(tmp_path, name="x")
    assert list(tmp_path.iterdir()) == []


@given(content=st.one_of(st.binary(max_size=200), st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(curation.KEYS), inner, max_size=5),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())))  # fmt: skip
def test_a_damaged_file_says_nothing_that_is_not_of_its_kind(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / curation.FILE).write_bytes(content)
    held = curation.read(folder)
    assert set(held) <= set(curation.KEYS)
    assert all(isinstance(held[key], str) for key in ("name", "notes") if key in held)
    assert all(isinstance(held[key], bool) for key in ("pinned", "archived") if key in held)
    assert all(isinstance(tag, str) for tag in held.get("tags", []))


def _add_tags(folder: Path, lead: str) -> None:
    for at in range(15):
        curation.amend(folder, lambda about, at=at: {"tags": [*about.get("tags", []), f"{lead}{at}"]})


def test_editors_at_the_same_time_lose_nothing(root: Path) -> None:
    folder = root / "gpt" / "a"
    workers = [multiprocessing.get_context("fork").Process(target=_add_tags, args=(folder, one)) for one in "xyz"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert sorted(curation.read(folder)["tags"]) == sorted(f"{lead}{at}" for lead in "xyz" for at in range(15))
    assert [one.name for one in folder.iterdir() if one.name.endswith(".tmp")] == []


def test_a_run_in_progress_can_be_edited_and_its_writer_takes_no_notice(tmp_path: Path) -> None:
    run = barograph.init("p", "live", dir=tmp_path, verbosity=-2, tags=["mine"])
    run.log({"train/loss": 1.0}, step=1)
    curation.edit(run.dir, name="renamed", tags=["theirs"])
    run.log({"train/loss": 0.5}, step=2)
    run.finish()
    assert curation.read(run.dir) == {"name": "renamed", "tags": ["theirs"]}
    assert manifest.read(run.dir)["tags"] == ["mine"] and manifest.read(run.dir)["status"] == "finished"
    assert barograph.StoredRun(run.dir).series("train/loss").value.tolist() == [1.0, 0.5]


# -- the trash ----------------------------------------------------------------------------------------------


def test_a_deleted_run_comes_back_as_it_was(root: Path) -> None:
    folder = root / "gpt" / "a"
    curation.edit(folder, name="named")
    before = files(folder)
    entry = trash.trash(folder)
    assert not folder.exists() and (root / ".trash" / entry).is_dir()
    (one,) = trash.trashed(root)
    assert (one.id, one.project, one.run, one.name, one.path) == (entry, "gpt", "a", "named", folder)
    assert trash.restore(root, entry) == folder
    assert files(folder) == before
    assert trash.trashed(root) == [] and not (root / ".trash").exists()


def test_runs_in_the_trash_are_in_no_list(root: Path) -> None:
    from barograph.query.catalog import runs

    trash.trash(root / "gpt" / "a")
    assert sorted(f"{run.project}/{run.id}" for run in runs(root)) == ["gpt/b", "moe/a"]


def test_a_run_comes_back_beside_one_that_took_its_place(root: Path) -> None:
    entry = trash.trash(root / "gpt" / "a")
    make_run(root, "a", falling(2.0, 1), project="gpt", steps=5)
    assert trash.restore(root, entry) == root / "gpt" / "a-2"
    assert len(barograph.StoredRun(root / "gpt" / "a-2").series("train/loss")) == 20


def test_a_run_of_a_project_that_is_gone_brings_it_back(root: Path) -> None:
    entry = trash.trash(root / "moe" / "a")
    (root / "moe").rmdir()
    assert trash.restore(root, "moe/a") == root / "moe" / "a"
    assert entry


def test_the_same_run_deleted_twice_is_two_entries(root: Path) -> None:
    first = trash.trash(root / "gpt" / "a")
    make_run(root, "a", falling(2.0, 1), project="gpt", steps=5)
    second = trash.trash(root / "gpt" / "a")
    assert first != second and len(trash.trashed(root)) == 2
    with pytest.raises(KeyError, match="is 2 runs in the trash"):
        trash.restore(root, "a")


def test_a_live_run_is_not_deleted(tmp_path: Path) -> None:
    run = barograph.init("p", "live", dir=tmp_path, verbosity=-2)
    run.log({"train/loss": 1.0}, step=1)
    with pytest.raises(ValueError, match="still being written"):
        trash.trash(run.dir, force=True)
    run.finish()
    assert trash.trash(run.dir)


def test_a_run_that_may_live_on_another_machine_needs_force(root: Path) -> None:
    folder = root / "gpt" / "a"
    about = manifest.read(folder) | {"status": "running", "host": "elsewhere", "pid": 1}
    manifest.write(folder, about)
    old = time.time() - 3600
    for path in folder.rglob("*"):
        os.utime(path, (old, old))
    with pytest.raises(ValueError, match=r"elsewhere.*--force"):
        trash.trash(folder)
    assert trash.trash(folder, force=True)


@pytest.mark.parametrize("which", ["../gpt/b", "..", "/etc", "", ".purging-x", "gpt/b"])
def test_an_id_leads_to_nothing_but_an_entry(root: Path, which: str) -> None:
    trash.trash(root / "gpt" / "a")
    with pytest.raises(KeyError, match="in the trash"):
        trash.restore(root, which)


@pytest.mark.parametrize("path", ["../../out", "/tmp/out", "gpt/../../out", "", "."])
def test_a_note_that_was_tampered_with_leads_nowhere_else(root: Path, path: str) -> None:
    entry = trash.trash(root / "gpt" / "a")
    note = root / ".trash" / entry / trash.NOTE
    note.write_text(json.dumps(json.loads(note.read_text()) | {"path": path}))
    assert root in trash.restore(root, entry).parents


def test_what_is_no_run_is_not_deleted(root: Path) -> None:
    for folder in (root, root / "gpt", root / "nothing"):
        with pytest.raises(ValueError, match="not a run's folder"):
            trash.trash(folder)
    entry = trash.trash(root / "gpt" / "a")
    with pytest.raises(ValueError, match="not a run's folder"):
        trash.trash(root / ".trash" / entry)


def test_a_trash_that_is_a_link_is_refused(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (root / ".trash").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(OSError, match="link"):
        trash.trash(root / "gpt" / "a")
    assert (root / "gpt" / "a").is_dir()
    assert trash.purge(root, 0.0) == []


def test_purging_removes_what_is_old_and_nothing_else(root: Path) -> None:
    old, new = trash.trash(root / "gpt" / "a"), trash.trash(root / "gpt" / "b")
    note = root / ".trash" / old / trash.NOTE
    note.write_text(json.dumps(json.loads(note.read_text()) | {"deleted": time.time() - 40 * 86_400}))
    (root / ".trash" / ".purging-half").mkdir()
    assert [one.id for one in trash.purge(root)] == [old]
    assert [one.id for one in trash.trashed(root)] == [new]
    assert sorted(one.name for one in (root / ".trash").iterdir()) == [new]
    assert [one.id for one in trash.purge(root, 0.0)] == [new] and not (root / ".trash").exists()
    assert (root / "moe" / "a").is_dir()


def test_a_project_that_can_not_be_moved_out_of_its_file_system_has_its_own_trash(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def rename(source: Path, target: Path) -> None:
        if Path(target).parent == root / ".trash":
            raise OSError(18, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    entry = trash.trash(root / "gpt" / "a")
    assert (root / "gpt" / ".trash" / entry).is_dir()
    assert [one.id for one in trash.trashed(root)] == [entry]
    assert trash.restore(root, entry) == root / "gpt" / "a"


def test_forks_of_a_run_are_known(root: Path) -> None:
    made = barograph.fork(root / "gpt" / "a", 10, dir=root, verbosity=-2)
    made.finish()
    assert trash.forks_of(root / "gpt" / "a", root) == [made.dir]
    assert trash.forks_of(root / "gpt" / "b", root) == []
