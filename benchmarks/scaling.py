"""Scaling laws: do the intervals hold the truth as often as they say, and what does a real little family give?

    python benchmarks/scaling.py                      # coverage over 200 simulated families of each kind, minutes
    python benchmarks/scaling.py --family /tmp/family # train 16 small GPTs on Python's own source, then fit; minutes
    python benchmarks/scaling.py --fit /tmp/family    # fit what was trained

Simulated families: losses of Hoffmann et al.'s law with the coefficients of arXiv 2404.10102 and runs' noise in ln L.
Coverage is the share of families whose 95% interval holds the true value; from 200 families it is known to ± 3 points.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from barograph.analysis.scaling.fit import fit_scaling, fit_scaling_columns
from barograph.analysis.scaling.law import Law

TRUE = Law(1.82, 482.0, 2085.0, 0.3478, 0.3658)
# sizes × token counts, the noise of a run in ln L, degrees of freedom of its distribution (None: normal)
KINDS = (
    ("5 sizes x 4", 5, 4, 0.005, None),
    ("4 sizes x 3", 4, 3, 0.005, None),
    ("3 sizes x 3", 3, 3, 0.002, None),
    ("8 sizes x 6", 8, 6, 0.010, None),
    ("5 sizes x 4, outliers", 5, 4, 0.005, 3),
)
BUDGET = 1e22
BEYOND = (1e10, 2e11)  # five times the largest N and D


def design(sizes: int, counts: int) -> tuple[np.ndarray, np.ndarray]:
    n, d = np.meshgrid(np.geomspace(5e7, 2e9, sizes), np.geomspace(5e8, 4e10, counts))
    return n.ravel(), d.ravel()


def coverage(families: int, resamples: int) -> None:
    names = ["E", "A", "B", "alpha", "beta", "loss beyond", "optimal N", "loss there"]
    best = TRUE.optimum(BUDGET)
    true = [*TRUE, TRUE.loss(*BEYOND), best[0], TRUE.loss(*best)]
    print(f"{families} families each, {resamples} resamples; coverage of 95% intervals in percent")
    print(f"{'':<24}" + "".join(f"{name:>12}" for name in names) + f"{'said open':>12}{'s a fit':>9}")
    for label, sizes, counts, noise, dof in KINDS:
        n, d = design(sizes, counts)
        random = np.random.default_rng(1)
        hits, opened, began = np.zeros(len(names)), 0, time.perf_counter()
        for _ in range(families):
            error = random.standard_normal(len(n)) if dof is None else random.standard_t(dof, len(n))
            made = fit_scaling_columns(n, d, TRUE.loss(n, d) * np.exp(noise * error), resamples=resamples)
            optimum = made.optimal(BUDGET)
            found = [*made.coefficients.values(), made.predict(*BEYOND).loss, optimum.parameters, optimum.loss]
            hits += [one.low <= value <= one.high for one, value in zip(found, true, strict=True)]
            opened += bool(made.unidentified)
        took = (time.perf_counter() - began) / families
        cells = "".join(f"{100 * share:>12.1f}" for share in hits / families)
        print(f"{label:<24}{cells}{100 * opened / families:>11.1f}%{took:>9.2f}", flush=True)


def train(folder: Path, widths: list[int], steps: list[int]) -> None:
    """A family of the demo's GPT: every width for every count of steps, a whole schedule each."""
    import torch

    import barograph
    from barograph.demo import model as gpt
    from barograph.demo.loop import Loop, Plan
    from barograph.demo.text import read_corpus

    @dataclass(frozen=True)
    class Sized(Plan):
        width: int = 32

        def shape(self) -> gpt.ModelShape:
            return gpt.ModelShape(width=self.width, layers=2, heads=2, hidden=4 * self.width)

    torch.set_num_threads(min(2, torch.get_num_threads()))
    corpus = read_corpus()
    for width in widths:
        for count in steps:
            began = time.perf_counter()
            loop = Loop(corpus, Sized(steps=count, width=width))
            config = asdict(loop.plan) | {"model": asdict(loop.plan.shape()), "num_parameters": loop.parameters}
            loop.run = barograph.init(
                "family", f"w{width}-s{count}", config=config, dir=folder, total_steps=count, verbosity=-2
            )
            with loop.run:
                while loop.step < count:
                    loop.train_step()
                loop.evaluate()
            took = time.perf_counter() - began
            print(
                f"w{width} {loop.parameters:,} parameters, {count} steps: {loop.val_loss:.4f}, {took:.0f} s", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--families", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--family", type=Path, metavar="DIR", help="train a family there and fit it")
    parser.add_argument("--fit", type=Path, metavar="DIR", help="fit the runs in a folder")
    parser.add_argument("--widths", default="16,32,64,128", help="of the family's models")
    parser.add_argument("--steps", default="100,200,400,800", help="of the family's runs")
    options = parser.parse_args()
    if options.family is not None:
        train(
            options.family,
            [int(one) for one in options.widths.split(",")],
            [int(one) for one in options.steps.split(",")],
        )
    if options.family is not None or options.fit is not None:
        print(fit_scaling(options.family or options.fit).text())
    else:
        coverage(options.families, options.resamples)


if __name__ == "__main__":
    main()
