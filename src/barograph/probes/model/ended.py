"""What was evaluated behind a watch's last step, as a round of its own.

In:   what the watch has seen since that step.
Out:  a `ModelRound` of the step that would have come next, with figures of the evaluation alone; none where there was
      no evaluation.

No step begins any more, so nothing is asked of other ranks, and nothing of the training is in it: what a step that was
not finished was given trained nothing. A training often ends with the best weights, or an average, put into the model
for good: where its weights are others than the last step left, those of the evaluation are not compared with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from barograph.probes.model.rounds import ModelRound

if TYPE_CHECKING:
    from barograph.probes.model.state import ModelState
    from barograph.probes.model.written import Written

_WRITTEN = "written"
_OF_WEIGHTS = ("evaluated_weights", "evaluated_begun")
_FAMILIES = frozenset({
    "answers", "asked", "compared", "renamed", "modes", "statistics_apart", "inputs_of_evaluation", "eval_openings",
    "side_inputs", "input_columns", "given_classes", "evaluated", "evaluated_pieces", "evaluated_numbers",
    "evaluated_likeness", "evaluated_blocks", "evaluated_passages", "evaluated_things", *_OF_WEIGHTS, _WRITTEN,
})  # fmt: skip
"""Of columns that an evaluation fills."""
_NAMES = ("passes_without_gradients", "parts_without_gradients", "statistics_gathered", "labels_in_training")


def last_round(number: Callable[[], int], state: ModelState, written: Written) -> list[ModelRound]:
    """What was evaluated since the last step. number: of the step that would come now; written: what knows whether the
    weights are those that it left."""
    current = ModelRound(0, frozenset())
    current.is_last = True
    if not state.put_last(current):
        return []
    written.began(current, True)
    current.columns = [column for column in current.columns if column.family in _FAMILIES]
    current.figures = {name: value for name, value in current.figures.items() if "evaluat" in name or name in _NAMES}
    current.figures["evaluated_last"] = 1.0
    current.step = number()
    current.send()
    return [current]


def without_restored(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of such a round, without those of weights where the model has others than the last step left, or
    where that is not known."""
    found = dict(numbers)
    written = found.pop(_WRITTEN, None)
    if written is None or written[1][0][0] != 0:
        for family in _OF_WEIGHTS:
            found.pop(family, None)
    return found
