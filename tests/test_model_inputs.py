"""What the watch sees of a loss's input, of random labels, of inputs that should be masked and of batch norm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model import entrance, objective  # noqa: E402
from barograph.probes.model.outputs import FIGURES, figures  # noqa: E402
from barograph.probes.model.texts import elsewhere  # noqa: E402

RULE = torch.randn(12, 6, generator=torch.Generator().manual_seed(3)) * 3


def run_in(folder: Path) -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    quiet: dict[str, Any] = {"console": "none", "machine": False, "sidecar": False, "git": False}
    return barograph.init(project="p", name="n", dir=str(folder), **quiet)


def judged(run: Any) -> dict[str, Any]:
    """Findings by rule; of stories what stands there."""
    run.finish()
    findings = diagnose(barograph.StoredRun(run.dir))["findings"]
    return {part["rule"]: part for item in findings for part in (*item["evidence"].get("story", ()), item)}


LOSSES: dict[str, Any] = {
    "cross-entropy": functional.cross_entropy,
    "logarithms": lambda scores, target: functional.nll_loss(scores.log_softmax(1), target),
    "logarithm of probabilities": lambda scores, target: functional.nll_loss(scores.softmax(1).log(), target),
    "probabilities": lambda scores, target: functional.nll_loss(scores.softmax(1), target),
    "scores": lambda scores, target: functional.nll_loss(scores, target),
    "cut": lambda scores, target: functional.cross_entropy(scores.relu(), target),
    "bounded": lambda scores, target: functional.cross_entropy(5 * scores.tanh(), target),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_what_a_loss_is_given_shows_in_its_graph(kind: str) -> None:
    layer = nn.Linear(12, 6)
    root = LOSSES[kind](layer(torch.randn(8, 12)), torch.arange(8) % 6).grad_fn
    found = objective.figures(root)
    wanted = {"probabilities": "nll_of_probabilities", "scores": "nll_of_scores", "cut": "logits_cut"}.get(kind)
    said = [name for name in ("nll_of_probabilities", "nll_of_scores", "logits_cut") if found.get(name) == 1]
    assert said == ([wanted] if wanted else [])


@pytest.mark.parametrize("kind", ["probabilities", "cut", "cross-entropy", "bounded"])
def test_a_loss_that_is_given_something_else_is_found(tmp_path: Path, kind: str) -> None:
    run = run_in(tmp_path)
    model = nn.Linear(12, 6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.watch(model, optimizer)
    for step in range(200):
        inputs = torch.randn(32, 12)
        loss = LOSSES[kind](model(inputs), (inputs @ RULE).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    assert ("loss_input" in judged(run)) == (kind in ("probabilities", "cut"))


@pytest.mark.parametrize(("share", "confused", "found"), [(0.4, False, True), (0.0, False, False), (0.3, True, False)])
def test_random_labels_of_a_small_classifier_are_found_and_similar_classes_are_not(
    tmp_path: Path, share: float, confused: bool, found: bool
) -> None:
    run = run_in(tmp_path)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 6))
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
    run.watch(model, optimizer)

    def batch(noisy: bool) -> tuple[Any, Any]:
        inputs = torch.randn(64, 12)
        target = (inputs @ RULE).argmax(1)
        strange = (torch.rand(64) < share) & noisy
        other = (inputs @ RULE).topk(2, 1).indices[:, 1] if confused else torch.randint(6, (64,))
        return inputs, torch.where(strange, other, target)

    for step in range(300):
        inputs, target = batch(True)
        loss = functional.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row = {"loss": loss.item()}
        if step % 25 == 24:
            with torch.no_grad():
                inputs, target = batch(False)
                row["val_loss"] = functional.cross_entropy(model(inputs), target).item()
        run.log(row, step=step)
    assert ("noisy_labels" in judged(run)) == found


def test_where_wrong_targets_stand_is_half_for_chance_and_0_for_the_next_likely() -> None:
    torch.manual_seed(1)
    output = torch.randn(64, 20)
    order = output.argsort(1, descending=True)
    for target, wanted in ((order[:, 1], 0.0), (order[:, -1], 1.0), (order[:, 5], 4 / 18)):
        gradient = (output.softmax(1) - functional.one_hot(target, 20)) / 64
        named = dict(zip(FIGURES, figures(output, gradient).tolist(), strict=True))
        assert named["wrong_share"] == 1 and named["wrong_rank"] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("masked", [True, False])
def test_inputs_that_are_not_masked_are_the_cause_where_some_places_are_targets(tmp_path: Path, masked: bool) -> None:
    run = run_in(tmp_path)
    model = nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 40))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    run.watch(model, optimizer)
    for step in range(60):
        tokens = torch.randint(1, 40, (16, 24))
        hidden = torch.rand(tokens.shape) < 0.15
        given = tokens.masked_fill(hidden, 0) if masked else tokens
        target = tokens.masked_fill(~hidden, -100)
        loss = functional.cross_entropy(model(given).flatten(0, 1), target.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    found = judged(run).get("target_shift")
    assert (found is not None) == (not masked)
    if found is not None:
        assert "not masked" in str(found["causes"][0]) and found["step"] == 0


@pytest.mark.parametrize(("momentum", "found"), [(0.1, False), (None, False), (0.99, True)])
def test_a_batch_norm_of_the_last_batch_alone_is_found(tmp_path: Path, momentum: float | None, found: bool) -> None:
    run = run_in(tmp_path)
    model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16, momentum=momentum), nn.Linear(16, 6))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.watch(model, optimizer)
    for step in range(30):
        inputs = torch.randn(32, 12)
        loss = functional.cross_entropy(model(inputs), (inputs @ RULE).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    assert ("norm_momentum" in judged(run)) == found


@pytest.mark.parametrize("loaded", [True, False])
def test_adapters_in_a_model_that_was_not_loaded_are_found(tmp_path: Path, loaded: bool) -> None:
    class Adapted(nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base = base
            self.lora_A, self.lora_B = nn.Parameter(torch.randn(4, 12) / 4), nn.Parameter(torch.zeros(6, 4))

        def forward(self, inputs: Any) -> Any:
            return self.base(inputs) + inputs @ self.lora_A.T @ self.lora_B.T

    run = run_in(tmp_path)
    base = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 6))
    for item in base.parameters():
        nn.init.normal_(item, std=0.3) if item.dim() > 1 else None
        item.data.mul_(1.01 if loaded else 1.0)
        item.requires_grad_(False)
    model = Adapted(base)
    optimizer = torch.optim.AdamW([model.lora_A, model.lora_B], 1e-2)
    run.watch(model, optimizer)
    for step in range(30):
        inputs = torch.randn(32, 12)
        loss = functional.cross_entropy(model(inputs), (inputs @ RULE).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    found = judged(run)["frozen_group"]
    assert found["severity"] == ("info" if loaded else "warning")
    assert ("not loaded" in str(found["causes"][0])) == (not loaded)


@pytest.mark.parametrize(
    ("kind", "places_first", "wanted"),
    [
        ("right", False, 0), ("right", True, 0), ("rolled over rows", False, 1), ("flattened", False, 2),
        ("flattened", True, 2), ("rolled over places", False, 0), ("random", False, 0),
    ],
)  # fmt: skip
def test_targets_of_other_places_are_told_from_those_that_are_right(kind: str, places_first: bool, wanted: int) -> None:
    torch.manual_seed(2)
    texts = torch.randint(40, (6, 13))
    tokens, after = texts[:, :-1], texts[:, 1:]
    if places_first and kind == "right":
        tokens, after = tokens.T, after.T
    target = {
        "right": after, "rolled over rows": after.roll(-1, 0), "rolled over places": tokens.roll(-1, 1),
        "flattened": after.reshape(-1).view(12, 6) if places_first else after.reshape(-1).view(12, 6).T,
        "random": torch.randint(40, (6, 12)),
    }[kind]  # fmt: skip
    gradient = torch.full((*target.shape, 40), 0.01) - functional.one_hot(target, 40)
    assert float(elsewhere(tokens, gradient, torch.tensor(True))) == wanted


@pytest.mark.parametrize("kind", ["right", "rolled", "flattened"])
def test_a_language_model_that_is_compared_with_other_places_is_found(tmp_path: Path, kind: str) -> None:
    run = run_in(tmp_path)
    model = nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 40))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    run.watch(model, optimizer)
    for step in range(40):
        texts = torch.randint(40, (8, 13))
        tokens, after = texts[:, :-1], texts[:, 1:]
        output = model(tokens)
        flat = output.transpose(0, 1).reshape(-1, 40) if kind == "flattened" else output.flatten(0, 1)
        loss = functional.cross_entropy(flat, (after.roll(1, 0) if kind == "rolled" else after).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    found = judged(run).get("targets_elsewhere")
    assert (found is not None) == (kind != "right")
    if found is not None:
        assert found["step"] == 0 and ("flattened" in str(found["causes"][0])) == (kind == "flattened")


def test_a_model_is_as_sure_where_labels_are_random_and_less_sure_of_what_it_has_yet_to_learn() -> None:
    torch.manual_seed(4)
    sure, unsure = torch.eye(6).repeat(6, 1) * 6, torch.randn(36, 6) * 0.3
    known = torch.arange(6).repeat(6)
    for output, target, wanted in (
        (sure, torch.where(torch.arange(36) < 12, (known + 2) % 6, known), True),
        (torch.cat([sure, unsure]), torch.cat([known, torch.randint(6, (36,))]), False),
    ):
        gradient = (output.softmax(1) - functional.one_hot(target, 6)) / len(target)
        named = dict(zip(FIGURES, figures(output, gradient).tolist(), strict=True))
        assert (named["wrong_sure"] > 0.8) == wanted and named["wrong_share"] > 0.25


def test_the_most_frequent_class_that_examples_are_given_with_is_known() -> None:
    pictures, times = torch.randn(16, 3), torch.arange(16)
    kinds = torch.tensor([2] * 12 + [1] * 4)
    assert entrance.of_classes([pictures, times, kinds]).tolist() == [2.0, 0.75]
    assert entrance.of_classes([pictures[:8], kinds[:8]]) is None  # few examples
    assert entrance.of_classes([pictures, kinds[:8], kinds.float(), kinds[:, None]]) is None  # not one for each
