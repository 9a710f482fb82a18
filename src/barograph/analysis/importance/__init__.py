"""Which keys of the configuration explain a metric over many runs.

In:   configurations and one value of the metric each.
Out:  a share of the variation for each key, with its interval and how sure it is.
"""
