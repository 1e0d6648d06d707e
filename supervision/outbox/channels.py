"""Sends messages about incidents to operators' channels, at least once and in order for each incident.

1. `incidents.lifecycle` writes a row (`Telling`) for each channel in the transaction that changes the incident.
2. `Lane.turn` gives each channel with due rows a thread of its own, so that a channel without an answer delays no other.
3. A claim leases a row for the time of a try and raises `attempt`, the fencing token with which a failure is recorded. If the
   process dies, the lease ends and the row is sent again, under the same id. What was delivered is recorded in any case: a mail
   server that takes longer than the lease would get the message again and again.

A failed message is tried again after 5 s, doubling to an hour, for three days. A channel that fails gets one message at a time, so
most of its messages get no try of their own: while it fails for three days, or is switched off, they are given up at that age.
"""

from __future__ import annotations

import logging
import smtplib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from django.db import connection
from django.utils.translation import gettext as _

from supervision.models import Channel, Incident, Telling
from supervision.outbox import channel_texts
from supervision.outbox.webhooks import Caller, Outcome
from supervision.postgres import db, json_safe
from supervision.sealing.texts import Unreadable, usable

log = logging.getLogger(__name__)

THREADS = 8
LEASE_SECONDS = 120
LONGEST_WAIT_SECONDS, LONGEST_SILENCE_SECONDS = 3600, 300  # of a message, and of a channel that fails
LOGGED = 20  # tries that a row keeps
TIDY_SECONDS = 300.0
AT_ONCE = 5_000  # given up in one commit

_DUE = """
SELECT DISTINCT c.id FROM supervision_channel c JOIN supervision_telling t ON t.channel_id = c.id
 WHERE c.active AND t.delivered_at IS NULL AND t.given_up_at IS NULL AND t.not_before <= now()
   AND (c.retry_at IS NULL OR c.retry_at <= now()) AND c.id <> ALL (%(busy)s::bigint[])
"""
# The oldest message that waits for each incident comes first: its end is not told before its beginning.
_CLAIM = """
WITH due AS MATERIALIZED (
    SELECT t.id FROM supervision_telling t JOIN supervision_channel c ON c.id = t.channel_id
     WHERE t.channel_id = %(channel)s AND (%(only)s::bigint IS NULL OR t.id = %(only)s) AND t.delivered_at IS NULL
       AND t.given_up_at IS NULL AND t.not_before <= now() AND c.active
       AND (%(only)s::bigint IS NOT NULL OR c.retry_at IS NULL OR c.retry_at <= now())
       AND NOT EXISTS (SELECT FROM supervision_telling e
                        WHERE e.channel_id = t.channel_id AND e.incident_id = t.incident_id AND e.id < t.id
                          AND e.delivered_at IS NULL AND e.given_up_at IS NULL)
     ORDER BY t.id LIMIT 1 FOR UPDATE OF t SKIP LOCKED)
UPDATE supervision_telling t SET attempt = t.attempt + 1, not_before = now() + %(lease)s::float8 * interval '1 s'
  FROM due WHERE t.id = due.id
RETURNING t.id, t.attempt
"""
_RECORD = """
WITH done AS (
    UPDATE supervision_telling t
       SET delivered_at = CASE WHEN %(delivered)s THEN now() END,
           given_up_at = CASE WHEN NOT %(delivered)s AND (created_at < now() - interval '3 days' OR event = 'test') THEN now() END,
           not_before = now() + least(5 * 2 ^ least(attempt - 1, 12), %(longest)s) * interval '1 s',
           status_code = %(status)s::int, last_error = %(error)s,
           log = (CASE WHEN jsonb_array_length(log) >= %(logged)s THEN log - 0 ELSE log END)
                 || jsonb_build_object('at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'try', attempt,
                                       'status', %(status)s::int, 'error', %(error)s::text, 'seconds', %(seconds)s::float8)
     WHERE id = %(id)s AND (%(delivered)s OR attempt = %(attempt)s) AND delivered_at IS NULL AND given_up_at IS NULL
    RETURNING channel_id)
UPDATE supervision_channel c
   SET failures = CASE WHEN %(delivered)s THEN 0 ELSE failures + 1 END,
       failing_since = CASE WHEN %(delivered)s THEN NULL ELSE coalesce(failing_since, now()) END,
       retry_at = CASE WHEN %(delivered)s THEN NULL ELSE now() + least(5 * 2 ^ least(failures, 6), %(silence)s) * interval '1 s' END,
       last_error = %(error)s, sent_at = CASE WHEN %(delivered)s THEN now() ELSE sent_at END
  FROM done WHERE c.id = done.channel_id
RETURNING c.id
"""
# A message that is old because no process sent it is still tried.
_GIVE_UP = """
WITH old AS MATERIALIZED (
    SELECT o.id FROM supervision_channel c CROSS JOIN LATERAL (
        SELECT t.id FROM supervision_telling t
         WHERE t.channel_id = c.id AND t.delivered_at IS NULL AND t.given_up_at IS NULL AND t.not_before <= now()
           AND t.created_at < now() - interval '3 days'
         ORDER BY t.id LIMIT %(limit)s) o
     WHERE NOT c.active OR c.failing_since < now() - interval '3 days' LIMIT %(limit)s),
given_up AS (
    UPDATE supervision_telling t SET given_up_at = now(), last_error = %(why)s
     WHERE t.id = ANY (ARRAY(SELECT id FROM old)) AND t.delivered_at IS NULL AND t.given_up_at IS NULL AND t.not_before <= now())
SELECT count(*) FROM old
"""


class Lane:
    """The channels that one process is sending to, each on a thread of its own."""

    def __init__(self) -> None:
        self.stopping = False
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="channel")
        self._busy: set[int] = set()
        self._lock = threading.Lock()
        self._tidied = float("-inf")

    def turn(self) -> int:
        """Begin to send to every channel with due messages that is not being sent to; returns how many."""
        if time.monotonic() - self._tidied > TIDY_SECONDS:
            self._tidied = time.monotonic()
            give_up_old()
        with self._lock:
            if self.stopping:
                return 0
            found = [row[0] for row in db.run(_DUE, {"busy": sorted(self._busy)})]
            self._busy.update(found)
        for channel in found:
            self._pool.submit(self._serve, channel)
        return len(found)

    def drain(self) -> None:
        """Wait until the tries under way are recorded; begin no more."""
        self.stopping = True
        self._pool.shutdown(wait=True)

    def _serve(self, channel: int) -> None:
        try:
            while not self.stopping and send_next(channel):
                pass
        except Exception:
            log.exception("channel %s: its messages are tried again later", channel)
        finally:
            connection.close()
            with self._lock:
                self._busy.discard(channel)


def give_up_old() -> None:
    """Give up what is older than three days and waits for a channel that has failed for that long, or is switched off."""
    facts = {"why": _("for three days its receiver was not there, or it was removed"), "limit": AT_ONCE}
    while db.run(_GIVE_UP, facts)[0][0] == AT_ONCE:
        pass


def send_next(channel: int, only: int | None = None) -> bool:
    """Try to send the channel's next due message, or only this one. False if there was none, or it failed."""
    rows = db.run(_CLAIM, {"channel": channel, "only": only, "lease": LEASE_SECONDS})
    if not rows:
        return False
    telling = Telling.objects.select_related("channel").get(pk=rows[0][0])
    outcome = _try(telling)
    facts = {
        "id": telling.pk,
        "attempt": rows[0][1],
        "delivered": outcome.delivered,
        "status": outcome.status_code,
        "error": json_safe.text(outcome.error)[:500],
        "seconds": outcome.seconds,
        "logged": LOGGED,
        "longest": LONGEST_WAIT_SECONDS,
        "silence": LONGEST_SILENCE_SECONDS,
    }
    db.run(_RECORD, facts)
    return outcome.delivered


def send_test(channel: Channel) -> Telling:
    """Send the channel a test now, and return it with the result of its only try."""
    telling = Telling.objects.create(channel=channel, event=channel_texts.TEST)
    send_next(channel.pk, only=telling.pk)
    telling.refresh_from_db()
    return telling


def _try(telling: Telling) -> Outcome:
    """Try once. Any error is a failed try: else it would not be recorded, and the channel would never be left in peace."""
    channel, began = telling.channel, time.monotonic()
    try:
        usable(channel.address), usable(channel.secret)
        return _send(channel, telling)
    except Unreadable as problem:
        log.warning("channel %s: %s", channel, problem)
        return Outcome(False, False, error=str(problem))
    except Exception as error:
        log.exception("channel %s: could not send a message", channel)
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return Outcome(False, False, error=words, seconds=round(time.monotonic() - began, 3))


def _send(channel: Channel, telling: Telling) -> Outcome:
    incident = Incident.objects.filter(pk=telling.incident_id).first() if telling.incident_id else None
    if channel.kind == Channel.Kind.MAIL:
        return _mail(channel, telling, incident)
    address = {Channel.Kind.SLACK.value: channel.secret, Channel.Kind.PAGERDUTY.value: channel.address or channel_texts.PAGERDUTY}
    caller = Caller(address.get(channel.kind, channel.address), channel.secret if channel.kind == Channel.Kind.WEBHOOK else "")
    try:
        return caller.send(channel_texts.message_id(telling), channel_texts.body(channel, telling, incident))
    finally:
        caller.close()


def _mail(channel: Channel, telling: Telling, incident: Incident | None) -> Outcome:
    began = time.monotonic()
    try:
        channel_texts.mail(channel, telling, incident).send()
    except (OSError, smtplib.SMTPException) as problem:
        code = problem.smtp_code if isinstance(problem, smtplib.SMTPResponseException) else None
        return Outcome(False, code is not None, code, " ".join(str(problem).split()), round(time.monotonic() - began, 3))
    return Outcome(True, True, 250, "", round(time.monotonic() - began, 3))
