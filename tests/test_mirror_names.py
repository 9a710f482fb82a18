"""Each record reaches other trackers under the names and in the units that the documents promise."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barograph.core.record import KINDS, Record
from barograph.trackers.names import Config, End, Note, Parts, Rewind, Row, Sent, Text, sent, wide_name

MIB = 2**20


def of(kind: str, /, step: int = 10, **fields: Any) -> list[Sent]:
    return list(sent(Record(kind, 1_000_000, step, fields)))


def test_a_step_has_the_names_of_surogate_and_of_kempnerforge() -> None:
    [row] = of("step", epoch=1.25, step_tokens=16384, duration_ms=156, norm=0.5, loss=math.nan, lr=2e-4, phase="up")
    assert isinstance(row, Row)
    assert {name: row.values[name] for name in ("train/norm", "train/grad_norm", "train/lr", "train/epoch")} == {
        "train/norm": 0.5, "train/grad_norm": 0.5, "train/lr": 2e-4, "train/epoch": 1.25,
    }  # fmt: skip
    assert math.isnan(row.values["train/loss"]) and row.values["train/phase"] == "up"
    assert row.values["train/duration_ms"] == 156
    assert row.values["train/tokens_per_second"] == pytest.approx(16384 / 156 * 1000)


def test_moe_figures_have_their_names_whether_inline_or_not() -> None:
    assert of("moe", aux_loss=0.02, load_imbalance=1.5) == [Row({"moe/aux_loss": 0.02, "moe/load_imbalance": 1.5})]
    [row] = of("step", loss=1.0, moe_aux_loss=0.02)
    assert isinstance(row, Row) and row.values["moe/aux_loss"] == 0.02


def test_each_gpu_has_its_number_and_sizes_are_in_mib() -> None:
    [row] = of("gpu", id=3, power=350000, dram_free=8 * 2**30, pcie_rx=2**30, pcie_tx=2**29, throttle="power cap")
    assert row == Row({
        "gpu/3/power": 350000, "gpu/3/dram_free": 8192, "gpu/3/pcie_rx": 1024, "gpu/3/pcie_tx": 512,
        "gpu/3/throttle": "power cap",
    })  # fmt: skip


def test_allocations_and_flops_are_pies_and_series() -> None:
    stats = [{"name": "weights", "device": 4 * 2**30, "pinned": 1}, {"name": "optimizer", "device": 2**30}]
    assert of("allocator", stats=stats) == [
        Parts("allocations", "GPU Allocations (MiB)", {"weights": 4096, "optimizer": 1024}),
        Row({"allocator/weights_mib": 4096, "allocator/optimizer_mib": 1024}),
    ]
    parts, row = of("sol", blocks=3e9, lm_head=1e9, attention=5e8, tps=156000, bf16_peak=989.4)
    assert parts == Parts("ops", "FLOPs", {"Blocks": 3e9, "LM-Head": 1e9, "Attention": 5e8})
    assert row == Row({"flops/blocks": 3e9, "flops/lm_head": 1e9, "flops/attention": 5e8, "sol/tps": 156000,
                       "sol/bf16_peak": 989.4})  # fmt: skip


def test_options_the_command_and_devices_are_configuration() -> None:
    assert of("option", name="lr", value=3e-4) == [Config({"lr": 3e-4})]
    assert of("cmd", cmd=["train.py", "--lr", "1"]) == [Config({"cmd": "train.py --lr 1"})]
    assert of("gpu-model", id=0, name="H100") == [Config({"gpu": {"name": "H100"}})]
    assert of("gpu-model", id=2, name="H100") == [Config({"gpu-2": {"name": "H100"}})]
    assert of("dataset", split="eval", tokens=9) == [Config({"dataset": {"eval": {"tokens": 9}}})]


def test_a_step_of_the_tracker_has_kempnerforges_keys() -> None:
    [row] = of("speed", step_ms=250.0, tokens_per_second=1e5, mfu=0.4, smoothed={"loss": 2.5, "mfu": 0.41})
    assert isinstance(row, Row)
    wanted = {"train/tokens_per_sec": 1e5, "train/mfu": 0.4, "train/step_time_sec": 0.25, "smoothed/loss": 2.5}
    assert wanted.items() <= row.values.items() and "speed/smoothed/loss" not in row.values
    [row] = of("speed", step_ms=250.0, mfu=0.4)
    assert row == Row({"speed/step_ms": 250.0, "speed/mfu": 0.4}), "only the tracker's steps have them"
    [row] = of("memory", allocated_gb=1.5, mem_utilization=0.2)
    assert isinstance(row, Row) and row.values["gpu/allocated_gb"] == 1.5 == row.values["memory/allocated_gb"]


def test_the_model_from_inside_has_the_names_of_speedrun_and_of_the_guide() -> None:
    [row] = of("model", grad_norm=1.0, spectral_norm_max=3.0, flow_ratio=0.5)
    assert row == Row({"grad_norm": 1.0, "spectral_norm_max": 3.0, "model/flow_ratio": 0.5})
    assert wide_name("gradients/blocks.0.attn/norm") == "gradients/blocks.0.attn/norm"
    assert wide_name("updates/blocks.0/ratio") == "updates/blocks.0/ratio"
    assert wide_name("activations/blocks.0.mlp/l2_norm") == "blocks.0.mlp_l2_norm"
    assert wide_name("activations/blocks.0.mlp/dead") == "activations/blocks.0.mlp/dead"


def test_names_of_the_users_own_stay() -> None:
    logged: dict[str, Any] = {"mine": 2, "a/b": True, "word": "x", "nothing": None}
    assert list(sent(Record("metrics", 0, 1, logged))) == [Row({"mine": 2.0, "a/b": 1.0, "word": "x"})]
    assert of("eval", loss=2.0, eval_tokens=100, duration_ms=50) == [
        Row({"eval/loss": 2.0, "eval/eval_tokens": 100, "eval/duration_ms": 50, "eval/tokens_per_second": 2000.0})
    ]


def test_texts_notes_rewinds_and_the_end() -> None:
    assert of("sample", prompt="Once", text="upon") == [Text("sample", "Once\n\nupon")]
    text, row = of("checkpoint", path="c/1.pt", val_loss=2.5)
    assert isinstance(text, Text) and "c/1.pt" in text.content and row == Row({"checkpoint/val_loss": 2.5})
    [note] = of("finding", rule="non_finite_loss", severity="critical", message="NaN loss", remedies=["lower the rate"])
    assert note == Note("non_finite_loss at step 10", "NaN loss\nremedies: lower the rate", "critical")
    assert of("stacks", waited_seconds=130.0, threads=[])[0].level == "critical"  # type: ignore[union-attr]
    assert of("segment", kind="rewind", start_step=5) == [Rewind(5)]
    assert of("segment", kind="start", segment=1) == []
    assert of("end", status="failed") == [End("failed")]


@pytest.mark.parametrize("kind", [*KINDS, "finding", "abs-maxes", "unheard-of"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"stats": 5}, {"stats": [None, {"name": 3, "device": "x"}]}, {"cmd": None, "name": 7, "text": None, "id": "x"},
     {"loss": 10**400, "smoothed": {"loss": "nan"}, "start_step": "5", "kind": "rewind", "split": None}],
)  # fmt: skip
def test_no_record_breaks_it(kind: str, fields: dict[str, Any]) -> None:
    for one in sent(Record(kind, 0, 1, fields)):
        assert isinstance(one, (Row, Config, Text, Note, Parts, Rewind, End))
