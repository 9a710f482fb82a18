"""Accelerate: `Accelerator(log_with="barograph")` after this import, or `log_with=BarographTracker("project")`.

In:   the calls that an `Accelerator` makes of its trackers, on the main process.
Out:  a run; its configuration is what `init_trackers` is given.
"""

from __future__ import annotations

import logging
from typing import Any

from barograph.integrations.shared import SentToWorkers, begin, open_run
from barograph.training.run import Run

try:
    import accelerate
    from accelerate import tracking
    from accelerate.tracking import GeneralTracker
except ImportError as error:
    raise ImportError(
        f"barograph.integrations.accelerate needs accelerate 1.0 or newer ({error}): pip install -U accelerate"
    ) from None


class BarographTracker(SentToWorkers, GeneralTracker):
    """A tracker of Accelerate. Options are those of `barograph.init`.

    The run begins when the trackers are started, and is the open one where the program has begun it itself.
    """

    name = "barograph"
    requires_logging_directory = False

    def __init__(self, run_name: str = "", run: Run | None = None, **options: Any):
        super().__init__()
        self._project, self._options = run_name, options
        self.run, self._own = run, False

    @property
    def tracker(self) -> Run:
        """The run."""
        if self.run is None:
            self.start()
        assert self.run is not None
        return self.run

    def start(self) -> None:
        """Begin the run: the process group is there by now."""
        if self.run is None or not self.run._ending.is_here:
            found = open_run()
            self._own = found is None
            self.run = found or begin(**{"project": self._project, **self._options})

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """The configuration."""
        if values:
            self.tracker.config.update(values)

    def log(self, values: dict[str, Any], step: int | None = None, **rest: Any) -> None:
        """Named values."""
        self.tracker.log(values, step)

    def finish(self) -> None:
        """End the run, if the tracker began it."""
        if self._own and self.run is not None:
            self.run.finish()


def _register() -> None:
    """Under its name, where Accelerate has a call for that."""
    register = getattr(tracking, "register_tracker_class", None)
    if register is not None:
        register(BarographTracker)
        return
    logging.getLogger("barograph").warning(
        'barograph: accelerate %s takes trackers of others as objects alone: log_with=BarographTracker("project"), '
        'or pip install -U accelerate for log_with="barograph"',
        accelerate.__version__,
    )


_register()
