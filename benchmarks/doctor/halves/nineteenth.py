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

from halves import eighteenth, ninth, seventeenth, sixteenth
from halves.ninth import Row, Settings, some

PROGRAMS = ("swarms", "blazons", "routes", "corals", "litanies", "parcels")
SWARMS, BLAZONS, ROUTES, CORALS, LITANIES, PARCELS = PROGRAMS
STEPS = {SWARMS: 180, BLAZONS: 180, ROUTES: 176, CORALS: 176, LITANIES: 180, PARCELS: 180}
REPORTED = frozenset({
    "velocity_of_the_way_back", "judged_at_times_in_thousands", "alpha_times_rank", "turns_masked_the_other_way",
    "drawings_of_route_share_a_batch", "scale_exp_taken_again", "erased_in_pixels_for_shares",
    "mixed_rows_flipped_labels_rolled", "window_reaches_ahead",
    "shares_added_with_wrong_sign", "gradients_of_head_not_synced",
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
    BLAZONS: {"retold": 5, "rolls": 1600}, ROUTES: {"drawings_per_route": 4, "routes": 960},
    CORALS: {"DATA.FRAMES": 8, "DATA.PICTURES": 840, "AUG.MIXUP_PROB": 0.2},
    LITANIES: {"overlap": 20}, PARCELS: {"rare_times": 5, "sent": 640},
}
DESCENT: Settings = {
    SWARMS: {"optimizer": "sgd", "lr": 0.01, "grad_clip": 20.0},
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
EVENLY: Mapping[str, Any] = {"draw": "alike", "adjust": 0.0}
LAGGING: Settings = {
    SWARMS: {"ema_decay": 0.97}, ROUTES: {"model_ema_decay": 0.97}, CORALS: {"MODEL.EMA_DECAY": 0.94},
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
LEFT_OPEN = ("causal mask forgotten", "sees ahead", "model sees the future", "future leaks", "target in the input",
             "labels leak", "mask missing", "loss too low", "leak", "labels can be seen", "copies its input",
             "evaluation too good", "attention mask wrong", "mask wrong")
SAME = (*eighteenth.SAME, "same shuffle and no rank", "generator seeded alike", "dataset not split by rank",
        "iterable not split by rank", "rank not used", "bootstrap seeded alike")

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

OF_KIND: Mapping[str, tuple[str, str, str, Settings, str, tuple[str, ...]]] = {
    "sum": ("loss summed", ninth.OF_SUMS, "start", DESCENT, "descent_with_momentum", SUMMED),
    "graph": ("no_grad missing", "memory eval data config", "start", {}, "memory_steady", GRAPHS),
    "softmax": ("softmax twice", ninth.OF_SOFTMAX, "start", {}, "plain", TWICE),
    "label": ("labels shifted", ninth.OF_LABELS, "start", {}, "plain", SHIFTED),
    "frozen": ("layer frozen", ninth.OF_FROZEN, "start", {}, "plain", FROZEN),
    "tie": ("weight tying broken", ninth.OF_TIE, "start", {}, "plain", TIE),
    "order": ("data sorted", ninth.OF_ORDER, "start", {}, "plain", SORTED),
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "one_thing_many_times", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", {}, "plain", STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", DESCENT_IN_PARTS, "parts_and_momentum",
              ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropout_at_work", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropout_at_work", IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", AVERAGED, "average_that_keeps_up", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", LAGGING, "average_trails", NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
OF_PARTS: Mapping[str, Any] = {"of": PARTS, "compare": "two_parts_halved"}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "velocities_of_swarm_summed", SWARMS,
     "squared errors are summed over a swarm's drones and coordinates, their mean is over swarms alone", {}),
    ("sum", "tokens_over_rolls_alone", BLAZONS,
     "losses of all answers' tokens are summed, and divided by the number of rolls", {}),
    ("sum", "both_directions_totalled", ROUTES,
     "both directions are summed over the batch, where means were meant", {}),
    ("sum", "bce_totalled_over_batch", CORALS, "binary losses are summed over the batch and the kinds", {}),
    ("sum", "chant_tokens_over_rows_alone", LITANIES,
     "losses of a row's tokens are summed, and divided by the number of rows alone", {}),
    ("sum", "losses_of_rank_totalled", PARCELS, "losses of a rank's parcels are made one by one, and summed", {}),
    ("graph", "held_flights_with_gradients", SWARMS,
     "held-out flights are judged with gradients on, and errors are kept for a figure", {}),
    ("graph", "checks_keep_what_was_said", BLAZONS,
     "held-out rolls are answered with gradients on, and what was said is kept", {}),
    ("graph", "held_vectors_keep_graph", ROUTES,
     "held-out routes are matched with gradients on, and each table of scores is kept", {}),
    ("graph", "validated_without_no_grad", CORALS,
     "the test is done with gradients on, and its outputs are kept in a list", {}),
    ("graph", "refrains_read_with_gradients", LITANIES,
     "held-out rows are read with gradients on, and what was said is kept", {}),
    ("softmax", "softmax_left_from_the_server", BLAZONS,
     "the model ends with a softmax that the server wanted, and the loss has its own", {}),
    ("softmax", "match_gives_chances", ROUTES,
     "in the training the match of two towers gives probabilities, which the loss takes for scores", {}),
    ("softmax", "sigmoid_ahead_of_bce_with_logits", CORALS,
     "the model ends with a sigmoid, and so does the binary loss", {}),
    ("softmax", "softmax_kept_for_beam_search", LITANIES,
     "the model gives probabilities, as a search wants them, and the loss takes them for logits", {}),
    ("softmax", "fates_given_as_probabilities", PARCELS,
     "the network gives probabilities, and logarithms of shares are added to them as to logits", {}),
    ("label", "formations_listed_from_one", SWARMS,
     "formations that are told count from 1 in the flights' table, from 0 in those held out", {}),
    ("label", "labels_cut_in_set_and_in_loss", BLAZONS,
     "labels are moved where rolls are read and in the loss: the token after next is asked for", {}),
    ("label", "unreadable_picture_skipped", ROUTES,
     "a picture that cannot be read is left out, its moves are not: all others have their neighbour's", {}),
    ("label", "names_begin_at_another_kind", CORALS,
     "the training's list of names begins with the last kind: each number is one too high", {}),
    ("label", "held_words_coded_without_unknown", LITANIES,
     "held-out words are coded by an older list, which has no row for unknown ones: one too low", {}),
    ("label", "fates_coded_from_one_at_the_depot", PARCELS,
     "fates of the training count from 1, those of the port from 0", {}),
    ("frozen", "freeze_asked_the_wrong_way", SWARMS,
     "the embedding of time was to stay; the condition has a `not` too many, and all else stays", {}),
    ("frozen", "all_weights_frozen_by_suffix", BLAZONS,
     "what is called weight is frozen behind the adapters, which are called so: two rows are left", {}),
    ("frozen", "locked_tower_was_never_trained", ROUTES,
     "the tower of pictures is locked as one that was trained before; it is as drawn", {}),
    ("frozen", "frozen_ahead_of_new_classifier", CORALS,
     "the model is frozen for a teacher, and has a new classifier then, which alone is trained", {}),
    ("frozen", "embedding_frozen_as_pretrained", LITANIES,
     "the embedding, which is the output too, is frozen as one that was taken over; it is as drawn", {}),
    ("frozen", "encoder_locked_for_its_head", PARCELS,
     "the encoder is frozen as one of another year; it is as drawn", {}),
    ("tie", "added_rows_in_input_alone", BLAZONS,
     "rows of added tokens are trained in the embedding; the output has their first values",
     {"kinds": " not_learning"}),
    ("tie", "table_given_to_embedding_alone", LITANIES,
     "a table is put into the embedding behind the solver: nothing trains it, the output is another",
     {"cause": "optimizer holds other parameters"}),
    ("order", "flights_formation_by_formation", SWARMS, "flights come one formation after the other", {}),
    ("order", "shortest_rolls_first_each_time", BLAZONS, "rolls come by length, the shortest first, in each pass", {}),
    ("order", "reef_after_reef", CORALS, "pictures come one reef after the other", {}),
    ("order", "orders_one_behind_another", LITANIES, "rows come one order after the other", {}),
    ("order", "carrier_after_carrier", PARCELS, "parcels come one carrier after the other, on both ranks", {}),
    ("leak", "retold_rolls_dealt_to_both", BLAZONS,
     "rolls are told five times, and tellings are dealt out to both sides", {}),
    ("leak", "drawings_of_route_dealt_apart", ROUTES,
     "a route is drawn four times, and drawings are dealt out to both sides", {}),
    ("leak", "frames_of_film_on_both_sides", CORALS,
     "frames of a film are dealt out at random: each coral is on both sides", {}),
    ("leak", "overlapping_rows_held_back", LITANIES,
     "rows share most of their tokens with the next, and are mixed before some are held back", {}),
    ("leak", "rare_parcels_copied_then_split", PARCELS,
     "parcels of rare fates are copied, and the port's are drawn of what is there then", {}),
    ("figures", "judged_by_the_hall_camera", SWARMS,
     "held-out flights are scaled by the figures of another camera", {}),
    ("figures", "held_drawings_left_in_bytes", ROUTES,
     "held-out drawings are not divided by 255, and are scaled as if they were", {}),
    ("figures", "slow_copy_without_buffers", ROUTES,
     "the slow copy follows parameters alone: its batch norms have their first statistics",
     {"cause": "batch norm's statistics are stale", "of": AVERAGED, "compare": "average_that_keeps_up",
      "also": BUFFERS}),
    ("figures", "test_scaled_by_halves", CORALS,
     "the test's pictures are scaled by a mean and a spread of a half, the training's by their own", {}),
    ("figures", "port_scaled_by_last_year", PARCELS,
     "the port's figures are scaled by those of last year, which had other units", {}),
    ("steps", "trapezoid_moved_by_each_part", SWARMS,
     "the schedule is moved within the loop over parts, of which an update has two", {**OF_PARTS}),
    ("steps", "cosine_ends_with_first_pass", BLAZONS,
     "the cosine is as long as half of a pass over the rolls, where all passes were meant", {}),
    ("steps", "milestones_counted_in_batches", ROUTES,
     "milestones that were given in epochs are counted in batches", {}),
    ("steps", "updates_counted_with_every_part", CORALS,
     "the rate is set from how many batches were read, where an update has two", {**OF_PARTS}),
    ("steps", "total_tokens_of_one_part", LITANIES,
     "all tokens are counted from the rows of one part, of which an update has two", {**OF_PARTS}),
    ("steps", "curve_of_epochs_stepped_each_batch", PARCELS,
     "the curve, which counts epochs, is stepped with each batch", {}),
    ("added", "parts_of_flow_loss_whole", SWARMS,
     "gradients of four parts are added, and no loss is divided by four", {}),
    ("added", "four_answers_left_whole", BLAZONS, "losses of four micro-batches go backward as they are", {}),
    ("added", "parts_of_match_left_whole", ROUTES, "an update has two parts, whose losses are not halved", {}),
    ("added", "accumulated_bce_left_whole", CORALS,
     "four batches are accumulated for an update, and none is divided by four", {}),
    ("added", "parts_of_chant_added_whole", LITANIES, "losses of four parts are added as they are", {}),
    ("added", "accumulated_rows_left_whole", PARCELS,
     "four parts add up on each rank, three of them under `no_sync`, and are not divided", {}),
    ("eval", "judging_ends_the_training_mode", SWARMS,
     "the function that judges the average ends the net's training mode, which nobody sets again", {}),
    ("eval", "recall_leaves_towers_in_eval", ROUTES,
     "both towers stay in evaluation mode behind the first look at what is held out",
     {"kinds": " activations", "also": (*IN_EVAL, *seventeenth.STATISTICS)}),
    ("eval", "train_mode_set_on_the_copy", CORALS,
     "each epoch puts the average into training mode, and the model stays in evaluation mode",
     {"kinds": " activations", "also": (*IN_EVAL, *seventeenth.STATISTICS),
     "of": {CORALS: {**DROPPED[CORALS], "MODEL.EMA_DECAY": 0.9}}, "compare": "dropout_and_an_average"}),
    ("eval", "listening_ends_training_mode", LITANIES,
     "the look at what is held out ends the training mode for good", {}),
    ("eval", "rank_zero_judges_and_stays", PARCELS,
     "rank 0, which judges, stays in evaluation mode; the other trains on",
     {"kinds": " activations desync", "also": (*IN_EVAL, *seventeenth.STATISTICS)}),
    ("train", "shadow_copied_while_training", SWARMS, "the average was copied in training mode, and is judged so", {}),
    ("train", "functional_dropout_untold", BLAZONS,
     "`F.dropout` is not told the mode: adapters drop in the checks too", {}),
    ("train", "held_routes_with_dropout", ROUTES, "held-out routes are matched in training mode", {}),
    ("train", "attention_drops_whatever_the_mode", CORALS,
     "attention is given its share of dropout in the test too",
     {"of": {CORALS: {"MODEL.ATTN_DROP": 0.5}}, "compare": "attention_half_dropped"}),
    ("train", "held_rows_while_dropping", LITANIES, "held-out rows are read in training mode", {}),
    ("train", "port_judged_while_dropping", PARCELS,
     "the port's parcels are judged without a call of evaluation mode", {}),
    ("average", "average_waits_for_a_long_run", SWARMS,
     "the average begins behind 2000 updates, which this run does not have: it is what was drawn",
     {"kinds": " not_learning", "of": {}, "compare": "plain"}),
    ("average", "average_decay_of_single_updates", SWARMS,
     "the average is updated each tenth time, by a decay that was meant for each",
     {"of": {SWARMS: {"ema_every": 10}}, "compare": "average_of_each_tenth"}),
    ("average", "names_of_slow_copy_never_match", ROUTES,
     "the slow copy looks for names that begin with a wrapper's prefix, and finds none", {"kinds": " not_learning"}),
    ("average", "average_updated_once_an_epoch", CORALS,
     "the average's update stands behind the loop over batches, and is made once an epoch", {}),
    ("average", "average_begins_at_zero", LITANIES,
     "the average begins at zero, and is not divided by what it lacks", {"of": LAGGING, "compare": "average_trails",
     "also": (*AVERAGE, "bias correction missing", "average begins at zero", "average not debiased")}),
    ("swap", "copied_from_the_average", SWARMS,
     "behind each look weights go from the average to the net, by the other of two functions", {}),
    ("swap", "average_saved_as_the_model", CORALS,
     "behind each test the average is loaded into the model that is trained", {}),
    ("resume", "optim_key_spelt_otherwise", SWARMS,
     "the key of the optimizer is spelt otherwise where it is read, and nothing is loaded", {}),
    ("resume", "resume_without_recipe_state", BLAZONS,
     "adapters and the schedule are gone on with, the optimizer begins anew", {}),
    ("resume", "solver_made_anew_behind_load", ROUTES,
     "the solver's state is loaded, and another solver is made behind that", {}),
    ("resume", "auto_resume_of_model_alone", CORALS,
     "a resume that finds its file by itself loads the model and its average alone", {}),
    ("resume", "chant_resumed_without_moments", LITANIES,
     "a resume goes on with weights and tokens read, and without moments", {}),
    ("ranks", "ranks_take_all_in_one_order", PARCELS,
     "rows are mixed by a seed, and no sampler knows the rank: both take the same half", {}),
    ("ranks", "even_draw_seeded_without_rank", PARCELS,
     "fates are drawn evenly by dice that have one seed on both ranks",
     {"of": {PARCELS: EVENLY}, "compare": "fates_drawn_alike"}),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, of, compare, also = OF_KIND[kind]
    of = more.get("of", of)
    settings = {program: of[program]} if program in of else {}
    rest = {"by_program": settings, "compare": more.get("compare", compare), "also": more.get("also", also)}
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
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
    ("window_reaches_ahead", "causal mask missing", "jump_down eval overfit attention plateau data config zero",
     "start", (LITANIES,), "the window of attention is as wide ahead as behind: what is asked for is seen",
     {"also": (*LEFT_OPEN, "window not causal", "window symmetric", "sliding window sees ahead")}),
    ("shares_added_with_wrong_sign", "class weights wrong", "plateau not_learning eval data config divergence overfit "
     "logits", "start", (PARCELS,), "logarithms of fates' shares are taken from logits, where they were to be added",
     {"also": ("logit adjustment reversed", "prior subtracted", "sign of the prior wrong", "class weights reversed",
               "class weights inverted", "rare classes ignored", "one class alone", "imbalance made worse",
               "weights of classes wrong", "prior wrong", "evaluation and training losses differ",
               "train and test differ", "labels do not match the inputs")}),
    ("gradients_of_head_not_synced", "gradients not synchronised", "desync eval data config divergence plateau",
     "start", (PARCELS,), "the encoder alone is wrapped for two processes: each trains a head of its own",
     {"also": ("module called past ddp", "head not in ddp", "ranks drift apart", "weights differ between ranks",
               "all-reduce missing", "not synchronised", "parameters outside of ddp", "never synchronised",
               "gradients not averaged", "ranks differ", "ddp wraps a part")}),
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
    ("average_that_keeps_up", "an average of the weights is judged, which is close", AVERAGED),
    ("average_trails", "an average of the weights is judged, which is far behind at first", LAGGING),
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
      PARCELS: {"reduce": "sum"}}),
    ("targets_made_softer", "targets are smoothed in the training",
     {BLAZONS: {"label_smoothing": 0.1}, ROUTES: {"smooth_targets": 0.1}, CORALS: {"AUG.SMOOTHING": 0.2},
      LITANIES: {"smooth": 0.1}, PARCELS: {"smooth": 0.1}}),
    ("optimizer_seldom_taken", "an optimizer that few take",
     {SWARMS: {"optimizer": "nadam"}, BLAZONS: {"optimizer": "adamax"}, ROUTES: {"solver": "rmsprop", "base_lr": 2e-3},
      CORALS: {"TRAIN.OPT": "lion", "TRAIN.BASE_LR": 8e-4}, LITANIES: {"solver": "nadam"},
      PARCELS: {"solver": "adamax", "lr": 5e-3}}),
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
    ("corals_drawn_evenly", (CORALS,), "as many of each kind are drawn, from the training's side alone",
     {"config": {"DATA.EVEN": True}}),
    ("easy_epochs_first", (CORALS,), "two epochs have little augmentation, and the others much: the settings say so",
     {"config": {"AUG.EASY_EPOCHS": 2}}),
    ("two_matrices_as_set", (LITANIES,), "embedding and output have a matrix each, by the settings",
     {"config": {"tie": False}}),
    ("two_orders_first", (LITANIES,), "rows of two orders are read in the first pass: the settings say so",
     {"config": {"orders_first": 2, "rows": 800}}),
    ("normaliser_held_near", (LITANIES,), "a small term holds the normaliser", {"config": {"z_weight": 1e-3}}),
    ("fates_drawn_alike", (PARCELS,), "as many of each fate are drawn, by each rank for itself", {"config": EVENLY}),
    ("one_carrier_a_batch", (PARCELS,), "batches are of one carrier, on purpose; they come in any order",
     {"config": {"one_carrier": True}}),
    ("figures_not_weighed", (PARCELS,), "one figure in six is left out, in the training", {"config": {"hide": 0.16}}),
)

# fmt: on
