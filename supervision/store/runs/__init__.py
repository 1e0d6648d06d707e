"""One run as a whole: its locked rows, its plan as the rows tell it, and the hand-over where the plan branches.

May import: what the state store may import, and the state store.
Public: locked_run, plan_rows, branch_sql, branch_rows.
"""
