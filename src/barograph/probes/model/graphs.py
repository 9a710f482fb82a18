"""Graphs of earlier steps that are still in memory: something keeps a loss, an output, or an average with its graph.

In:   the last nodes of graphs: of the model's outputs, of some layers', and of losses; the process's tensors, once.
Out:  figures for the `model` record; no tensor is read.

A graph that no backward pass comes to, beside others, was made for nothing: a hook on its last node is never called. A
graph lives as long as anything refers to it, and a hook on one of its nodes as long as the node: a weak reference to
the hook says when the graph is gone. Usually that is when the next pass takes the place of its output.

An average of weights that is taken with gradients is the end of a graph of its own, which each update makes longer:
nothing but additions and multiplications between it and the weights.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from barograph.probes.model.activations import first_tensor
from barograph.probes.model.guest import after
from barograph.probes.model.objective import behind, kind

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_PASSES = 8  # of a step that are followed
_LATER = 2  # steps before, whose graphs may still be those of variables
_KEPT = 20  # steps in a row: far more than any variable holds
_WALKS = 64  # steps in which the first node is looked for
_DEEP = 4000  # nodes of a graph, from its last to its first
_EVALUATIONS = 3  # in a row, beside the newest
_LOOSE = 8  # evaluations of which nothing is kept: nobody keeps any
_BEGINNINGS = 4  # layers without parts, whose calls are heard
_UPDATES = 10  # of an average; other sums are hardly as long
_AVERAGED = frozenset({"Add", "Mul", "Sub", "Div", "Lerp", "ToCopy", "Clone", "CopyBackwards", "CopySlices", "View"})
_TURNED = frozenset({"T", "Transpose", "Permute", "ToCopy"})
_LOOKED = 64  # tensors whose graphs are walked
_FOUND = [0]  # averages that were found in this process


class _Mark:
    """A hook that is there as long as its node. used: whether a backward pass has come to that."""

    __slots__ = ("__weakref__", "used")

    def __init__(self) -> None:
        self.used = False

    def __call__(self, *given: Any) -> None:
        self.used = True


class KeptGraphs:
    """Counts the steps in a row whose graphs nobody lets go of."""

    def __init__(self) -> None:
        self._now: list[weakref.ref[_Mark]] = []
        self._before: list[list[weakref.ref[_Mark]]] = []  # a list of each step that may be kept
        self._walks = _WALKS
        self._newest = self._last = -1  # the number of the newest node that was followed; in the steps before
        self._over = False

    def follow(self, node: Any) -> None:
        """A pass of this step: a node of its graph, or None."""
        if self._over or node is None or len(self._now) >= _PASSES:
            return
        with contextlib.suppress(Exception):  # a node of another make
            self._now.append(_marked(node))

    def follow_pass(self, node: Any) -> None:
        """An output of the model: the last node of its graph, or None. What is kept of a pass may be an output of a
        layer, with the graph up to there: of the first such pass of a step its first node is followed, too, in the
        first steps: the way there is long."""
        first = not self._now
        self.follow(node)
        if first and self._now and self._walks:
            self._walks -= 1
            with contextlib.suppress(Exception):  # a node of another make
                self._newest = node._sequence_nr()
                beginning = _beginning(node, self._last)
                if beginning is not node:
                    self._now.append(_marked(beginning))

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        if self._over:
            return
        self._before.append(self._now)
        self._now, self._last = [], self._newest
        if len(self._before) > _LATER and not _alive(self._before[-1 - _LATER]):
            del self._before[:-_LATER]
        if len(self._before) < _KEPT + _LATER:
            return
        gc.collect()  # once: objects that refer to each other may have kept them
        still = self._before[:-_LATER]
        if all(map(_alive, still)):
            current.figures["graphs_kept"] = float(len(still))
        self._over, self._before = True, []


class EvaluatedGraphs:
    """Counts the evaluations in a row whose graphs are kept: passes with gradients through layers that are in
    evaluation mode, between two steps whose passes are in training mode. Where each step has some, they are the
    training's own, as of layers that are frozen. Parts of a model may be called by themselves, as for features: some
    layers are listened to, and not the model. Copies of the model, as an average, are evaluated in its place."""

    def __init__(self, modules: Iterable[Any]):
        layers = [one for one in modules if one._parameters and not one._modules]
        self._handles = [after(one, self._went) for one in layers[:: max(1, len(layers) // _BEGINNINGS)][:_BEGINNINGS]]
        self._now: list[weakref.ref[_Mark]] = []
        self._before: list[list[weakref.ref[_Mark]]] = []
        self._copies: list[_Mark] = []  # of passes of copies
        self.of_copies = False  # whether the evaluation before this step had such, and no backward pass of its own
        self._since = -1  # the step behind the first of these
        self._trains = self._again = False  # again: whether the step before had some
        self._loose = 0

    def _went(self, module: Any, given: Any, output: Any) -> None:
        """A layer was called."""
        node = getattr(output, "grad_fn", None)
        if node is None:
            return
        if module.training:
            self._trains = True
        elif len(self._now) < _PASSES:
            with contextlib.suppress(Exception):  # a node of another make
                self._now.append(_marked(node))

    def gave(self, output: Any) -> None:
        """A copy of the model has returned something."""
        tensor = getattr(output, "logits", None)
        node = getattr(tensor if tensor is not None else first_tensor(output), "grad_fn", None)
        if node is not None and self._handles and len(self._now) < _PASSES:
            with contextlib.suppress(Exception):  # a node of another make
                self._copies.append(_mark(node))
                self._now.append(weakref.ref(self._copies[-1]))

    def put(self, current: ModelRound) -> None:
        """A step begins: `evaluated_graphs_kept`, and `evaluated_graphs_since`, once."""
        now, trains, self._now, self._trains = self._now, self._trains, [], False
        copies, self._copies = self._copies, []
        again, self._again = self._again, bool(now)
        self.of_copies = trains and not again and bool(copies) and not any(one.used for one in copies)
        copies.clear()  # else they would be kept by this
        if again and now:
            self._before = []
        if again or not now or not trains or not self._handles:
            return
        if self._before and not _alive(self._before[-1]):
            self._before, self._loose = [], self._loose + 1
        self._since = self._since if self._before else current.step
        self._before.append(now)
        if len(self._before) > _EVALUATIONS:
            gc.collect()  # once: objects that refer to each other may have kept them
            still = self._before[:-1]
            if all(map(_alive, still)):
                since = {"evaluated_graphs_since": float(self._since)}
                current.figures |= {"evaluated_graphs_kept": float(len(still))} | since
            self.close()
        elif self._loose >= _LOOSE:
            self.close()

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._before, self._now = [], [], []


class _Use:
    """A hook that says once that a backward pass has come to its node."""

    __slots__ = ("_used",)

    def __init__(self, used: list[int]):
        self._used: list[int] | None = used

    def __call__(self, *given: Any) -> None:
        used, self._used = self._used, None
        if used is not None:
            used[0] += 1


class UsedGraphs:
    """Counts the outputs of a step that no backward pass comes to, beside those that one does: their graphs were made
    for nothing, as by an evaluation with gradients of a model whose mode does not say what an evaluation is. Where
    backward passes come to more outputs than in any step before, the evaluation has some of its own, as one of a
    learner that is adapted to each task: it needs its gradients."""

    def __init__(self) -> None:
        self._made, self._used = 0, [0]
        self._last = False  # whether there were some in the step before
        self._most = 0  # outputs that backward passes came to in a step, of those that had no others
        self.adapts = False  # whether there were more in the step that is over, and others
        self.all_used = False  # whether backward passes came to all outputs of the step that is over, two or more

    def follow(self, output: Any) -> None:
        """A pass with gradients, which nobody asks for those of its inputs, gave this."""
        node = getattr(output, "grad_fn", None)
        if node is None:
            return
        with contextlib.suppress(Exception):  # a node of another make
            node.register_prehook(_Use(self._used))
            self._made += 1

    def put(self, current: ModelRound) -> None:
        """A step begins: `graphs_unused`, where it is another than in the step before."""
        made, used = self._made, self._used[0]
        self._made, self._used = 0, [0]
        self.adapts = 0 < self._most < used < made
        unused, self.all_used = 0 < used < made and not self.adapts, 1 < made <= used
        if used >= made:
            self._most = max(self._most, used)
        if unused != self._last:
            current.figures["graphs_unused"] = float(unused)
        self._last = unused


def _marked(node: Any) -> weakref.ref[_Mark]:
    """What says whether this node is there."""
    return weakref.ref(_mark(node))


def _mark(node: Any) -> _Mark:
    mark = _Mark()
    node.register_prehook(mark)
    return mark


def _beginning(node: Any, newest: int) -> Any:
    """The first node of a graph whose last one this is, along one way. newest: nodes up to this number are of earlier
    passes, as of a part of a parameter that is kept on purpose."""
    for _ in range(_DEEP):
        made = [one for one in behind(node) if newest < one._sequence_nr() and not hasattr(one, "variable")]
        following = next((one for one in made if not _of_parameter(one)), None)
        if following is None:
            break
        node = following
    return node


def _of_parameter(node: Any) -> bool:
    """Whether a node comes behind parameters alone, and only a view of them, as a layer's turned matrix."""
    return kind(node) in _TURNED and all(hasattr(one, "variable") for one in behind(node))


def _alive(step: Iterable[weakref.ref[_Mark]]) -> bool:
    return any(mark() is not None for mark in step)


def kinds() -> tuple[type, ...]:
    """The classes whose objects are looked for."""
    torch = sys.modules.get("torch")
    return (torch.Tensor, torch.nn.Parameter) if torch is not None else ()


def keep(objects: Iterable[Any], optimizers: Iterable[Any]) -> None:
    """Count the averages of these optimizers' weights among the process's objects that are the ends of graphs:
    `_UPDATES` additions or more, one behind the other, with nothing between them and parameters but sums and
    products."""
    _FOUND[0] = 0
    ours = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
    with contextlib.suppress(Exception):  # a tensor of another make
        ends = [one for one in objects if type(one) in kinds() and one.grad_fn is not None]
        _FOUND[0] = sum(_averaged(one.grad_fn, ours) for one in ends[:_LOOKED])


def figures() -> dict[str, float]:
    """`averages_with_graph`: how many were found, once."""
    count, _FOUND[0] = _FOUND[0], 0
    return {"averages_with_graph": float(count)} if count else {}


def _averaged(node: Any, ours: Collection[int]) -> bool:
    """Whether nothing but sums and products lies between a node and parameters, some of them ours, and ten updates or
    more."""
    waiting, seen, known, added = [node], {node}, False, 0
    while waiting:
        node = waiting.pop()
        name = kind(node)
        if hasattr(node, "variable"):
            known |= id(node.variable) in ours
            continue
        if name not in _AVERAGED or len(seen) > 1000:
            return False
        added += name in ("Add", "Lerp")
        for following in behind(node):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return known and added >= _UPDATES
