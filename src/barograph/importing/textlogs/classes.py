"""Scores of classes: lists with one for each class, and tables with a row for each class and one for all.

In:   `Pseudo dice [0.88, 0.87]`, epoch by epoch; a heading `Class  Images  Labels  P  R  mAP@.5` and below it
      `all  128  929  0.64  0.53  0.60`.
Out:  `Pseudo dice_1=0.88, Pseudo dice_2=0.87`; `val precision=0.64, val recall=0.53, val mAP@.5=0.60`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms
from barograph.importing.textlogs.measures import SCORES

_VALUE = rb"(?:np\.float\d\d\()?" + forms.NUMBER + rb"\)?"
_LIST = expression(
    rb"(?i)((?:(?<=[\s:|,\]])|^)(?:[a-z][a-z-]{0,20}[ _]){0,3}(?:" + SCORES + rb"))\s?[:=]?\s?\[\s?(" + _VALUE
    + rb"(?:,\s?" + _VALUE + rb"){1,63})\s?\]\s{0,8}$"
)  # fmt: skip
_NUMBER = expression(forms.NUMBER)
_ENDS = (b"]\n", b"]\r", b"] \n")  # of lines
_WIDEST = 4000  # bytes of a line
_TIMES = 2  # lists of one name that are as long: those of a history grow, or come once
_NAMES = 20  # that are remembered
_HEADING = expression(
    rb"(?m)^[ \t]{0,60}Class[ \t]{1,40}(?:[A-Za-z]{1,20}[ \t]{1,40}){1,4}[^\n]{0,80}?mAP[^\n]{0,400}$"
)
_ALL = expression(rb"[ \t]{0,60}all((?:[ \t]{1,40}" + forms.NUMBER + rb"){3,14})[ \t]{0,40}\r?")
_SPELT = {b"P": b"precision", b"R": b"recall"}
_OPENS = expression(rb"([A-Za-z]{1,20})\(")  # `Box(P  R  mAP50  mAP50-95)`
_COUNTS = (b"Images", b"Labels", b"Instances", b"Targets")


def named(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which such scores have names; own: lists that came before, and the heading that goes on."""
    if b"]" in text and any(end in text for end in _ENDS):
        text = _of_lists(text, own)
    if b"mAP" in text or "classes" in own:
        text = _of_all(text, own)
    return text


def _of_lists(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which the scores in lists have names, where lists of one name and length come again."""
    lines = text.split(b"\n")
    found = {
        index: match
        for index, line in enumerate(lines)
        if len(line) < _WIDEST and b"," in line and line.rstrip().endswith(b"]") and (match := _LIST.search(line))
    }
    known, lengths = own.setdefault("lists", {}), Counter((match[1], match[2].count(b",")) for match in found.values())
    for (name, length), times in lengths.items():
        if times >= _TIMES and len(known) < _NAMES:
            known.setdefault(name.decode("utf-8", "replace"), length)
    for index, match in found.items():
        lines[index] = lines[index][: match.start()] + _parts(match, known)
    return b"\n".join(lines) if known and found else text


def _parts(found: re.Match[bytes], known: dict[str, int]) -> bytes:
    if known.get(found[1].decode("utf-8", "replace")) != found[2].count(b","):
        return found[0]
    values = [_NUMBER.search(part.rpartition(b"(")[2]) for part in found[2].split(b",")]
    said = [(at, value[0]) for at, value in enumerate(values, 1) if value and value[0].lower() != b"nan"]
    return b", ".join(b"%s_%d=%s" % (found[1], at, value) for at, value in said) or found[0]


def _of_all(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which the rows of all classes say their names."""
    names = [name.encode() for name in own.get("classes", ())]
    heads = {match.start() for match in _HEADING.finditer(text)}
    if not heads and not names:
        return text
    lines, at = text.split(b"\n"), 0
    for index, line in enumerate(lines):
        here, at = at, at + len(line) + 1
        if here in heads:
            names = _heading(line)
        elif b"all " in line and names and (found := _ALL.fullmatch(line)):
            cells = found[1].split()
            if len(cells) == len(names):
                said = [(name, cell) for name, cell in zip(names, cells, strict=True) if name not in _COUNTS]
                lines[index] = b", ".join(
                    b"val %s=%s" % (name, cell + b".0" if cell.isdigit() else cell) for name, cell in said
                )
    if names:
        own["classes"] = [name.decode("utf-8", "replace") for name in names]
    return b"\n".join(lines)


def _heading(line: bytes) -> list[bytes]:
    """The names behind `Class`, those of masks and boxes with the word ahead of their bracket."""
    words, of, names = re.split(rb":\s{1,8}\d{1,3}%", line)[0].split()[1:], b"", list[bytes]()
    several = line.count(b"(") > 1
    for word in words:
        if opened := _OPENS.match(word):
            of, word = (opened[1] + b" " if several else b""), word[opened.end() :]
        name = word.strip(b"():").replace(b":", b"-")
        names.append(of + _SPELT.get(name, name))
    return names
