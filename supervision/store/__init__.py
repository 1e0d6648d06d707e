"""The state store: the only code that writes runs, steps and events, and its guarded SQL statements.

May import: plans, incidents and the rooms below; and the definitions at the top of `supervision`.
Public: step_verbs, run_verbs, runs, claiming, bounds, records, sessions, sleeping, hooks, alerts, epochs, step_sql, failure_sql.
"""
