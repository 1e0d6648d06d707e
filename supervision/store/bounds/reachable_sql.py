"""The condition that a due step can go to a resource that takes calls now. CLAIM and the search for due steps have it.

A step that is bound to a resource that takes none would be claimed and given back for ever, before the orders of the other resources.
What binds a step is what `admission` looks at: its effect is unknown or done, or what it undoes was done there. `down` names the
resources that take no calls now; it is nearly always empty, and then no row is looked at.
"""

from __future__ import annotations

REACHABLE = """(%(down)s::text[] = '{}' OR coalesce(
       CASE s.direction WHEN 'do' THEN CASE WHEN s.effect <> 'none' THEN s.resource END ELSE (
            SELECT CASE WHEN d.effect <> 'none' OR s.effect <> 'none' THEN coalesce(s.resource, d.resource) END
              FROM supervision_stepstate d WHERE d.run_id = s.run_id AND d.direction = 'do' AND d.position = s.position) END
       <> ALL (%(down)s::text[]), true))"""
