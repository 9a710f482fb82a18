"""Runs that go wrong at the same step share what they were trained on.

In:   diagnoses of several runs.
Out:  the same; where two have a spike at the same step the data are the first cause, and not the learning rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_KINDS = frozenset({"spike", "divergence", "nonfinite", "exploding"})
_DATA, _RATE = "bad batch", "learning rate too high"
_MOST = 20  # spikes of a run: of more some fall on the same step by chance


def compare_spikes(results: Iterable[Mapping[str, Any]]) -> None:
    """Put the data first among the causes where two runs have a spike at one step; changes the findings.

    Where a finding says that the learning rate itself changed there, its causes stay as they are.
    """
    spikes: dict[int, dict[str, str]] = {}  # step → source → run
    runs = [(result, list(_spikes(result))) for result in results]
    for result, found in runs:
        for finding in found:
            spikes.setdefault(finding["step"], {})[result["source"] + result["run"]] = result["run"]
    for result, found in runs:
        for finding in found:
            others = [run for key, run in spikes[finding["step"]].items() if key != result["source"] + result["run"]]
            if others:
                words = f"{_DATA}: {others[0]} has a spike at the same step {finding['step']}"
                rest = [cause for cause in finding["causes"] if cause.partition(":")[0] != _DATA]
                finding["causes"] = [words, *rest]


def _spikes(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    found = [finding for finding in result["findings"] if finding["kind"] in _KINDS]
    for finding in found if len(found) <= _MOST else ():
        story = finding["evidence"].get("story", ())
        labels = [cause.partition(":")[0] for cause in finding["causes"]]
        if {_DATA, _RATE} & set(labels[:2]) and not any(item["kind"] == "learning_rate" for item in story):
            yield finding
