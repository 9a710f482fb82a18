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

from halves import eighteenth, ninth, sixteenth, twentysecond
from halves.ninth import Row, Settings

PROGRAMS = ("marbles", "pantries", "slogans", "whistles", "chronicles", "pagers")
MARBLES, PANTRIES, SLOGANS, WHISTLES, CHRONICLES, PAGERS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "one_timestep_for_the_batch", "noise_is_the_target_of_v_prediction", "template_of_the_evaluation_lost_a_line",
    "rate_of_a_full_fine_tune", "padding_is_a_part_of_the_slogan", "reference_is_an_older_checkpoint",
    "sounds_not_put_on_the_sphere", "scale_clamped_from_below_at_its_limit", "clipped_while_still_scaled_up",
    "zero_grad_inside_the_micro_loop", "class_counts_are_the_weights", "attention_mask_given_as_padding_mask",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    MARBLES: {"train_batch_size": 12, "gradient_accumulation_steps": 2},
    PANTRIES: {"micro_batch_size": 8, "grad_accum_steps": 2}, SLOGANS: {"pairs_per_batch": 6, "grad_acc_steps": 2},
    WHISTLES: {"batch_size": 30, "accum_freq": 2}, PAGERS: {"per_gpu_batch": 8, "accum_steps": 2},
}
FOUR_PARTS: Settings = {
    MARBLES: {"train_batch_size": 6, "gradient_accumulation_steps": 4},
    PANTRIES: {"micro_batch_size": 4, "grad_accum_steps": 4}, SLOGANS: {"pairs_per_batch": 3, "grad_acc_steps": 4},
    WHISTLES: {"batch_size": 20, "accum_freq": 4, "optimizer": "sgd", "lr": 0.05, "grad_clip_norm": 100.0, "wd": 0.0},
    CHRONICLES: {"micro_batch": 4, "grad_accum": 4},
    PAGERS: {"per_gpu_batch": 6, "accum_steps": 4, "optimizer": "sgd", "lr": 0.2, "clip": 100.0},
}
DROPPED: Settings = {
    MARBLES: {"dropout": 0.25}, PANTRIES: {"adapter_dropout": 0.3}, SLOGANS: {"dropout": 0.2},
    WHISTLES: {"dropout": 0.3}, CHRONICLES: {"dropout": 0.2}, PAGERS: {"dropout": 0.3},
}
COPIED: Settings = {
    MARBLES: {"slabs": 120, "crops_per_slab": 6}, PANTRIES: {"wordings": 4, "orders": 1200},
    SLOGANS: {"pairs_per_brief": 4, "briefs": 640}, WHISTLES: {"windows_per_clip": 5},
    CHRONICLES: {"editions": 4}, PAGERS: {"forms_of_each": 4},
}
LAGGING: Settings = {MARBLES: {"ema_max_decay": 0.985}}
LOWER: Settings = {SLOGANS: {"freeze_first_layers": 1}}
DESCENT: Settings = {
    WHISTLES: {"optimizer": "sgd", "lr": 0.05, "grad_clip_norm": 100.0, "wd": 0.0},
    PAGERS: {"optimizer": "sgd", "lr": 0.06, "clip": 100.0},
}
RARE_COPIED: Settings = {PAGERS: {"copies_of_rare": 6, "class_weights": "none"}}
NEW_WORDS: Settings = {PANTRIES: {"train_embeddings": True, "lr": 5e-3}}
VELOCITY: Settings = {MARBLES: {"prediction_type": "v_prediction"}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*twentysecond.SUMMED, "sum over pixels", "loss summed over the picture", "loss summed over tokens")
MEANED = twentysecond.MEANED
GRAPHS = (*twentysecond.GRAPHS, "logits kept with their graph", "torch.no_grad missing", "no_grad decorator missing")
TWICE = (*twentysecond.TWICE, "forward returns probabilities")
SHIFTED = (*twentysecond.SHIFTED, "class embedding off by one", "null class taken for a class",
           "captions of the next clip",
           "label encoder fitted twice", "class ids differ between splits", "targets two ahead", "pairs misaligned")
FROZEN = (*twentysecond.FROZEN, "conditioning not trained", "time embedding not trained", "class embedding not trained",
          "lora_B not trained", "adapters of a block frozen", "head not in the optimizer",
          "classifier not in the optimizer", "biases not trained", "parameters missing from the optimizer")
TIE = (*twentysecond.TIE, "resized embedding not tied", "tie lost at the resize", "head not tied after the resize")
SORTED = (*twentysecond.SORTED, "quarry after quarry", "verb after verb", "class after class")
LEAK = (*twentysecond.LEAK, "crops of one slab on both sides", "wordings of one order on both sides",
        "split behind the copying", "oversampled before the split", "windows of one recording on both sides")
FIGURES = (*twentysecond.FIGURES, "validation in another range", "validation not scaled",
           "range of the validation differs")
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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "several_of_each_on_one_side", LEAK),
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
    ("sum", "loss_of_pairs_summed", SLOGANS, "losses of pairs are summed", {}),
    ("sum", "reference_logps_are_means_over_words", SLOGANS,
     "log-probabilities of the reference are means over words, those of the policy are sums",
     {"also": MEANED, "cause": "wrong reduction"}),
    ("graph", "margins_of_held_pairs_with_history", SLOGANS,
     "pairs are evaluated with gradients on, and margins kept", {}),
    ("label", "words_gathered_without_the_shift", SLOGANS,
     "probabilities of words are read at their own places in the training, and not one before", {}),
    ("label", "mask_from_the_prompt_without_its_separator", SLOGANS,
     "the prompt is counted one word too long: the slogan's first word is left out", {}),
    ("order", "pairs_come_trade_after_trade", SLOGANS, "pairs come trade after trade, as in the file", {}),
    ("steps", "scheduler_step_next_to_backward", SLOGANS, "the schedule is stepped with each part of an update", {}),
    ("added", "every_part_counts_as_a_batch", SLOGANS, "losses of parts are not divided by their number", {}),
    ("eval", "policy_stays_in_eval_behind_the_samples", SLOGANS,
     "the policy is not set back to training behind an evaluation", {}),
    ("train", "policy_judged_while_dropping", SLOGANS, "pairs are evaluated with the policy dropping", {}),
    ("train", "reference_never_set_to_eval", SLOGANS, "the frozen copy is in training mode, and drops",
     {"kinds": " plateau rl clipping"}),
    ("resume", "policy_weights_found_and_loaded_alone", SLOGANS,
     "the policy's weights are loaded, and no state of the optimizer", {}),
    ("sum", "cross_entropies_left_as_sums", WHISTLES, "losses of both directions are summed over the batch",
     {"of": DESCENT, "compare": "sgd_at_its_own_rate"}),
    ("softmax", "similarities_pass_a_softmax_first", WHISTLES,
     "similarities go through a softmax, and then into a loss that has its own", {}),
    ("graph", "clip_bank_embedded_on_the_tape", WHISTLES, "the bank is embedded with gradients on, and kept", {}),
    ("label", "half_of_the_catalogue_is_a_row_late", WHISTLES,
     "the table of half of the clips has a line more: records are those of the clip before", {}),
    ("frozen", "audio_encoder_under_its_former_name", WHISTLES,
     "the optimizer takes towers by their names, one of which has changed", {}),
    ("frozen", "text_tower_locked_by_default", WHISTLES,
     "the tower of words is held but for its projection, though it begins anew", {}),
    ("order", "shards_read_place_after_place", WHISTLES, "clips come place after place", {}),
    ("leak", "windows_cut_and_then_split", WHISTLES, "windows of one clip come to lie on both sides", {}),
    ("figures", "statistics_of_amplitudes_for_decibels", WHISTLES,
     "spectrograms of the bank are scaled by figures that are for other units", {}),
    ("buffers", "audio_norms_held_as_if_pretrained", WHISTLES,
     "batch norm is in evaluation mode from the start, in a tower that begins anew", {}),
    ("steps", "rates_set_for_every_batch_of_accum", WHISTLES, "the schedule is stepped with each part of an update",
     {}),
    ("added", "accum_freq_forgotten_in_the_loss", WHISTLES, "losses of parts are not divided by their number", {}),
    ("eval", "towers_remain_as_the_bank_needs_them", WHISTLES, "towers are not set back to training behind a bank",
     {}),
    ("train", "bank_embedded_in_training_mode", WHISTLES,
     "the bank is embedded in training mode: with dropout, and statistics of its own", {}),
    ("resume", "towers_read_back_without_their_optimizer", WHISTLES,
     "weights are loaded, and neither the optimizer's state nor the schedule's", {"also": ANEW}),
    ("sum", "words_of_a_window_summed", CHRONICLES, "losses of words are summed, and divided by windows", {}),
    ("softmax", "head_gives_shares_for_sampling", CHRONICLES,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("graph", "estimate_loss_undecorated", CHRONICLES, "losses are estimated with gradients on, and kept", {}),
    ("label", "moved_by_get_batch_and_by_forward", CHRONICLES,
     "words are shifted by what makes batches, and by the model again", {}),
    ("frozen", "decay_groups_miss_the_embeddings", CHRONICLES,
     "groups of the optimizer are made from lists of linear layers and norms: no embedding is in them", {}),
    ("tie", "embedding_replaced_after_the_tie", CHRONICLES,
     "the embedding is made anew behind the tie: the head keeps a matrix of its own", {}),
    ("order", "text_read_on_from_its_beginning", CHRONICLES, "the text is read from its beginning, town after town",
     {}),
    ("leak", "windows_shuffled_before_the_cut", CHRONICLES, "overlapping windows come to lie on both sides",
     {"set": {}, "compare": "plain"}),
    ("steps", "get_lr_of_the_micro_step", CHRONICLES, "the rate follows the count of micro-batches, of two an update",
     {"set": {}, "compare": "plain"}),
    ("added", "micro_losses_backward_undivided", CHRONICLES, "losses of parts are not divided by their number", {}),
    ("eval", "estimate_loss_ends_in_eval", CHRONICLES, "the model is not set back to training behind an estimate", {}),
    ("train", "losses_estimated_under_dropout", CHRONICLES, "losses are estimated with dropout in force", {}),
    ("resume", "checkpoint_dict_of_model_and_iter", CHRONICLES,
     "the model and the count are restored, and no state of the optimizer nor of the scaler", {}),
    ("sum", "criterion_with_reduction_sum", PAGERS, "weighted losses are summed, and not divided",
     {"of": DESCENT, "compare": "sgd_at_its_own_rate"}),
    ("softmax", "predict_proba_is_what_forward_returns", PAGERS,
     "the net gives probabilities, and the loss has its own softmax", {}),
    ("graph", "logits_of_all_messages_gathered_live", PAGERS,
     "messages are validated with gradients on, and outputs kept", {}),
    ("label", "label_encoder_fitted_on_each_file", PAGERS,
     "desks are counted anew in the validation's file, which has one name more: all are one off", {}),
    ("frozen", "classifier_made_anew_behind_the_optimizer", PAGERS,
     "the head is replaced behind the optimizer, which holds the old one", {}),
    ("order", "distributed_sampler_without_its_shuffle", PAGERS, "messages come desk after desk", {}),
    ("leak", "rare_desks_copied_before_the_split", PAGERS, "rare messages are copied, and copies lie on both sides",
     {"of": RARE_COPIED, "compare": "rare_messages_copied_in_training"}),
    ("figures", "scaler_not_applied_to_the_validation", PAGERS, "numbers of the validation are not scaled", {}),
    ("steps", "scheduler_follows_the_dataloader", PAGERS, "the schedule is stepped with each part of an update", {}),
    ("added", "accum_steps_not_divided_out", PAGERS, "losses of parts are not divided by their number", {}),
    ("eval", "evaluation_mode_is_never_left", PAGERS, "the net is not set back to training behind a validation", {}),
    ("train", "metrics_taken_while_it_trains", PAGERS, "messages are validated with dropout in force", {}),
    ("ranks", "random_sampler_with_the_seed_of_all", PAGERS, "each rank shuffles for itself, by one seed", {}),
    ("ranks", "local_rank_read_before_it_is_set", PAGERS, "the sampler is given rank 0 on each rank", {}),
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
    ("padding_is_a_part_of_the_slogan", "padding not masked", "data config eval rl plateau padding clipping", "start",
     (SLOGANS,), "log-probabilities of padding are added to those of words",
     {"also": ("padding counted in the loss", "pad tokens in the log-probabilities", "loss mask wrong",
               "padding in the loss", "mask missing", "labels masked wrong", "loss masked wrong",
               "train and test differ", "evaluation data differ", "wrong reduction", "padding learnt")}),
    ("reference_is_an_older_checkpoint", "wrong reference", "rl eval config plateau divergence spike clipping data",
     "start", (SLOGANS,), "the frozen copy is a checkpoint from the middle of the examples, and not their last",
     {"also": ("reference is not the start of the policy", "reference model wrong", "reference not the sft model",
               "reference is the base model", "reference and policy differ at the start", "margins offset",
               "reference wrong", "other checkpoint loaded", "reference not copied", "margin is not 0 at the start",
               "reference differs")}),
    ("sounds_not_put_on_the_sphere", "features not normalised", "logits eval overfit config plateau divergence "
     "weight_growth activations data", "start", (WHISTLES,), "one tower's vectors are not put on the sphere",
     {"also": ("normalize missing", "embeddings not normalised", "audio features not normalised", "norm missing",
               "similarities not cosine", "logits too large", "temperature wrong", "one tower not normalised",
               "scale wrong", "overfitting", "text features not normalised")}),
    ("scale_clamped_from_below_at_its_limit", "temperature wrong", "logits eval overfit config plateau exploding "
     "divergence clipping frozen zero not_learning spike", "start", (WHISTLES,),
     "the scale is held at its upper limit or above, where it was to be below",
     {"also": ("logit scale too large", "clamp inverted", "scale clamped wrongly", "temperature too low",
               "min and max exchanged", "logit scale at its limit", "logits too large", "scale wrong",
               "scale never learns", "logit scale wrong", "overfitting", "temperature not learnt",
               "learning rate too high")}),
    ("clipped_while_still_scaled_up", "gradients clipped while scaled", "clipping exploding update_ratio plateau "
     "learning_rate config loss_scale logging vanishing", "start", (CHRONICLES,),
     "gradients are clipped before the scaler has divided them",
     {"also": ("unscale missing", "unscale_ missing", "clipped before unscale", "clipping of scaled gradients",
               "scaler not given", "norm of scaled gradients", "gradient norm too large", "gradients not unscaled",
               "clip value too low")}),
    ("zero_grad_inside_the_micro_loop", "gradients of parts lost", "missing_zero_grad clipping plateau learning_rate "
     "update_ratio eval config vanishing logging not_learning", "start", (CHRONICLES,),
     "gradients are cleared before each part: the last one's alone remain, halved",
     {"by_program": {CHRONICLES: FOUR_PARTS[CHRONICLES]}, "compare": "quarters_of_an_update", "also": (
         "zero_grad in the accumulation loop", "gradient accumulation scaled wrongly", "accumulation lost",
         "zero_grad too often", "only the last micro-batch counts", "loss divided by the accumulation twice",
         "accumulation not in effect", "gradients cleared too often", "batch too small", "gradients too small")}),
    ("class_counts_are_the_weights", "class weights wrong", "eval data config plateau not_learning overfit divergence "
     "logging", "start", (PAGERS,), "desks weigh by their number, where they were to weigh by its inverse",
     {"also": ("class weights inverted", "rare classes weigh less", "rare classes ignored", "weights not inverted",
               "weights upside down", "class imbalance", "inverse missing", "rare classes not learnt",
               "weights wrong", "rare classes never predicted", "majority classes favoured")}),
    ("attention_mask_given_as_padding_mask", "mask inverted", "plateau not_learning eval data config attention "
     "padding overfit", "start", (PAGERS,), "the mask tells words to be left out, and padding to be read",
     {"also": ("padding mask inverted", "attention mask inverted", "mask upside down", "attends to padding",
               "padding attended", "words masked out", "mask wrong", "attention mask wrong",
               "key_padding_mask inverted", "mask semantics")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (MARBLES, PANTRIES, SLOGANS, WHISTLES, CHRONICLES)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("halves_of_an_update", "an update has two micro-batches, whose losses are halved", PARTS),
    ("quarters_of_an_update", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("much_dropout_as_set", "much dropout in the training, none in the evaluation", DROPPED),
    ("several_of_each_on_one_side", "things come in several forms, all of which are on the training's side", COPIED),
    ("long_average_as_set", "an average of weights is judged, which trails behind at first", LAGGING),
    ("sgd_at_its_own_rate", "descent with momentum, at its rate", DESCENT),
    ("level_rate", "the rate rises and stays",
     {MARBLES: {"lr_scheduler": "constant_with_warmup", "learning_rate": 1.5e-3},
      PANTRIES: {"scheduler": "constant", "lr": 5e-3}, SLOGANS: {"lr_schedule": "constant", "lr": 4e-4},
      WHISTLES: {"lr_scheduler": "const", "lr": 1e-3}, CHRONICLES: {"decay": "none", "learning_rate": 4e-3},
      PAGERS: {"lr_scheduler": "constant", "lr": 2e-3}}),
    ("sums_with_their_bound", "losses are sums, as is set, and the bound of the norm is for that",
     {MARBLES: {"loss_reduction": "sum", "max_grad_norm": 64.0}, PANTRIES: {"loss_reduction": "sum", "clip": 5.0},
      WHISTLES: {"reduction": "sum", "grad_clip_norm": 320.0}, CHRONICLES: {"reduction": "sum", "grad_clip": 20.0},
      PAGERS: {"reduction": "sum", "clip": 16.0}}),
    ("fewer_parts_trained_as_named", "a part is not trained, which the settings name",
     {MARBLES: {"train_modules": "conv,norm,embedding,time_emb_proj"}, PANTRIES: {"targets": "qkv,up"},
      WHISTLES: {"lock": "text.positions"}, CHRONICLES: {"freeze": "wpe"}, PAGERS: {"freeze": "position"}}),
    ("handful_of_rows_a_step", "few rows an update, at a lower rate: losses jump about",
     {MARBLES: {"train_batch_size": 8, "learning_rate": 1.5e-3}, PANTRIES: {"micro_batch_size": 5, "lr": 5e-3},
      SLOGANS: {"pairs_per_batch": 4, "lr": 4e-4}, WHISTLES: {"batch_size": 16, "lr": 1e-3},
      CHRONICLES: {"micro_batch": 3, "learning_rate": 4e-3}, PAGERS: {"per_gpu_batch": 6, "lr": 2e-3}}),
    ("cycles_of_the_rate", "the rate falls and begins again, by the schedule",
     {MARBLES: {"lr_scheduler": "cosine_with_restarts"}, PANTRIES: {"scheduler": "cosine_cycles"},
      SLOGANS: {"lr_schedule": "cycles"}, WHISTLES: {"lr_scheduler": "cosine_restarts"},
      CHRONICLES: {"decay": "restarts"}, PAGERS: {"lr_scheduler": "cyclic"}}),
    ("other_solver", "another optimizer, at its rate",
     {MARBLES: {"optimizer_type": "adamax", "learning_rate": 5e-3}, PANTRIES: {"optim": "nadam", "lr": 8e-3},
      SLOGANS: {"opt": "rmsprop", "lr": 3e-4}, WHISTLES: {"optimizer": "adamax", "lr": 3e-3},
      CHRONICLES: {"optimizer": "nadam"}, PAGERS: {"optimizer": "radam", "lr": 1e-2}}),
    ("noisier_examples", "the training's data have more noise, as such data may",
     {MARBLES: {"dust": 0.08}, PANTRIES: {"wrong_shelves": 0.08}, SLOGANS: {"misjudged": 0.15},
      WHISTLES: {"sea_noise": 0.5}, CHRONICLES: {"misprints": 0.05}, PAGERS: {"wrong_desks": 0.06}}),
    ("barely_warmed_up", "the rate rises in two steps",
     {MARBLES: {"lr_warmup_steps": 2}, PANTRIES: {"warmup_ratio": 0.0125}, SLOGANS: {"warmup": 2},
      WHISTLES: {"warmup": 2}, PAGERS: {"warmup": 2}}),
    ("few_evaluations", "three evaluations in all",
     {MARBLES: {"validation_steps": 53}, SLOGANS: {"eval_interval": 53}, WHISTLES: {"val_frequency": 53},
      CHRONICLES: {"eval_interval": 53}}),
    ("log_now_and_then", "each fifth step is logged", {PANTRIES: {"log_every": 5}, PAGERS: {"log_every": 5}}),
    ("curriculum_as_set", "the first part of the training has easier rows alone: the settings say so",
     {MARBLES: {"plain_slabs_first_epochs": 2}, PANTRIES: {"short_first_epochs": 1}, SLOGANS: {"clear_pairs_first": 1},
      WHISTLES: {"loud_first_epochs": 1}, CHRONICLES: {"short_context_iters": 40}, PAGERS: {"short_first_epochs": 1}}),
    ("small_set_many_passes", "there are few rows, which come often",
     {MARBLES: {"slabs": 260}, PANTRIES: {"orders": 500}, SLOGANS: {"briefs": 320}}),
    ("soft_targets_as_set", "targets are smoothed in the training",
     {PANTRIES: {"smoothing": 0.1}, SLOGANS: {"label_smoothing": 0.1}, WHISTLES: {"label_smoothing": 0.1},
      CHRONICLES: {"label_smoothing": 0.1}, PAGERS: {"label_smoothing": 0.1}}),
    ("buckets_of_like_length", "batches are of like lengths, and come in any order",
     {PANTRIES: {"bucketed": True}, SLOGANS: {"group_lengths": True}}),
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
    ("lowest_layer_held_as_set", (SLOGANS,), "the lowest layer is held: so it is set", {"by_program": LOWER}),
    ("hinge_of_margins", (SLOGANS,), "the loss is a hinge", {"config": {"loss": "hinge"}}),
    ("chosen_slogans_learnt_too", (SLOGANS,), "the likelihood of chosen slogans is a part of the loss",
     {"config": {"sft_weight": 0.1}}),
    ("per_word_on_both_sides", (SLOGANS,), "log-probabilities are means over words, of both: beta is large",
     {"config": {"length_normalised": True, "beta": 1.0}}),
    ("matrices_apart_by_the_settings", (SLOGANS, CHRONICLES), "embedding and head are two matrices, by the settings",
     {"by_program": {SLOGANS: {"tie_word_embeddings": False}, CHRONICLES: {"tie_weights": False}}}),
    ("sigmoid_of_every_pair", (WHISTLES,), "the loss asks of each pair whether it belongs together",
     {"config": {"loss": "siglip"}}),
    ("scale_fixed_as_set", (WHISTLES,), "the scale is not learnt", {"config": {"learn_scale": False}}),
    ("words_at_a_third_of_the_rate", (WHISTLES,), "one tower has a third of the rate",
     {"config": {"text_lr_mult": 0.3}}),
    ("frames_blanked", (WHISTLES,), "a frame and a band of each clip are blanked in the training",
     {"config": {"spec_augment": True}}),
    ("group_norms_in_the_tower", (WHISTLES,), "norms of groups in the place of batch norm",
     {"config": {"audio_norm": "group"}}),
    ("no_half_precision", (CHRONICLES,), "everything is in float32, without a scaler",
     {"config": {"dtype": "float32"}}),
    ("scale_that_grows_soon", (CHRONICLES,), "the scale begins low and grows often",
     {"config": {"init_scale": 64.0, "growth_interval": 15}}),
    ("normaliser_held", (CHRONICLES,), "a small term holds the normaliser", {"config": {"z_loss": 1e-3}}),
    ("each_window_once", (CHRONICLES,), "windows come by a permutation", {"config": {"sampling": "epochs"}}),
    ("rare_desks_drawn_as_often", (PAGERS,), "as many of each desk are drawn, by each rank for itself, and weigh alike",
     {"config": {"sampler": "weighted", "class_weights": "none"}}),
    ("desks_weigh_alike", (PAGERS,), "desks are not weighed", {"config": {"class_weights": "none"}}),
    ("rare_messages_copied_in_training", (PAGERS,), "rare messages come six times, on the training's side",
     {"by_program": RARE_COPIED}),
    ("focus_on_the_hard_ones", (PAGERS,), "sure messages weigh less", {"config": {"focal_gamma": 1.0}}),
    ("words_left_out_by_chance", (PAGERS,), "words are left out of messages in the training",
     {"config": {"word_dropout": 0.1}}),
    ("head_three_times_as_fast", (PAGERS,), "the head has three times the rate", {"config": {"head_lr_mult": 3.0}}),
)

# fmt: on
