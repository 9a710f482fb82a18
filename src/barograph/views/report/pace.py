"""How fast the run was, and what its machine did meanwhile.

In:   the subject of a report.
Out:  sections.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import numpy as np

from barograph.core import text
from barograph.core.utilization import mfu_fraction
from barograph.views.report import figures
from barograph.views.report.content import Block, Chart, ReportLine, ReportTable, Section, Sentence, say, section
from barograph.views.report.learning import of_series
from barograph.views.report.spread import spread
from barograph.views.report.subject import MFUS, STEP_TIMES, THROUGHPUTS, Subject

_PHASE = re.compile(r"speed/phase/([^/]+)_ms")
_DEVICE = re.compile(r"gpu/(\d+)/(.+)")
_OF_DEVICES = (
    ("gpu_util", "GPU utilisation", "%"),
    ("temperature", "GPU temperature", "°C"),
    ("power", "GPU power", "mW"),
    ("dram_free", "GPU memory free", "bytes"),
)
_SCALED = {"mW": (1000.0, "W"), "bytes": (float(1 << 30), "GiB")}
_OF_MACHINE = (
    (("memory/peak_gb", "memory/allocated_gb", "memory/reserved_gb"), "Device memory", "GB"),
    (("memory/rss_bytes", "memory/peak_rss_bytes"), "Memory of the process", "bytes"),
    (("host/cpu_util",), "Processor utilisation of the machine", "%"),
    (("host/memory_used",), "Memory used on the machine", "bytes"),
    (("data/padding_share",), "Share of padding in the batches", ""),
)
MOST_DEVICES = 8
_SLOWER = 0.05  # a smaller change of speed is not worth a warning
_LONG = 5.0  # medians, from which on a step is listed as slowest


def throughput(subject: Subject) -> Section | None:
    """Tokens a second, the time of a step, what it was spent on, MFU."""
    blocks: list[Block | None] = list(_overall(subject))
    name = subject.first_of(THROUGHPUTS)
    charts: list[Block] = []
    if name is not None:
        title = "Samples a second" if "samples" in name else "Tokens a second"
        charts.append(Chart("throughput", title, tuple(of_series(subject.series, name, smoothed=True)),
                            families=("speed", "ranks", "machine")))  # fmt: skip
    step = subject.first_of(STEP_TIMES)
    if step is not None:
        blocks += list(_steps(subject, step))
        found = spread(step, subject.series(step))
        wide = found is not None and found.low > 0 and found.high > 20 * found.low
        charts.append(Chart("step-time", "Time of a step", tuple(of_series(subject.series, step)), unit="ms", log=wide,
                            families=("speed", "ranks", "machine", "data")))  # fmt: skip
    phases = _phases(subject)
    if phases is not None:
        table, lines = phases
        blocks.append(table)
        charts.append(
            Chart("phases", "Phases of a step", tuple(lines), unit="ms", families=("data", "speed"), small=True)
        )
    mfu = subject.first_of(MFUS)
    if mfu is not None:
        blocks += list(_mfu(subject, mfu))
        charts.append(Chart("mfu", "Model FLOPs utilisation", tuple(of_series(subject.series, mfu)),
                            families=("speed",),
                            small=True))  # fmt: skip
    if not blocks and not charts:
        return section("throughput", "Throughput", [say("Neither throughput nor step times are recorded.", "dim")])
    return section("throughput", "Throughput", [*blocks, *charts])


def _overall(subject: Subject) -> Iterator[Sentence]:
    found = subject.throughput
    tokens, steps = found.get("tokens_per_second"), found.get("steps_per_second")
    if tokens is not None and tokens > 0:
        yield say("Over its training time the run processed {tokens} tokens a second.",
                  tokens=figures.amount(tokens, "tokens trained on / time of the steps"))  # fmt: skip
    elif steps is not None and steps > 0:
        yield say("Over its training time the run made {steps} steps a second; its tokens are not recorded.",
                  steps=figures.number(steps, "steps / time of the steps"))  # fmt: skip


def _steps(subject: Subject, name: str) -> Iterator[Sentence]:
    found = spread(name, subject.series(name))
    if found is None or not found.few:
        return
    median = figures.milliseconds(found.median, f"{name}: median")
    if len(found.value) < 2:
        yield say("Its one step took {median}.", median=median)
        return
    slowest = figures.milliseconds(found.high, f"{name} at step {found.high_step}")
    place = found.step(found.high_step)
    if found.median > 0 and found.high > _LONG * found.median:
        times = figures.number(found.high / found.median, f"{name}: largest / median")
        yield say("A step took {median} in the median; the slowest, step {place}, took {slowest}, {times} times that.",
                  median=median, slowest=slowest, place=place, times=times)  # fmt: skip
    else:
        yield say("A step took {median} in the median, the slowest {slowest} (step {place}).",
                  median=median, slowest=slowest, place=place)  # fmt: skip
    if len(found.value) >= 40:
        tenth = len(found.value) // 10
        early = float(np.median(found.value[tenth : 2 * tenth]))
        late = float(np.median(found.value[-tenth:]))
        if early > 0:
            change = late / early - 1
            much = figures.percent(abs(change), f"{name}: median of the last tenth against the second tenth")
            if change > _SLOWER:
                yield say("Its steps became slower: the last tenth took {much} longer than the second, in the median.",
                          "warn", much=much)  # fmt: skip
            elif change < -_SLOWER:
                yield say("Its steps became faster: the last tenth took {much} less than the second, in the median.",
                          much=much)  # fmt: skip
            else:
                yield say("The step time did not change: the last tenth differs by {much} from the second (medians).",
                          much=much)  # fmt: skip


def _phases(subject: Subject) -> tuple[ReportTable, list[ReportLine]] | None:
    """Medians of the phases, and their shares of the median step."""
    names = {match[1]: name for name in subject.names if (match := _PHASE.fullmatch(name))}
    whole = subject.first_of(("speed/step_ms", "train/duration_ms"))
    if not names or whole is None:
        return None
    step = float(np.nanmedian(subject.series(whole).value)) if np.isfinite(subject.series(whole).value).any() else 0.0
    if not step > 0:
        return None
    medians = {}
    for phase, name in names.items():
        values = subject.series(name).value
        if np.isfinite(values).any():
            medians[phase] = float(np.nanmedian(values[~np.isinf(values)]))
    order = sorted(medians, key=lambda phase: (phase == "other", -medians[phase]))
    rows = tuple(
        (figures.word(phase, "speed records"), figures.milliseconds(medians[phase], f"{names[phase]}: median"),
         figures.percent(medians[phase] / step, f"{names[phase]} / {whole}, medians"))
        for phase in order[:12]
    )  # fmt: skip
    lines = [line for phase in order[:6] for line in of_series(subject.series, names[phase], label=phase)]
    return ReportTable("Phases of a step", ("phase of a step", "median", "of a step"), rows, frozenset({1, 2})), lines


def _mfu(subject: Subject, name: str) -> Iterator[Sentence]:
    values = subject.series(name).value
    values = values[np.isfinite(values)]
    if not len(values):
        return
    middle = mfu_fraction(float(np.median(values)), name, subject.names)
    median = figures.percent(middle, f"{name}: median")
    light = next(iter(subject.records["sol"]), None)
    peak = light.fields.get("mfu_peak_tflops") if light is not None else None
    formula = light.fields.get("mfu_formula") if light is not None else None
    if isinstance(peak, (int, float)) and formula:
        yield say("Model FLOPs utilisation was {median} in the median, by the formula {formula} and a peak of {peak} "
                  "TFLOP/s.", median=median, formula=figures.word(formula, "sol record"),
                  peak=figures.number(peak, "sol record: mfu_peak_tflops"))  # fmt: skip
    else:
        yield say("Model FLOPs utilisation was {median} in the median, as the run logged it; by which formula and "
                  "peak is not recorded.", median=median)  # fmt: skip
    if middle > 1:
        yield say("More than the whole peak is not possible: the peak or the FLOPs are not this machine's.", "warn")


# -- the machine ------------------------------------------------------------------------------------------


def system(subject: Subject) -> Section | None:
    """Devices and host: whether the model learnt slowly or the machine was slow."""
    blocks: list[Block | None] = []
    devices: dict[str, dict[int, str]] = {}
    for name in subject.names:
        if match := _DEVICE.fullmatch(name):
            devices.setdefault(match[2], {})[int(match[1])] = name
    for quantity, title, unit in _OF_DEVICES:
        found = devices.get(quantity)
        if not found:
            continue
        blocks += list(_of_devices(subject, found, quantity, title))
        lines = [line for device in sorted(found)[:MOST_DEVICES] for line in of_series(subject.series, found[device],
                                                                                    label=f"GPU {device}")]  # fmt: skip
        blocks += list(_chart(f"gpu-{quantity}".replace("_", "-"), title, lines, unit))
    number = max((len(device) for device in devices.values()), default=0)
    if number > MOST_DEVICES:
        blocks.append(say("Of {devices} the first {shown} are drawn.", "dim",
                          devices=figures.count(number, "gpu records", "device"),
                          shown=figures.count(MOST_DEVICES, "report")))  # fmt: skip
    for names, title, unit in _OF_MACHINE:
        chosen_names = [name for name in names if subject.first_of((name,))]
        if chosen_names:
            lines = [line for name in chosen_names for line in of_series(subject.series, name)]
            blocks += list(_chart(chosen_names[0].replace("/", "-").replace("_", "-"), title, lines, unit))
    if not blocks:
        blocks = [say("Neither devices nor the machine around them were sampled.", "dim")]
    return section("system", "System", blocks)


def _chart(slug: str, title: str, lines: list[ReportLine], unit: str) -> Iterator[Block]:
    """A chart in a unit that people read; of lines of one point each a sentence."""
    factor, shown = _SCALED.get(unit, (1.0, unit))
    if max(len(line.x) for line in lines) > 1:
        scaled = tuple(dataclasses.replace(line, y=line.y / factor) for line in lines)
        yield Chart(slug, title, scaled, unit=shown, families=("machine", "memory", "ranks"), small=True)
        return
    for line in lines:
        value = figures.word(f"{text.number(line.y[0] / factor)} {shown}".strip(), f"{line.name}, its one value")
        yield say("{name} was logged once: {value}.", name=figures.word(line.label, "series"), value=value)


def _of_devices(subject: Subject, found: dict[int, str], quantity: str, title: str) -> Iterator[Sentence]:
    """The mean of a quantity over all devices, and the one that is furthest from it."""
    means = {}
    for device, series in found.items():
        values = subject.series(series).value
        values = values[np.isfinite(values)]
        if len(values):
            means[device] = float(values.mean())
    if not means or quantity not in ("gpu_util", "temperature"):
        return
    mean = float(np.mean(list(means.values())))
    whole = figures.number(mean, f"gpu/*/{quantity}: mean")
    unit = figures.word("%" if quantity == "gpu_util" else " °C", "unit")
    name = figures.word(title, "gpu records")
    if len(means) == 1:
        yield say("{name} was {whole}{unit} on average.", name=name, whole=whole, unit=unit)
        return
    pick = min if quantity == "gpu_util" else max
    device = pick(means, key=lambda item: means[item])
    yield say("{name} was {whole}{unit} on average over {devices}; device {device} had {own}{unit}.",
              name=name, whole=whole, unit=unit, devices=figures.count(len(means), "gpu records", "device"),
              device=figures.count(device, "gpu records"),
              own=figures.number(means[device], f"gpu/{device}/{quantity}: mean"))  # fmt: skip
