"""Parameters that a step left as they were, and the first that is not finite: seen within one step, and only then."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from watched_models import Model, Notes, loss_of  # noqa: E402

from barograph.probes.model.watch import ModelWatch  # noqa: E402

OFF = {"gradients": 0, "updates": 0, "weights": 0, "histograms": 0, "activations": 0, "optimizer_state": 0}
QUIET: dict[str, Any] = OFF | {"budget": None}


@pytest.fixture
def run() -> Iterator[Notes]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    notes = Notes()
    yield notes
    for last_word in notes.at_finish:
        last_word()


def told(run: Notes, name: str) -> dict[int, float]:
    """What was recorded under a name, by step."""
    return {step: fields[name] for kind, step, fields in run.records if kind == "model" and name in fields}


MAKES = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=0.1),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
}


def swap(optimizer: Any) -> None:
    """The optimizer holds copies of its parameters from now on."""
    for group in optimizer.param_groups:
        group["params"] = [parameter.detach().clone().requires_grad_() for parameter in group["params"]]


@pytest.mark.parametrize("known", [True, False])
def test_an_optimizer_that_turns_to_copies_is_seen_within_a_step(run: Notes, known: bool) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = ModelWatch(run, model, optimizer if known else None, **QUIET)
    for step in range(8):
        if step == 4:
            swap(optimizer)
        model.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    found, count = told(run, "unchanged"), len(list(model.parameters()))
    assert found == {1: 0} | dict.fromkeys(range(5, 8), count)


@pytest.mark.parametrize("known", [True, False])
def test_a_new_optimizer_of_copies_is_seen_within_a_step(run: Notes, known: bool) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = ModelWatch(run, model, optimizer if known else None, **QUIET)
    for step in range(8):
        if step == 4:
            optimizer = torch.optim.AdamW([p.detach().clone().requires_grad_() for p in model.parameters()])
        model.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    found, count = told(run, "unchanged"), len(list(model.parameters()))
    assert found == {1: 0} | dict.fromkeys(range(5, 8), count)


def test_an_optimizer_of_copies_from_the_start_is_seen(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.AdamW([p.detach().clone().requires_grad_() for p in model.parameters()])
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(3):
        model.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert told(run, "unchanged")[1] == len(list(model.parameters()))


def test_weights_copied_back_from_an_outer_optimizer_have_changed(run: Notes) -> None:
    """Master weights: the optimizer steps copies, and the loop writes them into the model past every counter."""
    model = Model()
    masters = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-2)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(5):
        model.zero_grad()
        loss_of(model).backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad = parameter.grad
        optimizer.step()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            parameter.data.copy_(master)
        run.log(step)
    watch.flush()
    assert not any(told(run, "unchanged").values())


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_steps_that_change_something_are_silent_whatever_the_optimizer(run: Notes, make: Any) -> None:
    model = Model()
    optimizer = make(model.parameters())
    watch = ModelWatch(run, model, optimizer, **QUIET | {"updates": 2})
    for step in range(6):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        run.log(step)
    watch.close()
    assert set(told(run, "unchanged").values()) == {0}
    assert {0, 2, 4} <= set(told(run, "unchanged"))


def test_a_learning_rate_of_zero_and_a_gradient_of_zero_change_nothing_and_are_no_fault(run: Notes) -> None:
    rates = iter([0.0, 1e-3, 1e-3, 1e-3])

    class Silent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.multiplied = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.used(x) + 0.0 * self.multiplied(x)

    model = Silent()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    watch = ModelWatch(run, model, optimizer, **QUIET | {"updates": 1})
    for step, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert set(told(run, "unchanged").values()) == {0}


def test_a_step_too_small_for_the_numbers_is_counted_by_its_measured_update(run: Notes) -> None:
    """16-bit weights of 1 take no step of 1e-4: the next number is 1.0078."""
    model = nn.LayerNorm(8).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    watch = ModelWatch(run, model, optimizer, **QUIET | {"updates": 1})
    for step in range(2):
        optimizer.zero_grad()
        model(torch.randn(3, 8, dtype=torch.bfloat16)).square().sum().backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert told(run, "unchanged")[1] == 1  # the weight; the bias of 0 takes any step


def test_a_step_that_skips_a_parameter_it_stepped_before_is_seen_at_once(run: Notes) -> None:
    model = Model()
    kept = model.head.weight

    class Forgetful(torch.optim.Optimizer):
        forgets = False

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    if parameter is not kept or not self.forgets:
                        parameter.sub_(0.1 * parameter.grad)

    optimizer = Forgetful(model.parameters(), {"lr": 0.1})
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(6):
        optimizer.forgets = step in (3, 4)
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert told(run, "unchanged") == {1: 0, 3: 1, 4: 1, 5: 0}


def test_twins_with_an_optimizer_each_are_not_taken_for_copies(run: Notes) -> None:
    first, second = nn.Linear(4, 1), nn.Linear(4, 1)
    mine, other = torch.optim.Adam(first.parameters()), torch.optim.Adam(second.parameters())
    watch = ModelWatch(run, first, mine, **QUIET)
    for step in range(6):
        mine.zero_grad()
        other.zero_grad()
        (first(torch.ones(2, 4)) + second(torch.ones(2, 4))).sum().backward()
        other.step()
        mine.step()
        run.log(step)
    watch.flush()
    assert told(run, "unchanged") == {1: 0}


def test_a_copy_that_learns_beside_the_model_is_not_taken_for_it(run: Notes) -> None:
    """First-order meta-learning: an inner optimizer steps a copy several times, then the model is stepped."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters())
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(5):
        inner = copy.deepcopy(model)
        quick = torch.optim.SGD(inner.parameters(), lr=0.1)
        for _ in range(3):
            quick.zero_grad()
            inner(torch.randn(2, 4)).square().sum().backward()
            quick.step()
        for mine, its in zip(model.parameters(), inner.parameters(), strict=True):
            mine.grad = mine.detach() - its.detach()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert not any(told(run, "unchanged").values())
    assert not any(told(run, "stale_gradients").values())


# -- which gradient, which weight -----------------------------------------------------------------------


def test_the_first_gradient_that_is_not_finite_is_named_at_each_step(run: Notes) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    poisoned = False
    model.blocks[1].down.weight.register_hook(lambda gradient: gradient * (math.nan if poisoned else 1.0))
    for step in range(3):
        poisoned = step == 2
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert "non_finite_gradients" not in run.fields(1)
    assert run.fields(2)["non_finite_gradients"] == 1
    assert run.fields(2)["first_non_finite_gradient"] == "blocks.1.down.weight"


def test_a_weight_that_is_not_finite_is_named_before_its_gradients_are_blamed(run: Notes) -> None:
    model = Model(width=300)  # large enough that its norm is read in part between two full readings
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(5):
        if step == 3:
            with torch.no_grad():
                model.blocks[1].up.weight.view(-1)[20_001] = math.inf
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        run.log(step)
    watch.flush()
    assert "non_finite_weights" not in run.fields(2)
    assert run.fields(3)["first_non_finite_weight"] == "blocks.1.up.weight"
    assert run.fields(3)["non_finite_weights"] == 1 and run.fields(3)["non_finite_gradients"] > 1


def normed() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def step_of(model: nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.randint(0, 3, (16,))).backward()
    optimizer.step()


@pytest.mark.parametrize("before", [0, 3])
def test_whether_parameters_of_no_optimizer_were_trained_before_is_recorded_once(run: Notes, before: int) -> None:
    model = normed()
    for _ in range(before):
        step_of(model, torch.optim.Adam(model.parameters(), lr=1e-2))
    head = torch.optim.SGD(model[-1].parameters(), lr=0.1)
    watch = ModelWatch(run, model, head, **QUIET)
    for _ in range(5):
        step_of(model, head)
    watch.flush()
    assert list(told(run, "unheld_trained").values()) == [float(before > 0)]
    assert set(told(run, "unheld").values()) == {6}
    assert not told(run, "held_vectors")


@pytest.mark.parametrize(
    ("held", "count"), [(["1.weight", "1.bias"], 2), (["1.bias", "3.bias"], 2), (["1.bias", "3.weight"], 0)]
)
def test_what_alone_is_in_an_optimizer_is_known_for_gains_and_biases(run: Notes, held: list[str], count: int) -> None:
    model = normed()
    some = torch.optim.SGD([item for name, item in model.named_parameters() if name in held], lr=0.1)
    watch = ModelWatch(run, model, some, **QUIET)
    for _ in range(5):
        step_of(model, some)
    watch.flush()
    assert list(told(run, "held_vectors").values()) == [count] * (count > 0)


@pytest.mark.parametrize("others", [False, True], ids=["in none", "in one that steps each eighth step"])
def test_parameters_with_gradients_that_no_optimizer_has_are_named(run: Notes, others: bool) -> None:
    model = Model()
    held, rest = list(model.blocks.parameters()), [p for n, p in model.named_parameters() if not n.startswith("blocks")]
    optimizer, second = torch.optim.AdamW(held), torch.optim.AdamW(rest)
    watch = ModelWatch(run, model, [optimizer, second] if others else optimizer, **QUIET)
    for step in range(24):
        model.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        if others and step % 8 == 7:
            second.step()
        run.log(step)
    watch.flush()
    assert not any("no gradient has reached" in sentence for sentence in run.warnings)
    assert any("in no optimizer that steps" in sentence for sentence in run.warnings) == (not others)


def test_gradients_that_are_left_of_an_earlier_training_are_no_gradients_of_this_one(run: Notes) -> None:
    model = normed()
    step_of(model, torch.optim.Adam(model.parameters(), lr=1e-2))
    head = torch.optim.SGD(model[-1].parameters(), lr=0.1)
    watch = ModelWatch(run, model, head, **QUIET)
    for _ in range(5):
        with torch.no_grad():
            inside = model[:-1](torch.randn(16, 6))
        head.zero_grad()
        nn.functional.cross_entropy(model[-1](inside), torch.randint(0, 3, (16,))).backward()
        head.step()
    watch.flush()
    assert not any(told(run, "unheld").values()) and not any(told(run, "unchanged").values())


class Tied(nn.Module):
    """An embedding that is the output's weight, too."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
        self.out.weight = self.words.weight

    def forward(self, tokens: Any) -> Any:
        return self.out(self.words(tokens))


@pytest.mark.parametrize("normed", [True, False])
def test_a_tied_weight_that_was_reparametrised_has_a_size_that_no_optimizer_trains(run: Notes, normed: bool) -> None:
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if normed:
        nn.utils.parametrizations.weight_norm(model.out)
    else:  # two parameters of one tensor: what is stepped as one moves the other
        model.out.weight = nn.Parameter(model.words.weight.data)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.arange(16)), torch.arange(16).roll(1)).backward()
        optimizer.step()
    watch.close()
    assert set(told(run, "unheld").values()) == ({1} if normed else set())
