"""Memory of a training: by segment, on the device, in the process; and what one step saves for backward.

In:   torch models and optimizers, the allocator's own counters, /proc.
Out:  rows for `log_allocator`, KempnerForge's five figures, records of kind `memory`.

Everything is measured: no segment is derived from a parameter count.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from barograph.core import hardware, liveness
from barograph.probes.memory.storages import PLACES, holdings, tensors_in
from barograph.probes.recording import Recording

GIB = 1 << 30  # KempnerForge's "gb" are GiB
SEGMENTS = ("weights", "gradients", "optimizer", "activations", "lora", "qlora")  # Surogate's order

# Adapters by the names that peft and torchtune give their parameters (lora_A, lora_embedding_B, lora_magnitude_vector,
# lora_a; LoHa, LoKr, VeRA, (IA)³, OFT, BOFT likewise).
_ADAPTER = re.compile(r"(^|[._])(lora|loha|hada|lokr|vera_lambda|ia3|oft|boft|dora)_", re.IGNORECASE)
# A module whose weight is one of these is quantised (GPTQ, AWQ; compressed-tensors; HQQ), and then the others
# of its direct tensors, but for the bias, are its scales and tables.
_PACKED = frozenset({"qweight", "weight_packed", "W_q", "B_q"})
_QUANTISED_CLASSES = frozenset({"Params4bit", "Int8Params"})  # bitsandbytes
_BESIDE = ("quant_state", "CB", "SCB")  # what bitsandbytes hangs on a quantised parameter


# ---------------------------------------------------------------------------------------------
# Segments of a model and its optimizer


def memory_segments(
    model: Any, optimizer: Any = None, *, activations_bytes: int | Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Memory by segment, as `log_allocator` takes it: `name`, and bytes `device`, `managed`, `pinned`, `pageable`.

    model, optimizer: one or a list of them. activations_bytes: bytes measured by `ActivationMeter` (its `places`,
    or one number, which counts to where the weights are). Each storage counts once, in the first segment it is
    found in: tied weights, views and flat parameters are not doubled. Of a DTensor this rank's shard counts, of a
    meta tensor nothing. Buffers are weights. Segments that hold nothing are left out.
    """
    rows: dict[str, dict[str, int]] = {}
    seen: set[tuple[str, int]] = set()
    for name, _, tensor in _named_tensors(model, optimizer):
        for holding in holdings(tensor):
            if holding.key not in seen:
                seen.add(holding.key)
                row = rows.setdefault(name, dict.fromkeys(PLACES, 0))
                row[holding.place] += holding.bytes
    if activations_bytes is not None:
        rows["activations"] = dict.fromkeys(PLACES, 0)
        if isinstance(activations_bytes, Mapping):
            rows["activations"].update({name: int(activations_bytes.get(name, 0)) for name in PLACES})
        else:
            home = max(PLACES, key=lambda where: rows.get("weights", {}).get(where, 0))
            rows["activations"][home if "weights" in rows else "pageable"] += int(activations_bytes)
    return [{"name": name} | rows[name] for name in SEGMENTS if any(rows.get(name, {}).values())]


def named_tensors(model: Any, optimizer: Any = None) -> Iterator[tuple[str, str, Any]]:
    """Every tensor of models and optimizers as (segment, name, tensor); a tied one comes more than once."""
    return _named_tensors(model, optimizer)


def _named_tensors(model: Any, optimizer: Any) -> Iterator[tuple[str, str, Any]]:
    names: dict[int, str] = {}
    for item in _listed(model):
        yield from _of_model(item, names)
    for item in _listed(optimizer):
        yield from _of_optimizer(item, names)


def _of_model(model: Any, names: dict[int, str]) -> Iterator[tuple[str, str, Any]]:
    gradients: list[tuple[str, str, Any]] = []
    for path, module in model.named_modules():
        direct = dict(module._parameters) | dict(module._buffers)
        packed = _is_packed(direct)
        # HQQ keeps scale and zero in a plain dictionary, bitsandbytes' Linear8bitLt its CB and SCB in `state`
        aside = getattr(module, "meta", None) if packed else None
        state = getattr(module, "state", None)
        for extra in (aside, vars(state) if type(state).__name__ == "MatmulLtState" else None):
            if isinstance(extra, Mapping):
                yield from (("qlora", f"{path}.scales", tensor) for tensor in tensors_in(extra))
        for name, tensor in direct.items():
            if tensor is None:
                continue
            full = f"{path}.{name}" if path else name
            is_parameter = name in module._parameters
            if is_parameter:
                names.setdefault(id(tensor), full)
            yield _segment_of(full, name, tensor, packed), full, tensor
            for attribute in _BESIDE:
                beside = getattr(tensor, attribute, None) if type(tensor).__name__ in _QUANTISED_CLASSES else None
                for inner in _tensors_of_state(beside):
                    yield "qlora", f"{full}.{attribute}", inner
            for attribute in ("grad", "main_grad"):  # Megatron and Transformer Engine accumulate in main_grad
                gradient = getattr(tensor, attribute, None) if is_parameter else None
                if gradient is not None:
                    gradients.append(("gradients", full, gradient))
    yield from gradients


def _is_packed(direct: Mapping[str, Any]) -> bool:
    """Whether the module's own tensors say that its weight is quantised (`…_blocks` and `…_scales`: MXFP4)."""
    blocks = {name.removesuffix("_blocks") for name in direct if name.endswith("_blocks")}
    return not _PACKED.isdisjoint(direct) or any(f"{name}_scales" in direct for name in blocks)


def _segment_of(full: str, name: str, tensor: Any, packed: bool) -> str:
    if _ADAPTER.search(full):
        return "lora"
    if type(tensor).__name__ in _QUANTISED_CLASSES or (packed and "bias" not in name):
        return "qlora"
    inner = getattr(tensor, "data", tensor)  # torchao's tensors are the parameter's data, or the parameter
    if any(
        kind.__module__.partition(".")[0] == "torchao" and "float8" not in kind.__module__
        for kind in (type(tensor), type(inner))
    ):
        return "qlora"
    # a whole-number parameter is a packed weight; whole-number buffers are masks and positions
    if name in ("weight", "base_weight") and str(getattr(tensor, "dtype", "")) in ("torch.uint8", "torch.int8"):
        return "qlora"
    return "weights"


def _tensors_of_state(state: Any) -> Iterator[Any]:
    """Tensors of a quantisation state: an object whose attributes are tensors, one of them nested again."""
    yield from tensors_in(state)
    values = getattr(state, "__dict__", None)
    if isinstance(values, dict) and not hasattr(state, "untyped_storage"):
        yield from tensors_in(values)
        inner = values.get("state2")
        yield from tensors_in(getattr(inner, "__dict__", None))


def _of_optimizer(optimizer: Any, names: Mapping[int, str]) -> Iterator[tuple[str, str, Any]]:
    """Its state, and what it updates that is not a model's parameter: master copies in float32."""
    state = getattr(optimizer, "state", None)
    for key, values in list(state.items()) if isinstance(state, Mapping) else ():
        of = f" of {names[id(key)]}" if id(key) in names else ""
        named = values if isinstance(values, Mapping) else {"state": values}
        for name, value in list(named.items()):
            yield from (("optimizer", f"{name}{of}", item) for item in tensors_in(value))
    for group in getattr(optimizer, "param_groups", None) or ():
        for parameter in group.get("params", ()):
            if id(parameter) not in names:
                yield "optimizer", "a copy of the weights", parameter
                if getattr(parameter, "grad", None) is not None:
                    yield "gradients", "a copy of the gradients", parameter.grad
        rates = {name: value for name, value in group.items() if name != "params"}
        yield from (("optimizer", "a group's setting", item) for item in tensors_in(rates))


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]


# ---------------------------------------------------------------------------------------------
# Activations of one step


class ActivationMeter:
    """Bytes that autograd saves for backward, measured over one step.

        with ActivationMeter(model) as meter:
            loss = model(batch)
            loss.backward()
        run.log_allocator(memory_segments(model, optimizer, activations_bytes=meter.places))

    `peak_bytes` is the most that was saved at one moment, `places` the same by place. A storage counts once,
    parameters and buffers of the model not at all. Every tensor that is saved passes a Python hook: use it on
    one step, not on all. Inputs of blocks that are recomputed (`torch.utils.checkpoint`) are held by the
    checkpoint itself and not seen; what a compiled graph saves is.
    """

    def __init__(self, model: Any = None):
        self.peak_bytes = 0
        self.places = dict.fromkeys(PLACES, 0)
        self._now = dict.fromkeys(PLACES, 0)
        self._uses: dict[tuple[str, int], int] = {}
        self._lock = threading.RLock()  # a collection in the middle of `_keep` may release another tensor
        self._excluded = {
            holding.key
            for segment, _, tensor in _named_tensors(model, None)
            if segment != "gradients"
            for holding in holdings(tensor)
        }
        self._hooks: Any = None

    def __enter__(self) -> ActivationMeter:
        torch = sys.modules.get("torch")
        if torch is None:  # then nothing has been saved for a backward either
            return self
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, _unpack)
        self._hooks.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._hooks is not None:
            self._hooks.__exit__(*problem)

    def _keep(self, tensor: Any) -> _Saved:
        chosen_holdings = [holding for holding in holdings(tensor) if holding.key not in self._excluded]
        with self._lock:
            for item in chosen_holdings:
                uses = self._uses.get(item.key, 0)
                self._uses[item.key] = uses + 1
                if not uses:
                    self._now[item.place] += item.bytes
            total = sum(self._now.values())
            if total > self.peak_bytes:
                self.peak_bytes, self.places = total, dict(self._now)
        # a hook that returned the tensor itself would tie it to its own graph and never let it go
        return _Saved(tensor.detach(), chosen_holdings, self)

    def _release(self, held: Iterable[Any]) -> None:
        with self._lock:
            for item in held:
                uses = self._uses.pop(item.key, 0) - 1
                if uses > 0:
                    self._uses[item.key] = uses
                elif not uses:
                    self._now[item.place] -= item.bytes


class _Saved:
    """A saved tensor; the graph drops it when it no longer needs it."""

    __slots__ = ("held", "meter", "tensor")

    def __init__(self, tensor: Any, held: list[Any], meter: ActivationMeter):
        self.tensor, self.held, self.meter = tensor, held, meter

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the interpreter's exit
            self.meter._release(self.held)


def _unpack(saved: _Saved) -> Any:
    return saved.tensor


# ---------------------------------------------------------------------------------------------
# Figures


@dataclass(frozen=True)
class Figures:
    """An accelerator's memory as torch's allocator counts it. The first five are KempnerForge's; `_gb` are GiB."""

    allocated_gb: float  # in tensors now
    peak_gb: float  # the most there was in tensors since the process began; never reset here
    reserved_gb: float  # taken from the device: tensors and the allocator's cache
    total_gb: float  # what the device has
    mem_utilization: float  # peak_gb / total_gb [KempnerForge metrics], 0 to 1
    unallocated_gb: float = 0.0  # reserved and in no tensor
    inactive_split_gb: float = 0.0  # of that, pieces of split blocks that can't be given back: fragmentation
    num_alloc_retries: int = 0  # allocations that failed and went through after the cache was emptied
    num_ooms: int = 0  # out-of-memory errors thrown


def figures(device: Any = None) -> Figures | None:
    """Memory of an accelerator (default: the current one), or None where torch has started none.

    Reads counters that the allocator keeps in host memory: no device is waited for, and none is started.
    Where the backend keeps no peak (MPS), `peak_gb` is the most this function has seen.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    for name in ("cuda", "xpu"):
        module = getattr(torch, name, None)
        if module is not None and getattr(module, "is_initialized", lambda: False)():
            return _of_allocator(module, module.current_device() if device is None else device)
    mps = getattr(torch, "mps", None)
    backend = getattr(getattr(torch, "backends", None), "mps", None)
    if mps is not None and backend is not None and backend.is_available():
        return _of_mps(mps)
    return None


def _of_allocator(module: Any, device: Any) -> Figures:
    read = getattr(module, "memory_stats_as_nested_dict", module.memory_stats)
    stats = read(device)

    def count(name: str, which: str = "current") -> int:
        if f"{name}.all.{which}" in stats:
            return int(stats[f"{name}.all.{which}"])
        return int(stats.get(name, {}).get("all", {}).get(which, 0))

    allocated, peak = count("allocated_bytes"), count("allocated_bytes", "peak")
    reserved = count("reserved_bytes")
    total = _total_bytes(module, str(device))
    return Figures(
        allocated_gb=allocated / GIB,
        peak_gb=peak / GIB,
        reserved_gb=reserved / GIB,
        total_gb=total / GIB,
        mem_utilization=peak / total if total else 0.0,
        unallocated_gb=(reserved - allocated) / GIB,
        inactive_split_gb=count("inactive_split_bytes") / GIB,
        num_alloc_retries=int(stats.get("num_alloc_retries", 0)),
        num_ooms=int(stats.get("num_ooms", 0)),
    )


_totals: dict[tuple[str, str], int] = {}


def _total_bytes(module: Any, device: str) -> int:
    key = (module.__name__, device)
    if key not in _totals:  # it does not change, and asking takes longer than all the rest
        which: Any = int(device) if device.isdigit() else device
        _totals[key] = int(module.get_device_properties(which).total_memory)
    return _totals[key]


_mps_peak = 0


def _of_mps(mps: Any) -> Figures:
    global _mps_peak
    allocated, reserved = int(mps.current_allocated_memory()), int(mps.driver_allocated_memory())
    total = int(mps.recommended_max_memory())
    _mps_peak = max(_mps_peak, allocated)
    return Figures(
        allocated_gb=allocated / GIB,
        peak_gb=_mps_peak / GIB,
        reserved_gb=reserved / GIB,
        total_gb=total / GIB,
        mem_utilization=_mps_peak / total if total else 0.0,
        unallocated_gb=max(0, reserved - allocated) / GIB,
    )


def process_figures() -> dict[str, int]:
    """Host memory of this process, bytes: `rss_bytes`, `peak_rss_bytes`, `swap_bytes`, `limit_bytes`; what is known.

    The limit is the control group's, else the machine's memory. The peak is that of this program image
    (VmHWM); `getrusage` would carry over the peak of the program that started it.
    """
    result: dict[str, int] = {}
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            name = _STATUS.get(line.partition(":")[0])
            if name:
                result[name] = int(line.split()[1]) * 1024  # the kernel's kB are KiB
    except (OSError, ValueError, IndexError):
        with contextlib.suppress(ImportError, OSError):
            import resource

            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            result["peak_rss_bytes"] = most if sys.platform == "darwin" else most * 1024
        if resident := liveness.resident_bytes():
            result["rss_bytes"] = resident
    if limit := _host_limit():
        result["limit_bytes"] = limit
    return result


_STATUS = {"VmRSS": "rss_bytes", "VmHWM": "peak_rss_bytes", "VmSwap": "swap_bytes"}


@functools.cache
def _host_limit() -> int:
    limit = int(hardware.cgroup_limits().get("memory_bytes", 0))
    with contextlib.suppress(AttributeError, ValueError, OSError):
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(limit, whole) if limit else whole
    return limit


def record(run: Recording, step: int, device: Any = None) -> Figures | None:
    """Write a record of kind `memory`: KempnerForge's five and the rest of `Figures`, and the process's host memory.

    Without an accelerator the device's fields are absent, not zero. Never raises.
    """
    try:
        result = figures(device)
        fields: dict[str, Any] = (
            {} if result is None else {name: _rounded(value) for name, value in asdict(result).items()}
        )
        run.record("memory", step, fields | process_figures())
        return result
    except Exception as error:
        run.warn(f"memory could not be read: {type(error).__name__}: {error}", key="memory figures")
        return None


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else round(value, 6)
