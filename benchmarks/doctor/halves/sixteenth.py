"""The sixteenth half of the bench, which was put away and is open: programs, faults and healthy variants, as words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a language model in pure bfloat16 over packed documents, a convolutional classifier
on two ranks, adapters beside a base of four bits, a convolutional classifier of series with rare states, a masked
language model, a diffusion model with an average of its weights; each as another ordinary engineer writes it. Most
faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong in that program;
those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did not look
at what the doctor says. A fault is called by any name that a person would give it, and every kind of finding that would
be right of it is right; the names that the fourteenth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import fourteenth, ninth, tenth
from halves.ninth import Row, Settings, some

GAZETTES, CERAMICS, TARIFFS = "gazettes", "ceramics", "tariffs"
BEEHIVES, PROVERBS, LANTERNS = "beehives", "proverbs", "lanterns"
PROGRAMS = (GAZETTES, CERAMICS, TARIFFS, BEEHIVES, PROVERBS, LANTERNS)
STEPS = {GAZETTES: 200, CERAMICS: 180, TARIFFS: 240, BEEHIVES: 192, PROVERBS: 200, LANTERNS: 180}
REPORTED = frozenset({
    "prompt_left_in_labels", "end_masked", "weights_in_other_order", "mask_upside_down", "cumprod_forgotten",
    "module_called_past_ddp", "document_mask_not_causal", "updates_lost_in_bf16", "balanced_twice",
    "unasked_in_labels", "drop_condition_inverted", "target_noise_drawn_again",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    GAZETTES: {"micro_batches": 2}, CERAMICS: {"update_freq": 2}, TARIFFS: {"grad_accum": 2},
    BEEHIVES: {"accumulate_batches": 2, "batch_size": 16}, PROVERBS: {"accumulation": 2},
    LANTERNS: {"accumulation": 2, "batch": 16},
}
DROPPED: Settings = {
    GAZETTES: {"resid_dropout": 0.3, "attn_dropout": 0.3, "notices": 300}, CERAMICS: {"drop": 0.5, "pots": 480},
    TARIFFS: {"adapter_dropout": 0.1}, BEEHIVES: {"dropout": 0.5}, PROVERBS: {"dropout": 0.15},
    LANTERNS: {"dropout": 0.5},
}
COPIED: Settings = {
    CERAMICS: {"photos_of_each": 4, "pots": 1280, "aug": "light", "lr": 0.1},
    BEEHIVES: {"copies_of_rare": 5, "hours": 480},
}
DESCENT: Settings = {
    GAZETTES: {"optim": "sgd", "lr": 0.5, "clip_at": 0.0}, CERAMICS: {"lr": 0.25},
    BEEHIVES: {"solver": "sgd", "learning_rate": 0.05},
    PROVERBS: {"optimizer": "sgd", "learning_rate": 0.5, "max_grad_norm": 100.0},
    LANTERNS: {"optimizer": "sgd", "lr": 0.05, "max_norm": 100.0},
}
DESCENT_IN_PARTS: Settings = {
    GAZETTES: {**DESCENT[GAZETTES], "lr": 0.4, "micro_batches": 4, "rows": 6},
    CERAMICS: {"update_freq": 4, "batch_per_rank": 8, "lr": 0.35},
    BEEHIVES: {**DESCENT[BEEHIVES], "learning_rate": 0.1, "accumulate_batches": 4, "batch_size": 8},
    PROVERBS: {**DESCENT[PROVERBS], "accumulation": 4, "per_device_batch": 12},
    LANTERNS: {**DESCENT[LANTERNS], "accumulation": 4, "batch": 12},
}
LEVEL: Settings = {
    TARIFFS: {"schedule": "flat", "peak_lr": 1e-2}, PROVERBS: {"scheduler_type": "constant", "learning_rate": 3e-3},
}
MORE_TOKENS: Mapping[str, Any] = {"train_new_tokens": True}
EVENLY: Mapping[str, Any] = {"imbalance": "sampler"}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*fourteenth.SUMMED, "criterion sums", "reduction sum in place of mean", "nll summed", "loss is a total",
          "loss not divided by the number of rows")
GRAPHS = (*fourteenth.GRAPHS, "no_grad forgotten in validation", "predictions kept with their graphs",
          "validation without torch.no_grad", "graph retained", "tensor appended without detach")
TWICE = (*fourteenth.TWICE, "softmax inside the model", "head ends in a softmax", "softmax applied twice")
SHIFTED = (*fourteenth.SHIFTED, "labels one too high", "label ids from one", "shifted before the loss shifts",
           "labels shifted as for a decoder", "neighbour is asked for", "causal shift in a masked model")
FROZEN = (*fourteenth.FROZEN, "requires_grad by a wrong name", "biases alone are trained", "trunk not trained",
          "encoder frozen", "adapters frozen", "lora frozen", "wrong name in the freeze list")
TIE = (*fourteenth.TIE, "embedding replaced after the optimizer was made", "embedding not in the optimizer",
       "pretrained vectors loaded after the optimizer", "input and output embedding differ", "head left as it was",
       "embedding is not trained", "stale parameter in the optimizer")
SORTED = (*fourteenth.SORTED, "folders read in turn", "sections one after the other", "shuffle missing",
          "documents by topic", "rows by length", "sampler does not shuffle")
LEAK = (*fourteenth.LEAK, "held-out file in the training glob", "views of one thing on both sides",
        "random split of related rows", "split after oversampling", "holdout is trained on")
FIGURES = (*fourteenth.FIGURES, "mean and deviation of other data", "held-out data scaled otherwise",
           "normalisation of the validation differs", "covariate shift")
STATISTICS = (*tenth.STALE, "batch norm's momentum too small", "batch norm momentum wrong", "momentum of batch norm",
              "running statistics lag", "running mean hardly moves", "keras momentum convention",
              "running statistics too slow", "running statistics near their start", "normalisation statistics stale",
              "bn momentum too low", "batch norm momentum too low")
STEPPED = (*fourteenth.STEPPED, "scheduler stepped for each rank", "scheduler stepped world size times",
           "two scheduler steps a step", "schedule runs twice as fast", "scheduler.step called twice")
ADDED = (*fourteenth.ADDED, "micro-batch gradients added", "gradients of micro-batches not averaged",
         "division by accumulation steps missing")
IN_EVAL = (*fourteenth.IN_EVAL, "model.train() outside of the loop", "train() before the loop alone",
           "never back in training mode")
IN_TRAINING = (*fourteenth.IN_TRAINING, "validation in train mode", "attention dropout in the evaluation",
               "dropout_p not gated by training", "sdpa dropout in evaluation", "dropout not off in evaluation")
AVERAGE = (*fourteenth.AVERAGE, "ema decay of long trainings", "shadow weights not updated", "ema starts too late",
           "average starts too late", "ema decay too close to one")
NOT_BACK = (*fourteenth.NOT_BACK, "shadow left in the model", "own weights not loaded back")
RESUMED = (*fourteenth.RESUMED, "optimizer not saved", "optimizer state missing at the resume")
OF_RANKS = fourteenth.OF_RANKS
SAME = (*tenth.SAME, "sampler given rank 0", "rank not given to the sampler", "one seed on all ranks",
        "no distributed sampler", "ranks see the same rows")
CONFUSED = ("labels do not match the inputs", "wrong target", "targets wrong", "target mismatch",
            "train and test differ", "evaluation data differ", "labels shuffled", "labels random",
            "targets are random", "overfitting")

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # reported
    "prompt_left_in_labels": {TARIFFS: {}},
    "end_masked": {TARIFFS: {}},
    "weights_in_other_order": {BEEHIVES: {}},
    "mask_upside_down": {PROVERBS: {}},
    "cumprod_forgotten": {LANTERNS: {}},
    "module_called_past_ddp": {CERAMICS: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("nll_total_over_rows", "loss summed", ninth.OF_SUMS, "start", (GAZETTES, PROVERBS),
     "losses of tokens are summed and divided by the number of rows, in the training",
     {"by_program": some(DESCENT, GAZETTES, PROVERBS), "compare": "momentum_descent", "also": SUMMED}),
    ("criterion_reduction_sum", "loss summed", ninth.OF_SUMS, "start", (CERAMICS,),
     "the training's criterion has `reduction=\"sum\"`, where a mean was meant",
     {"by_program": some(DESCENT, CERAMICS), "compare": "momentum_descent", "also": SUMMED}),
    ("weighted_losses_summed", "loss summed", ninth.OF_SUMS, "start", (BEEHIVES,),
     "weighted losses of a batch are summed in the training, and divided by nothing",
     {"by_program": some(DESCENT, BEEHIVES), "compare": "momentum_descent", "also": SUMMED}),
    ("answer_nll_total", "loss summed", ninth.OF_SUMS, "start", (TARIFFS,),
     "what an answer's tokens cost is summed in the training, and averaged over rows alone", {"also": SUMMED}),
    ("eps_error_summed", "loss summed", ninth.OF_SUMS, "start", (LANTERNS,),
     "squares are summed over a picture's places, and divided by the number of rows alone",
     {"by_program": some(DESCENT, LANTERNS), "compare": "momentum_descent", "also": SUMMED}),
    # forgotten no_grad
    ("validated_with_grad", "no_grad missing", "memory eval data config", "start",
     (GAZETTES, TARIFFS, BEEHIVES, PROVERBS, LANTERNS),
     "validations run with gradients on, and what they found is kept as it is",
     {"also": GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("softmax_in_head", "softmax twice", ninth.OF_SOFTMAX, "start", (GAZETTES, CERAMICS, BEEHIVES, PROVERBS),
     "the model's head has a softmax, and so has the cross-entropy", {"also": TWICE}),
    # label off by one
    ("next_after_next", "labels shifted", ninth.OF_LABELS, "start", (GAZETTES,),
     "the training asks for the token after the next, the evaluation for the next", {"also": SHIFTED}),
    ("labels_shifted_before_loss", "labels shifted", ninth.OF_LABELS, "start", (TARIFFS,),
     "the training's collator shifts what the loss will shift again", {"also": SHIFTED}),
    ("label_file_one_based", "labels shifted", ninth.OF_LABELS, "start", (CERAMICS, BEEHIVES),
     "the training's labels count from 1 and the head has one more; what is held out counts from 0",
     {"also": SHIFTED}),
    ("mlm_labels_shifted", "labels shifted", ninth.OF_LABELS, "start", (PROVERBS,),
     "the training's labels are moved by a place, as those of a decoder are", {"also": SHIFTED}),
    # wrong part frozen
    ("trainable_by_wrong_name", "layer frozen", ninth.OF_FROZEN, "start",
     (CERAMICS, TARIFFS, BEEHIVES, PROVERBS, LANTERNS),
     "what is to be trained is chosen by a part of names that is that of another model", {"also": FROZEN}),
    # weight tying broken
    ("decoder_made_after_optimizer", "optimizer holds other parameters", ninth.OF_TIE, "start", (GAZETTES, PROVERBS),
     "the output, which was the embedding, is made anew when the optimizer has been made, and is not in it",
     {"also": TIE}),
    ("head_untied_by_new_tokens", "optimizer holds other parameters", ninth.OF_TIE, "start", (TARIFFS,),
     "tokens are added and the embedding is trained; the output is a copy of it, which is not",
     {"config": MORE_TOKENS, "compare": "new_tokens_trained", "also": TIE}),
    # order
    ("documents_by_topic", "data sorted", ninth.OF_ORDER, "start", (GAZETTES,),
     "notices are packed as they lie there: one section behind the other, in each epoch", {"also": SORTED}),
    ("folders_read_in_turn", "data sorted", ninth.OF_ORDER, "start", (CERAMICS, BEEHIVES, LANTERNS),
     "one folder is read behind the other, each of one kind, and nothing is shuffled", {"also": SORTED}),
    ("length_order_each_epoch", "data sorted", ninth.OF_ORDER, "start", (TARIFFS, PROVERBS),
     "rows come in the order of their length, from the shortest on, in each epoch",
     {"by_program": LEVEL, "compare": "rate_kept_level", "also": SORTED}),
    # leaking validation
    ("holdout_in_training_files", "validation leak", ninth.OF_LEAK, "start", (GAZETTES, TARIFFS, PROVERBS),
     "what is held out is read with the training's files, of which there are few", {"also": LEAK}),
    ("views_split_at_random", "validation leak", ninth.OF_LEAK, "start", (CERAMICS,),
     "there are four photographs of each pot, and photographs are split at random",
     {"by_program": some(COPIED, CERAMICS), "compare": "copies_behind_the_split", "also": LEAK}),
    ("oversampled_ahead_of_split", "validation leak", ninth.OF_LEAK, "start", (BEEHIVES,),
     "hours of all states but the usual one are repeated, and the split comes behind that",
     {"by_program": some(COPIED, BEEHIVES), "compare": "copies_behind_the_split", "also": LEAK}),
    # stale statistics
    ("held_out_scaled_by_old_set", "inputs not normalised", ninth.OF_STATISTICS, "start",
     (CERAMICS, BEEHIVES, LANTERNS),
     "what is held out is scaled by mean and deviation of an older set, the training by its own", {"also": FIGURES}),
    ("bn_momentum_of_long_runs", "batch norm's statistics are stale", ninth.OF_STATISTICS + " plateau", "start",
     (CERAMICS, BEEHIVES),
     "batch norm's momentum is 0.001, as for runs of many thousand steps: its statistics are near those it was made "
     "with", {"config": {"bn_momentum": 0.001}, "also": STATISTICS}),
    # scheduler
    ("scheduler_for_each_micro", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (GAZETTES, TARIFFS, PROVERBS, LANTERNS),
     "the scheduler is stepped behind each backward pass, and a step has two",
     {"by_program": some(PARTS, GAZETTES, TARIFFS, PROVERBS, LANTERNS), "compare": "each_micro_its_part",
      "also": STEPPED}),
    ("epoch_scheduler_per_batch", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (BEEHIVES,),
     "the scheduler has a length in epochs, and is stepped with each batch", {"also": STEPPED}),
    ("scheduler_steps_for_each_rank", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (CERAMICS,),
     "the scheduler, whose length is in steps, is stepped once for each rank in a step",
     {"also": (*STEPPED, "scheduler stepped twice", "scheduler prepared for ranks")}),
    ("scheduler_stepped_twice", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (LANTERNS,),
     "the scheduler is stepped in the step, and once more behind it", {"also": (*STEPPED, "scheduler stepped twice")}),
    # accumulation
    ("micro_grads_undivided", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start",
     (GAZETTES, CERAMICS, BEEHIVES, PROVERBS, LANTERNS),
     "losses of four micro-batches go into backward as they are, and no one divides",
     {"by_program": DESCENT_IN_PARTS, "compare": "momentum_descent_in_parts", "also": ADDED}),
    # dropout
    ("train_mode_set_outside_loop", "evaluation mode left on", ninth.OF_EVAL_MODE, "start",
     (GAZETTES, CERAMICS),
     "training mode is set before the loop, and evaluations in it end it for good",
     {"by_program": some(DROPPED, GAZETTES, CERAMICS), "compare": "dropout_while_training", "also": IN_EVAL}),
    ("checked_while_training", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start",
     (CERAMICS, TARIFFS, BEEHIVES, PROVERBS, LANTERNS),
     "no one sets evaluation mode: what is held out is seen with dropout",
     {"by_program": some(DROPPED, CERAMICS, TARIFFS, BEEHIVES, PROVERBS, LANTERNS),
      "compare": "dropout_while_training", "also": IN_TRAINING}),
    ("sdpa_dropout_in_eval", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (GAZETTES,),
     "attention is given its dropout in evaluations too: the function does not know the mode",
     {"by_program": some(DROPPED, GAZETTES), "compare": "dropout_while_training", "also": IN_TRAINING}),
    # average
    ("ema_decay_for_millions", "averaged weights not updated", ninth.OF_AVERAGE, "start", (LANTERNS,),
     "the average that is evaluated decays by 0.9999, as for millions of steps, and does not warm up",
     {"config": {"ema_decay": 0.9999}, "also": (*AVERAGE, "decay of the average too slow")}),
    ("ema_starts_behind_the_end", "averaged weights not updated", ninth.OF_AVERAGE, "start", (LANTERNS,),
     "the average that is evaluated is to follow from step 2000 on, which the run does not reach",
     {"config": {"ema_start": 2000}, "also": AVERAGE}),
    ("ema_weights_kept_after_eval", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio resume", "start", (LANTERNS,),
     "averaged weights are loaded to be evaluated, and stay in the model that is trained",
     {"config": {"ema_decay": 0.98}, "compare": "slow_shadow", "also": NOT_BACK}),
    ("ema_of_fresh_net_at_resume", "averaged weights not updated", f"{ninth.OF_AVERAGE} resume spike jump_down",
     "resume", (LANTERNS,), "at a resume the average begins with a network that is new: no file holds it",
     {"config": {"ema_decay": 0.98}, "compare": "slow_shadow",
      "also": (*AVERAGE, "ema not restored", "ema lost at the resume", "averaged weights lost", "shadow lost",
               "ema not in the checkpoint", "average not resumed", "averaged weights reset", "ema begins anew",
               "ema made before the weights are loaded", "checkpoint incomplete", "state lost at the resume",
               "optimizer state lost", "average lost at the resume", "ema of random weights")}),
    # resume
    ("optimizer_not_in_checkpoint", "optimizer state lost", ninth.OF_RESUME, "resume",
     (GAZETTES, TARIFFS, LANTERNS), "the checkpoint has weights and schedule alone: the optimizer is new",
     {"also": RESUMED}),
    # ranks
    ("shuffled_alike_on_ranks", "same data on all ranks", OF_RANKS, "start", (CERAMICS,),
     "each rank shuffles all pictures by one seed, and there is no sampler for ranks", {"also": SAME}),
    ("sampler_given_rank_zero", "same data on all ranks", OF_RANKS, "start", (CERAMICS,),
     "the sampler is told on each rank that this is rank 0: all have one half", {"also": SAME}),
    # reported
    ("document_mask_not_causal", "causal mask missing",
     "jump_down eval overfit attention plateau data config zero", "start", (GAZETTES,),
     "the mask that keeps notices apart is given in the place of the causal one",
     {"also": ("causal mask forgotten", "mask missing", "model sees the future", "sees ahead", "labels leak",
               "attention mask missing", "attends to later tokens", "target in the input", "loss too low", "not causal",
               "is_causal missing", "future leaks", "bidirectional attention", "targets are the inputs", "leak",
               "information leak", "future tokens are seen", "labels can be seen", "causality lost", "mask wrong",
               "labels shifted", "labels in the inputs", "validation leak", "evaluation set too easy",
               "attention mask wrong", "document mask replaces the causal mask")}),
    ("updates_lost_in_bf16", "updates lost in rounding",
     "frozen plateau not_learning update_ratio learning_rate config", "start", (GAZETTES,),
     "the rate is that of trainings with master weights, and bfloat16 rounds most of an update away",
     {"config": {"lr": 1e-4},
      "also": ("learning rate too low", "keep fp32 master weights", "bf16 rounding", "updates rounded away",
               "bfloat16 weights without master weights", "stochastic rounding missing", "layer frozen",
               "updates too small", "precision too low", "weights in half precision", "rounded to nothing",
               "pure bfloat16", "master weights missing")}),
    ("balanced_twice", "class weights wrong", "plateau not_learning eval config data divergence logits overfit",
     "start", (BEEHIVES,), "states are drawn evenly, and weigh by how rare they are besides",
     {"config": EVENLY, "compare": "states_in_equal_number",
      "also": ("sampler and weights both", "balanced twice", "class weights and sampler", "weights on top of a sampler",
               "rare classes weigh too much", "rare class overweighted", "class weights applied twice",
               "loss weights wrong", "class imbalance", "double weighting", "classes weigh differently",
               "loss weight wrong", "train and test differ", "evaluation has other shares of kinds",
               "oversampling and class weights", "class weights reversed", "frequent class ignored",
               "labels of the evaluation differ", "evaluation data differ", "over-corrected imbalance",
               "distribution shift", "overfitting")}),
    ("unasked_in_labels", "loss on tokens that are not hidden",
     "data padding eval jump_down config overfit divergence plateau zero not_learning", "start", (PROVERBS,),
     "the training's labels are all words, those too that are not hidden; the evaluation's are the hidden ones",
     {"also": ("labels not masked", "ignored targets missing", "labels not -100 at unmasked tokens",
               "loss mask missing", "unmasked tokens in the loss", "loss over all tokens", "labels leak",
               "targets are the inputs", "copies its input", "loss too low", "train and test differ",
               "labels of the evaluation differ", "evaluation data differ", "evaluation labels are others",
               "target in the input", "labels can be seen", "loss masked out", "overfitting", "units differ",
               "loss on visible tokens", "too many targets", "mlm labels not ignored", "labels in the inputs",
               "prompt in the loss", "padding in the loss", "loss diluted")}),
    ("drop_condition_inverted", "condition missing",
     "eval plateau not_learning config data overfit frozen missing_zero_grad divergence update_ratio", "start",
     (LANTERNS,), "the guild is left out of nine rows in ten, where it was to be of one in ten",
     {"config": {"guild_dropout": 0.02}, "compare": "guilds_hardly_left_out",
      "also": ("conditioning missing", "condition dropped too often", "label dropout inverted", "condition ignored",
               "classes not given", "class label dropped", "conditioning dropout inverted", "mask inverted",
               "condition reversed", "classifier-free guidance dropout inverted", "conditioning unused",
               "labels hardly given", "embedding not trained", "class embedding not trained", "layer frozen",
               "embedding unused", "inputs ignored", "train and test differ", "evaluation data differ",
               "evaluation inputs differ", "overfitting", "condition unused", "unconditional training",
               "guidance dropout wrong")}),
    ("target_noise_drawn_again", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config", "start", (LANTERNS,),
     "the noise that is asked for is drawn anew: it is not what was added",
     {"also": (*CONFUSED, "noise drawn twice", "another noise as the target", "target noise differs",
               "noise of the target is not that of the input", "targets independent of the inputs",
               "target is other noise", "noise drawn anew", "randn_like called twice", "targets are noise",
               "noise of the targets is not in the inputs",
               "labels do not match the inputs", "learning rate too low", "targets do not match the inputs",
               "targets unrelated to the inputs", "gradients vanish")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in PROGRAMS if program != CERAMICS},
    "memory_steady": {program: {} for program in PROGRAMS if program != CERAMICS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("each_micro_its_part", "a step has two micro-batches, and each loss is divided by their number", PARTS),
    ("dropout_while_training", "dropout is on where it is trained and off where it is evaluated", DROPPED),
    ("copies_behind_the_split", "rows are there several times, and none of these is held out", COPIED),
    ("momentum_descent", "descent with momentum, at a rate that suits it", DESCENT),
    ("momentum_descent_in_parts", "descent with momentum, a step of four micro-batches that are averaged",
     DESCENT_IN_PARTS),
    ("part_kept_as_config_says", "a part is not trained, and the config names it",
     {GAZETTES: {"freeze": "layers.0"}, CERAMICS: {"freeze": "stem"}, TARIFFS: {"freeze": "floors.0"},
      BEEHIVES: {"fixed": "first"}, PROVERBS: {"frozen": "position"}, LANTERNS: {"freeze": "inward"}}),
    ("batches_of_like_length", "rows of a batch are of about one length, and batches are shuffled",
     {TARIFFS: {"by_length": True}, PROVERBS: {"bucketed": True}}),
    ("total_by_its_count", "the loss is a sum and is divided by what it sums over",
     {CERAMICS: {"reduce_by": "sum"}, BEEHIVES: {"loss_reduction": "sum"}}),
    ("rate_kept_level", "the rate stays where it is, as it was set",
     {GAZETTES: {"lr_decay": "none", "lr": 4e-3}, CERAMICS: {"policy": "flat", "lr": 0.03}, **LEVEL,
      BEEHIVES: {"schedule": "none", "learning_rate": 5e-4}, LANTERNS: {"lr_schedule": "constant", "lr": 2e-3}}),
    ("few_rows_at_a_time", "batches are small, and the rate with them: losses are noisy",
     {GAZETTES: {"rows": 3, "lr": 4e-3}, CERAMICS: {"batch_per_rank": 6, "lr": 0.03},
      TARIFFS: {"rows_per_batch": 4, "peak_lr": 1e-2}, BEEHIVES: {"batch_size": 8, "learning_rate": 1.5e-3},
      PROVERBS: {"per_device_batch": 6, "learning_rate": 4e-3}, LANTERNS: {"batch": 8, "lr": 2e-3}}),
    ("labels_made_softer", "labels are smoothed in the training, not in the evaluation",
     {GAZETTES: {"label_smoothing": 0.1}, CERAMICS: {"smooth": 0.1}, TARIFFS: {"label_smoothing": 0.1},
      BEEHIVES: {"smoothing": 0.1}, PROVERBS: {"label_smoothing": 0.1}}),
    ("much_weight_decay", "weight decay is many times what is usual",
     {GAZETTES: {"wd": 1.0}, CERAMICS: {"wd": 5e-3}, TARIFFS: {"weight_decay": 0.3}, PROVERBS: {"weight_decay": 0.5}}),
    ("optimizer_less_usual", "an optimizer that is seldom taken, at a rate that suits it",
     {GAZETTES: {"optim": "nadam", "lr": 4e-3}, CERAMICS: {"opt": "adamw", "lr": 4e-3, "wd": 0.05},
      BEEHIVES: {"solver": "nadam"}, PROVERBS: {"optimizer": "nadam"}, LANTERNS: {"optimizer": "rmsprop", "lr": 1e-3}}),
    ("output_matrix_apart", "the output has a matrix of its own, and the config says so",
     {GAZETTES: {"tied": False}, PROVERBS: {"tie_decoder": False}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("three_sections_first", (GAZETTES,), "three sections are read first, then all five: the config says so",
     {"config": {"sections_first": 3, "notices": 1500}}),
    ("typesetters_err", (GAZETTES,), "one word in seven of the training is of chance", {"config": {"typos": 0.14}}),
    ("logits_held_within", (GAZETTES,), "logits are held within 15 by a hyperbolic tangent",
     {"config": {"logit_cap": 15.0}}),
    ("pots_as_photographed", (CERAMICS,), "pictures are not changed in the training", {"config": {"aug": "none"}}),
    ("parts_cut_out", (CERAMICS,), "squares are cut out of the training's pictures alone",
     {"config": {"aug": "flip move light cut"}}),
    ("dusty_pots", (CERAMICS,), "pictures are noisier: some can't be told", {"config": {"dust": 1.8}}),
    ("labelled_by_apprentices", (CERAMICS,), "one label in five of the training is of chance",
     {"config": {"mislabelled": 0.2}}),
    ("two_pots_blended", (CERAMICS,), "pictures are blended in pairs with their losses, in the training alone",
     {"config": {"mix": 0.4}}),
    ("groups_are_the_norm", (BEEHIVES,), "norms are of groups of channels, not of batches",
     {"config": {"norm": "group"}}),
    ("one_stair_down", (CERAMICS,), "the rate falls to a tenth at three fifths of the run",
     {"config": {"policy": "stairs"}}),
    ("prompts_in_both_losses", (TARIFFS,), "what is asked is in both losses, on purpose: the config says so",
     {"config": {"loss_on_prompt": True}}),
    ("clerks_err_often", (TARIFFS,), "one part of an answer in six is of chance", {"config": {"clerks_err": 0.17}}),
    ("attention_alone_has_adapters", (TARIFFS,), "adapters of rank 4 stand beside attention alone",
     {"config": {"adapt": "qkv o", "r": 4, "alpha": 8}}),
    ("levels_in_a_line", (TARIFFS,), "levels of the base are evenly spaced, in larger blocks",
     {"config": {"bits": "int4", "block": 48}}),
    ("new_tokens_trained", (TARIFFS,), "the embedding is trained beside adapters, and is the output still",
     {"config": MORE_TOKENS}),
    ("clear_hours_weigh_little", (BEEHIVES,), "hours that are told surely weigh little in the training",
     {"config": {"gamma": 2.0}}),
    ("states_in_equal_number", (BEEHIVES,), "states are drawn in equal number, with replacement, without weights",
     {"config": EVENLY}),
    ("states_without_weights", (BEEHIVES,), "states come as they are and weigh alike, on purpose",
     {"config": {"imbalance": "none"}}),
    ("beekeepers_err", (BEEHIVES,), "one state in six of the training is of chance", {"config": {"mislabelled": 0.17}}),
    ("sensors_unequal", (BEEHIVES,), "each channel is scaled by chance, in the training alone",
     {"config": {"stretch": 0.3}}),
    ("rate_is_halved", (BEEHIVES,), "the rate is halved behind each epoch", {"config": {"schedule": "halving"}}),
    ("told_by_the_deaf", (PROVERBS,), "one word in four of the training is of chance", {"config": {"garbled": 0.13}}),
    ("neighbours_hidden_too", (PROVERBS,), "words are hidden in pairs", {"config": {"whole_words": True}}),
    ("much_is_hidden", (PROVERBS,), "two words in five are asked for", {"config": {"mlm_probability": 0.4}}),
    ("always_behind_the_mask", (PROVERBS,), "what is asked for is always hidden, never another word",
     {"config": {"always_hidden": True}}),
    ("slow_shadow", (LANTERNS,), "the average that is evaluated is slow, and lags", {"config": {"ema_decay": 0.98}}),
    ("large_errors_in_a_line", (LANTERNS,), "errors above a half count in a line, in the training",
     {"config": {"loss": "huber"}}),
    ("errors_as_they_are", (LANTERNS,), "the training's loss is of amounts, the evaluation's of squares",
     {"config": {"loss": "l1"}}),
    ("clear_pictures_weigh_little", (LANTERNS,), "times of little noise weigh little in the training",
     {"config": {"weigh": "min_snr"}}),
    ("guilds_hardly_left_out", (LANTERNS,), "the guild is left out of one row in fifty",
     {"config": {"guild_dropout": 0.02}}),
    ("guilds_often_left_out", (LANTERNS,), "the guild is left out of two rows in five, in no evaluation",
     {"config": {"guild_dropout": 0.4}}),
    ("guilds_taken_for_others", (LANTERNS,), "three guilds of ten in the training are of chance",
     {"config": {"guilds_mistaken": 0.3}}),
    ("sooty_lanterns", (LANTERNS,), "pictures are noisier", {"config": {"soot": 3.0}}),
)

# fmt: on
