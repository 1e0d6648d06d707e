"""The condition that a due step can go to a resource that takes calls now. CLAIM and the search for due steps have it.

A step that only a resource may take that takes none would be claimed and given back for ever, before the orders of the other
resources. `admission` decides where a step goes: what is bound stays with its resource (its effect is unknown or done, or what it
undoes was done there), and any other step follows its partition's route. `down` names the resources that take no calls now; it is
nearly always empty, and then no row is looked at.

`dark` are the routes that lead to such a resource, `lit` all others, each as `agent/partition`. The partition of an order that names
none is a hash, which the database cannot compute. It is written as '', and counts as lit if any of these partitions may be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervision.states import BOUND_TO

Unreachable = Mapping[str, Sequence[str]]  # `down`, `dark` and `lit`
NOTHING_DOWN: Unreachable = {"down": [], "dark": [], "lit": []}

REACHABLE = f"""(%(down)s::text[] = '{{}}' OR coalesce({BOUND_TO} <> ALL (%(down)s::text[]), true))
       AND (%(dark)s::text[] = '{{}}' OR s.direction = 'undo' OR s.effect <> 'none' OR (
            SELECT s.agent || '/' || coalesce(b.partition, '') <> ALL (%(dark)s::text[])
                   AND (s.agent || '/*' <> ALL (%(dark)s::text[]) OR s.agent || '/' || coalesce(b.partition, '') = ANY (%(lit)s::text[]))
              FROM supervision_run b WHERE b.id = s.run_id))"""
