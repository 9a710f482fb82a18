"""Stand-ins for other trackers' modules: a program changes one import line and is recorded here.

In:   calls as W&B's module and TensorBoard's writer have them.
Out:  the same calls to a `Run`. The public names are `barograph.compat.wandb` and `barograph.compat.tensorboard`.
"""
