"""What a few rows say: a loss that rises at the end of them or throughout, one that stays a guess,
evaluations that fall evenly, or of which none is better than the first; an accuracy that never changes.

In:   the values of a run of some dozen rows.
Out:  where the rise begins; among how many the guess is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy

from barograph.doctor.kernel.curve import noise_of
from barograph.doctor.kernel.local import median

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BOTTOM = 7 / 6  # times the lowest row: from there on the way down is over
_AGAIN, _EPOCH = 16, 4  # rows that come again; different values in a stretch of them, and its rows
_LEAP = 1.5  # times any row before
_TIMES, _HUNDRED = 5.0, 100.0  # the row before; the rows ahead, and at least
_IN_ORDER = 0.8  # of all pairs of rows, more that rise than fall: a curve that wanders has less, but for one in 300
_RISING = 10  # rows
_FALLEN, _THREE_QUARTERS = 3, 0.75  # rows that fell one after the other; of the first, the lowest at most
_RISEN = 0.1  # in ln, of the medians of three, and four deviations of single rows
_EPOCHS = 8  # that are a guess
_CLASSES, _BOTH = 20, 0.003  # of a guess that losses alone tell, and how far they may be from it, as a share
_GUESS = 0.005  # how far a loss may be from ln of the classes, as a share
_WORSE, _HIGHER = 0.015, 0.1  # how far above it: what is worse than a guess knows nothing; the first of epochs
_SIX_EPOCHS, _NEAR_ABOVE, _WIDER = 6, 0.003, 0.05  # of few, without evaluations; above; accuracies among five or more
_FEW_EPOCHS, _NEARER, _SHARE = 4, 0.001, 0.02  # the same of fewer; how far losses and accuracies may be, as shares
_LITTLE = 0.02  # of a first evaluation, all that is lost in a run
_EVEN = 1.5  # between what a unit of the rate gives in two halves of a run; what learns has far less in the later
_AREA = 0.01  # how far the area under a curve may be from that of a guess, a half
_MANY, _AREAS, _MIDDLE = (
    20,
    0.05,
    0.505,
)  # evaluations; how far their areas may be from it; their median in the later half
_EXACTLY, _PART, _NOT_BELOW, _NOT_ABOVE = 1e-3, 0.75, 0.015, 0.03  # of shares; of evaluations; of a guess's loss
_LEVEL, _SHARES, _ENDS = 0.002, 0.06, 0.005  # of medians, of a loss and of accuracies; of the last two evaluations
_ON_IT, _LONG = 3e-4, 500  # of a guess's loss, as a share; steps
_MONOTONE, _GROWN = 8, 1e5  # rows; times the first
_DROPPED, _SPAN, _RARE, _ABOUT = 4, 1000, 0.1, 0.02  # rows; steps; an accuracy; of its −ln, what a loss may be off
_RESTS = 0.01  # of losses that came to what the shares of labels leave: how far they may be from each other
_SAME, _FIRST = 6, 3  # evaluations that are the best one, to the last digit; one of these first ones is
_ANSWERED = (0.02, 0.9)  # shares of right answers of which one class may be the reason
_FALL, _GAIN = 0.15, 0.05  # of a loss, as a share, and of an accuracy, from the first third to the last, at most
_DOZEN, _DIGITS = 12, 4  # epochs; digits of an accuracy, which rounding does not make the same
_STILL, _FITTED, _AT_FIRST = (
    5,
    0.05,
    0.01,
)  # rows; a loss that may be rounded; of the loss, how far the first row may be
_TO_FOUR_DIGITS = 1e-3  # of 1 over the number of classes
_SURE, _RESTING, _MORE_CLASSES = 1.5, 0.01, 5  # times a guess; of losses, their spread; from which on shares vary
_COSTS = (16.1181, 18.4207, 27.6310, 34.5388)  # −ln of usual epsilons; the first is Keras's
_OTHER_SIDE = 15.9424  # −ln of float32's: what a wrong 1 costs where a wrong 0 costs the first
_COST, _WRONG = 0.003, 0.05  # how far from it each row is, as a share; wrong answers at least
_STEADILY, _FURTHER = (1.2, 1.6), 6  # times any row before, the first and the last of three that rise; rows before
_TWENTY = 20.0  # times the first row, all that come after it
_BY_CHANCE = 0.1  # how far an accuracy may be from one in that many, as a share


def last_rows_rise(value: NDArray[Any], few: float) -> tuple[int, float] | None:
    """How many of the last rows [n] lie above all that went before them, by a factor and, in the median, by a half;
    and the level before. None where that are fewer than four, or more than a third."""
    for count in range(len(value) // 3, 3, -1):
        earlier, last = value[len(value) // 4 : -count], value[-count:]
        if not earlier.min() > 0:
            continue
        bottom = int(numpy.flatnonzero(earlier <= _BOTTOM * earlier.min())[0])
        earlier = earlier[bottom:] if len(earlier) - bottom > 2 else earlier
        low = float(numpy.median(earlier))
        if last.min() >= few * earlier.max() and numpy.median(last) >= 1.5 * low:
            return count, low
    return None


def repeats(value: NDArray[Any]) -> int:
    """After how many rows the last ones of [n] come again, to the last digit, twice at least; 0 if they don't. Noise of
    four digits does not do that in sixteen rows, nor do weights that change."""
    same = numpy.flatnonzero(value[:-1] == value[-1])
    for lag in (len(value) - 1 - same[::-1]).tolist():
        part = value[-max(3 * lag, lag + _AGAIN) :]
        if len(part) < max(3 * lag, lag + _AGAIN):
            return 0
        if lag >= _EPOCH and (part[lag:] == part[:-lag]).all() and len(set(part.tolist())) >= _EPOCH:
            return int(lag)
    return 0


def leaps(value: NDArray[Any]) -> tuple[int, float] | None:
    """Of fewer than twelve rows [n] the first from which on all, three at least, are half as high again as any before;
    and the lowest of these. Three at the end that rise one after the other, behind six or more, may begin lower."""
    for at in range(2, len(value) - 2):
        if value[:at].min() > 0 and value[at:].min() >= _LEAP * value[:at].max():
            return at, float(value[:at].min())
    ahead, last = value[:-3], value[-3:] / max(float(value[:-3].max(initial=0.0)), 1e-300)
    rises = len(ahead) >= _FURTHER and ahead.min() > 0 and (numpy.diff(last) > 0).all()
    steadily = rises and last[0] >= _STEADILY[0] and last[-1] >= _STEADILY[1]
    return (len(ahead), float(ahead.min())) if steadily else None


def turns(value: NDArray[Any]) -> tuple[int, float] | None:
    """Of rows [n] of which the first ones fell, each below the one before, three at least and to three quarters, the
    first behind the lowest, and the lowest; where all since have risen, four at least, to twice the lowest and a fifth
    above the first; or the last three are all as high as the first was, a half above the lowest; or two have come
    since, the first half as high again as the first row, the second half as high again as that and three times as high
    as the first row. Where six or more rise so, what fell may be less."""
    low = int(value.argmin())
    fell, rose, first = value[: low + 1], value[low + 1 :], float(value[0])
    bottom = float(value[low])
    rising = len(rose) > _FALLEN and (numpy.diff(rose) > 0).all() and rose[-1] > max(2 * bottom, 1.2 * first)
    little = len(fell) < _FALLEN or bottom > _THREE_QUARTERS * first
    if not bottom > 0 or (numpy.diff(fell) >= 0).any() or (little and not (rising and len(rose) >= 2 * _FALLEN)):
        return None
    back = len(rose) >= _FALLEN and rose[-_FALLEN:].min() >= max(0.99 * first, _LEAP * bottom)
    leapt = len(rose) == _FALLEN - 1 and rose[0] >= _LEAP * first and rose[1] >= max(_FALLEN * first, _LEAP * rose[0])
    return (low + 1, bottom) if rising or back or leapt else None


def rises_throughout(value: NDArray[Any]) -> tuple[int, float] | None:
    """Of rows [n] that rise one after the other, the first, and the level there; None where they don't. What has
    fallen in the first half and rises to above its first row has not been a bump."""
    low = int(value.argmin())
    rising = value[low:]
    if low > len(value) // 2 or len(rising) < _RISING or not value.min() > 0:
        return None
    signs = numpy.sign(rising[None, :] - rising[:, None])[numpy.triu_indices(len(rising), 1)]
    first, last = median(rising[:3]), median(rising[-3:])
    risen = math.log(last / first)
    clear = risen > max(_RISEN, 4 * noise_of(rising.tolist()))
    return (low, first) if clear and signs.mean() > _IN_ORDER and last > 1.05 * value[0] else None


def falls_evenly(evaluation: NDArray[Any], rates: NDArray[Any]) -> float:
    """What evaluations [n], each below the one before it, have lost in all, as a share, where that is a fiftieth or
    less and as much for each unit of the learning rate in the later half as in the earlier; else 0. So falls what has
    the gradient of its first step to the end. rates: of the same rows, or none where the rate is not known."""
    if len(evaluation) < _EPOCHS or len(rates) not in (0, len(evaluation)) or not evaluation.min() > 0:
        return 0.0
    falls, half = -numpy.diff(evaluation), len(evaluation) // 2
    share = float(falls.sum() / evaluation[0])
    if not falls.min() > 0 or share > _LITTLE:
        return 0.0
    rate = rates[1:] if len(rates) else numpy.ones(len(falls))
    early, late = (float(falls[part].sum() / max(rate[part].sum(), 1e-30)) for part in (slice(half), slice(half, None)))
    return share if 1 / _EVEN <= early / late <= _EVEN else 0.0


def stays_a_guess(value: NDArray[Any], accuracy: NDArray[Any], evaluation: NDArray[Any], correct: NDArray[Any]) -> int:
    """Among how many classes epochs' losses [n] are a uniform guess, or a little worse than one, with the accuracies
    beside them, and evaluations where there are any; the first may be higher. 0 where they are not, or there are fewer
    than eight (`few_stay_a_guess`: four)."""
    known = correct if len(correct) >= _EPOCHS else accuracy
    if len(value) < _EPOCHS or len(known) < _EPOCHS or not known.min() > 0:
        return 0
    count = round(1 / float(known.mean()))
    if count < 2 or abs(known * count - 1).max() > _BY_CHANCE:
        return 0
    off = numpy.concatenate([value[1:], evaluation]) / math.log(count) - 1
    near = off.min() > -_GUESS and off.max() < _WORSE
    return count if near and -_GUESS < value[0] / math.log(count) - 1 < _HIGHER else 0


def few_stay_a_guess(
    value: NDArray[Any], accuracy: NDArray[Any], evaluation: NDArray[Any], correct: NDArray[Any]
) -> int:
    """The same of four epochs or more with evaluations, six without: all of these, and of the training all but the
    first epoch, are much nearer to a guess; 0 where they are not."""
    bare = not len(evaluation) and not len(correct)
    parts = (value, accuracy) if bare else (value, accuracy, evaluation, correct)
    if min(map(len, parts)) < (_SIX_EPOCHS if bare else _FEW_EPOCHS):
        return 0
    known = accuracy[1:] if bare else correct
    count = round(1 / float(numpy.median(known))) if known.min() > 0 else 0
    if count < 2:
        return 0
    off = numpy.concatenate([value[1:], evaluation]) / math.log(count) - 1
    shares = numpy.concatenate([accuracy[1:], correct])
    near = off.min() > -_NEARER and off.max() < _NEAR_ABOVE
    if near and abs(shares * count - 1).max() < (_SHARE if count < _MORE_CLASSES else _WIDER):
        return count
    return 0 if bare else _mostly_a_guess(value, accuracy, evaluation, correct)


def _mostly_a_guess(
    value: NDArray[Any], accuracy: NDArray[Any], evaluation: NDArray[Any], correct: NDArray[Any]
) -> int:
    """The same of six epochs or more that swing about it: three quarters of the evaluations, the last among them, have
    the accuracy of one class for all, to a thousandth; the medians are those of a guess; the last two evaluations are
    no better than one, and no loss is much better."""
    if min(len(value), len(evaluation), len(correct)) < _SIX_EPOCHS or not 0 < correct[-1] <= 0.5 * (1 + _EXACTLY):
        return 0
    count = round(1 / float(correct[-1]))
    exact = abs(correct * count - 1) < _EXACTLY
    ours, theirs = (each / math.log(count) - 1 for each in (value[1:], evaluation))
    off = numpy.concatenate([ours, theirs])
    middle = abs(float(numpy.median(theirs))) < _LEVEL and abs(float(numpy.median(ours))) < 2 * _GUESS
    known = not len(accuracy) or abs(float(numpy.median(accuracy)) * count - 1) < _SHARES
    ends = exact[-1] and theirs[-2:].min() > -_ENDS
    within = off.min() > -_NOT_BELOW and off.max() < _NOT_ABOVE
    return count if exact.mean() >= _PART and middle and known and ends and within else 0


def rests_at_a_guess(value: NDArray[Any], accuracy: NDArray[Any], steps: int) -> int:
    """The same of eight rows or more, in 500 steps, of which all losses are within 0.03% of that of a guess among
    twenty or fewer, and half of the accuracies are within a hundredth: rows of each hundredth epoch, or of the best."""
    if len(value) < _EPOCHS or len(accuracy) < _EPOCHS or steps < _LONG or not value.min() > 0:
        return 0
    count = round(math.exp(min(float(value[-1]), math.log(2 * _CLASSES))))
    if not 2 <= count <= _CLASSES or abs(value / math.log(count) - 1).max() > _ON_IT:
        return 0
    return count if float(numpy.median(abs(accuracy * count - 1))) < _AREA else 0


def accuracies_of_a_guess(shares: list[NDArray[Any]], count: int) -> str:
    """How accuracies are called that are those of a guess: all of them, or their median."""
    known = numpy.concatenate(shares)
    return "accuracy" if not len(known) or abs(known * count - 1).max() <= _BY_CHANCE else "in the median the accuracy"


def losses_stay_a_guess(value: NDArray[Any], evaluation: NDArray[Any]) -> int:
    """The same where no accuracy is logged: epochs' losses [n] and as many evaluations, eight at least, all of which
    are within 0.3% of that of a guess among twenty or fewer."""
    if len(evaluation) < _EPOCHS or abs(len(evaluation) - len(value)) > 1 or not value.min() > 0:
        return 0
    count = round(math.exp(min(float(value[0]), math.log(2 * _CLASSES))))
    if not 2 <= count <= _CLASSES:
        return 0
    losses = numpy.concatenate([value, evaluation])
    return count if abs(losses / math.log(count) - 1).max() < _BOTH else 0


def evaluations_stay_a_guess(value: NDArray[Any], evaluation: NDArray[Any], correct: NDArray[Any]) -> int:
    """The same of six evaluations or more, within 0.3% of the loss of a guess among twenty or fewer, whose accuracy is
    each time the same, about one in that many, where no loss [n] of the training is below it: what is added to these
    falls, and nothing is learnt."""
    if min(len(value), len(evaluation), len(correct)) < _SIX_EPOCHS or not evaluation.min() > 0:
        return 0
    count = round(math.exp(min(float(numpy.median(evaluation)), math.log(2 * _CLASSES))))
    if not 2 <= count <= _CLASSES or numpy.ptp(correct) or abs(correct[0] * count - 1) > _BY_CHANCE:
        return 0
    near = abs(evaluation / math.log(count) - 1).max() < _NEAR_ABOVE
    return count if near and value.min() / math.log(count) - 1 > -_GUESS else 0


def drops_to_a_guess(value: NDArray[Any], correct: NDArray[Any], steps: int) -> int:
    """Among how many classes losses [n] are a guess from the second row on, three of them at least in a thousand steps,
    where the first is half as high again or more, and the evaluations' accuracy is the same each time, to the last
    digit, 1 over about that number; 0 where they are not."""
    if len(value) < _DROPPED or len(correct) < 2 or steps < _SPAN or not 0 < correct[0] < _RARE:
        return 0
    expected, later = -math.log(float(correct[0])), value[1:]
    near = abs(later / expected - 1).max() < _ABOUT and numpy.ptp(later) < _RESTS * expected
    return round(1 / float(correct[0])) if near and (correct == correct[0]).all() and value[0] > 1.5 * expected else 0


def only_grows(value: NDArray[Any]) -> tuple[int, float] | None:
    """Of eight rows [n] or more that are each higher than the one before, to a hundred thousand times the first, the
    second, and the first: so do no targets grow that are learnt."""
    grows = len(value) >= _MONOTONE and value[0] > 0 and (numpy.diff(value) > 0).all()
    return (1, float(value[0])) if grows and value[-1] >= _GROWN * max(1.0, float(value[0])) else None


def explodes(value: NDArray[Any]) -> tuple[int, float] | None:
    """Of four or five rows [n] the first of two at the end that are each five times the row before, the last a hundred
    times the median of those ahead; and the lowest of these. Or the second, where all behind the first are twenty times
    as high, and the last five times any other and a hundred times the first."""
    if not 4 <= len(value) <= 5 or not value.min() > 0:
        return None
    start, end = float(value[0]), float(value[-1])
    if value[1:].min() >= _TWENTY * start and end >= max(_TIMES * value[:-1].max(), _HUNDRED * max(1.0, start)):
        return 1, start
    ahead, (first, last) = value[:-2], value[-2:].tolist()
    grown = first >= _TIMES * ahead[-1] and last >= _TIMES * first and last >= _HUNDRED * max(1.0, median(ahead))
    return (len(value) - 2, float(ahead.min())) if grown else None


def answers_by_chance(accuracy: NDArray[Any], correct: NDArray[Any]) -> int:
    """Among how many classes the accuracies of the training and of evaluations [n] are a guess: evaluations have the
    same number in each of eight rows or more, to the last digit, and in both it is 1 over that number, to a thousandth;
    0 where they are not."""
    if min(len(accuracy), len(correct)) < _EPOCHS or not accuracy.min() > 0:
        return 0
    share = float(correct[0])
    count = round(1 / share) if 0 < share <= 0.5 * (1 + _TO_FOUR_DIGITS) else 0
    same = (correct == share).all() and abs(correct[0] * count - 1) < _TO_FOUR_DIGITS
    return count if count and same and abs(accuracy * count - 1).max() < _TO_FOUR_DIGITS else 0


def sure_and_wrong(value: NDArray[Any], accuracy: NDArray[Any], evaluation: NDArray[Any], correct: NDArray[Any]) -> int:
    """Among how many classes accuracies are a guess while losses [n] rest within a hundredth far above that of one, as
    those of outputs that are sure of the same answer whatever comes: in eight rows or more, five with evaluations; 0
    where they are not."""
    rows = _STILL if len(correct) >= _STILL else _EPOCHS
    shares = [each for each in (accuracy, correct) if len(each)]
    if min(len(value), len(accuracy)) < rows or not min(each.min() for each in (value, *shares)) > 0:
        return 0
    count = round(1 / float((correct if len(correct) >= _STILL else accuracy).mean()))
    if not 2 <= count <= _CLASSES:
        return 0
    near = 2 * _BY_CHANCE if count >= _MORE_CLASSES else _SHARE
    at_chance = all(abs(each * count - 1).max() <= near for each in shares)
    levels = [each for each in (value, evaluation) if len(each)]
    rests = all(numpy.ptp(each) < _RESTING * each.min() and each.min() > _SURE * math.log(count) for each in levels)
    return count if at_chance and rests else 0


def cost_of_mistakes(value: NDArray[Any], accuracy: NDArray[Any]) -> float:
    """What each wrong answer costs where losses [n], four or more, are the share of wrong answers times −ln of an
    epsilon, in all rows but the first: outputs are exactly 0 or 1, and a wrong one is kept from −ln 0. 0 where not."""
    if len(value) < _STILL - 1 or len(accuracy) != len(value) or not 1 - accuracy.max() >= _WRONG:
        return 0.0
    costs = (value / (1 - accuracy))[1:]
    for cost in _COSTS:
        least = _OTHER_SIDE if cost == _COSTS[0] else cost
        if (1 - _COST) * least < costs.min() and costs.max() < (1 + _COST) * cost:
            return cost
    return 0.0


def never_changes(value: NDArray[Any], accuracy: NDArray[Any]) -> float:
    """The accuracy of the training that is the same in each of a dozen epochs or more, to the last of four digits at
    least, while the losses [n] have lost little, as where one class is answered; 0 where it is not."""
    if len(accuracy) < _DOZEN or abs(len(accuracy) - len(value)) > 1 or not value.min() > 0:
        return 0.0
    share, third = float(accuracy[0]), len(value) // 3
    exact = len(f"{share:.10g}".replace(".", "").lstrip("0")) >= _DIGITS and (accuracy == share).all()
    percent = 100.0 if share > 1 else 1.0
    one = exact and _ANSWERED[0] < share / percent < _ANSWERED[1]
    return share if one and value[-third:].mean() > (1 - _FALL) * value[:third].mean() else 0.0


def stands_still(value: NDArray[Any], accuracy: NDArray[Any], evaluation: NDArray[Any], correct: NDArray[Any]) -> float:
    """The accuracy of rows, five or more, four with evaluations, in which nothing changes to the last digit, but in the
    first of the training: neither losses [n], of four digits, nor accuracies, all below a half, nor evaluations; 0
    where something does. What was fitted to the end has answered more than half."""
    level, known = float(value[-1]), correct if len(correct) >= _STILL - 1 else accuracy
    rows = _STILL - 1 if min(len(evaluation), len(correct)) >= _STILL - 1 else _STILL
    digits = len(f"{abs(level):.10g}".replace(".", "").lstrip("0"))
    if len(value) < rows or len(known) < rows or digits < _DIGITS or abs(level) < _FITTED:
        return 0.0
    if (value[1:] != level).any() or abs(value[0] - level) > _AT_FIRST * abs(level):
        return 0.0
    shares = [each for each in (accuracy, correct) if len(each)]
    if any((each[1:] != each[-1]).any() or each.max() >= 0.5 for each in (*shares,)) or (known != known[0])[1:].any():
        return 0.0
    return float(known[-1]) if not len(evaluation) or (evaluation[1:] == evaluation[-1]).all() else 0.0


def stands_beside(value: NDArray[Any], evaluation: NDArray[Any]) -> bool:
    """Whether losses [n] of five digits are the same in each of six rows or more, while the evaluations beside them, of
    which few are the same, lie above and move by a thousandth, and do not fall: weights that move, or statistics, but
    no loss."""
    level, count = float(value[-1]), len(evaluation)
    if len(value) < _SIX_EPOCHS or abs(len(value) - count) > 1 or (value != level).any() or level < _FITTED:
        return False
    if len(f"{level:.10g}".replace(".", "").lstrip("0")) <= _DIGITS or evaluation.min() < level:
        return False
    moves = (numpy.diff(evaluation) != 0).mean() >= _PART and numpy.ptp(evaluation) >= _NEARER * evaluation.min()
    return bool(moves and evaluation[-1] > (1 - _LITTLE) * evaluation[0])


def nothing_learnt(value: NDArray[Any], beside: list[NDArray[Any]], area: NDArray[Any]) -> tuple[str, list[str]] | None:
    """What shows that epochs' losses [n] have taught nothing, and why that may be; None if nothing does. beside:
    accuracies of the training, evaluation losses and accuracies; area: that under the curve."""
    accuracy, evaluation, correct = beside
    if _ranks_by_chance(value, evaluation, area):
        return f"the loss came to {value[-1]:.4g}, that of a uniform guess between two, and the area under the curve " \
               "never left a half", [
            "labels shuffled: targets have nothing to do with the inputs",
            "learning rate too high: outputs no longer depend on the inputs",
            "gradients vanish",
        ]  # fmt: skip
    if _knows_shares_alone(value, evaluation, area):
        return f"losses of training and evaluation came to {value[-1]:.4g} and {evaluation[-1]:.4g} and rest there, " \
               "as where nothing but the labels' shares is known, and the area under the curve never left a half", [
            "labels shuffled: targets have nothing to do with the inputs",
            "gradients vanish",
        ]  # fmt: skip
    if same := _one_answer(value, accuracy, correct):
        return f"no evaluation is better than the first ones: the best accuracy is {correct.max():.4g}, the same in " \
               f"{same} of {len(correct)}, while the training loss went from {value[0]:.4g} to {value[-1]:.4g}", [
            "one class alone: each example is given the most frequent class",
            "learning rate too low: the weights have hardly left where they began",
            "labels shuffled: nothing can be learnt",
        ]  # fmt: skip
    return None


def _ranks_by_chance(value: NDArray[Any], evaluation: NDArray[Any], area: NDArray[Any]) -> bool:
    """Whether epochs' losses [n], and evaluations where there are any, have come to ln 2 in the later half, while the
    area under the curve is no further from a half than by chance in any."""
    if len(area) < max(_EPOCHS, len(value) - 1) or abs(area - 0.5).max() > _AREA:
        return False
    losses = (each[len(each) // 2 :] for each in (value, evaluation) if len(each))
    return all(abs(float(numpy.median(each)) / math.log(2) - 1) < _GUESS for each in losses)


def _knows_shares_alone(value: NDArray[Any], evaluation: NDArray[Any], area: NDArray[Any]) -> bool:
    """Whether epochs' losses [n] and evaluations, twenty at least, rest at one level, that of a guess between two or
    less: the evaluations from their first quarter on, the training in its last third; while no area under the curve is
    far from a half, and in the later half they are not above it, as those of labels that are hard to tell are."""
    count = len(evaluation)
    if count < _MANY or abs(len(value) - count) > 1 or not count - 1 <= len(area) <= count + 1 or not value.min() > 0:
        return False
    if abs(area - 0.5).max() > _AREAS or float(numpy.median(area[len(area) // 2 :])) > _MIDDLE:
        return False
    losses = numpy.append(evaluation[count // 4 :], numpy.median(value[-(len(value) // 3) :]))
    return bool(0 < losses.max() <= min((1 + _RESTS) * losses.min(), (1 + _GUESS) * math.log(2)))


def _one_answer(value: NDArray[Any], accuracy: NDArray[Any], correct: NDArray[Any]) -> int:
    """How many evaluations have the best accuracy there is, to the last digit, where one of the first three has it
    already, and losses [n] and accuracies of the training have hardly got better; else 0. So does one class for all."""
    if len(correct) < _EPOCHS or abs(len(correct) - len(value)) > 1 or not value.min() > 0:
        return 0
    best, third = float(correct.max()), len(value) // 3
    count = int((correct == best).sum())
    if count < max(_SAME, len(correct) // 4) or not _ANSWERED[0] < best < _ANSWERED[1] or correct[:_FIRST].max() < best:
        return 0
    gain = accuracy[-third:].mean() - accuracy[:third].mean() if len(accuracy) == len(value) else 0.0
    return count if value[-third:].mean() > (1 - _FALL) * value[:third].mean() and gain < _GAIN else 0
