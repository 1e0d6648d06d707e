"""Submits a run from the application's own code. A web API with clients of its own uses `submission`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from supervision.errors import Refused
from supervision.intake.submission import NewSubmission, accept, new_public_id
from supervision.postgres import json_safe
from supervision.workflow import newest

MOST_KEY = 255


def submit(workflow: str, payload: Mapping[str, Any] | None = None, *, key: str | None = None, client: str = "") -> str:
    """Submit a run of this workflow, and return the run's key, with which `result`, `state` and `send_signal` find it.

    It is accepted when the caller's transaction commits; outside a transaction, when this returns. key: the caller's own name
    for what is submitted, unique for each client: submitted again under it, the first run's key is returned. Raises
    UnreadableSubmission for an unknown workflow; Refused if the payload is no JSON object (`payload`), if the key is empty or has
    more than 255 characters (`key`), or if another workflow or payload was submitted under it (`key_reused`).
    """
    newest(workflow)
    if key is not None and (not 0 < len(key) <= MOST_KEY or json_safe.storable(key) != key):
        raise Refused(_("A key has 1 to %(most)d characters that can be stored.") % {"most": MOST_KEY}, "key")
    text = _as_text({} if payload is None else payload)
    digest = hashlib.sha256(f"{workflow} {text}".encode()).hexdigest()
    new = NewSubmission(public_id=new_public_id(), workflow=workflow, payload=text, client=client, client_key=key, request_hash=digest)
    [first] = accept([new])
    if first.request_hash != new.request_hash:
        raise Refused(_("Another submission was made under the key %(key)s.") % {"key": key}, "key_reused")
    return first.public_id


def _as_text(payload: Mapping[str, Any]) -> str:
    """The payload as JSON text that PostgreSQL can keep."""
    problem: object = None
    text = ""
    if not isinstance(payload, dict):
        problem = f"expected a dict, got {type(payload).__name__}"
    else:
        try:
            text = json.dumps(payload, allow_nan=False, sort_keys=True)
            kept = json.loads(text)
            problem = None if json_safe.storable(kept) == kept else "it holds characters that cannot be stored, or is nested too deep"
        except (TypeError, ValueError, RecursionError) as error:
            problem = error
    if problem is not None:
        raise Refused(_("The payload is no JSON object: %(problem)s.") % {"problem": problem}, "payload")
    return text
