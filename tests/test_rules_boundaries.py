"""Thresholds of rules, from both sides: just short of one a rule is silent or milder, just beyond it speaks.

The numbers are written out: a threshold that is changed has to be changed here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.core.record import Record
from barograph.doctor.kernel.registry import rule_classes

GIB = float(1 << 30)
RULES = rule_classes()
Columns = dict[str, Any]
Build = Callable[[float], Columns]


def wavy(count: int, level: float = 1.0) -> np.ndarray:
    """A series that hardly moves, and never stands still."""
    return level * (1 + 2e-4 * np.sin(np.arange(count) * 2.1))


def then(before: int, level: float, after: int, new: float) -> np.ndarray:
    """A level, and another one behind it."""
    return np.concatenate([wavy(before, level), wavy(after, new)])


def worst(rule: str, columns: Columns, cuts: Iterable[int] = (), **facts: Any) -> str:
    """The worst severity that a rule gives; nothing if it is silent."""
    events = facts.pop("events", ())
    found = findings([RULES[rule]()], columns, facts=facts, events=events, cuts=cuts)
    grades = {one.severity for one in found.values()}
    return next((grade for grade in ("critical", "warning", "info") if grade in grades), "")


def fall(ratio: float) -> Columns:
    return {"train/loss": then(200, 2.0, 40, 2.0 * ratio)}


def slide(ratio: float = 0.5, worse: float = 1.1) -> Columns:
    loss = then(128, 3.0, 128, 3.0 * ratio)
    loss[128:144] = 3.0 * np.linspace(1, ratio, 16)  # step by step: what falls at once was seen before
    return {"train/loss": loss, "eval/loss": (np.array([100, 240]), [3.0, 3.0 * worse])}


def every(name: str, steps: int, count: int = 12) -> Build:
    return lambda value: {name: (np.arange(count) * steps, np.full(count, value))}


def layers(name: str, count: int, steps: int = 10, others: float = 0.0) -> Build:
    family, quantity = name.split("/*/")
    return lambda value: {
        f"{family}/h.{at}/{quantity}": (np.arange(count) * steps, np.full(count, value if at == 0 else others))
        for at in range(4)
    }


def evaluations(value: float, count: int) -> Columns:
    return {"train/loss": wavy(200, 2.0), "eval/loss": (np.arange(count) * 20 + 10, np.full(count, 2.0 * value))}


def policy(name: str, start: float = 0.1) -> Build:
    return lambda value: {"train/reward": wavy(96) + np.arange(96) % 7, name: then(48, start, 48, value)}


def beside(off: float = 0.5, own: float = 0.0, rows: float = 128, width: float = 10, wrong: float = 0.1, count: int = 4,
           accuracy: float | None = None) -> Columns:  # fmt: skip
    """Answers of evaluations that are one class above their targets."""
    at = np.arange(count) * 20 + 20
    columns = {
        f"model/compared_{name}": (at, np.full(count, value))
        for name, value in (("off", off), ("own", own), ("rows", rows), ("width", width), ("by", 1.0))
    }
    columns |= {"model/wrong_share": (np.arange(20) * 5, np.full(20, wrong)), "train/loss": wavy(100, 2.0)}
    columns |= {"model/loss_classes": (np.array([0]), np.array([10.0]))}
    return columns if accuracy is None else columns | {"val/accuracy": (at - 1, np.full(count, accuracy))}


def within(share: float = 0.5, rows: float = 96, chance: float = 0.01, count: int = 4) -> Columns:
    """Answers of evaluations within their batches, and targets that count on."""
    at = np.arange(count) * 20 + 20
    figures = {"beyond": rows, "within": share, "within_chance": chance}
    return {f"model/compared_{name}": (at, np.full(count, one)) for name, one in figures.items()} | {
        "train/loss": wavy(100, 2.0)
    }


def unaligned(own: float = 0.4, loss: float = 0.9, chance: float = 0.4, rows: float = 900, off: float = 2.0,
              count: int = 4) -> Columns:  # fmt: skip
    """Answers of evaluations that are right beside the targets of a loss, and not where they are compared."""
    at = np.arange(count) * 20 + 20
    figures = {"own": own, "loss": loss, "chance": chance, "rows": rows, "off": off}
    return {f"model/compared_aligned_{name}": (at, np.full(count, one)) for name, one in figures.items()} | {
        "train/loss": wavy(100, 2.0)
    }


def renamed(value: float = 3, named: float = 8, width: float = 10, wrong: float = 0.1, loss: float = 2.0,
            accuracy: float | None = None, count: int = 4) -> Columns:  # fmt: skip
    """Classes of evaluations that have the answers of other classes."""
    columns = beside(off=0.1, own=0.6, width=width, wrong=wrong, count=count, accuracy=accuracy)
    figures = {"renamed": value, "named": named, "class": 4.0, "answer": 5.0}
    at = np.arange(count) * 20 + 20
    columns |= {f"model/compared_{name}": (at, np.full(count, one)) for name, one in figures.items()}
    return columns | {"train/loss": wavy(100, loss)}


def pictured(low: float = -4.0, high: float = 3.0, mean: float = -0.2, spread: float = 0.0, looks: int = 20,
             timed: bool = True) -> Columns:  # fmt: skip
    """Pictures with noise that a model is given."""
    at = np.arange(looks) * 5
    means = mean + spread * (-1.0) ** np.arange(looks)
    figures = {"input_low": np.full(looks, low), "input_high": np.full(looks, high), "input_mean": means}
    if timed:
        figures |= {"time_low": np.full(looks, 0.0), "time_high": np.full(looks, 99.0)}
    return {f"model/{name}": (at, values) for name, values in figures.items()}


def given_classes(
    rows: float = 512, theirs: float = 128, classes: float = 5, came: float = 20, count: int = 4
) -> Columns:
    """Classes of evaluations that are one lower than those of the training."""
    at = np.arange(count) * 20 + 20
    figures = {"given_rows": rows, "given_classes": classes, "eval_given_rows": theirs, "eval_given_moved": -1.0,
               "eval_given_new": 20.0, "eval_given_missed": came}  # fmt: skip
    columns = {f"model/{name}": (at, np.full(count, value)) for name, value in figures.items()}
    return columns | {"eval/loss": (at - 1, wavy(count, 2.0))}


# rule, threshold, what the value makes, short of it and what is said then, beyond it and what is said then
CASES: list[tuple[str, str, Build, float, str, float, str]] = [
    ("answers_beside", "beside", lambda x: beside(x), 0.24, "", 0.26, "warning"),
    ("answers_beside", "own", lambda x: beside(own=x), 0.13, "", 0.12, "warning"),
    ("answers_beside", "rows", lambda x: beside(rows=x), 63, "", 64, "warning"),
    ("answers_beside", "pairs", lambda x: beside(rows=x, width=x), 31, "", 32, "warning"),
    ("answers_beside", "wrong", lambda x: beside(wrong=x), 0.61, "", 0.59, "warning"),
    ("answers_beside", "learnt", lambda x: beside(wrong=0.9) | {"train/loss": wavy(100, x)}, 1.74, "", 1.71, "warning"),
    ("answers_beside", "alike", lambda x: beside(width=0, accuracy=x), 0.03, "", 0.01, "warning"),
    ("answers_beside", "evaluations", lambda x: beside(count=int(x)), 1, "", 2, "warning"),
    ("answers_beside", "faint", lambda x: beside(x, rows=200, width=200, wrong=0.9), 0.09, "", 0.11, "warning"),
    ("answers_beside", "times", lambda x: beside(0.2, rows=x, width=x, wrong=0.9), 49, "", 51, "warning"),
    ("answers_unaligned", "rows", lambda x: unaligned(rows=x), 63, "", 64, "warning"),
    ("answers_unaligned", "right", lambda x: unaligned(loss=x), 0.69, "", 0.71, "warning"),
    ("answers_unaligned", "chance", lambda x: unaligned(own=x, chance=x, loss=1.0), 0.71, "", 0.69, "warning"),
    ("answers_unaligned", "errors", lambda x: unaligned(0.4 + x * (0.24 / 900) ** 0.5), 3.6, "", 3.4, "warning"),
    ("answers_unaligned", "same", lambda x: unaligned(off=x), 4.1, "", 3.9, "warning"),
    ("answers_unaligned", "evaluations", lambda x: unaligned(count=int(x)), 1, "", 2, "warning"),
    ("answers_within", "rows", lambda x: within(rows=x), 31, "", 32, "warning"),
    ("answers_within", "within", lambda x: within(x), 0.09, "", 0.11, "warning"),
    ("answers_within", "times", lambda x: within(0.5, chance=x), 0.051, "", 0.049, "warning"),
    ("answers_within", "evaluations", lambda x: within(count=int(x)), 1, "", 2, "warning"),
    ("classes_renamed", "classes", lambda x: renamed(x), 1, "", 2, "warning"),
    ("classes_renamed", "named", lambda x: renamed(named=x), 3, "", 4, "warning"),
    ("classes_renamed", "wrong", lambda x: renamed(wrong=x, loss=2.2), 0.61, "", 0.59, "warning"),
    ("classes_renamed", "learnt", lambda x: renamed(wrong=0.9, loss=x), 1.74, "", 1.71, "warning"),
    ("classes_renamed", "alike", lambda x: renamed(width=0, accuracy=x), 0.63, "", 0.61, "warning"),
    ("classes_renamed", "evaluations", lambda x: renamed(count=int(x)), 1, "", 2, "warning"),
    ("pictures_twice", "looks", lambda x: pictured(-3.0, 1.0, looks=int(x)), 7, "", 8, "warning"),
    ("pictures_twice", "same", lambda x: pictured(-3.0 + x, 1.0), 2e-5, "", 5e-6, "warning"),
    ("pictures_twice", "beyond", lambda x: pictured(mean=x), -0.99, "", -1.01, "warning"),
    ("pictures_twice", "beyond", lambda x: pictured(mean=x), 0.99, "", 1.01, "warning"),
    ("pictures_twice", "beyond", lambda x: pictured(mean=-1.5, timed=bool(x)), 0, "", 1, "warning"),
    ("pictures_twice", "errors", lambda x: pictured(mean=-1.1, spread=x), 0.2, "", 0.1, "warning"),
    ("given_classes", "rows", lambda x: given_classes(rows=x), 255, "", 256, "warning"),
    ("given_classes", "evaluated", lambda x: given_classes(theirs=x), 63, "", 64, "warning"),
    ("given_classes", "classes", lambda x: given_classes(classes=x), 2, "", 3, "warning"),
    ("given_classes", "came", lambda x: given_classes(came=x), 7, "", 8, "warning"),
    ("given_classes", "evaluations", lambda x: given_classes(count=int(x)), 1, "", 2, "warning"),
    ("loss_jump_down", "fall", fall, 0.905, "", 0.895, "info"),
    ("loss_jump_down", "large", fall, 0.305, "info", 0.295, "warning"),
    ("loss_jump_down", "lr", lambda x: fall(0.5) | {"train/lr": then(200, 1e-3, 40, 1e-3 * x)}, 0.69, "", 0.71, "info"),
    ("loss_jump_down", "rows", lambda x: {"train/loss": then(200, 2.0, int(x), 1.0)}, 7, "", 8, "info"),
    ("loss_slide", "fall", lambda x: slide(x), 0.61, "", 0.59, "warning"),
    ("loss_slide", "worse", lambda x: slide(worse=x), 1.015, "", 1.025, "warning"),
    ("loss_slide", "given", lambda x: slide(x, 1.0 / 0.97), 0.106, "warning", 0.100, "critical"),
    ("zero_loss", "rows", lambda x: {"train/loss": np.r_[wavy(50), np.zeros(int(x)), wavy(20)]}, 4, "", 5, "critical"),
    ("zero_loss", "fitted", lambda x: {"train/loss": np.r_[wavy(50, x), np.zeros(9)]}, 0.051, "critical", 0.049,
     "info"),
    ("frozen_loss", "rows", lambda x: {"train/loss": np.r_[wavy(90), np.full(int(x), 1.2345), wavy(9)]},
     7, "", 8, "warning"),
    ("loss_level", "spike", lambda x: {"train/loss": np.r_[np.ones(100), np.full(3, x), np.ones(9)]},
     9.9, "", 10.1, "warning"),
    ("loss_level", "stop", lambda x: {"train/loss": np.r_[np.ones(100), np.full(3, x), np.ones(9)]},
     99.0, "warning", 101.0, "critical"),
    ("loss_level", "average", lambda x: {"train/loss": np.r_[np.ones(100), np.full(20, 5.0), x, x]},
     23.0, "", 23.6, "warning"),
    ("initial_loss", "above", lambda x: {"train/loss": x - wavy(9, 0.1)}, 7.5, "", 7.52, "info"),
    ("initial_loss", "times", lambda x: {"train/loss": x - wavy(9, 0.1)}, 13.9, "info", 13.93, "warning"),
    ("gradient_norm_range", "high", lambda x: {"train/norm": wavy(64, x)}, 99.0, "", 101.0, "info"),
    ("gradient_norm_range", "quiet", lambda x: {"train/norm": wavy(64, x)}, 0.011, "", 0.009, "info"),
    ("exploding_gradient", "ratio", lambda x: {"train/norm": then(160, 1.0, 48, x)}, 9.9, "", 10.1, "warning"),
    ("gradient_decay", "share", lambda x: {"train/norm": then(32, 1.0, 96, x), "train/loss": wavy(128)},
     0.102, "", 0.098, "warning"),
    ("gradient_decay", "loss", lambda x: {"train/norm": then(32, 1.0, 96, 0.05), "train/loss": then(32, 1.0, 96, x)},
     0.945, "", 0.955, "warning"),
    ("zero_gradient", "rows", lambda x: {"train/norm": np.r_[wavy(40), np.zeros(int(x)), wavy(9)]}, 2, "", 3,
     "critical"),
    ("gradient_spread", "spread", every("model/flow_spread", 10), 99.0, "", 101.0, "info"),
    ("early_growth", "grown", lambda x: {"model/param_norm": np.linspace(1.0, x, 50)}, 1.99, "", 2.01, "info"),
    ("early_growth", "at_once", lambda x: {"model/param_norm": np.linspace(1.0, 2.0, int(x))}, 34, "info", 33,
     "warning"),
    ("update_ratio", "high", every("model/update_p50", 10, 20), 0.099, "", 0.101, "warning"),
    ("weight_norm_growth", "step", lambda x: {"model/param_norm": then(20, 1.0, 20, x)}, 1.49, "", 1.51, "warning"),
    ("learning_rate_jump", "ratio", lambda x: {"train/lr": np.r_[np.full(40, 1.0), np.full(20, x)]}, 1.49, "", 1.51,
     "warning"),
    ("learning_rate_jump", "critical", lambda x: {"train/lr": np.r_[np.full(40, 1.0), np.full(20, x)]},
     2.99, "warning", 3.01, "critical"),
    ("learning_rate_constant", "share", lambda x: {"train/lr": np.linspace(1.0, x, 120)}, 0.89, "", 0.91, "info"),
    ("attention_logits", "informs", layers("activations/*/attention_logit_max", 3), 49.0, "", 51.0, "info"),
    ("attention_logits", "high", layers("activations/*/attention_logit_max", 3), 99.0, "info", 101.0, "warning"),
    ("attention_entropy", "low", layers("activations/*/attention_entropy", 6, others=0.9), 0.11, "", 0.09, "info"),
    ("dead_units", "informs", layers("activations/*/dead", 3), 0.49, "", 0.51, "info"),
    ("dead_units", "warns", layers("activations/*/dead", 3), 0.89, "info", 0.91, "warning"),
    ("saturated_units", "informs", layers("activations/*/saturated", 3), 0.49, "", 0.51, "info"),
    ("load_imbalance", "informs", every("moe/load_imbalance", 10), 2.49, "", 2.51, "info"),
    ("load_imbalance", "warns", every("moe/load_imbalance", 10), 2.99, "info", 3.01, "warning"),
    ("load_imbalance", "critical", every("moe/load_imbalance", 10), 4.99, "warning", 5.01, "critical"),
    ("expert_utilization", "informs", every("moe/expert_utilization", 10), 0.71, "", 0.69, "info"),
    ("expert_utilization", "warns", every("moe/expert_utilization", 10), 0.51, "info", 0.49, "warning"),
    ("expert_utilization", "critical", every("moe/expert_utilization", 10), 0.26, "warning", 0.24, "critical"),
    ("router_entropy", "informs", every("moe/router_entropy", 10), 0.51, "", 0.49, "info"),
    ("router_entropy", "warns", every("moe/router_entropy", 10), 0.051, "info", 0.049, "warning"),
    ("dropped_tokens", "informs", every("moe/dropped_fraction", 10), 0.049, "", 0.051, "info"),
    ("dropped_tokens", "warns", every("moe/dropped_fraction", 10), 0.29, "info", 0.31, "warning"),
    ("padding", "share", every("data/padding_share", 1, 40), 0.49, "", 0.51, "info"),
    ("padding", "records", lambda x: {"data/padding_share": np.full(int(x), 0.6)}, 31, "", 32, "info"),
    ("ignored_labels", "share", every("data/ignored_share", 1), 0.998, "", 1.0, "critical"),
    ("ignored_labels", "records", lambda x: {"data/ignored_share": np.ones(int(x))}, 4, "", 5, "critical"),
    ("step_tokens", "change", lambda x: {"train/step_tokens": np.r_[np.full(64, 1000), np.full(64, 1000 * x)]},
     1.09, "", 1.11, "info"),
    ("evaluation_gap", "ratio", lambda x: evaluations(x, 6), 1.49, "", 1.51, "info"),
    ("evaluation_better", "share", lambda x: evaluations(x, 8), 0.91, "", 0.89, "info"),
    ("evaluation_better", "evaluations", lambda x: evaluations(0.5, int(x)), 4, "", 5, "info"),
    ("policy_clipping", "share", policy("train/clip_ratio"), 0.29, "", 0.31, "warning"),
    ("sampling_mismatch", "difference", policy("sampling_logp_difference/mean"), 0.49, "", 0.51, "warning"),
    ("clipped_completions", "share", policy("completions/clipped_ratio"), 0.49, "", 0.51, "warning"),
    ("clipped_completions", "more", lambda x: policy("completions/clipped_ratio", 0.6 - x)(0.6),
     0.29, "info", 0.31, "warning"),
    ("throughput_drop", "informs", lambda x: {"train/tokens_per_second": then(200, 5000.0, 90, 5000 * x)},
     0.91, "", 0.89, "info"),
    ("input_bound", "informs", lambda x: {"speed/step_ms": wavy(60, 100.0), "speed/phase/data_ms": wavy(60, 100 * x)},
     0.099, "", 0.101, "info"),
    ("input_bound", "warns", lambda x: {"speed/step_ms": wavy(60, 100.0), "speed/phase/data_ms": wavy(60, 100 * x)},
     0.325, "info", 0.335, "warning"),
    ("impossible_mfu", "informs", lambda x: {"train/mfu": wavy(32, x)}, 0.749, "", 0.751, "info"),
    ("impossible_mfu", "warns", lambda x: {"train/mfu": wavy(32, x)}, 0.995, "info", 1.005, "warning"),
    ("device_memory", "informs", every("memory/mem_utilization", 1), 0.919, "", 0.921, "info"),
    ("device_memory", "share", every("memory/mem_utilization", 1), 0.949, "info", 0.951, "warning"),
    ("host_memory", "share", lambda x: {"host/memory_used": np.full(5, x), "host/memory_limit": np.ones(5)},
     0.949, "", 0.951, "warning"),
    ("host_memory", "records",
     lambda x: {"host/memory_used": np.r_[np.ones(int(x)), 0.1], "host/memory_limit": np.ones(9)}, 2, "", 3, "warning"),
    ("disk_full", "warns", lambda x: {"host/disk_free": np.full(3, x * GIB)}, 1.01, "", 0.99, "warning"),
    ("disk_full", "critical", lambda x: {"host/disk_free": np.full(3, x * GIB)}, 0.101, "warning", 0.099, "critical"),
    ("device_throttled", "hot", lambda x: {"gpu/0/temperature": np.full(5, x)}, 84.9, "", 85.1, "info"),
    ("device_throttled", "records", lambda x: {"gpu/0/temperature": np.r_[np.full(int(x), 90.0), 60.0]},
     2, "", 3, "info"),
    ("low_utilization", "busy", lambda x: {"gpu/0/gpu_util": np.full(45, x)}, 51.0, "", 49.0, "info"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{rule}.{threshold}" for rule, threshold, *_ in CASES])
def test_a_threshold_parts_what_is_silent_from_what_speaks(case: tuple[Any, ...]) -> None:
    rule, _, build, short, milder, beyond, graver = case
    assert worst(rule, build(short), vocabulary=1000) == milder
    assert worst(rule, build(beyond), vocabulary=1000) == graver
    cuts = (80, 120)  # in pieces the quick ways through long stretches count too
    assert worst(rule, build(short), cuts, vocabulary=1000) == milder
    assert worst(rule, build(beyond), cuts, vocabulary=1000) == graver


@pytest.mark.parametrize(("slower", "speaks"), [(0.099, ""), (0.101, "warning")])
def test_a_rank_counts_as_slow_from_a_tenth_on(slower: float, speaks: str) -> None:
    event = Record("straggler", 0, 40, {"rank": 1, "slower_by": slower})
    assert worst("straggler", {"train/loss": wavy(50)}, events=[event]) == speaks
