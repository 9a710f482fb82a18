"""What was evaluated behind a watch's last step, as a round of its own.

In:   what the watch has seen since that step.
Out:  a `ModelRound` of the step that would have come next, with figures of the evaluation alone; none where there was
      no evaluation.

No step begins any more, so nothing is asked of other ranks, and nothing of the training is in it: what a step that was
not finished was given trained nothing. Nor are weights compared: a training often ends with the best ones, or an
average, put into the model or its copy for good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barograph.probes.model.rounds import ModelRound

if TYPE_CHECKING:
    from barograph.probes.model.state import ModelState

_FAMILIES = frozenset({
    "aligned", "answered", "answers", "asked", "beyond", "compared", "renamed", "modes", "statistics_apart",
    "inputs_of_evaluation", "centred", "eval_openings", "masks_given", "text_lengths", "side_inputs", "input_columns",
    "given_classes", "given_columns", "evaluated", "adapters_off", "evaluated_losses", "adapters_by",
    "evaluated_pieces", "evaluated_numbers", "evaluated_likeness", "evaluated_blocks", "evaluated_passages",
    "evaluated_things", "between", "between_pieces", "between_numbers", "between_likeness", "between_blocks",
    "between_passages", "between_things", "evaluated_groups", "between_groups", "evaluated_planes",
})  # fmt: skip
"""Of columns that an evaluation fills, and of what was trained on before it."""
_NAMES = ("passes_without_gradients", "parts_without_gradients", "statistics_gathered", "labels_in_training")


def last_round(number: Callable[[], int], state: ModelState) -> list[ModelRound]:
    """What was evaluated since the last step. number: of the step that would come now."""
    current = ModelRound(0, frozenset())
    if not state.put_last(current):
        return []
    current.columns = [column for column in current.columns if column.family in _FAMILIES]
    current.figures = {name: value for name, value in current.figures.items() if "evaluat" in name or name in _NAMES}
    current.figures["evaluated_last"] = 1.0
    current.step = number()
    current.send()
    return [current]
