"""Which alarm a log of events is: four in five are none, three in a hundred of the rarest kind.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: xent, acc, lr of each step; dev_xent, dev_acc, dev_f1 after each half epoch.

Convolutions with batch norm over codes, attention pooling, a head that is two tensors; batches are dicts that a
collator pads. AdamW, a rate that falls in stairs after each epoch.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

EVERY, CODES, LONGEST, KINDS = 25, 50, 36, 4
SHARES = torch.tensor([0.79, 0.11, 0.07, 0.03])
CONFIG: dict[str, Any] = {
    "width": 28, "dropout": 0.1, "batch_size": 24, "learning_rate": 3e-3, "weight_decay": 1e-4, "gamma": 0.6,
    "schedule": "stairs", "class_weights": "root", "balanced": False, "wrong_labels": 0.0, "norm_momentum": 0.1,
}  # fmt: skip
Example = dict[str, Any]


def examples(seed: int, number: int, wrong: float = 0.0) -> list[Example]:
    """Codes and kind: kinds but the first have two codes of their own, with one between."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.multinomial(SHARES, number, replacement=True, generator=dice)
    lengths = torch.randint(8, LONGEST + 1, (number,), generator=dice)
    made = []
    for kind, length in zip(kinds.tolist(), lengths.tolist(), strict=True):
        codes = torch.randint(1, CODES, (length,), generator=dice)
        if kind:
            place = int(torch.randint(0, length - 2, (), generator=dice))
            codes[place], codes[place + 2] = 3 * kind, 3 * kind + 1
        said = kind if float(torch.rand((), generator=dice)) >= wrong else int(torch.randint(0, KINDS, (1,)))
        made.append({"codes": codes, "kind": said})
    return made


def padded(some: list[Example]) -> dict[str, Tensor]:
    codes = nn.utils.rnn.pad_sequence([one["codes"] for one in some], batch_first=True)
    return {"codes": codes, "mask": codes > 0, "kind": torch.tensor([one["kind"] for one in some])}


class Reader(nn.Module):
    def __init__(self, config: dict[str, Any], kinds: int):
        super().__init__()
        width = config["width"]
        self.embed = nn.Embedding(CODES, width, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width, momentum=config["norm_momentum"]) for _ in range(2))
        self.ask, self.drop = nn.Linear(width, 1), nn.Dropout(config["dropout"])
        self.prototypes = nn.Parameter(torch.randn(kinds, width) / width**0.5)
        self.offsets = nn.Parameter(torch.zeros(kinds))

    def forward(self, codes: Tensor, mask: Tensor) -> Tensor:
        x = self.embed(codes).transpose(1, 2)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + functional.relu(norm(conv(x))) * mask[:, None]
        x = x.transpose(1, 2)
        weight = self.ask(x)[..., 0].masked_fill(~mask, -1e4).softmax(1)
        said = self.drop((weight[..., None] * x).sum(1))
        return functional.linear(said, self.prototypes, self.offsets)


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config, name = self.config, trouble.name
        if name == "stale_statistics":
            config["norm_momentum"] = 0.0
        rows = int(config["batch_size"])
        data, self.seed = examples(seed + 81, 2 * EVERY * rows, config["wrong_labels"]), seed
        self.counts = torch.bincount(torch.tensor([one["kind"] for one in data]), minlength=KINDS).float()
        if name == "kinds_from_one":
            data = [one | {"kind": one["kind"] + 1} for one in data]
        self.dev = examples(818, 400)
        self.loader = self.loaded(data, rows)
        self.model = Reader(config, KINDS + (name == "kinds_from_one"))
        weights = {"none": torch.ones(KINDS), "root": self.counts.rsqrt(), "inverse": 1 / self.counts}[
            config["class_weights"]
        ]
        weights = KINDS * weights / weights.sum()
        self.weights = torch.cat([torch.ones(1), weights]) if name == "kinds_from_one" else weights
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config["learning_rate"],
                                           weight_decay=config["weight_decay"])  # fmt: skip
        gamma = 1.0 if config["schedule"] == "constant" else config["gamma"]
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma)

    def loaded(self, data: list[Example], rows: int) -> Any:
        dice = torch.Generator().manual_seed(self.seed)
        if self.trouble.name == "data_by_length":
            return DataLoader(sorted(data, key=lambda one: len(one["codes"])), rows, collate_fn=padded)  # type: ignore[arg-type]
        if self.config["balanced"]:
            each = 1 / self.counts[torch.tensor([one["kind"] for one in data])]
            sampler = torch.utils.data.WeightedRandomSampler(each.tolist(), len(data), generator=dice)
            return DataLoader(data, rows, sampler=sampler, collate_fn=padded)  # type: ignore[arg-type]
        return DataLoader(data, rows, shuffle=True, collate_fn=padded, generator=dice)  # type: ignore[arg-type]

    def loss(self, scores: Tensor, kinds: Tensor, training: bool = True) -> Tensor:
        name = self.trouble.name
        if training and name == "first_kind_ignored":  # the number of the padding
            return functional.cross_entropy(scores, kinds, self.weights, ignore_index=0)
        reduction = "sum" if training and name == "loss_summed" else "mean"
        return functional.cross_entropy(scores, kinds, self.weights, reduction=reduction)

    def step(self, step: int, batch: dict[str, Tensor]) -> None:
        if self.trouble.on("validation_leak", step):
            some = torch.randint(0, len(self.dev), (len(batch["kind"]),), generator=self.trouble.dice)
            batch = padded([self.dev[one] for one in some.tolist()])
        self.watched.observe({"input_ids": batch["codes"], "attention_mask": batch["mask"].long(),
                              "labels": batch["kind"][:, None]}, step=step)  # fmt: skip
        scores = self.model(batch["codes"], batch["mask"])
        loss = self.loss(scores, batch["kind"])
        self.optimizer.zero_grad()
        loss.backward()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        if self.trouble.name == "stairs_each_batch":
            self.scheduler.step()
        right = (scores.argmax(1) == batch["kind"]).float().mean().item()
        self.run.log({"xent": loss.item(), "acc": right, "lr": rate}, step=step)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        self.model.eval()
        dev = padded(self.dev)
        scores, kinds = self.model(dev["codes"], dev["mask"]), dev["kind"]
        loss = self.loss(scores, kinds, training=False).item()
        self.model.train()
        said = scores.argmax(1)
        hits = torch.stack([((said == one) & (kinds == one)).sum() for one in range(KINDS)])
        sizes = [torch.bincount(some, minlength=KINDS)[:KINDS] for some in (said, kinds)]
        f1 = (2 * hits / (sizes[0] + sizes[1]).clamp(min=1)).mean().item()
        self.run.log({"dev_xent": loss, "dev_acc": (said == kinds).float().mean().item(), "dev_f1": f1}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made, step = Script(run, seed, Trouble(fault, seed)), 0
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    made.watched = run.watch_data()
    while step < steps:
        for batch in made.loader:
            if step < steps:
                made.step(step, batch)
                step += 1
                if step % EVERY == 0 or step == steps:
                    made.validate(step - 1)
        if made.trouble.name != "stairs_each_batch":
            made.scheduler.step()
    return run
