"""The state store: the only code that writes runs, steps and events, and its guarded SQL statements.

May import: plans, incidents, wakeup, runtime, postgres; and the definitions at the top of `supervision`.
Public: step_verbs, run_verbs, records, sessions, hooks, alerts, epochs.
"""
