"""Stored runs for any process at any time: which there are, their columns, what the command line shows of them.

In:   folders of runs.
Out:  columns ready to draw; text.
"""
