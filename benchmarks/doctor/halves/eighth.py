"""The eighth half of the bench that was opened: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each family that the bench was blind to at first: a vision transformer, diffusion, contrastive, adapters
on a base of few bits, preferences, a classifier of rare kinds, pure bfloat16, float16 with a scaler, `fully_shard`; in
the manners of nine other people. Most faults are of the fifteen kinds that were named then, each as the line that a
person gets wrong in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them
had read no rule, knew the kinds of findings and what the guides show, and did not look at what the doctor says. It was
put away until 26 November 2026, and scored once: 85% of its faults were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOSAICS, OUTLINES, TUNES, PHRASES = "mosaics", "outlines", "tunes", "phrases"
RECIPES, TICKETS, LEDGERS, HYMNS, SHOALS = "recipes", "tickets", "ledgers", "hymns", "shoals"
PROGRAMS = (MOSAICS, OUTLINES, TUNES, PHRASES, RECIPES, TICKETS, LEDGERS, HYMNS, SHOALS)
STEPS = {MOSAICS: 200, OUTLINES: 200, TUNES: 200, PHRASES: 180, RECIPES: 200, TICKETS: 220, LEDGERS: 180, HYMNS: 180,
         SHOALS: 200}  # fmt: skip
REPORTED = frozenset({
    "heads_by_view", "targets_not_in_order", "self_among_others", "temperature_multiplied", "adapters_zero",
    "reference_drops_out", "rejected_first", "weights_reversed", "padding_alone_seen", "bf16_rounds_away",
    "clipped_while_scaled", "epoch_never_set", "norm_of_own_shard",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

Row = tuple[str, str, str, str, tuple[str, ...], str, dict[str, Any]]

# fmt: off

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "loss_summed": {OUTLINES: {}, TUNES: {}, TICKETS: {}},
    "divided_by_rows": {LEDGERS: {}},
    "mean_over_all_places": {PHRASES: {}},
    "logps_averaged": {RECIPES: {}},
    "divided_by_ranks": {SHOALS: {}},
    "no_grad_missing": {MOSAICS: {}, TUNES: {}, TICKETS: {}, HYMNS: {}},
    "double_softmax": {MOSAICS: {}, TUNES: {}, TICKETS: {}, LEDGERS: {}, HYMNS: {}},
    "labels_off_by_one": {MOSAICS: {}, PHRASES: {}, LEDGERS: {}},
    "one_label_behind": {TICKETS: {}},
    "wrong_group_frozen": {MOSAICS: {}, PHRASES: {}, RECIPES: {}, TICKETS: {}, SHOALS: {}},
    "weight_tying_broken": {RECIPES: {}, LEDGERS: {}, HYMNS: {}},
    "data_by_length": {PHRASES: {}, RECIPES: {}, TICKETS: {}, HYMNS: {}},
    "validation_leak": {RECIPES: {"pairs": 320}},
    "copied_before_split": {TICKETS: {"oversample": 6}},
    "statistics_of_others": {MOSAICS: {}, SHOALS: {}},
    "stale_statistics": {TUNES: {}},
    "figures_never_moved": {TICKETS: {}},
    "scheduler_per_micro_batch": {MOSAICS: {"accumulation": 2}, OUTLINES: {"accumulation": 2},
                                  RECIPES: {"accumulation": 2, "schedule": "linear"}, LEDGERS: {"accumulation": 2}},
    "accumulation_undivided": {OUTLINES: {"accumulation": 2}, PHRASES: {"accumulation": 2},
                               LEDGERS: {"accumulation": 2}, HYMNS: {"accumulation": 2}, SHOALS: {"accumulation": 2}},
    "evaluation_mode_left_on": {MOSAICS: {"dropout": 0.4}, TUNES: {"dropout": 0.3}, TICKETS: {"dropout": 0.3},
                                SHOALS: {"dropout": 0.3}},
    "training_mode_in_evaluation": {TUNES: {"dropout": 0.3}},
    "dropped_always": {PHRASES: {"lora_dropout": 0.3}, LEDGERS: {"dropout": 0.2}},
    "ema_not_updated": {OUTLINES: {}},
    "average_too_slow": {MOSAICS: {}},
    "optimizer_state_lost": {OUTLINES: {}, TICKETS: {}, LEDGERS: {}},
    "weights_alone_kept": {RECIPES: {}, HYMNS: {}},
    "same_seed_on_ranks": {SHOALS: {}},
    # reported
    "self_among_others": {TUNES: {}},
    "temperature_multiplied": {TUNES: {}},
    "adapters_zero": {PHRASES: {}},
    "reference_drops_out": {RECIPES: {"dropout": 0.2}},
    "rejected_first": {RECIPES: {}},
    "bf16_rounds_away": {LEDGERS: {}},
    "clipped_while_scaled": {HYMNS: {}},
    "epoch_never_set": {SHOALS: {}},
    "norm_of_own_shard": {SHOALS: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    ("divided_by_longest", "loss summed", "eval exploding clipping divergence learning_rate config logging spike",
     "start", (HYMNS,), "the loss is summed over all chords of a batch, and divided by the length of its longest hymn",
     {"also": ("wrong reduction", "loss not divided by its targets", "gradient accumulation scaled wrongly",
               "loss divided by the longest row", "loss not averaged over tokens", "units differ", "sum over tokens",
               "loss not averaged", "clip value too low", "loss scaled", "loss summed over tokens",
               "loss divided by the batch size", "loss divided by rows", "loss not divided", "evaluation loss averaged",
               "sum instead of a mean", "reduction is a sum", "loss summed over rows")}),
    ("never_trains_again", "evaluation mode left on", "eval jump_down overfit config data logging", "start",
     (OUTLINES,), "the model is put into evaluation mode to look at samples, after the first step, and stays so",
     {"config": {"dropout": 0.3}, "compare": "dropout",
      "also": ("training in evaluation mode", "train() missing", "dropout left off", "dropout is off in the training",
               "dropout off", "model.train() missing", "eval() in the training", "model not set back to training mode",
               "evaluation mode in the training", "dropout not in force", "dropout never on")}),
    ("copied_in_evaluation", "evaluation mode left on", "eval jump_down overfit config data logging rl", "start",
     (RECIPES,), "the policy is put into evaluation mode before its reference is copied, and stays so from the start",
     {"config": {"dropout": 0.2}, "compare": "dropout",
      "also": ("training in evaluation mode", "train() missing", "dropout left off", "dropout is off in the training",
               "dropout off", "model.train() missing", "eval() in the training", "model not set back to training mode",
               "evaluation mode in the training", "dropout not in force", "dropout never on")}),
    ("evaluated_as_trained", "evaluation in training mode", "eval data config logging overfit", "start", (HYMNS,),
     "`eval` is never called before an evaluation: dropout stays on there",
     {"config": {"dropout": 0.3}, "compare": "dropout",
      "also": ("dropout left on", "evaluation mode left on", "dropout in the evaluation", "training mode in evaluation",
               "dropout active in evaluation", "eval() missing", "dropout is never off", "model.eval() missing",
               "dropout on in evaluation", "evaluation mode missing", "model evaluated in training mode",
               "randomness in the evaluation")}),
    ("averaged_without_buffers", "batch norm's statistics are stale", "eval overfit divergence data config frozen",
     "start", (TUNES,), "the slow copy that is evaluated follows parameters alone: its batch norm has 0 and 1 for ever",
     {"also": ("averaged weights not updated", "running statistics not updated", "buffers never updated",
               "normalisation statistics are stale", "batch normalisation", "evaluation mode left on",
               "buffers not copied", "running statistics of the average", "averaged weights are others",
               "running statistics never moved", "statistics are stale", "batch norm never saw data",
               "averaged weights without statistics", "buffers not averaged", "averaged weights are wrong",
               "running mean never moved", "evaluated weights are not the trained ones")}),
    ("tied_by_copy", "weight tying broken", "config frozen update_ratio weight_growth eval logging", "start",
     (LEDGERS,), "the output's matrix begins with the embedding's numbers, and is another one: both are trained",
     {"also": ("optimizer holds other parameters", "weights not tied", "embedding and output not tied", "tying broken",
               "weights copied instead of tied", "output matrix is a copy", "embedding copied", "tied weights diverge",
               "weights tied by value", "tie lost", "weights tied by copy", "output not tied")}),
    # reported
    ("heads_by_view", "wrong dimension", "plateau not_learning attention eval config activations data", "start",
     (MOSAICS,), "heads are cut out by `reshape` where a transposition belongs before: a head is of other patches",
     {"also": ("axes exchanged", "view instead of transpose", "reshape instead of transpose", "heads mixed up",
               "attention over the wrong dimension", "reshape mixes dimensions", "heads and places exchanged",
               "attention over mixed places", "transposition missing", "heads not transposed", "wrong reshape",
               "batch and time exchanged", "heads and tokens exchanged", "dimensions mixed", "heads mixed")}),
    ("targets_not_in_order", "labels shuffled", "not_learning plateau data eval config", "start", (OUTLINES,),
     "what should be said is put in another order than the noisy outlines are",
     {"also": ("labels do not match the inputs", "targets shuffled", "targets of other rows", "labels of other rows",
               "rows joined wrongly", "labels random", "targets do not match the inputs", "labels shifted",
               "noise of other rows", "train and test differ", "evaluation data differ", "targets are noise")}),
    ("weights_reversed", "class weights reversed", "plateau not_learning eval config data divergence", "start",
     (TICKETS,), "classes weigh what their share is, where its inverse was meant: rare ones count for nothing",
     {"also": ("class weights wrong", "class weights inverted", "rare class ignored", "rare class missing",
               "class missing", "weights of classes inverted", "class imbalance", "loss weights wrong",
               "frequent classes weigh more", "rare classes weigh too little", "outputs collapsed", "loss weight wrong",
               "evaluation loss not weighted", "train and test differ", "evaluation data differ",
               "training loss weighted", "classes weigh differently", "one class alone")}),
    ("padding_alone_seen", "mask inverted", "plateau not_learning attention eval config padding data", "start",
     (TICKETS,), "the mask says what is a word, torch wants what is padding: words are hidden, padding is seen",
     {"also": ("attention mask inverted", "attention mask missing", "padding is read", "mask reversed", "mask missing",
               "padding seen", "words hidden", "padding not masked", "inputs do not reach the output",
               "attention mask wrong", "mask is the wrong way round", "mask has the wrong sense", "mask wrong",
               "attention on padding", "tokens masked", "padding attended", "inputs hidden", "wrong mask")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "accumulated": {**{program: {"accumulation": 2} for program in (MOSAICS, OUTLINES, PHRASES, LEDGERS, HYMNS,
                                                                    SHOALS)},
                    RECIPES: {"accumulation": 2, "schedule": "linear"}},
    "averaged": {MOSAICS: {"ema": 0.97}, OUTLINES: {"ema": 0.99}},
    "memory_steady": {MOSAICS: {}, TUNES: {}, TICKETS: {}, HYMNS: {}},
    "dropout": {MOSAICS: {"dropout": 0.4}, OUTLINES: {"dropout": 0.3}, TUNES: {"dropout": 0.3},
                RECIPES: {"dropout": 0.2}, TICKETS: {"dropout": 0.3}, HYMNS: {"dropout": 0.3},
                SHOALS: {"dropout": 0.3}},
    "dropped_while_trained": {PHRASES: {"lora_dropout": 0.3}, LEDGERS: {"dropout": 0.2}},
    "constant_rate": {OUTLINES: {}, TUNES: {}, PHRASES: {"schedule": "constant_with_warmup"}, HYMNS: {}, SHOALS: {}},
    "resume": {OUTLINES: {}, RECIPES: {}, TICKETS: {}, LEDGERS: {}, HYMNS: {}},
    "smoothed_kinds": {MOSAICS: {}, TICKETS: {}},
    "few_pairs": {TUNES: {}},
    "rank_of_one": {PHRASES: {}},
    "one_a_batch": {PHRASES: {"batch_size": 2}, LEDGERS: {"batch_size": 2}},
    "identity_loss": {RECIPES: {"loss_type": "identity"}},
    "cautious": {RECIPES: {"label_smoothing": 0.1}},
    "copied_after_split": {TICKETS: {"oversample": 6}},
    "rarer": {TICKETS: {}},
    "wsd": {LEDGERS: {}},
    "bf16_slow": {LEDGERS: {}},
    "scale_begins_high": {HYMNS: {}},
    "brain_floats": {SHOALS: {}},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    ("stem_as_drawn", (MOSAICS,), "the stem of convolutions stays as drawn, on purpose: so says the config",
     {"config": {"frozen_stem": True}}),
    ("figures_of_photographs", (MOSAICS,), "pictures are normalised by the figures of photographs, in both sets",
     {"config": {"normalisation": "photographs"}}),
    ("lies_as_it_lies", (MOSAICS,), "pictures come as they are, and each comes several times",
     {"config": {"augment": False, "pictures": 960}}),
    ("velocity_said", (OUTLINES,), "what should be said is a velocity: the loss ends higher", {"config": {"predict":
     "velocity"}}),
    ("outline_said", (OUTLINES,), "what should be said is the clean outline", {"config": {"predict": "outline"}}),
    ("weighed_by_noise", (OUTLINES,), "levels with little noise weigh up to five times, in the training alone",
     {"config": {"weighting": "snr"}}),
    ("slow_copy", (TUNES,), "the copy that is evaluated follows slowly, with its statistics",
     {"config": {"slow_decay": 0.96}}),
    ("recalibrated", (TUNES,), "before an evaluation the copy's statistics are taken anew, in training mode and "
     "without gradients", {"config": {"recalibrate": True}}),
    ("decoupled_pairs", (TUNES,), "what belongs together is left out below the line of the loss",
     {"config": {"decoupled": True}}),
    ("notes_as_drawn", (TUNES,), "the notes' embedding stays as drawn, on purpose: so says the config",
     {"config": {"frozen": "notes"}}),
    ("like_lengths_together", (PHRASES, RECIPES, TICKETS, HYMNS), "rows of like length are in one batch, batches come "
     "in any order", {"by_program": {PHRASES: {"group_by_length": True}, RECIPES: {"buckets": True},
                                     TICKETS: {"bucketed": True}, HYMNS: {"buckets": True}}}),
    ("weighed_by_phrases", (PHRASES,), "the loss is a mean over phrases, and within each over its tokens, on purpose",
     {"config": {"mean_of": "rows"}}),
    ("head_trained_too", (PHRASES,), "norms and the output are trained beside the adapters: so says the config",
     {"config": {"modules_to_save": ["norm", "lm_head"]}}),
    ("length_normalised", (RECIPES,), "log-probabilities are means over tokens on purpose, with a larger beta",
     {"config": {"loss_type": "length_normalised", "beta": 2.0}}),
    ("table_as_it_is", (RECIPES,), "the embedding, and with it the output, is not trained, on purpose",
     {"config": {"frozen": "table"}}),
    ("few_liked", (RECIPES,), "320 pairs, ten times over", {"config": {"pairs": 320}}),
    ("weighed_kinds", (TICKETS,), "rare kinds weigh more, by the root of how rare they are",
     {"config": {"class_weights": "root"}}),
    ("words_as_drawn", (TICKETS,), "the words' embedding is not trained, on purpose: so says the config",
     {"config": {"frozen_words": True}}),
    ("logarithms_given", (TICKETS,), "the loss is of logarithms of a softmax, and has none of its own",
     {"config": {"loss": "nll"}}),
    ("standardised_once", (TICKETS,), "figures are standardised by those of the whole training set, which never move",
     {"config": {"standardise": "once"}}),
    ("two_matrices", (LEDGERS, HYMNS), "input and output have a matrix each, on purpose: so says the config",
     {"config": {"tied": False}}),
    ("summed_and_divided", (LEDGERS,), "the loss is a sum, divided by the number of its targets",
     {"config": {"loss": "sum"}}),
    ("strong_currents", (SHOALS,), "more than half of what should be said is chance",
     {"config": {"currents": 0.6}}),
    ("eyes_as_drawn", (SHOALS,), "the first layers are not trained, on purpose: so says the config",
     {"config": {"frozen": "see"}}),
    ("squares_of_both", (SHOALS,), "the loss is the sum of two squares, and a mean over shoals",
     {"config": {"loss": "sum_of_squares"}}),
)

# fmt: on
