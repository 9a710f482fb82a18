"""What the backends of trackers share: a configuration with names and identity, and a run that may go on.

In:   any object with attributes; what an earlier process noted.
Out:  their common beginning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from barograph.trackers.backend import LoggingBackend


class TrackerBackend(LoggingBackend):
    """A backend whose runs have an identity, `run_id`.

    config: anything with the attributes that the class names. run_config: the training's configuration.
    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    takes_text = True
    marks = True

    def __init__(
        self,
        config: Any,
        *,
        run_config: Mapping[str, Any] | None = None,
        log_file: str | os.PathLike[str] = "",
    ):
        super().__init__(log_file=log_file)
        self._config, self._run_config = config, run_config
