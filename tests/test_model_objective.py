"""What the graph of a loss says of an objective, when its backward pass is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from barograph.probes.model import loss_graph, objective

ROWS, CLASSES = 12, 5
SIGNS = 2 * torch.eye(ROWS) - 1
TARGET = torch.arange(ROWS) % CLASSES
MASK = TARGET > 1
ADVANTAGE = torch.linspace(-1, 1, ROWS)


def masked(similarity: Tensor) -> Tensor:
    return similarity.masked_fill(torch.eye(ROWS, dtype=torch.bool), -1e9)


SCALE = nn.Parameter(torch.tensor(5.0))


def of_two_sides(x: Tensor, dim: int, scale: Tensor | float = 10.0) -> Tensor:
    """All pairs of a batch, of embeddings that are normalised along this dimension."""
    one, two = functional.normalize(x, dim=dim), functional.normalize(x.flip(0) + 1, dim=dim)
    return functional.cross_entropy(scale * one @ two.T, torch.arange(ROWS))


def of_one_side(one: Tensor, two: Tensor) -> Tensor:
    """All pairs of a batch, the first of them as a layer gives it where it has a gradient."""
    one = one @ torch.eye(one.shape[1], requires_grad=True) if one.grad_fn is not None else one
    return functional.cross_entropy(SCALE * one @ two.T, torch.arange(ROWS))


def unit(output: Tensor) -> Tensor:
    return functional.normalize(output, dim=-1)


def queued(output: Tensor, negatives: Tensor, among: bool = False) -> Tensor:
    """One answer a row, and the negatives that all rows share. among: the answer is among the keys of all rows."""
    answer, wanted = (output * output.detach()).sum(1, keepdim=True), torch.zeros(len(output)).long()
    if among:
        answer, wanted = output @ output.detach().T, torch.arange(len(output))
    return functional.cross_entropy(torch.cat([answer, output @ negatives], 1) / 0.2, wanted)


def of_two_views(both: Tensor, temperature: float = 0.0) -> Tensor:
    """Two views of things in one tensor, each compared with all others."""
    alike = both @ both.T / temperature if temperature else both @ both.T
    return functional.cross_entropy(alike.masked_fill(torch.eye(len(both)) > 0, -1e9), torch.arange(len(both)).roll(2))


def divided(output: Tensor) -> Tensor:
    return output / output.norm(dim=-1, keepdim=True)


def seen(
    loss_of: Callable[[Tensor], Tensor], figures: Callable[..., dict[str, float]] = loss_graph._all
) -> dict[str, float]:
    """Figures of a loss of some output, as they are read at the end of its backward pass."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(ROWS, CLASSES))
    loss, found = loss_of(weight * 1.0), {}
    engine = torch.autograd.Variable._execution_engine
    weight.register_post_accumulate_grad_hook(
        lambda _: engine.queue_callback(lambda: found.update(figures(loss.grad_fn)))
    )
    loss.backward()
    return found


@pytest.mark.parametrize(
    ("loss_of", "over"),
    [
        (lambda x, y: functional.nll_loss(x.log_softmax(1).reshape(-1, 5), y.flatten()), 2.0),
        (lambda x, y: functional.nll_loss(x.log_softmax(1).transpose(1, 2), y), 2.0),
        (lambda x, y: functional.nll_loss(x.log_softmax(0).view(-1, 5), y.flatten()), 1.0),
        (lambda x, y: functional.nll_loss(x.log_softmax(2).reshape(-1, 5), y.flatten()), 0.0),
        (lambda x, y: functional.nll_loss(x.log_softmax(-1).transpose(1, 2), y), 0.0),
        (lambda x, y: functional.nll_loss(x.transpose(1, 2).log_softmax(1), y), 0.0),
    ],
)
def test_a_log_softmax_over_places_is_seen_through_changes_of_shape(
    loss_of: Callable[[Tensor, Tensor], Tensor], over: float
) -> None:
    x, y = torch.randn(4, 7, 5, requires_grad=True), torch.randint(0, 5, (4, 7))
    assert objective.figures(loss_of(x * 1, y).grad_fn)["softmax_over_rows"] == over


@pytest.mark.parametrize(
    ("made", "figure"),
    [
        (lambda x: x.softmax(-1).transpose(1, 2), "nll_of_probabilities"),
        (lambda x: x.softmax(-1).permute(0, 2, 1).contiguous(), "nll_of_probabilities"),
        (lambda x: functional.linear(x, torch.eye(5)).transpose(1, 2), "nll_of_scores"),
        (lambda x: x.log_softmax(-1).transpose(1, 2), None),
        (lambda x: x.transpose(1, 2).log_softmax(1), None),
        (lambda x: x.softmax(-1).log().transpose(1, 2), None),
    ],
)
def test_what_nll_loss_is_given_is_seen_where_classes_are_put_before_places(
    made: Callable[[Tensor], Tensor], figure: str | None
) -> None:
    x, y = torch.randn(4, 7, 5, requires_grad=True), torch.randint(0, 5, (4, 7))
    found = objective.figures(functional.nll_loss(made(x * 1), y, ignore_index=-100).grad_fn)
    names = ("nll_of_probabilities", "nll_of_scores")
    assert {name for name in names if found.get(name) == 1} == ({figure} if figure else set())


def surrogate(output: Tensor, clip: float = 0.2, detached: bool = True) -> Tensor:
    chance = output.log_softmax(1).gather(1, TARGET[:, None])[:, 0]
    ratio = (chance - (chance.detach() if detached else chance)).exp()
    return torch.min(ratio * ADVANTAGE, ratio.clamp(1 - clip, 1 + clip) * ADVANTAGE).mean()


@pytest.mark.parametrize(
    ("loss_of", "over"),
    [
        (lambda x, y: functional.cross_entropy(x, y), 0.0),
        (lambda x, y: functional.nll_loss(x.log_softmax(1), y), 0.0),
        (lambda x, y: functional.nll_loss(x.log_softmax(-1), y), 2.0),
        (lambda x, y: functional.nll_loss(x.log_softmax(0), y), 1.0),
        (lambda x, y: functional.nll_loss(x.flatten(2).log_softmax(-1).view_as(x), y), 2.0),
        (lambda x, y: functional.nll_loss(x.flatten(2).log_softmax(1), y.flatten(1)), 0.0),
        (lambda x, y: functional.nll_loss(x.flatten(2).log_softmax(2), y.flatten(1)), 2.0),
        # classes that come last, as a text's, are turned to the place where the loss has them
        (lambda x, y: functional.nll_loss(x.permute(0, 2, 3, 1).log_softmax(-1).permute(0, 3, 1, 2), y), 0.0),
        (lambda x, y: functional.cross_entropy(x.permute(0, 2, 3, 1).reshape(-1, 3), y.flatten()), 0.0),
    ],
)
def test_a_softmax_over_places_is_told_from_one_over_classes(
    loss_of: Callable[[Tensor, Tensor], Tensor], over: float
) -> None:
    x, y = torch.randn(4, 3, 6, 6, requires_grad=True), torch.randint(0, 3, (4, 6, 6))
    assert objective.figures(loss_of(x * 1, y).grad_fn).get("softmax_over_rows", 0.0) == over


@pytest.mark.parametrize(
    ("loss_of", "torn"),
    [
        (lambda x, y: functional.cross_entropy(x.view(4, 5, 7), y), True),
        (lambda x, y: functional.cross_entropy(x.float().reshape(4, 5, 7) / 2, y), True),
        (lambda x, y: functional.cross_entropy(x.transpose(1, 2).reshape(-1, 5), y.flatten()), True),
        (lambda x, y: functional.cross_entropy(x.transpose(1, 2), y), False),
        (lambda x, y: functional.cross_entropy(x.view(-1, 5), y.flatten()), False),
        (lambda x, y: functional.cross_entropy(x[:, :-1].reshape(-1, 5), y[:, 1:].flatten()), False),
        (lambda x, y: functional.cross_entropy(x.transpose(0, 1).reshape(-1, 5), y.T.flatten()), False),
        (lambda x, y: functional.cross_entropy(x.reshape(4, 35).view(-1, 5), y.flatten()), False),  # heads of a layer
        (lambda x, y: functional.cross_entropy(x.view(4, 7, 5, 1).flatten(2).transpose(1, 2), y), False),
    ],
)
def test_logits_that_are_reshaped_where_they_are_to_be_transposed_are_known(
    loss_of: Callable[[Tensor, Tensor], Tensor], torn: bool
) -> None:
    x, y = torch.randn(4, 7, 5, requires_grad=True), torch.randint(0, 5, (4, 7))
    assert (objective.figures(loss_of(x * 1, y).grad_fn)["softmax_over_rows"] == 3) == torn


@pytest.mark.parametrize(
    ("loss_of", "figure", "value"),
    [
        (lambda x: functional.cross_entropy(x, TARGET), "loss_reversed", 0.0),
        (lambda x: -functional.cross_entropy(x, TARGET), "loss_reversed", 1.0),
        (lambda x: -((x - 1) ** 2).mean(), "loss_reversed", 1.0),
        (lambda x: -functional.logsigmoid(x).mean(), "loss_reversed", 0.0),
        (lambda x: functional.logsigmoid(x).mean(), "loss_reversed", 1.0),
        (lambda x: -functional.mse_loss(x, torch.ones_like(x)), "loss_reversed", 1.0),
        (lambda x: 0.5 * functional.cross_entropy(x, TARGET), "loss_reversed", None),  # the number is gone
        (lambda x: -0.5 * functional.cross_entropy(x, TARGET), "loss_multiplied", 1.0),
        (lambda x: functional.cross_entropy(x, TARGET) - functional.mse_loss(x, x.detach() + 1), "loss_reversed", None),
        (lambda x: -x.log_softmax(1).mean(), "loss_reversed", None),  # a likelihood, as it should be
        (lambda x: functional.cross_entropy(x, TARGET, label_smoothing=0.3), "label_smoothing", 0.3),
        (lambda x: functional.cross_entropy(x, TARGET), "label_smoothing", 0.0),
        (lambda x: functional.cross_entropy(x, TARGET) / 2 + 0.1 * x.square().mean(), "label_smoothing", 0.0),
        (lambda x: functional.nll_loss(x.log_softmax(0), TARGET), "softmax_over_rows", 1.0),
        (lambda x: functional.nll_loss(x.log_softmax(-1), TARGET), "softmax_over_rows", 0.0),
        (lambda x: functional.nll_loss(x.log_softmax(0)[MASK], TARGET[MASK]), "softmax_over_rows", 1.0),
        (lambda x: functional.nll_loss(x.softmax(1)[MASK], TARGET[MASK]), "nll_of_probabilities", 1.0),
        (lambda x: functional.nll_loss(x.softmax(1)[:6], TARGET[:6]), "nll_of_probabilities", 1.0),
        (lambda x: functional.nll_loss(x.log_softmax(1)[MASK], TARGET[MASK]), "nll_of_probabilities", 0.0),
        (lambda x: ((x[:, :1] - torch.zeros(ROWS)) ** 2).mean(), "loss_crossed", float(ROWS)),
        (lambda x: ((x[:, 0] - torch.zeros(ROWS)) ** 2).mean(), "loss_crossed", 0.0),
        (lambda x: ((x[:, :1] - x[:, 1]) ** 2).mean(), "loss_crossed", None),  # distances of all pairs
        (lambda x: ((x - torch.zeros(ROWS, 1, x.shape[1])) ** 2).mean(), "rows_crossed", float(ROWS)),
        (lambda x: (x[:, None] - torch.zeros(x.shape)).abs().sum((1, 2)).mean() / 2, "rows_crossed", float(ROWS)),
        (lambda x: functional.mse_loss(*torch.broadcast_tensors(x[:, None], torch.zeros(x.shape))) + x.exp().mean(),
         "rows_crossed", float(ROWS)),
        (lambda x: ((x[:, None] - torch.zeros(ROWS, 1, x.shape[1])) ** 2).mean(), "rows_crossed", 0.0),
        (lambda x: ((x[:, None] - torch.zeros(x.shape)) ** 2).sum(-1).amin(1).mean(), "rows_crossed", None),  # least
        (lambda x: (torch.ones(ROWS, ROWS) * (x[:, None] - torch.zeros(x.shape)).pow(2).sum(-1)).sum(), "rows_crossed",
         None),  # a plan of transport
        (lambda x: ((x[:, None] - x[None]) ** 2).mean(), "rows_crossed", None),  # distances of all pairs
        (lambda x: ((x[:, None] - torch.zeros(ROWS, 3, x.shape[1])) ** 2).mean(), "rows_crossed", 0.0),  # answers
        (lambda x: (x[:, :1] - torch.zeros(ROWS, 5)).pow(2).mean(), "loss_widened", 5.0),
        (lambda x: (x[:, :1] - torch.zeros(ROWS, 5)).abs().mean() + 0.1 * x.exp().mean(), "loss_widened", 5.0),
        (lambda x: (x - torch.zeros(1, x.shape[1])).pow(2).mean(), "loss_widened", None),
        (lambda x: torch.exp(-((x[:, :1] - torch.zeros(5)) ** 2)).square().mean(), "loss_widened", None),  # a basis
        (lambda x: functional.cross_entropy(x @ x.T / 0.1, torch.arange(ROWS)), "similarity_to_itself", 1.0),
        (lambda x: functional.cross_entropy(x @ x.flip(0).T / 0.1, torch.arange(ROWS)), "similarity_to_itself", 0.0),
        (lambda x: functional.cross_entropy(x @ x.flip(0).T, torch.arange(ROWS)), "loss_pairs", float(ROWS)),
        (lambda x: -functional.logsigmoid(SIGNS * (unit(x) @ unit(x + 1).T * 5 - 3)).sum() / ROWS, "sigmoid_pairs",
         float(ROWS)),
        (lambda x: functional.binary_cross_entropy_with_logits(x @ (x + 1).T, torch.eye(ROWS)), "sigmoid_pairs",
         float(ROWS)),
        (lambda x: functional.binary_cross_entropy_with_logits(x @ x.T, torch.eye(ROWS)), "sigmoid_pairs", None),
        (lambda x: functional.binary_cross_entropy_with_logits(x @ torch.nn.Parameter(torch.randn(x.shape[1], ROWS)),
                                                               torch.eye(ROWS)), "sigmoid_pairs", None),  # labels
        (lambda x: functional.cross_entropy(x @ (x + 1).T, torch.arange(ROWS)), "sigmoid_pairs", None),
        *((lambda x, dim=dim: -functional.logsigmoid(SIGNS * (functional.normalize(x, dim=dim) @ functional.normalize(
            x + 1, dim=dim).T * 5 - 3)).mean(), "pairs_across", told) for dim, told in ((0, 1.0), (1, None))),
        (lambda x: functional.cross_entropy(x @ torch.cat([x + 1, x.flip(0)]).T, torch.arange(ROWS)),
         "loss_candidates", 2.0 * ROWS),
        (lambda x: functional.cross_entropy(x @ x.flip(0).T, torch.arange(ROWS)), "loss_candidates", None),
        (lambda x: functional.cross_entropy(x @ torch.nn.Parameter(torch.randn(x.shape[1], 40)), TARGET),
         "loss_candidates", None),
        (lambda x: functional.cross_entropy(x @ torch.randn(x.shape[1], 40), TARGET), "loss_candidates", None),
        (lambda x: functional.cross_entropy(unit(x) @ unit(x.flip(0)).T, torch.arange(ROWS)), "pairs_unscaled", 1.0),
        (lambda x: functional.cross_entropy(divided(x) @ divided(x + 1).T, torch.arange(ROWS)), "pairs_unscaled", 1.0),
        (lambda x: functional.cross_entropy((unit(x) @ unit(x + 1).T).T, torch.arange(ROWS)), "pairs_unscaled", 1.0),
        (lambda x: functional.cross_entropy(unit(x) @ unit(x + 1).T / 0.1, torch.arange(ROWS)), "pairs_unscaled", 0.0),
        (lambda x: functional.cross_entropy(SCALE * unit(x) @ unit(x).T, torch.arange(ROWS)), "pairs_unscaled", 0.0),
        (lambda x: functional.cross_entropy(unit(x) / 0.3 @ unit(x + 1).T, torch.arange(ROWS)), "pairs_unscaled", 0.0),
        (lambda x: functional.cross_entropy(x @ x.flip(0).T, torch.arange(ROWS)), "pairs_unscaled", 0.0),
        (lambda x: of_two_views(x.relu(), 0.2), "pairs_any_length", 1.0),
        (lambda x: of_two_views(torch.cat([x[:2].tanh(), x[2:].tanh()]), 0.2), "pairs_any_length", 1.0),
        (lambda x: of_two_views(unit(x), 0.2), "pairs_any_length", 0.0),
        (lambda x: of_two_views(x * x.detach().norm(dim=1, keepdim=True), 0.2), "pairs_any_length", None),
        (lambda x: of_one_side(x, unit(x)), "pairs_one_length", 1.0),
        (lambda x: of_one_side(x, SCALE * divided(x)), "pairs_one_length", 1.0),
        (lambda x: of_one_side(x, x + 1), "pairs_one_length", None),
        (lambda x: of_one_side(x, unit(x.detach())), "pairs_one_length", None),  # of a teacher
        (lambda x: of_one_side(x, unit(torch.nn.Parameter(torch.randn(x.shape)))), "pairs_one_length", None),  # classes
        (lambda x: of_two_sides(x, 1), "pairs_one_length", None),
        (lambda x: of_two_sides(x, 0), "pairs_across", 1.0),
        (lambda x: of_two_sides(x, 0, scale=SCALE), "pairs_across", 1.0),
        (lambda x: functional.cross_entropy(SCALE * unit(x) @ functional.normalize(x.flip(0) + 1, dim=0).T,
                                            torch.arange(ROWS)), "pairs_across", 1.0),  # of one side
        (lambda x: of_two_sides(x, 1), "pairs_across", None),
        (lambda x: of_two_sides(x, 1, scale=SCALE), "pairs_across", None),
        (lambda x: functional.cross_entropy(functional.normalize(x.T, dim=0).T @ functional.normalize((x + 1).T, dim=0),
                                            torch.arange(ROWS)), "pairs_across", None),
        (lambda x: (functional.normalize(x, dim=0).T @ functional.normalize(x + 1, dim=0)).square().mean(),
         "pairs_across", None),  # of columns
        (lambda x: functional.cross_entropy(x @ functional.normalize(torch.nn.Parameter(torch.randn(x.shape[1], ROWS)),
                                                                     dim=0), TARGET), "pairs_across", None),
        (lambda x: queued(x, torch.randn(x.shape[1], 20)), "loss_queue", 20.0),
        (lambda x: queued(x, unit(x).T), "loss_queue", 0.0),  # negatives that have gradients are those of the batch
        (lambda x: queued(x, torch.randn(x.shape[1], 20), among=True), "loss_queue", ROWS + 19.0),
        (lambda x: queued(x, torch.randn(x.shape[1], ROWS), among=True), "loss_queue", None),  # two views of the batch
        (lambda x: of_two_views(torch.cat([unit(x[:2]), unit(x[2:])])), "pairs_unscaled", 1.0),
        (lambda x: of_two_views(torch.cat([unit(x[:2]), x[2:]])), "pairs_unscaled", 0.0),
        (lambda x: of_two_views(unit(x), 0.2), "pairs_unscaled", 0.0),
        (lambda x: functional.cross_entropy((x @ x.T).fill_diagonal_(-1e9), TARGET), "similarity_to_itself", None),
        (lambda x: functional.cross_entropy((x @ x.T).fill_diagonal_(-1e9), TARGET), "loss_pairs", ROWS - 1.0),
        (lambda x: functional.cross_entropy(masked(x @ x.T / 0.1), TARGET), "loss_pairs", ROWS - 1.0),
        (lambda x: functional.cross_entropy(masked(x @ x.T / 0.1), TARGET), "similarity_to_itself", None),
        (lambda x: functional.cross_entropy(x @ x.T - 1e9 * torch.eye(ROWS), TARGET), "loss_pairs", ROWS - 1.0),
        (lambda x: -surrogate(x), "policy_reversed", 0.0),
        (lambda x: surrogate(x) + 0.5 * x.square().mean(), "policy_reversed", 1.0),
        (lambda x: -surrogate(x, clip=100), "ratio_clip", 100.0),
        (lambda x: -surrogate(x, detached=False), "ratio_constant", 1.0),
        (lambda x: -surrogate(x), "ratio_constant", 0.0),
    ],
)  # fmt: skip
def test_the_graph_says_what_is_certain_and_no_more(
    loss_of: Callable[[Tensor], Tensor], figure: str, value: float | None
) -> None:
    found = seen(loss_of)
    assert found.get(figure) == (pytest.approx(value) if value is not None else None)


@pytest.mark.parametrize(
    ("options", "later"),
    [({}, 1.0), ({"is_causal": True}, 0.0), ({"attn_mask": torch.ones(ROWS, ROWS).tril().bool()}, None)],
)
def test_attention_sees_later_places_without_a_mask_only(options: dict[str, object], later: float | None) -> None:
    def loss_of(output: Tensor) -> Tensor:
        query = output.repeat(1, 2)[:, :8].reshape(1, 1, ROWS, 8)
        return functional.scaled_dot_product_attention(query, query, query, **options).square().mean()

    assert seen(loss_of).get("attention/later") == later
