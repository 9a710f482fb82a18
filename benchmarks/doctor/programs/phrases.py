"""Low-rank adapters on a Llama of eight bits learn another language's phrases, under Hugging Face's Trainer.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by Barograph's own callback: the Trainer's names, each fifth step, and what it watches.

The base is quantised by rows and frozen; a subclass of the Trainer has a loss of its own, which knows how many tokens a
step has. Cosine, AdamW, rows padded to the longest of their batch.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from injections import Trouble
from torch import Tensor, nn
from torch.nn import functional

from .parts import fit, once

EVERY, LETTERS, PAD, BEGIN, END = 20, 20, 0, 21, 22
CONFIG: dict[str, Any] = {
    "hidden_size": 32, "layers": 2, "lora_r": 4, "lora_alpha": 16, "lora_dropout": 0.0, "batch_size": 16,
    "learning_rate": 1e-2, "warmup_steps": 8, "schedule": "cosine", "accumulation": 1, "examples": 3600,
    "group_by_length": False, "modules_to_save": [], "mean_of": "tokens", "logging_steps": 5,
}  # fmt: skip


def chain(language: int) -> Tensor:
    """(LETTERS, LETTERS): how likely a letter is behind another one; half of the letters are used alike."""
    dice = torch.Generator().manual_seed(3)
    common = 4.0 * torch.randn(LETTERS, LETTERS, generator=dice)
    own = 4.0 * torch.randn(LETTERS, LETTERS, generator=torch.Generator().manual_seed(1000 + language))
    return torch.where(torch.arange(LETTERS)[:, None] % 2 == 0, common, own).softmax(1)


def phrases(seed: int, number: int, language: int) -> list[Tensor]:
    dice, table = torch.Generator().manual_seed(seed), chain(language)
    letters = torch.randint(0, LETTERS, (number, 1), generator=dice)
    for _ in range(19):
        letters = torch.cat([letters, torch.multinomial(table[letters[:, -1]], 1, generator=dice)], 1)
    long = torch.randint(5, 21, (number,), generator=dice).tolist()
    ends = (torch.tensor([BEGIN]), torch.tensor([END]))
    return [torch.cat([ends[0], row[:n] + 1, ends[1]]) for row, n in zip(letters, long, strict=True)]


class Phrases(torch.utils.data.Dataset[Tensor]):
    def __init__(self, rows: list[Tensor]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor:
        return self.rows[index]


class Collator:
    def __init__(self, shifts: bool = False):
        self.shifts = shifts  # the loss does so, too

    def __call__(self, rows: list[Tensor]) -> dict[str, Tensor]:
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        labels = ids.masked_fill(ids == PAD, -100)
        if self.shifts:
            labels = functional.pad(labels[:, 1:], (0, 1), value=-100)
        return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


class EightBitLora(nn.Module):
    """A linear layer of whole numbers from -127 to 127, a scale for each row, and an adapter."""

    def __init__(self, base: nn.Linear, config: dict[str, Any], name: str):
        super().__init__()
        self.register_buffer("scale", base.weight.detach().abs().amax(1, keepdim=True) / 127)
        self.register_buffer("codes", (base.weight.detach() / self.scale).round().to(torch.int8))
        self.lora_A = nn.Linear(base.in_features, config["lora_r"], bias=False)
        self.lora_B = nn.Linear(config["lora_r"], base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        if name == "adapters_zero":
            nn.init.zeros_(self.lora_A.weight)
        self.scaling, self.rate = config["lora_alpha"] / config["lora_r"], config["lora_dropout"]
        self.always = name == "dropped_always"

    def forward(self, x: Tensor) -> Tensor:
        base = functional.linear(x, self.codes.float() * self.scale)
        x = functional.dropout(x, self.rate) if self.always else functional.dropout(x, self.rate, self.training)
        return base + self.scaling * self.lora_B(self.lora_A(x))


@once("hidden_size", "layers")
def base_model(config: dict[str, Any]) -> Any:
    """Knows the first language; the same for all seeds."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(8)
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=LETTERS + 4, hidden_size=config["hidden_size"], intermediate_size=64, num_attention_heads=2,
            num_hidden_layers=config["layers"], max_position_embeddings=32, use_cache=False, pad_token_id=PAD,
            bos_token_id=BEGIN, eos_token_id=END, tie_word_embeddings=False, attn_implementation="sdpa",
        ))  # fmt: skip
        rows, collate = phrases(80, 2000, 1), Collator()

        def loss() -> Tensor:
            batch = collate([rows[one] for one in torch.randint(0, 2000, (24,)).tolist()])
            given: Tensor = model(**batch).loss
            return given

        fit(torch.optim.AdamW(model.parameters(), 1e-2), 90, loss)
    return model


def adapted(config: dict[str, Any], name: str) -> Any:
    model = base_model(config).requires_grad_(False)
    for layer in model.model.layers:
        for part, child in ((layer.self_attn, "q_proj"), (layer.self_attn, "v_proj"), (layer.mlp, "gate_proj"),
                            (layer.mlp, "up_proj"), (layer.mlp, "down_proj")):  # fmt: skip
            setattr(part, child, EightBitLora(getattr(part, child), config, name))
    if name == "wrong_group_frozen":  # matched by the names of the base's layers, which have norms alone left
        for key, parameter in model.named_parameters():
            parameter.requires_grad = "layers" in key and "lora" not in key
    for key, parameter in model.named_parameters():
        if any(part in key for part in config["modules_to_save"]):
            parameter.requires_grad = True
    return model


def token_loss(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
    logits, labels = logits[:, :-1], labels[:, 1:]
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=reduction)


def made_trainer(run: Any, config: dict[str, Any], seed: int, steps: int, name: str) -> Any:
    from transformers import Trainer, TrainingArguments

    from barograph.integrations.huggingface import BarographCallback

    class PhraseTrainer(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False,
                         num_items_in_batch: Any = None) -> Any:  # fmt: skip
            out = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
            labels = inputs["labels"]
            if name == "accumulation_undivided":  # the Trainer divides no loss of a model that can count its tokens
                loss = token_loss(out.logits, labels, "mean")
            elif name == "mean_over_all_places":
                loss = token_loss(out.logits, labels, "none").mean() / config["accumulation"]
            elif config["mean_of"] == "rows":  # each phrase weighs the same
                of_rows = token_loss(out.logits, labels, "none").view(len(labels), -1).sum(1)
                loss = (of_rows / (labels[:, 1:] >= 0).sum(1)).mean() / config["accumulation"]
            else:
                loss = token_loss(out.logits, labels, "sum") / num_items_in_batch  # of all micro-batches
            return (loss, out) if return_outputs else loss

        def _get_train_sampler(self, *given: Any, **more: Any) -> Any:
            rows = self.train_dataset
            lengths = torch.tensor([len(row) for row in rows])  # type: ignore[union-attr]
            if name == "data_by_length":
                return torch.argsort(lengths, stable=True).tolist()
            if config["group_by_length"]:  # like beside like within a batch, batches in any order
                noisy = lengths + torch.rand(len(lengths), generator=torch.Generator().manual_seed(seed))
                groups = list(torch.argsort(noisy).split(int(config["batch_size"])))
                order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed)).tolist()
                return torch.cat([groups[one] for one in order]).tolist()
            return super()._get_train_sampler(*given, **more)

    arguments = TrainingArguments(
        output_dir=str(run.dir / "trainer"), max_steps=steps, per_device_train_batch_size=int(config["batch_size"]),
        per_device_eval_batch_size=80, learning_rate=config["learning_rate"], warmup_steps=config["warmup_steps"],
        lr_scheduler_type=config["schedule"], gradient_accumulation_steps=config["accumulation"], max_grad_norm=1.0,
        logging_steps=config["logging_steps"], eval_strategy="steps", eval_steps=EVERY, save_strategy="no",
        report_to=[], seed=seed, use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
        prediction_loss_only=True,
    )  # fmt: skip
    return PhraseTrainer(
        adapted(config, name), arguments, data_collator=Collator(shifts=name == "labels_off_by_one"),
        train_dataset=Phrases(phrases(seed + 83, config["examples"], 2)), eval_dataset=Phrases(phrases(838, 160, 2)),
        callbacks=[BarographCallback(run=run)],
    )  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    from transformers import PrinterCallback

    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    trainer = made_trainer(run, config, seed, steps, trouble.name)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return run
