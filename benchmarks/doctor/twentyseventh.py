"""The twenty-seventh half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-sixth half: noise taken off small pictures of skylines with an average that
draws, adapters hung behind layers of four bits, preferences of a decoder against likelihoods that were written down
before, two towers for people and vacancies under a loss of yes and no, a language model in float16 with a scaler, rare
incidents on two workers whose gradients are averaged by hooks; each as another ordinary engineer writes it. Most faults
are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong in that program; those
in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did not look at what
the doctor says. A fault is called by any name that a person would give it, and every kind of finding that would be right
of it is right; the names that the twenty-sixth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import eighteenth
import ninth
import sixteenth
import twentysixth
from ninth import Row, Settings
from twentysixth import several

PROGRAMS = ("skylines", "dosages", "itineraries", "vacancies", "equations", "incidents")
SKYLINES, DOSAGES, ITINERARIES, VACANCIES, EQUATIONS, INCIDENTS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "mix_by_the_squares", "level_as_a_share_in_training", "answers_cut_before_their_end",
    "quiz_rows_padded_on_the_left", "reference_written_while_dropping", "reference_columns_in_the_loaders_order",
    "others_are_nought_and_not_minus_one", "skills_hashed_by_each_process_for_itself",
    "norm_taken_of_scaled_gradients", "scale_is_never_brought_up_to_date", "places_run_on_in_rows_of_the_training",
    "kinds_weigh_by_their_number", "hooks_for_all_but_the_last_layer",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    SKYLINES: {"batch_size": 12, "accumulate_grad_batches": 2}, DOSAGES: {"per_device_batch": 8, "accum_steps": 2},
    ITINERARIES: {"batch": 8, "micro": 2}, VACANCIES: {"batch_size": 20, "n_splits": 2},
    EQUATIONS: {"rows": 6, "micro_steps": 2}, INCIDENTS: {"batch": 8, "parts": 2},
}
FOUR_PARTS: Settings = {
    SKYLINES: {"batch_size": 8, "accumulate_grad_batches": 4}, DOSAGES: {"per_device_batch": 4, "accum_steps": 4},
    ITINERARIES: {"batch": 4, "micro": 4},
    VACANCIES: {"batch_size": 16, "n_splits": 4, "solver": "sgd", "learning_rate_init": 0.02, "max_norm": 1000.0},
    EQUATIONS: {"rows": 4, "micro_steps": 4},
    INCIDENTS: {"batch": 8, "parts": 4, "optim": "sgd", "lr": 0.1, "max_gradient": 100.0},
}
DROPPED: Settings = {
    SKYLINES: {"dropout": 0.3}, DOSAGES: {"adapter_dropout": 0.3}, ITINERARIES: {"dropout": 0.08},
    VACANCIES: {"dropout": 0.3}, EQUATIONS: {"dropout": 0.15}, INCIDENTS: {"dropout": 0.3},
}
COPIED: Settings = {
    SKYLINES: {"crops": 5}, DOSAGES: {"again": 3}, ITINERARIES: {"pairs_of_a_trip": 4},
    VACANCIES: {"applications": 4}, INCIDENTS: {"wordings": 5},
}
TRAILING: Settings = {SKYLINES: {"ema_decay": 0.98}}
DESCENT: Settings = {
    VACANCIES: {"solver": "sgd", "learning_rate_init": 0.02, "max_norm": 1000.0},
    INCIDENTS: {"optim": "sgd", "lr": 0.03, "max_gradient": 100.0},
}
HIGH: Settings = {EQUATIONS: {"scale_start": 2.0**24}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = several(*twentysixth.SUMMED, "loss summed over a table", "not divided by the batch", "mean left out")
MEANED = several(*twentysixth.MEANED, "reference averaged and policy summed", "reference log-probabilities are means",
                 "average_log_prob for the reference alone", "reference wrong")
GRAPHS = several(*twentysixth.GRAPHS, "graph kept by the evaluation", "tensors kept in a list")
TWICE = several(*twentysixth.TWICE, "sigmoid twice", "double sigmoid", "sigmoid before logsigmoid")
SHIFTED = several(*twentysixth.SHIFTED, "vocabulary differs", "token ids differ", "class ids start at 1",
                  "labels start at 1", "pairs do not match", "rows reordered", "order not restored",
                  "packing order not undone", "rows joined wrongly", "vocabulary built anew", "labels swapped")
FROZEN = several(*twentysixth.FROZEN, "tower detached", "tower without gradients", "embeddings detached",
                 "no_grad around a tower", "no_grad left in", "adapters frozen with the base",
                 "optimizer of another model", "model copied after the optimizer was made", "not unfrozen again",
                 "optimizer holds the head alone", "optimizer has few of the parameters")
TIE = several(*twentysixth.TIE, "tie lost at the resize", "table grown and head grown", "embedding replaced",
              "weights tied before the initialisation")
SORTED = several(*twentysixth.SORTED, "town after town", "drug after drug", "trade after trade", "form after form",
                 "kind after kind")
LEAK = several(*twentysixth.LEAK, "wordings on both sides", "applicants on both sides", "duplicates across the split")
FIGURES = several(*twentysixth.FIGURES, "range of the evaluation's inputs differs", "months and years confused",
                  "cents and euros confused")
BUFFERS = several(*twentysixth.BUFFERS, "momentum of batch norm is zero", "momentum None and 0 confused",
                  "batch norm frozen", "batch norm in eval mode", "freeze_bn left in", "norm never fitted")
STEPPED = twentysixth.STEPPED
ADDED = twentysixth.ADDED
IN_EVAL = twentysixth.IN_EVAL
IN_TRAINING = twentysixth.IN_TRAINING
AVERAGE = several(*twentysixth.AVERAGE, "callback never called", "hook misspelt", "average never updated")
NOT_BACK = twentysixth.NOT_BACK
RESUMED = twentysixth.RESUMED
ANEW = twentysixth.ANEW
SAME = several(*twentysixth.SAME, "rows not shared out", "workers see the same rows")

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "versions_on_one_side", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "halves_of_an_update", STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "quarters_of_an_update",
              ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropout_that_was_asked_for", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropout_that_was_asked_for",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING, "average_that_lags_as_named",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
ALSO_ANEW: dict[str, Any] = {"also": ANEW}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_of_pixels_added", SKYLINES, "squared errors are summed over a picture's pixels", {}),
    ("graph", "judge_keeps_losses_as_they_are", SKYLINES, "the average is judged with gradients on, and losses are kept",
     {}),
    ("label", "towns_counted_from_one", SKYLINES,
     "kinds of towns are counted from one in the training, and from nought in the evaluation", {}),
    ("frozen", "groups_leave_the_way_up_out", SKYLINES,
     "the optimizer gets parameters by the begin of their names, and those of the way up are forgotten", {}),
    ("order", "loader_made_without_shuffle", SKYLINES, "pictures come town after town", {}),
    ("figures", "held_pictures_from_nought_to_one", SKYLINES,
     "pictures of the evaluation go from 0 to 1, and those of the training from -1 to 1", {}),
    ("buffers", "shadow_follows_parameters_alone", SKYLINES,
     "the average takes no figures of batch norms over: they are those of the start", {}),
    ("steps", "scheduler_interval_is_the_batch", SKYLINES, "the schedule is stepped with each part of an update", {}),
    ("added", "batches_accumulated_whole", SKYLINES, "losses of parts are not divided by their number", {}),
    ("eval", "net_stays_as_the_judge_left_it", SKYLINES,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "judge_forgets_its_mode", SKYLINES,
     "the average is judged in training mode: with dropout, and figures of its own batch", {}),
    ("average", "hook_of_the_shadow_is_misspelt", SKYLINES,
     "the method that brings the average on has a name that nobody calls: it stays as it began", {}),
    ("swap", "shadow_stays_behind_the_judge", SKYLINES,
     "the average is loaded into the net for an evaluation, and stays there", {}),
    ("resume", "weights_only_checkpoint_is_gone_on_from", SKYLINES,
     "weights and their average are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "words_of_an_answer_added", DOSAGES, "losses of words are summed, and divided by answers", {}),
    ("softmax", "head_gives_probabilities", DOSAGES, "the head ends in a softmax, and the loss has its own", {}),
    ("graph", "quiz_answers_kept_for_a_table", DOSAGES,
     "held prescriptions are evaluated with gradients on, and outputs kept", {}),
    ("label", "moved_in_the_collator_and_in_the_loss", DOSAGES,
     "words that are asked for are moved by one in the collator and again in the loss, in the training", {}),
    ("label", "words_of_food_numbered_anew_for_the_quiz", DOSAGES,
     "new words have other numbers in the evaluation than in the training", {}),
    ("frozen", "base_is_frozen_when_adapters_hang", DOSAGES,
     "the base is frozen when adapters are a part of it already: the table of words learns alone", {}),
    ("tie", "table_and_head_grown_each_for_itself", DOSAGES,
     "the table of words and the head are made longer one by one: they are two matrices from there on", {}),
    ("order", "drugs_come_one_after_another", DOSAGES, "prescriptions come drug after drug", {}),
    ("steps", "scheduler_follows_backward", DOSAGES, "the schedule is stepped with each part of an update", {}),
    ("added", "accum_steps_left_out", DOSAGES, "losses of parts are not divided by their number", {}),
    ("eval", "quiz_ends_without_train", DOSAGES, "the model is not set back to training behind an evaluation", {}),
    ("train", "quiz_with_adapters_in_training", DOSAGES, "prescriptions are evaluated with dropout in force", {}),
    ("resume", "adapters_loaded_as_for_serving", DOSAGES,
     "weights are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "pairs_of_a_batch_added", ITINERARIES, "losses of pairs are summed", {}),
    ("sum", "reference_written_as_means_of_words", ITINERARIES,
     "likelihoods of the reference are means over words, and those of the policy are sums",
     {"also": MEANED, "cause": "wrong reduction"}),
    ("graph", "margins_of_the_rest_in_a_list", ITINERARIES, "pairs are evaluated with gradients on, and margins kept",
     {}),
    ("label", "plans_moved_by_reader_and_by_loss", ITINERARIES,
     "words that are asked for are moved by one, twice, in the training", {}),
    ("label", "choice_of_one_taken_for_an_index", ITINERARIES,
     "choices of 1 and 2 are taken for places that count from nought: worse plans are preferred in the training", {}),
    ("frozen", "blocks_stay_closed_behind_the_reference", ITINERARIES,
     "the decoder is frozen while the reference is written, and its blocks are not opened again", {}),
    ("tie", "table_put_in_when_it_was_tied", ITINERARIES,
     "the table of words is put in anew from the file when the head was tied to the one before", {}),
    ("order", "plans_in_the_order_of_the_file", ITINERARIES, "pairs come by what is wrong with the worse plan", {}),
    ("steps", "curve_is_a_handler_of_the_forward", ITINERARIES, "the schedule is stepped with each part of an update",
     {}),
    ("added", "micro_losses_not_divided", ITINERARIES, "losses of parts are not divided by their number", {}),
    ("eval", "net_stays_in_eval_behind_rest", ITINERARIES,
     "the decoder is not set back to training behind an evaluation", {}),
    ("train", "rest_is_asked_while_dropping", ITINERARIES, "pairs are evaluated with dropout in force", {}),
    ("resume", "planner_saved_without_the_rest", ITINERARIES,
     "weights are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "terms_of_the_table_added_up", VACANCIES, "losses of a table are summed, and not divided by its rows",
     {"of": DESCENT, "compare": "plain_descent_at_its_rate"}),
    ("softmax", "scores_are_shares_before_the_loss", VACANCIES,
     "scores go through a sigmoid, and then into a loss that has its own", {}),
    ("graph", "scores_reported_with_their_history", VACANCIES,
     "held people are evaluated with gradients on, and scores kept", {}),
    ("label", "people_are_sorted_for_packing", VACANCIES,
     "people are sorted by their jobs for packing, and not put back: rows of the two towers do not match", {}),
    ("label", "held_vacancies_joined_by_place", VACANCIES,
     "vacancies of the evaluation are in another order than the people that they are for", {}),
    ("frozen", "vacancies_embedded_for_the_cache", VACANCIES,
     "vacancies are embedded without gradients, as for a cache: their tower stays as it began", {}),
    ("order", "people_as_the_trades_sent_them", VACANCIES, "people come trade after trade", {}),
    ("leak", "applications_split_by_rows", VACANCIES, "applications of one person come to lie on both sides", {}),
    ("figures", "years_of_held_people_in_months", VACANCIES,
     "years of the evaluation are in months, and those of the training in years", {}),
    ("buffers", "norms_frozen_as_in_the_fine_tuning_script", VACANCIES,
     "the batch norm is kept in evaluation mode, though it begins anew: its statistics are 0 and 1", {}),
    ("steps", "plan_moves_with_each_split", VACANCIES, "the schedule is stepped with each part of an update", {}),
    ("added", "splits_count_as_whole_batches", VACANCIES, "losses of parts are not divided by their number", {}),
    ("eval", "fit_goes_on_as_score_left_it", VACANCIES, "towers are not set back to training behind an evaluation", {}),
    ("train", "score_does_not_leave_training", VACANCIES,
     "towers are evaluated in training mode: with dropout, and statistics of their own batch", {}),
    ("resume", "warm_start_of_coefficients_alone", VACANCIES,
     "weights are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "words_of_a_row_added", EQUATIONS, "losses of words are summed, and divided by rows", {}),
    ("softmax", "apply_gives_what_is_likely", EQUATIONS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("graph", "unseen_logits_collected_on_the_tape", EQUATIONS, "rows are evaluated with gradients on, and outputs kept",
     {}),
    ("label", "asked_words_moved_again", EQUATIONS, "words that are asked for are moved twice in the training", {}),
    ("label", "words_of_unseen_numbered_as_they_come", EQUATIONS,
     "words of the evaluation are numbered anew, in the order in which its file has them", {}),
    ("frozen", "model_copied_behind_its_optimizer", EQUATIONS,
     "the model is copied behind its optimizer, which has the one that was", {}),
    ("tie", "unembedding_begun_as_a_matrix_of_its_own", EQUATIONS,
     "weights are tied, and then begun one by one: the output layer is a matrix of its own", {}),
    ("order", "documents_packed_as_they_lie", EQUATIONS, "documents come form after form", {}),
    ("steps", "count_goes_on_in_micro_steps", EQUATIONS, "the rate moves on with each part of an update", {}),
    ("added", "micro_steps_summed_up", EQUATIONS, "losses of parts are not divided by their number", {}),
    ("eval", "train_is_not_called_behind_unseen", EQUATIONS,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "unseen_rows_lose_words_to_dropout", EQUATIONS, "rows are evaluated with dropout in force", {}),
    ("resume", "params_are_all_that_is_restored", EQUATIONS,
     "the model is loaded; optimizer, scaler and the count that the rate follows begin anew", ALSO_ANEW),
    ("sum", "losses_of_a_batch_added_up", INCIDENTS, "weighted losses are summed, and not divided",
     {"of": DESCENT, "compare": "plain_descent_at_its_rate"}),
    ("softmax", "forward_answers_with_shares", INCIDENTS,
     "the net gives probabilities, and the loss has its own softmax", {}),
    ("graph", "judged_losses_kept_for_the_mean_of_all", INCIDENTS,
     "reports are judged with gradients on, and losses kept", {}),
    ("label", "kinds_of_the_training_from_nought", INCIDENTS,
     "kinds of the training are counted from nought, and those of the evaluation from one", {}),
    ("frozen", "optimizer_of_a_trial_with_the_head", INCIDENTS,
     "the optimizer has the last layer alone, as in a trial before", {}),
    ("order", "every_second_row_as_the_file_has_them", INCIDENTS,
     "each worker takes every second row of a file that has kind after kind, in its order", {}),
    ("leak", "wordings_of_an_incident_on_both_sides", INCIDENTS,
     "reports of one incident come to lie on both sides", {}),
    ("figures", "costs_of_judged_reports_in_cents", INCIDENTS,
     "costs of the evaluation are in cents, and those of the training in euros", {}),
    ("buffers", "momentum_of_nought_for_a_plain_mean", INCIDENTS,
     "the momentum of the batch norm is 0 in the place of None: its statistics never move", {}),
    ("steps", "scheduler_is_one_loop_too_deep", INCIDENTS, "the schedule is stepped with each part of an update", {}),
    ("added", "parts_of_an_update_added", INCIDENTS, "losses of parts are not divided by their number", {}),
    ("eval", "sorter_is_left_in_eval", INCIDENTS, "the net is not set back to training behind an evaluation", {}),
    ("train", "judged_without_a_change_of_mode", INCIDENTS,
     "reports are judged in training mode: with dropout, and statistics of their own batch", {}),
    ("ranks", "shuffled_alike_and_not_shared_out", INCIDENTS,
     "workers shuffle by one seed, as they should, and then all take the first half", {}),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, of, compare, also = OF_KIND[kind]
    of = more.get("of", of)
    rest = {"by_program": {program: of.get(program, {})}, "compare": more.get("compare", compare),
            "also": more.get("also", also)}  # fmt: skip
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest
