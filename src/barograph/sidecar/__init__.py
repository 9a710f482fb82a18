"""What is done beside the training: rules, accounts, alerts.

In:   the records of a run, in the order of its log.
Out:  findings, totals, messages.
"""
