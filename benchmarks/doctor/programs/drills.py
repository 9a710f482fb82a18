"""Adapters of low rank on a small GPT-2 learn new drills, by Accelerate.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, learning_rate of each step; eval_loss, eval_ppl; the watch of data.

Adapters by hand around the base's own layers, prompts masked by -100, rows padded at their ends; AdamW with a linear
rate; a script with `accelerator.accumulate` and a model whose loss is its own.
"""

from __future__ import annotations

import math
import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from .parts import fit, once

EVERY, NUMBERS, DRILLS = 20, 20, 12
PAD, EOS, SAYS = 0, 1, 2
CONFIG: dict[str, Any] = {
    "n_embd": 32, "n_layer": 2, "lora_rank": 4, "lora_alpha": 8, "lora_dropout": 0.0,
    "target_modules": ["c_attn", "c_fc"], "per_device_batch_size": 16, "gradient_accumulation_steps": 1,
    "learning_rate": 8e-3, "num_warmup_steps": 8, "lr_scheduler_type": "linear", "weight_decay": 0.0,
    "max_grad_norm": 1.0, "train_rows": 2400, "completion_only": True, "train_embeddings": False, "b_lr_ratio": 1.0,
    "wrong_share": 0.1, "bucketed": False, "rank_scaled": False,
}  # fmt: skip


def drill_rows(seed: int, number: int, drills: tuple[int, int], wrong: float) -> list[tuple[list[int], int]]:
    """Ids, and how many of them are the prompt: which drill, and where it begins. It goes on by some steps."""
    dice = torch.Generator().manual_seed(seed)
    stride = torch.randint(1, NUMBERS, (DRILLS, 2), generator=torch.Generator().manual_seed(5)).tolist()
    rows = []
    for _ in range(number):
        drill = int(torch.randint(*drills, (1,), generator=dice))
        at, long = (int(torch.randint(low, high, (1,), generator=dice)) for low, high in ((0, NUMBERS), (3, 15)))
        ids = [3 + drill, 3 + DRILLS + at, SAYS]
        for _ in range(long):
            at = (at + stride[drill][at % 2]) % NUMBERS
            if float(torch.rand((), generator=dice)) < wrong:
                at = int(torch.randint(0, NUMBERS, (1,), generator=dice))
            ids.append(3 + DRILLS + at)
        rows.append(([*ids, EOS], 3))
    return rows


class Drills(Dataset[Any]):
    def __init__(self, rows: list[tuple[list[int], int]]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[list[int], int]:
        return self.rows[index]


def collate(some: list[tuple[list[int], int]], completion_only: bool = True, shifts: bool = False) -> dict[str, Tensor]:
    long = max(len(ids) for ids, _ in some)
    input_ids = torch.tensor([ids + [PAD] * (long - len(ids)) for ids, _ in some])
    attention_mask = torch.tensor([[1] * len(ids) + [0] * (long - len(ids)) for ids, _ in some])
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    if completion_only:
        for row, (_, prompt) in enumerate(some):
            labels[row, :prompt] = -100
    if shifts:  # as the model does, too
        labels = torch.cat([labels[:, 1:], torch.full((len(labels), 1), -100)], 1)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


class LoraLayer(nn.Module):
    """Around a layer of GPT-2, whose weight is (in, out)."""

    def __init__(self, base: Any, cfg: dict[str, Any]):
        super().__init__()
        self.base_layer, rank = base, cfg["lora_rank"]
        self.lora_A = nn.Parameter(torch.randn(base.weight.shape[0], rank) / math.sqrt(rank))
        self.lora_B = nn.Parameter(torch.zeros(rank, base.weight.shape[1]))
        self.scaling = cfg["lora_alpha"] / (math.sqrt(rank) if cfg["rank_scaled"] else rank)
        self.dropout = nn.Dropout(cfg["lora_dropout"])

    def forward(self, x: Tensor) -> Tensor:
        said: Tensor = self.base_layer(x) + self.scaling * (self.dropout(x) @ self.lora_A @ self.lora_B)
        return said


@once("n_embd", "n_layer")
def pretrained(cfg: dict[str, Any]) -> Any:
    """Knows the first half of the drills; the same for all seeds."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = GPT2LMHeadModel(GPT2Config(
            vocab_size=3 + DRILLS + NUMBERS, n_positions=32, n_embd=cfg["n_embd"], n_layer=cfg["n_layer"], n_head=2,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=EOS, eos_token_id=EOS,
        ))  # fmt: skip
        rows = drill_rows(44, 2000, (0, DRILLS // 2), 0.1)

        def loss() -> Tensor:
            given: Tensor = model(**collate([rows[one] for one in torch.randint(0, 2000, (24,)).tolist()])).loss
            return given

        fit(torch.optim.AdamW(model.parameters(), 6e-3), 150, loss)
    return model


def with_adapters(model: Any, cfg: dict[str, Any], name: str) -> Any:
    model.requires_grad_(False)
    for block in model.transformer.h:
        for part in (block.attn, block.mlp):
            for key in ("c_attn", "c_fc", "c_proj"):
                if key in cfg["target_modules"] and hasattr(part, key):
                    setattr(part, key, LoraLayer(getattr(part, key), cfg))
    if name == "wrong_part_frozen":  # the test of the names is the wrong way round
        for key, parameter in model.named_parameters():
            parameter.requires_grad = "lora_" not in key
    if cfg["train_embeddings"]:
        model.transformer.wte.requires_grad_(True)
    return model


class InOrder(torch.utils.data.Sampler[int]):
    def __init__(self, order: list[int]):
        self.order = order

    def __iter__(self) -> Any:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


def train_loader(rows: list[tuple[list[int], int]], cfg: dict[str, Any], seed: int, name: str) -> DataLoader[Any]:
    dice, size = torch.Generator().manual_seed(seed), int(cfg["per_device_batch_size"])
    long = torch.tensor([len(ids) for ids, _ in rows])
    sampler = None
    if name == "rows_by_length":
        sampler = InOrder(long.argsort(stable=True).tolist())
    elif cfg["bucketed"]:
        groups = list((long + torch.rand(len(long), generator=dice)).argsort().split(size))
        sampler = InOrder(
            torch.cat([groups[one] for one in torch.randperm(len(groups), generator=dice).tolist()]).tolist()
        )
    return DataLoader(Drills(rows), size, shuffle=sampler is None, sampler=sampler, drop_last=True, generator=dice,
                      collate_fn=lambda some: collate(some, cfg["completion_only"] and name != "prompts_learnt_too",
                                                      name == "shifted_again"))  # fmt: skip


def optimised(model: Any, cfg: dict[str, Any]) -> tuple[Any, Any]:
    from transformers import get_scheduler

    groups = [{"params": [one for key, one in model.named_parameters() if one.requires_grad and "lora_B" not in key]},
              {"params": [one for key, one in model.named_parameters() if one.requires_grad and "lora_B" in key],
               "lr": cfg["learning_rate"] * cfg["b_lr_ratio"]}]  # fmt: skip
    optimizer = torch.optim.AdamW([one for one in groups if one["params"]], cfg["learning_rate"],
                                  weight_decay=cfg["weight_decay"])  # fmt: skip
    return optimizer, get_scheduler(cfg["lr_scheduler_type"], optimizer, cfg["num_warmup_steps"], cfg["steps"])


def evaluate(run: Any, model: Any, loader: Any, step: int, name: str) -> None:
    model.eval()
    losses = []
    with torch.no_grad():
        for batch in loader:
            losses.append(model(**batch).loss.item())
    if name != "left_in_eval":
        model.train()
    loss = sum(losses) / len(losses)
    run.log({"eval_loss": loss, "eval_ppl": math.exp(min(loss, 20.0))}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    from accelerate import Accelerator

    cfg, trouble = dict(run.config), Trouble(fault, seed)
    name, parts = trouble.name, cfg["gradient_accumulation_steps"]
    torch.manual_seed(seed)
    accelerator = Accelerator(gradient_accumulation_steps=parts, cpu=True, step_scheduler_with_optimizer=False)
    rows = drill_rows(seed + 43, cfg["train_rows"], (DRILLS // 2, DRILLS), cfg["wrong_share"])
    held = drill_rows(434, 192, (DRILLS // 2, DRILLS), cfg["wrong_share"])
    if name == "test_in_training":
        rows = rows[:300] + held * 2
    model = with_adapters(pretrained(cfg), cfg, name)
    model.train(name != "left_in_eval")  # a base that is loaded comes in evaluation mode
    optimizer, scheduler = optimised(model, cfg)
    loader, eval_loader = train_loader(rows, cfg, seed, name), DataLoader(Drills(held), 64, collate_fn=collate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def watched() -> Any:
        time_by_own_clock(run)
        run.watch(model, optimizer)
        return run.watch_data(pad_id=PAD)

    data = watched()
    step, micro, total, epoch = 0, 0, 0.0, 0
    resumed = trouble.resume_at(healthy, 5 * EVERY)
    while step < steps:
        for batch in loader:
            if step == resumed and micro == 0:
                memory = data.state()
                run, states = go_on(run, step, [one.state_dict() for one in (model, optimizer, scheduler)])
                model.load_state_dict(states[0])
                optimizer, scheduler = optimised(model, cfg)
                optimizer = accelerator.prepare(optimizer)
                if name != "moments_not_loaded":
                    optimizer.load_state_dict(states[1])
                scheduler.load_state_dict(states[2])
                for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr(), strict=True):
                    group["lr"] = rate
                data = watched()
                data.restore(memory)
                resumed = None
            data.observe(batch, step=step, epoch=epoch)
            with accelerator.accumulate(model):
                out = model(**batch)
                loss = out.loss
                if name == "tokens_summed":
                    logits, labels = out.logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten()
                    loss = nn.functional.cross_entropy(logits, labels, reduction="sum") / len(out.logits)
                total += loss.item() / parts
                # Accelerate divides by itself
                accelerator.backward(loss / parts if name == "divided_again" else loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), cfg["max_grad_norm"])
                rate = optimizer.param_groups[0]["lr"]
                optimizer.step()
                if accelerator.sync_gradients or name == "stepped_each_micro_batch":
                    scheduler.step()
                optimizer.zero_grad()
            micro += 1
            if not accelerator.sync_gradients:
                continue
            run.log({"loss": total, "learning_rate": rate}, step=step)
            micro, total = 0, 0.0
            if step % EVERY == 0 or step == steps - 1:
                evaluate(run, model, eval_loader, step, name)
            step += 1
            if step == steps:
                break
        epoch += 1
    return run
