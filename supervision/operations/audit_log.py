"""The actor of an operation, and its entry in Django's admin log."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model

from supervision.approvals.actors import Actor, Exempt, account_of, name_of

__all__ = ["Actor", "Exempt", "log", "name_of"]


def log(by: Actor, on: Model, message: str) -> None:
    """Write an admin log entry if the actor is an account. An actor without an account is named in the row's own history."""
    log_all(by, [(on, message)])


def log_all(by: Actor, entries: Sequence[tuple[Model, str]]) -> None:
    """Write the entries of several rows in one statement, as `log` writes one."""
    account = account_of(by)
    if account is None:
        return
    LogEntry.objects.bulk_create(
        LogEntry(
            user_id=account.pk,
            content_type=ContentType.objects.get_for_model(on),
            object_id=str(on.pk),
            object_repr=str(on)[:200],
            action_flag=CHANGE,
            change_message=message,
        )
        for on, message in entries
    )
