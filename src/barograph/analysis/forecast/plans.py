"""A run's learning-rate schedule, from its configuration.

In:   a configuration, nested or flat, in the names of Transformers, nanoGPT, torchtitan, Megatron-LM, DeepSpeed,
      modded-nanogpt, nanochat, llm.c or plain ones (`schedule: cosine`).
Out:  a `RateSchedule`, or None where the configuration does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.analysis.forecast.schedule import RateSchedule
from barograph.core.configuration import PLANNED_STEPS, Configuration, as_number

# name of an option → what it means. Where two mean the same, the first that is there counts.
PEAKS = (
    "learning_rate", "optimizer.lr", "lr", "max_lr", "peak_lr", "warmup_max_lr", "base_lr", "learning_rate_lr",
)  # fmt: skip
FLOORS = ("min_lr", "lr_end", "end_lr", "final_lr", "cosine_min_lr")
# fractions of the peak
FLOOR_PARTS = ("min_lr_rate", "min_lr_ratio", "min_lr_factor", "lr_min", "final_lr_frac", "final_lr_fraction")
WARMUPS = (
    "warmup_steps", "warmup_iters", "lr_warmup_iters", "num_warmup_steps", "lr_warmup_steps", "warmup_num_steps",
    "warmup_iterations",
)  # fmt: skip
WARMUP_PARTS = ("warmup_ratio", "lr_warmup_fraction", "warmup_fraction", "warmup_frac")
DECAYS = (
    "num_decay_steps", "lr_wsd_decay_iters", "warmdown_iters", "cooldown_iters", "decay_steps", "cooldown_steps",
)  # fmt: skip
DECAY_PARTS = ("decay_ratio", "warmdown_ratio", "cooldown_frac", "cooldown_fraction", "decay_frac", "wsd_decay_ratio")
ENDS = ("lr_decay_iters", "lr_decay_steps")
FORMS = (
    "lr_scheduler_type", "lr_decay_style", "lr_schedule", "lr_scheduler", "schedule", "scheduler", "scheduler_type",
    "learning_rate_schedule", "lr_scheduler_name", "learning_rate_scheduler_type", "schedule_type", "scheduler.type",
    "lr_scheduler.type",
)  # fmt: skip
# What a form is called → the kind: Transformers' SchedulerType, Megatron-LM's lr_decay_style, DeepSpeed's types.
KINDS = {
    **dict.fromkeys(("constant", "constant_with_warmup", "warmuplr", "none"), "constant"),
    **dict.fromkeys(
        ("cosine", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "cosine_with_warmup", "cosine_annealing",
         "cosine_decay", "cosineannealinglr", "warmupcosinelr"), "cosine",
    ),
    **dict.fromkeys(("linear", "linear_with_warmup", "linear_decay", "warmupdecaylr"), "linear"),
    **dict.fromkeys(("wsd", "warmup_stable_decay", "trapezoidal", "trapezoid"), "wsd"),
    **dict.fromkeys(("inverse_sqrt", "inverse_square_root"), "inverse_sqrt"),
    **dict.fromkeys(("step", "multistep", "steplr", "multisteplr"), "step"),
    "polynomial": "polynomial",
}  # fmt: skip
SHAPES = {"linear": "linear", "cosine": "cosine", "sqrt": "sqrt", "minus_sqrt": "sqrt", "1_sqrt": "sqrt"} | {
    "exponential": "exponential"
}


def schedule_of(config: Mapping[str, Any], planned_steps: int | None = None) -> RateSchedule | None:
    """The schedule that a configuration describes, or None if it names none, or one that has no known form.

    config: nested or flat, names with - or _ alike. planned_steps: steps of the run, if the configuration does not say.
    """
    options = Configuration(config)
    total = planned_steps or options.count(PLANNED_STEPS)
    if total is None:
        return None
    if isinstance(more := config.get("lr_scheduler_kwargs"), Mapping):
        options.add(more)
    peak = options.number(PEAKS)
    peak = peak if peak is not None and peak > 0 else 1.0
    floor = options.number(FLOORS)
    if floor is None:
        floor = peak * (options.number(FLOOR_PARTS) or 0.0)
    elif peak == 1.0:
        floor = 0.0  # a floor without its peak is not used
    end = options.count(ENDS)
    warmup = options.count(WARMUPS)
    if warmup is None:
        part = options.number(WARMUP_PARTS) or 0.0
        # Megatron-LM's fraction is one of the decay's steps; the others' of the plan
        warmup = round(part * ((end or total) if "lr_warmup_fraction" in options.found else total)) if part < 1 else 0
    warmup = min(warmup, total - 1)
    decay = options.count(DECAYS)
    if decay is None and 0 < (part := options.number(DECAY_PARTS) or 0.0) <= 1:
        decay = round(part * total)
    kind = _kind(options, decay, end)
    if kind is None:
        return None
    if kind == "constant":
        return RateSchedule("constant", total, peak, warmup, basis="configuration")
    if kind == "step":
        return _steps(options, total, peak, warmup)
    if kind == "wsd":
        shape = SHAPES.get(options.word(("lr_wsd_decay_style", "decay_type", "cooldown_type")) or "linear", "linear")
        stable = options.count(("num_stable_steps",))
        if decay is None and stable is not None:
            decay = max(total - warmup - stable, 1)
        return RateSchedule("wsd", total, peak, warmup, floor, decay, shape, basis="configuration")
    return RateSchedule(
        kind,
        total,
        peak,
        warmup,
        floor,
        None if end is None else max(end - warmup, 1),
        cycles=options.number(("num_cycles",)) or 0.5,
        power=options.number(("power", "lr_decay_power")) or 1.0,
        basis="configuration",
    )


def _kind(options: Configuration, decay: int | None, end: int | None) -> str | None:
    form = options.word(FORMS)
    if form is not None:
        return KINDS.get(form.replace(".", "_"))
    if options.found.get("decay_lr") in (False, "False", "false"):
        return "constant"
    if options.found.get("decay_lr") in (True, "True", "true") or end is not None:
        return "cosine"  # nanoGPT knows no other
    if decay is not None:
        return "wsd"
    if "lr_scheduler.warmup_steps" in options.found:  # torchtitan: without a decay_ratio all that follows is decay
        shape = options.word(("decay_type",)) or "linear"
        return shape if shape in ("linear", "cosine") else None
    if "final_learning_rate_lr_fraction" in options.found or "final_lr_fraction" in options.found:
        return "cosine"  # llm.c's default
    return None


def _steps(options: Configuration, total: int, peak: float, warmup: int) -> RateSchedule | None:
    found = options.found.get("milestones", options.found.get("lr_milestones"))
    every = options.count(("step_size", "lr_step_size"))
    factor = options.number(("gamma", "factor", "lr_gamma"))
    if isinstance(found, list | tuple) and all(as_number(item) is not None for item in found):
        milestones = tuple(round(float(item) * (total if 0 < float(item) < 1 else 1)) for item in found)
    elif every is not None:
        milestones = tuple(range(every, total, every))
    else:
        return None
    factor = 0.1 if factor is None or not 0 < factor < 1 else factor  # torch's default
    return RateSchedule("step", total, peak, warmup, milestones=milestones, factor=factor, basis="configuration")
