"""What lives in the training process: from a log call to the log file and the store, on two threads.

In:   what a training loop hands over.
Out:  records, in files that any process may read at any time.
"""
