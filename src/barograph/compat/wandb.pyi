from typing import Any

from barograph.integrations.compat.wandb import *  # noqa: F403

__getattr__: Any
