"""Each way to break the demo is real, begins at its step, and is found by the doctor for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

import barograph
from barograph.demo import loop as loops
from barograph.demo import model as gpt
from barograph.demo.faults import FAULTS
from barograph.demo.train import run_demo
from barograph.doctor import diagnose

KINDS = {
    "learning-rate": {"spike", "divergence", "update_ratio", "exploding", "nonfinite"},
    "bad-batch": {"spike"},
    "nan": {"nonfinite"},
    "zero-grad": {"missing_zero_grad"},
    "stale-optimizer": {"frozen"},
    "frozen-layer": {"frozen"},
    "shifted-targets": {"spike", "divergence"},
    "repeated-data": {"repeated_data"},
    "slow-loader": {"slowdown", "input_bound"},
    "other-tokens": {"eval", "overfit"},
    "weight-decay": {"spike", "divergence", "weight_growth", "plateau", "update_ratio"},
    "dead-expert": {"routing", "dead_expert"},
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A model that takes some milliseconds a step."""

    def shape(plan: loops.Plan) -> gpt.ModelShape:
        return gpt.ModelShape(context=64, width=32, layers=3, heads=2, hidden=64, experts=8 if plan.moe else 0)

    monkeypatch.setattr(loops.Plan, "shape", shape)
    monkeypatch.setattr(loops, "SAMPLE_BYTES", 20)
    monkeypatch.setattr(loops, "EVAL_WINDOWS", 8)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAROGRAPH_DIR", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)


def test_every_fault_is_tried_here_and_documented() -> None:
    assert set(KINDS) == set(FAULTS)
    page = (Path(__file__).parent.parent / "docs" / "start" / "demo.md").read_text()
    for name, fault in FAULTS.items():
        assert f"| `{name}` | {fault.about[0].upper()}{fault.about[1:]}" in page


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_doctor_finds_it(small: Path, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    # two are told from a training's noise only once there is more of it; the loader waits a quarter of a second a step
    long, short = fault in ("bad-batch", "shifted-targets"), fault == "slow-loader"
    steps, onset = (240, 96) if long else (80, 32) if short else (120, 48)
    assert run_demo(steps=steps, fault=fault, quiet=True, dir="runs") == 0
    (run,) = barograph.runs("runs")
    found = [one for one in diagnose(run)["findings"] if one["severity"] != "info"]
    right = [one for one in found if one["kind"] in KINDS[fault] or any(
        told["kind"] in KINDS[fault] for told in one["evidence"].get("story", ()))]  # fmt: skip
    assert right, [(one["rule"], one["step"], one["message"]) for one in found]
    of_training = [one for one in found if one["family"] != "speed"]  # a machine may be slow of itself
    assert all(one["step"] >= onset - 10 for one in of_training), "nothing is wrong before"
    assert f"Broken on purpose from step {onset} on" in capsys.readouterr().out


def test_a_wrong_kind_gets_the_nearest_one(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(steps=5, fault="learnin-rate") == 2
    assert "the nearest is learning-rate" in capsys.readouterr().err
