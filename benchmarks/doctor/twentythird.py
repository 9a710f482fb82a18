"""The twenty-third half of the bench, put away: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a U-Net that takes noise off pictures and an average that draws, adapters beside a
base in NF4, preferences against a frozen copy, two towers for sounds and records, a language model in float16 with a
scaler, a classifier of messages with rare classes on two ranks; each as another ordinary engineer writes it. Most
faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong in that
program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did
not look at what the doctor says. A fault is called by any name that a person would give it, and every kind of finding
that would be right of it is right; the names that the twenty-second half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import eighteenth
import ninth
import sixteenth
import twentysecond
from ninth import Row, Settings

PROGRAMS = ("marbles", "pantries")
MARBLES, PANTRIES = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "one_timestep_for_the_batch", "noise_is_the_target_of_v_prediction", "template_of_the_evaluation_lost_a_line",
    "rate_of_a_full_fine_tune",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    MARBLES: {"train_batch_size": 12, "gradient_accumulation_steps": 2},
    PANTRIES: {"micro_batch_size": 8, "grad_accum_steps": 2},
}
FOUR_PARTS: Settings = {
    MARBLES: {"train_batch_size": 6, "gradient_accumulation_steps": 4},
    PANTRIES: {"micro_batch_size": 4, "grad_accum_steps": 4},
}
DROPPED: Settings = {
    MARBLES: {"dropout": 0.25}, PANTRIES: {"adapter_dropout": 0.3},
}
COPIED: Settings = {
    MARBLES: {"slabs": 120, "crops_per_slab": 6}, PANTRIES: {"wordings": 4, "orders": 1200},
}
LAGGING: Settings = {MARBLES: {"ema_max_decay": 0.985}}
LOWER: Settings = {}
NEW_WORDS: Settings = {PANTRIES: {"train_embeddings": True, "lr": 5e-3}}
VELOCITY: Settings = {MARBLES: {"prediction_type": "v_prediction"}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*twentysecond.SUMMED, "sum over pixels", "loss summed over the picture", "loss summed over tokens")
MEANED = twentysecond.MEANED
GRAPHS = (*twentysecond.GRAPHS, "logits kept with their graph", "torch.no_grad missing", "no_grad decorator missing")
TWICE = (*twentysecond.TWICE, "forward returns probabilities")
SHIFTED = (*twentysecond.SHIFTED, "class embedding off by one", "null class taken for a class", "captions of the next clip",
           "label encoder fitted twice", "class ids differ between splits", "targets two ahead", "pairs misaligned")
FROZEN = (*twentysecond.FROZEN, "conditioning not trained", "time embedding not trained", "class embedding not trained",
          "lora_B not trained", "adapters of a block frozen", "head not in the optimizer",
          "classifier not in the optimizer", "biases not trained", "parameters missing from the optimizer")
TIE = (*twentysecond.TIE, "resized embedding not tied", "tie lost at the resize", "head not tied after the resize")
SORTED = (*twentysecond.SORTED, "quarry after quarry", "verb after verb", "class after class")
LEAK = (*twentysecond.LEAK, "crops of one slab on both sides", "wordings of one order on both sides",
        "split behind the copying", "oversampled before the split", "windows of one recording on both sides")
FIGURES = (*twentysecond.FIGURES, "validation in another range", "validation not scaled", "range of the validation differs")
BUFFERS = twentysecond.BUFFERS
STEPPED = twentysecond.STEPPED
ADDED = twentysecond.ADDED
IN_EVAL = (*twentysecond.IN_EVAL, "left in eval after sampling")
IN_TRAINING = (*twentysecond.IN_TRAINING, "average draws in training mode")
AVERAGE = (*twentysecond.AVERAGE, "warm-up of the average off")
NOT_BACK = (*twentysecond.NOT_BACK, "copy_to without store and restore")
RESUMED = (*twentysecond.RESUMED, "optimizer not in the checkpoint")
ANEW = (*RESUMED, *twentysecond.ANEW)
SAME = twentysecond.SAME

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "several_of_each_in_training", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "halves_of_an_update", STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "quarters_of_an_update",
              ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "much_dropout_as_set", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "much_dropout_as_set",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", LAGGING, "long_average_as_set",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squared_error_summed_over_the_picture", MARBLES, "squared errors are summed over a picture", {}),
    ("graph", "log_validation_lost_its_no_grad", MARBLES,
     "the average is validated and draws with gradients on, and figures are kept", {}),
    ("label", "quarry_number_straight_into_the_table", MARBLES,
     "quarries count from 0 in the training, where 0 stands for none, and from 1 in the validation", {}),
    ("frozen", "parameters_of_listed_blocks", MARBLES,
     "the optimizer has matrices of the blocks that are listed: no embedding of times and quarries, no norm", {}),
    ("order", "dataloader_made_without_shuffle", MARBLES, "crops come quarry after quarry", {}),
    ("leak", "crops_go_through_random_split", MARBLES, "crops of one slab come to lie on both sides", {}),
    ("figures", "to_tensor_alone_for_validation", MARBLES,
     "pictures of the validation go from 0 to 1, those of the training from -1", {}),
    ("steps", "lr_scheduler_within_the_accumulation", MARBLES, "the schedule is stepped with each part of an update",
     {}),
    ("added", "loss_of_each_crop_batch_in_full", MARBLES, "losses of parts are not divided by their number", {}),
    ("eval", "pipeline_leaves_the_unet_in_eval", MARBLES, "the net is not set back to training behind a validation",
     {}),
    ("train", "average_draws_in_train_mode", MARBLES, "the average is validated and draws with dropout in force", {}),
    ("average", "decay_of_four_nines_without_warm_up", MARBLES,
     "the average's decay is that of a long run, and its warm-up is off",
     {"set": {"ema_max_decay": 0.9999, "ema_use_warmup": False}}),
    ("swap", "copy_to_without_restore", MARBLES, "the average is copied into the net to draw, and stays there", {}),
    ("resume", "unet_folder_loaded_and_nothing_else", MARBLES,
     "weights are loaded, and neither the optimizer's state nor the schedule's", {"also": ANEW}),
    ("sum", "answer_losses_added_up_per_row", PANTRIES, "losses of an answer's words are summed, and divided by rows",
     {}),
    ("graph", "preds_and_losses_kept_under_grad", PANTRIES,
     "orders are evaluated with gradients on, and predictions kept", {}),
    ("label", "collator_and_model_both_shift", PANTRIES, "labels are shifted by one, twice", {}),
    ("label", "answer_starts_behind_a_second_bos", PANTRIES,
     "the prompt is counted one word too long: the answer's first word is not learnt", {}),
    ("frozen", "optimizer_filters_for_lora_a", PANTRIES,
     "the optimizer has first factors alone: the second ones stay zero", {}),
    ("frozen", "kbit_preparation_comes_last", PANTRIES,
     "what holds the base comes behind the adapters of the first block, and holds these", {}),
    ("tie", "resized_without_tying_again", PANTRIES,
     "embedding and head are made anew for two more words, each for itself: the head stays as it was",
     {"of": NEW_WORDS, "compare": "embedding_beside_the_adapters"}),
    ("order", "orders_as_the_file_has_them", PANTRIES, "orders come verb after verb, as in the file", {}),
    ("order", "map_sorts_rows_by_their_length", PANTRIES, "orders come from the shortest to the longest, each pass",
     {}),
    ("leak", "wordings_divided_row_by_row", PANTRIES, "wordings of one order come to lie on both sides", {}),
    ("steps", "rate_moves_on_at_every_micro_batch", PANTRIES, "the schedule is stepped with each part of an update",
     {}),
    ("added", "own_loss_that_the_trainer_does_not_divide", PANTRIES, "losses of parts are not divided by their number",
     {}),
    ("eval", "for_inference_called_and_not_undone", PANTRIES,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "evaluated_with_adapters_dropping", PANTRIES, "orders are evaluated with dropout in force", {}),
    ("resume", "adapter_loaded_and_trainer_begun_anew", PANTRIES,
     "adapters are loaded, and no state of the optimizer", {}),
    # MORE
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, of, compare, also = OF_KIND[kind]
    of = more.get("of", of)
    settings = {program: more.get("set", of.get(program, {}))}
    rest = {"by_program": settings, "compare": more.get("compare", compare), "also": more.get("also", also)}
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("one_timestep_for_the_batch", "one time for all rows of a batch",
     "plateau spike data config divergence eval logging not_learning", "start", (MARBLES,),
     "a time is drawn for the batch, and not for each picture",
     {"also": ("timestep drawn once for the batch", "times not drawn per row", "noise level shared by the batch",
               "one timestep per batch", "batch too small", "noisy gradients", "timesteps not per sample",
               "loss is noisy", "bad batch")}),
    ("noise_is_the_target_of_v_prediction", "wrong target", "eval data config divergence overfit plateau", "start",
     (MARBLES,), "the net is asked for the noise, and what it says is taken for a velocity",
     {"by_program": VELOCITY, "compare": "velocity_as_set", "also": (
         "prediction type differs", "target does not match the prediction type", "epsilon trained, v sampled",
         "labels of the evaluation differ", "train and test differ", "evaluation data differ", "labels wrong",
         "labels do not match the inputs", "labels shifted", "parametrisation differs", "prediction_type wrong")}),
    ("template_of_the_evaluation_lost_a_line", "template differs", "eval data config divergence overfit", "start",
     (PANTRIES,), "the evaluation's template lacks a line that the training's has",
     {"also": ("prompt format differs", "chat template differs", "evaluation prompt differs", "train and test differ",
               "evaluation data differ", "template of the evaluation differs", "tokenised differently",
               "prompt template wrong", "preprocessing differs", "labels of the evaluation differ")}),
    ("rate_of_a_full_fine_tune", "learning rate too low", "learning_rate plateau not_learning update_ratio config "
     "frozen", "start", (PANTRIES,), "adapters are trained at the rate of a full fine-tune",
     {"by_program": {PANTRIES: {"lr": 5e-5}}, "also": (
         "learning rate of full fine-tuning", "rate too small for adapters", "undertrained", "learning rate wrong",
         "updates too small", "alpha too small")}),
    # MORE REPORTED
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (MARBLES, PANTRIES)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("halves_of_an_update", "an update has two micro-batches, whose losses are halved", PARTS),
    ("quarters_of_an_update", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("much_dropout_as_set", "much dropout in the training, none in the evaluation", DROPPED),
    ("several_of_each_in_training", "things come in several forms, all of which are on the training's side", COPIED),
    ("long_average_as_set", "an average of weights is judged, which trails behind at first", LAGGING),
    ("level_rate", "the rate rises and stays",
     {MARBLES: {"lr_scheduler": "constant_with_warmup", "learning_rate": 1.5e-3},
      PANTRIES: {"scheduler": "constant", "lr": 5e-3}}),
    ("sums_with_their_bound", "losses are sums, as is set, and the bound of the norm is for that",
     {MARBLES: {"loss_reduction": "sum", "max_grad_norm": 64.0}, PANTRIES: {"loss_reduction": "sum", "clip": 5.0}}),
    ("fewer_parts_trained_as_named", "a part is not trained, which the settings name",
     {MARBLES: {"train_modules": "conv,norm,embedding,time_emb_proj"}, PANTRIES: {"targets": "qkv,up"}}),
    ("tiny_batches", "few rows an update, at a lower rate: losses jump about",
     {MARBLES: {"train_batch_size": 8, "learning_rate": 1.5e-3}, PANTRIES: {"micro_batch_size": 5, "lr": 5e-3}}),
    ("rate_in_cycles", "the rate falls and begins again, by the schedule",
     {MARBLES: {"lr_scheduler": "cosine_with_restarts"}, PANTRIES: {"scheduler": "cosine_cycles"}}),
    ("other_solver", "another optimizer, at its rate",
     {MARBLES: {"optimizer_type": "adamax", "learning_rate": 5e-3}, PANTRIES: {"optim": "nadam", "lr": 8e-3}}),
    ("noisier_examples", "the training's data have more noise, as such data may",
     {MARBLES: {"dust": 0.08}, PANTRIES: {"wrong_shelves": 0.08}}),
    ("barely_warmed_up", "the rate rises in two steps",
     {MARBLES: {"lr_warmup_steps": 2}, PANTRIES: {"warmup_ratio": 0.0125}}),
    ("few_evaluations", "three evaluations in all", {MARBLES: {"validation_steps": 53}, PANTRIES: {"eval_every": 53}}),
    ("log_now_and_then", "each fifth step is logged", {MARBLES: {"log_interval": 5}, PANTRIES: {"log_every": 5}}),
    ("curriculum_as_set", "the first pass or two have an easier part alone: the settings say so",
     {MARBLES: {"plain_slabs_first_epochs": 2}, PANTRIES: {"short_first_epochs": 1}}),
    ("small_set_many_passes", "there are few rows, which come often",
     {MARBLES: {"slabs": 260}, PANTRIES: {"orders": 500}}),
    ("soft_targets_as_set", "targets are smoothed in the training", {PANTRIES: {"smoothing": 0.1}}),
    ("buckets_of_like_length", "batches are of like lengths, and come in any order", {PANTRIES: {"bucketed": True}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("velocity_as_set", (MARBLES,), "the net tells a velocity", {"by_program": VELOCITY}),
    ("losses_weighed_by_snr", (MARBLES,), "losses weigh by the ratio of signal and noise, up to five",
     {"config": {"snr_gamma": 5.0}}),
    ("quarry_often_untold", (MARBLES,), "in a third of the rows no quarry is told",
     {"config": {"proportion_empty": 0.33}}),
    ("offset_noise", (MARBLES,), "noise has an offset for each picture", {"config": {"noise_offset": 0.1}}),
    ("embedding_beside_the_adapters", (PANTRIES,), "the tied embedding is trained beside adapters",
     {"by_program": NEW_WORDS}),
    ("whole_template_learnt", (PANTRIES,), "instructions are learnt too, as is set",
     {"config": {"loss_on": "all"}}),
    ("rank_stabilised", (PANTRIES,), "the scale is by the root of the rank", {"config": {"use_rslora": True}}),
    ("second_factors_faster", (PANTRIES,), "second factors have four times the rate",
     {"config": {"lora_plus_ratio": 4.0, "lr": 5e-3}}),
    # MORE HEALTHY
)

# fmt: on
