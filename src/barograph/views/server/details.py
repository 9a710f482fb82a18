"""One run closely: its overview, and the machines it ran on.

In:   a run, its row.
Out:  JSON-ready data.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from barograph.core import liveness
from barograph.log.read import records_of
from barograph.query.causes import CAUSES, fields, money
from barograph.query.ending import ending
from barograph.query.stored import StoredRun
from barograph.views.server.names import families
from barograph.views.server.places import RunPlace
from barograph.views.server.reading import SeriesReading
from barograph.views.server.rows import RunRow
from barograph.views.server.table import RunTable

_MOST_SAMPLES = 200
_LONGEST_SAMPLE = 20_000  # characters
_MOST_RANKS = 4_096
_GPU_FIELDS = ("gpu_util", "mem_util", "power", "power_limit", "temperature", "temp_slowdown", "clock", "max_clock",
               "dram_free", "throttled", "sm_active", "tensor_active", "energy", "fan", "xid_errors", "ecc_uncorrected",
               "nvlink_crc_errors")  # fmt: skip


def head(row: RunRow) -> dict[str, Any]:
    """What the page's head shows, and the lists of runs: it moves on with each record."""
    data = {key: value for key, value in dict(row.data).items() if key not in ("source", "config")}
    return data | {"config_flat": row.data["config"]}


def overview(reading: SeriesReading, table: RunTable, row: RunRow) -> dict[str, Any]:
    """Everything that the overview of a run shows below its head."""
    place = row.place
    names = reading.names(place)
    with reading.opened(place) as run:
        about = run.manifest
        return {
            "manifest": about,
            "config": run.config,
            "segments": [piece.fields() | {"time": piece.time / 1e6} for piece in run.segments],
            "lineage": _lineage(table, row, run),
            "ending": ending(run)._asdict(),
            "goodput": fields(run.goodput()),
            "energy": run.cost(),
            "checkpoints": about.get("checkpoints") or [],
            "samples": _samples(run),
            "problems": run.problems,
            "series_count": len(names),
            "families": families(names),
            "folder": str(place.dir),
        }


def _lineage(table: RunTable, row: RunRow, run: StoredRun) -> dict[str, Any]:
    """The run's parent and its children, by their keys; `source`: the folder of a parent that is not served."""
    key = row.place.key
    children = [
        {"key": other.data["key"], "name": other.data["name"], "step": other.data["fork_step"]}
        for other in table.rows()
        if other.data["parent"] == key
    ]
    parent = row.data["parent"]
    return {
        "parent": None if parent is None else {"key": parent, "step": row.data["fork_step"]},
        "source": row.data["source"] if parent is None else None,
        "children": children,
    }


def _samples(run: StoredRun) -> list[dict[str, Any]]:
    """Generated texts: the first ones and the last ones."""
    found = []
    for path in run.log_files()[:1]:
        for record, _ in records_of(path, ("sample",)):
            one: dict[str, Any] = {"step": record.step, "time": record.time / 1e6}
            for field in ("prompt", "text"):
                if isinstance(record.fields.get(field), str):
                    one[field] = record.fields[field][:_LONGEST_SAMPLE]
            found.append(one)
            if len(found) > 2 * _MOST_SAMPLES:
                del found[_MOST_SAMPLES // 2]
    half = _MOST_SAMPLES // 2
    return found if len(found) <= _MOST_SAMPLES else [*found[:half], *found[-half:]]


# -- machines ---------------------------------------------------------------------------------------------


def system(reading: SeriesReading, place: RunPlace) -> dict[str, Any]:
    """Phases, goodput, ranks, devices, stragglers, cost; what nobody recorded is empty."""
    with reading.opened(place) as run:
        return _system(reading, place, run)


def _system(reading: SeriesReading, place: RunPlace, run: StoredRun) -> dict[str, Any]:
    names = reading.names(place)
    totals, cost = run.goodput(), run.cost()
    price, hours = cost.get("price_per_gpu_hour"), cost.get("gpu_hours")
    spent: dict[str, float] = {}
    if price is not None and hours and totals.held > 0:
        spent = money(totals, hours * 3600.0 / totals.held, price)
    goodput = [
        {
            "cause": cause,
            "seconds": getattr(totals, cause),
            "percent": 100.0 * getattr(totals, cause) / totals.wall if totals.wall > 0 else 0.0,
            "money": spent.get(cause),
        }
        for cause in CAUSES
    ]
    return {
        "phases": _phases(reading, place, names),
        "goodput": goodput,
        "totals": fields(totals),
        "ranks": _ranks(reading, place, names),
        "gpus": _devices(reading, place, run, names),
        "host": _last_of(reading, place, [name for name in names if name.startswith("host/") and name.count("/") == 1]),
        "host_series": [name for name in names if name.startswith("host/")][:200],
        "stragglers": _records(run, "straggler"),
        "stalls": [{key: item[key] for key in item if key != "threads"} for item in _records(run, "stacks")],
        "cost": cost,
        "hardware": run.manifest.get("hardware"),
        "world_size": run.manifest.get("world_size"),
    }


def _phases(reading: SeriesReading, place: RunPlace, names: list[str]) -> list[dict[str, Any]]:
    """The median of each phase of a step in milliseconds, over the run, and its share of the step's."""
    lead = "speed/phase/"
    phases = [name for name in names if name.startswith(lead)]
    if not phases or "speed/step_ms" not in names:
        return []
    found = reading.series(place, ["speed/step_ms", *phases])
    medians = {name: _median(item.live().value) for name, item in found.items()}
    whole = medians.pop("speed/step_ms", None)
    if not whole:
        return []
    return [
        {"name": name[len(lead) :].removesuffix("_ms"), "ms": took, "percent": 100.0 * took / whole, "series": name}
        for name, took in medians.items()
        if took is not None
    ]


def _ranks(reading: SeriesReading, place: RunPlace, names: list[str]) -> list[dict[str, Any]]:
    """Each rank: its host, whether it is there, its last step's time and how long it waited."""
    found: dict[int, dict[str, Any]] = {}
    for pulse in liveness.pulses(place.dir)[:_MOST_RANKS]:
        found[pulse.rank] = {
            "rank": pulse.rank, "host": pulse.host, "pid": pulse.pid, "status": pulse.status, "step": pulse.step,
            "alive": pulse.status in liveness.ALIVE, "phase": pulse.phase, "beat_seconds": pulse.beat_seconds,
        }  # fmt: skip
    lead = "ranks/by_rank/"
    series = [name for name in names if name.startswith(lead) and name.count("/") == 3][: 4 * _MOST_RANKS]
    for name, value in _last_of(reading, place, series, lead).items():
        number, _, field = name.partition("/")
        if number.isdigit():
            rank = found.setdefault(int(number), {"rank": int(number), "host": None, "alive": None, "status": None})
            rank[field] = value
            rank.setdefault("series", {})[field] = f"{lead}{name}"
    return [found[rank] for rank in sorted(found)]


def _devices(reading: SeriesReading, place: RunPlace, run: StoredRun, names: list[str]) -> list[dict[str, Any]]:
    """Each device with its last readings, and the series to draw them from."""
    found: dict[str, dict[str, Any]] = {}
    for path in run.log_files()[:64]:
        for record, _ in records_of(path, ("gpu-model",)):
            key = str(record.fields.get("id", 0))
            found.setdefault(key, {"id": key, "series": {}}).update(
                {field: record.fields[field] for field in ("name", "memory", "uuid", "rank") if field in record.fields}
            )
    for name in names:
        parts = name.split("/")
        if parts[0] == "gpu" and len(parts) == 3:
            found.setdefault(parts[1], {"id": parts[1], "series": {}})["series"][parts[2]] = name
    for key, device in found.items():
        lead = f"gpu/{key}/"
        wanted = [name for field, name in device["series"].items() if field in _GPU_FIELDS]
        last = _last_of(reading, place, wanted, lead)
        device |= {("utilisation" if field == "gpu_util" else field): value for field, value in last.items()}
        if isinstance(device.get("memory"), (int, float)) and "dram_free" in device:
            device["memory_used"] = device["memory"] - device["dram_free"]
    _throttles(run, found)
    return [
        found[key] for key in sorted(found, key=lambda item: (not item.isdigit(), int(item) if item.isdigit() else 0))
    ]


def _throttles(run: StoredRun, found: dict[str, dict[str, Any]]) -> None:
    """What held each device's clock down, as its last record says."""
    if not found:
        return
    for path in run.log_files()[:64]:
        for record, _ in records_of(path, ("gpu",), ("throttle",)):
            device = found.get(str(record.fields.get("id", 0)))
            if device is not None:
                device["throttle"] = str(record.fields["throttle"] or "")


def _last_of(reading: SeriesReading, place: RunPlace, names: Iterable[str], lead: str = "") -> dict[str, float]:
    result = {}
    for name, item in reading.series(place, list(names)).items():
        live = item.live()
        if len(live):
            result[name[len(lead) :]] = float(live.value[-1])
    return result


def _records(run: StoredRun, kind: str) -> list[dict[str, Any]]:
    found = []
    for path in run.log_files()[:64]:
        for record, _ in records_of(path, (kind,)):
            found.append(record.fields | {"step": record.step, "time": record.time / 1e6})
    return found[-500:]


def _median(values: Any) -> float | None:
    finite = [value for value in values.tolist() if value == value]
    return statistics.median(finite) if finite else None
