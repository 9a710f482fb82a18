"""The fifteenth half of the bench, which was put away and is open: programs, faults and healthy variants, as words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: an encoder-decoder under float16 with a scaler, a causal language model on two
ranks by `fully_shard`, low-rank adapters in an encoder for rare classes, direct preferences, two views with a head for
the loss, segmentation with an average of the weights; each as another ordinary engineer writes it. Most faults are of
the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong in that program; those in
`REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did not look at what
the doctor says. A fault is called by any name that a person would give it, and every kind of finding that would be
right of it is right; the names that the fourteenth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import fourteenth, ninth, tenth
from halves.ninth import Row, Settings, some

TELEGRAMS, KNITS, PETITIONS = "telegrams", "knits", "petitions"
INVITATIONS, MOTHS, GLACIERS = "invitations", "moths", "glaciers"
PROGRAMS = (TELEGRAMS, KNITS, PETITIONS, INVITATIONS, MOTHS, GLACIERS)
STEPS = {TELEGRAMS: 160, KNITS: 150, PETITIONS: 200, INVITATIONS: 160, MOTHS: 168, GLACIERS: 168}
REPORTED = frozenset({
    "padding_asked_for", "clipped_while_scaled", "mask_upside_down", "never_synchronised", "weights_in_other_order",
    "adapted_after_optimizer", "reference_not_copied", "both_views_alike",
    "picture_flipped_alone", "mask_zoomed_smoothly", "clouds_counted",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    TELEGRAMS: {"update_freq": 2, "max_sentences": 8}, KNITS: {"grad_accum_steps": 4, "local_batch": 6},
    PETITIONS: {"accumulate_grad_batches": 2, "batch_size": 16}, INVITATIONS: {"gradient_accumulation_steps": 2},
    GLACIERS: {"accum_steps": 2, "batch_size": 8},
}
DROPPED: Settings = {
    TELEGRAMS: {"dropout": 0.3, "sentences": 400}, KNITS: {"resid_dropout": 0.3, "blocks": 120},
    PETITIONS: {"lora_dropout": 0.3, "head_dropout": 0.4, "petitions": 400},
    INVITATIONS: {"resid_pdrop": 0.5}, MOTHS: {"proj_dropout": 0.5},
    GLACIERS: {"dropout": 0.4},
}
COPIED: Settings = {
    PETITIONS: {"rare_copies": 6, "petitions": 700}, MOTHS: {"photos_per_moth": 8, "photos": 720},
    GLACIERS: {"tile_stride": 2, "scenes": 8},
}
DESCENT: Settings = {
    KNITS: {"optim": "sgd", "peak_lr": 0.5, "clip": 100.0},
    PETITIONS: {"optimizer": "sgd", "lr": 0.12, "gradient_clip_val": 100.0},
    INVITATIONS: {"optim": "sgd", "learning_rate": 0.05, "max_grad_norm": 100.0},
    GLACIERS: {"grad_clip": 100.0},
}
DESCENT_IN_PARTS: Settings = {
    KNITS: {**DESCENT[KNITS], "grad_accum_steps": 4, "local_batch": 6},
    PETITIONS: {**DESCENT[PETITIONS], "accumulate_grad_batches": 4, "batch_size": 8},
    INVITATIONS: {**DESCENT[INVITATIONS], "gradient_accumulation_steps": 4, "per_device_batch": 8},
    GLACIERS: {"accum_steps": 4, "batch_size": 8, "grad_clip": 100.0},
}
AVERAGED: Settings = {TELEGRAMS: {"ema_decay": 0.9}, GLACIERS: {"ema_decay": 0.95}}
LEVEL: Settings = {
    TELEGRAMS: {"lr_scheduler": "fixed", "lr": 3e-3}, KNITS: {"decay": "none", "peak_lr": 4e-3},
    PETITIONS: {"lr_decay": "constant", "lr": 3e-3}, INVITATIONS: {"lr_scheduler_type": "constant"},
    MOTHS: {"schedule": "constant", "lr": 0.02}, GLACIERS: {"lr_policy": "constant", "base_lr": 0.05},
}

OTHERS: Settings = {
    TELEGRAMS: {"optimizer": "nadam"}, PETITIONS: {"optimizer": "adamax", "lr": 8e-3},
    MOTHS: {"optimizer": "adamw", "lr": 3e-3, "weight_decay": 0.05},
    GLACIERS: {"optimizer": "adamw", "base_lr": 5e-3, "weight_decay": 0.05},
}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*fourteenth.SUMMED, "loss summed over views", "loss not divided by the number of pixels",
          "token losses divided by sentences", "loss averaged over rows, not tokens", "loss is a total over the batch")
GRAPHS = (*fourteenth.GRAPHS, "validation_step_outputs kept", "outputs of the validation kept", "graph retained",
          "autograd graphs kept", "evaluation requires grad", "no inference_mode")
TWICE = (*fourteenth.TWICE, "softmax over scores before the cross-entropy", "softmax over channels in forward",
         "network returns probabilities", "head ends in softmax")
SHIFTED = (*fourteenth.SHIFTED, "decoder input not shifted", "shift right missing", "decoder sees the answer",
           "decoder sees its target", "teacher forcing leaks the target", "shift_tokens_right missing",
           "positive index off by one", "positives misaligned", "wrong positives", "mask ids from one",
           "label ids from 1", "reduce_zero_label", "information leak", "target leaks into the input",
           "validation leak", "data leak", "loss too low", "causal mask missing", "exposure bias")
FROZEN = (*fourteenth.FROZEN, "classifier head frozen", "head not in modules_to_save", "random head frozen",
          "new head is not trained", "encoder frozen and random", "backbone is random and frozen",
          "embedding frozen", "requires_grad wrong")
TIE = (*fourteenth.TIE, "to_empty breaks the tie", "tie lost on the meta device", "tie_weights not called again",
       "embedding resized behind the optimizer", "embedding not in the optimizer", "optimizer has the old embedding",
       "embedding is not trained")
SORTED = (*fourteenth.SORTED, "one garment behind another", "site by site", "class-ordered data",
          "negatives of the same class", "batches of one site", "false negatives", "hard negatives",
          "sequential sampler")
LEAK = (*fourteenth.LEAK, "overlapping tiles across the split", "tiles of one scene on both sides",
        "individuals on both sides", "photographs of one animal on both sides", "spatial leak", "split by tiles",
        "grouped split missing", "train and validation merged", "validation merged into the training set")
FIGURES = (*fourteenth.FIGURES, "imagenet mean and std at validation", "mean and std of another data set",
           "normalisation of the validation differs")
MOMENTUM = (*tenth.STALE, "momentum of batch norm too small", "batch norm momentum wrong", "batch norm momentum",
            "running statistics too slow", "running statistics lag", "momentum in another framework's sense",
            "momentum reversed", "tensorflow momentum", "running variance stale", "running statistics stale",
            "normalisation statistics stale")
STEPPED = (*fourteenth.STEPPED, "scheduler steps per batch, not per epoch", "poly schedule in epochs stepped per batch",
           "schedule over before the end", "learning rate zero half-way", "scheduler steps in micro-batches")
ADDED = (*fourteenth.ADDED, "loss not divided by accumulation", "micro-batch losses not averaged",
         "gradient accumulation without division")
IN_EVAL = (*fourteenth.IN_EVAL, "model.train() not called again", "dropout off after the first evaluation",
           "running statistics used in training", "batch norm uses running statistics in training",
           "statistics frozen after the first evaluation")
IN_TRAINING = (*fourteenth.IN_TRAINING, "validation in train mode", "batch statistics at validation",
               "running statistics updated by the validation set", "dropout on at validation")
AVERAGE = (*fourteenth.AVERAGE, "ema of the copy", "ema follows an untrained copy", "ema never sees the training",
           "ema source wrong")
NOT_BACK = (*fourteenth.NOT_BACK, "training weights overwritten by the average", "ema loaded into the model",
            "weights not restored after validation")
RESUMED = (*fourteenth.RESUMED, "optimizer state not in the checkpoint", "optimizer re-created at the resume",
           "adam moments reset", "momentum buffers reset")
OF_RANKS = fourteenth.OF_RANKS

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # reported
    "padding_asked_for": {TELEGRAMS: {}, INVITATIONS: {}},
    "clipped_while_scaled": {TELEGRAMS: {}},
    "mask_upside_down": {TELEGRAMS: {}},
    "never_synchronised": {KNITS: {}},
    "weights_in_other_order": {PETITIONS: {}},
    "adapted_after_optimizer": {PETITIONS: {}},
    "reference_not_copied": {INVITATIONS: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("token_sum_over_rows", "loss summed", ninth.OF_SUMS, "start", (TELEGRAMS,),
     "losses of tokens are summed, and divided by the number of telegrams", {"also": SUMMED}),
    ("token_sum_over_blocks", "loss summed", ninth.OF_SUMS, "start", (KNITS,),
     "losses of a block's tokens are summed, and divided by the number of blocks alone",
     {"by_program": some(DESCENT, KNITS), "compare": "momentum_without_moments", "also": SUMMED}),
    ("criterion_left_as_sum", "loss summed", ninth.OF_SUMS, "start", (PETITIONS, INVITATIONS, MOTHS),
     "the training's criterion is a sum over the batch, where a mean was meant",
     {"by_program": some(DESCENT, PETITIONS, INVITATIONS), "compare": "momentum_without_moments", "also": SUMMED}),
    ("pixel_sum_over_pictures", "loss summed", ninth.OF_SUMS, "start", (GLACIERS,),
     "losses of pixels are summed, and divided by the number of pictures alone",
     {"by_program": some(DESCENT, GLACIERS), "compare": "momentum_without_moments", "also": SUMMED}),
    # forgotten no_grad
    ("val_outputs_keep_graphs", "no_grad missing", "memory eval data config", "start",
     (TELEGRAMS, PETITIONS, INVITATIONS, MOTHS, GLACIERS),
     "validations run without no_grad, and their outputs are kept in a list",
     {"also": GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("probabilities_go_into_loss", "softmax twice", ninth.OF_SOFTMAX, "start",
     (TELEGRAMS, KNITS, PETITIONS, MOTHS, GLACIERS),
     "probabilities, not logits, are what the cross-entropy is given, which takes its own softmax", {"also": TWICE}),
    # label off by one
    ("decoder_input_not_shifted", "labels shifted", ninth.OF_LABELS + " zero attention", "start", (TELEGRAMS,),
     "in the training the decoder is given the very tokens that it should say; evaluations shift them",
     {"also": SHIFTED}),
    ("targets_two_ahead", "labels shifted", ninth.OF_LABELS, "start", (KNITS,),
     "the training's targets are two tokens ahead, the evaluation's one", {"also": SHIFTED}),
    ("class_numbers_from_one", "labels shifted", ninth.OF_LABELS, "start", (PETITIONS, GLACIERS),
     "the training's classes are numbered from 1, where those that are held out begin at 0", {"also": SHIFTED}),
    ("logps_unshifted", "labels shifted", ninth.OF_LABELS + " rl logits attention zero", "start", (INVITATIONS,),
     "in the training a token's log-probability is read at its own place, not at the one before", {"also": SHIFTED}),
    ("partner_index_off_by_one", "labels shifted", ninth.OF_LABELS, "start", (MOTHS,),
     "in the loss a view's partner is the second view of the picture before", {"also": SHIFTED}),
    # wrong part frozen
    ("freeze_pattern_wrong", "layer frozen", ninth.OF_FROZEN, "start",
     (TELEGRAMS, KNITS, INVITATIONS, MOTHS, GLACIERS),
     "a pattern of names, as for a model that has been trained, freezes most of one that has not", {"also": FROZEN}),
    ("new_head_not_saved", "layer frozen", ninth.OF_FROZEN, "start", (PETITIONS,),
     "the new head, which is drawn by chance, is frozen with the base, and adapters alone are trained",
     {"config": {"modules_to_save": ""}, "also": FROZEN}),
    # weight tying broken
    ("vocabulary_grown_after_optimizer", "optimizer holds other parameters", ninth.OF_TIE, "start",
     (TELEGRAMS, INVITATIONS),
     "the embedding is made anew with more rows when the optimizer has been made: nothing trains it",
     {"by_program": {INVITATIONS: {"extra_tokens": 4}}, "also": TIE}),
    ("tie_lost_by_to_empty", "optimizer holds other parameters", ninth.OF_TIE, "start", (KNITS,),
     "the model is given its storage module by module, and is not tied again; the optimizer leaves the output out",
     {"also": TIE}),
    # order
    ("shortest_first_always", "data sorted", ninth.OF_ORDER, "start", (TELEGRAMS,),
     "rows come by their length, from the shortest on, in each epoch",
     {"by_program": some(LEVEL, TELEGRAMS), "compare": "no_decay_of_rate", "also": SORTED}),
    ("corpus_by_garment", "data sorted", ninth.OF_ORDER, "start", (KNITS,),
     "blocks come in the order of the files: one garment behind the other", {"also": SORTED}),
    ("table_in_class_order", "data sorted", ninth.OF_ORDER, "start", (PETITIONS, MOTHS, GLACIERS),
     "rows are listed class by class, or site by site, and are not shuffled", {"also": SORTED}),
    # leaking validation
    ("heldout_in_corpus", "validation leak", ninth.OF_LEAK, "start", (TELEGRAMS, KNITS, INVITATIONS),
     "what is held out is in the training's set as well, which has few others", {"also": LEAK}),
    ("copied_then_split", "validation leak", ninth.OF_LEAK, "start", (PETITIONS,),
     "petitions to rare offices are copied, and a part is held out behind that",
     {"by_program": some(COPIED, PETITIONS), "compare": "copies_for_training", "also": LEAK}),
    ("moths_on_both_sides", "validation leak", ninth.OF_LEAK, "start", (MOTHS,),
     "eight photographs are of each moth, and photographs are dealt out to both sides",
     {"by_program": some(COPIED, MOTHS), "compare": "copies_for_training", "also": LEAK}),
    ("tiles_overlap_split", "validation leak", ninth.OF_LEAK, "start", (GLACIERS,),
     "tiles overlap, and tiles, not scenes, are dealt out to both sides",
     {"by_program": some(COPIED, GLACIERS), "compare": "copies_for_training", "also": LEAK}),
    # stale statistics
    ("val_scaled_by_usual_figures", "inputs not normalised", ninth.OF_STATISTICS, "start", (MOTHS, GLACIERS),
     "what is held out is scaled by the usual figures of photographs, the training by its own", {"also": FIGURES}),
    ("bn_momentum_of_others", "batch norm's statistics are stale", ninth.OF_STATISTICS, "start", (MOTHS, GLACIERS),
     "batch norm's momentum is 0.001, as another library's 0.999: its statistics stay near their start",
     {"config": {"bn_momentum": 0.001}, "also": MOMENTUM}),
    ("ema_keeps_first_statistics", "batch norm's statistics are stale", ninth.OF_AVERAGE + " activations", "start",
     (GLACIERS,), "the average has the weights' mean, and batch norm's statistics as they were made",
     {"also": (*MOMENTUM, *AVERAGE, "use_buffers=False", "update_bn missing", "buffers of the average not updated",
               "buffers not copied into the ema")}),
    # scheduler
    ("scheduler_steps_in_micro_loop", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (TELEGRAMS, KNITS, PETITIONS, INVITATIONS), "the scheduler is stepped in the loop over micro-batches",
     {"by_program": some(PARTS, TELEGRAMS, KNITS, PETITIONS, INVITATIONS), "compare": "shares_of_one_step",
      "also": STEPPED}),
    ("epoch_schedule_in_batch_loop", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (MOTHS, GLACIERS), "the scheduler, which counts epochs, is stepped in the loop over batches", {"also": STEPPED}),
    # accumulation
    ("micro_losses_whole", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start",
     (KNITS, PETITIONS, INVITATIONS, GLACIERS),
     "losses of a step's micro-batches are not divided by their number",
     {"by_program": DESCENT_IN_PARTS, "compare": "momentum_in_parts", "also": ADDED}),
    # dropout
    ("train_mode_set_once", "evaluation mode left on", ninth.OF_EVAL_MODE + " activations plateau divergence", "start",
     (KNITS, MOTHS),
     "the training's mode is set before the loop, and the first validation ends it",
     {"by_program": some(DROPPED, KNITS, MOTHS), "compare": "dropped_as_it_says",
      "also": IN_EVAL}),
    ("validated_in_train_mode", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start",
     (TELEGRAMS, KNITS, PETITIONS, INVITATIONS, GLACIERS),
     "the evaluation's mode is never set: dropout is on in it, and batch norm takes its batch",
     {"by_program": some(DROPPED, TELEGRAMS, KNITS, PETITIONS, INVITATIONS, GLACIERS),
      "compare": "dropped_as_it_says", "also": IN_TRAINING}),
    # average
    ("ema_decay_of_months", "averaged weights not updated", ninth.OF_AVERAGE, "start", (TELEGRAMS, GLACIERS),
     "the average that is evaluated has a decay of 0.9999, in a run of some hundred steps",
     {"config": {"ema_decay": "default"}, "compare": "average_keeps_close",
      "also": (*AVERAGE, "decay of the average too slow")}),
    ("ema_of_a_copy", "averaged weights not updated", ninth.OF_AVERAGE, "start", (TELEGRAMS, GLACIERS),
     "the average that is evaluated is made of a copy, which is not trained",
     {"by_program": AVERAGED, "compare": "average_keeps_close", "also": AVERAGE}),
    ("ema_left_in_after_validation", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio resume", "start", (GLACIERS,),
     "the average is loaded into the network for a validation, and stays there",
     {"config": {"ema_decay": 0.98}, "compare": "average_trails_far", "also": NOT_BACK}),
    # resume
    ("fresh_optimizer_at_resume", "optimizer state lost", ninth.OF_RESUME, "resume",
     (TELEGRAMS,),
     "a resume loads model and scheduler, and makes the optimizer anew", {"also": RESUMED}),
    # ranks
    ("rank_left_out_of_stride", "same data on all ranks", OF_RANKS, "start", (KNITS,),
     "rows are dealt out by a stride that begins at 0 on each rank", {"also": tenth.SAME}),
    ("dice_alike_on_ranks", "same data on all ranks", OF_RANKS, "start", (KNITS,),
     "each rank shuffles all blocks with one seed, and takes them from the first on", {"also": tenth.SAME}),
    # reported
    ("both_views_alike", "positives are trivial",
     "zero jump_down eval data overfit plateau not_learning config vanishing repeated_data divergence", "start",
     (MOTHS,), "the second view is the first once more: nothing has to be learnt to find it",
     {"also": ("views identical", "views are the same", "augmentation applied once", "second view is a copy",
               "no augmentation between views", "one augmentation for both views", "trivial positives",
               "labels leak", "task too easy", "loss too low", "collapse", "shortcut", "target in the input",
               "positive pairs identical", "augmentation missing", "validation leak", "overfitting", "leak",
               "train and test differ", "evaluation data differ", "evaluation inputs differ", "data replayed",
               "rows come twice", "duplicates in the batch", "inputs repeated", "labels shifted")}),
    ("picture_flipped_alone", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config", "start", (GLACIERS,),
     "pictures are flipped in the training, and their masks are not",
     {"also": ("masks not flipped", "mask not augmented", "augmentation of the picture alone", "labels shuffled",
               "targets do not match the inputs", "mask and picture do not match", "augmentation not applied to masks",
               "transform of the picture alone", "labels noisy", "labels are noisy", "misaligned masks",
               "labels random", "labels wrong", "train and test differ", "evaluation data differ", "labels shifted",
               "random flip not joint", "labels of the evaluation differ", "augmentation breaks the labels",
               "geometric transform not applied to the target", "inputs and targets misaligned",
               "evaluation inputs differ", "augmentation wrong", "augmentation of the inputs alone")}),
    ("mask_zoomed_smoothly", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config", "start", (GLACIERS,),
     "masks are made larger by linear interpolation: between two classes there are numbers of others",
     {"config": {"augment": "flip zoom"}, "compare": "parts_made_larger",
      "also": ("masks interpolated", "mask interpolation wrong", "bilinear interpolation of masks", "labels noisy",
               "nearest interpolation missing", "labels are noisy", "class ids interpolated", "labels wrong",
               "targets do not match the inputs", "resize of the mask is bilinear", "mask resized wrongly",
               "wrong interpolation", "labels shifted", "labels shuffled", "labels random", "train and test differ",
               "labels of the evaluation differ", "evaluation data differ", "augmentation breaks the labels",
               "interpolated labels", "augmentation wrong", "spurious classes at borders")}),
    ("clouds_counted", "ignored targets missing",
     "plateau not_learning eval data divergence overfit config padding", "start", (GLACIERS,),
     "clouds, which are not asked for, are filled with the first class in the training's masks",
     {"also": ("ignore index missing", "ignore_index missing", "ignored label counted", "labels not masked",
               "loss mask missing", "void class in the loss", "clouds in the loss", "labels do not match the inputs",
               "labels wrong", "labels noisy", "labels are noisy", "padding in the loss", "mask missing",
               "unlabelled pixels are trained on", "unlabelled pixels counted", "no-data counted as a class",
               "labels shifted", "labels of the evaluation differ", "train and test differ", "labels shuffled",
               "evaluation data differ", "nodata filled with zero", "padding not ignored", "class imbalance")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in PROGRAMS if program != KNITS},
    "memory_steady": {program: {} for program in PROGRAMS if program != KNITS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("shares_of_one_step", "a step has several smaller micro-batches, each with its share of the loss", PARTS),
    ("dropped_as_it_says", "much dropout in the training, none in evaluations", DROPPED),
    ("copies_for_training", "rows are there several times, or overlap, in the training set alone", COPIED),
    ("momentum_without_moments", "descent with momentum and no clipping to speak of, at a rate of its own",
     {**DESCENT, MOTHS: {}}),
    ("momentum_in_parts", "descent with momentum, and a step has four micro-batches with their shares",
     DESCENT_IN_PARTS),
    ("average_keeps_close", "an average of the weights is evaluated, which follows them closely", AVERAGED),
    ("left_untrained_by_config", "a part is not trained, on purpose: so says the config",
     {TELEGRAMS: {"frozen": "places"}, KNITS: {"frozen": "layers.0.qkv"}, PETITIONS: {"freeze": "lora_A"},
      INVITATIONS: {"freeze": "wpe"}, MOTHS: {"freeze": "backbone.0"}, GLACIERS: {"freeze": "enc1.0"}}),
    ("lengths_go_together", "a batch has rows of about one length, and batches come in any order",
     {TELEGRAMS: {"sort_pool": True}, PETITIONS: {"length_buckets": True}, INVITATIONS: {"group_by_length": True}}),
    ("sum_over_its_count", "the loss is a sum, divided by the number of what it sums",
     {PETITIONS: {"reduction": "sum"}, MOTHS: {"sum_by_rows": True}, GLACIERS: {"loss_sum": True}}),
    ("no_decay_of_rate", "the rate does not fall, on purpose", LEVEL),
    ("few_rows_each_time", "a batch has few rows, at a lower rate: loss and gradients are noisy",
     {TELEGRAMS: {"max_sentences": 6, "lr": 2e-3}, KNITS: {"local_batch": 2, "peak_lr": 3e-3},
      PETITIONS: {"batch_size": 8, "lr": 4e-3}, INVITATIONS: {"per_device_batch": 4, "learning_rate": 5e-4},
      MOTHS: {"batch": 12, "lr": 0.015}, GLACIERS: {"batch_size": 4, "base_lr": 0.02}}),
    ("soft_labels_while_trained", "labels are softened in the training, and not where it is evaluated",
     {TELEGRAMS: {"label_smoothing": 0.1}, KNITS: {"smoothing": 0.1}, PETITIONS: {"label_smoothing": 0.1},
      INVITATIONS: {"label_smoothing": 0.1}, GLACIERS: {"label_smoothing": 0.1}}),
    ("weights_pulled_down", "weights decay more than is usual",
     {TELEGRAMS: {"weight_decay": 0.5}, KNITS: {"weight_decay": 1.0}, PETITIONS: {"weight_decay": 0.5},
      GLACIERS: {"weight_decay": 5e-3}}),
    ("moments_of_another_kind", "another optimizer, at a rate of its own", OTHERS),
    ("matrices_apart_by_config", "embedding and output are a matrix each: so says the config",
     {TELEGRAMS: {"share_all_embeddings": False}, KNITS: {"tied": False}, INVITATIONS: {"tie_embeddings": False}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("telegrams_weigh_alike", (TELEGRAMS,), "a telegram weighs the same in the training, long or short, on purpose",
     {"config": {"loss_per": "sentence"}}),
    ("bfloat_needs_no_scaler", (TELEGRAMS,), "autocast is to bfloat16, and nothing is scaled: so says the config",
     {"config": {"amp_dtype": "bfloat16"}}),
    ("scale_far_too_high_at_first", (TELEGRAMS,), "the loss scale begins too high, and first steps are skipped",
     {"config": {"fp16_init_scale": 2.0**24}}),
    ("scale_tried_often", (TELEGRAMS,), "the loss scale is doubled each fifteenth step, and halved when it is too high",
     {"config": {"scale_window": 15, "fp16_init_scale": 2.0**15}}),
    ("rate_by_inverse_root", (TELEGRAMS,), "the rate falls by the inverse of the root of steps",
     {"config": {"lr_scheduler": "inverse_sqrt"}}),
    ("clerks_mistake_codes", (TELEGRAMS,), "one code in five of the training is of chance",
     {"config": {"wrong_codes": 0.2}}),
    ("normaliser_is_watched", (KNITS,), "a small loss keeps the logits' normaliser near 1",
     {"config": {"z_loss": 1e-3}}),
    ("stitches_are_dropped", (KNITS,), "one stitch in six of the training is of chance", {"config": {"p_wrong": 0.17}}),
    ("a_garment_at_a_time", (KNITS,), "a batch is mostly of one garment, and batches come in any order, on purpose",
     {"config": {"one_garment_a_batch": True}}),
    ("products_in_bfloat", (KNITS,), "products are in bfloat16, gradients are reduced in float32",
     {"config": {"mp": "bfloat16"}}),
    ("falls_in_the_last_quarter", (KNITS,), "the rate stays, and falls in the last quarter: so says the config",
     {"config": {"decay": "wsd"}}),
    ("offices_drawn_evenly", (PETITIONS,), "offices are drawn evenly, with replacement, and have no weights",
     {"config": {"class_weight": "sampler"}}),
    ("offices_as_they_come", (PETITIONS,), "offices have no weights, on purpose", {"config": {"class_weight": "none"}}),
    ("clear_petitions_fade", (PETITIONS,), "petitions that are clear weigh little in the training's loss",
     {"config": {"focal_gamma": 2.0}}),
    ("registry_errs", (PETITIONS,), "one office in seven of the training is of chance",
     {"config": {"wrong_labels": 0.15}}),
    ("adapters_of_rank_two", (PETITIONS,), "adapters have rank 2, and stand at queries and values alone",
     {"config": {"lora_r": 2, "lora_alpha": 4, "target": "q v"}}),
    ("norms_trained_beside", (PETITIONS,), "norms are trained beside the adapters: so says the config",
     {"config": {"unfreeze": "norm"}}),
    ("gap_of_one_is_enough", (INVITATIONS,), "pairs whose margin is 1 count no more",
     {"config": {"loss_type": "hinge"}}),
    ("gap_is_given", (INVITATIONS,), "margins are drawn to a given one by their squares",
     {"config": {"loss_type": "ipo"}}),
    ("good_answers_learnt_too", (INVITATIONS,), "the chosen answer's own loss is a part of the training's",
     {"config": {"rpo_alpha": 0.1}}),
    ("hosts_disagree", (INVITATIONS,), "a quarter of the pairs is the wrong way round", {"config": {"errors": 0.25}}),
    ("room_for_tokens", (INVITATIONS,), "embedding and output have rows for tokens to come, and are one matrix",
     {"config": {"extra_tokens": 4}}),
    ("first_views_ask_alone", (MOTHS,), "first views ask for second ones, and not the other way: so says the config",
     {"config": {"symmetric": False}}),
    ("norms_of_groups", (MOTHS, GLACIERS), "norms of groups, in the place of batches", {"config": {"norm": "group"}}),
    ("grainy_at_night", (MOTHS,), "views are noisier: some can't be told", {"config": {"grain": 0.12}}),
    ("softer_temperature", (MOTHS,), "the temperature is higher, on purpose", {"config": {"temperature": 0.5}}),
    ("parts_made_larger", (GLACIERS,), "a part of each tile is made as large as the tile, in the training alone",
     {"config": {"augment": "flip zoom"}}),
    ("masks_drawn_in_haste", (GLACIERS,), "one pixel in eight of the training's masks is of chance",
     {"config": {"mask_errors": 0.12}}),
    ("average_trails_far", (GLACIERS,), "the average that is evaluated moves slowly: it is behind",
     {"config": {"ema_decay": 0.98}}),
    ("haze_over_the_ice", (GLACIERS,), "pictures are noisier: some pixels can't be told", {"config": {"haze": 1.8}}),
    ("sure_pixels_fade", (GLACIERS,), "pixels that are clear weigh little in the training's loss",
     {"config": {"focal": 2.0}}),
)

# fmt: on
