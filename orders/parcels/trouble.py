"""The incidents about parcels: each parcel is told to the operators once, until one of them acknowledges it or two weeks are over.

More than ONE_BY_ONE parcels in the same trouble are one incident: then the carrier is in trouble, not a parcel. If it is
acknowledged, only parcels whose trouble began later are told.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from orders.parcels.states import CAME_BACK, NOT_OURS, NOT_STOPPED, SILENT
from supervision.incidents.lifecycle import Cause, detector
from supervision.postgres import db

KIND = "parcel"
ONE_BY_ONE = 20  # parcels in the same trouble that have an incident each
COUNTED = 10_000  # parcels that one look reads; the newest come first

# By its own index, which holds the parcels in trouble alone.
_IN_TROUBLE = """
WITH told AS (
    SELECT p.* FROM orders_parcel p
     WHERE p.trouble IS NOT NULL AND p.trouble_at > now() - interval '14 days'
       AND NOT EXISTS (SELECT FROM supervision_incident i
                        WHERE i.cause = 'parcel:' || p.trouble || ':' || p.key AND i.acknowledged_at IS NOT NULL)
       AND NOT EXISTS (SELECT FROM supervision_incident i
                        WHERE i.cause = 'parcel:' || p.trouble AND greatest(i.acknowledged_at, i.seen_at) >= p.trouble_at)
     ORDER BY p.trouble_at DESC LIMIT %(counted)s),
ranked AS (
    SELECT key, order_key, coalesce(nullif(tracking_number, ''), key) AS name, trouble, trouble_at,
           count(*) OVER w AS together, min(trouble_at) OVER w AS first, row_number() OVER (w ORDER BY trouble_at DESC, key) AS rank
      FROM told WINDOW w AS (PARTITION BY trouble))
SELECT key, order_key, name, trouble, trouble_at, together, first FROM ranked
 WHERE rank <= CASE WHEN together > %(one_by_one)s THEN 1 ELSE %(one_by_one)s END
"""


@detector(KIND)
def in_trouble() -> Iterator[Cause]:
    """Parcels that come back, that are on their way for a cancelled order, of which no end was heard, or that are unknown."""
    for key, order, name, trouble, since, together, first in db.fetch(_IN_TROUBLE, {"counted": COUNTED, "one_by_one": ONE_BY_ONE}):
        if together > ONE_BY_ONE:
            title = _titles_of_many()[trouble] % {"parcels": together}
            yield Cause(kind=KIND, key=f"{KIND}:{trouble}", title=title, resource="carrier", code=trouble, since=first)
        else:
            title = _titles()[trouble] % {"parcel": name, "order": order}
            yield Cause(kind=KIND, key=f"{KIND}:{trouble}:{key}", title=title, resource="carrier", code=trouble, since=since)


def _titles() -> dict[str, str]:
    return {
        CAME_BACK: _("The parcel %(parcel)s of %(order)s comes back."),
        NOT_STOPPED: _("The parcel %(parcel)s of %(order)s is on its way, although it is cancelled."),
        NOT_OURS: _("The carrier tells of the parcel %(parcel)s, and the shop has booked nothing under this key."),
        SILENT: _("The carrier tells no end of the parcel %(parcel)s of %(order)s."),
    }


def _titles_of_many() -> dict[str, str]:
    return {
        CAME_BACK: _("%(parcels)d parcels come back."),
        NOT_STOPPED: _("%(parcels)d parcels are on their way, although they are cancelled."),
        NOT_OURS: _("The carrier tells of %(parcels)d parcels that the shop has not booked."),
        SILENT: _("The carrier tells no end of %(parcels)d parcels."),
    }
