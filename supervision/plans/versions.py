"""Lists the versions of all workflows: how many runs each still has, and whether the code may drop it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from supervision.plans import registry, unknown_versions
from supervision.postgres import db
from supervision.workflow import label_of, newest, version_of, workflows

# Unfinished runs are few beside the finished ones and have an index of their own; running steps are bounded (IN_FLIGHT). A run
# that has ended needs its version, too, while a run above it may yet undo it, and while a call of one of its hooks is put off.
_VERSIONS = """
WITH RECURSIVE unfinished AS MATERIALIZED (
    SELECT key, workflow, version FROM supervision_run WHERE process_state IN ('Pending', 'Processing', 'Error', 'Compensating')),
below AS (
    SELECT c.key FROM unfinished u JOIN supervision_child c ON c.parent_key = u.key AND c.state = 'Processed'
    UNION ALL
    SELECT c.key FROM below b JOIN supervision_child c ON c.parent_key = b.key AND c.state = 'Processed'),
needed AS (
    SELECT r.workflow, r.version::int AS version, r.id FROM below b JOIN supervision_run r ON r.key = b.key
    UNION
    SELECT n.payload ->> 'workflow', (n.payload ->> 'version')::int, n.run_id FROM supervision_notification n
     WHERE n.kind = 'hook' AND n.delivered_at IS NULL)
SELECT w.name, w.version, w.fingerprint, w.registered_at, coalesce(r.count, 0), coalesce(r.count, 0) - coalesce(p.count, 0),
       coalesce(n.count, 0)
  FROM supervision_workflowversion w
  LEFT JOIN (SELECT workflow, version, count(*) FROM unfinished GROUP BY 1, 2) r ON r.workflow = w.name AND r.version = w.version
  LEFT JOIN (SELECT b.workflow, b.version, count(DISTINCT b.id)
               FROM supervision_stepstate s JOIN supervision_run b ON b.id = s.run_id
              WHERE s.process_state = 'Processing' GROUP BY 1, 2) p
    ON p.workflow = w.name AND p.version = w.version
  LEFT JOIN (SELECT workflow, version, count(*) FROM needed GROUP BY 1, 2) n ON n.workflow = w.name AND n.version = w.version
 ORDER BY w.name, w.version
"""


@dataclass(frozen=True)
class Version:
    """One version of one workflow.

    in_flight: its unfinished runs. waiting: those of them whose steps no process has claimed (due, postponed, in Error).
    needed: other runs that may yet need it: ended ones that a run above them may undo, and those with a call of a hook put off.
    known: this code knows it. newest: new orders run it. unknown_to: the roles none of whose processes knows it.
    removable: this code may drop it. by_choice: those new orders run it whose intake asks for it.
    """

    name: str
    version: int
    fingerprint: str
    registered: datetime | None
    in_flight: int
    waiting: int
    needed: int
    known: bool
    newest: bool
    unknown_to: list[str]
    removable: bool
    by_choice: bool = False


def versions() -> list[Version]:
    """Every version that is registered or known to this code, by name and version."""
    mine = {(workflow.name, workflow.version): workflow for workflow in workflows()}
    told = unknown_versions.known_by_role()
    rows = db.run(_VERSIONS)
    found = [_version(*row, known=row[:2] in mine, told=told) for row in rows]
    for place in mine.keys() - {row[:2] for row in rows}:
        mark = registry.fingerprint(registry.definition_of(mine[place]))
        found.append(_version(*place, mark, None, 0, 0, 0, known=True, told=told))
    return sorted(found, key=lambda row: (row.name, row.version))


def _version(
    name: str,
    version: int,
    mark: str,
    registered: datetime | None,
    in_flight: int,
    waiting: int,
    needed: int,
    *,
    known: bool,
    told: dict[str, set[str] | None],
) -> Version:
    label = label_of(name, version)
    latest = known and newest(name).version == version
    by_choice = known and version_of(name, version).by_choice
    return Version(
        name=name,
        version=version,
        fingerprint=mark,
        registered=registered,
        in_flight=in_flight,
        waiting=max(0, waiting),
        needed=needed,
        known=known,
        newest=latest,
        unknown_to=[role for role, labels in sorted(told.items()) if labels is not None and label not in labels],
        removable=known and not latest and not by_choice and not in_flight and not needed,
        by_choice=by_choice,
    )
