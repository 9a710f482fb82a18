"""The fourteenth half of the bench, which was put away and is open: programs, faults and healthy variants, as words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a language model in pure bfloat16, one on two ranks, adapters beside a base of four
bits, a convolutional classifier with an average of its weights, a diffusion model that says a velocity, a recurrent
classifier of rare states; each as another ordinary engineer writes it. Most faults are of the fifteen kinds that the
thirteenth half has, each as the line that a person gets wrong in that program; those in `REPORTED` are others that
people report of such trainings. Who wrote them had read no rule, and did not look at what the doctor says. A fault is
called by any name that a person would give it, and every kind of finding that would be right of it is right; the names
that the thirteenth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import ninth, tenth, thirteenth
from halves.ninth import Row, Settings, some

ALMANACS, FERRIES, ERRANDS = "almanacs", "ferries", "errands"
MUSHROOMS, KITES, VALVES = "mushrooms", "kites", "valves"
PROGRAMS = (ALMANACS, FERRIES, ERRANDS, MUSHROOMS, KITES, VALVES)
STEPS = {ALMANACS: 200, FERRIES: 180, ERRANDS: 180, MUSHROOMS: 210, KITES: 180, VALVES: 192}
REPORTED = frozenset({
    "causal_flag_left_out", "warmup_of_long_runs", "padding_asked_for", "sync_condition_reversed",
    "prompt_left_in_labels", "end_masked", "augmented_at_validation", "cleared_each_epoch", "noise_shared_by_rows",
    "target_is_noise_model_says_v", "last_step_of_padded", "weights_in_other_order",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    ALMANACS: {"grad_accum_steps": 2}, FERRIES: {"accumulation_steps": 2}, ERRANDS: {"accumulate": 2},
    KITES: {"gradient_accumulate_every": 2, "images_per_batch": 16}, VALVES: {"accumulate": 2, "batchsize": 16},
}
DROPPED: Settings = {
    ALMANACS: {"dropout": 0.2, "train_blocks": 96}, FERRIES: {"p_drop": 0.2, "announcements": 144},
    ERRANDS: {"lora_dropout": 0.5}, MUSHROOMS: {"dropout": 0.5, "pictures": 320},
    KITES: {"dropout": 0.5}, VALVES: {"dropout": 0.5, "recordings": 512, "lr_gamma": 0.85},
}
COPIED: Settings = {
    MUSHROOMS: {"shots": 4, "pictures": 1260}, VALVES: {"oversample": 5, "recordings": 960, "lr_gamma": 0.5},
}
DESCENT: Settings = {
    ALMANACS: {"optimizer": "sgd", "max_lr": 0.5, "min_lr": 0.05, "grad_clip": 0.0},
    FERRIES: {"optimizer": "sgd", "learning_rate": 0.3, "max_norm": 100.0},
    KITES: {"opt": "sgd", "train_lr": 0.05, "max_grad_norm": 100.0},
    MUSHROOMS: {"lr": 0.1, "momentum": 0.0}, VALVES: {"optimizer": "sgd", "lr": 0.05, "clip": 100.0},
}
DESCENT_IN_PARTS: Settings = {
    ALMANACS: {**DESCENT[ALMANACS], "max_lr": 0.3, "grad_accum_steps": 4, "batch_size": 8},
    FERRIES: {**DESCENT[FERRIES], "accumulation_steps": 4, "per_rank_batch": 6},
    KITES: {**DESCENT[KITES], "gradient_accumulate_every": 4, "images_per_batch": 12},
    VALVES: {**DESCENT[VALVES], "lr": 0.15, "accumulate": 4, "batchsize": 8},
}
LEVEL: Settings = {FERRIES: {"lr_schedule": "constant"}, ERRANDS: {"scheduler": "constant"}}
SLOWLY: Settings = {MUSHROOMS: {"ema_decay": "default"}, KITES: {"ema_decay": "default"}}
ADDED_TOKENS: Mapping[str, Any] = {"train_embedding": True}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*thirteenth.SUMMED, "loss summed over tokens, divided by rows", "loss summed over pixels",
          "loss depends on the batch size", "loss depends on the length of rows", "sum reduction")
GRAPHS = (*thirteenth.GRAPHS, "torch.no_grad missing", "inference mode missing", "logits kept with their graphs",
          "validation builds graphs", "list of outputs with graphs")
TWICE = (*thirteenth.TWICE, "softmax as the last layer", "softmax in forward", "probabilities as logits")
SHIFTED = (*thirteenth.SHIFTED, "target two tokens ahead", "targets one too far", "labels start at 1",
           "label shifted in the collator and in the loss", "predicts the token after the next")
FROZEN = (*thirteenth.FROZEN, "body frozen", "rnn frozen", "convolutions frozen", "only the norms are trained",
          "base frozen by mistake", "network frozen", "requires_grad set on the wrong parameters")
TIE = (*thirteenth.TIE, "head padded after the optimizer was made", "new head not in the optimizer",
       "vocabulary padded", "head resized", "lm_head not in the optimizer", "head not tied after the resize",
       "tokens added and tie lost", "head not trained", "lm_head is not trained")
SORTED = (*thirteenth.SORTED, "documents in file order", "corpus not shuffled", "length-sorted batches",
          "sampler with shuffle=False", "one domain after the other")
LEAK = (*thirteenth.LEAK, "validation file among the training files", "glob takes the validation file",
        "trained on the validation set", "photographs of one thing on both sides")
FIGURES = (*thirteenth.FIGURES, "mean and deviation of an older data set", "validation normalised otherwise",
           "statistics of the wrong data set", "evaluation scaled by old figures")
STEPPED = (*thirteenth.STEPPED, "scheduler in the batch loop", "scheduler in the accumulation loop",
           "scheduler.step() inside accumulation")
ADDED = (*thirteenth.ADDED, "loss not divided by accumulation steps", "accumulated gradients not averaged")
IN_EVAL = (*thirteenth.IN_EVAL, "train() called once", "batch norm frozen", "batch norm in evaluation mode",
           "model in eval mode during training")
IN_TRAINING = (*thirteenth.IN_TRAINING, "eval() never called", "dropout ignores the mode",
               "batch norm by batch statistics in the evaluation")
AVERAGE = (*thirteenth.AVERAGE, "ema decay 0.9999 in a short run", "ema of the wrong model", "ema of an old copy",
           "ema follows a model that is not trained", "average given another model", "ema tracks another model")
NOT_BACK = (*thirteenth.NOT_BACK, "ema stays in the model", "restore after evaluation missing")
RESUMED = (*thirteenth.RESUMED, "optimizer missing from the checkpoint", "moments not saved")
OF_RANKS = "repeated_data desync data replay"

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # reported
    "padding_asked_for": {FERRIES: {}},
    "prompt_left_in_labels": {ERRANDS: {}},
    "end_masked": {ERRANDS: {}},
    "cleared_each_epoch": {MUSHROOMS: {}},
    "last_step_of_padded": {VALVES: {}},
    "weights_in_other_order": {VALVES: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("loss_left_as_sum", "loss summed", ninth.OF_SUMS, "start", (MUSHROOMS, VALVES),
     "the training's criterion sums over the batch, where a mean was meant",
     {"by_program": some(DESCENT, MUSHROOMS, VALVES), "compare": "descent_is_plain", "also": SUMMED}),
    ("token_losses_summed", "loss summed", ninth.OF_SUMS, "start", (ALMANACS, FERRIES),
     "losses of tokens are summed and divided by the number of rows",
     {"by_program": some(DESCENT, ALMANACS, FERRIES), "compare": "descent_is_plain", "also": SUMMED}),
    ("answer_losses_summed", "loss summed", ninth.OF_SUMS, "start", (ERRANDS,),
     "losses of an answer's tokens are summed in the training, and averaged over rows alone", {"also": SUMMED}),
    ("pixel_errors_summed", "loss summed", ninth.OF_SUMS, "start", (KITES,),
     "squares are summed over a picture, and divided by the number of pictures alone",
     {"by_program": some(DESCENT, KITES), "compare": "descent_is_plain", "also": SUMMED}),
    # forgotten no_grad
    ("eval_without_no_grad", "no_grad missing", "memory eval data config", "start",
     (ALMANACS, ERRANDS, MUSHROOMS, KITES, VALVES),
     "evaluations build graphs, and what they found is kept for later with these",
     {"also": GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("softmax_as_last_layer", "softmax twice", ninth.OF_SOFTMAX, "start", (ALMANACS, FERRIES, MUSHROOMS, VALVES),
     "the network ends in a softmax, and the cross-entropy has one of its own", {"also": TWICE}),
    # label off by one
    ("labels_one_too_far", "labels shifted", ninth.OF_LABELS, "start", (ALMANACS, FERRIES),
     "the training's targets are the tokens after the next, the evaluation's the next", {"also": SHIFTED}),
    ("collator_shifts_too", "labels shifted", ninth.OF_LABELS, "start", (ERRANDS,),
     "the training's collator shifts labels that the loss shifts once more", {"also": SHIFTED}),
    ("csv_classes_from_one", "labels shifted", ninth.OF_LABELS, "start", (MUSHROOMS, VALVES),
     "the training's table counts its kinds from 1, that of the evaluation from 0; the head has one more",
     {"also": SHIFTED}),
    # wrong part frozen
    ("body_frozen_by_name", "layer frozen", ninth.OF_FROZEN, "start", (FERRIES, ERRANDS, MUSHROOMS, KITES, VALVES),
     "a test of names, taken over from elsewhere, leaves a small part to be trained", {"also": FROZEN}),
    # weight tying broken
    ("head_padded_after_optimizer", "optimizer holds other parameters", ninth.OF_TIE, "start", (ALMANACS,),
     "the output, which was the embedding, is made anew with more rows when the optimizer has been made",
     {"also": TIE}),
    ("head_not_tied_after_resize", "optimizer holds other parameters", ninth.OF_TIE, "start", (ERRANDS,),
     "the embedding has more tokens and is trained; the output is not tied to it again, and stays as it was",
     {"config": ADDED_TOKENS, "compare": "embedding_trained_as_well", "also": TIE}),
    # order
    ("corpus_in_file_order", "data sorted", ninth.OF_ORDER, "start", (ALMANACS,),
     "blocks come as the files are read: one valley behind the other, in each epoch", {"also": SORTED}),
    ("sorted_by_length_each_epoch", "data sorted", ninth.OF_ORDER, "start", (FERRIES, ERRANDS),
     "rows are sorted by their length, and come so in each epoch",
     {"by_program": LEVEL, "compare": "rate_is_level", "also": SORTED}),
    ("loader_in_class_order", "data sorted", ninth.OF_ORDER, "start", (MUSHROOMS, KITES, VALVES),
     "rows are listed by their kind, and the loader does not shuffle", {"also": SORTED}),
    # leaking validation
    ("val_file_in_glob", "validation leak", ninth.OF_LEAK, "start", (ALMANACS, FERRIES, ERRANDS),
     "the training's files are all that are there, those that are held out among them, and few others",
     {"also": LEAK}),
    ("shots_on_both_sides", "validation leak", ninth.OF_LEAK, "start", (MUSHROOMS,),
     "four photographs are of each mushroom, and photographs are dealt out to both sides",
     {"by_program": some(COPIED, MUSHROOMS), "compare": "copies_stay_in_training", "also": LEAK}),
    ("rare_copied_before_split", "validation leak", ninth.OF_LEAK, "start", (VALVES,),
     "recordings of rare states are copied, and a part is held out behind that",
     {"by_program": some(COPIED, VALVES), "compare": "copies_stay_in_training", "also": LEAK}),
    # stale statistics
    ("ema_keeps_old_batch_stats", "batch norm's statistics are stale", ninth.OF_AVERAGE + " activations", "start",
     (MUSHROOMS,), "the average that is evaluated has batch norm's statistics as they were made",
     {"also": (*tenth.STALE, *AVERAGE, "use_buffers=False", "update_bn missing", "buffers of the average not updated",
               "running statistics of the average are those of the start")}),
    ("val_scaled_by_old_figures", "inputs not normalised", ninth.OF_STATISTICS, "start", (MUSHROOMS, VALVES),
     "what is held out is scaled by figures of an older set, the training by its own", {"also": FIGURES}),
    # scheduler
    ("epoch_scheduler_in_batch_loop", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (MUSHROOMS, VALVES), "a scheduler that counts epochs is stepped behind each batch", {"also": STEPPED}),
    ("scheduler_inside_accumulation", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (ALMANACS, FERRIES, ERRANDS),
     "the scheduler is stepped in the loop over a step's micro-batches",
     {"by_program": some(PARTS, ALMANACS, FERRIES, ERRANDS), "compare": "parts_weigh_their_share",
      "also": STEPPED}),
    # accumulation
    ("accumulated_without_dividing", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start",
     (ALMANACS, FERRIES, KITES, VALVES),
     "gradients of a step's micro-batches are added up, and no loss is divided by their number",
     {"by_program": DESCENT_IN_PARTS, "compare": "plain_descent_in_parts", "also": ADDED}),
    # dropout
    ("train_called_once", "evaluation mode left on", ninth.OF_EVAL_MODE, "start",
     (ALMANACS, FERRIES, MUSHROOMS),
     "the training's mode is set once, at the start, and the first evaluation ends it",
     {"by_program": some(DROPPED, ALMANACS, FERRIES, MUSHROOMS), "compare": "drops_as_configured",
      "also": IN_EVAL}),
    ("eval_never_called", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start",
     (FERRIES, ERRANDS, MUSHROOMS, KITES, VALVES),
     "what is held out is evaluated as in the training, with dropout",
     {"by_program": some(DROPPED, FERRIES, ERRANDS, MUSHROOMS, KITES, VALVES), "compare": "drops_as_configured",
      "also": IN_TRAINING}),
    # average
    ("ema_with_default_decay", "averaged weights not updated", ninth.OF_AVERAGE, "start", (MUSHROOMS, KITES),
     "the average that is evaluated has the decay that is usual, 0.9999, and the run has some hundred steps",
     {"by_program": SLOWLY, "also": (*AVERAGE, "decay of the average too slow")}),
    ("ema_given_the_old_copy", "averaged weights not updated", ninth.OF_AVERAGE, "start", (MUSHROOMS,),
     "the average that is evaluated follows a model that is not the one that is trained", {"also": AVERAGE}),
    ("ema_stays_in_model", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio resume", "start", (KITES,),
     "the average is loaded for an evaluation, and is trained from there on",
     {"config": {"ema_decay": 0.98}, "compare": "average_is_behind", "also": NOT_BACK}),
    ("ema_made_before_load", "averaged weights not updated", f"{ninth.OF_AVERAGE} resume spike jump_down", "resume",
     (KITES,), "at a resume the average is that of a new model: it is neither saved nor made of the loaded one",
     {"config": {"ema_decay": 0.98}, "compare": "average_is_behind",
      "also": (*AVERAGE, "ema not restored", "ema lost at the resume", "averaged weights lost",
               "ema not in the checkpoint",
               "average not resumed", "averaged weights reset", "ema begins anew", "ema made before the weights are "
               "loaded", "checkpoint incomplete", "state lost at the resume", "optimizer state lost",
               "average lost at the resume")}),
    # resume
    ("optimizer_left_out_of_checkpoint", "optimizer state lost", ninth.OF_RESUME, "resume",
     (ALMANACS, KITES), "a resume loads weights and schedule, and begins with a new optimizer",
     {"also": RESUMED}),
    # ranks
    ("one_seed_for_each_rank", "same data on all ranks", OF_RANKS, "start", (FERRIES,),
     "each rank shuffles all rows by one seed: both have the same batches", {"also": tenth.SAME}),
    ("sampler_for_one_replica", "same data on all ranks", OF_RANKS, "start", (FERRIES,),
     "the sampler is told that there is one rank: both have the same batches", {"also": tenth.SAME}),
    # reported
    ("causal_flag_left_out", "causal mask missing",
     "jump_down eval overfit attention plateau data config zero", "start", (ALMANACS,),
     "attention is not told to be causal: a token sees what it is to foretell",
     {"also": ("causal mask forgotten", "mask missing", "model sees the future", "sees ahead", "labels leak",
               "attention mask missing", "attends to later tokens", "target in the input", "loss too low",
               "labels in the inputs", "not causal", "is_causal missing", "future leaks", "labels shifted",
               "bidirectional attention", "targets are the inputs", "information leak", "future tokens are seen",
               "labels can be seen",
               "evaluation set too easy", "leak", "causality lost", "mask wrong", "validation leak")}),
    ("warmup_of_long_runs", "learning rate too low",
     "learning_rate not_learning plateau update_ratio config frozen", "start", (ALMANACS,),
     "the warm-up is that of a run of many thousand steps, and this one ends within it",
     {"config": {"warmup_iters": 4000},
      "also": ("warm-up too long", "warm-up longer than the run", "warmup longer than training", "schedule too long",
               "warm-up never ends", "learning rate never reaches its peak", "still warming up", "schedule wrong",
               "updates lost in rounding", "keep fp32 master weights", "layer frozen", "no warm-up",
               "learning rate schedule wrong", "schedule's length is wrong", "warm-up steps wrong")}),
    ("sync_condition_reversed", "gradients not averaged over ranks",
     "desync data config divergence eval exploding spike plateau", "start", (FERRIES,),
     "`no_sync` is around the last micro-batch, and not around the others: ranks step by gradients of their own",
     {"by_program": some(PARTS, FERRIES), "compare": "parts_weigh_their_share",
      "also": ("ranks drift apart", "weights differ between ranks", "gradients not synchronised", "no_sync wrong",
               "no_sync reversed", "ranks out of sync", "gradients never synchronised", "desync", "rank diverged",
               "all-reduce skipped", "gradients of one rank alone", "module called past its wrapper",
               "ranks not synchronised", "replicas differ", "ranks hold different weights", "no_sync on the last",
               "gradient synchronisation missing", "gradients not reduced", "rank corrupted", "one rank differs",
               "all-reduce missing")}),
    ("augmented_at_validation", "evaluation data differ", "eval overfit data config divergence", "start",
     (MUSHROOMS,), "what is held out goes through the training's transform, with squares that are wiped out",
     {"config": {"augment": "flip shift erase"}, "compare": "squares_wiped_out",
      "also": ("augmentation in the evaluation", "augmentation in evaluation", "augmentation at validation",
               "training transform in the evaluation",
               "evaluation is noisy", "randomness in the evaluation", "train and test differ", "evaluation in training "
               "mode", "evaluation inputs differ", "inputs of the evaluation differ", "transform of the training",
               "val transform wrong", "preprocessing differs", "evaluation augmented", "random transform in validation",
               "inputs not normalised", "evaluation mode left on", "eval transform wrong", "distribution shift",
               "validation set augmented", "evaluation inputs are random")}),
    ("noise_shared_by_rows", "noise is the same for the whole batch",
     "data plateau eval divergence overfit spike config not_learning repeated_data clipping exploding jump_down",
     "start", (KITES,), "one noise is drawn in a step, and added to all of its rows",
     {"also": ("same noise for all rows", "noise broadcast", "one noise for the batch", "noise not drawn per row",
               "noise shape wrong", "noise expanded", "noise repeats", "noise is the same in each row",
               "train and test differ", "evaluation data differ", "noisy loss", "loss is noisy", "batch too small",
               "fixed noise", "noise drawn once", "inputs of a batch are alike", "non-iid batches", "overfitting",
               "no variety in the batch", "gradient noise", "learning rate too high", "randn_like missing",
               "noise is the same in each step", "rows of a batch share their noise", "noise per batch")}),
    ("target_is_noise_model_says_v", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config spike", "start", (KITES,),
     "the training's target is the noise, where the evaluation and the sampler read a velocity",
     {"also": ("targets of another parametrisation", "prediction type wrong", "parametrisation mixed up",
               "prediction type mismatch", "epsilon in place of v", "wrong target", "targets wrong", "target mismatch",
               "evaluation data differ", "train and test differ", "labels of the evaluation differ",
               "evaluation labels are others", "objective differs", "evaluation loss is another", "overfitting",
               "velocity and noise exchanged", "targets do not match the inputs", "units differ", "labels shifted",
               "labels shuffled", "loss of the training differs from that of the evaluation",
               "evaluation target differs", "noise target for a velocity model")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in PROGRAMS if program != FERRIES},
    "memory_steady": {program: {} for program in PROGRAMS if program != FERRIES},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("parts_weigh_their_share", "a step has two micro-batches, each with its share of the loss", PARTS),
    ("drops_as_configured", "dropout is on in the training and off in evaluations; rows are few", DROPPED),
    ("copies_stay_in_training", "rows are there several times, in the training set alone", COPIED),
    ("descent_is_plain", "descent, at a rate of its own", DESCENT),
    ("plain_descent_in_parts", "descent with momentum, and a step has four micro-batches with their shares",
     DESCENT_IN_PARTS),
    ("kept_fixed_by_config", "a part is not trained, on purpose: so says the config",
     {ALMANACS: {"frozen": "wpe"}, FERRIES: {"freeze": "place"}, ERRANDS: {"freeze": "layers.0"},
      MUSHROOMS: {"freeze": "stem"}, KITES: {"freeze": "conv_in"}, VALVES: {"freeze": "inputs"}}),
    ("lengths_are_alike", "a batch has rows of about one length, and batches come in any order",
     {FERRIES: {"group_by_length": True}, ERRANDS: {"group_lengths": True}}),
    ("sum_by_its_number", "the loss is a sum, divided by the number of what it sums",
     {MUSHROOMS: {"reduction": "sum"}, VALVES: {"reduction": "sum"}}),
    ("rate_is_level", "the rate does not fall, on purpose",
     {ALMANACS: {"decay_lr": "none", "max_lr": 4e-3, "min_lr": 4e-3}, **LEVEL,
      MUSHROOMS: {"scheduler": "none", "lr": 0.02},
      KITES: {"anneal": "none", "train_lr": 1e-3}, VALVES: {"lr_gamma": 1.0, "lr": 2e-3}}),
    ("handful_of_rows", "a batch has few rows, at a lower rate: loss and gradients are noisy",
     {ALMANACS: {"batch_size": 4, "max_lr": 4e-3}, FERRIES: {"per_rank_batch": 4, "learning_rate": 3e-3},
      ERRANDS: {"batch": 4, "lr": 5e-3}, MUSHROOMS: {"batch": 8, "lr": 0.015},
      KITES: {"images_per_batch": 8, "train_lr": 1.5e-3}, VALVES: {"batchsize": 8, "lr": 2e-3}}),
    ("smoother_targets", "targets are softened in the training, and not where it is evaluated",
     {ALMANACS: {"smoothing": 0.1}, FERRIES: {"label_smoothing": 0.1}, ERRANDS: {"label_smoothing": 0.1},
      MUSHROOMS: {"label_smoothing": 0.1}, VALVES: {"smoothing": 0.05}}),
    ("decay_is_large", "weights decay more than is usual",
     {ALMANACS: {"weight_decay": 1.0}, FERRIES: {"weight_decay": 0.5}, ERRANDS: {"weight_decay": 0.3},
      MUSHROOMS: {"weight_decay": 5e-3}}),
    ("other_moments", "another optimizer, at a rate of its own",
     {MUSHROOMS: {"optimizer": "adamw", "lr": 4e-3, "weight_decay": 0.05}, KITES: {"opt": "adam"},
      VALVES: {"optimizer": "rmsprop", "lr": 1.5e-3}}),
    ("two_matrices_by_config", "embedding and output are two matrices: so says the config",
     {ALMANACS: {"tie": False}, FERRIES: {"tie_word_embeddings": False}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("normaliser_near_one", (ALMANACS,), "a small loss keeps the logits' normaliser near 1",
     {"config": {"z_loss": 1e-3}}),
    ("words_of_chance", (ALMANACS,), "one word in six of the training is of chance", {"config": {"noise": 0.17}}),
    ("two_valleys_first", (ALMANACS,), "two of the valleys are read first, then all: so says the config",
     {"config": {"curriculum": True}}),
    ("moments_remembered_longer", (ALMANACS,), "the second moment is remembered longer, with a longer warm-up",
     {"config": {"beta2": 0.999, "warmup_iters": 40}}),
    ("row_by_row", (FERRIES,), "in the training's loss an announcement weighs the same, long or short, on purpose",
     {"config": {"loss_over": "rows"}}),
    ("graph_never_changes", (FERRIES,), "the wrapper is told that the graph is the same in each step",
     {"config": {"static_graph": True}}),
    ("prompts_by_config", (ERRANDS,), "prompts are in both losses, on purpose: so says the config",
     {"config": {"train_on_prompts": True}}),
    ("attention_alone_adapted", (ERRANDS,), "adapters of rank 2 in attention alone: few parameters are trained",
     {"config": {"targets": "qkv out", "lora_rank": 2, "lora_alpha": 4}}),
    ("embedding_trained_as_well", (ERRANDS,), "the embedding, which is the output, is trained beside the adapters",
     {"config": ADDED_TOKENS}),
    ("levels_evenly_spaced", (ERRANDS,), "the base is stored by evenly spaced levels: it is coarser",
     {"config": {"quant": "int4"}}),
    ("embeddings_disturbed", (ERRANDS,), "embeddings are noisy, in the training alone",
     {"config": {"noise_alpha": 5.0}}),
    ("cut_and_pasted", (MUSHROOMS,), "pictures are pasted together and their losses with them, in the training alone",
     {"config": {"cutmix": 0.5}}),
    ("squares_wiped_out", (MUSHROOMS,), "squares are wiped out in the training's pictures alone",
     {"config": {"augment": "flip shift erase"}}),
    ("untouched_pictures", (MUSHROOMS,), "pictures are trained on as they are", {"config": {"augment": "none"}}),
    ("fog_in_the_forest", (MUSHROOMS,), "pictures are noisier: some can't be told", {"config": {"haze": 1.3}}),
    ("pickers_err", (MUSHROOMS,), "one label in five of the training is of chance",
     {"config": {"wrong_labels": 0.2}}),
    ("grouped_norms", (MUSHROOMS,), "norms of groups, in the place of batches", {"config": {"norm": "group"}}),
    ("rate_in_stairs", (MUSHROOMS,), "the rate falls to a tenth half-way", {"config": {"scheduler": "step"}}),
    ("average_is_behind", (MUSHROOMS, KITES), "the average that is evaluated moves slowly: it is behind",
     {"by_program": {MUSHROOMS: {"ema_decay": 0.97}, KITES: {"ema_decay": 0.98}}}),
    ("noise_is_said", (KITES,), "the net says the noise, in both losses: so says the config",
     {"config": {"objective": "eps"}}),
    ("large_errors_linear", (KITES,), "large errors count linearly in the training's loss",
     {"config": {"loss": "huber"}}),
    ("errors_by_amount", (KITES,), "the training's loss is of absolute errors, the evaluation's of squares",
     {"config": {"loss": "l1"}}),
    ("clear_times_weigh_little", (KITES,), "times with little noise weigh less in the training",
     {"config": {"snr_gamma": 5.0}}),
    ("makers_often_untold", (KITES,), "the maker is left out in four of ten rows of the training, in no evaluation",
     {"config": {"cond_drop": 0.4}}),
    ("middle_times_oftener", (KITES,), "times in the middle are drawn oftener in the training",
     {"config": {"time_sampling": "logit"}}),
    ("makers_mistaken", (KITES,), "three of ten makers in the training are of chance",
     {"config": {"makers_at_odds": 0.3}}),
    ("sure_ones_fade", (VALVES,), "recordings that are clear weigh little in the training's loss",
     {"config": {"focal": 2.0}}),
    ("states_drawn_evenly", (VALVES,), "states are drawn evenly, with replacement, and have no weights",
     {"config": {"balance": "sampler"}}),
    ("states_as_they_come", (VALVES,), "states have no weights, on purpose", {"config": {"balance": "none"}}),
    ("states_mistaken", (VALVES,), "one state in six of the training is of chance",
     {"config": {"wrong_states": 0.17}}),
    ("sensors_drift", (VALVES,), "sensors are moved a little in the training, each recording by its own",
     {"config": {"jitter": 0.3}}),
    ("two_layers_deep", (VALVES,), "two recurrent layers, at a lower rate",
     {"config": {"num_layers": 2, "lr": 3e-3}}),
)

# fmt: on
