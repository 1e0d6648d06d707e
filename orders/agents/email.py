"""Tells the customer that the order is on its way.

Used by the `notify-customer` step. A mail cannot be unsent (`undoable` is False); its Message-ID is the idempotency
key, so that a mail which is sent twice is one mail to whoever sorts by it. The key's characters that a Message-ID may
not contain travel percent-encoded.
"""

from __future__ import annotations

import smtplib
from collections.abc import Mapping
from email.utils import parseaddr
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from orders.intake import order_number
from supervision import Agent, OutcomeUnknown, PermanentFailure, StepRequest, TransientFailure


class EmailAgent(Agent):
    """Sends one mail per order through Django's mail backend."""

    name = "email"
    undoable = False

    def perform(self, request: StepRequest) -> Mapping[str, Any]:
        """Send the confirmation; `{"message_id"}`."""
        message_id = f"<{quote(request.idempotency_key, safe='')}@{_domain()}>"
        message = _message(request, message_id)
        # For each of the few words that the servers exchange: together they stay within the budget, or nearly.
        patience = min(float(settings.EMAIL_TIMEOUT or 10), request.remaining / 2)
        if patience < 0.01:
            raise TransientFailure(_("No time is left to send the mail."))
        connection = get_connection(fail_silently=False, timeout=patience)
        try:
            connection.open()
        except (smtplib.SMTPException, OSError) as problem:
            raise TransientFailure(_("The mail server cannot be reached: %(problem)s") % {"problem": _words(problem)}) from problem
        try:
            connection.send_messages([message])
        except (smtplib.SMTPException, OSError) as problem:
            raise _told(problem) from problem
        finally:
            _close(connection)
        return {"message_id": message_id}


def _message(request: StepRequest, message_id: str) -> EmailMultiAlternatives:
    payload = request.payload
    number = order_number(request.run_id)
    facts = {**payload, "number": number}
    message = EmailMultiAlternatives(
        subject=_("Your order %(number)s is on its way") % {"number": number},
        body=render_to_string("orders/mail/on_its_way.txt", facts),
        to=[payload["email"]],
        headers={"Message-ID": message_id, "X-Order-ID": request.run_key},
    )
    message.attach_alternative(render_to_string("orders/mail/on_its_way.html", facts), "text/html")
    return message


def _domain() -> str:
    return parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"


def _close(connection: Any) -> None:
    """End the session; what is said in leaving changes nothing of what was sent."""
    try:
        connection.close()
    except (smtplib.SMTPException, OSError):
        connection.connection = None


def _told(problem: Exception) -> Exception:
    """The engine's word for what the mail server said."""
    text = _("The mail server: %(problem)s") % {"problem": _words(problem)}
    codes = _codes(problem)
    if codes and all(500 <= code < 600 for code in codes):
        public = _("We could not send mail to your address.")
        return PermanentFailure(text, code="mail_refused", public_message=public)
    if codes:
        return TransientFailure(text)
    # Somewhere in the conversation the line went dead: the mail may be out.
    return OutcomeUnknown(text)


def _codes(problem: Exception) -> list[int]:
    if isinstance(problem, smtplib.SMTPRecipientsRefused):
        return [code for code, _reason in problem.recipients.values()]
    if isinstance(problem, smtplib.SMTPResponseException) and problem.smtp_code > 0:
        return [problem.smtp_code]
    return []


def _words(problem: Exception) -> str:
    """What happened, without the customer's address."""
    codes = _codes(problem)
    return ", ".join(str(code) for code in codes) if codes else type(problem).__name__
