"""Soft actor-critic: a network learns which force keeps a pole upright that falls by itself.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/episode_reward, train/critic_loss, train/actor_loss, train/alpha, train/entropy,
      train/q, train/lr; the watch of actor and critics.

Eight poles at once; 1 for each move that a pole still stands, 40 moves at most. A pole that falls is an end, the 40th
move is none. A step of the run is four moves of all poles and three updates.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, MOST, FORCE, POLES = 20, 40, 4.0, 8
CONFIG: dict[str, Any] = {
    "width": 32, "moves": 4, "updates": 3, "batch_size": 64, "memory": 8000, "learning_rate": 3e-3, "gamma": 0.97,
    "tau": 0.02, "alpha": "auto", "target_entropy": -1.0, "sensor_noise": 0.0, "push": 0.3, "explore_steps": 15,
}  # fmt: skip


class Poles:
    """Angle and speed of each pole."""

    def __init__(self, seed: int, config: dict[str, Any]):
        self.dice, self.config = torch.Generator().manual_seed(seed), config
        self.state, self.moved, self.earned = torch.zeros(POLES, 2), torch.zeros(POLES), torch.zeros(POLES)
        self.begin(torch.ones(POLES, dtype=torch.bool))

    def begin(self, which: Tensor) -> None:
        self.state[which] = 0.6 * torch.rand(int(which.sum()), 2, generator=self.dice) - 0.3
        self.moved[which], self.earned[which] = 0, 0

    def seen(self) -> Tensor:
        return self.state + self.config["sensor_noise"] * torch.randn(POLES, 2, generator=self.dice)

    def move(self, force: Tensor) -> tuple[Tensor, Tensor]:
        """Which poles fell, and which have stood to the last move."""
        angle, speed = self.state.unbind(1)
        pushed = self.config["push"] * torch.randn(POLES, generator=self.dice)
        speed = speed + 0.15 * (6 * angle.sin() + force.clamp(-FORCE, FORCE) + pushed)
        self.state, self.moved = torch.stack([angle + 0.15 * speed, speed], 1), self.moved + 1
        fell = ~(self.state[:, 0].abs() <= 1)
        return fell, (self.moved >= MOST) & ~fell


class Actor(nn.Module):
    def __init__(self, width: int, name: str):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mean, self.log_std, self.mistake = nn.Linear(width, 1), nn.Linear(width, 1), name

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """An action between -1 and 1 and its log-probability."""
        hidden = self.net(seen)
        mean, log_std = self.mean(hidden), self.log_std(hidden).clamp(-5, 2)
        raw = mean + log_std.exp() * torch.randn_like(mean)
        likely = -0.5 * ((raw - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
        if self.mistake != "log_prob_uncorrected":  # for what the tanh does
            likely = likely - 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
        return raw.tanh()[:, 0], likely[:, 0]


class Critics(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
            for _ in range(2)
        )

    def forward(self, seen: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([seen, action[:, None]], 1)
        return self.nets[0](both)[:, 0], self.nets[1](both)[:, 0]


class Training:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config, rate = self.config, self.config["learning_rate"]
        self.actor, self.critics = Actor(config["width"], trouble.name), Critics(config["width"])
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=rate)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=rate)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=rate)
        self.poles, self.dice = Poles(seed + 5, config), torch.Generator().manual_seed(seed)
        self.memory: list[Tensor] = []
        self.returns = [5.0]

    @property
    def alpha(self) -> Tensor:
        given = self.config["alpha"]
        return self.log_alpha.detach().exp() if given == "auto" else torch.tensor(float(given))

    @torch.no_grad()
    def play(self, step: int) -> None:
        for _ in range(self.config["moves"]):
            seen = self.poles.seen()
            action = self.actor(seen)[0]
            if step < self.config["explore_steps"]:
                action = 2 * torch.rand(POLES, generator=self.dice) - 1
            force = action if self.trouble.name == "actions_not_scaled" else FORCE * action
            fell, stood = self.poles.move(force)
            reward = torch.ones(POLES)
            if self.trouble.on("reward_constant", step):
                reward = torch.zeros(POLES)
            rows = torch.cat([seen, action[:, None], reward[:, None], self.poles.seen(), fell.float()[:, None]], 1)
            self.memory = [*self.memory, rows][-self.config["memory"] // POLES :]
            self.poles.earned += reward
            self.returns = (self.returns + self.poles.earned[fell | stood].tolist())[-60:]
            self.poles.begin(fell | stood)

    def update(self, memory: Tensor) -> list[float]:
        """One update of critics, actor and temperature."""
        config, name = self.config, self.trouble.name
        chosen = torch.randint(0, len(memory), (int(config["batch_size"]),), generator=self.dice)
        seen, action, reward, following, over = memory[chosen].split([2, 1, 1, 2, 1], 1)
        with torch.no_grad():
            next_action, next_likely = self.actor(following)
            ahead = torch.min(*self.target(following, next_action)) - self.alpha * next_likely
            going_on = 1.0 if name == "ends_not_masked" else 1 - over[:, 0]
            wanted = reward[:, 0] + config["gamma"] * going_on * ahead
        one, other = self.critics(seen, action[:, 0])
        critic_loss = functional.mse_loss(one, wanted) + functional.mse_loss(other, wanted)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        own, likely = self.actor(seen)
        value = torch.min(*self.critics(seen, own))
        actor_loss = (self.alpha * likely + (value if name == "value_minimised" else -value)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        missing = (likely.detach() + config["target_entropy"]).mean()
        alpha_loss = self.log_alpha * missing if name == "temperature_reversed" else -self.log_alpha * missing
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()
        if name != "target_never_copied":
            with torch.no_grad():
                for old, new in zip(self.target.parameters(), self.critics.parameters(), strict=True):
                    old.lerp_(new, config["tau"])
        return [critic_loss.item(), actor_loss.item(), -likely.detach().mean().item(), one.detach().mean().item()]

    def one(self, step: int) -> None:
        rate = self.trouble.rate(step, self.config["learning_rate"])
        self.play(step)
        memory = torch.cat(self.memory)
        figures = torch.tensor([self.update(memory) for _ in range(self.config["updates"])]).mean(0).tolist()
        names = ("train/critic_loss", "train/actor_loss", "train/entropy", "train/q")
        self.run.log({"train/episode_reward": sum(self.returns) / len(self.returns), "train/alpha": self.alpha.item(),
                      "train/lr": rate, **dict(zip(names, figures, strict=True))}, step=step)  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Training(run, seed, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch([made.actor, made.critics], [made.actor_optimizer, made.critic_optimizer])
    for step in range(steps):
        made.one(step)
    return run
