"""What is true of a trace, and whether it can be seen in what was recorded.

In:   a recorded trace, its fault, and the healthy run of the same program and seed.
Out:  its label; with `unfair` and the reason where nothing that was recorded shows the fault.

The same seed gives the same numbers up to the onset, so a difference after it is the fault's work. A series shows it
when its median over the window after the onset leaves the healthy run's by more than 4 of the healthy run's robust
deviations, 5% of its level and half of its range, or when it holds other non-finite values, or when it is in one of
the two runs alone. A healthy loss that falls far has a wide range, and hides in it a faulty one that falls further: in
the programs that are or were put away whole, faults that are there from the start are looked at by quarters too, of
which two have to differ in one direction.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
from faults import BEST, EVALUATION, OF_MEMORY, RESUME, START, Fault
from halves import ALSO_RIGHT, PROGRAMS
from healthy import Healthy

WINDOW = 60  # steps after the onset
DEVIATIONS, SHARE = 4.0, 0.05
# Times of a busy machine, and what watching costs, differ from run to run. Fair for faults of speed alone.
TIMES = ("_ms", "_seconds", "duration", "per_second", "runtime", "watch_", "goodput", "energy", "span/", "mfu", "wall",
         "speed/", "clock_skew", "straggler", "by_rank")  # fmt: skip
# Tables of each layer: of hundreds of series some differ by chance.
LAYERS = (
    "gradients/",
    "weights/",
    "updates/",
    "activations/",
    "optimizer/",
    "spectral/",
    "gradients_hist",
    "weights_hist",
)
OF_SPEED = ("loader_slow", "throttled", "rank_slow")
OF_EVALUATION = ("eval", "val_", "val/", "valid", "train/loss", "train/accuracy", "loss", "acc", "model/training",
                 "train_loss", "heldout", "dev_", "dev/", "test_", "Loss/", "Accuracy/",
                 "knn", "va_", "lm_valid", "ema/", "check/", "recall/", "reef/", "sung/", "port/",
                 "gauge/", "review/", "probe/", "val_epoch/", "bits/heldout", "bits/herb", "strip/",
                 "bloom/", "pass/", "proof/", "clip/loss_val", "clip/r1_val", "devset/", "hammer/",
                 "ema_val/", "dpo_eval/", "atlas/", "lm_val/", "cells/val_", "ddpm_val/", "held/", "prefs/",
                 "clap_val/", "evals/", "page_val/",
                 "gd_ema/", "devel/", "kto_eval/", "shelf/", "validation_step/", "ids_dev/",
                 "shadow/", "adapt_dev/", "ipo_held/", "align_held/", "game_val/", "beat_val/",
                 "tick/", "check.", "heldout_nce", "heldout_first", "heldout_rank", "est_", "Valid/",
                 "tag_loss/valid", "per_residue_right/", "mean_recall/",
                 "shadowed/", "quiz/", "rest/", "holdout_", "xent_unseen", "solved_unseen", "judged.",
                 "avg_eps_", "avg_hits_", "home_val_", "tasting_", "lineup.", "kin_dev_", "bumps_",
                 "sampled/", "control_", "florist.", "cabinet_", "club_", "survey.",
                 "ft_val_", "offline_", "audit_",
                 "exam_", "jury_", "search/", "lm.valid", "tox/held_",
                 "ema_eval/", "dev.", "proof_", "album_", "tower.", "shop.",
                 "unseen/", "panel/", "drawer/", "test/", "bench/",
                 "avg_dsm", "avg_strokes", "valid_nll", "valid_exact", "readers.", "yard_", "nll/audit", "counts/audit",
                 "ward_", "ema_model/", "hidden_", "guest_", "museum_", "town_", "night_",
                 "shadow_pond_", "fleet/", "fitting/", "nats/crag", "first/crag", "place/crag", "harbour/",
                 "patrol_")  # fmt: skip
# Recorded when they change: a row that the healthy run does not have is certain.
STATES = ("model/training", "model/training_in_evaluation", "model/trained_parameters", "model/half_parameters")
EVALUATIONS = ("eval/loss", "val_loss", "eval_loss", "valid/loss", "val_mse", "val_noise_mse", "eval/ce",
               "dev_xent", "heldout_loss", "valid_loss", "loss/valid", "dev_ce", "val/loss", "test_loss", "Loss/test",
               "dev/loss", "loss/val", "val_dpo_loss", "val/nll", "test/loss",
               "val/contrastive", "holdout/nll", "valid/ce", "eval/answer_nll", "check/loss",
               "val/denoising", "test_ce", "holdout/pair_loss", "dev/simpo_loss", "va_loss",
               "lm_valid/loss", "val/xent", "sampler/x0_mse", "dev/nll", "heldout/nce", "gallery/ce",
               "heldback/ce", "survey/ce", "ema/cfm_loss", "check/answer_nll", "recall/itc",
               "reef/ce", "sung/nats", "port/nll", "gauge/edm_loss",
               "review/ce", "probe/infonce", "val_epoch/ce", "bits/heldout", "strip/ce",
               "bloom/mse", "pass/loss_tok", "proof/dpo_loss", "clip/loss_val", "devset/lm_loss",
               "hammer/ce", "ema_val/mse", "dpo_eval/loss", "atlas/loss", "lm_val/nll",
               "cells/val_ce", "ddpm_val/loss", "held/loss", "prefs/held_loss", "clap_val/loss",
               "evals/val_loss", "page_val/loss", "gd_ema/loss", "devel/loss", "kto_eval/loss",
               "shelf/loss", "validation_step/nll", "ids_dev/loss", "shadow/mse", "adapt_dev/xent",
               "ipo_held/objective", "align_held/infonce", "game_val/bits", "beat_val/ce",
               "tick/denoise", "tag_loss/valid", "check.loss", "heldout_nce", "est_nll", "Valid/CE",
               "shadowed/v", "quiz/loss", "rest/loss", "holdout_loss", "xent_unseen", "judged.loss",
               "avg_eps_loss", "home_val_loss", "tasting_loss", "lineup.nce", "kin_dev_loss", "bumps_ce",
               "sampled/x0", "control_loss", "florist.loss", "cabinet_siglip", "club_nll", "survey.ce",
               "val/loss_simple_ema", "ft_val_loss", "heldout_pairwise_loss", "offline_softmax", "dev_loss_lm",
               "audit_xent",
               "valid_ema_eps_mse", "exam_nll", "jury_loss", "search/nce", "lm.valid", "tox/held_loss",
               "ema_eval/fm_loss", "dev.xent", "proof_loss", "album_ce", "tower.nats", "shop.loss",
               "val/shadow_eps_l2", "unseen/nll", "panel/loss", "drawer/nce", "test/xent", "bench/ce",
               "avg_dsm", "valid_nll", "readers.loss", "yard_nce", "nll/audit", "ward_ce",
               "ema_model/velocity_mse", "hidden_nll", "guest_loss", "museum_contrast", "town_nll",
               "night_ce",
               "shadow_pond_mse", "fleet/loss", "fitting/dpo", "nats/crag", "harbour/nll", "patrol_xent")  # fmt: skip
LOSSES = ("train/loss", "loss/train", "loss", "train_loss", "train_mse", "ctc_loss", "mse", "nt_xent",
          "noise_mse", "train/ce", "xent", "ce", "batch_loss", "Loss/train", "iter_loss", "mlm_loss",
          "dpo_loss", "batch/loss", "loss/contrastive", "train/nll", "fit/loss",
          "train_ce", "pairs/loss", "simpo/loss", "tr_loss", "lm/loss", "train/xent", "denoise/x0_mse",
          "sft/loss", "match/nce", "pretrain/ce", "fit/weighted_ce", "cfm/loss", "tune/answer_nll",
          "pairs/itc", "fit/bce", "chant/nats", "rank/loss", "edm/loss", "dora/ce",
          "moco/loss", "step/soft_ce", "bits/train", "mill/loss",
          "unet/mse", "sft/loss_tok", "desk/dpo_loss", "clip/loss_in", "train/lm_loss", "bidder/ce",
          "flow/train_mse", "dpo/loss", "match/loss", "lm/nll", "cells/train_ce",
          "ddpm/train_loss", "qlora/loss", "slogan/loss", "clap/train_loss", "iter/lm_loss", "page/loss",
          "gd/step_loss", "peft/loss_train", "kto/loss", "retrieval/loss", "training_step/nll", "ids/loss",
          "noising/mse", "adapt/xent", "ipo/objective", "align/infonce", "game/bits", "beat/ce",
          "edm/denoise", "tag_loss", "pref.loss", "nce", "iter_nll", "Train/CE",
          "v/step", "answer/loss", "trip/loss", "match_loss", "xent", "sort.loss",
          "eps_loss", "home_loss", "taste_loss", "sole.nce", "kin_loss", "road_ce",
          "x0/train", "mrz_loss", "duel.loss", "shell_siglip", "rally_nll", "sky.ce",
          "train/loss_simple", "ft_loss", "pairwise_loss", "inbatch_softmax", "loss_lm", "fraud_xent",
          "train_eps_mse", "step_nll", "haiku_loss", "nce/batch", "lm.train", "tox/loss",
          "fm_loss", "sft.loss", "epi_loss", "pair_ce", "ring.nats", "vib.loss",
          "train/eps_l2", "ft/token_nll", "po/loss", "match/nce", "asm/xent", "weld/ce",
          "dsm_batch", "sft_loss", "dpo.loss", "pair_nce", "nll/train", "eeg_ce",
          "rf/velocity_mse", "tuning_nll", "pref_loss", "contrast", "lm_nll_step", "call_ce",
          "eps_mse", "flags/loss", "train/dpo", "nats/fit", "step/nll", "slope_xent")  # fmt: skip
RETURNS = ("charts/episodic_return", "rollout/ep_rew_mean", "train/episode_reward")


def label(trace: Any, out: Path, placed: tuple[Fault | None, Healthy | None]) -> dict[str, Any]:
    """The label of one trace."""
    fault, healthy = placed
    from barograph.query.stored import StoredRun

    run = StoredRun(out / trace.name)
    made: dict[str, Any] = {"program": trace.program, "seed": trace.seed, "kind": trace.kind}
    if fault is None:
        assert healthy is not None
        made |= {"fault": None, "near_miss": healthy.near_miss, "onset": None, "cause": None, "kinds": [],
                 "hard": False,
                 "expected_severity": None, "about": healthy.about}  # fmt: skip
        gained = learned(run)
        if gained is not None and gained < 0.02:
            made["unfair"] = f"a healthy run has to learn, and this one's loss fell by {gained:.1%} only"
        elif healthy.name == "epochs" and rises(run):
            made["unfair"] = "the evaluation loss rises by 3% from its minimum: this one overfits"
        return made
    onset = fault.onset
    if fault.begins == BEST:
        onset = best_evaluation(run)
    elif fault.name == "fp16_overflow":  # it grows unseen until it overflows
        norm = run.series("train/norm")
        onset = int(numpy.min(norm.x[(norm.x >= onset) & ~numpy.isfinite(norm.y)], initial=10**9))
    made |= {
        "fault": fault.name,
        "near_miss": False,
        "onset": onset,
        "cause": [fault.cause, *fault.also] if fault.also else fault.cause,
        "kinds": [*fault.kinds, *ALSO_RIGHT.get(trace.program, ())],
        "hard": fault.hard,
        "expected_severity": fault.severity,
        "about": fault.about,
        "begins": fault.begins,
    }
    plain = out / trace.program / f"{fault.compare}-{trace.seed}"
    shown = effects(run, StoredRun(plain), fault, onset, by_quarters=trace.program in PROGRAMS)
    made["visible"] = shown[:5]
    if not shown:
        made["unfair"] = (
            "nothing that was recorded differs from the healthy run of the same seed by more than its noise"
        )
    elif fault.begins == BEST and not rises(run):
        made["unfair"] = "the evaluation loss does not rise by 3% after its minimum"
    return made


def effects(run: Any, plain: Any, fault: Fault, onset: int, by_quarters: bool = False) -> list[str]:
    """The series that show the fault, the clearest first, each with how clearly."""
    names, healthy_names = set(run.names()), set(plain.names())
    both = sorted(names | healthy_names)
    of_layers = [name for name in both if name.startswith(LAYERS)]
    lists = ("drift", "absent", "same_batch")
    said = [name for name in lists if says(run, name, onset) and not says(plain, name, onset)]
    if said:
        return [f"ranks/{name}: in one of the two" for name in said]
    if fault.begins == EVALUATION:  # dropout in an evaluation moves the dice of the training: that shows nothing
        both = [name for name in both if name.startswith(OF_EVALUATION)]
    some = [name for name in both if name not in set(of_layers)]
    return shown_by(some, run, plain, fault, onset, by_quarters and fault.begins == START)


def says(run: Any, name: str, onset: int) -> bool:
    """Whether a comparison of ranks after the onset has a list of that name."""
    return any(record.step >= onset and name in record.fields for record in run.records("ranks"))


def shown_by(some: list[str], run: Any, plain: Any, fault: Fault, onset: int, by_quarters: bool = False) -> list[str]:
    """Those of some series that show the fault."""
    found: list[tuple[float, str]] = []
    names, healthy_names = set(run.names()), set(plain.names())
    for name in some:
        timed = of_time(name)
        if (timed and fault.name not in OF_SPEED) or name.startswith(("goodput", "energy")):
            continue
        if name not in names or name not in healthy_names:
            if (
                fault.name in (*OF_MEMORY, *OF_SPEED)
                or (fault.begins == RESUME and name.startswith("data/"))
                or "repeat" in name
            ):
                found.append((1e6, f"{name}: in one of the two"))
            continue
        if name in STATES and len(values(run, name, onset)) and not len(values(plain, name, onset)):
            found.append((1e6, f"{name}: changes in one of the two"))
            continue
        sick, well = values(run, name, onset), values(plain, name, onset)
        score = difference(sick, well, fault)
        if by_quarters and len(sick) == len(well) and len(well) >= 40:
            score = max(score, quarters(sick, well, fault))
        if score >= 1:
            found.append((score, f"{name}: {score:.3g}"))
    return [text for _, text in sorted(found, reverse=True)]


def of_time(name: str) -> bool:
    """Whether a series is of time, by its name. A mean square error is not."""
    return any(part in name.replace("_mse", "") for part in TIMES)


def values(run: Any, name: str, onset: int) -> Any:
    """A series' values at steps from the onset on."""
    series = run.series(name)
    return numpy.asarray(series.y, dtype=float)[numpy.asarray(series.x) >= onset]


def difference(sick: Any, well: Any, fault: Fault) -> float:
    """How clearly two pieces differ: 1 is at the threshold; infinite where one is non-finite and the other not."""
    if fault.begins != "start":
        sick, well = sick[:WINDOW], well[:WINDOW]
    if not len(sick) or not len(well):
        return 0.0
    bad = numpy.mean(~numpy.isfinite(sick)) - numpy.mean(~numpy.isfinite(well))
    if bad > 0:
        return math.inf
    if numpy.mean(sick == 0) - numpy.mean(well == 0) > (0.02 if fault.name == "last_batch_of_one" else 0.2):
        return math.inf  # exactly 0 is no noise
    sick, well = sick[numpy.isfinite(sick)], well[numpy.isfinite(well)]
    if not len(sick) or not len(well):
        return 0.0
    middle = float(numpy.median(well))
    deviation = 1.4826 * float(numpy.median(numpy.abs(well - middle)))
    low, high = (float(one) for one in numpy.percentile(well, (5, 95)))
    noise = max(DEVIATIONS * deviation, SHARE * abs(middle), 0.5 * (high - low), 1e-12)
    peak = 0.0
    if fault.name in (
        "bad_batch",
        "clipping_off",
        "optimizer_state_lost",
        "data_replayed",
        "ema_not_swapped_back",
        "never_restored",
        "moments_not_loaded",
        "moments_left_out",
        "average_left_in",
        "optimizer_not_reloaded",
        "shadow_stays_in",
        "resume_weights_alone",
        "ema_not_restored",
        "optimizer_state_dropped",
        "ema_weights_left_in",
        "optimizer_left_out_of_checkpoint",
        "ema_stays_in_model",
        "ema_made_before_load",
        "fresh_optimizer_at_resume",
        "ema_left_in_after_validation",
        "optimizer_not_in_checkpoint",
        "ema_weights_kept_after_eval",
        "ema_of_fresh_net_at_resume",
        "adam_state_not_saved",
        "optimizer_made_behind_its_load",
        "ema_copied_back_for_test",
        "average_put_in_for_good",
        "moments_begin_anew",
        "adapters_alone_in_file",
        "towers_and_queues_saved_alone",
        "solver_state_in_other_file",
        "average_poured_into_net",
        "average_stays_for_training",
        "optim_key_spelt_otherwise",
        "resume_without_recipe_state",
        "solver_made_anew_behind_load",
        "auto_resume_of_model_alone",
        "chant_resumed_without_moments",
        "copied_from_the_average",
        "average_saved_as_the_model",
        "snapshot_without_training_state",
        "only_the_adapter_folder_loaded",
        "base_weights_taken_for_a_checkpoint",
        "sampling_in_the_net_itself",
        "mean_stays_in_after_reading",
        "milestone_holds_model_and_ema",
        "adapter_dir_given_as_the_model",
        "policy_archive_alone_restored",
        "reference_copied_from_the_checkpoint",
        "no_restore_behind_the_drawing",
        "reel_weights_are_all_that_is_loaded",
        "training_state_saved_by_save_pretrained",
        "resumed_by_peft_from_pretrained",
        "policy_checkpoint_given_as_the_start",
        "columns_made_anew_behind_the_load",
        "pretrained_path_instead_of_resume",
        "average_written_over_the_net",
        "copy_to_without_restore",
        "unet_folder_loaded_and_nothing_else",
        "adapter_loaded_and_trainer_begun_anew",
        "policy_weights_found_and_loaded_alone",
        "towers_read_back_without_their_optimizer",
        "checkpoint_dict_of_model_and_iter",
        "before_is_no_copy_of_the_weights",
        "file_of_two_nets_and_no_more",
        "adapters_read_back_and_nothing_beside",
        "policy_file_without_squares",
        "towers_loaded_without_their_moments",
        "checkpoint_of_weights_and_iteration",
        "net_draws_with_the_average_in_it",
        "snapshot_of_both_networks_alone",
        "adapter_file_is_all_there_is",
        "only_the_policy_is_in_the_file",
        "fixed_net_from_the_file_of_the_policy",
        "towers_and_their_average_come_back_alone",
        "average_is_taken_over_after_it_is_judged",
        "init_from_resume_takes_the_model_alone",
        "weights_only_checkpoint_is_gone_on_from",
        "adapters_loaded_as_for_serving",
        "planner_saved_without_the_rest",
        "warm_start_of_coefficients_alone",
        "params_are_all_that_is_restored",
        "shadow_stays_behind_the_judge",
        "net_and_average_are_what_was_saved",
        "compiled_anew_behind_load_weights",
        "load_before_create_optimizer",
        "both_towers_and_nothing_more_resumed",
        "loaded_as_weights_to_begin_from",
        "average_entered_again_to_draw",
        "weather_and_its_average_are_all_that_is_loaded",
        "adapters_from_the_hub_and_a_new_trainer",
        "last_florist_taken_for_a_new_training",
        "cabinet_is_the_whole_checkpoint",
        "umpire_read_from_its_file_and_the_rest_made",
        "net_itself_made_the_average_to_draw",
        "checkpoint_taken_for_its_two_state_dicts",
        "adapter_file_given_and_no_recipe_state",
        "pilot_read_from_its_folder_for_a_new_trainer",
        "ckpt_has_the_player_and_its_arguments",
        "scope_of_the_shadow_without_its_restore",
        "file_has_the_network_and_its_average_alone",
        "learner_exported_and_loaded_without_its_optimizer",
        "poet_taken_from_the_best_file_for_a_new_fit",
        "planner_loaded_as_if_to_be_finetuned",
        "vector_of_the_average_stays_in_the_network",
        "checkpoint_made_of_named_parameters",
        "weights_of_the_average_loaded_into_the_net_to_draw",
        "average_copied_from_the_net_before_it_is_loaded",
        "adapter_file_read_back_for_a_trainer_made_anew",
        "trainer_begun_with_the_last_mason",
        "file_has_what_the_optimizer_knows_of_the_towers",
        "names_of_a_compiled_model_loaded_without_strict",
        "own_weights_are_kept_by_their_names_alone",
        "shadow_comes_with_the_module_and_not_its_file",
        "adapters_saved_and_the_table_that_learns_is_not",
        "reference_copied_from_the_policy_of_the_file",
        "names_of_the_file_begin_with_module_and_nobody_is_strict",
        "store_called_when_the_average_is_in",
        "files_sorted_and_the_first_one_taken",
        "adapters_have_the_prefix_of_their_wrapper_in_the_file",
        "columns_made_anew_by_the_policy_of_the_file",
        "file_has_the_tower_of_timbers_alone",
        "model_built_once_more_below_its_load",
        "net_loads_the_average_to_be_judged",
        "file_read_by_the_names_of_the_base",
        "reference_made_of_the_policy_that_goes_on",
        "towers_loaded_into_a_copy_of_theirs",
        "check_returns_ahead_of_leave",
        "optimizer_is_built_once_more_behind_its_load",
        "recipe_resumed_from_the_model_alone",
        "checkpoint_is_loaded_into_the_reference",
        "towers_laid_out_again_when_they_were_read",
    ):  # short: look at extremes
        few_sick, few_well = sick[:8], well[:8]
        peak = (float(numpy.max(few_sick)) - float(numpy.max(few_well))) / noise
    return max(abs(float(numpy.median(sick)) - middle) / noise, peak)


def quarters(sick: Any, well: Any, fault: Fault) -> float:
    """How clearly two quarters differ, both in one direction: by the second clearest of them."""
    found: dict[bool, list[float]] = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for one, other in zip(numpy.array_split(sick, 4), numpy.array_split(well, 4), strict=True):
        found[bool(numpy.nanmedian(one) > numpy.nanmedian(other))].append(difference(one, other, fault))
    return max(sorted(some)[-2] for some in found.values())


def evaluation(run: Any) -> str:
    """The name of the evaluation loss."""
    return next(name for name in EVALUATIONS if name in run.names())


def best_evaluation(run: Any) -> int:
    """The step with the lowest evaluation loss."""
    series = run.series(evaluation(run))
    return int(series.x[int(numpy.nanargmin(series.y))])


def rises(run: Any) -> bool:
    """Whether the evaluation loss ends 3% above its minimum."""
    loss = numpy.asarray(run.series(evaluation(run)).y, dtype=float)
    return bool(loss[-1] > 1.03 * numpy.nanmin(loss))


def learned(run: Any) -> float | None:
    """By what share of it the loss fell from the first to the last tenth of the run; None where there is no loss."""
    for name in (name for name in RETURNS if name in run.names()):
        earned = numpy.asarray(run.series(name).y, dtype=float)
        tenth = max(1, len(earned) // 10)
        return float((earned[-tenth:].mean() - earned[:tenth].mean()) / max(abs(earned[:tenth].mean()), 1e-9))
    for name in LOSSES:
        if name in run.names():
            loss = numpy.asarray(run.series(name).y, dtype=float)
            tenth = max(1, len(loss) // 10)
            if name == "loss" and "reward" in run.names():  # a policy's loss says nothing: its reward does
                reward = numpy.asarray(run.series("reward").y, dtype=float)
                first, last = reward[:tenth].mean(), reward[-tenth:].mean()
                return float((last - first) / max(abs(first), 1e-9))
            return float(1 - numpy.nanmedian(loss[-tenth:]) / numpy.nanmedian(loss[:tenth]))
    return None
