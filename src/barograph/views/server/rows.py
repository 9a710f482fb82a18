"""One run as a row of the table: from its manifest, cheaply; then from its log and columns, when there is time.

In:   a run's folder.
Out:  the row as JSON-ready data, and what tells that it is out of date.
"""

from __future__ import annotations

import json
import math
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from barograph.core import liveness, manifest, segments
from barograph.core.configuration import planned_steps
from barograph.core.manifest import wall_seconds
from barograph.core.record import encode_fields, format_time, mark_non_finite, parse_time
from barograph.log.spool import best_copy
from barograph.query import curation
from barograph.query.findings import SEVERITIES
from barograph.query.groups import Traits, facts_of
from barograph.query.keys import flatten
from barograph.query.leaves import flat
from barograph.query.losses import RunLosses, last_leave_open, losses_by_name, told_beside
from barograph.query.metrics import best_names, best_values, chosen, read_last_values
from barograph.query.stored import StoredRun
from barograph.views.server.places import RunPlace
from barograph.views.server.progress import Progress, last_step, sidecar_logs

_MOST_CONFIG = 500  # values of a configuration in a row; the run's own page has them all
_LONGEST_VALUE = 500  # characters
_ASK_SECONDS = 10.0  # after which the rows of a run that is written are asked again which of them are losses

Signature = tuple[Any, ...]


class RunRow:
    """A run's row. `data`: what is sent. `is_filled`: whether it has what takes longer to find out.

    `edited`: what people edited. `live`: whether something may still be written. `checked`: when the
    status was looked at, by `time.monotonic`. `derived`: what others worked out of the row, until it changes. `told`:
    losses that their rows tell, since no name does.
    """

    def __init__(self, place: RunPlace):
        self.place = place
        self.data: dict[str, Any] = {}
        self.raw = b""
        self.signature: Signature = ()
        self.live = False
        self.is_filled = False
        self.is_diagnosed = True  # or there is nothing to ask the doctor
        self.checked = 0.0
        self.written = 0.0
        self.told = RunLosses()
        self._asked = -math.inf  # when the rows were asked
        self.progress: Progress | None = None
        self.edited: dict[str, Any] = {}
        self._recorded: dict[str, Any] | bytes = {}
        self.derived: dict[str, Any] = {}
        self._settings: dict[str, Any] | None = None

    @property
    def recorded(self) -> dict[str, Any]:
        """The manifest, without what no row needs."""
        if isinstance(self._recorded, bytes):
            self._recorded = dict(msgspec.json.decode(self._recorded))
        return self._recorded

    @property
    def recorded_json(self) -> bytes:
        """The same as JSON."""
        return self._recorded if isinstance(self._recorded, bytes) else encode_fields(self._recorded)

    @property
    def traits(self) -> Traits:
        """What the run is grouped by, kept until the row changes."""
        kept, data = self.derived, self.data
        found: Traits | None = kept.get("traits")
        if found is None:
            if self._settings is None:
                config = self.recorded.get("config")
                self._settings = flatten(config if isinstance(config, dict) else {})
            facts = facts_of({**self.recorded, "tags": data["tags"]})
            facts |= {"project": data["project"], "status": data["status"]}
            found = kept["traits"] = Traits(self._settings, facts)
        return found

    def build(self, signature: Signature) -> None:
        """Read the manifest and what people edited; keeps what was found in the columns before."""
        place, now = self.place, time.time()
        about = _manifest(place.dir)
        self._recorded = about
        edited = self.edited = curation.read(place.dir)
        said = about | edited
        status = self._status(about)
        log = best_copy(place.dir / "training.json")
        final = about.get("final_metrics")
        final = final if isinstance(final, dict) else {}
        if "step" in final and not self.live:
            step, self.written = final["step"], _mtime(log) or 0.0
        else:
            step, self.written = last_step(log)
        first = next(iter(segments.read(place.dir)), None)
        before = self.data
        created = _seconds(about.get("created")) or (first.time / 1e6 if first is not None else 0.0)
        self.data = {
            "key": place.key,
            "project": _text(said.get("project")) or place.dir.parent.name,
            "id": place.dir.name,
            "name": _text(said.get("name")) or place.dir.name,
            "status": status,
            "status_since": _seconds(about.get("finished")) or (self.written or None),
            "created": created or _mtime(place.dir),
            "wall_seconds": _wall(about, created, self.written if not self.live else now),
            "tags": [_text(tag) for tag in said.get("tags") or () if isinstance(said.get("tags"), list)],
            "notes": _text(said.get("notes")),
            "pinned": edited.get("pinned") is True,
            "archived": edited.get("archived") is True,
            "config": _config(about.get("config")),
            "step": step if not self.live else step or None,
            "total_steps": planned_steps(about),
            "remaining_seconds": None,
            "last": chosen(final, self.told) if not self.live else before.get("last", {}),
            "best": before.get("best", {}),
            "findings": before.get("findings", {"critical": 0, "warning": 0, "info": 0}),
            "examined": before.get("examined", False),
            "parent": None,
            "fork_step": first.start_step if first is not None and first.source else None,
            "source": first.source if first is not None and first.source else None,
        }
        if not self.data["last"]:
            self.data["last"] = before.get("last", {})
        if not self.live and about.get("final_metrics") == {}:
            self.data["step"] = None  # it logged nothing: the step of its `end` record is none
        self.signature = signature
        self._settings = None
        self.is_filled = False
        self.encode()

    def restore(
        self,
        signature: Signature,
        raw: bytes,
        source: str | None,
        recorded: bytes,
        edited: dict[str, Any],
        written: float,
    ) -> None:
        """Take what `build` and `fill` found before, of a run that has ended."""
        self.data = msgspec.json.decode(raw) | {"source": source}
        self.raw, self.signature, self.written = raw, signature, written
        self._recorded, self.edited = recorded, edited
        named = losses_by_name(self.data["last"])
        kept = zip((self.data["loss"], self.data["eval_loss"]), named, strict=True)
        self.told = RunLosses(*(() if one is None or names else (one,) for one, names in kept))
        self.checked = time.monotonic()

    def encode(self) -> None:
        """The row as JSON, kept: a list of thousands is put together from these."""
        self.derived = {}
        last = self.data["last"]
        found = losses_by_name(last).and_told(self.told.among(last))
        self.data |= {"loss": found.loss, "eval_loss": found.evaluation}
        shown = {key: value for key, value in self.data.items() if key != "source"}
        try:
            self.raw = _encode(shown).encode()
        except (TypeError, ValueError):  # NaN or infinite
            self.raw = msgspec.json.encode(mark_non_finite(shown))

    def fill(self, run: StoredRun) -> None:
        """Find out what takes longer: findings, best values, last values of a run that has not ended. May raise."""
        if self.live:
            self.advance()
        progress = self.progress or Progress(self.place.dir)
        if not self.live:
            progress.read_findings()
            self.progress = None
        elif not progress.whole:
            progress.read_findings()
        self.data["findings"] = progress.findings.counts()
        self.is_diagnosed = self.live or bool(sidecar_logs(self.place.dir))
        self.data["examined"] = bool(sidecar_logs(self.place.dir))
        if not self.data["last"]:
            self.data["last"], step = read_last_values(run)
            self.data["step"] = step if self.data["step"] is None else self.data["step"]
        before = self.told
        self._ask(run, progress)
        if not self.live or not progress.whole or progress.segments > 1 or self.told != before:
            best = best_values(run, best_names(self.data["last"], self.told), self.told)
            self.data["best"] = best
            if self.live:
                progress.best.update(best)
        self.encode()
        self.is_filled = True

    def _ask(self, run: StoredRun, progress: Progress) -> None:
        """Which series are losses by their rows, where no name tells; these have a place in the row."""
        final = progress.last if self.live else self.recorded.get("final_metrics")
        values = final if isinstance(final, dict) and final else self.data["last"]
        self.told, self._asked = told_beside(run, values), time.monotonic()
        if self.told != RunLosses():
            progress.fall((*self.told.training, *self.told.evaluations))
            self.data["last"] = chosen(values, self.told)

    def may_be_told_more(self) -> bool:
        """Whether the rows of a run that is written may tell by now which series is a loss."""
        return (
            self.is_filled
            and time.monotonic() - self._asked > _ASK_SECONDS
            and None in (self.data["loss"], self.data["eval_loss"])
            and last_leave_open(tuple(self.data["last"]))
        )

    def diagnosed(self, severities: list[str]) -> bool:
        """Take the findings of a diagnosis of the stored run, the one that its page shows; whether they are others."""
        counts = {severity: severities.count(severity) for severity in SEVERITIES}
        changed = not self.data.get("examined") or counts != self.data["findings"]
        if changed:
            self.data |= {"findings": counts, "examined": True}
            self.encode()
        self.is_diagnosed = True
        return changed

    def advance(self) -> bool:
        """Follow the log of a run that is written; whether the row changed."""
        if self.progress is None:
            self.progress = Progress(self.place.dir)
        progress, data = self.progress, self.data
        if not progress.advance():
            return False
        if progress.step is not None:
            data["step"] = progress.step
        data["last"] = chosen(progress.last, self.told)
        data["best"] = {name: progress.best[name] for name in data["last"] if name in progress.best}
        if not data.get("examined"):
            data["examined"] = bool(sidecar_logs(self.place.dir))
        if progress.findings or (progress.whole and data.get("examined")):
            data["findings"] = progress.findings.counts()
        data["wall_seconds"] = _wall(self.recorded, data["created"], time.time())
        pace, total = progress.seconds_a_step(), data["total_steps"]
        if data["status"] == "running" and pace is not None and isinstance(total, int) and data["step"] is not None:
            data["remaining_seconds"] = max(0, total - data["step"]) * pace
        if progress.phase == "eval" and data["status"] == "running":
            data["phase"] = "eval"
        else:
            data.pop("phase", None)
        self.encode()
        return True

    def look_at_status(self) -> bool:
        """Whether the status is another one than before: a process goes without a word."""
        was = self.data["status"]
        self.data["status"] = self._status(self.recorded)
        if self.data["status"] == was:
            return False
        self.data["status_since"] = time.time() if was in liveness.ALIVE else self.data["status_since"]
        if self.data["status"] != "running":  # who makes no steps has no end in sight
            self.data["remaining_seconds"] = None
        self.encode()
        return True

    def _status(self, about: dict[str, Any]) -> str:
        self.checked = time.monotonic()
        status = liveness.status(self.place.dir, about)
        self.live = status in liveness.OPEN
        return status


# a tenth of the time of a walk through the whole row for what is not finite
_encode = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode


def signature(folder: Path) -> Signature:
    """What changes when a row may have to be built again: a few looks at files."""
    path = str(folder)
    seen = tuple(_stamp(f"{path}/{name}") for name in (manifest.FILE, curation.FILE, "training.json"))
    beside = _beside(path, _stamp(path)) if seen[0] or seen[2] else ()
    return *seen, *(_stamp(f"{path}/{name}") for name in beside)


@lru_cache(maxsize=1 << 15)
def _beside(path: str, changed: tuple[int, int] | None) -> tuple[str, ...]:
    """The sidecars' logs in a folder, listed again when files came or went in it."""
    return tuple(sidecar_logs(Path(path)))


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_UNUSED = frozenset({"packages"})  # hundreds of names and versions, in thousands of manifests


def _manifest(folder: Path) -> dict[str, Any]:
    """The manifest without what no row needs, with NaN and infinities as the strings that JSON has for them."""
    try:
        with open(f"{folder}/{manifest.FILE}", "rb", buffering=0) as file:
            found = _parts(file.read())
        for name in _UNUSED:
            found.pop(name, None)
        return dict(msgspec.json.decode(msgspec.json.encode(found)))
    except OSError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return manifest.read(folder)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _mtime(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _seconds(moment: Any) -> float | None:
    return (parse_time(moment) / 1e6) or None if isinstance(moment, str) else None


def _wall(about: dict[str, Any], created: float | None, until: float) -> float | None:
    if "created" not in about:
        about = {"created": format_time(int((created or 0) * 1e6)), **about}
    return wall_seconds(about, until or 0.0)


def _config(config: Any) -> dict[str, Any]:
    """The configuration's values by their dotted names, long ones cut."""
    if not isinstance(config, dict):
        return {}
    result: dict[str, Any] = {}
    for name, value in flat(config):
        if len(result) == _MOST_CONFIG:
            break
        if isinstance(value, str) and len(value) > _LONGEST_VALUE:
            value = value[:_LONGEST_VALUE] + "…"
        elif isinstance(value, list) and len(value) > 64:
            value = [*value[:64], "…"]
        result[name] = value
    return result
