"""TrainingRunLogger: typed log calls become records.

In:   a training loop's calls, in S0's names and argument orders.
Out:  records in the log file before the call returns, on the console, and to the callback.
"""

from __future__ import annotations

import enum
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph.record import Record, encode
from barograph.sinks.console import Console
from barograph.values import PLAIN, flatten, number, plain, text, whole
from barograph.writing.jsonlog import JsonLog

_warnings = logging.getLogger("barograph")


class LogVerbosity(enum.IntEnum):
    """How much the console shows; the file and the callback get everything."""

    SILENT = -2
    QUIET = -1
    DEFAULT = 0
    VERBOSE = 1


class TrainingRunLogger:
    """Writes a run's records to a JSON array file, draws them, hands them to a callback.

    An existing log is appended to; a torn one is repaired; a file that is no log is refused with
    `LogFileError`. A log call never raises after that, unless `strict`.

    path: the log file.
    callback: called with each record as a JSON line; its exceptions are reported once.
    verbosity: what the console shows, see `LogVerbosity`.
    console: whose lines: "surogate", "modded-nanogpt", "picollm" or "kempnerforge".
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
        self.strict = strict
        self.rank = rank
        self._callback = callback
        self._phase = ""
        self._sections: list[tuple[str, float]] = []
        self._warned: set[str] = set()
        self._console = Console(
            verbosity=int(verbosity), style=console, rank=rank, total_steps=total_steps, total_tokens=total_tokens
        )
        self._log = self._open_log(Path(path))

    def _open_log(self, path: Path) -> JsonLog:
        return JsonLog(path, self.warn)

    @property
    def log_file(self) -> Path:
        """Where the records are."""
        return self._log.path

    # -- steps and evaluations ------------------------------------------------------------------

    def log_step(
        self,
        step: int,
        epoch: float,
        tokens: int,
        duration_ms: float,
        norm: float,
        loss: float,
        lr: float,
        **extra: Any,
    ) -> None:
        """One optimizer step: `tokens` processed in `duration_ms`, gradient L2 `norm` after clipping.

        `extra` is kept in the record: `moe_aux_loss`, `moe_z_loss`, `moe_load_imbalance` of a
        mixture-of-experts model; `lrm`, `mfu`, `pq`, `rg` for the console's other lines.
        """
        fields: dict[str, Any] = {
            "epoch": epoch,
            "step_tokens": tokens,
            "duration_ms": duration_ms,
            "norm": norm,
            "loss": loss,
            "lr": lr,
        }
        if extra:
            fields.update(extra)
        if self._phase:
            fields["phase"] = self._phase
        self._typed("step", step, fields, 6)

    def log_eval(self, step: int, epoch: float, tokens: int, duration_ms: float, loss: float, **extra: Any) -> None:
        """One evaluation over `tokens` tokens with mean `loss`."""
        fields = {"epoch": epoch, "eval_tokens": tokens, "duration_ms": duration_ms, "loss": loss}
        self._typed("eval", step, fields | extra, 4)

    def log_moe_stats(
        self,
        step: int,
        aux_loss: float,
        z_loss: float,
        utilization: float,
        imbalance: float,
        **extra: float,
    ) -> None:
        """Router health: losses summed over layers, share of experts in use, max / mean load."""
        fields = {
            "aux_loss": aux_loss,
            "z_loss": z_loss,
            "expert_utilization": utilization,
            "load_imbalance": imbalance,
        }
        self._typed("moe", step, fields | extra, 4)

    # -- machine ----------------------------------------------------------------------------------

    def log_gpu_state(self, step: int, gpu_id: int, info: Mapping[str, Any]) -> None:
        """One device's telemetry in S0's fields: clock MHz, power mW, temperature °C, dram_free bytes, …"""
        self._emit("gpu", step, {"id": number(gpu_id)} | _mapping(info))

    def log_gpu_model(self, info: Any) -> None:
        """What the devices are: one mapping, or a list of them, one a device."""
        for item in [info] if isinstance(info, Mapping) or hasattr(info, "__dict__") else info:
            self._emit("gpu-model", 0, _mapping(item))

    def log_sol_estimate(
        self, estimate: Mapping[str, Any] | None = None, world: int | None = None, **fields: Any
    ) -> None:
        """Speed of light: FLOPs a token of `blocks`, `lm_head`, `attention`; `tps`, the tokens a second
        they allow; peaks `tf32_peak`, `bf16_peak`, `fp16_peak`, `fp8_peak` in TFLOP/s."""
        values = dict(estimate or {}) | fields
        if world is not None:
            values["world"] = world
        self._emit("sol", 0, values)

    def log_allocator(self, stats: Any, step: int = 0) -> None:
        """Memory by segment, in bytes: a mapping of name to {device, managed, pinned, pageable}, or a list."""
        if isinstance(stats, Mapping):
            stats = [
                {"name": name} | (_mapping(places) if isinstance(places, Mapping) else {"device": places})
                for name, places in stats.items()
            ]
        rows = []
        for item in stats:
            places = _mapping(item)
            row: dict[str, Any] = {"name": text(places.get("name", ""))}
            row.update({place: number(places.get(place, 0)) for place in ("device", "managed", "pinned", "pageable")})
            rows.append(row)
        self._emit("allocator", step, {"stats": rows}, checked=True)

    # -- what the run is ----------------------------------------------------------------------------

    def log_cmd(self, argv: Sequence[str]) -> None:
        """The command line."""
        self._emit("cmd", 0, {"cmd": [text(word) for word in argv]}, checked=True)

    def log_options(self, options: Mapping[str, Any]) -> None:
        """The configuration, one record an option; nested names are joined with `/`."""
        for name, value in flatten(options, lambda sentence: None).items():
            self._emit("option", 0, {"name": name, "value": value}, checked=True)

    def log_dataset(self, train: Any, evaluation: Any = None, /, **splits: Any) -> None:
        """What the splits hold: `files`, `tokens`, `file_index`, `chunk_index`, `seed`; a mapping a split."""
        named = {"train": train, "eval": splits.pop("eval", evaluation), **splits}
        for split, info in named.items():
            if info is not None:
                self._emit("dataset", 0, {"split": split} | _mapping(info))

    def log_message(self, step: int, message: str) -> None:
        """A message, shown and kept."""
        self._emit("info", step, {"type": "message", "message": text(message)}, checked=True)

    def log_section_start(self, step: int, message: str) -> None:
        """The start of something long; `log_section_end` says how long it took."""
        self._sections.append((text(message), time.perf_counter()))
        self._emit("info", step, {"type": "section-start", "message": text(message)}, checked=True)

    def log_section_end(self, step: int, message: str | None = None) -> None:
        """The end of the section started last (or of the one named)."""
        name, began = "", time.perf_counter()
        for at in range(len(self._sections) - 1, -1, -1):
            if message is None or self._sections[at][0] == message:
                name, began = self._sections.pop(at)
                break
        took = round((time.perf_counter() - began) * 1000)
        name = text(message) if message is not None else name
        self._emit("info", step, {"type": "section-end", "message": name, "duration_ms": took}, checked=True)

    def log_sample(self, step: int, sample: str, prompt: str = "") -> None:
        """Text that the model generated."""
        self._emit("sample", step, {"prompt": text(prompt), "text": text(sample)}, checked=True)

    def set_phase(self, phase: str) -> None:
        """Name the phase of training; it is kept in each step's record until changed."""
        self._phase = text(phase)

    def set_callback(self, callback: Callable[[str], Any] | None) -> None:
        """Replace the callback."""
        self._callback = callback

    def set_training_tokens(self, total: int) -> None:
        """The run's length in tokens, for progress and the time that remains."""
        self._console.total_tokens = total

    # -- one way through ------------------------------------------------------------------------------

    def record(self, kind: str, step: int, fields: dict[str, Any], *, draw: bool = True) -> None:
        """Write a record of any kind in `record.KINDS`; `draw`: show it where the console shows such.

        The values are Python's own numbers and texts, and lists and dictionaries of them; the caller leaves
        `fields` alone afterwards.
        """
        self._emit(kind, step, fields, checked=True, draw=draw)

    def _emit(
        self,
        kind: str,
        step: Any,
        fields: dict[str, Any],
        checked: bool = False,
        draw: bool = True,
        moment: int | None = None,
    ) -> None:
        """Fields become a record, the record goes everywhere. `checked`: the values are plain already.
        `moment`: the record's time in microseconds since 1970, where that is not now."""
        try:
            if not checked:
                fields = {
                    text(name): value if isinstance(value, (list, dict)) else plain(value, text(name), self._odd)
                    for name, value in fields.items()
                }
            made = Record(kind, moment or time.time_ns() // 1000, self._step(step), fields)
            data = encode(made)
            with self._log.lock:
                self._collect(made, self._log.append_locked(data))
            if draw:
                self._console.draw(made)
            if self._callback is not None:
                self._call_back(self._callback, data)
        except Exception as error:
            self._failed(f"{kind} record", error)

    def _typed(self, kind: str, step: Any, values: dict[str, Any], typed: int, draw: bool = True) -> None:
        """A record whose first `typed` values are numbers whatever they were given as."""
        if all(type(value) in PLAIN or type(value) is str for value in values.values()):
            self._emit(kind, step, values, checked=True, draw=draw)
        elif not self._defer(kind, step, values):
            for name in list(values)[:typed]:
                values[name] = number(values[name])
            self._emit(kind, step, values, draw=draw)

    def _defer(self, kind: str, step: int, values: dict[str, Any]) -> bool:
        """Whether the record is written later, because some of its values are on an accelerator."""
        return False

    def _call_back(self, callback: Callable[[str], Any], data: bytes) -> None:
        try:
            callback(data.decode())
        except Exception as error:
            if self.strict:
                raise
            self.warn(f"the callback raised {type(error).__name__}: {error}; the record is in the log")

    def _collect(self, made: Record, end: int) -> None:
        """Where a Run takes the numbers for its store."""

    def _step(self, step: Any) -> int:
        if type(step) is int and -(1 << 63) <= step < 1 << 63:
            return step
        made = whole(step)
        if made is None:
            self._odd(f"a step must be a whole number, not {text(step)[:60]!r}; {self._coming} was recorded")
            return self._coming
        return made

    @property
    def _coming(self) -> int:
        """The step that stands in for one that is no number."""
        return 0

    def _odd(self, sentence: str) -> None:
        if self.strict:
            raise ValueError(sentence)
        self.warn(sentence)

    def _failed(self, what: str, error: Exception) -> None:
        """A log call could not do its work: say so once; the training goes on."""
        if self.strict:
            raise error
        self.warn(f"could not record a {what}: {type(error).__name__}: {error}", key=f"{what} {type(error)}")

    def warn(self, sentence: str, key: str | None = None) -> None:
        """Tell the user by Python's logging, once a key (or sentence)."""
        key = key or sentence
        if key in self._warned or len(self._warned) > 200:
            return
        self._warned.add(key)
        _warnings.warning("barograph: %s", sentence)

    def close(self) -> None:
        """Close the log file; also done when the interpreter exits."""
        self._console.close()
        self._log.close()

    def __enter__(self) -> TrainingRunLogger:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def __del__(self) -> None:
        log = getattr(self, "_log", None)
        if log is not None:
            log.close()


def _mapping(info: Any) -> dict[str, Any]:
    """A mapping of a mapping or of an object's attributes."""
    if isinstance(info, Mapping):
        return {text(name): value for name, value in info.items()}
    if isinstance(info, Iterable) and not isinstance(info, (str, bytes)):
        files = [text(name) for name in info]
        return {"files": len(files), "file_names": files}
    return {name: value for name, value in vars(info).items() if not name.startswith("_")}
