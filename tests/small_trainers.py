"""A language model of some thousand parameters and its data, as Hugging Face's trainers take them. Nothing is loaded
from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCABULARY = 32


def model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=1, n_head=2))


def rows(count: int = 64) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(count):
        tokens = torch.randint(0, VOCABULARY, (8,), generator=generator)
        found.append({"input_ids": tokens, "labels": tokens})
    return found


def arguments(folder: Path, **more: Any) -> TrainingArguments:
    given: dict[str, Any] = {
        "max_steps": 6, "per_device_train_batch_size": 4, "logging_steps": 2, "use_cpu": True, "disable_tqdm": True,
        "report_to": "none", "logging_nan_inf_filter": False, "save_strategy": "no", "dataloader_pin_memory": False,
    }  # fmt: skip
    return TrainingArguments(output_dir=str(folder), **{**given, **more})


def trainer(folder: Path, callbacks: Any = None, **more: Any) -> Trainer:
    return Trainer(
        model=model(), args=arguments(folder, **more), train_dataset=rows(), eval_dataset=rows(8), callbacks=callbacks
    )
