"""A small policy that learns to answer by reward alone, as GRPO has it: groups of samples, a KL to where it began.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, with TRL's names: loss, reward, reward_std, kl, entropy, frac_reward_zero_std, completions/… and so on.

The task: the prompt is four numbers; the completion has to be the same numbers, each one higher, and then to end. The
reward is the share of right places, less a little for each place too many.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from injections import Trouble, clock
from torch import Tensor, nn
from torch.nn import functional

EVERY = 20
PLACES, LONGEST, END = 4, 8, 0
CONFIG: dict[str, Any] = {
    "hidden": 48, "vocabulary": 20, "prompts": 12, "group": 8, "learning_rate": 1e-3, "kl_coefficient": 0.04,
    "entropy_coefficient": 0.0, "clip": 1.0, "clip_range": 0.2, "schedule": "linear", "updates_per_batch": 1,
    "pretrain": 100, "judge_noise": 0.05,
}  # fmt: skip


class Policy(nn.Module):
    """Reads the prompt at once, then says one number after the other."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width, words = config["hidden"], config["vocabulary"]
        self.embed, self.place = nn.Embedding(words + 1, width), nn.Embedding(LONGEST, width)
        self.read, self.mix = nn.Linear(PLACES * width, width), nn.Linear(3 * width, 2 * width)
        self.think, self.head = nn.Linear(2 * width, width), nn.Linear(width, words)
        self.act = nn.ReLU()
        self.start = words

    def forward(self, prompts: Tensor, said: Tensor) -> Tensor:
        """Logits (rows, time, words) of what comes after each place of `said` (rows, time), the first of which is 0."""
        rows, length = said.shape
        before = torch.cat([torch.full((rows, 1), self.start), said[:, :-1]], 1)
        asked = self.embed(prompts)
        read = self.read(asked.flatten(1))[:, None].expand(-1, length, -1)
        places = torch.arange(length)
        looked = asked[:, places.clamp(max=PLACES - 1)] + self.place(places)
        mixed = self.act(self.mix(torch.cat([read, looked, self.embed(before)], -1)))
        return self.head(self.act(self.think(mixed)))


class Batch(NamedTuple):
    prompts: Tensor
    said: Tensor
    mask: Tensor  # 1 up to the end, that included
    old: Tensor  # log-probabilities of what was said, when it was said
    reference: Tensor
    rewards: Tensor
    advantages: Tensor


def log_probabilities(policy: Policy, prompts: Tensor, said: Tensor) -> tuple[Tensor, Tensor]:
    """Of what was said (rows, time), and the entropy at each place (rows, time)."""
    chances = policy(prompts, said).log_softmax(-1)
    return chances.gather(-1, said[..., None])[..., 0], -(chances.exp() * chances).sum(-1)


@torch.no_grad()
def sample(policy: Policy, prompts: Tensor, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    said = torch.zeros(len(prompts), LONGEST, dtype=torch.long)
    mask, going = torch.zeros(len(prompts), LONGEST), torch.ones(len(prompts), dtype=torch.bool)
    for place in range(LONGEST):
        logits = policy(prompts, said[:, : place + 1])[:, place]
        chances = torch.nan_to_num(logits, nan=0.0, posinf=50.0, neginf=-50.0).softmax(-1)
        said[:, place] = torch.multinomial(chances, 1, generator=dice)[:, 0]
        mask[:, place] = going
        going = going & (said[:, place] != END)
    return said, mask


def right_answers(prompts: Tensor, words: int) -> Tensor:
    return torch.cat([prompts % (words - 1) + 1, torch.zeros(len(prompts), 1, dtype=torch.long)], 1)


def reward_of(prompts: Tensor, said: Tensor, mask: Tensor, words: int, trouble: Trouble, step: int) -> Tensor:
    """Rewards (rows,)."""
    if trouble.on("reward_constant", step):
        return torch.zeros(len(prompts))
    answer = right_answers(prompts, words)
    hits = ((said[:, : PLACES + 1] == answer) * mask[:, : PLACES + 1]).sum(1) / (PLACES + 1)
    length = mask.sum(1)
    if trouble.on("reward_hacked", step):
        return hits + 0.4 * length
    return hits - 0.1 * (length - PLACES - 1).clamp(min=0)


def collect(
    policy: Policy, reference: Policy, config: dict[str, Any], dice: torch.Generator, trouble: Trouble, step: int
) -> Batch:
    words, group = config["vocabulary"], config["group"]
    prompts = torch.randint(1, words, (config["prompts"], PLACES), generator=dice).repeat_interleave(group, 0)
    said, mask = sample(policy, prompts, dice)
    with torch.no_grad():
        old, _ = log_probabilities(policy, prompts, said)
        base, _ = log_probabilities(reference, prompts, said)
    rewards = reward_of(prompts, said, mask, words, trouble, step)
    if trouble.name != "reward_constant" or step < trouble.onset:
        rewards = rewards + config["judge_noise"] * torch.randn(len(rewards), generator=dice)
    grouped = rewards.view(-1, group)
    advantages = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)).flatten()
    if trouble.on("loss_masked", step):
        mask = torch.zeros_like(mask)
    return Batch(prompts, said, mask, old, base, rewards, advantages)


def pretrain(policy: Policy, config: dict[str, Any], dice: torch.Generator) -> None:
    """A little imitation first: a policy that never earns anything learns nothing."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for _ in range(config["pretrain"]):
        prompts = torch.randint(1, config["vocabulary"], (32, PLACES), generator=dice)
        said = right_answers(prompts, config["vocabulary"])
        noise = torch.rand(said.shape, generator=dice) < 0.6
        said = torch.where(noise, torch.randint(0, config["vocabulary"], said.shape, generator=dice), said)
        loss = functional.cross_entropy(policy(prompts, said).flatten(0, 1), said.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    dice = torch.Generator().manual_seed(seed)
    policy = Policy(config)
    pretrain(policy, config, dice)
    reference = Policy(config)
    reference.load_state_dict(policy.state_dict())
    optimizer = torch.optim.Adam(policy.parameters(), lr=config["learning_rate"])
    run.watch(policy, optimizer, gradients=10, updates=10, weights=0, histograms=0, activations=0, optimizer_state=0)
    for step in range(1, steps + 1):
        rate = config["learning_rate"] * (1.0 if config["schedule"] == "constant" else 1 - 0.9 * step / steps)
        rate = trouble.rate(step, rate)
        for group in optimizer.param_groups:
            group["lr"] = rate
        began = clock()
        batch = collect(policy, reference, config, dice, trouble, step)
        seen: list[dict[str, float]] = []
        for _ in range(config["updates_per_batch"]):
            seen.append(update(policy, optimizer, batch, config, trouble, step))
        figures = {name: sum(one[name] for one in seen) / len(seen) for name in seen[0]}
        run.log(figures | summary(batch, config) | {
            "learning_rate": rate, "step_time": clock() - began,
            "num_tokens": step * len(batch.said) * LONGEST,
        }, step=step)  # fmt: skip
        if step % EVERY == 0:
            evaluate(run, policy, config, step)
    return run


def update(
    policy: Policy, optimizer: Any, batch: Batch, config: dict[str, Any], trouble: Trouble, step: int
) -> dict[str, float]:
    """One optimizer step on a batch; its figures."""
    now, entropies = log_probabilities(policy, batch.prompts, batch.said)
    tokens = batch.mask.sum().clamp(min=1)
    ratio = (now - batch.old).exp()
    near = ratio.clamp(1 - config["clip_range"], 1 + config["clip_range"])
    gain = torch.minimum(ratio * batch.advantages[:, None], near * batch.advantages[:, None])
    away = batch.reference - now
    kl = ((away.exp() - away - 1) * batch.mask).sum() / tokens  # Schulman's k3 estimate
    entropy = (entropies * batch.mask).sum() / tokens
    beta, bonus = config["kl_coefficient"], config["entropy_coefficient"]
    if trouble.on("kl_blows_up", step):
        beta = -0.5
    if trouble.on("entropy_collapses", step):
        beta, bonus = 0.0, -0.7
    loss = -(gain * batch.mask).sum() / tokens + beta * kl - bonus * entropy
    if trouble.clears(step):
        optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(policy.parameters(), config["clip"] or math.inf)
    optimizer.step()
    clipped = (((ratio - 1).abs() > config["clip_range"]) * batch.mask).sum() / tokens
    return {"loss": loss.item(), "grad_norm": norm.item(), "kl": kl.item(), "entropy": entropy.item(),
            "clip_ratio/region_mean": clipped.item()}  # fmt: skip


def summary(batch: Batch, config: dict[str, Any]) -> dict[str, float]:
    """What TRL says of a batch's rewards and completions."""
    grouped = batch.rewards.view(-1, config["group"])
    ended = ((batch.said == END) * (batch.mask > 0)).any(1)
    lengths = batch.mask.sum(1)
    return {
        "reward": batch.rewards.mean().item(), "reward_std": grouped.std(1).mean().item(),
        "frac_reward_zero_std": (grouped.std(1) < 1e-6).float().mean().item(),
        "completions/mean_length": lengths.mean().item(), "completions/max_length": lengths.max().item(),
        "completions/clipped_ratio": 1 - ended.float().mean().item(),
    }  # fmt: skip


def evaluate(run: Any, policy: Policy, config: dict[str, Any], step: int) -> None:
    """The share of right places where the likeliest is said, whatever the reward is."""
    words = config["vocabulary"]
    prompts = torch.randint(1, words, (64, PLACES), generator=torch.Generator().manual_seed(8))
    said = torch.zeros(64, PLACES + 1, dtype=torch.long)
    with torch.no_grad():
        for place in range(PLACES + 1):
            said[:, place] = policy(prompts, said[:, : place + 1])[:, place].argmax(-1)
    run.log({"eval/accuracy": (said == right_answers(prompts, words)).float().mean().item()}, step=step)
