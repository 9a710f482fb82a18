"""The demo: a small GPT that trains on Python's own source text with every kind of record on.

In:   `barograph demo`, or `barograph.demo.train.run_demo(...)`.
Out:  a run to look at, its screen, and a summary.

Importing this package loads no torch; a training does.
"""
