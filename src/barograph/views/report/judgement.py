"""What to make of the run: findings, the forecast against the outcome, what it cost and whether that was worth it.

In:   the subject of a report.
Out:  sections.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.analysis.forecast.outlook import Forecast
from barograph.analysis.forecast.stored import forecast as forecast_run
from barograph.analysis.forecast.words import forecast_sentences as sentences
from barograph.core import text
from barograph.core.text import escape
from barograph.query.findings import grouped
from barograph.query.stored import Series
from barograph.views.report import figures
from barograph.views.report.content import (
    Block,
    FactList,
    Figure,
    ReportFinding,
    ReportTable,
    Section,
    Sentence,
    quote,
    say,
    section,
)
from barograph.views.report.spread import spread
from barograph.views.report.subject import Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

PARTS = (0.15, 0.3, 0.6)  # of the plan, at which a forecast is made that could have been made then
MOST_FINDINGS = 40
_PLURAL = {"critical": ("critical finding", "critical findings"), "warning": ("warning", "warnings"),
           "info": ("info", "info")}  # fmt: skip


# -- findings ---------------------------------------------------------------------------------------------


def counted(subject: Subject) -> Figure:
    """How many findings of which kind, in words."""
    words = [
        f"{number} {_PLURAL[severity][number != 1]}"
        for severity in ("critical", "warning", "info")
        if (number := subject.counted[severity])
    ]
    return Figure(", ".join(words) or "none", dict(subject.counted), "doctor")


def findings(subject: Subject) -> Section | None:
    """What the doctor says, the worst first."""
    found = grouped(subject.findings)
    checked, abstained = len(subject.diagnosis["checked"]), len(subject.diagnosis["abstained"])
    rules = figures.count(checked, "doctor: checked", "rule")
    silent = figures.count(abstained, "doctor: abstained", "rule")
    if not checked:
        words = "None of the doctor's {silent} could check the run: it lacks the series that they need."
        return section("findings", "Findings", [say(words, "dim", silent=silent)])
    blocks: list[Block | None] = []
    if not found and subject.diagnosis["judged_by"] is None:
        verdict = figures.word(subject.diagnosis["headline"], "doctor: headline")
        blocks.append(say("{verdict}. {rules} checked the run.", "dim", verdict=verdict, rules=rules))
    elif not found:
        blocks.append(say("The doctor found no problems: {rules} checked the run.", "good", rules=rules))
    else:
        blocks.append(say("The doctor found {findings}; {rules} checked the run.",
                          findings=counted(subject), rules=rules))  # fmt: skip
    if abstained:
        blocks.append(say("{silent} could not run because data are missing: `barograph doctor --all` names them.",
                          "dim", silent=silent))  # fmt: skip
    if subject.every > 1:
        every = figures.count(subject.every, "report")
        blocks.append(say("Of the layer statistics one record in {every} was checked here; "
                          "`barograph doctor` checks all.", "dim", every=every))  # fmt: skip
    blocks += [of_finding(number, item) for number, item in enumerate(found[:MOST_FINDINGS], 1)]
    if len(found) > MOST_FINDINGS:
        more = figures.count(len(found) - MOST_FINDINGS, "doctor", "more")
        blocks.append(say("{more}: `barograph doctor` lists all.", "dim", more=more))
    return section("findings", "Findings", blocks)


def of_finding(number: int, found: dict[str, Any]) -> ReportFinding:
    evidence = found.get("evidence") or {}
    times = found.get("count", 1)
    if times > 1:  # info findings of one rule: how many, and where
        return ReportFinding(number, str(found["severity"]), str(found["rule"]), int(found["step"]),
                             int(found["last_step"]), f"{times} times: {escape(found['message'], 600)}")  # fmt: skip
    story = evidence.get("story")
    told = (
        [f"step {item['step']:,}: {escape(item['message'], 400)}" for item in story] if isinstance(story, list) else []
    )
    return ReportFinding(
        number, str(found["severity"]), str(found["rule"]), int(found["step"]), int(found["last_step"]),
        escape(found["message"], 600), tuple(told), tuple(escape(item, 400) for item in found["causes"]),
        tuple(escape(item, 400) for item in found["remedies"]), float(found["confidence"]),
    )  # fmt: skip


# -- forecast ---------------------------------------------------------------------------------------------


class _Part:
    """The subject as it stood at a step."""

    def __init__(self, subject: Subject, until: float):
        self._subject, self._until = subject, until
        self.config = subject.config

    def names(self) -> list[str]:
        return list(self._subject.names)

    def series(self, name: str) -> Series:
        whole = self._subject.series(name)
        keep = int(np.searchsorted(whole.step, self._until, side="right"))
        return whole.points(slice(keep))


def forecast(subject: Subject) -> Section | None:
    """What could have been known early, against what came; of a run that goes on, what is to come."""
    title = "Forecast"
    if subject.loss is None or subject.last_step is None:
        return section("forecast", title, [say("There is no training loss to forecast.", "dim")])
    if subject.loss is not None and len(subject.series(subject.loss)) == 1:
        return section("forecast", title, [say("The loss has one value: there is nothing to forecast from.", "dim")])
    whole = forecast_run(_Part(subject, math.inf))
    if subject.is_alive:
        return section("forecast", title, [quote(item, "forecast") for item in sentences(whole)])
    title = "Forecast against outcome"
    last, planned = subject.last_step, subject.planned
    blocks: list[Block | None] = []
    if planned is not None and subject.done < 0.99 * planned:
        blocks.append(say("The run ended at step {last} of {planned} planned: the loss at the end of its plan is not "
                          "known, so a forecast can't be compared with it.", last=figures.count(last, "steps"),
                          planned=figures.count(planned, "configuration: planned steps")))  # fmt: skip
        return section("forecast", title, blocks, "Forecast")
    plan = planned if planned is not None else last
    outcome = whole.final if planned is not None else None
    if outcome is None:
        outcome = forecast_run(_Part(subject, math.inf), planned_steps=plan).final if plan > 0 else None
    if outcome is None or not math.isfinite(outcome):
        reason = whole.reason or "the loss at its end is not a number"
        blocks.append(
            quote(f"A forecast can't be compared with the outcome: {reason[:1].lower()}{reason[1:]}", "forecast")
        )
        return section("forecast", title, blocks, "Forecast")
    blocks += _against(subject, plan, planned is None, outcome)
    target = whole.target
    if target is not None:
        blocks += [quote(item, "forecast") for item in sentences(whole) if item.startswith(("The target", "This run"))]
    return section("forecast", title, blocks, "Forecast")


def _against(subject: Subject, plan: int, guessed: bool, outcome: float) -> list[Block]:
    came = figures.number(outcome, "forecast: mean of the last twentieth of the plan")
    rows: list[tuple[str | Figure, ...]] = []
    blocks: list[Block] = []
    middle: tuple[Forecast, bool] | None = None
    reason = ""
    for part in PARTS:
        made = forecast_run(_Part(subject, part * plan), planned_steps=plan)
        share = figures.percent(part, "part of the plan")
        if made.final is None or made.low is None or made.high is None:
            reason = reason or (made.reason or "")
            rows.append((share, figures.count(int(part * plan), "plan"), "none made", "", "", ""))
            continue
        inside = made.low <= outcome <= made.high
        if part == PARTS[1]:
            middle = made, inside
        error = (made.final - outcome) / abs(outcome) if outcome else math.nan
        rows.append((
            share, figures.count(int(part * plan), "plan"), figures.number(made.final, "forecast: final"),
            f"{text.number(made.low)} to {text.number(made.high)}",
            "yes" if inside else "no",
            _signed(error) if math.isfinite(error) else "",
        ))  # fmt: skip
    if middle is not None and middle[0].final is not None:
        made, inside = middle
        low, high = made.low or 0.0, made.high or 0.0
        verdict = (
            "it ended at {came}, inside that interval." if inside else "it ended at {came}, outside that interval."
        )
        blocks.append(say("At {share} of its steps the forecast of the final loss was {guess} ({coverage} interval "
                        "{low} to {high}); " + verdict, "" if inside else "warn", came=came,
                        share=figures.percent(PARTS[1], "part of the plan"),
                        guess=figures.number(made.final or 0.0, "forecast: final"),
                        coverage=figures.percent(made.coverage, "forecast: coverage"),
                        low=figures.number(low, "forecast: low"),
                        high=figures.number(high, "forecast: high")))  # fmt: skip
        basis = made.basis[:1].upper() + made.basis[1:]
        blocks.append(quote(f"{basis}.", "forecast", "dim"))
    else:
        blocks.append(say("The final loss is {came}; a forecast could not be made early.", came=came))
        if reason:
            blocks.append(quote(reason, "forecast", "dim"))
    heads = ("seen", "up to step", "forecast of the final loss", "interval", "outcome inside", "off by")
    blocks.append(ReportTable("Forecasts at earlier steps, and the outcome", heads, tuple(rows),
                      frozenset({0, 1, 2, 3, 5})))  # fmt: skip
    if guessed:
        blocks.append(
            say(
                "The run's plan is not recorded; its own length is taken for it, which was not known at that time.",
                "dim",
            )
        )
    return blocks


def _signed(error: float) -> Figure:
    found = figures.percent(error, "(forecast - outcome) / outcome")
    return Figure(f"+{found.text}" if error > 0 else found.text, found.value, found.source)


# -- cost -------------------------------------------------------------------------------------------------


def cost(subject: Subject) -> Section | None:
    """Energy, money, and what the last part of them bought."""
    found = subject.cost
    blocks: list[Block | None] = []
    facts: list[tuple[str, Figure]] = []
    if "cost" in found:
        parts = []
        if "gpu_cost" in found:
            parts.append(f"{text.number(found['gpu_hours'])} device hours at {found['price_per_gpu_hour']:g}")
        if "electricity_cost" in found:
            parts.append(f"{text.number(found['kwh'])} kWh at {found['price_per_kwh']:g}")
        made_of = figures.word(" and ".join(parts), "energy record")
        blocks.append(say("The run cost {cost}: {parts}.", cost=figures.money(found["cost"], "energy: cost"),
                          parts=made_of))  # fmt: skip
        if "price_per_million_tokens" in found:
            facts.append(("cost per million tokens", figures.money(found["price_per_million_tokens"], "energy")))
    elif found.get("gpu_hours"):
        hours = figures.number(found["gpu_hours"], "energy: gpu_hours")
        blocks.append(say("The run held its devices for {hours} device hours; what they cost is not known, for no "
                          "price was given.", hours=hours))  # fmt: skip
    else:
        lacks = "how long it held devices" if subject.training_seconds is None else "how many devices it held"
        blocks.append(
            say("The price can't be used: {lacks} is not recorded (--devices says how many).", "warn",
                lacks=figures.word(lacks, "report"))
            if subject.price is not None
            else say("What the run cost is not known: neither devices with a price nor a price of energy are "
                     "recorded.", "dim")
        )  # fmt: skip
    if found.get("gpu_hours"):
        facts.append(("device hours", figures.number(found["gpu_hours"], "energy: gpu_hours")))
    if "kwh" in found:
        facts.append(("energy", figures.amount(found["kwh"], "energy: kwh", " kWh")))
        facts.append(("power on average", figures.amount(found["watts"], "energy: watts", " W")))
    if "tokens" in found:
        facts.append(("tokens trained on", figures.amount(found["tokens"], "energy: tokens")))
    if "tokens_per_joule" in found:
        facts.append(("tokens a joule", figures.number(found["tokens_per_joule"], "energy: tokens_per_joule")))
    blocks.append(FactList(tuple(facts)) if facts else None)
    rate = _rate(subject, found)
    blocks += list(_worth(subject, rate))
    return section("cost", "Cost and benefit", blocks, "Cost")


def _rate(subject: Subject, found: dict[str, Any]) -> float | None:
    """Money a second in which devices were held."""
    totals = subject.totals
    return float(found["cost"]) / totals.held if found.get("cost") and totals is not None and totals.held > 0 else None


def _worth(subject: Subject, rate: float | None) -> Iterator[Sentence]:
    """What time and money bought: figures alone, the judgement is the reader's."""
    totals = subject.totals
    if rate is not None and totals is not None:
        lost = max(0.0, totals.held - totals.productive)
        yield say("{money} of that, {share}, was time without progress of the training: see the run time.",
                  money=figures.money(lost * rate, "goodput: not productive × price"),
                  share=figures.percent(lost / totals.held, "goodput: not productive / held"))  # fmt: skip
    name = subject.loss
    gone = subject.member.diverged_at(name) if name is not None else None
    if name is not None and gone is not None:
        series = subject.series(name)
        after = int((series.step >= gone).sum())
        yield say("From step {step} on the loss is not a finite number: {after} logged steps, {share} of all{spent}, "
                  "were without effect.", "bad", step=figures.count(gone, name),
                  share=figures.percent(after / len(series), name), after=figures.count(after, name),
                  spent=_spent(subject, gone, rate))  # fmt: skip
        return
    measured = [
        evaluation
        for evaluation in subject.evaluations
        if subject.member.way(evaluation) < 0 and len(subject.series(evaluation)) > 3
    ]
    if measured:
        yield from _of_evaluations(subject, measured[0], rate)
    elif name is not None:
        yield from _of_training(subject, name)


def _spent(subject: Subject, step: int, rate: float | None) -> Figure:
    """Such as " (… by the clock and … of its cost)" from a step to the end, as far as known."""
    seconds = _seconds_after(subject, step)
    if seconds is None:
        return Figure("", None, "not known")
    text = f" ({figures.duration(seconds, '').text} by the clock"
    if rate is not None:
        text += f" and {figures.money(seconds * rate, '').text} of its cost"
    text += ")"
    return Figure(text, seconds, "times of the logged steps × price")


def _seconds_after(subject: Subject, step: int) -> float | None:
    main = subject.main
    if main is None or len(main) < 2 or not main.time[0] > 86_400:
        return None
    at = min(int(np.searchsorted(main.step, step)), len(main) - 1)
    seconds = float(main.time[-1] - main.time[at])
    return seconds if seconds > 0 else None


def _of_evaluations(subject: Subject, name: str, rate: float | None) -> Iterator[Sentence]:
    found = spread(name, subject.series(name))
    if found is None or len(found.value) < 4:
        return
    half = len(found.value) // 2
    first, middle, last = (float(found.value[at]) for at in (0, half, -1))
    steps = found.series.step[np.isfinite(found.series.value)]
    place = figures.count(int(steps[half]), name)
    what = figures.word("the evaluation loss" if name == "eval/loss" else name, name)
    yield say("Up to step {place} {what} went from {first} to {middle}, and from there to the end to "
              "{last}{spent}.", place=place, what=what, first=found.at(first), middle=found.at(middle),
              last=found.at(last), spent=_spent(subject, int(steps[half]), rate))  # fmt: skip
    if found.low_step < steps[-1] and found.low < last:
        along = steps if subject.main is None or not len(subject.main) else subject.main.step
        first_step, last_step = min(int(along[0]), int(steps[0])), max(int(along[-1]), int(steps[-1]))
        share = (last_step - found.low_step) / (last_step - first_step + 1)
        yield say("What came after step {step}, {share} of the steps{spent}, brought no lower value of {what}.",
                  "warn", what=what, step=found.step(found.low_step), share=figures.percent(share, name),
                  spent=_spent(subject, found.low_step, rate))  # fmt: skip


def _of_training(subject: Subject, name: str) -> Iterator[Sentence]:
    found = spread(name, subject.series(name))
    if found is None or len(found.value) < 40:
        return
    few = max(1, len(found.value) // 20)
    half = len(found.value) // 2
    middle = float(found.value[half - few // 2 : half - few // 2 + few].mean())
    yield say("The first half of the run changed the training loss from {begin} to {middle}, the second to {end}.",
              begin=found.at(found.begin), middle=found.at(middle), end=found.at(found.end))  # fmt: skip
