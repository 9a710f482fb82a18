"""The seventeenth half of the bench, which was put away and is open: programs, faults and healthy variants, as words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a hybrid of convolutions and attention over drawn pictures, curves and sentences
matched pair by pair, preferences without a reference, a recurrent classifier of rare classes over packed rows, a
language model under float16 with a scaler, a sequential recommender sharded over two processes; each as another
ordinary engineer writes it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a
person gets wrong in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them
had read no rule, and did not look at what the doctor says. A fault is called by any name that a person would give it,
and every kind of finding that would be right of it is right; the names that the sixteenth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import fifteenth, ninth, sixteenth
from halves.ninth import Row, Settings, some

KILIMS, BIRDCALLS, TOASTS = "kilims", "birdcalls", "toasts"
LIFTS, BALLADS, CANALS = "lifts", "ballads", "canals"
PROGRAMS = (KILIMS, BIRDCALLS, TOASTS, LIFTS, BALLADS, CANALS)
STEPS = {KILIMS: 160, BIRDCALLS: 160, TOASTS: 160, LIFTS: 168, BALLADS: 160, CANALS: 160}
REPORTED = frozenset({
    "tower_without_gradient", "weights_by_count", "clipped_while_scaled", "optimizer_before_shards",
    "mix_shares_swapped", "others_zero_not_minus_one", "assigned_behind_optimizer",
    "lengths_left_out", "packed_rows_not_put_back", "slopes_uphill", "wanted_lock_in_history",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    KILIMS: {"accum_iter": 2, "samples_per_gpu": 16}, TOASTS: {"split_into": 2, "pairs_per_step": 6},
    LIFTS: {"accum": 2, "bs": 16}, BALLADS: {"update_every": 2, "lines_per_update": 8},
    CANALS: {"grad_steps": 2, "rank_batch": 8},
}
DROPPED: Settings = {
    KILIMS: {"drop_rate": 0.4, "drop_path": 0.2}, BIRDCALLS: {"dropout": 0.3}, TOASTS: {"drop": 0.3},
    LIFTS: {"p_drop": 0.5}, BALLADS: {"dropout_rate": 0.2, "corpus_lines": 480},
    CANALS: {"hidden_dropout": 0.3, "voyages": 480},
}
COPIED: Settings = {
    KILIMS: {"shots_of_each": 8, "n_train": 880, "mixup_alpha": 0.0, "reprob": 0.0},
    BIRDCALLS: {"sentences_of_each": 5, "train_calls": 800}, LIFTS: {"rare_times": 5},
    CANALS: {"windows_of_each": 6, "voyages": 1200},
}
DESCENT: Settings = {
    KILIMS: {"opt_name": "sgd", "blr": 0.15, "clip_grad": 100.0},
    TOASTS: {"solver": "sgd", "peak": 0.006, "max_norm": 100.0},
    LIFTS: {"opt": "sgd", "lr_max": 0.1, "grad_clip": 100.0},
    BALLADS: {"method": "sgd", "top_lr": 0.4, "clip_to": 100.0},
    CANALS: {"kind": "sgd", "max_rate": 0.4, "clip_gnorm": 100.0},
}
DESCENT_IN_PARTS: Settings = {
    KILIMS: {**DESCENT[KILIMS], "accum_iter": 4, "samples_per_gpu": 8},
    TOASTS: {**DESCENT[TOASTS], "split_into": 4, "pairs_per_step": 3},
    LIFTS: {**DESCENT[LIFTS], "accum": 4, "bs": 8},
    BALLADS: {**DESCENT[BALLADS], "update_every": 4, "lines_per_update": 6},
    CANALS: {**DESCENT[CANALS], "grad_steps": 4, "rank_batch": 4},
}
LEVEL: Settings = {
    KILIMS: {"lr_policy": "flat", "blr": 2e-3}, BIRDCALLS: {"anneal": "flat", "base_lr": 3e-3},
    TOASTS: {"curve": "flat", "peak": 5e-4}, LIFTS: {"lr_kind": "flat", "lr_max": 2e-3},
    BALLADS: {"lr_shape": "level", "top_lr": 4e-3}, CANALS: {"decline": "none", "max_rate": 3e-3},
}
AVERAGED: Settings = {KILIMS: {"model_ema_decay": 0.9}, LIFTS: {"swa_from_epoch": 2}, BALLADS: {"ema_rate": 0.9}}
WIDENED: Settings = {TOASTS: {"more_words": 4}, CANALS: {"round_up_items": True}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*sixteenth.SUMMED, *fifteenth.SUMMED, "weighted losses summed", "losses of all pairs summed",
          "loss not divided by the number of pairs", "loss not divided by places")
GRAPHS = (*sixteenth.GRAPHS, "dev losses kept with graphs", "out-of-fold scores kept with graphs",
          "similarities kept with their graphs")
TWICE = (*sixteenth.TWICE, "sigmoid twice", "sigmoid before logsigmoid", "probabilities in place of logits",
         "sigmoid before the loss", "scores squashed", "scores without a scale", "softmax left in for inference")
SHIFTED = (*sixteenth.SHIFTED, *fifteenth.SHIFTED, "captions off by one", "sentences of the next row",
           "rows of two files do not match", "pairs misaligned", "pairs shuffled", "header row skipped",
           "labels shifted twice", "next item but one", "logps gathered at the wrong place", "logps not shifted")
FROZEN = (*sixteenth.FROZEN, *fifteenth.FROZEN, "towers frozen", "locked towers", "random features", "linear probe",
          "body frozen", "blocks frozen", "only norms are trained", "rnn frozen", "recurrent layer frozen")
TIE = (*sixteenth.TIE, *fifteenth.TIE, "output replaced after the optimizer was made", "head not trained",
       "output not trained", "tie broken by padding", "tie broken by a resize", "output not in the optimizer",
       "item table replaced", "scores not tied to the items")
SORTED = (*sixteenth.SORTED, *fifteenth.SORTED, "one bird after the other", "one river after the other",
          "grouped by class", "sequential loader", "ImageFolder without shuffle", "lengths ascending")
LEAK = (*sixteenth.LEAK, *fifteenth.LEAK, "captions of one recording on both sides", "windows overlap the split",
        "windows of one session on both sides", "dev set in the training", "photographs of one rug on both sides",
        "rows of one group on both sides")
FIGURES = (*sixteenth.FIGURES, "scaler of other data", "scaler pickled before", "test scaled otherwise")
STATISTICS = (*sixteenth.STATISTICS, "batch norm in eval mode during training", "batch norm frozen",
              "batch norm layers left in eval", "running statistics never updated", "norms not updated",
              "batch normalisation", "update_bn missing", "update_bn not called", "swa without update_bn",
              "statistics of the averaged model are stale", "buffers not averaged", "ema buffers not copied",
              "buffers of the average are stale", "bn statistics of the ema stale")
STEPPED = (*sixteenth.STEPPED, *fifteenth.STEPPED, "number of epochs given as steps", "T_max in epochs",
           "schedule length in epochs", "cosine oscillates", "learning rate goes up again", "scheduler stepped twice",
           "steplr stepped too often", "rate falls too early")
ADDED = (*sixteenth.ADDED, "accum_iter not divided", "loss not divided under the scaler")
IN_EVAL = (*sixteenth.IN_EVAL, *fifteenth.IN_EVAL, "model left in eval mode", "train() not called again")
IN_TRAINING = (*sixteenth.IN_TRAINING, *fifteenth.IN_TRAINING, "F.dropout without training flag",
               "functional dropout ignores eval", "drop path on in the evaluation", "batch norm uses batch statistics")
AVERAGE = (*sixteenth.AVERAGE, *fifteenth.AVERAGE, "ema updated once an epoch", "ema updated too rarely",
           "update_parameters never called", "swa model never updated", "swa never updated")
NOT_BACK = (*sixteenth.NOT_BACK, "ema copied into the model", "model overwritten by its average")
RESUMED = (*sixteenth.RESUMED, "optimizer rebuilt after its state was loaded", "optimizer re-created",
           "load_state_dict overwritten", "moments reset")
CONFUSED = sixteenth.CONFUSED

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # reported
    "tower_without_gradient": {BIRDCALLS: {}},
    "weights_by_count": {LIFTS: {}},
    "clipped_while_scaled": {BALLADS: {}},
    "optimizer_before_shards": {CANALS: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    # wrong reduction
    ("mixed_losses_summed", "loss summed", ninth.OF_SUMS, "start", (KILIMS,),
     "both losses of mixed pictures are sums over the batch, in the training",
     {"by_program": some(DESCENT, KILIMS), "compare": "momentum_by_itself", "also": SUMMED}),
    ("pairs_loss_not_averaged", "loss summed", ninth.OF_SUMS, "start", (TOASTS,),
     "losses of pairs are summed in the training, where their mean was meant",
     {"by_program": some(DESCENT, TOASTS), "compare": "momentum_by_itself", "also": SUMMED}),
    ("weighted_rows_totalled", "loss summed", ninth.OF_SUMS, "start", (LIFTS,),
     "weighted losses are a sum over rows, which nothing divides",
     {"by_program": some(DESCENT, LIFTS), "compare": "momentum_by_itself", "also": SUMMED}),
    ("line_losses_not_averaged", "loss summed", ninth.OF_SUMS, "start", (BALLADS,),
     "losses of a line's words are summed, and divided by the number of lines alone",
     {"by_program": some(DESCENT, BALLADS), "compare": "momentum_by_itself", "also": SUMMED}),
    ("place_losses_totalled", "loss summed", ninth.OF_SUMS, "start", (CANALS,),
     "losses of a history's places are summed, and divided by the number of histories alone",
     {"by_program": some(DESCENT, CANALS), "compare": "momentum_by_itself", "also": SUMMED}),
    # forgotten no_grad
    ("test_loop_under_grad", "no_grad missing", "memory eval data config", "start", (KILIMS,),
     "tests run with gradients on, and what the network said is kept",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("bank_kept_with_graphs", "no_grad missing", "memory eval data config", "start", (BIRDCALLS,),
     "a bank of scores of what is held out grows, each with its graph",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("dev_losses_under_grad", "no_grad missing", "memory eval data config", "start", (TOASTS,),
     "losses of pairs that are held out are made with gradients on, and are listed as tensors",
     {"also": GRAPHS, "compare": "memory_steady"}),
    ("oof_scores_under_grad", "no_grad missing", "memory eval data config", "start", (LIFTS, BALLADS),
     "what is held out is judged with gradients on, and scores or losses are kept for the end",
     {"also": GRAPHS, "compare": "memory_steady"}),
    # double softmax
    ("head_ends_with_softmax", "softmax twice", ninth.OF_SOFTMAX, "start", (KILIMS,),
     "the head gives probabilities, and the cross-entropy takes its softmax of them", {"also": TWICE}),
    ("chances_scored_as_logits", "softmax twice", ninth.OF_SOFTMAX, "start", (BIRDCALLS,),
     "scores go through a sigmoid ahead of the logarithm of their sigmoid", {"also": TWICE}),
    ("activation_kept_for_scores", "softmax twice", ninth.OF_SOFTMAX, "start", (LIFTS, BALLADS),
     "the network's last activation, a softmax for inference, is on in the training", {"also": TWICE}),
    ("scores_leave_as_chances", "softmax twice", ninth.OF_SOFTMAX, "start", (CANALS,),
     "scores of locks leave the model as probabilities, and the loss takes them for logits", {"also": TWICE}),
    # label off by one
    ("annotations_from_one", "labels shifted", ninth.OF_LABELS, "start", (KILIMS,),
     "annotations of the training count regions from 1, those of the test from 0", {"also": SHIFTED}),
    ("sentences_one_line_behind", "labels shifted", ninth.OF_LABELS, "start", (BIRDCALLS,),
     "the training's file of sentences loses its first line: each call has the next one's sentence",
     {"also": SHIFTED}),
    ("logps_gathered_at_input", "labels shifted", ninth.OF_LABELS + " rl logits attention zero", "start", (TOASTS,),
     "log-probabilities are those of the token that is read, not of the next, in the training",
     {"also": SHIFTED}),
    ("code_book_from_one", "labels shifted", ninth.OF_LABELS, "start", (LIFTS,),
     "the training's troubles are coded from 1 by a newer book, those that are judged from 0", {"also": SHIFTED}),
    ("wanted_cut_twice", "labels shifted", ninth.OF_LABELS, "start", (BALLADS,),
     "what is wanted is moved in the data set and in the loop: the word after the next", {"also": SHIFTED}),
    ("lock_behind_the_next", "labels shifted", ninth.OF_LABELS, "start", (CANALS,),
     "the training asks for the lock behind the next, validations for the next", {"also": SHIFTED}),
    # wrong part frozen
    ("linear_probe_left_on", "layer frozen", ninth.OF_FROZEN, "start", (KILIMS,),
     "the flag of a linear probe is on, and the network has never been trained", {"also": FROZEN}),
    ("towers_locked_as_pretrained", "layer frozen", ninth.OF_FROZEN, "start", (BIRDCALLS,),
     "both towers are locked, as where they come trained; here they are as drawn", {"also": FROZEN}),
    ("norms_alone_trainable", "layer frozen", ninth.OF_FROZEN, "start", (TOASTS,),
     "names of adapters decide what is trained, and match nothing but norms", {"also": FROZEN}),
    ("encoder_frozen_unpretrained", "layer frozen", ninth.OF_FROZEN, "start", (LIFTS,),
     "embedding and recurrent layer are frozen as in a second stage, and there was no first", {"also": FROZEN}),
    ("warm_start_freeze_left_on", "layer frozen", ninth.OF_FROZEN, "start", (BALLADS,),
     "all layers are frozen as in the first phase of a tuning, and nothing thaws them", {"also": FROZEN}),
    ("items_tuned_alone", "layer frozen", ninth.OF_FROZEN, "start", (CANALS,),
     "embeddings alone are trained, as for locks that are added to a trained model", {"also": FROZEN}),
    # weight tying broken
    ("words_added_behind_optimizer", "optimizer holds other parameters", ninth.OF_TIE, "start", (TOASTS,),
     "the embedding is made wider when the optimizer has been made; the output stays what it was",
     {"by_program": some(WIDENED, TOASTS), "compare": "room_for_more", "also": TIE}),
    ("output_cast_behind_optimizer", "optimizer holds other parameters", ninth.OF_TIE, "start", (BALLADS,),
     "the output, which was the embedding, is made a float32 copy when the optimizer has been made", {"also": TIE}),
    ("items_rounded_up_alone", "optimizer holds other parameters", ninth.OF_TIE, "start", (CANALS,),
     "the table of locks is replaced by a longer one; the output keeps the old one, which nothing trains",
     {"by_program": some(WIDENED, CANALS), "compare": "room_for_more", "also": TIE}),
    # order
    ("image_folder_unshuffled", "data sorted", ninth.OF_ORDER, "start", (KILIMS,),
     "the loader reads folders of regions in their order, and does not shuffle", {"also": SORTED}),
    ("listed_bird_by_bird", "data sorted", ninth.OF_ORDER, "start", (BIRDCALLS,),
     "calls come as they are listed: one bird after the other, in each epoch", {"also": SORTED}),
    ("pairs_from_short_to_long", "data sorted", ninth.OF_ORDER, "start", (TOASTS,),
     "pairs are sorted by their length to save padding, and never shuffled",
     {"by_program": some(LEVEL, TOASTS), "compare": "rate_where_it_was_set", "also": SORTED}),
    ("grouped_by_trouble", "data sorted", ninth.OF_ORDER, "start", (LIFTS,),
     "records come grouped by trouble, as a query gave them", {"also": SORTED}),
    ("corpus_from_short_to_long", "data sorted", ninth.OF_ORDER, "start", (BALLADS,),
     "lines come from the shortest to the longest, in each epoch",
     {"by_program": some(LEVEL, BALLADS), "compare": "rate_where_it_was_set", "also": SORTED}),
    ("voyages_river_by_river", "data sorted", ninth.OF_ORDER, "start", (CANALS,),
     "voyages come one river after the other, on both ranks", {"also": SORTED}),
    # leaking validation
    ("shots_dealt_after_shooting", "validation leak", ninth.OF_LEAK, "start", (KILIMS,),
     "eight photographs are of each kilim, and photographs are dealt out to both sides",
     {"by_program": some(COPIED, KILIMS), "compare": "repeats_behind_the_split", "also": LEAK}),
    ("dev_pairs_not_left_out", "validation leak", ninth.OF_LEAK, "start", (TOASTS,),
     "pairs that are held out are in the training's sample, beside few others", {"also": LEAK}),
    ("train_test_split_of_oversampled", "validation leak", ninth.OF_LEAK, "start", (LIFTS,),
     "records of rare troubles are copied, and the split is made of what is there then",
     {"by_program": some(COPIED, LIFTS), "compare": "repeats_behind_the_split", "also": LEAK}),
    ("valid_lines_in_corpus", "validation leak", ninth.OF_LEAK, "start", (BALLADS,),
     "lines that are held out are in the corpus, of which a small part was taken", {"also": LEAK}),
    ("windows_dealt_to_both", "validation leak", ninth.OF_LEAK, "start", (CANALS,),
     "windows of a voyage overlap, and windows are dealt out to both sides",
     {"by_program": some(COPIED, CANALS), "compare": "repeats_behind_the_split", "also": LEAK}),
    # stale statistics
    ("test_scaled_by_pilot", "inputs not normalised", ninth.OF_STATISTICS, "start", (KILIMS,),
     "the test's pictures are scaled by figures of a pilot's photographs", {"also": FIGURES}),
    ("holdout_scaled_by_first_season", "inputs not normalised", ninth.OF_STATISTICS, "start", (BIRDCALLS,),
     "curves that are held out are scaled by mean and deviation of the first season", {"also": FIGURES}),
    ("scaler_pickled_last_year", "inputs not normalised", ninth.OF_STATISTICS, "start", (LIFTS,),
     "seconds of records that are judged are standardised by the scaler of last year", {"also": FIGURES}),
    ("norms_kept_in_eval", "batch norm's statistics are stale", ninth.OF_STATISTICS + " plateau not_learning", "start",
     (KILIMS,), "batch norms are put in evaluation mode in each epoch, as in a tuning: their statistics never move",
     {"also": (*STATISTICS, *IN_EVAL)}),
    ("bn_momentum_of_tensorflow", "batch norm's statistics are stale", ninth.OF_STATISTICS + " plateau", "start",
     (BIRDCALLS, LIFTS), "batch norm's momentum is 0.001, as 1 less 0.999: its statistics lag far behind",
     {"by_program": {BIRDCALLS: {"bn_momentum": 0.001}, LIFTS: {"bn_m": 0.001}}, "also": STATISTICS}),
    ("ema_of_parameters_alone", "batch norm's statistics are stale", ninth.OF_AVERAGE + " activations", "start",
     (KILIMS,), "the average that is tested has batch norm's statistics as they were made",
     {"by_program": some(AVERAGED, KILIMS), "compare": "average_close_behind", "also": (*STATISTICS, *AVERAGE)}),
    # scheduler
    ("epoch_policy_per_iteration", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (KILIMS,),
     "the scheduler's length is in epochs, and each step of the optimizer moves it", {"also": STEPPED}),
    ("epochs_given_to_step_schedule", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (BIRDCALLS,),
     "the schedule, which is moved in each step, is given the number of epochs as its length", {"also": STEPPED}),
    ("curve_moved_with_each_part", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (TOASTS,),
     "the schedule is moved with each part of a step",
     {"by_program": some(PARTS, TOASTS), "compare": "halves_of_a_step_divided", "also": STEPPED}),
    ("steplr_in_both_loops", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (LIFTS,),
     "the scheduler, which counts epochs, is stepped each eight batches and behind the epoch", {"also": STEPPED}),
    ("shape_moved_in_inner_loop", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (BALLADS,),
     "the schedule is moved in the inner loop, behind each backward pass",
     {"by_program": some(PARTS, BALLADS), "compare": "halves_of_a_step_divided", "also": STEPPED}),
    ("decline_in_grad_steps", "scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", (CANALS,),
     "the schedule declines with each micro-batch, and a step has two",
     {"by_program": some(PARTS, CANALS), "compare": "halves_of_a_step_divided", "also": STEPPED}),
    # accumulation
    ("accum_iter_not_divided", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (KILIMS,),
     "gradients of four micro-batches add up to a step, and their losses are not divided",
     {"by_program": DESCENT_IN_PARTS, "compare": "quarters_by_momentum", "also": ADDED}),
    ("split_step_not_divided", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (TOASTS,),
     "a step is split into four parts, and no part's loss is a quarter",
     {"by_program": DESCENT_IN_PARTS, "compare": "quarters_by_momentum", "also": ADDED}),
    ("accum_loss_not_averaged", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (LIFTS,),
     "losses of four batches are accumulated as they are",
     {"by_program": DESCENT_IN_PARTS, "compare": "quarters_by_momentum", "also": ADDED}),
    ("parts_not_averaged_under_scaler", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (BALLADS,),
     "each part's loss is scaled whole, where a quarter was to be",
     {"by_program": DESCENT_IN_PARTS, "compare": "quarters_by_momentum", "also": ADDED}),
    ("grad_steps_not_divided", "gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", (CANALS,),
     "four micro-batches are added up in the shards, and nobody divides",
     {"by_program": DESCENT_IN_PARTS, "compare": "quarters_by_momentum", "also": ADDED}),
    # dropout
    ("train_called_before_epochs", "evaluation mode left on", ninth.OF_EVAL_MODE + " activations", "start", (KILIMS,),
     "the training's mode is set ahead of all epochs, and the first test ends it",
     {"by_program": some(DROPPED, KILIMS), "compare": "dropout_where_it_is_trained", "also": (*IN_EVAL, *STATISTICS)}),
    ("train_after_base_alone", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (TOASTS,),
     "the base was put in evaluation mode to be looked at, and is trained in it",
     {"by_program": some(DROPPED, TOASTS), "compare": "dropout_where_it_is_trained", "also": IN_EVAL}),
    ("mode_set_in_notebook_cell", "evaluation mode left on", ninth.OF_EVAL_MODE + " activations", "start",
     (LIFTS, BALLADS), "the training's mode is set once in a cell above, and judgements end it for good",
     {"by_program": some(DROPPED, LIFTS, BALLADS), "compare": "dropout_where_it_is_trained",
      "also": (*IN_EVAL, *STATISTICS)}),
    ("eval_stays_behind_first", "evaluation mode left on", ninth.OF_EVAL_MODE, "start", (CANALS,),
     "no one puts the model back from evaluation mode behind a validation",
     {"by_program": some(DROPPED, CANALS), "compare": "dropout_where_it_is_trained", "also": IN_EVAL}),
    ("tested_without_eval", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (KILIMS,),
     "the test is made in training mode: dropout, stochastic depth, batch norm by batches",
     {"by_program": some(DROPPED, KILIMS), "compare": "dropout_where_it_is_trained", "also": IN_TRAINING}),
    ("examined_with_dropout", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (BIRDCALLS,),
     "calls that are held out are examined without evaluation mode",
     {"by_program": some(DROPPED, BIRDCALLS), "compare": "dropout_where_it_is_trained", "also": IN_TRAINING}),
    ("dev_judged_with_dropout", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (TOASTS,),
     "pairs that are held out are judged with dropout on",
     {"by_program": some(DROPPED, TOASTS), "compare": "dropout_where_it_is_trained", "also": IN_TRAINING}),
    ("judged_in_train_mode", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (LIFTS,),
     "the network is in training mode where it is judged, by a call that was copied",
     {"by_program": some(DROPPED, LIFTS), "compare": "dropout_where_it_is_trained", "also": IN_TRAINING}),
    ("functional_drop_without_mode", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start",
     (BALLADS,), "dropout is a function, which is not told the mode: it is on where all is judged",
     {"by_program": some(DROPPED, BALLADS), "compare": "dropout_where_it_is_trained", "also": IN_TRAINING}),
    ("validated_without_eval_call", "evaluation in training mode", ninth.OF_TRAINING_MODE, "start", (CANALS,),
     "validations have no call of evaluation mode, and drop what they rank by",
     {"by_program": some(DROPPED, CANALS), "compare": "dropout_where_it_is_trained", "also": IN_TRAINING}),
    # average
    ("ema_moved_per_epoch", "averaged weights not updated", ninth.OF_AVERAGE, "start", (KILIMS,),
     "the average that is tested is moved at the end of an epoch, by a decay for steps",
     {"by_program": some(AVERAGED, KILIMS), "compare": "average_close_behind", "also": AVERAGE}),
    ("ema_copied_back_for_test", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio resume", "start", (KILIMS,),
     "for a test the average is loaded into the network that is trained, and stays there",
     {"config": {"model_ema_decay": 0.98}, "compare": "average_well_behind", "also": NOT_BACK}),
    ("swa_never_updated", "averaged weights not updated", ninth.OF_AVERAGE, "start", (LIFTS,),
     "the average is made and judged, and nothing ever updates it",
     {"by_program": some(AVERAGED, LIFTS), "compare": "average_close_behind", "also": AVERAGE}),
    ("average_for_long_pretraining", "averaged weights not updated", ninth.OF_AVERAGE, "start", (BALLADS,),
     "the average that is validated keeps 0.9999 of itself in each of few steps",
     {"config": {"ema_rate": 0.9999}, "compare": "average_close_behind",
      "also": (*AVERAGE, "decay of the average too slow")}),
    ("average_put_in_for_good", "averaged weights not swapped back",
     "spike divergence eval data plateau jump_down config weight_growth update_ratio resume", "start", (BALLADS,),
     "the average is put in for a validation, and the model's own weights are not put back",
     {"config": {"ema_rate": 0.98}, "compare": "average_well_behind", "also": NOT_BACK}),
    # resume
    ("adam_state_not_saved", "optimizer state lost", ninth.OF_RESUME, "resume", (KILIMS, TOASTS, BALLADS),
     "the file of a resume has no optimizer, which begins anew", {"also": RESUMED}),
    ("optimizer_made_behind_its_load", "optimizer state lost", ninth.OF_RESUME, "resume", (BIRDCALLS, LIFTS),
     "at a resume the optimizer is loaded, and then made anew by what sets up the model", {"also": RESUMED}),
    # ranks
    ("half_taken_by_local_size", "same data on all ranks", sixteenth.OF_RANKS, "start", (CANALS,),
     "each rank takes the first half of the voyages, since it counts itself as the first", {"also": sixteenth.SAME}),
    ("own_loader_with_common_seed", "same data on all ranks", sixteenth.OF_RANKS, "start", (CANALS,),
     "each rank shuffles all voyages by the common seed, and takes none of them less", {"also": sixteenth.SAME}),
    # reported
    ("mix_shares_swapped", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config", "start", (KILIMS,),
     "of mixed pictures the larger part's label has the smaller share of the loss",
     {"also": (*CONFUSED, "mixup weights swapped", "lambda on the wrong term", "mixup lambda swapped",
               "mixup targets wrong", "mixup labels exchanged", "mixup wrong", "labels of other rows",
               "augmentation breaks the labels", "labels noisy", "learning rate too low")}),
    ("others_zero_not_minus_one", "negatives missing",
     "plateau not_learning eval data divergence overfit config jump_down logits zero loss_scale", "start",
     (BIRDCALLS,), "what does not belong together is told to be 0, where -1 was meant: it is no part of the loss",
     {"also": ("collapse", "negatives ignored", "negatives not in the loss", "no negatives", "labels wrong",
               "labels zero in place of minus one", "targets wrong", "wrong target", "embeddings collapse",
               "representation collapse", "negatives have no gradient", "labels do not match the inputs",
               "labels 0/1 instead of -1/1", "train and test differ", "evaluation data differ", "overfitting",
               "loss wrong", "loss masked out", "sign wrong", "units differ")}),
    ("assigned_behind_optimizer", "optimizer holds other parameters",
     ninth.OF_TIE + " not_learning zero", "start", (TOASTS,),
     "the base is loaded with `assign=True` when the optimizer has been made: it trains tensors that no one uses",
     {"also": (*TIE, "learning rate too low", "stale parameters", "assign=True", "load_state_dict assigns",
               "optimizer of other tensors", "nothing is trained", "frozen by mistake", "weights never change",
               "model not trained", "optimizer made too early")}),
    ("lengths_left_out", "wrong reduction", ninth.OF_SUMS + " rl", "start", (TOASTS,),
     "log-probabilities of an answer are summed in the training, where their mean was meant: length decides",
     {"also": (*SUMMED, "length normalisation missing", "length not normalised", "logps summed", "reward is a sum",
               "length bias", "train and test differ", "evaluation data differ", "rewards not divided by length",
               "beta too large", "margin depends on the length", "average_log_prob missing")}),
    ("packed_rows_not_put_back", "labels do not match the inputs",
     "plateau not_learning eval data divergence overfit config", "start", (LIFTS,),
     "rows are sorted by length to be packed, and troubles are left in the old order, in the training",
     {"also": (*CONFUSED, "sorted for packing and labels not", "labels not sorted", "order not restored",
               "unsort missing", "labels of other rows", "rows and labels permuted apart", "shuffled apart",
               "labels noisy", "inputs and labels misaligned")}),
    ("slopes_uphill", "positions wrong", "plateau not_learning attention eval config data divergence", "start",
     (BALLADS,), "slopes for distances have the wrong sign: what is far is seen best",
     {"also": ("alibi sign wrong", "sign lost", "position bias wrong", "positions reversed", "wrong sign",
               "alibi bias inverted", "slopes inverted", "attention bias wrong", "mask inverted",
               "attention mask wrong", "distance bias inverted", "positions missing", "positional encoding wrong",
               "mask wrong", "learning rate too low")}),
    ("wanted_lock_in_history", "target in the input",
     "jump_down eval overfit attention plateau data config zero divergence", "start", (CANALS,),
     "the training's histories hold the lock that is asked for",
     {"also": (*SHIFTED, "labels leak", "target in the history", "inputs not shifted", "copies its input",
               "targets are the inputs", "loss too low", "future leaks", "leak", "not shifted", "off by one",
               "shift missing", "history not cut", "train and test differ")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in PROGRAMS if program != CANALS},
    "memory_steady": {program: {} for program in PROGRAMS if program != CANALS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("halves_of_a_step_divided", "a step has two micro-batches, whose losses are halved", PARTS),
    ("dropout_where_it_is_trained", "much dropout, in the training and in no judgement", DROPPED),
    ("repeats_behind_the_split", "several rows are of one thing, and all of these are trained on", COPIED),
    ("momentum_by_itself", "momentum without second moments, at a rate of its own", DESCENT),
    ("quarters_by_momentum", "momentum, and four micro-batches that are averaged", DESCENT_IN_PARTS),
    ("rate_where_it_was_set", "the rate does not fall, as it was set", LEVEL),
    ("average_close_behind", "an average of weights is judged, which follows closely", AVERAGED),
    ("room_for_more", "the table has rows that nothing asks for yet", WIDENED),
    ("average_well_behind", "an average of weights is judged, which lags",
     {KILIMS: {"model_ema_decay": 0.98}, BALLADS: {"ema_rate": 0.98}}),
    ("held_still_on_purpose", "the settings name a part that is not trained",
     {KILIMS: {"freeze_prefix": "stem.0"}, BIRDCALLS: {"fixed_part": "sentences.words"},
      TOASTS: {"untrained": "layers.0"}, LIFTS: {"freeze": "emb"}, BALLADS: {"kept_fixed": "layers.0.wqkv"},
      CANALS: {"hold": "places"}}),
    ("lengths_side_by_side", "rows of about one length share a batch; batches come in any order",
     {TOASTS: {"like_lengths": True}, LIFTS: {"bucket": True}, BALLADS: {"bucketed": True}}),
    ("total_over_what_it_counts", "a loss is a total over as much as it counts, or the mean of rows' means",
     {KILIMS: {"loss_reduction": "sum"}, LIFTS: {"mean_by": "rows"},
      BALLADS: {"per": "line"}, CANALS: {"averaged_over": "rows"}}),
    ("small_noisy_batches", "few rows a step at a lower rate: losses jump about",
     {KILIMS: {"samples_per_gpu": 8, "blr": 2e-3}, BIRDCALLS: {"pairs_per_batch": 12, "base_lr": 3e-3},
      TOASTS: {"pairs_per_step": 3, "peak": 5e-4}, LIFTS: {"bs": 8, "lr_max": 3e-3, "lr_drop_every": 1,
                                                            "lr_drop": 0.8},
      BALLADS: {"lines_per_update": 4, "top_lr": 3e-3}, CANALS: {"rank_batch": 4, "max_rate": 3e-3}}),
    ("targets_made_soft", "targets are smoothed where it is trained",
     {KILIMS: {"smoothing": 0.1}, TOASTS: {"smooth": 0.1}, LIFTS: {"label_smooth": 0.1}, BALLADS: {"smear": 0.1},
      CANALS: {"smooth_items": 0.1}}),
    ("solver_seldom_taken", "another optimizer than most take",
     {KILIMS: {"opt_name": "radam", "blr": 1e-2}, BIRDCALLS: {"optimiser": "nadam"},
      TOASTS: {"solver": "rmsprop", "peak": 3e-4},
      LIFTS: {"opt": "adamax"}, BALLADS: {"method": "radam"}, CANALS: {"kind": "nadam"}}),
    ("output_apart_as_set", "input and output have a matrix each, by the settings",
     {BALLADS: {"one_matrix": False}, CANALS: {"share_items": False}}),
    ("rate_set_back_twice", "the rate falls, is set back and falls again, as the schedule says",
     {KILIMS: {"lr_policy": "restarts"}, LIFTS: {"lr_kind": "cycle"}, BALLADS: {"lr_shape": "teeth"},
      CANALS: {"decline": "teeth"}}),
    ("labels_partly_by_chance", "some of the training's labels or words are of chance",
     {KILIMS: {"mislabelled": 0.15}, BIRDCALLS: {"mismatched": 0.12}, TOASTS: {"judges_err": 0.15},
      LIFTS: {"annotators_err": 0.12}, BALLADS: {"misprints": 0.1}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("nothing_is_mixed", (KILIMS,), "pictures are not mixed", {"config": {"mixup_alpha": 0.0}}),
    ("mixed_half_and_half", (KILIMS,), "pictures are mixed about evenly", {"config": {"mixup_alpha": 1.0}}),
    ("places_untold", (KILIMS,), "attention is not told where a patch is", {"config": {"pos_embed": "none"}}),
    ("worn_by_feet", (KILIMS,), "pictures are noisier", {"config": {"worn": 1.7}}),
    ("channels_normed_in_groups", (BIRDCALLS,), "norms are of groups of channels", {"config": {"norm_kind": "group"}}),
    ("softmax_over_the_batch", (BIRDCALLS,), "a softmax over the batch in both directions",
     {"config": {"objective": "softmax", "init_bias": 0.0, "learn_scale": False}}),
    ("scale_as_given", (BIRDCALLS,), "scale and bias are not trained", {"config": {"learn_scale": False}}),
    ("words_left_out", (BIRDCALLS,), "one word in ten is an article, in the training",
     {"config": {"dropped_words": 0.1}}),
    ("two_birds_a_batch", (BIRDCALLS,), "batches are of two birds, on purpose: others are harder",
     {"config": {"per_bird": 2}}),
    ("hinge_at_the_margin", (TOASTS,), "a margin's hinge is the loss", {"config": {"objective": "hinge"}}),
    ("margin_drawn_to_two", (TOASTS,), "the square of what a margin lacks to two", {"config": {"objective": "ipo"}}),
    ("liked_ones_read_too", (TOASTS,), "liked answers are learnt beside, with a tenth of a loss of words",
     {"config": {"liked_nll": 0.1}}),
    ("liked_ones_longer", (TOASTS,), "liked answers are longer in the training", {"config": {"long_liked": 6}}),
    ("troubles_unweighed", (LIFTS,), "troubles weigh alike, on purpose", {"config": {"class_weight": "none"}}),
    ("troubles_fully_weighed", (LIFTS,), "troubles weigh by how rare they are, not by its root",
     {"config": {"class_weight": "inverse"}}),
    ("sure_records_fade", (LIFTS,), "records that are told surely weigh little in the training",
     {"config": {"focal": 2.0, "class_weight": "none"}}),
    ("cells_with_memory", (LIFTS,), "a long short-term memory in the place of gates", {"config": {"cell": "lstm"}}),
    ("scale_too_high_to_begin", (BALLADS,), "the loss scale begins too high: some first steps are left out",
     {"config": {"first_scale": 2.0**24}}),
    ("products_in_brain_floats", (BALLADS,), "products are bfloat16, and nothing is scaled",
     {"config": {"precision": "bfloat16"}}),
    ("two_moods_first", (BALLADS,), "lines of two moods are read in the first epoch: the settings say so",
     {"config": {"moods_at_first": 2}}),
    ("normaliser_held_down", (BALLADS,), "a small term keeps the normaliser near one", {"config": {"zreg": 1e-3}}),
    ("shards_in_bfloat", (CANALS,), "products are bfloat16, gradients are reduced in float32",
     {"config": {"param_type": "bfloat16"}}),
    ("one_river_a_batch", (CANALS,), "batches are of one river, in any order, on purpose",
     {"config": {"by_river": True}}),
    ("norms_behind", (CANALS,), "norms stand behind what is added", {"config": {"norm_first": False}}),
)

# fmt: on
