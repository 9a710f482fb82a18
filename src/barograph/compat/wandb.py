"""`import barograph.compat.wandb as wandb`: the name of `integrations/compat/wandb.py`, and the same module.

In:   an import.
Out:  that module.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from barograph.integrations.compat import wandb
from barograph.integrations.compat.wandb import *  # noqa: F403  # for type checkers

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


sys.modules[__name__] = wandb
