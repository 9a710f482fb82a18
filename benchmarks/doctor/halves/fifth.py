"""The fifth half of the bench that was opened: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

The families of trainings and most of the mistakes are those that the bench was blind to at first, written anew in
other manners; the rest are mistakes that people report of such trainings. Written by one who read no rule, and knew
the kinds of findings. It was put away until 26 November 2026, and scored once: 75% of its faults were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PATCHES, DENOISER, VIEWS, ADAPTED = "patches", "denoiser", "two_views", "adapted"
PREFERRED, INTENTS, MINI, SHARDED = "preferred", "intents", "mini_gpt", "sharded"
PROGRAMS = (PATCHES, DENOISER, VIEWS, ADAPTED, PREFERRED, INTENTS, MINI, SHARDED)
STEPS = {PATCHES: 220, DENOISER: 220, VIEWS: 200, ADAPTED: 200, PREFERRED: 200, INTENTS: 240, MINI: 200, SHARDED: 200}

Row = tuple[str, str, str, str, tuple[str, ...], str, dict[str, Any]]

# fmt: off

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "double_softmax": {PATCHES: {}},
    "labels_off_by_one": {PATCHES: {}, ADAPTED: {}},
    "no_grad_missing": {PATCHES: {}},
    "evaluation_mode_left_on": {PATCHES: {"dropout": 0.3}, INTENTS: {"dropout": 0.3}},
    "accumulation_undivided": {DENOISER: {"accumulation": 2}, MINI: {"accumulation": 2}},
    "ema_not_updated": {DENOISER: {}},
    "learning_rate_too_low": {DENOISER: {}},
    "stale_statistics": {VIEWS: {}},
    "training_mode_in_evaluation": {VIEWS: {}},
    "optimizer_stale": {VIEWS: {}},
    "wrong_group_frozen": {ADAPTED: {}, INTENTS: {}},
    "scheduler_per_micro_batch": {ADAPTED: {"accumulation": 2}},
    "loss_summed": {ADAPTED: {}, SHARDED: {}},
    "overfitting": {ADAPTED: {"examples": 36, "rank": 16, "alpha": 32, "targets": "all"}},
    "reference_is_policy": {PREFERRED: {}},
    "data_by_length": {PREFERRED: {}},
    "optimizer_state_lost": {PREFERRED: {}, MINI: {}},
    "pairs_swapped": {PREFERRED: {}},
    "learning_rate_x100": {PREFERRED: {}, MINI: {}, VIEWS: {}},
    "validation_leak": {INTENTS: {}},
    "annealed_when_better": {INTENTS: {}},
    "clipped_while_scaled": {MINI: {}},
    "weight_tying_broken": {MINI: {}},
    "zero_grad_missing_later": {SHARDED: {}},
    "same_seed_on_ranks": {SHARDED: {}},
    "gradient_nonfinite": {SHARDED: {}},
    "learning_rate_ends_early": {SHARDED: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

BROKEN = "divergence spike exploding not_learning plateau nonfinite"

FAULTS: tuple[Row, ...] = (
    ("scaled_twice", "inputs not normalised", "data not_learning plateau activations vanishing", "start", (PATCHES,),
     "pixels are divided by 255 twice: all pictures look the same to the model",
     {"also": ("inputs scaled twice", "inputs normalised twice", "inputs nearly constant", "inputs too small",
               "inputs all alike", "normalised twice", "inputs do not reach the output", "inputs not scaled",
               "copied examples", "outputs collapsed")}),
    ("softmax_over_queries", "softmax over the wrong dimension", "attention not_learning plateau activations config",
     "start", (PATCHES,), "the attention's softmax runs over the queries, not over the keys",
     {"also": ("wrong dimension", "attention over the wrong dimension", "axes exchanged", "attention not normalised")}),
    ("blank_divided", "non-finite input", "nonfinite data", "start", (DENOISER,),
     "each picture is divided by its own deviation, and one in a hundred is blank: 0 / 0",
     {"hard": True, "also": ("bad batch", "input not finite", "targets not finite", "division by zero",
                             "missing values", "non-finite gradient", "constant inputs", "inputs not normalised",
                             "deviation of zero", "epsilon missing", "non-finite values in the data")}),
    ("average_too_slow", "averaged weights not updated", "eval overfit divergence frozen plateau config", "start",
     (DENOISER,), "the average that is evaluated keeps 9,999 parts of 10,000 in a step: it is what was drawn at first",
     {"config": {"ema": 0.9999},
      "also": ("average too slow", "decay of the average too high", "ema decay too high", "averaged weights lag",
               "average not warmed up", "averaged weights too slow", "optimizer holds other parameters",
               "layer frozen")}),
    ("bytes_diffused", "inputs not normalised", f"data activations saturated logits {BROKEN} clipping", "start",
     (DENOISER,), "pictures are diffused as bytes, from 0 to 255: the noise is lost in them",
     {"also": ("inputs not scaled", "inputs too large", "targets out of range", "ranges differ",
               "targets not scaled", "inputs as bytes")}),
    ("summed_over_pixels", "loss summed", "clipping exploding logits learning_rate config", "start", (DENOISER,),
     "the loss is summed over the pixels of a picture, where the clip value is for their mean",
     {"also": ("wrong reduction", "gradient accumulation scaled wrongly", "loss not averaged", "clip value too low")}),
    ("views_alike", "views are the same", "data zero repeated_data jump_down eval overfit divergence", "start",
     (VIEWS,), "the second view is the first one: nothing has to be learnt to bring them together",
     {"also": ("copied examples", "augmentation missing", "no augmentation", "labels can be seen", "pairs are the same",
               "chosen and rejected alike", "duplicates in the batch", "task too easy", "labels leak",
               "target leak", "data replayed", "inputs repeated")}),
    ("self_among_others", "mask missing", "plateau not_learning data logits config", "start", (VIEWS,),
     "a view's likeness to itself is not left out: it always wins",
     {"also": ("self-similarity not masked", "diagonal not masked", "similarity to itself", "attention mask missing",
               "loss mask missing", "false negatives in the batch", "labels do not match the inputs",
               "labels can be seen", "duplicates in the batch", "wrong dimension")}),
    ("length_kept", "embeddings not normalised", f"{BROKEN} logits activations saturated", "start", (VIEWS,),
     "vectors are not brought to length 1: products are as large as they like",
     {"also": ("logits too large", "normalisation missing", "logits not scaled", "learning rate too high",
               "temperature missing", "temperature too low", "logits grow", "cosine missing", "gradient not clipped",
               "no clipping", "clipping off", "overflow in a layer")}),
    ("temperature_multiplied", "temperature missing", "plateau not_learning logits vanishing config", "start", (VIEWS,),
     "likenesses are multiplied by the temperature, not divided: the loss can't get near 0",
     {"also": ("temperature inverted", "temperature too high", "logits not scaled", "logits too small",
               "scale missing", "softmax twice", "temperature multiplied", "temperature wrong")}),
    ("last_batch_of_one", "last batch too small", "spike zero jump_down data", "start", (VIEWS,),
     "the last batch of an epoch is kept, and has one signal: there is nothing to tell it from",
     {"also": ("drop_last missing", "bad batch", "batch of one", "batch size varies", "incomplete batch", "loss of 0",
               "batch too small", "last batch not dropped", "loss masked out", "uneven batches")}),
    ("adapted_after_optimizer", "optimizer holds other parameters",
     "frozen not_learning plateau update_ratio missing_zero_grad exploding", "start", (ADAPTED,),
     "adapters are put in after the optimizer was made: it has the frozen base alone",
     {"hard": True,
      "also": ("adapters not in the optimizer", "layer frozen", "parameters missing from the optimizer",
               "optimizer made too early", "zero_grad missing")}),
    ("base_as_drawn", "weights not loaded", "plateau not_learning config eval frozen", "start", (ADAPTED,),
     "the weights of the base are not loaded: adapters are trained beside what was drawn by chance",
     {"also": ("checkpoint not loaded", "bad initialisation", "frozen as drawn", "names do not match",
               "pretrained weights missing", "base not loaded", "layer frozen")}),
    ("logps_averaged", "loss divided too often", "plateau not_learning rl learning_rate vanishing config", "start",
     (PREFERRED,), "log-probabilities are averaged over an answer, not summed: margins are a tenth of theirs",
     {"also": ("wrong reduction", "log-probabilities averaged", "beta too low", "learning rate too low",
               "margins too small", "loss averaged", "gradient accumulation scaled wrongly", "logits not scaled",
               "loss summed", "logits too small")}),
    ("rejected_first", "sign reversed", "rl not_learning divergence eval data", "start", (PREFERRED,),
     "chosen and rejected are exchanged within the loss: it falls, and people's choices get less likely",
     {"hard": True,
      "also": ("pairs swapped", "chosen and rejected swapped", "labels swapped", "labels shifted", "labels shuffled",
               "labels do not match the inputs", "margin has the wrong sign", "loss has the wrong sign")}),
    ("reference_drops_out", "evaluation mode left on", "rl data eval plateau not_learning", "start", (PREFERRED,),
     "the reference is never set to evaluation mode: its dropout makes rewards noise",
     {"config": {"dropout": 0.5}, "compare": "dropout",
      "also": ("evaluation in training mode", "dropout left on", "reference in training mode",
               "training mode in evaluation", "reference moves", "dropout in the reference")}),
    ("state_behind_padding", "wrong token pooled", "plateau not_learning padding data eval", "start", (INTENTS,),
     "the state that is read is the one behind the padding",
     {"also": ("padding is read", "padding not masked", "padding pooled", "sequences not packed", "lengths ignored",
               "attention mask missing", "padding in the mean", "mask missing")}),
    ("split_of_sorted", "class missing", "eval overfit data zero divergence jump_down vanishing", "start", (INTENTS,),
     "the file is sorted by kind, and its last part is held out: the training has the most frequent kind alone",
     {"also": ("one class alone", "data sorted", "split not shuffled", "rare class missing", "evaluation data differ",
               "labels all alike", "evaluation labels are others", "data not shuffled", "train and test differ",
               "labels of the evaluation differ", "outputs collapsed")}),
    ("scores_without_softmax", "softmax missing", f"data logits config weight_growth {BROKEN}", "start", (INTENTS,),
     "the loss of log-probabilities is given scores: it falls below 0 without end",
     {"also": ("logarithm missing", "log-probabilities expected", "log-softmax missing", "loss below 0",
               "loss unbounded", "logits not normalised")}),
    ("seeded_in_each_step", "data exhausted", "repeated_data replay data overfit jump_down eval zero", "start",
     (MINI,), "the seed is set where a batch is drawn: each step has the same one",
     {"hard": True,
      "also": ("data replayed", "same batch in each step", "copied examples", "seed set in each step",
               "same data in each step", "same order in each epoch", "data not shuffled", "overfitting",
               "one batch again and again")}),
    ("clipped_before_backward", "gradients clipped before the backward pass",
     "zero clipping frozen config exploding missing_zero_grad logging vanishing", "start", (MINI,),
     "gradients are clipped and their norm taken before the backward pass: there are none yet",
     {"also": ("clipping off", "norm of nothing", "gradient not clipped", "gradients clipped while scaled",
               "clipping not in force",
               "gradient norm not measured", "clipping before backward", "gradients cleared before they are used",
               "no clipping", "gradients not there", "logging", "zero_grad before the norm")}),
    ("causal_forgotten", "labels can be seen", "data jump_down zero eval attention overfit activations config",
     "start", (MINI,), "attention is not causal: each letter sees the one that it is to say",
     {"also": ("future visible", "causal mask missing", "attention mask missing", "labels leak", "labels shifted",
               "target leak", "mask missing")}),
    ("sharded_after_optimizer", "optimizer holds other parameters",
     "frozen not_learning plateau update_ratio missing_zero_grad exploding", "start", (SHARDED,),
     "the model is sharded after the optimizer was made, which has the whole parameters still",
     {"hard": True,
      "also": ("optimizer made before sharding", "layer frozen", "parameters missing from the optimizer",
               "zero_grad missing", "optimizer made too early")}),
    ("never_synchronised", "all-reduce missing", "frozen zero not_learning plateau desync update_ratio vanishing",
     "start", (SHARDED,), "the synchronisation of gradients is never switched on again for the last micro-batch",
     {"hard": True,
      "also": ("gradients never synchronised", "gradients not reduced", "layer frozen", "no gradient",
               "optimizer holds other parameters", "gradient synchronisation off", "gradients not there",
               "graph cut", "no gradient arrives")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "dropout": {PATCHES: {"dropout": 0.3}, INTENTS: {"dropout": 0.3}, PREFERRED: {"dropout": 0.5}},
    "memory_steady": {PATCHES: {}},
    "mixed_pictures": {PATCHES: {}},
    "averaged": {DENOISER: {}},
    "accumulated": {program: {"accumulation": 2} for program in (DENOISER, ADAPTED, PREFERRED, MINI, SHARDED)},
    "one_a_batch": {DENOISER: {"batch_size": 3}},
    "few_pairs": {VIEWS: {}},
    "constant_rate": {PATCHES: {}, VIEWS: {}, ADAPTED: {}, MINI: {}, INTENTS: {}},
    "high_rate": {DENOISER: {}, SHARDED: {}},
    "smaller": {PREFERRED: {}},
    "trained_thinly": {ADAPTED: {"rank": 1, "alpha": 2}},
    "resume": {PREFERRED: {}, MINI: {}},
    "clipped_always": {MINI: {}},
    "half_precision": {MINI: {"init_scale": 2.0**24}},
    "wsd": {MINI: {}},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    ("wrong_kinds", (PATCHES,), "one label in seven is wrong: the training's loss stays high",
     {"config": {"wrong_labels": 0.15}}),
    ("velocity", (DENOISER,), "what is predicted is the velocity, not the noise", {"config": {"predict": "velocity"}}),
    ("weighted_times", (DENOISER,), "times with little noise weigh less", {"config": {"snr_limit": 3.0}}),
    ("half_blank", (DENOISER,), "half of the pictures are blank, and well scaled", {"config": {"empty": 0.5}}),
    ("adaptive_views", (VIEWS,), "AdamW in the place of the gradient with momentum", {"config": {"optimizer": "adam"}}),
    ("warm_views", (VIEWS,), "a temperature of 0.8: the loss has a high floor", {"config": {"temperature": 0.8}}),
    ("gentle_views", (VIEWS,), "views that differ by little: the loss is low from early on",
     {"config": {"strength": 0.3}}),
    ("all_adapted", (ADAPTED,), "adapters of rank 8 in every linear layer",
     {"config": {"targets": "all", "rank": 8, "alpha": 16}}),
    ("long_commands", (ADAPTED,), "half of each string is not in the loss", {"config": {"argument": 8}}),
    ("identity_loss", (PREFERRED,), "the squared loss of IPO: it begins high",
     {"config": {"loss": "ipo"}, "factors": {"learning_rate": 0.5}}),
    ("cautious", (PREFERRED,), "preferences are taken for wrong in one case of five: the loss stays near ln 2",
     {"config": {"label_smoothing": 0.2}}),
    ("falling_rate", (PREFERRED,), "AdamW, and a rate that falls to 0", {"config": {"optimizer": "adam",
                                                                                "schedule": "linear"}}),
    ("balanced_draws", (INTENTS,), "each kind is drawn as often: the loss begins higher, rare ones come again soon",
     {"config": {"balanced": True}}),
    ("focal_loss", (INTENTS,), "what is sure counts for little: the loss is small from the start",
     {"config": {"focal": 2.0}}),
    ("momentum_alone", (INTENTS,), "the gradient with momentum, at a rate sixty times as high",
     {"config": {"optimizer": "sgd"}}),
    ("vague_requests", (INTENTS,), "one label in seven is of chance: the accuracy stays low",
     {"config": {"wrong_labels": 0.15}}),
    ("brain_floats", (MINI, SHARDED), "bfloat16 for the products, without a scaler", {"config": {"precision": "bf16"}}),
    ("few_letters", (SHARDED,), "rows of four different tokens: most counts are the greatest",
     {"config": {"letters": 4}}),
    ("momentum_shards", (SHARDED,), "the gradient with momentum over shards", {"config": {"optimizer": "sgd"}}),
)

# fmt: on
