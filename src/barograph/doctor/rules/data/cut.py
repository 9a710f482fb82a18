"""Texts that are cut on one side alone, that of the training or that of evaluations, and padding that is in front of
them on one side.

In:   figures of the watch: how long texts are on both sides, and where their padding is.
Out:  findings of `TextsCut`, `PaddingSide`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.data.scales import elsewhere

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_SIZES = expression(
    r"(?<![a-z])(?:len|length|long|longest|max|cut|trunc|truncate|block|seq|ctx|context|width|wide|tokens|words|places)"
)
_OF_EVALUATION = expression(
    r"(?:eval(?:uation)?|val|valid(?:ation)?|test|held|ood)_(?!\w*(?:batch|step|every|rows))(\w+)"
)
_BEYOND = expression(r"extrapol|generali[sz]|longer")  # evaluations of longer texts on purpose
_OFF = 2  # tokens, as those of a beginning and an end


class TextsCut(WatchRule):
    """Texts of the training are cut behind a number of tokens, and those of evaluations are not; or the contrary.

    Of one side's texts, of which some have padding, an eighth or more are as long as the longest one, and twice as many
    as are a token shorter: they end where they were cut. A tenth of the other side's are longer. So it is in two
    evaluations in a row, behind 256 texts of the training or more, and with 32 of the evaluation. Where an option of
    sizes has that number, to two tokens, it is an info finding. Where all rows of the training have one length, the
    configuration has three options or more, and none that says that evaluations are of more (`digits: 5`,
    `eval_digits: 10`); and where they have no padding behind it either, the evaluation's loss has to be 1.2 times the
    training's. Of a curriculum, and of
    evaluations that are of another kind by the configuration, nothing is said.

    What to do: look at `max_length` and `truncation` of both sides; cut prompts, and not the answers behind them.
    """

    name, family, kind, severity = "texts_cut", "data", "data", "warning"
    proves = "training"
    series = "model/text_longest"
    needs = ("=model/text_longest", "=model/eval_text_longest")
    least = 2
    about = "Texts of the training are cut, and those of evaluations are not, or the contrary."
    thresholds: ClassVar = {
        "full": (0.125, "of a side's texts, as long as its longest; ours"),
        "times": (2.0, "as many as are a token shorter; ours"),
        "longer": (0.1, "of the other side's texts; ours"),
        "rows": (256.0, "texts of the training; ours"),
        "some": (32.0, "texts of an evaluation; ours"),
        "worse": (1.2, "times the training's loss, the evaluation's, of rows of one length; ours"),
        "options": (3.0, "of a configuration, for the same; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("texts truncated: those of one side are cut where those of the other go on",)
    remedies = ("prepare both sides with one `max_length`, long enough for whole answers, and cut prompts first",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("rows", "longest", "full", "beside", "longer")
        ours, theirs = ([watched(history, f"{side}text_{name}", place) for name in names] for side in ("", "eval_"))
        enough = ours[0] >= self.at["rows"] and theirs[0] >= self.at["some"]
        other = is_curriculum(history) or elsewhere(history) or history.role("reward") is not None
        cut = next((one for one, whole in ((ours, theirs), (theirs, ours)) if self._is_cut(one, whole)), None)
        enough = enough and (cut is not ours or cut[2] < 1 or self._is_told(history, place))
        if not self.lasts(enough and cut is not None and not other, place, self.at["evaluations"]) or cut is None:
            return
        (side, rest), beyond = (("the training", "evaluations"), theirs[4]) if cut is ours else (
            ("evaluations", "the training"), ours[4])  # fmt: skip
        meant = any(
            _SIZES.search(name.lower()) and isinstance(said, int) and abs(said - cut[1]) <= _OFF
            for name, said in history.options.found.items()
        )
        yield self.finding(
            0 if cut is ours else self._row[0][0], f"{100 * cut[2]:.0f}% of the texts of {side} have {cut[1]:.0f} "
            f"tokens, and none has more; of those of {rest} {100 * beyond:.0f}% are longer.", found=place[0],
            segment=place[2], severity="info" if meant else self.severity, confidence=0.4 if meant else 0.9,
            evidence={"longest": cut[1], "full": rounded(cut[2]), "longer": rounded(beyond), "standing": True},
        )  # fmt: skip

    def _is_told(self, history: RunHistory, place: Place) -> bool:
        """Of rows of one length, in a run of which settings are known: whether they are padded to the length of longer
        ones, or evaluations are worse than the training."""
        if len(history.options.found) < self.at["options"] or _is_beyond(history.options.found):
            return False
        here = place[0] - 1, place[1], place[2]
        trained, evaluated = usual(history.role("loss"), *here, 8), known(history.role("eval_loss"), *here)
        return watched(history, "eval_padding_share", place) > 0 or evaluated >= self.at["worse"] * trained > 0

    def _is_cut(self, side: list[float], other: list[float]) -> bool:
        _, longest, full, beside, _ = side
        ends = full >= self.at["full"] and full >= self.at["times"] * beside
        return ends and other[1] > longest and other[4] >= self.at["longer"]


def _is_beyond(options: Mapping[str, object]) -> bool:
    """Whether evaluations are of larger texts on purpose, as by `digits: 5` and `eval_digits: 10`."""
    sizes = {name.lower(): said for name, said in options.items() if isinstance(said, int)}
    for name, said in sizes.items():
        of = _OF_EVALUATION.fullmatch(name)
        ours = (sizes.get(one) for one in (of[1], f"train_{of[1]}")) if of else ()
        if any(one is not None and said > one for one in ours):
            return True
    return any(_BEYOND.search(name.lower()) for name in options)


class PaddingSide(WatchRule):
    """Texts of evaluations have their padding in front, and those of the training behind; or the contrary.

    Which token is padding is known from the training's texts. Half of one side's rows or more, of 32 at least, begin
    with two of these or more, and hardly any of the other side's; no mask that the model is given says where they are,
    and neither do lengths. So it is in two evaluations in a row. Texts then stand at other places than those that were
    learnt, and what comes first is padding. Where the model's attention reads padding (`model/attention/seen_padding`)
    it is a warning, else an info finding: a layer that goes on from place to place may be none the worse for it.

    What to do: one `padding_side` for both; or a mask, and positions that begin at the first word.
    """

    name, family, kind, severity = "padding_side", "data", "data", "warning"
    proves = "evaluation"
    series = "model/eval_text_before"
    needs = ("=model/eval_text_before", "=model/text_before", "loss", "eval_loss")
    least = 2
    about = "Padding is in front of the texts of evaluations, and behind those of the training."
    thresholds: ClassVar = {
        "most": (0.5, "of one side's rows; ours"),
        "few": (0.01, "of the other's; ours"),
        "some": (32.0, "rows of each; ours"),
        "worse": (1.2, "times the training's loss, the evaluation's; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("padding side differs: texts are padded in front on one side, and behind on the other",)
    remedies = ("set one `padding_side` for both", "or give a mask, and positions that begin at the first word")

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ours, rows, others = (watched(history, name, place) for name in ("text_before", "text_rows", "eval_text_rows"))
        differs = max(value, ours) >= self.at["most"] and min(value, ours) <= self.at["few"]
        differs = differs and min(rows, others) >= self.at["some"]
        here = place[0] - 1, place[1], place[2]
        trained, evaluated = usual(history.role("loss"), *here, 8), known(history.role("eval_loss"), *here)
        if self.lasts(differs and evaluated >= self.at["worse"] * trained > 0, place, self.at["evaluations"]):
            where = ("evaluations", "the training") if value > ours else ("the training", "evaluations")
            yield self.finding(
                self._row[0][0], f"{100 * max(value, ours):.0f}% of the texts of {where[0]} have padding in front, "
                f"those of {where[1]} have it behind, and nothing that the model is given says where it is. The "
                f"evaluation's loss is {evaluated:.4g}, the training's {trained:.4g}.", found=place[0],
                segment=place[2], confidence=0.95, evidence={"in front": rounded(value), "standing": True},
            )  # fmt: skip


RULES = (TextsCut, PaddingSide)
