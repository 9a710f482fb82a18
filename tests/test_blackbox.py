"""The black box: bounded in steps and bytes, whole on disk or a sentence, and right about what was bad first."""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patient

import barograph
from barograph.core.record import Record, encode
from barograph.log.blocks import BlockWriter
from barograph.log.write import JsonLog
from barograph.testing import FakeRun
from barograph.training.blackbox import files, states
from barograph.training.blackbox.box import BlackBox
from barograph.training.blackbox.files import Box, read_blackbox
from barograph.training.blackbox.nonfinite import Bad, NonFinite, first_of
from barograph.training.blackbox.ring import Ring
from barograph.views.blackbox import lines

NAMES = ("gradients/a/norm", "gradients/a/nan", "gradients/b/norm", "gradients/b/nan")


class Notes(FakeRun):
    """A run whose log and block file are written."""

    def __init__(self, folder: Path, rank: int = 0) -> None:
        super().__init__(folder, rank=rank)
        self.stem = f"training-{rank}" if rank else "training"
        self._log = JsonLog(folder / f"{self.stem}.json")
        self._wide = BlockWriter(folder, self.stem, {})

    @property
    def log_file(self) -> Path:
        return self._log.path

    def take(self, record: Record) -> None:
        self._log.append(encode(record))

    def take_row(self, names: tuple[str, ...], packed: bytes, step: int, time: int) -> None:
        self._wide.row(names, packed, step, time, 1, self._log.position)


def boxed(folder: Path, rank: int = 0, **options: Any) -> tuple[Notes, BlackBox]:
    run = Notes(folder, rank)
    return run, BlackBox(run, **options)


def step(number: int, loss: float = 1.0, norm: float = 1.0) -> Record:
    fields = {"epoch": 0, "step_tokens": 64, "duration_ms": 3.5, "norm": norm, "loss": loss, "lr": 1e-3}
    return Record("step", 1_700_000_000_000_000 + number, number, fields)


def row(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


# -- the ring ------------------------------------------------------------------------------------------------


def size_of(ring: Ring) -> int:
    """What Python's objects in the ring take, each counted once."""
    seen: set[int] = set()

    def measure(thing: Any) -> int:
        if id(thing) in seen or isinstance(thing, type(threading.Lock())):
            return 0
        seen.add(id(thing))
        total = sys.getsizeof(thing)
        if isinstance(thing, dict):
            total += sum(measure(key) + measure(value) for key, value in thing.items())
        elif isinstance(thing, (list, tuple)):
            total += sum(map(measure, thing))
        elif hasattr(thing, "__slots__"):
            total += sum(measure(getattr(thing, name)) for name in thing.__slots__)
        return total

    return measure(ring._details) + measure(ring._names)


ITEMS = st.one_of(
    st.tuples(st.just("record"), st.integers(0, 400)),
    st.tuples(st.just("row"), st.integers(0, 40)),
    st.tuples(st.just("branch"), st.integers(-5, 5)),
)


@settings(deadline=None, max_examples=150)
@given(
    steps=st.integers(1, 8),
    limit=st.integers(0, 20_000),
    items=st.lists(st.tuples(st.integers(-3, 12), ITEMS), max_size=80),
)
def test_the_ring_never_holds_more_than_it_may(steps: int, limit: int, items: list[Any]) -> None:
    ring = Ring(steps, limit)
    shapes = [tuple(f"layer {width} {place}" for place in range(width)) for width in range(41)]
    given_items, at = 0, 0
    for moved, (kind, size) in items:
        at += moved
        if kind == "record":
            given_items += 1
            ring.add(at, b"x" * size)
        elif kind == "row":
            given_items += 1
            ring.add_row(shapes[size], bytes(8 * size), at, 10**15 + at)
        else:
            ring.begin_branch(at)
        assert ring.held_bytes <= limit and len(ring) <= steps
        assert size_of(ring) <= ring.held_bytes + 1200  # the two tables themselves
    held = ring.snapshot()
    kept = sum(len(detail.records) + len(detail.rows) for detail in held.details)
    assert kept + held.left_out <= given_items
    assert held.held_bytes == ring.held_bytes and (ring.held_bytes == 0) == (not held.details)


def test_the_last_steps_are_the_ones_that_are_held() -> None:
    ring = Ring(3, 1 << 20)
    for number in range(10):
        ring.add(number, f"loss {number}".encode())
        ring.add(number - 1, f"late {number - 1}".encode())  # figures that arrive a step later
        ring.add(number - 5, b"too late")
    ring.add(0, b"a finding", keep_late=True)
    held = ring.snapshot()
    assert [detail.step for detail in held.details] == [7, 8, 9]
    assert b"too late" not in set(held.records())
    assert list(held.records())[-2:] == [b"loss 9", b"a finding"]


def test_after_a_rewind_the_old_branch_is_kept_apart() -> None:
    ring = Ring(6, 1 << 20)
    for number in range(5, 9):
        ring.add(number, b"old")
    ring.begin_branch(6)
    ring.add(6, b"new")
    ring.add(7, b"new")
    held = ring.snapshot()
    assert [(detail.step, detail.records) for detail in held.details] == [
        (5, [b"old"]), (6, [b"old"]), (7, [b"old"]), (8, [b"old"]), (6, [b"new"]), (7, [b"new"]),
    ]  # fmt: skip


@pytest.mark.parametrize("steps, limit", [(0, 10), (5, -1)])
def test_bounds_that_are_none_are_refused(steps: int, limit: int) -> None:
    with pytest.raises(ValueError, match="at least one step"):
        Ring(steps, limit)


def test_a_box_is_read_back_from_the_log_and_the_block_files(tmp_path: Path) -> None:
    run, box = boxed(tmp_path)
    run.take(step(3))
    run.take_row(NAMES, row(1.0, 0.0, 1.0, 0.0), 3, 1)
    box.dump("look", wait=True)
    (written,) = read_blackbox(tmp_path)
    assert [table.names for table in written.tables] == [NAMES] and len(written.records) == 1


def test_a_box_of_a_long_run_holds_its_last_steps_alone(tmp_path: Path) -> None:
    run, box = boxed(tmp_path, steps=10)
    for number in range(30_000):
        run.take(step(number))
    run.current_step = 29_999
    box.dump("look", wait=True)
    (written,) = read_blackbox(tmp_path)
    assert [record.step for record in written.records] == list(range(29_990, 30_000))


# -- what was bad first --------------------------------------------------------------------------------------


def follow(*seen: Record | tuple[int, tuple[str, ...], bytes]) -> list[Bad]:
    bad = NonFinite()
    for one in seen:
        if isinstance(one, Record):
            bad.take(one, encode(one))
        else:
            bad.take_row(one[1], numpy.frombuffer(one[2]), one[0])
    return bad.found()


def test_the_layer_whose_gradient_was_first_in_backward_is_named() -> None:
    found = follow(
        step(3), (3, NAMES, row(1, 0, 1, 0)), (4, NAMES, row(1, 2, 1, 1)), step(4), step(5, math.nan, math.nan)
    )
    assert [(bad.step, bad.kind, bad.layer, bad.layers) for bad in found] == [
        (4, "gradient", "b", 2),
        (5, "loss", "", 1),
    ]
    assert found[0].value == "1 nan"


def test_causes_come_before_consequences_within_a_step() -> None:
    names = ("activations/h.0/rms", "activations/h.1/rms")
    model = Record("model", 0, 7, {"grad_norm": math.nan, "param_norm": 3.0, "first_non_finite_gradient": "head"})
    found = follow(step(7, math.nan, math.nan), (7, names, row(1.0, math.inf)), model)
    assert [(bad.kind, bad.layer) for bad in found] == [("activation", "h.1"), ("loss", ""), ("gradient", "head")]
    weight = Record("model", 0, 7, {"grad_norm": math.nan, "param_norm": math.nan, "first_non_finite_weight": "w"})
    assert follow(step(7, math.nan), weight)[0].layer == "w"


@pytest.mark.parametrize("what", [{"norm": math.inf}, {"loss": math.nan}])
def test_what_is_finite_again_is_over(what: dict[str, float]) -> None:
    assert follow(step(3, **what))
    assert not follow(step(3, **what), step(4))
    assert follow(step(3, **what), step(3)), "of the same step: it tells nothing new"


def test_values_that_are_no_number_by_nature_are_no_incident() -> None:
    names = ("updates/a/ratio", "activations/a/kurtosis", "weights_hist/a", "other/a/norm")
    metrics = Record("metrics", 0, 1, {"val/loss": math.nan, "accuracy": math.nan, "text": "NaN"})
    assert not follow((1, names, row(math.inf, math.nan, math.nan, math.nan)), metrics, step(1))
    assert follow(Record("metrics", 0, 1, {"train/loss": math.nan}))[0].kind == "loss"
    assert follow(Record("metrics", 0, 1, {"gradients/total_norm": math.inf, "loss": 1.0}))[0].kind == "gradient"


def test_a_new_branch_begins_without_guilt() -> None:
    assert not follow(step(3, math.nan), Record("segment", 0, 2, {"kind": "rewind"}))


LOSS = Bad(9, "loss", "", "train/loss", "NaN", 1)
WEIGHT = Bad(10, "weight before", "h.2.w", "", "NaN", 1)
SPOILED = Bad(10, "weight", "h.0.w", "", "NaN", 8)
GRADIENT = Bad(10, "gradient", "h.3.w", "", "NaN", 8)


def test_the_model_tells_the_layer_that_the_records_do_not_know() -> None:
    assert first_of([], []) is None
    assert first_of([], [GRADIENT, WEIGHT]) == WEIGHT
    assert first_of([LOSS], [WEIGHT, GRADIENT]) == WEIGHT._replace(step=9)
    assert first_of([LOSS], [SPOILED, GRADIENT]) == LOSS, "all weights are bad: a consequence"
    named = Bad(9, "gradient", "h.3.w", "model/grad_norm", "NaN", 8)
    assert first_of([LOSS, named], [WEIGHT]) == LOSS, "the watch saw that step's weights, and they were fine"
    norm = Bad(9, "gradient", "", "train/norm", "NaN", 1)
    assert first_of([norm], [WEIGHT, GRADIENT]) == GRADIENT._replace(step=9)
    assert first_of([named], [WEIGHT]) == named


# -- files ---------------------------------------------------------------------------------------------------


def incident(folder: Path, reason: str = "loss spike", **options: Any) -> tuple[Notes, BlackBox]:
    run, box = boxed(folder, **options)
    for number in range(6):
        run.current_step = number
        bad = number == 5
        position = {"pq_idx": 1, "rg_idx": number, "epoch": 0}
        data = {"batches": 2, "fingerprint": f"{number:016x}", "position": position, "epoch": 0}
        run.take(Record("data", 5, number, data))
        run.take(step(number, math.nan if bad else 2.0 - number / 10, 1.0))
        run.take_row(NAMES, row(1, 0, 1, float(bad)), number, 7)
        box.settle()
    box.dump(reason, wait=True)
    return run, box


def test_a_box_holds_what_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph.training.blackbox.box._DIGEST_EVERY", 0.0)
    run, _ = incident(tmp_path)
    (box,) = read_blackbox(tmp_path)
    assert not run.warnings and not box.damage
    assert box.path == tmp_path / "blackbox" / "5-loss-spike" and (box.step, box.reason) == (5, "loss spike")
    assert [record.step for record in box.records if record.kind == "step"] == list(range(6))
    assert math.isnan(box.records[-1].fields["loss"])
    (table,) = box.tables
    assert table.names == NAMES and table.steps.tolist() == list(range(6)) and table.values[5].tolist() == [1, 0, 1, 1]
    # within a step the loss comes before the gradients
    assert box.about["first_bad"] | {"value": ""} == {
        "step": 5, "what": "loss", "layer": "", "series": "train/loss", "value": "", "layers": 1,
    }  # fmt: skip
    assert [bad["layer"] for bad in box.about["bad"]] == ["", "b"]
    batch = box.about["batch"]
    assert batch["fingerprint"] == f"{5:016x}" and batch["position"]["rg_idx"] == 5 and batch["number"] == 12
    assert [one["step"] for one in box.about["random"]["before"]] == list(range(6))
    for name in ("box.json", "records.json", "wide.json", "rng.json"):
        json.loads((box.path / name).read_text(), parse_constant=pytest.fail)  # NaN and the like are not JSON


def test_random_states_bring_the_generators_back(tmp_path: Path) -> None:
    random.seed(5)
    numpy.random.seed(5)
    random.gauss(0, 1), numpy.random.normal()
    incident(tmp_path)
    before = states.digests()
    expected = [random.random() for _ in range(3)], numpy.random.rand(3).tolist()
    assert states.digests() != before
    now = read_blackbox(tmp_path)[0].random_states()["now"]
    version, words, gauss = now["python"]
    random.setstate((version, tuple(words), gauss))
    numpy.random.set_state(tuple(now["numpy"]))
    assert states.digests()["python"] == before["python"] and states.digests()["numpy"] == before["numpy"]
    assert ([random.random() for _ in range(3)], numpy.random.rand(3).tolist()) == expected


def test_a_finding_is_kept_with_its_fields(tmp_path: Path) -> None:
    run, box = boxed(tmp_path)
    run.current_step = 30
    finding = SimpleNamespace(rule="non_finite_loss", step=28, found=29, message="the loss is NaN", value=math.inf)
    path = box.dump("non_finite_loss", finding, wait=True)
    (written,) = read_blackbox(tmp_path)
    assert written.path == path and written.step == 29
    assert written.about["finding"]["value"] == math.inf
    assert any("the loss is NaN" in line for line in lines(written))


def test_one_incident_is_one_box(tmp_path: Path) -> None:
    run, box = boxed(tmp_path)
    for number in (4, 4, 5):
        run.current_step = number
        box.dump("stall", wait=True)
    assert [one.path.name for one in read_blackbox(tmp_path)] == ["4-stall", "5-stall"]


def test_the_first_box_and_the_newest_ones_are_kept(tmp_path: Path) -> None:
    run, box = boxed(tmp_path, keep=3)
    other_run, other = boxed(tmp_path, rank=2, keep=3)
    for number in range(6):
        run.current_step = other_run.current_step = number
        box.dump("spike", wait=True)
        time.sleep(0.01)
        if number < 2:
            other.dump("spike", wait=True)
    names = [one.path.name for one in read_blackbox(tmp_path)]
    assert sorted(names) == ["0-spike", "0-spike-rank2", "1-spike-rank2", "4-spike", "5-spike"]


def test_a_storm_of_findings_does_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, box = boxed(tmp_path, keep=100)
    gate = threading.Event()
    write = files.write
    monkeypatch.setattr(files, "write", lambda *given: gate.wait(5) and write(*given))
    paths = []
    for number in range(20):
        run.current_step = number
        paths.append(box.dump("spike"))
    assert sum(path is not None for path in paths) == 4
    gate.set()
    box.close()
    assert len(read_blackbox(tmp_path)) == 4 and box.dump("after the end") is None


def test_dumping_does_not_wait_unless_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, box = boxed(tmp_path)
    gate = threading.Event()
    monkeypatch.setattr(files, "write", lambda *given: gate.wait(10))
    began = time.monotonic()
    box.dump("spike")
    assert time.monotonic() - began < patient(1.0)
    box.ended_by(RuntimeError("a disk that hangs"))
    assert time.monotonic() - began < patient(3.0)  # two seconds, and a busy machine
    gate.set()


def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path: Path) -> None:
    (tmp_path / "blackbox").write_text("a file where the folder should be")
    run, box = boxed(tmp_path)
    box.dump("spike", wait=True)
    assert len(run.warnings) == 1 and "black box could not be written" in run.warnings[0]
    assert read_blackbox(tmp_path) == []


def test_an_interrupt_is_no_incident(tmp_path: Path) -> None:
    _, box = boxed(tmp_path)
    box.ended_by(KeyboardInterrupt())
    box.ended_by(SystemExit(1))
    box.ended_by(None)
    assert read_blackbox(tmp_path) == []
    problem = MemoryError("no more")
    box.ended_by(problem)
    box.ended_by(problem)
    assert [one.reason for one in read_blackbox(tmp_path)] == ["out-of-memory"]


def test_what_a_killed_process_left_is_no_box_and_is_taken_away(tmp_path: Path) -> None:
    from barograph.core import place

    parent = tmp_path / "blackbox"
    left = parent / f".box-{place.host()}-999999999-0"
    left.mkdir(parents=True)
    (left / "records.json").write_text("[")
    other = parent / ".box-another-host-999999999-0"
    other.mkdir()
    assert read_blackbox(tmp_path) == []
    incident(tmp_path)
    assert not left.exists() and other.exists()
    assert len(read_blackbox(tmp_path)) == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    incident(folder)
    return folder


@settings(deadline=None, max_examples=100)
@given(
    name=st.sampled_from(["box.json", "records.json", "rng.json", "wide.json", "wide.npz"]),
    harm=st.sampled_from(["cut", "gone", "noise", "other", "empty"]),
    place=st.floats(0, 1, exclude_max=True),
    noise=st.binary(min_size=1, max_size=30),
    other=st.sampled_from(["[]", "{}", "null", "3", '"text"', '{"names": [["a"]]}', '{"names": 3}', "[[]]", "[{}]"]),
)
def test_a_damaged_box_is_one_sentence(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, name: str, harm: str, place: float, noise: bytes, other: str
) -> None:
    folder = tmp_path_factory.mktemp("box")
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    path = folder / "blackbox" / "5-loss-spike" / name
    content = path.read_bytes()
    at = int(place * len(content))
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(content[:at])
    elif harm == "noise":
        path.write_bytes(content[:at] + noise + content[at + 1 :])
    elif harm == "other":
        path.write_text(other)
    else:
        path.write_bytes(b"")
    (found,) = read_blackbox(folder)
    shown = lines(found)
    assert shown and all(line.isprintable() for line in shown)
    if found.damage:
        assert len(shown) == 1 and found.path.name in shown[0]
    found.random_states()


@settings(deadline=None, max_examples=100)
@given(
    about=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["bad", "first_bad", "batch", "finding", "exception", "random", "now", "optimizers",
                                 "groups", "held", "missing", "step", "reason", "time", "position", "rank"]),
                inner, max_size=6,
            )
        ),
        max_leaves=20,
    )
)  # fmt: skip
def test_no_content_of_a_box_breaks_the_terminal(about: Any) -> None:
    box = Box(Path("5-x"), about if isinstance(about, dict) else {"bad": about}, [step(1), step(2, math.inf)], [])
    shown = lines(box)
    assert shown and all("\x1b" not in line and "\n" not in line for line in shown)


def test_the_screen_says_what_matters_first(tmp_path: Path) -> None:
    incident(tmp_path)
    shown = lines(read_blackbox(tmp_path)[0])
    text = "\n".join(shown)
    assert shown[0].startswith("BLACK BOX  step 5, loss spike, ")
    assert "  not finite loss, step 5: nan (train/loss)" in shown
    assert "gradient of b, step 5: 1 nan (gradients/b/nan)" in text
    assert "fingerprint 0000000000000005" in text and "pq_idx 1 rg_idx 5" in text
    assert "5         nan" in text and "█▆" in text and "×" in text
    assert str(tmp_path) in text


# -- in a real run -------------------------------------------------------------------------------------------


def test_a_real_run_has_its_last_steps_in_the_box(tmp_path: Path) -> None:
    run = barograph.init(project="box", dir=tmp_path, verbosity=-2, git=False)
    with pytest.raises(ZeroDivisionError), run:
        for number in range(100):
            run.log_step(number, 0.0, 64, 3.0, 1.0, 2.0, 1e-3)
        run.log({"train/loss": math.inf}, step=100)
        1 / 0  # noqa: B018
    (box,) = [box for box in read_blackbox(run.dir) if box.about["reason"] == "exception"]  # a finding has its own
    steps = [record.step for record in box.records if record.kind in ("step", "metrics")]
    assert steps == list(range(37, 101))
    assert box.about["first_bad"]["series"] == "train/loss" and box.about["exception"]["type"] == "ZeroDivisionError"
    assert run.dir.name == box.about["run"]
