"""Tells the customer that the order is on its way.

Used by the `notify-customer` step, by the last step of returns and refunds, and to send the first mail again.

A mail cannot be undone (`undoable` is False), and mail servers do not drop a mail that they received before. So the agent sends
a mail again only if the first try may have failed, and at most once:

1. The agent writes the sending into the effect ledger before it calls the server. If it cannot reach the server, or the
   server refuses before the message is handed over, nothing was sent: the next attempt sends.
2. The result is unknown from the handover of the message until the server accepts it. It is also unknown if an attempt
   died. The next attempt then sends once more, as a separate operation in the ledger. There is no third time.

The Message-ID is the idempotency key: a mail program that groups by Message-ID shows both copies as one mail. Characters
of the key that a Message-ID may not contain are percent-encoded.
"""

from __future__ import annotations

import json
import smtplib
import time
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from orders.formats import speaking
from orders.intake import number_of
from orders.mails.codes import SEND as SEND_AGAIN
from orders.mails.codes import leads_to_someone
from orders.parcels import extent
from orders.parcels.splitting import BOOKING, trackings
from orders.refunds import mail as refund_mail
from orders.refunds.codes import TELL as REFUND_STEP
from orders.returns import mail as return_mail
from orders.returns.codes import TELL as RETURN_STEP
from supervision import Agent, EffectOutcome, Intention, Operation, OutcomeUnknown, PermanentFailure, StepRequest, TransientFailure
from supervision.outbox.notifications import mail_domain

SERVICE = "mail"
SEND, REPEAT = "send", "repeat"
_IN_DOUBT = (EffectOutcome.INTENDED, EffectOutcome.UNKNOWN)


class EmailAgent(Agent):
    """Sends one mail per order or return through Django's mail backend."""

    name = "email"
    undoable = False

    def opens_with(self, request: StepRequest) -> Intention:
        """The first sending."""
        return Intention(SEND, request.idempotency_key, SERVICE)

    def perform(self, request: StepRequest) -> Mapping[str, Any]:
        """Send the mail; `{"message_id"}`."""
        message_id = f"<{quote(request.idempotency_key, safe='')}@{mail_domain()}>"
        message = _message(request, message_id)
        if (sending := _sending(request)) is None:
            return {"message_id": message_id}
        if not leads_to_someone(request.payload["email"]):
            sending.settle(EffectOutcome.REFUSED)
            raise PermanentFailure(_("The person was erased: there is no address to write to."), code="person_erased")
        # The limit holds for each exchange with the server. There are few: together they take about the budget at most.
        patience = min(float(settings.EMAIL_TIMEOUT or 10), request.remaining / 2)
        if patience < 0.01:
            raise TransientFailure(_("No time is left to send the mail."))
        connection = get_connection(fail_silently=False, timeout=patience)
        try:
            connection.open()
        except (smtplib.SMTPException, OSError) as problem:
            raise _not_open(problem) from problem
        handed_over, began = _watch(connection), time.monotonic()
        asked = json.dumps({"Message-ID": message_id, "to": message.to, "subject": message.subject, "body": message.body})
        heard = partial(request.exchanged, SERVICE, "SEND", asked)
        try:
            connection.send_messages([message])
        except (smtplib.SMTPException, OSError) as problem:
            told = _told(problem, handed_over=bool(handed_over))
            heard(str(told), next(iter(_codes(problem)), None), time.monotonic() - began)
            sending.settle(EffectOutcome.UNKNOWN if isinstance(told, OutcomeUnknown) else EffectOutcome.REFUSED)
            raise told from problem
        finally:
            _close(connection)
        sending.settle(EffectOutcome.DONE, message_id)
        heard("accepted", 250, time.monotonic() - began)
        return {"message_id": message_id}


def _sending(request: StepRequest) -> Operation | None:
    """This attempt's ledger row; None if the mail was certainly sent. Raises PermanentFailure after two unknown results."""
    first = request.intend(SEND, key=request.idempotency_key, service=SERVICE)
    if first.outcome is EffectOutcome.DONE:
        return None
    if first.outcome is EffectOutcome.INTENDED:
        return first
    first.settle(EffectOutcome.UNKNOWN)
    # Checked before `intend`: the row that this attempt writes would hide the result of the last repetition.
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
    """A list that is not empty once the message itself goes to the server, and always if the backend cannot be watched."""
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
    with speaking(request.payload.get("language")):
        return _written(request, message_id)


def _written(request: StepRequest, message_id: str) -> EmailMultiAlternatives:
    """The mail in the active language."""
    payload = request.payload
    if request.step in (RETURN_STEP, REFUND_STEP):
        subject, text = (return_mail if request.step == RETURN_STEP else refund_mail).words(request)
        headers = {"Message-ID": message_id, "X-Order-ID": payload["order"]}
        return EmailMultiAlternatives(subject=subject, body=text, to=[payload["email"]], headers=headers)
    again = request.step == SEND_AGAIN
    number = payload["number"] if again else number_of(payload, request.run_id)
    booked = payload.get("extent", extent.ALL) if again else extent.of_results(request.results)
    numbers = payload["trackings"] if again else trackings(request.results.get(BOOKING))
    facts = {**payload, "number": number, "trackings": numbers, "extent": booked}
    message = EmailMultiAlternatives(
        subject=_subject(booked) % {"number": number},
        body=render_to_string("orders/mail/on_its_way.txt", facts),
        to=[payload["email"]],
        headers={"Message-ID": message_id, "X-Order-ID": payload["order"] if again else request.run_key},
    )
    message.attach_alternative(render_to_string("orders/mail/on_its_way.html", facts), "text/html")
    return message


def _subject(booked: str) -> str:
    if booked == extent.ALL:
        return _("Your order %(number)s is on its way")
    return _("A part of your order %(number)s is on its way") if booked == extent.PART else _("Your order %(number)s is paid")


def _close(connection: Any) -> None:
    """End the session. An error here is ignored: the mail was sent or refused before."""
    try:
        connection.close()
    except (smtplib.SMTPException, OSError):
        connection.connection = None


def _not_open(problem: Exception) -> TransientFailure:
    """The engine's failure for a session that could not be opened: nothing was sent."""
    text = _("The mail server cannot be reached: %(problem)s") % {"problem": _words(problem)}
    if isinstance(problem, smtplib.SMTPAuthenticationError):
        return TransientFailure(
            _("The mail server refuses our password (%(problem)s): check EMAIL_URL") % {"problem": _words(problem)}, refuses_us=True
        )
    return TransientFailure(text, unreachable=not isinstance(problem, smtplib.SMTPException))


def _told(problem: Exception, *, handed_over: bool) -> Exception:
    """The engine's failure for a mail server's error. After the handover only a permanent refusal (5xx) proves that it failed."""
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
    """The error's codes or type. Its text is left out because it may contain the customer's address."""
    codes = _codes(problem)
    return ", ".join(str(code) for code in codes) if codes else type(problem).__name__
