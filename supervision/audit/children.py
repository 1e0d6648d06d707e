"""The invariants of child runs, read from the rows of parents, children and their runs."""

from __future__ import annotations

# The step's agent has ended it, and not an operator who has recorded that it was done by hand, or skipped it.
_BY_AGENT = """EXISTS (SELECT FROM supervision_stepevent e
                    WHERE e.run_id = s.run_id AND e.direction = {} AND e.position = s.position
                      AND e.from_state = 'Processing' AND e.to_state = 'Processed')"""

CHECKS = (
    (
        # A parent may be archived before a child that it does not await has ended.
        "a child run's parent exists and knows it, and a child that was started has a run or a submission",
        """
        SELECT r.id AS run_id, r.key, r.parent_key, 'its parent does not know it' AS why
          FROM supervision_run r
         WHERE r.parent_key IS NOT NULL
           AND NOT EXISTS (SELECT FROM supervision_child c JOIN supervision_run p ON p.key = c.parent_key
                             JOIN supervision_stepstate s ON s.run_id = p.id AND s.direction = 'do' AND s.name = c.step
                            WHERE c.key = r.key AND c.parent_key = r.parent_key)
           AND NOT EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = r.parent_key)
        UNION ALL
        SELECT p.id, c.key, c.parent_key, 'it was started and is nowhere'
          FROM supervision_child c LEFT JOIN supervision_run p ON p.key = c.parent_key
         WHERE c.state IN ('Started', 'Processed', 'Undoing')
           AND NOT EXISTS (SELECT FROM supervision_submission s WHERE s.public_id = c.key)
           AND NOT EXISTS (SELECT FROM supervision_run r WHERE r.key = c.key)
           AND NOT EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = c.key)
        """,
    ),
    (
        "a child stands for its parent as its run does",
        """
        SELECT r.id AS run_id, c.key, c.state, r.process_state, r.direction
          FROM supervision_child c JOIN supervision_run r ON r.key = c.key
         WHERE r.parent_key IS NOT NULL AND c.state <> 'Replaced'
           AND CASE WHEN r.finished_at IS NOT NULL THEN c.state <> r.process_state
                    WHEN r.direction = 'undo' THEN c.state NOT IN ('Undoing', 'Started')
                    ELSE c.state <> 'Started' END
        """,
    ),
    (
        "a step that is Processed has every child that it awaited Processed",
        f"""
        SELECT p.id AS run_id, s.position, c.key, c.state
          FROM supervision_child c
          JOIN supervision_run p ON p.key = c.parent_key AND p.direction = 'do'
          JOIN supervision_stepstate s ON s.run_id = p.id AND s.direction = 'do' AND s.name = c.step
         WHERE s.process_state = 'Processed' AND s.result ? 'results' AND c.state NOT IN ('Processed', 'Replaced')
           AND {_BY_AGENT.format("'do'")}
        """,  # noqa: S608 - our own words
    ),
    (
        "a Cancelled parent has no child that still has an effect",
        f"""
        SELECT p.id AS run_id, c.key, c.state
          FROM supervision_child c
          JOIN supervision_run p ON p.key = c.parent_key
          JOIN supervision_stepstate s ON s.run_id = p.id AND s.direction = 'do' AND s.name = c.step
          LEFT JOIN supervision_stepstate u ON u.run_id = p.id AND u.direction = 'undo' AND u.position = s.position
         WHERE p.process_state = 'Cancelled' AND c.state NOT IN ('Cancelled', 'Replaced')
           AND (u.run_id IS NULL OR {_BY_AGENT.format("'undo'")})
        """,  # noqa: S608 - our own words
    ),
)
