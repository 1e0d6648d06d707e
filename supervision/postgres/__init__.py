"""How statements reach PostgreSQL: one connection per thread, prepared statements, bounded scans, values that fit JSON.

May import: nothing of the engine; and the definitions at the top of `supervision`.
Public: db, scan_window, json_safe.
"""
