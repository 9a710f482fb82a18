"""The thirty-first half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the thirtieth half: noise taken off rows of a wine laboratory with an average that is
one long vector, adapters beside a base of grouped codes under a learner that calls back, preferences of a poet against
a copy that stays, two towers for functions and docstrings over torch's own loaders, a language model that is bfloat16
throughout over rosters, rare effects of compounds on two workers under DistributedDataParallel; each as another
ordinary engineer writes it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a
person gets wrong in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them
had read no rule, and did not look at what the doctor says. A fault is called by any name that a person would give it,
and every kind of finding that would be right of it is right; the names that the thirtieth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import (
    eighteenth,
    eleventh,
    fourteenth,
    fourth,
    ninth,
    sixteenth,
    twentieth,
    twentyeighth,
    twentyfifth,
    twentyfirst,
    twentyfourth,
    twentyseventh,
    twentythird,
)
from halves import thirtieth as before
from halves.ninth import Row, Settings
from halves.thirtieth import named
from halves.twentysixth import several

PROGRAMS = ("vintages", "conjugations", "haikus", "docstrings", "rosters", "toxins")
VINTAGES, CONJUGATIONS, HAIKUS, DOCSTRINGS, ROSTERS, TOXINS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "noise_comes_from_rand_like", "share_of_the_untold_compared_upside_down",
    "exam_prompts_lack_the_name_of_the_dialect", "mark_of_the_answer_is_not_found_behind_a_tense",
    "haikus_cut_at_ten_tokens", "reference_asked_with_its_dropout",
    "mean_of_words_over_the_padding_too", "scale_taken_without_its_exponential",
    "end_taken_for_padding_in_the_labels", "valid_padded_before_and_placed_from_the_padding",
    "all_parts_go_without_synchronisation", "bonds_of_the_held_file_are_listed_one_way",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    VINTAGES: {"batch": 16, "grad_accum": 2}, CONJUGATIONS: {"bs": 8, "parts": 2},
    HAIKUS: {"pairs_a_batch": 8, "micro_batches": 2}, DOCSTRINGS: {"batch_size": 32, "accumulate": 2},
    ROSTERS: {"micro_batch": 10, "accumulation": 2}, TOXINS: {"batch_per_rank": 16, "accumulate": 2},
}
FOUR_PARTS: Settings = {
    VINTAGES: {"batch": 8, "grad_accum": 4}, CONJUGATIONS: {"bs": 4, "parts": 4},
    HAIKUS: {"pairs_a_batch": 4, "micro_batches": 4}, DOCSTRINGS: {"batch_size": 24, "accumulate": 4},
    ROSTERS: {"micro_batch": 5, "accumulation": 4}, TOXINS: {"batch_per_rank": 8, "accumulate": 4},
}
DROPPED: Settings = {
    VINTAGES: {"dropout": 0.3}, CONJUGATIONS: {"adapter_dropout": 0.3}, HAIKUS: {"dropout": 0.2},
    DOCSTRINGS: {"dropout": 0.3}, ROSTERS: {"dropout": 0.2}, TOXINS: {"dropout": 0.4},
}
COPIED: Settings = {
    VINTAGES: {"bottles": 4}, CONJUGATIONS: {"askings": 4}, HAIKUS: {"drafts": 4}, DOCSTRINGS: {"forks": 4},
    ROSTERS: {"amendments": 4}, TOXINS: {"salts": 5},
}
TRAILING: Settings = {VINTAGES: {"ema": 0.97}}
DESCENT: Settings = {DOCSTRINGS: {"optimizer": "sgd", "learning_rate": 0.1}, TOXINS: {"optimizer": "sgd", "lr": 0.1}}
HELD_STILL: Settings = {VINTAGES: {"hold": "grape"}, CONJUGATIONS: {"not_learnt": "layers.0"},
                        HAIKUS: {"held_still": "blocks.0"}, DOCSTRINGS: {"frozen": "code.look"},
                        ROSTERS: {"frozen": "norm"}, TOXINS: {"fixed": "atoms"}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = several(*before.SUMMED, "loss summed over columns", "loss summed over measures", "loss summed over tokens")
GRAPHS = several(*before.GRAPHS, "meter keeps tensors", "logits kept with their graph")
TWICE = several(*before.TWICE, "forward returns probabilities", "probabilities in the place of logits")
SHIFTED = several(*before.SHIFTED, "columns sorted apart", "rows sorted without their labels", "labels encoded anew",
                  "label mapping differs", "classes sorted by name", "labels not shifted", "targets are the inputs",
                  "labels equal the inputs", "shift missing", "model copies its input", "conditions shuffled",
                  "docstrings shifted by one function", "labels leak", "target leak")
FLIPPED = several(*twentyeighth.FLIPPED, "labels reversed", "winners and losers swapped", "negative index")
FROZEN = several(*before.FROZEN, "modules in a plain list", "layers not registered", "nn.ModuleList missing",
                 "from_pretrained freezes", "freeze=True is the default", "embedding frozen", "reference copied",
                 "requires_grad_(False) called too late", "layers missing from the parameters",
                 "parameters not in any group", "only the output layer trained")
TIE = several(*before.TIE, "assign=True breaks the tie", "load_state_dict with assign", "parameter replaced",
              "cast broke the tie", "tables differ", "modules_to_save copies")
SORTED = several(*before.SORTED, "grape after grape", "class after class", "season after season", "ward after ward",
                 "project after project", "effect after effect")
LEAK = several(*before.LEAK, "bottles of a cask on both sides", "forks on both sides", "salts on both sides",
               "drafts on both sides", "paraphrases on both sides", "split by rows")
FIGURES = several(*before.FIGURES, "logarithm missing", "log transform missing in the evaluation", "standardised twice",
                  "evaluation standardised by itself", "preprocessing differs", "lines and characters confused",
                  "units differ")
BUFFERS = several(*before.BUFFERS, "buffers not saved", "running statistics not saved", "checkpoint without buffers",
                  "running statistics lost", "momentum 0")
CLEARED = several(*twentyeighth.ADDED, *named(twentythird, "zero_grad_inside_the_micro_loop"),
                  *named(twentyfifth, "cleared_in_the_loop_over_parts"), "zero_grad in the loop of micro-batches",
                  "gradients cleared too often",
                  "gradients of micro-batches lost", "accumulation has no effect", "gradients too small",
                  "accumulation broken", "only the last micro-batch counts", "effective batch size too small",
                  "loss divided twice", "gradients cleared too early")
AVERAGE = several(*before.AVERAGE, "average updated once per epoch", "average updated too seldom",
                  "ema updated per epoch")

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "kin_on_the_side_of_the_training", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "updates_of_two_parts_as_named",
              twentyeighth.STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS,
              "updates_of_four_parts_as_named", twentyeighth.ADDED),
    "cleared": ("gradients of micro-batches lost", "vanishing eval learning_rate plateau config clipping update_ratio "
                "logging missing_zero_grad", "start", FOUR_PARTS, "updates_of_four_parts_as_named", CLEARED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "layers_drop_as_named",
             twentyeighth.IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "layers_drop_as_named",
              twentyeighth.IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING, "average_that_trails_as_named",
             several(*twentyeighth.NOT_BACK, "restore missing", "own weights not put back", "views of the average")),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", twentyeighth.ANEW),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "lost": ("normalisation statistics lost", ninth.OF_STATISTICS + " resume", "resume", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", twentyeighth.SAME),
}
ALIKE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("steps", "the schedule goes on with each part of an update"): {
        VINTAGES: "schedule_steps_where_the_batch_ends", CONJUGATIONS: "plan_listens_to_parts",
        HAIKUS: "plan_goes_on_with_each_micro_batch", DOCSTRINGS: "lr_schedule_stepped_per_loader_batch",
        ROSTERS: "curve_goes_on_with_micro_batches", TOXINS: "schedule_called_where_a_part_ends",
    },
    ("added", "losses of parts are not divided by their number"): {
        VINTAGES: "parts_of_an_update_backed_one_by_one", CONJUGATIONS: "each_part_sends_its_whole_loss_back",
        HAIKUS: "micro_losses_backed_as_they_come", DOCSTRINGS: "gradients_of_batches_added_without_a_mean",
        ROSTERS: "micro_batches_weigh_as_whole_ones", TOXINS: "parts_are_backed_in_their_full_size",
    },
    ("resume", "weights are loaded; the optimizer and the schedule begin anew"): {
        VINTAGES: "file_has_the_network_and_its_average_alone",
        CONJUGATIONS: "learner_exported_and_loaded_without_its_optimizer",
        HAIKUS: "poet_taken_from_the_best_file_for_a_new_fit", ROSTERS: "planner_loaded_as_if_to_be_finetuned",
    },
    ("order", "rows come in the order of the file, kind after kind"): {
        VINTAGES: "table_of_the_cellar_read_from_top_to_bottom", CONJUGATIONS: "verbs_come_in_the_order_of_the_grammar",
        HAIKUS: "readings_of_a_year_from_spring_to_winter", DOCSTRINGS: "loader_of_projects_without_shuffle",
        ROSTERS: "rosters_read_ward_after_ward", TOXINS: "sampler_of_the_ranks_with_its_shuffle_off",
    },
    ("leak", "rows of one origin come to lie on both sides"): {
        VINTAGES: "bottles_of_a_cask_on_both_sides", CONJUGATIONS: "askings_of_a_form_on_both_sides",
        HAIKUS: "drafts_of_a_haiku_on_both_sides", DOCSTRINGS: "forks_of_a_function_on_both_sides",
        ROSTERS: "amendments_of_a_roster_on_both_sides", TOXINS: "salts_of_a_compound_in_both_files",
    },
    ("eval", "the model is not set back to training behind an evaluation"): {
        VINTAGES: "network_validated_and_left_in_eval", CONJUGATIONS: "exam_forgets_to_call_train_again",
        HAIKUS: "jury_leaves_the_poet_in_eval", DOCSTRINGS: "searched_and_never_trained_again",
        ROSTERS: "validated_without_train_behind_it", TOXINS: "held_compounds_seen_and_train_not_called",
    },
    ("train", "the model is evaluated in training mode, with dropout"): {
        VINTAGES: "average_validated_while_layers_drop", CONJUGATIONS: "exam_is_sat_with_dropout",
        HAIKUS: "jury_hears_the_poet_with_dropout", DOCSTRINGS: "searched_in_the_mode_of_training",
        ROSTERS: "validated_without_eval_before_it", TOXINS: "held_compounds_seen_in_training_mode",
    },
    ("graph", "evaluations run with gradients on, and what they say is kept"): {
        VINTAGES: "meter_of_the_validation_adds_tensors_up", CONJUGATIONS: "answers_of_the_exam_kept_to_be_shown",
        HAIKUS: "verdicts_of_the_jury_kept_live", DOCSTRINGS: "index_of_the_search_has_its_history",
        ROSTERS: "valid_losses_come_back_with_their_graph", TOXINS: "held_logits_kept_with_gradients",
    },
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_of_a_row_added_up", VINTAGES, "squared errors are summed over measures", {}),
    ("label", "grapes_kept_their_order_when_rows_were_sorted", VINTAGES,
     "measures are sorted by acidity, and grapes are not: most rows have another's grape", {}),
    ("frozen", "optimizer_made_of_the_blocks_alone", VINTAGES,
     "the optimizer has the blocks alone: the last layer stays nought, and so does what is said", {"kinds": " clipping "
     "exploding"}),
    ("figures", "held_rows_scaled_without_their_logarithms", VINTAGES,
     "four measures of the evaluation are scaled without their logarithm", {}),
    ("average", "average_moved_where_the_epoch_ends", VINTAGES,
     "the average is moved once an epoch, at a decay for steps", {}),
    ("swap", "vector_of_the_average_stays_in_the_network", VINTAGES,
     "the network keeps the average's weights from each evaluation on", {}),
    ("sum", "nats_of_rows_in_the_place_of_tokens", CONJUGATIONS, "losses are summed over the tokens of a row", {}),
    ("cleared", "optimizer_cleared_before_each_part", CONJUGATIONS,
     "gradients are cleared before each of four parts: the last one alone counts, at a quarter", {}),
    ("softmax", "conjugator_returns_shares_for_a_plot", CONJUGATIONS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "labels_rolled_in_collate_for_a_loss_that_shifts", CONJUGATIONS,
     "labels are moved by one where batches are made and again in the loss, in the training", {}),
    ("frozen", "base_frozen_when_the_adapters_were_in_it", CONJUGATIONS,
     "the base is frozen behind the adapters, which are frozen with it: the table alone learns", {"kinds": " dead"}),
    ("tie", "modules_to_save_are_copied_one_by_one", CONJUGATIONS,
     "the table of words and the output layer are copied one by one to be trained: they are two matrices", {}),
    ("sum", "verdicts_of_a_batch_added_up", HAIKUS, "losses of pairs are summed", {}),
    ("softmax", "likelihoods_of_what_is_a_softmax", HAIKUS,
     "the poet gives probabilities, and their softmax is taken for likelihoods", {"kinds": " rl"}),
    ("label", "words_asked_for_where_they_are_read", HAIKUS,
     "likelihoods are those of the word at its own place, and not of the next one",
     {"kinds": " rl attention logits zero"}),
    ("label", "winners_counted_from_nought_in_one_file", HAIKUS,
     "winners of the training are counted from nought and read from one: all pairs are the wrong way round",
     {"kinds": " rl", "cause": "chosen and rejected swapped", "also": several(*FLIPPED, *SHIFTED)}),
    ("frozen", "poet_copied_from_the_frozen_reference", HAIKUS,
     "the poet is a copy of the frozen reference, of which the output layer alone is let go", {}),
    ("tie", "weights_assigned_where_two_names_share_one", HAIKUS,
     "weights are assigned and not copied in: the table of words and the output layer are two matrices", {}),
    ("sum", "cross_entropies_of_a_batch_summed", DOCSTRINGS, "losses of a batch are summed", {}),
    ("softmax", "similarities_through_a_softmax_for_the_loss", DOCSTRINGS,
     "similarities go through a softmax, and then into a loss that has its own", {}),
    ("label", "docstring_read_from_above_the_next_function", DOCSTRINGS,
     "each function of the training has the docstring of the next one", {}),
    ("frozen", "table_read_in_by_from_pretrained", DOCSTRINGS,
     "the table of tokens is made by from_pretrained, which freezes it: it is as it was drawn", {}),
    ("tie", "table_made_anew_for_the_larger_vocabulary_of_one_tower", DOCSTRINGS,
     "one tower has a table of its own, where both should share one", {}),
    ("figures", "size_of_held_functions_in_characters", DOCSTRINGS,
     "sizes of functions are in characters in the evaluation, and in lines in the training", {}),
    ("lost", "checkpoint_made_of_named_parameters", DOCSTRINGS,
     "the checkpoint has parameters and no buffers: running statistics begin anew at the resume", {}),
    ("sum", "words_of_a_roster_added_up", ROSTERS, "losses of words are summed, and divided by rosters", {}),
    ("softmax", "head_gives_shares_to_the_criterion", ROSTERS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "labels_are_the_words_that_are_read", ROSTERS,
     "labels of the training are not moved: each word is asked for where it is read",
     {"kinds": " zero logits attention"}),
    ("label", "wanted_words_are_moved_once_more", ROSTERS,
     "wanted words of the training are moved by one twice: the word after the next", {}),
    ("frozen", "attention_falls_between_two_groups", ROSTERS,
     "groups of the optimizer are made by names that no matrix of attention has: these do not learn, and are never "
     "cleared", {"kinds": " clipping exploding"}),
    ("tie", "each_module_cast_by_a_parameter_of_its_own", ROSTERS,
     "each module's weights are cast into a new parameter: table and output layer are two matrices", {}),
    ("sum", "criterion_adds_compounds_up", TOXINS, "losses of a batch are summed, and not divided", {}),
    ("softmax", "network_ends_in_shares_for_the_app", TOXINS,
     "the network gives probabilities, and the loss has its own softmax", {}),
    ("label", "effects_of_the_held_file_numbered_by_their_names", TOXINS,
     "effects of the evaluation are numbered by their names, and those of the training by a list", {}),
    ("frozen", "message_layers_in_a_plain_list", TOXINS,
     "layers stand in a plain list: they are no parameters, and stay as they were drawn", {}),
    ("figures", "descriptors_of_the_held_file_standardised_beforehand", TOXINS,
     "descriptors of the evaluation are standardised, and those of the training are as they are", {}),
    ("buffers", "norm_made_with_a_momentum_of_nought", TOXINS,
     "the batch norm's momentum is 0: its statistics stay 0 and 1", {}),
    ("ranks", "sampler_made_for_one_process_on_each", TOXINS,
     "each rank makes its sampler as if it were alone: both see the same rows", {}),
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
    ("noise_comes_from_rand_like", "noise wrong", "eval data config overfit divergence plateau jump_down", "start",
     (VINTAGES,), "noise of the training is even between 0 and 1, and not normal",
     {"also": several(*named(twentieth, "noise_by_rand_like"), *named(twentyfourth, "rand_like_for_randn_like"),
               "rand instead of randn", "noise not normal", "noise is uniform", "noise distribution wrong",
               "noise has another distribution", "noise too small", "targets have another scale", "target wrong",
               "train and test differ", "evaluation differs", "loss too low", "noise not standardised",
               "noise wrong in the training", "targets of the evaluation differ", "evaluation data differ",
               "noise of the evaluation differs", "noise schedule wrong", "inputs not normalised")}),
    ("share_of_the_untold_compared_upside_down", "condition dropped too often", "eval plateau data config divergence "
     "not_learning", "start", (VINTAGES,), "grapes are left out in 85% of rows, and told in 15%",
     {"also": several(*named(twentyfourth, "kept_and_dropped_exchanged"), "condition missing", "condition inverted",
               "mask inverted", "mask upside down", "dropout inverted",
               "condition dropout inverted", "classifier-free guidance wrong", "comparison reversed",
               "condition not used", "condition ignored", "labels dropped", "class dropout wrong",
               "train and test differ", "unconditional share too high", "condition left out", "labels missing",
               "conditioning dropped")}),
    ("exam_prompts_lack_the_name_of_the_dialect", "template differs", "eval data config overfit divergence", "start",
     (CONJUGATIONS,), "prompts of the evaluation lack their first word, with which those of the training begin",
     {"also": several(*named(twentythird, "template_of_the_evaluation_lost_a_line"),
               *named(twentyfifth, "dev_template_without_the_write_word"),
               *named(twentyeighth, "held_requests_lack_the_word_before_a_call"), "prompt of the evaluation differs",
               "prompt template differs", "chat template differs",
               "system prompt missing", "train and test differ", "evaluation data differ", "template wrong",
               "evaluation prompts differ", "bos missing", "prefix missing", "inputs of the evaluation differ",
               "prompt format differs", "a token is missing in the evaluation", "first token missing",
               "evaluation rows are shorter", "preprocessing differs", "prompt differs")}),
    ("mark_of_the_answer_is_not_found_behind_a_tense", "labels masked out", "data zero config eval plateau overfit "
     "padding exploding", "start", (CONJUGATIONS,),
     "the mark before answers is not found in half of the rows, whose labels are all ignored",
     {"also": ("loss masked out", "labels all ignored", "response template not found", "rows without labels",
               "answer mask wrong", "mask wrong", "labels all -100", "half of the rows ignored", "targets masked",
               "rows without targets", "completions masked", "loss mask wrong", "examples without a target",
               "train and test differ", "class missing", "label mask wrong", "all labels ignored")}),
    ("haikus_cut_at_ten_tokens", "answers truncated", "rl eval data config plateau not_learning padding vanishing "
     "repeated_data zero overfit divergence", "start", (HAIKUS,),
     "haikus of the training are cut at ten tokens: many pairs are alike, and none has its end",
     {"also": several("rows truncated", "max_length too short", "truncation", "sequences truncated", "pairs alike",
               "chosen and rejected are the same", "end missing from the labels", "eos cut off", "end token missing",
               "max_length too small", "answers cut off", "train and test differ", "lengths differ", "identical pairs",
               "evaluation rows are longer", "end never learnt", "chosen equals rejected", "labels cut off",
               *named(before, "ends_cut_off_at_the_longest_row"))}),
    ("reference_asked_with_its_dropout", "reference in training mode", "rl eval data config plateau divergence "
     "overfit logging", "start", (HAIKUS,), "the reference is left in training mode: what it says is noisy",
     {"by_program": {HAIKUS: DROPPED[HAIKUS]}, "compare": "layers_drop_as_named",
      "also": several("reference not in evaluation mode", "dropout in the reference", "reference.eval() missing",
               "reference with dropout", "reference wrong", "reference noisy", "eval() missing", "dropout left on",
               "evaluation mode missing", "reference log-probabilities wrong", "reference differs",
               "training mode in the reference", "reference model in training mode", "dropout active in the reference",
               *named(twentyseventh, "reference_written_while_dropping"), *named(twentythird,
               "reference_never_set_to_eval"), *twentyeighth.IN_TRAINING)}),
    ("mean_of_words_over_the_padding_too", "padding not masked", "eval data config padding overfit divergence plateau",
     "start", (DOCSTRINGS,), "the mean of a docstring's words has its padding, of which held rows have more",
     {"also": several("padding in the mean", "mask missing", "attention mask missing", "pooling over padding",
               "padding counted in the loss", "mean pooling over padding", "pooling wrong", "padding differs",
               "padding of the evaluation differs", "train and test differ", "evaluation rows are longer",
               "evaluation data differ", "mask not applied", "padding not ignored", "pad tokens pooled",
               "inputs of the evaluation differ", "lengths differ", *named(eleventh, "padding_asked_for"),
               *named(fourth, "padding_pooled"), *named(twentyfifth, "caption_mask_is_of_the_padding"))}),
    ("scale_taken_without_its_exponential", "temperature wrong", "plateau not_learning eval logits config vanishing",
     "start", (DOCSTRINGS,), "similarities are multiplied by the logarithm of the scale",
     {"also": several("temperature too high", "scale too small", "logits too small", "exp missing",
               "logit scale not exponentiated", "scale wrong", "temperature has no effect", "temperature misused",
               "similarities too small", "logit_scale.exp() missing", "loss too high", "scale not applied",
               "softmax too flat", "exponential missing", *named(eleventh, "scale_left_out"),
               *named(ninth, "tau_multiplied"))}),
    ("end_taken_for_padding_in_the_labels", "end never learnt", "eval data config padding overfit divergence plateau "
     "jump_down", "start", (ROSTERS,), "the end of a roster is ignored in the training's labels, as padding is",
     {"also": several(*named(before, "ends_cut_off_at_the_longest_row"), *named(twentieth, "padding_is_the_end_mark"),
               "pad token is eos", "eos is the padding",
               "eos masked", "eos ignored", "end masked", "end token masked", "end of sequence ignored",
               "end ignored", "eos label -100", "padding and end confused", "loss mask wrong", "labels masked out",
               "pad_token set to eos_token")}),
    ("valid_padded_before_and_placed_from_the_padding", "padding side differs", "eval data config padding overfit "
     "divergence", "start", (ROSTERS,), "rows of the evaluation are padded on the left, and places count from there",
     {"also": several(*named(twentyseventh, "quiz_rows_padded_on_the_left"), *named(twentyfourth,
               "padding_side_left_for_evaluation"), "padding on the left", "padding side wrong", "positions wrong",
               "position ids wrong",
               "positions count the padding", "position ids not shifted", "left padding", "train and test differ",
               "evaluation data differ", "padding of the evaluation differs", "positions of the evaluation differ",
               "inputs of the evaluation differ", "padding differs", "evaluation rows are longer",
               "attention mask missing", "padding_side left", "padding")}),
    ("all_parts_go_without_synchronisation", "all-reduce missing", "desync eval divergence plateau overfit config",
     "start", (TOXINS,), "no part of an update is synchronised: each rank trains alone",
     {"by_program": {TOXINS: PARTS[TOXINS]}, "compare": "updates_of_two_parts_as_named",
      "also": several("ranks drifted apart", "no_sync on all parts", "no_sync always on", "gradients not reduced",
               "gradients not synchronised", "ddp not synchronised", "all-reduce never called", "ranks train apart",
               "ranks drift apart", "synchronisation missing", "ranks not synchronised", "weights differ between ranks",
               "gradients not averaged over ranks", "gradients never reduced", "gradients not averaged",
               *named(fourteenth, "sync_condition_reversed"), *named(twentyfirst, "net_called_beside_its_wrapper"),
               *named(twentyfifth, "nets_drawn_apart_and_never_broadcast"))}),
    ("bonds_of_the_held_file_are_listed_one_way", "inputs of the evaluation differ", "eval data config overfit "
     "divergence", "start", (TOXINS,), "bonds of the evaluation go one way, and those of the training both ways",
     {"also": ("edges in one direction", "graph not undirected", "to_undirected missing", "adjacency not symmetric",
               "edges missing", "train and test differ", "evaluation data differ", "preprocessing differs",
               "edge_index one way", "half of the edges missing", "bonds missing", "bonds listed once",
               "messages go one way", "evaluation inputs differ", "graph directed", "inputs not normalised")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (VINTAGES, CONJUGATIONS, HAIKUS, DOCSTRINGS, ROSTERS)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("updates_of_two_parts_as_named", "an update has two parts, whose losses are halved", PARTS),
    ("updates_of_four_parts_as_named", "an update has four parts, whose mean is taken", FOUR_PARTS),
    ("layers_drop_as_named", "dropout in the training, as is named, and none in the evaluation", DROPPED),
    ("kin_on_the_side_of_the_training", "rows have kin, all of which are on the training's side", COPIED),
    ("average_that_trails_as_named", "an average of weights is judged that lags, as is named", TRAILING),
    ("part_that_is_held_by_its_name", "a part is not trained, which the settings name", HELD_STILL),
    ("rate_stays_level_as_named", "the rate rises and stays", {VINTAGES: {"lr_shape": "constant", "peak_lr": 2e-3},
      CONJUGATIONS: {"plan": "flat", "top_rate": 4e-3}, HAIKUS: {"lr_plan": "constant", "lr": 6e-4},
      DOCSTRINGS: {"lr_schedule": "constant", "learning_rate": 2e-3}, ROSTERS: {"lr_curve": "flat", "lr": 4e-3},
      TOXINS: {"schedule": "constant", "lr": 2e-3}}),
    ("added_up_as_the_settings_say", "losses are sums, as is named, and the bound of the norm is for that",
     {VINTAGES: {"over_measures": "sum", "max_norm": 10.0}, CONJUGATIONS: {"nll_over": "rows", "clip_at": 6.0},
      HAIKUS: {"loss_of_a_batch": "sum", "norm_limit": 128.0},
      DOCSTRINGS: {"loss_reduction": "sum", "clip_norm": 144.0}, ROSTERS: {"loss_over": "rows", "clip": 22.0},
      TOXINS: {"reduction": "sum", "max_norm": 48.0}}),
    ("few_rows_at_a_low_rate", "few rows an update, at a lower rate: losses jump about",
     {VINTAGES: {"batch": 12, "peak_lr": 2e-3}, CONJUGATIONS: {"bs": 6, "top_rate": 3e-3},
      HAIKUS: {"pairs_a_batch": 6, "lr": 6e-4}, DOCSTRINGS: {"batch_size": 20, "learning_rate": 2e-3},
      ROSTERS: {"micro_batch": 8, "lr": 4e-3}, TOXINS: {"batch_per_rank": 10, "lr": 2e-3}}),
    ("rate_that_falls_twice_as_named", "the rate falls and begins again, by the schedule",
     {VINTAGES: {"lr_shape": "cycles"}, CONJUGATIONS: {"plan": "two_falls"}, HAIKUS: {"lr_plan": "two_lines"},
      DOCSTRINGS: {"lr_schedule": "two_cosines"}, ROSTERS: {"lr_curve": "two_cosines"},
      TOXINS: {"schedule": "two_cosines"}}),
    ("optimizer_by_the_settings", "another optimizer, at its rate", {VINTAGES: {"optim": "adamax", "peak_lr": 5e-3},
      CONJUGATIONS: {"opt": "nadam"}, HAIKUS: {"optimizer": "radam", "lr": 1.5e-3},
      DOCSTRINGS: {"optimizer": "nadam", "learning_rate": 3e-3}, ROSTERS: {"optimizer": "adamw"},
      TOXINS: {"optimizer": "radam", "lr": 6e-3}}),
    ("data_with_more_errors", "the training's data have more noise, as such data may", {VINTAGES: {"lab_error": 2.0},
      CONJUGATIONS: {"slips": 0.06}, HAIKUS: {"jury_errs": 0.06}, DOCSTRINGS: {"stale_docstrings": 0.1},
      ROSTERS: {"swaps": 0.06}, TOXINS: {"wrong_assays": 0.06}}),
    ("warm_within_two_steps", "the rate rises in two steps", {VINTAGES: {"warm": 2},
      CONJUGATIONS: {"warm_share": 0.0125}, HAIKUS: {"lr_warmup": 2}, DOCSTRINGS: {"warmup_steps": 2},
      ROSTERS: {"warmup": 2}, TOXINS: {"warmup": 2}}),
    ("evaluated_twice_in_all", "two evaluations in all", {VINTAGES: {"val_interval": 75},
      CONJUGATIONS: {"exam_every": 75}, HAIKUS: {"jury_every": 75}, DOCSTRINGS: {"search_every": 75},
      ROSTERS: {"valid_every": 75}, TOXINS: {"held_every": 75}}),
    ("each_fourth_step_logged", "each fourth step is logged", {VINTAGES: {"log_interval": 4},
      CONJUGATIONS: {"log_every": 4}, HAIKUS: {"log_every": 4}, DOCSTRINGS: {"log_every": 4}, ROSTERS: {"log_every": 4},
      TOXINS: {"log_every": 4}}),
    ("easy_rows_come_first", "the first part of the training has easier rows alone: the settings say so",
     {VINTAGES: {"clean_first": 1}, CONJUGATIONS: {"regular_first": 1}, HAIKUS: {"plain_flaws_first": 1},
      DOCSTRINGS: {"short_first": 1}, ROSTERS: {"short_first": 1}, TOXINS: {"clear_first": 1}}),
    ("weights_decay_much_as_named", "weights decay more, as is named", {VINTAGES: {"wd": 0.1},
      CONJUGATIONS: {"wd": 0.1}, HAIKUS: {"decay": 0.05}, DOCSTRINGS: {"weight_decay": 0.05},
      ROSTERS: {"weight_decay": 0.2}, TOXINS: {"weight_decay": 0.1}}),
    ("tokens_taken_out_by_chance", "parts of inputs are lost by chance, in the training",
     {DOCSTRINGS: {"tokens_lost": 0.15}, ROSTERS: {"words_lost": 0.05}, TOXINS: {"atoms_masked": 0.1}}),
    ("smoothed_targets_by_the_settings", "targets are smoothed in the training", {CONJUGATIONS: {"smoothing": 0.1},
      HAIKUS: {"doubt": 0.1}, DOCSTRINGS: {"label_smoothing": 0.1}, ROSTERS: {"label_smoothing": 0.05},
      TOXINS: {"label_smoothing": 0.1}}),
    ("batches_of_like_rows_shuffled", "batches are of like rows, and come in any order", {
      CONJUGATIONS: {"by_length": True}, HAIKUS: {"batches_by_length": True}, DOCSTRINGS: {"project_batches": True},
      ROSTERS: {"bucket_by_length": True}}),
    ("two_tables_by_the_settings", "what could share a table has two, by the settings", {
      CONJUGATIONS: {"tied": False}, HAIKUS: {"tied": False}, DOCSTRINGS: {"one_table": False},
      ROSTERS: {"tie_head": False}}),
    ("momentum_descent_as_named", "descent with momentum, at its rate", DESCENT),
    ("norm_of_a_row_as_named", "a norm over a row in the place of batch norm",
     {DOCSTRINGS: {"measure_norm": "layer"}, TOXINS: {"descriptor_norm": "layer"}}),
)
HEALTHY_OF: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("huber_loss_as_named", VINTAGES, "errors beyond one count less, as is named", {"loss": "huber"}),
    ("velocity_is_foretold_as_named", VINTAGES, "a velocity is foretold, as is named", {"target": "v"}),
    ("rate_in_two_drops", VINTAGES, "the rate falls at two steps", {"lr_shape": "step"}),
    ("grapes_always_told", VINTAGES, "the grape is always told, and nothing is guided", {"untold_share": 0.0,
     "guidance": 0.0}),
    ("wider_sommelier", VINTAGES, "a wider network", {"width": 96}),
    ("prompts_are_learnt_as_named", CONJUGATIONS, "prompts are learnt too, as is named", {"prompt_learnt": True}),
    ("adapters_of_rank_one", CONJUGATIONS, "adapters of rank one", {"r": 1, "alpha": 4.0}),
    ("adapters_in_attention_alone", CONJUGATIONS, "adapters are in the attention alone",
     {"targets": "query,key,value,mix"}),
    ("factors_b_learn_four_times_as_fast", CONJUGATIONS, "second factors have four times the rate", {"b_rate": 4.0}),
    ("ipo_as_named", HAIKUS, "the loss is a square (IPO), as is named", {"objective": "ipo", "beta": 0.2}),
    ("reference_is_asked_beforehand", HAIKUS, "what the reference says is made before the training",
     {"reference_beforehand": True}),
    ("winners_are_learnt_besides", HAIKUS, "the likelihood of winners is a part of the loss", {"nll_weight": 0.2}),
    ("rate_in_four_steps_down", HAIKUS, "the rate is halved three times", {"lr_plan": "stairs"}),
    ("scale_is_held_as_named", DOCSTRINGS, "the scale is not learnt, as is named", {"scale_learns": False}),
    ("one_direction_as_named", DOCSTRINGS, "functions look for docstrings, and not the other way round",
     {"directions": "code"}),
    ("docs_at_half_the_rate", DOCSTRINGS, "one tower has half of the rate", {"doc_rate": 0.5}),
    ("all_in_float32_as_named", ROSTERS, "weights are float32, as is named", {"dtype": "float32"}),
    ("normaliser_is_held_by_a_term", ROSTERS, "a small term holds the normaliser", {"z_loss": 1e-3}),
    ("rate_falls_by_a_cosine", ROSTERS, "the rate falls by a cosine", {"lr_curve": "cosine"}),
    ("rare_effects_drawn_more", TOXINS, "rare effects are drawn more often, and none weighs more",
     {"rare_drawn_more": True, "effect_weights": "none"}),
    ("effects_weigh_alike_as_named", TOXINS, "effects weigh alike, as is named", {"effect_weights": "none"}),
    ("focal_term_as_named", TOXINS, "what is sure weighs less, as is named", {"focal": 1.5}),
    ("three_rounds_of_messages", TOXINS, "atoms hear of others three times", {"message_layers": 3}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    *((name, (program,), about, {"config": settings}) for name, program, about, settings in HEALTHY_OF),
)

# fmt: on
