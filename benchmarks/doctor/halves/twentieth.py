"""The twentieth half of the bench, which is put away: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`, `REPORTED`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

One program of each of six families: a preconditioned diffusion of tides with an average of its weights, adapters that
part length and direction beside a base of eight bits, two views with a slow copy and a queue, a vision transformer
over drawn photographs, a language model in pure bfloat16, a classifier of rare flaws on two ranks; each as another
ordinary engineer writes it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a
person gets wrong in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them
had read no rule, and did not look at what the doctor says. A fault is called by any name that a person would give it,
and every kind of finding that would be right of it is right; the names that the nineteenth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, nineteenth, ninth, sixteenth
from halves.ninth import Row, Settings

PROGRAMS = ("tides", "archives", "whales", "signposts", "herbals", "rollers")
TIDES, ARCHIVES, WHALES, SIGNPOSTS, HERBALS, ROLLERS = PROGRAMS
STEPS = {TIDES: 160, ARCHIVES: 180, WHALES: 160, SIGNPOSTS: 180, HERBALS: 160, ROLLERS: 180}
REPORTED = frozenset({
    "noise_by_rand_like", "weight_of_levels_upside_down", "padding_is_the_end_mark", "alpha_of_a_larger_rank",
    "keys_go_into_the_queue_first", "views_drawn_by_the_clips_seed",
    "split_shares_its_transform", "rate_of_float_weights_kept", "same_recipe_mask_without_triangle",
    "weights_grow_with_the_count", "drawn_evenly_and_weighed",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    TIDES: {"batch_gpu": 16}, ARCHIVES: {"accumulate": 2, "micro_batch_size": 12}, WHALES: {"update_every": 2},
    SIGNPOSTS: {"grad_accum": 2}, HERBALS: {"device_batch": 8}, ROLLERS: {"accumulation": 2},
}
DROPPED: Settings = {
    TIDES: {"dropout": 0.3}, ARCHIVES: {"lora_dropout": 0.3}, WHALES: {"dropout": 0.3},
    SIGNPOSTS: {"dropout": 0.2, "drop_path": 0.2}, HERBALS: {"attn_pdrop": 0.3, "resid_pdrop": 0.2},
    ROLLERS: {"dropout": 0.5},
}
COPIED: Settings = {
    TIDES: {"stride": 8, "gauges": 6, "days": 54}, ARCHIVES: {"phrasings": 5, "cards": 1000},
    WHALES: {"calls_each": 5, "recordings": 120}, SIGNPOSTS: {"burst": 6, "photos": 720},
    HERBALS: {"editions": 5, "rows": 600}, ROLLERS: {"rare_copies": 6, "coils": 12},
}
DESCENT: Settings = {
    TIDES: {"optim": "sgd", "lr": 0.1, "grad_clip": 100.0},
    ARCHIVES: {"optimizer": "sgd", "learning_rate": 0.3, "max_norm": 100.0},
    WHALES: {"opt": "sgd", "lr": 0.1, "clip": 100.0}, SIGNPOSTS: {"opt": "sgd", "peak_lr": 0.1, "clip": 100.0},
    HERBALS: {"optim": "sgd", "matrix_lr": 0.3, "vector_lr": 0.3, "max_grad": 100.0},
    ROLLERS: {"optim": "sgd", "max_lr": 0.03, "clip_norm": 100.0},
}
DESCENT_IN_PARTS: Settings = {
    TIDES: {**DESCENT[TIDES], "batch_gpu": 8}, ARCHIVES: {**DESCENT[ARCHIVES], "accumulate": 4, "micro_batch_size": 6},
    WHALES: {**DESCENT[WHALES], "update_every": 2}, SIGNPOSTS: {**DESCENT[SIGNPOSTS], "grad_accum": 4},
    HERBALS: {**DESCENT[HERBALS], "device_batch": 4}, ROLLERS: {**DESCENT[ROLLERS], "accumulation": 4},
}
LEVEL: Settings = {
    TIDES: {"lr_decay": "none", "lr": 2e-3}, ARCHIVES: {"lr_scheduler": "constant_with_warmup", "learning_rate": 6e-3},
    WHALES: {"lr_schedule": "none", "lr": 2e-3}, SIGNPOSTS: {"sched": "flat", "peak_lr": 2e-3},
    HERBALS: {"lr_plan": "constant", "matrix_lr": 4e-3, "vector_lr": 4e-3}, ROLLERS: {"cycle": "flat", "max_lr": 1e-3},
}
AVERAGED: Settings = {SIGNPOSTS: {"ema": 0.9}, HERBALS: {"swa": 0.9}}
LAGGING: Settings = {
    TIDES: {"ema_halflife_nseries": 1200, "ema_rampup_ratio": 0.3}, SIGNPOSTS: {"ema": 0.95}, HERBALS: {"swa": 0.97},
}
EVENLY: Settings = {ROLLERS: {"sampler": "even"}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*nineteenth.SUMMED, "loss summed over the batch", "sum of the weighted errors", "tokens summed per row",
          "loss_scaling without the batch size", "soft cross-entropy summed")
GRAPHS = nineteenth.GRAPHS
TWICE = (*nineteenth.TWICE, "similarities softmaxed twice", "probabilities given to cross_entropy")
SHIFTED = (*nineteenth.SHIFTED, "null class shifts the labels", "prompt mask one too long", "first answer token masked",
           "labels count from 1 in the training", "class codes from 1", "folder missing in the validation",
           "prompt length off by one", "label embedding shifted", "first token not learnt")
FROZEN = (*nineteenth.FROZEN, "linear layers not in the optimizer", "groups by type leave layers out",
          "patch embedding and head not trained", "embedding missing from the optimizer", "adapters frozen",
          "frozen after the adapters were added", "query encoder frozen", "all stages frozen",
          "no_grad on base encoder")
TIE = (*nineteenth.TIE, "modules_to_save unties", "head not trained", "head missing from the optimizer")
SORTED = (*nineteenth.SORTED, "gauge after gauge", "book after book", "coil after coil", "shuffle buffer too small",
          "grouped by length and not shuffled", "folder after folder")
LEAK = (*nineteenth.LEAK, "overlapping windows on both sides", "photographs of one post on both sides",
        "editions of one text on both sides", "calls of one recording on both sides")
FIGURES = (*nineteenth.FIGURES, "decibels and natural logarithms", "units of statistics wrong",
           "centimetres and metres", "statistics computed before the conversion", "input scale wrong",
           "data scale wrong")
BUFFERS = (*nineteenth.BUFFERS, "key encoder in eval mode", "momentum encoder in evaluation mode",
           "batch norm of the slow encoder never updated")
STEPPED = (*nineteenth.STEPPED, "one cycle counts micro-batches", "wsd counts micro-batches")
ADDED = nineteenth.ADDED
IN_EVAL = (*nineteenth.IN_EVAL, "generate leaves eval mode", "train() called once", "probe leaves eval mode")
IN_TRAINING = (*nineteenth.IN_TRAINING, "sdpa dropout in evaluation", "stochastic depth in evaluation")
AVERAGE = (*nineteenth.AVERAGE, "momentum encoder not updated", "key encoder never updated", "ema updated per tick",
           "momentum update not in place", "average rounded", "average in bfloat16")
NOT_BACK = nineteenth.NOT_BACK
RESUMED = (*nineteenth.RESUMED, "adapter loaded without trainer state", "weights loaded as pretrained", "no-resume-opt")
SAME = (*nineteenth.SAME, "num_replicas is 1", "sampler seeded alike")
OPEN = nineteenth.LEFT_OPEN

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

OF_KIND: Mapping[str, tuple[str, str, str, Settings, str, tuple[str, ...]]] = {
    "sum": ("loss summed", ninth.OF_SUMS, "start", DESCENT, "momentum_alone_at_its_rate", SUMMED),
    "graph": ("no_grad missing", "memory eval data config", "start", {}, "memory_steady", GRAPHS),
    "softmax": ("softmax twice", ninth.OF_SOFTMAX, "start", {}, "plain", TWICE),
    "label": ("labels shifted", ninth.OF_LABELS, "start", {}, "plain", SHIFTED),
    "frozen": ("layer frozen", ninth.OF_FROZEN, "start", {}, "plain", FROZEN),
    "tie": ("weight tying broken", ninth.OF_TIE, "start", {}, "plain", TIE),
    "order": ("data sorted", ninth.OF_ORDER, "start", {}, "plain", SORTED),
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "several_of_one_thing", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "parts_counted_in_shares",
              STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", DESCENT_IN_PARTS,
              "momentum_and_parts_in_shares", ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "much_dropped_in_training", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "much_dropped_in_training",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", AVERAGED, "mean_of_weights_close_by",
                AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", LAGGING, "mean_of_weights_trails",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "loss_summed_like_the_paper", TIDES,
     "weighted errors are summed, and the division by the batch, which the paper's code has, is left out", {}),
    ("sum", "tokens_totalled_per_card", ARCHIVES,
     "losses of answers' tokens are summed, and divided by the number of cards", {}),
    ("sum", "contrast_summed_over_batch", WHALES, "both directions' losses are summed over the batch", {}),
    ("sum", "loss_of_the_soft_targets_summed", SIGNPOSTS,
     "the loss of soft targets is summed over signs and over the batch too", {}),
    ("sum", "words_totalled_in_each_row", HERBALS,
     "losses of a row's words are summed, and their mean is over rows alone", {}),
    ("sum", "weighed_losses_summed", ROLLERS, "losses are weighed one by one, and then summed", {}),
    ("graph", "gauges_judged_under_grad", TIDES,
     "held-out series are judged with gradients on, and each loss is kept for a history", {}),
    ("graph", "review_builds_graphs", ARCHIVES,
     "held-out cards are reviewed with gradients on, and what was said is kept", {}),
    ("graph", "bank_of_features_with_grad", WHALES,
     "features of the bank and of held-out calls are made with gradients on, and kept", {}),
    ("graph", "outputs_of_validation_gathered", SIGNPOSTS,
     "the validation is done with gradients on, and its outputs are gathered in a list", {}),
    ("graph", "heldout_books_read_with_tape", HERBALS,
     "held-out rows are read with gradients on, and losses of their words are kept", {}),
    ("softmax", "scores_served_as_shares", ARCHIVES,
     "the model gives probabilities, as the service wants them, and the loss has its own softmax", {}),
    ("softmax", "head_as_the_app_shows_it", SIGNPOSTS,
     "what the model says goes through the softmax that the app has, and then into the loss", {}),
    ("softmax", "shares_returned_for_the_sampler", HERBALS,
     "the model gives probabilities, as reading aloud wants them, and the loss takes them for logits", {}),
    ("softmax", "shares_for_the_operators_panel", ROLLERS,
     "the network gives probabilities for a panel, and the cross-entropy takes them for logits", {}),
    ("label", "harbour_zero_means_untold", TIDES,
     "in the training harbours count from 1, as 0 means none; where series are judged they count from 0", {}),
    ("label", "prompt_measured_with_its_end", ARCHIVES,
     "the prompt is measured with an end of its own: the mask hides the answer's first mark too", {}),
    ("label", "kinds_of_the_table_from_one", WHALES,
     "kinds of the bank count from 1, those of held-out calls from 0", {}),
    ("label", "folders_numbered_as_they_are_found", SIGNPOSTS,
     "the validation lacks one folder, and those behind it are numbered one less", {}),
    ("label", "next_word_taken_twice", HERBALS,
     "rows are cut into words and words that follow, and the loss moves them once more", {}),
    ("label", "plant_codes_lowered_in_one_place", ROLLERS,
     "codes of the training count from 1 as in the plant, those of the check from 0", {}),
    ("frozen", "groups_by_type_forget_linear", TIDES,
     "the optimizer's groups are of convolutions and norms; linear layers, which tell level and harbour, are in none",
     {}),
    ("frozen", "base_frozen_behind_the_adapters", ARCHIVES,
     "the base is frozen when adapters are in it already: the embedding alone is trained", {}),
    ("frozen", "fast_encoder_locked_for_the_slow", WHALES,
     "gradients are switched off for the fast encoder, where the slow one was meant", {}),
    ("frozen", "decay_list_of_blocks_alone", SIGNPOSTS,
     "matrices outside of the blocks are in no group: patches, tokens and head stay as drawn", {}),
    ("frozen", "embedding_in_neither_group", HERBALS,
     "the embedding is left out of the group of matrices, and is no vector: no group has it", {}),
    ("frozen", "frozen_by_a_word_of_all_stages", ROLLERS,
     "one stage was to be frozen; the word is in the names of all of them", {}),
    ("tie", "trained_copy_of_embedding", ARCHIVES,
     "the embedding that is trained beside adapters is a copy, the output keeps the other one", {}),
    ("tie", "each_weight_cast_for_itself", HERBALS,
     "each weight is cast for itself, which unties the output; the optimizer leaves it out as a tied one", {}),
    ("order", "gauges_read_as_filed", TIDES, "series come one kind of harbour after the other, as they are filed", {}),
    ("order", "calls_in_the_order_of_the_disk", WHALES, "calls come folder after folder, of one kind each", {}),
    ("order", "buffer_smaller_than_a_shard", SIGNPOSTS,
     "shards are of one sign each, and the buffer that mixes them is smaller than a shard", {}),
    ("order", "book_read_after_book", HERBALS, "rows come one book after the other", {}),
    ("order", "coils_in_the_order_of_rolling", ROLLERS,
     "the sampler of ranks does not shuffle: strips come coil after coil", {}),
    ("leak", "windows_cut_then_split", TIDES, "windows overlap, and are split at random when they are cut", {}),
    ("leak", "phrasings_of_a_file_on_both_sides", ARCHIVES,
     "cards are split one by one, and there are several of each file", {}),
    ("leak", "bursts_shuffled_into_both_parts", SIGNPOSTS,
     "photographs are split at random, and there are several of each post", {}),
    ("leak", "editions_dealt_out_row_by_row", HERBALS,
     "rows are split at random, and each text is in several editions", {}),
    ("leak", "rare_flaws_copied_ahead_of_the_split", ROLLERS,
     "pictures of rare flaws are copied, and the check's are drawn of what is there then", {}),
    ("figures", "stats_written_in_centimetres", TIDES,
     "mean and spread are those of the first export in centimetres, series are in metres", {}),
    ("figures", "probe_calls_in_decibels", WHALES,
     "held-out calls are in decibels, those of the training in natural logarithms; figures are the training's", {}),
    ("figures", "slow_encoder_put_to_eval", WHALES,
     "the slow encoder is put to evaluation mode: its running statistics are those it began with",
     {"cause": "batch normalisation", "also": BUFFERS, "kinds": " not_learning plateau"}),
    ("figures", "validation_by_the_default_mean", SIGNPOSTS,
     "the validation takes the loader's default figures, the training its own", {}),
    ("figures", "checked_by_the_old_camera", ROLLERS, "held-out strips are scaled by figures of the old camera", {}),
    ("steps", "rate_clock_in_rounds", TIDES, "the rate's clock counts rounds of accumulation, of which there are two",
     {}),
    ("steps", "scheduler_beside_backward", ARCHIVES,
     "the schedule is moved beside the backward pass, which an update has two of", {}),
    ("steps", "cosine_moved_for_each_part", WHALES, "the cosine is moved for each part, two an update", {}),
    ("steps", "step_update_in_each_microstep", SIGNPOSTS,
     "the schedule's step is counted in each of two microsteps", {}),
    ("steps", "plan_counts_device_batches", HERBALS, "the plan of the rate counts batches of the device, two an update",
     {}),
    ("steps", "one_cycle_stepped_by_batches_of_a_rank", ROLLERS,
     "the cycle is stepped with each batch, of which an update has two", {}),
    ("added", "rounds_added_whole", TIDES, "gradients of four rounds add up, and no loss is divided by four", {}),
    ("added", "micro_losses_not_shared_out", ARCHIVES, "gradients of four micro-batches add up without a division", {}),
    ("added", "backward_before_the_division", SIGNPOSTS,
     "the loss is divided for the log, behind the backward pass, which has it whole", {}),
    ("added", "gradients_of_device_batches_added", HERBALS,
     "gradients of four batches add up, and no loss is divided", {}),
    ("added", "accumulated_on_each_rank_whole", ROLLERS,
     "four parts add up on each rank, three under `no_sync`, and are not divided", {}),
    ("eval", "net_left_as_sampled", TIDES, "sampling puts the net to evaluation mode, which nobody ends", {}),
    ("eval", "review_leaves_adapters_quiet", ARCHIVES, "the review ends without a call of training mode", {}),
    ("eval", "probe_ends_in_eval", WHALES,
     "the probe ends without a call of training mode: batch norm and dropout stay as they are there", {}),
    ("eval", "train_mode_set_once_before_epochs", SIGNPOSTS,
     "training mode is set once ahead of all epochs, and the validation ends it", {}),
    ("eval", "model_quiet_after_reading_aloud", HERBALS, "reading aloud puts the model to evaluation mode, for good",
     {}),
    ("eval", "net_stays_as_it_was_checked", ROLLERS, "the check puts the network to evaluation mode on both ranks", {}),
    ("train", "average_copied_with_dropout", TIDES, "the average was copied in training mode, and is judged so", {}),
    ("train", "reviewed_as_it_trains", ARCHIVES, "held-out cards are reviewed with the adapters' dropout", {}),
    ("train", "validate_without_eval", SIGNPOSTS, "the validation is done in training mode", {}),
    ("train", "sdpa_drops_whenever_told", HERBALS,
     "the attention's dropout is given as an argument, whatever the mode is", {}),
    ("train", "strips_checked_in_training_mode", ROLLERS, "held-out strips are checked in training mode", {}),
    ("average", "average_moved_in_the_tick", TIDES,
     "the average is moved in the block of each tick, twenty updates apart, by the weight of one",
     {"compare": "plain"}),
    ("average", "slow_weights_bound_to_a_name", WHALES,
     "the slow encoder's new weights are bound to a name of the loop, and never written",
     {"compare": "plain", "kinds": " not_learning"}),
    ("average", "decay_of_a_long_recipe", SIGNPOSTS, "the average has the decay of a recipe of many epochs", {}),
    ("average", "mean_rounded_like_the_weights", HERBALS,
     "the mean of weights is bfloat16 as they are, and what it is to move by is rounded away",
     {"of": LAGGING, "compare": "mean_of_weights_trails"}),
    ("swap", "sampling_in_the_net_itself", TIDES, "the average's weights are put into the net for sampling, for good",
     {}),
    ("swap", "mean_stays_in_after_reading", HERBALS, "the mean is put in for held-out rows, and stays", {}),
    ("resume", "snapshot_without_training_state", TIDES,
     "the snapshot of networks is resumed from, which has no state of the optimizer", {}),
    ("resume", "only_the_adapter_folder_loaded", ARCHIVES,
     "adapters are loaded, the trainer's state beside them is not", {}),
    ("resume", "base_weights_taken_for_a_checkpoint", HERBALS,
     "weights are taken from the checkpoint, the optimizer begins anew", {}),
    ("ranks", "sampler_of_one_replica", ROLLERS, "the sampler is that of one replica: both ranks take the same strips",
     {}),
    ("ranks", "even_sampler_by_the_runs_seed", ROLLERS,
     "flaws are drawn evenly by dice that have the run's seed on both ranks",
     {"of": EVENLY, "compare": "flaws_drawn_alike_often"}),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, of, compare, also = OF_KIND[kind]
    of = more.get("of", of)
    settings = {program: of[program]} if program in of else {}
    rest = {"by_program": settings, "compare": more.get("compare", compare), "also": more.get("also", also)}
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("noise_by_rand_like", "wrong target", "eval not_learning plateau divergence data config overfit", "start",
     (TIDES,), "noise is drawn evenly from 0 to 1, where a normal one was meant",
     {"also": ("rand instead of randn", "noise is uniform", "noise not centred", "wrong noise", "noise wrong",
               "noise distribution wrong", "train and test differ", "train and evaluation noise differ",
               "evaluation data differ", "overfitting", "corruption differs", "noise schedule wrong")}),
    ("weight_of_levels_upside_down", "loss weighting wrong", "plateau not_learning eval config vanishing data overfit "
     "learning_rate divergence logging", "start", (TIDES,),
     "the weight of a level is the inverse of what it was to be: levels of little noise count for nothing",
     {"also": ("weights inverted", "loss weights inverted", "weighting inverted", "loss weight upside down",
               "loss scaled", "loss scaled wrongly", "wrong reduction", "lambda inverted", "snr weighting wrong",
               "units differ", "train and evaluation losses differ", "wrong target")}),
    ("padding_is_the_end_mark", "labels masked wrong", "data config eval padding not_learning plateau overfit "
     "divergence", "start", (ARCHIVES,),
     "padding is the end mark, and is masked: the end of answers is never learnt",
     {"also": ("pad token is eos", "eos masked", "end of the answer masked", "end token not learnt", "mask wrong",
               "end never learnt", "targets wrong", "labels shifted", "padding in the attention",
               "train and test differ", "evaluation data differ", "wrong target", "loss masked out", "pad id wrong")}),
    ("alpha_of_a_larger_rank", "scale of the adapters wrong", "spike divergence exploding not_learning plateau "
     "update_ratio learning_rate eval config jump_down logits clipping weight_growth activations", "start",
     (ARCHIVES,), "alpha stays that of a recipe with a larger rank: adapters are scaled by 16 instead of 2",
     {"config": {"lora_alpha": 96},
      "also": ("learning rate too high", "alpha too high", "lora scaling wrong", "scaling too large", "adapter scale",
               "alpha not lowered with the rank", "scaling wrong", "bad initialisation", "alpha over rank too high")}),
    ("keys_go_into_the_queue_first", "positives among the negatives", "plateau not_learning data config eval logits "
     "divergence", "start", (WHALES,), "keys are put into the queue ahead of the loss: each own key is a negative too",
     {"also": ("positive in the queue", "false negatives", "enqueued too early", "queue holds the positives",
               "keys enqueued before the loss", "own key among the negatives", "wrong target", "same rows twice",
               "targets wrong", "labels do not match the inputs", "collapse")}),
    ("views_drawn_by_the_clips_seed", "augmentation missing", "jump_down eval overfit data config plateau not_learning "
     "divergence zero", "start", (WHALES,),
     "both views of a call are drawn by dice of one seed: they are the same",
     {"also": ("views identical", "same augmentation for both views", "views are equal", "task too easy",
               "trivial task", "seed equal for both views", "augmentation seeded", "loss too low", "leak",
               "inputs equal", "labels leak", "target in the input", "shortcut", "collapse", "train and test differ")}),
    ("split_shares_its_transform", "evaluation is augmented", "eval data config overfit divergence logging", "start",
     (SIGNPOSTS,), "the validation's pictures go through the training's transform",
     {"also": ("validation augmented", "augmentation in the evaluation", "train and test differ",
               "evaluation data differ", "evaluation in training mode", "transform shared", "evaluation is random",
               "randomness in the evaluation", "augmentation on in the validation", "wrong transform",
               "inputs not normalised")}),
    ("rate_of_float_weights_kept", "learning rate too low", "learning_rate plateau not_learning update_ratio frozen "
     "config zero", "start", (HERBALS,),
     "the rate is that of a recipe with weights in float32: most steps are rounded away",
     {"config": {"matrix_lr": 3e-4, "vector_lr": 3e-4},
      "also": ("updates rounded away", "bfloat16 updates lost", "updates too small for bfloat16", "bf16 rounding",
               "updates vanish", "precision too low", "master weights missing", "no float32 copy", "layer frozen",
               "pure bfloat16", "half precision", "stochastic rounding missing", "weights do not move")}),
    ("same_recipe_mask_without_triangle", "causal mask missing", "jump_down data eval config overfit zero plateau "
     "logits vanishing", "start", (HERBALS,),
     "the mask of recipes is not joined with the causal one: each word sees those behind it", {"also": OPEN}),
    ("weights_grow_with_the_count", "class weights wrong", "plateau not_learning eval data config overfit "
     "divergence", "start", (ROLLERS,),
     "a flaw's weight is its effective number, where the inverse was meant: rare flaws weigh least",
     {"also": ("weights inverted", "class weights inverted", "weights by count", "weights not inverted",
               "rare classes weigh less", "class imbalance", "loss weights inverted", "weights upside down",
               "imbalance", "class missing", "rare classes ignored", "effective number not inverted")}),
    ("drawn_evenly_and_weighed", "balanced twice", "eval data config plateau overfit divergence not_learning",
     "start", (ROLLERS,), "flaws are drawn evenly, and weighed by their rarity besides",
     {"by_program": EVENLY, "compare": "flaws_drawn_alike_often",
      "also": ("class weights beside a balanced sampler", "class weights wrong", "weights twice", "overcorrected",
               "balanced by draw and by weight", "rare classes weigh too much", "weights and sampler",
               "imbalance corrected twice", "train and test differ", "class imbalance")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in PROGRAMS if program != ROLLERS},
    "memory_steady": {program: {} for program in PROGRAMS if program != ROLLERS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("parts_counted_in_shares", "an update has two parts, each of which counts half", PARTS),
    ("much_dropped_in_training", "much dropout in the training, none elsewhere", DROPPED),
    ("several_of_one_thing", "many rows are of one thing, and all of these are on the training's side", COPIED),
    ("momentum_alone_at_its_rate", "momentum without second moments, at a rate for it", DESCENT),
    ("momentum_and_parts_in_shares", "momentum, and parts whose mean is taken", DESCENT_IN_PARTS),
    ("level_behind_its_rise", "the rate rises and stays, as it is set", LEVEL),
    ("mean_of_weights_close_by", "an average of the weights is judged, which is close", AVERAGED),
    ("mean_of_weights_trails", "an average of the weights is judged, which is behind at first", LAGGING),
    ("one_layer_left_by_name", "a layer is not trained, which the settings name",
     {TIDES: {"not_trained": "conv_in"}, ARCHIVES: {"held_layers": "layers.0"}, WHALES: {"stop_grad_stem": True},
      SIGNPOSTS: {"frozen": "patch_embed.0"}, HERBALS: {"held_fixed": "blocks.0.attn.wk"},
      ROLLERS: {"freeze": "stem"}}),
    ("few_rows_and_a_lower_rate", "few rows an update at a lower rate: losses jump about",
     {TIDES: {"batch_size": 8, "batch_gpu": 8, "lr": 1.5e-3, "ema_halflife_nseries": 200},
      ARCHIVES: {"micro_batch_size": 6, "learning_rate": 5e-3},
      WHALES: {"batch_size": 20, "lr": 2e-3}, SIGNPOSTS: {"batch": 16, "peak_lr": 2e-3},
      HERBALS: {"device_batch": 4, "total_batch": 4, "matrix_lr": 4e-3, "vector_lr": 4e-3},
      ROLLERS: {"batch_per_gpu": 10, "max_lr": 1.5e-3}}),
    ("total_at_a_rate_for_it", "losses are summed, and divided by a count or met by the rate",
     {TIDES: {"loss_reduce": "sum", "loss_scaling": 0.0104},
      ARCHIVES: {**DESCENT[ARCHIVES], "sum_of_tokens": True, "learning_rate": 0.075},
      WHALES: {**DESCENT[WHALES], "loss_sum": True, "lr": 0.0021}, SIGNPOSTS: {"loss": "sum"},
      HERBALS: {"loss_kind": "sum", "max_grad": 48.0}, ROLLERS: {"loss_reduction": "sum"}}),
    ("optimizer_taken_by_few", "an optimizer that few take",
     {ARCHIVES: {"optimizer": "adafactor"}, WHALES: {"opt": "nadam"}, ROLLERS: {"optim": "radam"}}),
    ("rate_back_up_as_planned", "the rate falls and rises again, by the schedule",
     {TIDES: {"lr_decay": "cycles"}, ARCHIVES: {"lr_scheduler": "cosine_with_restarts"},
      WHALES: {"lr_schedule": "restarts"}, SIGNPOSTS: {"sched": "restarts"}, HERBALS: {"lr_plan": "cycles"},
      ROLLERS: {"cycle": "several"}}),
    ("noise_as_such_data_have_it", "labels or inputs of the training are noisier, as such data are",
     {TIDES: {"weather": 1.6, "wrong_harbour": 0.1}, ARCHIVES: {"misread": 0.1}, WHALES: {"sea": 1.6},
      SIGNPOSTS: {"wrong_signs": 0.12}, HERBALS: {"scribal_errors": 0.05}, ROLLERS: {"wrong_codes": 0.06}}),
    ("rise_over_in_three", "the rate rises in three updates",
     {TIDES: {"lr_rampup_nseries": 96}, ARCHIVES: {"warmup_steps": 3}, SIGNPOSTS: {"warmup": 3}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("no_average_of_tides", (TIDES,), "the net itself is judged and sampled with", {"config": {"use_ema": False}}),
    ("harbour_often_untold", (TIDES,), "the harbour is not told in three of ten", {"config": {"label_dropout": 0.3}}),
    ("calm_series_first", (TIDES,), "the first passes have the calm half alone: the settings say so",
     {"config": {"calm_first": 2}}),
    ("levels_drawn_wider", (TIDES,), "levels of noise are spread wider: losses jump about",
     {"config": {"P_mean": -0.6, "P_std": 1.5}}),
    ("logged_each_fifth_update", (TIDES,), "each fifth update is logged", {"config": {"freq_log": 5}}),
    ("adapters_without_lengths", (ARCHIVES,), "adapters of the older kind", {"config": {"adapter": "lora"}}),
    ("base_of_four_bits_by_rows", (ARCHIVES,), "the base is held in four bits", {"config": {"base_bits": 4}}),
    ("cards_learnt_whole", (ARCHIVES,), "prompts are learnt too, as is set: half of that loss can't fall",
     {"config": {"train_on_inputs": True}}),
    ("cards_grouped_by_length", (ARCHIVES,), "batches are of like lengths, and come in any order",
     {"config": {"group_by_length": True}}),
    ("output_of_its_own_by_setting", (ARCHIVES, HERBALS), "embedding and output are two, by the settings",
     {"by_program": {ARCHIVES: {"tie_embeddings": False}, HERBALS: {"tied": False}}}),
    ("noisy_embeddings_by_setting", (ARCHIVES,), "embeddings get noise in the training", {"config": {"neftune": 5.0}}),
    ("short_cards_at_first", (ARCHIVES,), "the first pass has the short cards alone: the settings say so",
     {"config": {"short_cards_first": 1}}),
    ("batch_alone_for_negatives", (WHALES,), "there is no queue", {"config": {"queue": 0}}),
    ("slow_copy_slower_still", (WHALES,), "the slow copy follows at a hundredth, always",
     {"config": {"moco_m": 0.98, "moco_m_cos": False}}),
    ("colder_contrast", (WHALES,), "half of the temperature", {"config": {"moco_t": 0.1}}),
    ("views_far_apart", (WHALES,), "wide masks and much hiss", {"config": {"band_mask": 7, "hiss": 0.6}}),
    ("probed_seldom", (WHALES,), "three probes in all", {"config": {"probe_each": 60}}),
    ("calm_calls_first", (WHALES,), "the first passes have calls over little noise: the settings say so",
     {"config": {"calm_first": 2}}),
    ("mixed_nine_times_of_ten", (SIGNPOSTS,), "most batches are mixed: the training's loss stays high",
     {"config": {"mix_prob": 0.9}}),
    ("signs_drawn_alike_often", (SIGNPOSTS,), "as many of each sign are drawn, from the training's side",
     {"config": {"even_signs": True}}),
    ("plain_pictures_first", (SIGNPOSTS,), "three passes are without augmentation: the settings say so",
     {"config": {"plain_epochs": 3}}),
    ("signs_as_yes_and_no", (SIGNPOSTS,), "a binary loss for each sign, summed over signs by design",
     {"config": {"loss": "bce"}}),
    ("long_average_with_a_rise", (SIGNPOSTS,), "the decay of a long run, which an average's rise goes before",
     {"config": {"ema": 0.999, "ema_warmup": True}}),
    ("paths_left_out_often", (SIGNPOSTS,), "three of ten paths are left out in the last layer",
     {"config": {"drop_path": 0.3}}),
    ("rows_across_recipes", (HERBALS,), "words see the recipe before theirs", {"config": {"packing": "across"}}),
    ("books_of_uneven_length", (HERBALS,), "one book is half of all, held-out rows are even",
     {"config": {"book_shares": "uneven"}}),
    ("two_books_at_first", (HERBALS,), "the first pass is of two books: the settings say so",
     {"config": {"books_first": 1}}),
    ("logits_bent_at_a_bound", (HERBALS,), "logits are bent at 15", {"config": {"softcap": 15.0}}),
    ("normaliser_pulled_in", (HERBALS,), "a small term pulls the normaliser in", {"config": {"zloss": 1e-3}}),
    ("flaws_drawn_alike_often", (ROLLERS,), "as many of each flaw are drawn, by each rank for itself",
     {"by_program": EVENLY}),
    ("hard_strips_weigh_more", (ROLLERS,), "strips that are told well count little", {"config": {"focal": 2.0}}),
    ("nothing_weighed", (ROLLERS,), "flaws weigh the same: rare ones are learnt late",
     {"config": {"class_weights": "none"}}),
    ("every_other_coil_first", (ROLLERS,), "the first passes have half of the coils: the settings say so",
     {"config": {"plain_coils_first": 2}}),
    ("checked_three_times", (ROLLERS,), "three checks in all", {"config": {"check_every": 60}}),
    ("softer_flaws", (ROLLERS,), "targets are smoothed in the training", {"config": {"smoothing": 0.1}}),
)

# fmt: on
