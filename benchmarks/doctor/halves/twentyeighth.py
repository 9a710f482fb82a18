"""The twenty-eighth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-seventh half: noise taken off drum grooves with an average that draws,
adapters beside layers of four bits with zero points, preferences of a decoder against a copy that stays, two towers for
footprints and shoes, a language model in float16 with a scaler and a budget of tokens, rare bumps of a road on two
workers whose optimizer averages gradients; each as another ordinary engineer writes it. Most faults are of the fifteen
kinds that the fourteenth half has, each as the line that a person gets wrong in that program; those in `REPORTED` are
others that people report of such trainings. Who wrote them had read no rule, and did not look at what the doctor says.
A fault is called by any name that a person would give it, and every kind of finding that would be right of it is right;
the names that the twenty-seventh half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, ninth, sixteenth, twentyseventh
from halves.ninth import Row, Settings
from halves.twentysixth import several

PROGRAMS = ("grooves", "thermostats", "cocktails", "footprints", "genealogies", "potholes")
GROOVES, THERMOSTATS, COCKTAILS, FOOTPRINTS, GENEALOGIES, POTHOLES = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "betas_of_a_thousand_levels", "zero_points_never_subtracted",
    "held_requests_lack_the_word_before_a_call", "reference_sees_the_padding_on_the_left",
    "reference_brought_up_to_date_behind_tastings", "prints_not_brought_to_length_one",
    "prints_of_one_shoe_count_as_others", "optimizer_steps_past_the_scaler", "heads_made_by_view_alone",
    "workers_gradients_summed", "focus_falls_on_what_is_sure",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    GROOVES: {"batch": 16, "accumulate": 2}, THERMOSTATS: {"batch_size": 8, "accumulation": 2},
    COCKTAILS: {"train_batch": 8, "grad_accum": 2}, FOOTPRINTS: {"batch_size": 20, "splits": 2},
    GENEALOGIES: {"batch": 4, "grad_steps": 2}, POTHOLES: {"batch": 8, "pieces": 2},
}
FOUR_PARTS: Settings = {
    GROOVES: {"batch": 8, "accumulate": 4}, THERMOSTATS: {"batch_size": 4, "accumulation": 4},
    COCKTAILS: {"train_batch": 4, "grad_accum": 4},
    FOOTPRINTS: {"batch_size": 16, "splits": 4, "optimizer": "sgd", "lr": 0.01, "clip": 1000.0},
    GENEALOGIES: {"batch": 2, "grad_steps": 4},
    POTHOLES: {"batch": 8, "pieces": 4, "opt": "sgd", "lr": 0.05, "max_norm": 100.0},
}
DROPPED: Settings = {
    GROOVES: {"dropout": 0.3}, THERMOSTATS: {"lora_dropout": 0.3}, COCKTAILS: {"dropout": 0.05},
    FOOTPRINTS: {"dropout": 0.3}, GENEALOGIES: {"dropout": 0.25}, POTHOLES: {"dropout": 0.4},
}
COPIED: Settings = {
    GROOVES: {"takes": 4}, THERMOSTATS: {"copies": 3}, COCKTAILS: {"pairs_each": 4},
    FOOTPRINTS: {"prints_of_a_shoe": 3}, POTHOLES: {"of_a_drive": 5},
}
TRAILING: Settings = {GROOVES: {"ema_decay": 0.98}}
DESCENT: Settings = {
    FOOTPRINTS: {"optimizer": "sgd", "lr": 0.01, "clip": 1000.0},
    POTHOLES: {"opt": "sgd", "lr": 0.03, "max_norm": 100.0},
}
MANY_PRINTS: Settings = {FOOTPRINTS: {"prints_of_a_shoe": 15, "by_maker": True}}
FOCUSED: Settings = {POTHOLES: {"gamma": 2.0, "class_weights": "none"}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = several(*twentyseventh.SUMMED, "loss summed over a bar", "sum over all elements", "summed over the batch")
MEANED = twentyseventh.MEANED
GRAPHS = several(*twentyseventh.GRAPHS, "losses kept in a list", "detach missing", "meters keep graphs")
TWICE = several(*twentyseventh.TWICE, "softmax in the model", "forward ends in a softmax")
SHIFTED = several(*twentyseventh.SHIFTED, "classes sorted by name", "label order differs", "label map differs",
                  "shifted in the dataset and in the loss", "shifted twice")
FLIPPED = several(*SHIFTED, "preference reversed", "chosen and rejected swapped", "choice off by one",
                  "rejected preferred", "preferred answer is the other one", "sign reversed", "pairs swapped")
FROZEN = several(*twentyseventh.FROZEN, "convolutions missing from the optimizer", "adapters not trained",
                 "parameter groups incomplete", "parameter groups overwritten", "model replaced by its copy",
                 "optimizer has the reference's parameters", "head replaced after the optimizer was made",
                 "layers run without gradients", "graph cut")
TIE = several(*twentyseventh.TIE, "head made anew", "lm_head replaced", "embedding put in anew")
SORTED = several(*twentyseventh.SORTED, "style after style", "device after device", "maker after maker",
                 "house after house")
LEAK = several(*twentyseventh.LEAK, "takes on both sides", "split by rows and not by groups", "group leakage",
               "windows of a drive on both sides", "prints of a shoe on both sides")
FIGURES = several(*twentyseventh.FIGURES, "units differ", "metres and millimetres confused", "wrong units",
                  "held inputs scaled otherwise", "scaler not applied to the evaluation")
UNFITTED = several(*FIGURES, "statistics never fitted", "scaler never fitted", "inputs not scaled",
                   "normalisation missing", "mean and std are 0 and 1", "raw inputs", "buffers never set",
                   "inputs too large", "learning rate too high")
BUFFERS = twentyseventh.BUFFERS
STEPPED = several(*twentyseventh.STEPPED, "tokens counted twice", "tokens counted too often",
                  "token counter too fast", "progress counted twice")
ADDED = twentyseventh.ADDED
IN_EVAL = twentyseventh.IN_EVAL
IN_TRAINING = twentyseventh.IN_TRAINING
AVERAGE = several(*twentyseventh.AVERAGE, "average updated once per epoch", "average updated too seldom",
                  "ema updated per epoch", "update in the wrong loop")
NOT_BACK = several(*twentyseventh.NOT_BACK, "swapped twice", "restored the average", "backup overwritten")
RESUMED = twentyseventh.RESUMED
ANEW = twentyseventh.ANEW
SAME = several(*twentyseventh.SAME, "rank is 0 everywhere", "world size is 1 in the sampler")

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "versions_that_are_trained_on_alone", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_parts_of_an_update",
              STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "four_parts_of_an_update",
              ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropout_as_is_set", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropout_as_is_set",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING, "average_that_trails_as_set",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
ALSO_ANEW: dict[str, Any] = {"also": ANEW}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_of_a_bar_added", GROOVES, "squared errors are summed over ticks and drums", {}),
    ("graph", "judged_errors_join_a_list", GROOVES,
     "the average is judged with gradients on, and errors are kept", {}),
    ("label", "styles_of_the_held_sorted_by_name", GROOVES,
     "styles of the evaluation are numbered by their names, and those of the training as they are listed", {}),
    ("frozen", "groups_by_dimension_leave_convolutions_out", GROOVES,
     "groups of the optimizer are made by dimensions, and weights of convolutions are in none", {}),
    ("order", "bars_in_the_order_of_the_folder", GROOVES, "grooves come style after style", {}),
    ("leak", "takes_split_and_not_grooves", GROOVES, "takes of one groove come to lie on both sides", {}),
    ("figures", "held_loudness_as_a_share_of_the_loudest", GROOVES,
     "loudness of the evaluation goes from 0 to 1, and that of the training is scaled by mean and deviation", {}),
    ("figures", "loudness_never_fitted", GROOVES,
     "means and deviations that the net keeps are those of its start, 0 and 1: loudness is not scaled",
     {"kinds": " exploding plateau not_learning clipping spike learning_rate", "also": UNFITTED}),
    ("steps", "scheduler_in_the_inner_loop", GROOVES, "the schedule is stepped with each part of an update", {}),
    ("added", "accumulated_without_a_share", GROOVES, "losses of parts are not divided by their number", {}),
    ("eval", "script_stays_in_eval", GROOVES, "the net is not set back to training behind an evaluation", {}),
    ("train", "average_drops_out_while_judged", GROOVES, "the average is judged with dropout in force", {}),
    ("average", "average_moves_once_an_epoch", GROOVES,
     "the average is brought on once an epoch, and not with each update: it hardly leaves its start", {}),
    ("average", "decay_of_an_average_for_long_trainings", GROOVES,
     "the average has the decay of a training of days: at the end it is near its start",
     {"of": {GROOVES: {"ema_decay": 0.9995}}}),
    ("swap", "average_entered_again_to_draw", GROOVES,
     "the average is entered twice: what is put back behind it is the average, and the training goes on from there",
     {}),
    ("resume", "net_and_average_are_what_was_saved", GROOVES,
     "weights and their average are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "summed_words_over_the_batch_size", THERMOSTATS, "losses of words are summed, and divided by requests", {}),
    ("softmax", "outputs_go_through_a_softmax", THERMOSTATS,
     "the model ends in a softmax, and the loss has its own", {}),
    ("graph", "evaluate_returns_outputs_with_their_past", THERMOSTATS,
     "held requests are evaluated with gradients on, and outputs kept", {}),
    ("label", "labels_rolled_by_the_mapper_too", THERMOSTATS,
     "labels are moved by one in the data and again in the loss, in the training", {}),
    ("label", "functions_of_the_held_in_another_table", THERMOSTATS,
     "names of functions have other numbers in the evaluation than in the training", {}),
    ("frozen", "trainable_names_begin_with_lora", THERMOSTATS,
     "what learns is chosen by the begin of its name, and names of adapters begin with those of layers", {}),
    ("tie", "resized_table_and_a_head_that_is_copied", THERMOSTATS,
     "the table of words is made longer, and the head gets a copy of it: they are two matrices from there on", {}),
    ("order", "fit_without_shuffle", THERMOSTATS, "requests come device after device", {}),
    ("steps", "schedule_steps_as_the_batch_ends", THERMOSTATS,
     "the schedule is stepped with each part of an update", {}),
    ("added", "accumulated_at_full_weight", THERMOSTATS, "losses of parts are not divided by their number", {}),
    ("eval", "evaluate_is_the_last_to_set_a_mode", THERMOSTATS,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "evaluate_calls_as_fit_does", THERMOSTATS, "requests are evaluated with dropout in force", {}),
    ("resume", "compiled_anew_behind_load_weights", THERMOSTATS,
     "weights are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "guests_of_a_batch_added", COCKTAILS, "losses of pairs are summed", {}),
    ("sum", "reference_by_the_mean_of_a_drink", COCKTAILS,
     "likelihoods of the reference are means over words, and those of the policy are sums",
     {"also": MEANED, "cause": "wrong reduction"}),
    ("graph", "tasting_keeps_what_losses_returned", COCKTAILS,
     "pairs are evaluated with gradients on, and losses kept", {}),
    ("label", "drinks_asked_for_a_place_late", COCKTAILS,
     "words that are asked for are moved by one place more in the training", {"kinds": " rl"}),
    ("label", "second_is_read_as_true", COCKTAILS,
     "choices of 1 and 2 are taken for no and yes in the training: worse drinks are preferred",
     {"kinds": " rl", "also": FLIPPED}),
    ("frozen", "copy_of_the_wrong_one_is_kept", COCKTAILS,
     "what learns is the copy, and the optimizer has the parameters of the one that stays", {}),
    ("tie", "embeddings_loaded_into_a_new_table", COCKTAILS,
     "the table of words is made anew and loaded when the head was tied to the one before", {}),
    ("order", "sequential_sampler_for_the_orders", COCKTAILS, "pairs come by what is wrong with the worse drink", {}),
    ("leak", "pairs_of_an_order_on_both_sides", COCKTAILS, "pairs of one order come to lie on both sides", {}),
    ("steps", "scheduler_belongs_to_the_micro_step", COCKTAILS,
     "the schedule is stepped with each part of an update", {}),
    ("added", "backward_of_the_whole_loss_each_time", COCKTAILS, "losses of parts are not divided by their number", {}),
    ("eval", "tasting_leaves_eval_on", COCKTAILS, "the decoder is not set back to training behind an evaluation", {}),
    ("train", "tasting_while_words_drop", COCKTAILS, "pairs are evaluated with dropout in force", {}),
    ("resume", "load_before_create_optimizer", COCKTAILS,
     "weights are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "entropies_of_prints_summed", FOOTPRINTS, "losses of a batch are summed, and not divided by its rows",
     {"of": DESCENT, "compare": "descent_with_momentum_as_set"}),
    ("softmax", "scores_softmaxed_before_the_entropy", FOOTPRINTS,
     "scores go through a softmax, and then into a loss that has its own", {}),
    ("graph", "line_ups_are_kept_to_be_drawn", FOOTPRINTS,
     "held prints are evaluated with gradients on, and scores kept", {}),
    ("label", "shoes_of_a_batch_are_one_late", FOOTPRINTS,
     "shoes of a batch are one row late: prints have those of others", {}),
    ("label", "held_words_from_an_index_of_their_own", FOOTPRINTS,
     "words of the evaluation have the numbers of an index that was made anew", {}),
    ("frozen", "labels_embedded_as_for_the_index", FOOTPRINTS,
     "shoes are embedded without gradients, as for an index: their tower stays as it began", {}),
    ("order", "prints_in_the_order_of_makers", FOOTPRINTS, "prints come maker after maker", {}),
    ("leak", "prints_split_and_not_shoes", FOOTPRINTS, "prints of one shoe come to lie on both sides", {}),
    ("figures", "held_pressures_in_bar", FOOTPRINTS,
     "pressures of the evaluation are in bar, and those of the training in kilopascals", {}),
    ("buffers", "norms_in_eval_as_for_a_pretrained_net", FOOTPRINTS,
     "batch norms are kept in evaluation mode, though they begin anew: their statistics are 0 and 1", {}),
    ("steps", "halving_counts_splits", FOOTPRINTS, "the schedule is stepped with each part of an update", {}),
    ("added", "splits_not_divided_among", FOOTPRINTS, "losses of parts are not divided by their number", {}),
    ("eval", "line_up_forgets_to_go_back", FOOTPRINTS, "towers are not set back to training behind an evaluation", {}),
    ("train", "line_up_in_the_midst_of_training_mode", FOOTPRINTS,
     "towers are evaluated in training mode: with dropout, and statistics of their own batch", {}),
    ("resume", "both_towers_and_nothing_more_resumed", FOOTPRINTS,
     "weights are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
    ("sum", "losses_of_a_window_summed", GENEALOGIES, "losses of words are summed, and divided by windows", {}),
    ("softmax", "head_answers_in_shares", GENEALOGIES,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("graph", "dev_logits_in_a_list_for_later", GENEALOGIES,
     "windows are evaluated with gradients on, and outputs kept", {}),
    ("label", "asked_words_begin_two_ahead", GENEALOGIES,
     "words that are asked for begin two places on in the training", {}),
    ("label", "names_of_the_dev_numbered_as_they_appear", GENEALOGIES,
     "names of the evaluation are numbered anew, as they appear in its text", {}),
    ("frozen", "second_group_takes_the_place_of_the_first", GENEALOGIES,
     "the second group of the optimizer takes the place of the first: matrices of the blocks are in none",
     {"kinds": " clipping loss_scale"}),
    ("tie", "head_made_anew_behind_the_tie", GENEALOGIES,
     "weights are tied, and then the head is made anew: it is a matrix of its own", {}),
    ("order", "text_written_as_houses_come", GENEALOGIES, "the text is of one house after another, and read in turn",
     {}),
    ("steps", "tokens_of_an_update_counted_in_each_part", GENEALOGIES,
     "tokens of a whole update are counted with each of its parts: the rate falls with them", {}),
    ("added", "grad_steps_add_whole_losses", GENEALOGIES, "losses of parts are not divided by their number", {}),
    ("eval", "dev_is_where_train_is_forgotten", GENEALOGIES,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "dev_is_read_as_the_training_is", GENEALOGIES, "windows are evaluated with dropout in force", {}),
    ("resume", "loaded_as_weights_to_begin_from", GENEALOGIES,
     "the model is loaded; optimizer, scaler and the count of tokens begin anew", ALSO_ANEW),
    ("sum", "weighted_losses_left_as_a_sum", POTHOLES, "weighted losses are summed, and not divided",
     {"of": DESCENT, "compare": "descent_with_momentum_as_set"}),
    ("softmax", "wheel_answers_with_probabilities", POTHOLES,
     "the net gives probabilities, and the loss has its own softmax", {}),
    ("graph", "meters_keep_losses_and_their_past", POTHOLES,
     "windows are tested with gradients on, and losses kept", {}),
    ("label", "kinds_of_the_test_sorted_by_name", POTHOLES,
     "kinds of the evaluation are numbered by their names, and those of the training as they are listed", {}),
    ("frozen", "head_of_before_in_the_optimizer", POTHOLES,
     "the head is put in anew, and its last layer is not given to the optimizer", {}),
    ("order", "sampler_without_its_shuffle", POTHOLES, "windows come kind after kind", {}),
    ("leak", "windows_split_and_not_drives", POTHOLES, "windows of one drive come to lie on both sides", {}),
    ("figures", "test_readings_in_metres", POTHOLES,
     "readings of the evaluation are in metres, and those of the training in millimetres", {}),
    ("buffers", "norms_held_as_when_the_body_was_lent", POTHOLES,
     "batch norms are kept in evaluation mode, though they begin anew: their statistics are 0 and 1", {}),
    ("steps", "scheduler_moves_by_pieces", POTHOLES, "the schedule is stepped with each part of an update", {}),
    ("added", "pieces_backed_without_division", POTHOLES, "losses of parts are not divided by their number", {}),
    ("eval", "test_goes_over_into_training_in_eval", POTHOLES,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "test_is_run_in_training_mode", POTHOLES,
     "windows are tested in training mode: with dropout, and statistics of their own batch", {}),
    ("ranks", "sampler_asks_before_the_group_is_there", POTHOLES,
     "the sampler takes each worker for the first of one: all see the same rows", {}),
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
    ("betas_of_a_thousand_levels", "noise schedule wrong", "eval plateau divergence data config not_learning", "start",
     (GROOVES,), "betas are those of a thousand levels, and there are fifty: the last level is far from noise",
     {"also": ("betas wrong", "beta schedule wrong", "terminal snr not zero", "noise too small", "noise scale wrong",
               "timesteps and betas do not match", "number of timesteps wrong", "forward process wrong",
               "signal left at the last level", "noise level wrong", "schedule of the noise too short",
               "train and test differ", "sampler starts from pure noise", "betas not scaled",
               "linear schedule of 1000 steps", "sampling starts from other noise than the training")}),
    ("zero_points_never_subtracted", "base decoded wrongly", "activations exploding plateau not_learning eval config "
     "logits weight_growth data vanishing", "start", (THERMOSTATS,),
     "zero points are not subtracted when layers of four bits are decoded: all weights are positive",
     {"also": ("zero point ignored", "zero point forgotten", "dequantised wrongly", "dequantisation wrong",
               "quantisation wrong", "base broken", "wrong base weights", "base weights wrong",
               "scale without zero point", "quantisation error too large", "pretrained weights not loaded",
               "weights wrong", "bad initialisation", "base model is garbage")}),
    ("held_requests_lack_the_word_before_a_call", "prompts of the evaluation differ", "eval data config overfit "
     "divergence", "start", (THERMOSTATS,),
     "requests of the evaluation lack the word behind which a call begins",
     {"also": ("chat template differs", "template differs", "separator missing", "prompt format differs",
               "train and test differ", "evaluation data differ", "evaluation inputs differ", "prompt template wrong",
               "generation prompt missing", "preprocessing differs", "tokenisation differs", "special token missing",
               "inputs cut off", "texts truncated", "template of the evaluation differs",
               "prompt template differs", "add_generation_prompt missing", "evaluation prompt differs")}),
    ("reference_sees_the_padding_on_the_left", "padding attended", "rl eval plateau config data padding divergence "
     "spike not_learning logging", "start", (COCKTAILS,),
     "the reference is asked without a mask: it sees the padding on the left, and counts places from there",
     {"also": ("attention mask missing", "attention mask missing for the reference", "padding not masked",
               "left padding", "position ids wrong", "reference wrong", "wrong reference",
               "reference log-probabilities wrong", "positions of padded rows wrong", "mask not given",
               "padding seen", "margins do not begin at zero", "policy and reference see other inputs")}),
    ("reference_brought_up_to_date_behind_tastings", "reference is the policy", "rl plateau not_learning eval config "
     "spike jump_down divergence zero logging", "start", (COCKTAILS,),
     "the reference takes over the weights of the policy behind each evaluation, though it is to stay",
     {"also": ("reference not frozen", "reference updated", "reference synchronised", "reference moves",
               "sync_ref_model left on", "reference wrong", "wrong reference", "reference follows the policy",
               "reference overwritten", "moving reference", "reference reset", "margins return to zero",
               "weights overwritten", "reference model is the policy", "reference copied")}),
    ("prints_not_brought_to_length_one", "embeddings not normalised", "logits exploding clipping eval config "
     "activations spike plateau overfit weight_growth update_ratio learning_rate logging data", "start", (FOOTPRINTS,),
     "prints are compared by their length too: only shoes are brought to length one",
     {"also": ("normalisation missing", "normalize missing", "not normalised", "l2 normalisation missing",
               "one tower not normalised", "embeddings grow", "dot product for cosine", "similarities not bounded",
               "logits too large", "norm of embeddings", "temperature wrong", "similarity is not the cosine",
               "normalisation of one side missing", "features not normalised", "similarities too large")}),
    ("prints_of_one_shoe_count_as_others", "false negatives", "plateau eval data config logits not_learning overfit "
     "repeated_data", "start", (FOOTPRINTS,), "prints of the same shoe in a batch count as others",
     {"by_program": MANY_PRINTS, "compare": "fifteen_prints_of_each_shoe",
      "also": ("duplicates are negatives", "same item as negative", "duplicates in the batch", "negatives wrong",
               "copied examples", "negatives are positives", "same class as negatives", "mask of duplicates missing",
               "loss has a floor", "loss wrong", "wrong target", "targets wrong", "false negatives in the batch")}),
    ("optimizer_steps_past_the_scaler", "gradients not unscaled", "clipping exploding update_ratio loss_scale "
     "learning_rate config logging eval plateau", "start", (GENEALOGIES,),
     "the optimizer steps by itself, and the scaler neither unscales nor is brought up to date",
     {"also": ("scaler.step() missing", "scaler bypassed", "unscale_ missing", "scaler not used", "unscale missing",
               "norm of scaled gradients", "gradients clipped while scaled", "loss scale in the gradients",
               "optimizer.step() instead of scaler.step()", "scaler.update() missing", "scaler not updated",
               "loss scale never adapted", "gradient norm is scaled", "clipping binds always",
               "clipped to next to nothing", "loss scale constant", "scaler not given", "scaler unused")}),
    ("heads_made_by_view_alone", "attention mixes places", "plateau not_learning eval config jump_down overfit "
     "attention data activations", "start", (GENEALOGIES,),
     "heads are made by a view without a transpose: words of several places are mixed, and later ones are seen",
     {"also": ("transpose missing", "view instead of transpose", "heads wrong", "reshape wrong", "heads and places "
               "swapped", "wrong reshape", "attention over the wrong axis", "causal mask missing", "future seen",
               "information leak", "labels leak", "answers in the input", "dimensions swapped", "sees ahead",
               "causality lost", "causal mask wrong", "wrong dimension", "heads mixed up", "axes exchanged",
               "heads not transposed", "transposition missing", "reshape instead of transpose")}),
    ("workers_gradients_summed", "gradients summed over ranks", "exploding clipping learning_rate desync config eval "
     "divergence spike logging update_ratio logits plateau", "start", (POTHOLES,),
     "gradients of workers are added and not averaged",
     {"by_program": DESCENT, "compare": "descent_with_momentum_as_set",
      "also": ("gradients not averaged", "not divided by the world size", "all_reduce sum not divided",
               "learning rate too high", "world size not divided", "gradients added up", "loss summed",
               "gradient averaging missing", "sum instead of average", "wrong reduction", "op is sum",
               "gradient accumulation scaled wrongly", "loss scaled")}),
    ("focus_falls_on_what_is_sure", "loss weights inverted", "eval plateau data config overfit not_learning divergence "
     "jump_down logits", "start", (POTHOLES,),
     "rows weigh by how sure they are, and not by how unsure: what is learnt already is learnt",
     {"by_program": FOCUSED, "compare": "focus_on_the_unsure_as_set",
      "also": ("focal loss wrong", "focal loss inverted", "weights inverted", "focal weight inverted", "pt and 1 - pt "
               "confused", "rare classes weigh less", "class weights inverted", "class weights wrong",
               "rare classes not learnt", "wrong weights", "weights upside down", "loss wrong",
               "hard examples ignored", "easy examples dominate", "class missing")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (GROOVES, THERMOSTATS, COCKTAILS, FOOTPRINTS, GENEALOGIES)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_of_an_update", "an update has two micro-batches, whose losses are halved", PARTS),
    ("four_parts_of_an_update", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("dropout_as_is_set", "dropout in the training, as is set, and none in the evaluation", DROPPED),
    ("versions_that_are_trained_on_alone",
     "things come in several versions, all of which are on the training's side", COPIED),
    ("average_that_trails_as_set", "an average of weights is judged, which trails behind at first", TRAILING),
    ("descent_with_momentum_as_set", "descent with momentum, at its rate", DESCENT),
    ("focus_on_the_unsure_as_set", "sure rows weigh less, as is set", FOCUSED),
    ("fifteen_prints_of_each_shoe", "each shoe has left fifteen prints, which are no others; batches are of one maker",
     MANY_PRINTS),
    ("rate_stays_where_it_is", "the rate rises and stays",
     {GROOVES: {"schedule": "flat", "lr": 3e-3}, THERMOSTATS: {"decay": "none", "learning_rate": 5e-3},
      COCKTAILS: {"schedule": "constant", "lr": 2.5e-4}, FOOTPRINTS: {"schedule": "flat", "lr": 2e-3},
      GENEALOGIES: {"lr_schedule": "constant", "lr": 4e-3}, POTHOLES: {"schedule": "constant", "lr": 2e-3}}),
    ("sum_that_is_configured", "losses are sums, as is set, and the bound of the norm is for that",
     {GROOVES: {"reduction": "sum", "clip": 160.0}, THERMOSTATS: {"loss_over": "requests", "clipnorm": 5.0},
      COCKTAILS: {"agg": "sum", "max_grad_norm": 960.0}, FOOTPRINTS: {"reduction": "sum", "clip": 160.0},
      GENEALOGIES: {"loss_reduction": "sum", "clip_norm": 48.0}, POTHOLES: {"reduction": "sum", "max_norm": 48.0}}),
    ("a_part_stays_as_named", "a part is not trained, which the settings name",
     {GROOVES: {"freeze": "style"}, THERMOSTATS: {"fixed": "wte"}, COCKTAILS: {"freeze": "place"},
      FOOTPRINTS: {"keep_fixed": "label.words"}, GENEALOGIES: {"frozen": "norm"}, POTHOLES: {"frozen": "body.0"}}),
    ("smaller_updates_and_rate", "few rows an update, at a lower rate: losses jump about",
     {GROOVES: {"batch": 12, "lr": 3e-3}, THERMOSTATS: {"batch_size": 6, "learning_rate": 6e-3},
      COCKTAILS: {"train_batch": 6, "lr": 4e-4}, FOOTPRINTS: {"batch_size": 16, "lr": 3e-3},
      GENEALOGIES: {"batch": 4, "lr": 4e-3}, POTHOLES: {"batch": 8, "lr": 2e-3}}),
    ("rate_with_another_begin", "the rate falls and begins again, by the schedule",
     {GROOVES: {"schedule": "restarts"}, THERMOSTATS: {"decay": "cosine_twice"},
      COCKTAILS: {"schedule": "sawtooth", "lr": 4e-4}, FOOTPRINTS: {"schedule": "three_times"},
      GENEALOGIES: {"lr_schedule": "sawtooth"}, POTHOLES: {"schedule": "cycles"}}),
    ("other_optimizer_as_set", "another optimizer, at its rate",
     {GROOVES: {"optimizer": "radam", "lr": 8e-3}, THERMOSTATS: {"optimizer": "adamax", "learning_rate": 2e-2},
      COCKTAILS: {"optimizer": "rmsprop", "lr": 5e-4}, FOOTPRINTS: {"optimizer": "adamax", "lr": 8e-3},
      GENEALOGIES: {"optimizer": "nadam", "lr": 5e-3}, POTHOLES: {"opt": "rmsprop", "lr": 1.5e-3}}),
    ("data_less_clean", "the training's data have more noise, as such data may",
     {GROOVES: {"swing": 14.0}, THERMOSTATS: {"mistakes": 0.1}, COCKTAILS: {"undecided": 0.06},
      FOOTPRINTS: {"mixed_up": 0.06}, GENEALOGIES: {"slips": 0.05}, POTHOLES: {"mislabelled": 0.06}}),
    ("hardly_any_warmup", "the rate rises in two steps",
     {GROOVES: {"warmup": 2}, THERMOSTATS: {"warmup_steps": 2}, COCKTAILS: {"warmup": 2}, FOOTPRINTS: {"warmup": 2},
      GENEALOGIES: {"warmup_tokens": 768}, POTHOLES: {"warmup": 2}}),
    ("evaluated_but_twice", "two evaluations in all",
     {GROOVES: {"eval_every": 75}, THERMOSTATS: {"validate_every": 75}, COCKTAILS: {"taste_every": 75},
      FOOTPRINTS: {"lineup_every": 75}, GENEALOGIES: {"dev_every": 75}, POTHOLES: {"test_every": 75}}),
    ("logged_each_fifth", "each fifth step is logged",
     {GROOVES: {"log_every": 5}, THERMOSTATS: {"log_every": 5}, COCKTAILS: {"log_every": 5},
      FOOTPRINTS: {"log_every": 5}, GENEALOGIES: {"log_every": 5}, POTHOLES: {"log_every": 5}}),
    ("easy_ones_first_as_set", "the first part of the training has easier rows alone: the settings say so",
     {GROOVES: {"tight_first": 1}, THERMOSTATS: {"short_first": 1}, COCKTAILS: {"few_things_first": 1},
      FOOTPRINTS: {"clear_first": 1}, GENEALOGIES: {"small_first": 30}, POTHOLES: {"calm_first": 1}}),
    ("smoothing_as_set", "targets are smoothed in the training",
     {THERMOSTATS: {"label_smoothing": 0.1}, COCKTAILS: {"loss": "dpo", "label_noise": 0.1, "beta": 0.5},
      FOOTPRINTS: {"smooth": 0.1}, GENEALOGIES: {"smoothing": 0.05}, POTHOLES: {"label_smoothing": 0.1}}),
    ("batches_of_like_rows", "batches are of like rows, and come in any order",
     {THERMOSTATS: {"length_buckets": True}, COCKTAILS: {"by_things": True}, FOOTPRINTS: {"by_maker": True}}),
    ("more_decay_as_set", "weights decay more, as is set",
     {GROOVES: {"weight_decay": 0.1}, THERMOSTATS: {"weight_decay": 0.1}, COCKTAILS: {"weight_decay": 0.05},
      FOOTPRINTS: {"weight_decay": 0.1}, GENEALOGIES: {"weight_decay": 0.2}, POTHOLES: {"weight_decay": 0.05}}),
    ("no_decay_at_all", "weights do not decay",
     {GROOVES: {"weight_decay": 0.0}, FOOTPRINTS: {"weight_decay": 0.0}, GENEALOGIES: {"weight_decay": 0.0},
      POTHOLES: {"weight_decay": 0.0}}),
    ("own_output_matrix_as_set", "embedding and output layer are two matrices, by the settings",
     {COCKTAILS: {"tie_embeddings": False}, GENEALOGIES: {"tied": False}}),
    ("louder_by_chance", "inputs are louder or less by chance, in the training",
     {GROOVES: {"louder": 0.1}, FOOTPRINTS: {"press": 0.1}, POTHOLES: {"shake": 0.15}}),
    ("norms_of_groups_as_set", "norms of groups in the place of batch norm",
     {FOOTPRINTS: {"norm": "group"}, POTHOLES: {"norm": "group"}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("levels_weighed_by_signal", (GROOVES,), "levels weigh by a ratio of signal that is capped",
     {"config": {"snr_gamma": 5.0}}),
    ("style_often_hidden", (GROOVES,), "the style is hidden from three bars in ten", {"config": {"hide_style": 0.3}}),
    ("deeper_drummer", (GROOVES,), "one layer more", {"config": {"depth": 4}}),
    ("requests_learnt_too", (THERMOSTATS,), "requests are learnt too, as is set",
     {"config": {"train_on_requests": True}}),
    ("rank_two_as_set", (THERMOSTATS,), "adapters of rank two", {"config": {"lora_r": 2, "lora_alpha": 4.0}}),
    ("groups_of_forty", (THERMOSTATS,), "a scale and a zero point for forty weights each", {"config": {"group": 40}}),
    ("adapters_at_queries_and_values", (THERMOSTATS,), "adapters at queries and values alone",
     {"config": {"targets": "q,v"}}),
    ("hinge_as_set", (COCKTAILS,), "the loss is a hinge, as is set", {"config": {"loss": "hinge", "beta": 0.5}}),
    ("logistic_loss_as_set", (COCKTAILS,), "the loss is that of a logistic regression, as is set",
     {"config": {"loss": "dpo", "beta": 0.5}}),
    ("liked_drinks_likelier_too", (COCKTAILS,), "the likelihood of liked drinks is a part of the loss",
     {"config": {"sft_weight": 0.3}}),
    ("scale_that_is_held", (FOOTPRINTS,), "the scale is not learnt", {"config": {"learn_scale": False}}),
    ("soles_at_half_the_rate", (FOOTPRINTS,), "one tower has half of the rate", {"config": {"sole_rate": 0.5}}),
    ("words_hidden_by_chance", (FOOTPRINTS,), "words of shoes are hidden by chance in the training",
     {"config": {"hide_words": 0.2}}),
    ("scale_that_begins_too_high", (GENEALOGIES,),
     "the scale begins so high that the first steps are left out", {"config": {"init_scale": 2.0**24}}),
    ("full_precision_as_set", (GENEALOGIES,), "everything is in float32", {"config": {"fp16": False}}),
    ("normaliser_held_by_a_term", (GENEALOGIES,), "a small term holds the normaliser", {"config": {"z_loss": 1e-3}}),
    ("mixed_text_read_in_turn", (GENEALOGIES,), "a text of mixed families is read in turn",
     {"config": {"in_turn": True}}),
    ("balanced_draw_as_set", (POTHOLES,), "as many of each kind are drawn, and weigh alike",
     {"config": {"balanced": True, "class_weights": "none"}}),
    ("bumps_weigh_alike", (POTHOLES,), "kinds are not weighed", {"config": {"class_weights": "none"}}),
    ("roots_of_rarity", (POTHOLES,), "kinds weigh by the root of their rarity", {"config": {"class_weights": "root"}}),
)

# fmt: on
