"""The thirteenth half of the bench, which was put away and is open: programs, faults and healthy variants, as words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a vision transformer, a diffusion model with an average of the weights, two towers
with InfoNCE, low-rank adapters in a language model, preferences of a recurrent one, a classifier of rare kinds; each as
another ordinary engineer writes it. Most faults are of the fifteen kinds that the twelfth half has, each as the line
that a person gets wrong in that program; those in `REPORTED` are others that people report of such trainings. Who wrote
them had read no rule, and did not look at what the doctor says. A fault is called by any name that a person would give
it, and every kind of finding that would be right of it is right; the names that the eleventh half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eleventh, ninth, tenth
from halves.ninth import Row, Settings, some

AZULEJOS, DUNES, PERFUMES = "azulejos", "dunes", "perfumes"
INSCRIPTIONS, FAREWELLS, HOTLINES = "inscriptions", "farewells", "hotlines"
PROGRAMS = (AZULEJOS, DUNES, PERFUMES, INSCRIPTIONS, FAREWELLS, HOTLINES)
STEPS = {AZULEJOS: 180, DUNES: 200, PERFUMES: 180, INSCRIPTIONS: 180, FAREWELLS: 160, HOTLINES: 192}
REPORTED = frozenset({
    "patches_viewed", "mixup_targets_unmixed", "cumprod_forgotten", "one_time_for_all", "features_not_normalised",
    "prompt_left_in_labels", "end_masked", "reference_not_copied", "padding_asked_for",
    "weights_in_other_order", "mask_upside_down",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    DUNES: {"accumulate_grad": 4, "train_batch": 24}, INSCRIPTIONS: {"gradient_accumulation_steps": 2},
    FAREWELLS: {"grad_acc": 2}, HOTLINES: {"accumulate_grad_batches": 2},
}
DROPPED: Settings = {
    AZULEJOS: {"drop_rate": 0.3, "train_images": 480}, DUNES: {"dropout": 0.5}, PERFUMES: {"dropout": 0.4},
    INSCRIPTIONS: {"lora_dropout": 0.4}, FAREWELLS: {"drop": 0.4, "pairs": 320},
    HOTLINES: {"dropout": 0.4, "calls": 384},
}
AVERAGED: Settings = {AZULEJOS: {"model_ema_decay": 0.9}, DUNES: {"ema": 0.8}, PERFUMES: {"ema": 0.9}}
SLOWLY: Settings = {
    AZULEJOS: {"model_ema_decay": 0.9999}, DUNES: {"ema": 0.9999}, PERFUMES: {"ema": 0.9999},
}
COPIED: Settings = {
    AZULEJOS: {"photos_per_tile": 4, "train_images": 1260}, DUNES: {"visits": 8, "surveys": 880},
    PERFUMES: {"samples_per_perfume": 4, "perfumes": 1200}, HOTLINES: {"rare_copies": 6, "calls": 768},
}
DESCENT: Settings = {
    AZULEJOS: {"opt": "sgd", "base_lr": 0.01}, PERFUMES: {"optim": "sgd", "lr": 0.02},
    DUNES: {"optimizer": "sgd", "peak_lr": 0.02, "max_grad_norm": 100.0},
    FAREWELLS: {"optim": "sgd", "step_size": 0.05}, HOTLINES: {"optimizer": "sgd", "lr": 0.03},
}
DESCENT_IN_PARTS: Settings = {
    DUNES: {"optimizer": "sgd", "peak_lr": 0.03, "max_grad_norm": 100.0, **PARTS[DUNES]},
    HOTLINES: {"optimizer": "sgd", "lr": 0.2, "accumulate_grad_batches": 4, "train_batch_size": 16},
}
SAVED: Mapping[str, Any] = {"modules_to_save": "embed"}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*eleventh.SUMMED, "loss is a sum", "reduction='sum'", "loss grows with the batch", "loss not normalised",
          "loss not divided by the number of tokens", "loss scale wrong")
GRAPHS = (*eleventh.GRAPHS, "memory grows", "outputs kept", "outputs not detached", "detach missing",
          "evaluation tracks gradients", "tensors kept over evaluations")
TWICE = (*tenth.TWICE, "double softmax", "softmax before the loss", "model returns probabilities",
         "log_softmax of probabilities", "cross-entropy of probabilities")
SHIFTED = (*eleventh.SHIFTED, "label shifted twice", "double shift", "shift applied twice", "header row counted",
           "rows misaligned", "pairs misaligned", "one class too many", "class 0 never trained", "labels begin at 1",
           "label offset", "index off by one")
FROZEN = (*tenth.FROZEN, "trunk frozen", "backbone frozen", "tower frozen", "adapters not trained",
          "lora not trained", "wrong parameters trainable", "wrong parameters frozen", "condition reversed",
          "untrained layers frozen", "random features", "most of the model frozen", "encoder is not trained")
TIE = (*eleventh.TIE, "embedding copied", "head keeps the old embedding", "saved module is a copy",
       "modules_to_save breaks the tie", "two copies of the embedding", "tied weights diverge", "tied by clone",
       "output matrix replaced after the optimizer was made", "weights untied", "tie broken")
SORTED = (*tenth.SORTED, "grouped by class", "batches of one class", "batches of one kind", "data in file order",
          "no shuffle", "shuffle=False", "data ordered", "curriculum by accident")
LEAK = (*eleventh.LEAK, "copies on both sides of the split", "near duplicates across the split",
        "split after duplication", "duplicates across the split", "oversampled then split", "train set contains eval",
        "evaluation rows in the training set", "contamination", "split by row, not by group")
FIGURES = (*tenth.FIGURES, "normalisation constants of another set", "imagenet normalisation", "stale statistics",
           "stale normalisation statistics", "scaler of other data", "wrong scaler", "old statistics",
           "eval transform differs", "preprocessing mismatch")
STEPPED = (*eleventh.STEPPED, "scheduler stepped per batch in place of epoch", "schedule stepped too often",
           "scheduler stepped twice", "learning rate decays too fast", "schedule too fast",
           "learning rate at 0 too soon", "learning rate reaches zero early")
ADDED = (*tenth.ADDED, "loss not divided by the number of micro-batches", "accumulation without division",
         "gradients summed over micro-batches", "effective learning rate too high")
IN_EVAL = (*tenth.IN_EVAL, "train mode not set again", "train() not called after eval()", "dropout switched off",
           "no dropout in training", "model stays in evaluation mode")
IN_TRAINING = (*tenth.IN_TRAINING, "eval() not called", "evaluation with dropout", "dropout at evaluation",
               "evaluation is noisy")
AVERAGE = (*eleventh.AVERAGE, "ema never updated", "ema update missing", "ema decay for long runs",
           "ema without warm-up", "ema still at its start", "ema barely moves", "decay too close to 1",
           "average not bias-corrected", "evaluated weights are those of the start")
NOT_BACK = (*tenth.NOT_BACK, "ema weights left in the model", "ema not swapped out", "weights not swapped back",
            "training continues from the ema")
RESUMED = (*tenth.RESUMED, "only the model saved", "momentum buffers lost", "optimizer not in the checkpoint",
           "adam state lost", "resume with a fresh optimizer", "optimizer not resumed")

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # reported
    "features_not_normalised": {PERFUMES: {}},
    "prompt_left_in_labels": {INSCRIPTIONS: {}},
    "end_masked": {INSCRIPTIONS: {}},
    "reference_not_copied": {FAREWELLS: {}},
    "padding_asked_for": {FAREWELLS: {}},
    "weights_in_other_order": {HOTLINES: {}},
    "mask_upside_down": {HOTLINES: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("batch_totalled", "loss summed", ninth.OF_SUMS, "start", (AZULEJOS, PERFUMES, HOTLINES),
     "the training's cross-entropy is a sum over the batch, where a mean was meant",
     {"by_program": some(DESCENT, AZULEJOS, PERFUMES, HOTLINES), "compare": "optimizer_of_another_kind",
      "also": SUMMED}),
    ("squares_totalled", "loss summed", ninth.OF_SUMS, "start", (DUNES,),
     "squares are summed over a dune's length, and divided by the number of rows alone",
     {"by_program": some(DESCENT, DUNES), "compare": "optimizer_of_another_kind", "also": SUMMED}),
    ("words_totalled", "loss summed", ninth.OF_SUMS, "start", (INSCRIPTIONS,),
     "the training's loss is a sum over words, divided by the number of rows", {"also": SUMMED}),
    ("pair_losses_totalled", "loss summed", ninth.OF_SUMS, "start", (FAREWELLS,),
     "losses of a batch's pairs are summed in the training, where a mean was meant",
     {"by_program": some(DESCENT, FAREWELLS), "compare": "optimizer_of_another_kind", "also": SUMMED}),
    # forgotten no_grad
    ("eval_tracks_gradients", "no_grad missing", "memory eval data config", "start",
     (AZULEJOS, DUNES, INSCRIPTIONS, FAREWELLS, HOTLINES),
     "evaluations run without no_grad, and what comes out of them is kept with its graph",
     {"also": GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("softmax_then_loss", "softmax twice", ninth.OF_SOFTMAX, "start", (AZULEJOS, PERFUMES, INSCRIPTIONS, HOTLINES),
     "a softmax is taken before a cross-entropy that takes its own", {"also": TWICE}),
    # label off by one
    ("class_ids_from_one", "labels shifted", ninth.OF_LABELS, "start", (AZULEJOS, HOTLINES),
     "the training's kinds begin at 1 and the head has one more; those that are held out begin at 0",
     {"also": SHIFTED}),
    ("row_of_heads_counted", "labels shifted", ninth.OF_LABELS, "start", (PERFUMES,),
     "in the training each spectrum has the notes of the row before", {"also": SHIFTED}),
    ("labels_shifted_by_hand", "labels shifted", ninth.OF_LABELS, "start", (INSCRIPTIONS,),
     "the training's labels are shifted by hand, and the loss shifts them once more", {"also": SHIFTED}),
    ("logps_at_own_place", "labels shifted", ninth.OF_LABELS + " rl logits attention zero", "start", (FAREWELLS,),
     "log-probabilities of words are read at their own places, where the one before foretells them",
     {"also": SHIFTED}),
    # wrong part frozen
    ("freeze_condition_wrong", "layer frozen", ninth.OF_FROZEN, "start",
     (AZULEJOS, DUNES, INSCRIPTIONS, FAREWELLS, HOTLINES),
     "a condition on names freezes what was to be trained, and leaves a small part", {"also": FROZEN}),
    ("untrained_tower_frozen", "layer frozen", ninth.OF_FROZEN, "start", (PERFUMES,),
     "one tower is frozen as a pretrained one is, and is new", {"also": FROZEN}),
    # weight tying broken
    ("tie_undone", "optimizer holds other parameters", ninth.OF_TIE, "start", (FAREWELLS,),
     "the output, which was the embedding, is tied to it once more by value: they are two", {"also": TIE}),
    ("embedding_saved_as_copy", "optimizer holds other parameters", ninth.OF_TIE, "start", (INSCRIPTIONS,),
     "the embedding is trained beside the adapters as a copy, and the output stays the old one",
     {"config": SAVED, "compare": "embedding_trained_too", "also": TIE}),
    # order
    ("rows_grouped_by_class", "data sorted", ninth.OF_ORDER, "start", (AZULEJOS, DUNES, PERFUMES, HOTLINES),
     "rows come one kind behind the other, in each epoch", {"also": SORTED}),
    ("shortest_rows_first", "data sorted", ninth.OF_ORDER, "start", (INSCRIPTIONS,),
     "rows come by their length, the shortest first, in each epoch", {"also": SORTED}),
    # leaking validation
    ("copies_dealt_to_both", "validation leak", ninth.OF_LEAK, "start", (AZULEJOS, DUNES, PERFUMES, HOTLINES),
     "several rows are of one thing, and rows are dealt out to both sides",
     {"by_program": COPIED, "compare": "repeats_in_training_alone", "also": LEAK}),
    ("held_out_not_removed", "validation leak", ninth.OF_LEAK, "start", (INSCRIPTIONS, FAREWELLS),
     "the rows that are held out are in the training's file as well, which has few others", {"also": LEAK}),
    # stale statistics
    ("eval_scaled_by_others", "inputs not normalised", ninth.OF_STATISTICS, "start", (AZULEJOS, DUNES, PERFUMES),
     "what is held out is normalised by figures of other data, the training by its own", {"also": FIGURES}),
    # scheduler
    ("epoch_schedule_each_batch", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (AZULEJOS, PERFUMES), "the scheduler, whose length is in epochs, is stepped with each batch",
     {"also": STEPPED}),
    ("schedule_each_micro", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (DUNES, INSCRIPTIONS, FAREWELLS, HOTLINES),
     "the scheduler is stepped behind each backward pass, of which a step has several",
     {"by_program": PARTS, "compare": "each_part_its_share", "also": STEPPED}),
    # accumulation
    ("backward_undivided", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (DUNES, HOTLINES),
     "losses of micro-batches go into backward whole, and their gradients add up",
     {"by_program": DESCENT_IN_PARTS, "compare": "parts_by_plain_descent", "also": ADDED}),
    # dropout
    ("train_mode_not_set_again", "evaluation mode left on", ninth.OF_EVAL_MODE, "start",
     (AZULEJOS, HOTLINES), "behind the first evaluation the model stays in evaluation mode",
     {"by_program": some(DROPPED, AZULEJOS, HOTLINES), "compare": "drops_in_training_alone", "also": IN_EVAL}),
    ("evaluated_while_training", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start",
     (AZULEJOS, DUNES, PERFUMES, INSCRIPTIONS, FAREWELLS),
     "evaluation mode is never set: dropout is on where it is evaluated",
     {"by_program": some(DROPPED, AZULEJOS, DUNES, PERFUMES, INSCRIPTIONS, FAREWELLS),
      "compare": "drops_in_training_alone", "also": IN_TRAINING}),
    # average
    ("ema_decay_of_long_runs", "averaged weights not updated", ninth.OF_AVERAGE, "start",
     (AZULEJOS, DUNES, PERFUMES),
     "the average that is evaluated has a decay of 0.9999, in a run of some hundred steps",
     {"by_program": SLOWLY, "compare": "average_keeps_up", "also": (*AVERAGE, "decay of the average too slow")}),
    ("ema_update_missing", "averaged weights not updated", ninth.OF_AVERAGE, "start",
     (AZULEJOS, DUNES, PERFUMES), "the average that is evaluated is made at the start, and never updated",
     {"by_program": AVERAGED, "compare": "average_keeps_up", "also": AVERAGE}),
    ("ema_weights_left_in", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio resume", "start", (DUNES,),
     "the average is loaded for an evaluation, and the training goes on from it",
     {"config": {"ema": 0.97}, "compare": "average_slower", "also": NOT_BACK}),
    # resume
    ("optimizer_state_dropped", "optimizer state lost", ninth.OF_RESUME, "resume", (PERFUMES, INSCRIPTIONS, HOTLINES),
     "at a resume weights and schedule are loaded, and the optimizer begins anew", {"also": RESUMED}),
    # reported
    ("patches_viewed", "labels do not match the inputs",
     "plateau not_learning eval config data attention overfit frozen update_ratio", "start", (AZULEJOS,),
     "patches are cut by a reshape without a permutation: a patch is a strip of rows of one colour",
     {"also": ("patches wrong", "patches scrambled", "reshape without permute", "permute missing", "view wrong",
               "pixels scrambled", "patchify wrong", "patch embedding wrong", "axes mixed up", "inputs shuffled",
               "inputs scrambled", "inputs do not reach the output", "learning rate too low", "reshape wrong",
               "dimensions mixed up", "wrong axis", "inputs mixed up", "spatial structure lost", "overfitting",
               "tokens are not patches", "rows in place of patches", "positions wrong")}),
    ("mixup_targets_unmixed", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config", "start", (AZULEJOS,),
     "pictures are mixed, and the targets are those of the one that has the smaller share",
     {"config": {"mixup": True}, "compare": "mixed_with_another",
      "also": ("mixup wrong", "targets not mixed", "labels shuffled", "labels of other rows", "labels shifted",
               "mixup labels swapped", "labels noisy", "labels are noisy", "targets do not match the inputs",
               "labels random", "mixup target wrong", "wrong labels", "labels wrong", "shares swapped",
               "mixing coefficient swapped", "train and test differ", "labels of the evaluation differ",
               "evaluation data differ", "evaluation labels are others", "half of the labels are wrong",
               "augmentation of the inputs alone", "lambda swapped")}),
    ("cumprod_forgotten", "noise schedule wrong",
     "eval overfit data divergence plateau config jump_down not_learning", "start", (DUNES,),
     "the training's noise is by alphas, where their product was meant: there is hardly any",
     {"also": ("cumprod missing", "alpha bar wrong", "alphas in place of alpha bar", "too little noise",
               "train and test differ", "evaluation data differ", "evaluation inputs differ", "noise too small",
               "noise scale wrong", "noise level wrong", "inputs hardly noisy", "schedule of the noise wrong",
               "labels do not match the inputs", "overfitting", "inputs of the evaluation differ",
               "distribution shift", "betas wrong", "diffusion schedule wrong", "inputs not noised",
               "noise schedule too weak",
               "noising differs", "signal to noise ratio wrong", "targets wrong", "inputs not normalised",
               "normalisation differs")}),
    ("one_time_for_all", "time is the same for the whole batch",
     "spike divergence data plateau eval config clipping exploding not_learning repeated_data", "start", (DUNES,),
     "a step draws one time, which is that of all its rows",
     {"also": ("one timestep for the batch", "same timestep for all rows", "timestep drawn once", "times not drawn",
               "timesteps repeat", "same time in the batch", "time drawn per batch", "bad batch", "noisy loss",
               "loss is noisy", "batch has one timestep", "randint of size 1", "data sorted", "timestep broadcast",
               "gradient noise", "noise is the same in each step", "batch too small", "learning rate too high",
               "non-iid batches", "batches of one kind", "no variety in the batch", "times equal in a batch")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in PROGRAMS},
    "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("each_part_its_share", "a step has several micro-batches, and each gives its share of the loss", PARTS),
    ("drops_in_training_alone", "dropout is on in the training, and off in evaluations", DROPPED),
    ("average_keeps_up", "an average of the weights is evaluated, which follows them",
     AVERAGED),
    ("repeats_in_training_alone", "several rows are of one thing, in the training set alone", COPIED),
    ("left_as_it_is", "a part is not trained, on purpose: so says the config",
     {AZULEJOS: {"freeze": "pos_embed"}, DUNES: {"freeze": "time"}, PERFUMES: {"freeze": "notes.bag"},
      INSCRIPTIONS: {"freeze": "layers.0"}, FAREWELLS: {"frozen": "emb"}, HOTLINES: {"freeze": "places"}}),
    ("lengths_in_buckets", "rows of a batch are about as long, and batches come in any order",
     {INSCRIPTIONS: {"group_by_length": True}, FAREWELLS: {"bucket": True}, HOTLINES: {"length_buckets": True}}),
    ("sum_then_divided", "the loss is a sum, and divided by how many it is of",
     {AZULEJOS: {"loss_reduction": "sum"}, PERFUMES: {"loss_sum": True}, HOTLINES: {"reduction": "sum"}}),
    ("one_rate_throughout", "the rate does not fall, on purpose",
     {AZULEJOS: {"sched": "constant", "base_lr": 1e-3}, DUNES: {"schedule": "constant", "peak_lr": 1e-3},
      PERFUMES: {"lr_policy": "none", "lr": 2e-3}, INSCRIPTIONS: {"lr_scheduler_type": "constant"},
      FAREWELLS: {"decay": "none"}, HOTLINES: {"lr_schedule": "constant", "lr": 2e-3}}),
    ("batches_are_small", "a batch has few rows, at a lower rate: loss and gradients are noisy",
     {AZULEJOS: {"batch_size": 8, "base_lr": 1e-3}, DUNES: {"train_batch": 8, "peak_lr": 2e-3},
      PERFUMES: {"bsz": 12, "lr": 2e-3}, INSCRIPTIONS: {"per_device_batch": 4, "learning_rate": 5e-3},
      FAREWELLS: {"pairs_per_batch": 4}, HOTLINES: {"train_batch_size": 8, "lr": 1.5e-3}}),
    ("targets_softened", "targets are softer in the training, and not where it is evaluated",
     {AZULEJOS: {"smoothing": 0.1}, INSCRIPTIONS: {"label_smoothing": 0.1}, FAREWELLS: {"label_noise": 0.1},
      HOTLINES: {"label_smoothing": 0.1}}),
    ("optimizer_of_another_kind", "another optimizer, at a rate of its own",
     DESCENT),
    ("parts_by_plain_descent", "a step has several micro-batches with their shares, and descent is plain",
     DESCENT_IN_PARTS),
    ("moments_as_others_take_them", "another optimizer with moments, at a rate of its own",
     {DUNES: {"optimizer": "nadam"}, FAREWELLS: {"optim": "rmsprop", "step_size": 2e-4}}),
    ("decays_much", "weights decay far more than is usual",
     {AZULEJOS: {"weight_decay": 0.5}, PERFUMES: {"weight_decay": 0.3}, HOTLINES: {"weight_decay": 0.5}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("mixed_with_another", (AZULEJOS,), "pictures and their losses are mixed, in the training alone",
     {"config": {"mixup": True}}),
    ("grain_of_old_film", (AZULEJOS,), "pictures are noisier: some can't be told", {"config": {"grain": 1.5}}),
    ("average_slower", (DUNES,), "the average that is evaluated is slow: it is behind", {"config": {"ema": 0.97}}),
    ("velocity_foretold", (DUNES,), "what is predicted is the velocity, in both losses: so says the config",
     {"config": {"predict": "v"}}),
    ("weighed_by_snr", (DUNES,), "times with little noise weigh little in the training, and evenly in evaluations",
     {"config": {"min_snr": 5.0}}),
    ("errors_kept_small", (DUNES,), "large errors count linearly in the training's loss",
     {"config": {"loss_type": "huber"}}),
    ("wind_untold", (DUNES,), "the wind is left out in half of the training's rows, in no evaluation",
     {"config": {"p_uncond": 0.5}}),
    ("temperature_given", (PERFUMES,), "the temperature is fixed, on purpose",
     {"config": {"learn_temperature": False, "temperature": 0.15}}),
    ("asked_one_way", (PERFUMES,), "notes ask for spectra, and not the other way: so says the config",
     {"config": {"direction": "notes"}}),
    ("instrument_is_old", (PERFUMES,), "spectra are noisier: some can't be told", {"config": {"noise": 0.8}}),
    ("embedding_trained_too", (INSCRIPTIONS,), "the embedding is trained beside the adapters, and stays the output",
     {"config": SAVED}),
    ("rank_of_two", (INSCRIPTIONS,), "adapters of rank 2 in attention alone: few parameters are trained",
     {"config": {"lora_r": 2, "lora_alpha": 4, "target_modules": "qkv proj"}}),
    ("inputs_learnt_too", (INSCRIPTIONS,), "prompts are in both losses, on purpose: so says the config",
     {"config": {"train_on_inputs": True}}),
    ("noisy_embeddings", (INSCRIPTIONS,), "embeddings are noisy, in the training alone",
     {"config": {"neftune_noise_alpha": 5.0}}),
    ("output_of_its_own", (FAREWELLS,), "embedding and output are a matrix each: so says the config",
     {"config": {"share_embedding": False}}),
    ("squares_of_margins", (FAREWELLS,), "margins are drawn to a given one, by their squares",
     {"config": {"objective": "ipo"}}),
    ("margin_is_enough", (FAREWELLS,), "pairs that are a margin apart count no more",
     {"config": {"objective": "hinge"}}),
    ("judges_often_err", (FAREWELLS,), "a quarter of the pairs is the wrong way round, here and there",
     {"config": {"mistaken": 0.25}}),
    ("kept_close", (FAREWELLS,), "a large beta: the policy stays near the reference",
     {"config": {"beta": 1.0}}),
    ("easy_calls_fade", (HOTLINES,), "calls that are clear weigh little in the training's loss",
     {"config": {"focal_gamma": 2.0}}),
    ("kinds_in_balance", (HOTLINES,), "kinds are drawn evenly, with replacement, and have no weights",
     {"config": {"sampler": "balanced", "class_weight": "none"}}),
    ("no_weights_for_kinds", (HOTLINES,), "kinds have no weights, on purpose", {"config": {"class_weight": "none"}}),
    ("labels_in_haste", (HOTLINES,), "one label in ten of the training is of chance",
     {"config": {"wrong_labels": 0.1}}),
)

# fmt: on
