"""The coordinate check: does a model's width change what its activations do, over real optimizer steps?

In:   a function that makes the model at a width, at least four widths, batches, an optimizer, seeds.
Out:  a `CoordCheck`: for each activation its size and its change since the start, at each step and width;
      the slope of its change against width in logarithms, with an interval; a verdict; plots; JSON.

Under a right maximal-update parametrisation (muP, Yang et al. 2022, arXiv:2203.03466) every activation
moves by an amount that does not depend on width; under the standard one some grow with it. docs/guides/mup.md
says which quantity is judged and why. torch and numpy are imported when a check starts.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.analysis.widths.fit import FittedLine, fit_line
from barograph.core import providers
from barograph.core.text import count

if TYPE_CHECKING:
    import numpy
    from torch import Tensor, nn

FEWEST_WIDTHS = 4
# A wrong exponent of width is off by 1/2 or more (Yang et al. 2022, table 3), so half of that divides them.
TOLERANCE = 0.25
MEASURES = ("mean_abs", "std", "rms")
QUANTITIES = ("size", "change")  # of x_t, and of x_t - x_0 on the same batch


@dataclass(frozen=True)
class Activation:
    """What became of one activation. `verdict`: flat, growing, shrinking, unclear, unmoved, non-finite, or rescaled:
    the model multiplies it by a number, and what comes out is the next activation, which has a verdict of its own.

    change: slope of log2 |x_T - x_0| against log2 width after the last step. start: slope of log2 |x_0|.
    """

    name: str
    verdict: str
    change: FittedLine
    start: FittedLine

    @property
    def is_fault(self) -> bool:
        return self.verdict in ("growing", "shrinking", "non-finite")


@dataclass(frozen=True)
class CoordCheck:
    """The result of a coordinate check.

    values: by activation, float64 of shape (quantities, measures, seeds, widths, steps + 1), in the order of
    `QUANTITIES` and `MEASURES`; the change at step 0 is 0. losses: (seeds, widths, steps), before each step.
    """

    widths: tuple[int, ...]
    seeds: tuple[int, ...]
    steps: int
    measure: str
    tolerance: float
    confidence: float
    values: Mapping[str, numpy.ndarray[Any, Any]]
    losses: numpy.ndarray[Any, Any]
    activations: tuple[Activation, ...] = field(default=())

    @property
    def verdict(self) -> str:
        """`pass` if every activation that moved is flat, `fail` if one is not, `unclear` otherwise."""
        verdicts = {activation.verdict for activation in self.activations}
        if any(activation.is_fault for activation in self.activations):
            return "fail"
        return "pass" if "flat" in verdicts and verdicts <= {"flat", "unmoved", "rescaled"} else "unclear"

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    def series(self, name: str, quantity: str = "change", step: int | None = None) -> list[float]:
        """An activation's quantity at each width, the geometric mean over seeds, after a step (default: the last)."""
        import numpy

        at = self.steps if step is None else step
        table = self.values[name][QUANTITIES.index(quantity), MEASURES.index(self.measure), :, :, at]
        with numpy.errstate(divide="ignore"):
            means: list[float] = numpy.exp(numpy.log(table).mean(0)).tolist()
        return means

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers and texts; NaN and infinities as None."""
        return {
            "verdict": self.verdict,
            "widths": list(self.widths),
            "seeds": list(self.seeds),
            "steps": self.steps,
            "measure": self.measure,
            "tolerance": self.tolerance,
            "confidence": self.confidence,
            "activations": [
                {
                    "name": activation.name,
                    "verdict": activation.verdict,
                    "change": _plain(activation.change._asdict()),
                    "start": _plain(activation.start._asdict()),
                }
                for activation in self.activations
            ],
            "axes": ["quantity", "measure", "seed", "width", "step"],
            "quantities": list(QUANTITIES),
            "measures": list(MEASURES),
            "values": {name: _plain(table.tolist()) for name, table in self.values.items()},
            "losses": _plain(self.losses.tolist()),
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """`to_dict` as strict JSON; also written to `path` if one is given."""
        text = json.dumps(self.to_dict(), allow_nan=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def text(self, columns: int = 80, rows: int = 16) -> str:
        """The verdicts and a log-log plot of the changes, in plain characters."""
        return str(providers.provider("width check as text")(self, columns, rows))

    def plot(self, path: str | Path) -> Path:
        """Write a log-log plot as PNG: size at the start, and change after steps, against width."""
        return Path(providers.provider("width check as PNG")(self, Path(path)))

    def record(self, run: Any, step: int = 0) -> None:
        """Write slopes, intervals and the verdict to a run, as series `mup/{activation}/slope` and so on."""
        table = {
            activation.name: {
                "slope": activation.change.slope,
                "low": activation.change.low,
                "high": activation.change.high,
                "start_slope": activation.start.slope,
            }
            for activation in self.activations
        }
        run.log_layers(step, table, prefix="mup")
        run.log_message(step, self.sentence())

    def sentence(self) -> str:
        """The verdict and its reason."""
        times = f"{count(self.steps, 'step')}, {count(len(self.seeds), 'seed')}"
        span = f"widths {self.widths[0]} to {self.widths[-1]}, {times}"
        faults = [activation for activation in self.activations if activation.is_fault]
        worst = sorted(faults, key=lambda activation: -abs(_or_zero(activation.change.slope)))[:3]
        said = ", ".join(f"{fault.name} is {fault.verdict} ({_number(fault, self.tolerance)})" for fault in worst)
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        if faults:
            return f"Coordinate check: fail ({span}): {said}{more}"
        unclear = [activation.name for activation in self.activations if activation.verdict == "unclear"]
        if self.passed:
            return f"Coordinate check: pass ({span})"
        why = f"not sure of {', '.join(unclear[:3])}; use more seeds or widths" if unclear else "nothing moved"
        return f"Coordinate check: unclear ({span}): {why}"

    def __str__(self) -> str:
        return self.text()


def coord_check(
    make_model: Callable[[int], nn.Module],
    widths: Sequence[int],
    *,
    batches: Sequence[Any] | Callable[[int, int], Any],
    optimizer: Callable[[nn.Module, int], Any],
    loss: Callable[[nn.Module, Any], Tensor] | None = None,
    steps: int = 4,
    seeds: int | Sequence[int] = 5,
    modules: Sequence[str] | None = None,
    measure: str = "mean_abs",
    tolerance: float = TOLERANCE,
    confidence: float = 0.95,
) -> CoordCheck:
    """Train the model a few steps at each width and seed, and see how its activations depend on width.

    make_model: the model at a width, its weights drawn from torch's global generator, which is seeded before
    and left as it was after. batches: a list, or `(step, seed) -> batch`; the batch of step 0 is also the one
    on which activations are measured. optimizer: `(model, width) -> torch optimizer`. loss: `(model, batch)
    -> scalar`; by default the cross-entropy of `model(batch[0])` with `batch[1]`. modules: patterns of the
    modules to look at; by default all that give a floating-point tensor. measure: mean_abs, std or rms.

    Raises ValueError for fewer than four widths, and for what can't be checked.
    """
    import numpy
    import torch

    sizes = sorted({size for size in widths if type(size) is int and size > 0})
    if len(sizes) < FEWEST_WIDTHS or len(sizes) < len(set(widths)):
        raise ValueError(f"a coordinate check needs {FEWEST_WIDTHS} different widths or more, not {list(widths)}")
    if measure not in MEASURES:
        raise ValueError(f"the measure is one of {', '.join(MEASURES)}, not {measure!r}")
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if steps < 1 or not chosen:
        raise ValueError("a coordinate check needs one optimizer step and one seed at least")
    if not callable(batches) and not len(batches):
        raise ValueError(
            "a coordinate check needs a batch at least: a list of them, or a function (step, seed) -> batch"
        )
    shape = (len(QUANTITIES), len(MEASURES), len(chosen), len(sizes), steps + 1)
    tables: dict[str, numpy.ndarray[Any, Any]] = {}
    losses = numpy.full((len(chosen), len(sizes), steps), math.nan)
    factors: list[dict[str, float]] = []  # by which the model multiplies activations, at each width
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    for seed_at, seed in enumerate(chosen):
        for width_at, width in enumerate(sizes):
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(seed)
                model = make_model(width)
                stepper = optimizer(model, width)
                recorder = _Recorder(model, modules)
                course = _train(model, recorder, stepper, batches, loss or _cross_entropy, steps, seed)
                for step, (figures, value) in enumerate(course):
                    if step < steps:
                        losses[seed_at, width_at, step] = value
                    for name, figure in figures.items():
                        table = tables.setdefault(name, numpy.full(shape, math.nan))
                        table[:, :, seed_at, width_at, step] = figure
                    missed = tables.keys() - figures.keys()
                    if missed and (seed_at or width_at or step):
                        for name in missed:  # a module that not every width has
                            del tables[name]
                factors.append(recorder.factors)
    if not tables:
        raise ValueError("no module that was looked at gives a floating-point tensor at every width")
    at = MEASURES.index(measure)
    activations = tuple(
        _judge(name, table[:, at], sizes, chosen, tolerance, confidence, _depends(name, factors))
        for name, table in tables.items()
    )
    return CoordCheck(tuple(sizes), chosen, steps, measure, tolerance, confidence, tables, losses, activations)


def _train(
    model: nn.Module,
    recorder: _Recorder,
    optimizer: Any,
    batches: Sequence[Any] | Callable[[int, int], Any],
    loss: Callable[[nn.Module, Any], Tensor],
    steps: int,
    seed: int,
) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield, before each step and after the last, the activations' figures and the loss."""
    give = batches if callable(batches) else lambda step, seed: batches[step % len(batches)]
    probe = give(0, seed)
    for step in range(steps + 1):
        figures = recorder.measure(loss, probe)
        if step == steps:
            yield figures, math.nan
            return
        optimizer.zero_grad()
        value = loss(model, give(step, seed))
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield figures, float(value.detach())


class _Recorder:
    """Activations of a model on one batch, now and against the first time.

    factors: those of which the next one is a multiple at the first measurement, and the number.
    """

    def __init__(self, model: nn.Module, patterns: Sequence[str] | None) -> None:
        self._model = model
        self._patterns = patterns
        self._first: dict[str, Tensor] = {}
        self.factors: dict[str, float] = {}

    def measure(self, loss: Callable[[nn.Module, Any], Tensor], batch: Any) -> dict[str, Any]:
        """By activation, [[mean_abs, std, rms] of x, the same of its change]; in evaluation mode."""
        import torch

        found: dict[str, Tensor] = {}
        figures: dict[str, Tensor] = {}
        tensors: list[Tensor] = []  # so that no two outputs share an address

        def keep(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                value = _first_tensor(output)
                if value is None or any(value is other for other in tensors):
                    return
                tensors.append(value)
                calls = sum(1 for known in found if known == name or known.startswith(f"{name}#"))
                title = f"{name}#{calls + 1}" if calls else name
                now = value.detach().to(torch.float32, copy=True)
                found[title] = now
                first = self._first.get(title, now)
                if first.shape == now.shape:
                    figures[title] = torch.stack([_figures(now), _figures(now - first)])

            return hook

        handles = [
            module.register_forward_hook(keep(name or "output"))
            for name, module in self._model.named_modules()
            if self._patterns is None or any(fnmatch.fnmatchcase(name or "output", each) for each in self._patterns)
        ]
        was_training = self._model.training
        self._model.eval()
        try:
            with torch.no_grad():
                loss(self._model, batch)
        finally:
            for handle in handles:
                handle.remove()
            self._model.train(was_training)
        if not self._first:
            self._first = found
            for before, after in itertools.pairwise(found):
                if (factor := _factor(found[before], found[after])) is not None:
                    self.factors[before] = factor
        if not figures:
            return {}
        table = torch.stack([figure.cpu() for figure in figures.values()]).double().numpy()
        return dict(zip(figures, table, strict=True))


def _figures(x: Tensor) -> Tensor:
    import torch

    if not x.numel():
        return torch.full((3,), math.nan)
    return torch.stack([x.abs().mean(), x.std(correction=0), x.square().mean().sqrt()])


def _factor(before: Tensor, after: Tensor) -> float | None:
    """The number by which `before` is multiplied to give `after`, if there is one."""
    if before.shape != after.shape or not before.any():
        return None
    factor = (before.double() * after.double()).sum() / before.double().square().sum()
    left = (after.double() - factor * before.double()).square().sum()
    return float(factor) if factor != 0 and left <= 1e-10 * after.double().square().sum() else None


def _depends(name: str, factors: Sequence[Mapping[str, float]]) -> bool:
    """Whether an activation is multiplied at every width, by a number that depends on the width."""
    found = [abs(each[name]) for each in factors if name in each]
    return len(found) == len(factors) and max(found) > 1.01 * min(found)


def _first_tensor(output: Any) -> Tensor | None:
    """The output's logits, or its first floating-point tensor."""
    import torch

    if isinstance(output, torch.Tensor):
        return output if torch.is_floating_point(output) else None
    if isinstance(output, Mapping):
        output = [output[key] for key in ("logits",) if key in output] + list(output.values())
    if isinstance(output, (tuple, list)):
        return next((tensor for item in output if (tensor := _first_tensor(item)) is not None), None)
    return None


def _cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    import torch

    logits = _first_tensor(model(batch[0]))
    if logits is None:
        raise ValueError("the model returns no floating-point tensor; say `loss=`")
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[1].reshape(-1))


def _judge(
    name: str,
    table: numpy.ndarray[Any, Any],
    widths: Sequence[int],
    seeds: Sequence[int],
    tolerance: float,
    confidence: float,
    rescaled: bool,
) -> Activation:
    """table: (quantities, seeds, widths, steps + 1) of one measure. rescaled: a factor behind it depends on it."""
    start = _slope(table[0, :, :, 0], widths, seeds, confidence)
    change = _slope(table[1, :, :, -1], widths, seeds, confidence)
    moved = table[1, :, :, -1]
    if not all(math.isfinite(value) for value in table.flatten().tolist()):
        verdict = "non-finite"
    elif not moved.any():
        verdict = "unmoved"
    else:
        verdict = _word(change, tolerance)
    if verdict in ("flat", "unclear", "unmoved") and start.low > tolerance:
        verdict = "growing"  # at the start; shrinking there is right for outputs and attention logits
    if rescaled and verdict in ("growing", "shrinking", "unclear"):
        verdict = "rescaled"
    return Activation(name, verdict, change, start)


def _slope(
    table: numpy.ndarray[Any, Any], widths: Sequence[int], seeds: Sequence[int], confidence: float
) -> FittedLine:
    points = [
        (math.log2(width), math.log2(value), seed)
        for seed, row in zip(seeds, table.tolist(), strict=True)
        for width, value in zip(widths, row, strict=True)
        if 0 < value < math.inf
    ]
    return fit_line([x for x, _, _ in points], [y for _, y, _ in points], [seed for _, _, seed in points], confidence)


def _word(line: FittedLine, tolerance: float) -> str:
    if -tolerance <= line.low and line.high <= tolerance:
        return "flat"
    if line.low > tolerance:
        return "growing"
    return "shrinking" if line.high < -tolerance else "unclear"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _number(fault: Activation, tolerance: float) -> str:
    if fault.verdict == "growing" and fault.start.low > tolerance:
        return f"slope {fault.start.slope:+.2f} at the start"
    return f"slope {fault.change.slope:+.2f}"
