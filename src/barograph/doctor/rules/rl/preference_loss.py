"""The loss of preferences: how much β makes of a margin, and what its graph does with log probabilities and margins.

In:   β of the configuration, margins, the loss; what the watch saw in the loss's graph.
Out:  findings of `PreferenceBeta`, `PreferenceAveraged`, `MarginsJoined`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import numeric_setting, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.rl.preference import BETA, MARGINS, margins_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_EARLY = (20, 60)  # rows
_NONE = 0.05  # a margin of the first row that is 0 but for dropout
_ANY_MARGIN = "|".join(f"={name}" for name in MARGINS)


class PreferenceBeta(WatchRule):
    """β of a preference is far too large or far too small for what the policy has learnt.

    The margin is β times a difference of log probabilities, and the loss its −ln σ. With the configuration's β, a
    difference of a whole unit or more that makes a margin below 0.02 leaves the loss at ln 2, whatever is learnt, and
    with it the gradient next to nothing. A margin that began at 0 and is 5 or more in the median of rows 20 to 60, with
    a β of 1 or more, is at the end of what σ can tell: only pairs that are ordered wrongly count, and the policy stays
    where the first steps took it.

    What to do: β of 0.1; 0.01 to 0.5 are usual.
    """

    name, family, kind, severity = "preference_beta", "rl", "config", "warning"
    needs = (_ANY_MARGIN, "loss", "config")
    least = 64
    about = "β of a preference is far too large or far too small for what the policy has learnt."
    thresholds: ClassVar = {
        "rows": (128.0, "before it is too small; ours"),
        "small": (0.02, "margin; ours"),
        "unit": (1.0, "difference of log probabilities; ours"),
        "near": (0.01, "of ln 2; ours"),
        "large": (5.0, "margin; ours"),
        "beta": (1.0, "that is large; usual are 0.01 to 0.5"),
    }
    remedies = ("β of 0.1; 0.01 to 0.5 are usual",)

    def channel(self, history: RunHistory) -> Channel | None:
        margins = margins_of(history)
        return margins if numeric_setting(history, *BETA) > 0 else None

    def begin(self) -> None:
        self._values: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._values.append(value)
        count, beta = len(self._values), numeric_setting(history, *BETA)
        if count == _EARLY[1] and beta >= self.at["beta"] and abs(self._values[0]) < _NONE:
            level = float(numpy.median(self._values[_EARLY[0] :]))
            if level >= self.at["large"] and self.first(place[2]):
                yield self.finding(
                    0, f"With β = {beta:.4g} the margin is {level:.3g} after {count} rows: the loss tells pairs apart "
                    "no more.", found=place[0], segment=place[2], confidence=0.9, key="large",
                    causes=["beta too large: margins are beyond what the loss can tell"],
                    evidence={"beta": beta, "margin": rounded(level)},
                )  # fmt: skip
        if count < self.at["rows"] or count % 32:
            return
        level = float(numpy.median(self._values[-64:]))
        self._values = [self._values[0], *self._values[-int(self.at["rows"]) :]] if count > 4096 else self._values
        loss = usual(history.role("loss"), place[0] - 1, *place[1:])
        stays = abs(loss / math.log(2) - 1) <= self.at["near"]
        if stays and 0 < level <= self.at["small"] and level >= self.at["unit"] * beta and self.first(place[2]):
            yield self.finding(
                0, f"With β = {beta:.4g} the margin is {level:.3g} though log probabilities differ by "
                f"{level / beta:.3g}: the loss stays at ln 2.", found=place[0], segment=place[2], confidence=_PROOF,
                key="small", causes=["beta too small: the loss stays at ln 2, whatever is learnt"],
                evidence={"beta": beta, "margin": rounded(level)},
            )  # fmt: skip


class PreferenceAveraged(WatchRule):
    """The log probabilities of a preference's answers are averaged over their tokens, and the loss hardly leaves ln 2.

    In the graph of a logistic loss of differences each answer's log probabilities are averaged, or divided by how many
    they are, and those of a reference are subtracted: without one, as in SimPO, averages are meant. DPO's are sums: of
    answers of n tokens the margin is an nth of theirs, at the same β. The loss begins at ln 2 within 2%, as with a
    reference and without a margin of one's own, and is within a tenth of it in the median of rows 33 to 48; or the
    configuration has a β of half or less, and nothing in it speaks of an average, or of an answer's length: at such a β
    sums are meant, and `mean` is seen, not a division by what may be 1. Where it has a β of 1 or more, as is usual for
    averages, nothing is said; nor of a division where it says that nothing is averaged (`per_token: false`).

    What to do: `(log_probabilities * mask).sum(-1)`, or a β of 2 to 10 if averages are meant.
    """

    name, family, kind, severity = "preference_averaged", "rl", "rl", "warning"
    needs = ("=model/preference_averaged", "loss")
    least = 48
    about = "The log probabilities of a preference's answers are averaged over their tokens."
    thresholds: ClassVar = {
        "rows": (48.0, "ours"),
        "begins": (0.02, "of ln 2; ours"),
        "left": (0.1, "of ln 2; ours"),
        "beta": (1.0, "that is meant for averages; ours"),
        "low": (0.5, "β at most that is meant for sums; ours"),
    }
    causes = ("loss divided too often: an answer's log probabilities are averaged over its tokens, not added up",)
    remedies = ("add up the log probabilities of an answer's tokens: `(log_probabilities * mask).sum(-1)`",)

    def channel(self, history: RunHistory) -> Channel | None:
        seen = history.channel("model/preference_averaged")
        return (
            history.role("loss")
            if seen is not None and not numeric_setting(history, *BETA) >= self.at["beta"]
            else None
        )

    def begin(self) -> None:
        self._values: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if len(self._values) < self.at["rows"]:
            self._values.append(value)
        # the watch's records come behind the rows of a fast loop
        if len(self._values) < self.at["rows"] or watched(history, "preference_averaged", place) != 1:
            return
        begins = abs(self._values[0] / math.log(2) - 1)
        level = float(numpy.median(self._values[-16:]))
        stays = 0 <= 1 - level / math.log(2) <= self.at["left"]
        divided = watched(history, "preference_divided", place) == 1
        meant = not divided and self._means_sums(history)
        if divided and any(value is False and _PER_TOKEN.search(name) for name, value in history.options.found.items()):
            return  # by 1, as it seems
        if begins <= self.at["begins"] and (stays or meant) and self.first(place[2]):
            what = "are divided, as by the number of its tokens" if divided else "are averaged over its tokens"
            yield self.finding(
                0, f"The log probabilities of an answer {what}, not added up, and after {len(self._values)} rows the "
                f"loss is {level:.4g}, at first ln 2.", found=place[0], segment=place[2],
                confidence=0.8 if divided else _PROOF, evidence={"loss": rounded(level), "standing": True},
            )  # fmt: skip

    def _means_sums(self, history: RunHistory) -> bool:
        """Whether the configuration has a β as for sums, and says nothing of averages."""
        words = (f"{name}={value}".lower() for name, value in history.options.found.items() if value not in _NOTHING)
        return numeric_setting(history, *BETA) <= self.at["low"] and not any(map(_AVERAGES.search, words))


_PER_TOKEN = expression(r"(?i)per_(?:tok|word)|(?:average|avg|mean|norm)\w*_?(?:log_?p|prob|len|tok|word)|len\w*_norm")
_NOTHING = (None, False, 0, "")
_AVERAGES = expression(
    r"(?:average|avg|mean|norm)\w*_?(?:log_?p|prob|len|tok)|(?:log_?p\w*|prob\w*|len\w*|tok\w*)_(?:average|avg|mean|norm)|"
    r"per_tok|simpo|orpo|cpo|(?:dpo|loss)_norm|ln_?dpo"
)


class MarginsJoined(WatchRule):
    """The margins of a batch are added, or averaged, before the logarithm of a logistic loss.

    In the graph of the loss the logistic function is given one number, which is the sum or the mean of numbers of
    single rows: differences of what was added up over a row's tokens or dimensions, or of the one number that a layer
    gives a row. The loss of a pair is the logarithm of its own margin's logistic function. Of the sum one pair with a
    large margin settles all of them, so that the loss is 0 before the others are learnt. Log probabilities of the
    tokens of one text are added there on purpose, and are not meant.

    What to do: `-logsigmoid(margin).mean()`, not `-logsigmoid(margin.sum())`.
    """

    name, family, kind, severity = "margins_joined", "rl", "config", "warning"
    proves = "training"
    needs = ("=model/margins_joined", "loss")
    least = 8
    about = "Margins of a batch's pairs are added before the logarithm of the loss."
    thresholds: ClassVar = {"rows": (8.0, "of the loss; ours")}
    causes = ("loss summed: the margins of the batch's pairs are added within the logarithm",)
    remedies = ("take the mean behind the logarithm: `-logsigmoid(margin).mean()`",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("loss") if history.channel("model/margins_joined") is not None else None

    def begin(self) -> None:
        self._rows = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._rows += 1
        count = watched(history, "margins_joined", place)
        if self._rows < self.at["rows"] or not abs(count) >= 2 or not self.first(place[2]):
            return
        how = "added" if count > 0 else "averaged"
        yield self.finding(
            0, f"The margins of {abs(count):.0f} rows are {how} before the logarithm of the loss, which is that of "
            "one number.", found=place[0], segment=place[2], confidence=_PROOF, evidence={"standing": True},
            causes=[f"loss summed: the margins of {abs(count):.0f} pairs are {how} within the logarithm"],
        )  # fmt: skip


RULES = (PreferenceBeta, PreferenceAveraged, MarginsJoined)
