"""The statements by which the audit finds orders that stand still (`liveness`). They share no condition with the engine's own."""

from __future__ import annotations

_BOUND = "%(bound)s::float8 * interval '1 s'"
_LATELY = f"now() - {_BOUND}"

# Pauses and closures that may hold a waiting step: they end by themselves, or ended within the bound.
_PAUSED = f"""EXISTS (
    SELECT FROM supervision_pause p
     WHERE (p.scope = 'all' OR (p.scope = 'agent' AND p.name = s.agent) OR (p.scope = 'workflow' AND p.name = r.workflow)
            OR (p.scope = 'order' AND (p.run_id = r.id OR p.name = r.key)))
       AND coalesce(least(p.lifted_at, p.until), 'infinity') > {_LATELY}
       AND (p.lifted_at IS NOT NULL OR p.until IS NOT NULL
            OR p.paused_at > {_LATELY} - %(pause_bound)s::float8 * interval '1 s'))"""
_CLOSED = f"""EXISTS (
    SELECT FROM unnest(%(agents)s::text[], %(services)s::text[]) a(agent, service)
      JOIN supervision_resource x ON CASE x.service WHEN '' THEN x.name ELSE x.service END = a.service
      JOIN supervision_closure c ON c.resource = x.name
     WHERE a.agent = s.agent
       AND (c.ended_at > {_LATELY}
            OR (c.ended_at IS NULL
                AND c.began_at > {_LATELY} - CASE WHEN x.paused THEN %(pause_bound)s ELSE 0 END::float8 * interval '1 s')))"""

RUNS = f"""
WITH taken AS MATERIALIZED (
    SELECT agent, max(turn_at) AS turn FROM supervision_stepstate
     WHERE turn_at IS NOT NULL AND started_at > {_LATELY} GROUP BY agent),
heads AS MATERIALIZED (
    SELECT session_key, coalesce(session_client, '') AS client, min(id) AS first FROM supervision_run
     WHERE session_key IS NOT NULL AND finished_at IS NULL GROUP BY 1, 2),
late AS MATERIALIZED (
    SELECT r.*, e.at FROM supervision_run r
      LEFT JOIN LATERAL (SELECT e.at FROM supervision_stepevent e WHERE e.run_id = r.id ORDER BY e.seq DESC LIMIT 1) e ON true
     WHERE r.process_state IN ('Pending', 'Processing', 'Error', 'Compensating') AND coalesce(e.at, r.created_at) < {_LATELY})
SELECT r.key, r.id, w.why, w.waits
  FROM late r
  LEFT JOIN LATERAL (
       SELECT * FROM supervision_stepstate s
        WHERE s.run_id = r.id AND (s.process_state = 'Processing' OR (s.process_state = 'Pending' AND s.not_before IS NOT NULL))
        ORDER BY s.process_state = 'Processing' DESC, s.not_before LIMIT 1) s ON r.process_state <> 'Error'
  LEFT JOIN taken t ON t.agent = s.agent
  LEFT JOIN heads h ON h.session_key = r.session_key AND h.client = coalesce(r.session_client, '')
 CROSS JOIN LATERAL (
       SELECT CASE
              WHEN NOT EXISTS (SELECT FROM supervision_stepstate b WHERE b.run_id = r.id) THEN 'it has no steps'
              WHEN r.process_state = 'Error' THEN CASE
                   WHEN NOT EXISTS (SELECT FROM supervision_alert a WHERE a.run_id = r.id AND a.kind = 'error' AND a.closed_at IS NULL)
                   THEN 'it is in Error without an open alert'
                   WHEN NOT EXISTS (SELECT FROM supervision_alert a JOIN supervision_incident i ON i.id = a.incident_id
                                     WHERE a.run_id = r.id AND a.kind = 'error' AND a.closed_at IS NULL AND i.closed_at IS NULL)
                   THEN 'it is in Error and no open incident says so' END
              WHEN s.run_id IS NULL THEN CASE
                   WHEN r.process_state <> 'Pending' OR r.session_key IS NULL THEN 'none of its steps can run'
                   WHEN h.first = r.id THEN 'it is the first of its session and was never released' END
              WHEN s.process_state = 'Processing' THEN
                   CASE WHEN s.complete_by < {_LATELY} THEN 'its running step is overdue and no supervisor has taken it back' END
              WHEN s.turn_at IS NULL AND s.awaits_until > {_LATELY} THEN NULL
              WHEN s.not_before > now() + interval '2 days' THEN 'its step waits for more than two days'
              WHEN s.not_before > {_LATELY} OR {_PAUSED} OR {_CLOSED} THEN NULL
              WHEN t.turn < s.turn_at + {_BOUND} THEN NULL
              ELSE 'no worker takes up its step ' || s.name END AS why,
              s.process_state = 'Pending' AS waits) w
 WHERE w.why IS NOT NULL ORDER BY r.id
"""

# Submissions are consumed in the order of their ids: if a later one was consumed, this one does not wait for its turn.
SUBMISSIONS = f"""
SELECT s.public_id, NULL::bigint, 'no consumer has taken its submission'
  FROM supervision_submission s
 WHERE s.consumed_at IS NULL AND s.created_at < {_LATELY}
   AND NOT EXISTS (SELECT FROM supervision_incident i WHERE i.cause = 'starvation:submissions' AND i.closed_at IS NULL)
   AND coalesce((SELECT max(c.id) FROM supervision_submission c WHERE c.consumed_at > {_LATELY}), s.id) >= s.id
 ORDER BY s.id
"""
HOOKS = f"""
SELECT coalesce(r.key, '?'), n.run_id, 'its hook ' || coalesce(n.payload ->> 'hook', '?') || ' has not been called'
  FROM supervision_notification n LEFT JOIN supervision_run r ON r.id = n.run_id
 WHERE n.kind = 'hook' AND n.delivered_at IS NULL AND n.created_at < {_LATELY}
   AND NOT EXISTS (SELECT FROM supervision_incident i WHERE i.closed_at IS NULL AND i.cause =
                   'hook_failed:' || (n.payload ->> 'workflow') || ':' || (n.payload ->> 'version') || ':' || (n.payload ->> 'hook'))
 ORDER BY n.id
"""
LETTERS = f"""
SELECT d.public_id, NULL::bigint, 'its submission is dead letter ' || d.id || ' and no open incident says so'
  FROM supervision_deadletter d
 WHERE d.public_id IS NOT NULL AND d.resolved_at IS NULL AND d.created_at < {_LATELY}
   AND NOT EXISTS (SELECT FROM supervision_incident i WHERE i.kind = 'dead_letters' AND i.closed_at IS NULL)
 ORDER BY d.id
"""
