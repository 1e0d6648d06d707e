"""The incident about returns and refunds that an operator has to pay out at the bank: one for all of them, until each is recorded."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from orders.refunds.codes import WORKFLOW as REFUND_ORDER
from orders.returns import codes
from supervision.incidents.lifecycle import Cause, detector
from supervision.postgres import db

KIND = "payout"
# The steps that wait for this signal come first, by their index: there may be very many runs that wait for something else.
_OWED = """
WITH s AS MATERIALIZED (
    SELECT run_id, position FROM supervision_stepstate
     WHERE process_state = 'Pending' AND turn_at IS NULL AND not_before IS NOT NULL AND awaits = %(signal)s)
SELECT count(*), min(e.at) FROM s
  JOIN supervision_run r ON r.id = s.run_id AND r.workflow = ANY (%(workflows)s::text[])
 CROSS JOIN LATERAL (
       SELECT max(e.at) AS at FROM supervision_stepevent e
        WHERE e.run_id = s.run_id AND e.position = s.position AND e.direction = 'do' AND e.to_state = 'Pending') e
"""


@detector(KIND)
def to_be_paid_out() -> Iterator[Cause]:
    """Returns and refunds that wait for their payout."""
    [(count, since)] = db.fetch(_OWED, {"workflows": [codes.WORKFLOW, REFUND_ORDER], "signal": codes.PAID_OUT})
    if count:
        title = _("%(count)s returns or refunds of orders paid by bank transfer have to be paid out at the bank.") % {"count": count}
        yield Cause(kind=KIND, key=KIND, title=title, step=codes.REFUND, since=since)
