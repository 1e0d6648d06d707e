"""The operators' pages: dashboard, lists of runs, verbs with their forms, pauses.

May import: insight, operations and the rooms below; and the definitions at the top of `supervision`.
Public: run_lists, run_filters, run_page, bounded_lists, lists, bulk, verb_forms, verb_pages, incident_rows, dashboard,
sidebar, shared, theme.
"""
