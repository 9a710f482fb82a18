"""The one `Settings`: every option there is, what it accepts, and where its value comes from.

In:   the arguments of `init`, the environment (`BAROGRAPH_<OPTION>`), a YAML file.
Out:  a checked `Settings`, or a `ConfigError` whose one sentence says what to change.

An argument wins over the environment, the environment over the file. docs/reference/options.md holds
`options_table()`; a test compares the two and freezes the list of names.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from barograph.core.accepts import MOST, Accepts, UnfitError, from_text, from_value
from barograph.core.lazy import lazy
from barograph.core.text import quoted

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")

PREFIX = "BAROGRAPH_"
FILE_VARIABLE = "BAROGRAPH_CONFIG"  # names the YAML file
PROGRAM_VARIABLE = "BAROGRAPH_PROGRAM"  # set by `barograph run`: a file, to which the program's own run adds a line
PASSWORD_VARIABLE = "BAROGRAPH_CLICKHOUSE_PASSWORD"  # never in a file, a manifest or an argument
TOKEN_VARIABLE = "BAROGRAPH_TOKEN"  # of the page's server; neither in a file nor in an argument
NOTEBOOK_VARIABLE = "BAROGRAPH_NOTEBOOK"  # how runs are shown in a notebook
_FOR_TESTS = ("BAROGRAPH_REALLOGS", "BAROGRAPH_CI")
NO_OPTIONS = (
    FILE_VARIABLE, PROGRAM_VARIABLE, PASSWORD_VARIABLE, TOKEN_VARIABLE, NOTEBOOK_VARIABLE, *_FOR_TESTS
)  # fmt: skip

BACKENDS = ("wandb", "aim", "tensorboard", "mlflow", "trackio", "otel")
FORMULAS = ("palm", "palm_non_embedding", "megatron", "kempner", "causal")
RENAMED_FORMULAS = (("nanogpt", "palm_non_embedding"), ("surogate", "causal"))
CONSOLES = ("plain", "surogate", "modded-nanogpt", "picollm", "kempnerforge", "none")


class ConfigError(ValueError):
    """An option that does not exist, or a value that it does not accept."""


TEXT, FILLED_TEXT = Accepts("text"), Accepts("text", low=1)
PATH, FILLED_PATH = Accepts("path"), Accepts("path", low=1)
FLAG, COUNT = Accepts("flag"), Accepts("whole", 1, MOST)
SECONDS = Accepts("number", 0.001, 3600)


def _option(default: Any, accepts: Accepts, about: str) -> Any:
    metadata = {"accepts": accepts, "about": about}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Every option. `load` is the door that checks values; `None` means not given."""

    # the run
    project: str = _option("default", FILLED_TEXT, "project that groups the run")
    name: str = _option("", TEXT, "name of the run; made from the time and the configuration if empty")
    id: str = _option("", TEXT, "identity of the run, and its folder's name; made from the name if empty")
    tags: tuple[str, ...] = _option((), Accepts("list"), "words to find the run by")
    notes: str = _option("", TEXT, "what the run is about, in your words")
    group: str = _option("", TEXT, "runs that belong together, such as the seeds of one setting")
    job_type: str = _option("", TEXT, "what the run does, such as train, eval or preprocess")
    # where it is kept
    dir: str = _option("runs", FILLED_PATH, "folder that holds every project")
    output_dir: str = _option("", PATH, "the run's own folder, instead of one under {dir}/{project}")
    log_file: str = _option("", PATH, "the JSON log, instead of {output_dir}/training.json")
    # going on with an earlier run
    resume: bool | str = _option(
        False,
        Accepts("resume"),
        "continue `id`, else the newest run: true or must fail without one, auto starts one; or a run",
    )
    resume_step: int | None = _option(
        None, Accepts("whole", 0, MOST), "first step that a resumed run logs again, superseding what it had"
    )
    # beside the training
    sidecar: bool = _option(True, FLAG, "a process beside the training that seals, diagnoses, alerts and mirrors")
    # the console
    console: str = _option("plain", Accepts("choice", words=CONSOLES), "style of the console's lines")
    verbosity: int = _option(
        0, Accepts("whole", -2, 1), "-2 silent, -1 evaluations only, 0 normal, 1 with devices and files"
    )
    total_steps: int | None = _option(None, COUNT, "planned steps of the run, for progress and eta")
    total_tokens: int | None = _option(None, COUNT, "planned tokens of the run, for progress and eta")
    # how it behaves
    strict: bool = _option(False, FLAG, "raise mistakes in log calls instead of warning once")
    git: bool = _option(True, FLAG, "record the commit and the changes that are not committed")
    # the doctor
    doctor: bool = _option(True, FLAG, "run the doctor's rules while the run trains")
    thresholds: dict[str, float] = _option(  # noqa: RUF009
        {},
        Accepts("thresholds", -1e300, 1e300),
        "thresholds of rules, by rule.threshold or the stability guide's names",
    )
    silence: tuple[str, ...] = _option((), Accepts("list"), "rules that are switched off")
    blackbox: bool = _option(True, FLAG, "keep the last steps in full, and write them out when something goes wrong")
    blackbox_steps: int = _option(64, Accepts("whole", 1, 100_000), "steps that the black box keeps")
    stop_on: str = _option(
        "none", Accepts("choice", words=("critical", "warning", "none")), "findings that ask the loop to stop"
    )
    # alerts
    alerts: tuple[Any, ...] = _option((), Accepts("entries"), "thresholds of your own over any metric")
    notify: tuple[Any, ...] = _option((), Accepts("entries"), "addresses that alerts and findings are sent to")
    alert_findings: str = _option(
        "warning",
        Accepts("choice", words=("info", "warning", "critical", "none")),
        "lowest severity of findings that are sent",
    )
    alert_cooldown: float = _option(600.0, Accepts("number", 0, 1e7), "seconds before the same cause is reported again")
    alert_digest: float = _option(
        60.0, Accepts("number", 0, 1e7), "seconds in which alerts are collected into one message"
    )
    alert_recovery: bool = _option(True, FLAG, "also report the end of what was reported")
    # speed, machine, ranks
    flops_formula: str = _option(
        "causal",
        Accepts("choice", words=FORMULAS, renamed=RENAMED_FORMULAS),
        "what counts as a token's FLOPs; see docs/reference/throughput.md",
    )
    peak_tflops: float | None = _option(
        None, Accepts("number", 0.001, 1e6), "peak TFLOP/s of one device, where the table does not know it"
    )
    machine: bool = _option(True, FLAG, "record the devices and the machine")
    machine_seconds: float = _option(10.0, SECONDS, "seconds between two records of the machine")
    watchdog: bool = _option(True, FLAG, "write every thread's stack when no step comes")
    watchdog_seconds: float | None = _option(
        None,
        Accepts("number", 0.1, 1e6),
        "seconds without a step until a stall is reported; ten median steps, at least 120, if not given",
    )
    ranks: bool = _option(True, FLAG, "compare the ranks of torch.distributed at each timed step")
    price_per_gpu_hour: float | None = _option(
        None, Accepts("number", 0, 1e6), "price of one GPU for an hour, in any currency, for the run's cost"
    )
    prices: dict[str, float] = _option(  # noqa: RUF009
        {}, Accepts("prices", 0, 1e6), "price of an hour by device name, and of a kilowatt-hour as kwh"
    )
    # for others to read
    metrics_port: int | None = _option(
        None, Accepts("whole", 0, 65535), "port of this machine at which the run's metrics are given to Prometheus"
    )
    # mirrors [the Surogate metrics guide]
    report_to: tuple[str, ...] = _option(
        (), Accepts("list", words=(*BACKENDS, "none")), "other trackers that get a copy of the run"
    )
    wandb_project: str = _option("", TEXT, "W&B project; the run's project if empty")
    wandb_name: str = _option("", TEXT, "W&B name of the run; the run's name if empty")
    aim_experiment: str = _option("", TEXT, "Aim experiment; the run's project if empty")
    aim_repo: str = _option("", PATH, "Aim repository: a folder or an address")
    aim_name: str = _option("", TEXT, "Aim name of the run; the run's name if empty")
    aim_run_id: str = _option("", TEXT, "Aim identity of the run to continue")
    mlflow_tracking_uri: str = _option("", TEXT, "MLflow's folder, database or server; MLflow's own setting if empty")
    mlflow_experiment: str = _option("", TEXT, "MLflow experiment; the run's project if empty")
    mlflow_name: str = _option("", TEXT, "MLflow name of the run; the run's name if empty")
    mlflow_run_id: str = _option("", TEXT, "MLflow identity of the run to continue")
    trackio_project: str = _option("", TEXT, "Trackio project; the run's project if empty")
    trackio_name: str = _option("", TEXT, "Trackio name of the run; the run's name if empty")
    trackio_space: str = _option("", TEXT, "Hugging Face Space that the rows are for; `trackio sync` sends them there")
    trackio_run_id: str = _option("", TEXT, "Trackio identity of the run to continue")
    otel_endpoint: str = _option(
        "", TEXT, "address of an OTLP collector, over HTTP; OpenTelemetry's own variables, else localhost, if empty"
    )
    # names
    aliases: dict[str, Any] = _option(  # noqa: RUF009
        {}, Accepts("aliases"), "your names for metrics, in imported logs and in mirrors"
    )
    # the step tracker [KempnerForge metrics]
    log_interval: int = _option(10, COUNT, "steps between two logged steps of MetricsTracker")
    enable_wandb: bool = _option(False, FLAG, "the same as wandb in report_to")
    enable_tensorboard: bool = _option(False, FLAG, "the same as tensorboard in report_to")
    wandb_run_name: str = _option("", TEXT, "another name for wandb_name")
    wandb_run_id: str = _option("", TEXT, "W&B identity of the run to continue")
    tensorboard_dir: str = _option("tb_logs", FILLED_PATH, "folder of the TensorBoard files")
    tensorboard_layout: str = _option(
        "plain",
        Accepts("choice", words=("plain", "grouped")),
        "tags of TensorBoard: as they are, or in folders such as `Loss/train`",
    )
    # the store
    wide_threshold: int = _option(100, COUNT, "a log call with more names than this goes to the columnar store only")
    store: str = _option("", TEXT, "ClickHouse server that gets the run too: clickhouse://user@host:8123/database")
    media_mb: int = _option(4096, Accepts("whole", 0, 1 << 30), "MiB that images, sound and tables of the run may take")
    sync_seconds: float = _option(5.0, SECONDS, "seconds between two fsyncs: what a power cut can cost")

    @property
    def needs_sidecar(self) -> bool:
        """Whether the run asks for what only a sidecar does, such as alerts and copies."""
        asked = self.backends or self.store or self.notify or self.alerts or self.metrics_port is not None
        return bool(asked) or self.stop_on != "none"

    @property
    def backends(self) -> tuple[str, ...]:
        """The mirrors asked for, by Surogate's `report_to` or by KempnerForge's flags, each once."""
        flags = (("wandb", self.enable_wandb), ("tensorboard", self.enable_tensorboard))
        return tuple(dict.fromkeys(self.report_to + tuple(name for name, on in flags if on)))


ACCEPTS: dict[str, Accepts] = {item.name: item.metadata["accepts"] for item in dataclasses.fields(Settings)}

# What the documents' own YAML files hold. In a file that a training shares with us (it has a section
# `barograph:`) these are read where the documents put them, and all else belongs to the training.
SUROGATE_OPTIONS = (
    "report_to", "wandb_project", "wandb_name", "aim_experiment", "aim_repo", "aim_name", "log_file", "output_dir",
)  # fmt: skip
KEMPNERFORGE_OPTIONS = (
    "log_interval", "enable_wandb", "enable_tensorboard", "wandb_project", "wandb_run_name", "wandb_run_id",
    "tensorboard_dir",
)  # fmt: skip


def load(
    arguments: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> Settings:
    """Settings from the arguments over the environment over a YAML file.

    An argument that is None and an environment variable that is empty count as not given. The file
    is `file`, else the argument `config_file`, else what BAROGRAPH_CONFIG names, else there is none.
    Raises ConfigError, whose one sentence names the option, the place and what to write instead.
    """
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    environ = os.environ if environ is None else environ
    argued_file = given.pop("config_file", None)
    values: dict[str, Any] = {}
    path = file or argued_file or environ.get(FILE_VARIABLE)
    if path:
        place = _shown_path(path)
        for name, value in _file_values(path, place):
            values[name] = _checked(name, value, place)
    for variable, text in environ.items():
        if variable.startswith(PREFIX) and variable not in NO_OPTIONS:
            name = _variable_option(variable)
            if text:
                values[name] = _checked(name, text, f"the environment variable {variable}", parse=True)
    for name, value in given.items():
        known = _known(name, tuple(ACCEPTS), "the arguments")
        values[known] = _checked(known, value, "the arguments")
    return Settings(**values)


def options_table() -> str:
    """Every option as a Markdown table, as it is in docs/reference/options.md."""
    lines = ["| option | default | accepts | what it is |", "|---|---|---|---|"]
    for item in dataclasses.fields(Settings):
        accepts, about = item.metadata["accepts"], item.metadata["about"]
        lines.append(f"| `{item.name}` | {_shown_default(getattr(Settings(), item.name))} | {accepts} | {about} |")
    return "\n".join(lines) + "\n"


def _shown_default(value: Any) -> str:
    if value is None or value in ("", (), {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


# ---------------------------------------------------------------------------------------------
# Names


_GONE = {
    "flush_seconds": "rows are written when the call returns",
    "queue_megabytes": "no data waits in memory",
    "seal_points": "some 8 MB are sealed at a time",
}
"""Options that there were, and why nobody needs them."""


def _known(name: Any, names: tuple[str, ...], place: str) -> str:
    if isinstance(name, str) and name in names:
        return name
    written = name if isinstance(name, str) else str(name)
    if (reason := _GONE.get(written.removeprefix(PREFIX).lower())) is not None:
        raise ConfigError(f"The option {quoted(name)} (in {place}) is gone, as {reason}; leave it out.")
    nearest = difflib.get_close_matches(written[:100], names, n=1, cutoff=0.7)
    listed = ", ".join(names) if len(names) <= 20 else "those in docs/reference/options.md"
    hint = f"the nearest one is {nearest[0]!r}" if nearest else f"there are {listed}"
    raise ConfigError(f"There is no option {quoted(name)} (in {place}); {hint}.")


def _variable_option(variable: str) -> str:
    variables = {PREFIX + name.upper(): name for name in ACCEPTS}
    return variables[_known(variable, (*variables, FILE_VARIABLE), "the environment")]


def _shown_path(path: Any) -> str:
    try:
        return ascii(os.fsdecode(path))[1:-1]
    except TypeError:
        raise ConfigError(f"config_file is {quoted(path)}, but it accepts a path.") from None


# ---------------------------------------------------------------------------------------------
# The file


def _file_values(path: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The options in a YAML file, flat ones first, so that a section wins over them."""
    content = _read_yaml(os.path.expanduser(path), place)
    ours = _section(content, "barograph", place)
    metrics = content.get("metrics")
    names = (*ACCEPTS, "metrics", "barograph")
    if ours is None and not _is_a_trainings(content, names):
        flat = {_known(name, names, place): value for name, value in content.items()}
        nested = _section(content, "metrics", place) or {}
    else:
        flat = {name: content[name] for name in SUROGATE_OPTIONS if name in content}
        held = metrics if isinstance(metrics, dict) else {}
        nested = {name: held[name] for name in KEMPNERFORGE_OPTIONS if name in held}
        ours = {**(ours or {}), **(_section(ours or {}, "metrics", place) or {})}
    for section in (flat, nested, ours or {}):
        for name, value in section.items():
            if name not in ("metrics", "barograph") and value is not None:
                yield _known(name, tuple(ACCEPTS), place), value


def _is_a_trainings(content: dict[Any, Any], names: tuple[str, ...]) -> bool:
    """Whether a file without a section of ours is the training's own: it has names of which none is like an option's,
    so that none of them can be a mistyped one."""
    others = [name[:100] for name in content if isinstance(name, str) and name not in names]
    return bool(others) and not any(difflib.get_close_matches(name, names, n=1, cutoff=0.75) for name in others)


def _section(content: dict[Any, Any], name: str, place: str) -> dict[Any, Any] | None:
    if name not in content:
        return None
    section = content[name]
    if section is not None and not isinstance(section, dict):
        raise ConfigError(f"{name} is {quoted(section)} in {place}, but it accepts a section of options.")
    return section or {}


def _read_yaml(path: str, place: str) -> dict[Any, Any]:
    try:
        with open(path, "rb") as stream:
            raw = stream.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"The configuration file {place} cannot be read: {reason}.") from None
    try:
        import yaml  # only here: most runs have no file, and importing it takes milliseconds
    except ImportError:
        raise ConfigError(f"Reading {place} needs PyYAML: run pip install pyyaml.") from None
    try:
        content = yaml.safe_load(raw)
    except Exception as error:  # besides YAMLError: impossible dates, endless nesting, foreign keys
        raise ConfigError(f"{place} is not valid YAML: {_yaml_reason(error)}.") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{place} holds {quoted(content)}, but it has to hold lines of option: value.")
    return content


def _yaml_reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or error
    return where + " ".join(str(reason).split())[:200].rstrip(".")


def _checked(name: str, value: Any, place: str, parse: bool = False) -> Any:
    """The value as the option holds it; `parse` says that it is an environment variable's text."""
    accepts = ACCEPTS[name]
    try:
        return from_text(accepts, value) if parse else from_value(accepts, value)
    except UnfitError:
        raise ConfigError(f"{name} is {quoted(value)} in {place}, but it accepts {accepts}.") from None
