"""Healthy trainings, half of them such that a nervous doctor takes them for ill.

In:   nothing.
Out:  `HEALTHY`, a table by name. `near_miss` says that something in it resembles a fault.

`config` and `factors` change settings, which are in the run's config; what a variant does besides is in the programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import eighteenth
import eighth
import eleventh
import fifteenth
import fifth
import fourteenth
import fourth
import nineteenth
import ninth
import opened
import seventeenth
import seventh
import sixteenth
import sixth
import tenth
import third
import thirteenth
import twelfth
import twentieth
import twentyeighth
import twentyfifth
import twentyfirst
import twentyfourth
import twentyninth
import twentysecond
import twentyseventh
import twentysixth
import twentythird
from faults import (
    BF16,
    CONTRASTIVE,
    DIFFUSION,
    DPO,
    ENCODER,
    FEWER,
    FP16,
    FSDP2,
    GPT,
    LORA,
    MOE,
    POLICY,
    QLORA,
    RANKS,
    RARE,
    TRAINER,
    VISION,
    VIT,
)  # fmt: skip

LOOP = (VIT, DIFFUSION, CONTRASTIVE, LORA, QLORA, DPO, RARE, BF16, FP16, FSDP2)  # programs over `programs/loop.py`
OLDER = (GPT, MOE, ENCODER, VISION, TRAINER, POLICY, RANKS, *LOOP)
ALL = (*OLDER, *opened.PROGRAMS, *third.PROGRAMS, *fourth.PROGRAMS, *fifth.PROGRAMS, *sixth.PROGRAMS,
       *seventh.PROGRAMS, *eighth.PROGRAMS, *ninth.PROGRAMS, *tenth.PROGRAMS, *eleventh.PROGRAMS,
       *twelfth.PROGRAMS, *thirteenth.PROGRAMS, *fourteenth.PROGRAMS, *fifteenth.PROGRAMS,
       *sixteenth.PROGRAMS, *seventeenth.PROGRAMS, *eighteenth.PROGRAMS, *nineteenth.PROGRAMS,
       *twentieth.PROGRAMS, *twentyfirst.PROGRAMS, *twentysecond.PROGRAMS,
       *twentythird.PROGRAMS, *twentyfourth.PROGRAMS, *twentyfifth.PROGRAMS,
       *twentysixth.PROGRAMS, *twentyseventh.PROGRAMS, *twentyeighth.PROGRAMS, *twentyninth.PROGRAMS)  # fmt: skip
SUPERVISED = (GPT, MOE, ENCODER, VISION, TRAINER, *LOOP)
PLAIN = "plain"


@dataclass(frozen=True)
class Healthy:
    """A training without a fault. copies: how many runs with other seeds stand for one seed."""

    name: str
    near_miss: bool
    programs: tuple[str, ...]
    about: str
    config: Mapping[str, Any] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    by_program: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # config of one program alone
    copies: int = 1

    def configured(self, config: Mapping[str, Any], program: str) -> dict[str, Any]:
        """The run's config."""
        made = dict(config) | dict(self.config) | dict(self.by_program.get(program, {}))
        for name, factor in self.factors.items():
            made[name] = type(config[name])(config[name] * factor)
        return made


HEALTHY: dict[str, Healthy] = {}


def _healthy(name: str, programs: tuple[str, ...], about: str, near_miss: bool = True, **more: Any) -> None:
    HEALTHY[name] = Healthy(name, near_miss, programs, about, **more)


_healthy(PLAIN, ALL, "the tuned settings; what faulty runs of the same seed are compared with", near_miss=False)
_healthy("plain_again", OLDER, "the tuned settings with two other seeds", near_miss=False, copies=2)
_healthy("smaller", SUPERVISED, "half the learning rate", near_miss=False, factors={"learning_rate": 0.5})
_healthy(
    "constant_rate",
    (*SUPERVISED, RANKS),
    "a learning rate that never decays",
    near_miss=False,
    config={"schedule": "constant"},
)
_healthy(
    "bigger_batches",
    (GPT, MOE, ENCODER, VISION),
    "batches half as large again",
    near_miss=False,
    factors={"batch_size": 1.5},
)
_healthy(
    "dropout",
    (GPT, ENCODER, VISION, VIT, RARE, CONTRASTIVE, QLORA),
    "more dropout: evaluation is better than training",
    config={"dropout": 0.5},
    by_program={
        ENCODER: {"dropout": 0.3},
        VIT: {"dropout": 0.3},
        RARE: {"dropout": 0.3},
        CONTRASTIVE: {"dropout": 0.3},
        QLORA: {"dropout": 0.0, "adapter_dropout": 0.3},
    },
)
_healthy("light_decay", (GPT, MOE, ENCODER, VISION), "no weight decay", near_miss=False, config={"weight_decay": 0.0})
_healthy("high_rate", SUPERVISED, "twice the learning rate, which is stable", factors={"learning_rate": 2})
_healthy(
    "rewarm",
    (GPT, MOE, ENCODER, VISION),
    "the learning rate is warmed up again in the middle: the loss rises and falls",
    config={"schedule": "rewarm"},
)
_healthy(
    "wsd",
    (GPT, MOE, ENCODER, VISION, VIT, LORA, DPO),
    "constant, then a fast decay: the loss drops near the end",
    config={"schedule": "wsd"},
)
_healthy(
    "batch_ramp",
    (GPT, MOE, ENCODER, VISION),
    "batches two and four times as large after each third: steps take longer, noise and gradients get smaller",
)
_healthy("sequence_ramp", (GPT, MOE, ENCODER), "sequences two and three times as long after each third")
_healthy(
    "curriculum",
    (GPT, MOE, ENCODER, VISION),
    "other, harder data from a step on: the loss rises a little, and falls",
    config={"curriculum_step": 110},
)
_healthy("checkpoint_stalls", (GPT, MOE, ENCODER, VISION, TRAINER), "a checkpoint every 40 steps holds the training up")
_healthy("evaluation_pauses", (GPT, MOE, ENCODER, VISION, RANKS), "long evaluations")
_healthy(
    "noisy_batches",
    (GPT, MOE, ENCODER, VISION),
    "batches of two: loss and gradients are all noise",
    config={"batch_size": 2},
    by_program={ENCODER: {"batch_size": 8}, VISION: {"batch_size": 12}, MOE: {"batch_size": 3}},
    factors={"learning_rate": 0.5},
)
_healthy(
    "small_spike",
    (GPT, MOE, ENCODER, VISION),
    "two batches that are a little odd: up to 1.1 times the loss, for a step",
    config={"odd_batches": [90, 170]},
    by_program={ENCODER: {"odd_batches": [60, 85]}},
)
_healthy(
    "epochs",
    (GPT, ENCODER, VISION, TRAINER),
    "several epochs of few data: stairs, and no rise of the validation loss",
    config={"examples": 2000},
    by_program={GPT: {"examples": 24_000}, ENCODER: {"examples": 3400}},
)
_healthy(
    "clipped_always",
    (GPT, MOE, ENCODER, VISION, TRAINER, VIT, FP16),
    "a clip value below every norm",
    config={"clip": 0.1},
    by_program={VISION: {"clip": 0.7}},
)
_healthy(
    "resume",
    (GPT, MOE, ENCODER, VISION, TRAINER, VIT, BF16, DPO, FP16),
    "stopped and gone on with, everything restored",
)
_healthy(
    "half_precision",
    (GPT, ENCODER),
    "a loss scale that starts too high: the first steps are skipped",
    config={"precision": "fp16"},
)
_healthy(
    "accumulated", (GPT, VIT, LORA, DIFFUSION, BF16, QLORA, FSDP2, FP16, DPO), "two or four micro-batches a step",
    config={"accumulation": 4}, by_program={GPT: {"accumulation": 2}, **FEWER},
)  # fmt: skip
_healthy(
    "memory_steady", (GPT, ENCODER, VISION, VIT, RARE, FP16, CONTRASTIVE), "the process's memory is recorded, and stays"
)
_healthy("device_warm", (GPT, MOE, VISION), "the device is recorded, warm and well")
_healthy("loader_hiccups", (GPT, ENCODER, VISION, TRAINER), "the loader stops for a moment, three times")
_healthy("frozen_backbone", (ENCODER, TRAINER), "embeddings are not trained, on purpose, from the start")
_healthy("router_warm", (MOE,), "a router that begins unbalanced, which the balance loss mends")
_healthy("rl_noise", (POLICY,), "two prompts a step: rewards are all noise", config={"prompts": 3})
_healthy(
    "rl_far", (POLICY,), "no KL term, on purpose: the KL grows slowly, the reward too", config={"kl_coefficient": 0.0}
)
_healthy(
    "rl_solved",
    (POLICY,),
    "an easy task: all completions of a prompt earn the same in the end",
    config={"vocabulary": 6},
)
_healthy("rl_constant", (POLICY,), "a constant rate", near_miss=False, config={"schedule": "constant"})
_healthy("rl_slow", (POLICY,), "half the rate", near_miss=False, factors={"learning_rate": 0.5})
_healthy("ranks_jitter", (RANKS,), "every rank's steps vary by a fifth", config={"jitter": 0.2})
_healthy(
    "ranks_uneven",
    (RANKS,),
    "each rank's data are a little different: losses differ all the time",
    config={"uneven": 0.5},
)
_healthy("ranks_pause", (RANKS,), "rank 0 writes a checkpoint now and then, and the others wait")
_healthy("ranks_high_rate", (RANKS,), "twice the learning rate", factors={"learning_rate": 2})
_healthy(
    "one_a_batch", (VIT, LORA, RARE, BF16, QLORA, DPO, FP16, DIFFUSION),
    "batches of one (batch norm: of four): loss and gradients are all noise",
    config={"batch_size": 1}, by_program={RARE: {"batch_size": 4}}, factors={"learning_rate": 0.25},
)  # fmt: skip
_healthy("few_pairs", (CONTRASTIVE,), "eight pairs a batch: few negatives, much noise", config={"batch_size": 8},
         factors={"learning_rate": 0.5})  # fmt: skip
_healthy("averaged", (DIFFUSION, CONTRASTIVE), "a slow average of the weights is evaluated: it lags behind",
         config={"ema": 0.98})  # fmt: skip
_healthy("trained_thinly", (VIT, LORA), "most layers are frozen on purpose: a linear probe, small adapters",
         by_program={VIT: {"train": "head"}, LORA: {"rank": 1, "alpha": 2}})  # fmt: skip
_healthy("rarer", (RARE,), "half of the labels of rare classes are wrong", config={"wrong_labels": 0.15})
_healthy("bf16_slow", (BF16,), "a third of the rate, which bfloat16 still keeps", factors={"learning_rate": 0.3})
_healthy("unsure", (DPO,), "pairs that differ in few letters: margins grow slowly", config={"wrong_letters": 0.06})

for _half in (opened, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth, eleventh, twelfth, thirteenth,
              fourteenth, fifteenth, sixteenth, seventeenth, eighteenth, nineteenth, twentieth,
              twentyfirst, twentysecond, twentythird, twentyfourth, twentyfifth, twentysixth,
              twentyseventh, twentyeighth, twentyninth):  # fmt: skip
    for _name, _settings in _half.KNOWN_HEALTHY.items():
        _programs, _by_program = HEALTHY[_name].programs, HEALTHY[_name].by_program
        HEALTHY[_name] = replace(
            HEALTHY[_name], programs=(*_programs, *_settings), by_program={**_by_program, **_settings}
        )
    for _name, _programs, _about, _more in _half.HEALTHY:
        _healthy(_name, _programs, _about, **_more)

NOISY = (
    ("policy", "rl_noise"), ("diffusion", "one_a_batch"), ("contrastive", "few_pairs"), ("vit", "one_a_batch"),
    ("lora", "one_a_batch"), ("rare_classes", "one_a_batch"), ("dpo", "one_a_batch"), ("bf16_gpt", "one_a_batch"),
    ("policy", "plain"), ("dense_gpt", "noisy_batches"),
)  # fmt: skip
"""Noisy and healthy: batch 1, reinforcement learning, contrastive. `traces.py --noisy 100` makes ten seeds of each."""
