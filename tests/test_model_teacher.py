"""Teachers that are trained by the divergence that they are the target of, and what looks like them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

ROWS, STEPS = 16, 40


class Both(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.kind = kind
        self.shared = nn.Linear(8, 8)
        self.student, self.teacher = (nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5)) for _ in range(2))
        if kind == "frozen":
            self.teacher.requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.tanh(self.shared(x)) if self.kind == "one encoder" else x
        with torch.set_grad_enabled(self.kind != "without gradient"):
            theirs = self.teacher(both)
        return self.student(both), theirs


def loss_of(model: Both, x: Tensor, labels: Tensor) -> Tensor:
    mine, theirs = model(x)
    if model.kind == "mixture":  # Jensen and Shannon's: what is compared has parameters of both
        half = (mine.softmax(-1) + theirs.softmax(-1)) / 2
        return sum(functional.kl_div(half.log(), one.softmax(-1), reduction="batchmean") for one in (mine, theirs)) / 2
    soft = functional.kl_div((mine / 2).log_softmax(-1), (theirs / 2).softmax(-1), reduction="batchmean") * 4
    loss = 0.5 * soft + 0.5 * functional.cross_entropy(mine, labels)
    if model.kind == "prior":  # of a latent: it is what is compared, and the other side has a loss of its own
        loss = functional.kl_div(theirs.log_softmax(-1), mine.softmax(-1), reduction="batchmean")
        loss = loss + functional.cross_entropy(mine, labels)
    elif model.kind == "both learn":
        loss = loss + functional.cross_entropy(theirs, labels)
    elif model.kind == "from each other":
        loss = loss + functional.kl_div(theirs.log_softmax(-1), mine.softmax(-1), reduction="batchmean")
    return loss


KINDS = {
    "trained": True, "frozen": False, "without gradient": False, "not in the optimizer": False, "both learn": False,
    "from each other": False, "one encoder": False, "prior": False, "mixture": False,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_teacher_that_learns_what_its_student_says_is_found(tmp_path: Path, kind: str) -> None:
    torch.set_num_threads(1)
    model, dice = Both(kind), torch.Generator().manual_seed(4)
    held = model.student if kind == "not in the optimizer" else model
    optimizer = torch.optim.AdamW([one for one in held.parameters() if one.requires_grad], 1e-3)
    run: Any = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for step in range(STEPS):
        x, labels = torch.randn(ROWS, 8, generator=dice), torch.randint(5, (ROWS,), generator=dice)
        loss = loss_of(model, x, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    findings = barograph.diagnose(str(run.dir))["findings"]
    told = [part for one in findings for part in (*one["evidence"].get("story", ()), one)]
    found = [one for one in told if one["rule"] == "trained_target"]
    assert bool(found) == KINDS[kind]
    if found:
        assert (found[0]["severity"], found[0]["step"]) == ("warning", 0)
