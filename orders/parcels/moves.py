"""The parts of the statements that move a parcel: how its states follow each other, and when an operator is told.

A statement with TROUBLE has the parameters `state` and `order`: the state that the carrier tells and the order's public id.
"""

from __future__ import annotations

from orders.parcels.states import CAME_BACK, FINAL, IN_ORDER, NOT_OURS, NOT_STOPPED

_IN_ORDER = ", ".join(f"'{state}'" for state in IN_ORDER)

# Our books do not know the parcel; it comes back; or it is on its way although its order is cancelled.
TROUBLE = f"""
CASE WHEN %(order)s = '' THEN '{NOT_OURS}'
     WHEN %(state)s = 'returned' THEN '{CAME_BACK}'
     WHEN %(state)s IN ('picked_up', 'delivered') AND (
          EXISTS (SELECT FROM supervision_run r WHERE r.key = %(order)s AND r.process_state IN ('Compensating', 'Cancelled'))
          OR EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = %(order)s AND a.process_state = 'Cancelled'))
     THEN '{NOT_STOPPED}' END
"""  # noqa: S608 - constants


def rank(state: str) -> str:
    """SQL for the place of the state in this column: a higher one comes later."""
    return f"array_position(ARRAY[{_IN_ORDER}], {state})"


__all__ = ["FINAL", "TROUBLE", "rank"]
