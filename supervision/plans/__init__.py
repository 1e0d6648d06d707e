"""Workflow versions: registered once in the database, compared at start, listed for operators.

May import: incidents, postgres; and the definitions at the top of `supervision`.
Public: functions, parallel, personal, registry, comparison, guard, versions, unknown_versions.
"""
