"""The page's server: runs, series, findings over HTTP, for this machine's browser.

In:   a folder of runs; requests.
Out:  JSON, frames of columns, events. Everything it knows comes from stored runs; it writes nothing of a run but what
      people edit about it.
"""
