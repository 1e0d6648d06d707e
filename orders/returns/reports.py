"""A report on goods that were looked at already is refused at every door: the hook `on_signal` of the workflow `return-goods`.

No step would take it. It would be kept and change nothing, although its sender had been told that it was accepted.
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


def signalled(signals: Sequence[KeptSignal]) -> None:
    """Record the payouts that these signals tell. Raises Refused where one reports goods once more: then none of them is kept."""
    told.signalled(signals)
    reported = [signal.key for signal in signals if signal.name == codes.RECEIVED]
    if reported and db.fetch(_LOOKED_AT, {"step": codes.AWAIT, "returns": reported}):
        raise Refused(_("The goods of this return were looked at already: correct the report instead."), codes.REPORTED)
