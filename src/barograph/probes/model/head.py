"""The output of a model that returns its loss alone.

In:   the passes of such a model; its graph.
Out:  the output of the layer whose numbers go straight into the loss, as if the model had returned it.

In the second pass the last layer that runs is asked for, and the graph has to prove it: from the loss back to that
layer's output there are only functions without weights, such as a softmax, a cast, a mean. A head that is a function
of another layer's weights is not found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.probes.model.activations import first_tensor, parts_of
from barograph.probes.model.guest import after, is_compiled
from barograph.probes.model.objective import behind, kind

_TRIES = 3  # passes
_NODES = 48  # between a loss and its logits: a cross-entropy with z-loss and an auxiliary term has 20
_SHAPED = ("T", "Transpose", "Permute", "View", "UnsafeView", "Reshape", "Expand", "ToCopy", "Clone", "Unsqueeze")
_WEIGHTED = ("Mm", "Addmm", "Bmm", "Baddbmm", "Convolution", "ConvolutionOverrideable", "Mkldnn", "Embedding",
             "NativeLayerNorm", "NativeBatchNorm", "NativeGroupNorm", "FusedRmsNorm", "AccumulateGrad")  # fmt: skip


class Head:
    """Finds the layer, and keeps its output until the pass is over."""

    def __init__(self, model: Any):
        self._model = model
        self._handles: list[Any] = []
        self._tries = 0
        self.in_pieces = False
        self._layer: Any = None  # once it is proven
        self._ran: list[tuple[Any, Any]] = []  # layers of this pass that have run, the last one with its output
        self._counts: dict[int, int] = {}  # by layer

    def answer(self, output: Any) -> Any:
        """What the loss is made of, where the model returns that, or its loss alone: a tensor or None."""
        logits = getattr(output, "logits", None)
        if logits is None and isinstance(output, Mapping):
            logits = output.get("logits")
        if not hasattr(logits, "is_floating_point"):
            beside = (part for part in parts_of(output) if getattr(part, "requires_grad", False) and part.dim() > 1)
            logits = first_tensor(output)
            if logits is not None and not logits.dim():  # a loss: what it is of may stand beside it
                logits = next(beside, logits)
        if logits is not None and not logits.dim():
            head = self.output(logits)
            logits = logits if head is None else head
        return logits

    def output(self, loss: Any) -> Any:
        """Of a pass that has returned this number, the output of the layer before it; None where it is not known. Where
        the layer ran in pieces, as for a loss in chunks, the last one: `in_pieces`."""
        ran, counts, self._ran, self._counts = self._ran, self._counts, [], {}
        self.in_pieces = bool(ran) and counts[id(ran[-1][0])] > 1
        if self._layer is not None:
            return ran[-1][1] if ran else None
        if self._tries >= _TRIES or not getattr(loss, "requires_grad", False):
            return None
        if not self._handles:
            if is_compiled():  # hooks within a model would have it compiled anew
                self._tries = _TRIES
                return None
            leaves = [module for module in self._model.modules() if next(module.children(), None) is None]
            self._handles = [after(module, self._gave) for module in leaves]
            return None
        self._tries += 1
        self._let_go()
        if not ran or not reaches(loss.grad_fn, ran[-1][1].grad_fn):
            return None
        layer, tensor = ran[-1]
        self._layer = layer
        self._handles = [after(layer, self._gave)]
        return tensor

    def _gave(self, module: Any, given: Any, output: Any) -> None:
        import torch

        tensor = output[0] if isinstance(output, tuple) and output else output
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad and tensor.dim() > 1:
            self._ran = [(module, tensor)]
            self._counts[id(module)] = self._counts.get(id(module), 0) + 1

    def began(self) -> None:
        """A pass begins: nothing is kept of one that has failed."""
        self._ran, self._counts = [], {}

    def _let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def close(self) -> None:
        """Leave no hook behind."""
        self._let_go()
        self._ran = []


def reaches(root: Any, wanted: Any) -> bool:
    """Whether what is made at one node goes straight into the other, by functions without weights. A product of two
    outputs, as of the two sides of pairs, has none."""
    if root is None or wanted is None:
        return False
    waiting, seen = [root], 0
    while waiting and seen < _NODES:
        node = waiting.pop(0)
        seen += 1
        if node is wanted:
            return True
        if not _has_weights(node):
            waiting += behind(node)
    return False


def _has_weights(node: Any) -> bool:
    if any(kind(one) == "AccumulateGrad" for one in behind(node)):
        return True
    if kind(node) != "Mm" or len(behind(node)) < 2:  # a frozen weight is not to be seen
        return kind(node) in _WEIGHTED
    return any(_is_weight(one) for one in behind(node))


def _is_weight(node: Any) -> bool:
    """Whether a factor of a product is a parameter, but for its shape and type."""
    for _ in range(6):
        if kind(node) == "AccumulateGrad":
            return True
        following = behind(node)
        if len(following) != 1 or kind(node) not in _SHAPED:
            return False
        node = following[0]
    return False
