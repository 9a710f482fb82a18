"""The twenty-ninth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-eighth half: noise taken off years of weather stations with torch's own
average, adapters beside layers of eight levels, preferences of a recurrent florist against a column of likelihoods
that is made once, two towers for seashells and notes under a sigmoid, a language model in float16 with a scaler over
packed games, rare galaxies on two workers under DistributedDataParallel; each as another ordinary engineer writes it.
Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong in that
program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did
not look at what the doctor says. A fault is called by any name that a person would give it, and every kind of finding
that would be right of it is right; the names that the twenty-eighth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, ninth, sixteenth, twentysixth
from halves import twentyeighth as before
from halves.ninth import Row, Settings
from halves.twentysixth import several

PROGRAMS = ("climates", "passports", "bouquets", "seashells", "volleys", "galaxies")
CLIMATES, PASSPORTS, BOUQUETS, SEASHELLS, VOLLEYS, GALAXIES = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "guided_though_zones_were_never_hidden",
    "merged_into_eight_levels_to_be_judged", "ends_masked_since_they_are_the_padding",
    "words_shuffled_behind_the_column", "column_made_while_words_drop",
    "lengths_taken_over_the_batch", "scale_bounded_by_the_bound_of_its_logarithm",
    "scale_grows_with_each_step", "noughts_of_a_score_masked_as_padding",
    "no_sync_wraps_each_backward", "prior_is_in_the_survey_too",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    CLIMATES: {"batch": 12, "micro_batches": 2}, PASSPORTS: {"batch": 8, "gradient_steps": 2},
    BOUQUETS: {"pairs_per_step": 8, "accumulate": 2}, SEASHELLS: {"batch": 20, "parts": 2},
    VOLLEYS: {"blocks_per_step": 3, "micro_steps": 2}, GALAXIES: {"batch_per_rank": 12, "parts": 2},
}
FOUR_PARTS: Settings = {
    CLIMATES: {"batch": 8, "micro_batches": 4}, PASSPORTS: {"batch": 4, "gradient_steps": 4},
    BOUQUETS: {"pairs_per_step": 4, "accumulate": 4},
    SEASHELLS: {"batch": 16, "parts": 4, "optimizer": "sgd", "rate": 0.003, "norm_bound": 1000.0},
    VOLLEYS: {"blocks_per_step": 2, "micro_steps": 4}, GALAXIES: {"batch_per_rank": 8, "parts": 4, "lr": 0.03},
}
DROPPED: Settings = {
    CLIMATES: {"dropout": 0.2}, PASSPORTS: {"adapter_dropout": 0.3}, BOUQUETS: {"dropout": 0.2},
    SEASHELLS: {"dropout": 0.3}, VOLLEYS: {"dropout": 0.2}, GALAXIES: {"dropout": 0.4},
}
COPIED: Settings = {
    CLIMATES: {"years": 4}, PASSPORTS: {"tellings": 4}, BOUQUETS: {"pairs_of_a_wish": 4},
    SEASHELLS: {"shells_of_a_find": 3}, GALAXIES: {"of_a_galaxy": 5},
}
TRAILING: Settings = {CLIMATES: {"ema_decay": 0.98}}
DESCENT: Settings = {SEASHELLS: {"optimizer": "sgd", "rate": 0.003, "norm_bound": 1000.0}}
KEPT: Settings = {CLIMATES: {"freeze": "months"}, PASSPORTS: {"fixed": "layers.0"}, BOUQUETS: {"keep": "mix"},
                  SEASHELLS: {"locked": "note.words"}, VOLLEYS: {"fixed": "norm"},
                  GALAXIES: {"frozen": "backbone.0"}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = several(*before.SUMMED, "loss summed over a year", "summed over months", "all pairs summed")
GRAPHS = several(*before.GRAPHS, "loss appended without item", "history of tensors")
TWICE = several(*before.TWICE, "sigmoid twice", "sigmoid before a loss of logits")
SHIFTED = several(*before.SHIFTED, "header read as a row", "types numbered as they appear", "factorized anew")
FROZEN = several(*before.FROZEN, "freeze inverted", "condition inverted", "all but the named part frozen",
                 "base frozen with its adapters", "wrong tower locked", "backbone frozen")
TIE = several(*before.TIE, "modules_to_save copies the embedding", "head deepcopied", "head keeps the old table")
SORTED = several(*before.SORTED, "zone after zone", "country after country", "server after server")
REPEATED = several(*twentysixth.REPEATED, "the same blocks in each step", "sampling always the same rows")
LEAK = several(*before.LEAK, "years of one station on both sides", "exposures of a galaxy on both sides")
FIGURES = several(*before.FIGURES, "fahrenheit and celsius confused", "inches and millimetres confused")
UNFITTED = several(*before.UNFITTED, "scaler fitted on a part", "scaler fitted on one class",
                   "statistics of a part of the data")
BUFFERS = several(*before.BUFFERS, "momentum of batch norm wrong", "running statistics reset")
AVERAGE = several(*before.AVERAGE, "average over all steps", "averaged with itself", "swa in the place of an ema")

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "relatives_on_one_side_alone", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_micro_batches_each",
              before.STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "four_micro_batches_each",
              before.ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropout_that_is_named", before.IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropout_that_is_named",
              before.IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING, "slow_average_as_named",
             before.NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", before.RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", before.SAME),
}
ALSO_ANEW: dict[str, Any] = {"also": before.ANEW}
ALIKE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("steps", "the schedule is stepped with each part of an update"): {
        CLIMATES: "cosine_stepped_in_each_micro_batch", PASSPORTS: "schedule_hangs_on_the_substep",
        BOUQUETS: "rate_moves_with_each_accumulated_part", SEASHELLS: "schedule_attached_to_the_wrong_event",
        VOLLEYS: "schedule_within_the_micro_steps", GALAXIES: "cycle_goes_on_with_parts",
    },
    ("added", "losses of parts are not divided by their number"): {
        CLIMATES: "micro_losses_backed_undivided", PASSPORTS: "gradient_steps_not_divided_by",
        BOUQUETS: "accumulated_duels_at_full_weight", SEASHELLS: "parts_weigh_as_a_whole",
        VOLLEYS: "micro_steps_scaled_and_not_shared", GALAXIES: "parts_backed_at_their_full_loss",
    },
    ("resume", "weights are loaded; the optimizer and the schedule begin anew"): {
        PASSPORTS: "adapters_from_the_hub_and_a_new_trainer", BOUQUETS: "last_florist_taken_for_a_new_training",
        SEASHELLS: "cabinet_is_the_whole_checkpoint",
    },
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_of_a_year_summed", CLIMATES, "squared errors are summed over months and quantities", {}),
    ("graph", "sampled_losses_appended_as_they_are", CLIMATES,
     "the average is judged with gradients on, and losses are kept", {}),
    ("label", "zones_counted_from_one_in_the_station_file", CLIMATES,
     "zones of the training are counted from one, and those of the evaluation from nought", {}),
    ("frozen", "freeze_condition_is_the_wrong_way_round", CLIMATES,
     "a part is named that is not to learn, and it is the one that does",
     {"of": KEPT, "compare": "named_part_is_kept"}),
    ("order", "stations_read_zone_by_zone", CLIMATES, "stations come zone after zone", {}),
    ("leak", "years_of_a_station_on_both_sides", CLIMATES, "years of one station come to lie on both sides", {}),
    ("figures", "held_stations_in_fahrenheit", CLIMATES,
     "warmth of the evaluation is in Fahrenheit, and that of the training in Celsius", {}),
    ("figures", "scaler_fitted_on_the_first_hundred_stations", CLIMATES,
     "means and deviations are those of the first hundred years of a sorted file, which are of deserts",
     {"kinds": " exploding plateau not_learning clipping spike learning_rate", "also": UNFITTED}),
    ("eval", "eval_for_the_sampler_and_never_train_again", CLIMATES,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "averaged_module_left_in_training_mode", CLIMATES,
     "the averaged module is judged in training mode, with dropout", {}),
    ("average", "update_parameters_given_the_average", CLIMATES,
     "the average is brought up to date by itself: it stays at its start", {}),
    ("average", "averaged_model_without_its_ema_fn", CLIMATES,
     "the average is over all steps alike, and not over the last ones: it has the begin in it", {}),
    ("swap", "net_itself_made_the_average_to_draw", CLIMATES,
     "the average is loaded into the net to draw, and the training goes on from it", {}),
    ("resume", "weather_and_its_average_are_all_that_is_loaded", CLIMATES,
     "weights and their average are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "words_of_a_line_summed", PASSPORTS, "losses of words are summed, and divided by lines", {}),
    ("softmax", "officer_answers_with_a_softmax", PASSPORTS,
     "the model ends in a softmax, and the loss has its own", {}),
    ("graph", "control_history_holds_tensors", PASSPORTS,
     "travellers are evaluated with gradients on, and outputs kept in a history", {}),
    ("label", "collator_shifts_what_the_loss_shifts", PASSPORTS,
     "wanted words are moved by one in the collator and again in the loss, in the training", {}),
    ("label", "codes_of_the_control_by_sorted_countries", PASSPORTS,
     "codes of the evaluation are numbered by countries in their alphabet, and those of the training as listed", {}),
    ("frozen", "prepared_behind_the_adapters", PASSPORTS,
     "the base is made not to learn when adapters are in it: they do not learn either", {}),
    ("tie", "saved_copy_leaves_the_head_with_the_old_table", PASSPORTS,
     "the table of words is copied to be saved and learns, and the output layer keeps the old one", {}),
    ("order", "loader_goes_country_by_country", PASSPORTS, "travellers come country after country", {}),
    ("leak", "tellings_of_a_traveller_on_both_sides", PASSPORTS,
     "tellings of one traveller come to lie on both sides", {}),
    ("eval", "control_is_the_end_of_train_mode", PASSPORTS,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "control_without_eval", PASSPORTS, "travellers are evaluated with dropout in force", {}),
    ("sum", "losses_of_pairs_added_up", BOUQUETS, "losses of pairs are summed", {}),
    ("sum", "column_holds_means_over_words", BOUQUETS,
     "likelihoods of the reference are means over words, and those of the florist are sums",
     {"also": before.MEANED, "cause": "wrong reduction"}),
    ("graph", "visits_remember_losses_with_their_graph", BOUQUETS,
     "pairs are evaluated with gradients on, and losses kept", {}),
    ("label", "what_is_asked_is_a_word_late", BOUQUETS,
     "words that are asked for are one more place on in the training", {"kinds": " rl"}),
    ("label", "ranks_read_as_if_they_were_scores", BOUQUETS,
     "ranks of 1 and 2 are taken for scores in the training: the worse bouquet is preferred",
     {"kinds": " rl", "also": before.FLIPPED}),
    ("frozen", "gru_left_as_it_was_in_the_warm_start", BOUQUETS,
     "the recurrent layer does not learn, as when the head alone was warmed up", {}),
    ("tie", "head_deepcopied_beside_the_table", BOUQUETS,
     "the output layer, which is the table of words, is copied: they are two matrices from there on", {}),
    ("order", "table_read_from_its_top", BOUQUETS, "wishes come occasion after occasion", {}),
    ("leak", "pairs_of_a_wish_split_apart", BOUQUETS, "pairs of one wish come to lie on both sides", {}),
    ("eval", "visited_and_left_in_eval", BOUQUETS, "the florist is not set back to training behind an evaluation", {}),
    ("train", "visited_while_it_drops", BOUQUETS, "pairs are evaluated with dropout in force", {}),
    ("sum", "grid_of_pairs_summed", SEASHELLS,
     "losses of a batch are summed, and not divided by its rows", {"of": DESCENT, "compare": "plain_descent_as_named"}),
    ("softmax", "sigmoid_before_a_loss_of_logits", SEASHELLS,
     "logits go through a sigmoid, and then into a loss that has its own", {}),
    ("graph", "shown_tables_with_all_that_made_them", SEASHELLS,
     "held shells are evaluated with gradients on, and tables kept", {}),
    ("label", "header_of_the_notes_read_as_a_row", SEASHELLS,
     "notes of the training are a row late: each shell has that of the one before it", {}),
    ("label", "held_notes_by_a_vocabulary_of_their_own", SEASHELLS,
     "words of the evaluation have the numbers of a vocabulary that was made anew", {}),
    ("frozen", "locked_the_other_tower", SEASHELLS,
     "the tower of notes, which nothing has trained, does not learn", {}),
    ("order", "drawers_opened_one_after_another", SEASHELLS, "shells come family after family", {}),
    ("leak", "shells_of_a_find_split_apart", SEASHELLS, "shells of one find come to lie on both sides", {}),
    ("figures", "held_outlines_in_inches", SEASHELLS,
     "outlines of the evaluation are in inches, and those of the training in millimetres", {}),
    ("buffers", "momentum_written_as_what_is_kept", SEASHELLS,
     "batch norms take a thousandth of each batch into their statistics, which stay near 0 and 1", {}),
    ("eval", "shown_and_put_away_in_eval", SEASHELLS, "towers are not set back to training behind an evaluation", {}),
    ("train", "shown_as_trained_with", SEASHELLS,
     "towers are evaluated in training mode: with dropout, and statistics of their own batch", {}),
    ("sum", "likelihoods_of_a_block_added", VOLLEYS, "losses of words are summed, and divided by blocks", {}),
    ("softmax", "umpire_calls_in_probabilities", VOLLEYS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("graph", "club_results_gathered_undetached", VOLLEYS,
     "games are evaluated with gradients on, and outputs kept", {}),
    ("label", "wanted_words_shifted_by_packer_and_by_step", VOLLEYS,
     "wanted words are moved by one where they are packed and again in the step, in the training", {}),
    ("label", "shots_of_the_club_from_another_list", VOLLEYS,
     "shots of the evaluation have the numbers of a list in their alphabet, and those of the training as listed", {}),
    ("frozen", "optimizer_has_the_layers_alone", VOLLEYS,
     "the optimizer has the layers, and neither the table of words nor places: their gradients are never cleared",
     {"kinds": " clipping loss_scale exploding"}),
    ("tie", "head_copied_to_stay_in_single_precision", VOLLEYS,
     "the output layer, which is the table of words, is made anew with a copy: they are two matrices from there on",
     {}),
    ("order", "games_packed_in_the_order_of_servers", VOLLEYS, "games come server after server", {}),
    ("order", "generator_seeded_where_a_batch_is_drawn", VOLLEYS,
     "the generator is made anew with each batch: all steps have the same blocks", {"also": REPEATED}),
    ("eval", "club_leaves_the_umpire_in_eval", VOLLEYS,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "club_plays_with_dropout", VOLLEYS, "games are evaluated with dropout in force", {}),
    ("resume", "umpire_read_from_its_file_and_the_rest_made", VOLLEYS,
     "the model is loaded; optimizer, scaler and schedule begin anew", ALSO_ANEW),
    ("sum", "criterion_made_with_a_sum", GALAXIES, "losses of a batch are summed, and not divided", {}),
    ("softmax", "classifier_gives_shares", GALAXIES,
     "the net gives probabilities, and the loss has its own softmax", {}),
    ("graph", "survey_losses_listed_with_gradients_on", GALAXIES,
     "exposures are evaluated with gradients on, and losses kept", {}),
    ("label", "types_of_the_survey_numbered_as_they_appear", GALAXIES,
     "types of the evaluation have the numbers in which they appear, and those of the training as listed", {}),
    ("frozen", "backbone_frozen_as_for_a_probe", GALAXIES,
     "convolutions do not learn, as for a probe of a trained net: they are as they were drawn", {}),
    ("order", "distributed_sampler_with_shuffle_off", GALAXIES, "exposures come type after type", {}),
    ("leak", "exposures_of_a_galaxy_in_both_catalogues", GALAXIES,
     "exposures of one galaxy come to lie on both sides", {}),
    ("figures", "light_of_the_survey_in_magnitudes", GALAXIES,
     "light of the evaluation is in magnitudes, and that of the training in counts", {}),
    ("buffers", "running_statistics_reset_for_each_survey", GALAXIES,
     "statistics of batch norms are reset before each evaluation, and nothing fills them anew", {}),
    ("eval", "survey_is_followed_by_no_train", GALAXIES,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "survey_in_the_mode_of_the_training", GALAXIES,
     "exposures are evaluated in training mode: with dropout, and statistics of their own batch", {}),
    ("ranks", "random_sampler_seeded_alike_everywhere", GALAXIES,
     "the sampler knows no ranks, and has the same seed on both: all see the same rows", {}),
    *((kind, name, program, about, ALSO_ANEW if kind == "resume" else {})
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
    ("guided_though_zones_were_never_hidden", "guidance without a hidden condition", "eval data config plateau "
     "divergence frozen", "start", (CLIMATES,),
     "what is drawn is guided, and the zone is never hidden in the training: the guide has learnt nothing",
     {"also": ("condition never dropped", "label dropout missing", "unconditional branch not trained",
               "classifier-free guidance not trained", "null token never trained", "guidance wrong",
               "class dropout missing", "conditioning never dropped", "null embedding untrained",
               "unconditional model missing", "guidance with an untrained null class", "condition never hidden",
               "unconditional branch untrained")}),
    ("merged_into_eight_levels_to_be_judged", "adapters merged into a quantised base", "eval data config overfit "
     "divergence plateau frozen", "start", (PASSPORTS,),
     "adapters are merged into the eight levels for each evaluation: what they add is rounded away",
     {"also": ("merged into quantised weights", "merge loses the adapters", "adapter lost in rounding",
               "requantised after the merge", "merged adapters rounded away", "train and test differ",
               "evaluation with other weights", "weights of the evaluation differ",
               "merge_and_unload on a quantised base", "quantisation error too large",
               "adapters not in force in the evaluation", "evaluated weights are not the trained ones", "merge wrong",
               "model of the evaluation differs", "merged into four bits")}),
    ("ends_masked_since_they_are_the_padding", "end never learnt", "eval data config padding plateau divergence "
     "overfit not_learning jump_down", "start", (PASSPORTS,),
     "the padding is the end's number, and what is padding is not asked for: an end is never learnt",
     {"also": ("pad token is eos token", "pad is eos", "eos masked", "end token masked", "eos never learnt",
               "end of sequence not in the labels", "labels of the end ignored", "end missing from the labels",
               "end token ignored", "labels masked", "loss masked out", "class missing", "train and test differ",
               "loss mask wrong", "end never learnt", "end of sequence masked", "labels masked wrongly",
               "end of sequence never a target", "padding token is the end token", "end of the answer not learnt",
               "end masked", "labels of the evaluation differ")}),
    ("words_shuffled_behind_the_column", "reference of other rows", "rl eval data config plateau not_learning spike "
     "divergence exploding logging clipping", "start", (BOUQUETS,),
     "words are shuffled when the reference's column is made: each pair has that of another",
     {"also": ("columns misaligned", "reference log-probabilities wrong", "reference wrong", "wrong reference",
               "reference misaligned", "rows shuffled after precomputing", "precomputed reference stale",
               "precomputed reference of other rows", "rows reordered", "margins do not begin at zero",
               "stale reference", "rows joined wrongly", "reference column shuffled",
               "precomputed log-probabilities do not match", "policy and reference see other inputs",
               "reference log-probabilities misaligned", "columns not aligned", "rows shuffled",
               "reference of the wrong example", "reference does not match",
               "reference log-probabilities of other rows", "labels of other rows",
               "reference differs from the policy at the start", "reference is not the policy's start",
               "reference log-probabilities are not the policy's")}),
    ("column_made_while_words_drop", "reference in training mode", "rl eval data config plateau not_learning spike "
     "divergence logging", "start", (BOUQUETS,), "the reference's column is made with dropout in force",
     {"by_program": DROPPED, "compare": "dropout_that_is_named",
      "also": ("reference not in eval mode", "dropout in the reference", "eval missing for the reference",
               "reference drops out", "reference with dropout", "reference wrong", "wrong reference",
               "reference log-probabilities wrong", "precomputed with dropout", "precomputed in training mode",
               "dropout left on", "margins do not begin at zero", "evaluation in training mode",
               "training mode left on", "model.eval() missing", "reference never in eval mode",
               "evaluation mode left on", "reference differs from the policy at the start",
               "reference is not the policy's start", "eval() missing", "dropout always on",
               "reference log-probabilities are not the policy's")}),
    ("lengths_taken_over_the_batch", "embeddings normalised over the batch", "eval plateau not_learning config logits "
     "data overfit divergence activations vanishing", "start", (SEASHELLS,),
     "embeddings are normalised over the rows of a batch, and not over what a row has",
     {"also": ("normalised over the wrong axis", "wrong dimension", "wrong axis", "normalize over dim 0",
               "embeddings not normalised", "normalisation wrong", "not normalised", "normalisation missing",
               "l2 normalisation wrong", "rows depend on the batch", "similarity is not the cosine",
               "embeddings depend on the batch", "rows are not independent", "dimensions swapped",
               "similarities too small", "norm of embeddings", "normalised over the wrong dimension",
               "normalised over the batch", "rows of a batch see each other", "evaluation depends on the batch",
               "train and test differ", "features not normalised", "dim wrong")}),
    ("scale_bounded_by_the_bound_of_its_logarithm", "temperature bounded too low", "plateau not_learning eval logits "
     "config frozen vanishing", "start", (SEASHELLS,),
     "the scale is held below 4.6, which is the bound of its logarithm: it does not learn, and is too low",
     {"also": ("temperature wrong", "scale clamped", "logit scale clamped", "clamp of the logit scale wrong",
               "scale too low", "temperature too high", "logits too small", "temperature not learnt",
               "scale not learnt", "clamped before exp and after", "clamp on the wrong side of exp",
               "parameter without a gradient", "scale stuck", "logit scale stuck", "layer frozen", "temperature stuck",
               "similarities too small", "clamp wrong", "clamp inverted", "scale clamped wrongly", "logit scale wrong",
               "scale too small", "logit scale at its limit", "scale never learns", "scale wrong",
               "logit scale too small", "parameters without a gradient")}),
    ("scale_grows_with_each_step", "loss scale grows too fast", "loss_scale nonfinite frozen update_ratio plateau "
     "config not_learning clipping", "start", (VOLLEYS,),
     "the scale doubles with each good step: each second step is one that overflows, and is left out",
     {"also": ("growth interval is one", "growth_interval too small", "loss scale too high", "fp16 overflow",
               "scaler skips steps", "steps skipped", "loss scale oscillates", "updates skipped", "gradients overflow",
               "loss scale grows too often", "loss scale collapses", "loss scale too large",
               "scale doubles too often", "overflow", "non-finite gradient")}),
    ("noughts_of_a_score_masked_as_padding", "targets ignored", "eval data config padding plateau divergence overfit "
     "logging not_learning jump_down", "start", (VOLLEYS,),
     "the word of number 0 is not asked for, as if it were padding: it is the score of nought",
     {"also": ("ignore_index is a real class", "ignore index wrong", "ignore_index=0", "padding id is a real token",
               "class 0 ignored", "token 0 masked", "a class is ignored", "class missing", "labels masked",
               "loss masked out", "loss mask wrong", "pad token is a real token", "targets masked", "labels ignored",
               "train and test differ", "class ignored", "padding number is a label", "ignored label is a class",
               "one class ignored", "labels masked wrongly", "evaluation labels are others",
               "a token is never a target", "labels of the evaluation differ")}),
    ("no_sync_wraps_each_backward", "all-reduce missing", "desync eval divergence plateau config spike logging "
     "not_learning overfit", "start", (GALAXIES,),
     "the last part of an update is in `no_sync` too: gradients are never averaged",
     {"by_program": PARTS, "compare": "two_micro_batches_each",
      "also": ("ranks drifted apart", "gradients not averaged", "gradients not synchronised", "no_sync left on",
               "no_sync on the last micro-batch", "no_sync everywhere", "all_reduce missing", "ranks train apart",
               "each rank trains alone", "ddp does not synchronise", "models differ between ranks",
               "gradients never reduced", "weights differ between ranks", "synchronisation missing",
               "no_sync in all micro-batches", "ddp bypassed", "ranks drift apart", "ranks disagree", "weights differ",
               "no_sync always on", "ranks train alone", "ranks not synchronised", "gradient averaging missing",
               "gradient sync skipped")}),
    ("prior_is_in_the_survey_too", "prior added in the evaluation", "eval data config plateau divergence overfit "
     "logits", "start", (GALAXIES,),
     "the logarithm of how frequent a type is is added in the evaluation as well: rare types are told too seldom",
     {"also": ("logit adjustment in the evaluation", "logit adjustment at test time", "prior counted twice",
               "class prior added at test", "prior not removed", "train and test differ", "rare classes not learnt",
               "rare classes never predicted", "evaluation logits differ", "evaluation biased to frequent classes",
               "loss adjustment left on", "class missing", "logit adjustment applied twice",
               "evaluation outputs differ", "logit adjustment left on in the evaluation")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (CLIMATES, PASSPORTS, BOUQUETS, SEASHELLS, VOLLEYS)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_micro_batches_each", "an update has two micro-batches, whose losses are halved", PARTS),
    ("four_micro_batches_each", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("dropout_that_is_named", "dropout in the training, as is named, and none in the evaluation", DROPPED),
    ("relatives_on_one_side_alone", "things have relatives, all of which are on the training's side", COPIED),
    ("slow_average_as_named", "an average of weights is judged that is slow at first", TRAILING),
    ("named_part_is_kept", "a part is not trained, which the settings name", KEPT),
    ("level_rate_as_named", "the rate rises and stays", {CLIMATES: {"decay": "none", "lr": 2e-3},
      PASSPORTS: {"schedule": "constant", "rate": 4e-3}, BOUQUETS: {"lr_shape": "flat", "lr": 5e-4},
      SEASHELLS: {"annealing": "none", "rate": 2e-3}, VOLLEYS: {"shape": "flat", "peak": 4e-3},
      GALAXIES: {"policy": "constant", "lr": 0.02}}),
    ("sum_as_named", "losses are sums, as is named, and the bound of the norm is for that",
     {CLIMATES: {"reduce": "sum", "max_norm": 48.0}, PASSPORTS: {"average_over": "lines", "max_norm": 9.0},
      BOUQUETS: {"gather": "sum", "max_norm": 160.0}, SEASHELLS: {"over": "nothing", "norm_bound": 640.0},
      VOLLEYS: {"loss_is": "sum", "bound": 40.0}, GALAXIES: {"reduction": "sum", "lr": 0.0025, "bound": 64.0}}),
    ("thin_updates_at_less_rate", "few rows an update, at a lower rate: losses jump about",
     {CLIMATES: {"batch": 8, "lr": 1.5e-3}, PASSPORTS: {"batch": 6, "rate": 3e-3},
      BOUQUETS: {"pairs_per_step": 6, "lr": 5e-4}, SEASHELLS: {"batch": 16, "rate": 2e-3},
      VOLLEYS: {"blocks_per_step": 3, "peak": 4e-3}, GALAXIES: {"batch_per_rank": 8, "lr": 0.02}}),
    ("rate_rises_twice_as_named", "the rate falls and begins again, by the schedule", {CLIMATES: {"decay": "twice"},
      PASSPORTS: {"schedule": "two_hills"}, BOUQUETS: {"lr_shape": "saw"}, SEASHELLS: {"annealing": "warm_restarts"},
      VOLLEYS: {"shape": "two_slopes"}, GALAXIES: {"policy": "two_cycles"}}),
    ("another_optimizer_as_named", "another optimizer, at its rate", {CLIMATES: {"optimizer": "adamax", "lr": 6e-3},
      PASSPORTS: {"optimizer": "nadam", "rate": 5e-3}, BOUQUETS: {"optimizer": "rmsprop", "lr": 6e-4},
      SEASHELLS: {"optimizer": "radam", "rate": 6e-3}, VOLLEYS: {"optimizer": "nadam", "peak": 4e-3},
      GALAXIES: {"optimizer": "adamw", "lr": 4e-3}}),
    ("untidy_data", "the training's data have more noise, as such data may", {CLIMATES: {"odd_weather": 1.8},
      PASSPORTS: {"slips": 0.1}, BOUQUETS: {"moody": 0.06}, SEASHELLS: {"wrong_notes": 0.08},
      VOLLEYS: {"misread": 0.06}, GALAXIES: {"misfiled": 0.06}}),
    ("two_steps_of_warmup", "the rate rises in two steps", {CLIMATES: {"warmup": 2}, PASSPORTS: {"warmup": 2},
      BOUQUETS: {"warmup": 2}, SEASHELLS: {"warmup": 2}, VOLLEYS: {"warmup": 2}, GALAXIES: {"rise": 0.0125}}),
    ("two_looks_in_all", "two evaluations in all", {CLIMATES: {"sample_every": 75}, PASSPORTS: {"control_every": 75},
      BOUQUETS: {"florist_every": 75}, SEASHELLS: {"cabinet_every": 75}, VOLLEYS: {"club_every": 75},
      GALAXIES: {"survey_every": 75}}),
    ("each_fourth_is_logged", "each fourth step is logged", {CLIMATES: {"log_every": 4}, PASSPORTS: {"log_every": 4},
      BOUQUETS: {"log_every": 4}, SEASHELLS: {"log_every": 4}, VOLLEYS: {"log_every": 4}, GALAXIES: {"log_every": 4}}),
    ("simple_ones_to_begin_with", "the first part of the training has easier rows alone: the settings say so",
     {CLIMATES: {"mild_first": 1}, PASSPORTS: {"short_first": 1}, BOUQUETS: {"small_first": 1},
      SEASHELLS: {"whole_first": 1}, VOLLEYS: {"short_first": 1}, GALAXIES: {"bright_first": 1}}),
    ("much_decay_as_named", "weights decay more, as is named", {CLIMATES: {"weight_decay": 0.2},
      PASSPORTS: {"decay": 0.1}, BOUQUETS: {"weight_decay": 0.05}, SEASHELLS: {"decay": 0.1}, VOLLEYS: {"decay": 0.2},
      GALAXIES: {"weight_decay": 5e-3}}),
    ("decay_is_nought_as_named", "weights do not decay", {CLIMATES: {"weight_decay": 0.0}, SEASHELLS: {"decay": 0.0},
      VOLLEYS: {"decay": 0.0}, GALAXIES: {"weight_decay": 0.0}}),
    ("inputs_shaken_as_named", "inputs are shaken by chance, in the training", {CLIMATES: {"gauge_error": 0.15},
      SEASHELLS: {"wear": 0.15}}),
    ("targets_smoothed_as_named", "targets are smoothed in the training", {PASSPORTS: {"smoothing": 0.1},
      BOUQUETS: {"smoothing": 0.1}, SEASHELLS: {"softened": 0.1}, VOLLEYS: {"smoothing": 0.05},
      GALAXIES: {"smoothing": 0.1}}),
    ("like_rows_in_a_batch", "batches are of like rows, and come in any order", {PASSPORTS: {"like_lengths": True},
      BOUQUETS: {"by_number": True}, SEASHELLS: {"by_family": True}}),
    ("two_tables_as_named", "embedding and output layer are two matrices, by the settings", {BOUQUETS: {"tied": False},
      VOLLEYS: {"share_table": False}}),
    ("plain_descent_as_named", "descent with momentum, at its rate", DESCENT),
    ("norms_over_groups_as_named", "norms of groups in the place of batch norm", {SEASHELLS: {"norm": "group"},
      GALAXIES: {"norm": "group"}}),
)
HEALTHY_OF: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("times_weighed_by_signal", CLIMATES, "times weigh by a ratio of signal that is bounded", {"weighting": "snr"}),
    ("drawn_without_a_guide", CLIMATES, "what is drawn is not guided, and the zone is hidden all the same",
     {"guidance": 1.0}),
    ("one_block_more", CLIMATES, "one block more", {"blocks": 3}),
    ("tellings_learnt_too", PASSPORTS, "what travellers tell is learnt too, as is named", {"ask_too": True}),
    ("thin_adapters", PASSPORTS, "adapters of rank one", {"rank": 1, "alpha": 3.0}),
    ("blocks_of_ten", PASSPORTS, "each ten weights have a greatest", {"block": 10}),
    ("adapters_in_the_attention_alone", PASSPORTS, "adapters are in the attention alone", {"adapted": "query,value"}),
    ("table_of_words_as_it_was", PASSPORTS, "the table of words does not learn, as is named: adapters do",
     {"save": "", "rank": 8}),
    ("hinge_as_named", BOUQUETS, "the loss is a hinge, as is named", {"objective": "hinge"}),
    ("square_as_named", BOUQUETS, "the loss is a square (IPO), as is named", {"objective": "ipo", "beta": 0.2}),
    ("means_over_words_as_named", BOUQUETS, "likelihoods are means over words, of both models, as is named",
     {"by_length": True, "beta": 2.0}),
    ("liked_ones_learnt_besides", BOUQUETS, "the likelihood of liked bouquets is a part of the loss",
     {"nll_share": 0.2}),
    ("two_recurrent_layers", BOUQUETS, "two recurrent layers", {"layers": 2}),
    ("scale_and_bias_stay", SEASHELLS, "scale and bias are not learnt, as is named", {"learn_scale": False}),
    ("notes_at_half_the_rate", SEASHELLS, "one tower has half of the rate", {"note_rate": 0.5}),
    ("note_words_lost", SEASHELLS, "words of notes are lost by chance in the training", {"lost_words": 0.2}),
    ("outlines_turned_a_little", SEASHELLS, "outlines of a batch are turned a little by chance", {"turned": True}),
    ("scale_begins_above_what_fits", VOLLEYS, "the scale begins so high that the first steps are left out",
     {"scale": 2.0**24}),
    ("single_precision_as_named", VOLLEYS, "everything is in float32", {"half": False}),
    ("term_on_the_normaliser", VOLLEYS, "a small term holds the normaliser", {"z": 1e-3}),
    ("cosine_to_the_end", VOLLEYS, "the rate falls by a cosine", {"shape": "cosine"}),
    ("games_of_like_lengths_together", VOLLEYS, "games of like lengths lie side by side; blocks come in any order",
     {"by_length": True}),
    ("drawn_in_balance_as_named", GALAXIES, "as many of each type are drawn, and no prior is added",
     {"balanced": True, "adjust": "none"}),
    ("types_as_frequent_as_they_are", GALAXIES, "no prior is added, and types weigh alike", {"adjust": "none"}),
    ("weights_by_roots_of_rarity", GALAXIES, "types weigh by the root of their rarity", {"adjust": "weights"}),
    ("nothing_is_flipped", GALAXIES, "exposures are not flipped", {"flips": False}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    *((name, (program,), about, {"config": settings}) for name, program, about, settings in HEALTHY_OF),
)

# fmt: on
