"""The unit of an MFU: one rule, for everybody who writes or judges one.

In:   a value as it was logged or imported, the name it has there, and what was logged with it.
Out:  the fraction of the peak that it stands for; 1.1 is 110%, which no device reaches, and stays 1.1.

An MFU is a fraction. It is taken for percent only where its name says so (`mfu_percent`, `bf16_mfu`), or where it is
above 5: few mistakes in a peak or a formula give 500%, and few trainings reach less than 5%. One that stands with the
peak that it was divided by is Barograph's own, and a fraction whatever its value.
"""

from __future__ import annotations

from collections.abc import Container

PERCENT_NAMES = ("mfu(%)", "mfu %", "mfu_percent", "mfu_pct", "bf16_mfu")
LARGEST_FRACTION = 5.0


def mfu_fraction(value: float, name: str = "mfu", beside: Container[str] = ()) -> float:
    """A model FLOPs utilisation as a fraction.

    name: what it is called where it was logged, or its series. beside: the names that were logged with it.
    """
    family, slash, leaf = name.rpartition("/")
    if leaf.lower() in PERCENT_NAMES:
        return value / 100
    if value > LARGEST_FRACTION and f"{family}{slash}peak_tflops" not in beside:
        return value / 100
    return value
