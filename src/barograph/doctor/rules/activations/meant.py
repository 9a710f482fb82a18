"""What the configuration says is to be frozen, or to be trained, beside what is.

In:   the configuration; names of parts of a model that are trained, or frozen, as a whole.
Out:  a sentence where one contradicts the other; whether anything is said of it at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory

_FREEZES = re.compile(r"(?<!un)(?:freez(?:e|ing)?|frozen)|(?<![a-z])(?:lock(?:ed)?)(?![a-z])")
_TRAINS = re.compile(
    r"(?:train|trainable|tune|tuned|finetune|unfreeze|unfrozen)(?:_(?:only|layers|parts|modules))?|only_train"
)
_OTHERWISE = re.compile(r"but|except|not|until|after|gradual|unfreez|thaw|none|false|[~!^*]")
# of any model, or frozen in other ways than by `requires_grad`
_NO_PART = frozenset({
    "layer", "layers", "model", "weight", "weights", "param", "params", "parameters", "base", "block", "blocks", "all",
    "first", "last", "lower", "upper", "norm", "norms", "bn", "batchnorm", "stats", "quant", "ema", "teacher",
    "target", "reference", "ref", "module", "modules", "file", "cache", "epoch", "epochs", "step", "steps", "groups",
})  # fmt: skip
_PROBES = re.compile(
    r"(?<![a-z])(?:prob(?:e|ing)|(?:head|last|top|classifier|readout)_only|only_(?:head|last|top|classifier|readout))"
    r"(?![a-z])"
)
_THINLY = re.compile(
    _PROBES.pattern + r"|(?<!un)freez|frozen|feature_extract|transfer|"
    r"(?<![a-z])(?:lock(?:ed)?|reservoir|random_(?:features|projections?|init|weights))(?![a-z])"
)
_CHOOSES = re.compile(
    r"(?:train|trainable|trained|tune|tuned|tuning|finetune|finetuning|fine_tune|fine_tuning|learn|learned|update|updated)"
    r"(?:_(?:only|layers?|parts?|modules?|params|parameters|mode|method|type|strategy|what|scope))?"
)
_SAME = {"image": {"image", "images", "img", "visual", "vision"}, "vision": {"visual", "vision", "image"},
         "text": {"text", "textual", "language"}}  # fmt: skip
_LETTERS = 3
_SAYS = 3  # options at least, of a configuration that would say what is frozen


def contradicted(history: RunHistory, trained: str, frozen: str) -> str:
    """Which option is not followed; empty if all are, as far as is known. trained, frozen: names of whole parts."""
    parts = {True: trained.split(", ") if trained else [], False: frozen.split(", ") if frozen else []}
    for name, value in history.options.found.items():
        plain = name.rpartition(".")[2].lower()
        if value is not True and not (isinstance(value, str) and value and not _OTHERWISE.search(value.lower())):
            continue
        freezes, trains = _FREEZES.search(plain), _TRAINS.fullmatch(plain)
        if freezes is None and (trains is None or value is True):
            continue
        said = plain[: freezes.start()] + "," + plain[freezes.end() :] if freezes and value is True else str(value)
        for word in re.split(r"[\s,;|+/]+", said.lower()):
            word = word.strip("_.-")
            ours = _SAME.get(word, {word})
            if len(word) < _LETTERS or ours & _NO_PART:
                continue
            against, along = (_named(parts[state], ours) for state in (freezes is not None, freezes is None))
            if against and not along:
                how = ("frozen", "is trained") if freezes else ("trained", "is frozen")
                return f"`{name}` says that {word} is to be {how[0]}, and {against[0]} {how[1]}."
    return ""


def said_thin(history: RunHistory) -> bool | None:
    """Whether the configuration says that only a part is to be trained, in whatever words: a probe, what is frozen,
    which part is trained. None of one that says nothing at all."""
    found = history.options.found
    for name, value in found.items():
        if value in (None, False, 0, "", (), [], {}) or (
            isinstance(value, str) and value.lower() in ("none", "false", "no", "off", "[]", "all", "full")
        ):
            continue
        plain = name.rpartition(".")[2].lower()
        # the folder of a run may be called anything
        told = isinstance(value, str) and (_PROBES if "/" in value else _THINLY).search(value.lower())
        if told or _THINLY.search(plain) or (_CHOOSES.fullmatch(plain) and isinstance(value, str)):
            return True
    return False if len(found) >= _SAYS else None


def _named(parts: list[str], words: set[str]) -> list[str]:
    """Those of which a name, or the words of it, is one of these."""
    return [
        part for part in parts
        if any(one in words or not words.isdisjoint(one.split("_")) for one in part.lower().split("."))
    ]  # fmt: skip
