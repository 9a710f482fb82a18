"""Which part of what texts have in common lies between batches, and whether batches that follow each other are alike.

In:   tokens of a step's pass, with a row an example; other tokens of the same examples.
Out:  a sketch of each row: the mean of fixed signs of its tokens, each of a run of equal ones once, as padding is one.
      Computed on the device, nothing waits. Figures for the `model` record, when they have arrived.

Of shuffled texts the means of batches are as far apart as chance makes them, and batches that follow each other as far
as any two. Of texts in an order by what they are about neither is so. Of groups of which a batch is made, in an order
that is drawn, the first alone is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model.apart import beside, beyond_chance, blocks
from barograph.probes.model.overlaps import mixed
from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_SIGNS, _KINDS = 32, 4096  # of a sketch; of tokens: more share their signs
_FROM = 24  # bits of a fingerprint that signs are made of
_LONGEST = 128  # places of a row
_ROWS, _BATCHES = 8, 8  # of a batch; batches
_FEWEST = 4  # rows of a batch: of fewer than eight more batches are needed, whose means say as much
_MOST = 64  # looks
_STEPWISE = 0.75  # of all neighbours that differ, by 1: a mask, places, numbers of documents


class WordingLook:
    """Sketches of the texts of some steps. family: the name of its numbers in a step. text: they are tokens for sure;
    else masks, and numbers that count, are left out."""

    def __init__(self, family: str = "wording", text: bool = True) -> None:
        self._family, self._text = family, text
        self._rows: Tensor | None = None
        self._tables: dict[str, Tensor] = {}  # by device
        self._looks = 0
        self._steps: list[int] = []
        self._batches: list[tuple[Any, Any, int]] = []  # means, variances, rows

    def trained(self, rows: Tensor) -> None:
        """Rows of a step."""
        self._rows = None
        if rows.dim() == 2 and not rows.is_floating_point() and mesh_of(rows) is None and self._looks < _MOST:
            self._looks += 1
            self._rows = self._sketched(local(rows.detach())[:, :_LONGEST].long())

    def trained_no_more(self) -> None:
        """The rows of the step were not trained on."""
        self._rows = None

    def _sketched(self, rows: Tensor) -> Tensor:
        import torch

        table = self._tables.get(device := str(rows.device))
        if table is None:
            marks = mixed(torch.arange(1, _KINDS + 1, device=rows.device))  # made there: a copy would be waited for
            bits = (marks[:, None] >> torch.arange(_FROM, _FROM + _SIGNS, device=rows.device)) & 1
            table = self._tables[device] = 2.0 * bits.float() - 1.0
        changes = torch.nn.functional.pad(rows[:, 1:] != rows[:, :-1], (1, 0), value=True).float()
        with torch.autocast(rows.device.type, enabled=False):
            sums = torch.nn.functional.embedding_bag(rows % _KINDS, table, mode="sum", per_sample_weights=changes)
        sketch = sums / changes.sum(1, keepdim=True)
        if self._text:
            return sketch
        apart = (rows[:, 1:] - rows[:, :-1]).abs()
        return sketch.masked_fill(~((apart == 1).sum() <= _STEPWISE * (apart > 0).sum()) | ~apart.any(), torch.nan)

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        if self._rows is not None:
            current.put(self._family, tuple(map(str, range(len(self._rows)))), self._rows.T)
        self._rows = None

    def fields_of(self, numbers: Mapping[str, Any], known: list[bool], step: int) -> dict[str, float]:
        """What is recorded of a step. known: of the rows of its batch, whether they had come before."""
        rows: Any = numbers[self._family][1].T if self._family in numbers else ()
        if len(rows) < _FEWEST or len(rows) != len(known) or 2 * sum(known) >= len(known) or numpy.isnan(rows).any():
            return {}
        self._steps.append(step)
        self._batches.append((rows.mean(0), rows.var(0, ddof=1), len(rows)))
        if len(self._batches) < _BATCHES:
            return {}
        means, variances, counts = (numpy.array(column) for column in zip(*self._batches, strict=True))
        if (len(means) - 1) * min(_ROWS, float(counts.mean())) ** 2 < (_BATCHES - 1) * _ROWS**2:
            return {}  # too few for the noise of small batches
        within = variances.mean(0)
        between = means.var(0, ddof=1) - within / counts.mean()
        both = numpy.maximum(between + within, 1e-12)
        found = {"wording_apart": float(numpy.median(between / both)), "wording_batches": float(len(means))}
        found["wording_beyond"] = beyond_chance(means, variances, counts)
        found["wording_blocks"] = float(blocks(self._steps, means, variances, counts))
        following = beside(self._steps, means)
        return found if following is None else found | {"wording_beside": following}


def most_apart(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of figures of several texts of the same examples those of which most lies between batches."""
    return max(found, key=lambda one: one.get("wording_apart", -numpy.inf), default={})
