"""Names of series as expressions read them, however they are written.

In:   a name: `train/CrossEntropyLoss`, `val.loss`, `loss (val)`, `train/loss [nats]`.
Out:  `plain_name`: small letters, words parted by underscores, and parts by slashes where there are any.
"""

from __future__ import annotations

import re
from functools import lru_cache

from barograph.core.aliases import normal
from barograph.core.patterns import expression

LONGEST = 512  # characters of a name that may play a role: expressions take time with the square of it

_PART = r"(?:val\w*|eval\w*|test|dev|held_?out|aux\w*|kl|z_?loss|moe|penalty|regulari[sz]ation)"
_WITHOUT = expression(
    rf"[/_. ]?(?<![a-z])(?:(?:no|non|without|wo|excl|excluding)[/_. ]{_PART}|{_PART}[/_. ]?(?:free|less))(?![a-z])"
)
_TRAINING = expression(r"(?<![a-z])trn(?![a-z])")  # as DeePMD-kit writes it
_TESTING = expression(r"(?<![a-z])tst(?![a-z])")
_GLUED = expression(r"(?<![a-z])(train|valid|val|eval|test|dev)(?=(?:loss|acc|nll|ppl)(?![a-z]))")  # `validloss`
_ENDS_ALIKE = expression(  # `retrieval/loss` is of no evaluation: as `retrieve/loss` it has none of their words
    r"(?<![a-z])((?:retrie|survi|arri|appro|remo|revi|reprie|festi|carni|medie|prime|inter)v)als?(?![a-z])"
)
_DOT = expression(r"(?<![\d@])\.|\.(?!\d)")  # of no number
_UNIT = expression(r"_?[\[(](?:nats?|bits?)(?:(?:/|_per_)[a-z]+)?[\])]$")
_IN_BRACKETS = expression(r"_?[\[(]([a-z][a-z_]*)[\])]$")


@lru_cache(maxsize=1 << 14)
def plain_name(name: str) -> str:
    """A name for expressions: `train/CrossEntropyLoss` is `train/cross_entropy_loss`; `loss_without_aux` is `loss`;
    `val.loss` is `val/loss`, `loss (val)` is `loss/val`, and `loss [nats]` is `loss`. Of `records/second. Loss`, cut
    out of sentences, the last one counts.
    """
    if len(name) > LONGEST:
        return name
    name = name.rpartition(". ")[2] or name
    plain = normal(re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name))
    plain = _IN_BRACKETS.sub(r"/\1", _UNIT.sub("", plain)) or plain
    if "/" not in plain:
        plain = _DOT.sub("/", plain)
    plain = _GLUED.sub(r"\1_", _TESTING.sub("test", _TRAINING.sub("train", plain)))
    plain = _ENDS_ALIKE.sub(r"\1e", plain)
    return _WITHOUT.sub("", plain).strip("/_. ") or plain
