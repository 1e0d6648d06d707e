"""Hooks: a workflow's functions, called for runs that have just reached a state. A hook that raises delays no run.

A hook runs inside the transaction that moved its runs, under a savepoint. If it raises for a batch, it is called run by
run. A run whose hook raises keeps its new state. Its call is put off as a row of the outbox (kind `hook`) and retried with
back-off until it succeeds; one transaction commits the hook's writes and the row's delivered_at. A call for a workflow
version that this process does not know is put off too; a process that knows the version makes it.

A call that was put off may come after the hook of a later state: `on_error` after `on_processed`, never the reverse.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from django.db import connection, transaction
from psycopg.pq import TransactionStatus

from supervision import conf
from supervision.errors import DefinitionError
from supervision.incidents.lifecycle import Cause, detector
from supervision.models import Notification, Run
from supervision.postgres import db, json_safe
from supervision.states import RunState
from supervision.workflow import ClosedRun, Hook, version_of, workflows

log = logging.getLogger(__name__)

KIND = "hook"
AT_ONCE = 200
HOOKS: Mapping[str, str] = {
    RunState.PROCESSED: "on_processed",
    RunState.CANCELLED: "on_cancelled",
    RunState.ERROR: "on_error",
}


class Raised(Exception):
    """A hook raised; its transaction has to be repeated with `tell` instead of `trust`."""


class _Call(NamedTuple):
    workflow: str
    version: int
    hook: str


def trust(workflow: str, version: int, hook: Hook, runs: Sequence[ClosedRun]) -> None:
    """Call a hook without a savepoint, to save its cost for the many calls that succeed. Raises Raised if it fails."""
    try:
        with db.blocks_of_others():
            hook(runs)
    except Exception as error:
        if db.passes(error):
            raise
        raise Raised(f"{workflow} version {version}: {type(error).__name__}: {error}") from error
    if connection.connection.info.transaction_status == TransactionStatus.INERROR:
        # The COMMIT would become a ROLLBACK, which PostgreSQL does not report as an error.
        raise Raised(f"{workflow} version {version}: the hook hid the failure of a statement")


def tell(workflow: str, version: int, state: str, runs: Sequence[ClosedRun]) -> None:
    """Call the hook for runs that have reached this state in the open transaction, or put the call off.

    Raises only errors after which the whole transaction is repeated: a deadlock, a lost connection.
    """
    name = HOOKS.get(state)
    if name is None or not runs:
        return
    call = _Call(workflow, version, name)
    try:
        hook = getattr(version_of(workflow, version), name)
    except DefinitionError as error:
        _put_off(call, runs, str(error), raised=False)
        return
    if hook is None or _try(hook, runs) is None:
        return
    for run in runs:
        if (culprit := _try(hook, [run])) is not None:
            log.error("%s of %s version %s raised for run %s", name, workflow, version, run.run_id, exc_info=culprit)
            _put_off(call, [run], _words(culprit), raised=True)


def _try(hook: Hook, runs: Sequence[ClosedRun]) -> Exception | None:
    try:
        with transaction.atomic(), db.blocks_of_others():
            hook(runs)
    except Exception as error:
        if db.passes(error):
            raise
        return error
    return None


def _words(error: Exception) -> str:
    return json_safe.text(f"{type(error).__name__}: {error}")[:2000]


def _put_off(call: _Call, runs: Sequence[ClosedRun], why: str, *, raised: bool) -> None:
    Notification.objects.bulk_create(
        Notification(kind=KIND, run_id=run.run_id, last_error=why, payload={**call._asdict(), "reason": run.reason, "raised": raised})
        for run in runs
    )


# ----------------------------------------------------------------------------------------------------- retries

# Leases due rows for the time of their back-off. Versions that this process does not know are left to other processes, and are not
# read: each version is looked up by itself, in an index that begins with it, those with the oldest call first.
_WAITS = """n.kind = 'hook' AND n.delivered_at IS NULL AND n.not_before <= now()
              AND n.payload ->> 'workflow' = k.workflow AND (n.payload ->> 'version')::int = k.version"""
_CLAIM = f"""
WITH due AS MATERIALIZED (
    SELECT due.id
      FROM (SELECT k.workflow, k.version
              FROM unnest(%(workflows)s::text[], %(versions)s::int[]) k(workflow, version) CROSS JOIN LATERAL (
                   SELECT n.not_before FROM supervision_notification n WHERE {_WAITS} ORDER BY n.not_before LIMIT 1) oldest
             ORDER BY oldest.not_before) k
     CROSS JOIN LATERAL (
           SELECT n.id FROM supervision_notification n WHERE {_WAITS} ORDER BY n.not_before LIMIT %(limit)s FOR UPDATE SKIP LOCKED) due
     LIMIT %(limit)s)
UPDATE supervision_notification n
   SET tries = n.tries + 1, not_before = now() + least(5 * 2 ^ least(n.tries, 12), 300) * interval '1 s'
  FROM due WHERE n.id = due.id
RETURNING n.id, n.payload ->> 'workflow', (n.payload ->> 'version')::int, n.payload ->> 'hook'
"""  # noqa: S608 - our own condition

# The rows stay locked until the hook's writes commit with delivered_at, so that two processes never make the same call.
# A row that another process's _CLAIM has locked and then left, because its lease was newer, is called after its back-off.
_HOLD = """
SELECT n.id, n.run_id, n.payload ->> 'reason' FROM supervision_notification n
 WHERE n.id = ANY (%(ids)s) AND n.delivered_at IS NULL ORDER BY n.id FOR UPDATE SKIP LOCKED
"""
_DONE = "UPDATE supervision_notification SET delivered_at = now(), last_error = '' WHERE id = ANY (%(ids)s)"
_FAILED = "UPDATE supervision_notification SET last_error = %(why)s, payload = payload || %(raised)s::jsonb WHERE id = %(id)s"


def retry_due(limit: int = AT_ONCE) -> int:
    """Make up to `limit` calls that were put off and are due again; returns how many succeeded."""
    known = workflows()
    if not known:
        return 0
    params = {"workflows": [it.name for it in known], "versions": [it.version for it in known], "limit": limit}
    calls: dict[_Call, list[int]] = {}
    for pk, *call in db.run(_CLAIM, params):
        calls.setdefault(_Call(*call), []).append(pk)
    return sum(_again(call, sorted(ids)) for call, ids in calls.items())


def _again(call: _Call, ids: Sequence[int]) -> int:
    """Make the calls of these rows together; if that fails, one by one. Returns how many succeeded."""
    made = db.transact(partial(_make, call, ids))
    if isinstance(made, int):
        return made
    if len(ids) > 1:
        return sum(_again(call, [pk]) for pk in ids)
    log.warning("%s of %s version %s raised again: %s", call.hook, call.workflow, call.version, made)
    db.run(_FAILED, {"id": ids[0], "why": _words(made), "raised": json.dumps({"raised": True})})
    return 0


def _make(call: _Call, ids: Sequence[int]) -> int | Exception:
    """Make the calls of those rows that no other process holds; returns how many, or the hook's error."""
    rows = db.fetch(_HOLD, {"ids": list(ids)})
    runs = {run.pk: run for run in Run.objects.filter(pk__in=[run_id for _, run_id, _ in rows])}
    closed = [
        ClosedRun(run_id=run_id, key=runs[run_id].key, reason=reason or "", payload=runs[run_id].payload)
        for _, run_id, reason in rows
        if run_id in runs  # no call for a run that no longer exists
    ]
    try:
        hook: Hook | None = getattr(version_of(call.workflow, call.version), call.hook, None)
    except DefinitionError as error:
        return error
    failed = _try(hook, closed) if hook is not None and closed else None
    if failed is None:
        db.fetch(_DONE, {"ids": [pk for pk, *_ in rows]})
    return len(rows) if failed is None else failed


# ---------------------------------------------------------------------------------------------------- incidents

# A call that waits for a process that knows its version is reported only when no such process makes it in time.
_WAITING = """
SELECT payload ->> 'workflow', payload ->> 'version', payload ->> 'hook', count(DISTINCT run_id), min(created_at),
       (array_agg(last_error ORDER BY id DESC))[1]
  FROM supervision_notification
 WHERE kind = 'hook' AND delivered_at IS NULL
   AND ((payload ->> 'raised')::bool OR created_at < now() - %(patience)s::float8 * interval '1 s')
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


@detector("hook_failed")
def failing() -> Iterable[Cause]:
    """One cause per hook of a workflow version that has waiting calls because it raised or no process knew the version."""
    rows: list[tuple[Any, ...]] = db.run(_WAITING, {"patience": conf.get().pickup_within.total_seconds()})
    for workflow, version, hook, orders, since, error in rows:
        yield Cause(
            kind="hook_failed",
            key=f"hook_failed:{workflow}:{version}:{hook}",
            title=f"{hook} of {workflow} version {version} does not succeed: {error}"[:500],
            step=hook,
            code=error.partition(":")[0][:100],
            orders=orders,
            since=since,
        )
