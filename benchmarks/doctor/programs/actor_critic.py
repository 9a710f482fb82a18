"""Proximal policy optimization: an actor and a critic with one trunk walk to a goal on a board, as CleanRL's do.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` at each update: charts/episodic_return, losses/policy_loss, losses/value_loss,
      losses/entropy, losses/approx_kl, losses/clipfrac, losses/explained_variance; the watch of the model.

An update is a rollout of all boards and several passes over it in minibatches. Nothing is evaluated apart.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn

EVERY, SIDE, LIMIT = 20, 6, 40
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
CONFIG: dict[str, Any] = {
    "width": 48, "boards": 16, "rollout": 32, "passes": 4, "minibatches": 4, "learning_rate": 2.5e-3, "gamma": 0.97,
    "trace": 0.95, "clip_ratio": 0.2, "value_coefficient": 0.5, "entropy_coefficient": 0.01, "clip": 0.5,
    "step_cost": 0.02, "one_goal": False, "weight_decay": 0.0, "schedule": "linear",
}  # fmt: skip


class Boards:
    """Many boards at once; a board that is done begins anew."""

    def __init__(self, number: int, seed: int, cost: float, one_goal: bool):
        self.dice, self.cost, self.one_goal = torch.Generator().manual_seed(seed), cost, one_goal
        self.place, self.goal = torch.zeros(number, 2, dtype=torch.long), torch.zeros(number, 2, dtype=torch.long)
        self.age, self.earned = torch.zeros(number), torch.zeros(number)
        self.begin(torch.ones(number, dtype=torch.bool))

    def begin(self, which: Tensor) -> None:
        number = int(which.sum())
        self.place[which] = torch.randint(0, SIDE, (number, 2), generator=self.dice)
        self.goal[which] = torch.randint(0, SIDE, (number, 2), generator=self.dice)
        if self.one_goal:
            self.goal[which] = torch.tensor([4, 1])
        self.age[which], self.earned[which] = 0.0, 0.0

    def seen(self) -> Tensor:
        places = torch.cat([self.place, self.goal], 1)
        return nn.functional.one_hot(places, SIDE).flatten(1).float()

    def move(self, actions: Tensor) -> tuple[Tensor, Tensor, list[float], list[float]]:
        """Rewards, which are done, and of these what they earned and how long they took."""
        self.place = (self.place + MOVES[actions]).clamp(0, SIDE - 1)
        there = (self.place == self.goal).all(1)
        reward = there.float() - self.cost
        self.age, self.earned = self.age + 1, self.earned + reward
        done = there | (self.age >= LIMIT)
        returns, lengths = self.earned[done].tolist(), self.age[done].tolist()
        self.begin(done)
        return reward, done.float(), returns, lengths


class Agent(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4 * SIDE, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, 4), nn.Linear(width, 1)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, 0.01 if module is self.actor else 1.4)
                nn.init.zeros_(module.bias)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.trunk(seen)
        return self.actor(hidden).log_softmax(-1), self.critic(hidden)[..., 0]


class Training:
    def __init__(self, run: Any, config: dict[str, Any], seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, config, trouble
        self.agent = Agent(config["width"])
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=config["learning_rate"], eps=1e-5)
        self.boards = Boards(config["boards"], seed + 3, config["step_cost"], config["one_goal"])
        self.dice = torch.Generator().manual_seed(seed)
        self.returns, self.lengths = [-LIMIT * config["step_cost"]], [float(LIMIT)]

    @torch.no_grad()
    def rollout(self, step: int) -> dict[str, Tensor]:
        """What was seen and done, with advantages and returns by generalised advantage estimation."""
        config, kept = self.config, []
        for _ in range(config["rollout"]):
            seen = self.boards.seen()
            likely, value = self.agent(seen)
            action = torch.multinomial(likely.exp(), 1, generator=self.dice)[:, 0]
            reward, done, returns, lengths = self.boards.move(action)
            self.returns, self.lengths = (self.returns + returns)[-60:], (self.lengths + lengths)[-60:]
            if self.trouble.on("reward_constant", step):
                reward = torch.zeros_like(reward)
            if self.trouble.on("rewards_unscaled", step):
                reward = 1000 * reward
            kept.append((seen, action, likely.gather(1, action[:, None])[:, 0], value, reward, done))
        seen, action, said, value, reward, done = (torch.stack(some) for some in zip(*kept, strict=True))
        following, ahead = self.agent(self.boards.seen())[1], torch.zeros(config["boards"])
        advantage = torch.zeros_like(value)
        for time in reversed(range(config["rollout"])):
            goes_on = 1 - done[time]
            delta = reward[time] + config["gamma"] * following * goes_on - value[time]
            advantage[time] = ahead = delta + config["gamma"] * config["trace"] * goes_on * ahead
            following = value[time]
        made = {"seen": seen, "action": action, "said": said, "value": value, "advantage": advantage,
                "returns": advantage + value, "reward": reward}  # fmt: skip
        return {name: one.flatten(0, 1) for name, one in made.items()}

    def learn(self, step: int, made: dict[str, Tensor]) -> dict[str, float]:
        """Several passes over a rollout; means of their figures."""
        config, trouble, figures = self.config, self.trouble, []
        rows = len(made["action"])
        for _ in range(config["passes"]):
            order = torch.randperm(rows, generator=self.dice)
            for some in order.chunk(config["minibatches"]):
                part = {name: one[some] for name, one in made.items()}
                likely, value = self.agent(part["seen"])
                said = likely.gather(1, part["action"][:, None])[:, 0]
                ratio = (said - (said if trouble.on("ratio_of_itself", step) else part["said"])).exp()
                gain = (part["advantage"] - part["advantage"].mean()) / (part["advantage"].std() + 1e-8)
                if trouble.on("advantage_reversed", step):
                    gain = -gain
                kept_near = ratio.clamp(1 - config["clip_ratio"], 1 + config["clip_ratio"])
                policy = -torch.min(gain * ratio, gain * kept_near).mean()
                worth = 0.5 * (value - part["returns"]).square().mean()
                entropy = -(likely.exp() * likely).sum(-1).mean()
                loss = policy + config["value_coefficient"] * worth - config["entropy_coefficient"] * entropy
                if trouble.clears(step):
                    self.optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(self.agent.parameters(), config["clip"])
                self.optimizer.step()
                figures.append([float(one.detach()) for one in (
                    policy, worth, entropy, (ratio - 1 - ratio.log()).mean(),
                    ((ratio - 1).abs() > config["clip_ratio"]).float().mean(), norm, loss)])  # fmt: skip
        names = ("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/approx_kl", "losses/clipfrac",
                 "grad_norm", "losses/total")  # fmt: skip
        return dict(zip(names, torch.tensor(figures).mean(0).tolist(), strict=True))


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run. A step of the run is an update."""
    trouble = Trouble(fault, seed)
    made = Training(run, dict(run.config), seed, trouble)
    trouble.spoil_model(made.agent)
    time_by_own_clock(run)
    run.watch(made.agent, made.optimizer)
    for step in range(steps):
        rate = made.config["learning_rate"]
        if made.config["schedule"] == "linear":
            rate *= 1 - step / steps
        made.optimizer.param_groups[0]["lr"] = rate = trouble.rate(step, rate)
        rollout = made.rollout(step)
        figures = made.learn(step, rollout)
        left = (rollout["returns"] - rollout["value"]).var() / rollout["returns"].var().clamp(min=1e-9)
        run.log(figures | {
            "losses/explained_variance": float(1 - left), "charts/learning_rate": rate,
            "charts/episodic_return": sum(made.returns) / len(made.returns),
            "charts/episodic_length": sum(made.lengths) / len(made.lengths),
            "charts/reward": float(rollout["reward"].mean()),
        }, step=step)  # fmt: skip
    return run
