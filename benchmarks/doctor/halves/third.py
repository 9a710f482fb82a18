"""The third half of the bench that was opened: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

It was put away until 26 November 2026, and scored once: 56% of its faults were found. It was written by one who knew
the rules' one-line table and what the watch records, and no rule: mistakes that people report of such trainings, each a
line of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INSTRUCT, JUDGE, DISTILLED, RECURRENT = "instruct", "reward_model", "distilled", "recurrent"
DETECTOR, FORECASTER, VALUES, LATENT = "detector", "forecaster", "value_learner", "autoencoder"
PROGRAMS = (INSTRUCT, JUDGE, DISTILLED, RECURRENT, DETECTOR, FORECASTER, VALUES, LATENT)
STEPS = {INSTRUCT: 240, JUDGE: 200, DISTILLED: 240, RECURRENT: 200, DETECTOR: 200, FORECASTER: 60, VALUES: 240,
         LATENT: 240}  # fmt: skip

BROKEN = "divergence spike exploding not_learning plateau nonfinite"

# fmt: off

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "learning_rate_x10": {INSTRUCT: {}},
    "accumulation_undivided": {INSTRUCT: {"accumulation": 2}},
    "labels_off_by_one": {INSTRUCT: {}},
    "pairs_swapped": {JUDGE: {}},
    "learning_rate_jump": {JUDGE: {}},
    "overfitting": {JUDGE: {"examples": 256}, FORECASTER: {"hours": 480, "channels": 48, "patience": 20}},
    "zero_grad_missing_later": {DISTILLED: {}},
    "learning_rate_too_low": {DISTILLED: {}},
    "data_exhausted": {DISTILLED: {}},
    "text_read_across": {RECURRENT: {}},
    "schedule_restarted": {RECURRENT: {}},
    "loss_masked": {RECURRENT: {}},
    "gradient_nonfinite": {RECURRENT: {}},
    "stale_statistics": {DETECTOR: {}},
    "held_out_unscaled": {DETECTOR: {}},
    "loss_summed": {DETECTOR: {}},
    "learning_rate_x100": {VALUES: {}},
    "annealed_when_better": {FORECASTER: {}},
    "weight_decay_too_high": {FORECASTER: {"weight_decay": 20.0}},
    "optimizer_stale": {VALUES: {}},
    "reward_constant": {VALUES: {}},
    "training_mode_in_evaluation": {LATENT: {}},
    "layer_frozen": {LATENT: {}},
    "zero_grad_missing": {LATENT: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

Row = tuple[str, str, str, str, tuple[str, ...], str, dict[str, Any]]
FAULTS: tuple[Row, ...] = (
    ("prompts_counted", "labels not masked", "data eval padding plateau divergence overfit config", "start",
     (INSTRUCT,), "labels are a copy of the tokens: the prompts, which nobody can foresee, count in the loss",
     {"also": ("prompts not masked", "loss mask missing", "prompt in the loss")}),
    ("end_never_told", "class missing", "eval data overfit divergence padding", "start", (INSTRUCT,),
     "padding is the token of the end, and is ignored: so is the end, which is never learnt",
     {"also": ("padding token is the end token", "end of sequence never a target", "labels masked wrongly",
               "evaluation labels are others", "labels do not match the inputs")}),
    ("rotary_over_heads", "wrong dimension", "plateau not_learning divergence attention data activations", "start",
     (INSTRUCT,), "rotary positions run along the heads, not along the tokens",
     {"also": ("positions missing", "positional embedding", "position encoding over the wrong dimension")}),
    ("answers_cut_off", "loss masked out", "nonfinite data zero spike padding divergence", "start", (INSTRUCT,),
     "the greatest length is so short that most answers are cut off: batches without any label give NaN",
     {"config": {"max_length": 7},
      "also": ("all labels ignored", "sequences truncated", "mean over nothing", "batch without a target")}),
    ("embeddings_resized_late", "optimizer holds other parameters",
     "frozen plateau not_learning update_ratio missing_zero_grad", "start", (INSTRUCT,),
     "the embedding is made larger after the optimizer was made, which has the old one",
     {"also": ("layer frozen",)}),
    ("score_at_first", "wrong token pooled", "not_learning plateau zero frozen vanishing data rl", "start", (JUDGE,),
     "the score is read at the first token, which sees nothing of the answer: it is the same for both",
     {"also": ("outputs collapsed", "loss masked out", "labels shuffled", "chosen and rejected alike",
               "pairs are the same", "wrong dimension", "inputs do not reach the output", "graph cut")}),
    ("pairs_cut_alike", "sequences truncated", "not_learning plateau zero frozen vanishing data rl repeated_data",
     "start", (JUDGE,), "the greatest length leaves the prompts alone: chosen and rejected are the same",
     {"config": {"max_length": 6},
      "also": ("chosen and rejected alike", "pairs are the same", "loss masked out", "labels shuffled",
               "copied examples", "data replayed", "outputs collapsed", "inputs do not reach the output")}),
    ("scores_squashed", "sigmoid twice", "plateau not_learning logits vanishing saturated data rl", "start", (JUDGE,),
     "scores go through a sigmoid before their difference goes through another: the loss has a floor",
     {"also": ("softmax twice", "activation twice", "gradients vanish")}),
    ("divergence_without_logarithm", "logarithm missing",
     "data logits plateau not_learning config vanishing eval divergence", "start", (DISTILLED,),
     "the divergence from the teacher is given probabilities, not their logarithms",
     {"also": ("log-probabilities expected",)}),
    ("teacher_trained", "target not detached", "zero data divergence eval plateau frozen update_ratio jump_down",
     "start", (DISTILLED,), "the teacher is not frozen: it learns to say what the student says",
     {"also": ("teacher is trained", "reference is the policy", "reference moves", "target trained with the value",
               "outputs collapsed")}),
    ("teacher_not_loaded", "bad initialisation", "plateau not_learning eval divergence data logits frozen", "start",
     (DISTILLED,), "the weights of the teacher are not loaded: it says what it was drawn to say",
     {"also": ("weights not loaded", "checkpoint not loaded", "labels shuffled", "loss terms out of balance",
               "frozen as drawn", "layer frozen")}),
    ("decay_sign_lost", "sign reversed", f"{BROKEN} activations logits weight_growth clipping", "start", (RECURRENT,),
     "the sign of the decay is lost: the state grows at each place",
     {"also": ("recurrence unstable", "overflow in a layer", "bad initialisation", "activations grow",
               "gradients explode")}),
    ("convolution_not_causal", "labels can be seen", "data jump_down zero eval attention overfit activations", "start",
     (RECURRENT,), "the short convolution is padded on both sides: each place sees the next letter",
     {"also": ("labels shifted", "future visible")}),
    ("embedding_as_drawn", "bad initialisation",
     "logits spike divergence plateau activations exploding clipping config not_learning", "start",
     (RECURRENT,), "the embedding, which is the output's matrix too, is as torch draws it: too large for that",
     {"also": ("logits too large",)}),
    ("boxes_in_pixels", "targets not scaled", "plateau not_learning data saturated eval clipping exploding", "start",
     (DETECTOR,), "the training's boxes are in pixels, the model gives shares of the picture",
     {"also": ("targets out of range", "labels do not match the inputs", "inputs not normalised",
               "evaluation labels are others")}),
    ("boxes_not_flipped", "labels do not match the inputs", "not_learning plateau eval overfit data divergence",
     "start", (DETECTOR,), "pictures are flipped at random, their boxes are not",
     {"also": ("labels shuffled", "augmentation of the inputs alone", "labels are noisy")}),
    ("boxes_as_corners", "labels do not match the inputs", "eval overfit divergence data plateau not_learning", "start",
     (DETECTOR,), "the training's boxes are two corners, where centre and size are meant",
     {"also": ("targets out of range", "evaluation labels are others", "wrong format of the targets",
               "targets not scaled")}),
    ("background_counted", "loss mask missing", "plateau not_learning eval data jump_down", "start", (DETECTOR,),
     "boxes count in cells without a thing too, where they are zeros",
     {"also": ("padding in the loss", "labels not masked", "loss not masked", "background in the loss")}),
    ("box_term_detached", "graph cut", "frozen not_learning plateau zero update_ratio", "start", (DETECTOR,),
     "the loss of the boxes is added as a number: nothing trains them",
     {"also": ("layer frozen", "loss detached", "loss does not reach layers")}),
    ("gaps_not_filled", "bad batch", "nonfinite data", "start", (FORECASTER,),
     "four hours of one series are missing and are not filled in: NaN goes into the weights",
     {"hard": True, "also": ("non-finite input", "input not finite", "targets not finite", "non-finite gradient",
                             "missing values")}),
    ("errors_in_other_units", "logging", "eval overfit divergence config data", "start", (FORECASTER,),
     "the evaluation's loss is in the units of the series, the training's in deviations",
     {"also": ("units differ", "loss summed", "inputs not normalised", "targets not scaled",
               "evaluation loss summed")}),
    ("window_holds_target", "labels can be seen", "overfit eval divergence jump_down data zero", "start",
     (FORECASTER,), "the training's windows end too late: they hold most of what is to be said",
     {"also": ("target leak", "labels leak", "labels shifted")}),
    ("target_never_copied", "target network not updated", "rl plateau not_learning frozen zero", "start", (VALUES,),
     "the target network is never copied from the one that is trained",
     {"also": ("target network never updated", "averaged weights not updated", "layer frozen")}),
    ("next_state_alike", "labels do not match the inputs", "rl plateau not_learning data divergence zero repeated_data",
     "start", (VALUES,), "what is seen before a move is written over by what is seen behind it",
     {"also": ("states overwritten", "next state is the state", "data replayed", "values overestimated",
               "labels shuffled")}),
    ("exploration_never_falls", "exploration never lowered", "rl plateau not_learning", "start", (VALUES,),
     "all moves are at random until the end: nothing that was learnt is ever done",
     {"also": ("exploration rate never lowered", "exploration too high", "exploration stays",
               "reward hacking or KL blow-up")}),
    ("divergence_reversed", "sign reversed", f"{BROKEN} clipping logits weight_growth activations data", "start",
     (LATENT,), "the divergence of the latent numbers is subtracted", {"also": ("KL term has the wrong sign",)}),
    ("pixels_averaged", "KL weight too high", "plateau not_learning zero vanishing dead frozen data", "start",
     (LATENT,), "the loss of the pixels is their mean, the divergence a sum: nothing goes through the latent numbers",
     {"also": ("posterior collapse", "loss divided too often", "latent collapsed", "loss terms out of balance",
               "outputs collapsed", "gradient accumulation scaled wrongly")}),
    ("sampled_without_gradient", "graph cut", "plateau not_learning zero vanishing dead frozen data", "start",
     (LATENT,), "latent numbers are drawn without a gradient: the encoder learns nothing of the pixels",
     {"also": ("sampled without a gradient", "posterior collapse", "latent collapsed", "outputs collapsed",
               "layer frozen")}),
    ("pixels_below_zero", "targets out of range", f"{BROKEN} logits weight_growth data jump_down activations zero",
     "start", (LATENT,), "pictures are scaled to -1 to 1, where the logistic loss takes 0 to 1",
     {"also": ("targets not scaled", "inputs not normalised")}),
    ("sigmoid_before_loss", "sigmoid twice", "plateau not_learning logits vanishing data", "start", (LATENT,),
     "the output goes through a sigmoid before the logistic loss, which has its own",
     {"also": ("softmax twice", "activation twice")}),
)

# Kinds that are right of every fault of a program, as its consequence: this one halves its rate whenever the evaluation
# gets no better, whatever the reason.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {FORECASTER: ("learning_rate",)}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "accumulated": {INSTRUCT: {"accumulation": 2}},
    "high_rate": {INSTRUCT: {}, RECURRENT: {}},
    "resume": {RECURRENT: {}},
    "wsd": {JUDGE: {}, DISTILLED: {}},
    "dropout": {RECURRENT: {"dropout": 0.2}, DETECTOR: {"dropout": 0.3}},
    "stairs": {FORECASTER: {"schedule": "stairs"}},
    "one_a_batch": {DETECTOR: {"batch_size": 4}},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    ("few_conversations", (INSTRUCT,), "a fifth of the conversations, each several times: stairs",
     {"config": {"examples": 600}}),
    ("short_answers", (INSTRUCT,), "answers of a single letter and more: most of a batch is prompt and padding",
     {"config": {"shortest": 1, "batch_size": 16}}),
    ("at_odds", (JUDGE,), "people are wrong in a quarter of the pairs: the loss stays near ln 2",
     {"config": {"wrong_pairs": 0.25}}),
    ("close_pairs", (JUDGE,), "half of the letters are the same in both answers: margins are small",
     {"config": {"closeness": 0.5}}),
    ("teacher_alone", (DISTILLED,), "no labels of the text, on purpose: the divergence from the teacher alone",
     {"config": {"soft": 1.0}}),
    ("hot_teacher", (DISTILLED,), "a temperature of 6: the teacher's chances are nearly alike, the gradient is small",
     {"config": {"temperature": 6.0}}),
    ("poor_teacher", (DISTILLED,), "a teacher that has learnt half of it: the divergence falls, the loss less",
     {"config": {"teacher_steps": 60}}),
    ("long_memory", (RECURRENT,), "decays ten times as slow: states are far larger than what comes in",
     {"config": {"slowest": 0.005}}),
    ("empty_pictures", (DETECTOR,), "a third of the pictures has nothing on it", {"config": {"empty": 0.35}}),
    ("heavy_boxes", (DETECTOR,), "boxes weigh four times as much in the loss", {"config": {"box_weight": 20.0}}),
    ("much_noise", (FORECASTER,), "three quarters of the variance can't be foreseen: the loss stays high",
     {"config": {"noise": 1.6}}),
    ("higher_year", (FORECASTER,), "all is higher in what is held out: its loss is above the training's from the start",
     {"config": {"step_up": 0.5}}),
    ("robust_loss", (FORECASTER,), "the loss of Huber", {"config": {"loss": "huber"}}),
    ("drawn_slowly", (VALUES,), "the target network follows a little in each update", {"config": {"polyak": 0.02}}),
    ("two_networks", (VALUES,), "double learning: one network chooses, the other says the value",
     {"config": {"double": True}}),
    ("wind", (VALUES,), "the wind blows every third ball aside: returns are noise, and never get near 1",
     {"config": {"wind": 0.35}}),
    ("warmed_divergence", (LATENT,), "the divergence is added little by little: it rises first, and the loss with it",
     {"config": {"beta_steps": 120}}),
    ("light_divergence", (LATENT,), "the divergence weighs a tenth: it grows all the time",
     {"config": {"beta": 0.1}}),
    ("too_many_numbers", (LATENT,), "twenty latent numbers, of which most stay unused", {"config": {"latent": 20}}),
)

# fmt: on
