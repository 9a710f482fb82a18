"""Evaluations whose loop sets training mode again, and what only looks like them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_model_state import classifier, loud

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


def train(
    folder: Path, part: nn.Module, passes: str, rows: Sequence[int] = (), every: int = 5, same: bool = False
) -> tuple[list[dict[str, Any]], Any]:
    """A small training. passes: of an evaluation, `e` in evaluation mode, `t` in training mode. same: of one batch."""
    torch.set_num_threads(1)
    model = classifier(part)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for step in range(1, 31):
        model.train()
        loss = functional.cross_entropy(model(torch.randn(48, 12)), torch.randint(0, 6, (48,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item()}, step=step)
        if step % every == 0:
            losses, batch = [], torch.randn(48, 12)
            for at, mode in enumerate(passes):
                model.train(mode == "t")
                with torch.no_grad():
                    given = batch if same else torch.randn((*rows, *[48] * 9)[at], 12)
                    losses.append(functional.cross_entropy(model(given), torch.randint(0, 6, (len(given),))).item())
            run.log({"eval/loss": sum(losses) / len(losses)}, step=step)
    run.finish()
    stored = barograph.read(str(run.dir))[0]
    return diagnose(stored)["findings"], stored


@pytest.mark.parametrize(
    ("passes", "how", "told"),
    [
        ("ettt", {}, True),
        ("ett", {"rows": (48, 48, 10)}, True),  # the last batch is smaller
        ("ettett", {}, True),  # of two data sets, with one function
        ("eeee", {}, False),
        ("et", {}, False),  # hardly more than nothing
        ("eettt", {}, False),  # the evaluation was over: these are something else
        ("tteee", {}, False),
        ("etttt", {"same": True}, False),  # predictions of the same rows are drawn with dropout on
        ("ettt", {"rows": (8,)}, False),  # of an example or a few, and of other batches
        ("ettt", {"every": 1}, False),  # each step has them: they are its own
    ],
)
def test_training_mode_that_is_set_within_the_loop_over_what_is_held_out(
    tmp_path: Path, passes: str, how: dict[str, Any], told: bool
) -> None:
    findings, run = train(tmp_path, nn.Dropout(0.3), passes, **how)
    assert ("model_mode" in dict(loud(findings))) is told
    if told:
        causes = next(one["causes"] for one in findings if one["rule"] == "model_mode")
        assert "within the loop" in causes[0]
        assert set(run.series("model/training_within_evaluation").value.tolist()) == {1.0}


def test_passes_in_training_mode_gather_statistics_of_batch_norm(tmp_path: Path) -> None:
    findings, run = train(tmp_path, nn.BatchNorm1d(24), "etttt")
    assert "model_mode" not in dict(loud(findings))
    assert not any("within_evaluation" in name for name in run.all_columns("all"))
