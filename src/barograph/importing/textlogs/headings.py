"""Rows under a heading about data held out, as text in which each row says so.

In:   `Validation at epoch 5:` and below it `loss: 0.61` and `accuracy: 0.80`, which say neither a step nor the data.
Out:  `loss: 0.61 | val`.

The heading holds for the lines right below it: up to one that says a step or data of its own, repeats a name, or names
no number where others did. A line that says an epoch is one of them if the row above the heading said the same one; so
are rows that count, but to another length than those of the training above, `batch count: 20/309` behind `… 300/308`.
"""

from __future__ import annotations

from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import heldout, tallies

_MAY = expression(rb"(?i)\b(?:val|valid|validation|validat(?:e|ing)|eval|evaluat(?:e|ing|ion)|test|testing|dev)\b")
_AHEAD = expression(rb".{0,140}(?:\]|\||>|\s-|\b(?:INFO|DEBUG)\b:?)\s")  # what a logger writes first
_TOKEN = expression(rb"[A-Za-z]+|\d[\d.,/]*")
_COUNT = expression(rb"\d{1,12}(?:/\d{1,12})?")
_VALIDATION = frozenset(b"val valid validation validate validating eval evaluate evaluation evaluating dev".split())
_TEST = frozenset(b"test testing".split())
_BESIDE = frozenset(
    b"a after and at begin beginning data dataset end epoch error errors for in iter iteration loader loop metrics "
    b"mode model now of on performance performing phase result results run running set split start started starting "
    b"statistics stats step summary the update with".split()
)
_NAMED = expression(
    rb"([A-Za-z][\w.@/%()-]{0,60}(?: [A-Za-z][\w.@/%()-]{0,30}){0,3})\s{0,20}[:=]\s{0,20}[-+]?(?:\d|nan|inf)"
)
_RULED = expression(rb"[=*#-]{4,80}[^=*#\d-]{3,60}?(\d{1,6})[^=*#\d-]{0,20}[=*#-]{4,80}\s*$")  # `=== test epoch 3 ===`
_LOSS = expression(rb"(?i)loss['\"]?\s{0,4}[:=]?\s{0,8}[-+]?(?:\d|nan|inf)")
_TRAIN = expression(rb"(?i)train")
_PARTS = (b"al", b"est", b"ev", b"AL", b"EST", b"EV")  # of words for data held out
_ABOVE = 12  # lines above a heading, whose rows say to which length the training counts
_FAR = 6  # lines between a heading and its first row
_WIDE = 160  # bytes of a heading


def said_below(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which rows below headings say their data; own: the heading that goes on in the next text."""
    under: dict[str, Any] | None = own.pop("under", None)
    if under is None and not any(part in text for part in _PARTS):
        return text
    low = text.lower()
    if under is None and not any(word in low for word in (b"valid", b"eval", b"test", b"val", b"dev")):
        return text
    lines = text.split(b"\n")
    changed = False
    said = int(own.get("epoch_above", -1))  # by the last row of the training
    lengths = list[int](own.get("lengths_above", []))  # to which the training's rows count
    early: tuple[int, list[str], bytes] | None = None  # a row below a heading ahead of all others, which says an epoch
    for index, line in enumerate(lines):
        if phase := _heading(line):
            ruled = _RULED.match(line)
            under = {"phase": phase, "names": [], "waited": 0, "epoch": int(ruled[1]) if ruled else -1}
            lengths = _lengths(lines[max(index - _ABOVE, 0) : index]) or lengths
        elif under is not None and lengths and _length(line) not in (0, *lengths) and _epoch(line) in (-1, said):
            lines[index], changed = line + b" | " + under["phase"].encode(), True
            if "row" in under:
                lines[under["row"]] = b""  # the last one of them is that of all
            under |= {"names": [], "waited": 0, "row": index}
        elif under is not None:
            held = under.get("epoch", -1)
            names = _row(line, held if held >= 0 else said)
            if names is None and said < 0 and not under["names"] and (first := _row(line, _epoch(line))):
                early = (index, first, under["phase"].encode())
            if names is None or (under["names"] and (not names or not set(names).isdisjoint(under["names"]))):
                under = None
                said = max(_epoch(line), said) if early is None or early[0] != index else said
            elif names:
                under["names"] += names
                lines[index] = line + b" | " + under["phase"].encode()
                if early is not None and early[1] == names and _epoch(line) >= 0:  # of the same kind
                    lines[early[0]] += b" | " + early[2]
                early, changed = None, True
            elif line.strip():
                under["waited"] += 1
                under = under if under["waited"] <= _FAR else None
        elif b"poch" in line:
            said = max(_epoch(line), said)
    own["epoch_above"], own["lengths_above"] = said, lengths
    if lines[-1] == b"" and under is not None:
        own["under"] = {name: value for name, value in under.items() if name != "row"}
    return b"\n".join(lines) if changed else text


def _heading(line: bytes) -> str:
    """Which data a heading is about: "val" or "test"; empty for any other line."""
    if not 3 < len(line) <= _WIDE or b"oss" in line or b"acc" in line or not _MAY.search(line):
        return ""
    found = _AHEAD.match(line)
    words = [word.lower() for word in _TOKEN.findall(line, found.end() if found else 0)]
    counts = [word for word in words if word[:1].isdigit()]
    if len(counts) > 1 or not all(map(_COUNT.fullmatch, counts)):
        return ""
    plain = {word for word in words if not word[:1].isdigit()}
    if not plain or not plain <= _VALIDATION | _TEST | _BESIDE:
        return ""
    return "val" if plain & _VALIDATION else "test" if plain & _TEST else ""


def _lengths(above: list[bytes]) -> list[int]:
    """To which lengths the rows above a heading count."""
    return [length for length in dict.fromkeys(map(_length, above)) if length]


def _length(line: bytes) -> int:
    """To which length a row with a loss counts batches or steps; 0 for any other line, and for one that says its
    data."""
    if b"/" not in line or b"oss" not in line or len(line) > 1000 or not _LOSS.search(line):
        return 0
    batch, step = tallies.BATCH.search(line), tallies.STEP.search(line)
    if (batch is None and step is None) or _TRAIN.search(line) or heldout.PHASE.search(line):
        return 0
    for found in (batch, step):
        if found and found[2]:
            return tallies.whole(found[2])
    part = None if tallies.EPOCH.search(line) else tallies.PART.search(line)
    return tallies.whole(part[2]) if part else 0


def _epoch(line: bytes) -> int:
    """The epoch that a line says, -1 for none."""
    found = tallies.EPOCH.search(line)
    return tallies.whole(found["count"]) if found else -1


def _row(line: bytes, epoch: int = -1) -> list[str] | None:
    """The names of a line's numbers; None if it says a step or data of its own. epoch: that of a heading between rules,
    which the line may say too, from 0 or from 1."""
    if len(line) > 1000 or _TRAIN.search(line) or heldout.PHASE.search(line):
        return None
    if tallies.STEP.search(line) or tallies.BATCH.search(line):
        return None
    if (said := tallies.EPOCH.search(line)) and tallies.whole(said["count"]) not in (epoch, epoch - 1):
        return None
    return [name.decode("utf-8", "replace") for name in _NAMED.findall(line)]
