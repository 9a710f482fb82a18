"""What a loss makes of a model's output, told from the gradient that the output gets; what evaluations are given.

In:   inputs and output of forward passes, the gradient of the output.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

The gradient of a cross-entropy shows whether a softmax follows, and each row's target (`softmaxes`). That of a mean
square is c (output − target): where targets differ and it is a line over the output all the same, every output was
compared with every target. Where the graph of the loss says that it is nothing but the mean square of n outputs, c is
2 / n, and the targets are known; where it is a multiple of that, f times as large, the loss is f times the mean square
as well, and f follows from both.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from barograph.probes.model import classes, entrance, leaks, noising, places, reconstruction, softmaxes, squares, texts
from barograph.probes.model.behind_noise import Noised
from barograph.probes.model.given import GivenInputs
from barograph.probes.model.guest import Guest
from barograph.probes.model.judged import JudgedTexts
from barograph.probes.model.loss_graph import root_of_pass
from barograph.probes.model.masked_rows import TEXTS, with_masked
from barograph.probes.model.objective import plain_kind, smoothing
from barograph.probes.model.parameters import mesh_of
from barograph.probes.model.prompts import Asked
from barograph.probes.model.rows import NOTHING, as_read, is_read, place_of
from barograph.probes.model.side_texts import SideTexts, text_beside
from barograph.probes.model.trained_passes import left_out

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound
    from barograph.probes.model.rows import Embedded
    from barograph.probes.model.softmaxes import Softmax

_ROWS, _ELEMENTS = 64, 1 << 16  # that are looked at, at most
_SHORT, _LONG = 4, 8  # places of a text: of one that is cut off, at least; of one whose targets are compared with it
_FIRST, _EVERY = 8, 10  # the first steps, and then one of ten
_STRIDE = 7  # another of the ten each time: an epoch of fifty steps is seen at all its places
_CLOSE, _APART = 100, 30  # on a device, a look is a thousand small kernels: the first steps, then one of thirty
_NUMBERS = 64  # tokens: mean and deviation of fewer are chance
_CLASSES = 1000  # more are a vocabulary, in which batches of one target say nothing
_INPUTS = 3  # of a model, that may be what its targets are shifted from: a decoder has two
_DEVIATIONS = 5.0  # of a share that is drawn
_FEW = 16  # rows in which two softmaxes are looked for
_WHOLE_EACH = 3  # looks: then all is said of a text
_WHOLE = 1 << 20  # elements of a gradient that is looked at whole, in the first steps
_COUNTED = 1 << 22  # elements on the CPU in which rows with a target are counted
FIGURES = ("softmax_twice", "sigmoid_twice", "output_spread", "logit_spread", "logit_range", "top_target",
           "top_target_share", "broadcast_target", "output_size", "target_weight", "noise_floor",
           "wrong_share", "wrong_rank", "wrong_sure", "dropped_outputs", "untargeted_rows", "output_unused",
           "targets_elsewhere", "targets", "places",
           "padding_targets", "padded_apart", "targets_given", "targets_encoded", "hidden_targets", "square_weight",
           "half_silent", "output_scale", "pairs_range", *texts.ENDS)  # fmt: skip
_RANGES = {"Sigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0), "Tanh": (-1.0, 1.0), "Relu": (0.0, math.inf)}
_AT = {name: place for place, name in enumerate(FIGURES)}


class OutputLook:
    """Looks at one forward pass of some steps."""

    def __init__(self) -> None:
        self.timed: Callable[[Callable[..., None]], Callable[..., None]] = lambda hook: hook
        self._steps = self._passes = self._left_out = 0  # of a step's passes; see `trained_passes.left_out`
        self.due = self._reached = True
        self._found: Tensor | None = None
        self._texts: Tensor | None = None
        self._second, self._judged = SideTexts(), JudgedTexts()
        self._pairs: Tensor | None = None  # of neighbouring tokens
        self.inputs = GivenInputs()
        self._tokens: list[Tensor] = []  # of a batch, whole
        self._asked = Asked()
        self._given_classes: Tensor | None = None  # of examples
        self._numbers: Tensor | None = None  # mean and deviation of the first of these
        self._places: list[Any] = []  # where they were
        self._classes: Tensor | None = None  # targets by class
        self._logistic: Tensor | None = None  # the same, where each number has a logistic loss
        self._of_places = False  # whether these are of places, of which a row has many
        self._targets: Tensor | None = None  # of a mean square
        self._noised = Noised()
        self._placed: Tensor | None = None
        self._rebuilt: Tensor | None = None  # of targets that are the inputs
        self._given: list[Tensor] = []  # of the pass that is looked at
        self._returned = [0]  # outputs of a pass so far
        self._unused: list[int] | None = None  # see `_beside`
        self._elsewhere = False  # whether the output is on a device
        self._alone = False  # whether the loss itself is what the model gives
        self._round: ModelRound | None = None  # of the step before: it knows what the loss is

    def given(self, tensors: Iterable[Tensor], trains: bool) -> None:
        """The inputs of a pass."""
        tensors, self._returned = list(tensors), [0]
        self._given = tensors if trains and self.due else []
        if trains and self.due:
            numbers = (one for one in tensors if one.dim() == 2 and not one.is_floating_point())
            whole = (one for one in numbers if one.shape[1] >= _SHORT and mesh_of(one) is None)  # no rank asks others
            some = [one for _, one in zip(range(_INPUTS), whole, strict=False)]
            self._tokens, self._places = [one[:_ROWS].clone() for one in some], [place_of(one) for one in some]
            if self._tokens and self._tokens[0].numel() >= _NUMBERS:
                self._numbers = entrance.of_tokens(self._tokens[0])
            self._given_classes = entrance.of_classes(tensors)
        self.inputs.given(tensors, trains, self.due)

    def returned(self, output: Any, tensor: Any, embedded: Embedded = NOTHING, in_pieces: bool = False) -> None:
        """The output of a pass with gradients. tensor: what the loss is of. embedded: tensors that were embedded.
        in_pieces: it is one of several of the pass."""
        pieces = self._returned
        pieces[0] += 1 + in_pieces
        self._passes += pieces[0] <= 1 + in_pieces
        inputs, self._given = self._given, []
        if not self.due or self._passes <= self._left_out:
            return
        if tensor is None or not tensor.requires_grad or tensor.is_sparse or mesh_of(tensor) is not None:
            return
        self.due, self._reached, self._elsewhere = False, False, tensor.device.type != "cpu"
        if not tensor.dim():
            self._alone = True
            return  # a loss, and what it is of is not known
        rows = _rows(tensor.detach()).clone()  # it may be changed in place
        side = text_beside(output, tensor, self._tokens)
        if side is not None:
            self._second.follow(side, *self._read(self._tokens, embedded, side)[:2], self.timed)
        rowed, self._tokens = self._tokens if tensor.dim() == 3 else [], []
        given, fed, several = self._read(rowed, embedded, tensor)
        squared, made = self._round.squared if self._round is not None else None, plain_kind(tensor.grad_fn)
        count = tensor.numel() if squared is not None and squared[:2] == (tensor.numel(), made) else 0
        multiple = count > 0 and squared is not None and squared[2]
        signs = self._round is not None and not self._round.differences
        noisy = noising.noisy_input(inputs, tensor)
        copied = reconstruction.input_of(inputs, tensor)
        part = noising.some(tensor.detach()).clone() if noisy is not None or copied is not None else rows
        alike = tensor.dim() == 2 and any(one.dim() and len(one) == len(tensor) for one in inputs)
        self._unused = _beside(output, tensor)
        square = places.side_of(tensor) if places.has_places(tensor) else 0
        placed = places.some(tensor.detach(), square).clone() if square else None
        pictures = places.input_of(inputs, tensor) if placed is not None else None
        columns = leaks.columns_of(inputs, tensor) if self._steps <= _FIRST else None
        shown = leaks.some(tensor).clone() if columns is not None else rows
        tagged = classes.some(tensor.detach()).clone() if classes.are_named(tensor) and tensor.dim() > 2 else None

        def arrived(gradient: Tensor) -> None:
            import torch

            self._reached = True
            with contextlib.suppress(Exception), torch.no_grad():
                self._judged.look(rowed, given, fed, gradient, _rows, rows)
                gradient = softmaxes.one_sided(gradient) if rowed else gradient
                self._found, found = _figures(rows, _rows(gradient), _smoothed(), made != "Addmm")
                self._classes = self._logistic = self._texts = self._pairs = self._rebuilt = None
                if gradient.is_cuda or gradient.numel() <= _COUNTED:
                    self._of_rows(rows, gradient, found, rowed, pieces[0] == 1)
                    if several:
                        for name in ("tail_untold", "padded_apart"):
                            self._found[_AT[name]].fill_(math.nan)
                if alike and found is not None:
                    self._found[_AT["untargeted_rows"]] = _untargeted(rows, _rows(gradient), found.follows)
                if self._unused is not None:
                    self._found[_AT["output_unused"]] = _proportional(rows, _rows(gradient))
                if given and found is not None:
                    all_of_it = self._steps <= _FIRST or not self._steps // _EVERY % _WHOLE_EACH
                    if self._steps <= _FIRST and gradient.numel() <= _WHOLE:
                        self._found[_AT["targets_elsewhere"]] = texts.elsewhere(given[0], gradient, found.follows)
                    said, self._pairs = texts.figures(given, fed, gradient, found, all_of_it)
                    self._texts = with_masked(said, given[0], gradient, found.follows).to(self._found.dtype)
                whole = gradient
                if multiple:
                    gradient, self._found[_AT["square_weight"]] = squares.undone(gradient, count)
                if columns is not None:
                    leaked = _given(columns, shown, leaks.some(gradient), count, found)
                    for name, value in zip(("targets_given", "targets_encoded"), leaked, strict=True):
                        self._found[_AT[name]] = value.to(self._found.dtype)
                if count:
                    self._targets = squares.targets(rows, _rows(gradient), count, _RANGES.get(made))
                if noisy is not None:
                    self._noised.look(noisy, part, noising.some(gradient), count)
                if copied is not None:
                    self._rebuilt = reconstruction.figures(copied, part, noising.some(gradient), _RANGES.get(made))
                if placed is not None:
                    self._placed = places.figures(placed, places.some(gradient, square), pictures, count, signs)
                self._count(rows, whole, tagged, found)

        self._of_places = tagged is not None
        tensor.register_hook(Guest(self.timed(arrived)))

    def _read(self, rowed: list[Tensor], embedded: Embedded, output: Tensor) -> tuple[list[Tensor], list[bool], bool]:
        """Texts that are read, as long as the output, given or embedded; which were embedded; whether several were."""
        fed = [place in embedded for place in self._places]
        sure = [not at or is_read(place, embedded) for at, place in enumerate(self._places)]
        long = [at for at, one in enumerate(rowed) if sure[at] and one.shape[1] >= _LONG <= output.shape[1]]
        given = [as_read(rowed[at].long(), self._places[at], {} if fed[at] else embedded) for at in long]
        return given, [fed[at] for at in long], sum(fed) > 1

    def _of_rows(
        self, rows: Tensor, gradient: Tensor, found: Softmax | None, rowed: list[Tensor], complete: bool
    ) -> None:
        """Which rows have a target. rowed: tokens. complete: this output is all of the loss, and no piece."""
        import torch

        assert self._found is not None
        if rows.shape[1] == 1 < gradient.numel():
            self._found = _of_all(self._found, (gradient < 0).to(self._found.dtype).mean())
        width = 1 if gradient.dim() > 3 else -1
        # no abs(): of a language model's logits a copy may be more than the device has left
        alive = (gradient.amax(width) != 0) | (gradient.amin(width) != 0)
        if complete:
            self._found[_AT["targets"]] = alive.sum()
            self._found[_AT["places"]].fill_(alive.numel())  # a number that is assigned is waited for
            self._found[_AT["half_silent"]] = texts.half_silent(alive)
        same = [one for one in rowed if one.shape == alive[:_ROWS].shape]
        if same and found is not None:
            padding = texts.of_padding(same[0], gradient[:_ROWS], alive[:_ROWS], found.below)
            self._found[_AT["padding_targets"]] = padding
            apart = texts.padded_apart(same[0], gradient[:_ROWS], alive[:_ROWS], found.below)
            self._found[_AT["padded_apart"]] = torch.where(found.follows, apart, math.nan)
            for name, value in zip(texts.ENDS, texts.of_ends(same[0], alive[:_ROWS], self._asked), strict=True):
                self._found[_AT[name]] = value

    def _count(self, rows: Tensor, gradient: Tensor, tagged: Tensor | None, found: Softmax | None) -> None:
        """Count targets by class. tagged: outputs of places, where a row has many."""
        if tagged is not None:
            self._classes = classes.of_places(tagged, classes.some(gradient))
        elif classes.are_named(gradient) and found is not None:
            self._classes = classes.of_rows(found, rows, _rows(gradient))
        if gradient.dim() == 2 and (gradient.shape[1] == 1 or classes.are_named(gradient)):
            self._logistic = classes.logistic(rows, _rows(gradient))

    def put(self, current: ModelRound) -> None:
        """A step begins: what its passes have shown."""
        if self._found is not None:
            if self._unused:
                self._found[_AT["output_unused"]].fill_(math.nan)
            current.put("output", FIGURES, self._found)
        if self._found is not None or self._alone:
            current.figures["passes"] = float(self._passes)
        if self._texts is not None:
            current.put("texts", TEXTS, self._texts)
        if self._pairs is not None:
            current.put("neighbours", texts.PAIRS, self._pairs)
        if self._classes is not None:
            family = "classes_of_places" if self._of_places else "classes"
            current.put(family, tuple(map(str, range(self._classes.shape[1]))), self._classes)
        if self._logistic is not None:
            current.put("logistic_classes", tuple(map(str, range(self._logistic.shape[1]))), self._logistic)
        if self._targets is not None:
            current.put("targets", squares.TARGETS, self._targets)
        self._noised.put(current)
        if self._placed is not None:
            current.put("placed", places.FIGURES, self._placed)
        if self._rebuilt is not None:
            current.put("rebuilt", reconstruction.FIGURES, self._rebuilt)
        self._second.put(current)
        self._judged.put(current)
        self.inputs.put(current)
        if self._given_classes is not None:
            current.put("classes_of_inputs", entrance.CLASSES, self._given_classes)
            self._given_classes = None
        if self._numbers is not None:
            current.put("tokens_of_training", entrance.TOKENS, self._numbers)
            self._numbers = None
        self._found = self._classes = self._targets = None
        self._logistic = self._texts = self._pairs = self._placed = self._rebuilt = None
        self._left_out = left_out(self._left_out, self._passes, self.due, self._reached or self._alone)
        self._round, self._alone, self._reached, self._passes = current, False, True, 0
        self._steps += 1
        every = _APART if self._elsewhere and self._steps >= _CLOSE else _EVERY
        number, place = divmod(self._steps, every)
        self.due = self._steps < _FIRST or place == _STRIDE * number % every


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What of a round's columns is recorded: numbers that could be said of this output."""
    found: dict[str, float] = {}
    families = {
        "output": "",
        "texts": "",
        "side": "side_",
        "judged": "",
        "rebuilt": "",
        "targets": "",
        "noise": "",
        "placed": "",
        "loss_itself": "loss_",
        "given": "",
        "time": "",
        "dependence": "",
        "entrance": "",
        "modes": "",
        "inputs_of_training": "input_",
        "inputs_of_evaluation": "eval_input_",
        "answers": "answer_",
        "tokens_of_training": "token_",
        "classes_of_inputs": "input_",
    }
    for family, prefix in families.items():
        names, values = numbers.get(family, ((), ((),)))
        found |= {prefix + name: float(value) for name, value in zip(names, values[0], strict=True)}
    weight, targets = (found.pop(name, math.nan) for name in ("target_weight", "targets"))
    if weight * targets == weight * targets:
        scale = numbers.get("loss_scale", ((), ((1.0,),)))[1][0][0]
        found |= {"targets": targets, "loss_weight": weight * targets / float(scale)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def figures(output: Tensor, gradient: Tensor) -> Tensor:
    """`FIGURES` of rows of an output and its gradient [n, k], NaN where there is nothing to say."""
    return _figures(output, gradient)[0]


def _smoothed() -> float:
    """How much of its labels the loss whose pass is running smooths, as far as its graph says it."""
    found = 0.0
    with contextlib.suppress(Exception):  # a node of another make says nothing
        root = root_of_pass()
        found = smoothing(root).get("label_smoothing", 0.0) if root is not None else 0.0
    return found


def _logit_spread(output: Tensor) -> Tensor:
    """How much the logits of rows [n, k] differ from row to row, of their size: what is common to all classes of a row
    says nothing to a softmax."""
    apart = output - output.mean(1, keepdim=True)
    return (apart - apart.mean(0)).square().mean().sqrt() / apart.square().mean().sqrt()


def _figures(output: Tensor, gradient: Tensor, smooth: float = 0, cosine: bool = True) -> tuple[Tensor, Softmax | None]:
    import torch

    exact = output.dtype in (torch.float32, torch.float64) and gradient.dtype in (torch.float32, torch.float64)
    within = softmaxes.EXACT if exact else softmaxes.HALF
    wide = torch.float32 if output.device.type == "mps" else torch.float64
    output, gradient = output.to(wide), gradient.to(wide)
    count, width = output.shape
    nothing, found = output.new_full((), math.nan), None
    result = dict.fromkeys(FIGURES, nothing)
    bounded = ((output >= 0) & (output <= 1)).all()
    rms = output.square().mean().sqrt()
    if count >= 8:
        result["output_spread"] = (output - output.mean(0)).square().mean().sqrt() / rms
    if width > 1 and count >= 4:
        found = softmaxes.find(output, gradient, within, smooth)
        if count >= 8:
            result["logit_spread"] = torch.where(found.follows, _logit_spread(output), nothing)
        result["target_weight"] = torch.where(found.follows, found.weight.nanmedian(), nothing)
        ranges = (output.amax(1) - output.amin(1)).median()
        result["logit_range"] = torch.where(found.follows, ranges, nothing)
        sums = ((output.sum(1) - 1).abs() < within).all()
        few = output[:_FEW], gradient[:_FEW]
        twice = bounded & sums & (found.follows | softmaxes.exponential(*few, within))
        if exact:
            twice = twice | (~found.follows & softmaxes.twice(*few))
        result["softmax_twice"] = torch.where(found.follows | twice, twice.to(wide), nothing)
        result["output_scale"] = softmaxes.scale(output, gradient, within, cosine, found.follows | twice)
        hidden = softmaxes.hidden(output, found.target, found.alive)
        result["hidden_targets"] = torch.where(found.plain, hidden, nothing)
        if width <= _CLASSES:  # smoothed labels give each class a share on purpose
            result["noise_floor"] = torch.where(found.plain, softmaxes.floor(output), nothing)
        if 4 <= width <= _CLASSES and count >= 16:
            shares = softmaxes.wrong(output, found.target, found.alive)
            for name, value in zip(("share", "rank", "sure"), shares, strict=True):
                result[f"wrong_{name}"] = torch.where(found.plain, value, nothing)
        if 2 <= width <= _CLASSES and count >= 8:
            counts = torch.zeros(width, dtype=wide, device=output.device)
            counts.index_add_(0, found.target, found.alive.to(wide))
            share, top = counts.max(0)
            result["top_target"] = torch.where(found.follows, top.to(wide), nothing)
            result["top_target_share"] = torch.where(found.follows, share / found.alive.to(wide).sum(), nothing)
        dropped = _dropped(output)
        result["dropped_outputs"] = torch.where(found.follows & (dropped > 0), dropped, nothing)
    if count == width >= 8:  # all with all: each softmax over them gives back as much as it takes
        even = gradient.sum().abs() <= 0.02 * within * gradient.abs().sum()
        result["pairs_range"] = torch.where(even, (output.amax(1) - output.amin(1)).amax(), nothing)
    if count * width >= 16:
        result["output_size"] = torch.where(result["softmax_twice"].isfinite(), nothing, rms)
        miss = torch.sigmoid(output) - (gradient < 0).to(wide)
        scale, known = gradient / miss, miss.amax() - miss.amin() > within * miss.abs().amax()  # else: a mean's, too
        logistic = known & (scale.amin() > 0) & (scale.amax() - scale.amin() <= within * scale.amax())
        result["sigmoid_twice"] = torch.where(logistic, bounded.to(wide), nothing)
        if found is not None:
            result["dropped_outputs"] = torch.where(logistic & (dropped > 0), dropped, result["dropped_outputs"])
        if width == 1 and count >= 16:
            share = (gradient < 0).to(wide).mean()
            result["top_target"] = torch.where(logistic, (share > 0.5).to(wide), nothing)
            result["top_target_share"] = torch.where(logistic, torch.maximum(share, 1 - share), nothing)
    if width == 1 and count >= 8:
        result["broadcast_target"] = squares.line_of(output[:, 0], gradient[:, 0], squares.LINE if exact else 0.0)
    whole = output.sum().isfinite() & gradient.sum().isfinite()  # of what is NaN no comparison holds, nor its contrary
    return torch.where(whole, torch.stack([result[name] for name in FIGURES]), nothing), found


def _of_all(found: Tensor, share: Tensor) -> Tensor:
    """Where a logistic loss follows: the more frequent target of all rows, of which this share is 1. Some rows may be
    one side of a batch, such as all that are 1."""
    import torch

    for name, value in (("top_target", (share > 0.5).to(share.dtype)), ("top_target_share", share.maximum(1 - share))):
        found[_AT[name]] = torch.where(found[_AT[name]].isfinite(), value, torch.nan)
    return found


def _beside(output: Any, tensor: Tensor) -> list[int] | None:
    """Of another output with gradient and a number for each row: an empty list, which has something in it once a
    gradient has come to it. None where there is no such output."""
    others = output if isinstance(output, (tuple, list)) else ()
    other = next((one for one in others if one is not tensor and getattr(one, "requires_grad", False)), None)
    if other is None or tuple(other.shape) != (len(tensor),) or tensor.dim() < 2:
        return None
    came: list[int] = []
    other.register_hook(Guest(lambda gradient: came.append(1)))
    return came


def _untargeted(output: Tensor, gradient: Tensor, follows: Tensor) -> Tensor:
    """The share of rows without gradient, but for those that the model is as sure of as a number can say."""
    import torch

    sure = torch.softmax(output.double() if output.device.type != "mps" else output, 1).amax(1) > 1 - 1e-6
    share = ((gradient == 0).all(1) & ~sure).to(torch.float32).mean()
    return torch.where(follows, share, torch.nan)


def _dropped(output: Tensor) -> Tensor:
    """The share of outputs that are exactly 0, beside others above and below 0, where it is the same in all columns and
    all rows but for chance, and each is 0 or not whatever the others of its row are; 0 else."""
    zero = (output == 0).to(output.dtype)
    count, width = zero.shape
    share = zero.mean()
    even = (share * (1 - share)).sqrt() * _DEVIATIONS
    same = ((zero.mean(0) - share).abs() <= even / math.sqrt(count)).all()
    same = same & ((zero.mean(1) - share).abs() <= even / math.sqrt(width)).all()
    some = (zero[:1] != zero).any() & (output > 0).any() & (output < 0).any()
    # rows that are 0 as a whole lost what was before the last layer, as nodes of a graph whose neighbours are dropped
    whole = share**width
    most = whole + (whole * (1 - whole) / count).sqrt() * _DEVIATIONS
    return share * (same & some & ((zero.sum(1) == width).to(output.dtype).mean() <= most))


def _proportional(output: Tensor, gradient: Tensor) -> Tensor:
    """Whether the gradient is one multiple of the output, above 0."""
    import torch

    wide = torch.float32 if output.device.type == "mps" else torch.float64
    output, gradient = output.to(wide), gradient.to(wide)
    slope = (output * gradient).sum() / output.square().sum()
    off = (gradient - slope * output).square().sum()
    return ((slope > 0) & (off <= squares.LINE**2 * gradient.square().sum())).to(wide)


def _given(
    columns: Tensor, output: Tensor, gradient: Tensor, count: int, found: Softmax | None
) -> tuple[Tensor, Tensor]:
    """The share of the targets that are among the inputs, and that of rows in which a column that is made of them says
    one of two, where these are known; NaN else. count: of a mean square."""
    import torch

    wide = torch.float32 if output.device.type == "mps" else torch.float64
    output, gradient = output.to(wide), gradient.to(wide)
    nothing = output.new_full((), math.nan)
    if count:
        return leaks.share(columns, output - gradient * (count / 2)), nothing
    if found is not None and len(found.target) == len(columns):
        known, target = found.plain & found.alive.all(), found.target.to(wide)
        two = leaks.encoded(columns, target) if output.shape[1] == 2 else nothing
        return torch.where(known, leaks.of_classes(columns, target), torch.nan), torch.where(known, two, torch.nan)
    scale = gradient / (torch.sigmoid(output) - (gradient < 0).to(wide))
    logistic = (scale.amin() > 0) & (scale.amax() - scale.amin() <= 2e-3 * scale.amax())
    if gradient.shape[1] != 1:
        return nothing, nothing
    target = (gradient[:, 0] < 0).to(wide)
    said, two = leaks.of_classes(columns, target), leaks.encoded(columns, target)
    return torch.where(logistic, said, torch.nan), torch.where(logistic, two, torch.nan)


def _rows(tensor: Tensor) -> Tensor:
    """Some rows [n, k] of an output: classes are its last dimension, of a picture's points the second."""
    if tensor.dim() < 2:
        return tensor.reshape(-1, 1)[:_ROWS]
    if tensor.dim() > 3:
        tensor = tensor.movedim(1, -1)
    most = max(4, min(_ROWS, _ELEMENTS // tensor.shape[-1]))
    if tensor.dim() == 3 and len(tensor) * tensor.shape[1] > most:
        return tensor[_spaced(tensor, most)]
    some = (slice(None, most), *(slice(None, None, max(1, size // 2)) for size in tensor.shape[1:-1]))
    return tensor[some].reshape(-1, tensor.shape[-1])[:most]


def _spaced(tensor: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Rows and places of texts at even distances, of which no place is left out: those with targets may be a few."""
    import torch

    count = len(tensor) * tensor.shape[1]
    stride = count // most
    while math.gcd(stride, tensor.shape[1]) > 1:
        stride -= 1
    chosen = torch.arange(most, device=tensor.device) * stride
    return chosen // tensor.shape[1], chosen % tensor.shape[1]
