"""A number that is called an average's, and is of the trained weights.

In:   the names of what is evaluated; how far what is evaluated is from what is trained.
Out:  findings of `AverageNamed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_AVERAGE = re.compile(r"(?i)(?<![a-z])(?:ema|swa|polyak|averaged?_(?:model|weights))(?![a-z])")
_EVALUATED = re.compile(r"(?i)(?<![a-z])(?:eval\w*|val|valid\w*|test\w*|dev)(?![a-z])")
_OWN = 1  # of `evaluated_whose`: the watched model itself, with no copy beside it


class AverageNamed(WatchRule):
    """What is evaluated is called an average's (`ema/val_loss`), and is the trained weights themselves.

    At four evaluations, which are all there are so far, the watch has compared what is evaluated with what is trained,
    and they are the same numbers; it has seen no copy of the model. All series of evaluations are called those of an
    average (`ema`, `swa`): where some are called otherwise, those may be of the passes that were seen.

    What to do: put the average's weights into the model for the evaluation, or evaluate its copy.
    """

    name, family, kind, severity = "average_named", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_apart"
    needs = ("=model/evaluated_apart", "=model/evaluated_whose", "eval_loss")
    least = 4
    about = "What is called an evaluation of an average is one of the trained weights."
    thresholds: ClassVar = {"evaluations": (4.0, "the first of the launch; ours")}
    causes = ("averaged weights not used: the trained weights are evaluated under the average's name",)
    remedies = ("evaluate the average's copy, or put its weights into the model first, and the trained ones back",)

    def begin(self) -> None:
        self._raw = True  # in all evaluations of the launch

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._raw &= value == 0 and watched(history, "evaluated_whose", place) == _OWN
        names = [name for name in history.channels if not name.startswith("model/") and _EVALUATED.search(name)]
        named = bool(names) and all(map(_AVERAGE.search, names))
        if self.lasts(self._raw and named, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"In {len(self._row)} evaluations what is evaluated is what is trained, and it is "
                f"called {names[0]}.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"evaluations": len(self._row), "standing": True},
            )  # fmt: skip


RULES = (AverageNamed,)
