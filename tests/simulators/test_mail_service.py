"""The mail server delivers every mail, also one with a known Message-ID, and marks repetitions in its ledger."""

from __future__ import annotations

import smtplib
from email.message import EmailMessage

import pytest


@pytest.fixture
def send(simulators, order):
    """Send this test's message by SMTP."""

    def call(local_part: str = "key%3Ado%3A1", timeout: float = 10):
        message = EmailMessage()
        message["Subject"] = "Perché no?"
        message["From"], message["To"] = "shop@shop.example", "ada@example.com"
        message["Message-ID"] = f"<{order}.{local_part}@shop.example>"
        message["X-Order-ID"] = order
        message.set_content("Hello")
        with smtplib.SMTP(*simulators.smtp, timeout=timeout) as smtp:
            smtp.send_message(message)

    return call


def test_a_message_that_is_sent_twice_is_delivered_twice(simulators, order, send):
    send()
    send()
    send("another")

    entries = simulators.ledger("mail", order)
    assert [entry["effect"] for entry in entries] == [True, True, True]
    assert [entry["answer"] for entry in entries] == ["250", "250 (repeated)", "250"]
    assert entries[0]["key"] == f"{order}.key:do:1"
    assert entries[0]["to"] == ["ada@example.com"]
    assert entries[0]["subject"] == "Perché no?"


@pytest.mark.parametrize(("mode", "code"), [("decline", 550), ("error_before", 451)])
def test_a_refused_recipient_gets_nothing(simulators, order, send, mode, code):
    simulators.faults("mail", mode)

    with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
        send()

    assert [answer[0] for answer in refused.value.recipients.values()] == [code]
    assert simulators.ledger("mail", order) == []


def test_a_closed_mail_server_greets_with_421(simulators, send):
    simulators.faults("mail", "down")

    with pytest.raises(smtplib.SMTPConnectError) as refused:
        send()

    assert refused.value.smtp_code == 421


@pytest.mark.parametrize("mode", ["error_after_effect", "reset_after_effect", "timeout_after_effect"])
def test_a_message_whose_answer_is_lost_was_delivered(simulators, order, send, mode):
    simulators.faults("mail", mode)

    with pytest.raises((smtplib.SMTPException, OSError)):
        send(timeout=0.5)
    simulators.clear()
    send()

    assert [entry["effect"] for entry in simulators.ledger("mail", order)] == [True, True]
