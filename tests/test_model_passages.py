"""Texts of an evaluation that are among those of the training, packed, cut or masked anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose
from barograph.probes.model.passages import SIZES, TAKEN, marks

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

WORDS, LONG, MASK = 60, 48, 59


def documents(seed: int, count: int, kind: str = "") -> list[Any]:
    """Of 14 to 30 tokens, each likely behind few others, as in a text; of forms, between the same first and last."""
    dice = torch.Generator().manual_seed(seed)
    follow = torch.randint(1, 50, (WORDS, 6), generator=torch.Generator().manual_seed(0))
    made = []
    for size in torch.randint(14, 31, (count,), generator=dice).tolist():
        words = [int(torch.randint(1, 50, (1,), generator=dice))]
        for chosen in torch.randint(0, 6, (size - 1,), generator=dice).tolist():
            words.append(int(follow[words[-1], chosen]))
        text = torch.tensor(words)
        made.append(torch.cat([torch.arange(1, 15), text[:6], torch.arange(15, 26)]) if kind == "forms" else text)
    return made


def packed(texts: list[Any], seed: int) -> Any:
    """Rows of one text behind the other, with an end behind each, in an order of chance."""
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    stream = torch.cat([torch.cat([texts[at], torch.zeros(1, dtype=torch.long)]) for at in order])
    return stream[: len(stream) // LONG * LONG].view(-1, LONG)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.head = (
            nn.Embedding(WORDS, 24),
            nn.GRU(24, 24, batch_first=True),
            nn.Linear(24, WORDS),
        )

    def forward(self, rows: Any) -> Any:
        return self.head(self.mix(self.words(rows))[0])


def finding(folder: Path, given: list[Any], held_out: list[Any], masks: bool) -> Any:
    """What is said of the evaluation's texts; the last figures."""
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    run = barograph.init(dir=str(folder), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    held, epoch, rows = packed(held_out, 1), 0, torch.zeros(0, LONG, dtype=torch.long)
    dice = torch.Generator().manual_seed(9)
    fixed = torch.rand(held.shape, generator=dice) < 0.15

    def loss_of(text: Any, told: Any) -> Any:
        output = model(text.masked_fill(told, MASK) if masks else text)
        labels = text.masked_fill(~told, -100) if masks else text
        output, labels = (output, labels) if masks else (output[:, :-1], labels[:, 1:])
        return functional.cross_entropy(output.flatten(0, 1), labels.flatten(), ignore_index=-100)

    for step in range(1, 101):
        if len(rows) < 16:
            epoch, rows = epoch + 1, torch.cat([rows, packed(given, 100 + epoch)])
        text, rows = rows[:16], rows[16:]
        loss = loss_of(text, torch.rand(text.shape, generator=dice) < 0.15)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logged = {"loss": loss.item()}
        if step % 20 == 0:
            with torch.no_grad():
                logged["val_loss"] = loss_of(held, fixed).item()
        run.log(logged, step=step)
    run.finish()
    stored = barograph.StoredRun(run.dir)
    figures = {name: float(stored.series(f"model/evaluated_passages{name}").y[-1]) for name in ("", "_chance")}
    return [one for one in diagnose(stored)["findings"] if one["rule"] == "evaluation_overlaps"], figures


@pytest.mark.parametrize(
    ("kind", "masks", "told"),
    [("held out", False, False), ("packed anew", False, True), ("half of them", False, True),
     ("masked anew", True, True),
     ("held out", True, False), ("forms", False, False), ("a few", False, False)],
)  # fmt: skip
def test_texts_that_are_on_both_sides_are_found_however_they_are_packed_or_masked(
    tmp_path: Path, kind: str, masks: bool, told: bool
) -> None:
    forms = "forms" if kind == "forms" else ""
    given, held_out = documents(1, 300, forms), documents(2, 160, forms)
    shared = {"packed anew": 160, "masked anew": 160, "half of them": 80, "a few": 8}.get(kind, 0)
    found, figures = finding(tmp_path, given + held_out[:shared], held_out, masks)
    assert bool(found) == told, figures
    if told:
        assert found[0]["causes"][0].startswith("validation leak") and found[0]["severity"] == "warning"
    assert kind != "forms" or figures["_chance"] > 0.9, "what forms have in common is there by chance"


def test_passages_are_the_same_wherever_they_stand_and_padding_has_none() -> None:
    text = documents(5, 1)[0][:14]
    rows = torch.zeros(3, 40, dtype=torch.long)
    rows[0, :14] = rows[1, 20:34] = text
    found = marks(rows)
    assert found is not None and found.shape == (3, len(SIZES), TAKEN)
    first, second, empty = ({one for one in row.ravel().tolist() if one >= 0} for row in found)
    assert len(first & second) >= 3 and not empty
    assert marks(rows.float()) is None and marks(rows[0]) is None and marks(rows[:, :4]) is None


@pytest.mark.parametrize("kind", [torch.int32, torch.int64, torch.uint8])
def test_passages_are_the_same_in_every_kind_of_whole_numbers(kind: Any) -> None:
    rows = torch.stack(documents(6, 1) * 2).to(kind)
    wide = marks(rows.long())
    found = marks(rows)
    assert wide is not None and found is not None and (wide == found).all()
