"""The files that a run appends to: written by one process, read by any.

In:   records.
Out:  the same records, also while they are written and after a kill.
"""
