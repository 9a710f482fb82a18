"""What the run left: evaluations, checkpoints, samples before and after, and the series that no chart shows.

In:   the subject of a report.
Out:  sections.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from barograph.views.report import figures
from barograph.views.report.content import (
    Block,
    Chart,
    Figure,
    Heading,
    ReportTable,
    Section,
    Sentence,
    TextBlock,
    say,
    section,
)
from barograph.views.report.learning import of_series
from barograph.views.report.spread import spread
from barograph.views.report.subject import Subject

MOST_ROWS = 24
MOST_MEASURES = 6
MOST_CHARTS = 6
MOST_OTHERS = 12
MOST_SERIES = 150
MOST_PROMPTS = 6
MOST_TEXT = 2_000  # characters of a sample


def evaluations(subject: Subject) -> Section | None:
    """Every measure on held-out data: first, best, last."""
    names = subject.evaluations
    if not names:
        return section("evaluations", "Evaluations", [say("No evaluation is recorded.", "dim")])
    blocks: list[Block | None] = []
    rows = []
    for name in names[:60]:
        found = spread(name, subject.series(name))
        if found is None or not found.few:
            continue
        way = subject.member.way(name)
        best, step = (found.high, found.high_step) if way > 0 else (found.low, found.low_step)
        rows.append((
            figures.word(name, "series"), figures.count(found.points, name),
            _measured(name, float(found.value[0]), f"{name}, first"),
            *((found.at(best, step), found.step(step)) if way else ("", "")),
            _measured(name, float(found.value[-1]), f"{name}, last"),
        ))  # fmt: skip
    heads = ("measure", "times", "first", "best", "at step", "last")
    blocks.append(ReportTable("Evaluations", heads, tuple(rows), frozenset({1, 2, 3, 4, 5})) if rows else None)
    charted = [name for name in names if name != "eval/loss" and not re.search(r"loss$", name)] or []
    blocks += [
        Chart(f"evaluation-{at}", name, tuple(of_series(subject.series, name, dots=len(subject.series(name)) <= 200)),
              families=("eval",), small=True)
        for at, name in enumerate(charted[:MOST_CHARTS])
        if len(subject.series(name)) > 1
    ]  # fmt: skip
    blocks += _history(subject, names[:MOST_MEASURES])
    return section("evaluations", "Evaluations", blocks)


def _measured(name: str, value: float, source: str) -> Figure:
    """A measure as it is usually written: an accuracy in percent, to two digits."""
    if "accuracy" in name.lower() and 0 <= value <= 1:
        return Figure(f"{100 * value:.2f}%", value, source)
    return figures.number(value, source)


def _history(subject: Subject, names: list[str]) -> list[Block | None]:
    """One row an evaluation; of many the first, the last and some between."""
    steps = np.unique(np.concatenate([subject.series(name).step for name in names]))
    if len(steps) < 2:
        return []
    shown = steps
    if len(steps) > MOST_ROWS:
        shown = steps[np.unique(np.linspace(0, len(steps) - 1, MOST_ROWS).round().astype(int))]
    columns = {}
    for name in names:
        series = subject.series(name)
        columns[name] = dict(zip(series.step.tolist(), series.value.tolist(), strict=True))
    rows = []
    for step in shown.tolist():
        cells: list[str | Figure] = [figures.count(step, "step")]
        for name in names:
            value = columns[name].get(step)
            cells.append("" if value is None else _measured(name, value, f"{name} at step {step:,}"))
        rows.append(tuple(cells))
    heads = ("step", *(figures.word(name, "", 60).text for name in names))
    blocks: list[Block | None] = [Heading("One by one")]
    blocks.append(ReportTable("Evaluations over the run", heads, tuple(rows), frozenset(range(len(heads)))))
    if len(shown) < len(steps):
        blocks.append(say("{shown} of {all} are listed.", "dim", shown=figures.count(len(shown), "report"),
                         all=figures.count(len(steps), "steps evaluated at", "evaluation")))  # fmt: skip
    return blocks


# -- checkpoints ------------------------------------------------------------------------------------------


def checkpoints(subject: Subject) -> Section | None:
    """Where they are; which one is the best."""
    saved = subject.run.checkpoints()
    found = [item for item in saved if item["live"] is not False]
    gone = [item for item in saved if item["live"] is False]
    blocks: list[Block | None] = []
    if gone:
        steps = ", ".join(f"{item['step']:,}" for item in gone[:6]) + (" …" if len(gone) > 6 else "")
        blocks.append(say("{number} of a discarded branch, of step {steps}, not counted here.", "warn",
                        number=figures.count(len(gone), "manifest: checkpoints", "checkpoint"),
                        steps=figures.word(steps, "manifest: checkpoints")))  # fmt: skip
    if not found:
        none = "No checkpoint of the live branch is recorded." if gone else "No checkpoint is recorded."
        return section("checkpoints", "Checkpoints", [*blocks, say(none, "dim")])
    number = figures.count(len(found), "manifest: checkpoints", "checkpoint")
    last = found[-1]
    path = figures.word(last.get("path", ""), "manifest: checkpoints")
    verb = figures.word("was" if len(found) == 1 else "were", "")
    if _real(last.get("step")) and path.text:
        blocks.append(say("{number} {verb} saved; the last is {path}, of step {step}.", number=number, verb=verb,
                        path=path, step=figures.count(last["step"], "manifest: checkpoints")))  # fmt: skip
    for key, label in (("val_bpb", "bits per byte"), ("val_loss", "validation loss")):
        scored = [item for item in found if _real(item.get(key)) and _real(item.get("step"))]
        if len(scored) > 1:
            best = min(scored, key=lambda item: float(item[key]))
            blocks.append(say("Of those saved, the one of step {step} has the lowest {label}, {value}.",
                            step=figures.count(best["step"], "manifest: checkpoints"),
                            label=figures.word(label, f"manifest: checkpoints: {key}"),
                            value=figures.number(best[key], f"manifest: checkpoints: {key}")))  # fmt: skip
            break
    scores = [key for key in ("val_loss", "val_bpb") if any(_real(item.get(key)) for item in found)]
    rows = []
    for item in found[-MOST_ROWS:]:
        cells: list[str | Figure] = [
            figures.count(item["step"], "manifest: checkpoints") if _real(item.get("step")) else ""
        ]
        cells += [figures.number(item[key], f"manifest: checkpoints: {key}") if _real(item.get(key)) else ""
                  for key in scores]  # fmt: skip
        cells.append(figures.word(item.get("path", ""), "manifest: checkpoints", 300))
        rows.append(tuple(cells))
    words = {"val_loss": "validation loss", "val_bpb": "bits per byte"}
    heads = ("step", *(words[key] for key in scores), "path")
    blocks.append(ReportTable("Checkpoints", heads, tuple(rows), frozenset(range(1 + len(scores)))))
    if len(found) > MOST_ROWS:
        blocks.append(say("The last {shown} are listed.", "dim", shown=figures.count(MOST_ROWS, "report")))
    return section("checkpoints", "Checkpoints", blocks)


def _real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# -- samples ----------------------------------------------------------------------------------------------


def samples(subject: Subject) -> Section | None:
    """What the model wrote for a prompt at first, and at last."""
    records = subject.records["sample"]
    by_prompt = texts_by_prompt(records)
    if not by_prompt:
        return section("samples", "Samples", [say("No sample is recorded.", "dim")])
    blocks: list[Block | None] = [_counted(records, by_prompt)]
    for prompt, texts in list(by_prompt.items())[:MOST_PROMPTS]:
        texts = sorted(texts, key=lambda item: item[0])
        blocks.append(Heading(f"Prompt: {figures.word(prompt, '', 200).text}" if prompt else "Without a prompt"))
        ends = [("before", texts[0]), ("after", texts[-1])] if len(texts) > 1 else [("", texts[0])]
        for label, (step, text) in ends:
            blocks.append(text_of(f"{label}, step {step:,}" if label else f"step {step:,}", prompt, text))
    return section("samples", "Samples before and after", blocks, "Samples")


def texts_by_prompt(records: Iterable[Any]) -> dict[str, list[tuple[int, str]]]:
    """prompt → the steps and texts written for it, as logged; "" for samples without a prompt."""
    result: dict[str, list[tuple[int, str]]] = {}
    for record in records:
        prompt, text = record.fields.get("prompt"), record.fields.get("text")
        if isinstance(text, str):
            result.setdefault(prompt if isinstance(prompt, str) else "", []).append((record.step, text))
    return result


def text_of(label: str, prompt: str, text: str) -> TextBlock:
    """A sample, its prompt set off where it begins with it."""
    added = len(prompt) if prompt and text.startswith(prompt) else 0
    return TextBlock(label, text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " …", added)


def _counted(records: Iterable[Any], by_prompt: dict[str, list[tuple[int, str]]]) -> Sentence:
    number = sum(len(texts) for texts in by_prompt.values())
    samples_ = figures.count(number, "sample records", "sample")
    prompts = figures.count(len(by_prompt), "sample records", "prompt")
    if len(by_prompt) > MOST_PROMPTS:
        shown = figures.count(MOST_PROMPTS, "report")
        return say("{samples} of {prompts} are recorded; the first and the last of {shown} prompts stand here.", "dim",
                   samples=samples_, prompts=prompts, shown=shown)  # fmt: skip
    if number > 2 * len(by_prompt):
        return say("{samples} of {prompts} are recorded; the first and the last stand here.", "dim",
                   samples=samples_, prompts=prompts)  # fmt: skip
    return say("{samples} of {prompts}.", "dim", samples=samples_, prompts=prompts)


# -- what else --------------------------------------------------------------------------------------------

_OWN = ("train/", "eval/", "model/", "speed/", "gpu/", "host/", "memory/", "data/", "goodput/", "energy/", "sol/",
        "span/", "allocator/", "ranks/", "moe/")  # fmt: skip


# where the data loader stands, and what is another series smoothed or scaled
_PLACES = re.compile(r"(?:^|/)(?:epoch|pq|rg|lrm|\w*_smooth|smooth\w*|step|step_tokens|peak_tflops|watch_\w+)$")


def others(subject: Subject, drawn: set[str]) -> Section | None:
    """Series without a chart above: charts of those that users log themselves, and a table of all."""
    left = [name for name in subject.single if name not in drawn and len(subject.series(name))]
    if not left:
        return None
    own = [name for name in left if not name.startswith(_OWN)]
    own += [name for name in left if name.startswith(("train/", "moe/", "model/")) and not _PLACES.search(name)]
    moving = [name for name in own if len(subject.series(name)) > 1 and _moves(subject, name)]
    blocks: list[Block | None] = [
        Chart(f"other-{at}", name, tuple(of_series(subject.series, name)), small=True)
        for at, name in enumerate(moving[:MOST_OTHERS])
    ]
    rows = []
    for name in sorted(left)[:MOST_SERIES]:
        found = spread(name, subject.series(name))
        if found is None:
            continue
        rows.append((
            figures.word(name, "series", 120), figures.count(found.points, name),
            *((figures.number(float(found.value[0]), name), figures.number(float(found.value[-1]), name),
               found.at(found.low, found.low_step), found.at(found.high, found.high_step))
              if found.few else ("", "", "", "")),
            figures.count(found.odd, name) if found.odd else "",
        ))  # fmt: skip
    heads = ("series", "points", "first", "last", "least", "greatest", "not finite")
    blocks.append(ReportTable("Series without a chart above", heads, tuple(rows), frozenset(range(1, 7))))
    if len(left) > MOST_SERIES:
        blocks.append(say("{shown} of {all} are listed.", "dim", shown=figures.count(len(rows), "report"),
                          all=figures.count(len(left), "series")))  # fmt: skip
    return section("other-series", "Other series", blocks)


def _moves(subject: Subject, name: str) -> bool:
    value = subject.series(name).value
    value = value[np.isfinite(value)]
    return len(value) > 1 and float(value.min()) < float(value.max())
