"""Reports: what a run was, what it came to and what it cost, as Markdown and as one HTML file.

In:   stored runs.
Out:  files.
"""
