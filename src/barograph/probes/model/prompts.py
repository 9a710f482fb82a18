"""Where the targets of answers begin behind their prompts, and by how many places targets are ahead of the tokens.

In:   tokens [rows, places], and which places have a target, one place ahead.
Out:  figures for the `model` record, computed on the device; nothing waits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

_PROMPTS, _ANSWERED = 8, 0.75  # rows, at least; of them, whose first token is a target of some row
_TOKENS_APART = 1 << 16  # of larger vocabularies some tokens are taken for one
_FILLED = 3  # equal tokens at the end of a row, at least, that are padding
_PROMPTED, _CROSSED = 32, 1 << 24  # rows whose tokens are compared with those of the first one, and how many
_SHIFTS, _COMPARED = (3, 2, 0, 1), 32  # places by which a target may be ahead, the usual one last; targets, at least


class FirstTargets(NamedTuple):
    """Of rows with a prompt: which these are; whether there are enough of them, of different lengths; where each has
    its first target; the token there, the one before and the one behind, which is that target; whether each of these
    three is one in all rows."""

    rows: Tensor
    enough: Tensor
    first: Tensor
    here: Tensor
    before: Tensor
    behind: Tensor
    one_here: Tensor
    one_before: Tensor
    one_behind: Tensor


def first_targets(tokens: Tensor, alive: Tensor) -> FirstTargets:
    """Where the targets of each row begin."""
    rows = alive.any(1) & ~alive[:, :2].any(1)
    first = alive.long().argmax(1).clamp_min(1)[:, None]
    here, before = tokens.gather(1, first)[:, 0], tokens.gather(1, first - 1)[:, 0]
    behind = tokens.gather(1, (first + 1).clamp_max(tokens.shape[1] - 1))[:, 0]
    enough = (rows.sum() >= _PROMPTS) & (rows == alive.any(1)).all()
    different = (first[:, 0][:, None] == first[:, 0][None]) & rows[None] & rows[:, None]
    enough &= 2 * different.sum(1).amax() <= rows.sum()
    one = rows.long().argmax(0, keepdim=True)  # a row with targets
    same = (((line == line.index_select(0, one)) | ~rows).all() for line in (here, before, behind))
    return FirstTargets(rows, enough, first, here, before, behind, *same)


def answer_begins(tokens: Tensor, alive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The token behind which each answer's first target stands, the token in front of that one, and that target itself,
    where these are the same in all rows; NaN else."""
    import torch

    found = first_targets(tokens, alive)
    one = found.rows.long().argmax(0, keepdim=True)
    at, before, behind = (
        torch.where(found.enough & same, line.index_select(0, one)[0], math.nan)
        for line, same in (
            (found.here, found.one_here), (found.before, found.one_before), (found.behind, found.one_behind))
    )  # fmt: skip
    return at, before, behind


def answers_apart(tokens: Tensor, alive: Tensor) -> Tensor:
    """Whether the targets of all rows begin behind a prompt, at and behind different tokens: 1. NaN where they do not,
    or where that is not known, as of log probabilities of all tokens, of which the prompts' are left out later."""
    import torch

    found = first_targets(tokens, alive)
    apart = found.enough & ~(found.one_here | found.one_before | found.one_behind)
    return torch.where(apart, torch.ones((), device=tokens.device), math.nan)


def prompt_told(tokens: Tensor, alive: Tensor) -> Tensor:
    """Where the targets of all rows begin at and behind different tokens: the last token that stands once in each row,
    is a target in all of them and has one behind it, which differs. It may end the prompts, a part of which is asked
    for. NaN where there is none."""
    import torch

    none = torch.full((), math.nan, device=tokens.device)
    length = min(tokens.shape[1], alive.shape[1])
    some, known = tokens[:_PROMPTED, :length], alive[:_PROMPTED, :length]
    if length < 2 or len(some) * length**2 > _CROSSED:
        return none
    same = some[:, None] == some[0][None, :, None]  # rows, tokens of the first one, places
    at = same.long().argmax(2)
    asked = known.gather(1, (at - 1).clamp_min(0)) & known.gather(1, at) & (at > 0)
    behind = some.gather(1, (at + 1).clamp_max(length - 1))
    fits = (same.sum(2) == 1).all(0) & asked.all(0) & ~(behind == behind[:1]).all(0)
    place = torch.where(fits, torch.arange(length, device=tokens.device), -1).amax().reshape(1)
    token = some[0].index_select(0, place.clamp_min(0))[0]
    return torch.where((place[0] >= 0) & (answers_apart(tokens, alive) == 1), token.to(none.dtype), none)


class Asked:
    """Which tokens were targets, in all looks so far: of a batch of a few rows most first tokens are a target in none
    of the others."""

    def __init__(self) -> None:
        self._marks: Tensor | None = None

    def also(self, tokens: Tensor, asked: Tensor) -> Tensor:
        """With the targets of one more look, one place ahead of where `asked` is true."""
        import torch

        if self._marks is None or self._marks.device != tokens.device:
            self._marks = torch.zeros(_TOKENS_APART + 1, dtype=torch.bool, device=tokens.device)
        places = torch.where(asked, tokens[:, 1:].long() % _TOKENS_APART, _TOKENS_APART)
        self._marks = self._marks.index_fill(0, places.reshape(-1), True)
        return self._marks


def answer_late(tokens: Tensor, alive: Tensor, known: Asked) -> Tensor:
    """Whether targets, one place ahead of the inputs, begin one place too late: behind the first token of each answer.

    All prompts, of different lengths, end with one token, or an answer would have another first target: where the token
    in front of the first place with a target is the same in all rows, and the one at that place is different ones, and
    is a target of other rows, of this look or one before, or where the targets reach into the padding, that token is
    the end of the prompt and the first token of the answer is not a target. 0 where the token at the first place is the
    same in all rows; NaN where neither is so."""
    import torch

    found = first_targets(tokens, alive)
    rows, first, here = found.rows, found.first, found.here
    ends = found.before.index_select(0, rows.long().argmax(0, keepdim=True))
    alone = (
        ((tokens == ends) & (torch.arange(tokens.shape[1], device=tokens.device)[None] < first)).sum(1) <= 1
    ) | ~rows
    same = (here[:, None] == here[None]) & rows[None] & rows[:, None]
    varied = 2 * same.sum(1).amax() <= rows.sum()
    asked = alive[:, :-1] & rows[:, None]  # their targets are the tokens one place ahead
    marks = known.also(tokens, asked)
    often = (marks[here.long() % _TOKENS_APART] & rows).sum() >= _ANSWERED * rows.sum()
    late = found.enough & found.one_before & alone.all() & varied & (often | reach_into_padding(tokens, alive))
    told = torch.where(found.enough & found.one_here, 0.0, math.nan)
    return torch.where(late, torch.ones_like(told), told)


def reach_into_padding(tokens: Tensor, alive: Tensor) -> Tensor:
    """Whether the targets of all rows with padding, one place ahead of inputs, go on one place behind the token that
    ends them. It is an end of its own, and no part of the padding: all rows end with it, the longest with no other."""
    import torch

    places = torch.arange(tokens.shape[1], device=tokens.device)[None]
    filled = tokens == tokens[:, -1:]
    size = filled.flip(1).long().cumprod(1).sum(1)  # equal tokens at the end of each row
    longest = size.argmax().reshape(1)
    filler = tokens[:, -1].index_select(0, longest)
    padded = (tokens[:, -1] == filler) & (size < tokens.shape[1] - 2)
    last = torch.where(padded, tokens.shape[1] - size - 1, tokens.shape[1] - 1).clamp_min(1)[:, None]
    ends = tokens.gather(1, last)[:, 0]
    end = ends.index_select(0, longest)
    once = ((tokens == end).sum(1) == 1) & (ends == end)
    final = torch.where(alive[:, : tokens.shape[1]], places[:, : alive.shape[1]], -1).amax(1)
    told = final == torch.where(padded, last[:, 0], (last[:, 0] - 1).clamp_max(alive.shape[1] - 1))
    sure = (size.amax() >= _FILLED) & (padded.sum() >= _PROMPTS) & (~padded).any()
    return sure & once.all() & told.all() & alive.gather(1, (last - 1).clamp_min(0)).all()


def ahead(tokens: Tensor, targets: Tensor, alive: Tensor) -> Tensor:
    """By how many places all targets of texts [rows, places] are ahead of their tokens; −1 if they are no such thing.
    NaN where few are compared, or neighbours are the same, so that every shift is true. alive: which are targets."""
    import torch

    found = torch.full((), -1.0, device=tokens.device)
    for places in _SHIFTS:
        others = tokens[:, places : places + targets.shape[1]]
        asked, known = targets[:, : others.shape[1]], alive[:, : others.shape[1]]
        same = ((asked == others) | ~known).all() & (known.sum() >= _COMPARED)
        found = torch.where(same, torch.full_like(found, places), found)
    changes = (tokens[:, 1:] != tokens[:, :-1]) & (tokens[:, 1:] != tokens[:, -1:])
    return torch.where((changes.sum() >= _COMPARED) & (alive.sum() >= _COMPARED), found, math.nan)
