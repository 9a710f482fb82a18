"""A fingerprint depends on the tokens and their order alone; a window finds what was seen, and survives a resume."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import barograph
from barograph.probes.data import fingerprints
from barograph.probes.data.fingerprints import (
    BatchWindow,
    SeenBatches,
    SeenRows,
    combine,
    device_sums,
    fingerprint,
    host_sums,
)

SOURCE = str(Path(barograph.__file__).parents[1])


def tokens(rows: int = 4, columns: int = 33, seed: int = 0, below: int = 50_257) -> Any:
    return numpy.random.default_rng(seed).integers(0, below, (rows, columns))


def slowly(batch: list[list[int]]) -> int:
    """The same by the definition, in Python's unbounded integers."""
    mask = (1 << 64) - 1

    def stir(value: int) -> int:
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & mask
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB & mask
        return value ^ (value >> 31)

    def weight(place: int) -> int:
        return stir((place + 1) * 0x9E3779B97F4A7C15 & mask) | 1

    total = len(batch) * 0x8CB92BA72F3D8DD7
    for place, row in enumerate(batch):
        summed = sum(value * weight(column) for column, value in enumerate(row))
        total += weight(place) * stir((summed + len(row) * 0xD1B54A32D192ED03) & mask)
    return stir(total & mask)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.randoms(use_true_random=False))
def test_it_is_what_its_definition_says(rows: int, columns: int, random: Any) -> None:
    batch = [[random.randrange(-100, 1 << 31) for _ in range(columns)] for _ in range(rows)]
    assert fingerprint(numpy.array(batch)) == slowly(batch)


@pytest.mark.parametrize("kind", ["int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_the_width_of_the_integers_does_not_matter(kind: str) -> None:
    batch = tokens(below=30_000)
    expected = fingerprint(batch)
    assert fingerprint(batch.astype(kind)) == expected
    tensor = torch.from_numpy(batch.astype(kind))
    assert fingerprint(tensor) == expected


def test_neither_does_the_layout_in_memory() -> None:
    batch = tokens(8, 64)
    expected = fingerprint(batch)
    assert fingerprint(numpy.asfortranarray(batch)) == expected
    wider = numpy.pad(batch, ((0, 0), (0, 5)))
    assert fingerprint(wider[:, :-5]) == expected
    assert fingerprint(torch.from_numpy(wider)[:, :-5]) == expected


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 300), st.integers(0, 2**32))
def test_the_devices_arithmetic_is_the_hosts(rows: int, columns: int, seed: int) -> None:
    batch = tokens(rows, columns, seed)
    assert (device_sums(torch.from_numpy(batch)).numpy() == host_sums(batch)).all()


def test_rows_longer_than_the_weights_are_cut_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "CHUNK", 10)
    batch = tokens(3, 35)
    found = fingerprint(batch)
    assert host_sums(batch).shape == (3, 4)
    assert (device_sums(torch.from_numpy(batch)).numpy() == host_sums(batch)).all()
    batch[:, [0, 10]] = batch[:, [10, 0]]  # the same weights: the chunks' order must tell them apart
    assert fingerprint(batch) != found


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 3), st.integers(0, 32), st.integers(1, 50_000))
def test_any_changed_token_changes_it(row: int, column: int, by: int) -> None:
    batch = tokens()
    before = fingerprint(batch)
    batch[row, column] += by
    assert fingerprint(batch) != before


def test_order_shape_and_padding_change_it() -> None:
    batch = tokens(4, 32)
    forms = [
        batch,
        batch[::-1],
        batch[:, ::-1],
        batch.reshape(8, 16),
        batch.reshape(1, 128),
        numpy.pad(batch, ((0, 0), (0, 1))),
        numpy.pad(batch, ((0, 1), (0, 0))),
        batch[:3],
        numpy.zeros((4, 32), int),
        numpy.zeros((4, 31), int),
    ]
    assert len({fingerprint(form) for form in forms}) == len(forms)


def test_similar_batches_do_not_collide() -> None:
    """Near-equal batches, as many as a window holds: one pair in 2^64 is chance, so one pair at all is a fault."""
    seen = set()
    batch = numpy.zeros((4, 8), numpy.int64)
    for first in range(64):
        for second in range(64):
            batch[1, 3], batch[2, 5] = first, second
            seen.add(fingerprint(batch))
    assert len(seen) == 64 * 64
    half = {mark >> 32 for mark in seen} | {mark & 0xFFFFFFFF for mark in seen}
    assert len(half) > 2 * 64 * 64 - 20  # and both halves of the number are spread


def test_floats_count_by_their_bits() -> None:
    values = numpy.random.default_rng(0).normal(size=(2, 50)).astype(numpy.float32)
    assert fingerprint(values) == fingerprint(torch.from_numpy(values))
    assert fingerprint(values) == combine(device_sums(torch.from_numpy(values)).numpy(), 50)[0]
    assert fingerprint(values) != fingerprint(values + numpy.float32(1e-3))
    half = torch.from_numpy(values).bfloat16()
    assert fingerprint(half) == combine(device_sums(half).numpy(), 50)[0]


def test_rows_have_fingerprints_of_their_own() -> None:
    batch = tokens(4, 20)
    _, rows = combine(host_sums(batch), 20)
    _, swapped = combine(host_sums(batch[[2, 0, 1, 3]]), 20)
    assert swapped.tolist() == rows[[2, 0, 1, 3]].tolist()


def test_it_is_the_same_in_another_process_and_has_not_changed() -> None:
    """States live in checkpoints for months: a change of the arithmetic must not pass unseen."""
    script = (
        "import numpy; from barograph.probes.data.fingerprints import fingerprint;"
        "print(fingerprint(numpy.arange(64).reshape(2, 32)))"
    )
    environment = {"PYTHONPATH": SOURCE, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    here = fingerprint(numpy.arange(64).reshape(2, 32))
    assert int(done.stdout) == here == 0xA7700FAD18BB2940


# -- the window -----------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=80), st.integers(1, 10))
def test_the_window_is_that_of_a_simple_list(marks: list[int], size: int) -> None:
    window = BatchWindow(size)
    order: list[int] = []  # different marks, the one seen last at the end
    last: dict[int, int] = {}
    for step, mark in enumerate(marks):
        before = window.see(mark, SeenBatches(step, None, 0))
        assert (before.step if before else None) == (last[mark] if mark in order else None)
        if mark in order:
            order.remove(mark)
        order = [*order, mark][-size:]
        last[mark] = step
    assert len(window) == len(order)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.none() | st.integers(0, 9)), max_size=30)
)
def test_a_window_comes_back_from_its_state(entries: list[tuple[int, int, int | None]]) -> None:
    window = BatchWindow(100)
    for mark, step, epoch in entries:
        window.see(mark, SeenBatches(step, epoch, step * 3))
    again = BatchWindow(100)
    again.restore(json.loads(json.dumps(window.state())))
    assert again._seen == window._seen and list(again._seen) == list(window._seen)


def test_a_state_is_small() -> None:
    window = BatchWindow(4096)
    generator = numpy.random.default_rng(0)
    for step in range(10_000):
        window.see(int(generator.integers(0, 1 << 63)), SeenBatches(step, step // 5000, step * 65_536))
    assert len(json.dumps(window.state())) < 48_000


@pytest.mark.parametrize("name", ["fingerprints", "steps", "epochs", "tokens_before"])
@pytest.mark.parametrize("damage", [None, 7, "", "!!!", "AAAA", "eJw="])
def test_a_damaged_state_is_refused_and_changes_nothing(name: str, damage: Any) -> None:
    window = BatchWindow(10)
    window.see(1, SeenBatches(1, None, 0))
    window.see(2, SeenBatches(2, None, 5))
    kept = dict(window._seen)
    with pytest.raises(ValueError, match="damaged"):
        window.restore(window.state() | {name: damage})
    assert window._seen == kept


def test_going_back_forgets_what_came_later() -> None:
    window = BatchWindow(10)
    for step in range(6):
        window.see(step, SeenBatches(step, None, step * 100))
    assert window.forget_from(4) == 400
    assert window.see(3, SeenBatches(9, None, 0)) is not None and window.see(5, SeenBatches(9, None, 0)) is None
    assert BatchWindow(3).forget_from(0) is None


if torch.cuda.is_available():

    def test_a_real_device_gives_the_same_fingerprint() -> None:
        for batch in (tokens(32, 2048), tokens(7, 70_001)):
            assert fingerprint(torch.from_numpy(batch).cuda()) == fingerprint(batch)
            assert fingerprint(torch.from_numpy(batch).int().cuda()) == fingerprint(batch)


# -- rows -----------------------------------------------------------------------------------------


def shuffled(epochs: int, batches: int, rows: int = 8) -> list[list[int]]:
    dice = numpy.random.default_rng(1)
    order = [mark for _ in range(epochs) for mark in dice.permutation(batches * rows - 3).tolist()]
    return [order[at : at + rows] for at in range(0, len(order), rows)]  # an epoch may begin within a batch


def test_an_epoch_that_nobody_tells_begins_where_a_loader_is_through_with_its_rows() -> None:
    seen = SeenRows()
    counts = [seen.see(batch, None) for batch in shuffled(epochs=4, batches=50)]
    assert sum(counts) <= 3 * 8  # rows of the batch that has the end of an epoch


def test_rows_of_an_epoch_that_is_given_are_compared_with_those_of_that_epoch() -> None:
    seen, batches = SeenRows(), shuffled(epochs=1, batches=4)
    assert [[seen.see(batch, epoch) for batch in batches] for epoch in (0, 1, 1)][:2] == [[0] * 4] * 2
    assert seen.see(batches[0], 1) == len(batches[0])


def test_rows_of_a_small_set_that_are_mixed_in_come_again_and_begin_no_epoch() -> None:
    seen, dice = SeenRows(), numpy.random.default_rng(0)
    for batch in shuffled(epochs=1, batches=100):
        seen.see(batch, None)
    counts = [seen.see(dice.integers(10_000, 10_100, 8).tolist(), None) for _ in range(100)]
    assert sum(counts[50:]) > 0.9 * 50 * 8


def test_a_batch_that_is_used_twice_begins_no_epoch() -> None:
    seen, batches = SeenRows(), shuffled(epochs=1, batches=60)
    for batch in batches[:50]:
        seen.see(batch, None)
    assert seen.see(batches[49], None) == len(batches[49])


def test_a_batch_of_one_row_is_copies_of_it() -> None:
    seen = SeenRows()
    for batch in shuffled(epochs=1, batches=60)[:50]:
        seen.see(batch, None)
    assert seen.see([7_000] * 8, None) == 7


def test_rows_that_are_forgotten_or_too_many_are_new() -> None:
    seen = SeenRows(size=16)
    for batch in ([1, 2], list(range(3, 19)), [1, 2]):
        assert seen.see(batch, None) == 0
    seen.clear()
    assert seen.see([1, 2], None) == 0
