"""What the tests of runs share: runs that begin without a word, and their logs read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import barograph
from barograph.query.stored import StoredRun


def strict(path: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def start(folder: Path, **options: Any) -> barograph.Run:
    options = {"project": "p", "dir": folder, "verbosity": -2, "git": False} | options
    return barograph.init(**options)


def only(folder: Path) -> StoredRun:
    (run,) = barograph.runs(folder)
    return run
