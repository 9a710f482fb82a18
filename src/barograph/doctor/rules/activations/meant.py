"""What the configuration says is to be frozen, or to be trained, beside what is.

In:   the configuration; names of parts of a model that are trained, or frozen, as a whole, as the watch tells them.
Out:  a sentence where one contradicts the other; whether what is frozen is said to be; whether anything is said at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barograph.core.patterns import expression

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory

_FREEZES = expression(r"(?<!un)(?:freez(?:e|ing)?|frozen)|(?<![a-z])(?:lock(?:ed)?)(?![a-z])")
_MERELY = expression(r"(?:^|_)(?:is|do|use|keep|with|to)(?=_|$)")
_WHICH = r"(?:_(?:only|layers?|parts?|modules?|names?|keys?|params|parameters|prefix(?:es)?|patterns?))?"
_FREEZES_SOME = expression(
    rf"(?:(?:layers?|parts?|modules?|params|parameters)_)?(?:(?:to_)?freeze|frozen|lock(?:ed)?){_WHICH}"
)
_TRAINS = expression(rf"(?:train|trainable|tune|tuned|finetune|unfreeze|unfrozen){_WHICH}|only_train")
_OF_DATA = expression(r"(?:^|[._])(?:data|dataset|datasets|loader|loaders|split|splits|files?|paths?)\.")
_OTHERWISE = expression(r"but|except|not|until|after|gradual|unfreez|thaw|none|false|[~!^*]")
# of any model, or frozen in other ways than by `requires_grad`
_NO_PART = frozenset({
    "layer", "layers", "model", "weight", "weights", "param", "params", "parameters", "base", "block", "blocks", "all",
    "first", "last", "lower", "upper", "norm", "norms", "bn", "batchnorm", "stats", "quant", "ema", "teacher",
    "target", "reference", "ref", "module", "modules", "file", "cache", "epoch", "epochs", "step", "steps", "groups",
})  # fmt: skip
_PROBES = expression(
    r"(?<![a-z])(?:prob(?:e|ing)|(?:head|last|top|classifier|readout)_only|only_(?:head|last|top|classifier|readout))"
    r"(?![a-z])"
)
_THINLY = expression(
    _PROBES.pattern + r"|(?<!un)freez|frozen|feature_extract|transfer|"
    r"(?<![a-z])(?:lock(?:ed)?|reservoirs?|random_(?:features|projections?|init|weights|kernels?|fourier)|"
    r"(?:mini|multi)?_?rocket|echo_?states?|esn|elm|rff|extreme_learning)(?![a-z])"
)  # the last ones: methods whose body is drawn, and a readout alone trained
_CHOOSES = expression(
    r"(?:train|trainable|trained|tune|tuned|tuning|finetune|finetuning|fine_tune|fine_tuning|learn|learned|update|updated)"
    r"(?:_(?:only|layers?|parts?|modules?|params|parameters|mode|method|type|strategy|what|scope))?"
)
_STILL = r"freeze|frozen|hold|held|lock|locked|fix|fixed|pin|pinned"
_COUNTS_LAYERS = expression(
    r"(?:^|_)(?:train|trainable|trained|tune|tuned|finetune|fine_tune|learn|learned|update|updated|unfreeze|unfrozen)"
    r"(?:_last|_top)?(?:_n|_num)?_(?:layers|blocks|stages)(?:_(?:from|above|behind|since))?$|"
    r"(?:^|_)(?:layers|blocks|stages)_(?:to_)?(?:train|trainable|trained|tune|tuned|unfreeze|unfrozen|update|updated)$|"
    rf"(?:^|_)(?:{_STILL})(?:_(?:first|bottom|lower|lowest))?(?:_n|_num)?_(?:layers|blocks)$|"
    rf"(?:^|_)(?:n|num|number_of)_(?:{_STILL})_(?:layers|blocks)$|(?:^|_)(?:layers|blocks)_(?:to_freeze|{_STILL})$"
)
_SAME = {"image": {"image", "images", "img", "visual", "vision"}, "vision": {"visual", "vision", "image"},
         "text": {"text", "textual", "language"}}  # fmt: skip
_TABLES = frozenset({"emb", "embed", "embeds", "embedding", "embeddings"})
_VECTORS = frozenset({"vectors", "vecs", "word_vectors", "word_vecs", "wordvecs", "word2vec", "glove", "fasttext"})
_SAME |= {one: {*_TABLES, "wte"} for one in _TABLES}
_SAME |= {one: {*_TABLES, *_VECTORS, "wte", "words"} for one in _VECTORS}
_TO_TRAIN = expression(r"(?:train|tune|finetune|fine_tune|unfreeze)_(\w+)|(\w+)_(?:trainable|trained|unfrozen)")
_OF_TASK = {"image", "vision", "visual", "text", "language", "audio", "video"}  # also what data are of
_TOWER = frozenset({"encoder", "tower", "model", "net", "network", "branch", "trunk", "backbone", "transformer"})
_TABLE = expression(r"(?:^|[_.])(?:word_?|token_?)?(?:emb|embeds?|embeddings?|tables?|lookups?|vectors|wte)(?:[_.]|$)")
_KEEPS = expression(r"fix|static|random|untrain|keep|kept|stop_?grad|detach|no_?grad|pre_?trained|glove|word2vec")
_LEARNS = expression(r"train|learn|tune|updat|grad")
_WHOLE = expression(
    r"(?:^|_)full_?(?:fine_?)?(?:tun|train|param)|(?:^|_)(?:train|tune|finetune|fine_tune|unfreeze)_"
    r"(?:base|backbone|all|everything|whole|full)(?:_(?:model|layers|params|parameters|weights))?$"
)
_ALL = frozenset({"all", "everything", "full", "whole", "full_finetune", "full_finetuning", "full_model"})
_TARGETS = expression(
    r"(?:(?:lora|adapter|peft|dora|loha|lokr)_)?target(?:_modules?|_layers?|s)|(?:lora|adapter)_modules"
)
_A_PART = r"(?:head|classifier|projection|projector|connector|decoder|encoder|backbone|tower|adapter)s?"
_STAGES = expression(r"unfreez|thaw|gradual|progressiv|(?:^|_)stage(?:s|d)(?:_|$)")  # of what is frozen for a while
_THAW = expression(
    r"(?:unfreez|thaw)\w*?_?(?:epochs?|steps?|iters?|iterations?|at|after)$|"
    r"(?:freez|frozen)\w*_(?:epochs|steps|iters|iterations)$|(?:freez|frozen)\w*_until_?\w*$"
)
_NO_THAW = expression(
    r"_per_|_every|_after_(?:last|every)|layer|block|stage|(?:^|_)(?:lr|bn|norm|batchnorm|quant|observer|stat|stats|"
    r"ema|teacher|target|rate|disc|discriminator|generator|critic|reference)(?:_|$)|(?<!un)freeze_(?:after|at|from|start)"
)  # counts of layers, and what is not frozen by `requires_grad`, or only from then on
_FOR_A_WHILE = expression(
    r"(?:lock(?:ed)?)_\w*_?(?:epochs|steps|iters|iterations)$|lock(?:ed)?_\w*until_?\w*$|"
    rf"(?:^|_){_A_PART}_(?:only|alone|first|warm_?up)_(?:for_)?(?:epochs|steps|iters|iterations)$|"
    rf"(?:^|_)(?:only|warm_?up)_{_A_PART}_(?:epochs|steps|iters|iterations)$"
)  # of a part that is trained alone at first
_COUNT = expression(r"(?:^|[._])(?:n|num|number|number_of|model)?_?stages$")
_LEAVES = expression(
    r"(?:^|_)(?:non?|not|without|skip(?:ped)?|exclud(?:e|ed|ing)|except|ignored?|keep|kept|fix(?:ed)?|pin(?:ned)?|static|"
    r"untouched|leave|left|held|hold)(?=_|$)|(?:^|_)un(?:adapted|trained|tuned|changed)(?=_|$)"
)
_STOPPED = expression(r"(?<![a-z])stop_?grad(?:ient)?s?(?![a-z])")
_FOLLOWS = expression(
    r"(?:^|_)(?:slow|ema|momentum|teacher|target|key|shadow|averaged?|copy)(?=_|$)|(?:encoder|net|model|branch)_[km]$"
)
_LETTERS = 3
_TOWERS = {"tower", "side", "branch", "modality", "encoder"}  # of several parts
_SAYS = 3  # options at least, of a configuration that would say what is frozen


def contradicted(history: RunHistory, texts: Mapping[str, str], alone: bool, adapted: bool) -> str:
    """Which option is not followed; empty if all are, as far as is known. texts: names of whole parts. alone: whether
    one parameter alone is frozen. adapted: whether there are adapters, for which all else is frozen.

    What an option names has to be a part as a whole, and not something within it or beside it: a projection or a norm
    of a frozen tower may be trained, and a frozen backbone has a head of its own. Paths, and options of data, name
    none.
    """
    trained, frozen = (texts.get(name, "") for name in ("parts_trained", "parts_frozen"))
    parts = {True: trained.split(", ") if trained else [], False: frozen.split(", ") if frozen else []}
    for name, value in history.options.found.items():
        plain = name.rpartition(".")[2].lower()
        part_of = "" if adapted or _OF_DATA.search(name.lower()) else _to_train(plain, value)
        freezes = False if part_of else None if alone else _option(name.lower(), plain, value)
        if freezes is None:
            continue
        for word in _words_of(part_of or (_part_in(plain) if value is True else str(value))):
            ours = _SAME.get(word, {word})
            loose = (part_of or plain in ("train", "tune", "finetune")) and word in _OF_TASK
            if len(word) < _LETTERS or "/" in word or loose or ours & _NO_PART:
                continue
            against = [part for part in parts[freezes] if _is(part.lower().rpartition(".")[2], ours)]
            if not freezes:  # a head of what is frozen as a whole is that one's
                against = [part for part in against if not _within(part, parts[False])]
            if against and not _named(parts[not freezes], ours):
                how = ("frozen", "is trained") if freezes else ("trained", "is frozen")
                return f"`{name}` says that {word} is to be {how[0]}, and {against[0]} {how[1]}."
    return ""


def texts_of(history: RunHistory, step: int, time: int) -> dict[str, str]:
    """What the same look found in words: names of what is frozen, of parts as a whole."""
    fields = (one.fields for one in history.events_of("model")
              if "frozen" in one.fields and one.step == step and one.time <= time)  # fmt: skip
    return {name: str(value) for name, value in next(fields, {}).items()}


def unmatched(history: RunHistory, texts: Mapping[str, str]) -> str:
    """Which layers an option of adapters names, that have none, while others that it names have; empty if there is no
    such option. texts: last names of layers with adapters, and of those without. Names that no layer has are
    of other models; so may some be where none of those that have adapters is named."""
    ours, others = (set(texts.get(name, "").lower().split(", ")) - {""} for name in ("adapted_layers", "bare_layers"))
    for name, value in history.options.found.items():
        if not _TARGETS.fullmatch(name.rpartition(".")[2]) or not isinstance(value, str | list | tuple):
            continue
        words = set(_words_of(value) if isinstance(value, str) else [str(one).lower() for one in value])
        missed = sorted((words & others) - ours)
        if missed and words & ours and all(word.isidentifier() for word in words):
            return f"`{name}` names {', '.join(missed)}, and no layer of that name has adapters."
    return ""


def said_frozen(history: RunHistory, names: str) -> bool:
    """Whether the configuration says that what is frozen is to be: options of freezing have a word that is in each of
    its names, one of them or several together; or an option, whatever it is called, has the names themselves, or those
    of the parts that they are in; or a list of what is trained has no word that is in one of them. Of a tower or a side
    (`frozen_tower: text`) one part, as its table, may be called otherwise. names: of what is frozen, as the watch lists
    them; those of a copy that follows the weights don't count."""
    every = names.lower().split(", ")
    listed = [one for one in every if _FOLLOWS.search(one.partition(".")[0]) is None] or every
    told: set[str] = set()
    tower = False
    for name, value in history.options.found.items():
        plain = name.rpartition(".")[2].lower()
        chooses = _CHOOSES.fullmatch(plain) or _TRAINS.fullmatch(plain)
        if chooses and isinstance(value, str | list | tuple):
            chosen = _words_of(value) if isinstance(value, str) else [str(one).lower() for one in value]
            named = [word for word in chosen if len(word) >= _LETTERS]
            if len(named) > 1 and not any(word in one for word in named for one in listed):
                return True
        if isinstance(value, str) and not chooses:
            parts = [part for part in _words_of(value) if len(part) >= _LETTERS]
            if parts and all(one in parts or _within(one, parts) for one in listed):
                return True
        if not value or (isinstance(value, int | float) and value is not True):
            continue
        words = _sides(_STOPPED.sub("freeze", name))
        if isinstance(value, str) and words is not None:
            tower = tower or bool(words & _TOWERS)
            words |= set(_words_of(value))
        told |= {one for one in listed if any(len(word) >= _LETTERS and word in one for word in words or ())}
    return len(set(listed) - told) <= (1 if tower and told else 0)


def said_part(history: RunHistory, names: str) -> bool:
    """Whether an option of freezing, or of what is left as it is, names a part that is frozen as a whole (`freeze:
    layers.0`, `not_adapted: layers.0`). names: see `said_frozen`."""
    listed = names.lower().split(", ")
    for name, value in history.options.found.items():
        parts = value if isinstance(value, list | tuple) else [value]
        told = _sides(name) is not None or _LEAVES.search(name.rpartition(".")[2].lower()) is not None
        if told and any(
            word in listed for part in parts if isinstance(part, str) for word in re.split(r"[\s,;|]+", part.lower())
        ):
            return True
    return False


def said_none(history: RunHistory, texts: Mapping[str, str]) -> bool:
    """Whether the configuration has an option for what is frozen, or left as it is, and none such has a value (`freeze:
    ''`, `keep: ''`), while all that is frozen are parts as a whole, and not slow copies of what is trained, by their
    names. texts: names of both."""

    def asks(name: str) -> bool:
        return _sides(name) is not None or _LEAVES.search(name.rpartition(".")[2].lower()) is not None

    names, parts = (texts.get(name, "").split(", ") for name in ("frozen", "parts_frozen"))
    whole = all(name and name.partition(".")[0] in parts for name in names)
    whole = whole and not all(_FOLLOWS.search(name.partition(".")[0]) for name in names)
    return whole and any(map(asks, history.options.empty)) and not any(map(asks, history.options.found))


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
        chosen = _CHOOSES.fullmatch(plain) and isinstance(value, str)
        if told or chosen or _counts_layers(plain, value) or _THINLY.search(plain):
            return True
    return False if len(found) >= _SAYS else None


def said_whole(history: RunHistory) -> bool:
    """Whether the configuration says that all of the model is trained, the layers beside adapters among it."""
    options = ((name.rpartition(".")[2].lower(), value) for name, value in history.options.found.items())
    return any(
        (value is True and _WHOLE.search(plain))
        or (isinstance(value, str) and _CHOOSES.fullmatch(plain) and value.lower() in _ALL)
        for plain, value in options
    )


def said_layers(history: RunHistory) -> bool:
    """Whether the configuration says how many layers are to be trained, as `num_layers_unfrozen: 2`, or frozen."""
    return any(_counts_layers(name.rpartition(".")[2].lower(), value) for name, value in history.options.found.items())


def _counts_layers(plain: str, value: object) -> bool:
    counted = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return counted and _COUNTS_LAYERS.search(plain) is not None


def said_table(history: RunHistory) -> bool | None:
    """Whether the configuration says that a part is to be frozen, or that an embedding is kept as it is (`fixed_emb`,
    `train_embeddings: false`). None of one that says nothing at all."""
    for name, value in history.options.found.items():
        plain, text = name.rpartition(".")[2].lower(), value.lower() if isinstance(value, str) else ""
        about = _TABLE.search(plain) or _TABLE.search(text)
        if about and ((_LEARNS.search(plain) and not value) or (value and _KEEPS.search(f"{plain} {text}"))):
            return True
    return said_thin(history)


def _option(name: str, plain: str, value: object) -> bool | None:
    """Whether an option says what is to be frozen (True) or to be trained (False)."""
    if value is True:
        return True if _part_in(plain) else None
    if not isinstance(value, str) or not value or _OTHERWISE.search(value.lower()) or _OF_DATA.search(name):
        return None
    return True if _FREEZES_SOME.fullmatch(plain) else False if _TRAINS.fullmatch(plain) else None


def _to_train(plain: str, value: object) -> str:
    """Which part an option that is on or off says is to be trained, as `train_embeddings: true` and `freeze_encoder:
    false` do; empty if it says none."""
    if value is False:
        return _part_in(plain)
    told = _TO_TRAIN.fullmatch(plain) if value is True else None
    return (told[1] or told[2]) if told else ""


def _sides(name: str) -> set[str] | None:
    """What stands before and behind the word for freezing in an option's name; None where there is no such word."""
    told = _FREEZES.search(name)
    return {one.strip("_.-/ ") for one in (name[: told.start()], name[told.end() :])} if told else None


def _words_of(value: str) -> list[str]:
    """The parts that an option's value names."""
    return [word.strip("_.-") for word in re.split(r"[\s,;|+]+", value.lower())]


def _part_in(plain: str) -> str:
    """What `freeze_stem` or `stem_frozen` names; nothing in `eval_frozen_stem`."""
    sides = {_MERELY.sub("", one).strip("_-") for one in _sides(plain) or ()} - {""}
    return sides.pop() if len(sides) == 1 else ""


def _is(part: str, words: set[str]) -> bool:
    """Whether a part is called so, or the tower of that name: `vision_tower`, and not `vision_projection`."""
    return part in words or (not words.isdisjoint(part.split("_")) and set(part.split("_")) <= words | _TOWER)


def _within(part: str, parts: list[str]) -> bool:
    return any(part.startswith(f"{other}.") for other in parts)


def _named(parts: list[str], words: set[str]) -> list[str]:
    """Those of which a name, or the words of it, is one of these."""
    return [
        part for part in parts
        if any(one in words or not words.isdisjoint(one.split("_")) for one in part.lower().split("."))
    ]  # fmt: skip


def in_stages(history: RunHistory) -> bool:
    """Whether the configuration says that what is frozen will be trained later, as `unfreeze_at`, `freeze_image_steps`
    and `head_only_epochs` do."""
    return any(
        value not in (None, False, 0, "") and (
            (_STAGES.search(name) and not _counts_stages(name, value))
            or _is_until(name.rpartition(".")[2].lower(), value)
            or ("freez" in name and isinstance(value, str) and _STAGES.search(value.lower()))
        )
        for name, value in history.options.found.items()
    )  # fmt: skip


def thaws(plain: str) -> bool:
    """Whether an option of that name, in small letters, says when what is frozen is to be trained."""
    return _THAW.search(plain) is not None and _NO_THAW.search(plain) is None


def _is_until(plain: str, value: Any) -> bool:
    """Whether an option says for how long a part is frozen, or others are trained alone."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return number and (thaws(plain) or _FOR_A_WHILE.search(plain) is not None)


def _counts_stages(name: str, value: Any) -> bool:
    """Whether an option says how many stages a model has, as `stages: 3`."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and _COUNT.search(name) is not None
