"""Whether layers that run along a sequence run over the rows of the batch instead; which inputs are embedded.

In:   what embeddings, and layers with `batch_first=False`, are given; the model's inputs and output.
Out:  a figure; shapes and addresses alone are read.

Such a layer takes the first dimension for places. Where that is the number of rows that go into the model and come out
of it, and another dimension has the places, each row's output is made of the rows before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from barograph.probes.model.guest import before

if TYPE_CHECKING:
    from torch import Tensor

Embedded = Mapping[Any, "Tensor | None"]  # by place: some rows of tensors of rows, None of others
NOTHING: Embedded = MappingProxyType({})
_ROWS = 64  # of a batch of tokens
_ALONG = ("RNN", "LSTM", "GRU", "MultiheadAttention")


class RowsLook:
    """Listens to such layers while `due`."""

    def __init__(self, model: Any):
        self.due = False
        self._rows = 0  # of the model's first input
        self._seen: list[tuple[int, int]] = []
        self._handles = [
            before(module, self._given, with_kwargs=True)
            for module in model.modules()
            if type(module).__name__ in _ALONG and getattr(module, "batch_first", True) is False
        ]
        self._along = len(self._handles)
        self._embedded: dict[Any, Any] = {}  # by place, of tensors that were embedded: some rows
        self._handles += [
            before(module, self._embeds) for module in model.modules() if type(module).__name__ == "Embedding"
        ]

    def began(self, tensors: Sequence[Any], due: bool) -> None:
        """A pass of the model."""
        self.due, self._seen, self._embedded = due and bool(self._handles), [], {}
        first = next((one for one in tensors if one.dim() > 1), None)
        self._rows = 0 if first is None else int(first.shape[0])

    def _given(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        if self.due:
            tensor = given[0] if given else named.get("query", named.get("input"))
            if getattr(tensor, "dim", lambda: 0)() == 3:
                self._seen.append((int(tensor.shape[0]), int(tensor.shape[1])))

    def _embeds(self, module: Any, given: Sequence[Any]) -> None:
        if self.due and given and hasattr(given[0], "data_ptr") and (place := place_of(given[0])) not in self._embedded:
            self._embedded[place] = given[0].detach()[:_ROWS].clone() if given[0].dim() == 2 else None

    def embedded(self) -> Embedded:
        """Which tensors were embedded in this pass, by `place_of`: of those of rows some, else None."""
        found, self._embedded = self._embedded, dict.fromkeys(self._embedded)
        return found

    def mixed(self, output: Any) -> float | None:
        """Whether rows are mixed in a pass with this output; None where that is not to be seen."""
        seen, self._seen, self.due = self._seen, [], False
        if not self._along or not seen or output is None or output.dim() not in (1, 2) or output.shape[0] != self._rows:
            return None
        return float(all(places == self._rows and rows not in (1, self._rows) for places, rows in seen))

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def place_of(tensor: Any) -> tuple[Any, ...]:
    """What tells a tensor from others that live at the same time."""
    return tensor.data_ptr(), tuple(tensor.shape)


def is_read(place: Any, embedded: Embedded) -> bool:
    """Whether tokens that a model was given here are read, and not its targets: it embeds them, or others in their
    place."""
    return place in embedded or sum(shape == place[1] for _, shape in embedded) == 1


def as_read(tokens: Tensor, place: Any, embedded: Embedded) -> Tensor:
    """The rows of tokens that a model was given here, or what it embedded in their place: it may shift or mask them
    itself. What it embeds may be their positions alone, as where rows of a matrix are taken for the tokens."""
    import torch

    read = [one for (_, shape), one in embedded.items() if shape == place[1]]
    other = read[0] if len(read) == 1 else None
    if other is None or other.device != tokens.device or other.shape != tokens.shape:
        return tokens
    differs = tokens[:, 1:] != tokens[:, :-1]  # the others, as padding is, say nothing of a shift
    inner, own = differs[:, :-1], tokens[:, 1:-1]
    same = torch.stack([((other[:, at : at + own.shape[1]] == own) & inner).sum() for at in range(3)]).amax()
    return torch.where(2 * same >= inner.sum(), other.long(), tokens)
