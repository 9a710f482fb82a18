"""The options of `init` as types, for editors and type checkers.

In:   nothing; written by tests/option_types.py from `Settings`, and never by hand.
Out:  `Options`, every option but project, name and dir, which `init` has as arguments of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Path = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Every option of `init`, by name. None counts as not given."""

    id: str | None
    """identity of the run, and its folder's name; made from the name if empty"""
    tags: str | Sequence[str] | None
    """words to find the run by"""
    notes: str | None
    """what the run is about, in your words"""
    group: str | None
    """runs that belong together, such as the seeds of one setting"""
    job_type: str | None
    """what the run does, such as train, eval or preprocess"""
    output_dir: Path | None
    """the run's own folder, instead of one under {dir}/{project}"""
    log_file: Path | None
    """the JSON log, instead of {output_dir}/training.json"""
    resume: bool | str | None
    """continue `id`, else the newest run: true or must fail without one, auto starts one; or a run"""
    resume_step: int | None
    """first step that a resumed run logs again, superseding what it had"""
    sidecar: bool | None
    """a process beside the training that seals, diagnoses, alerts and mirrors"""
    console: Literal["plain", "surogate", "modded-nanogpt", "picollm", "kempnerforge", "none"] | None
    """style of the console's lines"""
    verbosity: int | None
    """-2 silent, -1 evaluations only, 0 normal, 1 with devices and files"""
    total_steps: int | None
    """planned steps of the run, for progress and eta"""
    total_tokens: int | None
    """planned tokens of the run, for progress and eta"""
    strict: bool | None
    """raise mistakes in log calls instead of warning once"""
    git: bool | None
    """record the commit and the changes that are not committed"""
    doctor: bool | None
    """run the doctor's rules while the run trains"""
    thresholds: Mapping[str, float] | None
    """thresholds of rules, by rule.threshold or the stability guide's names"""
    silence: str | Sequence[str] | None
    """rules that are switched off"""
    blackbox: bool | None
    """keep the last steps in full, and write them out when something goes wrong"""
    blackbox_steps: int | None
    """steps that the black box keeps"""
    stop_on: Literal["critical", "warning", "none"] | None
    """findings that ask the loop to stop"""
    alerts: str | Mapping[str, Any] | Sequence[Any] | None
    """thresholds of your own over any metric"""
    notify: str | Mapping[str, Any] | Sequence[Any] | None
    """addresses that alerts and findings are sent to"""
    alert_findings: Literal["info", "warning", "critical", "none"] | None
    """lowest severity of findings that are sent"""
    alert_cooldown: float | None
    """seconds before the same cause is reported again"""
    alert_digest: float | None
    """seconds in which alerts are collected into one message"""
    alert_recovery: bool | None
    """also report the end of what was reported"""
    flops_formula: Literal["palm", "palm_non_embedding", "megatron", "kempner", "causal"] | None
    """what counts as a token's FLOPs; see docs/reference/throughput.md"""
    peak_tflops: float | None
    """peak TFLOP/s of one device, where the table does not know it"""
    machine: bool | None
    """record the devices and the machine"""
    machine_seconds: float | None
    """seconds between two records of the machine"""
    watchdog: bool | None
    """write every thread's stack when no step comes"""
    watchdog_seconds: float | None
    """seconds without a step until a stall is reported; ten median steps, at least 120, if not given"""
    ranks: bool | None
    """compare the ranks of torch.distributed at each timed step"""
    price_per_gpu_hour: float | None
    """price of one GPU for an hour, in any currency, for the run's cost"""
    prices: Mapping[str, float] | None
    """price of an hour by device name, and of a kilowatt-hour as kwh"""
    metrics_port: int | None
    """port of this machine at which the run's metrics are given to Prometheus"""
    report_to: str | Sequence[str] | None
    """other trackers that get a copy of the run"""
    wandb_project: str | None
    """W&B project; the run's project if empty"""
    wandb_name: str | None
    """W&B name of the run; the run's name if empty"""
    aim_experiment: str | None
    """Aim experiment; the run's project if empty"""
    aim_repo: Path | None
    """Aim repository: a folder or an address"""
    aim_name: str | None
    """Aim name of the run; the run's name if empty"""
    aim_run_id: str | None
    """Aim identity of the run to continue"""
    mlflow_tracking_uri: str | None
    """MLflow's folder, database or server; MLflow's own setting if empty"""
    mlflow_experiment: str | None
    """MLflow experiment; the run's project if empty"""
    mlflow_name: str | None
    """MLflow name of the run; the run's name if empty"""
    mlflow_run_id: str | None
    """MLflow identity of the run to continue"""
    trackio_project: str | None
    """Trackio project; the run's project if empty"""
    trackio_name: str | None
    """Trackio name of the run; the run's name if empty"""
    trackio_space: str | None
    """Hugging Face Space that the rows are for; `trackio sync` sends them there"""
    trackio_run_id: str | None
    """Trackio identity of the run to continue"""
    otel_endpoint: str | None
    """address of an OTLP collector, over HTTP; OpenTelemetry's own variables, else localhost, if empty"""
    aliases: Mapping[str, Any] | None
    """your names for metrics, in imported logs and in mirrors"""
    log_interval: int | None
    """steps between two logged steps of MetricsTracker"""
    enable_wandb: bool | None
    """the same as wandb in report_to"""
    enable_tensorboard: bool | None
    """the same as tensorboard in report_to"""
    wandb_run_name: str | None
    """another name for wandb_name"""
    wandb_run_id: str | None
    """W&B identity of the run to continue"""
    tensorboard_dir: Path | None
    """folder of the TensorBoard files"""
    tensorboard_layout: Literal["plain", "grouped"] | None
    """tags of TensorBoard: as they are, or in folders such as `Loss/train`"""
    wide_threshold: int | None
    """a log call with more names than this goes to the columnar store only"""
    store: str | None
    """ClickHouse server that gets the run too: clickhouse://user@host:8123/database"""
    media_mb: int | None
    """MiB that images, sound and tables of the run may take"""
    sync_seconds: float | None
    """seconds between two fsyncs: what a power cut can cost"""
