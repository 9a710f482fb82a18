"""The thirtieth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-ninth half: noise taken off tracks of typhoons with a shadow of the weights
that is lent to be judged, adapters beside a base of sixteen levels whose gradients are divided by tokens, preferences
of a pilot against a copy that stays, two towers for listeners and songs that share a table, a language model in float16
with a scaler over windows of dominoes, rare logins on two workers over a small accelerator; each as another ordinary
engineer writes it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a person
gets wrong in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read
no rule, and did not look at what the doctor says. A fault is called by any name that a person would give it, and every
kind of finding that would be right of it is right; the names that the twenty-ninth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, eleventh, fourteenth, ninth, sixteenth, twentyeighth, twentyfifth, twentyfourth
from halves import twentyninth as before
from halves.ninth import Row, Settings
from halves.twentysixth import several

PROGRAMS = ("typhoons", "commits", "readbacks", "playlists", "dominoes", "logins")
TYPHOONS, COMMITS, READBACKS, PLAYLISTS, DOMINOES, LOGINS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "alpha_in_the_place_of_its_product", "sampler_has_the_betas_of_a_thousand_levels",
    "matrix_read_back_in_the_order_of_columns", "ends_cut_off_at_the_longest_row",
    "padding_left_in_the_sums", "end_appended_to_the_chosen_alone",
    "popularity_added_and_not_taken_off", "lengths_of_listeners_left_in",
    "divided_by_the_scale_by_hand_as_well", "bias_given_and_the_mask_forgotten",
    "weights_drawn_by_each_rank_for_itself", "gathered_answers_against_the_file_s_order",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    TYPHOONS: {"batch_size": 16, "accumulate_grad_batches": 2},
    COMMITS: {"batch_size": 8, "gradient_accumulation_steps": 2},
    READBACKS: {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
    PLAYLISTS: {"batch_size": 40, "slices": 2}, DOMINOES: {"batch_size": 8, "micro_steps": 2},
    LOGINS: {"per_rank_batch": 16, "gradient_accumulation": 2},
}
FOUR_PARTS: Settings = {
    TYPHOONS: {"batch_size": 8, "accumulate_grad_batches": 4},
    COMMITS: {"batch_size": 4, "gradient_accumulation_steps": 4},
    READBACKS: {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
    PLAYLISTS: {"batch_size": 32, "slices": 4, "optimizer": "sgd", "learning_rate": 0.1, "grad_bound": 1000.0},
    DOMINOES: {"batch_size": 4, "micro_steps": 4},
    LOGINS: {"per_rank_batch": 8, "gradient_accumulation": 4, "optimizer": "sgd", "lr": 0.1, "max_grad_norm": 100.0},
}
DROPPED: Settings = {
    TYPHOONS: {"dropout": 0.3}, COMMITS: {"lora_dropout": 0.3}, READBACKS: {"resid_pdrop": 0.2},
    PLAYLISTS: {"dropout": 0.4}, DOMINOES: {"dropout": 0.2}, LOGINS: {"dropout": 0.4},
}
COPIED: Settings = {
    TYPHOONS: {"members": 4}, COMMITS: {"rewordings": 4}, READBACKS: {"answers_each": 4},
    PLAYLISTS: {"sessions_of_a_listener": 4}, DOMINOES: {"stride": 9}, LOGINS: {"of_an_account": 5},
}
TRAILING: Settings = {TYPHOONS: {"ema_rate": 0.98, "ema_warm": False}}
DESCENT: Settings = {
    PLAYLISTS: {"optimizer": "sgd", "learning_rate": 0.1, "grad_bound": 1000.0},
    LOGINS: {"optimizer": "sgd", "lr": 0.1, "max_grad_norm": 100.0},
}
KEPT: Settings = {TYPHOONS: {"fixed_part": "basins"}, COMMITS: {"not_trained": "layers.0"},
                  READBACKS: {"freeze_modules": "h.0"}, PLAYLISTS: {"frozen": "listener.hours"},
                  DOMINOES: {"frozen": "norm"}, LOGINS: {"frozen": "events"}}



def named(half: Any, fault: str) -> tuple[str, ...]:
    """What a fault of an earlier half is called, which is this one in another program."""
    return next((row[1], *row[-1]["also"]) for row in half.FAULTS if row[0] == fault)


# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = several(*before.SUMMED, "gradients not divided by tokens", "gradients not scaled", "loss summed over a track",
                 "normalisation by tokens missing", "reduction sum")
GRAPHS = several(*before.GRAPHS, "outputs gathered with their graph", "losses appended with gradients")
TWICE = several(*before.TWICE, "log-softmax of a softmax", "model outputs probabilities")
SHIFTED = several(*before.SHIFTED, "rows misaligned", "labels of another row", "shift without groupby",
                  "labels joined wrongly", "label encoders differ", "label encoding differs between ranks",
                  "vocabulary differs", "vocabulary of the evaluation is another", "token ids differ",
                  "conditions of other rows", "condition does not belong to the input", "targets of other rows",
                  "pairs do not belong together", "inputs and labels misaligned")
FROZEN = several(*before.FROZEN, "gradient cut", "graph cut", "activations detached", "detached",
                 "no_grad around a part of the model", "no_grad in the training", "parameters without a gradient",
                 "parameter groups overwritten", "adapters not trained", "lora_b not trained", "encoder frozen",
                 "tower frozen", "weights missing from the optimizer")
TIE = several(*before.TIE, "tie_weights not called", "tied by value and not by reference", "table copied",
              "shared embedding copied", "embeddings not shared", "resize broke the tie")
SORTED = several(*before.SORTED, "basin after basin", "folder after folder", "airline after airline",
                 "market after market", "text read in order", "kind after kind", "shuffle off")
LEAK = several(*before.LEAK, "overlapping windows", "windows overlap between the splits", "text on both sides",
               "sessions of an account on both sides", "sessions of a listener on both sides")
FIGURES = several(*before.FIGURES, "seconds and milliseconds confused", "longitude convention differs",
                  "angles wrapped otherwise", "a feature out of range")
BUFFERS = several(*before.BUFFERS, "batch norm in evaluation mode", "batch norm frozen", "statistics never kept",
                  "batch norm in eval while training", "inputs not normalised", "running statistics not tracked")
AVERAGE = several(*before.AVERAGE, "default decay of the average", "decay is the default", "ema rate too high")

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "kin_trained_on_alone", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_parts_an_update_as_named",
              twentyeighth.STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS,
              "four_parts_an_update_as_named", twentyeighth.ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropping_out_as_named",
             twentyeighth.IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropping_out_as_named",
              twentyeighth.IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING, "shadow_that_lags_as_named",
             several(*twentyeighth.NOT_BACK, "restore missing", "store and restore missing", "ema scope not left")),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", twentyeighth.ANEW),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", twentyeighth.SAME),
}
ALIKE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("steps", "the schedule goes on with each part of an update"): {
        TYPHOONS: "poly_decay_called_for_each_batch", COMMITS: "lr_scheduler_moved_into_the_loop_of_batches",
        READBACKS: "schedule_called_behind_each_micro_batch", PLAYLISTS: "decay_goes_on_with_each_slice",
        DOMINOES: "iter_num_counts_micro_steps", LOGINS: "schedule_steps_within_accumulate",
    },
    ("added", "losses of parts are not divided by their number"): {
        TYPHOONS: "accumulated_batches_each_backed_whole", READBACKS: "micro_batch_losses_never_divided",
        PLAYLISTS: "slices_backed_without_their_share", DOMINOES: "micro_losses_go_whole_into_the_scaler",
        LOGINS: "backward_of_parts_without_their_share",
    },
    ("resume", "weights are loaded; the optimizer and the schedule begin anew"): {
        TYPHOONS: "checkpoint_taken_for_its_two_state_dicts", COMMITS: "adapter_file_given_and_no_recipe_state",
        READBACKS: "pilot_read_from_its_folder_for_a_new_trainer",
        DOMINOES: "ckpt_has_the_player_and_its_arguments",
    },
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "loss_added_up_along_a_track", TYPHOONS, "squared errors are summed over times and quantities", {}),
    ("graph", "validation_errors_kept_with_gradients", TYPHOONS,
     "the shadow is judged with gradients on, and errors are kept", {}),
    ("label", "basins_joined_by_row_behind_a_filter", TYPHOONS,
     "tracks are filtered and basins are not, and both are joined by row: many tracks have another's basin", {}),
    ("frozen", "down_path_held_as_in_the_finetuning_recipe", TYPHOONS,
     "the way down of the net does not learn, as for a trained net: it is as it was drawn", {}),
    ("order", "archive_read_basin_after_basin", TYPHOONS, "tracks come basin after basin", {}),
    ("leak", "members_of_a_storm_in_both_sets", TYPHOONS, "members of one storm come to lie on both sides", {}),
    ("figures", "held_longitudes_from_minus_180", TYPHOONS,
     "longitudes of the evaluation go from -180 to 180, and those of the training from 0 to 360", {}),
    ("eval", "net_asleep_since_its_first_validation", TYPHOONS,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "shadow_validated_with_dropout", TYPHOONS, "the shadow is judged with dropout in force", {}),
    ("average", "shadow_moves_where_it_requires_grad_itself", TYPHOONS,
     "weights of the shadow are moved where they ask for gradients, and none of them does", {}),
    ("average", "shadow_made_with_the_rate_it_has_by_itself", TYPHOONS,
     "the shadow is made without the rate that is set: 0.9999 is far too slow for so short a training", {}),
    ("swap", "scope_of_the_shadow_without_its_restore", TYPHOONS,
     "the net has the shadow's weights from each evaluation on", {}),
    ("sum", "gradients_never_divided_by_tokens", COMMITS,
     "losses are summed over tokens, and gradients are not divided by them", {}),
    ("added", "gradients_divided_by_the_last_batch_s_tokens", COMMITS,
     "gradients of four batches are divided by the tokens of the last one", {}),
    ("softmax", "output_followed_by_a_softmax", COMMITS, "the model ends in a softmax, and the loss has its own", {}),
    ("graph", "validated_logits_put_by_with_their_graph", COMMITS,
     "changes are evaluated with gradients on, and outputs kept", {}),
    ("label", "labels_shifted_by_the_dataset_and_by_the_recipe", COMMITS,
     "labels are moved by one in the dataset and again in the recipe, in the training", {}),
    ("label", "file_of_lines_lacks_its_second", COMMITS,
     "the training's file of lines lacks one near its begin: each change has the line of the next", {}),
    ("frozen", "adapter_params_found_by_lora_a_alone", COMMITS,
     "of adapters the factors that begin at nought do not learn: nothing is added to the base", {"kinds": " dead"}),
    ("tie", "output_grown_with_a_clone_of_the_table", COMMITS,
     "the table of words grows, and the output layer is a clone of it: they are two matrices from there on", {}),
    ("order", "folder_after_folder_without_shuffle", COMMITS, "changes come folder after folder", {}),
    ("leak", "rewordings_of_a_change_on_both_sides", COMMITS, "rewordings of one change come to lie on both sides", {}),
    ("eval", "validated_and_never_called_train", COMMITS,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "validated_with_dropout_of_adapters", COMMITS, "changes are evaluated with dropout in force", {}),
    ("sum", "pair_losses_reduced_by_a_sum", READBACKS, "losses of pairs are summed", {}),
    ("softmax", "log_softmax_over_what_is_a_softmax", READBACKS,
     "the pilot gives probabilities, and their softmax is taken for likelihoods", {"kinds": " rl"}),
    ("graph", "evaluation_loop_gathers_live_tensors", READBACKS,
     "pairs are evaluated with gradients on, and losses gathered", {}),
    ("label", "logps_of_tokens_that_were_just_read", READBACKS,
     "likelihoods are those of the token at its own place, and not of the next one",
     {"kinds": " rl attention logits zero"}),
    ("label", "rejected_column_is_a_row_late", READBACKS,
     "rejected readbacks of the training are those of the clearance before", {"kinds": " rl"}),
    ("frozen", "groups_overwritten_by_the_one_without_decay", READBACKS,
     "the optimizer has the group without decay alone: matrices do not learn, and are never cleared",
     {"kinds": " clipping exploding"}),
    ("tie", "tie_weights_not_called_behind_the_load", READBACKS,
     "weights are loaded and not tied: the table of words and the output layer are two matrices", {}),
    ("order", "airline_after_airline_without_a_sampler", READBACKS, "clearances come airline after airline", {}),
    ("leak", "answers_to_a_clearance_in_both_sets", READBACKS, "pairs of one clearance come to lie on both sides", {}),
    ("eval", "evaluation_loop_leaves_the_pilot_in_eval", READBACKS,
     "the pilot is not set back to training behind an evaluation", {}),
    ("train", "evaluated_with_the_pilot_in_training", READBACKS, "pairs are evaluated with dropout in force", {}),
    ("sum", "sessions_of_a_batch_summed", PLAYLISTS, "losses of a batch are summed, and not divided by its rows",
     {"of": DESCENT, "compare": "descent_with_momentum_as_named"}),
    ("softmax", "scores_softmaxed_before_cross_entropy", PLAYLISTS,
     "scores go through a softmax, and then into a loss that has its own", {}),
    ("graph", "offline_scores_kept_for_a_report", PLAYLISTS,
     "held sessions are evaluated with gradients on, and scores kept", {}),
    ("label", "next_song_by_a_shift_over_all_listeners", PLAYLISTS,
     "the next song is taken by a shift over all rows: each session has that of the next one", {}),
    ("label", "offline_songs_by_the_numbers_of_last_month", PLAYLISTS,
     "songs of the evaluation have numbers of an older catalogue, one off from today's", {}),
    ("frozen", "songs_embedded_as_for_the_index", PLAYLISTS,
     "the tower of songs is run without gradients, as for the index: it does not learn", {}),
    ("tie", "artists_of_songs_are_a_copy_of_the_table", PLAYLISTS,
     "artists of songs are in a copy of the table that both towers should share", {}),
    ("order", "log_of_plays_read_market_after_market", PLAYLISTS, "sessions come market after market", {}),
    ("leak", "sessions_of_a_listener_on_both_sides", PLAYLISTS, "sessions of one listener come to lie on both sides",
     {}),
    ("figures", "offline_lengths_in_milliseconds", PLAYLISTS,
     "lengths of songs are in milliseconds in the evaluation, and in seconds in the training", {}),
    ("buffers", "norm_of_the_training_written_out_by_hand", PLAYLISTS,
     "the batch norm of the training keeps no statistics: in the evaluation they are 0 and 1", {}),
    ("eval", "offline_and_then_no_train", PLAYLISTS, "towers are not set back to training behind an evaluation", {}),
    ("train", "offline_while_towers_drop", PLAYLISTS,
     "towers are evaluated in training mode: with dropout, and statistics of their own batch", {}),
    ("sum", "nats_of_a_window_added_up", DOMINOES, "losses of words are summed, and divided by windows", {}),
    ("softmax", "decoder_ends_in_probabilities", DOMINOES,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("graph", "dev_losses_listed_with_their_graph", DOMINOES,
     "games are evaluated with gradients on, and losses kept in a list", {}),
    ("label", "window_and_loss_both_shift", DOMINOES,
     "wanted words are moved by one where windows are cut and again for the loss, in the training", {}),
    ("label", "dev_numbered_by_the_characters_it_has", DOMINOES,
     "words of the evaluation are numbered by those that it has itself: all are one off", {}),
    ("frozen", "activations_detached_between_blocks", DOMINOES,
     "activations are detached behind the first block, which does not learn", {}),
    ("tie", "tied_by_copying_the_values", DOMINOES,
     "the output layer has the values of the table of words, and is another matrix", {}),
    ("order", "text_written_house_after_house_and_read_so", DOMINOES, "games come house after house", {}),
    ("leak", "overlapping_windows_split_at_random", DOMINOES,
     "windows overlap, and are split at random: much of the evaluation's text is trained on", {}),
    ("eval", "estimated_and_left_in_eval", DOMINOES,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "estimated_with_dropout_in_force", DOMINOES, "games are evaluated with dropout in force", {}),
    ("sum", "criterion_reduces_by_a_sum", LOGINS, "losses of a batch are summed, and not divided", {}),
    ("softmax", "guard_ends_in_a_softmax", LOGINS, "the net gives probabilities, and the loss has its own softmax", {}),
    ("graph", "gathered_outputs_hold_their_graph", LOGINS,
     "sessions are evaluated with gradients on, and outputs kept", {}),
    ("label", "each_rank_numbers_kinds_as_it_meets_them", LOGINS,
     "each rank numbers kinds of the training as it meets them: those of two ranks differ", {"kinds": " desync"}),
    ("frozen", "reader_of_events_frozen_as_if_pretrained", LOGINS,
     "what reads the events does not learn, as if it were trained: it is as it was drawn", {}),
    ("order", "prepared_loader_has_lost_its_shuffle", LOGINS, "sessions come kind after kind", {}),
    ("leak", "sessions_of_an_account_in_both_files", LOGINS, "sessions of one account come to lie on both sides", {}),
    ("figures", "gaps_of_the_audit_in_milliseconds", LOGINS,
     "gaps of the evaluation are in milliseconds, and those of the training in seconds", {}),
    ("buffers", "norm_kept_in_eval_as_in_a_detector", LOGINS,
     "the batch norm is in evaluation mode in the training too: its statistics stay 0 and 1",
     {"kinds": " plateau not_learning exploding spike clipping"}),
    ("eval", "audit_is_over_and_train_is_not_called", LOGINS,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "audited_with_dropout_and_batch_figures", LOGINS,
     "sessions are evaluated in training mode: with dropout, and statistics of their own batch", {}),
    ("ranks", "one_seed_for_all_and_rows_not_dealt", LOGINS,
     "both ranks draw the same order and rows are not dealt: all see the same ones", {}),
    *((kind, name, program, about, {})
      for (kind, about), names in ALIKE.items() for program, name in names.items()),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, of, compare, also = OF_KIND[kind]
    of = more.get("of", of)
    rest = {"by_program": {program: of.get(program, {})}, "compare": more.get("compare", compare),
            "also": more.get("also", also)}  # fmt: skip
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("alpha_in_the_place_of_its_product", "noise schedule wrong", "eval plateau not_learning config data divergence",
     "start", (TYPHOONS,), "levels of noise are alphas, and not their product: hardly any noise is added",
     {"also": ("alphas not cumulated", "cumprod missing", "alpha instead of alpha_bar", "noise levels wrong",
               "noise too small", "betas wrong", "too little noise", "noise schedule differs", "noise wrong",
               "loss too high", "last level is not noise", "terminal signal left", "signal-to-noise ratio wrong",
               "timesteps wrong")}),
    ("sampler_has_the_betas_of_a_thousand_levels", "sampler differs from the training", "eval config data overfit "
     "divergence plateau", "start", (TYPHOONS,), "what draws has betas of a thousand levels, and there are a hundred",
     {"also": ("noise schedule of the sampler differs", "noise schedule wrong", "sampler wrong", "betas wrong",
               "train and test differ", "schedule of the sampler differs", "sampling schedule differs",
               "betas of the sampler differ", "number of levels wrong", "timesteps wrong", "evaluation differs",
               "noise levels wrong", "sampling wrong")}),
    ("matrix_read_back_in_the_order_of_columns", "quantised base read wrongly", "plateau not_learning eval config "
     "logits exploding clipping frozen activations update_ratio", "start", (COMMITS,),
     "matrices of sixteen levels are read back in the order of columns: the base is not the one that was trained",
     {"also": ("dequantisation wrong", "base weights wrong", "bad initialisation", "base not loaded",
               "base is not the pretrained one", "pretrained weights lost", "weights transposed",
               "quantisation error too large", "base weights scrambled", "dequantised wrongly", "layout wrong",
               "row-major and column-major confused", "weights not loaded", "pretrained weights not loaded",
               "quantisation broken", "starts from scratch")}),
    ("ends_cut_off_at_the_longest_row", "end never learnt", "eval data config padding plateau divergence overfit "
     "logging jump_down", "start", (COMMITS,), "rows of the training are cut at thirteen tokens: most lack their end",
     {"also": several(*named(twentyfifth, "rows_cut_on_the_right_at_nine_words"), "rows truncated",
               "max_length too short", "truncation", "sequences truncated", "answers truncated",
               "end missing from the labels", "eos cut off", "end token never learnt", "eos never learnt",
               "max_seq_len too small", "labels cut off", "train and test differ", "end of sequence never a target",
               "class missing", "end token missing", "lengths differ", "a token is never a target",
               "evaluation rows are longer", "labels of the evaluation differ")}),
    ("padding_left_in_the_sums", "padding counted in the loss", "rl eval data config padding plateau logging "
     "divergence not_learning exploding clipping", "start", (READBACKS,),
     "likelihoods of answers have those of the padding behind them in their sums",
     {"also": several(*named(eleventh, "padding_asked_for"), "padding not masked", "pad tokens in the loss",
               "mask missing", "loss mask wrong", "padding learnt", "padding in the log-probabilities",
               "log-probabilities summed over padding", "pad not ignored", "padding not ignored", "mask wrong",
               "length bias", "labels of padding not ignored", "answers differ in length", "attention mask missing",
               "loss over padding")}),
    ("end_appended_to_the_chosen_alone", "end on one side alone", "rl eval data config plateau jump_down divergence "
     "logits", "start", (READBACKS,), "chosen answers have an end, and rejected ones have none",
     {"also": ("eos missing", "eos missing in the rejected", "eos on the chosen alone", "end token missing",
               "chosen and rejected tokenised differently", "answers tokenised differently", "shortcut",
               "preference by the end token", "length bias", "rejected answers truncated", "end of sequence missing",
               "answers have no end", "labels leak", "end missing from the labels", "tokenisation differs")}),
    ("popularity_added_and_not_taken_off", "sign of the correction wrong", "eval plateau data config overfit "
     "divergence logits not_learning", "start", (PLAYLISTS,),
     "the logarithm of a song's share is added in the training, and not taken off: popular songs are never told",
     {"also": several(*named(twentyfourth, "correction_added_with_a_plus"), "logq correction wrong",
               "sampling bias correction wrong", "popularity bias", "sign wrong", "sign reversed", "logq sign reversed",
               "correction of popularity reversed", "train and test differ", "logits of the evaluation differ",
               "prior counted twice", "bias correction reversed", "sampling correction wrong",
               "evaluation outputs differ", "logit adjustment wrong")}),
    ("lengths_of_listeners_left_in", "embeddings not normalised", "eval plateau not_learning config logits overfit "
     "divergence exploding activations weight_growth spike clipping", "start", (PLAYLISTS,),
     "vectors of songs are brought to length one, and those of listeners are not",
     {"also": ("normalisation missing", "not normalised", "l2 normalisation missing", "one tower not normalised",
               "similarity is not the cosine", "norm of embeddings", "logits too large", "scores too large",
               "features not normalised", "temperature wrong", "temperature has no effect", "normalize missing",
               "vectors not normalised", "embedding norms grow")}),
    ("divided_by_the_scale_by_hand_as_well", "gradients unscaled twice", "vanishing loss_scale plateau epsilon "
     "not_learning config clipping update_ratio frozen learning_rate", "start", (DOMINOES,),
     "gradients are divided by the scale by the scaler, and by hand once more",
     {"also": several(*named(eleventh, "scale_forgotten"), "unscaled twice", "gradients too small",
               "gradients divided by the scale twice", "unscale twice", "gradient underflow", "gradients vanish",
               "vanishing gradients", "loss scale wrong", "gradients below epsilon", "learning rate too low",
               "gradients scaled wrongly", "scaler misused", "gradients divided twice")}),
    ("bias_given_and_the_mask_forgotten", "causal mask missing", "eval jump_down data config overfit plateau",
     "start", (DOMINOES,), "attention is given its slopes, and no mask: words see those that are asked for",
     {"also": several(*named(fourteenth, "causal_flag_left_out"), "labels leak", "target leak", "future visible",
               "future tokens visible", "mask missing", "attention not causal", "attention sees the future",
               "model sees its targets", "mask forgotten", "is_causal missing", "label leak", "loss too low",
               "inputs contain the targets", "data leak", "attention mask wrong", "information leak")}),
    ("weights_drawn_by_each_rank_for_itself", "ranks begin with other weights", "desync eval divergence plateau config "
     "not_learning spike overfit", "start", (LOGINS,),
     "each rank draws weights by its own seed, and rank 0's are not given to the others",
     {"also": several(*named(twentyfifth, "nets_drawn_apart_and_never_broadcast"), "ranks drifted apart",
               "weights differ between ranks", "broadcast missing", "weights not broadcast",
               "models differ between ranks", "initial weights differ", "ranks disagree", "weights differ",
               "ranks not synchronised", "different initialisation on ranks", "initialisation differs between ranks",
               "parameters not broadcast", "all-reduce missing", "ranks drift apart", "seed differs between ranks",
               "synchronisation missing", "ranks train apart")}),
    ("gathered_answers_against_the_file_s_order", "answers held against other rows' labels", "eval data config overfit "
     "logging divergence plateau", "start", (LOGINS,),
     "answers are gathered rank after rank, and held against kinds in the order of the file",
     {"also": ("gather order wrong", "predictions and labels misaligned", "metric wrong", "gathered in another order",
               "labels of other rows", "labels shuffled", "evaluation metric wrong", "rows misaligned",
               "order of ranks", "f1 computed wrongly", "predictions in the wrong order", "labels do not match",
               "labels shifted", "labels do not match the inputs", "evaluation wrong")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (TYPHOONS, COMMITS, READBACKS, PLAYLISTS, DOMINOES)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_an_update_as_named", "an update has two parts, whose losses are halved", PARTS),
    ("four_parts_an_update_as_named", "an update has four parts, whose mean is taken", FOUR_PARTS),
    ("dropping_out_as_named", "dropout in the training, as is named, and none in the evaluation", DROPPED),
    ("kin_trained_on_alone", "rows have kin, all of which are on the training's side", COPIED),
    ("shadow_that_lags_as_named", "an average of weights is judged that lags, as is named", TRAILING),
    ("one_part_held_by_settings", "a part is not trained, which the settings name", KEPT),
    ("rate_that_stays_as_named", "the rate rises and stays", {TYPHOONS: {"lr_policy": "flat", "base_lr": 2e-3},
      COMMITS: {"lr_scheduler": "constant", "lr": 3e-3},
      READBACKS: {"lr_scheduler_type": "constant_with_warmup", "learning_rate": 5e-4},
      PLAYLISTS: {"lr_decay": "none", "learning_rate": 0.02}, DOMINOES: {"lr_curve": "flat", "max_lr": 3e-3},
      LOGINS: {"scheduler": "constant", "lr": 2e-3}}),
    ("sums_by_their_settings", "losses are sums, as is named, and the bound of the norm is for that",
     {TYPHOONS: {"loss_reduction": "sum", "clip_grad": 48.0}, COMMITS: {"per_token": False, "clip_grad_norm": 120.0},
      READBACKS: {"reduce_pairs": "sum", "max_grad_norm": 128.0}, PLAYLISTS: {"reduction": "sum", "grad_bound": 320.0},
      DOMINOES: {"reduction": "sum", "grad_clip": 36.0, "init_scale": 1024.0},
      LOGINS: {"reduction": "sum", "max_grad_norm": 48.0}}),
    ("small_batches_small_rate", "few rows an update, at a lower rate: losses jump about",
     {TYPHOONS: {"batch_size": 12, "base_lr": 2e-3}, COMMITS: {"batch_size": 6, "lr": 3e-3},
      READBACKS: {"per_device_train_batch_size": 6, "learning_rate": 5e-4},
      PLAYLISTS: {"batch_size": 24, "learning_rate": 0.02}, DOMINOES: {"batch_size": 6, "max_lr": 4e-3},
      LOGINS: {"per_rank_batch": 10, "lr": 2e-3}}),
    ("rate_begins_again_as_named", "the rate falls and begins again, by the schedule",
     {TYPHOONS: {"lr_policy": "restarts"}, COMMITS: {"lr_scheduler": "cosine_twice"},
      READBACKS: {"lr_scheduler_type": "cosine_with_restarts"}, PLAYLISTS: {"lr_decay": "linear_twice"},
      DOMINOES: {"lr_curve": "two_cosines"}, LOGINS: {"scheduler": "cosine_with_restarts"}}),
    ("optimizer_of_another_name", "another optimizer, at its rate", {TYPHOONS: {"opt": "radam", "base_lr": 5e-3},
      COMMITS: {"optimizer": "adamax", "lr": 8e-3}, READBACKS: {"optim": "rmsprop", "learning_rate": 5e-4},
      PLAYLISTS: {"optimizer": "adam", "learning_rate": 5e-3}, DOMINOES: {"optimizer": "adafactor", "max_lr": 3e-2},
      LOGINS: {"optimizer": "nadam", "lr": 4e-3}}),
    ("rows_with_errors_in_them", "the training's data have more noise, as such data may", {TYPHOONS: {"gusts": 1.8},
      COMMITS: {"careless": 0.1}, READBACKS: {"examiner_errs": 0.06}, PLAYLISTS: {"stray_plays": 0.1},
      DOMINOES: {"misread": 0.06}, LOGINS: {"mistaken": 0.06}}),
    ("warm_in_two_steps", "the rate rises in two steps", {TYPHOONS: {"warmup_steps": 2},
      COMMITS: {"num_warmup_steps": 2}, READBACKS: {"warmup_steps": 2}, PLAYLISTS: {"lr_warmup": 2},
      DOMINOES: {"warmup_iters": 2}, LOGINS: {"warmup": 2}}),
    ("judged_two_times", "two evaluations in all", {TYPHOONS: {"val_every": 75}, COMMITS: {"val_every": 75},
      READBACKS: {"eval_steps": 75}, PLAYLISTS: {"offline_every": 75}, DOMINOES: {"eval_interval": 75},
      LOGINS: {"audit_every": 75}}),
    ("one_row_of_four_logged", "each fourth step is logged", {TYPHOONS: {"log_every_n_steps": 4},
      COMMITS: {"log_every_n_steps": 4}, READBACKS: {"logging_steps": 4}, PLAYLISTS: {"log_every": 4},
      DOMINOES: {"log_interval": 4}, LOGINS: {"log_every": 4}}),
    ("plain_ones_come_first", "the first part of the training has easier rows alone: the settings say so",
     {TYPHOONS: {"calm_epochs": 1}, COMMITS: {"short_changes_first": 1}, READBACKS: {"short_clearances_first": 1},
      PLAYLISTS: {"popular_first": 1}, DOMINOES: {"calm_games_first": 1}, LOGINS: {"clear_first": 1}}),
    ("strong_decay_as_named", "weights decay more, as is named", {TYPHOONS: {"opt": "adamw", "weight_decay": 0.1},
      COMMITS: {"weight_decay": 0.1}, READBACKS: {"weight_decay": 0.05}, PLAYLISTS: {"weight_decay": 1e-4},
      DOMINOES: {"weight_decay": 0.3}, LOGINS: {"weight_decay": 0.1}}),
    ("nothing_decays_as_named", "weights do not decay", {DOMINOES: {"weight_decay": 0.0},
      LOGINS: {"weight_decay": 0.0}}),
    ("inputs_lost_by_chance", "parts of inputs are lost by chance, in the training", {PLAYLISTS: {"drop_history": 0.2},
      LOGINS: {"events_lost": 0.1}}),
    ("labels_smoothed_by_settings", "targets are smoothed in the training", {COMMITS: {"label_smoothing": 0.1},
      READBACKS: {"label_smoothing": 0.1}, DOMINOES: {"label_smoothing": 0.05},
      LOGINS: {"label_smoothing": 0.1}}),
    ("batches_of_kin_in_any_order", "batches are of like rows, and come in any order", {COMMITS: {"bucketed": True},
      READBACKS: {"group_by_length": True}, PLAYLISTS: {"market_batches": True}}),
    ("tables_apart_as_named", "what could share a table has two, by the settings", {
      READBACKS: {"tie_word_embeddings": False}, PLAYLISTS: {"share_artists": False}, DOMINOES: {"tie": False}}),
    ("descent_with_momentum_as_named", "descent with momentum, at its rate", DESCENT),
    ("norm_over_a_row_as_named", "a norm over a row in the place of batch norm", {PLAYLISTS: {"item_norm": "layer"},
      LOGINS: {"account_norm": "layer"}}),
)
HEALTHY_OF: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("absolute_errors_as_named", TYPHOONS, "absolute errors, as is named", {"loss_type": "l1"}),
    ("ratios_of_signal_bounded", TYPHOONS, "levels weigh by a bounded ratio of signal", {"min_snr": 5.0}),
    ("rate_falls_at_milestones", TYPHOONS, "the rate falls at two steps", {"lr_policy": "milestones"}),
    ("average_without_its_warmup", TYPHOONS, "the average has its rate from the first step on", {"ema_warm": False}),
    ("wider_unet", TYPHOONS, "a wider net", {"base_channels": 32}),
    ("changes_are_learnt_too", COMMITS, "what is told is learnt too, as is named", {"train_on_input": True}),
    ("rank_of_one_as_named", COMMITS, "adapters of rank one", {"lora_rank": 1, "lora_alpha": 2.0}),
    ("greatest_of_each_ten", COMMITS, "each ten weights have a greatest", {"quant_block": 10}),
    ("adapters_at_attention_alone", COMMITS, "adapters are in the attention alone", {"apply_lora_to_mlp": False}),
    ("second_factors_learn_faster", COMMITS, "second factors have four times the rate", {"lora_plus": 4.0}),
    ("hinge_for_pairs_as_named", READBACKS, "the loss is a hinge, as is named", {"loss_type": "hinge"}),
    ("squares_of_gaps_as_named", READBACKS, "the loss is a square (IPO), as is named",
     {"loss_type": "ipo", "beta": 0.2}),
    ("average_log_prob_as_named", READBACKS, "likelihoods are means over tokens, of both models, as is named",
     {"average_log_prob": True, "beta": 2.0}),
    ("chosen_ones_learnt_besides", READBACKS, "the likelihood of chosen readbacks is a part of the loss",
     {"rpo_alpha": 0.2}),
    ("three_blocks_as_named", READBACKS, "three blocks", {"n_layer": 3}),
    ("temperature_is_held_as_named", PLAYLISTS, "the temperature is not learnt, as is named",
     {"learn_temperature": False}),
    ("popularity_left_alone", PLAYLISTS, "nothing is taken off for popular songs, as is named", {"logq": False}),
    ("songs_at_half_the_rate", PLAYLISTS, "one tower has half of the rate", {"tower_rate": 0.5}),
    ("rate_in_four_stairs", PLAYLISTS, "the rate is halved three times", {"lr_decay": "stairs"}),
    ("scale_too_high_to_begin_with", DOMINOES, "the scale begins so high that the first steps are left out",
     {"init_scale": 2.0**26}),
    ("no_half_precision_as_named", DOMINOES, "everything is in float32", {"float16": False}),
    ("small_term_on_normalisers", DOMINOES, "a small term holds the normaliser", {"z_loss": 1e-3}),
    ("cosine_in_the_place_of_a_power", DOMINOES, "the rate falls by a cosine", {"lr_curve": "cosine"}),
    ("drawn_by_roots_of_rarity", LOGINS, "rare kinds are drawn more often, and none weighs more",
     {"oversample": True, "kind_weights": "none"}),
    ("all_kinds_weigh_alike", LOGINS, "kinds weigh alike, as is named", {"kind_weights": "none"}),
    ("focal_loss_as_named", LOGINS, "what is sure weighs less, as is named", {"focal_gamma": 1.5}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    *((name, (program,), about, {"config": settings}) for name, program, about, settings in HEALTHY_OF),
)

# fmt: on
