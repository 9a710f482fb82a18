"""What held memory when there was no more: written down before the error goes on its way.

In:   an out-of-memory error, the models and optimizers of the training.
Out:  one record of kind `oom`: the error, memory by segment, the device's and the process's figures, the largest
      live tensors by name, and what could be freed, in sentences with numbers.

It runs when memory is short and the training is about to end: it makes no tensor, is bounded in time and in what it
writes, and never raises. What it could not find out it leaves out.
"""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from barograph.core.text import size
from barograph.probes import autograd
from barograph.probes.memory import usage
from barograph.probes.memory.storages import PLACES, Holding, holdings, tensors_in
from barograph.probes.recording import Recording

SECONDS = 2.0  # most time for looking; the record is written after that whatever was found
_FULL = 3  # snapshots of a run in full; a loop that skips batches on such errors is not to wait each time
_LARGEST = 20  # tensors named in the record
_STORAGES = 50_000  # kept track of: some 200 bytes each
_NODES = 20_000  # of autograd graphs looked at
_BALLAST = 1 << 20

# What the allocators say: CUDA, HIP, XPU and MPS ("… out of memory"), cuBLAS and cuDNN workspaces, torch's on the CPU.
_TEXTS = re.compile(
    r"out of memory|DefaultCPUAllocator: (can't allocate|not enough) memory|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
    r"|RESOURCE_EXHAUSTED|Cannot allocate memory|Unable to allocate",
    re.IGNORECASE,
)
_NO_MEMORY = 12  # errno.ENOMEM
_TRIED = re.compile(r"allocate (\d+(?:\.\d+)?) ?(bytes|[KMGTPE]iB)", re.IGNORECASE)
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50, "e": 1 << 60}

_written: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, says that memory ran out, on a device or on the host."""
    for _ in range(8):
        if error is None:
            return False
        if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
            return True
        if isinstance(error, OSError) and error.errno == _NO_MEMORY:
            return True
        if isinstance(error, RuntimeError) and _TEXTS.search(_text(error)):
            return True
        error = error.__cause__
    return False


def tried_bytes(error: BaseException) -> int | None:
    """The bytes that were asked for, if the error says so. "GiB" and the like are binary."""
    match = _TRIED.search(_text(error))
    if match is None:
        return None
    return int(float(match[1]) * _UNITS[match[2][0].lower()])


class memory_guard:
    """`with memory_guard(run, model, optimizer):` around the loop, or a step: an out-of-memory error is written down
    and goes on its way. One guard may be entered many times.

    Holds one megabyte, which it gives back first, so that there is something to write with.
    """

    def __init__(self, run: Recording, models: Any = (), optimizers: Any = ()):
        self._run, self._models, self._optimizers = run, models, optimizers
        self._ballast: bytearray | None = bytearray(_BALLAST)

    def __enter__(self) -> memory_guard:
        if self._ballast is None:
            with contextlib.suppress(MemoryError):
                self._ballast = bytearray(_BALLAST)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and is_out_of_memory(error):
            self._ballast = None
            snapshot(self._run, error, self._models, self._optimizers)


def snapshot(
    run: Recording, error: BaseException, models: Any = (), optimizers: Any = (), step: int | None = None
) -> dict[str, Any] | None:
    """Write an `oom` record for this error and return its fields; once an error, however often it is called.

    Takes at most about 2 seconds, after the third of a run some microseconds. Never raises.
    """
    try:
        if getattr(error, "_barograph_written", False):
            return None
        with contextlib.suppress(Exception):
            error._barograph_written = True  # type: ignore[attr-defined]
        times = _count(run)
        fields: dict[str, Any] = {"error": type(error).__name__, "text": _text(error)[:2000]}
        # each part by itself: with no memory left one may fail, and the rest is written all the same
        for part in (_request, _device, _process):
            with contextlib.suppress(Exception):
                part(fields, error)
        if times <= _FULL:
            _look(fields, error, models, optimizers)
            with contextlib.suppress(Exception):
                fields["could_free"] = remedies(fields)
        run.record("oom", run.current_step if step is None else step, fields)
        flush = getattr(run, "flush", None)
        if times <= _FULL and flush is not None:
            flush(1.0)
            _dump_history(run, step)
        return fields
    except Exception as problem:
        with contextlib.suppress(Exception):
            run.warn(f"an out-of-memory error could not be written down in full ({type(problem).__name__})", "oom")
        return None


def _count(run: Recording) -> int:
    try:
        _written[run] = _written.get(run, 0) + 1
        return _written[run]
    except TypeError:  # a run that can't be referred to weakly
        return 1


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _request(fields: dict[str, Any], error: BaseException) -> None:
    tried = tried_bytes(error)
    if tried is not None:
        fields["tried_bytes"] = tried


def _device(fields: dict[str, Any], error: BaseException) -> None:
    seen = usage.figures()
    if seen is None:
        return
    fields["device"] = {name: round(value, 6) for name, value in asdict(seen).items()}
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        free, total = cuda.mem_get_info()
        fields["device"]["free_gb"] = round(free / usage.GIB, 6)
        # neither free nor this process's allocator's: contexts, NCCL, other processes
        outside = total / usage.GIB - free / usage.GIB - seen.reserved_gb
        fields["device"]["outside_gb"] = round(max(0.0, outside), 6)


def _process(fields: dict[str, Any], error: BaseException) -> None:
    fields["process"] = usage.process_figures()
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft not in (resource.RLIM_INFINITY, -1):
        fields["process"]["address_space_limit_bytes"] = soft


# ---------------------------------------------------------------------------------------------
# Looking around


def _look(fields: dict[str, Any], error: BaseException, models: Any, optimizers: Any) -> None:
    """Fill in `allocator`, `tensors` and what the sentences need, as far as time and memory go."""
    until = time.monotonic() + SECONDS
    found: dict[tuple[str, int], _Found] = {}
    graphs: list[Any] = []
    counts = {"scalars_with_graph": 0}

    def keep(tensor: Any, name: str, segment: str = "") -> None:
        for holding in holdings(tensor):
            known = found.get(holding.key)
            if known is None and len(found) < _STORAGES:
                found[holding.key] = _Found(tensor, holding, name, segment)
            elif known is not None and not known.name:
                known.name, known.segment = name, segment

    def models_and_optimizers() -> None:
        with contextlib.suppress(Exception):
            fields["allocator"] = usage.memory_segments(models, optimizers)
        for segment, name, tensor in usage.named_tensors(models, optimizers):
            # `gradient of …` says whose; weights and state have names of their own
            keep(tensor, f"gradient of {name}" if segment == "gradients" else name, segment)

    def frames() -> None:
        for name, tensor in _in_frames(error, until):
            keep(tensor, name)
            _graph(tensor, graphs)

    def everything() -> None:
        for tensor in _alive(until):
            keep(tensor, "")
            if _graph(tensor, graphs) and tensor.dim() == 0:
                counts["scalars_with_graph"] += 1

    def saved() -> None:
        for name, tensor in _saved_by(graphs, until):
            keep(tensor, name, "activations")

    looks: tuple[Callable[[], None], ...] = (models_and_optimizers, frames, everything, saved)
    for look in looks:
        try:
            look()
        except Exception:  # no memory even for this, or a tensor that can't be asked
            fields["incomplete"] = True
    if time.monotonic() >= until or len(found) >= _STORAGES:
        fields["incomplete"] = True
    largest = sorted(found.values(), key=lambda item: -item.held.bytes)
    fields["tensors"] = [item.described() for item in largest[:_LARGEST]]
    fields["tensors_found"] = {"count": len(found), "bytes": sum(item.held.bytes for item in largest)}
    fields["outside_model_bytes"] = sum(item.held.bytes for item in largest if item.segment in ("", "activations"))
    fields |= {name: count for name, count in counts.items() if count}


class _Found:
    """A storage and the first tensor seen on it."""

    __slots__ = ("held", "name", "segment", "tensor")

    def __init__(self, tensor: Any, holding: Holding, name: str, segment: str):
        self.tensor, self.held, self.name, self.segment = tensor, holding, name, segment

    def described(self) -> dict[str, Any]:
        return {
            "name": self.name[:200],
            "segment": self.segment,
            "shape": [int(item) for item in self.tensor.shape][:16],
            "dtype": str(self.tensor.dtype).removeprefix("torch."),
            "device": self.held.key[0],
            "place": self.held.place,
            "bytes": self.held.bytes,
        }


def _in_frames(error: BaseException, until: float) -> Iterator[tuple[str, Any]]:
    """Tensors in the local variables of the functions that the error passed through, innermost first."""
    frames: list[tuple[Any, int]] = []
    trace = error.__traceback__
    while trace is not None and len(frames) < 200:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    for frame, line in reversed(frames):
        where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}, {frame.f_code.co_name}"
        for name, value in list(frame.f_locals.items())[:200]:
            if time.monotonic() >= until:
                return
            for place, tensor in enumerate(tensors_in(value, 2)):
                if place >= 50:
                    break
                yield f"{name} in {where}", tensor


def _alive(until: float) -> Iterator[Any]:
    """Every tensor that Python holds."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    kind = torch.Tensor
    for count, item in enumerate(gc.get_objects()):
        if count % 1000 == 0 and time.monotonic() >= until:
            return
        # type(), not isinstance(): a proxy's __class__ may run anything, and a dead weak proxy raises
        if issubclass(type(item), kind):
            yield item


def _graph(tensor: Any, graphs: list[Any]) -> bool:
    try:
        node = tensor.grad_fn
    except Exception:
        return False
    if node is not None and len(graphs) < _NODES:
        graphs.append(node)
    return node is not None


def _saved_by(graphs: list[Any], until: float) -> Iterator[tuple[str, Any]]:
    """What autograd keeps for backward. Tensors behind a hook are passed over: to unpack one may compute it anew."""
    seen: set[Any] = set()
    while graphs and len(seen) < _NODES and time.monotonic() < until:
        node = graphs.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        graphs.extend(following for following, _ in node.next_functions)
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                with contextlib.suppress(Exception):  # of a tensor of another make
                    for inner in tensors_in(autograd.tensor(node, name.removeprefix("_raw_saved_")), 1):
                        made = _operation(inner.grad_fn)
                        yield f"output of {made}" if made else f"saved by {_operation(node)}", inner


def _operation(node: Any) -> str:
    """`Sigmoid` of a node SigmoidBackward0."""
    return "" if node is None else re.sub(r"Backward\d*$", "", type(node).__name__)


# ---------------------------------------------------------------------------------------------
# What could be freed


def remedies(fields: dict[str, Any]) -> list[str]:
    """Sentences on what could be freed, from the fields of an `oom` record; the largest first."""
    said: list[tuple[float, str]] = []
    totals = {row["name"]: sum(row[place] for place in PLACES) for row in fields.get("allocator", ()) if row["name"]}
    weights = totals.get("weights", 0) + totals.get("lora", 0) + totals.get("qlora", 0)
    device = fields.get("device", {})
    allocated = device.get("allocated_gb", 0) * usage.GIB
    on_device = sum(row["device"] + row["managed"] for row in fields.get("allocator", ()))
    # Python sees few of the activations: what the allocator gave out beyond the segments are the others
    outside = max(fields.get("outside_model_bytes", 0), allocated - on_device)
    if outside > max(weights, 1) / 2:
        said.append((
            outside,
            f"{size(outside)} are activations and other tensors outside of model and optimizer: a smaller "
            "micro-batch with more accumulation steps, activation checkpointing or a shorter sequence shrinks them",
        ))  # fmt: skip
    loose = [item for item in fields.get("tensors", ()) if item["segment"] in ("", "activations")]
    if loose and loose[0]["bytes"] > outside / 4:
        one = loose[0]
        shape = " × ".join(str(size) for size in one["shape"])
        said.append((
            float(one["bytes"]),
            f"the largest tensor outside of the model is {one['name'] or 'without a name'} ({one['dtype']}, {shape}) "
            f"with {size(one['bytes'])}: compute it in pieces, or let go of it before the next one is made",
        ))  # fmt: skip
    optimizer, gradients = totals.get("optimizer", 0), totals.get("gradients", 0)
    if weights and optimizer > weights / 2:
        said.append((
            float(optimizer),
            f"the optimizer's state is {size(optimizer)}, {optimizer / weights:.1f} × the weights: an 8-bit optimizer "
            f"keeps about a quarter of 32-bit state, sharding it over N ranks 1/N",
        ))  # fmt: skip
    if gradients:
        said.append((
            float(gradients),
            f"gradients hold {size(gradients)}: zero_grad(set_to_none=True) before the forward pass frees them",
        ))  # fmt: skip
    idle = device.get("unallocated_gb", 0) * usage.GIB
    # what the cache can't reuse: PyTorch's own message advises so where reserved is much more than allocated
    if idle > 0.1 * device.get("reserved_gb", 0) * usage.GIB and idle > 64 << 20:
        said.append((
            idle,
            f"{size(idle)} are reserved by torch's allocator and in no tensor: "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lessens fragmentation",
        ))  # fmt: skip
    elsewhere = device.get("outside_gb", 0) * usage.GIB
    if elsewhere > 1 << 30:
        said.append((
            elsewhere,
            f"{size(elsewhere)} of the device are held outside of torch's allocator here: other processes, NCCL, "
            "CUDA graphs and contexts; look with nvidia-smi",
        ))  # fmt: skip
    scalars = fields.get("scalars_with_graph", 0)
    if scalars > 20:
        said.append((
            float(outside),
            f"{scalars} single numbers are kept together with the graph that made them: sum up losses with .item() "
            "or .detach()",
        ))  # fmt: skip
    process = fields.get("process", {})
    limit = process.get("address_space_limit_bytes") or process.get("limit_bytes", 0)
    if not device and limit:
        said.append((
            0.0,
            f"the process holds {size(process.get('rss_bytes', 0))} of {size(limit)} that it may have"
            + (f"; {size(fields['tried_bytes'])} more were asked for" if "tried_bytes" in fields else ""),
        ))  # fmt: skip
    return [sentence for _, sentence in sorted(said, key=lambda pair: -pair[0])]


def _dump_history(run: Recording, step: int | None) -> None:
    """torch's own snapshot, for its memory viewer, where the user has switched on its recording."""
    torch: Any = sys.modules.get("torch")
    is_on = getattr(getattr(torch, "_C", None), "_cuda_isHistoryEnabled", None)
    with contextlib.suppress(Exception):
        if is_on is None or not is_on():
            return
        at = run.current_step if step is None else step
        path = run.dir / f"memory_{at:06d}.pickle"
        torch.cuda.usage._dump_snapshot(str(path))
        run.record("info", at, {"type": "message", "message": f"torch's memory snapshot is in {path}"})
