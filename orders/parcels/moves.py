"""The parts of the statements that move a parcel: how its states follow each other, and when an operator is told.

A statement with TROUBLE has the parameters `state`, `order` and `key`: the state that the carrier tells, the order's public id and the
key of the booking.
"""

from __future__ import annotations

from orders.parcels.splitting import BOOKING
from orders.parcels.states import CAME_BACK, FINAL, IN_ORDER, NOT_OURS, NOT_STOPPED

_IN_ORDER = ", ".join(f"'{state}'" for state in IN_ORDER)

# A parcel is trouble if our books do not know it, if it comes back, or if it is on its way although its order, or its own run, is
# cancelled. It is no trouble if an operator cancelled without undo: then the parcel stays booked on purpose.
_RUN = "regexp_replace(%(key)s::text, '(:[^:]*){3}$', '')"  # keys are RUN:STEP:do:GENERATION
_STAYS = f"""{{"direction": "undo", "name": "{BOOKING}", "result": {{"left": true}}}}"""
TROUBLE = f"""
CASE WHEN %(order)s = '' THEN '{NOT_OURS}'
     WHEN %(state)s = 'returned' THEN '{CAME_BACK}'
     WHEN %(state)s IN ('picked_up', 'delivered') AND (
          EXISTS (SELECT FROM supervision_run r WHERE r.key IN (%(order)s, {_RUN}) AND r.process_state IN ('Compensating', 'Cancelled')
                     AND NOT EXISTS (SELECT FROM supervision_stepstate u WHERE u.run_id = r.id AND u.direction = 'undo'
                                        AND u.name = '{BOOKING}' AND u.result @> '{{"left": true}}'))
          OR EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key IN (%(order)s, {_RUN}) AND a.process_state = 'Cancelled'
                        AND NOT coalesce(a.body -> 'steps' @> '[{_STAYS}]', false)))
     THEN '{NOT_STOPPED}' END
"""  # noqa: S608 - constants


def rank(state: str) -> str:
    """SQL for the place of the state in this column: a higher one comes later."""
    return f"array_position(ARRAY[{_IN_ORDER}], {state})"


__all__ = ["FINAL", "TROUBLE", "rank"]
