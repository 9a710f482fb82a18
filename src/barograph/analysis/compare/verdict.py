"""The verdict: what a difference can be attributed to, and whether it is significant.

In:   what differs, what was refused, the contrasts.
Out:  sentences, the most important first; each says no more than the figures beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from barograph.analysis.compare import contrasts, statistics
from barograph.analysis.compare.axes import UNITS
from barograph.analysis.compare.contrasts import Contrast
from barograph.analysis.compare.difference import Differences
from barograph.analysis.compare.ends import SharedStretch
from barograph.analysis.compare.ranking import Ranking
from barograph.analysis.compare.sides import Side
from barograph.analysis.compare.words import letter
from barograph.core.text import number, signed
from barograph.query.keys import shown

_MOST_TOLD = 3  # contrasts told one by one
_MOST_SETTLED = 8
_LONGEST_NAME = 24

ONE, SEVERAL, NONE, SEEDS, UNKNOWN = "one change", "several changes", "no change", "seeds only", "unknown"


@dataclass
class Verdict:
    """attribution: what changed, as one of "one change", "several changes", "no change", "seeds only", "unknown".

    changes: their names. sentences: the best of several
    first, then attribution, then one for each side against the baseline, with advice.
    """

    attribution: str
    changes: list[str]
    sentences: list[str] = field(default_factory=list)


def judge(
    sides: Sequence[Side], differences: Differences, made: Sequence[Contrast], ranking: Ranking | None = None
) -> Verdict:
    """Put the verdict together, and give every contrast its sentence."""
    verdict = _attribution(sides, differences)
    for item in made:
        _say(item, sides, verdict)
    if ranking is not None:
        verdict.sentences.insert(0, ranking.sentence)
    told = made if len(made) <= _MOST_TOLD else [item for item in made if item.test is not None and item.test.settled]
    ranked = ranking is not None and made and ranking.ranks[0].side == made[0].baseline and len(made) > _MOST_TOLD
    for item in () if ranked else told[:_MOST_SETTLED]:  # the ranking has them all
        verdict.sentences.append(item.sentence)
        if item.advice:
            verdict.sentences.append(item.advice)
    if len(made) > _MOST_TOLD and not ranked:
        verdict.sentences.append(_together(made, sides))
    if len(made) > _MOST_TOLD and _are_ungrouped(made, sides):
        verdict.sentences.append(
            "Runs without a configuration can't be grouped: put those of one setup into a folder, and name folders."
        )
    return verdict


def _together(made: Sequence[Contrast], sides: Sequence[Side]) -> str:
    """One sentence for many contrasts: how many of each outcome."""
    counts = Counter(item.outcome for item in made)
    words = {
        contrasts.BETTER: "better", contrasts.WORSE: "worse", contrasts.DIFFERENT: "different",
        contrasts.NOT_SHOWN: "not significantly different", contrasts.CANNOT_TELL: "undecided",
        contrasts.REFUSED: "refused",
    }  # fmt: skip
    listed = ", ".join(f"{count} {words[outcome]}" for outcome, count in counts.most_common())
    level = next((item.test.level for item in made if item.test is not None), None)
    each = (
        f" (each tested at {number(level, 2)}, so that the level holds for all together)" if level is not None else ""
    )
    return f"Of {len(made)} sides compared with {_call(sides, 0)}: {listed}{each}."


def _are_ungrouped(made: Sequence[Contrast], sides: Sequence[Side]) -> bool:
    unknown = any("config" not in side.members[0].facts.known for side in sides)
    return unknown and all(item.runs == (1, 1) for item in made)


def _attribution(sides: Sequence[Side], differences: Differences) -> Verdict:
    changes = differences.changes
    if len(sides) < 2:
        return Verdict(SEEDS, [], ["These runs have one setup: they show the variation between its repeats."])
    if "config" in differences.unknown:
        silent = [_call(sides, at) for at in differences.unknown["config"]]
        have = "none of the runs has a configuration"
        if len(silent) < len(sides):
            have = f"{_names(silent)} {'has' if len(silent) == 1 else 'have'} no configuration"
        sentence = f"What differs is not known, for {have}: the cause of a difference is unknown."
        return Verdict(UNKNOWN, changes, [sentence])
    silent_parts = [part for part in ("code", "packages", "data") if part in differences.unknown]
    silent_are = "is" if silent_parts == ["code"] else "are"
    as_far = f" as far as is known ({_names(silent_parts)} {silent_are} not)" if silent_parts else ""
    mixed = [
        key
        for key, role in differences.within.items()
        if role in ("plain", "batch", "sequence", "loss", "code", "data")
    ]
    if not changes:
        seeds = [item for item in differences.between if item.role == "seed"]
        if seeds or len(sides[0].members) > 1:
            sentence = f"Only seeds differ{as_far}: these are repeats of one setup."
            return Verdict(SEEDS, [], [sentence])
        return Verdict(NONE, [], [f"Nothing differs{as_far} that could change the training."])
    if len(changes) == 1 and not mixed:
        values = next(item for item in differences.between if item.change == changes[0])
        words = f" ({_versus(values.values)})" if values.change == values.key else ""
        sentence = f"One thing changed{as_far}: {changes[0]}{words}."
        return Verdict(ONE, changes, [sentence])
    verdict = Verdict(SEVERAL, changes)
    if len(changes) > 1:
        verdict.sentences.append(
            f"{len(changes)} things changed: {_names(changes, 6)}. A difference can be attributed only to "
            "all of them together."
        )
    if mixed:
        verdict.sentences.append(
            f"Within a side {_names(mixed, 4)} varies too, so its runs are not repeats of one setup."
        )
    return verdict


def _say(contrast: Contrast, sides: Sequence[Side], verdict: Verdict) -> None:
    """The contrast's sentence and, where it could not be settled, what would settle it."""
    label, base, place = _call(sides, contrast.side), _call(sides, contrast.baseline), contrast.place
    if contrast.outcome == contrasts.REFUSED or place is None:
        contrast.sentence = (
            contrast.sentence or f"{label} against {base}: they have no metric in common that can be compared."
        )
        return
    if contrast.difference != contrast.difference:
        contrast.sentence = (
            f"{label} against {base}: no value of {place.metric} to compare{_diverged(contrast, place)}."
        )
        return
    amount = _amount(contrast, place, base)
    if any(place.diverged[at] for at in (contrast.baseline, contrast.side)):
        lost = [f"{len(place.diverged[at])} of {_call(sides, at)}" for at in (contrast.baseline, contrast.side)]
        contrast.outcome = contrasts.CANNOT_TELL
        contrast.sentence = f"Cannot tell: {' and '.join(lost)} ended with NaN or infinity. Of the others, {amount}."
        return
    if contrast.unlike is not None:
        against = f"{_call(sides, contrast.side)} against {base}"
        contrast.sentence = (
            f"Cannot tell ({against}): {amount}, but {contrast.unlike}. Compare runs of one length, or one schedule."
        )
        return
    if contrast.doubt is not None:
        contrast.sentence = (
            f"Cannot tell ({_call(sides, contrast.side)} against {base}): {amount}, but {contrast.doubt}."
        )
        contrast.advice = "Name it in both configurations, or compare all the same with --anyway."
        return
    test = contrast.test
    if test is None:
        _say_untested(contrast, sides, place, amount, verdict)
        return
    how = f"{test.method}, {_runs(contrast)}, p {_p(test.p)}" + (
        f", exact permutation p {_p(test.permutation)}" if test.permutation is not None else ""
    )
    if contrast.repeats is not None:
        whose = "their setup" if contrast.repeats.own else "other setups in the project"
        how += f", {number(test.spread, 3)} among {contrast.repeats.runs} repeats of {whose}"
    interval = f"{number(100 * (1 - test.level), 4)}% interval {signed(test.low, 4)} to {signed(test.high, 4)}"
    if test.settled:
        word = {contrasts.BETTER: "better", contrasts.WORSE: "worse"}.get(contrast.outcome, "different")
        than = f"{word} than {base}" if word != "different" else f"different from {base}"
        contrast.sentence = f"{label} is {than}: {amount}, {interval} ({how})."
        return
    contrast.sentence = f"No significant difference between {label} and {base}: {amount}, {interval} ({how})."
    if test.p <= test.level and test.permutation is not None:
        contrast.sentence += " The two tests disagree: the values are not normally distributed."
    contrast.advice = _advice(contrast, test)


def _say_untested(
    contrast: Contrast, sides: Sequence[Side], place: SharedStretch, amount: str, verdict: Verdict
) -> None:
    seeds = f" {contrast.runs[0]} and {contrast.runs[1]} runs" if max(contrast.runs) > 1 else " one run each"
    against = f"{_call(sides, contrast.side)} against {_call(sides, contrast.baseline)}"
    if contrast.runs == (1, 1):
        contrast.sentence = f"Cannot tell from{seeds} ({against}): {amount}."
        if contrast.noise:
            times = abs(contrast.difference) / contrast.noise
            contrast.sentence += (
                f" That is {times:.1f} times the noise within the runs ({number(contrast.noise, 2)}); that is the "
                "precision of the two curves, not the variation between seeds."
            )
        if verdict.attribution != SEEDS:
            contrast.advice = (
                "Run each with three seeds or more and group them, or repeat one of them twice in this project: "
                "then the standard deviation between seeds is known."
            )
        return
    if min(contrast.runs) >= 2:
        contrast.sentence = (
            f"Cannot tell ({against}): {amount}, but the runs of a side agree to the last digit, so they are not "
            "repeats with seeds of their own."
        )
        return
    contrast.sentence = (
        f"Cannot tell from{seeds} ({against}): {amount}. Two runs do not show the variation between seeds."
    )


def _advice(contrast: Contrast, test: statistics.SignificanceTest) -> str:
    fewest = min(contrast.pairs or contrast.runs[0], contrast.pairs or contrast.runs[1])
    below = (
        f"With 80% power these runs would have shown a difference of {number(test.detectable, 3)}"
        if test.detectable
        else ""
    )
    if test.needed is None:
        more = f"more than {statistics.MOST_SEEDS:,} runs a side"
        return f"{below}; one as small as this needs {more}." if below else ""
    more_runs = test.needed - fewest
    if more_runs <= 0:
        return f"{below}. A few more seeds would show one as large as this."
    return (
        f"{below}. If difference and standard deviation stay the same, {more_runs:,} more runs a side "
        f"({test.needed:,} in all) give 80% power."
    )


def _amount(contrast: Contrast, place: SharedStretch, base: str) -> str:
    way = place.way
    unit = UNITS[place.axis]
    where = f"step {place.high:,.0f}" if unit == "steps" else f"{number(place.high, 4)} {unit}"
    percent = f" ({contrast.percent:+.2f}%)" if contrast.percent is not None else ""
    if contrast.difference == 0:
        return f"{place.metric} is the same at {where}"
    word = "lower" if contrast.difference < 0 else "higher"
    meaning = "" if way else ", whichever way is better"
    return f"{place.metric} is {number(abs(contrast.difference), 4)} {word} at {where}{percent}{meaning}"


def _call(sides: Sequence[Side], at: int) -> str:
    """A side's label, or its letter where the label would make a sentence long."""
    label = sides[at].label
    return label if len(label) <= _LONGEST_NAME else letter(at)


def _diverged(contrast: Contrast, place: SharedStretch) -> str:
    sides = [at for at in (contrast.baseline, contrast.side) if place.diverged[at] and not place.sides[at]]
    return ", for it ended with NaN or infinity" if sides else ""


def _runs(contrast: Contrast) -> str:
    return f"{contrast.pairs} pairs" if contrast.pairs else f"{contrast.runs[0]} and {contrast.runs[1]} runs"


def _p(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"= {number(value, 2)}"


def _versus(values: Sequence[str]) -> str:
    return " → ".join(map(shown, values)) if len(values) <= 4 else f"{shown(values[0])} → … ({len(values)} sides)"


def _names(names: Sequence[str], most: int = 3) -> str:
    listed = list(names[:most])
    if len(names) > most:
        return f"{', '.join(listed)} and {len(names) - most} more"
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)
