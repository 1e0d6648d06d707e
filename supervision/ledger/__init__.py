"""The effect ledger: every operation at an outside service, and its comparison with that service's own list.

May import: operations, incidents, postgres; and the definitions at the top of `supervision`.
Public: effect_rows, reconciliation, findings, adoption.
"""
