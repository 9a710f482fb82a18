"""Figures and times as people read them in a narrow column.

In:   numbers, seconds, bytes.
Out:  short texts; an empty one for what is not known.
"""

from __future__ import annotations

import math
from typing import Any


def figure(value: Any) -> str:
    """At most nine characters, five digits that count; NaN and infinities by name."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return ""
    value = float(value)
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    size = abs(value)
    if size == 0:
        return "0"
    if value == int(value) and size < 1e6:
        return f"{int(value):,}"
    if 1e-3 <= size < 1e5:
        return f"{value:.{max(0, min(4, 4 - math.floor(math.log10(size))))}f}"
    text = f"{value:.2e}"
    return text if len(text) <= 9 else f"{value:.1e}"


def duration(seconds: Any) -> str:
    """`1d04h`, `2h03m`, `4m05s`, `12s`."""
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or seconds < 0:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,}d{hours:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s" if seconds >= 1 else f"{1000 * seconds:.0f}ms"


def size(amount: Any, unit: str = "B") -> str:
    """Bytes as `1.2 GiB`."""
    if not isinstance(amount, (int, float)) or not math.isfinite(amount) or amount < 0:
        return ""
    value = float(amount)
    for lead in ("", "Ki", "Mi", "Gi", "Ti"):
        if value < 1000 or lead == "Ti":
            return f"{value:.0f} {lead}{unit}" if value >= 100 or not lead else f"{value:.1f} {lead}{unit}"
        value /= 1024
    return ""


def milliseconds(value: Any) -> str:
    """`1,234 ms`, `12.3 ms`, `45 µs`."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return ""
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{1000 * value:.0f} µs"


def known(value: Any) -> float:
    """A number, or NaN for anything else."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
