"""The statements about children. `work` executes them in the transaction of the parent's step, whose row is locked.

They name the parent and its step, and read as many children as may run at once, but never all: the index is by state.
"""

from __future__ import annotations

_OF = "FROM supervision_child c WHERE c.parent_key = v.parent AND c.step = %(step)s"
_PARENTS = "FROM unnest(%(parents)s::text[]) v(parent)"

# By parent: whether its children were made and not all given up, how many are unfinished, whether some wait, and one that was cancelled.
LOOK = f"""
SELECT v.parent, EXISTS (SELECT {_OF} AND c.state <> 'Replaced'),
       (SELECT count(*) {_OF} AND c.state = 'Started'), EXISTS (SELECT {_OF} AND c.state = 'Waiting'),
       (SELECT c.key {_OF} AND c.state = 'Cancelled' ORDER BY c.number LIMIT 1)
  {_PARENTS}
"""

# The parents of which this step has given up children before: their keys are used.
MADE_BEFORE = f"SELECT v.parent {_PARENTS} WHERE EXISTS (SELECT {_OF})"
NEWEST = f"SELECT v.parent, (SELECT c.key {_OF} ORDER BY c.generation DESC LIMIT 1) {_PARENTS}"

TAKEN = """
SELECT v.key FROM unnest(%(keys)s::text[]) v(key)
 WHERE EXISTS (SELECT FROM supervision_submission s WHERE s.public_id = v.key)
    OR EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = v.key)
 LIMIT 1
"""

MAKE = """
INSERT INTO supervision_child (key, parent_key, root_key, step, number, many, generation, workflow, payload, session_key)
SELECT v.key, v.parent, coalesce(p.root_key, v.parent), %(step)s, v.number, %(many)s, v.generation, %(workflow)s, v.payload, v.session_key
  FROM unnest(%(keys)s::text[], %(parents)s::text[], %(numbers)s::int[], %(generations)s::smallint[], %(payloads)s::text[],
              %(sessions)s::text[]) v(key, parent, number, generation, payload, session_key)
  LEFT JOIN supervision_child p ON p.key = v.parent
"""

# A new generation of the parent's step starts another child in the place of each one that was cancelled.
REPLACE = """
WITH o AS (
    UPDATE supervision_child c SET state = 'Replaced' WHERE c.parent_key = %(parent)s AND c.step = %(step)s AND c.state = 'Cancelled'
       AND c.generation < %(generation)s
    RETURNING c.*)
INSERT INTO supervision_child (key, parent_key, root_key, step, number, many, generation, workflow, payload, session_key)
SELECT parent_key || ':' || step || CASE WHEN many THEN '[' || number || ']' ELSE '' END || ':' || %(generation)s || ':child',
       parent_key, root_key, step, number, many, %(generation)s, workflow, payload, session_key FROM o
"""

# A child whose place another transaction is just passing on is left to it.
START = """
WITH n AS MATERIALIZED (
    SELECT c.key FROM unnest(%(parents)s::text[], %(rooms)s::int[]) v(parent, room)
     CROSS JOIN LATERAL (
           SELECT c.key FROM supervision_child c WHERE c.parent_key = v.parent AND c.step = %(step)s AND c.state = 'Waiting'
            ORDER BY c.number LIMIT v.room FOR UPDATE SKIP LOCKED) c),
u AS (
    UPDATE supervision_child c SET state = 'Started', started_at = now() FROM n WHERE c.key = n.key AND c.state = 'Waiting' RETURNING c.*)
INSERT INTO supervision_submission (public_id, workflow, payload, client, client_key, request_hash, session_key)
SELECT key, workflow, payload, '', NULL, '', session_key FROM u ORDER BY parent_key, number
RETURNING public_id
"""

SIZES = f"""
SELECT v.parent, count(*), coalesce(sum(octet_length(s.result::text) + octet_length(s.name)), 0)
  {_PARENTS}
  JOIN supervision_child c ON c.parent_key = v.parent AND c.step = %(step)s AND c.state = 'Processed'
  JOIN supervision_run r ON r.key = c.key
  JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.process_state || '' = 'Processed'
 GROUP BY v.parent
"""
RESULTS = f"""
SELECT v.parent, c.key, s.name, s.result
  {_PARENTS}
  JOIN supervision_child c ON c.parent_key = v.parent AND c.step = %(step)s AND c.state = 'Processed'
  LEFT JOIN supervision_run r ON r.key = c.key
  LEFT JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.process_state || '' = 'Processed'
 ORDER BY c.number, s.position
"""
COUNTS = (
    f"SELECT v.parent, (SELECT count(*) {_OF} AND c.state = 'Processed'), (SELECT min(c.key) {_OF} AND c.state = 'Processed') {_PARENTS}"
)

# ---------------------------------------------------------------------------------------------------- undoing

# A child that was never started never will be.
DROP = """
UPDATE supervision_child SET state = 'Cancelled', ended_at = now()
 WHERE parent_key = %(parent)s AND step = %(step)s AND state = 'Waiting'
"""
# The children to end next: all that are under way, and of those that are Processed as many as `at_once` allows, the last one first.
NEXT = """
WITH n AS MATERIALIZED (
    (SELECT key FROM supervision_child WHERE parent_key = %(parent)s AND step = %(step)s AND state = 'Started')
    UNION ALL
    (SELECT key FROM supervision_child WHERE parent_key = %(parent)s AND step = %(step)s AND state = 'Processed'
      ORDER BY number DESC LIMIT greatest(0, %(most)s - (
          SELECT count(*) FROM supervision_child WHERE parent_key = %(parent)s AND step = %(step)s AND state IN ('Started', 'Undoing')))))
SELECT key FROM n
"""
UNDOING = "UPDATE supervision_child SET state = 'Undoing' WHERE key = %(key)s AND state = 'Started'"
NEVER_RAN = """
UPDATE supervision_child SET state = 'Cancelled', ended_at = now() WHERE key = %(key)s AND state = 'Started'
"""
LEFT = """
SELECT EXISTS (SELECT FROM supervision_child
                WHERE parent_key = %(parent)s AND step = %(step)s AND state IN ('Waiting', 'Started', 'Processed', 'Undoing'))
"""
