"""The eleventh half of the bench, which is opened: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of nine families: a vision transformer, diffusion, contrastive, adapters, preferences, a classifier
of rare kinds, pure bfloat16, float16 with a scaler, `fully_shard`; each as another ordinary engineer writes it. Most
faults are of the fifteen kinds that the tenth half has, each as the line that a person gets wrong in that program;
those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did not look
at what the doctor says. A fault is called by any name that a person would give it, and every kind of finding that
would be right of it is right; the names that the tenth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import ninth, tenth
from halves.ninth import Row, Settings, some

LEAVES, COASTS, PULSES, GLOSSARIES = "leaves", "coasts", "pulses", "glossaries"
COURTESIES, TREMORS, SPELLINGS, LOGBOOKS, HARBOURS = "courtesies", "tremors", "spellings", "logbooks", "harbours"
PROGRAMS = (LEAVES, COASTS, PULSES, GLOSSARIES, COURTESIES, TREMORS, SPELLINGS, LOGBOOKS, HARBOURS)
STEPS = {LEAVES: 180, COASTS: 180, PULSES: 180, GLOSSARIES: 160, COURTESIES: 160, TREMORS: 200, SPELLINGS: 180,
         LOGBOOKS: 180, HARBOURS: 160}  # fmt: skip
REPORTED = frozenset({
    "cleared_each_epoch", "time_left_out", "scale_left_out", "padding_asked_for", "weights_by_count", "shuffled_apart",
    "clipped_too_early", "scale_forgotten", "epoch_never_set",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    COASTS: {"gradient_accumulation": 2}, GLOSSARIES: {"gradient_accumulation_steps": 2}, COURTESIES: {"accumulate": 2},
    SPELLINGS: {"micro_batches": 2}, LOGBOOKS: {"accumulate": 3}, HARBOURS: {"grad_accum": 2},
}
DROPPED: Settings = {
    LEAVES: {"dropout": 0.2}, COASTS: {"dropout": 0.2}, PULSES: {"dropout": 0.3}, GLOSSARIES: {"lora_dropout": 0.3},
    COURTESIES: {"dropout": 0.2}, TREMORS: {"dropout": 0.4}, SPELLINGS: {"dropout": 0.2}, LOGBOOKS: {"dropout": 0.3},
    HARBOURS: {"dropout": 0.3},
}
AVERAGED: Settings = {LEAVES: {"ema": 0.95}, TREMORS: {"swa_from": 0.4}, SPELLINGS: {"ema_decay": 0.9}}
COPIED: Settings = {LEAVES: {"copies": 4, "leaves": 1280}, PULSES: {"visits": 4}, TREMORS: {"oversample": 6}}

# -- names that a person would give, beside those of the tenth half -------------------------------------------------

SUMMED = (*tenth.SUMMED, "sum over the pairs", "sum of squares", "loss summed over pixels", "loss is a total")
GRAPHS = (*tenth.GRAPHS, "outputs kept with their graphs", "evaluation without no_grad", "validation with gradients")
SHIFTED = (*tenth.SHIFTED, "log-probabilities not shifted", "logits not shifted", "shift missing", "shift forgotten",
           "labels one row off", "words of another row", "pairs do not match", "class ids differ",
           "labels misaligned", "special token not counted", "log-probabilities of the wrong tokens",
           "target is the input", "labels in the inputs", "targets are the inputs")
TIE = (*tenth.TIE, "embedding resized", "embedding resized and not tied again", "tie lost by a resize",
       "tie_weights missing")
LEAK = (*tenth.LEAK, "one patient on both sides", "groups across the split", "split by rows",
        "oversampled before the split", "augmented before the split", "same patients in both splits")
STEPPED = (*tenth.STEPPED, "scheduler stepped per batch, counted in epochs", "schedule in epochs stepped per step",
           "learning rate oscillates", "learning rate cycles", "schedule stepped each batch", "T_max too small",
           "schedule's length is in epochs")
AVERAGE = (*tenth.AVERAGE, "average of another model", "average of a stale copy", "swa not updated",
           "average of the average", "averaged weights never moved",
           "averaged weights updated too seldom")

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # reported
    "epoch_never_set": {HARBOURS: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("summed_not_averaged", "loss summed", ninth.OF_SUMS, "start", (LEAVES, COASTS, PULSES, COURTESIES, TREMORS),
     "the training's loss is a sum over the batch, where a mean was meant", {"also": SUMMED}),
    ("tokens_summed_up", "loss summed", ninth.OF_SUMS, "start", (GLOSSARIES, SPELLINGS, HARBOURS),
     "losses are summed over all signs, and divided by the number of rows", {"also": SUMMED}),
    ("mean_over_padding", "loss divided too often", f"{ninth.OF_LESS} data padding", "start", (LOGBOOKS,),
     "the training's mean is over all places, those behind a row's end among them, which count as 0",
     {"also": (*tenth.LESSER, "padding in the mean")}),
    # forgotten no_grad
    ("validation_keeps_graphs", "no_grad missing", "memory eval data config", "start",
     (LEAVES, COASTS, PULSES, COURTESIES, SPELLINGS, LOGBOOKS),
     "evaluations run with gradients, and what was said in them is kept to the end",
     {"also": GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("softmax_at_the_end", "softmax twice", ninth.OF_SOFTMAX, "start", (LEAVES, PULSES, TREMORS, LOGBOOKS),
     "a softmax stands before a cross-entropy that has its own", {"also": tenth.TWICE}),
    # label off by one
    ("ids_count_from_one", "labels shifted", ninth.OF_LABELS, "start", (LEAVES, TREMORS),
     "the training's kinds count from 1, and the head has one more; the evaluation's count from 0", {"also": SHIFTED}),
    ("words_of_the_row_before", "labels shifted", ninth.OF_LABELS, "start", (PULSES,),
     "in the training each curve has the words of the row before", {"also": SHIFTED}),
    ("shifted_by_collator", "labels shifted", ninth.OF_LABELS, "start", (GLOSSARIES,),
     "the collator shifts the labels, and the model's own loss shifts them again", {"also": SHIFTED}),
    ("logps_not_shifted", "labels shifted", ninth.OF_LABELS + " rl logits attention zero", "start", (COURTESIES,),
     "log-probabilities are read at a word's own place, not at the one before", {"also": SHIFTED}),
    ("two_places_on", "labels shifted", ninth.OF_LABELS, "start", (SPELLINGS, HARBOURS),
     "the training's targets are two places on, where the evaluation's are one", {"also": SHIFTED}),
    ("tags_without_the_first", "labels shifted", ninth.OF_LABELS, "start", (LOGBOOKS,),
     "the word in front of a row has no tag, and the training's tags begin at it", {"also": SHIFTED}),
    # wrong part frozen
    ("all_but_named_frozen", "layer frozen", ninth.OF_FROZEN, "start",
     (LEAVES, PULSES, GLOSSARIES, COURTESIES, TREMORS, LOGBOOKS, HARBOURS),
     "all is frozen but for parts of a name, in a model that needs the rest", {"also": tenth.FROZEN}),
    # weight tying broken
    ("tie_cut_by_resize", "optimizer holds other parameters", ninth.OF_TIE, "start", (COURTESIES, SPELLINGS, HARBOURS),
     "the embedding is made larger, and the output, which was the same matrix, keeps the old one", {"also": TIE}),
    # order
    ("short_first", "data sorted", ninth.OF_ORDER, "start", (GLOSSARIES, COURTESIES, SPELLINGS, LOGBOOKS, HARBOURS),
     "rows are sorted by their length, and each pass begins with the shortest", {"also": tenth.SORTED}),
    ("one_kind_behind_another", "data sorted", ninth.OF_ORDER, "start", (LEAVES, PULSES, TREMORS),
     "rows are sorted by kind, and the loader does not shuffle", {"also": tenth.SORTED}),
    # leaking validation
    ("held_out_rows_among_them", "validation leak", ninth.OF_LEAK, "start", (COASTS, GLOSSARIES, SPELLINGS),
     "what is held out is in the training set too, beside few others", {"also": LEAK}),
    ("scanned_again_then_split", "validation leak", ninth.OF_LEAK, "start", (LEAVES,),
     "each leaf is scanned four times, and scans are dealt out to both sides",
     {"by_program": some(COPIED, LEAVES), "compare": "copies_of_training_rows", "also": LEAK}),
    ("patients_on_both_sides", "validation leak", ninth.OF_LEAK, "start", (PULSES,),
     "each patient has four rows, and rows are dealt out to both sides",
     {"by_program": some(COPIED, PULSES), "compare": "copies_of_training_rows", "also": LEAK}),
    ("oversampled_then_split", "validation leak", ninth.OF_LEAK, "start", (TREMORS,),
     "rare kinds are copied before a part is held out: copies are on both sides",
     {"by_program": some(COPIED, TREMORS), "compare": "copies_of_training_rows", "also": LEAK}),
    # stale statistics
    ("validated_by_older_figures", "inputs not normalised", ninth.OF_STATISTICS, "start", (LEAVES, COASTS),
     "what is held out is normalised by figures of older data, the training by its own", {"also": tenth.FIGURES}),
    ("statistics_not_taken_anew", "batch norm's statistics are stale", ninth.OF_AVERAGE + " activations", "start",
     (TREMORS,), "the mean of the weights is evaluated with batch norm's statistics as they were made",
     {"by_program": some(AVERAGED, TREMORS), "compare": "shadow_each_step", "also": (*tenth.STALE, *AVERAGE)}),
    # scheduler
    ("scheduler_each_backward", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (COASTS, COURTESIES, SPELLINGS, LOGBOOKS, HARBOURS), "the scheduler is stepped at each micro-batch",
     {"by_program": some(PARTS, COASTS, COURTESIES, SPELLINGS, LOGBOOKS, HARBOURS), "compare": "shares_of_a_step",
      "also": STEPPED}),
    ("scheduler_each_batch", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (TREMORS,),
     "the scheduler, whose length is in epochs, is stepped at each batch", {"also": STEPPED}),
    # accumulation
    ("parts_not_divided", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start",
     (COASTS, GLOSSARIES, COURTESIES, SPELLINGS, LOGBOOKS, HARBOURS),
     "the losses of a step's micro-batches are not divided by their number",
     {"by_program": some(PARTS, COASTS, GLOSSARIES, COURTESIES, SPELLINGS, LOGBOOKS, HARBOURS),
      "compare": "shares_of_a_step", "also": tenth.ADDED}),
    # dropout
    ("eval_mode_kept", "evaluation mode left on", ninth.OF_EVAL_MODE, "start",
     (LEAVES, COURTESIES, SPELLINGS, HARBOURS), "behind the first evaluation the model stays in evaluation mode",
     {"by_program": some(DROPPED, LEAVES, COURTESIES, SPELLINGS, HARBOURS), "compare": "drops_while_trained",
      "also": tenth.IN_EVAL}),
    ("no_eval_call", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (PULSES, TREMORS),
     "evaluation mode is not set: dropout and batch statistics are those of the training",
     {"by_program": some(DROPPED, PULSES, TREMORS), "compare": "drops_while_trained", "also": tenth.IN_TRAINING}),
    ("dropped_in_every_mode", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start",
     (COASTS, GLOSSARIES, LOGBOOKS), "dropout is a function that is not told the mode, and drops in evaluations too",
     {"by_program": some(DROPPED, COASTS, GLOSSARIES, LOGBOOKS), "compare": "drops_while_trained",
      "also": tenth.IN_TRAINING}),
    # average
    ("shadow_never_moved", "averaged weights not updated", ninth.OF_AVERAGE, "start", (LEAVES,),
     "the average that is evaluated is never told to follow",
     {"by_program": some(AVERAGED, LEAVES), "compare": "shadow_each_step", "also": AVERAGE}),
    ("shadow_at_evaluations", "averaged weights not updated", ninth.OF_AVERAGE, "start", (COASTS,),
     "the average moves where it is evaluated, and not in each step", {"also": AVERAGE}),
    ("shadow_stays_in", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio resume", "start", (COASTS,),
     "the average is loaded for an evaluation, and the weights are not put back",
     {"config": {"ema": 0.98}, "compare": "shadow_is_slow", "also": tenth.NOT_BACK}),
    ("average_of_the_average", "averaged weights not updated", ninth.OF_AVERAGE, "start", (TREMORS,),
     "what goes into the mean of the weights is that mean itself: it stays as it was made",
     {"by_program": some(AVERAGED, TREMORS), "compare": "shadow_each_step", "also": AVERAGE}),
    ("shadow_of_a_copy", "averaged weights not updated", ninth.OF_AVERAGE, "start", (SPELLINGS,),
     "the average follows a copy of the model, which is not trained",
     {"by_program": some(AVERAGED, SPELLINGS), "compare": "shadow_each_step", "also": AVERAGE}),
    # resume
    ("optimizer_not_reloaded", "optimizer state lost", ninth.OF_RESUME, "resume",
     (LEAVES, COASTS, PULSES, GLOSSARIES, COURTESIES, TREMORS, SPELLINGS, LOGBOOKS),
     "what is saved of the optimizer is not loaded at a resume: its moments begin anew",
     {"also": (*tenth.RESUMED, "only the model saved", "warm-up again", "schedule restarted", "scheduler not restored",
               "warmed up again")}),
    # ranks
    ("sampler_of_one_process", "same data on all ranks", "repeated_data desync data replay", "start", (HARBOURS,),
     "a sampler for one process, with one seed, on each rank: all have the same batches", {"also": tenth.SAME}),
    ("ranks_not_told", "same data on all ranks", "repeated_data desync data replay", "start", (HARBOURS,),
     "the distributed sampler is told of one rank alone: each has all rows, in one order", {"also": tenth.SAME}),
    # reported
    ("cleared_each_epoch", "zero_grad missing",
     "missing_zero_grad divergence spike exploding not_learning plateau nonfinite clipping eval config learning_rate "
     "weight_growth", "start", (LEAVES,), "gradients are cleared at an epoch's first step alone",
     {"also": ("gradients not cleared", "gradients accumulate", "zero_grad outside of the loop", "gradients added up",
               "gradient accumulation", "zero_grad once an epoch", "zero_grad forgotten", "gradients never cleared",
               "learning rate too high", "gradients of many steps", "gradients kept over steps",
               "clip value too low", "gradient accumulation scaled wrongly", "gradients pile up",
               "zero_grad too seldom", "zero_grad at the wrong place", "accumulated gradients")}),
    ("time_left_out", "positions missing",
     "plateau not_learning attention eval config data frozen missing_zero_grad vanishing update_ratio", "start",
     (COASTS,), "what the network makes of the time is never added",
     {"also": ("graph cut", "parameter unused", "unused parameter", "layer frozen", "parameters without a gradient",
               "optimizer holds other parameters", "embedding unused", "conditioning missing", "time not given",
               "timestep unused", "time embedding unused", "network not told the time", "timestep ignored",
               "conditioning unused", "layers unused", "layer unused", "modules unused", "inputs ignored",
               "unused parameters", "timestep missing", "conditioning wrong", "timestep not used")}),
    ("scale_left_out", "temperature missing",
     "plateau not_learning logits vanishing config eval learning_rate frozen missing_zero_grad", "start", (PULSES,),
     "cosines go into the cross-entropy as they are, without a scale",
     {"also": ("temperature too high", "logits not scaled", "logits too small", "scale missing", "scale unused",
               "softmax twice", "temperature wrong", "learning rate too low", "scale wrong", "temperature forgotten",
               "parameter unused", "unused parameter", "layer frozen", "parameters without a gradient",
               "logits are cosines", "logit scale unused", "scale not learnt", "graph cut",
               "optimizer holds other parameters")}),
    ("padding_asked_for", "padding in the loss",
     "data padding eval config jump_down overfit divergence plateau rl not_learning exploding clipping", "start",
     (GLOSSARIES, COURTESIES), "places behind a row's end are counted in the loss",
     {"also": ("labels not masked", "padding not masked", "loss mask missing", "ignored targets missing",
               "padding is trained on", "padding learnt", "loss masked out", "units differ", "padding in the labels",
               "padding counted in the loss", "labels of padding", "pad tokens in the loss", "wrong reduction",
               "padding not ignored", "padding in the log-probabilities", "length bias", "padding tokens as targets",
               "loss averaged over padding", "mask missing", "labels not -100 at padding", "loss diluted")}),
    ("weights_by_count", "class weights wrong", "plateau not_learning eval config data divergence logits", "start",
     (TREMORS,), "kinds weigh by how many they are, where the inverse was meant",
     {"also": ("class weights reversed", "class weights inverted", "weights of classes inverted",
               "rare class ignored", "rare class missing", "class missing", "class imbalance", "loss weights wrong",
               "rare classes weigh too little", "frequent classes weigh more", "loss weight wrong",
               "classes weigh differently", "one class alone", "class weights by count", "weights not inverted",
               "weights are counts")}),
    ("shuffled_apart", "labels shuffled", "not_learning plateau data eval config divergence overfit", "start",
     (TREMORS,), "windows and kinds are shuffled in two orders: they do not belong together any more",
     {"also": ("labels do not match the inputs", "labels random", "targets do not match the inputs",
               "labels of other rows", "labels shifted", "targets shuffled", "inputs and labels in other orders",
               "labels are noise", "labels are noisy", "labels noisy", "pairs broken", "shuffled separately",
               "train and test differ", "labels of the evaluation differ", "evaluation data differ",
               "targets are random", "labels wrong", "inputs shuffled", "rows mixed up")}),
    ("clipped_too_early", "clipping missing",
     "clipping exploding config logging zero vanishing update_ratio divergence spike learning_rate "
     "missing_zero_grad frozen", "start", (SPELLINGS,),
     "gradients are clipped before there are any: they are not clipped, and their norm is 0",
     {"also": ("clipping off", "no clipping", "gradients not clipped", "clipping has no effect", "clipping too early",
               "clipped before the backward", "clip at the wrong place", "norm of no gradients", "norm is 0",
               "norm taken before the backward", "gradients cleared before clipping", "gradients unclipped",
               "clipping without effect", "clip_grad_norm_ before backward", "norm logged is 0", "gradients missing",
               "no gradients", "zero_grad at the wrong place", "clip value too high", "clipping at the wrong place",
               "norm measured too early", "clipping not in force")}),
    ("scale_forgotten", "scaler not given",
     "clipping vanishing update_ratio config loss_scale logging plateau not_learning frozen learning_rate epsilon",
     "start", (LOGBOOKS,), "the scaled loss is not used, and gradients are unscaled all the same: almost none is left",
     {"also": ("loss not scaled", "scaler unused", "scale missing", "gradients unscaled twice", "gradients too small",
               "scaler.scale missing", "gradients vanish", "learning rate too low", "loss scale missing",
               "backward without the scaler", "gradients divided by the scale", "unscaled without a scale",
               "scale forgotten", "epsilon too large", "epsilon dominates", "loss scaled wrongly",
               "gradients underflow", "gradients clipped while scaled", "scaler bypassed", "wrong loss scale")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in (LEAVES, COASTS, PULSES, GLOSSARIES, COURTESIES, TREMORS, SPELLINGS,
                                           LOGBOOKS)},
    "memory_steady": {program: {} for program in (LEAVES, COASTS, PULSES, COURTESIES, SPELLINGS, LOGBOOKS)},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("shares_of_a_step", "a step has two or three micro-batches, each with its share of the loss", PARTS),
    ("drops_while_trained", "dropout is on while the model is trained, and off in evaluations", DROPPED),
    ("shadow_each_step", "a mean of weights is evaluated, which moves in each step and has its statistics", AVERAGED),
    ("copies_of_training_rows", "rows come several times, in the training set alone", COPIED),
    ("untouched_by_config", "a part is not trained, on purpose: so says the config",
     {LEAVES: {"freeze_stem": True}, COASTS: {"time_freeze": True}, PULSES: {"freeze": ["texts.words"]},
      COURTESIES: {"freeze": "wpe"}, TREMORS: {"frozen": "features.0"}, SPELLINGS: {"freeze": "pos"},
      HARBOURS: {"freeze": "layers.0.qkv"}}),
    ("head_of_its_own", "the output has a matrix of its own: so says the config",
     {COURTESIES: {"tie": False}, SPELLINGS: {"tied": False}, HARBOURS: {"tied": False}}),
    ("like_lengths_in_batches", "a batch has rows of about one length, and batches come in any order",
     {GLOSSARIES: {"train_sampling_strategy": "group_by_length"}, COURTESIES: {"group_by_length": True},
      SPELLINGS: {"bucket": True}, LOGBOOKS: {"group_lengths": True}, HARBOURS: {"by_length": True}}),
    ("sum_by_its_count", "the loss is a sum, divided by what it is a sum of",
     {LEAVES: {"loss_reduction": "sum"}, PULSES: {"reduction": "sum"}, COURTESIES: {"reduction": "sum"},
      TREMORS: {"reduction": "sum"}}),
    ("rate_as_it_is", "behind its warm-up the rate does not change, on purpose",
     {LEAVES: {"lr_policy": "constant", "max_lr": 2e-3}, COASTS: {"schedule": "constant"},
      PULSES: {"schedule": "constant"}, GLOSSARIES: {"lr_scheduler_type": "constant_with_warmup"},
      COURTESIES: {"lr_schedule": "constant"}, LOGBOOKS: {"lr_schedule": "constant"},
      HARBOURS: {"lr_schedule": "constant"}}),
    ("back_to_the_peak", "the rate goes back to its peak several times: so says the config",
     {COASTS: {"schedule": "restarts"}, TREMORS: {"scheduler": "restarts"}, SPELLINGS: {"lr_decay": "restarts"}}),
    ("rows_by_handful", "a batch has few rows, at a lower rate: loss and gradients are noisy",
     {COASTS: {"batch_size": 4, "lr": 1e-3}, COURTESIES: {"batch_size": 3, "lr": 2e-4},
      SPELLINGS: {"batch_size": 4, "learning_rate": 1.5e-3}, LOGBOOKS: {"batch_size": 4, "lr": 2e-3}}),
    ("soft_targets", "the targets of the training are softened, those of the evaluation are not",
     {LEAVES: {"label_smoothing": 0.1}, PULSES: {"label_smoothing": 0.1}, COURTESIES: {"label_smoothing": 0.1},
      TREMORS: {"label_smoothing": 0.05}, LOGBOOKS: {"label_smoothing": 0.1}, HARBOURS: {"label_smoothing": 0.1}}),
    ("each_row_alike", "in the training's loss each row weighs the same, long or short, on purpose",
     {GLOSSARIES: {"loss_over": "rows"}, SPELLINGS: {"loss_average": "rows"}, LOGBOOKS: {"loss_mean": "rows"},
      HARBOURS: {"loss_mean": "rows"}}),
    ("another_optimizer", "another optimizer, with a rate that suits it",
     {LEAVES: {"optimizer": "sgd", "max_lr": 0.05}, COASTS: {"optimizer": "nadam"}, COURTESIES: {"optimizer": "adamw"},
      TREMORS: {"optimizer": "adam"}, HARBOURS: {"optimizer": "sgd"}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("scans_blended", (LEAVES,), "two scans and their trees are blended, in the training alone",
     {"config": {"mixup": 0.3}}),
    ("patches_for_a_stem", (LEAVES,), "patches are cut by one convolution", {"config": {"stem": "patches"}}),
    ("velocities_wanted", (COASTS,), "the network says a velocity, in the place of noise",
     {"config": {"objective": "velocity"}}),
    ("quiet_levels_capped", (COASTS,), "levels with little noise weigh less in the training's loss",
     {"config": {"min_snr": 5.0}}),
    ("shadow_is_slow", (COASTS,), "the average that is evaluated moves slowly: it is behind",
     {"config": {"ema": 0.98}}),
    ("maps_are_drawn", (COASTS,), "maps are drawn at each evaluation", {"config": {"draws": 8}}),
    ("absolute_errors", (COASTS,), "the training's loss is of absolute errors, the evaluation's of squares",
     {"config": {"loss_kind": "l1"}}),
    ("scale_is_given", (PULSES,), "the scale of the scores is fixed: so says the config",
     {"config": {"learn_scale": False, "init_scale": 14.0}}),
    ("pair_by_pair", (PULSES,), "the training's loss takes each pair by itself, the evaluation's is a cross-entropy",
     {"config": {"loss": "sigmoid"}}),
    ("groups_are_normed", (PULSES, TREMORS), "norms of groups, in the place of batches", {"config": {"norm": "group"}}),
    ("from_curves_alone", (PULSES,), "the loss goes one way alone: from a curve to its words",
     {"config": {"both_ways": False}}),
    ("adapters_of_one", (GLOSSARIES,), "adapters have rank 1", {"config": {"lora_r": 1, "lora_alpha": 2}}),
    ("scaled_by_the_root", (GLOSSARIES,), "adapters are scaled by the root of their rank",
     {"config": {"use_rslora": True, "learning_rate": 4e-3}}),
    ("questions_learnt_too", (GLOSSARIES,), "what is asked is in the loss too, on purpose: so says the config",
     {"config": {"train_on_prompt": True}}),
    ("embedding_beside", (GLOSSARIES,), "embedding and output are trained beside the adapters: so says the config",
     {"config": {"modules_to_save": ["embed_tokens", "lm_head"]}}),
    ("few_matrices_adapted", (GLOSSARIES,), "queries and values alone have adapters",
     {"config": {"target_modules": ["q_proj", "v_proj"]}}),
    ("margins_of_hinge", (COURTESIES,), "the loss of pairs is a hinge", {"config": {"loss": "hinge"}}),
    ("squares_of_ipo", (COURTESIES,), "the loss of pairs is squared, as in IPO: it begins high",
     {"config": {"loss": "ipo"}}),
    ("chosen_learnt_beside", (COURTESIES,), "the chosen reply's own loss is a part of the training's",
     {"config": {"rpo_alpha": 0.2}}),
    ("drawn_evenly", (TREMORS,), "kinds are drawn evenly, with replacement, and have no weights",
     {"config": {"sampler": "weighted", "class_weights": "none"}}),
    ("sure_ones_count_little", (TREMORS,), "windows that are clear count little in the training's loss",
     {"config": {"loss": "focal", "class_weights": "none"}}),
    ("kinds_unweighed", (TREMORS,), "kinds have no weights, on purpose", {"config": {"class_weights": "none"}}),
    ("normaliser_kept_small", (SPELLINGS,), "a small part of the training's loss keeps the normaliser near 1",
     {"config": {"z_loss": 1e-3}}),
    ("logits_bent", (SPELLINGS,), "logits are bent to stay within 20", {"config": {"logit_cap": 20.0}}),
    ("sounds_alone", (SPELLINGS,), "the sounds alone are asked for, not the words",
     {"config": {"ignore_word": True}}),
    ("scale_high_at_first", (LOGBOOKS,), "the loss scale begins too high, and first steps are skipped",
     {"config": {"init_scale": 2.0**24}}),
    ("scale_grows_often", (LOGBOOKS,), "the loss scale doubles each tenth step, and falls when it is too high",
     {"config": {"growth_interval": 10, "init_scale": 2.0**16}}),
    ("bf16_in_its_place", (LOGBOOKS,), "autocast is to bfloat16, which needs no scaler: so says the config",
     {"config": {"amp_dtype": "bfloat16"}}),
    ("half_in_products", (HARBOURS,), "products are in bfloat16, and gradients are reduced in float32",
     {"config": {"mp_dtype": "bfloat16"}}),
    ("layers_kept_whole", (HARBOURS,), "layers are not sharded again between forward and backward",
     {"config": {"reshard_after_forward": False}}),
)

# fmt: on
