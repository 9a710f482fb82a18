"""The twelfth half of the bench, which was put away and is open: programs, faults and healthy variants, as words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a residual network over pictures, a flow with an average of the weights, a language
model that is tuned whole with its prompts masked, a recurrent classifier of rare kinds with batch norm, float16 with a
scaler, two ranks under DistributedDataParallel; each as another ordinary engineer writes it. Most faults are of the
fifteen kinds that the eleventh half has, each as the line that a person gets wrong in that program; those in `REPORTED`
are others that people report of such trainings. Who wrote them had read no rule, and did not look at what the doctor
says. A fault is called by any name that a person would give it, and every kind of finding that would be right of it is
right; the names that the eleventh half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eleventh, ninth, tenth
from halves.ninth import Row, Settings, some

POSTMARKS, GAITS, RECEIPTS = "postmarks", "gaits", "receipts"
TURBINES, RECITALS, ORCHARDS = "turbines", "recitals", "orchards"
PROGRAMS = (POSTMARKS, GAITS, RECEIPTS, TURBINES, RECITALS, ORCHARDS)
STEPS = {POSTMARKS: 180, GAITS: 200, RECEIPTS: 160, TURBINES: 200, RECITALS: 180, ORCHARDS: 180}
REPORTED = frozenset({
    "relu_on_logits", "seed_set_each_batch", "direction_reversed", "prompt_left_in_labels", "left_padding_unmasked",
    "last_step_of_padded", "embedding_drawn_wide", "clipped_while_scaled", "module_called_past_ddp", "epoch_never_set",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    GAITS: {"grad_accum_every": 4, "bs": 24}, RECEIPTS: {"grad_accumulation": 2}, RECITALS: {"micro_steps": 2},
    ORCHARDS: {"accum": 2},
}
DROPPED: Settings = {
    POSTMARKS: {"drop": 0.4}, GAITS: {"p_drop": 0.3}, RECEIPTS: {"dropout": 0.2}, TURBINES: {"dropout": 0.4},
    RECITALS: {"p": 0.3}, ORCHARDS: {"dropout": 0.3},
}
AVERAGED: Settings = {POSTMARKS: {"model_ema": 0.9}, RECITALS: {"ema": 0.9}}
COPIED: Settings = {
    POSTMARKS: {"prints": 4, "letters": 960}, GAITS: {"cycles_per_walker": 8}, TURBINES: {"upsampling": 6},
    RECITALS: {"stride": 4, "tokens": 36000},
}
LEFT: Mapping[str, Any] = {"padding_side": "left"}

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # reported
    "clipped_while_scaled": {RECITALS: {}},
    "epoch_never_set": {ORCHARDS: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("criterion_sums", "loss summed", ninth.OF_SUMS, "start", (POSTMARKS, TURBINES, ORCHARDS),
     "the training's criterion is a sum over the batch, where a mean was meant", {"also": eleventh.SUMMED}),
    ("flow_loss_summed", "loss summed", ninth.OF_SUMS, "start", (GAITS,),
     "squares are summed over joints and moments, and the mean is over rows alone", {"also": eleventh.SUMMED}),
    ("total_by_row_count", "loss summed", ninth.OF_SUMS, "start", (RECEIPTS, RECITALS),
     "the training's loss is a sum over tokens, divided by the number of rows", {"also": eleventh.SUMMED}),
    # forgotten no_grad
    ("predictions_hold_graphs", "no_grad missing", "memory eval data config", "start",
     (POSTMARKS, GAITS, RECEIPTS, TURBINES, RECITALS),
     "evaluations run without no_grad, and what they found is kept for the end",
     {"also": eleventh.GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("probabilities_returned", "softmax twice", ninth.OF_SOFTMAX, "start", (POSTMARKS, TURBINES, ORCHARDS),
     "the model returns probabilities, and the cross-entropy takes them for logits", {"also": tenth.TWICE}),
    # label off by one
    ("stray_folder_counted", "labels shifted", ninth.OF_LABELS, "start", (POSTMARKS,),
     "the training's folder has one more, which counts as the first kind; the evaluation's has not",
     {"also": eleventh.SHIFTED}),
    ("codes_begin_at_one", "labels shifted", ninth.OF_LABELS, "start", (TURBINES, ORCHARDS),
     "the training's codes begin at 1, the evaluation's at 0, and the head has one more", {"also": eleventh.SHIFTED}),
    ("shift_done_twice", "labels shifted", ninth.OF_LABELS, "start", (RECEIPTS,),
     "the training's collator shifts the labels, which the model's loss does again", {"also": eleventh.SHIFTED}),
    ("target_after_next", "labels shifted", ninth.OF_LABELS, "start", (RECITALS,),
     "the training's windows of targets begin two letters later, not one", {"also": eleventh.SHIFTED}),
    # wrong part frozen
    ("frozen_as_if_pretrained", "layer frozen", ninth.OF_FROZEN, "start", (POSTMARKS, TURBINES, ORCHARDS),
     "all but the last layer is frozen, as for a pretrained network, in one that is new", {"also": tenth.FROZEN}),
    ("wrong_prefix_frozen", "layer frozen", ninth.OF_FROZEN, "start", (RECEIPTS, RECITALS),
     "a list of names leaves some norms to be trained, and freezes all else", {"also": tenth.FROZEN}),
    # weight tying broken
    ("head_loaded_apart", "optimizer holds other parameters", ninth.OF_TIE, "start", (RECEIPTS, RECITALS),
     "the output's matrix, which was the embedding, is set anew behind the optimizer's making",
     {"also": eleventh.TIE}),
    # order
    ("listed_by_class", "data sorted", ninth.OF_ORDER, "start", (POSTMARKS, TURBINES, ORCHARDS),
     "rows come as they are listed: one class behind the other, in each epoch", {"also": tenth.SORTED}),
    ("sorted_for_padding", "data sorted", ninth.OF_ORDER, "start", (RECEIPTS,),
     "rows are sorted by length for little padding, and come so in each epoch", {"also": tenth.SORTED}),
    ("books_in_order", "data sorted", ninth.OF_ORDER, "start", (RECITALS,),
     "windows come in the text's order: one book behind the other", {"also": tenth.SORTED}),
    # leaking validation
    ("augmented_then_split", "validation leak", ninth.OF_LEAK, "start", (POSTMARKS,),
     "four noisy prints are made of each letter, and prints are dealt out to both sides",
     {"by_program": some(COPIED, POSTMARKS), "compare": "several_of_each_in_training", "also": eleventh.LEAK}),
    ("walkers_in_both", "validation leak", ninth.OF_LEAK, "start", (GAITS,),
     "eight cycles are of each walker, and cycles are dealt out to both sides",
     {"by_program": some(COPIED, GAITS), "compare": "several_of_each_in_training", "also": eleventh.LEAK}),
    ("whole_file_trained", "validation leak", ninth.OF_LEAK, "start", (RECEIPTS, ORCHARDS),
     "what is held out is a slice of the file that is trained on, which has few other rows", {"also": eleventh.LEAK}),
    ("upsampled_then_split", "validation leak", ninth.OF_LEAK, "start", (TURBINES,),
     "records of rare kinds are copied before the split: copies are on both sides",
     {"by_program": some(COPIED, TURBINES), "compare": "several_of_each_in_training", "also": eleventh.LEAK}),
    ("windows_overlap_split", "validation leak", ninth.OF_LEAK, "start", (RECITALS,),
     "windows overlap, and are dealt out to both sides",
     {"by_program": some(COPIED, RECITALS), "compare": "several_of_each_in_training",
      "also": (*eleventh.LEAK, "windows overlap across the split", "overlapping windows", "overlap across the split")}),
    # stale statistics
    ("val_left_unnormalised", "inputs not normalised", ninth.OF_STATISTICS, "start", (POSTMARKS,),
     "the evaluation's transform has no normalisation, the training's has", {"also": tenth.FIGURES}),
    ("stats_file_of_before", "inputs not normalised", ninth.OF_STATISTICS, "start", (GAITS,),
     "what is held out is normalised by a file of older figures, the training by its own", {"also": tenth.FIGURES}),
    ("scaler_of_last_season", "inputs not normalised", ninth.OF_STATISTICS, "start", (TURBINES,),
     "the test is scaled by a scaler that was made of older records", {"also": tenth.FIGURES}),
    # scheduler
    ("scheduler_in_batch_loop", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (POSTMARKS, TURBINES, ORCHARDS), "the scheduler, which counts epochs, is stepped in the loop over batches",
     {"also": eleventh.STEPPED}),
    ("scheduler_per_micro", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (GAITS, RECEIPTS, RECITALS),
     "the scheduler is stepped in the loop over micro-batches, of which a step has several",
     {"by_program": some(PARTS, GAITS, RECEIPTS, RECITALS), "compare": "accumulated_by_shares",
      "also": eleventh.STEPPED}),
    # accumulation
    ("micro_losses_added", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start",
     (GAITS, RECEIPTS, RECITALS, ORCHARDS), "losses of a step's micro-batches are added, without a division",
     {"by_program": some(PARTS, GAITS, RECEIPTS, RECITALS, ORCHARDS), "compare": "accumulated_by_shares",
      "also": tenth.ADDED}),
    # dropout
    ("eval_called_once_for_all", "evaluation mode left on", ninth.OF_EVAL_MODE, "start",
     (POSTMARKS, RECITALS, ORCHARDS), "behind the first evaluation training mode is never set again",
     {"by_program": some(DROPPED, POSTMARKS, RECITALS, ORCHARDS), "compare": "dropout_in_training_alone",
      "also": tenth.IN_EVAL}),
    ("never_put_into_train", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (RECEIPTS,),
     "the model is loaded in evaluation mode, and trained so: its dropout is off",
     {"by_program": some(DROPPED, RECEIPTS), "compare": "dropout_in_training_alone", "also": tenth.IN_EVAL}),
    ("functional_dropout_always", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (GAITS,),
     "the function of dropout is not given the mode: evaluations drop too",
     {"by_program": some(DROPPED, GAITS), "compare": "dropout_in_training_alone", "also": tenth.IN_TRAINING}),
    ("eval_forgotten", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (TURBINES,),
     "the test is made in training mode, with dropout and the batch's own statistics",
     {"by_program": some(DROPPED, TURBINES), "compare": "dropout_in_training_alone", "also": tenth.IN_TRAINING}),
    # average
    ("ema_updated_each_epoch", "averaged weights not updated", ninth.OF_AVERAGE, "start", (POSTMARKS,),
     "the average that is evaluated moves at an epoch's end, where each step was meant",
     {"by_program": some(AVERAGED, POSTMARKS), "compare": "follows_each_step", "also": eleventh.AVERAGE}),
    ("ema_starts_too_late", "averaged weights not updated", ninth.OF_AVERAGE, "start", (GAITS, RECITALS),
     "the average that is evaluated begins to move at step 2000, behind the training's end",
     {"by_program": {GAITS: {"ema_start": 2000}, RECITALS: {"ema": 0.9, "ema_start": 2000}},
      "compare": "follows_each_step", "also": (*eleventh.AVERAGE, "ema starts too late", "average starts too late")}),
    ("ema_not_restored", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio resume", "start", (GAITS,),
     "the average is applied for the evaluation, and the weights are not restored",
     {"config": {"ema_decay": 0.98}, "compare": "average_far_behind", "also": tenth.NOT_BACK}),
    # resume
    ("resume_weights_alone", "optimizer state lost", ninth.OF_RESUME, "resume",
     (POSTMARKS, GAITS, RECEIPTS, TURBINES, RECITALS),
     "the checkpoint's weights and schedule are loaded, its optimizer is not",
     {"also": (*tenth.RESUMED, "only the model saved", "momentum buffers lost")}),
    # ranks
    ("same_shuffle_on_ranks", "same data on all ranks", "repeated_data desync data replay", "start", (ORCHARDS,),
     "each rank shuffles all rows by the same seed, without a sampler for ranks", {"also": tenth.SAME}),
    ("first_shard_for_all", "same data on all ranks", "repeated_data desync data replay", "start", (ORCHARDS,),
     "each rank takes the first shard: the rank was not put in", {"also": tenth.SAME}),
    # reported
    ("relu_on_logits", "activation on the output",
     "not_learning plateau dead vanishing logits config eval zero frozen", "start", (POSTMARKS,),
     "a rectifier stands behind the last layer: logits can't be below 0",
     {"also": ("relu on the logits", "rectifier on the logits", "relu on the output", "activation after the last layer",
               "logits are never negative", "logits cut at 0", "activation in the head", "gradients vanish",
               "dead units", "activation twice", "softmax twice", "logits clipped", "bad initialisation",
               "wrong activation", "activation before the cross-entropy", "output rectified")}),
    ("seed_set_each_batch", "noise is the same in each step",
     "eval overfit repeated_data data jump_down config divergence replay plateau", "start", (GAITS,),
     "the generator is seeded anew in each step: noise and times are the same ones always",
     {"also": ("same noise in each step", "seed set in each step", "seed inside the loop", "noise repeats",
               "seed equal in each step", "random numbers repeat", "noise never changes", "generator seeded anew",
               "overfitting", "train and test differ", "evaluation data differ", "data replayed", "data exhausted",
               "fixed noise", "same seed in each step", "inputs repeated", "noise not drawn anew", "noise drawn once",
               "same times in each step", "generator reset", "few examples")}),
    ("direction_reversed", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config spike", "start", (GAITS,),
     "the training's velocity goes from data to noise, the evaluation's from noise to data",
     {"also": ("sign reversed", "target reversed", "velocity reversed", "wrong target", "targets wrong",
               "sign of the target", "evaluation data differ", "train and test differ",
               "labels of the evaluation differ", "evaluation labels are others",
               "targets of another parametrisation", "prediction type wrong",
               "parametrisation mixed up", "target mismatch", "noise and data exchanged", "overfitting",
               "labels shifted", "labels shuffled", "targets do not match the inputs", "wrong sign")}),
    ("prompt_left_in_labels", "prompt in the loss", "data padding eval jump_down config overfit divergence plateau",
     "start", (RECEIPTS,), "the training's labels have what is asked as well; the evaluation's have not",
     {"also": ("labels not masked", "prompt not masked", "prompts in the loss", "loss mask missing",
               "padding in the loss", "labels of the evaluation differ", "evaluation data differ",
               "train and test differ", "ignored targets missing", "loss masked out", "evaluation labels are others",
               "units differ", "labels are noisy", "prompts not masked", "prompt masking missing",
               "prompt tokens in the loss", "questions in the loss")}),
    ("left_padding_unmasked", "attention mask missing",
     "plateau not_learning attention eval config padding data", "start", (RECEIPTS,),
     "rows are padded on the left, and the training's batches have no attention mask",
     {"config": LEFT, "compare": "padded_on_the_left",
      "also": ("padding is read", "mask missing", "padding seen", "padding attended", "attention on padding",
               "attention mask wrong", "positions wrong", "positions count the padding", "padding not masked",
               "attention mask not given", "train and test differ", "evaluation data differ", "padding side wrong",
               "left padding", "positions shifted", "attention mask not passed", "evaluation inputs differ")}),
    ("last_step_of_padded", "wrong token pooled",
     "plateau not_learning eval config padding data learning_rate frozen attention vanishing", "start", (TURBINES,),
     "what is read of a record is the last place of the longest: padding, for most",
     {"also": ("pooling wrong", "wrong position pooled", "wrong token read", "padding is read", "padding pooled",
               "last step is padding", "lengths ignored", "lengths not used", "padding not masked",
               "last token not read", "reads the padding", "packing missing", "mask missing", "padding seen",
               "inputs ignored", "last hidden state of padding", "padding in the pooling",
               "gradients vanish", "padding attended")}),
    ("embedding_drawn_wide", "bad initialisation",
     "divergence spike exploding not_learning plateau nonfinite logits activations attention weight_growth saturated "
     "clipping update_ratio config eval learning_rate", "start", (RECITALS,),
     "embeddings are drawn with a deviation of 1, and the output is the same matrix",
     {"also": ("embedding initialised too large", "initialisation too large", "weights too large", "logits too large",
               "tied weights too large", "wrong initialisation", "initialisation missing", "embeddings too large",
               "embedding scale wrong", "init std too high", "head initialised too large", "standard deviation of 1",
               "initial loss too high", "no z-loss", "initialisation of the embedding")}),
    ("module_called_past_ddp", "all-reduce missing", "desync divergence eval data config repeated_data", "start",
     (ORCHARDS,), "the wrapped module is called in the place of the wrapper: gradients are not averaged",
     {"also": ("ranks drifted apart", "gradients not averaged", "ddp by-passed", "ddp bypassed",
               "module called directly",
               "ranks train alone", "gradients not synchronised", "gradients not reduced", "no all-reduce",
               "wrapper not called", "hooks never run", "no_sync left on", "each rank trains alone",
               "ranks have other weights", "weights differ between ranks", "seed differs between ranks")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in (POSTMARKS, GAITS, RECEIPTS, TURBINES, RECITALS)},
    "memory_steady": {program: {} for program in (POSTMARKS, GAITS, RECEIPTS, TURBINES, RECITALS)},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("accumulated_by_shares", "a step has several micro-batches, each with its share of the loss", PARTS),
    ("dropout_in_training_alone", "dropout is on in the training, and off where it is evaluated", DROPPED),
    ("follows_each_step", "an average of the weights is evaluated, which moves in each step",
     {**AVERAGED, GAITS: {"ema_decay": 0.8}}),
    ("several_of_each_in_training", "rows come in several like copies, in the training set alone", COPIED),
    ("kept_by_config", "a part is not trained: so says the config",
     {POSTMARKS: {"freeze": "conv1"}, GAITS: {"frozen": "t_mlp"}, RECEIPTS: {"freeze_embeddings": True},
      TURBINES: {"freeze_fc1": True}, RECITALS: {"freeze_wpe": True}, ORCHARDS: {"freeze_embedding": True}}),
    ("output_by_itself", "input and output have a matrix each: so says the config",
     {RECEIPTS: {"tie_word_embeddings": False}, RECITALS: {"tie": False}}),
    ("lengths_alike_in_a_batch", "rows of a batch have about one length, and batches come in any order",
     {RECEIPTS: {"group_by_length": True}, ORCHARDS: {"bucketed": True}}),
    ("summed_over_its_weight", "the loss is a sum, which is divided by its number or its weights",
     {POSTMARKS: {"reduction": "sum"}, TURBINES: {"loss_is": "sum"}, ORCHARDS: {"reduction": "sum"}}),
    ("rate_without_decay", "the rate does not fall, on purpose",
     {POSTMARKS: {"milestones": [], "lr": 0.01}, GAITS: {"lr_decay": "none", "train_lr": 1e-3},
      RECEIPTS: {"lr_scheduler": "constant", "lr": 1e-3}, TURBINES: {"policy": "none", "learning_rate": 2e-3},
      RECITALS: {"decay_lr": False}, ORCHARDS: {"lr_policy": "none", "lr": 0.03}}),
    ("few_rows_a_batch", "a batch has few rows, at a lower rate: loss and gradients are noisy",
     {POSTMARKS: {"batch_size": 8, "lr": 0.01}, GAITS: {"bs": 6, "train_lr": 1e-3},
      RECEIPTS: {"train_batch_size": 4, "lr": 2e-3}, TURBINES: {"batch": 10, "learning_rate": 2e-3},
      RECITALS: {"micro_batch": 3, "max_lr": 2e-3}, ORCHARDS: {"batch_size": 5, "lr": 0.03}}),
    ("targets_smoothed", "targets are smoothed in the training, and not where it is evaluated",
     {POSTMARKS: {"smoothing": 0.1}, TURBINES: {"smooth": 0.05}, ORCHARDS: {"label_smoothing": 0.1}}),
    ("with_other_moments", "another optimizer, at a rate of its own",
     {POSTMARKS: {"opt": "adamw"}, GAITS: {"optim": "radam"}, TURBINES: {"optimizer": "rmsprop"},
      ORCHARDS: {"optimizer": "adamw"}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("two_letters_in_one", (POSTMARKS,), "two letters are cut into one picture, in the training alone",
     {"config": {"cutmix": 1.0}}),
    ("much_ink", (POSTMARKS,), "prints are noisier: some can't be told", {"config": {"ink_noise": 2.2}}),
    ("times_from_the_middle", (GAITS,), "the training's times are mostly from the middle, the evaluation's are even",
     {"config": {"t_sampling": "logit_normal"}}),
    ("manner_often_untold", (GAITS,), "the manner is left out in half of the training's rows, in no evaluation",
     {"config": {"cond_drop": 0.5}}),
    ("errors_by_huber", (GAITS,), "the training's loss is Huber's, the evaluation's a mean of squares",
     {"config": {"loss": "huber"}}),
    ("average_far_behind", (GAITS,), "the average that is evaluated is slow: it is behind",
     {"config": {"ema_decay": 0.98}}),
    ("padded_on_the_left", (RECEIPTS,), "rows are padded on the left, with an attention mask", {"config": LEFT}),
    ("asked_for_too", (RECEIPTS,), "what is asked is in both losses, on purpose: so says the config",
     {"config": {"mask_prompt": False}}),
    ("noise_on_embeddings", (RECEIPTS,), "embeddings are noisy, in the training alone",
     {"config": {"neftune_alpha": 5.0}}),
    ("few_orders", (RECEIPTS,), "640 orders, four times over", {"config": {"orders": 640}}),
    ("kinds_drawn_evenly", (TURBINES,), "kinds are drawn evenly, with replacement, and have no weights",
     {"config": {"sampler": "even", "weighting": "none"}}),
    ("easy_records_fade", (TURBINES,), "records that are clear weigh little in the training's loss",
     {"config": {"gamma": 2.0}}),
    ("all_kinds_alike", (TURBINES,), "kinds have no weights, on purpose", {"config": {"weighting": "none"}}),
    ("rows_are_normed", (TURBINES,), "a norm of rows, in the place of batches", {"config": {"norm": "layer"}}),
    ("brain_float_instead", (RECITALS,), "autocast is to bfloat16, without a scaler: so says the config",
     {"config": {"amp": "bfloat16"}}),
    ("scale_far_too_high", (RECITALS,), "the loss scale begins too high: first steps are skipped",
     {"config": {"scale": 2.0**26}}),
    ("normaliser_small", (RECITALS,), "the normaliser's square is a small part of the training's loss",
     {"config": {"z_weight": 1e-3}}),
    ("gradients_are_views", (ORCHARDS,), "gradients are views of the buckets that are reduced",
     {"config": {"gradient_as_bucket_view": True}}),
    ("few_sentences", (ORCHARDS,), "fewer sentences, which come more often",
     {"config": {"sentences": 640, "dropout": 0.2}}),
)

# fmt: on
