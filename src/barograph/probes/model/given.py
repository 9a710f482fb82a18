"""What a model is given, in the training and in evaluations, for their comparison.

In:   inputs of passes of the model, of copies of it, and of its parts that an evaluation calls alone.
Out:  what `entrance`, `sides`, `columns`, `fillers`, `masks_given`, `openings`, `timed`,
      `template`, `text_lengths` and `segments_given` say of them; nothing waits.

Where an evaluation calls the model, or a copy of it, parts that it calls beside it say nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model import columns, fillers, sides, timed
from barograph.probes.model.columns import InputColumns
from barograph.probes.model.entered import EnteredParts
from barograph.probes.model.entrance import Inputs
from barograph.probes.model.fillers import Fillers
from barograph.probes.model.masks_given import MasksGiven
from barograph.probes.model.openings import Openings
from barograph.probes.model.rounds import finite_of
from barograph.probes.model.segments_given import SegmentsGiven
from barograph.probes.model.sides import SideInputs
from barograph.probes.model.template import Templates
from barograph.probes.model.text_lengths import TextLengths
from barograph.probes.model.timed import TimedInputs

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_PLAIN = (
    "openings",
    "eval_openings",
    "template",
    "masks_given",
    "filler_kept",
    "text_lengths",
    "segments_given",
)  # families that are recorded as they are


class GivenInputs:
    """Looks at inputs of the training, and at those of an evaluation's first passes."""

    def __init__(self) -> None:
        self._inputs, self._of_parts, self._sides = Inputs(), Inputs(), SideInputs()
        self._columns, self._openings = InputColumns(), Openings()
        self._timed, self._template = TimedInputs(), Templates()
        self._fillers, self._masks, self._lengths = Fillers(), MasksGiven(), TextLengths()
        self._segments = SegmentsGiven()
        self._parts: EnteredParts | None = None
        self._asked: Callable[[], None] | None = None
        self._first: int | None = None  # place of the first input of floating point numbers, in the training
        self._whole = False  # whether the model, or a copy of it, was called in this evaluation

    def follow(self, model: Any, inside: Callable[[], bool], asked: Callable[[], None] | None = None) -> None:
        """Parts of this model may be called alone. inside: whether a call of the model is running. asked: is called
        when an evaluation calls one."""
        self._asked = asked
        self._parts = EnteredParts(model, inside, self._of_part)

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        if trains and due and self._parts is not None:
            self._parts.trained(tensors)
        self._whole = self._whole or not trains
        self._sides.given(tensors, trains, due)
        with contextlib.suppress(Exception):  # whatever fails here takes nothing along
            self._columns.given(tensors, trains, due)
            self._openings.given(tensors, trains, due)
            self._timed.given(tensors, trains, due)
            self._template.given(tensors, trains, due)
            self._fillers.given(tensors, trains, due)
            self._masks.given(tensors, trains, due)
            self._lengths.given(tensors, trains, due)
            self._segments.given(tensors, trains, due)
        at, tensor = next(((at, one) for at, one in enumerate(tensors) if one.is_floating_point()), (None, None))
        if tensor is not None:
            self._first = at if trains else self._first
            self._inputs.given(tensor, trains, due)

    def evaluated(self, tensors: Sequence[Tensor]) -> None:
        """The inputs of a pass of a copy of the model, in an evaluation."""
        self.given(tensors, False, False)

    def _of_part(self, place: int, tensor: Tensor) -> None:
        """What an evaluation gives a part in the place of one of the model's inputs."""
        if self._asked is not None:
            self._asked()
        if self._whole:
            return
        if place == self._first:
            self._of_parts.given(tensor, False, False)
        self._columns.evaluated(place, tensor)
        self._openings.evaluated(place, tensor)

    def rested(self) -> None:
        """A step begins that is not looked at."""
        if self._parts is not None:
            self._parts.put()

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        self.rested()
        self._inputs.put(current, self._of_parts)
        self._sides.put(current)
        self._columns.put(current)
        self._openings.put(current)
        self._timed.put(current)
        self._template.put(current)
        self._fillers.put(current)
        self._masks.put(current)
        self._lengths.put(current)
        self._segments.put(current)
        self._whole = False

    def close(self) -> None:
        """Leave no hook behind."""
        if self._parts is not None:
            self._parts.close()


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What is recorded of a step, when it has arrived, beside what of the first input is (`outputs`)."""
    found = sides.fields_of(numbers) | columns.fields_of(numbers) | timed.fields_of(numbers)
    return found | fillers.fields_of(numbers) | finite_of(numbers, *_PLAIN)
