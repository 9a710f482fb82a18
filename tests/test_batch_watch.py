"""What is recorded of batches is what they hold; repeats are found, also after a resume, and nothing else is one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import barograph
from barograph.probes.data import batch_watch as data
from barograph.probes.data import batches, fingerprints
from barograph.probes.data.batch_watch import DataWatch, LoaderState
from barograph.testing import FakeRun

SOURCE = str(Path(barograph.__file__).parents[1])


def watched(**options: Any) -> tuple[FakeRun, DataWatch]:
    run = FakeRun()
    return run, DataWatch(run, **options)


def batch(seed: int, rows: int = 4, columns: int = 16) -> Any:
    return torch.from_numpy(numpy.random.default_rng(seed).integers(5, 50_000, (rows, columns)))


def only(run: FakeRun) -> dict[str, Any]:
    ((kind, _, fields),) = run.records
    assert kind == "data"
    return fields


# -- what a batch holds ------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.sampled_from(["right", "left"]), st.booleans())
def test_lengths_and_padding_are_those_of_the_rows(lengths: list[int], side: str, by_mask: bool) -> None:
    ids = numpy.full((len(lengths), 12), 0)
    mask = numpy.zeros((len(lengths), 12), int)
    for row, length in enumerate(lengths):
        place = slice(0, length) if side == "right" else slice(12 - length, 12)
        ids[row, place], mask[row, place] = 7, 1
    run, watch = watched(pad_id=None if by_mask else 0)
    watch.observe({"input_ids": ids, "attention_mask": mask} if by_mask else ids)
    watch.flush()
    found = only(run)
    assert found["tokens"] == found["tokens_seen"] == sum(lengths)
    assert found["padding_share"] == pytest.approx(1 - sum(lengths) / (12 * len(lengths)), abs=1e-6)
    assert (found["length_min"], found["length_max"]) == (min(lengths), max(lengths))
    assert found["length_mean"] == pytest.approx(numpy.mean(lengths), abs=1e-3)
    assert found["length_std"] == pytest.approx(numpy.std(lengths), abs=1e-3)
    assert found["length_p5"] == pytest.approx(numpy.percentile(lengths, 5), abs=1e-3)
    assert found["length_p95"] == pytest.approx(numpy.percentile(lengths, 95), abs=1e-3)


def test_the_pad_id_within_a_row_is_a_documents_end_and_no_padding() -> None:
    run, watch = watched(pad_id=0)
    watch.observe(torch.tensor([[1, 2, 0, 3, 4, 0, 0], [1, 0, 0, 0, 0, 0, 9]]))
    watch.flush()
    assert only(run)["tokens"] == 5 + 7


def test_without_mask_or_pad_id_padding_is_not_guessed() -> None:
    run, watch = watched()
    watch.observe(torch.zeros(3, 8, dtype=torch.int64))
    watch.flush()
    found = only(run)
    assert "padding_share" not in found and found["tokens"] == 24 and found["length_max"] == 8


def test_labels_that_the_loss_leaves_out_are_counted() -> None:
    labels = torch.arange(32).reshape(2, 16)
    labels[:, :12] = -100
    run, watch = watched()
    watch.observe({"input_ids": batch(0, 2), "labels": labels})
    watch.flush()
    assert only(run)["ignored_share"] == 0.75
    run, watch = watched(ignore_id=-1)
    watch.observe((batch(0, 2), torch.full((2, 16), -1)))
    watch.flush()
    assert only(run)["ignored_share"] == 1.0


class Encoding(dict[str, Any]):
    """As Hugging Face's BatchEncoding: a mapping of its own class."""


@pytest.mark.parametrize(
    ("given_batch", "rows", "tokens"),
    [
        (numpy.ones((2, 3), numpy.uint16), 2, 6),
        (torch.ones(5, dtype=torch.int32), 1, 5),
        (torch.ones(2, 3, 4, dtype=torch.int64), 6, 24),
        (Encoding(input_ids=torch.ones(2, 3, dtype=torch.int64), name="text"), 2, 6),
        ({"model": {"deep": [torch.ones(2, 3, dtype=torch.int64)]}}, 2, 6),
        ([[1, 2, 3], [4]], 2, 4),
        ({"input_ids": [[1, 2, 3], [4]]}, 2, 4),
        ([torch.tensor([1, 2, 3]), torch.tensor([4])], 2, 4),
        ([numpy.array([1, 2, 3]), numpy.array([4]), numpy.array([5, 6])], 3, 6),
        ([torch.ones(2, 3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)], 2, 6),
    ],
)
def test_batches_of_all_shapes_are_read(given_batch: Any, rows: int, tokens: int) -> None:
    run, watch = watched()
    watch.observe(given_batch)
    watch.flush()
    assert not run.warnings
    assert (only(run)["sequences"], only(run)["tokens"]) == (rows, tokens)


def test_a_batch_of_images_has_a_fingerprint_and_no_tokens() -> None:
    run, watch = watched()
    watch.observe((torch.rand(4, 3, 8, 8), torch.arange(4)))
    watch.flush()
    found = only(run)
    assert found["sequences"] == 4 and len(found["fingerprint"]) == 16
    assert "tokens" not in found and "length_mean" not in found and found["tokens_seen"] == 0


@pytest.mark.parametrize("odd", [None, 5, "text", ["some", "text"], {}, [], object(), {"input_ids": "text"}])
def test_what_is_no_batch_is_said_once_and_never_raised(odd: Any) -> None:
    run, watch = watched()
    watch.observe(odd)
    assert len(run.warnings) == 1 and not run.records


@pytest.mark.parametrize("empty", [torch.zeros(0, 8, dtype=torch.int64), torch.zeros(3, 0, dtype=torch.int64)])
def test_an_empty_batch_is_no_fault(empty: torch.Tensor) -> None:
    run, watch = watched(pad_id=0)
    watch.observe(empty)
    watch.flush()
    assert not run.warnings and only(run)["tokens"] == 0


def test_lengths_of_packed_documents_and_a_count_of_tokens_may_be_given() -> None:
    run, watch = watched()
    watch.observe(batch(0, 1, 16), lengths=torch.tensor([3, 5, 4]))
    watch.flush()
    found = only(run)
    assert (found["sequences"], found["tokens"], found["length_max"]) == (3, 12, 5)
    assert found["padding_share"] == 0.25
    run, watch = watched(ranks=8)
    watch.observe(batch(0, 1, 16), tokens=10)
    watch.flush()
    assert (only(run)["tokens"], only(run)["tokens_seen"]) == (10, 80)


def test_a_batch_is_not_held_nor_changed_nor_read_later() -> None:
    """Loaders reuse their buffers: what was observed is what it held at that moment."""
    run, watch = watched()
    buffer = batch(1)
    kept = buffer.clone()
    watch.observe(buffer, step=0)
    assert torch.equal(buffer, kept)
    buffer.copy_(batch(2))
    watch.observe(buffer, step=1)
    buffer.copy_(batch(1))
    watch.observe(buffer, step=2)
    watch.flush()
    assert [fields.get("repeat_of") for _, _, fields in run.records] == [None, None, 0]


# -- steps -----------------------------------------------------------------------------------------


def test_micro_batches_of_a_step_are_one_record() -> None:
    run, watch = watched()
    for step in range(3):
        run.current_step = step
        for micro in range(4):
            watch.observe(batch(step * 4 + micro), position=LoaderState(1, step, 0))
    watch.flush()
    assert [(step, fields["batches"], fields["tokens_seen"]) for _, step, fields in run.records] == [
        (0, 4, 256),
        (1, 4, 512),
        (2, 4, 768),
    ]
    assert run.records[2][2]["position"] == {"pq_idx": 1, "rg_idx": 2, "epoch": 0}


def test_records_every_so_many_steps_hold_all_that_lies_between() -> None:
    run, watch = watched(every=5)
    for step in range(12):
        watch.observe(batch(step), step=step)
    watch.flush()
    assert [(step, fields["batches"]) for _, step, fields in run.records] == [(4, 5), (9, 5), (11, 2)]
    assert run.records[-1][2]["tokens_seen"] == 12 * 64


def test_threads_may_poll_while_the_loop_observes() -> None:
    run, watch = watched()
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            watch.poll()

    thread = threading.Thread(target=poll)
    thread.start()
    for step in range(300):
        watch.observe(batch(step, 2, 4), step=step)
    over.set()
    thread.join()
    watch.flush()
    assert sorted(step for _, step, _ in run.records) == list(range(300))
    assert watch.tokens_seen == 300 * 8


# -- repeats ----------------------------------------------------------------------------------------


def test_different_batches_are_never_called_repeats() -> None:
    run, watch = watched()
    for step in range(2000):
        watch.observe(batch(step, 2, 32), step=step)
    watch.flush()
    assert watch.repeats == 0 and not run.warnings


def test_a_repeat_is_found_with_both_steps_and_said_once() -> None:
    run, watch = watched()
    for step in range(20):
        watch.observe(batch(step % 8), step=step)
    watch.flush()
    assert watch.repeats == 12
    assert run.records[8][2]["repeat_of"] == 0 and run.records[19][2]["repeat_of"] == 11
    assert run.records[8][2]["repeated_rows_share"] == 1.0
    assert "step 8 is that of step 0 again" in run.warnings[0]
    assert (watch.last_fingerprint, watch.last_step) == (int(run.records[19][2]["fingerprint"], 16), 19)


def test_a_second_epoch_is_no_fault_but_a_repeat_within_it_is() -> None:
    run, watch = watched()
    order = [0, 1, 2, 3, 0, 1, 1, 2]
    for step, which in enumerate(order):
        watch.observe(batch(which), step=step, position={"epoch": step // 4})
    watch.flush()
    assert watch.repeats == 1
    assert [fields.get("repeats_of_earlier_epochs", 0) for _, _, fields in run.records] == [0, 0, 0, 0, 1, 1, 0, 1]
    assert len(run.warnings) == 1 and "step 6 is that of step 5" in run.warnings[0]


def test_after_how_many_steps_batches_of_an_earlier_epoch_come_again_is_one_number_or_not_said() -> None:
    run, watch = watched()
    order = [0, 1, 2, 3, 0, 1, 2, 3, 2, 1, 4, 0]
    for place, which in enumerate(order):
        watch.observe(batch(which), step=place // 2, position={"epoch": place // 4})
    watch.flush()
    assert [fields.get("repeats_after") for _, _, fields in run.records] == [None, None, 2, 2, None, None]


def test_rows_that_come_again_in_another_company_show_as_a_share() -> None:
    run, watch = watched()
    first, second = batch(1), batch(2)
    watch.observe(first, step=0)
    watch.observe(torch.cat([second[:3], first[2:3]]), step=1)
    watch.flush()
    assert run.records[1][2]["repeats"] == 0 and run.records[1][2]["repeated_rows_share"] == 0.25


def test_two_equal_micro_batches_are_named_so() -> None:
    run, watch = watched()
    watch.observe(batch(1), step=3)
    watch.observe(batch(1), step=3)
    assert "two batches of step 3" in run.warnings[0]


def test_beyond_the_window_nothing_is_remembered() -> None:
    _, watch = watched(window=10)
    for step in range(40):
        watch.observe(batch(step % 11), step=step)
    assert watch.repeats == 0


def test_going_back_counts_tokens_and_repeats_anew() -> None:
    run, watch = watched()
    for step in range(10):
        watch.observe(batch(step), step=step)
    for step in range(6, 10):  # the loader went back as well: these are not repeats
        watch.observe(batch(step), step=step)
    watch.flush()
    assert watch.repeats == 0 and watch.tokens_seen == 10 * 64
    watch.observe(batch(2), step=5)  # and this one is, of what stayed
    watch.flush()
    assert run.records[-1][2]["repeat_of"] == 2


# -- a resume ---------------------------------------------------------------------------------------


def test_a_replay_after_a_resume_is_found_through_the_checkpoint(tmp_path: Path) -> None:
    script = """
import sys
import numpy, barograph
from barograph.probes.data.batch_watch import DataWatch
folder, first, last, offset = sys.argv[1], *map(int, sys.argv[2:])
run = barograph.init(project="p", id="r", dir=folder, verbosity=-2, git=False, resume="allow")
watch = DataWatch(run)
if first:
    assert watch.restore(run.restore()["data"])
for step in range(first, last):
    ids = numpy.random.default_rng(step - offset).integers(0, 50_000, (4, 64))
    watch.observe(ids, step=step)
open(folder + "/model.pt", "w").write("x")
run.save_checkpoint(folder + "/model.pt", last - 1, data=watch.state())
run.finish()
print(watch.repeats, watch.tokens_seen)
"""
    environment = os.environ | {"PYTHONPATH": SOURCE}

    def part(*numbers: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, str(tmp_path), *map(str, numbers)]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)

    assert part(0, 30, 0).stdout.split() == ["0", "7680"]
    healthy = part(30, 40, 0)
    assert healthy.stdout.split() == ["0", "10240"] and "barograph" not in healthy.stderr
    replayed = part(40, 45, 30)  # the loader began at an earlier place
    assert replayed.stdout.split() == ["5", "11520"]
    assert "step 40 is that of step 10, from before the resume at step 39" in replayed.stderr
    records = [item for item in barograph.read_log(tmp_path / "p" / "r" / "training.json") if item["log"] == "data"]
    assert [item["step"] for item in records] == list(range(45))
    assert records[44]["repeat_of"] == 14 and records[44]["tokens_seen"] == 45 * 256
    (run,) = barograph.runs(str(tmp_path))
    assert run.series("data/tokens_seen").value[-1] == 45 * 256


@pytest.mark.parametrize(
    "state",
    [None, "text", {}, {"version": 2}, {"version": 1, "tokens_seen": "x", "step": 1, "window": {}}, {"version": 1}],
)
def test_a_damaged_state_is_said_and_the_watch_goes_on(state: Any) -> None:
    run, watch = watched()
    assert watch.restore(state) is False
    assert len(run.warnings) == 1
    watch.observe(batch(0))
    watch.flush()
    assert only(run)["tokens_seen"] == 64


# -- a device ----------------------------------------------------------------------------------------


class Later(batches.PendingBatch):
    """A batch whose copy from the device is on its way until the test says otherwise."""

    arrived = False

    def ready(self) -> bool:
        return Later.arrived and super().ready()


@pytest.mark.parametrize(("with_mask", "compare"), [(False, True), (True, True), (True, False)])
def test_figures_from_a_device_come_later_in_order_and_are_the_same(
    with_mask: bool, compare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given_batch(step: int) -> dict[str, Any]:
        ids = batch(step % 4)
        ids[:, 12 - step :] = 0
        found = {"input_ids": ids, "labels": torch.where(ids == 0, -100, ids)}
        return found | ({"attention_mask": (ids != 0).long()} if with_mask else {})

    host, expected = watched(pad_id=0, fingerprint=compare)
    device, watch = watched(pad_id=0, fingerprint=compare)
    for step in range(6):
        expected.observe(given_batch(step), step=step)
    expected.flush()
    Later.arrived = False
    monkeypatch.setattr(
        batches,
        "measure",
        lambda *how: Later(*how),
    )
    for step in range(6):
        watch.observe(given_batch(step), step=step)
    assert not device.records, "nothing waits for a device"
    Later.arrived = True
    watch.flush()
    assert device.records == host.records and len(host.records) == 6
    assert ("fingerprint" in host.records[0][2]) == compare
    assert not device.warnings


def test_the_end_of_a_run_waits_a_moment_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "measure", lambda *how: Later(*how))
    Later.arrived = False
    run, watch = watched()
    watch.observe(batch(0))
    threading.Timer(0.05, lambda: setattr(Later, "arrived", True)).start()
    (at_end,) = run.at_finish
    at_end()
    assert only(run)["tokens"] == 64


def test_a_device_that_never_answers_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "measure", lambda *how: Later(*how))
    monkeypatch.setattr(data, "_QUEUED", 10)
    Later.arrived = False
    run, watch = watched()
    for step in range(50):
        watch.observe(batch(step, 1, 2), step=step)
    assert len(watch._waiting) == 10 and run.warnings


if torch.cuda.is_available():

    def test_a_real_device_gives_the_hosts_figures_without_a_wait() -> None:
        host, expected = watched(pad_id=0)
        device, watch = watched(pad_id=0)
        fingerprints.device_sums(batch(0).cuda())  # the weights' way to the device, once a process
        for step in range(20):
            ids = batch(step % 15, 32, 2048)
            ids[:, 2000 - step :] = 0
            expected.observe((ids, ids), step=step)
            ids = ids.cuda()
            torch.cuda.set_sync_debug_mode("error")
            try:
                watch.observe((ids, ids), step=step)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        expected.flush()
        watch.flush()
        assert device.records == host.records and not device.warnings


def test_a_batch_costs_the_same_when_as_many_sequences_as_are_remembered_have_come() -> None:
    _, watch = watched()
    watch._rows.size = 16_384

    def took(first: int) -> float:
        """Seconds of the usual one of 60 batches."""
        each = []
        for seed in range(first, first + 60):
            rows = batch(seed, 128, 8)
            began = time.perf_counter()
            watch.observe(rows, step=seed)
            each.append(time.perf_counter() - began)
        return float(numpy.median(each))

    early = min(took(0), took(60))
    for seed in range(200, 400):
        watch.observe(batch(seed, 128, 8), step=seed)
    assert len(watch._rows._last) == 16_384
    assert min(took(400), took(460)) < 3 * early


@pytest.mark.parametrize(
    ("labels", "fields"),
    [
        (torch.tensor([1, 1, 1, 0]), (1, 4, 0.75)),
        (torch.tensor([[2], [2], [2], [2]]), (2, 4, 1.0)),
        (torch.tensor([True, False, False, False]), (0, 4, 0.75)),
        (torch.tensor([0, 1, 0, 1]), (0, 4, 0.5)),
        (torch.tensor([0.0, 1.0, 0.0, 1.0]), None),
        (torch.zeros(4, 16, dtype=torch.int64), None),  # one for each token
        (torch.tensor([1, 1]), None),
    ],
)
def test_the_most_frequent_label_of_rows_is_recorded(labels: Any, fields: tuple[int, int, float] | None) -> None:
    run, watch = watched()
    watch.observe({"input_ids": batch(1), "labels": labels}, step=1)
    watch.flush()
    said = only(run)
    assert tuple(said.get(name) for name in ("label", "label_rows", "label_share")) == (fields or (None, None, None))


def test_the_labels_of_micro_batches_are_counted_together() -> None:
    run, watch = watched()
    for seed, label in ((1, 3), (2, 5), (3, 3)):
        watch.observe({"input_ids": batch(seed), "labels": torch.full((4,), label)}, step=1)
    watch.flush()
    said = only(run)
    assert (said["label"], said["label_rows"], said["label_share"]) == (3, 12, 0.666667)
