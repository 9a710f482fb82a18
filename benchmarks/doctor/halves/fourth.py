"""The fourth half of the bench that was opened: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

Half of the faults are known ones of the bench in new programs, half are mistakes that it does not have, chosen from
what people report of such trainings. Written by one who read no rule, and knew the kinds of findings. It was put away
until 26 November 2026, and scored once: 66% of its faults were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TAGGER, SENTENCES, PACKED, GAN = "tagger", "sentences", "packed", "gan"
CONTROLLER, RECOMMENDER, KEYPOINTS, FINETUNED = "controller", "recommender", "keypoints", "finetuned"
PROGRAMS = (TAGGER, SENTENCES, PACKED, GAN, CONTROLLER, RECOMMENDER, KEYPOINTS, FINETUNED)
STEPS = {TAGGER: 220, SENTENCES: 240, PACKED: 220, GAN: 280, CONTROLLER: 220, RECOMMENDER: 40, KEYPOINTS: 240,
         FINETUNED: 140}  # fmt: skip

Row = tuple[str, str, str, str, tuple[str, ...], str, dict[str, Any]]

# fmt: off

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "padding_counted": {TAGGER: {}},
    "zero_grad_missing_later": {TAGGER: {}},
    "learning_rate_ends_early": {TAGGER: {}},
    "rows_joined_wrongly": {SENTENCES: {}},
    "learning_rate_x100": {SENTENCES: {}, GAN: {}, CONTROLLER: {}},
    "optimizer_stale": {SENTENCES: {}},
    "accumulation_undivided": {SENTENCES: {"accumulation": 2}},
    "labels_off_by_one": {PACKED: {}},
    "weight_tying_broken": {PACKED: {}},
    "optimizer_state_lost": {PACKED: {}},
    "learning_rate_x10": {PACKED: {}},
    "scheduler_per_micro_batch": {PACKED: {"accumulation": 2}},
    "sigmoid_before_loss": {GAN: {}},
    "zero_grad_missing": {GAN: {}},
    "target_never_copied": {CONTROLLER: {}},
    "reward_constant": {CONTROLLER: {}},
    "validation_leak": {RECOMMENDER: {}},
    "overfitting": {RECOMMENDER: {"examples": 1500, "factors": 48, "weight_decay": 0.0, "dropout": 0.0}},
    "weight_decay_too_high": {RECOMMENDER: {"weight_decay": 30.0}},
    "learning_rate_too_low": {RECOMMENDER: {}},
    "held_out_unscaled": {KEYPOINTS: {}},
    "gradient_nonfinite": {KEYPOINTS: {}},
    "data_exhausted": {KEYPOINTS: {}},
    "same_seed_on_ranks": {FINETUNED: {}},
    "all_reduce_missing": {FINETUNED: {}},
    "wrong_group_frozen": {FINETUNED: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

FAULTS: tuple[Row, ...] = (
    ("tags_not_aligned", "labels do not match the inputs", "not_learning plateau data eval overfit divergence", "start",
     (TAGGER,), "words are cut into pieces, their tags are not: tags stand beside other words",
     {"also": ("labels not aligned with tokens", "labels shifted", "labels shuffled", "labels are noisy",
               "wrong format of the targets")}),
    ("viewed_not_transposed", "wrong dimension", "not_learning plateau data logits eval divergence config", "start",
     (TAGGER,),
     "the tags' dimension is brought forward by a view, not by a transposition: places and tags are mixed",
     {"also": ("softmax over the wrong dimension", "labels shuffled", "labels do not match the inputs",
               "batch and time exchanged", "axes exchanged", "view instead of transpose")}),
    ("weights_inverted", "class weights inverted", "plateau not_learning eval data zero vanishing config", "start",
     (TAGGER,), "the weights of the tags are how frequent they are, not the inverse: rare tags count for nothing",
     {"also": ("rare class missing", "class missing", "one class alone", "outputs collapsed",
               "loss terms out of balance")}),
    ("tags_in_other_order", "evaluation labels are others", "eval overfit divergence data", "start", (TAGGER,),
     "the evaluation numbers the tags in another order than the training",
     {"also": ("labels do not match the inputs", "tokenizer mismatch", "labels shifted", "labels shuffled",
               "labels of the evaluation differ")}),
    ("scale_missing", "temperature missing", "plateau not_learning logits vanishing config", "start", (SENTENCES,),
     "cosines go into the cross-entropy without the factor of 20: it can't get near 0",
     {"also": ("temperature too high", "logits not scaled", "logits too small", "scale missing", "softmax twice")}),
    ("padding_pooled", "padding in the mean", "padding data plateau not_learning eval activations", "start",
     (SENTENCES,), "the mean over a sentence's places has its padding too",
     {"also": ("padding pooled", "padding is read", "padding not masked", "attention mask missing", "mask missing",
               "padding mask missing")}),
    ("answers_repeat", "false negatives in the batch", "repeated_data data not_learning plateau replay", "start",
     (SENTENCES,), "eight questions have the same answer and come one after another: the right answer counts as wrong",
     {"also": ("duplicates in the batch", "copied examples", "data sorted", "data not shuffled", "data replayed",
               "same order in each epoch", "labels do not match the inputs", "labels are noisy")}),
    ("causality_lost", "labels can be seen", "data jump_down zero eval attention overfit activations", "start",
     (PACKED,), "the mask of the documents takes the place of the causal one: each letter sees what comes behind it",
     {"also": ("future visible", "causal mask missing", "attention mask missing", "labels leak", "labels shifted",
               "target leak")}),
    ("shortcut_forgotten", "residual missing", "plateau not_learning vanishing activations update_ratio attention",
     "start", (PACKED,), "attention replaces what came in, where it should be added to it",
     {"also": ("residual connection missing", "shortcut missing", "gradients vanish", "bad initialisation",
               "inputs do not reach the output")}),
    ("warmup_outlasts_run", "warm-up too long", "learning_rate not_learning plateau update_ratio config", "start",
     (PACKED,), "the warm-up is longer than the run: the rate never gets near its peak",
     {"config": {"warmup_steps": 2000},
      "also": ("learning rate too low", "warm-up longer than the run", "schedule longer than the run",
               "warm-up never ends")}),
    ("generator_cut_off", "graph cut", "frozen not_learning plateau zero update_ratio divergence vanishing data",
     "start", (GAN,), "the generator's own loss is of detached pictures: nothing trains it",
     {"also": ("generator detached", "layer frozen", "loss detached", "loss does not reach layers",
               "optimizer holds other parameters")}),
    ("fakes_called_fake", "sign reversed", "divergence not_learning plateau zero saturated data vanishing config",
     "start", (GAN,), "the generator learns with the discriminator's label: it wants its pictures to be called fake",
     {"also": ("labels swapped", "labels do not match the inputs", "wrong label for the generator",
               "discriminator too strong")}),
    ("pictures_as_bytes", "inputs not normalised",
     "data activations saturated not_learning plateau divergence zero exploding logits vanishing", "start", (GAN,),
     "real pictures are from 0 to 255, generated ones from -1 to 1: nobody has to learn what they look like",
     {"also": ("targets out of range", "targets not scaled", "discriminator too strong", "ranges differ")}),
    ("ends_not_masked", "terminal states not masked", "rl divergence exploding not_learning plateau weight_growth",
     "start", (CONTROLLER,), "what follows is added to a value behind the last move too",
     {"also": ("values overestimated", "done not masked", "done flag ignored", "bootstrapping past the end")}),
    ("value_minimised", "sign reversed", "rl not_learning divergence plateau", "start", (CONTROLLER,),
     "the actor's loss has the value with the wrong sign: it learns to fall",
     {"also": ("actor minimises the value", "policy loss has the wrong sign")}),
    ("log_prob_uncorrected", "log-probability not corrected", "rl saturated plateau data activations config", "start",
     (CONTROLLER,), "the log-probability is of the number before the tanh: noise without end seems to cost nothing",
     {"also": ("tanh correction missing", "policy saturated", "entropy too high", "entropy overestimated",
               "actions saturated")}),
    ("temperature_reversed", "sign reversed", "rl not_learning plateau divergence", "start", (CONTROLLER,),
     "the loss of the entropy's weight has the wrong sign: the weight grows all the time",
     {"also": ("entropy weight too high", "temperature has the wrong sign", "temperature grows",
               "entropy coefficient grows", "target entropy wrong")}),
    ("actions_not_scaled", "actions not scaled", "rl not_learning plateau saturated", "start", (CONTROLLER,),
     "actions between -1 and 1 are taken as forces, where four times as much would be needed",
     {"also": ("action range", "outputs not scaled", "actions out of range", "targets not scaled")}),
    ("negatives_forgotten", "one class alone", "zero data jump_down eval overfit divergence vanishing", "start",
     (RECOMMENDER,), "only what was watched is trained on: the answer is always yes",
     {"also": ("no negatives", "negatives missing", "class missing", "rare class missing", "labels all alike",
               "outputs collapsed", "labels can be seen")}),
    ("negatives_drawn_once", "negatives drawn once", "overfit eval data repeated_data", "start", (RECOMMENDER,),
     "films that nobody watched are drawn once for all epochs, and learnt by heart",
     {"also": ("negatives never drawn anew", "overfitting", "same order in each epoch", "too few examples")}),
    ("ids_encoded_apart", "tokenizer mismatch", "eval overfit divergence data", "start", (RECOMMENDER,),
     "films are numbered anew in the table that is held out: the same number is another film",
     {"also": ("labels do not match the inputs", "evaluation inputs are others", "encoders differ",
               "vocabulary mismatch", "evaluation labels are others", "evaluation data differ")}),
    ("points_not_swapped", "labels do not match the inputs", "not_learning plateau eval overfit data divergence",
     "start", (KEYPOINTS,), "faces are mirrored with their points, but the left eye does not become the right one",
     {"also": ("augmentation of the inputs alone", "labels shuffled", "labels are noisy", "labels swapped")}),
    ("layers_in_list", "layers not registered", "frozen plateau not_learning update_ratio config", "start",
     (KEYPOINTS,), "the convolutions are kept in a plain list: the optimizer has never heard of them",
     {"also": ("layers in a plain list", "optimizer holds other parameters", "layer frozen",
               "parameters not registered", "frozen as drawn",
               "parameters missing from the optimizer")}),
    ("scheduled_per_batch", "scheduler stepped per batch",
     "learning_rate not_learning plateau update_ratio frozen config", "start", (KEYPOINTS,),
     "a scheduler that counts epochs is stepped with each batch: the rate is gone after two epochs",
     {"also": ("learning rate too low", "scheduler stepped per micro-batch", "scheduler stepped too often",
               "schedule too short")}),
    ("relu_at_output", "targets out of range", "plateau not_learning dead saturated data vanishing", "start",
     (KEYPOINTS,), "the last layer ends in a rectifier, and half of the numbers that are asked for are below 0",
     {"also": ("activation at the output", "outputs can't be negative", "output range", "bad initialisation",
               "dead units", "units dead")}),
    ("missing_points_counted", "loss mask missing", "plateau not_learning data eval", "start", (KEYPOINTS,),
     "points that can't be seen count in the loss, where they are zeros",
     {"config": {"hidden_points": 0.3}, "compare": "hidden_points",
      "also": ("missing values", "labels not masked", "labels are noisy", "labels do not match the inputs",
               "padding in the loss", "loss not masked")}),
    ("pictures_by_class", "data sorted", "data spike divergence plateau not_learning repeated_data eval zero replay",
     "start", (FINETUNED,), "pictures come folder by folder: each batch has one kind alone",
     {"also": ("data not shuffled", "same order in each epoch", "one class alone", "class missing", "bad batch",
               "data replayed")}),
    ("weights_under_other_names", "weights not loaded", "plateau not_learning eval config resume divergence", "start",
     (FINETUNED,), "the names in the checkpoint begin with another word, and nobody is strict: nothing is loaded",
     {"also": ("checkpoint not loaded", "bad initialisation", "names do not match")}),
    ("order_never_changes", "same order in each epoch", "repeated_data data replay overfit eval", "start", (FINETUNED,),
     "the sampler is never given the epoch's number: every epoch has the same batches",
     {"severity": "info",
      "also": ("data replayed", "data not shuffled", "data sorted", "sampler epoch not set", "shuffled once")}),
)

# Kinds that are right of every fault of a program, as its consequence: none.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "one_a_batch": {TAGGER: {"batch_size": 3}, KEYPOINTS: {"batch_size": 4}},
    "high_rate": {TAGGER: {}},
    "few_pairs": {SENTENCES: {}},
    "wsd": {SENTENCES: {}},
    "accumulated": {SENTENCES: {"accumulation": 2}, PACKED: {"accumulation": 2}},
    "resume": {PACKED: {}},
    "warm_restarts": {PACKED: {}},
    "constant_rate": {RECOMMENDER: {}},
    "dropout": {KEYPOINTS: {"dropout": 0.3}},
    "trained_thinly": {FINETUNED: {}},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    ("rare_names", (TAGGER,), "one word in twenty is a name: the accuracy is high from early on, the F1 is not",
     {"config": {"names": 0.05}}),
    ("wrong_tags", (TAGGER,), "one tag in ten is wrong: the loss stays high", {"config": {"wrong_tags": 0.1}}),
    ("related_questions", (SENTENCES,), "half of the questions are about nearly the same: the loss stays high",
     {"config": {"alike": 0.5}}),
    ("short_documents", (PACKED,), "documents of two to eight letters: many of them in a row, and little to go by",
     {"config": {"shortest": 2, "longest": 8}}),
    ("smoothed", (GAN,), "the label of real pictures is 0.9: the discriminator's loss has a floor",
     {"config": {"real_label": 0.9}}),
    ("hinge", (GAN,), "the hinge loss: the generator's is below 0 at times", {"config": {"loss": "hinge"}}),
    ("two_critic_steps", (GAN,), "two steps of the discriminator for each of the generator",
     {"config": {"critic_steps": 2}}),
    ("few_rings", (GAN,), "rings of three sizes alone, and few of them", {"config": {"kinds": 3, "examples": 200}}),
    ("blurred_sensors", (CONTROLLER,), "angle and speed are seen with noise: values are all noise",
     {"config": {"sensor_noise": 0.1}}),
    ("fixed_temperature", (CONTROLLER,), "the entropy weighs a tenth from the start, on purpose",
     {"config": {"alpha": 0.1}}),
    ("small_memory", (CONTROLLER,), "a memory of 800 moves: what was learnt first is soon forgotten",
     {"config": {"memory": 800}}),
    ("strong_pushes", (CONTROLLER,), "a pole is pushed hard at each move: returns are all noise",
     {"config": {"push": 2.0}}),
    ("watched_by_chance", (RECOMMENDER,), "two in five views are by chance: the loss stays high",
     {"config": {"by_chance": 0.4}}),
    ("bestsellers", (RECOMMENDER,), "a few films are watched by nearly all: the loss falls at once, then hardly",
     {"config": {"popularity": 1.5}}),
    ("hidden_points", (KEYPOINTS,), "three points in ten can't be seen, and don't count",
     {"config": {"hidden_points": 0.3}}),
    ("robust_points", (KEYPOINTS,), "the loss of Huber, half as large", {"config": {"loss": "huber"}}),
    ("frozen_statistics", (FINETUNED,), "batch norm keeps the statistics of the base, on purpose", {}),
    ("late_unfreezing", (FINETUNED,), "the head alone is trained for a third of the run, then all",
     {"config": {"unfreeze_step": 50}}),
    ("mixed_pictures", (FINETUNED,), "pictures and kinds are mixed: the training's loss is above the evaluation's",
     {"config": {"mixup": 0.5}}),
)

# fmt: on
