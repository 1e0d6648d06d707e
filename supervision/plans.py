"""Plans: what code means by a version of a workflow, kept once per (name, version) in the database.

Every process that writes or performs runs confirms its definitions when it starts: what the database does not have yet
is registered, what it has must be the same. Code that means something else by the same version does not start. The
fingerprint covers what decides where a run goes: the steps, their order and agents, whether an agent can be undone, and
what follows a failure. Budgets, retries and overrides from the environment may change without a new version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from django.db import InterfaceError, OperationalError

from supervision import db
from supervision.errors import PlanChanged
from supervision.workflow import Workflow, workflows

Definition = Mapping[str, Any]

_LOOK = "SELECT name, version, fingerprint, definition FROM supervision_workflowversion WHERE name = ANY (%(names)s)"

# Somebody else who registers the same version at the same moment is waited for, and then read like any other.
_REGISTER = """
INSERT INTO supervision_workflowversion (name, version, fingerprint, definition)
SELECT * FROM unnest(%(names)s::text[], %(versions)s::smallint[], %(fingerprints)s::text[], %(definitions)s::jsonb[]) v
 ORDER BY 1, 2
ON CONFLICT (name, version) DO NOTHING
"""

_seen: set[tuple[str, int]] = set()  # registered by others; a registered version stays one
_confirmed: list[Workflow] = []  # compared by identity: a registry that was replaced is confirmed anew


def definition_of(workflow: Workflow) -> dict[str, Any]:
    """What the fingerprint of this workflow covers."""
    return {
        "name": workflow.name,
        "version": workflow.version,
        "steps": [
            {
                "name": step.name,
                "agent": step.agent,
                "undoable": workflow.agent(position).undoable,
                "on_exhausted": str(step.retry.on_exhausted),
                "on_permanent": str(step.retry.on_permanent),
            }
            for position, step in enumerate(workflow.steps)
        ],
    }


def fingerprint(definition: Definition) -> str:
    """Sixteen hexadecimal digits, the same for the same definition."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:16]


def label(name: str, version: int) -> str:
    """A version of a workflow as statements and heartbeats name it."""
    return f"{name} {version}"


def known() -> list[str]:
    """The labels of the versions that this process's code knows."""
    return [label(workflow.name, workflow.version) for workflow in workflows()]


def names() -> list[str]:
    """The names of the workflows that this process's code knows."""
    return sorted({workflow.name for workflow in workflows()})


def knows(name: str, version: int) -> bool:
    """Whether this process's code knows this version of this workflow."""
    return label(name, version) in known()


def told() -> dict[str, list[int]]:
    """What this process's code knows, for its heartbeat: versions by workflow."""
    found: dict[str, list[int]] = {}
    for workflow in workflows():
        found.setdefault(workflow.name, []).append(workflow.version)
    return found


def confirm(*, again: bool = False) -> None:
    """Register what the database does not have, and compare the rest. Raises PlanChanged where a version means something else.

    What has been confirmed once is not asked for a second time, except with `again`. Call it outside a transaction.
    """
    mine = workflows()
    if not again and all(any(workflow is done for done in _confirmed) for workflow in mine):
        return
    kept = _kept(mine)
    if missing := [workflow for workflow in mine if (workflow.name, workflow.version) not in kept]:
        _register(missing)
        kept = _kept(mine)
    if found := _differences(mine, kept):
        raise PlanChanged(found[0])
    _confirmed[:] = mine


def differences() -> list[str]:
    """What this code means otherwise than the database, a sentence each; registers nothing."""
    mine = workflows()
    return _differences(mine, _kept(mine))


def forget() -> None:
    """Confirm everything anew: the tables are no longer the same."""
    _confirmed.clear()
    _seen.clear()


def registered(name: str, version: int) -> bool:
    """Whether some process has registered this version of this workflow; true where the database cannot say so now."""
    if (name, version) in _seen:
        return True
    try:
        found = {row[:2] for row in db.run(_LOOK, {"names": [name]}, patience=0.0)}
    except (OperationalError, InterfaceError):
        return True
    if (name, version) in found:
        _seen.add((name, version))
    return (name, version) in found


Kept = Mapping[tuple[str, int], tuple[str, Definition]]  # fingerprint and definition, by name and version


def _kept(mine: Sequence[Workflow]) -> Kept:
    rows = db.run(_LOOK, {"names": sorted({workflow.name for workflow in mine})})
    return {(name, version): (mark, json.loads(kept) if isinstance(kept, str) else kept) for name, version, mark, kept in rows}


def _register(missing: Sequence[Workflow]) -> None:
    definitions = [definition_of(workflow) for workflow in missing]
    db.run(
        _REGISTER,
        {
            "names": [workflow.name for workflow in missing],
            "versions": [workflow.version for workflow in missing],
            "fingerprints": list(map(fingerprint, definitions)),
            "definitions": list(map(json.dumps, definitions)),
        },
    )


def _differences(mine: Sequence[Workflow], kept: Kept) -> list[str]:
    found = []
    for workflow in mine:
        here = definition_of(workflow)
        mark, there = kept.get((workflow.name, workflow.version), (fingerprint(here), here))
        if mark == fingerprint(here):
            continue
        what = first_difference(here, there)
        if not what and mark != fingerprint(there):
            what = f"its fingerprint is {fingerprint(here)} in this code and {mark} in the database"
        if what:
            found.append(f"workflow {workflow.name} version {workflow.version}: {what}; give the new definition a new version")
    return found


def first_difference(here: Definition, there: Definition) -> str:
    """Where this code's definition departs from the registered one, in words; empty where it does not.

    What only one of the two says anything about (an older release wrote it) is no difference.
    """
    for number, (ours, theirs) in enumerate(zip_longest(here["steps"], there["steps"]), start=1):
        if theirs is None:
            return f"step {number} ({ours['name']}) is not in the registered plan"
        if ours is None:
            return f"step {number} ({theirs['name']}) of the registered plan is missing in this code"
        for what in ("name", "agent", "undoable", "on_exhausted", "on_permanent"):
            if what in ours and what in theirs and ours[what] != theirs[what]:
                of = f"step {number}" if what == "name" else f"{what} of step {number} ({ours['name']})"
                return f"{of} is {_said(ours[what])} in this code and {_said(theirs[what])} in the registered plan"
    return ""


def _said(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
