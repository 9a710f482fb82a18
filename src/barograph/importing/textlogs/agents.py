"""What the rows of an agent's log count.

In:   rows and their lines.
Out:  the name of their axis.
"""

from __future__ import annotations

from typing import Any

from barograph.importing.textlogs import forms, tallies


def axis_of(lines: list[bytes], rows: list[forms.Raw], own: dict[str, Any]) -> str:
    """What the steps of rows count: episodes where the first line says one and neither step, batch nor epoch."""
    if "axis" not in own and rows:
        line = lines[rows[0].where[0]]
        found = tallies.ROUND.search(line)
        others = (tallies.STEP, tallies.BATCH, tallies.EPOCH)
        of_agent = found and b"pisode" in found[0] and not any(other.search(line) for other in others)
        own["axis"] = "episode" if of_agent else "step"
    return str(own.get("axis", "step"))
