"""The demo's text is the library's, split the same way each time, and dealt out from where it stood."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.demo.text import (
    SEPARATOR,
    SHARD_BATCHES,
    NoSources,
    TextLoader,
    fixed_windows,
    read_corpus,
)

TEXT = bytes(number % 251 for number in range(20_001))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with a hundred different source files, some in packages."""
    for number in range(100):
        folder = tmp_path / ("package" if number % 3 else ".")
        folder.mkdir(exist_ok=True)
        (folder / f"module_{number}.py").write_text(f"value = {number}\n" * (number + 1))
    return tmp_path


def parts(text: bytes) -> list[bytes]:
    return text.split(SEPARATOR)


def test_this_python_has_a_library_to_train_on() -> None:
    corpus = read_corpus()
    assert len(corpus.train.text) > 1_000_000 and len(corpus.held_out.text) > 50_000
    assert not set(corpus.train.files) & set(corpus.held_out.files)
    assert not any("site-packages" in name or "/tests/" in name for name in corpus.train.files)


def test_no_content_is_on_both_sides_and_all_of_it_is_on_one(library: Path) -> None:
    (library / "copy.py").write_bytes((library / "module_0.py").read_bytes())
    corpus = read_corpus(library)
    train, held_out = parts(corpus.train.text), parts(corpus.held_out.text)
    assert not set(train) & set(held_out)
    assert sorted(train + held_out) == sorted(path.read_bytes() for path in library.rglob("*.py"))
    assert len(corpus.train.files) == len(train) and len(corpus.held_out.files) == len(held_out)


def test_the_split_is_the_same_wherever_the_library_lies(library: Path) -> None:
    other = library.with_name("elsewhere")
    for path in sorted(library.rglob("*.py"), reverse=True):
        (other / path.relative_to(library)).parent.mkdir(parents=True, exist_ok=True)
        (other / path.relative_to(library)).write_bytes(path.read_bytes())
    assert read_corpus(other) == read_corpus(library)


def test_tests_packages_of_others_and_what_is_no_text_stay_out(library: Path) -> None:
    clean = read_corpus(library)
    for name in ("site-packages/numpy/core.py", "test/test_all.py", "unittest/test/x.py", "__pycache__/x.py"):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text("stranger = 1\n")
    (library / "binary.py").write_bytes(b"x = '\0'\n")
    (library / "empty.py").write_bytes(b"")
    (library / "notes.txt").write_text("stranger = 1\n")
    os.symlink(library / "gone", library / "dangling.py")
    assert read_corpus(library) == clean


def test_a_limit_cuts_the_text_to_the_byte(library: Path) -> None:
    corpus = read_corpus(library, max_train_bytes=5000, max_held_out_bytes=10)
    assert 4990 <= len(corpus.train.text) <= 5000 and len(corpus.held_out.text) == 10
    assert read_corpus(library).train.text.startswith(corpus.train.text)
    assert len(corpus.train.files) < len(read_corpus(library).train.files)


def test_a_library_without_sources_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "python311.zip"):
        with pytest.raises(NoSources, match=r"too little Python source text under .*; .*\.$"):
            read_corpus(folder)


# -- the loader --------------------------------------------------------------------------------------


def test_a_batch_holds_windows_that_share_their_last_byte_with_the_next_one() -> None:
    loader = TextLoader(TEXT, context=10, batch=4, seed=1)
    seen = [window for _ in range(loader.batches_per_epoch) for window in loader.next_batch()]
    assert all(len(window) == 11 for window in seen)
    assert sorted(seen) == sorted(TEXT[start : start + 11] for start in range(0, 20_000, 10))


def test_each_pass_has_an_order_of_its_own_which_the_seed_decides() -> None:
    def passes(seed: int) -> list[list[list[bytes]]]:
        loader = TextLoader(TEXT, 10, 4, seed)
        return [[loader.next_batch() for _ in range(loader.batches_per_epoch)] for _ in range(2)]

    assert passes(1) == passes(1)
    assert passes(1)[0] != passes(1)[1] and passes(1)[0] != passes(2)[0]


def test_epochs_count_passes_and_the_state_names_the_next_batch() -> None:
    loader = TextLoader(TEXT, 10, 4, 0)
    assert (loader.epochs, loader.state()) == (0.0, {"pq_idx": 0, "rg_idx": 0, "epoch": 1})
    for _ in range(SHARD_BATCHES + 3):
        loader.next_batch()
    assert loader.state() == {"pq_idx": 1, "rg_idx": 3, "epoch": 1}
    for _ in range(loader.batches_per_epoch - SHARD_BATCHES - 3):
        loader.next_batch()
    assert (loader.epochs, loader.state()) == (1.0, {"pq_idx": 0, "rg_idx": 0, "epoch": 2})
    loader.next_batch()
    assert loader.epochs == 1.0 + 1 / loader.batches_per_epoch


@given(st.integers(0, 120), st.integers(0, 5), st.integers(1, 50), st.integers(1, 7))
def test_a_restored_loader_deals_what_the_first_one_would_have(dealt: int, seed: int, context: int, batch: int) -> None:
    text = TEXT[:2000]
    first = TextLoader(text, context, batch, seed)
    for _ in range(dealt):
        first.next_batch()
    second = TextLoader(text, context, batch, seed)
    second.restore(first.state())
    assert second.state() == first.state()
    assert [second.next_batch() for _ in range(20)] == [first.next_batch() for _ in range(20)]
    assert second.epochs == pytest.approx(first.epochs)


def test_a_place_that_the_text_does_not_have_is_refused() -> None:
    loader = TextLoader(TEXT, 10, 4, 0)
    for place in ((999, 0, 1), (0, 0, 0), (-1, 0, 1)):
        with pytest.raises(ValueError, match="no batch at"):
            loader.restore({"pq_idx": place[0], "rg_idx": place[1], "epoch": place[2]})
    with pytest.raises(ValueError, match="too few"):
        TextLoader(TEXT[:40], 10, 4, 0)
    TextLoader(TEXT[:41], 10, 4, 0).next_batch()


@given(st.integers(2, 300), st.integers(1, 20), st.integers(1, 40))
def test_fixed_windows_are_different_ones_within_the_text(size: int, context: int, count: int) -> None:
    text = TEXT[:size]
    windows = fixed_windows(text, context, count)
    assert len(windows) == min(count, (size - 1) // context)
    assert all(len(window) == context + 1 and window in text for window in windows)
    assert windows == fixed_windows(text, context, count)
    if size <= 251:
        assert len(set(windows)) == len(windows)
