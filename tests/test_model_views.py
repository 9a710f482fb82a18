"""Views that exchange dimensions without moving a number are seen in the graph of a loss; others are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose
from barograph.probes.model import views

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

ROWS, WIDE, SIDE, HEADS = 6, 24, 4, 3
PLACES, SIZE = SIDE * SIDE, WIDE // HEADS
patches, line, along = nn.Conv2d(1, WIDE, 4, 4), nn.Linear(WIDE, WIDE), nn.Conv1d(WIDE, 10, 3, padding=1)
norm, attends = nn.BatchNorm2d(WIDE), nn.MultiheadAttention(WIDE, HEADS, batch_first=True)


def pictures() -> Any:
    return patches(torch.randn(ROWS, 1, 16, 16))


def tokens(given: Any = None) -> Any:
    return (pictures() if given is None else given).flatten(2).transpose(1, 2)


def heads() -> Any:
    return line(tokens()).view(ROWS, PLACES, HEADS, SIZE).transpose(1, 2)


def attended() -> Any:
    return functional.scaled_dot_product_attention(heads(), heads(), heads())


def by_hand() -> Any:
    return (heads() @ heads().transpose(-1, -2)).softmax(-1) @ heads()


def found(made: Any) -> float:
    return views.figures(made.sum().grad_fn).get("mixed_views", 0)


@pytest.mark.parametrize(
    "made",
    [
        lambda: pictures().view(ROWS, -1, WIDE),
        lambda: functional.relu(norm(pictures())).reshape(ROWS, PLACES, WIDE),
        lambda: along(tokens().transpose(1, 2)).view(ROWS, PLACES, 10),
        lambda: line(tokens()).view(ROWS, HEADS, PLACES, SIZE),
        lambda: attended().reshape(ROWS, PLACES, WIDE),
        lambda: by_hand().contiguous().view(ROWS, PLACES, WIDE),
    ],
)
def test_a_view_in_place_of_a_transposition_is_seen(made: Callable[[], Any]) -> None:
    assert found(made()) == 1


@pytest.mark.parametrize(
    "made",
    [
        tokens,
        lambda: pictures().permute(0, 2, 3, 1).reshape(ROWS, -1, WIDE),
        lambda: pictures().view(ROWS, WIDE, -1),
        lambda: pictures().view(ROWS, 2, WIDE // 2, SIDE, SIDE).transpose(1, 2).reshape(ROWS, WIDE, SIDE, SIDE),
        lambda: pictures().permute(0, 2, 3, 1).contiguous().view(ROWS, -1, SIDE),  # several boxes a place
        heads,
        lambda: line(tokens()).reshape(ROWS, PLACES, 2, HEADS, SIZE // 2).permute(2, 0, 3, 1, 4),
        lambda: attended().transpose(1, 2).reshape(ROWS, PLACES, WIDE),
        lambda: by_hand().transpose(1, 2).contiguous().view(ROWS, PLACES, WIDE),
        lambda: attends(tokens(), tokens(), tokens())[0],
        lambda: line(tokens()[:, :1]).view(ROWS, HEADS, 1, SIZE),  # of one place nothing can be mixed
        lambda: functional.pad(by_hand() @ torch.randn(SIZE, 16), (1, 0)).view(ROWS, HEADS, 17, 16),  # relative places
        lambda: pictures().flatten(1).view(ROWS, PLACES, WIDE),  # whatever the numbers are, they were one line
    ],
)
def test_views_that_join_divide_or_follow_a_transposition_are_not(made: Callable[[], Any]) -> None:
    assert found(made()) == 0


@pytest.mark.parametrize("mixed", [True, False])
def test_patches_mixed_by_a_view_are_found_at_once(tmp_path: Path, mixed: bool) -> None:
    torch.manual_seed(0)
    head = nn.Linear(WIDE, 3)
    model = nn.ModuleList([patches, head])
    model.forward = lambda x: head(  # type: ignore[method-assign]
        (patches(x).view(len(x), -1, WIDE) if mixed else tokens(patches(x))).relu().mean(1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for step in range(6):
        loss = functional.cross_entropy(model(torch.randn(ROWS, 1, 16, 16)), torch.randint(3, (ROWS,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    findings = [one for one in diagnose(barograph.StoredRun(run.dir))["findings"] if one["rule"] == "mixed_views"]
    assert [(one["severity"], one["step"]) for one in findings] == [("warning", 0)] * mixed
