"""Where a stage of a training begins: a round, a task, a phase, as the training itself logs them.

In:   series that number stages (`round`, `task_id`, `al/cycle`), or say how long or large their examples are
      (`seq_len`, `resolution`), or which share of the weights is pruned (`sparsity`); the loss, and its
      terms; the configuration.
Out:  whether a stage begins with a step, and whether a training has stages.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import options_on

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory

_NUMBERS = expression(
    r"(?:.*[/._-])?(?:round|task|stage|phase|cycle|generation|curriculum|experience|fold|seed|trial|repeat|replicate)"
    r"(?:[_-]?(?:id|idx|index|number|num|nr))?",
    re.IGNORECASE,
)
_MODELS = expression(  # of these, those that count models, each trained by itself
    r"(?:.*[/._-])?(?:fold|seed|trial|repeat|replicate)(?:[_-]?(?:id|idx|index|number|num|nr))?", re.I
)
_CUT = expression(  # of the weights, that a training takes out as it goes
    r"(?i)(?:(?!model/|data/).*[/._-])?(?:(?:weight|global|model|target|current)[_-])?"
    r"(?:sparsity|pruned|density|remaining[_-]weights)(?:[_-](?:share|ratio|level|fraction))?"
)
_REWOUND = expression(  # of options: weights that are set back, drawn anew, or taken out, on purpose
    r"(?i)prun(?:e|ing)|sparsif|rewind|lottery|winning[_-]?ticket|born[_-]?again|shrink[_-]?(?:and[_-]?)?perturb|"
    r"re[_-]?init(?!ial)|reset[_-]?(?:weights|parameters|params|model|layers|head|network)"
)
_SIZES = expression(  # of the examples, that a training makes larger or harder as it goes
    r"(?:(?!model/|data/).*[/._-])?(?:difficulty|horizon|hops|digits|resolution|"
    r"(?:(?:max|cur|current|seq|sequence|context|train)[_-]?)*(?:length|len|size))",
    re.IGNORECASE,
)
_BEGINS = expression(
    r"(?i).*(?:^|[._-])(?:start|starts|begin|begins|after|from|switch|onset)"
    r"(?:[_-]?(?:at|step|steps|iter|iters|iteration|iterations))?|.*[._-](?:switch|starts?|begins?)[_-]at"
)
_NO_STAGE = expression(  # what goes on as it was, or only starts to look
    r"(?i)(?:^|[._-])(?:lr|rate|warm\w*|decay|anneal\w*|cosine|log\w*|eval\w*|val\w*|save\w*|ckpt|checkpoint\w*|ema|swa|"
    r"resume\w*|restart\w*|profil\w*|watch\w*|early|stop\w*|train|training|learning|run)(?:[._-]|$)"
)
_CURRICULUM = expression(
    r"(?i)curricul(?:um|a)|self[_-]?paced|(?:by|order|sort|sorted|ordered)[_ -]difficulty|"
    r"(?<![a-z])(?:eas(?:y|ier|iest)|short(?:er|est)?|simpl(?:e|er|est)|small(?:er|est)?)[_ -]?"
    r"(?:(?:ones?[_ -]?)?(?:first|before)|then[_ -]|to[_ -](?:hard|long|large|big|difficult)|epochs|iters)|"
    r"(?<![a-z])(?:hard|long|large|difficult)(?:er|est)?[_ -]?(?:ones?[_ -]?)?(?:last|later)(?![a-z])"
)
_FIRST = expression(  # for a number of steps or epochs, as `calm_first: 2`; none that is of a network, or a plain order
    r"(?i)(?:.*[/.])?(?!(?:.*_)?(?:at|batch|channels?|norm|layers?|kernel|conv|stem|hidden|filters?|width|dim|dropout|"
    r"stride|lr|rate|eval|val|log|save|bits?|state)_first)[a-z]+(?:_[a-z]+)*_first"
    r"(?:_(?:steps|epochs|iters|iterations|updates|batches))?"
)
_PENALTY = expression(r"(?:.*[/._-])?ewc(?:[_-]?(?:loss|penalty|term|reg))?", re.IGNORECASE)
WITH_STAGE = ", where a stage of the training begins"  # behind what is said of a step
_LONG = 8  # rows of the loss in the stage before: a training that changes at each row has no stages
_NEAR = 2  # rows: the bend of a curve is found a row or two from where it is, and a number may be logged a row early
_SAME = 16  # rows
_WRITTEN = 0.3  # of the weights' size
_MOST_PLACES = 512  # that are asked one by one
_HIGHER = 1.1  # times the highest of the first three rows: noise of a loss that stays on its new level
_NAMED: WeakKeyDictionary[RunHistory, tuple[int, tuple[str, ...]]] = WeakKeyDictionary()

_SAID: WeakKeyDictionary[RunHistory, dict[tuple[int, int], bool]] = WeakKeyDictionary()
"""Answers that no row changes any more, by step and segment."""


def _numbered(history: RunHistory) -> list[Channel]:
    """The series that tell stages apart: their number; the length or size of their examples; a penalty for what tasks
    before need, 0 in the first; or the share of weights that are taken out."""
    known = _NAMED.get(history)
    if known is None or known[0] != len(history.channels):
        kinds = (_NUMBERS, _PENALTY, _SIZES, _CUT)
        names = (name for name in history.channels if any(kind.fullmatch(name) for kind in kinds))
        known = _NAMED[history] = len(history.channels), tuple(sorted(names))
    return [channel for name in known[1] if (channel := history.channel(name)) is not None]


def has_stages(history: RunHistory, time: int) -> bool:
    """Whether the training had logged a number of its stages by a time. A size is one if it is a whole number that has
    changed, and seldom: a batch's, or the mean length of its examples, tells none. A share of weights is none."""
    return any(channel.began[1] <= time and _tells_stages(channel, time) for channel in _numbered(history))


def _tells_stages(channel: Channel, time: int) -> bool:
    if not _SIZES.fullmatch(channel.name):
        return not _CUT.fullmatch(channel.name)
    rows = channel.rows()
    value = rows.value[rows.time <= time]
    changes = int((numpy.diff(value) != 0).sum())
    return bool((value == numpy.round(value)).all()) and 0 < changes <= len(value) / _LONG


def is_curriculum(history: RunHistory) -> bool:
    """Whether the configuration says that examples get harder, or that some kinds come first, so that a training's are
    not yet an evaluation's."""
    return any(
        _CURRICULUM.search(f"{name} {value}" if isinstance(value, str) else name)
        or (isinstance(value, (int, float)) and value is not True and value >= 1 and _FIRST.fullmatch(name))
        for name, value in options_on(history)
    )


def _is_rewound(history: RunHistory, steps: Any, at: int, segment: int) -> bool:
    """Whether weights were written near a row, by much, and the configuration has them set back, anew or pruned."""
    written = history.channel("model/written")
    if written is None:
        return False
    rows = written.rows()
    here = (rows.segment == segment) & (rows.time <= written.clock.now) & (rows.value > _WRITTEN)
    if not (numpy.abs(numpy.searchsorted(steps, rows.step[here]) - at) <= _NEAR).any():
        return False
    return any(
        _REWOUND.search(f"{name} {value}" if isinstance(value, str) else name) for name, value in options_on(history)
    )


def model_begins(history: RunHistory, low: int, high: int, segment: int) -> bool:
    """Whether another model begins behind one step and up to another: the number of a fold, a seed, a trial changes,
    behind eight rows or more of the loss with the one before; or a model is watched whose layers are as torch draws
    them, and the loss is nearer to where it began than to where it was."""
    loss = history.role("loss")
    if loss is None:
        return False
    if _is_drawn_anew(history, loss, low, high, segment):
        return True
    for channel in _numbered(history):
        if not _MODELS.fullmatch(channel.name):
            continue
        rows, there = channel.rows(), loss.rows()
        here = (rows.segment == segment) & (rows.time <= loss.clock.now) & (rows.step <= high)
        step, number = rows.step[here], rows.value[here]
        begins = numpy.concatenate([step[:1], step[1:][numpy.diff(number) != 0]])
        trained = numpy.diff(numpy.searchsorted(there.step[there.segment == segment], begins))
        if ((trained >= _LONG) & (begins[1:] > low)).any():
            return True
    return False


def _is_drawn_anew(history: RunHistory, loss: Channel, low: int, high: int, segment: int) -> bool:
    """Whether a watch began with layers as they are drawn, and the loss with them, behind eight rows of another one."""
    drawn = history.channel("model/drawn")
    if drawn is None or drawn.end < 2:
        return False
    rows, there = drawn.rows(), loss.rows()
    here = (rows.segment == segment) & (rows.time <= loss.clock.now)
    ours = (there.segment == segment) & (there.time <= loss.clock.now) & numpy.isfinite(there.value)
    steps, values, begins = there.step[ours], there.value[ours], rows.step[here]
    for before, step, value in zip(begins, begins[1:], rows.value[here][1:], strict=False):
        start, at = (int(numpy.searchsorted(steps, one)) for one in (before, step))
        if not low < step <= high or value != 1 or at - start < _LONG or at == len(steps):
            continue
        first, last = float(numpy.median(values[start : start + 3])), float(numpy.median(values[at - _LONG : at]))
        if last < first and float(numpy.median(values[at : at + 3])) > (first + last) / 2:
            return True
    return False


def stage_begins(history: RunHistory, step: int, segment: int) -> bool:
    """Whether a stage begins at a step, or within two rows of the loss from it: the whole number that tells stages
    apart, or the share of weights that are taken out, changes, or comes for the first time, behind eight rows or more
    of the loss with one and the same, or none; a term is added to the loss, by what is logged, or by its graph; weights
    are written that the configuration has set back, or pruned (`rewind_rounds`, `born_again`, `prune_at`); another
    model is drawn, and watched; or the configuration says that something starts at that step (`adversarial_start:
    2000`)."""
    loss = history.role("loss")
    if loss is None:
        return False
    there = loss.rows()
    ours = (there.segment == segment) & (there.time <= loss.clock.now)
    steps = there.step[ours]
    at = int(numpy.searchsorted(steps, step))
    said, is_past = _SAID.setdefault(history, {}), len(steps) > at + _NEAR + _SAME
    if is_past and (step, segment) in said:
        return said[step, segment] or term_joins(history, step, segment) is not None
    result = _changes(history, steps, at, segment) or _is_configured(history, steps, at)
    result = result or _is_rewound(history, steps, at, segment)
    near = steps[max(0, at - _NEAR - 1) : at + _NEAR + 1]
    result = result or (len(near) > 0 and _is_drawn_anew(history, loss, int(near[0]), int(near[-1]), segment))
    if not result and at >= _SAME + _NEAR:
        near = numpy.flatnonzero(ours)[at - _NEAR - _SAME : at + _NEAR + _SAME]
        result = _gets_a_term(history, loss, there.part(int(near[0]), int(near[-1]) + 1))
    if is_past:
        said[step, segment] = result
    return result or term_joins(history, step, segment) is not None


def stage_behind(history: RunHistory, low: int, high: int, level: float, segment: int) -> int | None:
    """The step behind one and up to another at which a stage begins with the rise of the loss: no row before it is
    above a level, and the rows from it on are, in the median. None where there is none."""
    loss = history.role("loss")
    if loss is None:
        return None
    rows = loss.rows()
    here = (rows.segment == segment) & (rows.time <= loss.clock.now) & (rows.step > low) & (rows.step <= high)
    step, value = rows.step[here], rows.value[here]
    above = numpy.flatnonzero(value > level)
    if not len(above) or float(numpy.median(value[above[0] :])) <= level:
        return None
    first = int(step[above[0]])
    return first if stage_begins(history, first, segment) else None


def stage_between(history: RunHistory, low: int, high: int, segment: int) -> bool:
    """Whether a stage begins behind one step and up to another: by its number, or by the configuration."""
    loss = history.role("loss")
    if loss is None:
        return False
    rows = loss.rows()
    steps = rows.step[(rows.segment == segment) & (rows.time <= loss.clock.now)]
    first, last = (int(numpy.searchsorted(steps, step, side="right")) for step in (low, high))
    return any(
        _is_configured(history, steps, at) or _changes(history, steps, at, segment)
        for at in (*range(first, last, 2 * _NEAR), last)[:_MOST_PLACES]
    )


def term_joins(history: RunHistory, step: int, segment: int) -> int | None:
    """The step at which the loss's graph gets more terms, within two rows of the loss from this one; None where it does
    not. Their number must have been the same for 16 rows, be the same ever after, and the loss, finite from there on,
    must not be higher in the second half of the next rows than in the first three of them. The watch's figures may come
    some rows behind the loss: it is asked again."""
    terms, loss = history.channel("model/loss_terms"), history.role("loss")
    if terms is None or terms.end < 2 or loss is None:
        return None
    rows, known = loss.rows(), terms.rows()
    ours = (rows.segment == segment) & (rows.time <= loss.clock.now)
    steps, value = rows.step[ours], rows.value[ours]
    known = known.part(0, int((known.time <= loss.clock.now).sum()))
    here = known.segment == segment
    number, places = known.value[here], numpy.searchsorted(steps, known.step[here])
    at, changes = int(numpy.searchsorted(steps, step)), numpy.flatnonzero(numpy.diff(number) != 0) + 1
    for change in changes[numpy.abs(places[changes] - at) <= _NEAR]:
        place, before = int(places[change]), int(places[change - 1])
        behind = value[place : place + _SAME + _NEAR]
        calm = len(behind) < 6 or float(numpy.median(behind[len(behind) // 2 :])) <= _HIGHER * float(behind[:3].max())
        alone = change == changes[-1] or places[change + 1] > place + _SAME + _NEAR
        same = place - (before if change > 1 else 0) >= _SAME
        if number[change] > number[change - 1] and same and alone and calm and numpy.isfinite(behind).all():
            return int(known.step[here][change])
    return None


def _changes(history: RunHistory, steps: Any, at: int, segment: int) -> bool:
    """Whether a number of the stage changes near a row."""
    for channel in _numbered(history):
        rows = channel.rows()
        here = (rows.segment == segment) & (rows.time <= channel.clock.now) & numpy.isfinite(rows.value)
        number, places = rows.value[here], numpy.searchsorted(steps, rows.step[here])
        number = numpy.sign(number) if _PENALTY.fullmatch(channel.name) else number
        begins = numpy.concatenate([places[:1], places[1:][numpy.diff(number) != 0]])
        if len(begins) and begins[0] >= _LONG:  # what has no number is the first stage
            begins = numpy.concatenate([[0], begins])
        near = (numpy.diff(begins) >= _LONG) & (numpy.abs(begins[1:] - at) <= _NEAR)
        if near.any() and ((number == numpy.round(number)).all() or _CUT.fullmatch(channel.name)):
            return True
    return False


def _is_configured(history: RunHistory, steps: Any, at: int) -> bool:
    """Whether an option of the configuration is the number of a step near a row, and says that something starts."""
    for name, value in history.options.found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0 or value % 1:
            continue
        if _BEGINS.fullmatch(name) and not _NO_STAGE.search(name):
            place = int(numpy.searchsorted(steps, value))
            if _LONG <= place < len(steps) and abs(place - at) <= _NEAR:
                return True
    return False


def _gets_a_term(history: RunHistory, loss: Channel, rows: ChannelRows) -> bool:
    """Whether another series was the loss itself, to the last bit, in 16 of these rows, and from there on is other, and
    rises by less than a third as far: what the loss was before is one of its terms, and has not risen."""
    for name, channel in history.channels.items():
        if channel is loss or name.count("/") > 1 or channel.began[0] != loss.began[0]:
            continue
        theirs = channel.rows(rows.first, rows.first + len(rows))
        come = int((theirs.time <= loss.clock.now).sum())
        theirs, whole = theirs.part(0, come), rows.value[:come]
        if not come or not numpy.array_equal(theirs.step, rows.step[:come]):
            continue
        same = theirs.value == whole
        begins = int(numpy.argmin(same))
        if not _SAME <= begins <= _SAME + 2 * _NEAR or same[begins:].any():
            continue
        before = float(numpy.median(whole[begins - _SAME : begins]))
        up, most = (float(numpy.median(part[begins:])) - before for part in (theirs.value, whole))
        if up < most / 3 and (begins + 1 == come or len(set(theirs.value[begins:].tolist())) > 1):  # it is not cut off
            return True
    return False
