"""The model from inside on one screen: gradient flow over depth, and what experts get.

In:   a stored run.
Out:  lines for a terminal; none where nothing was watched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from barograph.core.text import BARS, escape, number, padded
from barograph.query.stored import StoredRun

_BLOCK = re.compile(r"(.*?\.?\d+)(?=\.|$)")  # up to the first number: a block of a stack
_LOAD = re.compile(r"moe/(.+)/load/(\d+)")
_MOST = 24  # layers shown


def flow_lines(run: StoredRun, width: int = 24) -> list[str]:
    """Gradient norm and update ratio by block, as they were looked at last; bars are logarithmic.

    A block's norm is the root of the sum of its tensors' squares, its ratio the median of theirs.
    """
    names = run.names()
    norms: dict[str, float] = {}
    ratios: dict[str, list[float]] = {}
    for name in names:
        parts = name.split("/")
        if len(parts) == 3 and parts[0] == "gradients" and parts[2] == "norm":
            block = block_of(parts[1])
            norms[block] = norms.get(block, 0.0) + _last(run, name) ** 2
        elif len(parts) == 3 and parts[0] == "updates" and parts[2] == "ratio":
            ratios.setdefault(block_of(parts[1]), []).append(_last(run, name))
    if not norms:
        return []
    rooted = {block: math.sqrt(square) for block, square in norms.items()}
    ordered = in_depth(rooted)
    lines = ["", f"  {'GRADIENT FLOW, BY BLOCK':<26} {'LOG SCALE':<{width}} {'GRAD NORM':>11} {'UPDATE':>9}"]
    for block in _middle_left_out(ordered):
        if not block:
            lines.append(f"  … {len(ordered) - _MOST} more blocks")
            continue
        ratio = sorted(ratios.get(block, []))
        shown = f"{ratio[len(ratio) // 2]:>9.1e}" if ratio else f"{'':>9}"
        bar = _log_bar(rooted[block], rooted, width)
        lines.append(f"  {padded(escape(block), 26)} {bar:<{width}} {number(rooted[block]):>11} {shown}")
    return lines


def expert_lines(run: StoredRun) -> list[str]:
    """Each layer's experts by the share of the tokens that they got when last looked at; 1.00 is their fair share."""
    loads: dict[str, dict[int, float]] = {}
    for name in run.names():
        if match := _LOAD.fullmatch(name):
            loads.setdefault(match[1], {})[int(match[2])] = _last(run, name)
    if not loads:
        return []
    lines = ["", f"  {'EXPERTS, LOAD OVER THE MEAN':<26} {'':<24} {'LEAST':>9} {'MOST':>9} {'UNUSED':>7}"]
    for layer in _middle_left_out(in_depth(loads)):
        if not layer:
            lines.append(f"  … {len(loads) - _MOST} more layers")
            continue
        row = [loads[layer][expert] for expert in sorted(loads[layer])]
        mean = sum(row) / len(row)
        shares = [load / mean if mean > 0 else 0.0 for load in row]
        drawn = "".join(BARS[min(7, int(share / 2 * 7.999))] if share > 0 else "·" for share in shares[:24])
        unused = sum(load == 0 for load in row)
        lines.append(f"  {padded(escape(layer), 26)} {drawn:<24} {min(shares):>9.2f} {max(shares):>9.2f} {unused:>7}")
    return lines


def _last(run: StoredRun, name: str) -> float:
    value = run.series(name).value
    return float(value[-1]) if len(value) else math.nan


def block_of(layer: str) -> str:
    match = _BLOCK.match(layer)
    return match[1] if match else layer.rsplit(".", 1)[0]


def in_depth(named: Mapping[str, object]) -> list[str]:
    """Embeddings first, blocks in order, what comes after them last."""

    def place(name: str) -> tuple[int, list[int], str]:
        numbers = [int(item) for item in re.findall(r"\d+", name)]
        early = any(word in name for word in ("embed", "wte", "wpe", "tokens"))
        return (1 if numbers else 0 if early else 2, numbers, name)

    return sorted(named, key=place)


def _middle_left_out(names: list[str]) -> list[str]:
    if len(names) <= _MOST:
        return names
    return [*names[: _MOST // 2], "", *names[-_MOST // 2 :]]


def _log_bar(value: float, all_of_them: Mapping[str, float], width: int) -> str:
    finite = [item for item in all_of_them.values() if 0 < item < math.inf]
    if not finite or not 0 < value < math.inf:
        return "" if value == 0 else "!"
    low, high = math.log10(min(finite)), math.log10(max(finite))
    room = max(high - low, 1.0)  # less than a power of ten apart is level
    return "█" * max(1, round(width * (1 - (high - math.log10(value)) / (room * 1.25))))
