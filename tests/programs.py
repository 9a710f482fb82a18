"""Programs under `barograph run`, and the run that was recorded of one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from patience import patient
from patience import until as until_true
from sidecar_runs import ENVIRONMENT

from barograph.query import catalog
from barograph.query.stored import StoredRun


def until(true: Callable[[], Any]) -> Any:
    return until_true(true, patient(60))


def wrapped(folder: Path, *command: str, more: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, "-m", "barograph", "run", "--dir", str(folder / "runs"), *more, "--", *command]


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def run(folder: Path, *command: str, more: tuple[str, ...] = (), **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        wrapped(folder, *command, more=more), env=ENVIRONMENT, cwd=folder, timeout=patient(120), **options
    )


def recorded(folder: Path) -> StoredRun:
    """The one run that there is, once it has ended."""

    def ended() -> StoredRun | None:
        found = catalog.runs(folder / "runs")
        return found[0] if len(found) == 1 and found[0].manifest.get("status") not in (None, "running") else None

    result: StoredRun = until(ended)
    assert result, [stored.dir for stored in catalog.runs(folder / "runs")]
    return result
