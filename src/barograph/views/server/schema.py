"""What the server answers, as types: the one place that says it for Python, the tests and the page.

In:   nothing.
Out:  a struct for each answer. `python -m barograph.views.server.typescript` writes them as TypeScript, and
      `tests/test_server_schema.py` holds real answers to them.

Numbers that are not finite are in JSON the words of `Num`. A field that may be missing has `UNSET` as its
default. Documentation of a class or field that the page's programmer needs is its docstring or `doc`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

Key = Annotated[
    str, Meta(title="Key", description='A run\'s folder under the served root: "/" kept, each part percent-encoded.')
]
Num = Annotated[
    float | Literal["NaN", "Infinity", "-Infinity"], Meta(title="Num", description="A number that may be not finite.")
]
Severity = Annotated[Literal["critical", "warning", "info"], Meta(title="Severity")]
SignKind = Annotated[Literal["nan", "+inf", "-inf"], Meta(title="SignKind")]


class AnswerJson(Struct, kw_only=True, forbid_unknown_fields=True):
    """Built by the server: a field that no class here names is a mistake."""


class GivenJson(Struct, kw_only=True):
    """Built by a room below, which may say more than the page reads."""


class OpenJson(Struct, kw_only=True):
    """Has fields beside those named, which the page shows as they are."""


# -- runs ----------------------------------------------------------------------------------------------------


class CountsJson(AnswerJson, kw_only=True):
    """Findings by severity."""

    critical: int
    warning: int
    info: int


class RowJson(AnswerJson, kw_only=True):
    """A run as a row of the table. Times are seconds since 1970."""

    key: Key
    project: str
    id: str
    name: str
    status: Annotated[str, Meta(description="running, silent, stuck, hung, crashed, …, finished, or as it was ended.")]
    status_since: float | None
    phase: Annotated[Literal["eval"] | UnsetType, Meta(description="What a live run is at, beside its steps.")] = UNSET
    problem: Annotated[str | UnsetType, Meta(description="Why something of the run could not be read.")] = UNSET
    created: float | None
    wall_seconds: float | None
    tags: list[str]
    notes: str
    pinned: bool
    archived: bool
    config: Annotated[dict[str, Any], Meta(description="Flat: `optimizer.lr` to its value.")]
    step: int | None
    total_steps: int | None
    remaining_seconds: float | None
    last: dict[str, Num]
    best: dict[str, Num]
    loss: Annotated[str | None, Meta(description="What of `last` is the training's loss.")]
    eval_loss: Annotated[str | None, Meta(description="What of `last` is the loss on data held out.")]
    findings: CountsJson
    examined: Annotated[bool | UnsetType, Meta(description="false: no rule has checked the run yet.")] = UNSET
    parent: Key | None
    fork_step: int | None


class RunsJson(AnswerJson, kw_only=True):
    """All runs, or those that a filter lets through."""

    runs: list[RowJson]
    projects: list[str]
    stamp: str
    left_out: Annotated[list[str], Meta(description="Sentences about folders that are not served.")]
    unread: Annotated[int, Meta(description="Runs that are not among these, because nothing was read of them yet.")]


class GroupStatisticsJson(AnswerJson, kw_only=True):
    """A number over the runs of a group. count: of finite values; not_finite: runs that ended NaN or infinite."""

    count: int
    not_finite: int
    mean: float | None
    deviation: float | None
    best: float | None


class RunGroupJson(AnswerJson, kw_only=True):
    """Runs that have the same values of the keys asked for. statistics: by column, such as `last:train/loss`."""

    label: str
    values: dict[str, Any]
    runs: list[Key]
    failed: int
    statistics: dict[str, GroupStatisticsJson]


class RunGroupsJson(AnswerJson, kw_only=True):
    """Groups in the order of their values."""

    groups: list[RunGroupJson]


class AboutJson(AnswerJson, kw_only=True):
    """The server."""

    version: str
    root: str
    token_needed: bool
    edit_token: str


class DeletedJson(AnswerJson, kw_only=True):
    """What was moved to the trash: the id brings it back."""

    id: str


class RestoredJson(AnswerJson, kw_only=True):
    """A run that came back from the trash."""

    key: Key


class RowsEventJson(AnswerJson, kw_only=True):
    """Live: rows that changed, keys of runs that are gone."""

    rows: list[RowJson]
    gone: list[Key]


class PointsEventJson(AnswerJson, kw_only=True):
    """Live: a run has new points."""

    run: Key
    step: int | None
    time: float


# -- one run -------------------------------------------------------------------------------------------------


class SegmentJson(AnswerJson, kw_only=True):
    """A stretch of a run between two starts."""

    segment: int
    parent: int | UnsetType = UNSET
    start_step: int | UnsetType = UNSET
    kind: str
    time: float
    launch: str | UnsetType = UNSET
    source: str | UnsetType = UNSET


class OriginJson(AnswerJson, kw_only=True):
    """Where a run was forked from."""

    key: Key
    step: int | None


class ChildJson(AnswerJson, kw_only=True):
    """A run that was forked from this one."""

    key: Key
    name: str
    step: int | None


class RelativesJson(AnswerJson, kw_only=True):
    """The run's parent and its children; `source`: the folder of a parent that is not served."""

    parent: OriginJson | None
    source: str | None
    children: list[ChildJson]


class SampleJson(AnswerJson, kw_only=True):
    """A generated text."""

    step: int
    time: float
    prompt: str | UnsetType = UNSET
    text: str | UnsetType = UNSET


class EndingJson(AnswerJson, kw_only=True):
    """How a run came to its state: the last lines of its output and the traceback where it did not end as it should."""

    status: str
    step: int | None
    reason: str
    lines: list[str]
    traceback: str


class DetailJson(RowJson, kw_only=True):
    """A run for its overview: the row and what stands beside it. `config` is nested here, `config_flat` flat."""

    manifest: dict[str, Any]
    config_flat: dict[str, Any]
    segments: list[SegmentJson]
    lineage: RelativesJson
    ending: EndingJson
    goodput: dict[str, Num]
    energy: dict[str, Any]
    checkpoints: list[dict[str, Any]]
    samples: list[SampleJson]
    problems: list[str]
    series_count: int
    families: dict[str, int]
    folder: str


class NamesJson(AnswerJson, kw_only=True):
    """Series of a run: all of them with the histograms, or those that match a pattern with their total."""

    names: list[str]
    histograms: list[str] | UnsetType = UNSET
    total: int | UnsetType = UNSET


class TreeGroupJson(AnswerJson, kw_only=True):
    """A group of names; `prefix`: its full path with "/" at its end, to ask with."""

    name: str
    prefix: str
    count: int


class TreeJson(AnswerJson, kw_only=True):
    """One step of the tree of names."""

    groups: list[TreeGroupJson]
    leaves: list[str]


class PhaseJson(AnswerJson, kw_only=True):
    """The median of a phase of a step, and its share of the step."""

    name: str
    ms: float
    percent: float
    series: str


class LostTimeJson(AnswerJson, kw_only=True):
    """Where the time of a run went."""

    cause: str
    seconds: float
    percent: float
    money: float | None


class RankRowJson(OpenJson, kw_only=True):
    """A rank: where it runs, whether it is there, its last step's time and how long it waited."""

    rank: int
    host: str | None
    alive: bool | None
    status: str | None
    step: int | UnsetType | None = UNSET
    step_ms: Num | UnsetType = UNSET
    wait_ms: Num | UnsetType = UNSET
    series: dict[str, str] | UnsetType = UNSET


class DeviceRowJson(OpenJson, kw_only=True):
    """A device with its last readings, and the series to draw them from."""

    id: str
    series: dict[str, str]


class SystemJson(AnswerJson, kw_only=True):
    """The machines of a run; what nobody recorded is empty."""

    phases: list[PhaseJson]
    goodput: list[LostTimeJson]
    totals: dict[str, Num]
    ranks: list[RankRowJson]
    gpus: list[DeviceRowJson]
    host: dict[str, Num]
    host_series: list[str]
    stragglers: list[dict[str, Any]]
    stalls: list[dict[str, Any]]
    cost: dict[str, Any]
    hardware: dict[str, Any] | None
    world_size: int | None


# -- findings ------------------------------------------------------------------------------------------------


class SparkJson(GivenJson, kw_only=True):
    """A series around a finding as bars; x, ^ and v where it is not finite."""

    series: str
    low: float = field(name="from")
    high: float = field(name="to")
    bars: str


class StoryEntryJson(GivenJson, kw_only=True):
    """A finding that belongs to another one."""

    step: int
    rule: str
    kind: str
    severity: Severity
    message: str


class EvidenceJson(OpenJson, kw_only=True):
    """Numbers, short lists and short texts; a drawing, and what belongs to the finding."""

    spark: SparkJson | UnsetType = UNSET
    story: list[StoryEntryJson] | UnsetType = UNSET


class FindingJson(GivenJson, kw_only=True):
    """What the doctor found. Causes and remedies: the likeliest first."""

    rule: str
    family: str
    kind: str
    severity: Severity
    step: int
    last_step: int
    found: int
    message: str
    evidence: EvidenceJson
    causes: list[str]
    remedies: list[str]
    confidence: float
    key: str
    segment: int


class AbstainedJson(GivenJson, kw_only=True):
    """A rule that could not be checked, and what it needs."""

    rule: str
    needs: str


class DiagnosisJson(GivenJson, kw_only=True):
    """The findings of a run."""

    run: str
    source: str
    headline: str
    judged_by: str | None
    findings: list[FindingJson]
    checked: list[str]
    abstained: list[AbstainedJson]


# -- frames: JSON headers before columns of numbers ----------------------------------------------------------


class ColumnRefJson(AnswerJson, kw_only=True):
    """A column of a frame: `at` counts float64s from the start of the data."""

    at: int
    n: int


class MarkJson(AnswerJson, kw_only=True):
    """A point that is not finite."""

    x: float
    step: int
    kind: SignKind


class SeriesColumnsJson(AnswerJson, kw_only=True):
    """x, y and smooth of points; x, extremes, mean, first, last and count of buckets, and smooth."""

    x: ColumnRefJson | UnsetType = UNSET
    y: ColumnRefJson | UnsetType = UNSET
    min: ColumnRefJson | UnsetType = UNSET
    max: ColumnRefJson | UnsetType = UNSET
    mean: ColumnRefJson | UnsetType = UNSET
    first: ColumnRefJson | UnsetType = UNSET
    last: ColumnRefJson | UnsetType = UNSET
    count: ColumnRefJson | UnsetType = UNSET
    smooth: ColumnRefJson | UnsetType = UNSET
    x_min: ColumnRefJson | UnsetType = UNSET
    x_max: ColumnRefJson | UnsetType = UNSET
    x_last: ColumnRefJson | UnsetType = UNSET


class SeriesPartJson(AnswerJson, kw_only=True):
    """Points of a series in a range: as they are, or in buckets.

    before, after: the nearest finite point beyond each end of the range: a line goes on to the edge.
    """

    points: int
    exact: bool
    columns: SeriesColumnsJson
    marks: list[MarkJson]
    marks_total: int | UnsetType = UNSET
    before: tuple[float, float] | UnsetType | None = UNSET
    after: tuple[float, float] | UnsetType | None = UNSET


class SeriesHeaderJson(SeriesPartJson, kw_only=True):
    """A series in a frame. old: what a resume or a rewind superseded."""

    run: Key
    name: str
    rank: int | UnsetType = UNSET
    total: int
    last_step: int | UnsetType | None = UNSET
    last_value: Num | UnsetType | None = UNSET
    error: str | UnsetType = UNSET
    old: list[SeriesPartJson] | UnsetType = UNSET


class SeriesFrameJson(AnswerJson, kw_only=True):
    """Many series of many runs."""

    x: str
    smooth: float | str
    branch: str
    series: list[SeriesHeaderJson]


class LayersColumnsJson(AnswerJson, kw_only=True):
    """value: layers × steps."""

    step: ColumnRefJson
    value: ColumnRefJson


class LayersHeaderJson(AnswerJson, kw_only=True):
    """One field of a table over layers and steps. marks: layer, column, kind. layers_total: with those left out."""

    table: str
    field: str
    fields: list[str]
    tables: list[str]
    layers: list[str]
    layers_total: int
    steps: int
    marks: list[tuple[int, int, SignKind]] | UnsetType = UNSET
    marks_total: int | UnsetType = UNSET
    columns: LayersColumnsJson


class HistogramsColumnsJson(AnswerJson, kw_only=True):
    """All histograms, one after another."""

    edges: ColumnRefJson
    counts: ColumnRefJson
    offsets: ColumnRefJson


class HistogramsHeaderJson(AnswerJson, kw_only=True):
    """A distribution over time. Histogram i has edges[offsets[i] : offsets[i + 1]], and a count less."""

    name: str
    names: list[str]
    steps: list[int]
    times: list[float]
    total: int
    columns: HistogramsColumnsJson


class ExpertsColumnsJson(AnswerJson, kw_only=True):
    """load: layers × steps × experts."""

    step: ColumnRefJson
    load: ColumnRefJson


class ExpertsHeaderJson(AnswerJson, kw_only=True):
    """The load of each expert of each layer."""

    layers: list[str]
    experts: int
    steps: int
    columns: ExpertsColumnsJson
