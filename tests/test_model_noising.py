"""What the watch sees of a model of denoising, and of another network beside the watched one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.probes.model import noising

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

STEPS, ROWS = 40, 64


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(17, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, noisy: Tensor, t: Tensor) -> Tensor:
        return self.layers(torch.cat([noisy, t[:, None] / 1000], 1))


def series(folder: Path, model: nn.Module, loss_of: Callable[[int], Any]) -> Callable[[str], Any]:
    """Values of a watched series by name, of a small training."""
    torch.manual_seed(3)
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for step in range(1, STEPS + 1):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    stored = barograph.read(str(run.dir))[0]

    def values(name: str) -> Any:
        return stored.series(f"model/{name}").value if f"model/{name}" in stored.names() else None

    return values


def test_noise_that_is_drawn_evenly_is_told_from_a_picture() -> None:
    dice = torch.Generator().manual_seed(4)
    output, even = torch.zeros(64, 128), torch.rand(64, 128, generator=dice)
    for target, told in ((even, True), (even * 2 - 1, False), (even.square(), False), (even.round(), False)):
        found = noising.figures(torch.zeros(64, 128), None, (64, 128), output, (output - target) * 2 / output.numel(),
                                output.numel())  # fmt: skip
        assert bool(dict(zip(noising.FIGURES, found.tolist(), strict=True))["noise_even"]) is told


@pytest.mark.parametrize(("other", "weak"), [(False, 1.0), (False, 0.3), (True, 1.0)])
def test_the_factor_of_the_noise_in_the_inputs_is_known(tmp_path: Path, other: bool, weak: float) -> None:
    model = Denoiser()

    def loss_of(step: int) -> Tensor:
        t, noise = torch.randint(1000, (ROWS,)), torch.randn(ROWS, 16)
        share = weak * (t[:, None] / 1000) ** 0.5
        noisy = (1 - share**2).sqrt() * torch.rand(ROWS, 16).round() + share * noise
        return functional.mse_loss(model(noisy, t), torch.randn(ROWS, 16) if other else noise)

    seen = series(tmp_path, model, loss_of)
    assert (seen("noise_target") == 1).all()
    late, early = (float(seen(f"noise_share_{name}").mean()) for name in ("late", "early"))
    assert late == pytest.approx(0.0 if other else 0.93 * weak, abs=0.1) and early < 0.5 * weak
    assert seen("time_high").min() > seen("time_low").max()


@pytest.mark.parametrize("how", ["drawn", "seeded", "in_order", "falling", "few", "in_turn"])
def test_times_that_are_drawn_have_a_mark(tmp_path: Path, how: str) -> None:
    model, once = Denoiser(), torch.rand(ROWS, generator=torch.Generator().manual_seed(1))

    def loss_of(step: int) -> Tensor:
        t = {"drawn": torch.rand(ROWS), "seeded": once.clone(), "in_order": once.sort().values,
             "falling": once.sort(descending=True).values, "few": (once * 8).floor(),
             "in_turn": torch.arange(ROWS) % 2 + 0.0}[how]  # fmt: skip
        return functional.mse_loss(model(torch.randn(ROWS, 16), t), torch.zeros(ROWS, 16))

    marks = series(tmp_path, model, loss_of)("time_mark")
    different = 0 if marks is None else len(set(marks.tolist()))
    assert (different > 4) if how == "drawn" else different == (how == "seeded")


@pytest.mark.parametrize("flow", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_noise_that_is_the_same_in_each_step_has_one_mark(tmp_path: Path, again: bool, flow: bool) -> None:
    model, once = Denoiser(), torch.randn(ROWS, 16, generator=torch.Generator().manual_seed(1))

    def loss_of(step: int) -> Tensor:
        t, examples = torch.rand(ROWS), torch.rand(ROWS, 16).round()
        noise = once if again else torch.randn(ROWS, 16)
        noisy = (1 - t[:, None]) * examples + t[:, None] * noise
        return functional.mse_loss(model(noisy, t), noise - examples if flow else noise)

    marks = series(tmp_path, model, loss_of)("noise_mark")
    assert len(marks) > 4 and (len(set(marks.tolist())) == 1) == again


def test_targets_that_are_no_noise_are_told_from_noise(tmp_path: Path) -> None:
    model = Denoiser()

    def loss_of(step: int) -> Tensor:
        image = torch.rand(ROWS, 16).round() * 2 - 1
        return functional.mse_loss(model(image + torch.randn(ROWS, 16), torch.zeros(ROWS)), image)

    seen = series(tmp_path, model, loss_of)
    assert (seen("noise_target") == 0).all() and seen("noise_share") is None
    assert seen("time_high").max() == 0


@pytest.mark.parametrize("how", ["copied", "kept", "averaged", "trained"])
def test_another_network_of_the_same_make_is_followed(tmp_path: Path, how: str) -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    other = copy.deepcopy(network)

    def loss_of(step: int) -> Tensor:
        assert b"barograph" not in pickle.dumps(other)  # it can be saved whole
        with torch.no_grad():
            for mine, its in zip(network.parameters(), other.parameters(), strict=True):
                its.data.copy_({"copied": mine, "averaged": its.lerp(mine, 0.1)}.get(how, its))
        states = torch.randn(ROWS, 6)
        with torch.set_grad_enabled(how == "trained"):
            target = 1 + 0.9 * other(states if how != "averaged" else states + 0.1).amax(1)
        return functional.mse_loss(network(states).gather(1, torch.zeros(ROWS, 1, dtype=torch.long))[:, 0], target)

    seen = series(tmp_path, network, loss_of)
    if how == "trained":
        assert seen("other_apart") is None or len(seen("other_apart")) < 3
        return
    assert seen("other_gradient") is None and set(seen("other_training")) == {0.0}
    assert seen("loss_of_chosen")[-1] == 1
    apart, moved = seen("other_apart"), seen("other_moved")
    assert len(apart) > 20 and len(moved) == len(apart) - 1
    assert (apart == 0).all() == (how == "copied") and (moved == 0).all() == (how == "kept")
    same = seen("other_same_input")
    assert 5 < len(same) <= 20 and set(same) == {float(how != "averaged")}


@pytest.mark.parametrize("how", ["frozen", "kept", "trained", "dropout"])
def test_a_reference_that_is_trained_or_has_dropout_is_seen(tmp_path: Path, how: str) -> None:
    torch.manual_seed(1)
    policy = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 3), nn.LogSoftmax(1))
    reference = copy.deepcopy(policy).train(how == "dropout")
    if how == "kept":  # gradients of the stage before, which nobody cleared
        reference(torch.randn(ROWS, 6)).sum().backward()

    def loss_of(step: int) -> Tensor:
        chosen, rejected = torch.randn(2, ROWS, 6).unbind(0)
        ours = (policy(chosen) - policy(rejected))[:, 0]
        with torch.set_grad_enabled(how == "trained"):
            its = (reference(chosen) - reference(rejected))[:, 0]
        return -functional.logsigmoid(0.1 * (ours - its)).mean()

    seen = series(tmp_path, policy, loss_of)
    gradients, training = seen("other_gradient"), seen("other_training")
    assert (gradients is not None) == (how == "trained") and set(seen("other_same_input")) == {1.0}
    assert how == "trained" or set(training) == {float(how == "dropout")}
    assert set(seen("beside_copies")) == {0.0}


def test_no_hook_is_left_on_all_modules(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    series(tmp_path, network, lambda step: network(torch.randn(ROWS, 6)).square().mean())
    assert not torch.nn.modules.module._global_forward_pre_hooks


@pytest.mark.parametrize("rows", [64, 256])
def test_inputs_of_an_evaluation_of_another_size_are_not_the_same_columns(tmp_path: Path, rows: int) -> None:
    from barograph.probes.model.entrance import few

    picture = torch.zeros(rows, 256)
    picture[:, 5:12] = 1.0  # at the edge there is nothing
    assert float(few(picture).mean()) == pytest.approx(7 / 256, rel=0.2)


class Recurrent(nn.Module):
    def __init__(self, batch_first: bool, transposed: bool = False) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(3, 8, batch_first=batch_first), nn.Linear(8, 1)
        self.transposed = transposed

    def forward(self, given: Tensor) -> Tensor:
        if self.transposed:
            return self.head(self.layer(given.transpose(0, 1))[0][-1])
        return self.head(self.layer(given)[0][:, -1])


@pytest.mark.parametrize(
    ("model", "mixed"), [(Recurrent(False), 1.0), (Recurrent(True), None), (Recurrent(False, transposed=True), 0.0)]
)
def test_a_recurrence_over_the_rows_of_the_batch_is_seen(tmp_path: Path, model: nn.Module, mixed: float | None) -> None:
    def loss_of(step: int) -> Tensor:
        return functional.mse_loss(model(torch.randn(ROWS, 12, 3)), torch.randn(ROWS, 1))

    seen = series(tmp_path, model, loss_of)("rows_mixed")
    assert seen is None if mixed is None else list(seen) == [mixed]


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(20, 16), nn.Embedding(20, 16)
        self.encoder, self.decoder = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, source: Tensor, given: Tensor, embeds: bool = True) -> Tensor:
        state = self.encoder(self.source(source))[1]
        return self.head(self.decoder(self.target(given if embeds else source), state)[0])


@pytest.mark.parametrize(("shifted", "embeds", "shift"), [(True, True, 1), (False, True, 0), (False, False, -1)])
def test_a_decoder_that_is_given_its_targets_is_seen(tmp_path: Path, shifted: bool, embeds: bool, shift: int) -> None:
    model = Translator()

    def loss_of(step: int) -> Tensor:
        source, target = torch.randint(20, (ROWS, 10)), torch.randint(1, 20, (ROWS, 10))
        given = torch.cat([torch.zeros(ROWS, 1, dtype=torch.long), target[:, :-1]], 1) if shifted else target
        return functional.cross_entropy(model(source, given, embeds).flatten(0, 1), target.flatten())

    assert set(series(tmp_path, model, loss_of)("target_shift")) == {shift}


class Labelled(nn.Module):
    """Takes `labels` and shifts them itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(20, 16), nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, tokens: Tensor, labels: Tensor) -> Any:
        logits = self.head(self.layer(self.embedding(tokens))[0])
        self.loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return logits


@pytest.mark.parametrize(("once", "shift"), [(True, 1), (False, 2)])
def test_labels_that_are_an_argument_are_no_inputs(tmp_path: Path, once: bool, shift: int) -> None:
    model = Labelled()

    def loss_of(step: int) -> Tensor:
        tokens = torch.randint(20, (ROWS, 12))
        labels = tokens.clone() if once else torch.cat([tokens[:, 1:], torch.full((ROWS, 1), -100)], 1)
        model(tokens, labels)
        return model.loss

    assert set(series(tmp_path, model, loss_of)("target_shift")) == {shift}
