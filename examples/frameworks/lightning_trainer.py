"""Lightning's Trainer, recorded by a logger, with a callback that looks inside the model.

python examples/frameworks/lightning_trainer.py FOLDER
"""

import sys

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

import barograph
from barograph.integrations.lightning import BarographLogger, BarographMonitor


class Model(BoringModel):
    def training_step(self, batch, at):
        self.log("train/loss", self.step(batch))
        return super().training_step(batch, at)


logger = BarographLogger(project="lightning", dir=sys.argv[1])
data = torch.utils.data.DataLoader(torch.randn(64, 32))
options = {"max_steps": 8, "log_every_n_steps": 1, "accelerator": "cpu", "enable_progress_bar": False}
trainer = Trainer(logger=logger, callbacks=[BarographMonitor(gradients=1)], enable_checkpointing=False, **options)
trainer.fit(Model(), data)
assert list(barograph.StoredRun(logger.log_dir).series("train/loss").step) == list(range(8))
print("a training of Lightning's holds")
