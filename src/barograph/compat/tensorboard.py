"""`from barograph.compat.tensorboard import SummaryWriter`: the name of `integrations/compat/tensorboard.py`.

In:   an import; or a program, `python -m barograph.compat.tensorboard train.py …`, which runs with this writer.
Out:  that module's writer.
"""

from __future__ import annotations

from barograph.integrations.compat.program import run_program
from barograph.integrations.compat.tensorboard import SummaryWriter as SummaryWriter
from barograph.integrations.compat.tensorboard import install as install

if __name__ == "__main__":
    run_program(install)
