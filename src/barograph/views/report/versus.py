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
from barograph.analysis.compare.member import EVALUATIONS, LOSSES
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
_TITLES = (("losses", "Training loss", LOSSES), ("evaluations", "Evaluation", EVALUATIONS),
           ("learning-rate", "Learning rate", RATES), ("gradient-norm", "Gradient norm", NORMS),
           ("throughput", "Throughput", THROUGHPUTS), ("step-time", "Time of a step", STEP_TIMES))  # fmt: skip


def versus(made: Comparison) -> Report:
    """A comparison's report."""
    labels = [figures.word(side.label, "", 80).text for side in made.sides]
    title = " and ".join(labels[:3]) + (" …" if len(labels) > 3 else "")
    runs = sum(len(side.members) for side in made.sides)
    found: list[Section | None] = [
        section("verdict", "Verdict", [*_verdict(made), _sides(made)]),
        _differences(made),
        section("curves", "Curves", list(_curves(made))),
        _figures(made),
        section("more", "Each run as logged", list(_beside(made)), "As logged"),
        _samples(made),
        section("notes", "Notes", list(_notes(made))),
    ]
    kept = tuple(one for one in found if one is not None)
    return Report(title, f"comparison of {runs} runs", kept, made_by())


def _verdict(made: Comparison) -> Iterator[Sentence]:
    moods = {one.sentence: {BETTER: "good", WORSE: "warn"}.get(one.outcome, "") for one in made.contrasts}
    said = list(made.verdict.sentences)
    said += [one.sentence for one in made.refusals if one.sentence not in said]
    for sentence in [*said, *made.equality_sentences()]:
        yield quote(escape(sentence, 2_000), "comparison", moods.get(sentence, ""))


def _sides(made: Comparison) -> ReportTable:
    rows = []
    for at, side in enumerate(made.sides):
        names = ", ".join(escape(one.name, 80) for one in side.members[:6])
        more = f" and {len(side.members) - 6} more" if len(side.members) > 6 else ""
        states = ", ".join(dict.fromkeys(one.status for one in side.members))
        rows.append((letter(at), figures.word(side.label, "comparison", 120), figures.count(len(side.members), "runs"),
                     escape(states, 80), f"{names}{more}"))  # fmt: skip
    return ReportTable("Sides", ("", "side", "runs", "status", "which"), tuple(rows), frozenset({2}))


def _differences(made: Comparison) -> Section | None:
    if len(made.sides) < 2:
        return None
    found = made.differences
    shown = [one for one in found.between if one.role != "bookkeeping" and (one.part != "packages" or one.change)]
    sides = min(6, len(made.sides))
    rows: tuple[tuple[str | Figure, ...], ...] = tuple(
        ("change" if one.change is not None else escape(one.role, 60), escape(one.part, 60), escape(one.key, 120),
         *(figures.word(value, f"{one.part}: {one.key}", 200) for value in one.values[:sides]))
        for one in shown[:MOST_DIFFERENCES]
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
        files = ", ".join(escape(one, 200) for one in found.files[:10])
        blocks.append(quote(f"Uncommitted changes differ in {files}.", "comparison"))
    if found.same:
        blocks.append(quote(f"The same: {', '.join(found.same)}.", "comparison", "dim"))
    blocks += [quote(f"Not known of {who}: {what}.", "comparison", "dim") for who, what in unknown_words(made)]
    return section("differences", "What differs", blocks)


def _curves(made: Comparison) -> Iterator[Block]:
    x, curves = made.curves(400)
    if not len(x) or made.axis is None:
        yield say("The runs have no range in common, so their curves can't be compared.", "dim")
        return
    axis = made.axis
    unit = {"step": "step", "time": "seconds", "tokens": "token", "samples": "sample", "flops": "FLOP"}[axis]
    lines = tuple(
        ReportLine(f"{letter(at)}", f"{letter(at)} · {escape(made.sides[at].label, 60)}", x, curve, 0)
        for at, curve in enumerate(curves[:MOST_SIDES])
        if np.isfinite(curve).any()
    )
    words = smoothing(made.place, made.contrasts)
    said = [quote(words, "comparison", "dim")] if words else []
    if len(made.sides) > MOST_SIDES:
        shown = figures.count(MOST_SIDES, "report"), figures.count(len(made.sides), "comparison", "side")
        said.append(say("The first {some} of {all} are drawn.", "dim", some=shown[0], all=shown[1]))
    metric = escape(made.metric, 120)
    low = min((float(np.nanmin(line.y)) for line in lines), default=0.0)
    high = max((float(np.nanmax(line.y)) for line in lines), default=0.0)
    yield Chart("curves", metric, lines, tuple(said), x=unit, log=low > 0 and high / low > 30)
    gaps = [one for one in made.contrasts if one.curve is not None and len(one.curve.x) > 1][:MOST_SIDES]
    if not gaps:
        return
    drawn, bands, kinds = [], [], []
    for one in gaps:
        curve = one.curve
        assert curve is not None
        name = f"{letter(one.side)} − {letter(one.baseline)}"
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


def _figures(made: Comparison) -> Section | None:
    if not made.rows:
        return None
    sides = range(len(made.sides))
    wide = len(made.sides) <= 8
    heads = [
        "",
        *(head for at in sides for head in ((letter(at), f"{letter(at)} vs A") if at and wide else (letter(at),))),
    ]
    rows = []
    for row in made.rows:
        cells: list[str | Figure] = [escape(row.name, 120)]
        for at in sides:
            cell = row.cells[at]
            value = cell.value if cell is not None else None
            cells.append(Figure(cell_words(cell, row.unit), value, f"comparison: {escape(row.name, 120)}"))
            if at and wide:
                cells.append(change_words(row, at))
        rows.append(tuple(cells))
    blocks: list[Block] = [ReportTable("Figures", tuple(heads), tuple(rows), frozenset(range(1, len(heads))))]
    if has_interval(made.rows):
        blocks.append(quote(PLUS_MINUS, "comparison", "dim"))
    tests: list[Sequence[str]] = []
    for one in made.contrasts:
        if one.test is not None and not math.isnan(one.difference):
            test = one.test
            tests.append((
                f"{letter(one.side)} − {letter(one.baseline)}", *common_end(one), number(one.difference),
                change(one.percent),
                f"{number(test.low)} to {number(test.high)}", number(test.p, 2),
                "" if test.permutation is None else number(test.permutation, 2),
                "" if test.effect is None else f"{test.effect:.2f}", test.method, one.outcome,
            ))  # fmt: skip
    if tests:
        blocks.append(ReportTable("Tests", TEST_COLUMNS, tuple(tuple(row) for row in tests), frozenset(range(1, 10))))
    return section("figures", "Figures", blocks)


def _samples(made: Comparison) -> Section | None:
    """What each side wrote last, for every prompt that two sides or more have; of a side the first run with samples."""
    sides: dict[int, dict[str, list[tuple[int, str]]]] = {}
    for at, side in enumerate(made.sides[:MOST_SIDES]):
        found = (texts_by_prompt(member.run.records("sample")) for member in side.members)
        sides[at] = next((one for one in found if one), {})
    prompts = dict.fromkeys(prompt for texts in sides.values() for prompt in texts if prompt)
    shared = [prompt for prompt in prompts if sum(prompt in texts for texts in sides.values()) > 1]
    blocks: list[Block] = []
    for prompt in shared[:MOST_PROMPTS]:
        blocks.append(Heading(f"Prompt: {figures.word(prompt, '', 200).text}"))
        for at, texts in sides.items():
            if prompt in texts:
                step, text = max(texts[prompt], key=lambda one: one[0])
                label = f"{letter(at)} · {escape(made.sides[at].label, 60)}, step {step:,}"
                blocks.append(text_of(label, prompt, text))
    if len(shared) > MOST_PROMPTS:
        blocks.append(say("{more} are not shown.", "dim",
                          more=figures.count(len(shared) - MOST_PROMPTS, "sample records", "more prompt")))  # fmt: skip
    return section("samples", "Samples", blocks) if blocks else None


def _beside(made: Comparison) -> Iterator[Block]:
    """What explains the curves, of the first run of each side, along steps."""
    firsts = [(at, side.members[0]) for at, side in enumerate(made.sides[:MOST_SIDES]) if side.members]
    for slug, title, names in _TITLES:
        lines = []
        for at, member in firsts:
            name = next((one for one in names if one in member.names and len(member.read(one))), None)
            if name is not None:
                label = f"{letter(at)} · {escape(member.name, 60)}"
                drawn = of_series(member.read, name, smoothed=slug not in ("learning-rate", "evaluations"), label=label)
                lines.append(drawn[-1])
        if lines:
            yield Chart(slug, title, tuple(lines), log=_wide(lines))


def _wide(lines: Sequence[ReportLine]) -> bool:
    values = np.concatenate([line.y[np.isfinite(line.y)] for line in lines])
    return len(values) > 0 and float(values.min()) > 0 and float(values.max() / values.min()) > 30


def _notes(made: Comparison) -> Iterator[Block]:
    for sentence in [*made.cautions, *made.notes]:
        yield quote(escape(sentence, 2_000), "comparison")
    if made.target is not None and made.metric is not None:
        yield FactList((("target value", figures.number(made.target, f"{made.metric}: target")),))
