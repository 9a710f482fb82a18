"""What the watch knows for certain: modes, inputs, width, precision, scaler; and what rules make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


def classifier(*before_output: nn.Module) -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), *before_output, nn.Linear(24, 6))


def train(folder: Path, model: nn.Module, steps: int = 40, **how: Any) -> tuple[list[dict[str, Any]], Any]:
    """The findings, worst first, and the stored run of a small training."""
    torch.set_num_threads(1)
    optimizer = how.get("optimizer") or torch.optim.AdamW(model.parameters(), how.get("lr", 1e-3))
    scaler = how.get("scaler")
    # what the sidecar does is asked of a replay
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer, gradients=5, updates=5, activations=5)
    for step in range(1, steps + 1):
        model.train(how.get("training", lambda step: True)(step))
        inputs, targets = torch.randn(48, 12), torch.randint(0, 6, (48,))
        if step == how.get("bad_step"):
            inputs[3, 7] = how["bad"]
        output = model(inputs.to(next(model.parameters()).dtype)).float()
        loss = functional.cross_entropy(output, targets, reduction=how.get("reduction", "mean"))
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        run.log({"train/loss": loss.item()}, step=step)
        if how.get("labels", 99) <= step:  # of examples that have none
            with torch.no_grad():
                model(torch.randn(48, 12)).argmax(1)
        if step % 5 == 0 and not how.get("other"):
            model.train(how.get("evaluating", False))
            with torch.set_grad_enabled(how.get("forgotten", False)):
                held_out = torch.randn(48, 12, dtype=next(model.parameters()).dtype).requires_grad_("forces" in how)
                output = model(held_out).float()
                run.log({"eval/loss": functional.cross_entropy(output, targets).item()}, step=step)
        elif step % 5 == 0:
            run.log({"eval/loss": 1.0 / step}, step=step)
    run.finish()
    stored = barograph.read(str(run.dir))[0]
    return diagnose(stored)["findings"], stored


def loud(findings: list[dict[str, Any]]) -> list[tuple[str, int]]:
    told = [part for item in findings for part in (item, *item["evidence"].get("story", ()))]
    return [(item["rule"], item["step"]) for item in told if item["severity"] != "info"]


@pytest.mark.parametrize("part", [nn.Dropout(0.3), nn.BatchNorm1d(24)], ids=["dropout", "batch norm"])
def test_a_mode_that_is_right_is_silent_and_recorded_once(tmp_path: Path, part: nn.Module) -> None:
    findings, run = train(tmp_path, classifier(part))
    assert "model_mode" not in dict(loud(findings))
    for name, value in (("training", 1), ("training_in_evaluation", 0), ("output_width", 6), ("half_parameters", 0)):
        assert run.series(f"model/{name}").value.tolist() == [value]


def test_a_mode_that_is_left_on_is_found_since_the_step_that_shows_it(tmp_path: Path) -> None:
    findings, _ = train(tmp_path, classifier(nn.BatchNorm1d(24)), training=lambda step: step < 17)
    assert ("model_mode", 17) in loud(findings)


def test_an_evaluation_in_training_mode_is_found(tmp_path: Path) -> None:
    findings, _ = train(tmp_path, classifier(nn.Dropout(0.3)), evaluating=True)
    assert "model_mode" in dict(loud(findings))


@pytest.mark.parametrize("labels", [1, 12], ids=["from the start", "later"])
@pytest.mark.parametrize(
    ("how", "says"),
    [({}, False), ({"evaluating": True}, None), ({"other": True}, False)],
    ids=["right", "wrong mode", "another model is evaluated"],
)
def test_labels_that_the_model_makes_in_its_steps_are_not_evaluations(
    tmp_path: Path, labels: int, how: dict[str, Any], says: bool | None
) -> None:
    findings, run = train(tmp_path, classifier(nn.Dropout(0.3)), labels=labels, **how)
    found = dict(loud(findings)).get("model_mode")
    assert run.series("model/labels_in_training").value[0] == 1
    assert found is None if says is False else found is None or found < 30


def test_what_has_modes_may_be_in_evaluation_mode_within_a_model_that_is_not(tmp_path: Path) -> None:
    class KeptDropout(nn.Dropout):
        def train(self, mode: bool = True) -> KeptDropout:
            return super().train(False)

    findings, _ = train(tmp_path, classifier(KeptDropout(0.3)), evaluating=True)
    assert "model_mode" not in dict(loud(findings))


class DroppedByItself(nn.Module):
    """Drops numbers by a function, as layers of Hugging Face's do."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = dropout

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.dropout(hidden, self.dropout, self.training)


@pytest.mark.parametrize(("share", "trains", "told"), [(0.2, False, True), (0.2, True, False), (0.0, False, False)])
def test_the_mode_of_a_layer_that_drops_by_a_function_counts(
    tmp_path: Path, share: float, trains: bool, told: bool
) -> None:
    findings, _ = train(tmp_path, classifier(DroppedByItself(share)), training=lambda step: trains)
    assert ("model_mode" in dict(loud(findings))) == told


def test_a_mode_that_makes_no_difference_is_not_looked_at(tmp_path: Path) -> None:
    findings, run = train(tmp_path, classifier(nn.Dropout(0.0)), training=lambda step: False, evaluating=True)
    assert "model_mode" not in dict(loud(findings)) and "model/training" not in run.names()


def evaluated(model: nn.Module, step: int, every: int = 5) -> bool:
    if step % every == 0:
        model(torch.randn(48, 12))
    return step % 5 == 0


@pytest.mark.parametrize("momentum", [0.0, 0.1, None])
def test_statistics_that_do_not_move_are_stale(tmp_path: Path, momentum: float | None) -> None:
    findings, run = train(tmp_path, classifier(nn.BatchNorm1d(24, momentum=momentum)))
    assert ("stale_statistics" in dict(loud(findings))) == (momentum == 0)
    assert set(run.series("model/stale_statistics").value) == {float(momentum == 0)}


def test_statistics_of_layers_in_evaluation_mode_may_stand(tmp_path: Path) -> None:
    class KeptBatchNorm(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> KeptBatchNorm:
            return super().train(False)

    loaded = KeptBatchNorm(24).eval()
    loaded.running_mean = loaded.running_mean + 0.3  # type: ignore[operator]
    findings, _ = train(tmp_path / "a", classifier(loaded))
    assert "stale_statistics" not in dict(loud(findings))
    findings, _ = train(tmp_path / "b", classifier(KeptBatchNorm(24).eval()))  # nothing was ever gathered in these
    assert dict(loud(findings))["stale_statistics"] == 0


@pytest.mark.parametrize("how", ["reset", "gathered", "kept"])
def test_statistics_that_are_reset_for_each_evaluation_are_told(tmp_path: Path, how: str) -> None:
    class ResetBatchNorm(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> ResetBatchNorm:
            if self.training and not mode and how != "kept":
                self.reset_running_stats()
                with torch.no_grad():
                    self(torch.randn(48, 24)) if how == "gathered" else None
            return super().train(mode)

    findings, run = train(tmp_path, classifier(ResetBatchNorm(24)))
    assert set(run.series("model/reset_statistics").value) == {float(how == "reset")}
    told = [item["causes"][0] for item in findings if item["rule"] == "stale_statistics"]
    assert [cause.split(":")[0] for cause in told] == ["batch norm's statistics are reset"] * (how == "reset")


class Drops(nn.Module):
    """Dropout by a function, which knows of a mode, or not; or by a part that is always in training mode."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.part = how, nn.Dropout(0.3)

    def forward(self, given: Any) -> Any:
        if self.how == "function":
            return nn.functional.dropout(given, 0.3)
        if self.how == "attention":
            return nn.functional.scaled_dot_product_attention(*[given[:, None]] * 3, dropout_p=0.3)[:, 0]
        if self.how == "part":
            self.part.train()
        return self.part(given) if self.how == "part" else nn.functional.dropout(given, 0.3, training=self.training)


@pytest.mark.parametrize("how", ["function", "attention", "part", "right"])
def test_dropout_that_does_not_follow_the_mode_is_found_in_evaluations(tmp_path: Path, how: str) -> None:
    findings, _ = train(tmp_path, classifier(Drops(how)))
    assert [one["rule"] for one in findings if "dropout left on" in str(one["causes"])] == ["model_mode"] * (
        how != "right"
    )


class Deep(nn.Module):
    """Blocks with normalisation between a first and a last layer, and adapters if wanted."""

    def __init__(self, adapters: bool = False) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(12, 24)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24)) for _ in range(3))
        self.adapters = nn.ModuleList(nn.Linear(24, 24) for _ in range(3)) if adapters else None
        self.head = nn.Linear(24, 6)

    def forward(self, values: Any) -> Any:
        values = self.first(values)
        for place, block in enumerate(self.blocks):
            values = values + block(values)
            if self.adapters is not None:
                values = values + self.adapters[place](values)
        return self.head(values)


@pytest.mark.parametrize(
    ("adapters", "trained", "used", "severity"),
    [
        (False, ("first", "head"), False, "warning"),
        (False, ("first", "head"), True, "info"),
        (False, ("head",), False, "info"),
        (False, ("first", "blocks.0", "head"), True, "info"),
        (True, ("head",), True, "warning"),
        (True, ("adapters",), True, "info"),
        (True, ("adapters",), False, "warning"),  # all is new
    ],
)
def test_what_is_frozen_warns_where_it_can_not_be_meant(
    tmp_path: Path, adapters: bool, trained: tuple[str, ...], used: bool, severity: str
) -> None:
    model = Deep(adapters)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
        if used and ("blocks" in name or (trained == ("adapters",) and "adapters" not in name)):  # as after a training
            torch.nn.init.normal_(parameter, 1.0, 0.1)
    optimizer = torch.optim.AdamW([item for item in model.parameters() if item.requires_grad], 1e-3)
    findings, run = train(tmp_path, model, steps=12, optimizer=optimizer)
    (found,) = (item for item in findings if item["rule"] == "frozen_group")
    assert found["severity"] == severity and found["step"] in (0, 1)
    frozen = sum(not item.requires_grad for item in model.parameters())
    assert run.series("model/frozen_parameters").value.tolist() == [frozen]


def test_a_head_as_it_was_drawn_is_frozen_beside_the_adapters_of_a_trained_model(tmp_path: Path) -> None:
    model = Deep(adapters=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("adapters" in name)
        if not name.startswith(("adapters", "head")):
            torch.nn.init.normal_(parameter, 1.0, 0.1)
    optimizer = torch.optim.AdamW([item for item in model.parameters() if item.requires_grad], 1e-3)
    findings, _ = train(tmp_path, model, steps=12, optimizer=optimizer)
    (found,) = (item for item in findings if item["rule"] == "frozen_group")
    assert found["severity"] == "warning" and found["message"].startswith("One layer, as torch draws it, is frozen")


class TwoEncoders(nn.Module):
    """An encoder, and one like it at another place."""

    def __init__(self, names: tuple[str, str]):
        super().__init__()
        self.names = names
        for name in names:
            first = (nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU())
            self.add_module(name, nn.Sequential(*first, nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 6)))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.get_submodule(self.names[0])(values)


@pytest.mark.parametrize(
    ("names", "copied", "warned"),
    [
        (("q", "k"), True, False),  # an average of the trained weights, whatever its name
        (("q", "k"), False, True),
        (("0", "1"), True, True),  # torch's stacks begin as copies of one layer
    ],
)
def test_a_frozen_copy_of_what_is_trained_is_not_to_be_trained(
    tmp_path: Path, names: tuple[str, str], copied: bool, warned: bool
) -> None:
    model = TwoEncoders(names)
    other = model.get_submodule(names[1]).requires_grad_(False)
    if copied:
        other.load_state_dict(model.get_submodule(names[0]).state_dict())
        with torch.no_grad():
            for parameter in other.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(0.999)
    optimizer = torch.optim.AdamW(model.get_submodule(names[0]).parameters(), 1e-3)
    findings, _ = train(tmp_path, model, steps=12, optimizer=optimizer)
    (found,) = (item for item in findings if item["rule"] == "frozen_group")
    assert (found["severity"] == "warning") == warned


def test_a_model_that_is_trained_as_a_whole_has_no_frozen_group(tmp_path: Path) -> None:
    findings, run = train(tmp_path, Deep(), steps=12)
    assert not [item for item in findings if item["rule"] == "frozen_group"]
    assert run.series("model/frozen_parameters").value.tolist() == [0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_input_that_is_not_finite_is_the_first_cause(tmp_path: Path, bad: float) -> None:
    findings, _ = train(tmp_path, classifier(), bad_step=23, bad=bad)
    assert findings[0]["step"] == 23 and findings[0]["causes"][0].startswith("bad batch: its inputs")
    assert not any("learning rate" in remedy for remedy in findings[0]["remedies"])


def test_missing_values_that_a_model_fills_in_are_no_trouble(tmp_path: Path) -> None:
    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = classifier()

        def forward(self, values: Any) -> Any:
            return self.inner(values.nan_to_num())

    findings, _ = train(tmp_path, Filled(), bad_step=23, bad=float("nan"))
    assert not loud(findings)
    assert [item["severity"] for item in findings if item["rule"] == "non_finite_input"] == ["info"]


def test_updates_that_16_bit_weights_round_away_are_named(tmp_path: Path) -> None:
    findings, _ = train(tmp_path, classifier(nn.LayerNorm(24)).bfloat16(), lr=2e-6)
    (found,) = (item for item in findings if item["causes"] and "lost in rounding" in item["causes"][0])
    assert found["severity"] == "warning" and "fp32 master weights" in found["remedies"][0]


def test_an_optimizer_of_other_parameters_is_not_excused_by_16_bit_weights(tmp_path: Path) -> None:
    copied = classifier().bfloat16()
    findings, _ = train(tmp_path, classifier().bfloat16(), optimizer=torch.optim.AdamW(copied.parameters(), 1e-3))
    assert not any("lost in rounding" in cause for item in findings[:1] for cause in item["causes"])


def test_a_loss_that_is_summed_is_named_with_its_number(tmp_path: Path) -> None:
    findings, _ = train(tmp_path, classifier(), reduction="sum")
    (found,) = (item for item in findings if item["rule"] in ("loss_weight", "summed_loss"))
    assert found["rule"] == "loss_weight" and found["severity"] == "warning"  # the graph has the very number
    assert found["evidence"]["weight"] == 48 and "summed over 48 targets" in found["message"]


def test_a_scaler_that_the_watch_was_not_given_is_found(tmp_path: Path) -> None:
    findings, run = train(tmp_path, classifier(), scaler=torch.amp.GradScaler("cpu", init_scale=2.0**10))
    assert not [item for item in findings if item["rule"] == "scaler_not_given"]
    assert run.series("model/loss_scale").value[0] == 2.0**10
    assert run.series("model/grad_norm_before").value[0] < 50  # of the first step too


def test_gradients_that_vanish_are_the_first_cause_whatever_else_they_look_like(tmp_path: Path) -> None:
    torch.manual_seed(5)
    layers = [part for _ in range(14) for part in (nn.Linear(12, 12), nn.Sigmoid())]
    findings, _ = train(tmp_path, nn.Sequential(*layers, nn.Linear(12, 6)), steps=90)
    assert findings[0]["severity"] != "info" and "vanish" in findings[0]["causes"][0]
    assert not any("epsilon" in remedy or "param_groups" in remedy for remedy in findings[0]["remedies"])


@pytest.mark.parametrize("kind", [nn.Sigmoid, nn.Tanh])
def test_gradients_that_vanish_are_the_first_cause_of_a_regression_that_learns_nothing(
    tmp_path: Path, kind: type[nn.Module]
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(5)
    layers = [part for _ in range(12) for part in (nn.Linear(16, 16), kind())]
    for part in layers[::2]:
        nn.init.normal_(part.weight, std=0.05)
    model = nn.Sequential(*layers, nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    run = barograph.init(project="p", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer, gradients=10, updates=10, weights=50, activations=10)
    way = torch.randn(16, 1)
    for step in range(1, 261):
        inputs = torch.randn(64, 16)
        loss = functional.mse_loss(model(inputs), torch.sin(inputs @ way))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item(), "train/lr": 1e-3}, step=step)
    run.finish()
    head = diagnose(barograph.read(str(run.dir))[0])["findings"][0]
    assert head["severity"] != "info" and head["causes"][0].startswith("gradients vanish")
    assert "residual" in head["remedies"][0]


def test_embeddings_as_they_are_drawn_are_told_from_what_was_learnt() -> None:
    from barograph.probes.model.frozen import _table_as_drawn

    torch.manual_seed(0)
    drawn = nn.Embedding(60, 32).weight
    learnt = torch.where(torch.rand(60, 1) < 0.3, 2.0 * drawn, 0.5 * drawn)  # common words are longer
    for weight, fresh in ((drawn, 1), (0.02 * drawn, 1), (0.4 * drawn, 0), (learnt / learnt.std(), 0)):
        assert float(_table_as_drawn(weight)) == fresh
    assert float(_table_as_drawn(3**0.5 * (2 * torch.rand(60, 32) - 1))) == 0
    assert _table_as_drawn(drawn[:4]) is None
