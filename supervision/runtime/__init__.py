"""What every process needs: its identity, periodic threads, failpoints for tests, times and numbers in words,
what the names of hosts mean.

May import: errors, postgres; and the definitions at the top of `supervision`.
Public: identity, periodic, intervals, failpoints, humanize, retold, application, tidying, names.
"""
