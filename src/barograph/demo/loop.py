"""One training of the demo's model: steps, evaluations, samples and checkpoints, each of them recorded.

In:   a `Plan`, the corpus, maybe a checkpoint, and a run to record to.
Out:  records of every kind that a training on a CPU can give, and checkpoint files to go on from.

Importing this file loads torch; `barograph.demo.train` does so only once a training starts.
"""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from barograph.demo import model as gpt
from barograph.demo.faults import Fault
from barograph.demo.text import Corpus, TextLoader, fixed_windows

if TYPE_CHECKING:
    from barograph.probes.data.batch_watch import DataWatch
    from barograph.training.run import Run

PROMPT = b"class Reader:\n    def "
SAMPLE_BYTES = 320
EVALUATIONS = 8  # in a whole training, and one before it
EVAL_APART = 10  # steps, at least
EVAL_WINDOWS = 128
EVAL_BATCH = 32
# how often the model is looked at from inside, in steps: often, for a run this short
WATCH = {
    "gradients": 5, "updates": 5, "weights": 25, "histograms": 25, "activations": 25, "spectral": 25,
    "optimizer_state": 25, "moe": 5,
}  # fmt: skip
_WHOLE = Fault(0)
SMOOTHING = 0.95  # of the smoothed loss: about the last twenty steps


@dataclass(frozen=True)
class Plan:
    """The hyper-parameters. The defaults were tuned so that 400 steps take about 45 s on two cores of a
    server's CPU: many small batches gave a lower loss in that time than fewer large ones."""

    steps: int = 400
    seed: int = 0
    moe: bool = False
    batch: int = 14
    learning_rate: float = 3e-3
    final_share: float = 0.1
    weight_decay: float = 0.1
    beta2: float = 0.97
    clip: float = 1.0

    def shape(self) -> gpt.ModelShape:
        return gpt.ModelShape(experts=8) if self.moe else gpt.ModelShape()

    def share(self, step: int) -> float:
        """Share of the learning rate at a step from 1: linear warm-up over a tenth, then a cosine."""
        warm_up = max(1, self.steps // 10)
        done = (step - warm_up) / max(1, self.steps - warm_up)
        cosine = 0.5 * (1 + math.cos(math.pi * max(0.0, done)))
        return min(1.0, step / warm_up) * (self.final_share + (1 - self.final_share) * cosine)


def tensor(windows: list[bytes]) -> Tensor:
    """Windows of equal length as whole numbers, shape (windows, bytes)."""
    joined = torch.frombuffer(bytearray(b"".join(windows)), dtype=torch.uint8)
    return joined.view(len(windows), -1).long()


class Loop:
    """The state of a training. `run` is to be set before the first call that records.

    `step` is the last step that was done, `val_loss` the last evaluation's, `seconds` the time spent in steps.
    """

    run: Run

    def __init__(self, corpus: Corpus, plan: Plan, fault: Fault | None = None) -> None:
        self.plan = plan
        self._broken, self._begun = fault, False
        torch.manual_seed(plan.seed)
        shape = plan.shape()
        self.model = gpt.ByteGPT(shape)
        self.loader = TextLoader(corpus.train.text, shape.context, plan.batch, plan.seed)
        self.eval_bytes = tensor(fixed_windows(corpus.held_out.text, shape.context, EVAL_WINDOWS))
        weights = list(self.model.parameters())
        groups = [
            {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": plan.weight_decay},
            {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=plan.learning_rate, betas=(0.9, plan.beta2), fused=True)
        self.step = 0
        self.seconds = 0.0
        self.average = 0.0  # of losses, biased towards 0 until divided by 1 - SMOOTHING ** step
        self.val_loss = self.best_val_loss = math.inf
        self._first = 1  # step that this process does first
        self._data: DataWatch | None = None
        self._seen: Any = None  # what the data watch of the process before had seen

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def tokens(self) -> int:
        """Bytes trained on so far."""
        return self.step * self.plan.batch * self.model.shape.context

    # -- a step ------------------------------------------------------------------------------------

    def train_step(self) -> None:
        """Do the next step and record it: the step itself, its phases, the layers, and now and then more."""
        began = time.perf_counter()
        run, plan = self.run, self.plan
        number = self.step + 1
        fault = self._fault(number)
        share = plan.share(number) * fault.rate()
        for group in self.optimizer.param_groups:
            group["lr"] = plan.learning_rate * share
        with run.step(step=number) as step:
            with run.phase("data"):
                place = self.loader.state()
                batch = fault.batch(tensor(self.loader.next_batch()), number)
            if self._data is None:
                self._data = run.data.watch()
                run.watch(self.model, self.optimizer, **WATCH)
                if self._seen is not None:
                    self._data.restore(self._seen)
            self._data.observe(batch[:, 1:], step=number, epoch=place["epoch"], position=place)
            meter = run.model.measure_activations(self.model) if number == self._first else nullcontext()
            with meter as activations:
                with run.phase("forward"):
                    logits, routings = self.model(batch[:, :-1])
                    loss = gpt.next_byte_loss(logits, fault.targets(batch[:, 1:]))
                with run.phase("backward"):
                    torch.autograd.backward(loss + gpt.router_loss(routings))
            fault.gradients(self, number)
            with run.phase("optimizer"):
                norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), plan.clip))  # before clipping
                self.optimizer.step()
            if number == self._first:
                run.model.memory(number, self.model, self.optimizer, activations)
            if fault.clears():
                self.model.zero_grad()
            value = loss.item()
            stats = gpt.moe_stats(routings)
            moe = {f"moe_{name}": stat for name, stat in stats.items() if name != "valid"} if stats["valid"] else {}
            step.set(
                tokens=batch[:, 1:].numel(),
                loss=value,
                norm=norm,
                lr=plan.learning_rate * share,
                lrm=share,
                position=place,
                **{"epoch": self.loader.epochs} | moe,
            )
        self.step = number
        self.seconds += time.perf_counter() - began
        self.average += (1 - SMOOTHING) * (value - self.average)
        run.log({"train/loss_smooth": self.average / (1 - SMOOTHING**number)}, step=number)

    def _fault(self, number: int) -> Fault:
        """What is broken at a step; nothing, before its time or in a training that is whole."""
        fault = self._broken
        if fault is None or number < fault.onset:
            return _WHOLE
        if not self._begun:
            self._begun = True
            fault.begin(self)
        return fault

    # -- what is done now and then -------------------------------------------------------------------

    def evaluation_is_due(self) -> bool:
        every = max(EVAL_APART, self.plan.steps // EVALUATIONS)
        return self.step % every == 0 or self.step == self.plan.steps

    def checkpoint_is_due(self) -> bool:
        """Half-way, and at the end."""
        return self.step in (self.plan.steps // 2, self.plan.steps)

    def evaluate(self) -> None:
        """Record the mean loss over held-out windows, always the same ones."""
        with self.run.phase("eval"):
            self._evaluate()

    @torch.inference_mode()
    def _evaluate(self) -> None:
        began = time.perf_counter()
        total = 0.0
        windows = self._fault(self.step).held_out(self.eval_bytes) if self.step else self.eval_bytes
        for part in torch.split(windows, EVAL_BATCH):
            total += gpt.next_byte_loss(self.model(part[:, :-1])[0], part[:, 1:]).item() * len(part)
        self.val_loss = total / len(self.eval_bytes)
        self.best_val_loss = min(self.best_val_loss, self.val_loss)
        took = round((time.perf_counter() - began) * 1000)
        tokens = self.eval_bytes[:, 1:].numel()
        bits = self.val_loss / math.log(2)
        self.run.log_eval(self.step, self.loader.epochs, tokens, took, self.val_loss, bits_per_byte=bits)

    def sample(self) -> str:
        """Record and return text that the model writes after the prompt, which it begins with."""
        self.run.log_section_start(self.step, "Writing a sample")
        written = PROMPT + gpt.generate(self.model, PROMPT, SAMPLE_BYTES, self.plan.seed)
        self.run.log_section_end(self.step)
        text = written.decode("utf-8", "replace")
        self.run.data.sample(self.step, text, PROMPT.decode())
        return text

    # -- checkpoints ---------------------------------------------------------------------------------

    def save(self) -> Path | None:
        """Write a checkpoint, whole or not at all, and its metadata beside it; None if the disk did not let it."""
        with self.run.phase("checkpoint"):
            return self._save()

    def _save(self) -> Path | None:
        path = self.run.dir / "checkpoints" / f"model_{self.step:06d}.pt"
        held = io.BytesIO()
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(parts | {"shape": asdict(self.model.shape), "step": self.step}, held)
        temporary = path.with_suffix(".partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(held.getbuffer())
            os.replace(temporary, path)
        except OSError as error:
            self.run.log_message(self.step, f"No checkpoint at step {self.step}: {error.strerror or error}.")
            return None
        self.run.checkpoints.save(
            path,
            self.step,
            val_loss=self.val_loss,
            val_bpb=self.val_loss / math.log(2),
            loader_state=self.loader.state(),
            loop_state={
                "loss_smooth": self.average / (1 - SMOOTHING**self.step),
                "best_val_loss": self.best_val_loss,
                "seconds": self.seconds,
            },
            data=self._data.state() if self._data is not None else None,
        )
        return path

    def restore(self, path: Path, about: Mapping[str, Any]) -> None:
        """Go on from the checkpoint at `path` with its metadata `about`.

        Nothing here draws random numbers but the loader, whose order follows from the seed and its place:
        the losses are those of a training that never stopped.

        Raises OSError, and ValueError for a file that is not a checkpoint of this model and text.
        """
        data = path.read_bytes()
        try:
            settings = torch.load(io.BytesIO(data), weights_only=True)
            self.model.load_state_dict(settings["model"])
            self.optimizer.load_state_dict(settings["optimizer"])
            self.loader.restore(about["dataloader_state_dict"])
            loop = about["loop_state"]
            self.step = int(settings["step"])
            self.average = loop["loss_smooth"] * (1 - SMOOTHING**self.step)
            self.val_loss, self.best_val_loss = about["val_loss"], loop["best_val_loss"]
            self.seconds = loop["seconds"]
            self._first, self._seen = self.step + 1, about.get("data")
        except Exception as error:  # torch raises whatever its parsers raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"{path} is not a checkpoint to go on from: {reason}") from None
