"""TrainingRunLogger: the typed log calls, into one log file.

In:   a training loop's calls, in Surogate's names and argument orders.
Out:  records in the log file before the call returns, on the console, and to the callback.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barograph.core.values import text
from barograph.log.write import JsonLog
from barograph.training.console.console import Console
from barograph.training.emitter import Emitter
from barograph.training.guard import guarded
from barograph.training.typed import TypedCalls


class LogVerbosity(enum.IntEnum):
    """How much the console shows; the file and the callback get everything."""

    SILENT = -2
    QUIET = -1
    DEFAULT = 0
    VERBOSE = 1


class TrainingRunLogger(TypedCalls):
    """Writes a run's records to a JSON array file, draws them, hands them to a callback.

    An existing log is appended to; a torn one is repaired; a file that is not a log is refused with
    `LogFileError`. A log call never raises after that, unless `strict`. A forked child that logs writes a file of
    its own, beside this one.

    path: the log file.
    callback: called with each record as a JSON line; its exceptions are reported once.
    verbosity: what the console shows, see `LogVerbosity`.
    console: the style of the lines: "surogate", "plain", "modded-nanogpt", "picollm" or "kempnerforge".
    total_steps, total_tokens: the run's planned length, for progress and the time that remains.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        callback: Callable[[str], Any] | None = None,
        verbosity: int = LogVerbosity.DEFAULT,
        *,
        console: str = "surogate",
        rank: int = 0,
        total_steps: int | None = None,
        total_tokens: int | None = None,
        strict: bool = False,
    ):
        drawn = Console(
            verbosity=int(verbosity), style=console, rank=rank, total_steps=total_steps, total_tokens=total_tokens
        )
        self._out = Emitter(None, drawn, callback, strict)
        self._out.log = JsonLog(Path(path), self._out.warn)

    @property
    def _log(self) -> JsonLog:
        log: JsonLog = self._out.log
        return log

    @property
    def log_file(self) -> Path:
        """Where the records are."""
        return self._log.path

    @guarded("sample")
    def log_sample(self, step: int, sample: str, prompt: str = "") -> None:
        """Text that the model generated."""
        self._out.emit("sample", step, {"prompt": text(prompt), "text": text(sample)}, checked=True)

    def set_callback(self, callback: Callable[[str], Any] | None) -> None:
        """Replace the callback."""
        self._out.callback = callback

    def set_training_tokens(self, total: int) -> None:
        """The run's length in tokens, for progress and the time that remains."""
        self._out.console.total_tokens = total

    def record(self, kind: str, step: int, fields: dict[str, Any], *, draw: bool = True) -> None:
        """Write a record of any kind in `record.KINDS`; `draw`: show it where the console shows such."""
        self._out.record(kind, step, fields, draw=draw)

    def close(self) -> None:
        """Close the log file; also done when the interpreter exits."""
        self._out.close()

    def __enter__(self) -> TrainingRunLogger:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def __del__(self) -> None:
        out = getattr(self, "_out", None)
        if out is not None and out.log is not None:
            out.log.close()
