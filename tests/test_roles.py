"""Which series is the loss is decided by its name in one place, and everything that shows a run agrees."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

import pytest

import barograph
from barograph.analysis.compare.member import ComparedMember, preferred
from barograph.analysis.importance.explain import importance
from barograph.core.roles import (
    candidates,
    evaluation_losses,
    is_of_held_out,
    is_of_other_kind,
    is_of_wholes,
    is_unnamed_evaluation,
    losses,
    main_evaluation,
    main_loss,
    may_play,
    plays,
)
from barograph.doctor.kernel.channels import RunHistory
from barograph.query.groups import groups
from barograph.query.metrics import direction, is_evaluation
from barograph.query.sql import sql
from barograph.query.stored import StoredRun
from barograph.views.overview import group_table, summary
from barograph.views.report.subject import Subject
from barograph.views.server.places import Places
from barograph.views.server.table import RunTable

NAMES = [
    ("train/loss", "eval/loss"),
    ("loss", "val_loss"),
    ("mse", "val_mse"),
    ("train/CrossEntropyLoss", "eval/CrossEntropyLoss"),
    ("elbo_loss", "valid/elbo_loss"),
    ("train/nll", "valid/nll"),
    ("objective", "test/mae"),
    ("loss/contrastive", "val/contrastive"),
    ("train/ctc", "valid/ctc"),
    ("tr_loss", "te_loss"),
    ("tr_loss", "va_loss"),
    ("fit/loss", "check/loss"),
    ("train/denoising", "unseen/denoising"),
    ("loss", "held_back/loss"),
    ("closs", "val_closs"),
    ("lossvalue", "val_loss"),
]


def trained(root: Path, name: str, loss: str, evaluation: str, end: float = 2.0) -> StoredRun:
    with barograph.init("p", name, {"lr": end}, str(root), verbosity=-2, sidecar=False, git=False) as run:
        for step in range(120):
            value = end + math.exp(-step / 20) + 0.01 * math.sin(step)
            run.log({loss: value, "kl": 0.1, "speed/step_ms": 5.0}, step=step)
            if step % 20 == 19:
                run.log({evaluation: value + 0.1, "val/accuracy": 0.5}, step=step)
    return StoredRun(run.dir)


@pytest.mark.parametrize(("loss", "evaluation"), NAMES)
def test_all_that_shows_a_run_takes_the_same_series_for_its_loss(tmp_path: Path, loss: str, evaluation: str) -> None:
    runs = [trained(tmp_path, name, loss, evaluation, end) for name, end in (("a", 2.0), ("b", 3.0))]
    run, names = runs[0], runs[0].names()
    last, held_out = float(run.series(loss).value[-1]), float(run.series(evaluation).value[-1])
    assert (main_loss(names), main_evaluation(names)) == (loss, evaluation)
    assert direction(loss) == direction(evaluation) == -1
    assert (is_evaluation(loss), is_evaluation(evaluation)) == (False, True)

    row = summary(run)
    assert (row["loss"], row["eval_loss"], row["step"]) == (last, held_out, 119), "ls"
    asked = sql("select run, loss, eval_loss from runs order by run", runs=runs).to_pylist()
    assert asked[0] == {"run": "a", "loss": last, "eval_loss": held_out}, "sql, runs"
    found = sql("select name, count(*) as n from evaluations where run = 'a' group by name", runs=[run]).to_pylist()
    assert found == [{"name": evaluation, "n": 6}], "sql, evaluations"

    listed = RunTable(Places(tmp_path)).whole_row("p/a").data
    assert (listed["loss"], listed["eval_loss"]) == (loss, evaluation), "the table of runs"
    assert list(listed["last"])[:2] == [loss, evaluation], "their place in a row"
    assert listed["best"][evaluation] == pytest.approx(min(run.series(evaluation).value))

    member = ComparedMember(run)
    assert Subject(run).loss == next(common for common, own in member.names.items() if own == loss), "report"
    assert member.main is not None and len(member.main) == 120, "compare"
    metric = barograph.compare(*runs).metric
    assert metric is not None and member.names[metric] == evaluation, "compare"
    assert importance(*runs, level=0.5).metric == evaluation, "importance"
    assert "no training loss" not in str(barograph.forecast(run).reason), "forecast"
    channels = RunHistory()
    for name in names:
        series = run.series(name)
        channels.add(name, series.step, series.value, series.step * 1_000, series.step * 0 + 1)
    judged, held = channels.role("loss"), channels.role("eval_loss")
    assert judged is not None and held is not None and (judged.name, held.name) == (loss, evaluation), "doctor"


@pytest.mark.parametrize("loss", [loss for loss, _ in NAMES])
def test_a_run_whose_loss_ends_as_nan_has_diverged_whatever_it_is_called(tmp_path: Path, loss: str) -> None:
    statuses = {}
    for name, last in (("well", 1.0), ("not", math.nan)):
        with barograph.init("p", name, None, str(tmp_path), verbosity=-2, sidecar=False, git=False) as run:
            for step in range(10):
                run.log({loss: last if step > 4 else 2.0, "beside": math.nan}, step=step)
        statuses[name] = StoredRun(run.dir).status
    assert statuses == {"well": "finished", "not": "diverged"}


@pytest.mark.parametrize(
    "name",
    ["kl", "reward", "val/accuracy", "train/loss_scale", "loss_weight", "grad_norm", "aux_loss", "z_loss", "step_ms"],
)
def test_what_only_sounds_like_a_loss_is_none(name: str) -> None:
    assert losses([name]) == evaluation_losses([name]) == () and not plays("loss", name)


def test_what_the_watch_records_is_never_the_loss_of_a_run_that_calls_its_own_otherwise() -> None:
    documented = (Path(__file__).parent.parent / "docs/guides/model.md").read_text()
    names = re.findall(
        r"`([a-z_/]+)`", "".join(line.split("|")[1] for line in documented.splitlines() if "| `" in line)
    )
    assert len(names) > 80
    watched = [f"model/{name}" for name in names] + [f"attention/h.0/{name}" for name in names]
    for role in ("loss", "eval_loss", "entropy", "kl", "reward", "lr", "throughput", "accuracy"):
        assert [name for name in watched if plays(role, name) and "loss_scale" not in name] == [], role
    assert main_loss(["model/compared_aligned_loss", "fit/cost"]) != "model/compared_aligned_loss"
    assert main_loss(["model/loss_undivided", "mse"]) == "mse" and main_loss(["model/loss"]) == "model/loss"


def test_a_total_goes_before_its_parts_and_held_out_data_before_the_training_where_runs_are_compared() -> None:
    assert losses(["loss_cls", "loss_box", "total_loss"])[0] == "total_loss"
    assert preferred(["loss", "mse", "val_loss", "eval/accuracy", "lr"]) == ("val_loss", "eval/accuracy", "loss")
    assert preferred(["lr", "kl"]) == ()


def test_an_objective_without_the_word_is_a_part_where_another_series_is_the_loss() -> None:
    assert main_loss(["train/recon", "train/elbo_loss"]) == "train/elbo_loss"
    assert main_loss(["train/ctc", "train/mse"]) == "train/mse"
    assert main_evaluation(["val/recon", "val/elbo_loss"]) == "val/elbo_loss"


def test_groups_show_the_loss_that_their_runs_have(tmp_path: Path) -> None:
    for name in "ab":
        trained(tmp_path, name, "mse", "val_mse")
    lines = group_table(groups(barograph.runs(tmp_path), ["project"])).splitlines()
    assert lines[0].split()[3:5] == ["LOSS", "EVAL"] and "2." in lines[1]


@pytest.mark.parametrize("name", ["Val Dice", "val_confidence", "test performance", "eval/variance", "val_balance"])
def test_a_word_that_ends_as_a_loss_does_is_no_evaluation_loss(name: str) -> None:
    assert not plays("eval_loss", name)


@pytest.mark.parametrize(
    "name", ["Avg_Reward_100", "Mean reward (last 100)", "Average Score", "AverageEpRet", "avg_return", "episode_score"]
)
def test_what_an_episode_gave_is_the_reward(name: str) -> None:
    assert plays("reward", name)


def test_a_cross_entropy_is_no_policys_entropy() -> None:
    assert plays("entropy", "policy_entropy")
    assert not plays("entropy", "train/cross_entropy")


@pytest.mark.parametrize("name", ["Tokens/s/device", "TFLOP/s/device", "train/imgs_per_sec", "samples/s",
                                  "toks/sec/gpu", "frames/second", "images_per_second", "words/s"])  # fmt: skip
def test_speeds_are_known_by_their_units(name: str) -> None:
    assert plays("throughput", name)


@pytest.mark.parametrize(
    "name", ["eval/samples_per_second", "tokens", "tokens_seen", "val_images/s", "s/it", "fps_limit"]
)
def test_counts_evaluations_and_times_are_no_speeds(name: str) -> None:
    assert not plays("throughput", name)


def test_of_a_name_that_is_cut_out_of_sentences_the_last_one_counts() -> None:
    assert main_loss(["records/second. Loss", "seconds. Throughput"]) == "records/second. Loss"


@pytest.mark.parametrize("name", ["critic/score/mean", "eprewmean", "Average reward score", "ep_rew_mean", "rew",
                                  "rollout/return_per_episode", "fitness/mean"])  # fmt: skip
def test_what_a_policy_earns_is_a_reward_by_any_of_these_names(name: str) -> None:
    assert plays("reward", name)


@pytest.mark.parametrize(
    "name",
    [
        "best_reward",
        "train/best_reward",
        "screw",
        "rewind",
        "prefs/chosen_reward",
        "rejected_rewards",
        "preferred/reward",
    ],
)
def test_the_best_so_far_and_other_words_are_no_reward(name: str) -> None:
    assert not plays("reward", name)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["kto/bad_reward", "kto/good_reward"], []),
        (["reward/win", "reward/lose"], []),
        (["kto/bad_reward", "kto/loss"], ["kto/bad_reward"]),
        (["agent/reward", "good_reward", "kl"], ["agent/reward", "good_reward"]),
        (["train/reward", "kto/bad_reward", "kto/good_reward"], ["train/reward"]),
    ],
)
def test_rewards_of_two_sides_that_are_compared_are_no_policy_s(names: list[str], found: list[str]) -> None:
    assert sorted(candidates("reward", dict.fromkeys(names, (0.0,)))) == sorted(found)


@pytest.mark.parametrize("name", ["loss_train_last_batch", "Err_G", "errD", "trainloss", "error_gen"])
def test_losses_may_say_their_data_behind_or_be_errors_of_an_adversary(name: str) -> None:
    assert plays("loss", name)


@pytest.mark.parametrize("name", ["loss_val_last_batch", "err_group", "error_rate", "testloss", "lossless"])
def test_what_is_no_loss_of_the_training(name: str) -> None:
    assert not plays("loss", name)


def test_of_evaluations_that_of_the_test_stands_last() -> None:
    assert main_evaluation(["testloss", "validloss"]) == "validloss"
    assert main_evaluation(["test loss", "validation loss"]) == "validation loss"
    assert main_loss(["err_d", "err_g"]) == "err_g"


@pytest.mark.parametrize("name", ["val_" * 25_000, "check/" * 20_000, "a" * 100_000, "/" * 100_000])
def test_a_name_of_a_hundred_thousand_characters_plays_no_role_and_takes_no_time(name: str) -> None:
    began = time.process_time()
    assert not may_play(name) and not is_of_held_out(name) and not is_unnamed_evaluation(name)
    assert time.process_time() - began < 2


def test_a_loss_of_whole_sentences_says_so_in_its_name() -> None:
    assert all(map(is_of_wholes, ("eval/sentence_nll", "val/nll_per_utterance", "dev/document_loss", "val/total_nll")))
    assert not any(map(is_of_wholes, ("eval/loss", "val/nll", "dev/consequence", "val/docile")))


def test_a_loss_of_a_few_rows_beside_one_of_each_step_is_not_the_training_s() -> None:
    """`reef/ce` is of evaluations where `fit/bce` has a row for each step; where both have few, names decide."""
    assert candidates("loss", {"reef/ce": range(8), "fit/bce": range(176)})[0] == "fit/bce"
    assert candidates("loss", {"reef/ce": range(8), "fit/bce": range(40)})[0] == "reef/ce"
    assert candidates("loss", {"fit/ce": range(8), "fit/perplexity": range(176)})[0] == "fit/ce"


def test_an_entropy_and_an_error_are_losses_of_two_kinds() -> None:
    assert is_of_other_kind("reef/ce", "fit/bce") and is_of_other_kind("fit/mse", "val/nll")
    assert not is_of_other_kind("val/ce", "fit/nll") and not is_of_other_kind("val/loss", "fit/bce")


@pytest.mark.parametrize("word", ["retrieval", "survival", "approval", "arrivals"])
def test_a_word_that_ends_as_an_evaluation_s_does_is_of_none(word: str) -> None:
    """`retrieval/loss`, of each step, was of an evaluation by the "eval" in it, and its evaluation the training's."""
    training, evaluation = f"{word}/loss", "shelf/loss"
    rows = {training: range(160), evaluation: range(8)}
    assert candidates("loss", rows)[0] == training
    assert main_loss([training]) == training and not is_evaluation(training)
    assert main_evaluation([training, f"{word}_eval/loss"]) == f"{word}_eval/loss"
    assert main_loss([f"{word}_eval/loss"]) is None


def test_an_error_that_both_data_have_goes_before_the_objective() -> None:
    names = {name: range(9) for name in ("obj", "tr_rmse", "va_rmse")}
    assert candidates("loss", names)[0] == "tr_rmse" and candidates("eval_loss", names)[0] == "va_rmse"
    assert candidates("loss", {name: range(9) for name in ("obj", "lr")}) == ["obj"]
