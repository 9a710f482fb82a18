"""Importance: what explains a metric is found, what does not is not claimed, and what can't be known is said."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_runs import falling, make_run

import barograph
from barograph.analysis.importance.explain import CANNOT_TELL, EXPLAINS, NOT_SHOWN, TOGETHER, Importance, explain
from barograph.cli import main

Config = dict[str, Any]


def outcomes(found: Importance) -> dict[str, str]:
    return {item.key: item.outcome for item in found.keys}


def drawn(number: int, seed: int, **draw: Any) -> list[Config]:
    """Configurations with values drawn at random; draw: key → what draws one."""
    random = np.random.default_rng(seed)
    return [{key: one(random) for key, one in draw.items()} for _ in range(number)]


def rate(random: np.random.Generator) -> float:
    return float(10 ** random.uniform(-5, -1))


def word(random: np.random.Generator) -> str:
    return str(random.choice(["adamw", "muon", "lion"]))


def test_a_key_that_explains_is_found_and_the_others_are_not_claimed() -> None:
    configs = drawn(40, 1, lr=rate, optimizer=word, dropout=lambda random: float(random.uniform()))
    random = np.random.default_rng(2)
    found = explain(configs, [math.log10(config["lr"]) + 0.3 * random.standard_normal() for config in configs], "loss")
    assert outcomes(found) == {"lr": EXPLAINS, "optimizer": NOT_SHOWN, "dropout": NOT_SHOWN}
    first = found.keys[0]
    assert 0.7 < first.low < first.share < first.high <= 1 and first.p < 0.01 and first.trend == "rises"
    assert found.sentences[0] == first.sentence and first.sentence.startswith("lr explains")


def test_an_optimum_in_the_middle_is_seen_and_named() -> None:
    rates = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
    configs = [{"lr": lr, "seed": seed, "d": (at + seed) % 2} for seed in range(4) for at, lr in enumerate(rates)]
    found = explain(configs, [abs(math.log10(config["lr"]) + 3) for config in configs], "loss")
    assert found.keys[0].key == "lr" and found.keys[0].outcome == EXPLAINS
    assert found.keys[0].best == "0.001" and found.keys[0].trend == ""


def test_words_explain_as_numbers_do() -> None:
    configs = drawn(30, 3, optimizer=word, width=lambda random: int(random.choice([128, 256])))
    found = explain(configs * 1, [len(config["optimizer"]) + 0.0 for config in configs], "loss")
    assert {item.key for item in found.keys if item.outcome == EXPLAINS} <= {"optimizer"}
    assert found.keys[0].best in ("muon", "lion")  # both of four letters


def test_a_small_effect_beside_a_large_one_is_found_in_a_grid() -> None:
    configs = [{"lr": lr, "width": width, "seed": seed}
               for lr in (1, 2, 3, 4, 5) for width in (128, 256, 512) for seed in (0, 1)]  # fmt: skip
    random = np.random.default_rng(0)
    values = [config["lr"] - config["width"] / 1000 + 0.01 * random.standard_normal() for config in configs]
    found = explain(configs, values, "loss")
    assert outcomes(found) == {"lr": EXPLAINS, "width": EXPLAINS} and found.configurations == 15
    assert found.repeats is not None and found.repeats < 0.05


def test_six_runs_can_not_tell() -> None:
    configs = [{"lr": float(at), "seed": at} for at in range(6)]
    found = explain(configs, [float(at) for at in range(6)], "loss")
    assert outcomes(found) == {"lr": CANNOT_TELL}
    assert "at least 8" in found.sentences[0] and found.keys[0].p is None


def test_seeds_are_no_configurations() -> None:
    """Twenty runs of two settings: whatever explains them, the settings were drawn twice."""
    configs = [{"lr": float(at % 2), "seed": at} for at in range(20)]
    found = explain(configs, [float(at % 2) for at in range(20)], "loss")
    assert found.configurations == 2 and EXPLAINS not in outcomes(found).values()


def test_keys_that_vary_together_are_not_told_apart() -> None:
    random = np.random.default_rng(4)
    configs = []
    for _ in range(40):
        width = int(random.choice([128, 256, 512]))
        configs.append({"width": width, "heads": width // 64, "decay": float(random.uniform())})
    values = [config["width"] + random.standard_normal() for config in configs]
    found = explain(configs, values, "loss")
    by_key = {item.key: item for item in found.keys}
    assert {by_key["width"].outcome, by_key["heads"].outcome} == {EXPLAINS, TOGETHER}
    for one, other in (("width", "heads"), ("heads", "width")):
        assert by_key[one].together == {other: 1.0} and other in by_key[one].sentence
    assert by_key["decay"].outcome == NOT_SHOWN


def test_constants_and_names_are_listed_and_not_tested() -> None:
    configs = [{**config, "layers": 12, "note_id": f"x{at}"} for at, config in enumerate(drawn(12, 5, lr=rate))]
    found = explain(configs, [config["lr"] for config in configs], "loss")
    assert found.constant == ["layers"] and found.apart == ["note_id"] and list(outcomes(found)) == ["lr"]
    alike = explain([{"lr": 1, "seed": at} for at in range(12)], [float(at) for at in range(12)], "loss")
    assert alike.keys == [] and alike.configurations == 1


def test_what_a_run_lacks_is_a_value_of_its_own() -> None:
    configs = drawn(24, 6, lr=rate)
    for at, config in enumerate(configs):
        if at % 2:
            config["warmup"] = at % 4
    found = explain(configs, [float("warmup" in config) for config in configs], "loss")
    by_key = {item.key: item for item in found.keys}
    assert by_key["warmup"].outcome == EXPLAINS and by_key["warmup"].lacking == 12
    assert by_key["warmup"].best == "absent"


def test_who_diverged_is_the_worst_and_who_has_no_value_is_left_out() -> None:
    configs = [{"lr": float(at // 4), "width": at % 4} for at in range(24)]
    values: list[float | None] = [math.nan if config["lr"] == 5 else 2.0 - 0.01 * config["width"] for config in configs]
    values[0] = None
    found = explain(configs, values, "loss")
    assert (found.runs, found.diverged, found.missing) == (23, 4, 1)
    assert outcomes(found)["lr"] == EXPLAINS and found.keys[0].best != "5"
    higher = explain(configs, [None if value is None else value for value in values], "accuracy")
    assert higher.diverged == 4 and outcomes(higher)["lr"] == EXPLAINS
    assert any("worst" in sentence for sentence in found.sentences)


def test_noise_is_seldom_claimed_to_be_explained() -> None:
    """The benchmark counts 2,000 of these; here enough to see a rate that is far off."""
    claimed, trials = 0, 60
    for seed in range(trials):
        configs = drawn(
            12 + seed % 20, seed, lr=rate, optimizer=word, width=lambda random: int(random.choice([1, 2, 4]))
        )
        values = np.random.default_rng(10_000 + seed).standard_normal(len(configs)).tolist()
        claimed += bool({EXPLAINS, TOGETHER} & set(outcomes(explain(configs, values, "loss")).values()))
    assert claimed <= 9  # of 60 at 5%: ten or more come once in 2,000


def test_the_answer_is_the_same_each_time_and_in_any_order_of_the_runs() -> None:
    configs = drawn(30, 8, lr=rate, optimizer=word)
    values = [math.log(config["lr"]) for config in configs]
    first, again = explain(configs, values, "loss"), explain(configs, values, "loss")
    assert first == again
    turned = explain(configs[::-1], values[::-1], "loss")
    assert outcomes(turned) == outcomes(first)
    assert turned.keys[0].share == pytest.approx(first.keys[0].share)


# -- runs, the command ------------------------------------------------------------------------------------


def some_runs(root: Path) -> None:
    for at in range(16):
        lr = (1, 2, 3, 4)[at % 4]
        # floats end in final_metrics as they were logged
        loss = falling(float(lr), at, noise=0.01)
        about = {"final_metrics": {"train/loss": lr + at / 1000}}
        make_run(root, f"r{at}", loss, steps=20, config={"lr": lr, "width": at // 4, "seed": at}, about=about)


def test_python_command_and_document_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some_runs(tmp_path)
    found = barograph.importance(dir=tmp_path, metric="train/loss")
    assert outcomes(found) == {"lr": EXPLAINS, "width": NOT_SHOWN} or outcomes(found)["lr"] == EXPLAINS
    assert main(["importance", "--dir", str(tmp_path), "--metric", "train/loss", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found.as_dict()))
    assert main(["importance", "--dir", str(tmp_path), "--metric", "train/loss"]) == 0
    text = capsys.readouterr().out
    assert "lr explains" in text and "KEY" in text and max(map(len, text.splitlines())) <= 120
    assert found.sentences[0].split(" explains")[0] in found.markdown()
    assert main(["importance", "--dir", str(tmp_path), "--metric", "train/loss", "--filter", "config.lr < 3"]) == 0
    assert "8 runs" in capsys.readouterr().out


def test_a_metric_that_nobody_has_is_refused_in_a_sentence(tmp_path: Path) -> None:
    some_runs(tmp_path)
    with pytest.raises(KeyError, match="none of 16 runs has a metric 'x'"):
        barograph.importance(dir=tmp_path, metric="x")
    assert barograph.importance(dir=tmp_path).metric == "train/loss"
    with pytest.raises(ValueError, match="'last' or its 'best'"):
        barograph.importance(dir=tmp_path, value="mean")
