"""The thirty-sixth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the thirty-fifth half: ripples of a pond out of predicted noise, with an average that is
put into the net and taken out; adapters on a signaller that learns another code; preferences for outfits, in a trainer
with hooks; two towers for lichens and a botanist's notes; a language model in float16 with a scaler over regattas; rare
kinds of avalanches on two workers, sharded; each as another ordinary engineer writes it. Most faults are of the fifteen
kinds that the fourteenth half has; those in `REPORTED` are others that people report of such trainings. Who wrote them
had read no rule, and did not look at what the doctor says. Names and kinds are taken over from the thirty-fifth half,
and every kind that would be right is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import thirtyfifth as before
from halves import thirtyfourth, thirtysecond, thirtythird
from halves.ninth import Row, Settings
from halves.twentysixth import several

PROGRAMS = ("ripples", "semaphores", "wardrobes", "lichens", "regattas", "avalanches")
RIPPLES, SEMAPHORES, WARDROBES, LICHENS, REGATTAS, AVALANCHES = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "sampler_is_made_with_levels_of_its_own", "levels_are_walked_from_the_clean_end",
    "adapters_scaled_by_alpha_undivided", "prompt_masked_by_the_length_of_the_answer",
    "held_pairs_are_put_together_the_other_way", "reference_free_is_what_is_meant_by_none",
    "unit_length_along_the_rows", "notes_read_to_their_sixth_word",
    "clipped_ahead_of_unscale", "harbour_divides_by_every_place_of_a_row",
    "kinds_weigh_by_their_share", "patrol_meets_each_kind_as_often",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    RIPPLES: {"bs": 24, "micro": 2}, SEMAPHORES: {"batch": 8, "grad_acc": 2},
    WARDROBES: {"train_batch_size": 8, "gradient_accumulation": 2}, LICHENS: {"rows": 32, "rows_of_an_update": 2},
    REGATTAS: {"batch_rows": 10, "micro_batches": 2}, AVALANCHES: {"rows_per_rank": 12, "micro": 2},
}
FOUR_PARTS: Settings = {
    RIPPLES: {"bs": 12, "micro": 4, "optim": "sgd", "base_lr": 0.35, "max_gnorm": 100.0},
    SEMAPHORES: {"batch": 4, "grad_acc": 4, "optimiser": "sgd", "lr": 0.03, "max_norm": 100.0},
    WARDROBES: {"train_batch_size": 4, "gradient_accumulation": 4, "optim": "sgd", "learning_rate": 0.05,
                "max_grad_norm": 100.0},
    LICHENS: {"rows": 24, "rows_of_an_update": 4, "method": "sgd", "rate": 0.12, "norm_at_most": 100.0},
    REGATTAS: {"batch_rows": 5, "micro_batches": 4, "opt": "sgd", "max_lr": 0.3, "clip": 100.0},
    AVALANCHES: {"rows_per_rank": 8, "micro": 4, "optim": "sgd", "peak": 0.15, "norm_bound": 100.0},
}
DROPPED: Settings = {
    RIPPLES: {"dropout": 0.4, "stones": 240}, SEMAPHORES: {"lora_dropout": 0.3, "messages": 240},
    WARDROBES: {"dropout": 0.2, "pairs": 240}, LICHENS: {"drop": 0.3, "lichens": 480},
    REGATTAS: {"p_drop": 0.2, "regattas": 480}, AVALANCHES: {"dropout": 0.4, "profiles": 480},
}
COPIED: Settings = {
    RIPPLES: {"rods": 32}, SEMAPHORES: {"sendings": 10}, WARDROBES: {"tailors": 16, "pairs": 960},
    LICHENS: {"pieces": 8, "lichens": 1920}, REGATTAS: {"editions": 6, "regattas": 1440},
    AVALANCHES: {"per_slope": 8},
}
TRAILING: Settings = {
    RIPPLES: {"ema_decay": 0.975},
}
HELD_STILL: Settings = {
    RIPPLES: {"freeze": "layers.0"}, SEMAPHORES: {"frozen": "blocks.0"}, WARDROBES: {"frozen_layers": 1},
    LICHENS: {"still": "notes.score"}, REGATTAS: {"keep_fixed": "pos"}, AVALANCHES: {"held_part": "stem"},
}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

CAUSES: Mapping[str, tuple[str, ...]] = {
    "sum": ("loss summed over places", "loss summed over profiles", "loss summed over lichens"),
    "label": ("bucketize with right=True", "bins off by one", "conditions of the training are one too high",
              "classes rotated", "class ids modulo the classes", "mask of the answer one too long", "index off by one",
              "answer mask begins one late", "first token of the answer not counted", "notes of the next row",
              "targets two words on", "completion mask one late", "labels shifted by collate and by the loss"),
    "frozen": ("blocks in no parameter group", "parameter groups by name miss the blocks", "group names do not match",
               "target_modules match nothing", "no adapters", "adapters never put in", "no module is adapted",
               "empty prefix freezes all", "startswith of an empty string", "notes tower frozen",
               "policy frozen with the reference", "requires_grad_(False) before the copy", "stack rebuilt",
               "layers replaced after the optimizer was made", "optimizer has the head and the norm alone"),
    "tie": ("from_pretrained makes a new table", "head keeps the old table", "table of the notes is a copy",
            "shared table copied", "projection is a copy"),
    "order": ("stone after stone", "ship after ship", "occasion after occasion", "sheet after sheet",
              "wind after wind", "DataLoader without shuffle", "shuffle left at its default"),
    "leak": ("rods on both sides", "sendings on both sides", "tailors on both sides", "pieces on both sides",
             "editions on both sides", "profiles of a slope on both sides"),
    "figures": ("mean and std swapped", "std_mean unpacked in the wrong order", "log10 for log", "log1p and log10",
                "logarithm to another base", "feet and metres confused", "metres and feet confused"),
    "average": ("average updated out of place", "average bound to a local name", "in-place update missing"),
    "swap": ("early return before the restore", "restore never reached", "own weights never put back"),
    "ranks": ("same half on both ranks", "shard begins at 0 on all ranks", "half of the data is never seen"),
}

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

AGAINST: Mapping[str, tuple[Settings, str]] = {
    "leak": (COPIED, "kin_train_together_by_design"), "steps": (PARTS, "two_parts_an_update_by_design"),
    "added": (FOUR_PARTS, "four_parts_an_update_by_design"),
    "cleared": (FOUR_PARTS, "four_parts_an_update_by_design"),
    "train": (DROPPED, "units_drop_by_design"),
    "swap": (TRAILING, "average_trails_by_design"), "graph": ({}, "memory_steady"),
}
FOLLOWS: Mapping[str, str] = {
    **before.FOLLOWS, "added": before.FOLLOWS["added"] + " frozen", "resume": " eval plateau", "ranks": " eval overfit "
    "config",
}
"""Kinds of what follows from a fault in these programs, beside those of its kind."""
BESIDES: Mapping[str, str] = {
    "matrices_grouped_by_a_name_of_another_net": " exploding clipping learning_rate eval",
    "stack_built_anew_behind_its_parameters": " exploding clipping loss_scale epsilon learning_rate eval logging",
    "projection_clones_the_table_it_should_share": " clipping loss_scale epsilon learning_rate vanishing not_learning",
    "towers_laid_out_again_when_they_were_read": " data",
}
"""Kinds of what follows in one program: gradients that no optimizer clears, or no scaler divides."""
ALIKE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("steps", "the schedule goes on with each part of an update"): {
        RIPPLES: "rate_falls_with_each_micro_batch", SEMAPHORES: "lr_scheduler_moved_by_each_micro_step",
        WARDROBES: "scheduler_is_stepped_in_the_training_step", LICHENS: "plan_goes_on_behind_every_lot",
        REGATTAS: "lr_callback_waits_for_micro_batches", AVALANCHES: "schedule_advances_with_every_part",
    },
    ("added", "losses of parts are not divided by their number"): {
        RIPPLES: "micro_losses_go_back_in_full", SEMAPHORES: "micro_steps_are_summed_up",
        WARDROBES: "accumulation_is_divided_nowhere", LICHENS: "lots_of_an_update_are_all_whole",
        REGATTAS: "micro_batches_are_scaled_and_not_divided", AVALANCHES: "parts_are_added_on_every_shard",
    },
    ("cleared", "gradients are cleared before each of four parts: the last one alone counts, at a quarter"): {
        RIPPLES: "gradients_set_back_where_a_micro_batch_begins",
        SEMAPHORES: "zero_grad_at_the_head_of_each_micro_step",
        WARDROBES: "training_step_clears_before_it_goes_back", LICHENS: "gradients_wiped_off_before_every_lot",
        REGATTAS: "each_micro_batch_starts_with_zero_grad", AVALANCHES: "shards_lose_their_gradients_before_each_part",
    },
    ("order", "rows come in the order of the file, kind after kind"): {
        RIPPLES: "log_of_the_pond_read_from_the_lightest_on", SEMAPHORES: "loader_of_the_fleet_made_with_its_defaults",
        WARDROBES: "pairs_are_sampled_one_occasion_after_another", LICHENS: "sheets_are_turned_over_one_by_one",
        REGATTAS: "chronicle_is_dealt_wind_after_wind", AVALANCHES: "halves_of_the_file_read_without_mixing",
    },
    ("leak", "rows of one origin come to lie on both sides"): {
        RIPPLES: "rods_of_a_stone_dealt_to_both_sides", SEMAPHORES: "sendings_of_a_message_split_by_chance",
        WARDROBES: "tailors_of_a_pair_judge_on_both_sides", LICHENS: "pieces_of_a_lichen_laid_on_both_sides",
        REGATTAS: "editions_of_a_regatta_in_chronicle_and_harbour",
        AVALANCHES: "profiles_of_a_slope_on_piste_and_patrol",
    },
    ("train", "the model is evaluated in training mode, with dropout"): {
        RIPPLES: "pond_is_checked_while_units_drop", SEMAPHORES: "fleet_is_asked_with_adapters_that_drop",
        WARDROBES: "fitted_by_a_policy_in_training_mode", LICHENS: "crag_is_climbed_in_training",
        REGATTAS: "harbour_is_asked_with_dropout_on", AVALANCHES: "patrol_goes_out_in_training_mode",
    },
    ("graph", "evaluations run with gradients on, and what they say is kept"): {
        RIPPLES: "checks_of_the_pond_keep_their_history", SEMAPHORES: "losses_of_the_fleet_are_kept_alive",
        WARDROBES: "fittings_are_collected_with_their_graph", LICHENS: "tables_of_the_crag_hold_on_to_their_graph",
        REGATTAS: "harbour_logs_hold_their_graphs", AVALANCHES: "patrol_files_what_it_said_with_gradients",
    },
    ("resume", "weights are loaded; the optimizer and the schedule begin anew"): {
        RIPPLES: "optimizer_is_built_once_more_behind_its_load", SEMAPHORES: "recipe_resumed_from_the_model_alone",
    },
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_of_all_places_summed", RIPPLES, "squared errors are summed over the places of a row", {}),
    ("label", "stones_of_the_training_bucketed_to_the_right", RIPPLES,
     "stones of the training are put into bins to the right: each has the row of the next one", {}),
    ("frozen", "matrices_grouped_by_a_name_of_another_net", RIPPLES,
     "matrices are grouped by names that the layers have not: the optimizer has none of theirs", {}),
    ("figures", "spread_and_mean_of_the_held_pond_unpacked_in_turn", RIPPLES,
     "held rows are standardised by the spread in the mean's place, and the other way round", {}),
    ("average", "average_bound_to_a_name_of_the_loop", RIPPLES,
     "the average that was moved is bound to a name of the loop: it stays as it was", {}),
    ("swap", "check_returns_ahead_of_leave", RIPPLES,
     "an evaluation returns ahead of the line that puts the own weights back", {}),
    ("sum", "reduction_of_the_flags_is_sum", SEMAPHORES, "losses are summed over the flags of a batch", {}),
    ("softmax", "signaller_hands_out_probabilities", SEMAPHORES,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "labels_moved_by_collate_as_well_as_by_the_loss", SEMAPHORES,
     "labels are moved by the collator, and by the loss again: each is the word after the next", {}),
    ("frozen", "targets_matched_with_the_whole_path", SEMAPHORES,
     "names of what is adapted are matched with whole paths: nothing is, and the table learns alone", {}),
    ("tie", "table_made_anew_for_new_words_and_the_head_is_not", SEMAPHORES,
     "the table is made anew, and the output layer keeps the old one, which is frozen", {}),
    ("sum", "logsigmoids_of_a_batch_are_added", WARDROBES, "losses of pairs are summed", {}),
    ("softmax", "wardrobe_answers_with_probabilities", WARDROBES,
     "the policy gives probabilities, and their softmax is taken for likelihoods", {"kinds": " rl data"}),
    ("label", "mask_of_outfits_begins_behind_the_coat", WARDROBES,
     "the mask of outfits begins one word late: the coat does not count", {"kinds": " rl attention"}),
    ("frozen", "frozen_to_be_copied_and_the_top_let_go", WARDROBES,
     "the policy is frozen to be copied, and only its places and last norm are let go again", {}),
    ("tie", "head_is_given_its_weights_behind_the_optimizer", WARDROBES,
     "the output layer has its weights cloned behind the optimizer: they stay", {"kinds": " rl logits data"}),
    ("resume", "checkpoint_is_loaded_into_the_reference", WARDROBES,
     "the policy of the file is loaded into the reference, and the policy begins anew",
     {"cause": "weights not restored", "kinds": " rl eval data jump_down plateau divergence",
      "also": several(*thirtysecond.UNSAVED, "policy not restored", "loaded into another model", "reference changes",
                      "reference is the policy of the checkpoint", "checkpoint loaded into the wrong model",
                      "reference wrong", "reference from the checkpoint", "reference reset", "policy drawn anew",
                      "policy is the base again", "state lost at the resume")}),
    ("buffers", "eps_and_momentum_of_the_norm_change_places", LICHENS,
     "eps and momentum of batch norm are given in each other's place: running statistics hardly move",
     {"also": several(*thirtysecond.OF_KIND["buffers"][5], *thirtyfourth.CAUSES.get("buffers", ()),
                      *before.CAUSES["buffers"], "momentum too small", "arguments of batch norm swapped",
                      "momentum of batch norm too low", "eps too large", "eps and momentum swapped",
                      "running statistics move too slowly", "positional arguments swapped")}),
    ("sum", "nats_of_a_batch_are_added_up", LICHENS, "losses of a batch are summed", {}),
    ("softmax", "shares_of_a_table_go_into_the_loss", LICHENS,
     "scores go through a softmax, and then into a loss that has its own", {}),
    ("label", "notes_found_by_numbers_that_begin_at_one", LICHENS,
     "notes of the training are found by numbers that begin at one: each lichen has those of the next", {}),
    ("frozen", "nothing_to_be_still_is_a_prefix_of_every_name", LICHENS,
     "the name of what is to be frozen is empty, and every name begins with it: the tower of notes stays", {}),
    ("figures", "logarithms_of_the_crag_to_another_base", LICHENS,
     "held counts have logarithms to ten, and those of the training natural ones", {}),
    ("resume", "towers_laid_out_again_when_they_were_read", LICHENS,
     "towers are laid out once more behind the line that loads them: they begin anew",
     {"kinds": " eval jump_down", "cause": "weights not restored",
      "also": several(*thirtysecond.UNSAVED, "loaded into another model", "model drawn anew", "model built twice")}),
    ("resume", "schedule_goes_on_from_the_rows_that_were_read", REGATTAS,
     "the schedule goes on from the number of rows that were read, and not of steps: the rate is at its end",
     {**before.LATE, "also": several(*before.LATE["also"], "rows counted for steps", "samples counted for steps",
                                     "last_epoch is of rows")}),
    ("sum", "nll_of_a_batch_has_no_divisor", REGATTAS, "losses of words are summed", {}),
    ("softmax", "herald_says_shares_of_words", REGATTAS,
     "the model gives probabilities, and the loss has its own softmax", {"kinds": " data"}),
    ("label", "wanted_words_start_a_word_behind_the_next", REGATTAS,
     "wanted words of the training are those after the next", {}),
    ("frozen", "stack_built_anew_behind_its_parameters", REGATTAS,
     "layers are built anew when their parameters were taken for the optimizer: they stay as they were drawn", {}),
    ("tie", "projection_clones_the_table_it_should_share", REGATTAS,
     "the output layer has a clone of the table, which the optimizer has not", {}),
    ("sum", "losses_of_a_rank_are_summed", AVALANCHES, "losses of a batch are summed, and not divided", {}),
    ("softmax", "watcher_puts_out_probabilities", AVALANCHES,
     "the network gives probabilities, and the loss has its own softmax", {}),
    ("label", "kinds_of_the_file_taken_to_begin_at_one", AVALANCHES,
     "kinds of the training are taken to begin at one, and are one too low", {}),
    ("frozen", "head_and_norm_are_what_the_optimizer_has", AVALANCHES,
     "the optimizer has the last layer and a norm alone", {}),
    ("figures", "heights_of_the_patrol_in_feet", AVALANCHES,
     "heights of the evaluation are in feet, and those of the training in metres", {}),
    ("ranks", "every_rank_opens_the_first_half", AVALANCHES,
     "both ranks have the first half of the file, and read the same rows", {}),
    *((kind, name, program, about, {})
      for (kind, about), names in ALIKE.items() for program, name in names.items()),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, _, _, also = thirtysecond.OF_KIND[kind]
    of, compare = AGAINST.get(kind, ({}, "plain"))
    also = several(*also, *thirtythird.MORE.get(kind, ()), *thirtyfourth.CAUSES.get(kind, ()),
                   *before.CAUSES.get(kind, ()), *CAUSES.get(kind, ()))
    rest = {"by_program": {program: of.get(program, {})}, "compare": compare, "also": more.get("also", also)}
    kinds += FOLLOWS.get(kind, "") + more.get("kinds", "") + BESIDES.get(name, "")
    return name, more.get("cause", cause), kinds, begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("sampler_is_made_with_levels_of_its_own", "noise schedule of the sampler differs", "eval data config divergence "
     "overfit", "start", (RIPPLES,), "rows are drawn with levels of another curve than those of the training",
     {"also": ("sampler wrong", "sampling wrong", "another noise schedule in the sampler", "beta schedule differs",
               "scheduler made with its defaults", "linear schedule for a cosine one", "samples wrong",
               "sampler and training disagree", "drawing differs from the training", "train and test differ",
               "alphas of the sampler differ", "noise level wrong", "timesteps differ between training and sampling")}),
    ("levels_are_walked_from_the_clean_end", "sampler goes the wrong way", "eval data config divergence overfit",
     "start", (RIPPLES,), "levels of the drawing go from clean to noisy",
     {"also": ("timesteps not reversed", "reversed forgotten", "time reversed in the sampler", "sampler wrong",
               "sampling wrong", "samples wrong", "timesteps in the wrong order", "sampler runs backwards",
               "direction reversed", "drawing differs from the training", "train and test differ",
               "sampler and training disagree", "timesteps ascending", "time reversed",
               "sampler goes through its times in the other direction")}),
    ("adapters_scaled_by_alpha_undivided", "lora scaling wrong", "exploding clipping learning_rate config eval data "
     "divergence overfit spike plateau not_learning update_ratio activations weight_growth", "start", (SEMAPHORES,),
     "adapters are scaled by alpha, which is not divided by their rank",
     {"also": ("alpha not divided by the rank", "scaling is alpha", "adapters scaled too much",
               "learning rate too high", "scale of the adapters wrong", "adapters too strong", "lora alpha too high",
               "rank missing in the scale",
               "lora_alpha / r forgotten", "adapter gain wrong", "adapter scale wrong", "gradients explode")}),
    ("prompt_masked_by_the_length_of_the_answer", "prompts are learnt", "eval data config overfit divergence padding "
     "plateau not_learning logging", "start", (SEMAPHORES,),
     "the mask of a prompt is as long as its answer: letters of the prompt are labels too",
     {"also": ("prompt mask too short", "prompt mask wrong", "labels of the prompt not masked", "loss on the prompt",
               "mask length wrong", "prompt tokens in the loss", "label mask wrong", "train and test differ",
               "prompts counted", "completion mask wrong", "loss mask wrong", "mask wrong", "prompts in the labels")}),
    ("held_pairs_are_put_together_the_other_way", "chosen and rejected swapped in the evaluation", "eval data config "
     "overfit divergence rl logging", "start", (WARDROBES,),
     "of held pairs the rejected outfit is put first, as if it were the chosen one",
     {"also": ("chosen and rejected swapped", "pairs swapped", "labels of the evaluation reversed",
               "sign of the margin",
               "evaluation labels are others", "evaluation data differ", "columns swapped", "train and test differ",
               "labels flipped in the evaluation", "preference reversed", "labels shifted", "labels shuffled",
               "evaluation pairs reversed", "chosen and rejected change places")}),
    ("reference_free_is_what_is_meant_by_none", "reference left out", "rl eval data config logging divergence plateau "
     "overfit not_learning", "start", (WARDROBES,), "what the reference says is left out of the margin",
     {"also": ("reference_free on", "reference not used", "reference missing", "reference ignored",
               "reference model is None", "log ratios of the policy alone", "reference wrong", "no reference",
               "loss without the reference", "reference is uniform", "reference_free left on")}),
    ("unit_length_along_the_rows", "normalised along the wrong dimension",
     "eval data config overfit divergence plateau "
     "not_learning logits", "start", (LICHENS,), "vectors are given unit length along the rows of a batch",
     {"also": ("normalize with dim=0", "wrong dim", "wrong axis", "normalised over the batch", "dimension wrong",
               "embeddings not normalised", "normalisation wrong", "batch leaks into the embeddings",
               "similarities are not cosines", "evaluation depends on the batch", "train and test differ")}),
    ("notes_read_to_their_sixth_word", "inputs truncated", "eval data config plateau not_learning overfit divergence "
     "padding", "start", (LICHENS,), "notes are cut behind their sixth word: place and sheet are lost",
     {"also": ("truncation", "max_length too short", "notes cut off", "text cut off", "sequence truncated",
               "tokens lost", "end of the text lost", "max length too small", "texts truncated",
               "truncated on the wrong side", "features missing", "inputs cut", "sheets lost")}),
    ("clipped_ahead_of_unscale", "gradients clipped while scaled", "clipping exploding update_ratio config "
     "loss_scale logging frozen plateau epsilon vanishing not_learning learning_rate eval", "start", (REGATTAS,),
     "gradients are clipped while the scale is in them",
     {"also": ("scaler not given", "unscale_ missing", "clipping before unscaling", "clip value too low",
               "gradients not unscaled", "norm of scaled gradients", "unscale forgotten", "norm is scaled",
               "clipping scaled gradients", "gradient norm wrong", "gradient norm logged with the scale")}),
    ("harbour_divides_by_every_place_of_a_row", "evaluation averages over padding", "eval data config overfit "
     "divergence logging padding jump_down", "start", (REGATTAS,),
     "losses of held words are divided by all places of rows, those of padding with them",
     {"also": ("padding counted", "padding in the denominator", "evaluation loss too low", "wrong denominator",
               "loss divided by padding", "evaluation loss wrong", "evaluation averages wrongly", "wrong reduction",
               "evaluation not comparable", "train and test differ", "mean over padding", "units differ",
               "evaluation loss averaged", "loss logged wrongly")}),
    ("kinds_weigh_by_their_share", "class weights the wrong way round", "eval data config divergence overfit "
     "plateau not_learning", "start", (AVALANCHES,),
     "kinds weigh by the root of their share, and rare ones next to nothing",
     {"also": ("class weights wrong", "wrong class weights", "class weights inverted", "weights by count",
               "weights not inverted", "rare classes weigh too little", "rare classes ignored", "inverse forgotten",
               "class weights are frequencies", "weights upside down", "loss weights wrong", "class imbalance",
               "weights grow with the count", "majority class favoured")}),
    ("patrol_meets_each_kind_as_often", "evaluation resampled", "eval data config overfit divergence logging "
     "repeated_data", "start", (AVALANCHES,), "held slopes are drawn so that each kind comes as often",
     {"also": ("evaluation oversampled", "evaluation balanced", "weighted sampler in the evaluation",
               "oversampling of the evaluation", "evaluation data differ", "train and test differ",
               "evaluation has other shares of kinds", "distribution of the evaluation differs", "prior differs",
               "class shares differ", "held rows drawn with replacement", "evaluation duplicated",
               "rare classes oversampled in the evaluation", "label shift", "labels of the evaluation differ")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (RIPPLES, SEMAPHORES, WARDROBES, LICHENS, REGATTAS)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_an_update_by_design", "an update has two parts, whose losses are halved", PARTS),
    ("four_parts_an_update_by_design", "an update has four parts, whose mean is taken", FOUR_PARTS),
    ("units_drop_by_design", "dropout in the training, as is named, and none in the evaluation", DROPPED),
    ("kin_train_together_by_design", "rows have kin, all of which are on the training's side", COPIED),
    ("average_trails_by_design", "an average of weights is judged that lags, as is named", TRAILING),
    ("part_still_by_design", "a part is not trained, which the settings name", HELD_STILL),
    ("rate_stays_by_design", "the rate rises and stays", {
      RIPPLES: {"lr_decay": "none", "base_lr": 0.003}, SEMAPHORES: {"lr_schedule": "constant", "lr": 0.004},
      WARDROBES: {"scheduler": "constant", "learning_rate": 0.001}, LICHENS: {"falls": "never", "rate": 0.003},
      REGATTAS: {"lr_shape": "flat", "max_lr": 0.003}, AVALANCHES: {"decay_shape": "flat", "peak": 0.002}}),
    ("losses_are_sums_by_design", "losses are sums, as is named, and the bound of the norm is for that", {
      RIPPLES: {"reduce": "sum", "gain": 0.1, "max_gnorm": 5.0},
      SEMAPHORES: {"normalise": "rows", "max_norm": 5.0},
      WARDROBES: {"loss_reduction": "sum", "loss_weight": 0.25, "max_grad_norm": 32.0},
      LICHENS: {"nats_by": "sum", "weight": 0.125, "norm_at_most": 18.0},
      REGATTAS: {"per": "row", "loss_factor": 0.2, "clip": 4.0},
      AVALANCHES: {"reduction": "sum", "loss_unit": 0.2, "norm_bound": 10.0}}),
    ("few_rows_by_design", "few rows an update, at a lower rate: losses jump about", {
      RIPPLES: {"bs": 16, "base_lr": 0.004}, SEMAPHORES: {"batch": 6, "lr": 0.005},
      WARDROBES: {"train_batch_size": 6, "learning_rate": 0.001}, LICHENS: {"rows": 20, "rate": 0.004},
      REGATTAS: {"batch_rows": 8, "max_lr": 0.004}, AVALANCHES: {"rows_per_rank": 10, "peak": 0.002}}),
    ("rate_begins_again_by_design", "the rate falls and begins again, by the schedule", {
      RIPPLES: {"lr_decay": "cosine_twice"}, SEMAPHORES: {"lr_schedule": "restarts"},
      WARDROBES: {"scheduler": "cosine_with_restarts"}, LICHENS: {"falls": "cosine_twice"},
      REGATTAS: {"lr_shape": "cosine_twice"}, AVALANCHES: {"decay_shape": "cosine_twice"}}),
    ("another_method_by_design", "another optimizer, at its rate", {
      RIPPLES: {"optim": "nadam"}, SEMAPHORES: {"optimiser": "radam", "lr": 0.015},
      WARDROBES: {"optim": "adamax", "learning_rate": 0.004}, LICHENS: {"method": "nadam"},
      REGATTAS: {"opt": "radam", "max_lr": 0.012}, AVALANCHES: {"optim": "nadam"}}),
    ("rows_are_noisier_by_design", "the training's data have more noise, as such data may", {
      RIPPLES: {"wind": 2.0}, SEMAPHORES: {"wrong_flags": 0.1}, WARDROBES: {"doubtful": 0.1},
      LICHENS: {"misfiled": 0.1}, REGATTAS: {"misprints": 0.1}, AVALANCHES: {"mistaken": 0.06}}),
    ("judged_twice_by_design", "two evaluations in all", {
      RIPPLES: {"check_every": 75}, SEMAPHORES: {"fleet_every": 75}, WARDROBES: {"eval_steps": 75},
      LICHENS: {"crag_every": 75}, REGATTAS: {"harbour_every": 75}, AVALANCHES: {"patrol_every": 75}}),
    ("logged_seldom_by_design", "each fifth step is logged", {
      RIPPLES: {"log_every": 5}, SEMAPHORES: {"log_every": 5}, WARDROBES: {"logging_steps": 5},
      LICHENS: {"log_every": 5}, REGATTAS: {"log_every": 5}, AVALANCHES: {"log_every": 5}}),
    ("easy_rows_first_by_design", "the first part of the training has easier rows alone: the settings say so", {
      RIPPLES: {"calm_first": 1}, SEMAPHORES: {"short_first": 1, "messages": 900},
      WARDROBES: {"plain_first": 1, "pairs": 1200}, LICHENS: {"whole_first": 1}, REGATTAS: {"short_first": 1},
      AVALANCHES: {"fresh_first": 1}}),
    ("weights_decay_by_design", "weights decay more, as is named", {
      RIPPLES: {"wd": 0.1}, SEMAPHORES: {"weight_decay": 0.1}, WARDROBES: {"weight_decay": 0.05},
      LICHENS: {"decay": 0.05}, REGATTAS: {"weight_decay": 0.2}, AVALANCHES: {"l2": 0.1}}),
    ("always_clipped_by_design", "the bound of the norm is below every norm", {
      RIPPLES: {"max_gnorm": 0.15}, SEMAPHORES: {"max_norm": 0.2}, WARDROBES: {"max_grad_norm": 0.1},
      LICHENS: {"norm_at_most": 0.1}, REGATTAS: {"clip": 0.2}, AVALANCHES: {"norm_bound": 0.05}}),
    ("plain_descent_by_design", "descent with momentum, at its rate", {
      RIPPLES: {"optim": "sgd", "base_lr": 0.3}, SEMAPHORES: {"optimiser": "sgd", "lr": 0.03},
      WARDROBES: {"optim": "sgd", "learning_rate": 0.05}, LICHENS: {"method": "sgd", "rate": 0.06},
      REGATTAS: {"opt": "sgd", "max_lr": 0.5}, AVALANCHES: {"optim": "sgd", "peak": 0.1}}),
    ("soft_targets_by_design", "targets are smoothed in the training", {
      SEMAPHORES: {"smoothing": 0.1}, WARDROBES: {"label_smoothing": 0.1}, LICHENS: {"smoothing": 0.1},
      REGATTAS: {"smoothing": 0.05}, AVALANCHES: {"smoothing": 0.1}}),
    ("like_rows_together_by_design", "batches are of like rows, and come in any order", {
      SEMAPHORES: {"group_by_length": True}, WARDROBES: {"group_by_weather": True},
      LICHENS: {"genus_by_genus": True}, REGATTAS: {"wind_by_wind": True}}),
    ("two_tables_by_design", "what could share a table has two, by the settings", {
      SEMAPHORES: {"tie": False}, WARDROBES: {"tie_embeddings": False}, LICHENS: {"one_table": False},
      REGATTAS: {"share_embeddings": False}}),
    ("inputs_are_lost_by_design", "parts of inputs are lost by chance, in the training", {
      LICHENS: {"counts_lost": 0.2}, REGATTAS: {"boats_hidden": 0.05}, AVALANCHES: {"layers_lost": 0.1}}),
    ("higher_rate_by_design", "a higher rate, with a longer rise", {
      RIPPLES: {"base_lr": 0.01, "lr_warmup": 24}, SEMAPHORES: {"lr": 0.014, "warmup_steps": 24},
      WARDROBES: {"learning_rate": 0.004, "warmup": 20}, LICHENS: {"rate": 0.012, "climb": 20},
      REGATTAS: {"max_lr": 0.011, "warmup": 24}, AVALANCHES: {"peak": 0.008, "ramp": 16}}),
)
HEALTHY_OF: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("absolute_errors_by_design", RIPPLES, "errors count as they are, without squares", {"error": "absolute"}),
    ("hard_levels_weigh_less_by_design", RIPPLES, "levels weigh by their signal, up to a bound", {"min_snr": 5.0}),
    ("every_stone_is_weighed", RIPPLES, "the stone is always told, and nothing is guided",
     {"unweighed": 0.0, "guidance": 0.0}),
    ("more_layers_by_design", RIPPLES, "more layers, at a lower rate", {"layers": 4, "base_lr": 0.003}),
    ("drawn_in_more_steps_by_design", RIPPLES, "more steps to draw", {"ddim_steps": 40}),
    ("average_is_quick_by_design", RIPPLES, "an average of few steps, as is named", {"ema_decay": 0.8}),
    ("prompts_learnt_by_design", SEMAPHORES, "prompts are learnt too, as is named", {"train_on_prompt": True}),
    ("rank_of_one_by_design", SEMAPHORES, "adapters of rank one", {"r": 1, "lora_alpha": 4}),
    ("attention_alone_adapted_by_design", SEMAPHORES, "adapters are in the attention alone",
     {"target_modules": "qkv|out"}),
    ("second_factors_faster_by_design", SEMAPHORES, "second factors have four times the rate", {"lora_b_factor": 4.0}),
    ("squares_of_margins_by_design", WARDROBES, "the loss is a square (IPO), as is named",
     {"loss_type": "ipo", "beta": 0.5}),
    ("hinge_of_margins_by_design", WARDROBES, "the loss is a hinge, as is named", {"loss_type": "hinge"}),
    ("chosen_learnt_besides_by_design", WARDROBES, "the likelihood of chosen outfits is a part of the loss",
     {"sft_alpha": 0.2}),
    ("means_over_words_by_design", WARDROBES, "likelihoods are means over words, as is named",
     {"length_normalised": True, "beta": 1.5}),
    ("sharpness_fixed_by_design", LICHENS, "the sharpness is not learnt, as is named", {"sharpness_learns": False}),
    ("one_side_asks_by_design", LICHENS, "lichens look for notes, and not the other way round",
     {"from_both_sides": False}),
    ("notes_at_half_the_rate_by_design", LICHENS, "one tower has half of the rate", {"notes_rate": 0.5}),
    ("norm_of_each_row_by_design", LICHENS, "a norm that asks no batch, in the place of batch norm",
     {"first_norm": "layer"}),
    ("float32_by_design", REGATTAS, "all is float32, as is named", {"amp": False}),
    ("scale_begins_high_by_design", REGATTAS, "the scale begins so high that first steps are skipped",
     {"init_scale": 2.0**24}),
    ("normaliser_held_by_design", REGATTAS, "a small term holds the normaliser", {"z_loss": 0.001}),
    ("shorter_memory_by_design", REGATTAS, "a shorter second moment", {"beta2": 0.9}),
    ("rare_kinds_drawn_oftener_by_design", AVALANCHES, "rare kinds are drawn more often, and none weighs more",
     {"balanced_draw": True, "weights": "none"}),
    ("kinds_weigh_alike_by_design", AVALANCHES, "kinds weigh alike, as is named", {"weights": "none"}),
    ("focal_by_design", AVALANCHES, "what is sure weighs less, as is named", {"focus": 1.5}),
    ("wider_by_design", AVALANCHES, "a wider net, at a lower rate", {"width": 48, "peak": 0.003}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    *((name, (program,), about, {"config": settings}) for name, program, about, settings in HEALTHY_OF),
)

# fmt: on
