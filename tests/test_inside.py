"""The model from inside, on one screen."""

from __future__ import annotations

import math
from pathlib import Path

import barograph
from barograph.views.inside import expert_lines, flow_lines


def watched(folder: Path, blocks: int = 3, **norms: float) -> barograph.StoredRun:
    with barograph.init(project="p", dir=folder, verbosity=-2, git=False) as run:
        layers = {f"h.{n}.{part}.weight": {"norm": 3.0 / (n + 1)} for n in range(blocks) for part in ("a", "b")}
        layers |= {"wte.weight": {"norm": 0.5}, "norm.weight": {"norm": 0.0}}
        layers |= {name: {"norm": norm} for name, norm in norms.items()}
        run.log_layers(1, layers, "gradients")
        run.log_layers(1, {name: {"ratio": 1e-3} for name in layers}, "updates")
        run.log_expert_loads(1, {"h.0.mlp": [10, 0, 20, 10], "h.1.mlp": [5, 5, 5, 5]})
    return barograph.runs(folder)[0]


def test_blocks_stand_in_their_order_with_the_norm_of_all_their_tensors(tmp_path: Path) -> None:
    lines = flow_lines(watched(tmp_path))
    assert [line.split()[0] for line in lines[2:]] == ["wte", "h.0", "h.1", "h.2", "norm"]
    assert f"{math.sqrt(2) * 3:.4f}" in lines[3] and "1.0e-03" in lines[3]
    assert lines[3].count("█") > lines[5].count("█") > 0 and "█" not in lines[6]
    assert all(len(line) <= 80 for line in lines)


def test_a_deep_model_keeps_its_ends(tmp_path: Path) -> None:
    lines = flow_lines(watched(tmp_path, blocks=90))
    assert len(lines) < 30 and "more blocks" in "\n".join(lines)
    assert any(line.split()[0] == "h.0" for line in lines[2:]) and any(line.split()[0] == "h.89" for line in lines[2:])


def test_a_gradient_that_is_not_finite_is_seen(tmp_path: Path) -> None:
    lines = flow_lines(watched(tmp_path, **{"h.1.c.weight": math.nan, "head.weight": math.inf}))
    assert any("nan" in line and line.split()[0] == "h.1" for line in lines)
    assert any("inf" in line and line.split()[0] == "head" for line in lines)


def test_experts_show_their_share_and_those_that_get_nothing(tmp_path: Path) -> None:
    lines = expert_lines(watched(tmp_path))
    assert [line.split()[0] for line in lines[2:]] == ["h.0.mlp", "h.1.mlp"]
    assert "▄·█▄" in lines[2] and "2.00" in lines[2] and lines[2].split()[-1] == "1"
    assert lines[3].split()[2:] == ["1.00", "1.00", "0"]


def test_names_of_others_cannot_drive_the_terminal(tmp_path: Path) -> None:
    lines = flow_lines(watched(tmp_path, **{"\x1b[31mred.0.weight" + "x" * 100: 1.0}))
    assert not any("\x1b" in line for line in lines) and all(len(line) <= 80 for line in lines)


def test_a_run_without_a_watch_shows_nothing(tmp_path: Path) -> None:
    with barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False) as run:
        run.log({"train/loss": 1.0})
    stored = barograph.runs(tmp_path)[0]
    assert flow_lines(stored) == expert_lines(stored) == []
