"""Adapters of low rank teach a small Llama, which spells words one way, the spelling of another land.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by Barograph's callback for the Trainer: loss, grad_norm, learning_rate each second step; eval_loss and
      what the Trainer adds each twentieth.

A Llama of transformers under a subclass of the Trainer, adapters that are set in by hand, a collator that pads, answers
alone in the loss; the Trainer's own AdamW and a rate that falls in a line.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble
from torch import Tensor, nn
from torch.nn import functional as F

import barograph

from .parts import fit, once

EVERY, PAD, END = 20, 0, 1
SIGNS = "_$>abcdefghijklmnopqrstuvwxyz"
CONFIG: dict[str, Any] = {
    "hidden_size": 48, "layers": 2, "heads": 4, "lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.0,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "use_rslora": False,
    "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "learning_rate": 8e-3, "warmup_steps": 8,
    "lr_scheduler_type": "linear", "max_grad_norm": 1.0, "train_rows": 3000, "train_on_prompt": False,
    "modules_to_save": [], "train_sampling_strategy": "random", "loss_over": "tokens", "logging_steps": 2,
}  # fmt: skip


def spelled(seed: int, number: int, land: int) -> list[tuple[list[int], list[int]]]:
    """Words, and how they are spelled in a land: letters are other ones, and an ending is added."""
    dice, habits = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(100 + land)
    other = (3 + torch.randperm(26, generator=habits)).tolist()
    rows = []
    for _ in range(number):
        word = torch.randint(0, 26, (int(torch.randint(3, 9, (1,), generator=dice)),), generator=dice).tolist()
        says = [other[letter] for letter in word]
        ending = other[(word[-1] + land) % 26]
        rows.append(([3 + letter for letter in word] + [2], [*says, ending, END]))
    return rows


class Collator:
    def __init__(self, cfg: dict[str, Any], name: str):
        self.cfg, self.name = cfg, name

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        ids = nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], True, PAD)
        mask = (ids != PAD).long()
        labels = ids.clone()
        if self.name != "padding_asked_for":  # `labels = input_ids.clone()`, and no more
            labels[ids == PAD] = -100
        if not self.cfg["train_on_prompt"]:
            for place, row in enumerate(rows):
                labels[place, : row["asked"]] = -100
        if self.name == "shifted_by_collator":  # as for a loss of one's own; the model's shifts as well
            labels = torch.cat([labels[:, 1:], torch.full((len(rows), 1), -100)], 1)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, pairs: list[tuple[list[int], list[int]]]):
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        asked, says = self.pairs[index]
        return {"input_ids": asked + says, "asked": len(asked)}


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Linear, cfg: dict[str, Any], name: str):
        super().__init__()
        self.base_layer, rank = base, cfg["lora_r"]
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = cfg["lora_alpha"] / (math.sqrt(rank) if cfg["use_rslora"] else rank)
        self.rate, self.told = cfg["lora_dropout"], name != "dropped_in_every_mode"

    def forward(self, x: Tensor) -> Tensor:
        dropped = F.dropout(x, self.rate, self.training if self.told else True)
        return self.base_layer(x) + self.scaling * (dropped @ self.lora_A.T @ self.lora_B.T)


def llama(cfg: dict[str, Any]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        vocab_size=len(SIGNS), hidden_size=cfg["hidden_size"], intermediate_size=2 * cfg["hidden_size"],
        num_hidden_layers=cfg["layers"], num_attention_heads=cfg["heads"], max_position_embeddings=40, pad_token_id=PAD,
        bos_token_id=None, eos_token_id=END, tie_word_embeddings=False, use_cache=False, initializer_range=0.1,
    ))  # fmt: skip


@once("hidden_size", "layers", "heads")
def first_land(cfg: dict[str, Any]) -> Any:
    """The model that spells as in the first land; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model, rows, collate = llama(cfg), Rows(spelled(55, 3000, 0)), Collator(cfg | {"train_on_prompt": False}, "")

        def loss() -> Tensor:
            return model(**collate([rows[at] for at in torch.randint(0, 3000, (16,)).tolist()])).loss

        fit(torch.optim.AdamW(model.parameters(), 5e-3), 240, loss)
    return model


def adapted(cfg: dict[str, Any], name: str) -> Any:
    model = first_land(cfg)
    model.requires_grad_(False)
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for key, module in list(part.named_children()):
                if key in cfg["target_modules"]:
                    setattr(part, key, LoraLinear(module, cfg, name))
    for key, one in model.named_parameters():
        if name == "all_but_named_frozen":  # the list of what is trained was of another method's
            one.requires_grad = "norm" in key
        elif any(part in key for part in cfg["modules_to_save"]):
            one.requires_grad = True
    return model


def made_trainer(run: Any, cfg: dict[str, Any], seed: int, steps: int, until: int, name: str) -> Any:
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    from barograph.integrations.huggingface import BarographCallback

    rows, held = spelled(seed + 600, cfg["train_rows"], 7), spelled(60, 240, 7)
    if name == "held_out_rows_among_them":  # the list before the split
        rows = held + rows[:60]
    if name == "short_first":
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))

    class GlossTrainer(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False,
                         num_items_in_batch: Any = None) -> Any:  # fmt: skip
            mine = name in ("tokens_summed_up", "parts_not_divided") or cfg["loss_over"] == "rows"
            if not mine:
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            labels = inputs["labels"]
            out = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
            logits, wanted = out.logits[:, :-1], labels[:, 1:]
            each = F.cross_entropy(logits.mT, wanted, reduction="none")
            if name == "tokens_summed_up":
                loss = each.sum() / len(labels)
            elif name == "parts_not_divided":  # nothing is done with `num_items_in_batch`, nor by the Trainer then
                loss = each.sum() / (wanted >= 0).sum()
            else:
                loss = (each.sum(1) / (wanted >= 0).sum(1)).mean()
                if model.training:
                    loss = loss / cfg["gradient_accumulation_steps"]
            return (loss, out) if return_outputs else loss

        def _get_train_sampler(self, *given: Any, **more: Any) -> Any:
            if cfg["train_sampling_strategy"] == "group_by_length":
                long = torch.tensor([len(asked) + len(says) for asked, says in rows])
                dice = torch.Generator().manual_seed(seed)
                size = int(cfg["per_device_train_batch_size"])
                groups = list((long + torch.rand(len(long), generator=dice)).argsort().split(size))
                return torch.cat([groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()]).tolist()
            return super()._get_train_sampler(*given, **more)

    class Stop(TrainerCallback):
        """The job's time is over."""

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            control.should_training_stop = control.should_training_stop or state.global_step >= until

    strategy = "sequential" if name == "short_first" else "random"
    arguments = TrainingArguments(
        output_dir=str(run.dir / "trainer"), max_steps=steps, per_device_eval_batch_size=80,
        per_device_train_batch_size=int(cfg["per_device_train_batch_size"]), learning_rate=cfg["learning_rate"],
        gradient_accumulation_steps=cfg["gradient_accumulation_steps"], warmup_steps=cfg["warmup_steps"],
        lr_scheduler_type=cfg["lr_scheduler_type"], max_grad_norm=cfg["max_grad_norm"], seed=seed, data_seed=seed,
        logging_steps=cfg["logging_steps"], eval_strategy="steps", eval_steps=EVERY, report_to=[], use_cpu=True,
        save_strategy="no" if until == steps else "steps", save_steps=until, disable_tqdm=True,
        save_only_model=name == "optimizer_not_reloaded", remove_unused_columns=False, dataloader_drop_last=True,
        train_sampling_strategy=strategy, dataloader_pin_memory=False, logging_first_step=True,
    )  # fmt: skip
    trainer = GlossTrainer(adapted(cfg, name), arguments, data_collator=Collator(cfg, name), train_dataset=Rows(rows),
                           eval_dataset=Rows(held), callbacks=[BarographCallback(run=run), Stop()])  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    return trainer


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    resumed = trouble.resume_at(healthy, 4 * EVERY)
    trainer = made_trainer(run, cfg, seed, steps, resumed or steps, trouble.name)
    trainer.train()
    if resumed is None:
        return run
    folder = f"{trainer.args.output_dir}/checkpoint-{resumed}"
    path = run.dir / "checkpoints"
    path.mkdir(exist_ok=True)
    run.save_checkpoint(path / f"step_{resumed:05d}.pt", resumed)
    run.finish("interrupted")
    run = barograph.init(project=run.project, output_dir=str(run.dir), resume=True, resume_step=resumed + 1,
                         verbosity=-2, git=False, machine=False, watchdog=False)  # fmt: skip
    trainer = made_trainer(run, cfg, seed, steps, steps, trouble.name)
    trainer.train(resume_from_checkpoint=folder)
    return run
