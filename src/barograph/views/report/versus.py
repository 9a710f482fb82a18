"""Runs against runs as a report: what differs, whether that lets anything be concluded, curves, figures.

In:   a comparison.
Out:  a `Report`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from barograph.analysis.compare.comparison import Comparison
from barograph.analysis.compare.contrasts import BETTER, WORSE
from barograph.analysis.compare.member import EVALUATIONS
from barograph.analysis.compare.words import (
    PLUS_MINUS,
    TEST_COLUMNS,
    cell_words,
    change_words,
    common_end,
    has_interval,
    letter,
    smoothing,
)
from barograph.core.text import change, escape, number
from barograph.views.compare.tables import unknown_words
from barograph.views.report import figures
from barograph.views.report.assemble import made_by
from barograph.views.report.content import (
    Block,
    Chart,
    FactList,
    Figure,
    Heading,
    Report,
    ReportLine,
    ReportTable,
    Section,
    Sentence,
    quote,
    say,
    section,
)
from barograph.views.report.learning import of_series
from barograph.views.report.outcomes import MOST_PROMPTS, text_of, texts_by_prompt
from barograph.views.report.subject import NORMS, RATES, STEP_TIMES, THROUGHPUTS

_KINDS = {
    "seeds": "with the interval over seeds at each point",
    "within runs": "with the noise within the runs, not the variation between seeds",
}
MOST_SIDES = 8  # drawn: one for each colour
MOST_DIFFERENCES = 200
_TITLES = (("losses", "Training loss", lambda member: member.losses.training),
           ("evaluations", "Evaluation", lambda member: (*EVALUATIONS, *member.losses.evaluations)),
           ("learning-rate", "Learning rate", RATES), ("gradient-norm", "Gradient norm", NORMS),
           ("throughput", "Throughput", THROUGHPUTS), ("step-time", "Time of a step", STEP_TIMES))  # fmt: skip


def versus(comparison: Comparison) -> Report:
    """A comparison's report."""
    labels = [figures.word(side.label, "", 80).text for side in comparison.sides]
    title = " and ".join(labels[:3]) + (" …" if len(labels) > 3 else "")
    runs = sum(len(side.members) for side in comparison.sides)
    sections: list[Section | None] = [
        section("verdict", "Verdict", [*_verdict(comparison), _sides(comparison)]),
        _differences(comparison),
        section("curves", "Curves", list(_curves(comparison))),
        _figures(comparison),
        section("more", "Each run as logged", list(_beside(comparison)), "As logged"),
        _samples(comparison),
        section("notes", "Notes", list(_notes(comparison))),
    ]
    kept = tuple(item for item in sections if item is not None)
    return Report(title, f"comparison of {runs} runs", kept, made_by())


def _verdict(comparison: Comparison) -> Iterator[Sentence]:
    moods = {
        contrast.sentence: {BETTER: "good", WORSE: "warn"}.get(contrast.outcome, "")
        for contrast in comparison.contrasts
    }
    said = list(comparison.verdict.sentences)
    said += [refusal.sentence for refusal in comparison.refusals if refusal.sentence not in said]
    for sentence in [*said, *comparison.equality_sentences()]:
        yield quote(escape(sentence, 2_000), "comparison", moods.get(sentence, ""))


def _sides(comparison: Comparison) -> ReportTable:
    rows = []
    for at, side in enumerate(comparison.sides):
        names = ", ".join(escape(member.name, 80) for member in side.members[:6])
        more = f" and {len(side.members) - 6} more" if len(side.members) > 6 else ""
        states = ", ".join(dict.fromkeys(member.status for member in side.members))
        rows.append((letter(at), figures.word(side.label, "comparison", 120), figures.count(len(side.members), "runs"),
                     escape(states, 80), f"{names}{more}"))  # fmt: skip
    return ReportTable("Sides", ("", "side", "runs", "status", "which"), tuple(rows), frozenset({2}))


def _differences(comparison: Comparison) -> Section | None:
    if len(comparison.sides) < 2:
        return None
    found = comparison.differences
    shown = [item for item in found.between if item.role != "bookkeeping" and (item.part != "packages" or item.change)]
    sides = min(6, len(comparison.sides))
    rows: tuple[tuple[str | Figure, ...], ...] = tuple(
        ("change" if item.change is not None else escape(item.role, 60), escape(item.part, 60), escape(item.key, 120),
         *(figures.word(value, f"{item.part}: {item.key}", 200) for value in item.values[:sides]))
        for item in shown[:MOST_DIFFERENCES]
    )  # fmt: skip
    blocks: list[Block] = []
    if rows:
        heads = ("", "part", "key", *(letter(at) for at in range(sides)))
        blocks.append(ReportTable("What differs", heads, rows))
        if len(shown) > len(rows):
            left = figures.count(len(shown) - len(rows), "comparison", "more difference")
            blocks.append(say("{left} are not listed.", "dim", left=left))
    else:
        blocks.append(say("No known difference."))
    if found.files:
        files = ", ".join(escape(file, 200) for file in found.files[:10])
        blocks.append(quote(f"Uncommitted changes differ in {files}.", "comparison"))
    if found.same:
        blocks.append(quote(f"The same: {', '.join(found.same)}.", "comparison", "dim"))
    blocks += [quote(f"Not known of {who}: {what}.", "comparison", "dim") for who, what in unknown_words(comparison)]
    return section("differences", "What differs", blocks)


def _curves(comparison: Comparison) -> Iterator[Block]:
    x, curves = comparison.curves(400)
    if not len(x) or comparison.axis is None:
        yield say("The runs have no range in common, so their curves can't be compared.", "dim")
        return
    axis = comparison.axis
    unit = {"step": "step", "time": "seconds", "tokens": "token", "samples": "sample", "flops": "FLOP"}[axis]
    lines = tuple(
        ReportLine(f"{letter(at)}", f"{letter(at)} · {escape(comparison.sides[at].label, 60)}", x, curve, 0)
        for at, curve in enumerate(curves[:MOST_SIDES])
        if np.isfinite(curve).any()
    )
    words = smoothing(comparison.place, comparison.contrasts)
    said = [quote(words, "comparison", "dim")] if words else []
    if len(comparison.sides) > MOST_SIDES:
        shown = figures.count(MOST_SIDES, "report"), figures.count(len(comparison.sides), "comparison", "side")
        said.append(say("The first {some} of {all} are drawn.", "dim", some=shown[0], all=shown[1]))
    metric = escape(comparison.metric, 120)
    low = min((float(np.nanmin(line.y)) for line in lines), default=0.0)
    high = max((float(np.nanmax(line.y)) for line in lines), default=0.0)
    yield Chart("curves", metric, lines, tuple(said), x=unit, log=low > 0 and high / low > 30)
    gaps = [contrast for contrast in comparison.contrasts if contrast.curve is not None and len(contrast.curve.x) > 1][
        :MOST_SIDES
    ]
    if not gaps:
        return
    drawn, bands, kinds = [], [], []
    for gap in gaps:
        curve = gap.curve
        assert curve is not None
        name = f"{letter(gap.side)} − {letter(gap.baseline)}"
        drawn.append(ReportLine(name, name, curve.x, curve.difference, 0))
        kinds.append(curve.kind)
        if curve.kind:
            low_, high_ = (ReportLine(name, "", curve.x, edge, 0) for edge in (curve.low, curve.high))
            bands.append((low_, high_))
    words = _KINDS.get(kinds[0], "its interval is not known")
    # a band belongs to the line in its place: with a line that has none, none is drawn
    kept = tuple(bands) if len(bands) == len(drawn) else ()
    yield Chart("difference", f"Difference from {letter(0)}", tuple(drawn), (quote(f"{words[:1].upper()}{words[1:]}.",
                "comparison", "dim"),), x=unit, bands=kept, zero=True,
                tint=gaps[0].side % MOST_SIDES)  # fmt: skip


def _figures(comparison: Comparison) -> Section | None:
    if not comparison.rows:
        return None
    sides = range(len(comparison.sides))
    wide = len(comparison.sides) <= 8
    heads = [
        "",
        *(head for at in sides for head in ((letter(at), f"{letter(at)} vs A") if at and wide else (letter(at),))),
    ]
    rows = []
    for row in comparison.rows:
        cells: list[str | Figure] = [escape(row.name, 120)]
        for at in sides:
            cell = row.cells[at]
            value = cell.value if cell is not None else None
            cells.append(Figure(cell_words(cell, row.unit), value, f"comparison: {escape(row.name, 120)}"))
            if at and wide:
                cells.append(change_words(row, at))
        rows.append(tuple(cells))
    blocks: list[Block] = [ReportTable("Figures", tuple(heads), tuple(rows), frozenset(range(1, len(heads))))]
    if has_interval(comparison.rows):
        blocks.append(quote(PLUS_MINUS, "comparison", "dim"))
    tests: list[Sequence[str]] = []
    for contrast in comparison.contrasts:
        if contrast.test is not None and not math.isnan(contrast.difference):
            test = contrast.test
            tests.append((
                f"{letter(contrast.side)} − {letter(contrast.baseline)}", *common_end(contrast),
                number(contrast.difference), change(contrast.percent),
                f"{number(test.low)} to {number(test.high)}", number(test.p, 2),
                "" if test.permutation is None else number(test.permutation, 2),
                "" if test.effect is None else f"{test.effect:.2f}", test.method, contrast.outcome,
            ))  # fmt: skip
    if tests:
        blocks.append(ReportTable("Tests", TEST_COLUMNS, tuple(tuple(row) for row in tests), frozenset(range(1, 10))))
    return section("figures", "Figures", blocks)


def _samples(comparison: Comparison) -> Section | None:
    """What each side wrote last, for every prompt that two sides or more have; of a side the first run with samples."""
    sides: dict[int, dict[str, list[tuple[int, str]]]] = {}
    for at, side in enumerate(comparison.sides[:MOST_SIDES]):
        found = (texts_by_prompt(member.run.records("sample")) for member in side.members)
        sides[at] = next((item for item in found if item), {})
    prompts = dict.fromkeys(prompt for texts in sides.values() for prompt in texts if prompt)
    shared = [prompt for prompt in prompts if sum(prompt in texts for texts in sides.values()) > 1]
    blocks: list[Block] = []
    for prompt in shared[:MOST_PROMPTS]:
        blocks.append(Heading(f"Prompt: {figures.word(prompt, '', 200).text}"))
        for at, texts in sides.items():
            if prompt in texts:
                step, text = max(texts[prompt], key=lambda item: item[0])
                label = f"{letter(at)} · {escape(comparison.sides[at].label, 60)}, step {step:,}"
                blocks.append(text_of(label, prompt, text))
    if len(shared) > MOST_PROMPTS:
        blocks.append(say("{more} are not shown.", "dim",
                          more=figures.count(len(shared) - MOST_PROMPTS, "sample records", "more prompt")))  # fmt: skip
    return section("samples", "Samples", blocks) if blocks else None


def _beside(comparison: Comparison) -> Iterator[Block]:
    """What explains the curves, of the first run of each side, along steps."""
    firsts = [(at, side.members[0]) for at, side in enumerate(comparison.sides[:MOST_SIDES]) if side.members]
    for slug, title, wanted in _TITLES:
        lines = []
        for at, member in firsts:
            names = wanted(member) if callable(wanted) else wanted
            name = next((name for name in names if name in member.names and len(member.read(name))), None)
            if name is not None:
                label = f"{letter(at)} · {escape(member.name, 60)}"
                drawn = of_series(member.read, name, smoothed=slug not in ("learning-rate", "evaluations"), label=label)
                lines.append(drawn[-1])
        if lines:
            yield Chart(slug, title, tuple(lines), log=_wide(lines))


def _wide(lines: Sequence[ReportLine]) -> bool:
    values = np.concatenate([line.y[np.isfinite(line.y)] for line in lines])
    return len(values) > 0 and float(values.min()) > 0 and float(values.max() / values.min()) > 30


def _notes(comparison: Comparison) -> Iterator[Block]:
    for sentence in [*comparison.cautions, *comparison.notes]:
        yield quote(escape(sentence, 2_000), "comparison")
    if comparison.target is not None and comparison.metric is not None:
        yield FactList((("target value", figures.number(comparison.target, f"{comparison.metric}: target")),))
