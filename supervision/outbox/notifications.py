"""The outbox: notifications to people and systems outside. Each is delivered after the commit that made it true, at least once.

One handler per kind delivers, outside any transaction. A claim leases the row for LEASE_SECONDS: if the process dies, another one
delivers after that time. A failed delivery is retried after 5 s, doubling to an hour. A notification
that its receiver refuses for good is given up after the first answer, any other failing one when the kind's time limit is
over. A kind without a time limit is never given up. A kind that this process does not know is left to processes of a newer
release; `incidents.causes` tells of one that stays. A notification's id is stable, so that a receiver can recognise a
repetition. Status messages are not delivered here: `deliveries` makes one row per receiver for them, so that a dead
receiver does not delay the others.

Handlers that call a service for longer than a mail takes are registered with `calls`. Those of urgent mails, to operators about
incidents and to customers about their sign-in, are registered with `soon`. The delivery worker gives each of these lanes a thread
of its own, so that a slow service delays no mail, and the mails of many orders that are cancelled at once delay no urgent one.
"""

from __future__ import annotations

import logging
import smtplib
import time
from collections.abc import Callable
from datetime import timedelta
from email.utils import parseaddr

from django.conf import settings

from supervision.incidents.causes import delivered_kinds
from supervision.models import Notification
from supervision.postgres import db, json_safe
from supervision.telemetry.masking import without_addresses

log = logging.getLogger(__name__)

Handler = Callable[[Notification], None]
_handlers: dict[str, Handler] = {}
_patience: dict[str, timedelta | None] = {}
CALLS, SOON, OTHERS = "calls", "soon", "others"  # the lanes
_lanes: dict[str, set[str]] = {CALLS: set(), SOON: set()}  # their kinds; every other kind is one of the others

# The cost must not follow the rows that this process leaves to others: those of kinds that it does not know, of other lanes, and of
# hooks. So each kind is looked up by itself, in an index that begins with it. The kinds are sorted by their oldest row, and the row
# is locked only when its kind's turn comes: the claim locks nothing that it does not take. The index about `not_before` alone has
# all kinds. The planner cannot choose that one: its condition does not follow from `coalesce`.
_WAITS = "kind NOT IN ('status', 'hook') AND coalesce(delivered_at, given_up_at) IS NULL AND not_before <= now()"
_CLAIM = f"""
WITH due AS MATERIALIZED (
    SELECT n.id
      FROM (SELECT k.kind, f.not_before
              FROM unnest(%(kinds)s::text[]) k(kind) CROSS JOIN LATERAL (
                   SELECT not_before FROM supervision_notification
                    WHERE kind = k.kind AND {_WAITS} ORDER BY not_before LIMIT 1) f
             ORDER BY f.not_before) k
     CROSS JOIN LATERAL (
           SELECT id FROM supervision_notification
            WHERE kind = k.kind AND {_WAITS} ORDER BY not_before LIMIT 1 FOR UPDATE SKIP LOCKED) n
     ORDER BY k.not_before LIMIT 1)
UPDATE supervision_notification n
   SET tries = n.tries + 1, not_before = now() + %(lease)s::float8 * interval '1 s'
  FROM due WHERE n.id = due.id
RETURNING n.id, n.tries
"""  # noqa: S608 - our own condition
# A try whose lease is over may fail while the next one is under way: `tries` tells them apart.
_FAILED = """
UPDATE supervision_notification
   SET last_error = %(error)s, not_before = now() + least(5 * 2 ^ least(tries - 1, 12), %(longest)s) * interval '1 s',
       given_up_at = CASE WHEN %(refused)s OR created_at < now() - %(within)s::float8 * interval '1 s' THEN now() END
 WHERE id = %(id)s AND tries = %(tries)s AND delivered_at IS NULL
"""
LONGEST_WAIT_SECONDS = 3600
LEASE_SECONDS = 120.0  # longer than a try takes: a mail server may answer each command late, a handler may call several services


def mail_domain() -> str:
    """The domain in our mails' Message-IDs: that of the sender."""
    return parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"


def handler(kind: str, *, within: timedelta | None = None, calls: bool = False, soon: bool = False) -> Callable[[Handler], Handler]:
    """Register the function that delivers notifications of this kind. The function raises when it could not deliver.

    within: a failing notification older than this is given up. One that its receiver refuses for good (a 5xx of a mail
    server) is given up at once. None: it is retried until it succeeds.
    calls: the function calls a service and may take long. soon: it sends an urgent mail. See the module.
    """

    def register(function: Handler) -> Handler:
        _handlers[kind] = function
        delivered_kinds.add(kind)
        _patience[kind] = within
        for lane, chosen in ((CALLS, calls), (SOON, soon)):
            (_lanes[lane].add if chosen else _lanes[lane].discard)(kind)
        return function

    return register


def deliver_due(limit: int = 100, *, patience: float = 5.0, lane: str | None = None) -> int:
    """Deliver due notifications; returns how many were delivered. Each try leases its row, so that no other process begins it meanwhile.

    Rows are claimed one at a time, so that no lease runs out during the other deliveries. No delivery begins after
    `patience` seconds, so that the caller does not wait long for a mail server. The rest stays due. lane: deliver only the
    kinds of this lane; None: all.
    """
    until = time.monotonic() + patience
    kinds = kinds_of(lane)
    delivered = 0
    for _turn in range(limit):
        rows = db.run(_CLAIM, {"kinds": kinds, "lease": LEASE_SECONDS})
        if not rows:
            break
        pk, tries = rows[0]
        delivered += _deliver(Notification.objects.get(pk=pk), tries)
        if time.monotonic() > until:
            break
    return delivered


def kinds_of(lane: str | None = None) -> list[str]:
    """The kinds that this process knows, in this lane or in all of them."""
    if lane in _lanes:
        return sorted(_lanes[lane])
    return sorted(_handlers if lane is None else set(_handlers).difference(*_lanes.values()))


def _deliver(notification: Notification, tries: int) -> bool:
    try:
        _handlers[notification.kind](notification)
    except Exception as error:
        words = without_addresses(json_safe.text(str(error)))
        log.warning("notification %s (%s) was not delivered: %s", notification.pk, notification.kind, words)
        within = _patience.get(notification.kind)
        facts = {
            "id": notification.pk,
            "tries": tries,
            "error": words[:2000],
            "refused": within is not None and _is_refusal(error),
            "within": None if within is None else within.total_seconds(),
            "longest": LONGEST_WAIT_SECONDS,
        }
        db.run(_FAILED, facts)
        return False
    db.run(
        "UPDATE supervision_notification SET delivered_at = now(), given_up_at = NULL, last_error = '' WHERE id = %(id)s",
        {"id": notification.pk},
    )
    return True


def _is_refusal(error: Exception) -> bool:
    """Whether a mail server refused this message for good: any 5xx except those that ask for other credentials."""
    match error:
        case smtplib.SMTPRecipientsRefused():
            codes = [code for code, _words in error.recipients.values()]
        case smtplib.SMTPAuthenticationError():
            return False
        case smtplib.SMTPResponseException():
            codes = [error.smtp_code]
        case _:
            return False
    return bool(codes) and all(500 <= code < 600 and code not in (530, 534, 535, 538) for code in codes)


@handler("alert")
@handler("journal-trouble")
def told_by_an_incident(notification: Notification) -> None:
    """Deliver nothing. An older version wrote rows of these kinds; today the incident's mail reports the same facts."""
