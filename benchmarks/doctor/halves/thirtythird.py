"""The thirty-third half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the thirty-second half: shots of espresso out of noise, with a shadow of the weights
that is put into the net to be validated; adapters on a base of four bits that learns another cipher; preferences of
readers of horoscopes against a reference; two towers for fossils and their labels, with callbacks; a language model in
bfloat16 alone over listings of a machine with registers; rare faults of welds on two workers, under
DistributedDataParallel; each as another ordinary engineer writes it. Most faults are of the fifteen kinds that the
fourteenth half has; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no
rule, and did not look at what the doctor says. Names and kinds are taken over from the thirty-second half, and every
kind that would be right is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import thirtysecond as before
from halves.ninth import Row, Settings
from halves.twentysixth import several

PROGRAMS = ("espressos", "ciphers", "horoscopes", "fossils", "registers", "welds")
ESPRESSOS, CIPHERS, HOROSCOPES, FOSSILS, REGISTERS, WELDS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "drawn_with_alphas_and_not_their_products", "roots_forgotten_where_noise_is_added",
    "merged_for_the_unseen_without_the_gain", "prompts_padded_behind_to_be_answered",
    "rewards_multiplied_by_beta_again", "ratio_of_the_reference_is_added",
    "unit_length_is_taken_in_the_training_step", "drawer_goes_through_the_transform_of_the_training",
    "padding_is_a_word_like_any_other", "places_of_what_is_written_begin_anew",
    "weights_in_the_order_of_their_counts", "module_inside_is_called_and_not_its_wrapper",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    ESPRESSOS: {"batch_size": 16, "accumulate_grad_batches": 2}, CIPHERS: {"batch_size": 8, "accumulation": 2},
    HOROSCOPES: {"pairs_per_batch": 8, "batches_per_step": 2}, FOSSILS: {"batch_size": 32, "accumulate": 2},
    REGISTERS: {"listings_a_step": 10, "split": 2}, WELDS: {"per_rank": 16, "accumulation": 2},
}
FOUR_PARTS: Settings = {
    ESPRESSOS: {"batch_size": 8, "accumulate_grad_batches": 4, "optim": "sgd", "lr": 0.12, "gradient_clip_val": 10.0},
    CIPHERS: {"batch_size": 4, "accumulation": 4, "optimizer": "sgd", "learning_rate": 0.06, "max_norm": 100.0},
    HOROSCOPES: {"pairs_per_batch": 4, "batches_per_step": 4, "opt": "sgd", "max_lr": 0.06, "clip_at": 100.0},
    FOSSILS: {"batch_size": 24, "accumulate": 4, "optimizer": "sgd", "lr": 0.06, "clip": 100.0},
    REGISTERS: {"listings_a_step": 5, "split": 4, "algorithm": "sgd", "rate": 0.3, "clip": 100.0},
    WELDS: {"per_rank": 8, "accumulation": 4, "optimizer": "sgd", "lr": 0.2, "max_norm": 100.0},
}
DROPPED: Settings = {
    ESPRESSOS: {"p_drop": 0.3}, CIPHERS: {"adapter_dropout": 0.3},
    HOROSCOPES: {"p_drop": 0.2}, FOSSILS: {"dropout": 0.3}, REGISTERS: {"drop": 0.2}, WELDS: {"dropout": 0.4},
}
COPIED: Settings = {
    ESPRESSOS: {"loggers": 40, "shots": 480}, CIPHERS: {"copies": 9},
    HOROSCOPES: {"readers": 5, "pairs": 960}, FOSSILS: {"casts": 8, "fossils": 1600}, REGISTERS: {"typed": 8},
    WELDS: {"per_seam": 5},
}
TRAILING: Settings = {
    ESPRESSOS: {"shadow_decay": 0.975},
}
HELD_STILL: Settings = {
    ESPRESSOS: {"freeze": "blocks.0"}, CIPHERS: {"freeze": "layers.0"},
    HOROSCOPES: {"frozen_layers": 1}, FOSSILS: {"fixed": "label_net"}, REGISTERS: {"held_still": "places"},
    WELDS: {"freeze": "stem"},
}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

FLIPPED = several(*before.before.FLIPPED, *before.SHIFTED, "winner index off by one")
MORE: Mapping[str, tuple[str, ...]] = {
    "sum": ("loss summed over spans", "loss summed over a shot", "loss summed over scans",
            "loss summed over listings"),
    "softmax": ("probabilities given to the loss", "softmax in the model and in the loss"),
    "label": ("conditions of the evaluation differ", "class ids of the evaluation off by one", "labels not shifted",
              "targets are the inputs", "collator shifts and the loss shifts", "label modulo classes",
              "header line taken for a row", "labels off by one row", "log probabilities of the wrong token"),
    "frozen": ("gates not in the optimizer", "parameters in no group", "adapters frozen",
               "group of the optimizer empty",
               "load_state_dict with assign", "assign=True", "parameters replaced", "all layers frozen",
               "only the head trained", "optimizer has the head alone", "linear probe", "label encoder frozen",
               "freezing wrong", "prefix does not match"),
    "tie": ("tables not shared", "head is a new parameter", "two tables", "table not shared between the towers"),
    "order": ("sign after sign", "roast after roast", "finding after finding", "species after species", "shuffle=False",
              "dialect after dialect", "shuffle off", "DistributedSampler without shuffle", "sorted by key"),
    "leak": ("loggers of a shot on both sides", "casts on both sides", "scans of a seam on both sides",
             "listings on both sides", "copies on both sides", "readers of a pair on both sides"),
    "figures": ("units differ", "not divided by the standard deviation", "std missing in the evaluation",
                "centimetres and millimetres confused", "kiloamperes and amperes confused",
                "preprocessing of the evaluation differs"),
    "buffers": ("average moves parameters alone", "buffers of the average are those of the start"),
    "average": ("average updated once an epoch", "average updated per epoch", "ema updated too seldom"),
    "swap": ("backup is no copy", "own weights not copied", "state_dict without clone", "aliased backup",
             "backup shares its memory", "weights not restored after the evaluation"),
    "ranks": ("DistributedSampler missing", "sampler has one replica", "num_replicas is 1",
              "rank missing in the sampler"),
    "cleared": ("zero_grad in the inner loop",),
}

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

AGAINST: Mapping[str, tuple[Settings, str]] = {
    "leak": (COPIED, "relatives_all_on_one_side"), "steps": (PARTS, "config_says_two_parts_an_update"),
    "added": (FOUR_PARTS, "config_says_four_parts_an_update"),
    "cleared": (FOUR_PARTS, "config_says_four_parts_an_update"),
    "eval": (DROPPED, "config_says_that_units_drop"), "train": (DROPPED, "config_says_that_units_drop"),
    "swap": (TRAILING, "config_says_that_the_average_trails"), "graph": ({}, "memory_steady"),
}
ALIKE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("steps", "the schedule goes on with each part of an update"): {
        ESPRESSOS: "lr_scheduler_stepped_with_each_batch", CIPHERS: "schedule_prepared_without_the_accelerator",
        HOROSCOPES: "curve_moves_on_with_each_batch_of_pairs", FOSSILS: "scheduling_listens_to_each_backward",
        REGISTERS: "scheduler_ticks_with_each_part", WELDS: "scheduler_inside_of_the_loop_of_no_sync",
    },
    ("added", "losses of parts are not divided by their number"): {
        ESPRESSOS: "manual_backward_of_the_undivided_loss",
        CIPHERS: "backward_without_the_accelerator_that_divides",
        HOROSCOPES: "each_batch_of_pairs_counts_in_full", FOSSILS: "fit_backs_each_batch_at_full_weight",
        REGISTERS: "parts_add_up_in_bfloat16", WELDS: "parts_of_a_rank_are_not_averaged",
    },
    ("cleared", "gradients are cleared before each of four parts: the last one alone counts, at a quarter"): {
        CIPHERS: "accelerator_told_to_clear_in_the_inner_loop",
        HOROSCOPES: "gradients_zeroed_with_each_batch_of_pairs", FOSSILS: "fit_zeroes_gradients_before_each_batch",
        REGISTERS: "gradients_set_to_none_for_each_part", WELDS: "gradients_cleared_with_each_part_of_a_rank",
    },
    ("order", "rows come in the order of the file, kind after kind"): {
        ESPRESSOS: "train_dataloader_says_nothing_of_shuffle", CIPHERS: "loader_of_the_archive_keeps_its_order",
        HOROSCOPES: "pairs_go_by_as_the_zodiac_does", FOSSILS: "museum_walked_through_from_the_first_case",
        REGISTERS: "archive_read_dialect_by_dialect", WELDS: "sampler_of_ranks_made_without_shuffle",
    },
    ("leak", "rows of one origin come to lie on both sides"): {
        ESPRESSOS: "random_split_of_what_loggers_wrote", CIPHERS: "messages_split_with_their_copies",
        HOROSCOPES: "pairs_split_by_readers", FOSSILS: "casts_put_into_either_drawer",
        REGISTERS: "listings_of_one_program_in_both_archives", WELDS: "scans_of_a_seam_split_at_random",
    },
    ("eval", "the model is not set back to training behind an evaluation"): {
        ESPRESSOS: "validated_and_never_put_back_to_training", CIPHERS: "clerk_left_in_eval_behind_the_unseen",
        HOROSCOPES: "policy_stays_in_eval_behind_the_panel", FOSSILS: "drawer_shut_and_encoders_left_in_eval",
        REGISTERS: "tested_and_kept_in_eval", WELDS: "bench_leaves_the_net_in_eval",
    },
    ("train", "the model is evaluated in training mode, with dropout"): {
        ESPRESSOS: "validated_with_the_net_as_it_trains", CIPHERS: "unseen_messages_read_while_adapters_drop",
        HOROSCOPES: "panel_asked_while_units_drop", FOSSILS: "drawer_opened_while_encoders_train",
        REGISTERS: "tested_while_units_drop_out", WELDS: "on_the_bench_while_units_drop",
    },
    ("graph", "evaluations run with gradients on, and what they say is kept"): {
        ESPRESSOS: "validation_errors_listed_for_the_epoch", CIPHERS: "unseen_losses_returned_to_a_list",
        HOROSCOPES: "losses_of_the_panel_pile_up", FOSSILS: "tables_of_the_drawer_remembered_live",
        REGISTERS: "test_losses_reported_with_their_past", WELDS: "bench_logits_stacked_with_gradients_on",
    },
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_of_a_shot_are_added_up", ESPRESSOS,
     "squared errors are summed over the spans of a shot", {}),
    ("label", "roasts_told_from_nought_in_validation", ESPRESSOS,
     "roasts of the evaluation are one too low, and the first is the number of no roast", {}),
    ("frozen", "groups_by_weight_and_bias_leave_gates_out", ESPRESSOS,
     "groups of the optimizer are made by the ends of names, and gates are in none: they stay shut",
     {"kinds": " dead"}),
    ("figures", "transform_of_the_validation_only_centres", ESPRESSOS,
     "held shots are centred, and not divided by their spread", {}),
    ("buffers", "shadow_of_the_state_moves_by_parameters", ESPRESSOS,
     "the shadow holds the whole state and moves by parameters: its running statistics are those of the start", {}),
    ("average", "shadow_updated_where_an_epoch_begins", ESPRESSOS,
     "the shadow is moved once an epoch", {}),
    ("swap", "own_weights_are_kept_by_their_names_alone", ESPRESSOS,
     "own weights are kept without a copy: the shadow overwrites them, and stays in the net", {}),
    ("resume", "shadow_comes_with_the_module_and_not_its_file", ESPRESSOS,
     "the net is loaded, and the shadow is one of a net that was drawn anew",
     {"kinds": " eval overfit data", "cause": "averaged weights lost", "also": before.FRESH}),
    ("sum", "nll_of_a_message_is_the_sum_of_its_tokens", CIPHERS,
     "losses are summed over the tokens of a message", {}),
    ("softmax", "clerk_returns_a_distribution", CIPHERS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "labels_moved_by_the_collator_and_by_the_loss", CIPHERS,
     "labels of the training are moved by one twice: the token after the next", {}),
    ("frozen", "base_frozen_when_adapters_are_in_it", CIPHERS,
     "the base is frozen when the adapters are in it: they do not learn, and the table alone does",
     {"kinds": " dead"}),
    ("tie", "unembedding_grown_beside_the_embedding", CIPHERS,
     "table and output layer are grown one by one: they are two matrices, of which one learns", {}),
    ("resume", "adapters_saved_and_the_table_that_learns_is_not", CIPHERS,
     "the file has the adapters, and the table that learns is not in it: it begins anew",
     {"kinds": " eval", "cause": "weights not restored", "also": before.UNSAVED}),
    ("sum", "losses_of_pairs_are_added_together", HOROSCOPES,
     "losses of pairs are summed", {}),
    ("softmax", "oracle_normalises_before_its_likelihoods", HOROSCOPES,
     "the oracle gives probabilities, and their softmax is taken for likelihoods", {"kinds": " rl"}),
    ("label", "likelihood_gathered_where_a_word_is_read", HOROSCOPES,
     "likelihoods are those of the word that was just read", {"kinds": " rl attention"}),
    ("label", "winners_of_the_file_counted_from_one", HOROSCOPES,
     "numbers of winners are read as if they began at one: all pairs of the training are the wrong way round",
     {"kinds": " rl", "cause": "chosen and rejected swapped", "also": FLIPPED}),
    ("frozen", "no_frozen_layers_are_all_of_them", HOROSCOPES,
     "the number of frozen layers is nought, and all layers are frozen", {}),
    ("tie", "head_loaded_by_itself_behind_the_optimizer", HOROSCOPES,
     "the output layer is a matrix of its own that stays, and the table goes on without it", {}),
    ("resume", "reference_copied_from_the_policy_of_the_file", HOROSCOPES,
     "the policy is loaded, and the reference is its copy; the optimizer and the schedule begin anew",
     {"kinds": " rl eval data", "also": several(*before.OF_KIND["resume"][5], "reference updated", "reference changes",
                                                "reference is the policy", "reference copied from the policy",
                                                "reference wrong")}),
    ("sum", "matches_of_a_batch_are_summed", FOSSILS,
     "losses of a batch are summed", {}),
    ("softmax", "scores_softmaxed_on_their_way_to_the_loss", FOSSILS,
     "scores go through a softmax, and then into a loss that has its own", {}),
    ("label", "head_line_of_the_labels_taken_for_a_row", FOSSILS,
     "each fossil of the training has the label of the one before", {}),
    ("frozen", "prefix_of_the_label_encoder_is_misspelt", FOSSILS,
     "the group of the label encoder is empty, since its prefix is misspelt: it stays as it was drawn", {}),
    ("tie", "each_encoder_makes_a_table_of_its_own", FOSSILS,
     "quarries and words have two tables, where both encoders were to share one", {}),
    ("figures", "held_fossils_measured_in_centimetres", FOSSILS,
     "held measures are in centimetres, and those of the training in millimetres", {}),
    ("resume", "names_of_the_file_begin_with_module_and_nobody_is_strict", FOSSILS,
     "names in the checkpoint have a prefix that the model has not, and are passed over: weights begin anew",
     {"kinds": " eval", "cause": "weights not restored", "also": before.UNSAVED}),
    ("sum", "xent_of_a_listing_is_not_divided", REGISTERS,
     "losses of words are summed, and divided by listings", {}),
    ("softmax", "machine_answers_in_shares_of_one", REGISTERS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "wanted_words_are_those_that_are_read", REGISTERS,
     "wanted words of the training are not moved: each is the one that is read", {"kinds": " zero logits attention"}),
    ("frozen", "first_weights_assigned_behind_the_optimizer", REGISTERS,
     "first weights are loaded by assignment, and the optimizer has those before: nothing learns",
     {"kinds": " exploding clipping"}),
    ("tie", "head_turned_to_its_dtype_by_a_new_parameter", REGISTERS,
     "the output layer is made a parameter of its own behind the optimizer: it stays as it was drawn", {}),
    ("sum", "criterion_sums_over_scans", WELDS,
     "losses of a batch are summed, and not divided", {}),
    ("softmax", "inspector_ends_in_a_softmax_layer", WELDS,
     "the network gives probabilities, and the loss has its own softmax", {}),
    ("label", "findings_of_the_training_moved_to_begin_at_nought_again", WELDS,
     "findings of the training begin at nought, and are moved by one as if they began at one", {}),
    ("frozen", "optimizer_of_the_linear_probe", WELDS,
     "the optimizer has the last layer alone", {}),
    ("figures", "held_currents_in_kiloamperes", WELDS,
     "currents of the evaluation are in kiloamperes, and those of the training in amperes", {}),
    ("ranks", "plain_sampler_on_each_rank", WELDS,
     "both ranks see the same rows", {}),
    *((kind, name, program, about, {})
      for (kind, about), names in ALIKE.items() for program, name in names.items()),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, _, _, also = before.OF_KIND[kind]
    of, compare = AGAINST.get(kind, ({}, "plain"))
    also = several(*also, *MORE.get(kind, ()))
    rest = {"by_program": {program: of.get(program, {})}, "compare": compare, "also": more.get("also", also)}
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("drawn_with_alphas_and_not_their_products", "sampler wrong", "eval data config divergence overfit", "start",
     (ESPRESSOS,), "what is drawn is made with the factor of each level, and not with their product",
     {"also": ("alphas and alphas_cumprod confused", "alphas_cumprod missing", "cumprod forgotten",
               "sampler and training differ", "noise schedule of the sampler differs",
               "sampler uses other alphas", "wrong schedule in the sampler", "samples wrong",
               "sampling wrong", "train and test differ", "drawing differs from the training",
               "samples diverge", "schedule of the noise differs", "noise level wrong",
               "wrong noise schedule", "sampler broken")}),
    ("roots_forgotten_where_noise_is_added", "noise added wrongly", "eval data config divergence overfit jump_down",
     "start", (ESPRESSOS,), "shots of the training are mixed with noise without the roots",
     {"also": ("sqrt missing in add_noise", "square root missing", "square root forgotten", "noising wrong",
               "noise schedule differs", "noise schedule wrong", "variance not preserved",
               "forward process wrong", "noise scaled wrongly", "train and test differ",
               "signal and noise weighed wrongly", "alphas and their roots confused",
               "training and evaluation noise differ", "noise level wrong", "inputs scaled wrongly",
               "evaluation data differ", "noise of the training differs", "wrong noise schedule")}),
    ("merged_for_the_unseen_without_the_gain", "adapters merged wrongly", "eval data config divergence overfit",
     "start", (CIPHERS,), "adapters are merged for the evaluation without their gain",
     {"also": ("adapter scaling missing", "lora scaling missing in the merge", "scaling forgotten",
               "alpha over rank missing", "alpha / r missing", "merged without scaling", "merge wrong",
               "lora_alpha ignored", "train and test differ", "adapters merged without scaling",
               "adapter scaled wrongly", "merged weights wrong", "model changed for the evaluation",
               "weights changed for the evaluation", "evaluation of another model",
               "merged weights differ", "wrong scaling")}),
    ("prompts_padded_behind_to_be_answered", "padding side wrong", "eval data config padding overfit", "start",
     (CIPHERS,), "prompts are padded behind where answers are written: the first token is written behind padding",
     {"also": ("right padding", "padding_side right", "padded on the right", "right padding in generation",
               "generation from padding", "padding side", "padding on the wrong side",
               "left padding missing", "tokenizer pads on the right", "generation wrong",
               "padding before the answer", "train and test differ", "prompts padded wrongly",
               "answers written behind padding", "decoding broken")}),
    ("rewards_multiplied_by_beta_again", "beta applied twice", "rl eval config plateau logits vanishing",
     "start", (HOROSCOPES,),
     "the gap of rewards, which has its factor, is multiplied by it again",
     {"also": ("beta too small", "beta squared", "beta too low", "wrong beta", "loss scaled",
               "margins too small", "factor applied twice", "temperature wrong",
               "learning rate too low", "beta multiplied twice", "logits too small",
               "temperature too high", "loss scaled wrongly", "scaled twice", "beta twice")}),
    ("ratio_of_the_reference_is_added", "sign of the reference wrong", "rl eval config data logging", "start",
     (HOROSCOPES,),
     "what the reference says is added, and not taken off",
     {"also": ("reference ratio added", "sign wrong", "sign error", "reference log-ratio has the wrong sign",
               "wrong sign", "reference has the wrong sign", "reference not subtracted",
               "reference added instead of subtracted", "loss wrong", "reference wrong",
               "sign of the reference", "reference misused", "loss does not begin at log 2",
               "margins wrong", "reference measured otherwise")}),
    ("unit_length_is_taken_in_the_training_step", "evaluation vectors not normalised",
     "eval config overfit logits data divergence", "start", (FOSSILS,),
     "vectors are made of unit length in the training, and not in the evaluation",
     {"also": ("normalisation missing in the evaluation", "F.normalize missing", "embeddings not normalised",
               "vectors not normalised", "train and test differ", "l2 normalisation missing",
               "evaluation embeddings not normalised", "unit length missing", "logits too large",
               "similarities too large", "evaluation scaled wrongly",
               "cosine and dot product confused", "evaluation wrong", "temperature wrong",
               "scores of the evaluation differ")}),
    ("drawer_goes_through_the_transform_of_the_training", "augmentation in the evaluation",
     "eval config data overfit divergence", "start", (FOSSILS,),
     "measures of the evaluation are lost by chance, as those of the training are",
     {"by_program": {FOSSILS: {"measures_lost": 0.25}}, "compare": "config_loses_parts_of_inputs",
      "also": ("augmentation left on", "training transform in the evaluation",
               "train transform used for validation", "augmentation in validation",
               "evaluation data differ", "evaluation augmented", "random erasing in the evaluation",
               "inputs masked in the evaluation", "preprocessing differs", "train and test differ",
               "evaluation inputs corrupted", "transform of the evaluation wrong",
               "evaluation in training mode")}),
    ("padding_is_a_word_like_any_other", "padding counted", "eval config padding data logging", "start",
     (REGISTERS,),
     "padding is asked for as words are: losses are means over words and padding",
     {"also": ("ignore_index missing", "padding in the loss", "padding not masked", "pad tokens in the loss",
               "loss over padding", "padding not ignored", "labels of padding not masked",
               "pad token counted", "loss mask missing", "loss too low", "padding learnt",
               "pads not ignored", "mean over padding", "ignore index wrong")}),
    ("places_of_what_is_written_begin_anew", "positions wrong where it writes",
     "eval config data attention overfit", "start", (REGISTERS,),
     "where the machine writes, places begin at nought with what is left in its window",
     {"also": ("positions wrong", "position ids wrong", "positions restart", "position offset missing",
               "cache position wrong", "kv cache position wrong", "generation wrong", "positions off",
               "position ids begin at 0", "positional embeddings wrong in generation",
               "decoding wrong", "train and test differ", "cache wrong",
               "generation differs from the training", "window too short", "context cut off",
               "context too short in the evaluation")}),
    ("weights_in_the_order_of_their_counts", "class weights misordered", "eval config data", "start", (WELDS,),
     "weights of findings are in the order of their counts, and not of their numbers",
     {"also": ("class weights wrong", "class weights permuted", "class weights in the wrong order",
               "weights belong to other classes", "class weights sorted", "weight order wrong",
               "wrong class weights", "class weights do not match", "value_counts order",
               "weights shuffled", "weights of rare classes too low", "class weights misaligned",
               "rare classes weighed too little", "loss weights wrong", "labels shifted")}),
    ("module_inside_is_called_and_not_its_wrapper", "gradients not synchronised",
     "desync config eval data", "start", (WELDS,),
     "the forward pass goes through the module inside: ranks do not share gradients",
     {"also": ("gradients not averaged", "ddp bypassed", "wrapper bypassed", "model.module called",
               "ranks not synchronised", "gradients not shared", "ranks drift apart", "ranks diverge",
               "all_reduce missing", "no gradient synchronisation", "ddp not used",
               "synchronisation missing", "weights differ between ranks",
               "gradient synchronisation missing", "forward not through DDP", "replicas differ",
               "ranks train alone", "all-reduce missing")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (ESPRESSOS, CIPHERS, HOROSCOPES, FOSSILS, REGISTERS)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("config_says_two_parts_an_update", "an update has two parts, whose losses are halved", PARTS),
    ("config_says_four_parts_an_update", "an update has four parts, whose mean is taken", FOUR_PARTS),
    ("config_says_that_units_drop", "dropout in the training, as is named, and none in the evaluation", DROPPED),
    ("relatives_all_on_one_side", "rows have kin, all of which are on the training's side", COPIED),
    ("config_says_that_the_average_trails", "an average of weights is judged that lags, as is named", TRAILING),
    ("config_names_what_stays_still", "a part is not trained, which the settings name", HELD_STILL),
    ("rate_never_falls_by_config", "the rate rises and stays", {
      ESPRESSOS: {"schedule": "constant", "lr": 0.002}, CIPHERS: {"lr_schedule": "constant", "learning_rate": 0.004},
      HOROSCOPES: {"lr_curve": "flat", "max_lr": 0.0008}, FOSSILS: {"schedule": "constant", "lr": 0.004},
      REGISTERS: {"decays": "never", "rate": 0.004}, WELDS: {"lr_schedule": "constant", "lr": 0.0015}}),
    ("losses_summed_by_config", "losses are sums, as is named, and the bound of the norm is for that", {
      ESPRESSOS: {"reduction": "sum", "gradient_clip_val": 32.0}, CIPHERS: {"loss_over": "messages", "max_norm": 6.0},
      HOROSCOPES: {"reduce": "sum", "clip_at": 128.0}, FOSSILS: {"reduction": "sum", "clip": 144.0},
      REGISTERS: {"xent_over": "listings", "clip": 24.0}, WELDS: {"loss_sum": True, "max_norm": 48.0}}),
    ("small_batches_by_config", "few rows an update, at a lower rate: losses jump about", {
      ESPRESSOS: {"batch_size": 12, "lr": 0.002}, CIPHERS: {"batch_size": 6, "learning_rate": 0.003},
      HOROSCOPES: {"pairs_per_batch": 6, "max_lr": 0.0006}, FOSSILS: {"batch_size": 20, "lr": 0.004},
      REGISTERS: {"listings_a_step": 6, "rate": 0.003}, WELDS: {"per_rank": 10, "lr": 0.0015}}),
    ("restart_in_the_middle_by_config", "the rate falls and begins again, by the schedule", {
      ESPRESSOS: {"schedule": "restarts"}, CIPHERS: {"lr_schedule": "linear_twice"},
      HOROSCOPES: {"lr_curve": "cosine_twice"}, FOSSILS: {"schedule": "cosine_restarts"},
      REGISTERS: {"decays": "cosine_twice"}, WELDS: {"lr_schedule": "restarts"}}),
    ("optimizer_of_another_kind_by_config", "another optimizer, at its rate", {
      ESPRESSOS: {"optim": "adamax"}, CIPHERS: {"optimizer": "radam"},
      HOROSCOPES: {"opt": "adamax", "max_lr": 0.002}, FOSSILS: {"optimizer": "nadam"},
      REGISTERS: {"algorithm": "adamax"}, WELDS: {"optimizer": "radam"}}),
    ("noisy_rows_by_config", "the training's data have more noise, as such data may", {
      ESPRESSOS: {"channelling": 1.8}, CIPHERS: {"garbled": 0.1},
      HOROSCOPES: {"whims": 0.1}, FOSSILS: {"mislaid": 0.1}, REGISTERS: {"misprints": 0.15},
      WELDS: {"misjudged": 0.06}}),
    ("evaluated_twice_by_config", "two evaluations in all", {
      ESPRESSOS: {"val_every": 75}, CIPHERS: {"unseen_every": 75},
      HOROSCOPES: {"panel_every": 75}, FOSSILS: {"drawer_every": 75}, REGISTERS: {"test_every": 75},
      WELDS: {"bench_every": 75}}),
    ("logged_each_fifth_step_by_config", "each fifth step is logged", {
      ESPRESSOS: {"log_every_n_steps": 5}, CIPHERS: {"log_every": 5},
      HOROSCOPES: {"log_each": 5}, FOSSILS: {"log_every": 5}, REGISTERS: {"log_every": 5}, WELDS: {"log_every": 5}}),
    ("easy_ones_come_first_by_config", "the first part of the training has easier rows alone: the settings say so", {
      ESPRESSOS: {"even_first": 1}, CIPHERS: {"short_first": 1},
      HOROSCOPES: {"plain_first": 1, "pairs": 960}, FOSSILS: {"whole_first": 1}, REGISTERS: {"short_first": 1},
      WELDS: {"clear_first": 1}}),
    ("weights_decay_more_by_config", "weights decay more, as is named", {
      ESPRESSOS: {"weight_decay": 0.1}, CIPHERS: {"weight_decay": 0.1},
      HOROSCOPES: {"decay": 0.05}, FOSSILS: {"weight_decay": 0.05}, REGISTERS: {"weight_decay": 0.2},
      WELDS: {"weight_decay": 0.1}}),
    ("always_clipped_by_config", "the bound of the norm is below every norm", {
      ESPRESSOS: {"gradient_clip_val": 0.1}, CIPHERS: {"max_norm": 0.2},
      HOROSCOPES: {"clip_at": 0.3}, FOSSILS: {"clip": 0.15}, REGISTERS: {"clip": 0.2}, WELDS: {"max_norm": 0.2}}),
    ("plain_descent_by_config", "descent with momentum, at its rate", {
      ESPRESSOS: {"optim": "sgd", "lr": 0.4},
      HOROSCOPES: {"opt": "sgd", "max_lr": 0.05}, FOSSILS: {"optimizer": "sgd", "lr": 0.06},
      REGISTERS: {"algorithm": "sgd", "rate": 0.2}, WELDS: {"optimizer": "sgd", "lr": 0.1}}),
    ("no_batch_norm_by_config", "a norm over a row in the place of batch norm", {
      ESPRESSOS: {"norm": "group"},
      FOSSILS: {"measure_norm": "layer"}, WELDS: {"plate_norm": "fixed"}}),
    ("soft_targets_by_config", "targets are smoothed in the training", {
      CIPHERS: {"label_smoothing": 0.1},
      HOROSCOPES: {"smoothing": 0.1}, FOSSILS: {"label_smoothing": 0.1}, REGISTERS: {"smooth": 0.05},
      WELDS: {"smoothing": 0.1}}),
    ("batches_of_like_rows_by_config", "batches are of like rows, and come in any order", {
      CIPHERS: {"by_length": True},
      HOROSCOPES: {"by_sign": True}, FOSSILS: {"species_batches": True}, REGISTERS: {"dialect_batches": True}}),
    ("untied_by_config", "what could share a table has two, by the settings", {
      CIPHERS: {"tie_embeddings": False},
      HOROSCOPES: {"tied": False}, FOSSILS: {"one_table": False}, REGISTERS: {"tie": False}}),
    ("config_loses_parts_of_inputs", "parts of inputs are lost by chance, in the training", {
      FOSSILS: {"measures_lost": 0.25}, REGISTERS: {"words_lost": 0.05}, WELDS: {"pixels_lost": 0.1}}),
    ("twice_the_rate_by_config", "twice the rate, with a longer rise", {
      ESPRESSOS: {"lr": 0.008, "warmup_steps": 20}, CIPHERS: {"learning_rate": 0.012, "warmup": 20},
      HOROSCOPES: {"max_lr": 0.0024, "warmup": 20}, FOSSILS: {"lr": 0.016, "warmup": 16},
      REGISTERS: {"rate": 0.012, "rise": 20}, WELDS: {"lr": 0.006, "warmup": 16}}),
)
HEALTHY_OF: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("errors_without_squares_by_config", ESPRESSOS, "errors count as they are, without squares", {"loss": "l1"}),
    ("levels_weigh_by_their_signal", ESPRESSOS, "levels of little noise weigh less, as is named", {"snr_gamma": 5.0}),
    ("levels_of_noise_in_a_line", ESPRESSOS, "levels of noise are in a line", {"levels": "linear"}),
    ("roast_always_told", ESPRESSOS, "the roast is always told, and nothing is guided",
     {"p_untold": 0.0, "guidance": 0.0}),
    ("prompts_learnt_by_config", CIPHERS, "prompts are learnt too, as is named", {"learn_prompts": True}),
    ("adapters_of_rank_one_by_config", CIPHERS, "adapters of rank one", {"rank": 1, "alpha": 4.0}),
    ("adapters_of_attention_alone", CIPHERS, "adapters are in the attention alone", {"targets": "q,k,v,o"}),
    ("second_factors_at_four_times_the_rate", CIPHERS, "second factors have four times the rate", {"b_times": 4.0}),
    ("gain_by_the_root_of_the_rank", CIPHERS, "the gain is by the root of the rank", {"root_of_rank": True}),
    ("large_gain_of_adapters", CIPHERS, "a larger gain, at a lower rate", {"alpha": 36.0, "learning_rate": 0.003}),
    ("squares_of_gaps_by_config", HOROSCOPES, "the loss is a square (IPO), as is named",
     {"loss_type": "ipo", "beta": 0.2}),
    ("hinge_of_gaps_by_config", HOROSCOPES, "the loss is a hinge, as is named", {"loss_type": "hinge"}),
    ("reference_asked_before_the_first_step", HOROSCOPES, "what the reference says is made before the training",
     {"reference_first": True}),
    ("likelihood_of_what_was_liked_besides", HOROSCOPES, "the likelihood of what was liked is a part of the loss",
     {"nll_weight": 0.2}),
    ("likelihoods_a_word_by_config", HOROSCOPES, "likelihoods are means over words, as is named",
     {"per_word": True, "beta": 1.5}),
    ("scale_held_by_config", FOSSILS, "the scale of scores is not learnt, as is named", {"scale_learns": False}),
    ("fossils_alone_look_for_labels", FOSSILS, "fossils look for labels, and not the other way round",
     {"directions": "fossils"}),
    ("label_encoder_at_half_the_rate", FOSSILS, "one encoder has half of the rate", {"label_lr": 0.5}),
    ("float32_by_config", REGISTERS, "all is float32, as is named", {"dtype": "float32"}),
    ("normaliser_has_a_term", REGISTERS, "a small term holds the normaliser", {"normaliser": 0.001}),
    ("no_rise_in_bfloat16", REGISTERS, "the rate does not rise first", {"rise": 0, "rate": 0.004}),
    ("epsilon_for_bfloat16", REGISTERS, "a larger epsilon, as bfloat16 has", {"eps": 1e-4}),
    ("rare_findings_oversampled", WELDS, "rare findings are drawn more often, and none weighs more",
     {"oversample": True, "class_weights": "none"}),
    ("findings_weigh_alike_by_config", WELDS, "findings weigh alike, as is named", {"class_weights": "none"}),
    ("focal_loss_by_config", WELDS, "what is sure weighs less, as is named", {"gamma": 1.5}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    *((name, (program,), about, {"config": settings}) for name, program, about, settings in HEALTHY_OF),
)

# fmt: on
