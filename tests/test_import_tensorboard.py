"""TensorBoard's event files come in whole: compared with TensorBoard's own reader, torn, damaged, restarted."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_format import field, framed, scalar_event, start_event, version_event

from barograph.importing.source import (
    Fact,
    FoundRun,
    ImportedDistribution,
    ImportedPoints,
    ImportMark,
    Item,
    Restart,
    Unread,
)
from barograph.importing.tensorboard import SOURCE, count_of

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
Rows = dict[str, list[tuple[int, int, float]]]


def find(path: Path) -> list[FoundRun]:
    return list(SOURCE.find(path, path.read_bytes()[:65536] if path.is_file() else b""))


def items(path: Path, since: ImportMark | None = None) -> list[Item]:
    (found,) = find(path)
    return list(SOURCE.read(found, since))


def rows(read: list[Item]) -> Rows:
    """The points by name: step, time, value."""
    found: Rows = {}
    for item in read:
        if isinstance(item, ImportedPoints):
            for column, name in enumerate(item.names):
                values = item.values[:, column].tolist()
                found.setdefault(name, []).extend(zip(item.steps.tolist(), item.times.tolist(), values, strict=True))
    return found


def steps(read: list[Item]) -> list[int | str]:
    """Steps of the points, and the restarts among them."""
    found: list[int | str] = []
    for item in read:
        if isinstance(item, ImportedPoints):
            found += item.steps.tolist()
        elif isinstance(item, Restart):
            found.append(f"restart {item.step}")
    return found


def write(path: Path, *events: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(framed, (version_event(), *events))))
    return path


def event_file(folder: Path, made: int, *events: bytes) -> Path:
    return write(folder / f"events.out.tfevents.{made}.host.1.0", *events)


@pytest.fixture(scope="module")
def torch_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What torch's writer writes, of every kind."""
    folder = tmp_path_factory.mktemp("runs") / "my_run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(folder))
        for step in range(50):
            writer.add_scalar("train/loss", 3 / (step + 1), step)
            writer.add_scalar("new", float(step), step, new_style=True)
            writer.add_scalar("double", 0.1 * step, step, new_style=True, double_precision=True)
            writer.add_scalars("val/loss", {"a": step, "b": 2 * step}, step)
        writer.add_scalar("not a number", float("nan"), 1)
        writer.add_histogram("weights", torch.arange(100.0), 3)
        writer.add_text("samples/story", "Once upon a time", 7)
        writer.add_text("note", "hello", 8)
        writer.add_text("args", json.dumps({"lr": 0.1, "deep": {"er": 2}}), 0)
        writer.add_hparams({"bs": 8, "opt": "adam", "on": True}, {"final": 1.5})
        writer.close()
    yield folder


def test_every_scalar_is_the_one_that_tensorboard_reads(torch_run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    mine = rows(items(torch_run))
    theirs = EventAccumulator(str(torch_run), size_guidance={"scalars": 0, "tensors": 0})
    theirs.Reload()
    wanted = {tag: [(one.step, one.value) for one in theirs.Scalars(tag)] for tag in theirs.Tags()["scalars"]}
    for tag in ("new", "double"):
        wanted[tag] = [(one.step, one.tensor_proto) for one in theirs.Tensors(tag)]
        from tensorboard.util import tensor_util

        wanted[tag] = [(step, float(tensor_util.make_ndarray(one))) for step, one in wanted[tag]]
    for tag, its_rows in wanted.items():
        assert str([(step, value) for step, _, value in mine[tag]]) == str(its_rows), tag
    times = {one.step: round(one.wall_time * 1e6) for one in theirs.Scalars("train/loss")}
    assert {step: time for step, time, _ in mine["train/loss"]} == times


def test_add_scalars_and_hyperparameters_belong_to_the_run(torch_run: Path) -> None:
    (found,) = find(torch_run)
    assert found.name == "my_run" and found.key == ""
    assert found.config == {"bs": 8, "opt": "adam", "on": True, "lr": 0.1, "deep/er": 2}
    assert found.created > 1.6e9
    mine = rows(items(torch_run))
    assert [value for _, _, value in mine["val/loss/b"]] == [2 * step for step in range(50)]
    assert mine["final"][0][2] == 1.5


def test_histograms_and_texts_come_too(torch_run: Path) -> None:
    read = items(torch_run)
    (histogram,) = (item for item in read if isinstance(item, ImportedDistribution))
    assert histogram.name == "weights" and histogram.step == 3
    assert histogram.counts.sum() == 100 and len(histogram.edges) == len(histogram.counts) + 1
    below = np.searchsorted(np.arange(100.0), histogram.edges)
    assert abs(np.diff(below) - histogram.counts).max() <= 1  # values on an edge go to either side
    facts = [(item.kind, item.step, item.fields) for item in read if isinstance(item, Fact)]
    assert ("sample", 7, {"prompt": "samples/story", "text": "Once upon a time"}) in facts
    assert ("info", 8, {"type": "note", "message": "hello"}) in facts
    assert not [item for item in read if isinstance(item, Unread)]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool", "bfloat16"])
@pytest.mark.parametrize("in_content", [True, False])
def test_a_scalar_may_be_a_tensor_of_any_kind(tmp_path: Path, kind: str, in_content: bool) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.tensorflow_stub import dtypes

    number = {"bfloat16": 14}.get(kind) or dtypes.as_dtype(np.dtype(kind)).as_datatype_enum
    events = []
    for step in range(3):
        tensor = TensorProto(dtype=number)
        if in_content or kind == "bfloat16":
            # the upper half of a float's bytes
            raw = np.float32(step).tobytes()[2:] if kind == "bfloat16" else np.array(step, kind).astype(kind).tobytes()
            tensor.tensor_content = raw
        elif kind == "float16":
            tensor.half_val.append(int(np.float16(step).view(np.uint16)))
        else:
            place = {"float32": "float_val", "float64": "double_val", "int64": "int64_val", "bool": "bool_val"}
            getattr(tensor, place.get(kind, "int_val")).append(bool(step) if kind == "bool" else step)
        value = Summary.Value(tag="x", tensor=tensor)
        value.metadata.plugin_data.plugin_name = "scalars"
        events.append(Event(wall_time=1.7e9, step=step, summary=Summary(value=[value])).SerializeToString())
    event_file(tmp_path, 1, *events)
    expected = [0.0, 1.0, 1.0 if kind == "bool" else 2.0]
    assert [value for _, _, value in rows(items(tmp_path))["x"]] == expected


def test_several_values_of_one_event_are_one_row(tmp_path: Path) -> None:
    def event(step: int) -> bytes:
        values = [field(1, field(1, tag) + b"\x15" + np.float32(step).tobytes()) for tag in ("a", "b")]
        return field(1, 1.7e9 + step) + field(2, step) + field(5, b"".join(values))

    event_file(tmp_path, 1, *map(event, range(1, 4)))
    (points,) = (item for item in items(tmp_path) if isinstance(item, ImportedPoints))
    assert points.names == ("a", "b") and points.values.tolist() == [[1, 1], [2, 2], [3, 3]]


def test_steps_and_times_are_kept_to_the_last_digit(tmp_path: Path) -> None:
    cases = [(0, 1.7e9), (1, 1700000000.123456), (2**40, 1.7e9), (-5, 1.7e9), (300, float("nan")), (7, -1.0)]
    event_file(tmp_path, 1, *(scalar_event("a", step, 0.5, time) for step, time in cases))
    wanted = [(step, round(time * 1e6) if time > 0 else 0, 0.5) for step, time in cases]
    assert rows(items(tmp_path))["a"] == wanted


def test_purge_step_is_a_restart(tmp_path: Path) -> None:
    event_file(tmp_path, 1, start_event(0), *(scalar_event("a", step, 1.0) for step in range(10)))
    event_file(tmp_path, 2, start_event(6, 1.7e9), *(scalar_event("a", step, 2.0) for step in range(6, 9)))
    assert steps(items(tmp_path)) == [*range(10), "restart 6", 6, 7, 8]


def test_a_later_file_that_goes_back_is_a_restart_and_one_that_goes_on_is_none(tmp_path: Path) -> None:
    for made, its_steps in ((1, range(10)), (2, range(10, 15)), (3, range(12, 16))):
        event_file(tmp_path, made, *(scalar_event("a", step, 1.0) for step in its_steps))
    assert steps(items(tmp_path)) == [*range(15), "restart 12", *range(12, 16)]


def test_a_restart_of_two_parts_of_a_run_is_one(tmp_path: Path) -> None:
    for made, its_steps in ((1, range(10)), (2, range(5, 8))):
        for split in ("train", "validation"):
            event_file(tmp_path / split, made, *(scalar_event("loss", step, 1.0) for step in its_steps))
    read = items(tmp_path)
    assert [item.step for item in read if isinstance(item, Restart)] == [5]
    assert set(rows(read)) == {"train/loss", "validation/loss"}


def test_samples_and_steps_of_one_file_are_told_apart(tmp_path: Path) -> None:
    tags = ("lm-loss", "lm-loss vs samples")
    for made in (1, 2):
        events = [
            scalar_event(tag, (made * 10 + n) * (256 if "vs" in tag else 1), 1.0) for n in range(5) for tag in tags
        ]
        event_file(tmp_path, made, *events)
    read = items(tmp_path)
    assert {item.names: item.x for item in read if isinstance(item, ImportedPoints)} == {
        ("lm-loss",): "step",
        ("lm-loss vs samples",): "samples",
    }
    assert not [item for item in read if isinstance(item, Restart)]
    assert count_of("Train/Samples/train_loss") == "samples" and count_of("lm loss vs tokens") == "tokens"


def test_folders_are_runs_and_keras_splits_are_one(tmp_path: Path) -> None:
    for name in ("one", "two", "deep/er", "keras/train", "keras/validation"):
        event_file(tmp_path / name, 1, scalar_event("loss", 1, 1.0))
    names = {path.relative_to(tmp_path).as_posix(): len(find(path)) for path in tmp_path.rglob("*") if path.is_dir()}
    assert names["one"] == names["two"] == names["deep/er"] == names["keras"] == 1
    assert names["deep"] == 0 and not find(tmp_path)
    event_file(tmp_path, 1, scalar_event("loss", 1, 1.0))  # the folder is a run now, and the others are in it
    assert {found.key for found in find(tmp_path)} == {"", "one", "two", "deep/er", "keras"}


def test_only_event_files_are_claimed(tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_bytes(b"step 1 loss 2.0\n" * 100)
    assert not find(other) and not find(tmp_path)
    renamed = write(tmp_path / "renamed.bin", scalar_event("a", 1, 1.0))
    assert len(find(renamed)) == 1


def test_lightnings_hyperparameters_beside_the_file_are_the_configuration(tmp_path: Path) -> None:
    event_file(tmp_path / "version_0", 1, scalar_event("a", 1, 1.0))
    (tmp_path / "version_0" / "hparams.yaml").write_text("lr: 0.1\nmodel:\n  depth: 3\n")
    (found,) = find(tmp_path / "version_0")
    assert found.config == {"lr": 0.1, "model/depth": 3} and found.name.endswith("/version_0")


def test_a_growing_file_is_read_once_whatever_the_moments_of_reading(tmp_path: Path) -> None:
    events = [scalar_event(f"tag {step % 3}", step // 3, step / 2) for step in range(300)]
    whole = b"".join(map(framed, [version_event(), *events]))
    path, mark, got = tmp_path / "events.out.tfevents.1.host", None, []
    for end in [*range(50, len(whole), 997), len(whole)]:
        path.write_bytes(whole[:end])
        read = items(tmp_path, mark)
        got += read[:-1]
        assert isinstance(read[-1], ImportMark)
        mark = ImportMark(json.loads(json.dumps(read[-1].state)))
    assert rows(got) == rows(items(tmp_path))
    assert sum(map(len, rows(got).values())) == 300
    assert not [item for item in items(tmp_path, mark) if isinstance(item, ImportedPoints)]


def test_a_restart_is_seen_by_an_import_that_goes_on(tmp_path: Path) -> None:
    event_file(tmp_path, 1, *(scalar_event("a", step, 1.0) for step in range(10)))
    mark = items(tmp_path)[-1]
    assert isinstance(mark, ImportMark)
    event_file(tmp_path, 2, *(scalar_event("a", step, 1.0) for step in range(4, 6)))
    assert steps(items(tmp_path, mark)) == ["restart 4", 4, 5]


def test_damage_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path = event_file(tmp_path, 1, *(scalar_event("a", step, 1.0) for step in range(100)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    read = items(tmp_path)
    (unread,) = (item for item in read if isinstance(item, Unread))
    assert "damaged" in unread.why and len(rows(read)["a"]) == 99


def test_pictures_and_graphs_are_counted_not_guessed(tmp_path: Path) -> None:
    image = field(1, 1.7e9) + field(5, field(1, field(1, "picture") + field(4, field(1, 3))))
    graph = field(1, 1.7e9) + field(4, b"anything")
    event_file(tmp_path, 1, image, image, graph)
    (unread,) = (item for item in items(tmp_path) if isinstance(item, Unread))
    assert "'images'" in unread.why and "2 of them" in unread.why


def test_tensor_histograms_are_read_with_their_gaps(tmp_path: Path) -> None:
    table = np.array([[0, 1, 5], [1, 2, 0], [3, 4, 2]], np.float64)
    shape = b"".join(field(2, field(1, size)) for size in table.shape)
    tensor = field(1, 2) + field(2, shape) + field(4, table.tobytes())
    meta = field(1, field(1, "histograms"))
    event_file(
        tmp_path,
        1,
        field(1, 1.7e9) + field(2, 9) + field(5, field(1, field(1, "h") + field(8, tensor) + field(9, meta))),
    )
    (found,) = (item for item in items(tmp_path) if isinstance(item, ImportedDistribution))
    assert found.edges.tolist() == [0, 1, 2, 3, 4] and found.counts.tolist() == [5, 0, 0, 2]


@SAME_FOLDER
@given(data=st.data())
def test_no_damage_stops_the_reader(tmp_path: Path, data: st.DataObject) -> None:
    if not hasattr(test_no_damage_stops_the_reader, "seed"):
        text = field(1, "t") + field(8, field(1, 7) + field(8, "hello")) + field(9, field(1, field(1, "text")))
        histogram = field(5, field(1, 0.0) + field(6, np.arange(5.0).tobytes()) + field(7, np.arange(5.0).tobytes()))
        bodies = [
            *(scalar_event(f"t{step % 5}", step, 1.0) for step in range(40)),
            field(1, 1.7e9) + field(5, field(1, text)),
            field(1, 1.7e9) + field(5, field(1, field(1, "h") + histogram)),
            start_event(3),
        ]
        test_no_damage_stops_the_reader.seed = bodies  # type: ignore[attr-defined]
    bodies = list(test_no_damage_stops_the_reader.seed)  # type: ignore[attr-defined]
    # damage inside of records whose sums are right, and damage of the framing
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, len(bodies) - 1))
        body = bytearray(bodies[at])
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        bodies[at] = bytes(body[: data.draw(st.integers(1, len(body)))])
    whole = bytearray(b"".join(map(framed, bodies)))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "events.out.tfevents.1.host").write_bytes(bytes(whole))
    for item in items(tmp_path):
        if isinstance(item, ImportedPoints):
            assert item.values.shape == (len(item.steps), len(item.names)) and len(item.times) == len(item.steps)
        if isinstance(item, ImportedDistribution):
            assert len(item.edges) == len(item.counts) + 1


def real_files() -> list[Any]:
    folder = os.environ.get("BAROGRAPH_REALLOGS")
    return sorted(Path(folder).rglob("*tfevents*")) if folder else []


@pytest.mark.skipif(not real_files(), reason="BAROGRAPH_REALLOGS names no folder with event files")
def test_real_files_are_read_without_a_remainder() -> None:
    for path in real_files():
        read = items(path)
        assert rows(read) or "validation" not in str(path)
        assert all("not imported" in item.why for item in read if isinstance(item, Unread))
