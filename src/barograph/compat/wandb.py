"""`import barograph.compat.wandb as wandb`: the name of `integrations/compat/wandb.py`, and the same module.

In:   an import.
Out:  that module. `wandb.pyi` says the same to type checkers.
"""

from __future__ import annotations

import sys

from barograph.integrations.compat import wandb

sys.modules[__name__] = wandb
