"""The cancellation mail when the customer's mail server refuses it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from orders import lifecycle
from supervision.incidents import lifecycle as incidents
from supervision.models import Incident, Notification
from supervision.outbox.notifications import deliver_due
from supervision.workflow import ClosedRun

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cancelled(services, order, settings):
    """A cancelled order whose mail waits; the mail server answers 550."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    services.faults("mail", "decline")
    lifecycle.tell_the_customer([ClosedRun(run_id=1, key=order, reason="", payload={"email": "gone@example.com"})])
    return order


def test_a_refused_cancellation_mail_is_given_up_after_the_first_answer_and_is_an_incident(cancelled):
    assert deliver_due() == 0

    told = Notification.objects.get()
    assert (told.tries, told.delivered_at) == (1, None)
    assert told.given_up_at is not None
    assert "550" in told.last_error
    Notification.objects.update(not_before=timezone.now() - timedelta(days=1))
    assert deliver_due() == 0
    assert Notification.objects.get().tries == 1
    incidents.look()
    assert Incident.objects.filter(kind="delivery_failed", closed_at=None).count() == 1


def test_a_cancellation_mail_that_its_server_cannot_take_now_is_sent_later(cancelled, services):
    services.faults("mail", "error_before")
    assert deliver_due() == 0
    assert Notification.objects.get().given_up_at is None

    services.clear()
    Notification.objects.update(not_before=timezone.now() - timedelta(days=1))

    assert deliver_due() == 1
    assert services.effects("mail", "deliver", cancelled) == 1
