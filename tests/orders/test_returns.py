"""Goods that come back: asked for, looked at, restocked, paid back. Never more than was delivered, each once."""

from __future__ import annotations

import pytest

from orders.models import Parcel, Product, Return, Returnable, ReturnLine
from orders.payments import codes as payment_codes
from orders.payments import state
from orders.queries import order_view
from orders.returns import codes
from orders.returns.asking import ask
from orders.services import Conflict
from supervision import testing
from supervision.errors import Refused
from supervision.models import Submission
from supervision.operations import completing
from supervision.outbox import notifications
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.shopping import a_client, a_product, an_account, paying, place

LINES = [{"sku": "MUG-BLUE", "quantity": 2}, {"sku": "TOTE-OCHRE", "quantity": 3}]


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    a_product()
    a_product("TOTE-OCHRE", price="18.00")
    settings.API_THROTTLE = None
    settings.BANK_ACCOUNT = "Shop, IT00 TEST"
    return sas


@pytest.fixture
def ada(shop):
    return an_account("ada", "customer")


@pytest.fixture
def olga(shop):
    return a_client(an_account("olga", "operator"))


@pytest.fixture
def delivered(shop, ada) -> str:
    """An order over 2 mugs (12.90) and 3 totes (18.00), 79.80 EUR."""
    return deliver(shop, ada)


def deliver(shop, account=None, **changes) -> str:
    key = place(account, **{"lines": LINES, **changes})
    shop.run()
    Run(key).assert_state("Processed")
    return key


def path(key: str) -> str:
    return f"/api/v1/orders/{key}/returns/"


def body(**pieces: int) -> dict:
    names = {"mugs": "MUG-BLUE", "totes": "TOTE-OCHRE"}
    return {"lines": [{"sku": names[name], "quantity": count} for name, count in pieces.items()], "reason": "too small"}


def asked(shop, key: str, **pieces: int) -> str:
    """The public id of a return that waits for its goods."""
    view = order_view(key)
    assert view is not None
    made = ask(view, body(**pieces)["lines"], "too small", by="customer")
    shop.run()
    return made.public_id


def goods(shop, back: str, *lines: tuple, key: str | None = None) -> None:
    """Let the warehouse report: (sku, accepted, refused) each."""
    report = {"lines": [dict(zip(("sku", "accepted", "refused"), line, strict=False)) for line in lines]}
    send_signal(back, codes.RECEIVED, report, key=key, sent_by="the warehouse")
    shop.run()


def told(client, back: str) -> dict:
    found = client.get(f"/api/v1/returns/{back}/")
    assert found.status_code == 200
    return found.json()


def held(key: str) -> dict[str, int]:
    return dict(Returnable.objects.filter(order_key=key).values_list("sku", "returned"))


def stock(sku: str) -> int:
    return Product.objects.get(sku=sku).available


# --------------------------------------------------------------------------------------------------- one return


def test_a_part_of_an_order_comes_back_and_its_money_goes_out(shop, delivered, ada, olga, services):
    made = a_client(ada).post(path(delivered), body(mugs=1, totes=2), headers={"Idempotency-Key": "r1"})
    assert made.status_code == 202
    back = made.json()["id"]
    assert made.headers["Location"] == f"/api/v1/returns/{back}/"
    shop.run()
    waiting = told(a_client(ada), back)
    assert (waiting["process_state"], waiting["worth"], waiting["refunded"]) == ("Processing", None, "0.00")
    assert "the returned goods" in told(olga, back)["waiting_because"]

    report = {"lines": [{"sku": "MUG-BLUE", "accepted": 1}, {"sku": "TOTE-OCHRE", "accepted": 1, "refused": 1}], "reason": "looked at"}
    assert olga.post(f"/api/v1/returns/{back}/goods/", report).status_code == 202
    shop.run()

    Run(back).assert_state("Processed")
    now = told(a_client(ada), back)
    assert (now["worth"], now["refunded"], now["order"]) == ("30.90", "30.90", delivered)
    assert [(line["sku"], line["accepted"], line["refused"]) for line in now["lines"]] == [("MUG-BLUE", 1, 0), ("TOTE-OCHRE", 1, 1)]
    assert services.charged(delivered) == 7980 - 3090
    assert paying(delivered) == {"state": "partly_refunded", "action_url": None, "paid": "79.80", "refunded": "30.90"}
    assert (stock("MUG-BLUE"), stock("TOTE-OCHRE")) == (50 - 2 + 1, 50 - 3 + 1)
    assert held(delivered) == {"MUG-BLUE": 1, "TOTE-OCHRE": 1}, "the refused piece may be returned again"
    assert "Your return" in str(services.ledger("mail", delivered)[-1])
    shop.assert_healthy()


def test_everything_comes_back_in_two_returns(shop, delivered, services):
    first = asked(shop, delivered, mugs=2)
    second = asked(shop, delivered, totes=3)
    goods(shop, second, ("TOTE-OCHRE", 3))
    goods(shop, first, ("MUG-BLUE", 2))

    assert [Run(one).state for one in (first, second)] == ["Processed"] * 2
    assert services.charged(delivered) == 0
    assert paying(delivered)["state"] == state.REFUNDED
    assert {one.number for one in Return.objects.all()} == {f"{order_view(delivered).number}-R1", f"{order_view(delivered).number}-R2"}
    shop.assert_healthy()


def test_a_return_of_which_nothing_is_accepted_pays_nothing_back(shop, delivered, services):
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 0, 2))

    Run(back).assert_state("Processed")
    assert Run(back).steps == {
        "await-goods": "Processed",
        "restock-goods": "Skipped",
        "refund-part": "Skipped",
        "notify-return": "Processed",
    }
    assert services.charged(delivered) == 7980
    assert held(delivered)["MUG-BLUE"] == 0
    shop.assert_healthy()


def test_goods_that_never_come_end_the_return_and_free_its_pieces(shop, delivered, ada):
    back = asked(shop, delivered, mugs=2)
    shop.advance("30d")

    Run(back).assert_state("Cancelled")
    assert held(delivered)["MUG-BLUE"] == 0
    assert notifications.deliver_due() >= 1
    assert a_client(ada).post(path(delivered), body(mugs=2)).status_code == 202
    shop.assert_healthy()


def test_a_return_that_an_operator_cancels_frees_its_pieces(shop, delivered):
    back = asked(shop, delivered, mugs=2)
    Run(back).cancel()
    shop.run()

    Run(back).assert_state("Cancelled")
    assert held(delivered)["MUG-BLUE"] == 0
    with pytest.raises(Refused):
        goods(shop, back, ("MUG-BLUE", 2))
    shop.assert_healthy()


def test_a_return_that_is_cancelled_before_it_is_taken_up_frees_its_pieces(shop, delivered):
    back = ask(order_view(delivered), body(mugs=2)["lines"], "no", by="customer").public_id
    Run(back).cancel()
    shop.run()

    Run(back).assert_state("Cancelled")
    assert held(delivered)["MUG-BLUE"] == 0
    shop.assert_healthy()


# ------------------------------------------------------------------------------------------------------ the door


def test_the_same_key_is_the_same_return(shop, delivered, ada):
    client = a_client(ada)
    answers = [client.post(path(delivered), body(mugs=1), headers={"Idempotency-Key": "k"}) for _ in range(3)]

    assert len({one.json()["id"] for one in answers}) == 1
    assert [one.headers.get("Idempotent-Replayed") for one in answers] == [None, "true", "true"]
    assert held(delivered)["MUG-BLUE"] == 1
    other = client.post(path(delivered), body(mugs=2), headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    assert Submission.objects.filter(workflow=codes.WORKFLOW).count() == 1


def test_the_same_key_at_the_same_moment_is_one_return(shop, delivered):
    view = order_view(delivered)

    made = testing.at_once(*[lambda: ask(view, body(mugs=1)["lines"], "x", by="customer", idempotency_key="k").public_id] * 4)

    assert len(set(made)) == 1
    assert held(delivered)["MUG-BLUE"] == 1


def test_returns_at_the_same_moment_never_exceed_what_was_delivered(shop, delivered):
    view = order_view(delivered)

    def one() -> str:
        try:
            return ask(view, body(mugs=1, totes=1)["lines"], "x", by="customer").public_id
        except Conflict as refusal:
            return refusal.code

    made = testing.at_once(*[one] * 6)

    assert sorted(codes.BEYOND if each == codes.BEYOND else "made" for each in made) == [codes.BEYOND] * 4 + ["made"] * 2
    assert held(delivered) == {"MUG-BLUE": 2, "TOTE-OCHRE": 2}
    assert Return.objects.count() == 2
    shop.assert_healthy()


def test_more_than_was_delivered_is_refused_by_the_name_of_its_line(shop, delivered, ada):
    asked(shop, delivered, mugs=2)

    refused = a_client(ada).post(path(delivered), body(totes=1, mugs=1))

    assert (refused.status_code, refused.json()["code"]) == (409, codes.BEYOND)
    assert refused.json()["errors"] == {"lines": {"1": {"quantity": ["Only 0 of MUG-BLUE can be returned."]}}}
    assert held(delivered) == {"MUG-BLUE": 2, "TOTE-OCHRE": 0}, "nothing of a refused return is kept"


def test_an_order_that_is_not_done_can_not_be_returned(shop, ada):
    waiting, cancelled = place(ada, lines=LINES), place(ada, lines=LINES)
    Run(cancelled).cancel()
    answers = [a_client(ada).post(path(key), body(mugs=1)) for key in (waiting, cancelled)]
    shop.run()
    answers.append(a_client(ada).post(path(cancelled), body(mugs=1)))

    assert [(one.status_code, one.json()["code"]) for one in answers] == [(409, codes.NOT_DELIVERED)] * 3
    assert not Return.objects.exists()


def test_parcels_that_the_carrier_brought_back_are_an_operators_to_return(shop, delivered, ada, olga):
    [parcel] = order_view(delivered).parcels
    Parcel.objects.create(key=parcel.key, shipment=parcel.shipment, order_key=delivered, state="returned")
    assert order_view(delivered).parcels[0].state == "returned"

    refused = a_client(ada).post(path(delivered), body(mugs=1))

    assert (refused.status_code, refused.json()["code"]) == (409, codes.NOT_DELIVERED)
    assert olga.post(path(delivered), body(mugs=1)).status_code == 202


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({}, "lines"),
        ({"lines": [], "reason": "x"}, "lines"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 0}], "reason": "x"}, "lines"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": True}], "reason": "x"}, "lines"),
        ({"lines": [{"sku": "NO-SUCH", "quantity": 1}], "reason": "x"}, "lines"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1}]}, "reason"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1}], "reason": "x" * 501}, "reason"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1, "price": "1"}], "reason": "x"}, "lines"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1}], "reason": "x", "amount": "1"}, "amount"),
    ],
)
def test_a_wrong_request_is_refused_by_the_name_of_its_field(shop, delivered, ada, wrong, field):
    refused = a_client(ada).post(path(delivered), wrong)

    assert refused.status_code == 400
    assert field in refused.json()["errors"]
    assert not Return.objects.exists()


def test_a_bad_key_is_refused(shop, delivered, ada):
    refused = a_client(ada).post(path(delivered), body(mugs=1), headers={"Idempotency-Key": "x" * 300})

    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["idempotency_key"])


def test_the_returns_of_others_are_hidden(shop, delivered, ada):
    back = asked(shop, delivered, mugs=1)
    bob = a_client(an_account("bob", "customer"))

    assert bob.get(f"/api/v1/returns/{back}/").status_code == 404
    assert bob.post(path(delivered), body(mugs=1)).status_code == 404
    assert bob.get("/api/v1/returns/unknown-unknown-unknown/").status_code == 404
    assert [one["id"] for one in a_client(ada).get(path(delivered)).json()["results"]] == [back]


# ------------------------------------------------------------------------------------------- what the warehouse says


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({"sku": "MUG-BLUE", "accepted": 3}, "lines[0].accepted"),
        ({"sku": "MUG-BLUE", "accepted": 2, "refused": 1}, "lines[0].refused"),
        ({"sku": "TOTE-OCHRE", "accepted": 1}, "lines[0].sku"),
        ({"sku": "MUG-BLUE"}, "lines"),
    ],
)
def test_a_report_that_does_not_fit_is_refused_by_the_name_of_its_field(shop, delivered, olga, line, field):
    back = asked(shop, delivered, mugs=2)

    refused = olga.post(f"/api/v1/returns/{back}/goods/", {"lines": [line], "reason": "x"})

    assert refused.status_code == 400
    assert field in refused.json()["errors"]


def test_a_report_by_another_door_that_does_not_fit_changes_nothing_and_says_why(shop, delivered, olga):
    back = asked(shop, delivered, mugs=2)
    for report in ({}, {"lines": "all"}, {"lines": [{"sku": "MUG-BLUE", "accepted": 9}]}, {"lines": [3]}, {"note": "x", "lines": []}):
        send_signal(back, codes.RECEIVED, report)
        shop.run()
        assert told(olga, back)["worth"] is None

    goods(shop, back, ("MUG-BLUE", 1))
    Run(back).assert_state("Processed")
    assert held(delivered)["MUG-BLUE"] == 1, "what did not come may be returned later"
    shop.assert_healthy()


def test_a_second_report_changes_nothing(shop, delivered, olga, services):
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 1), key="a")

    again = olga.post(f"/api/v1/returns/{back}/goods/", {"lines": [{"sku": "MUG-BLUE", "accepted": 2}], "reason": "x"})

    assert again.status_code == 409
    assert services.charged(delivered) == 7980 - 1290
    assert ReturnLine.objects.get().accepted == 1


def test_a_report_that_comes_before_the_return_is_taken_up_counts(shop, delivered):
    back = ask(order_view(delivered), body(mugs=1)["lines"], "x", by="customer").public_id
    goods(shop, back, ("MUG-BLUE", 1))

    Run(back).assert_state("Processed")


# --------------------------------------------------------------------------------------------------- other payments


def test_an_order_paid_by_transfer_is_paid_back_by_people(shop, ada, services):
    key = place(ada, lines=LINES, payment_method=payment_codes.BANK_TRANSFER)
    shop.run()
    send_signal(key, payment_codes.TRANSFER, {"amount": "79.80", "currency": "EUR", "reference": "T1"})
    shop.run()
    back = asked(shop, key, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1))
    Run(back).assert_state("Processing")

    completing.complete(back, by="olga", reason="paid back", step="refund-part", result={"refunded": "12.90"})
    shop.run()

    Run(back).assert_state("Processed")
    assert told(a_client(ada), back)["refunded"] == "12.90"
    assert services.ledger("payment", key) == []
    shop.assert_healthy()


def test_a_return_that_is_undone_after_its_refund_stops_for_an_operator(shop, delivered, services):
    shop.fake("notify-return", raises=Refused("no mail", "x"))
    back = asked(shop, delivered, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1))
    Run(back).compensate()
    shop.run()

    Run(back).assert_state("Error")
    Run(back).skip("the customer keeps the money")
    shop.run()
    Run(back).assert_state("Cancelled")
    assert stock("MUG-BLUE") == 48, "the piece was taken out of stock again"
    assert held(delivered)["MUG-BLUE"] == 1, "it stays paid, so it is not returned and paid again"
    shop.assert_healthy()
