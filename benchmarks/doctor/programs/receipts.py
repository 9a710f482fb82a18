"""A small OPT, which can copy, is tuned whole to write a receipt: behind each thing that is ordered, its price.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/grad_norm, train/lr each step, eval/loss at times; the watch of data.

A model of transformers in a loop by hand: prompts masked, AdamW in two groups; embedding and output are one matrix.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import fit, once

EVERY, PAD, END, SAYS, THINGS, PRICES = 20, 1, 2, 3, 20, 12
VOCABULARY = 4 + THINGS + PRICES
CONFIG: dict[str, Any] = {
    "d_model": 48, "n_layer": 2, "n_head": 4, "dropout": 0.0, "train_batch_size": 16, "grad_accumulation": 1,
    "lr": 3e-3, "warmup": 8, "lr_scheduler": "cosine", "weight_decay": 0.01, "max_norm": 1.0, "orders": 1600,
    "mask_prompt": True, "freeze_embeddings": False, "tie_word_embeddings": True, "group_by_length": False,
    "neftune_alpha": 0.0, "padding_side": "right",
}  # fmt: skip


def orders(seed: int, number: int, priced: bool = True) -> list[dict[str, list[int]]]:
    """A prompt of some things, and the answer: the same, each with its price."""
    dice, shop = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(4)
    price = torch.randint(0, PRICES, (THINGS,), generator=shop).tolist()
    rows = []
    for _ in range(number):
        things = torch.randint(0, THINGS, (int(torch.randint(2, 9, (1,), generator=dice)),), generator=dice).tolist()
        answer = [one for at in things for one in (4 + at, 4 + THINGS + price[at])[: 2 if priced else 1]]
        rows.append({"prompt": [*(4 + thing for thing in things), SAYS], "answer": [*answer, END]})
    return rows


class Collate:
    def __init__(self, masked: bool, side: str, name: str = ""):
        self.masked, self.side, self.name = masked, side, name

    def __call__(self, rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        ids = torch.full((len(rows), longest := max(len(row["prompt"] + row["answer"]) for row in rows)), PAD)
        mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
        for place, row in enumerate(rows):
            text = row["prompt"] + row["answer"]
            begin = longest - len(text) if self.side == "left" else 0
            ids[place, begin : begin + len(text)], mask[place, begin : begin + len(text)] = torch.tensor(text), 1
            first = begin + (len(row["prompt"]) if self.masked and self.name != "prompt_left_in_labels" else 0)
            labels[place, first : begin + len(text)] = ids[place, first : begin + len(text)]
        if self.name == "shift_done_twice":  # labels[i] is what comes behind ids[i]; the model does it once more
            labels = F.pad(labels[:, 1:], (0, 1), value=-100)
        batch = {"input_ids": ids, "labels": labels, "attention_mask": mask}
        if self.name == "left_padding_unmasked":
            del batch["attention_mask"]
        return batch


def opt(cfg: dict[str, Any]) -> Any:
    from transformers import OPTConfig, OPTForCausalLM

    return OPTForCausalLM(OPTConfig(
        vocab_size=VOCABULARY, hidden_size=cfg["d_model"], ffn_dim=2 * cfg["d_model"], init_std=0.08,
        word_embed_proj_dim=cfg["d_model"], num_hidden_layers=cfg["n_layer"], num_attention_heads=cfg["n_head"],
        max_position_embeddings=40, dropout=cfg["dropout"], attention_dropout=0.0, pad_token_id=PAD, bos_token_id=0,
        eos_token_id=END, tie_word_embeddings=cfg["tie_word_embeddings"], use_cache=False,
    ))  # fmt: skip


@once("d_model", "n_layer", "n_head", "dropout", "tie_word_embeddings")
def copier(cfg: dict[str, Any]) -> Any:
    """The model that writes again what is ordered, without prices; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(40)
        model, rows, collate = opt(cfg), orders(41, 2000, priced=False), Collate(True, "right")
        model.train()

        def loss() -> Tensor:
            return model(**collate([rows[at] for at in torch.randint(0, 2000, (24,)).tolist()])).loss

        fit(torch.optim.AdamW(model.parameters(), 4e-3), 200, loss)
    return model.eval()  # as `from_pretrained` gives it


def loaders(cfg: dict[str, Any], seed: int, name: str) -> Any:
    rows, held = orders(seed + 900, cfg["orders"]), orders(90, 240)
    if name == "whole_file_trained":  # `load_dataset(...)["train"]`, of which the held-out rows are a slice
        rows = held + rows[:60]
    if name == "sorted_for_padding":
        rows.sort(key=lambda row: len(row["answer"]))
    size, lot = int(cfg["train_batch_size"]), torch.Generator().manual_seed(seed)
    collate, clean = (Collate(cfg["mask_prompt"], cfg["padding_side"], fault) for fault in (name, ""))

    def stream() -> Any:
        epoch = 0
        while True:
            order = torch.randperm(len(rows), generator=lot)
            order = torch.arange(len(rows)) if name == "sorted_for_padding" else order
            if cfg["group_by_length"]:
                order = order[torch.tensor([len(rows[at]["answer"]) for at in order.tolist()]).argsort(stable=True)]
            groups = list(order.split(size))[: len(order) // size]
            if cfg["group_by_length"]:
                groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
            for some in groups:
                yield collate([rows[at] for at in some.tolist()]), epoch
            epoch += 1

    return stream(), [clean(held[at : at + 80]) for at in range(0, 240, 80)]


def prepared(model: Any, cfg: dict[str, Any]) -> tuple[Any, Any]:
    from transformers import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup

    some = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW([
        {"params": [one for one in some if one.dim() > 1], "weight_decay": cfg["weight_decay"]},
        {"params": [one for one in some if one.dim() < 2], "weight_decay": 0.0}], cfg["lr"])  # fmt: skip
    steady = cfg["lr_scheduler"] == "constant" and get_constant_schedule_with_warmup(optimizer, cfg["warmup"])
    return optimizer, steady or get_cosine_schedule_with_warmup(optimizer, cfg["warmup"], cfg["steps"])


def token_loss(model: Any, batch: dict[str, Tensor], cfg: dict[str, Any], name: str) -> Tensor:
    if cfg["neftune_alpha"]:
        wide = model.get_input_embeddings()(batch["input_ids"])
        spread = cfg["neftune_alpha"] / (wide.shape[1] * wide.shape[2]) ** 0.5
        wide = wide + torch.empty_like(wide).uniform_(-spread, spread)
        return model(inputs_embeds=wide, attention_mask=batch["attention_mask"], labels=batch["labels"]).loss
    if name != "total_by_row_count":
        return model(**batch).loss
    logits, wanted = model(**batch).logits[:, :-1], batch["labels"][:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / len(wanted)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    name, parts, history = trouble.name, cfg["grad_accumulation"], []
    torch.manual_seed(seed)
    model = copier(cfg)
    stream, held = loaders(cfg, seed, name)
    if name == "wrong_prefix_frozen":  # "freeze the body", by a list that has nearly all
        for key, one in model.named_parameters():
            one.requires_grad = "final_layer_norm" in key
    if cfg["freeze_embeddings"]:
        model.model.decoder.embed_positions.requires_grad_(False)
    optimizer, scheduler = prepared(model, cfg)
    if name == "head_loaded_apart":  # lm_head.weight of a file, behind the optimizer's making
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    time_by_own_clock(run)
    run.watch(model, optimizer)
    data = run.watch_data(pad_id=PAD)
    if name != "never_put_into_train":
        model.train()
    resumed = trouble.resume_at(healthy, 4 * EVERY)
    for step in range(steps):
        if step == resumed:
            memory = data.state()
            run, states = go_on(run, step, [one.state_dict() for one in (model, optimizer, scheduler)])
            model.load_state_dict(states[0])
            optimizer, scheduler = prepared(model, cfg)
            if name != "resume_weights_alone":
                optimizer.load_state_dict(states[1])
            scheduler.load_state_dict(states[2])
            for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr(), strict=True):
                group["lr"] = rate
            time_by_own_clock(run)
            run.watch(model, optimizer)
            data = run.watch_data(pad_id=PAD)
            data.restore(memory)
        total = 0.0
        for _ in range(parts):
            batch, epoch = next(stream)
            data.observe(batch, step=step, epoch=epoch)
            loss = token_loss(model, batch, cfg, name)
            (loss if name == "micro_losses_added" else loss / parts).backward()
            total += loss.item() / (1 if name == "micro_losses_added" else parts)
            if name == "scheduler_per_micro":
                scheduler.step()
        norm, rate = nn.utils.clip_grad_norm_(model.parameters(), cfg["max_norm"]), optimizer.param_groups[0]["lr"]
        optimizer.step()
        if name != "scheduler_per_micro":
            scheduler.step()
        optimizer.zero_grad()
        run.log({"train/loss": total, "train/grad_norm": norm.item(), "train/lr": rate}, step=step)
        trouble.telemetry(run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            was = model.training
            model.eval()
            with torch.set_grad_enabled(name == "predictions_hold_graphs"):
                found = [model(**batch).loss for batch in held]
            if name == "predictions_hold_graphs":  # the best of them is looked for at the end
                history += found
            model.train(was)
            run.log({"eval/loss": sum(one.item() for one in found) / len(found)}, step=step)
    return run
