"""The thirty-second half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the thirty-first half: days of wind that flow out of noise along velocities, with an
average that has its own copy of the net; adapters on a base of eight bits that learns another shorthand; preferences of
families against a reference of a mason; two towers for stamps and lines of a catalogue under an engine of events; a
language model in float16 with a scaler over peals of bells; rare faults of bearings on two workers, sharded; each as
another ordinary engineer writes it. Most faults are of the fifteen kinds that the fourteenth half has; those in
`REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did not look at what
the doctor says. Names and kinds are taken over from the thirty-first half, and every kind that would be right is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, fourteenth, ninth, sixteenth, sixth, twentyeighth, twentyfifth, twentyfourth
from halves import thirtyfirst as before
from halves.ninth import Row, Settings
from halves.thirtieth import named
from halves.twentysixth import several

PROGRAMS = ("gusts", "shorthands", "epitaphs", "stamps", "peals", "bearings")
GUSTS, SHORTHANDS, EPITAPHS, STAMPS, PEALS, BEARINGS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "drawing_steps_against_the_velocity", "days_clamped_as_pixels_are",
    "adapters_merged_to_evaluate_and_left_on", "prompts_counted_with_a_mark_that_is_not_there",
    "reference_synchronised_where_proofs_are_read", "reference_sums_where_the_mason_averages",
    "vectors_normalised_along_the_batch", "lines_cut_at_four_words",
    "norm_bounded_before_it_is_unscaled", "places_ahead_filled_with_nought",
    "held_losses_added_over_ranks", "rare_windows_copied_before_the_file_is_split",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    GUSTS: {"batch": 16, "accumulate": 2}, SHORTHANDS: {"bsz": 8, "accum": 2}, EPITAPHS: {"pairs": 8, "grad_parts": 2},
    STAMPS: {"per_batch": 32, "batches_per_update": 2}, PEALS: {"peals_a_step": 10, "micro": 2},
    BEARINGS: {"windows_per_rank": 16, "parts": 2},
}
FOUR_PARTS: Settings = {
    GUSTS: {"batch": 8, "accumulate": 4, "algorithm": "sgd", "lr": 0.12, "clip": 10.0},
    SHORTHANDS: {"bsz": 4, "accum": 4, "optim": "sgd", "lr_max": 0.06, "gn_max": 100.0},
    EPITAPHS: {"pairs": 4, "grad_parts": 4, "optim": "sgd", "peak": 0.03, "gnorm_max": 100.0},
    STAMPS: {"per_batch": 24, "batches_per_update": 4, "method": "sgd", "rate": 0.15, "gn_limit": 100.0},
    PEALS: {"peals_a_step": 5, "micro": 4},
    BEARINGS: {"windows_per_rank": 8, "parts": 4, "algorithm": "sgd", "base_lr": 0.1, "max_gn": 100.0},
}
DROPPED: Settings = {
    GUSTS: {"dropout": 0.3}, SHORTHANDS: {"lora_dropout": 0.3}, EPITAPHS: {"drop": 0.2}, STAMPS: {"dropout": 0.3},
    PEALS: {"dropout": 0.2}, BEARINGS: {"dropout": 0.4},
}
COPIED: Settings = {
    GUSTS: {"masts": 24, "days": 600}, SHORTHANDS: {"entries": 9, "words": 900}, EPITAPHS: {"carvings": 5},
    STAMPS: {"prints": 8, "album": 1600}, PEALS: {"rehearsals": 8}, BEARINGS: {"per_machine": 5},
}
TRAILING: Settings = {
    GUSTS: {"ema_decay": 0.975},
}
HELD_STILL: Settings = {
    GUSTS: {"fixed": "floors.0"}, SHORTHANDS: {"keep": "blocks.0"}, EPITAPHS: {"untrained": "blocks.0"},
    STAMPS: {"still": "line_net"}, PEALS: {"held_layers": "wpe"}, BEARINGS: {"hold": "enter"},
}
MEANS: Settings = {
    EPITAPHS: {"mean_logps": True, "kl_beta": 1.5},
}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = several(*before.SUMMED, "loss summed over days", "loss summed over pairs", "loss summed over windows")
SHIFTED = several(*before.SHIFTED, "conditions off by one", "class ids off by one", "shifted in the wrong direction",
                  "tokens asked for that were read", "label encoders differ", "ranks number classes differently",
                  "captions misaligned", "labels differ between ranks", "lookup off by one")
FROZEN = several(*before.FROZEN, "optimizer made before fully_shard", "optimizer made before the model was wrapped",
                 "optimizer holds stale parameters", "frozen by a substring", "frozen by a prefix", "gates frozen",
                 "parameters replaced after the optimizer was made", "lora_b frozen", "adapters have no effect",
                 "model copied after the optimizer was made", "optimizer made too early", "embedding not trained",
                 "vocabulary resized after the optimizer was made", "nothing is trained", "backbone frozen at random")
TIE = several(*before.TIE, "head not retied", "resize_token_embeddings without tying", "lm_head not trained",
              "head frozen", "tables not shared", "deepcopy broke the tie")
SORTED = several(*before.SORTED, "site after site", "trade after trade", "method after method", "motif after motif",
                 "condition after condition", "alphabetical order")
LEAK = several(*before.LEAK, "masts of a field on both sides", "prints on both sides", "windows on both sides",
               "rehearsals on both sides", "entries on both sides", "windows of a machine on both sides")
FIGURES = several(*before.FIGURES, "normalised twice", "divided by 255 in the evaluation alone", "pixel range differs",
                  "newtons and kilonewtons confused", "ToTensor missing", "scaled twice")
BUFFERS = several(*before.BUFFERS, "buffers of the average not updated", "average has stale buffers",
                  "use_buffers missing", "batch norm frozen", "batch norm in evaluation mode", "norm layers in eval",
                  "momentum of batch norm too small", "statistics never updated", "update_bn missing")
AVERAGE = several(*before.AVERAGE, "average updated at evaluations alone")
FRESH = several(*AVERAGE, *named(fourteenth, "ema_made_before_load"), *named(sixteenth, "ema_of_fresh_net_at_resume"),
                "average lost at the resume", "ema not restored", "ema not loaded", "ema begins anew",
                "average of random weights", "ema not in the checkpoint", "average made anew", "resume incomplete")
UNSAVED = several(*twentyeighth.ANEW, "checkpoint incomplete", "weights missing in the checkpoint",
                  "embeddings not saved", "modules_to_save missing", "table not restored", "adapter alone saved",
                  "resume incomplete", "trained weights lost", "state lost at the resume", "embedding lost",
                  "weights not loaded", "strict=False hides missing keys", "keys have a prefix", "_orig_mod prefix",
                  "checkpoint not loaded", "no weights loaded", "training begins anew", "keys do not match",
                  "bad initialisation")

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

OF_KIND: Mapping[str, tuple[str, str, str, Settings, str, tuple[str, ...]]] = {
    "sum": ("loss summed", ninth.OF_SUMS, "start", {}, "plain", SUMMED),
    "graph": ("no_grad missing", "memory eval data config", "start", {}, "memory_steady", before.GRAPHS),
    "softmax": ("softmax twice", ninth.OF_SOFTMAX, "start", {}, "plain", before.TWICE),
    "label": ("labels shifted", ninth.OF_LABELS, "start", {}, "plain", SHIFTED),
    "frozen": ("layer frozen", ninth.OF_FROZEN, "start", {}, "plain", FROZEN),
    "tie": ("weight tying broken", ninth.OF_TIE, "start", {}, "plain", TIE),
    "order": ("data sorted", ninth.OF_ORDER, "start", {}, "plain", SORTED),
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "kin_that_all_stay_in_the_training", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS,
              "two_parts_an_update_by_the_settings", twentyeighth.STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS,
              "four_parts_an_update_by_the_settings", twentyeighth.ADDED),
    "cleared": (*before.OF_KIND["cleared"][:3], FOUR_PARTS, "four_parts_an_update_by_the_settings",
                (*before.CLEARED, "zero_grad within the accumulation")),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "units_drop_by_the_settings",
             twentyeighth.IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "units_drop_by_the_settings",
              twentyeighth.IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING,
             "average_far_behind_by_the_settings", several(*twentyeighth.NOT_BACK, "restore missing", "net overwritten",
             "own weights not put back", "average loaded into the net")),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain",
               (*twentyeighth.ANEW, "averaged weights lost")),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "lost": ("normalisation statistics lost", ninth.OF_STATISTICS + " resume", "resume", {}, "plain",
             (*BUFFERS, "state lost at the resume")),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", twentyeighth.SAME),
}
ALIKE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("steps", "the schedule goes on with each part of an update"): {
        GUSTS: "rule_goes_on_in_the_loop_over_parts", SHORTHANDS: "scheduler_called_in_training_step",
        EPITAPHS: "scheduler_moved_by_each_part", STAMPS: "plan_hangs_on_the_wrong_event",
        PEALS: "schedule_moved_inside_of_the_micro_loop", BEARINGS: "schedule_hook_runs_behind_each_part",
    },
    ("added", "losses of parts are not divided by their number"): {
        GUSTS: "backward_of_each_part_as_it_is", SHORTHANDS: "training_step_sends_back_the_whole_loss",
        EPITAPHS: "loss_of_a_part_goes_back_undivided", STAMPS: "loss_of_a_batch_is_not_shared_out",
        BEARINGS: "parts_go_back_as_if_each_were_all",
    },
    ("resume", "weights are loaded; the optimizer and the schedule begin anew"): {
        GUSTS: "average_copied_from_the_net_before_it_is_loaded", EPITAPHS: "trainer_begun_with_the_last_mason",
    },
    ("order", "rows come in the order of the file, kind after kind"): {
        GUSTS: "file_of_sites_read_from_first_to_last", SHORTHANDS: "dictionary_read_from_a_to_z",
        EPITAPHS: "stones_come_from_the_first_trade_on", STAMPS: "album_leafed_through_from_its_first_page",
        PEALS: "book_of_methods_read_page_by_page", BEARINGS: "order_of_the_file_dealt_to_the_ranks",
    },
    ("leak", "rows of one origin come to lie on both sides"): {
        GUSTS: "masts_of_a_field_on_both_sides", SHORTHANDS: "entries_of_a_word_in_both_dictionaries",
        EPITAPHS: "carvings_of_a_pair_in_both_parts", STAMPS: "prints_of_a_stamp_in_both_albums",
        PEALS: "rehearsals_of_a_composition_in_both_books", BEARINGS: "windows_of_a_machine_in_both_shops",
    },
    ("eval", "the model is not set back to training behind an evaluation"): {
        GUSTS: "judged_and_train_never_called", SHORTHANDS: "evaluate_ends_without_model_train",
        EPITAPHS: "proofread_and_left_in_eval", STAMPS: "towers_left_as_they_were_looked_up",
        PEALS: "estimated_and_never_set_to_train", BEARINGS: "inspected_and_the_hook_of_training_forgotten",
    },
    ("train", "the model is evaluated in training mode, with dropout"): {
        GUSTS: "judged_while_it_is_in_training", SHORTHANDS: "evaluate_with_adapters_that_drop",
        EPITAPHS: "proofread_while_units_drop", STAMPS: "album_looked_up_with_towers_in_training",
        PEALS: "estimated_with_units_falling_out", BEARINGS: "inspected_while_the_head_drops",
    },
    ("graph", "evaluations run with gradients on, and what they say is kept"): {
        GUSTS: "held_losses_kept_while_gradients_are_on", SHORTHANDS: "outputs_of_evaluate_gathered_on_the_tape",
        EPITAPHS: "proofs_shown_with_what_led_to_them", STAMPS: "tables_of_the_album_put_on_a_shelf",
        PEALS: "estimates_kept_with_the_graphs_behind_them", BEARINGS: "inspected_logits_lie_in_a_drawer",
    },
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "errors_of_days_are_summed", GUSTS,
     "squared errors are summed over the days of a batch", {}),
    ("label", "sites_of_the_training_counted_from_one", GUSTS,
     "sites of the training are one too high, and the last one is the number of no site", {}),
    ("frozen", "gates_hold_still_with_what_has_told_in_its_name", GUSTS,
     "what has a word in its name is frozen, and the gates have it: they stay shut", {"kinds": " dead"}),
    ("figures", "held_days_standardised_by_their_file_and_again", GUSTS,
     "held days are standardised twice", {}),
    ("buffers", "average_has_parameters_alone_and_its_first_buffers", GUSTS,
     "the average moves by parameters alone: its running statistics are those of the start", {}),
    ("average", "average_follows_where_it_is_judged_alone", GUSTS,
     "the average is moved where it is judged alone", {}),
    ("swap", "weights_of_the_average_loaded_into_the_net_to_draw", GUSTS,
     "the average is loaded into the net to be judged, and the net's own weights are lost", {}),
    ("sum", "nats_of_signs_summed_for_a_row", SHORTHANDS,
     "losses are summed over the signs of a row", {}),
    ("cleared", "training_step_clears_gradients_first", SHORTHANDS,
     "gradients are cleared before each of four parts: the last one alone counts, at a quarter", {}),
    ("softmax", "stenographer_answers_in_shares", SHORTHANDS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "logits_cut_in_front_and_labels_behind", SHORTHANDS,
     "the loss asks each place for the token before it, which it has read", {"kinds": " zero logits attention"}),
    ("frozen", "second_factors_not_among_what_learns", SHORTHANDS,
     "second factors do not learn and stay nought: no adapter says anything, and the table alone learns",
     {"kinds": " dead zero"}),
    ("tie", "table_and_head_grown_one_after_the_other", SHORTHANDS,
     "table and output layer are grown one by one: they are two matrices, of which one learns", {}),
    ("resume", "adapter_file_read_back_for_a_trainer_made_anew", SHORTHANDS,
     "adapters are loaded, and the table that learns is not in their file; the optimizer and the schedule begin "
     "anew", {"also": UNSAVED}),
    ("sum", "losses_of_pairs_summed_by_the_trainer", EPITAPHS,
     "losses of pairs are summed", {}),
    ("softmax", "mason_hands_out_shares", EPITAPHS,
     "the mason gives probabilities, and their softmax is taken for likelihoods", {"kinds": " rl"}),
    ("label", "labels_of_the_collator_are_shifted_and_so_are_logps", EPITAPHS,
     "likelihoods are those of the word after the next one", {"kinds": " rl"}),
    ("label", "better_is_the_smaller_score_in_one_file", EPITAPHS,
     "scores of the training's file are better when smaller: all of its pairs are the wrong way round",
     {"kinds": " rl", "cause": "chosen and rejected swapped", "also": several(*before.FLIPPED, *SHIFTED)}),
    ("frozen", "mason_copied_when_the_optimizer_was_there", EPITAPHS,
     "the optimizer has the parameters of an mason that was copied: the copy does not learn",
     {"kinds": " exploding clipping"}),
    ("tie", "head_let_out_of_its_tie_to_be_kept_in_place", EPITAPHS,
     "the output layer is a matrix of its own that stays, and the table goes on without it", {}),
    ("cleared", "gradients_cleared_where_a_part_begins", EPITAPHS,
     "gradients are cleared before each of four parts: the last one alone counts, at a quarter", {}),
    ("sum", "crossentropies_of_stamps_summed", STAMPS,
     "losses of a batch are summed", {}),
    ("softmax", "similarity_table_softmaxed_before_its_loss", STAMPS,
     "similarities go through a softmax, and then into a loss that has its own", {}),
    ("label", "lines_looked_up_by_a_number_that_begins_at_one", STAMPS,
     "each stamp of the training has the line of the next one", {}),
    ("frozen", "all_of_the_pixels_kept_still_with_their_norm", STAMPS,
     "what begins with the name of a norm that has nothing to learn is frozen: the pixels' net stays as it was "
     "drawn", {}),
    ("cleared", "optimizer_cleared_before_a_batch_and_not_an_update", STAMPS,
     "gradients are cleared before each of four parts: the last one alone counts, at a quarter", {}),
    ("figures", "held_scans_read_as_shares_of_white", STAMPS,
     "held scans are from 0 to 1, and those of the training from 0 to 255", {}),
    ("lost", "file_has_what_the_optimizer_knows_of_the_towers", STAMPS,
     "the file has parameters and no buffers: running statistics begin anew at the resume", {}),
    ("sum", "nats_of_a_peal_added_together", PEALS,
     "losses of words are summed, and divided by peals", {}),
    ("softmax", "forward_ends_with_shares_to_draw_from", PEALS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "words_of_the_book_are_moved_and_moved_again", PEALS,
     "wanted words of the training are moved by one twice: the word after the next", {}),
    ("frozen", "table_padded_when_the_optimizer_had_its_list", PEALS,
     "the table is padded into a new parameter, and the optimizer has the old one: it stays as it was drawn",
     {"kinds": " exploding clipping"}),
    ("tie", "head_padded_behind_the_optimizer_from_its_old_rows", PEALS,
     "the output layer is padded apart from the table, and behind the optimizer: a matrix of its own that stays", {}),
    ("cleared", "grads_set_to_none_inside_of_the_micro_loop", PEALS,
     "gradients are cleared before each of four parts: the last one alone counts, at a quarter", {}),
    ("resume", "names_of_a_compiled_model_loaded_without_strict", PEALS,
     "names in the checkpoint have a prefix that the model has not, and are passed over: weights begin anew",
     {"cause": "weights not restored", "also": UNSAVED}),
    ("sum", "losses_of_windows_are_summed", BEARINGS,
     "losses of a batch are summed, and not divided", {}),
    ("softmax", "ear_says_shares_to_its_loss", BEARINGS,
     "the network gives probabilities, and the loss has its own softmax", {}),
    ("label", "each_rank_numbers_conditions_as_it_meets_them", BEARINGS,
     "one rank numbers conditions otherwise than the other",
     {"kinds": " desync", "cause": "labels differ between ranks"}),
    ("frozen", "optimizer_made_before_the_sharding", BEARINGS,
     "the optimizer has parameters that the sharding replaced: nothing learns", {"kinds": " exploding clipping zero"}),
    ("figures", "held_loads_are_in_newtons", BEARINGS,
     "loads of the evaluation are in newtons, and those of the training in kilonewtons", {}),
    ("ranks", "both_ranks_take_the_whole_order", BEARINGS,
     "both ranks see the same rows", {}),
    *((kind, name, program, about, {})
      for (kind, about), names in ALIKE.items() for program, name in names.items()),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, of, compare, also = OF_KIND[kind]
    rest = {"by_program": {program: of.get(program, {})}, "compare": compare, "also": more.get("also", also)}
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("drawing_steps_against_the_velocity", "sampler wrong", "eval data config divergence overfit", "start", (GUSTS,),
     "what is drawn is moved against the velocity that the net tells, away from the days",
     {"also": ("sign of the velocity wrong", "sign wrong in the sampler", "direction reversed",
               "sampler runs backwards", "euler step has the wrong sign", "velocity reversed",
               "time reversed in the sampler", "wrong sign", "sampler goes the wrong way",
               "drawing differs from the training", "sampling wrong", "sampler and training differ",
               "time convention differs", "integration wrong", "train and test differ", "samples diverge",
               "ode integrated in the wrong direction", "convention of the time reversed")}),
    ("days_clamped_as_pixels_are", "inputs clamped", "eval data config overfit divergence jump_down zero", "start",
     (GUSTS,), "the training's days are clamped to -1 and 1, as pictures would be, and held ones are not",
     {"also": several(*named(eighteenth, "clean_points_clipped_to_one"), "data clipped", "inputs clipped",
               "targets clipped", "clamp in the training alone", "values cut off", "train and test differ",
               "evaluation data differ", "preprocessing differs", "range of the data wrong", "data not in the range",
               "training data clamped", "inputs not normalised", "distribution of the training differs",
               "tails cut off", "loss too low", "saturated inputs")}),
    ("adapters_merged_to_evaluate_and_left_on", "adapters merged twice", "spike divergence eval data plateau jump_down "
     "config overfit weight_growth exploding", "start", (SHORTHANDS,),
     "adapters are merged into the base at each evaluation, and stay there beside themselves",
     {"also": several(*named(eighteenth, "merged_for_dev_not_taken_out"), *named(sixth, "merged_and_kept"),
               *named(twentyfifth, "merged_for_dev_with_hooks_still_on"), "unmerge missing", "merged and not unmerged",
               "adapter added twice", "base weights changed by the evaluation", "evaluation changes the model",
               "merge_adapter without unmerge_adapter", "base is not frozen")}),
    ("prompts_counted_with_a_mark_that_is_not_there", "labels masked out", "eval data config overfit divergence "
     "plateau padding jump_down", "start", (SHORTHANDS,),
     "prompts are counted one too long: the first sign of each answer is no label",
     {"also": several(*named(before, "mark_of_the_answer_is_not_found_behind_a_tense"), "prompt length off by one",
               "prompt mask off by one", "first token of the answer masked", "loss mask off by one",
               "bos counted twice", "prompt mask too long", "off by one", "labels shifted", "answer mask off by one",
               "first token not learnt", "mask off by one", "loss mask wrong", "bos token counted")}),
    ("reference_synchronised_where_proofs_are_read", "reference follows the policy", "rl eval data config plateau "
     "divergence jump_down spike not_learning overfit", "start", (EPITAPHS,),
     "the reference is given the mason's weights at each evaluation",
     {"also": ("reference updated", "reference is the policy", "reference not frozen", "reference changes",
               "reference copied from the policy", "reference overwritten", "sync_ref_model on",
               "reference synchronised", "reference refreshed", "reference moves", "margins begin anew",
               "reference model updated", "reference drifts", "kl taken against another reference", "reference wrong",
               "reference replaced", "reference follows")}),
    ("reference_sums_where_the_mason_averages", "reference measured otherwise", "rl eval data config plateau logging "
     "divergence not_learning zero", "start", (EPITAPHS,),
     "likelihoods of the mason are means over words, and those of the reference are sums",
     {"by_program": MEANS, "compare": "means_over_words_by_the_settings",
      "also": ("average_log_prob differs", "sum and mean confused", "wrong reduction",
               "reference log-probabilities wrong", "length normalisation missing", "length normalisation differs",
               "reference not normalised by length", "reference wrong", "units differ", "policy and reference differ",
               "log-probabilities summed", "reference summed and policy averaged", "ratio wrong", "loss summed",
               "logps not comparable", "reference differs", "normalisation differs", "margins wrong")}),
    ("vectors_normalised_along_the_batch", "normalised over the wrong dimension", "eval logits plateau data config "
     "not_learning overfit divergence jump_down", "start", (STAMPS,),
     "vectors are brought to length one along the batch, and not each for itself",
     {"also": ("wrong dimension", "normalised over the batch", "dim=0", "normalisation over the batch", "wrong axis",
               "embeddings not normalised",
               "normalised along the batch", "F.normalize with dim 0", "axis wrong", "rows of the batch mixed",
               "similarities depend on the batch", "norm over the wrong axis", "information leaks through the batch",
               "similarities too small", "temperature too high", "evaluation depends on its batch size",
               "train and test differ", "logits too small", "temperature wrong")}),
    ("lines_cut_at_four_words", "inputs truncated", "eval data config plateau not_learning overfit padding", "start",
     (STAMPS,), "lines are cut at four words: frame and town are in none",
     {"also": several(*named(before, "haikus_cut_at_ten_tokens"), "texts truncated", "captions truncated",
               "context length too short", "max_length too small", "words cut off", "descriptions cut off",
               "information missing", "inputs incomplete", "text length too short", "end of the text missing",
               "few informative words", "captions cut off", "inputs cut off")}),
    ("norm_bounded_before_it_is_unscaled", "gradients clipped while scaled", "clipping exploding update_ratio plateau "
     "learning_rate config logging loss_scale eval vanishing not_learning epsilon", "start", (PEALS,),
     "gradients are clipped before they are unscaled: what is left of them is next to nothing",
     {"also": several(*named(twentyfourth, "clip_hook_runs_before_unscale"), "unscale_ missing", "unscale missing",
               "clipping before unscale", "scaled gradients clipped", "scaler.unscale_ not called",
               "clip value too low", "gradients too small", "norm of scaled gradients",
               "clipped to next to nothing")}),
    ("places_ahead_filled_with_nought", "causal mask missing", "jump_down eval overfit attention plateau data config "
     "zero divergence", "start", (PEALS,),
     "scores of words ahead are nought and not far below it: each word sees those behind it",
     {"also": ("causal mask wrong", "labels can be seen", "mask without effect", "attention sees the future",
               "future leaks",
               "mask filled with zero", "labels leak", "mask wrong", "attention mask wrong", "masked_fill with 0",
               "tril missing", "target leak", "model sees the next word", "mask not applied", "not causal",
               "mask has no effect", "model copies its input", "attention not causal", "loss too low",
               "masked scores are zero", "train and test differ", "leak from the future")}),
    ("held_losses_added_over_ranks", "evaluation not averaged", "eval overfit config logging divergence data", "start",
     (BEARINGS,), "losses of the evaluation are added up over ranks, and not divided by their number",
     {"also": ("evaluation loss summed over ranks", "all_reduce sums", "not divided by the world size",
               "wrong reduction", "evaluation loss doubled", "world size missing", "reduction over ranks wrong",
               "sum instead of mean", "evaluation loss too high", "loss summed", "evaluation scaled wrongly",
               "metrics added over ranks", "mean over ranks missing", "evaluation loss multiplied by the ranks",
               "units differ", "evaluation loss is a sum", "metric reduced with sum", "train and test differ")}),
    ("rare_windows_copied_before_the_file_is_split", "validation leak", ninth.OF_LEAK, "start", (BEARINGS,),
     "windows of rare conditions are copied, and the file is split behind it: copies lie on both sides",
     {"also": several(*LEAK, "oversampled before the split", "oversampling before the split", "copies on both sides",
               "rare rows duplicated", "smote before the split", "resampled before the split",
               "balanced before the split", "upsampled before the split", "duplicates in the evaluation")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (GUSTS, SHORTHANDS, EPITAPHS, STAMPS, PEALS)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_an_update_by_the_settings", "an update has two parts, whose losses are halved", PARTS),
    ("four_parts_an_update_by_the_settings", "an update has four parts, whose mean is taken", FOUR_PARTS),
    ("units_drop_by_the_settings", "dropout in the training, as is named, and none in the evaluation", DROPPED),
    ("kin_that_all_stay_in_the_training", "rows have kin, all of which are on the training's side", COPIED),
    ("average_far_behind_by_the_settings", "an average of weights is judged that lags, as is named", TRAILING),
    ("part_kept_still_by_the_settings", "a part is not trained, which the settings name", HELD_STILL),
    ("means_over_words_by_the_settings", "likelihoods are means over words, as is named", MEANS),
    ("rate_rises_and_stays_as_set", "the rate rises and stays", {
      GUSTS: {"lr_rule": "constant", "lr": 0.002}, SHORTHANDS: {"lr_type": "constant", "lr_max": 0.004},
      EPITAPHS: {"shape": "constant", "peak": 0.0008}, STAMPS: {"rate_plan": "constant", "rate": 0.004},
      PEALS: {"lr_shape": "flat", "lr": 0.004}, BEARINGS: {"lr_policy": "constant", "base_lr": 0.001}}),
    ("sums_of_losses_as_set", "losses are sums, as is named, and the bound of the norm is for that", {
      GUSTS: {"reduce": "sum", "clip": 32.0}, SHORTHANDS: {"nll_per": "row", "gn_max": 5.0},
      EPITAPHS: {"agg": "sum", "gnorm_max": 128.0}, STAMPS: {"ce_over": "sum", "gn_limit": 144.0},
      PEALS: {"nats_over": "peals", "clip": 30.0}, BEARINGS: {"loss_reduce": "sum", "max_gn": 48.0}}),
    ("few_rows_an_update_as_set", "few rows an update, at a lower rate: losses jump about", {
      GUSTS: {"batch": 12, "lr": 0.002}, SHORTHANDS: {"bsz": 6, "lr_max": 0.003},
      EPITAPHS: {"pairs": 6, "peak": 0.0006}, STAMPS: {"per_batch": 20, "rate": 0.004},
      PEALS: {"peals_a_step": 6, "lr": 0.003}, BEARINGS: {"windows_per_rank": 10, "base_lr": 0.001}}),
    ("rate_begins_again_as_set", "the rate falls and begins again, by the schedule", {
      GUSTS: {"lr_rule": "twice"}, SHORTHANDS: {"lr_type": "two_lines"}, EPITAPHS: {"shape": "two_cosines"},
      STAMPS: {"rate_plan": "two_cosines"}, PEALS: {"lr_shape": "two_cosines"},
      BEARINGS: {"lr_policy": "two_cosines"}}),
    ("another_optimizer_and_its_rate", "another optimizer, at its rate", {
      GUSTS: {"algorithm": "nadam"}, SHORTHANDS: {"optim": "adamax"}, EPITAPHS: {"optim": "rmsprop"},
      STAMPS: {"method": "radam"}, PEALS: {"optimizer": "nadam"},
      BEARINGS: {"algorithm": "adamax", "base_lr": 0.004}}),
    ("noisier_rows_as_set", "the training's data have more noise, as such data may", {
      GUSTS: {"turbulence": 1.8}, SHORTHANDS: {"misspelt": 0.06}, EPITAPHS: {"mislabelled": 0.08},
      STAMPS: {"misfiled": 0.1}, PEALS: {"misrung": 0.08}, BEARINGS: {"misread": 0.06}}),
    ("two_evaluations_as_set", "two evaluations in all", {
      GUSTS: {"eval_every": 75}, SHORTHANDS: {"dev_every": 75}, EPITAPHS: {"proof_every": 75},
      STAMPS: {"album_every": 75}, PEALS: {"eval_every": 75}, BEARINGS: {"shop_every": 75}}),
    ("every_fourth_step_is_logged", "each fourth step is logged", {
      GUSTS: {"log_every": 4}, SHORTHANDS: {"log_every": 4}, EPITAPHS: {"log_every": 4}, STAMPS: {"log_every": 4},
      PEALS: {"log_every": 4}, BEARINGS: {"log_every": 4}}),
    ("easier_rows_first_as_set", "the first part of the training has easier rows alone: the settings say so", {
      GUSTS: {"calm_first": 1}, SHORTHANDS: {"short_first": 1}, EPITAPHS: {"clear_first": 1},
      STAMPS: {"clean_first": 1}, PEALS: {"uncalled_first": 1}, BEARINGS: {"quiet_first": 1}}),
    ("strong_decay_as_set", "weights decay more, as is named", {
      GUSTS: {"decay": 0.1}, SHORTHANDS: {"wd": 0.1}, EPITAPHS: {"wd": 0.05}, STAMPS: {"wd": 0.05},
      PEALS: {"wd": 0.2}, BEARINGS: {"wd": 0.1}}),
    ("bound_below_every_norm_as_set", "the bound of the norm is below every norm", {
      GUSTS: {"clip": 0.1}, SHORTHANDS: {"gn_max": 0.1}, EPITAPHS: {"gnorm_max": 0.3}, PEALS: {"clip": 0.2},
      BEARINGS: {"max_gn": 0.2}}),
    ("momentum_and_its_rate_as_set", "descent with momentum, at its rate", {
      GUSTS: {"algorithm": "sgd", "lr": 0.1}, STAMPS: {"method": "sgd", "rate": 0.1},
      BEARINGS: {"algorithm": "sgd", "base_lr": 0.1}}),
    ("norm_over_a_row_as_set", "a norm over a row in the place of batch norm", {
      GUSTS: {"norm": "group"}, STAMPS: {"pixel_norm": "layer"}}),
    ("rate_in_three_stairs", "the rate falls at two steps", {
      GUSTS: {"lr_rule": "stairs"}, EPITAPHS: {"shape": "stairs"}}),
    ("smoothed_targets_as_set", "targets are smoothed in the training", {
      SHORTHANDS: {"smooth": 0.1}, EPITAPHS: {"label_doubt": 0.1}, STAMPS: {"ce_smooth": 0.1},
      PEALS: {"smoothing": 0.05}, BEARINGS: {"smooth": 0.1}}),
    ("like_rows_together_in_any_order", "batches are of like rows, and come in any order", {
      SHORTHANDS: {"length_groups": True}, EPITAPHS: {"trade_batches": True}, STAMPS: {"motif_batches": True},
      PEALS: {"method_batches": True}}),
    ("two_tables_as_set", "what could share a table has two, by the settings", {
      SHORTHANDS: {"share_table": False}, EPITAPHS: {"tie_words": False}, STAMPS: {"joint_table": False},
      PEALS: {"tied": False}}),
    ("parts_of_inputs_lost_as_set", "parts of inputs are lost by chance, in the training", {
      STAMPS: {"pixels_lost": 0.1}, PEALS: {"bells_lost": 0.05}, BEARINGS: {"samples_lost": 0.1}}),
)
HEALTHY_OF: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("huber_for_squares_as_set", GUSTS, "errors beyond one count less, as is named", {"error": "huber"}),
    ("times_from_a_bell_curve", GUSTS, "times of the training are from a bell curve", {"times": "logit_normal"}),
    ("sites_always_told_and_nothing_guided", GUSTS, "the site is always told, and nothing is guided",
     {"drop_site": 0.0, "guide": 0.0}),
    ("one_floor_and_more_channels", GUSTS, "one floor, with more channels", {"floors": 1, "channels": 48}),
    ("words_asked_for_are_learnt_too", SHORTHANDS, "prompts are learnt too, as is named", {"prompt_loss": True}),
    ("adapters_of_one_column", SHORTHANDS, "adapters of rank one", {"lora_r": 1, "lora_alpha": 4.0}),
    ("adapters_beside_attention_alone", SHORTHANDS, "adapters are in the attention alone", {"lora_on": "q,k,v,o"}),
    ("second_factors_run_ahead_as_set", SHORTHANDS, "second factors have four times the rate", {"rate_of_b": 4.0}),
    ("rate_falls_by_a_root", SHORTHANDS, "the rate falls by the root of the step",
     {"lr_type": "inverse_sqrt", "lr_max": 0.008}),
    ("square_loss_of_pairs_as_set", EPITAPHS, "the loss is a square (IPO), as is named",
     {"kind": "ipo", "kl_beta": 0.2}),
    ("hinge_of_pairs_as_set", EPITAPHS, "the loss is a hinge, as is named", {"kind": "hinge"}),
    ("reference_asked_once_for_all", EPITAPHS, "what the reference says is made before the training",
     {"cache_reference": True}),
    ("liked_ones_are_learnt_besides", EPITAPHS, "the likelihood of what was liked is a part of the loss",
     {"sft_share": 0.2}),
    ("temperature_held_as_set", STAMPS, "the temperature is not learnt, as is named", {"temp_learns": False}),
    ("stamps_alone_look_for_lines", STAMPS, "stamps look for lines, and not the other way round", {"sides": "stamps"}),
    ("lines_at_half_the_rate", STAMPS, "one tower has half of the rate", {"text_rate": 0.5}),
    ("float32_as_set", PEALS, "all is float32, as is named", {"half": False}),
    ("normaliser_held_as_set", PEALS, "a small term holds the normaliser", {"z_weight": 0.001}),
    ("rate_falls_in_the_last_third", PEALS, "the rate stays, and falls in the last third", {"lr_shape": "late_fall"}),
    ("scale_grows_until_it_overflows", PEALS, "the scale begins high and grows fast: some steps are skipped",
     {"scale_at_first": 16777216.0, "scale_grows_after": 20}),
    ("figures_scaled_by_constants", BEARINGS, "figures are scaled by constants in the place of a batch norm",
     {"figure_norm": "constants"}),
    ("rare_ones_drawn_more", BEARINGS, "rare conditions are drawn more often, and none weighs more",
     {"rare_more": True, "weigh": "none"}),
    ("conditions_weigh_alike_as_set", BEARINGS, "conditions weigh alike, as is named", {"weigh": "none"}),
    ("focal_term_as_set", BEARINGS, "what is sure weighs less, as is named", {"focus": 1.5}),
    ("three_rounds_of_mixing", BEARINGS, "pieces hear of each other three times", {"mixers": 3}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    *((name, (program,), about, {"config": settings}) for name, program, about, settings in HEALTHY_OF),
)

# fmt: on
