"""Which processes know which versions of a workflow, from the heartbeats of the living processes.

A process leaves runs of versions that its code does not know to processes that know them. If no living process of a needed
role knows a version, its runs wait, and one incident for each version says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from supervision.incidents.lifecycle import Cause, detector
from supervision.postgres import db
from supervision.workflow import known_labels, label_of

ALIVE_SECONDS = 60.0
KIND = "unknown_version"
ROLES = ("scheduler", "agents", "supervisor")  # all of them are needed to bring a run to its end

_ALIVE = """
SELECT role, detail->'queues', detail->'workflows' FROM supervision_heartbeat
 WHERE seen_at > now() - %(alive)s::float8 * interval '1 s'
"""
_REGISTERED = "SELECT name, version FROM supervision_workflowversion ORDER BY name, version"

# A younger run may have been written a moment before the processes that know its version start.
_HELD = """
SELECT workflow || ' ' || version, count(*), min(created_at) FROM supervision_run
 WHERE process_state IN ('Pending', 'Processing', 'Compensating') AND workflow || ' ' || version = ANY (%(labels)s)
   AND created_at < now() - %(alive)s::float8 * interval '1 s'
 GROUP BY 1 ORDER BY 1
"""
_OF_THE_LEADER = """
SELECT h.detail->'workflows' FROM supervision_leaderlease l JOIN supervision_heartbeat h ON h.incarnation = l.holder
 WHERE l.name = 'supervisor'
"""


def _labels(workflows: Any) -> set[str] | None:
    """The labels of the versions that a heartbeat's process knows; None where the heartbeat does not report them."""
    if not isinstance(workflows, dict):
        return None
    return {label_of(name, version) for name, versions in workflows.items() for version in versions}


def _played(role: str, queues: Any) -> Iterator[str]:
    served = queues or []
    if role == "scheduler" or {"scheduler", "submissions"}.intersection(served):
        yield "scheduler"
    if role == "supervisor" or "supervisor" in served:
        yield "supervisor"
    if any(queue.startswith("agent.") for queue in served):
        yield "agents"


def known_by_role() -> dict[str, set[str] | None]:
    """The labels of the versions that the living processes of each role know; None: one of them does not say.

    A role without a living process is left out.
    """
    found: dict[str, set[str] | None] = {}
    for role, queues, workflows in db.run(_ALIVE, {"alive": ALIVE_SECONDS}):
        told = _labels(workflows)
        for played in _played(role, queues):
            before = found.get(played, set())
            found[played] = None if told is None or before is None else before | told
    return found


@detector(KIND)
def unknown_versions() -> Iterable[Cause]:
    """Unfinished runs of a version that no living process of some role knows: one cause for each version."""
    known = known_by_role()
    lacking: dict[str, list[str]] = {}
    names = {label_of(name, version): (name, version) for name, version in db.run(_REGISTERED)}
    for label in names:
        if roles := [role for role in ROLES if (labels := known.get(role)) is not None and label not in labels]:
            lacking[label] = roles
    if not lacking:
        return
    for label, orders, since in db.run(_HELD, {"labels": list(lacking), "alive": ALIVE_SECONDS}):
        name, version = names[label]
        yield Cause(
            kind=KIND,
            key=f"{KIND}:{name}:{version}",
            title=f"No running process ({', '.join(lacking[label])}) knows {name} version {version}: its orders wait for one that does",
            orders=orders,
            since=since,
        )


def beyond_the_leader() -> list[str]:
    """The labels of the versions that this process knows and the leading supervisor does not."""
    rows = db.run(_OF_THE_LEADER)
    leaders = _labels(rows[0][0]) if rows else None
    return [] if leaders is None else sorted(set(known_labels()) - leaders)
