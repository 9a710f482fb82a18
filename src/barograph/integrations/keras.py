"""Keras 3: `model.fit(…, callbacks=[KerasCallback()])`, on any backend.

In:   the calls that `fit` makes of its callbacks.
Out:  a run; the step is the number of batches since the training began, over all epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.integrations.shared import SentToWorkers, begin, ends, open_run, records
from barograph.training.guard import guarded
from barograph.training.run import Run

try:
    import keras

    if int(keras.__version__.partition(".")[0]) < 3:
        raise ImportError(f"this is Keras {keras.__version__}")
except ImportError as error:
    hint = "pip install -U keras, with one of torch, jax and tensorflow; KERAS_BACKEND names the one to use"
    raise ImportError(f"barograph.integrations.keras needs Keras 3 ({error}): {hint}") from None


class KerasCallback(SentToWorkers, keras.callbacks.Callback):
    """Records `fit` and `evaluate`. `run`: the run, from the beginning of a training on.

    every: batches between two records. run: one of your own, which stays open. Other options are those of
    `barograph.init`. Keras gives a batch's values as means over the epoch so far.
    """

    def __init__(self, run: Run | None = None, every: int = 1, **options: Any):
        super().__init__()
        self.run: Run | None = run
        self._given, self._every, self._options = run is not None, max(1, int(every)), options
        self._own = self._off = False
        self._step = 0

    @property
    def _out(self) -> Any:
        assert self.run is not None
        return self.run._out

    def on_train_begin(self, logs: Any = None) -> None:
        """Find or begin the run."""
        if not self._given and (self.run is None or not self.run._ending.is_here):
            found = open_run()
            self._own = found is None
            self.run, self._step = found or begin(**self._options), 0
        assert self.run is not None
        self._off = not records(self, self.run)
        self._describe()

    @guarded("description of a training")
    def _describe(self) -> None:
        assert self.run is not None
        steps, epochs = self.params.get("steps"), self.params.get("epochs")
        if steps and epochs:
            self.run.about.plan_steps(steps * epochs)
        optimizer = getattr(self.model, "optimizer", None)
        about = {"keras_backend": keras.backend.backend(), "num_parameters": self.model.count_params()}
        if optimizer is not None:
            about["optimizer"] = optimizer.get_config()
        self.run.config.update({name: value for name, value in self.params.items() if value is not None} | about)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A step."""
        if self.run is not None and self._step % self._every == 0:
            self._record("train/", logs)
        self._step += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The epoch's values; those of the validation as `eval/…`."""
        values = dict(logs or {})
        validation = {name for name in values if name.startswith("val_")}
        self._record("eval/", {name.removeprefix("val_"): values.pop(name) for name in validation}, self._step - 1)
        self._record("epoch/", values, self._step - 1)

    def on_train_end(self, logs: Any = None) -> None:
        """End the run, if the callback began it."""
        if self.run is not None:
            ends(self, self.run)
            if self._own:
                self.run.finish()

    def _record(self, group: str, values: Mapping[str, Any] | None, step: int | None = None) -> None:
        if self.run is not None and values and not self._off:
            at = self._step if step is None else max(0, step)
            self.run.log({f"{group}{name}": value for name, value in values.items()}, at)
