"""Steps that are skipped because gradients overflow, as mixed precision prints them.

In:   a log's lines: `OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1`,
      `gradient overflow detected, setting loss scale to: 0.0625`.
Out:  a sentence where the loss scale falls below 1, and where it is at its least and step after step is skipped.

A large scale that is halved step after step at the start is as it should be, and nothing is said of it.
"""

from __future__ import annotations

from typing import Any

from barograph.core.patterns import expression

_SKIPPED = expression(rb"(?i)overflow.{0,120}?\b(?:reducing|setting|decreas\w{1,6}|reduc\w{1,6})\b.{0,40}?\bto:?\s{0,4}"
                      rb"(\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?)(?![\d%])")  # fmt: skip
_SCALE = expression(rb"(?i)loss[ _-]?scale")
_TRIED = expression(rb"(?i)attempted loss scale:?\s{0,4}(\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?)")
_NEAR = 8  # lines between two steps
_MANY = 12  # steps in a row
_FURTHER = 16  # a scale that many times smaller is said again
_WIDEST = 1 << 12
_SHOWN = 200


def told(index: int, line: bytes, own: dict[str, Any]) -> str | None:
    """What to say of a line. own: the scale last told, and how many steps in a row were skipped, kept in marks."""
    if (b"verflow" not in line and b"VERFLOW" not in line) or len(line) > _WIDEST:
        return None
    found = _SKIPPED.search(line)
    if found is None or not _SCALE.search(line):
        return None
    scale, tried = float(found[1]), _TRIED.search(line)
    words = line[found.start() :][:_SHOWN].decode("utf-8", "replace").strip()
    least = scale <= 1 or (tried is not None and float(tried[1]) == scale)
    last, count = own.get("overflow", (index, 0))
    near = index < last or index - last <= _NEAR  # a new chunk counts its lines anew
    count = count + 1 if least and near else int(least)
    own["overflow"] = [index, count]
    if scale < 1 and scale <= own.get("small_scale", 1.0) / (_FURTHER if "small_scale" in own else 1):
        own["small_scale"] = scale
        return f"gradients overflow at a loss scale of 1 and below: it is at {scale:g} ({words})"
    if count == _MANY and scale >= 1:
        return (
            f"{_MANY} steps in a row were skipped, as gradients overflow at the least loss scale, {scale:g} ({words})"
        )
    return None
