"""The statements that open, count, close and announce incidents. Only `lifecycle` executes them, under one advisory lock."""

from __future__ import annotations

# Two supervisors may run the detectors at the same time. One of them is enough: the other one waits for its next sweep.
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('supervision incidents', 20261122))"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('supervision incidents', 20261122))"

_FOUND = """unnest(%(kinds)s::text[], %(causes)s::text[], %(titles)s::text[], %(severities)s::text[], %(resources)s::text[],
                %(steps)s::text[], %(codes)s::text[], %(orders)s::int[], %(sinces)s::timestamptz[])
         v(kind, cause, title, severity, resource, step, code, orders, since)"""

# The incidents whose causes still stand: their numbers, if they have changed.
UPDATE = f"""
UPDATE supervision_incident i SET orders = v.orders, title = v.title, severity = v.severity
  FROM {_FOUND}
 WHERE i.cause = v.cause AND i.closed_at IS NULL
   AND (i.orders, i.title, i.severity) IS DISTINCT FROM (v.orders, v.title, v.severity)
"""

# A cause that returns soon after its incident was closed reopens it; the incident has to be acknowledged again. What operators have
# seen already does not count again: `seen_at` keeps when that was.
REOPEN = f"""
UPDATE supervision_incident i
   SET closed_at = NULL, reopened_at = now(), seen_at = coalesce(i.acknowledged_at, i.seen_at),
       acknowledged_at = NULL, acknowledged_by = '', acknowledge_reason = '', orders = v.orders, title = v.title, severity = v.severity
  FROM {_FOUND}
 WHERE i.cause = v.cause AND i.closed_at > now() - %(again)s::float8 * interval '1 s'
   AND i.id = (SELECT c.id FROM supervision_incident c WHERE c.cause = v.cause AND c.closed_at IS NOT NULL
                ORDER BY c.closed_at DESC LIMIT 1)
   AND NOT EXISTS (SELECT FROM supervision_incident o WHERE o.cause = v.cause AND o.closed_at IS NULL)
RETURNING i.id
"""

# When operators last acknowledged an incident of this cause. A detector counts what happened later.
SEEN = """
coalesce((SELECT max(greatest(i.acknowledged_at, i.seen_at)) FROM supervision_incident i WHERE i.cause = {cause}), '-infinity')
""".strip()

# The unique constraint on open causes makes a second open incident impossible, also for concurrent supervisors.
OPEN = f"""
INSERT INTO supervision_incident (kind, cause, title, severity, resource, step, code, orders, opened_at)
SELECT v.kind, v.cause, v.title, v.severity, v.resource, v.step, v.code, v.orders, least(coalesce(v.since, now()), now())
  FROM {_FOUND}
 WHERE NOT EXISTS (SELECT FROM supervision_incident o WHERE o.cause = v.cause AND o.closed_at IS NULL)
ON CONFLICT DO NOTHING
RETURNING id
"""

# Of the kinds whose detectors ran, the causes that were not found are over.
CLOSE = """
UPDATE supervision_incident SET closed_at = now(), orders = 0
 WHERE closed_at IS NULL AND kind = ANY (%(looked)s) AND cause <> ALL (%(causes)s)
RETURNING id
"""

_RANK = "coalesce(array_position(ARRAY['info', 'warning', 'critical'], {}), 0)"

# An incident is announced once when it opens. It is announced again only when it is worse than at any announcement before,
# or has stood again for INCIDENT_REOPEN_SECONDS after its end was announced. Each announcement is followed by one of its end.
TELL = f"""
WITH t AS (
    SELECT id, CASE WHEN {_RANK.format("told_severity")} = 0 THEN 'opened'
                    WHEN {_RANK.format("severity")} > {_RANK.format("told_severity")} THEN 'worse' ELSE 'again' END AS event
      FROM supervision_incident
     WHERE closed_at IS NULL AND severity <> 'info'
       AND ({_RANK.format("severity")} > {_RANK.format("told_severity")}
            OR (told_closed_at IS NOT NULL AND reopened_at < now() - %(again)s::float8 * interval '1 s')))
UPDATE supervision_incident i SET notified_at = now(), told_severity = i.severity, told_closed_at = NULL
  FROM t WHERE i.id = t.id
RETURNING i.id, t.event
"""
TELL_CLOSED = """
UPDATE supervision_incident SET notified_at = now(), told_closed_at = now()
 WHERE closed_at > now() - interval '1 day' AND told_severity <> '' AND told_closed_at IS NULL
RETURNING id, 'closed'
"""
NOTIFY = """
INSERT INTO supervision_notification (kind, payload)
SELECT 'incident', v.payload FROM unnest(%(payloads)s::jsonb[]) v(payload)
"""

# One message for each channel that gets incidents of this severity and kind. A channel that got the beginning of an incident also
# gets its end. If the channel is switched off now, the message waits. PagerDuty also gets the acknowledgement.
TELL_CHANNELS = f"""
INSERT INTO supervision_telling (channel_id, incident_id, event, severity)
SELECT c.id, i.id, v.event, i.severity
  FROM unnest(%(incidents)s::bigint[], %(events)s::text[]) v(incident, event)
  JOIN supervision_incident i ON i.id = v.incident
  JOIN supervision_channel c ON c.active OR v.event = 'closed'
 WHERE CASE WHEN v.event IN ('closed', 'acknowledged')
            THEN (v.event = 'closed' OR c.kind = 'pagerduty')
                 AND EXISTS (SELECT FROM supervision_telling t WHERE t.incident_id = i.id AND t.channel_id = c.id)
            ELSE {_RANK.format("i.severity")} >= {_RANK.format("c.least")} AND (c.kinds = '[]'::jsonb OR c.kinds ? i.kind)
                 AND NOT (i.kind = 'channel_failed' AND i.resource = c.id::text) END
 ORDER BY i.id, c.id
"""

STANDING = "SELECT cause, id FROM supervision_incident WHERE closed_at IS NULL"

ACKNOWLEDGE = """
UPDATE supervision_incident SET acknowledged_at = now(), acknowledged_by = %(by)s, acknowledge_reason = %(reason)s
 WHERE id = %(id)s AND acknowledged_at IS NULL
RETURNING closed_at IS NULL
"""
ACKNOWLEDGE_ALERTS = """
UPDATE supervision_alert SET acknowledged_at = now(), acknowledged_by = %(by)s
 WHERE incident_id = %(id)s AND closed_at IS NULL AND acknowledged_at IS NULL
"""
