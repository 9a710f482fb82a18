"""What two runs can't be compared on: the axis or the metric that would mislead, and the right one.

In:   the facts of all sides, what differs, the metrics that they share.
Out:  refusals, each with its reason and what to take instead; cautions for what can be compared with care.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barograph.analysis.compare.axes import AXES
from barograph.analysis.compare.difference import ABSENT, Difference, Differences
from barograph.analysis.compare.member import PER_BYTE, ComparedMember, is_evaluation, is_per_token
from barograph.analysis.compare.sides import Side
from barograph.query.losses import RunLosses, all_told

# Vocabularies that differ by no more than this may be one, padded: 50,257 and 50,304
_PADDING = 512
_BATCH_TOLERANCE = 0.01  # batches that are packed differ a little from step to step


@dataclass(frozen=True)
class Refusal:
    """what: an axis or a metric. why: a sentence's part. instead: what to take, None if there is nothing."""

    kind: str
    what: str
    why: str
    instead: str | None

    @property
    def sentence(self) -> str:
        way = f"Use {self.instead} instead." if self.instead else "There is no alternative."
        subject = f"The axis {self.what!r} would mislead" if self.kind == "axis" else f"{self.what} can't be compared"
        return f"{subject}: {self.why}. {way}"

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "what": self.what, "why": self.why, "instead": self.instead}


@dataclass(frozen=True)
class Obstacles:
    """Reasons, as parts of sentences; None where there is none. told: losses that the rows of the runs tell."""

    batch: str | None
    tokenizer: str | None
    validation: str | None
    data: str | None
    cautions: tuple[str, ...]
    told: RunLosses


def obstacles(sides: Sequence[Side], differences: Differences) -> Obstacles:
    """What prevents a comparison of these sides."""
    cautions = []
    lengths = [member.facts.sequence for side in sides for member in side.members]
    known = sorted({length for length in lengths if length is not None})
    if len(known) > 1:
        cautions.append(
            f"The sequence lengths differ ({_versus([f'{length:,.0f}' for length in known])}): tokens with more "
            "context are easier to predict, which may explain part of the difference in loss."
        )
    roles = {item.role: item for item in differences.between if item.change is not None and _is_told(item)}
    if (one := roles.get("loss")) is not None:
        cautions.append(
            f"The runs define the loss with different {one.key} ({_versus(one.values)}), which changes its values."
        )
    if any(item.part == "hardware" for item in differences.between):
        cautions.append("The hardware differs: times and costs depend on the machines as much as on the training.")
    return Obstacles(
        _batch(sides),
        _tokenizer(sides, differences),
        _held_out(sides, differences),
        _training_data(differences),
        tuple(cautions),
        all_told(member.told for side in sides for member in side.members),
    )


def _batch(sides: Sequence[Side]) -> str | None:
    tokens = [[member.axes.batch_tokens() for member in side.members if member.axes is not None] for side in sides]
    flat = [value for side in tokens for value in side]
    if flat and None not in flat:
        present = [value for value in flat if value is not None]
        if max(present) > min(present) * (1 + _BATCH_TOLERANCE):
            shown = [f"{side[0]:,.0f}" for side in tokens if side]
            return f"a step has {_versus(shown)} tokens, so the same step is not the same training"
        return None
    samples = [[member.facts.batch_samples for member in side.members] for side in sides]
    told = [value for side in samples for value in side if value is not None]
    if told and max(told) > min(told) * (1 + _BATCH_TOLERANCE):
        shown = [f"{next((value for value in side if value is not None), 0):,.0f}" for side in samples]
        return f"a step has {_versus(shown)} samples, so the same step is not the same training"
    return None


def _tokenizer(sides: Sequence[Side], differences: Differences) -> str | None:
    changed = [item for item in differences.between if item.role == "tokenizer" and item.change is not None]
    named = [item for item in changed if "vocab" not in item.key.lower()]
    if named and not any(map(_is_told, named)):
        namers = [side.label for side, value in zip(sides, named[0].values, strict=True) if value != ABSENT]
        return (
            f"only {_versus(namers)} {'names its' if len(namers) == 1 else 'name their'} tokenizer "
            f"({named[0].key} {_versus([value for value in named[0].values if value != ABSENT])})"
        )
    if named:
        words = ", ".join(f"{item.key} {_versus(item.values)}" for item in named[:2])
        return f"the tokenizers differ ({words}), so a token is not the same amount of text"
    sizes = {
        member.facts.vocabulary for side in sides for member in side.members if member.facts.vocabulary is not None
    }
    if len(sizes) > 1 and (max(sizes) - min(sizes) > _PADDING or max(sizes) % 64):
        words = _versus([f"{size:,.0f}" for size in sorted(sizes)])
        return f"the vocabularies differ ({words} tokens), so a token is not the same amount of text"
    return None


def _held_out(sides: Sequence[Side], differences: Differences) -> str | None:
    told = [item for item in differences.between if _is_told(item)]
    changed = [item for item in told if item.role == "validation" and item.change is not None]
    changed += [item for item in told if item.part == "data" and item.key == "validation"]
    changed += [
        item for item in told if item.role == "data" and item.part == "config" and "train" not in item.key.lower()
    ]
    if changed:
        words = ", ".join(f"{item.key} {_versus(item.values)}" for item in changed[:2])
        return f"the evaluation data differ ({words})"
    counts = [_evaluated_tokens(member) for side in sides for member in side.members]
    present = [count for count in counts if count is not None]
    if len(present) == len(counts) and present and max(present) > min(present) * (1 + _BATCH_TOLERANCE):
        return f"an evaluation has {_versus([f'{count:,.0f}' for count in (present[0], present[-1])])} tokens"
    return None


def _evaluated_tokens(member: ComparedMember) -> float | None:
    if "eval/eval_tokens" not in member.names:
        return None
    values = member.read("eval/eval_tokens").value
    return float(values[-1]) if len(values) and values[-1] > 0 else None


def _training_data(differences: Differences) -> str | None:
    changed = [
        item for item in differences.between if item.role == "data" and item.change is not None and _is_told(item)
    ]
    changed = [item for item in changed if item.key != "validation"]
    if not changed:
        return None
    words = ", ".join(f"{item.key} {_versus(item.values)}" for item in changed[:2])
    return f"the training data differ ({words}), and a training loss is measured on them"


def _is_told(difference: Difference) -> bool:
    """Whether all sides say something."""
    return ABSENT not in difference.values


def doubtful(metric: str, sides: Sequence[Side], differences: Differences, baseline: int, side: int) -> str | None:
    """Why it is not known whether two sides' metric was measured on the same data; None where nothing speaks for it.

    What one side leaves out may be the same by default, or not.
    """
    told = all_told(member.told for one in sides for member in one.members)
    held_out = is_evaluation(metric) or metric in told.evaluations
    for item in differences.between:
        about_training = "train" in item.key.lower()
        concerns = (
            (item.role == "validation" and item.change is not None)
            or (item.part == "data" and item.key == "validation")
            or (item.role == "data" and item.part == "config" and not about_training)
            if held_out
            else item.role == "data" and item.change is not None and item.key != "validation"
        )
        values = item.values[baseline], item.values[side]
        if concerns and (values[0] == ABSENT) != (values[1] == ABSENT):
            at = side if values[0] == ABSENT else baseline
            return (
                f"only {sides[at].label} names its {'validation data' if held_out else 'data'} ({item.key} "
                f"{item.values[at]}), so whether {metric} was measured on the same data is not known"
            )
    return None


def refused_axes(reason: Obstacles, usable: Sequence[str]) -> dict[str, Refusal]:
    """The axes that would mislead. usable: those that all runs have."""
    refused: dict[str, str] = {}
    if reason.batch is not None:
        refused["step"] = reason.batch
    if reason.tokenizer is not None:
        refused["tokens"] = reason.tokenizer
        if reason.batch is None:
            refused["step"] = reason.tokenizer
    order = ("step", "tokens", "samples", "flops", "time")
    instead = next((axis for axis in order if axis in usable and axis not in refused), None)
    return {axis: Refusal("axis", axis, why, instead) for axis, why in refused.items() if axis in AXES}


def metric_obstacle(metric: str, reason: Obstacles) -> str | None:
    """Why a metric can't be compared between these sides; None if it can."""
    training, held_out = metric in reason.told.training, metric in reason.told.evaluations
    if reason.tokenizer is not None and (training or held_out or is_per_token(metric)):
        return reason.tokenizer
    if held_out or is_evaluation(metric):
        return reason.validation
    if training or metric.startswith("train/") or metric == "loss":
        return reason.data
    return None


def refused_metrics(metrics: Sequence[str], reason: Obstacles) -> dict[str, Refusal]:
    """The metrics that can't be compared, of those that are looked at."""
    free = [metric for metric in metrics if metric_obstacle(metric, reason) is None]
    free.sort(key=lambda metric: (PER_BYTE.fullmatch(metric) is None, not is_evaluation(metric)))
    instead = free[0] if free else None
    if instead is None and reason.tokenizer is not None:
        instead = "bits per byte of one text, logged by both,"
    if instead is None and reason.validation is not None:
        instead = "an evaluation of all runs on one set"
    result = {}
    for metric in metrics:
        why = metric_obstacle(metric, reason)
        if why is not None:
            result[metric] = Refusal("metric", metric, why, instead)
    return result


def _versus(values: Sequence[str]) -> str:
    different = list(dict.fromkeys(values))
    return " and ".join(different[:3]) + (", …" if len(different) > 3 else "")
