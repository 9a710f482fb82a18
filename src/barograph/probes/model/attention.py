"""Attention seen from outside: the greatest logit and the entropy, whatever module computes it.

In:   calls of `scaled_dot_product_attention` or of a softmax over scores, while `AttentionWatch` is entered.
Out:  for each call, in order, `logit_max` and `entropy` (mean over queries, divided by the logarithm of the
      keys that a query may see: 1 is uniform, 0 is one key), and the share of keys behind a query's own place that
      it may see (0 with a causal mask; NaN where keys are not of the queries' places).

The scores are computed again for a few queries of a few sequences, the last ones, which see the most keys: a
sample costs little beside the attention itself. A compiled model hides these calls.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barograph.probes.model.forward import ForwardSigns

QUERIES, SEQUENCES = 32, 2


def watch(found: list[tuple[Any, Any, Any]], signs: ForwardSigns) -> Any:
    """A context manager that appends (logit_max, entropy, later), scalars on the device, to `found` for each call, and
    shows `signs` each function with its result."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    softmaxes = (torch.softmax, torch.Tensor.softmax, functional.softmax)

    class AttentionWatch(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            named = named or {}
            if function is functional.scaled_dot_product_attention:
                _keep(found, lambda: of_queries(*arguments, **named))
            elif function in softmaxes and getattr(arguments[0], "dim", lambda: 0)() == 4:
                _keep(found, lambda: of_scores(arguments[0][:SEQUENCES, :, -QUERIES:], arguments[0].shape[-2]))
            result = function(*arguments, **named)
            with contextlib.suppress(Exception):  # a tensor of somebody's own: the pass goes on
                signs.saw(function, arguments, named, result)
            return result

    return AttentionWatch()


def _keep(found: list[tuple[Any, Any, Any]], measure: Any) -> None:
    import torch

    try:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            found.append(measure())
    except Exception:  # a shape of somebody's own: the attention itself goes on
        return


def of_queries(
    query: Any,
    key: Any,
    value: Any = None,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Any, Any, Any]:
    """The last queries' greatest logit, entropy and share of later keys, for the arguments of torch's attention.

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


def of_scores(scores: Any, places: int = 0) -> tuple[Any, Any, Any]:
    """The greatest logit, the entropy and the share of later keys of scores (…, queries, keys), those hidden at -inf or
    near the least number of their type. places: of all queries, of which these are the last."""
    import torch

    scores = scores.float()
    seen = scores > -1e30  # masks are -inf or the least number of a type
    largest = scores.masked_fill(~seen, -math.inf).amax()
    chances = scores.softmax(-1)
    entropy = torch.special.entr(chances).sum(-1)
    room = seen.sum(-1).clamp_min(2).log()
    many = seen.sum(-1) > 1  # a query with one key has nothing to choose
    share = torch.where(many, entropy / room, torch.zeros_like(entropy)).sum() / many.sum().clamp_min(1)
    later = torch.full_like(largest, math.nan)
    keys = scores.shape[-1]
    if places == keys and scores.shape[-2] > 1:
        behind = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1 + keys - scores.shape[-2])
        later = (seen & behind).sum() / behind.expand(seen.shape).sum()
    return largest, share, later
