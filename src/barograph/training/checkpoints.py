"""Checkpoints of a run: metadata beside each, and the one to go on from.

In:   a checkpoint's path and step, losses, where the loader stands; what the run is at.
Out:  a `checkpoint` record, `meta_{step}.json` beside the checkpoint, an entry in the manifest; the metadata again.

A checkpoint belongs to a run, a branch of it, and a file or folder that exists: `restore` gives no other.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barograph.core import manifest, segments
from barograph.core.secrets import masked
from barograph.training.alerting import RunAlerts
from barograph.training.configuration import RunConfig
from barograph.training.guard import guarded
from barograph.training.probing import RunData
from barograph.training.recorder import Recorder

_FIELDS = {"val_loss", "val_bpb", "config", "loader_state", "loop_state"}


class Checkpoints:
    """`run.checkpoints`."""

    def __init__(self, recorder: Recorder, config: RunConfig, data: RunData, alerts: RunAlerts):
        self._out, self._config, self._data, self._alerts = recorder, config, data, alerts

    @guarded("checkpoint")
    def save(self, path: str | os.PathLike[str], step: int, **about: Any) -> Path | None:
        """Write the metadata of the checkpoint at `path` beside it, atomically, and note it in the run. Save the
        checkpoint itself first.

        about: `val_loss`, `val_bpb`, `loader_state` ({pq_idx, rg_idx, epoch}; by default the position told
        last), `loop_state` (beside the smoothed and best loss and the training time, which are there already)
        and anything else that is to come back with `restore`. Kept too: `mirrors`, the run's identity at each
        tracker that gets a copy. With several ranks rank 0 writes the metadata; the positions of the others'
        loaders are kept in the run's folder and come back with `restore` on the same rank.
        """
        out = self._out
        at = out.step_of(step)
        about.setdefault("config", masked(self._config))
        loader = self._position()
        if loader is not None:
            about.setdefault("loader_state", loader)
        position = about.get("loader_state")
        if out.rank != 0:
            self._keep_position(at, Path(path), position)
            self._alerts.stop.checkpoint_saved()
            return None
        about["loop_state"] = out.console.state() | self._best(about) | dict(about.get("loop_state") or {})
        if ids := self._mirrors():
            about.setdefault("mirrors", ids)
        extra = {name: about.pop(name) for name in set(about) - _FIELDS}
        extra |= {"run": out.id, "segment": out.segment.number, "rank": out.rank}
        written = manifest.write_checkpoint(path, step=at, extra=extra, **about)
        fields = {"path": str(Path(path).absolute()), "metadata": str(written.absolute())}
        fields.update((k, v) for k in ("val_loss", "val_bpb") if (v := about.get(k)) is not None)
        out.emit("checkpoint", at, dict(fields))
        with contextlib.suppress(OSError):
            manifest.add_checkpoint(out.dir, {"step": at, "segment": out.segment.number} | fields)
        self._alerts.stop.checkpoint_saved()
        return written

    @guarded("restore")
    def restore(self, step: int | None = None, best: str | None = None) -> dict[str, Any] | None:
        """The metadata of a checkpoint to go on from, or None: by default the last one.

        step: the one of that step. best: the one whose `val_loss` or `val_bpb` is the least. Only checkpoints of
        this run's live branch count (of a fork also its source's before the fork) whose file or folder is there,
        whole. The console goes on too: its smoothed loss and training time are those of the checkpoint.
        """
        chosen_states = [state for state in self.list() if step is None or state["step"] == step]
        if best is not None:
            chosen_states = [state for state in chosen_states if _is_number(state.get(best))]
            chosen_states.sort(key=lambda state: -float(state[best]))
        if not chosen_states:
            return None
        state = chosen_states[-1]
        self._out.console.restore(state.get("loop_state"), state["step"])
        if self._out.rank != 0:
            position = self._kept_position(state)
            if position is not None:
                state["dataloader_state_dict"] = position
        self._data.position = state.get("dataloader_state_dict") or None
        return state

    def list(self) -> list[dict[str, Any]]:
        """The metadata of every checkpoint that `restore` may give, by step."""
        found: dict[int, dict[str, Any]] = {}
        for folder, number, before in _history(self._out.dir, self._out.segment.number):
            for entry in manifest.read(folder).get("checkpoints") or []:
                state = _whole(entry, folder.name, number, before)
                if state is not None:
                    found.setdefault(state["step"], state)  # the later segments come first
        return [found[step] for step in sorted(found)]

    def _position(self) -> dict[str, Any] | None:
        """Where the data loader stands: as told last, else by the `pq`, `rg` and `epoch` of the last step."""
        if self._data.position is not None:
            return self._data.position
        steps = [record for record in self._out.lasts.values() if record.kind == "step" and "pq" in record.fields]
        if not steps:
            return None
        fields = max(steps, key=lambda record: record.step).fields
        names = {"pq_idx": "pq", "rg_idx": "rg", "epoch": "epoch"}
        return {name: fields[short] for name, short in names.items() if short in fields}

    def _best(self, about: Mapping[str, Any]) -> dict[str, float]:
        """The best validation figures so far, this one among them."""
        result: dict[str, float] = {}
        for name in ("val_loss", "val_bpb"):
            values = [state.get(name) for state in self.list()] + [about.get(name)]
            numbers = [float(value) for value in values if value is not None and _is_number(value)]
            if numbers:
                result[f"min_{name}"] = min(numbers)
        return result

    def _mirrors(self) -> dict[str, str]:
        """The run's identity at each tracker, of those known so far."""
        result = {}
        for path in (self._out.dir / "mirrors").glob("*.json") if self._out.settings.backends else ():
            with contextlib.suppress(OSError, ValueError, AttributeError):
                run_id = json.loads(path.read_bytes()).get("state", {}).get("run_id")
                if run_id:
                    result[path.stem] = str(run_id)
        return result

    # -- other ranks -------------------------------------------------------------------------------------

    def _position_file(self, step: int, checkpoint: str, rank: int) -> Path:
        name = "".join(letter if letter.isalnum() else "-" for letter in checkpoint)[-60:]
        return self._out.dir / "checkpoints" / f"position_{step:06d}_{name}_rank{rank}.json"

    def _keep_position(self, step: int, path: Path, position: Any) -> None:
        out = self._out
        fields: dict[str, Any] = {"path": str(path.absolute())}
        if position is not None:
            fields["loader_state"] = dict(position)
            file = self._position_file(step, path.name, out.rank)
            file.parent.mkdir(exist_ok=True)
            manifest.write_json(file, {"step": step, "rank": out.rank, "loader_state": dict(position)})
        out.emit("checkpoint", step, fields)

    def _kept_position(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        for folder, _, _ in _history(self._out.dir, self._out.segment.number):
            name = Path(str(state.get("checkpoint", ""))).name
            file = folder / "checkpoints" / self._position_file(state["step"], name, self._out.rank).name
            with contextlib.suppress(OSError, ValueError):
                position = json.loads(file.read_bytes()).get("loader_state")
                if isinstance(position, dict):
                    return position
        return None


def _history(folder: Path, segment: int, depth: int = 20) -> list[tuple[Path, int, int | None]]:
    """The live branch from its end: folder, segment, and the step before which it counts (None: all of it)."""
    known = {item.number: item for item in segments.read(folder)}
    result: list[tuple[Path, int, int | None]] = []
    current, cut = known.get(segment), None
    seen: set[int] = set()
    while current is not None and current.number not in seen:
        seen.add(current.number)
        result.append((folder, current.number, cut))
        if current.kind == "rewind" and current.start_step is not None:
            cut = current.start_step if cut is None else min(cut, current.start_step)
        elif current.kind == "fork" and current.source and current.start_step is not None and depth:
            start = current.start_step if cut is None else min(cut, current.start_step)
            source = Path(current.source)
            last = segments.read(source)
            for place, number, before in _history(source, last[-1].number, depth - 1) if last else ():
                result.append((place, number, start if before is None else min(before, start)))
        elif current.kind == "resume" and current.start_step is not None:
            # a checkpoint of the very step is what it went on from; later ones were logged again
            cut = current.start_step + 1 if cut is None else min(cut, current.start_step + 1)
        current = known.get(current.parent) if current.parent is not None else None
    return result


def _whole(entry: Any, run: str, segment: int, before: int | None) -> dict[str, Any] | None:
    """The metadata of a checkpoint of that segment, before that step, whose file or folder is there."""
    if not isinstance(entry, dict) or int(entry.get("segment", segment)) != segment:
        return None
    step, metadata = entry.get("step"), entry.get("metadata")
    if type(step) is not int or not metadata or (before is not None and step >= before):
        return None
    state = manifest.read_checkpoint(metadata)
    if state is None or state.get("step") != step or state.get("run", run) != run:
        return None
    checkpoint = Path(str(entry.get("path") or state.get("checkpoint_path", "")))
    if Path(state.get("checkpoint_path", checkpoint)).name != checkpoint.name or not checkpoint.exists():
        return None
    return state | {"checkpoint_path": str(checkpoint)}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
