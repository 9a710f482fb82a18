"""Examples that come again beneath their noise, or their masks; places that are hidden in each step.

In:   figures of the watch.
Out:  findings of `NoisedAgain`, `PlacesHidden`, `MaskShare`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.configuration import BATCH
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import numbers_named, numeric_setting, setting
from barograph.doctor.kernel.curve import again
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_MASKED = expression(r"(?i)mlm|mask\w*_?(?:prob|ratio|rate|share|frac)|mask_?p\b|noise_?density")
NEAR = 1e-4  # of the largest mark, between two of the same batch: single precision; ours


class NoisedAgain(WatchRule):
    """A model of denoising is given the same examples again, each time with another noise; or one that fills in what is
    hidden, with other masks.

    No input comes again, since the noise is another one. But where the loss is a mean square, the watch knows its
    targets. Inputs that lie on straight lines from noise to examples, with targets that are the way along them, show
    both ends; and targets may be the examples themselves. Their sum with weights (`model/clean_mark`) is the same for
    two batches of the same examples in the same order, to one part in ten thousand. Where one token hides others, and
    these are the targets, texts are whole with the targets in their place (`model/text_mark`).

    In five looks in a row it is that of the look before: the batch stays. A warning where others came too, or where the
    configuration has a batch size, for data that fit a batch as a whole need none; else an info finding. Of three
    batches or more each of three looks has one that came before, a number of steps ago that is a multiple of one
    number, three or more, and at most sixteen times as large: each epoch has the same order, which is an info finding.

    What to do: ask the loader for a new batch in each step; shuffle anew in each epoch.
    """

    name, family, kind, severity = "noised_again", "data", "repeated_data", "warning"
    proves = "training"
    series = "model/clean_mark"
    needs = ("=model/clean_mark|=model/text_mark",)
    least = 6
    about = "The same batches come again beneath another noise, or other masks."
    thresholds: ClassVar = {
        "given": (0.5, "of the rows as they are given, that came before; ours"),
        "stays": (5.0, "looks in a row with the batch of the look before; ours"),
        "looks": (3.0, "whose batch came before; ours"),
        "steps": (3.0, "between two of the same, at least; ours"),
        "epochs": (16.0, "that a batch may have been away; ours"),
        "batches": (3.0, "that differ; ours"),
    }
    causes = ("data exhausted: the same batch comes again in the next steps",)
    remedies = ("ask the loader for a new batch in each step: `next(batches)`, not the batch that is there",)

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/text_mark"), self._own)]

    def begin(self) -> None:
        self._marks: list[tuple[int, float]] = []  # the last step of each that differs
        self._stays: list[int] = []  # the steps of looks in a row with the same
        self._again: list[tuple[int, int]] = []  # looks whose batch came before, and how many steps
        self._last = math.nan
        self._told: Finding | None = None

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if not math.isfinite(value) or watched(history, "rows_again", place) > self.at["given"]:
            return  # what the model is given comes again as it was
        near = NEAR * max([abs(value), *(abs(mark) for _, mark in self._marks)])
        stays, self._last = abs(value - self._last) <= near, value
        self._stays = [*self._stays, place[0]] if stays else [place[0]]
        before = next((step for step, mark in self._marks if abs(mark - value) <= near), None)
        self._marks = [(step, mark) for step, mark in self._marks if abs(mark - value) > near] + [(place[0], value)]
        if len(self._stays) > self.at["stays"] or self._told is not None:
            yield from self._one(history, place)
        if before is not None and not stays:
            yield from self._in_order(before, place)

    def _one(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        """The batch stays, or did so."""
        names = "full_batch", "fullbatch", "use_full_batch", "overfit_batches", "overfit_batch"
        meant = setting(history, *names) not in (None, False, 0)
        sure = not meant and (len(self._marks) > 1 or numeric_setting(history, *BATCH) > 0)
        if self.first("stays", place[2]):
            self._told = self.finding(
                self._stays[0], f"The examples of step {self._stays[0]} are those of the {len(self._stays) - 1} looks "
                "behind it, with other noise or masks.", key="stays", found=place[0], segment=place[2],
                severity="warning" if sure else "info", confidence=0.95 if sure else 0.5,
                evidence={"looks": len(self._stays)},
            )  # fmt: skip
            yield again(self._told)
        elif self._told is not None and self._told.severity == "info" and sure:  # others came
            self._told.severity, self._told.confidence = "warning", 0.95
            yield again(self._told)

    def _in_order(self, before: int, place: Place) -> Iterator[Finding]:
        """before: the step at which the batch came, with others in between."""
        self._again.append((place[0], place[0] - before))
        period = math.gcd(*(after for _, after in self._again))
        longest = max(after for _, after in self._again)
        periodic = period >= self.at["steps"] and longest <= self.at["epochs"] * period
        several = len(self._marks) >= self.at["batches"] and len(self._again) >= self.at["looks"]
        if periodic and several and self.first("order", place[2]):
            yield self.finding(
                self._again[0][0], f"In {len(self._again)} looks the examples of a batch were those of {period} steps "
                "before, or of a multiple of these, with other noise or masks: each epoch has the same batches, in "
                "the same order.", key="order", found=place[0], segment=place[2], severity="info", confidence=0.6,
                evidence={"steps": period}, causes=["same order in each epoch: data are not shuffled anew"],
                remedies=["give the loader `shuffle=True`, and set no seed within an epoch"],
            )  # fmt: skip


class PlacesHidden(WatchRule):
    """The same places of each text are hidden in each step: what is to be masked was drawn once.

    Where one token hides others, and these are the targets, the watch knows which of the first 52 places of a batch
    have a hidden one in any row (`model/hidden_places`). In twelve looks, whose texts are others (`model/text_mark`),
    these are at most six tenths of the places all together, in three rows or more, and at most half as many again as in
    one look: masks that are drawn anew hide other places in other rows and steps. Where the configuration names no
    share of what is masked, the places may be meant, as blanks of a template, and it is an info finding.

    What to do: draw the mask for each batch, and each of its rows.
    """

    name, family, kind, severity = "places_hidden", "data", "data", "warning"
    series = "model/hidden_places"
    needs = ("=model/hidden_places", "=model/hidden_share")
    least = 12
    about = "The same places of each text are hidden in each step."
    thresholds: ClassVar = {
        "looks": (12.0, "of other texts; ours"),
        "share": (0.6, "of the places, that are hidden in some row; ours"),
        "runs": (3.0, "rows of such places; ours"),
        "more": (1.5, "times those of one look, those of all; ours"),
    }
    causes = ("mask drawn once: the same places are hidden in all rows and steps",)
    remedies = ("draw what is hidden in each step, for each row: `torch.rand(tokens.shape) < share`",)

    def begin(self) -> None:
        self._hidden, self._places = 0, 0.0  # in any look, as bits; of a text
        self._texts: set[float] = set()
        self._began = -1

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        share, text = watched(history, "hidden_share", place), watched(history, "text_mark", place)
        if not (math.isfinite(value) and share > 0):
            return
        here = int(value).bit_count()
        self._began = place[0] if self._began < 0 else self._began
        self._hidden |= int(value)
        self._places = max(self._places, here / share)
        self._texts.add(text)
        bits = self._hidden.bit_count()
        runs = (self._hidden & ~(self._hidden << 1)).bit_count()
        few = bits <= min(self.at["share"] * self._places, self.at["more"] * here) and runs >= self.at["runs"]
        if few and len(self._texts) >= self.at["looks"] and self.first(place[2]):
            named = any(_MASKED.search(name) and value for name, value in history.options.found.items())
            yield self.finding(
                self._began, f"In looks at {len(self._texts)} batches {bits} of {self._places:.0f} places are hidden, "
                "the others in no row of any.", found=place[0], segment=place[2],
                severity="warning" if named else "info", confidence=0.95 if named else 0.6,
                evidence={"places": bits, "standing": True},
            )  # fmt: skip


_SHARE = expression(
    r"mlm_?(?:p|prob\w*|ratio|rate|share|frac\w*)|mask(?:ing|ed)?_(?:token_)?(?:p|prob\w*|ratio|rate|share|frac\w*)"
)
_SPANS = expression(r"(?i)span|mask\w*_(?:length|schedule)|diffusion|arm_to|noise_schedule")  # shares of another kind


class MaskShare(WatchRule):
    """Far more of each text is masked than the configuration says.

    The configuration has one share of what is masked (`mlm_probability`, `mask_ratio`), of three fifths or less. Places
    with a target are twice as many and a tenth of all more in twelve looks in a row, none of them holds what it is to
    tell, and targets are not the tokens behind. Where options speak of spans, or of shares that change, nothing is
    said.

    What to do: compare the chance that a place is hidden with the option: `torch.rand(tokens.shape) < share`.
    """

    name, family, kind, severity = "mask_share", "data", "config", "warning"
    series = "model/targets"
    needs = ("=model/targets", "=model/places", "=model/copied_targets", "config")
    least = 12
    about = "Far more of each text is masked than the configuration says."
    thresholds: ClassVar = {
        "looks": (12.0, "in a row; ours"),
        "most": (0.6, "of a text, that is configured; ours"),
        "times": (2.0, "as many; ours"),
        "more": (0.1, "of all places, beyond that; ours"),
    }
    causes = ("mask of the wrong share: far more is hidden than configured, as where the comparison is turned round",)
    remedies = ("`torch.rand(tokens.shape) < share` hides that share; print how many places have a label",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        shares = {number for _, number in numbers_named(history, _SHARE)}
        places, shift, copied = (watched(history, name, place) for name in ("places", "target_shift", "copied_targets"))
        share = shares.pop() if len(shares) == 1 else math.nan
        told = 0 < share <= self.at["most"] and value >= (self.at["times"] * share + self.at["more"]) * places > 0
        other = shift == 1 or copied != 0 or any(_SPANS.search(name) for name in history.options.found)
        if self.lasts(told and not other, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"The configuration masks {share:.2g} of a text, and {value:.0f} of {places:.0f} "
                "places have a target.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"share": share, "standing": True},
            )  # fmt: skip


RULES = (NoisedAgain, PlacesHidden, MaskShare)
