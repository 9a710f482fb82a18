"""What is frozen, or no longer frozen, while a training goes on.

In:   how much of a model is trained in each step, and what the configuration says of it.
Out:  findings of `FrozenLater`, `UnfreezingMissed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import known, numeric_setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.activations.meant import thaws
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class FrozenLater(WatchRule):
    """Parameters that were trained are frozen from a step on, while the rest of the model trains.

    The watch counts what has `requires_grad`. It fell once in a launch, behind the twentieth step, by a tenth of all
    trained elements or more, and is the same thirty rows of the loss later: players that freeze each other in turns
    change it again and again. A stage of a training that freezes a part on purpose does this, too.

    What to do: look at who sets `requires_grad` from that step on.
    """

    name, family, kind, severity = "frozen_later", "model", "frozen", "warning"
    needs = ("=model/trained_elements", "loss")
    least = 50
    about = "Parameters that were trained are frozen from a step on."
    thresholds: ClassVar = {
        "steps": (20.0, "before it; ours"),
        "share": (0.1, "of the elements that were trained; ours"),
        "rows": (30.0, "of the loss behind it; ours"),
    }
    causes = ("layer frozen: `requires_grad` was set to False while it was trained",)
    remedies = ("look at who sets `requires_grad` from that step on: a copy, an evaluation, a stage that begins",)

    def channel(self, history: RunHistory) -> Channel | None:
        trained = history.channel("model/trained_elements")
        return history.role("loss") if trained is not None and trained.end > 1 else None

    def begin(self) -> None:
        self._rows = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        trained = history.channel("model/trained_elements")
        assert trained is not None
        rows = trained.rows()
        here = (rows.segment == place[2]) & (rows.time <= place[1]) & (rows.step < place[0])
        steps, counts = rows.step[here], rows.value[here]
        if len(counts) != 2 or steps[1] - steps[0] < self.at["steps"] or not counts[0]:
            return
        self._rows += 1
        gone = 1 - float(counts[1]) / float(counts[0])
        if self._rows >= self.at["rows"] and gone >= self.at["share"] and self.first(place[2]):
            yield self.finding(
                int(steps[1]), f"{100 * gone:.0f}% of what was trained is frozen since step {steps[1]}.",
                found=place[0], segment=place[2], confidence=0.8, evidence={"share": rounded(gone)},
            )  # fmt: skip


class UnfreezingMissed(Rule):
    """The configuration says when frozen parameters are to be trained, and that time passed without it.

    A name such as `unfreeze_epoch`, `unfreeze_at_step`, `freeze_epochs` or `freeze_until_step` has one number above 0.
    At the end of a training of one launch, which began before that time, a tenth of all elements or more is frozen as
    in the first step: as many parameters, and never others. The time passed by twenty steps of the loss, or by one
    whole epoch and twenty steps; where the name doesn't say which it is, by both, or by steps from the thirtieth on
    where no epochs are logged and the configuration names fewer.

    What to do: see whether the branch that unfreezes is ever taken: what it compares, and from where it is called.
    """

    name, family, kind, severity = "unfreezing_missed", "model", "frozen", "warning"
    needs = ("=model/frozen_parameters", "loss")
    about = "What is to be unfrozen, by the configuration, never was."
    thresholds: ClassVar = {
        "share": (0.1, "of all elements that are frozen; ours"),
        "steps": (20.0, "behind the time; ours"),
        "bare": (30.0, "from which on a number is hardly one of epochs; ours"),
    }
    causes = ("layer frozen: the configured unfreezing never happens",)
    remedies = ("see whether the branch that sets `requires_grad` is reached, and with which epoch or step",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        frozen, loss = history.channel("model/frozen_parameters"), history.role("loss")
        if not history.facts.get("finished") or frozen is None or loss is None or not frozen.end or not loss.end:
            return
        counts, seen = frozen.rows(), loss.rows()
        share = known(history.channel("model/frozen_share"), int(seen.step[-1]), int(seen.time[-1]), 1)
        alone = len({*counts.segment, *seen.segment}) == 1 and len(set(counts.value)) == 1
        if not alone or not share >= self.at["share"] or self._changed(history):
            return
        for name, value in history.options.found.items():
            plain = name.rpartition(".")[2].lower()
            if not thaws(plain) or isinstance(value, bool):
                continue
            passed = self._passed(history, plain, value) if isinstance(value, (int, float)) and value > 0 else None
            if passed is not None and self.first():
                yield self.finding(
                    passed, f"`{name}` is {value:g}, and {100 * share:.0f}% of all elements are frozen to the end.",
                    found=int(seen.step[-1]), segment=int(seen.segment[-1]), confidence=0.9,
                    evidence={"frozen_share": rounded(share), "standing": True},
                )  # fmt: skip

    def _changed(self, history: RunHistory) -> bool:
        """Whether other parameters were trained at one time than at another."""
        trained = history.channel("model/trained_elements")
        return trained is not None and len(set(trained.rows().value)) > 1

    def _passed(self, history: RunHistory, name: str, value: float) -> int | None:
        """The first step behind the time, if it is far enough behind."""
        loss = history.role("loss")
        assert loss is not None
        steps = loss.rows().step
        epochs = history.role("epoch") or history.channel("data/epoch")
        if not re.search(r"step|iter", name) and epochs is not None and epochs.end:
            rows = epochs.rows()
            behind = rows.step[rows.value >= value + 1]
            early = rows.value[0] < value
            return int(behind[0]) if early and len(behind) and behind[-1] - behind[0] >= self.at["steps"] else None
        most = numeric_setting(history, "epochs", "num_epochs", "max_epochs", "n_epochs", "num_train_epochs")
        bare = "epoch" not in name and value >= self.at["bare"] and not value <= most
        if not re.search(r"step|iter", name) and not bare:
            return None
        return int(value) if steps[0] < value <= steps[-1] - self.at["steps"] else None


RULES = (FrozenLater, UnfreezingMissed)
