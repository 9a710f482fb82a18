"""ModelWatch on models of all kinds: shared, frozen, sparse, compiled, without a loop of its own."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from watched_models import EACH, QUIET, TOKENS, Model, Notes, gradient_norm, hooks_left, loss_of, run  # noqa: E402

import barograph  # noqa: E402
from barograph.core.options import Settings  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402

__all__ = ["run"]  # a fixture


# -- models of all kinds -------------------------------------------------------------------------------------


def train(run: Notes, model: Any, steps: int = 3, loss: Callable[[Any], Any] = loss_of, **options: Any) -> ModelWatch:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05) if list(model.parameters()) else None
    watch = ModelWatch(run, model, optimizer, **EACH | options)
    for step in range(steps):
        loss(model).backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        run.log(step)
    watch.flush()
    return watch


def test_a_tied_weight_counts_once(run: Notes) -> None:
    model = Model(tied=True)
    train(run, model)
    assert "embedding.weight" in run.tables["gradients", 1] and "head.weight" not in run.tables["gradients", 1]
    exact = math.sqrt(sum(row["norm"] ** 2 for row in run.tables["gradients", 1].values()))
    assert run.fields(1)["grad_norm"] == pytest.approx(exact, rel=1e-5)


def test_sparse_gradients_count_their_zeros(run: Notes) -> None:
    model = Model(sparse=True)
    train(run, model, loss=lambda model: loss_of(model, TOKENS[:, :4] % 3))
    row = run.tables["gradients", 1]["embedding.weight"]
    assert row["zeros"] >= (50 - 3) * 8 and row["norm"] > 0
    assert not run.warnings


def test_complex_parameters_are_seen_as_pairs(run: Notes) -> None:
    class Rotation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn = nn.Parameter(torch.tensor([1 + 1j, 2 - 1j]))

        def forward(self) -> Any:
            return self.turn.abs().square().sum()

    model = Rotation()
    train(run, model, steps=1, loss=lambda model: model())
    # the gradient of |z|² is 2z
    assert run.fields(0)["grad_norm"] == pytest.approx(2 * math.sqrt(7), rel=1e-5)
    assert run.tables["updates", 0]["turn"]["ratio"] == pytest.approx(0.1, rel=1e-4)


def test_the_optimizer_state_of_complex_parameters_is_seen(run: Notes) -> None:
    model = nn.ParameterDict({"turn": nn.Parameter(torch.tensor([1 + 1j, 2 - 1j]))})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **EACH)
    model["turn"].abs().square().sum().backward()
    optimizer.step()
    watch.flush()
    row = run.tables["optimizer", 0]["turn"]
    assert row["momentum_norm"] == pytest.approx(0.1 * 2 * math.sqrt(7), rel=1e-5)
    assert row["step_max"] == pytest.approx(0.1, rel=1e-4)


def test_weights_beyond_the_squares_of_32_bits_are_finite(run: Notes) -> None:
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.fill_(1e25)
    train(run, model, steps=1, loss=lambda model: (model.weight * 1e-30).sum())
    assert run.fields(0)["param_norm"] == pytest.approx(3e25, rel=1e-5)
    assert "non_finite_weights" not in run.fields(0)


def test_a_model_without_blocks_says_how_activations_are_chosen(run: Notes) -> None:
    train(run, nn.ParameterDict({"w": nn.Parameter(torch.ones(2))}), steps=2, loss=lambda model: model["w"].sum())
    assert run.warned("the model has no blocks whose activations could be watched; name modules with modules=[...]")


def test_a_model_of_half_precision_is_seen(run: Notes) -> None:
    model = Model().bfloat16()
    train(run, model)
    norm = math.sqrt(sum(row["norm"] ** 2 for row in run.tables["gradients", 2].values()))
    assert run.fields(2)["grad_norm"] == pytest.approx(norm, rel=0.01)


def test_nan_in_a_gradient_is_counted_and_shows_in_the_norm(run: Notes) -> None:
    model = Model()
    train(run, model, steps=1, loss=lambda model: loss_of(model) * math.nan)
    assert math.isnan(run.fields(0)["grad_norm"])
    row = run.tables["gradients", 0]["head.weight"]
    assert row["nan"] == model.head.weight.numel() and math.isnan(row["norm"])


@pytest.mark.parametrize("model", [nn.ReLU(), nn.Linear(2, 2, device="meta")], ids=["no parameters", "meta"])
def test_a_model_with_nothing_to_see_says_so(run: Notes, model: Any) -> None:
    watch = ModelWatch(run, model, **EACH)
    watch.flush()
    assert run.warned("no trainable parameters")


def test_integer_buffers_and_frozen_parameters_are_left_out(run: Notes) -> None:
    model = Model()
    model.register_buffer("counts", torch.arange(5))
    model.embedding.weight.requires_grad_(False)
    train(run, model)
    assert "embedding.weight" not in run.tables["gradients", 1] and "counts" not in run.tables["weights", 1]
    assert not run.warnings


def test_parameters_added_and_frozen_later_are_noticed(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET | {"gradients": 1, "updates": 1})
    for step in range(6):
        if step == 2:
            model.head.bias = nn.Parameter(torch.zeros(50))
            optimizer.add_param_group({"params": [model.head.bias]})
        if step == 4:
            model.embedding.weight.requires_grad_(False)
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert "head.bias" not in run.tables["gradients", 1] and "head.bias" in run.tables["gradients", 3]
    assert "embedding.weight" in run.tables["updates", 3] and "embedding.weight" not in run.tables["updates", 5]


def test_parameters_that_never_receive_a_gradient_are_named(run: Notes) -> None:
    model = Model()
    model.unused = nn.Linear(3, 3)
    train(run, model, steps=8)
    assert run.warned("unused.bias, unused.weight") and run.warned("2 of 16 parameters")
    assert run.fields(7)["without_gradient"] == 2


def test_gradients_cleared_before_the_step_are_explained(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer)
    for step in range(5):
        loss_of(model).backward()
        optimizer.zero_grad()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert run.warned("gone at optimizer.step()")


def test_a_replaced_model_is_explained(run: Notes) -> None:
    model, trained = Model(), Model()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer)
    for step in range(5):
        loss_of(trained).backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert run.warned("holds none of the watched model's parameters")


def test_master_weights_that_are_kept_by_hand_are_no_replaced_model(run: Notes) -> None:
    model = Model()
    master = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(master, lr=0.1)
    watch = ModelWatch(run, model, optimizer)
    for step in range(5):
        loss_of(model).backward()
        for ours, theirs in zip(master, model.parameters(), strict=True):
            ours.grad, theirs.grad = theirs.grad, None
        optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(master, model.parameters(), strict=True):
                theirs.copy_(ours)
        run.log(step)
    watch.flush()
    assert run.warned("such as fp32 master weights") and not run.warned("holds none")


def test_an_optimizer_that_is_never_stepped_is_explained(run: Notes) -> None:
    model = Model()
    watch = ModelWatch(run, model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(12):
        run.log(step)
    watch.poll()
    assert run.warned("was never stepped")


def test_an_optimizer_without_hooks_is_named(run: Notes) -> None:
    class Homemade:
        param_groups = ()

    ModelWatch(run, Model(), Homemade()).close()
    assert run.warned("Homemade")


def test_a_hook_of_ours_that_fails_costs_one_warning_and_no_step(run: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()

    def broken(*given: Any, **named: Any) -> Any:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr("barograph.probes.model.looks.norms", broken)
    before = model.head.weight.detach().clone()
    train(run, model)
    assert not torch.equal(before, model.head.weight)
    assert sum("broken on purpose" in sentence for sentence in run.warnings) <= 3 and run.warnings


@pytest.mark.parametrize("options", [{"gradients": -1}, {"weights": 2.5}, {"budget": 2.0}, {"updates": True}])
def test_options_that_are_none_are_refused_before_anything_is_hooked(run: Notes, options: dict[str, Any]) -> None:
    model = Model()
    with pytest.raises(ValueError, match=r"interval|budget"):
        ModelWatch(run, model, **options)
    assert hooks_left(model) == 0


# -- activations, spectra, the end ---------------------------------------------------------------------------


def test_activations_and_spectra_come_with_their_names(run: Notes) -> None:
    model = Model()
    train(run, model, spectral=1)
    assert {"mean", "std", "min", "max", "l2_norm", "rms"} <= set(run.tables["activations", 1]["blocks.0"])
    assert run.fields(1)["residual_growth"] > 0
    spectral = run.tables["spectral", 2]["blocks.1.up.weight"]
    assert spectral["norm"] == pytest.approx(
        float(torch.linalg.matrix_norm(model.blocks[1].up.weight.detach(), 2)), rel=0.02
    )
    fields = run.fields(2)
    values = [row["norm"] for row in run.tables["spectral", 2].values()]
    assert fields["spectral_norm_max"] == max(values)
    assert fields["spectral_norm_mean"] == pytest.approx(sum(values) / len(values))


def test_flow_is_first_over_last_block(run: Notes) -> None:
    model = Model()
    train(run, model)
    squares = [0.0] * 3
    for name, row in run.tables["gradients", 0].items():
        if name.startswith("blocks."):
            squares[int(name.split(".")[1])] += row["norm"] ** 2
    assert run.fields(0)["flow_first_last"] == pytest.approx(math.sqrt(squares[0] / squares[2]), rel=1e-4)
    norms = [row["norm"] for name, row in run.tables["gradients", 0].items() if name.endswith("weight")]
    assert run.fields(0)["flow_spread"] == pytest.approx(max(norms) / min(norms), rel=1e-4)


def test_its_own_time_and_memory_are_recorded(run: Notes) -> None:
    model = Model()
    train(run, model)
    fields = run.fields(1)
    assert 0 < fields["watch_ms"] < 10_000 and 0 < fields["watch_share"] < 1
    weights = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert fields["watch_bytes"] >= weights


def test_nothing_is_left_after_close(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **EACH)
    loss_of(model).backward()
    optimizer.step()
    assert hooks_left(model, optimizer) > 0
    watch.close()
    assert hooks_left(model, optimizer) == 0
    assert run.steps == [0]
    watch.close()


def test_s2s_lines_are_shown_at_its_intervals_when_verbose(run: Notes) -> None:
    shown: list[tuple[list[str], str]] = []
    run.settings = Settings(verbosity=1)
    run.log(98)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=3.0)
    watch = ModelWatch(run, model, optimizer, **EACH, show=lambda lines, level: shown.append((lines, level)))
    for step in range(99, 102):
        loss_of(model).backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    (lines, level), (alerts, alarm) = shown
    assert level == "INFO" and lines[0].startswith("embedding.weight: grad_norm=") and ", std=0." in lines[0]
    assert alarm == "WARNING" and alerts[0] == "Update ratio alerts (step 100):"
    assert alerts[1].endswith("(learning rate may be too high)")


def test_a_watched_model_can_be_copied(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.lock = threading.Lock()  # as a real run has, which can't be copied
    watch = ModelWatch(run, model, optimizer, **EACH)
    average = copy.deepcopy(model)
    loss_of(average).backward()
    loss_of(model).backward()
    optimizer.step()
    watch.flush()
    assert set(run.tables["gradients", 0]) == {name for name, _ in model.named_parameters()}


def test_a_watched_model_can_be_saved_whole(run: Notes, tmp_path: Path) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.lock = threading.Lock()  # as a real run has, which can't be pickled
    watch = ModelWatch(run, model, optimizer, **EACH)
    torch.save(model, tmp_path / "model.pt")
    assert b"barograph" not in (tmp_path / "model.pt").read_bytes()
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(loaded(TOKENS), model(TOKENS))
    loss_of(model).backward()
    optimizer.step()
    watch.close()
    assert "blocks.0" in run.tables["activations", 0] and not run.warnings


def test_parameters_replaced_after_the_watch_began_are_found(run: Notes) -> None:
    model = Model()
    watch = ModelWatch(run, model, **QUIET | {"gradients": 1})
    for block in model.blocks:
        block.up.weight = nn.Parameter(block.up.weight.detach().clone())
    optimizer = torch.optim.SGD([block.up.weight for block in model.blocks], lr=0.1)
    loss_of(model).backward()
    optimizer.step()
    watch.flush()
    assert set(run.tables["gradients", 0]) == {f"blocks.{number}.up.weight" for number in range(3)}


def test_a_resume_from_a_checkpoint_has_its_first_steps_figures_at_that_step(tmp_path: Path) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = {}
    for begin, end in ((0, 20), (15, 25)):
        with barograph.init(
            project="p", id="a", resume="auto", dir=tmp_path, console="none", git=False, machine=False
        ) as run:
            run.watch(model, optimizer, budget=None)
            for step in range(begin, end):
                loss_of(model).backward()
                norms[step] = gradient_norm(model.parameters())
                optimizer.step()
                optimizer.zero_grad()
                run.log({"train/loss": 1.0}, step=step)
    (back,) = barograph.runs(dir=tmp_path)
    found = back.series("model/grad_norm")
    assert found.step.tolist() == list(range(25))
    assert found.value.tolist() == pytest.approx([norms[step] for step in range(25)], rel=1e-5)


def test_a_model_that_is_watched_anew_is_recorded_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with barograph.init(project="p", dir=tmp_path, console="none", git=False, machine=False) as run:
        for begin in (0, 5):
            run.watch(model, optimizer, budget=None)  # as a cell of a notebook that is run again
            for step in range(begin, begin + 5):
                loss_of(model).backward()
                optimizer.step()
                optimizer.zero_grad()
                run.log({"train/loss": 1.0}, step=step)
    (back,) = barograph.runs(dir=tmp_path)
    assert back.series("model/grad_norm").step.tolist() == list(range(10))
    assert hooks_left(model, optimizer) == 0
    assert "the model is watched again" in caplog.text


@pytest.mark.parametrize("together", [False, True])
def test_two_models_are_one_watch_and_never_two_in_one_series(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, together: bool
) -> None:
    players = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizers = [torch.optim.SGD(player.parameters(), lr=0.1) for player in players]
    squares = []
    with barograph.init(project="p", dir=tmp_path, console="none", git=False, machine=False) as run:
        if together:
            run.watch(players, optimizers, budget=None)
        else:
            run.watch(players[0], optimizers[0], budget=None)
            assert run.watch(players[1], optimizers[1], budget=None) is None
        for step in range(4):
            for player, optimizer in zip(players, optimizers, strict=True):
                optimizer.zero_grad()
                player(torch.ones(2, 4)).square().sum().backward()
            squares.append([gradient_norm(player.parameters()) ** 2 for player in players])
            for optimizer in optimizers:
                optimizer.step()
            run.log({"train/loss": 1.0}, step=step)
    assert ("run.watch([model, other]" in caplog.text) is not together
    norms = barograph.runs(dir=tmp_path)[0].series("model/grad_norm").value.tolist()
    assert norms == pytest.approx([math.sqrt(sum(pair) if together else pair[0]) for pair in squares], rel=1e-5)


def test_what_was_seen_before_a_rewind_is_of_the_old_branch(tmp_path: Path) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with barograph.init(project="p", dir=tmp_path, console="none", git=False, machine=False) as run:
        run.watch(model, optimizer, **EACH)
        data = run.watch_data()
        for begin, end in ((0, 20), (10, 25)):
            if begin:
                run.rewind(begin)
            for step in range(begin, end):
                data.observe(TOKENS + step, step=step)
                loss_of(model).backward()
                optimizer.step()
                optimizer.zero_grad()
                run.log({"train/loss": 1.0}, step=step)
    (back,) = barograph.runs(dir=tmp_path)
    for name in ("train/loss", "model/grad_norm", "gradients/head.weight/norm", "data/tokens"):
        assert back.series(name).step.tolist() == list(range(25)), name
        assert len(back.series(name, branch="all")) == 35


@pytest.mark.parametrize(
    "given, sentence",
    [
        (
            lambda model, optimizer: ((None,), {}),
            "run.watch takes (model, optimizer), and the first is of type NoneType",
        ),
        (lambda model, optimizer: ((optimizer, model), {}), "run.watch takes (model, optimizer)"),
        (
            lambda model, optimizer: ((model,), {"optim": optimizer}),
            "no option 'optim'; the nearest one is 'optimizer'",
        ),
        (lambda model, optimizer: ((model,), {"budget": "1%"}), "budget is the share of the step time"),
        (lambda model, optimizer: ((model,), {"memory_budget_mb": "a"}), "memory_budget_mb is a number of megabytes"),
    ],
)
def test_a_watch_that_can_not_be_says_what_to_give(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given: Any, sentence: str
) -> None:
    model = Model()
    with barograph.init(project="p", dir=tmp_path, console="none", git=False, machine=False) as run:
        arguments, options = given(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert run.watch(*arguments, **options) is None
    assert sentence in caplog.text


def test_a_real_run_has_the_series(tmp_path: Path) -> None:
    torch.manual_seed(0)
    run = barograph.init(project="watch", dir=tmp_path, verbosity=-2, git=False)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ModelWatch(run, model, optimizer, gradients=2, updates=2, weights=2, histograms=4, activations=2, optimizer_state=4)
    for _ in range(6):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"loss": 1.0})  # without a step: the run's own count
    run.finish()
    stored = next(iter(barograph.runs(project="watch", dir=tmp_path)))
    assert stored.series("loss").step.tolist() == list(range(6))
    assert stored.series("model/grad_norm").step.tolist() == list(range(6))
    for name in ("gradients/head.weight/norm", "updates/head.weight/ratio", "weights/head.weight/std"):
        assert stored.series(name).step.tolist() == [0, 2, 4]
    assert stored.series("activations/blocks.0/rms").step.tolist() == [0, 2, 4]
    assert stored.series("optimizer/head.weight/below_eps").step.tolist() == [0, 4]
    assert hooks_left(model, optimizer) == 0
