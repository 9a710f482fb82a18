"""The twenty-first half of the bench, which is put away: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a diffusion of small pictures with an average of its weights, adapters beside a
base of four bits, preferences against a frozen reference, two towers for spectra and their formulas, a language model
under float16 with a scaler, a classifier of sequences with rare kinds on two ranks; each as another ordinary engineer
writes it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong
in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule,
and did not look at what the doctor says. A fault is called by any name that a person would give it, and every kind of
finding that would be right of it is right; the names that the twentieth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, ninth, sixteenth, twentieth
from halves.ninth import Row, Settings

PROGRAMS = ("petals", "kitchens", "headlines", "spectra", "reels", "auctions")
PETALS, KITCHENS, HEADLINES, SPECTRA, REELS, AUCTIONS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "one_time_for_the_whole_batch", "betas_of_a_thousand_steps", "rate_of_full_tuning_for_adapters",
    "scale_without_alpha_over_r", "reference_copied_from_the_checkpoint",
    "features_normalised_over_the_batch", "scale_used_as_its_logarithm", "clipped_before_it_is_unscaled",
    "padding_asked_for_as_words", "net_called_beside_its_wrapper", "weights_in_the_order_of_counts",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    PETALS: {"train_batch_size": 16, "gradient_accumulate_every": 2},
    KITCHENS: {"per_device_batch": 12, "grad_accum": 2},
    HEADLINES: {"batch_size": 8, "gradient_accumulation_steps": 2},
    SPECTRA: {"accum_freq": 2}, REELS: {"batch_size": 6, "grad_accum_steps": 2}, AUCTIONS: {"accumulate": 2},
}
DROPPED: Settings = {
    PETALS: {"dropout": 0.3}, KITCHENS: {"dropout": 0.3}, HEADLINES: {"dropout": 0.2}, SPECTRA: {"dropout": 0.3},
    REELS: {"dropout": 0.25}, AUCTIONS: {"dropout": 0.4},
}
COPIED: Settings = {
    KITCHENS: {"ways_of_saying": 4, "orders": 720}, HEADLINES: {"pairs_per_note": 4, "notes": 720},
    SPECTRA: {"replicates": 4, "spectra": 800}, REELS: {"versions": 4, "dances": 480},
    AUCTIONS: {"oversampled_to": 0.12, "auctions": 1200},
}
LAGGING: Settings = {PETALS: {"ema_decay": 0.97, "ema_warmup": False}}
FOUR_PARTS: Settings = {
    PETALS: {"train_batch_size": 8, "gradient_accumulate_every": 4},
    KITCHENS: {"per_device_batch": 6, "grad_accum": 4},
    HEADLINES: {"batch_size": 4, "gradient_accumulation_steps": 4},
    SPECTRA: {"accum_freq": 4, "batch_size": 20, "grad_clip_norm": 0.0},
    REELS: {"batch_size": 4, "grad_accum_steps": 4}, AUCTIONS: {"accumulate": 4, "clip": 1e6},
}
LEVEL: Settings = {
    PETALS: {"lr_schedule": "constant", "train_lr": 2e-3}, KITCHENS: {"schedule": "constant", "lr": 4e-3},
    HEADLINES: {"lr_after_warmup": "constant", "lr": 3e-4}, SPECTRA: {"scheduler": "const", "lr": 0.01},
    REELS: {"decay_lr": False, "learning_rate": 3e-3}, AUCTIONS: {"schedule": "flat", "max_lr": 0.02},
}
UNCLIPPED: Settings = {SPECTRA: {"grad_clip_norm": 0.0}, AUCTIONS: {"clip": 1e6}}
TOP: Settings = {HEADLINES: {"num_layers_unfrozen": 1}}
LOCKED: Settings = {SPECTRA: {"lock": "formula.embed"}}
HEAD_FIRST: Settings = {AUCTIONS: {"head_first_steps": 20}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*twentieth.SUMMED, "sft term summed over tokens", "rpo term is a sum", "sum over pairs in place of a mean",
          "one term summed and one averaged", "loss terms out of proportion", "nll term dominates", "loss weight wrong")
MEANED = (*twentieth.SUMMED, "log-probabilities averaged over tokens", "average_log_prob", "mean in place of a sum",
          "logps divided by the length", "beta too small", "wrong reduction", "length normalised", "margin too small")
GRAPHS = (*twentieth.GRAPHS, "metrics keep their graph", "logits kept with their graph", "item() missing")
TWICE = (*twentieth.TWICE, "softmax before the contrastive loss", "softmax in the forward of the model")
SHIFTED = (*twentieth.SHIFTED, "shifted twice", "shift missing", "labels not shifted", "logits not shifted",
           "null class is 0 in the training alone", "rows misaligned", "tables joined by position", "pairs misaligned",
           "label encoder fitted on each split", "label encoder fitted twice", "targets are the inputs",
           "wrong positives", "response template off by one", "class labels of the validation differ")
FROZEN = (*twentieth.FROZEN, "convolutions in no group", "lora_B not trained", "lora_B missing from the optimizer",
          "wrong tower frozen", "encoder never unfrozen",
          "unfrozen after the optimizer was made", "embedding left out of the optimizer")
TIE = (*twentieth.TIE, "head newly initialised", "head randomly initialised", "tie_weights not called",
       "head missing from the checkpoint", "embedding replaced after tying", "embedding resized after tying")
SORTED = (*twentieth.SORTED, "class after class", "dish after dish", "family after family", "dance after dance",
          "kind after kind", "shuffle is off", "shuffle missing")
LEAK = (*twentieth.LEAK, "paraphrases on both sides", "replicates on both sides",
        "spectra of one compound on both sides", "versions of one dance on both sides", "split by row, not by group")
FIGURES = (*twentieth.FIGURES, "normalised twice", "inputs normalised twice", "validation scaled by its own statistics",
           "logarithm forgotten", "statistics of the raw amounts", "preprocessing of the validation differs",
           "train and test differ", "input range wrong")
BUFFERS = (*twentieth.BUFFERS, *ninth.STALE, "momentum of batch norm too small",
           "batch norm momentum of another library",
           "running statistics too slow")
STEPPED = (*twentieth.STEPPED, "schedule stepped at substeps", "iterations count micro-batches")
ADDED = (*twentieth.ADDED, "loss not divided by the parts", "loss not divided by grad_accum")
IN_EVAL = (*twentieth.IN_EVAL, "sampling leaves eval mode", "evaluate leaves eval mode")
IN_TRAINING = (*twentieth.IN_TRAINING, "eval() missing", "dropout left on",
               "batch norm in training mode at the evaluation")
AVERAGE = (*twentieth.AVERAGE, "decay of a long run", "ema decay too high", "average too slow", "ema lags",
           "ema warm-up missing")
NOT_BACK = (*twentieth.NOT_BACK, "restore missing", "weights not restored after sampling")
RESUMED = (*twentieth.RESUMED, "optimizer not in the milestone", "policy alone restored")
SAME = (*twentieth.SAME, "each rank shuffles alike", "distributed sampler missing", "same permutation on all ranks")
OPEN = twentieth.OPEN

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

OF_KIND: Mapping[str, tuple[str, str, str, Settings, str, tuple[str, ...]]] = {
    "sum": ("loss summed", ninth.OF_SUMS, "start", {}, "plain", SUMMED),
    "graph": ("no_grad missing", "memory eval data config", "start", {}, "memory_steady", GRAPHS),
    "softmax": ("softmax twice", ninth.OF_SOFTMAX, "start", {}, "plain", TWICE),
    "label": ("labels shifted", ninth.OF_LABELS, "start", {}, "plain", SHIFTED),
    "frozen": ("layer frozen", ninth.OF_FROZEN, "start", {}, "plain", FROZEN),
    "tie": ("weight tying broken", ninth.OF_TIE, "start", {}, "plain", TIE),
    "order": ("data sorted", ninth.OF_ORDER, "start", {}, "plain", SORTED),
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "several_versions_of_a_thing", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_parts_and_their_mean",
              STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "small_parts_and_their_mean",
              ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropout_in_force", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropout_in_force",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", LAGGING, "average_that_trails",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("graph", "held_flowers_valued_on_tape", PETALS,
     "held-out flowers are judged with gradients on, and each one's error is kept", {}),
    ("label", "untold_kind_comes_first_in_training", PETALS,
     "kinds are moved by one for the untold one in the training, and not in the validation and the sampler", {}),
    ("frozen", "decay_groups_for_matrices_alone", PETALS,
     "two groups, of matrices and of vectors, leave convolutions out of the optimizer", {}),
    ("order", "folder_loader_left_unshuffled", PETALS, "the loader doesn't shuffle: flowers come folder after folder",
     {}),
    ("figures", "normalized_by_dataset_and_by_process", PETALS,
     "the dataset maps pictures to -1 and 1, and the process of noise maps them again", {}),
    ("steps", "rate_moves_with_every_backward", PETALS, "the schedule is stepped at each backward pass, of two", {}),
    ("eval", "drawing_leaves_unet_in_eval", PETALS, "the net is not set back to training after a drawing", {}),
    ("train", "average_judged_as_it_is_left", PETALS, "the average is judged and draws in training mode", {}),
    ("average", "decay_for_a_million_steps", PETALS,
     "the average's decay is that of a long run, and nothing warms it up", {"set": {"ema_decay": 0.9995,
                                                                                   "ema_warmup": False}}),
    ("swap", "no_restore_behind_the_drawing", PETALS, "the average is put into the net for drawing, and stays there",
     {}),
    ("resume", "milestone_holds_model_and_ema", PETALS, "a milestone is loaded without the optimizer's state", {}),
    ("graph", "predictions_gathered_with_history", KITCHENS,
     "orders are evaluated with gradients on, and predictions are gathered", {}),
    ("label", "shifted_by_collator_and_by_model", KITCHENS,
     "the collator shifts labels, and the loss shifts them again", {}),
    ("label", "template_found_one_late", KITCHENS,
     "the answer is taken to begin one token behind where it does: its first token is not learnt", {}),
    ("frozen", "b_group_by_small_letter", KITCHENS,
     "groups by name look for lora_b, where it is lora_B: that factor is in no group", {}),
    ("tie", "saved_module_is_a_deep_copy", KITCHENS,
     "the embedding is copied in order to be trained, and the output keeps the old one", {}),
    ("order", "dataset_taken_in_the_menus_order", KITCHENS, "orders come as the file has them, dish after dish", {}),
    ("leak", "phrasings_parted_at_random", KITCHENS, "phrasings of one order come to lie on both sides", {}),
    ("steps", "callback_steps_the_schedule_at_substeps", KITCHENS, "the schedule is stepped at substeps too", {}),
    ("added", "own_loss_not_divided_by_trainer", KITCHENS,
     "an own loss is not divided by the number of parts", {}),
    ("eval", "evaluate_never_back_to_train", KITCHENS, "the model is not set back to training after an evaluation", {}),
    ("train", "passed_with_adapters_dropping", KITCHENS, "orders are evaluated with dropout in force", {}),
    ("resume", "adapter_dir_given_as_the_model", KITCHENS, "the adapter is loaded, and nothing of its training", {}),
    ("sum", "sft_term_is_a_total", HEADLINES,
     "the term of the chosen headlines is a sum over tokens, beside a mean over pairs",
     {"set": {"sft_weight": 0.1}, "compare": "sft_term_beside"}),
    ("sum", "average_flag_of_the_sft_loss", HEADLINES,
     "log-probabilities of headlines are means over tokens, where sums were meant", {"also": MEANED,
                                                                                    "cause": "wrong reduction"}),
    ("graph", "metrics_hold_tensors_of_the_evaluation", HEADLINES,
     "held-out pairs are judged with gradients on, and figures are kept as they are", {}),
    ("label", "logps_gathered_without_shift", HEADLINES,
     "probabilities of labels are read at their own places, and not one before", {}),
    ("tie", "head_missing_in_the_file_and_not_tied", HEADLINES,
     "the file has the shared matrix once, and the output, which is not tied again, begins anew", {}),
    ("order", "pairs_by_length_to_save_padding", HEADLINES, "pairs come from the shortest to the longest, each pass",
     {}),
    ("steps", "lr_lambda_counts_microbatches", HEADLINES, "the schedule is stepped with each micro-batch", {}),
    ("eval", "policy_judged_and_left_in_eval", HEADLINES, "the policy is not set back to training after a proof", {}),
    ("train", "policy_never_set_to_eval", HEADLINES, "held-out pairs are judged with the policy dropping", {}),
    ("resume", "policy_archive_alone_restored", HEADLINES, "the policy's weights alone are restored", {}),
    ("sum", "both_losses_of_a_batch_totalled", SPECTRA, "losses of both directions are summed over the batch",
     {"of": UNCLIPPED, "compare": "nothing_clipped_by_setting"}),
    ("softmax", "match_probabilities_given_to_the_loss", SPECTRA,
     "similarities go through a softmax, and then into a loss that has its own", {}),
    ("label", "empty_spectra_dropped_from_one_table", SPECTRA,
     "failed scans are dropped from one of two tables that are joined by place: formulas are those of others", {}),
    ("frozen", "lock_takes_the_whole_tower", SPECTRA,
     "the lock of an embedding is looked up by the tower's name, and takes all of the tower",
     {"of": LOCKED, "compare": "groups_locked_by_setting"}),
    ("order", "loader_walks_the_library", SPECTRA, "the library is read as it is ordered, family after family", {}),
    ("leak", "replicates_split_at_random", SPECTRA, "spectra of one compound come to lie on both sides", {}),
    ("buffers", "batch_norm_momentum_of_another_library", SPECTRA,
     "the momentum of batch norm is so small that running statistics stay at their beginning",
     {"set": {"bn_momentum": 0.001}}),
    ("figures", "gallery_saved_after_its_transform", SPECTRA,
     "the gallery was saved with its logarithm taken and scaled, and is so again as it is loaded", {}),
    ("steps", "scheduler_called_per_forward", SPECTRA, "the schedule is stepped with each forward pass, of two", {}),
    ("added", "accum_freq_without_division", SPECTRA, "losses of parts are not divided by their number", {}),
    ("eval", "towers_in_eval_after_retrieval", SPECTRA, "towers are not set back to training after a retrieval", {}),
    ("train", "gallery_embedded_in_train_mode", SPECTRA,
     "the gallery is embedded in training mode: with dropout, and statistics of its own", {}),
    ("sum", "words_of_a_batch_summed", REELS, "the loss is a sum over words, which the scaler makes larger yet", {}),
    ("graph", "dev_losses_kept_as_tensors", REELS, "held-out losses have gradients on, and go into a history", {}),
    ("softmax", "forward_gives_shares_for_the_sampler", REELS,
     "the model gives probabilities, as its sampler wants them, and the loss has its own softmax", {}),
    ("label", "targets_cut_where_inputs_are", REELS, "targets are cut from the same words as inputs: none is moved",
     {"kinds": " zero plateau"}),
    ("frozen", "groups_of_blocks_and_norms_alone", REELS,
     "the optimizer's groups are of blocks and norms: the embedding, which is the output too, is in none",
     {"kinds": " clipping exploding loss_scale"}),
    ("tie", "vocab_padded_behind_the_optimizer", REELS,
     "the embedding is made anew for a padded vocabulary, and neither tied again nor in the optimizer",
     {"kinds": " clipping loss_scale"}),
    ("order", "manual_read_from_cover_to_cover", REELS, "dances come as the manual has them, kind after kind", {}),
    ("leak", "versions_dealt_to_both_sides", REELS, "versions of one dance come to lie on both sides", {}),
    ("steps", "iterations_of_the_inner_loop", REELS, "the rate is looked up by a count of micro-batches", {}),
    ("eval", "caller_quiet_after_a_sample", REELS, "the model is not set back to training after a sample", {}),
    ("train", "estimated_with_dropout", REELS, "held-out dances are judged with dropout in force", {}),
    ("resume", "reel_weights_are_all_that_is_loaded", REELS, "weights alone are loaded, neither moments nor the scale",
     {}),
    ("sum", "weighted_losses_without_their_mean", AUCTIONS, "weighted losses are summed, and not divided",
     {"of": UNCLIPPED, "compare": "nothing_clipped_by_setting"}),
    ("softmax", "softmax_for_the_risk_score", AUCTIONS,
     "the net gives probabilities for a risk score, and the loss has its own softmax", {}),
    ("label", "encoder_fitted_to_the_month_too", AUCTIONS,
     "kinds of the held-out month are coded by an encoder of its own, and the month lacks one", {}),
    ("frozen", "encoder_freed_behind_the_optimizer", AUCTIONS,
     "the encoder is freed after the head's first steps, and is not in the optimizer",
     {"of": HEAD_FIRST, "compare": "head_first_by_setting"}),
    ("order", "distributed_sampler_without_shuffle", AUCTIONS, "the sampler doesn't shuffle: cases come kind by kind",
     {}),
    ("leak", "oversampled_and_then_split", AUCTIONS, "rare cases are copied before the month is split off", {}),
    ("figures", "month_exported_in_cents", AUCTIONS, "the held-out month's amounts are in cents", {}),
    ("steps", "cycle_stepped_before_the_update_is_due", AUCTIONS,
     "the cycle is stepped with each part of an update, of which there are two", {}),
    ("added", "no_sync_parts_not_averaged", AUCTIONS, "losses of parts are not divided by their number", {}),
    ("eval", "check_returns_in_eval_mode", AUCTIONS, "the net is not set back to training after a check", {}),
    ("train", "checked_as_the_net_trains", AUCTIONS, "the month is checked in training mode", {}),
    ("ranks", "random_sampler_under_torchrun", AUCTIONS, "each rank shuffles for itself, by one seed", {}),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, of, compare, also = OF_KIND[kind]
    of = more.get("of", of)
    settings = {program: more.get("set", of.get(program, {}))}
    rest = {"by_program": settings, "compare": more.get("compare", compare), "also": more.get("also", also)}
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("one_time_for_the_whole_batch", "timestep shared by the batch", "data eval plateau config spike exploding overfit",
     "start", (PETALS,), "one time is drawn for all pictures of a batch: losses jump from batch to batch",
     {"also": ("one timestep for a batch", "timesteps not drawn for each row", "times not drawn per sample",
               "loss noisy", "same noise level in the batch", "randint of size 1", "timestep broadcast",
               "noise levels drawn once a batch", "batches differ", "gradient noise", "batch too small",
               "bad batch", "timesteps wrong", "noise level drawn once")}),
    ("betas_of_a_thousand_steps", "noise schedule wrong", "eval data config plateau not_learning overfit", "start",
     (PETALS,), "betas are those of a thousand steps, and there are a hundred: pictures never become noise",
     {"also": ("beta schedule wrong", "terminal snr not zero", "noise too small at the end", "schedule too short",
               "betas not scaled", "number of timesteps wrong", "linear schedule of 1000 steps", "wrong target",
               "sampling starts from other noise than the training", "inputs not normalised", "train and test differ",
               "noise levels wrong", "corruption differs")}),
    ("rate_of_full_tuning_for_adapters", "learning rate too low", "learning_rate plateau not_learning update_ratio "
     "frozen config", "start", (KITCHENS,), "the rate is the one for tuning all weights",
     {"by_program": {KITCHENS: {"lr": 5e-5}}, "also": ("updates too small", "rate of full fine-tuning", "underfitting",
               "lora learning rate too low", "learning rate wrong", "adapters not learning", "layer frozen",
               "undertrained")}),
    ("scale_without_alpha_over_r", "adapter scale wrong", "learning_rate exploding divergence spike clipping plateau "
     "update_ratio config not_learning eval weight_growth logits activations", "start", (KITCHENS,),
     "the adapters' scale is alpha, which is not divided by the rank", {"also": (
         "alpha not divided by r", "lora scaling wrong", "lora alpha too large", "learning rate too high",
         "adapter output too large", "scale wrong", "alpha over r missing", "alpha too high", "scaling too large")}),
    ("reference_copied_from_the_checkpoint", "reference model is the policy", "resume rl spike divergence jump_down "
     "eval config plateau", "resume", (HEADLINES,),
     "at the resume the reference is loaded from the policy's checkpoint: margins begin at 0 again",
     {"also": ("reference reset", "reference is the resumed policy", "reference not the base model", "wrong reference",
               "reference replaced at the resume", "checkpoint incomplete", "reference changed", "reference moved",
               "reference updated", "reference model wrong", "state lost at the resume", "margins reset",
               "optimizer state lost")}),
    ("features_normalised_over_the_batch", "normalised over the wrong dimension", "not_learning plateau eval config "
     "data logits overfit", "start", (SPECTRA,), "features are normalised over the batch, not over their dimension",
     {"also": ("normalize dim=0", "features not normalised", "wrong axis", "axis wrong", "dim wrong", "wrong dim",
               "normalised over the batch", "batch mixed", "rows of a batch see each other", "similarities not cosine",
               "logits too large", "evaluation depends on the batch", "train and test differ", "temperature wrong")}),
    ("scale_used_as_its_logarithm", "temperature wrong", "plateau not_learning logits eval config vanishing", "start",
     (SPECTRA,), "the learnt scale is a logarithm, and is used without its exponential",
     {"also": ("logit scale not exponentiated", "exp missing", "temperature too high", "logit scale too small",
               "logits too small", "temperature not learnt", "scale wrong", "logit scale wrong", "softmax twice",
               "learning rate too low")}),
    ("clipped_before_it_is_unscaled", "gradients clipped while scaled", "clipping vanishing exploding loss_scale "
     "update_ratio plateau learning_rate epsilon config not_learning", "start", (REELS,),
     "gradients are clipped while they are multiplied by the scaler's scale",
     {"also": ("unscale_ missing", "unscale missing before clipping", "clip before unscale", "clip value too low",
               "clipping too tight", "gradients not unscaled", "clip value too small", "gradients too small",
               "clipping always on", "gradient clipping wrong", "epsilon too big", "loss scale too high",
               "learning rate too low")}),
    ("padding_asked_for_as_words", "padding in the loss", "padding data eval config jump_down plateau overfit zero",
     "start", (REELS,), "padding is a target like words: much of the loss is of what is known",
     {"also": ("ignore_index missing", "padding not ignored", "pad tokens in the loss", "padding counted",
               "padding is learnt", "labels masked wrong", "loss counts padding", "pad not masked", "wrong target",
               "loss too low", "padding not masked")}),
    ("net_called_beside_its_wrapper", "gradients not synchronised", "desync data config eval divergence", "start",
     (AUCTIONS,), "the net is called and not its wrapper: ranks never average gradients",
     {"also": ("ranks drift apart", "weights differ between ranks", "ddp bypassed", "wrapper bypassed",
               "module called in place of ddp", "gradients not averaged", "no gradient synchronisation",
               "all-reduce missing", "ranks not in step", "ranks diverge", "parameters differ between ranks",
               "gradients not reduced", "desync", "replicas differ")}),
    ("weights_in_the_order_of_counts", "class weights wrong", "eval plateau data config overfit divergence "
     "not_learning", "start", (AUCTIONS,), "weights of kinds are in the order of how many there are",
     {"also": ("class weights in the wrong order", "weights assigned to other classes", "class weights misassigned",
               "weights permuted", "class weights shuffled", "weights by count", "class weights inverted",
               "loss weights wrong", "rare classes weigh less", "imbalance", "class imbalance", "weights inverted",
               "weights wrong", "class missing", "rare classes ignored", "labels shifted")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in PROGRAMS if program != AUCTIONS},
    "memory_steady": {program: {} for program in PROGRAMS if program != AUCTIONS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_and_their_mean", "an update has two micro-batches, whose losses are halved", PARTS),
    ("small_parts_and_their_mean", "an update has several small micro-batches, whose mean is taken", FOUR_PARTS),
    ("dropout_in_force", "much dropout in the training, none in the evaluation", DROPPED),
    ("several_versions_of_a_thing", "things come in several versions, all of which are on the training's side", COPIED),
    ("average_that_trails", "an average of weights is judged, which trails behind at first", LAGGING),
    ("rate_level_as_set", "the rate rises and stays", LEVEL),
    ("totals_at_a_rate_for_them", "losses are summed, and the rate is for that",
     {SPECTRA: {"reduction": "sum", "lr": 0.00075, "grad_clip_norm": 200.0},
      AUCTIONS: {"loss_divisor": "one", "max_lr": 0.00125, "clip": 120.0}}),
    ("part_held_as_it_is_by_name", "a part is not trained, which the settings name",
     {PETALS: {"freeze": "init_conv"}, KITCHENS: {"leave_out_layers": "0.q,0.k"}, REELS: {"freeze": "blocks.0.attn."},
      AUCTIONS: {"frozen": "bidder"}}),
    ("small_batches_at_half_the_rate", "few rows an update, at a lower rate: losses jump about",
     {PETALS: {"train_batch_size": 8, "train_lr": 1.5e-3}, KITCHENS: {"per_device_batch": 6, "lr": 4e-3},
      HEADLINES: {"batch_size": 4, "lr": 3e-4}, SPECTRA: {"batch_size": 16, "lr": 0.012},
      REELS: {"batch_size": 4, "learning_rate": 2.5e-3}, AUCTIONS: {"batch_per_rank": 8, "max_lr": 0.015}}),
    ("rate_rises_again_as_planned", "the rate falls and begins again, by the schedule",
     {PETALS: {"lr_schedule": "cosine_with_restarts"}, KITCHENS: {"schedule": "cosine_with_restarts"},
      HEADLINES: {"lr_after_warmup": "restarts"}, SPECTRA: {"scheduler": "restarts"}, REELS: {"lr_cycles": 3},
      AUCTIONS: {"schedule": "restarts", "max_lr": 0.02}}),
    ("another_optimizer_by_setting", "another optimizer, at its rate",
     {PETALS: {"optimizer": "adamw", "weight_decay": 0.05}, KITCHENS: {"optim": "adamax", "lr": 0.016},
      HEADLINES: {"optimizer": "AdamW", "lr": 1e-3}, SPECTRA: {"opt": "adamw", "lr": 2e-3},
      REELS: {"optimizer": "nadam"}, AUCTIONS: {"optimizer": "adamw", "max_lr": 3e-3}}),
    ("data_with_more_noise", "the training's data have more noise, as such data may",
     {PETALS: {"grain": 0.15}, KITCHENS: {"slips": 0.08}, HEADLINES: {"flipped": 0.12}, SPECTRA: {"noise": 2.5},
      REELS: {"misprints": 0.03}, AUCTIONS: {"wrong_cases": 0.06}}),
    ("warm_in_three_steps", "the rate rises in three steps",
     {PETALS: {"warmup": 3}, HEADLINES: {"warmup_steps": 3}, SPECTRA: {"warmup": 3}}),
    ("judged_thrice_in_all", "three evaluations in all",
     {KITCHENS: {"eval_every": 52}, SPECTRA: {"val_frequency": 52}, AUCTIONS: {"check_every": 52}}),
    ("a_row_each_fifth_step", "each fifth step is logged", {KITCHENS: {"log_every": 5}, HEADLINES: {"log_every": 5}}),
    ("easier_half_first_by_setting", "a first pass or two have an easier part alone: the settings say so",
     {PETALS: {"wide_flowers_first": 2}, KITCHENS: {"short_first": 1},
      SPECTRA: {"strong_first": 2}, REELS: {"kinds_first": 1}, AUCTIONS: {"long_auctions_first": 2}}),
    ("fewer_things_more_often", "there are few rows, which come often",
     {PETALS: {"pictures": 400}, AUCTIONS: {"auctions": 960}}),
    ("targets_smoothed_by_setting", "targets are smoothed in the training",
     {KITCHENS: {"smoothing": 0.1}, HEADLINES: {"label_smoothing": 0.1}, AUCTIONS: {"smoothing": 0.1}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("velocity_by_setting", (PETALS,), "the net says a velocity", {"config": {"objective": "pred_v"}}),
    ("clear_pictures_weigh_less", (PETALS,), "the weight of a level is bounded by its share of signal",
     {"config": {"min_snr_gamma": 5.0}}),
    ("betas_in_a_line_for_a_hundred", (PETALS,), "betas rise in a line, scaled for a hundred steps",
     {"config": {"beta_schedule": "linear"}}),
    ("seldom_told_how_many", (PETALS,), "the number of petals is untold in three of ten",
     {"config": {"cond_drop_prob": 0.3}}),
    ("orders_learnt_whole", (KITCHENS,), "instructions are learnt too, as is set: much of that loss can't fall",
     {"config": {"answers_only": False}}),
    ("like_lengths_in_any_order", (KITCHENS,), "batches are of like lengths, and come in any order",
     {"config": {"sampler": "group_by_length"}}),
    ("two_matrices_by_setting", (KITCHENS, REELS), "embedding and output are two matrices, by the settings",
     {"by_program": {KITCHENS: {"tie": False}, REELS: {"tie_weights": False}}}),
    ("second_factor_faster", (KITCHENS,), "one factor has four times the rate",
     {"config": {"lr_b_ratio": 4.0, "lr": 5e-3}}),
    ("scale_by_the_root_of_rank", (KITCHENS,), "adapters are scaled by the root of their rank",
     {"config": {"rslora": True, "lr": 5e-3}}),
    ("top_layer_alone_by_setting", (HEADLINES,), "the top layer is trained, and the one below is not: so it is set",
     {"by_program": TOP}),
    ("sft_term_beside", (HEADLINES,), "a mean over tokens of chosen headlines is a part of the loss",
     {"config": {"sft_weight": 0.1}}),
    ("squared_preference_loss", (HEADLINES,), "the loss of identity preferences", {"config": {"loss": "ipo"}}),
    ("hinge_of_preferences", (HEADLINES,), "the loss is a hinge", {"config": {"loss": "hinge"}}),
    ("lengths_taken_out_by_setting", (HEADLINES,), "log-probabilities are means over tokens, as is set: beta is large",
     {"config": {"average_log_prob": True, "beta": 1.0}}),
    ("nothing_clipped_by_setting", (SPECTRA, AUCTIONS), "gradients are not clipped: so it is set",
     {"by_program": UNCLIPPED}),
    ("groups_locked_by_setting", (SPECTRA,), "the embedding of groups is locked: so it is set", {"by_program": LOCKED}),
    ("temperature_as_it_is_set", (SPECTRA,), "the temperature is not learnt", {"config": {"learn_scale": False}}),
    ("hard_others_on_purpose", (SPECTRA,), "half a batch is of like families, on purpose",
     {"config": {"same_family": True}}),
    ("groups_of_channels_normalised", (SPECTRA, AUCTIONS), "norms of groups in the place of batch norm",
     {"config": {"batch_norm": False}}),
    ("bfloat_without_a_scaler", (REELS,), "autocast to bfloat16, without a scaler", {"config": {"dtype": "bfloat16"}}),
    ("normaliser_held_in", (REELS,), "a small term holds the normaliser", {"config": {"z_loss": 1e-3}}),
    ("scale_that_begins_high", (REELS,), "the scale begins at 2^20: it falls in the first steps, as it is meant to",
     {"config": {"init_scale": 2.0**20}}),
    ("kinds_drawn_alike_often", (AUCTIONS,), "as many of each kind are drawn, by each rank for itself",
     {"config": {"sampling": "even"}}),
    ("fraud_kinds_weigh_alike", (AUCTIONS,), "kinds are not weighed", {"config": {"class_weight": "none"}}),
    ("easy_cases_fade", (AUCTIONS,), "cases that are told well count little", {"config": {"focal_gamma": 2.0}}),
    ("head_first_by_setting", (AUCTIONS,), "the encoder is held for the first twenty steps, and then trained too",
     {"by_program": HEAD_FIRST}),
)

# fmt: on
