"""TrainingRunLogger works as the document that introduced it shows, and never raises into a training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import barograph
from barograph.training.logger import LogVerbosity, TrainingRunLogger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "training.json"


def test_the_documents_own_code_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    logger = barograph.TrainingRunLogger(str(path), callback=lines.append, verbosity=barograph.LogVerbosity.DEFAULT)
    step, epoch, tokens, duration_ms, norm, loss, lr = 100, 1.25, 16384, 156, 0.1234, 2.3456, 0.0002
    logger.log_step(step, epoch, tokens, duration_ms, norm, loss, lr)
    logger.log_eval(step, epoch, tokens, duration_ms, loss)
    logger.log_moe_stats(step, 0.0234, 0.0012, 0.9375, 1.45)
    with open(path) as f:
        logs = json.load(f)
    train_steps = [entry for entry in logs if entry.get("log") == "step"]
    eval_steps = [entry for entry in logs if entry.get("log") == "eval"]
    moe_logs = [entry for entry in logs if entry.get("log") == "moe"]
    assert len(logs) == 3 and [json.loads(line) for line in lines] == logs
    assert list(train_steps[0]) == [
        "log", "time", "step", "epoch", "step_tokens", "duration_ms", "norm", "loss", "lr",
    ]  # fmt: skip
    assert list(eval_steps[0]) == ["log", "time", "step", "epoch", "eval_tokens", "duration_ms", "loss"]
    assert list(moe_logs[0]) == [
        "log", "time", "step", "aux_loss", "z_loss", "expert_utilization", "load_imbalance",
    ]  # fmt: skip
    assert ":: step     100" in capsys.readouterr().out


def test_every_kind_has_the_documents_fields(path: Path) -> None:
    logger = TrainingRunLogger(path, verbosity=LogVerbosity.SILENT)
    logger.log_cmd(["train.py", "--lr", "1"])
    logger.log_options({"lr": 0.1, "model": {"width": 8}, "none": None})
    logger.log_dataset({"files": 2, "tokens": 100, "file_index": 0, "chunk_index": 0, "seed": 1}, {"files": 1})
    gpu = {"clock": 1800, "max_clock": 2100, "fan": 65, "power": 350000, "throttle": ""}
    logger.log_gpu_state(100, 0, gpu)
    logger.log_gpu_model(SimpleNamespace(name="NVIDIA H100 80GB HBM3", sm_count=132, ecc=True))
    logger.log_sol_estimate(blocks=1e9, lm_head=2e8, attention=1e8, tps=156000, bf16_peak=989.5)
    logger.log_allocator({"weights": {"device": 4294967296}, "optimizer": {"pinned": 5}})
    logger.log_message(1, "hello")
    logger.log_section_start(1, "loading")
    logger.log_section_end(1, "loading")
    logger.set_phase("warmup")
    logger.log_step(1, 0.0, 1, 1, 1.0, 1.0, 1.0, moe_aux_loss=0.0234)
    logger.close()
    items: dict[str, list[dict[str, Any]]] = {}
    for item in json.loads(path.read_text()):
        items.setdefault(item["log"], []).append(item)
    assert items["cmd"][0]["cmd"] == ["train.py", "--lr", "1"]
    assert [(o["name"], o["value"]) for o in items["option"]] == [("lr", 0.1), ("model/width", 8), ("none", None)]
    assert [d["split"] for d in items["dataset"]] == ["train", "eval"]
    assert items["gpu"][0]["id"] == 0 and items["gpu"][0]["power"] == 350000 and items["gpu"][0]["throttle"] == ""
    assert items["gpu-model"][0]["name"] == "NVIDIA H100 80GB HBM3"
    assert items["sol"][0]["tps"] == 156000
    assert items["allocator"][0]["stats"] == [
        {"name": "weights", "device": 4294967296, "managed": 0, "pinned": 0, "pageable": 0},
        {"name": "optimizer", "device": 0, "managed": 0, "pinned": 5, "pageable": 0},
    ]
    assert [i["type"] for i in items["info"]] == ["message", "section-start", "section-end"]
    assert items["step"][0]["phase"] == "warmup" and items["step"][0]["moe_aux_loss"] == 0.0234


def test_a_callback_that_raises_costs_no_record(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(line: str) -> None:
        raise RuntimeError("boom")

    logger = TrainingRunLogger(path, broken, LogVerbosity.SILENT)
    for step in range(3):
        logger.log_eval(step, 0.0, 1, 1, 1.0)
    assert len(json.loads(path.read_text())) == 3
    assert len(caplog.records) == 1 and "callback raised RuntimeError" in caplog.text
    with pytest.raises(RuntimeError):
        TrainingRunLogger(path.with_name("b.json"), broken, strict=True, verbosity=-2).log_eval(0, 0.0, 1, 1, 1.0)


@pytest.mark.parametrize("odd", [math.nan, math.inf, None, "x", [1], object(), 10**400, -5])
def test_no_argument_raises(path: Path, odd: Any) -> None:
    logger = TrainingRunLogger(path, verbosity=LogVerbosity.VERBOSE)
    logger.log_step(odd, odd, odd, odd, odd, odd, odd, extra=odd)
    logger.log_eval(odd, odd, odd, odd, odd)
    logger.log_moe_stats(odd, odd, odd, odd, odd)
    logger.log_gpu_state(odd, odd, {"power": odd, odd if isinstance(odd, str) else "k": odd})
    logger.log_allocator({"weights": odd})
    logger.log_message(odd, odd)
    logger.close()
    json.loads(path.read_text(), parse_constant=pytest.fail)


def test_a_second_logger_on_the_same_path_appends(path: Path) -> None:
    for step in range(3):
        TrainingRunLogger(path, verbosity=-2).log_eval(step, 0.0, 1, 1, 1.0)
    assert [item["step"] for item in json.loads(path.read_text())] == [0, 1, 2]


def test_read_log_gives_floats_for_the_strings_of_non_finite_numbers(path: Path) -> None:
    logger = TrainingRunLogger(path, verbosity=-2)
    logger.log_step(1, 0.0, 1, 1, math.inf, math.nan, 1.0)
    (item,) = barograph.read_log(path)
    assert item["norm"] == math.inf and math.isnan(item["loss"])


def test_simple_logger_names_the_run_as_its_document_shows(tmp_path: Path) -> None:
    config = SimpleNamespace(mup=True, width=1024, base_width=768)
    options = {"dir": str(tmp_path), "git": False, "verbosity": -2}
    logger = barograph.SimpleLogger(project_name="speedrun-mup", config=config, **options)
    assert logger.run.name.startswith("speedrun_2") and logger.run.name.endswith("_mup_w1024_base768")
    logger.log({"step": 5, "val_loss": 3.25})
    logger.finish()
    series = barograph.runs(tmp_path)[0].series("val_loss")
    assert (series.step.tolist(), series.value.tolist()) == ([5], [3.25])


# the tables of the Surogate metrics guide: a call, and the names that its table gives the fields
TABLES: dict[str, dict[str, object]] = {
    "log_step": {"step": 1, "loss": 2.0, "norm": 1.0, "lr": 1e-3, "epoch": 0.1, "step_tokens": 10, "duration_ms": 5,
                 "tokens_per_second": 2000.0},
    "log_eval": {"step": 1, "epoch": 0.1, "loss": 2.0, "eval_tokens": 10, "duration_ms": 5, "tokens_per_second": 2000.0,
                 "gap": 0.1},
    "log_moe_stats": {"step": 1, "aux_loss": 0.1, "z_loss": 0.01, "expert_utilization": 0.9, "load_imbalance": 1.2},
    "log_gpu_state": {"step": 1, "id": 0, "clock": 1800, "max_clock": 2100, "fan": 65, "power": 350000,
                      "power_limit": 400000, "temperature": 72, "temp_slowdown": 83, "gpu_util": 98, "mem_util": 85,
                      "throttle": "", "dram_free": 8589934592, "pcie_rx": 1, "pcie_tx": 2},
    "log_sol_estimate": {"blocks": 1.0, "lm_head": 2.0, "attention": 3.0, "tps": 4, "tf32_peak": 5.0, "bf16_peak": 6.0,
                         "fp16_peak": 7.0, "fp8_peak": 8.0},
    "log_allocator": {"name": "weights", "device": 1, "managed": 2, "pinned": 3, "pageable": 4},
    "log_dataset": {"split": "eval", "files": 3, "tokens": 10, "file_index": 1, "chunk_index": 2, "seed": 7},
    "log_gpu_model": {"name": "NVIDIA H100 80GB HBM3", "sm_count": 132, "major": 9, "minor": 0, "memory": 10, "free": 9,
                      "l2_size": 8, "uuid": "GPU-1", "ecc": True, "cuda_driver": 12040, "cuda_runtime": 12040},
}  # fmt: skip


@pytest.mark.parametrize("call", TABLES)
def test_every_name_of_the_documents_tables_is_a_keyword_and_stands_in_the_record(call: str, path: Path) -> None:
    logger = TrainingRunLogger(path, verbosity=-2, strict=True)
    getattr(logger, call)(**TABLES[call])
    logger.close()
    (item,) = barograph.read_log(path)
    fields = item["stats"][0] if call == "log_allocator" else item
    assert {name: fields[name] for name in TABLES[call]} == TABLES[call]


def test_splits_of_a_data_set_by_name_stay_splits(path: Path) -> None:
    logger = TrainingRunLogger(path, verbosity=-2, strict=True)
    logger.log_dataset(train={"tokens": 1}, test={"tokens": 2})
    logger.log_dataset(["a.bin", "b.bin"], {"tokens": 3})
    logger.log_dataset(files=3, tokens=4)
    logger.close()
    found = [(item["split"], item.get("tokens"), item.get("files")) for item in barograph.read_log(path)]
    assert found == [("train", 1, None), ("test", 2, None), ("train", None, 2), ("eval", 3, None), ("train", 4, 3)]


def test_simple_loggers_other_calls_draw_and_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = barograph.SimpleLogger(config={"width": 8}, dir=str(tmp_path), git=False, machine=False)
    logger.log({"step": 999, "training_time_ms": 180000.0, "step_avg_ms": 180.18})
    logger.log_step(1000, 1750, 180420.0, 3.28471, grad_norm=0.5)
    logger.log_step(1001, 1750, 180600.0)
    logger.log_final_stats(39000, 40000, 315.2)
    logger.save_config({"lr": 3e-4, "api_key": "hf_abcdefghijklmnopqrstuvwxyz0123456789"})
    logger.log_step("x", None, None)  # nothing that is logged raises
    logger.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(" train_time")[0] == "step:999"
    assert "step:1000/1750 val_loss:3.2847 train_time:180420.0ms step_avg:180.42ms" in lines
    assert "step:1001/1750 train_time:180600.0ms step_avg:180.42ms" in lines
    assert "peak memory allocated: 39000 MiB reserved: 40000 MiB" in lines
    assert "total training time: 05m15s" in lines or any("total training time: 5" in line for line in lines)
    stored = barograph.runs(tmp_path)[0]
    assert stored.series("val_loss").value.tolist() == [3.28471]
    assert stored.series("peak_memory_mb").value.tolist() == [39000]
    assert stored.manifest["total_steps"] == 1750 and stored.config["lr"] == 3e-4
    written = json.loads((stored.dir / "config.json").read_text())
    assert written["width"] == 8 and written["api_key"] == "****"
