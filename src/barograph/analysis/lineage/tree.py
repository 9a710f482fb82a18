"""Where a run comes from and what came of it: segments, forks, what was kept and what was discarded.

In:   a stored run; the folder of runs in which its forks are looked for.
Out:  `Lineage`: a tree of runs with the stretches of each, and totals that count everything once.

A step is discarded if a resume or rewind did it again or went back behind it. What a fork shares with its source
was paid for by the source: it stands apart as inherited, and is in no sum of the fork.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barograph.analysis.lineage.tracks import TrackPart, Tracks
from barograph.core import segments
from barograph.query.given import GivenRun, stored_run
from barograph.query.stored import StoredRun

_AMOUNTS = ("tokens", "seconds", "gpu_hours", "cost")
_DEEPEST = 100  # forks of forks: more is a loop of folders that name each other


@dataclass(frozen=True)
class Spent:
    """What some steps took: how many, tokens, seconds in them, GPU hours, money; None where it is not known."""

    steps: int = 0
    tokens: float | None = None
    seconds: float | None = None
    gpu_hours: float | None = None
    cost: float | None = None

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.steps + other.steps,
            *(_sum(getattr(self, name), getattr(other, name)) for name in _AMOUNTS),
        )

    def __sub__(self, other: Spent) -> Spent:
        return self + Spent(
            -other.steps,
            *(None if (value := getattr(other, name)) is None else -value for name in _AMOUNTS),
        )

    def part(self, steps: float, tokens: float | None) -> Spent:
        """Some of these steps: their tokens, and of the rest what is theirs by number."""
        share = min(1.0, steps / self.steps) if self.steps else 0.0
        rest = (None if (value := getattr(self, name)) is None else value * share for name in _AMOUNTS[1:])
        return Spent(round(steps), None if self.tokens is None else tokens, *rest)

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("steps", *_AMOUNTS)}


@dataclass
class LineageBranch:
    """A run in a lineage. kept, thrown: of its own steps. wall: seconds, with all that was no step; goodput: its kept
    steps' part of that, 0 to 1. gpu_hours, cost: of the wall time, None where not known.

    carried: what of `thrown` forks go on from, so that among all runs it is kept.

    source, fork_step: for a fork, the folder it came from, and the step before which it shares that one's history;
    inherited: what that history took, counted there. forks: of this run, the earliest step first.
    """

    run: StoredRun
    parts: list[TrackPart]
    kept: Spent
    thrown: Spent
    carried: Spent = field(default_factory=Spent)
    wall: float | None = None
    goodput: float | None = None
    gpu_hours: float | None = None
    cost: float | None = None
    source: Path | None = None
    fork_step: int | None = None
    inherited: Spent | None = None
    forks: list[LineageBranch] = field(default_factory=list)

    def walk(self) -> Iterator[LineageBranch]:
        """This run and all behind it."""
        yield self
        for fork in self.forks:
            yield from fork.walk()

    def as_dict(self) -> dict[str, Any]:
        run = self.run
        return {
            "project": run.project,
            "run": run.id,
            "name": run.name,
            "status": run.status,
            "dir": str(run.dir),
            "source": None if self.source is None else str(self.source),
            "fork_step": self.fork_step,
            "segments": [part.as_dict() for part in self.parts],
            "kept": self.kept.as_dict(),
            "thrown_away": self.thrown.as_dict(),
            "carried_by_forks": self.carried.as_dict(),
            "inherited": None if self.inherited is None else self.inherited.as_dict(),
            "wall_seconds": self.wall,
            "goodput": self.goodput,
            "gpu_hours": self.gpu_hours,
            "cost": self.cost,
            "forks": [fork.as_dict() for fork in self.forks],
        }


@dataclass
class Lineage:
    """trunk: the oldest run that is there. asked: the run that was asked about. lost: a source that is not there.

    kept, thrown: the sums over all runs, each step of each run once. What a run threw away after a fork had shared it
    is kept.
    """

    trunk: LineageBranch
    asked: LineageBranch
    lost: Path | None = None

    @property
    def kept(self) -> Spent:
        return _total([branch.kept + branch.carried for branch in self.trunk.walk()])

    @property
    def thrown(self) -> Spent:
        return _total([branch.thrown - branch.carried for branch in self.trunk.walk()])

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to tell: one run that was started once."""
        return not self.trunk.forks and self.trunk.fork_step is None and len(self.trunk.parts) < 2

    def as_dict(self) -> dict[str, Any]:
        return {
            "asked": str(self.asked.run.dir),
            "lost_source": None if self.lost is None else str(self.lost),
            "kept": self.kept.as_dict(),
            "thrown_away": self.thrown.as_dict(),
            "tree": self.trunk.as_dict(),
        }


def lineage(run: GivenRun, root: str | Path | None = None) -> Lineage:
    """The tree of runs that a run belongs to. root: where forks are looked for; by default the folder above the
    run's project. Bare logs and runs of other tools have one segment, and no forks."""
    run = stored_run(run)
    top = Path(root) if root is not None else run.dir.resolve().parent.parent
    chain, lost = _ancestors(run)
    forks = _forks(top, chain[0].dir.resolve().parent)
    made: dict[Path, LineageBranch] = {}
    trunk = _branch(chain[0], None, forks, made, 0)
    asked = made.get(run.dir.resolve(), trunk)
    return Lineage(trunk, asked, lost)


def own(run: StoredRun) -> LineageBranch:
    """A run's own part alone: its segments, what it kept and threw away; no forks are looked for."""
    source = next(iter(_ancestors(run)[0][-2:-1]), None)
    return _branch(run, source, {}, {}, 0)


def _ancestors(run: StoredRun) -> tuple[list[StoredRun], Path | None]:
    """The run and those it came from, the oldest first; the folder of a source that is not there."""
    chain, seen = [run], {run.dir.resolve()}
    while len(chain) < _DEEPEST:
        named = source_of(chain[0])
        if named is None:
            return chain, None
        folder = _there(named, chain[0])
        if folder is None:
            return chain, named
        if folder in seen:
            return chain, None
        seen.add(folder)
        chain.insert(0, StoredRun(folder))
    return chain, None


def source_of(run: StoredRun) -> Path | None:
    """The folder that a fork says it came from, whether it is there or not; None for other runs."""
    first = next(iter(run.segments), None)
    return Path(first.source) if first is not None and first.source and first.start_step is not None else None


def _there(named: Path, run: StoredRun) -> Path | None:
    """A source's folder, also where all runs were moved together: then the same project and run beside this one."""
    top = run.dir.resolve().parent.parent
    for place in (named, top / named.parent.name / named.name):
        if segments.is_run(place):
            return place.resolve()
    return None


def _forks(top: Path, project: Path) -> dict[Path, list[StoredRun]]:
    """Folders of sources → their forks, of all runs in a folder of runs, archived ones too."""
    result: dict[Path, list[StoredRun]] = {}
    for folder in _run_folders(top, project):
        run = StoredRun(folder)
        if (named := source_of(run)) is not None and (place := _there(named, run)) is not None:
            result.setdefault(place, []).append(run)
    return result


def _run_folders(top: Path, project: Path) -> list[Path]:
    found: dict[Path, None] = {}
    with contextlib.suppress(OSError):
        for place in (project, top, *sorted(item for item in top.iterdir() if not item.name.startswith("."))):
            if (place / segments.FOLDER).is_dir():
                continue  # a run: nothing in it is one
            with contextlib.suppress(OSError):
                for folder in sorted(place.iterdir()):
                    if not folder.name.startswith(".") and (folder / segments.FOLDER).is_dir():
                        found[folder.resolve()] = None
    return list(found)


def _branch(
    run: StoredRun,
    source: StoredRun | None,
    forks: dict[Path, list[StoredRun]],
    made: dict[Path, LineageBranch],
    depth: int,
) -> LineageBranch:
    tracks = Tracks(run)
    first = next(iter(run.segments), None)
    step = first.start_step if first is not None and first.source else None
    totals, money = run.goodput(), run.cost()
    timed = totals.wall > 0
    hours, cost = (
        None if money.get(name) is None or not totals.held > 0 else float(money[name]) / totals.held
        for name in ("gpu_hours", "cost")
    )

    def spent(steps: float, tokens: float | None, seconds: float) -> Spent:
        known = seconds if timed else None
        return Spent(
            round(steps),
            tokens,
            known,
            None if hours is None else hours * seconds,
            None if cost is None else cost * seconds,
        )

    branch = LineageBranch(
        run=run,
        parts=tracks.parts(),
        kept=spent(tracks.steps(live=True), tracks.tokens(live=True), totals.productive),
        thrown=spent(tracks.steps(live=False), tracks.tokens(live=False), totals.redone),
        wall=totals.wall if timed else None,
        goodput=totals.goodput if timed else None,
        gpu_hours=None if hours is None else hours * totals.held,
        cost=None if cost is None else cost * totals.held,
        source=source_of(run),
        fork_step=step,
    )
    if source is not None and step is not None and first is not None:
        branch.inherited = _inherited(source, step, first.time, 0)
    place = run.dir.resolve()
    made[place] = branch
    begun = [item.segments[0] for item in forks.get(place, ())]
    branch.carried = branch.thrown.part(*tracks.carried([(item.start_step or 0, item.time) for item in begun]))
    if depth < _DEEPEST:
        for fork in forks.get(place, ()):
            if fork.dir.resolve() not in made:
                branch.forks.append(_branch(fork, run, forks, made, depth + 1))
    branch.forks.sort(key=lambda item: (item.fork_step or 0, item.run.id))
    return branch


def _inherited(source: StoredRun, step: int, moment: int, depth: int) -> Spent:
    """What the history before `step` took in the source, as it was at that moment, and in what that came from."""
    tracks = Tracks(source, moment)
    earlier = _ancestors(source)[0][-2:-1]
    first = next(iter(source.segments), None)
    before = None
    if earlier and first is not None and first.start_step is not None and depth < _DEEPEST:
        before = _inherited(earlier[0], min(step, first.start_step), first.time, depth + 1)
    spent = Spent(round(tracks.steps(live=True, before=step)), tracks.tokens(live=True, before=step))
    return spent if before is None else Spent(spent.steps + before.steps, _sum(spent.tokens, before.tokens))


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _total(each: Sequence[Spent]) -> Spent:
    total = each[0]
    for item in each[1:]:
        total = total + item
    return total
