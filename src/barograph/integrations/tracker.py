"""MetricsTracker: KempnerForge's way into a run.

In:   `start_step()` and `end_step(step, loss, grad_norm, lr, tokens_in_step)` around each training step.
Out:  every step in a Run, raw and smoothed apart; each `log_interval`-th also on the console, to the backends
      and as the `StepMetrics` that `end_step` returns.

The timing is the run's own clock: `run.phase` and `run.wrap` work between the two calls.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from barograph.core import manifest, options, place, providers
from barograph.core.record import Record
from barograph.core.secrets import masked
from barograph.core.values import number
from barograph.integrations.shared import open_run
from barograph.probes.memory import usage
from barograph.training.configuration import as_mapping
from barograph.training.console.styles import EVALUATION_FIELDS
from barograph.training.run import Run
from barograph.training.start import init

SMOOTHING = 0.1  # weight of the newest value (KempnerForge metrics)
_SMOOTHED = ("loss", "tokens_per_sec", "mfu", "step_time_sec")


@dataclass
class MetricsConfig:
    """KempnerForge's section `metrics` of a job's configuration."""

    log_interval: int = 10
    enable_wandb: bool = False
    enable_tensorboard: bool = False
    wandb_project: str = "kempnerforge"
    wandb_run_name: str | None = None
    wandb_run_id: str = ""
    tensorboard_dir: str = "tb_logs"

    def __post_init__(self) -> None:
        if isinstance(self.log_interval, bool) or not isinstance(self.log_interval, int) or self.log_interval < 1:
            raise ValueError(f"log_interval is {self.log_interval!r}; give a whole number of steps from 1")


@dataclass
class StepMetrics:
    """One training step. `grad_norm` after clipping; `mfu` a fraction; `_gb` in GiB, as KempnerForge has it.

    What can't be known is NaN: speeds of a step that was not begun, `mfu` without a known model and device.
    Memory is the accelerator's, 0 where there is none.
    """

    loss: float = 0.0
    grad_norm: float = 0.0
    lr: float = 0.0
    tokens_per_sec: float = 0.0
    mfu: float = 0.0
    step_time_sec: float = 0.0
    allocated_gb: float = 0.0
    peak_gb: float = 0.0
    reserved_gb: float = 0.0
    total_gb: float = 0.0
    mem_utilization: float = 0.0


class SeededMean:
    """KempnerForge's exponential average, seeded with the first finite value; NaN and infinity do not enter it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = math.nan

    def add(self, value: float) -> float:
        """Take in a value; the average."""
        if math.isfinite(value):
            self.value = value if self.value != self.value else self.value + SMOOTHING * (value - self.value)
        return self.value


class MetricsTracker:
    """Times steps and hands their metrics to a run and to backends.

    config: the job's configuration: `metrics` (a `MetricsConfig`, or a mapping) and what describes the model
        (`model`, `train.seq_len`); a `MetricsConfig` alone will do, without MFU.
    num_gpus: devices that share the work. gpu_peak_tflops: peak of one, looked up by its name if None.
    run: the run to feed; by default the one that is open in this process, else a new one.
    """

    def __init__(
        self, config: Any = None, num_gpus: int = 1, gpu_peak_tflops: float | None = None, *, run: Run | None = None
    ):
        if isinstance(num_gpus, bool) or not isinstance(num_gpus, int) or num_gpus < 1:
            raise ValueError(f"num_gpus is {num_gpus!r}; give the number of devices, from 1")
        self._metrics = metrics_config(config)
        run = run or open_run()
        self._own = run is None
        self.run: Run = run or self._begin(config)
        self._steps = self.run._steps
        self._clock = self._steps.clock
        self._interval = self._metrics.log_interval
        self._smoothed = {name: SeededMean() for name in _SMOOTHED}
        self._wandb_run = ""
        self._norm = math.nan  # of the step before
        self._backends: list[Any] = []
        if isinstance(config, MetricsConfig) or config is None:
            return
        self.run.model.speed_of_light(config, devices=num_gpus, peak_tflops=gpu_peak_tflops, show=False)

    def _begin(self, config: Any) -> Run:
        return init(
            project=self._metrics.wandb_project,
            name=self._metrics.wandb_run_name or None,
            config=_job(config),
            console="kempnerforge",
            wandb_run_id=self._metrics.wandb_run_id or "",
        )

    def init_backends(self, config: Any) -> None:
        """Open the backends that the configuration asks for (after the process group is up): rank 0 only.

        Each writes from a thread of its own; one that is missing or fails costs one warning and no step.
        """
        metrics = metrics_config(config)
        self.close_backends()
        if place.rank()[0] != 0:
            return
        mirrored = self.run.about.settings.backends  # what the run mirrors by itself is not sent twice
        about = masked(dict(self.run.config) | _job(config))
        if metrics.enable_wandb and "wandb" not in mirrored:
            self._backends.append(providers.provider("metrics in W&B")(metrics, run_config=about))
        if metrics.enable_tensorboard and "tensorboard" not in mirrored:
            self._backends.append(providers.provider("metrics in TensorBoard")(metrics, run_config=about))

    def start_step(self) -> None:
        """A step begins."""
        self._clock.begin()

    def end_step(
        self, step: int, loss: float, grad_norm: float, lr: float, tokens_in_step: int, **extra: Any
    ) -> StepMetrics | None:
        """The step ends; its metrics if it is one to log (each `log_interval`-th, and step 1), else None.

        tokens_in_step: of all devices; below 1 the speeds are NaN. extra: more fields for the step's record.
        """
        try:
            return self._end_step(step, loss, grad_norm, lr, tokens_in_step, extra)
        except Exception as error:
            self.run._out.failed("step of the tracker", error)
            return None

    def _end_step(
        self, step: int, loss: Any, grad_norm: Any, lr: Any, tokens: Any, extra: dict[str, Any]
    ) -> StepMetrics | None:
        tokens = number(tokens)
        if not tokens > 0:
            self.run._out.warn(f"a step of {tokens} tokens has no speed; give the step's tokens over all devices")
        timed = self._clock.end(tokens)
        due = step % self._interval == 0 or step == 1
        loss, grad_norm, lr = number(loss), number(grad_norm), number(lr)
        smoothed = self._smoothed
        averages = {
            "loss": smoothed["loss"].add(loss),
            "tokens_per_sec": smoothed["tokens_per_sec"].add(timed.tokens_per_second),
            "mfu": smoothed["mfu"].add(timed.mfu),
            "step_time_sec": smoothed["step_time_sec"].add(timed.seconds),
        }
        spoilt = not math.isfinite(loss) or (not math.isfinite(grad_norm) and math.isfinite(self._norm))
        self._norm = grad_norm
        shown = due or spoilt  # a step gone wrong is news; a norm that is never given is none
        memory = self._memory(step) if shown else {}
        values = {"norm": grad_norm, "loss": loss, "lr": lr} | extra
        if memory:
            values |= {"peak_gb": memory["peak_gb"], "total_gb": memory["total_gb"]}
        self._steps.log_timed_step(step, timed, tokens, values, draw=shown)
        self._clock.record(step, timed, tokens, smoothed={k: v for k, v in averages.items() if v == v})
        self._steps.compare_ranks(step, timed, values)
        if not shown:
            return None
        metrics = StepMetrics(loss, grad_norm, lr, timed.tokens_per_second, timed.mfu, timed.seconds, **memory)
        if self._backends:
            self._send(backend_metrics(metrics, averages), step)
        return metrics if due else None

    def _memory(self, step: int) -> dict[str, float]:
        """KempnerForge's five figures of the accelerator, also recorded; {} on a CPU."""
        figures = usage.record(self.run._out, step)
        return {} if figures is None else {name: getattr(figures, name) for name in _MEMORY}

    def log_eval(self, metrics: Mapping[str, Any], step: int) -> None:
        """Metrics of an evaluation, to the run, the console and all backends, by the names they have.

        Those below `eval/`, or called `loss` or `val_loss`, are the evaluation's record.
        """
        try:
            evaluation, other, line = {}, {}, {}
            for name, value in metrics.items():
                short = "loss" if name in ("loss", "val_loss") else str(name).removeprefix("eval/")
                if short != name or short == "loss":
                    evaluation[short] = number(value)
                else:
                    other[name] = value
                line[short if short in EVALUATION_FIELDS else name] = number(value)
            if evaluation:
                self.run._out.record("eval", step, evaluation, draw=False)
            if other:
                self.run.log(other, step)
            if evaluation or self._own:
                self.run._out.console.draw(Record("eval", 0, self.run._out.step_of(step), line))
            self._send(dict(metrics), step)
        except Exception as error:
            self.run._out.failed("evaluation of the tracker", error)

    def _send(self, metrics: Mapping[str, Any], step: int) -> None:
        for backend in self._backends:
            backend.log(metrics, step)
        self._keep_identity()

    def _keep_identity(self) -> None:
        """The W&B run's identity, once it is known, in the manifest: who resumes with it goes on with this run."""
        kept = self.run.about.settings.wandb_run_id or self._wandb_run
        for backend in self._backends:
            if backend.package == "wandb" and backend.run_id and backend.run_id != kept:
                self._wandb_run = backend.run_id
                with contextlib.suppress(OSError):
                    manifest.update(self.run.dir, wandb_run_id=backend.run_id)

    def close_backends(self) -> None:
        """Flush and close the backends; the tracker goes on."""
        for backend in self._backends:
            backend.close()
        self._keep_identity()
        self._backends = []

    def close(self) -> None:
        """Flush and close all backends, and the run if the tracker began it."""
        self.close_backends()
        if self._own:
            self.run.finish()


_MEMORY = ("allocated_gb", "peak_gb", "reserved_gb", "total_gb", "mem_utilization")


def backend_metrics(metrics: StepMetrics, averages: Mapping[str, float]) -> dict[str, float]:
    """A step by the keys that KempnerForge's backends have: `train/…`, `smoothed/…`, `gpu/…`."""
    step = asdict(metrics)
    named = {f"gpu/{name}" if name in _MEMORY else f"train/{name}": value for name, value in step.items()}
    return named | {f"smoothed/{name}": value for name, value in averages.items()}


def _job(config: Any) -> dict[str, Any]:
    """A job's configuration as a mapping; of a `MetricsConfig` alone nothing."""
    return {} if isinstance(config, MetricsConfig) else as_mapping(config)


def metrics_config(config: Any) -> MetricsConfig:
    """The `MetricsConfig` in a job's configuration: itself, its section `metrics`, or the defaults.

    Raises ConfigError for an option that does not exist.
    """
    if isinstance(config, MetricsConfig):
        return config
    section = config.get("metrics") if isinstance(config, Mapping) else getattr(config, "metrics", None)
    if isinstance(section, MetricsConfig):
        return section
    if section is None:
        return MetricsConfig()
    names = MetricsConfig.__dataclass_fields__
    if isinstance(section, Mapping):
        options.load({name: value for name, value in section.items() if value not in (None, "")}, {})
        return MetricsConfig(**{name: value for name, value in section.items() if name in names})
    if all(hasattr(section, name) for name in names):
        return section  # type: ignore[no-any-return]  # KempnerForge's own class, or one like it
    return MetricsConfig(**{name: getattr(section, name) for name in names if hasattr(section, name)})
