"""Reads for screens, API and metrics: lists of runs, why an order waits, load for autoscalers, live events.

May import: operations, dispatch and the rooms below; and the definitions at the top of `supervision`.
Public: queries, filters, directory, family, results, waiting, autoscaling, metrics, totals, pulse, live_events.
"""
