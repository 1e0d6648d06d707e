"""A second report on the goods of a return is refused at every door: the hook `on_signal` of the workflow `return-goods`.

No step would take it, whether the first one was looked at or waits for that. It would be kept and change nothing, although its sender
had been told that it was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _

from orders.payments import told
from orders.returns import codes
from supervision.errors import Refused
from supervision.postgres import db
from supervision.workflow import KeptSignal

_LOOKED_AT = """
SELECT r.key FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = %(step)s
 WHERE r.key = ANY (%(returns)s::text[]) AND s.process_state || '' NOT IN ('Pending', 'Processing', 'Error')
"""
# Of two senders at the same moment, the second one waits here, and then sees the report of the first.
_LOCK = "SELECT FROM orders_return WHERE public_id = ANY (%(returns)s::text[]) ORDER BY public_id FOR NO KEY UPDATE"
_TWO_WAIT = """
SELECT run_key FROM supervision_signal WHERE run_key = ANY (%(returns)s::text[]) AND name = %(name)s AND taken_by IS NULL
 GROUP BY run_key HAVING count(*) > 1
"""


def signalled(signals: Sequence[KeptSignal]) -> None:
    """Record the payouts that these signals tell. Raises Refused where one reports goods once more: then none of them is kept."""
    told.signalled(signals)
    reported = [signal.key for signal in signals if signal.name == codes.RECEIVED]
    if not reported:
        return
    db.fetch(_LOCK, {"returns": reported})
    two_wait = db.fetch(_TWO_WAIT, {"returns": reported, "name": codes.RECEIVED})
    # Asked last: at any moment the step may take the first report and end, in one commit.
    if db.fetch(_LOOKED_AT, {"step": codes.AWAIT, "returns": reported}):
        raise Refused(_("The goods of this return were looked at already: correct the report instead."), codes.REPORTED)
    if two_wait:
        raise Refused(_("A report on the goods of this return has come already. Once it was looked at, correct it."), codes.REPORTED)
