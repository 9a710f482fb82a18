"""The checklist of a healthy training: every line yes on a healthy run, no where it is broken, else not measured."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from barograph.doctor.checklist import checklist
from barograph.doctor.kernel.examiner import Examiner

LINES = (
    "Loss decreases smoothly (no spikes)",
    "Gradient norms in 0.1-10 range",
    "Update ratios in phase-appropriate range",
    "Gradient histograms show bell curves at zero",
    "Per-layer gradient variance < 100×",
    "Throughput stable (±5%)",
    "Memory usage stable (70-90% VRAM)",
    "No update ratio alerts",
)


def healthy(count: int = 400) -> dict[str, Any]:
    dice = numpy.random.default_rng(0)
    step = numpy.arange(1, count + 1)
    columns: dict[str, Any] = {
        "train/loss": 2.5 + 5 / (1 + step / 20) + 0.01 * dice.normal(size=count),
        "train/norm": 0.8 + 0.05 * dice.normal(size=count),
        "train/tokens_per_second": 1e5 * (1 + 0.01 * dice.normal(size=count)),
        "memory/mem_utilization": numpy.full(count, 0.8),
    }
    for layer, size in (("blocks.0.attn.weight", 0.3), ("blocks.1.attn.weight", 0.6)):
        columns |= {
            f"updates/{layer}/ratio": numpy.full(count, 3e-3),
            f"gradients/{layer}/norm": numpy.full(count, size),
        }
        shape = {"modes": 1.0, "kurtosis": 3.0, "shift": 0.0, "zero": 0.1}
        columns |= {f"shape/gradients_hist/{layer}/{name}": numpy.full(count, one) for name, one in shape.items()}
    return columns


def answers(columns: dict[str, Any]) -> dict[str, str]:
    examiner = Examiner()
    for name, value in columns.items():
        steps = numpy.arange(1, len(value) + 1)
        examiner.seen.add(name, steps, numpy.asarray(value, float), steps * 1_000_000, 1)
    examiner.seen.facts["finished"] = True
    examiner.catch_up()
    found = checklist(examiner)
    assert tuple(one.line for one in found) == LINES and all(one.why for one in found)
    return {one.line: one.answer for one in found}


def test_a_healthy_run_has_yes_on_every_line_and_an_empty_one_measured_nothing() -> None:
    assert set(answers(healthy()).values()) == {"yes"}
    assert set(answers({}).values()) == {"not measured"}


@pytest.mark.parametrize(
    ("line", "change"),
    [
        (0, {"train/loss": lambda old: numpy.where(numpy.arange(len(old)) == 300, 40.0, old)}),
        (0, {"train/loss": lambda old: old[::-1]}),
        (1, {"train/norm": lambda old: old * 30}),
        (2, {"updates/blocks.0.attn.weight/ratio": lambda old: old * 9,
             "updates/blocks.1.attn.weight/ratio": lambda old: old * 9}),
        (3, {"shape/gradients_hist/blocks.0.attn.weight/modes": lambda old: old * 2}),
        (4, {"gradients/blocks.0.attn.weight/norm": lambda old: old / 200}),
        (5, {"train/tokens_per_second": lambda old: numpy.where(numpy.arange(len(old)) % 9 == 0, old * 0.8, old)}),
        (6, {"memory/mem_utilization": lambda old: old + 0.15}),
        (6, {"memory/mem_utilization": lambda old: old - 0.3}),
        (7, {"updates/blocks.0.attn.weight/ratio": lambda old: old * 100,
             "updates/blocks.1.attn.weight/ratio": lambda old: old * 100}),
    ],
)  # fmt: skip
def test_what_is_broken_is_a_no_on_its_line(line: int, change: dict[str, Any]) -> None:
    columns = healthy()
    columns |= {name: make(columns[name]) for name, make in change.items()}
    found = answers(columns)
    assert found[LINES[line]] == "no"
    others = {name: answer for name, answer in found.items() if name != LINES[line]}
    assert "no" not in others.values() or line in (2, 7)  # a ratio out of its range may be an alert too
