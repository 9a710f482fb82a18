"""What is said of a model that answers with one class, as its accuracies show.

In:   rows of the loss, and the accuracy or the number of classes.
Out:  findings of `NotLearning`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.loss.short_runs import cost_of_mistakes, stands_beside, sure_and_wrong

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.curve_rule import CurveRule
    from barograph.doctor.kernel.finding import Finding


def one_share(rule: CurveRule, rows: ChannelRows, unit: str, count: int) -> Finding:
    """Rows in which both accuracies are 1 over a whole number, whatever the loss is: of a part of a log too."""
    return rule.finding(
        int(rows.step[0]),
        f"In each of {len(rows)} {unit} the accuracies of training and evaluation are {1 / count:.3g}, "
        f"those of a guess among {count}",
        severity="warning",
        last_step=int(rows.step[-1]),
        segment=int(rows.segment[-1]),
        key="chance",
        confidence=0.8,
        evidence={"accuracy": rounded(1 / count), "classes": count, "rows": len(rows)},
        causes=["one class alone: each example is given the same class",
                "learning rate too high: outputs no longer depend on the inputs",
                "gradients vanish"],
        remedies=["Count the classes that the model answers with.",
                  "Lower the learning rate by a factor of 10; go back to a checkpoint whose accuracy was higher."],
    )  # fmt: skip


def nothing_moves(rule: CurveRule, rows: ChannelRows, unit: str, share: float) -> Finding:
    """Rows in which losses and accuracies are the same, to the last digit."""
    return rule.finding(
        int(rows.step[0]),
        f"In each of {len(rows)} {unit} the loss is {rows.value[-1]:.6g} and the accuracy {share:.4g}"
        + ("" if rows.value[0] == rows.value[-1] else ", but for the first")
        + ": nothing changes, to the last digit",
        severity="warning",
        last_step=int(rows.step[-1]),
        segment=int(rows.segment[-1]),
        key="still",
        confidence=0.85,
        evidence={"loss": rounded(float(rows.value[-1])), "accuracy": rounded(share), "rows": len(rows)},
        causes=["optimizer holds other parameters: no weight changes",
                "learning rate too high: outputs are saturated, and no gradient comes through",
                "one class alone: each example is given the same answer, as where the output has one unit for several "
                "classes"],
        remedies=["Compare the weights before and after an epoch; look at the gradients' norms.",
                  "Look at the outputs: are they the same for each input? Check that there is one output a class."],
    )  # fmt: skip


def with_certainty(rule: CurveRule, rows: ChannelRows, unit: str, beside: list[NDArray[Any]]) -> Finding | None:
    """Rows whose wrong answers are given with certainty, as losses and accuracies show, or whose loss is one number
    while evaluations move; None for others."""
    if stands_beside(rows.value, beside[1]):
        return one_number(rule, rows, unit, beside[1])
    if cost := cost_of_mistakes(rows.value, beside[0]):
        return each_mistake(rule, rows, unit, cost)
    count = sure_and_wrong(rows.value, *beside)
    return nothing_helps(rule, rows, unit, count) if count else None


def one_number(rule: CurveRule, rows: ChannelRows, unit: str, evaluation: NDArray[Any]) -> Finding:
    """Rows whose loss is the same, to the last digit, while evaluations above it move and do not fall."""
    return rule.finding(
        int(rows.step[0]),
        f"In each of {len(rows)} {unit} the training loss is {rows.value[-1]:.6g}, to the last digit, while "
        f"evaluations lie between {evaluation.min():.4g} and {evaluation.max():.4g}",
        severity="warning",
        last_step=int(rows.step[-1]),
        segment=int(rows.segment[-1]),
        key="number",
        confidence=0.75,
        evidence={"loss": rounded(float(rows.value[-1])), "rows": len(rows), "evaluation": rounded(evaluation[-1])},
        causes=["learning rate too high: outputs are saturated, and no gradient comes through",
                "optimizer holds other parameters: no weight changes",
                "loss not logged, or rounded: what is printed is another number"],
        remedies=["Compare the weights before and after an epoch; look at the gradients' norms.",
                  "Print the loss of single batches, as it goes into the backward pass."],
    )  # fmt: skip


def each_mistake(rule: CurveRule, rows: ChannelRows, unit: str, cost: float) -> Finding:
    """Rows whose loss is the share of wrong answers times what one costs that was given with certainty."""
    return rule.finding(
        int(rows.step[0]),
        f"In each of {len(rows)} {unit} the loss is the share of wrong answers times {cost:.4g}: outputs are exactly 0 "
        f"or 1, and no gradient comes through; it is {rows.value[-1]:.4g} at last",
        severity="warning",
        last_step=int(rows.step[-1]),
        segment=int(rows.segment[-1]),
        key="certain",
        confidence=0.85,
        evidence={"loss": rounded(float(rows.value[-1])), "cost": rounded(cost), "rows": len(rows)},
        causes=["learning rate too high: outputs are saturated",
                "wrong loss: its outputs are not probabilities, and it cuts them to 0 and 1",
                "bad initialisation: inputs or weights are far too large"],
        remedies=["Look at the outputs: are they 0 or 1, and the same for each input?",
                  "End with a sigmoid or softmax, scale the inputs, and lower the learning rate by a factor of 10."],
    )  # fmt: skip


def nothing_helps(rule: CurveRule, rows: ChannelRows, unit: str, count: int) -> Finding:
    """Rows whose loss rests far above that of a guess, with the accuracy of one."""
    return rule.finding(
        int(rows.step[0]),
        f"In each of {len(rows)} {unit} the accuracy is that of a guess among {count}, and the loss stays at "
        f"{rows.value[-1]:.4g}, {rows.value[-1] / math.log(count):.3g} times that of one",
        severity="warning",
        last_step=int(rows.step[-1]),
        segment=int(rows.segment[-1]),
        key="sure",
        confidence=0.8,
        evidence={"loss": rounded(float(rows.value[-1])), "classes": count, "rows": len(rows)},
        causes=["learning rate too high: outputs are saturated, and no gradient comes through",
                "wrong loss: it takes probabilities for logits, or has another output than it expects",
                "labels shuffled: targets have nothing to do with the inputs"],
        remedies=["Look at the outputs: are they 0 or 1, and the same for each input?",
                  "Scale the inputs, and lower the learning rate by a factor of 10."],
    )  # fmt: skip


def same_answers(rule: CurveRule, rows: ChannelRows, share: float) -> Iterator[Finding]:
    """Epochs in which the training's accuracy never changes; 0 if it does."""
    if share:
        yield rule.finding(
            int(rows.step[0]),
            f"The accuracy is {share:.6g} in each of {len(rows)} epochs, while the loss went from {rows.value[0]:.4g} "
            f"to {rows.value[-1]:.4g}: no answer has changed",
            severity="warning",
            last_step=int(rows.step[-1]),
            segment=int(rows.segment[-1]),
            key="same",
            confidence=0.75,
            evidence={"accuracy": rounded(share), "rows": len(rows)},
            causes=["one class alone: each example is given the most frequent class",
                    "learning rate too low: the weights have hardly left where they began"],
            remedies=["Count the classes that the model answers with.",
                      "Raise the learning rate; weigh rare classes more, or draw them more often."],
        )  # fmt: skip


def share_of(history: RunHistory, role: str) -> Channel | None:
    """The accuracy of training or evaluation."""
    result = history.role(role)
    if result is None and role == "accuracy":
        result = history.channel("acc") or history.channel("train_acc") or history.channel("train/acc")
    return result
