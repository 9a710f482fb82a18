"""TypedCalls: the typed log calls, the same on a `Run` and on a `TrainingRunLogger`.

In:   a training loop's calls, in Surogate's names and argument orders.
Out:  records, through the object's emitter.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from barograph.core.secrets import masked_value, masked_words
from barograph.core.values import flatten, number, text
from barograph.training.emitter import Emitter
from barograph.training.guard import guarded


class TypedCalls:
    """The calls of the first document. None of them raises, unless `strict`."""

    _out: Emitter

    # -- steps and evaluations ------------------------------------------------------------------

    @guarded("step")
    def log_step(
        self,
        step: int,
        epoch: float | None = None,
        tokens: int | None = None,
        duration_ms: float | None = None,
        norm: float | None = None,
        loss: float | None = None,
        lr: float | None = None,
        **extra: Any,
    ) -> None:
        """One optimizer step: `tokens` (or `step_tokens`) processed in `duration_ms`, gradient L2 `norm` after
        clipping. None is what was not measured; it is left out.

        `extra` is kept in the record: `moe_aux_loss`, `moe_z_loss`, `moe_load_imbalance` of a
        mixture-of-experts model; `lrm`, `mfu`, `pq`, `rg` for the console's other lines.
        """
        if tokens is None and extra:
            tokens = extra.pop("step_tokens", None)
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
        if self._out.phase:
            fields["phase"] = self._out.phase
        self._out.typed("step", step, fields, 6)

    @guarded("evaluation")
    def log_eval(
        self,
        step: int,
        epoch: float | None = None,
        tokens: int | None = None,
        duration_ms: float | None = None,
        loss: float | None = None,
        **extra: Any,
    ) -> None:
        """One evaluation over `tokens` (or `eval_tokens`) tokens with mean `loss`."""
        if tokens is None and extra:
            tokens = extra.pop("eval_tokens", None)
        fields = {"epoch": epoch, "eval_tokens": tokens, "duration_ms": duration_ms, "loss": loss}
        self._out.typed("eval", step, fields | extra, 4)

    @guarded("set of router figures")
    def log_moe_stats(
        self,
        step: int,
        aux_loss: float | None = None,
        z_loss: float | None = None,
        utilization: float | None = None,
        imbalance: float | None = None,
        **extra: Any,
    ) -> None:
        """Router health: losses summed over layers, share of experts in use (`utilization` or
        `expert_utilization`), max / mean load (`imbalance` or `load_imbalance`)."""
        fields = {
            "aux_loss": aux_loss,
            "z_loss": z_loss,
            "expert_utilization": extra.pop("expert_utilization", utilization),
            "load_imbalance": extra.pop("load_imbalance", imbalance),
        }
        self._out.typed("moe", step, fields | extra, 4)

    # -- machine ----------------------------------------------------------------------------------

    @guarded("state of a device")
    def log_gpu_state(self, step: int, gpu_id: int = 0, info: Any = None, **fields: Any) -> None:
        """One device's telemetry in Surogate's fields: clock MHz, power mW, temperature °C, dram_free bytes, …
        They are in `info`, or are given by name; `id` is another name of `gpu_id`."""
        given = _mapping(self._out, info, "log_gpu_state") if info is not None or not fields else {}
        if given is not None:
            given = given | fields
            device = number(given.pop("id", gpu_id))
            self._out.emit("gpu", step, {"id": device} | given)

    @guarded("description of a device")
    def log_gpu_model(self, info: Any = None, **fields: Any) -> None:
        """What the devices are: one mapping, or a list of them, one a device; or the fields of one by name."""
        many = isinstance(info, (list, tuple))
        for item in info if many else [info if info is not None or not fields else {}]:
            given = _mapping(self._out, {"name": item} if isinstance(item, str) else item, "log_gpu_model")
            if given is not None:
                self._out.emit("gpu-model", 0, given | fields)

    @guarded("speed-of-light estimate")
    def log_sol_estimate(self, estimate: Any = None, world: int | None = None, **fields: Any) -> None:
        """Speed of light: FLOPs a token of `blocks`, `lm_head`, `attention`; `tps`, the tokens a second
        they allow; peaks `tf32_peak`, `bf16_peak`, `fp16_peak`, `fp8_peak` in TFLOP/s."""
        values = {} if estimate is None else _mapping(self._out, estimate, "log_sol_estimate")
        if values is not None:
            values = values | fields
            if world is not None:
                values["world"] = world
            self._out.emit("sol", 0, values)

    @guarded("memory table")
    def log_allocator(self, stats: Any = None, step: Any = 0, **segment: Any) -> None:
        """Memory by segment, in bytes: a mapping of name to {device, managed, pinned, pageable}, or a list; or the
        fields of one segment by name. The step may come first, as in the other calls."""
        if segment and (stats is None or isinstance(stats, int)):
            stats, step = [segment], step if stats is None else stats
        if isinstance(stats, int) and not isinstance(step, int):
            stats, step = step, stats
        if isinstance(stats, Mapping):
            stats = [
                {"name": name} | (dict(places) if isinstance(places, Mapping) else {"device": places})
                for name, places in stats.items()
            ]
        if not isinstance(stats, (list, tuple)):
            self._out.odd(f"log_allocator takes {{segment: bytes}}, not {_kind(stats)}; nothing was recorded")
            return
        rows = []
        for item in stats:
            places = _mapping(self._out, item, "log_allocator")
            if places is not None:
                row: dict[str, Any] = {"name": text(places.get("name", ""))}
                row |= {place: number(places.get(place, 0)) for place in ("device", "managed", "pinned", "pageable")}
                rows.append(row)
        self._out.emit("allocator", step, {"stats": rows}, checked=True)

    # -- what the run is ----------------------------------------------------------------------------

    @guarded("command line")
    def log_cmd(self, argv: Any) -> None:
        """The command line, a list of words; a text is one word."""
        words = [argv] if isinstance(argv, str) else argv
        if not isinstance(words, Iterable):
            self._out.odd(f"log_cmd takes a list of words, not {_kind(argv)}; nothing was recorded")
            return
        self._out.emit("cmd", 0, {"cmd": masked_words([text(word) for word in words])}, checked=True)

    @guarded("set of options")
    def log_options(self, options: Any) -> None:
        """The configuration, one record an option; nested names are joined with `/`. A mapping, a dataclass or a
        namespace."""
        given = _mapping(self._out, options, "log_options")
        for name, value in flatten(given or {}, lambda sentence: None).items():
            shown = masked_value(name, value)
            self._out.emit("option", 0, {"name": name, "value": shown}, checked=True)

    @guarded("description of a data set")
    def log_dataset(self, train: Any = None, evaluation: Any = None, **splits: Any) -> None:
        """What the splits hold: `files`, `tokens`, `file_index`, `chunk_index`, `seed`; a mapping a split. Or one
        split's fields by name, with its name as `split`."""
        named = {"train": train, "eval": splits.pop("eval", evaluation)}
        if not all(value is None or isinstance(value, (Mapping, list, tuple)) for value in splits.values()):
            named[text(splits.pop("split", "train"))] = splits
        else:
            named |= splits
        for split, info in named.items():
            if info is not None:
                listed = [info] if isinstance(info, str) else info
                given = _mapping(self._out, listed, "log_dataset", files=True)
                if given is not None:
                    self._out.emit("dataset", 0, {"split": split} | given)

    @guarded("message")
    def log_message(self, step: int, message: str) -> None:
        """A message, shown and kept."""
        self._out.emit("info", step, {"type": "message", "message": text(message)}, checked=True)

    @guarded("section")
    def log_section_start(self, step: int, message: str) -> None:
        """The start of something long; `log_section_end` says how long it took."""
        self._out.sections.append((text(message), time.perf_counter()))
        self._out.emit("info", step, {"type": "section-start", "message": text(message)}, checked=True)

    @guarded("section")
    def log_section_end(self, step: int, message: str | None = None) -> None:
        """The end of the section started last (or of the one named)."""
        sections = self._out.sections
        name, began = "", time.perf_counter()
        for at in range(len(sections) - 1, -1, -1):
            if message is None or sections[at][0] == message:
                name, began = sections.pop(at)
                break
        took = round((time.perf_counter() - began) * 1000)
        name = text(message) if message is not None else name
        self._out.emit("info", step, {"type": "section-end", "message": name, "duration_ms": took}, checked=True)

    @guarded("phase")
    def set_phase(self, phase: str) -> None:
        """Name the phase of training; it is kept in each step's record until changed."""
        self._out.phase = text(phase)


def _mapping(out: Emitter, info: Any, call: str, files: bool = False) -> dict[str, Any] | None:
    """A mapping of a mapping, a dataclass, a namespace, or (`files`) a list of file names; else it is said."""
    if isinstance(info, Mapping):
        return {text(name): value for name, value in info.items()}
    if files and isinstance(info, Iterable) and not isinstance(info, (str, bytes)):
        names = [text(name) for name in info]
        return {"files": len(names), "file_names": names}
    if hasattr(info, "__dict__") and not isinstance(info, type):
        return {name: value for name, value in vars(info).items() if not name.startswith("_")}
    as_dict = getattr(info, "_asdict", None)
    if callable(as_dict):
        return dict(as_dict())
    out.odd(f"{call} takes a mapping or an object with attributes, not {_kind(info)}; nothing was recorded")
    return None


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
