"""Losses written out in single operations have the figures that torch's functions of the same have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from barograph.probes.model import loss_graph

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

ROWS, WIDE = 8, 6
HERE, OTHER, ITSELF = torch.arange(ROWS), torch.arange(ROWS).roll(4), torch.eye(ROWS) > 0
weight = nn.Parameter(torch.randn(ROWS, WIDE))
away = torch.randn(ROWS, WIDE)


def of(loss: Tensor, *names: str) -> dict[str, float]:
    """Figures of a loss, of these names."""
    assert loss.grad_fn is not None
    found = loss_graph._all(loss.grad_fn)
    return {name: found[name] for name in names if name in found}


def difference(scores: Tensor, hides: bool) -> Tensor:
    shares = scores.exp() * (~ITSELF).float() if hides else scores.exp()
    return -(scores[HERE, OTHER] - shares.sum(1).log())


def share(scores: Tensor, hides: bool) -> Tensor:
    shares = scores.exp()
    return -torch.log(shares[HERE, OTHER] / ((shares * ~ITSELF) if hides else shares).sum(1))


def logsumexp(scores: Tensor, hides: bool) -> Tensor:
    return torch.logsumexp(scores.masked_fill(ITSELF, -1e9) if hides else scores, 1) - scores[HERE, OTHER]


def taken_away(scores: Tensor, hides: bool) -> Tensor:
    sums = scores.exp().sum(1)
    return torch.log(sums - math.e if hides else sums) - scores.diagonal()


WRITTEN = [difference, share, logsumexp, taken_away]


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("hides", [True, False])
def test_similarities_of_a_batch_with_itself_are_seen(written: Callable[..., Tensor], hides: bool) -> None:
    unit = functional.normalize(weight * 1.0, dim=1)
    scores = unit @ unit.T / 0.2
    found = of(written(scores, hides).mean(), "loss_pairs", "similarity_to_itself", "loss_reversed", "loss_attracts")
    pairs, itself = (ROWS - 1, {}) if hides else (ROWS, {"similarity_to_itself": 1})
    assert found == {"loss_pairs": pairs, "loss_reversed": 0} | itself
    assert of(written(unit @ unit.T, hides).mean(), "pairs_unscaled") == {"pairs_unscaled": 1}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("hides", [True, False])
def test_what_a_sum_leaves_out_is_seen(written: Callable[..., Tensor], hides: bool) -> None:
    loss = written(functional.normalize(weight * 1.0, dim=1) @ away.T / 0.2, hides)
    assert of(loss.mean(), "loss_hides") == ({"loss_hides": 1} if hides else {})


@pytest.mark.parametrize("written", WRITTEN)
def test_the_sign_and_the_sum_of_a_written_cross_entropy_are_seen(written: Callable[..., Tensor]) -> None:
    unit = functional.normalize(weight * 1.0, dim=1)
    loss = written(unit @ unit.T / 0.2, True)
    assert of((-loss).mean(), "loss_reversed", "loss_summed") == {"loss_reversed": 1}
    assert of(loss.sum(), "loss_reversed", "loss_summed") == {"loss_reversed": 0, "loss_summed": ROWS}
    assert of(loss.sum() / ROWS, "loss_reversed", "loss_summed", "loss_multiplied") == {"loss_multiplied": 1}


def test_sums_of_exponentials_that_are_no_cross_entropy_of_pairs_say_nothing_of_them() -> None:
    names = ("loss_pairs", "loss_reversed", "loss_summed", "similarity_to_itself")
    unit = functional.normalize(weight * 1.0, dim=1)
    scores = unit @ unit.T / 0.2
    uniform = torch.pdist(unit).square().mul(-2).exp().mean().log()
    several = -((scores - scores.exp().sum(1, keepdim=True).log()) * ITSELF.roll(4, 0)).sum(1).mean()
    of_several = -torch.log((scores.exp() * ITSELF).sum(1) / scores.exp().sum(1)).mean()
    energy = -torch.logsumexp(weight * 1.0, 1).mean()
    for loss in (uniform, several, of_several, energy, (weight * 1.0).exp().sum().log()):
        assert of(loss, *names) == {}, loss


def test_the_sign_and_the_sum_of_a_divergence_are_seen() -> None:
    chances = torch.softmax(away, -1)

    def divergence(reduction: str) -> Tensor:
        return functional.kl_div(functional.log_softmax(weight * 1.0, -1), chances, reduction=reduction)

    names = ("loss_reversed", "loss_summed", "loss_multiplied")
    assert of(divergence("sum"), *names) == {"loss_reversed": 0, "loss_summed": ROWS}
    assert of(-divergence("none").mean(), *names) == {"loss_reversed": 1}
    assert of(-divergence("batchmean"), *names) == {"loss_multiplied": 1}


def log_probabilities(both: Any = None) -> Tensor:
    """[rows, tokens]"""
    given = torch.randn(4, 5, 7) * weight[0, 0]
    return given.log_softmax(-1).gather(-1, torch.zeros(4, 5, 1).long())[..., 0]


@pytest.mark.parametrize(
    ("answer", "averaged"),
    [
        (lambda: (log_probabilities() * torch.ones(4, 5)).sum(1), 0),
        (lambda: (log_probabilities() * torch.ones(4, 5)).sum(-1) / torch.full((4,), 5.0), 1),
        (lambda: log_probabilities().mean(-1), 1),
    ],
)
def test_averaged_log_probabilities_of_a_preference_are_seen(answer: Callable[[], Tensor], averaged: int) -> None:
    theirs = torch.randn(4)
    ways = (
        -functional.logsigmoid(0.1 * ((answer() - theirs) - (answer() - theirs.flip(0)))).mean(),
        -functional.logsigmoid(0.1 * (answer() - answer() - theirs)).mean(),
        -functional.logsigmoid(0.1 * (lambda one, other: one - other - theirs[:2])(*answer().chunk(2))).mean(),
        -functional.logsigmoid(
            0.1 * (lambda both: both[:, 0] - both[:, 1])(torch.stack(answer().chunk(2), 1) - theirs.view(2, 2))
        ).mean(),
    )
    assert [of(loss, "preference_averaged") for loss in ways] == [{"preference_averaged": averaged}] * 4


def test_a_division_of_answers_is_known_from_their_mean() -> None:
    def loss(answer: Callable[[], Tensor]) -> Tensor:
        return -functional.logsigmoid(0.1 * (answer() - answer() - torch.randn(4))).mean()

    names = ("preference_averaged", "preference_divided")
    assert of(loss(lambda: log_probabilities().mean(1)), *names) == {"preference_averaged": 1}
    divided = loss(lambda: log_probabilities().sum(1) / 1)
    assert of(divided, *names) == {"preference_averaged": 1, "preference_divided": 1}
    assert of(loss(lambda: log_probabilities().sum(1)), *names) == {"preference_averaged": 0}
    chances = "preference_of_chances"
    assert of(loss(lambda: log_probabilities().exp().sum(1)), chances) == {chances: 1}
    assert of(loss(lambda: (log_probabilities().exp() * 2.0).mean(1)), chances) == {chances: 1}
    assert of(loss(lambda: log_probabilities().sum(1)), chances) == {}


def test_answers_one_of_which_is_averaged_are_seen() -> None:
    def added() -> Tensor:
        return log_probabilities().sum(1)

    def averaged() -> Tensor:
        return added() / torch.full((4,), 5.0)

    theirs = torch.randn(4)
    for loss in (
        -functional.logsigmoid(0.1 * ((averaged() - theirs) - (added() - theirs.flip(0)))).mean(),
        -functional.logsigmoid(0.1 * (averaged() - added() - theirs)).mean(),
    ):
        assert of(loss, "preference_averaged") == {"preference_averaged": 0.5}


def test_a_preference_without_its_logarithm_is_seen_and_what_has_a_weight_for_each_row_is_not() -> None:
    def added() -> Tensor:
        return log_probabilities().sum(1)

    theirs, gains = torch.randn(4), torch.randn(4)
    both = added()
    for loss in (
        -(0.1 * ((added() - theirs) - (added() - theirs.flip(0)))).mean(),
        (-0.1 * (added() - added() - theirs)).mean(),
        -(0.1 * (added() - added() - theirs)).sum() / 4,
        (-(0.1 * (both[:2] - both[2:] - theirs[:2]))).mean(),
    ):
        assert of(loss, "preference_unbounded") == {"preference_unbounded": 1}
    for loss in (
        -(gains * added()).mean(),
        (added() - added()).mean(),
        -(gains * added() - 0.1 * (added() - theirs)).mean(),
        -(added() - theirs).mean(),
        -functional.logsigmoid(0.1 * (added() - added() - theirs)).mean(),
        functional.relu(1 - 0.1 * (added() - added() - theirs)).mean(),
    ):
        assert of(loss, "preference_unbounded") == {}


def test_averages_that_are_meant_and_those_of_scores_are_no_log_probabilities_that_were_divided() -> None:
    def averaged() -> Tensor:
        return log_probabilities().mean(-1)

    def scores() -> Tensor:
        return (torch.randn(4, 5, 3) @ weight[:3, :1]).squeeze(-1).mean(-1)

    without_reference = -functional.logsigmoid(2.5 * (averaged() - averaged())).mean()
    rewards = -functional.logsigmoid(scores() - scores() - torch.randn(4)).mean()
    assert [of(loss, "preference_averaged") for loss in (without_reference, rewards)] == [{}, {}]
    alone = "preference_alone"
    with_margin = -functional.logsigmoid(2.5 * (averaged() - averaged() - 0.4)).mean()
    of_one_row = -functional.logsigmoid((lambda one, other: one - other)(*averaged().chunk(2))).mean()
    of_scores = -functional.logsigmoid(scores() - scores()).mean()
    assert [of(loss, alone) for loss in (without_reference, of_one_row)] == [{alone: 1}] * 2
    assert [of(loss, alone) for loss in (with_margin, rewards, of_scores)] == [{}] * 3


@pytest.mark.parametrize("reduced", [lambda tokens: tokens.sum(-1), lambda tokens: tokens.mean(-1)])
def test_answers_that_squares_or_hinges_compare_are_seen(reduced: Callable[[Tensor], Tensor]) -> None:
    def answer() -> Tensor:
        return reduced(log_probabilities())

    theirs, name = torch.randn(4), "preference_compared"
    apart = (answer() - theirs) - (answer() - theirs.flip(0))
    beside = (lambda one, other: one - other - theirs[:2])(*answer().chunk(2))
    written = ((apart - 5) ** 2).mean(), (0.5 * (beside - 5).square()).sum() / 4, torch.relu(1 - 0.1 * apart).mean()
    assert [of(loss, name) for loss in written] == [{name: 2}, {name: 2}, {name: 1}]
    assert of(functional.mse_loss(apart, torch.full((4,), 5.0)), name) == {name: 2}
    assert of((answer() - answer() - 5).square().mean(), name) == {name: 1}  # without a reference
    scores = (torch.randn(4, 5, 3) @ weight[:3, :1]).squeeze(-1).mean(-1)
    others = (
        -functional.logsigmoid(apart).mean(), (answer() - theirs).square().mean(), ((scores - scores * 2) ** 2).mean(),
        ((apart - 5) ** 2).mean() - answer().mean(), ((answer() + answer() - theirs) ** 2).mean(),
    )  # fmt: skip
    assert [of(loss, name) for loss in others] == [{}] * 5


def test_squares_that_are_added_up_are_counted() -> None:
    output, names = weight * 1.0, ("squares_added", "squares_of_batch")
    of_batch = {"squares_added": ROWS * WIDE, "squares_of_batch": 1}
    of_rows = {"squares_added": WIDE, "squares_of_batch": 0}
    assert of(functional.mse_loss(output, away, reduction="sum"), *names) == of_batch
    assert of((output - away).square().sum(), *names) == of_batch
    assert of((output - away).abs().flatten(1).sum(1).mean(), *names) == of_rows
    assert of(functional.mse_loss(output, away, reduction="none").sum(1).mean(), *names) == of_rows
    assert of(functional.mse_loss(output, away), *names) == {"squares_added": 1}
    assert of((output - away).square().sum() + output.square().sum(), *names) == {}  # as of an autoencoder
    assert of((output - away).square().sum() / ROWS, *names) == {}  # by what, the graph no longer has
    assert of((output - away).square().mean(1).sum(), *names) == {"squares_added": ROWS, "squares_of_batch": 0}
    assert of((output - away).square().mean(1).mean(), *names) == {"squares_added": 1}
    weights, weighted = torch.rand(ROWS), "weighted_squares_added"
    assert of(((output - away).square().sum(1) * weights).sum(), weighted, *names) == {weighted: ROWS * WIDE}
    assert of(((output - away).square().mean(1) * weights).sum(), weighted, *names) == {weighted: ROWS}
    assert of(((output - away).square().mean(1) * weights).mean(), weighted, *names) == {}
    scaled, many = "scaled_squares_added", weights[:, None]
    assert of((output - away).square().sum() / 1, scaled, *names) == {scaled: ROWS * WIDE}
    assert of((many * (output - away) ** 2).sum() / 4, scaled, weighted, *names) == {scaled: ROWS * WIDE}
    assert of((output - away).square().sum(1).mean() * 0.5, scaled, *names) == {scaled: WIDE}
    assert of((output - away).square().mean() / 1, scaled, *names) == {}
    assert of((output + away).square().sum(1).mean(), *names) == of_rows  # of a score, the noise that it undoes
    assert of(((output + away) * many).square().sum(1).mean(), weighted, *names) == {weighted: WIDE}
    assert of((many * (output - away)).abs().sum(1).mean() / 2, scaled, *names) == {scaled: WIDE}
    assert of((output * many).square().sum(1).mean(), weighted, *names) == {}  # of outputs alone
    assert of((output + weight).square().sum(1).mean(), *names) == {}


AMONG: list[Callable[[Tensor], Tensor]] = [
    lambda scores: -scores.log_softmax(1)[:, 0].mean(),
    lambda scores: -scores.log_softmax(1).select(1, 0).sum(),
    lambda scores: -(scores.log_softmax(-1) * functional.one_hot(HERE * 0, scores.shape[1])).sum(1).mean(),
    lambda scores: functional.nll_loss(scores.log_softmax(1), HERE * 0),
    lambda scores: (torch.logsumexp(scores, 1) - scores[:, 0]).mean(),
    lambda scores: -torch.log(scores.exp()[:, 0] / scores.exp().sum(1)).mean(),
]


@pytest.mark.parametrize("written", AMONG)
def test_an_answer_among_the_negatives_of_a_queue_is_seen_however_the_loss_is_written(
    written: Callable[[Tensor], Tensor],
) -> None:
    unit, queue = functional.normalize(weight * 1.0, dim=1), torch.randn(20, WIDE)
    answer = (unit * functional.normalize(away, dim=1)).sum(1, keepdim=True)
    for scores in (torch.cat([answer, unit @ queue.T], 1) / 0.2, torch.cat([answer / 0.2, unit @ queue.T / 0.2], 1)):
        assert of(written(scores), "loss_queue") == {"loss_queue": 20}
    behind = torch.cat([unit @ queue.T, answer], 1) / 0.2
    assert of(written(behind), "loss_queue") == {"loss_queue": 20}
    batch = torch.cat([answer, unit @ unit.roll(1, 0).T], 1) / 0.2
    assert of(written(batch), "loss_queue") == {"loss_queue": 0}  # negatives of the batch have gradients
    assert of(written(unit @ queue.T), "loss_queue") == {}  # no answer is joined to them


SOFT, CLASS = torch.rand(ROWS, WIDE).softmax(1), torch.arange(ROWS) % WIDE


def of_classes(scores: Tensor) -> Tensor:
    return scores.log_softmax(1).gather(1, CLASS[:, None])


def focal(scores: Tensor) -> Tensor:
    each = functional.cross_entropy(scores, CLASS, reduction="none")
    return (1 - torch.exp(-each)) ** 2 * each


@pytest.mark.parametrize(
    ("loss_of", "number"),
    [
        (lambda x: -(SOFT * x.log_softmax(1)).sum(), ROWS),
        (lambda x: -(SOFT * x.log_softmax(1)).sum(1).sum(), ROWS),
        (lambda x: (-SOFT * x.log_softmax(-1)).sum(-1).sum(), ROWS),
        (lambda x: -of_classes(x).sum(), ROWS),
        (lambda x: (-of_classes(x).squeeze(1)).sum(), ROWS),
        (lambda x: -x.log_softmax(1)[:, 0].sum(), ROWS),
        (lambda x: -x.log_softmax(1)[HERE, CLASS].sum(), ROWS),
        (lambda x: functional.cross_entropy(x, CLASS, reduction="none").sum(), ROWS),
        (lambda x: functional.binary_cross_entropy_with_logits(x, SOFT, reduction="none").sum(), ROWS * WIDE),
        (lambda x: focal(x).sum(), ROWS),
        (lambda x: -functional.logsigmoid(x[:, 0] - x[:, 1]).sum(), ROWS),
        (lambda x: -(SOFT * x.log_softmax(1)).sum(1).mean(), None),
        (lambda x: -(SOFT * x.log_softmax(1)).sum() / ROWS, None),
        (lambda x: -of_classes(x).mean(), None),
        (lambda x: focal(x).mean(), None),
        (lambda x: focal(x).sum() / ROWS, None),
        (lambda x: -(of_classes(x)[:, 0] * away[:, 0]).sum(), None),  # of a policy, with advantages
        (lambda x: (x.softmax(1) * x.log_softmax(1)).sum(), None),  # an entropy
        (lambda x: -x.log_softmax(1).sum(), None),
        (lambda x: -of_classes(x).sum() + x.square().mean(), None),
        (lambda x: x.square().sum(), None),
    ],
)
def test_a_sum_of_losses_that_are_written_out_is_counted(
    loss_of: Callable[[Tensor], Tensor], number: float | None
) -> None:
    assert of(loss_of(weight * 1.0), "loss_summed") == ({} if number is None else {"loss_summed": number})


OTHERS = ~ITSELF
AMONG_OTHERS = OTHER - (OTHER > HERE).long()  # places of answers where the diagonal is left out


def filled(scores: Tensor) -> Tensor:
    return scores.clone().fill_diagonal_(-math.inf)


def placed(scores: Tensor) -> Tensor:
    scores = scores.clone()
    scores[HERE, HERE] = -1e9
    return scores


def selected(scores: Tensor) -> Tensor:
    return scores[OTHERS].view(ROWS, -1)


def picked(scores: Tensor, answers: Tensor) -> Tensor:
    return -functional.log_softmax(scores, 1).gather(1, answers[:, None])[:, 0]


def indexed(scores: Tensor, answers: Tensor) -> Tensor:
    return -scores.log_softmax(-1)[range(ROWS), answers]


def of_chances(scores: Tensor, answers: Tensor) -> Tensor:
    return -(scores.softmax(1)[HERE, answers] + 1e-8).log()


def whole(scores: Tensor, answers: Tensor) -> Tensor:
    return scores.logsumexp(1) - scores[HERE, answers]


def function(scores: Tensor, answers: Tensor) -> Tensor:
    return functional.cross_entropy(scores, answers, reduction="none")


def multiplied(unit: Tensor) -> Tensor:
    return unit @ unit.T


def einsum(unit: Tensor) -> Tensor:
    return torch.einsum("nd,md->nm", unit, unit)


def cosines(unit: Tensor) -> Tensor:
    return functional.cosine_similarity(unit[:, None], unit[None], dim=-1)


@pytest.mark.parametrize("made", [multiplied, einsum, cosines])
@pytest.mark.parametrize("written", [picked, indexed, of_chances, whole, function])
@pytest.mark.parametrize("hides", [filled, placed, selected, None])
def test_pairs_are_known_however_they_are_picked_and_masked(
    made: Callable[..., Tensor], written: Callable[..., Tensor], hides: Callable[..., Tensor] | None
) -> None:
    scores = made(functional.normalize(weight * 1.0, dim=1))
    answers = AMONG_OTHERS if hides is selected else OTHER
    for temperature in (0.2, 1.0):
        scaled = scores / temperature if temperature < 1 else scores
        loss = written(hides(scaled) if hides is not None else scaled, answers)
        found = of(loss.mean(), "loss_pairs", "similarity_to_itself", "pairs_unscaled", "loss_reversed")
        expected = {"pairs_unscaled": float(temperature == 1), "loss_reversed": 0, "loss_pairs": ROWS - 1}
        if hides is None:
            expected |= {"similarity_to_itself": 1, "loss_pairs": ROWS}
        assert found == expected
        assert of(-loss.mean(), "loss_reversed") == {"loss_reversed": 1}


def test_an_answer_joined_with_the_others_of_its_row_is_of_pairs() -> None:
    scores, others = multiplied(functional.normalize(weight * 1.0, dim=1)), OTHERS.clone()
    others[HERE, OTHER] = False
    joined = torch.cat([scores[HERE, OTHER][:, None], scores[others].view(ROWS, -1)], 1)
    first = torch.zeros(ROWS, dtype=torch.long)
    for logits, bare in ((joined, 1), (joined / 0.1, 0)):
        found = of(functional.cross_entropy(logits, first), "loss_pairs", "pairs_unscaled", "similarity_to_itself")
        assert found == {"loss_pairs": ROWS - 1, "pairs_unscaled": bare}


def test_the_classes_of_a_layer_are_no_pairs_though_there_are_as_many_as_rows() -> None:
    inputs = functional.normalize(torch.randn(ROWS, WIDE) * weight, dim=1)
    layer, answers = nn.Linear(WIDE, ROWS, bias=False), torch.arange(ROWS)
    for loss in (picked(layer(inputs), answers), function(inputs @ nn.Parameter(torch.randn(WIDE, ROWS)), answers)):
        assert of(loss.mean(), "loss_pairs", "pairs_unscaled") == {}


def test_likelihoods_that_advantages_weigh_have_no_sign() -> None:
    advantages = torch.randn(ROWS)
    chosen = (weight * 1.0).log_softmax(1).gather(1, HERE[:, None] % WIDE)[:, 0]
    for loss in ((-chosen * advantages).mean(), -(chosen.mean() * advantages[0])):
        assert of(loss, "loss_reversed", "loss_multiplied") == {}


def squared_means(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).mean(1).pow(2).mean()


def size_of_sum(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).sum().abs()


def mean_of_squares(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).pow(2).mean(1).mean()


def square_of_sums(output: Tensor, target: Tensor) -> Tensor:
    return (output.sum(1) - target.sum(1)).pow(2).mean()  # energies of all atoms


def added(output: Tensor, target: Tensor) -> Tensor:
    return mean_of_squares(output, target) + squared_means(output, target)


@pytest.mark.parametrize(
    ("written", "averaged"),
    [(squared_means, WIDE), (size_of_sum, ROWS * WIDE), (mean_of_squares, None), (square_of_sums, None), (added, None)],
)
def test_differences_that_are_averaged_before_they_are_squared_are_seen(
    written: Callable[..., Tensor], averaged: int | None
) -> None:
    found = of(written(weight * 1.0, away), "errors_averaged")
    assert found == ({} if averaged is None else {"errors_averaged": averaged})
    if averaged is not None:  # both have gradients: means of two batches that are brought together
        assert of(written(weight * 1.0, weight * 2.0), "errors_averaged") == {}
