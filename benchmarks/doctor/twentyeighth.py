"""The twenty-eighth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-seventh half: noise taken off drum grooves with an average that draws,
adapters beside layers of four bits with zero points, preferences of a decoder against a copy that stays, two towers for
footprints and shoes, a language model in float16 with a scaler and a budget of tokens, rare bumps of a road on two
workers whose optimizer averages gradients; each as another ordinary engineer writes it. Most faults are of the fifteen
kinds that the fourteenth half has, each as the line that a person gets wrong in that program; those in `REPORTED` are
others that people report of such trainings. Who wrote them had read no rule, and did not look at what the doctor says.
A fault is called by any name that a person would give it, and every kind of finding that would be right of it is right;
the names that the twenty-seventh half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import eighteenth
import ninth
import sixteenth
import twentyseventh
from ninth import Row, Settings
from twentysixth import several

PROGRAMS = ("grooves", "thermostats", "cocktails", "footprints", "genealogies", "potholes")
GROOVES, THERMOSTATS, COCKTAILS, FOOTPRINTS, GENEALOGIES, POTHOLES = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "betas_of_a_thousand_levels", "decay_of_an_average_for_long_trainings", "zero_points_never_subtracted",
    "held_requests_lack_the_word_before_a_call", "reference_sees_the_padding_on_the_left",
    "reference_brought_up_to_date_behind_tastings", "prints_not_brought_to_length_one",
    "prints_of_one_shoe_count_as_others", "optimizer_steps_past_the_scaler", "heads_made_by_view_alone",
    "workers_gradients_summed", "focus_falls_on_what_is_sure",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    GROOVES: {"batch": 16, "accumulate": 2}, THERMOSTATS: {"batch_size": 8, "accumulation": 2},
    COCKTAILS: {"train_batch": 8, "grad_accum": 2}, FOOTPRINTS: {"batch_size": 20, "splits": 2},
    GENEALOGIES: {"batch": 4, "grad_steps": 2}, POTHOLES: {"batch": 8, "pieces": 2},
}
FOUR_PARTS: Settings = {
    GROOVES: {"batch": 8, "accumulate": 4}, THERMOSTATS: {"batch_size": 4, "accumulation": 4},
    COCKTAILS: {"train_batch": 4, "grad_accum": 4},
    FOOTPRINTS: {"batch_size": 16, "splits": 4, "optimizer": "sgd", "lr": 0.01, "clip": 1000.0},
    GENEALOGIES: {"batch": 2, "grad_steps": 4},
    POTHOLES: {"batch": 8, "pieces": 4, "opt": "sgd", "lr": 0.05, "max_norm": 100.0},
}
DROPPED: Settings = {
    GROOVES: {"dropout": 0.3}, THERMOSTATS: {"lora_dropout": 0.3}, COCKTAILS: {"dropout": 0.05},
    FOOTPRINTS: {"dropout": 0.3}, GENEALOGIES: {"dropout": 0.15}, POTHOLES: {"dropout": 0.4},
}
COPIED: Settings = {
    GROOVES: {"takes": 4}, THERMOSTATS: {"copies": 3}, COCKTAILS: {"pairs_each": 4},
    FOOTPRINTS: {"prints_of_a_shoe": 3}, POTHOLES: {"of_a_drive": 5},
}
TRAILING: Settings = {GROOVES: {"ema_decay": 0.98}}
DESCENT: Settings = {
    FOOTPRINTS: {"optimizer": "sgd", "lr": 0.01, "clip": 1000.0},
    POTHOLES: {"opt": "sgd", "lr": 0.03, "max_norm": 100.0},
}
FOCUSED: Settings = {POTHOLES: {"gamma": 2.0, "class_weights": "none"}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = several(*twentyseventh.SUMMED, "loss summed over a bar", "sum over all elements", "summed over the batch")
MEANED = twentyseventh.MEANED
GRAPHS = several(*twentyseventh.GRAPHS, "losses kept in a list", "detach missing", "meters keep graphs")
TWICE = several(*twentyseventh.TWICE, "softmax in the model", "forward ends in a softmax")
SHIFTED = several(*twentyseventh.SHIFTED, "classes sorted by name", "label order differs", "label map differs",
                  "shifted in the dataset and in the loss", "shifted twice")
FLIPPED = several(*SHIFTED, "preference reversed", "chosen and rejected swapped", "choice off by one",
                  "rejected preferred", "preferred answer is the other one", "sign reversed", "pairs swapped")
FROZEN = several(*twentyseventh.FROZEN, "convolutions missing from the optimizer", "adapters not trained",
                 "parameter groups incomplete", "parameter groups overwritten", "model replaced by its copy",
                 "optimizer has the reference's parameters", "head replaced after the optimizer was made",
                 "layers run without gradients", "graph cut")
TIE = several(*twentyseventh.TIE, "head made anew", "lm_head replaced", "embedding put in anew")
SORTED = several(*twentyseventh.SORTED, "style after style", "device after device", "maker after maker",
                 "house after house")
LEAK = several(*twentyseventh.LEAK, "takes on both sides", "split by rows and not by groups", "group leakage",
               "windows of a drive on both sides", "prints of a shoe on both sides")
FIGURES = several(*twentyseventh.FIGURES, "units differ", "metres and millimetres confused", "wrong units",
                  "held inputs scaled otherwise", "scaler not applied to the evaluation")
UNFITTED = several(*FIGURES, "statistics never fitted", "scaler never fitted", "inputs not scaled",
                   "normalisation missing", "mean and std are 0 and 1", "raw inputs", "buffers never set",
                   "inputs too large", "learning rate too high")
BUFFERS = twentyseventh.BUFFERS
STEPPED = several(*twentyseventh.STEPPED, "tokens counted twice", "tokens counted too often",
                  "token counter too fast", "progress counted twice")
ADDED = twentyseventh.ADDED
IN_EVAL = twentyseventh.IN_EVAL
IN_TRAINING = twentyseventh.IN_TRAINING
AVERAGE = several(*twentyseventh.AVERAGE, "average updated once per epoch", "average updated too seldom",
                  "ema updated per epoch", "update in the wrong loop")
NOT_BACK = several(*twentyseventh.NOT_BACK, "swapped twice", "restored the average", "backup overwritten")
RESUMED = twentyseventh.RESUMED
ANEW = twentyseventh.ANEW
SAME = several(*twentyseventh.SAME, "rank is 0 everywhere", "world size is 1 in the sampler")

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

OF_KIND: Mapping[str, tuple[str, str, str, Settings, str, tuple[str, ...]]] = {
    "sum": ("loss summed", ninth.OF_SUMS, "start", {}, "plain", SUMMED),
    "graph": ("no_grad missing", "memory eval data config", "start", {}, "memory_steady", GRAPHS),
    "softmax": ("softmax twice", ninth.OF_SOFTMAX, "start", {}, "plain", TWICE),
    "label": ("labels shifted", ninth.OF_LABELS, "start", {}, "plain", SHIFTED),
    "frozen": ("layer frozen", ninth.OF_FROZEN, "start", {}, "plain", FROZEN),
    "tie": ("weight tying broken", ninth.OF_TIE, "start", {}, "plain", TIE),
    "order": ("data sorted", ninth.OF_ORDER, "start", {}, "plain", SORTED),
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "versions_that_are_trained_on_alone", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_parts_of_an_update",
              STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "four_parts_of_an_update",
              ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropout_as_is_set", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropout_as_is_set",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING, "average_that_trails_as_set",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
ALSO_ANEW: dict[str, Any] = {"also": ANEW}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_of_a_bar_added", GROOVES, "squared errors are summed over ticks and drums", {}),
    ("graph", "judged_errors_join_a_list", GROOVES,
     "the average is judged with gradients on, and errors are kept", {}),
    ("label", "styles_of_the_held_sorted_by_name", GROOVES,
     "styles of the evaluation are numbered by their names, and those of the training as they are listed", {}),
    ("frozen", "groups_by_dimension_leave_convolutions_out", GROOVES,
     "groups of the optimizer are made by dimensions, and weights of convolutions are in none", {}),
    ("order", "bars_in_the_order_of_the_folder", GROOVES, "grooves come style after style", {}),
    ("leak", "takes_split_and_not_grooves", GROOVES, "takes of one groove come to lie on both sides", {}),
    ("figures", "held_loudness_as_a_share_of_the_loudest", GROOVES,
     "loudness of the evaluation goes from 0 to 1, and that of the training is scaled by mean and deviation", {}),
    ("figures", "loudness_never_fitted", GROOVES,
     "means and deviations that the net keeps are those of its start, 0 and 1: loudness is not scaled",
     {"kinds": " exploding plateau not_learning clipping spike learning_rate", "also": UNFITTED}),
    ("steps", "scheduler_in_the_inner_loop", GROOVES, "the schedule is stepped with each part of an update", {}),
    ("added", "accumulated_without_a_share", GROOVES, "losses of parts are not divided by their number", {}),
    ("eval", "script_stays_in_eval", GROOVES, "the net is not set back to training behind an evaluation", {}),
    ("train", "average_drops_out_while_judged", GROOVES, "the average is judged with dropout in force", {}),
    ("average", "average_updated_once_an_epoch", GROOVES,
     "the average is brought on once an epoch, and not with each update: it hardly leaves its start", {}),
    ("swap", "average_entered_again_to_draw", GROOVES,
     "the average is entered twice: what is put back behind it is the average, and the training goes on from there",
     {}),
    ("resume", "net_and_average_are_what_was_saved", GROOVES,
     "weights and their average are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "summed_words_over_the_batch_size", THERMOSTATS, "losses of words are summed, and divided by requests", {}),
    ("softmax", "outputs_go_through_a_softmax", THERMOSTATS,
     "the model ends in a softmax, and the loss has its own", {}),
    ("graph", "evaluate_returns_outputs_with_their_past", THERMOSTATS,
     "held requests are evaluated with gradients on, and outputs kept", {}),
    ("label", "labels_rolled_by_the_mapper_too", THERMOSTATS,
     "labels are moved by one in the data and again in the loss, in the training", {}),
    ("label", "functions_of_the_held_in_another_table", THERMOSTATS,
     "names of functions have other numbers in the evaluation than in the training", {}),
    ("frozen", "trainable_names_begin_with_lora", THERMOSTATS,
     "what learns is chosen by the begin of its name, and names of adapters begin with those of layers", {}),
    ("tie", "resized_table_and_a_head_that_is_copied", THERMOSTATS,
     "the table of words is made longer, and the head gets a copy of it: they are two matrices from there on", {}),
    ("order", "fit_without_shuffle", THERMOSTATS, "requests come device after device", {}),
    ("steps", "schedule_steps_as_the_batch_ends", THERMOSTATS,
     "the schedule is stepped with each part of an update", {}),
    ("added", "accumulated_at_full_weight", THERMOSTATS, "losses of parts are not divided by their number", {}),
    ("eval", "evaluate_is_the_last_to_set_a_mode", THERMOSTATS,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "evaluate_calls_as_fit_does", THERMOSTATS, "requests are evaluated with dropout in force", {}),
    ("resume", "compiled_anew_behind_load_weights", THERMOSTATS,
     "weights are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "guests_of_a_batch_added", COCKTAILS, "losses of pairs are summed", {}),
    ("sum", "reference_by_the_mean_of_a_drink", COCKTAILS,
     "likelihoods of the reference are means over words, and those of the policy are sums",
     {"also": MEANED, "cause": "wrong reduction"}),
    ("graph", "tasting_keeps_what_losses_returned", COCKTAILS,
     "pairs are evaluated with gradients on, and losses kept", {}),
    ("label", "drinks_asked_for_a_place_late", COCKTAILS,
     "words that are asked for are moved by one place more in the training", {"kinds": " rl"}),
    ("label", "second_is_read_as_true", COCKTAILS,
     "choices of 1 and 2 are taken for no and yes in the training: worse drinks are preferred",
     {"kinds": " rl", "also": FLIPPED}),
    ("frozen", "copy_of_the_wrong_one_is_kept", COCKTAILS,
     "what learns is the copy, and the optimizer has the parameters of the one that stays", {}),
    ("tie", "embeddings_loaded_into_a_new_table", COCKTAILS,
     "the table of words is made anew and loaded when the head was tied to the one before", {}),
    ("order", "sequential_sampler_for_the_orders", COCKTAILS, "pairs come by what is wrong with the worse drink", {}),
    ("leak", "pairs_of_an_order_on_both_sides", COCKTAILS, "pairs of one order come to lie on both sides", {}),
    ("steps", "scheduler_belongs_to_the_micro_step", COCKTAILS,
     "the schedule is stepped with each part of an update", {}),
    ("added", "backward_of_the_whole_loss_each_time", COCKTAILS, "losses of parts are not divided by their number", {}),
    ("eval", "tasting_leaves_eval_on", COCKTAILS, "the decoder is not set back to training behind an evaluation", {}),
    ("train", "tasting_while_words_drop", COCKTAILS, "pairs are evaluated with dropout in force", {}),
    ("resume", "load_before_create_optimizer", COCKTAILS,
     "weights are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "entropies_of_prints_summed", FOOTPRINTS, "losses of a batch are summed, and not divided by its rows",
     {"of": DESCENT, "compare": "descent_with_momentum_as_set"}),
    ("softmax", "scores_softmaxed_before_the_entropy", FOOTPRINTS,
     "scores go through a softmax, and then into a loss that has its own", {}),
    ("graph", "line_ups_are_kept_to_be_drawn", FOOTPRINTS,
     "held prints are evaluated with gradients on, and scores kept", {}),
    ("label", "shoes_of_a_batch_are_one_late", FOOTPRINTS,
     "shoes of a batch are one row late: prints have those of others", {}),
    ("label", "held_words_from_an_index_of_their_own", FOOTPRINTS,
     "words of the evaluation have the numbers of an index that was made anew", {}),
    ("frozen", "labels_embedded_as_for_the_index", FOOTPRINTS,
     "shoes are embedded without gradients, as for an index: their tower stays as it began", {}),
    ("order", "prints_in_the_order_of_makers", FOOTPRINTS, "prints come maker after maker", {}),
    ("leak", "prints_split_and_not_shoes", FOOTPRINTS, "prints of one shoe come to lie on both sides", {}),
    ("figures", "held_pressures_in_bar", FOOTPRINTS,
     "pressures of the evaluation are in bar, and those of the training in kilopascals", {}),
    ("buffers", "norms_in_eval_as_for_a_pretrained_net", FOOTPRINTS,
     "batch norms are kept in evaluation mode, though they begin anew: their statistics are 0 and 1", {}),
    ("steps", "halving_counts_splits", FOOTPRINTS, "the schedule is stepped with each part of an update", {}),
    ("added", "splits_not_divided_among", FOOTPRINTS, "losses of parts are not divided by their number", {}),
    ("eval", "line_up_forgets_to_go_back", FOOTPRINTS, "towers are not set back to training behind an evaluation", {}),
    ("train", "line_up_in_the_midst_of_training_mode", FOOTPRINTS,
     "towers are evaluated in training mode: with dropout, and statistics of their own batch", {}),
    ("resume", "both_towers_and_nothing_more_resumed", FOOTPRINTS,
     "weights are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "losses_of_a_window_summed", GENEALOGIES, "losses of words are summed, and divided by windows", {}),
    ("softmax", "head_answers_in_shares", GENEALOGIES,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("graph", "dev_logits_in_a_list_for_later", GENEALOGIES,
     "windows are evaluated with gradients on, and outputs kept", {}),
    ("label", "asked_words_begin_two_ahead", GENEALOGIES,
     "words that are asked for begin two places on in the training", {}),
    ("label", "names_of_the_dev_numbered_as_they_appear", GENEALOGIES,
     "names of the evaluation are numbered anew, as they appear in its text", {}),
    ("frozen", "second_group_takes_the_place_of_the_first", GENEALOGIES,
     "the second group of the optimizer takes the place of the first: matrices of the blocks are in none",
     {"kinds": " clipping loss_scale"}),
    ("tie", "head_made_anew_behind_the_tie", GENEALOGIES,
     "weights are tied, and then the head is made anew: it is a matrix of its own", {}),
    ("order", "text_written_as_houses_come", GENEALOGIES, "the text is of one house after another, and read in turn",
     {}),
    ("steps", "tokens_of_an_update_counted_in_each_part", GENEALOGIES,
     "tokens of a whole update are counted with each of its parts: the rate falls with them", {}),
    ("added", "grad_steps_add_whole_losses", GENEALOGIES, "losses of parts are not divided by their number", {}),
    ("eval", "dev_is_where_train_is_forgotten", GENEALOGIES,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "dev_is_read_as_the_training_is", GENEALOGIES, "windows are evaluated with dropout in force", {}),
    ("resume", "loaded_as_weights_to_begin_from", GENEALOGIES,
     "the model is loaded; optimizer, scaler and the count of tokens begin anew", ALSO_ANEW),
    ("sum", "weighted_losses_left_as_a_sum", POTHOLES, "weighted losses are summed, and not divided",
     {"of": DESCENT, "compare": "descent_with_momentum_as_set"}),
    ("softmax", "forward_ends_in_probabilities", POTHOLES,
     "the net gives probabilities, and the loss has its own softmax", {}),
    ("graph", "meters_keep_losses_and_their_past", POTHOLES,
     "windows are tested with gradients on, and losses kept", {}),
    ("label", "kinds_of_the_test_sorted_by_name", POTHOLES,
     "kinds of the evaluation are numbered by their names, and those of the training as they are listed", {}),
    ("frozen", "head_of_before_in_the_optimizer", POTHOLES,
     "the head is put in anew, and its last layer is not given to the optimizer", {}),
    ("order", "sampler_without_its_shuffle", POTHOLES, "windows come kind after kind", {}),
    ("leak", "windows_split_and_not_drives", POTHOLES, "windows of one drive come to lie on both sides", {}),
    ("figures", "test_readings_in_metres", POTHOLES,
     "readings of the evaluation are in metres, and those of the training in millimetres", {}),
    ("buffers", "norms_held_as_when_the_body_was_lent", POTHOLES,
     "batch norms are kept in evaluation mode, though they begin anew: their statistics are 0 and 1", {}),
    ("steps", "scheduler_moves_by_pieces", POTHOLES, "the schedule is stepped with each part of an update", {}),
    ("added", "pieces_backed_without_division", POTHOLES, "losses of parts are not divided by their number", {}),
    ("eval", "test_goes_over_into_training_in_eval", POTHOLES,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "test_is_run_in_training_mode", POTHOLES,
     "windows are tested in training mode: with dropout, and statistics of their own batch", {}),
    ("ranks", "sampler_asks_before_the_group_is_there", POTHOLES,
     "the sampler takes each worker for the first of one: all see the same rows", {}),
)
