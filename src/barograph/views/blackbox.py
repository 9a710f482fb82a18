"""A black box on one screen.

In:   a box that was read.
Out:  lines for a terminal: why it was written, the first bad tensor, the batch, the last steps, where its files are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barograph.core.record import numbers
from barograph.core.text import escape, number, sparkline
from barograph.query.losses import RunLosses, losses_by_name
from barograph.training.blackbox.files import Box

_STEPS = 12  # rows of the table
_LOSS = "LOSS"
_NONE = RunLosses()
_COLUMNS = (
    ("GRAD NORM", ("train/norm", "model/grad_norm", "train/grad_norm", "grad_norm")),
    ("LR", ("train/lr", "lr")),
    ("MS", ("train/duration_ms", "speed/step_ms")),
    ("TOKENS", ("train/step_tokens",)),
    ("WEIGHTS", ("model/param_norm",)),
)


def lines(box: Box, steps: int = _STEPS, width: int = 60, losses: RunLosses = _NONE) -> list[str]:
    """The box for people; a damaged one is one line. steps: rows of the table. width: columns of the curves.
    losses: of the run, as its rows tell where no name in the box does.
    """
    if box.damage:
        return [escape(box.damage)]
    try:
        return list(_lines(box, steps, width, losses))
    except (TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
        return [escape(f"the black box {box.path.name} is damaged: {type(error).__name__}: {error}")]


def _lines(box: Box, steps: int, width: int, losses: RunLosses) -> list[str]:
    about = box.about
    rank = f", rank {escape(about.get('rank'))}" if about.get("rank") else ""
    title = f"BLACK BOX  step {box.step:,}, {escape(box.reason)}, {escape(about.get('time', ''))[:19]} UTC{rank}"
    shown = [title]
    for label, said in (
        ("why", _why(about)),
        ("not finite", _first(about)),
        ("then", _then(about)),
        ("batch", _batch(about)),
        ("random", _random(about)),
        ("optimizer", _optimizers(about)),
    ):
        shown += [f"  {label:<10} {said}"] if said else []
    table = _steps(box, losses)
    if table:
        shown += ["", *_drawn(table, steps), "", *_curves(table, width)]
    held = _mapping(about.get("held"))
    left_out = f", {held['left_out']:,} were left out" if held.get("left_out") else ""
    counts = f"{len(box.records):,} records, {sum(len(table.steps) for table in box.tables):,} rows by layer{left_out}"
    shown += ["", f"  {'files':<10} {escape(str(box.path))}: {counts}"]
    shown += [f"  {'missing':<10} {escape(item)}" for item in about.get("missing") or ()]
    return shown


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _why(about: Mapping[str, Any]) -> str:
    finding, problem = _mapping(about.get("finding")), _mapping(about.get("exception"))
    if finding:
        return escape(finding.get("message") or finding.get("rule") or "")
    if not problem:
        return "the process was sent SIGTERM" if about.get("reason") == "sigterm" else ""
    message = (str(problem.get("message") or "").splitlines() or [""])[0]
    where = [line.strip() for line in str(problem.get("traceback") or "").splitlines() if line.startswith('  File "')]
    place = f" ({where[-1]})" if where else ""
    return escape(f"{problem.get('type')}: {message}"[:200] + place)


def _first(about: Mapping[str, Any]) -> str:
    first = _mapping(about.get("first_bad"))
    return _bad(first) if first else "none: everything recorded is finite"


def _bad(bad: Mapping[str, Any]) -> str:
    what, layer, series = (escape(bad.get(name) or "") for name in ("what", "layer", "series"))
    whole = f"{what} of {layer}" if layer else what
    known = bad.get("value", "")
    value = f": {number(known) if isinstance(known, float) else escape(known)}" if known != "" else ""
    more = bad.get("layers")
    others = f", one of {more} {what}s" if isinstance(more, int) and more > 1 and layer else ""
    return f"{whole}, step {bad.get('step')}{value}{others}{f' ({series})' if series else ' (seen in the model)'}"


def _then(about: Mapping[str, Any]) -> str:
    first = _mapping(about.get("first_bad"))
    keys = {(first.get("what"), first.get("step"))}
    said = []
    for bad in about.get("bad") or ():
        if (bad.get("what"), bad.get("step")) not in keys:
            said.append(_bad(bad))
    return "; ".join(said[:3])


def _batch(about: Mapping[str, Any]) -> str:
    batch = _mapping(about.get("batch"))
    if not batch:
        return ""
    position = _mapping(batch.get("position"))
    parts = [
        f"step {batch.get('step')}",
        f"number {batch['number']:,} of this process" if isinstance(batch.get("number"), int) else "",
        f"fingerprint {batch['fingerprint']}" if batch.get("fingerprint") else "",
        " ".join(f"{name} {value}" for name, value in position.items()),
        f"epoch {batch['epoch']}" if "epoch" in batch and "epoch" not in position else "",
        f"seen before at step {batch['repeat_of']}" if "repeat_of" in batch else "",
    ]
    return escape(", ".join(part for part in parts if part))


def _random(about: Mapping[str, Any]) -> str:
    now = _mapping(_mapping(about.get("random")).get("now"))
    digests = [f"{name} {value}" for name, value in now.items() if name != "step"]
    return escape(f"{', '.join(digests)} (states: rng.json)") if digests else ""


def _optimizers(about: Mapping[str, Any]) -> str:
    told = about.get("optimizers") or []
    said = []
    for item in _mapping(told[-1]).get("optimizers") or () if told else ():
        group = _mapping((item.get("groups") or [{}])[0])
        chosen = [
            f"{name} {group[name]}" for name in ("lr", "betas", "momentum", "eps", "weight_decay") if name in group
        ]
        more = len(item.get("groups") or ()) - 1
        said.append(f"{item.get('optimizer')}: {', '.join(chosen)}" + (f" and {more} more groups" if more > 0 else ""))
    return escape("; ".join(said))


def _steps(box: Box, losses: RunLosses) -> dict[int, dict[str, float]]:
    """{step: {column: value}} of the steps that have any."""
    found: dict[int, dict[str, float]] = {}
    values = [
        (record.step, name, value)
        for record in box.records if record.kind in ("step", "metrics", "model", "speed")
        for name, value in numbers(record)
    ]  # fmt: skip
    training = losses_by_name(sorted({name for _, name, _ in values})).and_told(losses).training
    columns = ((_LOSS, training), *_COLUMNS)
    wanted = {name: (label, place) for label, names in columns for place, name in enumerate(names)}
    ranks: dict[tuple[int, str], int] = {}
    for step, name, value in values:
        known = wanted.get(name)
        if known is not None and known[1] <= ranks.get((step, known[0]), 99):
            found.setdefault(step, {})[known[0]] = value
            ranks[step, known[0]] = known[1]
    return dict(sorted(found.items()))


def _drawn(table: Mapping[int, Mapping[str, float]], steps: int) -> Iterable[str]:
    every = (_LOSS, *(label for label, _ in _COLUMNS))
    labels = [label for label in every if any(label in row for row in table.values())]
    yield "  " + f"{'STEP':>9}" + "".join(f"{label:>12}" for label in labels)
    for step in list(table)[-steps:]:
        row = table[step]
        yield "  " + f"{step:>9}" + "".join(f"{number(row.get(label)):>12}" for label in labels)


def _curves(table: Mapping[int, Mapping[str, float]], width: int) -> Iterable[str]:
    for label in (_LOSS, "GRAD NORM"):
        values = [row[label] for row in table.values() if label in row][-width:]
        if len(values) > 1:
            yield f"  {label.lower():<10} {sparkline(values)}  {number(values[0])} … {number(values[-1])}"
