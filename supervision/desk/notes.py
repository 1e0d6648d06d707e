"""Notes on an order, and who looks after it. Both outlive its run: they are kept under its public id.

Each change is a row of its own that is never changed, and an entry in Django's admin log where the order still has a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import PermissionsMixin
from django.utils.translation import gettext as _

from supervision.approvals import rights
from supervision.errors import Refused, UnknownRun
from supervision.models import ArchivedRun, Assignee, Run, RunNote, Submission
from supervision.operations.acting import same_note
from supervision.operations.audit_log import Actor, log, name_of
from supervision.operations.operator_verbs import LONGEST_NOTE
from supervision.postgres import db

MOST_NOTES = 500  # of one order
OPERATORS_SHOWN = 500

# Wins only where it changes something; the row is locked until the note about it is written.
_ASSIGN = """
INSERT INTO supervision_assignee AS o (run_key, owner, since) VALUES (%(key)s, %(owner)s, now())
ON CONFLICT (run_key) DO UPDATE SET owner = excluded.owner, since = excluded.since WHERE o.owner <> excluded.owner
RETURNING o.run_key
"""

# Two requests that add a note to one order at the same time see each other's.
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended('supervision notes of ' || %(key)s, 20261129))"


def add(key: str, text: str, *, by: Actor) -> RunNote:
    """Add a note to the order, and return it. Raises Refused where it is empty, too long, or one too many; UnknownRun.

    Notes cannot be removed. So the same text by the same author within SAME_NOTE_SECONDS is the same note: a form that was sent twice.
    """
    text = text.strip()
    if not text or len(text) > LONGEST_NOTE or "\0" in text:
        raise Refused(_("A note has between 1 and %(most)d characters.") % {"most": LONGEST_NOTE}, "bad_note")

    def work() -> RunNote:
        run = known(key)
        db.fetch(_ONE_AT_A_TIME, {"key": key})
        if (same := same_note(RunNote.objects.filter(run_key=key), name_of(by), text)) is not None:
            return same
        if RunNote.objects.filter(run_key=key).count() >= MOST_NOTES:
            raise Refused(_("The order has %(most)d notes. It takes no more.") % {"most": MOST_NOTES}, "too_many_notes")
        note = RunNote.objects.create(run_key=key, author=name_of(by), text=text)
        if run is not None:
            log(by, run, f"noted: {text}")
        return note

    return db.transact(work)


def assign(key: str, owner: str, *, by: Actor) -> bool:
    """Give the order to this operator; an empty name removes its owner. False if it was so before.

    Raises Refused where the account may not act on orders; UnknownRun.
    """
    demand_operator(owner)

    def work() -> bool:
        run = known(key)
        if not owner and not Assignee.objects.filter(run_key=key).exists():
            return False
        if not db.fetch(_ASSIGN, {"key": key, "owner": owner}):
            return False
        text = _("Assigned to %(owner)s.") % {"owner": owner} if owner else _("Without an owner from now on.")
        RunNote.objects.create(run_key=key, author=name_of(by), text=text)
        if run is not None:
            log(by, run, text)
        return True

    return db.transact(work)


def of(key: str) -> list[RunNote]:
    """The notes on this order, the newest first."""
    return list(RunNote.objects.filter(run_key=key).order_by("-pk"))


def owners(keys: Sequence[str]) -> dict[str, str]:
    """Who looks after these orders; one without an owner is missing. One query."""
    return dict(Assignee.objects.filter(run_key__in=list(keys)).exclude(owner="").values_list("run_key", "owner"))


def operators() -> list[str]:
    """The names of the accounts that may act, to one of whom an order or an incident can be given."""
    both = (rights.ALL, f"supervision.{rights.DUTIES[rights.INCIDENTS]}")
    return sorted({account.get_username() for right in both for account in _accounts_with(right)})


def _accounts_with(right: str) -> Iterable[Any]:
    """Active accounts that have this right, at most OPERATORS_SHOWN. Asks no method of the manager: a project's own may have few."""
    model: Any = get_user_model()
    backend: Any = ModelBackend()
    if issubclass(model, PermissionsMixin):
        is_a_column = any(field.name == "is_active" for field in model._meta.concrete_fields)
        found: Iterable[Any] = backend.with_perm(right, is_active=True if is_a_column else None).order_by("pk")[:OPERATORS_SHOWN]
        return found
    some = model._default_manager.order_by("pk")[:OPERATORS_SHOWN]  # it keeps its rights in no table that we know
    return [account for account in some if account.is_active and account.has_perm(right)]


def demand_operator(name: str) -> None:
    """Raise Refused if this is no account that may act; the empty name removes the owner and passes."""
    if name and name not in operators():
        raise Refused(_("%(name)s is no operator.") % {"name": name}, "unknown_operator")


def known(key: str) -> Run | None:
    """The order's run; None if it has none yet, or is archived. Raises UnknownRun."""
    run = Run.objects.filter(key=key).first()
    known = run or Submission.objects.filter(public_id=key).exists() or ArchivedRun.objects.filter(key=key).exists()
    if not known:
        raise UnknownRun(key)
    return run
