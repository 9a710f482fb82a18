"""The thirty-fourth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the thirty-third half: signatures out of noise by scores, with an average that stores
and restores; adapters on a scribe that learns another script; preferences for postcards, with columns of what the
reference says; two towers for timbers and a merchant's words; a language model in float16 with a scaler over the books
of shops; rare kinds of windows of an EEG on two workers, sharded; each as another ordinary engineer writes it. Most
faults are of the fifteen kinds that the fourteenth half has; those in `REPORTED` are others that people report of such
trainings. Who wrote them had read no rule, and did not look at what the doctor says. Names and kinds are taken over
from the thirty-third half, and every kind that would be right is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import thirtythird as before
from halves.ninth import Row, Settings
from halves.twentysixth import several

PROGRAMS = ("signatures", "abjads", "postcards", "timbers", "inventories", "seizures")
SIGNATURES, ABJADS, POSTCARDS, TIMBERS, INVENTORIES, SEIZURES = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "guidance_weighed_from_the_untold", "levels_are_not_weighed",
    "evaluated_where_adapters_are_disabled", "generate_called_without_the_mask",
    "mask_of_the_better_card_repeated", "reference_stays_as_it_was_drawn",
    "table_divided_by_its_scale", "words_of_the_yard_numbered_anew",
    "loss_read_when_it_was_scaled", "books_cut_at_sixteen_words",
    "weights_are_roots_of_counts", "windows_turned_upside_down_by_chance",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    SIGNATURES: {"bs": 24, "grad_accum": 2}, ABJADS: {"per_device_batch": 8, "gradient_accumulation_steps": 2},
    POSTCARDS: {"rows": 8, "micro_steps": 2}, TIMBERS: {"train_batch": 32, "accumulate_steps": 2},
    INVENTORIES: {"books": 10, "micro_batches": 2}, SEIZURES: {"windows": 16, "parts": 2},
}
FOUR_PARTS: Settings = {
    SIGNATURES: {"bs": 12, "grad_accum": 4, "opt": "sgd", "lr": 0.8, "grad_clip": 10.0},
    ABJADS: {"per_device_batch": 4, "gradient_accumulation_steps": 4, "optim": "sgd", "learning_rate": 0.05,
             "max_grad_norm": 100.0},
    POSTCARDS: {"rows": 4, "micro_steps": 4, "optimizer": "sgd", "peak_lr": 0.05, "max_norm": 100.0},
    TIMBERS: {"train_batch": 24, "accumulate_steps": 4, "optim_name": "sgd", "base_lr": 0.1, "grad_norm_max": 100.0},
    INVENTORIES: {"books": 5, "micro_batches": 4, "kind": "sgd", "lr": 0.3, "max_norm": 5.0},
    SEIZURES: {"windows": 8, "parts": 4, "method": "sgd", "step_size": 0.2, "clip_norm": 100.0},
}
DROPPED: Settings = {
    SIGNATURES: {"dropout": 0.5}, ABJADS: {"lora_dropout": 0.3}, POSTCARDS: {"resid_drop": 0.2},
    TIMBERS: {"p_dropout": 0.3}, INVENTORIES: {"p": 0.2}, SEIZURES: {"drop_rate": 0.4},
}
COPIED: Settings = {
    SIGNATURES: {"pads": 16}, ABJADS: {"copies": 8}, POSTCARDS: {"readers": 5, "pairs": 1600},
    TIMBERS: {"samples": 6, "timbers": 1920}, INVENTORIES: {"copies": 16, "shelf": 1440}, SEIZURES: {"per_hour": 8},
}
TRAILING: Settings = {
    SIGNATURES: {"ema_rate": 0.975},
}
HELD_STILL: Settings = {
    SIGNATURES: {"lock": "layers.0"}, ABJADS: {"frozen_modules": "layers.0"}, POSTCARDS: {"hold_layers": 1},
    TIMBERS: {"freeze_prefix": "text_net"}, INVENTORIES: {"fixed": "positions"}, SEIZURES: {"fixed_part": "stem"},
}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

CAUSES: Mapping[str, tuple[str, ...]] = {
    "sum": ("loss summed over signatures", "loss summed over windows", "loss summed over timbers"),
    "label": ("first token of the answer masked", "prompt mask one too long", "labels masked one too many",
              "first word not counted", "mask off by one", "answer mask begins too late", "captions misaligned",
              "writers off by one", "conditions of the training differ", "label of no condition used",
              "targets are the token before", "targets rolled in the wrong direction", "classes merged",
              "class ids clamped", "logps of the wrong token", "completion mask off by one", "prompt mask off by one"),
    "frozen": ("from_pretrained freezes", "embedding frozen", "freeze=True is the default", "table frozen",
               "text tower frozen", "text tower under no_grad", "no_grad around an encoder", "encoder detached",
               "group of the optimizer overwritten", "matrices not in the optimizer", "only norms and biases trained",
               "blocks replaced after the optimizer was made", "body frozen", "backbone frozen by default",
               "default argument freezes the backbone", "modules_to_save missing", "new embeddings not trained"),
    "tie": ("modules_to_save copies the table", "head replaced after the optimizer was made", "head drawn anew",
            "embedding copied by modules_to_save", "head frozen", "text tower has its own table"),
    "order": ("writer after writer", "place after place", "mill after mill", "shop after shop", "kind after kind",
              "sequential sampler", "shards not shuffled"),
    "leak": ("pads on both sides", "samples of a timber on both sides", "copies of a book on both sides",
             "windows of a patient on both sides", "group leakage", "readers on both sides", "words on both sides"),
    "figures": ("mean is 0 and std is 1", "statistics computed after normalisation", "evaluation not standardised",
                "grams and kilograms confused", "millivolts and microvolts confused"),
    "average": ("generator exhausted", "parameters are a generator", "average never updated"),
    "swap": ("store after copy_to", "stored weights are those of the average", "store and copy_to swapped"),
    "ranks": ("rank missing", "rank is always 0", "same shard on all ranks", "RANK not read", "wrong environment "
              "variable", "half of the data is never seen"),
}

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

AGAINST: Mapping[str, tuple[Settings, str]] = {
    "leak": (COPIED, "kin_are_in_the_training_alone"), "steps": (PARTS, "update_of_two_parts_as_options_say"),
    "added": (FOUR_PARTS, "update_of_four_parts_as_options_say"),
    "cleared": (FOUR_PARTS, "update_of_four_parts_as_options_say"),
    "eval": (DROPPED, "units_drop_as_options_say"), "train": (DROPPED, "units_drop_as_options_say"),
    "swap": (TRAILING, "average_trails_as_options_say"), "graph": ({}, "memory_steady"),
}
FOLLOWS: Mapping[str, str] = {
    "added": " nonfinite plateau not_learning weight_growth activations attention dead vanishing overfit data",
    "cleared": " not_learning frozen", "order": " exploding",
}
"""Kinds of what follows from a fault in these programs, beside those of its kind."""
ALIKE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("steps", "the schedule goes on with each part of an update"): {
        SIGNATURES: "rate_moves_with_every_lot", ABJADS: "training_step_steps_the_scheduler",
        POSTCARDS: "schedule_told_of_micro_steps", TIMBERS: "plan_goes_on_with_each_lot",
        INVENTORIES: "rate_moved_at_the_event_of_micro_batches", SEIZURES: "annealing_goes_by_parts",
    },
    ("added", "losses of parts are not divided by their number"): {
        SIGNATURES: "each_lot_goes_back_whole", ABJADS: "training_step_backs_the_loss_undivided",
        POSTCARDS: "micro_steps_weigh_as_much_as_a_step", TIMBERS: "lots_back_their_loss_in_full",
        INVENTORIES: "scaled_losses_of_micro_batches_add_up", SEIZURES: "parts_of_a_shard_go_back_undivided",
    },
    ("cleared", "gradients are cleared before each of four parts: the last one alone counts, at a quarter"): {
        SIGNATURES: "gradients_dropped_in_the_loop_over_lots", ABJADS: "training_step_begins_with_zero_grad",
        POSTCARDS: "zero_grad_called_with_each_micro_step", TIMBERS: "step_zeroes_gradients_for_each_lot",
        INVENTORIES: "micro_batches_begin_without_gradients", SEIZURES: "gradients_zeroed_where_a_part_begins",
    },
    ("order", "rows come in the order of the file, kind after kind"): {
        SIGNATURES: "file_of_writers_goes_by_unmixed", ABJADS: "sampler_of_the_list_is_sequential",
        POSTCARDS: "table_read_from_its_first_place_on", TIMBERS: "yard_walked_through_mill_by_mill",
        INVENTORIES: "shelf_read_shop_by_shop", SEIZURES: "shards_read_from_their_first_row_on",
    },
    ("leak", "rows of one origin come to lie on both sides"): {
        SIGNATURES: "signatures_of_several_pads_dealt_out", ABJADS: "list_split_with_a_word_more_than_once",
        POSTCARDS: "readers_of_a_pair_dealt_to_either_side", TIMBERS: "samples_of_a_timber_in_yard_and_file",
        INVENTORIES: "copies_of_a_book_on_both_shelves", SEIZURES: "windows_of_an_hour_dealt_to_ward_and_file",
    },
    ("eval", "the model is not set back to training behind an evaluation"): {
        SIGNATURES: "checked_and_left_at_that", ABJADS: "evaluate_returns_a_model_in_eval",
        POSTCARDS: "policy_never_trains_behind_the_readers", TIMBERS: "towers_stay_in_eval_when_the_yard_is_done",
        INVENTORIES: "audited_and_no_word_of_train", SEIZURES: "reader_comes_back_from_the_ward_in_eval",
    },
    ("train", "the model is evaluated in training mode, with dropout"): {
        SIGNATURES: "checked_with_the_net_set_to_train", ABJADS: "evaluate_leaves_adapters_dropping",
        POSTCARDS: "readers_asked_while_the_policy_drops", TIMBERS: "yard_searched_by_towers_in_training",
        INVENTORIES: "audited_with_units_dropping", SEIZURES: "ward_read_while_features_drop",
    },
    ("graph", "evaluations run with gradients on, and what they say is kept"): {
        SIGNATURES: "checks_put_by_with_what_led_to_them", ABJADS: "evaluate_hands_losses_over_as_they_are",
        POSTCARDS: "what_readers_said_kept_as_tensors", TIMBERS: "tables_of_the_yard_kept_on_the_tape",
        INVENTORIES: "audits_filed_with_their_graphs", SEIZURES: "readings_of_the_ward_archived_with_gradients",
    },
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "errors_of_a_signature_added_up", SIGNATURES,
     "squared errors are summed over the points of a signature", {}),
    ("label", "writers_told_without_the_number_of_none", SIGNATURES,
     "writers of the training are one too low, and the first is the number of no writer", {}),
    ("frozen", "table_of_writers_taken_from_pretrained", SIGNATURES,
     "the table of writers is made by from_pretrained, which freezes it: no writer is told", {}),
    ("figures", "mean_and_spread_read_when_points_were_standardised", SIGNATURES,
     "mean and spread are read from points that are standardised: held signatures stay in millimetres", {}),
    ("average", "parameters_of_the_average_from_a_generator", SIGNATURES,
     "the average has a generator of parameters, which is exhausted: it is never moved", {}),
    ("swap", "store_called_when_the_average_is_in", SIGNATURES,
     "weights are stored when the average is in the net already, and it stays there", {}),
    ("resume", "files_sorted_and_the_first_one_taken", SIGNATURES,
     "the first of all checkpoints is loaded, and not the last one",
     {"cause": "old checkpoint loaded", "kinds": " eval data jump_down plateau",
      "also": ("wrong checkpoint", "first checkpoint loaded", "stale checkpoint", "checkpoint too old",
               "oldest checkpoint loaded", "weights of an earlier step", "checkpoint of another step",
               "progress lost at the resume", "state lost at the resume", "schedule set back", "weights not restored",
               "optimizer state lost", "averaged weights lost", "resumed from an earlier step",
               "resumed at the wrong step")}),
    ("sum", "cross_entropies_of_a_batch_never_divided", ABJADS,
     "losses are summed over the tokens of a batch", {}),
    ("softmax", "scribe_puts_out_shares", ABJADS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "mask_of_the_prompt_reaches_into_the_answer", ABJADS,
     "the mask of the prompt is one too long: the first token of an answer is not learnt", {}),
    ("frozen", "table_let_learn_before_all_but_lora_was_frozen", ABJADS,
     "the table is to learn, and is frozen with the base", {}),
    ("tie", "table_that_is_saved_is_a_copy", ABJADS,
     "the table that learns is a copy: the output layer keeps the old one", {}),
    ("resume", "adapters_have_the_prefix_of_their_wrapper_in_the_file", ABJADS,
     "adapters have a prefix in the file that the model has not, and nobody is strict: they begin anew",
     {"kinds": " eval jump_down", "cause": "weights not restored",
      "also": several(*before.before.UNSAVED, "adapters not restored", "adapters begin anew", "adapters not loaded",
                      "lora weights not loaded")}),
    ("sum", "terms_of_pairs_are_summed", POSTCARDS,
     "losses of pairs are summed", {}),
    ("softmax", "writer_says_shares_of_words", POSTCARDS,
     "the writer gives probabilities, and their softmax is taken for likelihoods", {"kinds": " rl"}),
    ("label", "gathered_for_the_word_that_is_there", POSTCARDS,
     "likelihoods are those of the word that was just read", {"kinds": " rl attention"}),
    ("frozen", "second_group_given_in_place_of_the_first", POSTCARDS,
     "the optimizer has norms and biases alone: the group of matrices was overwritten", {}),
    ("tie", "head_cut_to_the_words_behind_the_optimizer", POSTCARDS,
     "the output layer is made anew behind the optimizer: a matrix of its own that stays", {}),
    ("resume", "columns_made_anew_by_the_policy_of_the_file", POSTCARDS,
     "columns of the reference are made anew at the resume, by the policy that was loaded",
     {"cause": "reference is the policy", "kinds": " rl eval data jump_down plateau",
      "also": ("reference updated", "reference changes", "reference reset", "reference copied from the policy",
               "reference wrong", "reference log-probabilities recomputed", "margins begin anew",
               "precomputed reference lost", "state lost at the resume", "reference moves", "rewards reset")}),
    ("sum", "nce_of_a_batch_added_up", TIMBERS,
     "losses of a batch are summed", {}),
    ("softmax", "similarities_become_shares_first", TIMBERS,
     "similarities go through a softmax, and then into a loss that has its own", {}),
    ("label", "words_are_those_of_the_next_timber", TIMBERS,
     "each timber of the training has the words of the next one", {}),
    ("frozen", "text_tower_encodes_under_no_grad", TIMBERS,
     "the tower of texts encodes without gradients: it stays as it was drawn", {}),
    ("tie", "text_tower_comes_with_its_own_table", TIMBERS,
     "stamps and words have two tables, where both towers were to share one", {}),
    ("figures", "held_densities_are_in_grams", TIMBERS,
     "held densities are a thousandth of those of the training", {}),
    ("resume", "file_has_the_tower_of_timbers_alone", TIMBERS,
     "the file has one tower, and nobody is strict: the tower of texts begins anew",
     {"kinds": " eval jump_down", "cause": "weights not restored",
      "also": several(*before.before.UNSAVED, "one tower saved", "text tower lost", "text tower not saved")}),
    ("sum", "nll_of_words_is_a_sum", INVENTORIES,
     "losses of words are summed", {}),
    ("softmax", "bookkeeper_gives_shares", INVENTORIES,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "words_rolled_the_other_way", INVENTORIES,
     "wanted words of the training are those before: each was just read", {"kinds": " zero logits attention"}),
    ("frozen", "blocks_made_anew_for_their_dropout", INVENTORIES,
     "blocks are made anew behind the optimizer: they stay as they were drawn", {"kinds": " exploding clipping"}),
    ("tie", "output_drawn_as_a_layer_of_its_own", INVENTORIES,
     "the output layer is drawn anew behind the optimizer: a matrix of its own that stays", {"kinds": " clipping"}),
    ("resume", "model_built_once_more_below_its_load", INVENTORIES,
     "the model is made once more when it was loaded: weights begin anew",
     {"kinds": " eval jump_down loss_scale", "cause": "weights not restored",
      "also": several(*before.before.UNSAVED, "model made after its load", "model drawn anew")}),
    ("sum", "criterion_made_with_reduction_sum", SEIZURES,
     "losses of a batch are summed, and not divided", {}),
    ("softmax", "reader_ends_with_shares_for_the_ward", SEIZURES,
     "the network gives probabilities, and the loss has its own softmax", {}),
    ("label", "kinds_moved_down_as_if_they_began_at_one", SEIZURES,
     "kinds of the training begin at nought, and are moved down by one and clamped", {}),
    ("frozen", "reader_built_with_its_body_frozen_by_default", SEIZURES,
     "the builder freezes the body if it is not told otherwise: the last layers learn alone", {}),
    ("figures", "amplitudes_of_the_ward_in_millivolts", SEIZURES,
     "amplitudes of the evaluation are in millivolts, and those of the training in microvolts", {}),
    ("ranks", "rank_taken_from_a_variable_nobody_set", SEIZURES,
     "both ranks take themselves for the first: they read one shard, in one order", {}),
    *((kind, name, program, about, {})
      for (kind, about), names in ALIKE.items() for program, name in names.items()),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, _, _, also = before.before.OF_KIND[kind]
    of, compare = AGAINST.get(kind, ({}, "plain"))
    also = several(*also, *before.MORE.get(kind, ()), *CAUSES.get(kind, ()))
    rest = {"by_program": {program: of.get(program, {})}, "compare": compare, "also": more.get("also", also)}
    kinds += FOLLOWS.get(kind, "") + more.get("kinds", "")
    return name, more.get("cause", cause), kinds, begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("guidance_weighed_from_the_untold", "guidance wrong", "eval data config divergence overfit", "start",
     (SIGNATURES,), "what is drawn begins with what is said without a writer, and goes a fifth of the way to him",
     {"also": ("guidance scale wrong", "guidance scale convention differs", "cfg scale off by one",
               "guidance too weak", "classifier-free guidance wrong", "unconditional prediction used",
               "conditions ignored in the sampler", "sampler wrong", "sampling wrong", "conditioning lost",
               "samples wrong", "train and test differ", "drawing differs from the training")}),
    ("levels_are_not_weighed", "loss weighting missing",
     "eval config data exploding clipping divergence spike logging overfit plateau not_learning", "start",
     (SIGNATURES,), "errors of scores are not weighed by their level: the smallest levels outweigh the others",
     {"also": ("loss weight missing", "sigma weighting missing", "lambda(sigma) missing", "loss not weighted",
               "loss weights wrong", "small sigmas dominate", "loss scaled wrongly", "noise levels weighed wrongly",
               "loss divided by sigma", "train and test differ", "loss too large", "units differ",
               "gradients too large", "score loss unweighted", "loss of the evaluation differs", "loss summed")}),
    ("evaluated_where_adapters_are_disabled", "adapters disabled in the evaluation",
     "eval data config divergence overfit plateau", "start", (ABJADS,),
     "the evaluation is of the base, without its adapters",
     {"also": ("adapters off", "adapter disabled", "disable_adapter left on", "base model evaluated",
               "wrong model evaluated", "evaluation of another model", "adapters not active",
               "train and test differ", "evaluation without lora", "model changed for the evaluation",
               "weights changed for the evaluation", "adapters not loaded for the evaluation")}),
    ("generate_called_without_the_mask", "attention mask missing", "eval data config padding attention overfit",
     "start", (ABJADS,), "answers are written without a mask: padding in front is read, and counted as places",
     {"also": ("attention_mask missing", "padding attended to", "padding not masked", "mask missing in generation",
               "position ids wrong", "generation wrong", "left padding without a mask", "padding read as tokens",
               "train and test differ", "decoding broken", "positions shifted by the padding", "padding side")}),
    ("mask_of_the_better_card_repeated", "mask of the other answer", "rl eval config data padding logging", "start",
     (POSTCARDS,), "words of the worse card are counted by the mask of the better one",
     {"also": ("wrong mask", "mask of the chosen used for both", "loss mask wrong", "padding counted",
               "padding in the likelihoods", "answer cut off", "labels of the rejected masked wrongly",
               "likelihoods wrong", "rejected log-probabilities wrong", "mask mismatch", "lengths differ",
               "end of the answer not counted", "padding not masked", "margins wrong")}),
    ("reference_stays_as_it_was_drawn", "reference not loaded", "rl eval config data logging divergence exploding",
     "start", (POSTCARDS,), "the reference was never loaded: its likelihoods are those of a model that was drawn",
     {"also": ("reference wrong", "reference is random", "reference untrained", "wrong reference",
               "reference not initialised from the policy", "reference is another model", "weights not loaded",
               "reference weights missing", "loss does not begin at log 2", "margins do not begin at 0",
               "bad initialisation", "reference differs from the policy", "margins wrong")}),
    ("table_divided_by_its_scale", "temperature upside down", "logits not_learning plateau config eval vanishing "
     "learning_rate update_ratio data", "start", (TIMBERS,),
     "similarities are divided by a scale that they were to be multiplied by",
     {"also": ("scale divides", "scale inverted", "temperature inverted", "logit scale wrong", "temperature wrong",
               "temperature too high", "logits too small", "similarities too small", "scale and temperature confused",
               "divided by the scale", "learnt temperature runs away", "softmax too flat")}),
    ("words_of_the_yard_numbered_anew", "vocabulary differs", "eval data config divergence overfit", "start",
     (TIMBERS,), "words of the evaluation have numbers of a vocabulary that was made from them alone",
     {"also": ("vocabulary built from the evaluation data", "vocabulary of the evaluation differs",
               "token ids differ", "tokenizer differs", "tokenizer fitted anew", "vocabulary mismatch",
               "evaluation data differ", "preprocessing differs", "train and test differ", "word ids shifted",
               "encoder fitted anew", "evaluation tokenised otherwise", "labels of the evaluation differ")}),
    ("loss_read_when_it_was_scaled", "loss logged scaled", "logging config loss_scale eval divergence logits spike "
     "exploding jump_down plateau not_learning", "start", (INVENTORIES,),
     "the loss is read when the scaler has multiplied it: what is logged is a thousand times too much",
     {"also": ("scaled loss logged", "loss multiplied by the scale", "logged loss is scaled", "loss logged wrongly",
               "loss scaled", "units differ", "logging wrong", "loss not unscaled", "loss summed",
               "scale in the loss", "loss too large", "gradient scaler in the logged loss")}),
    ("books_cut_at_sixteen_words", "rows cut off", "eval data config overfit divergence padding", "start",
     (INVENTORIES,), "rows of the training are cut at sixteen words, and counts at the end are never seen",
     {"also": ("truncation", "sequences truncated", "max_length too small", "context too short", "block size too small",
               "ends never seen", "training rows too short", "evaluation rows are longer", "positions never trained",
               "train and test differ", "lengths differ", "truncated in the training", "window too short",
               "texts truncated")}),
    ("weights_are_roots_of_counts", "class weights upside down", "eval config data overfit divergence plateau",
     "start", (SEIZURES,), "kinds weigh by the root of how often they are, and not of how rare",
     {"also": ("class weights inverted", "class weights wrong", "weights not inverse", "frequent classes weigh more",
               "rare classes weigh too little", "inverse frequency missing", "wrong class weights", "weights inverted",
               "rare classes ignored", "loss weights wrong", "class weights proportional to counts")}),
    ("windows_turned_upside_down_by_chance", "augmentation changes the label",
     "eval data config overfit divergence plateau not_learning", "start", (SEIZURES,),
     "windows of the training are turned upside down by chance, and two kinds differ by their sign alone",
     {"also": ("augmentation wrong", "sign flipped", "polarity lost", "augmentation destroys the label",
               "label not preserved by the augmentation", "flips change the class", "training data corrupted",
               "train and test differ", "augmentation too strong", "inputs inverted", "labels shuffled")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (SIGNATURES, ABJADS, POSTCARDS, TIMBERS, INVENTORIES)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("update_of_two_parts_as_options_say", "an update has two parts, whose losses are halved", PARTS),
    ("update_of_four_parts_as_options_say", "an update has four parts, whose mean is taken", FOUR_PARTS),
    ("units_drop_as_options_say", "dropout in the training, as is named, and none in the evaluation", DROPPED),
    ("kin_are_in_the_training_alone", "rows have kin, all of which are on the training's side", COPIED),
    ("average_trails_as_options_say", "an average of weights is judged that lags, as is named", TRAILING),
    ("part_held_still_as_options_say", "a part is not trained, which the settings name", HELD_STILL),
    ("rate_stays_up_as_options_say", "the rate rises and stays", {
      SIGNATURES: {"lr_decay": "none", "lr": 0.004}, ABJADS: {"lr_scheduler": "constant_with_warmup",
      "learning_rate": 0.004}, POSTCARDS: {"lr_shape": "flat", "peak_lr": 0.001},
      TIMBERS: {"lr_plan": "constant", "base_lr": 0.003}, INVENTORIES: {"sched": "constant", "lr": 0.004},
      SEIZURES: {"annealing": "none", "step_size": 0.0015}}),
    ("sums_of_losses_as_options_say", "losses are sums, as is named, and the bound of the norm is for that", {
      SIGNATURES: {"reduce": "sum", "loss_weight": 0.08, "grad_clip": 4.0},
      ABJADS: {"loss_over": "answers", "max_grad_norm": 5.0},
      POSTCARDS: {"reduction": "sum_by_four", "max_norm": 32.0},
      TIMBERS: {"loss_reduction": "sum_of_eighths", "grad_norm_max": 18.0},
      INVENTORIES: {"nll_over": "books", "nll_weight": 0.2, "max_norm": 4.5},
      SEIZURES: {"reduction": "sum_of_sixths", "clip_norm": 8.0}}),
    ("few_rows_an_update_as_options_say", "few rows an update, at a lower rate: losses jump about", {
      SIGNATURES: {"bs": 16, "lr": 0.004}, ABJADS: {"per_device_batch": 6, "learning_rate": 0.005},
      POSTCARDS: {"rows": 6, "peak_lr": 0.001}, TIMBERS: {"train_batch": 20, "base_lr": 0.004},
      INVENTORIES: {"books": 8, "lr": 0.005}, SEIZURES: {"windows": 10, "step_size": 0.002}}),
    ("rate_begins_again_as_options_say", "the rate falls and begins again, by the schedule", {
      SIGNATURES: {"lr_decay": "two_cosines"}, ABJADS: {"lr_scheduler": "cosine_with_restarts"},
      POSTCARDS: {"lr_shape": "cosine_twice"}, TIMBERS: {"lr_plan": "two_cosines"},
      INVENTORIES: {"sched": "cosine_twice"}, SEIZURES: {"annealing": "twice"}}),
    ("other_optimizer_as_options_say", "another optimizer, at its rate", {
      SIGNATURES: {"opt": "nadam", "lr": 0.004}, ABJADS: {"optim": "adamax", "learning_rate": 0.012},
      POSTCARDS: {"optimizer": "radam"}, TIMBERS: {"optim_name": "adamax", "base_lr": 0.012},
      INVENTORIES: {"kind": "nadam", "lr": 0.006}, SEIZURES: {"method": "nadam"}}),
    ("training_has_more_noise_as_options_say", "the training's data have more noise, as such data may", {
      SIGNATURES: {"tremor": 2.0}, ABJADS: {"slips": 0.1}, POSTCARDS: {"flips": 0.1}, TIMBERS: {"swapped": 0.1},
      INVENTORIES: {"miscounts": 0.1}, SEIZURES: {"misnamed": 0.06}}),
    ("two_evaluations_as_options_say", "two evaluations in all", {
      SIGNATURES: {"check_every": 75}, ABJADS: {"eval_steps": 75}, POSTCARDS: {"reader_every": 75},
      TIMBERS: {"yard_steps": 75}, INVENTORIES: {"audit_every": 75}, SEIZURES: {"ward_every": 75}}),
    ("each_fifth_step_told_as_options_say", "each fifth step is logged", {
      SIGNATURES: {"print_every": 5}, ABJADS: {"logging_steps": 5}, POSTCARDS: {"log_every": 5},
      TIMBERS: {"log_steps": 5}, INVENTORIES: {"log_each": 5}, SEIZURES: {"say_every": 5}}),
    ("easier_rows_first_as_options_say", "the first part of the training has easier rows alone: the settings say so", {
      SIGNATURES: {"calm_first": 1}, ABJADS: {"plain_first": 1, "words": 900}, POSTCARDS: {"clear_first": 1,
      "pairs": 1200}, TIMBERS: {"dry_first": 1}, INVENTORIES: {"quiet_first": 1}, SEIZURES: {"quiet_first": 1}}),
    ("more_decay_of_weights_as_options_say", "weights decay more, as is named", {
      SIGNATURES: {"wd": 0.1}, ABJADS: {"weight_decay": 0.1}, POSTCARDS: {"weight_decay": 0.05},
      TIMBERS: {"l2": 0.05}, INVENTORIES: {"wd": 0.2}, SEIZURES: {"decay": 0.1}}),
    ("every_norm_is_bounded_as_options_say", "the bound of the norm is below every norm", {
      SIGNATURES: {"grad_clip": 0.15}, ABJADS: {"max_grad_norm": 0.2}, POSTCARDS: {"max_norm": 0.2},
      TIMBERS: {"grad_norm_max": 0.2}, INVENTORIES: {"max_norm": 0.2}, SEIZURES: {"clip_norm": 0.15}}),
    ("descent_with_momentum_as_options_say", "descent with momentum, at its rate", {
      SIGNATURES: {"opt": "sgd", "lr": 0.3}, ABJADS: {"optim": "sgd", "learning_rate": 0.1},
      POSTCARDS: {"optimizer": "sgd", "peak_lr": 0.05}, TIMBERS: {"optim_name": "sgd", "base_lr": 0.1},
      INVENTORIES: {"kind": "sgd", "lr": 0.4}, SEIZURES: {"method": "sgd", "step_size": 0.1}}),
    ("norm_without_a_batch_as_options_say", "a norm that asks no batch, in the place of batch norm", {
      TIMBERS: {"input_norm": "layer"}, SEIZURES: {"figure_norm": "fixed"}}),
    ("targets_smoothed_as_options_say", "targets are smoothed in the training", {
      ABJADS: {"label_smoothing": 0.1}, POSTCARDS: {"smoothing": 0.1}, TIMBERS: {"smooth": 0.1},
      INVENTORIES: {"smoothing": 0.05}, SEIZURES: {"smooth": 0.1}}),
    ("like_rows_together_as_options_say", "batches are of like rows, and come in any order", {
      ABJADS: {"group_by_length": True}, POSTCARDS: {"place_batches": True}, TIMBERS: {"batch_by_name": True},
      INVENTORIES: {"shop_lots": True}}),
    ("two_tables_as_options_say", "what could share a table has two, by the settings", {
      ABJADS: {"tie_word_embeddings": False}, POSTCARDS: {"share_embeddings": False}, TIMBERS: {"joint_table": False},
      INVENTORIES: {"tied": False}}),
    ("inputs_lose_parts_as_options_say", "parts of inputs are lost by chance, in the training", {
      TIMBERS: {"measures_missing": 0.2}, INVENTORIES: {"words_hidden": 0.05}, SEIZURES: {"samples_lost": 0.1}}),
    ("rate_twice_as_high_as_options_say", "a higher rate, with a longer rise", {
      SIGNATURES: {"lr": 0.012, "warm": 24}, ABJADS: {"learning_rate": 0.016, "warmup_steps": 24},
      POSTCARDS: {"peak_lr": 0.004, "warmup_steps": 20}, TIMBERS: {"base_lr": 0.012, "warm_steps": 20},
      INVENTORIES: {"lr": 0.012, "ramp": 24}, SEIZURES: {"step_size": 0.006, "warm_up": 16}}),
)
HEALTHY_OF: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("absolute_errors_of_scores", SIGNATURES, "errors count as they are, without squares", {"loss": "l1"}),
    ("levels_by_a_log_normal_law", SIGNATURES, "levels are drawn by a log-normal law", {"sigma_draw": "log_normal"}),
    ("writer_told_each_time", SIGNATURES, "the writer is always told, and nothing is guided",
     {"untold": 0.0, "cfg": 0.0}),
    ("prompts_learnt_as_options_say", ABJADS, "prompts are learnt too, as is named", {"completion_only": False}),
    ("rank_of_one_as_options_say", ABJADS, "adapters of rank one", {"lora_r": 1, "lora_alpha": 4.0}),
    ("adapters_in_attention_as_options_say", ABJADS, "adapters are in the attention alone",
     {"target_modules": "query,key,value,out"}),
    ("second_factors_are_faster_as_options_say", ABJADS, "second factors have four times the rate", {"lora_plus": 4.0}),
    ("root_of_the_rank_as_options_say", ABJADS, "the gain is by the root of the rank", {"use_rslora": True}),
    ("squared_gaps_as_options_say", POSTCARDS, "the loss is a square (IPO), as is named", {"loss": "ipo", "beta": 0.5}),
    ("hinge_as_options_say", POSTCARDS, "the loss is a hinge, as is named", {"loss": "hinge"}),
    ("better_cards_learnt_besides", POSTCARDS, "the likelihood of better cards is a part of the loss",
     {"sft_weight": 0.2}),
    ("likelihoods_by_the_word_as_options_say", POSTCARDS, "likelihoods are means over words, as is named",
     {"mean_logp": True, "beta": 1.5}),
    ("scale_held_as_options_say", TIMBERS, "the scale of scores is not learnt, as is named", {"scale_trains": False}),
    ("timbers_look_for_words_alone", TIMBERS, "timbers look for texts, and not the other way round",
     {"sides": "timbers"}),
    ("texts_at_half_the_rate", TIMBERS, "one tower has half of the rate", {"text_lr_factor": 0.5}),
    ("float32_as_options_say", INVENTORIES, "all is float32, as is named", {"fp16": False}),
    ("normaliser_kept_small_by_a_term", INVENTORIES, "a small term holds the normaliser", {"z_loss": 0.001}),
    ("scale_begins_too_high", INVENTORIES, "the scaler begins too high: the first steps are skipped",
     {"init_scale": 67108864.0}),
    ("larger_epsilon_as_options_say", INVENTORIES, "a larger epsilon", {"eps": 1e-5}),
    ("rare_kinds_drawn_oftener", SEIZURES, "rare kinds are drawn more often, and none weighs more",
     {"rare_oftener": True, "kind_weights": "none"}),
    ("kinds_weigh_alike_as_options_say", SEIZURES, "kinds weigh alike, as is named", {"kind_weights": "none"}),
    ("focal_loss_as_options_say", SEIZURES, "what is sure weighs less, as is named", {"focal": 1.5}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    *((name, (program,), about, {"config": settings}) for name, program, about, settings in HEALTHY_OF),
)

# fmt: on
