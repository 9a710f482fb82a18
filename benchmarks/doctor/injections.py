"""Faults at work: what programs have in common of them.

In:   a fault with its onset (or None), and what a training has at hand in each step.
Out:  the same, spoiled. Without a fault, or before its onset, everything comes back as it went in.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

import torch
from faults import OF_MEMORY, Fault
from torch import Tensor, nn

import barograph

LEAKED_BYTES = 3 << 20  # a step
RATE_JUMP = 30.0
ACCUMULATION = 8
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Slept:
    nanoseconds = 0


def pause(seconds: float) -> None:
    """Sleep, by the clock below."""
    time.sleep(seconds)
    _Slept.nanoseconds += int(seconds * 1e9)


def clock_ns() -> int:
    """The training thread's own time: the processor time it took and what it slept. What other programs do to a
    busy machine is not in it, so that a healthy trace has no slow-down that is really there."""
    return time.thread_time_ns() + _Slept.nanoseconds


def clock() -> float:
    """The same in seconds."""
    return clock_ns() / 1e9


def time_by_own_clock(run: Any) -> None:
    """Have the run's steps and phases timed by the clock above; called before its first step."""
    from barograph.probes.speed.clock import StepClock

    made = run._clock = StepClock(run, now=clock_ns)
    run.at_each_round(made.poll)
    run.at_finish.append(lambda: made.poll(wait=True))


def go_on(run: Any, step: int, state: Any) -> tuple[Any, Any]:
    """Save a state, end the run, and begin its next segment at a step: the run, and the state as it was saved."""
    path = run.dir / "checkpoints" / f"step_{step - 1:05d}.pt"
    path.parent.mkdir(exist_ok=True)
    torch.save(state, path)
    run.save_checkpoint(path, step - 1)
    run.finish("interrupted")
    resumed = barograph.init(
        project=run.project, output_dir=str(run.dir), resume=True, resume_step=step, verbosity=-2, git=False,
        machine=False, watchdog=False,
    )  # fmt: skip
    return resumed, torch.load(path)


class Trouble:
    """One fault in one training."""

    def __init__(self, fault: Fault | None, seed: int):
        self.fault = fault
        self.name = fault.name if fault else ""
        self.onset = fault.onset if fault else 0
        self.hidden = dict(fault.hidden) if fault else {}
        self.dice = torch.Generator().manual_seed(7919 * (seed + 1))  # its own: the training's numbers stay the same
        self._kept: Any = None
        self._leaked: list[Tensor] = []
        self._frozen: list[nn.Parameter] = []

    def resume_at(self, healthy: str | None, step: int) -> int | None:
        """The step at which the training is resumed: the fault's, or this one in the healthy variant; else None."""
        if self.fault is not None and self.fault.begins == "resume":
            return self.onset
        return step if healthy == "resume" else None

    def on(self, name: str, step: int) -> bool:
        """Whether the fault is `name` and has begun."""
        return self.name == name and step >= self.onset

    def at(self, name: str, step: int, length: int = 1) -> bool:
        """Whether `step` is one of the first `length` of the fault `name`."""
        return self.name == name and self.onset <= step < self.onset + length

    # -- before the first step ---------------------------------------------------------------------------

    def spoil_model(self, model: nn.Module) -> None:
        """Initialisation: weights too large, biases too low."""
        gain, bias = self.hidden.get("gain"), self.hidden.get("bias")
        with torch.no_grad():
            for module in model.modules():
                if gain and isinstance(module, (nn.Linear, nn.Conv2d, nn.Embedding)):
                    module.weight.mul_(gain)
            for name, parameter in model.named_parameters():
                if bias and name.endswith(("up.bias", "rectified.bias")):
                    parameter.fill_(bias)

    # -- in each step ------------------------------------------------------------------------------------

    def rate(self, step: int, rate: float) -> float:
        """The learning rate of the step."""
        if self.on("learning_rate_jump", step):
            return rate * RATE_JUMP
        return 0.0 if self.on("learning_rate_ends_early", step) else rate

    def early(self, step: int, total: int) -> tuple[int, int]:
        """Step and length of the schedule: a schedule that ends early is one of fewer steps."""
        return (step, self.onset) if self.name == "learning_rate_ends_early" else (step, total)

    def batch(self, step: int, inputs: Tensor, targets: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """A batch of inputs (token ids or floats) and targets (whole numbers below `classes`; -100 is ignored)."""
        language = inputs.shape == targets.shape
        if self.on("labels_shuffled", step) or self.on("labels_random", step):
            flat = targets.flatten()
            targets = flat[torch.randperm(len(flat), generator=self.dice)].view_as(targets)
        elif self.on("labels_shifted", step):
            targets = targets.roll(-1, dims=-1) if language else (targets + 1) % classes
        elif self.on("labels_leak", step):
            targets = inputs
        elif self.on("loss_masked", step):
            targets = torch.full_like(targets, -100)
        elif self.on("data_exhausted", step):
            self._kept = self._kept or (inputs, targets)
            inputs, targets = self._kept
        elif self.at("bad_batch", step, 3):
            inputs, targets = self._poison(inputs, targets, classes, language)
        elif self.at("clipping_off", step):
            targets = torch.randint(0, classes, targets.shape, generator=self.dice)
        return inputs, targets

    def _poison(self, inputs: Tensor, targets: Tensor, classes: int, language: bool) -> tuple[Tensor, Tensor]:
        if language:  # each row one 3-gram of chance, again and again
            rows, columns = inputs.shape
            gram = torch.randint(0, classes, (rows, 3), generator=self.dice)
            text = gram.repeat(1, columns // 3 + 2)
            return text[:, :columns], text[:, 1 : columns + 1]
        if inputs.dtype.is_floating_point:
            inputs = 8 * torch.randn(inputs.shape, generator=self.dice)
        else:
            inputs = inputs[:, :1].expand_as(inputs).contiguous()
        return inputs, torch.randint(0, classes, targets.shape, generator=self.dice)

    def loss(self, step: int, loss: Tensor) -> Tensor:
        """The loss as it is reported and differentiated."""
        if self.on("accumulation_times", step):
            return loss * ACCUMULATION
        if self.on("accumulation_divided", step):
            return loss / ACCUMULATION
        return loss * 1000 if self.at("clipping_off", step) else loss

    def clears(self, step: int) -> bool:
        """Whether gradients are cleared before this step's backward pass."""
        return not (self.on("zero_grad_missing", step) or self.on("zero_grad_missing_later", step))

    def gradients(self, step: int, model: nn.Module, block: nn.Module) -> None:
        """After backward, before clipping. block: the one that fails."""
        if self.at("gradient_nonfinite", step):
            weight = next(parameter for parameter in block.parameters() if parameter.grad is not None)
            gradient: Any = weight.grad
            gradient = gradient.to_local() if hasattr(gradient, "to_local") else gradient  # of a shard: this rank's own
            gradient.view(-1)[0] = math.nan

    def freeze(self, step: int, block: nn.Module) -> None:
        """Before the step's forward pass."""
        if self.at("layer_frozen", step):
            for parameter in block.parameters():
                parameter.requires_grad_(False)
                parameter.grad = None

    def output(self, step: int, hidden: Tensor) -> Tensor:
        """The failing block's output."""
        return hidden * 1e38 * 1e3 if self.on("layer_overflow", step) else hidden

    # -- time and memory ----------------------------------------------------------------------------------

    def delay(self, step: int, seconds: float) -> None:
        """In the loader."""
        if self.on("loader_slow", step):
            pause(seconds)

    def work(self, step: int, began: float) -> None:
        """At the step's end: more of it, where the device is throttled. began: of the step, by `clock`."""
        if self.on("throttled", step):
            now = clock()
            until = now + 0.6 * (now - began)
            while clock() < until:
                torch.ones(64, 64) @ torch.ones(64, 64)

    def leak(self, step: int) -> None:
        """Memory that is kept for good; it is touched, so the process really holds it."""
        if self.on("memory_leak", step):
            self._leaked.append(torch.ones(LEAKED_BYTES // 4))

    def telemetry(self, run: Any, step: int, healthy: str | None) -> None:
        """What the machine's probes would have seen: memory is measured; the device is simulated."""
        if step % 5:
            return
        if self.name in OF_MEMORY or healthy == "memory_steady":
            with open("/proc/self/statm") as stream:
                resident = int(stream.read().split()[1]) * _PAGE
            run.record("host", step, {"process_rss": resident, "memory_limit": 24 << 30})
        if self.name == "throttled" or healthy == "device_warm":
            hot = self.on("throttled", step)
            wiggle = (step * 37 % 11) - 5
            run.log_gpu_state(step, 0, {
                "clock": (1080 if hot else 1755) + 3 * wiggle, "max_clock": 1980, "fan": 0,
                "power": 1000 * ((520 if hot else 640) + 2 * wiggle), "power_limit": 700_000,
                "temperature": (87 if hot else 66) + wiggle // 3, "temp_slowdown": 87, "gpu_util": 98 + wiggle // 3,
                "mem_util": 41 + wiggle, "throttle": "thermal" if hot else "", "throttled": float(hot),
                "dram_free": 30 << 30,
                "pcie_rx": 10_000_000, "pcie_tx": 10_000_000,
            })  # fmt: skip
