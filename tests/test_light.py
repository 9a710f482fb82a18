"""The speed of light is what the device's peaks allow, and unknown where they are."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.core import record
from barograph.core.options import Settings
from barograph.probes.speed import achieved
from barograph.probes.speed.achieved import MeasuredPeak, MeasureError, bench_peak, measure, peaks_file, store, stored
from barograph.probes.speed.architecture import Architecture, FlopsError
from barograph.probes.speed.flops import flops_per_token, mfu, parts
from barograph.probes.speed.light import PARTS, estimate, peak_for
from barograph.probes.speed.peaks import device_peak
from barograph.training.console.lines import sol_lines

H100 = "NVIDIA H100 80GB HBM3"
SEVEN = Architecture(
    layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256, sequence=4096, gated=True,
    tied=False,
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "barograph" / "peaks.json"


def reached(
    tflops: float, dtype: str = "bf16", device: str = H100, threads: int = 0, time: str = "2026-01-01"
) -> MeasuredPeak:
    return MeasuredPeak(tflops, (8192, 8192, 8192), 40, device, dtype, threads, time)


def test_tokens_a_second_follow_from_flops_and_peak() -> None:
    found = estimate(SEVEN, device=H100)
    cost = sum(parts(SEVEN))
    assert found["tps"] == int(989.4e12 / cost)
    assert [found[part] for part in PARTS] == [int(one) for one in parts(SEVEN)]
    assert (found["tf32_peak"], found["bf16_peak"], found["fp16_peak"], found["fp8_peak"]) == (
        494.5,
        989.4,
        989.4,
        1979,
    )
    assert found["formula"] == "causal" and found["peak_source"] == device_peak(H100).source  # type: ignore[union-attr]
    assert "reason" not in found and "achievable" not in found
    assert estimate(SEVEN, device=H100, devices=8)["tps"] == pytest.approx(8 * found["tps"], abs=8)


def test_each_part_runs_at_its_own_precision() -> None:
    found = estimate(SEVEN, device=H100, dtypes={"blocks": "fp8", "lm_head": "bf16", "attention": "torch.bfloat16"})
    blocks, lm_head, attention = parts(SEVEN)
    assert found["tps"] == int(1e12 / (blocks / 1979 + (lm_head + attention) / 989.4))
    assert (found["blocks_dtype"], found["lm_head_dtype"], found["attention_dtype"]) == ("fp8", "bf16", "bf16")
    drawn = ["".join(part.text for part in one) for one in sol_lines(found)]
    assert drawn[1].split() == ["Peak", "FP8:", "1979.0", "TFLOP/s"]
    assert drawn[-1].split() == ["SOL:", str(found["tps"]), "tok/s"]


@given(st.sampled_from(["tf32", "bf16", "fp8"]), st.sampled_from(["tf32", "bf16", "fp8"]), st.integers(1, 4096))
def test_more_devices_and_fewer_bits_are_never_slower(blocks: str, head: str, devices: int) -> None:
    kinds = {"blocks": blocks, "lm_head": head}
    found = estimate(SEVEN, device=H100, dtypes=kinds, devices=devices)["tps"]
    assert found >= estimate(SEVEN, device=H100, dtypes="tf32", devices=1)["tps"]
    assert found <= estimate(SEVEN, device=H100, dtypes="fp8", devices=devices)["tps"]


def test_an_unknown_device_says_so_and_guesses_nothing() -> None:
    for name in ("NVIDIA GeForce RTX 4090 Laptop GPU", "AMD EPYC"):
        found = estimate(SEVEN, device=name)
        assert "tps" not in found and not any(key.endswith("_peak") for key in found)
        assert name in found["reason"] and "bench peak" in found["reason"] and found["blocks"] > 0
        assert "unavailable" in "".join(part.text for part in sol_lines(found)[-1])
        assert peak_for(name) == (None, "unknown")
    missing = estimate(SEVEN, device="NVIDIA A100-SXM4-80GB", dtypes={"blocks": "fp8"})
    assert "tps" not in missing and "fp8" in missing["reason"] and missing["bf16_peak"] == 312


def test_a_measured_peak_stands_in_for_a_sheet_and_beside_one() -> None:
    store(reached(0.5, "fp32", "AMD EPYC"))
    alone = estimate(SEVEN, device="AMD EPYC", dtypes="fp32")
    assert alone["peak_source"] == "measured" and alone["tps"] == alone["achievable_tps"] == int(
        0.5e12 / sum(parts(SEVEN))
    )
    assert alone["fp32_peak"] == 0.5 and peak_for("AMD EPYC", "fp32") == (0.5, "measured")
    store(reached(794.5))
    beside = estimate(SEVEN, device=H100)
    assert beside["peak_source"] != "measured" and beside["achievable"] == {"bf16": 794.5}
    assert beside["achievable_tps"] / beside["tps"] == pytest.approx(794.5 / 989.4, rel=0.001)
    assert peak_for(H100) == (989.4, "table") and peak_for(H100, peak_tflops=500) == (500, "given")
    assert peak_for(H100, "fp32") == (494.5, "table")


def test_spellings_of_a_precision_are_one() -> None:
    store(reached(0.5, "fp32", "AMD EPYC"))
    for spelling in ("fp32", "float32", "torch.float32"):
        assert peak_for("AMD EPYC", spelling) == (0.5, "measured")
        assert estimate(SEVEN, device="AMD EPYC", dtypes=spelling)["blocks_dtype"] == "fp32"
    assert peak_for("AMD EPYC", "int8") == (None, "unknown")


def test_a_given_peak_wins() -> None:
    found = estimate(SEVEN, device="some new chip", peak_tflops=100.0)
    assert found["tps"] == int(100e12 / sum(parts(SEVEN))) and found["peak_source"] == "given"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"devices": 0}, "devices"),
        ({"devices": True}, "devices"),
        ({"dtypes": "int8"}, "int8"),
        ({"dtypes": {"embedding": "bf16"}}, "embedding"),
        ({"peak_tflops": 0}, "peak_tflops"),
        ({"peak_tflops": math.nan}, "peak_tflops"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(FlopsError, match=said):
        estimate(SEVEN, device=H100, **arguments)


def test_a_run_takes_the_estimate_and_gives_it_back(tmp_path: Path) -> None:
    store(reached(794.5))
    made = estimate(SEVEN, device=H100)
    with barograph.init(project="light", dir=tmp_path, verbosity=-2, git=False) as run:
        run.log_sol_estimate(**made)
    [found] = [item for item in barograph.read_log(run.dir / "training.json") if item["log"] == "sol"]
    assert {name: found[name] for name in made} == made
    names = dict(record.numbers(record.Record("sol", 0, 0, made)))
    assert names["sol/tps"] == made["tps"] and names["sol/achievable/bf16"] == 794.5


# -- measuring -------------------------------------------------------------------------------------


def test_a_measured_rate_is_one_that_products_of_that_shape_have() -> None:
    torch = pytest.importorskip("torch")
    found = measure("cpu", "fp32", seconds=0.1)
    assert found.dtype == "fp32" and found.shape in achieved.SHAPES_CPU and found.runs >= achieved.LEAST_RUNS
    assert found.threads == torch.get_num_threads() and found.device
    assert 1e-5 < found.tflops < 100  # a CPU's, in TFLOP/s
    before = torch.get_float32_matmul_precision()
    measure("cpu", "fp32", seconds=0.01)
    assert torch.get_float32_matmul_precision() == before


def test_what_can_not_be_measured_is_refused_in_a_sentence() -> None:
    torch = pytest.importorskip("torch")
    for arguments, said in (
        (("cpu", "int8"), "int8"),
        (("cpu", "tf32"), "TF32"),
        (("cpu", "bf16", 0), "seconds"),
        (("cpu", "bf16", math.nan), "seconds"),
        (("quantum", "bf16"), "quantum"),
    ):
        with pytest.raises(MeasureError, match=said):
            measure(*arguments)  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(MeasureError, match="no GPU"):
            measure("cuda")


def test_without_torch_measuring_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MeasureError, match="pip install torch"):
        measure("cpu")
    assert bench_peak("cpu", 0.01) == 1
    said = capsys.readouterr()
    assert "pip install torch" in said.err and not said.out


# -- keeping ---------------------------------------------------------------------------------------


def test_kept_peaks_come_back_by_device_precision_and_threads(own_cache: Path) -> None:
    assert stored(H100) == {} and peaks_file() == own_cache
    assert store(reached(700.0)) == own_cache
    store(reached(600.0, "fp16"))
    store(reached(800.0))  # measured again
    store(reached(0.2, "fp32", "EPYC", threads=2))
    store(reached(0.4, "fp32", "EPYC", threads=4))
    assert {kind: one.tflops for kind, one in stored(H100).items()} == {"bf16": 800.0, "fp16": 600.0}
    assert stored("EPYC", threads=2)["fp32"].tflops == 0.2
    assert stored("EPYC", threads=4)["fp32"].shape == (8192, 8192, 8192)
    assert stored("EPYC", threads=8) == {} and stored("another") == {}
    assert [one.name for one in own_cache.parent.iterdir()] == ["peaks.json"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"x": 3}', b'{"x": {"tflops": 1}}',
     *(json.dumps({"x": reached(1.0, device="d")._asdict() | wrong}).encode()
       for wrong in ({"tflops": "NaN"}, {"tflops": -1.0}, {"shape": 3}, {"shape": [1]}, {"more": 1}))],
)  # fmt: skip
def test_a_damaged_file_counts_as_none_and_is_written_anew(content: bytes, own_cache: Path) -> None:
    own_cache.parent.mkdir(parents=True)
    own_cache.write_bytes(content)
    assert stored("d") == {}
    store(reached(1.0, device="d"))
    assert stored("d")["bf16"].tflops == 1.0


def _keep(file: str, number: int) -> None:
    for turn in range(20):
        store(reached(float(1 + turn), device=f"device {number}"), Path(file))


def test_many_processes_that_keep_peaks_never_leave_a_torn_file(own_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_keep, args=(str(own_cache), number)) for number in range(3)]
    for one in workers:
        one.start()
    while any(one.is_alive() for one in workers):
        if own_cache.exists():
            json.loads(own_cache.read_text())
    for one in workers:
        one.join()
        assert one.exitcode == 0
    assert any(stored(f"device {number}") for number in range(3))


# -- the command -----------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_keeps_what_it_measured(capsys: Any, own_cache: Path) -> None:
    pytest.importorskip("torch")
    parser = argparse.ArgumentParser()
    achieved.add_arguments(parser)
    options = parser.parse_args(["--device", "cpu", "--seconds", "0.02"])
    assert bench_peak(options.device, options.seconds, options.json) == 0
    shown = capsys.readouterr().out
    assert "FLOP/s" in shown and "unknown" in shown and str(own_cache) in shown and "tf32" not in shown
    kept = stored()
    assert {"bf16", "fp32"} <= set(kept)
    assert bench_peak("cpu", 0.02, as_json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["device"] == kept["fp32"].device and printed["file"] == str(own_cache)
    assert all(one["tflops"] > 0 and one["sheet_tflops"] is None for one in printed["peaks"])


def test_the_command_says_bad_arguments_in_a_sentence(capsys: Any) -> None:
    pytest.importorskip("torch")
    for device, seconds in (("cpu", -1.0), ("quantum", 1.0)):
        assert bench_peak(device, seconds) == 1
        said = capsys.readouterr()
        assert said.err.count("\n") == 1 and "Traceback" not in said.err and not said.out


def test_the_command_shows_the_share_of_a_known_sheet(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fake(device: Any, dtype: str, seconds: float) -> MeasuredPeak:
        if dtype == "fp16":
            raise MeasureError("cuda can't multiply in fp16: not here")
        return reached(794.5 if dtype == "bf16" else 40.0, dtype)

    monkeypatch.setattr(achieved, "measure", fake)
    assert bench_peak() == 0
    lines = capsys.readouterr().out.splitlines()
    [row] = [line for line in lines if line.startswith("bf16")]
    assert row.split()[1:6] == ["794.5", "TFLOP/s", "989.4", "TFLOP/s", "80.3%"]
    assert any("not here" in line for line in lines)
    [plain] = [line for line in lines if line.startswith("fp32")]
    assert "unknown" in plain  # the sheet's rate is for TF32


def test_a_cache_below_a_file_is_said_and_the_table_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert bench_peak("cpu", 0.01) == 0
    said = capsys.readouterr()
    assert "could not be kept" in said.err and "bf16" in said.out and "Kept in" not in said.out


def test_at_the_speed_of_light_no_default_mfu_is_impossible() -> None:
    formula = Settings().flops_formula
    for arch in (SEVEN, dataclasses.replace(SEVEN, sequence=131072), dataclasses.replace(SEVEN, windows=(512,) * 32)):
        for devices in (1, 8):
            light = estimate(arch, device=H100, devices=devices)
            share = mfu(flops_per_token(arch, formula), light["tps"], light["bf16_peak"], devices)
            assert share == pytest.approx(1.0, abs=1e-3)
