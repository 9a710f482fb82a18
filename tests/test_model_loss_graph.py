"""What the graph of a loss shows, whatever the loss is: sums, micro-batches that are added, activations twice."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose
from barograph.probes.model import loss_graph
from barograph.probes.model.backward import Sentinel
from barograph.probes.model.loss_graph import LossGraph
from barograph.probes.model.rounds import ModelRound

torch = pytest.importorskip("torch")
from test_model_objective import seen  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

Loss = Callable[[Any, Any], Any]


def rewards(first: Any, second: Any) -> Any:
    return -functional.logsigmoid(first[:, 0] - second[:, 0])


def similar(first: Any, second: Any, temperature: float = 0.2) -> Any:
    return functional.normalize(first, dim=1) @ functional.normalize(second, dim=1).T / temperature


def contrast(first: Any, second: Any, temperature: float = 0.2, **how: Any) -> Any:
    return functional.cross_entropy(similar(first, second, temperature), torch.arange(len(first)), **how)


def triplet(first: Any, second: Any) -> Any:
    return functional.triplet_margin_loss(first, second, second.roll(1, 0))


def train(folder: Path, loss_of: Loss, parts: int = 1, config: dict[str, Any] | None = None, rows: int = 24) -> Any:
    """The findings of a small training of pairs that belong together, by rule."""
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 16))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False,
        config=config or {},
    )  # fmt: skip
    run.watch(model, optimizer)
    for step in range(20):
        optimizer.zero_grad()
        for _ in range(parts):
            first = torch.randn(rows, 12)
            second = first + 0.3 * torch.randn(rows, 12)
            loss = loss_of(*model(torch.cat([first, second])).chunk(2))
            loss.backward()
        optimizer.step()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    found = diagnose(barograph.read(str(run.dir))[0])["findings"]
    return {part["rule"]: part for item in found for part in (*item["evidence"].get("story", ()), item)}


def with_a_share(first: Any, second: Any) -> Any:
    """As a cross-entropy beside what is left of an overlap, which has a weight."""
    return contrast(first, second) + 0.5 * (1 - (first.sigmoid() * second.sigmoid()).mean())


FOUR = {"gradient_accumulation_steps": 4}


@pytest.mark.parametrize("loss_of", [lambda a, b: rewards(a, b).mean(), contrast, triplet, with_a_share])
@pytest.mark.parametrize(
    ("divided", "parts", "config", "warns"),
    [(1, 4, FOUR, True), (1, 3, {}, True), (4, 4, FOUR, False), (1, 1, {}, False), (1, 2, {}, False)],
)
def test_micro_batches_that_are_added_are_known_by_the_graph_of_any_loss(
    tmp_path: Path, loss_of: Loss, divided: int, parts: int, config: dict[str, Any], warns: bool
) -> None:
    found = train(tmp_path, lambda a, b: loss_of(a, b) if divided == 1 else loss_of(a, b) / divided, parts, config)
    assert ("loss_weight" in found) == warns
    if warns:
        assert found["loss_weight"]["causes"][0].startswith("gradient accumulation scaled wrongly")


@pytest.mark.parametrize(
    ("loss_of", "warns"),
    [
        (lambda a, b: rewards(a, b).sum(), True),
        (lambda a, b: contrast(a, b, reduction="sum"), True),
        (lambda a, b: contrast(a, b, reduction="sum") + contrast(b, a, reduction="sum"), True),
        (lambda a, b: contrast(a, b, reduction="sum") + contrast(b, a), False),
        (lambda a, b: contrast(a, b, reduction="sum") + contrast(b[:9], a[:9], reduction="sum"), False),
        (lambda a, b: contrast(a, b, reduction="sum") + (a - b).square().sum(), False),
        (lambda a, b: contrast(a, b) + contrast(b, a), False),
        (lambda a, b: rewards(a, b).sum() / len(a), False),
        (lambda a, b: contrast(a, b, reduction="sum") / len(a), False),
        (lambda a, b: (a - b).square().sum(), False),  # of which nobody knows the size
    ],
)
def test_a_sum_of_cross_entropies_or_logistic_losses_is_known_by_its_graph(
    tmp_path: Path, loss_of: Loss, warns: bool
) -> None:
    found = train(tmp_path, loss_of)
    assert ("loss_weight" in found) == warns
    if warns:
        assert found["loss_weight"]["severity"] == "warning"
        assert found["loss_weight"]["causes"][0].startswith("loss summed: over 24 ")


def of_labels(logits: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[1])


def of_chances(logits: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits, torch.linspace(0, 1, logits.numel()).view_as(logits).softmax(1))


def chosen(logits: Any) -> Any:
    """The loss of a policy whose distribution is given these logits."""
    actions = torch.distributions.Categorical(logits=logits)
    return -(actions.log_prob(torch.arange(len(logits)) % logits.shape[1]) * torch.randn(len(logits))).mean()


def signs_of(a: torch.Tensor) -> torch.Tensor:
    """1 for pairs, −1 for all others."""
    return 2.0 * torch.eye(len(a)) - 1


@pytest.mark.parametrize(
    ("loss_of", "twice"),
    [
        (lambda a, b: functional.cross_entropy(similar(a, b).softmax(1), torch.arange(len(a))), True),
        (lambda a, b: -functional.logsigmoid(torch.sigmoid(a[:, 0] - b[:, 0])).mean(), True),
        (lambda a, b: -functional.logsigmoid(torch.sigmoid(a[:, 0]) - torch.sigmoid(b[:, 0])).mean(), True),
        (lambda a, b: -torch.sigmoid(a[:, 0].sigmoid() - b[:, 0].sigmoid()).log().mean(), True),
        (lambda a, b: -torch.sigmoid(a[:, 0] - b[:, 0]).log().mean(), False),
        (lambda a, b: functional.cross_entropy(similar(a, b).log_softmax(1), torch.arange(len(a))), False),
        (lambda a, b: -functional.logsigmoid(signs_of(a) * similar(a, b).sigmoid()).sum() / len(a), True),
        (lambda a, b: -functional.logsigmoid(signs_of(a) * similar(a, b)).sum() / len(a), False),
        (lambda a, b: -functional.logsigmoid(10 * a.sigmoid()).mean(), False),  # a bound on purpose
        (lambda a, b: -functional.logsigmoid(torch.tanh(a[:, 0] - b[:, 0])).mean(), False),
        (contrast, False),
        (lambda a, b: functional.cross_entropy(similar(a, b).sigmoid(), torch.arange(len(a))), True),
        (lambda a, b: functional.cross_entropy(similar(a, b).tanh(), torch.arange(len(a))), True),
        (lambda a, b: functional.cross_entropy(10 * similar(a, b).tanh(), torch.arange(len(a))), False),
        (lambda a, b: -functional.logsigmoid(functional.logsigmoid(a[:, 0] - b[:, 0])).mean(), True),
        (lambda a, b: of_labels(functional.normalize(a, dim=1)), True),
        (lambda a, b: of_labels(functional.normalize(a.view(4, 6, -1), dim=-1).flatten(0, 1)), True),
        (lambda a, b: of_labels(a / a.norm(dim=1, keepdim=True)), True),
        (lambda a, b: of_labels(functional.normalize(a, dim=1) / 0.1), False),  # with a temperature
        (lambda a, b: of_labels(a / (0.04 * a.norm(dim=1, keepdim=True))), False),
        (lambda a, b: of_labels(functional.normalize(a, dim=1) * b.exp().mean()), False),  # with a learnt scale
        (lambda a, b: of_labels(functional.normalize(a, dim=0)), False),  # over the examples
        (lambda a, b: of_labels(a / a.std(1, keepdim=True)), False),
        (lambda a, b: of_labels(functional.normalize(a, dim=1) @ functional.normalize(b, dim=1).T), False),
        # chances that are moved or masked before, by what has no gradient, or normalised by a distribution
        (lambda a, b: of_labels(a.softmax(1) + torch.arange(a.shape[1]).log1p()), True),
        (lambda a, b: of_labels(a.softmax(1).masked_fill(torch.arange(a.shape[1]) > 15, -1e9)), True),
        (lambda a, b: chosen(a.softmax(1)), True),
        (lambda a, b: chosen(a), False),
        (lambda a, b: chosen(a.log_softmax(1)), False),
        (lambda a, b: of_labels(a.softmax(1).log() - torch.arange(a.shape[1]).log1p()), False),
        (lambda a, b: of_labels(a + torch.arange(a.shape[1]).log1p()), False),
        (lambda a, b: of_labels(a.softmax(1) + b), False),  # something is learnt beside them
        (lambda a, b: of_labels(10 * a.softmax(1) + 1), False),  # with a scale
        # of what is brought to length one on both sides, as of features that are to be another model's
        (lambda a, b: of_chances(functional.normalize(a, dim=1)), False),
    ],
)
def test_an_activation_before_that_of_a_loss_of_pairs_is_proven(tmp_path: Path, loss_of: Loss, twice: bool) -> None:
    found = train(tmp_path, loss_of)
    assert ("double_softmax" in found) == twice
    if twice:
        assert found["double_softmax"]["causes"][0].startswith("softmax twice")


def test_a_loss_with_a_gradient_of_its_own_says_nothing_and_no_graph_is_kept() -> None:
    weight, look = nn.Parameter(torch.randn(8, 8)), LossGraph()
    weight.register_post_accumulate_grad_hook(lambda _: look.came())
    functional.cross_entropy(torch.randn(4, 8) @ weight, torch.arange(4)).backward(torch.tensor(0.5))
    assert look.new() == {}
    functional.cross_entropy(torch.randn(4, 8) @ weight, torch.arange(4)).backward()
    assert look.new() == {
        "loss_terms": 1.0, "loss_undivided": 1.0, "activation_twice": 0.0, "loss_classes": 8.0,
        "loss_reversed": 0.0, "label_smoothing": 0.0, "softmax_over_rows": 0.0,
        "nll_of_probabilities": 0.0, "nll_of_scores": 0.0, "logits_cut": 0.0, "loss_logistic": 0.0,
    }  # fmt: skip
    functional.cross_entropy(torch.randn(4, 8) @ weight, torch.arange(4)).backward()
    assert look.new() == {}  # as before
    assert not any(hasattr(value, "grad_fn") or hasattr(value, "next_functions") for value in vars(look).values())


def test_a_proof_of_one_loss_stays_where_a_step_has_another_one() -> None:
    weight, look = nn.Parameter(torch.randn(8, 1)), LossGraph()
    weight.register_post_accumulate_grad_hook(lambda _: look.came())
    (torch.randn(6, 8) @ weight - torch.zeros(6)).square().mean().backward()  # a critic's, broadcast
    (-(torch.randn(6, 8) @ weight).mean()).backward()  # an actor's
    found = look.new()
    assert found["loss_crossed"] == 6.0 and "loss_error" not in found


def each(x: Any) -> Any:
    return functional.cross_entropy(x, torch.arange(8), reduction="none")


@pytest.mark.parametrize(
    ("loss_of", "kept"),
    [
        (lambda x: each(x).topk(2).values.mean(), (2.0, 8.0)),
        (lambda x: each(x).topk(1)[0].mean() / 4, (1.0, 8.0)),
        (lambda x: each(x).sort(descending=True)[0][:3].mean(), (3.0, 8.0)),
        (lambda x: (-functional.logsigmoid(x[:, 0])).topk(2)[0].mean(), (2.0, 8.0)),
        (lambda x: each(x).mean(), None),
        (lambda x: each(x).topk(2).values.mean() + each(x).mean(), None),
        (lambda x: each(x).view(4, 2).topk(1).values.mean(), None),  # one of each pair
        (lambda x: x.topk(2).values.mean(), None),  # of scores
    ],
)  # fmt: skip
def test_of_losses_that_are_chosen_by_their_size_the_number_is_seen(loss_of: Any, kept: Any) -> None:
    weight, look = nn.Parameter(torch.randn(8, 8)), LossGraph()
    weight.register_post_accumulate_grad_hook(lambda _: look.came())
    loss_of(torch.randn(8, 8) @ weight).backward()
    found = look.new()
    assert (found.get("hardest_kept"), found.get("hardest_of")) == (kept or (None, None))
    each(torch.randn(8, 8) @ weight).mean().backward()
    assert look.new().get("hardest_kept") == (0.0 if kept else None)


@pytest.mark.parametrize(
    ("loss_of", "kept"),
    [
        (lambda x: functional.l1_loss(x, torch.zeros(4, 8)), True),
        (lambda x: functional.smooth_l1_loss(x, torch.zeros(4, 8)), True),
        (lambda x: (x - 3.0).abs().mean(), True),
        (lambda x: (x - 3.0).abs().sum(1).mean(), False),  # of rows, whatever their length
        (lambda x: functional.mse_loss(x, torch.zeros(4, 8)), False),  # whose targets are known
        (lambda x: functional.cross_entropy(x, torch.arange(4)), False),
    ],
)
def test_the_value_of_a_mean_of_errors_is_kept_without_its_graph(loss_of: Callable[[Any], Any], kept: bool) -> None:
    weight, look = nn.Parameter(torch.randn(8, 8)), LossGraph()
    weight.register_post_accumulate_grad_hook(lambda _: look.came())
    loss = loss_of(torch.randn(4, 8) @ weight)
    loss.backward()
    assert (look.value is not None) == kept
    assert not kept or (look.value.item() == loss.item() and not look.value.requires_grad)


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda x, far: functional.huber_loss(x, far, delta=100.0),
        lambda x, far: functional.mse_loss(x, far) + functional.mse_loss(x, 0.9 * far),
        lambda x, far: functional.mse_loss(x, far) + (x - far).abs().mean(),
        lambda x, far: functional.smooth_l1_loss(x, far),
    ],
)
def test_the_value_of_errors_is_no_farther_than_outputs_are_from_their_targets(loss_of: Callable[..., Any]) -> None:
    weight, look = nn.Parameter(torch.eye(8)), LossGraph()
    weight.register_post_accumulate_grad_hook(lambda _: look.came())
    loss_of(torch.randn(4, 8) @ weight, torch.full((4, 8), 900.0)).backward()
    assert look.value is not None and 400 < look.value.item() < 1300


def test_a_look_that_fails_does_not_reach_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> dict[str, float]:
        raise KeyError("tensors")

    monkeypatch.setattr(loss_graph, "find", fails)
    weight, calls = nn.Parameter(torch.randn(4, 4)), []
    sentinel = Sentinel(lambda: calls.append(1))
    sentinel.follow((weight,))
    weight.square().mean().backward()
    assert calls == [1] and weight.grad is not None


def test_variables_of_the_training_die_when_it_drops_them() -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    sentinel = Sentinel(lambda: None)
    sentinel.follow((weight,))
    output = weight @ torch.randn(4, 4)
    dropped = weakref.ref(output)
    output.square().mean().backward()
    del output
    assert dropped() is None


class Group:
    """Of a sharded model whose gradients are reduced, or kept."""

    def __init__(self, reduces: bool):
        self.reduce_grads = reduces


class Sharded(nn.Module):
    def __init__(self, reduces: bool):
        super().__init__()
        self._fsdp_param_groups = [Group(reduces)]

    def _get_fsdp_state(self) -> Sharded:
        return self


@pytest.mark.parametrize("reduces", [True, False])
@pytest.mark.parametrize("clears", [True, False])
def test_passes_of_a_sharded_model_add_up_where_gradients_stay_or_are_kept(reduces: bool, clears: bool) -> None:
    weight, current, model = nn.Parameter(torch.randn(4, 4)), ModelRound(0, frozenset()), Sharded(reduces)
    current.figures["passes"] = 3.0
    sentinel = Sentinel(lambda: None)
    sentinel._parameters = (weight,)  # as if it were sharded: none is listened to
    for _ in range(3):
        output = weight @ torch.randn(4, 4)
        output.register_hook(lambda gradient: sentinel.came_to_output(gradient, model))
        output.square().mean().backward()
        if clears or not reduces:
            weight.grad = None
    sentinel.put(current, True)
    expected = None if clears and reduces else 3.0
    assert current.figures.get("backwards") == current.figures.get("losses_given") == expected


@pytest.mark.parametrize(
    ("clears", "reduces", "cleared"), [(True, True, 2.0), (False, True, None), (True, False, None)]
)
def test_passes_of_a_sharded_model_that_gave_gradients_and_were_cleared_are_counted(
    clears: bool, reduces: bool, cleared: float | None
) -> None:
    weight, current = nn.Parameter(torch.randn(4, 4)), ModelRound(0, frozenset())
    sentinel = Sentinel(lambda: None)
    sentinel._parameters = (weight,)  # as if it were sharded
    weight.register_post_accumulate_grad_hook(sentinel._reduces)
    for at in range(3):
        output = weight @ torch.randn(4, 4)
        output.register_hook(sentinel.came_to_output)
        if reduces or at == 2:
            output.square().mean().backward()
        else:
            torch.autograd.grad(output.square().mean(), output)  # as of an attack on inputs
        if clears and at < 2:
            weight.grad = None
    sentinel.put(current, True)
    assert current.figures.get("cleared_passes") == cleared
    sentinel.put(later := ModelRound(1, frozenset()), True)
    assert later.figures.get("cleared_passes") == (0.0 if cleared else None)


@pytest.mark.parametrize(("passes", "known"), [(1, True), (2, False)])  # what was cleared in between is not seen
def test_a_pass_is_seen_once_at_outputs_where_no_parameter_gets_a_gradient_itself(passes: int, known: bool) -> None:
    weight, current = nn.Parameter(torch.randn(4, 4)), ModelRound(0, frozenset())
    current.figures["passes"] = 1.0
    sentinel = Sentinel(lambda: None)  # it follows none, as with parameters that are sharded
    for _ in range(passes):
        outputs = [weight @ torch.randn(4, 4) for _ in range(2)]
        for output in outputs:
            output.register_hook(sentinel.came_to_output)
        sum(output.square().mean() for output in outputs).backward()
    sentinel.put(current, True)
    assert ("backwards" in current.figures) is known and ("losses_given" in current.figures) is known
    assert current.figures.get("backwards", 1.0) == current.figures.get("losses_given", 1.0) == 1.0
    sentinel.put(later := ModelRound(1, frozenset()), True)
    assert "backwards" not in later.figures


@pytest.mark.parametrize(
    ("loss_of", "terms"),
    [
        (lambda a, b: functional.mse_loss(a, b), 1),
        (lambda a, b: 0.3 * functional.mse_loss(a, b) / 7, 1),
        (lambda a, b: functional.mse_loss(a, b) + 0.1 * a.pow(2).mean(), 2),
        (lambda a, b: sum([a.abs().mean(), b.abs().mean(), -0.1 * a.exp().sum()]), 3),
        (lambda a, b: torch.stack([a.abs().mean(), b.abs().mean()]).sum(), 2),
        (lambda a, b: sum(a[row].abs().mean() for row in range(24)), 0),
    ],
    ids=["one", "multiplied", "two", "a sum", "stacked", "too many"],
)
def test_the_terms_of_a_loss_are_counted(loss_of: Loss, terms: int) -> None:
    first = torch.randn(24, 6, requires_grad=True)
    assert loss_graph.count_terms(loss_of(first, 2 * first).grad_fn) == terms


def test_the_step_at_which_a_loss_gets_a_term_is_recorded(tmp_path: Path) -> None:
    calls: list[int] = []

    def loss_of(first: Any, second: Any) -> Any:
        calls.append(0)
        loss = functional.mse_loss(first, second)
        return loss + first.pow(2).mean() if len(calls) > 9 else loss

    train(tmp_path, loss_of)
    (run,) = barograph.read(str(tmp_path))
    series = run.series("model/loss_terms")
    assert list(zip(series.step.tolist(), series.value.tolist(), strict=True)) == [(0, 1.0), (9, 2.0)]


@pytest.mark.parametrize(
    ("loss_of", "often"),
    [
        (lambda x: (x.square().mean() + x.abs().mean()) / 4 / 4, 2.0),
        (lambda x: 0.5 * (x.square().mean() / 4) / 2, 3.0),
        (lambda x: (x.square().mean() + x.abs().mean() / 2) / 4, None),  # a term's own weight
        (lambda x: (x.square() / 2).mean() / 4, None),
        (lambda x: x.square().mean() * x.abs().mean() / 4, None),
    ],
)
def test_numbers_that_scale_a_whole_loss_one_after_the_other_are_counted(
    loss_of: Callable[[Any], Any], often: float | None
) -> None:
    assert seen(loss_of, loss_graph.figures).get("scaled_again") == often


@pytest.mark.parametrize(
    ("loss_of", "alone"),
    [
        (lambda x: x.square().mean() * 1.0, 1.0),
        (lambda x: 2 * (0.5 * functional.mse_loss(x, torch.zeros_like(x))), 1.0),
        (lambda x: x.square().mean() * 2 / 4, 0.0),
        (lambda x: x.square().mean() / 4, 0.0),
        (lambda x: x.square().mean(), None),
        (lambda x: x.square().sum() * 2, None),
        (lambda x: 2 * (x.square().mean() + x.abs().mean()), None),
    ],
)
def test_a_mean_that_numbers_multiply_and_none_divides_is_told(
    loss_of: Callable[[Any], Any], alone: float | None
) -> None:
    assert seen(loss_of, loss_graph.times_alone).get("only_multiplied") == alone
