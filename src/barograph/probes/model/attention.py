"""Attention seen from outside: the greatest logit, the entropy and what is masked, whatever module computes it.

In:   calls of `scaled_dot_product_attention`, of torch's multi-head attention, or of a softmax over scores, while
      `AttentionWatch` is entered; the tokens that the model is given.
Out:  a `Seen` for each call, in order, and what its mask does with padding.

The scores are computed again for a few queries of a few sequences, the last ones, which see the most keys: a
sample costs little beside the attention itself. A compiled model hides these calls.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.probes.model.guest import Shown
from barograph.probes.model.padding import ends, tails

if TYPE_CHECKING:
    from barograph.probes.model.forward import ForwardSigns

QUERIES, SEQUENCES = 32, 2
_FAR = 5000.0  # below the largest score of a query: masks are -1e4, -1e9, the least number of a type or -inf


class Seen(NamedTuple):
    """Of one call, scalars on the device. entropy: mean over queries, divided by the logarithm of the keys that a query
    may see: 1 is uniform, 0 is one key. later, earlier: share of the keys behind and in front of a query's own place
    that it may see. following, second: share of the queries that see the first and the second key behind their own
    place, of those where some query sees that key. The last four are NaN where keys are not of the queries' places."""

    largest: Any
    entropy: Any
    later: Any
    following: Any
    second: Any
    earlier: Any
    keys: int


class AttentionLook:
    """What the calls of one forward pass have shown. tokens: [sequences, places] that the model is given; of several
    with as many places the others have to be masks of the first. padding: the token that the model says is padding;
    short: the same as `tokens`, and those of few places."""

    def __init__(self, tokens: Sequence[Any] = (), padding: int | None = None, short: Sequence[Any] = ()) -> None:
        self.calls: list[Seen] = []
        self.inverted: list[Any] = []  # of each call whose text has padding by its token
        self._ends: dict[int, tuple[Any, Any]] = {}
        for one in short:
            if padding is None:
                break
            end, sure = self._ends.get(one.shape[1], (None, None))
            self._ends[one.shape[1]] = ends(one, padding) if end is None else (end, sure & _is_mask(one))
        self.padding: list[tuple[Any, Any]] = []  # of each call: share of tokens hidden, share of padding seen
        self._tails: dict[int, tuple[Any, Any, Any]] = {}
        self._alone = len(tokens) == 1
        for one in tokens:
            tail, short, sure = self._tails.get(one.shape[1], (None, None, None))
            self._tails[one.shape[1]] = _tails_of(one) if tail is None else (tail, short, sure & _is_mask(one))

    def keep(self, measure: Any, visible: Any) -> None:
        """A call. measure: gives its `Seen`; visible: which keys any query sees [sequences, keys], None where all."""
        import torch

        with contextlib.suppress(Exception), torch._C.DisableTorchFunction(), torch.no_grad():
            self.calls.append(measure())  # a shape of somebody's own: the attention itself goes on
            tail, end = self._tails.get(self.calls[-1].keys), self._ends.get(self.calls[-1].keys)
            if tail is None and end is None:
                return
            seen, by_all = visible()
            if tail is not None:
                self._of_padding(seen, *tail)
            if end is not None and by_all and seen is not None:
                self.inverted.append(torch.where(end[1], torch.minimum(*_parts_of(seen, end[0], ~end[0])), torch.nan))

    def _of_padding(self, visible: Any, tail: Any, short: Any, sure: Any) -> None:
        import torch

        hidden, shown = _parts_of(torch.ones_like(tail) if visible is None else visible, tail, ~tail & ~short)
        self.padding.append((torch.where(sure, hidden, torch.nan), torch.where(sure, shown, torch.nan)))

    def figures(self) -> dict[str, Any]:
        """Of all calls."""
        import torch

        home = self.calls[0].largest
        columns = [torch.stack([part.to(home) for part in parts]) for parts in list(zip(*self.calls, strict=True))[:6]]
        largest, entropy, later, following, second, earlier = columns
        found = {"logit_max": largest.amax(), "entropy": entropy.mean(), "later": _least(later)}
        # in a model of one text each layer hides what comes; of several, one of them may be read as a whole
        one = self._alone and all(call.keys in self._tails for call in self.calls)
        found["next"] = following.nan_to_num(-1.0).amax() if one else _least(following)
        found["second"] = second.nan_to_num(-1.0).amax()
        found["earlier"] = earlier.nan_to_num(-1.0).amax()
        found = {name: torch.where(value >= 0, value, torch.nan) if name in ("next", "second", "earlier") else value
                 for name, value in found.items()}  # fmt: skip
        if self.padding:
            hidden, shown = (torch.stack(parts) for parts in zip(*self.padding, strict=True))
            found |= {"hidden_tokens": hidden.nan_to_num(-1.0).amax(), "seen_padding": _least(shown)}
            found["hidden_tokens"] = torch.where(hidden.isnan().all(), torch.nan, found["hidden_tokens"])
        if self.inverted:
            most = torch.stack([part.to(home) for part in self.inverted]).nan_to_num(-1.0).amax()
            found["inverted"] = torch.where(most >= 0, most, torch.nan)
        return {f"attention/{name}": value for name, value in found.items()}


def _tails_of(tokens: Any) -> tuple[Any, Any, Any]:
    """Which places are padding; which ends of rows are one or two of its token, and may be; and whether it is sure."""
    import torch

    tail, sure = tails(tokens)
    padding = torch.where(tail, tokens, torch.iinfo(tokens.dtype).min).amax()
    end = (tokens == padding).flip(1).long().cumprod(1).flip(1).bool()
    return tail, end & ~tail, sure


def _parts_of(visible: Any, tail: Any, tokens: Any) -> tuple[Any, Any]:
    """The share of tokens that are hidden, and that of padding that is seen."""
    visible = visible.expand(tail.shape)
    hidden = (~visible & tokens).sum() / tokens.sum().clamp_min(1)
    return hidden, (visible & tail).sum() / tail.sum().clamp_min(1)


def _is_mask(numbers: Any) -> Any:
    """Whether there are no numbers but 0 and 1 among these."""
    return ((numbers == 0) | (numbers == 1)).all()


def _least(values: Any) -> Any:
    import torch

    least = torch.where(values.isnan(), 2.0, values).amin()
    return torch.where(least <= 1, least, torch.nan)


def watch(look: AttentionLook, signs: ForwardSigns) -> Shown:
    """Show `look` each call of attention, and `signs` each function with its result, until its end."""
    import torch
    from torch.nn import functional

    softmaxes = (torch.softmax, torch.Tensor.softmax, functional.softmax)

    def began(function: Any, arguments: Any, named: Any) -> None:
        if function is functional.scaled_dot_product_attention:
            look.keep(lambda: of_queries(*arguments, **named), lambda: _seen_keys(_mask_of(arguments, named)))
        elif function is functional.multi_head_attention_forward:
            look.keep(lambda: of_module(*arguments, **named), lambda: _seen_keys(_mask_of_module(arguments, named)))
        elif function in softmaxes and getattr(arguments[0], "dim", lambda: 0)() == 4:
            scores = arguments[0]
            look.keep(lambda: of_scores(scores[:SEQUENCES, :, -QUERIES:], scores.shape[-2]),
                      lambda: _seen_keys(scores[:, :, -QUERIES:], scores.shape[-2]))  # fmt: skip

    return Shown(began, signs.saw)


def _seen_keys(mask: Any, queries: int = 0) -> tuple[Any, bool]:
    """Which keys any of the last queries sees [sequences or 1, keys], by a mask or scores, None where all; whether
    there are no other queries. queries: how many there are of scores."""
    if mask is None:
        return None, True
    by_all = max(queries, mask.shape[-2]) <= QUERIES
    mask = mask if mask.dim() == 4 else mask.reshape(1, *([1] * (3 - mask.dim())), *mask.shape)[:, -1:]
    mask = mask[..., -QUERIES:, :]
    return (mask if str(mask.dtype) == "torch.bool" else _seen(mask)).any(1).any(1), by_all


def _seen(scores: Any) -> Any:
    """Which of the last dimension's scores, or of the numbers that are added to them, are not masked."""
    return (scores > scores.amax(-1, keepdim=True) - _FAR) & (scores > -math.inf)


def _mask_of(arguments: Any, named: Any) -> Any:
    return named.get("attn_mask", arguments[3] if len(arguments) > 3 else None)


def _mask_of_module(arguments: Any, named: Any) -> Any:
    query, heads = arguments[0], arguments[4]
    return _merged(named.get("attn_mask"), named.get("key_padding_mask"), query.shape[1], heads)


def _merged(attention: Any, padding: Any, sequences: int, heads: int) -> Any:
    """The two masks of torch's multi-head attention as one that is added to scores; None without any."""
    import torch

    def added(mask: Any) -> Any:
        if mask.dtype != torch.bool:
            return mask.float()
        return torch.zeros(mask.shape, device=mask.device).masked_fill_(mask, -math.inf)

    parts = []
    if attention is not None:
        parts.append(added(attention)[None, None] if attention.dim() == 2 else
                     added(attention).view(sequences, heads, *attention.shape[1:]))  # fmt: skip
    if padding is not None:
        parts.append(added(padding)[:, None, None])
    return sum(parts[1:], parts[0]) if parts else None


def of_module(query: Any, key: Any, value: Any, width: int, heads: int, weight: Any, bias: Any, *others: Any,
              key_padding_mask: Any = None, attn_mask: Any = None, use_separate_proj_weight: bool = False,
              q_proj_weight: Any = None, k_proj_weight: Any = None, **named: Any) -> Seen:  # fmt: skip
    """As `of_queries`, for the arguments of torch's multi-head attention. query, key: (places, sequences, width)."""
    from torch.nn import functional

    sequences = query.shape[1]
    ours, theirs = (q_proj_weight, k_proj_weight) if use_separate_proj_weight else weight.chunk(3)[:2]
    shifts = bias.chunk(3)[:2] if bias is not None else (None, None)
    both: list[Any] = []
    for given, matrix, shift in ((query, ours, shifts[0]), (key, theirs, shifts[1])):
        projected = functional.linear(given[:, :SEQUENCES].to(matrix.dtype), matrix, shift)
        both.append(projected.view(*projected.shape[:2], heads, -1).permute(1, 2, 0, 3))
    mask = _merged(attn_mask, key_padding_mask, sequences, heads)
    return of_queries(both[0], both[1], attn_mask=mask)


def of_queries(
    query: Any,
    key: Any,
    value: Any = None,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Seen:
    """What is seen of the last queries, for the arguments of torch's attention.

    query: (…, heads, queries, size); key: (…, heads, keys, size).
    """
    import torch

    if query.dim() == 4:
        query, key = query[:SEQUENCES], key[:SEQUENCES]
        if attn_mask is not None and attn_mask.dim() == 4 and len(attn_mask) > 1:
            attn_mask = attn_mask[:SEQUENCES]
    queries, keys = query.shape[-2], key.shape[-2]
    chosen = min(QUERIES, queries)
    query, key = query[..., -chosen:, :].float(), key.float()
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        seen = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril()[-chosen:]
        scores = scores.masked_fill(~seen, -math.inf)
    if attn_mask is not None:
        mask = attn_mask[..., -chosen:, :] if attn_mask.shape[-2] > 1 else attn_mask
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return of_scores(scores, queries)


def of_scores(scores: Any, places: int = 0) -> Seen:
    """What is seen of scores (…, queries, keys), of which those hidden are far below the others. places: of all
    queries, of which these are the last."""
    import torch

    scores = scores.float()
    seen = _seen(scores)
    largest = scores.masked_fill(~seen, -math.inf).amax()
    chances = scores.softmax(-1)
    entropy = torch.special.entr(chances).sum(-1)
    room = seen.sum(-1).clamp_min(2).log()
    many = seen.sum(-1) > 1  # a query with one key has nothing to choose
    share = torch.where(many, entropy / room, torch.zeros_like(entropy)).sum() / many.sum().clamp_min(1)
    later = following = second = earlier = torch.full_like(largest, math.nan)
    keys = scores.shape[-1]
    if places == keys and scores.shape[-2] > 1:
        first = keys - scores.shape[-2]
        whole = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        behind, front = whole.triu(1 + first), whole.tril(first - 1)
        later = (seen & behind).sum() / behind.expand(seen.shape).sum()
        earlier = (seen & front).sum() / front.expand(seen.shape).sum().clamp_min(1)
        used = seen.any(-2)  # padding is hidden from all
        following, second = (
            (seen.diagonal(away + first, -2, -1) & used[..., first + away :]).sum() / used[..., first + away :].sum()
            for away in (1, 2)
        )
    return Seen(largest, share, later, following, second, earlier, keys)
