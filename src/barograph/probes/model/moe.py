"""Router health of a mixture-of-experts model, from its routers' logits.

In:   logits (tokens, experts) and the chosen experts of each forward pass, by hooks on the routers.
Out:  for the model and for each layer: auxiliary loss, z-loss, loads, imbalance, entropy and the rest,
      over all micro-batches since the last step and, under torch.distributed, over all ranks.

A pass adds a few sums to one small tensor a layer, on the device; nothing waits for it and no activation
is kept. Numbers are read when `get_moe_stats` is called. docs/guides/moe.md has the formulas and their sources.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from barograph.probes.model.guest import CompiledGuest, after, apart
from barograph.probes.model.routers import Extract, Router, find_routers, read

if TYPE_CHECKING:
    from torch import Tensor, nn

_warnings = logging.getLogger("barograph")

# Weights of the losses in Surogate's sums: Switch Transformer section 2.2 (alpha), ST-MoE section 3 (c_z).
AUX_COEFFICIENT = 0.01
Z_COEFFICIENT = 0.001

# The sums at the end of a layer's accumulator, behind the loads and the probabilities of its experts.
SUMS = ("tokens", "non_finite", "squared_log_z", "entropy", "confidence", "choices", "dropped")


class MoEStats(TypedDict):
    """Surogate's router health. `valid` is False when no token has passed a router."""

    aux_loss: float
    z_loss: float
    expert_utilization: float
    load_imbalance: float
    valid: bool


def accumulate(
    logits: Tensor,
    top_k: int,
    *,
    chosen: Tensor | None = None,
    score: str = "softmax",
    capacity: int | None = None,
    capacity_factor: float | None = None,
) -> Tensor:
    """The additive sums of one pass: loads (experts), probabilities (experts), then `SUMS`.

    logits: (tokens, experts). chosen: (tokens, top_k) experts, if the router said them; otherwise the
    `top_k` highest logits. A choice outside 0…experts-1 was sent nowhere and counts as dropped.
    capacity: choices that one expert takes in a pass; or capacity_factor, of which it follows as
    ceil(factor × tokens × top_k / experts) (Switch Transformer equation 3). What is beyond it is dropped.
    A token with a NaN or a logit of +infinity is counted in `non_finite` and left out of the rest.
    Stays on the logits' device and never waits for it.
    """
    import torch

    tokens, experts = logits.shape
    wide = torch.float32 if logits.device.type == "mps" else torch.float64  # sums of counts stay exact
    with torch.no_grad(), torch.autocast(logits.device.type, enabled=False):
        logits = logits.detach().to(torch.promote_types(logits.dtype, torch.float32))
        if score == "sigmoid":  # DeepSeek-V3 equation 15, made to sum to 1 as in equation 19
            log_z = logits.logsumexp(-1)
            scores = torch.nn.functional.logsigmoid(logits)
            logs = scores - scores.logsumexp(-1, keepdim=True) + 0.0 * log_z.unsqueeze(-1)  # NaN where log Z is
        else:
            logs = logits.log_softmax(-1)
            log_z = logits.amax(-1) - logs.amax(-1)
        finite = log_z.isfinite()
        probabilities = logs.exp().nan_to_num_(0.0)  # all 0 in a row that is not finite
        lowest = torch.finfo(logs.dtype).min  # 0 × log 0 is 0, where an expert is masked by -infinity
        entropy = -(probabilities * logs.clamp_min_(lowest)).sum(-1)
        rows = torch.stack((log_z.square(), entropy, probabilities.amax(-1))).nan_to_num_(0.0)
        if chosen is None:
            chosen = logits.topk(min(top_k, experts), dim=-1).indices
        count = finite.to(wide)
        inside = (chosen >= 0) & (chosen < experts)
        slots = torch.where(inside, chosen, experts).to(torch.int64)
        loads = torch.zeros(experts + 1, dtype=wide, device=logits.device)
        loads.scatter_add_(0, slots.flatten(), count.unsqueeze(-1).expand(slots.shape).reshape(-1))
        loads, nowhere = loads[:experts], loads[experts:]
        limit = capacity
        if limit is None and capacity_factor is not None:
            limit = math.ceil(capacity_factor * tokens * chosen.shape[-1] / experts)
        beyond = (loads - limit).clamp_min(0).sum().view(1) if limit is not None else torch.zeros_like(nowhere)
        good = count.sum()
        return torch.cat(
            (
                loads,
                probabilities.sum(0).to(wide),
                torch.stack((good, tokens - good)),
                (rows * finite).sum(1).to(wide),
                (good * chosen.shape[-1]).view(1),
                nowhere + beyond,
            )
        )


def summarize(
    sums: Tensor, experts: int, *, aux_coefficient: float = AUX_COEFFICIENT, z_coefficient: float = Z_COEFFICIENT
) -> dict[str, float]:
    """The figures of one layer from the sums of `accumulate`, as Python numbers (reads the device).

    docs/guides/moe.md describes each. Without a token they are NaN, counts 0.
    """
    values = [float(value) for value in sums.tolist()]
    loads, masses = values[:experts], values[experts : 2 * experts]
    tokens, non_finite, squared_log_z, entropy, confidence, choices, dropped = values[2 * experts :]
    sent = sum(loads)
    shares = [load / sent if sent else math.nan for load in loads]
    mean = sent / experts if experts else 0.0
    active = [share for share in shares if share > 0]
    top = max(loads, default=0.0)
    spread = math.sqrt(sum((load - mean) ** 2 for load in loads) / experts) if experts else math.nan
    raw = math.fsum(share * mass for share, mass in zip(shares, masses, strict=True))
    aux = _ratio(experts * raw, tokens)
    z_loss = _ratio(squared_log_z, tokens)
    return {
        "tokens": tokens,
        "aux_loss": aux_coefficient * aux,
        "z_loss": z_coefficient * z_loss,
        "aux_loss_raw": aux,
        "z_loss_raw": z_loss,
        "expert_utilization": len(active) / experts if sent else math.nan,
        "load_imbalance": _ratio(top, mean),
        "max_violation": _ratio(top - mean, mean),
        "load_cv": _ratio(spread, mean),
        "active_experts": float(len(active)),
        "max_expert_fraction": max(shares, default=math.nan),
        "min_expert_fraction": min(shares, default=math.nan),
        "min_active_expert_fraction": min(active, default=math.nan),
        "router_entropy": _ratio(entropy, tokens * math.log(experts)) if experts > 1 else _ratio(tokens, tokens),
        "router_confidence": _ratio(confidence, tokens),
        "dropped_tokens": dropped,
        "dropped_fraction": _ratio(dropped, choices),
        "non_finite_tokens": non_finite,
    }


def route_statistics(
    logits: Tensor,
    top_k: int,
    *,
    chosen: Tensor | None = None,
    score: str = "softmax",
    capacity: int | None = None,
    capacity_factor: float | None = None,
    aux_coefficient: float = AUX_COEFFICIENT,
    z_coefficient: float = Z_COEFFICIENT,
) -> dict[str, float]:
    """The figures of one router's logits (tokens, experts), at once: `summarize` of `accumulate`."""
    sums = accumulate(logits, top_k, chosen=chosen, score=score, capacity=capacity, capacity_factor=capacity_factor)
    return summarize(sums, logits.shape[-1], aux_coefficient=aux_coefficient, z_coefficient=z_coefficient)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


class _Layer:
    """A router under watch and what it has summed up."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.experts = router.experts
        self.sums: Tensor | None = None
        self.awaited = 0  # passes of reentrant checkpointing whose repetition is the one that counts


class RouterWatch:
    """Hooks on a model's routers that sum up what they decide, until it is asked for.

    model: any torch model. modules, top_k, score, extract: see `routers.find_routers`; without `modules`
    the routers are found by themselves. capacity, capacity_factor: see `accumulate`. aux_coefficient,
    z_coefficient: weights of the two losses in the model's own loss. group: ranks to sum over, by default
    all when torch.distributed is initialised; False for this rank alone. every_pass: count evaluation too.
    warn: called as `warn(sentence, key)`, such as `run.warn`; by default Python's logging.

    Passes in evaluation mode, under `no_grad` or `inference_mode` are not counted, and the repetition of a
    pass by gradient checkpointing is not counted twice. `enabled = False` lets all passes by.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        modules: Iterable[str | nn.Module] | Mapping[str, Extract] | None = None,
        top_k: int | None = None,
        score: str | None = None,
        extract: Extract | None = None,
        capacity: int | None = None,
        capacity_factor: float | None = None,
        aux_coefficient: float = AUX_COEFFICIENT,
        z_coefficient: float = Z_COEFFICIENT,
        group: Any = None,
        every_pass: bool = False,
        warn: Callable[[str, str], Any] | None = None,
    ) -> None:
        self.enabled = True
        self.group = group
        self._limits: dict[str, Any] = {"capacity": capacity, "capacity_factor": capacity_factor}
        self._coefficients = {"aux_coefficient": aux_coefficient, "z_coefficient": z_coefficient}
        self._every_pass = every_pass
        self._warn_by = warn
        self._warned: set[str] = set()
        self._was_read = False
        self._shared_size: int | None = None
        self._snapshot: dict[str, dict[str, float]] = {}
        self._loads: dict[str, Tensor] = {}
        routers = find_routers(model, modules, top_k=top_k, score=score, extract=extract)
        self._layers = {router.layer: _Layer(router) for router in routers}
        self._handles = [
            after(layer.router.module, CompiledGuest(self._hook(layer)), with_kwargs=True)
            for layer in self._layers.values()
        ]

    @property
    def routers(self) -> list[Router]:
        """What is watched; empty for a model without routers."""
        return [layer.router for layer in self._layers.values()]

    def close(self) -> None:
        """Take the hooks away. What was summed up can still be read."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # -- in the forward pass -------------------------------------------------------------------------

    def _hook(self, layer: _Layer) -> Callable[..., None]:
        import torch

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if not self.enabled:
                return
            try:
                apart(self._saw, layer, module, (*args, *kwargs.values()), output)
            except Exception as error:  # never into the training
                reason = str(error).splitlines()[0] if str(error) else ""
                self._warn(layer, f"could not be read ({type(error).__name__}: {reason}); its passes are not counted")

        # torch.compile leaves its graph here: what a hook keeps can't be part of one
        outside: Callable[..., None] = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
        return outside

    def _saw(self, layer: _Layer, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        if self._counts(layer, module):
            self._add(layer, given, output)

    def _counts(self, layer: _Layer, module: nn.Module) -> bool:
        """Is this a pass of training, seen for the first time?

        Gradient checkpointing runs a pass again within backward. Its plain form has run it with gradients
        before, so the repetition is skipped; its reentrant form has run it without, so only then it counts.
        """
        import torch

        backward = getattr(torch._C, "_current_graph_task_id", lambda: -1)() != -1
        if self._every_pass:
            return not backward
        if not module.training or torch.is_inference_mode_enabled():
            return False
        if backward:
            layer.awaited -= 1
            return layer.awaited >= 0
        if torch.is_grad_enabled():
            layer.awaited = 0
            return True
        layer.awaited = max(layer.awaited, 0) + 1
        return False

    def _add(self, layer: _Layer, inputs: tuple[Any, ...], output: Any) -> None:
        import torch

        router = layer.router
        decision = read(router, inputs, output)
        if decision is None:
            self._warn(layer, "gives no logits; name the part that does, or say `extract=` how to read them")
            return
        logits, chosen = decision.logits, decision.chosen
        if chosen is None and not router.top_k:
            self._warn(layer, "does not say how many experts a token goes to; say `top_k=`")
            return
        if logits.is_meta:
            return
        with torch.inference_mode(False):
            sums = accumulate(logits, router.top_k, chosen=chosen, score=router.score, **self._limits)
            if self._was_read:  # what was read stays readable until the next step's first pass
                self._reset()
            if layer.sums is None or layer.sums.shape != sums.shape:
                layer.experts = logits.shape[-1]
                layer.sums = sums.clone()
            else:
                if layer.sums.device != sums.device:
                    layer.sums = layer.sums.to(sums.device)
                layer.sums.add_(sums)

    def _reset(self) -> None:
        self._was_read = False
        for layer in self._layers.values():
            if layer.sums is not None:
                layer.sums.zero_()

    # -- between steps ---------------------------------------------------------------------------------

    def get_moe_stats(self) -> MoEStats:
        """Router health since the last step that was read, over all ranks of the group.

        aux_loss and z_loss are the weighted losses summed over layers; expert_utilization (0 to 1) and
        load_imbalance (max / mean load, from 1) are averaged over layers. `valid` is False, and the rest 0,
        when no token passed. Every rank of the group has to call it; it waits for the device.
        The sums start anew with the next pass, so reading twice gives the same.
        """
        try:
            self._read()
        except Exception as error:
            self._say(f"the routers could not be read ({type(error).__name__}: {error})", "moe-read")
            self._snapshot, self._loads = {}, {}
        layers = [layer for layer in self._snapshot.values() if layer["tokens"] > 0]
        if not layers:
            return MoEStats(aux_loss=0.0, z_loss=0.0, expert_utilization=0.0, load_imbalance=0.0, valid=False)
        return MoEStats(
            aux_loss=math.fsum(layer["aux_loss"] for layer in layers),
            z_loss=math.fsum(layer["z_loss"] for layer in layers),
            expert_utilization=_mean(layers, "expert_utilization"),
            load_imbalance=_mean(layers, "load_imbalance"),
            valid=True,
        )

    def layers(self) -> dict[str, dict[str, float]]:
        """Each layer's figures, as `get_moe_stats` read them last."""
        return {name: dict(figures) for name, figures in self._snapshot.items()}

    def loads(self) -> dict[str, Tensor]:
        """Each layer's choices by expert (experts,), on the CPU, as `get_moe_stats` read them last."""
        return dict(self._loads)

    def step_fields(self) -> dict[str, float]:
        """The model's figures under Surogate's names of a step record (`moe_aux_loss`, …), as read last."""
        layers = [layer for layer in self._snapshot.values() if layer["tokens"] > 0]
        if not layers:
            return {}
        summed = {name: math.fsum(layer[name] for layer in layers) for name in ("aux_loss", "z_loss")}
        averaged = {name: _mean(layers, name) for name in _AVERAGED}
        return {f"moe_{name}": value for name, value in (summed | averaged).items()}

    def record(self, run: Any, step: int) -> MoEStats:
        """Read, and write to a run: the model's figures (kind `moe`), each layer's, and each expert's load.

        Under torch.distributed every rank calls it, and the group's first rank writes.
        """
        stats = self.get_moe_stats()
        if stats["valid"] and (not self._is_shared() or self._rank() == 0):
            more = {name.removeprefix("moe_"): value for name, value in self.step_fields().items()}
            known = ("aux_loss", "z_loss", "expert_utilization", "load_imbalance")
            first = [more.pop(name) for name in known]
            run.log_moe_stats(step, *first, **more)
            # figures of steps that are over, maybe: the loop's own count of steps stays where it is
            run.log_layers(step, self.layers(), prefix="moe", advance=False)
            run.log_expert_loads(step, {name: load.tolist() for name, load in self._loads.items()}, advance=False)
        return stats

    def _read(self) -> None:
        """Sum over ranks, bring everything to the CPU in one transfer, and make the figures."""
        import torch

        parts = [self._part(layer) for layer in self._layers.values()]
        self._was_read = True
        if not parts:
            self._snapshot, self._loads = {}, {}
            return
        device = parts[0].device
        packed = torch.cat([part.to(device) for part in parts])
        if self._is_shared():
            packed = self._reduce(packed)
        packed = packed.cpu()
        self._snapshot, self._loads = {}, {}
        for (name, layer), sums in zip(
            self._layers.items(), packed.split_with_sizes([len(part) for part in parts]), strict=True
        ):
            if len(sums):
                self._snapshot[name] = summarize(sums, layer.experts, **self._coefficients)
                self._loads[name] = sums[: layer.experts].clone()

    def _part(self, layer: _Layer) -> Tensor:
        """A layer's sums; zeros of the right length where no pass has come by."""
        import torch

        if layer.sums is not None:
            return layer.sums
        length = 2 * layer.experts + len(SUMS) if layer.experts else 0
        weight = next(layer.router.module.parameters(), None)
        device = weight.device if weight is not None and not weight.is_meta else torch.device("cpu")
        wide = torch.float32 if device.type == "mps" else torch.float64
        return torch.zeros(length, dtype=wide, device=device)

    def _is_shared(self) -> bool:
        if self.group is False:
            return False
        import torch.distributed as distributed

        ready = distributed.is_available() and distributed.is_initialized()
        return ready and distributed.get_world_size(self.group) > 1

    def _rank(self) -> int:
        import torch.distributed as distributed

        return distributed.get_rank(self.group)

    def _reduce(self, packed: Tensor) -> Tensor:
        """One all_reduce. The first time a second one before it asks whether all ranks have the same layers."""
        import torch
        import torch.distributed as distributed

        packed = packed.clone()
        if self._shared_size is None:
            sizes = torch.tensor([len(packed), -len(packed)], device=packed.device)
            distributed.all_reduce(sizes, op=distributed.ReduceOp.MAX, group=self.group)
            most, least = sizes.tolist()
            self._shared_size = most if most == -least else 0
            if not self._shared_size:
                self._say(
                    f"the ranks watch different routers ({-least} to {most} sums), so each keeps its own; "
                    "say `group=` which ranks hold the same layers",
                    "moe-ranks",
                )
        if self._shared_size and len(packed) != self._shared_size:
            self._say("the routers are not those of the first step; they are left out of the ranks' sum", "moe-size")
            distributed.all_reduce(packed.new_zeros(self._shared_size), group=self.group)
        elif self._shared_size:
            distributed.all_reduce(packed, group=self.group)
        return packed

    def _warn(self, layer: _Layer, sentence: str) -> None:
        self._say(f"router {layer.router.name!r} {sentence}", f"moe {layer.router.name}")

    def _say(self, sentence: str, key: str) -> None:
        if key in self._warned:
            return
        self._warned.add(key)
        if self._warn_by is not None:
            self._warn_by(sentence, key)
        else:
            _warnings.warning("barograph: %s", sentence)


# Figures that are averaged over layers for the whole model; Surogate's names where it has them.
_AVERAGED = (
    "expert_utilization", "load_imbalance", "max_violation", "load_cv", "active_experts", "max_expert_fraction",
    "min_active_expert_fraction", "router_entropy", "router_confidence", "dropped_fraction",
)  # fmt: skip


def _mean(layers: list[dict[str, float]], name: str) -> float:
    return math.fsum(layer[name] for layer in layers) / len(layers)
