"""Pages of time and machines: where the time went, devices and host, ranks, experts.

In:   a followed run.
Out:  rows that fill a terminal.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from typing import Any

from barograph.core import liveness
from barograph.core.record import Record
from barograph.core.text import BARS, as_float, milliseconds, narrow, padded, percent, short, size
from barograph.views.overview import cost_lines, time_lines
from barograph.views.top.chart import bar, span_of, sparkline
from barograph.views.top.place import TopPlace
from barograph.views.top.screen import Row, Span
from barograph.views.top.watching import RunWatch

_SPARK = 14
_PLACES = ("device", "managed", "pinned", "pageable")


def _none(words: str) -> list[Row]:
    return [[], [Span(f"  {words}", "dim")]]


def _scrolled(rows: list[Row], at: TopPlace, room: int) -> list[Row]:
    """The rows from where the page stands; it never scrolls beyond its end."""
    at.scroll = max(0, min(at.scroll, len(rows) - room))
    return rows[at.scroll : at.scroll + room]


# -- time ------------------------------------------------------------------------------------------


def time_page(watch: RunWatch, at: TopPlace, columns: int, rows: int) -> list[Row]:
    """A step's phases, goodput, cost."""
    page = _phases(watch, at, columns)
    if watch.totals is None:
        page += _none("goodput is being added up …")
    else:
        cost = watch.cost
        told = time_lines(watch.totals, cost.get("price_per_gpu_hour"), cost.get("gpu_hours"), _bar_width(columns))
        told += cost_lines(cost)
        page += [[Span(_plain(line, at), "" if line[:2] == "  " else "bold")] for line in told]
    if not page:
        return _none("no step was timed, and there is no record of where the time went")
    return _scrolled(page, at, rows)


def _bar_width(columns: int) -> int:
    return max(8, min(48, columns - 52))


def _plain(line: str, at: TopPlace) -> str:
    if at.braille:
        return line
    return "".join("#" if item in "█▉▊▋▌▍▎▏" else item if item.isascii() else "?" for item in line)


def _phases(watch: RunWatch, at: TopPlace, columns: int) -> list[Row]:
    """Medians of the last steps: what was long ago says little of what is slow now."""
    spent: dict[str, list[float]] = {}
    whole: list[float] = []
    for record in watch.logbook.speeds:
        whole.append(as_float(record.get("step_ms")))
        phase = record.get("phase")
        for name, value in phase.items() if isinstance(phase, Mapping) else ():
            spent.setdefault(str(name).removesuffix("_ms"), []).append(as_float(value))
    whole = [item for item in whole if math.isfinite(item)]
    if not whole or not spent:
        return []
    step = statistics.median(whole)
    wide = _bar_width(columns)
    title = f"  {'A STEP, MEDIAN OF THE LAST ' + f'{len(whole):,}':<{20 + wide}} {'TIME':>9} {'SHARE':>7}"
    rows: list[Row] = [[], [Span(title, "bold")]]
    medians = {name: statistics.median(values) for name, values in spent.items()}
    for name, took in sorted(medians.items(), key=lambda item: (item[0] == "other", -as_float(item[1]))):
        share = took / step if step > 0 else 0.0
        drawn = padded(bar(share, wide, at.braille), wide)
        rows.append([
            Span(f"  {padded(short(name), 18)} "), Span(drawn, "cyan"),
            Span(f" {milliseconds(took):>9} {percent(share):>7}"),
        ])  # fmt: skip
    rows.append([Span(f"  {'step':<18} {' ' * wide} {milliseconds(step):>9}", "dim")])
    return rows


# -- machine ---------------------------------------------------------------------------------------


def machine_names(watch: RunWatch, at: TopPlace, columns: int, rows: int) -> list[str]:
    """The series whose course the page shows."""
    found = [f"gpu/{which}/gpu_util" for which in _devices(watch, "gpu")]
    found += ["host/cpu_util", "host/memory_used", "memory/allocated_gb", "memory/rss_bytes"]
    names = set(watch.names)
    return [name for name in found[:24] if name in names]


def _devices(watch: RunWatch, kind: str) -> dict[str, Record]:
    """By the device's number; of several machines those of the first that has it."""
    found: dict[str, Record] = {}
    for (which_kind, which), record in sorted(watch.logbook.latest.items()):
        if which_kind == kind:
            found.setdefault(which.partition("/")[2] or which, record)
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


def machine_page(watch: RunWatch, at: TopPlace, columns: int, rows: int) -> list[Row]:
    """Devices, hosts and memory, as they were looked at last."""
    latest = watch.logbook.latest
    page: list[Row] = []
    gpus, models = _devices(watch, "gpu"), _devices(watch, "gpu-model")
    if gpus:
        head = (
            f"  {'GPU':<4} {'UTIL':>5} {'':<{_SPARK}} {'MEMORY':>15} {'POWER':>9} {'TEMP':>5} {'MHZ':>6}  THROTTLED BY"
        )
        page += [[], [Span(head, "bold")]]
        page += [_gpu(watch, at, which, record, models.get(which)) for which, record in gpus.items()]
        names = {short(model.fields.get("name", ""), 40) for model in models.values()} - {""}
        if names:
            page.append([Span(f"  {', '.join(sorted(names))}", "dim")])
    hosts = [record for (kind, _), record in sorted(latest.items()) if kind == "host"]
    if hosts:
        page += [[], [Span(f"  {'HOST':<10}", "bold"), Span(f"{len(hosts)} watched" if len(hosts) > 1 else "", "dim")]]
        for record in hosts[:8]:
            page += _host(watch, at, record.fields)
    memory = next((record.fields for (kind, _), record in sorted(latest.items()) if kind == "memory"), None)
    if memory is not None:
        page += [[], [Span("  MEMORY OF THE TRAINING", "bold")], *_memory(memory)]
    stats = latest.get(("allocator", "0"))
    if stats is not None:
        page += _segments(stats.fields.get("stats"), at, columns)
    if not page:
        return _none("the machine was not recorded: it is sampled while a run is recorded")
    return _scrolled(page, at, rows)


def _course(watch: RunWatch, at: TopPlace, name: str) -> Row:
    fold = watch.fold(name)
    if fold is None or fold.first_step is None or fold.last_step is None:
        return [Span(" " * _SPARK)]
    low, high = span_of(fold.first_step, fold.last_step, at.window, live=watch.live)
    drawn = sparkline(fold.columns(low, high, _SPARK), at.braille)
    return drawn


def _gpu(watch: RunWatch, at: TopPlace, which: str, record: Record, model: Record | None) -> Row:
    fields = record.fields
    total = as_float(model.fields.get("memory")) if model is not None else math.nan
    free = as_float(fields.get("dram_free"))
    used = total - free
    both = f"{used / 2**30:.1f}/{total / 2**30:.1f} GiB"
    memory = both if math.isfinite(used) else f"{size(free)} free" if free >= 0 else ""
    power = as_float(fields.get("power")) / 1000
    limit = as_float(fields.get("power_limit")) / 1000
    watts = f"{power:.0f}/{limit:.0f} W" if math.isfinite(power + limit) else f"{power:.0f} W" if power >= 0 else ""
    heat, slow = as_float(fields.get("temperature")), as_float(fields.get("temp_slowdown"))
    throttle = short(fields.get("throttle") or "", 40)
    util = as_float(fields.get("gpu_util"))
    clock = as_float(fields.get("clock"))
    hot = "bold red" if heat >= slow - 3 else ""
    return [
        Span(f"  {padded(short(which), 4)} {f'{util:.0f}%' if util >= 0 else '':>5} "),
        *_course(watch, at, f"gpu/{which}/gpu_util"),
        Span(f" {memory:>15} {watts:>9} "), Span(f"{f'{heat:.0f}°C' if heat >= 0 else '':>5}", hot),
        Span(f" {narrow(clock) if clock >= 0 else '':>6}  "),
        Span(throttle, "yellow" if throttle not in ("", "idle", "power cap") else "dim"),
    ]  # fmt: skip


def _host(watch: RunWatch, at: TopPlace, fields: Mapping[str, Any]) -> list[Row]:
    cpu, cores = as_float(fields.get("cpu_util")), as_float(fields.get("cpu_cores"))
    used, limit = as_float(fields.get("memory_used")), as_float(fields.get("memory_limit"))
    first: Row = [Span(f"  {'cpu':<9} {f'{cpu:.0f}%' if cpu >= 0 else '':>5} "), *_course(watch, at, "host/cpu_util")]
    load = f", load {narrow(fields['load'])}" if "load" in fields else ""
    first.append(Span(f"  {cores:.0f} cores{load}" if cores > 0 else "", "dim"))
    rows = [first]
    if used >= 0:
        share = used / limit if limit > 0 else math.nan
        tight = "bold red" if share > 0.95 else ""
        second: Row = [Span(f"  {'memory':<9} "), Span(f"{f'{100 * share:.0f}%' if share >= 0 else '':>5} ", tight)]
        second += [*_course(watch, at, "host/memory_used"), Span(f"  {size(used)} of {size(limit)}", "dim")]
        rows.append(second)
    pairs = (
        ("disk", "disk_read", "disk_write", "read", "written"),
        ("network", "network_rx", "network_tx", "in", "out"),
    )
    for word, item, other, first_word, second_word in pairs:
        if item in fields or other in fields:
            told = f"{size(fields.get(item))}/s {first_word}, {size(fields.get(other))}/s {second_word}"
            free = f", {size(fields.get('disk_free'))} free" if word == "disk" and "disk_free" in fields else ""
            rows.append([Span(f"  {word:<9} {told}{free}", "dim")])
    if as_float(fields.get("oom_kills")) > 0:
        rows.append([Span(f"  {narrow(fields['oom_kills'])} processes killed for lack of memory", "bold red")])
    return rows


def _memory(fields: Mapping[str, Any]) -> list[Row]:
    told = []
    for name, value in fields.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            unit = (
                size(value)
                if name.endswith("_bytes")
                else f"{narrow(value)} GB"
                if name.endswith("_gb")
                else narrow(value)
            )
            told.append(f"{short(name.removesuffix('_bytes').removesuffix('_gb').replace('_', ' '))} {unit}")
    return [[Span("  " + "   ".join(told[at : at + 3]))] for at in range(0, len(told), 3)]


def _segments(stats: Any, at: TopPlace, columns: int) -> list[Row]:
    """Who holds memory: the allocator's segments, the largest first."""
    if not isinstance(stats, list):
        return []
    found = {
        str(stat.get("name")): math.fsum(held for place in _PLACES if (held := as_float(stat.get(place))) > 0)
        for stat in stats
        if isinstance(stat, Mapping)
    }
    found = {name: held for name, held in found.items() if held > 0}
    most = max(found.values(), default=0.0)
    rows: list[Row] = [[], [Span("  HELD BY", "bold")]] if found else []
    for name, held in sorted(found.items(), key=lambda item: -item[1])[:10]:
        drawn = padded(bar(held / most, _SPARK, at.braille), _SPARK)
        rows.append([Span(f"  {padded(short(name), 15)} "), Span(drawn, "cyan"), Span(f" {size(held):>10}")])
    return rows


# -- ranks -----------------------------------------------------------------------------------------


def ranks_page(watch: RunWatch, at: TopPlace, columns: int, rows: int) -> list[Row]:
    """Each rank: whether it lives, its step, its own work and its waiting; who is waited for."""
    waits, pulses = watch.logbook.waits, {pulse.rank: pulse for pulse in watch.pulses}
    ranks = sorted(waits.keys() | pulses.keys())
    if not ranks:
        return _none("the run has one rank, or its ranks recorded no heartbeat and no comparison")
    head = f"  {'RANK':>5} {'HOST':<16} {'STATE':<8} {'STEP':>9} {'STEP TIME':>10} {'WAITS':>10} {'OWN WORK':>10}"
    page: list[Row] = []
    straggler = watch.logbook.latest.get(("straggler", "0"))
    if straggler is not None:
        page += [[], _straggler(straggler)]
    own = {rank: as_float(waits[rank][1]) - as_float(waits[rank][2]) for rank in waits}
    finite = [item for item in own.values() if math.isfinite(item)]
    longest = max(finite, default=math.nan)
    page += [[], [Span(head, "bold")]]
    for rank in ranks:
        pulse, wait = pulses.get(rank), waits.get(rank)
        state = pulse.status if pulse is not None else ""
        step = max(pulse.step if pulse is not None else 0, wait[0] if wait is not None else 0)
        bad = "bold red" if state in (*liveness.FAILED, "hung", "stalled", "stuck", "silent") else ""
        mine = own.get(rank, math.nan)
        slow = (
            "bold yellow" if len(finite) > 1 and mine == longest and longest > 1.1 * statistics.median(finite) else ""
        )
        row = [
            Span(f"  {rank:>5} {padded(short(pulse.host if pulse is not None else ''), 16)} "), 
            Span(f"{state:<8}", bad),
            Span(f" {step:>9,} {milliseconds(as_float(wait[1]) if wait else math.nan):>10}"),
            Span(f" {milliseconds(as_float(wait[2]) if wait else math.nan):>10}"),
            Span(f" {milliseconds(mine):>10}", slow),
        ]  # fmt: skip
        room = columns - 78
        if room >= 8 and longest > 0 and math.isfinite(mine):
            row += [Span(" "), Span(bar(mine / longest, min(24, room), at.braille), "cyan")]
        page.append(row)
    compared = watch.logbook.latest.get(("ranks", "0"))
    if compared is not None:
        page += _compared(compared)
    return _scrolled(page, at, rows)


def _straggler(record: Record) -> Row:
    fields = record.fields
    rank, behind = short(fields.get("rank", "?")), as_float(fields.get("slower_by"))
    if fields.get("recovered"):
        return [Span(f"  rank {rank} was slow, and has recovered at step {record.step:,}", "dim")]
    told = f"  the others wait for rank {rank} ({short(fields.get('host', ''))})"
    told += f": {percent(behind)} more time of its own" if math.isfinite(behind) else ""
    return [Span(f"{told}, since step {narrow(as_float(fields.get('since')))}", "bold yellow")]


def _compared(record: Record) -> list[Row]:
    rows: list[Row] = [
        [],
        [Span(f"  {'COMPARED, STEP ' + f'{record.step:,}':<24} {'LEAST':>11} {'MEAN':>11} {'MOST':>11}", "bold")],
    ]
    for name, value in record.fields.items():
        if isinstance(value, Mapping) and "mean" in value and len(rows) < 14:
            three = " ".join(f"{narrow(value.get(item)):>11}" for item in ("min", "mean", "max"))
            told = f"  {padded(short(name), 24)} {three}"
            who = f"  most on rank {narrow(value['max_rank'])}" if "max_rank" in value else ""
            rows.append([Span(told), Span(who, "dim")])
    return rows if len(rows) > 2 else []


# -- experts ---------------------------------------------------------------------------------------

_MODEL = ("moe/load_imbalance", "moe/aux_loss", "moe/z_loss", "moe/expert_utilization", "moe/router_entropy",
          "moe/dropped_fraction", "train/moe_load_imbalance", "train/moe_aux_loss", "train/moe_z_loss",
          "train/moe_expert_utilization")  # fmt: skip


def experts_names(watch: RunWatch, at: TopPlace, columns: int, rows: int) -> list[str]:
    """The model's figures."""
    names = set(watch.names)
    chosen_names = [name for name in _MODEL if name in names]
    # the same figure is often logged twice: with the step and by the router's watch
    return [
        name for name in chosen_names if not (name.startswith("train/") and f"moe/{name[len('train/moe_') :]}" in names)
    ]


def experts_page(watch: RunWatch, at: TopPlace, columns: int, rows: int) -> list[Row]:
    """The routers' figures, and each layer's experts by their share of the tokens."""
    page: list[Row] = [[]]
    wide = max(10, min(60, columns - 40))
    for name in experts_names(watch, at, columns, rows):
        fold = watch.fold(name)
        if fold is not None and fold.first_step is not None and fold.last_step is not None:
            low, high = span_of(fold.first_step, fold.last_step, at.window, live=watch.live)
            drawn = sparkline(fold.columns(low, high, max(1, min(wide, int(high - low)))), at.braille)
            page.append([Span(f"  {padded(short(name), 26)} {narrow(fold.last):>9} "), *drawn])
    if watch.loads:
        room = max(8, columns - 52)
        page += [
            [],
            [
                Span(
                    f"  {'LOAD / MEAN LOAD':<24} {'LEAST':>7} {'MOST':>7} {'UNUSED':>7}  EACH EXPERT, IN ORDER",
                    "bold",
                )
            ],
        ]
        for layer in sorted(watch.loads, key=_depth):
            page += [_layer(layer, watch.loads[layer], at, room)]
    if len(page) == 1:
        return _none("no experts were recorded")
    return _scrolled(page, at, rows)


def _layer(layer: str, loads: Mapping[int, float], at: TopPlace, room: int) -> Row:
    row = [loads[expert] for expert in sorted(loads)]
    mean = sum(item for item in row if math.isfinite(item)) / max(1, len(row))
    shares = [item / mean if mean > 0 else 0.0 for item in row]
    unused = sum(item == 0 for item in row)
    least, most = min(shares, default=0.0), max(shares, default=0.0)
    levels = BARS if at.braille else "_.-=+*%#"
    drawn = "".join(
        levels[min(7, int(share / 2 * 7.999))] if share > 0 else "·" if at.braille else " " for share in shares
    )
    bad = "bold red" if unused else ""
    return [
        Span(f"  {padded(short(layer), 24)} {least:>7.2f} "), Span(f"{most:>7.2f}", "bold yellow" if most > 3 else ""),
        Span(f" {unused or '':>7}  ", bad), Span(drawn[:room] + ("…" if len(drawn) > room else ""), "cyan"),
    ]  # fmt: skip


def _depth(name: str) -> tuple[list[int], str]:
    return [int(item) for item in re.findall(r"\d+", name)], name
