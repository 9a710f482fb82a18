"""Questions to stored runs: SQL, data frames, filters, and a server for coding assistants.

In:   runs at rest or in progress; a query, names of series, a condition, a tool call.
Out:  tables, data frames, the runs that match, bounded answers. Reads only.
"""
