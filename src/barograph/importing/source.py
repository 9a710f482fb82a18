"""What a source of runs is: one file a tool or dialect, all with the same few names.

In:   a path that a user gave.
Out:  `FoundRun` runs in it, and from each a stream of items: points by the thousand, facts, histograms, and what
      was not understood.

A source never raises for what a file holds: a damaged part is an `Unread`, and reading goes on behind it. It
holds no more than a few megabytes of a file at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray


class FoundRun(NamedTuple):
    """A run that a path holds. `key` tells it from the others in that path, also at the next import."""

    kind: str  # the source's
    path: Path  # the file or folder that is read
    key: str  # stable: relative path, run id, rank; "" if the path holds one run
    name: str  # what to call it
    project: str = ""
    config: Mapping[str, Any] = {}
    tags: tuple[str, ...] = ()
    notes: str = ""
    created: float = 0.0  # seconds since 1970; 0 if not known
    status: str = ""  # "finished", "failed", "running", …; "" if not known


AS_STEPS = ("step", "episode")  # axes of which a number comes once, and is one of the run's


class ImportedPoints(NamedTuple):
    """Rows of one set of names. NaN where a row has no value of a name is *not* allowed: use another block.

    names: as the source has them, n; steps, times: m whole numbers, microseconds since 1970 (0: not known);
    values: m × n. `x`: what the source's steps count: "step", "samples", "tokens", "epoch", "episode".
    """

    names: tuple[str, ...]
    steps: NDArray[Any]
    times: NDArray[Any]
    values: NDArray[Any]
    x: str = "step"


class Fact(NamedTuple):
    """A record that is not a row of numbers: kind as in `record.KINDS` (option, info, sample, eval, sol, …)."""

    kind: str
    step: int
    time: int
    fields: dict[str, Any]


class ImportedDistribution(NamedTuple):
    """A histogram: `counts[i]` values between `edges[i]` and `edges[i + 1]`."""

    name: str
    step: int
    time: int
    edges: NDArray[Any]
    counts: NDArray[Any]


class Restart(NamedTuple):
    """The source begins anew here: what follows is a new segment from `step` on (a crash, a resume)."""

    step: int
    time: int


class Unread(NamedTuple):
    """Something that was not understood: where (a line number, or a byte), the text's beginning, and why."""

    file: Path
    where: int
    text: str
    why: str


class ImportMark(NamedTuple):
    """How far a source has been read: `read` given this later goes on behind it. Plain JSON values.

    An empty one, `Mark({})`, given first by a `read` that was to go on, says: this is not what was read before.
    What follows is read from its beginning, into a run of its own; the run of before stays as it was.
    """

    state: dict[str, Any]


Item = ImportedPoints | Fact | ImportedDistribution | Restart | Unread | ImportMark


class ImportSource(Protocol):
    """One tool's or dialect's files.

    A source may also have these:

    aliases: Mapping[str, str | tuple[str, float]], its own originals → canonical name, or that and a factor. They go
        before the tables of `barograph.core.aliases`, and behind a user's.
    rewrites: bool, true where the tool writes the whole file anew at each save. A file of another inode or beginning
        is then not taken for another run: `read` finds out itself, and says so by `Mark({})`.
    patient: bool, false at first; set while the file is followed. A last row without a line break waits for it then;
        else it counts if it is whole.
    """

    kind: str  # "tensorboard", "nanochat", …
    about: str  # a few words, shown by `barograph import --help` and in the documentation

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        """The runs in a file or folder, or none if it is not this source's.

        head: the first 64 kB of a file, b"" for a folder. Cheap: called for every file below what the user
        named. A folder that is claimed is not looked into by other sources.
        """

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        """A run's items in the source's order; from behind `since` if given. Ends with a `ImportMark`, and may give
        marks in between: what comes before one is whole."""
