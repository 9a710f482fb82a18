"""Runs compared: what differs, whether that lets anything be concluded, and what.

In:   stored runs, or logs that import, alone or as groups of seeds.
Out:  a comparison: differences, refusals, curves on one axis, numbers with intervals, a verdict, tables of them.
"""
