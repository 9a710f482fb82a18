"""Texts: masked language models that are asked what they are given, texts that are read across, ignored tokens.

In:   figures of the watch, which compares the targets of sequences with the tokens that the model is given.
Out:  findings of `UnmaskedTargets`, `TextAcross`, `IgnoredToken`, `EndUntold`, `AnswersCut`,
      `AnswersIgnored`, `PaddedApart`, `TagsElsewhere`, `PromptsCounted`, `StartTwice`,
      `MaskedBeside`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import came_by, setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, of_look, watched
from barograph.doctor.rules.data.prompts import answers_alone
from barograph.doctor.rules.rl.preference import MARGIN, margins_of, trained_like

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_ENDS = ("eos_token_id", "eos_id", "eos_token", "end_token_id", "end_token", "eos")


class UnmaskedTargets(WatchRule):
    """A masked language model's loss counts the tokens that the model is given, too.

    In three looks in a row one token, which is never a target, replaces others in the inputs: they are masked. Half
    of all targets or more are nevertheless the inputs of their own places, padding aside. The loss is mostly that of
    copying, and hides what is to be learnt. Where rows are masked to very different degrees, up to more than 0.6 of a
    row, as in discrete diffusion, all places may count on purpose, and there is no finding; nor where the model is also
    given the text before each target, as the decoder is that writes a damaged text anew.

    What to do: labels are −100 where nothing was masked.
    """

    name, family, kind, severity = "unmasked_targets", "data", "data", "warning"
    series = "model/copied_targets"
    needs = ("=model/copied_targets", "=model/masked_targets")
    least = 3
    about = "A masked language model's loss counts the tokens that it is given, too."
    thresholds: ClassVar = {
        "copies": (0.5, "of the targets; ours"),
        "masked": (0.02, "of them, at least; ours"),
        "most": (0.6, "of a row's; ours"),
        "looks": (3.0, "in a row; ours"),
    }
    causes = ("labels not masked: the loss counts tokens that the model is given",)
    remedies = ("set labels to -100 where nothing was masked: `labels[~masked] = -100`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        masked, most = (watched(history, f"masked_{name}", place) for name in ("targets", "most"))
        holds = value >= self.at["copies"] and masked >= self.at["masked"] and most <= self.at["most"]
        if self.lasts(holds, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"{100 * masked:.0f}% of the counted places are masked in the inputs, and "
                f"{100 * value:.0f}% have as target the very token that the model is given there.",
                found=place[0], segment=place[2], confidence=0.85,
                evidence={"copies": rounded(value), "masked": rounded(masked), "standing": True},
            )  # fmt: skip


class TextAcross(WatchRule):
    """A text is read across its lines: what follows a token in the text is in the next row of the batch.

    Of a language model the targets show along which dimension it reads. Over the looks so far, what a token says of the
    next one along the text is a tenth, or less, of what it says of its neighbour in the other dimension; and there it
    says more of the nearest than of one half a batch away, by twenty standard deviations, and a hundredth of a nat.
    Rows of a batch that are alike say as much of each other, however far they are apart; where neighbouring rows have
    the same tokens more often than by chance, as in a sorted batch, nothing is said.

    What to do: `text.view(rows, -1)` has a piece of the text in each row; `.t()` puts places first.
    """

    name, family, kind, severity = "text_across", "data", "data", "critical"
    series = "model/text_across"
    needs = ("=model/text_across", "=model/text_along")
    about = "A text is read across its lines."
    thresholds: ClassVar = {
        "deviations": (20.0, "of what pairs by chance say; ours"),
        "least": (0.01, "nats; ours"),
        "along": (0.1, "of what is said across; ours"),
        "looks": (3.0, "in a row; ours"),
    }
    causes = ("batch and time exchanged: the text goes on in the next row, and the model reads along the other side",)
    remedies = (
        "`text.view(rows, -1).t()` for places before rows, and without `.t()` for rows before places; print the tokens "
        "of one row",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        along, pairs = (watched(history, f"text_{name}", place) for name in ("along", "pairs"))
        least = max(self.at["least"], self.at["deviations"] * _DEVIATION / max(1.0, pairs))
        if self.lasts(value >= least and along <= self.at["along"] * value, place, self.at["looks"]):
            yield self.finding(
                0, f"Of {pairs:.0f} pairs, a token says {max(0.0, along):.3g} nats of the token that is to follow it, "
                f"and {value:.3g} of its neighbour in the next row of the batch: the text goes on there.",
                found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"along": rounded(along), "across": rounded(value), "standing": True},
            )  # fmt: skip


_DEVIATION = 15 / math.sqrt(2)  # times 1 / pairs: of what 16 classes say of each other by chance


class IgnoredToken(WatchRule):
    """A token of the text is never a target, since its number is that of targets that are ignored.

    Of a language model, in three looks in a row, the places without a target are those before one token, and all of
    them; that token stands within the text, between two others, three times or more. Where the graph of the loss has
    that number as `ignore_index`, it is a warning; else (labels that were set to −100, as where the end of a text is
    also the padding) an info finding: a model that never learns to end a text goes on. A warning, too, where two
    evaluations in a row ask for it: all their places have targets (`model/eval_asked_all`), or those without are before
    another token; but not for the one that all texts of an evaluation begin with and that stands nowhere else
    (`model/eval_opens_with`), as where the training's alone are packed: nothing can ask for that.

    What to do: `ignore_index=-100`, and labels of −100 at the padding alone, by the mask of the padding.
    """

    name, family, kind, severity = "ignored_token", "data", "data", "warning"
    series = "model/ignored_inside"
    needs = ("=model/ignored_inside", "=model/ignored_token")
    least = 3
    about = "A token of the text is never a target."
    thresholds: ClassVar = {
        "inside": (3.0, "times, of the rows that are looked at; ours"),
        "looks": (3.0, "in a row; ours"),
        "evaluations": (2.0, "in a row, that ask for it; ours"),
    }
    remedies = ("keep `ignore_index=-100`, and set labels to -100 by the mask of the padding, not by the token",)

    def begin(self) -> None:
        self._token = math.nan
        self._asked: list[int] = []  # steps of evaluations in a row that have it as a target

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/eval_target_shift"), self._of_evaluation)]

    def _of_evaluation(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("asked_all", "ignored_token", "opens_with")
        every, theirs, opens = (of_look(history, f"eval_{name}", place) for name in names)
        never = place[2] == self._segment and len(self._row) >= self.at["looks"] and opens != self._token
        if not (never and value == 1 and (every == 1 or (theirs >= 0 and theirs != self._token))):
            self._asked = []
            return
        self._asked.append(place[0])
        if len(self._asked) >= self.at["evaluations"] and self.first(place[2], "asked"):
            yield self.finding(
                self._asked[0], f"Token {self._token:.0f} is never a target of the training, and evaluations ask for "
                "it.", key="asked", found=place[0], segment=place[2], confidence=0.9,
                evidence={"token": self._token}, causes=["class missing: labels of the training leave out a token of "
                                                         "the text, as one that is taken for padding"],
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        token, index = (watched(history, name, place) for name in ("ignored_token", "ignore_index"))
        if token != self._token:
            self._row, self._token = [], token
        if self.lasts(value >= self.at["inside"], place, self.at["looks"]):
            given = index == token
            yield self.finding(
                0, f"Token {token:.0f} stands within the text, and is never a target"
                + (": it is the `ignore_index` of the loss." if given else "."),
                found=place[0], segment=place[2], confidence=0.9 if given else 0.6,
                severity="warning" if given else "info", evidence={"token": token, "standing": True},
                causes=["class missing: the number of a token is also the target that is ignored" if given else
                        "padding is also the end of a text: a model that never has it as target does not learn to end"],
            )  # fmt: skip


_OTHERS = "Texts end with different tokens, and none of them has a target behind its last one"
_IGNORED = "Each text ends with token {:.0f}, which is never a target"
_NEVER = ": the model never learns where a text ends."


class EndUntold(WatchRule):
    """The end of a text is never a target, so that a model does not learn to end.

    The targets are one place ahead of the inputs, and rows are padded. In three looks in a row, no row has a target at
    its last token before the padding, though that token is a target itself, and at most half of these rows end with
    one and the same token: no token of theirs says that the text is over. So it is where the padding is the token of
    the end and all of it is ignored, and where no end is added to the texts. It is a warning where there is such a
    token: the logged configuration has one (`eos_token_id`), the model's own has the one that the padding is made of,
    or a mask beside the texts takes the first token of each row's padding for text (`model/filler_kept`). Else texts
    may have no end on purpose, as where nothing is ever written to one: an info finding. Where all rows end with one
    token (`model/end_ignored`) that is never a target, though those in front of it are, it is a warning, too: these are
    different tokens, or one that stands within texts as often, with a target behind it.

    Where half of the rows end with tokens that end others, too, and stand nowhere before an end, these are ends; and
    where all rows have as many targets, as answers of one length, their number is. Rows that are cut off have no
    padding, and don't count. Where every token is a target, they may be pieces of a longer text, which end anywhere: an
    info finding. Where answers are compared with one another (a preference, or two passes for one backward pass), the
    policy has learnt to end before: an info finding.

    What to do: add the token of the end, and give it as target once; labels of −100 at the padding behind it, by the
    mask of the padding and not by the token.
    """

    name, family, kind, severity = "end_untold", "data", "data", "warning"
    series = "model/end_untold"
    needs = ("=model/end_untold", "=model/target_shift")
    least = 3
    about = "The end of a text is never a target."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = ("class missing: the end of a text is never a target, as where padding is the end token and is ignored",)
    remedies = (
        "end each text with the token of the end, and keep it as a target: labels are -100 by the mask of the padding, "
        "not where they are the padding's token",
        "padding that is a token of its own: `tokenizer.pad_token` other than `tokenizer.eos_token`",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        holds = value == 1 and watched(history, "target_shift", place) == 1
        if self.lasts(holds, place, self.at["looks"]):
            # pieces of a text end anywhere
            compares = _compares(history, place) or watched(history, "all_targets", place) == 1
            padding, end = (watched(history, f"{name}_token", place) for name in ("padding", "end"))
            ignored = watched(history, "end_ignored", place)
            kept = watched(history, "filler_kept", place) == 1  # by the mask it is text
            known = isinstance(setting(history, *_ENDS), int) or padding == end or ignored >= 0 or kept
            proven = known and not compares
            what = _IGNORED.format(ignored) if ignored >= 0 else _OTHERS
            yield self.finding(
                self._row[0][0], what + _NEVER, found=place[0], segment=place[2],
                severity="warning" if proven else "info", confidence=0.9 if proven else 0.5,
                evidence={"standing": proven},
            )  # fmt: skip


def _compares(history: RunHistory, place: Place) -> bool:
    """Whether the training compares answers, as of preferences: rows may be given that are not in the loss."""
    several = watched(history, "passes", place) >= 2 * watched(history, "backwards", place)
    margins = margins_of(history) is not None or any(came_by(one, place[1]) for one in trained_like(history, MARGIN))
    return several or margins or watched(history, "loss_ranks", place) >= 0


class AnswersCut(WatchRule):
    """Rows are cut off before their answer begins: they have no target at all.

    Targets begin behind a prompt, and last to the end of a row or to its padding. In three looks in a row, a quarter
    of the rows or more have none, and no padding either: they end within the prompt. A batch of such rows alone has
    a loss of 0 / 0. Where a reward is logged, or answers are compared, rows without a gradient are those of which all
    are worth the same, or that were not chosen: nothing is said.

    What to do: a greater length; cut prompts from the left; leave out rows without a target.
    """

    name, family, kind, severity = "answers_cut", "data", "data", "warning"
    series = "model/rows_cut"
    needs = ("=model/rows_cut",)
    least = 3
    about = "Rows are cut off before their answer begins."
    thresholds: ClassVar = {"share": (0.25, "of the rows; ours"), "looks": (3.0, "in a row; ours")}
    causes = ("sequences truncated: the greatest length ends rows before their targets begin, loss masked out",)
    remedies = (
        "raise the greatest length (`max_length`, `max_seq_length`), or leave rows without a target out",
        "cut long prompts from the left: `truncation_side='left'`",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        judged = history.role("reward") is not None or _compares(history, place)
        if self.lasts(value >= self.at["share"] and not judged, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"{100 * value:.0f}% of the rows have no target and no padding: they are cut off "
                "within the prompt.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"share": rounded(value), "standing": True},
            )  # fmt: skip


class AnswersIgnored(WatchRule):
    """The beginnings of texts are targets, and their ends are not.

    The targets are one place ahead of the inputs, and rows are padded. In three looks in a row each row has targets
    from its first place on, and none from some place to its end, before the padding: a tenth or more of all places of
    the texts. A mask of prompts and answers that is inverted gives that: the model learns to say the prompts.

    What to do: labels of −100 in the prompt, `labels[:, :prompt] = -100`, and the tokens themselves in the answer.
    """

    name, family, kind, severity = "answers_ignored", "data", "data", "warning"
    series = "model/late_untold"
    needs = ("=model/late_untold", "=model/target_shift")
    least = 3
    about = "The beginnings of texts are targets, and their ends are not."
    thresholds: ClassVar = {"share": (0.1, "of the places of texts; ours"), "looks": (3.0, "in a row; ours")}
    causes = ("labels masked wrongly: prompts count in the loss, and answers are ignored",)
    remedies = ("set labels to -100 in the prompt and in the padding, and nowhere else: is the mask inverted?",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        holds = value >= self.at["share"] and watched(history, "target_shift", place) == 1
        if self.lasts(holds, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"Each row has targets from its beginning on, and {100 * value:.0f}% of the places of "
                "texts, at their ends, have none.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"share": rounded(value), "standing": True},
            )  # fmt: skip


class PaddedApart(WatchRule):
    """Inputs are padded at one side, and their targets at the other.

    In three looks in a row the targets of each row are the tokens behind its first one, in their order and without a
    gap, but not where these stand: the text begins behind its padding, and its targets with the row, or the other way
    round. In eight rows or more they stand apart, by different numbers of places. A model of what comes next is asked
    for another token than that in all short rows, and none of its losses shows which. Where two texts are given, as to
    a decoder that is given a source too, nothing is said.

    What to do: pad both at the same side, or shift and pad them as one: `rows[:, :-1]` and `rows[:, 1:]`.
    """

    name, family, kind, severity = "padded_apart", "data", "data", "warning"
    proves = "training"
    series = "model/padded_apart"
    needs = ("=model/padded_apart",)
    least = 3
    about = "Inputs are padded at one side, and their targets at the other."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = ("labels shifted: inputs and targets are padded at different sides, so that they are not aligned",)
    remedies = ("pad once, then shift: inputs are `rows[:, :-1]` and targets `rows[:, 1:]` of the same padded rows",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value == 1, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "The targets of each row are its next tokens, and stand at other places than these: "
                "inputs and targets are padded at different sides.", found=place[0], segment=place[2],
                confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


class TagsElsewhere(WatchRule):
    """The tags of a text stop before the text does: there is one for each word, and words are cut into pieces.

    The targets are other things than tokens. In three looks in a row each row has targets from its first token on,
    without a gap; behind the last one some rows have two tokens or more without a target, and rows differ in how many.
    So it is where the tags of the words are laid beside pieces of words, one after another: behind the first word of
    two pieces each tag stands beside another word. Tags beside their words have gaps, or go on to the text's end.

    Or all rows begin with a mark, which has a target, and their last word has none (`model/mark_told`), while places
    read later ones: each tag is one place early, for the tokenizer puts a mark in front that the list of tags has not.
    A model that reads from left to right says what comes next, in whatever vocabulary.

    What to do: repeat a word's tag, or give pieces behind the first one -100, by the tokenizer's `word_ids()`.
    """

    name, family, kind, severity = "tags_elsewhere", "data", "data", "warning"
    series = "model/tail_untold"
    needs = ("=model/tail_untold|=model/mark_told", "=model/target_shift")
    least = 3
    about = "The tags of a text stop before the text does."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = ("labels not aligned with tokens: there is a tag for each word, and words are cut into pieces",)
    remedies = (
        "align tags by `word_ids()`: a word's tag at its first piece, -100 at the others and at special tokens",
    )

    def reset(self) -> None:
        super().reset()
        self._marks: list[Place] = []

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/mark_told"), self._of_marks)]

    def _of_marks(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        early = value == 1 and watched(history, "target_shift", place) == -1
        self._marks = [*(one for one in self._marks if one[2] == place[2]), place] if early else []
        reads_on = watched(history, "next_reached", place) > 0
        if len(self._marks) >= self.at["looks"] and reads_on and self.first(place[2]):
            yield self.finding(
                self._marks[0][0], "All rows begin with one token, which has a target, and the last one of their text "
                "has none: each tag stands one place early.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"standing": True}, causes=[_EARLY, *self.causes],
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        holds = value > 0 and watched(history, "target_shift", place) == -1
        if self.lasts(holds, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "Each row has targets from its first token on, without a gap, and in some rows they "
                f"stop before the text does: {100 * value:.0f}% of all tokens, at the ends, have none.",
                found=place[0], segment=place[2], confidence=0.9,
                evidence={"share": rounded(value), "standing": True},
            )  # fmt: skip


_EARLY = "labels shifted: tags are one place early, as of a list without the mark that texts begin with"


class PromptsCounted(WatchRule):
    """Prompts count in the loss, though the configuration says that only answers do.

    The targets are one place ahead of the inputs, and rows are padded. In three looks in a row every place of every
    text is a target, while the configuration has `train_on_prompts` (or `train_on_inputs`, …) off, or
    `completion_only_loss` (`assistant_only_loss`, `mask_prompt`, …) on.

    What to do: labels of −100 in the prompt; look whether the collator finds where answers begin.
    """

    name, family, kind, severity = "prompts_counted", "data", "data", "warning"
    series = "model/all_targets"
    needs = ("=model/all_targets", "=model/target_shift", "config")
    least = 3
    about = "Prompts count in the loss, though the configuration says that only answers do."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = ("labels not masked: prompts count in the loss, though only answers are to",)
    remedies = ("set labels to -100 in prompts: does the collator find the token with which an answer begins?",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        holds = answers_alone(history) and value == 1 and watched(history, "target_shift", place) == 1
        if self.lasts(holds, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "The configuration says that prompts do not count in the loss, and every place of "
                "every text has a target.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"standing": True},
            )  # fmt: skip


class StartTwice(WatchRule):
    """All texts begin with the same token twice.

    In three looks in a row the first two tokens of every row are one, which stands nowhere else in the rows, and some
    rows end with padding of another token: what they begin with is none. A chat
    template that writes the token of the beginning, and a tokenizer that adds it again, give that: at inference, where
    it stands once, the model is given what it was not trained on.

    What to do: `add_special_tokens=False` where the template has the token already.
    """

    name, family, kind, severity = "start_twice", "data", "data", "warning"
    series = "model/start_twice"
    needs = ("=model/start_twice",)
    least = 3
    about = "All texts begin with the same token twice."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = ("special token twice: the template and the tokenizer both add the token of the beginning",)
    remedies = ("tokenize what a chat template has written with `add_special_tokens=False`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value == 1, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "Every row begins with the same token twice, and it stands nowhere else.",
                found=place[0], segment=place[2], confidence=0.7, evidence={"standing": True},
            )  # fmt: skip


class MaskedBeside(WatchRule):
    """What is asked for is the token beside each one that was masked.

    Of the places with a target most are before, or behind, a place with one token that is never a target, the mask, and
    few have it themselves: three looks in a row. Labels were shifted as for a decoder, which predicts what comes next;
    of masked tokens the target is the one at the same place. So it is of a text that a model is asked for beside its
    answer (`model/side_masked_beside`), as of words that are to be found beside the match of two towers.

    What to do: don't shift the labels of a masked model.
    """

    name, family, kind, severity = "masked_beside", "data", "data", "warning"
    proves = "training"
    series = "model/masked_beside"
    needs = ("=model/masked_beside|=model/side_masked_beside",)
    least = 3
    about = "Targets are beside the tokens that are masked."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = ("labels shifted: as for a decoder, in a model that fills in masked tokens",)
    remedies = ("leave labels where the tokens are: a masked model has each target at its own place",)

    def channel(self, history: RunHistory) -> Channel | None:
        return super().channel(history) or history.channel("model/side_masked_beside")

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(abs(value) == 1, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"Most targets are one place {'before' if value > 0 else 'behind'} a token that is "
                "masked, and few at its place.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"places": value},
            )  # fmt: skip


RULES = (
    UnmaskedTargets,
    TextAcross,
    IgnoredToken,
    EndUntold,
    AnswersCut,
    AnswersIgnored,
    PaddedApart,
    TagsElsewhere,
    PromptsCounted,
    StartTwice,
    MaskedBeside,
)
