"""Which inputs single outputs depend on: later places of a text, earlier ones, other rows of the batch.

In:   one pass at the seventh step and one at the 107th: what the first layers give, the model's output.
Out:  figures for the `model` record, computed on the device; nothing waits. Of a model that says one thing of a whole
      text also which part of that depends on padding, and whether it depends on one place alone.

The gradient of one place's output, with respect to what the first layers gave at all places, is 0 exactly where nothing
flows. It is asked for by one more backward pass over the graph that the training is about to use, which stays as it is:
no parameter's gradient is touched. Every other row has one output that is asked, so that the rows between say whether
rows are mixed. The first steps are left alone: many models begin with layers that hand nothing on.

Left out: graphs with functions written in Python (of compiled, checkpointed and sharded models), which may do more in a
backward pass than compute gradients; graphs with tensors that somebody hooked or retains the gradient of, which would
get it twice; very large outputs.

The last state of a recurrent layer that is given rows with padding, and no packed ones, has gone on over the padding,
and so have its outputs there: where that has a gradient, or one of these alone, that is said, and whether the model was
given lengths or a mask. Rows are tokens, or records of several numbers a place.
"""

from __future__ import annotations

import contextlib
import gc
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.autograd import packs
from barograph.probes.model.entrance import Entrance
from barograph.probes.model.guest import after
from barograph.probes.model.padding import is_given, places_of, tails
from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("rows_reached", "next_reached", "past_reached", "read_dimension", "padding_read", "padding_share",
           "single_place", "state_behind_padding", "padding_given", "own_reached", "padded_dimension")  # fmt: skip
_STEPS = (6, 106)
_TRIES = 3  # passes, each time: a model may have passes of other kinds
_MOST = 1 << 25  # elements of an output
_NODES = 20_000  # of a graph: more are not walked
_LEAST = 1e-6  # of the largest gradient: less is what a mask of finite depth leaves
_SOURCES = 8
_PLACES = 8  # of a text, at least
_RECURRENT = ("RNN", "LSTM", "GRU")
_MIXING = ("attn", "attention", "qkv", "q_proj", "query", "rnn", "lstm", "gru", "mamba", "ssm", "recurr", "conv1d",
           "mixer")  # fmt: skip


class DependenceLook:
    """Looks at two passes of a model."""

    def __init__(self, model: Any, on: bool = True):
        self._model = model
        self._steps = self._tried = 0
        self._ahead = list(_STEPS) if on else []
        self._on = False
        self._handles: list[Any] = []
        self._sources: list[Tensor] = []
        self._blank: dict[int, tuple[int, Tensor]] = {}  # by source's id: token of its padding; whether its line is 0
        self._mixed: set[int] = set()  # sources, by id, in which places were brought together already
        self._mixes: set[int] = set()  # layers, by id, of parts that do so
        self._has_mixed = False  # whether one of them has run in this pass
        self._texts: list[tuple[int, ...]] = []  # shapes of the tokens that the model is given
        self._tokens: list[Tensor] = []
        self._records: list[Tensor] = []  # [rows, places, numbers], where it is given no tokens
        self._beside: list[Tensor] = []  # what may be lengths, or a mask
        self._ends: list[tuple[str, Tensor]] = []  # of recurrent layers: last states, and outputs with their layout
        self._found: Tensor | None = None
        self._entrance = Entrance()
        self._moment: tuple[int, list[Any], int] = (0, [], 0)

    def began(self, tensors: Sequence[Any], trains: bool) -> None:
        """A pass of the model."""
        self._on = trains and bool(self._ahead) and self._steps >= self._ahead[0] and self._model.training
        if not self._on:
            return
        self._sources, self._mixed, self._has_mixed, self._ends = [], set(), False, []
        self._blank = {}
        self._entrance.began()
        self._moment = _moment()
        self._beside = [one.detach() for one in tensors if one.dim() < 3]
        self._tokens = [one.detach() for one in tensors if one.dim() == 2 and not one.is_floating_point()]
        self._texts = [tuple(one.shape) for one in self._tokens]
        whole = [one.detach() for one in tensors if one.dim() == 3 and one.is_floating_point() and not mesh_of(one)]
        self._records = [] if self._tokens else whole[:1]
        if not self._handles:
            leaves = {name: one for name, one in self._model.named_modules() if _is_whole(one)}
            self._handles = [after(one, self._gave) for one in leaves.values()]
            self._mixes = {id(one) for name, one in leaves.items() if _brings_together(name, one)}

    def _gave(self, module: Any, given: Any, output: Any) -> None:
        """A layer has run: embeddings of tokens, else the first layer through which gradients flow."""
        tensor = output[0] if isinstance(output, tuple) and output else output
        if self._on:
            self._entrance.ran(module, given, tensor)
        self._has_mixed = self._has_mixed or id(module) in self._mixes
        if self._on and type(module).__name__ in _RECURRENT:
            self._ends += _last_states(module, given, output, [*self._texts, *(one.shape[:2] for one in self._records)])
        if not self._on or not getattr(tensor, "requires_grad", False) or tensor.dim() < 3 or mesh_of(tensor):
            return
        first = not self._sources or ("Embedding" in type(module).__name__ and tuple(tensor.shape[:2]) in self._texts)
        if first and len(self._sources) < _SOURCES:
            self._sources.append(tensor)
            padding = getattr(module, "padding_idx", None)
            if isinstance(padding, int) and mesh_of(module.weight) is None:
                self._blank[id(tensor)] = padding, (module.weight[padding] == 0).all()
            # of a frozen model whose head is trained, what the head is given knows of other places
            known = self._has_mixed and "Embedding" not in type(module).__name__
            self._mixed |= {id(tensor)} if known else set()

    def returned(self, output: Any) -> None:
        """The output of a pass with gradients, before anything was hooked to it."""
        on, self._on = self._on, False
        sources, self._sources = self._sources, []
        ends, self._ends = self._ends, []
        if not on:
            return
        self._tried += 1
        with contextlib.suppress(Exception):  # memory too: the training's own pass may need less
            self._found = self._asked(output, sources, ends)
        self._tokens = self._records = self._beside = []
        if self._found is not None or self._tried >= _TRIES:
            self._ahead.pop(0)
            self._tried = 0
            self._let_go()

    def _asked(self, output: Any, sources: list[Tensor], ends: list[tuple[str, Tensor]]) -> Tensor | None:
        import torch

        if output is not None and output.dim() == 1:
            output = output[:, None]  # a score a row
        if output is None or not 2 <= output.dim() <= 3 or not output.requires_grad or output.numel() > _MOST:
            return None
        # rows of an output as wide as the batch are compared with each other on purpose
        sources = [one for one in sources if len(one) == len(output) != output.shape[-1]]
        if output.dim() == 2:
            sources = [one for one in sources if one.shape[1] != len(one)]
        if not sources or mesh_of(output) or not _is_free(output.grad_fn, self._moment):
            return None
        rows = torch.arange(0, len(output), 2, device=output.device)
        chosen = output.detach().new_zeros(output.shape)
        weight = torch.cos(torch.arange(output.shape[-1], device=output.device, dtype=torch.float32)).to(output.dtype)
        places = None
        if output.dim() == 3:
            # of the second half: the first may be a prompt, which a model may read as a whole
            middle, last = output.shape[1] // 2, output.shape[1] - 2
            places = (middle + 7 * torch.arange(len(rows), device=output.device) % max(1, last - middle)).clamp(0, last)
            chosen[rows, places] = weight
        else:
            chosen[rows] = weight
        ends = ends if places is None else []
        asked = [*sources, *(one for _, one in ends)]
        every = torch.autograd.grad(output, asked, chosen, retain_graph=True, allow_unused=True)
        gradients, of_ends = every[: len(sources)], every[len(sources) :]
        states = [(kind, one) for (kind, _), one in zip(ends, of_ends, strict=True) if one is not None]
        mixed = [id(source) in self._mixed for source, one in zip(sources, gradients, strict=True) if one is not None]
        with torch.no_grad():
            read = [
                self._without_blank(id(source), one)
                for source, one in zip(sources, gradients, strict=True)
                if one is not None
            ]
            found = self._figures(read, mixed, output, rows, places)
            if places is not None:
                return found
            found = output.new_full((len(FIGURES),), math.nan, dtype=torch.float32) if found is None else found
            return self._of_padding(found, states, rows)

    def _without_blank(self, source: int, gradient: Tensor) -> Tensor:
        """The gradient of a table's lines, 0 at the padding where its line is 0 and stays so, if nothing but sums is
        behind it, in which all places of a row have one weight: they read nothing there."""
        import torch

        padding, blank = self._blank.get(source, (-1, gradient))
        tokens = next((one for one in self._tokens if one.shape == gradient.shape[:2]), None)
        if padding < 0 or tokens is None:
            return gradient
        size = gradient.abs().amax()
        summed = blank & ((gradient - gradient[:, :1]).abs().amax() <= _LEAST * size)
        return torch.where(((tokens == padding) & summed)[..., None], 0.0, gradient)

    def _of_padding(self, found: Tensor, states: list[tuple[str, Tensor]], rows: Tensor) -> Tensor:
        """Add what the last states of recurrent layers say, and whether the model is given where padding is. states:
        their gradients [layers, rows, width], and those of their outputs."""
        import torch

        tokens = next((one for one in [*self._tokens, *self._records] if len(one) > int(rows[-1])), None)
        if tokens is None:
            return found
        tail, sure = tails(places_of(tokens) if tokens.dim() == 3 else tokens)
        padded = tail[rows].any(1)
        behind = []
        for kind, one in states:
            if kind == "state" and one.shape[1] == len(tokens):
                behind.append((one[:, rows].abs().amax((0, 2)) > 0) & padded)
            elif kind != "state" and (each := one if kind == "rows" else one.transpose(0, 1)).shape[:2] == tail.shape:
                read = (each.abs().amax(2) > 0)[rows]  # one place alone: more may be pooled as they should
                behind.append((read & tail[rows]).any(1) & (read.sum(1) == 1))
        reads = torch.stack(behind).any() if behind else torch.zeros_like(sure)
        given = is_given(tail, self._beside)
        sure = sure & (given | torch.full_like(sure, tokens.dim() == 2))  # a record's end may be its own
        figures = {"state_behind_padding": reads, "padding_given": given}
        # of frozen embeddings nothing but the state has a gradient
        alone = found[FIGURES.index("padding_read")].isnan() & reads
        figures = {name: (value, ~padded.any()) for name, value in figures.items()}
        figures |= {"padding_read": (reads, ~alone), "padding_share": (tail.float().mean(), ~alone)}
        for name, (value, unsaid) in figures.items():
            at = FIGURES.index(name)
            found[at] = torch.where(sure & ~unsaid, value.to(found.dtype), found[at])
        return found

    def _figures(
        self, gradients: list[Tensor], within_layers: list[bool], output: Tensor, rows: Tensor, places: Tensor | None
    ) -> Tensor | None:
        import torch

        if not gradients:
            return None
        nothing = torch.full((), math.nan, dtype=torch.float32, device=output.device)
        found = []
        mixes_by_design = any("BatchNorm" in type(module).__name__ for module in self._model.modules())
        for gradient, is_mixed in zip(gradients, within_layers, strict=True):
            size = gradient.float().abs().flatten(2).amax(2)  # [rows, places]
            reached = size > _LEAST * size.max()
            mixed = reached[1::2].any()
            square = size.shape[0] == size.shape[1]  # which dimension is which is seen by what is reached alone
            other = read = nothing
            if len(size) > 1 and not mixes_by_design:
                other = reached[1::2].any(1).float().mean()
            following = past = nothing
            if places is not None:
                if output.shape[:2] != size.shape or size.shape[1] < _PLACES:
                    continue
                following = reached[rows, places + 1].float().mean()
                following = torch.where(_has_source(self._tokens, size.shape), nothing, following)
                before = torch.arange(size.shape[1], device=size.device) < places[:, None]
                past = (reached[rows] & before).any(1).float().mean()
                # where nothing flows along the second dimension, the first may be that of places: then what is reached
                # lies in the columns that some row was asked for
                asked = torch.zeros(size.shape[1], dtype=torch.bool, device=size.device).index_fill(0, places, True)
                beyond = reached & ~asked
                flows = beyond.any()
                other = torch.where(flows, other, nothing)
                following = torch.where(flows | (following == 0), following, nothing)
                # it may come from another row's place
                following = torch.where(mixed if square else other > 0, nothing, following)
                # every other row was asked: were the dimensions exchanged on the way, columns between had nothing
                within, down = ~mixed & beyond[:, 1::2].any(), mixed & ~flows & reached[:, 1::2].any()
                read = torch.where(within, 1.0, torch.where(down, 0.0, nothing))
                if square:
                    other = past = nothing
            whole = [nothing] * 3
            if is_mixed:  # what a place of it knows of others is not to be seen behind it
                past = nothing
            if places is None:
                texts = (one for one in self._tokens if one.shape == size.shape)  # the first one, as others are masks
                whole = _of_whole(size[rows], next((one[rows] for one in texts), None), nothing)
                whole[2] = nothing if is_mixed else whole[2]
            alive = size.max() > 0
            own = torch.where(other > 0, reached[rows].any(1).float().mean(), nothing)
            parts = (other, following, past, read, *whole, own)
            found.append(torch.stack([torch.where(alive, one, nothing) for one in parts]))
        if not found:
            return None
        table = torch.stack(found)
        least, most = table.amin(0), table.amax(0)
        past = most[2] if _is_mixing(self._model) else nothing
        # of several inputs one may be read as a whole
        both = torch.where(least == most, most, nothing)
        both[6] = both[6] if _is_mixing(self._model) else nothing
        padded = nothing
        if places is not None:
            texts = (one for one in self._tokens if one.shape == output.shape[:2] and not mesh_of(one))
            padded = _padded_dimension(next(texts, None), nothing)
        whole = [most[4], most[5], both[6], nothing, nothing]
        return torch.stack([most[0], least[1], past, both[3], *whole, least[7], padded])

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        self._steps += 1
        self._entrance.put(current)
        if self._found is not None:
            current.put("dependence", FIGURES, self._found)
            self._found = None

    def _let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def close(self) -> None:
        """Leave no hook behind."""
        self._ahead = []
        self._let_go()


def _has_source(tokens: list[Tensor], shape: Any) -> Tensor:
    """Whether a model is given two texts of one shape, as a text to be read and what is written of it: the first of
    them may be seen as a whole. Masks, segments, positions and the first one's own targets are not such."""
    import torch

    first, *others = [one.long() for one in tokens if one.shape == shape] or [torch.zeros(1, 2)]
    found = torch.zeros((), dtype=torch.bool, device=first.device)
    for one in others:
        asked = one >= 0  # targets that are left out are below
        same = ((one == first) & asked).sum() + ((one[:, :-1] == first[:, 1:]) & asked[:, :-1]).sum()
        counts_up = (one[:, 1:] - one[:, :-1] == 1).float().mean() > 0.5
        found = found | ((one.amax() > 1) & ~counts_up & (2 * same < asked.sum()))
    return found


def _padded_dimension(tokens: Tensor | None, nothing: Tensor) -> Tensor:
    """Along which dimension texts end in padding, where it is one alone; NaN else. Rows that are sorted by their
    lengths may look padded along both."""
    import torch

    if tokens is None:
        return nothing
    along, across = (tails(one)[1] for one in (tokens, tokens.t()))
    number = torch.where(along, 1.0, 0.0).to(nothing.dtype)
    return torch.where(along != across, number, nothing)


def _of_whole(size: Tensor, tokens: Tensor | None, nothing: Tensor) -> list[Tensor]:
    """Of the gradients [rows, places] of what is said of whole texts: their share at padding, the share of the places
    that are padding, and the one place that all of them are at; NaN where there is none."""
    import torch

    reached = size > _LEAST * size.amax(1, keepdim=True)
    first = reached.long().argmax(1)
    single = (reached.sum(1) == 1).all() & (first == first[0]).all() & (size.shape[1] >= _PLACES) & (len(size) > 2)
    place = torch.where(single, first[0].to(nothing.dtype), nothing)
    if tokens is None:
        return [nothing, nothing, place]
    tail, sure = tails(tokens)
    padded = tail.any(1) & (size.sum(1) > 0)
    shares = ((size * tail).sum(1) / size.sum(1).clamp_min(1e-30), tail.float().mean(1))
    sure = sure & (padded.sum() >= 2)
    read, there = ((one * padded).sum() / padded.sum().clamp_min(1) for one in shares)
    return [torch.where(sure, read, nothing), torch.where(sure, there, nothing), place]


def _last_states(module: Any, given: Any, output: Any, texts: Sequence[tuple[int, ...]]) -> list[tuple[str, Tensor]]:
    """Of a recurrent layer that is given one line a token, and not packed ones: its last states, and its outputs, whose
    first dimension is that of rows or of places."""
    tensor: Any = given[0] if given else None
    states: Any = output[1] if isinstance(output, tuple) else None
    states = states[0] if isinstance(states, tuple) else states
    if getattr(tensor, "dim", lambda: 0)() != 3 or not getattr(states, "requires_grad", False):
        return []
    first = getattr(module, "batch_first", False)
    sizes = tuple(tensor.shape[:2]) if first else tuple(tensor.shape[1::-1])
    return [("state", states), ("rows" if first else "places", output[0])] if sizes in texts else []


def _moment() -> tuple[int, list[Any], int]:
    """What tells objects of a pass from older ones: how often objects were made old ones, one that is listed as long as
    nothing is kept out of that, and the number of the next function of a graph."""
    import torch

    number = getattr(torch.autograd, "_get_sequence_nr", None)
    return _made_old(), [], number() if number is not None else -1


def _made_old() -> int:
    return sum(one["collections"] for one in gc.get_stats()[1:])


def _is_free(node: Any, began: tuple[int, list[Any], int]) -> bool:
    """Whether nothing but gradients comes of a pass over a graph: it is of torch's own functions alone, keeps nothing
    in the place of a tensor, which would be computed anew, and no tensor in it has a hook, or keeps its gradient.

    began: the `_moment` at which the pass began.
    """
    import torch
    from torch.autograd.function import BackwardCFunction

    waiting, seen = [node], {node}
    while waiting:
        current = waiting.pop()
        if isinstance(current, BackwardCFunction) or len(seen) > _NODES or packs(current):
            return False
        for following, _ in current.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    new = began[2] >= 0 and all(one._sequence_nr() >= began[2] for one in seen)
    objects = _objects(began, new)
    # nobody can list what is kept out; where millions are, as in a server that has forked, counting them is slow
    if not (any(one is began[1] for one in objects) if new else not gc.get_freeze_count()):
        return False
    return not any(  # a graph does not tell: tensors are asked
        one.grad_fn in seen
        for one in objects
        if type(one) is torch.Tensor and (one._backward_hooks or one.retains_grad)
    )


def _objects(began: tuple[int, list[Any], int], new: bool) -> list[Any]:
    """The process's objects, of which there may be millions; if `new`, those that were made since a moment, and some
    more, where it is known which they are."""
    whole = sys.version_info >= (3, 14)  # no generation has all that are new
    if whole or not new or _made_old() != began[0]:
        return gc.get_objects()
    return [*gc.get_objects(generation=0), *gc.get_objects(generation=1)]


def _is_mixing(model: Any) -> bool:
    """Whether it has layers that are there to bring places together."""
    return any(_brings_together(name, module) for name, module in model.named_modules())


def _is_whole(module: Any) -> bool:
    """Whether a layer has no parts that are called: torch's attention reads the weights of its own."""
    return next(module.children(), None) is None or type(module).__name__ == "MultiheadAttention"


def _brings_together(name: str, module: Any) -> bool:
    """Whether a layer's name or kind is that of one that brings places together."""
    return any(part in f"{name} {type(module).__name__}".lower() for part in _MIXING)
