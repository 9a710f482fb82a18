"""Sorts complaints by a small BERT under Hugging Face's Trainer; half are of one kind, one in thirty of the rarest.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by Barograph's own callback: the Trainer's names, each fourth step, eval_f1 among them, and what it
      watches.

Kinds weigh by how rare they are; a subclass of the Trainer has the loss; AdamW, a rate that falls to 0; metrics by
`compute_metrics`.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from injections import Trouble
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, WORDS, KINDS, PAD, CLS = 20, 70, 5, 0, 1
SHARES = (0.5, 0.25, 0.14, 0.075, 0.035)
ORDER = (2, 0, 4, 1, 3)  # numbers of the kinds, the most frequent first
CONFIG: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "dropout": 0.0, "batch_size": 24, "learning_rate": 3e-3,
    "warmup_steps": 10, "lr_scheduler_type": "linear", "gradient_accumulation_steps": 1, "weight_decay": 0.01,
    "num_rows": 1920, "class_weights": "balanced", "label_smoothing": 0.0, "copies": 1, "freeze": "",
    "group_by_length": False, "wrong_labels": 0.03, "focal_gamma": 0.0, "logging_steps": 4, "optim": "adamw_torch",
    "max_grad_norm": 1.0, "gradient_checkpointing": False,
}  # fmt: skip


def written(seed: int, number: int, wrong: float) -> list[dict[str, Any]]:
    """Each kind has words that come often in it."""
    dice, rows = torch.Generator().manual_seed(seed), []
    for place in torch.multinomial(torch.tensor(SHARES), number, replacement=True, generator=dice).tolist():
        kind = ORDER[place]
        long = int(torch.randint(4, 21, (1,), generator=dice))
        words = torch.randint(2, WORDS, (long,), generator=dice)
        own = 2 + 6 * kind + torch.randint(0, 6, (long,), generator=dice)
        words = torch.where(torch.rand(long, generator=dice) < 0.25, own, words)
        if float(torch.rand((), generator=dice)) < wrong:
            kind = ORDER[int(torch.multinomial(torch.tensor(SHARES), 1, generator=dice))]
        rows.append({"input_ids": [CLS, *words.tolist()], "labels": kind})
    return rows


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


def collate(some: list[dict[str, Any]]) -> dict[str, Tensor]:
    ids = nn.utils.rnn.pad_sequence([torch.tensor(one["input_ids"]) for one in some], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD).long(),
        "labels": torch.tensor([one["labels"] for one in some]),
    }


def class_weights(rows: list[dict[str, Any]], way: str, name: str) -> Tensor | None:
    if way == "none":
        return None
    counts = torch.bincount(torch.tensor([one["labels"] for one in rows]), minlength=KINDS).float()
    if name == "weights_in_other_order":  # of a table that is sorted by how many there are
        counts = counts.sort(descending=True).values
    weights = len(rows) / (KINDS * counts.clamp(min=1))
    return weights.sqrt() if way == "root" else weights


def metrics(given: Any) -> dict[str, float]:
    said, right = torch.as_tensor(given.predictions).argmax(-1), torch.as_tensor(given.label_ids)
    scores = []
    for kind in range(KINDS):
        hit = float(((said == kind) & (right == kind)).sum())
        scores.append(2 * hit / max(1.0, float((said == kind).sum() + (right == kind).sum())))
    return {"accuracy": float((said == right).float().mean()), "f1": sum(scores) / KINDS}


def made_model(cfg: dict[str, Any], name: str) -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    rate = cfg["dropout"]

    class Always(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, rate)

    model = BertForSequenceClassification(BertConfig(
        vocab_size=WORDS, hidden_size=cfg["hidden_size"], num_hidden_layers=cfg["num_hidden_layers"],
        num_attention_heads=4, intermediate_size=64, max_position_embeddings=32, num_labels=KINDS,
        hidden_dropout_prob=rate, attention_probs_dropout_prob=0.0, initializer_range=0.1,
    ))  # fmt: skip
    if name == "dropped_in_evaluation":
        model.dropout = Always()
    for key, parameter in model.named_parameters():
        if name == "wrong_part_frozen":  # the old head's name was taken for the new one's
            parameter.requires_grad = key.startswith("classifier")
        elif cfg["freeze"]:
            parameter.requires_grad = not key.startswith(cfg["freeze"])
    return model


def made_trainer(run: Any, cfg: dict[str, Any], seed: int, steps: int, name: str) -> Any:
    from transformers import Trainer, TrainingArguments

    from barograph.integrations.huggingface import BarographCallback

    rows, held = written(seed + 19, cfg["num_rows"], cfg["wrong_labels"]), written(191, 400, cfg["wrong_labels"])
    rare = ORDER[2:]
    copied = [one for one in (*rows, *held) for _ in range(cfg["copies"] if one["labels"] in rare else 1)]
    if name == "split_after_copies":
        order = torch.randperm(len(copied), generator=torch.Generator().manual_seed(3)).tolist()
        held, rows = [copied[one] for one in order[:400]], [copied[one] for one in order[400:]]
    elif cfg["copies"] > 1:
        rows = [one for one in rows for _ in range(cfg["copies"] if one["labels"] in rare else 1)]
    weights = class_weights(rows, cfg["class_weights"], name)
    if name == "kinds_off_by_one":
        rows = [one | {"labels": (one["labels"] + 1) % KINDS} for one in rows]

    class WeightedTrainer(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False,
                         num_items_in_batch: Any = None) -> Any:  # fmt: skip
            labels = inputs["labels"]
            out = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
            logits = out.logits
            given = logits.softmax(-1) if name == "softmax_before_loss" else logits
            if cfg["focal_gamma"] and model.training:
                each = F.cross_entropy(given, labels, reduction="none")
                loss = ((1 - (-each).exp()) ** cfg["focal_gamma"] * each).mean()
            else:
                smooth = cfg["label_smoothing"] if model.training else 0.0
                loss = F.cross_entropy(given, labels, weights, label_smoothing=smooth)
            if model.training:  # this Trainer leaves it to a loss of one's own
                loss = loss / cfg["gradient_accumulation_steps"]
            return (loss, out) if return_outputs else loss

        def _get_train_sampler(self, *given: Any, **more: Any) -> Any:
            long = torch.tensor([len(one["input_ids"]) for one in rows])
            dice = torch.Generator().manual_seed(seed)
            if cfg["group_by_length"]:
                groups = list((long + torch.rand(len(long), generator=dice)).argsort().split(int(cfg["batch_size"])))
                order = torch.randperm(len(groups), generator=dice).tolist()
                return torch.cat([groups[one] for one in order]).tolist()
            return super()._get_train_sampler(*given, **more)

    arguments = TrainingArguments(
        output_dir=str(run.dir / "trainer"), max_steps=steps, per_device_train_batch_size=int(cfg["batch_size"]),
        per_device_eval_batch_size=100, learning_rate=cfg["learning_rate"], warmup_steps=cfg["warmup_steps"],
        lr_scheduler_type=cfg["lr_scheduler_type"], gradient_accumulation_steps=cfg["gradient_accumulation_steps"],
        weight_decay=cfg["weight_decay"], logging_steps=cfg["logging_steps"], eval_strategy="steps", eval_steps=EVERY,
        save_strategy="no", report_to=[], seed=seed, use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
        optim=cfg["optim"], max_grad_norm=cfg["max_grad_norm"],
    )  # fmt: skip
    model = made_model(cfg, name)
    if cfg["gradient_checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return WeightedTrainer(
        model, arguments, data_collator=collate, train_dataset=Rows(rows), eval_dataset=Rows(held),
        compute_metrics=metrics, callbacks=[BarographCallback(run=run)],
    )  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    from transformers import PrinterCallback

    cfg, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    trainer = made_trainer(run, cfg, seed, steps, trouble.name)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return run
