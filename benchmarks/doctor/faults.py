"""The faults of the bench: what goes wrong, since when, and what a doctor should say about it.

In:   nothing.
Out:  `FAULTS`, a table by name; `Fault.placed` gives a fault its onset in one training.

What a fault does is written in `injections.py` where several programs share it, in the program where it is its own.
`config` and `factors` are settings that the user set wrong: they are in the run's config. `hidden` ones are bugs:
the config says nothing of them. Kinds are those of findings that see the fault, its consequences among them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from halves import HALVES

GPT, MOE, ENCODER, VISION = "dense_gpt", "moe_gpt", "encoder", "vision"
TRAINER, POLICY, RANKS = "hf_trainer", "policy", "ranks"
LANGUAGE = (GPT, MOE)
CLASSIFIERS = (ENCODER, VISION)
VIT, DIFFUSION, CONTRASTIVE, LORA, QLORA = "vit", "diffusion", "contrastive", "lora", "qlora"
DPO, RARE, BF16, FP16, FSDP2 = "dpo", "rare_classes", "bf16_gpt", "fp16_gpt", "fsdp2"
TORCH = (GPT, MOE, ENCODER, VISION)  # loops of our own over one model on one rank

START, MIDDLE, EVALUATION, RESUME, BEST = "start", "middle", "evaluation", "resume", "best evaluation"
"""Where a fault begins: step 0; in the middle; at an evaluation in the middle; at a resume there; or, known only
afterwards, at the evaluation with the lowest loss."""

OF_MEMORY = ("memory_leak", "no_grad_missing", "evaluated_with_graphs", "average_with_graph",
             "losses_kept", "scores_kept", "average_in_graph", "validation_keeps_graphs",
             "predictions_hold_graphs", "eval_tracks_gradients", "eval_without_no_grad",
             "val_outputs_keep_graphs", "validated_with_grad", "test_loop_under_grad",
             "bank_kept_with_graphs", "dev_losses_under_grad", "oof_scores_under_grad",
             "sampler_keeps_its_tape", "dev_answers_hold_graphs", "heldout_table_with_graph",
             "heldback_said_with_graph", "held_flights_with_gradients", "checks_keep_what_was_said",
             "held_vectors_keep_graph", "validated_without_no_grad", "refrains_read_with_gradients",
             "gauges_judged_under_grad", "review_builds_graphs", "bank_of_features_with_grad",
             "outputs_of_validation_gathered", "heldout_books_read_with_tape",
             "held_flowers_valued_on_tape", "predictions_gathered_with_history",
             "metrics_hold_tensors_of_the_evaluation", "dev_losses_kept_as_tensors",
             "drawn_with_a_graph_for_the_grid", "prediction_loop_on_the_tape",
             "evaluation_figures_are_live_tensors", "gallery_embeddings_under_autograd",
             "log_validation_lost_its_no_grad", "preds_and_losses_kept_under_grad",
             "margins_of_held_pairs_with_history", "clip_bank_embedded_on_the_tape",
             "estimate_loss_undecorated", "logits_of_all_messages_gathered_live",
             "inference_decorator_removed", "prediction_step_without_no_grad",
             "held_answers_judged_with_gradients", "index_holds_its_graph",
             "validation_outputs_collected_with_grad",
             "judge_lost_its_decorator", "dev_answers_gathered_with_their_graph",
             "held_margins_with_a_graph", "gallery_kept_with_its_history",
             "validation_bits_kept_live",
             "tick_without_no_grad", "valid_outputs_gathered_for_a_report",
             "gaps_of_the_check_are_kept_as_they_are", "heldout_scores_kept_for_a_plot",
             "estimate_without_its_decorator",
             "judge_keeps_losses_as_they_are", "quiz_answers_kept_for_a_table", "margins_of_the_rest_in_a_list",
             "scores_reported_with_their_history", "unseen_logits_collected_on_the_tape",
             "judged_losses_kept_for_the_mean_of_all",
             "judged_errors_join_a_list",
             "evaluate_returns_outputs_with_their_past",
             "tasting_keeps_what_losses_returned",
             "line_ups_are_kept_to_be_drawn",
             "dev_logits_in_a_list_for_later",
             "meters_keep_losses_and_their_past",
             "sampled_losses_appended_as_they_are",
             "control_history_holds_tensors",
             "visits_remember_losses_with_their_graph",
             "shown_tables_with_all_that_made_them",
             "club_results_gathered_undetached",
             "survey_losses_listed_with_gradients_on",
             "validation_errors_kept_with_gradients",
             "validated_logits_put_by_with_their_graph",
             "evaluation_loop_gathers_live_tensors",
             "offline_scores_kept_for_a_report",
             "dev_losses_listed_with_their_graph",
             "gathered_outputs_hold_their_graph",
             "meter_of_the_validation_adds_tensors_up",
             "answers_of_the_exam_kept_to_be_shown",
             "verdicts_of_the_jury_kept_live",
             "index_of_the_search_has_its_history",
             "valid_losses_come_back_with_their_graph",
             "held_logits_kept_with_gradients",
             "held_losses_kept_while_gradients_are_on",
             "outputs_of_evaluate_gathered_on_the_tape",
             "proofs_shown_with_what_led_to_them",
             "tables_of_the_album_put_on_a_shelf",
             "estimates_kept_with_the_graphs_behind_them",
             "inspected_logits_lie_in_a_drawer",
             "validation_errors_listed_for_the_epoch",
             "unseen_losses_returned_to_a_list",
             "losses_of_the_panel_pile_up",
             "tables_of_the_drawer_remembered_live",
             "test_losses_reported_with_their_past",
             "bench_logits_stacked_with_gradients_on",
             "checks_put_by_with_what_led_to_them",
             "evaluate_hands_losses_over_as_they_are",
             "what_readers_said_kept_as_tensors",
             "tables_of_the_yard_kept_on_the_tape",
             "audits_filed_with_their_graphs",
             "readings_of_the_ward_archived_with_gradients",
             "judged_reaches_stay_on_the_tape",
             "hearings_kept_with_their_gradients",
             "margins_of_guests_kept_as_tensors",
             "museum_tables_hang_on_their_graph",
             "losses_of_towns_listed_live",
             "night_logits_piled_up_with_history",
             "checks_of_the_pond_keep_their_history",
             "losses_of_the_fleet_are_kept_alive",
             "fittings_are_collected_with_their_graph",
             "tables_of_the_crag_hold_on_to_their_graph",
             "harbour_logs_hold_their_graphs",
             "patrol_files_what_it_said_with_gradients")  # fmt: skip
"""Faults of memory: what the process holds is recorded with them."""


@dataclass(frozen=True)
class Fault:
    """One way to break a training.

    cause: the true cause, in the words of `causes`. kinds: kinds of finding that are right. hard: whether the run's
    own numbers leave no doubt within a few steps. severity: what a finding should have at least.
    """

    name: str
    cause: str
    kinds: tuple[str, ...]
    hard: bool
    begins: str
    programs: tuple[str, ...]
    about: str
    severity: str = "warning"
    config: Mapping[str, Any] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    hidden: Mapping[str, Any] = field(default_factory=dict)
    by_program: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # config of one program alone
    also: tuple[str, ...] = ()  # causes that are just as true
    compare: str = "plain"  # the healthy variant that it is seen against
    onset: int = 0

    def placed(self, seed: int, steps: int, every: int, program: str) -> Fault:
        """The fault with its onset: at random between 35% and 70% of the run, the same for the same seed.

        every: steps between two evaluations; faults of evaluations and resumes begin at one.
        """
        if self.begins in (START, BEST):
            return replace(self, onset=0)
        dice = random.Random(f"{program} {self.name} {seed}")
        onset = round(steps * dice.uniform(0.35, 0.70))
        if self.begins in (EVALUATION, RESUME):
            onset = max(every, round(onset / every) * every)
        return replace(self, onset=onset)

    def configured(self, config: Mapping[str, Any], program: str) -> dict[str, Any]:
        """The run's config with the settings that the user set wrong."""
        made = dict(config) | dict(self.config) | dict(self.by_program.get(program, {}))
        for name, factor in self.factors.items():
            made[name] = config[name] * factor
        return made


FAULTS: dict[str, Fault] = {}


def _fault(name: str, cause: str, kinds: str, begins: str, programs: tuple[str, ...], about: str, **more: Any) -> None:
    hard = bool(more.pop("hard", False))
    more.setdefault("severity", "critical" if hard else "warning")
    FAULTS[name] = Fault(name, cause, tuple(kinds.split()), hard, begins, programs, about, **more)


FEWER = {program: {"accumulation": 2} for program in (QLORA, DPO, FP16, FSDP2)}  # micro-batches
BROKEN = "divergence spike exploding not_learning plateau nonfinite"

# fmt: off

# -- optimizer and schedule ------------------------------------------------------------------------

_fault("learning_rate_x10", "learning rate too high",
       f"{BROKEN} learning_rate update_ratio clipping logits attention activations weight_growth dead", START,
       (GPT, MOE, ENCODER, VISION, TRAINER), "the tuned learning rate × 10, from the start",
       factors={"learning_rate": 10})
_fault("learning_rate_x100", "learning rate too high",
       f"{BROKEN} learning_rate update_ratio clipping logits attention activations weight_growth dead saturated",
       START, (GPT, ENCODER, VISION, TRAINER, POLICY, VIT, DIFFUSION, BF16, CONTRASTIVE, DPO, FP16),
       "the tuned learning rate × 100, from the start", hard=True,
       factors={"learning_rate": 100})
_fault("learning_rate_jump", "learning rate too high",
       f"{BROKEN} learning_rate update_ratio clipping logits attention activations weight_growth dead rl", MIDDLE,
       (GPT, MOE, VISION, RANKS, POLICY), "a bug in the schedule multiplies the rate by 30", hard=True)
_fault("no_warmup", "no warm-up",
       f"{BROKEN} learning_rate update_ratio clipping logits attention activations weight_growth dead", START,
       (GPT, MOE, ENCODER), "no warm-up, at six times the tuned rate", config={"warmup_steps": 0},
       factors={"learning_rate": 6}, also=("learning rate too high",))
_fault("learning_rate_too_low", "learning rate too low",
       "not_learning plateau learning_rate update_ratio frozen epsilon", START, (GPT, VISION, TRAINER),
       "the tuned rate / 1000", factors={"learning_rate": 0.001})
_fault("learning_rate_ends_early", "learning rate too low", "learning_rate plateau frozen update_ratio", MIDDLE,
       (GPT, ENCODER, RANKS, TRAINER), "the schedule reaches 0 long before the end, and stays there", hard=True)
_fault("epsilon_too_big", "epsilon too big", "epsilon plateau not_learning update_ratio learning_rate", START,
       (GPT, MOE), "Adam's epsilon is 0.1", config={"epsilon": 0.1})
_fault("weight_decay_too_high", "weight decay too high",
       "not_learning plateau divergence weight_growth update_ratio vanishing", START, (GPT, VISION),
       "weight decay × 300 and more", config={"weight_decay": 30.0}, by_program={VISION: {"weight_decay": 0.3}})
_fault("clipping_off", "clipping off", f"{BROKEN} clipping", MIDDLE, (GPT, VISION),
       "no clipping, and one batch whose loss is summed instead of averaged, with labels of chance", hard=True,
       config={"clip": 0.0}, also=("bad batch",))
_fault("zero_grad_missing", "zero_grad missing", f"missing_zero_grad {BROKEN} clipping", START,
       (GPT, MOE, VISION, POLICY), "gradients are never cleared", hard=True)
_fault("zero_grad_missing_later", "zero_grad missing", f"missing_zero_grad {BROKEN} clipping", MIDDLE,
       (GPT, ENCODER, RANKS), "from a step on gradients are not cleared any more", hard=True)
_fault("optimizer_stale", "optimizer holds other parameters",
       "frozen not_learning plateau update_ratio missing_zero_grad exploding", START, (GPT, VISION, TRAINER, RARE,
       QLORA),
       "the model was copied after the optimizer was made", hard=True)
_fault("accumulation_times", "gradient accumulation scaled wrongly",
       "exploding spike divergence clipping learning_rate", MIDDLE, (GPT, MOE, VISION),
       "losses of 8 micro-batches are added, not averaged, from a step on", hard=True)
_fault("accumulation_divided", "gradient accumulation scaled wrongly", "jump_down vanishing clipping", MIDDLE,
       (GPT, ENCODER), "the loss is divided by 8 twice, from a step on")

# -- model and numbers -----------------------------------------------------------------------------

_fault("initialisation_x10", "bad initialisation",
       f"{BROKEN} logits activations attention weight_growth saturated clipping", START, (GPT, MOE, ENCODER, TRAINER),
       "weight matrices are ten times as large as they should be", hidden={"gain": 10.0})
_fault("dead_units", "bad initialisation", "dead vanishing not_learning plateau frozen update_ratio", START,
       (GPT, VISION), "biases so negative that no rectified unit ever answers", hidden={"bias": -30.0},
       also=("gradients vanish",))
_fault("gradients_vanish", "gradients vanish", "vanishing not_learning plateau saturated update_ratio frozen epsilon",
       START, (ENCODER, VISION), "twelve sigmoid layers without a shortcut", hidden={"sigmoids": 12},
       also=("bad initialisation",))
_fault("fp16_overflow", "fp16 overflow", "loss_scale nonfinite frozen activations", MIDDLE, (GPT, ENCODER),
       "activations outgrow half precision: the scaler skips step after step", hard=True,
       config={"precision": "fp16"}, compare="half_precision", also=("overflow in a layer",))
_fault("gradient_nonfinite", "non-finite gradient", "nonfinite", MIDDLE, (GPT, MOE, VISION, DIFFUSION, FSDP2),
       "one layer's gradient is NaN at one step", hard=True)
_fault("layer_overflow", "overflow in a layer", "nonfinite activations logits spike", MIDDLE, (GPT, ENCODER, TRAINER),
       "one block's output overflows to infinity", hard=True)
_fault("layer_frozen", "layer frozen", "frozen update_ratio vanishing", MIDDLE, (GPT, MOE, ENCODER, TRAINER, VIT,
       QLORA),
       "one block's parameters stop being trained", hard=True)
_fault("attention_temperature", "attention temperature", f"{BROKEN} attention logits activations", MIDDLE,
       (GPT, MOE, ENCODER), "attention logits × 24 from a step on", hard=True)
_fault("no_z_loss", "no z-loss", f"{BROKEN} attention logits routing update_ratio learning_rate activations clipping",
       START, (MOE,), "no z-loss and no clipping, at six times the tuned rate",
       config={"z_coefficient": 0.0, "clip": 0.0}, factors={"learning_rate": 6}, also=("learning rate too high",))

# -- mixture of experts ----------------------------------------------------------------------------

_fault("router_collapsed", "router collapsed", "routing dead_expert", START, (MOE,),
       "no balance loss, and a router that begins with a bias to two experts", config={"aux_coefficient": 0.0},
       hidden={"router_bias": 4.0})
_fault("router_collapses_later", "router collapsed", "routing dead_expert", MIDDLE, (MOE,),
       "the sign of the balance loss is wrong from a step on")
_fault("expert_dead", "expert dead", "dead_expert routing frozen", MIDDLE, (MOE,),
       "one expert is masked out of the router from a step on", hard=True)

# -- data and labels -------------------------------------------------------------------------------

_fault("labels_shifted", "labels shifted", "spike divergence jump_down eval data not_learning plateau", MIDDLE,
       (GPT, MOE, VISION, TRAINER), "targets are shifted by one more place (a class: by one)", hard=True)
_fault("labels_leak", "labels shifted", "jump_down eval overfit divergence data zero", MIDDLE, (GPT, MOE, BF16, FP16),
       "targets are the inputs: the shift is lost", hard=True)
_fault("labels_shuffled", "labels shuffled", "spike divergence not_learning plateau eval data", MIDDLE,
       (MOE, ENCODER, VISION, TRAINER, VIT, DIFFUSION, CONTRASTIVE), "labels are shuffled within the batch", hard=True)
_fault("labels_random", "labels shuffled", "not_learning plateau data", START, (ENCODER, VISION),
       "labels are shuffled from the start")
_fault("bad_batch", "bad batch", "spike data repeated_data clipping", MIDDLE, (GPT, MOE, ENCODER, TRAINER),
       "three batches of one n-gram repeated (a classifier: of noise)", hard=True, severity="warning")
_fault("data_replayed", "data replayed", "replay resume repeated_data jump_down", RESUME, (GPT, MOE, ENCODER),
       "after a resume the loader begins anew", hard=True, severity="warning")
_fault("data_exhausted", "data exhausted", "repeated_data replay data overfit jump_down eval zero", MIDDLE,
       (GPT, MOE, VISION, TRAINER, RARE, CONTRASTIVE), "the same batch comes again and again", hard=True,
       also=("data replayed",))
_fault("validation_leak", "validation leak", "eval overfit repeated_data jump_down", MIDDLE, (GPT, ENCODER, VISION,
       VIT, RARE, CONTRASTIVE, DPO),
       "validation batches are trained on")
_fault("overfitting", "overfitting", "overfit eval divergence repeated_data", BEST, (GPT, ENCODER, VISION, TRAINER),
       "a few examples, epoch after epoch", config={"examples": 64},
       by_program={GPT: {"examples": 2048}, TRAINER: {"examples": 32, "hidden": 64}})
_fault("loss_masked", "loss masked out", "zero nonfinite data padding vanishing jump_down frozen rl", MIDDLE,
       (GPT, MOE, ENCODER, TRAINER, POLICY, LORA, FSDP2), "all labels are ignored from a step on", hard=True)

# -- evaluation and resume -------------------------------------------------------------------------

_fault("tokenizer_mismatch", "tokenizer mismatch", "eval overfit spike divergence", EVALUATION,
       (GPT, ENCODER, TRAINER), "evaluation uses another vocabulary from a step on", hard=True)
_fault("evaluation_mode_left_on", "evaluation mode left on", "eval jump_down overfit", EVALUATION, (VISION, VIT, RARE,
       CONTRASTIVE, QLORA),
       "after an evaluation the model stays in evaluation mode: no dropout, frozen statistics",
       config={"dropout": 0.5}, by_program={VIT: {"dropout": 0.3}, RARE: {"dropout": 0.3},
       CONTRASTIVE: {"dropout": 0.3},
                                           QLORA: {"dropout": 0.0, "adapter_dropout": 0.3}}, compare="dropout")
_fault("training_mode_in_evaluation", "evaluation mode left on", "eval overfit divergence", EVALUATION, (VISION, VIT,
       RARE, CONTRASTIVE, DPO),
       "the model is evaluated in training mode: batch norm takes each batch's own statistics",
       also=("evaluation in training mode",))
_fault("optimizer_state_lost", "optimizer state lost", "resume spike exploding divergence update_ratio", RESUME,
       (GPT, MOE, VIT, BF16, DPO, FP16), "a checkpoint is resumed without the optimizer's state")

# -- speed and memory ------------------------------------------------------------------------------

_fault("loader_slow", "loader slow", "input_bound slowdown stall", MIDDLE, (GPT, VISION),
       "the loader takes longer than the step", hard=True, severity="warning")
_fault("throttled", "device throttled", "slowdown hardware", MIDDLE, (GPT, MOE),
       "each step does 60% more work, while the device's clock goes down and its temperature up")
_fault("memory_leak", "memory leak", "memory", MIDDLE, (GPT, ENCODER), "each step keeps 3 MB for good")

# -- reinforcement learning ------------------------------------------------------------------------

_fault("kl_blows_up", "reward hacking or KL blow-up",
       "rl divergence spike exploding clipping update_ratio learning_rate nonfinite", MIDDLE, (POLICY,),
       "the KL term's sign is wrong from a step on", hard=True)
_fault("reward_hacked", "reward hacking or KL blow-up", "rl", MIDDLE, (POLICY,),
       "a bug in the reward pays for length: completions grow to the limit")
_fault("entropy_collapses", "reward hacking or KL blow-up", "rl not_learning plateau zero vanishing", MIDDLE,
       (POLICY,), "no KL term and a negative entropy bonus: the policy collapsed to one answer")
_fault("reward_constant", "loss masked out", "rl zero vanishing frozen plateau", MIDDLE, (POLICY,),
       "the reward function fails and gives 0 to all: no advantage, no gradient", hard=True,
       also=("reward hacking or KL blow-up",))

# -- ranks -----------------------------------------------------------------------------------------

_fault("ranks_drift", "ranks drifted apart", "desync", MIDDLE, (RANKS,),
       "one rank's weights are disturbed once by 1e-3", hard=True)
_fault("all_reduce_missing", "all-reduce missing", "desync divergence", MIDDLE, (RANKS,),
       "gradients are not averaged any more: each rank trains alone", hard=True, also=("ranks drifted apart",))
_fault("all_reduce_skips_rank", "all-reduce missing", "desync", MIDDLE, (RANKS,), "one rank leaves the average out",
       hard=True, also=("ranks drifted apart",))
_fault("rank_slow", "rank slow", "straggler slowdown", MIDDLE, (RANKS,), "one rank's step takes 60% longer")
_fault("nan_on_one_rank", "NaN on one rank", "nonfinite desync", MIDDLE, (RANKS,),
       "one rank's loss is NaN; the others leave its gradient out", hard=True)
_fault("same_seed_on_ranks", "same data on all ranks", "repeated_data desync data", START, (RANKS, FSDP2),
       "every rank draws its data with the same seed: each batch comes once a rank", also=("data replayed",))

# -- mistakes in the code of the loop, the loss and the data --------------------------------------------

_fault("loss_summed", "loss summed", "logits exploding clipping learning_rate config", START,
       (VIT, RARE, DIFFUSION, BF16, DPO, FP16, FSDP2, CONTRASTIVE), "the loss is summed over the batch's targets",
       also=("gradient accumulation scaled wrongly",))
_fault("no_grad_missing", "no_grad missing", "memory eval", START, (VIT, RARE, FP16, CONTRASTIVE),
       "evaluations build a graph, and a list of their losses keeps it", compare="memory_steady",
       also=("memory leak",))
_fault("double_softmax", "softmax twice", "not_learning plateau logits vanishing", START,
       (VIT, RARE, FP16, CONTRASTIVE), "the output goes through a softmax before the cross-entropy, which has its own")
_fault("labels_off_by_one", "labels shifted", "eval overfit not_learning plateau divergence data", START,
       (VIT, RARE, LORA, QLORA, CONTRASTIVE), "the training's targets are off by one place (a class: by one)")
_fault("wrong_group_frozen", "layer frozen", "frozen not_learning plateau update_ratio", START,
       (VIT, LORA, RARE, QLORA, FSDP2, DPO), "the layers that should be trained are frozen, the others are not",
       also=("learning rate too low", "optimizer holds other parameters"))
_fault("weight_tying_broken", "optimizer holds other parameters", "frozen update_ratio missing_zero_grad", START,
       (BF16, FP16, DPO), "the output's weights, tied to the embedding, are replaced by a copy: nothing trains them",
       also=("weight tying broken",))
_fault("data_by_length", "data sorted", "spike data divergence jump_down", START,
       (RARE, DPO), "examples come by length, the shortest first, in each epoch", also=("bad batch",))
_fault("stale_statistics", "batch norm's statistics are stale", "eval overfit divergence", START, (RARE, CONTRASTIVE),
       "batch norm's momentum is 0: the evaluation has the statistics that it began with",
       also=("evaluation mode left on", "batch normalisation"))
_fault("scheduler_per_micro_batch", "learning rate too low", "learning_rate plateau update_ratio frozen", START,
       (VIT, LORA, BF16, FP16, DPO, QLORA), "the scheduler is stepped with each of two or four micro-batches",
       config={"accumulation": 4}, by_program=FEWER, compare="accumulated", also=("scheduler stepped per micro-batch",))
_fault("accumulation_undivided", "gradient accumulation scaled wrongly", "exploding clipping logits eval", START,
       (VIT, LORA, DIFFUSION, QLORA, FSDP2, FP16),
       "losses of two or four micro-batches are added, not averaged, from the start",
       config={"accumulation": 4}, by_program=FEWER, compare="accumulated", also=("loss summed",))
_fault("ema_not_updated", "averaged weights not updated", "eval frozen overfit", START, (DIFFUSION, CONTRASTIVE),
       "the average of the weights that is evaluated is never updated",
       by_program={CONTRASTIVE: {"ema": 0.9}},
       also=("optimizer holds other parameters", "layer frozen"))
_fault("ema_not_swapped_back", "averaged weights not swapped back", "spike divergence eval data plateau", EVALUATION,
       (DIFFUSION, CONTRASTIVE), "after an evaluation of the averaged weights, the training goes on from these",
       config={"ema": 0.98}, compare="averaged")
_fault("adapters_zero", "bad initialisation", "zero vanishing not_learning plateau frozen update_ratio", START,
       (LORA, QLORA), "both factors of each adapter begin at 0: neither has a gradient, ever",
       also=("gradients vanish", "layer frozen"))
_fault("bf16_rounds_away", "updates lost in rounding", "frozen plateau not_learning update_ratio learning_rate", START,
       (BF16,), "a rate so low that an update is less than half of a bfloat16's last bit",
       factors={"learning_rate": 0.01},
       also=("learning rate too low", "keep fp32 master weights"))
_fault("clipped_while_scaled", "gradients clipped while scaled", "clipping exploding update_ratio", START, (FP16,),
       "gradients are clipped before the scaler has unscaled them: every step is clipped to next to nothing",
       also=("scaler not given",))
_fault("reference_is_policy", "reference is the policy", "plateau not_learning zero frozen rl", START, (DPO,),
       "the reference is the policy itself, not its copy: every margin is 0", also=("loss masked out",))
_fault("pairs_swapped", "labels shifted", "spike divergence eval rl", MIDDLE, (DPO,),
       "chosen and rejected change places", hard=True, also=("labels shuffled",))
# fmt: on

# -- in the programs that are put away whole, and in those that were -------------------------------------

for _half in HALVES:
    for _name, _settings in _half.KNOWN_FAULTS.items():
        FAULTS[_name] = replace(
            FAULTS[_name],
            programs=(*FAULTS[_name].programs, *_settings),
            by_program={**FAULTS[_name].by_program, **_settings},
        )
    for *_row, _more in _half.FAULTS:
        _fault(*_row, **_more)
