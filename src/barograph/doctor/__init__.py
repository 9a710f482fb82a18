"""The doctor: what is wrong with a run, since when, why, and what to do.

In:   stored runs, or logs of any kind that can be read.
Out:  findings for people and programs.
"""

from barograph.doctor.diagnosis import diagnose

__all__ = ["diagnose"]
