"""Runs that go on, as OpenMetrics: what Prometheus and its like scrape.

In:   the entries of runs' logs; or a folder of runs.
Out:  a page of text; a small server that gives it at `/metrics`.

A series becomes a gauge of its name, `train/loss` → `barograph_train_loss`, in base units (`…_ms` is `…_seconds`), with
labels project, run, rank and series. Two series that would have one name differ by their label `series`.
"""

from __future__ import annotations

import contextlib
import math
import re
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from barograph.core import liveness, manifest
from barograph.core.record import Record, numbers, parse_time
from barograph.log.blocks import WideRow
from barograph.log.files import is_sidecar_name
from barograph.log.follow import Entry, Follower
from barograph.query.catalog import runs

MOST_SERIES = 2000  # of a run
MOST_RUNS = 200
_KEPT_SECONDS = 300.0  # a run that has ended is shown for so long, so that its last values are scraped
_LONGEST = 200  # letters of a label
_OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_PLAIN = "text/plain; version=0.0.4; charset=utf-8"
# what a name ends with → the base unit, and the factor to it
_UNITS = (
    ("_ms", "seconds", 1e-3),
    ("_us", "seconds", 1e-6),
    ("_seconds", "seconds", 1.0),
    ("_gb", "bytes", 1e9),
    ("_mb", "bytes", 1e6),
    ("_bytes", "bytes", 1.0),
    ("_percent", "ratio", 1e-2),
    ("_celsius", "celsius", 1.0),
    ("_joules", "joules", 1.0),
    ("_watts", "watts", 1.0),
)
_ENDS_OF_OTHERS = ("_total", "_count", "_sum", "_bucket", "_created", "_info", "_gcount", "_gsum")
_RUN = {
    "barograph_run": ("info", "", "A run, with its name and host."),
    "barograph_run_up": ("gauge", "", "1 while the run's process is there, 0 once it has ended."),
    "barograph_run_step": ("gauge", "", "The last step."),
    "barograph_run_start_timestamp_seconds": ("gauge", "seconds", "When the run was started."),
    "barograph_run_record_timestamp_seconds": ("gauge", "seconds", "When something was recorded last."),
    "barograph_run_findings": ("gauge", "", "Findings of the doctor, by severity."),
    "barograph_run_series_left_out": ("gauge", "", f"Series beyond the first {MOST_SERIES}, which are not shown."),
}


class LastValues:
    """The last value of each series of one run; takes the entries of its logs. Not for several threads at once."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.values: dict[tuple[str, int], float] = {}
        self.left_out = 0
        self.step = self.moment = 0
        self.findings: dict[tuple[Any, ...], str] = {}
        self._beyond: set[tuple[str, int]] = set()

    def take(self, entry: Entry) -> None:
        """An entry."""
        item = entry.item
        if isinstance(item, WideRow):
            self._add(entry.rank, item.names, struct.unpack(f"<{len(item.names)}d", item.values))
        elif not isinstance(item, Record):
            return
        elif item.kind == "finding":
            key = tuple(str(item.fields.get(name)) for name in ("rule", "key", "segment"))
            self.findings[key] = str(item.fields.get("severity"))
        else:
            pairs = list(numbers(item))
            self._add(entry.rank, [name for name, _ in pairs], [value for _, value in pairs])
        self.moment = max(self.moment, item.time)
        if entry.rank == 0 and not is_sidecar_name(entry.source):
            self.step = item.step

    def _add(self, rank: int, names: Iterable[str], values: Iterable[float]) -> None:
        for name, value in zip(names, values, strict=True):
            key = name, rank
            if key in self.values or len(self.values) < MOST_SERIES:
                self.values[key] = float(value)
            elif key not in self._beyond and len(self._beyond) < 10 * MOST_SERIES:
                self._beyond.add(key)
                self.left_out = len(self._beyond)

    def settle(self, idle: bool) -> None:
        """Nothing waits here."""

    def finish(self) -> None:
        """The last values stay."""


def page(found: Iterable[LastValues]) -> str:
    """Runs as OpenMetrics."""
    families: dict[str, tuple[str, str, str, list[str]]] = {
        name: (kind, unit, text, []) for name, (kind, unit, text) in _RUN.items()
    }

    given: set[str] = set()

    def add(family: str, labels: Mapping[str, object], value: float, ending: str = "") -> None:
        words = ",".join(f'{name}="{_escaped(str(each))}"' for name, each in labels.items())
        sample = f"{family}{ending}{{{words}}}"
        if sample not in given:  # names that are alike in their first 200 letters
            given.add(sample)
            families[family][3].append(f"{sample} {_number(value)}")

    for one in found:
        about = manifest.read(one.folder)
        status = liveness.status(one.folder, about)
        run = {"project": about.get("project") or one.folder.parent.name, "run": about.get("id") or one.folder.name}
        more = {"name": about.get("name") or "", "host": about.get("host") or "", "status": status}
        add("barograph_run", run | more, 1, "_info")
        add("barograph_run_up", run, float(status in liveness.OPEN))
        add("barograph_run_step", run, one.step)
        if (started := parse_time(about.get("started"))) is not None:
            add("barograph_run_start_timestamp_seconds", run, started / 1e6)
        add("barograph_run_record_timestamp_seconds", run, one.moment / 1e6)
        add("barograph_run_series_left_out", run, one.left_out)
        severities = list(one.findings.values())
        for severity in ("info", "warning", "critical"):
            add("barograph_run_findings", run | {"severity": severity}, severities.count(severity))
        for (name, rank), value in sorted(list(one.values.items())):
            family, unit, factor = family_of(name)
            families.setdefault(family, ("gauge", unit, "A series of a run, its last value.", []))
            add(family, run | {"rank": rank, "series": name}, value * factor)
    lines = []
    for family, (kind, unit, text, samples) in families.items():
        if samples:
            lines += [f"# TYPE {family} {kind}", *([f"# UNIT {family} {unit}"] if unit else [])]
            lines += [f"# HELP {family} {text}", *samples]
    return "\n".join([*lines, "# EOF\n"])


def family_of(series: str) -> tuple[str, str, float]:
    """A series' metric, its unit ("" where its name says none), and the factor to that."""
    word = re.sub(r"[^a-zA-Z0-9]+", "_", series).strip("_")[:_LONGEST]
    name, unit, factor = f"barograph_{word or 'series'}", "", 1.0
    for ending, base, times in _UNITS:
        if name.endswith(ending):
            name, unit, factor = f"{name.removesuffix(ending)}_{base}", base, times
            break
    if name.endswith(_ENDS_OF_OTHERS) or name.startswith("barograph_run"):
        name, unit, factor = f"{name}_value", "", 1.0
    return name, unit, factor


def _escaped(text: str) -> str:
    text = text[:_LONGEST].encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


# -- a folder of runs, and serving it ---------------------------------------------------------------------


class LiveRuns:
    """The runs of a folder that go on, and those that have ended a moment ago."""

    def __init__(self, root: Path | None):
        self._root = root
        self._followed: dict[Path, tuple[Follower, LastValues]] = {}
        self._ended: dict[Path, float] = {}
        self._turn = threading.Lock()

    def page(self) -> str:
        """What they are now."""
        with self._turn:
            now = time.monotonic()
            for run in runs(self._root):
                if run.manifest.get("status") == "running" and run.status in liveness.OPEN:
                    self._ended.pop(run.dir, None)
                    if run.dir not in self._followed and len(self._followed) < MOST_RUNS:
                        self._followed[run.dir] = Follower(run.dir), LastValues(run.dir)
                elif run.dir in self._followed:
                    self._ended.setdefault(run.dir, now)
            for folder, (follower, values) in list(self._followed.items()):
                if not folder.is_dir() or now - self._ended.get(folder, now) > _KEPT_SECONDS:
                    follower.close()
                    del self._followed[folder]
                    continue
                with contextlib.suppress(OSError, ValueError):
                    while entries := follower.read():
                        for entry in entries:
                            values.take(entry)
            return page(values for _, values in self._followed.values())


class MetricsServer:
    """Gives a page at `/metrics`, each request in a thread. host, port: 0 takes a free one. Raises OSError."""

    def __init__(self, give: Callable[[], str], host: str, port: int):
        class Answer(BaseHTTPRequestHandler):
            timeout = 30.0

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404)
                    return
                content = give().encode()
                wanted = "openmetrics" in self.headers.get("Accept", "")
                self.send_response(200)
                self.send_header("Content-Type", _OPEN_METRICS if wanted else _PLAIN)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: Any) -> None:
                """Requests are not printed."""

        self._server = ThreadingHTTPServer((host, port), Answer)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    def start(self) -> MetricsServer:
        threading.Thread(target=self.serve, name="barograph-metrics", daemon=True).start()
        return self

    def serve(self) -> None:
        """Until `stop`, or an interrupt."""
        self._server.serve_forever(0.2)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def serve(root: Path | None, host: str, port: int) -> int:
    """`barograph metrics`; the exit code."""
    server = MetricsServer(LiveRuns(root).page, host, port)
    print(f"Barograph gives the metrics of {root or 'runs'} at http://{host}:{server.port}/metrics", flush=True)
    try:
        server.serve()
    except KeyboardInterrupt:
        return 0
    return 0
