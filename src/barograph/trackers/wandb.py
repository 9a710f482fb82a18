"""Weights & Biases: a run's numbers as rows of a W&B run.

In:   records from a `LoggingBackend`'s queue; names and identity from a configuration.
Out:  a W&B run, started by the first record; offline where `WANDB_MODE` says so.

W&B numbers its rows by `_step` and drops a row that goes back. So each row holds the training's step
under `step` too, charts are drawn over that, and `_step` follows it as long as it only goes up: an
evaluation logged late, or a rewind, takes the next free row and nothing is dropped.
"""

from __future__ import annotations

import contextlib
import html
import itertools
import logging
import math
import os
import struct
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from barograph.core import liveness
from barograph.core.values import flatten, text
from barograph.trackers.backend import TrackerBackend
from barograph.trackers.options import tags, word

_logger = logging.getLogger("barograph")

STEP = "step"  # the column that charts are drawn over
_MARKS = "barograph_"  # begins the names of a mirror's own numbers
_SETTLED_SECONDS = 2.0  # W&B's service writes its file each second, also for a while after the program died
_SERVICE_SECONDS = 30.0  # and then it goes: in less than 5 s on a busy machine
_LEVELS = {"info": "INFO", "warning": "WARN"}


class WandBBackend(TrackerBackend):
    """Sends to W&B; the run is started by the first `log`, on rank 0.

    config: anything with `wandb_project`, `wandb_run_name` (or `wandb_name`) and `wandb_run_id`. An id
    continues that run; where there is none, the new run's id is written into `config.wandb_run_id` once
    it is known, so that a checkpoint can keep it.
    run_config: the training's configuration, shown with the run.
    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    name, package, install = "W&B", "wandb", "pip install wandb"

    run: Any = None  # W&B's own run, once it is started
    _row = _row_step = -1
    _read: dict[str, list[float]] | None = None  # what the files of earlier processes hold

    def _open(self) -> None:
        is_ours = "wandb" not in sys.modules  # else the training uses it too, and how it speaks is theirs
        wandb: Any = import_module("wandb")

        if not hasattr(wandb, "init"):  # `import` takes the folder ./wandb that earlier runs have left
            raise ImportError("there is only a folder of that name", name="wandb")
        quiet = {"console": "off", "quiet": True, "show_info": False, "silent": False}
        if is_ours:
            wandb.setup(settings=_settings(wandb, **quiet))
        if not _is_signed_in(wandb):  # asked here, or `init` would ask whoever sits at the terminal
            raise RuntimeError("there is no API key. Run wandb login, or set WANDB_MODE=offline")
        settings = _settings(
            wandb,
            **quiet,
            finish_timeout=max(self.close_seconds - 5, 1),  # what `finish` waits for uploads
            x_transaction_log_flush_interval=1.0,  # a kill costs the run's file that much; W&B has 15 s
        )
        self._row_names: set[str] = set()
        self.run = wandb.init(
            project=word(self._config, "wandb_project", "project") or None,
            name=word(self._config, "wandb_run_name", "wandb_name", "name") or None,
            id=word(self._config, "wandb_run_id")
            or self._before.get("run_id")
            or None,  # read now: a checkpoint may have restored it
            resume="allow",
            config=flatten(self._run_config, self.sender.odd) if self._run_config else None,
            tags=tags(self._config) or None,
            notes=word(self._config, "notes") or None,
            settings=settings,
            **_beside_others(wandb),
        )
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP)
        self._row = int(getattr(self.run, "step", 0) or 0) - 1  # a resumed run goes on behind its last row
        if self._before:  # offline it can't know
            self._row = max(self._row, int(self._before.get("row", -1)), *map(int, self._held("_step") or [-1]))
        self.run_id = self.run.id
        with contextlib.suppress(Exception):  # a frozen configuration
            self._config.wandb_run_id = self.run.id
        if not getattr(self.run, "offline", False) and self.run.url:
            _logger.info("barograph: the W&B run is at %s", self.run.url)

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        marked = any(name.startswith(_MARKS) for name in metrics)  # by a mirror, which counts whole rows
        if marked or step != self._row_step or not self._row_names.isdisjoint(metrics):
            self._row, self._row_step = max(self._row + 1, step), step
            self._row_names.clear()
        self._row_names.update(metrics)
        row = {STEP: step, "_timestamp": seconds} | metrics
        if "" in row:  # which W&B leaves out
            row["unnamed"] = row.pop("")
        self.run.log(row, step=self._row, **({"commit": True} if marked else {}))

    def _write_text(self, name: str, content: str, step: int, seconds: float) -> None:
        wandb: Any = import_module("wandb")

        page = f"<pre style='white-space:pre-wrap'>{html.escape(content)}</pre>"
        self._write({name: wandb.Html(page, inject=False)} | self.mark, step, seconds)

    def _write_note(self, title: str, content: str, level: str, step: int, seconds: float) -> None:
        self.run.alert(title=title[:200], text=content[:2000], level=_LEVELS.get(level, "ERROR"))

    def _write_parts(self, name: str, title: str, parts: dict[str, float], step: int, seconds: float) -> None:
        wandb: Any = import_module("wandb")

        self._write({name: wandb.Html(pie(title, parts), inject=False)} | self.mark, step, seconds)

    def _state(self) -> dict[str, Any]:
        earlier = [text(path) for path in self._before.get("files", ())]
        path = getattr(self.run.settings, "sync_file", None)
        files = [*earlier, text(path)] if getattr(self.run, "offline", False) and path else earlier
        return {"run_id": self.run_id, "row": self._row, "pid": os.getpid(), "files": list(dict.fromkeys(files))}

    def _held(self, name: str) -> list[float] | None:
        """From the run's own files where it is kept offline, else the last one, which the server knows."""
        files = [Path(path) for path in self._before.get("files", ())]
        if not files:
            last = self.run.summary.get(name) if self.run is not None else None
            return [float(last)] if isinstance(last, (int, float)) else None
        if self._read is None:
            self._read = {}
            gone = _await_end_of_service(self._before.get("pid"))
            for path in files:
                _read_numbers(path, self._read, settled=gone)
        return self._read.get(name, [])

    def _write_config(self, config: dict[str, Any]) -> None:
        self.run.config.update(config, allow_val_change=True)

    def _write_histogram(self, name: str, edges: list[float], counts: list[float], step: int, seconds: float) -> None:
        wandb: Any = import_module("wandb")

        bins: Any = (counts, edges)  # lists do, though its signature says arrays
        self._write({name: wandb.Histogram(np_histogram=bins)} | self.mark, step, seconds)

    def _close(self) -> None:
        if self.run is not None:
            code = self.exit_code
            self.run.finish(exit_code=code if code is not None else int(getattr(sys, "last_value", None) is not None))


def pie(title: str, parts: Mapping[str, float]) -> str:
    """An HTML page with a pie of the positive parts and their shares, without scripts."""
    known = {name: value for name, value in parts.items() if 0 < value < math.inf}
    whole, at, slices, legend = sum(known.values()), 0.0, [], []
    for number, (name, value) in enumerate(known.items()):
        colour, share = f"hsl({number * 137.5 % 360:.0f} 55% 52%)", value / whole
        begin, end = 2 * math.pi * at, 2 * math.pi * (at + share)
        at += share
        path = (
            f"M0 0L{math.sin(begin):.4f} {-math.cos(begin):.4f}"
            f"A1 1 0 {int(share > 0.5)} 1 {math.sin(end):.4f} {-math.cos(end):.4f}Z"
        )
        shape = "<circle r='1'" if share > 0.9999 else f"<path d='{path}'"
        slices.append(f"{shape} fill='{colour}'/>")
        shown = html.escape(f"{name}: {value:,.4g} ({share:.1%})")
        legend.append(f"<li style='margin:4px'><span style='color:{colour}'>&#9632;</span> {shown}</li>")
    return (
        f"<div style='font-family:sans-serif'><h4>{html.escape(title)}</h4><div style='display:flex;gap:16px'>"
        f"<svg viewBox='-1.05 -1.05 2.1 2.1' width='220' height='220'>{''.join(slices)}</svg>"
        f"<ul style='list-style:none'>{''.join(legend)}</ul></div></div>"
    )


def _await_end_of_service(pid: Any) -> bool:
    """Wait until W&B's service of an earlier process has gone; False where that can't be seen."""
    wanted = ("--pid", str(pid))
    deadline = time.monotonic() + _SERVICE_SECONDS
    while time.monotonic() < deadline:
        lines = liveness.command_lines()
        if lines is None:
            return False
        if not any(wanted in itertools.pairwise(line) for line in lines):
            return True
        time.sleep(0.1)
    return False


def _read_numbers(path: Path, into: dict[str, list[float]], settled: bool) -> None:
    """The row numbers and a mirror's own numbers in a run's file, once nobody writes it any more.

    The file is LevelDB's log: blocks of 32 KiB, in each records or parts of one, each with its checksum, length and
    kind; a header of 7 bytes first.
    """

    messages: Any = import_module("wandb.proto.wandb_internal_pb2")  # which picks the file of the installed protobuf
    try:
        stat = path.stat()
        while not settled and time.time() - stat.st_mtime < _SETTLED_SECONDS:
            time.sleep(0.2)
            stat = path.stat()
        data = path.read_bytes()
    except OSError:
        return
    at, record = 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        size, part = struct.unpack_from("<HB", data, at + 4)
        if part not in (1, 2, 3, 4) or at + 7 + size > len(data):
            return
        record = data[at + 7 : at + 7 + size] if part in (1, 2) else record + data[at + 7 : at + 7 + size]
        at += 7 + size
        if part in (2, 3):
            continue
        try:
            made = messages.Record.FromString(record)
        except Exception:  # torn, as a killed process leaves its last record
            continue
        if made.WhichOneof("record_type") == "history":
            for item in made.history.item:
                name = item.key or "/".join(item.nested_key)
                if name == "_step" or name.startswith(_MARKS):
                    into.setdefault(name, []).append(float(item.value_json))


def _settings(wandb: Any, **wanted: Any) -> Any:
    """W&B's settings, without those that the installed version does not have."""
    settings = wandb.Settings()
    return wandb.Settings(**{name: value for name, value in wanted.items() if hasattr(settings, name)})


def _is_signed_in(wandb: Any) -> bool:
    if wandb.setup().settings.mode in ("offline", "disabled", "dryrun"):
        return True
    try:
        return bool(wandb.login(prompt=False))
    except TypeError:  # versions whose login always asks
        return bool(wandb.api.api_key)


def _beside_others(wandb: Any) -> dict[str, Any]:
    """A run of our own beside one that the training has open; W&B would else hand out or end that one."""
    fields = getattr(wandb.Settings, "model_fields", {})
    if "reinit" in fields and "create_new" in str(fields["reinit"].annotation):
        return {"reinit": "create_new"}
    if wandb.run is not None:
        raise RuntimeError("this version of wandb keeps one run a process and the training has one: upgrade wandb")
    return {}
