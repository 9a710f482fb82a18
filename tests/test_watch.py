"""ModelWatch: gradients, weights and updates seen at the right moments, in every kind of loop."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.optim import optimizer as optimizer_module  # noqa: E402
from watched_models import EACH, QUIET, TOKENS, Model, Notes, gradient_norm, loss_of, run  # noqa: E402

from barograph.probes.model.watch import ModelWatch  # noqa: E402

__all__ = ["run"]  # a fixture


def test_gradients_are_those_that_the_step_uses_after_accumulation_and_clipping(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    watch = ModelWatch(run, model, optimizer, **QUIET | {"gradients": 1})
    for _ in range(2):
        for micro in (TOKENS, TOKENS.flip(0, 1)):
            (loss_of(model, micro) / 2).backward()
        before = gradient_norm(model.parameters())
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        used = {name: p.grad.clone() for name, p in model.named_parameters()}
        weights = math.sqrt(sum(float(p.detach().double().square().sum()) for p in model.parameters()))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    watch.flush()
    fields = run.fields(1)
    assert fields["grad_norm_before"] == pytest.approx(before, rel=1e-5)
    assert fields["grad_norm"] == pytest.approx(0.25, rel=1e-5)
    assert fields["clip_coefficient"] == pytest.approx(0.25 / before, rel=1e-4)
    assert fields["param_norm"] == pytest.approx(weights, rel=1e-6)
    table = run.tables["gradients", 1]
    assert set(table) == set(used)
    for name, gradient in used.items():
        exact = gradient.double()
        row = table[name]
        assert row["norm"] == pytest.approx(float(exact.norm()), rel=1e-5)
        assert row["mean"] == pytest.approx(float(exact.mean()), rel=1e-4, abs=1e-10)
        assert row["std"] == pytest.approx(float(exact.std(unbiased=False)), rel=1e-5)
        assert row["min"] == float(gradient.min()) and row["max"] == float(gradient.max())
        assert row["zeros"] == int((gradient == 0).sum()) and row["nan"] == 0 and row["inf"] == 0


def test_gradients_that_add_up_in_parameters_of_no_optimizer_are_not_clipped_away(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD([list(model.parameters())[-1]], lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET | {"gradients": 1})
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    watch.flush()
    fields = run.fields(2)
    assert fields["clip_coefficient"] == pytest.approx(1.0) and fields["grad_norm_before"] > fields["grad_norm"]
    assert fields["unheld"] == fields["unchanged"] == len(list(model.parameters())) - 1


def test_weights_are_those_after_the_step_and_updates_are_measured(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET | {"weights": 1, "updates": 1})
    loss_of(model).backward()
    old = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.step()
    watch.flush()
    for name, parameter in model.named_parameters():
        now = parameter.detach()
        row = run.tables["updates", 0][name]
        assert row["update_norm"] == pytest.approx(float((now - old[name]).norm()), rel=1e-4)
        assert row["ratio"] == pytest.approx(row["update_norm"] / float(old[name].norm()), rel=1e-5)
        # of plain SGD the stability guide's product is the update
        assert row["lr_ratio"] == pytest.approx(row["ratio"], rel=1e-3)
        assert run.tables["weights", 0][name]["norm"] == pytest.approx(float(now.norm()), rel=1e-5)
    assert run.fields(0)["update_p50"] > 0


def test_histograms_and_percentiles_come_at_their_interval(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET | {"gradients": 1, "histograms": 2})
    for _ in range(3):
        loss_of(model).backward()
        gradient = model.head.weight.grad.clone().flatten()
        optimizer.step()
        optimizer.zero_grad()
    watch.flush()
    assert {step for _, step in run.histograms} == {0, 2}
    edges, counts = run.histograms["gradients_hist/head.weight", 2]
    assert float(sum(counts)) == pytest.approx(len(gradient)) and edges[-1] == pytest.approx(float(gradient.max()))
    row = run.tables["gradients", 2]["head.weight"]
    assert row["p99"] == pytest.approx(float(gradient.quantile(0.99)), rel=0.05)
    assert "p99" not in run.tables["gradients", 1]["head.weight"]
    assert ("weights_hist/head.weight", 2) in run.histograms


def test_a_step_that_is_not_due_writes_norms_alone(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, gradients=4, histograms=0, activations=0)
    for step in range(16):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert run.steps == list(range(16))
    assert {step for prefix, step in run.tables if prefix == "gradients"} == {0, 4, 8, 12}
    assert set(run.fields(9)) == {"grad_norm", "param_norm", "watch_ms", "watch_share", "watch_bytes"}


@pytest.mark.parametrize("first, every", [(0, 1), (1, 1), (0, 3), (100, 1), (101, 10)])
def test_steps_have_the_loops_numbers(run: Notes, first: int, every: int) -> None:
    if first > 1:
        run.log(first - 1)  # a resume
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(first, first + 25):
        model(torch.ones(1, 2)).sum().backward()
        if step % 2 and every == 1:
            run.log(step)  # some loops log before the optimizer's step
        optimizer.step()
        if step % every == 0:
            run.log(step)
        optimizer.zero_grad()
    watch.flush()
    assert run.steps == list(range(first, first + 25))


def test_the_runs_own_count_of_steps_is_left_alone(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **EACH)
    for step in range(3):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert run.next_step == step
        run.log(step)
    watch.flush()
    assert run.next_step == 3 and run.tables


def test_a_rewind_takes_the_numbers_back(run: Notes) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in (0, 1, 2, 3, 2, 3):
        run.next_step = step
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert run.steps == [0, 1, 2, 3, 2, 3]


# -- loops of all kinds -----------------------------------------------------------------------------------


def test_a_scaled_loss_shows_unscaled_norms_and_skipped_steps(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    watch = ModelWatch(run, model, optimizer, scaler=scaler, **QUIET | {"gradients": 1})
    for step in range(4):
        loss = loss_of(model) * (math.inf if step == 2 else 1)
        scaler.scale(loss).backward()
        expected = gradient_norm(model.parameters()) / scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert run.steps == [0, 1, 3]
    fields = run.fields(3)
    assert fields["grad_norm"] == pytest.approx(expected, rel=1e-4)
    assert fields["grad_norm_before"] == pytest.approx(expected, rel=1e-4)
    assert fields["skipped_steps"] == 1 and fields["loss_scale"] == 512.0
    assert run.fields(1)["skipped_steps"] == 0


def test_an_optimizer_that_unscales_by_itself_shows_unscaled_figures(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    watch = ModelWatch(run, model, optimizer, scaler=scaler, **QUIET | {"gradients": 1, "histograms": 1})
    scaler.scale(loss_of(model)).backward()
    scaled = model.head.weight.grad.clone()
    expected = gradient_norm(model.parameters()) / 256
    scaler.step(optimizer)
    scaler.update()
    watch.flush()
    assert run.fields(0)["grad_norm"] == pytest.approx(expected, rel=1e-4)
    row = run.tables["gradients", 0]["head.weight"]
    assert row["norm"] == pytest.approx(float(scaled.norm()) / 256, rel=1e-4)
    assert row["max"] == pytest.approx(float(scaled.max()) / 256) and row["p99"] <= row["max"]
    assert run.histograms["gradients_hist/head.weight", 0][0][-1] == pytest.approx(row["max"])


@pytest.fixture
def _no_other_watch() -> None:
    """Trainings of other tests have ended in a step in which their watch listens to all modules."""
    torch.nn.modules.module._global_forward_pre_hooks.clear()


@pytest.mark.slow
@pytest.mark.usefixtures("_no_other_watch")
def test_a_compiled_model_is_seen_under_plain_names_without_being_compiled_again(run: Notes) -> None:
    model = Model()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, compiled, optimizer, gradients=2, updates=2)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for step in range(5):
        loss_of(compiled).backward()
        expected = gradient_norm(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert run.fields(4)["grad_norm"] == pytest.approx(expected, rel=1e-5)
    assert run.fields(4)["grad_norm_before"] == pytest.approx(expected, rel=1e-5)
    assert set(run.tables["gradients", 4]) == {name for name, _ in model.named_parameters()}
    assert run.warned("compiled")


@pytest.mark.slow
@pytest.mark.usefixtures("_no_other_watch")
def test_a_model_that_is_compiled_after_the_watch_began_stays_one_graph(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, gradients=2, activations=2)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for step in range(5):
        loss_of(compiled).backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert run.tables["gradients", 4]["head.weight"]["norm"] > 0
    assert run.warned("no activations were seen")


def test_several_optimizers_make_one_step(run: Notes) -> None:
    model = Model()
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "blocks" in name]
    others = [p for p in model.parameters() if all(p is not one for one in matrices)]
    both = torch.optim.Muon(matrices, lr=0.01), torch.optim.AdamW(others, lr=1e-3)
    watch = ModelWatch(run, model, both, **EACH | {"activations": 0})
    for step in range(3):
        loss_of(model).backward()
        expected = gradient_norm(model.parameters())
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert run.steps == [0, 1, 2]
    assert run.fields(2)["grad_norm"] == pytest.approx(expected, rel=1e-5)
    names = {name for name, _ in model.named_parameters()}
    assert set(run.tables["gradients", 2]) == set(run.tables["updates", 2]) == set(run.tables["optimizer", 2]) == names
    assert "step_mean" in run.tables["optimizer", 2]["embedding.weight"]
    assert "step_mean" not in run.tables["optimizer", 2]["blocks.0.up.weight"]  # Muon has no second moment
    assert run.tables["optimizer", 2]["blocks.0.up.weight"]["momentum_norm"] > 0


@pytest.mark.parametrize("amount", [1, 2])
def test_optimizers_are_found_where_none_is_given(run: Notes, amount: int) -> None:
    model, stranger = Model(), nn.Linear(2, 1)
    parameters = list(model.parameters())
    own = [torch.optim.SGD(parameters[number::amount], lr=0.1) for number in range(amount)]
    other = torch.optim.SGD(stranger.parameters(), lr=0.1)
    watch = ModelWatch(run, model, **QUIET | {"gradients": 1})
    for step in range(3):
        loss_of(model).backward()
        stranger(torch.ones(1, 2)).sum().backward()
        other.step()
        for optimizer in own:
            optimizer.step()
            optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert run.steps == [0, 1, 2]
    for step in run.steps:
        assert set(run.tables["gradients", step]) == {name for name, _ in model.named_parameters()}
    watch.close()
    assert not optimizer_module._global_optimizer_pre_hooks and not optimizer_module._global_optimizer_post_hooks


def test_optimizers_that_step_in_backward_are_seen(run: Notes) -> None:
    model = Model()
    seen: dict[int, float] = {}
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}

    def step_and_free(parameter: Any) -> None:
        seen[id(parameter)] = float(parameter.grad.square().sum())
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step_and_free)
    watch = ModelWatch(run, model, optimizers, **QUIET | {"gradients": 1, "updates": 1})
    for step in range(3):
        loss_of(model).backward()
        run.log(step)
    watch.flush()
    assert run.steps == [0, 1, 2]
    assert run.fields(2)["grad_norm"] == pytest.approx(math.sqrt(sum(seen.values())), rel=1e-5)
    assert len(run.tables["gradients", 2]) == len(run.tables["updates", 2]) == len(list(model.parameters()))


def test_gradients_that_are_used_and_freed_in_backward_are_seen_as_they_come(run: Notes) -> None:
    model = Model()
    seen: dict[int, float] = {}

    def learn_and_free(parameter: Any) -> None:
        seen[id(parameter)] = float(parameter.grad.square().sum())
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(learn_and_free)
    watch = ModelWatch(run, model, **QUIET | {"gradients": 2})
    for step in range(6):
        loss_of(model).backward()
        run.log(step)
    watch.flush()
    assert run.warned("freed while backward runs")
    assert run.fields(4)["grad_norm"] > 0
    assert set(run.tables["gradients", 4]) == {name for name, _ in model.named_parameters()}
    total = math.sqrt(math.fsum(row["norm"] ** 2 for row in run.tables["gradients", 4].values()))
    assert run.fields(4)["grad_norm"] == pytest.approx(total, rel=1e-5)


def test_a_norm_that_the_loop_knows_is_used(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for _ in range(2):
        loss_of(model).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        watch.note_norm(norm, 0.5)
        optimizer.step()
        expected = gradient_norm(model.parameters())
        optimizer.zero_grad()
    watch.flush()
    fields = run.fields(1)
    assert fields["grad_norm_before"] == pytest.approx(float(norm))
    assert fields["grad_norm"] == pytest.approx(expected, rel=1e-5)
    assert fields["clip_coefficient"] == pytest.approx(expected / float(norm), rel=1e-5)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_a_closures_gradients_are_those_of_its_own_step(run: Notes, named: bool, given: bool) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    watch = ModelWatch(run, model, optimizer if given else None, **QUIET | {"gradients": 1})
    used = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model) * (1 + len(used))  # each step's gradients are others
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25 * (1 + len(used)))
        used.append(gradient_norm(model.parameters()))
        return loss

    for step in range(4):
        result = optimizer.step(closure=closure) if named else optimizer.step(closure)
        assert result is not None
        run.log(step)
    watch.flush()
    assert [run.fields(step)["grad_norm"] for step in range(4)] == pytest.approx(used, rel=1e-5)


def test_a_closures_step_has_its_own_number_and_its_own_activations(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    watch = ModelWatch(run, model, optimizer, **QUIET | {"updates": 1, "activations": 1})

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    moved = {}
    for step in range(1, 7):
        before = model.head.weight.detach().clone()
        optimizer.step(closure)
        moved[step] = float((model.head.weight.detach() - before).norm())
        run.log(step)
    watch.flush()
    assert run.steps == list(range(1, 7))
    for step in range(1, 7):
        assert run.tables["updates", step]["head.weight"]["update_norm"] == pytest.approx(moved[step], rel=1e-4)
        assert "blocks.0" in run.tables["activations", step]
        assert "cleared_passes" not in run.fields(step)  # each pass of the search clears, on purpose
    assert not run.warnings


@pytest.mark.parametrize("kind", ["LBFGS", "SGD"])
def test_an_optimizer_that_ends_by_its_own_tolerance_may_leave_weights_as_they_are(run: Notes, kind: str) -> None:
    model = nn.Linear(3, 1)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET | {"updates": 1})
    inputs = torch.randn(16, 3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = 1e-12 * model(inputs).square().mean()  # rounded away: nothing moves
        loss.backward()
        return loss

    for step in range(1, 5):
        optimizer.step(closure)
        run.log(step)
    watch.flush()
    assert {run.fields(step)["unchanged"] for step in (3, 4)} == {0 if kind == "LBFGS" else 2}


@pytest.mark.parametrize("held", [True, False])
def test_an_optimizer_made_anew_is_followed(run: Notes, held: bool) -> None:
    model = Model()
    optimizer = old = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    norms = {}
    for step in range(1, 13):
        if step == 5:
            model.head = nn.Linear(model.head.in_features, model.head.out_features, bias=False)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if not held:
                del old
        loss = loss_of(model)
        loss.backward()
        norms[step] = gradient_norm(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        run.log(step)
    watch.flush()
    assert run.steps == [1, 2, 3, 4, *range(8 if held else 6, 13)]
    for step in run.steps:
        assert run.fields(step)["grad_norm"] == pytest.approx(norms[step], rel=1e-5)


def test_an_optimizer_around_the_given_one_is_not_followed_too(run: Notes) -> None:
    class Around(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            inside.step()

    model = Model()
    inside, around = torch.optim.SGD(model.parameters(), lr=0.1), Around(model.parameters(), lr=0.1)
    watch = ModelWatch(run, model, inside, **QUIET)
    for step in range(1, 10):
        loss_of(model).backward()
        norm = gradient_norm(model.parameters())
        around.step()
        inside.zero_grad()
        run.log(step)
    watch.flush()
    assert watch.optimizers == [inside]
    assert run.steps == list(range(1, 10)) and run.fields(9)["grad_norm"] == pytest.approx(norm, rel=1e-5)


if torch.cuda.is_available():  # asked here, because a skipped test counts as a failure in CI

    def test_a_monitored_step_never_waits_for_the_device(run: Notes) -> None:
        model = Model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        watch = ModelWatch(run, model, optimizer, **EACH, spectral=1)
        for step in range(4):
            tokens = TOKENS.cuda()
            torch.cuda.set_sync_debug_mode("error" if step > 1 else "default")
            try:
                loss_of(model, tokens).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                optimizer.step()
                optimizer.zero_grad()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        watch.flush()
        assert run.fields(3)["grad_norm"] == pytest.approx(0.25, rel=1e-4)
