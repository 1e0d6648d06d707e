"""Brings times forward that lie too far ahead because the database's clock was put back: by a failover to a host whose clock is
behind, or by an operator who corrects a clock that ran ahead.

A row of the outbox, a breaker or a slot whose next time was set before the jump would wait for the whole jump. So a row whose time
lies further ahead than its own longest delay is due now. The delay of a new row that was never tried counts from now, and its
`created_at` is set to now, so that the next sweep does not change it again.

The minutes of `incidents.pulse` show that a clock ran ahead: the leading supervisor writes one each minute, so a minute in the
future was written by such a clock. A sweep without one costs one look at an index. While there is one, each sweep reads all tables.
It skips rows that another process has locked; the next sweep takes them.
"""

from __future__ import annotations

import logging

from supervision.breaker import PROBE_SECONDS
from supervision.governance import resources
from supervision.outbox import channels, deliveries, notifications
from supervision.postgres import db
from supervision.recovery.failures import CLOCK_SLACK
from supervision.store.bounds import put_back

log = logging.getLogger(__name__)

_WAS_AHEAD = "SELECT EXISTS (SELECT FROM supervision_pulse WHERE minute > now() + %(slack)s::float8 * interval '1 s')"


def _again(tries: str, longest: int | float, least: float) -> str:
    """The longest time for which a row that was tried so often is put off: its lease, or its back-off."""
    return f"greatest({least}, least(5 * 2 ^ least(greatest({tries} - 1, 0), 20), {longest})) * interval '1 s'"


_NOTIFICATIONS = f"""
UPDATE supervision_notification n
   SET not_before = CASE n.tries WHEN 0 THEN n.not_before - (n.created_at - now()) ELSE now() END, created_at = least(n.created_at, now())
 WHERE n.id = ANY (ARRAY(
    SELECT id FROM supervision_notification
     WHERE delivered_at IS NULL AND given_up_at IS NULL AND NOT (kind = 'status') AND not_before > now()
       AND CASE tries WHEN 0 THEN created_at > now() + %(slack)s::float8 * interval '1 s'
                      ELSE not_before > now() + {_again("tries", notifications.LONGEST_WAIT_SECONDS, notifications.LEASE_SECONDS)} END
       FOR UPDATE SKIP LOCKED))
   AND n.delivered_at IS NULL AND n.given_up_at IS NULL
"""  # noqa: S608 - our own numbers, as below
_DELIVERIES = f"""
UPDATE supervision_delivery d SET not_before = now()
 WHERE d.id = ANY (ARRAY(
    SELECT id FROM supervision_delivery
     WHERE delivered_at IS NULL AND given_up_at IS NULL
       AND not_before > now() + {_again("tries", deliveries.LONGEST_WAIT_SECONDS, deliveries.LEASE_SECONDS)}
       FOR UPDATE SKIP LOCKED))
   AND d.delivered_at IS NULL AND d.given_up_at IS NULL
"""  # noqa: S608
_TELLINGS = f"""
UPDATE supervision_telling t SET not_before = now()
 WHERE t.id = ANY (ARRAY(
    SELECT id FROM supervision_telling
     WHERE delivered_at IS NULL AND given_up_at IS NULL
       AND not_before > now() + {_again("attempt", channels.LONGEST_WAIT_SECONDS, channels.LEASE_SECONDS)}
       FOR UPDATE SKIP LOCKED))
   AND t.delivered_at IS NULL AND t.given_up_at IS NULL
"""  # noqa: S608
_ENDPOINTS = """
UPDATE supervision_webhookendpoint SET retry_at = now()
 WHERE id = ANY (ARRAY(SELECT id FROM supervision_webhookendpoint WHERE retry_at > now() + %(webhook)s::float8 * interval '1 s'
                          FOR UPDATE SKIP LOCKED))
"""
_CHANNELS = """
UPDATE supervision_channel SET retry_at = now()
 WHERE id = ANY (ARRAY(SELECT id FROM supervision_channel WHERE retry_at > now() + %(channel)s::float8 * interval '1 s'
                          FOR UPDATE SKIP LOCKED))
"""
# What has happened is moved to now: a failure in the future would outlast every later success. The rate keeps its pace from now on.
_RESOURCES = """
UPDATE supervision_resource r
   SET retry_at = CASE WHEN r.retry_at > now() + (r.cool_down_seconds + 1) * interval '1 s' THEN now() ELSE r.retry_at END,
       probes_until = CASE WHEN r.probes_until > now() + %(probe)s::float8 * interval '1 s' THEN now() ELSE r.probes_until END,
       next_call_at = CASE WHEN r.next_call_at > now() + f.far THEN now() ELSE r.next_call_at END,
       opened_at = least(r.opened_at, now()), last_error_at = least(r.last_error_at, now()), successes = f.successes
  FROM (SELECT name, (%(slack)s::float8 + 2 / coalesce(rate_per_second, 1)) * interval '1 s' AS far,
               coalesce((SELECT jsonb_agg(at) FROM jsonb_array_elements(successes) at
                          WHERE at::float8 <= extract(epoch FROM now())), '[]') AS successes
          FROM supervision_resource FOR UPDATE SKIP LOCKED) f
 WHERE f.name = r.name
   AND (r.retry_at > now() + (r.cool_down_seconds + 1) * interval '1 s' OR r.probes_until > now() + %(probe)s::float8 * interval '1 s'
        OR r.next_call_at > now() + f.far OR r.opened_at > now() OR r.last_error_at > now()
        OR jsonb_array_length(f.successes) < jsonb_array_length(r.successes))
RETURNING r.name
"""
_SLOTS = """
UPDATE supervision_slot SET until = until - (taken_at - now()), taken_at = now()
 WHERE id = ANY (ARRAY(SELECT id FROM supervision_slot WHERE taken_at > now() + %(slack)s::float8 * interval '1 s' FOR UPDATE SKIP LOCKED))
"""
_CACHED = """
UPDATE supervision_cachedresult SET refresh_at = now(), expires_at = expires_at - (fetched_at - now()), fetched_at = now()
 WHERE id = ANY (ARRAY(SELECT id FROM supervision_cachedresult WHERE fetched_at > now() + %(slack)s::float8 * interval '1 s'
                          FOR UPDATE SKIP LOCKED))
"""
# A process that died would look alive, and the canaries would have no next round.
_HEARTBEATS = """
UPDATE supervision_heartbeat SET seen_at = now()
 WHERE incarnation = ANY (ARRAY(SELECT incarnation FROM supervision_heartbeat
                                 WHERE seen_at > now() + %(slack)s::float8 * interval '1 s' FOR UPDATE SKIP LOCKED))
"""

_ALL = (_NOTIFICATIONS, _DELIVERIES, _TELLINGS, _ENDPOINTS, _CHANNELS, _RESOURCES, _SLOTS, _CACHED, _HEARTBEATS)


def look(limit: int) -> None:
    """Bring everything forward that would wait for a clock that has been put back. Each table in a commit of its own."""
    slack = CLOCK_SLACK.total_seconds()
    facts = {
        "slack": slack,
        "probe": 2 * PROBE_SECONDS,
        "webhook": deliveries.LONGEST_SILENCE_SECONDS,
        "channel": channels.LONGEST_SILENCE_SECONDS,
    }
    if not db.run(_WAS_AHEAD, {"slack": slack})[0][0]:
        return
    log.info("the database's clock has been put back; what would wait for it is due")
    while put_back.bring_forward(slack, limit) == limit:
        pass
    for statement in _ALL:
        db.run(statement, facts)
    resources.forget()
