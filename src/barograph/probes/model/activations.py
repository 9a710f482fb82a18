"""Activations by block: statistics of what flows through a model, kept on its device until they are asked for.

In:   a model's forward passes while the watch is on; modules found by `blocks.find`, or named by the user.
Out:  {layer: {statistic: number}}: `mean`, `std` (n - 1), `min`, `max`, `l2_norm`, `rms`, `kurtosis` and `tail`
      (share of elements further than 10 RMS from the mean) of each block's output; `dead`, `zeros` of an
      MLP's units; `saturated` of bounded activation modules; and for the model `residual_growth`, `attention/…`,
      `log_z`, `embedding_norm`.

Hooks look at outputs, so an activation function called as a function is not a problem. They never raise, hold
no activation, and are gone after `close()`.
"""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from barograph.probes.model import attention, blocks
from barograph.probes.model.compiled import CompiledWithin
from barograph.probes.model.forward import ForwardSigns
from barograph.probes.model.guest import Shown, after, before
from barograph.probes.model.parameters import PLACE, local, mesh_of

TAIL = 10.0  # RMS: beyond it an element of the residual stream is an outlier
EDGE = 0.01  # share of the range next to a bound in which a unit is saturated
TOKENS = 64  # of the output, for log Z
_EARLY = 2  # the step of the early look: the first one has its own work
_MASKS = frozenset({"later", "next", "second", "earlier", "hidden_tokens", "seen_padding", "inverted"})
_SHORT, _LONG = 3, 8  # places of a text whose padding is known by its token, or only by how it stands
_LEAST, _MOST = 1e-8, 1e7  # of `std`, between which its fourth power, added up, is within what 32 bits hold
_BESIDE = re.compile(r"mask|label|target|position|type_ids|cache", re.I)
_BOUNDS = {
    "Tanh": (-1.0, 1.0), "Softsign": (-1.0, 1.0), "Hardtanh": (-1.0, 1.0), "Sigmoid": (0.0, 1.0),
    "Hardsigmoid": (0.0, 1.0), "ReLU6": (0.0, 6.0),
}  # fmt: skip


def describe(output: Any) -> dict[str, Any]:
    """Statistics of one tensor, scalars on its device; of half precision in 32 bits."""
    import torch

    values = output.detach()
    if values.numel() == 0 or values.is_meta:
        return {}
    if values.dtype != torch.float64:
        result = _describe(values.float())
        if (
            values.device.type != "cpu"
            or _LEAST < float(result["std"]) < _MOST
            or not bool(result["max"] > result["min"])
        ):
            return result
        values = values.double()  # powers that 32 bits can't hold; a device would have to be waited for
    return _describe(values)


def _describe(values: Any) -> dict[str, Any]:
    import torch

    flat = values.reshape(-1)
    count = flat.numel()
    mean = flat.mean()
    square = torch.dot(flat, flat)
    rms = (square / count).sqrt()
    centred_square = (flat - mean).square_()
    variance = centred_square.mean()
    return {
        "mean": mean,
        "std": (variance * (count / (count - 1))).sqrt() if count > 1 else torch.zeros_like(mean),
        "min": flat.amin(),  # one after the other is faster than torch.aminmax, along a dimension twenty times
        "max": flat.amax(),
        "l2_norm": square.sqrt(),
        "rms": rms,
        # Pearson's: 3 for a normal distribution
        "kurtosis": torch.dot(centred_square, centred_square)
        / count
        / variance.square().clamp_min(torch.finfo(values.dtype).tiny),
        "tail": torch.count_nonzero(centred_square > (TAIL * rms).square()) / count,
    }


class ActivationWatch:
    """Looks at a model's activations while `on` is set; `collect` reads what the last forward passes left.

    modules: names or modules to look at instead of the blocks. heads: also look at attention and at the output.
    warn: told once what can't be seen.
    """

    def __init__(
        self,
        model: Any,
        modules: Any = None,
        *,
        functions: bool = False,
        heads: bool = True,
        warn: Callable[..., Any] = lambda sentence, key=None: None,
    ):
        self.on = True
        self._model = model
        self._warn = warn
        self._table: dict[str, dict[str, Any]] = {}
        self._peaks: dict[str, Any] = {}  # greatest |unit| of each MLP since the last `collect`
        self._attention = attention.AttentionLook()
        self._padding = _padding_of(model)
        self._mode: Shown | None = None
        self._within = CompiledWithin()
        self._turn: dict[str, int] = {}  # the thread whose pass is looked at
        self._signs = ForwardSigns()
        self._heads = heads
        self._begun, self._ahead = 0, False  # steps; whether the next pass is the early one
        self._early: dict[str, Any] | None = {} if heads else None  # see `early`; None behind it
        self._handles: list[Any] = []
        self._places = blocks.find(model)
        self._order: list[str] = []
        self._hook(modules, functions)

    def _hook(self, modules: Any, functions: bool) -> None:
        places = self._places
        chosen = self._named(modules) if modules is not None else dict(places.blocks)
        if functions:
            chosen |= places.functions
        self._order = [name for name in chosen if name in places.blocks]
        if modules is None:
            chosen |= places.embeddings
        self._any = bool(chosen)
        for name, module in chosen.items():
            self._handles.append(after(module, self._on_output(name), self))
        if modules is None:
            for name, module in places.downs.items():
                self._handles.append(before(module, self._on_units(name), self))
            for name, module in places.bounded.items():
                self._handles.append(after(module, self._on_bounded(name, type(module).__name__), self))
        if self._heads:
            self._handles.append(before(self._model, self._on_start, with_kwargs=True))
            self._handles.append(after(self._model, self._on_end, always_call=True))

    def _named(self, modules: Any) -> dict[str, Any]:
        found = {blocks.plain(name): module for name, module in self._model.named_modules()}
        names = {id(module): name for name, module in found.items()}
        chosen = {}
        for item in [modules] if isinstance(modules, str) or hasattr(modules, "forward") else modules:
            name = item if isinstance(item, str) else names.get(id(item), "")
            if name not in found:
                self._warn(f"there is no module {name or item!r:.80} to look at", key=f"module {item!r:.80}")
                continue
            chosen[name] = found[name]
        return chosen

    # -- hooks: each looks only while the watch is on, and never raises --------------------------------

    def _guard(self, name: str, look: Callable[[], Any]) -> None:
        import torch

        try:
            with torch.no_grad():
                look()
        except Exception as error:
            self._warn(f"the activations of {name} can't be seen ({type(error).__name__}: {error})", key=f"act {name}")

    def _on_output(self, name: str) -> Callable[..., None]:
        def hook(module: Any, given: Any, output: Any) -> None:
            if module.training:
                self._guard(name, lambda: self._outputs(name, output))

        return hook

    def _outputs(self, name: str, output: Any) -> None:
        tensor = first_tensor(output)
        if tensor is None or tensor.is_sparse:
            self._warn(
                f"the output of {name} holds no dense tensor of real numbers, so it has no activations to see; name "
                "other modules with modules=[...], or leave it so",
                key=f"act {name}",
            )
            return
        self._put(name, describe(local(tensor)))

    def _on_units(self, name: str) -> Callable[..., None]:
        def hook(module: Any, given: Any) -> None:
            if module.training:
                self._guard(name, lambda: self._units(name, first_tensor(given)))

        return hook

    def _units(self, name: str, units: Any) -> None:
        """A unit is dead where it stayed at 0 (to 1e-8) for every token since the last `collect`."""
        import torch

        if units is None or not units.numel():
            return
        units = local(units)
        rows = units.reshape(-1, units.shape[-1])
        peak = torch.maximum(rows.amax(0), -rows.amin(0))
        before = self._peaks.get(name)
        self._peaks[name] = peak if before is None or before.shape != peak.shape else torch.maximum(before, peak)
        self._put(name, {"zeros": 1 - torch.count_nonzero(rows) / rows.numel()})

    def _on_bounded(self, name: str, kind: str) -> Callable[..., None]:
        low, high = _BOUNDS[kind]
        edge = EDGE * (high - low)

        def look(output: Any) -> None:
            output = local(output)
            near = (output >= high - edge) | (output <= low + edge)
            self._put(name, {"saturated": near.float().mean()})

        def hook(module: Any, given: Any, output: Any) -> None:
            if module.training:
                self._guard(name, lambda: look(output))

        return hook

    def _on_start(self, module: Any, given: Any, named: Any) -> None:
        if module.training:
            self._within.began()
        if not (self.on or self._ahead) or not module.training or self._mode is not None:
            return
        if not self.on and not _has_gradients():
            return  # a reference, or an estimate, that is asked ahead of the training's pass
        if type(module).__name__ == "OptimizedModule":
            self._end_early()
            self._warn("the attention of a compiled model can't be seen; watch it before it is compiled")
            return
        if self._turn.setdefault("thread", threading.get_ident()) != threading.get_ident():
            return  # another one is before us, as of a replica
        if self._within.may_be(module):
            self._end_early()
            return  # parts that are compiled would be so again beneath a mode
        tokens = _tokens((*_each(given), *_inputs(named)))
        long = [one for one in tokens if one.shape[1] >= _LONG]
        self._attention = attention.AttentionLook(long, self._padding, tokens)
        self._signs = ForwardSigns(_tables(self._model))
        self._mode = attention.watch(self._attention, self._signs)

    def _on_end(self, module: Any, given: Any, output: Any) -> None:
        self._within.ended()
        if self._mode is not None and self._mode.end():
            self._mode = None
            self._turn.clear()
            self._seen(self._signs.end({call.keys for call in self._attention.calls}))
        if self.on and module.training:
            self._guard("the output", lambda: self._log_z(output))

    def _seen(self, signs: dict[str, Any]) -> None:
        """A pass that was followed is over. signs: what its functions have shown."""
        self._end_early()
        if self.on:
            return self._put("", signs)
        shown = self._attention.figures() if self._attention.calls else {}
        masks = {name: one for name, one in shown.items() if name.partition("/")[2] in _MASKS}
        self._early = (signs | masks) or None
        self._attention = attention.AttentionLook()

    def _end_early(self) -> None:
        self._early, self._ahead = self._early or None, False

    def early(self) -> dict[str, Any]:
        """What one of the first passes has shown that no weights change, masks and what its functions do, once; nothing
        while there was none, and where the watch was on before."""
        found, self._early = self._early or {}, None if self._early else self._early
        return found

    def arm(self, on: bool) -> None:
        """A step begins."""
        self.on = on
        self._begun += 1
        self._ahead = self._early == {} and self._begun >= _EARLY

    def _log_z(self, output: Any) -> None:
        """Mean log of the output's partition function, over tokens spread evenly through the batch."""
        logits = getattr(output, "logits", None)
        logits = first_tensor(output) if logits is None else logits
        if logits is None or logits.dim() < 2 or logits.shape[-1] < 2 or not logits.numel() or logits.is_sparse:
            return
        logits = local(logits)
        rows = logits.reshape(-1, logits.shape[-1])
        rows = rows[:: -(-len(rows) // TOKENS)]
        self._put("", {"log_z": rows.float().logsumexp(-1).mean()})

    def _put(self, name: str, values: Mapping[str, Any]) -> None:
        self._table.setdefault(name, {}).update(values)

    # -- what was seen ---------------------------------------------------------------------------------

    def collect(self) -> dict[str, dict[str, Any]]:
        """{layer: {statistic: scalar on the device}} since the last call; the model's own stand under ""."""

        table, self._table = self._table, {}
        peaks, self._peaks = self._peaks, {}
        for name, peak in peaks.items():
            table.setdefault(name, {})["dead"] = (peak <= 1e-8).float().mean()
        stream = [table[name]["rms"] for name in self._order if "rms" in table.get(name, {})]
        whole = table.pop("", {})
        if len(stream) > 1:
            whole["residual_growth"] = stream[-1] / stream[0].clamp_min(1e-30)
        calls = self._attention.calls
        if calls:
            whole |= self._attention.figures()
            if len(calls) == len(self._order):  # else it can't be said whose they are
                for layer, call in zip(self._order, calls, strict=True):
                    table.setdefault(layer, {}).update(
                        {"attention_logit_max": call.largest, "attention_entropy": call.entropy}
                    )
            self._attention = attention.AttentionLook()
        norm = self._embedding_norm() if table or whole else None
        if norm is not None:
            whole["embedding_norm"] = norm
        return table | ({"": whole} if whole else {})

    def _embedding_norm(self) -> Any:
        """Mean norm of the first embedding's rows; of a sharded one of the rows that are here."""
        for module in self._places.embeddings.values():
            weight: Any = getattr(module, "weight", None)
            if not hasattr(weight, "detach") or weight.is_meta:
                continue
            if any(place.is_shard() and not place.is_shard(0) for place in getattr(weight, "placements", ())):
                return None  # rows are in pieces
            rows = local(weight).float()
            return rows.norm(dim=-1).mean() if rows.numel() else None
        return None

    @property
    def looks_at_any(self) -> bool:
        """Whether there is any module to look at."""
        return self._any

    @property
    def sees_attention(self) -> bool:
        """Whether the last forward pass showed any attention."""
        return bool(self._attention.calls)

    def close(self) -> None:
        """Take every hook away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._mode is not None and self._mode.end():
            self._mode = None


def _has_gradients() -> bool:
    import torch

    return torch.is_grad_enabled()


def _tables(model: Any) -> set[int]:
    """The weights of positional embeddings, by id."""
    named = model.named_modules()
    return {id(module.weight) for name, module in named if "Embedding" in type(module).__name__
            and PLACE.search(name.rpartition(".")[2]) and getattr(module, "num_embeddings", 0) > 1}  # fmt: skip


def _inputs(named: Mapping[str, Any]) -> list[Any]:
    """What is given by name, but for masks, labels and places, which have the shape of the tokens."""
    return [item for name, item in named.items() if not _BESIDE.search(name)]


def _each(given: Iterable[Any]) -> Iterator[Any]:
    """Arguments, and what mappings among them hold."""
    for item in given:
        yield from _inputs(item) if isinstance(item, Mapping) else (item,)


def _tokens(given: tuple[Any, ...]) -> list[Any]:
    """The rows of tokens that a model is given, and what has their shape."""
    numbers = [one for one in given if str(getattr(one, "dtype", "")) in ("torch.int64", "torch.int32")]
    return [one.detach() for one in numbers if one.dim() == 2 and one.shape[1] >= _SHORT and mesh_of(one) is None]


def _padding_of(model: Any) -> int | None:
    """The token that is padding, as the model's tables say it; None where none of them does, or they differ."""
    told = [getattr(module, "padding_idx", None) for module in model.modules()]
    numbers = {one for one in told if isinstance(one, int)}
    return numbers.pop() if len(numbers) == 1 else None


def dense_tensors(given: Any, depth: int = 2) -> Iterator[Any]:
    """The dense tensors in a call's arguments."""
    for item in given:
        if hasattr(item, "is_floating_point"):
            if item.numel() and not item.is_sparse and not item.is_meta:
                yield item
        elif depth:
            yield from dense_tensors(parts_of(item), depth - 1)


def parts_of(item: Any) -> Iterable[Any]:
    """What a tuple, a list, a mapping or a dataclass holds; nothing of anything else."""
    if isinstance(item, Mapping):
        return item.values()
    if isinstance(item, (tuple, list)):
        return item
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return [getattr(item, field.name, None) for field in dataclasses.fields(item)]
    return ()


def first_tensor(output: Any) -> Any:
    """The first floating-point tensor in a module's output: itself, or in a tuple, list, mapping or object."""
    if hasattr(output, "is_floating_point"):
        return output if output.is_floating_point() else None
    for part in parts_of(output):
        result = first_tensor(part)
        if result is not None:
            return result
    for name in ("last_hidden_state", "logits"):
        part = getattr(output, name, None)
        if part is not None:
            return first_tensor(part)
    return None
