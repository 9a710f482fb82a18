"""The twenty-fifth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-fourth half: diffusion with an average that is judged, adapters beside a base
of four bits, preferences against a frozen copy, two towers for pictures and descriptions, a language model in float16
with a scaler, a classifier of heartbeats with rare classes on two ranks; each as another ordinary engineer writes it.
Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong in that
program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did
not look at what the doctor says. A fault is called by any name that a person would give it, and every kind of finding
that would be right of it is right; the names that the twenty-fourth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, ninth, sixteenth, twentyfourth
from halves.ninth import Row, Settings

PROGRAMS = ("plumes", "addresses", "directions", "costumes", "gambits", "heartbeats")
PLUMES, ADDRESSES, DIRECTIONS, COSTUMES, GAMBITS, HEARTBEATS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "one_time_for_the_batch", "judged_with_the_scheduler_by_default",
    "merged_for_dev_with_hooks_still_on", "dev_template_without_the_write_word",
    "reference_copied_anew_at_each_evaluation", "rows_cut_on_the_right_at_nine_words",
    "embeddings_normalised_over_the_batch", "caption_mask_is_of_the_padding",
    "cleared_in_the_loop_over_parts", "padding_counted_among_the_moves",
    "nets_drawn_apart_and_never_broadcast", "gradients_added_over_ranks",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    PLUMES: {"batch": 16, "micro_batches": 2}, ADDRESSES: {"batch": 8, "parts": 2},
    DIRECTIONS: {"pairs_a_batch": 8, "accumulation": 2}, COSTUMES: {"batch": 24, "splits": 2},
    GAMBITS: {"games_a_batch": 6, "accumulate": 2}, HEARTBEATS: {"beats_a_rank": 12, "accumulate": 2},
}
FOUR_PARTS: Settings = {
    PLUMES: {"batch": 8, "micro_batches": 4}, ADDRESSES: {"batch": 4, "parts": 4},
    DIRECTIONS: {"pairs_a_batch": 5, "accumulation": 4},
    COSTUMES: {"batch": 16, "splits": 4, "optimizer": "sgd", "lr": 0.2, "max_norm": 100.0, "weight_decay": 0.0},
    GAMBITS: {"games_a_batch": 4, "accumulate": 4},
    HEARTBEATS: {"beats_a_rank": 8, "accumulate": 4, "optimizer": "sgd", "lr": 0.1, "clip": 100.0},
}
DROPPED: Settings = {
    PLUMES: {"dropout": 0.25}, ADDRESSES: {"adapter_dropout": 0.3}, DIRECTIONS: {"dropout": 0.2},
    COSTUMES: {"dropout": 0.3}, GAMBITS: {"dropout": 0.2}, HEARTBEATS: {"drop": 0.3},
}
COPIED: Settings = {
    PLUMES: {"plumes": 300, "frames": 5}, ADDRESSES: {"spellings": 4, "requests": 800, "wrong_codes": 0.15},
    DIRECTIONS: {"answers_a_walk": 4, "walks": 700}, COSTUMES: {"photos_each": 4},
    GAMBITS: {"records_of_a_game": 4, "games": 700}, HEARTBEATS: {"beats_of_a_patient": 6},
}
TRAILING: Settings = {PLUMES: {"decay": 0.985}}
DESCENT: Settings = {
    COSTUMES: {"optimizer": "sgd", "lr": 0.2, "max_norm": 100.0, "weight_decay": 0.0},
    HEARTBEATS: {"optimizer": "sgd", "lr": 0.05, "clip": 100.0},
}
RARE_COPIED: Settings = {HEARTBEATS: {"copies_of_rare": 5, "class_weight": "none"}}
EVEN: Settings = {HEARTBEATS: {"draw": "even", "class_weight": "none"}}
HEAD_TOO: Settings = {ADDRESSES: {"train_head": True, "rate": 5e-3}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------


def several(*names: str) -> tuple[str, ...]:
    """Names, each once."""
    return tuple(dict.fromkeys(names))


SUMMED = several(*twentyfourth.SUMMED, "loss of a game summed", "loss summed over pixels", "loss summed over pairs")
MEANED = several(*twentyfourth.MEANED, "reference is summed and policy averaged", "lengths not taken out of both sides")
GRAPHS = several(*twentyfourth.GRAPHS, "no_grad decorator removed", "evaluation keeps graphs")
TWICE = twentyfourth.TWICE
SHIFTED = several(*twentyfourth.SHIFTED, "class list of the evaluation differs",
                  "captions of the file before", "rejected answers of another prompt", "pairs misaligned",
                  "classes mapped by their first appearance", "targets two ahead")
FROZEN = several(*twentyfourth.FROZEN, "embedding frozen with the reference", "adapters of the network not trained",
                 "adapters missing from the optimizer", "picture tower frozen", "text tower frozen",
                 "text tower not in the optimizer", "features frozen", "only the head is trained", "encoder frozen")
TIE = several(*twentyfourth.TIE, "head is a copy", "padded embedding unties", "tie lost at the padding")
SORTED = several(*twentyfourth.SORTED, "city after city", "chimney after chimney", "garment after garment",
                 "system after system", "class after class", "sorted by length")
LEAK = several(*twentyfourth.LEAK, "patients on both sides", "split by rows and not by groups")
FIGURES = several(*twentyfourth.FIGURES, "pictures of the evaluation in another range", "evaluation not standardised")
BUFFERS = several(*twentyfourth.BUFFERS, "buffers of the average not copied", "buffers not copied",
                  "running statistics of the evaluated copy are stale", "average has no running statistics",
                  "batch norm statistics not averaged")
STEPPED = twentyfourth.STEPPED
ADDED = twentyfourth.ADDED
IN_EVAL = twentyfourth.IN_EVAL
IN_TRAINING = several(*twentyfourth.IN_TRAINING, "average in training mode", "reference in training mode")
AVERAGE = several(*twentyfourth.AVERAGE, "ema of the net before its copy", "ema holds another net")
NOT_BACK = several(*twentyfourth.NOT_BACK, "backup is a reference", "state dict not cloned")
RESUMED = twentyfourth.RESUMED
ANEW = twentyfourth.ANEW
SAME = several(*twentyfourth.SAME, "sampler does not split", "sampler seeded alike", "num_replicas is 1")

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "versions_on_one_side", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "update_of_two_lots", STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "update_of_four_lots",
              ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropout_meant_so", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropout_meant_so",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING, "average_behind_by_its_decay",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "sum_over_a_picture_of_pixels", PLUMES, "squared errors are summed over a picture", {}),
    ("graph", "judge_lost_its_decorator", PLUMES, "the average is judged with gradients on, and figures are kept", {}),
    ("frozen", "lower_part_held_as_in_the_stage_before", PLUMES,
     "layers of the halved picture are held, as in a stage that was before", {}),
    ("order", "pictures_listed_and_not_shuffled", PLUMES, "pictures come chimney after chimney", {}),
    ("figures", "held_pictures_from_to_tensor_alone", PLUMES,
     "pictures of the evaluation go from 0 to 1, and those of the training from -1 to 1", {}),
    ("buffers", "shadow_takes_parameters_alone", PLUMES,
     "the average has no statistics of the batch norms: they are still those of the start", {}),
    ("steps", "schedule_goes_with_micro_batches", PLUMES, "the schedule is stepped with each part of an update", {}),
    ("added", "micro_batch_losses_in_full", PLUMES, "losses of parts are not divided by their number", {}),
    ("eval", "net_stays_as_the_drawing_needs_it", PLUMES,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "shadow_is_in_the_mode_of_its_copying", PLUMES,
     "the average is judged in training mode: with dropout, and statistics of its own batch", {}),
    ("average", "shadow_holds_the_net_from_before_its_copy", PLUMES,
     "the average follows a net that was copied then: the copy is trained", {}),
    ("swap", "before_is_no_copy_of_the_weights", PLUMES,
     "the weights put back behind an evaluation were not copied: the average stays in the net", {}),
    ("resume", "file_of_two_nets_and_no_more", PLUMES,
     "weights and their average are loaded; the optimizer and the schedule begin anew", {"also": ANEW}),
    ("sum", "words_of_an_answer_summed", ADDRESSES, "losses of an answer's words are summed, and divided by rows", {}),
    ("graph", "dev_answers_gathered_with_their_graph", ADDRESSES,
     "requests are evaluated with gradients on, and logits kept", {}),
    ("label", "labels_moved_in_collate_and_in_the_loss", ADDRESSES, "labels are shifted by one, twice, in the training",
     {}),
    ("label", "length_of_the_request_with_an_end_word", ADDRESSES,
     "the request is counted one word too long: the answer's first word is not learnt", {}),
    ("frozen", "groups_of_attention_adapters_alone", ADDRESSES,
     "the optimizer has the adapters of the attention, and not those of the network behind it", {}),
    ("frozen", "lower_block_held_by_the_start_of_its_name", ADDRESSES,
     "the lower block is held by its name, and the adapters' names begin alike", {}),
    ("tie", "head_of_float32_is_a_copy", ADDRESSES,
     "the head that is trained is a copy of the embedding, which stays as it was",
     {"of": HEAD_TOO, "compare": "head_trained_with_its_adapters"}),
    ("order", "shuffle_left_false_as_in_the_dev_loader", ADDRESSES, "addresses come city after city", {}),
    ("steps", "schedule_stepped_for_each_part", ADDRESSES, "the schedule is stepped with each part of an update", {}),
    ("added", "parts_add_up_to_their_sum", ADDRESSES, "losses of parts are not divided by their number", {}),
    ("eval", "adapters_not_set_to_train_again", ADDRESSES,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "dropout_of_adapters_on_in_dev", ADDRESSES, "requests are evaluated with dropout in force", {}),
    ("resume", "adapters_read_back_and_nothing_beside", ADDRESSES,
     "adapters are loaded; the optimizer and the schedule begin anew", {"also": ANEW}),
    ("sum", "pairs_added_up_in_the_loss", DIRECTIONS, "losses of pairs are summed", {}),
    ("sum", "reference_summed_and_policy_averaged", DIRECTIONS,
     "log-probabilities of the frozen copy are sums over words, those of the policy are means",
     {"also": MEANED, "cause": "wrong reduction"}),
    ("graph", "held_margins_with_a_graph", DIRECTIONS, "pairs are evaluated with gradients on, and margins kept", {}),
    ("label", "logprobs_of_the_same_place", DIRECTIONS,
     "probabilities of words are read at their own places in the training, and not one before", {}),
    ("label", "worse_answers_of_the_next_walk", DIRECTIONS,
     "the worse answer of a pair is the one to the walk that comes next in the file", {}),
    ("frozen", "words_shared_with_the_reference_and_frozen", DIRECTIONS,
     "the frozen copy shares the embedding with the policy, to save memory, and freezes it", {}),
    ("order", "walks_in_the_order_of_their_length", DIRECTIONS, "pairs come from short to long in each pass", {}),
    ("leak", "pairs_cut_where_walks_are_not", DIRECTIONS, "pairs of one walk come to lie on both sides", {}),
    ("steps", "plan_is_asked_in_each_part", DIRECTIONS, "the rate moves on with each part of an update", {}),
    ("added", "backward_of_the_undivided_objective", DIRECTIONS, "losses of parts are not divided by their number", {}),
    ("eval", "policy_judged_and_left_so", DIRECTIONS, "the policy is not set back to training behind an evaluation",
     {}),
    ("train", "held_pairs_meet_dropout", DIRECTIONS, "pairs are evaluated with the policy dropping", {}),
    ("train", "reference_drops_as_it_was_built", DIRECTIONS, "the frozen copy is in training mode, and drops",
     {"kinds": " plateau rl clipping"}),
    ("resume", "policy_file_without_squares", DIRECTIONS,
     "the policy's weights are loaded, and no state of the optimizer", {}),
    ("sum", "both_directions_summed", COSTUMES, "losses of rows are summed over the batch",
     {"of": DESCENT, "compare": "descent_with_momentum_set"}),
    ("softmax", "similarities_given_as_shares", COSTUMES,
     "similarities go through a softmax, and then into a loss that has its own", {}),
    ("graph", "gallery_kept_with_its_history", COSTUMES, "the gallery is embedded with gradients on, and scores kept",
     {}),
    ("label", "captions_of_the_file_before", COSTUMES, "each picture stands beside the description of the row before",
     {}),
    ("frozen", "picture_tower_held_though_it_is_new", COSTUMES,
     "the tower of pictures is held as if it were pretrained, though it begins anew", {}),
    ("frozen", "text_layers_behind_the_words_not_in_groups", COSTUMES,
     "the optimizer has the words of the text tower, and not the layers behind them", {}),
    ("order", "lots_of_the_wardrobe_as_they_hang", COSTUMES, "costumes come garment after garment", {}),
    ("leak", "photos_split_and_not_costumes", COSTUMES, "photographs of one costume come to lie on both sides", {}),
    ("figures", "gallery_pictures_not_standardised", COSTUMES,
     "pictures of the gallery are not standardised as those of the training are", {}),
    ("buffers", "gallery_net_gets_parameters_alone", COSTUMES,
     "the copy that embeds the gallery gets parameters, and not the statistics of batch norm", {}),
    ("steps", "schedule_inside_the_splits", COSTUMES, "the schedule is stepped with each part of an update", {}),
    ("added", "splits_each_with_a_whole_loss", COSTUMES, "losses of parts are not divided by their number", {}),
    ("eval", "towers_stay_as_the_gallery_needs_them", COSTUMES,
     "towers are not set back to training behind the gallery", {}),
    ("train", "gallery_embedded_in_the_mode_of_training", COSTUMES,
     "the gallery is embedded in training mode: with dropout, and statistics of its own", {}),
    ("resume", "towers_loaded_without_their_moments", COSTUMES,
     "weights are loaded, and neither the optimizer's state nor the schedule's", {"also": ANEW}),
    ("sum", "bits_of_a_game_added", GAMBITS, "losses of moves are summed, and divided by games", {}),
    ("softmax", "moves_as_shares_into_the_loss", GAMBITS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("graph", "validation_bits_kept_live", GAMBITS, "games are validated with gradients on, and outputs kept", {}),
    ("label", "targets_cut_a_word_further", GAMBITS, "targets are shifted by one, twice, in the training", {}),
    ("frozen", "table_is_in_neither_group", GAMBITS,
     "groups are of linear layers and of norms: the table, which is the head too, is in neither", {}),
    ("tie", "table_padded_to_eights_behind_the_tie", GAMBITS,
     "the table is made longer behind the tie: the head keeps the matrix that was", {}),
    ("order", "games_by_system_as_the_archive_has_them", GAMBITS, "games come system after system", {}),
    ("steps", "iteration_counts_parts", GAMBITS, "the rate moves on with each part of an update", {}),
    ("added", "scaled_loss_not_divided", GAMBITS, "losses of parts are not divided by their number", {}),
    ("eval", "estimate_leaves_the_model_in_eval", GAMBITS, "the model is not set back to training behind a validation",
     {}),
    ("train", "estimate_without_eval", GAMBITS, "games are validated with dropout in force", {}),
    ("resume", "checkpoint_of_weights_and_iteration", GAMBITS,
     "the model is loaded and the count of steps; the optimizer and the scaler begin anew", {}),
    ("sum", "weighted_ce_summed", HEARTBEATS, "weighted losses are summed, and not divided",
     {"of": DESCENT, "compare": "descent_with_momentum_set"}),
    ("softmax", "probabilities_for_the_monitor", HEARTBEATS,
     "the net gives probabilities, and the loss has its own softmax", {}),
    ("label", "classes_of_val_by_first_appearance", HEARTBEATS,
     "classes of the evaluation are counted in the order in which they appear there", {}),
    ("frozen", "features_held_for_a_linear_probe", HEARTBEATS,
     "convolutions are held as for a pretrained net, though they begin anew", {}),
    ("order", "sampler_that_keeps_the_order", HEARTBEATS, "beats come class after class", {}),
    ("leak", "beats_split_and_not_patients", HEARTBEATS, "beats of one patient come to lie on both sides", {}),
    ("figures", "val_beats_in_millivolts", HEARTBEATS, "beats of the evaluation are not scaled", {}),
    ("buffers", "momentum_as_another_library_counts_it", HEARTBEATS,
     "momentum of batch norm is what another library means by it: statistics hardly move", {}),
    ("steps", "schedule_in_the_loop_over_parts", HEARTBEATS, "the schedule is stepped with each part of an update", {}),
    ("added", "parts_summed_before_the_reduce", HEARTBEATS, "losses of parts are not divided by their number", {}),
    ("eval", "training_continues_in_eval", HEARTBEATS, "the net is not set back to training behind an evaluation", {}),
    ("train", "beats_judged_in_training_mode", HEARTBEATS,
     "beats are evaluated in training mode: with dropout, and statistics of their own batch", {}),
    ("ranks", "sampler_made_before_the_group", HEARTBEATS,
     "the sampler is made with one process of one: each rank has all rows in one order", {}),
    ("ranks", "even_draw_by_the_same_seed", HEARTBEATS, "each rank draws classes evenly by one seed",
     {"of": EVEN, "compare": "classes_drawn_evenly"}),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, of, compare, also = OF_KIND[kind]
    of = more.get("of", of)
    rest = {"by_program": {program: of.get(program, {})}, "compare": more.get("compare", compare),
            "also": more.get("also", also)}  # fmt: skip
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("one_time_for_the_batch", "one time for the whole batch", "spike divergence plateau eval data config clipping",
     "start", (PLUMES,), "one time is drawn for all rows of a batch: losses jump with it",
     {"also": ("timestep drawn once a batch", "same timestep for all rows", "time not drawn for each row",
               "timesteps not independent", "loss too noisy", "noise level shared by the batch",
               "randint of the wrong size", "one timestep per batch", "gradient noise too large",
               "effective batch too small", "batch too small")}),
    ("judged_with_the_scheduler_by_default", "noise schedule of the evaluation differs", "eval overfit data config "
     "divergence", "start", (PLUMES,),
     "the training's noise grows by a cosine, and the evaluation's by a line, as it does by default",
     {"also": ("wrong noise schedule", "betas differ", "schedules of noise differ", "another scheduler in evaluation",
               "train and test differ", "evaluation data differ", "evaluation inputs differ", "sampler differs",
               "validation inputs differ", "noise levels differ", "scheduler config not passed on",
               "preprocessing differs")}),
    ("merged_for_dev_with_hooks_still_on", "adapters counted twice", "eval overfit data config divergence", "start",
     (ADDRESSES,), "adapters are merged into the base for an evaluation, and their hooks add them again",
     {"also": ("adapters applied twice", "merged and not disabled", "adapter merged twice", "scaling doubled",
               "lora merged twice", "double adapters", "weights of the evaluation differ", "train and test differ",
               "evaluated weights are not the trained ones", "merge wrong", "evaluation data differ",
               "merged into four bits", "model of the evaluation differs")}),
    ("dev_template_without_the_write_word", "prompt template differs", "eval overfit data config divergence", "start",
     (ADDRESSES,), "requests of the evaluation lack the word behind which an answer begins",
     {"also": ("template of the evaluation differs", "chat template differs", "generation prompt missing",
               "add_generation_prompt missing", "train and test differ", "evaluation data differ",
               "preprocessing differs", "tokenised differently", "prompt format differs", "separator missing",
               "evaluation inputs differ", "prompts of the evaluation differ", "tokenizer mismatch")}),
    ("reference_copied_anew_at_each_evaluation", "reference moves with the policy", "spike divergence plateau rl eval "
     "data config not_learning zero jump_down", "start", (DIRECTIONS,),
     "the frozen copy is made anew from the policy at each evaluation: margins begin at 0 again",
     {"also": ("reference not frozen", "reference updated", "reference synced with the policy", "reference wrong",
               "reference is the policy", "reference model refreshed", "reference overwritten", "sync_ref_model",
               "margins fall back to zero", "reference replaced", "reference copied from the policy")}),
    ("rows_cut_on_the_right_at_nine_words", "answers cut off", "eval plateau data config not_learning rl divergence "
     "overfit padding zero", "start", (DIRECTIONS,),
     "rows of the training are cut behind nine words: of both answers the same begin is left",
     {"also": ("truncated on the wrong side", "max_length too small", "truncation", "answers truncated",
               "rows truncated", "truncation side wrong", "sequences cut", "length too short", "train and test differ",
               "evaluation data differ", "end of the answer not learnt", "preprocessing differs",
               "context too short")}),
    ("embeddings_normalised_over_the_batch", "wrong dimension", "logits plateau not_learning eval config data "
     "divergence overfit vanishing", "start", (COSTUMES,),
     "embeddings are normalised over the rows of the batch in the training, and not over their numbers",
     {"also": ("normalised over the wrong dimension", "normalised over the batch", "dim=0", "embeddings not normalised",
               "normalisation wrong", "normalisation over the wrong axis", "wrong axis", "train and test differ",
               "features not normalised", "scale of the similarities wrong", "evaluation data differ",
               "cosine similarities wrong")}),
    ("caption_mask_is_of_the_padding", "mask upside down", "not_learning plateau padding data config eval zero frozen "
     "vanishing", "start", (COSTUMES,), "the mean of a description is over its padding, and not over its words",
     {"also": ("mask inverted", "padding pooled", "mask of the padding is reversed", "padding attended",
               "pooled over padding", "padding not masked", "attention mask inverted", "attention mask wrong",
               "words masked out", "mask wrong", "padding in the mean", "key_padding_mask inverted",
               "captions not read", "text not used")}),
    ("cleared_in_the_loop_over_parts", "gradients cleared too often", "missing_zero_grad vanishing eval learning_rate "
     "logging config plateau clipping overfit data update_ratio", "start", (GAMBITS,),
     "gradients are cleared before each part of an update: the last part alone counts, with a quarter of its gradient",
     {"by_program": FOUR_PARTS, "compare": "update_of_four_lots", "also": (
         "zero_grad in the accumulation", "zero_grad in the wrong place", "only the last micro-batch counts",
         "gradient accumulation broken", "gradient accumulation scaled wrongly", "accumulated gradients lost",
         "zero_grad inside the loop", "micro-batches thrown away", "gradients thrown away", "zero_grad too often",
         "accumulation divided twice", "effective batch too small")}),
    ("padding_counted_among_the_moves", "padding learnt", "eval padding data config overfit divergence logging "
     "jump_down", "start", (GAMBITS,),
     "padding behind a game is learnt too in the training: losses are means over many easy words",
     {"also": ("padding not masked", "padding in the loss", "ignore_index missing", "pad tokens learnt",
               "pad tokens in the loss", "labels of padding not ignored", "padding counted in the loss",
               "loss mask missing", "loss mask wrong", "wrong reduction", "train and test differ",
               "mean over all places", "padding averaged in")}),
    ("nets_drawn_apart_and_never_broadcast", "weights differ", "desync plateau eval config logging divergence "
     "not_learning", "start", (HEARTBEATS,),
     "each rank draws a net by a seed of its own, and none is sent to the others",
     {"also": ("weights differ across ranks", "models begin differently", "initial weights not broadcast",
               "broadcast missing", "ranks begin with other weights", "ranks drift apart", "ranks disagree",
               "ranks not synchronised", "parameters not synchronised", "different initialisation on each rank",
               "seed differs before the model is made", "ddp bypassed")}),
    ("gradients_added_over_ranks", "gradients summed over ranks", "exploding clipping learning_rate spike divergence "
     "config logging plateau not_learning update_ratio logits eval nonfinite desync", "start", (HEARTBEATS,),
     "gradients of ranks are added, and not divided by their number",
     {"by_program": DESCENT, "compare": "descent_with_momentum_set", "also": (
         "gradients not averaged", "not divided by the world size", "all_reduce without a division",
         "gradients added over ranks", "learning rate too high", "gradients too large", "wrong reduction",
         "loss summed", "gradient sum over ranks", "world size not divided out", "effective learning rate doubled",
         "gradients scaled by the number of ranks")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (PLUMES, ADDRESSES, DIRECTIONS, COSTUMES, GAMBITS)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("update_of_two_lots", "an update has two micro-batches, whose losses are halved", PARTS),
    ("update_of_four_lots", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("dropout_meant_so", "much dropout in the training, none in the evaluation", DROPPED),
    ("versions_on_one_side", "things come in several versions, all of which are on the training's side", COPIED),
    ("average_behind_by_its_decay", "an average of weights is judged, which trails behind at first", TRAILING),
    ("descent_with_momentum_set", "descent with momentum, at its rate", DESCENT),
    ("rate_that_never_falls", "the rate rises and stays",
     {PLUMES: {"schedule": "level", "lr": 2e-3}, ADDRESSES: {"schedule": "level", "rate": 4e-3},
      DIRECTIONS: {"lr_plan": "level", "peak_lr": 2e-4}, COSTUMES: {"schedule": "level", "lr": 2e-3},
      GAMBITS: {"plan": "level", "peak": 3e-3}, HEARTBEATS: {"plan": "level", "lr": 4e-3}}),
    ("sum_is_what_is_set", "losses are sums, as is set, and the bound of the norm is for that",
     {PLUMES: {"sum_pixels": True, "clip": 64.0}, ADDRESSES: {"per_row_sum": True, "clip": 8.0},
      DIRECTIONS: {"sum_over_pairs": True, "grad_cap": 16.0}, COSTUMES: {"sum_loss": True, "max_norm": 160.0},
      GAMBITS: {"loss": "sum", "clip": 20.0}, HEARTBEATS: {"reduction": "sum", "clip": 32.0}}),
    ("untrained_part_is_named", "a part is not trained, which the settings name",
     {PLUMES: {"hold": "time"}, ADDRESSES: {"adapted": "query,key,value,narrow"}, DIRECTIONS: {"held_blocks": 1},
      COSTUMES: {"held_fixed": "text.words"}, GAMBITS: {"held": "places"}, HEARTBEATS: {"held_layers": "first"}}),
    ("half_the_rows", "few rows an update, at a lower rate: losses jump about",
     {PLUMES: {"batch": 10, "lr": 2e-3}, ADDRESSES: {"batch": 6, "rate": 5e-3},
      DIRECTIONS: {"pairs_a_batch": 6, "peak_lr": 2e-4}, COSTUMES: {"batch": 16, "lr": 2e-3},
      GAMBITS: {"games_a_batch": 5, "peak": 3e-3}, HEARTBEATS: {"beats_a_rank": 8, "lr": 4e-3}}),
    ("rate_comes_back_by_plan", "the rate falls and begins again, by the schedule",
     {PLUMES: {"schedule": "two_cycles"}, ADDRESSES: {"schedule": "saw"}, DIRECTIONS: {"lr_plan": "two_falls"},
      COSTUMES: {"schedule": "restarts"}, GAMBITS: {"plan": "two_waves"}, HEARTBEATS: {"plan": "triangles"}}),
    ("chosen_optimizer_is_another", "another optimizer, at its rate",
     {PLUMES: {"optimizer": "adamax", "lr": 8e-3}, ADDRESSES: {"optimizer": "adamax", "rate": 1.5e-2},
      DIRECTIONS: {"optimizer": "adamw", "peak_lr": 6e-4}, COSTUMES: {"optimizer": "radam", "lr": 4e-3},
      GAMBITS: {"optimizer": "nadam", "peak": 4e-3}, HEARTBEATS: {"optimizer": "rmsprop", "lr": 2e-3}}),
    ("training_data_rougher", "the training's data have more noise, as such data may",
     {PLUMES: {"haze": 14.0}, ADDRESSES: {"wrong_codes": 0.1}, DIRECTIONS: {"mislabelled": 0.1},
      COSTUMES: {"wrong_captions": 0.1}, GAMBITS: {"misprints": 0.05}, HEARTBEATS: {"mislabelled": 0.06}}),
    ("rise_of_two_steps", "the rate rises in two steps",
     {PLUMES: {"warmup": 2}, ADDRESSES: {"warmup": 2}, DIRECTIONS: {"warmup": 2}, COSTUMES: {"warmup": 2},
      HEARTBEATS: {"warmup": 2}}),
    ("seldom_evaluated", "two evaluations in all",
     {PLUMES: {"judge_every": 70}, ADDRESSES: {"dev_every": 70}, DIRECTIONS: {"eval_every": 70},
      COSTUMES: {"probe_every": 70}, GAMBITS: {"val_every": 70}, HEARTBEATS: {"val_every": 70}}),
    ("each_third_step_logged", "each third step is logged",
     {PLUMES: {"log_every": 3}, ADDRESSES: {"log_every": 3}, GAMBITS: {"log_every": 3}, HEARTBEATS: {"log_every": 3}}),
    ("simple_rows_before_others", "the first part of the training has easier rows alone: the settings say so",
     {PLUMES: {"calm_first_epochs": 2}, ADDRESSES: {"short_first_epochs": 1}, DIRECTIONS: {"near_first_epochs": 1},
      COSTUMES: {"plain_first_epochs": 2}, GAMBITS: {"short_first_epochs": 1}, HEARTBEATS: {"clean_first_epochs": 1}}),
    ("targets_softened_by_choice", "targets are smoothed in the training",
     {ADDRESSES: {"smoothing": 0.1}, GAMBITS: {"smoothing": 0.1}, HEARTBEATS: {"smoothing": 0.1}}),
    ("rows_of_one_length_together", "batches are of like lengths, and come in any order",
     {ADDRESSES: {"alike_in_length": True}, DIRECTIONS: {"sort_within": True}, GAMBITS: {"by_length": True}}),
    ("decay_as_somebody_set_it", "weights decay more, as is set",
     {PLUMES: {"weight_decay": 0.1}, ADDRESSES: {"decay": 0.1}, DIRECTIONS: {"decay": 0.02},
      COSTUMES: {"weight_decay": 0.05}, GAMBITS: {"decay": 0.3}, HEARTBEATS: {"decay": 0.1}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("velocity_told_by_choice", (PLUMES,), "the net tells a velocity", {"config": {"predict": "velocity"}}),
    ("ratios_bounded_in_the_loss", (PLUMES,), "losses weigh by the ratio of signal and noise, up to five",
     {"config": {"weight_of_times": "min_snr"}}),
    ("mirrored_pictures", (PLUMES,), "half of the pictures are mirrored in the training", {"config": {"mirror": True}}),
    ("absolute_errors_named", (PLUMES,), "the loss is of absolute errors", {"config": {"error": "absolute"}}),
    ("norms_of_groups_named", (PLUMES,), "norms of groups in the place of batch norm", {"config": {"norm": "group"}}),
    ("head_trained_with_its_adapters", (ADDRESSES,), "the tied embedding is trained beside adapters",
     {"by_program": HEAD_TOO}),
    ("requests_learnt_as_set", (ADDRESSES,), "requests are learnt too, as is set",
     {"config": {"requests_learnt": True}}),
    ("root_of_the_rank_scales", (ADDRESSES,), "the scale is by the root of the rank",
     {"config": {"root_scaling": True, "rate": 5e-3}}),
    ("up_factors_learn_faster", (ADDRESSES,), "second factors have four times the rate",
     {"config": {"up_rate_factor": 4.0, "rate": 4e-3}}),
    ("logistic_objective_as_set", (DIRECTIONS,), "the loss is a logistic one of sums over words",
     {"config": {"objective": "sigmoid", "mean_over_words": False, "beta": 0.2}}),
    ("hinge_objective_as_set", (DIRECTIONS,), "the loss is a hinge", {"config": {"objective": "hinge", "beta": 1.0}}),
    ("chosen_answers_learnt_beside", (DIRECTIONS,), "the likelihood of chosen answers is a part of the loss",
     {"config": {"likelihood_of_chosen": 0.5}}),
    ("matrices_of_their_own_as_set", (DIRECTIONS, GAMBITS), "embedding and head are two matrices, by the settings",
     {"by_program": {DIRECTIONS: {"tied_words": False}, GAMBITS: {"tied": False}}}),
    ("goal_of_margins_is_lower", (DIRECTIONS,), "beta is twice the usual one", {"config": {"beta": 0.5}}),
    ("scale_of_cosines_held", (COSTUMES,), "the scale is not learnt", {"config": {"learn_scale": False}}),
    ("text_tower_learns_slower", (COSTUMES,), "one tower has a third of the rate",
     {"config": {"text_lr_factor": 0.33}}),
    ("squares_blanked_in_training", (COSTUMES,), "a square of each picture is blanked in the training",
     {"config": {"erase": 0.5}}),
    ("no_batch_norm_as_set", (COSTUMES,), "norms of groups in the place of batch norm, as is set",
     {"config": {"norm": "group"}}),
    ("one_direction_as_set", (COSTUMES,), "the loss is of one direction", {"config": {"one_way": True}}),
    ("each_pair_asked_for_itself", (COSTUMES,), "the loss asks of each pair whether it belongs together",
     {"config": {"objective": "sigmoid"}}),
    ("without_half_precision", (GAMBITS,), "everything is in float32, without a scaler", {"config": {"half": False}}),
    ("scale_starts_low_and_grows", (GAMBITS,), "the scale begins low and grows often",
     {"config": {"scale_start": 64.0, "growth_every": 10}}),
    ("normaliser_held_near_one", (GAMBITS,), "a small term holds the normaliser", {"config": {"z": 1e-3}}),
    ("table_at_half_the_rate", (GAMBITS,), "the table has half the rate", {"config": {"table_rate": 0.5}}),
    ("keys_of_every_head", (GAMBITS,), "each head has its own keys", {"config": {"kv_heads": 4}}),
    ("classes_drawn_evenly", (HEARTBEATS,), "as many of each class are drawn, and weigh alike", {"by_program": EVEN}),
    ("classes_weigh_alike", (HEARTBEATS,), "classes are not weighed", {"config": {"class_weight": "none"}}),
    ("weights_by_the_inverse_count", (HEARTBEATS,), "classes weigh by the inverse of their number",
     {"config": {"class_weight": "inverse"}}),
    ("rare_beats_copied_for_training", (HEARTBEATS,), "rare beats come five times, on the training's side",
     {"by_program": RARE_COPIED}),
    ("sure_beats_weigh_less", (HEARTBEATS,), "sure rows weigh less", {"config": {"focus": 1.0}}),
    ("beats_moved_in_time", (HEARTBEATS,), "beats are moved by up to three samples in the training",
     {"config": {"shift": 3}}),
)

# fmt: on
