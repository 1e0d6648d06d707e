"""A sender that was frozen while it sent goes on later. What it then learns is old, and says nothing about its receiver."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from supervision.models import Delivery, WebhookEndpoint
from supervision.outbox.status_sender import deliver_all
from tests.outbound import kit

pytestmark = pytest.mark.usefixtures("out")


@pytest.fixture
def frozen(receiver) -> Iterator[None]:
    """A message waits at the receiver for its answer, its sender is frozen, and another process has delivered the message."""
    kit.listen(receiver.url, kit.ADA, "order.processed")
    kit.done()
    sender = kit.deliverer()

    def freeze_the_first(request, message):
        if len(receiver.messages) > 1:
            return 204
        os.kill(sender.pid, signal.SIGSTOP)
        kit.let_waits_pass()
        deliver_all()
        assert Delivery.objects.get().delivered_at is not None
        os.kill(sender.pid, signal.SIGCONT)
        request.close_connection = True  # without an answer
        return None

    receiver.answer = freeze_the_first
    try:
        sender.wait(60)
        yield
    finally:
        sender.kill()


def test_the_late_failure_of_a_frozen_sender_is_no_failure_of_its_receiver(receiver, frozen):
    row, hook = Delivery.objects.get(), WebhookEndpoint.objects.get()

    assert (len(receiver.messages), row.status_code, row.tries, row.given_up_at) == (2, 204, 1, None)
    assert (hook.failures, hook.failing_since, hook.retry_at) == (0, None, None)
