"""The thirty-fifth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the thirty-fourth half: meanders of rivers out of noise along velocities, with an
average that torch keeps; adapters beside a rounded base that answers melodies, and learns to answer them upside down;
preferences for picnics, against a reference that is kept beside; two towers for feathers and a museum's labels, with
callbacks; a language model in bfloat16 alone over parades; rare calls of bats on two workers, under
DistributedDataParallel; each as another ordinary engineer writes it. Most faults are of the fifteen kinds that the
fourteenth half has; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no
rule, and did not look at what the doctor says. Names and kinds are taken over from the thirty-fourth half, and every
kind that would be right is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import thirtyfourth as before
from halves import thirtysecond, thirtythird
from halves.ninth import Row, Settings
from halves.twentysixth import several

PROGRAMS = ("meanders", "canons", "picnics", "feathers", "parades", "bats")
MEANDERS, CANONS, PICNICS, FEATHERS, PARADES, BATS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "net_is_told_the_number_of_the_step", "velocity_leads_from_reaches_to_noise",
    "merged_and_still_added_to_be_heard", "final_note_masked_as_if_it_were_padding",
    "reference_made_by_a_shallow_copy", "baskets_are_read_without_what_was_asked",
    "mask_of_words_given_as_mask_of_padding", "columns_of_the_museum_are_sorted_by_name",
    "losses_of_the_town_added_in_bfloat16", "attention_reads_on_to_the_end",
    "rare_calls_drawn_oftener_and_weighed_besides", "calls_played_backwards_by_chance",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    MEANDERS: {"batch": 24, "accumulate": 2}, CANONS: {"batch_size": 8, "grad_accumulation": 2},
    PICNICS: {"pairs_per_step": 8, "accum": 2}, FEATHERS: {"batch": 32, "accumulation": 2},
    PARADES: {"rows": 10, "chunks": 2}, BATS: {"per_worker": 16, "accumulate": 2},
}
FOUR_PARTS: Settings = {
    MEANDERS: {"batch": 12, "accumulate": 4, "optimizer": "sgd", "lr": 0.3, "clip": 100.0},
    CANONS: {"batch_size": 4, "grad_accumulation": 4, "optimizer": "sgd", "lr": 0.025, "max_grad_norm": 100.0},
    PICNICS: {"pairs_per_step": 4, "accum": 4, "optim": "sgd", "lr": 0.05, "grad_clip": 100.0},
    FEATHERS: {"batch": 24, "accumulation": 4, "solver": "sgd", "rate": 0.06, "norm_limit": 100.0},
    PARADES: {"rows": 5, "chunks": 4, "opt": "sgd", "lr": 0.5, "clip_norm": 100.0},
    BATS: {"per_worker": 8, "accumulate": 4, "optimizer": "sgd", "lr": 0.2, "grad_norm": 100.0},
}
DROPPED: Settings = {
    MEANDERS: {"dropout": 0.4, "reaches": 240}, CANONS: {"lora_dropout": 0.3, "melodies": 240},
    PICNICS: {"dropout": 0.2, "pairs": 240}, FEATHERS: {"dropout": 0.3, "feathers": 480},
    PARADES: {"dropout": 0.25, "parades": 480}, BATS: {"dropout": 0.4, "calls": 480},
}
COPIED: Settings = {
    MEANDERS: {"surveys": 32}, CANONS: {"renditions": 8, "melodies": 1200}, PICNICS: {"hosts": 8, "pairs": 1280},
    FEATHERS: {"plumes": 8, "feathers": 1920}, PARADES: {"years": 6, "parades": 1440}, BATS: {"per_pass": 8},
}
TRAILING: Settings = {
    MEANDERS: {"ema": 0.975},
}
HELD_STILL: Settings = {
    MEANDERS: {"frozen": "blocks.0"}, CANONS: {"freeze": "layers.0"}, PICNICS: {"frozen_blocks": 1},
    FEATHERS: {"frozen": "label"}, PARADES: {"frozen": "place"}, BATS: {"frozen": "first"},
}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

CAUSES: Mapping[str, tuple[str, ...]] = {
    "sum": ("loss summed over reaches", "loss summed over calls", "loss summed over feathers"),
    "label": ("labels counted from one", "soils off by one", "bos not in the labels", "labels shifted by the bos token",
              "start token prepended to the ids alone", "targets two words on", "classes moved by one",
              "class order differs", "background class put first", "text indices clamped", "arange from one",
              "logits and labels cut the wrong way"),
    "frozen": ("modules in a plain list", "ModuleList missing", "layers not registered", "parameters not registered",
               "lora frozen with the base", "requires_grad_(False) after the adapters", "layer names do not match",
               "prefix matches nothing", "one tower not in the optimizer", "states detached", "detach between layers",
               "hidden states detached", "head alone in the optimizer"),
    "tie": ("head cast to float32 is a copy", "head is a copy", "lm_head is a new parameter", "table resized",
            "resize_token_embeddings breaks the tie", "deepcopy breaks sharing", "table of each tower its own",
            "weight set anew after the optimizer"),
    "order": ("soil after soil", "melodies sorted", "season after season", "drawer after drawer", "town after town"),
    "leak": ("surveys on both sides", "renditions on both sides", "hosts on both sides", "plumes on both sides",
             "years on both sides", "passes on both sides"),
    "figures": ("not centred", "mean not subtracted", "fahrenheit and celsius confused"),
    "buffers": ("momentum of batch norm is 0", "running statistics never updated", "momentum 0"),
    "average": ("average updated from itself", "average updated by its own weights"),
    "swap": ("average loaded into the net", "load_state_dict of the average", "net overwritten by its average"),
    "ranks": ("rank defaults to 0", "default rank", "same shard on all ranks", "rank argument missing",
              "half of the data is never seen"),
}

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

AGAINST: Mapping[str, tuple[Settings, str]] = {
    "leak": (COPIED, "copies_train_and_none_is_judged"), "steps": (PARTS, "two_parts_make_an_update_as_set"),
    "added": (FOUR_PARTS, "four_parts_make_an_update_as_set"),
    "cleared": (FOUR_PARTS, "four_parts_make_an_update_as_set"),
    "eval": (DROPPED, "units_are_dropped_as_set"), "train": (DROPPED, "units_are_dropped_as_set"),
    "swap": (TRAILING, "average_lags_as_set"), "graph": ({}, "memory_steady"),
}
FOLLOWS: Mapping[str, str] = before.FOLLOWS
"""Kinds of what follows from a fault in these programs, beside those of its kind."""
ALIKE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("steps", "the schedule goes on with each part of an update"): {
        MEANDERS: "scheduler_follows_the_loader", CANONS: "schedule_moves_with_the_backward_call",
        PICNICS: "lambda_lr_advanced_for_each_micro_batch", FEATHERS: "rate_callback_hears_of_every_batch",
        PARADES: "schedule_inside_the_loop_of_chunks", BATS: "scheduler_stepped_by_the_batch_and_not_the_update",
    },
    ("added", "losses of parts are not divided by their number"): {
        MEANDERS: "backward_of_each_batch_in_full", CANONS: "accumulated_losses_never_divided",
        PICNICS: "micro_batches_pile_up_undivided", FEATHERS: "batches_of_an_update_are_added",
        PARADES: "chunks_backed_at_their_full_size", BATS: "batches_of_a_worker_add_up",
    },
    ("cleared", "gradients are cleared before each of four parts: the last one alone counts, at a quarter"): {
        MEANDERS: "zero_grad_for_each_batch_of_an_update",
        CANONS: "optimizer_cleared_before_each_backward", PICNICS: "set_to_none_at_the_top_of_the_inner_loop",
        FEATHERS: "gradients_cleared_when_a_batch_begins", PARADES: "chunks_start_from_zero_grad",
        BATS: "zero_grad_ahead_of_every_batch",
    },
    ("order", "rows come in the order of the file, kind after kind"): {
        MEANDERS: "loader_of_reaches_goes_down_the_file", CANONS: "book_of_melodies_played_from_front_to_back",
        PICNICS: "seasons_come_one_after_the_other", FEATHERS: "drawers_opened_in_their_order",
        PARADES: "towns_pass_by_in_turn", BATS: "sampler_set_to_no_shuffle_for_debugging",
    },
    ("leak", "rows of one origin come to lie on both sides"): {
        MEANDERS: "surveys_split_without_their_reach", CANONS: "renditions_of_a_melody_split_at_random",
        PICNICS: "hosts_of_a_pair_split_at_random", FEATHERS: "plumes_of_a_bird_on_both_sides",
        PARADES: "years_of_a_parade_split_at_random", BATS: "calls_of_a_pass_split_at_random",
    },
    ("eval", "the model is checked before the first step, and is not set back to training then nor later"): {
        FEATHERS: "sanity_check_leaves_towers_in_eval",
    },
    ("train", "the model is evaluated in training mode, with dropout"): {
        MEANDERS: "average_judged_while_units_drop", CANONS: "heard_with_adapters_in_training",
        PICNICS: "guests_meet_a_policy_that_drops", FEATHERS: "museum_visited_in_training_mode",
        PARADES: "town_read_with_units_dropping", BATS: "night_heard_in_training_mode",
    },
    ("graph", "evaluations run with gradients on, and what they say is kept"): {
        MEANDERS: "judged_reaches_stay_on_the_tape", CANONS: "hearings_kept_with_their_gradients",
        PICNICS: "margins_of_guests_kept_as_tensors", FEATHERS: "museum_tables_hang_on_their_graph",
        PARADES: "losses_of_towns_listed_live", BATS: "night_logits_piled_up_with_history",
    },
}
LATE: dict[str, Any] = {
    "cause": "schedule wrong after the resume", "kinds": " learning_rate plateau frozen update_ratio eval",
    "also": ("learning rate too low", "schedule ends early", "schedule restored twice", "scheduler stepped twice",
             "scheduler stepped too often", "schedule advanced twice", "rate too low after the resume",
             "schedule lost at the resume", "resumed at the wrong step", "schedule of another step",
             "schedule wound forward twice", "last_epoch wrong", "total steps wrong", "number of steps wrong",
             "schedule state lost", "total_steps is what is left", "schedule ahead"),
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "errors_summed_over_a_reach", MEANDERS,
     "squared errors are summed over the points of a reach", {}),
    ("label", "soils_of_the_training_still_counted_from_one", MEANDERS,
     "soils of the training are counted from one, and those of the evaluation from nought", {}),
    ("frozen", "blocks_lie_in_a_plain_list", MEANDERS,
     "blocks are in a plain list: the optimizer never hears of them", {}),
    ("figures", "held_reaches_divided_and_not_moved", MEANDERS,
     "held reaches are divided by the spread, and the mean is not taken off", {}),
    ("average", "average_updated_by_its_own_module", MEANDERS,
     "the average is updated by its own module, and stays as it was", {}),
    ("swap", "net_loads_the_average_to_be_judged", MEANDERS,
     "the net loads the average to be judged, and goes on with it", {}),
    ("resume", "schedule_wound_forward_behind_its_load", MEANDERS,
     "the schedule is loaded, and wound forward by as many steps again: the rate is at its end",
     LATE),
    ("sum", "answers_summed_over_the_batch", CANONS,
     "losses are summed over the notes of a batch", {}),
    ("softmax", "voice_returns_probabilities", CANONS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("label", "labels_made_before_the_start_was_put_in_front", CANONS,
     "labels lack the first word that ids have: each is of the note after the next", {}),
    ("frozen", "base_frozen_when_adapters_were_in_it", CANONS,
     "the base is frozen when it has its adapters: the table learns alone", {}),
    ("tie", "head_cast_to_float_is_a_copy", CANONS,
     "the output layer is cast, and is a copy of the table that stays", {}),
    ("resume", "file_read_by_the_names_of_the_base", CANONS,
     "of the file only what the base has a name for is loaded: adapters begin anew",
     {"kinds": " eval jump_down", "cause": "weights not restored",
      "also": several(*thirtysecond.UNSAVED, "adapters not restored", "adapters begin anew", "adapters not loaded",
                      "lora weights not loaded", "strict=False")}),
    ("sum", "pair_losses_summed", PICNICS,
     "losses of pairs are summed", {}),
    ("softmax", "policy_says_probabilities", PICNICS,
     "the policy gives probabilities, and their softmax is taken for likelihoods", {"kinds": " rl data"}),
    ("label", "logits_cut_in_front_and_words_behind", PICNICS,
     "likelihoods are of the word before: logits are cut in front, and words behind", {"kinds": " rl attention"}),
    ("frozen", "layers_let_loose_by_a_name_they_have_not", PICNICS,
     "what learns is picked by a name that no block has: the table and norms learn alone", {}),
    ("tie", "head_made_anew_for_its_size", PICNICS,
     "the output layer is made anew when weights were loaded: it is drawn, and no more the table",
     {"kinds": " rl logits data"}),
    ("resume", "reference_made_of_the_policy_that_goes_on", PICNICS,
     "the reference is made anew at the resume, of the policy that was loaded",
     {"cause": "reference is the policy", "kinds": " rl eval data jump_down plateau",
      "also": ("reference updated", "reference changes", "reference reset", "reference copied from the policy",
               "reference wrong", "reference from the checkpoint", "margins begin anew", "state lost at the resume",
               "reference moves", "rewards reset", "reference lost")}),
    ("sum", "contrast_summed_over_the_batch", FEATHERS,
     "losses of a batch are summed", {}),
    ("softmax", "scores_made_shares_for_the_log", FEATHERS,
     "scores go through a softmax, and then into a loss that has its own", {}),
    ("label", "labels_of_rows_counted_from_one", FEATHERS,
     "the label that belongs to a feather is the next one of the batch", {}),
    ("frozen", "second_tower_given_in_place_of_the_first", FEATHERS,
     "the optimizer has the parameters of one tower: the list was overwritten", {}),
    ("tie", "tower_of_labels_copied_behind_the_optimizer", FEATHERS,
     "the tower of labels is copied behind the optimizer, with a table of its own: it stays as it was drawn", {}),
    ("buffers", "momentum_of_nought_for_batch_norm", FEATHERS,
     "the momentum of batch norm is nought: running statistics stay as they began", {}),
    ("resume", "towers_loaded_into_a_copy_of_theirs", FEATHERS,
     "the file is loaded into a copy of the towers, and the towers that go on begin anew",
     {"kinds": " eval jump_down", "cause": "weights not restored",
      "also": several(*thirtysecond.UNSAVED, "loaded into a copy", "another model is loaded", "model drawn anew")}),
    ("sum", "words_of_a_town_summed", PARADES,
     "losses of words are summed", {}),
    ("softmax", "reader_ends_in_a_softmax", PARADES,
     "the model gives probabilities, and the loss has its own softmax", {"kinds": " data"}),
    ("label", "targets_begin_two_words_on", PARADES,
     "wanted words of the training are those after the next", {}),
    ("frozen", "states_detached_between_blocks", PARADES,
     "states are detached between blocks: what is below has no gradient", {}),
    ("tie", "head_set_anew_in_bfloat16", PARADES,
     "the weight of the output layer is set anew behind the optimizer: a matrix that stays", {}),
    ("resume", "schedule_told_of_the_steps_that_are_left", PARADES,
     "the schedule is loaded, and told of the steps that are left as if they were all: the rate is at its end", LATE),
    ("sum", "loss_of_calls_is_a_sum", BATS,
     "losses of a batch are summed, and not divided", {}),
    ("softmax", "net_ends_in_shares", BATS,
     "the network gives probabilities, and the loss has its own softmax", {}),
    ("label", "species_moved_by_a_class_for_silence", BATS,
     "species of the training are one on, as if a class for silence came first", {}),
    ("frozen", "optimizer_has_the_head_alone", BATS,
     "the optimizer has the last layer alone", {}),
    ("figures", "held_nights_in_fahrenheit", BATS,
     "temperatures of the evaluation are in Fahrenheit, and those of the training in Celsius", {}),
    ("ranks", "shard_taken_with_its_default_rank", BATS,
     "both ranks take the shard of rank nought, which is the default: they read the same rows", {}),
    *((kind, name, program, about, {})
      for (kind, about), names in ALIKE.items() for program, name in names.items()),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, _, _, also = thirtysecond.OF_KIND[kind]
    of, compare = AGAINST.get(kind, ({}, "plain"))
    also = several(*also, *thirtythird.MORE.get(kind, ()), *before.CAUSES.get(kind, ()), *CAUSES.get(kind, ()))
    rest = {"by_program": {program: of.get(program, {})}, "compare": compare, "also": more.get("also", also)}
    kinds += FOLLOWS.get(kind, "") + more.get("kinds", "")
    return name, more.get("cause", cause), kinds, begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("net_is_told_the_number_of_the_step", "time scaled otherwise", "eval data config divergence overfit", "start",
     (MEANDERS,), "where reaches are drawn, the net is told the number of a step and not its share of all",
     {"also": ("timestep scale differs", "time not normalised", "time not divided by the number of steps",
               "timesteps differ between training and sampling", "sampler wrong", "sampling wrong", "time wrong",
               "time scale wrong", "train and test differ", "samples wrong", "time embedding out of range",
               "time units differ", "drawing differs from the training")}),
    ("velocity_leads_from_reaches_to_noise", "sign of the target wrong", "eval data config divergence overfit",
     "start", (MEANDERS,), "the velocity that is learnt leads to noise, and what is drawn goes along it",
     {"also": ("velocity sign wrong", "target sign flipped", "target reversed", "velocity target reversed",
               "sampler goes the wrong way", "time reversed", "direction of the flow reversed", "sampler wrong",
               "sampling wrong", "samples wrong", "sign error", "sign reversed", "sampler and training disagree",
               "drawing differs from the training", "train and test differ")}),
    ("merged_and_still_added_to_be_heard", "adapters merged and added", "eval frozen data config divergence overfit",
     "start",
     (CANONS,), "for the evaluation adapters are merged into the base, and added besides",
     {"also": ("adapters applied twice", "merged twice", "delta added twice", "adapters count twice", "merge wrong",
               "merged and not unloaded", "adapters still active after the merge", "merged weights wrong",
               "lora scaling wrong", "adapters too strong in the evaluation", "model changed for the evaluation",
               "weights changed for the evaluation", "train and test differ", "another model is evaluated",
               "wrong model evaluated", "evaluation of another model")}),
    ("final_note_masked_as_if_it_were_padding", "end token masked", "eval data config padding overfit divergence",
     "start", (CANONS,), "the last word of an answer has the id of padding, and is masked: nobody learns to stop",
     {"also": ("eos masked", "pad token is eos", "pad_token = eos_token", "eos not learnt", "eos never trained",
               "never stops", "end of the answer masked", "labels of eos are ignored", "padding masked wrongly",
               "generation does not end", "label mask wrong", "train and test differ", "mask wrong",
               "end of the answer not counted", "loss masked out", "eos missing in the labels")}),
    ("reference_made_by_a_shallow_copy", "reference is the policy", "plateau not_learning zero frozen rl eval config "
     "data logging exploding divergence clipping", "start", (PICNICS,),
     "the reference is a shallow copy, and learns with the policy: every margin is nought",
     {"also": ("reference updated", "reference shares its weights with the policy", "shallow copy", "copy.copy",
               "deepcopy missing", "reference moves", "reference changes", "reference wrong", "margins are 0",
               "loss masked out", "reference not frozen", "reference is no copy", "aliased weights")}),
    ("baskets_are_read_without_what_was_asked", "prompt missing", "rl eval data config overfit plateau not_learning "
     "divergence", "start", (PICNICS,), "likelihoods are of baskets alone: what was asked is not in front of them",
     {"also": ("prompt not concatenated", "prompt left out", "prompt lost", "completions without their prompt",
               "inputs cut off", "condition missing", "prompt dropped", "conditions ignored", "template wrong",
               "prompt truncated", "truncation", "likelihoods wrong", "condition left out", "inputs missing",
               "prompt not read", "context missing")}),
    ("mask_of_words_given_as_mask_of_padding", "mask inverted", "eval data config padding attention plateau "
     "not_learning frozen vanishing overfit zero dead", "start", (FEATHERS,),
     "the mask says which words are there, where padding was to be told: labels are read from padding alone",
     {"also": ("attention mask inverted", "key_padding_mask inverted", "padding mask inverted", "mask upside down",
               "padding attended to", "words masked out", "attends to padding alone", "wrong mask",
               "mask convention differs", "text ignored", "inputs masked out", "boolean mask reversed")}),
    ("columns_of_the_museum_are_sorted_by_name", "columns in another order", "eval data config divergence overfit",
     "start", (FEATHERS,), "measures of the evaluation are in the order of their names, those of the training are not",
     {"also": ("column order differs", "columns swapped", "columns shuffled", "features permuted",
               "feature order differs", "columns mixed up", "inputs permuted", "measures in another order",
               "evaluation data differ", "preprocessing differs", "train and test differ",
               "preprocessing of the evaluation differs", "features misaligned", "columns sorted")}),
    ("losses_of_the_town_added_in_bfloat16", "sum saturates in bfloat16", "logging eval config overfit divergence data "
     "frozen plateau", "start", (PARADES,), "losses of held words are added one by one in bfloat16, which stops at 256",
     {"also": ("loss accumulated in bfloat16", "accumulated in low precision", "rounding", "precision lost",
               "updates lost in rounding", "evaluation loss wrong", "evaluation loss too low", "logged wrongly",
               "logging wrong", "metric rounded", "sum in half precision", "bf16 accumulation", "bfloat16 sum",
               "loss rounded away", "evaluation averages wrongly", "train and test differ", "loss logged wrongly",
               "evaluation not comparable", "units differ")}),
    ("attention_reads_on_to_the_end", "causal mask missing", "zero eval jump_down data attention config overfit "
     "divergence logging", "start", (PARADES,), "attention is not causal: each word is read before it is said",
     {"also": ("is_causal missing", "causal mask forgotten", "mask missing", "future visible", "future leaks",
               "sees the future", "attention mask missing", "labels leak", "target leaks into the input",
               "labels in the input", "labels can be seen", "attention not causal", "bidirectional attention",
               "validation leak", "tokens to come are seen", "loss too low")}),
    ("rare_calls_drawn_oftener_and_weighed_besides", "rare classes counted twice", "eval config data overfit "
     "divergence plateau", "start", (BATS,), "rare species are drawn more often, and weigh more besides",
     {"also": ("class weights and a weighted sampler", "rare classes weighed twice", "balanced twice",
               "rare classes made up for twice",
               "oversampled and weighted", "class imbalance corrected twice", "weights and sampler together",
               "rare classes weigh too much", "class weights wrong", "wrong class weights", "loss weights wrong",
               "sampler and weights both", "over-corrected imbalance", "weights not needed",
               "train and test differ", "class weights too large")}),
    ("calls_played_backwards_by_chance", "augmentation changes the label",
     "eval data config overfit divergence plateau not_learning", "start", (BATS,),
     "calls of the training are played backwards by chance, and two species differ by their direction alone",
     {"also": ("augmentation wrong", "time reversed", "direction lost", "augmentation destroys the label",
               "label not preserved by the augmentation", "flips change the class", "training data corrupted",
               "train and test differ", "augmentation too strong", "inputs reversed", "labels shuffled",
               "random flip changes the class")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (MEANDERS, CANONS, PICNICS, FEATHERS, PARADES)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_make_an_update_as_set", "an update has two parts, whose losses are halved", PARTS),
    ("four_parts_make_an_update_as_set", "an update has four parts, whose mean is taken", FOUR_PARTS),
    ("units_are_dropped_as_set", "dropout in the training, as is named, and none in the evaluation", DROPPED),
    ("copies_train_and_none_is_judged", "rows have copies, all of which are on the training's side", COPIED),
    ("average_lags_as_set", "an average of weights is judged that lags, as is named", TRAILING),
    ("part_frozen_as_set", "a part is not trained, which the settings name", HELD_STILL),
    ("rate_constant_as_set", "the rate rises and stays", {
      MEANDERS: {"schedule": "constant", "lr": 0.003}, CANONS: {"schedule": "constant", "lr": 0.004},
      PICNICS: {"decay": "none", "lr": 0.001}, FEATHERS: {"curve": "flat", "rate": 0.003},
      PARADES: {"schedule": "flat", "lr": 0.003}, BATS: {"schedule": "constant", "lr": 0.0015}}),
    ("losses_are_sums_as_set", "losses are sums, as is named, and the bound of the norm is for that", {
      MEANDERS: {"reduction": "sum", "loss_gain": 0.1, "clip": 10.0},
      CANONS: {"loss_by": "answer", "max_grad_norm": 5.0},
      PICNICS: {"reduction": "sum", "loss_gain": 0.25, "grad_clip": 32.0},
      FEATHERS: {"reduction": "sum", "loss_gain": 0.125, "norm_limit": 18.0},
      PARADES: {"nll_by": "row", "loss_gain": 0.2, "clip_norm": 4.0},
      BATS: {"reduction": "sum", "loss_gain": 0.2, "grad_norm": 10.0}}),
    ("few_rows_as_set", "few rows an update, at a lower rate: losses jump about", {
      MEANDERS: {"batch": 16, "lr": 0.005}, CANONS: {"batch_size": 6, "lr": 0.005},
      PICNICS: {"pairs_per_step": 6, "lr": 0.001}, FEATHERS: {"batch": 20, "rate": 0.004},
      PARADES: {"rows": 8, "lr": 0.004}, BATS: {"per_worker": 10, "lr": 0.002}}),
    ("rate_restarts_as_set", "the rate falls and begins again, by the schedule", {
      MEANDERS: {"schedule": "cosine_twice"}, CANONS: {"schedule": "cosine_twice"}, PICNICS: {"decay": "cosine_twice"},
      FEATHERS: {"curve": "cosine_twice"}, PARADES: {"schedule": "cosine_twice"}, BATS: {"schedule": "cosine_twice"}}),
    ("another_optimizer_as_set", "another optimizer, at its rate", {
      MEANDERS: {"optimizer": "radam", "lr": 0.015}, CANONS: {"optimizer": "adamax", "lr": 0.012},
      PICNICS: {"optim": "nadam"}, FEATHERS: {"solver": "radam"},
      PARADES: {"opt": "nadam", "lr": 0.005}, BATS: {"optimizer": "nadam"}}),
    ("rows_are_noisier_as_set", "the training's data have more noise, as such data may", {
      MEANDERS: {"roughness": 2.0}, CANONS: {"wrong_notes": 0.1}, PICNICS: {"changed_minds": 0.1},
      FEATHERS: {"mislabelled": 0.1}, PARADES: {"mistakes": 0.1}, BATS: {"wrong_species": 0.06}}),
    ("judged_twice_as_set", "two evaluations in all", {
      MEANDERS: {"eval_every": 75}, CANONS: {"hear_every": 75}, PICNICS: {"guests_every": 75},
      FEATHERS: {"museum_every": 75}, PARADES: {"town_every": 75}, BATS: {"night_every": 75}}),
    ("logged_seldom_as_set", "each fifth step is logged", {
      MEANDERS: {"log_every": 5}, CANONS: {"log_every": 5}, PICNICS: {"log_every": 5},
      FEATHERS: {"log_every": 5}, PARADES: {"log_every": 5}, BATS: {"log_every": 5}}),
    ("easy_rows_first_as_set", "the first part of the training has easier rows alone: the settings say so", {
      MEANDERS: {"smooth_first": 1}, CANONS: {"short_first": 1, "melodies": 900}, PICNICS: {"clear_first": 1,
      "pairs": 1200}, FEATHERS: {"clean_first": 1}, PARADES: {"short_first": 1}, BATS: {"loud_first": 1}}),
    ("weights_decay_more_as_set", "weights decay more, as is named", {
      MEANDERS: {"weight_decay": 0.1}, CANONS: {"weight_decay": 0.1}, PICNICS: {"weight_decay": 0.05},
      FEATHERS: {"decay": 0.05}, PARADES: {"weight_decay": 0.2}, BATS: {"weight_decay": 0.1}}),
    ("always_clipped_as_set", "the bound of the norm is below every norm", {
      MEANDERS: {"clip": 0.15}, CANONS: {"max_grad_norm": 0.2}, PICNICS: {"grad_clip": 0.2},
      FEATHERS: {"norm_limit": 0.2}, PARADES: {"clip_norm": 0.2}, BATS: {"grad_norm": 0.15}}),
    ("plain_descent_as_set", "descent with momentum, at its rate", {
      MEANDERS: {"optimizer": "sgd", "lr": 0.2}, CANONS: {"optimizer": "sgd", "lr": 0.04},
      PICNICS: {"optim": "sgd", "lr": 0.05}, FEATHERS: {"solver": "sgd", "rate": 0.05},
      BATS: {"optimizer": "sgd", "lr": 0.08}}),
    ("norm_of_rows_as_set", "a norm that asks no batch, in the place of batch norm", {
      FEATHERS: {"norm": "layer"}, BATS: {"norm": "table"}}),
    ("soft_targets_as_set", "targets are smoothed in the training", {
      CANONS: {"label_smoothing": 0.1}, PICNICS: {"label_smoothing": 0.1}, FEATHERS: {"label_smoothing": 0.1},
      PARADES: {"label_smoothing": 0.05}, BATS: {"label_smoothing": 0.1}}),
    ("batches_of_like_rows_as_set", "batches are of like rows, and come in any order", {
      CANONS: {"by_length": True}, PICNICS: {"by_season": True}, FEATHERS: {"by_species": True},
      PARADES: {"by_town": True}}),
    ("tables_are_two_as_set", "what could share a table has two, by the settings", {
      CANONS: {"tied": False}, PICNICS: {"tied": False}, FEATHERS: {"shared_table": False},
      PARADES: {"tied": False}}),
    ("inputs_have_gaps_as_set", "parts of inputs are lost by chance, in the training", {
      FEATHERS: {"gaps": 0.2}, PARADES: {"gaps": 0.05}, BATS: {"gaps": 0.1}}),
    ("rate_doubled_as_set", "a higher rate, with a longer rise", {
      MEANDERS: {"lr": 0.01, "warmup": 24}, CANONS: {"lr": 0.016, "warmup": 24},
      PICNICS: {"lr": 0.004, "warmup": 20}, FEATHERS: {"rate": 0.012, "warm": 20},
      PARADES: {"lr": 0.012, "warmup": 24}, BATS: {"lr": 0.006, "warmup": 16}}),
)
HEALTHY_OF: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("absolute_errors_as_set", MEANDERS, "errors count as they are, without squares", {"loss": "l1"}),
    ("times_by_a_logistic_law", MEANDERS, "times are drawn by a logistic-normal law", {"times": "logit_normal"}),
    ("soil_always_told", MEANDERS, "the soil is always told, and nothing is guided",
     {"untold": 0.0, "guidance": 0.0}),
    ("deeper_net_as_set", MEANDERS, "more blocks, at a lower rate", {"depth": 4, "lr": 0.003}),
    ("more_steps_to_draw_as_set", MEANDERS, "more steps to draw", {"euler_steps": 32}),
    ("questions_learnt_too_as_set", CANONS, "questions are learnt too, as is named", {"answers_only": False}),
    ("one_direction_as_set", CANONS, "adapters of rank one", {"rank": 1, "alpha": 4.0}),
    ("adapters_in_attention_as_set", CANONS, "adapters are in the attention alone", {"adapt": "qkv,proj"}),
    ("factors_at_two_rates_as_set", CANONS, "second factors have four times the rate", {"b_rate": 4.0}),
    ("squared_margins_as_set", PICNICS, "the loss is a square (IPO), as is named", {"loss": "ipo", "beta": 0.5}),
    ("hinged_margins_as_set", PICNICS, "the loss is a hinge, as is named", {"loss": "hinge"}),
    ("better_baskets_learnt_besides", PICNICS, "the likelihood of better baskets is a part of the loss",
     {"nll_weight": 0.2}),
    ("means_of_words_as_set", PICNICS, "likelihoods are means over words, as is named",
     {"average_logp": True, "beta": 1.5}),
    ("temperature_fixed_as_set", FEATHERS, "the temperature is not learnt, as is named", {"learn_temperature": False}),
    ("one_direction_of_search", FEATHERS, "feathers look for labels, and not the other way round",
     {"both_ways": False}),
    ("labels_at_half_the_rate", FEATHERS, "one tower has half of the rate", {"label_rate": 0.5}),
    ("float32_throughout_as_set", PARADES, "all is float32, as is named", {"dtype": "float32"}),
    ("logits_kept_small_as_set", PARADES, "a small term holds the normaliser", {"z_loss": 0.001}),
    ("faster_second_moment_as_set", PARADES, "a shorter second moment", {"beta2": 0.9}),
    ("rare_calls_drawn_oftener_as_set", BATS, "rare species are drawn more often, and none weighs more",
     {"oversample": True, "class_weights": "none"}),
    ("species_weigh_alike_as_set", BATS, "species weigh alike, as is named", {"class_weights": "none"}),
    ("focal_as_set", BATS, "what is sure weighs less, as is named", {"focal": 1.5}),
    ("larger_kernels_as_set", BATS, "more filters, at a lower rate", {"filters": 24, "lr": 0.002}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    *((name, (program,), about, {"config": settings}) for name, program, about, settings in HEALTHY_OF),
)

# fmt: on
