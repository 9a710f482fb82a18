"""The nineteenth half of the bench, which is put away: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a flow to formations of points with an average of its weights, adapters with two
rates beside a base of four bits, two towers all against all, a hybrid of convolutions and attention over drawn
pictures, a language model in pure bfloat16, a classifier of rare fates on two ranks; each as another ordinary engineer
writes it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong
in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule,
and did not look at what the doctor says. A fault is called by any name that a person would give it, and every kind of
finding that would be right of it is right; the names that the eighteenth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import eighteenth
import ninth
import seventeenth
import sixteenth
from ninth import Row, Settings, some

SWARMS, BLAZONS, ROUTES = "swarms", "blazons", "routes"
CORALS, LITANIES, PARCELS = "corals", "litanies", "parcels"
PROGRAMS = (SWARMS, BLAZONS, ROUTES, CORALS, LITANIES, PARCELS)
STEPS = {SWARMS: 180, BLAZONS: 180, ROUTES: 176, CORALS: 176, LITANIES: 180, PARCELS: 180}
REPORTED = frozenset({
    "noise_made_with_the_flights", "velocity_of_the_way_back", "judged_at_times_in_thousands", "alpha_times_rank",
    "turns_masked_the_other_way", "drawings_of_route_share_a_batch", "scale_exp_taken_again",
    "erased_in_pixels_for_shares", "mixed_rows_flipped_labels_rolled", "memory_carried_between_rows",
    "window_reaches_ahead", "shares_added_with_wrong_sign", "gradients_of_heads_not_synced",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    SWARMS: {"accum_iter": 2}, BLAZONS: {"gradient_accumulation": 2}, ROUTES: {"update_freq": 2},
    CORALS: {"TRAIN.ACCUMULATION_STEPS": 2}, LITANIES: {"grad_acc": 2}, PARCELS: {"accumulate": 2},
}
DROPPED: Settings = {
    SWARMS: {"dropout": 0.3}, BLAZONS: {"lora_dropout": 0.2}, ROUTES: {"dropout_rate": 0.4},
    CORALS: {"MODEL.ATTN_DROP": 0.3, "MODEL.PROJ_DROP": 0.2}, LITANIES: {"resid_drop": 0.2},
    PARCELS: {"dropout": 0.3},
}
COPIED: Settings = {
    BLAZONS: {"retold": 8, "rolls": 640, "errors": 0.1}, ROUTES: {"drawings_per_route": 4, "routes": 960},
    CORALS: {"DATA.FRAMES": 8, "DATA.PICTURES": 904, "AUG.MIXUP_PROB": 0.2, "DATA.MISNAMED": 0.15},
    LITANIES: {"overlap": 24}, PARCELS: {"rare_times": 5, "sent": 640},
}
DESCENT: Settings = {
    SWARMS: {"optimizer": "sgd", "lr": 0.05, "grad_clip": 100.0},
    BLAZONS: {"optimizer": "sgd", "lr": 0.05, "clip_grad_norm": 100.0, "lora_plus_ratio": 1.0},
    ROUTES: {"solver": "sgd", "base_lr": 0.1, "learn_scale": False, "scale_init": 12.0},
    CORALS: {"TRAIN.OPT": "sgd", "TRAIN.BASE_LR": 0.3, "TRAIN.CLIP_GRAD": 100.0},
    LITANIES: {"solver": "sgd", "max_lr": 0.2, "clip_norm": 100.0},
    PARCELS: {"solver": "sgd", "lr": 0.05, "clip": 100.0},
}
DESCENT_IN_PARTS: Settings = {
    SWARMS: {**DESCENT[SWARMS], "accum_iter": 4}, BLAZONS: {**DESCENT[BLAZONS], "gradient_accumulation": 4},
    ROUTES: {**DESCENT[ROUTES], "update_freq": 2}, CORALS: {**DESCENT[CORALS], "TRAIN.ACCUMULATION_STEPS": 4},
    LITANIES: {**DESCENT[LITANIES], "grad_acc": 4}, PARCELS: {**DESCENT[PARCELS], "accumulate": 4},
}
LEVEL: Settings = {
    SWARMS: {"lr_policy": "constant", "lr": 2e-3}, BLAZONS: {"lr_scheduler": "constant", "lr": 5e-3},
    ROUTES: {"lr_rule": "flat", "base_lr": 4e-3}, CORALS: {"TRAIN.SCHED": "constant", "TRAIN.BASE_LR": 1.5e-3},
    LITANIES: {"lr_shape": "flat", "max_lr": 4e-3}, PARCELS: {"shape": "flat", "lr": 2e-3},
}
AVERAGED: Settings = {ROUTES: {"model_ema_decay": 0.9}, CORALS: {"MODEL.EMA_DECAY": 0.9}, LITANIES: {"avg": 0.9}}
LAGGING: Settings = {
    SWARMS: {"ema_decay": 0.97}, ROUTES: {"model_ema_decay": 0.97}, CORALS: {"MODEL.EMA_DECAY": 0.97},
    LITANIES: {"avg": 0.98},
}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*eighteenth.SUMMED, "velocities summed", "bce summed", "loss is a sum over points and coordinates",
          "both directions summed", "mean over rows of sums", "sum over classes and batch")
GRAPHS = (*eighteenth.GRAPHS, "outputs of the validation kept", "evaluated without no_grad", "inference_mode missing")
TWICE = (*eighteenth.TWICE, "sigmoid twice", "sigmoid before bce with logits", "sigmoid in the model",
         "with_logits given probabilities", "double sigmoid", "match gives probabilities")
SHIFTED = (*eighteenth.SHIFTED, "class_to_idx differs", "class order differs", "a picture is skipped, its text is not",
           "pairs misaligned", "captions misaligned", "labels shifted in the set and in the loss", "two tokens ahead",
           "classes count from 1", "names of kinds in another order", "pairing wrong")
FROZEN = (*eighteenth.FROZEN, "freeze condition inverted", "all frozen but the time embedding", "lora weights frozen",
          "tower locked", "image tower frozen", "linear probe of an untrained net", "all but the classifier frozen",
          "embedding of numbers frozen", "state gates not trained", "parameters left out of the groups")
TIE = (*eighteenth.TIE, "added rows not tied", "new tokens untrained in the output", "trainable tokens not tied",
       "deepcopy unties", "load breaks the tie", "cast breaks the tie")
SORTED = (*eighteenth.SORTED, "formation by formation", "reef after reef", "shortest first", "domain after domain",
          "one source after the other", "hymn after hymn", "carrier after carrier")
LEAK = (*eighteenth.LEAK, "frames of one film on both sides", "drawings of one route on both sides",
        "same conversation on both sides", "windows overlap across the split")
FIGURES = (*eighteenth.FIGURES, "scaled by another camera", "pictures not divided by 255", "default mean and std",
           "mean 0.5 and std 0.5", "bytes and fractions", "scaled by last year's figures", "inputs in bytes")
BUFFERS = (*ninth.STALE, "average without buffers", "ema does not copy buffers", "buffers not averaged",
           "running statistics of the average", "ema of parameters alone", "buffers of the average are stale",
           "averaged weights are wrong")
STEPPED = (*eighteenth.STEPPED, "scheduler stepped in the accumulation loop", "cosine over one epoch",
           "milestones in steps", "milestones of epochs counted in batches", "micro-batches counted as updates",
           "number of epochs left out", "total steps wrong")
ADDED = (*eighteenth.ADDED, "losses of parts not divided", "gradients of parts added")
IN_EVAL = (*eighteenth.IN_EVAL, "train() called on the average", "train() called on another model",
           "eval mode after retrieval", "eval() in the judging function")
IN_TRAINING = (*eighteenth.IN_TRAINING, "average in training mode", "copy in training mode",
               "functional dropout without training flag", "F.dropout always on", "attention dropout always on",
               "dropout_p given in the evaluation")
AVERAGE = (*eighteenth.AVERAGE, "update_after_step too late", "average never begins", "ema starts too late",
           "average updated once an epoch", "ema updated per epoch", "parameter names do not match",
           "prefix of the wrapper", "decay for single updates", "average updated too seldom")
NOT_BACK = (*eighteenth.NOT_BACK, "copied in the wrong direction", "average saved into the model",
            "model overwritten by the average")
RESUMED = (*eighteenth.RESUMED, "wrong key in the checkpoint", "optimizer made after its load",
           "checkpoint of the model alone")
SAME = (*eighteenth.SAME, "same shuffle and no rank", "generator seeded alike", "dataset not split by rank",
        "iterable not split by rank", "rank not used", "bootstrap seeded alike")

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # reported
    "updates_lost_in_bf16": {LITANIES: {"max_lr": 1e-4}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("velocities_of_swarm_summed", "loss summed", ninth.OF_SUMS, "start", (SWARMS,),
     "squared errors of a swarm are summed over drones and coordinates, and their mean is over swarms alone",
     {"by_program": some(DESCENT, SWARMS), "compare": "descent_with_momentum", "also": SUMMED}),
    ("tokens_over_rolls_alone", "loss summed", ninth.OF_SUMS, "start", (BLAZONS,),
     "losses of all answers' tokens are summed, and divided by the number of rolls",
     {"by_program": some(DESCENT, BLAZONS), "compare": "descent_with_momentum", "also": SUMMED}),
    ("both_directions_totalled", "loss summed", ninth.OF_SUMS, "start", (ROUTES,),
     "both directions are summed over the batch, where means were meant",
     {"by_program": some(DESCENT, ROUTES), "compare": "descent_with_momentum", "also": SUMMED}),
    ("bce_totalled_over_batch", "loss summed", ninth.OF_SUMS, "start", (CORALS,),
     "binary losses are summed over the batch and the kinds",
     {"by_program": some(DESCENT, CORALS), "compare": "descent_with_momentum", "also": SUMMED}),
    # forgotten no_grad
    ("held_flights_with_gradients", "no_grad missing", "memory eval data config", "start", (SWARMS,),
     "held-out flights are judged with gradients on, and errors are kept for a figure",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("checks_keep_what_was_said", "no_grad missing", "memory eval data config", "start", (BLAZONS,),
     "held-out rolls are answered with gradients on, and what was said is kept",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("held_vectors_keep_graph", "no_grad missing", "memory eval data config", "start", (ROUTES,),
     "held-out routes are matched with gradients on, and each table of scores is kept",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("validated_without_no_grad", "no_grad missing", "memory eval data config", "start", (CORALS,),
     "the test is done with gradients on, and its outputs are kept in a list",
     {"also": GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("softmax_left_from_the_server", "softmax twice", ninth.OF_SOFTMAX, "start", (BLAZONS,),
     "the model ends with a softmax that the server wanted, and the loss has its own", {"also": TWICE}),
    ("match_gives_chances", "softmax twice", ninth.OF_SOFTMAX, "start", (ROUTES,),
     "in the training the match of two towers gives probabilities, which the loss takes for scores", {"also": TWICE}),
    ("sigmoid_ahead_of_bce_with_logits", "softmax twice", ninth.OF_SOFTMAX, "start", (CORALS,),
     "the model ends with a sigmoid, and so does the binary loss", {"also": TWICE}),
    # label off by one
    ("formations_listed_from_one", "labels shifted", ninth.OF_LABELS, "start", (SWARMS,),
     "formations that the net is told count from 1 in the flights' table, from 0 in those held out",
     {"also": SHIFTED}),
    ("labels_cut_in_set_and_in_loss", "labels shifted", ninth.OF_LABELS, "start", (BLAZONS,),
     "labels are moved by one where rolls are read, and by another in the loss: the token after next is asked for",
     {"also": SHIFTED}),
    ("unreadable_picture_skipped", "labels shifted", ninth.OF_LABELS, "start", (ROUTES,),
     "a picture that cannot be read is left out and its moves are not: all others have their neighbour's",
     {"also": SHIFTED}),
    ("names_begin_at_another_kind", "labels shifted", ninth.OF_LABELS, "start", (CORALS,),
     "the training's names of kinds are in a list that begins with the last: each number is one too high",
     {"also": SHIFTED}),
    # wrong part frozen
    ("freeze_asked_the_wrong_way", "layer frozen", ninth.OF_FROZEN, "start", (SWARMS,),
     "the embedding of time was to stay; the condition has a `not` too many, and all else stays", {"also": FROZEN}),
    ("all_weights_frozen_by_suffix", "layer frozen", ninth.OF_FROZEN, "start", (BLAZONS,),
     "all that is called weight is frozen behind the adapters, which are called so too: norms and two rows are left",
     {"also": FROZEN}),
    ("locked_tower_was_never_trained", "layer frozen", ninth.OF_FROZEN, "start", (ROUTES,),
     "the tower of pictures is locked as one that was trained before; it is as drawn", {"also": FROZEN}),
    ("frozen_ahead_of_new_classifier", "layer frozen", ninth.OF_FROZEN, "start", (CORALS,),
     "the model is frozen where a teacher was meant, and has a new classifier then: that alone is trained",
     {"also": FROZEN}),
    # weight tying broken
    ("added_rows_in_input_alone", "weight tying broken", ninth.OF_TIE + " not_learning", "start", (BLAZONS,),
     "rows of the added tokens are trained in the embedding, and the output that shares it has their first values",
     {"also": TIE}),
    # order
    ("flights_formation_by_formation", "data sorted", ninth.OF_ORDER, "start", (SWARMS,),
     "flights come one formation after the other", {"also": SORTED}),
    ("shortest_rolls_first_each_time", "data sorted", ninth.OF_ORDER, "start", (BLAZONS,),
     "rolls come by length, the shortest first, in each pass", {"also": SORTED}),
    ("calls_by_length_in_each_pass", "data sorted", ninth.OF_ORDER, "start", (ROUTES,),
     "routes come by their number of moves, in each pass", {"also": SORTED}),
    ("reef_after_reef", "data sorted", ninth.OF_ORDER, "start", (CORALS,),
     "pictures come one reef after the other", {"also": SORTED}),
    # leaking validation
    ("retold_rolls_dealt_to_both", "validation leak", ninth.OF_LEAK, "start", (BLAZONS,),
     "rolls are told eight times, their turns in other orders, and tellings are dealt out to both sides",
     {"by_program": some(COPIED, BLAZONS), "compare": "one_thing_many_times", "also": LEAK}),
    ("drawings_of_route_dealt_apart", "validation leak", ninth.OF_LEAK, "start", (ROUTES,),
     "a route is drawn four times, and drawings are dealt out to both sides",
     {"by_program": some(COPIED, ROUTES), "compare": "one_thing_many_times", "also": LEAK}),
    ("frames_of_film_on_both_sides", "validation leak", ninth.OF_LEAK, "start", (CORALS,),
     "frames of a film are dealt out at random: each coral is on both sides",
     {"by_program": some(COPIED, CORALS), "compare": "one_thing_many_times", "also": LEAK}),
    # stale statistics
    ("judged_by_the_hall_camera", "inputs not normalised", ninth.OF_STATISTICS, "start", (SWARMS,),
     "held-out flights are scaled by the figures of another camera", {"also": FIGURES}),
    ("held_drawings_left_in_bytes", "inputs not normalised", ninth.OF_STATISTICS, "start", (ROUTES,),
     "held-out drawings are not divided by 255, and are scaled as if they were", {"also": FIGURES}),
    ("slow_copy_without_buffers", "batch norm's statistics are stale", ninth.OF_STATISTICS, "start", (ROUTES,),
     "the slow copy follows parameters alone: its batch norms have the statistics that they began with",
     {"by_program": some(AVERAGED, ROUTES), "compare": "average_close_behind", "also": BUFFERS}),
    ("test_scaled_by_halves", "inputs not normalised", ninth.OF_STATISTICS, "start", (CORALS,),
     "the test's pictures are scaled by a mean and a spread of a half, the training's by their own",
     {"also": FIGURES}),
    # scheduler
    ("trapezoid_moved_by_each_part", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (SWARMS,),
     "the schedule is moved within the loop over parts, of which an update has two",
     {"by_program": some(PARTS, SWARMS), "compare": "two_parts_halved", "also": STEPPED}),
    ("cosine_ends_with_first_pass", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (BLAZONS,),
     "the cosine is as long as half of a pass over the rolls, where all passes were meant", {"also": STEPPED}),
    ("milestones_counted_in_batches", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (ROUTES,),
     "milestones that were given in epochs are counted in batches", {"also": STEPPED}),
    ("updates_counted_with_every_part", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (CORALS,),
     "the rate is set from how many batches were read, where an update has two",
     {"by_program": some(PARTS, CORALS), "compare": "two_parts_halved", "also": STEPPED}),
    # accumulation
    ("parts_of_flow_loss_whole", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (SWARMS,),
     "gradients of four parts are added, and no loss is divided by four",
     {"by_program": some(DESCENT_IN_PARTS, SWARMS), "compare": "parts_and_momentum", "also": ADDED}),
    ("four_answers_left_whole", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (BLAZONS,),
     "losses of four micro-batches go backward as they are",
     {"by_program": some(DESCENT_IN_PARTS, BLAZONS), "compare": "parts_and_momentum", "also": ADDED}),
    ("parts_of_match_left_whole", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (ROUTES,),
     "an update has two parts, whose losses are not halved",
     {"by_program": some(DESCENT_IN_PARTS, ROUTES), "compare": "parts_and_momentum", "also": ADDED}),
    ("accumulated_bce_left_whole", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (CORALS,),
     "four batches are accumulated for an update, and none is divided by four",
     {"by_program": some(DESCENT_IN_PARTS, CORALS), "compare": "parts_and_momentum", "also": ADDED}),
    # dropout
    ("judging_ends_the_training_mode", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (SWARMS,),
     "the function that judges the average ends the net's training mode, which was set before the loop",
     {"by_program": some(DROPPED, SWARMS), "compare": "dropout_at_work", "also": IN_EVAL}),
    ("check_is_not_left", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (BLAZONS,),
     "behind the first check adapters drop nothing more",
     {"by_program": some(DROPPED, BLAZONS), "compare": "dropout_at_work", "also": IN_EVAL}),
    ("recall_leaves_towers_in_eval", "evaluation mode left on", ninth.OF_EVAL_MODE + " activations", "start",
     (ROUTES,), "both towers stay in evaluation mode behind the first look at what is held out",
     {"by_program": some(DROPPED, ROUTES), "compare": "dropout_at_work",
      "also": (*IN_EVAL, *seventeenth.STATISTICS)}),
    ("train_mode_set_on_the_copy", "evaluation mode left on", ninth.OF_EVAL_MODE + " activations", "start", (CORALS,),
     "each epoch puts the average into training mode, and the model stays in evaluation mode",
     {"by_program": {CORALS: {**DROPPED[CORALS], "MODEL.EMA_DECAY": 0.9}}, "compare": "dropout_and_an_average",
      "also": (*IN_EVAL, *seventeenth.STATISTICS)}),
    ("shadow_copied_while_training", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (SWARMS,),
     "the average was copied in training mode, and is judged so",
     {"by_program": some(DROPPED, SWARMS), "compare": "dropout_at_work", "also": IN_TRAINING}),
    ("functional_dropout_untold", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (BLAZONS,),
     "`F.dropout` is not told the mode: adapters drop in the checks too",
     {"by_program": some(DROPPED, BLAZONS), "compare": "dropout_at_work", "also": IN_TRAINING}),
    ("held_routes_with_dropout", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (ROUTES,),
     "held-out routes are matched in training mode",
     {"by_program": some(DROPPED, ROUTES), "compare": "dropout_at_work", "also": IN_TRAINING}),
    ("attention_drops_whatever_the_mode", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (CORALS,),
     "attention is given its share of dropout in the test too",
     {"by_program": {CORALS: {"MODEL.ATTN_DROP": 0.5}}, "compare": "attention_half_dropped", "also": IN_TRAINING}),
    # average
    ("average_waits_for_a_long_run", "averaged weights not updated", ninth.OF_AVERAGE + " not_learning", "start",
     (SWARMS,), "the average begins behind 2000 updates, which this run does not have: it is what was drawn",
     {"also": AVERAGE}),
    ("average_decay_of_single_updates", "averaged weights not updated", ninth.OF_AVERAGE, "start", (SWARMS,),
     "the average is updated each tenth time, by a decay that was meant for each",
     {"by_program": {SWARMS: {"ema_every": 10}}, "compare": "average_of_each_tenth", "also": AVERAGE}),
    ("copied_from_the_average", "averaged weights not swapped back", eighteenth.OF_SWAP, "start", (SWARMS,),
     "behind each look weights are copied from the average to the net, by the other of two functions",
     {"by_program": some(LAGGING, SWARMS), "compare": "average_far_behind", "also": NOT_BACK}),
    ("names_of_slow_copy_never_match", "averaged weights not updated", ninth.OF_AVERAGE + " not_learning", "start",
     (ROUTES,), "the slow copy looks for names that begin with a wrapper's prefix, and finds none",
     {"by_program": some(AVERAGED, ROUTES), "compare": "average_close_behind", "also": AVERAGE}),
    ("average_updated_once_an_epoch", "averaged weights not updated", ninth.OF_AVERAGE, "start", (CORALS,),
     "the average's update stands behind the loop over batches, and is made once an epoch",
     {"by_program": some(AVERAGED, CORALS), "compare": "average_close_behind", "also": AVERAGE}),
    ("average_saved_as_the_model", "averaged weights not swapped back", eighteenth.OF_SWAP, "start", (CORALS,),
     "behind each test the average is loaded into the model that is trained",
     {"by_program": some(LAGGING, CORALS), "compare": "average_far_behind", "also": NOT_BACK}),
    # resume
    ("optim_key_spelt_otherwise", "optimizer state lost", ninth.OF_RESUME, "resume", (SWARMS,),
     "the checkpoint's key of the optimizer is spelt otherwise where it is read, and nothing is loaded",
     {"also": RESUMED}),
    ("resume_without_recipe_state", "optimizer state lost", ninth.OF_RESUME, "resume", (BLAZONS,),
     "adapters and the schedule are gone on with, the optimizer begins anew", {"also": RESUMED}),
    ("solver_made_anew_behind_load", "optimizer state lost", ninth.OF_RESUME, "resume", (ROUTES,),
     "the solver's state is loaded, and another solver is made behind that", {"also": RESUMED}),
    ("auto_resume_of_model_alone", "optimizer state lost", ninth.OF_RESUME, "resume", (CORALS,),
     "a resume that finds its file by itself loads the model and its average alone", {"also": RESUMED}),
    # reported
    ("noise_made_with_the_flights", "noise drawn once", "eval overfit not_learning plateau data config repeated_data "
     "replay jump_down", "start", (SWARMS,), "each flight has its noise, which was drawn when flights were read",
     {"also": ("noise never changes", "fixed noise", "same noise in each epoch", "noise repeated", "overfitting",
               "noise cached", "noise drawn with the data set", "generator wrong", "few examples",
               "same noise each time", "data replayed", "evaluation data differ", "train and test differ")}),
    ("velocity_of_the_way_back", "wrong target", "eval not_learning plateau divergence data config overfit", "start",
     (SWARMS,), "the velocity that is learnt goes from points to noise; the judge and the solver go the other way",
     {"also": (*sixteenth.CONFUSED, "sign of the target wrong", "sign wrong", "velocity sign", "target negated",
               "time reversed", "direction of the flow reversed", "train and evaluation targets differ")}),
    ("judged_at_times_in_thousands", "train and test differ", "eval overfit divergence data config not_learning "
     "plateau", "start", (SWARMS,), "the judge gives times from 0 to 1000, the training from 0 to 1",
     {"also": ("times scaled differently", "timesteps in other units", "time embedding scale", "units differ",
               "evaluation data differ", "timestep scale wrong", "inputs not normalised", "time out of range",
               "overfitting", "conditioning differs", "normalisation differs")}),
    ("alpha_times_rank", "scale of the adapters wrong", "spike divergence exploding not_learning plateau update_ratio "
     "learning_rate eval config jump_down logits clipping weight_growth activations", "start", (BLAZONS,),
     "adapters are scaled by alpha times their rank, where it was to be divided by its root",
     {"also": ("learning rate too high", "alpha too high", "lora scaling wrong", "scaling too large",
               "adapter scale", "rank multiplied", "bad initialisation", "scaling wrong")}),
    ("turns_masked_the_other_way", "mask inverted", "eval plateau not_learning data config overfit divergence",
     "start", (BLAZONS,), "the mask of turns is upside down: what the herald asks is learnt, answers are not",
     {"also": ("mask upside down", "mask wrong", "prompts learnt", "answers masked", "labels masked wrong",
               "loss on prompts", "train on inputs", "completion masked", "targets wrong", "wrong target",
               "loss masked out", "evaluation data differ", "train and test differ", "user turns trained",
               "overfitting")}),
    ("drawings_of_route_share_a_batch", "negatives wrong", "plateau eval not_learning data config divergence overfit "
     "spike repeated_data", "start", (ROUTES,),
     "drawings of a route stand together, and blocks of the file are mixed: a row's copies are its negatives",
     {"by_program": some(COPIED, ROUTES), "compare": "one_thing_many_times",
      "also": ("false negatives", "duplicates in the batch", "positive among the negatives", "data sorted",
               "data not shuffled", "copies in a batch", "shuffle in blocks", "targets are not unique",
               "loss cannot fall", "grouped batches", "repeated rows", "labels do not match the inputs",
               "shuffled by blocks", "near duplicates in a batch", "duplicates")}),
    ("scale_exp_taken_again", "temperature wrong", "exploding clipping logits not_learning plateau eval divergence "
     "spike saturated config zero vanishing nonfinite", "start", (ROUTES,),
     "the scale of similarities, which is an exponential, is exponentiated again",
     {"also": ("logit scale too large", "temperature too low", "scale exponentiated twice", "exp twice",
               "scale too high", "logits too large", "learning rate too high", "scale not clamped",
               "temperature divided twice", "bad initialisation", "gradients vanish")}),
    ("erased_in_pixels_for_shares", "augmentation destroys the inputs", "not_learning plateau eval data config "
     "vanishing overfit jump_down", "start", (CORALS,),
     "what is erased was given in pixels and is taken for a share: a picture that is erased is all noise",
     {"config": {"AUG.ERASE": 0.6}, "compare": "torn_six_times_of_ten",
      "also": ("augmentation too strong", "erasing too much", "random erasing too large", "inputs are noise",
               "inputs erased", "train and test differ", "evaluation data differ", "data corrupted", "data broken",
               "augmentation wrong", "learning rate too low", "inputs not used")}),
    ("mixed_rows_flipped_labels_rolled", "labels do not match the inputs", "plateau not_learning eval data divergence "
     "overfit config", "start", (CORALS,), "rows are mixed with rows from the other end, labels with those beside them",
     {"config": {"AUG.MIXUP_PROB": 0.8}, "compare": "mixed_most_of_the_time",
      "also": (*sixteenth.CONFUSED, "mixup labels wrong", "mixup pairs differ", "mixup permutation differs",
               "labels of another partner", "augmentation breaks the labels", "labels noisy", "soft labels wrong",
               "mixup labels exchanged", "learning rate too low")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in PROGRAMS if program != PARCELS},
    "memory_steady": {program: {} for program in PROGRAMS if program != PARCELS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_halved", "an update has two parts, each of which counts half", PARTS),
    ("dropout_at_work", "much dropout in the training, none elsewhere", DROPPED),
    ("one_thing_many_times", "many rows are of one thing, and all of these are on the training's side", COPIED),
    ("descent_with_momentum", "momentum without second moments, at a rate for it", DESCENT),
    ("parts_and_momentum", "momentum, and parts whose mean is taken", DESCENT_IN_PARTS),
    ("rate_held_level", "the rate rises and is held, as it is set", LEVEL),
    ("average_close_behind", "an average of the weights is judged, which is close", AVERAGED),
    ("average_far_behind", "an average of the weights is judged, which is far behind at first", LAGGING),
    ("layer_fixed_by_name", "a layer is not trained, which the settings name",
     {SWARMS: {"fixed_layers": "point_in"}, BLAZONS: {"not_adapted": "layers.0"},
      ROUTES: {"keep_fixed": "moves.embed"}, CORALS: {"MODEL.FROZEN": "stem"},
      LITANIES: {"pinned": "blocks.0.mix"}, PARCELS: {"fix": "categories.0"}}),
    ("small_batches_slow_rate", "few rows an update at a lower rate: losses jump about",
     {SWARMS: {"batch_size": 8, "lr": 2e-3}, BLAZONS: {"batch_size": 4, "lr": 4e-3},
      ROUTES: {"samples_per_batch": 12, "base_lr": 4e-3}, CORALS: {"DATA.BATCH_SIZE": 10, "TRAIN.BASE_LR": 1.5e-3},
      LITANIES: {"rows_per_step": 4, "max_lr": 4e-3}, PARCELS: {"rows_per_rank": 8, "lr": 2e-3}}),
    ("mean_made_in_another_way", "a total over its count, or the mean of rows' means",
     {BLAZONS: {"loss_over": "rolls"}, CORALS: {"TRAIN.REDUCE": "sum"}, LITANIES: {"reduce": "rows"},
      PARCELS: {"reduce": "weights"}}),
    ("targets_made_softer", "targets are smoothed in the training",
     {BLAZONS: {"label_smoothing": 0.1}, ROUTES: {"smooth_targets": 0.1}, CORALS: {"AUG.SMOOTHING": 0.2},
      LITANIES: {"smooth": 0.1}, PARCELS: {"smooth": 0.1}}),
    ("optimizer_seldom_taken", "an optimizer that few take",
     {SWARMS: {"optimizer": "nadam"}, BLAZONS: {"optimizer": "adamax"}, ROUTES: {"solver": "rmsprop", "base_lr": 2e-3},
      CORALS: {"TRAIN.OPT": "lion", "TRAIN.BASE_LR": 8e-4}, LITANIES: {"solver": "rmsprop", "max_lr": 3e-3},
      PARCELS: {"solver": "asgd_adam"}}),
    ("rate_up_again_by_plan", "the rate falls and rises again, by the schedule",
     {SWARMS: {"lr_policy": "restarts"}, BLAZONS: {"lr_scheduler": "cosine_with_restarts"},
      ROUTES: {"lr_rule": "cyclic"}, CORALS: {"TRAIN.SCHED": "cycles"}, LITANIES: {"lr_shape": "cycles"},
      PARCELS: {"shape": "restarts"}}),
    ("rows_told_wrongly", "some of the training's rows are told wrongly, as such data are",
     {SWARMS: {"mislabelled": 0.15}, BLAZONS: {"errors": 0.12}, ROUTES: {"wrong_calls": 0.12},
      CORALS: {"DATA.MISNAMED": 0.15}, LITANIES: {"slips": 0.08}, PARCELS: {"misfiled": 0.08}}),
    ("rise_of_three_updates", "the rate rises in three updates",
     {SWARMS: {"warmup": 3}, BLAZONS: {"num_warmup_steps": 3}, ROUTES: {"warmup_steps": 3},
      CORALS: {"TRAIN.WARMUP_UPDATES": 3}, LITANIES: {"warm": 3}, PARCELS: {"warm": 3}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("average_of_each_tenth", (SWARMS,), "the average is updated each tenth time, by a decay for that",
     {"config": {"ema_every": 10}}),
    ("nothing_averaged", (SWARMS,), "the net itself is judged", {"config": {"ema_judged": False}}),
    ("times_drawn_evenly", (SWARMS,), "times are drawn evenly, noise is sorted to its flight",
     {"config": {"time_draw": "even", "pairing": "sorted"}}),
    ("simple_formations_first", (SWARMS,), "the first pass has the simple formations alone: the settings say so",
     {"config": {"simple_first": 3}}),
    ("one_rate_for_factors", (BLAZONS,), "both factors have one rate, and their scale is by the rank",
     {"config": {"lora_plus_ratio": 1.0, "rank_stabilized": False, "lora_alpha": 16.0}}),
    ("adapters_on_attention_alone", (BLAZONS,), "adapters stand beside attention's matrices alone, by the settings",
     {"config": {"apply_lora_to_mlp": False, "lora_rank": 12}}),
    ("asked_is_learnt_too", (BLAZONS,), "what is asked is a target too, by the settings and on both sides",
     {"config": {"train_on_input": True}}),
    ("rolls_in_buckets", (BLAZONS,), "rolls of about one length share a batch, in any order",
     {"config": {"bucketed": True}}),
    ("two_houses_first", (BLAZONS,), "the first pass has the rolls of two houses: the settings say so",
     {"config": {"houses_first": 2, "rolls": 640}}),
    ("one_length_a_batch", (ROUTES,), "batches are of one number of moves, on purpose; they come in any order",
     {"config": {"same_length": True}}),
    ("harder_ones_weigh_more", (ROUTES,), "negatives that are alike weigh more in the training",
     {"config": {"hardness": 1.0}}),
    ("scale_held_as_set", (ROUTES,), "the scale of similarities is not learnt", {"config": {"learn_scale": False}}),
    ("dropout_and_an_average", (CORALS,), "much dropout in the training, and an average that is judged",
     {"by_program": {CORALS: {**DROPPED[CORALS], "MODEL.EMA_DECAY": 0.9}}}),
    ("attention_half_dropped", (CORALS,), "half of attention is dropped, in the training alone",
     {"config": {"MODEL.ATTN_DROP": 0.5}}),
    ("torn_six_times_of_ten", (CORALS,), "a part is erased in six of ten pictures", {"config": {"AUG.ERASE": 0.6}}),
    ("mixed_most_of_the_time", (CORALS,), "most batches are mixed: the training's loss stays high",
     {"config": {"AUG.MIXUP_PROB": 0.8}}),
    ("twice_in_one_batch", (CORALS,), "each picture is in its batch twice, augmented apart",
     {"config": {"AUG.REPEATS": 2}}),
    ("kinds_drawn_evenly", (CORALS,), "as many of each kind are drawn, from the training's side alone",
     {"config": {"DATA.EVEN": True}}),
    ("easy_epochs_first", (CORALS,), "two epochs have little augmentation, and the others much: the settings say so",
     {"config": {"AUG.EASY_EPOCHS": 2}}),
)

# fmt: on
