"""The effect ledger: every operation at an outside service, and its comparison with that service's own list.

May import: operations and the rooms below; and the definitions at the top of `supervision`.
Public: effect_rows, exchanges, reconciliation, findings, adoption.
"""
