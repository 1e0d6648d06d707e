"""Plans: the definition of each version of a workflow, stored once per (name, version) in the database.

Every process that writes or performs runs confirms its definitions when it starts. It registers the versions that the
database does not have yet. The others must be the same: a process with another definition of the same version does not
start. The fingerprint covers the steps, their order and agents, whether an agent can undo, what follows a failure, the signal
that a step waits for and what follows if it does not come, and the runs that a step starts, because they decide where a run
goes. Budgets, retries and environment overrides may change without a new version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from django.db import InterfaceError, OperationalError

from supervision.errors import PlanChanged
from supervision.postgres import db
from supervision.workflow import Workflow, confirmed, unconfirmed, workflows

Definition = Mapping[str, Any]

_LOOK = "SELECT name, version, fingerprint, definition FROM supervision_workflowversion WHERE name = ANY (%(names)s)"

# If another process registers the same version at the same moment, this statement waits. The next read finds that row.
_REGISTER = """
INSERT INTO supervision_workflowversion (name, version, fingerprint, definition)
SELECT * FROM unnest(%(names)s::text[], %(versions)s::smallint[], %(fingerprints)s::text[], %(definitions)s::jsonb[]) v
 ORDER BY 1, 2
ON CONFLICT (name, version) DO NOTHING
"""

_seen: set[tuple[str, int]] = set()  # found registered in the database; a version stays registered

# Compared where both definitions have it: an older release, whose plans go on, may not have written it yet.
_WHERE_BOTH_SAY = ("name", "agent", "undoable", "on_exhausted", "on_permanent", "starts", "many", "waits", "on_timeout")


def definition_of(workflow: Workflow) -> dict[str, Any]:
    """What the fingerprint of this workflow covers."""
    shape = workflow.shape
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
                **({"signal": step.awaited} if step.awaited else {}),
                **({"starts": step.starts} if step.starts else {}),
                **step.particulars,
                **({"conditional": True} if step.when is not None else {}),
                **({"after": [workflow.steps[earlier].name for earlier in shape.after[position]]} if shape else {}),
            }
            for position, step in enumerate(workflow.steps)
        ],
    }


def fingerprint(definition: Definition) -> str:
    """Sixteen hexadecimal digits, the same for the same definition."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:16]


def told() -> dict[str, list[int]]:
    """The versions that this process's code knows, by workflow, for its heartbeat."""
    found: dict[str, list[int]] = {}
    for workflow in workflows():
        found.setdefault(workflow.name, []).append(workflow.version)
    return found


def confirm(*, again: bool = False) -> None:
    """Register the versions that the database does not have, and compare the rest. Raises PlanChanged where a definition differs.

    Definitions confirmed once are not checked again, except with `again`. Call it outside a transaction.
    """
    if not again and not unconfirmed():
        return
    mine = workflows()
    kept = _kept(mine)
    if missing := [workflow for workflow in mine if (workflow.name, workflow.version) not in kept]:
        _register(missing)
        kept = _kept(mine)
    if found := _differences(mine, kept):
        raise PlanChanged(found[0])
    confirmed[:] = mine


def differences() -> list[str]:
    """One sentence for each version whose definition here differs from the database's; registers nothing."""
    mine = workflows()
    return _differences(mine, _kept(mine))


def forget() -> None:
    """Forget what was confirmed, because the tables are no longer the same."""
    confirmed.clear()
    _seen.clear()


def registered(name: str, version: int) -> bool:
    """Whether some process has registered this version of this workflow; true where the database cannot be asked now."""
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
    return {(name, version): (mark, kept) for name, version, mark, kept in rows}


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
    """The first difference between this code's definition and the registered one, as text; empty if there is none.

    A field that only one of the two has (an older release wrote the other) is no difference.
    """
    for number, (ours, theirs) in enumerate(zip_longest(here["steps"], there["steps"]), start=1):
        if theirs is None:
            return f"step {number} ({ours['name']}) is not in the registered plan"
        if ours is None:
            return f"step {number} ({theirs['name']}) of the registered plan is missing in this code"
        for what in _WHERE_BOTH_SAY:
            if what in ours and what in theirs and ours[what] != theirs[what]:
                of = f"step {number}" if what == "name" else f"{what} of step {number} ({ours['name']})"
                return f"{of} is {_said(ours[what])} in this code and {_said(theirs[what])} in the registered plan"
        for what, default in (("signal", ""), ("conditional", False)):  # written only where they are set
            mine, other = ours.get(what, default), theirs.get(what, default)
            if mine != other:
                of = f"{what} of step {number} ({ours['name']})"
                return f"{of} is {_said(mine)} in this code and {_said(other)} in the registered plan"
    for number, step in enumerate(here["steps"], start=1):
        mine, other = _after(here, number), _after(there, number)
        if mine != other:
            return f"after of step {number} ({step['name']}) is {_said(mine)} in this code and {_said(other)} in the registered plan"
    return ""


def _after(definition: Definition, number: int) -> list[str]:
    """The names of the steps that this one comes after. In a list that is the step before it."""
    steps = definition["steps"]
    return list(steps[number - 1].get("after", [step["name"] for step in steps[max(0, number - 2) : number - 1]]))


def _said(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "no step"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
