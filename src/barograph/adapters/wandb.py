"""Weights & Biases: a run's numbers as rows of a W&B run.

In:   records from a `LoggingBackend`'s queue; names and identity from a configuration.
Out:  a W&B run, started by the first record; offline where `WANDB_MODE` says so.

W&B numbers its rows by `_step` and drops a row that goes back. So each row holds the training's step
under `step` too, charts are drawn over that, and `_step` follows it as long as it only goes up: an
evaluation logged late, or a rewind, takes the next free row and nothing is dropped.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from barograph.adapters.backend import LoggingBackend
from barograph.values import flatten, text

_logger = logging.getLogger("barograph")

STEP = "step"  # the column that charts are drawn over


class WandBBackend(LoggingBackend):
    """Sends to W&B; the run is started by the first `log`, on rank 0.

    config: anything with `wandb_project`, `wandb_run_name` (or `wandb_name`) and `wandb_run_id`. An id
    continues that run; where there is none, the new run's id is written into `config.wandb_run_id` once
    it is known, so that a checkpoint can keep it.
    run_config: the training's configuration, shown with the run.
    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    name, package, install = "W&B", "wandb", "pip install wandb"

    def __init__(
        self,
        config: Any,
        *,
        run_config: Mapping[str, Any] | None = None,
        log_file: str | os.PathLike[str] = "",
    ):
        super().__init__(log_file=log_file)
        self._config, self._run_config = config, run_config
        self.run_id = ""  # W&B's identity of the run, once it is started
        self.run: Any = None  # W&B's own run, once it is started
        self._row, self._row_step, self._row_names = -1, -1, set[str]()

    def _open(self) -> None:
        is_ours = "wandb" not in sys.modules  # else the training uses it too, and how it speaks is theirs
        import wandb

        if not hasattr(wandb, "init"):  # `import` takes the folder ./wandb that earlier runs have left
            raise ImportError("there is only a folder of that name", name="wandb")
        quiet = {"console": "off", "quiet": True, "show_info": False, "silent": False}
        if is_ours:
            wandb.setup(settings=_settings(wandb, **quiet))
        if not _is_signed_in(wandb):  # asked here, or `init` would ask whoever sits at the terminal
            raise RuntimeError("there is no API key. Run wandb login, or set WANDB_MODE=offline")
        settings = _settings(
            wandb,
            **quiet,
            finish_timeout=max(self.close_seconds - 5, 1),  # what `finish` waits for uploads
            x_transaction_log_flush_interval=1.0,  # a kill costs the run's file that much; W&B has 15 s
        )
        self.run = wandb.init(
            project=_word(self._config, "wandb_project", "project") or None,
            name=_word(self._config, "wandb_run_name", "wandb_name", "name") or None,
            id=_word(self._config, "wandb_run_id") or None,  # read now: a checkpoint may have restored it
            resume="allow",
            config=flatten(self._run_config, self._odd) if self._run_config else None,
            settings=settings,
            **_beside_others(wandb),
        )
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP)
        self._row = int(getattr(self.run, "step", 0) or 0) - 1  # a resumed run goes on behind its last row
        self.run_id = self.run.id
        with contextlib.suppress(Exception):  # a frozen configuration
            self._config.wandb_run_id = self.run.id
        if not getattr(self.run, "offline", False) and self.run.url:
            _logger.info("barograph: the W&B run is at %s", self.run.url)

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        if step != self._row_step or not self._row_names.isdisjoint(metrics):
            self._row, self._row_step = max(self._row + 1, step), step
            self._row_names.clear()
        self._row_names.update(metrics)
        row = {STEP: step, "_timestamp": seconds} | metrics
        if "" in row:  # which W&B leaves out
            row["unnamed"] = row.pop("")
        self.run.log(row, step=self._row)

    def _write_config(self, config: dict[str, Any]) -> None:
        self.run.config.update(config, allow_val_change=True)

    def _write_histogram(self, name: str, edges: list[float], counts: list[float], step: int, seconds: float) -> None:
        import wandb

        bins: Any = (counts, edges)  # lists do, though its signature says arrays
        self._write({name: wandb.Histogram(np_histogram=bins)}, step, seconds)

    def _close(self) -> None:
        if self.run is not None:
            self.run.finish(exit_code=0 if getattr(sys, "last_value", None) is None else 1)


def _word(config: Any, *names: str) -> str:
    """The first of these that the configuration has and that is not empty."""
    return next((text(value) for value in (getattr(config, name, None) for name in names) if value), "")


def _settings(wandb: Any, **wanted: Any) -> Any:
    """W&B's settings, without those that the installed version does not have."""
    known = wandb.Settings()
    return wandb.Settings(**{name: value for name, value in wanted.items() if hasattr(known, name)})


def _is_signed_in(wandb: Any) -> bool:
    if wandb.setup().settings.mode in ("offline", "disabled", "dryrun"):
        return True
    try:
        return bool(wandb.login(prompt=False))
    except TypeError:  # versions whose login always asks
        return bool(wandb.api.api_key)


def _beside_others(wandb: Any) -> dict[str, Any]:
    """A run of our own beside one that the training has open; W&B would else hand out or end that one."""
    fields = getattr(wandb.Settings, "model_fields", {})
    if "reinit" in fields and "create_new" in str(fields["reinit"].annotation):
        return {"reinit": "create_new"}
    if wandb.run is not None:
        raise RuntimeError("this version of wandb keeps one run a process and the training has one: upgrade wandb")
    return {}
