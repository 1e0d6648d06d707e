"""The invariant of runs and the versions of their workflows, read from the registered definitions."""

from __future__ import annotations

CHECKS = (
    (
        # Steps that came before it in another branch stand as they are.
        "a run that goes on from an earlier step is undone from there, and nothing before it",
        """
        SELECT r.id AS run_id, r.process_state, r.direction, r.resume_from, s.position AS undone
          FROM supervision_run r
          LEFT JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'undo' AND s.position < r.resume_from
         WHERE r.resume_from IS NOT NULL
           AND (s.position IS NOT NULL OR r.direction <> 'undo' OR r.process_state NOT IN ('Compensating', 'Error')
                OR NOT EXISTS (SELECT FROM supervision_stepstate d
                                WHERE d.run_id = r.id AND d.direction = 'do' AND d.position = r.resume_from))
        UNION ALL
        SELECT s.run_id, r.process_state, r.direction, r.resume_from, s.position
          FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
         WHERE s.direction = 'undo' AND r.direction = 'do'
        """,
    ),
    (
        "an unfinished run has the steps of its version",
        """
        WITH d AS MATERIALIZED (
            SELECT w.name AS workflow, w.version, (e.n - 1)::smallint AS position, e.step ->> 'name' AS name, e.step ->> 'agent' AS agent,
                   CASE WHEN e.step ? 'after' THEN ARRAY(
                        SELECT (o.n - 1)::smallint FROM jsonb_array_elements(w.definition -> 'steps') WITH ORDINALITY o(step, n)
                         WHERE (e.step -> 'after') ? (o.step ->> 'name') ORDER BY o.n) END AS after
              FROM supervision_workflowversion w
             CROSS JOIN LATERAL jsonb_array_elements(w.definition -> 'steps') WITH ORDINALITY e(step, n)),
        r AS MATERIALIZED (
            SELECT r.id, r.workflow, r.version FROM supervision_run r
             WHERE r.process_state IN ('Pending', 'Processing', 'Error', 'Compensating')
               AND EXISTS (SELECT FROM d WHERE d.workflow = r.workflow AND d.version = r.version)),
        s AS (
            SELECT s.run_id, s.position, s.name, s.agent,
                   CASE WHEN s.after IS NOT NULL THEN ARRAY(SELECT a FROM unnest(s.after) a ORDER BY a) END AS after
              FROM supervision_stepstate s WHERE s.direction = 'do' AND s.run_id IN (SELECT id FROM r))
        SELECT coalesce(p.run_id, s.run_id) AS run_id, coalesce(p.position, s.position) AS position, p.name AS planned, s.name,
               p.agent AS planned_agent, s.agent, p.after AS planned_after, s.after
          FROM (SELECT r.id AS run_id, d.position, d.name, d.agent, d.after
                  FROM r JOIN d ON d.workflow = r.workflow AND d.version = r.version) p
          FULL JOIN s ON s.run_id = p.run_id AND s.position = p.position
         WHERE (p.name, p.agent, p.after) IS DISTINCT FROM (s.name, s.agent, s.after)
        """,
    ),
)
