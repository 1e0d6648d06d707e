"""What a later request about an order begins (a return, a refund, its mail again): a run of its own, one for each idempotency key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orders.services import InvalidOrder, KeyReused
from orders.validation import key_problem
from supervision.intake.submission import NewSubmission, new_public_id, under_key


@dataclass(frozen=True)
class Asked:
    """An accepted request. replayed: it was accepted before, under the same idempotency key."""

    public_id: str
    replayed: bool = False


def check_key(key: str) -> None:
    """Raise InvalidOrder where this is no idempotency key."""
    if problem := key_problem(key):
        raise InvalidOrder({"idempotency_key": [problem]})


def digest_of(*said: Any) -> str:
    """A hash of what is asked for, which tells a repetition from another request under the same key."""
    return hashlib.sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()


def seen(client: str, key: str, digest: str) -> Asked | None:
    """The request that was accepted under this key before. Raises KeyReused if it asked for something else."""
    known = under_key(client, key).values_list("public_id", "request_hash").first()
    if known is None:
        return None
    if known[1] != digest:
        raise KeyReused
    return Asked(known[0], replayed=True)


def submission(workflow: str, payload: Mapping[str, Any], *, client: str, key: str | None, digest: str) -> NewSubmission:
    """The submission of the request's run."""
    return NewSubmission(
        public_id=new_public_id(),
        workflow=workflow,
        payload=json.dumps(payload, ensure_ascii=False, separators=(",", ":")),
        client=client,
        client_key=key,
        request_hash=digest,
        session_key=None,
    )
