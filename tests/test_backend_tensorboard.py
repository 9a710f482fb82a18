"""What goes in is what TensorBoard's own reader gives back: every point, NaN, odd names, rewinds."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.core.options import Settings
from barograph.trackers.tensorboard import TensorBoardBackend, masked_checksum

pytest.importorskip("tensorboard")

ODD_NAMES = ["with space", "a/b/c", "été/損失", "<script>alert(1)</script>", "100%", "x" * 300, "."]


def config(folder: Path) -> Any:
    return SimpleNamespace(tensorboard_dir=str(folder))


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance=dict.fromkeys(("scalars", "tensors"), 0)).Reload()


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = read(folder)
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def single(value: float) -> float:
    """As 32 bits hold it."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # as == does, but NaN is NaN


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


VALUES = st.one_of(st.floats(width=64), st.integers(-(2**70), 2**70), st.booleans())


@settings(max_examples=30, deadline=None)
@given(
    records=st.lists(
        st.tuples(
            st.integers(-5, 2**40),
            st.dictionaries(st.sampled_from(["train/loss", "eval/loss", *ODD_NAMES]), VALUES, max_size=4),
        ),
        max_size=20,
    )
)
def test_every_point_comes_back_in_order(
    records: list[tuple[int, dict[str, float]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tb")
    backend = TensorBoardBackend(config(folder))
    expected: dict[str, list[tuple[int, float]]] = {}
    for step, metrics in records:
        backend.log(metrics, step)
        for name, value in metrics.items():
            expected.setdefault(name, []).append((step, single(float(value))))
    assert backend.close()
    assert same(points(folder) if records else {}, expected) or (
        {name: repr(rows) for name, rows in points(folder).items()}
        == {name: repr(rows) for name, rows in expected.items()}
    )


def test_a_value_too_large_for_any_float_is_infinite(tmp_path: Path) -> None:
    backend = TensorBoardBackend(config(tmp_path))
    backend.log({"a": 10**400, "b": -(10**400), "c": 1e300}, 1)
    assert backend.close()
    assert points(tmp_path) == {"a": [(1, math.inf)], "b": [(1, -math.inf)], "c": [(1, math.inf)]}


def test_times_are_those_of_the_log_calls(tmp_path: Path) -> None:
    backend = TensorBoardBackend(config(tmp_path))
    times = []
    for step in range(3):
        times.append(time.time())
        backend.log({"a": 1.0}, step)
        time.sleep(0.02)
    assert backend.close()
    for event, logged in zip(read(tmp_path).Scalars("a"), times, strict=True):
        assert logged <= event.wall_time < logged + 0.015


def test_a_live_reader_sees_points_within_a_second(tmp_path: Path) -> None:
    backend = TensorBoardBackend(config(tmp_path))
    for step in (1, 2):
        backend.log({"a": float(step)}, step)
        deadline = time.monotonic() + 5
        while not list(tmp_path.iterdir()) or (step, float(step)) not in points(tmp_path).get("a", []):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    backend.close()


def test_text_and_none_are_left_out_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend = TensorBoardBackend(config(tmp_path))
    for step in range(3):
        backend.log({"a": 1.0, "train/phase": "warmup", "none": None}, step)
    assert backend.close()
    assert points(tmp_path) == {"a": [(0, 1.0), (1, 1.0), (2, 1.0)]}
    [warning] = warnings_of(caplog)
    assert "'train/phase' is not a number" in warning


def test_what_a_rewind_supersedes_is_hidden(tmp_path: Path) -> None:
    backend = TensorBoardBackend(config(tmp_path))
    for step in range(10):
        backend.log({"a": 1.0}, step)
    backend.rewind(4)
    for step in range(4, 8):
        backend.log({"a": 2.0}, step)
    assert backend.close()
    assert points(tmp_path)["a"] == [(step, 1.0 if step < 4 else 2.0) for step in range(8)]


def test_an_evaluation_logged_late_is_kept(tmp_path: Path) -> None:
    backend = TensorBoardBackend(config(tmp_path))
    backend.log({"train/loss": 1.0}, 100)
    backend.log({"eval/loss": 2.0}, 50)
    backend.log({"eval/loss": 2.0}, 100)
    assert backend.close()
    assert points(tmp_path) == {"train/loss": [(100, 1.0)], "eval/loss": [(50, 2.0), (100, 2.0)]}


def test_histograms_and_the_configuration_come_back(tmp_path: Path) -> None:
    from tensorboard.util import tensor_util

    backend = TensorBoardBackend(config(tmp_path))
    backend.log_config({"lr": 3e-4, "model": {"width": 768}, "odd|name": "<b>a</b>\n|"})
    backend.log_histogram("gradients", [-1.0, 0.0, 0.1, 5.0], [3, 0, 7], 12)
    assert backend.close()
    found = read(tmp_path)
    assert found.SummaryMetadata("gradients").plugin_data.plugin_name == "histograms"
    [histogram] = found.Tensors("gradients")
    rows = tensor_util.make_ndarray(histogram.tensor_proto).tolist()
    assert (histogram.step, rows) == (12, [[-1.0, 0.0, 3.0], [0.0, 0.1, 0.0], [0.1, 5.0, 7.0]])
    assert found.SummaryMetadata("config").plugin_data.plugin_name == "text"
    [text] = found.Tensors("config")
    table = text.tensor_proto.string_val[0].decode().splitlines()
    assert table[2:] == [
        "| lr | 0.0003 |",
        "| model/width | 768 |",
        "| odd&#124;name | &lt;b&gt;a&lt;/b&gt;<br>&#124; |",
    ]


def test_two_backends_in_one_folder_write_two_files(tmp_path: Path) -> None:
    backends = [TensorBoardBackend(config(tmp_path)) for _ in range(3)]
    for number, backend in enumerate(backends):
        backend.log({f"a{number}": 1.0}, 1)
    assert all(backend.close() for backend in backends)
    assert len(list(tmp_path.iterdir())) == 3
    assert set(points(tmp_path)) == {"a0", "a1", "a2"}


def test_the_settings_of_a_run_do_as_configuration(tmp_path: Path) -> None:
    backend = TensorBoardBackend(Settings(tensorboard_dir=str(tmp_path / "deep" / "er")))
    backend.log({"a": 1.0}, 1)
    assert backend.close()
    assert points(tmp_path / "deep" / "er") == {"a": [(1, 1.0)]}


@pytest.mark.parametrize("folder", ["gs://bucket/tb", "/proc/no/such", "/dev/null/tb"])
def test_a_folder_that_cannot_be_costs_one_warning(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    backend = TensorBoardBackend(SimpleNamespace(tensorboard_dir=folder))
    for step in range(5):
        backend.log({"a": 1.0}, step)
    assert not backend.close()
    assert len(warnings_of(caplog)) == 1


def test_a_full_disk_costs_one_warning_and_no_point_once_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = TensorBoardBackend(config(tmp_path))
    backend.poll_seconds = 0.01
    backend.log({"a": 0.0}, 0)
    deadline = time.monotonic() + 5
    while not backend._end and time.monotonic() < deadline:
        time.sleep(0.01)
    true_write, full = os.write, True

    def write(file: int, data: Any) -> int:
        if file != backend._file or not full:
            return true_write(file, data)
        true_write(file, bytes(data[:7]))  # a torn record, then no space
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    for step in range(1, 50):
        backend.log({"a": float(step)}, step)
        time.sleep(0.002)
    time.sleep(0.1)
    assert points(tmp_path)["a"] == [(0, 0.0)]
    full = False
    backend.log({"a": 50.0}, 50)
    assert backend.close()
    assert points(tmp_path)["a"] == [(step, float(step)) for step in range(51)]
    [warning] = warnings_of(caplog)
    assert "No space left" in warning


@given(data=st.binary(max_size=200))
def test_the_checksum_is_tensorboards(data: bytes) -> None:
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    assert masked_checksum(data) == masked_crc32c(data)


def test_a_killed_process_leaves_a_file_whole_up_to_the_last_flush(tmp_path: Path) -> None:
    body = (
        "import types, time\n"
        "from barograph.trackers.tensorboard import TensorBoardBackend\n"
        f"backend = TensorBoardBackend(types.SimpleNamespace(tensorboard_dir={str(tmp_path)!r}))\n"
        "step = 0\n"
        "while True:\n"
        "    backend.log({'a': float(step)}, step)\n"
        "    step += 1\n"
        "    time.sleep(0.0005)\n"
        "    if step == 2000: print('now', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    found = points(tmp_path)["a"]
    assert found == [(step, float(step)) for step in range(len(found))]
    assert len(found) > 500


@pytest.mark.slow
def test_tensorboard_itself_shows_every_point(tmp_path: Path) -> None:
    backend = TensorBoardBackend(config(tmp_path))
    for step in range(100):
        backend.log({"train/loss": math.nan if step == 7 else 1 / (step + 1), "a <b> é": float(step)}, step)
    backend.log_histogram("gradients", [0.0, 1.0, 2.0], [3, 4], 5)
    assert backend.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(tmp_path), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/data/plugin"

    def ask(path: str, **query: str) -> Any:
        deadline = time.monotonic() + 50
        while True:
            try:
                with urllib.request.urlopen(f"{address}/{path}?{urllib.parse.urlencode(query)}", timeout=5) as answer:
                    return json.load(answer)
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.3)

    try:
        for name in ("train/loss", "a <b> é"):
            rows = ask("scalars/scalars", run=".", tag=name)
            expected = dict(points(tmp_path)[name])
            assert len(rows) == 100
            for _, step, value in rows:
                assert same(float(value), expected[step]) or float(value) == pytest.approx(expected[step])
        [[_, step, buckets]] = ask("histograms/histograms", run=".", tag="gradients")
        assert step == 5 and [row[2] for row in buckets if row[2]] == [3, 4]
    finally:
        server.terminate()
        server.wait()


def test_the_grouped_layout_is_that_of_the_stability_guide(tmp_path: Path) -> None:
    backend = TensorBoardBackend(SimpleNamespace(tensorboard_dir=str(tmp_path), tensorboard_layout="grouped"))
    layer = "blocks.0.attn.c_proj.weight"
    given = {
        "train/loss": "Loss/train", "eval/loss": "Loss/validation", "train/norm": "Gradients/norm_global",
        f"gradients/{layer}/norm": f"Gradients/per_layer/{layer}/norm",
        f"gradients/{layer}/mean": f"Gradients/per_layer/{layer}/mean",
        f"updates/{layer}/ratio": f"Updates/per_layer/{layer}/ratio", "train/lr": "Optimization/lr",
        "model/update_p50": "Optimization/update_ratio", "train/tokens_per_second": "Performance/tokens_per_sec",
        "gpu/0/gpu_util": "Performance/gpu_utilization", "memory/allocated_gb": "Performance/memory_mb",
        "param_norm": "Parameters/norm_global", "my/own": "my/own",
    }  # fmt: skip
    backend.log(dict.fromkeys(given, 2.0), 5)
    backend.log_histogram(f"gradients_hist/{layer}", [0.0, 1.0, 2.0], [3, 4], 5)
    backend.close()
    found = points(tmp_path)
    assert set(found) == set(given.values()) and found["Loss/train"] == [(5, 2.0)]
    assert found["Performance/memory_mb"] == [(5, 2048.0)]
    assert f"Gradients_Hist/per_layer/{layer}" in read(tmp_path).Tags()["tensors"]
