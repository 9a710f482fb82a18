"""The twenty-second half of the bench, put away: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a flow to series with an average of its weights, adapters beside a base of four
bits, preferences against columns of a frozen reference, two towers for maps and bulletins, a language model that is
sharded over two processes, a vision transformer with rare kinds on two ranks; each as another ordinary engineer writes
it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong in
that program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule,
and did not look at what the doctor says. A fault is called by any name that a person would give it, and every kind of
finding that would be right of it is right; the names that the twenty-first half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, ninth, sixteenth, twentyfirst
from halves.ninth import Row, Settings

PROGRAMS = ("passes", "concierges", "apologies", "skymaps", "fables", "smears")
PASSES, CONCIERGES, APOLOGIES, SKYMAPS, FABLES, SMEARS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "generator_seeded_in_the_step", "time_embedded_from_zero_to_one", "end_hidden_with_the_padding",
    "both_factors_drawn_at_random", "replies_cut_by_the_length_of_prompts", "columns_made_anew_behind_the_load",
    "bulletins_off_the_sphere", "similarities_times_the_temperature", "last_part_counted_from_one",
    "warm_up_of_the_long_run_kept", "balanced_draw_beside_full_weights", "pictures_mixed_and_labels_kept",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    PASSES: {"per_step_batch": 16, "grad_accum": 2},
    CONCIERGES: {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
    APOLOGIES: {"batch_pairs": 6, "accumulate_batches": 2}, SKYMAPS: {"accum_batches": 2},
    FABLES: {"local_batch_size": 4, "gradient_accumulation": 2}, SMEARS: {"batch_size": 12, "update_freq": 2},
}
FOUR_PARTS: Settings = {
    PASSES: {"per_step_batch": 8, "grad_accum": 4},
    CONCIERGES: {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
    APOLOGIES: {"batch_pairs": 3, "accumulate_batches": 4},
    SKYMAPS: {"batch_size": 20, "accum_batches": 4, "optimizer": "sgd", "lr": 0.03, "clip_grad": 100.0, "wd": 0.0},
    FABLES: {"local_batch_size": 3, "gradient_accumulation": 4},
    SMEARS: {"batch_size": 8, "update_freq": 4, "opt": "sgd", "lr": 0.05, "clip_grad": 1e3, "weight_decay": 1e-3},
}
DROPPED: Settings = {
    PASSES: {"dropout": 0.2}, CONCIERGES: {"lora_dropout": 0.3}, APOLOGIES: {"resid_pdrop": 0.35},
    SKYMAPS: {"dropout": 0.3}, FABLES: {"dropout": 0.25}, SMEARS: {"drop": 0.25},
}
COPIED: Settings = {
    PASSES: {"windows_per_route": 8, "routes": 140}, CONCIERGES: {"phrasings": 4, "requests": 1200},
    APOLOGIES: {"pairs_per_complaint": 4, "complaints": 800}, SKYMAPS: {"hours_of_each": 4},
    FABLES: {"retellings": 4, "fables": 1600}, SMEARS: {"crops_of_each": 5},
}
LAGGING: Settings = {PASSES: {"ema_max_decay": 0.985}, SMEARS: {"model_ema": 0.95}}
LOWER: Settings = {APOLOGIES: {"train_layers_from": 1}}
DESCENT: Settings = {
    SKYMAPS: {"optimizer": "sgd", "lr": 0.03, "clip_grad": 100.0, "wd": 0.0},
    SMEARS: {"opt": "sgd", "lr": 0.05, "clip_grad": 1e3, "weight_decay": 1e-3},
}
WITH_HEAD: Settings = {CONCIERGES: {"modules_to_save": "lm_head"}}
MIXED: Settings = {SMEARS: {"mixup": 0.4}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*twentyfirst.SUMMED, "sum over dimensions", "sum over the profile", "loss summed over dimensions")
MEANED = (*twentyfirst.MEANED, "reference averaged over tokens", "reference and policy differ in their reduction",
          "reference log-probabilities are means", "reference wrong", "wrong reference", "margins offset")
GRAPHS = (*twentyfirst.GRAPHS, "samples keep their graph", "sampling with gradients", "gallery keeps its graph")
TWICE = (*twentyfirst.TWICE, "softmax before the loss")
SHIFTED = (*twentyfirst.SHIFTED, "reference columns misaligned", "reference log-probabilities of other rows",
           "reference rows misaligned", "class ids of the validation differ", "captions of the next picture",
           "class_to_idx differs", "last class is the null class", "response mask off by one")
FROZEN = (*twentyfirst.FROZEN, "embedders frozen", "embedders not trained", "text tower not trained",
          "text tower missing from the optimizer", "lora_A not trained", "adapters frozen",
          "adapters of a layer frozen",
          "embedding not in the optimizer", "embedding frozen", "never unfrozen",
          "layer decay too strong", "rates of lower layers too low",
          "layer-wise learning rate wrong", "upper layers frozen", "stem not trained")
TIE = (*twentyfirst.TIE, "tie lost by assign", "load_state_dict with assign", "tied after to_empty", "head copied",
       "modules_to_save unties the head")
SORTED = (*twentyfirst.SORTED, "terrain after terrain", "wish after wish", "season after season", "book after book",
          "by season", "by book", "by length")
LEAK = (*twentyfirst.LEAK, "overlapping windows on both sides", "windows of one route on both sides",
        "crops of one cell on both sides", "retellings on both sides", "hours of one state on both sides",
        "pairs of one complaint on both sides", "phrasings on both sides")
FIGURES = (*twentyfirst.FIGURES, "statistics of other data", "statistics file outdated", "stats of another data set",
           "normalize missing in the validation", "validation not normalised", "validation in other units")
BUFFERS = (*twentyfirst.BUFFERS, "batch norm in eval mode in the training", "batch norm frozen",
           "buffers not in the average", "buffers of the average not updated", "ema buffers stale",
           "averaged weights are wrong", "average without buffers", "averaged weights not updated")
STEPPED = (*twentyfirst.STEPPED, "scheduler stepped in the accumulation loop")
ADDED = (*twentyfirst.ADDED, "loss not divided by grad_accum steps")
IN_EVAL = (*twentyfirst.IN_EVAL, "eval mode after the validation", "train() missing after the evaluation")
IN_TRAINING = (*twentyfirst.IN_TRAINING, "reference in training mode", "reference drops", "dropout in the reference")
AVERAGE = (*twentyfirst.AVERAGE, "average updated too seldom", "decay too high for a short run")
NOT_BACK = (*twentyfirst.NOT_BACK, "average left in the net", "restore() missing")
RESUMED = (*twentyfirst.RESUMED, "weights alone restored", "checkpoint has no optimizer")
ANEW = (*RESUMED, "schedule restarted", "schedule begins anew", "scheduler not restored", "learning rate rises again",
        "warm-up again", "schedule lost at the resume", "scheduler state lost")
SAME = (*twentyfirst.SAME, "rank missing in the loader", "loader not sharded")

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "many_forms_of_one_thing", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_parts_averaged", STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "four_parts_averaged",
    ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "strong_dropout_by_setting", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "strong_dropout_by_setting",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", LAGGING, "slower_average_by_setting",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_summed_over_the_profile", PASSES, "squares are summed over the heights of a profile", {}),
    ("graph", "drawn_with_a_graph_for_the_grid", PASSES,
     "roads are drawn with gradients on, and kept for a picture", {}),
    ("label", "survey_codes_start_at_one", PASSES,
     "terrains count from 1 in the training: the last is the untold one, and the validation counts from 0", {}),
    ("frozen", "embed_in_the_name_is_held", PASSES,
     "fixed positions are held by a part of their name, which all embedders have", {}),
    ("order", "dataloader_as_the_survey_lists", PASSES, "the loader doesn't shuffle: roads come terrain after terrain",
     {}),
    ("leak", "windows_parted_by_random_split", PASSES, "overlapping windows of one route come to lie on both sides",
     {}),
    ("figures", "stats_file_of_the_first_region", PASSES,
     "heights are scaled by figures of another region, and those of the validation by their own", {}),
    ("steps", "scheduler_inside_accumulate", PASSES, "the schedule is stepped with each part of an update", {}),
    ("added", "accelerator_backward_of_the_whole_loss", PASSES, "losses of parts are not divided by their number", {}),
    ("eval", "net_drawn_with_and_left_in_eval", PASSES, "the net is not set back to training after it has drawn", {}),
    ("train", "validated_behind_net_train", PASSES, "the average is validated and draws in training mode", {}),
    ("average", "decay_of_the_paper_at_once", PASSES, "the average's decay is that of a long run, from the first step",
     {"set": {"ema_max_decay": 0.9999, "ema_power": 1.0, "ema_inv_gamma": 0.001}}),
    ("swap", "average_written_over_the_net", PASSES, "the average is put into the net for drawing, and stays there",
     {}),
    ("resume", "training_state_saved_by_save_pretrained", PASSES,
     "weights are restored, and neither the optimizer's state nor the schedule's", {"also": ANEW}),
    ("sum", "tokens_summed_and_divided_by_rows", CONCIERGES, "losses of tokens are summed, and divided by rows", {}),
    ("graph", "prediction_loop_on_the_tape", CONCIERGES, "requests are evaluated with gradients on, and outputs kept",
     {}),
    ("label", "labels_moved_by_the_dataset_too", CONCIERGES, "labels are shifted twice", {}),
    ("label", "prompt_length_of_the_padded_prompt", CONCIERGES,
     "the request is counted one token too long: the answer's first is not learnt", {}),
    ("frozen", "prepared_for_training_after_the_adapters", CONCIERGES,
     "what holds the base comes behind the adapters, and holds much of them", {}),
    ("tie", "head_to_save_is_tied_no_more", CONCIERGES,
     "the head to be trained is a copy, and the embedding keeps its old rows",
     {"of": WITH_HEAD, "compare": "head_beside_the_adapters"}),
    ("order", "sampler_sequential_as_for_packing", CONCIERGES, "requests come as the file has them, wish after wish",
     {}),
    ("order", "length_column_sorts_the_rows", CONCIERGES, "requests come from the shortest to the longest, each pass",
     {}),
    ("leak", "phrasings_split_by_train_test_split", CONCIERGES, "phrasings of one request come to lie on both sides",
     {}),
    ("steps", "on_substep_end_steps_the_schedule", CONCIERGES, "the schedule is stepped at substeps", {}),
    ("eval", "inference_mode_of_the_fast_model_stays", CONCIERGES,
     "the model is not set back to training after an evaluation", {}),
    ("train", "evaluated_without_model_eval", CONCIERGES, "requests are evaluated with dropout in force", {}),
    ("resume", "resumed_by_peft_from_pretrained", CONCIERGES, "the adapters are loaded, and no state of the optimizer",
     {}),
    ("sum", "reference_columns_are_means", APOLOGIES,
     "log-probabilities of the reference are means over tokens, those of the policy are sums",
     {"also": MEANED, "cause": "wrong reduction"}),
    ("graph", "evaluation_figures_are_live_tensors", APOLOGIES,
     "pairs are evaluated with gradients on, and figures are kept as they are", {}),
    ("label", "labels_gathered_at_their_own_place", APOLOGIES,
     "probabilities of words are read at their own places, and not one before", {}),
    ("label", "short_rows_filtered_behind_the_columns", APOLOGIES,
     "a row is dropped behind the columns of the reference, which are those of other pairs from then on", {}),
    ("frozen", "layers_alone_freed_behind_the_columns", APOLOGIES,
     "the policy is held while columns are made, and its layers alone are freed again", {}),
    ("order", "sorted_to_pad_less", APOLOGIES, "pairs come from the shortest to the longest, each pass", {}),
    ("leak", "pairs_shuffled_before_the_split", APOLOGIES, "pairs of one complaint come to lie on both sides", {}),
    ("steps", "scheduler_follows_each_forward", APOLOGIES, "the schedule is stepped with each forward pass, of two",
     {}),
    ("eval", "policy_quiet_after_the_first_proof", APOLOGIES,
     "the policy is not set back to training after an evaluation", {}),
    ("train", "policy_evaluated_while_it_trains", APOLOGIES, "pairs are evaluated with the policy dropping", {}),
    ("train", "columns_made_with_the_policy_in_train_mode", APOLOGIES,
     "columns of the reference are made with dropout in force", {"kinds": " plateau rl clipping"}),
    ("resume", "policy_checkpoint_given_as_the_start", APOLOGIES,
     "the policy's weights are restored, and no state of the optimizer", {}),
    ("sum", "cross_entropy_of_all_rows_totalled", SKYMAPS, "losses of both directions are summed over the batch",
     {"of": DESCENT, "compare": "plain_descent_by_setting"}),
    ("softmax", "similarities_softmaxed_before_the_loss", SKYMAPS,
     "similarities go through a softmax, and then into a loss that has its own", {}),
    ("graph", "gallery_embeddings_under_autograd", SKYMAPS, "the gallery is embedded with gradients on, and kept", {}),
    ("label", "first_map_missing_in_one_folder", SKYMAPS,
     "maps and bulletins are joined by place, and one map is missing: bulletins are those of the next", {}),
    ("frozen", "towers_listed_under_an_old_name", SKYMAPS,
     "the optimizer takes towers by their names, one of which has changed", {}),
    ("order", "year_read_from_january_on", SKYMAPS, "maps come as the year has them, season after season", {}),
    ("leak", "hours_of_a_day_on_both_sides", SKYMAPS, "hours of one state come to lie on both sides", {}),
    ("figures", "gallery_scaled_by_its_own_reader", SKYMAPS, "maps of the gallery are scaled by other figures", {}),
    ("buffers", "norms_held_as_in_fine_tuning", SKYMAPS,
     "batch norm is in evaluation mode from the start, in towers that begin anew", {}),
    ("steps", "schedule_moves_with_each_forward", SKYMAPS, "the schedule is stepped with each forward pass, of two",
     {}),
    ("added", "accum_batches_each_in_full", SKYMAPS, "losses of parts are not divided by their number", {}),
    ("eval", "towers_stay_as_the_gallery_left_them", SKYMAPS, "towers are not set back to training after a gallery",
     {}),
    ("train", "atlas_embedded_before_eval", SKYMAPS,
     "the gallery is embedded in training mode: with dropout, and statistics of its own", {}),
    ("resume", "pretrained_path_instead_of_resume", SKYMAPS,
     "weights are loaded, and neither the optimizer's state nor the schedule's", {"also": ANEW}),
    ("sum", "token_losses_over_the_number_of_rows", FABLES, "losses of words are summed, and divided by rows", {}),
    ("softmax", "output_layer_gives_shares", FABLES, "the model gives probabilities, and the loss has its own softmax",
     {}),
    ("label", "shifted_in_the_loader_and_in_the_loss", FABLES, "words are shifted by the loader, and by the loss again",
     {}),
    ("frozen", "optimizer_of_the_wrapped_blocks", FABLES,
     "the optimizer has the blocks that were wrapped, and nothing beside them", {}),
    ("tie", "storage_made_anew_without_the_tie", FABLES,
     "each name gets memory of its own before sharding: embedding and output part", {}),
    ("order", "books_streamed_one_behind_the_other", FABLES, "rows come book after book, in their order", {}),
    ("leak", "retellings_shuffled_then_cut", FABLES, "retellings of one fable come to lie on both sides", {}),
    ("steps", "lr_moves_with_each_part", FABLES, "the schedule is stepped with each part of an update, of two", {}),
    ("added", "each_part_backward_in_full", FABLES, "losses of parts are not divided by their number", {}),
    ("eval", "model_validated_and_kept_so", FABLES, "the model is not set back to training after a validation", {}),
    ("train", "validated_between_two_updates_as_it_is", FABLES, "rows are validated with dropout in force", {}),
    ("ranks", "data_parallel_rank_not_handed_to_the_loader", FABLES, "each rank reads the rows of the first", {}),
    ("sum", "weighted_sum_in_place_of_weighted_mean", SMEARS, "weighted losses are summed, and not divided",
     {"of": DESCENT, "compare": "plain_descent_by_setting"}),
    ("softmax", "head_ends_in_a_softmax_layer", SMEARS, "the head ends in a softmax, and the loss has its own", {}),
    ("label", "class_to_idx_of_each_folder", SMEARS,
     "kinds of the training count by their folders' names, those of the validation by a list", {}),
    ("frozen", "layer_ids_counted_by_parameter", SMEARS,
     "rates fall with each parameter, and not with each layer: those of the stem are next to nothing",
     {"kinds": " learning_rate"}),
    ("order", "sampler_made_with_shuffle_false", SMEARS, "the sampler doesn't shuffle: cells come kind after kind", {}),
    ("leak", "crops_split_by_picture_and_not_by_cell", SMEARS, "pictures of one cell come to lie on both sides", {}),
    ("figures", "normalize_left_out_of_val_transform", SMEARS, "pictures of the validation are not normalised", {}),
    ("buffers", "average_of_parameters_without_buffers", SMEARS,
     "the average that is judged has statistics of batch norm as they were made",
     {"of": LAGGING, "compare": "slower_average_by_setting"}),
    ("steps", "scheduler_in_the_loop_over_parts", SMEARS, "the schedule is stepped with each part of an update, of two",
     {}),
    ("added", "update_freq_without_its_division", SMEARS, "losses of parts are not divided by their number", {}),
    ("eval", "model_eval_once_and_for_all", SMEARS, "the net is not set back to training after a validation", {}),
    ("train", "val_loop_without_eval", SMEARS, "cells are validated in training mode", {}),
    ("average", "ema_decay_of_a_long_schedule", SMEARS, "the average's decay is that of a long run, without a warm-up",
     {"set": {"model_ema": 0.9998, "ema_warmup": False}, "compare": "slower_average_by_setting"}),
    ("ranks", "loader_shuffles_by_itself_on_each_rank", SMEARS, "each rank shuffles for itself, by one seed", {}),
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
    ("generator_seeded_in_the_step", "noise is the same in each step", "eval overfit data config repeated_data",
     "start", (PASSES,), "noise and times come from a generator that is seeded in each step: they are always the same",
     {"also": ("noise drawn once", "generator seeded in the loop", "noise repeated", "same noise each step",
               "seed set in each step", "noise fixed", "times always the same", "seed reset", "overfitting",
               "validation noise differs", "train and test differ", "evaluation data differ", "few examples",
               "random state reset", "noise not random")}),
    ("time_embedded_from_zero_to_one", "time scaled wrongly", "eval plateau config data not_learning", "start",
     (PASSES,), "times from 0 to 1 go into an embedding that is made for 0 to 1000: it hardly moves",
     {"also": ("timesteps not scaled", "time not multiplied by 1000", "time embedding constant", "time not told",
               "timestep embedding wrong", "time embedding hardly changes", "inputs not normalised",
               "conditioning on time lost", "time left out", "frequencies too low")}),
    ("end_hidden_with_the_padding", "end of sequence masked", "eval data overfit config divergence padding", "start",
     (CONCIERGES,), "the end is masked along with the padding: it is never learnt, and the evaluation asks for it",
     {"also": ("eos masked", "eos not learnt", "pad token is eos", "end token masked", "eos in the padding",
               "labels masked wrong", "end never learnt", "labels of the evaluation differ", "train and test differ",
               "labels shifted", "loss masked wrong", "evaluation data differ", "padding mask hides the end")}),
    ("both_factors_drawn_at_random", "adapters not begun at zero",
     "eval logits divergence plateau learning_rate config "
     "activations exploding spike clipping weight_growth", "start", (CONCIERGES,),
     "neither factor begins at zero: the base is disturbed before the first step",
     {"also": ("bad initialisation", "lora_B not zero", "lora initialised wrongly", "adapter starts at random",
               "initial loss too high", "base disturbed", "init wrong", "adapters drawn at random")}),
    ("replies_cut_by_the_length_of_prompts", "replies truncated", "plateau data config eval not_learning zero rl",
     "start", (APOLOGIES,), "rows are cut at the length of a prompt: of long complaints nothing of the reply is left",
     {"also": ("truncated", "max_length too small", "responses cut off", "truncation removes the response",
               "rows truncated", "max length too short", "labels masked wrong", "empty labels", "no labels left",
               "loss masked out", "chosen and rejected alike", "sequences truncated", "data truncated")}),
    ("columns_made_anew_behind_the_load", "reference model is the policy", "resume rl spike divergence jump_down eval "
     "config plateau", "resume", (APOLOGIES,),
     "at the resume columns of the reference are made anew, by the policy that was loaded",
     {"also": ("reference reset", "reference is the resumed policy", "reference not the base model", "wrong reference",
               "reference replaced at the resume", "reference changed", "reference moved", "reference updated",
               "reference model wrong", "state lost at the resume", "margins reset", "optimizer state lost",
               "reference recomputed at the resume", "checkpoint incomplete")}),
    ("bulletins_off_the_sphere", "features not normalised", "logits eval overfit config plateau divergence "
     "weight_growth activations data", "start", (SKYMAPS,), "one tower's vectors are not put on the sphere",
     {"also": ("normalize missing", "text features not normalised", "embeddings not normalised", "norm missing",
               "similarities not cosine", "logits too large", "temperature wrong", "one tower not normalised",
               "scale wrong", "overfitting")}),
    ("similarities_times_the_temperature", "temperature wrong", "plateau not_learning logits eval config vanishing",
     "start", (SKYMAPS,), "similarities are multiplied by the temperature, where they were to be divided",
     {"also": ("temperature multiplied", "temperature inverted", "logit scale inverted", "temperature too high",
               "logit scale too small", "logits too small", "scale wrong", "logit scale wrong", "softmax twice",
               "temperature not learnt", "learning rate too low", "scale inverted")}),
    ("last_part_counted_from_one", "gradients not synchronised", "zero frozen not_learning plateau desync "
     "missing_zero_grad config vanishing update_ratio learning_rate", "start", (FABLES,),
     "the last part is never seen as the last: gradients are not shared out, and no weight moves",
     {"by_program": {FABLES: PARTS[FABLES]}, "compare": "two_parts_averaged", "also": (
         "gradients never reduced", "no gradient synchronisation", "gradient sync never on", "layer frozen",
         "gradients missing", "no gradients", "gradients not reduced", "parameters have no gradient",
         "all-reduce missing", "optimizer holds other parameters", "weights never move", "graph cut", "gradients zero",
         "nothing is trained", "off by one", "set_requires_gradient_sync", "no_sync")}),
    ("warm_up_of_the_long_run_kept", "warm-up too long",
     "learning_rate plateau not_learning update_ratio config frozen",
     "start", (FABLES,), "the rate still rises when the training ends: its warm-up is that of a long run",
     {"by_program": {FABLES: {"warmup_steps": 2000}}, "also": (
         "learning rate too low", "warmup longer than the training", "warm-up never ends", "warmup too long",
         "schedule too long", "learning rate wrong", "undertrained", "warm-up longer than the run",
         "learning rate never reached", "schedule wrong")}),
    ("balanced_draw_beside_full_weights", "balanced twice", "eval plateau data config overfit divergence not_learning",
     "start", (SMEARS,), "rare kinds are drawn as often as others, and weigh more besides",
     {"by_program": {SMEARS: {"class_weights": "inverse"}}, "compare": "inverse_weights_by_setting", "also": (
         "rare classes weighted twice", "imbalance corrected twice", "class weights wrong", "class imbalance",
         "oversampled and weighted", "weights and sampler both balance", "sampler and weights", "double balancing",
         "evaluation has other shares of kinds", "shares of kinds differ", "rare classes predicted too often",
         "class weights beside a balanced sampler", "train and test differ", "weights wrong", "data drift")}),
    ("pictures_mixed_and_labels_kept", "labels not mixed", "plateau not_learning eval data config overfit", "start",
     (SMEARS,), "pictures are mixed with others, and labels are those of one",
     {"by_program": MIXED, "compare": "mixed_pictures_by_setting", "also": (
         "mixup without labels", "mixup labels missing", "labels do not match the inputs", "labels noisy",
         "labels wrong", "mixup wrong", "labels of the mixed rows lost", "labels random", "wrong target",
         "labels shifted", "labels shuffled", "half of the labels are wrong", "mixup too strong")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (PASSES, CONCIERGES, APOLOGIES, SKYMAPS)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in ALONE},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_averaged", "an update has two micro-batches, whose losses are halved", PARTS),
    ("four_parts_averaged", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("strong_dropout_by_setting", "much dropout in the training, none in the evaluation", DROPPED),
    ("many_forms_of_one_thing", "things come in several forms, all of which are on the training's side", COPIED),
    ("slower_average_by_setting", "an average of weights is judged, which trails behind at first", LAGGING),
    ("plain_descent_by_setting", "descent with momentum, at its rate", DESCENT),
    ("rate_that_stays_up", "the rate rises and stays",
     {PASSES: {"lr_scheduler": "constant_with_warmup", "learning_rate": 2e-3},
      CONCIERGES: {"lr_scheduler_type": "constant_with_warmup", "learning_rate": 8e-3},
      APOLOGIES: {"schedule": "constant", "lr": 6e-4}, SKYMAPS: {"scheduler": "constant", "lr": 3e-3},
      FABLES: {"lr_decay": "none", "peak_lr": 4e-3}, SMEARS: {"sched": "constant", "lr": 1.5e-3}}),
    ("totals_by_setting", "losses are sums, as is set, and the bound of the norm is for that",
     {PASSES: {"loss_reduction": "sum_over_dims", "max_grad_norm": 48.0},
      SKYMAPS: {"loss_reduction": "sum", "clip_grad": 40.0}, FABLES: {"loss_norm": "none", "max_norm": 256.0},
      SMEARS: {"reduction": "sum", "clip_grad": 50.0}}),
    ("part_held_and_named", "a part is not trained, which the settings name",
     {PASSES: {"freeze_modules": "t_embedder"}, CONCIERGES: {"target_modules": "q_proj,v_proj"},
      SKYMAPS: {"frozen": "textual.words"}, FABLES: {"freeze": "pos_embeddings"}, SMEARS: {"frozen": "pos_embed"}}),
    ("few_rows_an_update", "few rows an update, at a lower rate: losses jump about",
     {PASSES: {"per_step_batch": 10, "learning_rate": 1.5e-3},
      CONCIERGES: {"per_device_train_batch_size": 5, "learning_rate": 7e-3},
      APOLOGIES: {"batch_pairs": 4, "lr": 9e-4}, SKYMAPS: {"batch_size": 16, "lr": 3e-3},
      FABLES: {"local_batch_size": 3, "peak_lr": 3e-3}, SMEARS: {"batch_size": 8, "lr": 2e-3}}),
    ("several_cycles_by_setting", "the rate falls and begins again, by the schedule",
     {PASSES: {"lr_scheduler": "cosine_with_restarts"}, CONCIERGES: {"lr_scheduler_type": "cosine_with_restarts"},
      APOLOGIES: {"schedule": "cosine_restarts"}, SKYMAPS: {"scheduler": "warm_restarts"},
      FABLES: {"lr_decay": "restarts"}, SMEARS: {"sched": "cosine_cycles"}}),
    ("optimizer_of_their_choice", "another optimizer, at its rate",
     {PASSES: {"optimizer": "radam", "learning_rate": 4e-3}, CONCIERGES: {"optim": "rmsprop", "learning_rate": 3e-3},
      APOLOGIES: {"optimizer": "rmsprop", "lr": 4e-4}, SKYMAPS: {"optimizer": "adam", "wd": 0.0},
      FABLES: {"optimizer": "adam", "weight_decay": 0.0}, SMEARS: {"opt": "nadam", "lr": 3e-3}}),
    ("rougher_data", "the training's data have more noise, as such data may",
     {PASSES: {"roughness": 0.5}, CONCIERGES: {"wrong_fields": 0.1}, APOLOGIES: {"misjudged": 0.12},
      SKYMAPS: {"rain_noise": 0.7}, FABLES: {"typos": 0.04}, SMEARS: {"wrong_kinds": 0.05}}),
    ("two_steps_of_warm_up", "the rate rises in two steps",
     {PASSES: {"lr_warmup_steps": 2}, CONCIERGES: {"warmup_steps": 2}, SKYMAPS: {"warmup_steps": 2},
      SMEARS: {"warmup_steps": 2, "lr": 3e-3}}),
    ("rarely_evaluated", "three evaluations in all",
     {PASSES: {"validation_steps": 53}, APOLOGIES: {"eval_every": 53}, FABLES: {"validate_every": 53}}),
    ("every_fifth_step_is_told", "each fifth step is logged",
     {CONCIERGES: {"logging_steps": 5}, SKYMAPS: {"log_every": 5}}),
    ("easier_ones_first_by_setting", "the first pass or two have an easier part alone: the settings say so",
     {PASSES: {"flat_first_epochs": 2}, CONCIERGES: {"short_requests_first": 1}, APOLOGIES: {"grave_first": 1},
      SKYMAPS: {"deep_lows_first": 1}, FABLES: {"short_books_first": 1}, SMEARS: {"clear_cells_first": 2}}),
    ("less_data_and_more_passes", "there are few rows, which come often",
     {PASSES: {"routes": 120}, CONCIERGES: {"requests": 450}, APOLOGIES: {"complaints": 420}}),
    ("smoothed_by_setting", "targets are smoothed in the training",
     {CONCIERGES: {"label_smoothing_factor": 0.1}, APOLOGIES: {"label_smoothing": 0.1}, SKYMAPS: {"smoothing": 0.1},
      FABLES: {"label_smoothing": 0.1}, SMEARS: {"smoothing": 0.1}}),
    ("two_matrices_on_purpose", "embedding and output are two matrices, by the settings",
     {APOLOGIES: {"tie_embeddings": False}, FABLES: {"tie_embeddings": False}}),
    ("groups_instead_of_batches_normalised", "norms of groups in the place of batch norm",
     {SKYMAPS: {"norm_layer": "group"}, SMEARS: {"stem_norm": "group"}}),
    ("alike_in_length_by_setting", "batches are of like lengths, and come in any order",
     {CONCIERGES: {"group_by_length": True}, APOLOGIES: {"bucket_by_length": True}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("road_itself_is_told", (PASSES,), "the net tells the road, and not a velocity",
     {"config": {"prediction": "sample"}}),
    ("middle_times_more_often", (PASSES,), "times are of a logistic normal",
     {"config": {"time_sampling": "logit_normal"}}),
    ("guided_roads", (PASSES,), "roads are drawn with guidance, untold in three of ten",
     {"config": {"guidance_scale": 2.0, "class_dropout_prob": 0.3}}),
    ("places_learnt_too", (PASSES,), "positions are trained", {"config": {"freeze_pos_embed": False}}),
    ("whole_rows_learnt", (CONCIERGES,), "requests are learnt too, as is set: much of that loss can't fall",
     {"config": {"train_on_inputs": True}}),
    ("embeddings_with_noise_by_setting", (CONCIERGES,), "noise is added to embeddings in the training",
     {"config": {"neftune_noise_alpha": 5.0}}),
    ("normal_first_factors", (CONCIERGES,), "first factors are drawn from a normal",
     {"config": {"init_lora_weights": "gaussian"}}),
    ("head_beside_the_adapters", (CONCIERGES,), "the head is trained beside adapters, and the embedding with it",
     {"by_program": WITH_HEAD}),
    ("lower_layers_held_by_setting", (APOLOGIES,), "the lowest layer is held: so it is set", {"by_program": LOWER}),
    ("chosen_replies_likely_too", (APOLOGIES,), "the likelihood of chosen replies is a part of the loss",
     {"config": {"rpo_alpha": 0.1}}),
    ("identity_of_preferences", (APOLOGIES,), "the loss of identity preferences", {"config": {"loss_type": "ipo"}}),
    ("hinge_by_setting", (APOLOGIES,), "the loss is a hinge", {"config": {"loss_type": "hinge"}}),
    ("means_of_both_by_setting", (APOLOGIES,), "log-probabilities are means over tokens, of both: beta is large",
     {"config": {"average_logps": True, "beta": 0.6}}),
    ("temperature_fixed_by_setting", (SKYMAPS,), "the temperature is not learnt",
     {"config": {"learn_temperature": False}}),
    ("bulletins_at_a_third_of_the_rate", (SKYMAPS,), "one tower has a third of the rate",
     {"config": {"text_lr_factor": 0.3}}),
    ("computed_in_float32", (FABLES,), "everything is in float32", {"config": {"param_dtype": "float32"}}),
    ("normaliser_in_bounds", (FABLES,), "a small term holds the normaliser", {"config": {"z_loss": 1e-3}}),
    ("embeddings_at_a_third_of_the_rate", (FABLES,), "embeddings have a third of the rate",
     {"config": {"embed_lr_scale": 0.3}}),
    ("rare_cells_drawn_alike", (SMEARS,), "as many of each kind are drawn, by each rank for itself, and weigh alike",
     {"config": {"sampler": "balanced", "class_weights": "none"}}),
    ("cells_weigh_alike", (SMEARS,), "kinds are not weighed", {"config": {"class_weights": "none"}}),
    ("inverse_weights_by_setting", (SMEARS,), "kinds weigh by the inverse of their number",
     {"config": {"class_weights": "inverse"}}),
    ("mixed_pictures_by_setting", (SMEARS,), "pictures and labels are mixed", {"by_program": MIXED}),
    ("one_rate_for_all_layers", (SMEARS,), "all layers have one rate", {"config": {"layer_decay": 1.0, "lr": 2e-3}}),
)

# fmt: on
