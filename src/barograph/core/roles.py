"""Roles: which series is the loss, the gradient norm, the learning rate, whatever a training calls them.

In:   the names of a run's series.
Out:  those that may play a part, the likeliest first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from barograph.core.aliases import ALIASES, CONVERTED, normal
from barograph.core.heldout import ASIDE, HELD_OUT
from barograph.core.patterns import expression
from barograph.core.plain_names import LONGEST, plain_name

# What a loss is called beside "loss"; errors that regressions and decoders are trained on are losses as well.
_ENTROPIES = r"nll|neg(?:ative)?_log_likelihood|ce|xe|x_?ent(?:ropy)?|cross_?ent(?:ropy)?|log_perplexity|deviance"
_ERRORS = r"r?ms[pl]?e|mae|bce|huber|merror|(?:multi|binary)_error"
# What else a training may be named after: a loss beside the name of its data alone.
_OBJECTIVES = (
    r"contrastive|info_?nce|nt_?xent|sup_?con|triplet|arc_?face|ctc|rnn_?t|transducer|seq2seq|m?lm|(?:neg(?:ative)?_)?elbo|"
    r"recon(?:struction)?|dpo|ipo|kto|orpo|cpo|simpo|barlow|vicreg|byol|dino|simsiam|simclr|moco|siglip|"
    r"distill(?:ation)?|denois(?:ing|e)|diffusion|flow_?matching|score_?matching|regression|hinge|chamfer|pinball|"
    r"quantile|smooth_?l[12]|nats|bits_per_(?:dim|char|byte|token)|bpd"
)

# what a loss is called as a whole, and in other languages
_COSTS = r"cost|obj(?:ective)?|criterion"
_LOSSES = r"loss|verlust|perte|p[eé]rdida|perdita|perda"

# the share of examples that are right
_RIGHT = r"(?:acc(?:uracy)?(?:[@_]?1|[_/]top_?1|[ _]?\(%\))?|top[-_@]?1(?:[_/]acc(?:uracy)?)?)"

# `loss_cls`, the loss of a part; not what is said of a loss
_NO_LOSS = (
    rf"(?!.*(?:(?!value){HELD_OUT}|aux|(?<![a-z])z_?loss|kl(?!y)|"
    r"loss[_/. ](?:scal|weight|ratio|std|var|min|max|diff|delta|time|tok|count|num|"
    r"fn|type|coef|lr|norm|grad|rate|improve|best|thres|mask|limit|func|step|curve|log|plot|history)))"
)

# of the words in `_SIDES`, those that no policy's reward is called by
_WON = "chosen|good|better|winner|preferred|desirable|liked|accepted"
# Role → canonical names of the store, the likeliest first, then a pattern for names of users.
ROLES: dict[str, tuple[tuple[str, ...], str]] = {
    "loss": (
        ("train/loss", "train/mean_loss"),
        rf"(?!.*(?:val(?!ue)|eval|(?<!la)test|dev(?!ice|ian)|{ASIDE}|aux|(?<![a-z])z_?loss|kl(?!y)))"
        rf"(?:.*(?<![a-z])(?:[a-z]{{2,9}}|c)?loss(?:es)?|(?:.*[^a-z])?(?:{_LOSSES}|{_ENTROPIES}|{_ERRORS}|bp[bc]))"
        rf"(?:[_/.](?:mean|avg|ema|smooth(?:ed)?|total|train|step|epoch|iter|m?lm|vae|per_[a-z]+|{_ENTROPIES}|{_ERRORS})){{0,2}}"
        rf"|{_NO_LOSS}(?:.*[^a-z])?loss[_/. ](?:train(?:ing)?[_/. ](?:last[_/. ])?)?[a-z0-9]+|loss_?value"
        r"|(?:.*[^a-z])?err(?:or)?[_/. ](?:g|d|gen(?:erator)?|disc(?:riminator)?)"
        rf"|(?:(?:the|train|training|avg|average|mean|total|current|curr)[_/. ])?(?:{_COSTS})"
        r"|(?:.*[/. ])?l_(?:[gd]_)?(?:total|pix|pixel|percep|perceptual|fea|gan|real|fake|style|rec|cls|char|edge)"
        rf"|train(?:ing)?[_/. ](?:{_OBJECTIVES}|l[12])|l[12]_train(?:ing)?",  # of boosting, of potentials
    ),
    "eval_loss": (
        ("eval/loss", "val/loss", "eval/bpb"),
        rf"(?!.*train)(?:(?:.*[/_. ])?{HELD_OUT}(?:[/_. ].*)?[/_. ]"
        rf"(?:(?:[a-z]{{2,9}}|c)?(?:loss|bpb)|{_LOSSES}|{_ENTROPIES}|{_ERRORS})(?:[/_. ].*)?"
        rf"|{HELD_OUT}[/_. ](?:{_OBJECTIVES}|{_COSTS})"
        rf"|(?:.*[/_. ])?(?:{_LOSSES}|{_ENTROPIES}|{_ERRORS})[/_. ](?:[a-z]+[/_. ])?{HELD_OUT}"
        rf"|{HELD_OUT}(?:_\d)?[_/. ]l[12]|l[12]_{HELD_OUT})",
    ),
    "norm": (("train/norm",), r"(?:.*[^a-z])?grad(?:ient)?s?[ _.]?norm"),
    "norm_after": (("model/grad_norm",), ""),
    "lr": (("train/lr",), r"(?!.*(?:mult|factor|scal|ratio))(?:.*[^a-z])?(?:lr|learning_rate)(?:[-_/].*)?"),
    "duration_ms": (("train/duration_ms",), ""),
    "throughput": (
        ("train/tokens_per_second", "train/tokens_per_second_per_device"),
        rf"(?!(?:.*[^a-z])?{HELD_OUT}(?:[^a-z]|$))(?:.*(?:samples|steps|tokens|examples)_per_sec(?:ond)?"
        r"|(?:.*[/_. ])?(?:samples|tokens|toks?|examples|images|imgs?|sequences|seqs|words|frames|tflops?|tflop)"
        r"(?:/s(?:ec(?:ond)?)?|_per_(?:s|sec|second))(?:(?:/|_per_)(?:device|gpu|chip|node|rank|accelerator))?)",
    ),
    "step_tokens": (("train/step_tokens",), ""),
    "mfu": (("train/mfu",), r"(?:.*[/_. ])?mfu(?:_?\(%\)|_%|_percent|_pct)?"),
    "loss_scale": (("model/loss_scale",), r"(?:.*[^a-z])?(?:loss|grad)_?scale"),
    "param_norm": (("model/param_norm",), r"(?!updates/|weights/)(?:.*[^a-z])?(?:params?|weight)[ _.]?norm"),
    "accuracy": (("train/accuracy",), rf"train(?:ing)?[_/. ]{_RIGHT}|{_RIGHT}[_/. ]train(?:ing)?"),
    "eval_accuracy": (
        ("eval/accuracy",),
        rf"(?:.*/)?(?:{HELD_OUT}_)?{HELD_OUT}[_/. ]{_RIGHT}(?:_epoch)?"
        rf"|(?:.*/)?{_RIGHT}[_/. ](?:{HELD_OUT}_)?{HELD_OUT}",
    ),
    "score": (  # of images, segmentations, rankings and classifiers, where higher is better
        ("eval/score",),
        r"(?!.*(?:train|best|loss))(?:.*[^a-z])?(?:psnr|ssim|dice(?:_(?:score|coeff?(?:icient)?))?|dsc|"
        r"(?:m_?|mean_|fw_?)?io_?u\d?|mean_iu|jaccard|n_?dcg|mrr|hit_?rate|auroc|auprc|auc|kappa|r2|f1(?:_score)?|"
        r"m_?ap(?:_?\d{2})?|bleu)(?:@\.?\d{1,4}(?:[-:]\.?\d{1,4})?)?",
    ),
    "epoch": (("train/epoch",), ""),
    "reward": (
        ("train/reward", "reward"),
        r"(?!(?:.*[^a-z])?(?:best|chosen|rejected|(?:dis)?preferred)[^a-z])"  # a preference's are differences of logs
        r"(?:.*[^a-z])?(?:(?:mean|avg|average|total)_?)?(?:rew(?:ard)?s?(?:[/_](?:mean|score))?|"
        r"(?:episodic|episode|ep)_?(?:return|reward|rew|score)(?:_?mean)?|(?:return|reward|score)s?_per_(?:episode|ep|game)|"
        r"(?:mean|avg|average)_?fitness|fitness[/_](?:mean|avg)|"  # of an evolution
        r"(?:mean|avg|average)_?(?:ep_?ret|return|score))"
        r"(?:_\(?(?:last_)?\d{1,6}\)?(?:_ep(?:isode)?s?)?)?"  # over that many episodes
        r"|critic/score/mean",
    ),
    "chosen_reward": (
        (
            "rewards/chosen",
            "train/rewards/chosen",
            "rewards_chosen",
            "train/rewards_chosen",
            "reward_chosen",
            "rewards_train/chosen",
        ),
        rf"(?!.*(?:{HELD_OUT}))(?:(?:.*[^a-z])?(?:{_WON})[_/]rewards?|(?:.*[^a-z])?rewards?[_/](?:{_WON}))(?:[_/](?:train(?:ing)?|step))?",
    ),
    "kl": (("train/kl", "kl"), r"(?:.*[^a-z])?(?:approx_)?kl(?:_div|_mean)?"),
    "entropy": (("train/entropy", "entropy"), r"(?!.*cross)(?:.*[^a-z])?(?:policy_)?entropy(?:_mean)?"),
    "clip_ratio": (
        ("train/clip_ratio", "clip_ratio"),
        r"(?!.*(?:grad|norm))(?:.*[^a-z])?clip(?:_ratio|frac|_fraction)(?:/.*mean)?",
    ),
    "equal_rewards": (("train/frac_reward_zero_std", "frac_reward_zero_std"), r".*frac_reward_zero_std.*"),
    "sampling_difference": (
        ("train/sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/mean"),
        r".*sampling_logp_difference(?:/mean)?",
    ),
    "truncated": (("train/completions/clipped_ratio", "completions/clipped_ratio"), r".*completions?/clipped_ratio.*"),
}

# What is measured beside a loss, where the words for data held out are not enough to tell.
_MEASURED = expression(
    r"(?<![a-z])(?:acc(?:uracy)?|prec(?:ision)?|rec(?:all)?|f\d|f_?beta|au(?:ro|pr)?c|ap|map|score|io_?u|dice|dsc|jaccard|"
    r"bleu|rouge|meteor|chrf|[wcptsm]er|psnr|ssim|lpips|fid|kid|is|si_?s[dn]r|s[dn]r|pesq|stoi|top|hits?|mrr|n?dcg|ranks?|"
    r"r2|r_?squared|corr(?:elation)?|pearson|spearman|kendall|mcc|kappa|sens(?:itivity)?|spec(?:ificity)?|rate|ratio|"
    r"share|frac(?:tion)?|pct|percent(?:age)?|prob(?:ability)?|conf(?:idence)?|exact|em|match(?:es|ed)?|succ(?:ess)?|wins?|"
    r"won|rewards?|returns?|len(?:gths?)?|episodes?|times?|sec(?:onds?)?|ms|dur(?:ation)?|speed|per|tok(?:en)?s?|examples?|"
    r"samples?|batch(?:es)?|steps?|epochs?|iter(?:ation)?s?|counts?|num(?:ber)?|n|size|lr|norms?|grad(?:ient)?s?|weights?|"
    r"temp(?:erature)?|scale|margins?|dist(?:ances?)?|sim(?:ilarity)?|cos(?:ine)?|entropy|ppl|perplexity|kld?|var(?:iance)?|"
    r"std(?:ev)?|deviation|spread|gaps?|min|max|best|mem(?:ory)?|gpu|cpu|"
    r"ece|brier|[tf][pn]r?|eer|flops|bits|quality|agree(?:ment)?|correct|err(?:or)?s?|"
    r"wrong|mistakes|chosen|rejected|logps?|logits?|pos(?:itive)?s?|neg(?:ative)?s?|purity|coverage|diversity|alignment|"
    r"uniformity|knn|probe|linear|performance|balance|found|seen|is_\w+|has_\w+|progress|patience|saved|elbo|likelihood)"
    r"(?![a-z])"
)
_GOOD = expression(
    r"(?<![a-z])(?:acc(?:uracy)?|prec(?:ision)?|rec(?:all)?|f\d|f_?beta|au(?:ro|pr)?c|m?ap|m?io_?u|dice|bleu|rouge|[wc]er|"
    r"psnr|ssim|fid|top|hits?|mrr|n?dcg|r|r2|mcc|kappa|exact|em|correct|right|err(?:or)?)(?![a-z])"
)
_WHOLES = expression(
    r"(?<![a-z])(?:sentences?|utt(?:erances?)?|doc(?:ument)?s?|seq(?:uence)?s?|windows?|words?|lines?|totals?|sum(?:med)?)"
    r"(?![a-z])"
)
_DATA_OF = expression(rf"(?:.*/)?{HELD_OUT}[/_. ](?P<what>[a-z][a-z_ ]*)")


_OF_HELD_OUT = expression(
    rf"(?!.*train)(?!.*(?<![a-z])(?:time|sec(?:ond)?s?|ms|dur(?:ation)?|per|every|freq(?:uency)?|interval|steps?)(?![a-z]))"
    rf"(?:{HELD_OUT}[/_. ].+|[a-z][a-z0-9_@]*/{HELD_OUT})"
)

# Another loss of the training: of more rows, of a part, of a player, of a network beside it.
_OF_ROWS = expression(
    r"(?<![a-z])(?:epochs?|mean|avg|average|running|smooth(?:ed)?|ema|total|sum|cum(?:ulative)?|window|interval|min|max|best|"
    r"last|final|initial|std|raw|scaled|reg\w*|r1|r2|path\w*|penalty|kl\w*|commit\w*|codebook|vq|rout(?:er|ing)|balanc\w*|"
    r"aux\w*|g|d|gen\w*|disc\w*|adv\w*|actor|critic|policy|value|q\d?|entropy|alpha|teacher|student|pretrain\w*|"
    r"warm_?up|fine_?tun\w*|distill\w*|moe|z|lb|l[12]|[a-z]?\d+|rank|gpu|device|worker)(?![a-z])"
)


# canonical name → other spellings of the same, in the same unit
_SPELLINGS: dict[str, list[str]] = {
    canonical: [normal(name) for name in names]
    + [normal(name) for name, factor in CONVERTED.get(canonical, ()) if factor == 1.0]
    for canonical, names in ALIASES.items()
}


_PERPLEXITY = expression(r"(?i)(?<![a-z])(?:pplx?|perplexity)$")


# Made of a loss, or an error that a run with a loss measures beside it.
_OF_LOSS = r"perplexity|bp[bc](?![a-z])"
_MADE = expression(rf"(?i){_OF_LOSS}|(?<![a-z])(?:{_ERRORS})(?![a-z])(?!.*loss)")
_WHOLE = expression(r"(?i)(?<![a-z])(?:tot(?:al)?|overall|combined|final|all)(?![a-z])")
_SUMS = ("total", "overall", "combined", "objective")  # of losses that stand beside them
_PART_LOSS = expression(r"(?i)/(?!(?:total|train|mean|avg)[_.])[a-z0-9_.]+[_.]loss$")
_OF_TRAINING = expression(r"(?:(?:the|train(?:ing)?|mean|avg|average|running|smoothed|batch|epoch|step|lm)[/_. ])*loss")
_OF_PART = expression(
    rf"(?i)loss[_/. ](?!(?:mean|avg|ema|smooth|total|train|step|epoch|iter|m?lm|vae|per_|{_ENTROPIES}|{_ERRORS}))"
    r"[a-z0-9]+$"
)
_OF_POLICY = expression(
    r"(?i)(?:.*[^a-z])?(?:surrogate|policy(?:_gradient)?|pg|actor|critic|value(?:_function)?|q|qf\d?|vf|td|estimation)"
    r"[/_. ]loss"
)
_OF_ADVERSARY = expression(r"(?<![a-z])(?:d|disc(?:riminator)?|dis|critic)(?![a-z])|(?<![a-z])mae(?![a-z])")
_OF_AGENT = expression(r"(?:.*[^a-z])?(?:total_)?loss")  # the sum of such parts
_WRONG = expression(r"(?:merror|(?:multi|binary)_error)$")  # shares that are wrong, of boosting: behind any loss
_EXTREME = expression(r"(?<![a-z])(?:max(?:imum)?|min(?:imum)?|std)(?![a-z])")  # of episodes, beside their mean
_OBJECTIVE = expression(rf"(?:{_OBJECTIVES})(?:_loss)?")
_BARE = expression(
    rf"(?:train(?:ing)?|{HELD_OUT})[/_. ](?!neg)(?:{_OBJECTIVES})"
)  # a part, where another one says "loss"
_OF_TRAINING_DATA = expression(r"train(?:ing)?|fit(?:ting|ted)?")
_OF_DATA_ASIDE = expression(HELD_OUT)
_DATA_WORD = expression(rf"(?:^|_){HELD_OUT}(?=_|$)")
_TRAINING_WORD = expression(r"(?:^|_)(?:train(?:ing)?|fit)(?=_|$)")
_ASIDE_OF_IT = expression(rf"_(?:{HELD_OUT}|held|hold)")  # behind the first word of the training's
_OF_TEST = expression(r"(?<![a-z])test(?![a-z])")
# what the watch says of a loss, of answers, and of attention
_WATCHED = ("model/loss_", "model/compared_", "attention/", "model/attention/")
RECORDED = tuple(
    f"{family}/"
    for family in (
        "model", "attention", "data", "goodput", "gpu", "host", "memory", "allocator", "ranks", "span", "speed",
        "energy", "sol", "updates", "weights", "gradients", "activations", "optimizer", "spectral", "shape",
    )
)  # fmt: skip
"""Of what is recorded beside what is logged."""


def logarithm_of(name: str) -> str:
    """What the logarithm of a perplexity is called, which is a loss; empty for another series."""
    found = _PERPLEXITY.search(name)
    return f"{name[: found.start()]}log_perplexity" if found and name[max(0, found.start() - 4) :][:4] != "log_" else ""


@lru_cache(maxsize=1 << 14)
def _matches(role: str, name: str) -> bool:
    pattern = ROLES[role][1]
    if name.startswith(_WATCHED) or len(name) > LONGEST:
        return False
    return bool(pattern) and re.fullmatch(pattern, plain_name(name)) is not None


def may_play(name: str) -> bool:
    """Whether a series of that name may play any role."""
    plain = plain_name(name)
    return any(
        name in canonical or any(plain in _SPELLINGS.get(item, ()) for item in canonical) or _matches(role, name)
        for role, (canonical, _) in ROLES.items()
    )


def _is_reward(name: str) -> bool:
    return name in ROLES["reward"][0] or _matches("reward", name)


def _is_first_of_two(name: str, channels: Mapping[str, Any]) -> bool:
    """Whether a series is the sum of an adversary's losses, `loss_0`, whose maker has `loss_1`."""
    if not name.endswith("loss_0") or f"{name[:-1]}1" not in channels:
        return False
    return any(_OF_ADVERSARY.search(plain_name(other)) for other in channels)


def _sums_of(parts: Iterable[str]) -> list[str]:
    """What the sum of several losses beside each other may be called: `train/total` beside `train/mlm_loss`."""
    heads = Counter(name.rpartition("/")[0] for name in parts if _PART_LOSS.search(name))
    return [f"{head}/{whole}" for head, number in heads.items() if head and number > 1 for whole in _SUMS]


_SIDES = {
    "chosen": ("rejected",), "good": ("bad",), "better": ("worse",), "best": ("worst",), "winner": ("loser",),
    "win": ("lose", "loss"), "won": ("lost",), "wins": ("losses",), "w": ("l",), "positive": ("negative",),
    "pos": ("neg",), "liked": ("disliked",), "desirable": ("undesirable",), "desired": ("undesired",),
    "preferred": ("dispreferred", "rejected"), "accepted": ("rejected", "refused"), "kept": ("dropped",),
}  # fmt: skip
"""Words of a preference's answers, and of those that they are compared with."""
_OPPOSITE: dict[str, set[str]] = {}
for _one, _others in _SIDES.items():
    _OPPOSITE.setdefault(_one, set()).update(_others)
    for _other in _others:
        _OPPOSITE.setdefault(_other, set()).add(_one)


def other_sides(name: str) -> list[str]:
    """What the series of the other side may be called, for a word of its name that says a side of a preference."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[^A-Za-z]+", name)
    return [
        "".join([*parts[:at], other.title() if part.istitle() else other, *parts[at + 1 :]])
        for at, part in enumerate(parts)
        for other in sorted(_OPPOSITE.get(part.lower(), ()))
    ]


def candidates(role: str, channels: Mapping[str, Any], count: Callable[[str], int] | None = None) -> list[str]:
    """Names of channels that may play a role, the likeliest first; longer ones before shorter ones of equal rank.

    count: rows of a channel, if not all it has.
    """
    canonical, _ = ROLES[role]
    rows = count or (lambda name: len(channels[name]))
    chosen_names: list[str] = [name for name in canonical if name in channels]
    if chosen_names and role != "loss":
        return chosen_names
    if chosen_names:  # a series of a few rows is hardly what the training logs at each step
        others = [name for name in channels if name not in canonical and _matches(role, name)]
        longest = max(others, key=rows, default=None)
        if longest is None:
            return chosen_names
        if rows(longest) > max(64, 8 * rows(chosen_names[0])):
            return [longest, *chosen_names]
        return [*chosen_names, longest] if count else chosen_names
    spelled = {normal(name): name for name in channels}
    for name in canonical:
        chosen_names += [
            spelled[item] for item in _SPELLINGS.get(name, ()) if item in spelled and spelled[item] not in chosen_names
        ]
    matching = [name for name in channels if name not in chosen_names and _matches(role, name)]
    if role == "reward":  # a policy earns none of those that are differences of log probabilities
        matching = [name for name in matching if not any(other in channels for other in other_sides(name))]
    if role in ("loss", "eval_loss"):
        matching += [whole for whole in _sums_of(matching) if whole in channels]
    if role == "loss" and any(_OF_POLICY.fullmatch(plain_name(name)) for name in matching):
        # the parts of an agent's loss say nothing of how well it does, where its rewards do
        parts = {name for name in matching if _OF_POLICY.fullmatch(plain_name(name))}
        if any(_is_reward(name) for name in channels):
            matching = [name for name in matching if name not in parts and not _OF_AGENT.fullmatch(plain_name(name))]
    # what is made of a loss, and the loss of a part, stand behind it
    found = chosen_names + sorted(
        matching,
        key=lambda name: (
            role == "loss" and re.fullmatch(_COSTS, normal(name)) is not None and _is_error_of_two(matching, channels),
            _WRONG.search(normal(name)) is not None,
            _BARE.fullmatch(plain_name(name)) is not None,
            _MADE.search(name) is not None,
            _OF_ADVERSARY.search(plain_name(name)) is not None or _is_first_of_two(name, channels),
            _OF_PART.search(plain_name(name)) is not None,
            role == "reward" and _EXTREME.search(plain_name(name)) is not None,
            role == "eval_loss" and _OF_TEST.search(plain_name(name)) is not None,
            -rows(name),
            _OF_TRAINING.fullmatch(plain_name(name)) is None,
            _WHOLE.search(plain_name(name)) is None,
            len(name),
            name,
        ),
    )
    if role == "loss" and not chosen_names and len(found) > 1:
        longest = max(found, key=rows)  # what has a few rows beside it is hardly what the training logs at each step
        few = rows(longest) > max(64, 8 * rows(found[0])) and not re.search(_OF_LOSS, longest, re.I)
        if few and not (_OF_TRAINING.fullmatch(plain_name(found[0])) or _WHOLE.search(plain_name(found[0]))):
            found = [longest, *(name for name in found if name != longest)]
    return found


def _is_error_of_two(names: Iterable[str], channels: Mapping[str, Any]) -> bool:
    """Whether one of the names is an error of the training that an evaluation has too: `tr_rmse` beside `va_rmse`."""
    return any(name.startswith("tr_") and f"va_{name[3:]}" in channels for name in names)


@lru_cache(maxsize=1 << 14)
def is_unnamed_evaluation(name: str) -> bool:
    """Whether a series is of data held out, and its name does not say of what: a loss, or another measure."""
    found = None if name.startswith(RECORDED) or len(name) > LONGEST else _DATA_OF.fullmatch(plain_name(name))
    return found is not None and _MEASURED.search(found["what"]) is None and not may_play(name)


@lru_cache(maxsize=1 << 14)
def is_loss_of_other_data(name: str, loss: str) -> bool:
    """Whether two series are called alike, but for a first word, or a last: `check/loss` beside `fit/loss`, or, where
    the data are named, whatever the loss is: `bits/heldout` beside `bits/train`, `game_val/bits` beside `game/bits`."""
    parts, ours = plain_name(name).split("/"), plain_name(loss).split("/")
    if len(parts) == len(ours) == 1:  # of words alone, with one for the data: `game_val_bits` beside `game_bits`
        bare = _DATA_WORD.sub("", parts[0], count=1)
        return bare != parts[0] and bare.strip("_") in (ours[0], _TRAINING_WORD.sub("", ours[0], count=1).strip("_"))
    if len(parts) > 1 and parts[1:] == ours[1:] and _ASIDE_OF_IT.fullmatch(parts[0].removeprefix(ours[0])):
        return True
    if parts[:-1] == ours[:-1] and len(parts) > 1 and _OF_TRAINING_DATA.fullmatch(ours[-1]):
        return _OF_DATA_ASIDE.fullmatch(parts[-1]) is not None or (len(parts) == 2 and _is_of_data(parts, ours, name))
    if len(parts) == len(ours) == 2:  # of averaged weights, as `val/shadow_mse` beside `train/mse`
        return _is_of_data(parts, ours, name) or _is_of_data([parts[0], _OF_AVERAGE.sub("", parts[1])], ours, name)
    return False


def _is_of_data(parts: list[str], ours: list[str], name: str) -> bool:
    (word, ours_word) = (
        (parts[0], ours[0]) if parts[1] == ours[1] else (parts[1], ours[1]) if parts[0] == ours[0] else ("", "")
    )
    if _OF_DATA_ASIDE.fullmatch(word) and _OF_TRAINING_DATA.fullmatch(ours_word):
        return True  # whatever the loss is: `val/err` beside `train/err`
    if not plays("loss", name):
        return False
    return bool(word) and word != ours_word and _OF_ROWS.search(word) is None and _OF_ROWS.search(ours_word) is None


@lru_cache(maxsize=1 << 14)
def is_loss_of_other_name(name: str, loss: str) -> bool:
    """Whether a series may be the loss of other data under a name of its own: `survey/ce` beside `fit/weighted_ce`."""
    parts, ours = plain_name(name).split("/"), plain_name(loss).split("/")
    if len(parts) == len(ours) == 1:  # of words alone, those of `train_loss` may be `quiz_loss`
        parts, ours = parts[0].split("_", 1), ours[0].split("_", 1)
        if not _OF_TRAINING_DATA.fullmatch(ours[0]):
            return False
    told = len(parts) == 2 and len(ours) == 2 and parts[0] != ours[0] and plays("loss", name)
    return told and _OF_ROWS.search(parts[0]) is None and _OF_ROWS.search(ours[0]) is None


_OF_AVERAGE = expression(r"^(?:ema|shadow|swa|polyak|averaged?|avg)_|_(?:ema|shadow|swa|polyak|averaged?|avg)$")
_OF_SAME = expression(  # behind a first word that both have: of the training as well
    r"(?<![a-z])(?:train(?:ing)?|epochs?|mean|avg|average|running|smooth(?:ed)?|total|sum|raw|scaled|window|last|final)(?![a-z])"
)
_EACH = frozenset({"step", "batch", "iter", "iteration", "update", "train"})  # behind the word of a training's loss


@lru_cache(maxsize=1 << 14)
def is_loss_by_word(name: str, loss: str) -> bool:
    """Whether the last word of a series is that of a loss, or of this one: `reef/ce`, `sung/nats`, `recall/itc`,
    `retrieval/loss`, `est_nll` beside `iter_nll`, and `averaged/v` beside `v/step`; or the word ahead of that for the
    training's data is, as of `nll/audit` beside `nll/train`."""
    parts, ours = (plain_name(one).split("/") for one in (name, loss))
    if len(parts) == len(ours) == 1:
        parts, ours = parts[0].split("_"), ours[0].split("_")
        if len(ours) > 1 and parts[0] == ours[0] and _OF_SAME.search("_".join(parts[1:])):
            return False
    if len(parts) < 2 or parts == ours or is_goodness(parts[-1]):
        return False
    word = parts[-1]
    if parts[:-1] == ours[:-1]:
        other = _OF_TRAINING_DATA.fullmatch(ours[-1]) and not (_OF_ROWS.search(word) or _MEASURED.search(word))
        return bool(other) and (plays("loss", parts[-2]) or _OBJECTIVE.fullmatch(parts[-2]) is not None)
    own = word in (ours[-1], "loss") or (word in ours and ours[-1] in _EACH)
    return own or plays("loss", name) or _OBJECTIVE.fullmatch(word) is not None


@lru_cache(maxsize=1 << 14)
def is_of_other_kind(name: str, other: str) -> bool:
    """Whether two losses are of different kinds by their names, an entropy and an error, so that their sizes tell
    nothing of each other: `reef/ce` beside `fit/bce`."""
    kinds = [
        tuple(
            re.search(rf"(?<![a-z])(?:{words})(?![a-z])", plain_name(one)) is not None
            for words in (_ERRORS, _ENTROPIES)
        )
        for one in (name, other)
    ]
    return {(True, False), (False, True)} == set(kinds)


@lru_cache(maxsize=1 << 14)
def is_of_no_measure(name: str) -> bool:
    """Whether nothing in a name says what a series measures, or that it is a part or a mean of other rows."""
    plain = plain_name(name)
    logged = len(name) <= LONGEST and not name.startswith(RECORDED)
    return logged and _MEASURED.search(plain) is None and _OF_ROWS.search(plain) is None and not may_play(name)


def is_of_wholes(name: str) -> bool:
    """Whether a loss is one of whole sentences, documents or windows, by its name: a sum on purpose."""
    return len(name) <= LONGEST and _WHOLES.search(plain_name(name)) is not None


def is_goodness(word: str) -> bool:
    """Whether a measure says how good answers are, as an evaluation has it beside its loss: `macro_f1`, `recall`."""
    return _GOOD.search(plain_name(word)) is not None


@lru_cache(maxsize=1 << 14)
def is_of_held_out(name: str) -> bool:
    """Whether a series is measured on data that are not trained on, whatever it measures; not a time or a setting."""
    logged = len(name) <= LONGEST and not name.startswith(RECORDED)
    return logged and _OF_HELD_OUT.fullmatch(plain_name(name)) is not None


def is_accuracy(word: str) -> bool:
    """Whether a measure is the share of examples that are right, whatever they are of."""
    return re.fullmatch(_RIGHT, plain_name(word)) is not None


def losses(names: Iterable[str]) -> tuple[str, ...]:
    """The series that are the training's loss by their names alone, the likeliest first."""
    return _by_name("loss", tuple(names))


def evaluation_losses(names: Iterable[str]) -> tuple[str, ...]:
    """The series that are a loss on data held out by their names alone, the likeliest first."""
    return _by_name("eval_loss", tuple(names))


def main_loss(names: Iterable[str]) -> str | None:
    """The training's loss, whatever it is called."""
    return next(iter(losses(names)), None)


def main_evaluation(names: Iterable[str]) -> str | None:
    """The loss on data held out, whatever it is called."""
    return next(iter(evaluation_losses(names)), None)


@lru_cache(maxsize=1 << 12)
def plays(role: str, name: str) -> bool:
    """Whether a series of that name may play a role."""
    return bool(_by_name(role, (name,)))


@lru_cache(maxsize=1 << 10)
def _by_name(role: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(candidates(role, dict.fromkeys(names, ())))
