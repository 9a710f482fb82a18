"""Losses of agents, which may rise while the agent gets better, and losses beside which something looks like one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rule_curves import falling, found, warned

from barograph.doctor.diagnosis import diagnose
from barograph.doctor.rules.loss import loss as of_loss
from barograph.doctor.rules.loss import progress
from barograph.importing.read import read

ROWS = 300
AT = np.arange(ROWS)
RISES = 0.05 * np.exp(3 * AT / ROWS) * np.exp(np.random.default_rng(3).normal(0, 0.3, ROWS))
DIVERGES = 0.7 * np.exp(0.6 * np.clip((AT - 90) / 60, 0, 1)) * np.exp(np.random.default_rng(1).normal(0, 0.02, ROWS))


def look(loss: np.ndarray, **beside: np.ndarray) -> bool:
    series = {"train/loss": (AT, loss)} | {name.replace("__", "/"): (AT, values) for name, values in beside.items()}
    return warned(found([rule() for rule in (*progress.RULES, *of_loss.RULES)], series))


@pytest.mark.parametrize("loss", [RISES, DIVERGES], ids=["rises", "level"])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("epsilon", np.maximum(0.05, 0.98**AT)),
        ("rollout__exploration_rate", np.linspace(1, 0.02, ROWS)),
        ("mean_q", np.linspace(0.1, 30, ROWS)),
        ("avg_q_value", np.linspace(0.1, 30, ROWS)),
        ("episode_length", np.linspace(20, 200, ROWS)),
        ("replay_buffer", np.linspace(20, 2e4, ROWS)),
    ],
)
def test_the_loss_of_an_agent_may_rise(loss: np.ndarray, name: str, values: np.ndarray) -> None:
    assert look(loss)
    assert not look(loss, **{name: values})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("epsilon", np.full(ROWS, 0.1)),  # of smoothed labels
        ("epsilon", np.linspace(0.2, 0.9, ROWS)),  # of privacy that is spent
        ("eps", np.linspace(512, 480, ROWS)),  # examples per second
        ("optimizer__0.bias__below_eps", np.linspace(1, 0.02, ROWS)),  # Adam's
        ("grad_q_norm", falling(ROWS)),
        ("episodes_seen", AT.astype(float)),
    ],
)
def test_what_looks_like_an_agent_excuses_nothing(name: str, values: np.ndarray) -> None:
    assert look(DIVERGES, **{name: values})


def _warned(text: str, path: Path) -> bool:
    path.write_text(text)
    return any(one["severity"] != "info" for one in diagnose(read(path)[0])["findings"])


@pytest.mark.parametrize("row", ["Episode {at}: loss {loss:.5f}\n", "{at},{loss:.5f}\n"], ids=["lines", "table"])
def test_a_loss_by_episodes_may_rise_without_an_accuracy(row: str, tmp_path: Path) -> None:
    body = "".join(row.format(at=at, loss=loss) for at, loss in enumerate(RISES, 1))
    table = row[0] == "{"
    path = tmp_path / ("table.csv" if table else "small.log")
    assert not _warned("episode,loss\n" * table + body, path)
    assert _warned("step,loss\n" * table + body.replace("Episode", "Step"), tmp_path / f"other_{path.name}")


def test_few_shot_episodes_with_an_accuracy_are_no_agent(tmp_path: Path) -> None:
    lines = [f"Episode {at}: loss {loss:.4f}, accuracy {1 / (1 + loss):.4f}\n" for at, loss in enumerate(DIVERGES, 1)]
    assert _warned("".join(lines), tmp_path / "small.log")
