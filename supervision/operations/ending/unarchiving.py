"""Archived runs are brought back for their applications: `manage.py unarchive`.

A run that has ended is never brought back into the hot tables. Nothing acts on it there, the chain over the history has its events
where they are, and the next night would archive it again. What an application still does about it (a return, a refund) needs the
application's own rows. `Intake.bring_back` makes these anew from the facts in the archive.

A batch is one transaction. It holds the archive's rows locked, so the archive does not forget a run meanwhile, and two commands do not
bring back the same run twice. If the process is killed, the batches before are done; repeating does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from supervision.models import ArchivedRun
from supervision.operations import audit_log
from supervision.operations.archive import by_intake
from supervision.postgres import db
from supervision.runtime import failpoints

log = logging.getLogger(__name__)
PAGE = 1000


@dataclass
class Back:
    """What became of archived runs. brought: got their rows anew. left: have their rows, or their application keeps none."""

    brought: int = 0
    left: int = 0


_LOCK = "SELECT key, workflow FROM supervision_archivedrun WHERE key = ANY (%(keys)s) ORDER BY run_id FOR UPDATE"
_OF_PERIOD = """
WITH page AS MATERIALIZED (
    SELECT run_id, key, finished_at FROM supervision_archivedrun WHERE run_id > %(after)s ORDER BY run_id LIMIT %(page)s)
SELECT (SELECT max(run_id) FROM page),
       ARRAY(SELECT key FROM page WHERE finished_at >= %(since)s AND finished_at < %(until)s ORDER BY run_id)
"""


def bring_back(keys: Sequence[str], *, by: audit_log.Actor, reason: str, size: int = 200, dry_run: bool = False) -> Iterator[Back]:
    """Bring these runs back, by public ids, in batches of one transaction each. Runs that are not in the archive are left out.

    by, reason: who does it and why. The operators' log keeps both for each run in the same transaction, if `by` is an account; the
    log of the process names them in any case. dry_run: each transaction is rolled back.
    """
    for start in range(0, len(keys), size):
        batch = list(keys[start : start + size])
        yield db.transact(lambda batch=batch: _bring_back(batch, by, reason, dry_run))  # type: ignore[misc]


def _bring_back(keys: list[str], by: audit_log.Actor, reason: str, dry_run: bool) -> Back:
    workflow_of = dict(db.fetch(_LOCK, {"keys": keys}))
    brought = [key for intake, its in by_intake(workflow_of) for key in intake.bring_back(its)]
    audit_log.log_all(
        by, [(run, f"Brought back from the archive: {reason}") for run in ArchivedRun.objects.filter(key__in=brought).defer("body")]
    )
    failpoints.hit("unarchive.before_commit")
    if dry_run:
        transaction.set_rollback(True)
    elif brought:
        log.info("%s brought %d orders back from the archive (%s)", audit_log.name_of(by), len(brought), reason)
    return Back(brought=len(brought), left=len(workflow_of) - len(brought))


def ended_between(since: datetime, until: datetime) -> Iterator[list[str]]:
    """The public ids of archived runs that ended in this time, page by page in the order of their ids. `until` is not part of it."""
    after: int | None = 0
    while after is not None:
        after, keys = db.run(_OF_PERIOD, {"after": after, "page": PAGE, "since": since, "until": until})[0]
        if keys:
            yield keys
