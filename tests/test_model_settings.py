"""Settings of layers and optimizers as the watch reads them, and what rules make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from test_rules_objective import warned  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_models import QUIET, Notes  # noqa: E402

from barograph.probes.model.settings import group_settings, layer_settings  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402

RULE = torch.randn(12, 6, generator=torch.Generator().manual_seed(3))


def net(dropout: float = 0.0, epsilon: float = 1e-5) -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Linear(12, 48), nn.LayerNorm(48, eps=epsilon), nn.GELU(), nn.Dropout(dropout), nn.Linear(48, 6)
    )


def begin(folder: Path) -> Any:
    torch.set_num_threads(1)
    return barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )


def end(run: Any) -> dict[str, dict[str, Any]]:
    """{rule: finding}; of stories what stands there."""
    run.finish()
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    return {part["rule"]: part for item in findings for part in (*item["evidence"].get("story", ()), item)}


def train(folder: Path, model: nn.Module, optimizer: Any, steps: int = 120, every: int = 0) -> dict[str, Any]:
    run, dice = begin(folder), torch.Generator().manual_seed(1)
    torch.manual_seed(2)
    run.watch(model, optimizer)
    for step in range(steps):
        inputs = torch.randn(32, 12, generator=dice)
        loss = functional.cross_entropy(model(inputs), (inputs @ RULE).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        figures = {"loss": loss.item(), "lr": optimizer.param_groups[0]["lr"]}
        if every and step % every == every - 1:
            model.eval()
            with torch.no_grad():
                inputs = torch.randn(64, 12, generator=dice)
                figures["val_loss"] = functional.cross_entropy(model(inputs), (inputs @ RULE).argmax(1)).item()
            model.train()
        run.log(figures, step=step)
    return end(run)


def test_settings_are_those_of_the_layer_and_group_that_has_most() -> None:
    model = nn.Sequential(nn.Dropout(0.2), nn.LSTM(4, 4, dropout=0.0), nn.BatchNorm1d(4, eps=1e-3), nn.LayerNorm(4))
    assert layer_settings(model) == {"dropout": 0.2, "norm_epsilon": 1e-3, "norm_momentum": 0.1}
    assert layer_settings(nn.Linear(2, 2)) == {}
    adam = torch.optim.Adam([nn.Parameter(torch.zeros(2))], weight_decay=0.1)
    assert group_settings(adam.param_groups)["coupled_decay"] == 0.1
    assert "coupled_decay" not in group_settings(torch.optim.AdamW(model.parameters()).param_groups)
    assert group_settings([{"betas": (0.9, 0.999), "eps": 1e-8}]) == {
        "epsilon": 1e-8, "betas_swapped": 0.0, "scale_free": 1.0,
    }  # fmt: skip
    assert group_settings([{"betas": (0.999, 0.9), "eps": 1e-8}])["betas_swapped"] == 1.0
    assert group_settings([{"betas": (0.95, 0.95)}, {"betas": (0.98, 0.92, 0.99), "eps": 1.0}]) == {
        "betas_swapped": 0, "scale_free": 1.0,
    }  # fmt: skip
    for betas in ((0.99, 0.9), (0.95, 0.9), (0.99, 0.98)):
        assert group_settings([{"betas": betas, "eps": 1e-8}])["betas_swapped"] == 1.0
    for betas in ((0.95, 0.93), (0.5, 0.0), (0.9, 0.9)):
        assert group_settings([{"betas": betas, "eps": 1e-8}])["betas_swapped"] == 0.0
    assert group_settings([{"betas": (0.9999, 0.999), "eps": 1e-8}])["momentum"] == 0.9999
    assert "momentum" not in group_settings([{"betas": (0.99, 0.999), "eps": 1e-8}])
    assert group_settings([{"momentum": 0.9, "dampening": 0}, {"momentum": 0.99, "dampening": 0.9}]) == {
        "momentum": 0.9
    }


def test_steps_that_do_not_grow_with_the_gradient_are_known_by_the_groups_settings() -> None:
    some = [nn.Parameter(torch.zeros(2))]
    for kind in (torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta):
        assert group_settings(kind(some).param_groups)["scale_free"] == 1.0
    assert group_settings([{"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.1}])["scale_free"] == 1.0  # Lion
    assert "scale_free" not in group_settings(torch.optim.SGD(some, momentum=0.9).param_groups)


@pytest.mark.parametrize(
    ("model", "kind", "options"),
    [
        (net(), torch.optim.AdamW, {"lr": 3e-3}),
        (net(0.3), torch.optim.Adam, {"lr": 3e-3, "betas": (0.5, 0.9), "eps": 1e-6}),
        (net(0.6), torch.optim.SGD, {"lr": 0.3, "momentum": 0.9}),
        (net(epsilon=1e-3), torch.optim.RMSprop, {"lr": 1e-3, "eps": 1.0}),
        (net(), torch.optim.Adam, {"lr": 3e-3, "weight_decay": 1e-2}),
        (net(), torch.optim.RMSprop, {"lr": 3e-3, "weight_decay": 1e-2}),
    ],
)
def test_usual_settings_are_no_warning(tmp_path: Path, model: Any, kind: Any, options: Any) -> None:
    found = train(tmp_path, model, kind(model.parameters(), **options), every=20)
    ours = {"momentum_too_high", "betas_swapped", "norm_epsilon", "dropout_too_high", "idle_optimizer"}
    assert not {name for name, item in found.items() if item["severity"] != "info"} & (
        ours | {"epsilon_dominates", "decay_dominates"}
    )


@pytest.mark.parametrize(
    ("rule", "cause", "model", "kind", "options"),
    [
        ("momentum_too_high", "momentum too high", net(), torch.optim.SGD, {"lr": 0.1, "momentum": 0.999}),
        ("betas_swapped", "Adam's betas swapped", net(), torch.optim.Adam, {"lr": 3e-3, "betas": (0.999, 0.9)}),
        ("norm_epsilon", "normalisation's epsilon", net(epsilon=1e4), torch.optim.AdamW, {"lr": 3e-3}),
        ("epsilon_dominates", "epsilon too big", net(), torch.optim.Adam, {"lr": 3e-3, "eps": 1.0}),
        ("dropout_too_high", "dropout too high", net(0.98), torch.optim.AdamW, {"lr": 3e-3}),
        ("decay_dominates", "weight decay too high", net(), torch.optim.Adam, {"lr": 3e-3, "weight_decay": 0.5}),
        ("decay_dominates", "weight decay too high", net(), torch.optim.RMSprop, {"lr": 3e-3, "weight_decay": 2.0}),
    ],
)  # fmt: skip
def test_a_setting_that_nobody_means_is_the_first_cause(
    tmp_path: Path, rule: str, cause: str, model: Any, kind: Any, options: Any
) -> None:
    found = train(tmp_path, model, kind(model.parameters(), **options), 330, every=20)
    assert found[rule]["severity"] in ("warning", "critical")
    heads = [item for item in found.values() if "causes" in item and item["severity"] != "info"]
    assert all(item["causes"][0].startswith(cause) for item in heads), heads


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"dropout": 0.1}, True),
        ({"model": {"resid_pdrop": 0.0, "attn_pdrop": 0.1}}, True),
        ({"dropout": 0.1, "head_dropout": 0.8}, False),  # it is meant
        ({"drop_path_rate": 0.1, "drop_last": True}, False),
        ({}, False),
    ],
)
def test_dropout_far_above_what_is_configured_is_a_warning_at_once(config: dict[str, Any], told: bool) -> None:
    at = np.arange(40)
    columns = {"loss": (at, 2.0 * np.exp(-at / 10)), "model/dropout": (at[:1], np.array([0.8]))}
    assert ("dropout_too_high" in warned(columns, config=config)) == told


@pytest.mark.parametrize(("momentum", "told"), [(0.99, False), (0.995, True), (1.0, True), (1.5, True)])
def test_a_momentum_that_forgets_nothing_is_too_high(momentum: float, told: bool) -> None:
    steps = np.arange(10)
    found = warned({"loss": (steps, 2.0 - 0.01 * steps), "model/momentum": (steps, np.full(10, momentum))})
    assert ("momentum_too_high" in found) == told


def game(folder: Path, steps: int, generates: int, judges: int, shared: bool = False) -> dict[str, dict[str, Any]]:
    """Two networks against each other; each is stepped every so many steps, 0 is never."""
    torch.manual_seed(5)
    generator, judge = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)), nn.Linear(2, 1)
    held = [[*generator.parameters()], [*judge.parameters()]]
    optimizers = [torch.optim.Adam([*held[0], *held[1]] if shared else one, 1e-3) for one in held]
    run = begin(folder)
    run.watch([generator, judge], optimizers)
    for step in range(steps):
        false, true = generator(torch.randn(16, 4)), torch.randn(16, 2) + 2
        loss = functional.softplus(-judge(true)).mean() + functional.softplus(judge(false.detach())).mean()
        optimizers[1].zero_grad()
        loss.backward()
        if judges and step % judges == 0:
            optimizers[1].step()
        other = functional.softplus(-judge(false)).mean()
        optimizers[0].zero_grad()
        other.backward()
        if generates and step % generates == 0:
            optimizers[0].step()
        run.log({"d_loss": loss.item(), "g_loss": other.item()}, step=step)
    return end(run)


@pytest.mark.parametrize(("generates", "judges"), [(0, 1), (1, 0)])
def test_a_side_that_never_steps_is_named_and_its_graph_is_whole(tmp_path: Path, generates: int, judges: int) -> None:
    found = game(tmp_path, 130, generates, judges)
    assert found["idle_optimizer"]["causes"][0].startswith("optimizer never stepped")
    assert "unreached_parameters" not in found
    named = found["idle_optimizer"]["message"].rpartition(": ")[2]
    assert named.startswith("0." if not generates else "1.")


@pytest.mark.parametrize(("generates", "judges"), [(1, 1), (5, 1), (1, 3)])
def test_a_side_that_steps_less_often_is_not_idle(tmp_path: Path, generates: int, judges: int) -> None:
    found = game(tmp_path, 130, generates, judges)
    assert "idle_optimizer" not in found and "unreached_parameters" not in found and "cleared_passes" not in found


def test_players_whose_optimizers_hold_all_parameters_of_both_are_found(tmp_path: Path) -> None:
    assert "shared_parameters" not in game(tmp_path / "own", 40, 1, 1)
    found = game(tmp_path / "shared", 40, 1, 1, shared=True)
    assert found["shared_parameters"]["causes"][0].startswith("optimizer holds other parameters")


class Tied(nn.Module):
    """The last layer's weights are the first one's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 12), nn.Linear(12, 12)
        self.last.weight = self.first.weight

    def forward(self, inputs: Any) -> Any:
        return self.last(torch.tanh(self.first(inputs)))


@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
def test_a_parameter_that_one_optimizer_is_given_twice_is_told(tmp_path: Path, twice: bool) -> None:
    model = Tied()
    parts = [item for part in model.children() for item in part.parameters()]
    optimizer = torch.optim.Adam(parts if twice else model.parameters(), lr=1e-3)
    found = train(tmp_path, model, optimizer, 12)
    assert ("shared_parameters" in found) == twice
    if twice:
        told = found["shared_parameters"]
        assert told["severity"] == "warning" and "first.weight" in told["message"] and told["step"] == 0


class Around(torch.optim.Optimizer):
    """Steps through another optimizer, as those that look ahead do."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner.param_groups[0]["params"], {"lr": 0.1})
        self.inner, self.param_groups = inner, inner.param_groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()


@pytest.mark.parametrize(("how", "shared"), [("both", 4.0), ("apart", None), ("around", None), ("one part", 2.0)])
def test_parameters_that_two_optimizers_step_are_counted(how: str, shared: float | None) -> None:
    model, run = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), Notes()
    first = torch.optim.SGD(model.parameters() if how in ("both", "around") else model[0].parameters(), lr=0.01)
    rest = {"both": model, "apart": model[1], "around": model, "one part": model}[how].parameters()
    second = Around(first) if how == "around" else torch.optim.SGD(rest, lr=0.01)
    watch = ModelWatch(run, model, [first, second], **QUIET)
    for step in range(24):
        model(torch.randn(8, 4)).square().mean().backward()
        for optimizer in (first, second) if how != "around" else (second,):
            optimizer.step()
        model.zero_grad()
        run.log(step)
    watch.close()
    seen = [fields["shared_parameters"] for step in run.steps if "shared_parameters" in (fields := run.fields(step))]
    assert seen == ([] if shared is None else [shared])


def test_an_optimizer_that_is_given_and_never_stepped_is_critical_before_the_run_is_over(tmp_path: Path) -> None:
    model, run = net(), begin(tmp_path)
    run.watch(model, torch.optim.Adam(model.parameters()))
    for step in range(40):
        functional.cross_entropy(model(torch.randn(8, 12)), torch.zeros(8, dtype=torch.int64)).backward()
        run.log({"loss": 1.0 + 0.01 * (step % 3)}, step=step)
    found = end(run)
    assert found["idle_optimizer"]["severity"] == "critical"
    assert "no weight has changed" in found["idle_optimizer"]["message"]


def test_weights_that_the_loop_writes_itself_are_no_step_that_is_missing(tmp_path: Path) -> None:
    model, run = net(), begin(tmp_path)
    run.watch(model, torch.optim.SGD(model.parameters(), 0.1))
    for step in range(40):
        functional.cross_entropy(model(torch.randn(8, 12)), torch.zeros(8, dtype=torch.int64)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        run.log({"loss": 1.0 + 0.01 * (step % 3)}, step=step)
    assert "idle_optimizer" not in end(run)


@pytest.mark.parametrize(("frozen", "severity"), [((0, 2), "warning"), ((0,), "info"), ((0, 2, 4, 6), "info")])
def test_first_layers_frozen_as_drawn_were_trained_by_nobody_but_for_a_projection_or_a_probe(
    tmp_path: Path, frozen: tuple[int, ...], severity: str
) -> None:
    torch.manual_seed(5)
    layers = [nn.Linear(12 if at == 0 else 24, 6 if at == 4 else 24) for at in range(5)]
    model = nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())][:-1])
    model.register_parameter("0beside", nn.Parameter(torch.zeros(12)))  # trained, and it comes before the layers
    model.register_forward_pre_hook(lambda module, given: (given[0] + module.get_parameter("0beside"),))
    for at in frozen:
        model[at].requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = train(tmp_path, model, torch.optim.Adam(trained, 1e-3), steps=40)
    assert found["frozen_group"]["severity"] == severity
