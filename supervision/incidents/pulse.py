"""Writes the figures of each minute, and what the incidents hold, so that no page has to count a large table.

It runs at the end of `lifecycle.look`, under the same lock. The last minutes are counted again, because a transaction may commit
after its minute is over. After a standstill, or on an old database, the missing minutes of the last week are counted, an hour at a
time. On a new database the first minute is that of the first order that ended or stopped.
"""

from __future__ import annotations

import json

from supervision.incidents import lifecycle
from supervision.postgres import db

BASE, FACTOR, LAST = 0.1, 1.25, 80  # class n holds the durations up to BASE * FACTOR ** n seconds
EVERY = "interval '10 seconds'"
FINAL = "interval '10 minutes'"  # so long before the newest minute nothing is counted again
COUNTED_AT_ONCE = 50  # incidents whose worth one look adds up

# Minutes in the future were written by a clock that ran ahead and was put back. They stay, because `corrected_clock` looks for them and
# orders ended in them. All that such a clock has written of the minutes up to now is counted again, and leaves the totals (`undone`).
_MINUTES = f"""
WITH clock AS (SELECT date_trunc('minute', now()) AS this, EXISTS (SELECT FROM supervision_pulse WHERE minute > now()) AS was_ahead),
newest AS (SELECT minute, recorded_at FROM supervision_pulse WHERE minute <= now() ORDER BY minute DESC LIMIT 1),
doubtful AS (SELECT min(minute) AS minute FROM supervision_pulse
              WHERE (SELECT was_ahead FROM clock) AND recorded_at > now() AND minute <= now()),
begins AS (SELECT c.this, greatest(c.this - interval '7 days',
                                   coalesce(least(n.minute - interval '2 minutes', d.minute), b.minute, c.this)) AS first
             FROM clock c CROSS JOIN doubtful d LEFT JOIN newest n ON true
             LEFT JOIN LATERAL (
                  SELECT date_trunc('minute', least((SELECT min(finished_at) FROM supervision_run WHERE finished_at IS NOT NULL),
                                                    (SELECT min(raised_at) FROM supervision_alert WHERE kind = 'error')))
                   WHERE n.minute IS NULL AND NOT c.was_ahead) b(minute) ON true
            WHERE n.minute IS NULL OR n.minute < c.this OR n.recorded_at < now() - {EVERY} OR n.recorded_at > now()),
span AS MATERIALIZED (SELECT first, least(this, first + interval '1 hour') AS last FROM begins),
undone AS MATERIALIZED (
    SELECT p.* FROM span CROSS JOIN supervision_pulsetotal t JOIN supervision_pulse p ON p.minute >= span.first AND p.minute < t.until),
c AS (SELECT c.class, sum(c.n) AS n FROM undone u CROSS JOIN LATERAL unnest(u.classes, u.counts) c(class, n) GROUP BY c.class),
total AS (
    UPDATE supervision_pulsetotal t
       SET until = span.first, processed = t.processed - s.processed, cancelled = t.cancelled - s.cancelled,
           stopped = t.stopped - s.stopped, seconds = t.seconds - s.seconds,
           counts = ARRAY(SELECT coalesce(t.counts[i + 1], 0) - coalesce(c.n, 0)
                            FROM generate_series(0, {LAST}) i LEFT JOIN c ON c.class = i ORDER BY i)
      FROM span CROSS JOIN (
           SELECT coalesce(sum(processed), 0) AS processed, coalesce(sum(cancelled), 0) AS cancelled,
                  coalesce(sum(stopped), 0) AS stopped, coalesce(sum(seconds), 0) AS seconds FROM undone) s
     WHERE t.until > span.first),
ended AS (
    SELECT minute, sum(n) FILTER (WHERE process_state = 'Processed') AS processed,
           sum(n) FILTER (WHERE process_state = 'Cancelled') AS cancelled,
           sum(seconds) FILTER (WHERE process_state = 'Processed') AS seconds,
           array_agg(class ORDER BY class) FILTER (WHERE process_state = 'Processed') AS classes,
           array_agg(n ORDER BY class) FILTER (WHERE process_state = 'Processed') AS counts
      FROM (SELECT date_trunc('minute', r.finished_at) AS minute, r.process_state, count(*)::int AS n,
                   sum(extract(epoch FROM r.finished_at - r.created_at)::float8) AS seconds,
                   greatest(0, least({LAST}, ceil(ln(greatest(extract(epoch FROM r.finished_at - r.created_at)::float8, {BASE}) / {BASE})
                                                  / ln({FACTOR}::float8))))::smallint AS class
              FROM supervision_run r
             WHERE r.finished_at >= (SELECT first FROM span) AND r.finished_at < (SELECT last FROM span) + interval '1 minute'
               AND r.parent_key IS NULL
             GROUP BY 1, 2, 5) one
     GROUP BY minute),
failed AS (
    SELECT date_trunc('minute', a.raised_at) AS minute, count(*) AS n FROM supervision_alert a
     WHERE a.kind = 'error' AND a.raised_at >= (SELECT first FROM span) AND a.raised_at < (SELECT last FROM span) + interval '1 minute'
     GROUP BY 1)
INSERT INTO supervision_pulse (minute, recorded_at, processed, cancelled, stopped, classes, counts, seconds)
SELECT m.minute, now(), coalesce(e.processed, 0), coalesce(e.cancelled, 0), coalesce(f.n, 0),
       coalesce(e.classes, '{{}}'), coalesce(e.counts, '{{}}'), coalesce(e.seconds, 0)
  FROM span CROSS JOIN LATERAL generate_series(span.first, span.last, interval '1 minute') m(minute)
  LEFT JOIN ended e ON e.minute = m.minute
  LEFT JOIN failed f ON f.minute = m.minute
ON CONFLICT (minute) DO UPDATE SET recorded_at = now(), processed = excluded.processed, cancelled = excluded.cancelled,
       stopped = excluded.stopped, classes = excluded.classes, counts = excluded.counts, seconds = excluded.seconds
RETURNING minute = date_trunc('minute', now())
"""  # noqa: S608 - constants of ours

# What waits longest: a due step among the first by their turn, or a submission that was not taken up.
_NOW = """
UPDATE supervision_pulse p
   SET oldest_seconds = greatest(p.oldest_seconds, 0, extract(epoch FROM now() - least(
           (SELECT min(s.not_before) FROM (
                   SELECT not_before FROM supervision_stepstate
                    WHERE process_state = 'Pending' AND not_before IS NOT NULL AND turn_at <= now() ORDER BY turn_at LIMIT 1000) s),
           (SELECT min(u.created_at) FROM (
                   SELECT created_at FROM supervision_submission WHERE consumed_at IS NULL ORDER BY id LIMIT 1000) u)))),
       incidents = coalesce((SELECT jsonb_object_agg(i.id, i.orders) FROM supervision_incident i WHERE i.closed_at IS NULL), '{}')
 WHERE p.minute = date_trunc('minute', now())
"""
# The totals hold the minutes that are not counted again, so that a scrape of `/metrics` adds up few rows.
_BEGIN_TOTAL = "INSERT INTO supervision_pulsetotal (id, until) VALUES (1, 'epoch') ON CONFLICT DO NOTHING"
_FOLD = f"""
WITH p AS MATERIALIZED (
    SELECT p.* FROM supervision_pulse p, supervision_pulsetotal t
     WHERE p.minute >= t.until AND p.minute < least((SELECT max(minute) FROM supervision_pulse), now()) - {FINAL}),
s AS (SELECT max(minute) AS newest, sum(processed) AS processed, sum(cancelled) AS cancelled, sum(stopped) AS stopped,
             sum(coalesce(seconds, 0)) AS seconds FROM p),
c AS (SELECT c.class, sum(c.n) AS n FROM p CROSS JOIN LATERAL unnest(p.classes, p.counts) c(class, n) GROUP BY c.class)
UPDATE supervision_pulsetotal t
   SET until = s.newest + interval '1 minute', processed = t.processed + s.processed, cancelled = t.cancelled + s.cancelled,
       stopped = t.stopped + s.stopped, seconds = t.seconds + s.seconds,
       counts = ARRAY(SELECT coalesce(t.counts[i + 1], 0) + coalesce(c.n, 0)
                        FROM generate_series(0, {LAST}) i LEFT JOIN c ON c.class = i ORDER BY i)
  FROM s WHERE s.newest IS NOT NULL
"""  # noqa: S608 - constants of ours
_FORGET = "DELETE FROM supervision_pulse WHERE minute < now() - interval '8 days'"

_TO_COUNT = f"""
SELECT id, kind, cause FROM supervision_incident
 WHERE closed_at IS NULL AND orders > 0 AND (held_at IS NULL OR held_at < now() - {EVERY} OR held_at > now())
 ORDER BY held_at NULLS FIRST LIMIT {COUNTED_AT_ONCE}
"""  # noqa: S608 - constants of ours
_HELD = "UPDATE supervision_incident SET held = %(held)s::jsonb, held_at = now() WHERE id = %(id)s"


@lifecycle.after_looking
def record() -> None:
    """Bring the rows of the minutes up to now, unless that was done a moment ago."""
    written = [now for (now,) in db.fetch(_MINUTES)]
    if any(written):
        db.fetch(_NOW)
        db.fetch(_BEGIN_TOTAL)
        db.fetch(_FOLD)
        db.fetch(_FORGET)


@lifecycle.after_looking
def weigh() -> None:
    """Write down what the orders of each open incident are worth."""
    for number, kind, cause in db.fetch(_TO_COUNT):
        held = [[str(amount), currency] for currency, amount in lifecycle.held(lifecycle.runs_of(kind, cause))]
        db.fetch(_HELD, {"id": number, "held": json.dumps(held)})
