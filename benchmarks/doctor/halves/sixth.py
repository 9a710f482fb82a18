"""The sixth half of the bench that was opened: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

The families of trainings and two thirds of the mistakes are those that the bench was blind to at first, written anew
in other people's manners; the rest are mistakes that people report of such trainings. Written by one who read no
rule, and knew the kinds of findings and what the guides show. It was put away until 26 November 2026, and scored once:
84% of its faults were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GLYPHS, WAVES, KEYED, BITS = "glyphs", "waves", "keyed", "four_bits"
VERDICTS, ALARMS, BRACKETS, MIXERS = "verdicts", "alarms", "brackets", "mixers"
PROGRAMS = (GLYPHS, WAVES, KEYED, BITS, VERDICTS, ALARMS, BRACKETS, MIXERS)
STEPS = {GLYPHS: 180, WAVES: 200, KEYED: 200, BITS: 180, VERDICTS: 200, ALARMS: 225, BRACKETS: 200, MIXERS: 180}

Row = tuple[str, str, str, str, tuple[str, ...], str, dict[str, Any]]

# fmt: off

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "double_softmax": {GLYPHS: {}, KEYED: {}},
    "evaluation_mode_left_on": {GLYPHS: {"dropout": 0.3}, KEYED: {"dropout": 0.3}},
    "accumulation_undivided": {GLYPHS: {"accumulation": 2}, WAVES: {"accumulation": 2}},
    "wrong_group_frozen": {GLYPHS: {}, BITS: {}, MIXERS: {}},
    "no_grad_missing": {GLYPHS: {}},
    "ema_not_updated": {WAVES: {}},
    "loss_summed": {WAVES: {}, KEYED: {}, ALARMS: {}},
    "stale_statistics": {KEYED: {}, ALARMS: {}},
    "views_alike": {KEYED: {}},
    "adapters_zero": {BITS: {}},
    "scheduler_per_micro_batch": {BITS: {"accumulation": 2}, BRACKETS: {"accumulation": 2}},
    "data_by_length": {VERDICTS: {}, ALARMS: {}},
    "validation_leak": {VERDICTS: {}, ALARMS: {}, MIXERS: {}},
    "weight_tying_broken": {VERDICTS: {}, BRACKETS: {}},
    "bf16_rounds_away": {BRACKETS: {}},
    "learning_rate_x100": {BRACKETS: {}},
    "same_seed_on_ranks": {MIXERS: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

BROKEN = "divergence spike exploding not_learning plateau nonfinite"

FAULTS: tuple[Row, ...] = (
    ("batch_as_sequence", "batch and time exchanged", "not_learning plateau attention data config activations zero",
     "start", (GLYPHS,),
     "`batch_first` is not given: attention goes over the pictures of a batch, and none sees its own patches",
     {"also": ("batch_first missing", "attention over the batch", "attention over the wrong dimension",
               "wrong dimension", "axes exchanged", "rows of a batch see each other", "batch and sequence exchanged",
               "examples see each other", "rows mixed", "inputs do not reach the output")}),
    ("kinds_from_one", "labels shifted", "eval overfit divergence data not_learning plateau config", "start",
     (GLYPHS, ALARMS), "the training's file counts kinds from 1, the evaluation's from 0: there is one output more",
     {"also": ("labels off by one", "labels shifted by one class", "evaluation labels are others",
               "labels of the evaluation differ", "labels do not match the inputs", "off by one", "class missing",
               "labels count from 1", "evaluation data differ", "train and test differ")}),
    ("functional_dropout", "evaluation in training mode", "eval data config logging overfit", "start",
     (GLYPHS, MIXERS), "the functional dropout is not told whether the model is trained: it drops in evaluations, too",
     {"compare": "dropped_by_function", "by_program": {GLYPHS: {"head_dropout": 0.5}, MIXERS: {"dropout": 0.3}},
      "also": ("dropout left on", "evaluation mode left on", "dropout in the evaluation", "training mode in evaluation",
               "dropout active in evaluation", "functional dropout always on", "dropout is never off",
               "dropout on in evaluation")}),
    ("cosine_turns_back", "scheduler stepped per micro-batch",
     "learning_rate plateau update_ratio divergence spike config frozen", "start", (GLYPHS,),
     "the scheduler is stepped with each of two micro-batches: its cosine is over half-way, and rises again",
     {"config": {"accumulation": 2}, "compare": "accumulated",
      "also": ("learning rate too low", "schedule too short", "schedule ends early", "scheduler stepped too often",
               "learning rate rises again", "schedule goes past its end", "scheduler stepped per batch",
               "schedule restarted", "learning rate annealing", "scheduler past its end")}),
    ("noise_drawn_once", "copied examples", "eval overfit divergence jump_down data repeated_data zero", "start",
     (WAVES,), "the noise is drawn once, before the loop: the model learns it by heart",
     {"also": ("targets all alike", "noise repeated", "noise drawn once", "targets constant", "same noise in each step",
               "seed set in each step", "data replayed", "overfitting", "same targets in each step", "data exhausted",
               "labels all alike", "targets repeated", "labels can be seen", "evaluation data differ",
               "train and test differ", "target leak", "targets do not vary")}),
    ("times_unused", "graph cut",
     "frozen vanishing plateau update_ratio config missing_zero_grad not_learning zero", "start", (WAVES,),
     "the level of noise is coded, and never added: the layers for it get no gradient",
     {"also": ("layer frozen", "no gradient", "layers not used", "layer unused", "parameters without a gradient",
               "unused parameters", "no gradient arrives", "loss does not reach layers", "inputs not used",
               "inputs do not reach the output", "optimizer holds other parameters", "layer not called",
               "gradients not there", "conditioning not used")}),
    ("first_key_always", "labels do not match the inputs", "not_learning plateau data eval divergence logits config",
     "start", (KEYED,), "the labels are all 0, as where a queue follows the right key: each key is wanted of all",
     {"also": ("labels shifted", "labels shuffled", "wrong column", "wrong targets", "labels are noisy",
               "targets of another loss", "diagonal expected", "positives in another column",
               "labels all alike", "one class alone", "labels constant",
               "labels of another layout")}),
    ("mean_over_all_places", "loss divided too often", "eval padding data config vanishing learning_rate overfit",
     "start", (BITS,), "the loss is summed over the answer, and divided by all places, prompt and padding among them",
     {"also": ("wrong reduction", "loss averaged over padding", "padding in the loss",
               "loss not divided by its targets",
               "padding in the mean", "loss mask missing", "labels not masked", "loss averaged over ignored targets",
               "ignored targets in the mean", "loss divided by all places", "mean over padding", "logging",
               "loss averaged", "units differ", "gradient accumulation scaled wrongly", "loss summed",
               "evaluation loss summed")}),
    ("shifted_twice", "labels shifted", "eval overfit not_learning plateau divergence data", "start", (BITS, BRACKETS),
     "labels are shifted when a batch is made, and again where the loss is",
     {"also": ("labels shifted twice", "labels off by one", "off by one", "evaluation labels are others",
               "labels do not match the inputs", "labels of the evaluation differ", "shift twice",
               "evaluation data differ", "train and test differ", "labels shuffled")}),
    ("weights_alone_kept", "optimizer state lost",
     "resume spike exploding divergence update_ratio learning_rate config", "resume", (WAVES, BITS, VERDICTS),
     "a checkpoint has the weights alone: optimizer and scheduler begin anew, with a warm-up",
     {"also": ("schedule restarted", "scheduler state lost", "optimizer state not restored", "checkpoint incomplete",
               "warm-up after a resume", "optimizer and scheduler begin anew", "learning rate annealing",
               "learning rate too high", "state lost at the resume")}),
    ("merged_and_kept", "averaged weights not swapped back",
     "spike divergence eval jump_down exploding data plateau config weight_growth", "evaluation", (BITS,),
     "adapters are merged for an evaluation, and not taken out again: each evaluation adds them once more",
     {"config": {"merged_evaluation": True}, "compare": "merged_for_evaluation",
      "also": ("adapters merged twice", "weights changed by the evaluation", "adapters not unmerged",
               "weights not restored after the evaluation", "weights written outside of the optimizer",
               "weights written between steps", "weights not swapped back", "evaluation changes the model",
               "adapters counted twice", "state changed by the evaluation", "weights changed between steps")}),
    ("blocks_out_of_order", "weights not loaded", "not_learning plateau config frozen eval activations data", "start",
     (BITS,), "weights and scales of the base are read by columns, and were written by rows: it knows nothing",
     {"also": ("checkpoint not loaded", "bad initialisation", "base not loaded", "weights transposed", "axes exchanged",
               "pretrained weights missing", "wrong dimension", "frozen as drawn", "base broken", "layer frozen",
               "quantised wrongly", "weights loaded wrongly", "names do not match", "base model broken")}),
    ("references_not_in_order", "labels do not match the inputs", "rl plateau not_learning data divergence eval spike",
     "start", (VERDICTS,), "what the reference says was made by a loader that shuffles: it is of other pairs",
     {"also": ("labels shuffled", "reference of other rows", "reference does not match", "reference figures of others",
               "reference is not the policy's start", "reference moves", "rows joined wrongly", "wrong reference",
               "reference differs from the policy at the start", "reference log-probabilities of other rows",
               "reference is another model", "old probabilities not stored", "reference not the starting policy")}),
    ("rejected_is_chosen", "chosen and rejected alike", "zero vanishing plateau not_learning rl data frozen", "start",
     (VERDICTS,), "the column of rejected answers is a copy of the chosen ones: each margin is 0",
     {"hard": True,
      "also": ("pairs are the same", "copied examples", "reference is the policy", "loss masked out",
               "labels all alike",
               "margin always 0", "no gradient", "graph cut", "pairs alike", "views are the same",
               "chosen is rejected", "answers are the same")}),
    ("summed_within_the_log", "loss summed",
     "rl spike exploding clipping zero jump_down eval divergence vanishing logits config",
     "start", (VERDICTS,), "margins are added up within the logarithm, where their losses should be averaged",
     {"also": ("wrong reduction", "reduction before the logarithm", "gradient accumulation scaled wrongly",
               "margins summed", "loss not averaged", "loss of the sum", "mean and logarithm exchanged",
               "loss of a batch as one", "clip value too low")}),
    ("padding_in_logps", "padding in the loss", "rl padding data eval jump_down spike logits", "start", (VERDICTS,),
     "log-probabilities are summed over the padding, too, which says how long an answer is",
     {"also": ("loss mask missing", "padding not masked", "mask missing", "padding counted", "labels not masked",
               "padding is read", "padding in the mean", "attention mask missing", "length bias", "lengths ignored")}),
    ("first_kind_ignored", "class missing", "eval overfit divergence data padding config nonfinite zero", "start",
     (ALARMS,),
     "the number of the padding is the label that is ignored, and the number of the most frequent kind",
     {"also": ("loss masked out", "labels masked wrongly", "rare class missing", "class ignored", "kind ignored",
               "evaluation labels are others", "labels of the evaluation differ", "padding number is a label",
               "ignored label is a class", "one class ignored", "labels do not match the inputs")}),
    ("stairs_each_batch", "scheduler stepped per micro-batch",
     "learning_rate plateau not_learning update_ratio frozen config vanishing", "start", (ALARMS,),
     "the scheduler that counts epochs is stepped with each batch: the rate is gone after some twenty",
     {"also": ("learning rate too low", "scheduler stepped per batch", "schedule too short", "schedule ends early",
               "scheduler stepped too often", "learning rate falls too fast", "schedule ends too early",
               "learning rate gone", "epochs and steps exchanged")}),
    ("causality_forgotten", "labels can be seen", "data jump_down zero eval attention overfit activations config",
     "start", (BRACKETS,), "attention has no mask: each place sees the sign that it is to say",
     {"also": ("future visible", "causal mask missing", "attention mask missing", "labels leak", "labels shifted",
               "target leak", "mask missing")}),
    ("divided_by_ranks", "loss divided too often", "eval vanishing learning_rate logging config overfit desync",
     "start", (MIXERS,), "the loss is divided by the number of ranks, whose gradients are averaged anyway",
     {"also": ("wrong reduction", "gradient accumulation scaled wrongly", "divided by the world size twice",
               "gradients averaged twice", "loss divided by the world size", "loss scaled", "loss divided twice",
               "units differ", "logging", "gradients divided twice", "loss averaged twice")}),
    ("epoch_never_set", "same order in each epoch", "repeated_data data replay desync config", "start", (MIXERS,),
     "the sampler is not told the epoch: each one has the same batches in the same order",
     {"also": ("data not shuffled", "epoch not set", "data replayed", "set_epoch missing", "sampler not shuffled",
               "order never changes", "seed set in each epoch", "data exhausted", "same batches in each epoch",
               "batches repeated", "no shuffling")}),
    ("norm_of_own_shard", "norm of one shard", "desync clipping config logging exploding", "start", (MIXERS,),
     "the norm is of a rank's own shard, and so is the factor by which it clips",
     {"also": ("gradient norm not reduced", "clipping by shard", "gradients not reduced", "norm not reduced",
               "ranks differ in their norm", "gradient norm of a shard", "each rank clips by itself",
               "all-reduce missing", "gradient norm not measured", "logging", "norm not reduced over ranks",
               "ranks drifted apart", "clipped by each rank")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "dropout": {GLYPHS: {"dropout": 0.3}, KEYED: {"dropout": 0.3}, MIXERS: {"dropout": 0.5}, ALARMS: {"dropout": 0.4}},
    "memory_steady": {GLYPHS: {}},
    "accumulated": {program: {"accumulation": 2} for program in (GLYPHS, WAVES, BITS, BRACKETS, MIXERS)},
    "constant_rate": {GLYPHS: {}, KEYED: {}, BITS: {}},
    "high_rate": {WAVES: {}, BRACKETS: {}},
    "averaged": {WAVES: {"ema": 0.99}},
    "resume": {WAVES: {}, BITS: {}, VERDICTS: {}, BRACKETS: {}},
    "one_a_batch": {WAVES: {"batch_size": 6}, ALARMS: {"batch_size": 6, "schedule": "constant"}},
    "few_pairs": {KEYED: {}},
    "warm_views": {KEYED: {}},
    "trained_thinly": {BITS: {"rank": 1, "alpha": 2}},
    "smaller": {VERDICTS: {}},
    "rarer": {ALARMS: {}},
    "balanced_draws": {ALARMS: {"class_weights": "none"}},
    "warm_restarts": {GLYPHS: {}, BRACKETS: {}},
    "wsd": {BRACKETS: {}},
    "clipped_always": {BRACKETS: {}},
    "bf16_slow": {BRACKETS: {}},
    "brain_floats": {MIXERS: {}},
    "momentum_shards": {MIXERS: {}},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    ("dropped_by_function", (GLYPHS, MIXERS), "dropout by a function that is told whether the model is trained",
     {"by_program": {GLYPHS: {"head_dropout": 0.5}, MIXERS: {"dropout": 0.3}}}),
    ("patches_fixed", (GLYPHS,), "what embeds the patches stays as drawn, on purpose: the config says so",
     {"config": {"freeze": ["embed"]}}),
    ("signal_predicted", (WAVES,), "what is predicted is the signal, not the noise", {"config": {"predict": "clean"}}),
    ("few_levels", (WAVES,), "ten levels of noise", {"config": {"levels": 10}}),
    ("never_clipped", (WAVES,), "gradients are not clipped, on purpose", {"config": {"clip": 0.0}}),
    ("broad_batches", (KEYED,), "batches twice as large: the loss begins and stays higher",
     {"config": {"batch_size": 64}}),
    ("slow_keys", (KEYED,), "the encoder of the keys keeps 97 parts of 100 in a step",
     {"config": {"key_momentum": 0.97}}),
    ("merged_for_evaluation", (BITS,), "adapters are merged for each evaluation, and taken out again",
     {"config": {"merged_evaluation": True}}),
    ("rates_of_their_own", (BITS,), "one factor of the adapters has four times the rate of the other",
     {"config": {"rate_of_b": 4.0}, "factors": {"learning_rate": 0.5}}),
    ("hinged", (VERDICTS,), "the loss is a hinge: it is 0 where a margin is enough",
     {"config": {"loss_type": "hinge"}}),
    ("doubtful_verdicts", (VERDICTS,), "people are wrong in a fifth of the pairs", {"config": {"wrong": 0.2}}),
    ("strict_reference", (VERDICTS,), "a beta three times as high", {"config": {"beta": 0.9}}),
    ("by_their_number", (ALARMS,), "kinds weigh by one over their number: the loss is of rare ones",
     {"config": {"class_weights": "inverse"}}),
    ("noisy_hours", (MIXERS,), "noise nearly twice as strong: most of the loss can't be learnt",
     {"config": {"noise": 0.9}}),
    ("soft_huber", (MIXERS,), "a small threshold: the loss is hardly more than an absolute error",
     {"config": {"delta": 0.2}}),
)

# fmt: on
