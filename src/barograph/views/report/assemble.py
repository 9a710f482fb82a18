"""A run's report, put together: sections in the order in which they explain each other, findings flagged on charts.

In:   a stored run, a price.
Out:  a `Report`.

First stand the figures and the losses, which most readers come for. Then the order is that of a careful reader: what
the run was, its schedule, its gradients, what its layers did, only then its speed and machine; then what it left, what
was wrong with it, and what it cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime

from barograph import __version__
from barograph.core import text
from barograph.query.findings import grouped
from barograph.query.stored import StoredRun
from barograph.views.report import about, depth, figures, judgement, learning, media, outcomes, pace
from barograph.views.report.content import Block, Chart, Figure, Flag, Report, Section, Sentence, Tiles, quote
from barograph.views.report.spread import spread
from barograph.views.report.subject import Subject

MOST_FLAGS = 8  # on a chart
_MOODS = {"critical": "bad", "warning": "warn", "info": ""}


def assemble(run: StoredRun, price: float | None = None, devices: int | None = None) -> Report:
    """The report of one run.

    price: of an hour of a device, in any currency; devices: how many it held; the run's own where they are not given.
    """
    subject = Subject(run, price, devices)
    found = [
        learning.loss(subject),
        about.header(subject),
        about.hardware(subject),
        about.runtime(subject),
        about.hyper_parameters(subject),
        learning.schedule(subject),
        learning.gradients(subject),
        depth.depth(subject),
        pace.throughput(subject),
        pace.system(subject),
        outcomes.evaluations(subject),
        outcomes.checkpoints(subject),
        outcomes.samples(subject),
        media.media(subject),
        judgement.findings(subject),
        judgement.forecast(subject),
        judgement.cost(subject),
        about.environment(subject),
    ]
    sections = [item for item in found if item is not None]
    sections[0] = _first(subject, sections[0])
    drawn = {
        line.name
        for section in sections
        for block in section.blocks
        if isinstance(block, Chart)
        for line in block.lines
    }
    rest = outcomes.others(subject, drawn)
    sections += [rest] if rest is not None else []
    numbered = [
        (number, finding)
        for number, shown in enumerate(grouped(subject.findings)[: judgement.MOST_FINDINGS], 1)
        for finding in (subject.findings if shown["count"] > 1 else [shown])
        if shown["count"] == 1 or (finding["rule"], finding["severity"]) == (shown["rule"], "info")
    ]
    flags = [
        Flag(int(finding["step"]), str(finding["severity"]), number, judgement.of_finding(number, finding).message)
        for number, finding in numbered
    ]
    families = [str(finding["family"]) for _, finding in numbered]
    flagged = tuple(
        dataclasses.replace(section, blocks=tuple(_flagged(block, flags, families) for block in section.blocks))
        for section in sections
    )
    moods = [mood for severity, mood in _MOODS.items() if subject.counted[severity]]
    title = figures.word(subject.name, "manifest: name", 200).text
    project = figures.word(subject.run.project, "manifest: project", 200).text
    return Report(
        title,
        f"{project}, {subject.status}" if subject.source is None else _source(subject),
        flagged,
        made_by(),
        next(iter(moods), "good"),
    )


def _first(subject: Subject, losses: Section) -> Section:
    """The first screen: the figures, the curves of the losses, what is wrong, and then what there is to say of them."""
    charts = tuple(block for block in losses.blocks if isinstance(block, Chart))
    said = tuple(block for block in losses.blocks if not isinstance(block, Chart))
    blocks = (Tiles(tuple(_tiles(subject))), *charts, *_worst(subject), *said)
    return dataclasses.replace(losses, title="Summary", blocks=blocks)


def _source(subject: Subject) -> str:
    return f"read from a log of {figures.word((subject.source or {}).get('kind', 'another tool'), '', 80).text}"


def made_by() -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"Made by Barograph {__version__} on {now}"


def _flagged(block: Block, flags: list[Flag], families: list[str]) -> Block:
    """A chart with the findings that concern it: those of its first family, the worse ones of its others, and on the
    loss and the gradient norm all critical ones."""
    if not isinstance(block, Chart) or block.x != "step" or not block.families:
        return block
    mine = [
        flag
        for flag, family in zip(flags, families, strict=False)
        if family == block.families[0]
        or (family in block.families and flag.severity != "info")
        or (flag.severity == "critical" and block.slug in ("loss", "gradient-norm"))
    ]
    return dataclasses.replace(block, flags=tuple(mine[:MOST_FLAGS]))


def _worst(subject: Subject) -> Iterator[Sentence]:
    """The findings that are worse than info, first of all; at most three."""
    for finding in subject.findings[:3]:
        if finding["severity"] != "info":
            said = judgement.of_finding(0, finding).message
            yield quote(
                said, f"doctor: {finding['rule']} at step {finding['step']:,}", _MOODS[str(finding["severity"])]
            )


def _tiles(subject: Subject) -> Iterator[tuple[str, Figure, str]]:
    """The figures that are read first; of those that are not known, none."""
    last = subject.last_step
    if last is not None:
        planned = f"of {subject.planned:,} planned" if subject.planned else "no plan recorded"
        yield "last step", figures.count(last, "steps"), planned
    for label, name in (("training loss", subject.loss), (_evaluation(subject) or "", _evaluation(subject))):
        found = spread(name, subject.series(name)) if name is not None else None
        if name is None or found is None:
            continue
        until = found.finite_until
        label = "evaluation loss" if label == "eval/loss" else label
        if not found.few:
            yield label, figures.number(float("nan"), name), "never finite"
        elif until is not None:
            value = float(found.series.value[-1])
            yield (
                label,
                figures.number(value, name),
                f"last finite {found.at(float(found.value[-1])).text}, step {until:,}",
            )
        elif label == "training loss":
            yield label, found.at(found.end), "mean of the last twentieth" if found.few > 1 else "its last value"
        else:
            yield (
                label,
                figures.number(float(found.value[-1]), name),
                ("lowest of all" if found.value[-1] <= found.low else f"lowest {found.at(found.low).text}"),
            )
    totals = subject.totals
    if totals is not None:
        share = figures.percent(totals.goodput, "goodput").text
        down = f", and {text.duration(totals.downtime)} down" if totals.downtime else ""
        yield "run time", figures.duration(totals.held, "goodput: wall without downtime"), f"goodput {share}{down}"
    tokens = subject.throughput.get("tokens_per_second")
    if tokens:
        yield "tokens a second", figures.amount(tokens, "tokens / time of the steps"), "over the training time"
    cost = subject.cost
    if "cost" in cost:
        hours = cost.get("gpu_hours")
        words = f"{text.number(hours)} device hours" if hours else "electricity"
        yield "cost", figures.money(cost["cost"], "energy: cost"), words
    if subject.diagnosis["checked"]:
        number = sum(subject.counted[severity] for severity in ("critical", "warning"))
        infos = subject.counted["info"]
        words = f"and {infos} info" if infos else "no info"
        yield "findings", figures.count(number, "doctor"), words


def _evaluation(subject: Subject) -> str | None:
    return next((name for name in subject.evaluations if subject.member.way(name) < 0), None)
