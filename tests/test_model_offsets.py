"""Numbers that are added to the logits of classes before the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

SHARES = (0.5, 0.25, 0.15, 0.1)


def train(folder: Path, adds: Any, shares: tuple[float, ...] = SHARES, **how: Any) -> tuple[list[float], set[str]]:
    """What was recorded of the offsets, and rules that say something. adds: to the logits, of the shares."""
    torch.set_num_threads(1)
    torch.manual_seed(3)
    rows, model = torch.randn(2000, 12), nn.Linear(12, len(shares))
    targets = torch.multinomial(torch.tensor(shares), 2000, replacement=True)
    rows[torch.arange(2000), targets] += 2.0
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = barograph.init(project="p", dir=folder, console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(60):
        some = torch.randint(2000, (48,))
        logits = model(rows[some]) + adds(torch.tensor(shares).log())
        loss = functional.cross_entropy(logits, targets[some], **how)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    stored = barograph.StoredRun(run.dir)
    name = "model/class_offset_slope"
    slopes = stored.series(name).value.tolist() if name in stored.names() else []
    return slopes, {one["rule"] for one in diagnose(stored)["findings"]}


@pytest.mark.parametrize(("sign", "found"), [(-1.0, True), (-0.5, True), (1.0, False)])
def test_logits_that_are_adjusted_the_wrong_way_round_are_found(tmp_path: Path, sign: float, found: bool) -> None:
    slopes, rules = train(tmp_path, lambda prior: sign * prior)
    assert slopes and abs(slopes[-1] - sign) < 0.3
    assert ("class_offsets_inverted" in rules) == found


@pytest.mark.parametrize(
    ("adds", "shares", "how"),
    [
        (lambda prior: 0.0, SHARES, {}),
        (lambda prior: 0.0, SHARES, {"weight": torch.tensor([1.0, 2.0, 3.0, 4.0])}),
        (lambda prior: 0.0, SHARES, {"label_smoothing": 0.1}),
        (lambda prior: torch.tensor([0.0, 1.0, 2.0, 3.0]), (0.25,) * 4, {}),  # classes are alike
        (lambda prior: torch.tensor([2.0, -2.0, 2.0, -2.0]), SHARES, {}),  # by nothing of their frequency
        (lambda prior: -prior[:2], (0.8, 0.2), {}),  # too few to see
        (lambda prior: torch.randn(48, 1) + 0.3 * torch.randn(48, 4), SHARES, {}),  # each row has its own
    ],
)
def test_other_losses_show_no_offsets_of_classes(
    tmp_path: Path, adds: Any, shares: tuple[float, ...], how: dict[str, Any]
) -> None:
    slopes, rules = train(tmp_path, adds, shares, **how)
    assert not slopes and "class_offsets_inverted" not in rules
