"""Scaling laws fitted over runs.

In:   stored runs of several sizes.
Out:  fitted laws with intervals.
"""
