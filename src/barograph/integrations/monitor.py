"""TrainingMonitor: speedrun-mup's class for a model's figures, for a loop that asks for a dictionary of numbers.

In:   a model, and a call after backward, before or after `optimizer.step` and `zero_grad`.
Out:  {name: float} with speedrun-mup's names, and by layer with those of docs/guides/model.md. No run is needed.

Asking waits for the device: the numbers are Python's. `ModelWatch` is what does not wait.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from barograph.probes.model.findings import SILENT
from barograph.probes.model.hooks import OptimizerHooks
from barograph.probes.model.looks import TimedActivations
from barograph.probes.model.norms import norms
from barograph.probes.model.parameters import local, owned, trainable
from barograph.probes.model.report import STATISTICS
from barograph.probes.model.sharded import Shards, way
from barograph.probes.model.spectral import SpectralNorms
from barograph.probes.stats import statistics as stats

_warnings = logging.getLogger("barograph")

ACTIVATIONS = ("mean", "std", "max", "min", "l2_norm")
"""speedrun-mup's statistics of an activation: `{module path}_mean` and so on; others are `activations/{layer}/…`."""


class TrainingMonitor:
    """Figures of one model, with speedrun-mup's arguments and names.

    monitor_interval: steps between two looks at what is dear. enable_spectral_norms: of all weight matrices.
    enable_activation_stats: of the outputs of blocks, embeddings and activation modules. Where parameters
    are sharded over ranks, all ranks have to ask at the same steps.

    Gradients that were already cleared when they are asked for are read before the optimizer's step from then on.
    """

    def __init__(
        self,
        model: Any,
        monitor_interval: int = 100,
        enable_spectral_norms: bool = False,
        enable_activation_stats: bool = False,
    ):
        if isinstance(monitor_interval, bool) or not isinstance(monitor_interval, int) or monitor_interval < 1:
            raise ValueError(f"monitor_interval is {monitor_interval!r}; give a whole number of steps from 1")
        self.model = model
        self.monitor_interval = monitor_interval
        self.enable_spectral_norms = enable_spectral_norms
        self.enable_activation_stats = enable_activation_stats
        self._counter = 0  # calls without a step
        self._spectral = SpectralNorms()
        self._hooks: OptimizerHooks | None = None
        self._captured: dict[int, tuple[tuple[str, ...], Any, stats.PendingStatistics | None]] = {}
        self._due = True  # whether the coming step is one to look closely at
        self._silent = 0
        self._said: set[str] = set()
        self._activations: TimedActivations | None = None
        if enable_activation_stats:
            self._activations = TimedActivations(model, functions=True, warn=self._warn)

    def should_monitor(self, step: int) -> bool:
        """Whether the dear figures are due at this step."""
        return step % self.monitor_interval == 0

    def get_all_metrics(self, step: int | None = None) -> dict[str, float]:
        """`grad_norm` and `param_norm`; at the interval the advanced ones too. step: default one more each call."""
        number = self._counter if step is None else int(step)
        if step is None:
            self._counter += 1
        metrics = self.get_basic_metrics()
        if self.should_monitor(number):
            metrics |= self.get_advanced_metrics()
        self._due = self.should_monitor(number + 1)
        if self._activations is not None:
            self._activations.on = self._due
        self._captured.clear()
        return metrics

    def get_basic_metrics(self) -> dict[str, float]:
        """L2 norms over all trainable parameters; `grad_norm` is NaN where there was no gradient."""
        try:
            return self._basic()
        except Exception as error:
            self._warn(f"the norms can't be read ({type(error).__name__}: {error})", key="norms")
            return {"grad_norm": math.nan, "param_norm": math.nan}

    def _basic(self) -> dict[str, float]:
        import torch

        with torch.no_grad():
            found = trainable(self.model)
            weights = self._total(found, list(found.values()))
            learning = {name: parameter for name, parameter in found.items() if parameter.grad is not None}
            squares = None
            if learning:
                squares = self._total(learning, [parameter.grad for parameter in learning.values()])
            elif self._captured:
                squares = sum(
                    self._total({name: found[name] for name in names if name in found}, None, column)
                    for names, column, _ in self._captured.values()
                )
        if squares is None:
            self._missed(bool(found))
        else:
            self._silent = 0
        return {
            "grad_norm": math.nan
            if squares is None
            else math.sqrt(max(0.0, squares))
            if squares == squares
            else squares,
            "param_norm": math.sqrt(weights) if weights == weights else weights,
        }

    def _total(self, named: dict[str, Any], tensors: list[Any] | None, column: Any = None) -> float:
        """The sum of squares, over all shards."""
        if tensors is not None:
            column = norms([local(tensor) for tensor in tensors]).square()
        if not len(column):
            return 0.0
        shards = Shards([way(parameter) for parameter in named.values()])
        if shards and len(column) == len(named):
            column = shards.add(column[None])[0]
        return float(column.sum())

    def _missed(self, learns: bool) -> None:
        """No gradient was there when it was asked for."""
        if not learns:
            self._warn("the model has no trainable parameters, so there is no gradient to see", key="frozen")
            return
        self._silent += 1
        if self._hooks is None:
            self._hooks = OptimizerHooks(None, self._names, self._before_step, lambda optimizer: None)
            self._warn(
                "the gradients were cleared before the monitor was asked; from the next step on they are read right "
                "before optimizer.step()",
                key="cleared",
            )
        elif self._silent == SILENT:
            self._warn(
                f"the monitor has seen no gradient in {SILENT} calls: neither when it was asked nor before a step of a "
                "torch optimizer; is this the model that is trained?",
                key="no gradient",
            )

    def _names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in trainable(self.model).items()}

    def _before_step(self, optimizer: Any) -> None:
        try:
            import torch

            own = owned(optimizer, self._names())
            pairs = [
                (name, parameter.grad)
                for name, parameter in zip(own.names, own.parameters, strict=True)
                if parameter.grad is not None
            ]
            if not pairs:
                return
            names, tensors = tuple(name for name, _ in pairs), [local(gradient) for _, gradient in pairs]
            with torch.no_grad():
                pending = stats.tensor_statistics(tensors, names=names) if self._due else None
                self._captured[id(optimizer)] = (names, norms(tensors).square(), pending)
        except Exception as error:
            self._warn(f"the gradients can't be read ({type(error).__name__}: {error})", key="gradients")

    def get_advanced_metrics(self) -> dict[str, float]:
        """What is dear, now: by layer `gradients/…` and `weights/…`; spectral norms and activations if enabled."""
        metrics: dict[str, float] = {}
        looks = [self._layers]
        if self.enable_spectral_norms:
            looks.append(self._spectra)
        if self._activations is not None:
            looks.append(self._read_activations)
        import torch

        for look in looks:
            try:
                with torch.no_grad():
                    metrics |= look()
            except Exception as error:
                name = look.__name__.strip("_").replace("_", " ")
                self._warn(f"the monitor can't see the {name} ({type(error).__name__}: {error})", key=name)
        return metrics

    def _layers(self) -> dict[str, float]:
        found = trainable(self.model)
        groups: list[tuple[str, tuple[str, ...], stats.PendingStatistics]] = []
        learning = {name: parameter.grad for name, parameter in found.items() if parameter.grad is not None}
        if learning:
            shown = [local(gradient) for gradient in learning.values()]
            groups.append(("gradients", tuple(learning), stats.tensor_statistics(shown, names=tuple(learning))))
        groups += [
            ("gradients", names, pending) for names, _, pending in self._captured.values() if pending is not None
        ]
        weights = [local(parameter) for parameter in found.values()]
        groups.append(("weights", tuple(found), stats.tensor_statistics(weights, names=tuple(found))))
        metrics = {}
        for family, names, pending in groups:
            table = pending.result()
            shards = Shards([way(found[name]) if name in found else None for name in names])
            if shards:
                table = shards.merge(table)
            for row, name in enumerate(names):
                for label, column in STATISTICS:
                    metrics[f"{family}/{name}/{label}"] = float(getattr(table, column)[row])
        return metrics

    def _spectra(self) -> dict[str, float]:
        found = self._spectral.update(trainable(self.model))
        if not found.names:
            return {}
        norms_of, ranks = found.norms.double().tolist(), found.stable_ranks.double().tolist()
        metrics = found.summary()
        for name, norm, rank in zip(found.names, norms_of, ranks, strict=True):
            metrics |= {f"spectral/{name}/norm": norm, f"spectral/{name}/stable_rank": rank}
        return metrics

    def _read_activations(self) -> dict[str, float]:
        import torch

        assert self._activations is not None
        table = self._activations.collect()
        labels = [(layer, name) for layer, row in table.items() for name in row]
        if not labels:
            return {}
        values = [table[layer][name].detach() for layer, name in labels]
        column = torch.stack([value.to(values[0].device, torch.float32).reshape(()) for value in values]).tolist()
        metrics = {}
        for (layer, name), value in zip(labels, column, strict=True):
            if layer and name in ACTIVATIONS:
                metrics[f"{layer}_{name}"] = value
            else:
                metrics[f"activations/{layer}/{name}" if layer else name] = value
        return metrics

    def _warn(self, sentence: str, key: str | None = None) -> None:
        if (key or sentence) not in self._said:
            self._said.add(key or sentence)
            _warnings.warning("barograph: %s", sentence)

    def close(self) -> None:
        """Leave no hook behind."""
        if self._activations is not None:
            self._activations.close()
        if self._hooks is not None:
            self._hooks.close()
        self._captured.clear()

    def __enter__(self) -> TrainingMonitor:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()
