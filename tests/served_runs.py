"""Runs and clients for the tests of the page's server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.testclient import TestClient

import barograph
from barograph.views.server.app import Server
from barograph.views.server.frames import unpack
from barograph.views.server.security import Access

QUIET: dict[str, Any] = {"console": "none", "machine": False, "doctor": False, "blackbox": False, "watchdog": False}


def trained(root: Path, name: str = "a", steps: int = 50, project: str = "p", **options: Any) -> barograph.Run:
    """A run that has logged so many steps and is not finished."""
    run = barograph.init(project=project, id=name, name=name, dir=str(root), **{**QUIET, **options})
    for step in range(steps):
        run.log({"train/loss": 3.0 - step / steps, "train/lr": 1e-3, "val/accuracy": step / steps}, step=step)
    return run


def finished(root: Path, name: str = "a", steps: int = 50, project: str = "p", **options: Any) -> Path:
    """The folder of a run that has ended."""
    run = trained(root, name, steps, project, **options)
    run.finish()
    return root / project / name


class Browser:
    """Asks a server as the page does."""

    def __init__(self, root: Path, access: Access | None = None, assets: Path | None = None):
        self.server = Server(root, access, *([assets] if assets else []))
        self.http = TestClient(self.server.app, base_url="http://localhost:6060", follow_redirects=False)
        self.edit = {"x-barograph-token": self.server.access.edit_token}

    def __enter__(self) -> Browser:
        self.http.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.server.close()
        self.http.__exit__(*error)

    def get(self, path: str, status: int = 200, **options: Any) -> Any:
        answer = self.http.get(path, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    def frame(self, path: str) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        header, data = unpack(answer.content)
        return header, taken(header["columns"], data)

    def series(self, *wanted: tuple[str, str], **options: Any) -> list[dict[str, Any]]:
        """The header's entries, with the columns as arrays."""
        asked = [{"run": run, "name": name} for run, name in wanted]
        answer = self.http.post("/api/series", json={"series": asked, "x": "step"} | options)
        assert answer.status_code == 200, answer.text
        header, data = unpack(answer.content)
        entries: list[dict[str, Any]] = header["series"]
        for entry in entries:
            entry["columns"] = taken(entry["columns"], data)
            for old in entry.get("old", ()):
                old["columns"] = taken(old["columns"], data)
        return entries


def taken(columns: Mapping[str, Any], data: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    return {name: data[place["at"] : place["at"] + place["n"]] for name, place in columns.items()}
