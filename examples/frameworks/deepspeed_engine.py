"""A training with DeepSpeed's engine, recorded by its monitor: one call after `deepspeed.initialize`.

python examples/frameworks/deepspeed_engine.py FOLDER
"""

import os
import sys

os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": "0"}
import deepspeed
import torch

import barograph
from barograph.integrations.deepspeed import add_monitor

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # nothing is compiled
torch.distributed.init_process_group("gloo", f"file://{sys.argv[1]}/meeting", rank=0, world_size=1)
model = torch.nn.Linear(4, 1)
config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), config=config)
run = add_monitor(engine, project="deepspeed", dir=f"{sys.argv[1]}/runs", config=config)
for _ in range(8):
    engine.backward(engine(torch.randn(4, 4)).square().mean())
    engine.step()
run.finish()

assert list(barograph.StoredRun(run.dir).series("train/loss").step) == [1, 2, 3, 4]
print("a training with DeepSpeed holds")
