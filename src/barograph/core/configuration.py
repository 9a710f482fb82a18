"""What a run's configuration says under the names that trainers give their options.

In:   a configuration, nested or flat, in the names of Transformers, nanoGPT, torchtitan, Megatron-LM, DeepSpeed,
      modded-nanogpt, nanochat, llm.c or plain ones.
Out:  numbers and words, and the names of what more than one part of the product asks for: the planned steps, the
      vocabulary, the batch and what makes it up, the norm at which gradients are clipped.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

# Of names that mean the same, the first that is there counts.
PLANNED_STEPS = (
    "planned_steps", "max_steps", "total_steps", "max_iters", "num_iterations", "train_iters", "num_train_steps",
    "num_training_steps", "training.steps", "max_train_steps", "train_steps", "training_steps", "n_steps", "num_steps",
    "total_iters", "total_num_steps", "max_iterations", "steps", "iterations", "train_num_batches",
    "calculated_number_of_iterations_from_target_data_param_ratio",
)  # fmt: skip
VOCABULARY = (
    "vocab_size", "padded_vocab_size", "n_vocab", "vocabulary_size", "vocab_size_v", "num_vocab",
    "num_tokens_in_vocab", "vocab",
)  # fmt: skip
# A step's batch: in tokens, in sequences, and those that one process takes at a time, of the narrowest meaning first.
BATCH_TOKENS = (
    "tokens_per_batch", "tokens_per_step", "tokens_per_iter", "tokens_per_iteration", "batch_tokens",
    "global_batch_tokens", "total_batch_size_tokens", "batch_size_tokens", "global_batch_size_tokens",
)  # fmt: skip
WHOLE_BATCH = (
    "global_batch_size", "total_batch_size", "effective_batch_size", "total_train_batch_size",
    "global_train_batch_size",
)  # fmt: skip
BATCH = (
    "train_micro_batch_size_per_gpu", "per_device_train_batch_size", "per_device_batch_size", "per_device_batch",
    "per_gpu_train_batch_size", "per_gpu_batch_size", "micro_batch_size", "micro_batch_size_b",
    "micro_batch", "device_batch_size", "local_batch_size", "train_batch_size", "batch_size", "batch", "bsz",
    "mini_batch_size",
)  # fmt: skip
ACCUMULATION = (
    "gradient_accumulation_steps", "grad_accum_steps", "accumulate_grad_batches", "grad_accum", "accumulation_steps",
    "gradient_accumulation", "grad_accumulation", "accumulation", "gradient_accumulation_iters", "accum_steps",
    "accum_freq", "accum_iter", "grad_acc", "grad_acc_steps", "accumulate", "accum",
    "num_micro_batches", "num_microbatches", "micro_batches", "micro_steps", "microsteps", "n_micro_batches",
    "grad_accum_every", "accum_every", "accumulate_every", "micro_batches_per_step", "num_accumulation_rounds",
    "accumulation_rounds", "grad_accum_rounds",
)  # fmt: skip
PROCESSES = ("world_size", "num_processes", "num_gpus", "n_gpus")
SEQUENCE = (
    "max_seq_len", "seq_len", "seqlen", "seq_length", "sequence_length", "sequence_length_t", "sequence_len",
    "context_length", "context_len", "context", "block_size", "max_seq_length", "max_sequence_length", "n_ctx",
    "cutoff_len", "max_sequence_length_t", "max_length", "sequence", "length",
)  # fmt: skip
CLIP = (
    "max_grad_norm", "grad_clip", "clip_grad", "gradient_clip_val", "gradient_clipping", "clip_grad_norm",
    "gradient_clip_norm", "grad_clip_norm", "grad_norm_clip", "gradient_clip", "clip_norm", "training.max_norm", "clip",
)  # fmt: skip

_DEPTH = 20  # of sections: a hostile configuration has thousands


def planned_steps(about: Mapping[str, Any]) -> int | None:
    """How many optimizer steps a run is meant to take: as its manifest says, else its configuration; else None."""
    said = about.get("total_steps")
    if type(said) is int and said > 0:
        return said
    config = about.get("config")
    return Configuration(config).count(PLANNED_STEPS) if isinstance(config, Mapping) else None


class Configuration:
    """Options by their last name and by their dotted one, in small letters with underscores: `gradAccumSteps` is
    `grad_accum_steps`. empty: dotted names of those that are there without a value, as ''."""

    def __init__(self, config: Mapping[str, Any]):
        self.found: dict[str, Any] = {}
        self.empty: list[str] = []
        self.add(config)

    def add(self, options: Mapping[str, Any]) -> None:
        for path, value in _leaves(options, ()):
            if value is None or (isinstance(value, str) and not value.strip()):
                self.empty += [".".join(path)] if value is not None else []
                continue
            self.found.setdefault(path[-1], value)
            self.found.setdefault(".".join(path), value)
            self.found.setdefault(".".join(path[-2:]), value)

    def number(self, names: tuple[str, ...]) -> float | None:
        for name in names:
            if (value := as_number(self.found.get(name))) is not None:
                return value
        return None

    def count(self, names: tuple[str, ...]) -> int | None:
        """A whole number above 0; -1 and 0 say "not set" in Transformers."""
        for name in names:
            value = as_number(self.found[name]) if name in self.found else None
            if value is not None and value >= 1:
                return round(value)
        return None

    def amount(self, names: tuple[str, ...]) -> float | None:
        """A number above 0."""
        for name in names:
            if (value := as_number(self.found.get(name))) is not None and value > 0:
                return value
        return None

    def word(self, names: tuple[str, ...]) -> str | None:
        for name in names:
            if isinstance(value := self.found.get(name), str):
                return _plain(value.rsplit(".", 1)[-1])
        return None


@functools.lru_cache(4096)
def _plain(name: object) -> str:
    letters = [character if character.isalnum() or character == "." else "_" for character in str(name).strip().lower()]
    return "_".join(part for part in "".join(letters).split("_") if part)


@functools.lru_cache(4096)
def _name(key: str) -> str:
    return _plain(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("/", "."))


def _leaves(options: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in options.items():
        # a flat name may stand for nested ones, by dots or slashes
        here = (*path, *(part for part in _name(str(name)).split(".") if part)) or path
        if isinstance(value, Mapping):
            if len(here) < _DEPTH:
                yield from _leaves(value, here)
        elif here:
            yield here, value


def as_number(value: object) -> float | None:
    """A finite number, also from text such as "1e-4" or "5,000"; None for anything else, truth values among it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value.replace(",", "").replace("_", "")) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
