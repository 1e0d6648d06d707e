"""The dead letter that an order has become, and what operators are told about it."""

from __future__ import annotations

from django.utils.translation import gettext as _

from supervision.models import DeadLetter, Run


def letter_of(key: str) -> DeadLetter | None:
    """The newest dead letter of this public id, if it has one and no run."""
    if Run.objects.filter(key=key).exists():
        return None
    return DeadLetter.objects.filter(public_id=key).order_by("-pk").first()


def in_words(letter: DeadLetter) -> str:
    """That the order is a dead letter, why, and what settles it; or how it was settled."""
    reason = (letter.reason.splitlines() or [""])[0].rstrip(" .")
    facts = {"number": letter.pk, "why": reason, "how": letter.resolution.rstrip(" .")}
    if letter.resolved_at is not None:
        return _("The order was a dead letter (%(number)d): %(why)s. It is settled: %(how)s.") % facts
    return _(
        "The order is a dead letter (%(number)d): %(why)s. Remove the cause and requeue it, or discard it: `manage.py dead_letters"
        " requeue %(number)d --reason TEXT`, `manage.py dead_letters discard %(number)d --reason TEXT`, or its page in the admin."
    ) % facts  # fmt: skip
