"""Projects: what runs each has.

In:   stored runs.
Out:  a row a project: how many runs, how many go on, failed, are archived; when the last one began.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from barograph.core import liveness
from barograph.query import curation
from barograph.query.stored import StoredRun


@dataclass
class Project:
    """One project. running: a process writes them now. failed: ended otherwise than planned. archived: put aside.

    newest: id of the run begun last, created: when that was, UTC text as in manifests, None if not known.
    """

    name: str
    runs: int = 0
    running: int = 0
    failed: int = 0
    archived: int = 0
    newest: str | None = None
    created: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def projects(runs: Iterable[StoredRun]) -> list[Project]:
    """The projects of some runs, the one with the latest run first."""
    found: dict[str, Project] = {}
    for run in runs:
        about = curation.over(run.dir, run.manifest)
        one = found.setdefault(run.project, Project(run.project))
        status = run.status
        one.runs += 1
        one.running += status in liveness.ALIVE
        one.failed += status in liveness.FAILED
        one.archived += about.get("archived") is True
        created = str(about.get("created") or "")
        if one.newest is None or created >= (one.created or ""):
            one.newest, one.created = run.id, created or None
    return sorted(found.values(), key=lambda item: (item.created or "", item.name), reverse=True)
