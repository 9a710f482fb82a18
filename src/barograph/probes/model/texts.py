"""What the targets of texts have to do with the tokens that a model is given, and in which direction a text is read.

In:   the tokens of a pass [rows, places], or [places, rows]; the gradient of the output, which shows the targets.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

Of a language model the targets are the tokens of the next places, in one of the two dimensions: along it the text is
read. Neighbouring tokens of a text depend on each other. Tokens are put into 16 classes by chance, and pairs of
neighbours are counted over all looks: what one says of the other is known to a hundredth of a nat within thousands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model.padding import tails
from barograph.probes.model.prompts import Asked, answer_begins, answer_late, prompt_told

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.softmaxes import Softmax

_TOKENS = 32  # places of a sequence whose targets are compared with its inputs
_PLACES = 1 << 17  # elements of the gradient, of as many sequences
_SHIFTS = (1, 0, 2, 3)  # places by which a target may be ahead of its input
_BEHIND = -2.0  # said of targets that are one place behind
_ROWS, _LONGEST = 64, 256  # rows, and places of each, whose neighbours are counted
_CLASSES, _FACTOR = 16, 0x9E3779B97F4A7C15 - (1 << 64)  # of tokens; 2⁶⁴ / golden ratio
_LOOKS = 64  # at pairs of neighbours
_SAME = 0.1  # of the pairs across, beyond chance
_ENDS = 3  # rows, at least
_PAIRS = 2000  # from which on what neighbours say of each other is recorded
_STANDS_IN = 0.6  # of the inputs that are not their targets: they are one token
PAIRS = tuple(map(str, range(_CLASSES * _CLASSES)))
_TOKENS_APART = 1 << 16  # of larger vocabularies some tokens are taken for one
_SLID, _COMPARED = 8, 32  # rows whose targets and tokens are at other places; targets that are compared, at least
ENDS = ("end_untold", "end_ignored", "rows_cut", "late_untold", "start_twice", "all_targets", "tail_untold",
        "padding_token", "mark_told", "rows_silent", "answer_late", "answer_from", "answer_after",
        "answer_first", "prompt_told")  # fmt: skip
FIGURES = ("target_shift", "copied_targets", "masked_targets", "masked_most", "one_target", "masked_beside",
           "ignored_token", "ignored_inside", "text_dimension")  # fmt: skip


def figures(
    given: Sequence[Tensor], fed: Sequence[bool], gradient: Tensor, found: Softmax, whole: bool = True
) -> tuple[dict[str, Tensor], Tensor | None]:
    """`FIGURES`, and the pairs of neighbours [3, 256]: along the text, across it, and across it half of a batch apart.

    given: tokens, the model's first input first. fed: which of them were embedded. gradient: [rows, places, classes].
    whole: else the shift alone.
    """
    import torch

    width = gradient.shape[2]
    most = max(1, min(_ROWS, _PLACES // (_TOKENS * width)))
    far = _TOKENS + max(_SHIFTS)
    part, across = gradient[:most, :_TOKENS].min(-1), gradient[:_TOKENS, :most].transpose(0, 1).min(-1)
    nothing = torch.full_like(found.below, math.nan)
    shifts, pairs, ignored = [], torch.zeros(3, _CLASSES**2, dtype=found.below.dtype, device=nothing.device), nothing
    tokens = side = nothing
    # others than the first may be the targets themselves: they count where they are inputs for sure
    for one in (one for at, one in enumerate(given) if not at or fed[at]):
        along = _shift(one[:most, :far], *part, found)
        below = one[:far, :most].T[: len(across[0])]  # a source may have more places than what is written
        down = _shift(below, *across, found)
        down = torch.where(_wraps(one[:, :most], gradient[-1:, :most]), -torch.ones_like(down), down)
        # where windows of a text overlap, its next token is in both dimensions
        one_of = torch.where((along == 1) & (down != 1), 1.0, torch.where((down == 1) & (along != 1), 0.0, nothing))
        side = torch.where(side.isnan(), one_of, side)
        down = torch.where(along >= 0, -torch.ones_like(down), down)
        shifts.append(torch.where((down > 0) | ((down == _BEHIND) & (along == -1)), down, along))
        if not whole:
            continue
        pairs = torch.where(pairs.sum() == 0, _pairs(one, along, down).to(pairs.dtype), pairs)
        for straight, text, piece in ((along, one[:most, :far], part), (down, below, across)):
            token, inside = ignored_in(text, piece[0] < 0)
            known = (straight == 1) & ignored.isnan()
            tokens, ignored = torch.where(known, token, tokens), torch.where(known, inside, ignored)
    own, following = shifts[0], shifts[0] == 1
    for one in shifts[1:]:
        tells = (one == 0) | ((own == -1) & ((one > 1) | (one == _BEHIND)))
        own, following = torch.where(tells, one, own), following | (one == 1)
    own = torch.where(following, torch.ones_like(own), own)
    if not whole:
        return dict.fromkeys(FIGURES, nothing) | {"target_shift": own}, None
    *masked, same = _copies(given[0][:most, :_TOKENS], *part, found)
    # a decoder that is given what is before each target writes a text anew: all of it counts, masked or not
    beside = _beside(given[0][:most, :_TOKENS], *part, found)
    copies = [*(torch.where(following, nothing, one) for one in masked), same, torch.where(following, nothing, beside)]
    return dict(zip(FIGURES, (own, *copies, tokens, ignored, side), strict=True)), pairs


def _shift(tokens: Any, least: Tensor, target: Tensor, found: Softmax) -> Tensor:
    """How many places the targets of sequences are ahead of their inputs, −2 where they are one place behind, −1 where
    they are no such thing; NaN where that is not to be seen, or where a softmax and its cross-entropy don't follow."""
    import torch

    alive = least < found.below
    result = torch.full_like(found.below, -1.0)
    changes = (tokens[:, 1:] != tokens[:, :-1]).sum()  # of few tokens over and over, every shift is true
    known, before = alive[: len(tokens), 1 : 1 + tokens.shape[1]], tokens[:, : target.shape[1] - 1]
    known = known[:, : before.shape[1]]
    same = (target[: len(before), 1 : 1 + before.shape[1]] == before) | ~known
    result = torch.where(same.all() & (known.sum() >= 8), torch.full_like(result, _BEHIND), result)
    # a text that was shifted in its data set ends with a target that is not an input: padding stands at its place
    tail = (tokens == tokens[:, -1:]).flip(1).long().cumprod(1).flip(1).bool()
    for ahead in reversed(_SHIFTS):
        next_ones = tokens[:, ahead : ahead + target.shape[1]]
        known = alive[: len(next_ones), : next_ones.shape[1]]
        same = (target[: len(next_ones), : next_ones.shape[1]] == next_ones) | ~known
        result = torch.where(same.all() & (known.sum() >= 8), torch.full_like(result, ahead), result)
        if ahead == 1:
            inner = known & ~tail[:, ahead : ahead + target.shape[1]]
            same = (same | (known & ~inner & _ends_in(known))).all() & (inner.sum() >= 8)
            result = torch.where(same, torch.full_like(result, ahead), result)
    seen = found.follows & (changes >= 8) & (alive.sum() >= 8)
    return torch.where(seen, result, torch.full_like(result, math.nan))


def _ends_in(known: Tensor) -> Tensor:
    """The last place of each row that has a target."""
    behind = known.flip(1).long().cumsum(1).flip(1)
    return known & (behind == 1)


def _wraps(tokens: Tensor, last: Tensor) -> Tensor:
    """Whether the targets of the last row are the tokens of one of the first: rows were rolled."""
    target, wraps = last.argmin(-1), (last != last).any()
    for ahead in range(1, max(_SHIFTS) + 1):
        if ahead <= len(tokens) and target.shape[1] == tokens.shape[1]:
            wraps = wraps | (target[0] == tokens[ahead - 1]).all()
    return wraps


def _pairs(tokens: Tensor, along: Tensor, down: Tensor) -> Tensor:
    """`_neighbours` of tokens, by where their targets are."""
    return _neighbours(tokens, (along == 1) | (along == _BEHIND), (down == 1) | (down == _BEHIND))


def _neighbours(tokens: Tensor, along: Tensor, down: Tensor) -> Tensor:
    """Pairs of classes of tokens [3, 256] along the text, across it, and across it half of a batch apart; none where it
    is in neither dimension."""
    import torch

    kinds = ((tokens[:, :_LONGEST].long() * _FACTOR) >> 40) & (_CLASSES - 1)

    def count(one: Tensor, other: Tensor) -> Tensor:
        table = torch.zeros(_CLASSES**2, dtype=torch.float32, device=tokens.device)
        places = (one * _CLASSES + other).reshape(-1)
        return table.index_add_(0, places, torch.ones_like(places, dtype=torch.float32))

    rows, places = max(1, kinds.shape[0] // 2), max(1, kinds.shape[1] // 2)
    beside, under = count(kinds[:, :-1], kinds[:, 1:]), count(kinds[:-1], kinds[1:])
    table = torch.stack([beside, under, count(kinds[:-rows], kinds[rows:])])
    other = torch.stack([under, beside, count(kinds[:, :-places], kinds[:, places:])])
    return torch.where(along, table, torch.where(down, other, torch.zeros_like(table)))


def _copies(tokens: Tensor, least: Tensor, target: Tensor, found: Softmax) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of the places with a target, but for padding, where one token that is never a target replaces others in the
    inputs: the share whose target is their own input; the share with that token, in all rows and in the row with most.
    Where each target is its own input, the share of one of them. NaN else."""
    import torch

    nothing = torch.full_like(found.below, math.nan)
    if target.shape != tokens.shape:
        return nothing, nothing, nothing, nothing
    tail, sure = tails(tokens)
    counted = (least < found.below) & ~(tail & sure)
    differs = counted & (tokens != target)
    # what is more than half of them is their median
    middle = tokens.double().masked_fill(~differs, math.nan).nanmedian()
    stand_in = counted & (tokens == middle)
    stands = (stand_in & differs).sum() >= (_STANDS_IN * differs.sum()).clamp_min(3)
    stands = stands & ~(counted & (target == middle)).any()
    count, by_row = counted.sum(), stand_in.sum(1) / counted.sum(1).clamp_min(1)
    usual = target.double().masked_fill(~counted, math.nan).nanmedian()
    copied = (counted & ~differs).sum() / count
    masked, most, same = stand_in.sum() / count, by_row.amax(), (counted & (target == usual)).sum() / count
    seen = found.follows & (count >= 8)
    whens = ((copied, stands), (masked, stands), (most, stands), (same, copied == 1))
    first, second, third, last = (torch.where(seen & when, one.to(nothing.dtype), nothing) for one, when in whens)
    return first, second, third, last


def _beside(tokens: Tensor, least: Tensor, target: Tensor, found: Softmax) -> Tensor:
    """Where one token that is never a target is in the inputs one place behind most places with a target, or one place
    before (−1), and in few of these places themselves: how many places behind. 0 where it is in most of these places;
    NaN else."""
    import torch

    nothing = torch.full_like(found.below, math.nan)
    if target.shape != tokens.shape or tokens.shape[1] < 3:
        return nothing
    asked = least < found.below
    inner = asked[:, 1:-1]
    count, result = inner.sum().clamp_min(1), nothing
    for behind in (-1, 1, 0):
        there = tokens[:, 1 + behind : tokens.shape[1] - 1 + behind]
        middle = there.double().masked_fill(~inner, math.nan).nanmedian()  # what is more than half of them
        here = (inner & (tokens[:, 1:-1] == middle)).sum() / count
        most = (inner & (there == middle)).sum() / count >= _STANDS_IN
        apart = (here < 1 - _STANDS_IN) if behind else most
        stands = most & apart & ~(asked & (target == middle)).any()
        result = torch.where(stands, torch.full_like(nothing, behind), result)
    return torch.where(found.follows & (inner.sum() >= 8), result, nothing)


def masked_beside(tokens: Tensor, gradient: Tensor, found: Softmax) -> Tensor:
    """The figure of that name, of a text that a model is asked for beside its answer."""
    most = max(1, min(_ROWS, _PLACES // (_TOKENS * gradient.shape[2])))
    return _beside(tokens[:most, :_TOKENS], *gradient[:most, :_TOKENS].min(-1), found)


def ignored_in(tokens: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
    """Where all places without a target are before one token, and each of those: that token, and how often it stands
    alone within the text; NaN, and 0, where they are before others, and NaN where there are none."""
    import torch

    after = tokens[:, 1 : 1 + alive.shape[1]]
    alive = alive[: len(after), : after.shape[1]]
    least, most = after.masked_fill(alive, 1 << 40).amin(), after.masked_fill(alive, -1).amax()
    one = (least == most) & ~(alive & (after == least)).any()
    alone = (after[:, :-1] == least) & (tokens[:, : after.shape[1] - 1] != least) & (after[:, 1:] != least)
    wide = torch.float32 if tokens.device.type == "mps" else torch.float64
    nothing = torch.full((), math.nan, dtype=wide, device=tokens.device)
    inside = torch.where(one, alone.sum(), 0).to(wide)
    return torch.where(one, least.to(wide), nothing), torch.where(alive.all(), nothing, inside)


def elsewhere(tokens: Tensor, gradient: Tensor, follows: Tensor) -> Tensor:
    """Whether the targets of a batch of texts are the next tokens of other places: 1 of other rows, each of one of the
    batch; 2 where outputs and targets were flattened in another order of rows and places; 0 if neither; NaN where that
    is not to be seen."""
    import torch

    target, (rows, places) = gradient.argmin(-1), tokens.shape
    wide = torch.float32 if tokens.device.type == "mps" else torch.float64
    nothing = torch.full((), math.nan, dtype=wide, device=tokens.device)
    if target.shape not in ((rows, places), (places, rows)) or rows < 2 or gradient.shape[-1] < 8:
        return nothing
    alike = target.shape == tokens.shape
    mixed = (target.T if alike else target).reshape(-1).view(rows, places)
    crossed = (mixed[:, :-1] == tokens[:, 1:]).all()
    back = (target if alike else target.T).reshape(-1).view(places, rows).T
    crossed = crossed | (back[:, :-1] == tokens[:, 1:]).all()
    moved = torch.zeros_like(crossed)
    if alike:
        for ours, theirs in ((target, tokens), (target[:, :-1], tokens[:, 1:])):
            same = (ours[:, None] == theirs[None]).all(-1)
            moved = moved | ((same.sum(1) == 1).all() & ~same.diagonal().any())
        straight = (target[:, :-1] == tokens[:, 1:]).all()
        crossed = crossed & ~straight
    seen = follows & (gradient != 0).any(-1).all() & ((tokens[:, 1:] != tokens[:, :-1]).sum() >= 4 * rows)
    return torch.where(seen, torch.where(crossed, torch.full_like(nothing, 2.0), moved.to(wide)), nothing)


def of_padding(tokens: Tensor, gradient: Tensor, alive: Tensor, below: Tensor) -> Tensor:
    """The share of targets that lie in padding; NaN where there is none for sure.

    The targets of padding are all one.
    """
    tail, sure = tails(tokens)
    within = tail & alive
    within[:, 1:] &= tail[:, :-1]  # the first of them may be an end that is learnt
    within[:, 0] = False
    least, target = gradient.min(2)
    known = within & (least < below)
    sure &= target.masked_fill(~known, -1).max() <= target.masked_fill(~known, gradient.shape[2]).min()
    share: Tensor = known.sum() / alive.sum().clamp_min(1)  # a penalty on all logits has no target
    return share.double().masked_fill(~(sure & least.isfinite().all()), math.nan)


def padded_apart(tokens: Tensor, gradient: Tensor, alive: Tensor, below: Tensor) -> Tensor:
    """Whether the next tokens are the targets of each row, at other places than they stand: 1 where inputs are padded
    at one side, and targets at the other; 0 where they are at their places; NaN where that is not to be seen.

    As many targets as a text has tokens, or one fewer, without a gap; from the second token on these are compared with
    the targets from the first place on that has one. What is a target is seen by its gradient, whatever the others
    are."""
    import torch

    count, length = alive.shape
    wide = torch.float32 if tokens.device.type == "mps" else torch.float64
    right, sure_right = tails(tokens)
    left, sure_left = tails(tokens.flip(1))
    at_left = sure_left & ~sure_right
    tail = torch.where(at_left, left.flip(1), right)
    ends = torch.where(at_left, tokens[:, 0], tokens[:, -1])
    padding = ends.index_select(0, tail.sum(1).argmax().reshape(1))
    of_it = tokens == padding
    # however little padding there is
    size = torch.where(at_left, of_it.long().cumprod(1).sum(1), of_it.flip(1).long().cumprod(1).sum(1))
    begins, text = torch.where(at_left, size, 0), length - size
    asked, first = alive.sum(1), alive.long().argmax(1)
    whole = ((asked == text) | (asked == text - 1)) & (alive[:, 1:] & ~alive[:, :-1]).sum(1).add(alive[:, 0]).le(1)
    places = torch.arange(length, device=tokens.device)[None]
    compared = places < torch.minimum(asked, text - 1)[:, None]
    wanted = tokens.long().gather(1, (begins[:, None] + 1 + places).clamp_max(length - 1))
    rows = torch.arange(count, device=tokens.device)[:, None]
    said = gradient[rows, (first[:, None] + places).clamp_max(length - 1), wanted.clamp_max(gradient.shape[2] - 1)]
    same = ((said < below) & (wanted < gradient.shape[2]) | ~compared).all() & whole.all()
    slid = (first != begins) & (text > 2)
    enough = (compared & slid[:, None]).sum() >= _COMPARED
    enough &= (slid.sum() >= _SLID) & ((text[:, None] != text[None]) & slid[:, None] & slid[None]).any()
    seen = (sure_left ^ sure_right) & same & (compared.sum() >= _COMPARED)
    found = torch.where(slid.any(), torch.where(enough, 1.0, math.nan), 0.0)
    return torch.where(seen, found, math.nan).to(wide)


def of_ends(tokens: Tensor, alive: Tensor, known: Asked | None = None) -> tuple[Tensor, ...]:
    """`ENDS` of rows of a text, NaN where that is not to be seen. known: what looks before were asked for.

    `end_untold`: of rows with padding, the share in which what follows the last token has no target though the last
    token itself is one; NaN where half of the rows end with one token, which is then an end of its own, or with
    tokens that end several rows and stand nowhere else, or where all have as many targets. Where all of these rows end
    with one token which is never a target, while the one in front of it is: 1, and `end_ignored` is that token.
    `rows_cut`:
    the share of rows that are cut off before their answer begins: without a target and without padding, while the
    targets of other rows begin behind a prompt and last to the row's end. `rows_silent`: the share of rows that are
    none of these and have no target, though they are not padding alone. `late_untold`: where the targets of each
    row begin with it and stop before its end, the share of a text that has none. `start_twice`: whether all rows
    begin with the same token twice, which stands nowhere else, and some end with padding. `all_targets`: whether
    all but padding are targets. `tail_untold`: where the targets of each row begin with it and have no gap, and
    some rows have two tokens or more behind their last target, of different number and none with more than targets:
    the share of the text that has none; 0 where targets have gaps or go on in the padding, as tags beside their
    words. `padding_token`: what the longest padding is made of. `mark_told`: whether all rows begin with one token,
    which stands nowhere else and has a target, while their last token, in front of one that ends all of them if there
    is one, has none, and all between have. `answer_late`, `answer_from`, `answer_after`, `answer_first` and
    `prompt_told`: see `prompts`.
    """
    import torch

    tail, sure = tails(tokens)
    size, wide = tail.sum(1), torch.float32 if tokens.device.type == "mps" else torch.float64
    last = (tokens.shape[1] - size - 1).clamp_min(1)[:, None]
    ends = tokens.gather(1, last)[:, 0]
    rows = (size > 0) & (size < tokens.shape[1] - 2) & alive.gather(1, last - 1)[:, 0]
    same = ((ends[:, None] == ends[None]) & rows[None]).sum(1) * rows
    seen = sure & (rows.sum() >= _ENDS) & (2 * same.amax() <= rows.sum())
    seen &= 2 * (_apart(tokens, ends, last) & (same >= 2)).sum() <= rows.sum()
    count = alive.sum(1)
    seen &= torch.where(rows, count, 0).amax() > torch.where(rows, count, tokens.shape[1]).amin()
    untold = (rows & ~alive.gather(1, last)[:, 0]).sum() / rows.sum()
    filler = tokens[:, -1].index_select(0, size.argmax().reshape(1))[0]
    ignored = _end_ignored(tokens, alive, filler) & sure
    untold, seen = torch.where(ignored, torch.ones_like(untold), untold), seen | ignored
    some, behind = alive.any(1), alive.long().cumsum(1) > 0
    padded = (tokens == tokens[:, -1:]).flip(1).long().cumprod(1).flip(1).bool()  # however few
    padded[:, :-1] = padded[:, 1:].clone()  # what has no target is in front of it
    lasts = ~(behind & ~alive & ~padded).any() & ~alive[:, 0].any()
    cut = lasts & some.any() & ~(~some & (size > 0)).any() & (len(tokens) >= _ENDS)
    share = (~some).sum() / len(tokens)
    inner = ~(padded & (tokens[:, -1:] == filler))  # places whose next token is one of the text
    inner[:, -1] = False
    dead = (inner & ~alive).sum(1)
    begins = alive[:, 0].all() & ~(alive[:, 1:] & ~alive[:, :-1]).any() & sure
    early = begins & ((dead >= 2).sum() * 2 >= len(tokens)) & (len(tokens) >= _ENDS)
    first = tokens[0, 0]
    both = (tokens[:, :2] == first).all() & ~(tokens[:, 2:] == first).any() & (len(tokens) >= _ENDS)
    both = both & sure & (size > 0).any() & (filler != first)  # padding is at the other side, and another token
    found = (
        torch.where(seen, untold.to(wide), math.nan),
        torch.where(ignored, ends.index_select(0, size.argmax().reshape(1))[0].to(wide), math.nan),
        torch.where(cut, share.to(wide), math.nan),
        torch.where(early, (dead.sum() / inner.sum().clamp_min(1)).to(wide), math.nan),
        both.to(wide),
        torch.where(sure, (dead.sum() == 0).to(wide), math.nan),
        torch.where(sure, _tail_untold(tokens, alive, filler).to(wide), math.nan),
        torch.where(sure, filler.to(wide), math.nan),
        torch.where(sure, _mark_told(tokens, alive, filler).to(wide), math.nan),
        torch.where(some.any() & ~cut & (len(tokens) >= _ENDS), _silent(tokens, some).to(wide), math.nan),
        answer_late(tokens, alive, known or Asked()).to(wide),
        *(one.to(wide) for one in (*answer_begins(tokens, alive), prompt_told(tokens, alive))),
    )
    return found


def _silent(tokens: Tensor, some: Tensor) -> Tensor:
    """The share of rows without a target, of those that are more than one token over and over. some: with one."""
    text = (tokens != tokens[:, -1:]).sum(1) > 1
    return (text & ~some).sum() / text.sum().clamp_min(1)


def half_silent(alive: Tensor) -> Tensor:
    """Whether one half of a batch's rows, the first or the second, has no gradient at all, and each row of the other
    has one; NaN of an odd number of rows, and of a few. alive: which places of an output have a gradient."""
    import torch

    half, odd = divmod(len(alive), 2)
    if odd or half < _ENDS or alive.dim() < 2:
        return torch.full((), math.nan, device=alive.device)
    some = alive.flatten(1).any(1)
    first, second = some[:half], some[half:]
    return ((~first.any() & second.all()) | (first.all() & ~second.any())).to(torch.float32)


def _end_ignored(tokens: Tensor, alive: Tensor, filler: Tensor) -> Tensor:
    """Whether all rows with padding end with one token, which is never a target, though the one in front of it is one:
    of different tokens, or of one that stands within texts as often, with a target behind it; and of rows with other
    numbers of targets. filler: what padding is made of, however little of it a row has."""
    import torch

    size = (tokens == filler).flip(1).long().cumprod(1).sum(1)
    last = (tokens.shape[1] - size - 1).clamp_min(1)[:, None]
    padded = (size > 0) & (size < tokens.shape[1] - 3)
    ends, before = (tokens.gather(1, at)[:, 0] for at in (last, (last - 1).clamp_min(0)))
    end = ends.index_select(0, size.argmax().reshape(1))
    told = alive.gather(1, (last - 2).clamp_min(0))[:, 0] & ~alive.gather(1, last - 1)[:, 0]
    same = ((before[:, None] == before[None]) & padded[None]).sum(1) * padded
    asked = (alive[:, :-1] & (tokens[:, 1:] == end)).any()
    count = alive.sum(1)
    many = count.masked_fill(~padded, 0).amax() > count.masked_fill(~padded, tokens.shape[1]).amin()
    all_of_it = ((ends == end) & told | ~padded).all() & (padded.sum() >= _ENDS)
    within = alive & (torch.arange(tokens.shape[1], device=tokens.device)[None] < last - 1)
    goes_on = (within & (tokens == before.index_select(0, same.argmax().reshape(1)))).sum() >= padded.sum()
    return all_of_it & ~asked & many & ((2 * same.amax() <= padded.sum()) | goes_on)


def _apart(tokens: Tensor, ends: Tensor, last: Tensor) -> Tensor:
    """Which of these tokens occur in no row before its last one, at `last`; a few that don't are not among them."""
    import torch

    before = torch.arange(tokens.shape[1], device=tokens.device)[None] < last
    seen = torch.zeros(_TOKENS_APART + 1, dtype=torch.bool, device=tokens.device)
    places = torch.where(before, tokens.long() % _TOKENS_APART, _TOKENS_APART)
    return ~seen.index_fill(0, places.reshape(-1), True)[ends.long() % _TOKENS_APART]


def _mark_told(tokens: Tensor, alive: Tensor, filler: Tensor) -> Tensor:
    """`mark_told` of texts whose padding is this token."""
    text = ~(tokens == filler).flip(1).long().cumprod(1).flip(1).bool()
    count, first = text.sum(1), tokens[0, 0]
    ends = tokens.gather(1, (count - 1).clamp_min(0)[:, None])[:, 0]
    begin = (tokens[:, 0] == first).all() & ~(tokens[:, 1:] == first).any()
    closed = (ends == ends[0]).all() & (((tokens == ends[0]) & text).sum() == len(tokens))
    last = count - 1 - closed.long()  # the last token of the text itself
    told = alive.sum(1) == last
    gaps = (alive[:, 1:] & ~alive[:, :-1]).any()
    varied = (tokens[1:, 1] != tokens[:-1, 1]).any() & (last >= 2).all()
    return begin & alive[:, 0].all() & told.all() & ~gaps & varied & (len(tokens) >= _ENDS)


def _tail_untold(tokens: Tensor, alive: Tensor, filler: Tensor) -> Tensor:
    """`tail_untold` of texts whose padding is this token."""
    import torch

    text = ~(tokens == filler).flip(1).long().cumprod(1).flip(1).bool()  # however little padding there is
    dead, count = (text & ~alive).sum(1), alive.sum(1)
    gaps = (alive[:, 1:] & ~alive[:, :-1]).any() | ~alive[:, 0].all() | (alive & ~text).any()
    some = (dead.amax() >= 2) & (dead.amin() < dead.amax()) & (dead <= count).all() & (len(tokens) >= _ENDS)
    share = torch.where(some, dead.sum() / text.sum().clamp_min(1), math.nan)
    return torch.where(gaps, torch.zeros_like(share), share)


class TextPairs:
    """Counts of pairs over the looks of a launch."""

    def __init__(self) -> None:
        self._counts: Any = None
        self._looks = 0

    def fields_of(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step, in the order of steps: what a token says of its neighbour, in nats: along the
        text, and across it beyond what it says of one half of a batch away."""
        if "neighbours" not in numbers or self._looks >= _LOOKS:
            return {}
        self._looks += 1
        counts = numbers["neighbours"][1]
        if not numpy.isfinite(counts).all():
            return {}
        self._counts = counts if self._counts is None else self._counts + counts
        pairs = float(self._counts[:2].sum(1).min())
        if pairs < _PAIRS:
            return {}
        tables = [row.reshape(_CLASSES, _CLASSES) for row in self._counts]
        along, across, away = map(_information, tables)
        # rows that are nearly the same as their neighbours, as in a sorted batch: not a text
        alike = _alike(tables[1]) > _SAME
        return {"text_along": along, "text_across": 0.0 if alike else across - max(0.0, away), "text_pairs": pairs}


def _alike(table: Any) -> float:
    """In which share of the pairs both are of one class, beyond chance."""
    total = max(1.0, float(table.sum()))
    return float(table.trace()) / total - float((table.sum(0) * table.sum(1)).sum()) / total**2


def _information(table: Any) -> float:
    """What the row says of the column, in nats, less what it does by chance."""
    total, rows, columns = table.sum(), table.sum(1), table.sum(0)
    expected = numpy.outer(rows, columns) / max(1.0, total)
    some = table > 0
    found = float((table[some] * numpy.log(table[some] / expected[some])).sum() / max(1.0, total))
    chance = float((rows > 0).sum() - 1) * float((columns > 0).sum() - 1)
    return found - chance / (2 * max(1.0, float(total)))
