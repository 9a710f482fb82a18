"""Comparisons: what differs, what may be concluded, what is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from compared_runs import changed, falling, make_run, row, said, seeds_of

import barograph
from barograph.analysis.compare.axes import _clock
from barograph.analysis.compare.comparison import compare

# -- attribution -------------------------------------------------------------------------------------


def test_one_change_and_one_seed_each_can_not_tell(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed())
    b = make_run(tmp_path, "b", falling(1.5, 2), config=changed(lr=2e-3, seed=2))
    made = compare(a, b)
    assert made.verdict.attribution == "one change" and made.verdict.changes == ["optimizer.lr"]
    assert "0.001 → 0.002" in made.verdict.sentences[0]
    (one,) = made.contrasts
    # far outside the noise within the runs, and still no verdict: nobody knows not the variation between seeds
    assert one.noise is not None and abs(one.difference) > 20 * one.noise
    assert one.outcome == "cannot tell" and one.test is None
    assert "not the variation between seeds" in one.sentence and "three seeds" in one.advice
    assert one.difference == pytest.approx(-0.5, abs=0.03)
    assert one.curve is not None and one.curve.kind == "within runs"


def test_repeats_in_the_project_say_what_seeds_do(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(), steps=60)
    b = make_run(tmp_path, "b", falling(1.5, 2), config=changed(lr=2e-3, seed=2), steps=60)
    seeds_of(tmp_path, "again", 2.0, changed(), range(10, 14))
    (one,) = compare(a, b).contrasts
    assert one.outcome == "better" and one.repeats is not None and one.repeats.own
    assert one.repeats.runs == 4 and one.repeats.dof == 3
    assert 0.002 < one.repeats.spread < 0.05


def test_several_changes_can_not_be_put_down_to_one(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed())
    b = make_run(tmp_path, "b", falling(1.9, 2), config=changed(lr=2e-3, weight_decay=0.0))
    made = compare(a, b)
    assert made.verdict.attribution == "several changes"
    assert made.verdict.changes == ["optimizer.lr", "optimizer.weight_decay"]
    assert "can be attributed only to all of them together" in made.verdict.sentences[0]


def test_seeds_alone_are_repeats(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed())
    b = make_run(tmp_path, "b", falling(2.0, 2), config=changed(seed=2))
    made = compare(a, b)
    assert made.verdict.attribution == "seeds only"
    assert made.contrasts[0].outcome == "cannot tell"


def test_groups_of_seeds_are_found_by_their_setups(tmp_path: Path) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(5))
    seeds_of(tmp_path, "b", 1.9, changed(lr=2e-3), range(20, 25))
    made = compare(*barograph.runs(tmp_path))
    assert [(side.label, len(side.members)) for side in made.sides] == [("lr = 0.001", 5), ("lr = 0.002", 5)]
    (one,) = made.contrasts
    assert one.outcome == "better" and one.test is not None and one.test.method == "Welch's t"
    assert one.test.permutation is not None and one.test.permutation <= 0.05
    assert one.test.effect is not None and one.test.effect < -3
    assert one.curve is not None and one.curve.kind == "seeds"
    assert one.test.low < -0.1 < one.test.high


def test_the_same_seeds_on_both_sides_are_pairs(tmp_path: Path) -> None:
    for seed in range(4):
        level = 2.0 + 0.3 * seed  # seeds that lie far apart, and a small gain in each
        make_run(tmp_path, f"a{seed}", falling(level, seed), config=changed(seed=seed))
        make_run(tmp_path, f"b{seed}", falling(level - 0.05, 50 + seed), config=changed(lr=2e-3, seed=seed))
    (one,) = compare(tmp_path, group="lr").contrasts
    assert one.pairs == 4 and one.outcome == "better"


def test_no_difference_says_how_many_seeds_would_settle_it(tmp_path: Path) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(3), spread=0.05)
    seeds_of(tmp_path, "b", 2.0, changed(lr=2e-3), range(30, 33), spread=0.05)
    (one,) = compare(tmp_path, group="optimizer.lr").contrasts
    assert one.outcome == "not shown" and one.test is not None
    assert "would have shown a difference of" in one.advice
    assert one.test.needed is None or one.test.needed > 3


def test_several_groups_keep_the_level_together(tmp_path: Path) -> None:
    for at, lr in enumerate((1e-3, 2e-3, 3e-3, 4e-3, 5e-3)):
        seeds_of(tmp_path, f"g{at}", 2.0, changed(lr=lr), range(10 * at, 10 * at + 3))
    made = compare(tmp_path, group="lr", baseline="0.003")
    assert made.sides[0].label == "optimizer.lr = 0.003"
    assert [one.test.level for one in made.contrasts if one.test is not None] == [0.05 / 4] * 4
    assert "the level holds for all together" in made.verdict.sentences[-1]


def test_folders_are_groups(tmp_path: Path) -> None:
    for group, final in (("one", 2.0), ("two", 1.8)):
        for seed in range(3):
            make_run(tmp_path, f"r{seed}", falling(final, hash((group, seed)) % 1000), project=group, steps=60)
    made = compare(tmp_path / "one", tmp_path / "two")
    assert [len(side.members) for side in made.sides] == [3, 3]
    assert made.verdict.attribution == "unknown"  # no configuration anywhere
    assert "no configuration" in said(made) or "none of the runs has a configuration" in said(made)
    assert made.contrasts[0].outcome == "better"


@pytest.mark.parametrize(
    ("configured", "who"),
    [
        ((), "none of the runs has a configuration"),
        (("a",), "b and c have no configuration"),
        (("a", "c"), "b has no configuration"),
    ],
)
def test_who_has_no_configuration_is_named_in_a_whole_sentence(
    configured: tuple[str, ...], who: str, tmp_path: Path
) -> None:
    for at, name in enumerate("abc"):
        make_run(tmp_path, name, falling(2.0, at), steps=60, config=changed() if name in configured else None)
    made = compare(*barograph.runs(tmp_path))
    assert made.verdict.sentences[1] == f"What differs is not known, for {who}: the cause of a difference is unknown."


def test_what_varies_within_a_side_spoils_its_repeats(tmp_path: Path) -> None:
    for at, decay in enumerate((0.1, 0.2, 0.3)):
        make_run(tmp_path, f"a{at}", falling(2.0, at), config=changed(weight_decay=decay, seed=at))
        make_run(tmp_path, f"b{at}", falling(1.9, 9 + at), config=changed(weight_decay=decay, seed=at, lr=2e-3))
    made = compare(tmp_path, group="lr")
    assert "optimizer.weight_decay varies too" in said(made)
    assert made.verdict.attribution == "several changes"


# -- refusals ----------------------------------------------------------------------------------------


def test_another_batch_refuses_steps_and_takes_tokens(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(), tokens=4096)
    b = make_run(tmp_path, "b", falling(2.0, 2), config=changed(batch_size=64), tokens=8192, steps=100)
    made = compare(a, b)
    assert made.axis == "tokens"
    (refusal,) = made.refusals
    assert refusal.what == "step" and refusal.instead == "tokens" and "4,096 and 8,192 tokens" in refusal.why
    assert made.at == pytest.approx(200 * 4096)
    with pytest.raises(ValueError, match="Use tokens instead"):
        compare(a, b, x="step")
    forced = compare(a, b, x="step", anyway=True)
    assert forced.axis == "step" and forced.refusals and forced.at == 100


def test_another_tokenizer_refuses_losses_and_takes_bits_per_byte(tmp_path: Path) -> None:
    def bits(step: int) -> dict[str, float]:
        return {"eval/bits_per_byte": 1 + 2 / step}

    small = changed(vocab_size=32000)
    a = make_run(tmp_path, "a", falling(2.0, 1), config=small, evaluate=falling(2, 3), extra=bits)
    b = make_run(
        tmp_path, "b", falling(2.0, 2), config=small | {"vocab_size": 50304}, evaluate=falling(2, 4), extra=bits
    )
    made = compare(a, b)
    assert made.metric == "eval/bits_per_byte" and made.axis not in ("step", "tokens")
    assert "the vocabularies differ (32,000 and 50,304 tokens)" in said(made)
    with pytest.raises(ValueError, match=r"can't be compared.*eval/bits_per_byte instead"):
        compare(a, b, metric="train/loss")


def test_another_tokenizer_without_bits_per_byte_gives_no_number(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(tokenizer="bpe"))
    b = make_run(tmp_path, "b", falling(1.0, 2), config=changed(tokenizer="unigram"))
    made = compare(a, b)
    assert made.metric is None and not made.contrasts and not made.rows
    assert "bits per byte" in said(made)
    assert "can't be compared" in made.text()


def test_a_padded_vocabulary_is_the_same_one(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(vocab_size=50257))
    b = make_run(tmp_path, "b", falling(2.0, 2), config=changed(vocab_size=50304))
    made = compare(a, b)
    assert made.metric == "train/loss" and not made.refusals and made.verdict.changes == ["vocab_size"]


def test_another_validation_set_refuses_the_evaluation_and_takes_the_training(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(val_data="x.bin"), evaluate=falling(2, 3))
    b = make_run(tmp_path, "b", falling(2.0, 2), config=changed(val_data="y.bin"), evaluate=falling(1, 4))
    made = compare(a, b)
    assert made.metric == "train/loss"
    assert [one.what for one in made.refusals] == ["eval/loss"]
    assert "the evaluation data differ (val_data x.bin and y.bin)" in said(made)


def test_other_training_data_are_judged_by_the_evaluation(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(train_data="x"), evaluate=falling(2, 3))
    b = make_run(tmp_path, "b", falling(2.0, 2), config=changed(train_data="y"), evaluate=falling(2, 4))
    assert compare(a, b).metric == "eval/loss"
    with pytest.raises(ValueError, match="the training data differ"):
        compare(a, b, metric="loss")


def test_longer_sequences_are_a_caution(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(block_size=128))
    b = make_run(tmp_path, "b", falling(2.0, 2), config=changed(block_size=256, batch_size=16))
    made = compare(a, b)
    assert "sequence lengths differ (128 and 256)" in said(made)
    assert made.verdict.changes == ["block_size"]  # the batch is the same tokens, cut up in another way


# -- figures -----------------------------------------------------------------------------------------


def test_axes_time_money_and_flops(tmp_path: Path) -> None:
    about = {"wall_seconds": 100.0, "gpu_hours": 100 / 3600, "cost": 2.0}
    light = [{"log": "sol", "blocks": 100.0, "lm_head": 20.0, "attention": 5.0}]
    a = make_run(tmp_path, "a", falling(2.0, 1, 0.001), config=changed(), seconds=0.5, about=about, records=light)
    b = make_run(
        tmp_path, "b", falling(2.0, 1, 0.001), config=changed(lr=2e-3), seconds=0.25, about=about, records=light
    )
    made = compare(a, b, target=2.5)
    steps, times, money = row(made, "steps to"), row(made, "time to"), row(made, "cost to")
    reached = -25 * math.log(0.5 / 4)
    assert steps == pytest.approx([reached, reached], rel=0.03)
    assert times == pytest.approx([reached * 0.5, reached * 0.25], rel=0.03)
    assert money == pytest.approx([reached * 0.5 * 0.02, reached * 0.25 * 0.02], rel=0.03)
    assert row(made, "tokens to") == pytest.approx([reached * 4096] * 2, rel=0.03)
    assert row(made, "tokens a second") == pytest.approx([8192, 16384], rel=1e-3)
    assert row(made, "training time") == pytest.approx([100, 50], rel=0.01)
    along = compare(a, b, x="flops")
    assert along.at == pytest.approx(200 * 4096 * 125)
    assert compare(a, b, x="time").at == pytest.approx(50, rel=0.01)
    assert compare(a, b, x="samples").at == pytest.approx(200 * 32)


def test_a_recorded_run_and_written_files_agree(tmp_path: Path) -> None:
    run = barograph.init(project="p", name="a", dir=tmp_path, verbosity=-2, git=False, config={"lr": 1}, doctor=False)
    for step in range(1, 30):
        run.log_step(step, 0.0, 10, 1.0, 1.0, 3.0 - step / 100, 1e-3)
    run.finish()
    other = make_run(tmp_path, "b", lambda step: 3.0 - step / 100, steps=29, config={"lr": 2}, tokens=10)
    made = compare(tmp_path / "p" / "a", other)
    assert made.contrasts[0].difference == pytest.approx(0, abs=1e-9)
    assert row(made, "tokens") == [290, 290]


def test_a_pause_between_segments_is_no_training_time() -> None:
    steps, segment = np.arange(1.0, 11.0), np.array([1] * 5 + [2] * 5)
    times = np.concatenate([np.arange(5.0), np.arange(5.0) + 3600])
    assert _clock(steps, times, segment).tolist() == pytest.approx(np.arange(1.0, 11.0).tolist())
    # within a segment a long step is one: an evaluation, a wait for data
    assert _clock(steps, times, np.ones(10))[-1] == pytest.approx(1 + 3604)


def test_a_rarer_log_counts_the_tokens_between_its_rows(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(), every=1)
    b = make_run(tmp_path, "b", falling(2.0, 2), config=changed(lr=2e-3), every=10, first=10, steps=191)
    made = compare(a, b)
    assert [cell.value for one in made.rows if one.name == "tokens" for cell in one.cells if cell] == [200 * 4096] * 2


def test_a_shorter_run_is_compared_where_it_ends(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(), steps=200)
    b = make_run(tmp_path, "b", falling(2.0, 2), config=changed(lr=2e-3), steps=100)
    made = compare(a, b)
    assert made.at == 100 and "compared there" in said(made)
    # both are finished, and nothing says that the longer one's learning rate stands where the shorter one's does
    assert made.contrasts[0].unlike is not None and "not known" in made.contrasts[0].sentence
    assert any(one.name == "train/loss at step 100" for one in made.rows)


def test_a_finished_schedule_beats_nobody_in_the_middle_of_his(tmp_path: Path) -> None:
    def seeds(name: str, steps: int, final: float, first: int) -> None:
        for seed in range(first, first + 3):
            make_run(
                tmp_path, f"{name}{seed}", falling(final, seed), steps=steps,
                config=changed(max_steps=steps, seed=seed),
                extra=lambda step: {"train/lr": 1e-3 * (1 - step / (steps + 1))},
            )  # fmt: skip

    seeds("long", 200, 2.0, 0)
    seeds("short", 100, 1.8, 10)
    (one,) = compare(tmp_path, group="max_steps").contrasts
    assert one.test is not None and one.test.settled and one.outcome == "cannot tell"
    assert "of its peak" in one.sentence


def test_a_run_on_its_way_is_compared_with_the_same_part_of_the_other(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path, f"a{seed}", falling(2.0, seed), steps=200, config=changed(max_steps=200, seed=seed))
        there = changed(max_steps=200, seed=seed + 9, lr=2e-3)
        make_run(tmp_path, f"b{seed}", falling(1.8, seed + 9), steps=100, config=there, about={"status": "failed"})
    (one,) = compare(tmp_path, group="lr").contrasts
    assert one.unlike is None and one.outcome == "better"


def test_the_curves_of_a_longer_run_end_where_the_shorter_one_does(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed(), steps=200)
    b = make_run(tmp_path, "b", falling(2.0, 1), config=changed(lr=2e-3), steps=90)
    curve = compare(a, b).contrasts[0].curve
    assert curve is not None and np.abs(curve.difference).max() < 1e-12


def test_the_baseline_is_what_percents_are_of(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", lambda step: 2.0, config=changed())
    b = make_run(tmp_path, "b", lambda step: 1.0, config=changed(lr=2e-3))
    assert compare(a, b).contrasts[0].percent == -50
    made = compare(a, b, baseline="b")
    assert [side.label for side in made.sides] == ["b", "a"] and made.contrasts[0].percent == 100
    with pytest.raises(KeyError, match="not one of the sides"):
        compare(a, b, baseline="c")


def test_names_of_other_trackers_are_one_metric(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", falling(2.0, 1), config=changed())
    b = make_run(tmp_path, "b", config=changed(lr=2e-3), extra=lambda step: {"train_loss": 2.0})
    assert compare(a, b).metric == "train/loss"


# -- equality ----------------------------------------------------------------------------------------


def test_two_runs_that_should_be_equal(tmp_path: Path) -> None:
    loss = falling(2.0, 1)
    values = {step: loss(step) for step in range(1, 201)}
    a = make_run(tmp_path, "a", values.__getitem__, config=changed())
    b = make_run(tmp_path, "b", values.__getitem__, config=changed(), seconds=0.7)
    made = compare(a, b)
    assert made.verdict.attribution == "no change"
    assert made.equality_sentences() == ["1 series is bit-identical over 200 steps."]

    tiny = {
        step: value * (1 + (1e-9 if step >= 50 else 0) + (1e-3 if step >= 120 else 0)) for step, value in values.items()
    }
    c = make_run(tmp_path, "c", tiny.__getitem__, config=changed())
    made = compare(a, c, equal=True)
    assert made.equal is not None
    found = {one.series: one for one in made.equal}
    assert (found["train/loss"].first_bit, found["train/loss"].first_beyond) == (50, 120)
    assert found["train/step_tokens"].first_bit is None
    assert "First difference at step 50" in made.equality_sentences()[0] and "step 120" in made.equality_sentences()[1]


def test_nan_is_equal_to_nan_and_a_missing_step_is_told(tmp_path: Path) -> None:
    a = make_run(tmp_path, "a", lambda step: math.nan if step > 150 else 1.0, config=changed())
    b = make_run(tmp_path, "b", lambda step: math.nan if step > 150 else 1.0, config=changed(), first=3, steps=198)
    made = compare(a, b, equal=True)
    assert made.equal is not None
    assert all(one.first_bit is None for one in made.equal)
    assert "step 1 in only one run" in " ".join(made.equality_sentences())


# -- each pair by itself ----------------------------------------------------------------------------------


def test_a_third_side_that_stopped_early_moves_no_other_pair(tmp_path: Path) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(3))
    seeds_of(tmp_path, "b", 1.9, changed(lr=2e-3), range(20, 23))
    alone = compare(tmp_path, group="lr").contrasts[0]
    make_run(tmp_path, "short", falling(2.0, 7), steps=30, config=changed(lr=4e-3, seed=50))
    together = compare(tmp_path, group="lr", baseline="0.001")
    one = next(x for x in together.contrasts if together.sides[x.side].label.endswith("0.002"))
    assert one.place.high == alone.place.high and one.difference == pytest.approx(alone.difference)
    short = next(x for x in together.contrasts if together.sides[x.side].label.endswith("0.004"))
    assert short.place.high < one.place.high and f"step {short.place.high:,.0f}" in short.sentence
    x, curves = together.curves()
    assert x[-1] == one.place.high and np.isnan(curves[short.side][-1]) and np.isfinite(curves[one.side]).all()


def test_every_place_that_is_named_is_one_that_a_run_has(tmp_path: Path) -> None:
    for name, steps, rate in (("a1", 60, 1e-3), ("a2", 56, 1e-3), ("b1", 47, 2e-3), ("b2", 50, 2e-3)):
        make_run(tmp_path, name, falling(2.0, len(name)), steps=steps, config=changed(lr=rate, seed=steps))
    made = compare(tmp_path, group="lr")
    ends = {int(member.main.step[-1]) for side in made.sides for member in side.members}
    named = [int(one.replace(",", "")) for one in re.findall(r"(?:step|at|to) (\d[\d,]*)(?=[ :.)])", said(made))]
    assert named and set(named) <= ends


def test_of_two_repeats_the_one_that_stopped_early_is_left_out_and_said(tmp_path: Path) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(2))
    make_run(tmp_path, "b", falling(1.9, 4), steps=60, config=changed(lr=2e-3, seed=9))
    make_run(tmp_path, "b_short", falling(1.9, 5), steps=20, config=changed(lr=2e-3, seed=30))
    made = compare(tmp_path, group="lr")
    assert "b_short ended at step 20" in said(made) and "left out" in said(made)
    assert made.contrasts[0].runs == (2, 1)


@pytest.mark.parametrize("key", ["tokenizer", "dataset", "data_path", "train_files"])
def test_what_one_side_alone_names_lets_nothing_be_concluded(tmp_path: Path, key: str) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(3))
    seeds_of(tmp_path, "b", 1.5, changed() | {key: "other"}, range(20, 23))
    runs = barograph.runs(tmp_path)
    sides = [[run for run in runs if run.id.startswith(letter)] for letter in "ab"]
    made = compare(*sides)
    assert "better" not in {one.outcome for one in made.contrasts} and "better" not in " ".join(made.verdict.sentences)
    assert "only" in said(made) and key in said(made)
    assert bool(made.refusals) == (key == "tokenizer")
    forced = compare(*sides, anyway=True)
    assert forced.contrasts[0].outcome == "better" and (forced.refusals or any(key in one for one in forced.cautions))


def test_the_values_of_many_sides_fit_their_percents(tmp_path: Path) -> None:
    for at, steps in enumerate((60, 60, 60, 60, 30)):
        make_run(tmp_path, f"r{at}", falling(2.0 + at / 10, at), steps=steps, config=changed(lr=1e-3 * (at + 1)))
    text = compare(tmp_path, group="lr").text(160)
    rows = [line.split() for line in text.splitlines() if re.match(r"\s+[B-E]  ", line)]
    assert "A THERE" in text and len(rows) == 4
    for cells in rows:
        there, own, percent = cells[-5:-2]  # and "cannot tell"
        assert float(percent.rstrip("%")) == pytest.approx(100 * (float(own) / float(there) - 1), abs=0.05)


def test_the_sign_for_plus_and_minus_is_explained_wherever_it_stands(tmp_path: Path) -> None:
    seeds_of(tmp_path, "a", 2.0, changed(), range(3))
    seeds_of(tmp_path, "b", 1.9, changed(lr=2e-3), range(20, 23))
    made = compare(tmp_path, group="lr")
    for text in (made.text(120), made.markdown(), made.html()):
        assert "±" in text and "half of the 95% interval of the mean" in text
