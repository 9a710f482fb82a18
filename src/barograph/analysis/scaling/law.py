"""The scaling law L(N, D) = E + A / N^α + B / D^β: its value, its fit, what it says of a budget.

In:   columns of parameters N, tokens D and final losses L, one entry a run.
Out:  coefficients that minimise Huber's loss of the residuals in ln L (Hoffmann et al. 2022, approach 3).

As arXiv 2404.10102 found of the original fit: the losses are summed and not averaged (a mean is so small that an
optimiser stops early), in 64 bits, to convergence. α and β enter as logarithms and N and D about their middles, so that
the coefficients are of one size; Huber's bound comes down from wide to 1e-3 in steps, from many starts: for each
(α, β) of a grid E, A, B follow from a linear system (variable projection).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DELTA = 1e-3  # Huber's bound on residuals of ln L: Hoffmann et al. 2022, appendix D.3
ALPHAS = np.geomspace(0.05, 2.0, 12)  # the grid of starts for either exponent
LEAST_EXPONENT, MOST_EXPONENT = 0.01, 5.0
_LEAST_TERM = -20.0  # ln of a term: 2e-9 nats are none
_ANNEALING = (0.1, 0.02, 0.005)  # Huber's bounds before the last one
_ROUNDS, _LAST_ROUNDS = 12, 150
_POLISHING_ROUNDS = 2_000
_STILL = 6  # rounds without a gain worth the name after which a problem is left
_GAIN = 1e-6
FLOPS_PER_PARAMETER = 6.0  # a token's forward and backward pass: C = 6 N D


class Law(NamedTuple):
    """Coefficients of the law; each a number, or columns of one length."""

    E: Any
    A: Any
    B: Any
    alpha: Any
    beta: Any

    def loss(self, parameters: Any, tokens: Any) -> Any:
        """L at N and D."""
        return self.E + self.A * parameters ** (-self.alpha) + self.B * tokens ** (-self.beta)

    def optimum(self, flops: Any) -> tuple[Any, Any]:
        """N and D with the least loss for C = 6 N D: N = G (C / 6)^(β/(α+β)), G = (αA / βB)^(1/(α+β))."""
        both = self.alpha + self.beta
        scale = (self.alpha * self.A / (self.beta * self.B)) ** (1 / both)
        parameters = scale * (flops / FLOPS_PER_PARAMETER) ** (self.beta / both)
        return parameters, flops / FLOPS_PER_PARAMETER / parameters


@dataclass(frozen=True, eq=False)
class Solved:
    """law: columns [s], an entry a problem. objective [s]: the sums of Huber's losses. converged [s]."""

    law: Law
    objective: Floats
    converged: NDArray[np.bool_]

    def at(self, place: int) -> Law:
        return Law(*(float(column[place]) for column in self.law))


class ScalingPoints:
    """Runs as the fit sees them: ln N and ln D about their middles, the starts' linear systems."""

    def __init__(self, parameters: Floats, tokens: Floats):
        self.n, self.d = np.log(parameters), np.log(tokens)
        self.middles = float(self.n.mean()), float(self.d.mean())
        self.x, self.y = self.n - self.middles[0], self.d - self.middles[1]
        grid = [(alpha, beta) for alpha in ALPHAS for beta in ALPHAS]
        self.grid = np.array(grid)
        ones = np.ones(len(self.x))
        self.columns = np.stack([
            np.stack([ones, np.exp(-alpha * self.x), np.exp(-beta * self.y)], axis=1) for alpha, beta in grid
        ])  # fmt: skip

    def starts(self, target: Floats, weight: Floats, keep: int) -> Floats:
        """The `keep` best starts of each problem, [s, keep, 5]. target, weight [s, n]: ln L, how often a run counts."""
        losses = np.exp(target)
        relative = weight / losses**2  # errors of L in parts of L, as those of ln L are
        found = np.empty((len(self.grid), len(target), 3))
        errors = np.empty((len(self.grid), len(target)))
        for at, columns in enumerate(self.columns):
            outer = columns[:, :, None] * columns[:, None, :]
            system = np.tensordot(relative, outer, axes=1)
            right = (relative * losses) @ columns
            system += 1e-9 * np.trace(system, axis1=1, axis2=2)[:, None, None] * np.eye(3)
            solution = np.linalg.solve(system, right[:, :, None])[:, :, 0]
            found[at] = np.maximum(solution, 1e-4 * losses.min(axis=1)[:, None])
            errors[at] = (np.abs(np.log(found[at] @ columns.T) - target) * weight).sum(axis=1)
        best = np.argsort(errors, axis=0)[:keep].T
        result = np.empty((len(target), keep, 5))
        rows = np.arange(len(target))[:, None]
        chosen = found[best, rows]
        result[:, :, 0], result[:, :, 1], result[:, :, 2] = np.log(np.moveaxis(chosen, 2, 0))
        result[:, :, 3:] = np.log(self.grid[best])
        return result

    def law(self, theta: Floats) -> Law:
        alpha, beta = np.exp(theta[:, 3]), np.exp(theta[:, 4])
        with np.errstate(over="ignore"):
            return Law(
                np.exp(theta[:, 0]),
                np.exp(theta[:, 1] + alpha * self.middles[0]),
                np.exp(theta[:, 2] + beta * self.middles[1]),
                alpha,
                beta,
            )


def solve(
    points: ScalingPoints,
    target: Floats,
    weight: Floats | None = None,
    starts: int = 24,
    extra: Floats | None = None,
    delta: float = DELTA,
    polish: bool = True,
) -> Solved:
    """Fit many problems over the same runs at once.

    target [s, n]: ln L. weight [s, n]: how often each run counts (default once). starts: of each problem, from the
    grid. extra [5]: one start more for each, such as another problem's solution. delta: Huber's bound.
    polish: go on from the best until nothing is gained, for up to 2,000 steps.
    """
    weight = np.ones_like(target) if weight is None else weight
    first = points.starts(target, weight, starts)
    if extra is not None:
        first = np.concatenate([first, np.broadcast_to(extra, (len(target), 1, 5))], axis=1)
    count = first.shape[1]
    theta, objective, done = _descend(
        points, np.repeat(target, count, axis=0), np.repeat(weight, count, axis=0), first.reshape(-1, 5), delta
    )
    table = objective.reshape(-1, count)
    best = table.argmin(axis=1) + count * np.arange(len(target))
    theta, objective, done = theta[best], objective[best], done[best]
    if polish:  # along a valley that is narrow, where one of the terms is small
        theta, objective, done = _rounds(points, target, weight, theta, delta, _POLISHING_ROUNDS)
    return Solved(points.law(theta), objective, done)


def theta_of(points: ScalingPoints, law: Law) -> Floats:
    """A law as a start."""
    return np.array([
        np.log(law.E), np.log(law.A) - law.alpha * points.middles[0], np.log(law.B) - law.beta * points.middles[1],
        np.log(law.alpha), np.log(law.beta),
    ])  # fmt: skip


def _descend(
    points: ScalingPoints, target: Floats, weight: Floats, theta: Floats, delta: float
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Levenberg and Marquardt's steps on reweighted squares, for all problems side by side."""
    theta = _bounded(theta.copy())
    for bound in (*(item for item in _ANNEALING if item > delta), delta):
        rounds = _LAST_ROUNDS if bound == delta else _ROUNDS
        theta, objective, done = _rounds(points, target, weight, theta, bound, rounds)
    return theta, objective, done


def _rounds(
    points: ScalingPoints, target: Floats, weight: Floats, theta: Floats, delta: float, rounds: int
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    damping = np.full(len(theta), 1e-2)
    still = np.zeros(len(theta), np.int64)
    residual, slopes = _residuals(points, target, theta)
    objective = _objective(residual, weight, delta)
    none = 1e-8 * delta * weight.sum(axis=1)  # residuals of 1e-8: a fit without noise is done there
    for _ in range(rounds):
        active = np.flatnonzero(still < _STILL)
        if not len(active):
            break
        r, j, w = residual[active], slopes[active], weight[active]
        held = w * np.minimum(1.0, delta / np.maximum(np.abs(r), 1e-15))
        weighted = np.swapaxes(j * held[:, :, None], 1, 2)
        gradient = (weighted @ r[:, :, None])[:, :, 0]
        curve = weighted @ j
        diagonal = np.einsum("skk->sk", curve)
        eye = np.eye(5)
        system = (
            curve
            + eye
            * ((damping[active, None] * diagonal) + 1e-12 * diagonal.max(axis=1, keepdims=True) + 1e-300)[:, None, :]
        )
        step = np.linalg.solve(system, -gradient[:, :, None])[:, :, 0]
        tried = _bounded(theta[active] + np.clip(step, -2.0, 2.0))
        new_residual, new_slopes = _residuals(points, target[active], tried)
        new = _objective(new_residual, w, delta)
        better = new < objective[active]
        gained = (objective[active] - new) / np.maximum(objective[active], none[active])
        still[active] = np.where(better & (gained > _GAIN), 0, still[active] + 1)
        damping[active] = np.where(better, np.maximum(damping[active] / 5, 1e-9), np.minimum(damping[active] * 4, 1e9))
        kept = active[better]
        theta[kept], objective[kept] = tried[better], new[better]
        residual[kept], slopes[kept] = new_residual[better], new_slopes[better]
    return theta, objective, still >= 1


def _bounded(theta: Floats) -> Floats:
    np.clip(theta[:, :3], _LEAST_TERM, 20.0, out=theta[:, :3])
    np.clip(theta[:, 3:], np.log(LEAST_EXPONENT), np.log(MOST_EXPONENT), out=theta[:, 3:])
    return theta


def _residuals(points: ScalingPoints, target: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """ln of the law minus ln L [s, n], and its slopes along the coefficients [s, n, 5]."""
    alpha, beta = np.exp(theta[:, 3:4]), np.exp(theta[:, 4:5])
    x, y = alpha * points.x, beta * points.y
    terms = theta[:, 0:1], theta[:, 1:2] - x, theta[:, 2:3] - y
    top = np.maximum(np.maximum(terms[1], terms[2]), terms[0])
    floor, size, tokens = (np.exp(term - top) for term in terms)
    whole = floor + size + tokens
    slopes = np.empty((*target.shape, 5))
    slopes[:, :, 0], slopes[:, :, 1], slopes[:, :, 2] = floor / whole, size / whole, tokens / whole
    slopes[:, :, 3] = -slopes[:, :, 1] * x
    slopes[:, :, 4] = -slopes[:, :, 2] * y
    return np.log(whole) + top - target, slopes


def _objective(residual: Floats, weight: Floats, delta: float) -> Floats:
    size = np.abs(residual)
    each = np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))
    total: Floats = (weight * each).sum(axis=1)
    return total
