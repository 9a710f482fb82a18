"""The eighteenth half of the bench, which is put away: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a diffusion model of strokes with an average of its weights, adapters that turn
matrices beside a base of four bits, two towers with queues that slow copies fill, a compact transformer over drawn
pictures, a language model in pure bfloat16, a classifier of rare kinds on two ranks; each as another ordinary engineer
writes it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong
in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule,
and did not look at what the doctor says. A fault is called by any name that a person would give it, and every kind of
finding that would be right of it is right; the names that the seventeenth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import ninth, seventeenth, sixteenth
from halves.ninth import Row, Settings, some

SCRIBBLES, REMEDIES, AROMAS = "scribbles", "remedies", "aromas"
SNOWFLAKES, BULLETINS, METEORS = "snowflakes", "bulletins", "meteors"
PROGRAMS = (SCRIBBLES, REMEDIES, AROMAS, SNOWFLAKES, BULLETINS, METEORS)
STEPS = {SCRIBBLES: 180, REMEDIES: 160, AROMAS: 160, SNOWFLAKES: 180, BULLETINS: 160, METEORS: 175}
REPORTED = frozenset({
    "seed_set_each_batch", "end_masked", "updates_lost_in_bf16", "weights_by_count", "tower_without_gradient",
    "clean_points_clipped_to_one", "merged_for_dev_not_taken_out", "own_keys_queued_first",
    "positive_behind_the_queue", "cut_in_share_of_rest", "convolution_padded_on_both_sides", "gaps_are_what_is_pooled",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    SCRIBBLES: {"parts_per_update": 2, "strokes_per_batch": 16}, REMEDIES: {"micro_steps": 2},
    AROMAS: {"loader.parts": 2, "loader.vials": 16}, SNOWFLAKES: {"iters_to_accumulate": 2, "bsz": 16},
    BULLETINS: {"micro_batches_per_update": 2}, METEORS: {"sync_every": 2, "curves_per_rank": 8},
}
DROPPED: Settings = {
    SCRIBBLES: {"p_drop": 0.5}, REMEDIES: {"dora_dropout": 0.2}, AROMAS: {"model.dropout": 0.4},
    SNOWFLAKES: {"attn_drop": 0.3, "path_drop": 0.2}, BULLETINS: {"hidden_drop": 0.2}, METEORS: {"dropout_p": 0.3},
}
COPIED: Settings = {
    SCRIBBLES: {"pens_of_each": 8, "album": 880}, REMEDIES: {"told_each": 8, "cases": 640, "doubt": 0.15},
    AROMAS: {"data.scans_of_each": 5, "data.vials": 850},
    SNOWFLAKES: {"shots_per_flake": 8, "plates": 880, "cutmix": 0.2, "aug_ops": 1}, BULLETINS: {"stride": 10},
    METEORS: {"rare_copies": 5, "catalogue": 480},
}
DESCENT: Settings = {
    SCRIBBLES: {"solver": "momentum", "adam_lr": 0.05, "max_gradient": 100.0},
    REMEDIES: {"optim": "sgd", "learning_rate": 0.1, "grad_clip": 100.0},
    AROMAS: {"optim.name": "sgd", "optim.rate": 0.3, "optim.rise": 40, "loss.temperature": 0.2},
    SNOWFLAKES: {"opt": "sgd", "base_rate": 0.1, "max_norm": 100.0},
    BULLETINS: {"solver": "sgd", "peak": 0.2, "norm_limit": 20.0}, METEORS: {"how": "sgd", "rate": 0.05, "clip": 100.0},
}
DESCENT_IN_PARTS: Settings = {
    SCRIBBLES: {**DESCENT[SCRIBBLES], "adam_lr": 0.1, "parts_per_update": 4, "strokes_per_batch": 8},
    REMEDIES: {**DESCENT[REMEDIES], "micro_steps": 4},
    SNOWFLAKES: {**DESCENT[SNOWFLAKES], "iters_to_accumulate": 4, "bsz": 8},
    BULLETINS: {**DESCENT[BULLETINS], "peak": 0.5, "micro_batches_per_update": 4},
    METEORS: {**DESCENT[METEORS], "sync_every": 4, "curves_per_rank": 4},
}
LEVEL: Settings = {
    SCRIBBLES: {"lr_mode": "constant", "adam_lr": 2e-3}, REMEDIES: {"lr_type": "constant", "learning_rate": 6e-3},
    AROMAS: {"optim.fall": "none", "optim.rate": 2e-3}, SNOWFLAKES: {"rate_by": "none", "base_rate": 1.5e-3},
    BULLETINS: {"plan": "level", "peak": 4e-3}, METEORS: {"rate_shape": "flat", "rate": 2e-3},
}
AVERAGED: Settings = {AROMAS: {"slow.judged": True}, SNOWFLAKES: {"ema": 0.9}, BULLETINS: {"mean_of": 0.9}}
LAGGING: Settings = {SCRIBBLES: {"halflife": 25.0}, SNOWFLAKES: {"ema": 0.97}, BULLETINS: {"mean_of": 0.985}}
SAVED: Mapping[str, Any] = {"saved_modules": "embed"}
EVENLY: Mapping[str, Any] = {"draw": "even", "weigh": "none"}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*seventeenth.SUMMED, "losses of strokes summed", "loss is a sum over points", "loss not divided by points",
          "soft cross-entropy summed", "sum over curves", "losses of queries summed", "mean forgotten")
GRAPHS = (*seventeenth.GRAPHS, "sampling with gradients on", "table of scores kept with its graph",
          "dev logits kept with graphs", "held-back logits kept with graphs")
TWICE = (*seventeenth.TWICE, "softmax for sampling left in", "softmax for generation left in",
         "similarities through a softmax first", "shares in place of scores")
SHIFTED = (*seventeenth.SHIFTED, "letters count from 1", "class folder too many", "codes count from 1",
           "condition off by one", "condition wrong", "conditioning label shifted", "words of the next vial",
           "labels not shifted", "logits not shifted", "not shifted", "shift missing", "rolled the wrong way",
           "previous token is the target", "copies its input", "targets are the inputs", "labels leak",
           "target in the input", "loss too low", "labels can be seen", "inputs not shifted", "targets are behind")
FROZEN = (*seventeenth.FROZEN, "film layers alone are trained", "lora not trained", "adapters not trained",
          "adapter matrices frozen", "magnitudes alone are trained", "query towers frozen", "wrong tower frozen",
          "last layer alone is trained", "stages frozen", "feed-forward not in the optimizer",
          "parameters in no group", "layers left out of the optimizer", "parameter group missing")
TIE = (*seventeenth.TIE, "modules_to_save unties", "saved copy untied from the head", "tied after the optimizer",
       "shared matrix not in the optimizer", "tied matrix not trained", "embedding trained alone",
       "head keeps the old embedding")
SORTED = (*seventeenth.SORTED, "one letter after the other", "season after season", "drawer by drawer",
          "kind by kind", "station after station", "sources one after the other", "sorted by source",
          "sorted by label")
LEAK = (*seventeenth.LEAK, "held-out vials in the cabinet", "one case told on both sides",
        "overlapping windows on both sides",
        "oversampled rows on both sides", "split by rows and not by groups")
FIGURES = (*seventeenth.FIGURES, "imagenet figures", "imagenet mean and std", "scaled by the pilot's figures",
           "scaled by another instrument", "scaled by an old survey")
STEPPED = (*seventeenth.STEPPED, "gamma of epochs taken each step", "iterations given for epochs",
           "total_iters in epochs", "rate by micro-batches", "epoch scheduler stepped per batch",
           "exponential decay each step", "cosine past its end")
ADDED = (*seventeenth.ADDED, "parts of a step added up", "micro-batches added up", "no_sync parts not divided")
IN_EVAL = (*seventeenth.IN_EVAL, "generation leaves evaluation mode on", "eval() after sampling",
           "one rank in evaluation mode", "ranks in different modes", "rank 0 in evaluation mode")
IN_TRAINING = (*seventeenth.IN_TRAINING, "stochastic depth in the evaluation", "drop path ignores the mode",
               "sampled with dropout")
AVERAGE = (*seventeenth.AVERAGE, "half-life in other units", "half-life far too long", "ema of a copy",
           "average follows a copy", "average of another model", "momentum encoder never updated",
           "key encoder never updated", "momentum update missing", "slow copy never moves")
NOT_BACK = (*seventeenth.NOT_BACK, "average poured into the model", "weights overwritten by the average")
RESUMED = (*seventeenth.RESUMED, "adapters alone saved", "model alone saved", "moments not in the file")
SAME = (*sixteenth.SAME, "sampler seeded alike on ranks", "weighted sampler with one seed", "rank always 0",
        "rank read from the wrong variable", "rank variable of another launcher")
OF_COPY = " jump_down attention zero overfit data"
OF_SWAP = "spike divergence eval data plateau jump_down config weight_growth update_ratio resume"

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # stale statistics
    "bn_momentum_of_tensorflow": {AROMAS: {"model.norm_momentum": 0.001}},
    # reported
    "seed_set_each_batch": {SCRIBBLES: {}},
    "end_masked": {REMEDIES: {}},
    "updates_lost_in_bf16": {BULLETINS: {"peak": 1e-4}},
    "weights_by_count": {METEORS: {}},
    "tower_without_gradient": {AROMAS: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("squares_of_strokes_totalled", "loss summed", ninth.OF_SUMS, "start", (SCRIBBLES,),
     "squared errors of a stroke's points are summed, and divided by the number of strokes alone",
     {"by_program": some(DESCENT, SCRIBBLES), "compare": "momentum_as_it_was_set", "also": SUMMED}),
    ("answer_tokens_totalled", "loss summed", ninth.OF_SUMS, "start", (REMEDIES,),
     "losses of an answer's tokens are summed, and divided by the number of cases alone",
     {"by_program": some(DESCENT, REMEDIES), "compare": "momentum_as_it_was_set", "also": SUMMED}),
    ("nce_of_rows_totalled", "loss summed", ninth.OF_SUMS, "start", (AROMAS,),
     "the loss is a sum over a batch's queries, where their mean was meant",
     {"by_program": some(DESCENT, AROMAS), "compare": "momentum_as_it_was_set", "also": SUMMED}),
    ("soft_targets_summed", "loss summed", ninth.OF_SUMS, "start", (SNOWFLAKES,),
     "losses by soft labels are summed over the batch as over the kinds",
     {"by_program": some(DESCENT, SNOWFLAKES), "compare": "momentum_as_it_was_set", "also": SUMMED}),
    ("window_losses_totalled", "loss summed", ninth.OF_SUMS, "start", (BULLETINS,),
     "losses of a window's tokens are summed, and divided by the number of windows alone",
     {"by_program": some(DESCENT, BULLETINS), "compare": "momentum_as_it_was_set", "also": SUMMED}),
    ("weighted_curves_totalled", "loss summed", ninth.OF_SUMS, "start", (METEORS,),
     "weighted losses of curves are made one by one, and summed",
     {"by_program": some(DESCENT, METEORS), "compare": "momentum_as_it_was_set", "also": SUMMED}),
    # forgotten no_grad
    ("sampler_keeps_its_tape", "no_grad missing", "memory eval data config", "start", (SCRIBBLES,),
     "what the average foretells is made with gradients on, and errors are kept for a figure",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("dev_answers_hold_graphs", "no_grad missing", "memory eval data config", "start", (REMEDIES,),
     "cases that are held out are answered with gradients on, and what was said is kept",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("heldout_table_with_graph", "no_grad missing", "memory eval data config", "start", (AROMAS,),
     "each table of scores of what is held out is kept, with its graph",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("heldback_said_with_graph", "no_grad missing", "memory eval data config", "start", (BULLETINS,),
     "windows that are held back are read with gradients on, and what was said is kept",
     {"also": GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("head_says_chances_for_sampling", "softmax twice", ninth.OF_SOFTMAX, "start", (REMEDIES,),
     "the head gives probabilities, as the sampling wants them, and the loss takes them for logits", {"also": TWICE}),
    ("similarities_made_shares", "softmax twice", ninth.OF_SOFTMAX, "start", (AROMAS,),
     "similarities go through a softmax ahead of the cross-entropy", {"also": TWICE}),
    ("classifier_says_shares", "softmax twice", ninth.OF_SOFTMAX, "start", (SNOWFLAKES,),
     "the classifier ends with a softmax, and the loss takes the logarithm of another", {"also": TWICE}),
    ("chances_of_generate_left_in", "softmax twice", ninth.OF_SOFTMAX, "start", (BULLETINS,),
     "a softmax that was written for the sampling of text is in the model's forward pass", {"also": TWICE}),
    ("shares_given_for_scores", "softmax twice", ninth.OF_SOFTMAX, "start", (METEORS,),
     "the network gives shares of kinds, and the weighted loss takes them for scores", {"also": TWICE}),
    # label off by one
    ("letters_counted_from_one", "labels shifted", ninth.OF_LABELS, "start", (SCRIBBLES,),
     "the album's letters, which the net is told, count from 1, those of the held-out strokes from 0",
     {"also": SHIFTED}),
    ("logits_not_moved_against_labels", "labels shifted", ninth.OF_LABELS + OF_COPY, "start", (REMEDIES,),
     "the training's logits are not moved against the labels: each token is asked for where it is read",
     {"also": SHIFTED}),
    ("words_of_next_vial", "labels shifted", ninth.OF_LABELS, "start", (AROMAS,),
     "a line of headings is read as a vial: each spectrum of the training has the words of another",
     {"also": SHIFTED}),
    ("folder_of_leftovers_counted", "labels shifted", ninth.OF_LABELS, "start", (SNOWFLAKES,),
     "the training's folders have one more at the front: each kind's number is one too high", {"also": SHIFTED}),
    ("wanted_rolled_the_other_way", "labels shifted", ninth.OF_LABELS + OF_COPY, "start", (BULLETINS,),
     "what is wanted is rolled the other way in the training: the token before is asked for", {"also": SHIFTED}),
    ("catalogue_codes_from_one", "labels shifted", ninth.OF_LABELS, "start", (METEORS,),
     "codes of the catalogue count from 1, those of the survey from 0", {"also": SHIFTED}),
    # wrong part frozen
    ("film_layers_tuned_alone", "layer frozen", ninth.OF_FROZEN, "start", (SCRIBBLES,),
     "layers that letters speak through are trained alone, as for new letters; the net was never trained",
     {"also": FROZEN}),
    ("factors_missed_by_name", "layer frozen", ninth.OF_FROZEN, "start", (REMEDIES,),
     "the list of what is trained has names of another library: lengths of rows are trained, factors are not",
     {"also": FROZEN}),
    ("freeze_took_the_query_trunks", "layer frozen", ninth.OF_FROZEN, "start", (AROMAS,),
     "gradients are turned off for the towers that are trained, where those of the slow copies were meant",
     {"also": FROZEN}),
    ("all_but_last_two_frozen", "layer frozen", ninth.OF_FROZEN, "start", (SNOWFLAKES,),
     "all parameters but the last two are frozen, in a network that was never trained", {"also": FROZEN}),
    ("gates_in_neither_group", "parameters missing from the optimizer", ninth.OF_FROZEN, "start", (BULLETINS,),
     "matrices of the gated layers are in neither group that the solver is given", {"also": FROZEN}),
    ("stages_frozen_untrained", "layer frozen", ninth.OF_FROZEN, "start", (METEORS,),
     "convolutions are frozen as those of an older network; here they are as drawn", {"also": FROZEN}),
    # weight tying broken
    ("saved_copy_without_its_head", "weight tying broken", ninth.OF_TIE, "start", (REMEDIES,),
     "the embedding is trained as a saved copy, and the output keeps the matrix that it was",
     {"by_program": {REMEDIES: SAVED}, "compare": "embedding_saved_beside", "also": TIE}),
    ("shared_matrix_made_behind_solver", "optimizer holds other parameters", ninth.OF_TIE, "start", (BULLETINS,),
     "embedding and output are given one new matrix when the solver has been made", {"also": TIE}),
    # order
    ("album_letter_by_letter", "data sorted", ninth.OF_ORDER, "start", (SCRIBBLES,),
     "strokes come as the album has them: one letter after the other", {"also": SORTED}),
    ("season_after_season", "data sorted", ninth.OF_ORDER, "start", (REMEDIES,),
     "cases come one season after the other, in each pass", {"also": SORTED}),
    ("cabinet_drawer_by_drawer", "data sorted", ninth.OF_ORDER, "start", (AROMAS,),
     "vials come drawer by drawer, in each pass", {"also": SORTED}),
    ("plates_kind_by_kind", "data sorted", ninth.OF_ORDER, "start", (SNOWFLAKES,),
     "plates come one kind after the other", {"also": SORTED}),
    ("station_after_station", "data sorted", ninth.OF_ORDER, "start", (BULLETINS,),
     "windows come one station after the other", {"also": SORTED}),
    ("catalogue_kind_by_kind", "data sorted", ninth.OF_ORDER, "start", (METEORS,),
     "curves come as the catalogue lists them, by kind, on both ranks", {"also": SORTED}),
    # leaking validation
    ("tellings_of_case_split_apart", "validation leak", ninth.OF_LEAK, "start", (REMEDIES,),
     "each case is told eight times in other orders, and tellings are dealt out to both sides",
     {"by_program": some(COPIED, REMEDIES), "compare": "copies_on_one_side_alone", "also": LEAK}),
    ("cabinet_listed_with_heldout", "validation leak", ninth.OF_LEAK, "start", (AROMAS,),
     "the cabinet was listed with the vials that are held out, and shortened for a trial", {"also": LEAK}),
    ("overlapping_windows_dealt_out", "validation leak", ninth.OF_LEAK, "start", (BULLETINS,),
     "windows overlap by three quarters, and are mixed before some are held back",
     {"by_program": some(COPIED, BULLETINS), "compare": "copies_on_one_side_alone", "also": LEAK}),
    ("survey_drawn_of_copied_catalogue", "validation leak", ninth.OF_LEAK, "start", (METEORS,),
     "curves of rare kinds are copied, and the survey is drawn of what is there then",
     {"by_program": some(COPIED, METEORS), "compare": "copies_on_one_side_alone", "also": LEAK}),
    # stale statistics
    ("sampler_scaled_by_tablet", "inputs not normalised", ninth.OF_STATISTICS, "start", (SCRIBBLES,),
     "strokes that are held out are scaled by the figures of a pilot's tablet", {"also": FIGURES}),
    ("heldout_by_first_instrument", "inputs not normalised", ninth.OF_STATISTICS, "start", (AROMAS,),
     "spectra that are held out are scaled by the figures of the first instrument", {"also": FIGURES}),
    ("gallery_scaled_by_imagenet", "inputs not normalised", ninth.OF_STATISTICS, "start", (SNOWFLAKES,),
     "the gallery's pictures are scaled by ImageNet's figures, the training's by their own", {"also": FIGURES}),
    ("survey_scaled_by_plates", "inputs not normalised", ninth.OF_STATISTICS, "start", (METEORS,),
     "the survey's curves are scaled by the figures of photographic plates", {"also": FIGURES}),
    # scheduler
    ("gamma_taken_each_update", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (SCRIBBLES,),
     "the factor by which the rate falls in an epoch is taken in each update", {"also": STEPPED}),
    ("curve_counts_micro_steps", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (REMEDIES,),
     "the schedule is moved with each micro-step, of which a step has two",
     {"by_program": some(PARTS, REMEDIES), "compare": "parts_of_a_step_divided", "also": STEPPED}),
    ("polynomial_told_epochs", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (AROMAS,),
     "the polynomial's length is given in epochs, and it falls in each step", {"also": STEPPED}),
    ("iteration_given_for_epoch", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (SNOWFLAKES,),
     "the function of the rate, which wants an epoch, is given the iteration", {"also": STEPPED}),
    ("rate_by_micro_batches", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (BULLETINS,),
     "the rate is told by how many micro-batches were read, where updates are meant",
     {"by_program": some(PARTS, BULLETINS), "compare": "parts_of_a_step_divided", "also": STEPPED}),
    ("epoch_cosine_moved_each_batch", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (METEORS,),
     "the cosine, which counts epochs, is moved with each batch", {"also": STEPPED}),
    # accumulation
    ("parts_of_update_not_divided", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (SCRIBBLES,),
     "gradients of four parts add up to an update, and losses are not divided",
     {"by_program": some(DESCENT_IN_PARTS, SCRIBBLES), "compare": "four_parts_by_momentum", "also": ADDED}),
    ("micro_losses_left_whole", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (REMEDIES,),
     "losses of four micro-steps are whole, where each was to be a quarter",
     {"by_program": some(DESCENT_IN_PARTS, REMEDIES), "compare": "four_parts_by_momentum", "also": ADDED}),
    ("soft_losses_accumulated_whole", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start",
     (SNOWFLAKES,), "four iterations are accumulated, and no loss is divided by four",
     {"by_program": some(DESCENT_IN_PARTS, SNOWFLAKES), "compare": "four_parts_by_momentum", "also": ADDED}),
    ("micro_batches_added_whole", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (BULLETINS,),
     "losses of four micro-batches are added as they are",
     {"by_program": some(DESCENT_IN_PARTS, BULLETINS), "compare": "four_parts_by_momentum", "also": ADDED}),
    ("unsynced_parts_not_divided", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (METEORS,),
     "four parts add up on each rank without a division, three of them under `no_sync`",
     {"by_program": some(DESCENT_IN_PARTS, METEORS), "compare": "four_parts_by_momentum", "also": ADDED}),
    # dropout
    ("mode_set_before_engine_runs", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (SCRIBBLES,),
     "training mode is set once before the engine runs, and the first sampling ends it",
     {"by_program": some(DROPPED, SCRIBBLES), "compare": "dropped_while_training_alone", "also": IN_EVAL}),
    ("base_readied_in_eval", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (REMEDIES,),
     "the base comes in evaluation mode when it is made ready for its bits, and adapters never drop anything",
     {"by_program": some(DROPPED, REMEDIES), "compare": "dropped_while_training_alone", "also": IN_EVAL}),
    ("eval_left_on_by_judge", "evaluation mode left on", ninth.OF_EVAL_MODE + " activations", "start", (AROMAS,),
     "the judge puts the towers in evaluation mode, and no one puts them back",
     {"by_program": some(DROPPED, AROMAS), "compare": "dropped_while_training_alone",
      "also": (*IN_EVAL, *seventeenth.STATISTICS)}),
    ("gallery_leaves_model_in_eval", "evaluation mode left on", ninth.OF_EVAL_MODE + " activations", "start",
     (SNOWFLAKES,), "behind the first look at the gallery all is trained in evaluation mode",
     {"by_program": some(DROPPED, SNOWFLAKES), "compare": "dropped_while_training_alone",
      "also": (*IN_EVAL, *seventeenth.STATISTICS)}),
    ("sample_of_text_leaves_eval", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (BULLETINS,),
     "the model is put in evaluation mode for a look, and the update never sets it back",
     {"by_program": some(DROPPED, BULLETINS), "compare": "dropped_while_training_alone", "also": IN_EVAL}),
    ("first_rank_left_in_eval", "evaluation mode left on", ninth.OF_EVAL_MODE + " activations desync", "start",
     (METEORS,), "rank 0, which judges alone, stays in evaluation mode; the other rank trains on",
     {"by_program": some(DROPPED, METEORS), "compare": "dropped_while_training_alone",
      "also": (*IN_EVAL, *seventeenth.STATISTICS)}),
    ("sampled_in_training_mode", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (SCRIBBLES,),
     "the average samples in training mode, with dropout",
     {"by_program": some(DROPPED, SCRIBBLES), "compare": "dropped_while_training_alone", "also": IN_TRAINING}),
    ("dev_with_adapters_dropping", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (REMEDIES,),
     "cases that are held out are answered while adapters drop",
     {"by_program": some(DROPPED, REMEDIES), "compare": "dropped_while_training_alone", "also": IN_TRAINING}),
    ("heldout_while_dropping", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (AROMAS,),
     "vials that are held out are judged in training mode",
     {"by_program": some(DROPPED, AROMAS), "compare": "dropped_while_training_alone", "also": IN_TRAINING}),
    ("paths_dropped_in_gallery", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (SNOWFLAKES,),
     "the function that drops paths is not told the mode: paths are dropped in the gallery too",
     {"by_program": some(DROPPED, SNOWFLAKES), "compare": "dropped_while_training_alone", "also": IN_TRAINING}),
    ("heldback_read_with_dropout", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (BULLETINS,),
     "windows that are held back are read in training mode",
     {"by_program": some(DROPPED, BULLETINS), "compare": "dropped_while_training_alone", "also": IN_TRAINING}),
    ("survey_judged_in_train_mode", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (METEORS,),
     "the survey is judged without a call of evaluation mode",
     {"by_program": some(DROPPED, METEORS), "compare": "dropped_while_training_alone", "also": IN_TRAINING}),
    # average
    ("halflife_in_kilopictures", "averaged weights not updated", ninth.OF_AVERAGE, "start", (SCRIBBLES,),
     "the average's half-life was given in thousands of pictures, and is taken for so many updates of 16 pictures",
     {"also": (*AVERAGE, "decay of the average too slow")}),
    ("average_poured_into_net", "averaged weights not swapped back", OF_SWAP, "start", (SCRIBBLES,),
     "the net is given the average's weights for a sampling, and keeps them",
     {"by_program": some(LAGGING, SCRIBBLES), "compare": "average_that_lags", "also": NOT_BACK}),
    ("slow_towers_made_once", "averaged weights not updated", ninth.OF_AVERAGE + " not_learning", "start", (AROMAS,),
     "slow towers, which make the keys and are judged, are copied once and never follow",
     {"by_program": some(AVERAGED, AROMAS), "compare": "average_judged_nearby", "also": AVERAGE}),
    ("average_follows_a_copy", "averaged weights not updated", ninth.OF_AVERAGE, "start", (SNOWFLAKES,),
     "the average follows a copy of the model that was made before the training",
     {"by_program": some(AVERAGED, SNOWFLAKES), "compare": "average_judged_nearby", "also": AVERAGE}),
    ("average_stays_for_training", "averaged weights not swapped back", OF_SWAP, "start", (SNOWFLAKES,),
     "for the gallery the average is loaded into the model that is trained",
     {"by_program": some(LAGGING, SNOWFLAKES), "compare": "average_that_lags", "also": NOT_BACK}),
    ("mean_kept_in_bfloat16", "average in half precision", ninth.OF_AVERAGE, "start", (BULLETINS,),
     "the average is bfloat16 as the weights are, and most of what it is to follow by is rounded away",
     {"by_program": some(LAGGING, BULLETINS), "compare": "average_that_lags",
      "also": (*AVERAGE, "average kept in bfloat16", "average rounds", "ema in bfloat16")}),
    # resume
    ("moments_begin_anew", "optimizer state lost", ninth.OF_RESUME, "resume", (SCRIBBLES,),
     "at a resume all is loaded but the optimizer", {"also": RESUMED}),
    ("adapters_alone_in_file", "optimizer state lost", ninth.OF_RESUME, "resume", (REMEDIES,),
     "the file has adapters and the schedule, and the optimizer begins anew", {"also": RESUMED}),
    ("towers_and_queues_saved_alone", "optimizer state lost", ninth.OF_RESUME, "resume", (AROMAS,),
     "towers, queues and the schedule are saved, the optimizer's moments are not", {"also": RESUMED}),
    ("solver_state_in_other_file", "optimizer state lost", ninth.OF_RESUME, "resume", (BULLETINS,),
     "the solver's state is in a second file, which the resume does not read", {"also": RESUMED}),
    # ranks
    ("even_draw_alike_on_ranks", "same data on all ranks", sixteenth.OF_RANKS, "start", (METEORS,),
     "kinds are drawn evenly by a sampler that has one seed on both ranks",
     {"config": EVENLY, "compare": "drawn_evenly_on_each_rank", "also": SAME}),
    ("rank_of_other_launcher", "same data on all ranks", sixteenth.OF_RANKS, "start", (METEORS,),
     "the rank is read from a variable that another launcher sets: it is 0 on both", {"also": SAME}),
    # reported
    ("clean_points_clipped_to_one", "outputs clipped", "plateau eval not_learning vanishing zero data config "
     "divergence overfit dead saturated", "start", (SCRIBBLES,),
     "what is foretold is clipped to -1 and 1 as pictures are; strokes are standardised and go further",
     {"also": ("output clipped", "clamp in the training", "clip_sample", "predictions clamped", "gradients vanish",
               "gradients die", "clipped outputs have no gradient", "targets out of range", "ranges differ",
               "targets not scaled", "inputs not normalised", "saturated outputs", "train and test differ",
               "evaluation data differ", "loss too high", "saturated")}),
    ("merged_for_dev_not_taken_out", "adapters merged twice", "spike divergence eval data plateau jump_down config "
     "resume not_learning update_ratio weight_growth", "start", (REMEDIES,),
     "adapters are merged into the base for each look at what is held out, and stay there beside themselves",
     {"also": ("adapter merged and added", "adapter counted twice", "merge without unmerge", "base changes",
               "frozen weights change", "unmerge missing", "base weights moved", "model changes in the evaluation",
               "averaged weights not swapped back", "weights overwritten", "evaluation changes the model",
               "learning rate too high", "loss jumps behind evaluations")}),
    ("own_keys_queued_first", "negatives wrong", "plateau eval not_learning data config divergence overfit logits",
     "start", (AROMAS,), "a batch's keys enter the queue before it is scored: each own key is among the others",
     {"also": ("positive among the negatives", "queue updated too early", "enqueue before the loss",
               "false negatives", "own key in the queue", "self among others", "labels wrong", "duplicates",
               "targets are not unique", "train and test differ", "evaluation data differ", "loss cannot fall",
               "labels do not match the inputs")}),
    ("positive_behind_the_queue", "wrong target", "not_learning plateau eval data divergence config overfit "
     "jump_down logits", "start", (AROMAS,),
     "the own key stands behind the queue, and labels say that it stands first",
     {"also": (*SHIFTED, *sixteenth.CONFUSED, "index of the positive wrong", "labels are zeros", "positive last",
               "concatenation order", "a negative is asked for", "learning rate too low")}),
    ("cut_in_share_of_rest", "labels do not match the inputs", "plateau not_learning eval data divergence overfit "
     "config", "start", (SNOWFLAKES,),
     "the share of a label is that of what was left, where that of the piece was meant",
     {"also": (*sixteenth.CONFUSED, "cutmix share wrong", "cutmix lambda swapped", "lambda on the wrong term",
               "mixup lambda swapped", "mix shares swapped", "cutmix labels wrong", "mixup labels exchanged",
               "augmentation breaks the labels", "labels noisy", "learning rate too low", "soft labels wrong")}),
    ("convolution_padded_on_both_sides", "causal mask missing", "jump_down eval overfit attention plateau data config "
     "zero", "start", (BULLETINS,), "the convolution is padded on both sides: it sees the token that is asked for",
     {"also": ("convolution not causal", "convolution sees ahead", "sees ahead", "model sees the future",
               "future leaks", "target in the input", "labels leak", "causal mask forgotten", "mask missing",
               "padding wrong", "loss too low", "leak", "labels can be seen", "copies its input",
               "evaluation too good", "token sees itself")}),
    ("gaps_are_what_is_pooled", "mask inverted", "plateau not_learning eval data config attention padding divergence "
     "overfit zero", "start", (METEORS,), "the mask of the pooling is upside down: what was not seen is pooled",
     {"also": ("mask upside down", "mask wrong", "padding pooled", "gaps pooled", "attention mask wrong",
               "padding not masked", "mask of the padding inverted", "inputs not used", "learning rate too low",
               "pooling over padding", "missing values used")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in PROGRAMS if program != METEORS},
    "memory_steady": {program: {} for program in PROGRAMS if program not in (SNOWFLAKES, METEORS)},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("parts_of_a_step_divided", "a step has two parts, whose losses are halved", PARTS),
    ("dropped_while_training_alone", "much dropout, while it is trained and at no other time", DROPPED),
    ("copies_on_one_side_alone", "many rows are of one thing, and all of these are trained on", COPIED),
    ("momentum_as_it_was_set", "momentum, no second moments, a rate that fits it", DESCENT),
    ("four_parts_by_momentum", "momentum, and four parts whose mean is taken", DESCENT_IN_PARTS),
    ("rate_that_stays", "the rate rises and stays, by the settings", LEVEL),
    ("average_judged_nearby", "an average of weights is judged, close to these", AVERAGED),
    ("average_that_lags", "an average of weights is judged, which is slow", LAGGING),
    ("part_held_as_named", "the settings name what is not to be trained",
     {SCRIBBLES: {"still": "pen"}, REMEDIES: {"not_trained": "layers.0"}, AROMAS: {"freeze": "tasters.trunk.0"},
      SNOWFLAKES: {"frozen": "tokenizer.0"}, BULLETINS: {"steady": "blocks.0.query"},
      METEORS: {"hold_still": "first"}}),
    ("few_rows_a_step", "few rows a step at a lower rate: losses jump about",
     {SCRIBBLES: {"strokes_per_batch": 8, "adam_lr": 2e-3, "lr_gamma": 0.9},
      REMEDIES: {"cases_per_step": 4, "learning_rate": 6e-3},
      AROMAS: {"loader.vials": 8, "optim.rate": 1.5e-3}, SNOWFLAKES: {"bsz": 8, "base_rate": 1.5e-3},
      BULLETINS: {"windows_per_update": 4, "peak": 4e-3}, METEORS: {"curves_per_rank": 6, "rate": 2e-3}}),
    ("totals_over_their_count", "a total over its count, or the mean of rows' means",
     {REMEDIES: {"reduce": "cases"}, SNOWFLAKES: {"soft": "sum"}, BULLETINS: {"loss_over": "windows"},
      METEORS: {"loss_as": "over_weights"}}),
    ("soft_where_trained", "targets are smoothed in the training's loss",
     {REMEDIES: {"label_smooth": 0.1}, AROMAS: {"loss.smoothing": 0.1}, BULLETINS: {"smear": 0.1},
      METEORS: {"soften": 0.1}}),
    ("solver_of_few", "an optimizer that few take",
     {SCRIBBLES: {"solver": "adamax", "adam_lr": 8e-3}, REMEDIES: {"optim": "nadam"},
      AROMAS: {"optim.name": "rprop_like", "optim.rate": 2e-3},
      SNOWFLAKES: {"opt": "adam_amsgrad"}, BULLETINS: {"solver": "amsgrad"}, METEORS: {"how": "radam", "rate": 0.01}}),
    ("rate_that_begins_again", "the rate falls and begins again, as the schedule says",
     {SCRIBBLES: {"lr_mode": "cyclic"}, REMEDIES: {"lr_type": "restarts"}, AROMAS: {"optim.fall": "warm_restarts"},
      SNOWFLAKES: {"rate_by": "restarts"}, BULLETINS: {"plan": "sawtooth"}, METEORS: {"rate_shape": "restarts"}}),
    ("some_rows_are_wrong", "some of the training's rows are told wrongly, as such data are",
     {SCRIBBLES: {"misread": 0.15}, REMEDIES: {"doubt": 0.12}, AROMAS: {"data.mislaid": 0.12},
      SNOWFLAKES: {"mistaken": 0.12}, BULLETINS: {"garbled": 0.08}, METEORS: {"mistaken": 0.1}}),
    ("short_of_a_rise", "the rate rises in two or three steps",
     {SCRIBBLES: {"rise_updates": 2, "adam_lr": 3e-3}, REMEDIES: {"warmup_ratio": 0.015, "learning_rate": 8e-3},
      AROMAS: {"optim.rise": 3}, BULLETINS: {"rise": 3, "peak": 5e-3}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("errors_taken_whole", (SCRIBBLES,), "errors are absolute, not squared", {"config": {"error": "absolute"}}),
    ("average_begins_late", (SCRIBBLES,), "the average is the net itself for 40 updates",
     {"config": {"halflife_from": 40}}),
    ("factors_without_lengths", (REMEDIES,), "factors alone, rows have no lengths of their own",
     {"config": {"method": "lora"}}),
    ("attention_adapted_alone", (REMEDIES,), "adapters are beside two matrices of a layer, by the settings",
     {"config": {"targets": "q v", "rank": 12}}),
    ("embedding_saved_beside", (REMEDIES,), "the embedding, which is the output, is trained beside the adapters",
     {"config": SAVED}),
    ("lengths_kept_side_by_side", (REMEDIES,), "cases of about one length share a batch, in any order",
     {"config": {"group_by_length": True}}),
    ("questions_are_learnt_too", (REMEDIES,), "questions are targets too, by the settings and on both sides",
     {"config": {"train_on_questions": True}}),
    ("spring_comes_first", (REMEDIES,), "the first pass has the cases of one season: the settings say so",
     {"config": {"season_first": True, "cases": 480}}),
    ("long_queue_of_keys", (AROMAS,), "queues hold the keys of ten batches", {"config": {"loss.queue": 320}}),
    ("one_drawer_a_batch", (AROMAS,), "batches are of neighbours, on purpose; they come in any order",
     {"config": {"data.one_family": True}}),
    ("words_left_unsaid", (AROMAS,), "one word in five is left out, in the training",
     {"config": {"data.words_lost": 0.2}}),
    ("labels_left_hard", (SNOWFLAKES,), "labels are not smoothed, and nothing is cut in",
     {"config": {"label_smoothing": 0.0, "cutmix": 0.0}}),
    ("cut_in_every_time", (SNOWFLAKES,), "a piece is cut in each time: the training's loss stays high",
     {"config": {"cutmix": 1.0}}),
    ("twice_in_a_batch", (SNOWFLAKES,), "each picture is in its batch twice, augmented apart",
     {"config": {"aug_times": 2}}),
    ("matrices_apart_as_set", (BULLETINS,), "embedding and output have a matrix each, by the settings",
     {"config": {"share_matrix": False}}),
    ("two_stations_first", (BULLETINS,), "windows of two stations are read in the first pass: the settings say so",
     {"config": {"stations_at_first": 2}}),
    ("drawn_evenly_on_each_rank", (METEORS,), "kinds are drawn evenly, by each rank for itself", {"config": EVENLY}),
    ("kinds_weigh_alike", (METEORS,), "kinds weigh alike, on purpose", {"config": {"weigh": "none"}}),
    ("focused_on_the_hard", (METEORS,), "curves that are told surely weigh little",
     {"config": {"focus": 2.0, "weigh": "none"}}),
    ("one_night_a_batch", (METEORS,), "batches are of one brightness, on purpose; they come in any order",
     {"config": {"by_night": True}}),
)

# fmt: on
