"""The twenty-seventh half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-sixth half: noise taken off small pictures of skylines with an average that
draws, adapters hung behind layers of four bits, preferences of a decoder against likelihoods that were written down
before, two towers for people and vacancies under a loss of yes and no, a language model in float16 with a scaler, rare
incidents on two workers whose gradients are averaged by hooks; each as another ordinary engineer writes it. Most faults
are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong in that program; those
in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did not look at what
the doctor says. A fault is called by any name that a person would give it, and every kind of finding that would be
right of it is right; the names that the twenty-sixth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, ninth, sixteenth, twentysixth
from halves.ninth import Row, Settings
from halves.twentysixth import several

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
    VACANCIES: {"batch_size": 16, "n_splits": 4, "solver": "sgd", "learning_rate_init": 0.08, "max_norm": 1000.0},
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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "relatives_in_the_training_alone", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_batches_of_half_a_step",
              STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "four_quarters_of_a_step",
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
    ("graph", "judge_keeps_losses_as_they_are", SKYLINES,
     "the average is judged with gradients on, and losses are kept", {}),
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
     "words that are asked for are moved by one, twice, in the training", {"kinds": " rl"}),
    ("label", "choice_of_one_taken_for_an_index", ITINERARIES,
     "choices of 1 and 2 are taken for places that count from nought: worse plans are preferred in the training",
     {"kinds": " rl", "also": several(*SHIFTED, "preference reversed", "chosen and rejected swapped",
                                      "choice off by one", "rejected preferred", "preferred answer is the other one",
                                      "sign reversed", "pairs swapped")}),
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
     "vacancies are embedded without gradients, as for a cache: their tower stays as it began",
     {"also": several(*FROZEN, "graph cut", "layers run without gradients")}),
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
    ("graph", "unseen_logits_collected_on_the_tape", EQUATIONS,
     "rows are evaluated with gradients on, and outputs kept", {}),
    ("label", "asked_words_moved_again", EQUATIONS, "words that are asked for are moved twice in the training", {}),
    ("label", "words_of_unseen_numbered_as_they_come", EQUATIONS,
     "words of the evaluation are numbered anew, in the order in which its file has them", {}),
    ("frozen", "blocks_begun_anew_behind_the_optimizer", EQUATIONS,
     "blocks are put in anew behind the optimizer, which has those that were", {"kinds": " clipping loss_scale"}),
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


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("mix_by_the_squares", "noise schedule wrong", "eval plateau divergence data config not_learning overfit", "start",
     (SKYLINES,), "signal and noise are mixed by the squares of their shares in the training",
     {"also": ("square root missing", "alphas_cumprod without its root", "noise mixed wrongly", "forward process wrong",
               "noise level wrong", "noise scale wrong", "train and test differ", "evaluation data differ",
               "target mismatch", "evaluation inputs differ", "noise too small", "sqrt missing in q_sample")}),
    ("level_as_a_share_in_training", "time scaled otherwise", "eval plateau divergence data config overfit "
     "not_learning", "start", (SKYLINES,),
     "the level of noise is a share of one in the training, and a number up to a thousand in the evaluation",
     {"also": ("timestep scaled twice", "timestep scaling differs", "time embedding wrong", "timesteps normalised",
               "time in another unit", "train and test differ", "evaluation inputs differ", "evaluation data differ",
               "conditioning differs", "time divided by the number of levels", "units differ",
               "preprocessing differs", "normalisation differs")}),
    ("answers_cut_before_their_end", "end of the answer not learnt", "eval data config overfit divergence plateau "
     "padding", "start", (DOSAGES,), "answers of the training lack the word that ends them",
     {"also": ("eos missing", "end token missing", "eos token not added", "end token masked", "answers cut off",
               "truncation", "truncated", "train and test differ", "evaluation data differ", "eos never learnt",
               "model never stops", "preprocessing differs", "labels of the evaluation differ", "sequences cut",
               "texts truncated",
               "pad token is the end token")}),
    ("quiz_rows_padded_on_the_left", "padding on the other side", "eval data config overfit padding divergence",
     "start", (DOSAGES,),
     "rows of the evaluation are padded on the left, and places are counted from the first of them",
     {"also": ("padding side differs", "padding side wrong", "left padding", "position ids wrong",
               "positions of padded rows wrong", "positions shifted", "padding attended", "padding not masked",
               "train and test differ", "evaluation data differ", "evaluation inputs differ",
               "preprocessing differs", "attention mask missing")}),
    ("reference_written_while_dropping", "reference in training mode", "rl eval plateau config data divergence spike "
     "logging", "start", (ITINERARIES,),
     "likelihoods of the reference are written with dropout in force: they are of a net that nobody has",
     {"by_program": {ITINERARIES: DROPPED[ITINERARIES]}, "compare": "dropout_that_was_asked_for",
      "also": ("reference not in evaluation mode", "reference has dropout", "dropout in the reference",
               "dropout left on", "eval() missing", "reference wrong", "reference log-probabilities are noisy",
               "evaluation in training mode", "wrong reference", "reference not deterministic",
               "evaluation mode missing", "margins do not begin at zero")}),
    ("reference_columns_in_the_loaders_order", "reference of other rows", "rl plateau eval config data divergence "
     "spike not_learning logging", "start", (ITINERARIES,),
     "likelihoods of the reference are written in the order of a loader that shuffles: rows have those of others",
     {"also": ("reference log-probabilities misaligned", "columns not aligned", "rows shuffled",
               "reference wrong", "wrong reference", "cache in another order", "labels of other rows",
               "shuffled while precomputing", "reference shuffled", "labels shuffled", "rows do not match",
               "reference of the wrong example", "margins do not begin at zero")}),
    ("others_are_nought_and_not_minus_one", "no negatives", "not_learning plateau config eval logits frozen data",
     "start", (VACANCIES,), "others of the table have a sign of 0, and not of -1: they say nothing",
     {"also": ("labels 0 instead of -1", "negatives missing", "negatives not used", "wrong target", "targets wrong",
               "loss wrong", "negatives have no gradient", "collapse", "embeddings collapse",
               "labels of negatives are zero", "sign of the labels wrong", "representation collapse",
               "loss has a floor", "labels shifted")}),
    ("skills_hashed_by_each_process_for_itself", "features of the evaluation differ", "eval overfit data config "
     "divergence", "start", (VACANCIES,),
     "skills have the numbers of a hash that differs in each process: those of the evaluation are others",
     {"also": ("hash differs between processes", "hash seed", "vocabulary differs", "ids differ", "token ids differ",
               "train and test differ", "evaluation data differ", "evaluation inputs differ", "preprocessing differs",
               "vocabulary built anew", "encoder fitted anew", "embedding rows permuted", "inputs shuffled",
               "labels do not match the inputs")}),
    ("norm_taken_of_scaled_gradients", "gradients clipped while scaled", "clipping exploding update_ratio loss_scale "
     "learning_rate config logging eval plateau", "start", (EQUATIONS,),
     "gradients are clipped before the scaler has unscaled them: the bound binds in all steps",
     {"also": ("unscale_ missing", "scaler not given", "clipped before unscale", "norm of scaled gradients",
               "unscale missing", "clip value too low", "gradients not unscaled", "clipping before unscaling",
               "clipped to next to nothing", "gradient norm is scaled", "clipping binds always",
               "loss scale in the gradients")}),
    ("scale_is_never_brought_up_to_date", "loss scale never adapted", "loss_scale nonfinite not_learning plateau "
     "frozen exploding update_ratio config zero", "start", (EQUATIONS,),
     "the scale begins high, and nothing brings it down: all steps are left out",
     {"by_program": HIGH, "compare": "loss_scale_begins_too_high",
      "also": ("scaler.update() missing", "scaler not updated", "loss scale too high", "gradients overflow",
               "steps skipped", "all steps skipped", "scale never falls", "overflow in float16",
               "optimizer never steps", "non-finite gradient", "loss scale constant", "every step overflows",
               "fp16 overflow")}),
    ("places_run_on_in_rows_of_the_training", "positions differ", "eval data config overfit plateau divergence",
     "start", (EQUATIONS,),
     "places of the training run on over the documents of a row, and those of the evaluation begin anew with each",
     {"also": ("position ids differ", "position ids not reset", "positions not reset at documents",
               "position ids wrong", "packing without position ids", "positions wrong", "train and test differ",
               "evaluation inputs differ", "evaluation data differ", "preprocessing differs",
               "positions run over documents", "packing wrong")}),
    ("kinds_weigh_by_their_number", "class weights inverted", "eval plateau data config overfit not_learning "
     "jump_down", "start", (INCIDENTS,), "kinds weigh by how many there are, and not by the root of their rarity",
     {"also": ("class weights wrong", "weights not inverted", "rare classes weigh less", "weights are counts",
               "class imbalance", "rare classes not learnt", "weights upside down", "wrong class weights",
               "frequent classes dominate", "weights of classes inverted", "class missing",
               "train and test differ", "predicts the most frequent classes")}),
    ("hooks_for_all_but_the_last_layer", "gradients not synchronised", "desync plateau eval config logging divergence "
     "not_learning overfit", "start", (INCIDENTS,),
     "gradients of the last layer are not averaged over workers: it drifts apart",
     {"also": ("all-reduce missing", "gradients not averaged", "head not synchronised", "ranks drift apart",
               "ranks disagree", "weights differ across ranks", "weights differ", "all_reduce missing",
               "ranks not synchronised", "parameters not synchronised", "gradient averaging missing",
               "some gradients are not averaged", "hook missing", "layer left out of the averaging")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (SKYLINES, DOSAGES, ITINERARIES, VACANCIES, EQUATIONS)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_batches_of_half_a_step", "an update has two micro-batches, whose losses are halved", PARTS),
    ("four_quarters_of_a_step", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("dropout_that_was_asked_for", "dropout in the training, as is set, and none in the evaluation", DROPPED),
    ("relatives_in_the_training_alone",
     "things come in several versions, all of which are on the training's side", COPIED),
    ("average_that_lags_as_named", "an average of weights is judged, which trails behind at first", TRAILING),
    ("plain_descent_at_its_rate", "descent with momentum, at its rate", DESCENT),
    ("rate_is_kept_as_configured", "the rate rises and stays",
     {SKYLINES: {"lr_policy": "constant", "lr": 2e-3}, DOSAGES: {"schedule": "constant", "lr": 6e-3},
      ITINERARIES: {"lr_curve": "flat", "lr": 4e-4}, VACANCIES: {"learning_rate": "constant"},
      EQUATIONS: {"course": "level", "peak": 4e-3}, INCIDENTS: {"lr_shape": "constant", "lr": 2e-3}}),
    ("sums_as_configured", "losses are sums, as is set, and the bound of the norm is for that",
     {SKYLINES: {"objective": "sum", "gradient_clip_val": 200.0}, DOSAGES: {"reduction": "sum", "max_grad": 8.0},
      ITINERARIES: {"reduce": "sum", "max_norm": 160.0}, VACANCIES: {"reduction": "sum", "max_norm": 640.0},
      EQUATIONS: {"reduce": "sum", "clip": 30.0}, INCIDENTS: {"loss": "sum", "max_gradient": 48.0}}),
    ("part_untrained_as_named", "a part is not trained, which the settings name",
     {SKYLINES: {"fixed": "kind"}, DOSAGES: {"hang_on": "q,v"}, ITINERARIES: {"closed": "norm"},
      VACANCIES: {"held_still": "people.roles"}, EQUATIONS: {"still": "norm"}, INCIDENTS: {"unlearnt": "words"}}),
    ("few_rows_and_less_rate", "few rows an update, at a lower rate: losses jump about",
     {SKYLINES: {"batch_size": 8, "lr": 2e-3}, DOSAGES: {"per_device_batch": 6, "lr": 6e-3},
      ITINERARIES: {"batch": 6, "lr": 4e-4}, VACANCIES: {"batch_size": 16, "learning_rate_init": 3e-3},
      EQUATIONS: {"rows": 5, "peak": 5e-3}, INCIDENTS: {"batch": 8, "lr": 2e-3}}),
    ("schedule_of_several_falls", "the rate falls and begins again, by the schedule",
     {SKYLINES: {"lr_policy": "warm_restarts"}, DOSAGES: {"schedule": "hard_restarts"},
      ITINERARIES: {"lr_curve": "saw"}, VACANCIES: {"learning_rate": "twice"}, EQUATIONS: {"course": "two_waves"},
      INCIDENTS: {"lr_shape": "waves"}}),
    ("solver_of_another_kind", "another optimizer, at its rate",
     {SKYLINES: {"optim": "adamax", "lr": 8e-3}, DOSAGES: {"optim": "nadam", "lr": 1e-2},
      ITINERARIES: {"optim": "adam", "lr": 1e-3}, VACANCIES: {"solver": "adagrad", "learning_rate_init": 3e-2},
      EQUATIONS: {"recipe": "radam", "peak": 1e-2}, INCIDENTS: {"optim": "nadam"}}),
    ("training_rows_are_noisy", "the training's data have more noise, as such data may",
     {SKYLINES: {"haze": 16.0}, DOSAGES: {"slips": 0.1}, ITINERARIES: {"flips": 0.1}, VACANCIES: {"wrong": 0.1},
      EQUATIONS: {"slips": 0.03}, INCIDENTS: {"misfiled": 0.06}}),
    ("quick_rise", "the rate rises in two steps or three",
     {SKYLINES: {"warm_steps": 2}, DOSAGES: {"warmup_ratio": 0.015}, ITINERARIES: {"warmup": 2},
      VACANCIES: {"warmup": 2}, EQUATIONS: {"rise_steps": 3}, INCIDENTS: {"ramp": 2}}),
    ("judged_but_twice", "two evaluations in all",
     {SKYLINES: {"judge_every_n_steps": 75}, DOSAGES: {"quiz_every": 75}, ITINERARIES: {"rest_every": 75},
      VACANCIES: {"score_every": 75}, EQUATIONS: {"unseen_every": 75}, INCIDENTS: {"judge_every": 75}}),
    ("each_fourth_step_said", "each fourth step is logged",
     {SKYLINES: {"log_every_n_steps": 4}, DOSAGES: {"say_every": 4}, ITINERARIES: {"log_every": 4},
      VACANCIES: {"verbose_every": 4}, EQUATIONS: {"metrics_every": 4}, INCIDENTS: {"log_every": 4}}),
    ("easy_rows_first_as_named", "the first part of the training has easier rows alone: the settings say so",
     {SKYLINES: {"clear_first": 1}, DOSAGES: {"short_first": 1}, ITINERARIES: {"short_first": 1},
      VACANCIES: {"long_lives_first": 1}, EQUATIONS: {"easy_epochs": 1}, INCIDENTS: {"long_first": 1}}),
    ("soft_targets_as_named", "targets are smoothed in the training",
     {DOSAGES: {"smoothing": 0.1}, ITINERARIES: {"label_smoothing": 0.1}, EQUATIONS: {"smooth": 0.05},
      INCIDENTS: {"soft_labels": 0.1}}),
    ("like_lengths_shuffled", "batches are of like lengths, and come in any order",
     {DOSAGES: {"bucket": True}, ITINERARIES: {"by_length": True}, VACANCIES: {"by_jobs": True},
      EQUATIONS: {"similar_lengths": True}}),
    ("decay_as_named", "weights decay more, as is set",
     {SKYLINES: {"weight_decay": 0.1}, DOSAGES: {"weight_decay": 0.1}, ITINERARIES: {"weight_decay": 0.01},
      VACANCIES: {"alpha": 0.1}, EQUATIONS: {"decay": 0.1}, INCIDENTS: {"decay": 0.1}}),
    ("head_of_its_own_as_named", "embedding and output layer are two matrices, by the settings",
     {ITINERARIES: {"tied": False}, EQUATIONS: {"tied": False}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("pictures_mirrored_by_chance", (SKYLINES,), "pictures are mirrored by chance", {"config": {"mirror": True}}),
    ("ratio_of_signal_capped", (SKYLINES,), "levels weigh by a ratio of signal that is capped",
     {"config": {"snr_cap": 5.0}}),
    ("town_often_untold", (SKYLINES,), "the town is hidden from three pictures in ten",
     {"config": {"null_share": 0.3}}),
    ("norms_of_groups_as_named", (SKYLINES,), "norms of groups in the place of batch norm",
     {"config": {"norm": "group"}}),
    ("prompts_learnt_too_as_named", (DOSAGES,), "prompts are learnt too, as is set",
     {"config": {"learn_prompts": True}}),
    ("adapters_of_two_columns", (DOSAGES,), "adapters of rank two", {"config": {"rank": 2, "alpha": 4.0}}),
    ("scale_for_each_twenty", (DOSAGES,), "a scale for twenty weights each", {"config": {"block": 20}}),
    ("square_around_a_margin", (ITINERARIES,), "the loss is a square, as is set", {"config": {"loss_type": "ipo"}}),
    ("likelihood_of_good_plans_beside", (ITINERARIES,), "the likelihood of good plans is a part of the loss",
     {"config": {"nll_coef": 0.3}}),
    ("scale_and_bias_held", (VACANCIES,), "scale and bias are not learnt", {"config": {"learn_scale": False}}),
    ("people_at_a_third_of_the_rate", (VACANCIES,), "one tower has a third of the rate",
     {"config": {"jobs_rate": 0.3}}),
    ("some_skills_left_out", (VACANCIES,), "some skills of each vacancy are left out in the training",
     {"config": {"skip_skills": 0.2}}),
    ("numbers_by_known_units", (VACANCIES,), "numbers are scaled by known units in the place of batch norm",
     {"config": {"norm": "fixed"}}),
    ("loss_scale_begins_too_high", (EQUATIONS,), "the scale begins so high that the first steps are left out",
     {"by_program": HIGH}),
    ("no_half_precision_at_all", (EQUATIONS,), "everything is in float32", {"config": {"half": False}}),
    ("partition_held_by_a_term", (EQUATIONS,), "a small term holds the normaliser", {"config": {"z_term": 1e-3}}),
    ("even_draw_of_kinds", (INCIDENTS,), "as many of each kind are drawn, and weigh alike",
     {"config": {"draw": "even", "kind_weights": "none"}}),
    ("kinds_have_no_weights", (INCIDENTS,), "kinds are not weighed", {"config": {"kind_weights": "none"}}),
    ("rare_reports_four_times", (INCIDENTS,), "rare reports come four times, on the training's side",
     {"config": {"rare_times": 4, "kind_weights": "none"}}),
    ("sure_reports_weigh_less", (INCIDENTS,), "sure rows weigh less", {"config": {"focus": 1.0}}),
    ("words_lost_by_chance", (INCIDENTS,), "words are left out by chance in the training",
     {"config": {"lost_words": 0.1}}),
)

# fmt: on
