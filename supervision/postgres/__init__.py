"""How statements reach PostgreSQL: one connection per thread, prepared statements, a listener, bounded scans, JSON.

May import: nothing of the engine; and the definitions at the top of `supervision`.
Public: db, backend, pooling, listener, params, json_safe, advice, fitness.
"""
