"""Accepts orders. An order is accepted when its submission is committed; only then does the caller answer 202.

Each order is one row. One statement writes all orders that come together. The hint that follows may be lost: `consuming`
turns the rows into runs without it, too.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet

from supervision.intake import erased_keys
from supervision.models import Submission
from supervision.postgres import db
from supervision.runtime import failpoints
from supervision.telemetry import measures, spans
from supervision.wakeup import hints, notify

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0  # the client is waiting for the answer


@dataclass(frozen=True, kw_only=True)
class NewSubmission:
    """One order as it arrives. payload: its exact text. client_key: the client's own Idempotency-Key, if it sent one.

    session_key: the payload's session key, or None. Empty: the caller does not know it. Then the order may be in any session of
    its client, and later orders of these sessions wait until it is a run.
    """

    public_id: str
    workflow: str
    payload: str
    client: str = ""
    client_key: str | None = None
    request_hash: str = ""
    session_key: str | None = ""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A committed submission. replayed: the client's key was known, and this is the first submission under it."""

    id: int
    public_id: str
    payload: str
    created_at: datetime
    request_hash: str
    replayed: bool


def new_public_id() -> str:
    """128 random bits: the order's public id, unguessable. Never begins with a dash, which commands take for an option."""
    while (token := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return token


_ACCEPT = """
INSERT INTO supervision_submission (public_id, workflow, payload, client, client_key, request_hash, session_key)
SELECT public_id, workflow, payload, client, client_key, request_hash, session_key
  FROM unnest(%(ids)s::text[], %(workflows)s::text[], %(payloads)s::text[], %(clients)s::text[],
              %(client_keys)s::text[], %(hashes)s::text[], %(sessions)s::text[], %(erased)s::text[])
       WITH ORDINALITY v(public_id, workflow, payload, client, client_key, request_hash, session_key, erased, n)
 WHERE v.client_key IS NULL OR NOT EXISTS (
       SELECT FROM supervision_submission s WHERE s.client = v.client AND s.client_key = ANY (string_to_array(v.erased, ' ')))
 ORDER BY n
ON CONFLICT DO NOTHING
RETURNING public_id, created_at, id
"""


_ACCEPT_ONE = """
INSERT INTO supervision_submission (public_id, workflow, payload, client, client_key, request_hash, session_key)
VALUES (%(public_id)s, %(workflow)s, %(payload)s, %(client)s, NULL, %(request_hash)s, %(session_key)s)
RETURNING public_id, created_at, id
"""
_ACCEPT_UNDER_A_KEY = """
INSERT INTO supervision_submission (public_id, workflow, payload, client, client_key, request_hash, session_key)
SELECT %(public_id)s, %(workflow)s, %(payload)s, %(client)s, %(client_key)s, %(request_hash)s, %(session_key)s
 WHERE NOT EXISTS (SELECT FROM supervision_submission WHERE client = %(client)s AND client_key = ANY (%(erased)s::text[]))
RETURNING public_id, created_at, id
"""
_ONE = {  # (under a key, and notify)
    (keyed, notifies): f"{statement.rstrip()}, {notify.NOTIFY}" if notifies else statement
    for keyed, statement in enumerate((_ACCEPT_ONE, _ACCEPT_UNDER_A_KEY))
    for notifies in (False, True)
}


def _accept_one(item: NewSubmission, *, announces: bool) -> list[tuple[Any, ...]] | None:
    """Insert one row without ON CONFLICT. A conflict is rare: then the result is None, and the general statement decides."""
    if connection.in_atomic_block:
        return None
    facts = vars(item)
    if item.client_key is not None:
        facts = {**facts, "erased": erased_keys.names(item.client, item.client_key)}
    try:
        return [row[:3] for row in db.run(_ONE[item.client_key is not None, announces], facts, patience=PATIENCE_SECONDS)] or None
    except IntegrityError:
        return None


def _accept_all(submissions: Sequence[NewSubmission]) -> list[tuple[Any, ...]]:
    facts = {
        "erased": ["" if item.client_key is None else " ".join(erased_keys.names(item.client, item.client_key)) for item in submissions],
        "ids": [item.public_id for item in submissions],
        "workflows": [item.workflow for item in submissions],
        "payloads": [item.payload for item in submissions],
        "clients": [item.client for item in submissions],
        "client_keys": [item.client_key for item in submissions],
        "hashes": [item.request_hash for item in submissions],
        "sessions": [item.session_key for item in submissions],
    }
    return db.run(_ACCEPT, facts, patience=PATIENCE_SECONDS)


def accept(submissions: Sequence[NewSubmission]) -> list[Accepted]:
    """Commit these orders, in one statement; when it returns they are never lost. The results are in order.

    For a (client, client_key) that is known already, or comes twice in the list, the result is the first submission under
    it, with `replayed`; the caller compares the hashes. A public id that was accepted before (the answer to the commit was
    lost) gives the existing row. Afterwards a hint says that there is work.
    """
    if not submissions:
        return []
    announces = len(submissions) == 1 and hints.announces(hints.CONSUME)
    rows = _accept_one(submissions[0], announces=announces) if len(submissions) == 1 else None
    if rows is None:
        rows, announces = _accept_all(submissions), False
    if failpoints.armed:
        failpoints.hit("web.after_submission_commit")
    if announces:
        hints.announced(hints.CONSUME)
    else:
        hints.send(hints.CONSUME)
    created: dict[str, tuple[datetime, int]] = {public_id: (at, number) for public_id, at, number in rows}
    if created:
        transaction.on_commit(partial(_tell, [item for item in submissions if item.public_id in created]))
    return [
        Accepted(
            id=created[item.public_id][1],
            public_id=item.public_id,
            payload=item.payload,
            created_at=created[item.public_id][0],
            request_hash=item.request_hash,
            replayed=False,
        )
        if item.public_id in created
        else _first_under_key(item)
        for item in submissions
    ]


def _tell(accepted: Sequence[NewSubmission]) -> None:
    """Count these orders, which are committed, and tell of them in their traces."""
    by_workflow: dict[str, list[str]] = {}
    for item in accepted:
        by_workflow.setdefault(item.workflow, []).append(item.public_id)
    for workflow, keys in by_workflow.items():
        measures.ACCEPTED.add(workflow, number=len(keys))
        if spans.on:
            spans.active.accepted(workflow, keys)


def _first_under_key(item: NewSubmission) -> Accepted:
    first = Submission.objects.get(public_id=item.public_id) if item.client_key is None else under_key(item.client, item.client_key).get()
    return Accepted(
        id=first.pk,
        public_id=first.public_id,
        payload=first.payload,
        created_at=first.created_at,
        request_hash=first.request_hash,
        replayed=first.public_id != item.public_id,
    )


def under_key(client: str, key: str) -> QuerySet[Submission]:
    """The submission under this client's key, also where the key has been erased with a person."""
    return Submission.objects.filter(client=client, client_key__in=[key, *erased_keys.names(client, key)])


def waiting(older_than_seconds: float = 0.0) -> bool:
    """Whether a submission has been waiting for longer than this, or for an unknown time: the clock has been put back since."""
    return bool(
        db.run(
            "SELECT 1 FROM supervision_submission WHERE consumed_at IS NULL"
            " AND (created_at <= now() - %(age)s::float8 * interval '1 s' OR created_at > now() + interval '1 min') LIMIT 1",
            {"age": older_than_seconds},
        )
    )
