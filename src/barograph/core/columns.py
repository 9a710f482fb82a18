"""The maths of drawing a column: exact buckets, thinning, alignment, smoothing. Pure functions.

In:   NumPy columns: x (steps, times, …) and y, of one length n.
Out:  fewer points that still show every extreme and every NaN or infinity; columns on another x;
      smoothed columns.

Buckets. A bucket is a range of x of equal width, `x_first + k · width ≤ x`, as pixels of a chart are;
empty ones are left out. Without an x the place in the column is the x. Minimum and maximum are exact
and taken over finite values alone; of equal values the first counts. The same input always gives the
same output: nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core.lazy import lazy

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")


if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]


class Buckets(NamedTuple):
    """Columns of one length, one entry per bucket that is not empty, in the order of x.

    `x_first`, `x_last`: x of the bucket's first and last point; `y_last`: its last value, finite or not.
    `y_min`, `y_max`: over the finite values, NaN if there is none; `x_min`, `x_max`: their own x, else
    `x_first`. `points`: how many; `nan`, `inf`, `minus_inf`: how many of them are NaN, +Inf and -Inf.
    """

    x_first: NDArray[Any]
    x_last: NDArray[Any]
    y_min: Floats
    y_max: Floats
    x_min: NDArray[Any]
    x_max: NDArray[Any]
    y_last: Floats
    points: NDArray[np.int64]
    nan: NDArray[np.int64]
    inf: NDArray[np.int64]
    minus_inf: NDArray[np.int64]


def buckets(x: ArrayLike, y: ArrayLike, max_buckets: int, log: bool = False) -> Buckets:
    """At most `max_buckets` buckets of a column, of equal width in x; log: in log x, and one for all x ≤ 0.

    x, y [n]. Points whose x is not finite have no place and are left out. An x that goes back is sorted
    first, equal ones in their order. Raises ValueError for columns of different lengths or no buckets.
    """
    if max_buckets < 1:
        raise ValueError(f"at least one bucket is needed, not {max_buckets}")
    along, values, _ = _sorted_by(x, y)
    starts = _log_starts(along, max_buckets) if log else _starts(along, max_buckets)
    counts = np.diff(np.append(starts, len(values))).astype(np.int64)
    finite = np.isfinite(values)
    whole = bool(finite.all())
    low, low_at, high, high_at = _extremes(values, None if whole else finite, starts, counts)
    zero = np.zeros(len(starts), np.int64)
    return Buckets(
        along[starts],
        along[starts + counts - 1],
        low,
        high,
        along[low_at],
        along[high_at],
        values[starts + counts - 1],
        counts,
        zero if whole else _count(np.isnan(values), starts),
        zero if whole else _count(values == np.inf, starts),
        zero if whole else _count(values == -np.inf, starts),
    )


def thin_indices(y: ArrayLike, max_points: int, x: ArrayLike | None = None) -> Places:
    """The places of at most `max_points` points that draw a column as if all were drawn, in the order of x.

    y [n]; x [n] or None for the place itself. With n ≤ max_points, all of them. Otherwise, by importance:
    the minimum and maximum of every bucket, the first NaN, +Inf and -Inf of every bucket, the column's
    first and last point. The number of buckets b is the largest that surely fits, with m the number of non-finite
    points and k how many kinds of them (0 to 3) occur:

        b = max( ⌊(max_points - 2 - m) / 2⌋, ⌊(max_points - 2) / (2 + k)⌋, 1 )

    Raises ValueError if `max_points` is less than 2.
    """
    if max_points < 2:
        raise ValueError(f"a column can't be drawn with fewer than 2 points, not with {max_points}")
    given = np.asarray(y, np.float64)
    along, values, order = _sorted_by(np.arange(len(given)) if x is None else x, given)
    if len(values) <= max_points:
        return np.arange(len(values), dtype=np.intp) if order is None else order
    finite = np.isfinite(values)
    odd = np.flatnonzero(~finite)
    marks = [odd[kind] for kind in _kinds(values[odd])]
    kinds = sum(len(places) > 0 for places in marks)
    number = max((max_points - 2 - len(odd)) // 2, (max_points - 2) // (2 + kinds), 1)
    starts = _starts(along, number)
    counts = np.diff(np.append(starts, len(values)))
    low, low_at, _, high_at = _extremes(values, finite if len(odd) else None, starts, counts)
    has = np.isfinite(low)
    kept = [np.concatenate([low_at[has], high_at[has]])]
    for places in marks:
        bucket = np.searchsorted(starts, places, side="right")
        kept.append(places[np.diff(bucket, prepend=0) > 0])  # the first one of each bucket
    kept.append(np.array([0, len(values) - 1]))
    # the least important last, so that a budget too small for one bucket of everything drops those
    important = np.concatenate(kept)
    _, first = np.unique(important, return_index=True)
    chosen = np.sort(important[np.sort(first)[:max_points]])
    return chosen if order is None else order[chosen]


def thin(x: ArrayLike, y: ArrayLike, max_points: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The points (x, y) to draw: those of `thin_indices`. As they are if there are not more."""
    along, values = np.asarray(x), np.asarray(y)
    if len(along) != len(values):
        raise ValueError(f"x has {len(along)} points and y has {len(values)}")
    if len(values) <= max_points:
        return along, values
    places = thin_indices(values, max_points, along)
    return along[places], values[places]


def align(x_new: ArrayLike, x: ArrayLike, y: ArrayLike) -> Floats:
    """y at other x: at a known x its value, the last one if there are several, NaN and infinity included.

    Between two known points a < x < b: y(a) + (y(b) - y(a)) · (x - a) / (b - a); NaN if either is not
    finite, and NaN outside the known range: nothing is made up. x_new [k] and x, y [n] in any order.
    """
    along, values, _ = _sorted_by(x, y)
    wanted = np.asarray(x_new)
    result = np.full(len(wanted), np.nan)
    if not len(along):
        return result
    last = np.append(along[1:] != along[:-1], True)  # of equal x, the last
    along, values = along[last], values[last]
    right = np.searchsorted(along, wanted).clip(0, len(along) - 1)
    left = (right - 1).clip(0)
    exact = along[right] == wanted
    inside = ~exact & (wanted > along[0]) & (wanted < along[-1])
    inside &= np.isfinite(values[left]) & np.isfinite(values[right])
    result[exact] = values[right[exact]]
    a, b = left[inside], right[inside]
    # halves, so that the width of a range like -1e308 to 1e308 is a number
    part = (wanted[inside] / 2 - along[a] / 2) / (along[b] / 2 - along[a] / 2)
    result[inside] = values[a] * (1 - part) + values[b] * part  # this form can't overflow
    return result


def strides(steps: ArrayLike) -> Floats:
    """How many steps each logged row stands for: those since the row before. The first one: as many as the others,
    but none before step 0."""
    at = np.asarray(steps, np.float64)
    if len(at) < 2:
        return np.ones(len(at))
    gaps = np.diff(at)
    usual = float(np.median(gaps)) or 1.0
    first = min(max(1.0, float(at[0])), usual) if float(at[0]) < 2 * usual else float(at[0])
    return np.concatenate([[first], gaps])


def smooth(y: ArrayLike, factor: float) -> Floats:
    """The debiased exponential moving average, as charts show it.

    With f = `factor` (0 ≤ f < 1; 0 changes nothing) and n counting finite values so far:

        m_n = f · m_(n-1) + (1 - f) · y_n,  m_0 = 0;   result_n = m_n / (1 - fⁿ)

    NaN and infinities stay where they are and don't count: the average goes on behind them.
    Raises ValueError for a factor outside its range.
    """
    if not 0.0 <= factor < 1.0:
        raise ValueError(f"a smoothing factor is at least 0 and less than 1, not {factor}")
    result = np.array(y, np.float64)
    finite = np.isfinite(result)
    values = result[finite]
    if factor == 0.0 or not len(values):
        return result
    scale = float(np.abs(values).max()) or 1.0
    average = _running(values / scale, factor)
    # 1 - fⁿ by expm1: exact where f is close to 1
    average /= -np.expm1(np.arange(1, len(values) + 1) * np.log(factor))
    result[finite] = average.clip(-1.0, 1.0) * scale
    return result


def running_mean(y: ArrayLike, points: int) -> Floats:
    """The mean of the finite values among `points` places around each: as many behind as before, one more before where
    the number is even; fewer at both ends. NaN and infinities stay where they are and don't count.

    A value reaches no further than its window: each sum is put together from the values in it alone.
    """
    if points < 1:
        raise ValueError(f"a window has at least one point, not {points}")
    given = np.asarray(y, np.float64)
    finite = np.isfinite(given)
    width = min(points, 2 * len(given) + 1)
    sums, counts = (_window_sums(part, width) for part in (np.where(finite, given, 0.0), finite.astype(np.float64)))
    return np.where(finite, sums / np.maximum(counts, 1.0), given)


def gaussian(y: ArrayLike, points: int) -> Floats:
    """A bell-shaped mean of about `points` places around each: the running mean of a third of them, three times."""
    result = np.asarray(y, np.float64)
    for _ in range(3):
        result = running_mean(result, max(1, -(-points // 3)))
    return result


SMOOTHERS = {"ema": smooth, "mean": running_mean, "gaussian": gaussian}


def smoother(said: str | float) -> Callable[[ArrayLike], Floats] | None:
    """The smoothing that a text means: "0.9" or "ema:0.9", "mean:25", "gaussian:25"; None for none: "", "0", "mean:1".

    Raises ValueError with a sentence.
    """
    text = str(said).strip()
    kind, _, amount = text.rpartition(":")
    try:
        value = float(amount or 0)
    except ValueError:
        value = float("nan")
    kind = kind or "ema"
    if kind == "ema" and 0.0 <= value <= 0.9999:
        return (lambda y: smooth(y, value)) if value else None
    if kind in ("mean", "gaussian") and 1 <= value <= 100_000 and value == int(value):
        made = SMOOTHERS[kind]
        return (lambda y: made(y, int(value))) if value > 1 else None
    raise ValueError(
        f"smoothing is a factor from 0 to 0.9999, or mean:POINTS or gaussian:POINTS with 1 to 100,000 points, "
        f"not {text[:40]!r}"
    )


# -- inside -----------------------------------------------------------------------------------------


def _window_sums(values: Floats, width: int) -> Floats:
    """The sum of `width` places around each, zero beyond the ends.

    Blocks as long as the window: a window is the end of one block and the beginning of the next, so each sum has the
    values of its own window alone, and what is huge elsewhere costs it no digit.
    """
    count = len(values)
    before = width // 2
    blocks = -(-(count + width) // width)
    padded = np.zeros(blocks * width)
    padded[before : before + count] = values
    table = padded.reshape(blocks, width)
    ahead = np.cumsum(table, axis=1).ravel()
    behind = np.cumsum(table[:, ::-1], axis=1)[:, ::-1].ravel()
    start = np.arange(count)
    last = start + width - 1
    return np.where(start % width == 0, behind[start], behind[start] + ahead[last])


def _running(values: Floats, factor: float) -> Floats:
    """m_n of `smooth` for all n, a row of values at a time.

    Within a row that starts at m: m_j = f^(j+1) · m + (1-f) · Σ_(i≤j) f^(j-i) · y_i. The sum is a cumulative sum of
    y_i · f^(-i), so a row ends where f^(-i) would pass 1e8 and cost digits.
    """
    width = int(np.clip(8.0 / max(-np.log10(factor), 1e-9), 1, 4096))
    rows = -(-len(values) // width)
    padded = np.zeros(rows * width)
    padded[: len(values)] = values
    table = padded.reshape(rows, width)
    powers = factor ** np.arange(width)
    inner = np.cumsum(table / powers, axis=1) * (powers * (1.0 - factor))
    carried = np.empty(rows)
    carry, whole = 0.0, factor**width
    for row, end in enumerate(inner[:, -1].tolist()):
        carried[row] = carry
        carry = whole * carry + end
    result: Floats = (inner + carried[:, None] * (powers * factor)).ravel()[: len(values)]
    return result


def _sorted_by(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], Floats, Places | None]:
    """x and y in the order of x, without points whose x is not finite; and their places, None if unchanged."""
    along, values = np.asarray(x), np.asarray(y, np.float64)
    if along.shape != values.shape or along.ndim != 1:
        raise ValueError(f"x and y must be columns of one length, got {along.shape} and {values.shape}")
    order: Places | None = None
    if along.dtype.kind == "f" and not bool((here := np.isfinite(along)).all()):
        order = np.flatnonzero(here)
        along, values = along[order], values[order]
    if bool((along[1:] < along[:-1]).any()):
        back = np.argsort(along, kind="stable")
        order = back if order is None else order[back]
        along, values = along[back], values[back]
    return along, values, order


def _starts(along: NDArray[Any], number: int) -> Places:
    """The first place of every bucket that has points."""
    if not len(along):
        return np.empty(0, np.intp)
    width = int(along[-1]) - int(along[0]) if along.dtype.kind in "iu" else 2**63
    if width * number < 2**62:  # whole places have exact edges, the first whole number of each bucket
        places = np.searchsorted(along, int(along[0]) - (-np.arange(number) * width // number))
    else:
        first, last = float(along[0]), float(along[-1])
        # halves, so that the width of a range like -1e308 to 1e308 is a number
        edges = first / 2 + np.arange(number) / number * (last / 2 - first / 2)
        places = np.searchsorted(along / 2, edges) if along.dtype.kind == "f" else np.searchsorted(along, edges * 2)
    places[0] = 0
    return np.unique(places[places < len(along)])


def _log_starts(along: NDArray[Any], number: int) -> Places:
    """The same for buckets of equal width on a logarithmic axis; what has no place on it is in the first."""
    positive = int(np.searchsorted(along, 0, "right"))
    if positive == len(along):
        return np.zeros(min(positive, 1), np.intp)
    starts = positive + _starts(np.log10(along[positive:].astype(np.float64)), max(1, number - (positive > 0)))
    return np.append(0, starts) if positive and number > 1 else np.append(0, starts[1:])


def _extremes(
    values: Floats, finite: NDArray[np.bool_] | None, starts: Places, counts: NDArray[Any]
) -> tuple[Floats, Places, Floats, Places]:
    """Each bucket's minimum, its place, maximum, its place; NaN and the first place where nothing is finite.

    `finite`: which values count, None for all.
    """
    if not len(starts):
        return np.empty(0), starts, np.empty(0), starts
    found: list[Any] = []
    for reduce, empty in ((np.minimum, np.inf), (np.maximum, -np.inf)):
        source = values if finite is None else np.where(finite, values, empty)
        best = reduce.reduceat(source, starts)
        hits = np.flatnonzero(source == np.repeat(best, counts))
        place = hits[np.searchsorted(hits, starts)]  # the first hit at or behind the bucket's start
        none = np.isinf(best)
        found += [np.where(none, np.nan, best), np.where(none, starts, place)]
    return found[0], found[1], found[2], found[3]


def _count(marks: NDArray[np.bool_], starts: Places) -> NDArray[np.int64]:
    return np.add.reduceat(marks, starts, dtype=np.int64) if len(starts) else np.empty(0, np.int64)


def _kinds(odd: Floats) -> tuple[NDArray[np.bool_], ...]:
    return np.isnan(odd), odd == np.inf, odd == -np.inf
