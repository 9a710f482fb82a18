"""Names: what each tool calls a series, and what it is called here.

In:   names as a source has them; the kind of the source; a user's own aliases.
Out:  canonical names, the factor that brings a value to the canonical unit, and which original each stands for.

A name that is in no table stays as it is. A unit is changed only where the source's own name or format says
which unit it is: `mfu` of an unknown program may be a fraction or percent, so it stays `mfu`. Two originals
never share one series: the second one keeps its own name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core.lazy import lazy

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
else:
    numpy = lazy("numpy")

from barograph.core.utilization import PERCENT_NAMES


class Alias(NamedTuple):
    """The canonical name of a series, and what its values are multiplied with to be in the canonical unit."""

    name: str
    factor: float = 1.0


class AliasError(ValueError):
    """A user's alias that can't be used; the message says which, and what to write."""


# Canonical name ← names that tools use, without a change of unit. Compared without regard to case, and with
# blanks and dashes as underscores.
ALIASES: dict[str, tuple[str, ...]] = {
    "train/loss": (
        "loss", "train_loss", "training_loss", "train.loss", "train/train_loss", "training/loss", "loss/train",
        "lm loss", "lm_loss", "reduced_train_loss", "train_loss_step", "loss_step", "train/loss_step",
        "loss_metrics/global_avg_loss", "train/samples/train_loss", "train/ce loss", "batch_loss",
        "train_losses", "losses", "training_losses",
    ),
    "eval/loss": (
        "eval_loss", "val_loss", "valid_loss", "validation_loss", "val/loss", "valid/loss", "validation/loss",
        "val.loss", "eval.loss", "loss/val", "loss/valid", "loss/validation", "loss/eval", "lm loss validation",
        "val_loss_epoch", "val/val_loss", "evaluation_loss", "dev_loss", "val_losses",
        "eval_losses", "valid_losses", "validation_losses",
    ),
    "train/norm": (
        "grad_norm", "gradnorm", "grad.norm", "gradient_norm", "train/grad_norm", "train/gradient_norm", "gnorm",
        "global_grad_norm", "total_grad_norm", "optim/total grad norm", "optim/grad_norm", "grad_2.0_norm_total",
        "gradients/norm", "gradients/total_norm", "grad_norms",
    ),
    "train/lr": (
        "lr", "learning_rate", "train/learning_rate", "optim/lr", "optim/learning_rate", "train/samples/lr",
        "lr/train", "current_lr", "lrs", "learning_rates",
    ),
    "train/epoch": ("epoch",),
    "train/step_tokens": ("step_tokens", "tokens_per_step", "tokens_in_step"),
    "train/duration_ms": (
        "duration_ms", "step_time_ms", "step_ms", "ms_per_iter", "ms_per_step", "iter_ms", "iter_time_ms",
        "elapsed time per iteration (ms)", "elapsed_time_per_iteration_ms", "dt_ms", "train/step_time_ms",
    ),
    "train/tokens_per_second": (
        "tokens_per_second", "tokens_per_sec", "tok_per_sec", "tok/sec", "tok/s", "tokens/s", "tokens/sec", "tps",
        "throughput(tps)", "train/tokens_per_sec", "train/tok_per_sec", "tok_s",
    ),
    "train/accuracy": ("train_acc", "train_accuracy", "train/acc", "training_accuracy", "train_accuracies"),
    "eval/accuracy": (
        "val_acc", "val_accuracy", "eval_acc", "eval_accuracy", "valid_acc", "validation_accuracy", "val/acc",
        "val/accuracy", "val_accuracies",
    ),
    "eval/perplexity": (
        "val_ppl", "val_perplexity", "eval_ppl", "eval_perplexity", "valid_ppl", "lm loss validation ppl", "val/ppl",
        "val/perplexity", "val_perplexities",
    ),
    "eval/bpb": ("val_bpb", "val/bpb", "validation bpb", "eval_bpb"),
    "data/tokens_seen": (
        "tokens_seen", "total_tokens", "consumed_tokens", "num_input_tokens_seen", "num_tokens_seen",
        "throughput/total tokens", "train/tokens_seen", "train/num_input_tokens_seen",
    ),
    "moe/aux_loss": ("moe_aux_loss", "aux_loss", "train/moe_aux_loss"),
    "moe/z_loss": ("moe_z_loss", "router_z_loss", "moe/router_z_loss"),
}  # fmt: skip

# Canonical name ← (name, factor): the name itself says its unit.
CONVERTED: dict[str, tuple[tuple[str, float], ...]] = {
    "train/duration_ms": (
        ("step_time_sec", 1000.0), ("step_time_s", 1000.0), ("step_time_seconds", 1000.0), ("dt_s", 1000.0),
        ("train/step_time_sec", 1000.0), ("seconds_per_step", 1000.0), ("sec_per_step", 1000.0),
        ("time_metrics/end_to_end(s)", 1000.0), ("s/it", 1000.0), ("sec/it", 1000.0),
    ),
    "train/mfu": tuple((name, 0.01) for name in PERCENT_NAMES),
}  # fmt: skip

# What only the format of a source tells: kind → {original: canonical name, or (canonical name, factor)}.
BY_KIND: dict[str, dict[str, str | tuple[str, float]]] = {
    # Trainer.rewrite_logs has the same split: eval_…, test_…, and the rest is training
    "huggingface": {
        "train_loss": "train/mean_loss",  # one value at the end: the mean over the whole run
        "train_runtime": "train/runtime_seconds",
        "train_samples_per_second": "train/samples_per_second",
        "train_steps_per_second": "train/steps_per_second",
        "total_flos": "train/total_flos",
    },
    "megatron": {
        "iteration-time": ("train/duration_ms", 1000.0),  # TensorBoard has seconds, the text log milliseconds
        "params-norm": "model/param_norm",
        "params norm": "model/param_norm",
    },
}

# kind → (pattern, replacement, factor); tried in order, on the name as the source has it.
_PATTERNS: dict[str, tuple[tuple[re.Pattern[str], str, float], ...]] = {
    "huggingface": (
        (re.compile(r"eval_(.+)"), r"eval/\1", 1.0),
        (re.compile(r"test_(.+)"), r"test/\1", 1.0),
        (re.compile(r"([^/]+)"), r"train/\1", 1.0),
    ),
    # LearningRateMonitor's names: the optimizer's class, and a group where there are several
    "lightning": ((re.compile(r"lr-[A-Za-z0-9_]+"), "train/lr", 1.0),),
}
_DEVICE = (
    (re.compile(r"(?:system[./])?gpu\.(\d+)\.gpu"), r"gpu/\1/gpu_util", 1.0),
    (re.compile(r"(?:system[./])?gpu\.(\d+)\.memory"), r"gpu/\1/mem_util", 1.0),
    (re.compile(r"(?:system[./])?gpu\.(\d+)\.temp"), r"gpu/\1/temperature", 1.0),
    (re.compile(r"(?:system[./])?gpu\.(\d+)\.powerWatts"), r"gpu/\1/power", 1000.0),  # milliwatts here
    (re.compile(r"(?:system[./])?gpu\.(\d+)\.smClock"), r"gpu/\1/clock", 1.0),
)
_PATTERNS |= {"wandb_offline": _DEVICE, "wandb_csv": _DEVICE}


@lru_cache(maxsize=1 << 14)
def normal(name: str) -> str:
    """A name without regard to case, and with blanks and dashes as underscores."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _table() -> dict[str, Alias]:
    table = {normal(item): Alias(canonical) for canonical, names in ALIASES.items() for item in (canonical, *names)}
    for canonical, pairs in CONVERTED.items():
        table |= {normal(item): Alias(canonical, factor) for item, factor in pairs}
    return table


_GENERAL = _table()
CANONICAL = frozenset(alias.name for alias in _GENERAL.values())


class Names:
    """The names of one run's series. `owners` says which original each renamed series stands for.

    kind: the source's. own: aliases that the source brings itself. aliases: the user's; they go before all.
    """

    def __init__(
        self, kind: str = "", own: Mapping[str, Any] | None = None, aliases: Mapping[str, Alias] | None = None
    ):
        self.owners: dict[str, str] = {}
        self.factors: dict[str, float] = {}
        self._kind = {normal(name): _alias(value) for name, value in BY_KIND.get(kind, {}).items()}
        self._kind |= {normal(name): _alias(value) for name, value in (own or {}).items()}
        self._user = {normal(name): value for name, value in (aliases or {}).items()}
        self._patterns = _PATTERNS.get(kind, ())
        self._known: dict[str, Alias] = {}
        self._sets: dict[tuple[str, ...], tuple[tuple[str, ...], NDArray[numpy.float64] | None]] = {}

    def canonical(self, original: str) -> Alias:
        """What the tables say of a name; itself with factor 1 if they say nothing."""
        key = normal(original)
        for table in (self._user, self._kind):
            if key in table:
                return table[key]
        if original in CANONICAL:
            return Alias(original)
        if key in _GENERAL:
            return _GENERAL[key]
        for pattern, replacement, factor in self._patterns:
            if match := pattern.fullmatch(original):
                return Alias(match.expand(replacement), factor)
        return Alias(original)

    def of(self, original: str) -> Alias:
        """The series of an original in this run: canonical, unless another original has that one already."""
        result = self._known.get(original)
        if result is None:
            result = self._known[original] = self._settle(original)
        return result

    def take(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[numpy.float64] | None]:
        """The series of a block's names, all different, and their factors [n], None if all are 1."""
        result = self._sets.get(names)
        if result is None:
            if len(self._sets) > 1000:  # a source of ever new sets of names
                self._sets.clear()
            found = [self.of(name) for name in names]
            factors = numpy.array([item.factor for item in found])
            result = tuple(item.name for item in found), None if bool((factors == 1.0).all()) else factors
            self._sets[names] = result
        return result

    def restore(self, owners: Mapping[str, str], factors: Mapping[str, float]) -> None:
        """Go on with the names that an earlier import of the run gave."""
        for series, original in owners.items():
            self.owners[series] = original
            self._known[original] = Alias(series, factors.get(series, 1.0))
        self.factors |= factors

    def _settle(self, original: str) -> Alias:
        alias = self.canonical(original)
        if self._free(alias.name, original):
            result = alias
        elif self._free(original, original):
            result = Alias(original)
        else:  # another original took the very name
            number = 2
            while not self._free(f"{original}#{number}", original):
                number += 1
            result = Alias(f"{original}#{number}")
        if result.name != original or result.name in CANONICAL or "#" in result.name:
            self.owners[result.name] = original
        if result.factor != 1.0:
            self.factors[result.name] = result.factor
        return result

    def _free(self, series: str, original: str) -> bool:
        if self.owners.get(series, original) != original:
            return False
        # an original that kept its own name holds that name
        return series == original or self._known.get(series, Alias("")).name != series


def _alias(value: Any) -> Alias:
    return Alias(value) if isinstance(value, str) else Alias(str(value[0]), float(value[1]))


def read_aliases(path: str | os.PathLike[str]) -> dict[str, Alias]:
    """A user's aliases: original → canonical name and factor, from the option `aliases` of a YAML file.

        aliases:
          train/loss: my_loss
          eval/loss: [dev_nll, holdout_nll]
          train/duration_ms: {name: iter_seconds, factor: 1000}

    Raises AliasError with one sentence for a file that can't be read or an entry that can't be used.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise AliasError(f"The file of aliases {path} cannot be read: {error.strerror or error}.") from None
    import yaml

    try:
        content = yaml.safe_load(text)
    except Exception as error:  # besides YAMLError: impossible dates, endless nesting
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise AliasError(f"{path}{where} is not valid YAML: {getattr(error, 'problem', None) or error}.") from None
    entries = content.get("aliases", {}) if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise AliasError(f"{path} has no option `aliases` with lines such as `train/loss: my_loss`.")
    return parse_aliases(entries, str(path))


def parse_aliases(entries: Mapping[Any, Any], place: str = "aliases") -> dict[str, Alias]:
    """Original → alias, from canonical name → name, list of names, or `{name, factor}`. Raises AliasError."""
    result: dict[str, Alias] = {}
    for canonical, entry in entries.items():
        for item in entry if isinstance(entry, list) else [entry]:
            name, factor = (item.get("name"), item.get("factor", 1.0)) if isinstance(item, dict) else (item, 1.0)
            if not isinstance(canonical, str) or not isinstance(name, str) or not canonical or not name:
                raise AliasError(f"{place}: {canonical!r}: {item!r} is not an alias; write `train/loss: my_loss`.")
            if isinstance(factor, bool) or not isinstance(factor, (int, float)):
                raise AliasError(f"{place}: the factor of {canonical} must be a number, not {factor!r}.")
            result[name] = Alias(canonical, float(factor))
    return result


def renamed(values: Mapping[str, Any], aliases: Mapping[str, Alias]) -> dict[str, Any]:
    """A row under a user's aliases. A value stays as it is where its new name is another's in the row."""
    by_name = {normal(name): alias for name, alias in aliases.items()}
    result: dict[str, Any] = {}
    for name, value in values.items():
        alias = by_name.get(normal(name))
        if alias is None or alias.name in values or alias.name in result:
            result[name] = value
        else:
            result[alias.name] = value * alias.factor if isinstance(value, (int, float)) else value
    return result


def conversions(names: Iterable[str], owners: Mapping[str, str], factors: Mapping[str, float]) -> list[str]:
    """A sentence for each series that was renamed with a change of unit."""
    return [f"{owners.get(name, name)} × {factors[name]:g} → {name}" for name in names if name in factors]
