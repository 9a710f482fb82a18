"""Hugging Face's Trainer, recorded by one callback.

python examples/frameworks/huggingface_trainer.py FOLDER
"""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import barograph
from barograph.integrations.huggingface import BarographCallback

folder = sys.argv[1]
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (32, 8))]
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2))
arguments = TrainingArguments(folder, max_steps=4, logging_steps=1, use_cpu=True, disable_tqdm=True, save_strategy="no")
recorder = BarographCallback(dir=f"{folder}/runs", project="hf")
Trainer(model, arguments, train_dataset=rows, callbacks=[recorder]).train()
recorder.run.finish()

stored = barograph.StoredRun(recorder.run.dir)
assert list(stored.series("train/loss").step) == [1, 2, 3, 4] and stored.manifest["total_steps"] == 4
print("a training of Hugging Face's Trainer holds")
