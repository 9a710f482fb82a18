"""The course of a run: what a console's line needs from the records before it.

In:   step, evaluation, router and speed-of-light records, in order, and the clock's time at each.
Out:  a `ShownStep` or an `Evaluation`: the record's own numbers with trend, spike, gap, progress, pace.

NaN and infinity are reported where they appear and enter no average, so one bad step blinds nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from barograph.core.record import Record
from barograph.core.text import escape
from barograph.core.utilization import PERCENT_NAMES, mfu_fraction


def number(value: Any) -> float | None:
    """A float of whatever is numeric, else None."""
    if not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond 1e308
        return math.inf if value > 0 else -math.inf
    except Exception:  # a subclass with ideas of its own
        return None


def mfu_percent(fields: Mapping[str, Any]) -> float | None:
    """The model FLOPs utilisation of a step in percent, under any of the names that it may have."""
    for name in ("mfu", *PERCENT_NAMES):
        value = number(fields.get(name))
        if value is not None:
            return mfu_fraction(value, name, fields) * 100
    return None


def finite(value: float | None) -> bool:
    """Whether there is a value, neither NaN nor infinite."""
    return value is not None and math.isfinite(value)


def positive(value: Any) -> float | None:
    """The value if it is a finite number above 0, else None."""
    found = number(value)
    return found if found is not None and 0 < found < math.inf else None


@dataclass(slots=True)
class ShownStep:
    """A training step as lines show it; None is "not known"."""

    step: int
    total: float | None  # steps planned
    progress: float | None  # percent of the run, or of the epoch where the run's length is unknown
    epoch: float | None
    loss: float | None
    trend: str  # "\\" falling, "/" rising, " "
    smoothed: float | None  # debiased exponential average of the loss
    norm: float | None
    spike: bool
    lr: float | None
    tokens_per_second: float | None
    duration_ms: float | None
    aux_loss: float | None
    imbalance: float | None
    sol: float | None  # percent of the speed of light
    eta: float | None  # seconds
    trained_ms: float | None  # training time so far
    step_ms: float | None  # its mean over the steps
    warm_seconds: float  # training time so far without the first ten steps
    warm_eta: float | None  # seconds, by the mean without the first ten steps
    fields: Mapping[str, Any]


@dataclass(slots=True)
class Evaluation:
    """An evaluation as lines show it."""

    step: int
    name: str  # of the data set, where there are several
    total: float | None
    loss: float | None
    gap: float | None  # evaluation loss - mean training loss since the evaluation before
    tokens_per_second: float | None
    duration_ms: float | None
    trained_ms: float | None
    step_ms: float | None
    fields: Mapping[str, Any]


class Course:
    """Follows one run. `total_steps` and `total_tokens`, its planned length, may be set at any time."""

    def __init__(self, total_steps: Any = None, total_tokens: Any = None):
        self.total_steps = total_steps
        self.total_tokens = total_tokens
        self._previous_loss: float | None = None
        self._norms = NormAverage()
        self._smoothed = DebiasedMean()
        self._losses = Mean()
        self._best: dict[str, float] = {}  # least finite val_loss and val_bpb
        self._compared: tuple[int, float | None] | None = None
        self._router: tuple[int | None, float | None, float | None] = (None, None, None)  # step, and what it had
        self._unseen = False  # no line has shown the router's figures yet
        self._light: float | None = None  # tokens per second at the speed of light
        self._pace = Pace()
        self._trained = Elapsed()
        self._given: tuple[int | None, float, float] = (None, 0.0, 0.0)  # a row's step, training time, mean of a step
        self._warm = Elapsed(skip=10)  # as picoLLM: compilation and warm-up are not the pace of the run

    def sol(self, record: Record) -> None:
        """Take in a speed-of-light estimate."""
        self._light = positive(record.fields.get("tps"))

    def moe(self, record: Record) -> None:
        """Take in router statistics: the next line shows them, and so does one of the same step."""
        fields = record.fields
        self._unseen = True
        self._router = (record.step, number(fields.get("aux_loss")), number(fields.get("load_imbalance")))

    def step(self, record: Record, now: float) -> ShownStep:
        """Take in a training step; `now` in seconds of any clock."""
        fields, step = record.fields, _bounded(record.step)
        loss, norm = number(fields.get("loss")), number(fields.get("norm"))
        tokens, duration = number(fields.get("step_tokens")), number(fields.get("duration_ms"))
        epoch = number(fields.get("epoch"))
        speed = _speed(fields, tokens, duration)
        spent = duration / 1000 if duration is not None and 0 <= duration < math.inf else 0.0
        self._pace.add(now, step, tokens if tokens is not None and 0 <= tokens < math.inf else 0.0, spent)
        self._trained.add(step, spent)
        self._warm.add(step, spent)
        total = positive(self.total_steps)
        trained, mean_step = self._spent_ms(fields, step)
        warm = number(fields.get("total_training_time"))
        aux, imbalance = self._routing(record)
        return ShownStep(
            step=step,
            total=total,
            progress=self._progress(step, epoch),
            epoch=epoch,
            loss=loss,
            trend=self._trend(loss),
            smoothed=self._smoothed.add(loss),
            norm=norm,
            spike=self._norms.flag(norm),
            lr=number(fields.get("lr")),
            tokens_per_second=speed,
            duration_ms=duration,
            aux_loss=aux,
            imbalance=imbalance,
            sol=100 * speed / self._light if speed is not None and self._light else None,
            eta=self._pace.eta(total, positive(self.total_tokens)),
            trained_ms=trained,
            step_ms=mean_step,
            warm_seconds=warm if warm is not None else self._warm.seconds,
            warm_eta=max(0.0, total - step) * self._warm.mean if total and step > 10 else None,
            fields=fields,
        )

    def evaluation(self, record: Record) -> Evaluation:
        """Take in an evaluation. Several at one step (one a data set) compare with the same training steps."""
        fields, step = record.fields, _bounded(record.step)
        loss, duration = number(fields.get("loss")), number(fields.get("duration_ms"))
        for name, value in (("val_loss", loss), ("val_bpb", number(fields.get("val_bpb", fields.get("bpb"))))):
            if value is not None and math.isfinite(value) and not fields.get("name"):
                self._best[name] = min(value, self._best.get(name, value))
        if self._losses.count or self._compared is None or self._compared[0] != step:
            self._compared = (step, self._losses.value if self._losses.count else None)
            self._losses = Mean()
        mean = self._compared[1]
        trained, mean_step = self._spent_ms(fields, step)
        return Evaluation(
            step=step,
            name=escape(fields.get("name") or "", 60),
            total=positive(self.total_steps),
            loss=loss,
            gap=loss - mean if loss is not None and mean is not None else None,
            tokens_per_second=_speed(fields, number(fields.get("eval_tokens")), duration),
            duration_ms=duration,
            trained_ms=trained,
            step_ms=mean_step,
            fields=fields,
        )

    def state(self) -> dict[str, float]:
        """What a later process needs to go on as if it were this one, by picoLLM's names for a loop's state.

        `smooth_train_loss` is the sum before debiasing, as picoLLM keeps it; `smooth_train_weight` its divisor.
        """
        found = {f"min_{name}": value for name, value in self._best.items()}
        if self._smoothed.weight:
            found |= {"smooth_train_loss": self._smoothed.sum, "smooth_train_weight": self._smoothed.weight}
        return found | {"total_training_time": self._warm.seconds}

    def restore(self, state: Mapping[str, Any], step: int) -> None:
        """Go on from `state()`, or from picoLLM's own loop state, of a checkpoint after `step`."""
        total, weight = number(state.get("smooth_train_loss")), number(state.get("smooth_train_weight"))
        if weight is None:
            weight = 1 - 0.9 ** (max(step, 0) + 1)
        if total is not None and math.isfinite(total) and 0 < weight <= 1:
            self._smoothed.restore(total, weight)
        trained = number(state.get("total_training_time"))
        if trained is not None and 0 <= trained < math.inf:
            self._warm.restore(trained, step)
        for name in ("val_loss", "val_bpb"):
            best = number(state.get(f"min_{name}"))
            if best is not None and math.isfinite(best):
                self._best[name] = best

    def _spent_ms(self, fields: Mapping[str, Any], step: int) -> tuple[float | None, float | None]:
        """Training time so far and mean time of a step: as given for this step, else as added up; None: not known."""
        trained, mean_step = number(fields.get("training_time_ms")), number(fields.get("step_avg_ms"))
        if trained is not None:
            self._given = step, trained, trained / max(step, 1) if mean_step is None else mean_step
        if self._given[0] == step:
            return self._given[1:]
        if self._trained.seconds > 0 or step <= 0:
            return 1000 * self._trained.seconds, 1000 * self._trained.mean if mean_step is None else mean_step
        return None, mean_step

    def _trend(self, loss: float | None) -> str:
        if loss is None or not math.isfinite(loss):
            return " "
        self._losses.add(loss)
        before, self._previous_loss = self._previous_loss, loss
        if before is None or loss == before:
            return " "
        return "\\" if loss < before else "/"

    def _progress(self, step: int, epoch: float | None) -> float | None:
        if steps := positive(self.total_steps):
            share = step / steps
        elif tokens := positive(self.total_tokens):
            share = self._pace.tokens / tokens
        elif epoch is not None and math.isfinite(epoch):
            share = math.modf(epoch)[0] or float(epoch > 0)  # the end of an epoch, not the begin of the next
        else:
            return None
        return max(0.0, 100 * share) if math.isfinite(share) else None

    def _routing(self, record: Record) -> tuple[float | None, float | None]:
        aux, imbalance = (number(record.fields.get(name)) for name in ("moe_aux_loss", "moe_load_imbalance"))
        fresh, self._unseen = self._unseen, False
        if aux is None and imbalance is None and (fresh or self._router[0] == record.step):
            return self._router[1:]
        return aux, imbalance


def _bounded(step: int) -> int:
    """A step within 64 bits, as the logger keeps them; a foreign log may hold anything."""
    return max(-(1 << 63), min(step, (1 << 63) - 1))


def _speed(fields: Mapping[str, Any], tokens: float | None, duration_ms: float | None) -> float | None:
    """Tokens per second, as given, or as the Surogate metrics guide defines it; None where it has no meaning."""
    result = number(fields.get("tokens_per_second"))
    if result is not None:
        return result
    if tokens is None or duration_ms is None or not duration_ms > 0:
        return None
    return tokens / duration_ms * 1000


class Mean:
    """A running mean that cannot overflow."""

    def __init__(self) -> None:
        self.count, self.value = 0, 0.0

    def add(self, value: float) -> None:
        """Take in a finite value."""
        self.count += 1
        moved = self.value + (value - self.value) / self.count
        if math.isfinite(moved):
            self.value = moved


class NormAverage:
    """Flags a gradient norm above 5 times the moving average of the finite norms before it (Surogate metrics guide).

    The average is plain over the first 100 norms, then exponential with a weight of 0.1 for the newest; it
    speaks after 10. A non-finite norm is flagged always.
    """

    def __init__(self) -> None:
        self._mean = Mean()

    def flag(self, norm: float | None) -> bool:
        """Whether the norm is a spike; then it joins the average."""
        if norm is None:
            return False
        if not math.isfinite(norm):
            return True
        mean = self._mean
        spike = mean.count >= 10 and mean.value > 0 and norm > 5 * mean.value
        if mean.count < 100:
            mean.add(norm)
        else:
            mean.value = 0.9 * mean.value + 0.1 * norm
        return spike


class DebiasedMean:
    """An exponential average with beta 0.9, debiased: after n finite values divided by 1 - 0.9^n (picoLLM)."""

    def __init__(self) -> None:
        self.sum, self._missing = 0.0, 1.0

    @property
    def weight(self) -> float:
        """What the sum is divided by: 1 - 0.9^n."""
        return 1 - self._missing

    def add(self, value: float | None) -> float | None:
        """The average with this value in it; a non-finite value is given back and left out of the average."""
        if value is None or not math.isfinite(value):
            return value
        self.sum = 0.9 * self.sum + 0.1 * value
        self._missing *= 0.9
        return self.sum / self.weight

    def restore(self, total: float, weight: float) -> None:
        """Go on from the sum and its divisor."""
        self.sum, self._missing = total, 1 - weight


class Elapsed:
    """Training time by the steps' durations. Steps up to `skip` do not count.

    What came before the first step seen (a resumed run) is taken to have had the pace of what was seen.
    """

    def __init__(self, skip: int = 0):
        self._skip, self._count, self._unseen, self._sum = skip, 0, 0, 0.0
        self._last: int | None = None

    def add(self, step: int, seconds: float) -> None:
        """Take in a step; where steps between were not logged, they took as long as this one."""
        if self._skip and step <= self._skip:
            return
        if self._last is None:
            self._unseen = max(0, step - self._skip - 1)
        stride = max(1, step - self._last) if self._last is not None else 1
        self._last = step
        self._count += stride
        self._sum += seconds * stride

    def restore(self, seconds: float, step: int) -> None:
        """Go on after `step`, up to which it took so long."""
        self._sum, self._last, self._unseen = seconds, step, 0
        self._count = max(0, step - self._skip)

    @property
    def mean(self) -> float:
        """Seconds a step."""
        return self._sum / self._count if self._count else 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self._sum + self.mean * self._unseen


class _Mark(NamedTuple):
    now: float
    step: int
    tokens: float
    logged: float  # sum of the durations logged
    busy: float  # the same, with steps that were not logged


class Pace:
    """How fast a run moves towards its end, over its last 64 logged steps.

    By the clock, so that evaluations and checkpoints count; by the steps' durations where the clock says
    nothing: at the first step after a start or resume, and when an old log is drawn.
    """

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque(maxlen=65)

    @property
    def tokens(self) -> float:
        """Tokens seen since the run began; steps that were not logged had as many as those that were."""
        return self._marks[-1].tokens if self._marks else 0.0

    def add(self, now: float, step: int, tokens: float, seconds: float) -> None:
        """Take in a step of `tokens` tokens that took `seconds`."""
        if not self._marks:
            self._marks.append(_Mark(now, step, tokens * max(step, 1), seconds, seconds))
            return
        last = self._marks[-1]
        if step < last.step:  # a rewind: the pace is measured anew
            kept = last.tokens * max(step, 0) / last.step if last.step > 0 else 0.0
            self._marks.clear()
            self._marks.append(_Mark(now, step, kept, seconds, seconds))
            return
        stride = step - last.step
        self._marks.append(
            _Mark(now, step, last.tokens + tokens * stride, last.logged + seconds, last.busy + seconds * stride)
        )

    def eta(self, total_steps: float | None, total_tokens: float | None) -> float | None:
        """Seconds to the end, 0 or more; None where length or pace is unknown."""
        if not self._marks or (total_steps is None and total_tokens is None):
            return None
        first, last = self._marks[0], self._marks[-1]
        steps, tokens = float(last.step - first.step), last.tokens - first.tokens
        seconds = last.now - first.now
        if steps <= 0:
            steps, seconds, tokens = 1.0, last.busy, last.tokens / max(last.step, 1)
        elif not seconds >= 0.5 * (last.logged - first.logged):
            seconds = last.busy - first.busy
        if total_steps is not None:
            left, done = total_steps - last.step, steps
        else:
            left, done = (total_tokens or 0.0) - last.tokens, tokens
        if not done > 0:
            return None
        found = max(0.0, left) * max(0.0, seconds) / done
        return found if math.isfinite(found) else None
