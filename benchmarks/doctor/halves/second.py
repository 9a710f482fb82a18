"""The second half of the bench that was opened: its programs, faults and healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`; `KNOWN_FAULTS`, `FAULTS`, `ALSO_RIGHT`, `KNOWN_HEALTHY`, `HEALTHY`.

It was put away until 26 November 2026, and scored once: 67% of its faults were found. It measures nothing unseen now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SEGMENTER, TRANSLATOR, MASKED, READER = "segmenter", "translator", "masked_lm", "rnn_lm"
TABLE, GRAPH, ACTOR, SPEECH = "tabular", "graph", "actor_critic", "speech"
PROGRAMS = (SEGMENTER, TRANSLATOR, MASKED, READER, TABLE, GRAPH, ACTOR, SPEECH)
STEPS = {SEGMENTER: 200, TRANSLATOR: 300, MASKED: 320, READER: 500, TABLE: 100, GRAPH: 300, ACTOR: 120, SPEECH: 240}

BROKEN = "divergence spike exploding not_learning plateau nonfinite"

# fmt: off

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "evaluation_mode_left_on": {SEGMENTER: {"dropout": 0.3}},
    "loss_summed": {SEGMENTER: {}},
    "validation_leak": {SEGMENTER: {}},
    "learning_rate_x100": {TRANSLATOR: {}, GRAPH: {}},
    "layer_frozen": {TRANSLATOR: {}},
    "tokenizer_mismatch": {TRANSLATOR: {}},
    "loss_masked": {MASKED: {}},
    "layer_overflow": {MASKED: {}},
    "optimizer_state_lost": {MASKED: {}},
    "clipping_off": {READER: {}},
    "learning_rate_jump": {READER: {}, ACTOR: {}},
    "labels_leak": {READER: {}},
    "zero_grad_missing_later": {READER: {}},
    "overfitting": {TABLE: {"examples": 400, "weight_decay": 0.0}},
    "learning_rate_too_low": {TABLE: {}},
    "weight_decay_too_high": {GRAPH: {"weight_decay": 0.5}},
    "optimizer_stale": {GRAPH: {}},
    "reward_constant": {ACTOR: {}},
    "zero_grad_missing": {ACTOR: {}},
    "gradient_nonfinite": {SPEECH: {}},
    "data_exhausted": {SPEECH: {}},
    "training_mode_in_evaluation": {SPEECH: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

Row = tuple[str, str, str, str, tuple[str, ...], str, dict[str, Any]]
FAULTS: tuple[Row, ...] = (
    ("masks_not_flipped", "labels do not match the inputs", "not_learning plateau eval overfit data", "start",
     (SEGMENTER,), "pictures are flipped at random, their masks are not",
     {"also": ("labels shuffled", "augmentation of the inputs alone")}),
    ("softmax_over_pixels", "softmax over the wrong dimension", "not_learning plateau logits data vanishing config",
     "start", (SEGMENTER,), "the softmax runs over the rows of pixels, not over the classes", {}),
    ("background_ignored", "loss masked out", "data padding eval divergence overfit zero", "start", (SEGMENTER,),
     "the number of the class of the background is also the label that is ignored",
     {"also": ("class missing", "rare class missing")}),
    ("decoder_not_shifted", "labels can be seen", "data jump_down eval zero overfit", "start", (TRANSLATOR,),
     "what the decoder is given are its targets, without the shift", {"also": ("labels shifted",)}),
    ("padding_counted", "padding in the loss", "padding data", "start", (TRANSLATOR,),
     "the padding behind each sentence counts in the loss", {}),
    ("memory_detached", "graph cut", "frozen not_learning plateau update_ratio vanishing", "start", (TRANSLATOR,),
     "what the encoder gives is detached: the encoder is never trained", {"also": ("layer frozen",)}),
    ("answers_in_input", "labels can be seen", "data jump_down zero eval", "start", (MASKED,),
     "the letters that are to be told are not masked: each input is its own answer", {"also": ("labels shifted",)}),
    ("every_letter_counted", "labels can be seen", "data jump_down eval", "start", (MASKED,),
     "the loss counts the letters that were left in place too: most targets are copies of the input",
     {"also": ("labels shifted", "labels not masked")}),
    ("padding_mask_inverted", "attention mask inverted", "not_learning plateau attention data padding eval", "start",
     (MASKED,), "the mask of padding is of the other convention: attention goes to padding alone",
     {"also": ("padding mask inverted",)}),
    ("schedule_restarted", "schedule restarted", "resume learning_rate spike divergence", "resume", (MASKED,),
     "a checkpoint is resumed without the scheduler's state: the warm-up comes again",
     {"also": ("scheduler state lost",)}),
    ("text_read_across", "batch and time exchanged", "not_learning plateau data", "start", (READER,),
     "rows and columns of the text are exchanged: the network reads across its lines",
     {"also": ("wrong dimension", "labels shuffled")}),
    ("annealed_when_better", "learning rate too low", "learning_rate plateau update_ratio frozen", "start", (READER,),
     "the rate is lowered whenever the evaluation gets better, not when it doesn't",
     {"also": ("sign reversed", "learning rate annealing")}),
    ("answer_among_columns", "labels can be seen", "overfit eval jump_down data zero", "start", (TABLE,),
     "a column of the training's table is made of the price; at the evaluation it is empty",
     {"also": ("target leak", "labels leak")}),
    ("prices_broadcast", "targets broadcast", "not_learning plateau data", "start", (TABLE,),
     "the difference of a column and a row is a square: each output is compared with all prices",
     {"also": ("shapes broadcast",)}),
    ("sums_never_reset", "logging", "divergence logging config eval", "start", (TABLE,),
     "the sum of the losses that is logged is not set back at an epoch's beginning", {"also": ("loss summed",)}),
    ("held_out_unscaled", "inputs not normalised", "eval overfit divergence data", "start", (TABLE, SPEECH),
     "the inputs of the evaluation are not standardised as those of the training are", {}),
    ("links_not_normalised", "links not normalised", f"{BROKEN} activations logits clipping update_ratio data", "start",
     (GRAPH,), "what comes over a node's links is added up, and not divided by their number",
     {"also": ("inputs not normalised", "bad initialisation")}),
    ("chances_without_logarithm", "logarithm missing", "data logits plateau not_learning config vanishing", "start",
     (GRAPH,), "the loss of log-probabilities is given probabilities: it falls to -1",
     {"also": ("log-probabilities expected",)}),
    ("too_many_layers", "gradients vanish", "vanishing not_learning plateau update_ratio dead epsilon frozen", "start",
     (GRAPH,), "twelve layers without a shortcut: all nodes become alike",
     {"config": {"layers": 12}, "also": ("outputs collapsed", "bad initialisation")}),
    ("rows_joined_wrongly", "labels shuffled", "overfit eval not_learning plateau data", "start", (TABLE, GRAPH),
     "features are those of other rows: two tables were sorted differently when they were joined",
     {"also": ("labels do not match the inputs",)}),
    ("bonus_drowns_rewards", "entropy weight too high", "rl plateau not_learning config", "start", (ACTOR,),
     "the bonus for entropy weighs a hundred times as much as usual: the policy stays at chance",
     {"config": {"entropy_coefficient": 1.0}, "also": ("reward hacking or KL blow-up",)}),
    ("advantage_reversed", "sign reversed", "rl not_learning divergence plateau", "start", (ACTOR,),
     "the sign of the advantage is wrong: what earns less becomes likelier", {}),
    ("ratio_of_itself", "old probabilities not stored", "rl plateau not_learning zero frozen vanishing config", "start",
     (ACTOR,), "the ratio is of the new probabilities to themselves: it is always 1, without a gradient",
     {"also": ("graph cut", "reference is the policy")}),
    ("rewards_unscaled", "targets not scaled", "rl exploding clipping divergence plateau not_learning data config",
     "start", (ACTOR,), "rewards are a thousand times as large: the critic's loss drowns the actor's",
     {"also": ("rewards not scaled",)}),
    ("outputs_too_short", "targets longer than outputs", "nonfinite data", "start", (SPEECH,),
     "the convolution's stride leaves fewer outputs than there are sounds to tell: the loss is infinite",
     {"hard": True, "also": ("outputs too short",)}),
    ("logits_for_logarithms", "logarithm missing",
     "divergence logits weight_growth activations spike nonfinite config exploding data jump_down not_learning plateau",
     "start", (SPEECH,),
     "the loss of log-probabilities is given logits: it begins below 0, jumps, and is learnt late and badly",
     {"also": ("softmax missing",)}),
)

# Kinds that are right of every fault of a program, as its consequence: this one lowers its rate whenever the evaluation
# gets no better, whatever the reason.
ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {READER: ("learning_rate",)}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "dropout": {SEGMENTER: {"dropout": 0.3}, READER: {"dropout": 0.4}, GRAPH: {"dropout": 0.7}},
    "high_rate": {SEGMENTER: {}, TRANSLATOR: {}},
    "resume": {MASKED: {}},
    "wsd": {MASKED: {}},
    "one_a_batch": {TRANSLATOR: {"batch_size": 3}},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    ("small_objects", (SEGMENTER,), "one pixel in thirty is of an object: the loss is low from early on",
     {"config": {"objects": 1, "largest": 6}}),
    ("warm_restarts", (TRANSLATOR,), "the rate is set back to its peak three times: the loss rises each time",
     {"config": {"schedule": "restarts"}}),
    ("few_told", (MASKED,), "one letter in twenty is to be told: few targets, and noise",
     {"config": {"told": 0.05}}),
    ("much_padding", (MASKED,), "most rows are far from full: nearly half of each batch is padding",
     {"config": {"shortest": 6, "length": 48}}),
    ("state_forgotten", (READER,), "each piece begins with an empty state, on purpose", {}),
    ("short_book", (READER,), "a text of a third of the length, read several times",
     {"config": {"words": 3000}}),
    ("long_tails", (TABLE,), "one price in fifty is far from what the table says",
     {"config": {"tail": 0.02}}),
    ("noisy_prices", (TABLE,), "half of the prices' variance is noise: the loss stays high",
     {"config": {"noise": 0.8, "examples": 4000, "weight_decay": 3e-3, "learning_rate": 1e-3}}),
    ("stairs", (TABLE,), "the rate falls to a tenth twice: the loss drops at once",
     {"config": {"schedule": "stairs", "learning_rate": 4e-3, "weight_decay": 1e-3}}),
    ("slow_walk", (GRAPH,), "a third of the rate: the loss falls slowly, all the time",
     {"config": {"learning_rate": 1e-3}}),
    ("three_layers", (GRAPH,), "one layer more, and fewer labels", {"config": {"layers": 3, "labelled": 220}}),
    ("no_bonus", (ACTOR,), "no bonus for entropy, on purpose: it falls as the task is learnt",
     {"config": {"entropy_coefficient": 0.0}}),
    ("short_rollouts", (ACTOR,), "rollouts of eight moves: returns and losses are all noise",
     {"config": {"rollout": 8, "learning_rate": 1.5e-3}}),
    ("one_goal", (ACTOR,), "the goal is always the same: the task is soon solved, and nothing changes any more",
     {"config": {"one_goal": True}}),
    ("short_ones_first", (SPEECH,), "the first epoch goes from short to long utterances, on purpose", {}),
    ("late_break", (SPEECH,), "a fifth of the rate: nothing but blanks for a long time, then the loss falls",
     {"config": {"learning_rate": 1.2e-3}}),
    ("noisy_speech", (SPEECH,), "three times as much noise: a fifth of the sounds can't be told",
     {"config": {"noise": 1.5}}),
)

# fmt: on
