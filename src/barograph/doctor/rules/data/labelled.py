"""Labels of rows that come one after the other, by the batches that were given to the watch of data.

In:   the most frequent label of each step's rows, and its share.
Out:  findings of `SortedLabels`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import came_by, known
from barograph.doctor.kernel.stages import has_stages, is_curriculum
from barograph.doctor.rules.data.examples import Place, WatchRule, carries_state, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class SortedLabels(WatchRule):
    """All rows of a batch have one label, in one batch after the other, and later another one.

    What the watch of data is given has a label a row, a whole number, which the targets of the model are not: whether
    an answer is liked, or of which kind a text is. Of the last 96 steps with eight rows or more three quarters have one
    label alone, the next step has the same one in 31 of 32 such pairs of neighbouring steps, and two labels or more
    come so in twelve steps each: the file has the rows of one label behind those of another, and nothing shuffles them.
    Batches of one label each that are drawn at random are a plan. So is what the configuration calls a curriculum,
    stages of the training that are logged, and a state that is carried from batch to batch. Where the model shows each
    row's class itself, `sorted_targets` says it.

    What to do: shuffle: `DataLoader(..., shuffle=True)`, or the file before it is read.
    """

    name, family, kind, severity = "sorted_labels", "data", "data", "warning"
    proves = "training"
    series = "data/label_share"
    needs = ("=data/label_share", "=data/label", "=data/label_rows")
    least = 24
    about = "The rows of batches have one label each, one label after the other."
    thresholds: ClassVar = {
        "rows": (8.0, "of a step; ours"),
        "steps": (96.0, "that are looked at; ours"),
        "pure": (0.75, "of them, with one label; ours"),
        "stays": (31 / 32, "of neighbouring steps, with the same label; ours"),
        "each": (12.0, "steps of each of two labels; ours"),
    }
    causes = ("data sorted: batches are of one label each",)
    remedies = ("shuffle the examples: `DataLoader(..., shuffle=True)`",)

    def begin(self) -> None:
        self._looks: deque[tuple[int, float]] = deque(maxlen=int(self.at["steps"]))  # step; label, or -1 of several

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        rows, label = (known(history.channel(f"data/{name}"), *place) for name in ("label_rows", "label"))
        if not rows >= self.at["rows"] or label != label:
            return
        self._looks.append((place[0], label if value == 1 else -1.0))
        counts = Counter(one for _, one in self._looks if one >= 0)
        often = [one for one, count in counts.items() if count >= self.at["each"]]
        if len(often) < 2 or counts.total() < self.at["pure"] * len(self._looks):
            return
        pure = [one for _, one in self._looks if one >= 0]
        same = sum(one == other for one, other in pairwise(pure))
        meant = is_curriculum(history) or has_stages(history, place[1]) or carries_state(history, place)
        if same < self.at["stays"] * (len(pure) - 1) or meant or self._is_shown(history, place):
            return
        if self.first(place[2]):
            began = next(step for step, one in self._looks if one >= 0)
            yield self.finding(
                began, f"All rows of a batch have one label, since step {began}, and {len(counts)} labels come one "
                f"after the other: {', '.join(f'{one:.0f} in {counts[one]} steps' for one in sorted(often)[:3])}.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"steps": counts.total()},
            )  # fmt: skip

    def _is_shown(self, history: RunHistory, place: Place) -> bool:
        """Whether the targets of the model are one a row, or it is given classes."""
        alone = watched(history, "targets", place) <= watched(history, "example_rows", place)
        return alone or came_by(history.channel("model/input_class_share"), place[1])


RULES = (SortedLabels,)
