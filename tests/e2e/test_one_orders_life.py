"""One order with real processes: from the API to Processed, on each broker, and with what an operator does on the way."""

from __future__ import annotations

from tests.support.shop import Shop, until

STEPS = ["reserve-stock", "charge-payment", "book-shipment", "notify-customer"]


def test_an_order_ends_processed_with_one_charge_one_shipment_and_one_mail_on_each_broker(
    shop_on_each_broker: Shop,
) -> None:
    shop = shop_on_each_broker
    headers = shop.headers()
    before = shop.rows("SELECT available FROM orders_product WHERE sku = 'MUG-BLUE'")[0][0]

    keys = [shop.place(headers) for _ in range(5)]

    for key in keys:
        shop.ends(key, "Processed")
        [charge] = [entry for entry in shop.ledger("payment", key) if entry["operation"] == "confirm"]
        assert charge["amount"] == 2580
        assert len(shop.ledger("carrier", key)) == 1
        assert len(shop.ledger("mail", key)) == 1
        answer = shop.get(key, headers)
        assert [step["name"] for step in answer["steps"]] == STEPS
        assert {step["process_state"] for step in answer["steps"]} == {"Processed"}
    after = shop.rows("SELECT available FROM orders_product WHERE sku = 'MUG-BLUE'")[0][0]
    assert before - after == 2 * len(keys)
    assert "all hold" in shop.manage("audit")


def test_a_declined_card_stops_the_order_and_only_the_failed_step_runs_again(shop: Shop) -> None:
    headers, operator = shop.headers(), shop.headers("operator")

    key = shop.place(headers, payment_method="pm_card_visa_chargeDeclined")
    shop.ends(key, "Error")

    alerts = shop.rows("SELECT a.kind FROM supervision_alert a JOIN supervision_run r ON r.id = a.run_id WHERE r.key = %s", key)
    assert alerts == [("error",)]
    # The customer has to correct this error, so operators see the incident and get no mail about it.
    told = "SELECT severity, code, orders, notified_at FROM supervision_incident WHERE kind = 'step_error' AND closed_at IS NULL"
    assert until(lambda: shop.rows(told), what="the incident") == [("info", "card_declined", 1, None)]

    shop.manage("resubmit", key, "--reason", "the customer called", check=False)
    shop.ends(key, "Error")  # the same card is refused again
    answer = shop.http.post(
        f"/api/v1/orders/{key}/resubmit/",
        json={"reason": "another card", "amend": {"payment_method": "pm_card_visa"}},
        headers=operator,
    )
    assert answer.status_code == 202, answer.text
    shop.ends(key, "Processed")
    attempts = dict(
        shop.rows(
            "SELECT s.name, s.attempt FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id WHERE r.key = %s",
            key,
        )
    )
    assert attempts == {"reserve-stock": 1, "charge-payment": 3, "book-shipment": 1, "notify-customer": 1}
    assert len([e for e in shop.ledger("payment", key) if e["operation"] == "confirm"]) == 1


def test_a_refused_shipment_is_undone_to_net_zero_by_the_operator(shop: Shop) -> None:
    headers, operator = shop.headers(), shop.headers("operator")
    before = shop.rows("SELECT available FROM orders_product WHERE sku = 'MUG-BLUE'")[0][0]
    shop.fault(service="carrier", mode="decline")
    key = shop.place(headers)
    shop.ends(key, "Error")

    answer = shop.http.post(f"/api/v1/orders/{key}/compensate/", json={"reason": "no carrier ships there"}, headers=operator)

    assert answer.status_code == 202, answer.text
    shop.ends(key, "Cancelled")
    shop.fault()
    money = shop.ledger("payment", key)
    charged = sum(entry["amount"] for entry in money if entry["operation"] == "confirm")
    assert charged == sum(entry["amount"] for entry in money if entry["operation"] == "refund") > 0
    assert not [entry for entry in shop.ledger("carrier", key) if entry["operation"] == "create"]
    after = shop.rows("SELECT available FROM orders_product WHERE sku = 'MUG-BLUE'")[0][0]
    assert after == before
    undone = shop.rows(
        "SELECT s.name FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id WHERE r.key = %s"
        " AND s.direction = 'undo' AND s.process_state = 'Processed' ORDER BY s.finished_at",
        key,
    )
    assert [name for (name,) in undone] == ["charge-payment", "reserve-stock"]
