"""A logger in torchtitan's container, as its `MetricsProcessor` calls it; with a trainer it is `add_logger(trainer)`.

python examples/frameworks/torchtitan_logger.py FOLDER
"""

import sys

import torch
from torchtitan.components.metrics import LoggerContainer

import barograph
from barograph.integrations.torchtitan import TorchtitanLogger

logger = TorchtitanLogger({"training": {"steps": 5}}, project="torchtitan", dir=sys.argv[1])
container = LoggerContainer()
container.add_logger(logger)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(1, 6):
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    container.log({"loss_metrics/global_avg_loss": loss.item(), "grad_norm": norm.item()}, step)
container.close()

stored = barograph.StoredRun(logger.run.dir)
assert list(stored.series("loss_metrics/global_avg_loss").step) == [1, 2, 3, 4, 5]
print("a logger of torchtitan holds")
