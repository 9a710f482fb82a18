"""Losses that have weights are added up, and not divided by the weights' sum: in the graph, and by what is logged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_rules_divided import LOOKS, looked
from test_rules_objective import EVALUATIONS, FALLS, ROWS, every, warned

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from barograph.doctor.kernel.examiner import Examiner  # noqa: E402
from barograph.probes.model.added_up import crossed, total_beside, weighed  # noqa: E402

GOALS, WEIGHTS = torch.arange(40) % 5, torch.rand(40, generator=torch.Generator().manual_seed(1))
SOFT = torch.rand(40, 5).softmax(1)


def each(x: Any) -> Any:
    return functional.cross_entropy(x, GOALS, reduction="none")


LOSSES: dict[str, tuple[Any, float]] = {
    "summed": (lambda x: (WEIGHTS * each(x)).sum(), 40.0),
    "over parts": (lambda x: (WEIGHTS * each(x)).sum() / 2, 40.0),
    "over their sum": (lambda x: (WEIGHTS * each(x)).sum() / WEIGHTS.sum(), 40.0),  # the graph does not know it
    "masked": (lambda x: (each(x) * (GOALS > 0)).sum(), 40.0),
    "logistic": (lambda x: (functional.logsigmoid(x) * WEIGHTS[:, None]).neg().sum(), 200.0),
    "by hand": (lambda x: -(x.log_softmax(1).gather(1, GOALS[:, None])[:, 0] * WEIGHTS).sum(), 40.0),
    "shares": (lambda x: (each(x) * WEIGHTS / WEIGHTS.sum()).sum(), 0.0),
    "mean": (lambda x: (WEIGHTS * each(x)).mean(), 0.0),
    "plain sum": (lambda x: each(x).sum(), 0.0),
    "soft targets": (lambda x: -(x.log_softmax(1) * SOFT).sum(), 0.0),
    "squares": (lambda x: (WEIGHTS[:, None] * (x - SOFT) ** 2).sum(), 0.0),
    "of classes": (lambda x: functional.cross_entropy(x, GOALS, WEIGHTS[:5], reduction="sum") / 2, 40.0),
    "each of classes": (lambda x: functional.cross_entropy(x, GOALS, WEIGHTS[:5], reduction="none").sum() / 2, 40.0),
    "mean of each": (lambda x: functional.cross_entropy(x, GOALS, WEIGHTS[:5], reduction="none").mean(), 0.0),
    "plain sum of torch's": (lambda x: functional.cross_entropy(x, GOALS, reduction="sum"), 0.0),
    "mean of classes": (lambda x: functional.cross_entropy(x, GOALS, WEIGHTS[:5]), 0.0),
    "beside another": (lambda x: (WEIGHTS * each(x)).sum() + x.mean(), 0.0),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_sum_of_losses_that_have_weights_is_in_the_graph(name: str) -> None:
    made, count = LOSSES[name]
    loss = made(torch.randn(40, 5, requires_grad=True))
    assert weighed(loss.grad_fn).get("weighed_sum", 0.0) == count
    loss.backward()  # what it kept is let go of
    assert weighed(loss.grad_fn).get("weighed_sum", 0.0) == count


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figures", "times", "given", "config", "told"),
    [
        ({"weighed_sum": 64.0}, 32.0, 1.0, {}, True),
        ({"weighed_sum": 64.0}, 180.0, 1.0, {}, True),  # weights of nearly four
        ({"weighed_sum": 64.0}, 16.5, 1.0, {}, True),
        ({"weighed_sum": 64.0}, 12.5, 1.0, {}, False),
        ({"weighed_sum": 64.0}, 290.0, 1.0, {}, False),
        ({"weighed_sum": 64.0}, 1.0, 1.0, {}, False),  # it is divided by the weights, or they add up to one
        ({"weighed_sum": 24.0}, 24.0, 1.0, {}, True),
        ({"weighed_sum": 23.0}, 23.0, 1.0, {}, False),
        ({"weighed_sum": 64.0}, 32.0, 0.5, {}, False),  # what is logged is not what is differentiated
        ({"weighed_sum": 64.0}, 32.0, 1.0, {"loss_reduction": "sum"}, False),
        ({"loss_adds": 1.0}, 32.0, 1.0, {}, False),
    ],
)
def test_losses_that_have_weights_are_added_up_where_the_evaluation_has_their_mean(
    figures: dict[str, float], times: float, given: float, config: dict[str, str], told: bool, rows: int
) -> None:
    columns = {"loss": every(times * FALLS), "val_loss": (EVALUATIONS, FALLS[EVALUATIONS])} | looked(**figures)
    columns["model/loss_given"] = (LOOKS, given * times * FALLS[LOOKS])
    assert ("weights_undivided" in warned(columns, rows, config)) == told
    columns["train/reward"] = (LOOKS, np.ones(len(LOOKS)))
    assert "weights_undivided" not in warned(columns, rows, config)


def test_what_the_loss_is_beside_the_evaluations_must_not_change() -> None:
    rising = FALLS * np.geomspace(20, 400, len(FALLS))
    columns = {"loss": every(rising), "val_loss": (EVALUATIONS, FALLS[EVALUATIONS])} | looked(weighed_sum=64.0)
    columns["model/loss_given"] = (LOOKS, rising[LOOKS])
    first = rising[EVALUATIONS[:3]] / FALLS[EVALUATIONS[:3]]
    assert ("weights_undivided" in warned(columns, ROWS, {})) == bool((first[1:] <= 2 * first[:-1]).all())


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("count", "weight", "first", "config", "told"),
    [
        (16.0, 13.4, 16.0, {}, True),
        (8.0, 8.0, 8.0, {}, True),
        (7.0, 7.0, 7.0, {}, False),
        (16.0, 0.9, 16.0, {}, False),  # the sum is divided
        (16.0, 13.4, 1.0, {}, False),  # few of many have a weight, and these are averaged
        (16.0, 70.0, 16.0, {}, False),
        (16.0, 13.4, 16.0, {"reduction": "sum"}, False),
    ],
)
def test_of_a_training_that_goes_astray_the_gradient_and_the_first_loss_say_that_it_is_a_sum(
    count: float, weight: float, first: float, config: dict[str, str], told: bool, rows: int
) -> None:
    astray = first * 2.3 * np.geomspace(1, 50, ROWS)
    columns = {"loss": every(astray), "val_loss": (EVALUATIONS, 3 * FALLS[EVALUATIONS])}
    columns |= looked(weighed_sum=count, loss_weight=weight, output_width=10.0)
    found = warned(columns, rows, config)
    assert ("weights_undivided" in found) == told
    assert not told or found["weights_undivided"].step == 0
    assert "weights_undivided" not in warned(columns | {"train/reward": (LOOKS, np.ones(len(LOOKS)))}, rows, config)


@pytest.mark.parametrize(("rises", "given", "told"), [(50.0, 1.0, True), (0.5, 1.0, False), (50.0, 1 / 16, False)])
def test_a_training_that_goes_astray_is_asked_what_its_passes_were_called_with(
    rises: float, given: float, told: bool
) -> None:
    logged = 2.3 * np.geomspace(1, rises, ROWS)
    logged[:3] = logged[0] * np.array([1.0, max(1.0, rises / 10), max(1.0, rises / 4)])
    columns = {"loss": every(logged)} | looked(weighed_sum=16.0, loss_weight=13.4, output_width=10.0)
    columns["model/loss_given"] = (LOOKS, given * 16 * logged[LOOKS])
    assert ("weights_undivided" in warned(columns, ROWS, {})) == told


TALL = WEIGHTS[:, None]
CROSSED: dict[str, tuple[Any, bool]] = {
    "weights of a column": (lambda x: (TALL * each(x)).mean(), True),
    "losses of a column": (lambda x: (WEIGHTS * (x - SOFT).square().mean(1, keepdim=True)).mean(), True),
    "divided": (lambda x: 0.5 * ((x - SOFT).square().flatten(1).mean(1) / TALL).mean(), True),
    "alike": (lambda x: (WEIGHTS * each(x)).mean(), False),
    "of places": (lambda x: (TALL * (x - SOFT).square()).mean(), False),
    "several weights": (lambda x: (TALL[:4] * each(x)).mean(), False),
    "outputs": (lambda x: (TALL * x[:, 0]).mean(), False),
    "summed": (lambda x: (TALL * each(x)).sum(), False),
}


@pytest.mark.parametrize("name", CROSSED)
def test_weights_that_lie_the_other_way_than_their_losses_are_in_the_graph(name: str) -> None:
    made, wrong = CROSSED[name]
    assert crossed(made(torch.randn(40, 5, requires_grad=True)).grad_fn) == ({"weights_crossed": 40.0} if wrong else {})


@pytest.mark.parametrize(("figures", "told"), [({"weights_crossed": 8.0}, True), ({"weights_crossed": 7.0}, False)])
def test_weights_that_each_weigh_all_rows_are_found(figures: dict[str, float], told: bool) -> None:
    assert ("weights_crossed" in warned({"loss": every(FALLS)} | looked(**figures))) == told


@pytest.mark.parametrize(("given", "told"), [(1.05, True), (0.8, False)])
def test_of_several_ranks_the_loss_of_one_is_near_what_is_logged(given: float, told: bool) -> None:
    columns = {"loss": every(32 * FALLS), "val_loss": (EVALUATIONS, FALLS[EVALUATIONS])} | looked(weighed_sum=64.0)
    columns["model/loss_given"] = (LOOKS, given * 32 * FALLS[LOOKS] * (1 + 0.1 * np.sin(LOOKS)))
    examiner = Examiner(facts={"world_size": 2})
    for name, (step, values) in columns.items():
        examiner.seen.add(name, step, np.asarray(values, float), step * 1_000_000)
    examiner.examine()
    assert ("weights_undivided" in [one.rule for one in examiner.findings]) == told


WORDS, SAID = torch.randint(0, 5, (8, 7)), torch.arange(7) < 5
BESIDE: dict[str, tuple[Any, float]] = {
    "total": (lambda loss, said: loss - 0.1 * said.sum(), 4.0),
    "over parts": (lambda loss, said: (loss - 0.1 * said.sum()) / 2, 4.0),
    "over tokens": (lambda loss, said: (loss - 0.1 * said.sum() / SAID.sum()) / 2, 0.0),
    "mean of texts": (lambda loss, said: loss - 0.1 * said.mean(), 0.0),
    "alone": (lambda loss, said: -0.1 * said.sum(), 0.0),
    "none": (lambda loss, said: loss, 0.0),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_total_of_log_probabilities_beside_a_mean_over_pairs_is_in_the_graph(name: str) -> None:
    whole, count = BESIDE[name]
    scores = torch.randn(8, 7, 5, requires_grad=True)
    texts = (scores.log_softmax(-1).gather(2, WORDS[:, :, None])[:, :, 0] * SAID).sum(1)
    margins = 0.1 * (texts - texts.detach())
    root = whole(-functional.logsigmoid(margins[:4] - margins[4:]).mean(), texts[:4]).grad_fn
    assert total_beside(root).get("total_beside_mean", 0.0) == count


@pytest.mark.parametrize(
    ("texts", "first", "told"), [(4.0, 5.0, True), (3.0, 5.0, False), (4.0, 4.5, False)]
)  # 2 ln 2 and 2 ln 5 are 4.61
def test_a_total_beside_a_mean_is_found_where_the_loss_begins_above_guesses(
    texts: float, first: float, told: bool
) -> None:
    columns = {"loss": every(first * FALLS / FALLS[0])} | looked(total_beside_mean=texts, output_width=5.0)
    assert ("sum_beside_mean" in warned(columns)) == told


@pytest.mark.parametrize(("given", "passes", "told"), [(5.0, 1.0, True), (5.0, 2.0, False), (4.5, 1.0, False)])
def test_a_total_beside_a_mean_is_found_where_one_term_alone_is_logged(given: float, passes: float, told: bool) -> None:
    columns = {"loss": every(0.7 * FALLS / FALLS[0])} | looked(
        total_beside_mean=4.0, output_width=5.0, loss_given=given, losses_given=passes
    )
    assert ("sum_beside_mean" in warned(columns)) == told
