"""The ninth half of the bench, which is put away: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of nine families: a vision transformer, diffusion, contrastive, adapters, preferences, a classifier
of rare kinds, pure bfloat16, float16 with a scaler, `fully_shard`; each as another ordinary engineer writes it. Most
faults are of the fifteen kinds that the eighth half has, each as the line that a person gets wrong in that program;
those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did not look
at what the doctor says. A fault is called by any name that a person would give it, and every kind of finding that
would be right of it is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIALS, BLOTS, QUERIES, DRILLS = "dials", "blots", "queries", "drills"
REPLIES, COMPLAINTS, TIMETABLES, NUMERALS, MANIFESTS = "replies", "complaints", "timetables", "numerals", "manifests"
PROGRAMS = (DIALS, BLOTS, QUERIES, DRILLS, REPLIES, COMPLAINTS, TIMETABLES, NUMERALS, MANIFESTS)
STEPS = {DIALS: 180, BLOTS: 160, QUERIES: 180, DRILLS: 160, REPLIES: 160, COMPLAINTS: 160, TIMETABLES: 160,
         NUMERALS: 180, MANIFESTS: 160}  # fmt: skip
REPORTED = frozenset({
    "places_lost", "told_other_times", "tau_multiplied", "prompts_learnt_too", "reference_not_copied",
    "weights_in_other_order", "rounded_away", "clipped_still_scaled", "mask_upside_down",
    "epoch_never_set",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

Row = tuple[str, str, str, str, tuple[str, ...], str, dict[str, Any]]
Settings = Mapping[str, Mapping[str, Any]]

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    BLOTS: {"gradient_accumulation_steps": 2},
    DRILLS: {"gradient_accumulation_steps": 2}, REPLIES: {"grad_accum": 2},
    COMPLAINTS: {"gradient_accumulation_steps": 2}, TIMETABLES: {"grad_accum_steps": 2}, MANIFESTS: {"grad_accum": 2},
}
DROPPED: Settings = {
    DIALS: {"dropout": 0.4}, BLOTS: {"dropout": 0.3}, QUERIES: {"dropout": 0.4}, DRILLS: {"lora_dropout": 0.4},
    REPLIES: {"dropout": 0.2}, COMPLAINTS: {"dropout": 0.3}, TIMETABLES: {"dropout": 0.2}, NUMERALS: {"dropout": 0.3},
    MANIFESTS: {"dropout": 0.3},
}
AVERAGED: Settings = {DIALS: {"ema_decay": 0.95}, QUERIES: {"ema": 0.9}, TIMETABLES: {"ema": 0.98}}
COPIED: Settings = {QUERIES: {"copies": 3, "pairs": 640}, COMPLAINTS: {"copies": 4}}


def some(settings: Settings, *programs: str) -> dict[str, Mapping[str, Any]]:
    """The settings of these programs."""
    return {program: settings[program] for program in programs}


# -- names that a person would give: causes that are as true, and kinds that are right -----------------------------

SUMMED = ("wrong reduction", "gradient accumulation scaled wrongly", "loss not divided", "loss not averaged",
          "sum instead of a mean", "reduction is a sum", "loss divided by the batch size",
          "loss not divided by its targets",
          "loss summed over rows", "loss summed over tokens", "loss scaled", "units differ", "evaluation loss averaged",
          "loss divided by rows", "sum over tokens", "clip value too low", "learning rate too high",
          "loss not averaged over tokens")
OF_SUMS = ("logits exploding clipping learning_rate eval divergence spike config logging nonfinite loss_scale "
           "plateau not_learning rl update_ratio")
GRAPHS = ("memory leak", "no_grad forgotten", "graph kept", "graphs kept", "evaluation keeps its graph",
          "loss kept with its graph",
          "evaluation with gradients", "average keeps its graph", "gradients in the evaluation", "detach missing",
          "memory grows",
          "averaged weights with a graph")
TWICE = ("double softmax", "softmax before the cross-entropy", "softmax in the model", "logits are probabilities",
         "logits too small",
         "probabilities given as logits", "activation twice", "temperature too high")
OF_SOFTMAX = "not_learning plateau logits vanishing config eval"
SHIFTED = ("labels off by one", "off by one", "labels do not match the inputs", "labels of the evaluation differ",
           "labels shifted twice",
           "evaluation labels are others", "evaluation data differ", "train and test differ",
           "labels shifted by one class",
           "labels count from 1", "targets shifted", "shift twice", "labels shuffled", "labels shifted by one row",
           "labels of other rows", "labels of the next example", "targets off by one", "class missing", "labels random")
OF_LABELS = "eval overfit not_learning plateau divergence data config jump_down spike"
FROZEN = ("learning rate too low", "optimizer holds other parameters", "wrong layers frozen", "wrong part frozen",
          "head frozen",
          "layers frozen", "requires_grad off", "parameters missing from the optimizer", "wrong group frozen",
          "backbone frozen",
          "frozen by mistake", "trained parameters are the wrong ones", "bad initialisation",
          "most of the model frozen")
OF_FROZEN = "frozen not_learning plateau update_ratio config missing_zero_grad vanishing rl zero"
TIE = ("weight tying broken", "weights not tied", "embedding and output not tied", "tying broken", "tie lost",
       "layer frozen",
       "output not tied", "parameters missing from the optimizer", "parameter replaced after the optimizer was made",
       "optimizer made too early", "embedding not trained", "embedding copied", "embedding replaced",
       "tied weights diverge")
OF_TIE = "frozen update_ratio missing_zero_grad config eval weight_growth logging plateau exploding rl"
SORTED = ("data not shuffled", "bad batch", "same order in each epoch", "data by length", "order of the data",
          "one class alone",
          "class missing", "no shuffling", "sorted by length", "sorted by class", "sorted by time",
          "sampler not shuffled",
          "order never changes", "data replayed", "distribution shifts", "curriculum", "data drift",
          "batches of one class")
OF_ORDER = ("spike data divergence jump_down repeated_data replay plateau not_learning eval zero overfit padding "
            "slowdown")
LEAK = ("evaluation data in the training", "evaluation rows are trained on", "train and test overlap", "data leak",
        "copied examples",
        "copies in both splits", "duplicates across splits", "oversampled before the split", "overfitting",
        "data replayed",
        "test set in the training", "few examples", "evaluation data differ", "train and test differ", "data exhausted",
        "evaluation has other shares of kinds")
OF_LEAK = "eval overfit repeated_data jump_down data config replay"
STALE = ("batch normalisation", "evaluation mode left on", "statistics are stale", "running statistics not updated",
         "running statistics never moved", "buffers never updated", "normalisation statistics are stale",
         "train and test differ",
         "momentum of batch norm is 0", "running mean never moved", "evaluation data differ")
OF_STATISTICS = "eval overfit divergence data config frozen activations"
STEPPED = ("learning rate too low", "scheduler stepped too often", "scheduler stepped per batch", "schedule too short",
           "schedule ends early", "schedule ends too early", "learning rate falls too fast", "learning rate gone",
           "epochs and steps exchanged", "learning rate annealing", "schedule goes past its end",
           "scheduler past its end",
           "learning rate rises again", "schedule restarted", "warm-up too short", "scheduler stepped in accumulation")
OF_SCHEDULE = "learning_rate plateau not_learning update_ratio frozen config vanishing spike divergence rl"
ADDED = ("loss summed", "accumulation not divided", "loss not divided by the accumulation",
         "losses of micro-batches added",
         "wrong reduction", "loss not divided", "loss scaled", "learning rate too high", "gradients added up",
         "loss not averaged",
         "clip value too low", "gradient accumulation", "units differ", "zero_grad missing")
OF_PARTS = ("exploding clipping logits eval learning_rate divergence spike config logging loss_scale rl "
            "update_ratio missing_zero_grad")
LESSER = ("loss divided twice", "loss divided by the accumulation twice", "wrong reduction", "learning rate too low",
          "loss scaled",
          "divided by the world size twice", "gradients averaged twice", "gradients divided twice",
          "loss averaged twice",
          "gradient accumulation scaled wrongly", "loss divided by the world size", "units differ", "logging",
          "loss divided too often")
OF_LESS = "eval vanishing learning_rate logging config overfit desync clipping jump_down plateau update_ratio"
IN_EVAL = ("training in evaluation mode", "train() missing", "dropout left off", "dropout is off in the training",
           "dropout off",
           "model.train() missing", "eval() in the training", "model not set back to training mode",
           "dropout not in force",
           "evaluation mode in the training", "dropout never on", "base in evaluation mode")
OF_EVAL_MODE = "eval jump_down overfit config data logging rl"
IN_TRAINING = ("evaluation mode left on", "dropout left on", "dropout in the evaluation",
               "training mode in evaluation", "eval() missing",
               "dropout active in evaluation", "functional dropout always on", "dropout is never off",
               "dropout on in evaluation",
               "model.eval() missing", "evaluation mode missing", "model evaluated in training mode",
               "randomness in the evaluation",
               "batch statistics in the evaluation", "batch normalisation", "batch norm's statistics are stale")
OF_TRAINING_MODE = "eval data config logging overfit divergence"
AVERAGE = ("averaged weights are wrong", "average too slow", "decay of the average too high", "ema decay too high",
           "averaged weights lag",
           "average not warmed up", "averaged weights too slow", "average not updated", "ema not updated",
           "layer frozen",
           "optimizer holds other parameters", "evaluated weights are not the trained ones",
           "average in half precision",
           "updates lost in rounding", "keep the average in float32", "evaluated weights never move",
           "averaged weights stale")
OF_AVERAGE = "eval frozen overfit divergence plateau config data update_ratio weight_growth"
RESUMED = ("optimizer state not restored", "optimizer state not loaded", "checkpoint incomplete",
           "state lost at the resume",
           "moments lost", "fresh optimizer", "learning rate too high", "optimizer begins anew", "momentum lost")
OF_RESUME = "resume spike exploding divergence update_ratio learning_rate config"

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # reported
    "epoch_never_set": {MANIFESTS: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    ("reduction_is_sum", "loss summed", OF_SUMS, "start", (DIALS, BLOTS, QUERIES, REPLIES),
     "the reduction of the loss is a sum, where a mean was meant", {"also": SUMMED}),
    ("tokens_summed", "loss summed", OF_SUMS, "start", (DRILLS, TIMETABLES),
     "losses are summed over the tokens of a row, and averaged over rows alone", {"also": SUMMED}),
    ("divided_by_world", "loss divided too often", OF_LESS, "start", (MANIFESTS,),
     "the loss is divided by the size of the world, over which gradients are averaged already", {"also": LESSER}),
    ("evaluated_with_graphs", "no_grad missing", "memory eval data config", "start", (DIALS, TIMETABLES, NUMERALS),
     "the evaluation runs with gradients, and what it found is kept with its graphs",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("average_with_graph", "no_grad missing", "memory eval data config", "start", (BLOTS,),
     "the average of the weights is updated with gradients on: its graph grows with each step",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("softmax_before_loss", "softmax twice", OF_SOFTMAX, "start", (DIALS, QUERIES, COMPLAINTS, NUMERALS),
     "what goes into the cross-entropy has been through a softmax", {"also": TWICE}),
    ("kinds_off_by_one", "labels shifted", OF_LABELS, "start", (DIALS, COMPLAINTS),
     "the training's labels are one too high, as of a file that counts from 1; the evaluation's are not",
     {"also": SHIFTED}),
    ("targets_off_by_one", "labels shifted", OF_LABELS, "start", (TIMETABLES, NUMERALS, MANIFESTS),
     "the training's targets are one place too far: the token after the next", {"also": SHIFTED}),
    ("shifted_again", "labels shifted", OF_LABELS, "start", (DRILLS,),
     "the collator shifts the labels, and so does the model's own loss", {"also": SHIFTED}),
    ("next_product_wanted", "labels shifted", OF_LABELS, "start", (QUERIES,),
     "the product that a query should find is the next row's", {"also": SHIFTED}),
    ("wrong_part_frozen", "layer frozen", OF_FROZEN, "start",
     (DIALS, QUERIES, DRILLS, COMPLAINTS, MANIFESTS),
     "a list of names freezes what should be trained", {"also": FROZEN}),
    ("tie_lost", "optimizer holds other parameters", OF_TIE, "start", (REPLIES, TIMETABLES, NUMERALS),
     "the embedding, which is the output's matrix too, is replaced when the optimizer is made: it is tied no more",
     {"also": TIE}),
    ("rows_by_length", "data sorted", OF_ORDER, "start", (DRILLS, REPLIES, NUMERALS),
     "rows are sorted by length, and are not shuffled", {"also": SORTED}),
    ("kind_by_kind", "data sorted", OF_ORDER, "start", (DIALS, QUERIES),
     "the training's file is in order of its kinds, and the loader leaves it so", {"also": SORTED}),
    ("read_in_order", "data sorted", OF_ORDER, "start", (TIMETABLES,),
     "the text, which goes through a day, is read from its beginning to its end, and is not shuffled",
     {"also": SORTED}),
    ("test_in_training", "validation leak", OF_LEAK, "start", (BLOTS, DRILLS, REPLIES),
     "rows of the evaluation are in the training set, beside few others", {"also": LEAK}),
    ("split_after_copies", "validation leak", OF_LEAK, "start", (QUERIES, COMPLAINTS),
     "rows are copied first, and split afterwards: copies of one are on both sides",
     {"by_program": COPIED, "compare": "copies_in_training", "also": LEAK}),
    ("statistics_as_made", "batch norm's statistics are stale", OF_STATISTICS, "start", (QUERIES,),
     "batch norm's momentum is 0, where 1 less it was meant: its running statistics stay as made", {"also": STALE}),
    ("figures_of_others", "inputs not normalised", OF_STATISTICS, "start", (DIALS,),
     "evaluations normalise by the mean and deviation of an older set",
     {"also": ("normalisation differs", "evaluation data differ", "train and test differ", "evaluation not normalised",
               "normalisation statistics are stale", "evaluation inputs differ", "wrong mean and deviation",
               "statistics are stale",
               "evaluation inputs scaled otherwise", "preprocessing differs", "inputs scaled twice",
               "normalisation of others",
               "statistics of other data", "inputs of the evaluation differ", "batch norm's statistics are stale")}),
    ("stepped_each_micro_batch", "scheduler stepped per micro-batch", OF_SCHEDULE, "start",
     (BLOTS, DRILLS, REPLIES, TIMETABLES), "the scheduler is stepped in the loop over micro-batches",
     {"by_program": some(PARTS, BLOTS, DRILLS, REPLIES, TIMETABLES), "compare": "micro_batches",
      "also": STEPPED}),
    ("epochs_each_batch", "scheduler stepped per micro-batch", OF_SCHEDULE, "start", (DIALS,),
     "the stairs, which count epochs, are stepped with each batch", {"also": STEPPED}),
    ("batches_added", "gradient accumulation scaled wrongly", OF_PARTS, "start",
     (BLOTS, REPLIES, TIMETABLES, MANIFESTS),
     "the losses of micro-batches are not divided by their number",
     {"by_program": some(PARTS, BLOTS, REPLIES, TIMETABLES, MANIFESTS),
      "compare": "micro_batches", "also": ADDED}),
    ("divided_again", "gradient accumulation scaled wrongly", OF_LESS, "start", (DRILLS,),
     "the loss is divided by the number of micro-batches, and the library divides it again",
     {"by_program": some(PARTS, DRILLS), "compare": "micro_batches", "also": LESSER}),
    ("eval_left_on", "evaluation mode left on", OF_EVAL_MODE, "evaluation", (DIALS, NUMERALS, MANIFESTS),
     "from an evaluation on, the model is not set back to training mode",
     {"by_program": some(DROPPED, DIALS, NUMERALS, MANIFESTS), "compare": "more_dropout", "also": IN_EVAL}),
    ("left_in_eval", "evaluation mode left on", OF_EVAL_MODE, "start", (BLOTS, DRILLS, REPLIES),
     "the model is put into evaluation mode for something else, and is trained in it",
     {"by_program": some(DROPPED, BLOTS, DRILLS, REPLIES), "compare": "more_dropout", "also": IN_EVAL}),
    ("judged_in_training", "evaluation in training mode", OF_TRAINING_MODE, "start", (QUERIES, NUMERALS),
     "the evaluation does not set evaluation mode: dropout is on in it",
     {"by_program": some(DROPPED, QUERIES, NUMERALS), "compare": "more_dropout", "also": IN_TRAINING}),
    ("dropped_in_evaluation", "evaluation in training mode", OF_TRAINING_MODE, "start", (COMPLAINTS, TIMETABLES),
     "the function of dropout is not told whether the model is trained",
     {"by_program": some(DROPPED, COMPLAINTS, TIMETABLES), "compare": "more_dropout", "also": IN_TRAINING}),
    ("average_lags", "averaged weights not updated", OF_AVERAGE, "start", (DIALS,),
     "the average that is evaluated has a decay of 0.9999, in a training of a few hundred steps",
     {"config": {"ema_decay": 0.9999}, "compare": "averaged_rightly", "also": AVERAGE}),
    ("average_forgotten", "averaged weights not updated", OF_AVERAGE, "start", (BLOTS,),
     "the step of the average was left out: what is evaluated is the model as it was drawn", {"also": AVERAGE}),
    ("average_never_moved", "averaged weights not updated", OF_AVERAGE, "start", (QUERIES,),
     "the average that is evaluated is made, and never moved",
     {"by_program": some(AVERAGED, QUERIES), "compare": "averaged_rightly", "also": AVERAGE}),
    ("average_in_bf16", "averaged weights not updated", OF_AVERAGE, "start", (TIMETABLES,),
     "the average is bfloat16 as the model is: what a step adds to it is rounded away",
     {"by_program": some(AVERAGED, TIMETABLES), "compare": "averaged_rightly", "also": AVERAGE}),
    ("never_restored", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio",
     "start", (BLOTS,), "behind each evaluation the weights that were stored for it are not restored",
     {"config": {"ema_max_decay": 0.98, "ema_use_warmup": False}, "compare": "slow_from_the_first",
      "also": ("weights not restored", "averaged weights not restored", "averaged weights kept", "weights overwritten",
               "training goes on from the average", "average written into the model", "weights written between steps",
               "ema not restored", "averaged weights are trained", "learning rate too low")}),
    ("moments_not_loaded", "optimizer state lost", OF_RESUME, "resume",
     (DIALS, BLOTS, QUERIES, DRILLS, TIMETABLES),
     "a resume loads model and schedule, and not the optimizer", {"also": RESUMED}),
    ("one_seed_for_all", "same data on all ranks", "repeated_data desync data replay", "start", (MANIFESTS,),
     "the loader shuffles by a generator that every process seeds alike, without a sampler for ranks",
     {"also": ("data replayed", "seed equal on all ranks", "sampler missing", "distributed sampler missing",
               "same seed on all ranks",
               "ranks have the same batches", "data not sharded", "sampler does not shard",
               "same batches on all ranks")}),
    # reported
    ("places_lost", "positions missing",
     "plateau not_learning attention eval config data frozen missing_zero_grad vanishing update_ratio",
     "start", (DIALS,), "the embedding of places is made, and never added",
     {"also": ("positional embedding missing", "graph cut", "positions not added", "places missing", "parameter unused",
               "position embeddings unused", "layer frozen", "parameters without a gradient",
               "positional encoding missing",
               "no positions", "optimizer holds other parameters", "unused parameter", "embedding unused")}),
    ("told_other_times", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config", "start", (BLOTS,),
     "the level that the network is told is drawn anew: it is not that of the noise",
     {"also": ("timestep wrong", "wrong timestep", "times do not match the noise", "level of noise wrong",
               "timestep mismatch",
               "levels shuffled", "evaluation data differ", "train and test differ", "labels shuffled",
               "inputs do not match",
               "times of other rows", "conditioning wrong", "times shuffled")}),
    ("tau_multiplied", "temperature missing", "plateau not_learning logits vanishing config eval learning_rate",
     "start", (QUERIES,),
     "scores are multiplied by the temperature, not divided by it",
     {"also": ("temperature inverted", "temperature too high", "logits not scaled", "logits too small", "scale missing",
               "softmax twice", "temperature multiplied", "temperature wrong", "learning rate too low",
               "scale wrong")}),
    ("prompts_learnt_too", "prompt in the loss", "data padding eval jump_down config overfit divergence plateau",
     "start", (DRILLS,),
     "the training's labels have the prompts too, which are of chance; the evaluation's have not",
     {"also": ("labels not masked", "prompt not masked", "prompts in the loss", "loss mask missing",
               "padding in the loss",
               "labels of the evaluation differ", "evaluation data differ", "train and test differ",
               "ignored targets missing",
               "loss masked out", "evaluation labels are others", "units differ", "labels are noisy")}),
    ("reference_not_copied", "reference is the policy", "plateau not_learning zero frozen rl eval config vanishing",
     "start", (REPLIES,),
     "the reference is the policy itself, where a copy was meant: margins are 0",
     {"also": ("loss masked out", "reference not copied", "reference moves", "reference not frozen",
               "reference trained",
               "reference is not the policy's start", "reference is trained", "margins are 0",
               "reference has the policy's weights",
               "deepcopy missing", "chosen and rejected alike")}),
    ("weights_in_other_order", "class weights wrong", "plateau not_learning eval config data divergence", "start",
     (COMPLAINTS,),
     "weights of kinds are in order of how many there are, not in that of their numbers",
     {"also": ("class weights reversed", "class weights inverted", "weights of classes inverted",
               "class weights shuffled",
               "rare class ignored", "rare class missing", "class missing", "class imbalance", "loss weights wrong",
               "class weights in the wrong order", "rare classes weigh too little", "frequent classes weigh more",
               "loss weight wrong", "weights of other classes", "classes weigh differently", "one class alone")}),
    ("rounded_away", "updates lost in rounding",
     "frozen plateau not_learning update_ratio learning_rate config eval", "start", (TIMETABLES,),
     "a rate for float32 in bfloat16: most of what a step adds is less than half of the last bit",
     {"factors": {"learning_rate": 0.01},
      "also": ("learning rate too low", "keep fp32 master weights", "bfloat16 weights", "weights in half precision",
               "rounded away", "master weights missing", "precision too low")}),
    ("clipped_still_scaled", "gradients clipped while scaled",
     "clipping exploding update_ratio config loss_scale logging", "start", (NUMERALS,),
     "gradients are clipped by their norm before the scaler has unscaled them",
     {"also": ("scaler not given", "unscale missing", "clipped before unscaling", "unscale_ missing",
               "gradients not unscaled",
               "norm of scaled gradients", "clip value too low", "learning rate too low")}),
    ("mask_upside_down", "mask inverted", "plateau not_learning attention eval config padding data nonfinite zero",
     "start", (NUMERALS,),
     "the mask of the source hides digits and shows padding",
     {"also": ("attention mask inverted", "attention mask missing", "padding is read", "mask reversed",
               "mask missing", "padding seen", "padding mask inverted",
               "words hidden", "padding not masked", "inputs do not reach the output", "attention mask wrong",
               "mask wrong",
               "mask is the wrong way round", "mask has the wrong sense", "attention on padding", "tokens masked",
               "padding attended", "inputs hidden", "wrong mask", "attention over nothing", "non-finite output",
               "overflow in a layer", "non-finite gradient", "non-finite activations", "loss masked out")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in (BLOTS, QUERIES, DRILLS, TIMETABLES)},
    "memory_steady": {program: {} for program in (DIALS, BLOTS, TIMETABLES, NUMERALS)},
    "like_lengths_together": {REPLIES: {"grouped": True}, NUMERALS: {"bucketed": True}},
    "scale_begins_high": {NUMERALS: {}},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("micro_batches", "a step has two micro-batches, whose losses are divided", PARTS),
    ("more_dropout", "dropout is on in the training, and off in evaluations", DROPPED),
    ("averaged_rightly", "an average of the weights is evaluated, which is updated in each step", AVERAGED),
    ("copies_in_training", "rare rows, or all, are copied within the training set alone", COPIED),
    ("rate_stays", "the rate stays where it is, on purpose",
     {BLOTS: {"lr_scheduler": "constant"}, QUERIES: {"final_share": 1.0}, NUMERALS: {"schedule": "constant"}}),
    ("small_rate", "a third or a quarter of the rate: slow, and well",
     {DIALS: {"learning_rate": 1e-3}, DRILLS: {"learning_rate": 2e-3}}),
    ("rate_begins_again", "the rate is set back to its peak twice or more: so says the schedule's name",
     {DIALS: {"scheduler": "restarts"}, TIMETABLES: {"lr_schedule": "restarts"}}),
    ("tiny_batches", "batches of one to eight, at a lower rate: loss and gradients are noise",
     {DIALS: {"batch_size": 8, "learning_rate": 2e-3, "scheduler": "none"},
      BLOTS: {"train_batch_size": 1, "learning_rate": 1e-3},
      DRILLS: {"per_device_batch_size": 1, "learning_rate": 3e-3}}),
    ("labels_smoothed", "labels are smoothed in the training, and not in the evaluation",
     {DIALS: {"label_smoothing": 0.1}, NUMERALS: {"smoothing": 0.1}}),
    ("part_as_it_is", "a part of the model is not trained, on purpose: so says the config",
     {REPLIES: {"frozen_layers": 1}, COMPLAINTS: {"freeze": "bert.embeddings"}, TIMETABLES: {"freeze_embeddings": True},
      DIALS: {"freeze": ["patch_embed"]}}),
    ("untied", "embedding and output have a matrix each: so says the config",
     {TIMETABLES: {"tie_embeddings": False}, NUMERALS: {"tied": False}}),
    ("summed_then_divided", "the loss is a sum, divided by the number of its targets",
     {DIALS: {"reduction": "sum"}}),
    ("last_batch_partial", "the last batch of an epoch is kept, and is smaller",
     {DIALS: {"drop_last": False, "train_size": 649}}),
    ("few_rows", "a smaller training set, which comes several times",
     {DRILLS: {"train_rows": 960}}),
    ("gradients_unclipped", "gradients are not clipped, on purpose",
     {DIALS: {"gradient_clip_val": 0.0}}),
    ("other_optimizer", "another optimizer, at its own rate",
     {REPLIES: {"optimizer": "adamw"}, COMPLAINTS: {"optim": "adafactor"}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("test_in_order", (DIALS,), "the evaluation's pictures come hour by hour", {"config": {"test_order": "by_hour"}}),
    ("ends_when_no_better", (DIALS,), "the training ends when three evaluations were no better: before its plan",
     {"config": {"patience": 3, "scheduler": "none", "learning_rate": 4e-3}}),
    ("slow_from_the_first", (BLOTS,), "the average that is evaluated is slow from the first step on: it lags behind",
     {"config": {"ema_max_decay": 0.98, "ema_use_warmup": False}}),
    ("velocity_wanted", (BLOTS,), "the network says a velocity", {"config": {"prediction_type": "v_prediction"}}),
    ("snr_weighted", (BLOTS,), "levels with little noise weigh less, in the training alone",
     {"config": {"snr_gamma": 5.0}}),
    ("sampled_in_between", (BLOTS,), "pictures are drawn at evaluations, in evaluation mode",
     {"config": {"sampling": True}}),
    ("one_tower", (QUERIES,), "queries and products go through one tower", {"config": {"towers": "one"}}),
    ("without_batch_norm", (QUERIES,), "layer norm in the place of batch norm", {"config": {"bn": False}}),
    ("worst_others", (QUERIES,), "the eight worst others of a batch alone are in the training's loss",
     {"config": {"hard_negatives": 8}}),
    ("half_of_one_department", (QUERIES,), "half of each batch is of one or two kinds", {"config": {"grouped": True}}),
    ("embeddings_too", (DRILLS,), "embedding and output are trained beside the adapters",
     {"config": {"train_embeddings": True}}),
    ("rank_one", (DRILLS,), "adapters of rank 1", {"config": {"lora_rank": 1, "lora_alpha": 2}}),
    ("b_is_faster", (DRILLS,), "one factor of the adapters has sixteen times the other's rate",
     {"config": {"b_lr_ratio": 16.0, "learning_rate": 2e-3}}),
    ("whole_rows", (DRILLS,), "prompts are in the training's loss, on purpose: so says the config",
     {"config": {"completion_only": False}}),
    ("loss_of_hinge", (REPLIES,), "the loss is a hinge", {"config": {"loss": "hinge"}}),
    ("loss_of_ipo", (REPLIES,), "the squared loss of IPO: it begins high", {"config": {"loss": "ipo"}}),
    ("without_reference", (REPLIES,), "no reference, on purpose: so says the config",
     {"config": {"reference_free": True}}),
    ("kinds_as_they_are", (COMPLAINTS,), "kinds are not weighed", {"config": {"class_weights": "none"}}),
    ("easy_ones_fade", (COMPLAINTS,), "what is easy weighs little in the training's loss, and kinds are not weighed",
     {"config": {"focal_gamma": 2.0, "class_weights": "none"}}),
    ("z_beside", (TIMETABLES,), "the square of the normalisation's logarithm is a small part of the training's loss",
     {"config": {"z_loss": 1e-3}}),
    ("windows_overlap", (TIMETABLES,), "windows begin each eighth sign: rows of one epoch share most of their signs",
     {"config": {"stride": 8}}),
    ("many_typos", (NUMERALS,), "one letter in five is wrong, in both sets", {"config": {"typos": 0.2}}),
    ("half_products", (MANIFESTS,), "products are bfloat16, gradients are reduced as float32",
     {"config": {"param_dtype": "bfloat16"}}),
)

# fmt: on
