"""An order whose payment stays refused: its customer is told, reminded once, then it is cancelled and its stock released."""

from __future__ import annotations

import pytest
from django.core import mail
from django.test import Client

from orders.models import Product
from orders.payments import patience, state
from orders.queries import order_view
from supervision import testing
from supervision.models import Notification
from supervision.operations import operator_verbs
from supervision.outbox import notifications
from supervision.testkit.run import Run
from tests.shopping import DECLINED, a_product, later, place
from tests.support import pages as cost
from tests.support.vacuuming import vacuum


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    settings.PUBLIC_URL = "https://shop.example"
    a_product()
    return sas


@pytest.fixture
def refused(shop) -> str:
    key = place(payment_method=DECLINED)
    shop.run()
    assert left() == 48
    return key


def left() -> int:
    return Product.objects.get().available


def reminders() -> list[mail.EmailMessage]:
    return [one for one in mail.outbox if "not paid" in one.subject]


def told() -> list[mail.EmailMessage]:
    return [one for one in mail.outbox if "was refused" in one.subject]


def test_its_customer_is_told_once_after_ten_minutes_with_the_link_to_pay_again(shop, refused):
    later(shop, "9m")
    assert told() == []
    later(shop, "2m")
    later(shop, "20h")

    [sent] = told()
    assert (sent.to, reminders()) == (["ada@example.com"], [])
    assert f"https://shop.example/orders/{refused}/" in sent.body


def test_a_customer_who_pays_again_at_once_is_not_told_of_the_refusal(shop, refused, client):
    client.post(f"/orders/{refused}/payment/", {"payment_method": "pm_card_visa"})
    shop.run()
    later(shop, "11m")

    assert told() == []
    Run(refused).assert_state("Processed")


def test_it_is_reminded_once_then_cancelled_and_its_stock_released(shop, refused, services):
    later(shop, "23h")
    assert (reminders(), Run(refused).state) == ([], "Error")
    later(shop, "2h")
    [sent] = reminders()
    assert sent.to == ["ada@example.com"]
    assert f"https://shop.example/orders/{refused}/" in sent.body
    later(shop, "46h")
    assert (len(reminders()), Run(refused).state, left()) == (1, "Error", 48)
    later(shop, "2h")

    Run(refused).assert_state("Cancelled")
    assert (left(), services.charged(refused), len(reminders())) == (50, 0, 1)
    assert any("stayed refused" in line for line in Run(refused).history)
    shop.assert_healthy()


def test_an_order_that_was_paid_meanwhile_is_left_alone(shop, refused, services, client):
    client.post(f"/orders/{refused}/payment/", {"payment_method": "pm_card_visa"})
    shop.run()
    later(shop, "4d")

    Run(refused).assert_state("Processed")
    assert (reminders(), services.charged(refused)) == ([], 2580)


def test_another_refusal_begins_another_patience(shop, refused, client):
    later(shop, "2d")
    client.post(f"/orders/{refused}/payment/", {"payment_method": DECLINED})
    shop.run()
    later(shop, "2d")
    assert (Run(refused).state, len(reminders())) == ("Error", 2)
    later(shop, "25h")

    Run(refused).assert_state("Cancelled")


def test_an_order_that_waits_for_its_customer_is_not_cancelled(shop, refused, client, services, settings):
    settings.PAYMENT_ACTION_WITHIN = 7 * 86_400.0
    settings.PAYMENT_LOOK_AFTER = 86_400.0
    client.post(f"/orders/{refused}/payment/", {"payment_method": "pm_card_threeDSecure2Required"})
    shop.run()
    later(shop, "4d")

    assert order_view(refused).payment.state == state.ACTION_REQUIRED
    services.answer_bank(order_view(refused).payment.action_url)
    later(shop, "2d")
    Run(refused).assert_state("Processed")


def test_an_order_that_stopped_for_another_reason_is_left_to_its_operator(shop, services):
    key = place()
    services.faults("payment", "decline", order=key)
    services.clear()
    services.faults("carrier", "decline")
    shop.run()
    Run(key).assert_state("Error")
    services.clear()
    later(shop, "4d")

    Run(key).assert_state("Error")
    assert not Notification.objects.filter(kind__in=[patience.REMINDER, patience.END]).exists()


def test_an_order_that_was_cancelled_by_its_customer_gets_no_reminder(shop, refused):
    Run(refused).cancel()
    shop.run()
    later(shop, "4d")

    assert reminders() == []
    Run(refused).assert_state("Cancelled")


def test_a_customer_who_pays_while_the_order_is_judged_is_not_cancelled(shop, refused, monkeypatch, services):
    """Both orders of the race: the payment comes between the judgement and the cancellation."""
    real = patience._still_refused

    def pays_now(notification):
        still = real(notification)
        if notification.kind == patience.END and still:
            Client().post(f"/orders/{refused}/payment/", {"payment_method": "pm_card_visa"})
        return still

    monkeypatch.setattr(patience, "_still_refused", pays_now)
    later(shop, "73h")
    shop.run()
    later(shop, "1m")

    Run(refused).assert_state("Processed")
    assert services.charged(refused) == 2580
    assert not Notification.objects.filter(kind=patience.END, delivered_at__isnull=True).exists()


def test_two_processes_at_once_cancel_an_order_once(shop, refused):
    shop.advance("73h")
    row = Notification.objects.get(kind=patience.END)

    answers = testing.at_once(*[lambda: patience.end(row)] * 3, *[notifications.deliver_due] * 2)

    assert not [one for one in answers if isinstance(one, Exception) and type(one).__name__ != "ChangedMeanwhile"]
    later(shop, "1m")
    Run(refused).assert_state("Cancelled")
    assert left() == 50
    assert sum("run: Compensating" in line for line in Run(refused).history) == 1


def test_a_mail_server_that_is_away_delays_the_reminder_and_not_the_cancellation(shop, refused, settings):
    settings.EMAIL_BACKEND, settings.EMAIL_HOST, settings.EMAIL_PORT = "django.core.mail.backends.smtp.EmailBackend", "127.0.0.1", 1
    later(shop, "25h")
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    later(shop, "1h")
    assert len(reminders()) == 1
    later(shop, "47h")
    Run(refused).assert_state("Cancelled")


def test_an_operator_who_resubmits_stops_the_patience(shop, refused):
    operator_verbs.resubmit(refused, by="olga", reason="talked to the customer", amend={"payment_method": "pm_card_visa"})
    shop.run()
    later(shop, "4d")

    Run(refused).assert_state("Processed")


def test_the_patience_of_many_orders_costs_nothing_until_it_is_over(shop, refused):
    """The outbox claims by its index: orders that wait for the end of their patience are not read."""
    due = Notification.objects.get(kind=patience.END).not_before

    def pages_with(more: int) -> int:
        """The pages that one claim reads when `more` other orders wait."""
        Notification.objects.bulk_create(Notification(kind=patience.END, run_id=10**9, payload={}, not_before=due) for _ in range(more))
        vacuum("supervision_notification")  # as autovacuum does: earlier tests left rows and statistics
        return cost.touched(lambda: notifications.deliver_due(1))

    few = pages_with(3_000)  # the index has a root above its leaves now; a search for a kind reads one page more

    assert pages_with(6_000) <= few + 10
