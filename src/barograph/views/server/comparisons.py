"""What `/api/compare` and `/api/importance` answer, as types: the JSON of the commands, with the runs' keys.

In:   nothing.
Out:  structs, as in `schema`, and dataclasses of the analysis; amounts that are NaN are None.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from barograph.analysis.compare.ranking import Rank
from barograph.analysis.importance.explain import KeyImportance
from barograph.views.server.schema import AnswerJson, GivenJson, Key


class SideRunJson(GivenJson, kw_only=True):
    """A run of a side; `key`: None where it is not served."""

    key: Key | UnsetType | None = UNSET
    project: str
    id: str
    name: str
    status: str
    dir: str
    seeds: dict[str, Any]


class SideJson(GivenJson, kw_only=True):
    """A run, or a group of runs that count as repeats."""

    label: str
    runs: list[SideRunJson]


class DifferenceJson(GivenJson, kw_only=True):
    """A key that differs between sides; `values`: a side each."""

    part: str
    key: str
    values: list[str]
    role: str
    change: str | None


class RefusalJson(GivenJson, kw_only=True):
    """What can't be compared, why, and what to take instead."""

    kind: str
    what: str
    why: str
    instead: str | None


class CellValueJson(GivenJson, kw_only=True):
    """The mean over a side's runs and its interval; `runs` of `of` have a value."""

    value: float | None
    low: float | None
    high: float | None
    runs: int
    of: int


class TableRowJson(GivenJson, kw_only=True):
    """A measure; direction: 1 where larger is better, -1 where smaller is, else 0."""

    name: str
    unit: str
    direction: int
    cells: list[CellValueJson | None]
    percent: list[float | None]


class TestJson(GivenJson, kw_only=True):
    """A test of a difference."""

    method: str
    low: float | None
    high: float | None
    p: float | None


class DifferenceCurveJson(GivenJson, kw_only=True):
    """A difference along the axis, with its interval."""

    kind: str
    x: list[float | None]
    difference: list[float | None]
    low: list[float | None]
    high: list[float | None]


class ContrastJson(GivenJson, kw_only=True):
    """A side against the baseline."""

    side: int
    baseline: int
    runs: list[int]
    difference: float | None
    percent: float | None
    outcome: str
    sentence: str
    advice: str | None
    test: TestJson | None
    curve: DifferenceCurveJson | None


class VerdictJson(GivenJson, kw_only=True):
    """What can be concluded."""

    attribution: str
    changes: list[str]
    sentences: list[str]


class RankingJson(GivenJson, kw_only=True):
    """Three sides or more, the best first."""

    metric: str
    level: float
    sentence: str
    ranks: list[Rank]


class ComparisonJson(GivenJson, kw_only=True):
    """Runs compared."""

    sides: list[SideJson]
    verdict: VerdictJson
    ranking: RankingJson | None
    differences: list[DifferenceJson]
    varies_within_sides: dict[str, str]
    same: list[str]
    not_known: dict[str, list[int]]
    code_files: list[str]
    refusals: list[RefusalJson]
    cautions: list[str]
    notes: list[str]
    metric: str | None
    axis: str | None
    at: float | None
    window: float | None
    target: float | None
    level: float
    rows: list[TableRowJson]
    contrasts: list[ContrastJson]


# -- importance ------------------------------------------------------------------------------------------------


class ImportanceJson(GivenJson, kw_only=True):
    """What explains a metric over some runs: `barograph importance --json`."""

    metric: str
    runs: int
    configurations: int
    diverged: int
    missing: int
    level: float
    keys: list[KeyImportance]
    repeats: float | None
    constant: list[str]
    apart: list[str]
    sentences: list[str]


# -- similar runs ----------------------------------------------------------------------------------------------


class SimilarJson(GivenJson, kw_only=True):
    """A run to compare with: the keys in which it differs, with its values; none for a repeat."""

    key: Key
    keys: dict[str, str]


class MatchingJson(AnswerJson, kw_only=True):
    """The runs that a filter lets through."""

    keys: list[Key]


class SimilarRunsJson(GivenJson, kw_only=True):
    """Runs that differ in little, repeats first."""

    similar: list[SimilarJson]


SHARED = (Rank, KeyImportance)  # dataclasses of the analysis that answers have as they are
