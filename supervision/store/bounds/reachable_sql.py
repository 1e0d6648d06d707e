"""The condition that a due step can go to a resource that takes calls now. CLAIM_REACHABLE and the search for due steps have it.

A step that only a resource may take that takes none would be claimed and given back for ever, before the orders of the other
resources. `admission` decides where a step goes: what is bound stays with its resource (its effect is unknown or done, or what it
undoes was done there), and any other step follows its partition's route. `down` names the resources that take no calls now; it is
nearly always empty, and then CLAIM does without the condition. `homes` are the agents of those among them that have their service's
own name: a step that was sent there while that was the service's only resource names none.

`dark` are the routes that lead to such a resource, `lit` all others, each as `agent/partition`. The partition of an order that
names none is a number, the CRC-32 of its key modulo 64. The statement computes it only for agents with routes of such numbers
(`hashed`): a CRC is the exclusive or of what each byte adds, which depends on the byte and its distance from the end alone, and
`crc` says how much that is. A step of an order with a longer key counts as one that can go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervision.states import BOUND_TO, SENT_HOME

MOST_BYTES = 128  # of a key whose number is computed
Unreachable = Mapping[str, Sequence[str] | bytes]  # `down`, `homes`, `dark`, `lit`, `hashed` and `crc`
NOTHING_DOWN: Unreachable = {"down": [], "homes": [], "dark": [], "lit": [], "hashed": [], "crc": b""}

# The number of the partition of run `b`, as `resources.partition_of` computes it.
NUMBER = """(SELECT bit_xor(get_byte(%(crc)s::bytea, 256 * (length(k) - 1 - n) + get_byte(k, n)))::text
                                  FROM convert_to(b.key, 'UTF8') k, generate_series(0, length(k) - 1) n)"""

REACHABLE = f"""(%(down)s::text[] = '{{}}' OR coalesce({BOUND_TO} <> ALL (%(down)s::text[]), true))
       AND (%(homes)s::text[] = '{{}}' OR s.agent <> ALL (%(homes)s::text[]) OR NOT {SENT_HOME})
       AND (%(dark)s::text[] = '{{}}' OR s.direction = 'undo' OR s.effect <> 'none' OR coalesce((
            SELECT p.place <> ALL (%(dark)s::text[])
                   AND (s.agent || '/*' <> ALL (%(dark)s::text[]) OR p.place = ANY (%(lit)s::text[]))
              FROM supervision_run b
             CROSS JOIN LATERAL (
                   SELECT s.agent || '/' || CASE
                          WHEN b.partition <> '' THEN b.partition
                          WHEN s.agent <> ALL (%(hashed)s::text[]) THEN ''
                          WHEN octet_length(b.key) <= {MOST_BYTES} THEN {NUMBER} END AS place OFFSET 0) p
             WHERE b.id = s.run_id), true))"""
