"""Tells waiting processes that there is work: hints over the broker and NOTIFY over PostgreSQL. Both may be lost.

May import: telemetry, runtime, postgres; and the definitions at the top of `supervision`.
Public: hints, notify.
"""
