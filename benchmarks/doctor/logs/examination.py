"""An examination: the cases of a seed, written; the doctor's findings on each, judged.

In:   a seed, how many cases of each family, a folder; what the doctor found.
Out:  the logs with `labels.json`; for each case whether the doctor was right.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from logs import alike, healthy, newer, newer_apart, troubles
from logs.case import TEXT, TROUBLE, Case, Family
from logs.formats import format_of, write

FAMILIES = {family.__name__: family for module in (healthy, alike, troubles) for family in module.FAMILIES}
SPLITS: dict[str, dict[str, Family]] = {
    "first": FAMILIES,
    "open": {family.__name__: family for family in newer.FAMILIES},
    "putaway": {family.__name__: family for family in newer_apart.FAMILIES},
}
"""The first set, and the two halves of the second. Whoever changes rules looks at the totals of the last alone."""
SEVERITIES = ("info", "warning", "critical")


def cases(
    seed: int, each: int, only: Sequence[str] | None = None, split: str = "first"
) -> Iterator[tuple[str, str, Case]]:
    """Name, format and case, the same for the same seed whatever other families there are.

    only: names of families; all of the split if None.
    """
    for family, make in SPLITS[split].items():
        if only is not None and family not in only:
            continue
        key = zlib.crc32(family.encode())
        for number in range(each):
            case = make(np.random.default_rng([seed, key, number]), number)
            yield f"{family}-{number}", case.formats[(key + seed + number) % len(case.formats)], case


def write_examination(
    seed: int, each: int, folder: Path, only: Sequence[str] | None = None, split: str = "first"
) -> dict[str, dict[str, Any]]:
    """Write every case into a folder of its own, and `labels.json`; returns the labels by the cases' names."""
    folder.mkdir(parents=True, exist_ok=True)
    labels: dict[str, dict[str, Any]] = {}
    for name, told, case in cases(seed, each, only, split):
        path = write(case.training, told, folder / name)
        about = {"path": str(path.relative_to(folder)), "format": told}
        labels[name] = about | case.label(format_of(told).steps(case.training))
    (folder / "labels.json").write_text(json.dumps(labels, indent=1) + "\n")
    return labels


@dataclass
class Verdict:
    """What came of one case.

    right: a trouble found, a healthy one left in peace, nothing said of what is no training. kind_only: the right
    kind, and nowhere near the onset. unread: why the file could not be read. findings: all of the doctor's.
    """

    right: bool
    kind_only: bool
    unread: str
    findings: list[dict[str, Any]]


def judge(label: dict[str, Any], findings: list[dict[str, Any]], unread: str = "", judged: bool = True) -> Verdict:
    """Whether findings are right for a label. judged: some series was taken for the loss, reward or accuracy."""
    if label["group"] == TEXT:
        silent = not any(one["severity"] != "info" for one in findings)
        return Verdict(silent and (bool(unread) or not judged), False, unread, findings)
    if label["group"] != TROUBLE:
        return Verdict(not unread and not any(one["severity"] != "info" for one in findings), False, unread, findings)
    least = SEVERITIES.index(label["least"])
    of_kind = [one for one in findings if one["kind"] in label["kinds"] and SEVERITIES.index(one["severity"]) >= least]
    window = label["window"]
    near = [one for one in of_kind if window is None or window[0] <= (one["step"] or 0) <= window[1]]
    return Verdict(bool(near), bool(of_kind and not near), unread, findings)
