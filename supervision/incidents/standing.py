"""Incidents that stand until an operator acknowledges them. They tell of what is over: no row shows it but the open incident itself.

The transaction in which it happens opens the incident (`lifecycle.open_now`). Operators are told once, as of any other incident.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from django.conf import settings
from django.utils import translation

from supervision.incidents import lifecycle
from supervision.incidents.lifecycle import Cause
from supervision.postgres import db

_STANDING = """
SELECT kind, cause, title, severity, resource, step, code FROM supervision_incident
 WHERE closed_at IS NULL AND acknowledged_at IS NULL AND kind = ANY (%(kinds)s) ORDER BY id
"""
kinds: list[str] = []


def own_language() -> AbstractContextManager[None]:
    """The installation's language: other people read the text than those in whose requests it is written."""
    return translation.override(settings.LANGUAGE_CODE)


def until_acknowledged(kind: str) -> str:
    """Let the incidents of this kind stand until they are acknowledged; returns the kind."""
    kinds.append(kind)
    lifecycle.detector(kind)(_not_acknowledged)
    return kind


def _not_acknowledged() -> Iterator[Cause]:
    for kind, key, title, severity, resource, step, code in db.fetch(_STANDING, {"kinds": kinds}):
        yield Cause(kind=kind, key=key, title=title, severity=severity, resource=resource, step=step, code=code)
