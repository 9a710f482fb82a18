"""The twenty-sixth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-fifth half: noise taken off atoms with an average that draws, adapters beside
an encoder of three bits, preferences of a recurrent net against a frozen copy, two towers for climates and plants, a
language model in bfloat16 throughout, rare minerals on two ranks under torch's data parallelism; each as another
ordinary engineer writes it. Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a
person gets wrong in that program; those in `REPORTED` are others that people report of such trainings. Who wrote them
had read no rule, and did not look at what the doctor says. A fault is called by any name that a person would give it,
and every kind of finding that would be right of it is right; the names that the twenty-fifth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import eighteenth, ninth, sixteenth, twentyfifth
from halves.ninth import Row, Settings

PROGRAMS = ("crystals", "peptides", "tallies", "gardens", "snippets", "minerals")
CRYSTALS, PEPTIDES, TALLIES, GARDENS, SNIPPETS, MINERALS = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "target_from_before_the_turn", "lattice_hidden_the_wrong_way_round",
    "alpha_is_multiplied_by_the_rank", "valid_rows_without_their_mask",
    "padding_behind_a_tally_counts", "fixed_net_from_the_file_of_the_policy", "rows_cut_at_sixteen_words",
    "plants_left_at_their_length", "sharpness_used_as_its_logarithm",
    "estimate_adds_up_in_the_weights_kind", "clipped_before_the_backward",
    "no_sync_around_the_last_part_too", "missing_is_a_number_like_others",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    CRYSTALS: {"batch": 16, "rounds": 2}, PEPTIDES: {"batch_size": 8, "grad_accum": 2},
    TALLIES: {"lists_per_step": 8, "slices": 2}, GARDENS: {"pairs": 24, "pieces": 2},
    SNIPPETS: {"batch_size": 8, "grad_accum": 2}, MINERALS: {"batch_per_rank": 12, "accumulate": 2},
}
FOUR_PARTS: Settings = {
    CRYSTALS: {"batch": 8, "rounds": 4}, PEPTIDES: {"batch_size": 4, "grad_accum": 4},
    TALLIES: {"lists_per_step": 4, "slices": 4},
    GARDENS: {"pairs": 16, "pieces": 4, "opt": "sgd", "lr": 0.02, "clip": 100.0},
    SNIPPETS: {"batch_size": 4, "grad_accum": 4},
    MINERALS: {"batch_per_rank": 8, "accumulate": 4, "optimizer": "sgd", "lr": 0.15, "clip_norm": 100.0},
}
DROPPED: Settings = {
    CRYSTALS: {"dropout": 0.4}, PEPTIDES: {"lora_dropout": 0.3}, TALLIES: {"dropout": 0.25}, GARDENS: {"dropout": 0.3},
    SNIPPETS: {"dropout": 0.2}, MINERALS: {"dropout": 0.3},
}
COPIED: Settings = {
    CRYSTALS: {"snapshots": 5}, PEPTIDES: {"homologues": 5, "peptides": 400},
    TALLIES: {"pairs_per_list": 4, "lists": 700}, GARDENS: {"years": 4, "gardens": 800},
    MINERALS: {"pieces_of_a_rock": 5},
}
TRAILING: Settings = {CRYSTALS: {"half_life": 1600}, GARDENS: {"average": 0.98}}
DESCENT: Settings = {
    GARDENS: {"opt": "sgd", "lr": 0.02, "clip": 100.0},
    MINERALS: {"optimizer": "sgd", "lr": 0.03, "clip_norm": 100.0},
}
RARE_COPIED: Settings = {MINERALS: {"repeat_rare": 6, "class_weights": "none"}}
EVEN: Settings = {MINERALS: {"sampler": "balanced", "class_weights": "none"}}
TURNED: Settings = {CRYSTALS: {"turn": 0.5}}
WAITING: Settings = {SNIPPETS: {"blocks_wait": 20}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------


def several(*names: str) -> tuple[str, ...]:
    """Names, each once."""
    return tuple(dict.fromkeys(names))


SUMMED = several(*twentyfifth.SUMMED, "loss summed over atoms", "loss of a peptide summed", "loss of a window summed")
MEANED = several(*twentyfifth.MEANED, "evaluation averages over words", "average_log_prob in the evaluation alone",
                 "train and test differ", "evaluation loss is of means")
GRAPHS = several(*twentyfifth.GRAPHS, "requires_grad_(False) missing", "history keeps graphs")
TWICE = twentyfifth.TWICE
SHIFTED = several(*twentyfifth.SHIFTED, "tags not aligned", "tags off by the first token", "label encoder fitted anew",
                  "columns swapped", "chosen and rejected swapped", "chosen and rejected change places",
                  "classes sorted by name", "class order differs", "targets of the next row")
FROZEN = several(*twentyfifth.FROZEN, "layers not registered",
                 "blocks not registered", "list and not ModuleList", "blocks not in a ModuleList",
                 "submodules not registered", "recurrent weights not in the optimizer", "blocks never unfrozen",
                 "unfreezing never happens", "head not in modules_to_save", "new head frozen",
                 "from_pretrained freezes", "head not in the optimizer", "head replaced after the optimizer was made")
TIE = several(*twentyfifth.TIE, "head deep-copied", "output layer replaced", "tie lost in the loading")
SORTED = several(*twentyfifth.SORTED, "lattice after lattice", "family after family", "zone after zone",
                 "windows in order", "windows not drawn at random", "ranks have other classes",
                 "data not shuffled across ranks", "shards sorted")
REPEATED = several(*SORTED, "same batch again and again", "same batch in each step", "generator seeded anew",
                   "data replayed", "seed set in each step", "batch never changes", "one batch repeated",
                   "overfitting one batch", "overfitting", "data repeated", "few examples")
LEAK = several(*twentyfifth.LEAK, "homologues on both sides", "years of one garden on both sides")
FIGURES = several(*twentyfifth.FIGURES, "units differ", "evaluation in another unit", "transform missing",
                  "evaluation not scaled")
BUFFERS = several(*twentyfifth.BUFFERS, "batch norm's statistics are stale",
                  "buffers of the average are those of the start", "update_bn missing",
                  "batch norm statistics not recomputed", "running statistics reset", "reset_running_stats",
                  "scaler not fitted", "scaler fitted after the copy", "average has no scaler")
STEPPED = twentyfifth.STEPPED
ADDED = twentyfifth.ADDED
IN_EVAL = twentyfifth.IN_EVAL
IN_TRAINING = several(*twentyfifth.IN_TRAINING, "average left in training mode")
AVERAGE = several(*twentyfifth.AVERAGE, "decay of the average too slow",
                  "half-life in another unit", "half-life too long", "kimg and images confused",
                  "average hardly moves")
NOT_BACK = several(*twentyfifth.NOT_BACK, "network overwritten by its average", "average loaded into the network")
RESUMED = twentyfifth.RESUMED
ANEW = twentyfifth.ANEW
SAME = several(*twentyfifth.SAME, "rank environment variable not set", "every rank is rank 0")

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
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "kin_on_one_side", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_parts_an_update", STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "four_parts_an_update",
              ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropout_as_configured", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropout_as_configured",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING, "average_of_a_long_past",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_summed_over_atoms", CRYSTALS, "squared errors are summed over a crystal's atoms", {}),
    ("graph", "tick_without_no_grad", CRYSTALS, "the average is judged with gradients on, and figures are kept", {}),
    ("label", "lattices_of_the_held_by_the_alphabet", CRYSTALS,
     "lattices of the evaluation are counted by the alphabet, those of the training as they are listed", {}),
    ("frozen", "layers_in_a_plain_list", CRYSTALS,
     "layers are kept in a plain list: the optimizer does not get them, and they stay as they began", {}),
    ("order", "read_in_the_order_of_the_file", CRYSTALS, "crystals come lattice after lattice", {}),
    ("figures", "held_file_is_in_nanometres", CRYSTALS,
     "places of the evaluation are in nanometres, and those of the training in angstroms", {}),
    ("buffers", "average_copied_before_the_figures_were_fitted", CRYSTALS,
     "the average was copied before mean and spread of the places were measured: it has 0 and 1", {}),
    ("steps", "seen_grows_by_the_whole_batch_in_each_round", CRYSTALS,
     "crystals seen are counted as if each part of an update were the whole: the rate falls twice as fast", {}),
    ("added", "rounds_not_divided_out", CRYSTALS, "losses of parts are not divided by their number", {}),
    ("eval", "net_not_set_to_train_behind_a_tick", CRYSTALS,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "average_drops_as_the_net_does", CRYSTALS, "the average is judged with dropout in force", {}),
    ("average", "half_life_in_thousands", CRYSTALS,
     "the half-life of the average is taken for thousands of crystals: the average hardly moves", {}),
    ("swap", "net_draws_with_the_average_in_it", CRYSTALS,
     "the average is loaded into the net for an evaluation, and stays there", {}),
    ("resume", "snapshot_of_both_networks_alone", CRYSTALS,
     "weights and their average are loaded; the optimizer and the count that the rate follows begin anew",
     {"also": ANEW}),
    ("sum", "residues_of_a_peptide_summed", PEPTIDES, "losses of residues are summed, and divided by peptides", {}),
    ("softmax", "head_gives_shares_to_the_loss", PEPTIDES,
     "the head ends in a softmax, and the loss has its own", {}),
    ("graph", "valid_outputs_gathered_for_a_report", PEPTIDES,
     "peptides are validated with gradients on, and outputs kept", {}),
    ("label", "folds_begin_at_the_mark", PEPTIDES,
     "folds are written from the mark before a peptide on: each is one place early, in the training", {}),
    ("label", "folds_of_the_valid_file_in_another_order", PEPTIDES,
     "folds of the evaluation are counted in the order of their names, those of the training as they are listed", {}),
    ("frozen", "everything_there_is_held_as_the_base", PEPTIDES,
     "the new head is held with the base, though it begins anew", {}),
    ("frozen", "optimizer_made_before_the_adapters", PEPTIDES,
     "the optimizer was made before the adapters: it has the head alone", {}),
    ("order", "families_as_the_file_has_them", PEPTIDES, "peptides come family after family", {}),
    ("leak", "homologues_on_both_sides", PEPTIDES, "peptides of one origin come to lie on both sides", {}),
    ("steps", "scheduler_beside_the_backward", PEPTIDES, "the schedule is stepped with each part of an update", {}),
    ("added", "grad_accum_left_out_of_the_loss", PEPTIDES, "losses of parts are not divided by their number", {}),
    ("eval", "valid_leaves_the_tagger_in_eval", PEPTIDES,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "valid_with_adapters_dropping", PEPTIDES, "peptides are validated with dropout in force", {}),
    ("resume", "adapter_file_is_all_there_is", PEPTIDES,
     "weights are loaded; the optimizer and the schedule begin anew", {"also": ANEW}),
    ("sum", "pairs_of_a_step_added", TALLIES, "losses of pairs are summed", {}),
    ("sum", "means_over_words_for_the_check_alone", TALLIES,
     "tallies are compared by means over words in the evaluation, and by sums in the training",
     {"also": MEANED, "cause": "wrong reduction"}),
    ("graph", "gaps_of_the_check_are_kept_as_they_are", TALLIES,
     "pairs are evaluated with gradients on, and gaps kept", {}),
    ("label", "words_wanted_are_moved_in_the_book_too", TALLIES,
     "words that are asked for are shifted by one, twice, in the training", {}),
    ("label", "held_columns_the_other_way_round", TALLIES,
     "columns of the held pairs are swapped: the worse tally counts as the better one", {}),
    ("frozen", "groups_by_the_ends_of_names", TALLIES,
     "the optimizer has weights and biases by the ends of their names, and those of the GRU end in numbers", {}),
    ("tie", "output_layer_put_in_from_the_file", TALLIES,
     "the output layer is put in anew from the file: it is a matrix of its own, beside the table", {}),
    ("order", "pairs_in_the_order_of_the_book", TALLIES, "pairs come by what is wrong with the worse tally", {}),
    ("steps", "done_is_counted_by_slices", TALLIES, "the rate moves on with each part of an update", {}),
    ("added", "slices_weigh_as_much_as_a_whole", TALLIES, "losses of parts are not divided by their number", {}),
    ("eval", "policy_stays_as_it_was_checked", TALLIES, "the policy is not set back to training behind an evaluation",
     {}),
    ("train", "check_while_words_are_dropped", TALLIES, "pairs are evaluated with the policy dropping", {}),
    ("resume", "only_the_policy_is_in_the_file", TALLIES,
     "the policy's weights are loaded; the optimizer and the count that the rate follows begin anew", {"also": ANEW}),
    ("sum", "rows_of_the_batch_summed", GARDENS, "losses of rows are summed over the batch",
     {"of": DESCENT, "compare": "momentum_in_the_place_of_adam"}),
    ("softmax", "scores_made_probabilities_first", GARDENS,
     "similarities go through a softmax, and then into a loss that has its own", {}),
    ("graph", "heldout_scores_kept_for_a_plot", GARDENS,
     "held gardens are evaluated with gradients on, and scores kept", {}),
    ("label", "targets_begin_at_one", GARDENS, "targets of a batch are counted from one: each is that of the next row",
     {}),
    ("frozen", "table_made_by_from_pretrained", GARDENS,
     "the table of plants is made by a function that freezes it, though it begins by chance", {}),
    ("frozen", "months_not_given_to_the_optimizer", GARDENS,
     "the optimizer has the tower of plants, and not that of months", {}),
    ("order", "gardens_by_zone_as_they_were_collected", GARDENS, "gardens come zone after zone", {}),
    ("leak", "years_of_a_garden_in_both_parts", GARDENS, "years of one garden come to lie on both sides", {}),
    ("figures", "heldout_months_as_they_are_in_the_file", GARDENS,
     "months of the evaluation are not standardised as those of the training are", {}),
    ("buffers", "norms_of_the_average_never_measured", GARDENS,
     "batch norms of the average are never measured: their statistics are those of the start", {}),
    ("steps", "sched_moves_with_pieces", GARDENS, "the schedule is stepped with each part of an update",
     {"of": {GARDENS: {**PARTS[GARDENS], "sched": "line"}}, "compare": "line_in_two_parts"}),
    ("added", "pieces_are_not_parts_of_a_mean", GARDENS, "losses of parts are not divided by their number", {}),
    ("eval", "towers_are_left_in_eval", GARDENS, "towers are not set back to training behind an evaluation", {}),
    ("train", "average_judged_as_it_was_settled", GARDENS,
     "the average is judged in training mode: with dropout, and statistics of its own batch", {}),
    ("swap", "average_is_taken_over_after_it_is_judged", GARDENS,
     "behind an evaluation the training goes on from the average", {}),
    ("resume", "towers_and_their_average_come_back_alone", GARDENS,
     "weights and their average are loaded; the optimizer and the schedule begin anew", {"also": ANEW}),
    ("sum", "words_of_a_window_added", SNIPPETS, "losses of words are summed, and divided by windows", {}),
    ("softmax", "forward_returns_probabilities", SNIPPETS,
     "the model gives probabilities, and the loss has its own softmax", {}),
    ("graph", "estimate_without_its_decorator", SNIPPETS, "windows are evaluated with gradients on, and outputs kept",
     {}),
    ("label", "targets_begin_two_places_on", SNIPPETS, "targets begin two places behind the window, in the training",
     {}),
    ("frozen", "wait_is_counted_in_epochs", SNIPPETS,
     "blocks wait for twenty steps, which are counted in epochs: they are never trained",
     {"of": WAITING, "compare": "blocks_begin_after_twenty_steps"}),
    ("tie", "head_made_anew_in_float32", SNIPPETS, "the head is a copy in float32: the tie with the embedding is lost",
     {}),
    ("order", "windows_follow_each_other", SNIPPETS,
     "windows come one behind the other from a file that has kind after kind", {}),
    ("order", "generator_is_made_in_get_batch", SNIPPETS,
     "the generator is seeded in each step: all batches are one batch", {"also": REPEATED, "cause": "data replayed"}),
    ("steps", "iter_num_goes_up_in_the_inner_loop", SNIPPETS, "the rate moves on with each part of an update", {}),
    ("added", "inner_losses_at_full_weight", SNIPPETS, "losses of parts are not divided by their number", {}),
    ("eval", "estimate_is_the_end_of_training_mode", SNIPPETS,
     "the model is not set back to training behind an evaluation", {}),
    ("train", "estimate_drops_words", SNIPPETS, "windows are evaluated with dropout in force", {}),
    ("resume", "init_from_resume_takes_the_model_alone", SNIPPETS,
     "the model is loaded; the optimizer and the count that the rate follows begin anew", {"also": ANEW}),
    ("sum", "criterion_adds_the_rows", MINERALS, "weighted losses are summed, and not divided",
     {"of": DESCENT, "compare": "momentum_in_the_place_of_adam"}),
    ("softmax", "predict_and_forward_are_one", MINERALS,
     "the net gives probabilities, and the loss has its own softmax", {}),
    ("label", "names_of_valid_coded_by_the_alphabet", MINERALS,
     "minerals of the evaluation are counted by the alphabet, those of the training as they are listed", {}),
    ("frozen", "head_replaced_behind_the_optimizer", MINERALS,
     "the head is replaced behind the optimizer, which has the one that was", {}),
    ("order", "each_rank_a_piece_of_the_file", MINERALS,
     "each rank reads its half of a sorted file from its begin: minerals come one after another", {}),
    ("leak", "rare_samples_repeated_before_the_split", MINERALS,
     "rare samples are repeated before the split: copies come to lie on both sides",
     {"of": RARE_COPIED, "compare": "rare_samples_repeated_for_training"}),
    ("figures", "transform_of_the_valid_set_left_out", MINERALS, "measures of the evaluation are not scaled", {}),
    ("buffers", "running_figures_reset_for_a_clean_valid", MINERALS,
     "running statistics are reset before each evaluation, and not measured anew", {}),
    ("steps", "scheduler_in_every_backward", MINERALS, "the schedule is stepped with each part of an update", {}),
    ("added", "parts_not_shared_out", MINERALS, "losses of parts are not divided by their number", {}),
    ("eval", "no_way_back_from_valid", MINERALS, "the net is not set back to training behind an evaluation", {}),
    ("train", "valid_runs_as_the_training_does", MINERALS,
     "samples are evaluated in training mode: with dropout, and statistics of their own batch", {}),
    ("ranks", "rank_read_from_a_variable_that_is_not_set", MINERALS,
     "the sampler's rank is read from a variable that is not set: each rank has the rows of the first", {}),
    ("ranks", "balanced_draws_of_one_seed", MINERALS, "each rank draws minerals evenly by one seed",
     {"of": EVEN, "compare": "minerals_drawn_alike"}),
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
    ("target_from_before_the_turn", "target is not turned", "eval divergence plateau exploding clipping data config "
     "spike not_learning overfit", "start", (CRYSTALS,),
     "crystals are turned by chance before noise is added, and the target is the crystal that was not turned",
     {"by_program": TURNED, "compare": "turned_by_chance", "also": (
         "augmentation of the inputs alone", "targets not augmented", "target not transformed", "wrong target",
         "labels do not match the inputs", "augmentation wrong", "inputs and targets differ", "train and test differ",
         "transform applied to the input only", "loss weight too large", "target mismatch", "evaluation data differ")}),
    ("lattice_hidden_the_wrong_way_round", "condition hidden", "eval plateau data config frozen not_learning overfit "
     "divergence", "start", (CRYSTALS,),
     "the lattice is hidden from nine crystals in ten, and not from one in ten",
     {"also": ("condition dropped too often", "classifier-free dropout inverted", "mask inverted",
               "class label not used", "conditioning missing", "condition not learnt", "comparison inverted",
               "label dropout inverted", "train and test differ", "evaluation data differ", "mask upside down",
               "class embedding hardly trained", "unconditional probability wrong")}),
    ("alpha_is_multiplied_by_the_rank", "scale of the adapters wrong", "exploding spike divergence clipping logits "
     "learning_rate eval plateau update_ratio config activations not_learning nonfinite loss_scale overfit", "start",
     (PEPTIDES,), "what adapters add is scaled by alpha times the rank, and not by alpha over the rank",
     {"also": ("adapter scale wrong",
               "scaling too large", "alpha times the rank", "lora scaling wrong", "adapter scale too large",
               "learning rate too high", "scale inverted", "scaling inverted", "adapters too strong",
               "effective learning rate too high", "updates too large", "alpha over rank inverted")}),
    ("valid_rows_without_their_mask", "padding attended", "eval padding overfit data config divergence", "start",
     (PEPTIDES,), "peptides are validated without their mask: padding is attended to",
     {"also": ("attention mask missing", "mask missing in evaluation", "padding not masked",
               "attention mask not passed", "train and test differ", "evaluation data differ",
               "evaluation inputs differ", "preprocessing differs",
               "mask wrong", "attention mask wrong", "padding in the attention", "mask of the evaluation differs")}),
    ("padding_behind_a_tally_counts", "padding counted", "padding spike divergence plateau eval rl data config logging "
     "exploding clipping overfit not_learning jump_down", "start", (TALLIES,),
     "padding behind a tally counts as words of it in the training",
     {"also": ("padding not masked", "padding in the loss", "padding counted in the loss", "loss mask wrong",
               "mask wrong", "pad tokens in the loss", "padding learnt", "answer mask has the padding",
               "labels of padding not ignored", "wrong reduction", "train and test differ", "loss mask missing",
               "pad tokens learnt", "log-probabilities of padding added")}),
    ("fixed_net_from_the_file_of_the_policy", "reference moves with the policy", "resume spike divergence plateau rl "
     "eval data config jump_down zero not_learning", "resume", (TALLIES,),
     "at the resume the frozen copy is loaded from the policy's file: gaps begin at 0 again",
     {"also": ("reference is the policy", "reference loaded from the checkpoint", "reference overwritten",
               "reference not restored", "reference updated", "reference wrong", "reference replaced",
               "reference model from the resumed policy", "margins fall back to zero", "checkpoint incomplete",
               "reference copied from the policy", "wrong reference after the resume", "optimizer state lost")}),
    ("rows_cut_at_sixteen_words", "answers cut off", "eval plateau data config not_learning rl divergence "
     "overfit padding zero", "start", (TALLIES,),
     "rows of the training are cut behind sixteen words: ends of long tallies are never seen",
     {"also": ("truncated on the wrong side", "max_length too small", "truncation", "answers truncated",
               "rows truncated", "truncation side wrong", "sequences cut", "length too short", "train and test differ",
               "evaluation data differ", "end of the answer not learnt", "preprocessing differs",
               "context too short")}),
    ("plants_left_at_their_length", "embeddings not normalised", "logits plateau exploding eval config data spike "
     "divergence overfit not_learning clipping weight_growth", "start", (GARDENS,),
     "what the tower of plants gives is not normalised: similarities grow with their length",
     {"also": ("one tower not normalised", "normalisation missing", "features not normalised", "cosine wrong",
               "cosine similarities wrong", "similarities too large", "scale of the similarities wrong",
               "normalisation of one side missing", "logits too large", "norm of the embeddings grows",
               "normalize missing")}),
    ("sharpness_used_as_its_logarithm", "temperature wrong", "logits plateau not_learning config eval vanishing "
     "overfit learning_rate frozen", "start", (GARDENS,),
     "similarities are multiplied by the logarithm of the scale, and not by the scale",
     {"also": ("temperature missing",
               "exp missing", "scale not exponentiated", "temperature too high", "logit scale wrong",
               "logit scale too small", "scale is the logarithm", "scale of the similarities wrong",
               "logit_scale.exp() missing", "similarities too small", "softmax too flat", "temperature misused")}),
    ("estimate_adds_up_in_the_weights_kind", "sum in low precision", "eval config data logging overfit plateau "
     "divergence nonfinite", "start", (SNIPPETS,),
     "losses of an evaluation are added up in bfloat16: small ones are lost beside their sum, or rounded",
     {"also": ("evaluation sum in bfloat16", "accumulated in bfloat16", "sum rounds away", "rounding",
               "loss lost in rounding", "accumulator in low precision", "metric in half precision",
               "evaluation loss wrong", "precision of the sum too low", "train and test differ",
               "mean of the evaluation wrong", "low precision", "half precision")}),
    ("clipped_before_the_backward", "gradients never clipped", "clipping exploding spike divergence config logging "
     "zero vanishing learning_rate eval missing_zero_grad update_ratio", "start", (SNIPPETS,),
     "gradients are clipped before they are there: the norm is 0 in all steps, and nothing is clipped",
     {"also": ("clipping before the backward", "clipping has no effect", "clipping off", "clipping in the wrong place",
               "norm measured before the backward", "gradient norm is zero", "gradient norm wrong",
               "clip_grad_norm_ before backward", "not clipped", "gradients unclipped", "norm of no gradients",
               "gradients vanish")}),
    ("no_sync_around_the_last_part_too", "gradients not synchronised", "desync plateau eval config logging divergence "
     "not_learning overfit", "start", (MINERALS,),
     "all parts of an update are in no_sync: gradients of ranks are never averaged",
     {"also": ("all-reduce missing",
               "no_sync in all micro-batches", "ddp bypassed", "ranks drift apart", "ranks disagree",
               "gradients not averaged", "weights differ across ranks", "weights differ", "all_reduce missing",
               "ranks not synchronised", "parameters not synchronised", "no_sync always on", "ranks train alone",
               "gradient averaging missing", "no_sync left on")}),
    ("missing_is_a_number_like_others", "missing values are numbers", "data activations eval plateau config "
     "not_learning spike overfit divergence exploding", "start", (MINERALS,),
     "what marks a missing measure is scaled as a measure: mean and deviation are of both",
     {"also": ("sentinel values not replaced", "missing values not filled", "outliers in the inputs",
               "inputs not normalised", "normalisation wrong", "missing values in the statistics",
               "sentinel -99 in the data", "statistics wrong", "wrong mean and deviation", "imputation missing",
               "inputs badly scaled", "missing values treated as numbers", "data dirty", "bad batch")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (CRYSTALS, PEPTIDES, TALLIES, GARDENS, SNIPPETS)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_parts_an_update", "an update has two micro-batches, whose losses are halved", PARTS),
    ("four_parts_an_update", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("dropout_as_configured", "much dropout in the training, none in the evaluation", DROPPED),
    ("kin_on_one_side", "things come in several versions, all of which are on the training's side", COPIED),
    ("average_of_a_long_past", "an average of weights is judged, which trails behind at first", TRAILING),
    ("momentum_in_the_place_of_adam", "descent with momentum, at its rate", DESCENT),
    ("rate_kept_up_to_the_end", "the rate rises and stays",
     {CRYSTALS: {"fall": "none", "rate": 2e-3}, PEPTIDES: {"lr_scheduler": "constant", "lr": 3e-3},
      TALLIES: {"course": "flat", "step_size": 6e-4}, GARDENS: {"sched": "flat", "lr": 2e-3},
      SNIPPETS: {"decay": "none", "learning_rate": 2e-3}, MINERALS: {"schedule": "level", "lr": 2e-3}}),
    ("sum_by_name", "losses are sums, as is set, and the bound of the norm is for that",
     {CRYSTALS: {"reduce": "sum_atoms", "grad_cap": 48.0}, PEPTIDES: {"reduction": "sum", "max_norm": 20.0},
      TALLIES: {"reduction": "sum", "grad_limit": 80.0}, GARDENS: {"reduction": "sum", "clip": 400.0},
      SNIPPETS: {"loss": "sum", "grad_clip": 36.0}, MINERALS: {"reduction": "sum", "clip_norm": 32.0}}),
    ("held_part_by_name", "a part is not trained, which the settings name",
     {CRYSTALS: {"fixed": "noise"}, PEPTIDES: {"target_modules": "wq,wv"}, TALLIES: {"keep_fixed": "mix"},
      GARDENS: {"freeze": "plants.names"}, SNIPPETS: {"frozen": "ln_f"}, MINERALS: {"frozen": "tables"}}),
    ("small_updates_of_few_rows", "few rows an update, at a lower rate: losses jump about",
     {CRYSTALS: {"batch": 10, "rate": 2e-3, "ramp": 100, "half_life": 100}, PEPTIDES: {"batch_size": 6, "lr": 3e-3},
      TALLIES: {"lists_per_step": 6, "step_size": 6e-4}, GARDENS: {"pairs": 16, "lr": 2.5e-3},
      SNIPPETS: {"batch_size": 6, "learning_rate": 2e-3}, MINERALS: {"batch_per_rank": 8, "lr": 2e-3}}),
    ("rate_goes_down_more_than_once", "the rate falls and begins again, by the schedule",
     {CRYSTALS: {"fall": "twice"}, PEPTIDES: {"lr_scheduler": "cosine_with_restarts"}, TALLIES: {"course": "teeth"},
      GARDENS: {"sched": "cosine_twice"}, SNIPPETS: {"decay": "two_cosines"}, MINERALS: {"schedule": "three_cycles"}}),
    ("optimizer_of_choice", "another optimizer, at its rate",
     {CRYSTALS: {"optimizer": "radam", "rate": 6e-3}, PEPTIDES: {"optim": "adamax", "lr": 1e-2},
      TALLIES: {"optimizer": "rmsprop", "step_size": 4e-4}, GARDENS: {"opt": "nadam", "lr": 4e-3},
      SNIPPETS: {"optimizer": "adamax", "learning_rate": 1.2e-2}, MINERALS: {"optimizer": "adagrad", "lr": 3e-2}}),
    ("training_part_is_rough", "the training's data have more noise, as such data may",
     {CRYSTALS: {"heat": 0.25}, PEPTIDES: {"misread": 0.1}, TALLIES: {"flipped": 0.1}, GARDENS: {"wrong_lists": 0.1},
      SNIPPETS: {"typos": 0.05}, MINERALS: {"wrong_names": 0.06}}),
    ("rises_at_once", "the rate rises in two steps or three",
     {CRYSTALS: {"ramp": 64}, PEPTIDES: {"warmup_steps": 2}, TALLIES: {"warmup": 2},
      GARDENS: {"warmup": 2, "sched": "line"}, SNIPPETS: {"warmup_iters": 2}, MINERALS: {"rise": 0.02}}),
    ("judged_twice_in_all", "two evaluations in all",
     {CRYSTALS: {"tick": 70}, PEPTIDES: {"eval_every": 70}, TALLIES: {"check_every": 70},
      GARDENS: {"heldout_every": 70}, SNIPPETS: {"eval_interval": 70}, MINERALS: {"valid_every": 70}}),
    ("one_step_in_three_logged", "each third step is logged",
     {CRYSTALS: {"write_every": 3}, PEPTIDES: {"log_every": 3}, TALLIES: {"report_every": 3},
      GARDENS: {"log_every": 3}, SNIPPETS: {"log_interval": 3}, MINERALS: {"log_every": 3}}),
    ("easier_ones_lead", "the first part of the training has easier rows alone: the settings say so",
     {CRYSTALS: {"cool_first": 2}, PEPTIDES: {"short_first_epochs": 1}, TALLIES: {"few_things_first": 1},
      GARDENS: {"full_lists_first": 2}, SNIPPETS: {"easy_iters": 30}, MINERALS: {"complete_first_epochs": 1}}),
    ("labels_smoothed_by_name", "targets are smoothed in the training",
     {PEPTIDES: {"label_smoothing": 0.1}, TALLIES: {"tally_smoothing": 0.1}, SNIPPETS: {"label_smoothing": 0.1},
      MINERALS: {"smoothing": 0.1}}),
    ("alike_in_length_in_any_order", "batches are of like lengths, and come in any order",
     {PEPTIDES: {"group_by_length": True}, TALLIES: {"like_lengths": True}}),
    ("decay_that_is_set", "weights decay more, as is set",
     {CRYSTALS: {"optimizer": "adamw", "weight_decay": 0.1}, PEPTIDES: {"weight_decay": 0.1},
      TALLIES: {"weight_decay": 0.1}, GARDENS: {"wd": 0.1}, SNIPPETS: {"weight_decay": 0.3},
      MINERALS: {"weight_decay": 0.1}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("turned_by_chance", (CRYSTALS,), "crystals are turned by chance, before noise is added", {"by_program": TURNED}),
    ("noise_weighs_alike", (CRYSTALS,), "errors weigh alike at all deviations, as is set",
     {"config": {"weighted": False}}),
    ("lattice_often_untold", (CRYSTALS,), "the lattice is hidden from four crystals in ten, as is set",
     {"config": {"untold": 0.4}}),
    ("noise_of_another_spread", (CRYSTALS,), "deviations of the training's noise are others, as is set",
     {"config": {"noise_mean": -0.5, "noise_spread": 0.8}}),
    ("rate_by_the_root_of_what_is_seen", (CRYSTALS,), "the rate falls by a root", {"config": {"fall": "root"}}),
    ("root_of_r_in_the_scale", (PEPTIDES,), "the scale is by the root of the rank",
     {"config": {"rslora": True, "lr": 4e-3}}),
    ("head_learns_at_a_third", (PEPTIDES,), "the head has a third of the rate", {"config": {"head_lr_times": 0.3}}),
    ("folds_weighed_by_the_root", (PEPTIDES,), "folds weigh by the root of their rarity",
     {"config": {"fold_weights": "root"}}),
    ("two_columns_are_enough", (PEPTIDES,), "adapters of rank two", {"config": {"r": 2, "alpha": 4}}),
    ("scales_for_ten_weights", (PEPTIDES,), "a scale for ten weights each", {"config": {"scale_block": 10}}),
    ("hinge_on_the_gap", (TALLIES,), "the loss is a hinge, as is set", {"config": {"loss": "hinge"}}),
    ("square_of_the_gap", (TALLIES,), "the loss is a square, as is set", {"config": {"loss": "square"}}),
    ("good_tallies_learnt_beside", (TALLIES,), "the likelihood of good tallies is a part of the loss",
     {"config": {"sft_share": 0.3}}),
    ("untied_by_name", (TALLIES, SNIPPETS), "embedding and output layer are two matrices, by the settings",
     {"config": {"tied": False}}),
    ("beta_of_twice_the_size", (TALLIES,), "beta is twice the usual one", {"config": {"beta": 0.4}}),
    ("line_in_two_parts", (GARDENS,), "an update has two micro-batches, and the rate falls in a line",
     {"config": {**PARTS[GARDENS], "sched": "line"}}),
    ("sharpness_held", (GARDENS,), "the scale is not learnt", {"config": {"learn_sharpness": False}}),
    ("plants_at_a_third_of_the_rate", (GARDENS,), "one tower has a third of the rate", {"config": {"plants_lr": 0.3}}),
    ("plants_forgotten_in_training", (GARDENS,), "some plants of each list are left out in the training",
     {"config": {"forget_plants": 0.3}}),
    ("groups_normed_by_name", (GARDENS,), "norms of groups in the place of batch norm, as is set",
     {"config": {"norm": "group"}}),
    ("one_side_of_the_table", (GARDENS,), "the loss is of one direction", {"config": {"sides": "one"}}),
    ("blocks_begin_after_twenty_steps", (SNIPPETS,), "blocks are not trained in the first twenty steps, as is set",
     {"by_program": WAITING}),
    ("float32_throughout", (SNIPPETS,), "everything is in float32", {"config": {"dtype": "float32"}}),
    ("normaliser_term", (SNIPPETS,), "a small term holds the normaliser", {"config": {"z_loss": 1e-3}}),
    ("three_blocks", (SNIPPETS,), "a block more", {"config": {"n_layer": 3}}),
    ("cosine_to_a_tenth", (SNIPPETS,), "the rate falls by a cosine to a tenth", {"config": {"decay": "cosine"}}),
    ("minerals_drawn_alike", (MINERALS,), "as many of each mineral are drawn, and weigh alike", {"by_program": EVEN}),
    ("minerals_weigh_alike", (MINERALS,), "minerals are not weighed", {"config": {"class_weights": "none"}}),
    ("inverse_of_the_counts", (MINERALS,), "minerals weigh by the inverse of their number",
     {"config": {"class_weights": "inverse"}}),
    ("rare_samples_repeated_for_training", (MINERALS,), "rare samples come six times, on the training's side",
     {"by_program": RARE_COPIED}),
    ("sure_names_weigh_less", (MINERALS,), "sure rows weigh less", {"config": {"focal": 1.0}}),
    ("rate_down_three_stairs", (MINERALS,), "the rate falls in stairs", {"config": {"schedule": "stairs"}}),
    ("fifth_of_the_measures_missing", (MINERALS,), "a fifth of the training's measures are missing, and filled",
     {"config": {"missing": 0.2}}),
)

# fmt: on
