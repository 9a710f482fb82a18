"""`from barograph.compat.tensorboard import SummaryWriter`: the name of `integrations/compat/tensorboard.py`.

In:   an import.
Out:  that module's writer.
"""

from __future__ import annotations

from barograph.integrations.compat.tensorboard import SummaryWriter as SummaryWriter
