"""Ranks that train on rows of other classes each.

In:   figures of the watch of rank 0: classes of its targets, and how evaluations are answered.
Out:  findings of `RanksClasses`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import averages_workers, options_on, splits_model
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_MEANT = expression(
    r"(?i)feder|non[_-]?i\.?i\.?d|dirichlet|(?:class(?:es)?|labels?)[_-](?:per|by|of|to|for)[_-](?:each[_-])?"
    r"(?:client|rank|worker|process|shard|node)|(?:split|shard|partition)(?:s|ed)?[_-](?:by[_-])?(?:class|label)"
)


class RanksClasses(WatchRule):
    """A rank has never had a row of some classes, and the model has learnt them: from other ranks.

    The watch is that of rank 0. Of two hundred of its targets that were looked at none is of some classes
    (`model/untargeted_classes`); and evaluations, in which such classes come (`model/compared_named`), are right in
    more of the rows of each class, in their mean, than there would be if all of these were wrong: by a quarter, in two
    evaluations in a row. It was less by a fifth at an evaluation before, so that it was learnt meanwhile, and not from
    this rank's rows: a file in the order of its classes was cut into one piece for each rank. Batches of all ranks
    together are like those of a mixed file then, but for batch norm and class weights of each rank, for the classes'
    numbers, which stay as the pieces have them, and for the logged loss, which is of some classes alone.

    Where the configuration says that classes are dealt out to ranks, or workers are averaged now and then, it is an
    info finding. Where ranks hold parts of one model, nothing is said.

    What to do: give each rank every n-th row of a file that was mixed, as `DistributedSampler` does.
    """

    name, family, kind, severity = "ranks_classes", "ranks", "data", "warning"
    proves = "training"
    series = "model/compared_recall"
    needs = ("=model/compared_recall", "=model/untargeted_classes", "=model/class_targets")
    least = 2
    about = "A rank has never had a row of some classes, which the model has learnt from others."
    thresholds: ClassVar = {
        "targets": (200.0, "of the rank, that were looked at; ours"),
        "beyond": (0.25, "of the rows of each class, right beyond those that this rank's classes leave; ours"),
        "learnt": (0.2, "the same, since an evaluation before; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("data sorted: a file in the order of its classes is cut into one piece for each rank",)
    remedies = (
        "mix the file, or give each rank every n-th row of it: `DistributedSampler`, or `rows[rank::world_size]`",
    )

    def begin(self) -> None:
        self._least = float("inf")  # of what evaluations before were right in

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        world = history.facts.get("world_size")
        if not isinstance(world, int) or world < 2 or splits_model(history):
            return
        named, width = (watched(history, f"compared_{name}", place) for name in ("named", "width"))
        lacks, targets = (watched(history, name, place) for name in ("untargeted_classes", "class_targets"))
        alike = width == watched(history, "output_width", place) and named <= width
        has = width - lacks
        beyond = alike and lacks >= 1 and targets >= self.at["targets"] and named > has
        beyond = beyond and value >= has / named + self.at["beyond"] and value >= self._least + self.at["learnt"]
        self._least = min(self._least, value if value == value else self._least)
        if not self.lasts(beyond, place, self.at["evaluations"]):
            return
        meant = averages_workers(history) or any(
            _MEANT.search(f"{name} {one}" if isinstance(one, str) else name) for name, one in options_on(history)
        )
        yield self.finding(
            0, f"Rank 0 has had {targets:.0f} targets that were looked at, and none of {lacks:.0f} of {width:.0f} "
            f"classes; of the evaluation's {named:.0f} classes {100 * value:.0f}% of the rows are right, in the mean: "
            "the others were learnt from other ranks' rows.",
            found=place[0], segment=place[2], severity="info" if meant else "warning", confidence=0.9,
            evidence={"classes": lacks, "right": value},
        )  # fmt: skip


RULES = (RanksClasses,)
