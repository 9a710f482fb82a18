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

from halves import ninth
from halves import thirtysecond as before
from halves.ninth import Row, Settings
from halves.thirtieth import named
from halves.twentysixth import several

PROGRAMS = ("espressos", "ciphers")
ESPRESSOS, CIPHERS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "drawn_with_alphas_and_not_their_products", "roots_forgotten_where_noise_is_added",
    "merged_for_the_unseen_without_the_gain", "prompts_padded_behind_to_be_answered",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    ESPRESSOS: {"batch_size": 16, "accumulate_grad_batches": 2}, CIPHERS: {"batch_size": 8, "accumulation": 2},
}
FOUR_PARTS: Settings = {
    ESPRESSOS: {"batch_size": 8, "accumulate_grad_batches": 4, "optim": "sgd", "lr": 0.1, "gradient_clip_val": 10.0},
    CIPHERS: {"batch_size": 4, "accumulation": 4, "optimizer": "sgd", "learning_rate": 0.06, "max_norm": 100.0},
}
DROPPED: Settings = {
    ESPRESSOS: {"p_drop": 0.3}, CIPHERS: {"adapter_dropout": 0.3},
}
COPIED: Settings = {
    ESPRESSOS: {"loggers": 24, "shots": 600}, CIPHERS: {"copies": 9},
}
TRAILING: Settings = {
    ESPRESSOS: {"shadow_decay": 0.975},
}
HELD_STILL: Settings = {
    ESPRESSOS: {"freeze": "blocks.0"}, CIPHERS: {"freeze": "layers.0"},
}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

MORE: Mapping[str, tuple[str, ...]] = {
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
    },
    ("added", "losses of parts are not divided by their number"): {
        ESPRESSOS: "manual_backward_of_the_undivided_loss",
        CIPHERS: "backward_without_the_accelerator_that_divides",
    },
    ("cleared", "gradients are cleared before each of four parts: the last one alone counts, at a quarter"): {
        CIPHERS: "accelerator_told_to_clear_in_the_inner_loop",
    },
    ("resume", "weights are loaded; the optimizer and the schedule begin anew"): {
        ESPRESSOS: "optimizers_configured_behind_the_checkpoint",
    },
    ("order", "rows come in the order of the file, kind after kind"): {
        ESPRESSOS: "train_dataloader_says_nothing_of_shuffle", CIPHERS: "loader_of_the_archive_keeps_its_order",
    },
    ("leak", "rows of one origin come to lie on both sides"): {
        ESPRESSOS: "random_split_of_what_loggers_wrote", CIPHERS: "messages_split_with_their_copies",
    },
    ("eval", "the model is not set back to training behind an evaluation"): {
        ESPRESSOS: "validated_and_never_put_back_to_training", CIPHERS: "clerk_left_in_eval_behind_the_unseen",
    },
    ("train", "the model is evaluated in training mode, with dropout"): {
        ESPRESSOS: "validated_with_the_net_as_it_trains", CIPHERS: "unseen_messages_read_while_adapters_drop",
    },
    ("graph", "evaluations run with gradients on, and what they say is kept"): {
        ESPRESSOS: "validation_errors_listed_for_the_epoch", CIPHERS: "unseen_losses_returned_to_a_list",
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
     {"cause": "weights not restored", "also": before.UNSAVED}),
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
     (ESPRESSOS,), "what is drawn is made with the factor of each level, and not with their product", {"also": ()}),
    ("roots_forgotten_where_noise_is_added", "noise added wrongly", "eval data config divergence overfit jump_down",
     "start", (ESPRESSOS,), "shots of the training are mixed with noise without the roots", {"also": ()}),
    ("merged_for_the_unseen_without_the_gain", "adapters merged wrongly", "eval data config divergence overfit",
     "start", (CIPHERS,), "adapters are merged for the evaluation without their gain", {"also": ()}),
    ("prompts_padded_behind_to_be_answered", "padding side wrong", "eval data config padding overfit", "start",
     (CIPHERS,), "prompts are padded behind where answers are written: the first token is written behind padding",
     {"also": ()}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (ESPRESSOS, CIPHERS)
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
      ESPRESSOS: {"schedule": "constant", "lr": 0.002}, CIPHERS: {"lr_schedule": "constant", "learning_rate": 0.004}}),
    ("losses_summed_by_config", "losses are sums, as is named, and the bound of the norm is for that", {
      ESPRESSOS: {"reduction": "sum", "gradient_clip_val": 32.0}, CIPHERS: {"loss_over": "messages", "max_norm": 6.0}}),
    ("small_batches_by_config", "few rows an update, at a lower rate: losses jump about", {
      ESPRESSOS: {"batch_size": 12, "lr": 0.002}, CIPHERS: {"batch_size": 6, "learning_rate": 0.003}}),
    ("restart_in_the_middle_by_config", "the rate falls and begins again, by the schedule", {
      ESPRESSOS: {"schedule": "restarts"}, CIPHERS: {"lr_schedule": "linear_twice"}}),
    ("optimizer_of_another_kind_by_config", "another optimizer, at its rate", {
      ESPRESSOS: {"optim": "adamax"}, CIPHERS: {"optimizer": "radam"}}),
    ("noisy_rows_by_config", "the training's data have more noise, as such data may", {
      ESPRESSOS: {"channelling": 1.8}, CIPHERS: {"garbled": 0.1}}),
    ("evaluated_twice_by_config", "two evaluations in all", {
      ESPRESSOS: {"val_every": 75}, CIPHERS: {"unseen_every": 75}}),
    ("logged_each_fifth_step_by_config", "each fifth step is logged", {
      ESPRESSOS: {"log_every_n_steps": 5}, CIPHERS: {"log_every": 5}}),
    ("easy_ones_come_first_by_config", "the first part of the training has easier rows alone: the settings say so", {
      ESPRESSOS: {"even_first": 1}, CIPHERS: {"short_first": 1}}),
    ("weights_decay_more_by_config", "weights decay more, as is named", {
      ESPRESSOS: {"weight_decay": 0.1}, CIPHERS: {"weight_decay": 0.1}}),
    ("always_clipped_by_config", "the bound of the norm is below every norm", {
      ESPRESSOS: {"gradient_clip_val": 0.1}, CIPHERS: {"max_norm": 0.2}}),
    ("plain_descent_by_config", "descent with momentum, at its rate", {
      ESPRESSOS: {"optim": "sgd", "lr": 0.1}}),
    ("no_batch_norm_by_config", "a norm over a row in the place of batch norm", {
      ESPRESSOS: {"norm": "group"}}),
    ("stairs_by_config", "the rate falls at two steps", {
      ESPRESSOS: {"schedule": "steps"}}),
    ("soft_targets_by_config", "targets are smoothed in the training", {
      CIPHERS: {"label_smoothing": 0.1}}),
    ("batches_of_like_rows_by_config", "batches are of like rows, and come in any order", {
      CIPHERS: {"by_length": True}}),
    ("untied_by_config", "what could share a table has two, by the settings", {
      CIPHERS: {"tie_embeddings": False}}),
    ("twice_the_rate_by_config", "twice the rate, with a longer rise", {
      ESPRESSOS: {"lr": 0.008, "warmup_steps": 20}, CIPHERS: {"learning_rate": 0.012, "warmup": 20}}),
)
HEALTHY_OF: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("errors_without_squares_by_config", ESPRESSOS, "errors count as they are, without squares", {"loss": "l1"}),
    ("levels_weigh_by_their_signal", ESPRESSOS, "levels of little noise weigh less, as is named", {"snr_gamma": 5.0}),
    ("levels_in_a_line", ESPRESSOS, "levels of noise are in a line", {"levels": "linear"}),
    ("roast_always_told", ESPRESSOS, "the roast is always told, and nothing is guided",
     {"p_untold": 0.0, "guidance": 0.0}),
    ("one_block_that_is_wider", ESPRESSOS, "one block, with more channels", {"blocks": 1, "width": 48}),
    ("no_rise_of_the_rate", ESPRESSOS, "the rate does not rise first", {"warmup_steps": 0, "lr": 0.002}),
    ("prompts_learnt_by_config", CIPHERS, "prompts are learnt too, as is named", {"learn_prompts": True}),
    ("rank_of_one", CIPHERS, "adapters of rank one", {"rank": 1, "alpha": 4.0}),
    ("adapters_of_attention_alone", CIPHERS, "adapters are in the attention alone", {"targets": "q,k,v,o"}),
    ("second_factors_at_four_times_the_rate", CIPHERS, "second factors have four times the rate", {"b_times": 4.0}),
    ("rate_by_the_root_of_the_step", CIPHERS, "the rate falls by the root of the step",
     {"lr_schedule": "root", "learning_rate": 0.008}),
    ("gain_by_the_root_of_the_rank", CIPHERS, "the gain is by the root of the rank", {"root_of_rank": True}),
    ("large_gain_of_adapters", CIPHERS, "a larger gain, at a lower rate", {"alpha": 36.0, "learning_rate": 0.003}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    *((name, (program,), about, {"config": settings}) for name, program, about, settings in HEALTHY_OF),
)

# fmt: on
