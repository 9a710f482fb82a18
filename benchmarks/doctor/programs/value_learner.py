"""Deep Q-learning: a network learns what each move is worth in a game where a falling ball is to be caught.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` with the names of Stable-Baselines3: rollout/ep_rew_mean, rollout/exploration_rate,
      train/loss, train/learning_rate, train/q_mean; the watch of the network.

Many games at once, a memory of moves, a target network that is copied now and then. A step of the run is eight moves of
all games and four updates. Nothing is evaluated apart.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, ROWS, COLUMNS = 20, 8, 7
CONFIG: dict[str, Any] = {
    "width": 48, "games": 8, "moves": 8, "updates": 4, "batch_size": 64, "memory": 6000, "learning_rate": 1.5e-3,
    "gamma": 0.95, "copied_every": 10, "polyak": 0.0, "exploration_steps": 0.5, "exploration_last": 0.05, "clip": 10.0,
    "double": False, "wind": 0.0, "weight_decay": 0.0, "schedule": "constant",
}  # fmt: skip


class Games:
    """A ball falls from the top, a paddle moves at the bottom; 1 for a catch, -1 else."""

    def __init__(self, number: int, seed: int, wind: float):
        self.dice, self.wind = torch.Generator().manual_seed(seed), wind
        self.row, self.ball, self.paddle = (torch.zeros(number, dtype=torch.long) for _ in range(3))
        self.state = torch.zeros(number, 3 * ROWS)
        self.begin(torch.ones(number, dtype=torch.bool))

    def begin(self, which: Tensor) -> None:
        number = int(which.sum())
        self.row[which] = 0
        self.ball[which] = torch.randint(0, COLUMNS, (number,), generator=self.dice)
        self.paddle[which] = torch.randint(0, COLUMNS, (number,), generator=self.dice)

    def seen(self) -> Tensor:
        """What a player sees, in one array that is written over at each move."""
        places = torch.stack([self.row, self.ball, self.paddle], 1)
        self.state.copy_(functional.one_hot(places, ROWS).flatten(1))
        return self.state

    def move(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards, and which games are over."""
        blown = torch.rand(len(actions), generator=self.dice) < self.wind
        aside = torch.randint(-1, 2, (len(actions),), generator=self.dice)
        self.ball = (self.ball + torch.where(blown, aside, 0)).clamp(0, COLUMNS - 1)
        self.paddle = (self.paddle + actions - 1).clamp(0, COLUMNS - 1)
        self.row = self.row + 1
        over = self.row == ROWS - 1
        return torch.where(over, torch.where(self.ball == self.paddle, 1.0, -1.0), 0.0), over


class Memory:
    def __init__(self, size: int):
        self.size, self.kept = size, 0
        self.parts: list[Tensor] = []

    def add(self, *parts: Tensor) -> None:
        if not self.parts:
            self.parts = [torch.zeros(self.size, *part.shape[1:], dtype=part.dtype) for part in parts]
        places = (self.kept + torch.arange(len(parts[0]))) % self.size
        for mine, part in zip(self.parts, parts, strict=True):
            mine[places] = part
        self.kept += len(parts[0])

    def take(self, rows: int, dice: torch.Generator) -> list[Tensor]:
        chosen = torch.randint(0, min(self.kept, self.size), (rows,), generator=dice)
        return [part[chosen] for part in self.parts]


class Training:
    def __init__(self, run: Any, config: dict[str, Any], seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, config, trouble
        width = config["width"]
        self.network = nn.Sequential(
            nn.Linear(3 * ROWS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
        )
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=config["learning_rate"])
        if trouble.name == "optimizer_stale":
            self.network = copy.deepcopy(self.network)
        self.games, self.memory = Games(config["games"], seed + 5, config["wind"]), Memory(config["memory"])
        self.dice, self.returns = torch.Generator().manual_seed(seed), [-1.0]

    @torch.no_grad()
    def play(self, step: int, exploring: float) -> None:
        for _ in range(self.config["moves"]):
            seen = self.games.seen()
            if self.trouble.name != "next_state_alike":
                seen = seen.clone()
            chance = torch.rand(len(seen), generator=self.dice) < exploring
            wild = torch.randint(0, 3, (len(seen),), generator=self.dice)
            actions = torch.where(chance, wild, self.network(seen).argmax(1))
            reward, over = self.games.move(actions)
            self.games.begin(over)
            following = self.games.seen()
            if self.trouble.on("reward_constant", step):
                reward = torch.zeros_like(reward)
            self.memory.add(seen, actions, reward, following, over.float())
            self.returns = (self.returns + reward[over].tolist())[-100:]

    def learn(self, step: int) -> tuple[float, float, float]:
        """Updates from the memory: loss, mean value, norm."""
        trouble, config, figures = self.trouble, self.config, []
        for _ in range(config["updates"]):
            seen, actions, reward, following, over = self.memory.take(int(config["batch_size"]), self.dice)
            with torch.no_grad():
                ahead = self.target(following)
                if config["double"]:
                    best = ahead.gather(1, self.network(following).argmax(1, keepdim=True))[:, 0]
                else:
                    best = ahead.max(1).values
                wanted = reward + config["gamma"] * (1 - over) * best
            values = self.network(seen).gather(1, actions[:, None])[:, 0]
            loss = functional.smooth_l1_loss(values, wanted)
            if trouble.clears(step):
                self.optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.network.parameters(), config["clip"])
            self.optimizer.step()
            if config["polyak"]:
                for old, new in zip(self.target.parameters(), self.network.parameters(), strict=True):
                    old.lerp_(new.detach(), config["polyak"])
            figures.append([float(loss.detach()), float(values.detach().mean()), float(norm)])
        loss, value, norm = torch.tensor(figures).mean(0).tolist()
        return loss, value, norm


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    made = Training(run, config, seed, trouble)
    trouble.spoil_model(made.network)
    time_by_own_clock(run)
    run.watch(made.network, made.optimizer)
    for step in range(steps):
        rate = trouble.rate(step, config["learning_rate"])
        made.optimizer.param_groups[0]["lr"] = rate
        exploring = max(config["exploration_last"], 1 - step / (config["exploration_steps"] * steps))
        if trouble.name == "exploration_never_falls":  # the number of steps is never counted on
            exploring = 1.0
        made.play(step, exploring)
        loss, value, norm = made.learn(step)
        if not config["polyak"] and step % config["copied_every"] == 0 and trouble.name != "target_never_copied":
            made.target.load_state_dict(made.network.state_dict())
        run.log({"rollout/ep_rew_mean": sum(made.returns) / len(made.returns), "rollout/exploration_rate": exploring,
                 "train/loss": loss, "train/learning_rate": rate, "train/q_mean": value, "train/grad_norm": norm},
                step=step)  # fmt: skip
    return run
