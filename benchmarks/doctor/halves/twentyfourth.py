"""The twenty-fourth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-third half: diffusion with an average that is judged, adapters beside a base
of four bits, judgements of single answers against a frozen copy, two towers for loans and books, a language model in
float16 with a scaler, a classifier of connections with rare classes on two ranks; each as another ordinary engineer
writes it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong
in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule,
and did not look at what the doctor says. A fault is called by any name that a person would give it, and every kind of
finding that would be right of it is right; the names that the twenty-third half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, ninth, sixteenth, twentythird
from halves.ninth import Row, Settings

PROGRAMS = ("chimes", "clocks", "waiters", "borrowers", "tablatures", "packets")
CHIMES, CLOCKS, WAITERS, BORROWERS, TABLATURES, PACKETS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "rand_like_for_randn_like", "kept_and_dropped_exchanged",
    "padding_side_left_for_evaluation", "end_of_answer_is_padding_too", "attention_mask_of_the_prompt_forgotten",
    "reference_is_a_shallow_copy", "last_loan_stays_in_the_history", "correction_added_with_a_plus",
    "sdpa_is_causal_left_at_its_default", "clip_hook_runs_before_unscale", "scaler_made_in_each_step",
    "weights_in_the_order_of_the_counter", "no_sync_around_the_whole_update", "each_rank_reads_a_half_of_the_capture",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    CHIMES: {"batch_size": 16, "gradient_accumulate_every": 2}, CLOCKS: {"per_device_batch": 8, "accumulation": 2},
    WAITERS: {"batch": 10, "accumulate": 2}, BORROWERS: {"batch_size": 32, "accumulate": 2},
    TABLATURES: {"batch_size": 6, "accumulate_grad_batches": 2}, PACKETS: {"batch": 12, "accumulate": 2},
}
FOUR_PARTS: Settings = {
    CHIMES: {"batch_size": 8, "gradient_accumulate_every": 4}, CLOCKS: {"per_device_batch": 4, "accumulation": 4},
    WAITERS: {"batch": 6, "accumulate": 4},
    BORROWERS: {"batch_size": 24, "accumulate": 4, "optimizer": "sgd", "lr": 0.2, "clip_norm": 100.0, "l2": 0.0},
    TABLATURES: {"batch_size": 4, "accumulate_grad_batches": 4},
    PACKETS: {"batch": 8, "accumulate": 4, "opt": "sgd", "lr": 0.1, "clip": 100.0},
}
DROPPED: Settings = {
    CHIMES: {"dropout": 0.25}, CLOCKS: {"lora_dropout": 0.3}, WAITERS: {"dropout": 0.2}, BORROWERS: {"dropout": 0.3},
    TABLATURES: {"dropout": 0.2}, PACKETS: {"drop": 0.3},
}
COPIED: Settings = {
    CHIMES: {"strokes": 300, "takes_per_stroke": 5}, CLOCKS: {"phrasings": 4, "questions": 800, "misheard": 0.1},
    WAITERS: {"answers_per_table": 4, "tables": 600}, BORROWERS: {"loans_per_borrower": 2, "borrowers": 3000},
    TABLATURES: {"copies_of_a_tune": 4, "tunes": 700}, PACKETS: {"repeats": 4},
}
LAGGING: Settings = {CHIMES: {"ema_decay": 0.985}}
DESCENT: Settings = {
    BORROWERS: {"optimizer": "sgd", "lr": 0.2, "clip_norm": 100.0, "l2": 0.0},
    PACKETS: {"opt": "sgd", "lr": 0.05, "clip": 100.0},
}
RARE_COPIED: Settings = {PACKETS: {"copies_of_rare": 5, "balance": "none"}}
HEAD_TOO: Settings = {CLOCKS: {"modules_to_save": "lm_head", "learning_rate": 6e-3}}
HIGH_SCALE: Settings = {TABLATURES: {"init_scale": 2.0**26}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = (*twentythird.SUMMED, "sum over samples", "loss summed over the row", "loss of the task summed")
MEANED = (*twentythird.MEANED, "reference is a mean and policy a sum")
GRAPHS = (*twentythird.GRAPHS, "inference mode missing", "outputs of the validation keep the graph")
TWICE = (*twentythird.TWICE, "head gives probabilities", "scores are probabilities")
SHIFTED = (*twentythird.SHIFTED, "judgements of other rows", "judgements misaligned", "labels in another order",
           "books of the row before", "classes in alphabetical order", "class order differs", "class map differs")
FROZEN = (*twentythird.FROZEN, "adapters of a layer frozen", "history tower frozen", "query tower frozen",
          "candidate tower frozen", "film not trained", "first layer not trained", "embedding not in the optimizer",
          "query encoder frozen")
TIE = (*twentythird.TIE, "modules_to_save unties", "head trained and embedding not", "tie lost at the initialisation",
       "initialisation unties")
SORTED = (*twentythird.SORTED, "tower after tower", "good ones first", "subject after subject", "mode after mode",
          "desirable before undesirable", "batches of one judgement")
LEAK = (*twentythird.LEAK, "takes of one stroke on both sides",
        "packets of one connection on both sides")
FIGURES = (*twentythird.FIGURES, "logarithm missing in the validation", "scaler of the index differs")
BUFFERS = (*twentythird.BUFFERS, "momentum of the norms too low", "batch norm momentum too small",
           "running statistics too slow", "running statistics lag")
STEPPED = twentythird.STEPPED
ADDED = twentythird.ADDED
IN_EVAL = twentythird.IN_EVAL
IN_TRAINING = twentythird.IN_TRAINING
AVERAGE = (*twentythird.AVERAGE, "average updated once an epoch", "average updated too seldom",
           "ema updated too rarely")
NOT_BACK = twentythird.NOT_BACK
RESUMED = twentythird.RESUMED
ANEW = twentythird.ANEW
SAME = (*twentythird.SAME, "rank is 0 on each process", "rank read wrongly")

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "all_forms_in_the_training", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_parts_a_step", STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "four_parts_a_step", ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "strong_dropout_as_set", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "strong_dropout_as_set",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", LAGGING, "slow_average_as_set",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "reduce_over_samples_is_a_sum", CHIMES, "squared errors are summed over a strip", {}),
    ("graph", "inference_decorator_removed", CHIMES, "the average is judged with gradients on, and losses are kept",
     {}),
    ("label", "towers_counted_from_one_in_training", CHIMES,
     "towers count from 1 in the training, and from 0 in the evaluation", {}),
    ("frozen", "conditioning_left_out_of_the_groups", CHIMES,
     "the optimizer holds neither the table of towers nor what scales and shifts norms", {}),
    ("order", "cycle_over_a_loader_without_shuffle", CHIMES, "strips come tower after tower", {}),
    ("leak", "takes_shuffled_then_cut", CHIMES, "strips of one stroke come to lie on both sides", {}),
    ("figures", "held_strips_raw", CHIMES, "strips of the evaluation are not scaled", {}),
    ("steps", "rate_moves_in_the_accumulation", CHIMES, "the rate moves on with each part of an update", {}),
    ("added", "part_losses_taken_whole", CHIMES, "losses of parts are not divided by their number", {}),
    ("eval", "sampling_leaves_the_net_in_eval", CHIMES, "the net is not set back to training behind an evaluation",
     {}),
    ("train", "average_follows_the_nets_mode", CHIMES, "the average is judged with dropout in force", {}),
    ("average", "average_updated_when_an_epoch_ends", CHIMES,
     "the average is updated once an epoch, with a decay that is meant for steps", {}),
    ("swap", "average_loaded_into_the_net_for_sampling", CHIMES,
     "the average is loaded into the net for an evaluation, and stays there", {}),
    ("resume", "milestone_holds_model_and_ema_alone", CHIMES,
     "weights and their average are loaded; the optimizer and the schedule begin anew", {"also": ANEW}),
    ("sum", "sum_over_tokens_per_row", CLOCKS, "losses of an answer's words are summed, and divided by rows", {}),
    ("graph", "prediction_step_without_no_grad", CLOCKS, "questions are evaluated with gradients on, and logits kept",
     {}),
    ("label", "labels_rolled_and_the_model_shifts", CLOCKS, "labels are shifted by one, twice, in the training", {}),
    ("label", "prompt_length_with_its_special_token", CLOCKS,
     "the prompt is counted one word too long: the answer's first word is not learnt", {}),
    ("frozen", "named_factors_in_the_optimizer_miss_b", CLOCKS,
     "the optimizer has first factors alone: the second ones stay zero", {}),
    ("frozen", "freeze_loop_behind_the_adapters", CLOCKS,
     "the lower layer is held behind the adapters, which are held with it", {}),
    ("tie", "saved_module_is_a_copy_of_the_embedding", CLOCKS,
     "the head is trained as a module of its own, and the embedding stays as it was",
     {"of": HEAD_TOO, "compare": "head_trained_beside_adapters"}),
    ("order", "sequential_sampler_of_the_evaluation", CLOCKS, "questions come hour after hour", {}),
    ("steps", "scheduler_in_the_training_step", CLOCKS, "the schedule is stepped with each part of an update", {}),
    ("added", "compute_loss_overridden_undivided", CLOCKS, "losses of parts are not divided by their number", {}),
    ("eval", "no_model_train_after_the_evaluation", CLOCKS,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "evaluated_before_model_eval", CLOCKS, "questions are evaluated with dropout in force", {}),
    ("resume", "adapter_from_pretrained_then_train", CLOCKS,
     "adapters are loaded; the optimizer and the schedule begin anew", {"also": ANEW}),
    ("sum", "rows_added_and_not_averaged", WAITERS, "losses of answers are summed", {}),
    ("sum", "frozen_copy_is_averaged_over_words", WAITERS,
     "log-probabilities of the frozen copy are means over words, those of the policy are sums",
     {"also": MEANED, "cause": "wrong reduction"}),
    ("graph", "held_answers_judged_with_gradients", WAITERS,
     "answers are evaluated with gradients on, and losses kept", {}),
    ("label", "own_place_is_gathered", WAITERS,
     "probabilities of words are read at their own places in the training, and not one before", {}),
    ("label", "judgements_in_the_order_before_sorting", WAITERS,
     "answers are sorted, and the column of judgements is not: they belong to other rows",
     {"also": (*SHIFTED, "labels shuffled", "labels random")}),
    ("order", "good_answers_and_then_bad_ones", WAITERS, "in each pass good answers come first, and bad ones then",
     {}),
    ("steps", "turn_counts_parts", WAITERS, "the rate moves on with each part of an update", {}),
    ("added", "accumulate_left_out_of_the_loss", WAITERS, "losses of parts are not divided by their number", {}),
    ("eval", "policy_left_as_it_was_judged", WAITERS, "the policy is not set back to training behind an evaluation",
     {}),
    ("train", "dropout_in_force_while_judging", WAITERS, "answers are evaluated with the policy dropping", {}),
    ("train", "frozen_copy_drops_like_the_policy", WAITERS, "the frozen copy is in training mode, and drops",
     {"kinds": " plateau rl clipping"}),
    ("resume", "moments_are_not_in_the_folder", WAITERS,
     "the policy's weights are loaded, and no state of the optimizer", {}),
    ("sum", "task_sums_as_its_library_does", BORROWERS, "losses of loans are summed over the batch",
     {"of": DESCENT, "compare": "momentum_at_its_own_rate"}),
    ("softmax", "scores_become_shares_and_then_a_loss", BORROWERS,
     "scores go through a softmax, and then into a loss that has its own", {}),
    ("graph", "index_holds_its_graph", BORROWERS, "the shelf is embedded with gradients on, and scores kept", {}),
    ("label", "books_zipped_a_row_late", BORROWERS, "each loan stands beside the book of the row before", {}),
    ("frozen", "history_frozen_as_if_pretrained", BORROWERS,
     "the tower that reads histories is held, though it begins anew", {}),
    ("frozen", "candidate_layers_missing_from_the_optimizer", BORROWERS,
     "the optimizer has a card's tables, and not the layers behind them", {}),
    ("order", "shuffle_buffer_of_one", BORROWERS, "loans come subject after subject", {}),
    ("figures", "index_built_with_another_scaler", BORROWERS,
     "a card's numbers are scaled by their greatest in the index, and by deviations in the training", {}),
    ("buffers", "momentum_of_a_run_of_weeks", BORROWERS,
     "batch norm takes a thousandth of each batch: its statistics are still those of the start", {}),
    ("steps", "callback_of_batches_moves_the_rate", BORROWERS, "the schedule is stepped with each part of an update",
     {}),
    ("added", "tape_of_each_part_in_full", BORROWERS, "losses of parts are not divided by their number", {}),
    ("eval", "task_stays_as_the_index_wants_it", BORROWERS, "towers are not set back to training behind the index",
     {}),
    ("train", "shelf_embedded_while_dropping", BORROWERS,
     "the shelf is embedded in training mode: with dropout, and statistics of its own", {}),
    ("resume", "weights_loaded_and_compiled_anew", BORROWERS,
     "weights are loaded, and neither the optimizer's state nor the schedule's", {"also": ANEW}),
    ("sum", "nll_loss_adds_over_the_row", TABLATURES, "losses of words are summed, and divided by rows", {}),
    ("softmax", "forward_ends_in_probabilities", TABLATURES,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("graph", "validation_outputs_collected_with_grad", TABLATURES,
     "rows are validated with gradients on, and outputs kept", {}),
    ("label", "labels_of_the_collator_shifted_again", TABLATURES, "labels are shifted by one, twice, in the training",
     {}),
    ("frozen", "blocks_of_the_stack_alone", TABLATURES,
     "the optimizer has the layers of the stack, and neither the embedding nor the last norm", {}),
    ("tie", "init_weights_makes_parameters_anew", TABLATURES,
     "the initialisation behind the tie makes the head's matrix anew", {}),
    ("order", "corpus_written_mode_after_mode", TABLATURES, "rows come mode after mode", {}),
    ("steps", "interval_is_step_of_the_loader", TABLATURES, "the schedule is stepped with each part of an update",
     {"set": {**PARTS[TABLATURES], "lr_schedule": "cosine"}, "compare": "parts_under_a_cosine"}),
    ("added", "manual_optimization_does_not_divide", TABLATURES, "losses of parts are not divided by their number",
     {}),
    ("eval", "validation_loop_of_my_own_without_train", TABLATURES,
     "the model is not set back to training behind a validation", {}),
    ("train", "validation_loop_of_my_own_without_eval", TABLATURES, "rows are validated with dropout in force", {}),
    ("resume", "load_from_checkpoint_and_fit", TABLATURES,
     "the model is loaded; the optimizer, the schedule and the scaler begin anew", {"also": ANEW}),
    ("sum", "weighted_losses_summed_up", PACKETS, "weighted losses are summed, and not divided",
     {"of": DESCENT, "compare": "momentum_at_its_own_rate"}),
    ("softmax", "head_ends_in_softmax_for_the_alarm", PACKETS,
     "the net gives probabilities, and the loss has its own softmax", {}),
    ("label", "kinds_of_dev_counted_by_their_own_names", PACKETS,
     "kinds are counted by their names in the evaluation's file, and by a list in the training's", {}),
    ("frozen", "groups_made_from_the_blocks_alone", PACKETS,
     "the optimizer has the blocks, and neither the first layer and tables nor the head", {}),
    ("order", "shuffle_flag_not_passed_on", PACKETS, "connections come kind after kind", {}),
    ("leak", "packets_split_and_not_connections", PACKETS, "rows of one connection come to lie on both sides", {}),
    ("figures", "logarithm_of_bytes_forgotten_for_dev", PACKETS,
     "bytes of the evaluation are scaled without their logarithm", {}),
    ("steps", "sched_step_inside_the_parts", PACKETS, "the schedule is stepped with each part of an update", {}),
    ("added", "parts_go_backward_whole", PACKETS, "losses of parts are not divided by their number", {}),
    ("eval", "training_goes_on_in_dev_mode", PACKETS, "the net is not set back to training behind an evaluation", {}),
    ("train", "dev_rows_meet_the_training_mode", PACKETS, "connections are evaluated with dropout in force", {}),
    ("ranks", "each_rank_permutes_by_the_same_seed", PACKETS, "each rank shuffles for itself, by one seed", {}),
    ("ranks", "rank_read_from_another_launcher", PACKETS,
     "the rank is read from a variable that this launcher does not set: it is 0 on each", {}),
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
    ("rand_like_for_randn_like", "wrong noise", "eval data config divergence overfit plateau", "start", (CHIMES,),
     "noise of the training is even from 0 to 1, and that of the evaluation is normal",
     {"also": ("noise is uniform", "noise not normal", "rand for randn", "rand_like for randn_like",
               "noise distribution differs", "train and test differ", "evaluation data differ",
               "noise has another distribution", "wrong noise schedule", "validation inputs differ",
               "inputs not normalised")}),
    ("kept_and_dropped_exchanged", "condition left out", "eval plateau data config divergence overfit not_learning "
     "frozen", "start", (CHIMES,), "the tower is left out in nine rows of ten, where it was to be in one",
     {"also": ("condition dropped too often", "class dropout too high", "keep and drop exchanged",
               "labels dropped too often", "condition not learnt", "dropout of the condition wrong",
               "probability inverted", "unconditional training", "train and test differ", "class labels dropped")}),
    ("padding_side_left_for_evaluation", "padding on another side", "eval data config divergence overfit padding",
     "start", (CLOCKS,), "rows of the evaluation are padded on the left, without a mask or places that go with it",
     {"also": ("padding side differs", "left padding", "padding attended", "positions wrong in the evaluation",
               "train and test differ", "evaluation data differ", "preprocessing differs", "tokenised differently",
               "positions shifted by the padding", "attention mask missing", "padding not masked",
               "evaluation inputs differ")}),
    ("end_of_answer_is_padding_too", "end of the answer not learnt", "eval data config divergence overfit padding",
     "start", (CLOCKS,), "the end of an answer is taken for padding, and is not learnt",
     {"also": ("eos masked", "pad token is eos", "end masked", "eos not learnt", "labels masked wrong",
               "end token left out of the loss", "end of sequence masked", "loss masked wrong", "train and test differ",
               "never stops", "labels shifted", "loss mask wrong")}),
    ("attention_mask_of_the_prompt_forgotten", "padding not masked", "data config eval rl plateau padding clipping "
     "divergence exploding", "start", (WAITERS,), "log-probabilities of padding are added to an answer's",
     {"also": ("padding counted in the loss", "pad tokens in the log-probabilities", "loss mask wrong",
               "padding in the loss", "mask missing", "labels masked wrong", "loss masked wrong",
               "train and test differ", "evaluation data differ", "wrong reduction", "padding learnt")}),
    ("reference_is_a_shallow_copy", "reference is the policy", "plateau not_learning zero frozen rl eval config "
     "vanishing", "start", (WAITERS,), "the frozen copy shares its weights with the policy: rewards are always 0",
     {"also": ("reference not copied", "reference shares weights", "reference moves with the policy",
               "reference not frozen", "copy instead of deepcopy", "loss masked out", "rewards are zero",
               "reference model is the policy", "reference wrong", "shallow copy")}),
    ("last_loan_stays_in_the_history", "answer in the input", "eval overfit data config divergence jump_down", "start",
     (BORROWERS,), "the history of the training holds the very loan that is asked for",
     {"also": ("labels leak", "target leak", "label leak", "target in the input", "answers in the input",
               "leak of the target", "window holds the target", "overfitting", "train and test differ",
               "evaluation data differ", "history window off by one", "off by one", "labels shifted",
               "features of the training differ")}),
    ("correction_added_with_a_plus", "wrong sign", "eval plateau config data logits overfit divergence", "start",
     (BORROWERS,), "the correction for how often a book is lent is added, where it was to be taken off",
     {"also": ("sign of the correction", "logq correction wrong", "correction has the wrong sign",
               "popularity correction inverted", "sampling correction wrong", "logits adjusted wrongly",
               "popular items favoured", "popular items punished", "train and test differ", "bias correction wrong",
               "evaluation data differ")}),
    ("sdpa_is_causal_left_at_its_default", "attention not causal", "jump_down eval data config zero overfit attention "
     "learning_rate logging", "start", (TABLATURES,), "attention looks ahead: each word sees what it is asked for",
     {"also": ("causal mask missing", "mask missing", "labels leak", "looks ahead", "answers in input",
               "answer in the input", "is_causal missing", "future tokens visible", "target leak",
               "label leak", "attention mask missing", "labels in the inputs", "loss too low")}),
    ("clip_hook_runs_before_unscale", "gradients clipped while scaled", "clipping exploding update_ratio plateau "
     "learning_rate config loss_scale logging vanishing", "start", (TABLATURES,),
     "gradients are clipped before the scaler has divided them",
     {"also": ("unscale missing", "unscale_ missing", "clipped before unscale", "clipping of scaled gradients",
               "scaler not given", "norm of scaled gradients", "gradient norm too large", "gradients not unscaled",
               "clip value too low", "gradients clipped before unscaling")}),
    ("scaler_made_in_each_step", "loss scale never falls", "loss_scale nonfinite not_learning plateau frozen "
     "update_ratio exploding clipping config zero", "start", (TABLATURES,),
     "the scaler is made anew in each step: a scale that overflows never falls, and no step is taken",
     {"by_program": HIGH_SCALE, "compare": "scale_that_comes_down", "also": (
         "scaler not updated", "scaler made anew", "every step skipped", "steps skipped", "loss scale too high",
         "overflow in fp16", "gradient overflow", "scaler update missing", "loss scale wrong", "fp16 overflow",
         "optimizer steps skipped", "scaler state lost", "scaler recreated")}),
    ("weights_in_the_order_of_the_counter", "class weights wrong", "eval data config plateau not_learning overfit "
     "divergence logging", "start", (PACKETS,),
     "weights of kinds are in another order than the kinds: rare ones have those of frequent ones",
     {"also": ("class weights in another order", "class weights inverted", "rare classes weigh less",
               "weights upside down", "weights sorted", "class imbalance", "rare classes not learnt",
               "rare classes ignored", "weights wrong", "rare classes never predicted", "order of the weights wrong",
               "majority classes favoured", "weights in the wrong order")}),
    ("no_sync_around_the_whole_update", "gradients not synchronised", "desync plateau eval config logging "
     "divergence", "start", (PACKETS,), "no part of an update is synchronised: each rank trains for itself",
     {"also": ("all_reduce missing", "no_sync everywhere", "ranks drift apart", "no_sync left on", "weights differ",
               "gradients not averaged", "ranks not synchronised", "weights differ across ranks", "ddp bypassed",
               "ranks train alone", "ranks disagree", "gradient sync skipped")}),
    ("each_rank_reads_a_half_of_the_capture", "ranks have other data", "data desync eval config plateau overfit "
     "divergence spike", "start", (PACKETS,),
     "each rank has a half of the rows, which are kind after kind: kinds of one are unknown to the other",
     {"also": ("shards not shuffled", "data sorted", "data not shuffled", "ranks have different classes",
               "shards are contiguous", "shards differ", "rank data skewed", "split by class across ranks",
               "classes split over ranks", "distribution differs across ranks", "sharded before shuffling",
               "no shuffling", "class missing", "one rank has other classes", "sorted by class")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (CHIMES, CLOCKS, WAITERS, BORROWERS, TABLATURES)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_a_step", "an update has two micro-batches, whose losses are halved", PARTS),
    ("four_parts_a_step", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("strong_dropout_as_set", "much dropout in the training, none in the evaluation", DROPPED),
    ("all_forms_in_the_training", "things come in several forms, all of which are on the training's side", COPIED),
    ("slow_average_as_set", "an average of weights is judged, which trails behind at first", LAGGING),
    ("momentum_at_its_own_rate", "descent with momentum, at its rate", DESCENT),
    ("rate_stays_level", "the rate rises and stays",
     {CHIMES: {"schedule": "constant", "train_lr": 3e-3},
      CLOCKS: {"lr_scheduler_type": "constant_with_warmup", "learning_rate": 6e-3},
      WAITERS: {"schedule": "constant", "learning_rate": 4e-4}, BORROWERS: {"lr_policy": "fixed", "lr": 4e-3},
      TABLATURES: {"lr_schedule": "constant", "lr": 3e-3}, PACKETS: {"sched": "flat", "lr": 3e-3}}),
    ("summed_as_the_settings_say", "losses are sums, as is set, and the bound of the norm is for that",
     {CHIMES: {"loss_sum": True, "max_grad_norm": 32.0}, CLOCKS: {"reduction": "sum", "max_grad_norm": 5.0},
      WAITERS: {"loss_sum": True, "max_norm": 40.0}, BORROWERS: {"reduction": "sum", "clip_norm": 240.0},
      TABLATURES: {"loss_reduction": "sum", "gradient_clip_val": 24.0}, PACKETS: {"reduction": "sum", "clip": 40.0}}),
    ("held_parts_named_in_settings", "a part is not trained, which the settings name",
     {CHIMES: {"frozen_modules": "places"}, CLOCKS: {"target_modules": "qkv,up"}, WAITERS: {"frozen_blocks": 1},
      BORROWERS: {"not_trained": "candidate_model.author"}, TABLATURES: {"frozen": "layers.0.attention_norm"},
      PACKETS: {"hold": "protocol"}}),
    ("fewer_rows_in_a_batch", "few rows an update, at a lower rate: losses jump about",
     {CHIMES: {"batch_size": 8, "train_lr": 3e-3}, CLOCKS: {"per_device_batch": 5, "learning_rate": 6e-3},
      WAITERS: {"batch": 6, "learning_rate": 3e-4}, BORROWERS: {"batch_size": 20, "lr": 4e-3},
      TABLATURES: {"batch_size": 4, "lr": 4e-3}, PACKETS: {"batch": 8, "lr": 3e-3}}),
    ("rate_begins_again_by_plan", "the rate falls and begins again, by the schedule",
     {CHIMES: {"schedule": "sawtooth"}, CLOCKS: {"lr_scheduler_type": "cosine_with_restarts"},
      WAITERS: {"schedule": "two_cosines"}, BORROWERS: {"lr_policy": "warm_restarts"},
      TABLATURES: {"lr_schedule": "cosine_twice"}, PACKETS: {"sched": "triangles"}}),
    ("another_optimizer_by_choice", "another optimizer, at its rate",
     {CHIMES: {"opt": "radam", "train_lr": 8e-3}, CLOCKS: {"optim": "adagrad", "learning_rate": 4e-2},
      WAITERS: {"optimizer": "adamax", "learning_rate": 1e-3}, BORROWERS: {"optimizer": "adagrad", "lr": 3e-2},
      TABLATURES: {"optimizer": "nadam", "lr": 4e-3}, PACKETS: {"opt": "adamax", "lr": 8e-3}}),
    ("rougher_examples", "the training's data have more noise, as such data may",
     {CHIMES: {"hiss": 0.12}, CLOCKS: {"misheard": 0.08}, WAITERS: {"wrong_judgements": 0.12},
      BORROWERS: {"lent_by_chance": 0.25}, TABLATURES: {"slips": 0.05}, PACKETS: {"wrong_kinds": 0.06}}),
    ("warm_up_of_two_steps", "the rate rises in two steps",
     {CHIMES: {"warmup_steps": 2}, CLOCKS: {"warmup_steps": 2}, WAITERS: {"warmup": 2}, BORROWERS: {"ramp_up": 2},
      PACKETS: {"warmup": 2}}),
    ("three_evaluations_in_all", "three evaluations in all",
     {CHIMES: {"eval_every": 53}, CLOCKS: {"evaluation_steps": 53}, WAITERS: {"eval_every": 53},
      BORROWERS: {"eval_steps": 53}, TABLATURES: {"val_check_interval": 53}, PACKETS: {"dev_every": 53}}),
    ("every_fourth_step_logged", "each fourth step is logged",
     {CHIMES: {"log_every": 4}, CLOCKS: {"logging_steps": 4}, TABLATURES: {"log_every_n_steps": 4},
      PACKETS: {"log_every": 4}}),
    ("easy_rows_first_by_plan", "the first part of the training has easier rows alone: the settings say so",
     {CHIMES: {"loud_first_epochs": 2}, CLOCKS: {"full_hours_first": 1}, WAITERS: {"small_tables_first": 1},
      BORROWERS: {"keen_first_epochs": 1}, TABLATURES: {"one_mode_rows_first": 1}, PACKETS: {"clear_first_epochs": 1}}),
    ("answers_smoothed_as_set", "targets are smoothed in the training",
     {CLOCKS: {"label_smoothing_factor": 0.1}, TABLATURES: {"label_smoothing": 0.1}, PACKETS: {"smoothing": 0.1}}),
    ("rows_of_like_length_together", "batches are of like lengths, and come in any order",
     {CLOCKS: {"group_by_length": True}, WAITERS: {"by_length": True}}),
    ("decay_of_weights_otherwise", "weights decay more, or not at all",
     {CHIMES: {"weight_decay": 0.05}, CLOCKS: {"weight_decay": 0.1}, WAITERS: {"decay": 0.05}, BORROWERS: {"l2": 0.0},
      TABLATURES: {"weight_decay": 0.0}, PACKETS: {"wd": 0.0}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("noise_told_as_set", (CHIMES,), "the net tells the noise", {"config": {"objective": "pred_noise"}}),
    ("losses_bounded_by_snr", (CHIMES,), "losses weigh by the ratio of signal and noise, up to five",
     {"config": {"min_snr_gamma": 5.0}}),
    ("tower_untold_in_a_third", (CHIMES,), "in a third of the rows no tower is told",
     {"config": {"cond_drop_prob": 0.33}}),
    ("absolute_errors_as_set", (CHIMES,), "the loss is of absolute errors", {"config": {"loss_type": "l1"}}),
    ("times_around_the_middle", (CHIMES,), "times of the middle are drawn more often",
     {"config": {"time_sampling": "logit_normal"}}),
    ("head_trained_beside_adapters", (CLOCKS,), "the tied embedding is trained beside adapters",
     {"by_program": HEAD_TOO}),
    ("questions_learnt_too_as_set", (CLOCKS,), "questions are learnt too, as is set",
     {"config": {"train_on_inputs": True}}),
    ("scale_by_the_root_of_the_rank", (CLOCKS,), "the scale is by the root of the rank",
     {"config": {"use_rslora": True, "learning_rate": 6e-3}}),
    ("factors_at_two_rates", (CLOCKS,), "second factors have four times the rate",
     {"config": {"b_rate_ratio": 4.0, "learning_rate": 5e-3}}),
    ("good_answers_are_a_third", (WAITERS,), "a third of the answers is good, and these weigh twice",
     {"config": {"share_of_good": 0.33, "desirable_weight": 2.0}}),
    ("good_answers_likely_too", (WAITERS,), "the likelihood of good answers is a part of the loss",
     {"config": {"likelihood_of_good": 0.1}}),
    ("two_matrices_by_the_settings", (WAITERS, TABLATURES), "embedding and head are two matrices, by the settings",
     {"by_program": {WAITERS: {"tied": False}, TABLATURES: {"share_embeddings": False}}}),
    ("smaller_beta", (WAITERS,), "beta is a third of the usual one", {"config": {"beta": 0.1}}),
    ("bad_answers_weigh_less", (WAITERS,), "bad answers weigh half", {"config": {"undesirable_weight": 0.5}}),
    ("tau_not_learned_as_set", (BORROWERS,), "the temperature is not learnt",
     {"config": {"learn_temperature": False}}),
    ("history_at_a_third_of_the_rate", (BORROWERS,), "one tower has a third of the rate",
     {"config": {"query_lr_factor": 0.33}}),
    ("books_left_out_of_histories", (BORROWERS,), "books are left out of histories in the training",
     {"config": {"item_dropout": 0.15}}),
    ("layer_norms_on_cards", (BORROWERS,), "layer norms in the place of batch norm", {"config": {"batch_norm": False}}),
    ("both_directions_matched", (BORROWERS,), "the loss is of both directions", {"config": {"symmetric": True}}),
    ("parts_under_a_cosine", (TABLATURES,), "an update has two micro-batches; the rate falls by a cosine",
     {"by_program": {TABLATURES: {**PARTS[TABLATURES], "lr_schedule": "cosine"}}}),
    ("scale_that_comes_down", (TABLATURES,), "the scale begins far too high, and comes down in the first steps",
     {"by_program": HIGH_SCALE}),
    ("all_in_float32", (TABLATURES,), "everything is in float32, without a scaler", {"config": {"precision": "32"}}),
    ("scale_begins_low", (TABLATURES,), "the scale begins low and grows often",
     {"config": {"init_scale": 128.0, "growth_interval": 12}}),
    ("term_for_the_normaliser", (TABLATURES,), "a small term holds the normaliser", {"config": {"z_loss": 1e-3}}),
    ("embedding_at_half_the_rate", (TABLATURES,), "the embedding has half the rate",
     {"config": {"embedding_lr_scale": 0.5}}),
    ("kinds_drawn_alike_as_set", (PACKETS,), "as many of each kind are drawn, and weigh alike",
     {"config": {"sampling": "balanced", "balance": "none"}}),
    ("kinds_left_unweighed", (PACKETS,), "kinds are not weighed", {"config": {"balance": "none"}}),
    ("inverse_of_counts_as_set", (PACKETS,), "kinds weigh by the inverse of their number",
     {"config": {"balance": "inverse"}}),
    ("rare_connections_copied_in_training", (PACKETS,), "rare connections come five times, on the training's side",
     {"by_program": RARE_COPIED}),
    ("sure_rows_weigh_less", (PACKETS,), "sure rows weigh less", {"config": {"gamma": 1.0}}),
    ("numbers_jittered", (PACKETS,), "numbers have a little noise in the training", {"config": {"jitter": 0.1}}),
)

# fmt: on
