"""A loop with Accelerate, recorded by its tracker.

python examples/frameworks/accelerate_loop.py FOLDER
"""

import sys

import torch
from accelerate import Accelerator

import barograph
import barograph.integrations.accelerate  # log_with="barograph" exists from here on

accelerator = Accelerator(cpu=True, log_with="barograph")
accelerator.init_trackers("toy", config={"lr": 0.1}, init_kwargs={"barograph": {"dir": sys.argv[1]}})
layer = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 0.1))
run = accelerator.get_tracker("barograph", unwrap=True)
run.watch(model, optimizer, gradients=1)
for step in range(5):
    loss = model(torch.ones(2, 4)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.log({"train/loss": loss.item()}, step=step)
accelerator.end_training()

assert list(barograph.StoredRun(run.dir).series("train/loss").step) == list(range(5))
print("a loop with Accelerate holds")
