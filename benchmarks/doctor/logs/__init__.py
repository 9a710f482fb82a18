"""Logs and tables as public programs write them, of trainings on paper: healthy ones, those that look ill, ill ones.

In:   a seed.
Out:  files, and what is true of each.
"""
