"""The weights with which an evaluation is made, beside those that are trained: an average of them, mostly.

In:   passes without gradients of the watched model, or of another network of the same make, between two steps; the
      trained weights when a step ends.
Out:  figures for the `model` record of the next step; some elements of a few matrices are compared on the device, and
      nothing waits.

Whatever holds the average, a copy of the model, a dictionary that is put into the model for the time, or arguments of
`functional_call`, it is in the layers of what is called. Copies are looked for once, behind the second step, among the
process's objects: a hook on each says when it is called. One on all modules would have torch warn where something is
compiled. Of a copy in a wrapper that has no weights of its own, as a loss around a network, the network itself may be
called.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.probes.model import following, lacking, left_out
from barograph.probes.model.following import BegunCopies, FollowedAverage, moved_between, share_of_way
from barograph.probes.model.guest import after, before, is_compiled
from barograph.probes.model.parameters import mesh_of
from barograph.probes.model.written import Written, some_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_LAYERS = 4  # of batch norm
_SAMPLES = 3  # of the watched model's weights between two steps: its own, the average, its own again
_ROW = 5  # steps in a row with passes without gradients: they are of the training, and no evaluations
_LOOK = 2  # steps, behind which copies are looked for
_COPIES = 256  # of the model that are listened to
_ALONG = 0.1  # of the squared distance, what may be off the line of the last step
NAMES = (
    "apart", "share", "alike", "newest", "whose", "statistics", "moved", "changed", "steps", "unset", *following.NAMES,
    *left_out.NAMES, *lacking.NAMES,
)  # fmt: skip


class WeightSample(NamedTuple):
    """Some elements of a few matrices, one behind the other, the running means of some layers of batch norm, and some
    elements of more parameters."""

    weights: Tensor
    means: Tensor
    more: Tensor


class EvaluatedWeights:
    """Follows what evaluations of one model are made with. called: told of each pass without gradients of a copy, with
    what it is given, and whether that is what the model is given, and not a part of it. answered: of what it
    returns."""

    def __init__(
        self,
        model: Any,
        written: Written,
        called: Callable[[Any, Sequence[Any], bool], None] | None = None,
        answered: Callable[[Any], None] | None = None,
    ):
        self._root = weakref.ref(model)
        self._kind, self._shapes = type(model), _shapes(model)
        norms = [
            path for path, module in model.named_modules()
            if "BatchNorm" in type(module).__name__ and getattr(module, "running_mean", None) is not None
        ]  # fmt: skip
        self._norms = norms[:: max(1, len(norms) // _LAYERS)][:_LAYERS]
        self._ours = {id(module) for module in model.modules()}
        self._handles: list[Any] = []  # of hooks on copies
        self._copies: list[Any] = []  # weak references to these
        self._parts: list[str] = []  # that are called in the model's place
        self._called, self._answered, self._inside = called, answered, 0  # within a call of a copy
        self.listens = False  # whether there are copies that are listened to
        self._steps = self._row = 0
        self._chosen: Sequence[Any] = ()
        self._paths: list[str] = []  # of these, in the model
        self._more: list[str] = []  # of more parameters
        self._now: list[Tensor] = []  # trained weights behind the last step, and behind the one before
        self._then: list[Tensor] = []
        self._first: list[Tensor] = []  # behind the first step
        self._own: dict[Any, WeightSample] = {}  # the watched model's, by what tells whether they are others
        self._other: WeightSample | None = None
        self._whose: Any = None  # a weak reference to the copy that this is of
        self._followed: tuple[Any, FollowedAverage] | None = None  # a copy that was evaluated, and how it moves
        self._begun = BegunCopies()
        self._renewed = False  # whether that was taken while statistics were gathered anew
        self._late = False  # whether the trained weights are not yet what the step leaves
        self._strangers, self._listens = False, False  # whether a copy was called; between two steps
        self._kept: tuple[WeightSample, WeightSample, bool] | None = None  # of the evaluation before
        self._written = written
        whole = not any(
            type(module).__name__ == "OptimizedModule" or any(map(mesh_of, module.parameters(recurse=False)))
            for module in model.modules()
        )
        if whole:
            written.follower = self._ended

    def _ended(self, chosen: Sequence[Any], now: list[Tensor], then: list[Tensor], written: bool = False) -> None:
        """A step is over. chosen: parameters; now and then: some of their elements behind this step and the one
        before. written: whether weights are written behind each step, as of now they are not yet."""
        self._late = written
        with contextlib.suppress(Exception):
            model = self._root()
            if chosen is not self._chosen and model is not None:
                names = {id(item): path for path, item in model.named_parameters()}
                self._chosen = chosen
                self._paths = [names[id(item)] for item in chosen] if all(id(one) in names for one in chosen) else []
                self._more, self._kept, self._first = left_out.paths_of(model), None, []
            usable = bool(self._paths) and len(now) == len(then) == len(self._paths)
            self._now, self._then = (now, then) if usable else ([], [])
            self._first = self._first or self._then
            self._own, self._other, self._strangers = {}, None, False
            self._listens, self._steps = usable, self._steps + 1
            if self._steps == _LOOK and model is not None and not is_compiled():
                self._find(model)

    def _catch_up(self) -> None:
        """What is written behind the step is there."""
        model = self._root()
        if self._late and self._now and model is not None:
            self._now = [some_of(item.detach()).clone() for item in self._items(model)]
        self._late = False

    def _find(self, model: Any) -> None:
        """Listen to the copies of the model: objects of its class refer to it."""
        others = (one for one in gc.get_referrers(self._kind) if type(one) is self._kind and one is not model)
        copies = []
        for one in others:
            with contextlib.suppress(Exception):  # one that is half made, or taken apart
                copies += [one] if id(one) not in self._ours and _shapes(one) == self._shapes else []
        for copy in copies[:_COPIES]:
            self._hear(copy, copy)
            self._begun.made(copy, partial(self._items, copy), partial(self._weights, copy), self._newest)
            inner, key = copy, _key(copy)
            while (inner := next((part for part in inner.children() if _key(part) == key), None)) is not None:
                self._hear(copy, inner)
            self._hear_parts(copy)
        self._copies = [weakref.ref(copy) for copy in copies[:_COPIES]]
        self.listens = bool(copies)

    def follow(self, parts: Sequence[Any]) -> None:
        """The model is not called, but these parts of it: so are those of its copies."""
        model, wanted = self._root(), {id(one) for one in parts if one is not None}
        if model is not None and not is_compiled():
            self._parts = [path for path, one in model.named_modules() if path and id(one) in wanted]
            for copy in (reference() for reference in self._copies):
                self._hear_parts(copy)

    def _hear_parts(self, copy: Any) -> None:
        for path in self._parts if copy is not None else ():
            with contextlib.suppress(Exception):  # of another make
                self._hear(copy, copy.get_submodule(path))

    def _hear(self, copy: Any, part: Any) -> None:
        """Be told of calls of a copy, or of its one part that has all its weights."""
        came = partial(self._came, weakref.ref(copy))
        self._handles += [
            before(part, came, with_kwargs=True),
            after(part, self._went, always_call=True),
        ]

    def passed(self, trains: bool) -> None:
        """The watched model is called."""
        model = self._root()
        if trains:
            self._listens = False
        elif model is not None and self._now and len(self._own) < _SAMPLES:
            with contextlib.suppress(Exception):
                self._catch_up()
                items = [_item(model, path) for path in self._paths]
                weights, renews = tuple((id(item), item._version) for item in items), self._gathers(model)
                if (weights, False) in self._own or (weights, renews) in self._own:
                    return
                self._own.pop((weights, True), None)
                self._own[weights, renews] = self._sample(model)

    def _came(self, copy: Any, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """A copy is called."""
        self._inside += 1
        with contextlib.suppress(Exception):
            import torch

            whole = copy()
            if self._inside > 1 or torch.is_grad_enabled() or whole is None or self._takes_means(whole):
                return
            if self._called is not None:
                self._called(module, (*given, *named.values()), module is whole)
            if not self._listens:
                return
            self._catch_up()
            self._strangers, renews = True, self._gathers(whole)
            if self._other is None or (self._renewed and not renews):
                self._other, self._renewed, self._whose = self._sample(whole), renews, copy

    def _takes_means(self, copy: Any) -> bool:
        """Whether its batch norm takes plain means of what it is given: statistics are made anew for an average."""
        norms = [copy.get_submodule(path) for path in self._norms]
        return any(norm.training and norm.momentum is None for norm in norms)

    def _went(self, module: Any, given: Any, output: Any) -> None:
        self._inside = max(0, self._inside - 1)
        if not self._inside and self._answered is not None:
            with contextlib.suppress(Exception):  # of another make
                self._answered(output)

    def _gathers(self, model: Any) -> bool:
        """Whether a pass moves the running statistics, and is not made with them: before an evaluation of an average,
        all of the training's batches may go through it for that, as with `update_bn`."""
        return any(model.get_submodule(path).training for path in self._norms)

    def _sample(self, model: Any) -> WeightSample:
        import torch

        home, weights = self._now[0].device, self._weights(model)
        means = [model.get_submodule(path).running_mean.detach().float().to(home) for path in self._norms]
        more = left_out.sample(model, self._more, _item, home)
        return WeightSample(weights, torch.cat(means) if means else weights[:0], more)

    def _items(self, model: Any) -> list[Any]:
        return [_item(model, path) for path in self._paths]

    def _weights(self, model: Any) -> Tensor:
        import torch

        home = self._now[0].device
        return torch.cat([some_of(one.detach()).float().to(home) for one in self._items(model)])

    def _newest(self) -> Tensor:
        return self._line(self._now)

    def _line(self, some: Sequence[Tensor]) -> Tensor:
        import torch

        home = self._now[0].device
        return torch.cat([one.float().to(home) for one in some])

    def _move(self, passed: WeightSample | None) -> Tensor | None:
        """Follow the copy that is evaluated. passed: what an evaluation before this step was made with; then what is
        known since the evaluation before."""
        reference = self._whose if passed is not None else self._followed[0] if self._followed is not None else None
        copy = reference() if reference is not None else None
        if copy is None:
            return None
        weights = partial(self._weights, copy)
        if passed is None and self._followed is not None:
            self._followed[1].step(weights, self._newest)
        elif self._followed is not None and self._followed[0] is reference and passed is not None:
            return self._followed[1].figures(passed.weights, weights, self._newest)
        elif passed is not None:
            self._followed = reference, FollowedAverage(weights())
        return None

    def rested(self) -> None:
        """The next step begins, and is not looked at: no copy is known, and nothing was evaluated."""
        self._row = 0

    def put(self, current: ModelRound) -> None:
        """The next step begins."""
        self._listens = False
        own, other, held = list(self._own.values()), self._other, self._own
        self._own, self._other = {}, None
        model = self._root()
        self._row = self._row + 1 if own or other else 0
        if self._row >= _ROW:
            self._compare_no_more()  # copies are heard all the same: an evaluation has more passes than a step
        if not self._now or model is None:
            return
        moves = None
        with contextlib.suppress(Exception):
            self._catch_up()
            moves = self._move(other)
        if not (own or other):
            return
        with contextlib.suppress(Exception):
            alone = bool(self._handles) and not self._strangers  # one made later may be called unheard
            figures = self._figures([other] if other else own, model, other is not None, alone, moves)
            used = [one for (_, renews), one in held.items() if not renews] if other is None else []
            used = [other] if other is not None and not self._renewed else used
            if used and self._norms:
                figures[NAMES.index("unset")] = self._unset(used, model)
            current.put("evaluated_weights", NAMES, figures)
            copy = self._whose() if other is not None and self._whose is not None else None
            begun = self._begun.figures(copy, partial(self._items, copy), other and other.weights, self._newest)
            if begun is not None:
                current.put("evaluated_begun", following.BEGUN, begun)

    def _figures(
        self, samples: list[WeightSample], model: Any, other: bool, alone: bool, moves: Tensor | None
    ) -> Tensor:
        import torch

        home, now, then = self._now[0].device, self._newest(), self._line(self._then)
        each = torch.stack([one.weights for one in samples])
        which = (each - now).square().sum(1).argmax(keepdim=True)  # no copy of the trained ones, if there is another
        evaluated = each.index_select(0, which)[0]
        every = zip(*(one[1:] for one in samples), strict=True)
        means, more = (torch.stack(some).index_select(0, which)[0] for some in every)
        theirs = WeightSample(evaluated, means, more)
        away, back = evaluated - now, then - now
        apart = away.norm() / now.norm().clamp_min(1e-30)
        blank = torch.full_like(apart, -1.0)
        ours = self._sample(model)._replace(weights=now)
        moved = changed = statistics = blank
        left = torch.stack([blank] * len(left_out.NAMES))
        if self._kept is not None and self._kept[2] == other:
            before, own, _ = self._kept
            pair = torch.stack((before.more, theirs.more)), torch.stack((own.more, ours.more))
            left = left_out.figures(*pair, share_of_way(evaluated - before.weights, now - before.weights))
            moved, changed = (now - own.weights).norm(), (evaluated - before.weights).norm()
            between = moved_between(before.weights, evaluated, now)
            if moves is None or not other:
                moves = between
            else:  # of a copy that moves otherwise than an average does, as one in 16 bits
                moves = torch.where(moves[1] < 0, torch.cat((between[:2], moves[2:])), moves)
            if len(ours.means):
                statistics = ((theirs.means == before.means).all() & (ours.means != own.means).any()).float()
        self._kept = theirs, ours, other
        sizes = [len(one) for one in self._now]
        pairs = zip(*(torch.split(line, sizes) for line in (evaluated, now)), strict=True)
        shares = torch.stack([(one * mine).sum() / mine.square().sum().clamp_min(1e-30) for one, mine in pairs])
        part = (away * back).sum() / back.square().sum().clamp_min(1e-30)  # 1 less the share of the newest weights
        along = (away - part * back).square().sum() <= _ALONG * away.square().sum()
        newest = torch.where(along & (apart > 0), 1 - part, blank)
        whose = torch.full_like(apart, 2.0 if other else float(alone))
        alike = shares.amax() - shares.amin()
        moves = torch.stack((blank, blank, blank)) if moves is None else moves.to(home)
        steps = torch.full_like(apart, float(self._steps))
        here = torch.stack((apart, shares.mean(), alike, newest, whose, statistics, moved, changed, steps, blank))
        return torch.cat((here, moves, left, lacking.figures(self._line(self._first), now, evaluated, sizes)))

    def _unset(self, used: Sequence[WeightSample], model: Any) -> Any:
        """Whether batch norm's running means were 0, as torch makes them, in what evaluations were made with, and are
        not in the model that is trained."""
        import torch

        theirs = torch.stack([(one.means == 0).all() for one in used]).all()
        return (theirs & (self._sample(model).means != 0).any()).float()

    def _compare_no_more(self) -> None:
        if self._written.follower == self._ended:
            self._written.follower = None
        self._paths, self._now, self._listens, self._followed = [], [], False, None

    def close(self) -> None:
        """Leave no hook behind."""
        self._compare_no_more()
        for handle in self._handles:
            handle.remove()
        self._handles, self.listens = [], False


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What is recorded, when it has arrived."""
    found = [numbers.get(family, ((), ((),))) for family in ("evaluated_weights", "evaluated_begun")]
    every = ((name, value) for names, values in found for name, value in zip(names, values[0], strict=True))
    return {f"evaluated_{name}": float(value) for name, value in every}


def _shapes(module: Any) -> tuple[Any, ...]:
    return tuple(tuple(item.shape) for item in module.parameters())


def _key(module: Any) -> tuple[int, ...]:
    return tuple(id(item) for item in module.parameters())


def _item(model: Any, path: str) -> Any:
    place, _, name = path.rpartition(".")
    return getattr(model.get_submodule(place), name)
