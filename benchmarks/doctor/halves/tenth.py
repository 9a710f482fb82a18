"""The tenth half of the bench, which is put away: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of nine families: a vision transformer, diffusion, contrastive, adapters, preferences, a classifier
of rare kinds, pure bfloat16, float16 with a scaler, `fully_shard`; each as another ordinary engineer writes it. Most
faults are of the fifteen kinds that the ninth half has, each as the line that a person gets wrong in that program;
those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did not look
at what the doctor says. A fault is called by any name that a person would give it, and every kind of finding that
would be right of it is right; the names that the ninth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import ninth
from halves.ninth import Row, Settings, some

FLAGS, SEASONS, VOICES, DATES = "flags", "seasons", "voices", "dates"
JURIES, PAYMENTS, JOURNALS, MENUS, CONVOYS = "juries", "payments", "journals", "menus", "convoys"
PROGRAMS = (FLAGS, SEASONS, VOICES, DATES, JURIES, PAYMENTS, JOURNALS, MENUS, CONVOYS)
STEPS = {FLAGS: 180, SEASONS: 180, VOICES: 180, DATES: 160, JURIES: 180, PAYMENTS: 200, JOURNALS: 160, MENUS: 180,
         CONVOYS: 160}  # fmt: skip
REPORTED = frozenset({
    "cleared_before_step", "noise_wanted", "one_hearing_twice", "features_not_normalised", "end_masked",
    "first_place_pooled", "figures_raw", "sees_ahead", "stepped_past_the_scaler", "optimizer_before_shards",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    SEASONS: {"grad_accumulation": 2}, DATES: {"accumulation": 2}, JURIES: {"gradient_accumulation_steps": 2},
    JOURNALS: {"gradient_accumulation_steps": 2}, MENUS: {"accumulate": 2}, CONVOYS: {"accumulation": 2},
}
DROPPED: Settings = {
    FLAGS: {"dropout": 0.3}, SEASONS: {"dropout": 0.3}, VOICES: {"dropout": 0.4}, DATES: {"lora_dropout": 0.3},
    JURIES: {"dropout": 0.2}, PAYMENTS: {"dropout": 0.4}, MENUS: {"dropout": 0.3}, CONVOYS: {"dropout": 0.3},
}
AVERAGED: Settings = {FLAGS: {"ema": 0.95}, VOICES: {"ema": 0.9}, JOURNALS: {"ema": 0.9}}
COPIED: Settings = {VOICES: {"hearings": 4, "recordings": 1280}, PAYMENTS: {"copies_of_rare": 5, "payments": 1600}}

# -- names that a person would give: causes that are as true, and kinds that are right -----------------------------

SUMMED = (*ninth.SUMMED, "loss summed", "loss summed over the batch", "loss divided by nothing", "mean forgotten",
          "sum over rows", "loss not a mean", "loss too large", "gradients too large")
LESSER = (*ninth.LESSER, "mean over ignored targets", "loss averaged over all places", "padding in the loss",
          "unmasked places in the loss", "loss diluted", "loss divided by its ignored targets", "ignored targets count",
          "loss averaged over masked places", "mean over masked places", "loss too small",
          "loss divided by padding", "zeros in the mean", "loss masked out", "gradient accumulation scaled wrongly")
GRAPHS = (*ninth.GRAPHS, "memory leak", "no_grad missing", "losses kept", "losses kept with their graphs",
          "loss appended without detach", "list of losses", "graphs accumulate", "average built with a graph",
          "ema not detached", "scores kept with their graphs", "item() missing")
TWICE = (*ninth.TWICE, "softmax twice", "loss of probabilities", "probabilities in the cross-entropy",
         "output is a softmax", "softmax in the head")
SHIFTED = (*ninth.SHIFTED, "labels shifted", "labels do not match the inputs", "targets do not match the inputs",
           "positive at the wrong place", "positives shifted", "diagonal not removed from the labels",
           "pairs shifted", "wrong positives", "shifted loss", "labels shifted again", "token after the next",
           "causal shift in a masked model", "shift not wanted", "labels wrong", "labels are of the next place",
           "half of the labels are wrong", "labels noisy", "labels are noisy")
FROZEN = (*ninth.FROZEN, "layer frozen", "body frozen", "only the head is trained", "most parameters frozen",
          "adapters frozen", "only norms are trained", "few parameters trained", "trained part is too small",
          "projector frozen", "encoder frozen")
TIE = (*ninth.TIE, "optimizer holds other parameters", "weight tying lost", "tied weights apart",
       "embedding and output trained apart", "output and embedding are two matrices", "tied by copy",
       "weights tied by value", "tying undone", "head replaced")
SORTED = (*ninth.SORTED, "data sorted", "shuffle off", "shuffle missing", "sorted data", "sorted by size",
          "sorted by a feature", "order by length", "batches of one length", "sampler in order", "non-iid batches",
          "class by class")
LEAK = (*ninth.LEAK, "validation leak", "leak", "held-out rows in the training", "split after the copies",
        "copies across the split", "duplicates in both splits", "validation in the training", "copied before the split",
        "evaluation set too easy", "validation rows are trained on", "data split wrong", "few rows repeated")
STALE = (*ninth.STALE, "batch norm's statistics are stale", "batch norm in evaluation mode",
         "batch norm frozen", "batch norm never normalises", "running statistics too slow", "momentum too small",
         "batch norm momentum too small", "statistics not averaged", "buffers not copied", "buffers not averaged",
         "average without buffers", "averaged weights without their statistics", "averaged weights are wrong",
         "averaged weights not updated", "statistics of the average are stale", "layer frozen",
         "momentum of batch norm is too low", "running statistics lag")
FIGURES = ("inputs not normalised", "normalisation differs", "evaluation data differ", "train and test differ",
           "evaluation not normalised", "normalisation statistics are stale", "evaluation inputs differ",
           "wrong mean and deviation", "statistics are stale", "evaluation inputs scaled otherwise",
           "preprocessing differs", "inputs scaled twice", "normalisation of others", "statistics of other data",
           "inputs of the evaluation differ", "batch norm's statistics are stale", "inputs shifted",
           "evaluation normalised otherwise", "evaluation inputs shifted", "distribution shift", "covariate shift",
           "evaluation preprocessed otherwise", "tokenizer mismatch", "overfitting")
STEPPED = (*ninth.STEPPED, "learning rate too low", "scheduler stepped per micro-batch",
           "rate by micro-batches", "schedule counts micro-batches", "schedule counted in micro-batches",
           "schedule runs twice as fast", "learning rate ends early", "schedule shorter than the run")
ADDED = (*ninth.ADDED, "gradient accumulation scaled wrongly", "loss not divided by accumulation steps",
         "gradients not averaged over micro-batches", "losses added over micro-batches", "reduction is a sum")
IN_EVAL = (*ninth.IN_EVAL, "evaluation mode left on", "model left in evaluation mode", "evaluation mode while training",
           "dropout inactive", "trained in evaluation mode", "dropout has no effect")
IN_TRAINING = (*ninth.IN_TRAINING, "evaluation in training mode", "dropout on while evaluating",
               "evaluated in training mode", "dropout always on", "dropout not told of evaluation",
               "functional dropout without training", "F.dropout without training", "batch norm in training mode",
               "randomness in evaluation")
AVERAGE = (*ninth.AVERAGE, "averaged weights not updated", "average of itself", "average follows a copy",
           "average follows another model", "average not moved", "average moved too rarely", "ema updated too rarely",
           "average updated too rarely", "averaged weights frozen", "ema frozen", "average is stale",
           "average of a copy", "average never follows")
NOT_BACK = ("averaged weights not swapped back", "weights not restored", "averaged weights not restored",
            "averaged weights kept", "weights overwritten", "training goes on from the average",
            "average written into the model", "weights written between steps", "ema not restored",
            "averaged weights are trained", "learning rate too low", "restore missing", "weights replaced",
            "parameters changed outside of the optimizer", "weights swapped and not swapped back",
            "weights changed by the evaluation", "evaluation changes the weights")
RESUMED = (*ninth.RESUMED, "optimizer state lost", "moments begin anew", "optimizer state missing",
           "optimizer reset", "resume without the optimizer")
SAME = ("same data on all ranks", "data replayed", "seed equal on all ranks", "sampler missing",
        "distributed sampler missing", "same seed on all ranks", "ranks have the same batches", "data not sharded",
        "sampler does not shard", "same batches on all ranks", "data not split over ranks", "rank not used by the data",
        "data set not sharded", "every rank reads the same rows", "rank is 0 everywhere")
OF_KINDS = "eval overfit not_learning plateau divergence data config"

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("total_over_batch", "loss summed", ninth.OF_SUMS, "start", (FLAGS, VOICES, PAYMENTS),
     "the criterion's reduction is a sum in the training; a mean was meant", {"also": SUMMED}),
    ("squares_summed", "loss summed", ninth.OF_SUMS, "start", (SEASONS,),
     "weighted squares are summed over rows and hours, where a mean was meant", {"also": SUMMED}),
    ("pairs_totalled", "loss summed", ninth.OF_SUMS, "start", (JURIES,),
     "the losses of a batch's pairs are summed, where a mean was meant", {"also": SUMMED}),
    ("tokens_totalled", "loss summed", ninth.OF_SUMS, "start", (DATES, JOURNALS),
     "the loss is a sum over signs, divided by the number of rows alone", {"also": SUMMED}),
    ("mean_over_the_asked_and_others", "loss divided too often", f"{ninth.OF_LESS} data padding", "start", (MENUS,),
     "the training's mean is over all places, of which most are ignored and count as 0", {"also": LESSER}),
    # forgotten no_grad
    ("losses_kept", "no_grad missing", "memory eval data config", "start", (FLAGS,),
     "the training's losses are kept in a list, with their graphs", {"also": GRAPHS, "compare": "memory_steady"}),
    ("scores_kept", "no_grad missing", "memory eval data config", "start", (JURIES, JOURNALS, MENUS),
     "evaluations run with gradients, and their losses are kept for later",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("average_in_graph", "no_grad missing", "memory eval data config", "start", (SEASONS,),
     "the average is made of parameters that were not detached: its graph grows",
     {"also": GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("probabilities_given", "softmax twice", ninth.OF_SOFTMAX, "start", (FLAGS, VOICES, PAYMENTS, MENUS),
     "the cross-entropy is given probabilities: a softmax stands before it", {"also": TWICE}),
    # label off by one
    ("classes_from_one", "labels shifted", ninth.OF_LABELS, "start", (FLAGS, PAYMENTS),
     "the training's kinds are numbered from 1, and wrap around; the evaluation's are not", {"also": SHIFTED}),
    ("diagonal_forgotten", "labels shifted", ninth.OF_LABELS, "start", (VOICES,),
     "the diagonal is cut out of the scores, and half of the labels are still counted with it", {"also": SHIFTED}),
    ("one_token_further", "labels shifted", ninth.OF_LABELS, "start", (DATES, CONVOYS),
     "the training's loss asks for the token after the next", {"also": SHIFTED}),
    ("shifted_by_both", "labels shifted", ninth.OF_LABELS, "start", (JOURNALS,),
     "the training's loader shifts the targets once more than the loss expects", {"also": SHIFTED}),
    ("shifted_as_a_decoder", "labels shifted", ninth.OF_LABELS, "start", (MENUS,),
     "the training's loss shifts as a decoder's does, in a model that fills in", {"also": SHIFTED}),
    # wrong part frozen
    ("wrong_names_frozen", "layer frozen", ninth.OF_FROZEN, "start", (FLAGS, VOICES, DATES, JURIES, PAYMENTS, CONVOYS),
     "a test of names freezes nearly all, and leaves a part that was not meant", {"also": FROZEN}),
    # weight tying broken
    ("tie_cut", "optimizer holds other parameters", ninth.OF_TIE, "start", (JOURNALS, MENUS, CONVOYS),
     "embedding and output are one matrix by the config, and two by a line that comes later", {"also": TIE}),
    # order
    ("shortest_first", "data sorted", ninth.OF_ORDER, "start", (DATES, JURIES, JOURNALS, CONVOYS),
     "rows are sorted by length in each epoch, the shortest first", {"also": SORTED}),
    ("histories_by_length", "data sorted", ninth.OF_ORDER, "start", (PAYMENTS,),
     "histories are sorted by length in each epoch, for little padding", {"also": SORTED}),
    ("folder_order", "data sorted", ninth.OF_ORDER, "start", (FLAGS,),
     "pictures come as the folders are listed: one kind after the other", {"also": SORTED}),
    ("sorted_by_loudness", "data sorted", ninth.OF_ORDER, "start", (VOICES,),
     "recordings come in the order of a table that is sorted by one of its bands", {"also": SORTED}),
    # leaking validation
    ("heldout_days_trained", "validation leak", ninth.OF_LEAK, "start", (SEASONS,),
     "the days that are held out are in the training set, which has few others", {"also": LEAK}),
    ("heard_before_split", "validation leak", ninth.OF_LEAK, "start", (VOICES,),
     "each recording is in the table four times, and lines of the table are dealt out",
     {"by_program": some(COPIED, VOICES), "compare": "copies_in_training_alone", "also": LEAK}),
    ("whole_list_trained", "validation leak", ninth.OF_LEAK, "start", (DATES,),
     "the list that is trained on is the whole one, the held-out rows among it", {"also": LEAK}),
    ("asked_again_before_split", "validation leak", ninth.OF_LEAK, "start", (JURIES,),
     "each pair is in the list three times, which is split afterwards", {"also": LEAK}),
    ("resampled_before_split", "validation leak", ninth.OF_LEAK, "start", (PAYMENTS,),
     "rare kinds are copied before the table is split: copies are on both sides",
     {"by_program": some(COPIED, PAYMENTS), "compare": "copies_in_training_alone", "also": LEAK}),
    # stale statistics
    ("tested_by_other_figures", "inputs not normalised", ninth.OF_STATISTICS, "start", (FLAGS,),
     "the test is normalised by the figures of photographs, the training by its own", {"also": FIGURES}),
    ("scaled_by_last_years", "inputs not normalised", ninth.OF_STATISTICS, "start", (SEASONS,),
     "what is held out is scaled by another station's figures, of an older file", {"also": FIGURES}),
    ("statistics_hardly_moved", "batch norm's statistics are stale", ninth.OF_STATISTICS, "start", (VOICES,),
     "batch norm's momentum is 0.001, in a training of a few hundred steps", {"also": STALE}),
    ("statistics_never_taken", "batch norm's statistics are stale", ninth.OF_STATISTICS + " not_learning plateau",
     "start", (PAYMENTS,), "batch norm is in evaluation mode from the first step on, in a network that is new",
     {"also": (*STALE, *IN_EVAL)}),
    # scheduler per micro-batch
    ("scheduler_in_micro_loop", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start",
     (SEASONS, DATES, JURIES, MENUS, CONVOYS), "the scheduler is stepped behind each backward of two",
     {"by_program": some(PARTS, SEASONS, DATES, JURIES, MENUS, CONVOYS), "compare": "two_parts", "also": STEPPED}),
    ("rate_by_micro_batch", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (JOURNALS,),
     "the rate is asked of the number of micro-batches, which are two a step",
     {"by_program": some(PARTS, JOURNALS), "compare": "two_parts", "also": STEPPED}),
    # accumulation
    ("parts_added", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start",
     (SEASONS, JURIES, JOURNALS, MENUS, CONVOYS), "the losses of two micro-batches are added, and not divided",
     {"by_program": some(PARTS, SEASONS, JURIES, JOURNALS, MENUS, CONVOYS), "compare": "two_parts", "also": ADDED}),
    ("divided_twice", "gradient accumulation scaled wrongly", ninth.OF_LESS, "start", (DATES,),
     "the loss that is differentiated is divided by the number of micro-batches twice",
     {"by_program": some(PARTS, DATES), "compare": "two_parts", "also": LESSER}),
    # dropout
    ("eval_mode_stays", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (FLAGS, CONVOYS),
     "behind the first evaluation nobody sets the training mode again",
     {"by_program": some(DROPPED, FLAGS, CONVOYS), "compare": "dropout_on", "also": IN_EVAL}),
    ("base_eval_mode", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (DATES,),
     "the base is loaded in evaluation mode, and so it stays: the adapters' dropout is off",
     {"by_program": some(DROPPED, DATES), "compare": "dropout_on", "also": IN_EVAL}),
    ("test_with_dropout", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (VOICES, JURIES, PAYMENTS),
     "evaluation mode is never set: dropout and batch statistics are on in the evaluation",
     {"by_program": some(DROPPED, VOICES, JURIES, PAYMENTS), "compare": "dropout_on", "also": IN_TRAINING}),
    ("functional_always", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (SEASONS, MENUS),
     "the function of dropout is not told the mode: it drops in evaluations",
     {"by_program": some(DROPPED, SEASONS, MENUS), "compare": "dropout_on", "also": IN_TRAINING}),
    # average
    ("average_of_itself", "averaged weights not updated", ninth.OF_AVERAGE, "start", (FLAGS,),
     "the average is updated with its own weights: it never moves",
     {"by_program": some(AVERAGED, FLAGS), "compare": "averaged_each_step", "also": AVERAGE}),
    ("copy_is_averaged", "averaged weights not updated", ninth.OF_AVERAGE, "start", (SEASONS,),
     "what is averaged is a copy of the model, which nobody trains", {"also": AVERAGE}),
    ("buffers_not_averaged", "batch norm's statistics are stale", ninth.OF_AVERAGE + " activations", "start", (VOICES,),
     "the average that is evaluated follows the weights, and batch norm's statistics stay as they were made",
     {"by_program": some(AVERAGED, VOICES), "compare": "averaged_each_step", "also": (*STALE, *AVERAGE)}),
    ("average_moved_at_logs", "averaged weights not updated", ninth.OF_AVERAGE, "start", (JOURNALS,),
     "the average is moved where the evaluation is logged, and not in each step",
     {"by_program": some(AVERAGED, JOURNALS), "compare": "averaged_each_step", "also": AVERAGE}),
    ("average_left_in", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio resume", "start", (SEASONS,),
     "the average stays in the model behind each evaluation",
     {"config": {"ema_decay": 0.98}, "compare": "average_is_slow", "also": NOT_BACK}),
    # resume
    ("moments_left_out", "optimizer state lost", ninth.OF_RESUME, "resume",
     (FLAGS, SEASONS, PAYMENTS, JOURNALS, MENUS), "the training goes on with an optimizer that is new",
     {"also": RESUMED}),
    # ranks
    ("road_not_dealt_out", "same data on all ranks", "repeated_data desync data replay", "start", (CONVOYS,),
     "the iterable data set gives every rank all of its rows, in one order", {"also": SAME}),
    ("rank_of_another_launcher", "same data on all ranks", "repeated_data desync data replay", "start", (CONVOYS,),
     "rows are dealt out by a variable of another launcher, which is not set: each rank is the first", {"also": SAME}),
    # reported
    ("cleared_before_step", "zero_grad missing", "missing_zero_grad frozen not_learning plateau update_ratio vanishing "
     "zero config learning_rate", "start", (FLAGS,),
     "gradients are cleared between backward and step: nothing is ever learnt",
     {"also": ("gradients cleared before the step", "zero_grad between backward and step", "zero_grad too late",
               "zero_grad at the wrong place", "layer frozen", "optimizer holds other parameters", "no gradients",
               "optimizer has no gradients", "gradients missing", "graph cut", "gradients are none", "frozen",
               "nothing is trained", "learning rate too low", "zero_grad before step", "step has no gradients",
               "gradients cleared too early", "gradients deleted", "weights never move")}),
    ("noise_wanted", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config learning_rate", "start", (SEASONS,),
     "the loss asks for the noise, where the network's way of saying is the clean day",
     {"also": ("wrong target", "target is the noise", "parametrisation mixed up", "prediction type wrong",
               "targets do not match the output", "labels shuffled", "targets wrong", "target mismatch",
               "prediction and target differ", "labels shifted", "loss cannot fall", "target is noise",
               "targets are random", "labels are noise", "preconditioning wrong", "targets of another parametrisation",
               "learning rate too high", "bad initialisation", "loss weight wrong")}),
    ("one_hearing_twice", "validation leak", "jump_down zero eval overfit data config vanishing logits plateau",
     "start", (VOICES,), "both views of a recording are one and the same: there is nothing to learn",
     {"also": ("views are the same", "views identical", "both views equal", "augmentation missing", "task trivial",
               "positives are identical", "shortcut", "overfitting", "train and test differ",
               "augmentation applied once",
               "evaluation data differ", "inputs are the same", "pair of equal inputs", "labels in the inputs",
               "data leak", "two views equal", "same input twice", "inputs repeated", "collapsed task")}),
    ("features_not_normalised", "temperature missing",
     "logits exploding clipping divergence spike plateau not_learning learning_rate eval config activations "
     "update_ratio weight_growth overfit nonfinite", "start", (VOICES,),
     "features are not made unit vectors: scores are products without a bound",
     {"also": ("embeddings not normalised", "normalisation missing", "features not normalised", "cosine missing",
               "logits too large", "logits not bounded", "inputs not normalised", "scale wrong", "temperature too low",
               "learning rate too high", "attention temperature", "no z-loss", "bad initialisation",
               "logits not scaled", "unit norm missing", "normalize missing", "scores not cosines")}),
    ("end_masked", "loss masked out", "data padding eval overfit divergence config plateau jump_down",
     "start", (DATES,),
     "the end's token is masked in the training's labels, as if it were padding",
     {"also": ("labels not masked", "end token masked", "eos masked", "end of sequence never trained",
               "end token never learnt", "padding token is the end token", "labels of the evaluation differ",
               "evaluation labels are others", "evaluation data differ", "train and test differ", "labels shifted",
               "token missing from the labels", "too much masked", "overfitting", "class missing",
               "evaluation has other labels", "labels differ", "masking differs")}),
    ("first_place_pooled", "wrong token pooled",
     "plateau not_learning eval config padding data learning_rate frozen rl attention vanishing", "start",
     (JURIES,), "the reward is read at a row's first token, in a model that looks back alone",
     {"also": ("pooling wrong", "first token pooled", "wrong token read", "wrong position pooled",
               "reads the first token",
               "inputs do not reach the output", "last token not read", "pooling of a causal model wrong",
               "labels shuffled", "learning rate too low", "most inputs unseen", "answer not seen",
               "head reads one token",
               "attention mask wrong", "causal mask in an encoder", "graph cut", "output ignores the inputs",
               "output does not depend on the inputs", "labels do not match the inputs", "inputs ignored")}),
    ("figures_raw", "inputs not normalised",
     "activations exploding clipping divergence spike data config eval overfit saturated dead plateau not_learning "
     "learning_rate logits", "start", (PAYMENTS,),
     "amounts go in as they are, from one to thousands: their logarithm was forgotten",
     {"also": ("inputs too large", "inputs not scaled", "inputs not standardised", "features not scaled",
               "outliers in the inputs", "heavy tails in the inputs", "scale of inputs", "log missing",
               "inputs of unequal scale", "learning rate too high", "bad initialisation", "normalisation missing",
               "batch norm's statistics are stale", "evaluation data differ", "train and test differ",
               "inputs have outliers", "bad batch", "inputs unscaled")}),
    ("sees_ahead", "labels in the inputs", "jump_down eval data zero overfit attention config", "start", (JOURNALS,),
     "attention is not causal: each sign sees the one that it should say",
     {"also": ("causal mask missing", "mask missing", "attention mask missing", "causality lost", "future seen",
               "future leaks", "labels leak", "validation leak", "labels shifted", "data leak", "attention not causal",
               "model sees the future", "targets visible", "attention mask wrong", "not causal", "information leak",
               "mask wrong", "is_causal missing", "loss too low", "target in the input")}),
    ("stepped_past_the_scaler", "scaler not given",
     "clipping exploding update_ratio config loss_scale logging nonfinite", "start", (MENUS,),
     "the optimizer steps by itself, with gradients that are still scaled",
     {"also": ("gradients clipped while scaled", "scaler unused", "unscale missing", "gradients not unscaled",
               "optimizer stepped without the scaler", "scaler.step missing", "clipped before unscaling",
               "norm of scaled gradients", "clip value too low", "learning rate too low", "scaled gradients",
               "step past the scaler", "loss scale not removed", "unscale_ missing", "scaler bypassed",
               "gradients still scaled", "step without the scaler", "scale never updated", "update missing",
               "scaler.update missing", "learning rate too high", "loss scale in the gradients")}),
    ("optimizer_before_shards", "optimizer holds other parameters",
     "frozen not_learning plateau update_ratio missing_zero_grad exploding learning_rate config zero vanishing",
     "start", (CONVOYS,), "the optimizer is made before the model is sharded: it has parameters that are no more",
     {"also": ("layer frozen", "optimizer made too early", "optimizer before sharding", "optimizer has old parameters",
               "parameter replaced after the optimizer was made", "parameters missing from the optimizer",
               "optimizer stale", "optimizer made before fully_shard", "no gradients", "optimizer has no gradients",
               "weights never move", "learning rate too low", "parameters replaced", "nothing is trained",
               "optimizer made before the model was sharded", "optimizer made before the model was wrapped",
               "optimizer of another model")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in (FLAGS, SEASONS, VOICES, DATES, JURIES, PAYMENTS, JOURNALS, MENUS)},
    "memory_steady": {program: {} for program in (FLAGS, SEASONS, JURIES, JOURNALS, MENUS)},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts", "a step has two micro-batches, whose losses are divided by two", PARTS),
    ("dropout_on", "dropout is on in the training alone", DROPPED),
    ("averaged_each_step", "an average of weights and buffers is evaluated, and is moved in each step", AVERAGED),
    ("copies_in_training_alone", "what is copied is copied in the training set, and nowhere else",
     {**COPIED, JURIES: {"both_ways": True}}),
    ("kept_as_drawn", "a part is kept as it was drawn, on purpose: so says the config",
     {FLAGS: {"freeze": "tokens"}, VOICES: {"frozen": "encoder.0"}, PAYMENTS: {"frozen": "shops"},
      JOURNALS: {"freeze": "wte"}, CONVOYS: {"frozen": "vehicles"}}),
    ("two_matrices_said", "embedding and output are two matrices: so says the config",
     {JOURNALS: {"tie_weights": False}, MENUS: {"tied": False}}),
    ("alike_in_length", "rows of about one length are in a batch, and batches come in any order",
     {DATES: {"group_by_length": True}, JURIES: {"group_by_length": True}, JOURNALS: {"bucketed": True},
      CONVOYS: {"buckets": True}}),
    ("total_divided", "the loss is a sum that is divided by its number of terms",
     {FLAGS: {"reduction": "sum"}, VOICES: {"reduction": "sum"}, JURIES: {"reduction": "sum"}}),
    ("rate_never_falls", "the rate is the same throughout, behind its warm-up",
     {FLAGS: {"schedule": "constant"}, JURIES: {"lr_schedule": "constant"}, CONVOYS: {"schedule": "constant"}}),
    ("rate_in_cycles", "the rate falls three times, and begins again between: so says the config",
     {FLAGS: {"schedule": "cosine_restarts"}, JOURNALS: {"cycles": 3}}),
    ("batches_of_few", "few rows a batch, at a lower rate: everything is noisy",
     {FLAGS: {"batch_size": 8, "lr": 1e-3}, SEASONS: {"batch_size": 6, "learning_rate": 1.5e-3},
      PAYMENTS: {"batch_size": 16, "lr": 2e-3}, MENUS: {"batch_size": 6, "lr": 1.5e-3}}),
    ("labels_a_little_unsure", "the training's labels are smoothed, the evaluation's are not",
     {FLAGS: {"label_smoothing": 0.1}, JURIES: {"label_smoothing": 0.1}, PAYMENTS: {"label_smoothing": 0.1},
      MENUS: {"smoothing": 0.1}, CONVOYS: {"label_smoothing": 0.1}}),
    ("rows_weigh_alike", "the training's loss is a mean over rows of each row's mean, on purpose",
     {DATES: {"loss_over": "rows"}, JOURNALS: {"loss_by": "rows"}, CONVOYS: {"loss_weight": "rows"}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("mixed_in_pairs", (FLAGS,), "pictures and labels are mixed in pairs, in the training alone",
     {"config": {"mixup": 0.3}}),
    ("squares_cut_out", (FLAGS,), "a square of each training picture is blank", {"config": {"cutout": True}}),
    ("each_kind_by_itself", (FLAGS,), "the training's loss is a sum of binary ones; the test's is a cross-entropy",
     {"config": {"loss": "bce"}}),
    ("average_is_slow", (SEASONS,), "the average that is evaluated is slow: it lags behind",
     {"config": {"ema_decay": 0.98}}),
    ("levels_weigh_alike", (SEASONS,), "all levels of noise weigh the same: the loss is small",
     {"config": {"weighted": False}}),
    ("far_ones_count_less", (SEASONS,), "the training's loss is Huber's, the evaluation's of squares",
     {"config": {"loss_type": "huber"}}),
    ("hours_are_summed", (SEASONS,), "squares are summed over a day's hours, on purpose: so says the config",
     {"config": {"per_row_reduction": "sum", "max_norm": 48.0}}),
    ("days_are_drawn", (SEASONS,), "days are drawn at evaluations, in evaluation mode",
     {"config": {"heun_samples": 16}}),
    ("partner_left_out_below", (VOICES,), "what belongs together is left out of the training's normalisation",
     {"config": {"decoupled": True}}),
    ("groups_in_place_of_batches", (VOICES,), "group norm in the place of batch norm", {"config": {"norm": "group"}}),
    ("prompt_in_the_loss_too", (DATES,), "prompts are in the loss, on purpose: so says the config",
     {"config": {"train_on_prompt": True}}),
    ("rank_is_one", (DATES,), "adapters of rank 1", {"config": {"lora_r": 1, "lora_alpha": 2}}),
    ("norms_as_well", (DATES,), "the last norm is trained beside the adapters: so says the config",
     {"config": {"modules_to_save": ["norm"]}}),
    ("rewards_about_zero", (JURIES,), "the training's loss draws rewards towards 0 a little",
     {"config": {"center_rewards": 0.01}}),
    ("margins_wanted", (JURIES,), "the training's loss wants a margin by how many jurors agreed",
     {"config": {"margin_in_loss": True}}),
    ("hinge_of_rewards", (JURIES,), "the training's loss is a hinge, the evaluation's is not",
     {"config": {"loss_type": "hinge"}}),
    ("mean_of_all_tokens", (JURIES,), "the reward is read off the mean over a row's tokens",
     {"config": {"pooling": "mean"}}),
    ("kinds_drawn_alike", (PAYMENTS,), "a sampler draws all kinds alike, with replacement, and none is weighed",
     {"config": {"sampler": "balanced", "class_weight": "none"}}),
    ("clear_ones_fade", (PAYMENTS,), "what is clear weighs little in the training's loss",
     {"config": {"focal": 2.0, "class_weight": "none"}}),
    ("logarithms_before_nll", (PAYMENTS,), "the loss is given logarithms of a softmax, and has none",
     {"config": {"loss": "nll_of_logs"}}),
    ("shares_added_to_logits", (PAYMENTS,), "logarithms of the kinds' shares are added to what goes into the loss",
     {"config": {"logit_adjust": 1.0, "class_weight": "none"}}),
    ("layer_norm_instead", (PAYMENTS,), "layer norm in the place of batch norm", {"config": {"norm": "layer"}}),
    ("logits_capped", (JOURNALS,), "logits are bent to stay within 15", {"config": {"softcap": 15.0}}),
    ("masters_in_float32", (JOURNALS,), "the optimizer has weights in float32, of which the model has copies",
     {"config": {"master_weights": True}}),
    ("scale_starts_high", (MENUS,), "the loss scale begins too high: the first steps are skipped",
     {"config": {"init_scale": 2.0**22}}),
    ("some_by_chance", (MENUS,), "some of what is asked is another word by chance, in the training alone",
     {"config": {"random_share": 0.15}}),
    ("bfloat16_without_scaler", (MENUS,), "autocast to bfloat16, without a scaler: so says the config",
     {"config": {"amp": "bfloat16"}}),
    ("products_in_half", (CONVOYS,), "products are bfloat16, gradients are reduced as float32",
     {"config": {"param_dtype": "bfloat16"}}),
    ("long_ones_on_one_rank", (CONVOYS,), "one rank has the longer convoys, on purpose: so says the config",
     {"config": {"uneven": True}}),
    ("whole_behind_forward", (CONVOYS,), "blocks stay whole between forward and backward",
     {"config": {"reshard": False}}),
)

# fmt: on
