"""Curves for tests of rules, and ways to show them to rules whole and in pieces.

In:   arrays.
Out:  findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.rule import Rule

Series = Mapping[str, tuple[Any, ...]]  # name → steps, values, and segments if not all are of the first


def falling(count: int, start: float = 10.8, end: float = 3.0, noise: float = 0.01, seed: int = 0) -> np.ndarray:
    """The loss of a language model from scratch, with noise in ln."""
    course = end + (start - end) * (1 + np.arange(count) / max(count / 60, 2)) ** -0.7
    return course * np.exp(np.random.default_rng(seed).normal(0, noise, count))


def found(rules: Iterable[Rule], series: Series, pieces: Iterable[int] = (), **facts: Any) -> list[Finding]:
    """What rules find in series. pieces: rows of the longest series up to which rows are shown first; those of other
    series come with the same segments and steps.
    """
    examiner = Examiner(list(rules), facts)
    if series:
        longest = max(series.values(), key=lambda one: len(one[0]))
        place = _places(longest)
        borders = [tuple(place[row]) for row in sorted(pieces) if row < len(place)]
        shown = dict.fromkeys(series, 0)
        for border in [*borders, None]:
            for name, one in series.items():
                mine = _places(one)
                end = len(mine) if border is None else shown[name]
                while border is not None and end < len(mine) and tuple(mine[end]) < border:
                    end += 1
                part = slice(shown[name], end)
                if end > shown[name]:
                    steps = np.asarray(one[0])[part]
                    values = np.asarray(one[1], float)[part]
                    examiner.seen.add(name, steps, values, steps.astype(np.int64) * 1_000_000, mine[part, 0])
                shown[name] = end
            examiner.seen.facts["finished"] = border is None
            examiner.examine()
    assert not examiner.failed, examiner.failed
    return sorted(examiner.findings, key=lambda one: (one.rule, one.key, one.segment, one.step))


def _places(one: tuple[Any, ...]) -> np.ndarray:
    """Segment and step of each row [n, 2]."""
    segments = one[2] if len(one) > 2 else np.ones(len(one[0]), int)
    return np.stack([np.asarray(segments, int), np.asarray(one[0], int)], axis=1).reshape(-1, 2)


def warned(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are more than info."""
    return [one for one in findings if one.severity != "info"]


VALUES = st.lists(
    st.one_of(
        st.floats(0.01, 20),
        st.sampled_from([0.0, 0.0, -1.0, 2.5, 2.5, float("nan"), float("inf"), float("-inf"), 1e300, 1e-300]),
    ),
    max_size=300,
)
"""What a column may hold."""


@st.composite
def columns(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[dict[str, tuple[Any, ...]], list[int]]:
    """Some columns of one length, in one or two segments, and rows at which they are cut."""
    first = draw(VALUES)
    times = draw(st.integers(1, 3))
    length = len(first) * times
    series: dict[str, tuple[Any, ...]] = {}
    border = draw(st.integers(0, 2 * length + 1))
    back = draw(st.integers(0, 50))
    segments = np.where(np.arange(length) < border, 1, 2)
    steps = np.where(segments == 1, np.arange(length), np.arange(length) - min(back, border))
    for name in names:
        values = (first if name == names[0] else draw(VALUES)) * times
        count = min(len(values), length)
        if count and draw(st.booleans()) | (name == names[0]):
            series[name] = (steps[:count], np.array(values[:count], float), segments[:count])
    cuts = draw(st.lists(st.integers(1, max(length, 1)), max_size=12))
    return series, cuts
