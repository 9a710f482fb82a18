"""Forecasts of the final loss by hindcast: real curves are cut at a part of their plan, and the rest is compared.

    python benchmarks/forecast.py [--logs FOLDER] [--seeds N] [--steps N] [--curves]
    python benchmarks/forecast.py --synthetic [--count 200]

Curves. (a) The real logs in the folder that BAROGRAPH_REALLOGS or --logs names, read as `barograph import` reads them.
(b) Small trainings on the bytes of this Python's library and of its programs, made here on one core and kept in
build/forecast-curves: six families of models (GPT, convolution, linear, multi-layer perceptron, recurrent, mixture of
experts) × five schedules × seeds, whose learning rate, length of warm-up, end, batch size and text differ. One seed is
30 trainings and some five minutes the first time. The final loss is the mean of the last 5% of the plan.

Each curve is forecast from its first 10, 30, 50 and 70%: with the schedule known, with the rates seen so far and the
planned steps, and with the planned steps alone; beside it the loss as it is then, and a power law in steps without
learning rates. "stretch" is by how much the intervals would have to be stretched for 90% of the curves to be in them;
"held out" is the coverage of each family with intervals stretched as the other families ask for, so the constants are
scored on curves that did not set them. --curves prints a line per curve.

--synthetic: curves from the law of arXiv 2408.11029 (equation 1), whose loss answers a fall of the learning rate late:
with its momentum λ from 0.99 to 0.9995 a step, its exponent, its gains and noise drawn wide, under cosine, linear and
warmup-stable-decay schedules. How many true final losses are in the 90% interval, at 10, 30 and 60% seen.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from barograph.analysis.forecast import Forecast, RateSchedule, forecast_columns

KEPT = Path(__file__).parents[1] / "build" / "forecast-curves"
FAMILIES = ("gpt", "convolution", "linear", "perceptron", "recurrent", "experts")
# No constant of the product was set with a look at these.
UNTOUCHED = ("recurrent", "experts")
SCHEDULES = ("constant", "cosine", "linear", "wsd", "step")
CONTEXT = 16


class Curve(NamedTuple):
    """A whole training: step, loss, learning rate [n], the planned steps and how its schedule was set."""

    name: str
    family: str
    kind: str
    step: Any
    loss: Any
    lr: Any
    planned: int
    options: dict[str, Any]


# -- trainings ----------------------------------------------------------------------------------------


def corpus(which: int) -> Any:
    """Bytes: of the standard library's source, or of NumPy's compiled libraries."""
    import torch

    if which == 0:
        from barograph.demo.text import read_corpus

        text = read_corpus().train.text
    else:
        text = b"".join(path.read_bytes() for path in sorted(Path(np.__file__).parent.rglob("*.so")))[:4_000_000]
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def model_of(family: str) -> Any:
    import torch
    from torch import nn

    if family in ("gpt", "experts"):
        from barograph.demo.model import ByteGPT, ModelShape

        experts = 4 if family == "experts" else 0
        return ByteGPT(ModelShape(context=CONTEXT, width=48, layers=2, heads=2, hidden=128, experts=experts))
    if family == "recurrent":

        class Recurrent(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding, self.gates = nn.Embedding(256, 48), nn.GRU(48, 96, batch_first=True)
                self.head = nn.Linear(96, 256)

            def forward(self, tokens: Any) -> Any:
                return self.head(self.gates(self.embedding(tokens))[0])

        return Recurrent()
    if family == "convolution":

        class Causal(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(256, 48)
                self.layers = nn.ModuleList(nn.Conv1d(48, 48, 3, dilation=2**depth) for depth in range(4))
                self.head = nn.Linear(48, 256)

            def forward(self, tokens: Any) -> Any:
                x = self.embedding(tokens).transpose(1, 2)
                for depth, layer in enumerate(self.layers):
                    x = x + torch.relu(layer(nn.functional.pad(x, (2 * 2**depth, 0))))
                return self.head(x.transpose(1, 2))

        return Causal()

    class Window(nn.Module):
        """The next byte from the last four: a sum of tables, or two layers over their embeddings."""

        def __init__(self, deep: bool) -> None:
            super().__init__()
            width = 24 if deep else 256
            tables = [nn.Embedding(256, width) for _ in range(4)]
            self.tables = nn.ModuleList(tables)
            self.deep = nn.Sequential(nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 256)) if deep else None
            for table in tables:
                nn.init.normal_(table.weight, std=0.5 if deep else 0.02)

        def forward(self, tokens: Any) -> Any:
            shifted = [nn.functional.pad(tokens, (back, 0))[:, : tokens.shape[1]] for back in range(4)]
            parts = [table(one) for table, one in zip(self.tables, shifted, strict=True)]
            return sum(parts) if self.deep is None else self.deep(torch.cat(parts, -1))

    return Window(family == "perceptron")


# family → optimizer and the learning rate in the middle; both of the usual size for such a model
OPTIMIZERS = {
    "gpt": ("adamw", 3e-3),
    "convolution": ("adamw", 3e-3),
    "linear": ("adamw", 2e-2),
    "perceptron": ("sgd", 2e-1),
    "recurrent": ("adamw", 5e-3),
    "experts": ("adamw", 3e-3),
}


def options_of(kind: str, steps: int, peak: float, draw: Any) -> dict[str, Any]:
    """A schedule's options, some drawn."""
    warmup = int(steps * draw.choice([0.01, 0.03, 0.08]))
    found: dict[str, Any] = {"kind": kind, "peak": peak, "warmup": warmup, "total": steps}
    if kind in ("cosine", "linear"):
        found["floor"] = peak * float(draw.choice([0.0, 0.1]))
    if kind == "wsd":
        found |= {"decay": int(steps * draw.choice([0.1, 0.2, 0.4])), "floor": 0.0}
    if kind == "step":
        found |= {
            "milestones": ((0.5, 0.75), (0.8, 0.9), (0.4,))[draw.integers(3)],
            "factor": float(draw.choice([0.1, 0.3])),
        }
    return found


def lr_of(options: dict[str, Any], step: Any) -> Any:
    """Learning rates of `options` at steps 1 … total; written apart from the product, as torch users write theirs."""
    s, total, warmup, peak = np.asarray(step, float) - 1, options["total"], options["warmup"], options["peak"]
    floor = options.get("floor", 0.0)
    part = np.clip((s - warmup) / max(total - warmup, 1), 0, 1)
    if options["kind"] == "cosine":
        lr = floor + (peak - floor) * 0.5 * (1 + np.cos(np.pi * part))
    elif options["kind"] == "linear":
        lr = peak + (floor - peak) * part
    elif options["kind"] == "wsd":
        lr = peak * np.clip((total - s) / options["decay"], 0, 1)
    elif options["kind"] == "step":
        lr = peak * options["factor"] ** sum((s >= one * total).astype(float) for one in options["milestones"])
    else:
        lr = np.full(len(s), peak)
    return np.where(s < warmup, peak * (s + 1) / (warmup + 1), lr)


def train(family: str, kind: str, seed: int, steps: int, texts: list[Any]) -> Curve:
    """One training on one core, or the curve kept of it."""
    import torch

    path = KEPT / f"{family}-{kind}-{seed}-{steps}.npz"
    draw = np.random.default_rng([FAMILIES.index(family), SCHEDULES.index(kind), seed])
    optimizer, middle = OPTIMIZERS[family]
    steps = int(steps * draw.choice([0.6, 1.0, 1.4]))
    options = options_of(kind, steps, middle * float(2 ** draw.uniform(-1.5, 1)), draw)
    batch, text = int(draw.choice([32, 64, 96])), texts[int(draw.integers(2))]
    step = np.arange(1, steps + 1)
    lr = lr_of(options, step)
    if path.is_file():
        loss = np.load(path)["loss"]
    else:
        torch.manual_seed(seed)
        model = model_of(family)
        parameters = list(model.parameters())
        descent: Any = (
            torch.optim.AdamW(parameters, lr=1.0, weight_decay=0.01)
            if optimizer == "adamw"
            else torch.optim.SGD(parameters, lr=1.0, momentum=0.9)
        )
        order = torch.Generator().manual_seed(seed)
        span, losses = torch.arange(CONTEXT + 1), []
        for rate in lr:
            for group in descent.param_groups:
                group["lr"] = float(rate)
            window = text[torch.randint(len(text) - CONTEXT - 1, (batch, 1), generator=order) + span]
            logits = model(window[:, :-1])
            logits = logits[0] if isinstance(logits, tuple) else logits
            value = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
            descent.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            descent.step()
            losses.append(value.item())
        loss = np.array(losses)
        KEPT.mkdir(parents=True, exist_ok=True)
        np.savez(path, loss=loss)
    return Curve(path.stem, family, kind, step, loss, lr, steps, options)


def trainings(seeds: int, steps: int) -> Iterator[Curve]:
    import torch

    torch.set_num_threads(1)
    texts = [corpus(0), corpus(1)]
    for seed in range(seeds):
        for family in FAMILIES:
            for kind in SCHEDULES:
                yield train(family, kind, seed, steps, texts)


# -- synthetic ----------------------------------------------------------------------------------------


def annealed(kind: str, draw: Any) -> tuple[Any, Any, Any]:
    """A curve whose loss answers its decay late: learning rate, loss with and without noise [n]."""
    steps = int(draw.choice([2000, 5000, 20000]))
    s = np.arange(1, steps + 1)
    warm = steps // 50
    u = np.clip((s - warm) / (steps - warm), 0, 1)
    floor_rate, part = draw.choice([0.0, 0.1]), draw.choice([0.1, 0.2, 0.4])
    fall = {"cosine": 0.5 * (1 + np.cos(np.pi * u)), "linear": 1 - u, "wsd": np.minimum(1, (1 - u) / part)}[kind]
    rate = np.where(s < warm, s / warm, floor_rate + (1 - floor_rate) * fall)
    memory = 1 - 10 ** draw.uniform(-3.3, -2)
    late, momentum, total = np.empty(steps), 0.0, 0.0
    for at, drop in enumerate(np.maximum(-np.diff(rate, prepend=rate[0]), 0)):
        momentum = memory * momentum + drop
        total += momentum
        late[at] = total
    floor, power = draw.uniform(1.5, 3.5), draw.uniform(0.15, 0.8)
    scale, gain = draw.uniform(0.2, 1.2) * steps**power, draw.uniform(0.01, 0.12) / late[-1]
    true = floor + scale * (np.cumsum(rate) + steps / 300) ** -power - gain * late * floor
    return rate, true + 10 ** draw.uniform(-2.3, -1) * draw.normal(size=steps), true


def synthetic(count: int) -> None:
    """Coverage on `count` curves for each schedule."""
    print("| schedule | seen | curves | covered by 90% | median error | half width |\n|---|---|---|---|---|---|")
    for kind in ("cosine", "linear", "wsd"):
        found: dict[float, list[tuple[bool, float, float]]] = {part: [] for part in (0.1, 0.3, 0.6)}
        draw = np.random.default_rng([SCHEDULES.index(kind), 5])
        for _ in range(count):
            rate, loss, true = annealed(kind, draw)
            steps = len(rate)
            end = float(true[int(0.95 * steps) :].mean())
            for part, scores in found.items():
                seen = int(part * steps)
                answer = forecast_columns(np.arange(1, seen + 1), loss[:seen], lr=1e-3 * rate[:seen],
                                          schedule=1e-3 * rate, planned_steps=steps)  # fmt: skip
                if answer.final is not None and answer.low is not None and answer.high is not None:
                    inside = answer.low <= end <= answer.high
                    scores.append((inside, abs(answer.final - end) / end, (answer.high - answer.low) / 2 / end))
        for part, scores in found.items():
            inside, error, half = zip(*scores, strict=True)
            print(f"| {kind} | {part:.0%} | {len(scores)} of {count} | {np.mean(inside):.0%} | {np.median(error):.2%} "
                  f"| {np.median(half):.1%} |", flush=True)  # fmt: skip


# -- real logs ----------------------------------------------------------------------------------------

# Schedules that a log prints only as source code, by the start of the run's name: modded-nanogpt, trapezoidal.
IN_THE_SOURCE = {
    "dabaaddd": {"kind": "wsd", "total": 5100, "peak": 1.0, "warmup": 0, "decay": 1450, "floor": 0.0},
    "8384493d": {"kind": "wsd", "total": 1875, "peak": 1.0, "warmup": 0, "decay": 562, "floor": 0.0},
}
LEAST_ROWS = 90


def real(folder: Path) -> Iterator[Curve]:
    """Every whole run with a training loss below `folder`; its rates are given if the log has them to its end."""
    from barograph.importing.read import read

    known: set[tuple[int, float]] = set()
    for place in sorted(one for one in folder.iterdir() if one.is_dir()):
        try:
            runs = read(place)
        except (OSError, ValueError):
            continue
        for run in runs:
            names = run.names()
            if "train/loss" not in names:
                continue
            found = run.series("train/loss")
            step, loss = np.asarray(found.step, float), np.asarray(found.value, float)
            if len(loss) < LEAST_ROWS or not np.isfinite(loss[-1]) or (int(step[-1]), float(loss[-1])) in known:
                continue
            known.add((int(step[-1]), float(loss[-1])))
            lr, options = None, next((one for start, one in IN_THE_SOURCE.items() if run.name.startswith(start)), {})
            if (name := next((one for one in ("train/lr", "train/lr_multiplier") if one in names), None)) is not None:
                rates = run.series(name)
                lr = np.interp(step, rates.step, rates.value)
            elif options:
                lr = lr_of(options, step)
            if lr is not None and step[np.argmax(lr)] > 0.5 * step[-1]:
                continue  # a run that ended in its warm-up has no end to forecast
            yield Curve(f"{place.name[:24]} {run.name[:16]}", "real", "real", step, loss, lr, int(step[-1]), {})


# -- hindcast -----------------------------------------------------------------------------------------

PARTS = (0.1, 0.3, 0.5, 0.7)
WAYS = ("schedule known", "rates seen", "plan alone")


class Score(NamedTuple):
    """One hindcast: errors are parts of the true final loss; `need` is the error in half intervals of its side."""

    curve: Curve
    truth: float
    answer: Forecast
    error: float
    need: float
    last: float
    power: float


def schedule_of(curve: Curve) -> RateSchedule | None:
    """The whole schedule, in the product's own words."""
    options = dict(curve.options)
    if curve.lr is None:
        return None
    if not options:
        return RateSchedule.from_values(np.interp(np.arange(1, curve.planned + 1), curve.step, curve.lr), curve.planned)
    options["milestones"] = tuple(round(one * curve.planned) for one in options.get("milestones", ()))
    return RateSchedule(**options)


def power_law(step: Any, loss: Any, end: float) -> float:
    """L0 + A · s^-α by least squares over the last nine tenths: the usual extrapolation, blind to learning rates."""
    keep = step > 0.1 * step[-1]
    if keep.sum() < 4:
        return float("nan")
    s, y = step[keep] / step[-1], loss[keep]
    found = []
    for alpha in np.geomspace(0.05, 2.5, 40):
        columns = np.stack([np.ones_like(s), s**-alpha], 1)
        numbers, *_ = np.linalg.lstsq(columns, y, rcond=None)
        window = np.linspace(0.95, 1, 11) * end / step[-1]
        found.append((((columns @ numbers - y) ** 2).sum(), numbers[0] + numbers[1] * (window**-alpha).mean()))
    return float(min(found)[1])


def hindcast(curve: Curve, part: float, way: str) -> Score | None:
    """The forecast from the first part of a curve; None if this way has nothing to go by."""
    seen = curve.step <= part * curve.planned
    step, loss = curve.step[seen], curve.loss[seen]
    truth = float(curve.loss[curve.step > 0.95 * curve.planned].mean())
    given: dict[str, Any] = {"planned_steps": curve.planned}
    if way != "plan alone" and curve.lr is None:
        return None
    if way == "schedule known":
        given["schedule"] = schedule_of(curve)
    elif way == "rates seen":
        given["lr"] = curve.lr[seen]
    answer = forecast_columns(step, loss, **given)
    error = need = float("nan")
    if answer.final is not None and answer.low is not None and answer.high is not None:
        error = answer.final / truth - 1
        side = answer.high - answer.final if truth > answer.final else answer.final - answer.low
        need = abs(answer.final - truth) / max(side, 1e-12)
    tail = max(len(loss) // 10, 1)
    return Score(
        curve, truth, answer, error, need, float(loss[-tail:].mean()) / truth - 1,
        power_law(step, loss, curve.planned) / truth - 1,
    )  # fmt: skip


def row(name: str, scores: list[Score]) -> str:
    said = [one for one in scores if one.answer.final is not None]
    if not said:
        return f"| {name} | {len(scores)} | {len(scores)} | | | | | | | |"
    error, need = np.array([one.error for one in said]), np.array([one.need for one in said])
    width = np.array([(one.answer.high - one.answer.low) / 2 / one.truth for one in said])  # type: ignore[operator]
    last, power = np.abs([one.last for one in said]), np.abs([one.power for one in said])
    cells = [f"{100 * value:.2f}%" for value in (np.median(np.abs(error)), np.quantile(np.abs(error), 0.9))]
    cells += [f"{100 * np.median(error):+.2f}%", f"{100 * (need <= 1).mean():.0f}%", f"{100 * np.median(width):.1f}%"]
    cells += [f"{np.quantile(need, 0.9):.2f}", f"{100 * np.median(last):.2f}%", f"{100 * np.nanmedian(power):.2f}%"]
    return f"| {name} | {len(scores)} | {len(scores) - len(said)} | " + " | ".join(cells) + " |"


HEAD = (
    "| {} | curves | no forecast | median error | 90% of errors below | bias | covered by 90% | half width | stretch"
    " | last value: median error | power law: median error |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def held_out(scores: list[Score]) -> str:
    """Coverage of each family with intervals stretched for 90% of the others."""
    parts = []
    for family in FAMILIES:
        mine = [one.need for one in scores if one.curve.family == family and one.answer.final is not None]
        others = [one.need for one in scores if one.curve.family != family and one.answer.final is not None]
        if mine and others:
            parts.append(f"{family} {100 * np.mean(np.array(mine) <= np.quantile(others, 0.9)):.0f}%")
    return ", ".join(parts)


def targets(scores: list[Score]) -> None:
    """Targets about the true final loss: what was said of them, and what came."""
    print("\nTargets, asked at 30% with the schedule known: how often the final loss came to be at or below them.\n")
    print("| said | targets | reached |\n|---|---|---|")
    outcomes: dict[str, list[bool]] = {}
    for one in scores:
        seen = one.curve.step <= 0.3 * one.curve.planned
        for factor in (0.9, 0.95, 0.98, 1.0 + 1e-9, 1.02, 1.05):
            target = one.truth * factor
            found = forecast_columns(
                one.curve.step[seen], one.curve.loss[seen], schedule=schedule_of(one.curve), target=target
            ).target
            if found is not None:
                outcomes.setdefault(found.verdict, []).append(factor >= 1)
    for verdict in ("expected", "likely", "unlikely", "no"):
        came = outcomes.get(verdict, [])
        print(f"| {verdict} | {len(came)} | {100 * np.mean(came) if came else float('nan'):.0f}% |")


def speed() -> None:
    """One million rows, with a schedule known and without."""
    generator = np.random.default_rng(0)
    step = np.arange(1, 1_000_001)
    loss = 2 + 3 * step**-0.3 + 0.1 * generator.standard_normal(len(step))
    print("\n| a million rows | median ms of processor time |\n|---|---|")
    for name, given in (
        ("schedule known", {"schedule": RateSchedule("cosine", 3_000_000)}),
        ("plan alone", {"planned_steps": 3_000_000}),
    ):
        times = []
        for _ in range(5):
            begun = time.process_time()
            forecast_columns(step, loss, **given)
            times.append(time.process_time() - begun)
        print(f"| {name} | {1e3 * float(np.median(times)):.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", default=os.environ.get("BAROGRAPH_REALLOGS"), help="folder of real logs")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--curves", action="store_true", help="a line per curve")
    parser.add_argument("--synthetic", action="store_true", help="coverage on curves of a law with a late decay")
    parser.add_argument("--count", type=int, default=200, help="synthetic curves for each schedule")
    wanted = parser.parse_args()
    if wanted.synthetic:
        synthetic(wanted.count)
        return
    begun = time.perf_counter()
    made = list(trainings(wanted.seeds, wanted.steps))
    print(f"{len(made)} trainings, made or read in {time.perf_counter() - begun:.0f} s")
    logged = list(real(Path(wanted.logs))) if wanted.logs else []
    for title, curves in (("Trainings", made), ("Real logs", logged)):
        if not curves:
            continue
        print(f"\n{title}\n\n{HEAD.format('seen')}")
        kept: dict[tuple[str, float], list[Score]] = {}
        for way in WAYS:
            for part in PARTS:
                found = [score for curve in curves if (score := hindcast(curve, part, way)) is not None]
                kept[way, part] = found
                print(row(f"{part:.0%}, {way}", found), flush=True)
        scores = kept["schedule known", 0.3]
        if title == "Trainings":
            print(f"\nAt 30%, schedule known\n\n{HEAD.format('curves')}")
            for kind in SCHEDULES:
                print(row(kind, [one for one in scores if one.curve.kind == kind]))
            for family in FAMILIES:
                print(row(family, [one for one in scores if one.curve.family == family]))
            print(row("families untouched", [one for one in scores if one.curve.family in UNTOUCHED]))
            for part in PARTS:
                print(f"held out at {part:.0%}: {held_out(kept['schedule known', part])}")
            targets(scores)
        if title == "Real logs" or wanted.curves:
            print("\n| curve | seen | true | forecast | interval | error |\n|---|---|---|---|---|---|")
            for one in [*scores, *(more for more in kept["plan alone", 0.3] if more.curve.lr is None)]:
                answer = one.answer
                said = answer.reason if answer.final is None else f"{answer.final:.3f}"
                span = "" if answer.final is None else f"{answer.low:.3f} to {answer.high:.3f}"
                error = "" if answer.final is None else f"{100 * one.error:+.1f}%"
                way = "plan alone" if one.curve.lr is None else "schedule known"
                print(f"| {one.curve.name} | 30%, {way} | {one.truth:.3f} | {said} | {span} | {error} |")
    speed()


if __name__ == "__main__":
    main()
