"""The steps of a run's segments: which count, which were superseded, how many each logged one stands for.

In:   a stored run; if wanted, the moment up to which it is looked at.
Out:  `Tracks`: sums of steps and tokens, kept and discarded; `TrackPart`, a segment in numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barograph.core.segments import Segment
from barograph.query.losses import run_losses
from barograph.query.stored import StoredRun
from barograph.store.branch import Branch

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Integers = NDArray[numpy.int64]
    Floats = NDArray[numpy.float64]

_MAIN = ("train/mean_loss", "train/step_tokens")  # have a point a logged step, as the loss has
# families that a run has without a step of its training
_BESIDE = ("goodput/", "energy/", "host/", "gpu/", "memory/", "allocator/", "span/", "ranks/", "sol/", "watch/")
_SEEN = ("data/tokens_seen", "train/tokens_seen")


@dataclass(frozen=True)
class TrackPart:
    """One segment. first, last: the steps that it logged, None if none. kept_to: the last of them that counts.

    kept, thrown: how many of its steps count, and how many were superseded. began: seconds since 1970.
    """

    segment: Segment
    first: int | None
    last: int | None
    kept_to: int | None
    kept: int
    thrown: int

    @property
    def began(self) -> float:
        return self.segment.time / 1e6

    def as_dict(self) -> dict[str, Any]:
        return {
            "segment": self.segment.number,
            "kind": self.segment.kind,
            "parent": self.segment.parent,
            "start_step": self.segment.start_step,
            "began": self.began or None,
            "first_step": self.first,
            "last_step": self.last,
            "kept_to": self.kept_to,
            "kept_steps": self.kept,
            "thrown_steps": self.thrown,
        }


class Tracks:
    """The logged steps of a run's own segments, how many steps each stands for, and its tokens.

    until: µs since 1970; segments begun later did not exist yet.
    """

    def __init__(self, run: StoredRun, until: int | None = None):
        import numpy

        found = run.segments
        earlier = [item for item in found if until is None or item.time <= until]
        self.segments: list[Segment] = earlier or found or [Segment(1)]
        known = set(run.names())
        names = [name for name in (run_losses(run, run.names()).loss, *_MAIN) if name in known] or [
            name for name in sorted(known) if not name.startswith(_BESIDE)
        ][:20]
        columns = max((run.columns(name, "all") for name in names), key=lambda item: len(item[0]), default=None)
        step, _, _, number = columns if columns is not None else (numpy.empty(0, numpy.int64),) * 4
        self.steps_of: dict[int, Integers] = {
            segment.number: numpy.unique(step[number == segment.number]) for segment in self.segments
        }
        self._first = run.first_steps()
        self.cuts = Branch(self.segments, self._first).cuts
        self._weight = {segment.number: self._weights(segment) for segment in self.segments}
        self._token = self._tokens_of(run, known)

    def _weights(self, segment: Segment) -> Floats:
        """How many steps each logged one stands for: those since the logged one before it on its path."""
        import numpy

        mine = self.steps_of[segment.number]
        if not len(mine):
            return numpy.empty(0)
        gaps = numpy.diff(mine).astype(numpy.float64)
        usual = float(numpy.median(gaps)) if len(gaps) else 1.0
        before = self._before(segment, int(mine[0]))
        if before is None and segment.source and segment.start_step is not None:
            before = segment.start_step - 1
        start = float(mine[0] - before) if before is not None else min(max(1.0, float(mine[0])), usual)
        return numpy.concatenate([[max(start, 1.0)], gaps])

    def _before(self, segment: Segment, step: int) -> int | None:
        """The last step below `step` that was logged on the way to a segment."""
        import numpy

        path = [item for item in self.segments if item.number <= segment.number]
        best: int | None = None
        for number, cut in Branch(path, self._first).cuts.items():
            if number == segment.number:
                continue
            reach = step if cut is None else min(cut, step)
            at = int(numpy.searchsorted(self.steps_of[number], reach))
            if at:
                best = max(best or 0, int(self.steps_of[number][at - 1]))
        return best

    def _tokens_of(self, run: StoredRun, known: set[str]) -> dict[int, tuple[Integers, Floats]] | None:
        """Steps of each segment, and the tokens that each stands for; None where no tokens were logged."""
        import numpy

        each = "train/step_tokens" in known
        name = "train/step_tokens" if each else next((item for item in _SEEN if item in known), None)
        if name is None:
            return None
        step, _, value, number = run.columns(name, "all", rank=0)
        result = {}
        for segment in self.segments:
            mine = (number == segment.number) & numpy.isfinite(value)
            steps, at = numpy.unique(step[mine], return_index=True)
            amounts = value[mine][at]
            if not len(steps):
                continue
            if each:
                stands = numpy.interp(steps, self.steps_of[segment.number], self._weight[segment.number])
                result[segment.number] = steps, amounts * (stands if len(self.steps_of[segment.number]) else 1.0)
            else:
                gaps = numpy.maximum(numpy.diff(amounts), 0.0)
                rate = float(gaps.sum() / (steps[-1] - steps[0])) if len(gaps) else 0.0
                start = self._weight[segment.number][0] if len(self._weight[segment.number]) else 1.0
                result[segment.number] = steps, numpy.concatenate([[rate * start or amounts[0]], gaps])
        return result

    def _sum(self, amounts: dict[int, tuple[Integers, Floats]], live: bool, before: int | None) -> float:
        total = 0.0
        for number, (steps, stands) in amounts.items():
            kept = steps < self._reach(number)
            chosen = kept if live else ~kept
            if before is not None:
                chosen &= steps < before
            total += float(stands[chosen].sum())
        return total

    def _reach(self, number: int) -> float:
        """The step before which a segment counts; −∞ if none of it does."""
        cut = self.cuts.get(number, -1)
        return float("inf") if cut is None else float("-inf") if number not in self.cuts else float(cut)

    def carried(self, forks: Sequence[tuple[int, int]]) -> tuple[float, float | None]:
        """Steps and tokens that were discarded here and that forks go on from.

        forks: the step before which each shares the history, and when it was made, in µs since 1970.
        """
        import numpy

        held = {number: numpy.zeros(len(steps), bool) for number, steps in self.steps_of.items()}
        tokens = {number: numpy.zeros(len(item[0]), bool) for number, item in (self._token or {}).items()}
        for step, moment in forks:
            path = [segment for segment in self.segments if segment.time <= moment]
            for number, cut in Branch(path, self._first).cuts.items():
                reach = step if cut is None else min(cut, step)
                held[number] |= self.steps_of[number] < reach
                if number in tokens and self._token is not None:
                    tokens[number] |= self._token[number][0] < reach
        total = sum(
            float(self._weight[number][chosen & (self.steps_of[number] >= self._reach(number))].sum())
            for number, chosen in held.items()
        )
        if self._token is None:
            return total, None
        return total, sum(
            float(self._token[number][1][chosen & (self._token[number][0] >= self._reach(number))].sum())
            for number, chosen in tokens.items()
        )

    def steps(self, live: bool, before: int | None = None) -> float:
        amounts = {number: (steps, self._weight[number]) for number, steps in self.steps_of.items()}
        return self._sum(amounts, live, before)

    def tokens(self, live: bool, before: int | None = None) -> float | None:
        return None if self._token is None else self._sum(self._token, live, before)

    def parts(self) -> list[TrackPart]:
        result = []
        for segment in self.segments:
            steps, stands = self.steps_of[segment.number], self._weight[segment.number]
            kept = steps < self._reach(segment.number)
            result.append(
                TrackPart(
                    segment=segment,
                    first=int(steps[0]) if len(steps) else None,
                    last=int(steps[-1]) if len(steps) else None,
                    kept_to=int(steps[kept][-1]) if kept.any() else None,
                    kept=round(float(stands[kept].sum())),
                    thrown=round(float(stands[~kept].sum())),
                )
            )
        return result
