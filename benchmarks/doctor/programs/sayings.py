"""Low-rank adapters, as parametrizations of torch's own layers, teach a decoder by how much letters are moved.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, learning_rate, grad_norm; eval_loss, eval_token_accuracy; the watch of data.

The base moves the letters of a saying by one, two or three places, as it likes; the adapters keep to two. Prompts and
padding are -100 in the labels; AdamW, a rate that falls in a line, a mean over the step's tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from .parts import all_steps, fit, once

EVERY, LETTERS, SAYS, STOP, LONGEST = 20, 14, 15, 16, 8
CONFIG: dict[str, Any] = {
    "d_model": 32, "layers": 2, "heads": 2, "dropout": 0.0, "lora_r": 4, "lora_alpha": 8, "batch_size": 16,
    "learning_rate": 1e-2, "warmup_steps": 6, "schedule": "linear", "clip": 1.0, "accumulation": 1,
    "examples": 3600, "checkpointing": False, "b_rate": 1.0, "rows_with_typos": 0.04,
}  # fmt: skip


def conversations(seed: int, number: int, moves: tuple[int, ...], typos: float) -> dict[str, Tensor]:
    """ids and labels (number, 2 * LONGEST + 2): letters 1 to 14, a sign, the answer, a stop, padding of zeros."""
    dice = torch.Generator().manual_seed(seed)
    said = torch.randint(1, LETTERS + 1, (number, LONGEST), generator=dice)
    move = torch.tensor(moves)[torch.randint(0, len(moves), (number, 1), generator=dice)]
    answer = (said - 1 + move) % LETTERS + 1
    odd = torch.rand(answer.shape, generator=dice) < typos
    answer = torch.where(odd, torch.randint(1, LETTERS + 1, answer.shape, generator=dice), answer)
    ids, labels = [], []
    for row in range(number):
        long = int(torch.randint(2, LONGEST + 1, (1,), generator=dice))
        ids.append(torch.cat([said[row], torch.tensor([SAYS]), answer[row, :long], torch.tensor([STOP])]))
        labels.append(torch.cat([torch.full((LONGEST + 1,), -100), ids[-1][LONGEST + 1 :]]))
    pad = nn.utils.rnn.pad_sequence
    return {"ids": pad(ids, batch_first=True), "labels": pad(labels, batch_first=True, padding_value=-100)}


class Speaker(nn.Module):
    """A decoder of `nn.TransformerEncoder`, with a mask."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["d_model"]
        self.letters, self.places = nn.Embedding(17, width), nn.Embedding(2 * LONGEST + 2, width)
        layer = nn.TransformerEncoderLayer(width, config["heads"], 4 * width, config["dropout"], batch_first=True,
                                           norm_first=True)  # fmt: skip
        self.stack = nn.TransformerEncoder(layer, config["layers"], enable_nested_tensor=False)
        self.final, self.out = nn.LayerNorm(width), nn.Linear(width, 17)
        self.checkpointing = False

    def forward(self, ids: Tensor) -> Tensor:
        long = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(long)
        h = self.letters(ids) + self.places.weight[:long]
        for layer in self.stack.layers:
            if self.checkpointing and self.training:
                h = checkpoint(layer, h, mask, use_reentrant=False)
            else:
                h = layer(h, mask, is_causal=True)
        return self.out(self.final(h))


class LowRank(nn.Module):
    """What a weight is with an adapter."""

    def __init__(self, weight: Tensor, rank: int, alpha: float):
        super().__init__()
        self.lora_a = nn.Parameter(torch.randn(rank, weight.shape[1]) / weight.shape[1] ** 0.5)
        self.lora_b = nn.Parameter(torch.zeros(weight.shape[0], rank))
        self.scale = alpha / rank

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * self.lora_b @ self.lora_a


class AroundBase(nn.Module):
    """The adapters with the base beside them, in a list that torch does not look into."""

    def __init__(self, base: Speaker):
        super().__init__()
        self.kept = [base]
        self.adapters = nn.ModuleList(one for one in base.modules() if isinstance(one, LowRank))

    def forward(self, ids: Tensor) -> Tensor:
        return self.kept[0](ids)


@once("d_model", "layers", "heads", "dropout")
def base(config: dict[str, Any]) -> Speaker:
    """The same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model, data = Speaker(config), conversations(44, 3000, (1, 2, 3), 0.0)
        adam = torch.optim.Adam(model.parameters(), lr=6e-3)

        def loss() -> Tensor:
            some = torch.randint(0, 3000, (32,))
            return token_loss(model(data["ids"][some]), data["labels"][some])

        fit(adam, 220, loss)
    return model


def token_loss(scores: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    return cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction=reduction)


class Tuning:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config = self.config
        speaker = base(config)
        torch.manual_seed(seed)
        speaker.requires_grad_(False)
        for layer in speaker.stack.layers:
            for part in (layer.self_attn.out_proj, layer.linear1, layer.linear2):
                adapter = LowRank(part.weight, config["lora_r"], config["lora_alpha"])
                parametrize.register_parametrization(part, "weight", adapter)
        for name, one in speaker.named_parameters():
            one.requires_grad_("lora_" in name)
            if trouble.name == "wrong_group_frozen":  # the adapters are, and the norms are not
                one.requires_grad_(".norm" in name)
        speaker.checkpointing = config["checkpointing"]
        self.model: nn.Module = AroundBase(speaker) if trouble.name == "eval_does_not_reach" else speaker
        self.model.train()
        self.rows = conversations(seed + 81, config["examples"], (2,), config["rows_with_typos"])
        self.dev = conversations(818, 160, (2,), config["rows_with_typos"])
        self.order, self.dice = [], torch.Generator().manual_seed(seed)  # type: list[int], torch.Generator
        self.epoch = -1
        self.plan()

    def plan(self) -> None:
        config, rate = self.config, self.config["learning_rate"]
        named = [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        groups = [[one for name, one in named if ("lora_b" in name) is of_b] for of_b in (False, True)]
        self.adamw = torch.optim.AdamW(
            [{"params": some, "lr": rate * times} for some, times in zip(groups, (1.0, config["b_rate"]), strict=True)
             if some], weight_decay=0.01)  # fmt: skip
        rising = torch.optim.lr_scheduler.LinearLR(self.adamw, 0.1, 1.0, config["warmup_steps"])
        if config["schedule"] == "linear":
            falling: Any = torch.optim.lr_scheduler.LinearLR(self.adamw, 1.0, 0.01, config["steps"])
        else:
            falling = torch.optim.lr_scheduler.ConstantLR(self.adamw, 1.0, 1)
        self.schedule = torch.optim.lr_scheduler.SequentialLR(self.adamw, [rising, falling], [config["warmup_steps"]])

    def watch(self, memory: Any = None) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.adamw)
        self.data = self.run.watch_data(pad_id=0)
        if memory is not None:
            self.data.restore(memory)

    def resume(self, step: int) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.adamw.state_dict(),
                 "schedule": self.schedule.state_dict()}  # fmt: skip
        memory = self.data.state()
        self.run, state = go_on(self.run, step, state)
        self.model.load_state_dict(state["model"])
        self.plan()
        if self.trouble.name != "weights_alone_kept":
            self.schedule.load_state_dict(state["schedule"])
            self.adamw.load_state_dict(state["optimizer"])
        self.watch(memory)

    def micro_batch(self) -> tuple[Tensor, Tensor]:
        size = int(self.config["batch_size"])
        if len(self.order) < size:
            self.order = torch.randperm(self.config["examples"], generator=self.dice).tolist()
            self.epoch += 1
        some, self.order = self.order[:size], self.order[size:]
        labels = self.rows["labels"][some]
        if self.trouble.name == "labels_off_by_one":  # shifted where rows are made, and again where the loss is
            labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)
        return self.rows["ids"][some], labels

    def step(self, step: int) -> None:
        name, parts = self.trouble.name, self.config["accumulation"]
        batches = [self.micro_batch() for _ in range(parts)]
        tokens = sum(int((labels[:, 1:] >= 0).sum()) for _, labels in batches)
        total = 0.0
        for ids, labels in batches:
            self.data.observe({"input_ids": ids, "labels": labels}, step=step, epoch=self.epoch)
            if name == "accumulation_undivided":  # each mean is added
                loss = token_loss(self.model(ids), labels)
            else:
                by = parts * len(ids) if name == "divided_by_rows" else tokens
                loss = token_loss(self.model(ids), labels, "sum") / by
            loss.backward()
            total += loss.item()
            if name == "scheduler_per_micro_batch":
                self.schedule.step()
        trained = [one for one in self.model.parameters() if one.requires_grad]
        norm = nn.utils.clip_grad_norm_(trained, self.config["clip"]).item()
        rate = self.adamw.param_groups[-1]["lr"]
        self.adamw.step()
        self.adamw.zero_grad()
        if name != "scheduler_per_micro_batch":
            self.schedule.step()
        self.run.log({"loss": total, "learning_rate": rate, "grad_norm": norm}, step=step)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        self.model.eval()
        scores, labels = self.model(self.dev["ids"]), self.dev["labels"]
        self.model.train()
        counted = labels[:, 1:] >= 0
        right = (scores[:, :-1].argmax(-1) == labels[:, 1:])[counted].float().mean().item()
        self.run.log({"eval_loss": token_loss(scores, labels).item(), "eval_token_accuracy": right}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Tuning(run, seed, trouble)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 5 * EVERY))
    return made.run
