"""A program written for TensorBoard, recorded by Barograph: only its import is another.

python examples/frameworks/tensorboard_program.py FOLDER
"""

import os
import sys

import barograph
from barograph.compat.tensorboard import SummaryWriter  # was: from torch.utils.tensorboard import SummaryWriter

os.environ["BAROGRAPH_DIR"] = sys.argv[1]
with SummaryWriter(log_dir="gpt/small") as writer:
    for step in range(10):
        writer.add_scalar("loss/train", 3.0 - step / 10, step)
        writer.add_histogram("weights", [0.1, 0.2, 0.2], step)
    writer.add_text("the sea is", "blue", 9)

stored = barograph.StoredRun(writer.barograph.dir)
assert list(stored.series("loss/train").step) == list(range(10)) and stored.manifest["project"] == "gpt"
print("a program written for TensorBoard holds")
