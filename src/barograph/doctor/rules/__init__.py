"""Rules: what is wrong with a training, told from its numbers alone.

In:   columns of a run, as they grow or all at once.
Out:  findings. No clock, no files, no torch; the same rows give the same findings in pieces of any size.
"""
