"""Runs the invariants that each app keeps in its module `audit_checks`, and the liveness check, apart from the engine's code.

May import: incidents, postgres; and the definitions at the top of `supervision`.
Public: registry; and for `audit_checks` liveness, branches, children, jobs, plans, chain.
"""
