"""Reads for screens, API and metrics: lists of runs, why an order waits, load for autoscalers, live events.

May import: operations, dispatch and the rooms below; and the definitions at the top of `supervision`.
Public: queries, waiting, autoscaling, metrics, totals, live_events.
"""
