"""A number that is called an average's, and is of the trained weights.

In:   the names of what is evaluated; how far what is evaluated is from what is trained.
Out:  findings of `AverageNamed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.core.roles import RECORDED
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_AVERAGE = expression(r"(?i)(?<![a-z])(?:ema|swa|polyak|averaged?_(?:model|weights))(?![a-z])")
_EVALUATED = expression(r"(?i)(?<![a-z])(?:eval\w*|val|valid\w*|test\w*|dev)(?![a-z])")
_OWN = 1  # of `evaluated_whose`: the watched model itself, with no copy beside it


class AverageNamed(WatchRule):
    """What is evaluated is called an average's (`ema/val_loss`), and is the trained weights themselves.

    At four evaluations, which are all there are so far, the watch has compared what is evaluated with what is trained,
    and they are the same numbers; it has seen no copy of the model. All series of evaluations are called those of an
    average (`ema`, `swa`): where some are called otherwise, those may be of the passes that were seen.

    So it is where the first evaluation was of other weights, and the next three or more, all there are, are of those
    that are trained, to the last bit, while these move: the average's numbers were put into the model, and not taken
    out again, so that both are the same memory, or the average follows what it was put into.

    What to do: put the average's weights into the model for the evaluation, or evaluate its copy; and the trained ones
    back behind it.
    """

    name, family, kind, severity = "average_named", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_apart"
    needs = ("=model/evaluated_apart", "=model/evaluated_whose", "eval_loss")
    least = 4
    about = "What is called an evaluation of an average is one of the trained weights."
    thresholds: ClassVar = {
        "evaluations": (4.0, "the first of the launch; ours"),
        "apart": (0.01, "of the weights, in the first, of one whose average stays in the model; ours"),
    }
    causes = ("averaged weights not used: the trained weights are evaluated under the average's name",)
    remedies = ("evaluate the average's copy, or put its weights into the model first, and the trained ones back",)

    def begin(self) -> None:
        self._raw = self._stays = True  # in all evaluations of the launch; in all behind the first one
        self._count, self._launch = 0, -1

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if place[2] != self._launch:
            self.begin()
            self._launch = place[2]
        self._count += 1
        self._raw &= value == 0 and watched(history, "evaluated_whose", place) == _OWN
        if self._count == 1:
            self._stays = value >= self.at["apart"]
        else:
            self._stays &= value == 0 and watched(history, "evaluated_changed", place) > 0
        names = [name for name in history.channels if not name.startswith(RECORDED) and _EVALUATED.search(name)]
        named = bool(names) and all(map(_AVERAGE.search, names))
        if self.lasts((self._raw or self._stays) and named, place, self.at["evaluations"]):
            yield self._of_those_trained(names[0], place) if self._raw else self._left_in(names[0], place)

    def _of_those_trained(self, name: str, place: Place) -> Finding:
        return self.finding(
            self._row[0][0], f"In {len(self._row)} evaluations what is evaluated is what is trained, and it is "
            f"called {name}.", found=place[0], segment=place[2], confidence=0.9,
            evidence={"evaluations": len(self._row), "standing": True},
        )  # fmt: skip

    def _left_in(self, name: str, place: Place) -> Finding:
        return self.finding(
            self._row[0][0], f"The first evaluation called {name} was of other weights than those trained; since then "
            f"{len(self._row) - 1} were of exactly these: the average stays in the model.", found=place[0],
            segment=place[2], confidence=0.9, evidence={"evaluations": len(self._row), "standing": True},
            causes=[_LEFT_IN], remedies=["keep a copy of the trained weights, and put it back behind the evaluation"],
        )  # fmt: skip


_LEFT_IN = "averaged weights not restored: they stay in the model behind the first evaluation, and are trained on"

RULES = (AverageNamed,)
