"""A translator: encoder and decoder with attention across, teacher forcing, padding, smoothed labels.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`, as train/loss, train/accuracy, valid/loss, with the watch of the model.

The language: each word has one translation, neighbours change places, and a sentence ends with a mark of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop

EVERY, PAD, BEGIN, END, WORDS, LONGEST = 20, 0, 1, 2, 24, 12
CONFIG: dict[str, Any] = {
    "width": 48, "heads": 4, "layers": 2, "dropout": 0.05, "batch_size": 32, "learning_rate": 3e-3, "warmup_steps": 30,
    "schedule": "inverse_sqrt", "weight_decay": 0.01, "clip": 1.0, "examples": 4000, "label_smoothing": 0.1,
    "shortest": 4,
}  # fmt: skip


def sentences(seed: int, number: int, shortest: int) -> loop.Batch:
    """Sources (number, LONGEST + 1) and their translations, both padded; the dictionary is the same for all seeds."""
    dice, book = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(8)
    dictionary = torch.cat([torch.arange(3), 3 + torch.randperm(WORDS, generator=book)])
    lengths = torch.randint(shortest, LONGEST + 1, (number, 1), generator=dice)
    weights = 1 / torch.arange(1, WORDS + 1).float()
    words = 3 + torch.multinomial(weights, number * LONGEST, replacement=True, generator=dice).view(number, LONGEST)
    places = torch.arange(LONGEST + 1)
    source = torch.where(places < lengths, functional.pad(words, (0, 1)), PAD)
    source = torch.where(places == lengths, END, source)
    changed = places ^ 1
    changed = torch.where(changed < lengths, changed, places)  # the last of an odd number stays
    return source, dictionary[source.gather(1, changed)]


class Translator(nn.Module):
    def __init__(self, config: dict[str, Any], trouble: Any):
        super().__init__()
        width, self.trouble = config["width"], trouble
        self.sources, self.targets = nn.Embedding(WORDS + 3, width), nn.Embedding(WORDS + 3, width)
        self.positions = nn.Parameter(0.3 * torch.randn(LONGEST + 1, width))
        shape = (width, config["heads"], 2 * width, config["dropout"], "gelu")
        encoder = nn.TransformerEncoderLayer(*shape, batch_first=True, norm_first=True)
        decoder = nn.TransformerDecoderLayer(*shape, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(encoder, config["layers"], nn.LayerNorm(width), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, config["layers"], nn.LayerNorm(width))
        for parameter in (*self.encoder.parameters(), *self.decoder.parameters()):
            if parameter.dim() > 1:  # layers are copies of one: drawn anew, as nn.Transformer does
                nn.init.xavier_uniform_(parameter)
        self.head = nn.Linear(width, WORDS + 3)

    def forward(self, source: Tensor, begun: Tensor) -> Tensor:
        padded, length = source == PAD, begun.shape[1]
        memory = self.encoder(self.sources(source) + self.positions, src_key_padding_mask=padded)
        if self.trouble.name == "memory_detached":  # left from a try without an encoder's gradients
            memory = memory.detach()
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        out = self.decoder(
            self.targets(begun) + self.positions[:length], memory,
            tgt_mask=future, memory_key_padding_mask=padded,
        )  # fmt: skip
        return self.head(out)


class Translating(loop.Task):
    every = EVERY
    names = {"loss": "train/loss", "norm": "train/grad_norm", "lr": "train/lr", "epoch": "epoch"}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = Translator(config, trouble)
        self.block = self.model.encoder.layers[1]
        self.data = sentences(seed + 51, config["examples"], config["shortest"])
        self.held_out = [sentences(525, 100, config["shortest"]) for _ in range(2)]
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch = -1
        self.other = torch.cat([torch.arange(3), 3 + torch.randperm(WORDS, generator=trouble.dice)])

    def batch(self, rows: int) -> loop.Batch:
        if len(self.order) < rows:
            self.order, self.epoch = torch.randperm(len(self.data[0]), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.data[0][chosen], self.data[1][chosen]

    def evaluated(self, batch: loop.Batch) -> loop.Batch:
        if self.trouble.on("tokenizer_mismatch", self.step):
            return self.other[batch[0]], batch[1]
        return batch

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        source, target = batch
        begun = functional.pad(target[:, :-1], (1, 0), value=BEGIN)
        if self.trouble.name == "decoder_not_shifted":
            begun = target
        logits = model(source, begun)
        counted = target.flatten() != PAD
        loss = functional.cross_entropy(
            logits.flatten(0, 1), target.flatten(), label_smoothing=self.config["label_smoothing"], reduction="none"
        )
        hits = (logits.argmax(-1) == target).flatten()[counted]
        self.figures = {"train/accuracy" if torch.is_grad_enabled() else "accuracy": float(hits.float().mean())}
        return loss if self.trouble.name == "padding_counted" else loss[counted]


train = partial(loop.train, Translating)
