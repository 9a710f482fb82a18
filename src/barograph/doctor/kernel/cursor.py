"""How far a rule has looked, and what was known at a moment.

In:   channels that grow.
Out:  their new rows, each once; the value another channel had when a row came.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.local import median

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory


class RowCursor:
    """Remembers for each channel, by name, up to which row it was looked at."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}

    def new(self, channel: Channel | None) -> ChannelRows | None:
        """Rows since the last call; None where there are none."""
        if channel is None:
            return None
        at, end = self._ends.get(channel.name, 0), channel.end
        if at == end:
            return None
        self._ends[channel.name] = end
        return channel.rows(at)

    def each(self, channel: Channel | None) -> Iterator[tuple[tuple[int, int, int], float]]:
        """New rows, one by one: step, time and segment; value."""
        rows = self.new(channel)
        if rows is not None:
            places = zip(rows.step.tolist(), rows.time.tolist(), rows.segment.tolist(), strict=True)
            yield from zip(places, rows.value.tolist(), strict=True)

    def in_order(self, *channels: Channel | None) -> list[tuple[int, tuple[int, int, int], float]]:
        """New rows of several channels in the order of their times, so that what they say together is said at the same
        row while they grow and later: which channel it is of, from 0; step, time and segment; value."""
        found = [(which, *row) for which, channel in enumerate(channels) for row in self.each(channel)]
        return sorted(found, key=lambda one: (one[1][1], one[0]))


def known(channel: Channel | None, step: int, time: int, segment: int) -> float:
    """The newest value that had come by `time` and belongs to no later step of the segment; NaN if there is none."""
    return float(newest(channel, step, time, segment, 1)[0]) if channel is not None else float("nan")


def names_of(history: RunHistory, field: str, step: int, time: int) -> str:
    """The names that a `model` record of this step gives in a field."""
    return next(
        (str(event.fields[field]) for event in history.events_of("model")
         if field in event.fields and event.step == step and event.time <= time), "names are not recorded",
    )  # fmt: skip


def is_past(channel: Channel, step: int, segment: int) -> bool:
    """Whether a row behind this step has come, of the segment or of a later one."""
    rows = channel.rows()
    return bool(((rows.segment > segment) | ((rows.segment == segment) & (rows.step > step))).any())


def came_by(channel: Channel | None, time: int) -> bool:
    """Whether a channel had a row at that time."""
    return channel is not None and channel.end > 0 and channel.began[1] <= time


def told_behind(rows: Channel, count: int, told: Channel | None) -> tuple[int, int, int] | None:
    """Where, behind the first `count` rows of a series, the watch has told of its first look: step and segment of the
    newest row then, and the time. None before. The figures of a watch come behind the rows of a fast loop."""
    if told is None or not told.end or told.start or rows.start or rows.end < count:
        return None
    time = max(int(rows.rows(0, count).time[-1]), told.began[1])
    here = rows.rows()
    last = int(numpy.flatnonzero(here.time <= time)[-1])
    return int(here.step[last]), time, int(here.segment[last])


def evaluations_of(history: RunHistory) -> Channel | None:
    """The series whose rows are evaluations: their loss, else their accuracy, else what else is measured there."""
    return history.role("eval_loss") or history.role("eval_accuracy") or history.role("evaluation")


def other_model(history: RunHistory, time: int) -> bool:
    """Whether, as far as the watch had told by that time, the model that is trained was never evaluated itself, nor a
    part of it."""
    itself = (history.channel(f"model/{name}_without_gradients") for name in ("passes", "parts"))
    return not any(came_by(one, time) for one in itself) and has_told_of_evaluations(history, time)


def has_told_of_evaluations(history: RunHistory, time: int) -> bool:
    """Whether what the watch had told by that time is of the first evaluation, too. Its figures come behind the rows of
    a fast loop: those of a step behind the evaluation have to be there."""
    passes, evaluation = history.channel("model/passes"), evaluations_of(history)
    if passes is None or evaluation is None or not evaluation.end:
        return False
    rows = passes.rows()
    return bool(((rows.time <= time) & (rows.step > evaluation.began[0] + 1)).any())


def newest(channel: Channel, step: int, time: int, segment: int, count: int) -> Any:
    """The newest `count` values [count] known at that moment, oldest first, NaN in front where there are fewer."""
    result = numpy.full(count, numpy.nan)
    high = channel.end
    while high > channel.start:  # mostly the first block holds the last one
        rows = channel.rows(max(channel.start, high - 256), high)
        places = numpy.flatnonzero((rows.step <= step) & (rows.time <= time) & (rows.segment == segment))
        if len(places):
            last = rows.first + int(places[-1]) + 1
            if count > 1:
                rows = channel.rows(max(channel.start, last - 2 * count), last)
                places = numpy.flatnonzero((rows.step <= step) & (rows.time <= time) & (rows.segment == segment))
            values = rows.value[places[-count:]]
            result[count - len(values) :] = values
            return result
        high = rows.first
    return result


def param_norm_of(history: RunHistory) -> Channel | None:
    """The norm of all parameters; a layer's is none."""
    found = history.channel("model/param_norm") or history.role("param_norm")
    return found if found is not None and found.name.count("/") < 2 else None


def usual(channel: Channel | None, step: int, time: int, segment: int, count: int = 64) -> float:
    """The median of the finite ones of the newest `count` values known at that moment; NaN if there is none."""
    if channel is None:
        return float("nan")
    values = newest(channel, step, time, segment, count)
    values = values[numpy.isfinite(values)]
    return median(values) if len(values) else float("nan")


_NAMED: WeakKeyDictionary[RunHistory, dict[re.Pattern[str], tuple[int, str | None]]] = WeakKeyDictionary()
"""What was found, and of how many series: names are looked through again when there are more."""


def named(history: RunHistory, words: re.Pattern[str]) -> Channel | None:
    """The series that these words are all of the name of; of several the one that began first, by name of those."""
    known, count = _NAMED.setdefault(history, {}), len(history.channels)
    if known.get(words, (-1, None))[0] != count:
        names = filter(words.fullmatch, history.channels)
        known[words] = count, min(names, key=lambda name: (history.channels[name].began, name), default=None)
    name = known[words][1]
    return None if name is None else history.channel(name)


def thawed(history: RunHistory, time: int, segment: int) -> bool:
    """Whether more is trained by that time (µs since 1970) than at the beginning of the launch: more of the model, or
    parameters that no optimizer held at first."""
    if joined(history, time, segment):
        return True
    trained = history.channel("model/trained_elements")
    rows = trained.rows() if trained is not None else None
    counts = rows.value[(rows.segment == segment) & (rows.time <= time)] if rows is not None else numpy.empty(0)
    return len(counts) > 1 and bool(counts[-1] > counts[0])


def joined(history: RunHistory, time: int, segment: int) -> bool:
    """Whether parameters that were in no optimizer, in a step of the launch, are in one by that time."""
    unheld, stayed = history.channel("model/unheld"), history.channel("model/unchanged")
    if unheld is None or stayed is None:
        return False
    out, rows = unheld.rows(), stayed.rows()
    out = out.time[(out.segment == segment) & (out.time <= time) & (out.value > 0)]
    here = (rows.segment == segment) & (rows.time <= time)
    return len(out) > 0 and bool(here.any() and rows.value[here][-1] == 0 and rows.time[here][-1] > out[-1])


def is_first_step(history: RunHistory, step: int) -> bool:
    """Whether a row of this step tells of the training before any update: the first one, by steps of the optimizer or,
    where each has several backward passes, by these. What is logged each fifth step has none."""
    passes = history.channel("model/backwards")
    each = passes.rows(0, 1).value[0] if passes is not None and passes.end and not passes.start else 1.0
    return step <= max(1.0, each - 1)


def exp(value: float) -> float:
    """e to this power, kept from infinity and from 0."""
    return math.exp(min(max(value, -700.0), 700.0))


def whole(value: float) -> int:
    """A count as a whole number; -1 where it is none."""
    return int(value) if math.isfinite(value) else -1


def setting(history: RunHistory, *names: str) -> Any:
    """The configuration's value under the first of these names that it has; None if there is none."""
    found = history.options.found
    return next((found[name] for name in names if name in found), None)


def options_on(history: RunHistory) -> Iterator[tuple[str, Any]]:
    """The configuration's options, each by all of its names, that have a value and are not off."""
    for name, value in history.options.found.items():
        if value not in (None, False, 0, "", "none", [], {}):
            yield name, value


def numeric_setting(history: RunHistory, *names: str) -> float:
    """The first number under these names; NaN if there is none."""
    value = history.options.number(names)
    return math.nan if value is None else value


def numbers_named(history: RunHistory, words: re.Pattern[str]) -> Iterator[tuple[str, float]]:
    """Numbers of the configuration whose names, in small letters and without what they are part of, these words are."""
    for name, value in history.options.found.items():
        plain = name.rpartition(".")[2].lower()
        if words.fullmatch(plain) and isinstance(value, (int, float)) and not isinstance(value, bool):
            yield plain, float(value)


def logged_at(channel: Channel, place: tuple[int, int, int]) -> float:
    """What an evaluation logged, whose figures came with the step behind it; NaN where that is not one row."""
    rows = channel.rows()
    step, time, segment = place
    here = rows.value[(rows.segment == segment) & (rows.time <= time) & (rows.step >= step - 1) & (rows.step <= step)]
    return float(here[0]) if len(here) == 1 and math.isfinite(here[0]) else math.nan


def averages_workers(history: RunHistory) -> bool:
    """Whether the configuration says that workers train by themselves, and weights are averaged now and then.

    How often ranks are made alike is how many parts a step has, where as many backward passes are behind each step.
    """
    names = ("local_steps", "inner_steps", "outer_lr", "outer_optimizer", "diloco", "local_sgd", "averaging_period",
             "local_epochs")  # fmt: skip
    passes = history.channel("model/backwards")
    often = (None, False, 0, 1, passes.last if passes is not None else 1)
    return any(setting(history, name) not in (None, False, 0, 1) for name in names) or any(
        setting(history, name) not in often for name in ("sync_every", "sync_interval", "sync_period")
    )


def splits_model(history: RunHistory) -> bool:
    """Whether the configuration says that ranks hold parts of one model."""
    for name in ("tensor_parallel", "tensor_parallel_size", "tensor_model_parallel_size", "tp", "tp_size", "pp",
        "pp_size",
                 "pipeline_parallel", "pipeline_model_parallel_size", "context_parallel_size", "cp",
                 "sequence_parallel", "expert_parallel", "expert_parallel_size", "expert_model_parallel_size", "ep",
                 "ep_size"):  # fmt: skip
        value = setting(history, name)
        if value is True or (isinstance(value, (int, float)) and value > 1):
            return True
    return False


_REDUCED = expression(r"reduc|loss|objective|criterion|(?:^|[._])(?:agg(?:regat\w*)?|how)$")
_OVER = expression(
    r"(?:.*_)?(?:loss|nll|ce|bce|mse|kl|xent|nats|bits|cost|errors?|objective)_"
    r"(?:over|per|by|avg|averag(?:e|ed|ing)|mean|norm(?:ali[sz](?:e|ed|er|ation))?|divisor|"
    r"denominator|units?|reduc(?:e|ed|tion))(?:_(?:over|per|by))?|(?:normali[sz]e|divide|average|mean)d?_(?:by|over)"
)
_SUMMED_OVER = expression(r"(?:.*_)?(?:sum(?:med|s)?|added|adds?|totall?(?:ed)?)_(?:over|up|up_over)")
_DATA = 300  # rows of data; of a vocabulary there are fewer words, or they are called tokens
_NO = ("none", "no", "off", "false", "nothing", "")
_OF_ROWS = expression(
    r"(?:per[ _-])?(?:rows?|examples?|samples?|sequences?|sentences?|requests?|batch(?:_?size)?|texts?|documents?|"
    r"lines?|answers?|turns?|dialogues?|batch_?mean|no(?:ne|thing))$"
)
_OF_TOKENS = expression(
    r"tokens?|words?|places?|positions?|char(?:acter)?s?|letters?|bytes?|symbols?|signs?|syllables?|pieces?|targets?|"
    r"labels?|elements?|pixels?|all|means?"
)
_PER = expression(r"per[ _-]")
_OF_EACH = expression(r"_(?:a|an|per|in|each|every)_(?:step|batch|update|micro_?batch|pass|rank)")
_DIVIDES = expression(  # in another way than by a weight's or gradient's norm
    r"(?:^|_)(?:loss|nll|ce|token)_(?:norm(?:ali[sz](?:e|ed|ation))?|averag(?:e|ed|ing)|divisor|denominator)$|"
    r"(?:^|_)(?:normali[sz]e|averaged?|avg|mean|divide)_(?:the_)?loss(?:es)?$|(?:^|_)loss_(?:mean|avg)$|^size_average$|"
    r"^(?:loss_|grads?_)?per_(?:token|target|word|example|sample)$"
)
_BY_TOKENS = expression(r"per_(?:token|target|word)$")
_IS_A_SUM = expression(r"sum(?:med)?(?:$|[ _-](?!.*mean|.*average))")  # as sum_per_row, but no sum_then_mean
_HAS_A_SUM = expression(  # as token_sum, `CrossEntropyLoss(reduction='sum')`, or "summed, so the rate is low"
    r"(?s)(?!.*(?:mean|averag|weighted|losses|terms|sum_?exp)).*(?<![a-z])sum(?:s|med)?(?![a-z])"
)
_ADDED = expression(r"(?s)(?!.*(?:mean|averag|losses|terms)).*(?<![a-z])(?:total|added(?:[ _-]up)?|adds?)(?![a-z])")
_SQUARES = expression(r"(?<![a-z])(?:[st]se|rss)(?![a-z])")  # sums of squared errors
_OF_WEIGHTS = expression(rf"weighted[ _-]{_IS_A_SUM.pattern}")  # of other options one of several losses
_OF_OTHERS = expression(  # of which a sum is none of losses
    r"pool|embed|exp|head|resid|grad|feature|hidden|layer|bag|readout|aggr|attn|attention|skip|fus|merge|combin|message|"
    r"state|position|metric|stat|score|vote|weight|task|data|corpus|project|path|file|folder|dir|(?:^|_)name$"
)
_SUMMED = expression(  # an option that is on; of a sum of something else than losses the name says of what
    r"(?!.*(?:pool|embed|exp|head|residual|grad|feature|hidden|layer|to_one|bag|readout|aggreg|attn|attention|skip))"
    r"(?:.*_)?sum(?:med)?(?:_.*)?$"
)


def _are_rows(history: RunHistory, value: str) -> bool:
    """Whether what a loss is divided by are rows, or whatever the configuration calls those of a batch: `peals` or
    `per_peal`, where it has `peals_a_step: 20` or, as many as the data have, `peals: 1200`, or `peals: 20`, as many as
    the watch saw in a batch."""
    one = _PER.match(value)
    unit = value[one.end() :] if one else value
    if _OF_ROWS.match(value) or _OF_TOKENS.fullmatch(unit):
        return _OF_ROWS.match(value) is not None
    units = (unit, f"{unit}s", f"{unit}es", f"{unit[:-1]}ies") if one else (unit,)
    seen = history.channel("model/example_rows")
    rows = seen.first if seen is not None and seen.end else math.nan
    if any(number >= _DATA or number == rows for number in (numeric_setting(history, word) for word in units)):
        return True
    names = [name.rpartition(".")[2].lower() for name in history.options.found]
    return any(name.startswith(word) and _OF_EACH.fullmatch(name[len(word) :]) for name in names for word in units)


def _says_a_sum(name: str, plain: str, value: str) -> bool:
    """Whether a text of an option says that losses are added up. plain: the last part of its name."""
    if _REDUCED.search(name):
        reduced = _IS_A_SUM.match(value) or _HAS_A_SUM.match(value) or _ADDED.match(value) or _SQUARES.search(value)
        if reduced is not None or ("reduc" in plain and _OF_WEIGHTS.match(value)):
            return True
    if _OF_OTHERS.search(plain):
        return False
    return _HAS_A_SUM.match(value) is not None or (_SUMMED_OVER.fullmatch(plain) is not None and value not in _NO)


def summed_by_choice(history: RunHistory, over_rows: bool = False) -> bool:
    """Whether the configuration says that the loss is a sum, as `reduction: sum`, `loss_reduction: sum_per_row`,
    `gather: sum`, `reduction: total`, `loss: sse`, `summed_over: rows`, `loss_over: rows`, `nll_over: songs` beside
    `songs_a_step`, `loss_avg: sentences`, `sum_of_tokens: true` or `loss_norm: none`: whoever wrote it may have chosen
    the rate for it. over_rows: asked of a sum over rows, of which `per_token: false` says nothing."""
    for name, value in history.options.found.items():
        plain = name.rpartition(".")[2].lower()
        if (
            (value is True and _SUMMED.match(plain))
            or (isinstance(value, str) and _says_a_sum(name.lower(), plain, value.lower()))
            or (isinstance(value, str) and _OVER.fullmatch(plain) and _are_rows(history, value.lower()))
            or (plain == "over" and value == "nothing")
            or (
                _DIVIDES.search(plain)
                and not (over_rows and _BY_TOKENS.search(plain))
                and (value is False or str(value).lower() in _NO)
            )
        ):
            return True
    return False


_NORMALISE = expression(r"(?:loss_)?(?:normali[sz](?:e|ed|er|ing|ation)|divisor|denominator|averag(?:e|ed|ing))")
_WHOLE_ROWS = expression(
    r"(?:(?:per|by|over)[ _-])?(?:rows?|examples?|samples?|sequences?|sentences?|texts?|documents?|lines?|answers?)"
)


def divided_by_rows(history: RunHistory) -> bool:
    """Whether the configuration says that something is divided by rows, as `normalise: rows`; of what it is, it does
    not say, so that this holds for a loss alone that was seen to be divided by them."""
    options = ((name.rpartition(".")[2].lower(), value) for name, value in history.options.found.items())
    return any(
        isinstance(value, str) and _NORMALISE.fullmatch(plain) and _WHOLE_ROWS.fullmatch(value.lower()) is not None
        for plain, value in options
    )


def scaled_loss(history: RunHistory, until: float) -> bool:
    """Whether the training scales its loss for half precision, as far as is known by `until` (µs since 1970)."""
    scale = history.role("loss_scale")
    if scale is not None:
        rows = scale.rows()
        if ((rows.time <= until) & (rows.value != 1.0)).any():
            return True
    for name in ("fp16", "precision", "dtype", "mixed_precision", "amp_dtype", "torch_dtype"):
        value = setting(history, name)
        if value is True:
            return True
        if isinstance(value, str) and re.match(r"(fp|float)?_?16(-mixed)?$", value.lower().rsplit(".", 1)[-1]):
            return True
    return False


def saved_before(history: RunHistory, step: int) -> list[str]:
    """What to do with the last checkpoint before a step, if there is one."""
    saved = history.checkpoint_before(step)
    return [f"go back to the checkpoint of step {saved[0]} ({saved[1]})"] if saved else []


def half_rate(history: RunHistory, step: int, time: int, segment: int) -> str:
    """What learning rate to try, from the one in force."""
    rate = known(history.role("lr"), step, time, segment)
    return (
        f"lower the learning rate, from {rate:.3g} to {rate / 3:.3g}"
        if 0 < rate < math.inf
        else "lower the learning rate by a factor of 3 to 10"
    )
