"""A fine-tune of a tiny transformers model by Hugging Face's own Trainer, which logs as it always does.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, with the Trainer's names (loss, grad_norm, learning_rate, epoch, eval_loss, …) every `logging_steps`.

The model is a GPT-2 with weights of chance; the data are sums, lines such as `17+28=45`, one letter a token.
The Trainer knows nothing of Barograph: a callback of ours hands its logs over.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from injections import Trouble
from torch import Tensor, nn

import barograph

EVERY = 25
LETTERS = "0123456789+-*= \n"
LENGTH = 32
CONFIG: dict[str, Any] = {
    "hidden": 32, "layers": 2, "batch_size": 16, "learning_rate": 1e-2, "warmup_steps": 10, "schedule": "linear",
    "weight_decay": 0.0, "clip": 1.0, "examples": 1600, "logging_steps": 5, "eval_steps": EVERY,
}  # fmt: skip


def sums(seed: int, rows: int) -> Tensor:
    """Rows (rows, LENGTH) of sums, one after the other, as numbers of letters."""
    dice = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, 30, (rows, 8, 2), generator=dice).tolist()
    texts = ["\n".join(f"{a}+{b}={a + b}" for a, b in row)[:LENGTH].ljust(LENGTH) for row in numbers]
    return torch.tensor([[LETTERS.index(letter) for letter in text] for text in texts])


def make_model(config: dict[str, Any], trouble: Trouble, seed: int) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=len(LETTERS), n_positions=LENGTH, n_embd=config["hidden"], n_layer=config["layers"], n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=15, eos_token_id=15, use_cache=False,
    ))  # fmt: skip
    if gain := trouble.hidden.get("gain"):
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(3 * gain)  # GPT-2's own, of std 0.02, are meant for a hundred times the width
    return model


class Sums(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Rows and their labels, which are the rows."""

    def __init__(self, rows: Tensor):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Clock:
    """The step of the batch collated last: the loader is a batch ahead of the training, so it counts itself."""

    step = 0


def collate(clock: Clock, trouble: Trouble, healthy: str | None) -> Any:
    """A collator that spoils batches; it runs when the batch of the step is asked for."""

    def call(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        inputs = torch.stack([row["input_ids"] for row in rows])
        clock.step += 1
        labels, step = inputs.clone(), clock.step
        trouble.delay(step, 0.02)
        if healthy == "loader_hiccups" and step in (50, 98, 160):
            time.sleep(0.1)
        if trouble.on("labels_shuffled", step):
            labels = labels.flatten()[torch.randperm(labels.numel(), generator=trouble.dice)].view_as(labels)
        elif trouble.on("labels_shifted", step):
            labels = labels.roll(-1, 1)
        elif trouble.on("loss_masked", step):
            labels = torch.full_like(labels, -100)
        elif trouble.on("data_exhausted", step):
            trouble.kept = getattr(trouble, "kept", inputs)  # type: ignore[attr-defined]
            inputs, labels = trouble.kept, trouble.kept.clone()  # type: ignore[attr-defined]
        elif trouble.at("bad_batch", step, 5):  # one 3-gram, as long as the Trainer's mean of its log
            inputs = torch.randint(0, len(LETTERS), (len(rows), 3), generator=trouble.dice).repeat(1, 11)[:, :LENGTH]
            labels = inputs.clone()
        return {"input_ids": inputs, "labels": labels}

    return call


def make_callback(run: Any, trouble: Trouble, model: Any, healthy: str | None) -> Any:
    from transformers import TrainerCallback

    class ToBarograph(TrainerCallback):
        """Hands the Trainer's logs over."""

        def __init__(self) -> None:
            self.run = run

        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            trouble.freeze(state.global_step + 1, model.transformer.h[1])
            model.broken = trouble.on("layer_overflow", state.global_step + 1)

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if healthy == "checkpoint_stalls" and state.global_step % 40 == 0:
                time.sleep(0.15)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
            self.run.log(dict(logs), step=state.global_step)

    return ToBarograph()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    config, trouble, clock = dict(run.config), Trouble(fault, seed), Clock()
    model: Any = make_model(config, trouble, seed)
    model.broken = False
    model.transformer.h[0].register_forward_hook(
        lambda module, given, output: overflow(output) if model.broken and model.training else output
    )
    if healthy == "frozen_backbone":
        model.transformer.wpe.requires_grad_(False)
    rows = sums(seed + 1, config["examples"])
    resume_at = trouble.resume_at(healthy, 4 * EVERY)
    if resume_at is None:
        trainer = make_trainer(run, model, rows, config, trouble, clock, healthy, steps, steps)
        quietly(trainer)
        return run
    # The Trainer resumes by `resume_from_checkpoint`, which skips the batches that were used.
    trainer = make_trainer(run, model, rows, config, trouble, clock, healthy, steps, resume_at)
    quietly(trainer)
    path = run.dir / "checkpoints"
    folder = trainer.args.output_dir
    path.mkdir(exist_ok=True)
    run.save_checkpoint(path / f"step_{resume_at:05d}.pt", resume_at)
    run.finish("interrupted")
    run = barograph.init(
        project=run.project, output_dir=str(run.dir), resume=True, resume_step=resume_at + 1, verbosity=-2, git=False,
        machine=False, watchdog=False,
    )  # fmt: skip
    model = make_model(config, trouble, seed)
    model.broken = False
    clock.step = resume_at
    trainer = make_trainer(run, model, rows, config, trouble, clock, healthy, steps, steps, folder)
    trainer.args.ignore_data_skip = trouble.name == "data_replayed"
    quietly(trainer, f"{folder}/checkpoint-{resume_at}")
    return run


def quietly(trainer: Any, checkpoint: str | None = None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.train(resume_from_checkpoint=checkpoint)


def overflow(output: Any) -> Any:
    hidden = output[0] if isinstance(output, tuple) else output
    hidden = hidden * 1e38 * 1e3
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden


def make_trainer(
    run: Any, model: Any, rows: Tensor, config: dict[str, Any], trouble: Trouble, clock: Clock, healthy: str | None,
    steps: int, until: int, folder: str | None = None,
) -> Any:  # fmt: skip
    """A Trainer with our callback; one that stops at `until` has the schedule of `steps`, and saves there."""
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    folder = folder or str(run.dir / "trainer")
    arguments = TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=int(config["batch_size"]),
        learning_rate=config["learning_rate"], warmup_steps=config["warmup_steps"], weight_decay=config["weight_decay"],
        lr_scheduler_type=config["schedule"], max_grad_norm=config["clip"], logging_steps=config["logging_steps"],
        eval_strategy="steps", eval_steps=EVERY, save_strategy="no" if until == steps else "steps", save_steps=until,
        report_to=[], use_cpu=True, disable_tqdm=True, seed=0, data_seed=0, dataloader_pin_memory=False,
        logging_first_step=True,
    )  # fmt: skip
    evaluation = sums(31_337, 96)

    class Ours(Trainer):
        """The Trainer, with the faults that need its inside."""

        def create_optimizer(self, *given: Any, **named: Any) -> Any:
            made = super().create_optimizer(*given, **named)
            if trouble.name == "optimizer_stale":
                made.param_groups[0]["params"] = [one.detach().clone() for one in made.param_groups[0]["params"]]
                made.param_groups[1]["params"] = [one.detach().clone() for one in made.param_groups[1]["params"]]
            run.watch(
                self.model, made, gradients=20, updates=20, weights=0, histograms=0, activations=20, optimizer_state=0
            )
            return made

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            length = trouble.onset if trouble.name == "learning_rate_ends_early" else num_training_steps
            return super().create_scheduler(length, optimizer)

        def evaluation_loop(self, *given: Any, **named: Any) -> Any:
            held_out.rows = evaluation
            if trouble.on("tokenizer_mismatch", self.state.global_step):
                held_out.rows = torch.randperm(len(LETTERS), generator=torch.Generator().manual_seed(2))[evaluation]
            return super().evaluation_loop(*given, **named)

        def get_eval_dataloader(self, *given: Any) -> Any:
            return torch.utils.data.DataLoader(held_out, batch_size=96)

    class Stop(TrainerCallback):
        """Stops at `until`, as a job whose time is over."""

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            control.should_training_stop = control.should_training_stop or state.global_step >= until

    held_out = Sums(evaluation)
    trainer = Ours(
        model=model, args=arguments, train_dataset=Sums(rows), eval_dataset=held_out,
        data_collator=collate(clock, trouble, healthy),
        callbacks=[make_callback(run, trouble, model, healthy), Stop()],
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    return trainer
