"""Another network of the same make as the watched one: a target network, a reference, an average of the weights.

In:   calls of modules in some steps; the watched parameters when a step begins.
Out:  how far the other one is from the watched one, and from where it was at the look before; whether it is called in
      a step, and about what the watched one is trained on; whether it has dropout and is in training mode, or gets
      gradients; whether it normalises by running statistics that nothing was gathered in.

It is looked for where the loss says that there is one, of values of chosen actions or of preferences, and where several
networks are watched at once, as an actor and its critic: a hook on every module's call is in place in a few early
steps, in fewer of any other training, and not at all where anything was compiled. What is found has the same shapes of
parameters as the watched model, or as one of its direct parts, and does not belong to it; or it is a direct part that
is frozen, beside one of the same shapes that is trained. One that is called with
gradients and has some, which may not be those of an earlier training, is said to get them, and followed for a few steps
more: an average of the watched one moves straight towards it.
Some elements of a few matrices are compared on the device; nothing waits.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.activations import dense_tensors
from barograph.probes.model.guest import Guest, before, is_compiled
from barograph.probes.model.parameters import flat, local, mesh_of

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_LISTENS = frozenset({1, 2, 3, 10, 11, 50, 100, 200})  # steps behind which modules are listened to, for one step
_FEW = frozenset({2, 10, 50})  # where nothing says that there is one: a teacher may be
_PASSES = 64  # of the model in a step, behind which nobody waits for its end
_CLOSE = 20  # steps in a row that are looked at, once it is found
_EVERY, _STRIDE = 10, 3  # then one of ten, each time at another place of the ten
_WAITS = 3  # steps for what one that gets gradients is given
_MOVES = 4  # steps that it is followed further
_TENSORS = 4  # parameters of a part that another network's are compared with
_PARAMETERS, _ELEMENTS = 4, 256
_ROWS, _MOST = 64, 1 << 16  # of an input that is compared; its elements
_LAYERS = 4  # of batch norm
NAMES = ("apart", "moved", "same_input", "asked", "unset")


class OtherNetwork:
    """Follows the first such network that is found."""

    def __init__(self, model: Any):
        self._ours = {id(module) for module in model.modules()}
        inner = model.module if type(model).__name__ == "DistributedDataParallel" else model
        children = sorted(inner.children(), key=_learns)  # of two of the same shapes the one that learns
        self._parts = {key: part for part in children if len(key := _key(part)) >= _TENSORS}
        self._frozen = {
            id(part): self._parts[_key(part)] for part in children
            if not _learns(part) and (same := self._parts.get(_key(part))) is not None and _learns(same)
        }  # fmt: skip
        self._ours -= set(self._frozen)
        self._parts[_key(model)] = model
        self._steps, self._looks = 0, 0
        self._before: ModelRound | None = None
        self._wanted = type(model).__name__ in ("ModuleList", "ModuleDict") and len(self._parts) > 2
        self._seen: set[int] = set()
        self._handle: Any = None
        self._root, self._calls = id(model), 0  # passes of it while modules are listened to
        self._found: Any = None  # a weak reference
        self._pairs: list[tuple[Any, Any]] = []
        self._kept: list[Any] = []
        self._asks: Any = None  # a hook on the other one
        self._asked: list[Any] = []  # what it was given in this step
        self._graded = False  # whether it was called with gradients: those that it has may be of an earlier stage
        self._moves = 0  # steps since one was seen to get gradients
        self._drops = False  # whether the other one was called in training mode, with dropout
        self._trained: list[Any] = []  # what the watched one was given there, in passes with gradients
        self._beside: Any = None  # a hook on the part that a frozen part is beside: it says what that is given
        self._norms: list[Any] = []  # of the other one, where they gather nothing
        self._shared = 0  # parameters that both have, and that are frozen
        self._possible = bool(self._parts) and not any(
            type(module).__name__ == "OptimizedModule" or mesh_of(item) is not None
            for module in model.modules()
            for item in module.parameters(recurse=False)
        )

    @property
    def is_found(self) -> bool:
        """Whether there is one."""
        return self._found is not None

    def _listen(self) -> None:
        """Be called by every module, until the next step begins or passes of the model say that none does."""
        import torch

        self._calls = 0
        self._handle = torch.nn.modules.module.register_module_forward_pre_hook(Guest(self._came))

    def _listen_no_more(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle, self._seen = None, set()

    def _came(self, module: Any, given: Any) -> None:
        if id(module) == self._root:
            self._calls += 1
            if self._calls > _PASSES:
                self._listen_no_more()
                return
        if id(module) in self._seen:
            return
        with contextlib.suppress(Exception):
            self._seen.add(id(module))
            if self._found is not None or id(module) in self._ours:
                return
            part = self._parts.get(_key(module))
            if part is not None and not _same(module, part):  # not a wrapper around the watched one
                self._found = weakref.ref(module)
                self._see_gradients()
                if id(module) in self._frozen:
                    part = self._frozen[id(module)]
                    self._beside = before(part, self._give, with_kwargs=True)
                both = list(zip(module.parameters(), part.parameters(), strict=True))
                self._shared = sum(one is ours and not ours.requires_grad for one, ours in both)
                wide = [pair for pair in both if pair[0].dim() > 1]
                self._pairs = wide[:: max(1, len(wide) // _PARAMETERS)][:_PARAMETERS]
                self._asks = before(module, self._ask, with_kwargs=True)

    def _ask(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """The other network is called."""
        self._see_gradients()
        with contextlib.suppress(Exception):
            tensor = next((one for one in dense_tensors((*given, *named.values())) if one.dim()), None)
            self._asked.append(_rows(tensor) if tensor is not None else None)
            self._drops = self._drops or any(
                part.training and "Dropout" in type(part).__name__ and getattr(part, "p", 0) > 0
                for part in module.modules()
            )
            self._norms = [
                part for part in module.modules()
                if "BatchNorm" in type(part).__name__ and not part.training
                and getattr(part, "running_mean", None) is not None
            ][:_LAYERS]  # fmt: skip

    def _give(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """The part that the other one is a copy of is called."""
        import torch

        with contextlib.suppress(Exception):
            tensors = dense_tensors((*given, *named.values())) if torch.is_grad_enabled() else ()
            tensor = next((one for one in tensors if one.dim()), None)
            if tensor is not None:
                self._trained.append(_rows(tensor))

    def _see_gradients(self) -> None:
        import torch

        self._graded = self._graded or torch.is_grad_enabled()

    def given(self, tensors: Sequence[Any]) -> None:
        """The inputs of a pass of the watched network, with gradients."""
        if self._asks is not None and self._beside is None and tensors:
            self._trained.append(_rows(tensors[0]))

    def _same_input(self, home: Any) -> Any:
        """Whether all that the other one was given in this step is what the watched one was trained on; NaN where they
        were given nothing, or nothing that differs from row to row."""
        import torch

        asked, trained, self._asked, self._trained = self._asked, self._trained, [], []
        asked, trained = ([one for one in some if one is not None] for some in (asked, trained))
        if not asked or not trained:
            return torch.full((), torch.nan, device=home)
        same = [
            torch.stack([(one == other).all() & (one != one[:1]).any() for other in trained if one.shape == other.shape]
                        or [torch.zeros((), dtype=torch.bool, device=one.device)]).any().to(home)
            for one in asked
        ]  # fmt: skip
        return torch.stack(same).all().float()

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        self._steps += 1
        before, self._before = self._before, current
        if before is not None and not self._wanted:  # what its graph says has come by now
            asks = {"loss_ranks", "preference_compared"} & before.figures.keys()
            self._wanted = before.figures.get("loss_of_chosen") == 1 or bool(asks)
        self._listen_no_more()
        if self._found is None:
            if self._possible and self._steps in (_LISTENS if self._wanted else _FEW) and not is_compiled():
                self._listen()
            return
        if self._moves:
            self._follow(current)
            return
        trained = self._graded and any(other.grad is not None for other, _ in self._pairs)
        if trained and not (self._asked and self._trained) and self._looks < _WAITS:
            self._looks += 1
            self._asked, self._trained = [], []
            return
        if self._found() is None or trained:
            if trained:
                current.figures["other_gradient"] = 1.0
                current.put("other", ("same_input",), self._same_input(self._pairs[0][0].device).reshape(1))
                self._moves, self._kept = 1, [_some(other).clone() for other, _ in self._pairs]
                self._silence()
            else:
                self._forget()
            return
        self._looks += 1
        if self._looks == 1 and self._shared:
            current.figures["other_shared"] = float(self._shared)
        if self._asks is not None and self._asked:
            current.figures["other_training"] = float(self._drops)
        if self._looks > _CLOSE:
            self._silence()
        ten, place = divmod(self._looks, _EVERY)
        if self._looks > _CLOSE and place != _STRIDE * ten % _EVERY:
            return
        now = [_some(other) for other, _ in self._pairs]
        ours = [_some(part) for _, part in self._pairs]
        home = now[0].device
        size = _squares(ours, home).clamp_min(1e-30)
        apart = _squares([one - other.to(one.device) for one, other in zip(now, ours, strict=True)], home)
        moved = torch.full_like(apart, torch.nan)
        if self._kept:
            moved = _squares([one - other for one, other in zip(now, self._kept, strict=True)], home)
        self._kept = [one.clone() for one in now]
        asked = torch.full((), float(bool(self._asked)) if self._asks is not None else torch.nan, device=home)
        unset = (
            torch.stack(
                [
                    (part.running_mean == 0).all().to(home) & (part.running_var == 1).all().to(home)
                    for part in self._norms
                ]
            ).all()
            if self._norms and self._asks is not None
            else asked * torch.nan
        )
        self._norms = []
        beside = torch.stack([self._same_input(home), asked, unset.to(asked.dtype)])
        current.put("other", NAMES, torch.cat([(torch.stack([apart, moved]) / size).sqrt(), beside]))

    def _follow(self, current: ModelRound) -> None:
        """Of one that gets gradients: the cosine of how it has moved and where the watched one was from it."""
        import torch

        self._moves += 1
        now, ours = ([_some(pair[side]).clone() for pair in self._pairs] for side in (0, 1))
        home = now[0].device
        moved, away = ([one.float() - old.to(one.device).float() for one, old in zip(some, self._kept, strict=True)]
                       for some in (now, ours))  # fmt: skip
        both = torch.stack([(one * two.to(one.device)).sum().to(home) for one, two in zip(moved, away, strict=True)])
        along = both.sum() / (_squares(moved, home) * _squares(away, home)).sqrt()  # NaN of what has not moved
        current.put("other", ("along",), along.reshape(1))
        self._kept = now
        if self._moves > _MOVES:
            self._forget()

    def _forget(self) -> None:
        """It is gone, or all is known of it."""
        self._possible, self._found, self._pairs, self._kept, self._moves = False, None, [], [], 0
        self._silence()

    def _silence(self) -> None:
        """Its inputs have been seen."""
        for handle in (self._asks, self._beside):
            if handle is not None:
                handle.remove()
        self._asks, self._asked, self._trained = None, [], []

    def close(self) -> None:
        """Leave no hook behind."""
        self._silence()
        self._listen_no_more()


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What is recorded, when it has arrived."""
    names, values = numbers.get("other", ((), ((),)))
    return {f"other_{name}": float(value) for name, value in zip(names, values[0], strict=True) if value == value}


def _rows(tensor: Any) -> Any:
    """Some rows of an input, as they are now; None of what has too many numbers."""
    part = tensor.detach()[:_ROWS]
    return part.clone() if part.dim() > 1 and part.numel() <= _MOST else None


def _same(one: Any, other: Any) -> bool:
    """Whether two modules have the same parameters."""
    return [id(item) for item in one.parameters()] == [id(item) for item in other.parameters()]


def _learns(module: Any) -> bool:
    return any(item.requires_grad for item in module.parameters())


def _key(module: Any) -> tuple[Any, ...]:
    return tuple(tuple(item.shape) for item in module.parameters())


def _some(parameter: Any) -> Any:
    line = flat(local(parameter.detach()))
    return line[:: max(1, -(-len(line) // _ELEMENTS))]


def _squares(tensors: list[Any], home: Any) -> Any:
    import torch

    return torch.stack([item.float().square().sum().to(home) for item in tensors]).sum()
