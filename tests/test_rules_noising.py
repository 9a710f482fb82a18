"""What is said of a model of denoising: noise that is too weak, another one, of another time; and of alignments."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings, only
from test_rules_objective import DICE, FALLS, ROWS, STEP, every, of_graph, warned

from barograph.doctor.rules.data.criteria import AlignmentBelowZero
from barograph.probes.model import noising

LOOKS = np.arange(0, ROWS, 10)


def looked(**values: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    noise = 0.05 * DICE.normal(size=len(LOOKS))
    return {
        f"model/{name}": (LOOKS, value * (1 + noise) if value % 1 else np.full(len(LOOKS), value))
        for name, value in values.items()
    }


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("early", "late", "normal", "cause"),
    [
        (0.01, 0.27, 1.0, "noise schedule too weak"),
        (0.08, 0.54, 1.0, "noise schedule too weak"),  # that of a thousand steps, in fifty
        (0.2, 0.75, 1.0, None),
        (0.27, 0.01, 1.0, "noise schedule too weak"),  # time that runs the other way
        (0.3, 0.999, 1.0, None),
        (0.999, 0.3, 1.0, None),
        (0.801, 0.799, 1.0, "timestep does not belong"),
        (0.01, 0.02, 1.0, None),  # another noise: `unexplained_targets`
        (0.01, 0.27, 0.0, None),  # targets are no noise
    ],
)
def test_the_factor_of_the_noise_is_judged(
    early: float, late: float, normal: float, cause: str | None, rows: int
) -> None:
    figures = looked(noise_share_early=early, noise_share_late=late, noise_share=0.5, noise_target=normal)
    found = warned({"loss": every(FALLS)} | figures, rows)
    assert ("noised_inputs" in found) == (cause is not None)
    assert cause is None or found["noised_inputs"].causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("looks", "apart", "low", "told"),
    [
        (16, 0.0, 2.0, True),
        (15, 0.0, 2.0, False),
        (16, 0.08, 2.0, False),  # a range of times whose noise is nearly the same: in most looks the later has more
        (16, 0.0, 450.0, False),  # times between 450 and 990
    ],
)
def test_noise_of_another_time_is_told_by_sixteen_looks(looks: int, apart: float, low: float, told: bool) -> None:
    dice, at = np.random.default_rng(4), LOOKS[:looks]
    early, late = (0.7 + sign * apart / 2 + 0.03 * dice.normal(size=looks) for sign in (-1, 1))
    series = {"noise_share_early": early, "noise_share_late": late, "noise_share": early, "noise_target": 0 * at + 1.0,
              "time_low": 0 * at + low, "time_high": 0 * at + 990.0}  # fmt: skip
    found = warned({"loss": every(FALLS)} | {f"model/{name}": (at, values) for name, values in series.items()})
    assert ("noised_inputs" in found) is told


def test_targets_that_are_noise_now_and_then_say_nothing() -> None:
    figures = looked(noise_share_early=0.01, noise_share_late=0.27, noise_share=0.2, noise_target=1.0)
    figures["model/noise_target"][1][::6] = 0
    assert "noised_inputs" not in warned({"loss": every(FALLS)} | figures)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(("low", "high", "told"), [(0.0, 0.0, True), (0.0, 998.0, False), (500.0, 500.0, True)])
def test_a_time_that_is_always_the_same_is_found(low: float, high: float, told: bool, rows: int) -> None:
    found = warned({"loss": every(FALLS), "model/time_low": (LOOKS, np.full(len(LOOKS), low)),
                    "model/time_high": (LOOKS, np.full(len(LOOKS), high))}, rows)  # fmt: skip
    assert ("constant_time" in found) is told
    assert not told or found["constant_time"].step == 0


def test_one_time_a_batch_is_no_constant_time() -> None:
    times = (LOOKS, LOOKS % 70.0)
    assert "constant_time" not in warned({"loss": every(FALLS), "model/time_low": times, "model/time_high": times})


@pytest.mark.parametrize(
    ("share", "normal", "cause"),
    [(0.01, 1.0, "noise of the targets"), (0.8, 1.0, "time not normalised"), (0.01, 0.0, None)],
)
def test_targets_of_denoising_that_nothing_explains(share: float, normal: float, cause: str | None) -> None:
    figures = looked(noise_share=share) | looked(noise_target=normal)
    figures |= looked(explained=-0.02, target_mean=0.01, target_std=1.01, update_p50=1e-3)
    found = warned({"loss": every(1 + 0.05 * DICE.normal(size=ROWS))} | figures)
    assert ("unexplained_targets" in found) == (cause is not None)
    assert cause is None or found["unexplained_targets"].causes[0].startswith(cause)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figures", "rule"),
    [
        ({"ctc_reshaped": 1.0, "ctc_unnormalised": 0.0}, "alignment"),
        ({"ctc_reshaped": 0.0, "ctc_unnormalised": 1.0}, "alignment"),
        ({"ctc_reshaped": 0.0, "ctc_unnormalised": 0.0, "ctc_short": 0.0}, None),
        ({"ctc_reshaped": 0.0, "ctc_across": 1.0}, "alignment"),
        ({"ctc_short": 0.4}, "alignment_lengths"),
        ({"ctc_short": 0.03}, None),
        ({"divergence_of_chances": 1.0}, "divergence_input"),
        ({"divergence_averaged": 64.0}, "divergence_input"),
        ({"divergence_averaged": 0.0}, None),
        ({"divergence_averaged": 2.0}, None),
    ],
)
def test_losses_that_cannot_be_meant_are_told(figures: dict[str, float], rule: str | None, rows: int) -> None:
    found = warned({"loss": every(FALLS)} | of_graph(**figures), rows)
    assert set(found) & {"alignment", "alignment_lengths", "divergence_input"} == ({rule} if rule else set())
    assert rule is None or found[rule].step == int(STEP[0])


@pytest.mark.parametrize(("full", "cause"), [(1.0, "targets longer than outputs"), (0.0, "lengths wrong")])
def test_outputs_that_are_too_short_are_told_from_lengths_that_are_wrong(full: float, cause: str) -> None:
    found = warned({"loss": every(FALLS)} | of_graph(ctc_short=0.4, ctc_full=full))
    assert found["alignment_lengths"].causes[0].startswith(cause)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figure", "passes", "loss", "told"),
    [
        (1.0, 2.0, 0.3 * np.exp(-STEP / 40) + 1e-4, True),
        (1.0, 1.0, 0.3 * np.exp(-STEP / 40) + 1e-4, False),  # an equation that is to hold
        (1.0, 1.0, -1 + 0.9 * np.exp(-STEP / 40), True),  # a similarity
        (1.0, 2.0, 0.3 + 0.01 * DICE.normal(size=ROWS), False),  # something keeps outputs apart
        (2.0, 2.0, FALLS, False),  # no reward is known
    ],
)
def test_a_loss_that_pulls_all_outputs_together_is_told(
    figure: float, passes: float, loss: np.ndarray, told: bool, rows: int
) -> None:
    found = warned({"loss": every(loss)} | of_graph(loss_attracts=figure, passes=passes), rows)
    assert ("attraction" in found) is told
    assert not told or found["attraction"].causes[0].startswith("outputs collapsed")


def test_a_target_with_gradient_is_told_where_there_is_a_reward() -> None:
    columns = {"loss": every(FALLS), "reward": every(STEP + DICE.normal(size=ROWS)), **of_graph(loss_attracts=2.0)}
    assert warned(columns)["attraction"].causes[0].startswith("target not detached")


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("loss", "update", "told"),
    [
        (0.5 + 0.02 * DICE.normal(size=ROWS), 1e-3, True),
        (0.5 + 0.04 * np.exp(-STEP / 30) + 0.01 * DICE.normal(size=ROWS), 1e-3, True),  # collapsed
        (0.5 * np.exp(-STEP / 2000) + 0.005 * DICE.normal(size=ROWS), 1e-3, False),  # slow
        (0.5 * np.exp(-STEP / 60) + 0.005 * DICE.normal(size=ROWS), 1e-3, False),
        (0.5 + 0.02 * DICE.normal(size=ROWS), 1e-7, False),  # nothing moves
    ],
)
def test_the_loss_of_a_margin_that_stays_where_it_began(loss: np.ndarray, update: float, told: bool, rows: int) -> None:
    found = warned({"loss": every(loss)} | of_graph(loss_hinge=1.0, update_p50=update), rows)
    assert ("margin_kept" in found) is told


NORMAL = {"noise_target": 1.0, "noise_even": 0.0, "input_target": 0.0, "noise_share": 0.8, "input_mean": 0.1,
          "input_std": 1.0}  # fmt: skip


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figures", "moves", "timed", "cause"),
    [
        ({}, 0.01, True, None),
        ({}, 0.0, True, "noise drawn once"),
        ({}, 0.0, False, None),  # a batch that is all of the data, of no denoising
        ({"noise_target": 0.0, "noise_even": 1.0}, 0.01, True, "noise of the wrong distribution"),
        ({"noise_target": 0.0, "noise_even": 1.0}, 0.01, False, None),
        ({"input_std": 40.0}, 0.01, True, "inputs not normalised"),
        ({"input_std": 40.0, "noise_share": 39.0}, 0.01, True, None),  # noise of all sizes is added
        ({"noise_target": 0.0, "noise_alike": 1.0}, 0.01, True, "noise drawn once for a whole batch"),
        ({"noise_target": 0.0, "noise_alike": 1.0}, 0.0, True, None),  # one example that is learnt by heart
        ({"noise_target": 0.0, "noise_alike": 1.0}, 0.01, False, None),
        ({"noise_target": 0.0, "input_target": 1.0}, 0.01, True, "labels can be seen"),
        ({"noise_target": 0.0, "input_target": 1.0}, 0.01, False, None),  # an autoencoder
    ],
)
def test_targets_that_are_no_fresh_noise_are_found(
    figures: dict[str, float], moves: float, timed: bool, cause: str | None, rows: int
) -> None:
    values = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in (NORMAL | figures).items()}
    for name, value in {"target_mean": 0.02, "target_std": 0.98}.items():
        values[f"model/{name}"] = LOOKS, value + moves * DICE.normal(size=len(LOOKS))
    if timed:
        values |= looked(time_low=0.5, time_high=990.5)
    found = warned({"loss": every(FALLS)} | values, rows)
    assert ("noise_targets" in found) == (cause is not None)
    assert cause is None or found["noise_targets"].causes[0].startswith(cause)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("factor", "swings", "timed", "told"),
    [
        (0.0, 0.01, True, True),
        (0.0, 0.01, False, False),  # targets of something else, which happen to be normal
        (0.03, 0.005, True, False),  # little noise, and it is there
        (0.3, 0.5, True, False),
    ],
)
def test_noise_that_is_in_no_input_is_found_by_its_sign(
    factor: float, swings: float, timed: bool, told: bool, rows: int
) -> None:
    values = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in NORMAL.items()}
    values["model/noise_share"] = LOOKS, factor + swings * np.where(LOOKS % 20 == 0, 1.0, -1.0)
    for name, value in {"target_mean": 0.02, "target_std": 0.98}.items():
        values[f"model/{name}"] = LOOKS, value + 0.01 * DICE.normal(size=len(LOOKS))
    if timed:
        values |= looked(time_low=0.5, time_high=990.5)
    found = warned({"loss": every(FALLS)} | values, rows)
    assert ("noise_targets" in found) is told
    assert not told or found["noise_targets"].causes[0].startswith("noise of the targets is not in the inputs")


@pytest.mark.parametrize(("rows", "told"), [(1, 1.0), (16, 0.0)])
def test_noise_of_one_row_for_all_of_a_batch_is_seen(rows: int, told: float) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    output, given, noise = torch.randn(16, 64), torch.randn(16, 64), torch.randn(rows, 64).expand(16, 64)
    gradient = 2 / output.numel() * (output - noise)
    found = noising.figures(given, None, tuple(given.shape), output, gradient, output.numel())
    assert float(found[noising.FIGURES.index("noise_alike")]) == told


@pytest.mark.parametrize(
    ("across", "square", "found"), [(True, True, True), (False, True, False), (False, False, False)]
)
@pytest.mark.parametrize("flow", [True, False])
@pytest.mark.parametrize("height", [0, 12])
def test_times_that_are_broadcast_over_columns_are_found(
    across: bool, square: bool, found: bool, flow: bool, height: int
) -> None:
    torch = pytest.importorskip("torch")
    dice = torch.Generator().manual_seed(5)
    columns = 24 if square else 32
    seen = []
    for _ in LOOKS:
        noise, time = torch.randn(24, columns, generator=dice), torch.rand(24, generator=dice)
        end = torch.randn(24, 1, generator=dice) * torch.tensor([1.0, -1.0]).repeat(columns // 2)
        mixing = time if across else time[:, None]
        if height:
            noise = torch.randn(24, 1, height, columns, generator=dice)
            end, mixing = end[:, None, None], time if across else time[:, None, None, None]
        target, output = end - noise if flow else noise, torch.zeros_like(noise)
        noisy = noising.noisy_input([(1 - mixing) * noise + mixing * end, time], output)
        gradient = (output - target) * 2 / output.numel()
        assert noisy is not None
        seen.append(noising.figures(*noisy, *map(noising.some, (output, gradient)), output.numel()).tolist())
    columns_of = {f"model/{name}": (LOOKS, np.array([one[noising.FIGURES.index(name)] for one in seen]))
                  for name in ("time_of_rows", "time_of_columns")}  # fmt: skip
    said = warned({"loss": every(FALLS)} | columns_of, 7)
    assert ("times_broadcast" in said) is found
    assert not found or said["times_broadcast"].causes[0].startswith("targets broadcast")


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("fresh", None),
        ("once", "noise drawn once"),
        ("all", None),  # the examples too: a few pairs that are learnt by heart
        ("row", "noise drawn once for a whole batch"),
        ("curved", None),
    ],
)
def test_noise_at_the_end_of_a_straight_way_is_followed(kind: str, cause: str | None, back: bool) -> None:
    torch = pytest.importorskip("torch")
    dice = torch.Generator().manual_seed(6)
    once, same = torch.randn(32, 1, 8, 8, generator=dice), torch.rand(32, 1, 8, 8, generator=dice).round() * 2 - 1
    seen = []
    for _ in LOOKS:
        noise = torch.randn(1 if kind == "row" else 32, 1, 8, 8, generator=dice).expand(32, -1, -1, -1)
        noise = once if kind in ("once", "all", "curved") else noise
        example = same if kind == "all" else torch.rand(32, 1, 8, 8, generator=dice).round() * 2 - 1
        time, output = torch.rand(32, generator=dice), torch.zeros_like(noise)
        share = time[:, None, None, None]
        begin, end = (example, noise) if back else (noise, example)
        if kind == "curved":
            share = share.square()
        noisy = noising.noisy_input([(1 - share) * begin + share * end, time], output)
        gradient = (begin - end) * 2 / output.numel()
        assert noisy is not None
        seen.append(noising.figures(*noisy, *map(noising.some, (output, gradient)), output.numel()).tolist())
    figures = {f"model/{name}": (LOOKS, np.array(values))
               for name, values in zip(noising.FIGURES, zip(*seen, strict=True), strict=True)}  # fmt: skip
    figures |= {"model/target_std": (LOOKS, LOOKS % 5 + 1.0), "model/target_mean": (LOOKS, LOOKS % 3 * 0.1)}
    figures |= {"model/time_low": (LOOKS, LOOKS % 7 * 0.01), "model/time_high": (LOOKS, LOOKS % 7 * 0.01 + 0.9)}
    found = warned({"loss": every(FALLS)} | figures, 5).get("noise_targets")
    assert (found.causes[0].split(":")[0] if found else None) == cause


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (LOOKS % 97, LOOKS % 97, True),
        (LOOKS % 97, LOOKS % 97 + 1, False),
        (LOOKS % 3, LOOKS % 3, False),  # a few levels
        (np.where(LOOKS == 100, 0, LOOKS % 97), LOOKS % 97, len(LOOKS) >= 27),  # once they differ
    ],
)
def test_one_time_for_all_rows_of_a_batch_is_told(low: np.ndarray, high: np.ndarray, told: bool) -> None:
    times = {"model/time_low": (LOOKS, low * 1.0), "model/time_high": (LOOKS, high * 1.0)}
    assert ("shared_time" in warned({"loss": every(FALLS)} | times)) is told


@pytest.mark.parametrize(
    ("even", "batches", "period", "timed", "told"),
    [
        (0.5, 14.0, 0.0, True, True),
        (0.01, 14.0, 0.0, True, False),
        (0.5, 8.0, 0.0, True, False),
        (0.5, 14.0, 25.0, True, False),  # batches come again: they are sorted
        (0.5, 14.0, 0.0, False, False),  # no model of denoising
    ],
)
def test_one_noise_for_all_rows_of_a_batch_is_told(
    even: float, batches: float, period: float, timed: bool, told: bool
) -> None:
    figures = {"rows_apart_even": even, "apart_batches": batches, "apart_period": period}
    columns = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in figures.items()}
    if timed:
        columns |= {"model/time_low": (LOOKS, LOOKS % 7 * 1.0), "model/time_high": (LOOKS, LOOKS % 7 + 90.0)}
    found = warned({"loss": every(FALLS)} | columns)
    assert ("shared_noise" in found) is told
    assert not told or found["shared_noise"].causes[0].startswith("noise is the same")


@pytest.mark.parametrize("rows", [1, 7, ROWS])
@pytest.mark.parametrize(
    ("marks", "again", "told"),
    [
        (0.42 + 0 * LOOKS, 0.1, True),
        (0.42 + 0 * LOOKS, 0.5, True),
        (0.42 + 0 * LOOKS, 0.51, False),  # the examples are the same, too
        (0.42 + LOOKS / 1e6, 0.1, False),  # drawn in each step
        (np.where(np.arange(len(LOOKS)) % 8 == 7, 0.1, 0.42), 0.1, False),  # seven in a row
        (np.where(np.arange(len(LOOKS)) < 3, 0.1, 0.42), 0.1, True),
    ],
)
def test_times_that_are_the_same_in_each_step_are_told(marks: np.ndarray, again: float, told: bool, rows: int) -> None:
    columns = {"model/time_mark": (LOOKS, marks * 1.0), "model/rows_again": (LOOKS, np.full(len(LOOKS), again))}
    found = warned({"loss": every(FALLS)} | columns, rows)
    assert ("times_again" in found) is told
    assert not told or found["times_again"].step == (30 if marks[0] == 0.1 else 0)


@pytest.mark.parametrize("rows", [1, 7, ROWS])
@pytest.mark.parametrize(
    ("marks", "again", "told"),
    [
        (4097.0 + 0 * LOOKS, 0.1, True),
        (4097.0 + 0 * LOOKS, 0.6, False),
        (4097.0 + LOOKS, 0.1, False),
        (np.where(np.arange(len(LOOKS)) % 8 == 7, np.nan, 4097.0), 0.1, False),
    ],
)
def test_noise_that_is_the_same_in_each_step_is_told(marks: np.ndarray, again: float, told: bool, rows: int) -> None:
    columns = {"model/noise_mark": (LOOKS, marks * 1.0), "model/rows_again": (LOOKS, np.full(len(LOOKS), again))}
    found = warned({"loss": every(FALLS)} | columns, rows)
    assert ("times_again" in found) is told
    assert not told or found["times_again"].causes[0].startswith("noise drawn once")


def test_times_of_examples_that_nobody_followed_are_told_by_eight_looks() -> None:
    for looks, told in ((7, False), (8, True)):
        marks = {"model/time_mark": (LOOKS[:looks], np.full(looks, 0.42))}
        assert ("times_again" in warned({"loss": every(FALLS)} | marks)) is told


@pytest.mark.parametrize(
    ("values", "alone", "told"),
    [
        ([2.0, 0.1, -0.1, 0.05, -0.2, -0.04], 1.0, [20]),
        ([2.0, 0.1, -0.1, 0.05, -0.2, 0.04], 1.0, []),
        ([2.0, 0.1, -1e-4, -2e-4, -1e-4, -3e-4], 1.0, []),  # rounding
        ([2.0, 0.1, -0.1, -0.1, -0.2, -0.04], None, []),  # something is taken from it, as an entropy
    ],
)
def test_an_alignment_whose_loss_is_below_zero_has_the_blank_among_its_targets(
    values: list[float], alone: float | None, told: list[int]
) -> None:
    looks = np.arange(0, 60, 10)
    figures = {} if alone is None else of_graph(ctc_alone=alone)
    columns = {"loss": every(FALLS), "model/loss_given": (looks, np.array(values))}
    found = only(findings([AlignmentBelowZero()], columns | figures), "alignment_below_zero")
    assert [one.step for one in found] == told


def test_examples_that_hide_the_noise_are_the_first_cause_of_factors_that_are_the_same() -> None:
    figures = looked(noise_share_early=0.801, noise_share_late=0.799, noise_share=0.8, noise_target=1.0)
    for size, cause in ((18.0, "inputs not normalised"), (1.0, "timestep does not belong")):
        found = warned({"loss": every(FALLS)} | figures | looked(input_std=size))
        assert found["noised_inputs"].causes[0].startswith(cause)
