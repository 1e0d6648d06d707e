"""The operators' pages: dashboard, lists of runs, verbs with their forms, pauses.

May import: insight, operations and the rooms below; and the definitions at the top of `supervision`.
Public: run_lists, verb_pages, dashboard, sidebar, shared, theme, lists.searching.
"""
