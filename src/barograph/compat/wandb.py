"""`import barograph.compat.wandb as wandb`: the name of `integrations/compat/wandb.py`, and the same module.

In:   an import; or a program, `python -m barograph.compat.wandb train.py …`, with this module as its `wandb`.
Out:  that module. `wandb.pyi` says the same to type checkers.
"""

from __future__ import annotations

import sys

from barograph.integrations.compat import wandb
from barograph.integrations.compat.program import run_program

if __name__ == "__main__":
    run_program(wandb.install)
else:
    sys.modules[__name__] = wandb
