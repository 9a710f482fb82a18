"""Watching: all thresholds over all metrics of a run.

In:   rows of numbers; the time.
Out:  what stands and what is over, metric by metric.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barograph.core.roles import ROLES, candidates
from barograph.sidecar.alerts.thresholds import Answer, Threshold, Watched

_MOST_NAMES = 20_000  # whose thresholds are remembered; others are matched again
_MOST_WATCHED = 1_000  # metrics under one pattern
_SOON = 100  # rows after which a name that is not logged is reported
_ALIKE = 0.85  # share of letters: a slip of the pen
_LOSSES = {"loss": 0, "eval_loss": 1}  # places of these roles in a run's losses


class Watching:
    """Belongs to one thread, but for `add`, which replaces what it changes. timed: whether time alone says anything.

    losses: says which of the run's series are the training's losses, and which the evaluations', by whatever tells it.
    """

    def __init__(self, losses: Callable[[], Sequence[Sequence[str]]] = tuple) -> None:
        self.timed = False
        self._losses = losses
        self._entries: list[tuple[Threshold, re.Pattern[str], dict[str, Watched]]] = []
        self._known: dict[str, tuple[Watched, ...]] = {}
        self._places: dict[int, tuple[Any, tuple[tuple[int, Watched], ...]]] = {}
        self._rows = 0
        self._crowded: set[int] = set()
        self._asked = 0  # entries whose names were looked for among those seen

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, threshold: Threshold, now: float) -> None:
        """Watch for one more."""
        watched = {} if threshold.is_pattern else {threshold.metric: Watched(threshold, threshold.metric, now)}
        self._entries = [*self._entries, (threshold, threshold.pattern(), watched)]
        self._known, self._places = {}, {}
        self.timed |= threshold.missing is not None

    def of(self, name: str, now: float) -> tuple[Watched, ...]:
        """What is watched under this name."""
        result = self._known.get(name)
        if result is None:
            known = self._known
            result = tuple(self._match(name, now))
            if len(known) < _MOST_NAMES:
                known[name] = result
        return result

    def _match(self, name: str, now: float) -> Iterator[Watched]:
        for at, (threshold, pattern, watched) in enumerate(self._entries):
            if name in watched:
                yield watched[name]
            elif name == threshold.metric or (threshold.is_pattern and pattern.match(name)):
                if len(watched) >= _MOST_WATCHED:
                    self._crowded.add(at)
                    continue
                watched[name] = Watched(threshold, name, now)
                yield watched[name]

    def take(
        self, names: tuple[str, ...], values: Sequence[float], step: int, now: float
    ) -> list[tuple[Watched, Answer]]:
        """What a row's numbers say; only those watched are looked at."""
        self._rows += 1
        if self._rows == _SOON:
            self._adopt(now)
        held = self._places.get(id(names))
        if held is None or held[0] is not names:
            places = tuple((at, item) for at, name in enumerate(names) for item in self.of(name, now))
            if len(self._places) > 1000:
                self._places = {}
            self._places[id(names)] = (names, places)  # held, so that the identity stays its own
        else:
            places = held[1]
        result: list[tuple[Watched, Answer]] = []
        for at, watched in places:
            answer = watched.see(values[at], step, now)
            if answer != "quiet":
                result.append((watched, answer))
        return result

    def tick(self, now: float, step: int) -> Iterator[tuple[Watched, Answer]]:
        """What the time says: metrics that are missing."""
        for threshold, _, watched in self._entries:
            if threshold.missing is not None:
                for item in tuple(watched.values()):
                    answer = item.tick(now, step)
                    if answer != "quiet":
                        yield item, answer

    def begin(self, now: float) -> None:
        """The time at which the run begins: from then on a metric may be missing."""
        for _, _, watched in self._entries:
            for item in watched.values():
                item.begin(now)

    def _adopt(self, now: float) -> None:
        """Have thresholds whose metric is not logged watch the one that plays its role."""
        for threshold, _, watched in self._entries:
            if threshold.is_pattern or threshold.metric in self._known:
                continue
            same = self._same_role(threshold.metric, list(self._known)[:2000])
            if same:
                watched[same] = Watched(threshold, same, now)
                self._known[same] = (*self._known[same], watched[same])
                self._places = {}

    def _same_role(self, metric: str, seen: Sequence[str]) -> str:
        """The metric among those seen that plays the same role as this name, `train/norm` for `grad_norm`; or empty."""
        named = dict.fromkeys(seen, ())
        for role in ROLES:
            if candidates(role, {metric: ()}, lambda name: 0):
                found = candidates(role, named, lambda name: 0)
                if not found and role in _LOSSES:  # of any name
                    found = [name for some in self._losses()[_LOSSES[role] :][:1] for name in some if name in named]
                return next(iter(found), "")
        return ""

    def doubts(self) -> list[tuple[str, str]]:
        """A key and a sentence for each entry that may not do what was meant; each once."""
        result = []
        while self._crowded:
            metric = self._entries[self._crowded.pop()][0].metric
            result.append((
                f"crowded {metric}",
                f"the alert on {metric!r} fits more than {_MOST_WATCHED} metrics; it watches the first of them",
            ))  # fmt: skip
        if self._rows < _SOON or self._asked == len(self._entries):
            return result
        fresh, self._asked = self._entries[self._asked :], len(self._entries)
        wanted = {threshold.metric for threshold, _, _ in self._entries}
        seen = [name for name in self._known if name not in wanted][:2000]
        for threshold, _, watched in fresh:
            if threshold.is_pattern or threshold.metric in self._known:
                continue
            same = next((name for name in watched if name != threshold.metric), "")
            near = difflib.get_close_matches(threshold.metric, seen, n=1, cutoff=_ALIKE)
            if same:
                sentence = f"the alert on {threshold.metric!r} has seen no value; it watches {same!r} from here on"
                result.append((f"unseen {threshold.metric}", sentence))
            elif near:
                sentence = f"the alert on {threshold.metric!r} has seen no value yet; is {near[0]!r} meant?"
                result.append((f"unseen {threshold.metric}", sentence))
        return result
