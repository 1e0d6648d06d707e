"""Incidents: one row per cause that holds orders up, found by detectors, told once, closed when the cause is gone.

May import: postgres; and the definitions at the top of `supervision`.
Public: lifecycle, causes, starvation, held_by, pulse, incident_sql, standing, kept_evidence.
"""
