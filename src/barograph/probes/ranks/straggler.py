"""Which rank do the others wait for? From step and wait times of every rank, a verdict.

In:   each step's duration and each rank's time of waiting for the others, in milliseconds.
Out:  a finding when a rank is slower than the others for good, and one when it is over.

In a synchronous training every step takes equally long on every rank: who is quick waits, and who is slow
is waited for. So the straggler is the rank that waits least, and what it did in a step is `step − wait`,
its own work. A rank's *excess* in a step is its own work over the median of the others' own work, minus 1.

A rank is named when, over a window of the last W steps,

1. the median of its excess is at least 10% in the older and in the newer half of the window. FALCON calls
   a shift of 10% a fail-slow (ATC '25), TraceML warns at 10% and calls 20% critical. Medians of two halves
   leave out evaluations, checkpoints and garbage collections of single steps, and bursts of up to W/4 steps;
2. the median stands 6 standard errors above zero, the error being that of a median, 1.2533 σ / √W, with
   σ = 1.4826 × the median absolute deviation: jitter alone must not reach 10%. One rank at one moment
   passes by chance once in a thousand million. (σ out of 40 steps is rough: 5 errors named healthy ranks. So σ
   is the larger one of the window's and of the last 160 steps'.)

W is 40, so that a slowdown of 15% in jitter of 5% is named within 30 to 40 steps, and 160 for those that 40
noisy steps can't prove. A named rank has recovered when the median excess of the last W steps is below 5%:
half of what named it, so that a rank near the threshold isn't named again and again. Its window then starts
anew.

The object is pure: the same times in give the same findings out, live or out of a log.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

SLOWER = 0.10
OVER = 0.05
ERRORS = 6.0
WINDOWS = (40, 160)
_MEDIAN_ERROR = 1.2533  # √(π/2): a median's standard error in units of a mean's, for normal noise
_SIGMA = 1.4826  # a normal distribution's σ in median absolute deviations


class StragglerFinding(NamedTuple):
    """A rank is slower than the others (`recovered` False), or isn't any more.

    slower_by: fraction of own work over the median of the others'; since: the first slow step (of a recovery:
    the first good one); window: steps looked at; votes: how many of them were 10% slow; p: probability of
    that median by chance; waits_least: whether it waited least of all (None without wait times).
    """

    rank: int
    recovered: bool
    slower_by: float
    since: int
    step: int
    window: int
    votes: int
    p: float
    waits_least: bool | None


class StragglerWatch:
    """Feed it every step; it says when a rank becomes the one that others wait for, and when no more."""

    def __init__(self, slower: float = SLOWER, over: float = OVER, windows: Sequence[int] = WINDOWS):
        self.slower, self.over, self.windows = slower, over, tuple(sorted(windows))
        self.named: dict[int, StragglerFinding] = {}
        self._excess: list[deque[float]] = []
        self._waits: list[deque[float]] = []
        self._steps: deque[int] = deque(maxlen=self.windows[-1])
        self._runs: list[list[int]] = []  # for each rank and window: slow steps in the older and the newer half

    def observe(
        self, step: int, step_ms: Sequence[float], wait_ms: Sequence[float] | None = None
    ) -> list[StragglerFinding]:
        """The findings that this step brings, mostly none. One duration a rank; another number of ranks starts anew.

        A step without a finite, positive duration on every rank is left out. Without wait times (None, or one
        that is not finite) the durations themselves are compared: right where ranks don't wait for each other.
        """
        ranks = len(step_ms)
        if ranks < 2 or not all(0 < duration < math.inf for duration in step_ms):
            return []
        if len(self._excess) != ranks:
            self._begin(ranks)
        waits = list(wait_ms) if wait_ms is not None and len(wait_ms) == ranks else []
        if not all(math.isfinite(wait) for wait in waits):
            waits = []
        # a wait that fills its step has been measured across its borders: a hundredth is work at the least
        work = [max(d - w, d * 0.01) for d, w in zip(step_ms, waits, strict=True)] if waits else list(step_ms)
        self._steps.append(step)
        result = []
        for rank, excess in enumerate(excesses(work)):
            self._push(rank, excess)
            self._waits[rank].append(waits[rank] if waits else math.nan)
        for rank in range(ranks):
            finding = self._look(rank)
            if finding is not None:
                result.append(finding)
        return result

    def _begin(self, ranks: int) -> None:
        self.named.clear()
        self._steps.clear()
        self._excess = [deque(maxlen=self.windows[-1]) for _ in range(ranks)]
        self._waits = [deque(maxlen=self.windows[-1]) for _ in range(ranks)]
        self._runs = [[0] * (2 * len(self.windows)) for _ in range(ranks)]

    def _push(self, rank: int, excess: float) -> None:
        """Keep the count of slow steps in each half of each window: a median of 10% is half of them slow."""
        column, counts, length = self._excess[rank], self._runs[rank], len(self._excess[rank])
        counts_here = excess >= self.slower
        for at, window in enumerate(self.windows):
            half = window // 2
            counts[2 * at + 1] += counts_here
            if length >= half and column[length - half] >= self.slower:  # leaves the newer half for the older
                counts[2 * at + 1] -= 1
                counts[2 * at] += 1
            if length >= window and column[length - window] >= self.slower:
                counts[2 * at] -= 1
        column.append(excess)

    def _look(self, rank: int) -> StragglerFinding | None:
        if rank in self.named:
            return self._look_again(rank, self.named[rank])
        for at, window in enumerate(self.windows):
            older, newer = self._runs[rank][2 * at : 2 * at + 2]
            # only a candidate costs more than this comparison
            if len(self._excess[rank]) >= window and 2 * older > window // 2 and 2 * newer > window // 2:
                finding = self._judge(rank, window, older + newer)
                if finding is not None:
                    self.named[rank] = finding
                    return finding
        return None

    def _look_again(self, rank: int, named: StragglerFinding) -> StragglerFinding | None:
        """Whether the named rank has recovered. The count of slow steps says whether it's worth a median."""
        window, at = named.window, self.windows.index(named.window)
        slow = sum(self._runs[rank][2 * at : 2 * at + 2])
        if 2 * slow > window:
            return None
        recent = list(self._excess[rank])[-window:]
        middle = median(recent)
        if middle >= self.over:
            return None
        since = self._since(recent, named.slower_by / 2, below=True)
        finding = StragglerFinding(
            rank, True, middle, since, self._steps[-1], window, slow, 1.0, self._least(rank, window)
        )
        del self.named[rank]
        self._excess[rank].clear()
        self._runs[rank] = [0] * len(self._runs[rank])
        return finding

    def _judge(self, rank: int, window: int, votes: int) -> StragglerFinding | None:
        recent = list(self._excess[rank])[-window:]
        middle = median(recent)
        # by chance 40 steps may be quieter than the rank is: the noisier of the window and all that is known
        sigma = _SIGMA * max(deviation(recent), deviation(list(self._excess[rank])))
        error = _MEDIAN_ERROR * sigma / math.sqrt(window)
        errors = middle / error if error else math.inf
        if errors < ERRORS:
            return None
        chance = 0.5 * math.erfc(errors / math.sqrt(2))
        since = self._since(recent, middle / 2, below=False)
        return StragglerFinding(
            rank, False, middle, since, self._steps[-1], window, votes, chance, self._least(rank, window)
        )

    def _since(self, recent: list[float], border: float, below: bool) -> int:
        """The step of the change: from it on, the steps on their side of the border outnumber the others most."""
        steps = list(self._steps)[-len(recent) :]
        score = best = 0
        since = steps[0]
        for at in range(len(recent) - 1, -1, -1):  # a cumulative sum, from the end backwards
            score += 1 if (recent[at] < border) == below else -1
            if score > best:
                best, since = score, steps[at]
        return since

    def _least(self, rank: int, window: int) -> bool | None:
        usual = [median(list(column)[-window:]) for column in self._waits]
        return usual[rank] == min(usual) if all(math.isfinite(wait) for wait in usual) else None


def excesses(work: Sequence[float]) -> list[float]:
    """Each value over the median of all others, minus 1. At least two positive values."""
    ordered, count = sorted(work), len(work)
    rest = count - 1
    low, high = (rest - 1) // 2, rest // 2
    result = []
    for value in work:
        # the median of the others, out of the order of all: places behind the value move up by one
        left = ordered[low + (value <= ordered[low])]
        right = ordered[high + (value <= ordered[high])]
        result.append(2 * value / (left + right) - 1)
    return result


def deviation(values: Sequence[float]) -> float:
    """The median absolute deviation from the median."""
    middle = median(values)
    return median([abs(value - middle) for value in values])


def median(values: Sequence[float]) -> float:
    """The middle value; of an even number the mean of the two in the middle."""
    ordered, count = sorted(values), len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
