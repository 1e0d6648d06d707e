"""Writes new runs, with their steps and first events, from the submissions that a consumer has locked."""

from __future__ import annotations

import json
from collections.abc import Sequence

from supervision.postgres import db
from supervision.runtime.identity import me
from supervision.store import sessions, step_sql, step_verbs
from supervision.store.claiming import lease
from supervision.store.records import LockedSubmission, Start
from supervision.workflow import NewRun, Workflow


def write(
    workflow: Workflow,
    taken: Sequence[LockedSubmission],
    new: Sequence[NewRun],
    starts: Sequence[Start],
    *,
    begin: bool = False,
    commit: bool = False,
) -> dict[str, int]:
    """Write runs, steps and first events of these submissions and mark them consumed; returns run ids by key.

    begin: runs that are born claimed are started as well, because this process performs them. commit: end the transaction, too.
    """
    shape = workflow.shape
    graph = {"afters": [str(set(earlier) or "{}") for earlier in shape.after], "branches": list(shape.branch)} if shape else {}
    statement = step_sql.WRITE_RUNS if shape is None else step_sql.WRITE_RUNS_OF_A_GRAPH
    params = {
        **graph,
        "submissions": [item.id for item in taken],
        "keys": [item.public_id for item in taken],
        "payloads": [json.dumps(run.payload) for run in new],
        "priorities": [run.priority for run in new],
        "sessions": [run.session_key for run in new],
        "partitions": [run.partition for run in new],
        "replies": [run.reply_to for run in new],
        "waits": [start.put_off - run.priority * sessions.HEAD_START_SECONDS for run, start in zip(new, starts, strict=True)],
        "notifies": [start.notify for start in starts],
        "born": [start.born for start in starts],
        "blocked": [start.blocked for start in starts],
        "workflow": workflow.name,
        "version": workflow.version,
        "complete_within": workflow.complete_within.total_seconds(),
        "names": [step.name for step in workflow.steps],
        "agents": [step.agent for step in workflow.steps],
        "lease": step_verbs.first_budget(workflow) if begin else lease(),
        "begin": begin,
        "me": me(),
    }
    children = [
        item.public_id for item, run in zip(taken, new, strict=True) if run.session_key is not None and item.public_id.endswith(":child")
    ]
    statements = [(statement, params), *([sessions.naming(children)] if children else [])]
    rows = db.fetch_together(*statements, commit=commit)[0] if commit or children else db.fetch(statement, params)
    return {key: run_id for run_id, key in rows}


def bind_pauses(keys: Sequence[str]) -> None:
    """Bind the pauses of these orders, which were paused before they had a run, to their runs."""
    db.fetch(step_sql.BIND_PAUSES, {"keys": list(keys)})
