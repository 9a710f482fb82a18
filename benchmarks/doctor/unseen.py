"""The put-away half of the bench: its programs, their faults and their healthy variants, as tables of words.

In:   nothing; `faults.py` and `healthy.py` read the tables.
Out:  `PROGRAMS`, `STEPS`; `KNOWN_FAULTS`, `FAULTS`, `KNOWN_HEALTHY`, `HEALTHY`.

**If you write rules, stop here.** What is in this file is what the rules are examined on, once, when they stand.
"""

from __future__ import annotations

from typing import Any

SEGMENTER = "segmenter"
PROGRAMS = (SEGMENTER,)
STEPS = {SEGMENTER: 200}

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "evaluation_mode_left_on": {SEGMENTER: {"dropout": 0.3}},
    "loss_summed": {SEGMENTER: {}},
    "validation_leak": {SEGMENTER: {}},
}

# -- faults that are new: name, cause, kinds, where it begins, programs, what it does, more ------------------------

Row = tuple[str, str, str, str, tuple[str, ...], str, dict[str, Any]]
FAULTS: tuple[Row, ...] = (
    ("masks_not_flipped", "labels do not match the inputs", "not_learning plateau eval overfit data", "start", (SEGMENTER,),
     "pictures are flipped at random, their masks are not", {"also": ("labels shuffled",)}),
    ("softmax_over_pixels", "softmax over the wrong dimension", "not_learning plateau logits data vanishing", "start",
     (SEGMENTER,), "the softmax runs over the rows of pixels, not over the classes", {}),
    ("background_ignored", "loss masked out", "data padding eval divergence overfit zero", "start", (SEGMENTER,),
     "the number of the class of the background is also the label that is ignored", {}),
)  # fmt: skip

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

KNOWN_HEALTHY: dict[str, dict[str, dict[str, Any]]] = {
    "dropout": {SEGMENTER: {"dropout": 0.3}},
    "high_rate": {SEGMENTER: {}},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    ("small_objects", (SEGMENTER,), "one pixel in fifty is of an object: the loss is very low from early on",
     {"config": {"objects": 1, "largest": 4}}),
)  # fmt: skip
