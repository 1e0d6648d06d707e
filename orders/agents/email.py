"""Tells the customer that the order is on its way.

Used by the `notify-customer` step. A mail cannot be unsent (`undoable` is False), and no server drops a mail because it
had it before. So it is sent again only where the first sending may have failed, and once at most:

1. Sending is in the effect ledger before the server is called. Where the server was not reached, or refused before the
   message was handed over, nothing was sent: the next attempt sends.
2. From the moment the message is handed over until the server has accepted it, its fate is not known; nor is that of an
   attempt that died. The next attempt sends it once more, as an operation of its own. A third time it is not sent.

The Message-ID is the idempotency key, so that whoever sorts by it sees one mail. The key's characters that a Message-ID
may not contain travel percent-encoded.
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
from supervision import Agent, EffectOutcome, Intention, Operation, OutcomeUnknown, PermanentFailure, StepRequest, TransientFailure

SERVICE = "mail"
SEND, REPEAT = "send", "repeat"
_IN_DOUBT = (EffectOutcome.INTENDED, EffectOutcome.UNKNOWN)


class EmailAgent(Agent):
    """Sends one mail per order through Django's mail backend."""

    name = "email"
    undoable = False

    def opens_with(self, request: StepRequest) -> Intention:
        """The first sending."""
        return Intention(SEND, request.idempotency_key, SERVICE)

    def perform(self, request: StepRequest) -> Mapping[str, Any]:
        """Send the confirmation; `{"message_id"}`."""
        message_id = f"<{quote(request.idempotency_key, safe='')}@{_domain()}>"
        message = _message(request, message_id)
        if (sending := _sending(request)) is None:
            return {"message_id": message_id}
        # For each of the few words that the servers exchange: together they stay within the budget, or nearly.
        patience = min(float(settings.EMAIL_TIMEOUT or 10), request.remaining / 2)
        if patience < 0.01:
            raise TransientFailure(_("No time is left to send the mail."))
        connection = get_connection(fail_silently=False, timeout=patience)
        try:
            connection.open()
        except (smtplib.SMTPException, OSError) as problem:
            raise _not_open(problem) from problem
        handed_over = _watch(connection)
        try:
            connection.send_messages([message])
        except (smtplib.SMTPException, OSError) as problem:
            told = _told(problem, handed_over=bool(handed_over))
            sending.settle(EffectOutcome.UNKNOWN if isinstance(told, OutcomeUnknown) else EffectOutcome.REFUSED)
            raise told from problem
        finally:
            _close(connection)
        sending.settle(EffectOutcome.DONE, message_id)
        return {"message_id": message_id}


def _sending(request: StepRequest) -> Operation | None:
    """This attempt's sending; None where the mail is known to be out. Raises PermanentFailure after two in doubt."""
    first = request.intend(SEND, key=request.idempotency_key, service=SERVICE)
    if first.outcome is EffectOutcome.DONE:
        return None
    if first.outcome is EffectOutcome.INTENDED:
        return first
    first.settle(EffectOutcome.UNKNOWN)
    # Not among the row's own: this attempt's intention would hide what the last repetition came to.
    if any(one.operation == REPEAT and one.key == first.key and one.outcome in _IN_DOUBT for one in request.effects()):
        raise PermanentFailure(
            _("The mail was sent twice, and the mail server confirmed neither: it is not sent a third time."), code="mail_unconfirmed"
        )
    again = request.intend(REPEAT, key=request.idempotency_key, service=SERVICE)
    if again.outcome is EffectOutcome.DONE:
        again.settle(EffectOutcome.DONE)
        return None
    return again


def _watch(connection: Any) -> list[bool]:
    """Not empty once the message itself is on its way to the server; always so where the backend does not tell."""
    server = getattr(connection, "connection", None)
    if not isinstance(server, smtplib.SMTP):
        return [True]
    handed_over: list[bool] = []
    data = server.data

    def watched(message: Any) -> Any:
        handed_over.append(True)
        return data(message)

    server.data = watched  # type: ignore[assignment, method-assign]
    return handed_over


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


def _not_open(problem: Exception) -> TransientFailure:
    """The engine's word for why no session could be opened: nothing was sent."""
    text = _("The mail server cannot be reached: %(problem)s") % {"problem": _words(problem)}
    if isinstance(problem, smtplib.SMTPAuthenticationError):
        return TransientFailure(
            _("The mail server refuses our password (%(problem)s): check EMAIL_URL") % {"problem": _words(problem)}, refuses_us=True
        )
    return TransientFailure(text, unreachable=not isinstance(problem, smtplib.SMTPException))


def _told(problem: Exception, *, handed_over: bool) -> Exception:
    """The engine's word for what the mail server said; once it had the message, only a refusal for good is believed."""
    text = _("The mail server: %(problem)s") % {"problem": _words(problem)}
    codes = _codes(problem)
    if codes and all(500 <= code < 600 for code in codes):
        public = _("We could not send mail to your address.")
        return PermanentFailure(text, code="mail_refused", public_message=public)
    return OutcomeUnknown(text) if handed_over else TransientFailure(text)


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
