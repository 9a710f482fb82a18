"""Which series of a stored run are its training's loss, and which its evaluations': by their names, or else by rows.

In:   a stored run; the names of its series, where somebody has just asked for them.
Out:  `RunLosses`, the likeliest first. All that shows, compares or judges a run takes its losses from here.

Names go first. Where none tells, the first rows do (`core/unnamed.py`), as far as they have come: of a run that goes on
the answer may be there later than the series. It is kept while nothing can change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core.lazy import installed
from barograph.core.roles import evaluation_losses, losses
from barograph.core.unnamed import SEEN, evaluation_by_rows, loss_by_rows, may_be_evaluation, may_be_loss
from barograph.query.files import StoredFiles
from barograph.query.stored import StoredRun

if TYPE_CHECKING:
    from barograph.store.columns import Columns

_LIKELIEST = 8  # losses of the training by name, of several, that are asked about


class RunLosses(NamedTuple):
    """training, evaluations: series, the likeliest first; empty where no name tells, and no rows."""

    training: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()

    @property
    def loss(self) -> str | None:
        """The training's loss."""
        return next(iter(self.training), None)

    @property
    def evaluation(self) -> str | None:
        """The loss on data held out."""
        return next(iter(self.evaluations), None)

    def or_else(self, other: RunLosses) -> RunLosses:
        """These, and of what there is none the other's."""
        return RunLosses(self.training or other.training, self.evaluations or other.evaluations)

    def and_told(self, told: RunLosses) -> RunLosses:
        """These, by names, and what rows tell: an evaluation's that rows tell is none of the training's."""
        found = self.or_else(told)
        others = tuple(name for name in found.training if name not in told.evaluations)
        return found._replace(training=others or found.training)

    def among(self, names: Iterable[str]) -> RunLosses:
        """Those that are among these names."""
        known = set(names)
        return RunLosses(*(tuple(name for name in some if name in known) for some in self))


def all_told(each: Iterable[RunLosses]) -> RunLosses:
    """The losses of several runs, those of the first that has one first."""
    some = [one for one in each if one.training or one.evaluations]
    return RunLosses(*(tuple(dict.fromkeys(name for one in some for name in one[place])) for place in range(2)))


def run_losses(run: StoredRun, names: Iterable[str] | None = None) -> RunLosses:
    """The losses of a run. names: of all its series, where they are at hand; a mapping gives names that others know
    them by, and their own: the answer is of the former."""
    known = run.names() if names is None else names
    return losses_by_name(known).and_told(told_losses(run, known))


def told_losses(run: StoredRun, names: Iterable[str] | None = None) -> RunLosses:
    """Of `run_losses` those that rows tell and no name."""
    given = names if isinstance(names, Mapping) else None
    known = tuple(run.names() if names is None else names)
    if not rows_may_tell(known):
        return RunLosses()
    named = losses_by_name(known)
    if given is None:
        return _by_rows(run, known, named.training, named.evaluation is not None)
    own = tuple(given.values())
    found = _by_rows(run, own, tuple(given[name] for name in named.training), named.evaluation is not None)
    common = {name: other for other, name in given.items()}
    return RunLosses(*(tuple(common[name] for name in some) for some in found))


def told_beside(run: StoredRun, last: Iterable[str]) -> RunLosses:
    """The same where the names of last values are at hand: the run's own are only asked for if they may tell more."""
    return told_losses(run) if last_leave_open(tuple(last)) else RunLosses()


def losses_by_name(names: Iterable[str]) -> RunLosses:
    """The losses that the names alone tell, where no run is at hand."""
    known = tuple(names)
    return RunLosses(losses(known), evaluation_losses(known))


@lru_cache(maxsize=1 << 10)
def last_leave_open(names: tuple[str, ...]) -> bool:
    """Whether the run may tell more than the names of its last values, which lack what the watch records; nothing does
    where NumPy, which reads rows, is not installed."""
    if not installed("numpy"):
        return False
    named = losses_by_name(names)
    known = (*names, *SEEN)
    return named.loss is None or (named.evaluation is None and _may_be_evaluation(known, named))


@lru_cache(maxsize=1 << 10)
def rows_may_tell(names: tuple[str, ...]) -> bool:
    """Whether the rows of a run with these series have to be looked at, since no name tells one of its losses."""
    named = losses_by_name(names)
    if named.loss is None:
        return bool(may_be_loss(names))
    return named.evaluation is None and _may_be_evaluation(names, named)


def _may_be_evaluation(names: tuple[str, ...], named: RunLosses) -> bool:
    """Whether one of the series may be an evaluation's loss, beside any of the likeliest of the training's by name."""
    return any(may_be_evaluation(names, loss) for loss in named.training[:_LIKELIEST])


def _by_rows(run: StoredRun, names: tuple[str, ...], losses: tuple[str, ...], evaluated: bool) -> RunLosses:
    """What the first rows tell, asked again when rows have come that may tell more. losses: those that may be the
    training's by their names, of which the one with most rows is; evaluated: a name tells the evaluation's."""
    files = run._files
    look, key = files.look(), (names, losses, evaluated)
    known: _Told | None = files.told
    if known is None or known.key != key or (known.pending and known.look is not look):
        series = {name: _StoredSeries(run, name) for name in names}
        told = max(losses, key=lambda name: series[name].end) if len(losses) > 1 else next(iter(losses), None)
        told = told or (known.losses.loss if known is not None and known.key == key else None)
        training, waiting = (series[told], []) if told is not None else loss_by_rows(series)
        evaluation, others = (None, []) if training is None or evaluated else evaluation_by_rows(series, training)
        found = RunLosses(*(() if one is None else (one.name,) for one in (training, evaluation)))
        known = files.told = _Told(key, look, found, bool(waiting or others))
    return known.losses


class _Told(NamedTuple):
    """key: what was known by names. look: the state of the run. pending: whether more rows may tell more."""

    key: tuple[tuple[str, ...], tuple[str, ...], bool]
    look: Any
    losses: RunLosses
    pending: bool


class _StoredRows:
    """Columns as `unnamed.FirstRows` has them."""

    def __init__(self, columns: Columns, some: slice):
        self.step, self.time, self.value, self.segment = (column[some] for column in columns)

    def __len__(self) -> int:
        return len(self.value)


class _StoredSeries:
    """A series of a run as `unnamed.ReadSeries` has it, read when somebody looks."""

    start = 0

    def __init__(self, run: StoredRun, name: str):
        self.name, self._run = name, run

    @cached_property
    def _columns(self) -> Columns:
        return self._run.columns(self.name, "all")

    @property
    def end(self) -> int:
        return len(self._columns[0])

    def rows(self, first: int = 0, last: int | None = None) -> _StoredRows:
        return _StoredRows(self._columns, slice(first, last))


# -- for rooms below -----------------------------------------------------------------------------------------


def losses_of_folder(folder: Path) -> RunLosses:
    """The losses of the run in a folder; none of one that can't be read."""
    try:
        return run_losses(StoredRun(folder))
    except (OSError, ValueError, KeyError):
        return RunLosses()


class _EndedFiles(StoredFiles):
    """Of a run that came to its end: it is `liveness` that asks, to know its status."""

    def status(self) -> str:
        return "finished"


@lru_cache(maxsize=1 << 8)
def loss_at_end(folder: Path, finished: str) -> str | None:
    """The training's loss of a run that has ended, as `liveness` asks for it where no name of a last value tells.

    finished: when. No file outside of the run's folder is read.
    """
    inside = folder.resolve()
    run = StoredRun(folder, may_open=lambda path: path.resolve().is_relative_to(inside))
    run._files = _EndedFiles(folder, None, run._files.may_open, None)
    try:
        return run_losses(run).loss
    except (OSError, ValueError, KeyError):  # what is damaged tells nothing
        return None
